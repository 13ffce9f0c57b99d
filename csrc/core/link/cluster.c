/* Redis Cluster: finds each command's node, and follows keys that move.
 *
 * All that the client needs is the cluster's map, which gives the node that serves each slot. It
 * requests the map before it sends the first command, and again after a MOVED, a lost node or
 * CLUSTERDOWN, at most ten times a second. If a node returns no map, the client asks the next one
 * at once. A redirected command has not been run, so it is sent to the named node at once. A
 * command whose slot has no node waits until its deadline.
 *
 * A request that is not done is either in one of its node's sessions or parked. `parked` is a
 * session that never connects. It keeps a request until it is time to retry or, with needs_map,
 * until the current round of map requests has ended. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/nodes.h"
#include "link/slots.h"

#define MAP_INTERVAL (100 * HF_MS)
#define ROUND_PAUSE (250 * HF_MS)  /* after a round in which all nodes failed */
#define RETRY_PAUSE (20 * HF_MS)   /* after a transient refusal */
#define NO_NODE_PAUSE (50 * HF_MS) /* if the map has no node for a slot */
#define MAX_REDIRECTS 5

struct hf_cluster {
    hf_client *client;
    hf_session parked;
    hf_slots map;                    /* the last map that could be read */
    uint16_t node_of_slot[HF_SLOTS]; /* an index in client->nodes, or HF_SLOT_NO_NODE */
    bool has_map;                    /* `node_of_slot` is from a map */
    bool ids_match;                  /* nodes report the ids that the map has for them */

    /* Counts rounds of requests for the map. A round ends with a map, or when all nodes have
     * failed. */
    uint64_t round;

    hf_request query;
    size_t asked_node;     /* the index of the node that was asked last */
    size_t failed_count;   /* how many nodes have failed in this round */
    size_t foreign_count;  /* how many of these are configured addresses that now belong to another
                              cluster */
    size_t doubtful_node;  /* the first node in this round whose map was doubtful, or SIZE_MAX */
    bool accepts_doubtful; /* all nodes were asked: a doubtful map is accepted */
    hf_link link;          /* the link over which nodes are asked */
    hf_time ask_at;        /* when to ask for the map; HF_NEVER while it is up to date */
    hf_time asked_at;      /* when a node was last asked, or 0 */
    hf_code failure_code;
    char failures[240]; /* each node that failed in this round, and why; may be truncated */
};

static void ask(hf_cluster *cluster, hf_time now);

static bool is_in_progress(const hf_request *request) {
    return request->state == HF_REQUEST_QUEUED || request->state == HF_REQUEST_SENT;
}

/* ---- nodes ---- */

static hf_node *node_at(const hf_cluster *cluster, uint16_t index) {
    assert(index == HF_SLOT_NO_NODE || index < cluster->client->node_count);
    return index == HF_SLOT_NO_NODE ? NULL : cluster->client->nodes[index];
}

static hf_node *node_of(const hf_cluster *cluster, const hf_request *request) {
    return node_at(cluster, cluster->node_of_slot[request->routing.slot]);
}

static hf_address address_of(const hf_node *node) {
    hf_address address = {.port = node->server.port};
    memcpy(address.host, node->server.host, sizeof address.host);
    return address;
}

static bool is_at(const hf_node *node, const hf_address *address) {
    return node->server.port == address->port && strcmp(node->server.host, address->host) == 0;
}

static bool is_in_use(const hf_client *client, const hf_node *node) {
    if (node->may_have_keys || node->events_users > 0) return true;
    for (int link = 0; link < HF_LINKS; link++) {
        if (node->links[link].state != HF_SESSION_CLOSED || node->links[link].queue) return true;
    }
    for (const hf_op *op = client->ops; op; op = op->next) {
        if (op->node == node) return true;
    }
    return false;
}

/* Reassigns an unused node to this server, because a client may run for years while its cluster is
 * rebuilt. Returns the node's index, or HF_SLOT_NO_NODE if all are in use. */
static uint16_t reuse_node(hf_client *client, const hf_server *server) {
    for (size_t i = client->config.server_count; i < client->node_count; i++) {
        if (is_in_use(client, client->nodes[i])) continue;
        client->nodes[i]->server = *server;
        client->nodes[i]->id[0] = '\0';
        for (int link = 0; link < HF_LINKS; link++)
            hf_session_forget_failures(&client->nodes[i]->links[link]);
        return (uint16_t)i;
    }
    return HF_SLOT_NO_NODE;
}

