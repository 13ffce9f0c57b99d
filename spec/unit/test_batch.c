#include "op/events.h"
#include "op/operation.h"

#include "op/leave.h"
#include "rig.h"

#define COUNT 3

static hf_names names[COUNT];
static const hf_names *all[COUNT];

static void finish(void) {
    rig_after();
    for (size_t i = 0; i < COUNT; i++) hf_names_free(&names[i]);
}

static void start(void) {
    static const char *const keys[COUNT] = {"a", "b", "c"};
    finish();
    rig_begin();
    for (size_t i = 0; i < COUNT; i++) {
        if (!hf_names_make(&names[i], hf_slice_of(keys[i]))) abort();
        all[i] = &names[i];
    }
}

CHECK_AROUND(start, finish)

/* A call on all locks that differs from the usual one by these assignments to `spec`. */
#define BEGIN_ALL(kind, now, ...)                                                                  \
    BEGIN(kind, now, spec.names = NULL, spec.batch = all, spec.batch_count = COUNT, __VA_ARGS__)

static hf_op *begin_all(hf_op_kind kind, hf_time now) {
    return BEGIN_ALL(kind, now, spec.wait = 0);
}

static hf_op *begin_one(hf_op_kind kind, size_t i, hf_time now) {
    return BEGIN(kind, now, spec.names = &names[i]);
}

static hf_hold *hold_at(size_t i) {
    return hf_holds_find(holds_of(&rig.client), &hf_kind_lock, names[i].key, hf_slice_of("me"));
}

static hf_claim *leaving_at(size_t i) {
    return hf_holds_find_leaving(holds_of(&rig.client), &hf_kind_lock, names[i].key,
                                 hf_slice_of("me"));
}

static int state_at(size_t i) {
    if (hold_at(i)) return hold_state(hold_at(i));
    return leaving_at(i) ? CLEANING_UP : -1;
}

/* A letter for each lock: held, lost, being cleaned up, or none. */
static const char *states(void) {
    static char text[COUNT + 1];
    for (size_t i = 0; i < COUNT; i++) {
        int state = state_at(i);
        text[i] = state == HF_HOLD_HELD   ? 'h'
                  : state == HF_HOLD_LOST ? 'l'
                  : state == CLEANING_UP  ? 'c'
                  : state == -1           ? '-'
                                          : '?';
    }
    return text;
}

#define CHECK_STATES(want) CHECK_STR(states(), want)

/* The outcome of a call on all locks that begins at `now` and gets this reply. */
#define CHECK_CALL(kind, now, reply, then, want)                                                   \
    (called = begin_all(kind, now), CHECK_ANSWER(called, reply, then, want))

static hf_op *called;

#define THEIR_KEYS                                                                                 \
    "12 a redisson_lock_token:{a} holdfast_queue:{a} redisson_lock__channel:{a} "                  \
    "b redisson_lock_token:{b} holdfast_queue:{b} redisson_lock__channel:{b} "                     \
    "c redisson_lock_token:{c} holdfast_queue:{c} redisson_lock__channel:{c}  2000 "
#define ALL_ACQUIRED "*4\r\n:1\r\n:11\r\n:12\r\n:13\r\n"

static void hold_all(hf_time now) {
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, now);
    sent_over(CALLS);
    end_with(op, ALL_ACQUIRED, now);
}

TEST(a_multi_locks_lease_ends_with_the_earliest_max_hold_of_its_locks) {
    end_with(BEGIN(HF_OP_ACQUIRE, AT(0), spec.names = &names[1], spec.max_hold = 40 * HF_SECOND),
             ACQUIRED, AT(1));
    set_end(hold_at(1), AT(40000)); /* as after renewals */
    hf_holds_set_wake_at(holds_of(&rig.client), claim_of(hold_at(1)), AT(40000));
    sent_over(CALLS);
    hf_op *op = BEGIN_ALL(HF_OP_ACQUIRE_ALL, AT(20000), spec.max_hold = 60 * HF_SECOND);
    CHECK_SENT(CALLS, "EVALSHA acquire_all " THEIR_KEYS "20000 1000 me 0 me 1 me 0");
    CHECK_ANSWER(op, ALL_ACQUIRED, AT(20001), "ok");
    for (size_t i = 0; i < COUNT; i++)
        CHECK_EQ_U64(bound_of(hold_at(i)), AT(i == 1 ? 40000 : 80000));
    CHECK_EQ_U64(ends_at(hold_at(0)), hf_lease_end(AT(20000), 20 * HF_SECOND));
}

