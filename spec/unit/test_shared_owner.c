/* Owners that other processes share. */

#include "acquire_rig.h"

TEST(a_shared_owner_acquires_a_lock_that_its_other_processes_released_in_the_meantime) {
    hf_op *op = begin_shared(0, AT(0));
    CHECK(!request_in(op)->no_retry);
    CHECK_ANSWER_SENDS("*2\r\n:2\r\n:1\r\n", AT(1), CALLS,
                       ASK_OF_K("0", "1", "") "\n" ASK_OF_K("1", "1", ""));
    CHECK(request_in(op)->no_retry); /* a second copy would take another hold */
    CHECK_ANSWER_SENDS(GONE, AT(2), CALLS, ASK_OF_K("0", "1", ""));
    CHECK_ANSWER(op, ACQUIRED, AT(3), "ok");
    CHECK_EQ_INT(others_of(hold_of()), 0);
    CHECK_EQ_INT(count_of(hold_of()), 1);
}

TEST(a_shared_owners_acquire_gives_up_if_its_other_processes_holds_keep_changing) {
    hf_op *op = begin_shared(0, AT(0));
    for (int i = 0; i < 4; i++) {
        CHECK_OUTCOME(op, "under way");
        feed_calls("*2\r\n:2\r\n:1\r\n", AT(i));
    }
    CHECK_OUTCOME(op, "busy");
    sent_over(CALLS);
    CHECK_NOTHING_LEFT(AT(5));
    op = begin_shared(0, AT(6));
    for (int i = 0; !hf_op_is_done(op) && i < 20; i++) /* they come and go */
        feed_calls(i % 2 ? GONE : "*2\r\n:2\r\n:1\r\n", AT(6));
    CHECK_OUTCOME(op, "busy");
    rig_end(AT(6));
    static const char *const hostile[] = {"*2\r\n:2\r\n:0\r\n", "*2\r\n:2\r\n:-1\r\n",
                                          "*2\r\n:2\r\n:4294967295\r\n",
                                          "*2\r\n:2\r\n:1000000000\r\n"};
    EACH_CASE (i, hostile) {
        op = begin_shared(0, AT(0));
        CHECK_ANSWER(op, hostile[i], AT(1), "busy");
    }
}

TEST(a_shared_owners_re_entry_updates_its_count_of_other_processes_holds) {
    hf_op *op = begin_shared(0, AT(0));
    end_with(op, ACQUIRED, AT(1));
    op = begin_shared(0, AT(2));
    sent_over(CALLS);
    feed_calls("*2\r\n:2\r\n:3\r\n", AT(3)); /* two others have joined */
    CHECK_EQ_INT(others_of(hold_of()), 2);
    CHECK_EQ_INT(count_of(hold_of()), 3);
    CHECK_SENT(CALLS, ASK_OF_K("3", "1", ""));
    feed_calls("*2\r\n:1\r\n:0\r\n", AT(4)), CHECK_EQ_INT(others_of(hold_of()), 2);
    CHECK_EQ_INT(count_of(hold_of()), 4);
    hf_op_end(op, AT(4));
    op = begin_shared(0, AT(5));
    feed_calls("*2\r\n:2\r\n:1\r\n", AT(6)); /* fewer than we have ourselves */
    CHECK_EQ_INT(others_of(hold_of()), 0);
    CHECK_EQ_INT(count_of(hold_of()), 1);
}

/* What was abandoned is released with the rest, as long as the server still counts it. */
TEST(a_shared_owner_owes_at_most_as_many_failed_releases_as_the_server_has_other_holds) {
    CASES(const char *count; uint32_t pending) = {{"3", 2}, {"2", 1}, {"1", 0}};
    EACH_CASE (i, cases) {
        hf_op *op = begin_shared(0, AT(0));
        end_with(op, ACQUIRED, AT(1));
        set_pending(hold_of(), 2);
        op = begin_shared(0, AT(2));
        CHECK_ANSWER(op, printed("*2\r\n:2\r\n:%s\r\n*2\r\n:1\r\n:0\r\n", cases[i].count), AT(3),
                     "ok");
        CHECK_EQ_INT(pending_of(hold_of()), cases[i].pending);
    }
}

