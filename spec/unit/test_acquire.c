#include "base/lease.h"
#include "op/acquire.h"
#include "op/events.h"
#include "op/operation.h"
#include "op/renewer.h"

#include "drive.h"

static struct rig rig;

#define CALLS HF_LINK_CALLS
#define EVENTS HF_LINK_EVENTS
#define RENEWER HF_LINK_RENEWER
#define READONLY "-READONLY You can't write against a read only replica.\r\n"

#define CHECK_STATE(op, want) CHECK_EQ_INT(op_state(op), HF_ACQUIRE_##want)

/* Nothing of the lock is left on this side, and nothing is to be sent. */
#define CHECK_NOTHING_LEFT(now)                                                                    \
    do {                                                                                           \
        CHECK(!hold_of(&rig));                                                                     \
        CHECK_EQ_INT(first_node(&rig.client)->waiting, 0);                                         \
        rig_tick(&rig, now);                                                                       \
        CHECK_STR(output_of(link_of(&rig, CALLS)), "");                                            \
        CHECK_STR(output_of(link_of(&rig, RENEWER)), "");                                          \
    } while (0)

/* The renewer undoes it over the callers' link, behind what was sent there. */
#define CHECK_LEFT_IN_ORDER(waiter, now) CHECK_LEFT_BEHIND("", waiter, now)

/* The same, behind a command whose reply arrives now. */
#define CHECK_LEFT_BEHIND(answer, waiter, now)                                                     \
    do {                                                                                           \
        CHECK(hold_of(&rig));                                                                      \
        CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);                                         \
        rig_tick(&rig, now);                                                                       \
        CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", waiter));                                          \
        feed_calls(&rig, answer ":0\r\n", now);                                                    \
        CHECK(!hold_of(&rig));                                                                     \
        CHECK(hf_client_is_quiet(&rig.client));                                                    \
    } while (0)

/* ---- one attempt ---- */

TEST(a_free_lock) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    CHECK_STATE(op, ASKING);
    CHECK(!hf_hold_is_valid(hold_of(&rig), AT(0)));
    feed_calls(&rig, ACQUIRED, AT(1));
    CHECK_OUTCOME(op, "ok");
    const hf_hold *hold = hold_of(&rig);
    CHECK(is_held(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK_EQ_U64(token_of(hold), 77);
    CHECK_EQ_U64(ends_at(hold), AT(29698)); /* from the sending, not from the answer */
    CHECK_EQ_U64(wakes_at(hold), AT(10000));
    CHECK(!is_in_flight(hold) && !is_granted(hold));
    CHECK_EQ_U64(hf_client_stats(&rig.client).acquires, 1);
    CHECK_EQ_U64(hf_op_deadline(op), HF_NEVER);
    hf_op_end(op, AT(2));
    CHECK(hf_hold_is_valid(hold_of(&rig), AT(29697)));
    CHECK(!hf_hold_is_valid(hold_of(&rig), AT(29698)));
    rig_end(&rig, AT(3));
}

TEST(an_explicit_lease_is_not_renewed) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.renewed = false;
    spec.lease = HF_SECOND;
    spec.token_ttl_ms = 0;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    CHECK_SENT(&rig, CALLS, "EVALSHA acquire " K_AND_OWNER " 1000 0");
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(wakes_at(hold_of(&rig)), AT(988));
    CHECK_EQ_U64(token_of(hold_of(&rig)), 0);
    rig_sleep(&rig, AT(1), AT(2000));
    CHECK_SILENT(&rig);
    CHECK_EQ_INT(reason_of(hold_of(&rig)), HF_LOST_EXPIRED);
    rig_end(&rig, AT(2000));
}

TEST(busy_at_the_first_attempt) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, busy(1500, 0, 0), AT(1));
    CHECK_OUTCOME(op, "busy");
    CHECK_STR(message_of(op),
              "cannot acquire \"k\" on h:1: held by another owner, for up to 1.499 s more "
              "unless renewed; wait longer or try again later");
    CHECK_NOTHING_LEFT(AT(1));
    CHECK_EQ_INT(link_of(&rig, EVENTS)->state, HF_SESSION_CLOSED);
    rig_end(&rig, AT(2));
}

TEST(refused_connection_fails_at_once) {
    rig_begin(&rig);
    rig.refusing = true;
    hf_op *op = begin_acquire(&rig, 5 * HF_SECOND, AT(0));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(message_of(op), "refused"));
    CHECK_NOTHING_LEFT(AT(0));
    rig_end(&rig, AT(2));
}

TEST(a_reply_after_the_lease_is_reported_as_lost) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lease = HF_SECOND;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, ACQUIRED, AT(988));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_U64(hf_client_stats(&rig.client).acquires, 0);
    CHECK_LEFT_IN_ORDER("", AT(988));
    rig_end(&rig, AT(1000));
    rig_begin(&rig);
    op = begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, ACQUIRED, AT(988) - 1);
    CHECK_OUTCOME(op, "ok");
    CHECK(hf_hold_is_valid(hold_of(&rig), AT(988) - 1));
    rig_end(&rig, AT(1000));
}

TEST(the_lease_of_an_acquire_sent_twice_starts_at_the_last_sending) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(100));
    rig_tick(&rig, AT(200));
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    feed_calls(&rig, ACQUIRED, AT(201));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(ends_at(hold_of(&rig)), AT(29898));
    rig_end(&rig, AT(300));
}

TEST(an_unknown_outcome_is_undone) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    output_of(link_of(&rig, CALLS));
    rig_sleep(&rig, AT(0), AT(2999));
    CHECK_OUTCOME(op, "under way");
    rig_sleep(&rig, AT(2999), AT(3000));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_sleep(&rig, AT(3000), AT(3500)); /* the silent connection was abandoned for a new one */
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", ""));
    feed_calls(&rig, ":1\r\n", AT(3600));
    CHECK(!hold_of(&rig));
    CHECK_EQ_U64(hf_client_stats(&rig.client).undone, 1);
    rig_end(&rig, AT(4000));
}

TEST(an_error_leaves_nothing_to_clean_up) {
    static const struct {
        const char *reply, *code;
    } cases[] = {
        {"-NOPERM this user has no permissions\r\n", "denied"},
        {"-NOAUTH Authentication required.\r\n", "denied"},
        {"-ERR no\r\n", "server"},
        {"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", "conflict"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, HF_SECOND, AT(0));
        output_of(link_of(&rig, CALLS));
        feed_calls(&rig, cases[i].reply, AT(1));
        CHECK_OUTCOME(op, cases[i].code);
        CHECK_NOTHING_LEFT(AT(1));
        rig_end(&rig, AT(2));
    }
}

/* After a failover the server's name may lead to the new master. */
TEST(a_replicas_refusal_is_retried_once_over_a_new_connection) {
    for (int moved = 0; moved < 2; moved++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, 0, AT(0));
        output_of(link_of(&rig, CALLS));
        uint64_t opens = link_of(&rig, CALLS)->opens;
        feed_calls(&rig, READONLY, AT(1));
        CHECK_OUTCOME(op, "under way");
        rig_sleep(&rig, AT(1), AT(100));
        CHECK_EQ_U64(link_of(&rig, CALLS)->opens, opens + 1);
        CHECK(strstr(output_of(link_of(&rig, CALLS)), "acquire"));
        feed_calls(&rig, moved ? ACQUIRED : READONLY, AT(101));
        CHECK_OUTCOME(op, moved ? "ok" : "denied");
        if (!moved) CHECK_NOTHING_LEFT(AT(101));
        rig_end(&rig, AT(102));
    }
}

TEST(a_second_refusal_by_a_replica_soon_after_is_not_retried) {
    rig_begin(&rig);
    hf_op *first = begin_acquire(&rig, 0, AT(0));
    feed_calls(&rig, READONLY, AT(1));
    rig_sleep(&rig, AT(1), AT(50));
    feed_calls(&rig, READONLY, AT(50));
    CHECK_OUTCOME(first, "denied");
    uint64_t opens = link_of(&rig, CALLS)->opens;
    hf_op *second = begin_acquire(&rig, 0, AT(51));
    feed_calls(&rig, READONLY, AT(52));
    CHECK_OUTCOME(second, "denied");
    hf_op *third = begin_acquire(&rig, 0, AT(101));
    feed_calls(&rig, READONLY, AT(102));
    CHECK_OUTCOME(third, "under way");
    rig_sleep(&rig, AT(102), AT(200));
    CHECK_EQ_U64(link_of(&rig, CALLS)->opens, opens + 1);
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, READONLY, AT(201));
    CHECK_OUTCOME(third, "denied");
    CHECK_NOTHING_LEFT(AT(201));
    rig_end(&rig, AT(202));
}

/* The first copy may have been carried out; that the second was refused says nothing about it. */
TEST(an_error_after_a_lost_reply_is_undone) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(100));
    rig_tick(&rig, AT(200));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, "-NOPERM no\r\n", AT(201));
    CHECK_OUTCOME(op, "denied");
    CHECK_LEFT_IN_ORDER("", AT(201));
    rig_end(&rig, AT(300));
}

TEST(a_login_refused_after_a_lost_reply_is_undone) {
    hf_client_config config = rig_config();
    strcpy(config.session.server.password, "secret");
    rig_begin_with(&rig, &config);
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    feed_calls(&rig, "+OK\r\n", AT(0));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(100));
    rig_tick(&rig, AT(200));
    feed_calls(&rig, "-WRONGPASS no\r\n", AT(201));
    CHECK_OUTCOME(op, "denied");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_end(&rig, AT(300));
}

TEST(a_key_that_is_not_a_lock_is_a_conflict) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(0));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, "*1\r\n:-3\r\n", AT(1));
    CHECK_OUTCOME(op, "conflict");
    rig_end(&rig, AT(2));
}

TEST(a_malformed_reply_is_a_server_error_and_is_undone) {
    static const char *const replies[] = {
        "+OK\r\n",           ":1\r\n", "$-1\r\n", "*0\r\n", "*1\r\n:9\r\n", "*1\r\n$1\r\nx\r\n",
        "*1\r\n*1\r\n:1\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, HF_SECOND, AT(0));
        output_of(link_of(&rig, CALLS));
        feed_calls(&rig, replies[i], AT(1));
        CHECK_OUTCOME(op, "server");
        CHECK_LEFT_IN_ORDER("", AT(1));
        rig_end(&rig, AT(2));
    }
}

/* ---- waiting ---- */

TEST(a_waiter_is_queued_only_after_it_has_subscribed) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 10 * HF_SECOND, AT(0));
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    CHECK_SENT(&rig, EVENTS, "");
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    CHECK_STATE(op, SUBSCRIBING);
    CHECK_SENT(&rig, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    CHECK_SENT(&rig, CALLS, "");
    feed_subscribed(&rig, AT(2));
    CHECK_STATE(op, ASKING);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, busy(20000, 3, 0), AT(3));
    CHECK_STATE(op, WAITING);
    CHECK_EQ_U64(placed_at(op), AT(2));
    CHECK_EQ_U64(hf_client_stats(&rig.client).waits, 1);
    CHECK_EQ_INT(first_node(&rig.client)->waiting, 1);
    rig_end(&rig, AT(4));
}

TEST(a_waiter_subscribed_while_asking_asks_again_for_its_place) {
    rig_begin(&rig);
    hf_op *first = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    hf_session_closed(link_of(&rig, EVENTS), "reset", AT(10));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.caller = hf_slice_of("you");
    spec.wait = 10 * HF_SECOND;
    hf_op *second = hf_client_begin(&rig.client, &spec, AT(20));
    rig_tick(&rig, AT(30));
    feed_subscribed(&rig, AT(40));
    CHECK_STATE(second, ASKING);
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, busy(20000, 0, 0), AT(50));
    CHECK_STATE(second, ASKING); /* it was asked for without a place */
    CHECK(strstr(output_of(link_of(&rig, CALLS)), MEMBER("2")));
    CHECK_STATE(first, ASKING);
    rig_end(&rig, AT(60));
}

TEST(a_subscribed_client_queues_with_its_first_command) {
    rig_begin(&rig);
    hf_op *first = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.caller = hf_slice_of("you");
    spec.wait = 10 * HF_SECOND;
    hf_op *second = hf_client_begin(&rig.client, &spec, AT(20));
    CHECK(strstr(output_of(link_of(&rig, CALLS)), MEMBER("2")));
    CHECK_EQ_INT(first_node(&rig.client)->waiting, 2);
    feed_calls(&rig, busy(20000, 1, 0), AT(21));
    CHECK_STATE(second, WAITING);
    CHECK_STATE(first, WAITING);
    rig_end(&rig, AT(60));
}

/* A second caller of the client, which is subscribed already: it has a place with its first
 * command. */
static hf_op *begin_behind(uint32_t max_waiters, hf_time wait, hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.caller = hf_slice_of("you");
    spec.wait = wait;
    spec.sheds = true;
    spec.max_waiters = max_waiters;
    hf_op *op = begin_spec(&rig, &spec, now);
    output_of(link_of(&rig, CALLS));
    return op;
}

TEST(one_waiter_too_many_leaves_at_once) {
    rig_begin(&rig);
    wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    hf_op *op = begin_behind(2, HF_NEVER, AT(20));
    feed_calls(&rig, busy(20000, 2, 0), AT(21));
    CHECK_STATE(op, CANCELLING);
    CHECK(strstr(output_of(link_of(&rig, CALLS)), MEMBER("2")));
    feed_calls(&rig, ":0\r\n", AT(22));
    CHECK_OUTCOME(op, "busy");
    CHECK(strstr(message_of(op),
                 ": 2 already waiting in line, and max_waiters is 2; try again later"));
    CHECK_EQ_INT(first_node(&rig.client)->waiting, 1);
    rig_end(&rig, AT(60));
}

TEST(the_message_counts_one_waiter_in_the_singular) {
    rig_begin(&rig);
    wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    hf_op *op = begin_behind(1, HF_NEVER, AT(20));
    feed_calls(&rig, busy(20000, 1, 0), AT(21));
    feed_calls(&rig, ":0\r\n", AT(22));
    CHECK(strstr(message_of(op), ": 1 already waiting in line, and max_waiters is 1;"));
    rig_end(&rig, AT(60));
}

/* Waiters that were passed over come back before it. */
TEST(a_waiter_within_max_waiters_stays_queued) {
    rig_begin(&rig);
    wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    hf_op *op = begin_behind(2, HF_NEVER, AT(20));
    feed_calls(&rig, busy(20000, 1, 0), AT(21));
    CHECK_STATE(op, WAITING);
    set_recheck(op, AT(100));
    rig_sleep(&rig, AT(21), AT(100));
    CHECK_STATE(op, ASKING);
    feed_calls(&rig, busy(20000, 7, 0), AT(101));
    CHECK_STATE(op, WAITING);
    rig_end(&rig, AT(102));
}

TEST(a_fresh_grant_is_accepted_at_once) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, GRANT("1", "88"), AT(500));
    CHECK_OUTCOME(op, "ok");
    CHECK_SILENT(&rig);
    const hf_hold *hold = hold_of(&rig);
    CHECK(is_held(hold));
    CHECK_EQ_U64(token_of(hold), 88);
    CHECK_EQ_U64(ends_at(hold), AT(2 + 1978)); /* from the last recheck that found us waiting */
    CHECK(is_granted(hold) && wakes_at(hold) < ends_at(hold) && wakes_at(hold) > AT(500));
    CHECK_EQ_U64(hf_client_stats(&rig.client).grants, 1);
    CHECK_EQ_INT(first_node(&rig.client)->waiting, 0);
    rig_end(&rig, AT(501));
}

/* ---- a server whose users do not trust each other ---- */

static void begin_as_tenant(void) {
    hf_client_config config = rig_config();
    strcpy(config.tenant, "a:");
    rig_begin_with(&rig, &config);
}

TEST(a_tenant_accepts_a_grant_only_when_the_server_confirms_it) {
    begin_as_tenant();
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, GRANT("1", "88"), AT(500));
    CHECK_STATE(op, ASKING);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, busy(20000, 0, 0), AT(501)); /* it was forged */
    CHECK_STATE(op, WAITING);
    feed_message(&rig, GRANT("1", "88"), AT(600));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, ACQUIRED, AT(601));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(token_of(hold_of(&rig)), 77);
    CHECK(!is_granted(hold_of(&rig)));
    rig_end(&rig, AT(602));
}

TEST(forged_messages_make_a_waiter_ask_at_most_once_a_millisecond) {
    static const char *const messages[] = {GRANT("1", "88"), "1 grant l 1 7 88 2000 k",
                                           "1 recheck 1", "1 turn 1 0"};
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        int asked = 0;
        begin_as_tenant();
        hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
        for (hf_time at = AT(500); at < AT(600); at += 10000) { /* every 10 µs */
            feed_message(&rig, messages[i], at);
            rig_tick(&rig, at);
            if (!is_asking(op)) continue;
            asked++;
            feed_calls(&rig, busy(20000, 0, 0), at);
        }
        CHECK_OR(asked > 0 && asked <= 101, "%s: %d", messages[i], asked);
        rig_end(&rig, AT(600));
    }
}

TEST(a_tenant_subscribes_to_no_pattern) {
    begin_as_tenant();
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    rig_sleep(&rig, AT(3), AT(1000));
    CHECK_STATE(op, WAITING);
    hf_op_end(op, AT(1000));
    CHECK_SENT(&rig, EVENTS, "");
    rig_end(&rig, AT(1001));
}

/* Another client may grant for longer; this one has sent its own grant lease, and counts on
 * that. */
TEST(a_grant_counts_for_at_most_the_clients_own_grant_lease) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, "1 grant l 1 5 88 20000 k", AT(1000));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(ends_at(hold_of(&rig)), AT(2 + 1978));
    rig_end(&rig, AT(1001));
    rig_begin(&rig);
    op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, "1 grant l 1 5 88 1500 k", AT(500));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(ends_at(hold_of(&rig)), AT(2 + 1483));
    rig_end(&rig, AT(1001));
}