/* Returns the index of the node with this address, and adds the node if needed. Returns
 * HF_SLOT_NO_NODE when out of memory or if there are too many nodes. */
static uint16_t index_of(hf_cluster *cluster, const hf_address *address) {
    hf_client *client = cluster->client;
    for (size_t i = 0; i < client->node_count; i++) {
        if (is_at(client->nodes[i], address)) return (uint16_t)i;
    }
    hf_server server = client->config.session.server;
    hf_server_set_address(&server, address);
    uint16_t reused = reuse_node(client, &server);
    if (reused != HF_SLOT_NO_NODE) return reused;
    return hf_client_add_node(client, &server) ? (uint16_t)(client->node_count - 1)
                                               : HF_SLOT_NO_NODE;
}

static hf_node *node_of_key(const hf_client *client, hf_slice key) {
    hf_node *node = node_at(client->cluster, client->cluster->node_of_slot[hf_slot_of(key)]);
    return node ? node : client->nodes[0];
}

/* ---- parked requests ---- */

static void park(hf_cluster *cluster, hf_request *request, hf_time until) {
    assert(cluster->parked.state == HF_SESSION_OPENING); /* nothing is ever sent there */
    hf_session_adopt(&cluster->parked, request, until);
    request->retry_at = until;
    request->asking = false;
    request->routing.needs_map = false;
    request->routing.redirects = 0;
}

static void park_for_map(hf_cluster *cluster, hf_request *request, hf_time now) {
    park(cluster, request, now);
    request->routing.needs_map = true;
    request->routing.map_round = cluster->round;
}

static void schedule_query(hf_cluster *cluster, hf_link link, hf_time now) {
    hf_time earliest = cluster->asked_at ? cluster->asked_at + MAP_INTERVAL : now;
    if (cluster->asked_at) earliest += hf_jitter(&cluster->client->random, MAP_INTERVAL / 2);
    cluster->link = link;
    cluster->ask_at = hf_time_min(cluster->ask_at, hf_time_max(now, earliest));
}

/* ---- routing ---- */

static void send_to(hf_node *node, hf_request *request, hf_time now) {
    if (request->routing.context_is_op && !request->asking)
        node->client->decider->move(request->context, node, now);
    assert(request->routing.routed && request->routing.link < HF_LINKS);
    hf_session_adopt(&node->links[request->routing.link], request, now);
}

/* Returns whether the request must fail: it must not wait for a connection, and the map still names
 * the node whose link could not be opened. It is retried all the same after a transient refusal of
 * the log-in, or if a server may have run it. */
static bool must_fail(const hf_request *request, const hf_session *link) {
    return request->routing.failed_link == link && link->state == HF_SESSION_CLOSED &&
           !hf_refusal_is_transient(hf_refusal_of(link->reason), request->accepted) &&
           !request->waits_for_connection && request->possible_runs == 0;
}

/* A cluster whose nodes announce host names reports "?" for a node without one. */
#define UNNAMED "the cluster gives \"?\" as the name of a node"

static void route(hf_cluster *cluster, hf_request *request, hf_time now) {
    hf_node *node = node_of(cluster, request);
    if (!cluster->has_map) {
        park_for_map(cluster, request, now);
        schedule_query(cluster, request->routing.link, now);
        return;
    }
    if (!node) {
        hf_fault_set(&request->failure, HF_UNREACHABLE,
                     cluster->map.has_unknown_host
                         ? UNNAMED
                         : "no node of the cluster serves the key's slot");
        park(cluster, request, now + NO_NODE_PAUSE);
        schedule_query(cluster, request->routing.link, now);
        return;
    }
    hf_session *link = &node->links[request->routing.link];
    if (must_fail(request, link)) {
        if (request->routing.context_is_op)
            node->client->decider->move(request->context, node, now);
        hf_request_fail(request, HF_UNREACHABLE, link->reason, now);
    } else {
        send_to(node, request, now);
    }
}

static bool map_round_has_ended(const hf_cluster *cluster, const hf_request *request) {
    return request->routing.needs_map && request->routing.map_round < cluster->round;
}

static bool is_due(const hf_request *request, hf_time now) {
    return request->retry_at <= now && !request->routing.needs_map;
}

