#include "op/events.h"
#include "op/operation.h"

#include "rig.h"

#define CHANNEL "redisson_countdownlatch__channel__{k}"
#define CHANGE(program, number)                                                                    \
    "EVALSHA " program " 3 k holdfast_call:{k}:" DRIVE_UUID ":" number " " CHANNEL " 60000 "

static bool names_of(void) {
    hf_names_free(&rig.names);
    if (!hf_names_make_on(&rig.names, hf_slice_of("k"), &hf_kind_latch)) return false;
    hf_names_brace_release_channel(&rig.names, &hf_kind_latch);
    return true;
}

static void latch_begin(void) {
    rig_begin();
    if (!names_of()) abort();
}

RIG_BEGINS_WITH(latch_begin)

static hf_op *begin_on(hf_op_kind kind, uint64_t value, hf_time wait, hf_time now) {
    hf_op *op =
        BEGIN(kind, now, spec.lock_kind = &hf_kind_latch, spec.value = value, spec.wait = wait);
    rig_serve(now);
    return op;
}

static hf_op *begin_latch(hf_op_kind kind, uint64_t value, hf_time now) {
    return begin_on(kind, value, 0, now);
}

static hf_op *begin_wait(hf_time wait, hf_time now) {
    return begin_on(HF_OP_AWAIT, 0, wait, now);
}

#define COUNT(text) "$1\r\n" text "\r\n"
#define NIL "$-1\r\n"

/* Known to be closed since `now` + 3 ms, and subscribed. */
static hf_op *waiting(hf_time wait, hf_time now) {
    hf_op *op = begin_wait(wait, now);
    subscribe_with(COUNT("2"), now + HF_MS, now + 2 * HF_MS, now + 2 * HF_MS);
    feed_event("subscribe", CHANNEL, "2", now + 3 * HF_MS);
    feed_calls(COUNT("2"), now + 3 * HF_MS);
    rig_hush();
    return op;
}

TEST(each_change_of_a_latch_sends_a_call_number_of_its_own) {
    hf_op *op = begin_latch(HF_OP_SET_COUNT, 3, AT(0));
    CHECK_SENT(CALLS, CHANGE("latch_set", "1") "3");
    CHECK_ANSWER(op, ":1\r\n", AT(1), "ok");
    CHECK_EQ_INT(value_of(op), 1);
    op = begin_latch(HF_OP_COUNT_DOWN, 2, AT(2)), CHECK_SENT(CALLS, CHANGE("latch_down", "2") "2");
    feed_calls(":-1\r\n", AT(3)), CHECK_EQ_INT(value_of(op), -1);
    op = begin_latch(HF_OP_DELETE, 0, AT(4)), CHECK_SENT(CALLS, CHANGE("latch_delete", "3") "0");
    CHECK_ANSWER(op, ":0\r\n", AT(5), "ok");
}