TEST(the_message_of_a_busy_multi_lock_names_the_lock_that_another_owner_holds) {
    EACH_NUMBER (i, COUNT) {
        hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
        CHECK_ANSWER(op, printed("*3\r\n:0\r\n:%d\r\n:500\r\n", i + 1), AT(1), "busy");
        CHECK_MESSAGE(op, printed("\"%.*s\"", (int)names[i].key.size, names[i].key.data));
        CHECK_EQ_INT(holds_left(), 0);
    }
}

TEST(a_multi_lock_that_fails_with_conflict_names_the_lock_of_a_different_kind) {
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    CHECK_ANSWER(op, "*3\r\n:-6\r\n:2\r\n$5\r\nguard\r\n", AT(1), "conflict");
    CHECK_OR(strstr(message_of(op), "\"b\"") && strstr(message_of(op), "a guard"), "%s",
             message_of(op));
    CHECK_EQ_INT(holds_left(), 0);
}

TEST(a_multi_lock_acquire_whose_reply_arrives_after_the_lease_is_reported_as_lost) {
    CHECK_CALL(HF_OP_ACQUIRE_ALL, AT(0), ALL_ACQUIRED, AT(29698), "lost");
    CHECK_STATES("ccc");
}

TEST(a_multi_lock_acquire_of_unknown_outcome_is_undone) {
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    CHECK_SLEEP(op, AT(0), AT(3000), "unreachable");
    CHECK_STATES("ccc");
    start();
    op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    cut_link(CALLS, "reset", AT(1));
    rig_tick(AT(50));
    feed_calls("-NOPERM no\r\n", AT(51)); /* says nothing about the first copy */
    CHECK_OUTCOME(op, "denied");
    CHECK_STATES("ccc");
}

TEST(a_multi_lock_acquire_that_fails_with_an_error_needs_no_clean_up) {
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    feed_calls("-NOSCRIPT\r\n", AT(1));
    CHECK_ANSWER(op, "-ERR no\r\n", AT(2), "server");
    CHECK_EQ_INT(holds_left(), 0);
}

TEST(a_multi_lock_acquire_with_a_malformed_reply_fails_with_a_server_error_and_is_undone) {
    static const char *const replies[] = {"+OK\r\n", "*0\r\n", "*2\r\n:7\r\n:1\r\n",
                                          "*2\r\n:-3\r\n:9\r\n"};
    EACH_CASE (i, replies) {
        hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
        CHECK_ANSWER(op, replies[i], AT(1), "server");
        CHECK_STATES("ccc");
    }
    start();
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    feed_calls("*2\r\n:-1\r\n:99\r\n", AT(1)); /* no such lock */
    CHECK(hf_op_is_done(op));
}

/* An extend that got no answer may be carried out behind it. */
TEST(a_multi_lock_relies_on_no_lease_longer_than_that_of_an_extend_that_may_still_run) {
    CASES(hf_op_kind kind; const char *reply) =
        LIST({HF_OP_ACQUIRE_ALL, "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n"},
             {HF_OP_RELEASE_ALL, "*3\r\n:2\r\n:2\r\n:2\r\n"});
    EACH_CASE (i, cases) {
        hold_all(AT(0));
        hold_all(AT(0));
        hf_op_end(
            BEGIN(HF_OP_EXTEND, AT(1000), spec.names = &names[1], spec.lease = 10 * HF_SECOND),
            AT(1001));
        cut_link(CALLS, "reset", AT(1002));
        hf_op *op = begin_all(cases[i].kind, AT(3000));
        CHECK_ANSWER(op, cases[i].reply, AT(3001), "ok");
        CHECK_EQ_U64(ends_at(hold_at(0)), AT(3000 + 29698));
        CHECK_EQ_U64(ends_at(hold_at(1)), AT(3000 + 9898));
        CHECK(wakes_at(hold_at(1)) <= AT(3000 + 3334));
    }
}

