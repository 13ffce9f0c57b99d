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

TEST(a_shorter_re_entry_keeps_the_longer_lease) {
    hf_hold *hold = hold_lock(AT(0));
    BEGIN(HF_OP_ACQUIRE, AT(1000), spec.lease = HF_SECOND, spec.renewed = false);
    feed_calls("*2\r\n:1\r\n:0\r\n", AT(1001)), CHECK_EQ_U64(lease_of(hold), 30 * HF_SECOND);
    CHECK_EQ_U64(ends_at(hold), AT(29698));
    CHECK(is_renewed(hold));
    CHECK(renewer_next_tick() <= AT(11000));
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

TEST(a_hold_lost_during_a_re_entry_remains_lost) {
    hf_hold *hold = hold_lock(AT(0));
    hf_op *op = begin_acquire(0, AT(29000));
    rig_sleep(AT(29000), AT(29700)), CHECK(is_lost(hold));
    CHECK_ANSWER(op, "*2\r\n:1\r\n:0\r\n", AT(29800), "lost");
    CHECK(is_lost(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK(!is_in_flight(hold));
}

TEST(a_lost_hold_released_during_a_re_entry_is_cleaned_up) {
    hf_hold *hold = hold_lock(AT(0));
    hf_op *op = begin_acquire(0, AT(29000));
    sent_over(CALLS);
    CHECK_SLEEP(begin(HF_OP_RELEASE, AT(29701)), AT(29000), AT(29700), "lost");
    CHECK(is_lost(hold));
    CHECK_EQ_INT(state_of(), CLEANING_UP);
    CHECK_SENT_AT(RENEWER, AT(29701), "");
    CHECK_ANSWER(op, "*2\r\n:1\r\n:0\r\n", AT(29800), "lost");
    CHECK_SENT_AT(RENEWER, AT(29800), LEAVE_OF_K("0", ""));
}

TEST(a_re_entry_whose_reply_arrives_after_its_lease_does_not_end_the_hold) {
    hf_hold *hold = hold_lock(AT(0));
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(1000), spec.lease = 100 * HF_MS);
    CHECK_ANSWER(op, "*2\r\n:1\r\n:0\r\n", AT(1200), "lost");
    CHECK(hf_hold_is_valid(hold, AT(1200)));
    CHECK_EQ_INT(count_of(hold), 1);
}

/* Whatever became of the re-entry, the hold is still renewed. */
static void check_still_kept(const char *reply, const char *code, bool undone) {
    rig_begin();
    hf_hold *hold = hold_lock(AT(0));
    hf_op *op = begin_acquire(0, AT(1000));
    sent_over(CALLS);
    if (reply) feed_calls(reply, AT(1001));
    else rig_sleep(AT(1000), AT(4000));
    CHECK_OUTCOME(op, code);
    CHECK(is_held(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK(!is_in_flight(hold) && !undone);
    hf_op_end(op, AT(4000));
    CHECK_SENT_UNTIL(RENEWER, AT(4000), AT(10000), "EVALSHA renew 1 k me 30000");
    rig_end(AT(10000));
}

TEST(a_lock_is_still_renewed_after_a_failed_re_entry) {
    check_still_kept(NULL, "unreachable", false);
    check_still_kept("-ERR no\r\n", "server", false);
    check_still_kept("-NOPERM no\r\n", "denied", false);
    check_still_kept("*1\r\n:9\r\n", "server", false);
    check_still_kept("*1\r\n:-3\r\n", "conflict", false);
}

/* The server may count two: the reply to the last release says how many stay. */
TEST(the_last_release_frees_the_lock_after_a_re_entry_of_unknown_outcome) {
    EACH_NUMBER (how, 3) {
        hf_hold *hold = hold_lock(AT(0));
        hf_op_end(begin_acquire(0, AT(1000)), AT(1001));
        sent_over(CALLS);
        if (how == 0) begin(HF_OP_RELEASE, AT(1002));
        if (how == 1) abandon_hold(hold, 1, AT(1002));
        if (how == 2) close_rig(AT(1002));
        rig_tick(AT(1003));
        if (how == 0) CHECK_SENT(CALLS, BRIEF_RELEASE_OF_K);
        else CHECK_SENT(RENEWER, LEAVE_OF_K("0", ""));
    }
}

/* As by a coroutine, which gives no text: each hold gets one. */
static hf_op *acquire_as_coroutine(hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.owner = (hf_slice){"", 0});
    return op;
}

#define KEYS_OF_OWNER(number) ALL_KEYS OWNER(number) " 2000 "

TEST(each_hold_has_an_owner_of_its_own) {
    hf_op *op = acquire_as_coroutine(AT(0));
    CHECK_SENT(CALLS, "EVALSHA acquire " ALL_KEYS OWNER("1") " 30000 1000");
    CHECK_ANSWER(op, ACQUIRED, AT(1), "ok");
    acquire_as_coroutine(AT(2)); /* a re-entry of the same hold */
    CHECK_SENT(CALLS, "EVALSHA acquire " KEYS_OF_OWNER("1") "1 0 30000 1000 ");
    feed_calls("*2\r\n:1\r\n:0\r\n", AT(3));
    begin(HF_OP_RELEASE, AT(4));
    CHECK_SENT(CALLS, "EVALSHA release " KEYS_OF_OWNER("1") "1 30000 ");
    feed_calls(":2\r\n", AT(5));
    begin(HF_OP_RELEASE, AT(6)), CHECK_SENT(CALLS, "EVALSHA release " ALL_KEYS OWNER("1"));
    feed_calls(":1\r\n", AT(7));
    op = acquire_as_coroutine(AT(8));
    CHECK_SENT(CALLS, "EVALSHA acquire " ALL_KEYS OWNER("2") " 30000 1000");
    CHECK_ANSWER(op, ACQUIRED, AT(9), "ok");
}

/* Its last renewal may have been carried out. */
TEST(a_hold_whose_lease_ended_by_the_clock_is_cleaned_up_before_the_next_acquire) {
    hf_op *op = acquire_as_coroutine(AT(0));
    sent_over(CALLS);
    feed_calls(ACQUIRED, AT(1));
    hf_hold *old = hold_of();
    hf_op_end(op, AT(1));
    hf_hold_ref(old);
    op = acquire_as_coroutine(AT(29698)), CHECK(is_lost(old));
    CHECK_STATE(op, BLOCKED);
    CHECK_SENT(CALLS, "EVALSHA leave " KEYS_OF_OWNER("1") "0  ");
    feed_calls(":0\r\n", AT(29699));
    CHECK_SENT(CALLS, "EVALSHA acquire " ALL_KEYS OWNER("2") " 30000 1000");
    CHECK_ANSWER(op, ACQUIRED, AT(29700), "ok");
    CHECK(is_lost(old));
    hf_hold_unref(old);
}

TEST(acquiring_a_lost_lock_again_creates_a_new_hold) {
    EACH_NUMBER (noticed, 2) {
        hf_hold *old = watch(hold_lock(AT(0)));
        if (noticed) lose_hold(old, HF_LOST_TAKEN);
        hf_op *op = begin_acquire(0, AT(29698)); /* when its lease ends */
        CHECK_SENT(CALLS, BRIEF_ASK_OF_K);
        CHECK_ANSWER(op, ACQUIRED, AT(29699), "ok");
        CHECK(hold_of() != old && is_lost(old));
        CHECK_EQ_INT(count_of(hold_of()), 1);
    }
}

TEST(an_owner_has_only_one_call_in_flight_for_a_lock) {
    begin_acquire(0, AT(0));
    hf_op *second = begin_acquire(0, AT(0));
    CHECK_OUTCOME(second, "busy");
    CHECK_MESSAGE(second, "another call by this owner");
    CHECK_SENT(CALLS, BRIEF_ASK_OF_K);
}

TEST(an_acquire_waits_for_its_owners_other_call_and_then_re_enters) {
    begin_acquire(HF_SECOND, AT(0));
    hf_hold *hold = hold_of();
    set_agent(hold, 7);
    hf_op *second = begin_acquire(HF_SECOND, AT(1));
    CHECK_STATE(second, BLOCKED);
    CHECK_EQ_U64(agent_of(hold), 7);
    CHECK_SENT(CALLS, BRIEF_ASK_OF_K);
    CHECK_ANSWER_SENDS(ACQUIRED, AT(2), CALLS, ASK_OF_K("1", "0", ""));
    CHECK_ANSWER(second, "*2\r\n:1\r\n:0\r\n", AT(3), "ok");
    CHECK_EQ_INT(count_of(hold), 2);
}

TEST(an_acquire_sends_its_own_request_to_the_server_if_its_owners_other_call_fails) {
    hf_op *first = begin_acquire(0, AT(0)), *second = begin_acquire(HF_SECOND, AT(1));
    sent_over(CALLS);
    CHECK_ANSWER(first, busy(20000, 0, 0), AT(2), "busy");
    CHECK_STATE(second, ASKING);
    CHECK_SENT(CALLS, BRIEF_ASK_OF_K);
    CHECK_ANSWER(second, ACQUIRED, AT(3), "ok");
    CHECK_EQ_INT(count_of(hold_of()), 1);
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

TEST(an_acquire_waits_until_the_renewal_of_its_hold_has_ended) {
    hf_hold *hold = hold_lock(AT(0));
    CHECK_SENT_UNTIL(RENEWER, AT(0), AT(10000), "EVALSHA renew 1 k me 30000");
    hf_op *op = begin_acquire(HF_SECOND, AT(10001));
    CHECK_STATE(op, BLOCKED);
    CHECK_SENT(CALLS, "");
    CHECK_EQ_U64(hf_op_next_tick(op), AT(11001));
    feed(link_of(RENEWER), "*1\r\n:1\r\n", AT(10002)), CHECK_STATE(op, ASKING);
    CHECK_SENT(CALLS, ASK_OF_K("1", "0", ""));
    feed_calls("*2\r\n:1\r\n:0\r\n", AT(10003)), CHECK_EQ_INT(count_of(hold), 2);
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

TEST(an_abandoned_hold_is_cleaned_up_and_not_reused_by_the_next_acquire) {
    uint64_t number = number_of(hold_lock(AT(0)));
    abandon_hold(hold_of(), 1, AT(10));
    hf_op *op = begin_acquire(0, AT(10)); /* before the renewer came to it */
    CHECK_STATE(op, BLOCKED);
    CHECK_SENT_UNTIL(RENEWER, AT(10), AT(11), "");
    CHECK_SENT(CALLS, LEAVE_OF_K("0", ""));
    CHECK_ANSWER_SENDS(":1\r\n", AT(11), CALLS, BRIEF_ASK_OF_K);
    CHECK_ANSWER(op, ACQUIRED, AT(12), "ok");
    CHECK_EQ_INT(count_of(hold_of()), 1);
    CHECK(number_of(hold_of()) != number);
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

TEST(a_re_entry_of_a_hold_from_an_old_grant_takes_the_larger_of_both_tokens) {
    CASES(const char *token; uint64_t has) = {{"90", 90}, {"5", 77}, {"0", 77}};
    EACH_CASE (i, cases) {
        hf_hold *hold = hold_lock(AT(0));
        set_wait(hold, 7); /* its grant was confirmed long ago */
        hf_op *op = begin_acquire(0, AT(1));
        CHECK_ANSWER(op, printed("*2\r\n:1\r\n:%s\r\n", cases[i].token), AT(2), "ok");
        CHECK_EQ_U64(token_of(hold), cases[i].has);
        CHECK_EQ_U64(wait_of_hold(hold), 0);
    }
}

TEST(a_re_entry_whose_reply_is_lost_is_sent_again) {
    hold_lock(AT(0));
    hf_op *op = begin_acquire(0, AT(1000));
    cut_link(CALLS, "reset", AT(1001));
    CHECK_SENT_UNTIL(CALLS, AT(1001), AT(1100), ASK_OF_K("1", "0", ""));
    CHECK_OUTCOME(op, "under way");
}

TEST(an_acquire_abandoned_while_it_waits_for_a_renewal_does_not_change_the_hold) {
    hf_hold *hold = hold_lock(AT(0));
    rig_sleep(AT(0), AT(10000));
    hf_op *op = begin_acquire(HF_SECOND, AT(10001));
    CHECK_STATE(op, BLOCKED);
    hf_op_end(op, AT(10002));
    CHECK(is_in_flight(hold)); /* its renewal is */
    CHECK_SENT(CALLS, "");
    CHECK_EQ_U64(wakes_at(hold), ends_at(hold));
    feed(link_of(RENEWER), "*1\r\n:1\r\n", AT(10003)), CHECK_EQ_INT(state_of(), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold), 1);
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

TEST(a_re_entry_does_not_join_the_queue_even_if_its_client_is_subscribed) {
    static hf_names other;
    hold_lock(AT(0));
    if (!hf_names_make(&other, hf_slice_of("j"))) abort();
    BEGIN(HF_OP_ACQUIRE, AT(0), spec.names = &other, spec.wait = 60 * HF_SECOND);
    subscribe_with(busy(20000, 0, 0), AT(1), AT(2), AT(3));
    sent_over(CALLS);
    hf_op *op = begin_acquire(10 * HF_SECOND, AT(4));
    CHECK(node_for(op)->subscribed);
    CHECK_SENT(CALLS, ASK_OF_K("1", "0", ""));
    rig_end(AT(5));
    hf_names_free(&other);
}

TEST(a_longer_re_entry_extends_the_lease) {
    EACH_NUMBER (i, 4) {
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.renewed = i & 1);
        feed_calls(ACQUIRED, AT(1));
        hf_hold *hold = hold_in(op);
        CHECK_EQ_INT(is_renewed(hold), i & 1);
        BEGIN(HF_OP_ACQUIRE, AT(2), spec.renewed = i & 2, spec.lease = 40 * HF_SECOND);
        feed_calls("*2\r\n:1\r\n:0\r\n", AT(3)), CHECK_EQ_U64(lease_of(hold), 40 * HF_SECOND);
        CHECK_EQ_U64(ends_at(hold), AT(2 + 39598));
        CHECK_EQ_INT(is_renewed(hold), i > 0);
    }
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
