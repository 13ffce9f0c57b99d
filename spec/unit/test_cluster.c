#include "interfaces.h"

#include "link/slots.h"
#include "op/events.h"
#include "op/operation.h"
#include "rig.h"

/* Key k is in slot 7629, which a serves in HALVES, and b in ALL_OF_B. */

#define QUERY "CLUSTER SLOTS"
#define PLAIN_LOGIN "$2\r\nid\r\n-ERR Unknown subcommand\r\n" /* of a node before version 7 */
#define RANGE(first, last, host, port)                                                             \
    "*3\r\n:" #first "\r\n:" #last "\r\n*3\r\n$1\r\n" host "\r\n:" #port "\r\n$2\r\nid\r\n"
#define HALVES "*2\r\n" RANGE(0, 8191, "a", 1) RANGE(8192, 16383, "b", 2)
#define ALL_OF_B "*1\r\n" RANGE(0, 16383, "b", 2)
#define ALL_OF_C "*1\r\n" RANGE(0, 16383, "c", 3)
#define MOVED_TO_B "-MOVED 7629 b:2\r\n"
#define ASK_B "-ASK 7629 b:2\r\n"
#define YES "*3\r\n:1\r\n:77\r\n:0\r\n"
#define ASKED "EVALSHA sharded_acquire " K_AND_OWNER " 30000 1000"

static const hf_server SERVERS[] = {{.host = "a", .port = 1, .label = "a:1"},
                                    {.host = "b", .port = 2, .label = "b:2"}};

static hf_session *at(size_t node, hf_link link) {
    return &nodes_of(&rig.client)[node]->links[link];
}

static bool cluster_begin(void) {
    hf_client_config config = rig_config();
    config.mode = HF_MODE_CLUSTER;
    config.servers = SERVERS;
    config.server_count = 2;
    return rig_begin_with(&rig, &config);
}

static void cluster_before(void) {
    if (!cluster_begin()) abort();
}

RIG_BEGINS_WITH(cluster_before)

static hf_op *acquire(hf_time wait, hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.wait = wait);
    return op;
}

static void feeds(size_t node, hf_link link, const char *text, hf_time now) {
    feed(at(node, link), text, now);
    rig_serve(&rig, now);
}

static void feeds_event(size_t node, const char *kind, const char *text, hf_time now) {
    char bytes[512];
    snprintf(bytes, sizeof bytes, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(kind),
             kind, strlen(DRIVE_GRANTS), DRIVE_GRANTS, strlen(text), text);
    feeds(node, EVENTS, bytes, now);
}

/* The first operation of a new client, which needs the map for it. */
static hf_op *first_acquire(hf_time now) {
    if (!cluster_begin()) abort();
    hf_op *op = acquire(0, now);
    rig_tick(&rig, now);
    return op;
}

/* A client that has read HALVES, and has acquired and released k. */
static void cluster_known(hf_time now) {
    hf_op *op = first_acquire(now);
    output_of(at(0, CALLS));
    feeds(0, CALLS, HALVES, now);
    output_of(at(0, CALLS));
    feeds(0, CALLS, YES, now);
    hf_op_end(op, now);
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    op = hf_client_begin(&rig.client, &spec, now);
    output_of(at(0, CALLS));
    feeds(0, CALLS, ":1\r\n", now);
    hf_op_end(op, now);
}

#define CHECK_NODE_SENT(node, link, want) CHECK_STR(output_of(at(node, link)), want)

/* What the calls link of a node sends after this reply of another node, or of the same. */
#define CHECK_THEN_SENT(from, reply, now, node, want)                                              \
    do {                                                                                           \
        feeds(from, CALLS, reply, now);                                                            \
        CHECK_NODE_SENT(node, CALLS, want);                                                        \
    } while (0)

/* The operation's outcome after this reply of a node. */
#define CHECK_ANSWER_BY(node, op, reply, now, want)                                                \
    do {                                                                                           \
        feeds(node, CALLS, reply, now);                                                            \
        CHECK_OUTCOME(op, want);                                                                   \
    } while (0)

/* ---- the map ---- */

TEST(the_first_command_waits_until_the_cluster_map_has_arrived) {
    hf_op *op = first_acquire(AT(0));
    CHECK_NODE_SENT(0, CALLS, QUERY);
    CHECK_NODE_SENT(1, CALLS, "");
    CHECK_THEN_SENT(0, HALVES, AT(1), 0, ASKED);
    CHECK_ANSWER_BY(0, op, YES, AT(2), "ok");
    CHECK_EQ_U64(ends_at(hold_of(&rig)), AT(1 + 29698)); /* from the sending */
    CHECK_EQ_U64(hf_client_stats(&rig.client).redirects, 0);
    CHECK_EQ_U64(topology_of(&rig.client)->deadline(&rig.client, HF_LINK_CALLS), HF_NEVER);
}

TEST(a_cluster_node_without_sharded_channels_receives_the_scripts_for_plain_channels) {
    rig.login[1] = PLAIN_LOGIN;
    hf_op *op = acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    CHECK_THEN_SENT(0, ALL_OF_B, AT(1), 1, BRIEF_ASK_OF_K);
    CHECK(node_for(op) == nodes_of(&rig.client)[1]);
}

TEST(a_client_that_needs_the_cluster_map_tries_the_next_node_if_one_is_silent) {
    hf_op *op = acquire(0, AT(0));
    rig_sleep(&rig, AT(0), AT(1999));
    CHECK(!hf_op_is_done(op));
    rig_sleep(&rig, AT(1999), AT(2000));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(message_of(op), "a:1: no reply in time, b:2: no reply in time"));
    CHECK(!hold_of(&rig));
}

TEST(a_silent_node_delays_the_cluster_map_by_at_most_the_connect_timeout) {
    hf_op *op = first_acquire(AT(0));
    rig_sleep(&rig, AT(0), AT(1000));
    CHECK_NODE_SENT(1, CALLS, QUERY);
    CHECK_THEN_SENT(1, ALL_OF_B, AT(1001), 1, ASKED);
    CHECK_ANSWER_BY(1, op, YES, AT(1002), "ok");
}

TEST(a_client_that_needs_the_cluster_map_tries_the_next_node_at_once_if_one_refuses) {
    rig.down[0] = "refused";
    hf_op *op = acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    CHECK_NODE_SENT(1, CALLS, QUERY);
    feeds(1, CALLS, ALL_OF_C, AT(1));
    CHECK_EQ_INT(node_count(&rig.client), 3);
    CHECK_STR(nodes_of(&rig.client)[2]->server.label, "c:3");
    CHECK_NODE_SENT(2, CALLS, ASKED);
    CHECK(!hf_op_is_done(op));
}

TEST(a_client_accepts_a_cluster_map_without_any_of_the_configured_nodes) {
    first_acquire(AT(0));
    feeds(0, CALLS,
          "*3\r\n" RANGE(0, 7628, "c", 3) RANGE(7629, 7629, "d", 4) RANGE(7630, 16383, "e", 5),
          AT(1));
    CHECK_EQ_INT(node_count(&rig.client), 5);
    for (size_t i = 2; i < 5; i++) CHECK(nodes_of(&rig.client)[i]->serves);
    CHECK_NODE_SENT(3, CALLS, ASKED);
    CHECK_STR(nodes_of(&rig.client)[3]->server.label, "d:4");
}

TEST(an_error_message_names_every_cluster_node_that_refuses_connections) {
    rig.down[0] = rig.down[1] = "refused";
    hf_op *op = acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(message_of(op), "a:1: refused, b:2: refused"));
    CHECK_EQ_INT(rig.opens, 2);
    CHECK(!hold_of(&rig));
    CHECK_EQ_U64(hf_client_deadline(&rig.client), HF_NEVER);
}

TEST(a_denied_login_is_reported_rather_than_an_unreachable_node) {
    rig.down[1] = "refused";
    hf_op *op = acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    feeds(0, CALLS, "-NOPERM no\r\n", AT(1));
    rig_tick(&rig, AT(1));
    CHECK_OUTCOME(op, "denied");
    CHECK(strstr(message_of(op), "a:1: NOPERM no, b:2: refused"));
}

TEST(a_command_fails_with_a_server_error_if_the_cluster_map_is_malformed) {
    static const char *const replies[] = {"*0\r\n", ":1\r\n", "*1\r\n:5\r\n",
                                          "-ERR no cluster\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        hf_op *op = first_acquire(AT(0));
        feeds(0, CALLS, replies[i], AT(1));
        CHECK_ANSWER_BY(1, op, replies[i], AT(1), "server");
    }
}

TEST(a_command_waits_while_no_node_serves_its_slot) {
    hf_op *op = first_acquire(AT(0));
    output_of(at(0, CALLS));
    feeds(0, CALLS, "*1\r\n" RANGE(8192, 16383, "b", 2), AT(1));
    CHECK(!hf_op_is_done(op));
    CHECK(rig_sleep(&rig, AT(1), AT(200)) < 20);
    CHECK_NODE_SENT(0, CALLS, QUERY);
    feeds(0, CALLS, HALVES, AT(201));
    rig_sleep(&rig, AT(201), AT(300));
    CHECK_NODE_SENT(0, CALLS, ASKED);
}

TEST(a_key_with_braces_that_are_not_a_tag_is_refused) {
    hf_names names;
    CHECK(hf_names_make(&names, hf_slice_of("a{b")));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.names = &names;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
    CHECK_OUTCOME(op, "conflict");
    CHECK_EQ_INT(rig.opens, 0);
    hf_op_end(op, AT(0));
    hf_names_free(&names);
}

/* ---- redirects ---- */

TEST(a_moved_redirect_is_followed_at_once_and_applies_to_later_commands) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    CHECK_NODE_SENT(0, CALLS, ASKED);
    CHECK_THEN_SENT(0, MOVED_TO_B, AT(1001), 1, ASKED);
    CHECK(node_for(op) == nodes_of(&rig.client)[1]);
    CHECK_EQ_INT(request_in(op)->sends, 1);
    CHECK_EQ_U64(hf_client_stats(&rig.client).redirects, 1);
    CHECK_ANSWER_BY(1, op, YES, AT(1002), "ok");
    hf_op_end(op, AT(1002));
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    hf_client_begin(&rig.client, &spec, AT(1002));
    CHECK_NODE_SENT(1, CALLS, "EVALSHA sharded_release " K_AND_OWNER);
}

TEST(a_moved_redirect_makes_the_client_reread_the_cluster_map_but_not_too_often) {
    cluster_known(AT(0));
    for (int i = 0; i < 10; i++) {
        hf_op *op = acquire(0, AT(1000));
        output_of(at(0, CALLS));
        feeds(0, CALLS, "-MOVED 7629 a:1\r\n", AT(1000));
        output_of(at(0, CALLS));
        feeds(0, CALLS, YES, AT(1000));
        hf_op_end(op, AT(1000));
        hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
        op = hf_client_begin(&rig.client, &spec, AT(1000));
        output_of(at(0, CALLS));
        feeds(0, CALLS, ":1\r\n", AT(1000));
        hf_op_end(op, AT(1000));
    }
    rig_tick(&rig, AT(1000));
    CHECK_NODE_SENT(0, CALLS, QUERY);
    feeds(0, CALLS, HALVES, AT(1001));
    CHECK_EQ_U64(hf_client_deadline(&rig.client), HF_NEVER);
}