/* For that long a proxy may hold the command back, or the client send it again. */
TEST(the_server_remembers_a_latchs_change_for_longer_than_its_command_is_retried) {
    CASES(hf_time timeout; const char *note) = {{3 * HF_SECOND, " 60000 1"},
                                                {15 * HF_SECOND, " 60000 1"},
                                                {16 * HF_SECOND, " 64000 1"},
                                                {40 * HF_SECOND, " 160000 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RIG_BEGIN(config.session.command_timeout = cases[i].timeout);
        if (!names_of()) abort();
        begin_latch(HF_OP_COUNT_DOWN, 1, AT(0));
        const char *sent = sent_over(CALLS);
        CHECK_OR(strstr(sent, cases[i].note), "%s: no%s", sent, cases[i].note);
    }
}

TEST(a_refused_latch_change_reports_that_it_may_have_taken_effect_only_if_sent_twice) {
    for (int copies = 1; copies <= 2; copies++) {
        latch_begin();
        hf_op *op = begin_latch(HF_OP_COUNT_DOWN, 1, AT(0));
        if (copies == 2) cut_link(CALLS, "cut", AT(1));
        rig_sleep(AT(1), AT(500));
        CHECK_ANSWER(op, "-NOPERM no\r\n", AT(501), "denied");
        CHECK_EQ_INT(strstr(message_of(op), "may have taken effect") != NULL, copies == 2);
    }
}

static void check_count(const char *reply, const char *want, long long count) {
    latch_begin();
    hf_op *op = begin_latch(HF_OP_COUNT, 0, AT(0));
    CHECK_SENT(CALLS, "GET k");
    CHECK_ANSWER(op, reply, AT(1), want);
    CHECK_EQ_INT(value_of(op), count);
    op = begin_wait(0, AT(2));
    CHECK_ANSWER(op, reply, AT(3), strcmp(want, "ok") == 0 && count > 0 ? "timeout" : want);
    rig_end(AT(4));
}

TEST(a_latch_is_read_as_a_whole_number_and_as_0_if_its_key_is_missing) {
    check_count(NIL, "ok", 0);
    check_count(COUNT("0"), "ok", 0);
    check_count(COUNT("7"), "ok", 7);
    check_count("$2\r\n10\r\n", "ok", 10);
    check_count("$2\r\n-3\r\n", "ok", -3);
    check_count("$0\r\n\r\n", "conflict", 0);
    check_count("$2\r\n7x\r\n", "conflict", 0);
    check_count(":7\r\n", "conflict", 0);
    check_count("$2\r\n 7\r\n", "conflict", 0);
    check_count("$2\r\n+7\r\n", "conflict", 0);
    check_count("$3\r\n007\r\n", "conflict", 0);
    check_count("$2\r\n-0\r\n", "conflict", 0);
    check_count("$20\r\n18446744073709551623\r\n", "conflict", 0);
    check_count("$19\r\n4611686018427387904\r\n", "conflict", 0);
    check_count("$20\r\n-4611686018427387904\r\n", "conflict", 0);
    check_count("$19\r\n4611686018427387903\r\n", "ok", 4611686018427387903);
    check_count("$20\r\n-4611686018427387903\r\n", "ok", -4611686018427387903);
    check_count("-WRONGTYPE Operation\r\n", "conflict", 0);
}

TEST(a_message_about_a_latch_does_not_end_a_wait_but_makes_it_recheck_the_latch) {
    hf_op *op = waiting(HF_NEVER, AT(0));
    CHECK(impl_of(op)->wait->is_waiting(op));
    feed_event("message", CHANNEL, "0", AT(10)), CHECK(!hf_op_is_done(op));
    CHECK_SENT(CALLS, "GET k"), CHECK(!impl_of(op)->wait->is_waiting(op));
    CHECK_EQ_U64(request_in(op)->deadline, AT(10) + 1800 * HF_SECOND);
    feed_event("message", CHANNEL, "0", AT(11)); /* the reply may be older */
    CHECK_ANSWER_SENDS(COUNT("1"), AT(12), CALLS, "GET k");
    CHECK_ANSWER(op, NIL, AT(13), "ok");
}

TEST(a_wait_for_a_latch_rechecks_the_latch_after_two_seconds_without_a_message) {
    hf_op *op = waiting(HF_NEVER, AT(0));
    CHECK_SENT_UNTIL(CALLS, AT(4), AT(1700), "");
    CHECK_SENT_UNTIL(CALLS, AT(1700), AT(2003), "GET k");
    CHECK_EQ_U64(stats().rechecks, 1);
    CHECK_ANSWER(op, NIL, AT(2010), "ok");
}

TEST(a_wait_for_a_latch_rechecks_the_latch_when_the_wait_ends) {
    hf_op *op = waiting(500 * HF_MS, AT(0));
    CHECK_SENT_UNTIL(CALLS, AT(4), AT(499), "");
    CHECK_SENT_UNTIL(CALLS, AT(499), AT(501), "GET k");
    CHECK(!hf_op_is_done(op));
    CHECK_EQ_U64(stats().rechecks, 0); /* it is the last attempt */
    CHECK_ANSWER(op, COUNT("2"), AT(502), "timeout");
    CHECK_STR(message_of(op),
              "cannot wait for \"k\" on h:1: its count is still 2; wait longer or try again later");
    op = waiting(500 * HF_MS, AT(1000));
    rig_sleep(AT(1004), AT(1501));
    CHECK_ANSWER(op, NIL, AT(1502), "ok");
}

TEST(a_wait_for_a_latch_whose_reply_arrives_late_rechecks_the_latch_when_the_wait_ends) {
    hf_op *op = begin_wait(50 * HF_MS, AT(0));
    sent_over(CALLS);
    CHECK_ANSWER_SENDS(COUNT("2"), AT(50), CALLS, "GET k"); /* just as it ends */
    CHECK_ANSWER(op, NIL, AT(51), "ok");
    op = begin_wait(50 * HF_MS, AT(100));
    feed_calls(COUNT("2"), AT(160));
    CHECK_ANSWER(op, COUNT("2"), AT(161), "timeout");
}

TEST(a_signal_ends_a_wait_for_a_latch_at_once_or_when_the_reply_in_flight_arrives) {
    hf_op *op = waiting(HF_NEVER, AT(0));
    CHECK_INTERRUPTS(op, AT(10));
    static const struct {
        const char *reply, *want;
    } looks[] = {{COUNT("2"), "interrupted"}, {NIL, "ok"}, {"-NOPERM no\r\n", "denied"}};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        op = begin_wait(HF_NEVER, AT(20));
        hf_op_interrupt(op, AT(21));
        rig_tick(AT(21)), CHECK(!hf_op_is_done(op));
        CHECK_ANSWER(op, looks[i].reply, AT(22), looks[i].want);
    }
    op = begin_wait(HF_NEVER, AT(30));
    hf_op_interrupt(op, AT(31));
    CHECK_SLEEP(op, AT(31), AT(140), "interrupted");
}