/* Sends the parked requests that are due or whose round has ended. This may change the queue. */
static void release_parked(hf_cluster *cluster, hf_time now) {
    hf_request *request = cluster->parked.queue;
    while (request) {
        if (!map_round_has_ended(cluster, request) && !is_due(request, now)) {
            request = request->next;
            continue;
        }
        hf_session_drop(request);
        route(cluster, request, now);
        request = cluster->parked.queue;
    }
}

static hf_slice key_or_random(hf_cluster *cluster, hf_slice key, char text[24]) {
    return key.size > 0 ? key : hf_decimal(text, hf_jitter(&cluster->client->random, HF_SLOTS));
}

static void submit(hf_client *client, hf_slice key, hf_link link, hf_request *request,
                   hf_time now) {
    hf_cluster *cluster = client->cluster;
    char text[24];
    bool context_is_op = request->routing.context_is_op;
    request->routing =
        (hf_routing){.routed = true, .context_is_op = context_is_op, .link = (uint8_t)link};
    request->routing.slot = hf_slot_of(key_or_random(cluster, key, text));
    request->asking = false;
    request->possible_runs = request->refusals = 0;
    request->failure.code = HF_OK;
    route(cluster, request, now);
}

/* ---- refusals ---- */

static void redirect(hf_cluster *cluster, hf_request *request, const hf_redirect *to, hf_time now) {
    bool moved = to->kind == HF_REDIRECT_MOVED;
    uint16_t index = to->address.port > 0 ? index_of(cluster, &to->address) : HF_SLOT_NO_NODE;
    if (moved) schedule_query(cluster, request->routing.link, now);
    if (moved && index != HF_SLOT_NO_NODE) {
        cluster->node_of_slot[to->slot] = index;
        cluster->client->nodes[index]->may_have_keys = true;
    }
    if (index == HF_SLOT_NO_NODE || ++request->routing.redirects > MAX_REDIRECTS) {
        hf_fault_set(&request->failure, HF_UNREACHABLE,
                     "the cluster's nodes do not agree on which node serves the key's slot");
        park(cluster, request,
             now + RETRY_PAUSE + hf_jitter(&cluster->client->random, RETRY_PAUSE));
        return;
    }
    request->asking = !moved;
    cluster->client->stats.redirects++;
    send_to(cluster->client->nodes[index], request, now);
}

static void report_delay(const hf_cluster *cluster, const hf_request *request, hf_time now) {
    const hf_session *calls = &cluster->client->first.links[HF_LINK_CALLS];
    if (calls->on_delay)
        calls->on_delay(calls->context, request, request->failure.code,
                        hf_fault_text(&request->failure), now);
}

/* Called after a transient refusal. The command was not run, and is soon sent again, to this node
 * or to its replacement. A refused log-in is retried only when the session reopens. Returns false
 * if the request's deadline comes first. */
static bool retry_soon(hf_cluster *cluster, hf_request *request, const char *error, hf_time now) {
    const hf_session *link = request->session;
    hf_time retry_at = now + RETRY_PAUSE / 2 + hf_jitter(&cluster->client->random, RETRY_PAUSE);
    if (link->state == HF_SESSION_CLOSED) retry_at = hf_time_max(retry_at, link->retry_at);
    if (retry_at >= request->deadline) return false;
    hf_fault_set(&request->failure, hf_code_of_error(error), error);
    if (strncmp(error, "TRYAGAIN", 8) != 0) schedule_query(cluster, request->routing.link, now);
    park(cluster, request, retry_at);
    report_delay(cluster, request, now);
    return true;
}

static bool on_refusal(void *context, hf_request *request, const char *error, hf_time now) {
    const hf_node *node = context;
    hf_cluster *cluster = node->client->cluster;
    if (!request->routing.routed) return false;
    if (!error) {
        request->routing.failed_link = request->session;
        park_for_map(cluster, request, now);
        schedule_query(cluster, request->routing.link, now);
        return true;
    }
    hf_address sender = address_of(node);
    hf_redirect to = hf_redirect_read(hf_slice_of(error), &sender);
    if (to.kind != HF_REDIRECT_NONE) {
        redirect(cluster, request, &to, now);
        return true;
    }
    bool is_unavailable = hf_refusal_of(error) == HF_REFUSAL_UNAVAILABLE;
    bool at_login = request->session->state == HF_SESSION_CLOSED;
    return (is_unavailable || at_login) && retry_soon(cluster, request, error, now);
}

