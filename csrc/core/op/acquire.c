#include "op/acquire.h"

/* The acquire operation: asks for the lock, and waits in the queue while another owner holds it.
 * operation.c has the table of its states and transitions.
 *
 * The hold exists from the start, so nothing can fail once the server has granted the lock. The
 * hold becomes HELD only if its lease is still valid; if not, the renewer undoes what the server
 * may have done. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lock/wire.h"
#include "op/crash.h"
#include "op/deadlock.h"
#include "op/events.h"
#include "op/kept.h"
#include "op/leave.h"
#include "op/operation.h"
#include "op/presence.h"
#include "op/renew.h"
#include "op/taking.h"

#define MIN_REPLY_TIMEOUT (100 * HF_MS) /* the minimum, even if the wait is shorter */
#define MAX_LEAVE_TIME (900 * HF_MS)    /* the queue must be left within 1 s of the wait's end */
#define MIN_RECHECK (HF_MS / 4)         /* the minimum time between rechecks */
#define MAX_RECHECK (30 * HF_SECOND)    /* the maximum time; much shorter than the queue's TTL */
/* A waiter rechecks once per `ahead` / CROWD_SIZE grant leases, but at most once per lease. */
#define CROWD_SIZE 100
#define MIN_SILENT_RECHECK (30 * HF_MS)   /* the minimum if the holder announces nothing */
#define MAX_FOREIGN_RECHECK (200 * HF_MS) /* the maximum in that case for a foreign holder */
#define MIN_LISTENERS_TURN (50 * HF_MS)   /* the minimum for clients that listen, not for pollers */
#define HOLD_END_TOLERANCE (5 * HF_MS)    /* how much two replies about one hold may differ */
#define LISTEN_DELAY (150 * HF_MS) /* after this time the first waiter also listens to Redisson */
#define MAX_HOLDS 1000000000LL     /* the maximum count of an owner's holds in all its processes */
#define MAX_RECOUNTS 3             /* how many times to retry if other processes change the count */

static void on_reply(hf_request *request, const hf_reply *reply, hf_time now);
static void on_cancelled(hf_request *request, const hf_reply *reply, hf_time now);
static void on_recheck(hf_op *op, hf_time delay, hf_time now);
static bool use_early_grant(hf_op *op, hf_time now);

/* ---- ending ---- */

static void finish(hf_op *op, hf_time now) {
    assert(op->done);
    op->blocked = false;
    free(op->acquire.waiter);
    op->acquire.waiter = NULL;
    hf_session_drop(&op->request);
    hf_op_set_listening(op, false, now);
    if (op->hold) hf_renewer_abandon_deferred(op->client, op->hold, now);
}

/* Ends the operation's use of its hold. Called if the operation has left nothing on the server. */
static void forget(hf_op *op, hf_time now) {
    if (op->hold) hf_renewer_forget(op->client, op->hold, now);
}

/* Makes the renewer await the reply to a shared owner's acquire that is under way. To read it, the
 * renewer must know whether a token was requested. Returns whether the renewer awaits a reply. */
static bool pass_to_renewer(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    hf_claim *claim = hold->claim;
    bool is_asking = op->state == HF_ACQUIRE_ASKING && op->spec.shared && hf_hold_in_table(hold);
    if (!is_asking || !hf_hold_is_live(hold)) return false;
    if (hf_claim_is_requested(claim)) claim->token_ttl_ms = op->spec.token_ttl_ms;
    return hf_renewer_await_reply(op->client, hold, &op->request, now);
}

/* Undoes what the operation may have left on the server. A re-entry need not be undone: the next
 * command for this hold sets the count, or finds out what to release. */
static void undo(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    bool is_first = hold && hf_claim_is_requested(hold->claim);
    if (is_first && op->acquire.queued) {
        hf_holds_set_wait(&op->client->holds, hold->claim, op->wait.number);
        hold->claim->token_ttl_ms = op->spec.token_ttl_ms;
    }
    if (hold && pass_to_renewer(op, now)) return;
    if (hold) hold->claim->count_uncertain = true;
    if (is_first) hf_renewer_clean_up_on_same_connection(op->client, hold->claim, now);
    else forget(op, now);
}

/* Undoes an operation that may have left a place in the queue on the server, and nothing else. */
static void undo_queueing(hf_op *op, hf_time now) {
    if (op->acquire.queued) undo(op, now);
    else forget(op, now);
}

/* The message for a semaphore if it is unknown when a permit will be free. */
#define TOO_FEW_PERMITS                                                                            \
    "too few permits are free (set the total with the permits option or set_permits)"

void hf_acquire_fail_at_max_waiters(hf_op *op, long long waiters) {
    hf_op_fail(op, HF_BUSY, "%lld already waiting in line, and max_waiters is %u", waiters,
               op->spec.max_waiters);
}

static void fail_busy(hf_op *op, hf_time now) {
    const hf_session *events = &op->node->links[HF_LINK_EVENTS];
    bool unsubscribed = op->wait.needs_events && !op->node->subscribed && events->reason[0];
    const char *suffix = unsubscribed ? "; cannot listen for releases: " : "",
               *reason = unsubscribed ? events->reason : "";
    const char *taken = op->spec.lock_kind->busy_text;
    if (op->acquire.waiters_when_refused > 0) {
        hf_acquire_fail_at_max_waiters(op, op->acquire.waiters_when_refused);
        return;
    }
    if (op->acquire.busy_until > now) {
        char left[32];
        hf_op_fail(op, HF_BUSY, "%s, for up to %s s more unless renewed%s%s", taken,
                   hf_seconds_text(left, op->acquire.busy_until - now, 3), suffix, reason);
    } else {
        hf_op_fail(op, HF_BUSY, "%s%s%s", op->spec.lock_kind->has_permits ? TOO_FEW_PERMITS : taken,
                   suffix, reason);
    }
}

void hf_acquire_fail_as_deadlock(hf_op *op) {
    if (op->deadlock.cycle)
        hf_op_fail(op, HF_DEADLOCK,
                   "the waits form a cycle: %s; always take locks in the same order, or take them "
                   "as one multi_lock",
                   op->deadlock.cycle);
    else
        hf_op_fail(
            op, HF_DEADLOCK,
            "another owner in this client holds it and cannot proceed while this call waits; "
            "use an event-loop driver to avoid this");
}