TEST(a_wait_for_a_latch_fails_if_its_clients_own_channel_is_refused) {
    hf_op *op = begin_wait(HF_NEVER, AT(0));
    feed_calls(COUNT("2"), AT(1));
    feed(link_of(EVENTS), "-NOPERM this user has no permissions\r\n", AT(2));
    CHECK_OUTCOME(op, "denied");
    CHECK_EQ_INT(first_node(&rig.client)->events_users, 0);
}

TEST(a_latchs_subscription_remains_until_its_last_waiter_has_ended) {
    hf_op *first = waiting(HF_NEVER, AT(0)), *second = begin_wait(HF_NEVER, AT(10));
    CHECK_ANSWER_SENDS(COUNT("2"), AT(11), EVENTS, "");
    feed_calls(COUNT("2"), AT(12)); /* it asks again after the subscription all the same */
    hf_op_end(first, AT(13)), CHECK_SENT(EVENTS, "");
    sent_over(CALLS);
    feed_event("message", CHANNEL, "0", AT(14)), CHECK_SENT(CALLS, "GET k");
    CHECK_ANSWER(second, NIL, AT(15), "ok");
}

/* One operation with a new client; the latch opens at the third question. */
static bool carry_out(void *context) {
    const hf_op_kind *kind = context;
    rig_begin();
    bool waits = *kind == HF_OP_AWAIT;
    hf_op *op = names_of() ? begin_on(*kind, 1, 3 * HF_SECOND, AT(10)) : NULL;
    const char *reply = waits ? COUNT("2") : *kind == HF_OP_COUNT ? NIL : ":1\r\n";
    bool good = carry_through(op, reply, waits ? NIL : reply, waits);
    rig_end(AT(9000));
    return good;
}

TEST(a_call_on_a_latch_reports_a_failed_allocation) {
    static hf_op_kind kinds[] = {HF_OP_SET_COUNT, HF_OP_COUNT_DOWN, HF_OP_DELETE, HF_OP_COUNT,
                                 HF_OP_AWAIT};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        CHECK(memerr_until_success(carry_out, &kinds[i], 100) > 4);
}

TEST(a_key_with_braces_has_a_channel_with_braces_but_not_in_a_cluster) {
    static const struct {
        hf_mode mode;
        const hf_kind *kind;
        const char *channel;
    } cases[] = {
        {HF_MODE_ONE, &hf_kind_latch, "redisson_countdownlatch__channel__{{k}1}"},
        {HF_MODE_CLUSTER, &hf_kind_latch, "redisson_countdownlatch__channel__{k}1"},
        {HF_MODE_ONE, &hf_kind_lock, "redisson_lock__channel:{k}1"},
    };
    static const hf_server server = {.host = "h", .port = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RIG_BEGIN(config.mode = cases[i].mode, config.servers = &server, config.server_count = 1);
        hf_names *names = hf_client_names(&rig.client, cases[i].kind, hf_slice_of("{k}1"));
        CHECK_MEM(names->releases.data, names->releases.size, cases[i].channel,
                  strlen(cases[i].channel));
        hf_names_delete(names);
    }
}

