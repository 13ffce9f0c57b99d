/* Releases of a hold, whole or of one entry, also abandoned ones. */

#include "calls_rig.h"

TEST(a_release_of_one_hold_frees_the_lock) {
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(HF_OP_RELEASE, AT(10));
    CHECK_SENT(CALLS, BRIEF_RELEASE_OF_K);
    CHECK(is_releasing(hold));
    CHECK(!hf_hold_is_valid(hold, AT(10)));
    CHECK_ANSWER(op, ":1\r\n", AT(11), "ok");
    CHECK_EQ_INT(state_of(), -1);
    CHECK_EQ_U64(stats().releases, 1);
    hf_op_end(op, AT(11));
    rig_sleep(AT(11), AT(60000)), CHECK_SILENT();
}

TEST(releasing_one_of_several_holds_keeps_the_others_and_renews_the_lease) {
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(HF_OP_RELEASE, AT(5000));
    CHECK_SENT(CALLS, RELEASE_OF_K("1"));
    CHECK(hf_hold_is_valid(hold, AT(5000)));
    CHECK_ANSWER(op, ":2\r\n", AT(5001), "ok");
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK_EQ_U64(ends_at(hold), AT(5000 + 29698)); /* it refreshed the TTL */
    CHECK_EQ_U64(renewer_next_tick(), AT(15000));
    op = begin(HF_OP_RELEASE, AT(6000)), CHECK_SENT(CALLS, BRIEF_RELEASE_OF_K);
    CHECK_ANSWER(op, ":1\r\n", AT(6001), "ok");
    CHECK_EQ_INT(state_of(), -1);
}

TEST(a_call_on_a_lock_that_is_not_held_fails) {
    CHECK_OUTCOME(begin(HF_OP_RELEASE, AT(0)), "not_held");
    CHECK_OUTCOME(begin_extend(HF_SECOND, AT(0)), "not_held");
    CHECK_OUTCOME(begin(HF_OP_CHECK, AT(0)), "not_held");
    CHECK_EQ_INT(link_of(CALLS)->state, HF_SESSION_CLOSED);
    hold_times(1, AT(0));
    CHECK_OUTCOME(BEGIN(HF_OP_RELEASE, AT(1), spec.caller = hf_slice_of("you")), "not_held");
    CHECK_SENT(CALLS, "");
}

TEST(a_call_on_a_lock_that_is_being_released_fails_as_not_held) {
    hold_times(1, AT(0));
    begin(HF_OP_RELEASE, AT(1)), CHECK_OUTCOME(begin(HF_OP_RELEASE, AT(1)), "not_held");
    CHECK_OUTCOME(begin_acquire(0, AT(1)), "busy");
    CHECK_OUTCOME(begin(HF_OP_CHECK, AT(1)), "not_held");
}

TEST(a_release_that_finds_the_lock_gone_reports_a_loss) {
    CASES(const char *reply; hf_lost_reason reason) =
        LIST({":-1\r\n", HF_LOST_DELETED}, {":-2\r\n", HF_LOST_TAKEN});
    EACH_NUMBER (i, 2) {
        hf_hold *hold = hold_times(1, AT(0));
        hf_op *op = begin(HF_OP_RELEASE, AT(1));
        CHECK_ANSWER(op, cases[i].reply, AT(2), "lost");
        CHECK(hold_in(op) == hold);
        CHECK_EQ_INT(reason_of(hold), cases[i].reason);
        CHECK_EQ_INT(state_of(), -1);
        CHECK_EQ_U64(stats().losses, 1);
    }
}

/* A server that came back empty knows neither the program nor the lock. */
TEST(a_release_that_was_refused_and_then_finds_the_lock_gone_reports_a_loss) {
    static const char *const passing[] = {"-NOSCRIPT No matching script.\r\n",
                                          "-LOADING Redis is loading\r\n"};
    EACH_NUMBER (i, 2) {
        hold_times(1, AT(0));
        hf_op *op = begin(HF_OP_RELEASE, AT(1));
        feed_calls(passing[i], AT(2));
        rig_tick(AT(50));
        CHECK_ANSWER(op, ":-1\r\n", AT(51), "lost");
        CHECK_EQ_U64(stats().losses, 1);
    }
}

