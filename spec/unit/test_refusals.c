/* What each operation does while the server refuses it for the moment. */
#include "op/operation.h"

#include "drive.h"

static struct rig rig;

#define CALLS HF_LINK_CALLS

#define NOREPLICAS "-NOREPLICAS Not enough good replicas to write.\r\n"

static const char *const OF_WRITES[] = {
    NOREPLICAS, "-MISCONF Redis is configured to save RDB snapshots\r\n",
    "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    ("-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not "
     "allowed\r\n")};
static const char *const OTHERS[] = {"-LOADING no\r\n", "-BUSY no\r\n", "-TRYAGAIN no\r\n",
                                     "-CLUSTERDOWN no\r\n", "-MASTERDOWN no\r\n"};
enum { WRITES = sizeof OF_WRITES / sizeof *OF_WRITES, OTHER = sizeof OTHERS / sizeof *OTHERS };

static const char *refusal(int i) {
    return i < WRITES ? OF_WRITES[i] : OTHERS[i - WRITES];
}

/* What waits, and a reply that ends its wait well. */
static const struct waiter {
    hf_op_kind kind;
    const hf_kind *lock_kind;
    const char *good;
    bool reads;
} WAITERS[] = {
    {HF_OP_ACQUIRE, &hf_kind_lock, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_mutex, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_read, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_write, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_fair, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_permit, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_guard, ACQUIRED, false},
    {HF_OP_TAKE, &hf_kind_plain_semaphore, "*2\r\n:1\r\n:0\r\n", false},
    {HF_OP_AWAIT, &hf_kind_latch, "$-1\r\n", true},
};
enum { KINDS = sizeof WAITERS / sizeof *WAITERS };

static hf_op *begin_on(hf_op_kind kind, const hf_kind *lock_kind, hf_time wait, hf_time now) {
    hf_op_spec spec = spec_of(&rig, kind);
    hf_names_free(&rig.names);
    if (!hf_names_make_on(&rig.names, hf_slice_of("k"), lock_kind)) abort();
    spec.lock_kind = lock_kind;
    spec.wait = wait;
    spec.value = 1;
    spec.permits = lock_kind->counted;
    spec.permits_at_first = lock_kind->counted;
    return begin_spec(&rig, &spec, now);
}

static hf_op *begin_waiter(const struct waiter *waiter, hf_time wait, hf_time now) {
    rig_begin(&rig);
    return begin_on(waiter->kind, waiter->lock_kind, wait, now);
}

/* Refuses whatever is sent until `until`. Returns how many commands there were. */
static int refuse(const char *error, hf_time now, hf_time until) {
    int commands = 0;
    for (; now < until; now += 10 * HF_MS) {
        rig_tick(&rig, now);
        for (const char *at = output_of(link_of(&rig, CALLS)); *at; commands++) {
            feed_calls(&rig, error, now);
            at = strchr(at, '\n') ? strchr(at, '\n') + 1 : "";
        }
    }
    rig_tick(&rig, until);
    return commands;
}

TEST(a_wait_outlasts_a_refusal) {
    for (int i = 0; i < KINDS * (WRITES + OTHER); i++) {
        const struct waiter *waiter = &WAITERS[i % KINDS];
        hf_op *op = begin_waiter(waiter, 60 * HF_SECOND, AT(0));
        int tries = refuse(refusal(i / KINDS), AT(0), AT(20000));
        CHECK_OR(!op->done, "%d: %s", i, op->failure.text);
        CHECK_OR(tries > 40 && tries < 130, "%d: %d", i, tries);
        rig_sleep(&rig, AT(20000), AT(20500));
        feed_calls(&rig, waiter->good, AT(20500));
        CHECK_OR(strcmp(outcome(op), "ok") == 0, "%d: %s", i, outcome(op));
        rig_end(&rig, AT(20500));
    }
}

TEST(a_wait_that_ends_reports_the_last_refusal) {
    for (int i = 0; i < KINDS * (WRITES + OTHER); i++) {
        hf_op *op = begin_waiter(&WAITERS[i % KINDS], 8 * HF_SECOND, AT(0));
        refuse(refusal(i / KINDS), AT(0), AT(7990));
        CHECK_OR(!op->done, "%d: %s", i, op->failure.text);
        rig_sleep(&rig, AT(7990), AT(8000));
        CHECK_OR(strcmp(outcome(op), "unreachable") == 0, "%d: %s", i, outcome(op));
        char words[16] = "";
        sscanf(refusal(i / KINDS), "-%15s", words);
        CHECK(strstr(op->failure.text, words));
        hf_op_end(op, AT(8000));
        rig_sleep(&rig, AT(8000), AT(8001));
        CHECK_SILENT(&rig); /* nothing was carried out, so nothing is undone */
        rig_end(&rig, AT(8001));
    }
}