TEST(an_ask_redirect_is_followed_for_one_command_only) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, ASK_B, AT(1001), 1, "ASKING\n" ASKED);
    CHECK(node_for(op) == nodes_of(&rig.client)[0]);
    feeds(1, CALLS, "+OK\r\n", AT(1002));
    CHECK(!hf_op_is_done(op));
    feeds(1, CALLS, "-NOSCRIPT\r\n", AT(1002));
    CHECK_NODE_SENT(1, CALLS, "ASKING\nEVAL sharded_acquire " K_AND_OWNER " 30000 1000");
    CHECK_ANSWER_BY(1, op, "+OK\r\n" YES, AT(1003), "ok");
    hf_op_end(op, AT(1003));
    hf_op_spec spec = spec_of(&rig, HF_OP_CHECK);
    hf_client_begin(&rig.client, &spec, AT(1003));
    CHECK(strncmp(output_of(at(0, CALLS)), "EVALSHA sharded_extend", 22) == 0);
}

TEST(nodes_that_redirect_to_each_other_do_not_cause_a_busy_loop) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    int asked = 0;
    for (int ms = 1000; ms < 4100 && !hf_op_is_done(op); ms++) {
        for (size_t node = 0; node < 2; node++) {
            const char *text = output_of(at(node, CALLS)), *query = strstr(text, QUERY),
                       *ask = strstr(text, "acquire");
            bool query_first = query && (!ask || query < ask), query_last = query && !query_first;
            if (query_first) feeds(node, CALLS, HALVES, AT(ms));
            if (ask) feeds(node, CALLS, node ? "-MOVED 7629 a:1\r\n" : MOVED_TO_B, AT(ms));
            if (query_last) feeds(node, CALLS, HALVES, AT(ms));
            asked += ask != NULL;
        }
        rig_tick(&rig, AT(ms));
    }
    CHECK_OUTCOME(op, "unreachable");
    CHECK(asked > 10 && asked < 1500);
}

TEST(a_command_redirected_without_an_address_waits_for_the_new_cluster_map) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    feeds(0, CALLS, "-MOVED 7629 ?:2\r\n", AT(1001));
    rig_tick(&rig, AT(1001));
    CHECK_NODE_SENT(0, CALLS, QUERY);
    feeds(0, CALLS, ALL_OF_B, AT(1002));
    rig_sleep(&rig, AT(1002), AT(1100));
    CHECK_NODE_SENT(1, CALLS, ASKED);
    CHECK(!hf_op_is_done(op));
}

TEST(a_command_answered_with_tryagain_is_retried_until_its_deadline) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    int asked = 0;
    for (int ms = 1000; ms < 4100 && !hf_op_is_done(op); ms++) {
        if (strstr(output_of(at(0, CALLS)), "acquire")) {
            asked++;
            feeds(0, CALLS, "-TRYAGAIN wait\r\n", AT(ms));
        }
        rig_tick(&rig, AT(ms));
    }
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(message_of(op), "TRYAGAIN wait"));
    CHECK(asked > 50 && asked < 300);
    CHECK(!hold_of(&rig));
}

/* Each reply takes its time, so one is awaited when a command times out. */
TEST(a_waiting_acquire_keeps_retrying_while_its_slot_is_migrating) {
    cluster_known(AT(0));
    hf_op *op = acquire(60 * HF_SECOND, AT(1000));
    for (int ms = 1000; ms < 20000; ms += 400) {
        rig_sleep(&rig, AT(ms), AT(ms + 399));
        if (strstr(output_of(at(0, CALLS)), "acquire"))
            feeds(0, CALLS, "-TRYAGAIN wait\r\n", AT(ms + 399));
    }
    CHECK_OUTCOME(op, "under way");
}

TEST(a_clusterdown_reply_makes_the_client_reread_the_cluster_map) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    feeds(0, CALLS, "-CLUSTERDOWN down\r\n", AT(1001));
    rig_tick(&rig, AT(1001));
    CHECK_NODE_SENT(0, CALLS, QUERY);
    feeds(0, CALLS, ALL_OF_B, AT(1002));
    rig_sleep(&rig, AT(1002), AT(1050));
    CHECK_NODE_SENT(1, CALLS, ASKED);
    CHECK(!hf_op_is_done(op));
}

TEST(a_cluster_map_is_requested_no_sooner_than_100_ms_after_the_last_one) {
    for (int ms = 10; ms < 60; ms += 5) {
        cluster_known(AT(0));
        acquire(0, AT(ms));
        feeds(0, CALLS, "-MOVED 7629 a:1\r\n", AT(ms));
        hf_time next = topology_of(&rig.client)->deadline(&rig.client, CALLS);
        CHECK(next > AT(100) && next < AT(150));
    }
}

/* ---- nodes that are down ---- */

static void lose(size_t node, hf_time now) {
    rig.down[node] = "refused";
    for (int link = 0; link < HF_LINKS; link++)
        hf_session_closed(at(node, (hf_link)link), "gone", now);
    rig_serve(&rig, now);
}

TEST(a_command_is_sent_to_the_node_that_took_over_the_slot) {
    cluster_known(AT(0));
    lose(0, AT(1000));
    hf_op *op = acquire(0, AT(2000));
    CHECK(!hf_op_is_done(op));
    rig_tick(&rig, AT(2000));
    CHECK_NODE_SENT(1, CALLS, QUERY);
    CHECK_THEN_SENT(1, ALL_OF_B, AT(2001), 1, ASKED);
    CHECK_ANSWER_BY(1, op, YES, AT(2002), "ok");
}

TEST(a_command_fails_as_unreachable_while_the_cluster_map_still_contains_the_dead_node) {
    cluster_known(AT(0));
    lose(0, AT(1000));
    hf_op *op = acquire(0, AT(2000));
    rig_tick(&rig, AT(2000));
    CHECK_ANSWER_BY(1, op, HALVES, AT(2001), "unreachable");
    CHECK(strstr(message_of(op), "on a:1: refused"));
    CHECK(!hold_of(&rig));
}

TEST(a_command_without_a_reply_is_resent_to_the_node_that_takes_over) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    lose(0, AT(1001));
    CHECK(!hf_op_is_done(op));
    rig_tick(&rig, AT(1001));
    CHECK_NODE_SENT(1, CALLS, QUERY);
    feeds(1, CALLS, HALVES, AT(1002));
    CHECK(!hf_op_is_done(op)); /* its outcome is unknown: it is worth waiting for */
    CHECK(rig_sleep(&rig, AT(1002), AT(1400)) < 40);
    CHECK(strstr(output_of(at(1, CALLS)), QUERY));
    CHECK_THEN_SENT(1, ALL_OF_B, AT(1401), 1, ASKED);
    CHECK_EQ_INT(request_in(op)->sends, 2);
}

TEST(a_renewal_is_sent_to_the_node_that_takes_over_the_slot) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(0));
    feeds(0, CALLS, YES, AT(0));
    hf_op_end(op, AT(0));
    lose(0, AT(5000));
    rig_tick(&rig, AT(10000));
    rig_sleep(&rig, AT(10000), AT(10300));
    hf_link link = strstr(output_of(at(1, RENEWER)), QUERY) ? RENEWER : CALLS;
    feeds(1, link, ALL_OF_B, AT(10301));
    rig_sleep(&rig, AT(10301), AT(10400));
    CHECK_NODE_SENT(1, RENEWER, "EVALSHA renew 1 k me 30000");
    feeds(1, RENEWER, "*1\r\n:1\r\n", AT(10401));
    CHECK(hf_hold_is_valid(hold_of(&rig), AT(35000)));
}

TEST(a_renewal_that_waits_for_a_connection_moves_to_the_new_node_when_the_map_changes) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(0));
    feeds(0, CALLS, YES, AT(0));
    hf_op_end(op, AT(0));
    hf_client_tick(&rig.client, AT(10000)); /* the renewer's link is not made yet */
    CHECK(hf_session_has_work(at(0, RENEWER)));
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[0], CALLS, AT(10001));
    hf_client_tick(&rig.client, AT(10200));
    feeds(0, CALLS, ALL_OF_B, AT(10201));
    CHECK(!hf_session_has_work(at(0, RENEWER)));
    CHECK_NODE_SENT(1, RENEWER, "EVALSHA renew 1 k me 30000");
}

/* ---- holds and waiters ---- */

TEST(in_a_cluster_each_lock_is_renewed_by_a_separate_command) {
    cluster_known(AT(0));
    hf_names tagged;
    CHECK(hf_names_make(&tagged, hf_slice_of("{k}2")));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    for (int i = 0; i < 2; i++) {
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
        CHECK_ANSWER_BY(0, op, YES, AT(0), "ok");
        hf_op_end(op, AT(0));
        spec.names = &tagged;
    }
    rig_sleep(&rig, AT(0), AT(10001));
    CHECK_NODE_SENT(0, RENEWER, "EVALSHA renew 1 k me 30000\nEVALSHA renew 1 {k}2 me 30000");
    feeds(0, RENEWER, ASK_B "*1\r\n:1\r\n", AT(10002));
    CHECK_NODE_SENT(1, RENEWER, "ASKING\nEVALSHA renew 1 k me 30000");
    feeds(1, RENEWER, "+OK\r\n*1\r\n:1\r\n", AT(10003));
    CHECK_EQ_U64(hf_client_stats(&rig.client).renewals, 2);
    hf_names_free(&tagged);
}

static hf_op *in_queue(hf_time now) {
    hf_op *op = acquire(60 * HF_SECOND, now);
    feeds(0, CALLS, busy(20000, 0, 0), now);
    feeds_event(0, "subscribe", "1", now);
    feeds(0, CALLS, busy(20000, 0, 0), now);
    if (!is_waiting(op)) abort();
    for (size_t i = 0; i < hf_client_link_count(&rig.client); i++)
        output_of(hf_client_link(&rig.client, i));
    return op;
}

