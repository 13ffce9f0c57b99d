#include "cluster.h"

#include "client_internal.h"
#include "drive.h"

/* Key k is in slot 7629, which a serves in HALVES, and b in ALL_OF_B. */

static struct rig rig;
static bool refusing[8]; /* by the place of the node */

#define CALLS HF_LINK_CALLS
#define EVENTS HF_LINK_EVENTS
#define KEEPER HF_LINK_KEEPER

#define QUERY "CLUSTER SLOTS"
#define FIRST_QUERY "PUBSUB SHARDNUMSUB 0\n" QUERY
#define KNOWN "*2\r\n$1\r\n0\r\n:0\r\n"
#define UNKNOWN "-ERR Unknown subcommand\r\n"
#define RANGE(first, last, host, port)                                                             \
    "*3\r\n:" #first "\r\n:" #last "\r\n*3\r\n$1\r\n" host "\r\n:" #port "\r\n$2\r\nid\r\n"
#define HALVES "*2\r\n" RANGE(0, 8191, "a", 1) RANGE(8192, 16383, "b", 2)
#define ALL_OF_B "*1\r\n" RANGE(0, 16383, "b", 2)
#define ALL_OF_C "*1\r\n" RANGE(0, 16383, "c", 3)
#define MOVED_TO_B "-MOVED 7629 b:2\r\n"
#define ASK_B "-ASK 7629 b:2\r\n"
#define YES "*3\r\n:1\r\n:77\r\n:0\r\n"
#define ASKED "EVALSHA sharded_acquire " KEYS_OF_K "0 0 30000 1000 "

static const hf_server SERVERS[] = {{.host = "a", .port = 1, .label = "a:1"},
                                    {.host = "b", .port = 2, .label = "b:2"}};

static hf_session *at(size_t node, hf_link link)
{
    return &rig.client.nodes[node]->links[link];
}

static void serve(hf_time now)
{
    for (size_t i = 0; i < hf_client_link_count(&rig.client); i++) {
        hf_session *session = hf_client_link(&rig.client, i);
        if (hf_session_wants(session, now) == HF_WANT_CLOSE)
            hf_session_closed(session, "not needed", now);
        if (hf_session_wants(session, now) != HF_WANT_OPEN) continue;
        rig.opens++;
        hf_session_opening(session, now);
        if (refusing[i / HF_LINKS])
            hf_session_closed(session, "refused", now);
        else
            hf_session_opened(session, now);
    }
}

static void tick(hf_time now)
{
    hf_client_tick(&rig.client, now);
    serve(now);
}

/* As rig_sleep, for all nodes. */
static int sleep_until(hf_time now, hf_time until)
{
    int wakes = 0;
    tick(now);
    for (hf_time next; (next = hf_client_deadline(&rig.client)) <= until && wakes < 100000; wakes++) {
        now = hf_time_max(now, next);
        tick(now);
    }
    tick(until);
    return wakes;
}

static bool cluster_begin(void)
{
    hf_client_config config = rig_config();
    config.mode = HF_MODE_CLUSTER;
    config.servers = SERVERS;
    config.server_count = 2;
    memset(refusing, 0, sizeof refusing);
    rig.opens = 0;
    while (!hf_names_make(&rig.names, hf_slice_of("k"))) continue; /* where one allocation fails */
    return hf_client_init(&rig.client, &config, DRIVE_ENTROPY);
}

static hf_op *acquire(hf_time wait, hf_time now)
{
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.wait = wait;
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    serve(now);
    return op;
}

static void hears(size_t node, hf_link link, const char *text, hf_time now)
{
    hear(at(node, link), text, now);
    serve(now);
}

static void hears_event(size_t node, const char *kind, const char *text, hf_time now)
{
    char bytes[512];
    snprintf(bytes, sizeof bytes, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(kind), kind,
             strlen(DRIVE_GRANTS), DRIVE_GRANTS, strlen(text), text);
    hears(node, EVENTS, bytes, now);
}

