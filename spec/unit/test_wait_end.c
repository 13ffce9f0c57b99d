/* How waits end: they time out, are interrupted, abandoned or refused. */

#include "acquire_rig.h"

TEST(a_wait_that_ended_while_the_process_was_stopped_fails_as_busy) {
    hf_op *op = wait_in_queue(500 * HF_MS, AT(0));
    rig_tick(AT(80000)); /* the process was stopped */
    rig_tick(AT(80001));
    CHECK_ANSWER(op, ":1\r\n", AT(80001), "busy");
}

TEST(a_waiter_whose_wait_ends_leaves_the_queue) {
    hf_op *op = wait_in_queue(HF_SECOND, AT(0));
    rig_sleep(AT(3), AT(999)), CHECK_STATE(op, WAITING);
    rig_tick(AT(1000)), CHECK_STATE(op, CANCELLING);
    CHECK_SENT(CALLS, LEAVE_OF_K("0", MEMBER("1")));
    CHECK_ANSWER(op, ":0\r\n", AT(1001), "busy");
    CHECK_NOTHING_LEFT(AT(1001));
}

TEST(a_lock_granted_to_a_waiter_that_is_leaving_goes_to_the_next_one) {
    hf_op *op = wait_in_queue(HF_SECOND, AT(0));
    rig_tick(AT(1000));
    sent_over(CALLS);
    feed_message(GRANT("1", "88"), AT(1001)), CHECK_STATE(op, CANCELLING);
    CHECK_ANSWER(op, ":1\r\n", AT(1002), "busy");
    CHECK_NOTHING_LEFT(AT(1002));
}

TEST(a_wait_that_ends_before_its_subscription_is_confirmed_leaves_nothing) {
    EACH_NUMBER (interrupted, 2) {
        hf_op *op = begin_acquire(interrupted ? HF_NEVER : HF_SECOND, AT(0));
        feed_calls(busy(5000, 0, 0), AT(1));
        sent_over(CALLS);
        if (interrupted) CHECK_INTERRUPTS(op, AT(100));
        else CHECK_TICK(op, AT(1000), "busy");
        CHECK_NOTHING_LEFT(AT(1000));
    }
}

TEST(a_wait_whose_server_was_lost_ends_as_unreachable) {
    hf_op *op = wait_in_queue(HF_SECOND, AT(0));
    rig.refusing = true;
    cut_link(CALLS, "reset", AT(500));
    cut_link(EVENTS, "reset", AT(500));
    CHECK_SLEEP(op, AT(500), AT(999), "under way");
    hf_client_tick(&rig.client, AT(1000)), CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_INT(state_of(), CLEANING_UP);
    CHECK_EQ_U64(claim_wait(leaving_of()), 1);
}

TEST(an_endless_wait_survives_a_minute_without_the_server) {
    hf_op *op = wait_in_queue(HF_NEVER, AT(0));
    rig.refusing = true;
    cut_link(CALLS, "reset", AT(500));
    cut_link(EVENTS, "reset", AT(500));
    int wakes = rig_sleep(AT(500), AT(60000));
    CHECK_OUTCOME(op, "under way");
    CHECK_OR(wakes < 600, "%d wakes", wakes);
    rig.refusing = false;
    rig_sleep(AT(60000), AT(62000));
    CHECK_ANSWER(op, ACQUIRED, AT(62000), "ok");
}

/* The question of a waiter in the queue has no deadline of its own: a signal must still end it. */
TEST(a_waiter_interrupted_during_its_request_to_an_unreachable_server_ends_early) {
    hf_op *op = wait_in_queue(HF_NEVER, AT(0));
    rig.refusing = true;
    cut_link(CALLS, "reset", AT(500));
    cut_link(EVENTS, "reset", AT(500));
    rig_sleep(AT(500), AT(5000)), CHECK_STATE(op, ASKING);
    hf_op_interrupt(op, AT(5000));
    hf_op_interrupt(op, AT(5050)); /* as often as the driver likes */
    CHECK_SLEEP(op, AT(5050), AT(5100), "interrupted");
    CHECK_EQ_INT(state_of(), CLEANING_UP);
}

