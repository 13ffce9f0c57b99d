/* One attempt to acquire a lock, a mutex or a guard. */

#include "op/acquire.h"

#include "acquire_rig.h"

TEST(an_acquire_of_a_free_lock_succeeds_with_one_command) {
    hf_op *op = begin_acquire(0, AT(0));
    CHECK_SENT(CALLS, BRIEF_ASK_OF_K);
    CHECK_STATE(op, ASKING);
    CHECK(!hf_hold_is_valid(hold_of(), AT(0)));
    CHECK_ANSWER(op, ACQUIRED, AT(1), "ok");
    const hf_hold *hold = hold_of();
    CHECK(is_held(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK_EQ_U64(token_of(hold), 77);
    CHECK_EQ_U64(ends_at(hold), AT(29698)); /* from the sending, not from the answer */
    CHECK_EQ_U64(renewer_next_tick(), AT(10000));
    CHECK(!is_in_flight(hold) && !is_granted(hold));
    CHECK_EQ_U64(stats().acquires, 1);
    CHECK_EQ_U64(hf_op_next_tick(op), HF_NEVER);
    hf_op_end(op, AT(2)), CHECK(hf_hold_is_valid(hold_of(), AT(29697)));
    CHECK(!hf_hold_is_valid(hold_of(), AT(29698)));
}

TEST(an_acquire_that_does_not_wait_fails_as_busy_after_one_attempt) {
    hf_op *op = begin_acquire(0, AT(0));
    sent_over(CALLS);
    CHECK_ANSWER(op, busy(1500, 0, 0), AT(1), "busy");
    CHECK_STR(message_of(op),
              "cannot acquire \"k\" on h:1: held by another owner, for up to 1.499 s more "
              "unless renewed; wait longer or try again later");
    CHECK_NOTHING_LEFT(AT(1));
    CHECK_EQ_INT(link_of(EVENTS)->state, HF_SESSION_CLOSED);
}

TEST(an_acquire_whose_reply_arrives_after_its_lease_is_reported_as_lost) {
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
    spec.lease = HF_SECOND;
    hf_op *op = begin_spec(&spec, AT(0));
    sent_over(CALLS);
    CHECK_ANSWER(op, ACQUIRED, AT(988), "lost");
    CHECK_EQ_U64(stats().acquires, 0);
    CHECK_LEFT_IN_ORDER("", AT(988));
    rig_begin();
    op = begin_spec(&spec, AT(0));
    CHECK_ANSWER(op, ACQUIRED, AT(988) - 1, "ok");
    CHECK(hf_hold_is_valid(hold_of(), AT(988) - 1));
}

TEST(the_lease_of_a_resent_acquire_is_measured_from_the_last_sending) {
    hf_op *op = begin_acquire(0, AT(0));
    CHECK_SENT(CALLS, BRIEF_ASK_OF_K);
    cut_link(CALLS, "reset", AT(100));
    CHECK_SENT_AT(CALLS, AT(200), BRIEF_ASK_OF_K);
    CHECK_ANSWER(op, ACQUIRED, AT(201), "ok");
    CHECK_EQ_U64(ends_at(hold_of()), AT(29898));
}

TEST(an_acquire_whose_outcome_is_unknown_is_undone) {
    hf_op *op = begin_acquire(0, AT(0));
    CHECK_SLEEP(op, AT(0), AT(2999), "under way");
    CHECK_SLEEP(op, AT(2999), AT(3000), "unreachable");
    CHECK_EQ_INT(state_of(), CLEANING_UP);
    rig_sleep(AT(3000), AT(3500)); /* the silent connection was abandoned for a new one */
    CHECK_SENT(CALLS, LEAVE_OF_K("0", ""));
    feed_calls(":1\r\n", AT(3600)), CHECK_EQ_INT(state_of(), -1), CHECK_EQ_U64(stats().undone, 1);
}

/* After a failover the server's name may lead to the new master. */
TEST(an_acquire_refused_by_a_replica_is_retried_once_over_a_new_connection) {
    EACH_NUMBER (moved, 2) {
        hf_op *op = begin_acquire(0, AT(0));
        sent_over(CALLS);
        uint64_t opens = link_of(CALLS)->opens;
        CHECK_ANSWER(op, READONLY, AT(1), "under way");
        rig_sleep(AT(1), AT(100)), CHECK_EQ_U64(link_of(CALLS)->opens, opens + 1);
        CHECK_SENT_PART(CALLS, "acquire");
        CHECK_ANSWER(op, moved ? ACQUIRED : READONLY, AT(101), moved ? "ok" : "denied");
        if (!moved) CHECK_NOTHING_LEFT(AT(101));
    }
}

TEST(an_acquire_that_a_replica_refuses_again_soon_after_its_retry_is_not_retried) {
    hf_op *first = begin_acquire(0, AT(0));
    feed_calls(READONLY, AT(1));
    rig_sleep(AT(1), AT(50));
    CHECK_ANSWER(first, READONLY, AT(50), "denied");
    uint64_t opens = link_of(CALLS)->opens;
    hf_op *second = begin_acquire(0, AT(51));
    CHECK_ANSWER(second, READONLY, AT(52), "denied");
    hf_op *third = begin_acquire(0, AT(101));
    CHECK_ANSWER(third, READONLY, AT(102), "under way");
    rig_sleep(AT(102), AT(200)), CHECK_EQ_U64(link_of(CALLS)->opens, opens + 1);
    sent_over(CALLS);
    CHECK_ANSWER(third, READONLY, AT(201), "denied");
    CHECK_NOTHING_LEFT(AT(201));
}

TEST(an_acquire_with_a_malformed_reply_fails_with_a_server_error_and_is_undone) {
    static const char *const replies[] = {
        "+OK\r\n",           ":0\r\n", ":1\r\n",       ":-1\r\n",
        "$-1\r\n",           "*0\r\n", "*1\r\n:9\r\n", "*1\r\n$1\r\nx\r\n",
        "*1\r\n*1\r\n:1\r\n"};
    EACH_CASE (i, replies) {
        hf_op *op = begin_acquire(HF_SECOND, AT(0));
        sent_over(CALLS);
        CHECK_ANSWER(op, replies[i], AT(1), "server");
        CHECK_LEFT_IN_ORDER("", AT(1));
    }
}

TEST(an_acquire_of_a_mutex_that_its_owner_holds_fails_as_busy_without_a_request) {
    hf_op *op = begin_mutex(0, false, AT(0));
    CHECK_SENT(CALLS, "EVALSHA mutex_acquire " K_AND_OWNER " 30000 1000");
    CHECK_ANSWER(op, ACQUIRED, AT(1), "ok");
    op = begin_mutex(0, false, AT(2)), CHECK_OUTCOME(op, "busy");
    CHECK(hf_op_is_done(op));
    CHECK_SENT(CALLS, "");
    op = begin_acquire(0, AT(3)); /* a lock of that name is something else */
    CHECK_OUTCOME(op, "under way");
}

/* NOSCRIPT is no lost reply: what stands there is not from us. */
TEST(a_shared_owners_acquire_of_a_held_mutex_fails_as_busy_even_after_a_noscript_reply) {
    hf_op *op = begin_mutex(0, true, AT(0));
    feed_calls("-NOSCRIPT No matching script.\r\n", AT(1));
    CHECK_ANSWER(op, "*2\r\n:2\r\n:1\r\n", AT(2), "busy");
}

TEST(the_first_waiter_for_a_mutex_held_by_another_library_rechecks_it_at_random_times) {
    hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
    subscribe_with(busy(20000, 0, 1), AT(1), AT(2), AT(3)), CHECK_STATE(op, WAITING);
    CHECK(hf_op_next_tick(op) > AT(3) && hf_op_next_tick(op) <= AT(204));
    CHECK_SENT(EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
}

TEST(an_acquire_with_impossible_numbers_in_its_reply_fails_and_is_undone) {
    static const char *const replies[] = {
        "*3\r\n:1\r\n:77\r\n:-1\r\n",         "*3\r\n:1\r\n:77\r\n:4294967295\r\n",
        "*3\r\n:1\r\n:77\r\n:1000000000\r\n", "*3\r\n:1\r\n:77\r\n:9223372036854775807\r\n",
        "*3\r\n:1\r\n:-77\r\n:0\r\n",
    };
    EACH_CASE (i, replies) {
        hf_op *op = begin_acquire(0, AT(0));
        CHECK_ANSWER(op, replies[i], AT(1), "server");
        CHECK_EQ_INT(state_of(), CLEANING_UP);
    }
}

/* The first sending of the command may have taken it. */
TEST(an_acquire_that_finds_a_hash_without_a_ttl_fails_with_conflict_and_is_undone) {
    hf_op *op = begin_acquire(0, AT(0));
    CHECK_ANSWER(op, "*1\r\n:-3\r\n", AT(1), "conflict");
    CHECK_EQ_INT(state_of(), CLEANING_UP);
}

TEST(a_shared_owners_waiter_that_may_not_join_its_other_processes_holds_leaves_the_queue) {
    hf_op *op = wait_as_shared(AT(0));
    feed_message("1 recheck 2", AT(5));
    rig_tick(AT(5));
    sent_over(CALLS);
    CHECK_ANSWER(op, "*2\r\n:2\r\n:0\r\n", AT(6), "busy");
    CHECK_SENT_AT(CALLS, AT(6), LEAVE_OF_K("0", SHARED_MEMBER("2")) "0");
}

/* ---- guards ---- */

static hf_op *begin_guard(hf_time wait, hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.lock_kind = &hf_kind_guard, spec.wait = wait,
                      spec.fingerprint = hf_slice_of("p"));
    return op;
}

TEST(an_idempotent_run_that_was_completed_before_returns_its_record) {
    hf_op *op = begin_guard(0, AT(0));
    CHECK_SENT(CALLS, "EVALSHA begin " KEYS_OF_K "0 0 30000 1000  p");
    feed_bytes(link_of(CALLS), "*2\r\n:3\r\n$4\r\na\0b\n\r\n", 18, AT(1));
    CHECK_OUTCOME(op, "duplicate");
    CHECK_MEM(record_of(op), record_size_of(op), "a\0b\n", 4);
    CHECK_EQ_INT(holds_left(), 0);
}

/* A grant writes an empty print. The owner writes its own, so that a request with another
 * fingerprint gets a mismatch. */
TEST(an_idempotent_run_that_starts_by_a_grant_writes_its_fingerprint) {
    hf_op *op = begin_guard(10 * HF_SECOND, AT(0));
    subscribe_with(busy(20000, 0, 0), AT(1), AT(2), AT(3));
    sent_over(CALLS);
    CHECK_GRANTS(op, "1 grant g 1 5 88 2000 k", AT(10), "under way");
    CHECK_SENT(CALLS, "EVALSHA begin " KEYS_OF_K "0 0 30000 1000 1g" DRIVE_UUID ":1:1000 p");
    CHECK_ANSWER(op, ACQUIRED, AT(11), "ok");
    CHECK(!is_granted(hold_in(op)));
}

/* ---- memory ---- */

/* A client whose server answers `replies` to one acquire after the other. True: acquired. An
 * acquire that failed has left nothing, or the renewer has it. */
static bool acquires(const char *const *replies, bool events) {
    rig_begin();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.wait = events ? 10 * HF_SECOND : 0);
    bool yes = false;
    for (int i = 0; op && !hf_op_is_done(op) && replies[i]; i++) {
        rig_tick(AT(i));
        hf_session *link = &first_node(&rig.client)->links[replies[i][0] == '!' ? EVENTS : CALLS];
        const char *text = replies[i] + (replies[i][0] == '!');
        yes = strcmp(text, ACQUIRED) == 0 || strstr(text, "grant");
        if (link->state == HF_SESSION_READY) hf_session_feed(link, text, strlen(text), AT(i));
    }
    if (op && !hf_op_is_done(op)) rig_sleep(AT(10), AT(20000));
    if (op && !hf_op_is_done(op)) abort();
    bool acquired = op && hf_op_code(op) == HF_OK;
    const hf_hold *hold = hold_of();
    if (acquired && !(yes && hold && is_held(hold) && count_of(hold) == 1)) abort();
    if (!acquired && hold && !is_cleaned_up(hold)) abort();
    if (first_node(&rig.client)->events_users != 0) abort();
    rig_end(AT(20000));
    return acquired;
}

static bool acquires_at_once(void *context) {
    static const char *const replies[] = {ACQUIRED, NULL};
    (void)context;
    return acquires(replies, false);
}

#define NOT_YET "*5\r\n:0\r\n:20000\r\n:0\r\n:1\r\n$0\r\n\r\n"
#define WAITS "*5\r\n:0\r\n:20000\r\n:0\r\n:1\r\n$1\r\n" PLACE "\r\n"
#define SUBSCRIBED "!*3\r\n$9\r\nsubscribe\r\n$51\r\n" DRIVE_GRANTS "\r\n:1\r\n"

static bool acquires_by_a_grant(void *context) {
    static const char *const replies[] = {
        NOT_YET, SUBSCRIBED, WAITS,
        "!*3\r\n$7\r\nmessage\r\n$51\r\n" DRIVE_GRANTS "\r\n$23\r\n" GRANT("1", "88") "\r\n", NULL};
    (void)context;
    return acquires(replies, true);
}

static bool acquires_by_a_look(void *context) {
    static const char *const replies[] = LIST(
        "-NOSCRIPT\r\n", NOT_YET, SUBSCRIBED, WAITS,
        "!*3\r\n$10\r\npsubscribe\r\n$26\r\nredisson_lock__channel:{k}\r\n:2\r\n", ACQUIRED, NULL);
    (void)context;
    return acquires(replies, true);
}

static bool learns_of_a_record(void *context) {
    (void)context;
    rig_begin();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.lock_kind = &hf_kind_guard);
    rig_serve(AT(0));
    hf_session *link = link_of(CALLS);
    if (op && !hf_op_is_done(op) && link->state == HF_SESSION_READY) {
        hf_session_feed(link, "*2\r\n:3\r\n$4\r\ndone\r\n", 18, AT(1));
    }
    if (op && !hf_op_is_done(op)) rig_sleep(AT(1), AT(4000));
    if (op && !hf_op_is_done(op)) abort();
    bool duplicate = op && hf_op_code(op) == HF_DUPLICATE;
    if (duplicate && !record_of(op)) abort();
    rig_end(AT(4000));
    return duplicate;
}