TEST(a_waiter_queues_at_the_new_node_when_its_slot_moves) {
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    rig_sleep(&rig, AT(1000), AT(3050));
    CHECK(strstr(output_of(at(0, CALLS)), "sharded_acquire"));
    feeds(0, CALLS, MOVED_TO_B, AT(3051));
    CHECK(node_for(op) == nodes_of(&rig.client)[1]);
    CHECK_EQ_INT(nodes_of(&rig.client)[0]->waiting, 0);
    CHECK_EQ_INT(nodes_of(&rig.client)[1]->waiting, 1);
    CHECK(strstr(output_of(at(1, CALLS)), MEMBER("2")));
    feeds(1, CALLS, busy(20000, 0, 0), AT(3052));
    CHECK(is_subscribing(op));
    CHECK_NODE_SENT(1, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    feeds_event(1, "subscribe", "1", AT(3053));
    CHECK(strstr(output_of(at(1, CALLS)), MEMBER("2")));
    feeds(1, CALLS, busy(20000, 0, 0), AT(3054));
    CHECK(is_waiting(op));
    feeds_event(1, "message", GRANT("2", "99"), AT(3055));
    CHECK_OUTCOME(op, "ok");
}

TEST(a_waiter_queues_at_the_new_node_when_the_map_changes) {
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[0], CALLS, AT(1500));
    rig_tick(&rig, AT(1600));
    size_t node = strstr(output_of(at(1, CALLS)), QUERY) ? 1 : 0;
    feeds(node, CALLS, ALL_OF_B, AT(1601));
    CHECK(node_for(op) == nodes_of(&rig.client)[1]);
    CHECK_NODE_SENT(1, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    feeds_event(1, "subscribe", "1", AT(1602));
    CHECK(strstr(output_of(at(1, CALLS)), MEMBER("2")));
}

TEST(a_waiter_that_moves_to_a_node_with_an_open_subscription_queues_there_at_once) {
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[0], CALLS, AT(1500));
    rig_tick(&rig, AT(1600));
    size_t node = strstr(output_of(at(1, CALLS)), QUERY) ? 1 : 0;
    nodes_of(&rig.client)[1]->subscribed = true;
    feeds(node, CALLS, ALL_OF_B, AT(1601));
    CHECK(node_for(op) == nodes_of(&rig.client)[1]);
    CHECK(is_asking(op));
    CHECK(strstr(output_of(at(1, CALLS)), MEMBER("2")));
}

TEST(a_waiter_accepts_a_grant_received_from_another_node_of_the_cluster) {
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    nodes_of(&rig.client)[1]->links[EVENTS].wanted = true;
    rig_serve(&rig, AT(1001));
    feeds_event(1, "message", GRANT("2", "99"), AT(1002));
    CHECK_ENDS(op, "ok", AT(1003));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    feeds_event(0, "message", GRANT("2", "99"), AT(1004));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
}

TEST(a_grant_to_an_ended_wait_is_undone_only_if_it_came_from_the_node_of_its_key) {
    cluster_known(AT(0));
    for (size_t node = 0; node < 2; node++) {
        nodes_of(&rig.client)[node]->links[EVENTS].wanted = true;
        rig_serve(&rig, AT(1000));
    }
    hf_ended_note(ended_of(&rig.client), 7, &hf_kind_lock, hf_slice_of("k"));
    feeds_event(1, "message", GRANT("7", "99"), AT(1001));
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    feeds_event(0, "message", GRANT("7", "99"), AT(1002));
    CHECK_EQ_INT(hold_count(&rig.client), 1);
    CHECK(is_cleaned_up(holds_of(&rig.client)->heap[0]));
}

TEST(a_grant_is_renewed_by_a_command_with_a_single_key_while_its_slot_is_migrating) {
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    feeds_event(0, "message", GRANT("2", "99"), AT(1100));
    CHECK_ENDS(op, "ok", AT(1100));
    bool renewed = false;
    for (int ms = 1100; ms < 3000 && !renewed; ms++) {
        const char *text = output_of(at(0, RENEWER));
        if (strstr(text, "extend 2 k")) feeds(0, RENEWER, "-TRYAGAIN wait\r\n", AT(ms));
        renewed = strstr(text, "renew 1 k") != NULL;
        if (renewed) feeds(0, RENEWER, "*1\r\n:1\r\n", AT(ms));
        rig_tick(&rig, AT(ms));
    }
    CHECK(renewed);
    CHECK(hf_hold_is_valid(hold_of(&rig), AT(25000)));
}

#define LISTENS                                                                                    \
    "PSUBSCRIBE redisson_lock__channel:{k}\n"                                                      \
    "SSUBSCRIBE redisson_lock__channel:{k} holdfast_listening:{k}"
#define SHARDED(kind, rest) "*3\r\n" kind "\r\n$26\r\nredisson_lock__channel:{k}\r\n" rest "\r\n"

TEST(a_waiter_subscribes_to_plain_and_sharded_channels_and_polls_until_both_are_confirmed) {
    cluster_known(AT(0));
    hf_op *op = acquire(60 * HF_SECOND, AT(1000));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1000));
    feeds_event(0, "subscribe", "1", AT(1000));
    output_of(at(0, EVENTS));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1000));
    CHECK_NODE_SENT(0, EVENTS, LISTENS);
    CHECK(hf_op_deadline(op) > AT(1000) && hf_op_deadline(op) <= AT(1201));
    feeds(0, EVENTS, SHARDED("$10\r\nssubscribe", ":1"), AT(1000));
    CHECK(hf_op_deadline(op) <= AT(1001)); /* it may have been announced before */
    rig_tick(&rig, AT(1001));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1001));
    CHECK(hf_op_deadline(op) > AT(1201));
    feeds(0, EVENTS, SHARDED("$8\r\nsmessage", "$1\r\n0"), AT(1100));
    CHECK(hf_op_deadline(op) <= AT(1100));
    rig_tick(&rig, AT(1100));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1101));
    feeds(0, EVENTS, SHARDED("$12\r\nsunsubscribe", ":0"), AT(1200)); /* the slot has moved */
    rig_tick(&rig, AT(1200));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1200));
    CHECK(hf_op_deadline(op) > AT(1200) && hf_op_deadline(op) <= AT(1401));
}

/* ---- an acquire of a shared owner that was abandoned ---- */

/* The renewer waits for its answer, which is a redirect: the acquire itself has ended by then. */
TEST(an_abandoned_acquire_that_is_redirected_is_undone_on_the_new_node) {
    static const char *const redirects[] = {MOVED_TO_B, ASK_B, "-CLUSTERDOWN no\r\n",
                                            "-TRYAGAIN wait\r\n"};
    for (size_t i = 0; i < sizeof redirects / sizeof *redirects; i++) {
        cluster_known(AT(0));
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(10), spec.wait = 100 * HF_MS,
                          spec.caller = hf_slice_of("svc"), spec.shared = true);
        CHECK(strstr(output_of(at(0, CALLS)), "sharded_acquire"));
        rig_sleep(&rig, AT(10), AT(300));
        CHECK_ENDS(op, "unreachable", AT(300));
        feeds(0, CALLS, redirects[i], AT(310));
        if (redirects[i][1] == 'M') {
            CHECK(strstr(output_of(at(1, CALLS)), "sharded_acquire"));
            feeds(1, CALLS, YES, AT(320));
            rig_tick(&rig, AT(320));
            CHECK(strstr(output_of(at(1, CALLS)), QUERY "\nEVALSHA sharded_leave 4 k "));
            feeds(1, CALLS, ALL_OF_B ":1\r\n", AT(330));
            CHECK_EQ_INT(hold_count(&rig.client), 0);
        }
        rig_sleep(&rig, AT(330), AT(20000));
    }
}

/* ---- many nodes ---- */

TEST(a_client_whose_cluster_keeps_replacing_nodes_does_not_grow_without_bound) {
    cluster_known(AT(0));
    for (int i = 0; i < 50; i++) {
        hf_time now = AT(1000 * (i + 1));
        char text[64];
        hf_op *op = acquire(0, now);
        for (size_t node = 0; node < node_count(&rig.client); node++) {
            if (!strstr(output_of(at(node, CALLS)), "acquire")) continue;
            snprintf(text, sizeof text, "-MOVED 7629 n%d:1\r\n", i);
            feeds(node, CALLS, text, now);
            break;
        }
        for (size_t node = 2; node < node_count(&rig.client); node++) {
            if (node_for(op) == nodes_of(&rig.client)[node]) feeds(node, CALLS, "-ERR no\r\n", now);
        }
        CHECK_ENDS(op, "server", now);
        for (size_t node = 2; node < node_count(&rig.client); node++) {
            for (int link = 0; link < HF_LINKS; link++)
                hf_session_closed(at(node, (hf_link)link), "gone", now);
        }
        rig_tick(&rig, now);
        for (size_t node = 0; node < 2; node++) {
            if (strstr(output_of(at(node, CALLS)), QUERY)) feeds(node, CALLS, HALVES, now);
        }
        rig_sleep(&rig, now, now + 900 * HF_MS);
    }
    CHECK(node_count(&rig.client) < 20);
}

/* The node that is asked replies that the key has moved to the node n<number>, which is not in the
 * map. */
static hf_op *move_to(int number, hf_time now) {
    char text[64];
    hf_op *op = acquire(0, now);
    for (size_t node = 0; node < node_count(&rig.client); node++) {
        if (!strstr(output_of(at(node, CALLS)), "acquire")) continue;
        snprintf(text, sizeof text, "-MOVED 7629 n%d:1\r\n", number);
        feeds(node, CALLS, text, now);
        break;
    }
    return op;
}

/* That node knows nothing of it, and neither does the next map. */
static void call_at_gone_node(int number, hf_time now) {
    hf_op *op = move_to(number, now);
    for (size_t node = 2; node < node_count(&rig.client); node++) {
        if (node_for(op) == nodes_of(&rig.client)[node]) feeds(node, CALLS, "-ERR no\r\n", now);
    }
    hf_op_end(op, now);
    rig_tick(&rig, now + 500 * HF_MS);
    for (size_t node = 0; node < node_count(&rig.client); node++) {
        if (strstr(output_of(at(node, CALLS)), QUERY))
            feeds(node, CALLS, HALVES, now + 500 * HF_MS);
    }
}

TEST(a_removed_node_is_not_forgotten_while_its_connection_is_open) {
    cluster_known(AT(0));
    call_at_gone_node(1, AT(1000));
    CHECK_EQ_INT(node_count(&rig.client), 3);
    CHECK(!nodes_of(&rig.client)[2]->serves);
    CHECK_EQ_INT(at(2, CALLS)->state, HF_SESSION_READY);
    call_at_gone_node(2, AT(3000));
    CHECK_EQ_INT(node_count(&rig.client), 4);
    CHECK_STR(nodes_of(&rig.client)[2]->server.host, "n1");
    CHECK_STR(nodes_of(&rig.client)[3]->server.host, "n2");
}

TEST(a_node_stored_in_a_removed_ones_memory_inherits_none_of_its_state) {
    cluster_known(AT(0));
    call_at_gone_node(1, AT(1000));
    CHECK_EQ_INT(node_count(&rig.client), 3);
    hf_session_closed(at(2, CALLS), "gone", AT(2000));
    for (int i = 0; i < 5; i++) {
        hf_session_opening(at(2, CALLS), AT(2000 + i));
        hf_session_closed(at(2, CALLS), "refused", AT(2000 + i));
    }
    move_to(2, AT(3000));
    CHECK_EQ_INT(node_count(&rig.client), 3);
    CHECK_STR(nodes_of(&rig.client)[2]->server.host, "n2");
    CHECK_EQ_INT(at(2, CALLS)->failed_opens, 1);
}

/* ---- memory ---- */

/* A map, a redirect to a node that is new, ASK, a wait that moves. False: something failed, as it
 * should. */