TEST(an_acquire_interrupted_while_it_waits_for_a_renewal_ends_early) {
    hf_hold *hold = hold_lock(AT(0));
    rig_sleep(AT(0), AT(10000)), CHECK(is_in_flight(hold));
    hf_op *op = begin_acquire(HF_NEVER, AT(10001));
    CHECK_STATE(op, BLOCKED);
    CHECK_INTERRUPTS(op, AT(10002));
    CHECK(is_held(hold));
}

/* It was down for a moment, long ago. */
TEST(a_busy_message_does_not_mention_an_outage_that_is_over) {
    hf_op *op = wait_in_queue(HF_SECOND, AT(0));
    hf_session *events = link_of(EVENTS);
    snprintf(events->reason, sizeof events->reason, "reset");
    rig_sleep(AT(3), AT(1000));
    CHECK_ANSWER(op, ":0\r\n", AT(1001), "busy");
    CHECK(!strstr(message_of(op), "reset") && !strstr(message_of(op), "cannot listen"));
}

TEST(a_waiter_whose_leave_command_is_refused_still_reports_why_its_wait_ended) {
    hf_op *op = wait_in_queue(HF_SECOND, AT(0));
    rig_sleep(AT(3), AT(1000));
    CHECK_ANSWER(op, "-NOPERM no\r\n", AT(1001), "busy");
}

TEST(an_acquire_interrupted_during_its_request_still_gives_the_server_time_to_reply) {
    hf_op *op = begin_acquire(HF_NEVER, AT(0));
    hf_op_interrupt(op, AT(1000)), CHECK_EQ_U64(request_in(op)->deadline, AT(1100));
}

TEST(an_acquire_that_ends_with_any_kind_of_reply_is_no_longer_counted_as_a_waiter) {
    CASES(const char *reply, *outcome) = {
        {"*1\r\n:4\r\n", "mismatch"},
        {"*2\r\n:3\r\n$1\r\nr\r\n", "duplicate"},
        {"*1\r\n:-3\r\n", "conflict"},
        {"*1\r\n:-4\r\n", "conflict"},
        {"*2\r\n:-5\r\n:3\r\n", "conflict"},
        {"*2\r\n:-6\r\n$5\r\nguard\r\n", "conflict"},
        {"-ERR no\r\n", "server"},
        {"*1\r\n:77\r\n", "server"},
        {"*1\r\n:2\r\n", "busy"},
        {ACQUIRED, "ok"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        EACH_NUMBER (waiting, 2) {
            hf_op *op = waiting ? wait_in_queue(60 * HF_SECOND, AT(0)) : begin_acquire(0, AT(0));
            if (waiting) {
                rig_tick(AT(150));
                rig_tick(rechecks_at(op));
            }
            CHECK_STATE(op, ASKING);
            feed_calls(cases[i].reply, AT(2500));
            CHECK_OR(strcmp(outcome(op), cases[i].outcome) == 0, "case %zu: %s", i, outcome(op));
            CHECK(hf_op_is_done(op));
            CHECK(!needs_events(op));
            CHECK_EQ_U64(hf_op_next_tick(op), HF_NEVER);
            CHECK_EQ_INT(request_in(op)->state, HF_REQUEST_IDLE);
            CHECK_EQ_INT(nodes_of(&rig.client)[0]->events_users, 0);
        }
    }
    rig_begin();
    hf_op *op = wait_in_queue(60 * HF_SECOND, AT(0));
    feed_message("1 recheck 1", AT(50));
    rig_tick(AT(50));
    CHECK_ANSWER(op, GONE, AT(61), "under way");
}

TEST(a_wait_that_ends_while_connections_are_refused_fails_as_unreachable) {
    hf_op *op = wait_in_queue(HF_SECOND, AT(0));
    cut_link(CALLS, "gone", AT(500));
    hf_session_opening(link_of(CALLS), AT(500));
    cut_link(CALLS, "refused", AT(501)), CHECK_EQ_INT(link_of(CALLS)->opens_since_reply, 1);
    CHECK_EQ_INT(link_of(EVENTS)->state, HF_SESSION_READY);
    hf_client_tick(&rig.client, AT(1000)), CHECK_OUTCOME(op, "unreachable");
    CHECK_MESSAGE(op, "refused");
}

TEST(a_wait_that_ends_just_after_its_connections_were_lost_fails_as_busy) {
    hf_op *op = wait_in_queue(HF_SECOND, AT(0));
    cut_link(CALLS, "reset", AT(999));
    cut_link(EVENTS, "reset", AT(999));
    hf_client_tick(&rig.client, AT(1000));
    hf_client_tick(&rig.client, AT(1001)), CHECK_OUTCOME(op, "under way");
    rig_serve(AT(1001)), CHECK_SENT(CALLS, LEAVE_OF_K("0", MEMBER("1")));
    CHECK_ANSWER(op, ":0\r\n", AT(1002), "busy");
}

TEST(the_clean_up_after_a_waiters_acquire_that_arrived_late_names_no_queue_entry) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.lease = HF_SECOND, spec.wait = 60 * HF_SECOND);
    feed_calls(busy(20000, 0, 0), AT(1));
    feed_subscribed(AT(2));
    CHECK_ANSWER(op, ACQUIRED, AT(1500), "lost");
    CHECK_EQ_INT(state_of(), CLEANING_UP);
    CHECK_EQ_U64(claim_wait(leaving_of()), 0);
}

