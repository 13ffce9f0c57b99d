/* Grants: which are accepted, and which are confirmed first. */

#include "base/lease.h"
#include "op/acquire.h"

#include "acquire_rig.h"

TEST(forged_messages_make_a_waiter_recheck_its_lock_at_most_four_times_a_millisecond) {
    static const char *const messages[] = {GRANT("1", "88"), "1 grant l 1 7 88 2000 k",
                                           "1 recheck 1", "1 turn 1 0"};
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        int asked = 0;
        begin_as_tenant();
        hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
        for (hf_time at = AT(500); at < AT(600); at += 10000) { /* every 10 µs */
            feed_message(messages[i], at);
            rig_tick(at);
            if (!is_asking(op)) continue;
            asked++;
            feed_calls(busy(20000, 0, 0), at);
        }
        CHECK_OR(asked > 0 && asked <= 401, "%s: %d", messages[i], asked);
    }
}

/* Another client may grant for longer; this one has sent its own grant lease, and counts on
 * that. */
TEST(a_waiter_relies_on_a_grant_for_at_most_its_own_grant_lease) {
    hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
    CHECK_GRANTS(op, "1 grant l 1 5 88 20000 k", AT(1000), "ok");
    CHECK_EQ_U64(ends_at(hold_of()), AT(2 + 1978));
    rig_begin();
    op = wait_in_queue(10 * HF_SECOND, AT(0));
    CHECK_GRANTS(op, "1 grant l 1 5 88 1500 k", AT(500), "ok");
    CHECK_EQ_U64(ends_at(hold_of()), AT(2 + 1483));
}

/* Asks for a place, which the server enters and grants before its reply arrives. */
static hf_op *feed_early_grant(const char *grant, hf_time now) {
    rig_begin();
    hf_op *op = begin_acquire(10 * HF_SECOND, AT(0));
    feed_calls(busy(20000, 0, 0), AT(1));
    feed_subscribed(AT(2));
    sent_over(CALLS);
    feed_message(grant, now);
    return op;
}

TEST(a_waiter_accepts_a_grant_that_overtook_the_reply_with_its_queue_position) {
    hf_op *op = feed_early_grant(GRANT("1", "88"), AT(3));
    CHECK_STATE(op, ASKING);
    CHECK_ANSWER(op, busy(20000, 0, 0), AT(4), "ok");
    CHECK_SENT(CALLS, "");
    CHECK_EQ_U64(token_of(hold_of()), 88);
    CHECK_EQ_U64(ends_at(hold_of()), AT(2 + 1978)); /* from the sending of that command */
    CHECK(is_granted(hold_of()));
    CHECK_EQ_U64(stats().grants, 1);
}

/* The reply was made before the grant or after it; only a recheck can show. */
TEST(a_waiter_rechecks_its_lock_once_if_an_early_grant_names_a_different_queue_position) {
    hf_op *op = feed_early_grant("1 grant l 1 4 88 2000 k", AT(3));
    feed_calls(busy(20000, 0, 0), AT(4));
    rig_tick(AT(4)), CHECK_STATE(op, ASKING), CHECK_SENT(CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(busy(20000, 0, 0), AT(5));
    rig_tick(AT(6)), CHECK_STATE(op, WAITING);
}

TEST(a_waiter_with_fencing_off_accepts_a_grant_without_a_token) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.wait = 10 * HF_SECOND, spec.token_ttl_ms = 0);
    subscribe_with(busy(20000, 0, 0), AT(1), AT(2), AT(3));
    CHECK_GRANTS(op, GRANT("1", "0"), AT(100), "ok");
}

/* A quarter of the lease must be left of a grant: of the lock's own where that is shorter. */
TEST(a_waiter_accepts_a_grant_only_if_a_quarter_of_its_lease_and_of_the_grant_lease_is_left) {
    CASES(int lease_ms, at_ms; bool taken) = {
        {30000, 1450, true}, {30000, 1550, false}, {1000, 1550, true}, {1000, 1800, false}};
    EACH_CASE (i, cases) {
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.wait = 10 * HF_SECOND,
                          spec.lease = (hf_time)cases[i].lease_ms * HF_MS);
        subscribe_with(busy(20000, 0, 0), AT(0), AT(0), AT(0));
        feed_message(GRANT("1", "9"), AT(cases[i].at_ms));
        CHECK_OR(hf_op_is_done(op) == cases[i].taken, "case %zu", i);
    }
}

TEST(a_grant_is_confirmed_early_enough_for_a_retry_over_a_new_connection) {
    hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
    hf_time lease = config_in(&rig.client)->grant_lease;
    CHECK(spec_in(op)->lease >= lease);
    CHECK_EQ_U64(hf_acquire_confirm_at(op, AT(100) + lease / 2, AT(100)), AT(100) + lease / 6);
    CHECK_EQ_U64(hf_acquire_confirm_at(op, AT(100) + lease / 2 - 1, AT(100)), AT(100));
}

TEST(an_idempotent_run_without_a_fingerprint_starts_at_once_when_it_is_granted) {
    hf_op *op =
        BEGIN(HF_OP_ACQUIRE, AT(0), spec.lock_kind = &hf_kind_guard, spec.wait = 10 * HF_SECOND);
    subscribe_with(busy(20000, 0, 0), AT(1), AT(2), AT(3));
    sent_over(CALLS);
    CHECK_GRANTS(op, "1 grant g 1 5 88 2000 k", AT(10), "ok");
    CHECK(is_granted(hold_in(op)));
    CHECK_SENT(CALLS, "");
}

TEST(a_waiter_accepts_a_grant_only_if_at_least_a_quarter_of_its_lease_is_left) {
    EACH_NUMBER (early, 2) {
        hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
        hf_time end = hf_lease_end(AT(2), 2 * HF_SECOND);
        feed_message(GRANT("1", "88"), end - 500 * HF_MS + (hf_time)!early);
        CHECK_OUTCOME(op, early ? "ok" : "under way");
    }
}

CHECK_MAIN
