/* Waiting in the queue: the way into it, rechecks, and what the client listens to. */

#include "op/events.h"

#include "acquire_rig.h"

/* A second caller of the client, which is subscribed already: it has a place with its first
 * command. */
static hf_op *begin_behind(uint32_t max_waiters, hf_time wait, hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.caller = hf_slice_of("you"), spec.wait = wait,
                      spec.limits_waiters = true, spec.max_waiters = max_waiters);
    sent_over(CALLS);
    return op;
}

TEST(a_waiter_that_exceeds_max_waiters_leaves_the_queue_at_once_as_busy) {
    for (int most = 1; most <= 2; most++) {
        rig_begin();
        wait_in_queue(10 * HF_SECOND, AT(0));
        hf_op *op = begin_behind((uint32_t)most, HF_NEVER, AT(20));
        CHECK_ANSWER_STATE(op, busy(20000, most, 0), AT(21), CANCELLING);
        CHECK_SENT_PART(CALLS, MEMBER("2"));
        CHECK_ANSWER(op, ":0\r\n", AT(22), "busy");
        CHECK_MESSAGE(
            op, printed(": %d already waiting in line, and max_waiters is %d; try again later",
                        most, most));
        CHECK_EQ_INT(first_node(&rig.client)->events_users, 1);
    }
}

/* Waiters that were passed over come back before it. */
TEST(a_waiter_within_max_waiters_remains_queued) {
    wait_in_queue(10 * HF_SECOND, AT(0));
    hf_op *op = begin_behind(2, HF_NEVER, AT(20));
    CHECK_ANSWER_STATE(op, busy(20000, 1, 0), AT(21), WAITING);
    set_recheck(op, AT(100));
    rig_sleep(AT(21), AT(100)), CHECK_STATE(op, ASKING);
    CHECK_ANSWER_STATE(op, busy(20000, 7, 0), AT(101), WAITING);
}

/* A foreign key, of the same kind: it is one hold, not a new one each time. */
TEST(a_waiter_behind_another_librarys_holder_with_a_huge_ttl_rechecks_less_and_less_often) {
    static const char answer[] =
        "*5\r\n:0\r\n:9223372036854775807\r\n:0\r\n:1\r\n$1\r\n" PLACE "\r\n";
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.lock_kind = &hf_kind_mutex, spec.wait = HF_NEVER);
    feed_calls(answer, AT(1));
    feed_subscribed(AT(2));
    hf_time now = AT(3), longest = 0;
    for (int i = 0; i < 100; i++) {
        feed_calls(answer, now);
        longest = hf_time_max(longest, rechecks_at(op) - now);
        now = rechecks_at(op);
        rig_tick(now);
    }
    CHECK(longest > 60 * HF_MS);
}