TEST(a_release_without_a_reply_is_retried_in_the_background) {
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(HF_OP_RELEASE, AT(100));
    CHECK_SLEEP(op, AT(100), AT(3100), "unreachable");
    CHECK_MESSAGE(op, "the release continues in the background");
    CHECK(is_cleaned_up(hold));
    hf_op_end(op, AT(3100));
    CHECK_SENT_UNTIL(CALLS, AT(3100), AT(3200), LEAVE_OF_K("0", ""));
    CHECK_SENT(RENEWER, "");
    feed_calls(":1\r\n", AT(3201)), CHECK_EQ_INT(state_of(), -1);
}

TEST(the_next_release_also_covers_an_earlier_one_that_failed) {
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(HF_OP_RELEASE, AT(100));
    sent_over(CALLS);
    CHECK(!is_uncertain(hold));
    CHECK_ANSWER(op, "-ERR no\r\n", AT(101), "server");
    CHECK(is_held(hold) && is_uncertain(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK_SENT_UNTIL(RENEWER, AT(101), AT(10000), "EVALSHA renew 1 k me 30000");
    feed_renewer("*1\r\n:1\r\n", AT(10001));
    begin(HF_OP_RELEASE, AT(10002)), CHECK_SENT(CALLS, BRIEF_RELEASE_OF_K);
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

TEST(a_release_of_a_lost_hold_reports_the_loss_once_and_then_forgets_it) {
    lose_hold(hold_times(1, AT(0)), HF_LOST_TAKEN);
    hf_op *op = begin(HF_OP_RELEASE, AT(1));
    CHECK_OUTCOME(op, "lost");
    CHECK_MESSAGE(op, "another owner holds it");
    CHECK_EQ_INT(state_of(), -1);
    CHECK_SILENT();
    CHECK_OUTCOME(begin(HF_OP_RELEASE, AT(2)), "not_held");
}

static hf_op *begin_about_lost(hf_op_kind kind, hf_hold *lost, bool notified) {
    return BEGIN(kind, AT(40000), spec.lost_hold = lost, spec.loss_reported = notified);
}

TEST(a_call_on_a_lost_hold_leaves_its_owners_newer_hold_alone) {
    static const hf_op_kind kinds[] = {HF_OP_RELEASE, HF_OP_COMPLETE, HF_OP_EXTEND, HF_OP_CHECK};
    hf_hold *old = watch(hold_times(1, AT(0)));
    lose_hold(old, HF_LOST_TAKEN);
    hf_hold *newer = hold_times(1, AT(40000));
    CHECK(newer != old);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        hf_op *op = begin_about_lost(kinds[i], old, false);
        CHECK_OUTCOME(op, "lost");
        CHECK(hold_in(op) == old);
        CHECK_MESSAGE(op, "another owner holds it");
        CHECK_OUTCOME(begin_about_lost(kinds[i], old, true), "not_held");
    }
    CHECK_SILENT();
    CHECK(hf_hold_is_valid(newer, AT(40000)));
    hf_op *op = begin(HF_OP_RELEASE, AT(40001));
    CHECK_SENT(CALLS, BRIEF_RELEASE_OF_K);
    CHECK_ANSWER(op, ":1\r\n", AT(40002), "ok");
    rig_end(AT(40002));
}

TEST(a_release_that_waited_for_a_renewal_does_not_release_a_newer_hold) {
    hf_hold *hold = hold_while_renewed(1);
    hf_op *waiting = begin(HF_OP_RELEASE, AT(10001));
    lose_hold(hold, HF_LOST_EXPIRED);
    hf_hold *newer = hold_times(1, AT(10002));
    CHECK(newer != hold);
    feed_renewer("*1\r\n:1\r\n", AT(10003)), CHECK_OUTCOME(waiting, "lost");
    CHECK(hf_hold_is_valid(newer, AT(10003)));
    CHECK_SENT(CALLS, "");
}

/* Two handles had it: one learns of the loss by its release, the other by the hold it still
 * refers to. */
TEST(a_lost_hold_is_still_reported_as_lost_while_it_is_cleaned_up_in_the_background) {
    hf_hold *hold = watch(hold_times(2, AT(0)));
    CHECK_OUTCOME(begin(HF_OP_RELEASE, AT(29698)), "lost");
    CHECK_EQ_INT(state_of(), CLEANING_UP);
    CHECK(hold_of() != hold);
    rig_tick(AT(29698));
    feed_renewer(":1\r\n", AT(29699));
    hf_hold *newer = hold_times(1, AT(29699));
    CHECK(is_held(newer));
    CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_EXPIRED);
    rig_end(AT(30000));
}

TEST(a_release_of_a_lost_hold_does_not_overtake_the_command_under_way_for_it) {
    hf_hold *hold = hold_while_renewed(1);
    set_end(hold, AT(10001)), CHECK_OUTCOME(begin(HF_OP_RELEASE, AT(10001)), "lost");
    hf_claim *leaving = leaving_of();
    CHECK(claim_is_in_flight(leaving));
    rig_tick(AT(10002)), CHECK_SILENT();
    feed_renewer("*1\r\n:1\r\n", AT(10003));
    CHECK_SENT_AT(RENEWER, AT(10003), LEAVE_OF_K("0", ""));
}

/* The server would free the key before it gets the record, and another client would run again. */
TEST(a_release_of_a_lost_guard_does_not_overtake_the_record_of_its_run) {
    hf_hold *hold = hold_guard(AT(0));
    hf_op *complete = begin_complete(AT(10));
    output_of(link_of(CALLS));
    set_end(hold, AT(20));
    hf_op *op = BEGIN(HF_OP_RELEASE, AT(20), spec.lock_kind = &hf_kind_guard);
    CHECK_OUTCOME(op, "lost");
    rig_tick(AT(21)), CHECK_SILENT();
    CHECK_ANSWER(complete, ":1\r\n", AT(22), "ok");
}

TEST(an_abandoned_release_is_finished_in_the_background) {
    hold_times(1, AT(0));
    hf_op_end(begin(HF_OP_RELEASE, AT(1)), AT(2)), CHECK_EQ_INT(unanswered_count(&rig.client), 0);
    CHECK_SENT_AT(CALLS, AT(2), BRIEF_RELEASE_OF_K "\n" LEAVE_OF_K("0", ""));
    feed_calls(":1\r\n:0\r\n", AT(3)), CHECK_EQ_INT(state_of(), -1);
}

TEST(an_abandoned_release_of_one_of_two_holds_still_removes_that_hold) {
    hf_hold *hold = hold_times(2, AT(0));
    hf_op_end(begin(HF_OP_RELEASE, AT(1)), AT(2));
    sent_over(CALLS), CHECK(is_held(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK(!is_in_flight(hold));
    begin(HF_OP_RELEASE, AT(3)), CHECK_SENT(CALLS, BRIEF_RELEASE_OF_K);
}

TEST(a_release_abandoned_before_it_was_sent_is_finished_in_the_background) {
    hold_while_renewed(1);
    hf_op_end(begin(HF_OP_RELEASE, AT(10001)), AT(10002)), CHECK_EQ_INT(state_of(), CLEANING_UP);
    rig_tick(AT(10002));
    CHECK_SENT(RENEWER, ""); /* not before the renewal is answered */
    feed_renewer("*1\r\n:1\r\n", AT(10003));
    CHECK_SENT_AT(RENEWER, AT(10003), LEAVE_OF_K("0", ""));
    feed_renewer(":1\r\n", AT(10004)), CHECK_EQ_INT(state_of(), -1);
}

/* It cannot be sent twice, and the server may not know the program yet. */
TEST(a_shared_owners_abandoned_release_is_resent_with_its_script_after_a_noscript_reply) {
    set_shared(hold_times(1, AT(0)), true);
    hf_op *op = begin(HF_OP_RELEASE, AT(1));
    sent_over(CALLS);
    hf_op_end(op, AT(2)), CHECK(!is_quiet());
    feed_calls("-NOSCRIPT No matching script\r\n", AT(3));
    CHECK(strncmp(sent_over(CALLS), "EVAL release", 12) == 0);
    CHECK(!is_quiet());
    feed_calls(":1\r\n", AT(4)), CHECK(is_quiet());
}

TEST(a_shared_owner_releases_only_its_own_processes_holds) {
    hf_hold *hold = hold_times(2, AT(0));
    set_others(hold, 1); /* one of them is another process's */
    hf_op *op = begin(HF_OP_RELEASE, AT(1));
    CHECK_SENT(CALLS, RELEASE_OF_K("1"));
    CHECK(is_releasing(hold));
    CHECK_ANSWER(op, ":2\r\n", AT(2), "ok");
    CHECK_EQ_INT(state_of(), -1);
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

/* A second copy would release another process's hold. */
TEST(a_shared_owners_release_is_not_sent_after_the_lease) {
    hf_hold *hold = hold_times(1, AT(0));
    set_shared(hold, true);
    set_end(hold, AT(500));
    cut_link(CALLS, "reset", AT(1));
    hf_op *op = begin(HF_OP_RELEASE, AT(2));
    CHECK(!hf_op_is_done(op));
    CHECK_SLEEP(op, AT(2), AT(501), "unreachable");
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
TEST(a_shared_owners_failed_release_is_sent_once_more_with_the_next_one) {
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

TEST(a_hold_is_not_renewed_while_it_is_being_released) {
    for (uint32_t count = 1; count <= 2; count++) {
        rig_begin();
        hf_hold *hold = hold_times(count, AT(0));
        begin(HF_OP_RELEASE, AT(1));
        CHECK_EQ_U64(hf_client_renewer_next_tick(&rig.client), ends_at(hold));
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

/* The owner has acquired the lock again: cleaning up would take that from it. */
TEST(a_failed_release_of_a_lost_hold_does_not_clean_up_its_owners_newer_one) {
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(HF_OP_RELEASE, AT(1));
    lose_hold(hold, HF_LOST_TAKEN);
    begin_acquire(0, AT(2));
    sent_over(CALLS), CHECK(!is_in_table(hold));
    feed_calls("-OOM no\r\n" ACQUIRED, AT(3)), CHECK(hf_op_is_done(op));
    CHECK_EQ_INT(state_of(), HF_HOLD_HELD);
    rig_tick(AT(4)), CHECK_EQ_INT(holds_left(), 1), CHECK_SENT(CALLS, "");
}

TEST(a_partial_release_never_shortens_the_lease_that_a_hold_already_has) {
    hf_hold *hold = hold_times(2, AT(0));
    set_end(hold, AT(60000));
    begin(HF_OP_RELEASE, AT(5000));
    feed_calls(":2\r\n", AT(5001)), CHECK_EQ_U64(ends_at(hold), AT(60000));
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

TEST(a_release_with_a_malformed_reply_is_retried_in_the_background) {
    EACH_CASE (i, senseless) {
        hold_times(1, AT(0));
        hf_op *op = begin(HF_OP_RELEASE, AT(10));
        CHECK_ANSWER(op, senseless[i], AT(11), "server");
        CHECK_MESSAGE(op, "the release continues in the background");
        CHECK_EQ_INT(state_of(), CLEANING_UP);
        CHECK_EQ_U64(stats().losses, 0);
    }
}

CHECK_MAIN
