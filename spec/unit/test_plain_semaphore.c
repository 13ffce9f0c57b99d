#include "op/events.h"
#include "op/operation.h"

#include "rig.h"

#define CHANNEL "redisson_sc:{k}"
#define CHANNELS CHANNEL " " CHANNEL ":holdfast"
#define NOTE(number) "holdfast_call:{k}:" DRIVE_UUID ":" number
#define CALL(program, number) "EVALSHA " program " 3 k " NOTE(number) " " CHANNEL " 3600000 "
#define FORGET(number) "DEL " NOTE(number) "\n"

#define HAS_TAKEN(left) "*2\r\n:1\r\n:" left "\r\n"
#define TOO_FEW(free) "*2\r\n:0\r\n:" free "\r\n"
#define THEIR_TURN(free) "*3\r\n:0\r\n:" free "\r\n:70\r\n"

static bool names_of(void) {
    hf_names_free(&rig.names);
    return hf_names_make_on(&rig.names, hf_slice_of("k"), &hf_kind_plain_semaphore);
}

static void semaphore_begin(void) {
    rig_begin();
    if (!names_of()) abort();
}

RIG_BEGINS_WITH(semaphore_begin)

static hf_op *begin_on(hf_op_kind kind, int64_t value, hf_time wait, hf_time now) {
    hf_op_spec spec = spec_of(kind);
    spec.lock_kind = &hf_kind_plain_semaphore;
    spec.value = (uint64_t)value;
    spec.wait = wait;
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    rig_serve(now);
    return op;
}

static hf_op *take(int64_t count, hf_time wait, hf_time now) {
    return begin_on(HF_OP_TAKE, count, wait, now);
}

static hf_op *give(int64_t count, hf_time now) {
    return begin_on(HF_OP_GIVE, count, 0, now);
}

/* Its caller has the result. */
static void end(hf_op *op, hf_time now) {
    hf_result result;
    hf_op_take_result(op, &result);
    hf_op_end(op, now);
}

/* Known to wait since `now` + 3 ms, and subscribed. */
static hf_op *waiting(int64_t count, hf_time now) {
    hf_op *op = take(count, HF_NEVER, now);
    subscribe_with(TOO_FEW("0"), now + HF_MS, now + 2 * HF_MS, now + 2 * HF_MS);
    feed_event("subscribe", CHANNEL, "2", now + 3 * HF_MS);
    feed_calls(TOO_FEW("0"), now + 3 * HF_MS);
    rig_hush();
    return op;
}

/* One more, while another is subscribed. */
static hf_op *also_waiting(int64_t count, hf_time now) {
    hf_op *op = take(count, HF_NEVER, now);
    feed_calls(TOO_FEW("0"), now);
    rig_hush();
    return op;
}

static void feed_release(hf_time now) {
    feed_event("message", CHANNEL, "1", now);
}

TEST(each_call_makes_the_server_remember_it_until_the_same_clients_next_call) {
    hf_op *op = take(2, 0, AT(0));
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "2");
    CHECK_ANSWER(op, HAS_TAKEN("1"), AT(1), "ok");
    end(op, AT(1)), CHECK_SILENT();
    op = give(3, AT(2)), CHECK_SENT(CALLS, FORGET("1") CALL("semaphore_release", "2") "3");
    CHECK_ANSWER(op, ":1\r\n:4\r\n", AT(3), "ok");
    CHECK_EQ_INT(value_of(op), 4);
    end(op, AT(3));
    op = give(-2, AT(4)), CHECK_SENT(CALLS, FORGET("2") CALL("semaphore_release", "3") "-2");
    feed_calls(":1\r\n:-1\r\n", AT(5)), CHECK_EQ_INT(value_of(op), -1);
    end(op, AT(5));
    op = begin_on(HF_OP_DRAIN, 0, 0, AT(6));
    CHECK_SENT(CALLS, FORGET("3") CALL("semaphore_drain", "4") "0");
    feed_calls(":1\r\n:5\r\n", AT(7)), CHECK_EQ_INT(value_of(op), 5);
    end(op, AT(7)), CHECK(is_quiet());
}