static bool live(void *context) {
    (void)context;
    bool lived = cluster_begin();
    hf_op *op = lived ? acquire(HF_SECOND, AT(0)) : NULL;
    if (op) {
        rig_tick(&rig, AT(0));
        feeds(0, CALLS, HALVES, AT(1));
        rig_tick(&rig, AT(300));
        feeds(0, CALLS, "-MOVED 7629 c:3\r\n", AT(301));
        if (node_count(&rig.client) == 3) {
            feeds(2, CALLS, ASK_B, AT(302));
            feeds(1, CALLS, "+OK\r\n", AT(303));
            feeds(1, CALLS, busy(20000, 0, 0), AT(303));
            feeds_event(2, "subscribe", "1", AT(304));
            feeds(2, CALLS, YES, AT(305));
        }
        rig_sleep(&rig, AT(305), AT(5000));
        if (!hf_op_is_done(op)) abort();
        lived = hf_op_code(op) == HF_OK;
    }
    lived = lived && op;
    if (ops_of(&rig.client)) hf_op_end(ops_of(&rig.client), AT(5000));
    rig_end(&rig, AT(5000));
    return lived;
}

/* The map that the cluster gives has no node for the slot of the key. */
static void check_unserved(const char *map, const char *why) {
    CHECK(cluster_begin());
    hf_op *op = acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    char first[512];
    snprintf(first, sizeof first, "%s", map);
    feeds(0, CALLS, first, AT(1));
    for (int ms = 100; ms < 5000 && !hf_op_is_done(op); ms += 100) {
        rig_sleep(&rig, AT(ms - 100), AT(ms));
        if (strstr(output_of(at(0, CALLS)), QUERY)) feeds(0, CALLS, map, AT(ms));
        if (strstr(output_of(at(1, CALLS)), QUERY)) feeds(1, CALLS, map, AT(ms));
    }
    CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), why), "%s", message_of(op));
    rig_end(&rig, AT(5000));
}

TEST(a_command_fails_with_a_message_if_no_node_serves_its_slot) {
    check_unserved("*1\r\n" RANGE(8192, 16383, "b", 2),
                   "no node of the cluster serves the key's slot");
}

TEST(a_command_fails_with_a_message_if_the_map_gives_its_node_no_address) {
    check_unserved("*2\r\n" RANGE(0, 8191, "?", 1) RANGE(8192, 16383, "b", 2),
                   "set cluster-announce-hostname on each node");
}

/* "3560" is in slot 0, "39296" in slot 16383. */
TEST(keys_in_the_first_and_in_the_last_slot_are_sent_to_their_nodes) {
    static const struct {
        const char *key;
        unsigned slot;
        size_t node;
    } cases[] = {{"3560", 0, 1}, {"39296", 16383, 0}};
    acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    feeds(0, CALLS, "*2\r\n" RANGE(0, 8191, "b", 2) RANGE(8192, 16383, "a", 1), AT(1));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_slice key = hf_slice_of(cases[i].key);
        CHECK_EQ_INT(hf_slot_of(key), cases[i].slot);
        CHECK(hf_client_node(&rig.client, key) == nodes_of(&rig.client)[cases[i].node]);
        CHECK_EQ_INT(hf_client_group(&rig.client, key), cases[i].slot);
    }
}

TEST(a_cluster_client_survives_each_failed_allocation_without_a_leak) {
    CHECK(memerr_until_success(live, NULL, 1000) > 10);
}

TEST(the_next_command_after_an_ask_redirect_is_sent_to_the_slots_node_again) {
    cluster_known(AT(0));
    hf_op *op = acquire(60 * HF_SECOND, AT(1000));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, ASK_B, AT(1001), 1, "ASKING\n" ASKED);
    feeds(1, CALLS, "+OK\r\n", AT(1002));
    feeds(1, CALLS, busy(20000, 0, 0), AT(1002));
    CHECK(is_subscribing(op));
    feeds_event(0, "subscribe", "1", AT(1003));
    const char *text = output_of(at(0, CALLS));
    CHECK_OR(strncmp(text, "EVALSHA sharded_acquire", 23) == 0, "%s", text);
}

TEST(the_message_of_a_timeout_mentions_no_refusal_that_a_retry_has_overcome) {
    cluster_known(AT(0));
    hf_op *op = acquire(2 * HF_SECOND, AT(1000));
    output_of(at(0, CALLS));
    feeds(0, CALLS, "-TRYAGAIN wait\r\n", AT(1001));
    rig_sleep(&rig, AT(1001), AT(1100));
    CHECK_NODE_SENT(0, CALLS, ASKED);
    feeds(0, CALLS, busy(20000, 0, 0), AT(1101));
    feeds_event(0, "subscribe", "1", AT(1102));
    CHECK(strstr(output_of(at(0, CALLS)), "sharded_acquire"));
    rig_sleep(&rig, AT(1102), AT(6000));
    CHECK(hf_op_is_done(op));
    CHECK_OR(!strstr(message_of(op), "TRYAGAIN"), "%s", message_of(op));
}

TEST(the_cluster_map_is_requested_only_once_while_a_connection_opens) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    hf_client_begin(&rig.client, &spec, AT(0));
    for (int ms = 0; ms < 900; ms += 50) {
        hf_client_tick(&rig.client, AT(ms));
        for (size_t node = 0; node < 2; node++) {
            if (hf_session_wants(at(node, CALLS), AT(ms)) == HF_WANT_OPEN)
                hf_session_opening(at(node, CALLS), AT(ms));
        }
    }
    rig_open(&rig, 0, at(0, CALLS), AT(900));
    CHECK_NODE_SENT(0, CALLS, QUERY);
}

TEST(a_call_that_waits_for_a_connection_moves_to_the_slots_new_node_when_the_map_changes) {
    cluster_known(AT(0));
    for (int link = 0; link < HF_LINKS; link++)
        hf_session_closed(at(0, (hf_link)link), "idle", AT(1000));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    hf_client_begin(&rig.client, &spec, AT(2000)); /* its connection is not made yet */
    CHECK(hf_session_has_work(at(0, CALLS)));
    hf_session_opening(at(0, CALLS), AT(2000));
    hf_client_tick(&rig.client, AT(2000));
    rig_open(&rig, 1, at(1, CALLS), AT(2000));
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[0], RENEWER, AT(2001));
    hf_client_tick(&rig.client, AT(2200));
    size_t node = strstr(output_of(at(1, CALLS)), QUERY) ? 1 : 0;
    CHECK_EQ_INT(node, 1);
    CHECK_THEN_SENT(1, ALL_OF_B, AT(2201), 1, ASKED);
}

TEST(a_command_fails_when_no_node_can_be_reached) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    lose(0, AT(1001));
    lose(1, AT(1001));
    rig_sleep(&rig, AT(1001), AT(3999));
    CHECK_OUTCOME(op, "under way"); /* its outcome is unknown */
    rig_sleep(&rig, AT(3999), AT(4001));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), "no cluster node could report which node serves the key"), "%s",
             message_of(op));
}

TEST(a_release_moves_with_its_slot_even_to_a_node_where_another_call_is_waiting) {
    static hf_names other;
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    feeds(0, CALLS, YES, AT(1000));
    hf_op_end(op, AT(1000));
    if (!hf_names_make(&other, hf_slice_of("39296"))) abort();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.names = &other;
    spec.wait = 60 * HF_SECOND;
    begin_spec(&rig, &spec, AT(1001));
    feeds(1, CALLS, busy(20000, 0, 0), AT(1001));
    feeds_event(1, "subscribe", "1", AT(1002));
    CHECK(nodes_of(&rig.client)[1]->subscribed);
    output_of(at(1, CALLS));
    spec = spec_of(&rig, HF_OP_RELEASE);
    op = hf_client_begin(&rig.client, &spec, AT(1003));
    CHECK_THEN_SENT(0, MOVED_TO_B, AT(1004), 1, "EVALSHA sharded_release " K_AND_OWNER);
    feeds(1, CALLS, busy(20000, 0, 0), AT(1005));
    CHECK_ANSWER_BY(1, op, ":1\r\n", AT(1005), "ok");
    rig_end(&rig, AT(1006));
    hf_names_free(&other);
}

TEST(a_command_that_must_not_be_resent_does_not_move_to_another_node) {
    cluster_known(AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.caller = hf_slice_of("svc");
    spec.shared = true;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1000));
    CHECK_ANSWER_BY(0, op, YES, AT(1000), "ok");
    hf_op_end(op, AT(1000));
    spec.kind = HF_OP_RELEASE;
    op = hf_client_begin(&rig.client, &spec, AT(1001));
    CHECK(request_in(op)->no_retry);
    lose(0, AT(1002));
    rig_tick(&rig, AT(1002));
    for (int ms = 1002; ms < 4100; ms += 50) {
        rig_sleep(&rig, AT(ms), AT(ms + 50));
        const char *text = output_of(at(1, CALLS));
        CHECK(!strstr(text, "release"));
        if (strstr(text, QUERY)) feeds(1, CALLS, ALL_OF_B, AT(ms + 50));
    }
    CHECK_OUTCOME(op, "unreachable");
}

TEST(an_error_message_names_the_first_of_many_cluster_nodes_that_refuse_connections) {
    static hf_server many[20];
    hf_client_config config = rig_config();
    for (int i = 0; i < 20; i++) {
        many[i] = (hf_server){.port = (uint16_t)(i + 1)};
        snprintf(many[i].host, HF_URL_HOST, "node%d", i + 1);
        snprintf(many[i].label, HF_URL_HOST, "node%d.example.org:%d", i + 1, i + 1);
    }
    config.mode = HF_MODE_CLUSTER;
    config.servers = many;
    config.server_count = 20;
    rig_begin_with(&rig, &config);
    rig.refusing = true;
    hf_op *op = acquire(0, AT(0));
    for (int i = 0; i < 30 && !hf_op_is_done(op); i++) rig_tick(&rig, AT(i));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), "(node1.example.org:1: refused, node2.example.org:2: "), "%s",
             message_of(op));
    CHECK_OR(strstr(message_of(op), "...)"), "%s", message_of(op));
}

/* ---- which node is asked, and when ---- */

TEST(a_new_cluster_client_requests_no_map) {
    CHECK_EQ_U64(hf_client_deadline(&rig.client), HF_NEVER);
    rig_tick(&rig, AT(1000));
    CHECK_EQ_INT(rig.opens, 0);
    CHECK(hf_client_node(&rig.client, hf_slice_of("k")) == nodes_of(&rig.client)[0]);
}

TEST(each_request_for_a_cluster_map_tries_every_node_again) {
    rig.down[0] = rig.down[1] = "refused";
    for (int i = 0; i < 3; i++) {
        hf_op *op = acquire(0, AT(1000 * i));
        rig_tick(&rig, AT(1000 * i));
        CHECK_OUTCOME(op, "unreachable");
        bool in_turn = strstr(message_of(op), "(a:1: refused, b:2: refused)");
        bool in_turn_again = strstr(message_of(op), "(b:2: refused, a:1: refused)");
        CHECK_OR(in_turn || in_turn_again, "%s", message_of(op));
        CHECK_EQ_INT(rig.opens, 2 * (i + 1));
        hf_op_end(op, AT(1000 * i));
    }
}