TEST(a_multi_lock_releases_all_its_locks_with_one_command) {
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10));
    CHECK_SENT(CALLS, "EVALSHA release_all " THEIR_KEYS "me 0 30000 me 0 30000 me 0 30000");
    CHECK_ANSWER(op, "*3\r\n:1\r\n:1\r\n:1\r\n", AT(11), "ok");
    CHECK_EQ_INT(holds_left(), 0);
}

TEST(a_multi_locks_release_says_how_many_of_its_locks_were_lost) {
    CASES(const char *reply; hf_lost_reason reason; bool meanwhile) =
        LIST({"*3\r\n:1\r\n:-1\r\n:1\r\n", HF_LOST_DELETED, false},
             {"*3\r\n:1\r\n:-2\r\n:1\r\n", HF_LOST_TAKEN, false},
             {"*3\r\n:1\r\n:1\r\n:1\r\n", HF_LOST_TAKEN, true});
    EACH_CASE (i, cases) {
        hold_all(AT(0));
        hf_hold *lost = watch(hold_at(1));
        hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10));
        if (cases[i].meanwhile) lose_hold(lost, HF_LOST_TAKEN);
        CHECK_ANSWER(op, cases[i].reply, AT(11), "lost");
        CHECK_MESSAGE(op, "1 of the 3 locks");
        CHECK_EQ_INT(reason_of(lost), cases[i].reason);
        CHECK_EQ_INT(holds_left(), 0);
        CHECK_EQ_U64(stats().losses, 1);
        CHECK_EQ_U64(stats().releases, 2);
    }
}

TEST(a_multi_locks_release_that_was_sent_twice_succeeds_if_it_finds_the_locks_free) {
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10));
    cut_link(CALLS, "reset", AT(11));
    rig_tick(AT(50));
    CHECK_ANSWER(op, "*3\r\n:-1\r\n:-1\r\n:-2\r\n", AT(51), "ok");
    CHECK_EQ_U64(stats().losses, 0);
    start();
    hold_all(AT(0));
    op = begin_all(HF_OP_RELEASE_ALL, AT(10));
    feed_calls("-NOSCRIPT\r\n", AT(11));
    feed_calls("*3\r\n:-1\r\n:-1\r\n:-1\r\n", AT(12));
    CHECK_OUTCOME(op, "lost"); /* an unknown program is no lost reply */
}

/* Each of them entered twice, the second time together. */
static void hold_all_twice(hf_time now) {
    hold_all(now);
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, now);
    CHECK_ENDS_WITH(op, "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n", now, "ok");
    sent_over(CALLS);
}

TEST(abandoning_a_hold_during_a_multi_locks_re_entry_keeps_the_new_one) {
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(10));
    abandon_hold(hold_at(1), 1, AT(11));
    CHECK_ANSWER(op, "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n", AT(12), "ok");
    CHECK_EQ_INT(state_at(1), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold_at(1)), 1);
    CHECK_EQ_INT(count_of(hold_at(2)), 2);
}

static void detach_release_of(size_t i, hf_time now) {
    CHECK(hf_op_detach(begin_one(HF_OP_RELEASE, i, now)));
}

TEST(a_multi_lock_acquire_waits_until_an_async_release_of_one_of_its_locks_is_done) {
    hold_all(AT(0));
    detach_release_of(1, AT(1));
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(2));
    CHECK_OUTCOME(op, "under way");
    feed_calls(":1\r\n", AT(3));
    CHECK_ANSWER(op, ALL_ACQUIRED, AT(4), "ok");
}

TEST(a_release_of_a_multi_lock_without_any_hold_fails_as_not_held) {
    CHECK_OUTCOME(begin_all(HF_OP_RELEASE_ALL, AT(0)), "not_held");
    hold_all(AT(0));
    for (size_t i = 0; i < COUNT; i++) abandon_hold(hold_at(i), 1, AT(1));
    CHECK_OUTCOME(begin_all(HF_OP_RELEASE_ALL, AT(1)), "not_held"); /* abandoned already */
    CHECK_SENT_PART_AT(RENEWER, AT(2), "EVALSHA leave 4 a ");
}

