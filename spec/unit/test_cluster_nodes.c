#include "cluster_rig.h"

RIG_BEGINS_WITH(cluster_before)

#define SHARDED_CHANNELS "*2\r\n$1\r\n0\r\n:0\r\n"
#define I_AM(id) "$2\r\n" id "\r\n" SHARDED_CHANNELS
#define NODE_OF(host, port, id) "*3\r\n$1\r\n" host "\r\n:" #port "\r\n$2\r\n" id "\r\n"
#define RANGE_OF(first, last, host, port, id)                                                      \
    "*3\r\n:" #first "\r\n:" #last "\r\n" NODE_OF(host, port, id)
#define TWO_NODES "*2\r\n" RANGE_OF(0, 8191, "a", 1, "aa") RANGE_OF(8192, 16383, "b", 2, "bb")
#define B_TOOK_OVER "*1\r\n" RANGE_OF(0, 16383, "b", 2, "bb")
#define OTHER_CLUSTER "*1\r\n" RANGE_OF(0, 16383, "x", 9, "xx")
#define MADE_ANEW "*2\r\n" RANGE_OF(0, 8191, "a", 1, "a2") RANGE_OF(8192, 16383, "b", 2, "b2")
#define A_WAS_RESET "*2\r\n" RANGE_OF(0, 8191, "a", 1, "a2") RANGE_OF(8192, 16383, "b", 2, "bb")

/* A client that has used TWO_NODES. */
static void two_nodes_known(void) {
    CHECK(cluster_begin());
    rig.login[0] = I_AM("aa");
    rig.login[1] = I_AM("bb");
    hf_op *op = acquire(0, AT(0));
    rig_tick(AT(0));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, TWO_NODES, AT(1), 0, ASKED);
    CHECK_ANSWER_BY(0, op, busy(20000, 0, 0), AT(1), "busy");
    hf_op_end(op, AT(1));
}

TEST(a_node_of_a_different_cluster_at_a_known_address_receives_no_command) {
    two_nodes_known();
    rig.login[0] = I_AM("xx");
    loses(0, AT(1000));
    hf_op *op = acquire(0, AT(1200));
    rig_sleep(AT(1200), AT(1210)), CHECK_NODE_SENT(0, CALLS, ""), CHECK_NODE_SENT(1, CALLS, QUERY);
    CHECK_ANSWER_BY(1, op, TWO_NODES, AT(1211), "unreachable");
    CHECK_MESSAGE(op, "another server answers at this address (xx; the cluster has aa)");
    hf_op_end(op, AT(1211));
    op = acquire(0, AT(2000));
    rig_sleep(AT(2000), AT(2200)), CHECK(strstr(output_of(at(1, CALLS)), QUERY));
    CHECK_THEN_SENT(1, B_TOOK_OVER, AT(2201), 1, ASKED);
    CHECK_NODE_SENT(0, CALLS, "");
}

TEST(a_server_outside_any_cluster_at_a_known_address_receives_no_command) {
    two_nodes_known();
    rig.login[0] = "-ERR This instance has cluster support disabled\r\n" SHARDED_CHANNELS;
    loses(0, AT(1000));
    hf_op *op = acquire(0, AT(1200));
    rig_sleep(AT(1200), AT(1210));
    CHECK_ANSWER_BY(1, op, TWO_NODES, AT(1211), "unreachable");
    CHECK_MESSAGE(op, "(not in a cluster; the cluster has aa)");
    CHECK_NODE_SENT(0, CALLS, "");
}

TEST(a_node_that_cannot_return_its_id_still_receives_commands) {
    static const char *const logins[] = {
        "-NOPERM no permissions to run the 'cluster|myid' command\r\n" SHARDED_CHANNELS,
        "-ERR unknown command\r\n" SHARDED_CHANNELS, "$-1\r\n" SHARDED_CHANNELS,
        "$0\r\n\r\n" SHARDED_CHANNELS};
    for (size_t i = 0; i < sizeof logins / sizeof *logins; i++) {
        two_nodes_known();
        rig.login[0] = logins[i];
        loses(0, AT(1000));
        acquire(0, AT(1200)), CHECK_NODE_SENT(0, CALLS, ASKED);
    }
}