TEST(a_call_without_a_wait_fails_at_once_when_writes_are_refused) {
    for (int i = 0; i < KINDS * WRITES; i++) {
        if (WAITERS[i % KINDS].reads) continue;
        hf_op *op = begin_waiter(&WAITERS[i % KINDS], 0, AT(0));
        output_of(link_of(&rig, CALLS));
        feed_calls(&rig, OF_WRITES[i / KINDS], AT(1));
        CHECK_OR(strcmp(outcome(op), "unreachable") == 0, "%d: %s", i, outcome(op));
        CHECK(!strstr(op->failure.text, "can be reached"));
        rig_end(&rig, AT(1));
    }
}

TEST(a_refused_re_entry_does_not_change_the_hold) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_op *op = begin_acquire(&rig, 60 * HF_SECOND, AT(5000));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, NOREPLICAS, AT(5001));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(!hold->in_flight && hold->state == HF_HOLD_HELD);
    rig_end(&rig, AT(5001));
}

TEST(a_wait_in_the_queue_outlasts_a_refusal) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 60 * HF_SECOND, AT(0));
    refuse(NOREPLICAS, AT(10), AT(50000));
    CHECK_OUTCOME(op, "under way");
    rig_sleep(&rig, AT(50000), AT(50500));
    feed_calls(&rig, ACQUIRED, AT(50500));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(50500));
}

TEST(a_wait_outlasts_a_refusal_and_then_an_outage) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 60 * HF_SECOND, AT(0));
    refuse(NOREPLICAS, AT(0), AT(1000));
    hf_session_closed(link_of(&rig, CALLS), "cut", AT(1000));
    rig.refusing = true;
    rig_sleep(&rig, AT(1000), AT(20000));
    CHECK_OUTCOME(op, "under way");
    rig.refusing = false;
    rig_sleep(&rig, AT(20000), AT(21200));
    feed_calls(&rig, ACQUIRED, AT(21200));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(21200));
}

TEST(a_signal_ends_a_wait_during_a_refusal) {
    for (int i = 0; i < KINDS; i++) {
        hf_op *op = begin_waiter(&WAITERS[i], HF_NEVER, AT(0));
        refuse(NOREPLICAS, AT(0), AT(5000));
        hf_op_interrupt(op, AT(5000));
        refuse(NOREPLICAS, AT(5000), AT(5110));
        CHECK_OR(strcmp(outcome(op), "interrupted") == 0, "%d: %s", i, outcome(op));
        rig_end(&rig, AT(5110));
    }
}

TEST(a_signal_ends_a_wait_whose_command_is_refused_after_it) {
    for (int i = 0; i < KINDS; i++) {
        hf_op *op = begin_waiter(&WAITERS[i], HF_NEVER, AT(0));
        refuse(NOREPLICAS, AT(0), AT(5000));
        hf_time now = AT(5000);
        while (!*output_of(link_of(&rig, CALLS)) && now < AT(10000)) rig_tick(&rig, now += HF_MS);
        hf_op_interrupt(op, now);
        feed_calls(&rig, NOREPLICAS, now + HF_MS);
        refuse(NOREPLICAS, now + 2 * HF_MS, now + 110 * HF_MS);
        CHECK_OR(strcmp(outcome(op), "interrupted") == 0, "%d: %s", i, outcome(op));
        rig_end(&rig, now + 110 * HF_MS);
    }
}

/* One command is not sent for longer than its note stays. */
TEST(a_wait_without_end_outlasts_any_refusal) {
    hf_op *op = begin_waiter(&WAITERS[KINDS - 2], HF_NEVER, AT(0));
    refuse(NOREPLICAS, AT(0), AT(1000 * 3700));
    CHECK_OUTCOME(op, "under way");
    feed_calls(&rig, WAITERS[KINDS - 2].good, AT(1000 * 3700));
    rig_end(&rig, AT(1000 * 3700));
}

TEST(a_refused_release_of_a_permit_goes_on_in_the_background) {
    for (int i = 0; i < WRITES + OTHER; i++) {
        rig_begin(&rig);
        hf_op *op = begin_on(HF_OP_GIVE, &hf_kind_plain_semaphore, 0, AT(0));
        refuse(refusal(i), AT(0), AT(3500));
        CHECK_OUTCOME(op, "unreachable");
        CHECK(strstr(op->failure.text, "continues in the background"));
        hf_op_end(op, AT(3500));
        int tries = refuse(refusal(i), AT(3500), AT(60000));
        CHECK_OR(tries > 30 && tries < 200, "%d", tries);
        CHECK(!hf_client_is_quiet(&rig.client));
        rig_sleep(&rig, AT(60000), AT(61100));
        CHECK(strstr(output_of(link_of(&rig, CALLS)), "EVALSHA semaphore_release "));
        feed_calls(&rig, ":1\r\n:1\r\n", AT(61100));
        CHECK(hf_client_is_quiet(&rig.client));
        rig_end(&rig, AT(61100));
    }
}