TEST(an_abandoned_multi_lock_call_is_undone_or_finished_over_the_same_connection) {
    EACH_NUMBER (releases, 2) {
        if (releases) hold_all(AT(0));
        hf_op_end(begin_all(releases ? HF_OP_RELEASE_ALL : HF_OP_ACQUIRE_ALL, AT(1)), AT(2));
        CHECK_STATES("ccc");
        sent_over(CALLS);
        rig_tick(AT(3)); /* behind the call, so that nothing overtakes it */
        CHECK_EQ_INT(commands_in(sent_over(CALLS), "EVALSHA leave "), COUNT);
        CHECK_SENT(RENEWER, "");
    }
}

TEST(a_multi_locks_call_waits_while_one_of_its_locks_is_being_renewed) {
    hold_all(AT(0));
    rig_sleep(AT(0), AT(10000));
    CHECK_OUTCOME(begin_all(HF_OP_RELEASE_ALL, AT(10001)), "under way");
    CHECK_SENT(CALLS, "");
    feed(link_of(RENEWER), "*3\r\n:1\r\n:1\r\n:1\r\n", AT(10002));
    CHECK_SENT(CALLS, "EVALSHA release_all " THEIR_KEYS "me 0 30000 me 0 30000 me 0 30000");
    start();
    hold_all(AT(0));
    rig_sleep(AT(0), AT(10000));
    hf_op_end(begin_all(HF_OP_RELEASE_ALL, AT(10001)), AT(10002)); /* abandoned before it began */
    CHECK_STATES("ccc");
}

TEST(a_lock_lost_during_a_multi_locks_re_entry_remains_lost) {
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(10));
    lose_hold(hold_at(1), HF_LOST_EXPIRED);
    CHECK_ANSWER(op, "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n", AT(11), "lost");
    CHECK_EQ_INT(state_at(0), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold_at(0)), 1);
    CHECK_EQ_INT(state_at(1), HF_HOLD_LOST);
}

TEST(a_new_hold_of_a_multi_lock_does_not_inherit_the_queue_position_of_an_abandoned_wait) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.names = &names[0], spec.wait = HF_NEVER);
    subscribe_with(busy(20000, 0, 0), AT(1), AT(2), AT(3));
    cut_link(CALLS, "reset", AT(5));
    rig.refusing = true;
    hf_op_interrupt(op, AT(10));
    rig_sleep(AT(10), AT(5000)), CHECK_ENDS(op, "interrupted", AT(5000));
    CHECK_EQ_INT(state_at(0), CLEANING_UP);
    CHECK_EQ_U64(claim_wait(leaving_at(0)), 1);
    rig.refusing = false;
    op = begin_all(HF_OP_ACQUIRE_ALL, AT(5000)), CHECK_OUTCOME(op, "under way");
    hf_time now = AT(5000);
    bool leaves = false;
    for (; now < AT(8000) && !leaves; now += 10 * HF_MS) {
        rig_sleep(now, now + 10 * HF_MS);
        leaves = strstr(sent_over(CALLS), "EVALSHA leave 4 a ") != NULL;
    }
    CHECK(leaves && strstr(sent_text, MEMBER("1")));
    feed_calls(":0\r\n", now);
    CHECK_SENT(CALLS, "EVALSHA acquire_all " THEIR_KEYS "30000 1000 me 0 me 0 me 0");
    CHECK_ANSWER(op, ALL_ACQUIRED, now, "ok");
    for (size_t i = 0; i < COUNT; i++) CHECK_EQ_U64(wait_of_hold(hold_at(i)), 0);
}

/* As coroutines do, which give no text. */
TEST(each_lock_of_a_multi_lock_has_an_owner_of_its_own) {
    for (int n = 0; n < 2; n++) {
        char want[1024];
        BEGIN_ALL(HF_OP_ACQUIRE_ALL, AT(10 * n), spec.owner = (hf_slice){"", 0});
        snprintf(want, sizeof want,
                 "EVALSHA acquire_all " THEIR_KEYS "30000 1000 " DRIVE_UUID ":%d 0 " DRIVE_UUID
                 ":%d 0 " DRIVE_UUID ":%d 0",
                 3 * n + 1, 3 * n + 2, 3 * n + 3);
        CHECK_SENT(CALLS, want);
        feed_calls(ALL_ACQUIRED, AT(10 * n + 1));
        begin_all(HF_OP_RELEASE_ALL, AT(10 * n + 2));
        snprintf(want, sizeof want,
                 "EVALSHA release_all " THEIR_KEYS DRIVE_UUID ":%d 0 30000 " DRIVE_UUID
                 ":%d 0 30000 " DRIVE_UUID ":%d 0 30000",
                 3 * n + 1, 3 * n + 2, 3 * n + 3);
        CHECK_SENT(CALLS, want);
        feed_calls("*3\r\n:1\r\n:1\r\n:1\r\n", AT(10 * n + 3)), CHECK_EQ_U64(stats().losses, 0);
    }
}