/* A client that has read HALVES, and has acquired and released k. */
static void cluster_known(hf_time now)
{
    if (!cluster_begin()) abort();
    hf_op *op = acquire(0, now);
    tick(now);
    said(at(0, CALLS));
    hears(0, CALLS, KNOWN HALVES, now);
    said(at(0, CALLS));
    hears(0, CALLS, YES, now);
    hf_op_end(op, now);
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    op = hf_client_begin(&rig.client, &spec, now);
    said(at(0, CALLS));
    hears(0, CALLS, ":1\r\n", now);
    hf_op_end(op, now);
}

#define CHECK_SAYS(node, link, want) CHECK_STR(said(at(node, link)), want)

/* ---- the map ---- */

TEST(a_command_waits_for_the_map)
{
    CHECK(cluster_begin());
    hf_op *op = acquire(0, AT(0));
    tick(AT(0));
    CHECK_SAYS(0, CALLS, FIRST_QUERY);
    CHECK_SAYS(1, CALLS, "");
    hears(0, CALLS, KNOWN HALVES, AT(1));
    CHECK_SAYS(0, CALLS, ASKED);
    hears(0, CALLS, YES, AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hold_of(&rig)->valid_until, AT(1 + 29698)); /* from the sending */
    CHECK_EQ_U64(rig.client.stats.redirects, 0);
    CHECK_EQ_U64(hf_cluster_deadline(rig.client.cluster), HF_NEVER);
    rig_end(&rig, AT(3));
}

TEST(a_server_without_sharded_channels_gets_the_plain_programs)
{
    CHECK(cluster_begin());
    hf_op *op = acquire(0, AT(0));
    tick(AT(0));
    said(at(0, CALLS));
    hears(0, CALLS, UNKNOWN ALL_OF_B, AT(1));
    CHECK_SAYS(1, CALLS, "EVALSHA acquire " KEYS_OF_K "0 0 30000 1000 ");
    CHECK(op->node == rig.client.nodes[1]);
    rig_end(&rig, AT(3));
}

TEST(silent_nodes_are_given_up_one_after_the_other)
{
    CHECK(cluster_begin());
    hf_op *op = acquire(0, AT(0));
    sleep_until(AT(0), AT(1999));
    CHECK(!op->done);
    sleep_until(AT(1999), AT(2000));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(op->failure.text, "a:1: no reply in time, b:2: no reply in time"));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(2000));
}

TEST(a_silent_node_delays_the_map_by_the_connect_timeout)
{
    CHECK(cluster_begin());
    hf_op *op = acquire(0, AT(0));
    tick(AT(0));
    sleep_until(AT(0), AT(1000));
    CHECK_SAYS(1, CALLS, FIRST_QUERY);
    hears(1, CALLS, KNOWN ALL_OF_B, AT(1001));
    CHECK_SAYS(1, CALLS, ASKED);
    hears(1, CALLS, YES, AT(1002));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(1003));
}

TEST(the_next_node_is_asked_when_one_refuses)
{
    CHECK(cluster_begin());
    refusing[0] = true;
    hf_op *op = acquire(0, AT(0));
    tick(AT(0));
    CHECK_SAYS(1, CALLS, FIRST_QUERY);
    hears(1, CALLS, KNOWN ALL_OF_C, AT(1));
    CHECK_EQ_INT(rig.client.node_count, 3);
    CHECK_STR(rig.client.nodes[2]->server.label, "c:3");
    CHECK_SAYS(2, CALLS, ASKED);
    CHECK(!op->done);
    rig_end(&rig, AT(2));
}

TEST(a_map_of_nodes_that_are_all_new)
{
    CHECK(cluster_begin());
    acquire(0, AT(0));
    tick(AT(0));
    hears(0, CALLS, KNOWN "*3\r\n" RANGE(0, 7628, "c", 3) RANGE(7629, 7629, "d", 4) RANGE(7630, 16383, "e", 5), AT(1));
    CHECK_EQ_INT(rig.client.node_count, 5);
    for (size_t i = 2; i < 5; i++) CHECK(rig.client.nodes[i]->serves);
    CHECK_SAYS(3, CALLS, ASKED);
    CHECK_STR(rig.client.nodes[3]->server.label, "d:4");
    rig_end(&rig, AT(2));
}