TEST(a_waiter_rechecks_its_lock_when_the_reservation_for_other_libraries_ends) {
    hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
    feed_message("1 turn 1 50", AT(100)), CHECK_STATE(op, WAITING);
    CHECK_EQ_U64(hf_op_next_tick(op), AT(151));
    CHECK_SENT(EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    feed_message("1 turn 1 18446744073709551615", AT(110));
    CHECK_EQ_U64(hf_op_next_tick(op), AT(151));
    CHECK_SENT(EVENTS, "");
    CHECK_SENT_AT(CALLS, AT(151), ASK_OF_K("0", "0", MEMBER("1")));
}

TEST(a_waiter_rechecks_when_a_reservation_that_was_made_during_its_request_ends) {
    hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
    feed_message("1 recheck 1", AT(10));
    rig_tick(AT(10)), CHECK_STATE(op, ASKING);
    feed_message("1 turn 1 50", AT(11));
    CHECK_ANSWER_STATE(op, busy(20000, 0, 0), AT(12), WAITING);
    CHECK_EQ_U64(hf_op_next_tick(op), AT(12));
}

TEST(a_waiter_rechecks_often_while_the_lock_is_reserved_for_polling_clients) {
    hf_op *op = wait_in_queue(HF_NEVER, AT(0));
    feed_message("1 turn 1 20", AT(10));
    rig_tick(AT(31));
    feed_calls(busy(229, 0, 1), AT(31)); /* free */
    CHECK(hf_op_next_tick(op) > AT(31) && hf_op_next_tick(op) <= AT(62));
    rig_tick(AT(62));
    feed_calls(busy(30000, 0, 1), AT(62)); /* one of them has it */
    CHECK(hf_op_next_tick(op) > AT(62) && hf_op_next_tick(op) <= AT(93));
    rig_tick(AT(93));
    feed_calls(busy(30000, 0, 0), AT(93)); /* ours: the polling clients had their turn */
    CHECK(hf_op_next_tick(op) >= AT(1800) && !is_turn_of_pollers(op));
    feed_message("1 turn 1 50", AT(100));
    rig_tick(AT(151));
    feed_calls(busy(30000, 0, 1), AT(151)); /* one that announces its release */
    CHECK(hf_op_next_tick(op) >= AT(151 + 675) && hf_op_next_tick(op) <= AT(151 + 750));
}

static void feed_foreign_release(hf_time now) {
    feed(link_of(EVENTS),
         "*4\r\n$8\r\npmessage\r\n$26\r\nredisson_lock__channel:{k}\r\n$26\r\nredisson_lock__"
         "channel:{k}\r\n$1\r\n0\r\n",
         now);
}

TEST(the_first_waiter_behind_another_librarys_holder_subscribes_to_redissons_releases) {
    hf_op *op = begin_acquire(10 * HF_SECOND, AT(0));
    feed_calls(busy(20000, 0, 1), AT(1));
    feed_subscribed(AT(2));
    sent_over(EVENTS);
    sent_over(CALLS);
    CHECK_ANSWER_SENDS(busy(20000, 0, 1), AT(3), EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    feed_event("psubscribe", "redisson_lock__channel:{k}", "2",
               AT(4)); /* a release may have come before it */
    CHECK_EQ_U64(hf_op_next_tick(op), AT(4));
    CHECK_SENT_AT(CALLS, AT(4), ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(busy(20000, 0, 1), AT(5));
    feed_foreign_release(AT(10)), CHECK_EQ_U64(hf_op_next_tick(op), AT(10));
    CHECK_SENT_AT(CALLS, AT(10), ASK_OF_K("0", "0", MEMBER("1")));
    CHECK_ANSWER(op, ACQUIRED, AT(11), "ok");
    CHECK_SENT(EVENTS, "PUNSUBSCRIBE redisson_lock__channel:{k}");
}

TEST(a_waiter_does_not_recheck_its_lock_because_its_subscription_to_redisson_has_ended) {
    hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
    CHECK_SENT_AT(EVENTS, AT(150), "PSUBSCRIBE redisson_lock__channel:{k}");
    feed_event("punsubscribe", "redisson_lock__channel:{k}", "1", AT(152));
    CHECK(hf_op_next_tick(op) > AT(1000));
}

TEST(a_waiter_rechecks_its_lock_at_most_four_times_a_millisecond_however_many_messages_arrive) {
    hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
    feed_message("1 turn 1 0", AT(3));
    int looks = 0;
    for (int us = 4000; us < 14000; us += 10) {
        hf_time now = AT(0) + (hf_time)us * 1000;
        feed_foreign_release(now);
        rig_tick(now);
        bool asks = sent_over(CALLS)[0] != '\0';
        looks += asks;
        if (asks) feed_calls(busy(20000, 0, 1), now);
    }
    CHECK_OR(looks >= 36 && looks <= 41, "%d looks", looks);
    CHECK_STATE(op, WAITING);
}

/* The next connection for a subscription is refused, and the client does what is due. */
static void tick_without_subscription(hf_time now) {
    if (hf_session_wants(link_of(EVENTS), now) == HF_WANT_OPEN) {
        hf_session_opening(link_of(EVENTS), now);
        cut_link(EVENTS, "refused", now);
    }
    hf_client_tick(&rig.client, now);
}

/* A wait must not be without success because the server allows one connection less than we would
 * like. */
TEST(a_waiter_without_a_subscription_still_acquires_a_freed_lock) {
    hf_op *op = begin_acquire(HF_NEVER, AT(0));
    feed(link_of(CALLS), busy(5000, 0, 0), AT(1));
    sent_over(CALLS);
    bool asked = false;
    for (int ms = 1; ms < 8000 && !asked; ms += 5) {
        tick_without_subscription(AT(ms));
        asked = strcmp(sent_over(CALLS), BRIEF_ASK_OF_K) == 0;
    }
    CHECK(asked);
    feed(link_of(CALLS), ACQUIRED, AT(8000)), CHECK_OUTCOME(op, "ok");
}

TEST(a_waiter_whose_subscription_is_refused_fails_with_the_servers_reason) {
    hf_op *op = begin_acquire(10 * HF_SECOND, AT(0));
    feed_calls(busy(5000, 0, 0), AT(1));
    feed(link_of(EVENTS), "-NOPERM this user has no permissions to access one of the channels\r\n",
         AT(2));
    CHECK_OUTCOME(op, "denied");
    CHECK_EQ_INT(first_node(&rig.client)->events_users, 0);
}

TEST(a_waiters_subscription_that_is_temporarily_refused_is_retried) {
    static const char *const errors[] = {
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-ERR max number of clients reached\r\n",
    };
    EACH_CASE (i, errors) {
        hf_op *op = wait_in_queue(60 * HF_SECOND, AT(0));
        hf_session *events = link_of(EVENTS);
        hf_session_closed(events, "reset", AT(10));
        for (int times = 1; times <= 3; times++) {
            CHECK_SENT_AT(EVENTS, hf_time_max(AT(10), events->retry_at), "SUBSCRIBE " DRIVE_GRANTS);
            feed(events, errors[i], events->opened_at + HF_MS);
            rig_serve(events->opened_at + HF_MS), CHECK_STATE(op, WAITING);
            CHECK_EQ_INT(events->opens_since_reply, times);
            CHECK(events->retry_at > events->opened_at + HF_MS);
        }
        CHECK_SENT(CALLS, "");
        CHECK_SENT_AT(EVENTS, events->retry_at, "SUBSCRIBE " DRIVE_GRANTS);
        feed_subscribed(events->opened_at), CHECK_SENT(CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    }
}

TEST(an_acquire_that_has_no_memory_to_join_the_queue_fails_as_no_memory) {
    int failures = 0;
    EACH_FAILURE(nth, 1) {
        hf_op *op = begin_acquire(10 * HF_SECOND, AT(0));
        feed_calls(busy(20000, 0, 0), AT(1));
        sent_over(CALLS);
        memerr_fail(nth);
        feed_subscribed(AT(2));
        memerr_end();
        const char *sent = sent_over(CALLS);
        CHECK(!*sent || strcmp(sent, ASK_OF_K("0", "0", MEMBER("1"))) == 0);
        failures += hf_op_is_done(op) && hf_op_code(op) == HF_NO_MEMORY;
    }
    CHECK(failures > 0);
}

TEST(a_waiter_rechecks_its_lock_at_once_when_the_holders_lease_is_just_expiring) {
    CASES(int ttl_ms, ahead, at_ms) =
        LIST({0, 0, 1}, {1, 0, 2}, {0, 1, 6}, {100, 80, 501}, {100, 90, 501});
    EACH_CASE (i, cases) {
        hf_op *op = begin_acquire(HF_NEVER, AT(0));
        feed_calls(busy(20000, 0, 0), AT(0));
        feed_subscribed(AT(0));
        feed_calls(busy(cases[i].ttl_ms, cases[i].ahead, 0), AT(0));
        CHECK_EQ_U64(hf_op_next_tick(op), AT(cases[i].at_ms));
    }
}

static const char *deaf(int ttl_ms) {
    return busy(ttl_ms, 0, 2);
}

/* Ours, but it could not be notified: the pauses grow with the wait, without a limit of their own.
 */
TEST(a_waiter_rechecks_often_at_first_if_the_holder_could_not_be_notified) {
    hf_op *op = begin_acquire(HF_NEVER, AT(0));
    subscribe_with(deaf(20000), AT(1), AT(2), AT(3)), CHECK_STATE(op, WAITING);
    CHECK(hf_op_next_tick(op) <= AT(3 + 31));
    int longer = 0;
    for (int i = 0; i < 10; i++) {
        feed_message("1 recheck 1", AT(4000 + 10 * i));
        rig_tick(AT(4000 + 10 * i));
        CHECK_ANSWER_STATE(op, deaf(16003 - 10 * i), AT(4000 + 10 * i), WAITING);
        longer += rechecks_at(op) > AT(4000 + 10 * i + 201);
    }
    CHECK(longer > 0);
}

/* Else it would not subscribe again at the node to which its key moves. */
TEST(a_waiter_that_unsubscribes_from_redissons_releases_can_subscribe_again) {
    hf_op *op = wait_in_queue(HF_NEVER, AT(0));
    rig_tick(AT(150)), CHECK(listening_of(op) != HF_SUBSCRIPTION_NONE);
    hf_op_set_listening(op, false, AT(151)), CHECK_EQ_INT(listening_of(op), HF_SUBSCRIPTION_NONE);
    hf_op_set_listening(op, true, AT(152));
}

TEST(a_wait_is_counted_once_in_the_statistics_even_if_its_client_subscribes_again) {
    hf_op *op = wait_in_queue(HF_NEVER, AT(0));
    CHECK_EQ_U64(stats().waits, 1);
    cut_link(EVENTS, "reset", AT(5));
    feed_message("1 recheck 1", AT(6));
    rig_sleep(AT(6), AT(2500));
    feed_calls(busy(20000, 0, 0), AT(2501)), CHECK(!hf_op_is_done(op));
    CHECK_EQ_U64(stats().waits, 1);
}

/* Its holders change faster than it would recheck by then. */
TEST(a_waiter_behind_changing_holders_of_other_libraries_rechecks_often) {
    hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
    subscribe_with(busy(20000, 0, 1), AT(1), AT(2), AT(3));
    hf_time now = AT(3), longest = 0;
    for (int i = 0; i < 20; i++) { /* the same one */
        longest = hf_time_max(longest, rechecks_at(op) - now);
        now = hf_time_max(rechecks_at(op), AT(3 + 100 * (i + 1)));
        rig_sleep(AT(3), now);
        CHECK_ANSWER_STATE(op, busy((int)((AT(20000) - now) / HF_MS), 0, 1), now, WAITING);
    }
    CHECK(longest > 60 * HF_MS && longest <= 201 * HF_MS);
    for (int i = 0; i < 20; i++) {
        now = rechecks_at(op);
        rig_tick(now);
        feed_calls(busy(30000 + 1000 * i, 0, 1), now);
        CHECK(hf_op_next_tick(op) - now <= 31 * HF_MS);
    }
}

TEST(a_waiter_that_receives_a_message_during_its_request_rechecks_afterwards) {
    static const char *const messages[] = {"1 recheck 1", "1 recheck 1 50",
                                           NULL}; /* NULL: it is subscribed again */
    EACH_CASE (i, messages) {
        hf_op *op = wait_in_queue(60 * HF_SECOND, AT(0));
        rig_tick(AT(150));
        hf_time now = rechecks_at(op);
        rig_tick(now), CHECK_STATE(op, ASKING);
        if (messages[i]) feed_message(messages[i], now);
        else impl_of(op)->wait->on_subscribed(op, now);
        feed_calls(busy(20000, 0, 0), now + 5 * HF_MS), CHECK_STATE(op, WAITING);
        CHECK_OR(hf_op_next_tick(op) <= now + 6 * HF_MS, "case %zu", i);
    }
}

TEST(a_waiter_for_another_librarys_mutex_pauses_for_at_most_a_quarter_of_its_wait_so_far) {
    hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
    subscribe_with(busy(-1, 0, 1), AT(1), AT(2), AT(3));
    int long_ones = 0;
    for (hf_time now = rechecks_at(op); now < AT(780); now = rechecks_at(op)) {
        rig_tick(now);
        feed_calls(busy(-1, 0, 1), now);
        hf_time pause = rechecks_at(op) - now, waited = now - AT(0);
        CHECK(pause <= HF_MS + hf_time_max(30 * HF_MS, waited / 4));
        long_ones += pause > HF_MS + hf_time_max(30 * HF_MS, waited / 5);
    }
    CHECK(long_ones > 0);
}

TEST(a_waiter_fails_as_denied_if_its_subscriptions_login_is_refused_but_not_for_lack_of_memory) {
    EACH_FAILURE(nth, 1) {
        RIG_BEGIN(strcpy(config.session.server.password, "secret"));
        hf_session *events = link_of(EVENTS);
        hf_op *op = begin_acquire(10 * HF_SECOND, AT(0));
        feed_calls("+OK\r\n", AT(0));
        feed_calls(busy(5000, 0, 0), AT(1));
        feed(events, "-WRONGPASS no\r\n", AT(2));
        rig_serve(AT(2)), CHECK_ENDS(op, "denied", AT(2));
        rig_tick(AT(3));
        feed_calls(":0\r\n", AT(3));
        op = begin_acquire(10 * HF_SECOND, AT(1000));
        feed_calls(busy(5000, 0, 0), AT(1001)), CHECK_EQ_INT(events->state, HF_SESSION_LOGIN);
        memerr_fail(nth);
        hf_session_feed(events, "+OK\r\n", 5, AT(1002));
        memerr_end();
        rig_serve(AT(1002)), CHECK_OUTCOME(op, "under way");
        rig_end(AT(1003));
    }
}

TEST(a_waiter_needs_messages_while_it_waits_or_subscribes_and_not_during_its_requests) {
    hf_op *op = wait_in_queue(HF_NEVER, AT(0));
    hf_acquire_state before = op_state(op);
    for (int state = 0; state < HF_ACQUIRE_STATES; state++) {
        bool waits = state == HF_ACQUIRE_WAITING || state == HF_ACQUIRE_SUBSCRIBING;
        set_op_state(op, (hf_acquire_state)state);
        CHECK_EQ_INT(impl_of(op)->wait->is_waiting(op), waits);
        set_needs_events(op, false), CHECK(!impl_of(op)->wait->is_waiting(op));
        set_needs_events(op, true);
    }
    set_op_state(op, before);
}

CHECK_MAIN