static void fail_with_code(hf_op *op, hf_code code, hf_time now) {
    if (code == HF_BUSY) fail_busy(op, now);
    else if (code == HF_DEADLOCK) hf_acquire_fail_as_deadlock(op);
    else hf_op_fail(op, code, "the wait was interrupted by a signal");
    finish(op, now);
}

static void fail_with_reason(hf_op *op, hf_code code, const char *reason, hf_time now) {
    hf_op_fail(op, code, "%s", reason);
    finish(op, now);
}

/* A grant is confirmed after a third of the remaining time, which allows for opening a connection,
 * or at once if less than half of the lease is left. */
hf_time hf_acquire_confirm_at(const hf_op *op, hf_time end, hf_time now) {
    hf_time lease = hf_time_min(op->client->config.grant_lease, op->spec.lease),
            left = end > now ? end - now : 0;
    return left < lease / 2 ? now : now + left / 3;
}

/* Takes the lock until `end`. `granted`: by a grant rather than by the reply. Fails if `end` has
 * passed, or if the hold was lost during a re-entry. */
static void take(hf_op *op, hf_time end, uint64_t token, bool granted, hf_time now) {
    hf_client *client = op->client;
    hf_hold *hold = op->hold;
    assert(op->state == HF_ACQUIRE_ASKING || op->state == HF_ACQUIRE_WAITING);
    bool usable = hf_hold_is_live(hold);
    if (now >= end || !usable) {
        op->acquire.queued = false;
        undo(op, now);
        hf_op_fail(op, HF_LOST,
                   usable ? "the server answered after the lease had ended"
                          : "this owner lost the lock in the meantime");
        finish(op, now);
        return;
    }
    bool is_first = hf_hold_is_acquiring(hold);
    hold->claim->share.others = is_first ? op->acquire.holds_before : hold->claim->share.others;
    if (hold->claim->share.pending_releases > hold->claim->share.others)
        hold->claim->share.pending_releases = hold->claim->share.others;
    hold->claim->shared = op->spec.shared;
    hf_taken_hold taken = {op->acquire.holds_before + 1, granted ? now : op->request.sent_at, end,
                           token};
    hf_op_take(op, hold, &taken);
    if (granted || !hf_claim_is_unconfirmed(hold->claim))
        hf_holds_set_wait(&client->holds, hold->claim, granted ? op->wait.number : 0);
    if (granted)
        hold->claim->confirm_at =
            hf_acquire_confirm_at(op, hf_time_min(end, hold->claim->max_until), now);
    if (is_first && hold->claim->kept) hf_kept_on_acquired(op, op->acquire.last_token, now);
    hf_renewer_resume(client, hold->claim, now);
    hf_op_succeed(op);
    finish(op, now);
    hf_client_unblock(client, hold->claim, now);
}

/* ---- asking ---- */

static bool prepare_waiter(hf_op *op) {
    if (op->acquire.waiter) return true;
    op->wait.number =
        op->spec.shared ? ++op->client->holds.last_number : op->hold->claim->by_number.number;
    if (!hf_number_table_put(&op->client->waits, &op->wait.by_number, op->wait.number, op))
        return false;
    op->acquire.waiter = malloc(HF_WAITER_SIZE);
    if (!op->acquire.waiter) return false;
    op->acquire.waiter_size = hf_client_write_waiter(
        op->acquire.waiter, op->client, op->hold->claim, op->wait.number, op->spec.token_ttl_ms);
    return true;
}

static bool is_subscribed(const hf_op *op) {
    return op->wait.needs_events && op->node->subscribed;
}

/* For a read lock: returns the owner of the same caller's write lock, or an empty slice. */
static hf_slice writer_of(const hf_op *op) {
    const hf_kind *write_kind = op->spec.lock_kind->write_half;
    if (!write_kind) return HF_NO_TEXT;
    const hf_hold *hold =
        hf_holds_find(&op->client->holds, write_kind, op->spec.names->key, op->spec.caller);
    return hold && hf_hold_is_held(hold) ? hf_hold_owner(hold) : HF_NO_TEXT;
}

static bool encode_acquire(hf_op *op, bool as_waiter, hf_time now) {
    hf_wire_lock lock = hf_op_wire_lock(op, hf_claim_owner(op->hold->claim));
    hf_wire_acquire acquire = {
        .holds_before = op->acquire.holds_before,
        .shared = op->spec.shared,
        .lease = hf_claim_capped_lease(op->hold->claim, op->spec.lease, now),
        .token_ttl_ms = op->spec.token_ttl_ms,
        .waiter = as_waiter ? (hf_slice){op->acquire.waiter, op->acquire.waiter_size} : HF_NO_TEXT,
        .fingerprint = op->spec.fingerprint,
        .writer = writer_of(op),
        .token_floor = op->spec.token_floor,
        .permits = op->spec.initial_permits};
    return hf_wire_acquire_call(&op->request, &lock, &acquire) &&
           hf_client_sync(op->client, &op->request);
}

static hf_time min_reply_timeout(const hf_op *op) {
    return hf_time_min(MIN_REPLY_TIMEOUT + op->client->config.sync.timeout, MAX_LEAVE_TIME);
}

static hf_time ask_deadline(const hf_op *op, hf_time now) {
    hf_time timeout = op->client->config.session.command_timeout, minimum = min_reply_timeout(op);
    if (op->acquire.queued) return hf_time_max(op->wait.until, now + minimum);
    if (op->spec.wait == 0) return op->begun_at + timeout;
    return now + hf_time_min(timeout,
                             hf_time_max(op->wait.until > now ? op->wait.until - now : 0, minimum));
}

static void fail_out_of_memory(hf_op *op, hf_time now) {
    undo(op, now);
    hf_op_fail_out_of_memory(op);
    finish(op, now);
}

static void ask(hf_op *op, hf_time now) {
    assert(!op->blocked && (op->hold->claim->has_command_in_flight || hf_hold_is_lost(op->hold)));
    bool may_wait = op->spec.wait > 0 && (op->acquire.holds_before == 0 || op->spec.shared);
    bool persists = may_wait && !hf_hold_is_held(op->hold) && !op->wait.interrupted;
    bool as_waiter = op->acquire.queued || (may_wait && is_subscribed(op));
    if ((as_waiter && !prepare_waiter(op)) || !encode_acquire(op, as_waiter, now)) {
        fail_out_of_memory(op, now);
        return;
    }
    hf_op_become(op, HF_ACQUIRE_ASKING);
    op->wait.woken = false;
    op->acquire.early_grant.place[0] = '\0';
    bool waits_for_connection = op->acquire.queued;
    op->request.accepted = op->acquire.admitted && !op->wait.interrupted;
    op->request.no_retry = op->spec.shared && op->acquire.holds_before > 0;
    op->acquire.queued = op->acquire.queued || as_waiter;
    /* A re-entry does not keep trying: the held lock is not renewed during the acquire. */
    op->request.resend_until = persists ? op->wait.until : 0;
    hf_op_send(op, on_reply, ask_deadline(op, now), waits_for_connection, now);
}