/* What waits for a map does not wake the client before the map is asked for. */
TEST(a_command_that_waits_for_a_new_map_sleeps_until_the_client_may_request_it) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(10));
    feeds(0, CALLS, "-CLUSTERDOWN down\r\n", AT(11));
    rig_sleep(&rig, AT(11), AT(99));
    lose(0, AT(99)); /* what was sent may have been carried out: it waits */
    CHECK_OUTCOME(op, "under way");
    hf_time next = topology_of(&rig.client)->deadline(&rig.client, CALLS);
    CHECK(next >= AT(100) && next <= AT(150));
}

TEST(a_client_retries_with_pauses_when_all_nodes_are_down) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    lose(0, AT(1001));
    lose(1, AT(1001));
    for (int i = 0; i < 3; i++) rig_tick(&rig, AT(1001)); /* one node after the other */
    uint64_t opens = rig.opens;
    hf_time next = topology_of(&rig.client)->deadline(&rig.client, CALLS);
    CHECK(next >= AT(1100) && next <= AT(1251));
    rig_tick(&rig, next - 1);
    CHECK_EQ_U64(rig.opens, opens);
    rig_tick(&rig, next);
    CHECK(rig.opens > opens);
    CHECK(rig_sleep(&rig, next, AT(3900)) < 200);
    CHECK_OUTCOME(op, "under way");
}

/* How long the client waits after each of many refusals. */
static void check_pauses(const char *refusal, hf_time least, hf_time most) {
    hf_time now = AT(1000), shortest = HF_NEVER, longest = 0;
    cluster_known(AT(0));
    acquire(0, now);
    while (now < AT(3800)) {
        if (!strstr(output_of(at(0, CALLS)), "acquire")) abort();
        feeds(0, CALLS, refusal, now);
        hf_time pause = topology_of(&rig.client)->deadline(&rig.client, CALLS) - now;
        shortest = hf_time_min(shortest, pause);
        longest = hf_time_max(longest, pause);
        now += pause;
        rig_tick(&rig, now);
    }
    CHECK(shortest >= least && shortest < least + 2 * HF_MS);
    CHECK(longest <= most && longest > most - 2 * HF_MS);
    rig_end(&rig, now);
}

TEST(a_command_answered_with_tryagain_is_retried_within_10_to_30_ms) {
    check_pauses("-TRYAGAIN wait\r\n", 10 * HF_MS, 30 * HF_MS);
}

/* A command without a key. */
TEST(pings_are_sent_to_random_nodes_of_the_cluster) {
    cluster_known(AT(0));
    int pinged[2] = {0, 0};
    for (int i = 0; i < 40; i++) {
        hf_op *op = begin(&rig, HF_OP_PING, AT(i));
        for (size_t node = 0; node < 2; node++) {
            if (strstr(output_of(at(node, CALLS)), "PING")) {
                pinged[node]++;
                feeds(node, CALLS, "+PONG\r\n", AT(i));
            }
        }
        CHECK_ENDS(op, "ok", AT(i));
    }
    CHECK_EQ_INT(pinged[0] + pinged[1], 40);
    CHECK(pinged[0] > 5 && pinged[1] > 5);
}

TEST(a_node_whose_own_map_omits_its_host_is_known_by_its_configured_address) {
    hf_op *op = first_acquire(AT(0));
    output_of(at(0, CALLS));
    feeds(0, CALLS, "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$0\r\n\r\n:1\r\n" RANGE(8192, 16383, "b", 2),
          AT(1));
    CHECK_EQ_INT(node_count(&rig.client), 2);
    CHECK_NODE_SENT(0, CALLS, ASKED);
    CHECK(node_for(op) == nodes_of(&rig.client)[0]);
}

TEST(every_connection_of_a_cluster_client_accepts_the_longest_possible_map) {
    for (size_t node = 0; node < 2; node++) {
        CHECK_EQ_INT(at(node, CALLS)->max_elements, HF_SLOTS_MAX_ELEMENTS);
        CHECK_EQ_INT(at(node, RENEWER)->max_elements, HF_SLOTS_MAX_ELEMENTS);
    }
}

/* The half that has lost a link asks over a link of its own. */
TEST(the_cluster_map_is_requested_over_a_connection_for_the_same_purpose_as_the_lost_one) {
    static const hf_link links[] = {CALLS, RENEWER};
    for (size_t i = 0; i < 2; i++) {
        cluster_known(AT(0));
        hf_op *op = acquire(0, AT(0));
        feeds(0, CALLS, YES, AT(0));
        hf_op_end(op, AT(0));
        rig_sleep(&rig, AT(0), AT(10000));
        CHECK_NODE_SENT(0, RENEWER, "EVALSHA renew 1 k me 30000");
        feeds(0, RENEWER, "*1\r\n:1\r\n", AT(10001));
        hf_session_closed(at(0, links[i]), "gone", AT(10002));
        rig_serve(&rig, AT(10002));
        rig_sleep(&rig, AT(10002), AT(10200));
        for (hf_link link = CALLS; link <= RENEWER; link = link == CALLS ? RENEWER : HF_LINKS) {
            bool asks = strcmp(output_of(at(0, link)), QUERY) == 0 ||
                        strcmp(output_of(at(1, link)), QUERY) == 0;
            CHECK_EQ_INT(asks, link == links[i]);
        }
    }
}

static const hf_server THREE[] = {{.host = "a", .port = 1, .label = "a:1"},
                                  {.host = "b", .port = 2, .label = "b:2"},
                                  {.host = "c", .port = 3, .label = "c:3"}};

TEST(the_cluster_map_is_first_requested_from_a_node_with_an_open_connection) {
    RIG_BEGIN(config.mode = HF_MODE_CLUSTER, config.servers = THREE, config.server_count = 3);
    acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    CHECK_THEN_SENT(0, ALL_OF_C, AT(1), 2, ASKED);
    hf_session_closed(at(0, CALLS), "idle", AT(2));
    feeds(2, CALLS, "-CLUSTERDOWN down\r\n", AT(3));
    rig_sleep(&rig, AT(3), AT(200));
    CHECK(strstr(output_of(at(2, CALLS)), QUERY));
    CHECK_EQ_INT(at(1, CALLS)->state, HF_SESSION_CLOSED);
}

/* The connection for calls is given up, and the next one is not answered. */
static void be_cut_off(size_t node, hf_time now) {
    hf_client_tick(&rig.client, now);
    hf_session_closed(at(node, CALLS), "silent", now);
    hf_session_opening(at(node, CALLS), now);
}

TEST(the_cluster_map_is_requested_from_another_node_when_a_master_is_cut_off) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(20000));
    be_cut_off(0, AT(20250));
    rig_sleep(&rig, AT(20251), AT(20260));
    CHECK_NODE_SENT(1, CALLS, QUERY);
    CHECK_THEN_SENT(1, ALL_OF_B, AT(20270), 1, ASKED);
    CHECK_ANSWER_BY(1, op, YES, AT(20271), "ok");
}

TEST(the_cluster_map_is_first_requested_from_nodes_that_have_not_failed) {
    RIG_BEGIN(config.mode = HF_MODE_CLUSTER, config.servers = THREE, config.server_count = 3);
    begin(&rig, HF_OP_TTL, AT(0));
    rig_tick(&rig, AT(0));
    feeds(0, CALLS, ALL_OF_B, AT(1));
    feeds(1, CALLS, ":-2\r\n", AT(2));
    hf_session_closed(at(0, CALLS), "idle", AT(2));
    begin(&rig, HF_OP_TTL, AT(20000));
    be_cut_off(1, AT(20250));
    rig_sleep(&rig, AT(20251), AT(20400));
    CHECK_NODE_SENT(2, CALLS, QUERY);
}

/* The nodes that refuse are named in 239 bytes; what does not fit ends with dots. */
TEST(the_cluster_map_is_requested_from_a_discovered_node_if_the_configured_ones_are_gone) {
    hf_op *op = first_acquire(AT(0));
    feeds(0, CALLS, ALL_OF_C, AT(1));
    output_of(at(2, CALLS));
    CHECK_ANSWER_BY(2, op, YES, AT(2), "ok");
    hf_op_end(op, AT(2));
    rig.down[0] = rig.down[1] = "gone";
    hf_session_closed(at(0, CALLS), "gone", AT(300));
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    op = hf_client_begin(&rig.client, &spec, AT(300));
    output_of(at(2, CALLS));
    feeds(2, CALLS, "-MOVED 7629 c:3\r\n", AT(301));
    output_of(at(2, CALLS));
    rig_sleep(&rig, AT(301), AT(460));
    CHECK_NODE_SENT(2, CALLS, QUERY);
}

TEST(an_error_message_with_too_many_unreachable_nodes_to_name_ends_with_an_ellipsis) {
    enum { ROOM = 239, WORDS = 2 * sizeof ": refused" - 2 + 2 };
    static hf_server pair[2];
    for (int size = ROOM - 1; size <= ROOM + 2; size++) {
        hf_client_config config = rig_config();
        char want[2 * ROOM];
        memset(pair, 0, sizeof pair);
        for (int i = 0; i < 2; i++) {
            int length = i == 0 ? 100 : size - 100 - WORDS;
            pair[i].port = (uint16_t)(i + 1);
            pair[i].host[0] = (char)('a' + i);
            memset(pair[i].label, 'a' + i, (size_t)length);
        }
        config.mode = HF_MODE_CLUSTER;
        config.servers = pair;
        config.server_count = 2;
        rig_begin_with(&rig, &config);
        rig.refusing = true;
        hf_op *op = acquire(0, AT(0));
        rig_tick(&rig, AT(0));
        CHECK_OUTCOME(op, "unreachable");
        int written =
            snprintf(want, sizeof want, "%s: refused, %s: refused", pair[0].label, pair[1].label);
        CHECK_EQ_INT(written, size);
        if (size > ROOM) strcpy(want + ROOM - 3, "...");
        strcat(want, ")");
        CHECK_OR(strstr(message_of(op), want), "%s", message_of(op));
    }
}

/* Until the next map, it must not make room for another one. */
TEST(a_node_known_only_from_a_redirect_is_used_until_the_next_map) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    feeds(0, CALLS, "-MOVED 7629 c:3\r\n", AT(1001));
    CHECK_EQ_INT(node_count(&rig.client), 3);
    CHECK(node_for(op) == nodes_of(&rig.client)[2] && nodes_of(&rig.client)[2]->serves);
    CHECK(hf_client_node(&rig.client, hf_slice_of("k")) == nodes_of(&rig.client)[2]);
}

TEST(a_command_that_the_ask_target_refuses_is_sent_to_the_slots_node_again) {
    cluster_known(AT(0));
    acquire(0, AT(1000));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, ASK_B, AT(1001), 1, "ASKING\n" ASKED);
    feeds(1, CALLS, "+OK\r\n-TRYAGAIN wait\r\n", AT(1002));
    rig_sleep(&rig, AT(1002), AT(1050));
    CHECK_NODE_SENT(0, CALLS, ASKED);
}

TEST(a_command_that_times_out_after_a_refusal_reports_the_refusal) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    feeds(0, CALLS, "-TRYAGAIN wait\r\n", AT(1001));
    rig_sleep(&rig, AT(1001), AT(5000));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), "TRYAGAIN wait"), "%s", message_of(op));
}