/* The count tells the server what the owner had before; the leave is safe to resend. */
TEST(a_shared_owners_waiter_that_leaves_sends_the_number_of_holds_that_it_found) {
    hf_op *op = wait_as_shared(AT(0));
    feed_message("1 recheck 2", AT(5));
    rig_tick(AT(5));
    feed_calls("*2\r\n:2\r\n:3\r\n", AT(6)), CHECK(request_in(op)->no_retry);
    CHECK_ANSWER_STATE(op, busy(20000, 0, 0), AT(7), WAITING);
    sent_over(CALLS);
    hf_op_interrupt(op, AT(8)), CHECK_SENT(CALLS, LEAVE_OF_K("3", MEMBER("2") " me") "0");
    CHECK(!request_in(op)->no_retry);
}

TEST(a_shared_owners_acquire_that_is_abandoned_or_ended_by_close_releases_the_hold_that_it_took) {
    EACH_NUMBER (closes, 2) {
        hf_op *op = begin_shared(0, AT(0));
        CHECK_SENT(CALLS, ASK_OF_K("0", "1", ""));
        if (closes) close_rig(AT(1));
        else hf_op_end(op, AT(1));
        rig_tick(AT(1)), CHECK_SILENT(), CHECK(!is_quiet());
        feed_calls(ACQUIRED, AT(2));
        CHECK_SENT_AT(CALLS, AT(2), OWN_LEAVE_OF_K("", "1"));
        feed_calls(":1\r\n", AT(3));
        CHECK_NOTHING_LEFT(AT(3));
        CHECK(is_quiet());
    }
}

TEST(a_shared_owners_late_acquire_is_undone_before_its_next_one) {
    hf_op *op = begin_shared(10 * HF_MS, AT(0));
    CHECK_SENT(CALLS, ASK_OF_K("0", "1", ""));
    rig_sleep(AT(0), AT(100)), CHECK_ENDS(op, "unreachable", AT(100)), CHECK_SENT(CALLS, "");
    op = begin_shared(HF_SECOND, AT(101)), CHECK_STATE(op, BLOCKED);
    feed_calls(ACQUIRED, AT(200));
    CHECK_SENT_AT(CALLS, AT(200), OWN_LEAVE_OF_K("", "1"));
    CHECK_STATE(op, BLOCKED);
    CHECK_ANSWER_STATE(op, ":1\r\n", AT(201), ASKING);
    CHECK_SENT(CALLS, ASK_OF_K("0", "1", ""));
    CHECK_ANSWER(op, ACQUIRED, AT(202), "ok");
}

TEST(a_shared_owners_re_entry_without_a_reply_is_renewed_in_time) {
    hf_op *op = begin_shared(0, AT(0));
    end_with(op, ACQUIRED, AT(1));
    op = begin_shared(0, AT(9900));
    feed_calls("+PONG\r\n", AT(9900)); /* the connection was quiet */
    hf_op_end(op, AT(9901));
    CHECK_SENT_UNTIL(RENEWER, AT(9901), AT(12000), "");
    rig_sleep(AT(12000), AT(13100)); /* the link is abandoned */
    CHECK_SENT(RENEWER, "EVALSHA renew 1 k me 30000");
}

/* A shared owner's others may have gone in part, or all of them. */
TEST(a_shared_owner_computes_its_other_processes_holds_relative_to_the_number_it_sent) {
    CASES(const char *others, *outcome; int is) = {{"-3", "ok", 0},
                                                   {"-1", "ok", 2},
                                                   {"-4", "server", 0},
                                                   {"999999996", "ok", 999999999},
                                                   {"999999997", "server", 0}};
    EACH_CASE (i, cases) {
        hf_op *op = begin_shared(0, AT(0));
        CHECK_ANSWER(op, printed("*2\r\n:2\r\n:3\r\n*3\r\n:1\r\n:77\r\n:%s\r\n", cases[i].others),
                     AT(1), cases[i].outcome);
        if (strcmp(cases[i].outcome, "ok") == 0) CHECK_EQ_INT(others_of(hold_of()), cases[i].is);
    }
}

TEST(a_shared_owners_release_also_ends_a_re_entry_that_no_replica_confirmed) {
    RIG_BEGIN(config.sync = (hf_sync){1, 100 * HF_MS});
    hf_op *op = begin_shared(0, AT(0));
    CHECK_ENDS_WITH(op, ACQUIRED ":1\r\n", AT(1), "ok");
    op = begin_shared(0, AT(2));
    sent_over(CALLS);
    begin(HF_OP_RELEASE, AT(3)); /* behind the answer */
    CHECK_SENT(CALLS, "");
    CHECK_ANSWER(op, ACQUIRED ":0\r\n", AT(4), "no_quorum");
    CHECK_SENT_PART(CALLS, "EVALSHA release " KEYS_OF_K "0 30000 2");
}

CHECK_MAIN