/* Returns the deadline for leaving the queue. A process that was stopped or suspended when its wait
 * ended still gets the full time. */
static hf_time leave_deadline(const hf_op *op, hf_time now) {
    bool late = now > hf_time_add(op->wait.until, min_reply_timeout(op));
    hf_time since = late ? now : hf_time_min(now, op->wait.until);
    hf_time timeout = op->client->config.session.command_timeout;
    return hf_time_min(now + timeout, since + MAX_LEAVE_TIME);
}

/* Leaves the queue, then fails with this code. */
static void cancel(hf_op *op, hf_code code, hf_time now) {
    assert(code != HF_OK && op->hold);
    hf_wire_lock lock = hf_op_wire_lock(op, hf_claim_owner(op->hold->claim));
    hf_slice waiter = {op->acquire.waiter, op->acquire.waiter_size};
    op->acquire.end_code = code;
    if (!op->acquire.queued) {
        forget(op, now);
        fail_with_code(op, code, now);
        return;
    }
    if (!hf_wire_leave(&op->request, &lock, op->acquire.holds_before, waiter,
                       op->spec.shared ? 0 : HF_WIRE_NOT_SHARED)) {
        fail_out_of_memory(op, now);
        return;
    }
    hf_op_become(op, HF_ACQUIRE_CANCELLING);
    op->request.no_retry = op->request.accepted = false;
    op->request.resend_until = 0;
    hf_op_send(op, on_cancelled, leave_deadline(op, now), false, now);
}

static void on_cancelled(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    assert(op->state == HF_ACQUIRE_CANCELLING);
    if (reply) {
        forget(op, now);
        if (hf_wire_read_verdict(reply) == HF_VERDICT_NEEDS_LEAVE)
            hf_renewer_grant_to_next(op->client, op->spec.lock_kind, op->spec.names->key, now);
        fail_with_code(op, op->acquire.end_code, now);
        return;
    }
    const hf_fault *failure = &request->failure;
    undo(op, now);
    if (op->acquire.end_code == HF_BUSY && failure->code == HF_UNREACHABLE)
        fail_with_reason(op, failure->code, hf_fault_text(failure), now);
    else fail_with_code(op, op->acquire.end_code, now);
}

/* ---- replies ---- */

/* Converts milliseconds to an hf_time; a negative number means never. */
static hf_time time_or_never(long long ms) {
    return ms < 0 ? HF_NEVER : hf_time_of_ms((uint64_t)ms);
}

/* Returns when to recheck. Once the holder's lease or the first waiter's time has run out, the
 * waiters recheck one after the other. They also recheck regularly, because the first waiter may be
 * dead but seem alive. Up to MAX_RECHECK, the number of rechecks grows only with the logarithm of
 * the number of waiters. */
static hf_time next_recheck(hf_op *op, const hf_acquire_reply *answer, hf_time now) {
    hf_client *client = op->client;
    hf_time rank = answer->ahead < 0 ? 0 : hf_time_min((hf_time)answer->ahead, 1000000);
    hf_time in_turn = HF_MS + hf_time_min(rank, 80) * 5 * HF_MS;
    hf_time at_expiry =
        hf_time_min(time_or_never(answer->ttl_ms), time_or_never(answer->passed_over_in_ms));
    at_expiry = hf_time_add(at_expiry, in_turn);
    hf_time interval =
        hf_time_min(client->config.grant_lease * hf_time_max(1, rank / CROWD_SIZE), MAX_RECHECK);
    if (answer->holder_is_foreign && answer->ahead == 0)
        interval = interval * 3 / 8; /* see passing_over.lua */
    interval = interval - interval / 10 + hf_jitter(&client->random, interval / 10);
    return hf_time_add(now, hf_time_min(at_expiry, interval));
}

/* Called for a waiter behind a holder that announces nothing. Makes the waiter recheck often at
 * first, then at longer intervals, up to `longest`. */
static void recheck_often(hf_op *op, hf_time longest, hf_time now) {
    hf_time interval = hf_time_max(MIN_SILENT_RECHECK, (now - op->acquire.silent_since) / 4);
    hf_time random = HF_MS + hf_jitter(&op->client->random, hf_time_min(interval, longest));
    op->wait.recheck_at = hf_time_min(op->wait.recheck_at, now + random);
}

/* Called for the first waiter behind a holder that does not hand the lock over. Redisson announces
 * its release; its SpinLock and the foreign owner of a mutex do not. A subscription to a sharded
 * channel counts only once confirmed: the server may refuse it, or the slot may have moved. */
static void watch_foreign(hf_op *op, hf_time now) {
    bool is_announced = op->spec.lock_kind->publishes_releases;
    if (is_announced) hf_op_listen_to_releases(op, now);
    if (!is_announced || op->acquire.is_pollers_turn ||
        (hf_node_has_sharded_channels(op->node) && op->wait.listening != HF_SUBSCRIPTION_CONFIRMED))
        recheck_often(op, MAX_FOREIGN_RECHECK, now);
}

/* Stores the waiter's place. The server never assigns a place twice, except that a new waiter may
 * get the place of another one that was passed over. So a grant to this waiter that names this
 * place was sent after the command whose reply named it. */
static void store_place(hf_op *op, hf_slice place) {
    size_t size = place.size < sizeof op->acquire.place ? place.size : 0;
    assert(size < sizeof op->acquire.place);
    memcpy(op->acquire.place, place.data, size);
    op->acquire.place[size] = '\0';
    op->acquire.placed_at = op->request.sent_at;
}

/* Returns whether this client has another hold of the key and kind that outlasts the wait. */
static bool has_lasting_hold(const hf_op *op, const hf_kind *kind) {
    if (!kind) return false;
    const hf_hold *hold =
        hf_holds_find_lasting(&op->client->holds, kind, op->spec.names->key, op->wait.until);
    return hold && hold != op->hold;
}

