#include "interfaces.h"

#include "base/lease.h"
#include "rig.h"

#define SENTINELS 3
#define ASK_MASTER "SENTINEL GET-MASTER-ADDR-BY-NAME m"
#define ADDRESS(port) "*2\r\n$1\r\na\r\n$4\r\n" #port "\r\n"
#define MASTER "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
#define REPLICA "*5\r\n$5\r\nslave\r\n$1\r\na\r\n:7001\r\n$9\r\nconnected\r\n:0\r\n"
#define READONLY "-READONLY You can't write against a read only replica.\r\n"

static hf_server sentinels[SENTINELS];
static hf_client_config config;

static void configure(void) {
    config = rig_config();
    config.mode = HF_MODE_SENTINEL;
    config.servers = sentinels;
    config.server_count = SENTINELS;
    strcpy(config.master, "m");
    for (int i = 0; i < SENTINELS; i++) {
        sentinels[i] = (hf_server){.port = 26379};
        snprintf(sentinels[i].host, HF_URL_HOST, "s%d", i + 1);
        snprintf(sentinels[i].label, HF_URL_HOST, "s%d:26379", i + 1);
    }
}

static void start(void) {
    configure();
    rig_begin_with(&config);
}

RIG_BEGINS_WITH(start)

static hf_session *calls_of(size_t node) {
    return &nodes_of(&rig.client)[node]->links[CALLS];
}

static void feed_node(size_t node, const char *text, hf_time now) {
    hf_session_feed(calls_of(node), text, strlen(text), now); /* allocates nothing of its own */
    rig_serve(now);
}

/* One after the other, as far as they are asked. */
static void feed_sentinels(const char *text, hf_time now) {
    for (size_t node = 1; node <= config.server_count; node++) {
        bool asked = strstr(output_of(calls_of(node)), ASK_MASTER) != NULL;
        if (asked) feed_node(node, text, now);
    }
}

static hf_op *begin_op(hf_op_kind kind, hf_time wait, hf_time now) {
    hf_op *op = BEGIN(kind, now, spec.wait = wait);
    rig_tick(now);
    return op;
}

/* The master is at port 7001 and has logged the calls link in. */
static hf_op *acquire_at_first(hf_time now) {
    hf_op *op = begin_op(HF_OP_ACQUIRE, 0, now);
    feed_sentinels(ADDRESS(7001), now);
    feed_node(0, MASTER, now);
    output_of(calls_of(0));
    feed_node(0, ACQUIRED, now);
    return op;
}

#define CHECK_ASKED(node, want) CHECK_STR(output_of(calls_of(node)), want)
#define CHECK_AT(want_port)                                                                        \
    (CHECK_STR(nodes_of(&rig.client)[0]->server.host, "a"),                                        \
     CHECK_EQ_INT(nodes_of(&rig.client)[0]->server.port, want_port))

#define CHECK_ALL_ASKED()                                                                          \
    for (size_t node = 1; node <= SENTINELS; node++) CHECK_ASKED(node, ASK_MASTER)

#define CHECK_ANSWER_BY(from, op, reply, now, want)                                                \
    (feed_node(from, reply, now), CHECK_OUTCOME(op, want))

#define CHECK_MASTER_IS(port, from, reply, now) (feed_node(from, reply, now), CHECK_AT(port))

static void close_sentinels(hf_time now) {
    for (size_t node = 1; node <= SENTINELS; node++) hf_session_closed(calls_of(node), "gone", now);
}

/* The client holds a lock at 7001, and has asked the Sentinels a second later. */
static void hold_until_asked(void) {
    hf_op_end(acquire_at_first(AT(0)), AT(0));
    rig_sleep(AT(1), AT(1110));
}

TEST(sentinels_are_queried_by_the_callers_task_and_not_by_the_renewers_task) {
    hf_op_spec spec = spec_of(HF_OP_PING);
    hf_client_begin(&rig.client, &spec, AT(0));
    hf_client_tick_renewer(&rig.client, AT(0));
    rig_serve(AT(0)), CHECK_ASKED(1, "");
    hf_client_tick_calls(&rig.client, AT(0));
    rig_serve(AT(0)), CHECK_ASKED(1, ASK_MASTER);
}

TEST(one_sentinels_reply_suffices_to_find_the_master_if_the_others_hang) {
    begin_op(HF_OP_PING, 0, AT(0));
    feed_node(2, ADDRESS(7001), AT(1));
    rig_sleep(AT(1), AT(100)), CHECK_EQ_INT(calls_of(0)->state, HF_SESSION_CLOSED);
    rig_sleep(AT(100), AT(101)), CHECK_AT(7001), CHECK_EQ_INT(calls_of(0)->state, HF_SESSION_LOGIN);
}

