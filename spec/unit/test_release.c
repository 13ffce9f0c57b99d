/* Releases of a hold, whole or of one entry, also abandoned ones. */

#include "calls_rig.h"

TEST(a_call_on_a_lock_that_is_being_released_fails_as_not_held) {
    hold_times(1, AT(0));
    begin(HF_OP_RELEASE, AT(1)), CHECK_OUTCOME(begin(HF_OP_RELEASE, AT(1)), "not_held");
    CHECK_OUTCOME(begin_acquire(0, AT(1)), "busy");
    CHECK_OUTCOME(begin(HF_OP_CHECK, AT(1)), "not_held");
}

TEST(a_release_that_waited_for_a_renewal_reports_the_loss_that_the_renewal_found) {
    hold_while_renewed(1);
    hf_op *op = begin(HF_OP_RELEASE, AT(10001));
    feed_renewer("*1\r\n:-1\r\n", AT(10002)), CHECK_OUTCOME(op, "lost"), CHECK_SENT(CALLS, "");
    CHECK_EQ_INT(state_of(), -1);
}

/* Two calls wait for the renewer; the first one takes the hold away from under the second. */
TEST(all_calls_that_wait_for_a_hold_continue_when_it_is_released) {
    hold_while_renewed(1);
    hf_op *first = begin(HF_OP_RELEASE, AT(10001));
    hf_op *second = begin(HF_OP_RELEASE, AT(10001));
    hf_op *third = begin_acquire(HF_SECOND, AT(10001));
    feed_renewer("*1\r\n:1\r\n", AT(10002)), CHECK_OUTCOME(first, "under way");
    CHECK_ANSWER(first, ":1\r\n", AT(10003), "ok");
    CHECK_OUTCOME(second, "not_held");
    CHECK_OUTCOME(third, "under way");
    CHECK(is_asking(third));
    CHECK_ANSWER(third, ACQUIRED, AT(10004), "ok");
}