/* What the renewer sends, and that it is done with it then. */
static void check_settled(const char *want, const char *reply, hf_time now) {
    CHECK_SENT_UNTIL(CALLS, now, now + 900 * HF_MS, want);
    CHECK(!is_quiet());
    feed_calls(reply, now + 901 * HF_MS), CHECK(is_quiet());
    CHECK_SENT_UNTIL(CALLS, now + 901 * HF_MS, now + 9000 * HF_MS, "");
}

TEST(a_plain_semaphores_acquire_or_drain_without_a_reply_returns_the_permits_in_the_background) {
    EACH_NUMBER (drains, 2) {
        hf_op *op = drains ? begin_on(HF_OP_DRAIN, 0, 0, AT(0)) : take(2, HF_SECOND, AT(0));
        hf_time over = drains ? AT(3100) : AT(1100);
        cut_link(CALLS, "cut", AT(1));
        rig.refusing = true;
        CHECK_SLEEP(op, AT(1), over, "unreachable");
        end(op, over);
        rig.refusing = false;
        check_settled(CALL("semaphore_leave", "1") "0", ":1\r\n", over);
    }
}

TEST(a_busy_acquire_of_permits_whose_first_copy_may_arrive_late_is_undone) {
    hf_op *op = take(2, 0, AT(0));
    sent_over(CALLS);
    cut_link(CALLS, "cut", AT(1));
    rig_sleep(AT(1), AT(500));
    sent_over(CALLS);
    CHECK_ANSWER(op, TOO_FEW("1"), AT(501), "busy");
    CHECK_STR(message_of(op),
              "cannot acquire \"k\" on h:1: too few permits are free (1 of the 2 requested); "
              "wait longer or try again later");
    check_settled(CALL("semaphore_leave", "1") "0", ":0\r\n", AT(501));
}

TEST(an_acquire_whose_first_copy_may_arrive_late_is_still_undone_after_a_recheck) {
    hf_op *op = take(2, HF_NEVER, AT(0));
    sent_over(CALLS);
    cut_link(CALLS, "cut", AT(1));
    rig_sleep(AT(1), AT(500));
    feed_calls(TOO_FEW("1"), AT(501)); /* to the second of two copies */
    feed_subscribed(AT(502));
    feed_calls(TOO_FEW("1"), AT(503));
    feed_event("subscribe", CHANNEL, "2", AT(504));
    feed_calls(TOO_FEW("1"), AT(505));
    rig_hush();
    hf_op_end(op, AT(506));
    check_settled(CALL("semaphore_leave", "1") "0", ":0\r\n", AT(506));
}

TEST(permits_taken_by_an_abandoned_call_are_released) {
    hf_op *op = take(2, 0, AT(0));
    sent_over(CALLS);
    feed_calls(HAS_TAKEN("1"), AT(1));
    hf_op_end(op, AT(2));
    check_settled(CALL("semaphore_leave", "1") "0", ":1\r\n", AT(2));
    op = begin_on(HF_OP_DRAIN, 0, 0, AT(10000));
    sent_over(CALLS);
    feed_calls(":3\r\n", AT(10001));
    hf_op_end(op, AT(10002));
    check_settled(CALL("semaphore_leave", "2") "0", ":1\r\n", AT(10002));
}

/* Its caller counts on it, although nothing has been sent yet. */
TEST(a_release_of_permits_abandoned_before_it_was_sent_is_finished_in_the_background) {
    hf_op_spec spec = spec_of(HF_OP_GIVE);
    spec.lock_kind = &hf_kind_plain_semaphore;
    spec.value = 2;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
    CHECK_EQ_INT(request_in(op)->possible_runs, 0);
    hf_op_end(op, AT(1));
    check_settled(CALL("semaphore_release", "1") "2", ":2\r\n", AT(1));
}

TEST(a_call_without_a_reply_is_retried_in_the_background_for_half_an_hour) {
    hf_op *op = give(1, AT(0));
    rig.refusing = true;
    cut_link(CALLS, "cut", AT(1));
    rig_sleep(AT(1), AT(4000));
    end(op, AT(4000));
    rig_sleep(AT(4000), AT(1795 * 1000)), CHECK(!is_quiet());
    rig_sleep(AT(1795 * 1000), AT(1810 * 1000)), CHECK(is_quiet());
}

TEST(a_release_of_permits_that_the_server_refuses_is_not_retried) {
    hf_op *op = give(1, AT(0));
    CHECK_ANSWER(op, "-WRONGTYPE Operation\r\n", AT(1), "conflict");
    end(op, AT(1)), CHECK(is_quiet());
}