static void check_survives(hf_op_kind kind, const char *reply, bool held) {
    EACH_FAILURE(nth, 4) {
        if (held) hold_all(AT(0));
        memerr_fail(nth);
        hf_op *op = begin_all(kind, AT(10));
        if (op && !hf_op_is_done(op)) hf_session_feed(link_of(CALLS), reply, strlen(reply), AT(11));
        bool failed = memerr_end();
        if (op && !hf_op_is_done(op)) rig_sleep(AT(11), AT(9000));
        CHECK(!op || hf_op_is_done(op));
        bool good = op && hf_op_code(op) == HF_OK;
        CHECK(good || failed);
        for (size_t i = 0; i < COUNT; i++) {
            bool acquired = good && kind == HF_OP_ACQUIRE_ALL;
            if (acquired) CHECK_EQ_INT(state_at(i), HF_HOLD_HELD);
            if (kind == HF_OP_ACQUIRE_ALL && !acquired && hold_at(i))
                CHECK_EQ_INT(state_at(i), CLEANING_UP);
            CHECK(state_at(i) != HF_HOLD_ACQUIRING);
        }
        finish();
    }
}

TEST(a_multi_lock_call_whose_reply_names_a_lock_that_is_not_in_its_list_reports_a_loss) {
    static const char *const numbers[] = {"0", "4", "-1", "9223372036854775807",
                                          "-9223372036854775808"};
    EACH_CASE (i, numbers) {
        hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
        CHECK_ANSWER(op, printed("*2\r\n:-1\r\n:%s\r\n", numbers[i]), AT(1), "lost");
    }
}

TEST(calls_on_a_multi_lock_survive_each_failed_allocation) {
    check_survives(HF_OP_ACQUIRE_ALL, ALL_ACQUIRED, false);
    check_survives(HF_OP_RELEASE_ALL, "*3\r\n:1\r\n:1\r\n:1\r\n", true);
}

TEST(a_multi_lock_acquire_waits_for_several_clean_ups_and_then_adds_new_holds) {
    hold_all(AT(0));
    uint64_t number = number_of(hold_at(2));
    abandon_hold(hold_at(0), 1, AT(1));
    abandon_hold(hold_at(2), 1, AT(1));
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(1));
    CHECK(hf_op_is_blocked(op));
    rig_serve(AT(1)), CHECK_SENT_PART(CALLS, "EVALSHA leave 4 a ");
    feed_calls(":1\r\n", AT(2)), CHECK(hf_op_is_blocked(op));
    CHECK(!strstr(sent_over(CALLS), "acquire_all"));
    CHECK_EQ_INT(state_at(2), CLEANING_UP);
    feed_calls(":1\r\n", AT(3)), CHECK(!hf_op_is_blocked(op));
    CHECK_SENT(CALLS, "EVALSHA acquire_all " THEIR_KEYS "30000 1000 me 0 me 1 me 0");
    CHECK_ANSWER(op, "*4\r\n:1\r\n:13\r\n:0\r\n:14\r\n", AT(4), "ok");
    CHECK(number_of(hold_at(2)) != number);
    for (size_t i = 0; i < COUNT; i++) CHECK_EQ_INT(count_of(hold_at(i)), i == 1 ? 2 : 1);
}

TEST(a_multi_lock_acquire_fails_at_once_if_the_server_is_unreachable) {
    rig.refusing = true;
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_INT(holds_left(), 0);
}

TEST(an_abandoned_re_entry_cleans_up_a_hold_abandoned_during_it) {
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(10));
    abandon_hold(hold_at(1), 1, AT(11)), CHECK_EQ_INT(state_at(1), HF_HOLD_HELD);
    hf_op_abandon(op, AT(12)), CHECK_STATES("hch");
    feed_calls(ALL_ACQUIRED, AT(13)); /* its caller has abandoned it */
    CHECK_OUTCOME(op, "interrupted");
    CHECK_EQ_INT(count_of(hold_at(0)), 1);
}