bool hf_acquire_waits_for_itself(const hf_op *op) {
    const hf_kind *kind = op->spec.lock_kind;
    if (!op->spec.blocks_callers) return false;
    bool exclusive =
        !kind->many_owners && !kind->has_permits; /* otherwise another client may make room */
    return (exclusive && has_lasting_hold(op, kind)) || has_lasting_hold(op, kind->read_half) ||
           has_lasting_hold(op, kind->write_half);
}

/* Returns whether the waiters ahead of a reader wait for another reader of this client. */
static bool is_behind_itself(const hf_op *op, const hf_acquire_reply *answer) {
    const hf_kind *kind = op->spec.lock_kind;
    bool waits_for_waiters = kind->many_owners && answer->ahead > 0 && !answer->holder_is_foreign;
    return waits_for_waiters && op->spec.blocks_callers && has_lasting_hold(op, kind);
}

/* Returns whether too many waiters are ahead of this one, and stores their number. Otherwise admits
 * the waiter if it is queued: from then on it keeps its place. */
static bool refuse_or_admit(hf_op *op, const hf_acquire_reply *answer) {
    bool is_new = op->acquire.queued && !op->acquire.admitted;
    if (is_new && op->spec.limits_waiters && answer->ahead >= (long long)op->spec.max_waiters)
        op->acquire.waiters_when_refused = answer->ahead;
    else op->acquire.admitted = op->acquire.queued || op->acquire.admitted;
    return op->acquire.waiters_when_refused > 0;
}

/* Returns the code with which the acquire must stop waiting, or HF_OK if it may continue. */
static hf_code stop_code(hf_op *op, const hf_acquire_reply *answer, hf_time now) {
    bool is_over = now >= op->wait.until;
    if (op->wait.interrupted) return HF_INTERRUPTED;
    bool waits_for_itself = hf_acquire_waits_for_itself(op) || is_behind_itself(op, answer);
    if (op->deadlock.cycle || (!is_over && waits_for_itself)) return HF_DEADLOCK;
    return is_over || refuse_or_admit(op, answer) ? HF_BUSY : HF_OK;
}

/* Returns whether this hold excludes the acquire until it is released: it is the caller's hold of
 * the other half of a read/write lock, or any hold of the same semaphore's permits. */
static bool excludes(const hf_op *op, const hf_hold *hold) {
    hf_claim *claim = hold->claim;
    const hf_kind *kind = op->spec.lock_kind;
    bool is_other_half = (claim->kind == kind->read_half || claim->kind == kind->write_half) &&
                         hf_slice_equal(hf_hold_caller(hold), op->spec.caller);
    bool has_permits = kind->has_permits && claim->kind == kind;
    return (is_other_half || has_permits) && hf_slice_equal(hf_hold_key(hold), op->spec.names->key);
}

/* Returns the claim of an earlier detached release that excludes this acquire, or NULL. */
static hf_claim *find_earlier_release(const hf_op *op) {
    for (const hf_op *other = op->client->ops; other != op; other = other->next) {
        bool under_way =
            other->detached && !other->done && hf_hold_has_detached_release(other->hold);
        if (under_way && other->hold->claim->has_command_in_flight && excludes(op, other->hold))
            return other->hold->claim;
    }
    return NULL;
}

/* Returns the caller's claim to the other half of a read/write lock if that claim is leaving and
 * its clean-up has not failed, or NULL. */
static hf_claim *find_leaving_half(const hf_op *op) {
    const hf_kind *kind = op->spec.lock_kind,
                  *other = kind->read_half ? kind->read_half : kind->write_half;
    if (!other) return NULL;
    hf_claim *claim =
        hf_holds_find_leaving(&op->client->holds, other, op->spec.names->key, op->spec.caller);
    return claim && claim->failures == 0 ? claim : NULL;
}

/* Returns whether the acquire must wait for a release that this client sent earlier and that is not
 * done, because the release had to be resent or was given up. Sets op->awaited_claim to that
 * release's claim. If the claim is leaving, its leave command is sent at once. */
static bool find_release_to_await(hf_op *op, hf_time now) {
    if (op->acquire.queued || op->wait.interrupted) return false;
    if (op->awaited_claim && op->awaited_claim->has_command_in_flight) return true;
    hf_claim *claim = find_earlier_release(op);
    if (!claim) claim = find_leaving_half(op);
    if (claim) hf_op_set_awaited_claim(op, claim);
    if (claim) hf_renewer_expedite_clean_up(op->client, claim, now);
    return claim != NULL;
}

/* Blocks the acquire until its client's earlier release is done. Returns false if there is none. A
 * renewal of the released hold may finish first; the function is then called again. */
static bool await_release(hf_op *op, hf_time now) {
    if (!find_release_to_await(op, now)) return false;
    hf_op_become(op, HF_ACQUIRE_AWAITING_RELEASE);
    hf_op_block(op, op->awaited_claim);
    return true;
}

static void on_busy(hf_op *op, const hf_acquire_reply *answer, hf_time now) {
    long long ttl_ms = answer->ttl_ms, ahead = answer->ahead;
    op->acquire.busy_until =
        ttl_ms > 0 ? hf_time_add(op->request.sent_at, hf_time_of_ms((uint64_t)ttl_ms)) : 0;
    if (await_release(op, now)) return;
    store_place(op, answer->place);
    hf_presence_on_wait(op, now);
    hf_code end = stop_code(op, answer, now);
    if (end != HF_OK) {
        cancel(op, end, now);
    } else if (!op->acquire.queued || !is_subscribed(op)) {
        if (!op->wait.needs_events) op->client->stats.waits++;
        hf_op_become(op, HF_ACQUIRE_SUBSCRIBING);
        op->wait.recheck_at = next_recheck(op, answer, now);
        hf_op_set_listening(op, true, now);
        if (op->node->subscribed) ask(op, now);
    } else {
        assert(op->acquire.queued && op->wait.needs_events);
        hf_op_become(op, HF_ACQUIRE_WAITING);
        op->wait.accepted = true;
        op->wait.recheck_at = next_recheck(op, answer, now);
        bool may_listen = op->spec.lock_kind->reentrant || op->spec.lock_kind->has_permits;
        op->acquire.listen_at = ahead == 0 && may_listen ? op->begun_at + LISTEN_DELAY : HF_NEVER;
        if (op->spec.lock_kind->uses_list) hf_op_listen_to_releases(op, now);
        bool foreign = ahead == 0 && answer->holder_is_foreign;
        bool silent = foreign || answer->keeper_is_unreachable;
        /* The holder is new, so recheck often at first. */
        if (silent && op->acquire.busy_until >
                          hf_time_add(op->acquire.silent_holder_end, HOLD_END_TOLERANCE)) {
            op->acquire.silent_since = now;
            op->acquire.silent_holder_end = op->acquire.busy_until;
        }
        op->acquire.is_pollers_turn = foreign && op->acquire.is_pollers_turn;
        if (foreign) watch_foreign(op, now);
        else if (silent) recheck_often(op, HF_NEVER, now);
        if (!use_early_grant(op, now) && op->wait.woken) on_recheck(op, 0, now);
    }
}