TEST(an_old_grant_is_confirmed_before_it_is_accepted) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, GRANT("1", "88"), AT(1740)); /* less than a quarter is left */
    CHECK_STATE(op, ASKING);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, ACQUIRED, AT(1741));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(token_of(hold_of(&rig)), 77);
    CHECK_EQ_U64(ends_at(hold_of(&rig)), AT(1740 + 29698));
    CHECK(!is_granted(hold_of(&rig)));
    rig_end(&rig, AT(2000));
}

/* One with another place may be an old one: only a recheck can show. The others are not for this
 * wait. */
TEST(a_grant_for_another_wait_is_not_accepted) {
    static const struct {
        const char *text;
        bool looks;
    } cases[] = {{"1 grant l 1 4 88 2000 k", true},      {"1 grant l 1 51 88 2000 k", true},
                 {"1 grant l 1  88 2000 k", true},       {"1 grant l 1 5 88 2000 K", false},
                 {"1 grant l 1 5 88 2000 kk", false},    {"1 grant l 1 5 88 2000 {k}", false},
                 {"1 grant m 1 5 88 2000 k", false},     {"1 grant g 1 5 88 2000 k", false},
                 {"2 grant l 1 5 88 2000 k", false},     {"grant 1 88 2000 0 2 mek", false},
                 {"1 grant l 1 5 88 2000 k more", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
        feed_message(&rig, cases[i].text, AT(100));
        CHECK_OR(op_state(op) == (cases[i].looks ? HF_ACQUIRE_ASKING : HF_ACQUIRE_WAITING),
                 "\"%s\"", cases[i].text);
        CHECK_SENT(&rig, CALLS, cases[i].looks ? ASK_OF_K("0", "0", MEMBER("1")) : "");
        if (cases[i].looks) feed_calls(&rig, busy(20000, 0, 0), AT(101));
        rig_tick(&rig, AT(102));
        CHECK_STATE(op, WAITING);
        feed_message(&rig, GRANT("1", "88"), AT(103));
        CHECK_OUTCOME(op, "ok");
        rig_end(&rig, AT(1001));
    }
}

/* The first sending of a recheck lost the place and made a new one; the second reply names only
 * the new one. */
TEST(a_grant_of_a_place_lost_meanwhile_is_not_accepted) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    rig_sleep(&rig, AT(3), AT(2000)); /* it was granted at AT(100), and the message was lost */
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(2601)); /* another owner has the lock */
    rig_sleep(&rig, AT(2601), AT(2800));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, "*5\r\n:0\r\n:29000\r\n:0\r\n:0\r\n$1\r\n4\r\n", AT(2801));
    CHECK_STATE(op, WAITING);
    feed_message(&rig, GRANT("1", "77"), AT(2802)); /* that of AT(100) */
    CHECK_OUTCOME(op, "under way");
    CHECK_STATE(op, ASKING);
    feed_calls(&rig, "*5\r\n:0\r\n:29000\r\n:0\r\n:0\r\n$1\r\n4\r\n", AT(2803));
    feed_message(&rig, "1 grant l 1 4 78 2000 k", AT(2900));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(token_of(hold_of(&rig)), 78);
    CHECK_EQ_U64(ends_at(hold_of(&rig)), AT(2802 + 1978));
    rig_end(&rig, AT(2900));
}

/* After a reply that names no place, or one that no server writes, no grant is accepted. */
TEST(a_grant_is_not_accepted_without_a_known_place) {
    static const char *const replies[] = {
        "*4\r\n:0\r\n:20000\r\n:0\r\n:0\r\n", "*5\r\n:0\r\n:20000\r\n:0\r\n:0\r\n:5\r\n",
        "*5\r\n:0\r\n:20000\r\n:0\r\n:0\r\n$-1\r\n",
        "*5\r\n:0\r\n:20000\r\n:0\r\n:0\r\n$32\r\n55555555555555555555555555555555\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        rig_begin(&rig);
        hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
        rig_sleep(&rig, AT(3), AT(2000));
        feed_calls(&rig, replies[i], AT(2001));
        CHECK_STATE(op, WAITING);
        feed_message(&rig, GRANT("1", "77"), AT(2002));
        CHECK_STATE(op, ASKING);
        rig_end(&rig, AT(2003));
    }
}

TEST(an_acquire_does_not_wait_behind_a_waiter_of_a_newer_format) {
    for (int queued = 0; queued < 2; queued++) {
        rig_begin(&rig);
        hf_op *op = queued ? wait_in_queue(&rig, 10 * HF_SECOND, AT(0))
                           : begin_acquire(&rig, 10 * HF_SECOND, AT(0));
        if (queued) rig_sleep(&rig, AT(3), AT(2000));
        output_of(link_of(&rig, CALLS));
        feed_calls(&rig, "*1\r\n:-4\r\n", AT(2000));
        CHECK_OUTCOME(op, "conflict");
        CHECK(strstr(message_of(op), "incompatible version of holdfast is waiting for it"));
        rig_tick(&rig, AT(2001));
        CHECK_SENT(&rig, CALLS, queued ? LEAVE_OF_K("0", MEMBER("1")) : "");
        CHECK_EQ_INT(state_of(&rig), queued ? (int)HF_HOLD_CLEANING_UP : -1);
        rig_end(&rig, AT(2002));
    }
}

TEST(a_waiter_granted_without_a_token_asks_for_one) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, GRANT("1", "0"), AT(100));
    CHECK_STATE(op, ASKING);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    rig_end(&rig, AT(2000));
}

/* Asks for a place, which the server enters and grants before its reply arrives. */
static hf_op *feed_early_grant(const char *grant, hf_time now) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 10 * HF_SECOND, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    output_of(link_of(&rig, CALLS));
    feed_message(&rig, grant, now);
    return op;
}

TEST(a_grant_that_overtakes_the_reply_naming_its_place_is_accepted) {
    hf_op *op = feed_early_grant(GRANT("1", "88"), AT(3));
    CHECK_STATE(op, ASKING);
    feed_calls(&rig, busy(20000, 0, 0), AT(4));
    CHECK_OUTCOME(op, "ok");
    CHECK_SENT(&rig, CALLS, "");
    CHECK_EQ_U64(token_of(hold_of(&rig)), 88);
    CHECK_EQ_U64(ends_at(hold_of(&rig)), AT(2 + 1978)); /* from the sending of that command */
    CHECK(is_granted(hold_of(&rig)));
    CHECK_EQ_U64(hf_client_stats(&rig.client).grants, 1);
    rig_end(&rig, AT(6));
}

/* The reply was made before the grant or after it; only a recheck can show. */
TEST(an_early_grant_for_another_place_makes_the_waiter_ask_once) {
    hf_op *op = feed_early_grant("1 grant l 1 4 88 2000 k", AT(3));
    feed_calls(&rig, busy(20000, 0, 0), AT(4));
    rig_tick(&rig, AT(4));
    CHECK_STATE(op, ASKING);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, busy(20000, 0, 0), AT(5));
    rig_tick(&rig, AT(6));
    CHECK_STATE(op, WAITING);
    rig_end(&rig, AT(6));
}

/* The server that granted may have failed since, and its successor not know of that. */
TEST(an_early_grant_from_before_a_resend_is_confirmed) {
    hf_op *op = feed_early_grant(GRANT("1", "88"), AT(3));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(4));
    rig_sleep(&rig, AT(4), AT(200));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, busy(20000, 0, 0), AT(201));
    rig_tick(&rig, AT(202));
    CHECK_STATE(op, ASKING);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    rig_end(&rig, AT(203));
}

TEST(the_reply_decides_about_a_grant_received_while_asking) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    rig_sleep(&rig, AT(3), AT(2000)); /* rechecks */
    CHECK_STATE(op, ASKING);
    output_of(link_of(&rig, CALLS));
    feed_message(&rig, GRANT("1", "88"), AT(2000));
    CHECK_OUTCOME(op, "under way");
    feed_calls(&rig, ACQUIRED, AT(2001));
    CHECK_OUTCOME(op, "ok");
    CHECK(!is_granted(hold_of(&rig)));
    CHECK_SENT(&rig, CALLS, "");
    CHECK_SENT(&rig, RENEWER, "");
    rig_end(&rig, AT(2002));
}

TEST(a_waiter_rechecks_every_two_seconds) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 100 * HF_SECOND, AT(0));
    rig_tick(&rig, AT(150)); /* listens to Redisson's releases from then on */
    for (hf_time now = AT(3); now < AT(20000);) {
        hf_time next = hf_op_deadline(op);
        CHECK(next - now >= 1800 * HF_MS && next - now <= 2000 * HF_MS);
        rig_tick(&rig, next - 1);
        CHECK_SENT(&rig, CALLS, "");
        rig_tick(&rig, next);
        CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
        feed_calls(&rig, busy(20000, 0, 0), next);
        now = next;
    }
    CHECK_EQ_U64(wait_number_of(op), 1); /* always the same place */
    CHECK(hf_client_stats(&rig.client).rechecks >= 9);
    rig_end(&rig, AT(30000));
}

TEST(a_waiter_rechecks_when_the_holders_lease_ends) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 100 * HF_SECOND, AT(0));
    feed_message(&rig, "1 turn 1 50", AT(10));
    rig_sleep(&rig, AT(10), AT(70));
    feed_calls(&rig, busy(300, 0, 0), AT(100));
    CHECK_EQ_U64(rechecks_at(op), AT(401));
    rig_end(&rig, AT(500));
    rig_begin(&rig);
    op = begin_acquire(&rig, 100 * HF_SECOND, AT(0));
    feed_calls(&rig, busy(300, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(300, 4, 0), AT(3));
    CHECK_EQ_U64(rechecks_at(op), AT(3 + 301 + 20)); /* after those ahead */
    rig_end(&rig, AT(500));
}

TEST(a_waiter_behind_many_others_rechecks_less_often) {
    static const struct {
        int ahead, least_ms, most_ms;
    } cases[] = {{0, 1800, 2000},      {199, 1800, 2000},       {200, 3600, 4000},
                 {1000, 18000, 20000}, {1000000, 27000, 30000}, {2000000000, 27000, 30000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
        feed_calls(&rig, busy(900000000, 0, 0), AT(0));
        feed_subscribed(&rig, AT(0));
        feed_calls(&rig, busy(900000000, cases[i].ahead, 0), AT(0));
        CHECK_STATE(op, WAITING);
        CHECK_OR(rechecks_at(op) >= AT(cases[i].least_ms) &&
                     rechecks_at(op) <= AT(cases[i].most_ms),
                 "%d ahead: %llu", cases[i].ahead, (unsigned long long)(rechecks_at(op) - AT(0)));
        rig_end(&rig, AT(1));
    }
}

/* In nanoseconds such a TTL does not fit. */
TEST(a_huge_ttl_does_not_make_a_waiter_recheck_constantly) {
    static const char *const ttls[] = {"18446744073709", "18446744073710", "9223372036854775807"};
    for (size_t i = 0; i < sizeof ttls / sizeof *ttls; i++) {
        char answer[96];
        snprintf(answer, sizeof answer, "*5\r\n:0\r\n:%s\r\n:0\r\n:0\r\n$1\r\n" PLACE "\r\n",
                 ttls[i]);
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
        feed_calls(&rig, answer, AT(0));
        feed_subscribed(&rig, AT(0));
        feed_calls(&rig, answer, AT(0));
        CHECK_STATE(op, WAITING);
        CHECK(rechecks_at(op) >= AT(1800) && rechecks_at(op) <= AT(2000));
        rig_end(&rig, AT(1));
        rig_begin(&rig);
        op = begin_acquire(&rig, 0, AT(0));
        feed_calls(&rig, answer, AT(1));
        CHECK_OUTCOME(op, "busy");
        CHECK(busy_until(op) == HF_NEVER);
        CHECK(strstr(message_of(op), "s more unless") && !strstr(message_of(op), " 0.000 s"));
        rig_end(&rig, AT(2));
    }
}

/* A foreign key, of the same kind: it is one hold, not a new one each time. */
TEST(behind_a_foreign_holder_with_a_huge_ttl_rechecks_get_rarer) {
    static const char answer[] =
        "*5\r\n:0\r\n:9223372036854775807\r\n:0\r\n:1\r\n$1\r\n" PLACE "\r\n";
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_mutex;
    spec.wait = HF_NEVER;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, answer, AT(1));
    feed_subscribed(&rig, AT(2));
    hf_time now = AT(3), longest = 0;
    for (int i = 0; i < 100; i++) {
        feed_calls(&rig, answer, now);
        longest = hf_time_max(longest, rechecks_at(op) - now);
        now = rechecks_at(op);
        rig_tick(&rig, now);
    }
    CHECK(longest > 60 * HF_MS);
    rig_end(&rig, now);
}

TEST(a_waiter_rechecks_a_holder_without_a_ttl_too) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    feed_calls(&rig, busy(-1, 0, 0), AT(0));
    feed_subscribed(&rig, AT(0));
    feed_calls(&rig, busy(-1, 0, 0), AT(0));
    CHECK(rechecks_at(op) >= AT(1800) && rechecks_at(op) <= AT(2000));
    rig_end(&rig, AT(1));
}

TEST(a_waiter_rechecks_at_the_end_of_a_turn) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, "1 turn 1 50", AT(100));
    CHECK_STATE(op, WAITING);
    CHECK_EQ_U64(rechecks_at(op), AT(151));
    CHECK_SENT(&rig, EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    feed_message(&rig, "1 turn 1 18446744073709551615", AT(110));
    CHECK_EQ_U64(rechecks_at(op), AT(151));
    CHECK_SENT(&rig, EVENTS, "");
    rig_tick(&rig, AT(151));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    rig_end(&rig, AT(200));
}

TEST(a_turn_that_begins_while_a_waiter_asks_makes_it_recheck) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, "1 recheck 1", AT(10));
    rig_tick(&rig, AT(10));
    CHECK_STATE(op, ASKING);
    feed_message(&rig, "1 turn 1 50", AT(11));
    feed_calls(&rig, busy(20000, 0, 0), AT(12));
    CHECK_STATE(op, WAITING);
    CHECK_EQ_U64(rechecks_at(op), AT(12));
    rig_end(&rig, AT(20));
}

TEST(a_waiter_rechecks_often_during_a_turn_of_polling_clients) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    feed_message(&rig, "1 turn 1 20", AT(10));
    rig_tick(&rig, AT(31));
    feed_calls(&rig, busy(229, 0, 1), AT(31)); /* free */
    CHECK(rechecks_at(op) > AT(31) && rechecks_at(op) <= AT(62));
    rig_tick(&rig, AT(62));
    feed_calls(&rig, busy(30000, 0, 1), AT(62)); /* one of them has it */
    CHECK(rechecks_at(op) > AT(62) && rechecks_at(op) <= AT(93));
    rig_tick(&rig, AT(93));
    feed_calls(&rig, busy(30000, 0, 0), AT(93)); /* ours */
    CHECK(rechecks_at(op) >= AT(1800));
    feed_message(&rig, "1 turn 1 50", AT(100));
    rig_tick(&rig, AT(151));
    feed_calls(&rig, busy(30000, 0, 1), AT(151)); /* one that announces its release */
    CHECK(rechecks_at(op) >= AT(151 + 675) && rechecks_at(op) <= AT(151 + 750));
    rig_end(&rig, AT(200));
}

TEST(a_later_waiter_rechecks_when_the_first_one_is_overdue) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    feed_message(&rig, "1 recheck 1", AT(10));
    rig_tick(&rig, AT(10));
    feed_calls(&rig, "*6\r\n:0\r\n:30000\r\n:2\r\n:1\r\n$1\r\n" PLACE "\r\n:400\r\n", AT(20));
    CHECK(rechecks_at(op) == AT(20 + 400 + 1 + 2 * 5));
    rig_end(&rig, AT(200));
}

TEST(the_first_waiter_behind_a_foreign_holder_listens_for_foreign_releases) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 10 * HF_SECOND, AT(0));
    feed_calls(&rig, busy(20000, 0, 1), AT(1));
    feed_subscribed(&rig, AT(2));
    output_of(link_of(&rig, EVENTS));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, busy(20000, 0, 1), AT(3));
    CHECK_SENT(&rig, EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    feed_event(&rig, "psubscribe", "redisson_lock__channel:{k}", "2",
               AT(4)); /* a release may have come before it */
    CHECK_EQ_U64(rechecks_at(op), AT(4));
    rig_tick(&rig, AT(4));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, busy(20000, 0, 1), AT(5));
    feed(link_of(&rig, EVENTS),
         "*4\r\n$8\r\npmessage\r\n$26\r\nredisson_lock__channel:{k}\r\n$26\r\nredisson_lock__"
         "channel:{k}\r\n$1\r\n0\r\n",
         AT(10));
    CHECK_EQ_U64(rechecks_at(op), AT(10));
    rig_tick(&rig, AT(10));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, ACQUIRED, AT(11));
    CHECK_OUTCOME(op, "ok");
    CHECK_SENT(&rig, EVENTS, "PUNSUBSCRIBE redisson_lock__channel:{k}");
    rig_end(&rig, AT(20));
}

TEST(the_end_of_a_subscription_causes_no_recheck) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    rig_tick(&rig, AT(150));
    CHECK_SENT(&rig, EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    feed_event(&rig, "punsubscribe", "redisson_lock__channel:{k}", "1", AT(152));
    CHECK(rechecks_at(op) > AT(1000));
    rig_end(&rig, AT(200));
}