TEST(a_multi_lock_acquire_waits_for_a_clean_up_even_if_that_has_failed_before) {
    hold_all(AT(0));
    hf_hold *hold = watch(hold_at(1));
    abandon_hold(hold, 1, AT(1));
    set_failures(hold, 1);
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(2));
    CHECK(hf_op_is_blocked(op) && awaited_claim_in(op) == claim_of(hold));
    CHECK_SENT_PART(CALLS, "EVALSHA leave");
}

/* The clock has ended it, so the server may have it still. */
TEST(a_multi_lock_acquire_first_cleans_up_a_lock_whose_lease_has_ended_by_the_clock) {
    hold_all(AT(0));
    sent_over(CALLS);
    lose_hold(hold_at(1), HF_LOST_EXPIRED);
    hf_op *op = BEGIN_ALL(HF_OP_ACQUIRE_ALL, AT(1), spec.owner = HF_NO_TEXT);
    CHECK(hf_op_is_blocked(op));
    const char *sent = sent_over(CALLS);
    CHECK(strstr(sent, "EVALSHA leave") && !strstr(sent, "acquire_all"));
}

/* A release sets the lease of what stays held. */
TEST(a_multi_locks_partial_release_extends_no_lock_beyond_its_max_hold) {
    hold_all(AT(0));
    hold_all(AT(1));
    set_bound(hold_at(1), AT(15000));
    begin_all(HF_OP_RELEASE_ALL, AT(5000));
    const char *sent = sent_over(CALLS);
    CHECK_OR(strstr(sent, "me 1 30000 me 1 10000 me 1 30000"), "%s", sent);
}

TEST(a_multi_lock_acquire_succeeds_only_once_a_replica_confirms_it) {
    CASES(const char *reply, *confirmed, *outcome, *states) = {
        {ALL_ACQUIRED, ":0\r\n", "no_quorum", "ccc"},
        {ALL_ACQUIRED, ":1\r\n", "ok", "hhh"},
        {"*3\r\n:0\r\n:2\r\n:500\r\n", ":0\r\n", "busy", "---"},
    };
    EACH_CASE (i, cases) {
        config_in(&rig.client)->sync = (hf_sync){1, 100 * HF_MS};
        hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
        CHECK_SENT_PART(CALLS, "me 0 me 0 me 0\nWAIT 1 100");
        CHECK_ANSWER(op, cases[i].reply, AT(1), "under way");
        CHECK_ANSWER(op, cases[i].confirmed, AT(100), cases[i].outcome);
        CHECK_STATES(cases[i].states);
    }
}

/* An earlier call's claim whose clean-up has failed is set aside, which needs no memory. */
TEST(a_multi_lock_acquire_sets_an_earlier_hold_aside_even_if_memory_runs_out) {
    EACH_FAILURE(nth, 1) {
        hold_all(AT(0));
        abandon_hold(hold_at(2), 1, AT(1));
        hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(1));
        CHECK(hf_op_is_blocked(op));
        sent_over(CALLS);
        memerr_fail(nth);
        hf_session_feed(link_of(CALLS), "-OOM no\r\n", 9, AT(2));
        bool failed = memerr_end();
        bool sent = strstr(sent_over(CALLS), "acquire_all") != NULL;
        CHECK(sent ? !hf_op_is_done(op) : failed);
        CHECK(!strstr(message_of(op), "the effects of an earlier call could not be undone"));
    }
}

TEST(a_multi_locks_release_with_a_malformed_reply_is_retried_in_the_background) {
    static const char *const senseless[] = {"*3\r\n:1\r\n:99\r\n:0\r\n", "*1\r\n:1\r\n"};
    EACH_CASE (i, senseless) {
        hold_all(AT(0));
        hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10));
        CHECK_ANSWER(op, senseless[i], AT(11), "server");
        CHECK_MESSAGE(op, "the release continues in the background");
        CHECK_STATES("-cc");
        CHECK_EQ_U64(stats().losses, 0);
    }
}