TEST(a_call_on_a_latch_that_runs_out_of_memory_fails_as_no_memory) {
    static const hf_op_kind kinds[] = {HF_OP_SET_COUNT, HF_OP_COUNT_DOWN, HF_OP_DELETE,
                                       HF_OP_COUNT};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        EACH_FAILURE(nth, 1) {
            open_session(link_of(CALLS), AT(0));
            memerr_fail(1 + nth);
            hf_op *op = begin_latch(kinds[i], 1, AT(0));
            CHECK_OUTCOME(op, memerr_end() ? "no_memory" : "under way");
        }
    }
}

TEST(a_wait_for_a_latch_is_counted_once_and_as_waiting_only_until_it_is_abandoned) {
    hf_op *op = waiting(HF_NEVER, AT(0));
    CHECK_EQ_U64(stats().waits, 1);
    CHECK_EQ_INT(first_node(&rig.client)->events_users, 1);
    hf_op_abandon(op, AT(10)), CHECK(!hf_op_awaits_reply(op));
    CHECK_EQ_INT(first_node(&rig.client)->events_users, 0);
}

/* So that clients which began together do not recheck together. */
TEST(after_a_latchs_message_its_waiters_next_rechecks_are_spread_over_200_ms) {
    int first = 2000, last = 0;
    hf_op *op = waiting(HF_NEVER, AT(0));
    for (int i = 1; i <= 200; i++) {
        hf_time now = AT(10 * i);
        feed_event("message", CHANNEL, "0", now);
        feed_calls(COUNT("2"), now);
        int after = (int)((hf_op_next_tick(op) - now) / HF_MS);
        CHECK(after >= 1800 && after <= 2000);
        first = after < first ? after : first;
        last = after > last ? after : last;
    }
    CHECK_OR(first < 1805 && last > 1995, "%d to %d ms", first, last);
}

/* A quarter of the time that it has waited, within bounds. */
TEST(a_wait_for_a_latch_without_its_channel_polls_less_and_less_often) {
    CASES(int ms, after_ms) = {{40, 30}, {120, 30}, {200, 50}, {600, 150}, {800, 200}, {5000, 200}};
    EACH_CASE (i, cases) {
        hf_op *op = begin_wait(HF_NEVER, AT(0));
        subscribe_with(COUNT("2"), AT(1), AT(2), AT(cases[i].ms));
        hf_time most = AT(cases[i].ms + cases[i].after_ms);
        CHECK(hf_op_next_tick(op) <= most);
        CHECK(hf_op_next_tick(op) >= most - (hf_time)cases[i].after_ms * HF_MS / 10);
    }
}

TEST(a_wait_for_a_latch_outlasts_an_outage_that_begins_during_it) {
    hf_op *op = waiting(HF_NEVER, AT(0));
    cut_link(CALLS, "gone", AT(10));
    rig.refusing = true;
    CHECK_SLEEP(op, AT(10), AT(60000), "under way");
    rig.refusing = false;
    CHECK_SENT_UNTIL(CALLS, AT(60000), AT(61200), "GET k");
    CHECK_ANSWER(op, NIL, AT(61201), "ok");
}

TEST(a_wait_for_a_latch_that_runs_out_of_memory_for_a_recheck_fails) {
    hf_op *op = waiting(HF_NEVER, AT(0));
    rig_tick(AT(1000));
    memerr_fail(1);
    impl_of(op)->wait->on_recheck(op, 0, AT(1000)), CHECK(memerr_failed());
    memerr_fail(0), CHECK_OUTCOME(op, "no_memory");
    CHECK_EQ_INT(first_node(&rig.client)->events_users, 0);
    CHECK(!hf_op_awaits_reply(op));
}

CHECK_MAIN