static void invalidate(hf_node *node, hf_link link, hf_time now) {
    hf_cluster *cluster = node->client->cluster;
    if (cluster->has_map && node->may_have_keys) schedule_query(cluster, link, now);
}

static void on_calls_closed(void *context, hf_time now) {
    invalidate(context, HF_LINK_CALLS, now);
}

static void on_renewer_closed(void *context, hf_time now) {
    invalidate(context, HF_LINK_RENEWER, now);
}

static bool is_member(const void *context, const char *id) {
    const hf_node *node = context;
    return hf_slots_has_id(&node->client->cluster->map, id);
}

static void set_callbacks(hf_node *node) {
    node->may_have_keys = false; /* until a map contains it */
    for (int link = 0; link < HF_LINKS; link++) {
        node->links[link].node_id = node->id;
        node->links[link].is_member = is_member;
    }
    node->links[HF_LINK_CALLS].on_refusal = node->links[HF_LINK_RENEWER].on_refusal = on_refusal;
    node->links[HF_LINK_CALLS].on_closed = on_calls_closed;
    node->links[HF_LINK_RENEWER].on_closed = on_renewer_closed;
    node->links[HF_LINK_CALLS].max_elements = node->links[HF_LINK_RENEWER].max_elements =
        HF_SLOTS_MAX_ELEMENTS;
}

/* ---- the map ---- */

/* Finds or adds the client's node for each node of the map. Sets may_have_keys at once, so that
 * index_of does not reuse the node for the next new one. */
static void find_nodes(hf_cluster *cluster, uint16_t *indexes) {
    for (size_t i = 0; i < cluster->map.count; i++) {
        indexes[i] = index_of(cluster, &cluster->map.nodes[i]);
        hf_node *node = node_at(cluster, indexes[i]);
        if (node) node->may_have_keys = true;
    }
}

static void apply_map(hf_cluster *cluster) {
    uint16_t indexes[HF_SLOTS_MAX_NODES];
    hf_client *client = cluster->client;
    find_nodes(cluster, indexes);
    for (size_t i = 0; i < client->node_count; i++) client->nodes[i]->may_have_keys = false;
    for (size_t slot = 0; slot < HF_SLOTS; slot++) {
        uint16_t owner = cluster->map.owner[slot];
        assert(owner == HF_SLOT_NO_NODE || owner < cluster->map.count);
        cluster->node_of_slot[slot] = owner == HF_SLOT_NO_NODE ? owner : indexes[owner];
        hf_node *node = node_at(cluster, cluster->node_of_slot[slot]);
        if (node) node->may_have_keys = true;
    }
}

/* Finds out whether nodes report the ids that the map has. Some services reply to CLUSTER MYID with
 * an id that their maps do not contain. A node without slots may reply with such an id, too, so
 * once there is a map, a missing id proves nothing. */
static void check_ids(hf_cluster *cluster) {
    const char *id = cluster->client->nodes[cluster->asked_node]->links[cluster->link].peer_id;
    bool in_map = id[0] && hf_slots_has_id(&cluster->map, id);
    if (in_map) cluster->ids_match = true;
    else if (id[0] && !cluster->has_map) cluster->ids_match = false;
}

/* Gives each node the id that the map has for its address. A node that the map does not contain
 * keeps its id, because its address may now belong to another cluster. */
static void assign_ids(hf_cluster *cluster) {
    check_ids(cluster);
    if (!cluster->ids_match) return;
    for (size_t i = 0; i < cluster->client->node_count; i++) {
        hf_node *node = cluster->client->nodes[i];
        hf_address address = address_of(node);
        const char *id = hf_slots_id_at(&cluster->map, &address);
        if (!id || strcmp(id, node->id) == 0) continue;
        snprintf(node->id, sizeof node->id, "%s", id);
        for (int link = 0; link < HF_LINKS; link++) hf_session_check_id(&node->links[link]);
    }
}

