/* The caller's thread: runs one operation until it is done, perhaps together with a second one, or
 * sends a release without waiting for its reply. */
#include <assert.h>
#include <errno.h>
#include <signal.h>

#include "links.h"
#include "watchdog.h"

/* Returns the roles of the links that the caller's thread reads: those for calls and events, and
 * also the renewer's while no watchdog is running. */
static unsigned caller_roles(const hf_driver *driver) {
    return HF_ROLE(HF_LINK_CALLS) | HF_ROLE(HF_LINK_EVENTS) |
           (driver->running ? 0 : HF_ROLE(HF_LINK_RENEWER));
}

/* The operations that one call runs. */
typedef struct ops {
    hf_op *op;
    const hf_op *other; /* or NULL; the call also ends when this one is done */
} ops;

static bool is_over(const ops *call) {
    return hf_op_is_done(call->op) || (call->other && hf_op_is_done(call->other));
}

/* Returns when the caller's thread must wake up; the watchdog handles all other deadlines. */
static hf_time call_deadline(const hf_driver *driver, const ops *call) {
    if (!driver->running) return hf_client_next_tick(driver->client);
    hf_time until =
        hf_time_min(hf_client_calls_next_tick(driver->client), hf_op_next_tick(call->op));
    return call->other ? hf_time_min(until, hf_op_next_tick(call->other)) : until;
}

/* Lets the handlers of pending signals run. Returns false if there was such a signal. */
static bool handle_pending_signals(hf_driver *driver, const sigset_t *signals) {
    pthread_mutex_unlock(&driver->mutex);
    bool signalled = hf_poll(NULL, 0, 0, signals) < 0 && errno == EINTR;
    pthread_mutex_lock(&driver->mutex);
    return !signalled;
}

/* Waits until the watchdog changes something. A signal does not end a wait for a condition, so
 * pending signals are handled after each wait. Returns false after a signal. */
static bool wait_for_change(hf_driver *driver, hf_time until, const sigset_t *signals) {
    hf_time now = hf_now();
    hf_cond_wait(&driver->changed, &driver->mutex,
                 hf_time_min(until > now ? until - now : 0, HF_POLL_SLICE));
    return !signals || handle_pending_signals(driver, signals);
}

/* Returns whether the call awaits only a reply, so that one recv can replace poll and recv; the
 * events link is read afterwards. While signals are blocked, they cannot interrupt recv, so a long
 * call sleeps in poll. */
static bool awaits_one_reply(const hf_driver *driver, const hf_op *op, bool blocks_signals,
                             hf_time now) {
    const hf_session *calls = hf_link_session(driver, HF_LINK_CALLS);
    const hf_connection *events = &driver->connections[HF_LINK_EVENTS];
    bool is_long_call = now >= hf_op_begun_at(op) + HF_POLL_SLICE;
    if (blocks_signals && (events->fd >= 0 || is_long_call)) return false;
    bool is_only_link = driver->running && driver->connection_count == HF_LINKS && !events->dialing;
    bool is_plaintext = !driver->connections[HF_LINK_CALLS].tls;
    return hf_op_awaits_reply(op) && is_only_link && is_plaintext && hf_session_is_ready(calls) &&
           hf_session_output(calls).size == 0;
}

/* Returns false after a signal. `signals`: the signal mask during sleeps, or NULL. With a mask, no
 * signal can arrive between two sleeps, so the thread need not wake up every HF_POLL_SLICE. */
static bool sleep_for_call(hf_driver *driver, const ops *call, const sigset_t *signals,
                           hf_time now) {
    const hf_op *op = call->op;
    hf_time until = call_deadline(driver, call), slice_end = now + HF_POLL_SLICE;
    bool has_work = hf_links_have_work(driver); /* only this thread reads during a call */
    if (hf_op_is_blocked(op) && driver->running && !has_work)
        return wait_for_change(driver, until, signals);
    if (hf_op_is_blocked(op)) until = hf_time_min(until, slice_end);
    if (until > slice_end && !call->other && awaits_one_reply(driver, op, signals != NULL, now))
        return hf_links_receive_reply(driver);
    bool shares_links = driver->connection_count >
                        HF_LINKS; /* the watchdog may need the links that this thread serves */
    if (!signals || shares_links) until = hf_time_min(until, slice_end);
    return hf_links_sleep(driver, caller_roles, -1, until, signals);
}