TEST(the_first_waiter_behind_our_holder_listens_for_foreign_releases_later) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    CHECK_EQ_U64(hf_op_deadline(op), AT(150));
    CHECK_SENT(&rig, EVENTS, "");
    rig_tick(&rig, AT(150));
    CHECK_SENT(&rig, CALLS, "");
    CHECK_SENT(&rig, EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    CHECK(hf_op_deadline(op) >= AT(1800));
    feed_event(&rig, "psubscribe", "redisson_lock__channel:{k}", "2", AT(152));
    CHECK_EQ_U64(rechecks_at(op), AT(152));
    rig_end(&rig, AT(200));
}

TEST(a_waiter_behind_others_does_not_listen_for_foreign_releases) {
    rig_begin(&rig);
    begin_acquire(&rig, 10 * HF_SECOND, AT(0));
    feed_calls(&rig, busy(20000, 0, 1), AT(1));
    feed_subscribed(&rig, AT(2));
    output_of(link_of(&rig, EVENTS));
    feed_calls(&rig, busy(20000, 1, 1), AT(3));
    CHECK_SENT(&rig, EVENTS, "");
    rig_end(&rig, AT(20));
}

TEST(a_waiter_rechecks_at_most_once_a_millisecond) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, "1 turn 1 0", AT(3));
    int looks = 0;
    for (int us = 4000; us < 14000; us += 10) {
        hf_time now = AT(0) + (hf_time)us * 1000;
        feed(link_of(&rig, EVENTS),
             "*4\r\n$8\r\npmessage\r\n$26\r\nredisson_lock__channel:{k}\r\n$26\r\nredisson_lock__"
             "channel:{k}\r\n$1\r\n0\r\n",
             now);
        rig_tick(&rig, now);
        bool asks = output_of(link_of(&rig, CALLS))[0] != '\0';
        looks += asks;
        if (asks) feed_calls(&rig, busy(20000, 0, 1), now);
    }
    CHECK_OR(looks >= 9 && looks <= 11, "%d looks", looks);
    CHECK_STATE(op, WAITING);
    rig_end(&rig, AT(20));
}

/* ---- the events link ---- */

TEST(a_waiter_rechecks_when_its_events_link_is_back) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, "1 turn 1 1000", AT(5));
    output_of(link_of(&rig, EVENTS));
    hf_session_closed(link_of(&rig, EVENTS), "reset", AT(10));
    CHECK_STATE(op, WAITING);
    rig_tick(&rig, AT(20));
    CHECK_SENT(&rig, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    CHECK_SENT(&rig, CALLS, "");
    feed_subscribed(&rig, AT(21));
    CHECK_SENT(&rig, EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
    feed_calls(&rig, ACQUIRED, AT(22));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(30));
}

TEST(an_acquire_ends_within_a_second_of_its_wait_though_no_leave_is_answered) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 500 * HF_MS, AT(0));
    rig_sleep(&rig, AT(4), AT(1399));
    CHECK_OUTCOME(op, "under way");
    rig_sleep(&rig, AT(1399), AT(1400));
    CHECK_OUTCOME(op, "unreachable");
    rig_end(&rig, AT(1400));
}

/* The last reply, which comes behind the wait, uses up a part of the second. */
TEST(a_late_last_reply_leaves_an_acquire_less_time_to_leave_its_queue) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 500 * HF_MS, AT(0));
    feed_message(&rig, "1 recheck l 1 0 k", AT(499));
    rig_tick(&rig, AT(499));
    feed_calls(&rig, busy(20000, 0, 0), AT(590));
    rig_sleep(&rig, AT(590), AT(1399));
    rig_sleep(&rig, AT(1399), AT(1400));
    CHECK(hf_op_is_done(op));
    rig_end(&rig, AT(1400));
}

TEST(a_wait_that_is_found_over_long_after_its_end_is_busy) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 500 * HF_MS, AT(0));
    rig_tick(&rig, AT(80000)); /* the process was stopped */
    rig_tick(&rig, AT(80001));
    feed_calls(&rig, ":1\r\n", AT(80001));
    CHECK_OUTCOME(op, "busy");
    rig_end(&rig, AT(80001));
}

TEST(a_waiter_without_its_events_link_keeps_rechecking) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 60 * HF_SECOND, AT(0));
    hf_session_closed(link_of(&rig, EVENTS), "reset", AT(10));
    int looks = 0;
    for (int ms = 10; ms < 10000; ms += 5) {
        if (hf_session_wants(link_of(&rig, EVENTS), AT(ms)) == HF_WANT_OPEN) {
            hf_session_opening(link_of(&rig, EVENTS), AT(ms));
            hf_session_closed(link_of(&rig, EVENTS), "refused", AT(ms));
        }
        hf_client_tick(&rig.client, AT(ms));
        if (output_of(link_of(&rig, CALLS))[0] == '\0') continue;
        looks++;
        feed(link_of(&rig, CALLS), busy(20000, 0, 0), AT(ms));
    }
    CHECK_OR(looks >= 4 && looks <= 6, "%d looks", looks);
    CHECK_STATE(op, SUBSCRIBING);
    rig_end(&rig, AT(10000));
}

/* A wait must not be without success because the server allows one connection less than we would
 * like. */
TEST(a_waiter_acquires_a_freed_lock_without_an_events_link) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    feed(link_of(&rig, CALLS), busy(5000, 0, 0), AT(1));
    output_of(link_of(&rig, CALLS));
    bool asked = false;
    for (int ms = 1; ms < 8000 && !asked; ms += 5) {
        if (hf_session_wants(link_of(&rig, EVENTS), AT(ms)) == HF_WANT_OPEN) {
            hf_session_opening(link_of(&rig, EVENTS), AT(ms));
            hf_session_closed(link_of(&rig, EVENTS), "refused", AT(ms));
        }
        hf_client_tick(&rig.client, AT(ms));
        asked = strcmp(output_of(link_of(&rig, CALLS)), BRIEF_ASK_OF_K) == 0;
    }
    CHECK(asked);
    feed(link_of(&rig, CALLS), ACQUIRED, AT(8000));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(10000));
}

TEST(a_refused_subscription_is_reported) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 10 * HF_SECOND, AT(0));
    feed_calls(&rig, busy(5000, 0, 0), AT(1));
    feed(link_of(&rig, EVENTS),
         "-NOPERM this user has no permissions to access one of the channels\r\n", AT(2));
    CHECK_OUTCOME(op, "denied");
    CHECK_EQ_INT(first_node(&rig.client)->waiting, 0);
    rig_end(&rig, AT(10));
}

TEST(a_subscription_refused_for_now_is_retried) {
    static const char *const errors[] = {
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-ERR max number of clients reached\r\n",
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        rig_begin(&rig);
        hf_op *op = wait_in_queue(&rig, 60 * HF_SECOND, AT(0));
        hf_session *events = link_of(&rig, EVENTS);
        hf_session_closed(events, "reset", AT(10));
        for (int times = 1; times <= 3; times++) {
            rig_tick(&rig, hf_time_max(AT(10), events->retry_at));
            CHECK_SENT(&rig, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
            feed(events, errors[i], events->opened_at + HF_MS);
            rig_serve(&rig, events->opened_at + HF_MS);
            CHECK_STATE(op, WAITING);
            CHECK_EQ_INT(events->failed_opens, times);
            CHECK(events->retry_at > events->opened_at + HF_MS);
        }
        CHECK_SENT(&rig, CALLS, "");
        rig_tick(&rig, events->retry_at);
        CHECK_SENT(&rig, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
        feed_subscribed(&rig, events->opened_at);
        CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", MEMBER("1")));
        rig_end(&rig, events->opened_at);
    }
}

TEST(a_waiter_goes_on_when_its_pattern_is_refused) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, "1 turn 1 50", AT(5));
    feed(link_of(&rig, EVENTS),
         "-NOPERM this user has no permissions to access one of the channels\r\n", AT(6));
    CHECK_STATE(op, WAITING);
    output_of(link_of(&rig, CALLS));
    rig_tick(&rig, AT(56));
    feed_calls(&rig, ACQUIRED, AT(57));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(57));
    op = begin(&rig, HF_OP_RELEASE, AT(57));
    feed_calls(&rig, ":1\r\n", AT(57));
    hf_op_end(op, AT(57));
    output_of(link_of(&rig, EVENTS));
    op = begin_acquire(&rig, 10 * HF_SECOND, AT(58)); /* the pattern is not asked for again */
    feed_calls(&rig, busy(20000, 0, 1), AT(58));
    CHECK_STATE(op, WAITING);
    CHECK_SENT(&rig, EVENTS, "");
    rig_end(&rig, AT(60));
}

TEST(a_refused_login_of_the_events_link_is_reported) {
    hf_client_config config = rig_config();
    strcpy(config.session.server.password, "secret");
    rig_begin_with(&rig, &config);
    hf_op *op = begin_acquire(&rig, 10 * HF_SECOND, AT(0));
    feed_calls(&rig, "+OK\r\n", AT(0));
    feed_calls(&rig, busy(5000, 0, 0), AT(1));
    feed(link_of(&rig, EVENTS), "-WRONGPASS no\r\n", AT(2));
    rig_serve(&rig, AT(2));
    CHECK_OUTCOME(op, "denied");
    rig_end(&rig, AT(10));
}

/* ---- the end of the wait ---- */

TEST(a_waiter_leaves_the_queue_when_its_wait_ends) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    rig_sleep(&rig, AT(3), AT(999));
    CHECK_STATE(op, WAITING);
    rig_tick(&rig, AT(1000));
    CHECK_STATE(op, CANCELLING);
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", MEMBER("1")));
    feed_calls(&rig, ":0\r\n", AT(1001));
    CHECK_OUTCOME(op, "busy");
    CHECK_NOTHING_LEFT(AT(1001));
    rig_end(&rig, AT(1002));
}

TEST(a_lock_granted_to_a_leaving_waiter_was_passed_on) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    rig_tick(&rig, AT(1000));
    output_of(link_of(&rig, CALLS));
    feed_message(&rig, GRANT("1", "88"), AT(1001));
    CHECK_STATE(op, CANCELLING);
    feed_calls(&rig, ":1\r\n", AT(1002));
    CHECK_OUTCOME(op, "busy");
    CHECK_NOTHING_LEFT(AT(1002));
    rig_end(&rig, AT(1003));
}

TEST(the_wait_ends_before_the_subscription) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(0));
    feed_calls(&rig, busy(5000, 0, 0), AT(1));
    output_of(link_of(&rig, CALLS));
    rig_tick(&rig, AT(1000));
    CHECK_OUTCOME(op, "busy");
    CHECK_NOTHING_LEFT(AT(1000));
    rig_end(&rig, AT(1003));
}

TEST(the_wait_ends_while_asking) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(0));
    feed_calls(&rig, busy(5000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    output_of(link_of(&rig, CALLS));
    CHECK_STATE(op, ASKING);
    rig_sleep(&rig, AT(2), AT(1000)); /* no answer at all */
    CHECK_OUTCOME(op, "unreachable");
    CHECK_LEFT_BEHIND(ACQUIRED, MEMBER("1"), AT(1000));
    rig_end(&rig, AT(1003));
}

TEST(a_busy_reply_after_the_wait_makes_the_waiter_leave) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 1900 * HF_MS, AT(0));
    feed_message(&rig, GRANT("1", "0"), AT(1890));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, busy(5000, 0, 0),
               AT(1920)); /* the patience of the question is a little longer */
    CHECK_STATE(op, CANCELLING);
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", MEMBER("1")));
    feed_calls(&rig, ":0\r\n", AT(1921));
    CHECK_OUTCOME(op, "busy");
    rig_end(&rig, AT(2000));
}

TEST(a_lock_acquired_just_after_the_wait_counts) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 1900 * HF_MS, AT(0));
    feed_message(&rig, GRANT("1", "0"), AT(1890));
    feed_calls(&rig, ACQUIRED, AT(1920));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(2000));
}

TEST(a_leave_without_a_reply_goes_on_in_the_background) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    rig_tick(&rig, AT(1000));
    output_of(link_of(&rig, CALLS));
    rig_sleep(&rig, AT(1000), AT(2000));
    CHECK_OUTCOME(op, "unreachable"); /* the server is silent, which is not "busy" */
    CHECK_LEFT_BEHIND(":0\r\n", MEMBER("1"), AT(2000));
    rig_end(&rig, AT(3000));
}

/* Servers close idle connections; that says nothing about whether they can be reached. */
TEST(a_closed_idle_connection_does_not_make_the_server_unreachable) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    hf_session_closed(link_of(&rig, CALLS), "the server closed the connection", AT(500));
    rig_tick(&rig, AT(1000));
    rig_tick(&rig, AT(1001));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", MEMBER("1")));
    feed_calls(&rig, ":0\r\n", AT(1002));
    CHECK_OUTCOME(op, "busy");
    rig_end(&rig, AT(3000));
}

TEST(a_server_lost_during_the_wait_is_unreachable_at_its_end) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    rig.refusing = true;
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(500));
    hf_session_closed(link_of(&rig, EVENTS), "reset", AT(500));
    rig_sleep(&rig, AT(500), AT(999));
    CHECK_OUTCOME(op, "under way");
    hf_client_tick(&rig.client, AT(1000));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    CHECK_EQ_U64(wait_of_hold(hold_of(&rig)), 1);
    rig_end(&rig, AT(3000));
}

TEST(an_endless_wait_survives_a_minute_without_the_server) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    rig.refusing = true;
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(500));
    hf_session_closed(link_of(&rig, EVENTS), "reset", AT(500));
    int wakes = rig_sleep(&rig, AT(500), AT(60000));
    CHECK_OUTCOME(op, "under way");
    CHECK_OR(wakes < 600, "%d wakes", wakes);
    rig.refusing = false;
    rig_sleep(&rig, AT(60000), AT(62000));
    feed_calls(&rig, ACQUIRED, AT(62000));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(63000));
}

/* ---- interrupted ---- */

TEST(interrupted_in_the_queue) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    hf_op_interrupt(op, AT(100));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", MEMBER("1")));
    feed_calls(&rig, ":0\r\n", AT(101));
    CHECK_OUTCOME(op, "interrupted");
    CHECK_NOTHING_LEFT(AT(101));
    rig_end(&rig, AT(102));
}

TEST(interrupted_before_the_subscription) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    feed_calls(&rig, busy(5000, 0, 0), AT(1));
    output_of(link_of(&rig, CALLS));
    hf_op_interrupt(op, AT(100));
    CHECK_OUTCOME(op, "interrupted");
    CHECK_NOTHING_LEFT(AT(101));
    rig_end(&rig, AT(102));
}

TEST(interrupted_while_asking_the_reply_decides) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    hf_op_interrupt(op, AT(1));
    feed_calls(&rig, ACQUIRED, AT(2));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(102));
    rig_begin(&rig);
    op = begin_acquire(&rig, HF_NEVER, AT(0));
    hf_op_interrupt(op, AT(1));
    feed_calls(&rig, busy(5000, 0, 0), AT(2));
    CHECK_OUTCOME(op, "interrupted");
    rig_end(&rig, AT(102));
}

/* The question of a waiter in the queue has no deadline of its own: a signal must still end it. */
TEST(interrupted_while_asking_an_unreachable_server) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    rig.refusing = true;
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(500));
    hf_session_closed(link_of(&rig, EVENTS), "reset", AT(500));
    rig_sleep(&rig, AT(500), AT(5000));
    CHECK_STATE(op, ASKING);
    hf_op_interrupt(op, AT(5000));
    hf_op_interrupt(op, AT(5050)); /* as often as the driver likes */
    rig_sleep(&rig, AT(5050), AT(5100));
    CHECK_OUTCOME(op, "interrupted");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_end(&rig, AT(6000));
}

TEST(interrupted_behind_a_command_of_the_renewer) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK(is_in_flight(hold));
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(10001));
    CHECK_STATE(op, BLOCKED);
    hf_op_interrupt(op, AT(10002));
    CHECK_OUTCOME(op, "interrupted");
    CHECK(is_held(hold));
    rig_end(&rig, AT(10003));
}

TEST(an_interrupt_after_the_end_changes_nothing) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    feed_calls(&rig, ACQUIRED, AT(1));
    hf_op_interrupt(op, AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    rig_end(&rig, AT(3));
}

/* ---- abandoned ---- */

TEST(abandoned_while_asking) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(0));
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    hf_op_end(op, AT(1));
    rig_tick(&rig, AT(1));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", "")); /* behind the question, over the same link */
    CHECK_SENT(&rig, RENEWER, "");
    feed_calls(&rig, ACQUIRED ":1\r\n", AT(2)); /* nobody waits for this reply */
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(3));
}

TEST(abandoned_before_the_subscription) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(0));
    feed_calls(&rig, busy(5000, 0, 0), AT(1));
    output_of(link_of(&rig, CALLS));
    hf_op_end(op, AT(2));
    CHECK_EQ_INT(first_node(&rig.client)->waiting, 0);
    rig_sleep(&rig, AT(2), AT(1000));
    CHECK_EQ_INT(link_of(&rig, EVENTS)->state, HF_SESSION_CLOSED);
    rig_end(&rig, AT(1000));
}

TEST(abandoned_in_the_queue) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    hf_op_end(op, AT(10));
    CHECK_LEFT_IN_ORDER(MEMBER("1"), AT(10));
    rig_end(&rig, AT(20));
}

TEST(abandoned_while_leaving) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    rig_tick(&rig, AT(1000));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", MEMBER("1")));
    hf_op_end(op, AT(1001));
    rig_tick(&rig, AT(1001));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", MEMBER("1")));
    feed_calls(&rig, ":0\r\n:0\r\n", AT(1002));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(1003));
}

TEST(abandoned_before_anything_was_sent) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
    hf_op_end(op, AT(1));
    rig_sleep(&rig, AT(1), AT(100));
    feed_calls(&rig, ":0\r\n", AT(100));
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(200));
}

/* ---- re-entry ---- */