/* Moves the requests of an unconnected link to the nodes that now serve their slots. */
static void route_unsent(hf_cluster *cluster, hf_session *link, hf_time now) {
    hf_request *request = link->queue;
    while (request && link->state != HF_SESSION_READY) {
        hf_node *node = request->routing.routed ? node_of(cluster, request) : NULL;
        bool is_in_place = !node || &node->links[request->routing.link] == link || request->asking;
        hf_request *next = request->next;
        if (!is_in_place) {
            hf_session_drop(request);
            send_to(node, request, now);
            next = link->queue;
        }
        request = next;
    }
}

/* Moves each waiter to the node that now has its key, where it subscribes and looks up its place in
 * the queue. */
static void move_waiters(hf_cluster *cluster, hf_time now) {
    for (hf_op *op = cluster->client->ops; op; op = op->next) {
        if (op->done || !op->impl->wait || !op->impl->wait->is_waiting(op)) continue;
        hf_node *node = node_of(cluster, &op->request);
        if (node) node->client->decider->move(op, node, now);
    }
}

static void end_round(hf_cluster *cluster) {
    cluster->round++;
    cluster->doubtful_node = SIZE_MAX;
    cluster->accepts_doubtful = false;
    cluster->failed_count = cluster->foreign_count = 0;
    cluster->failures[0] = '\0';
}

static void accept_map(hf_cluster *cluster, hf_time now) {
    apply_map(cluster);
    assign_ids(cluster); /* has_map still describes the previous map */
    cluster->has_map = true;
    cluster->ask_at = HF_NEVER;
    end_round(cluster);
    for (size_t i = 0; i < cluster->client->node_count; i++) {
        route_unsent(cluster, &cluster->client->nodes[i]->links[HF_LINK_CALLS], now);
        route_unsent(cluster, &cluster->client->nodes[i]->links[HF_LINK_RENEWER], now);
    }
    release_parked(cluster, now);
    move_waiters(cluster, now);
}

/* Adds the node's failure to `failures`. A refused log-in explains more than an unreachable node,
 * so its code takes precedence. */
static void add_failure(hf_cluster *cluster, hf_code code, const char *reason) {
    size_t used = strlen(cluster->failures);
    const char *label = cluster->client->nodes[cluster->asked_node]->server.label;
    int size = snprintf(cluster->failures + used, sizeof cluster->failures - used, "%s%s: %s",
                        used ? ", " : "", label, reason);
    if ((size_t)size >= sizeof cluster->failures - used)
        memcpy(cluster->failures + sizeof cluster->failures - 4, "...", 4);
    if (used == 0 || code != HF_UNREACHABLE) cluster->failure_code = code;
}

static bool must_not_wait(const hf_request *request, hf_code code) {
    bool logs_in_again = request->accepted && code == HF_DENIED;
    return !request->waits_for_connection && request->possible_runs == 0 && !logs_in_again;
}

static void fail_parked(hf_cluster *cluster, const hf_failure *failure, hf_time now) {
    hf_request *request = cluster->parked.queue;
    while (request) {
        if (!must_not_wait(request, failure->code) || !map_round_has_ended(cluster, request)) {
            request = request->next;
            continue;
        }
        hf_session_drop(request);
        hf_request_fail(request, failure->code, failure->text, now);
        request = cluster->parked.queue;
    }
}

static bool holds_any_lock(const hf_client *client) {
    for (size_t i = 0; i < client->holds.count; i++) {
        if (hf_claim_is_held(client->holds.heap[i])) return true;
    }
    return false;
}

/* Called when no node has returned a map. If more than half of the configured addresses now belong
 * to another cluster, the old cluster was recreated or is gone. A client that holds no lock then
 * forgets it, and continues as a new client would. */
static void forget_cluster(hf_cluster *cluster) {
    hf_client *client = cluster->client;
    if (cluster->foreign_count * 2 <= client->config.server_count || holds_any_lock(client)) return;
    hf_slots_forget_ids(&cluster->map);
    cluster->has_map = false;
    for (size_t i = 0; i < client->node_count; i++) client->nodes[i]->id[0] = '\0';
}

static void on_all_failed(hf_cluster *cluster, hf_time now) {
    hf_failure failure = {.code = cluster->failure_code};
    snprintf(failure.text, sizeof failure.text,
             "no cluster node could report which node serves the key (%s)", cluster->failures);
    for (hf_request *request = cluster->parked.queue; request; request = request->next) {
        hf_fault_set(&request->failure, failure.code, failure.text);
        report_delay(cluster, request, now);
    }
    forget_cluster(cluster);
    end_round(cluster);
    fail_parked(cluster, &failure, now);
    if (cluster->parked.queue) cluster->ask_at = hf_time_min(cluster->ask_at, now + ROUND_PAUSE);
}