/* Runs the operations until call.op or call.other is done. Only call.op can be interrupted. `now`:
 * when the last operation began. */
static void run_until_done(hf_driver *driver, ops call, bool interruptible,
                           hf_interrupt_check *check, void *context, hf_time now) {
    hf_op *op = call.op;
    sigset_t before;
    /* Blocked signals arrive only during sleeps, so none is missed just before a sleep. */
    bool blocks_signals = interruptible;
    driver->calling = true;
    if (blocks_signals) hf_block_signals(&before);
    while (!is_over(&call)) {
        bool signalled = false;
        hf_links_serve_calls(driver, now);
        if (hf_links_fetch_credentials(driver, caller_roles(driver), context)) {
            now = hf_now();
            hf_links_serve(driver, caller_roles(driver), now);
        }
        if (!driver->running) hf_links_serve_renewer(driver, hf_now());
        if (!is_over(&call)) {
            hf_watchdog_wake(driver);
            signalled = !sleep_for_call(driver, &call, blocks_signals ? &before : NULL, now);
        }
        now = hf_now();
        if (is_over(&call)) break;
        bool is_long = now >= hf_op_begun_at(op) + HF_POLL_SLICE; /* worth the system calls */
        if (!blocks_signals && !hf_op_awaits_reply(op) && is_long) {
            hf_block_signals(&before);
            blocks_signals = true;
        }
        if (check(context, signalled)) hf_op_interrupt(op, now);
    }
    if (blocks_signals) pthread_sigmask(SIG_SETMASK, &before, NULL);
    driver->calling = false;
    hf_links_serve(driver, HF_ROLE(HF_LINK_CALLS) | HF_ROLE(HF_LINK_EVENTS), now);
    hf_client_end_detached(driver->client, now);
    hf_watchdog_wake(driver);
}

hf_op *hf_driver_run(hf_driver *driver, const hf_op_spec *spec, bool interruptible,
                     hf_interrupt_check *check, void *context) {
    assert(hf_driver_is_entered(driver) && !driver->calling);
    hf_time now = hf_links_read_idle(driver);
    hf_op *op = hf_client_begin(driver->client, spec, now);
    if (op && hf_op_is_done(op) && driver->running) hf_watchdog_wake(driver);
    else if (op) run_until_done(driver, (ops){op, NULL}, interruptible, check, context, now);
    return op;
}

void hf_driver_run_both(hf_driver *driver, hf_op *op, const hf_op *other, bool interruptible,
                        hf_interrupt_check *check, void *context) {
    assert(hf_driver_is_entered(driver) && !driver->calling);
    hf_time now = hf_links_read_idle(driver);
    run_until_done(driver, (ops){op, other}, interruptible, check, context, now);
}

hf_op *hf_driver_send(hf_driver *driver, const hf_op_spec *spec, hf_interrupt_check *check,
                      void *context) {
    assert(hf_driver_is_entered(driver) && !driver->calling);
    hf_time now = hf_links_read_idle(driver);
    hf_op *op = hf_client_begin(driver->client, spec, now);
    if (op && hf_op_is_done(op)) hf_watchdog_wake(driver);
    if (!op || hf_op_is_done(op)) return op;
    if (!driver->running || !hf_op_detach(op)) {
        run_until_done(driver, (ops){op, NULL}, false, check, context, now);
        return op;
    }
    hf_links_serve(driver, HF_ROLE(HF_LINK_CALLS) | HF_ROLE(HF_LINK_EVENTS), now);
    hf_watchdog_wake(driver);
    return op;
}

bool hf_driver_needs_login(const hf_driver *driver) {
    for (size_t link = 0; driver->fetch && link < driver->connection_count; link++) {
        if (hf_session_needs_other_login(hf_link_session(driver, link))) return true;
    }
    return false;
}

void hf_driver_fetch_credentials(hf_driver *driver, void *context) {
    assert(hf_driver_is_entered(driver) && !driver->calling);
    if (hf_links_fetch_credentials(driver, 0, context)) hf_watchdog_wake(driver);
}