TEST(a_re_entry_adds_to_the_count_and_renews_the_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(1000));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("1", "0", ""));
    CHECK(hf_hold_is_valid(hold, AT(1000)));
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(1001));
    CHECK_OUTCOME(op, "ok");
    CHECK(hold_in(op) == hold);
    CHECK_EQ_INT(count_of(hold), 2);
    CHECK_EQ_U64(token_of(hold), 77);
    CHECK_EQ_U64(ends_at(hold), AT(30698));
    CHECK_EQ_U64(wakes_at(hold), AT(11000));
    CHECK_EQ_U64(hf_client_stats(&rig.client).reentries, 1);
    rig_end(&rig, AT(2000));
}

TEST(a_shorter_re_entry_keeps_the_longer_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lease = HF_SECOND;
    spec.renewed = false;
    hf_client_begin(&rig.client, &spec, AT(1000));
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(1001));
    CHECK_EQ_U64(lease_of(hold), 30 * HF_SECOND);
    CHECK_EQ_U64(ends_at(hold), AT(29698));
    CHECK(is_renewed(hold));
    CHECK(wakes_at(hold) <= AT(11000));
    rig_end(&rig, AT(2000));
}

/* A short lease does not refresh a longer TTL; so it must not put off the renewal either. */
TEST(repeated_short_re_entries_do_not_delay_the_renewal) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    for (int ms = 500; ms < 60000; ms += 500) {
        rig_sleep(&rig, AT(ms - 500), AT(ms));
        if (output_of(link_of(&rig, RENEWER))[0] != '\0')
            feed(link_of(&rig, RENEWER), "*1\r\n:1\r\n", AT(ms));
        CHECK(hf_hold_is_valid(hold, AT(ms)));
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.lease = HF_SECOND;
        spec.renewed = false;
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(ms));
        feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(ms));
        CHECK_OUTCOME(op, "ok");
        hf_op_end(op, AT(ms));
        op = begin(&rig, HF_OP_RELEASE, AT(ms));
        feed_calls(&rig, "-OOM no\r\n", AT(ms)); /* so that the release does not refresh it */
        hf_op_end(op, AT(ms));
    }
    CHECK(hf_client_stats(&rig.client).renewals >= 5);
    rig_end(&rig, AT(60000));
}

TEST(a_re_entry_that_finds_the_lock_gone_is_a_loss) {
    static const struct {
        const char *reply;
        hf_lost_reason reason;
    } cases[] = {{GONE, HF_LOST_DELETED}, {TAKEN, HF_LOST_TAKEN}};
    for (size_t i = 0; i < 2; i++) {
        rig_begin(&rig);
        hf_hold *hold = hold_lock(&rig, AT(0));
        hf_op *op = begin_acquire(&rig, HF_SECOND, AT(1000));
        feed_calls(&rig, cases[i].reply, AT(1001));
        CHECK_OUTCOME(op, "lost");
        CHECK(is_lost(hold));
        CHECK_EQ_INT(reason_of(hold), cases[i].reason);
        CHECK_EQ_U64(hf_client_losses(&rig.client), 1);
        CHECK(!is_in_flight(hold));
        rig_end(&rig, AT(2000));
    }
}

TEST(a_hold_lost_during_a_re_entry_stays_lost) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_op *op = begin_acquire(&rig, 0, AT(29000));
    rig_sleep(&rig, AT(29000), AT(29700));
    CHECK(is_lost(hold));
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(29800));
    CHECK_OUTCOME(op, "lost");
    CHECK(is_lost(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK(!is_in_flight(hold));
    rig_end(&rig, AT(30000));
}

TEST(a_lost_hold_released_during_a_re_entry_is_cleaned_up) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_op *op = begin_acquire(&rig, 0, AT(29000));
    output_of(link_of(&rig, CALLS));
    rig_sleep(&rig, AT(29000), AT(29700));
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(29701)), "lost");
    CHECK(is_lost(hold));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_tick(&rig, AT(29701));
    CHECK(strstr(output_of(link_of(&rig, RENEWER)), LEAVE_OF_K("0", "")));
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(29800));
    CHECK_OUTCOME(op, "lost");
    rig_end(&rig, AT(30000));
}

TEST(a_re_entry_answered_too_late_does_not_end_the_hold) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lease = 100 * HF_MS;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1000));
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(1200));
    CHECK_OUTCOME(op, "lost");
    CHECK(hf_hold_is_valid(hold, AT(1200)));
    CHECK_EQ_INT(count_of(hold), 1);
    rig_end(&rig, AT(2000));
}

/* Whatever became of the re-entry, the hold is still renewed. */
static void check_still_kept(const char *reply, const char *code, bool undone) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_op *op = begin_acquire(&rig, 0, AT(1000));
    output_of(link_of(&rig, CALLS));
    if (reply) feed_calls(&rig, reply, AT(1001));
    else rig_sleep(&rig, AT(1000), AT(4000));
    CHECK_OUTCOME(op, code);
    CHECK(is_held(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK(!is_in_flight(hold) && !undone);
    hf_op_end(op, AT(4000));
    rig_sleep(&rig, AT(4000), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    rig_end(&rig, AT(10000));
}

TEST(after_a_failed_re_entry_the_lock_is_still_renewed) {
    check_still_kept(NULL, "unreachable", false);
    check_still_kept("-ERR no\r\n", "server", false);
    check_still_kept("-NOPERM no\r\n", "denied", false);
    check_still_kept("*1\r\n:9\r\n", "server", false);
    check_still_kept("*1\r\n:-3\r\n", "conflict", false);
}

/* The server may count two: the reply to the last release says how many stay. */
TEST(the_last_release_frees_the_lock_after_a_re_entry_in_doubt) {
    for (int how = 0; how < 3; how++) {
        rig_begin(&rig);
        hf_hold *hold = hold_lock(&rig, AT(0));
        hf_op_end(begin_acquire(&rig, 0, AT(1000)), AT(1001));
        output_of(link_of(&rig, CALLS));
        if (how == 0) begin(&rig, HF_OP_RELEASE, AT(1002));
        if (how == 1) hf_client_abandon(&rig.client, hold, 1, AT(1002));
        if (how == 2) hf_client_close(&rig.client, AT(1002));
        rig_tick(&rig, AT(1003));
        if (how == 0) CHECK_SENT(&rig, CALLS, BRIEF_RELEASE_OF_K);
        else CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
        rig_end(&rig, AT(2000));
    }
}

TEST(after_an_abandoned_re_entry_the_lock_is_still_renewed) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_op *op = begin_acquire(&rig, 0, AT(1000));
    output_of(link_of(&rig, CALLS));
    hf_op_end(op, AT(1001));
    CHECK(is_held(hold));
    CHECK(!is_in_flight(hold));
    rig_sleep(&rig, AT(1001), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    rig_end(&rig, AT(10000));
}

/* As by a coroutine, which gives no text: each hold gets one. */
static hf_op *acquire_as_coroutine(hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.owner = (hf_slice){"", 0};
    hf_op *op = begin_spec(&rig, &spec, now);
    return op;
}

#define KEYS_AND_OWNER(number)                                                                     \
    "4 k redisson_lock_token:{k} holdfast_queue:{k} redisson_lock__channel:{k} " DRIVE_UUID        \
    ":" number
#define KEYS_OF_OWNER(number) KEYS_AND_OWNER(number) " 2000 "

TEST(each_hold_has_an_owner_of_its_own) {
    rig_begin(&rig);
    hf_op *op = acquire_as_coroutine(AT(0));
    CHECK_SENT(&rig, CALLS, "EVALSHA acquire " KEYS_AND_OWNER("1") " 30000 1000");
    feed_calls(&rig, ACQUIRED, AT(1));
    CHECK_OUTCOME(op, "ok");
    acquire_as_coroutine(AT(2)); /* once more: the same hold */
    CHECK_SENT(&rig, CALLS, "EVALSHA acquire " KEYS_OF_OWNER("1") "1 0 30000 1000 ");
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(3));
    begin(&rig, HF_OP_RELEASE, AT(4));
    CHECK_SENT(&rig, CALLS, "EVALSHA release " KEYS_OF_OWNER("1") "1 30000 ");
    feed_calls(&rig, ":2\r\n", AT(5));
    begin(&rig, HF_OP_RELEASE, AT(6));
    CHECK_SENT(&rig, CALLS, "EVALSHA release " KEYS_AND_OWNER("1"));
    feed_calls(&rig, ":1\r\n", AT(7));
    op = acquire_as_coroutine(AT(8));
    CHECK_SENT(&rig, CALLS, "EVALSHA acquire " KEYS_AND_OWNER("2") " 30000 1000");
    feed_calls(&rig, ACQUIRED, AT(9));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(10));
}

/* Its last renewal may have been carried out. */
TEST(a_hold_lost_by_the_clock_is_cleaned_up_before_the_next_acquire) {
    rig_begin(&rig);
    hf_op *op = acquire_as_coroutine(AT(0));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, ACQUIRED, AT(1));
    hf_hold *old = hold_of(&rig);
    hf_op_end(op, AT(1));
    hf_hold_ref(old);
    op = acquire_as_coroutine(AT(29698));
    CHECK(is_lost(old));
    CHECK_STATE(op, BLOCKED);
    CHECK_SENT(&rig, CALLS, "EVALSHA leave " KEYS_OF_OWNER("1") "0  ");
    feed_calls(&rig, ":0\r\n", AT(29699));
    CHECK_SENT(&rig, CALLS, "EVALSHA acquire " KEYS_AND_OWNER("3") " 30000 1000");
    feed_calls(&rig, ACQUIRED, AT(29700));
    CHECK_OUTCOME(op, "ok");
    CHECK(is_lost(old));
    hf_hold_unref(old);
    rig_end(&rig, AT(29701));
}

TEST(a_lost_lock_is_acquired_as_a_new_hold) {
    rig_begin(&rig);
    hf_hold *old = hold_lock(&rig, AT(0));
    hf_hold_ref(old);
    hf_client_lose(&rig.client, old, HF_LOST_TAKEN);
    hf_op *op = begin_acquire(&rig, 0, AT(1000));
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    feed_calls(&rig, ACQUIRED, AT(1001));
    CHECK_OUTCOME(op, "ok");
    CHECK(hold_of(&rig) != old);
    CHECK(is_lost(old));
    hf_hold_unref(old);
    rig_end(&rig, AT(2000));
}

TEST(an_expired_hold_is_lost_and_not_re_entered) {
    rig_begin(&rig);
    hf_hold *old = hold_lock(&rig, AT(0));
    hf_hold_ref(old);
    hf_op *op = begin_acquire(&rig, 0, AT(29698)); /* the client has not noticed yet */
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    CHECK(is_lost(old));
    feed_calls(&rig, ACQUIRED, AT(29699));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    hf_hold_unref(old);
    rig_end(&rig, AT(30000));
}

TEST(an_owner_makes_one_call_at_a_time) {
    rig_begin(&rig);
    begin_acquire(&rig, 0, AT(0));
    hf_op *second = begin_acquire(&rig, 0, AT(0));
    CHECK_OUTCOME(second, "busy");
    CHECK(strstr(message_of(second), "another call by this owner"));
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    rig_end(&rig, AT(1));
}

TEST(an_acquire_waits_for_its_owners_other_call_and_re_enters) {
    rig_begin(&rig);
    begin_acquire(&rig, HF_SECOND, AT(0));
    hf_hold *hold = hold_of(&rig);
    set_agent(hold, 7);
    hf_op *second = begin_acquire(&rig, HF_SECOND, AT(1));
    CHECK_STATE(second, BLOCKED);
    CHECK_EQ_U64(agent_of(hold), 7);
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    feed_calls(&rig, ACQUIRED, AT(2));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("1", "0", ""));
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(3));
    CHECK_OUTCOME(second, "ok");
    CHECK_EQ_INT(count_of(hold), 2);
    rig_end(&rig, AT(4));
}

TEST(an_acquire_asks_itself_when_its_owners_other_call_fails) {
    rig_begin(&rig);
    hf_op *first = begin_acquire(&rig, 0, AT(0)), *second = begin_acquire(&rig, HF_SECOND, AT(1));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, busy(20000, 0, 0), AT(2));
    CHECK_OUTCOME(first, "busy");
    CHECK_STATE(second, ASKING);
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    feed_calls(&rig, ACQUIRED, AT(3));
    CHECK_OUTCOME(second, "ok");
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    rig_end(&rig, AT(4));
}

TEST(an_acquire_waits_for_its_owners_other_call_only_until_its_timeout) {
    rig_begin(&rig);
    hf_op *first = wait_in_queue(&rig, HF_NEVER, AT(0));
    hf_op *second = begin_acquire(&rig, HF_SECOND, AT(10)), *third = begin_acquire(&rig, 1, AT(10));
    hf_op_interrupt(begin_acquire(&rig, HF_NEVER, AT(10)), AT(11));
    hf_op_end(begin_acquire(&rig, HF_NEVER, AT(11)), AT(12));
    rig_sleep(&rig, AT(12), AT(110));
    CHECK_OUTCOME(third, "busy");
    CHECK_OUTCOME(second, "under way");
    rig_sleep(&rig, AT(110), AT(1010));
    CHECK_OUTCOME(second, "busy");
    CHECK(strstr(message_of(second), "another call by this owner for this key is in progress"));
    CHECK_STATE(first, WAITING);
    feed_message(&rig, GRANT("1", "88"), AT(1011));
    CHECK_OUTCOME(first, "ok");
    rig_end(&rig, AT(1012));
}

TEST(an_acquire_waits_until_a_renewal_has_ended) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(10001));
    CHECK_STATE(op, BLOCKED);
    CHECK_SENT(&rig, CALLS, "");
    CHECK_EQ_U64(hf_op_deadline(op), AT(11001));
    feed(link_of(&rig, RENEWER), "*1\r\n:1\r\n", AT(10002));
    CHECK_STATE(op, ASKING);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("1", "0", ""));
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(10003));
    CHECK_EQ_INT(count_of(hold), 2);
    rig_end(&rig, AT(11000));
}

TEST(an_acquire_behind_a_renewal_without_a_reply_times_out) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_session_closed(link_of(&rig, CALLS), "idle", AT(1));
    rig_sleep(&rig, AT(0), AT(10000));
    set_in_flight(hold, true);
    hf_op *op = begin_acquire(&rig, 0, AT(10001));
    CHECK_STATE(op, BLOCKED);
    hf_op_tick(op, AT(13000));
    CHECK_OUTCOME(op, "under way");
    hf_op_tick(op, AT(13001));
    CHECK_OUTCOME(op, "unreachable");
    rig_end(&rig, AT(14000));
}

TEST(an_acquire_behind_an_unfinished_clean_up_ends_with_its_wait) {
    static const struct {
        hf_time wait, took;
    } cases[] = {
        {300 * HF_MS, 300 * HF_MS},
        {5 * HF_SECOND, 5 * HF_SECOND},
        {1, 100 * HF_MS}, /* a short one gives the server a moment */
        {0, 3 * HF_SECOND},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, 300 * HF_MS, AT(0));
        rig_sleep(&rig, AT(0), AT(300));
        CHECK_OUTCOME(op, "unreachable");
        hf_op_end(op, AT(300));
        op = begin_acquire(&rig, cases[i].wait, AT(300));
        CHECK_STATE(op, BLOCKED);
        CHECK_EQ_U64(hf_op_deadline(op), AT(300) + cases[i].took);
        hf_op_tick(op, AT(300) + cases[i].took);
        CHECK_OUTCOME(op, "unreachable");
        rig_end(&rig, AT(6000));
    }
}

TEST(an_acquire_waits_for_the_clean_up_of_the_previous_hold) {
    rig_begin(&rig);
    hold_lock(&rig, AT(0));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(10));
    rig_tick(&rig, AT(10));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(11));
    CHECK_STATE(op, BLOCKED);
    CHECK_SENT(&rig, CALLS, "");
    feed(link_of(&rig, RENEWER), ":1\r\n", AT(12));
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    feed_calls(&rig, ACQUIRED, AT(13));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(14));
}

TEST(an_abandoned_hold_is_cleaned_up_and_not_reused) {
    rig_begin(&rig);
    uint64_t number = number_of(hold_lock(&rig, AT(0)));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(10));
    hf_op *op = begin_acquire(&rig, 0, AT(10)); /* before the renewer came to it */
    CHECK_STATE(op, BLOCKED);
    rig_sleep(&rig, AT(10), AT(11));
    CHECK_SENT(&rig, RENEWER, "");
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", ""));
    feed_calls(&rig, ":1\r\n", AT(11));
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
    feed_calls(&rig, ACQUIRED, AT(12));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    CHECK(number_of(hold_of(&rig)) != number);
    rig_end(&rig, AT(14));
}

/* A hold that is to be left may wait for another command than its leave. */
TEST(a_hold_abandoned_during_its_renewal_is_cleaned_up_then_acquired) {
    static const char *const answers[] = {"*1\r\n:1\r\n", "-OOM no\r\n"};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        rig_begin(&rig);
        hold_lock(&rig, AT(0));
        rig_sleep(&rig, AT(0), AT(10000));
        CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
        hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(10001));
        hf_op *op = begin_acquire(&rig, HF_SECOND, AT(10001));
        CHECK_STATE(op, BLOCKED);
        feed(link_of(&rig, RENEWER), answers[i], AT(10002));
        CHECK_STATE(op, BLOCKED);
        CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", ""));
        feed_calls(&rig, ":1\r\n", AT(10003));
        CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K);
        feed_calls(&rig, ACQUIRED, AT(10004));
        CHECK_OUTCOME(op, "ok");
        rig_end(&rig, AT(10005));
    }
}

/* A server that cannot be reached is reported, and not tried without end. */
TEST(a_clean_up_that_cannot_be_sent_makes_the_acquire_fail) {
    rig_begin(&rig);
    hold_lock(&rig, AT(0));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(1));
    rig.refusing = true;
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(10));
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(10));
    rig_sleep(&rig, AT(10), AT(100));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(message_of(op), "refused"));
    CHECK(!hf_client_is_quiet(&rig.client)); /* what is left goes on being left */
    rig_end(&rig, AT(10005));
}