TEST(after_a_failed_multi_lock_call_its_holds_are_reported_as_uncertain) {
    EACH_NUMBER (releases, 2) {
        if (releases) hold_all_twice(AT(0));
        else hold_all(AT(0));
        hf_op *op = begin_all(releases ? HF_OP_RELEASE_ALL : HF_OP_ACQUIRE_ALL, AT(10));
        CHECK(!is_uncertain(hold_at(0)));
        if (releases) feed_calls("-OOM no\r\n", AT(11));
        else hf_op_end(op, AT(11));
        CHECK_STATES("hhh");
        for (size_t i = 0; i < COUNT; i++)
            CHECK(count_of(hold_at(i)) == 1 && is_uncertain(hold_at(i)));
    }
}

TEST(a_multi_lock_re_entry_reports_which_of_its_locks_is_lost_and_keeps_the_others) {
    EACH_NUMBER (i, 2 * COUNT) {
        size_t gone = (size_t)i / 2;
        bool taken = i % 2;
        hold_all(AT(0));
        hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(1000));
        for (size_t j = 0; j < COUNT; j++) CHECK(is_in_flight(hold_at(j)));
        CHECK_ANSWER(op, printed("*2\r\n:%d\r\n:%zu\r\n", taken ? -2 : -1, gone + 1), AT(1001),
                     "lost");
        CHECK_MESSAGE(op, printed("\"%.*s\"", 1, names[gone].key.data));
        CHECK_EQ_INT(reason_of(hold_at(gone)), taken ? HF_LOST_TAKEN : HF_LOST_DELETED);
        for (size_t j = 0; j < COUNT; j++) {
            CHECK_EQ_INT(state_at(j), j == gone ? HF_HOLD_LOST : HF_HOLD_HELD);
            CHECK(count_of(hold_at(j)) == 1 && !is_in_flight(hold_at(j)));
        }
    }
}

TEST(a_multi_lock_release_that_is_busy_because_of_another_call_refers_to_no_holds) {
    hold_all(AT(0));
    hf_op_end(begin_one(HF_OP_RELEASE, 2, AT(1)), AT(2));
    rig_tick(AT(3));
    feed_calls(":1\r\n:1\r\n", AT(4));
    begin_one(HF_OP_ACQUIRE, 2, AT(5));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(6));
    CHECK_OUTCOME(op, "busy");
    CHECK_EQ_INT((int)hf_op_hold_count(op), 0);
    CHECK_EQ_INT(count_of(hold_at(0)), 1);
}

static hf_op *begin_kept(hf_op_kind kind, size_t i, hf_time now) {
    return BEGIN(kind, now, spec.names = &names[i], spec.owner = HF_NO_TEXT, spec.wait = HF_NEVER,
                 spec.keep = HF_SECOND);
}

TEST(a_multi_lock_acquire_first_returns_to_the_server_a_lock_that_its_client_keeps) {
    EACH_NUMBER (i, COUNT) {
        hf_op *op = begin_kept(HF_OP_ACQUIRE, (size_t)i, AT(0));
        feed_calls("*5\r\n:1\r\n:100\r\n:0\r\n:0\r\n:103\r\n", AT(0));
        feed_subscribed(AT(0)), CHECK_ENDS(op, "ok", AT(0));
        op = begin_kept(HF_OP_RELEASE, (size_t)i, AT(1));
        CHECK_ENDS(op, "ok", AT(1)); /* kept for the next caller */
        sent_over(CALLS);
        CHECK(hf_op_is_blocked(begin_all(HF_OP_ACQUIRE_ALL, AT(2))));
        CHECK_SENT_PART(
            CALLS, printed("EVALSHA leave 4 %.*s ", (int)names[i].key.size, names[i].key.data));
        feed_calls(":1\r\n", AT(3));
        CHECK_SENT(CALLS, "EVALSHA acquire_all " THEIR_KEYS "30000 1000 me 0 me 0 me 0");
    }
}

TEST(a_check_that_waited_for_a_multi_locks_call_fails_as_not_held_if_the_hold_was_abandoned) {
    hold_all(AT(0));
    begin_all(HF_OP_ACQUIRE_ALL, AT(10));
    abandon_hold(hold_at(1), 1, AT(11));
    hf_op *waits = begin_one(HF_OP_CHECK, 1, AT(12));
    CHECK(hf_op_is_blocked(waits));
    CHECK_ANSWER(waits, "*3\r\n:0\r\n:1\r\n:500\r\n", AT(13), "not_held");
    CHECK_EQ_INT(state_at(1), CLEANING_UP);
}