TEST(a_waiter_for_permits_retries_once_it_is_subscribed_and_at_each_message) {
    hf_op *op = take(1, HF_NEVER, AT(0));
    sent_over(CALLS);
    CHECK_ANSWER_SENDS(TOO_FEW("0"), AT(1), EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    feed_subscribed(AT(2)), CHECK_SENT(EVENTS, "SUBSCRIBE " CHANNELS);
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "1");
    feed_calls(TOO_FEW("0"), AT(3));
    feed_event("subscribe", CHANNEL, "2", AT(4));
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "1");
    CHECK_ANSWER_SENDS(TOO_FEW("0"), AT(5), CALLS, "");
    feed_release(AT(6)), CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "1");
    feed_release(AT(7)); /* the reply may be older */
    CHECK_ANSWER_SENDS(TOO_FEW("0"), AT(8), CALLS, CALL("semaphore_acquire", "1") "1");
    CHECK_ANSWER(op, HAS_TAKEN("0"), AT(9), "ok");
    CHECK_SENT(EVENTS, "UNSUBSCRIBE " CHANNELS);
}

TEST(waiters_for_permits_send_their_requests_one_after_the_other_while_permits_are_free) {
    hf_op *first = waiting(1, AT(0)), *second = also_waiting(1, AT(10)),
          *third = also_waiting(1, AT(20));
    feed_release(AT(30)), CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "1");
    CHECK_ANSWER(first, HAS_TAKEN("1"), AT(31), "ok");
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "2") "1");
    CHECK_ANSWER(second, HAS_TAKEN("0"), AT(32), "ok");
    CHECK_SENT(CALLS, "");
    CHECK(!hf_op_is_done(third));
    end(first, AT(33));
    end(second, AT(33));
    feed_release(AT(34));
    CHECK_SENT(CALLS, FORGET("1") FORGET("2") CALL("semaphore_acquire", "3") "1");
    CHECK_ANSWER(third, ":1\r\n:1\r\n" HAS_TAKEN("0"), AT(35), "ok");
}

/* Sends nothing at `from`, and asks 1 ms after a turn of this length. */
static void check_asks_after_turn(hf_time from, hf_time turn) {
    CHECK_SENT_UNTIL(CALLS, from, from + turn, "");
    rig_sleep(from + turn, from + turn + 2 * HF_MS);
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "1");
}

TEST(a_waiter_for_permits_retries_when_a_permits_reservation_for_redisson_ends) {
    hf_op *op = waiting(1, AT(0));
    feed_event("message", CHANNEL, "01", AT(100));
    check_asks_after_turn(AT(100), 50 * HF_MS);
    feed_calls(THEIR_TURN("0"), AT(160)); /* their turn is longer than others */
    check_asks_after_turn(AT(160), 70 * HF_MS);
    feed_calls(TOO_FEW("0"), AT(232));
    rig_sleep(AT(232), AT(400)); /* the turn is over */
    CHECK_SENT(CALLS, "");
    CHECK(!hf_op_is_done(op));
}

TEST(a_waiter_retries_if_permits_are_free_besides_the_one_reserved_for_redisson) {
    waiting(1, AT(0));
    feed_event("message", CHANNEL, "02", AT(100));
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "1");
}

TEST(the_next_waiter_retries_when_one_is_interrupted_while_a_permit_is_reserved_for_redisson) {
    hf_op *first = waiting(1, AT(0));
    also_waiting(1, AT(10));
    feed_event("message", CHANNEL, "01", AT(100)), CHECK_SENT(CALLS, "");
    CHECK_INTERRUPTS(first, AT(101));
    rig_serve(AT(101)), CHECK_SENT(CALLS, CALL("semaphore_acquire", "2") "1");
}

TEST(a_release_by_a_redisson_client_ends_the_reservation_for_redisson) {
    waiting(1, AT(0));
    feed_event("message", CHANNEL, "01", AT(100));
    feed_release(AT(102)), CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "1 1");
    feed_calls(TOO_FEW("0"), AT(103));
    feed_release(AT(104)); /* the turn has ended already */
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "1");
}