TEST(an_error_message_names_the_sentinels_that_are_down) {
    rig.down[1] = rig.down[2] = rig.down[3] = "Connection refused";
    hf_op *op = begin_op(HF_OP_ACQUIRE, 0, AT(0));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_STR(
        message_of(op),
        "cannot acquire \"k\" on master \"m\": no sentinel at s1:26379, s2:26379, s3:26379 "
        "answered "
        "(Connection refused); check that the server is running and can be reached from here");
}

TEST(an_error_message_says_that_no_sentinel_knows_the_master) {
    hf_op *op = begin_op(HF_OP_ACQUIRE, 0, AT(0));
    feed_sentinels("*-1\r\n", AT(1)), CHECK_OUTCOME(op, "unreachable");
    CHECK_MESSAGE(op, "no sentinel at s1:26379, s2:26379, s3:26379 knows this master");
}

TEST(a_call_fails_as_denied_if_the_sentinels_refuse_the_password) {
    configure();
    for (int i = 0; i < SENTINELS; i++) strcpy(sentinels[i].password, "wrong");
    rig_begin_with(&config);
    hf_op *op = begin_op(HF_OP_ACQUIRE, 0, AT(0));
    for (size_t node = 1; node <= SENTINELS; node++)
        feed_node(node, "-WRONGPASS invalid username-password pair\r\n", AT(1));
    CHECK_OUTCOME(op, "denied");
    CHECK_MESSAGE(op, "sentinel s1:26379: WRONGPASS invalid");
}

TEST(a_call_fails_if_no_sentinel_replies) {
    hf_op *op = begin_op(HF_OP_ACQUIRE, 0, AT(0));
    CHECK_SLEEP(op, AT(0), AT(999), "under way");
    CHECK_SLEEP(op, AT(999), AT(1000), "unreachable");
    CHECK_MESSAGE(op, "answered (no reply in time)");
}

TEST(a_sentinel_that_closes_its_connections_is_queried_over_a_new_one_only_once) {
    EACH_NUMBER (closes_again, 2) {
        hf_op_end(acquire_at_first(AT(0)), AT(0));
        hf_session_closed(calls_of(0), "gone", AT(10));
        hf_op *op = begin_op(HF_OP_CHECK, 0, AT(10));
        CHECK_ALL_ASKED();
        rig.down[2] = rig.down[3] = "refused";
        close_sentinels(AT(10));
        rig_tick(AT(10)), CHECK_ASKED(1, ASK_MASTER);
        if (closes_again) hf_session_closed(calls_of(1), "gone", AT(11));
        else CHECK_MASTER_IS(7002, 1, ADDRESS(7002), AT(11));
        rig_tick(AT(12)), CHECK_ASKED(1, "");
        CHECK_OUTCOME(op, closes_again ? "unreachable" : "under way");
    }
}

TEST(a_sentinel_that_replies_with_a_malformed_address_is_ignored) {
    static const char *const odd[] =
        LIST("*2\r\n$0\r\n\r\n$4\r\n7001\r\n", "*2\r\n$1\r\na\r\n$1\r\n0\r\n",
             "*2\r\n$1\r\na\r\n$5\r\n65536\r\n", "*1\r\n$1\r\na\r\n", ":1\r\n", "+OK\r\n",
             "*2\r\n:1\r\n:2\r\n", "*2\r\n$3\r\na\0b\r\n$1\r\n1\r\n");
    static const size_t sizes[] = {0, 0, 0, 0, 0, 0, 0, 20};
    EACH_CASE (i, odd) {
        hf_op *op = begin_op(HF_OP_ACQUIRE, 0, AT(0));
        for (size_t node = 1; node <= SENTINELS; node++) {
            feed_bytes(calls_of(node), odd[i], sizes[i] ? sizes[i] : strlen(odd[i]), AT(1));
            rig_serve(AT(1));
        }
        CHECK_OUTCOME(op, "unreachable");
        CHECK_MESSAGE(op, "(unexpected reply; is this server a sentinel?)");
    }
}

TEST(a_call_to_a_dead_master_queries_the_sentinels_again_until_its_deadline) {
    rig.down[0] = "Connection refused";
    hf_op *op = begin_op(HF_OP_ACQUIRE, 0, AT(0));
    feed_sentinels(ADDRESS(7001), AT(0));
    int rounds = 0;
    for (int ms = 0; ms < 3000; ms += 10) {
        rig_tick(AT(ms));
        if (strstr(output_of(calls_of(1)), ASK_MASTER)) {
            rounds++;
            feed_node(1, ADDRESS(7001), AT(ms));
            feed_node(2, ADDRESS(7001), AT(ms));
        }
    }
    CHECK_OUTCOME(op, "under way");
    CHECK(rounds >= 12 && rounds <= 30);
    CHECK_SLEEP(op, AT(2990), AT(3000), "unreachable");
    CHECK_MESSAGE(op, "on master \"m\" at a:7001: Connection refused");
}