TEST(a_lock_lost_in_a_failed_multi_lock_release_is_cleaned_up_unless_another_owner_holds_it) {
    static const hf_lost_reason reasons[] = {HF_LOST_EXPIRED, HF_LOST_TAKEN};
    EACH_NUMBER (i, 2) {
        hold_all(AT(0));
        begin_all(HF_OP_RELEASE_ALL, AT(10));
        lose_hold(hold_at(1), reasons[i]);
        feed_calls("-OOM no\r\n", AT(12));
        CHECK_EQ_INT(state_at(1), reasons[i] == HF_LOST_TAKEN ? -1 : CLEANING_UP);
    }
}

TEST(a_lock_lost_during_a_multi_locks_release_is_cleaned_up_once) {
    CASES(const char *reply; int left) =
        LIST({"*3\r\n:1\r\n:1\r\n:1\r\n", 1}, {"-OOM no\r\n", COUNT});
    EACH_CASE (i, cases) {
        hold_all(AT(0));
        begin_all(HF_OP_RELEASE_ALL, AT(10));
        hf_op *waits = begin_one(HF_OP_RELEASE, 1, AT(11));
        CHECK(hf_op_is_blocked(waits));
        lose_hold(hold_at(1), HF_LOST_EXPIRED);
        CHECK_ANSWER(waits, cases[i].reply, AT(12), "lost");
        CHECK_EQ_INT(state_at(1), CLEANING_UP);
        CHECK_EQ_INT(holds_left(), cases[i].left);
    }
}

TEST(a_multi_lock_release_hands_over_a_lock_behind_many_dead_waiters_in_the_background) {
    hold_all(AT(0));
    CHECK_CALL(HF_OP_RELEASE_ALL, AT(10), "*3\r\n:1\r\n:3\r\n:1\r\n", AT(11), "ok");
    CHECK_EQ_INT(holds_left(), 1);
    CHECK_SENT_PART_AT(RENEWER, AT(11), "EVALSHA leave 4 b ");
}

/* Another call of the same owner has lost one of the locks and acquired it again, while the release
 * waits for the renewal of another one. */
TEST(a_multi_locks_release_does_not_release_a_lock_acquired_again_while_it_waits) {
    static const int times[COUNT] = {5000, 0, 5000}; /* so that only "b" is renewed at first */
    static const size_t order[COUNT] = {1, 0, 2};
    for (size_t i = 0; i < COUNT; i++)
        end_with(begin_one(HF_OP_ACQUIRE, order[i], AT(times[order[i]])), ACQUIRED,
                 AT(times[order[i]]));
    rig_sleep(AT(5000), AT(10000));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10001));
    CHECK(hf_op_is_blocked(op));
    hf_op *force = begin_one(HF_OP_FORCE, 0, AT(10002));
    feed_calls("+PONG\r\n", AT(10002)); /* the connection was idle before */
    CHECK_ENDS_WITH(force, ":1\r\n", AT(10002), "ok");
    CHECK_STATES("lhh");
    hf_op *acquire = begin_one(HF_OP_ACQUIRE, 0, AT(10003));
    CHECK_ENDS_WITH(acquire, ACQUIRED, AT(10003), "ok");
    const hf_hold *again = hold_at(0);
    rig_hush();
    feed_renewer("*1\r\n:1\r\n", AT(10004));
    CHECK_SENT(CALLS, "EVALSHA release_all " THEIR_KEYS " 0 0 me 0 30000 me 0 30000");
    CHECK_ANSWER(op, "*3\r\n:-2\r\n:1\r\n:1\r\n", AT(10005), "lost");
    CHECK_STATES("h--");
    CHECK(hold_at(0) == again);
    CHECK(!is_in_flight(again));
    CHECK_EQ_U64(hf_client_loss_count(&rig.client), 1);
}

TEST(a_multi_lock_cannot_be_released_asynchronously) {
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10));
    CHECK(!hf_op_detach(op));
    CHECK_ANSWER(op, "*3\r\n:1\r\n:1\r\n:1\r\n", AT(11), "ok");
}

CHECK_MAIN