/* Another process holds the lock under the same owner: this acquire adds a hold to the count. */
static void on_count_changed(hf_op *op, long long count, hf_time now) {
    if (count < 1 || count >= MAX_HOLDS || ++op->acquire.recounts > MAX_RECOUNTS) {
        undo_queueing(op, now);
        hf_op_fail(op, HF_BUSY,
                   "another process that shares this owner is acquiring or releasing it");
        finish(op, now);
        return;
    }
    hf_hold *hold = op->hold;
    if (hf_hold_is_held(hold)) hf_claim_set_count(hold->claim, (uint32_t)count);
    op->acquire.holds_before = (uint32_t)count;
    ask(op, now);
}

static void on_gone(hf_op *op, hf_lost_reason reason, hf_time now) {
    hf_hold *hold = op->hold;
    if (hf_hold_is_acquiring(hold)) { /* the owner's other process has released the lock */
        op->acquire.holds_before = 0;
        ask(op, now);
        return;
    }
    if (hf_hold_is_held(hold)) hf_renewer_on_lost(op->client, hold, reason, now);
    forget(op, now);
    hf_op_fail(op, HF_LOST, "this owner no longer holds the lock (%s)",
               hf_lost_reason_name(reason));
    finish(op, now);
}

static void on_failed(hf_op *op, hf_time now) {
    if (op->request.possible_runs == 0 && !op->acquire.queued) forget(op, now);
    else undo(op, now);
    if (op->wait.interrupted && op->request.failure.code == HF_UNREACHABLE) {
        fail_with_code(op, HF_INTERRUPTED, now);
        return;
    }
    hf_op_fail_with_request(op, &op->request);
    finish(op, now);
}

/* Called if the guard's key stores the record of a run that has ended. */
static void on_already_done(hf_op *op, hf_slice record, hf_time now) {
    op->result.record = malloc(record.size + 1);
    if (!op->result.record) {
        fail_out_of_memory(op, now);
        return;
    }
    memcpy(op->result.record, record.data, record.size);
    op->result.record_size = record.size;
    forget(op, now);
    hf_op_fail(op, HF_DUPLICATE, "it is already done");
    finish(op, now);
}

static void fail_unconfirmed(hf_op *op, hf_time now) {
    hf_renewer_add_pending_release(op->hold->claim, op->request.sent_at);
    undo(op, now);
    hf_op_fail_unconfirmed(op);
    finish(op, now);
}

static bool has_valid_count(const hf_op *op, const hf_acquire_reply *answer) {
    return answer->others >= -(long long)op->acquire.holds_before &&
           answer->others < MAX_HOLDS - (long long)op->acquire.holds_before;
}

static void on_yes(hf_op *op, const hf_acquire_reply *answer, hf_time now) {
    op->acquire.server_us = answer->server_us;
    op->acquire.holds_before = (uint32_t)((long long)op->acquire.holds_before + answer->others);
    hf_time asked_at = op->request.sent_at;
    hf_time lease = hf_time_min(op->spec.lease, op->hold->claim->shorter_lease);
    op->acquire.last_token = (uint64_t)answer->last_token;
    take(op, hf_claim_lease_end(op->hold->claim, lease, asked_at), (uint64_t)answer->number, false,
         now);
}

/* Fails the acquire because the server refuses it, and waiting would not help. */
static void fail_refused(hf_op *op, const hf_acquire_reply *answer) {
    switch (answer->verdict) {
    case HF_VERDICT_STILL_HELD: /* through a hold that this client does not know */
        hf_op_fail(op, HF_BUSY,
                   "another process holds the lock under this owner's name, and the lock is not "
                   "re-entrant");
        break;
    case HF_VERDICT_MISMATCH:
        hf_op_fail(op, HF_MISMATCH, "the key belongs to a request with a different fingerprint");
        break;
    case HF_VERDICT_NEWER_FORMAT:
        hf_op_fail(op, HF_CONFLICT,
                   "a client running a newer, incompatible version of holdfast is waiting "
                   "for it");
        break;
    case HF_VERDICT_TOO_MANY:
        hf_op_fail(op, HF_CONFLICT,
                   "the semaphore's total is %lld, fewer than the %u permits requested",
                   answer->number, op->spec.permits);
        break;
    case HF_VERDICT_OTHER_KIND: hf_op_fail_for_other_kind(op, answer->found); break;
    case HF_VERDICT_NO_TTL:
        hf_op_fail(op, HF_CONFLICT, "the key holds a hash without a TTL, so it is not a lock");
        break;
    default: hf_op_fail(op, HF_SERVER, "the script returned an unexpected reply");
    }
}

/* `clean` is `undo` if the server may have granted the lock, and otherwise `undo_queueing`. */
static void on_refused(hf_op *op, const hf_acquire_reply *answer,
                       void (*clean)(hf_op *op, hf_time now), hf_time now) {
    clean(op, now);
    fail_refused(op, answer);
    finish(op, now);
}