/* It has ended, but its caller has not come for it yet. */
TEST(a_waiter_that_has_given_up_does_not_block_those_behind_it) {
    hf_op *first = waiting(2, AT(0)), *second = also_waiting(1, AT(10));
    hf_op *third = also_waiting(1, AT(20));
    CHECK_INTERRUPTS(second, AT(30));
    feed_release(AT(40)), CHECK(is_asking(first));
    feed_calls("*2\r\n:0\r\n:1\r\n", AT(41)), CHECK(is_asking(third));
}

TEST(if_a_waiter_for_permits_is_abandoned_before_its_reply_the_next_one_sends_its_request) {
    hf_op *first = waiting(1, AT(0)), *second = also_waiting(1, AT(10));
    feed_release(AT(20));
    rig_hush();
    hf_op_end(first, AT(21));
    rig_tick(AT(21));
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "2") "1\n" CALL("semaphore_leave", "1") "0");
    feed_calls(HAS_TAKEN("0") TOO_FEW("0") ":1\r\n", AT(22));
    feed_release(AT(23));
    CHECK_ANSWER(second, HAS_TAKEN("0"), AT(24), "ok");
}

TEST(a_message_received_during_a_waiters_first_attempt_makes_it_retry) {
    hf_op *first = waiting(1, AT(0)), *second = take(1, HF_NEVER, AT(10));
    rig_hush();
    feed_release(AT(11)), CHECK_SENT(CALLS, CALL("semaphore_acquire", "1") "1");
    feed_calls(TOO_FEW("0"), AT(12)); /* the second's, which ran before the release */
    CHECK_ANSWER(first, HAS_TAKEN("1"), AT(13), "ok");
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "2") "1");
    CHECK_ANSWER(second, HAS_TAKEN("0"), AT(14), "ok");
}

TEST(a_wait_for_permits_that_times_out_makes_a_last_attempt_and_an_interrupted_one_does_not) {
    hf_op *op = take(1, 50 * HF_MS, AT(0));
    feed_calls(TOO_FEW("0"), AT(60)), CHECK(!hf_op_is_done(op));
    CHECK_ANSWER(op, TOO_FEW("0"), AT(61), "busy");
    op = waiting(1, AT(100));
    CHECK_INTERRUPTS(op, AT(110));
    CHECK(is_quiet());
    op = take(1, HF_NEVER, AT(120));
    hf_op_interrupt(op, AT(121));
    CHECK_SLEEP(op, AT(121), AT(240), "interrupted");
    CHECK(!is_quiet());
}

TEST(closing_a_client_makes_the_server_forget_its_last_call) {
    hf_op *op = take(2, 0, AT(0));
    sent_over(CALLS);
    feed_calls(HAS_TAKEN("1"), AT(1));
    end(op, AT(1));
    close_rig(AT(2)), CHECK_SENT(CALLS, "DEL " NOTE("1")), CHECK(is_quiet());
}

/* One operation with a new client; the permits are there at the third question. */
static bool carry_out(void *context) {
    const hf_op_kind *kind = context;
    rig_begin();
    bool waits = *kind == HF_OP_TAKE;
    hf_op *op = names_of() ? begin_on(*kind, 1, 3 * HF_SECOND, AT(10)) : NULL;
    bool good = waits ? carry_through(op, TOO_FEW("0"), HAS_TAKEN("0"), true)
                      : carry_through(op, ":1\r\n", ":1\r\n", false);
    if (op) end(op, AT(9000));
    rig_end(AT(9000));
    return good;
}

TEST(calls_on_a_plain_semaphore_report_a_failed_allocation) {
    static hf_op_kind kinds[] = {HF_OP_TAKE, HF_OP_GIVE, HF_OP_DRAIN};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        CHECK(memerr_until_success(carry_out, &kinds[i], 100) > 4);
}

TEST(a_busy_message_says_how_many_permits_are_free) {
    CASES(const char *reply, *free) = {{TOO_FEW("1"), "(1 of the 2 req"},
                                       {TOO_FEW("0"), "(0 of the 2 req"},
                                       {TOO_FEW("-3"), "(0 of the 2 req"},
                                       {"*1\r\n:0\r\n", "(0 of the 2 req"},
                                       {"*0\r\n", "(0 of the 2 req"}};
    EACH_CASE (i, cases) {
        hf_op *op = take(2, 0, AT(0));
        CHECK_ANSWER(op, cases[i].reply, AT(1), "busy");
        CHECK_MESSAGE(op, cases[i].free);
    }
}

