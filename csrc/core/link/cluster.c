/* A client of a Redis Cluster: which node each command goes to, and how it follows a key that
 * moves.
 *
 * The client only needs the cluster's map: the node that serves each slot. It requests the map
 * before the first command is sent, and again after a MOVED, a lost node or CLUSTERDOWN, at most
 * ten times a second. If a node does not give a map, it asks the next one at once. A redirected
 * command has not been run; it is sent to the named node at once. Commands without a node wait
 * until their deadlines.
 *
 * A request that is not done is either in a session of its node or parked. `parked` is a session
 * that is never connected; it keeps a request until it is time to retry or, with needs_map, until a
 * map has been read. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/nodes.h"
#include "link/slots.h"

#define MAP_INTERVAL (100 * HF_MS)
#define ALL_DOWN_PAUSE (250 * HF_MS) /* the pause after all nodes failed to reply */
#define RETRY_PAUSE (20 * HF_MS)     /* the pause after a transient refusal */
#define NO_NODE_PAUSE (50 * HF_MS)   /* the pause when the map has no node for a slot */
#define MAX_REDIRECTS 5

struct hf_cluster {
    hf_client *client;
    hf_session parked;
    hf_slots read;            /* the last map, as the node sent it */
    uint16_t owner[HF_SLOTS]; /* indexes in client->nodes, or HF_SLOT_NO_NODE */
    bool known;               /* a map has been read */
    bool has_ids;             /* the ids that nodes report are those of the map */

    /* The number of the round of requests for the map. It grows with each map, and when all nodes
     * have failed. */
    uint64_t round;

    hf_request query;
    size_t asked;         /* the last node that was asked */
    size_t tried;         /* the number of nodes that failed in this round */
    size_t strangers;     /* how many of them are configured nodes that belong to another cluster */
    size_t doubted;       /* the first node in this round whose map is in doubt, or SIZE_MAX */
    bool accepts_doubted; /* all nodes were asked, so the doubtful map is accepted */
    hf_link link;         /* the link whose requests need the map */
    hf_time ask_at;       /* when to ask for the map; HF_NEVER while it is up to date */
    hf_time asked_at;     /* when a node was last asked, or 0 */
    hf_code trouble_code;
    char trouble[240]; /* the nodes that failed in this round, and why; may be truncated */
};

static void ask(hf_cluster *cluster, hf_time now);

static bool is_waiting(const hf_request *request) {
    return request->state == HF_REQUEST_QUEUED || request->state == HF_REQUEST_SENT;
}

/* ---- nodes ---- */

static hf_node *node_at(const hf_cluster *cluster, uint16_t index) {
    assert(index == HF_SLOT_NO_NODE || index < cluster->client->node_count);
    return index == HF_SLOT_NO_NODE ? NULL : cluster->client->nodes[index];
}

static hf_node *node_of(const hf_cluster *cluster, const hf_request *request) {
    return node_at(cluster, cluster->owner[request->routing.slot]);
}

static hf_address address_of(const hf_node *node) {
    hf_address address = {.port = node->server.port};
    memcpy(address.host, node->server.host, sizeof address.host);
    return address;
}

static bool is_at(const hf_node *node, const hf_address *address) {
    return node->server.port == address->port && strcmp(node->server.host, address->host) == 0;
}

static bool is_used(const hf_client *client, const hf_node *node) {
    if (node->may_have_keys || node->events_users > 0) return true;
    for (int link = 0; link < HF_LINKS; link++) {
        if (node->links[link].state != HF_SESSION_CLOSED || node->links[link].queue) return true;
    }
    for (const hf_op *op = client->ops; op; op = op->next) {
        if (op->node == node) return true;
    }
    return false;
}

/* Turns a node that is no longer used into the node of this server, because a client may run for
 * years while its cluster is rebuilt. Returns its index, or HF_SLOT_NO_NODE if all are used. */