TEST(a_client_does_not_use_a_server_that_the_sentinels_name_but_that_is_a_replica) {
    hf_op *op = begin_op(HF_OP_ACQUIRE, 0, AT(0));
    feed_sentinels(ADDRESS(7001), AT(1));
    feed_node(0, REPLICA, AT(2)), CHECK_EQ_INT(calls_of(0)->state, HF_SESSION_CLOSED);
    CHECK_OUTCOME(op, "under way");
    for (int ms = 2; calls_of(0)->state == HF_SESSION_CLOSED && ms < 300; ms++) {
        rig_tick(AT(ms));
        feed_sentinels(ADDRESS(7002), AT(ms));
    }
    CHECK_AT(7002);
    feed_node(0, MASTER, AT(300));
    CHECK_ANSWER_BY(0, op, ACQUIRED, AT(300), "ok");
}

TEST(a_client_works_even_if_its_user_may_not_call_role) {
    hf_op *op = begin_op(HF_OP_PING, 0, AT(0));
    feed_sentinels(ADDRESS(7001), AT(1));
    feed_node(0, "-NOPERM no permissions to run the 'role' command\r\n", AT(2));
    CHECK_ASKED(0, "ROLE\nPING");
    CHECK_ANSWER_BY(0, op, "+PONG\r\n", AT(3), "ok");
}

TEST(sentinels_are_queried_every_second_while_a_lock_is_held) {
    hf_op_end(acquire_at_first(AT(0)), AT(0));
    feed_sentinels(ADDRESS(7001), AT(1));
    CHECK(calls_next_tick() <= AT(1110)); /* the half that asks them */
    CHECK(renewer_next_tick() > AT(1110));
    rig_sleep(AT(1), AT(1110));
    CHECK_ALL_ASKED();
    CHECK_MASTER_IS(7001, 1, ADDRESS(7002), AT(1111));
    CHECK_EQ_INT(calls_of(0)->state, HF_SESSION_READY);
    CHECK_MASTER_IS(7002, 3, ADDRESS(7002), AT(1112));
    hf_op *release = begin_op(HF_OP_RELEASE, 0, AT(1113));
    feed_sentinels(ADDRESS(7002), AT(1113));
    feed_node(0, MASTER, AT(1114)), CHECK(strstr(output_of(calls_of(0)), "EVALSHA release"));
    feed_node(0, ":1\r\n", AT(1115)), CHECK_ENDS(release, "ok", AT(1115));
    rig_sleep(AT(1115), AT(9000)), CHECK_ASKED(1, "");
}

TEST(a_client_leaves_a_working_master_only_if_more_than_half_of_the_sentinels_name_another) {
    configure();
    config.server_count = 2;
    rig_begin_with(&config);
    hold_until_asked();
    feed_node(1, ADDRESS(7002), AT(1111));
    rig_sleep(AT(1111), AT(1300)), CHECK_AT(7001);
    CHECK_EQ_INT(calls_of(0)->state, HF_SESSION_READY);
}

TEST(a_client_with_a_lost_connection_tries_the_other_master_if_sentinels_are_split_evenly) {
    for (int first = 1; first <= 2; first++) {
        start();
        hf_op_end(acquire_at_first(AT(0)), AT(0));
        hf_op *op = begin_op(HF_OP_CHECK, 0, AT(10));
        rig.down[3] = "refused";
        hf_session_closed(calls_of(3), "gone", AT(10));
        hf_session_closed(calls_of(0), "gone", AT(10));
        rig_tick(AT(10));
        feed_node((size_t)first, ADDRESS(7001), AT(11));
        feed_node((size_t)(3 - first), ADDRESS(7002), AT(12)), CHECK_AT(7002);
        CHECK_OUTCOME(op, "under way");
    }
}

/* The client moves to 7002 by a majority, and loses its links. Then one Sentinel names 7001, and
 * the second replies this; NULL: nothing. */
static void feed_the_first_again(const char *second) {
    start();
    hold_until_asked();
    feed_node(1, ADDRESS(7002), AT(1110));
    CHECK_MASTER_IS(7002, 2, ADDRESS(7002), AT(1110));
    begin_op(HF_OP_CHECK, 0, AT(1200));
    rig.down[3] = "refused";
    hf_session_closed(calls_of(3), "gone", AT(1200));
    hf_session_closed(calls_of(0), "gone", AT(1200));
    rig_tick(AT(1200));
    feed_node(1, ADDRESS(7001), AT(1201));
    if (second) feed_node(2, second, AT(1202));
    rig_sleep(AT(1202), AT(1400));
}