TEST(an_acquire_survives_each_failed_allocation) {
    CHECK(memerr_until_success(learns_of_a_record, NULL, 1000) > 10);
    CHECK(memerr_until_success(acquires_at_once, NULL, 1000) > 10);
    CHECK(memerr_until_success(acquires_by_a_look, NULL, 1000) > 20);
    CHECK(memerr_until_success(acquires_by_a_grant, NULL, 1000) > 20);
}

TEST(an_acquire_that_does_not_wait_does_not_report_a_lost_subscription_in_its_error_message) {
    hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
    rig.refusing = true;
    cut_link(EVENTS, "reset", AT(5));
    rig_sleep(AT(5), AT(300)), CHECK(link_of(EVENTS)->reason[0]);
    rig.refusing = false;
    hf_op *one = BEGIN(HF_OP_ACQUIRE, AT(300), spec.caller = spec.owner = hf_slice_of("you"));
    CHECK_ANSWER(one, busy(20000, 0, 0), AT(301), "busy");
    CHECK(!strstr(message_of(one), "cannot listen"));
    CHECK_OUTCOME(op, "under way");
}

TEST(a_busy_message_does_not_report_a_lease_that_is_just_ending) {
    hf_op *op = begin_acquire(0, AT(0));
    CHECK_ANSWER(op, busy(1, 0, 0), AT(1), "busy");
    CHECK_OR(!strstr(message_of(op), "for up to"), "%s", message_of(op));
}