TEST(a_refused_release_goes_on_until_its_lease_ends) {
    for (int i = 0; i < WRITES; i++) {
        rig_begin(&rig);
        hold_lock(&rig, AT(0));
        hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
        refuse(OF_WRITES[i], AT(1), AT(20));
        CHECK_OUTCOME(op, "unreachable");
        hf_op_end(op, AT(20));
        int tries = refuse(OF_WRITES[i], AT(20), AT(25000));
        CHECK_OR(tries > 10 && tries < 100, "%d", tries);
        rig_sleep(&rig, AT(25000), AT(26000));
        CHECK(strstr(output_of(link_of(&rig, CALLS)), "EVALSHA leave "));
        feed_calls(&rig, ":1\r\n", AT(26000));
        CHECK(hf_client_is_quiet(&rig.client));
        rig_end(&rig, AT(26000));
    }
}

/* The owner may be another process's too, so what the release left is in the way. */
TEST(a_shared_owner_waits_until_its_refused_release_is_done) {
    rig_begin(&rig);
    hold_lock(&rig, AT(0))->shared = true;
    hf_op *release = begin(&rig, HF_OP_RELEASE, AT(1));
    refuse(NOREPLICAS, AT(1), AT(20));
    CHECK_OUTCOME(release, "unreachable");
    hf_op_end(release, AT(20));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.shared = true;
    spec.wait = 20 * HF_SECOND;
    hf_op *op = begin_spec(&rig, &spec, AT(30));
    int tries = refuse(NOREPLICAS, AT(30), AT(10000));
    CHECK_OUTCOME(op, "under way");
    CHECK_OR(tries < 40, "%d", tries);
    rig_sleep(&rig, AT(10000), AT(11100));
    feed_calls(&rig, ":1\r\n", AT(11100));
    rig_tick(&rig, AT(11100));
    feed_calls(&rig, ACQUIRED, AT(11101));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(11101));
}

/* ---- records ---- */

static hf_op *complete(hf_time now) {
    rig_begin(&rig);
    hf_op *op = begin_on(HF_OP_ACQUIRE, &hf_kind_guard, 0, now);
    feed_calls(&rig, ACQUIRED, now);
    hf_op_end(op, now);
    output_of(link_of(&rig, CALLS));
    hf_op_spec spec = spec_of(&rig, HF_OP_COMPLETE);
    spec.lock_kind = &hf_kind_guard;
    spec.result = hf_slice_of("done");
    spec.keep = 5 * HF_SECOND;
    return begin_spec(&rig, &spec, now);
}

TEST(a_refused_record_is_written_later) {
    for (int i = 0; i < WRITES + OTHER; i++) {
        hf_op *op = complete(AT(0));
        refuse(refusal(i), AT(0), AT(1000));
        CHECK_OUTCOME(op, "under way");
        rig_sleep(&rig, AT(1000), AT(1500));
        feed_calls(&rig, ":1\r\n", AT(1500));
        CHECK_OUTCOME(op, "ok");
        rig_end(&rig, AT(1500));
    }
}

TEST(a_record_is_written_after_its_call_has_ended) {
    for (int abandoned = 0; abandoned <= 1; abandoned++) {
        hf_op *op = complete(AT(0));
        refuse(NOREPLICAS, AT(0), AT(abandoned ? 1000 : 3000));
        CHECK_OUTCOME(op, abandoned ? "under way" : "unreachable");
        CHECK(abandoned || strstr(op->failure.text, "written in the background"));
        hf_op_end(op, AT(3000));
        refuse(NOREPLICAS, AT(3000), AT(10000));
        CHECK(!hf_client_is_quiet(&rig.client));
        rig_sleep(&rig, AT(10000), AT(10500));
        CHECK(strstr(output_of(link_of(&rig, CALLS)), "EVALSHA complete "));
        feed_calls(&rig, ":1\r\n", AT(10500));
        CHECK(hf_client_is_quiet(&rig.client));
        rig_end(&rig, AT(10500));
    }
}

TEST(a_record_is_not_written_after_its_lease) {
    hf_op_end(complete(AT(0)), AT(0)); /* its command is under way */
    refuse(NOREPLICAS, AT(0), AT(29800));
    CHECK(hf_client_is_quiet(&rig.client));
    rig_sleep(&rig, AT(29800), AT(60000));
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(60000));
}

CHECK_MAIN
