/* Acquires of a lock that the caller has, or has had. */

#include "op/operation.h"

#include "acquire_rig.h"

TEST(a_re_entry_adds_a_hold_and_renews_the_lease) {
    hf_hold *hold = hold_lock(AT(0));
    set_at_risk(hold, true);
    set_failures(hold, 3);
    hf_op *op = begin_acquire(HF_SECOND, AT(1000));
    CHECK_SENT(CALLS, ASK_OF_K("1", "0", ""));
    CHECK(hf_hold_is_valid(hold, AT(1000)));
    CHECK_ANSWER(op, "*2\r\n:1\r\n:0\r\n", AT(1001), "ok");
    CHECK(hold_in(op) == hold);
    CHECK_EQ_INT(count_of(hold), 2);
    CHECK_EQ_U64(token_of(hold), 77);
    CHECK_EQ_U64(ends_at(hold), AT(30698));
    CHECK_EQ_U64(renewer_next_tick(), AT(11000));
    CHECK_EQ_U64(stats().reentries, 1);
    CHECK(!is_at_risk(hold) && failures_of(hold) == 0);
}

TEST(a_re_entry_that_finds_the_lock_gone_reports_a_loss) {
    CASES(const char *reply; hf_lost_reason reason) =
        LIST({GONE, HF_LOST_DELETED}, {TAKEN, HF_LOST_TAKEN});
    EACH_NUMBER (i, 2) {
        hf_hold *hold = hold_lock(AT(0));
        hf_op *op = begin_acquire(HF_SECOND, AT(1000));
        CHECK_ANSWER(op, cases[i].reply, AT(1001), "lost");
        CHECK(is_lost(hold));
        CHECK_EQ_INT(reason_of(hold), cases[i].reason);
        CHECK_EQ_U64(hf_client_loss_count(&rig.client), 1);
        CHECK(!is_in_flight(hold));
    }
}

TEST(a_re_entry_whose_reply_arrives_after_its_lease_does_not_end_the_hold) {
    hf_hold *hold = hold_lock(AT(0));
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(1000), spec.lease = 100 * HF_MS);
    CHECK_ANSWER(op, "*2\r\n:1\r\n:0\r\n", AT(1200), "lost");
    CHECK(hf_hold_is_valid(hold, AT(1200)));
    CHECK_EQ_INT(count_of(hold), 1);
}

TEST(an_acquire_waits_for_its_owners_other_call_only_until_its_timeout) {
    hf_op *first = wait_in_queue(HF_NEVER, AT(0));
    hf_op *second = begin_acquire(HF_SECOND, AT(10)), *third = begin_acquire(1, AT(10));
    hf_op_interrupt(begin_acquire(HF_NEVER, AT(10)), AT(11));
    hf_op_end(begin_acquire(HF_NEVER, AT(11)), AT(12));
    CHECK_SLEEP(third, AT(12), AT(110), "busy");
    CHECK_OUTCOME(second, "under way");
    CHECK_SLEEP(second, AT(110), AT(1010), "busy");
    CHECK_MESSAGE(second, "another call by this owner for this key is in progress");
    CHECK_STATE(first, WAITING);
    CHECK_GRANTS(first, GRANT("1", "88"), AT(1011), "ok");
}

TEST(an_acquire_that_waits_for_a_clean_up_ends_when_its_wait_is_over) {
    CASES(hf_time wait, took) = {
        {300 * HF_MS, 300 * HF_MS},
        {5 * HF_SECOND, 5 * HF_SECOND},
        {1, 100 * HF_MS}, /* a short one gives the server a moment */
        {0, 3 * HF_SECOND},
    };
    EACH_CASE (i, cases) {
        hf_op *op = begin_acquire(300 * HF_MS, AT(0));
        rig_sleep(AT(0), AT(300)), CHECK_ENDS(op, "unreachable", AT(300));
        op = begin_acquire(cases[i].wait, AT(300)), CHECK_STATE(op, BLOCKED);
        CHECK_EQ_U64(hf_op_next_tick(op), AT(300) + cases[i].took);
        hf_op_tick(op, AT(300) + cases[i].took), CHECK_OUTCOME(op, "unreachable");
    }
}