TEST(when_all_refuse_each_is_named)
{
    CHECK(cluster_begin());
    refusing[0] = refusing[1] = true;
    hf_op *op = acquire(0, AT(0));
    tick(AT(0));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(op->failure.text, "a:1: refused, b:2: refused"));
    CHECK_EQ_INT(rig.opens, 2);
    CHECK(!hold_of(&rig));
    CHECK_EQ_U64(hf_client_deadline(&rig.client), HF_NEVER);
    rig_end(&rig, AT(1));
}

TEST(a_node_that_denies_counts_more_than_one_that_is_not_there)
{
    CHECK(cluster_begin());
    refusing[1] = true;
    hf_op *op = acquire(0, AT(0));
    tick(AT(0));
    hears(0, CALLS, "-ERR x\r\n-NOPERM no\r\n", AT(1));
    tick(AT(1));
    CHECK_OUTCOME(op, "denied");
    CHECK(strstr(op->failure.text, "a:1: NOPERM no, b:2: refused"));
    rig_end(&rig, AT(2));
}

TEST(a_map_that_is_none_is_an_error_of_the_server)
{
    static const char *const replies[] = {"*0\r\n", ":1\r\n", "*1\r\n:5\r\n", "-ERR no cluster\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        CHECK(cluster_begin());
        hf_op *op = acquire(0, AT(0));
        tick(AT(0));
        hears(0, CALLS, UNKNOWN, AT(1));
        hears(0, CALLS, replies[i], AT(1));
        hears(1, CALLS, UNKNOWN, AT(1));
        hears(1, CALLS, replies[i], AT(1));
        CHECK_OUTCOME(op, "server");
        rig_end(&rig, AT(2));
    }
}

TEST(a_slot_that_nobody_serves_is_waited_for)
{
    CHECK(cluster_begin());
    hf_op *op = acquire(0, AT(0));
    tick(AT(0));
    said(at(0, CALLS));
    hears(0, CALLS, KNOWN "*1\r\n" RANGE(8192, 16383, "b", 2), AT(1));
    CHECK(!op->done);
    CHECK(sleep_until(AT(1), AT(200)) < 20);
    CHECK_SAYS(0, CALLS, QUERY);
    hears(0, CALLS, HALVES, AT(201));
    sleep_until(AT(201), AT(300));
    CHECK_SAYS(0, CALLS, ASKED);
    rig_end(&rig, AT(300));
}

TEST(braces_that_are_no_tag_are_refused)
{
    CHECK(cluster_begin());
    hf_names names;
    CHECK(hf_names_make(&names, hf_slice_of("a{b")));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.names = &names;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
    CHECK_OUTCOME(op, "conflict");
    CHECK_EQ_INT(rig.opens, 0);
    hf_op_end(op, AT(0));
    hf_names_free(&names);
    rig_end(&rig, AT(0));
}

/* ---- redirects ---- */

TEST(moved_is_followed_at_once_and_remembered)
{
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    CHECK_SAYS(0, CALLS, ASKED);
    hears(0, CALLS, MOVED_TO_B, AT(1001));
    CHECK_SAYS(1, CALLS, ASKED);
    CHECK(op->node == rig.client.nodes[1]);
    CHECK_EQ_INT(op->request.sends, 1);
    CHECK_EQ_U64(rig.client.stats.redirects, 1);
    hears(1, CALLS, YES, AT(1002));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1002));
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    hf_client_begin(&rig.client, &spec, AT(1002));
    CHECK_SAYS(1, CALLS, "EVALSHA sharded_release " KEYS_OF_K "0 30000 ");
    rig_end(&rig, AT(1003));
}

TEST(the_map_is_read_again_after_moved_but_not_too_often)
{
    cluster_known(AT(0));
    for (int i = 0; i < 10; i++) {
        hf_op *op = acquire(0, AT(1000));
        said(at(0, CALLS));
        hears(0, CALLS, "-MOVED 7629 a:1\r\n", AT(1000));
        said(at(0, CALLS));
        hears(0, CALLS, YES, AT(1000));
        hf_op_end(op, AT(1000));
        hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
        op = hf_client_begin(&rig.client, &spec, AT(1000));
        said(at(0, CALLS));
        hears(0, CALLS, ":1\r\n", AT(1000));
        hf_op_end(op, AT(1000));
    }
    tick(AT(1000));
    CHECK_SAYS(0, CALLS, QUERY);
    hears(0, CALLS, HALVES, AT(1001));
    CHECK_EQ_U64(hf_client_deadline(&rig.client), HF_NEVER);
    rig_end(&rig, AT(1002));
}