TEST(an_acquire_waits_for_a_clean_up_in_flight) {
    rig_begin(&rig);
    hold_lock(&rig, AT(0));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(10));
    rig_sleep(&rig, AT(10), AT(11));
    CHECK(strncmp(output_of(link_of(&rig, RENEWER)), "EVALSHA leave", 13) == 0);
    hf_op *op = begin_acquire(&rig, 0, AT(12)); /* while it is under way */
    CHECK_STATE(op, BLOCKED);
    CHECK_SENT(&rig, CALLS, "");
    rig_sleep(&rig, AT(12), AT(3011));       /* the answer does not come */
    CHECK_SENT(&rig, CALLS, BRIEF_ASK_OF_K); /* it goes on without that */
    feed_calls(&rig, ACQUIRED, AT(3011));
    CHECK_OUTCOME(op, "ok");
    CHECK(!hf_client_is_quiet(&rig.client));
    CHECK_EQ_INT(hold_count(&rig.client), 2);
    rig_end(&rig, AT(21502));
}

/* ---- owners that other processes share ---- */

static hf_op *begin_shared(hf_time wait, hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.shared = true;
    spec.wait = wait;
    hf_op *op = begin_spec(&rig, &spec, now);
    return op;
}

/* In the queue, as wait_in_queue. */
static hf_op *wait_as_shared(hf_time now) {
    hf_op *op = begin_shared(HF_NEVER, now);
    enter_queue(&rig, now);
    return op;
}

TEST(a_shared_owner_joins_the_holds_of_its_other_processes) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "1", ""));
    feed_calls(&rig, "*2\r\n:2\r\n:3\r\n", AT(1));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("3", "1", ""));
    feed_calls(&rig, "*2\r\n:1\r\n:55\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(others_of(hold_of(&rig)), 3);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 4);
    CHECK_EQ_U64(token_of(hold_of(&rig)), 55);
    rig_end(&rig, AT(3));
}

TEST(a_shared_owner_with_too_many_or_no_holds_is_not_joined) {
    static const char *const counts[] = {"1000000000", "1000000001", "0"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char text[64];
        rig_begin(&rig);
        hf_op *op = begin_shared(0, AT(0));
        snprintf(text, sizeof text, "*2\r\n:2\r\n:%s\r\n", counts[i]);
        feed_calls(&rig, text, AT(1));
        CHECK_OUTCOME(op, "busy");
        rig_end(&rig, AT(2));
    }
}

TEST(a_shared_owner_acquires_what_its_others_released_meanwhile) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    feed_calls(&rig, "*2\r\n:2\r\n:1\r\n", AT(1));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, GONE, AT(2));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "1", ""));
    feed_calls(&rig, ACQUIRED, AT(3));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(others_of(hold_of(&rig)), 0);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    rig_end(&rig, AT(3));
}

TEST(an_acquire_gives_up_on_a_shared_owner_that_keeps_changing) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    for (int i = 0; i < 4; i++) {
        CHECK_OUTCOME(op, "under way");
        feed_calls(&rig, "*2\r\n:2\r\n:1\r\n", AT(i));
    }
    CHECK_OUTCOME(op, "busy");
    output_of(link_of(&rig, CALLS));
    CHECK_NOTHING_LEFT(AT(5));
    rig_end(&rig, AT(6));
    static const char *const hostile[] = {"*2\r\n:2\r\n:0\r\n", "*2\r\n:2\r\n:-1\r\n",
                                          "*2\r\n:2\r\n:4294967295\r\n"};
    for (size_t i = 0; i < 3; i++) {
        rig_begin(&rig);
        op = begin_shared(0, AT(0));
        feed_calls(&rig, hostile[i], AT(1));
        CHECK_OUTCOME(op, "busy");
        rig_end(&rig, AT(6));
    }
}

TEST(the_others_of_a_shared_owner_change_while_it_is_held) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    feed_calls(&rig, ACQUIRED, AT(1));
    hf_op_end(op, AT(1));
    op = begin_shared(0, AT(2));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, "*2\r\n:2\r\n:3\r\n", AT(3)); /* two others have joined */
    CHECK_EQ_INT(others_of(hold_of(&rig)), 2);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 3);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("3", "1", ""));
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(4));
    CHECK_EQ_INT(others_of(hold_of(&rig)), 2);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 4);
    hf_op_end(op, AT(4));
    op = begin_shared(0, AT(5));
    feed_calls(&rig, "*2\r\n:2\r\n:1\r\n", AT(6)); /* fewer than we have ourselves */
    CHECK_EQ_INT(others_of(hold_of(&rig)), 0);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    rig_end(&rig, AT(7));
}

/* What was abandoned is released with the rest, as long as the server still counts it. */
TEST(pending_releases_are_no_more_than_the_owners_other_holds) {
    static const struct {
        const char *count;
        uint32_t pending;
    } cases[] = {{"3", 2}, {"2", 1}, {"1", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        rig_begin(&rig);
        hf_op *op = begin_shared(0, AT(0));
        feed_calls(&rig, ACQUIRED, AT(1));
        hf_op_end(op, AT(1));
        set_pending(hold_of(&rig), 2);
        op = begin_shared(0, AT(2));
        snprintf(text, sizeof text, "*2\r\n:2\r\n:%s\r\n*2\r\n:1\r\n:0\r\n", cases[i].count);
        feed_calls(&rig, text, AT(3));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_INT(pending_of(hold_of(&rig)), cases[i].pending);
        rig_end(&rig, AT(4));
    }
}

TEST(a_shared_owner_that_joins_persists_while_it_waits) {
    rig_begin(&rig);
    hf_op *op = begin_shared(10 * HF_SECOND, AT(0));
    feed_calls(&rig, "*2\r\n:2\r\n:3\r\n", AT(1));
    CHECK_EQ_U64(request_in(op)->persists_until, AT(10000));
    rig_end(&rig, AT(2));
    rig_begin(&rig);
    op = begin_shared(10 * HF_SECOND, AT(0));
    hf_op_interrupt(op, AT(0));
    feed_calls(&rig, "*2\r\n:2\r\n:3\r\n", AT(1));
    CHECK_OUTCOME(op, "under way");
    CHECK_EQ_U64(request_in(op)->persists_until, 0);
    rig_end(&rig, AT(2));
}

/* The count tells the server what the owner had before; the leave is safe to resend. */
TEST(a_shared_owner_that_has_joined_leaves_with_its_count) {
    rig_begin(&rig);
    hf_op *op = wait_as_shared(AT(0));
    feed_message(&rig, "1 recheck 2", AT(5));
    rig_tick(&rig, AT(5));
    feed_calls(&rig, "*2\r\n:2\r\n:3\r\n", AT(6));
    CHECK(request_in(op)->no_retry);
    feed_calls(&rig, busy(20000, 0, 0), AT(7));
    CHECK_STATE(op, WAITING);
    output_of(link_of(&rig, CALLS));
    hf_op_interrupt(op, AT(8));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("3", MEMBER("2") " me") "0");
    CHECK(!request_in(op)->no_retry);
    rig_end(&rig, AT(9));
}

#define OWN_LEAVE_OF_K(waiter, own) LEAVE_OF_K("0", waiter) own
#define SHARED_MEMBER(number) MEMBER(number) " me"

TEST(an_abandoned_acquire_of_a_shared_owner_releases_what_it_took) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "1", ""));
    hf_op_end(op, AT(1));
    rig_tick(&rig, AT(1));
    CHECK_SILENT(&rig);
    CHECK(!hf_client_is_quiet(&rig.client));
    feed_calls(&rig, ACQUIRED, AT(2));
    rig_tick(&rig, AT(2));
    CHECK_SENT(&rig, CALLS, OWN_LEAVE_OF_K("", "1"));
    feed_calls(&rig, ":1\r\n", AT(3));
    CHECK_NOTHING_LEFT(AT(3));
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(4));
}

TEST(an_abandoned_wait_of_a_shared_owner_leaves_or_releases) {
    for (int took = 0; took <= 1; took++) {
        rig_begin(&rig);
        hf_op *op = wait_as_shared(AT(0));
        feed_message(&rig, "1 recheck 2", AT(5));
        rig_tick(&rig, AT(5));
        CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "1", SHARED_MEMBER("2")));
        hf_op_end(op, AT(6));
        rig_tick(&rig, AT(6));
        CHECK_SENT(&rig, CALLS, "");
        feed_calls(&rig, took ? "*3\r\n:1\r\n:77\r\n:4\r\n" : busy(20000, 0, 0), AT(7));
        rig_tick(&rig, AT(7));
        CHECK_SENT(&rig, CALLS,
                   took ? OWN_LEAVE_OF_K(SHARED_MEMBER("2"), "1")
                        : OWN_LEAVE_OF_K(SHARED_MEMBER("2"), "0"));
        feed_calls(&rig, took ? ":1\r\n" : ":0\r\n", AT(8));
        CHECK_NOTHING_LEFT(AT(8));
        rig_end(&rig, AT(9));
    }
}

TEST(an_abandoned_wait_of_a_shared_owner_leaves_at_once) {
    rig_begin(&rig);
    hf_op *op = wait_as_shared(AT(0));
    hf_op_end(op, AT(5));
    rig_tick(&rig, AT(5));
    CHECK_SENT(&rig, CALLS, OWN_LEAVE_OF_K(SHARED_MEMBER("2"), "0"));
    rig_end(&rig, AT(9));
}

/* A late command of the first wait must not be about the second. */
TEST(a_shared_owner_waits_under_a_new_number_each_time) {
    rig_begin(&rig);
    hf_op_end(wait_as_shared(AT(0)), AT(5));
    rig_tick(&rig, AT(5));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, ":0\r\n", AT(6));
    hf_op *op = begin_shared(HF_NEVER, AT(7));
    feed_calls(&rig, busy(20000, 0, 0), AT(8));
    feed_subscribed(&rig, AT(9));
    feed_calls(&rig, busy(20000, 0, 0), AT(10));
    CHECK_STATE(op, WAITING);
    CHECK(wait_number_of(op) > 2);
    feed_message(&rig, "1 grant l 2 5 88 2000 k", AT(11));
    CHECK_STATE(op, WAITING);
    rig_end(&rig, AT(12));
}

TEST(a_late_reply_to_a_shared_owner_is_cleaned_up_before_the_next_acquire) {
    rig_begin(&rig);
    hf_op *op = begin_shared(10 * HF_MS, AT(0));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "1", ""));
    rig_sleep(&rig, AT(0), AT(100));
    CHECK_OUTCOME(op, "unreachable");
    hf_op_end(op, AT(100));
    CHECK_SENT(&rig, CALLS, "");
    op = begin_shared(HF_SECOND, AT(101));
    CHECK_STATE(op, BLOCKED);
    feed_calls(&rig, ACQUIRED, AT(200));
    rig_tick(&rig, AT(200));
    CHECK_SENT(&rig, CALLS, OWN_LEAVE_OF_K("", "1"));
    CHECK_STATE(op, BLOCKED);
    feed_calls(&rig, ":1\r\n", AT(201));
    CHECK_STATE(op, ASKING);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "1", ""));
    feed_calls(&rig, ACQUIRED, AT(202));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(203));
}

/* After it the owner may have the lock through another process. */
TEST(an_abandoned_acquire_of_a_shared_owner_is_not_undone_after_its_lease) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.shared = true;
    spec.lease = 100 * HF_MS;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    hf_op_end(op, AT(1));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, ACQUIRED, AT(100));
    rig_tick(&rig, AT(100));
    CHECK_NOTHING_LEFT(AT(100));
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(101));
}

TEST(an_abandoned_hold_of_a_shared_owner_is_not_released_after_its_lease) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    feed_calls(&rig, ACQUIRED, AT(1));
    hf_op_end(op, AT(1));
    output_of(link_of(&rig, CALLS));
    rig.refusing = true;
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(2));
    rig_sleep(&rig, AT(2), AT(29000));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_sleep(&rig, AT(29000), AT(31000));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(31001));
}

TEST(a_release_after_an_abandoned_re_entry_of_a_shared_owner) {
    for (int took = 0; took <= 1; took++) {
        rig_begin(&rig);
        hf_op *op = begin_shared(0, AT(0));
        feed_calls(&rig, ACQUIRED, AT(1));
        hf_op_end(op, AT(1));
        op = begin_shared(0, AT(2));
        hf_op_end(op, AT(3));
        output_of(link_of(&rig, CALLS));
        op = begin(&rig, HF_OP_RELEASE, AT(4)); /* behind the answer */
        CHECK_SENT(&rig, CALLS, "");
        feed_calls(&rig, took ? ACQUIRED : "*2\r\n:2\r\n:1\r\n", AT(5));
        CHECK_SENT(&rig, CALLS,
                   took ? "EVALSHA release " KEYS_OF_K "0 30000 2"
                        : "EVALSHA release " KEYS_OF_K "0 30000 1");
        feed_calls(&rig, ":1\r\n", AT(6));
        CHECK_OUTCOME(op, "ok");
        CHECK_NOTHING_LEFT(AT(7));
        rig_end(&rig, AT(8));
    }
}

TEST(a_late_re_entry_does_not_extend_a_shared_owners_abandoned_hold) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    feed_calls(&rig, ACQUIRED, AT(1));
    hf_op_end(op, AT(1));
    hf_time end = ends_at(hold_of(&rig));
    op = begin_shared(0, AT(9000));
    hf_op_end(op, AT(9001));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(9002));
    feed_calls(&rig, ACQUIRED, AT(9003));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    CHECK_EQ_U64(ends_at(hold_of(&rig)), end);
    rig_end(&rig, AT(9004));
}

TEST(a_shared_owners_re_entry_without_a_reply_is_renewed_in_time) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    feed_calls(&rig, ACQUIRED, AT(1));
    hf_op_end(op, AT(1));
    op = begin_shared(0, AT(9900));
    feed_calls(&rig, "+PONG\r\n", AT(9900)); /* the connection was quiet */
    hf_op_end(op, AT(9901));
    rig_sleep(&rig, AT(9901), AT(12000));
    CHECK_SENT(&rig, RENEWER, "");
    rig_sleep(&rig, AT(12000), AT(13100)); /* the link is abandoned */
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    rig_end(&rig, AT(13200));
}

TEST(a_shared_owners_acquire_without_a_reply_is_cleaned_up) {
    for (int hangs = 0; hangs <= 1; hangs++) {
        rig_begin(&rig);
        hf_op *op = begin_shared(0, AT(0));
        hf_op_end(op, AT(1));
        output_of(link_of(&rig, CALLS));
        if (hangs) rig_sleep(&rig, AT(1), AT(3000));
        else hf_session_closed(link_of(&rig, CALLS), "reset", AT(2));
        rig_sleep(&rig, AT(3000), AT(3020)); /* the back-off */
        CHECK_SENT(&rig, CALLS, OWN_LEAVE_OF_K("", "0"));
        feed_calls(&rig, ":0\r\n", AT(3021));
        CHECK_NOTHING_LEFT(AT(3021));
        rig_end(&rig, AT(3022));
    }
}

TEST(a_closed_client_waits_for_the_reply_to_a_shared_owner) {
    rig_begin(&rig);
    begin_shared(0, AT(0));
    output_of(link_of(&rig, CALLS));
    hf_client_close(&rig.client, AT(1));
    rig_tick(&rig, AT(1));
    CHECK_SILENT(&rig);
    CHECK(!hf_client_is_quiet(&rig.client));
    feed_calls(&rig, ACQUIRED, AT(2));
    rig_tick(&rig, AT(2));
    CHECK_SENT(&rig, CALLS, OWN_LEAVE_OF_K("", "1"));
    feed_calls(&rig, ":1\r\n", AT(3));
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(4));
}

/* ---- mutexes ---- */

static hf_op *begin_mutex(hf_time wait, bool shared, hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_mutex;
    spec.wait = wait;
    spec.shared = shared;
    hf_op *op = begin_spec(&rig, &spec, now);
    return op;
}

TEST(a_mutex_is_not_entered_twice) {
    rig_begin(&rig);
    hf_op *op = begin_mutex(0, false, AT(0));
    CHECK_SENT(&rig, CALLS, "EVALSHA mutex_acquire " K_AND_OWNER " 30000 1000");
    feed_calls(&rig, ACQUIRED, AT(1));
    CHECK_OUTCOME(op, "ok");
    op = begin_mutex(0, false, AT(2));
    CHECK_OUTCOME(op, "busy");
    CHECK_STATE(op, DONE);
    CHECK_SENT(&rig, CALLS, "");
    op = begin_acquire(&rig, 0, AT(3)); /* a lock of that name is something else */
    CHECK_OUTCOME(op, "under way");
    rig_end(&rig, AT(4));
}

TEST(a_mutex_of_a_shared_owner_is_busy_for_its_other_processes) {
    rig_begin(&rig);
    hf_op *op = begin_mutex(0, true, AT(0));
    feed_calls(&rig, "*2\r\n:2\r\n:1\r\n", AT(1));
    CHECK_OUTCOME(op, "busy");
    rig_end(&rig, AT(4));
}

/* NOSCRIPT is no lost reply: what stands there is not from us. */
TEST(a_mutex_of_a_shared_owner_is_busy_although_the_program_was_unknown) {
    rig_begin(&rig);
    hf_op *op = begin_mutex(0, true, AT(0));
    feed_calls(&rig, "-NOSCRIPT No matching script.\r\n", AT(1));
    feed_calls(&rig, "*2\r\n:2\r\n:1\r\n", AT(2));
    CHECK_OUTCOME(op, "busy");
    rig_end(&rig, AT(4));
}

