/* A client of a cluster of two nodes. Key k is in slot 7629. */
#ifndef CLUSTER_RIG_H
#define CLUSTER_RIG_H

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

static UNUSED hf_node *node_at(size_t i) {
    return nodes_of(&rig.client)[i];
}

static UNUSED hf_session *at(size_t node, hf_link link) {
    return &node_at(node)->links[link];
}

static UNUSED bool cluster_begin(void) {
    hf_client_config config = rig_config();
    config.mode = HF_MODE_CLUSTER, config.servers = SERVERS, config.server_count = 2;
    return rig_begin_with(&config);
}

static UNUSED void cluster_before(void) {
    if (!cluster_begin()) abort();
}

static UNUSED hf_op *acquire(hf_time wait, hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.wait = wait);
    return op;
}

static UNUSED void feeds(size_t node, hf_link link, const char *text, hf_time now) {
    feed(at(node, link), text, now);
    rig_serve(now);
}

static UNUSED void feeds_event(size_t node, const char *kind, const char *text, hf_time now) {
    char bytes[512];
    snprintf(bytes, sizeof bytes, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(kind),
             kind, strlen(DRIVE_GRANTS), DRIVE_GRANTS, strlen(text), text);
    feeds(node, EVENTS, bytes, now);
}

/* The first operation of a new client, which needs the map for it. */
static UNUSED hf_op *first_acquire(hf_time now) {
    if (!cluster_begin()) abort();
    hf_op *op = acquire(0, now);
    rig_tick(now);
    return op;
}

/* An acquire at AT(0) that needs the map; the first node sends this one. */
static UNUSED hf_op *acquire_by(const char *map) {
    hf_op *op = acquire(0, AT(0));
    rig_tick(AT(0)), output_of(at(0, CALLS));
    feeds(0, CALLS, map, AT(1));
    return op;
}

/* An acquire that the first node grants, and whose caller has the result. */
static UNUSED void hold_k(hf_time now) {
    hf_op *op = acquire(0, now);
    output_of(at(0, CALLS));
    feeds(0, CALLS, YES, now), CHECK_ENDS(op, "ok", now);
}

static UNUSED hf_op *release_k(hf_time now) {
    hf_op_spec spec = spec_of(HF_OP_RELEASE);
    return hf_client_begin(&rig.client, &spec, now);
}

/* The node answers with this map, if it is asked for it. */
static UNUSED void answer_query(size_t node, hf_link link, const char *map, hf_time now) {
    if (strstr(output_of(at(node, link)), QUERY)) feeds(node, link, map, now);
}

/* When the client asks for the map for a call; HF_NEVER: not at all. */
static UNUSED hf_time map_due(void) {
    return topology_of(&rig.client)->next_tick(&rig.client, CALLS);
}

/* The map is out of date, as a link of this node shows. */
static UNUSED void invalidate(size_t node, hf_time now) {
    topology_of(&rig.client)->invalidate(node_at(node), CALLS, now);
    rig_tick(now);
}

/* A client that has read HALVES, and has acquired and released k. */
static UNUSED void cluster_known(hf_time now) {
    hf_op *op = first_acquire(now);
    output_of(at(0, CALLS));
    feeds(0, CALLS, HALVES, now), output_of(at(0, CALLS));
    feeds(0, CALLS, YES, now);
    hf_op_end(op, now);
    op = release_k(now);
    output_of(at(0, CALLS));
    feeds(0, CALLS, ":1\r\n", now);
    hf_op_end(op, now);
}

#define CHECK_NODE_SENT(node, link, want) CHECK_STR(output_of(at(node, link)), want)

/* What the calls link of a node sends after this reply of another node, or of the same. */
#define CHECK_THEN_SENT(from, reply, now, node, want)                                              \
    (feeds(from, CALLS, reply, now), CHECK_NODE_SENT(node, CALLS, want))

/* The operation's outcome after this reply of a node. */
#define CHECK_ANSWER_BY(node, op, reply, now, want)                                                \
    (feeds(node, CALLS, reply, now), CHECK_OUTCOME(op, want))

#define LISTENS                                                                                    \
    "PSUBSCRIBE redisson_lock__channel:{k}\n"                                                      \
    "SSUBSCRIBE redisson_lock__channel:{k} holdfast_listening:{k}"
#define SHARDED(kind, rest) "*3\r\n" kind "\r\n$26\r\nredisson_lock__channel:{k}\r\n" rest "\r\n"

/* All connections to the node are lost. */
static UNUSED void loses(size_t node, hf_time now) {
    for (int link = 0; link < HF_LINKS; link++)
        hf_session_closed(at(node, (hf_link)link), "gone", now);
}

/* The node refuses connections from now on. */
static UNUSED void lose(size_t node, hf_time now) {
    rig.down[node] = "refused";
    loses(node, now);
    rig_serve(now);
}

/* An acquire that waits in the queue, at the first node. */
static UNUSED hf_op *in_queue(hf_time now) {
    hf_op *op = acquire(60 * HF_SECOND, now);
    feeds(0, CALLS, busy(20000, 0, 0), now);
    feeds_event(0, "subscribe", "1", now);
    feeds(0, CALLS, busy(20000, 0, 0), now);
    if (!is_waiting(op)) abort();
    rig_hush();
    return op;
}

/* The node that is asked replies that the key has moved to the node n<number>, which is not in the
 * map. */
static UNUSED hf_op *move_to(int number, hf_time now) {
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
static UNUSED void call_at_gone_node(int number, hf_time now) {
    hf_op *op = move_to(number, now);
    for (size_t node = 2; node < node_count(&rig.client); node++) {
        if (node_for(op) == node_at(node)) feeds(node, CALLS, "-ERR no\r\n", now);
    }
    hf_op_end(op, now);
    rig_tick(now + 500 * HF_MS);
    for (size_t node = 0; node < node_count(&rig.client); node++) {
        answer_query(node, CALLS, HALVES, now + 500 * HF_MS);
    }
}

#endif