/* Until it does, it may be another one. */
TEST(a_node_that_is_too_busy_to_return_its_id_receives_no_command) {
    static const char *const logins[] = {
        "-BUSY Redis is busy running a script.\r\n" SHARDED_CHANNELS,
        "-LOADING Redis is loading the dataset in memory\r\n" SHARDED_CHANNELS,
        "$2\r\naa\r\n-BUSY Redis is busy running a script.\r\n"};
    for (size_t i = 0; i < sizeof logins / sizeof *logins; i++) {
        two_nodes_known();
        loses(0, AT(1000));
        rig_sleep(AT(1000), AT(1500));
        answer_query(1, CALLS, TWO_NODES, AT(1500));
        answer_query(0, CALLS, TWO_NODES, AT(1500));
        loses(0, AT(1501));
        rig.login[0] = logins[i];
        uint64_t opens = rig.opens;
        hf_op *op = acquire(0, AT(2000));
        for (int ms = 2000; ms < 3000; ms += 10) {
            rig_sleep(AT(ms), AT(ms + 10)), CHECK_NODE_SENT(0, CALLS, "");
            answer_query(1, CALLS, TWO_NODES, AT(ms + 10));
        }
        CHECK_OUTCOME(op, "under way");
        CHECK(rig.opens - opens < 40);
        rig.login[0] = I_AM("aa");
        for (int ms = 3000; ms < 4500; ms += 10) {
            rig_sleep(AT(ms), AT(ms + 10));
            answer_query(1, CALLS, TWO_NODES, AT(ms + 10));
            if (strstr(output_of(at(0, CALLS)), "acquire")) feeds(0, CALLS, YES, AT(ms + 10));
        }
        CHECK_OUTCOME(op, "ok");
    }
}

TEST(a_map_of_a_different_cluster_is_ignored) {
    two_nodes_known();
    rig.login[1] = "-NOPERM no\r\n" SHARDED_CHANNELS; /* so its map is asked for */
    rig.down[0] = "refused";
    loses(0, AT(1000));
    hf_op *op = acquire(0, AT(1200));
    rig_sleep(AT(1200), AT(1210)), CHECK_NODE_SENT(1, CALLS, QUERY);
    feeds(1, CALLS, OTHER_CLUSTER, AT(1211));
    rig_sleep(AT(1211), AT(1212)), CHECK_EQ_INT(node_count(&rig.client), 2);
    CHECK_OUTCOME(op, "unreachable");
    CHECK_MESSAGE(op, "b:2: it belongs to another cluster now");
}

static void another_acquires(hf_time now) {
    BEGIN(HF_OP_ACQUIRE, now, spec.caller = spec.owner = hf_slice_of("you"));
}

/* Callers acquire the lock, one after the other, and each node that is asked gives its map. Returns
 * whether a command has been sent to the node. */
static bool finds(size_t node, const char *const maps[2], hf_time from, hf_time to) {
    for (hf_time now = from; now < to; now += 10 * HF_MS) {
        while (ops_of(&rig.client) && hf_op_is_done(ops_of(&rig.client)))
            hf_op_end(ops_of(&rig.client), now);
        if (!ops_of(&rig.client)) another_acquires(now);
        rig_sleep(now, now + 10 * HF_MS);
        for (size_t i = 0; i < 2; i++) {
            const char *sent = output_of(at(i, CALLS));
            if (i == node && strstr(sent, "acquire")) return true;
            if (strstr(sent, QUERY)) feeds(i, CALLS, maps[i], now + 10 * HF_MS);
        }
    }
    return false;
}

static const char *const NEW_MAPS[2] = {MADE_ANEW, MADE_ANEW};

TEST(a_client_finds_a_cluster_whose_nodes_were_reset_while_connections_were_open) {
    two_nodes_known();
    rig.login[0] = I_AM("a2");
    rig.login[1] = I_AM("b2");
    hf_op *op = acquire(HF_SECOND, AT(1000));
    output_of(at(0, CALLS));
    feeds(0, CALLS, "-CLUSTERDOWN Hash slot not served\r\n", AT(1001));
    CHECK(finds(0, NEW_MAPS, AT(1001), AT(1900)));
    CHECK_ANSWER_BY(0, op, YES, AT(1901), "ok");
}