TEST(a_call_that_is_sent_again_never_makes_the_server_forget_itself) {
    CASES(hf_op_kind kind; const char *reply) = {
        {HF_OP_TAKE, HAS_TAKEN("1")}, {HF_OP_GIVE, ":1\r\n"}, {HF_OP_DRAIN, ":1\r\n"}};
    EACH_CASE (i, cases) {
        hf_op *op = begin_on(cases[i].kind, 1, 0, AT(0));
        cut_link(CALLS, "cut", AT(1));
        rig_sleep(AT(1), AT(500));
        CHECK_ANSWER(op, cases[i].reply, AT(501), "ok");
        end(op, AT(501));
        rig_hush();
        give(1, AT(502)), CHECK_SENT(CALLS, CALL("semaphore_release", "2") "1");
    }
}

TEST(an_abandoned_semaphore_calls_reply_is_ignored) {
    static const hf_op_kind kinds[] = {HF_OP_TAKE, HF_OP_GIVE, HF_OP_DRAIN};
    EACH_CASE (i, kinds) {
        hf_op *op = begin_on(kinds[i], 1, 0, AT(0));
        hf_op_abandon(op, AT(1));
        CHECK_ANSWER(op, kinds[i] == HF_OP_TAKE ? HAS_TAKEN("0") : ":1\r\n", AT(2), "interrupted");
    }
}

/* The waiters of one semaphore ask one after the other, whatever else waits. */
TEST(a_waiter_for_one_semaphore_does_not_delay_those_for_another) {
    hf_names other = {0};
    if (!hf_names_make_on(&other, hf_slice_of("j"), &hf_kind_plain_semaphore)) abort();
    hf_op *first = waiting(1, AT(0));
    spec_in(first)->names = &other; /* as if it had asked for that one */
    hf_op *second = take(1, HF_NEVER, AT(10));
    feed_calls(TOO_FEW("0"), AT(11));
    rig_hush();
    feed_event("subscribe", CHANNEL, "3", AT(12));
    CHECK_SENT(CALLS, CALL("semaphore_acquire", "2") "1");
    CHECK_ANSWER(second, HAS_TAKEN("1"), AT(13), "ok");
    CHECK_SENT(CALLS, ""); /* the permits that are left are not for the other */
    rig_end(AT(14));
    hf_names_free(&other);
}

TEST(a_release_of_permits_to_an_unreachable_server_is_retried_in_the_background) {
    rig.refusing = true;
    hf_op *op = give(2, AT(0));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_MESSAGE(op, "continues in the background");
    end(op, AT(1));
    rig.refusing = false;
    check_settled(CALL("semaphore_release", "1") "2", ":3\r\n", AT(1));
}

TEST(a_release_of_permits_is_retried_if_a_resent_copy_of_it_is_refused) {
    hf_op *op = give(2, AT(0));
    cut_link(CALLS, "cut", AT(1));
    rig_sleep(AT(1), AT(500));
    rig_hush();
    CHECK_ANSWER(op, "-ERR no\r\n", AT(501), "server");
    CHECK_MESSAGE(op, "continues in the background");
    end(op, AT(502));
    check_settled(CALL("semaphore_release", "1") "2", ":3\r\n", AT(502));
}

/* Calls one after the other, whose callers take the results later, all at once: the notes that the
 * next call deletes need room for that many replies. */
TEST(the_next_call_makes_the_server_forget_many_calls_that_have_ended) {
    enum { MANY = 60 };
    hf_op *ops[MANY];
    for (int i = 0; i < MANY; i++) {
        ops[i] = give(1, AT(i));
        CHECK_ANSWER(ops[i], ":1\r\n", AT(i), "ok");
    }
    for (int i = 0; i < MANY; i++) end(ops[i], AT(100));
    hf_op *op = give(1, AT(101));
    for (int i = 0; i < MANY; i++) feed_calls(":1\r\n", AT(102));
    CHECK(!hf_op_is_done(op));
    CHECK_ANSWER(op, ":7\r\n", AT(102), "ok");
    CHECK_EQ_INT(value_of(op), 7);
    end(op, AT(103));
}

CHECK_MAIN