TEST(only_a_majority_of_sentinels_moves_a_client_back_to_the_old_master) {
    feed_the_first_again(NULL), CHECK_AT(7002);
    feed_the_first_again(ADDRESS(7002)), CHECK_AT(7002);
    feed_the_first_again(ADDRESS(7001)), CHECK_AT(7001);
}

TEST(a_client_that_moved_on_the_word_of_one_sentinel_may_try_the_earlier_master_again) {
    hf_op_end(acquire_at_first(AT(0)), AT(0));
    begin_op(HF_OP_CHECK, 0, AT(10));
    rig.down[2] = rig.down[3] = "refused";
    for (size_t node = 2; node <= 3; node++) hf_session_closed(calls_of(node), "gone", AT(10));
    hf_session_closed(calls_of(0), "gone", AT(10));
    rig_tick(AT(10));
    CHECK_MASTER_IS(7002, 1, ADDRESS(7002), AT(11));
    hf_session_closed(calls_of(0), "gone", AT(12));
    for (int ms = 12; ms < 2000 && nodes_of(&rig.client)[0]->server.port == 7002; ms += 10) {
        rig_tick(AT(ms));
        feed_sentinels(ADDRESS(7001), AT(ms));
    }
    CHECK_AT(7001);
}

TEST(a_minority_that_still_names_the_old_master_is_ignored_for_ten_seconds) {
    EACH_NUMBER (back, 2) {
        hold_until_asked();
        for (size_t node = 1; node <= 2; node++) feed_node(node, ADDRESS(7002), AT(1110));
        CHECK_AT(7002);
        rig.down[0] = rig.down[2] = rig.down[3] = "gone";
        for (size_t node = 0; node <= 3; node++)
            if (node != 1) hf_session_closed(calls_of(node), "gone", AT(1120));
        int end = back ? 13000 : 11100;
        for (int ms = back ? 11200 : 9000;
             ms < end && nodes_of(&rig.client)[0]->server.port == 7002; ms += 10) {
            rig_tick(AT(ms));
            feed_sentinels(ADDRESS(7001), AT(ms));
        }
        CHECK_AT(back ? 7001 : 7002);
    }
}

TEST(locks_are_renewed_soon_after_a_move_to_a_new_master) {
    hold_until_asked();
    feed_node(1, ADDRESS(7002), AT(1110));
    feed_node(2, ADDRESS(7002), AT(1110));
    CHECK(wakes_at(hold_of()) >= AT(1110) && wakes_at(hold_of()) < AT(1400));
    hf_session *renewer = &nodes_of(&rig.client)[0]->links[RENEWER];
    for (int ms = 1110; ms < 1400; ms++) {
        rig_tick(AT(ms));
        feed_sentinels(ADDRESS(7002), AT(ms));
        if (strcmp(output_of(renewer), "ROLE") == 0) feed(renewer, MASTER, AT(ms));
        if (renewer->state == HF_SESSION_READY) break;
    }
    CHECK_STR(output_of(renewer), "EVALSHA renew 1 k me 30000");
    feed(renewer, "*1\r\n:-1\r\n", AT(1400)), CHECK_EQ_INT(state_of(), HF_HOLD_LOST);
    CHECK_EQ_INT(reason_of(hold_of()), HF_LOST_DELETED);
}

/* Each at a time of its own, and the first one first. */
TEST(renewals_after_a_move_to_a_new_master_are_spread_over_time) {
    static const char *const owners[] = {"o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8"};
    hf_op_end(acquire_at_first(AT(0)), AT(0));
    for (size_t i = 0; i < 8; i++) {
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.caller = spec.owner = hf_slice_of(owners[i]));
        rig_tick(AT(0));
        feed_node(0, ACQUIRED, AT(0)), CHECK_ENDS(op, "ok", AT(0));
    }
    rig_sleep(AT(1), AT(1110));
    feed_node(1, ADDRESS(7002), AT(1110));
    feed_node(2, ADDRESS(7002), AT(1110));
    const hf_holds *holds = holds_of(&rig.client);
    CHECK_EQ_INT(holds->count, 9);
    for (size_t i = 0; i < holds->count; i++) {
        CHECK(wakes_at(hold_in_heap(holds, i)) < AT(1400));
        CHECK(wakes_at(hold_of_claim(hf_holds_first(holds))) <= wakes_at(hold_in_heap(holds, i)));
    }
}