TEST(a_client_that_holds_a_lock_does_not_switch_to_a_different_cluster) {
    two_nodes_known();
    hold_k(AT(100));
    rig.login[0] = I_AM("a2");
    rig.login[1] = I_AM("b2");
    loses(0, AT(1000));
    loses(1, AT(1000)), CHECK(!finds(0, NEW_MAPS, AT(2000), AT(29000)));
    CHECK(finds(0, NEW_MAPS, AT(29000), AT(33000))); /* its lease has ended */
}

/* Each of them answered as a stranger once, while the other one was down. */
TEST(a_client_switches_to_a_new_cluster_only_if_a_majority_belongs_to_it_at_the_same_time) {
    static const char *const maps[2] = {OTHER_CLUSTER, OTHER_CLUSTER};
    two_nodes_known();
    rig.login[0] = rig.login[1] = I_AM("xx");
    rig.down[1] = "refused";
    loses(0, AT(1000));
    loses(1, AT(1000)), CHECK(!finds(0, maps, AT(2000), AT(4000)));
    rig.down[0] = "refused";
    rig_sleep(AT(4000), AT(6000));
    rig.down[1] = NULL;
    CHECK(!finds(1, maps, AT(6000), AT(8000)));
    CHECK_EQ_INT(node_count(&rig.client), 2);
}

TEST(a_node_that_gets_a_new_id_in_the_map_is_reconnected) {
    two_nodes_known();
    rig.login[0] = I_AM("a2");
    invalidate(1, AT(1000)), CHECK_NODE_SENT(0, CALLS, QUERY);
    feeds(0, CALLS, A_WAS_RESET, AT(1001));
    rig_serve(AT(1001)), CHECK(at(0, CALLS)->state != HF_SESSION_READY);
    acquire(0, AT(1100)), CHECK_NODE_SENT(0, CALLS, ASKED);
    CHECK_EQ_INT(node_count(&rig.client), 2);
}

TEST(a_new_node_without_an_id_is_used_at_the_address_of_an_old_one) {
    two_nodes_known();
    rig.login[0] = "-NOPERM no\r\n" SHARDED_CHANNELS;
    loses(0, AT(1000));
    invalidate(1, AT(1001));
    size_t asked = strstr(output_of(at(0, CALLS)), QUERY) ? 0 : 1;
    feeds(asked, CALLS, A_WAS_RESET, AT(1002));
    rig_serve(AT(1002));
    acquire(0, AT(1100));
    rig_sleep(AT(1100), AT(1110)), CHECK(strstr(output_of(at(0, CALLS)), ASKED));
}

/* Managed services put proxies in front of their nodes. */
TEST(nodes_whose_ids_differ_from_those_in_their_own_map_are_used) {
    rig.login[0] = I_AM("p1");
    acquire(0, AT(0));
    rig_tick(AT(0));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, TWO_NODES, AT(1), 0, ASKED);
    feeds(0, CALLS, busy(20000, 0, 0), AT(1));
    hf_op_end(ops_of(&rig.client), AT(1));
    rig.login[0] = I_AM("p2");
    loses(0, AT(1000));
    acquire(0, AT(1001));
    rig_serve(AT(1001)), CHECK_NODE_SENT(0, CALLS, ASKED);
}

/* The first node that was asked had no slots, so its own id was in no map. */
TEST(node_ids_are_compared_only_once_a_node_has_confirmed_its_id_in_the_map) {
    rig.login[0] = I_AM("zz");
    rig.login[1] = I_AM("bb");
    acquire(0, AT(0));
    rig_tick(AT(0));
    CHECK_THEN_SENT(0, B_TOOK_OVER, AT(1), 1, ASKED);
    feeds(1, CALLS, busy(20000, 0, 0), AT(2));
    hf_op_end(ops_of(&rig.client), AT(2));
    invalidate(1, AT(300)), CHECK_NODE_SENT(1, CALLS, QUERY);
    feeds(1, CALLS, B_TOOK_OVER, AT(401));
    rig.login[1] = I_AM("xx");
    loses(1, AT(500));
    acquire(0, AT(600));
    rig_sleep(AT(600), AT(610)), CHECK_NODE_SENT(1, CALLS, "");
}