TEST(an_abandoned_release_of_one_of_two_holds_still_removes_that_hold) {
    hf_hold *hold = hold_times(2, AT(0));
    hf_op_end(begin(HF_OP_RELEASE, AT(1)), AT(2));
    sent_over(CALLS), CHECK(is_held(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK(!is_in_flight(hold));
    begin(HF_OP_RELEASE, AT(3)), CHECK_SENT(CALLS, BRIEF_RELEASE_OF_K);
}

TEST(a_remaining_hold_abandoned_during_a_release_is_cleaned_up_after_it) {
    EACH_NUMBER (lost, 2) {
        hf_hold *hold = hold_times(2, AT(0));
        hf_op *op = begin(HF_OP_RELEASE, AT(1));
        CHECK_SENT(CALLS, RELEASE_OF_K("1"));
        abandon_hold(hold, 1, AT(2));
        if (lost) lose_hold(hold, HF_LOST_EXPIRED);
        CHECK_ANSWER(op, ":2\r\n", AT(3), "ok");
        CHECK_SENT_AT(lost ? RENEWER : CALLS, AT(3), LEAVE_OF_K("0", ""));
        feed(link_of(lost ? RENEWER : CALLS), ":1\r\n", AT(4)), CHECK_EQ_INT(state_of(), -1);
    }
}

TEST(a_shared_owners_release_is_not_sent_twice) {
    set_shared(hold_times(1, AT(0)), true);
    hf_op *op = begin(HF_OP_RELEASE, AT(1));
    CHECK_SENT(CALLS, RELEASE_OF_K("0") "1");
    cut_link(CALLS, "reset", AT(2)), CHECK_OUTCOME(op, "unreachable");
    CHECK_MESSAGE(op, "the lock expires with its lease");
    CHECK_SENT_UNTIL(CALLS, AT(2), AT(60000), "");
    CHECK_SENT(RENEWER, "");
    CHECK_EQ_INT(holds_left(), 0);
}

/* The first one took along what was owed: sent again by the next, it would be another process's. */
TEST(a_shared_owners_failed_release_is_sent_again_with_the_next_one) {
    EACH_NUMBER (lost, 2) {
        hf_hold *hold = hold_times(3, AT(0));
        set_shared(hold, true);
        begin(HF_OP_RELEASE, AT(1));
        feed_calls("-OOM no\r\n", AT(2)), CHECK_EQ_INT(count_of(hold), 2);
        CHECK_EQ_INT(pending_of(hold), 1);
        sent_over(CALLS);
        hf_op *op = begin(HF_OP_RELEASE, AT(3));
        CHECK_SENT(CALLS, RELEASE_OF_K("1") "2");
        if (lost) cut_link(CALLS, "reset", AT(4));
        else feed_calls(":2\r\n", AT(4));
        CHECK_OUTCOME(op, lost ? "unreachable" : "ok");
        CHECK_EQ_INT(count_of(hold), 1);
        CHECK_EQ_INT(pending_of(hold), 0);
        begin(HF_OP_RELEASE, AT(50));
        CHECK_SENT_AT(CALLS, AT(60), RELEASE_OF_K("0") "1");
    }
}

TEST(an_abandoned_calls_reply_is_ignored) {
    EACH_CASE (i, CALL_KINDS) {
        hf_op *op = begin_call(CALL_KINDS[i]);
        CHECK(sent_over(CALLS)[0] != '\0');
        hf_op_abandon(op, AT(2));
        CHECK_ANSWER(op, ":1\r\n", AT(3), "interrupted");
        CHECK_EQ_U64(stats().releases, 0);
        CHECK(!reply_in(op));
    }
}

TEST(a_check_delays_the_renewal_even_if_the_check_before_it_has_ended_or_was_abandoned) {
    EACH_NUMBER (abandoned, 2) {
        hf_hold *hold = hold_times(1, AT(0));
        hf_op *first = begin(HF_OP_CHECK, AT(1000)), *second = begin(HF_OP_CHECK, AT(1000));
        CHECK(hf_op_is_blocked(second));
        if (abandoned) hf_op_abandon(first, AT(1001));
        else CHECK_ANSWER(first, ":1\r\n", AT(1001), "ok");
        CHECK(!hf_op_is_blocked(second) && is_in_flight(hold));
        CHECK_EQ_U64(renewer_next_tick(), ends_at(hold));
    }
}

/* Its handles learn of the loss by it. */
TEST(a_hold_lost_during_a_partial_release_remains_known_until_its_last_release) {
    EACH_NUMBER (abandoned, 2) {
        hf_hold *hold = watch(hold_times(2, AT(0)));
        begin(HF_OP_RELEASE, AT(1));
        if (abandoned) abandon_hold(hold, 1, AT(2));
        lose_hold(hold, HF_LOST_TAKEN);
        feed_calls("-OOM no\r\n", AT(3)), CHECK(is_lost(hold));
        CHECK_EQ_INT(count_of(hold), abandoned ? 0 : 1);
        CHECK_EQ_INT(is_in_table(hold), !abandoned);
        rig_end(AT(4));
    }
}

/* No replica confirms a release, so the lease that it sets does not count. */
TEST(a_partial_release_does_not_extend_the_lease_if_replicas_must_confirm_it) {
    for (uint16_t replicas = 0; replicas <= 1; replicas++) {
        rig_begin();
        hf_hold *hold = hold_times(2, AT(0));
        config_in(&rig.client)->sync = (hf_sync){replicas, 100 * HF_MS};
        begin(HF_OP_RELEASE, AT(5000));
        feed_calls(":2\r\n:0\r\n", AT(5001)), CHECK_EQ_INT(count_of(hold), 1);
        CHECK_EQ_U64(ends_at(hold), AT(replicas ? 29698 : 5000 + 29698));
        CHECK_EQ_U64(renewer_next_tick(), AT(replicas ? 10000 : 15000));
    }
}

CHECK_MAIN