/* ---- sync ---- */

#define WAIT_ONE "\nWAIT 1 100"

static void start_sync(void) {
    config = rig_config();
    config.sync = (hf_sync){1, 100 * HF_MS};
    rig_begin_with(&config);
}

static hf_op *acquire_in_sync(hf_time now) {
    hf_op *op = begin_acquire(0, now);
    sent_over(CALLS);
    feed_calls(ACQUIRED ":1\r\n", now);
    return op;
}

TEST(an_acquire_that_no_replica_confirms_is_undone) {
    CASES(const char *reply, *outcome, *message) = {
        {":0\r\n", "no_quorum", "0 of 1 replicas confirmed the write within 0.1 s"},
        {":-1\r\n", "no_quorum", ""},
        {"-ERR unknown command\r\n", "no_quorum", "WAIT for replicas failed: ERR unknown command"},
        {"-NOPERM no 'wait'\r\n", "denied", "WAIT for replicas failed: NOPERM"}};
    EACH_CASE (i, cases) {
        start_sync();
        hf_op *op = begin_acquire(0, AT(0));
        sent_over(CALLS);
        feed_calls(ACQUIRED, AT(1));
        CHECK_ANSWER(op, cases[i].reply, AT(100), cases[i].outcome);
        CHECK(hf_op_is_done(op));
        CHECK_MESSAGE(op, cases[i].message);
        CHECK_SENT_AT(CALLS, AT(100), LEAVE_OF_K("0", ""));
    }
}

TEST(a_call_abandoned_before_the_replicas_confirmation_leaves_the_next_calls_reply_intact) {
    for (int replies = 0; replies < 2; replies++) {
        start_sync();
        hf_op *op = begin_acquire(0, AT(0)), *ping = begin(HF_OP_PING, AT(0));
        if (replies > 0) feed_calls(ACQUIRED, AT(1));
        hf_op_abandon(op, AT(2));
        if (replies == 0) feed_calls(ACQUIRED, AT(3));
        feed_calls(":1\r\n", AT(3)), CHECK(!request_in(op)->reply);
        CHECK_OUTCOME(ping, "under way");
        CHECK_ANSWER(ping, "+PONG\r\n", AT(3), "ok");
    }
}

TEST(a_granted_lock_is_confirmed_before_the_acquire_succeeds) {
    start_sync();
    hf_op *op = begin_acquire(10 * HF_SECOND, AT(0));
    feed_calls(busy(20000, 0, 0), AT(1));
    feed_calls(":1\r\n", AT(1));
    feed_subscribed(AT(2));
    feed_calls(busy(20000, 0, 0), AT(3));
    feed_calls(":1\r\n", AT(3));
    sent_over(CALLS);
    CHECK_GRANTS(op, GRANT("1", "78"), AT(4), "under way");
    CHECK_SENT(CALLS, ASK_OF_K("0", "0", MEMBER("1")) WAIT_ONE);
    CHECK_ANSWER(op, "*3\r\n:1\r\n:79\r\n:0\r\n:1\r\n", AT(5), "ok");
}

TEST(an_extension_that_no_replica_confirms_fails_and_does_not_prolong_the_lease) {
    start_sync();
    hf_op_end(acquire_in_sync(AT(0)), AT(0));
    hf_op *op = BEGIN(HF_OP_EXTEND, AT(1000), spec.lease = 60 * HF_SECOND);
    CHECK_SENT(
        CALLS,
        "EVALSHA extend 2 k holdfast_queue:{k} me 60000   redisson_lock__channel:{k}" WAIT_ONE);
    CHECK_ANSWER(op, ":1\r\n:0\r\n", AT(1100), "no_quorum");
    CHECK_EQ_U64(ends_at(hold_of()), hf_lease_end(AT(0), 30 * HF_SECOND));
    CHECK_EQ_U64(lease_of(hold_of()), 30 * HF_SECOND);
}

/* ---- memory ---- */

static bool find_and_hold(void *context) {
    (void)context;
    configure();
    config.sync = (hf_sync){1, 100 * HF_MS};
    if (!rig_begin_with(&config)) return false;
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
    for (int ms = 0; op && !hf_op_is_done(op) && ms < 4000; ms++) {
        rig_tick(AT(ms));
        feed_sentinels(ADDRESS(7001), AT(ms));
        const char *text = output_of(calls_of(0));
        if (strstr(text, "ROLE")) feed_node(0, MASTER, AT(ms));
        else if (strstr(text, "acquire")) feed_node(0, ACQUIRED ":1\r\n", AT(ms));
    }
    bool held = op && hf_op_is_done(op) && hf_op_code(op) == HF_OK;
    rig_end(AT(4000));
    return held;
}