#define ONLY_A_OF_X "*1\r\n" RANGE_OF(0, 16383, "a", 1, "xx")

TEST(a_new_client_queries_other_nodes_if_the_first_map_contains_no_known_id) {
    rig.login[0] = I_AM("xx");
    rig.login[1] = I_AM("bb");
    acquire(0, AT(0));
    rig_tick(AT(0));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, ONLY_A_OF_X, AT(1), 0, "");
    CHECK_NODE_SENT(1, CALLS, QUERY);
    CHECK_THEN_SENT(1, "*2\r\n" RANGE_OF(0, 8191, "b", 2, "bb") RANGE_OF(8192, 16383, "a", 1, "aa"),
                    AT(2), 1, ASKED);
    CHECK_NODE_SENT(0, CALLS, "");
}

TEST(a_new_client_follows_a_map_without_known_ids_if_no_other_node_replies) {
    for (int i = 0; i < 2; i++) {
        CHECK(cluster_begin());
        rig.login[0] = I_AM("xx");
        if (i == 0) rig.down[1] = "refused";
        hf_op *op = acquire_by(ONLY_A_OF_X);
        rig_sleep(AT(1), AT(5));
        if (i == 1) feeds(1, CALLS, "-ERR no\r\n", AT(6));
        CHECK_NODE_SENT(0, CALLS, QUERY);
        CHECK_THEN_SENT(0, ONLY_A_OF_X, AT(7), 0, ASKED);
        CHECK_ANSWER_BY(0, op, YES, AT(8), "ok");
    }
}

/* ---- versions ---- */

TEST(a_waiter_subscribes_to_sharded_channels_once_its_node_is_upgraded_to_support_them) {
    rig.login[0] = PLAIN_LOGIN;
    acquire(60 * HF_SECOND, AT(0));
    rig_tick(AT(0));
    feeds(0, CALLS, HALVES, AT(1));
    feeds(0, CALLS, busy(20000, 0, 1), AT(2));
    feeds_event(0, "subscribe", "1", AT(3));
    output_of(at(0, EVENTS));
    feeds(0, CALLS, busy(20000, 0, 1), AT(4));
    CHECK_NODE_SENT(0, EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    rig.login[0] = DRIVE_LOGIN;
    loses(0, AT(1000));
    rig_sleep(AT(1000), AT(1100)), CHECK_NODE_SENT(0, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    feeds_event(0, "subscribe", "1", AT(1101)), CHECK_NODE_SENT(0, EVENTS, LISTENS);
}

/* ---- a log-in that the driver fetches ---- */

/* Makes the connection that the link wants, as a driver that knows this password. */
static void log_in_at(size_t node, const char *password, hf_time now) {
    hf_session_fetching_login(at(node, CALLS));
    hf_session_log_in(at(node, CALLS), "me", password);
    rig_tick(now);
}

TEST(a_login_fetched_for_one_node_is_used_for_all_nodes) {
    hf_client_config config = rig_config();
    config.mode = HF_MODE_CLUSTER;
    config.servers = SERVERS;
    config.server_count = 2;
    config.session.fetches_login = true;
    CHECK(rig_begin_with(&config));
    for (int node = 0; node < 3; node++) rig.login[node] = "";
    acquire(0, AT(0));
    rig_tick(AT(0)), CHECK_EQ_INT(hf_session_wants(at(0, CALLS), AT(0)), HF_WANT_LOGIN);
    log_in_at(0, "one", AT(0)), CHECK_STR(output_of(at(0, CALLS)), "AUTH me one\n" DRIVE_ASKS_NODE);
    feeds(0, CALLS, "+OK\r\n" DRIVE_LOGIN, AT(0));
    feeds(0, CALLS, ALL_OF_C, AT(0));
    CHECK_EQ_INT(hf_session_wants(at(2, CALLS), AT(0)), HF_WANT_LOGIN);
    hf_session_log_in_again(at(2, CALLS)); /* as the watchdog's thread does */
    rig_tick(AT(0)), CHECK_STR(output_of(at(2, CALLS)), "AUTH me one\n" DRIVE_ASKS_NODE);
    CHECK_STR(at(1, CALLS)->server->password, "one");
}

CHECK_MAIN