TEST(the_first_waiter_behind_a_foreign_mutex_rechecks_at_random) {
    rig_begin(&rig);
    hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
    feed_calls(&rig, busy(20000, 0, 1), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 1), AT(3));
    CHECK_STATE(op, WAITING);
    CHECK(rechecks_at(op) > AT(3) && rechecks_at(op) <= AT(204));
    CHECK_SENT(&rig, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    rig_end(&rig, AT(54));
}

/* ---- replies that no server gives ---- */

TEST(a_reply_with_impossible_numbers_is_an_error) {
    static const char *const replies[] = {
        "*3\r\n:1\r\n:77\r\n:-1\r\n",         "*3\r\n:1\r\n:77\r\n:4294967295\r\n",
        "*3\r\n:1\r\n:77\r\n:1000000000\r\n", "*3\r\n:1\r\n:77\r\n:9223372036854775807\r\n",
        "*3\r\n:1\r\n:-77\r\n:0\r\n",
    };
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, 0, AT(0));
        feed_calls(&rig, replies[i], AT(1));
        CHECK_OUTCOME(op, "server");
        CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
        rig_end(&rig, AT(2));
    }
}

/* A shared owner's others may have gone in part, or all of them. */
TEST(a_shared_owners_others_are_counted_from_what_it_sent) {
    static const struct {
        const char *others, *outcome;
        int is;
    } cases[] = {{"-3", "ok", 0},
                 {"-1", "ok", 2},
                 {"-4", "server", 0},
                 {"999999996", "ok", 999999999},
                 {"999999997", "server", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        rig_begin(&rig);
        hf_op *op = begin_shared(0, AT(0));
        snprintf(text, sizeof text, "*2\r\n:2\r\n:3\r\n*3\r\n:1\r\n:77\r\n:%s\r\n",
                 cases[i].others);
        feed_calls(&rig, text, AT(1));
        CHECK_OUTCOME(op, cases[i].outcome);
        if (strcmp(cases[i].outcome, "ok") == 0)
            CHECK_EQ_INT(others_of(hold_of(&rig)), cases[i].is);
        rig_end(&rig, AT(2));
    }
}

/* The first sending of the command may have taken it. */
TEST(a_hash_without_a_ttl_is_left_although_the_acquire_has_no_place) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    feed_calls(&rig, "*1\r\n:-3\r\n", AT(1));
    CHECK_OUTCOME(op, "conflict");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_end(&rig, AT(2));
}

/* Each reply names another state of an owner that two processes share. */
TEST(an_acquire_gives_up_on_a_shared_owner_that_comes_and_goes) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    int asked = 0;
    while (!hf_op_is_done(op) && asked++ < 20)
        feed_calls(&rig, count_before(op) ? GONE : "*2\r\n:2\r\n:1\r\n", AT(1));
    CHECK_OUTCOME(op, "busy");
    rig_end(&rig, AT(2));
}

TEST(a_waiter_that_may_not_join_leaves_its_place) {
    rig_begin(&rig);
    hf_op *op = wait_as_shared(AT(0));
    feed_message(&rig, "1 recheck 2", AT(5));
    rig_tick(&rig, AT(5));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, "*2\r\n:2\r\n:0\r\n", AT(6));
    CHECK_OUTCOME(op, "busy");
    rig_tick(&rig, AT(6));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", SHARED_MEMBER("2")) "0");
    rig_end(&rig, AT(7));
}

/* ---- guards ---- */

static hf_op *begin_guard(hf_time wait, hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_guard;
    spec.wait = wait;
    spec.fingerprint = hf_slice_of("print");
    hf_op *op = begin_spec(&rig, &spec, now);
    return op;
}

TEST(a_run_that_was_done_before_returns_its_record) {
    rig_begin(&rig);
    hf_op *op = begin_guard(0, AT(0));
    CHECK_SENT(&rig, CALLS, "EVALSHA begin " KEYS_OF_K "0 0 30000 1000  print");
    feed_bytes(link_of(&rig, CALLS), "*2\r\n:3\r\n$4\r\na\0b\n\r\n", 18, AT(1));
    CHECK_OUTCOME(op, "duplicate");
    CHECK_MEM(record_of(op), record_size_of(op), "a\0b\n", 4);
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    rig_end(&rig, AT(2));
}

/* A grant writes an empty print. The owner writes its own, so that a request with another
 * fingerprint gets a mismatch. */
TEST(a_granted_run_writes_its_fingerprint) {
    rig_begin(&rig);
    hf_op *op = begin_guard(10 * HF_SECOND, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 0), AT(3));
    output_of(link_of(&rig, CALLS));
    feed_message(&rig, "1 grant g 1 5 88 2000 k", AT(10));
    CHECK_OUTCOME(op, "under way");
    CHECK_SENT(&rig, CALLS,
               "EVALSHA begin " KEYS_OF_K "0 0 30000 1000 1g" DRIVE_UUID ":1:1000 print");
    feed_calls(&rig, ACQUIRED, AT(11));
    CHECK_OUTCOME(op, "ok");
    CHECK(!is_granted(hold_in(op)));
    rig_end(&rig, AT(12));
}

TEST(a_fingerprint_may_have_one_letter) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_guard;
    spec.wait = 10 * HF_SECOND;
    spec.fingerprint = hf_slice_of("p");
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 0), AT(3));
    feed_message(&rig, "1 grant g 1 5 88 2000 k", AT(10));
    CHECK_OUTCOME(op, "under way");
    rig_end(&rig, AT(11));
}

TEST(a_run_on_the_key_of_a_lock_is_a_conflict) {
    rig_begin(&rig);
    hf_op *op = begin_guard(0, AT(0));
    feed_calls(&rig, "*2\r\n:-6\r\n$4\r\nlock\r\n", AT(1));
    CHECK_OUTCOME(op, "conflict");
    CHECK_OR(strstr(message_of(op), "a lock already uses the key"), "%s", message_of(op));
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    rig_end(&rig, AT(2));
}

TEST(a_run_of_another_request_is_a_mismatch) {
    rig_begin(&rig);
    hf_op *op = begin_guard(0, AT(0));
    feed_calls(&rig, "*1\r\n:4\r\n", AT(1));
    CHECK_OUTCOME(op, "mismatch");
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    rig_end(&rig, AT(2));
}

/* ---- memory ---- */

/* A client whose server answers `replies` to one acquire after the other. True: acquired. An
 * acquire that failed has left nothing, or the renewer has it. */
static bool acquires(const char *const *replies, bool events) {
    hf_client_config config = rig_config();
    struct rig own = {.refusing = false};
    hf_client_init(&own.client, &config, DRIVE_ENTROPY);
    if (!hf_names_make(&own.names, hf_slice_of("k"))) return false;
    hf_op_spec spec = spec_of(&own, HF_OP_ACQUIRE);
    spec.wait = events ? 10 * HF_SECOND : 0;
    hf_op *op = hf_client_begin(&own.client, &spec, AT(0));
    bool yes = false;
    for (int i = 0; op && !hf_op_is_done(op) && replies[i]; i++) {
        rig_tick(&own, AT(i));
        hf_session *link = &first_node(&own.client)->links[replies[i][0] == '!' ? EVENTS : CALLS];
        const char *text = replies[i] + (replies[i][0] == '!');
        yes = strcmp(text, ACQUIRED) == 0 || strstr(text, "grant");
        if (link->state == HF_SESSION_READY) hf_session_feed(link, text, strlen(text), AT(i));
    }
    if (op && !hf_op_is_done(op)) rig_sleep(&own, AT(10), AT(20000));
    if (op && !hf_op_is_done(op)) abort();
    bool acquired = op && hf_op_code(op) == HF_OK;
    const hf_hold *hold = hold_of(&own);
    if (acquired && !(yes && hold && is_held(hold) && count_of(hold) == 1)) abort();
    if (!acquired && hold && !is_cleaned_up(hold)) abort();
    if (first_node(&own.client)->waiting != 0) abort();
    rig_end(&own, AT(20000));
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
    static const char *const replies[] = {
        "-NOSCRIPT\r\n",
        NOT_YET,
        SUBSCRIBED,
        WAITS,
        "!*3\r\n$10\r\npsubscribe\r\n$26\r\nredisson_lock__channel:{k}\r\n:2\r\n",
        ACQUIRED,
        NULL};
    (void)context;
    return acquires(replies, true);
}

static bool learns_of_a_record(void *context) {
    hf_client_config config = rig_config();
    struct rig own = {.refusing = false};
    (void)context;
    hf_client_init(&own.client, &config, DRIVE_ENTROPY);
    if (!hf_names_make(&own.names, hf_slice_of("k"))) return false;
    hf_op_spec spec = spec_of(&own, HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_guard;
    hf_op *op = hf_client_begin(&own.client, &spec, AT(0));
    rig_serve(&own, AT(0));
    hf_session *link = link_of(&own, CALLS);
    if (op && !hf_op_is_done(op) && link->state == HF_SESSION_READY) {
        hf_session_feed(link, "*2\r\n:3\r\n$4\r\ndone\r\n", 18, AT(1));
    }
    if (op && !hf_op_is_done(op)) rig_sleep(&own, AT(1), AT(4000));
    if (op && !hf_op_is_done(op)) abort();
    bool duplicate = op && hf_op_code(op) == HF_DUPLICATE;
    if (duplicate && !record_of(op)) abort();
    rig_end(&own, AT(4000));
    return duplicate;
}

TEST(out_of_memory) {
    CHECK(memerr_until_success(learns_of_a_record, NULL, 1000) > 10);
    CHECK(memerr_until_success(acquires_at_once, NULL, 1000) > 10);
    CHECK(memerr_until_success(acquires_by_a_look, NULL, 1000) > 20);
    CHECK(memerr_until_success(acquires_by_a_grant, NULL, 1000) > 20);
}

TEST(an_impossible_count_is_a_server_error) {
    static const char *const others[] = {"-1", "4294967295", "9223372036854775807"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char reply[64];
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, 0, AT(0));
        snprintf(reply, sizeof reply, "*3\r\n:1\r\n:77\r\n:%s\r\n", others[i]);
        feed_calls(&rig, reply, AT(1));
        CHECK_OUTCOME(op, "server");
        CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
        rig_end(&rig, AT(2));
    }
}

/* ---- what is left when it is over ---- */

TEST(every_outcome_ends_the_wait_completely) {
    static const struct {
        const char *reply, *outcome;
    } cases[] = {
        {ACQUIRED, "ok"},
        {"*1\r\n:2\r\n", "busy"},
        {GONE, "under way"},
        {"*1\r\n:-3\r\n", "conflict"},
        {"*1\r\n:-4\r\n", "conflict"},
        {"*2\r\n:-5\r\n:3\r\n", "conflict"},
        {"*2\r\n:-6\r\n$5\r\nguard\r\n", "conflict"},
        {"*1\r\n:4\r\n", "mismatch"},
        {"*1\r\n:77\r\n", "server"},
        {"*2\r\n:3\r\n$3\r\nold\r\n", "duplicate"},
        {"-ERR no\r\n", "server"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
        feed_message(&rig, "1 recheck 1", AT(50));
        rig_sleep(&rig, AT(50), AT(60));
        CHECK_STATE(op, ASKING);
        feed_calls(&rig, cases[i].reply, AT(61));
        CHECK_OUTCOME(op, cases[i].outcome);
        if (hf_op_is_done(op)) {
            CHECK_STATE(op, DONE);
            CHECK_EQ_INT(first_node(&rig.client)->waiting, 0);
            CHECK(request_in(op)->state == HF_REQUEST_IDLE);
            CHECK_EQ_U64(hf_op_deadline(op), HF_NEVER);
        }
        rig_end(&rig, AT(70));
    }
}

TEST(an_acquire_without_memory_for_its_place_does_not_wait) {
    int failures = 0;
    for (unsigned long nth = 1; nth < 20; nth++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, 10 * HF_SECOND, AT(0));
        feed_calls(&rig, busy(20000, 0, 0), AT(1));
        memerr_fail(nth);
        feed_subscribed(&rig, AT(2));
        memerr_fail(0);
        CHECK(!may_be_queued(op) || waiter_of(op) || hf_op_is_done(op));
        failures += hf_op_is_done(op) && hf_op_code(op) == HF_NO_MEMORY;
        rig_end(&rig, AT(3));
    }
    CHECK(failures > 0);
}

TEST(a_waiter_rechecks_an_expiring_holder_at_once) {
    static const struct {
        int ttl_ms, ahead, at_ms;
    } cases[] = {{0, 0, 1}, {1, 0, 2}, {0, 1, 6}, {100, 80, 501}, {100, 90, 501}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
        feed_calls(&rig, busy(20000, 0, 0), AT(0));
        feed_subscribed(&rig, AT(0));
        feed_calls(&rig, busy(cases[i].ttl_ms, cases[i].ahead, 0), AT(0));
        CHECK_EQ_U64(rechecks_at(op), AT(cases[i].at_ms));
        rig_end(&rig, AT(1));
    }
}

TEST(a_lock_without_tokens_is_granted_without_one) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.wait = 10 * HF_SECOND;
    spec.token_ttl_ms = 0;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 0), AT(3));
    feed_message(&rig, GRANT("1", "0"), AT(100));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(200));
}

/* A quarter of the lease must be left of a grant: of the lock's own where that is shorter. */
TEST(the_rest_of_a_grant_is_compared_with_the_shorter_lease) {
    static const struct {
        int lease_ms, at_ms;
        bool taken;
    } cases[] = {
        {30000, 1450, true}, {30000, 1550, false}, {1000, 1550, true}, {1000, 1800, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.wait = 10 * HF_SECOND;
        spec.lease = (hf_time)cases[i].lease_ms * HF_MS;
        hf_op *op = begin_spec(&rig, &spec, AT(0));
        feed_calls(&rig, busy(20000, 0, 0), AT(0));
        feed_subscribed(&rig, AT(0));
        feed_calls(&rig, busy(20000, 0, 0), AT(0));
        feed_message(&rig, GRANT("1", "9"), AT(cases[i].at_ms));
        CHECK_OR(hf_op_is_done(op) == cases[i].taken, "case %zu", i);
        rig_end(&rig, AT(2000));
    }
}

TEST(half_of_a_grant_leaves_time_for_a_new_connection) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    hf_time lease = config_in(&rig.client)->grant_lease;
    CHECK(spec_in(op)->lease >= lease);
    CHECK_EQ_U64(hf_acquire_confirm_at(op, AT(100) + lease / 2, AT(100)), AT(100) + lease / 6);
    CHECK_EQ_U64(hf_acquire_confirm_at(op, AT(100) + lease / 2 - 1, AT(100)), AT(100));
    rig_end(&rig, AT(200));
}

TEST(a_grant_of_a_short_lease_is_confirmed_by_that_lease) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lease = HF_SECOND;
    spec.wait = HF_NEVER;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    CHECK_EQ_U64(hf_acquire_confirm_at(op, AT(700), AT(100)), AT(300));
    CHECK_EQ_U64(hf_acquire_confirm_at(op, AT(590), AT(100)), AT(100));
    rig_end(&rig, AT(200));
}

TEST(a_single_attempt_does_not_mention_a_lost_subscription) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    rig.refusing = true;
    hf_session_closed(link_of(&rig, EVENTS), "reset", AT(5));
    rig_sleep(&rig, AT(5), AT(300));
    CHECK(link_of(&rig, EVENTS)->reason[0]);
    rig.refusing = false;
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.caller = spec.owner = hf_slice_of("you");
    output_of(link_of(&rig, CALLS));
    hf_op *one = hf_client_begin(&rig.client, &spec, AT(300));
    feed_calls(&rig, busy(20000, 0, 0), AT(301));
    CHECK_OUTCOME(one, "busy");
    CHECK(!strstr(message_of(one), "cannot listen"));
    CHECK_OUTCOME(op, "under way");
    rig_end(&rig, AT(400));
}

TEST(an_acquire_may_ask_for_the_first_token) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.token_floor = 1;
    begin_spec(&rig, &spec, AT(0));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("0", "0", "") "  1");
    rig_end(&rig, AT(1));
}

TEST(a_subscribed_waiter_does_not_mention_its_subscription) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    rig_sleep(&rig, AT(3), AT(1000));
    feed_calls(&rig, ":0\r\n", AT(1001));
    CHECK_OUTCOME(op, "busy");
    CHECK(!strstr(message_of(op), "cannot listen"));
    rig_end(&rig, AT(1002));
}

/* It was down for a moment, long ago. */
TEST(a_busy_lock_does_not_mention_an_earlier_outage) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    hf_session *events = link_of(&rig, EVENTS);
    snprintf(events->reason, sizeof events->reason, "reset");
    rig_sleep(&rig, AT(3), AT(1000));
    feed_calls(&rig, ":0\r\n", AT(1001));
    CHECK_OUTCOME(op, "busy");
    CHECK(!strstr(message_of(op), "reset"));
    rig_end(&rig, AT(1002));
}

/* A leave that the server refuses has no reply, but the wait has ended because the lock is taken.
 */
TEST(a_refused_leave_does_not_hide_why_the_wait_ended) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    rig_sleep(&rig, AT(3), AT(1000));
    feed_calls(&rig, "-NOPERM no\r\n", AT(1001));
    CHECK_OUTCOME(op, "busy");
    rig_end(&rig, AT(1002));
}

TEST(a_recheck_at_the_end_of_the_wait_has_time_for_its_reply) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    feed_message(&rig, "1 recheck 1", AT(990));
    rig_tick(&rig, AT(990));
    CHECK_STATE(op, ASKING);
    CHECK_EQ_U64(request_in(op)->deadline, AT(1090));
    rig_end(&rig, AT(991));
}