/* Returns whether the node may be asked for the map, because it is configured or serves slots. */
static bool is_source(const hf_client *client, size_t index) {
    return index < client->config.server_count || client->nodes[index]->may_have_keys;
}

static size_t count_sources(const hf_cluster *cluster) {
    size_t count = 0;
    for (size_t i = 0; i < cluster->client->node_count; i++) count += is_source(cluster->client, i);
    return count;
}

static void on_no_map(hf_cluster *cluster, hf_code code, const char *reason, hf_time now) {
    const hf_node *node = cluster->client->nodes[cluster->asked_node];
    bool is_foreign = reason == HF_SLOTS_FOREIGN || node->links[cluster->link].found_other_server;
    if (is_foreign && cluster->asked_node < cluster->client->config.server_count)
        cluster->foreign_count++;
    add_failure(cluster, code, reason);
    bool should_retry_doubtful = !cluster->accepts_doubtful && cluster->doubtful_node != SIZE_MAX;
    if (++cluster->failed_count < count_sources(cluster)) {
        ask(cluster, now);
    } else if (should_retry_doubtful) {
        cluster->accepts_doubtful = true;
        ask(cluster, now);
    } else {
        on_all_failed(cluster, now);
    }
}

static bool is_in_map(const hf_cluster *cluster, size_t index) {
    hf_address address = address_of(cluster->client->nodes[index]);
    return hf_slots_has_address(&cluster->map, &address);
}

/* Returns whether to look for a better map. A configured address may now belong to another cluster,
 * so a new client's first map is doubtful if it contains the address of the asked node but no other
 * configured address. */
static bool is_doubtful(const hf_cluster *cluster) {
    size_t count = cluster->client->config.server_count, configured_count = 0;
    bool is_last =
        cluster->doubtful_node == SIZE_MAX && cluster->failed_count + 1 >= count_sources(cluster);
    if (cluster->has_map || cluster->accepts_doubtful || is_last) return false;
    if (cluster->asked_node >= count || !is_in_map(cluster, cluster->asked_node)) return false;
    for (size_t i = 0; i < count; i++) configured_count += is_in_map(cluster, i);
    return configured_count == 1;
}

static void reject_doubtful(hf_cluster *cluster, hf_time now) {
    if (cluster->doubtful_node == SIZE_MAX) cluster->doubtful_node = cluster->asked_node;
    hf_slots_forget_ids(&cluster->map);
    on_no_map(cluster, HF_UNREACHABLE, "its cluster has none of the other configured addresses",
              now);
}

static const char *read_map(hf_cluster *cluster, const hf_reply *reply) {
    hf_address sender = address_of(cluster->client->nodes[cluster->asked_node]);
    const char *error = hf_slots_read(&cluster->map, reply, &sender);
    if (error) return error;
    if (cluster->map.count > 0) return NULL;
    return cluster->map.has_unknown_host ? UNNAMED : HF_SLOTS_NONE;
}

static void on_map(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_cluster *cluster = request->context;
    const char *error = reply ? read_map(cluster, reply) : NULL;
    if (!reply) on_no_map(cluster, request->failure.code, hf_fault_text(&request->failure), now);
    else if (error == HF_SLOTS_FOREIGN) on_no_map(cluster, HF_UNREACHABLE, error, now);
    else if (error) on_no_map(cluster, HF_SERVER, error, now);
    else if (is_doubtful(cluster)) reject_doubtful(cluster, now);
    else accept_map(cluster, now);
}

/* Returns the index of the node to ask. A round begins with a connected node or, if there is none,
 * with a node that has not failed since it last worked. After a failure, the next node in turn is
 * asked. */
static size_t choose_node(const hf_cluster *cluster) {
    const hf_client *client = cluster->client;
    size_t first = cluster->asked_at ? cluster->asked_node + 1 : 0, next = SIZE_MAX,
           healthy = SIZE_MAX;
    if (cluster->accepts_doubtful) return cluster->doubtful_node;
    for (size_t i = 0; i < client->node_count; i++) {
        size_t index = (first + i) % client->node_count;
        const hf_session *calls = &client->nodes[index]->links[HF_LINK_CALLS];
        bool connected = calls->state == HF_SESSION_READY && !calls->closing;
        if (!is_source(client, index)) continue;
        if (next == SIZE_MAX) next = index;
        if (healthy == SIZE_MAX && !calls->reason[0]) healthy = index;
        if (connected && cluster->failed_count == 0) return index;
    }
    return cluster->failed_count == 0 && healthy != SIZE_MAX ? healthy : next;
}