TEST(a_request_for_the_cluster_map_that_ran_out_of_memory_is_repeated_later) {
    bool failed = true;
    unsigned long nth = 1;
    for (; failed && nth < 50; nth++) {
        CHECK(cluster_begin());
        hf_op *op = acquire(0, AT(0));
        memerr_fail(nth);
        hf_client_tick_calls(&rig.client, AT(0));
        failed = memerr_failed();
        memerr_fail(0);
        CHECK(topology_of(&rig.client)->deadline(&rig.client, CALLS) > AT(0));
        rig_serve(&rig, AT(0));
        rig_sleep(&rig, AT(0), AT(900));
        bool asks =
            strstr(output_of(at(0, CALLS)), QUERY) || strstr(output_of(at(1, CALLS)), QUERY);
        CHECK_OR(asks || hf_op_is_done(op), "allocation %lu", nth);
        rig_end(&rig, AT(901));
    }
    CHECK(!failed && nth > 2);
}

/* An operation that was moved to a node that is down, and waits to be sent elsewhere. */
TEST(a_removed_node_is_not_forgotten_while_an_operation_waits_for_it) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    begin(&rig, HF_OP_INFO, AT(1000));
    feeds(0, CALLS, "-MOVED 7629 n1:1\r\n", AT(1001));
    CHECK_EQ_INT(node_count(&rig.client), 3);
    nodes_of(&rig.client)[2]->serves = false; /* as after the next map */
    rig.down[2] = "refused";
    hf_session_closed(at(2, CALLS), "gone", AT(1002));
    rig_serve(&rig, AT(1020));
    CHECK(node_for(op) == nodes_of(&rig.client)[2] && !at(2, CALLS)->queue);
    feeds(0, CALLS, "-MOVED 7629 n2:1\r\n", AT(1021));
    CHECK_EQ_INT(node_count(&rig.client), 4);
    CHECK_STR(nodes_of(&rig.client)[2]->server.host, "n1");
}

TEST(a_removed_node_is_not_forgotten_while_a_subscription_is_open_on_it) {
    cluster_known(AT(0));
    call_at_gone_node(1, AT(1000));
    rig.down[2] = "refused";
    hf_session_closed(at(2, CALLS), "gone", AT(2000));
    hf_node_listen(nodes_of(&rig.client)[2], true, false, AT(2000));
    move_to(2, AT(3000));
    CHECK_EQ_INT(node_count(&rig.client), 4);
    CHECK_STR(nodes_of(&rig.client)[2]->server.host, "n1");
    hf_node_listen(nodes_of(&rig.client)[2], false, false, AT(3001));
}

TEST(a_plain_command_is_sent_to_the_node_of_its_first_key) {
    static const hf_slice near[] = {{"GET", 3}, {"k", 1}}, far[] = {{"GET", 3}, {"39296", 5}};
    static const struct {
        const hf_slice *args;
        size_t node;
    } cases[] = {{near, 0}, {far, 1}};
    cluster_known(AT(0));
    for (size_t i = 0; i < 2; i++) {
        hf_op_spec spec = {.kind = HF_OP_COMMAND, .args = cases[i].args, .arg_count = 2};
        hf_op *op = begin_spec(&rig, &spec, AT(1));
        CHECK(node_for(op) == nodes_of(&rig.client)[cases[i].node]);
        CHECK(strncmp(output_of(at(cases[i].node, CALLS)), "GET ", 4) == 0);
        CHECK_NODE_SENT(1 - cases[i].node, CALLS, "");
    }
}

/* The wait of the owner "you" is in slot 5390, that of "he" in slot 9828. */
TEST(a_deadlock_search_reads_each_owner_and_wait_from_the_node_of_its_key) {
    static const struct {
        const char *owner;
        size_t node;
    } cases[] = {{"you", 0}, {"he", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        cluster_known(AT(0));
        hf_op *op = in_queue(AT(1000));
        spec_in(op)->deadlock_check = HF_SECOND;
        rig_tick(&rig, AT(2000));
        CHECK(strstr(output_of(at(0, CALLS)), "EVALSHA info"));
        snprintf(text, sizeof text, "*6\r\n$%zu\r\n%s\r\n:1\r\n:20000\r\n:7\r\n:1\r\n:0\r\n",
                 strlen(cases[i].owner), cases[i].owner);
        feeds(0, CALLS, text, AT(2001));
        snprintf(text, sizeof text, "GET holdfast_wait:%s", cases[i].owner);
        CHECK_NODE_SENT(cases[i].node, CALLS, text);
    }
}

/* The map has no part in ASK, so the loss of that node asks for none. */
TEST(a_command_is_retried_if_the_node_named_by_an_ask_redirect_is_unreachable) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    rig.down[2] = "refused";
    feeds(0, CALLS, "-ASK 7629 c:3\r\n", AT(1001));
    CHECK(!nodes_of(&rig.client)[2]->serves);
    CHECK_OUTCOME(op, "under way");
    rig_sleep(&rig, AT(1001), AT(1002));
    CHECK(strstr(output_of(at(0, CALLS)), QUERY));
    feeds(0, CALLS, HALVES, AT(1003));
    rig_sleep(&rig, AT(1003), AT(1004));
    CHECK_OUTCOME(op, "under way");
    CHECK_NODE_SENT(0, CALLS, ASKED);
}

TEST(a_command_redirected_to_no_address_is_retried_after_a_pause) {
    check_pauses("-ASK 7629 ?:2\r\n", 20 * HF_MS, 40 * HF_MS);
}

TEST(a_waiter_whose_slot_moves_sends_each_command_only_once) {
    cluster_known(AT(0));
    hf_op *op = acquire(60 * HF_SECOND, AT(1000));
    feeds(0, CALLS, busy(20000, 0, 0), AT(1000));
    feeds_event(0, "subscribe", "1", AT(1001));
    CHECK(is_asking(op));
    CHECK_EQ_INT(request_in(op)->sends, 1);
}

/* Only waiters move with a map: what was sent gets its redirect. */
TEST(a_command_in_flight_is_not_resent_when_the_map_changes) {
    cluster_known(AT(0));
    hf_op *acquires = acquire(60 * HF_SECOND, AT(1000)), *reads = begin(&rig, HF_OP_INFO, AT(1000));
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[0], CALLS, AT(1001));
    rig_tick(&rig, AT(1001));
    CHECK(strstr(output_of(at(0, CALLS)), QUERY));
    feeds(0, CALLS, busy(20000, 0, 0), AT(1002));
    CHECK(is_subscribing(acquires));
    feeds_event(0, "subscribe", "1", AT(1003));
    CHECK(is_asking(acquires));
    feeds(0, CALLS, "*0\r\n" ALL_OF_B, AT(1004));
    CHECK(hf_op_is_done(reads));
    CHECK(node_for(acquires) == nodes_of(&rig.client)[0]);
}

TEST(a_release_in_flight_is_not_resent_when_the_map_changes) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(0));
    feeds(0, CALLS, YES, AT(0));
    hf_op_end(op, AT(0));
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[0], CALLS, AT(1000));
    rig_tick(&rig, AT(1000));
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    op = hf_client_begin(&rig.client, &spec, AT(1001));
    size_t node = strstr(output_of(at(0, CALLS)), QUERY) ? 0 : 1;
    feeds(node, CALLS, ALL_OF_B, AT(1002));
    CHECK(node_for(op) == nodes_of(&rig.client)[0]);
    CHECK_ANSWER_BY(0, op, ":1\r\n", AT(1003), "ok");
}

TEST(a_cluster_command_past_its_deadline_fails_and_is_not_sent) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    feeds(0, CALLS, "-ASK 7629 ?:2\r\n", AT(3990));
    hf_client_tick(&rig.client, AT(4100)); /* of a machine that slept */
    CHECK_NODE_SENT(0, CALLS, "");
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(message_of(op), "do not agree on which node serves"));
}

TEST(a_command_that_paused_after_too_many_redirects_may_follow_as_many_again) {
    static const char *const others[] = {ASK_B, "-ASK 7629 a:1\r\n"};
    cluster_known(AT(0));
    acquire(0, AT(1000));
    for (int round = 0; round < 3; round++) {
        hf_time now = AT(1000 + 50 * round);
        int refused = 0;
        rig_tick(&rig, now);
        for (size_t node = 0; strstr(output_of(at(node, CALLS)), "sharded_acquire");
             node = 1 - node) {
            if (refused++ > 0) feeds(node, CALLS, "+OK\r\n", now); /* to ASKING */
            feeds(node, CALLS, others[node], now);
        }
        CHECK_EQ_INT(refused, 6);
    }
}

TEST(only_nodes_in_the_latest_map_receive_commands) {
    cluster_known(AT(0));
    CHECK(hf_client_node_serves(&rig.client, 0) && hf_client_node_serves(&rig.client, 1));
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[0], CALLS, AT(1000));
    rig_tick(&rig, AT(1000));
    feeds(0, CALLS, ALL_OF_B, AT(1001));
    CHECK(!hf_client_node_serves(&rig.client, 0) && hf_client_node_serves(&rig.client, 1));
}

/* So that clients which learn of a move together do not ask together. */
TEST(the_cluster_map_is_requested_at_most_ten_times_a_second) {
    hf_time shortest = HF_NEVER, longest = 0, asked_at = AT(0);
    cluster_known(AT(0));
    for (int i = 0; i < 100; i++) {
        topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[0], CALLS, asked_at + HF_MS);
        hf_time next = topology_of(&rig.client)->deadline(&rig.client, CALLS);
        shortest = hf_time_min(shortest, next - asked_at);
        longest = hf_time_max(longest, next - asked_at);
        rig_tick(&rig, next);
        CHECK_NODE_SENT(0, CALLS, QUERY);
        feeds(0, CALLS, HALVES, next);
        asked_at = next;
    }
    CHECK(shortest >= 100 * HF_MS && shortest < 105 * HF_MS);
    CHECK(longest <= 150 * HF_MS && longest > 145 * HF_MS);
}

TEST(losing_the_connection_to_a_node_without_slots_causes_no_request_for_a_new_map) {
    cluster_known(AT(0));
    call_at_gone_node(1, AT(1000));
    CHECK(!nodes_of(&rig.client)[2]->serves);
    hf_session_closed(at(2, CALLS), "gone", AT(2000));
    CHECK_EQ_U64(topology_of(&rig.client)->deadline(&rig.client, CALLS), HF_NEVER);
}

/* Another node would not help: the command stays with this one. */
TEST(a_busy_reply_because_of_a_running_script_does_not_cause_a_request_for_a_new_map) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    feeds(0, CALLS, "-BUSY Redis is busy running a script.\r\n", AT(1001));
    CHECK_EQ_U64(topology_of(&rig.client)->deadline(&rig.client, CALLS), HF_NEVER);
    rig_sleep(&rig, AT(1001), AT(1040));
    CHECK_NODE_SENT(0, CALLS, ASKED);
    CHECK_OUTCOME(op, "under way");
}