/* A command that persists would keep the renewer from the hold for all of the wait. */
TEST(a_re_entry_does_not_persist_through_refusals) {
    for (int shared = 0; shared <= 1; shared++) {
        rig_begin(&rig);
        set_shared(hold_lock(&rig, AT(0)), shared);
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.shared = shared;
        spec.wait = 10 * HF_SECOND;
        hf_op *op = begin_spec(&rig, &spec, AT(1));
        CHECK_STATE(op, ASKING);
        CHECK_EQ_U64(request_in(op)->persists_until, 0);
        rig_end(&rig, AT(2));
    }
}

/* Ctrl-C must not wait for a server that is loading. */
TEST(a_leave_does_not_persist_through_refusals) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    feed_message(&rig, "1 recheck 1", AT(5));
    rig_tick(&rig, AT(5));
    feed_calls(&rig, busy(20000, 0, 0), AT(6));
    CHECK(request_in(op)->persists_until > 0);
    hf_op_interrupt(op, AT(7));
    CHECK_STATE(op, CANCELLING);
    CHECK_EQ_U64(request_in(op)->persists_until, 0);
    rig_end(&rig, AT(8));
}

/* A place alone is no reason to wait for a connection: nobody has ever reached this server. */
TEST(the_first_command_fails_at_once_although_the_client_is_subscribed) {
    rig_begin(&rig);
    first_node(&rig.client)->subscribed = true;
    rig.refusing = true;
    hf_op *op = begin_acquire(&rig, 10 * HF_SECOND, AT(0));
    CHECK_OUTCOME(op, "unreachable");
    rig_end(&rig, AT(1));
}

TEST(a_late_re_entry_takes_the_larger_token) {
    static const struct {
        const char *token;
        uint64_t has;
    } cases[] = {{"90", 90}, {"5", 77}, {"0", 77}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        rig_begin(&rig);
        hf_hold *hold = hold_lock(&rig, AT(0));
        set_wait(hold, 7); /* its grant was confirmed long ago */
        hf_op *op = begin_acquire(&rig, 0, AT(1));
        snprintf(text, sizeof text, "*2\r\n:1\r\n:%s\r\n", cases[i].token);
        feed_calls(&rig, text, AT(2));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_U64(token_of(hold), cases[i].has);
        CHECK_EQ_U64(wait_of_hold(hold), 0);
        rig_end(&rig, AT(3));
    }
}

TEST(a_lock_that_was_free_after_a_wait_needs_no_confirmation) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    feed_message(&rig, "1 recheck 1", AT(5));
    rig_tick(&rig, AT(5));
    feed_calls(&rig, ACQUIRED, AT(6));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(wait_of_hold(hold_of(&rig)), 0);
    CHECK(!is_granted(hold_of(&rig)));
    rig_end(&rig, AT(7));
}

/* The cycle is found while the waiter asks, so it learns of it with the reply. */
TEST(a_cycle_found_while_asking_ends_the_wait) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    feed_message(&rig, "1 recheck 1", AT(5));
    rig_tick(&rig, AT(5));
    set_cycle(op, strdup("a, b"));
    feed_calls(&rig, busy(20000, 0, 0), AT(6));
    feed_calls(&rig, ":0\r\n", AT(7));
    CHECK_OUTCOME(op, "deadlock");
    CHECK(strstr(message_of(op), "a, b"));
    rig_end(&rig, AT(8));
}

/* The holder cannot go on, but its lock ends by itself in time. */
TEST(a_blocking_wait_outlasts_a_lock_that_is_not_renewed) {
    for (int renewed = 0; renewed <= 1; renewed++) {
        rig_begin(&rig);
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.renewed = renewed;
        spec.lease = HF_SECOND;
        hf_op *op = begin_spec(&rig, &spec, AT(0));
        feed_calls(&rig, ACQUIRED, AT(0));
        hf_op_end(op, AT(0));
        spec.caller = spec.owner = hf_slice_of("you");
        spec.blocking = true;
        spec.wait = 5 * HF_SECOND;
        op = begin_spec(&rig, &spec, AT(1));
        feed_calls(&rig, busy(1000, 0, 0), AT(2));
        CHECK_OUTCOME(op, renewed ? "deadlock" : "under way");
        rig_end(&rig, AT(3));
    }
}

static const char *deaf(int ttl_ms) {
    return busy(ttl_ms, 0, 2);
}

/* Ours, but it could not be notified: the pauses grow with the wait, without a limit of their own.
 */
TEST(a_deaf_holder_is_rechecked_often_at_first) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    feed_calls(&rig, deaf(20000), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, deaf(20000), AT(3));
    CHECK_STATE(op, WAITING);
    CHECK(rechecks_at(op) <= AT(3 + 31));
    int longer = 0;
    for (int i = 0; i < 10; i++) {
        feed_message(&rig, "1 recheck 1", AT(4000 + 10 * i));
        rig_tick(&rig, AT(4000 + 10 * i));
        feed_calls(&rig, deaf(16003 - 10 * i), AT(4000 + 10 * i));
        CHECK_STATE(op, WAITING);
        longer += rechecks_at(op) > AT(4000 + 10 * i + 201);
    }
    CHECK(longer > 0);
    rig_end(&rig, AT(5000));
}

/* Two replies about it differ by their time on the way. */
TEST(a_holder_whose_end_wavers_counts_as_the_same) {
    static const int later[] = {4, 6};
    for (int i = 0; i < 2; i++) {
        rig_begin(&rig);
        hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
        feed_calls(&rig, busy(20000, 0, 1), AT(1));
        feed_subscribed(&rig, AT(2));
        feed_calls(&rig, busy(20000, 0, 1), AT(2));
        hf_time since = holder_silent_since(op);
        feed_message(&rig, "1 recheck 1", AT(10));
        rig_tick(&rig, AT(10));
        feed_calls(&rig, busy(19992 + later[i], 0, 1), AT(11));
        CHECK_STATE(op, WAITING);
        CHECK_EQ_INT(holder_silent_since(op) == since, i == 0);
        rig_end(&rig, AT(12));
    }
}

/* The polling clients had their turn; the next foreign holder announces its release. */
TEST(a_turn_of_polling_clients_ends_with_a_holder_of_ours) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    feed_message(&rig, "1 turn 1 20", AT(10));
    rig_tick(&rig, AT(31));
    feed_calls(&rig, busy(30000, 0, 0), AT(31));
    CHECK(!is_turn_of_pollers(op));
    rig_end(&rig, AT(40));
}

/* Only the first one rechecks often to pass over a dead foreign holder. */
TEST(a_later_waiter_behind_a_foreign_holder_rechecks_every_two_seconds) {
    for (int ahead = 0; ahead <= 1; ahead++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
        feed_calls(&rig, busy(20000, ahead, 1), AT(1));
        feed_subscribed(&rig, AT(2));
        feed_calls(&rig, busy(20000, ahead, 1), AT(3));
        CHECK_STATE(op, WAITING);
        CHECK_EQ_INT(rechecks_at(op) > AT(1500), ahead);
        rig_end(&rig, AT(4));
    }
}

/* Pauses grow with the wait, but not beyond the end of the holder's time. */
TEST(a_silent_holder_whose_time_is_up_is_rechecked_at_once) {
    rig_begin(&rig);
    hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
    feed_calls(&rig, busy(2, 0, 1), AT(1));
    feed_subscribed(&rig, AT(2));
    set_holder_silent_until(op, AT(1000));   /* the same hold, */
    set_holder_silent_since(op, AT(-10000)); /* since long ago */
    for (int ms = 3; ms < 203; ms += 10) {
        feed_calls(&rig, busy(2, 0, 1), AT(ms));
        CHECK_STATE(op, WAITING);
        CHECK(rechecks_at(op) <= AT(ms + 3));
        rig_tick(&rig, AT(ms + 10));
        CHECK_STATE(op, ASKING);
    }
    rig_end(&rig, AT(300));
}

/* Else a server that vanished would be noticed by nobody while all wait for messages. */
TEST(a_driver_wakes_to_check_the_events_link) {
    rig_begin(&rig);
    wait_in_queue(&rig, HF_NEVER, AT(0));
    CHECK_EQ_U64(hf_client_calls_deadline(&rig.client), AT(2 + 5000));
    rig_end(&rig, AT(3));
}

/* A message that names a later time must not put the next recheck off. */
TEST(a_recheck_asked_for_later_does_not_delay_the_next_one) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    hf_time at = rechecks_at(op);
    feed_message(&rig, "1 recheck 1 9000", AT(5));
    CHECK_EQ_U64(rechecks_at(op), at);
    rig_end(&rig, AT(6));
}

/* The reply that is under way has its time, however long the wait has lasted. */
TEST(interrupted_while_asking_the_server_has_time_to_answer) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    hf_op_interrupt(op, AT(1000));
    CHECK_EQ_U64(request_in(op)->deadline, AT(1100));
    rig_end(&rig, AT(1001));
}

/* The server itself can be reached; it is only not heard. */
TEST(a_wait_ends_as_busy_when_only_its_events_link_is_refused) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    hf_session *events = link_of(&rig, EVENTS);
    events->failed_opens = 3;
    snprintf(events->reason, sizeof events->reason, "refused");
    hf_client_tick(&rig.client, AT(1000));
    CHECK_STATE(op, CANCELLING);
    feed_calls(&rig, ":0\r\n", AT(1001));
    CHECK_OUTCOME(op, "busy");
    rig_end(&rig, AT(1002));
}

/* Else it would not subscribe again at the node to which its key moves. */
TEST(a_waiter_that_stops_to_listen_listens_to_no_foreign_releases) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    rig_tick(&rig, AT(150));
    CHECK(listening_of(op) != HF_LISTENING_NOT);
    hf_client_listen(op, false, AT(151));
    CHECK_EQ_INT(listening_of(op), HF_LISTENING_NOT);
    hf_client_listen(op, true, AT(152));
    rig_end(&rig, AT(153));
}

TEST(a_wait_is_counted_once_however_often_it_subscribes) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    CHECK_EQ_U64(hf_client_stats(&rig.client).waits, 1);
    hf_session_closed(link_of(&rig, EVENTS), "reset", AT(5));
    feed_message(&rig, "1 recheck 1", AT(6));
    rig_sleep(&rig, AT(6), AT(2500));
    feed_calls(&rig, busy(20000, 0, 0), AT(2501));
    CHECK(!hf_op_is_done(op));
    CHECK_EQ_U64(hf_client_stats(&rig.client).waits, 1);
    rig_end(&rig, AT(2502));
}

TEST(a_waiter_behind_others_of_ours_never_listens_for_foreign_releases) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    feed_calls(&rig, busy(20000, 1, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 1, 0), AT(3));
    CHECK_STATE(op, WAITING);
    CHECK_EQ_U64(listens_at(op), HF_NEVER);
    rig_end(&rig, AT(4));
}

/* Its holders change faster than it would recheck by then. */
TEST(a_waiter_behind_changing_foreign_holders_rechecks_often) {
    rig_begin(&rig);
    hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
    feed_calls(&rig, busy(20000, 0, 1), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 1), AT(3));
    hf_time now = AT(3), longest = 0;
    for (int i = 0; i < 20; i++) { /* the same one */
        longest = hf_time_max(longest, rechecks_at(op) - now);
        now = hf_time_max(rechecks_at(op), AT(3 + 100 * (i + 1)));
        rig_sleep(&rig, AT(3), now);
        feed_calls(&rig, busy((int)((AT(20000) - now) / HF_MS), 0, 1), now);
        CHECK_STATE(op, WAITING);
    }
    CHECK(longest > 60 * HF_MS && longest <= 201 * HF_MS);
    for (int i = 0; i < 20; i++) {
        now = rechecks_at(op);
        rig_tick(&rig, now);
        feed_calls(&rig, busy(30000 + 1000 * i, 0, 1), now);
        CHECK(rechecks_at(op) - now <= 31 * HF_MS);
    }
    rig_end(&rig, now);
}

TEST(an_entry_abandoned_during_a_re_entry_is_dropped_at_its_end) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_op *op = begin_acquire(&rig, 0, AT(1000));
    hf_client_abandon(&rig.client, hold, 1, AT(1001));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK_EQ_INT(dropped_of(hold), 1);
    feed_calls(&rig, ACQUIRED, AT(1002));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK_EQ_INT(dropped_of(hold), 0);
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    rig_end(&rig, AT(1003));
}

TEST(a_re_entry_whose_reply_is_lost_is_sent_again) {
    rig_begin(&rig);
    hold_lock(&rig, AT(0));
    hf_op *op = begin_acquire(&rig, 0, AT(1000));
    output_of(link_of(&rig, CALLS));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(1001));
    rig_sleep(&rig, AT(1001), AT(1100));
    CHECK_SENT(&rig, CALLS, ASK_OF_K("1", "0", ""));
    CHECK_OUTCOME(op, "under way");
    rig_end(&rig, AT(1101));
}

TEST(an_acquire_abandoned_behind_a_renewal_does_not_change_the_hold) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(10001));
    CHECK_STATE(op, BLOCKED);
    hf_op_end(op, AT(10002));
    CHECK(is_in_flight(hold)); /* its renewal is */
    CHECK_SENT(&rig, CALLS, "");
    CHECK_EQ_U64(wakes_at(hold), ends_at(hold));
    feed(link_of(&rig, RENEWER), "*1\r\n:1\r\n", AT(10003));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold), 1);
    rig_end(&rig, AT(11000));
}

TEST(an_acquire_behind_a_stuck_command_does_not_report_an_old_reason) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_session_closed(link_of(&rig, CALLS), "refused", AT(1));
    hf_op *ping = begin(&rig, HF_OP_PING, AT(300));
    feed_calls(&rig, "+PONG\r\n", AT(301));
    CHECK_OUTCOME(ping, "ok");
    CHECK_STR(link_of(&rig, CALLS)->reason, "");
    strcpy(link_of(&rig, EVENTS)->reason, "of another link");
    set_in_flight(hold, true);
    hf_op *op = begin_acquire(&rig, 0, AT(400));
    CHECK_STATE(op, BLOCKED);
    hf_op_tick(op, AT(4000));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), "an earlier command for this key got no reply"), "%s",
             message_of(op));
    CHECK_STATE(op, DONE);
    rig_end(&rig, AT(4001));
}

TEST(a_waiter_rechecks_a_foreign_mutex_without_a_ttl_often_at_first) {
    rig_begin(&rig);
    hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
    feed_calls(&rig, busy(-1, 0, 1), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(-1, 0, 1), AT(3));
    hf_time now = AT(3), longest = 0;
    for (int i = 0; i < 20 && now < AT(120); i++) {
        CHECK_STATE(op, WAITING);
        CHECK(rechecks_at(op) <= now + 31 * HF_MS);
        longest = hf_time_max(longest, rechecks_at(op) - now);
        now = rechecks_at(op);
        rig_tick(&rig, now);
        feed_calls(&rig, busy(-1, 0, 1), now);
    }
    CHECK(longest > 15 * HF_MS);
    rig_end(&rig, now);
}

TEST(a_run_without_a_fingerprint_is_granted_at_once) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_guard;
    spec.wait = 10 * HF_SECOND;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 0), AT(3));
    output_of(link_of(&rig, CALLS));
    feed_message(&rig, "1 grant g 1 5 88 2000 k", AT(10));
    CHECK_OUTCOME(op, "ok");
    CHECK(is_granted(hold_in(op)));
    CHECK_SENT(&rig, CALLS, "");
    rig_end(&rig, AT(12));
}

TEST(a_message_received_while_asking_causes_another_recheck) {
    static const char *const messages[] = {"1 recheck 1", "1 recheck 1 50",
                                           NULL}; /* NULL: it is subscribed again */
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        rig_begin(&rig);
        hf_op *op = wait_in_queue(&rig, 60 * HF_SECOND, AT(0));
        rig_tick(&rig, AT(150));
        hf_time now = rechecks_at(op);
        rig_tick(&rig, now);
        CHECK_STATE(op, ASKING);
        output_of(link_of(&rig, CALLS));
        if (messages[i]) feed_message(&rig, messages[i], now);
        else impl_of(op)->wait->on_subscribed(op, now);
        feed_calls(&rig, busy(20000, 0, 0), now + 5 * HF_MS);
        CHECK_STATE(op, WAITING);
        CHECK_OR(rechecks_at(op) <= now + 6 * HF_MS, "case %zu", i);
        rig_end(&rig, now + 10 * HF_MS);
    }
}

/* Each reply that ends an acquire ends all of it. */
TEST(every_refusal_ends_an_acquire_completely) {
    static const struct {
        const char *reply, *outcome;
    } cases[] = {
        {"*1\r\n:4\r\n", "mismatch"},        {"*2\r\n:3\r\n$1\r\nr\r\n", "duplicate"},
        {"*1\r\n:-3\r\n", "conflict"},       {"*1\r\n:-4\r\n", "conflict"},
        {"*2\r\n:-5\r\n:3\r\n", "conflict"}, {"*2\r\n:-6\r\n$5\r\nguard\r\n", "conflict"},
        {"-ERR no\r\n", "server"},           {"*1\r\n:77\r\n", "server"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int waiting = 0; waiting < 2; waiting++) {
            rig_begin(&rig);
            hf_op *op = waiting ? wait_in_queue(&rig, 60 * HF_SECOND, AT(0))
                                : begin_acquire(&rig, 0, AT(0));
            if (waiting) {
                rig_tick(&rig, AT(150));
                rig_tick(&rig, rechecks_at(op));
            }
            CHECK_STATE(op, ASKING);
            feed_calls(&rig, cases[i].reply, AT(2500));
            CHECK_OR(strcmp(outcome(op), cases[i].outcome) == 0, "case %zu: %s", i, outcome(op));
            CHECK_STATE(op, DONE);
            CHECK(!needs_events(op));
            CHECK_EQ_INT(nodes_of(&rig.client)[0]->waiting, 0);
            rig_end(&rig, AT(2600));
        }
    }
}