static void on_reply(hf_request *request, const hf_reply *reply, hf_time now) {
    static const hf_acquire_reply unexpected = {.verdict = HF_VERDICT_UNEXPECTED};
    hf_op *op = request->context;
    assert(op->state == HF_ACQUIRE_ASKING && !op->done);
    if (!reply) {
        on_failed(op, now);
        return;
    }
    hf_acquire_reply answer = hf_wire_read_acquire(reply, op->spec.token_ttl_ms > 0);
    switch (answer.verdict) {
    case HF_VERDICT_YES:
        if (!hf_request_is_confirmed(request)) fail_unconfirmed(op, now);
        else if (has_valid_count(op, &answer)) on_yes(op, &answer, now);
        else on_refused(op, &unexpected, undo, now);
        break;
    case HF_VERDICT_BUSY: on_busy(op, &answer, now); break;
    case HF_VERDICT_STILL_HELD:
        if (op->spec.lock_kind->reentrant) on_count_changed(op, answer.number, now);
        else on_refused(op, &answer, undo_queueing, now);
        break;
    case HF_VERDICT_DELETED: on_gone(op, HF_LOST_DELETED, now); break;
    case HF_VERDICT_TAKEN: on_gone(op, HF_LOST_TAKEN, now); break;
    case HF_VERDICT_ALREADY_DONE: on_already_done(op, answer.record, now); break;
    case HF_VERDICT_MISMATCH:
    case HF_VERDICT_NEWER_FORMAT:
    case HF_VERDICT_TOO_MANY:
    case HF_VERDICT_OTHER_KIND: on_refused(op, &answer, undo_queueing, now); break;
    case HF_VERDICT_NO_TTL: on_refused(op, &answer, undo, now); break;
    default: on_refused(op, &unexpected, undo, now);
    }
}

/* ---- beginning ---- */

/* Returns whether the acquire may be sent before the reply to the caller's own release: over the
 * same connection, the server runs them in order. It must wait for the reply in a quorum and its
 * members; if the owner is shared, because its holds are counted together; and if keys move,
 * because the connection may then be a different one. */
static bool may_pipeline(const hf_client *client, const hf_hold *hold) {
    bool released = hf_hold_has_detached_release(hold) && !hold->claim->shared;
    bool decides_alone = !client->decider->op_impl && !client->is_member;
    return released && decides_alone && !client->topology->slots_can_move;
}

/* Returns whether the caller asks for the write lock but holds the read lock: a deadlock. */
static bool is_upgrade(hf_op *op, const hf_hold *hold, hf_time now) {
    const hf_kind *read_kind = op->spec.lock_kind->read_half;
    if (!read_kind || (hold && hf_hold_is_held(hold))) return false;
    hf_hold *read_hold =
        hf_holds_find(&op->client->holds, read_kind, op->spec.names->key, op->spec.caller);
    if (read_hold) hf_client_refresh(op->client, read_hold, now);
    return read_hold && hf_hold_is_held(read_hold);
}

/* Fails the acquire if the caller's hold does not permit it. Returns whether it has failed. */
static bool fail_if_refused(hf_op *op, const hf_hold *hold) {
    bool under_way = hf_hold_is_acquiring(hold) || hf_hold_is_releasing(hold);
    bool may_wait =
        hold->claim->has_command_in_flight && (op->client->is_member || op->spec.wait > 0);
    if (hf_hold_is_held(hold) && !op->spec.lock_kind->reentrant)
        hf_op_fail(op, HF_BUSY, "this owner already holds it, and the lock is not re-entrant");
    else if (under_way && !hold->detached && !may_wait) hf_op_fail(op, HF_BUSY, HF_UNDER_WAY);
    return op->done;
}

/* Returns whether the acquire must wait until a claim of its caller is gone, and sets
 * op->awaited_claim to that claim. Otherwise the acquire could end up in the server's queue behind
 * the claim. */
static bool find_leave_to_await(hf_op *op) {
    hf_claim *claim = hf_holds_find_leaving(&op->client->holds, op->spec.lock_kind,
                                            op->spec.names->key, op->spec.caller);
    if (claim) hf_op_set_awaited_claim(op, claim);
    return claim != NULL;
}

bool hf_acquire_choose_hold(hf_op *op, hf_time now) {
    assert(!op->hold);
    hf_client *client = op->client;
    hf_hold *hold = hf_op_find_hold(op, op->spec.names->key, now);
    if (is_upgrade(op, hold, now)) {
        hf_op_fail(op, HF_DEADLOCK,
                   "this owner holds the read lock, and a reader cannot become a writer");
        return false;
    }
    if (hold && hf_hold_is_lost(hold)) {
        hf_op_drop_lost(op, hold, now);
        hold = NULL;
    }
    if (hold && may_pipeline(client, hold)) {
        hf_op_set_awaited_claim(op, hold->claim);
        hf_renewer_set_aside_release(client, hold);
        hold = NULL;
    }
    if (hold && fail_if_refused(op, hold)) return false;
    if (!hold && find_leave_to_await(op)) return true;
    if (!hold)
        hold = op->acquire.kept ? hf_kept_add_hold(op) : hf_op_add_hold(op, op->spec.names->key);
    if (!hold) {
        hf_op_fail_out_of_memory(op);
        return false;
    }
    hf_hold_ref(hold);
    op->hold = hold;
    return true;
}

static void start(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    hf_claim *claim = hold->claim;
    assert(hf_hold_is_live(hold));
    if (hf_hold_is_acquiring(hold)) {
        claim->shared = op->spec.shared;
        claim->lease = op->spec.lease;
    }
    op->acquire.holds_before = hf_hold_is_held(hold) ? claim->count : 0;
    hf_op_mark_command_in_flight(op, hold);
    if (op->spec.wait > 0 && op->node->subscribed) hf_op_set_listening(op, true, now);
    ask(op, now);
}

void hf_acquire_block(hf_op *op, hf_claim *claim, hf_time now) {
    hf_op_set_awaited_claim(op, claim);
    hf_op_block(op, claim);
    hf_op_become(op, HF_ACQUIRE_BLOCKED);
    hf_renewer_expedite_clean_up(op->client, claim, now);
}

/* Starts the acquire, or blocks it until another call of this caller is done or the renewer has
 * removed what an earlier call left on the server. */
static void start_or_block(hf_op *op, hf_time now) {
    hf_claim *claim = op->hold ? op->hold->claim : op->awaited_claim;
    if (op->hold && !claim->has_command_in_flight) {
        start(op, now);
        return;
    }
    hf_op_set_awaited_claim(op, claim);
    if (op->hold) hf_hold_unref(op->hold);
    op->hold = NULL;
    hf_acquire_block(op, claim, now);
}

void hf_acquire_ask(hf_op *op, hf_time now) {
    bool chosen = hf_acquire_choose_hold(op, now);
    op->acquire.kept = NULL; /* the hold may be the caller's own, which is not kept */
    if (chosen) start_or_block(op, now);
    else finish(op, now);
}