TEST(ask_is_for_one_command)
{
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    said(at(0, CALLS));
    hears(0, CALLS, ASK_B, AT(1001));
    CHECK_SAYS(1, CALLS, "ASKING\n" ASKED);
    CHECK(op->node == rig.client.nodes[0]);
    hears(1, CALLS, "+OK\r\n", AT(1002));
    CHECK(!op->done);
    hears(1, CALLS, "-NOSCRIPT\r\n", AT(1002));
    CHECK_SAYS(1, CALLS, "ASKING\nEVAL sharded_acquire " KEYS_OF_K "0 0 30000 1000 ");
    hears(1, CALLS, "+OK\r\n" YES, AT(1003));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1003));
    hf_op_spec spec = spec_of(&rig, HF_OP_CHECK);
    hf_client_begin(&rig.client, &spec, AT(1003));
    CHECK(strncmp(said(at(0, CALLS)), "EVALSHA sharded_extend", 22) == 0);
    rig_end(&rig, AT(1004));
}

TEST(nodes_that_point_at_each_other_do_not_spin)
{
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    int asked = 0;
    for (int ms = 1000; ms < 4100 && !op->done; ms++) {
        for (size_t node = 0; node < 2; node++) {
            const char *text = said(at(node, CALLS)), *query = strstr(text, QUERY), *ask = strstr(text, "acquire");
            bool query_first = query && (!ask || query < ask), query_last = query && !query_first;
            if (query_first) hears(node, CALLS, HALVES, AT(ms));
            if (ask) hears(node, CALLS, node ? "-MOVED 7629 a:1\r\n" : MOVED_TO_B, AT(ms));
            if (query_last) hears(node, CALLS, HALVES, AT(ms));
            asked += ask != NULL;
        }
        tick(AT(ms));
    }
    CHECK_OUTCOME(op, "unreachable");
    CHECK(asked > 10 && asked < 1500);
    rig_end(&rig, AT(4100));
}

TEST(moved_to_nowhere_waits_for_the_map)
{
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    said(at(0, CALLS));
    hears(0, CALLS, "-MOVED 7629 ?:2\r\n", AT(1001));
    tick(AT(1001));
    CHECK_SAYS(0, CALLS, QUERY);
    hears(0, CALLS, ALL_OF_B, AT(1002));
    sleep_until(AT(1002), AT(1100));
    CHECK_SAYS(1, CALLS, ASKED);
    CHECK(!op->done);
    rig_end(&rig, AT(1100));
}

TEST(try_again_is_tried_again_until_the_deadline)
{
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    int asked = 0;
    for (int ms = 1000; ms < 4100 && !op->done; ms++) {
        if (strstr(said(at(0, CALLS)), "acquire")) {
            asked++;
            hears(0, CALLS, "-TRYAGAIN wait\r\n", AT(ms));
        }
        tick(AT(ms));
    }
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(op->failure.text, "TRYAGAIN wait"));
    CHECK(asked > 50 && asked < 300);
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(4100));
}

TEST(cluster_down_also_asks_for_the_map)
{
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    said(at(0, CALLS));
    hears(0, CALLS, "-CLUSTERDOWN down\r\n", AT(1001));
    tick(AT(1001));
    CHECK_SAYS(0, CALLS, QUERY);
    hears(0, CALLS, ALL_OF_B, AT(1002));
    sleep_until(AT(1002), AT(1050));
    CHECK_SAYS(1, CALLS, ASKED);
    CHECK(!op->done);
    rig_end(&rig, AT(1100));
}

/* ---- nodes that are gone ---- */

static void lose(size_t node, hf_time now)
{
    refusing[node] = true;
    for (int link = 0; link < HF_LINKS; link++) hf_session_closed(at(node, (hf_link)link), "gone", now);
    serve(now);
}