TEST(the_cluster_map_is_not_requested_from_a_node_that_left_the_cluster) {
    cluster_known(AT(0));
    call_at_gone_node(1, AT(1000));
    CHECK(!nodes_of(&rig.client)[2]->serves);
    hf_op *op = acquire(0, AT(2000));
    output_of(at(0, CALLS));
    rig.refusing = true;
    for (size_t node = 0; node < 3; node++) hf_session_closed(at(node, CALLS), "gone", AT(2001));
    rig_sleep(&rig, AT(2001), AT(5001));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), "a:1: ") && strstr(message_of(op), "b:2: ") &&
                 !strstr(message_of(op), "n1:1"),
             "%s", message_of(op));
}

/* ---- who the nodes are ---- */

#define SHARDED_CHANNELS "*2\r\n$1\r\n0\r\n:0\r\n"
#define NO_SHARDED_CHANNELS "-ERR Unknown subcommand\r\n"
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
    rig_tick(&rig, AT(0));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, TWO_NODES, AT(1), 0, ASKED);
    CHECK_ANSWER_BY(0, op, busy(20000, 0, 0), AT(1), "busy");
    hf_op_end(op, AT(1));
}

/* All connections to the node are lost. */
static void loses(size_t node, hf_time now) {
    for (int link = 0; link < HF_LINKS; link++)
        hf_session_closed(at(node, (hf_link)link), "gone", now);
}

TEST(a_nodes_id_is_requested_in_the_same_round_trip_as_the_login) {
    rig.login[0] = "";
    acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    CHECK_NODE_SENT(0, CALLS, DRIVE_ASKS_NODE);
    CHECK_THEN_SENT(0, I_AM("aa"), AT(1), 0, QUERY);
}

TEST(a_node_of_a_different_cluster_at_a_known_address_receives_no_command) {
    two_nodes_known();
    rig.login[0] = I_AM("xx");
    loses(0, AT(1000));
    hf_op *op = acquire(0, AT(1200));
    rig_sleep(&rig, AT(1200), AT(1210));
    CHECK_NODE_SENT(0, CALLS, "");
    CHECK_NODE_SENT(1, CALLS, QUERY);
    CHECK_ANSWER_BY(1, op, TWO_NODES, AT(1211), "unreachable");
    CHECK_OR(
        strstr(message_of(op), "another server answers at this address (xx; the cluster has aa)"),
        "%s", message_of(op));
    hf_op_end(op, AT(1211));
    op = acquire(0, AT(2000));
    rig_sleep(&rig, AT(2000), AT(2200));
    CHECK(strstr(output_of(at(1, CALLS)), QUERY));
    CHECK_THEN_SENT(1, B_TOOK_OVER, AT(2201), 1, ASKED);
    CHECK_NODE_SENT(0, CALLS, "");
}

TEST(a_server_outside_any_cluster_at_a_known_address_receives_no_command) {
    two_nodes_known();
    rig.login[0] = "-ERR This instance has cluster support disabled\r\n" SHARDED_CHANNELS;
    loses(0, AT(1000));
    hf_op *op = acquire(0, AT(1200));
    rig_sleep(&rig, AT(1200), AT(1210));
    output_of(at(1, CALLS));
    CHECK_ANSWER_BY(1, op, TWO_NODES, AT(1211), "unreachable");
    CHECK_OR(strstr(message_of(op), "(not in a cluster; the cluster has aa)"), "%s",
             message_of(op));
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
        acquire(0, AT(1200));
        CHECK_NODE_SENT(0, CALLS, ASKED);
    }
}

TEST(a_node_without_an_id_in_the_cluster_map_still_receives_commands) {
    first_acquire(AT(0));
    rig.login[1] = I_AM("xx");
    CHECK_THEN_SENT(0, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nb\r\n:2\r\n", AT(1), 1, ASKED);
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
        rig_sleep(&rig, AT(1000), AT(1500));
        if (strstr(output_of(at(1, CALLS)), QUERY)) feeds(1, CALLS, TWO_NODES, AT(1500));
        if (strstr(output_of(at(0, CALLS)), QUERY)) feeds(0, CALLS, TWO_NODES, AT(1500));
        loses(0, AT(1501));
        rig.login[0] = logins[i];
        uint64_t opens = rig.opens;
        hf_op *op = acquire(0, AT(2000));
        for (int ms = 2000; ms < 3000; ms += 10) {
            rig_sleep(&rig, AT(ms), AT(ms + 10));
            CHECK_NODE_SENT(0, CALLS, "");
            if (strstr(output_of(at(1, CALLS)), QUERY)) feeds(1, CALLS, TWO_NODES, AT(ms + 10));
        }
        CHECK_OUTCOME(op, "under way");
        CHECK(rig.opens - opens < 40);
        rig.login[0] = I_AM("aa");
        for (int ms = 3000; ms < 4500; ms += 10) {
            rig_sleep(&rig, AT(ms), AT(ms + 10));
            if (strstr(output_of(at(1, CALLS)), QUERY)) feeds(1, CALLS, TWO_NODES, AT(ms + 10));
            if (strstr(output_of(at(0, CALLS)), "acquire")) feeds(0, CALLS, YES, AT(ms + 10));
        }
        CHECK_OUTCOME(op, "ok");
    }
}

TEST(a_node_that_remains_too_busy_to_return_its_id_is_named_in_the_error_message) {
    two_nodes_known();
    loses(0, AT(1000));
    rig.login[0] = "-BUSY Redis is busy running a script.\r\n" SHARDED_CHANNELS;
    hf_op *op = acquire(0, AT(2000));
    for (int ms = 2000; ms < 5100; ms += 10) {
        rig_sleep(&rig, AT(ms), AT(ms + 10));
        if (strstr(output_of(at(1, CALLS)), QUERY)) feeds(1, CALLS, TWO_NODES, AT(ms + 10));
    }
    CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), "BUSY Redis is busy"), "%s", message_of(op));
}

TEST(a_renewal_is_not_sent_to_a_node_of_a_different_cluster) {
    two_nodes_known();
    hf_op *op = acquire(0, AT(100));
    output_of(at(0, CALLS));
    CHECK_ANSWER_BY(0, op, YES, AT(100), "ok");
    hf_op_end(op, AT(100));
    loses(0, AT(5000));
    rig.login[0] = I_AM("xx");
    for (int ms = 5000; ms < 12000; ms += 10) {
        rig_sleep(&rig, AT(ms), AT(ms + 10));
        for (hf_link link = 0; link < HF_LINKS; link++) {
            CHECK_NODE_SENT(0, link, "");
            if (strstr(output_of(at(1, link)), QUERY)) feeds(1, link, TWO_NODES, AT(ms + 10));
        }
    }
    rig.login[0] = I_AM("aa");
    for (int ms = 12000; ms < 14000; ms += 10) {
        rig_sleep(&rig, AT(ms), AT(ms + 10));
        if (strstr(output_of(at(0, RENEWER)), "renew 1 k"))
            feeds(0, RENEWER, "*1\r\n:1\r\n", AT(ms + 10));
        for (hf_link link = 0; link < HF_LINKS; link++)
            if (strstr(output_of(at(1, link)), QUERY)) feeds(1, link, TWO_NODES, AT(ms + 10));
    }
    CHECK(hf_hold_is_valid(hold_of(&rig), AT(40000)));
}

TEST(a_map_of_a_different_cluster_is_ignored) {
    two_nodes_known();
    rig.login[1] = "-NOPERM no\r\n" SHARDED_CHANNELS; /* so its map is asked for */
    rig.down[0] = "refused";
    loses(0, AT(1000));
    hf_op *op = acquire(0, AT(1200));
    rig_sleep(&rig, AT(1200), AT(1210));
    CHECK_NODE_SENT(1, CALLS, QUERY);
    feeds(1, CALLS, OTHER_CLUSTER, AT(1211));
    rig_sleep(&rig, AT(1211), AT(1212));
    CHECK_EQ_INT(node_count(&rig.client), 2);
    CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), "b:2: it belongs to another cluster now"), "%s",
             message_of(op));
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
        rig_sleep(&rig, now, now + 10 * HF_MS);
        for (size_t i = 0; i < 2; i++) {
            const char *sent = output_of(at(i, CALLS));
            if (i == node && strstr(sent, "acquire")) return true;
            if (strstr(sent, QUERY)) feeds(i, CALLS, maps[i], now + 10 * HF_MS);
        }
    }
    return false;
}

static const char *const NEW_MAPS[2] = {MADE_ANEW, MADE_ANEW};

TEST(a_client_finds_a_cluster_that_was_recreated_at_the_same_addresses) {
    two_nodes_known();
    rig.login[0] = I_AM("a2");
    rig.login[1] = I_AM("b2");
    loses(0, AT(1000));
    loses(1, AT(1000));
    CHECK(finds(0, NEW_MAPS, AT(2000), AT(3000)));
}

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
    hf_op *op = acquire(0, AT(100));
    feeds(0, CALLS, YES, AT(100));
    hf_op_end(op, AT(100));
    rig.login[0] = I_AM("a2");
    rig.login[1] = I_AM("b2");
    loses(0, AT(1000));
    loses(1, AT(1000));
    CHECK(!finds(0, NEW_MAPS, AT(2000), AT(29000)));
    CHECK(finds(0, NEW_MAPS, AT(29000), AT(33000))); /* its lease has ended */
}

TEST(a_client_switches_to_a_new_cluster_only_if_most_configured_addresses_belong_to_it) {
    static const char *const maps[2] = {OTHER_CLUSTER, OTHER_CLUSTER};
    two_nodes_known();
    rig.login[0] = I_AM("xx");
    rig.down[1] = "refused";
    loses(0, AT(1000));
    loses(1, AT(1000));
    CHECK(!finds(0, maps, AT(2000), AT(9000)));
    CHECK_EQ_INT(node_count(&rig.client), 2);
}

/* Each of them answered as a stranger once, while the other one was down. */
TEST(a_client_switches_to_a_new_cluster_only_if_a_majority_belongs_to_it_at_the_same_time) {
    static const char *const maps[2] = {OTHER_CLUSTER, OTHER_CLUSTER};
    two_nodes_known();
    rig.login[0] = rig.login[1] = I_AM("xx");
    rig.down[1] = "refused";
    loses(0, AT(1000));
    loses(1, AT(1000));
    CHECK(!finds(0, maps, AT(2000), AT(4000)));
    rig.down[0] = "refused";
    rig_sleep(&rig, AT(4000), AT(6000));
    rig.down[1] = NULL;
    CHECK(!finds(1, maps, AT(6000), AT(8000)));
    CHECK_EQ_INT(node_count(&rig.client), 2);
}

TEST(a_node_that_gets_a_new_id_in_the_map_is_reconnected) {
    two_nodes_known();
    rig.login[0] = I_AM("a2");
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[1], CALLS, AT(1000));
    rig_tick(&rig, AT(1000));
    CHECK_NODE_SENT(0, CALLS, QUERY);
    feeds(0, CALLS, A_WAS_RESET, AT(1001));
    rig_serve(&rig, AT(1001));
    CHECK(at(0, CALLS)->state != HF_SESSION_READY);
    acquire(0, AT(1100));
    CHECK_NODE_SENT(0, CALLS, ASKED);
    CHECK_EQ_INT(node_count(&rig.client), 2);
}