TEST(finding_the_master_survives_each_failed_allocation) {
    CHECK(memerr_until_success(find_and_hold, NULL, 1000) > 20);
}

TEST(an_error_message_that_cannot_name_all_sentinels_names_the_first_ones) {
    static hf_server many[40];
    configure();
    for (int i = 0; i < 40; i++) {
        many[i] = (hf_server){.port = 26379};
        snprintf(many[i].host, HF_URL_HOST, "sentinel%d", i + 1);
        snprintf(many[i].label, HF_URL_HOST, "sentinel%d.example.org:26379", i + 1);
    }
    config.servers = many;
    config.server_count = 40;
    rig_begin_with(&config);
    rig.refusing = true;
    hf_op *op = begin_op(HF_OP_PING, 0, AT(0));
    CHECK_SLEEP(op, AT(0), AT(4000), "unreachable");
    CHECK_MESSAGE(op, "no sentinel at sentinel1.example.org:26379, ... answered");
}

TEST(a_master_that_the_sentinels_name_may_have_the_lowest_or_the_highest_port) {
    CASES(const char *reply; int port) = {{"*2\r\n$1\r\na\r\n$1\r\n1\r\n", 1},
                                          {"*2\r\n$1\r\na\r\n$5\r\n65535\r\n", 65535}};
    EACH_CASE (i, cases) {
        begin_op(HF_OP_PING, 0, AT(0));
        feed_sentinels(cases[i].reply, AT(1)), CHECK_AT(cases[i].port);
    }
}

TEST(a_sentinel_that_replies_with_a_host_that_is_too_long_is_ignored) {
    enum { ROOM = sizeof((hf_address){.port = 0}).host };
    for (int size = ROOM - 1; size <= ROOM + 1; size++) {
        char text[ROOM + 64], host[ROOM + 2];
        memset(host, 'h', sizeof host);
        snprintf(text, sizeof text, "*2\r\n$%d\r\n%.*s\r\n$4\r\n7001\r\n", size, size, host);
        start();
        begin_op(HF_OP_PING, 0, AT(0));
        feed_sentinels(text, AT(1));
        CHECK_EQ_INT(nodes_of(&rig.client)[0]->server.port == 7001, size < ROOM);
    }
}

static void start_with(size_t count) {
    configure();
    config.server_count = count;
    rig_begin_with(&config);
}

TEST(a_majority_of_sentinels_outvotes_the_first_reply) {
    hf_op *op = begin_op(HF_OP_PING, 0, AT(0));
    feed_node(1, ADDRESS(7001), AT(1));
    feed_node(2, ADDRESS(7002), AT(2)), CHECK_EQ_INT(calls_of(0)->state, HF_SESSION_CLOSED);
    CHECK_MASTER_IS(7002, 3, ADDRESS(7002), AT(3));
    CHECK_OUTCOME(op, "under way");
}

TEST(a_client_that_has_no_memory_to_query_one_sentinel_decides_by_the_others) {
    bool reported = false;
    EACH_FAILURE(nth, 1) {
        start_with(1);
        hf_op_spec spec = spec_of(HF_OP_PING);
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(0));
        memerr_end();
        reported =
            reported || (hf_op_is_done(op) && strstr(message_of(op), "answered (out of memory)"));
        CHECK(hf_op_is_done(op) || calls_of(1)->queue || calls_of(1)->state != HF_SESSION_CLOSED);
    }
    CHECK(reported);
}

/* The old connection is gone with the question under way, and the new question fails for memory. */
TEST(a_client_that_has_no_memory_to_query_a_sentinel_again_decides_by_the_others) {
    bool reported = false;
    EACH_FAILURE(nth, 1) {
        start_with(1);
        hf_op_end(acquire_at_first(AT(0)), AT(0));
        hf_session_closed(calls_of(0), "gone", AT(10));
        hf_op *op = begin_op(HF_OP_CHECK, 0, AT(10));
        CHECK_ASKED(1, ASK_MASTER);
        memerr_fail(nth);
        hf_session_closed(calls_of(1), "gone", AT(11));
        rig_tick(AT(11));
        memerr_end();
        reported =
            reported || (hf_op_is_done(op) && strstr(message_of(op), "answered (out of memory)"));
        rig_sleep(AT(11), AT(20));
        bool asks = strstr(output_of(calls_of(1)), ASK_MASTER) != NULL;
        CHECK(hf_op_is_done(op) || asks);
        CHECK(client_next_tick() != HF_NEVER);
    }
    CHECK(reported);
}