static uint16_t reuse_node(hf_client *client, const hf_server *server) {
    for (size_t i = client->config.server_count; i < client->node_count; i++) {
        if (is_used(client, client->nodes[i])) continue;
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
    hf_node *node = node_at(client->cluster, client->cluster->owner[hf_slot_of(key)]);
    return node ? node : client->nodes[0];
}

/* ---- where requests wait ---- */

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

/* Sets the request's failure in case its deadline comes before the next attempt. */
static void set_failure(hf_request *request, hf_code code, const char *reason) {
    hf_fault_set(&request->failure, code, reason);
}

static void want_map(hf_cluster *cluster, hf_link link, hf_time now) {
    hf_time soonest = cluster->asked_at ? cluster->asked_at + MAP_INTERVAL : now;
    if (cluster->asked_at) soonest += hf_jitter(&cluster->client->random, MAP_INTERVAL / 2);
    cluster->link = link;
    cluster->ask_at = hf_time_min(cluster->ask_at, hf_time_max(now, soonest));
}

/* ---- the path of a request ---- */

static void send_to(hf_node *node, hf_request *request, hf_time now) {
    if (request->routing.context_is_op && !request->asking)
        node->client->decider->move(request->context, node, now);
    assert(request->routing.routed && request->routing.link < HF_LINKS);
    hf_session_adopt(&node->links[request->routing.link], request, now);
}

/* Returns whether to fail a request that must not wait for a connection: the map still names the
 * node whose link could not be opened. A log-in that was refused for a transient reason is tried
 * again, and so is a request that a server may have run. */
static bool is_hopeless(const hf_request *request, const hf_session *link) {
    return request->routing.failed_link == link && link->state == HF_SESSION_CLOSED &&
           !hf_refusal_is_transient(hf_refusal_of(link->reason), request->accepted) &&
           !request->waits_for_connection && request->sends == 0;
}

/* A cluster that prefers names reports "?" for a node without one. */
#define UNNAMED "the cluster gives \"?\" as the name of a node"

static void route(hf_cluster *cluster, hf_request *request, hf_time now) {
    hf_node *node = node_of(cluster, request);
    if (!cluster->known) {
        park_for_map(cluster, request, now);
        want_map(cluster, request->routing.link, now);
        return;
    }
    if (!node) {
        set_failure(request, HF_UNREACHABLE,
                    cluster->read.unnamed ? UNNAMED
                                          : "no node of the cluster serves the key's slot");
        park(cluster, request, now + NO_NODE_PAUSE);
        want_map(cluster, request->routing.link, now);
        return;
    }
    hf_session *link = &node->links[request->routing.link];
    if (is_hopeless(request, link)) {
        if (request->routing.context_is_op)
            node->client->decider->move(request->context, node, now);
        hf_request_fail(request, HF_UNREACHABLE, link->reason, now);
    } else {
        send_to(node, request, now);
    }
}

static bool has_waited_for_map(const hf_cluster *cluster, const hf_request *request) {
    return request->routing.needs_map && request->routing.map_round < cluster->round;
}

static bool is_due(const hf_request *request, hf_time now) {
    return request->retry_at <= now && !request->routing.needs_map;
}

/* Sends the parked requests whose map or time has come. Sending one may change the queue. */
static void release_parked(hf_cluster *cluster, hf_time now) {
    hf_request *request = cluster->parked.queue;
    while (request) {
        if (!has_waited_for_map(cluster, request) && !is_due(request, now)) {
            request = request->next;
            continue;
        }
        hf_session_drop(request);
        route(cluster, request, now);
        request = cluster->parked.queue;
    }
}

static hf_slice slot_key_of(hf_cluster *cluster, hf_slice key, char text[24]) {
    return key.size > 0 ? key : hf_decimal(text, hf_jitter(&cluster->client->random, HF_SLOTS));
}

static void submit(hf_client *client, hf_slice key, hf_link link, hf_request *request,
                   hf_time now) {
    hf_cluster *cluster = client->cluster;
    char text[24];
    bool context_is_op = request->routing.context_is_op;
    request->routing =
        (hf_routing){.routed = true, .context_is_op = context_is_op, .link = (uint8_t)link};
    request->routing.slot = hf_slot_of(slot_key_of(cluster, key, text));
    request->asking = false;
    request->sends = request->refusals = 0;
    request->failure.code = HF_OK;
    route(cluster, request, now);
}

/* ---- refusals ---- */

static void redirect(hf_cluster *cluster, hf_request *request, const hf_redirect *to, hf_time now) {
    bool moved = to->kind == HF_REDIRECT_MOVED;
    uint16_t index = to->to.port > 0 ? index_of(cluster, &to->to) : HF_SLOT_NO_NODE;
    if (moved) want_map(cluster, request->routing.link, now);
    if (moved && index != HF_SLOT_NO_NODE) {
        cluster->owner[to->slot] = index;
        cluster->client->nodes[index]->may_have_keys = true;
    }
    if (index == HF_SLOT_NO_NODE || ++request->routing.redirects > MAX_REDIRECTS) {
        set_failure(request, HF_UNREACHABLE,
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

/* Called after a transient refusal. The command was not run, and is sent again soon, to this node
 * or to the one that takes over. A refused log-in is retried only when the session reopens. Returns
 * false if the request's deadline comes first. */
static bool try_again(hf_cluster *cluster, hf_request *request, const char *error, hf_time now) {
    const hf_session *link = request->session;
    hf_time at = now + RETRY_PAUSE / 2 + hf_jitter(&cluster->client->random, RETRY_PAUSE);
    if (link->state == HF_SESSION_CLOSED) at = hf_time_max(at, link->retry_at);
    if (at >= request->deadline) return false;
    set_failure(request, hf_code_of_error(error), error);
    if (strncmp(error, "TRYAGAIN", 8) != 0) want_map(cluster, request->routing.link, now);
    park(cluster, request, at);
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
        want_map(cluster, request->routing.link, now);
        return true;
    }
    hf_address asked = address_of(node);
    hf_redirect to = hf_redirect_read(hf_slice_of(error), &asked);
    if (to.kind != HF_REDIRECT_NONE) {
        redirect(cluster, request, &to, now);
        return true;
    }
    bool away = hf_refusal_of(error) == HF_REFUSAL_UNAVAILABLE;
    bool at_login = request->session->state == HF_SESSION_CLOSED;
    return (away || at_login) && try_again(cluster, request, error, now);
}

static void invalidate(hf_node *node, hf_link link, hf_time now) {
    hf_cluster *cluster = node->client->cluster;
    if (cluster->known && node->may_have_keys) want_map(cluster, link, now);
}

static void on_calls_closed(void *context, hf_time now) {
    invalidate(context, HF_LINK_CALLS, now);
}

static void on_renewer_closed(void *context, hf_time now) {
    invalidate(context, HF_LINK_RENEWER, now);
}

static bool is_member(const void *context, const char *id) {
    const hf_node *node = context;
    return hf_slots_has_id(&node->client->cluster->read, id);
}

static void watch(hf_node *node) {
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

/* Finds the index of each node of the map. Marks each one as serving immediately, so that the next
 * new node does not reuse its index. */
static void find_indexes(hf_cluster *cluster, uint16_t *indexes) {
    for (size_t i = 0; i < cluster->read.count; i++) {
        indexes[i] = index_of(cluster, &cluster->read.nodes[i]);
        hf_node *node = node_at(cluster, indexes[i]);
        if (node) node->may_have_keys = true;
    }
}

static void read_indexes(hf_cluster *cluster) {
    uint16_t indexes[HF_SLOTS_MAX_NODES];
    hf_client *client = cluster->client;
    find_indexes(cluster, indexes);
    for (size_t i = 0; i < client->node_count; i++) client->nodes[i]->may_have_keys = false;
    for (size_t slot = 0; slot < HF_SLOTS; slot++) {
        uint16_t owner = cluster->read.owner[slot];
        assert(owner == HF_SLOT_NO_NODE || owner < cluster->read.count);
        cluster->owner[slot] = owner == HF_SLOT_NO_NODE ? owner : indexes[owner];
        hf_node *node = node_at(cluster, cluster->owner[slot]);
        if (node) node->may_have_keys = true;
    }
}

/* Decides whether nodes report the ids of the map. Some services reply to CLUSTER MYID with an id
 * that their maps do not contain. A node without slots does so, too, so it does not count once a
 * map is known. */
static void judge_ids(hf_cluster *cluster) {
    const char *giver = cluster->client->nodes[cluster->asked]->links[cluster->link].peer_id;
    bool listed = giver[0] && hf_slots_has_id(&cluster->read, giver);
    if (listed) cluster->has_ids = true;
    else if (giver[0] && !cluster->known) cluster->has_ids = false;
}

/* Gives each node the id that the map has for its address. A node that the map does not contain
 * keeps its id, because its address may now belong to another cluster. */
static void identify(hf_cluster *cluster) {
    judge_ids(cluster);
    if (!cluster->has_ids) return;
    for (size_t i = 0; i < cluster->client->node_count; i++) {
        hf_node *node = cluster->client->nodes[i];
        hf_address address = address_of(node);
        const char *id = hf_slots_id_at(&cluster->read, &address);
        if (!id || strcmp(id, node->id) == 0) continue;
        snprintf(node->id, sizeof node->id, "%s", id);
        for (int link = 0; link < HF_LINKS; link++) hf_session_identify(&node->links[link]);
    }
}

/* Sends requests that wait for a connection to a node to the node that now serves their slots. */
static void route_unsent(hf_cluster *cluster, hf_session *link, hf_time now) {
    hf_request *request = link->queue;
    while (request && link->state != HF_SESSION_READY) {
        hf_node *node = request->routing.routed ? node_of(cluster, request) : NULL;
        bool stays = !node || &node->links[request->routing.link] == link || request->asking;
        hf_request *next = request->next;
        if (!stays) {
            hf_session_drop(request);
            send_to(node, request, now);
            next = link->queue;
        }
        request = next;
    }
}

/* Moves each waiter to the node that now has its key, where it subscribes and asks for its queue
 * place. */
static void move_waiters(hf_cluster *cluster, hf_time now) {
    for (hf_op *op = cluster->client->ops; op; op = op->next) {
        if (op->done || !op->impl->wait || !op->impl->wait->is_waiting(op)) continue;
        hf_node *node = node_of(cluster, &op->request);
        if (node) node->client->decider->move(op, node, now);
    }
}

static void end_round(hf_cluster *cluster) {
    cluster->round++;
    cluster->doubted = SIZE_MAX;
    cluster->accepts_doubted = false;
    cluster->tried = cluster->strangers = 0;
    cluster->trouble[0] = '\0';
}

static void accept_map(hf_cluster *cluster, hf_time now) {
    read_indexes(cluster);
    identify(cluster); /* uses `known`, which is still that of the previous map */
    cluster->known = true;
    cluster->ask_at = HF_NEVER;
    end_round(cluster);
    for (size_t i = 0; i < cluster->client->node_count; i++) {
        route_unsent(cluster, &cluster->client->nodes[i]->links[HF_LINK_CALLS], now);
        route_unsent(cluster, &cluster->client->nodes[i]->links[HF_LINK_RENEWER], now);
    }
    release_parked(cluster, now);
    move_waiters(cluster, now);
}

/* Adds the node's failure to `trouble`. A refused log-in explains more than an unreachable node, so
 * its code takes precedence. */
static void note_trouble(hf_cluster *cluster, hf_code code, const char *reason) {
    size_t used = strlen(cluster->trouble);
    const char *label = cluster->client->nodes[cluster->asked]->server.label;
    int size = snprintf(cluster->trouble + used, sizeof cluster->trouble - used, "%s%s: %s",
                        used ? ", " : "", label, reason);
    if ((size_t)size >= sizeof cluster->trouble - used)
        memcpy(cluster->trouble + sizeof cluster->trouble - 4, "...", 4);
    if (used == 0 || code != HF_UNREACHABLE) cluster->trouble_code = code;
}

static bool wants_answer_now(const hf_request *request, hf_code code) {
    bool logs_in_again = request->accepted && code == HF_DENIED;
    return !request->waits_for_connection && request->sends == 0 && !logs_in_again;
}

static void fail_impatient(hf_cluster *cluster, const hf_failure *failure, hf_time now) {
    hf_request *request = cluster->parked.queue;
    while (request) {
        if (!wants_answer_now(request, failure->code) || !has_waited_for_map(cluster, request)) {
            request = request->next;
            continue;
        }
        hf_session_drop(request);
        hf_request_fail(request, failure->code, failure->text, now);
        request = cluster->parked.queue;
    }
}

static bool holds_something(const hf_client *client) {
    for (size_t i = 0; i < client->holds.count; i++) {
        if (hf_claim_is_held(client->holds.heap[i])) return true;
    }
    return false;
}

/* Called when no node has given a map. Forgets the cluster if it was recreated, or if the addresses
 * now belong to another one: others reply at more than half of the configured addresses. A client
 * that holds nothing then continues as a new client would. */
static void forget_cluster(hf_cluster *cluster) {
    hf_client *client = cluster->client;
    if (cluster->strangers * 2 <= client->config.server_count || holds_something(client)) return;
    hf_slots_forget_ids(&cluster->read);
    cluster->known = false;
    for (size_t i = 0; i < client->node_count; i++) client->nodes[i]->id[0] = '\0';
}

static void on_all_down(hf_cluster *cluster, hf_time now) {
    hf_failure failure = {.code = cluster->trouble_code};
    snprintf(failure.text, sizeof failure.text,
             "no cluster node could report which node serves the key (%s)", cluster->trouble);
    for (hf_request *request = cluster->parked.queue; request; request = request->next) {
        set_failure(request, failure.code, failure.text);
        report_delay(cluster, request, now);
    }
    forget_cluster(cluster);
    end_round(cluster);
    fail_impatient(cluster, &failure, now);
    if (cluster->parked.queue) cluster->ask_at = hf_time_min(cluster->ask_at, now + ALL_DOWN_PAUSE);
}

/* Returns whether the map is requested from this node: from the configured ones and those that
 * serve. */
static bool is_asked(const hf_client *client, size_t index) {
    return index < client->config.server_count || client->nodes[index]->may_have_keys;
}

static size_t count_asked(const hf_cluster *cluster) {
    size_t count = 0;
    for (size_t i = 0; i < cluster->client->node_count; i++) count += is_asked(cluster->client, i);
    return count;
}

static void on_no_map(hf_cluster *cluster, hf_code code, const char *reason, hf_time now) {
    const hf_node *node = cluster->client->nodes[cluster->asked];
    bool stranger = reason == HF_SLOTS_FOREIGN || node->links[cluster->link].stranger;
    if (stranger && cluster->asked < cluster->client->config.server_count) cluster->strangers++;
    note_trouble(cluster, code, reason);
    bool accepts_doubted = !cluster->accepts_doubted && cluster->doubted != SIZE_MAX;
    if (++cluster->tried < count_asked(cluster)) {
        ask(cluster, now);
    } else if (accepts_doubted) {
        cluster->accepts_doubted = true;
        ask(cluster, now);
    } else {
        on_all_down(cluster, now);
    }
}

static bool is_in_map(const hf_cluster *cluster, size_t index) {
    hf_address address = address_of(cluster->client->nodes[index]);
    return hf_slots_has_address(&cluster->read, &address);
}

/* A configured address may have come to belong to another cluster. A new client's first map that
 * names the asked address but no other configured one is therefore used only if there is no better
 * one. */
static bool is_doubted(const hf_cluster *cluster) {
    size_t count = cluster->client->config.server_count, configured_count = 0;
    bool last = cluster->doubted == SIZE_MAX && cluster->tried + 1 >= count_asked(cluster);
    if (cluster->known || cluster->accepts_doubted || last) return false;
    if (cluster->asked >= count || !is_in_map(cluster, cluster->asked)) return false;
    for (size_t i = 0; i < count; i++) configured_count += is_in_map(cluster, i);
    return configured_count == 1;
}

static void doubt(hf_cluster *cluster, hf_time now) {
    if (cluster->doubted == SIZE_MAX) cluster->doubted = cluster->asked;
    hf_slots_forget_ids(&cluster->read);
    on_no_map(cluster, HF_UNREACHABLE, "its cluster has none of the other configured addresses",
              now);
}

static const char *read_map(hf_cluster *cluster, const hf_reply *reply) {
    hf_address asked = address_of(cluster->client->nodes[cluster->asked]);
    const char *wrong = hf_slots_read(&cluster->read, reply, &asked);
    if (wrong) return wrong;
    if (cluster->read.count > 0) return NULL;
    return cluster->read.unnamed ? UNNAMED : HF_SLOTS_NONE;
}

static void on_map(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_cluster *cluster = request->context;
    const char *wrong = reply ? read_map(cluster, reply) : NULL;
    if (!reply) on_no_map(cluster, request->failure.code, hf_fault_text(&request->failure), now);
    else if (wrong == HF_SLOTS_FOREIGN) on_no_map(cluster, HF_UNREACHABLE, wrong, now);
    else if (wrong) on_no_map(cluster, HF_SERVER, wrong, now);
    else if (is_doubted(cluster)) doubt(cluster, now);
    else accept_map(cluster, now);
}

/* Returns the node to ask. The first one in a round is preferably a connected one, else one that
 * has not failed since it last served. After a failure, it is the next one in turn. */
static size_t choose_node(const hf_cluster *cluster) {
    const hf_client *client = cluster->client;
    size_t first = cluster->asked_at ? cluster->asked + 1 : 0, next = SIZE_MAX, sound = SIZE_MAX;
    if (cluster->accepts_doubted) return cluster->doubted;
    for (size_t i = 0; i < client->node_count; i++) {
        size_t at = (first + i) % client->node_count;
        const hf_session *calls = &client->nodes[at]->links[HF_LINK_CALLS];
        bool connected = calls->state == HF_SESSION_READY && !calls->closing;
        if (!is_asked(client, at)) continue;
        if (next == SIZE_MAX) next = at;
        if (sound == SIZE_MAX && !calls->reason[0]) sound = at;
        if (connected && cluster->tried == 0) return at;
    }
    return cluster->tried == 0 && sound != SIZE_MAX ? sound : next;
}

static bool encode(hf_cluster *cluster) {
    hf_slice slots[] = {{"CLUSTER", 7}, {"SLOTS", 5}};
    return cluster->query.bytes || hf_request_command(&cluster->query, 2, slots);
}

static void ask(hf_cluster *cluster, hf_time now) {
    const hf_client *client = cluster->client;
    cluster->asked = choose_node(cluster);
    assert(cluster->asked < cluster->client->node_count);
    cluster->asked_at = now;
    cluster->ask_at = HF_NEVER;
    if (!encode(cluster)) {
        cluster->ask_at = now + ALL_DOWN_PAUSE;
        return;
    }
    cluster->query.done = on_map;
    cluster->query.context = cluster;
    cluster->query.asks_elsewhere = count_asked(cluster) > 1;
    cluster->query.deadline = now + client->config.session.connect_timeout;
    hf_session_submit(&client->nodes[cluster->asked]->links[cluster->link], &cluster->query, now);
}

/* ---- time ---- */

static hf_time deadline(const hf_client *client, hf_link thread) {
    const hf_cluster *cluster = client->cluster;
    (void)thread;
    hf_time soonest = hf_session_deadline(&cluster->parked);
    if (!is_waiting(&cluster->query)) soonest = hf_time_min(soonest, cluster->ask_at);
    for (const hf_request *request = cluster->parked.queue; request; request = request->next) {
        if (!request->routing.needs_map) soonest = hf_time_min(soonest, request->retry_at);
    }
    return soonest;
}

static void tick(hf_client *client, hf_link thread, hf_time now) {
    hf_cluster *cluster = client->cluster;
    (void)thread;
    hf_session_tick(&cluster->parked, now);
    release_parked(cluster, now);
    if (now >= cluster->ask_at && !is_waiting(&cluster->query)) ask(cluster, now);
}

/* ---- beginning and ending ---- */

static bool open(hf_client *client) {
    hf_cluster *cluster = calloc(1, sizeof *cluster);
    if (!cluster) return false;
    cluster->client = client;
    cluster->ask_at = HF_NEVER;
    cluster->has_ids = true;
    cluster->doubted = SIZE_MAX;
    hf_slots_init(&cluster->read);
    for (size_t slot = 0; slot < HF_SLOTS; slot++) cluster->owner[slot] = HF_SLOT_NO_NODE;
    hf_session_init(&cluster->parked, &client->config.session, &client->random);
    cluster->parked.state = HF_SESSION_OPENING; /* it never leaves this state */
    cluster->parked.opened_at = HF_NEVER;
    client->cluster = cluster;
    for (size_t i = 1; i < client->config.server_count; i++) {
        if (!hf_client_add_node(client, &client->config.servers[i])) return false;
    }
    return true;
}

static void end(hf_client *client) {
    hf_cluster *cluster = client->cluster;
    if (!cluster) return;
    hf_session_drop(&cluster->query);
    hf_request_clear(&cluster->query);
    hf_session_fail_all(&cluster->parked, HF_CLOSED, "the client was closed", 0);
    hf_session_free(&cluster->parked);
    hf_slots_free(&cluster->read);
}

/* Called after the nodes are freed: their sessions report failures to the cluster until then. */
static void free_cluster(hf_client *client) {
    free(client->cluster);
}

static size_t group_of(const hf_client *client, hf_slice key) {
    (void)client;
    return hf_slot_of(key);
}

const hf_topology hf_cluster_topology = {
    .has_server_list = true,
    .moves_slots = true,
    .shares_login = true,
    .open = open,
    .close = end,
    .free = free_cluster,
    .watch = watch,
    .node_of = node_of_key,
    .group_of = group_of,
    .submit = submit,
    .invalidate = invalidate,
    .deadline = deadline,
    .tick = tick,
};