TEST(a_new_node_without_an_id_is_used_at_the_address_of_an_old_one) {
    two_nodes_known();
    rig.login[0] = "-NOPERM no\r\n" SHARDED_CHANNELS;
    loses(0, AT(1000));
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[1], CALLS, AT(1001));
    rig_tick(&rig, AT(1001));
    size_t asked = strstr(output_of(at(0, CALLS)), QUERY) ? 0 : 1;
    feeds(asked, CALLS, A_WAS_RESET, AT(1002));
    rig_serve(&rig, AT(1002));
    acquire(0, AT(1100));
    rig_sleep(&rig, AT(1100), AT(1110));
    CHECK(strstr(output_of(at(0, CALLS)), ASKED));
}

/* Managed services put proxies in front of their nodes. */
TEST(nodes_whose_ids_differ_from_those_in_their_own_map_are_used) {
    rig.login[0] = I_AM("p1");
    acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, TWO_NODES, AT(1), 0, ASKED);
    feeds(0, CALLS, busy(20000, 0, 0), AT(1));
    hf_op_end(ops_of(&rig.client), AT(1));
    rig.login[0] = I_AM("p2");
    loses(0, AT(1000));
    acquire(0, AT(1001));
    rig_serve(&rig, AT(1001));
    CHECK_NODE_SENT(0, CALLS, ASKED);
}

/* The first node that was asked had no slots, so its own id was in no map. */
TEST(node_ids_are_compared_only_once_a_node_has_confirmed_its_id_in_the_map) {
    rig.login[0] = I_AM("zz");
    rig.login[1] = I_AM("bb");
    acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    CHECK_THEN_SENT(0, B_TOOK_OVER, AT(1), 1, ASKED);
    feeds(1, CALLS, busy(20000, 0, 0), AT(2));
    hf_op_end(ops_of(&rig.client), AT(2));
    topology_of(&rig.client)->invalidate(nodes_of(&rig.client)[1], CALLS, AT(300));
    rig_tick(&rig, AT(300));
    CHECK_NODE_SENT(1, CALLS, QUERY);
    feeds(1, CALLS, B_TOOK_OVER, AT(401));
    rig.login[1] = I_AM("xx");
    loses(1, AT(500));
    acquire(0, AT(600));
    rig_sleep(&rig, AT(600), AT(610));
    CHECK_NODE_SENT(1, CALLS, "");
}

/* It says where the key is. */
TEST(a_node_of_the_same_cluster_at_another_nodes_address_is_used) {
    two_nodes_known();
    rig.login[0] = I_AM("bb");
    loses(0, AT(1000));
    acquire(0, AT(1200));
    rig_sleep(&rig, AT(1200), AT(1210));
    CHECK(strstr(output_of(at(0, CALLS)), ASKED));
}

#define ONLY_A_OF_X "*1\r\n" RANGE_OF(0, 16383, "a", 1, "xx")

TEST(a_new_client_queries_other_nodes_if_the_first_map_contains_no_known_id) {
    rig.login[0] = I_AM("xx");
    rig.login[1] = I_AM("bb");
    acquire(0, AT(0));
    rig_tick(&rig, AT(0));
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
        hf_op *op = acquire(0, AT(0));
        rig_tick(&rig, AT(0));
        output_of(at(0, CALLS));
        feeds(0, CALLS, ONLY_A_OF_X, AT(1));
        rig_sleep(&rig, AT(1), AT(5));
        if (i == 1) feeds(1, CALLS, "-ERR no\r\n", AT(6));
        CHECK_NODE_SENT(0, CALLS, QUERY);
        CHECK_THEN_SENT(0, ONLY_A_OF_X, AT(7), 0, ASKED);
        CHECK_ANSWER_BY(0, op, YES, AT(8), "ok");
    }
}

TEST(a_waiting_acquire_outlasts_a_temporarily_refused_login) {
    two_nodes_known();
    loses(0, AT(1000));
    rig.login[0] = "-BUSY Redis is busy running a script.\r\n" SHARDED_CHANNELS;
    hf_op *op = acquire(20 * HF_SECOND, AT(2000));
    for (int ms = 2000; ms < 9000; ms += 10) {
        rig_sleep(&rig, AT(ms), AT(ms + 10));
        if (strstr(output_of(at(1, CALLS)), QUERY)) feeds(1, CALLS, TWO_NODES, AT(ms + 10));
    }
    CHECK_OUTCOME(op, "under way");
    rig.login[0] = I_AM("aa");
    rig_sleep(&rig, AT(9000), AT(9300));
    const char *sent = output_of(at(0, CALLS));
    CHECK_OR(strstr(sent, "acquire"), "%s", sent);
}

TEST(a_replica_at_a_configured_address_is_recognized_by_its_id) {
    static const char B_WITH_REPLICA[] =
        "*1\r\n*4\r\n:0\r\n:16383\r\n" NODE_OF("b", 2, "bb") NODE_OF("a", 1, "aa");
    two_nodes_known();
    rig.login[0] = "-NOPERM no\r\n" SHARDED_CHANNELS;
    loses(0, AT(1000));
    rig_sleep(&rig, AT(1000), AT(1300));
    if (strstr(output_of(at(0, CALLS)), QUERY)) feeds(0, CALLS, B_WITH_REPLICA, AT(1301));
    if (strstr(output_of(at(1, CALLS)), QUERY)) feeds(1, CALLS, B_WITH_REPLICA, AT(1301));
    CHECK_STR(nodes_of(&rig.client)[0]->id, "aa");
    CHECK(!nodes_of(&rig.client)[0]->serves);
}

/* ---- versions ---- */

#define PLAIN_ASKED BRIEF_ASK_OF_K

TEST(an_upgraded_node_receives_the_scripts_for_its_new_version) {
    rig.login[0] = PLAIN_LOGIN;
    hf_op *op = acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, HALVES, AT(1), 0, PLAIN_ASKED);
    feeds(0, CALLS, busy(20000, 0, 0), AT(2));
    hf_op_end(op, AT(2));
    static const char *const logins[] = {DRIVE_LOGIN, PLAIN_LOGIN, DRIVE_LOGIN};
    for (int i = 0; i < 3; i++) {
        hf_time now = AT(1000 * (i + 1));
        rig.login[0] = logins[i];
        loses(0, now);
        op = acquire(0, now + HF_MS);
        CHECK_NODE_SENT(0, CALLS, i == 1 ? PLAIN_ASKED : ASKED);
        feeds(0, CALLS, busy(20000, 0, 0), now + 2 * HF_MS);
        hf_op_end(op, now + 2 * HF_MS);
    }
}

/* What was sent to the old version may have been run there. */
TEST(a_command_resent_to_a_node_of_a_different_version_uses_the_scripts_for_that_version) {
    static const char *const logins[] = {DRIVE_LOGIN, PLAIN_LOGIN};
    for (int i = 0; i < 2; i++) {
        cluster_known(AT(0));
        rig.login[0] = logins[1 - i];
        loses(0, AT(1000));
        acquire(0, AT(1000));
        CHECK_NODE_SENT(0, CALLS, i == 0 ? PLAIN_ASKED : ASKED);
        feeds(0, CALLS, "-NOSCRIPT no\r\n", AT(1001));
        CHECK(strncmp(output_of(at(0, CALLS)), i == 0 ? "EVAL acquire" : "EVAL sharded_acquire",
                      12) == 0);
        rig.login[0] = logins[i];
        loses(0, AT(1002));
        rig_sleep(&rig, AT(1002), AT(1100));
        const char *sent = output_of(at(0, CALLS)),
                   *want = i == 0 ? " sharded_acquire " : " acquire ";
        CHECK_OR(strstr(sent, want), "%s", sent);
    }
}

TEST(each_node_receives_the_scripts_for_its_own_version) {
    rig.login[0] = PLAIN_LOGIN;
    hf_op *op = acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, HALVES, AT(1), 0, PLAIN_ASKED);
    CHECK_THEN_SENT(0, MOVED_TO_B, AT(2), 1, ASKED);
    CHECK_THEN_SENT(1, "-ASK 7629 a:1\r\n", AT(3), 0, "ASKING\n" PLAIN_ASKED);
    CHECK_ANSWER_BY(0, op, "+OK\r\n" YES, AT(4), "ok");
}

TEST(a_waiter_subscribes_to_sharded_channels_once_its_node_is_upgraded_to_support_them) {
    rig.login[0] = PLAIN_LOGIN;
    acquire(60 * HF_SECOND, AT(0));
    rig_tick(&rig, AT(0));
    feeds(0, CALLS, HALVES, AT(1));
    feeds(0, CALLS, busy(20000, 0, 1), AT(2));
    feeds_event(0, "subscribe", "1", AT(3));
    output_of(at(0, EVENTS));
    feeds(0, CALLS, busy(20000, 0, 1), AT(4));
    CHECK_NODE_SENT(0, EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    rig.login[0] = DRIVE_LOGIN;
    loses(0, AT(1000));
    rig_sleep(&rig, AT(1000), AT(1100));
    CHECK_NODE_SENT(0, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    feeds_event(0, "subscribe", "1", AT(1101));
    CHECK_NODE_SENT(0, EVENTS, LISTENS);
}

/* ---- a log-in that the driver fetches ---- */

/* Makes the connection that the link wants, as a driver that knows this password. */
static void log_in_at(size_t node, const char *password, hf_time now) {
    hf_session_fetching_login(at(node, CALLS));
    hf_session_log_in(at(node, CALLS), "me", password);
    rig_tick(&rig, now);
}

TEST(a_login_fetched_for_one_node_is_used_for_all_nodes) {
    hf_client_config config = rig_config();
    config.mode = HF_MODE_CLUSTER;
    config.servers = SERVERS;
    config.server_count = 2;
    config.session.asks_login = true;
    CHECK(rig_begin_with(&rig, &config));
    for (int node = 0; node < 3; node++) rig.login[node] = "";
    acquire(0, AT(0));
    rig_tick(&rig, AT(0));
    CHECK_EQ_INT(hf_session_wants(at(0, CALLS), AT(0)), HF_WANT_LOGIN);
    log_in_at(0, "one", AT(0));
    CHECK_STR(output_of(at(0, CALLS)), "AUTH me one\n" DRIVE_ASKS_NODE);
    feeds(0, CALLS, "+OK\r\n" DRIVE_LOGIN, AT(0));
    feeds(0, CALLS, ALL_OF_C, AT(0));
    CHECK_EQ_INT(hf_session_wants(at(2, CALLS), AT(0)), HF_WANT_LOGIN);
    hf_session_log_in_again(at(2, CALLS)); /* as the watchdog's thread does */
    rig_tick(&rig, AT(0));
    CHECK_STR(output_of(at(2, CALLS)), "AUTH me one\n" DRIVE_ASKS_NODE);
    CHECK_STR(at(1, CALLS)->server->password, "one");
}

CHECK_MAIN