TEST(a_re_entry_needs_no_place_although_the_client_is_subscribed) {
    static hf_names other;
    rig_begin(&rig);
    hold_lock(&rig, AT(0));
    if (!hf_names_make(&other, hf_slice_of("j"))) abort();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.names = &other;
    spec.wait = 60 * HF_SECOND;
    begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 0), AT(3));
    output_of(link_of(&rig, CALLS));
    hf_op *op = begin_acquire(&rig, 10 * HF_SECOND, AT(4));
    CHECK(node_for(op)->subscribed);
    CHECK_SENT(&rig, CALLS, ASK_OF_K("1", "0", ""));
    rig_end(&rig, AT(5));
    hf_names_free(&other);
}

TEST(a_lease_that_has_just_ended_is_not_reported) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    feed_calls(&rig, busy(1, 0, 0), AT(1));
    CHECK_OUTCOME(op, "busy");
    CHECK_OR(!strstr(message_of(op), "for up to"), "%s", message_of(op));
    rig_end(&rig, AT(2));
}

TEST(a_refused_connection_at_the_end_of_a_wait_is_unreachable) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    hf_session_closed(link_of(&rig, CALLS), "gone", AT(500));
    hf_session_opening(link_of(&rig, CALLS), AT(500));
    hf_session_closed(link_of(&rig, CALLS), "refused", AT(501));
    CHECK_EQ_INT(link_of(&rig, CALLS)->failed_opens, 1);
    CHECK_EQ_INT(link_of(&rig, EVENTS)->state, HF_SESSION_READY);
    hf_client_tick(&rig.client, AT(1000));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), "refused"), "%s", message_of(op));
    rig_end(&rig, AT(1001));
}

TEST(lost_links_at_the_end_of_a_wait_are_not_a_refusal) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(999));
    hf_session_closed(link_of(&rig, EVENTS), "reset", AT(999));
    hf_client_tick(&rig.client, AT(1000));
    hf_client_tick(&rig.client, AT(1001));
    CHECK_OUTCOME(op, "under way");
    rig_serve(&rig, AT(1001));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", MEMBER("1")));
    feed_calls(&rig, ":0\r\n", AT(1002));
    CHECK_OUTCOME(op, "busy");
    rig_end(&rig, AT(1003));
}

TEST(a_lock_acquired_too_late_has_no_place_to_leave) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lease = HF_SECOND;
    spec.wait = 60 * HF_SECOND;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, ACQUIRED, AT(1500));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    CHECK_EQ_U64(wait_of_hold(hold_of(&rig)), 0);
    rig_end(&rig, AT(1501));
}

TEST(a_shared_owner_that_joins_one_hold_does_not_ask_twice) {
    rig_begin(&rig);
    hf_op *op = begin_shared(0, AT(0));
    CHECK(!request_in(op)->no_retry);
    feed_calls(&rig, "*2\r\n:2\r\n:1\r\n", AT(1));
    CHECK_EQ_INT(count_before(op), 1);
    CHECK(request_in(op)->no_retry);
    rig_end(&rig, AT(2));
}

TEST(an_interrupted_wait_of_a_shared_owner_releases_nothing) {
    rig_begin(&rig);
    hf_op *op = wait_as_shared(AT(0));
    hf_op_interrupt(op, AT(10));
    const char *text = output_of(link_of(&rig, CALLS));
    CHECK_OR(strncmp(text, "EVALSHA leave ", 14) == 0, "%s", text);
    CHECK_STR(strrchr(text, ' '), " 0");
    rig_end(&rig, AT(11));
}

TEST(pauses_behind_a_foreign_mutex_grow_to_a_quarter_of_the_wait) {
    rig_begin(&rig);
    hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
    feed_calls(&rig, busy(-1, 0, 1), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(-1, 0, 1), AT(3));
    int long_ones = 0;
    for (hf_time now = rechecks_at(op); now < AT(780); now = rechecks_at(op)) {
        rig_tick(&rig, now);
        feed_calls(&rig, busy(-1, 0, 1), now);
        hf_time pause = rechecks_at(op) - now, waited = now - AT(0);
        CHECK(pause <= HF_MS + hf_time_max(30 * HF_MS, waited / 4));
        long_ones += pause > HF_MS + hf_time_max(30 * HF_MS, waited / 5);
    }
    CHECK(long_ones > 0);
    rig_end(&rig, AT(1000));
}

TEST(interrupted_in_the_queue_of_an_unreachable_server) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 60 * HF_SECOND, AT(0));
    rig.refusing = true;
    hf_session_closed(link_of(&rig, CALLS), "gone", AT(10));
    hf_op_interrupt(op, AT(11));
    rig_serve(&rig, AT(11));
    CHECK_OUTCOME(op, "interrupted");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_end(&rig, AT(12));
}

TEST(a_client_that_has_left_the_queue_needs_no_events_link) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 60 * HF_SECOND, AT(0));
    CHECK(link_of(&rig, EVENTS)->wanted);
    hf_op_interrupt(op, AT(10));
    feed_calls(&rig, ":1\r\n", AT(11));
    CHECK_OUTCOME(op, "interrupted");
    CHECK(!link_of(&rig, EVENTS)->wanted);
    rig_end(&rig, AT(12));
    rig_begin(&rig);
    op = wait_in_queue(&rig, 60 * HF_SECOND, AT(0));
    feed_message(&rig, GRANT("1", "9"), AT(10));
    CHECK_OUTCOME(op, "ok");
    CHECK(link_of(&rig, EVENTS)->wanted); /* it may wait again soon */
    rig_end(&rig, AT(12));
}

TEST(a_waiter_of_a_fair_lock_has_a_channel_of_its_own) {
    rig_begin(&rig);
    hf_names_free(&rig.names);
    if (!hf_names_make_on(&rig.names, hf_slice_of("k"), &hf_kind_fair)) abort();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_fair;
    spec.wait = 60 * HF_SECOND;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    output_of(link_of(&rig, EVENTS));
    feed_calls(&rig, busy(20000, 0, 0), AT(3));
    CHECK_STATE(op, WAITING);
    const char *text = output_of(link_of(&rig, EVENTS));
    CHECK_OR(strstr(text, ":me"), "%s", text);
    CHECK_OR(strstr(text, "{k}"), "%s", text);
    rig_end(&rig, AT(4));
}

TEST(a_link_without_memory_to_subscribe_is_reopened) {
    bool failed = true;
    unsigned long nth = 1;
    for (; failed; nth++) {
        rig_begin(&rig);
        hf_session *events = link_of(&rig, EVENTS);
        begin_acquire(&rig, HF_NEVER, AT(0));
        memerr_fail(nth);
        feed_calls(&rig, busy(20000, 0, 0), AT(1));
        failed = memerr_failed();
        memerr_fail(0);
        bool made = events->state == HF_SESSION_READY && !events->closing;
        if (made) CHECK_SENT(&rig, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
        rig_end(&rig, AT(2));
    }
    CHECK(nth > 4);
}

/* An earlier link was refused the log-in; this one has only no memory to subscribe. */
TEST(missing_memory_to_subscribe_is_not_reported_as_denied) {
    bool failed = true, refused = false;
    for (unsigned long nth = 1; failed && nth < 50; nth++) {
        hf_client_config config = rig_config();
        strcpy(config.session.server.password, "secret");
        rig_begin_with(&rig, &config);
        hf_session *events = link_of(&rig, EVENTS);
        hf_op *op = begin_acquire(&rig, 10 * HF_SECOND, AT(0));
        feed_calls(&rig, "+OK\r\n", AT(0));
        feed_calls(&rig, busy(5000, 0, 0), AT(1));
        feed(events, "-WRONGPASS no\r\n", AT(2));
        rig_serve(&rig, AT(2));
        refused = hf_op_is_done(op) && hf_op_code(op) == HF_DENIED;
        hf_op_end(op, AT(2));
        rig_tick(&rig, AT(3));
        feed_calls(&rig, ":0\r\n", AT(3));
        op = begin_acquire(&rig, 10 * HF_SECOND, AT(1000));
        feed_calls(&rig, busy(5000, 0, 0), AT(1001));
        CHECK_EQ_INT(events->state, HF_SESSION_LOGIN);
        memerr_fail(nth);
        hf_session_feed(events, "+OK\r\n", 5, AT(1002));
        failed = memerr_failed();
        memerr_fail(0);
        rig_serve(&rig, AT(1002));
        CHECK(refused);
        CHECK_OUTCOME(op, "under way");
        rig_end(&rig, AT(1003));
    }
    CHECK(!failed);
}

TEST(a_waiter_starts_to_listen_for_foreign_releases_after_150_ms) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    hf_client_tick(&rig.client, AT(150) - 1);
    CHECK(listening_of(op) == HF_LISTENING_NOT);
    CHECK_SILENT(&rig);
    hf_client_tick(&rig.client, AT(150));
    CHECK(listening_of(op) != HF_LISTENING_NOT);
    CHECK_SENT(&rig, EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    rig_end(&rig, AT(151));
}

TEST(a_waiter_waits_for_messages_in_two_states_and_while_counted) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    hf_acquire_state before = op_state(op);
    for (int state = 0; state <= HF_ACQUIRE_DONE; state++) {
        bool waits = state == HF_ACQUIRE_WAITING || state == HF_ACQUIRE_SUBSCRIBING;
        set_op_state(op, (hf_acquire_state)state);
        CHECK_EQ_INT(impl_of(op)->wait->waits(op), waits);
        set_needs_events(op, false);
        CHECK(!impl_of(op)->wait->waits(op));
        set_needs_events(op, true);
    }
    set_op_state(op, before);
    rig_end(&rig, AT(5));
}

TEST(a_turn_at_a_mutex_is_waited_for_without_a_subscription) {
    rig_begin(&rig);
    hf_op *op = begin_mutex(HF_NEVER, false, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 0), AT(3));
    CHECK_STATE(op, WAITING);
    output_of(link_of(&rig, EVENTS));
    feed_message(&rig, "1 turn 1 50", AT(100));
    CHECK_EQ_U64(rechecks_at(op), AT(151));
    CHECK(listening_of(op) == HF_LISTENING_NOT);
    CHECK_SENT(&rig, EVENTS, "");
    rig_end(&rig, AT(152));
}

TEST(a_longer_re_entry_extends_the_lease) {
    for (int i = 0; i < 4; i++) {
        rig_begin(&rig);
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.renewed = i & 1;
        hf_op *op = begin_spec(&rig, &spec, AT(0));
        feed_calls(&rig, ACQUIRED, AT(1));
        hf_hold *hold = hold_in(op);
        CHECK_EQ_INT(is_renewed(hold), i & 1);
        spec.renewed = i & 2;
        spec.lease = 40 * HF_SECOND;
        begin_spec(&rig, &spec, AT(2));
        feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(3));
        CHECK_EQ_U64(lease_of(hold), 40 * HF_SECOND);
        CHECK_EQ_U64(ends_at(hold), AT(2 + 39598));
        CHECK_EQ_INT(is_renewed(hold), i > 0);
        rig_end(&rig, AT(4));
    }
}

TEST(a_shared_owners_re_entry_without_a_replica_is_released_too) {
    hf_client_config config = rig_config();
    config.sync = (hf_sync){1, 100 * HF_MS};
    rig_begin_with(&rig, &config);
    hf_op *op = begin_shared(0, AT(0));
    feed_calls(&rig, ACQUIRED ":1\r\n", AT(1));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1));
    op = begin_shared(0, AT(2));
    output_of(link_of(&rig, CALLS));
    begin(&rig, HF_OP_RELEASE, AT(3)); /* behind the answer */
    CHECK_SENT(&rig, CALLS, "");
    feed_calls(&rig, ACQUIRED ":0\r\n", AT(4));
    CHECK_OUTCOME(op, "no_quorum");
    CHECK(strstr(output_of(link_of(&rig, CALLS)), "EVALSHA release " KEYS_OF_K "0 30000 2"));
    rig_end(&rig, AT(5));
}

/* Its lease has begun when the command was sent, however late WAIT has its reply. */
TEST(what_no_replica_has_is_released_within_its_lease) {
    hf_client_config config = rig_config();
    config.sync = (hf_sync){1, 100 * HF_MS};
    rig_begin_with(&rig, &config);
    begin_shared(0, AT(0));
    feed_calls(&rig, ACQUIRED ":0\r\n", AT(90));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    CHECK_EQ_U64(ends_at(hold_of(&rig)), AT(29698));
    rig_end(&rig, AT(100));
}

TEST(a_grant_counts_only_when_replicas_have_confirmed_it) {
    hf_client_config config = rig_config();
    config.sync = (hf_sync){1, 100 * HF_MS};
    rig_begin_with(&rig, &config);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_calls(&rig, ":0\r\n", AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 0), AT(3));
    feed_calls(&rig, ":0\r\n", AT(3));
    CHECK_STATE(op, WAITING);
    feed_message(&rig, GRANT("1", "88"), AT(100));
    CHECK_STATE(op, ASKING);
    rig_end(&rig, AT(101));
}

TEST(a_grant_of_a_short_lease_ends_with_that_lease) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lease = 500 * HF_MS;
    spec.wait = HF_NEVER;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(1));
    feed_subscribed(&rig, AT(2));
    feed_calls(&rig, busy(20000, 0, 0), AT(3));
    feed_message(&rig, GRANT("1", "88"), AT(4));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(ends_at(hold_of(&rig)), hf_lease_end(AT(4), 500 * HF_MS));
    CHECK(is_handed_over(op));
    rig_end(&rig, AT(5));
}

TEST(a_grant_for_another_place_is_no_hand_over) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    feed_message(&rig, "1 grant l 1 6 88 2000 k", AT(4));
    CHECK_STATE(op, ASKING);
    feed_calls(&rig, ACQUIRED, AT(5));
    CHECK_OUTCOME(op, "ok");
    CHECK(!is_handed_over(op));
    rig_end(&rig, AT(6));
}

/* The server knows why, and a signal does not change that. */
TEST(interrupted_while_asking_a_refusal_is_reported) {
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    hf_op_interrupt(op, AT(1));
    feed_calls(&rig, "-NOPERM no\r\n", AT(2));
    CHECK_OUTCOME(op, "denied");
    rig_end(&rig, AT(3));
}

TEST(a_single_attempt_of_a_subscribed_client_needs_no_events_link) {
    rig_begin(&rig);
    first_node(&rig.client)->subscribed = true;
    hf_op *op = begin_acquire(&rig, 0, AT(0));
    CHECK(!needs_events(op));
    CHECK_EQ_INT(first_node(&rig.client)->waiting, 0);
    rig_end(&rig, AT(1));
}

/* It has waited for as long as a command may take, although others have been served meanwhile. */
TEST(a_single_attempt_behind_commands_is_unreachable) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK(is_in_flight(hold));
    for (int wait = 0; wait <= 1; wait++) {
        hf_op *op = begin_acquire(&rig, (hf_time)wait * HF_SECOND, AT(10001));
        CHECK_STATE(op, BLOCKED);
        set_settled_at(hold, AT(10002));
        CHECK_EQ_INT(hf_acquire_was_behind_another(op, AT(10003)), wait);
    }
    rig_end(&rig, AT(10004));
}

/* The server refuses the clean-up for the moment. */
TEST(only_a_wait_outlasts_a_refused_clean_up) {
    for (int wait = 0; wait <= 1; wait++) {
        rig_begin(&rig);
        hf_op *op = begin_shared(0, AT(0));
        feed_calls(&rig, ACQUIRED, AT(0));
        hf_op_end(op, AT(0));
        hf_hold *hold = hold_of(&rig);
        hf_client_abandon(&rig.client, hold, 1, AT(1));
        op = begin_shared((hf_time)wait * HF_SECOND, AT(1));
        CHECK_STATE(op, BLOCKED);
        set_failures(hold, 1);
        set_refused(hold, true);
        hf_client_unblock(&rig.client, hold, AT(2));
        CHECK_OUTCOME(op, wait ? "under way" : "unreachable");
        rig_end(&rig, AT(3));
    }
}

TEST(a_hold_that_is_re_entered_is_no_longer_at_risk) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    set_at_risk(hold, true);
    set_failures(hold, 3);
    begin_acquire(&rig, 0, AT(1));
    feed_calls(&rig, ACQUIRED, AT(2));
    CHECK_EQ_INT(count_of(hold), 2);
    CHECK(!is_at_risk(hold));
    CHECK_EQ_INT(failures_of(hold), 0);
    rig_end(&rig, AT(3));
}

TEST(a_leave_that_finds_many_dead_waiters_goes_on_in_the_background) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    rig_tick(&rig, AT(1000));
    CHECK_STATE(op, CANCELLING);
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, ":3\r\n", AT(1001));
    CHECK_OUTCOME(op, "busy");
    rig_tick(&rig, AT(1001));
    CHECK(strncmp(output_of(link_of(&rig, RENEWER)), "EVALSHA leave 4 k ", 18) == 0);
    rig_end(&rig, AT(1002));
}

TEST(a_busy_reply_at_the_end_of_the_wait_ends_it) {
    for (int early = 0; early <= 1; early++) {
        rig_begin(&rig);
        hf_op *op = begin_acquire(&rig, HF_SECOND, AT(0));
        feed_calls(&rig, busy(20000, 0, 0), AT(1000) - (hf_time)early);
        CHECK_OUTCOME(op, early ? "under way" : "busy");
        rig_end(&rig, AT(1001));
    }
}

TEST(a_grant_with_a_quarter_left_is_accepted) {
    for (int early = 0; early <= 1; early++) {
        rig_begin(&rig);
        hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
        hf_time end = hf_lease_end(placed_at(op), 2 * HF_SECOND);
        feed_message(&rig, GRANT("1", "88"), end - 500 * HF_MS + (hf_time)!early);
        CHECK_OUTCOME(op, early ? "ok" : "under way");
        rig_end(&rig, AT(3000));
    }
}

CHECK_MAIN