TEST(another_node_has_taken_over)
{
    cluster_known(AT(0));
    lose(0, AT(1000));
    hf_op *op = acquire(0, AT(2000));
    CHECK(!op->done);
    tick(AT(2000));
    CHECK_SAYS(1, CALLS, QUERY);
    hears(1, CALLS, ALL_OF_B, AT(2001));
    CHECK_SAYS(1, CALLS, ASKED);
    hears(1, CALLS, YES, AT(2002));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(2003));
}

TEST(nobody_has_taken_over_yet)
{
    cluster_known(AT(0));
    lose(0, AT(1000));
    hf_op *op = acquire(0, AT(2000));
    tick(AT(2000));
    said(at(1, CALLS));
    hears(1, CALLS, HALVES, AT(2001));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(op->failure.text, "on a:1: refused"));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(2002));
}

TEST(an_unanswered_command_goes_to_the_node_that_takes_over)
{
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    said(at(0, CALLS));
    lose(0, AT(1001));
    CHECK(!op->done);
    tick(AT(1001));
    CHECK_SAYS(1, CALLS, QUERY);
    hears(1, CALLS, HALVES, AT(1002));
    CHECK(!op->done); /* its outcome is unknown: it is worth waiting for */
    CHECK(sleep_until(AT(1002), AT(1400)) < 40);
    CHECK(strstr(said(at(1, CALLS)), QUERY));
    hears(1, CALLS, ALL_OF_B, AT(1401));
    CHECK_SAYS(1, CALLS, ASKED);
    CHECK_EQ_INT(op->request.sends, 2);
    rig_end(&rig, AT(1402));
}

TEST(a_renewal_goes_to_the_node_that_takes_over)
{
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(0));
    hears(0, CALLS, YES, AT(0));
    hf_op_end(op, AT(0));
    lose(0, AT(5000));
    tick(AT(10000));
    sleep_until(AT(10000), AT(10300));
    hf_link link = strstr(said(at(1, KEEPER)), QUERY) ? KEEPER : CALLS;
    hears(1, link, ALL_OF_B, AT(10301));
    sleep_until(AT(10301), AT(10400));
    CHECK_SAYS(1, KEEPER, "EVALSHA sharded_renew 1 k me 30000");
    hears(1, KEEPER, "*1\r\n:1\r\n", AT(10401));
    CHECK(hf_hold_is_valid(hold_of(&rig), AT(35000)));
    rig_end(&rig, AT(10402));
}

TEST(what_waits_for_a_connection_follows_the_map)
{
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(0));
    hears(0, CALLS, YES, AT(0));
    hf_op_end(op, AT(0));
    hf_client_tick(&rig.client, AT(10000)); /* the keeper's link is not made yet */
    CHECK(hf_session_has_work(at(0, KEEPER)));
    hf_cluster_doubt(rig.client.nodes[0], CALLS, AT(10001));
    hf_client_tick(&rig.client, AT(10200));
    said(at(0, CALLS));
    hears(0, CALLS, ALL_OF_B, AT(10201));
    CHECK(!hf_session_has_work(at(0, KEEPER)));
    CHECK_SAYS(1, KEEPER, "EVALSHA sharded_renew 1 k me 30000");
    rig_end(&rig, AT(10202));
}

/* ---- holds and waiters ---- */

TEST(each_key_is_renewed_alone)
{
    cluster_known(AT(0));
    hf_names tagged;
    CHECK(hf_names_make(&tagged, hf_slice_of("{k}2")));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    for (int i = 0; i < 2; i++) {
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
        hears(0, CALLS, YES, AT(0));
        CHECK_OUTCOME(op, "ok");
        hf_op_end(op, AT(0));
        spec.names = &tagged;
    }
    sleep_until(AT(0), AT(10001));
    CHECK_SAYS(0, KEEPER, "EVALSHA sharded_renew 1 k me 30000\nEVALSHA sharded_renew 1 {k}2 me 30000");
    hears(0, KEEPER, ASK_B "*1\r\n:1\r\n", AT(10002));
    CHECK_SAYS(1, KEEPER, "ASKING\nEVALSHA sharded_renew 1 k me 30000");
    hears(1, KEEPER, "+OK\r\n*1\r\n:1\r\n", AT(10003));
    CHECK_EQ_U64(rig.client.stats.renewals, 2);
    hf_names_free(&tagged);
    rig_end(&rig, AT(10004));
}