static void begin(hf_op *op, hf_time now) {
    op->wait.until = hf_time_add(now, op->spec.wait);
    op->wait.recheck_at = op->acquire.listen_at = HF_NEVER;
    op->acquire.silent_since = now;
    if (!hf_kept_begin(op, now)) hf_acquire_ask(op, now);
}

/* The wait may have been for a series of short calls, so a call that has just ended counts, too. */
bool hf_acquire_waited_for_other_call(const hf_op *op, hf_time now) {
    const hf_claim *claim = op->awaited_claim;
    if (op->spec.wait == 0 || hf_claim_is_leaving(claim)) return false;
    return hf_claim_is_requested(claim) ||
           hf_claim_has_settled_within(claim, MIN_REPLY_TIMEOUT, now);
}

/* Fails because another call takes longer than this wait, or because the renewer could not remove
 * what an earlier call left on the server. */
static void fail_blocked(hf_op *op, hf_time now) {
    const hf_session *calls = &op->node->links[HF_LINK_CALLS];
    const char *reason = calls->reason;
    if (hf_acquire_waited_for_other_call(op, now)) hf_op_fail(op, HF_BUSY, HF_UNDER_WAY);
    else
        hf_op_fail(op, hf_session_failure_code(calls), "%s",
                   reason[0] ? reason : "an earlier command for this key got no reply");
    finish(op, now);
}

static void unblock(hf_op *op, hf_time now) {
    assert(op->state == HF_ACQUIRE_AWAITING_RELEASE || op->state == HF_ACQUIRE_BLOCKED);
    hf_claim *claim = op->awaited_claim;
    if (op->state == HF_ACQUIRE_AWAITING_RELEASE) {
        if (!await_release(op, now)) ask(op, now);
        return;
    }
    bool failed = hf_claim_is_leaving(claim) && claim->failures > 0;
    if (failed && !hf_renewer_set_aside(op->client, claim, now)) {
        if (claim->leave.refused && op->spec.wait > 0 && !op->wait.interrupted)
            hf_op_block(op, claim);
        else fail_blocked(op, now);
        return;
    }
    hf_op_set_awaited_claim(op, NULL);
    if (!hf_kept_begin(op, now)) hf_acquire_ask(op, now);
}

/* ---- events ---- */

static void on_subscribed(hf_op *op, hf_time now) {
    op->wait.woken = true; /* the pending reply may be older than the subscription */
    if (op->state == HF_ACQUIRE_SUBSCRIBING || op->state == HF_ACQUIRE_WAITING) ask(op, now);
}

/* Returns whether only the reply counts, because other users of the server may forge grants. */
static bool distrusts_grants(const hf_op *op) {
    return op->client->config.tenant[0] != '\0';
}

/* Asks the server about a grant: at once, or like a recheck if it has just asked about another. */
static void check_grant(hf_op *op, hf_time now) {
    if (now < op->acquire.checked_at + MIN_RECHECK) {
        on_recheck(op, 0, now);
        return;
    }
    op->acquire.checked_at = now;
    ask(op, now);
}

/* The server sent this grant, which names our place, after we had sent the command whose reply
 * named the place. The hold therefore lasts at least for the grant's lease from that time, or for
 * the lock's own lease from now, whichever ends first. */
static void use_grant(hf_op *op, const hf_message *grant, hf_time now) {
    hf_time lease = hf_time_min(grant->lease, op->client->config.grant_lease);
    hf_time end =
        hf_time_min(hf_lease_end(op->acquire.placed_at, lease), hf_lease_end(now, op->spec.lease));
    bool needs_token = op->spec.token_ttl_ms > 0 && grant->token == 0;
    bool needs_fingerprint = op->spec.lock_kind->has_fingerprint && op->spec.fingerprint.size > 0;
    bool ours =
        op->acquire.place[0] && hf_slice_equal(grant->place, hf_slice_of(op->acquire.place));
    lease = hf_time_min(lease, op->spec.lease);
    bool needs_reply = needs_token || needs_fingerprint || op->client->config.sync.replicas > 0;
    op->acquire.handed_over = ours;
    op->acquire.last_token = grant->last_token;
    if (needs_reply || distrusts_grants(op) || !ours || now >= end || end - now < lease / 4)
        check_grant(op, now);
    else take(op, end, grant->token, true, now);
}

/* Stores the grant until the pending reply shows whether it is for our place. */
static void store_early_grant(hf_op *op, const hf_message *grant, hf_time now) {
    hf_early_grant *early = &op->acquire.early_grant;
    if (grant->place.size >= sizeof early->place) return;
    memcpy(early->place, grant->place.data, grant->place.size);
    early->place[grant->place.size] = '\0';
    early->received_at = now;
    early->lease = grant->lease;
    early->token = grant->token;
    early->last_token = grant->last_token;
}

/* Uses a grant for our place that overtook the reply naming the place; returns false if there is
 * none. If the command was sent twice, a grant from before the second time does not count, because
 * a master that has failed since may have sent it. */
static bool use_early_grant(hf_op *op, hf_time now) {
    const hf_early_grant *early = &op->acquire.early_grant;
    bool same = early->place[0] && strcmp(early->place, op->acquire.place) == 0;
    if (!same || early->received_at <= op->acquire.placed_at) return false;
    hf_message grant = {.place = hf_slice_of(early->place),
                        .lease = early->lease,
                        .token = early->token,
                        .last_token = early->last_token};
    use_grant(op, &grant, now);
    return true;
}

static void on_grant(hf_op *op, const hf_message *grant, hf_time now) {
    op->client->stats.grants++;
    op->wait.woken = true; /* the pending reply may be older than the grant */
    if (op->state == HF_ACQUIRE_ASKING) store_early_grant(op, grant, now);
    else if (op->state == HF_ACQUIRE_WAITING) use_grant(op, grant, now);
}

static void on_window(hf_op *op, hf_time window, hf_time now) {
    op->wait.woken = true;
    op->acquire.is_pollers_turn = window < MIN_LISTENERS_TURN;
    if (op->state != HF_ACQUIRE_WAITING) return;
    op->wait.recheck_at =
        hf_time_min(op->wait.recheck_at, hf_time_add(now, hf_time_add(window, HF_MS)));
    if (op->spec.lock_kind->publishes_releases) hf_op_listen_to_releases(op, now);
}