/* Its lease has begun when the command was sent, however late WAIT has its reply. */
TEST(a_shared_owners_acquire_that_no_replica_confirms_is_undone_only_within_its_lease) {
    RIG_BEGIN(config.sync = (hf_sync){1, 100 * HF_MS});
    begin_shared(0, AT(0));
    feed_calls(ACQUIRED ":0\r\n", AT(90)), CHECK_EQ_INT(state_of(), CLEANING_UP);
    CHECK_EQ_U64(claim_ends_at(leaving_of()), AT(29698));
}

TEST(an_acquire_that_does_not_wait_opens_no_subscription_connection) {
    first_node(&rig.client)->subscribed = true;
    hf_op *op = begin_acquire(0, AT(0));
    CHECK(!needs_events(op));
    CHECK_EQ_INT(first_node(&rig.client)->events_users, 0);
}

/* It has waited for as long as a command may take, although others have been served meanwhile. */
TEST(an_acquire_that_does_not_wait_fails_as_unreachable_behind_commands_without_replies) {
    hf_hold *hold = hold_lock(AT(0));
    rig_sleep(AT(0), AT(10000)), CHECK(is_in_flight(hold));
    for (int wait = 0; wait <= 1; wait++) {
        hf_op *op = begin_acquire((hf_time)wait * HF_SECOND, AT(10001));
        CHECK_STATE(op, BLOCKED);
        set_settled_ms(hold, (uint32_t)(AT(10002) / HF_MS));
        CHECK_EQ_INT(hf_acquire_waited_for_other_call(op, AT(10003)), wait);
    }
}

CHECK_MAIN