TEST(a_queued_waiter_interrupted_while_its_server_is_unreachable_ends) {
    hf_op *op = wait_in_queue(60 * HF_SECOND, AT(0));
    rig.refusing = true;
    cut_link(CALLS, "gone", AT(10));
    hf_op_interrupt(op, AT(11));
    rig_serve(AT(11)), CHECK_OUTCOME(op, "interrupted"), CHECK_EQ_INT(state_of(), CLEANING_UP);
}

TEST(a_client_whose_waiters_have_given_up_needs_no_subscription_connection) {
    hf_op *op = wait_in_queue(60 * HF_SECOND, AT(0));
    CHECK(link_of(EVENTS)->stays_open);
    hf_op_interrupt(op, AT(10));
    CHECK_ANSWER(op, ":1\r\n", AT(11), "interrupted");
    CHECK(!link_of(EVENTS)->stays_open);
    rig_begin();
    op = wait_in_queue(60 * HF_SECOND, AT(0));
    CHECK_GRANTS(op, GRANT("1", "9"), AT(10), "ok");
    CHECK(link_of(EVENTS)->stays_open); /* it may wait again soon */
}

TEST(a_waiters_leave_command_that_must_skip_many_dead_waiters_finishes_in_the_background) {
    hf_op *op = wait_in_queue(HF_SECOND, AT(0));
    rig_tick(AT(1000)), CHECK_STATE(op, CANCELLING);
    sent_over(CALLS);
    CHECK_ANSWER(op, ":3\r\n", AT(1001), "busy");
    rig_tick(AT(1001)), CHECK(strncmp(sent_over(RENEWER), "EVALSHA leave 4 k ", 18) == 0);
}

TEST(a_busy_reply_at_the_end_of_the_wait_ends_it_without_another_attempt) {
    EACH_NUMBER (early, 2) {
        hf_op *op = begin_acquire(HF_SECOND, AT(0));
        feed_calls(busy(20000, 0, 0), AT(1000) - (hf_time)early);
        CHECK_OUTCOME(op, early ? "under way" : "busy");
    }
}

CHECK_MAIN