static hf_op *in_queue(hf_time now)
{
    hf_op *op = acquire(60 * HF_SECOND, now);
    hears(0, CALLS, busy(20000, 0, 0), now);
    hears_event(0, "subscribe", "1", now);
    hears(0, CALLS, busy(20000, 0, 0), now);
    if (op->state != HF_ACQUIRE_WAITING) abort();
    for (size_t i = 0; i < hf_client_link_count(&rig.client); i++) said(hf_client_link(&rig.client, i));
    return op;
}

TEST(waiters_move_with_their_slot)
{
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    sleep_until(AT(1000), AT(3050));
    CHECK(strstr(said(at(0, CALLS)), "sharded_acquire"));
    hears(0, CALLS, MOVED_TO_B, AT(3051));
    CHECK(op->node == rig.client.nodes[1]);
    CHECK_EQ_INT(rig.client.nodes[0]->waiting, 0);
    CHECK_EQ_INT(rig.client.nodes[1]->waiting, 1);
    CHECK(strstr(said(at(1, CALLS)), PLACE("1")));
    hears(1, CALLS, "*5\r\n:0\r\n:20000\r\n:0\r\n:0\r\n:1\r\n", AT(3052));
    CHECK_EQ_INT(op->state, HF_ACQUIRE_SUBSCRIBING);
    CHECK_SAYS(1, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    hears_event(1, "subscribe", "1", AT(3053));
    CHECK(strstr(said(at(1, CALLS)), PLACE("1")));
    hears(1, CALLS, "*5\r\n:0\r\n:20000\r\n:0\r\n:0\r\n:1\r\n", AT(3054));
    CHECK_EQ_INT(op->state, HF_ACQUIRE_WAITING);
    hears_event(1, "message", "grant 1 99 2000 0 2 mek", AT(3055));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(3056));
}

TEST(waiters_move_when_the_map_says_so)
{
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    hf_cluster_doubt(rig.client.nodes[0], CALLS, AT(1500));
    tick(AT(1600));
    size_t node = strstr(said(at(1, CALLS)), QUERY) ? 1 : 0;
    hears(node, CALLS, ALL_OF_B, AT(1601));
    CHECK(op->node == rig.client.nodes[1]);
    CHECK_SAYS(1, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    hears_event(1, "subscribe", "1", AT(1602));
    CHECK(strstr(said(at(1, CALLS)), PLACE("1")));
    rig_end(&rig, AT(1603));
}

TEST(a_grant_may_be_heard_at_another_node)
{
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    rig.client.nodes[1]->links[EVENTS].wanted = true;
    serve(AT(1001));
    hears_event(1, "message", "grant 1 99 2000 0 2 mek", AT(1002));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1003));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    hears_event(0, "message", "grant 1 99 2000 0 2 mek", AT(1004));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    rig_end(&rig, AT(1005));
}

TEST(a_stray_grant_is_left_only_where_its_key_lives)
{
    cluster_known(AT(0));
    for (size_t node = 0; node < 2; node++) {
        rig.client.nodes[node]->links[EVENTS].wanted = true;
        serve(AT(1000));
    }
    hears_event(1, "message", "grant 7 99 2000 0 38 " DRIVE_UUID ":5k", AT(1001));
    CHECK_EQ_INT(rig.client.holds.count, 0);
    hears_event(0, "message", "grant 7 99 2000 0 38 " DRIVE_UUID ":5k", AT(1002));
    CHECK_EQ_INT(rig.client.holds.count, 1);
    CHECK_EQ_INT(rig.client.holds.heap[0]->state, HF_HOLD_LEAVING);
    rig_end(&rig, AT(1003));
}