/* So that clients which lost their master together do not ask together. */
TEST(sentinels_are_queried_about_once_a_second) {
    hf_time first = HF_NEVER, last = 0;
    hf_op_end(acquire_at_first(AT(0)), AT(0));
    feed_sentinels(ADDRESS(7001), AT(0));
    hf_time now = AT(0);
    for (int i = 0; i < 100; i++) {
        hf_time next = topology_of(&rig.client)->next_tick(&rig.client, CALLS);
        CHECK(next >= now + 900 * HF_MS && next <= now + 1100 * HF_MS);
        first = hf_time_min(first, next - now);
        last = hf_time_max(last, next - now);
        topology_of(&rig.client)->tick(&rig.client, CALLS, next);
        now = next;
        feed_sentinels(ADDRESS(7001), now), CHECK_AT(7001);
    }
    CHECK(first < 920 * HF_MS && last > 1080 * HF_MS);
}

TEST(sentinels_are_queried_every_second_while_a_call_is_in_flight) {
    begin_op(HF_OP_PING, 0, AT(0));
    feed_sentinels(ADDRESS(7001), AT(1));
    feed_node(0, MASTER, AT(2)), CHECK(strstr(output_of(calls_of(0)), "PING")), CHECK_ASKED(1, "");
    rig_sleep(AT(2), AT(1110)), CHECK_ASKED(1, ASK_MASTER);
}

/* A master whose links fail to open again and again does not work, although one is still open. */
TEST(a_client_follows_a_single_sentinel_after_three_failed_connection_attempts) {
    for (uint32_t opens = 2; opens <= 3; opens++) {
        start();
        hf_op_end(acquire_at_first(AT(0)), AT(0));
        hf_session *renewer = &nodes_of(&rig.client)[0]->links[RENEWER];
        renewer->stays_open = true;
        renewer->opens_since_reply = opens;
        renewer->unresolved = true;
        renewer->retry_at = AT(1000);
        feed_sentinels(ADDRESS(7001), AT(10));
        rig_tick(AT(1110));
        feed_node(1, ADDRESS(7002), AT(1111));
        rig_sleep(AT(1111), AT(1220)), CHECK_AT(opens < 3 ? 7001 : 7002);
    }
}

TEST(only_locks_with_automatic_renewal_are_renewed_soon_at_a_new_master) {
    enum { RENEWED, NOT_RENEWED, LEFT, IN_FLIGHT, TO_BE_APPROVED, HOLDS };
    static const char *const owners[HOLDS] = {"o1", "o2", "o3", "o4", "o5"};
    hf_hold *holds[HOLDS];
    start();
    hf_op_end(acquire_at_first(AT(0)), AT(0));
    for (size_t i = 0; i < HOLDS; i++) {
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.caller = spec.owner = hf_slice_of(owners[i]),
                          spec.renewed = i != NOT_RENEWED);
        CHECK_ANSWER_BY(0, op, ACQUIRED, AT(0), "ok");
        holds[i] = watch(hold_in(op));
        hf_op_end(op, AT(0));
    }
    rig_sleep(AT(1), AT(1110));
    abandon_hold(holds[LEFT], 1, AT(1110));
    hf_holds_set_wake_at(holds_of(&rig.client), claim_of(holds[LEFT]), AT(5000));
    set_in_flight(holds[IN_FLIGHT], true);
    set_approval(holds[TO_BE_APPROVED], HF_APPROVAL_PENDING);
    for (int i = IN_FLIGHT; i <= TO_BE_APPROVED; i++)
        hf_holds_set_wake_at(holds_of(&rig.client), claim_of(holds[i]), AT(6000));
    feed_node(1, ADDRESS(7002), AT(1110));
    CHECK_MASTER_IS(7002, 2, ADDRESS(7002), AT(1110));
    CHECK(wakes_at(holds[RENEWED]) < AT(1400));
    CHECK_EQ_U64(wakes_at(holds[NOT_RENEWED]), ends_at(holds[NOT_RENEWED]));
    CHECK_EQ_U64(wakes_at(holds[LEFT]), AT(5000));
    CHECK_EQ_U64(wakes_at(holds[IN_FLIGHT]), AT(6000));
    CHECK_EQ_U64(wakes_at(holds[TO_BE_APPROVED]), AT(6000));
    set_in_flight(holds[IN_FLIGHT], false);
}