static bool encode_query(hf_cluster *cluster) {
    hf_slice slots[] = {{"CLUSTER", 7}, {"SLOTS", 5}};
    return cluster->query.bytes || hf_request_command(&cluster->query, 2, slots);
}

static void ask(hf_cluster *cluster, hf_time now) {
    const hf_client *client = cluster->client;
    cluster->asked_node = choose_node(cluster);
    assert(cluster->asked_node < cluster->client->node_count);
    cluster->asked_at = now;
    cluster->ask_at = HF_NEVER;
    if (!encode_query(cluster)) {
        cluster->ask_at = now + ROUND_PAUSE;
        return;
    }
    cluster->query.done = on_map;
    cluster->query.context = cluster;
    cluster->query.fails_on_disconnect = count_sources(cluster) > 1;
    cluster->query.deadline = now + client->config.session.connect_timeout;
    hf_session_submit(&client->nodes[cluster->asked_node]->links[cluster->link], &cluster->query,
                      now);
}

/* ---- time ---- */

static hf_time next_tick(const hf_client *client, hf_link caller_link) {
    const hf_cluster *cluster = client->cluster;
    (void)caller_link;
    hf_time earliest = hf_session_next_tick(&cluster->parked);
    if (!is_in_progress(&cluster->query)) earliest = hf_time_min(earliest, cluster->ask_at);
    for (const hf_request *request = cluster->parked.queue; request; request = request->next) {
        if (!request->routing.needs_map) earliest = hf_time_min(earliest, request->retry_at);
    }
    return earliest;
}

static void tick(hf_client *client, hf_link caller_link, hf_time now) {
    hf_cluster *cluster = client->cluster;
    (void)caller_link;
    hf_session_tick(&cluster->parked, now);
    release_parked(cluster, now);
    if (now >= cluster->ask_at && !is_in_progress(&cluster->query)) ask(cluster, now);
}

/* ---- opening and closing ---- */

static bool open_cluster(hf_client *client) {
    hf_cluster *cluster = calloc(1, sizeof *cluster);
    if (!cluster) return false;
    cluster->client = client;
    cluster->ask_at = HF_NEVER;
    cluster->ids_match = true;
    cluster->doubtful_node = SIZE_MAX;
    hf_slots_init(&cluster->map);
    for (size_t slot = 0; slot < HF_SLOTS; slot++) cluster->node_of_slot[slot] = HF_SLOT_NO_NODE;
    hf_session_init(&cluster->parked, &client->config.session, &client->random);
    cluster->parked.state = HF_SESSION_OPENING; /* it never leaves this state */
    cluster->parked.opened_at = HF_NEVER;
    client->cluster = cluster;
    for (size_t i = 1; i < client->config.server_count; i++) {
        if (!hf_client_add_node(client, &client->config.servers[i])) return false;
    }
    return true;
}

static void close_cluster(hf_client *client) {
    hf_cluster *cluster = client->cluster;
    if (!cluster) return;
    hf_session_drop(&cluster->query);
    hf_request_clear(&cluster->query);
    hf_session_fail_all(&cluster->parked, HF_CLOSED, "the client was closed", 0);
    hf_session_free(&cluster->parked);
    hf_slots_free(&cluster->map);
}

/* Called after the nodes are freed: until then their sessions report failures to the cluster. */
static void free_cluster(hf_client *client) {
    free(client->cluster);
}

static size_t group_of(const hf_client *client, hf_slice key) {
    (void)client;
    return hf_slot_of(key);
}

const hf_topology hf_cluster_topology = {
    .has_server_list = true,
    .slots_can_move = true,
    .shares_login = true,
    .open = open_cluster,
    .close = close_cluster,
    .free = free_cluster,
    .set_callbacks = set_callbacks,
    .node_of = node_of_key,
    .group_of = group_of,
    .submit = submit,
    .invalidate = invalidate,
    .next_tick = next_tick,
    .tick = tick,
};