static void on_recheck(hf_op *op, hf_time delay, hf_time now) {
    op->wait.woken = true; /* the pending reply may be older than the message */
    if (op->state != HF_ACQUIRE_WAITING) return;
    hf_time earliest = delay > 0 ? hf_time_add(now, hf_time_add(delay, HF_MS))
                                 : op->acquire.placed_at + MIN_RECHECK;
    op->wait.recheck_at = hf_time_min(op->wait.recheck_at, hf_time_max(now, earliest));
}

static void on_denied(hf_op *op, hf_code code, const char *reason, hf_time now) {
    undo(op, now);
    fail_with_reason(op, code, reason, now);
}

static void on_cycle(hf_op *op, hf_time now) {
    bool waiting = op->state == HF_ACQUIRE_WAITING || op->state == HF_ACQUIRE_SUBSCRIBING;
    if (waiting) cancel(op, HF_DEADLOCK, now);
}

/* Ends an operation that is blocked or QUEUED_LOCALLY, and so has left nothing on the server. */
static void end_blocked(hf_op *op, hf_code code, hf_time now) {
    if (op->state == HF_ACQUIRE_AWAITING_RELEASE) forget(op, now);
    if (op->state == HF_ACQUIRE_QUEUED_LOCALLY) hf_kept_cancel(op);
    fail_with_code(op, code, now);
}

static void interrupt(hf_op *op, hf_time now) {
    op->wait.interrupted = true;
    if (op->state == HF_ACQUIRE_WAITING || op->state == HF_ACQUIRE_SUBSCRIBING) {
        cancel(op, HF_INTERRUPTED, now);
    } else if (op->state == HF_ACQUIRE_ASKING) {
        hf_op_limit_request(op, now + MIN_REPLY_TIMEOUT);
    } else if (op->state == HF_ACQUIRE_BLOCKED || op->state == HF_ACQUIRE_AWAITING_RELEASE ||
               op->state == HF_ACQUIRE_QUEUED_LOCALLY) {
        end_blocked(op, HF_INTERRUPTED, now);
    }
}

/* ---- time ---- */

static hf_time blocked_deadline(const hf_op *op) {
    hf_time timeout = op->client->config.session.command_timeout;
    if (op->spec.wait == 0) return op->begun_at + timeout;
    return hf_time_max(op->wait.until, op->begun_at + hf_time_min(timeout, min_reply_timeout(op)));
}

static hf_time next_tick(const hf_op *op) {
    switch (op->state) {
    case HF_ACQUIRE_BLOCKED:
    case HF_ACQUIRE_AWAITING_RELEASE: return blocked_deadline(op);
    case HF_ACQUIRE_QUEUED_LOCALLY: return hf_time_min(op->wait.until, hf_kept_wait_next_tick(op));
    case HF_ACQUIRE_SUBSCRIBING: return hf_time_min(op->wait.until, op->wait.recheck_at);
    case HF_ACQUIRE_WAITING:
        return hf_time_min(
            hf_time_min(op->wait.until,
                        hf_time_min(hf_deadlock_next_check(op), hf_crash_next_check(op))),
            hf_time_min(op->wait.recheck_at, op->wait.listening != HF_SUBSCRIPTION_NONE
                                                 ? HF_NEVER
                                                 : op->acquire.listen_at));
    default: return HF_NEVER;
    }
}

/* Ends the wait. The server counts as unreachable if the calls link is closed, and one of the calls
 * and events links could not be reopened. A closed link alone does not count, because servers close
 * idle links. */
static void end_wait(hf_op *op, hf_time now) {
    assert(op->state == HF_ACQUIRE_WAITING || op->state == HF_ACQUIRE_SUBSCRIBING);
    const hf_session *calls = &op->node->links[HF_LINK_CALLS],
                     *events = &op->node->links[HF_LINK_EVENTS];
    const hf_session *refused = calls->opens_since_reply > 0 ? calls : events;
    if (calls->state != HF_SESSION_CLOSED || refused->opens_since_reply == 0 ||
        !refused->reason[0]) {
        cancel(op, HF_BUSY, now);
        return;
    }
    undo(op, now);
    fail_with_reason(op, hf_session_failure_code(refused), refused->reason, now);
}

static void tick(hf_op *op, hf_time now) {
    bool is_waiting = op->state == HF_ACQUIRE_WAITING;
    /* The acquire asks the server again when the subscription is confirmed. */
    if (is_waiting && now >= op->acquire.listen_at) hf_op_listen_to_releases(op, now);
    if (is_waiting) hf_deadlock_tick(op, on_cycle, now);
    if (op->state == HF_ACQUIRE_WAITING) hf_crash_tick(op, now);
    if (now < next_tick(op)) return;
    if (op->state == HF_ACQUIRE_BLOCKED) {
        fail_blocked(op, now);
    } else if (op->state == HF_ACQUIRE_AWAITING_RELEASE ||
               (op->state == HF_ACQUIRE_QUEUED_LOCALLY && now >= op->wait.until)) {
        end_blocked(op, HF_BUSY, now);
    } else if (op->state == HF_ACQUIRE_QUEUED_LOCALLY) {
        hf_kept_wait_tick(op, now);
    } else if (now >= op->wait.until) {
        end_wait(op, now);
    } else {
        op->client->stats.rechecks++;
        ask(op, now);
    }
}

static void abandon(hf_op *op, hf_time now) {
    if (op->state == HF_ACQUIRE_AWAITING_RELEASE) forget(op, now);
    else if (op->state == HF_ACQUIRE_QUEUED_LOCALLY) hf_kept_cancel(op);
    else if (op->state != HF_ACQUIRE_BLOCKED) undo(op, now);
    finish(op, now);
}

/* ---- the implementation ---- */

static bool is_waiting(const hf_op *op) {
    return op->wait.needs_events &&
           (op->state == HF_ACQUIRE_WAITING || op->state == HF_ACQUIRE_SUBSCRIBING);
}

static const hf_wait_functions wait_functions = {
    .is_waiting = is_waiting,
    .on_subscribed = on_subscribed,
    .on_grant = on_grant,
    .on_window = on_window,
    .on_recheck = on_recheck,
    .on_denied = on_denied,
};

const hf_op_impl hf_acquire_impl = {
    .verb = "acquire",
    .acquires = true,
    .wait = &wait_functions,
    .begin = begin,
    .unblock = unblock,
    .next_tick = next_tick,
    .tick = tick,
    .interrupt = interrupt,
    .abandon = abandon,
};