TEST(a_grant_that_cannot_be_confirmed_in_two_keys_is_renewed_with_one)
{
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    hears_event(0, "message", "grant 1 99 2000 0 2 mek", AT(1100));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1100));
    bool renewed = false;
    for (int ms = 1100; ms < 3000 && !renewed; ms++) {
        const char *text = said(at(0, KEEPER));
        if (strstr(text, "sharded_extend 2 k")) hears(0, KEEPER, "-TRYAGAIN wait\r\n", AT(ms));
        renewed = strstr(text, "sharded_renew 1 k") != NULL;
        if (renewed) hears(0, KEEPER, "*1\r\n:1\r\n", AT(ms));
        tick(AT(ms));
    }
    CHECK(renewed);
    CHECK(hf_hold_is_valid(hold_of(&rig), AT(25000)));
    rig_end(&rig, AT(3000));
}

TEST(redisson_is_looked_at_by_the_clock)
{
    cluster_known(AT(0));
    hf_op *op = acquire(60 * HF_SECOND, AT(1000));
    hears(0, CALLS, busy(20000, 0, 1), AT(1000));
    hears_event(0, "subscribe", "1", AT(1000));
    said(at(0, EVENTS));
    hears(0, CALLS, busy(20000, 0, 1), AT(1000));
    CHECK_SAYS(0, EVENTS, "");
    CHECK(hf_op_deadline(op) > AT(1000) && hf_op_deadline(op) <= AT(1201));
    hears_event(0, "message", "turn 1 50", AT(1000));
    CHECK_SAYS(0, EVENTS, "");
    CHECK(hf_op_deadline(op) <= AT(1051));
    rig_end(&rig, AT(1001));
}

/* ---- many nodes ---- */

TEST(nodes_that_are_gone_make_room)
{
    cluster_known(AT(0));
    for (int i = 0; i < 50; i++) {
        hf_time now = AT(1000 * (i + 1));
        char text[64];
        hf_op *op = acquire(0, now);
        for (size_t node = 0; node < rig.client.node_count; node++) {
            if (!strstr(said(at(node, CALLS)), "acquire")) continue;
            snprintf(text, sizeof text, "-MOVED 7629 n%d:1\r\n", i);
            hears(node, CALLS, text, now);
            break;
        }
        for (size_t node = 2; node < rig.client.node_count; node++) {
            if (op->node == rig.client.nodes[node]) hears(node, CALLS, "-ERR no\r\n", now);
        }
        CHECK_OUTCOME(op, "server");
        hf_op_end(op, now);
        for (size_t node = 2; node < rig.client.node_count; node++) {
            for (int link = 0; link < HF_LINKS; link++) hf_session_closed(at(node, (hf_link)link), "gone", now);
        }
        tick(now);
        for (size_t node = 0; node < 2; node++) {
            if (strstr(said(at(node, CALLS)), QUERY)) hears(node, CALLS, HALVES, now);
        }
        sleep_until(now, now + 900 * HF_MS);
    }
    CHECK(rig.client.node_count < 20);
    rig_end(&rig, AT(60000));
}

/* ---- memory ---- */

/* A map, a redirect to a node that is new, ASK, a wait that moves. False: something failed, as it should. */
static bool live(void *context)
{
    (void)context;
    bool lived = cluster_begin();
    hf_op *op = lived ? acquire(HF_SECOND, AT(0)) : NULL;
    if (op) {
        tick(AT(0));
        hears(0, CALLS, KNOWN HALVES, AT(1));
        tick(AT(300));
        hears(0, CALLS, "-MOVED 7629 c:3\r\n", AT(301));
        if (rig.client.node_count == 3) {
            hears(2, CALLS, ASK_B, AT(302));
            hears(1, CALLS, "+OK\r\n", AT(303));
            hears(1, CALLS, busy(20000, 0, 0), AT(303));
            hears_event(2, "subscribe", "1", AT(304));
            hears(2, CALLS, YES, AT(305));
        }
        sleep_until(AT(305), AT(5000));
        if (!op->done) abort();
        lived = op->failure.code == HF_OK;
    }
    lived = lived && op;
    if (rig.client.ops) hf_op_end(rig.client.ops, AT(5000));
    rig_end(&rig, AT(5000));
    return lived;
}

TEST(out_of_memory)
{
    CHECK(memerr_until_success(live, NULL, 1000) > 10);
}

CHECK_MAIN
