/*
 * The driver against a small server in a thread of this program, while chosen system calls fail:
 * each scenario runs with its 1st, 2nd, 3rd … call having a fault, until it makes fewer calls.
 * Every operation ends, the client works again afterwards, and no descriptor, thread or allocation
 * is left.
 */
#include "driver_rig.h"

#define TURNS 20 /* until it works again: what fails is tried again after a pause */

static const char *injected(syserr_fault fault) {
    if (fault == MEMORY) return memerr_failed() ? "an allocation" : NULL;
    return syserr_injected();
}

/* One that ends no connection and takes nothing away is not noticed. */
static bool is_harmless(syserr_fault fault) {
    return fault <= SYSERR_SHORT;
}

/* → whether the fault came, and in which call */
static const char *run_with(syserr_fault fault, unsigned nth) {
    char where[160];
    start_peer(now_runs.manner);
    inventory before = take_first_inventory();
    hf_time began_at = __real_hf_now();
    inject(fault, nth);
    hf_driver *driver = new_driver();
    bool done = driver && take_turn(driver);
    const char *call = injected(fault);
    inject(SYSERR_NONE, 0);
    snprintf(where, sizeof where, "%s, call %u (%s) %s", now_runs.name, nth, call ? call : "-",
             fault == MEMORY ? "without memory" : syserr_names[fault]);
    if (!done && is_harmless(fault)) check_fail(__FILE__, __LINE__, "%s: %s", where, last_text);
    for (int turn = 0; driver && !done && turn < TURNS; turn++) {
        sleep_us(turn > 0 ? 10000 : 0);
        done = take_turn(driver);
    }
    if (driver && !done) check_fail(__FILE__, __LINE__, "%s: not again: %s", where, last_text);
    if (driver) hf_driver_unref(driver);
    hf_time took = __real_hf_now() - began_at;
    inventory after = take_inventory_like(before);
    if (!is_same(after, before))
        check_fail(__FILE__, __LINE__,
                   "%s: leaves %d descriptors, %d threads, %ld allocations, %d signals held", where,
                   after.descriptors - before.descriptors, after.threads - before.threads,
                   after.allocations - before.allocations, after.held - before.held);
    stop_peer();
    if (peer.held) check_fail(__FILE__, __LINE__, "%s: the server still has the lock", where);
    if (took > 10 * HF_SECOND) check_fail(__FILE__, __LINE__, "%s: takes too long", where);
    return call;
}

/* `step`: from one call that fails to the next one; HOLDFAST_EACH_CALL: each. */
static void sweep_by(scenario of, unsigned step) {
    now_runs = of;
    if (getenv("HOLDFAST_EACH_CALL")) step = 1;
    for (syserr_fault fault = SYSERR_INTERRUPTED; fault <= MEMORY; fault++) {
        unsigned first = 1 + (unsigned)fault % step;
        for (unsigned nth = first; run_with(fault, nth) && nth < 1000; nth += step) continue;
    }
}

static void sweep(scenario of) {
    sweep_by(of, 1);
}

TEST(calls_on_a_lock_survive_each_injected_fault) {
    sweep((scenario){.name = "a lock", .by_name = true, .manner = {.knows_no_script = true}});
}

TEST(an_async_release_survives_each_injected_fault) {
    sweep((scenario){.name = "an asynchronous release", .asynchronous = true});
}

TEST(a_wait_survives_each_injected_fault) {
    sweep((scenario){.name = "a wait", .wait = 20 * HF_SECOND, .manner = {.queues = true}});
}

TEST(calls_in_an_event_loop_survive_each_injected_fault) {
    sweep((scenario){.name = "a loop", .uses_event_loop = true});
}

TEST(a_wait_in_an_event_loop_survives_each_injected_fault) {
    sweep((scenario){.name = "a wait in a loop",
                     .uses_event_loop = true,
                     .wait = 20 * HF_SECOND,
                     .manner = {.queues = true}});
}

TEST(a_renewal_survives_each_injected_fault) {
    sweep_by((scenario){.name = "a renewal", .renews = true}, 3);
}

/* The server refuses the first password. */
TEST(calls_with_a_fetched_login_survive_each_injected_fault) {
    sweep((scenario){.name = "a fetched login", .manner = {.has_password = true}});
    CHECK(was_refused);
}

TEST(a_wait_with_a_fetched_login_survives_each_injected_fault) {
    sweep_by((scenario){.name = "a wait with a fetched login",
                        .wait = 20 * HF_SECOND,
                        .manner = {.has_password = true, .queues = true}},
             5);
}

TEST(a_renewal_with_a_fetched_login_survives_each_injected_fault) {
    sweep_by((scenario){.name = "a renewal with a fetched login",
                        .renews = true,
                        .manner = {.has_password = true}},
             7);
}

/* Handshakes are slow. */
TEST(calls_over_tls_survive_each_injected_fault) {
    sweep_by((scenario){.name = "a lock over TLS", .manner = {.speaks_tls = true}}, 13);
}

TEST(calls_over_tls_survive_each_interrupted_system_call) {
    now_runs = (scenario){.name = "a lock over TLS", .manner = {.speaks_tls = true}};
    for (unsigned nth = 1; run_with(SYSERR_INTERRUPTED, nth) && nth < 1000; nth++) continue;
}

TEST(a_renewal_over_tls_survives_each_injected_fault) {
    sweep_by(
        (scenario){.name = "a renewal over TLS", .renews = true, .manner = {.speaks_tls = true}},
        17);
}

TEST(a_wait_over_tls_survives_each_injected_fault) {
    sweep_by((scenario){.name = "a wait over TLS",
                        .wait = 20 * HF_SECOND,
                        .manner = {.speaks_tls = true, .queues = true}},
             17);
}

TEST(calls_in_an_event_loop_over_tls_survive_each_injected_fault) {
    sweep_by((scenario){.name = "a loop over TLS",
                        .uses_event_loop = true,
                        .manner = {.speaks_tls = true}},
             13);
}

DRIVER_MAIN