/* The list of Sentinels has room for 55 bytes, dots included. */
TEST(an_error_message_whose_list_of_sentinels_does_not_fit_ends_with_an_ellipsis) {
    for (size_t size = 47; size <= 50; size++) {
        char want[100] = "no sentinel at ";
        configure();
        config.server_count = 1;
        memset(sentinels[0].label, 's', size);
        sentinels[0].label[size] = '\0';
        rig_begin_with(&config);
        rig.refusing = true;
        hf_op *op = begin_op(HF_OP_PING, 0, AT(0));
        CHECK_OUTCOME(op, "unreachable");
        strcat(want, size <= 48 ? sentinels[0].label : "...");
        strcat(want, " answered"), CHECK_MESSAGE(op, want);
    }
}

TEST(each_round_of_queries_opens_a_new_connection_to_a_sentinel_whose_last_one_was_lost) {
    start_with(1);
    hf_op_end(acquire_at_first(AT(0)), AT(0));
    for (int i = 1; i <= 3; i++) {
        hf_session_closed(calls_of(0), "gone", AT(10 * i));
        hf_op *op = begin_op(HF_OP_PING, 0, AT(10 * i));
        CHECK_ASKED(1, ASK_MASTER);
        hf_session_closed(calls_of(1), "gone", AT(10 * i));
        rig_tick(AT(10 * i)), CHECK_ASKED(1, ASK_MASTER);
        feed_node(1, ADDRESS(7001), AT(10 * i));
        feed_node(0, MASTER, AT(10 * i)), CHECK(strstr(output_of(calls_of(0)), "PING"));
        feed_node(0, "+PONG\r\n", AT(10 * i)), CHECK_ENDS(op, "ok", AT(10 * i));
    }
}

TEST(a_sentinel_never_receives_a_command_for_a_key) {
    CHECK(hf_client_node_may_have_keys(&rig.client, 0));
    for (size_t node = 1; node <= SENTINELS; node++)
        CHECK(!hf_client_node_may_have_keys(&rig.client, node));
}

/* Its question is taken back with the round that it belongs to. */
TEST(a_sentinel_whose_connection_opens_only_after_the_decision_is_not_queried) {
    for (size_t late = 1; late <= SENTINELS; late++) {
        start();
        hf_op_spec spec = spec_of(HF_OP_PING);
        hf_client_begin(&rig.client, &spec, AT(0));
        hf_client_tick(&rig.client, AT(0));
        for (size_t node = 1; node <= SENTINELS; node++) {
            hf_session_opening(calls_of(node), AT(0));
            if (node != late) hf_session_opened(calls_of(node), AT(0));
        }
        for (size_t node = 1; node <= SENTINELS; node++) {
            if (node != late) feed(calls_of(node), ADDRESS(7001), AT(1));
        }
        CHECK_AT(7001);
        hf_session_opened(calls_of(late), AT(2)), CHECK_ASKED(late, "");
    }
}

TEST(sentinels_are_queried_every_second_while_an_acquire_waits) {
    hf_op *op = begin_op(HF_OP_ACQUIRE, 60 * HF_SECOND, AT(0));
    feed_sentinels(ADDRESS(7001), AT(1));
    feed_node(0, MASTER, AT(1));
    output_of(calls_of(0));
    feed_node(0, busy(20000, 0, 0), AT(2)), CHECK(is_subscribing(op));
    CHECK_EQ_INT(nodes_of(&rig.client)[0]->events_users, 1);
    rig_tick(AT(3)); /* for the events link */
    feed_sentinels(ADDRESS(7001), AT(3)), CHECK_ASKED(1, "");
    rig_sleep(AT(3), AT(1200)), CHECK(strstr(output_of(calls_of(1)), ASK_MASTER));
}

TEST(the_reply_of_a_sentinel_that_was_loading_at_first_is_used_at_once) {
    start_with(1);
    begin_op(HF_OP_PING, 0, AT(0)), CHECK_ASKED(1, ASK_MASTER);
    feed_node(1, "-LOADING Redis is loading\r\n", AT(1));
    rig_sleep(AT(1), AT(40)), CHECK_ASKED(1, ASK_MASTER);
    CHECK_MASTER_IS(7001, 1, ADDRESS(7001), AT(41));
}

TEST(the_login_function_is_called_for_the_master_and_not_for_sentinels) {
    configure();
    config.session.fetches_login = true;
    CHECK(rig_begin_with(&config));
    begin_op(HF_OP_ACQUIRE, 0, AT(0));
    feed_sentinels(ADDRESS(7001), AT(0));
    CHECK_EQ_INT(hf_session_wants(calls_of(0), AT(0)), HF_WANT_LOGIN);
    hf_session_fetching_login(calls_of(0));
    hf_session_log_in(calls_of(0), "", "token");
    rig_tick(AT(0)), CHECK_STR(output_of(calls_of(0)), "AUTH token\nROLE");
}

CHECK_MAIN