/* A server that cannot be reached is reported, and not tried without end. */
TEST(an_acquire_fails_if_the_clean_up_before_it_cannot_be_sent) {
    hold_lock(AT(0));
    cut_link(CALLS, "reset", AT(1));
    rig.refusing = true;
    abandon_hold(hold_of(), 1, AT(10));
    hf_op *op = begin_acquire(HF_NEVER, AT(10));
    CHECK_SLEEP(op, AT(10), AT(100), "unreachable");
    CHECK_MESSAGE(op, "refused");
    CHECK(!is_quiet()); /* what is left goes on being left */
}

TEST(an_acquire_waits_until_a_clean_up_in_flight_has_its_reply) {
    hold_lock(AT(0));
    abandon_hold(hold_of(), 1, AT(10));
    rig_sleep(AT(10), AT(11)), CHECK(strncmp(sent_over(RENEWER), "EVALSHA leave", 13) == 0);
    hf_op *op = begin_acquire(0, AT(12)); /* while it is under way */
    CHECK_STATE(op, BLOCKED);
    CHECK_SENT(CALLS, "");
    rig_sleep(AT(12), AT(3011));       /* the answer does not come */
    CHECK_SENT(CALLS, BRIEF_ASK_OF_K); /* it goes on without that */
    CHECK_ANSWER(op, ACQUIRED, AT(3011), "ok");
    CHECK(!is_quiet());
    CHECK_EQ_INT(holds_left(), 2);
}

/* A command that persists would keep the renewer from the hold for all of the wait. */
TEST(a_re_entry_that_the_server_refuses_is_not_retried) {
    EACH_NUMBER (shared, 2) {
        set_shared(hold_lock(AT(0)), shared);
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(1), spec.shared = shared, spec.wait = 10 * HF_SECOND);
        CHECK_STATE(op, ASKING);
        CHECK_EQ_U64(request_in(op)->resend_until, 0);
    }
}

TEST(a_re_entry_whose_reply_is_lost_is_sent_again) {
    hold_lock(AT(0));
    hf_op *op = begin_acquire(0, AT(1000));
    cut_link(CALLS, "reset", AT(1001));
    CHECK_SENT_UNTIL(CALLS, AT(1001), AT(1100), ASK_OF_K("1", "0", ""));
    CHECK_OUTCOME(op, "under way");
}

TEST(an_acquire_behind_a_command_without_a_reply_does_not_report_an_older_error) {
    hf_hold *hold = hold_lock(AT(0));
    cut_link(CALLS, "refused", AT(1));
    hf_op *ping = begin(HF_OP_PING, AT(300));
    CHECK_ANSWER(ping, "+PONG\r\n", AT(301), "ok");
    CHECK_STR(link_of(CALLS)->reason, "");
    strcpy(link_of(EVENTS)->reason, "of another link");
    set_in_flight(hold, true);
    hf_op *op = begin_acquire(0, AT(400));
    CHECK_STATE(op, BLOCKED);
    hf_op_tick(op, AT(4000)), CHECK_OUTCOME(op, "unreachable");
    CHECK_MESSAGE(op, "an earlier command for this key got no reply");
    CHECK(hf_op_is_done(op));
}

/* The server refuses the clean-up for the moment. */
TEST(an_acquire_outlasts_a_refused_clean_up_only_if_it_waits) {
    EACH_NUMBER (wait, 2) {
        hf_op *op = begin_shared(0, AT(0));
        end_with(op, ACQUIRED, AT(0));
        hf_hold *hold = watch(hold_of());
        abandon_hold(hold, 1, AT(1));
        op = begin_shared((hf_time)wait * HF_SECOND, AT(1)), CHECK_STATE(op, BLOCKED);
        set_failures(hold, 1);
        set_refused(hold, true);
        hf_client_unblock(&rig.client, claim_of(hold), AT(2));
        CHECK_OUTCOME(op, wait ? "under way" : "unreachable");
    }
}

CHECK_MAIN
