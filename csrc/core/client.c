#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_internal.h"
#include "cluster.h"
#include "quorum.h"
#include "sentinel.h"

#define LINGER (500 * HF_MS)
#define PING_AFTER (5 * HF_SECOND)

static void on_events_ready(void *context, hf_time now);
static void on_events_closed(void *context, hf_time now);
static void on_event(void *context, const hf_reply *event, hf_time now);
static void give_up(hf_op *op, hf_code code, const char *reason, hf_time now);

static void init_node(hf_node *node, hf_client *client, const hf_server *server) {
    *node = (hf_node){.client = client, .server = *server, .ping_at = HF_NEVER};
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session_init(&node->links[link], &client->config.session, &client->random);
        node->links[link].server = &node->server;
        node->links[link].context = node;
    }
    hf_session *events = &node->links[HF_LINK_EVENTS];
    events->subscriber = true;
    events->on_ready = on_events_ready;
    events->on_closed = on_events_closed;
    events->on_event = on_event;
    if (client->cluster) hf_cluster_watch(node);
}

static bool open_shards(hf_client *client) {
    const hf_client_config *config = &client->config;
    if (!hf_ring_make(&client->ring, config->shards, config->server_count)) return false;
    for (size_t i = 1; i < config->server_count; i++) {
        if (!hf_client_add_node(client, &config->servers[i])) return false;
    }
    return true;
}

static bool open_quorum(hf_client *client) {
    snprintf(client->first.server.label, sizeof client->first.server.label, "a quorum of %zu servers",
             client->config.server_count);
    return hf_quorum_open(client);
}

bool hf_client_init(hf_client *client, const hf_client_config *config, const unsigned char entropy[24]) {
    *client = (hf_client){.config = *config};
    memcpy(&client->random, entropy + 16, sizeof client->random);
    client->random |= 1;
    hf_uuid_format(client->uuid, entropy);
    snprintf(client->grants, sizeof client->grants, "holdfast_grant:%s", client->uuid);
    client->ops_end = &client->ops;
    bool listed = config->mode == HF_MODE_SHARDS || config->mode == HF_MODE_CLUSTER;
    init_node(&client->first, client, listed ? config->servers : &config->session.server);
    client->only[0] = &client->first;
    client->nodes = client->only;
    client->node_count = 1;
    switch (config->mode) {
    case HF_MODE_SENTINEL: return hf_sentinels_begin(client);
    case HF_MODE_QUORUM: return open_quorum(client);
    case HF_MODE_SHARDS: return open_shards(client);
    case HF_MODE_CLUSTER: return hf_cluster_open(client);
    default: return true;
    }
}

hf_node *hf_client_add_node(hf_client *client, const hf_server *server) {
    bool alone = client->nodes == client->only;
    if (client->node_count == HF_NODES_MAX) return NULL;
    hf_node **grown = realloc(alone ? NULL : client->nodes, (client->node_count + 1) * sizeof *grown);
    if (!grown) return NULL;
    if (alone) grown[0] = &client->first;
    client->nodes = grown;
    hf_node *node = malloc(sizeof *node);
    if (!node) return NULL;
    init_node(node, client, server);
    client->nodes[client->node_count++] = node;
    return node;
}

hf_node *hf_client_node(const hf_client *client, hf_slice key) {
    if (client->cluster) return hf_cluster_node(client->cluster, key);
    if (client->ring.count > 0) return client->nodes[hf_ring_find(&client->ring, key)];
    return client->nodes[0];
}

size_t hf_client_place(const hf_client *client, hf_slice key) {
    if (client->cluster) return hf_slot_of(key);
    return client->ring.count > 0 ? hf_ring_find(&client->ring, key) : 0;
}

void hf_client_submit(hf_client *client, hf_slice key, hf_link link, hf_request *request, hf_time now) {
    if (client->cluster) hf_cluster_submit(client->cluster, key, link, request, now);
    else hf_session_submit(&hf_client_node(client, key)->links[link], request, now);
}

bool hf_client_is_sharded(const hf_client *client) {
    return client->cluster && hf_cluster_is_sharded(client->cluster);
}

size_t hf_client_link_count(const hf_client *client) {
    if (client->quorum) return client->quorum->count * HF_LINKS;
    return client->node_count * HF_LINKS;
}

hf_session *hf_client_link(const hf_client *client, size_t index) {
    size_t server = index / HF_LINKS;
    hf_node *node = client->quorum ? &client->quorum->members[server]->first : client->nodes[server];
    return &node->links[index % HF_LINKS];
}

/* The keeper's tasks free themselves when their request fails. */
static void free_node(hf_node *node) {
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session_fail_all(&node->links[link], HF_CLOSED, "the client was closed", 0);
        hf_session_free(&node->links[link]);
    }
}

void hf_client_free(hf_client *client) {
    if (client->cluster) hf_cluster_close(client->cluster);
    hf_sentinels_end(client);
    for (size_t i = 0; i < client->node_count; i++) free_node(client->nodes[i]);
    for (size_t i = 1; i < client->node_count; i++) free(client->nodes[i]);
    if (client->nodes != client->only) free(client->nodes);
    hf_quorum_free(client);
    free(client->cluster);
    hf_ring_free(&client->ring);
    hf_holds_free(&client->holds);
}

/* ---- the events link ---- */

static bool waits_at(const hf_node *node, const hf_op *op) {
    return op->node == node && op->spec.kind == HF_OP_ACQUIRE && op->events && !op->done;
}

static bool same_releases(const hf_op *a, const hf_op *b) {
    return hf_slice_equal(a->spec.names->releases, b->spec.names->releases);
}

static void say_pattern(hf_node *node, const char *command, const hf_names *names) {
    hf_slice pattern;
    if (!node->subscribed || !hf_names_pattern(names, &pattern)) return;
    hf_slice args[] = {hf_slice_of(command), pattern};
    hf_session_say(&node->links[HF_LINK_EVENTS], 2, args); /* unsaid: the next look comes by the clock */
    free((char *)(uintptr_t)pattern.data);
}

static hf_op *other_foreign_listener(const hf_op *op) {
    for (hf_op *other = op->client->ops; other; other = other->next) {
        if (other != op && waits_at(op->node, other) && other->foreign && same_releases(other, op)) return other;
    }
    return NULL;
}

static void stop_listening_foreign(hf_op *op) {
    if (op->foreign && !other_foreign_listener(op)) say_pattern(op->node, "PUNSUBSCRIBE", op->spec.names);
    op->foreign = false;
}

void hf_client_listen(hf_op *op, bool listen, hf_time now) {
    hf_node *node = op->node;
    if (op->events == listen) return;
    if (!listen) stop_listening_foreign(op);
    op->events = listen;
    node->waiting += listen ? 1u : (size_t)-1;
    hf_session *events = &node->links[HF_LINK_EVENTS];
    if (listen) {
        events->wanted = true;
    } else if (node->waiting == 0) {
        bool again = op->done && op->failure.code == HF_OK && !op->client->closed;
        node->linger_until = HF_DEFECT(NO_LOGOUT) ? HF_NEVER : again ? now + LINGER : now;
        events->wanted = again;
    }
}

void hf_op_move(hf_op *op, hf_node *node, hf_time now) {
    bool listens = op->events;
    if (op->node == node) return;
    hf_client_listen(op, false, now);
    op->node = node;
    hf_client_listen(op, listens, now);
    if (listens && node->subscribed) hf_acquire_on_subscribed(op, now);
}

void hf_client_listen_foreign(hf_op *op, hf_time now) {
    if (op->foreign || hf_client_is_sharded(op->client)) return;
    bool heard = other_foreign_listener(op) != NULL;
    op->foreign = true;
    if (!heard) {
        say_pattern(op->node, "PSUBSCRIBE", op->spec.names);
    } else {
        hf_acquire_on_nudge(op, now);
    }
}

static void on_events_ready(void *context, hf_time now) {
    hf_node *node = context;
    node->ping_at = now + PING_AFTER;
    hf_slice args[] = {{"SUBSCRIBE", 9}, hf_slice_of(node->client->grants)};
    if (!hf_session_say(&node->links[HF_LINK_EVENTS], 2, args)) node->links[HF_LINK_EVENTS].closing = true;
}

static void on_events_closed(void *context, hf_time now) {
    hf_node *node = context;
    hf_session *events = &node->links[HF_LINK_EVENTS];
    node->subscribed = false;
    node->ping_at = HF_NEVER;
    if (node->client->cluster && node->waiting > 0) hf_cluster_doubt(node, HF_LINK_CALLS, now);
    if (events->reason_code != HF_DENIED) return;
    for (hf_op *op = node->client->ops, *next; op; op = next) {
        next = op->next;
        if (waits_at(node, op)) hf_acquire_on_denied(op, HF_DENIED, events->reason, now);
    }
}

/* Our channel is confirmed: from here on no grant is missed, so everybody looks once. */
static void on_subscribed(hf_node *node, hf_time now) {
    node->subscribed = true;
    node->ping_at = now + PING_AFTER;
    for (hf_op *op = node->client->ops; op; op = op->next) {
        if (!waits_at(node, op)) continue;
        if (op->foreign) say_pattern(node, "PSUBSCRIBE", op->spec.names);
        hf_acquire_on_subscribed(op, now);
    }
}

static void on_pattern_subscribed(hf_node *node, hf_slice pattern, hf_time now) {
    for (hf_op *op = node->client->ops; op; op = op->next) {
        hf_slice own;
        if (!waits_at(node, op) || !op->foreign || !hf_names_pattern(op->spec.names, &own)) continue;
        bool same = hf_slice_equal(own, pattern);
        free((char *)(uintptr_t)own.data);
        if (same) hf_acquire_on_nudge(op, now);
    }
}

static void on_foreign_release(hf_node *node, hf_slice channel, hf_time now) {
    for (hf_op *op = node->client->ops; op; op = op->next) {
        if (waits_at(node, op) && op->foreign && hf_slice_equal(op->spec.names->releases, channel)) {
            hf_acquire_on_nudge(op, now);
        }
    }
}

/* A cluster's nodes pass messages on to each other: one may be heard at another node than the waiter's. */
static hf_op *waiter_of(const hf_client *client, uint64_t wait) {
    for (hf_op *op = client->ops; op; op = op->next) {
        if (waits_at(op->node, op) && op->wait == wait) return op;
    }
    return NULL;
}

static bool next_number(const char **at, uint64_t *value) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    *value = strtoull(*at, &end, 10);
    if (*end == ' ') end++;
    *at = end;
    return true;
}

/* No other process has the name of this client's coroutines. */
static bool is_own_owner(const hf_client *client, hf_slice owner) {
    return owner.size > HF_UUID_SIZE && memcmp(owner.data, client->uuid, HF_UUID_SIZE) == 0 &&
           owner.data[HF_UUID_SIZE] == ':';
}

/* A grant for a wait that has ended here: the keeper passes the lock on. Not that of a shared owner, which another
 * process may have by now: there it was passed on with the waiter's place, or ends with the grant lease. What is heard
 * at another node than the key's has been heard there. */
static void on_stray_grant(hf_node *node, hf_layout layout, hf_slice rest, uint64_t owner_size, uint64_t wait,
                           hf_time now) {
    hf_client *client = node->client;
    if (owner_size == 0 || owner_size > HF_OWNER_MAX || owner_size >= rest.size) return;
    hf_slice owner = {rest.data, (size_t)owner_size}, key = {rest.data + owner_size, rest.size - (size_t)owner_size};
    if (hf_client_node(client, key) != node) return;
    hf_hold *known = hf_holds_find(&client->holds, layout, key, owner);
    if (!known && layout == HF_LAYOUT_LOCK) known = hf_holds_find(&client->holds, HF_LAYOUT_GUARD, key, owner);
    if (known && known->state == HF_HOLD_RELEASING) known->wait = wait; /* the release may have led to it: left after */
    bool lost = known && known->state == HF_HOLD_LOST && !known->shared && !HF_DEFECT(STRAY_KEPT);
    if (known && !lost) return; /* being left, or acquired, which adopts it */
    if (!known && !is_own_owner(client, owner)) return;
    if (known) hf_holds_remove(&client->holds, known);
    hf_hold *hold = hf_holds_add(&client->holds, layout, key, owner);
    if (!hold) return;
    hold->wait = wait;
    hf_keeper_leave(client, hold, now);
}

/* "grant <wait> <token> <ms> <layout> <owner size> <owner><key>", "turn <wait> <ms>" or "look <wait>" */
static void on_message(hf_node *node, hf_slice text, hf_time now) {
    uint64_t wait, number, ms, mutex, owner_size;
    const char *at = text.data;
    if (strncmp(at, "grant ", 6) == 0) {
        at += 6;
        if (!next_number(&at, &wait) || !next_number(&at, &number) || !next_number(&at, &ms)) return;
        if (!next_number(&at, &mutex) || !next_number(&at, &owner_size)) return;
        hf_op *op = waiter_of(node->client, wait);
        hf_slice rest = {at, text.size - (size_t)(at - text.data)};
        if (op) hf_acquire_on_grant(op, number, hf_time_min(ms, HF_NEVER / HF_MS) * HF_MS, now);
        else on_stray_grant(node, mutex ? HF_LAYOUT_MUTEX : HF_LAYOUT_LOCK, rest, owner_size, wait, now);
    } else if (strncmp(at, "turn ", 5) == 0) {
        at += 5;
        if (!next_number(&at, &wait) || !next_number(&at, &number)) return;
        hf_op *op = waiter_of(node->client, wait);
        if (op) hf_acquire_on_turn(op, hf_time_min(number * HF_MS, HF_SECOND), now);
    } else if (strncmp(at, "look ", 5) == 0) {
        at += 5;
        hf_op *op = next_number(&at, &wait) ? waiter_of(node->client, wait) : NULL;
        if (op) hf_acquire_on_nudge(op, now);
    }
}

static void on_refused(hf_node *node, const char *error, hf_time now) {
    if (node->subscribed) return; /* a pattern: releases of others are then noticed by the clock */
    for (hf_op *op = node->client->ops, *next; op; op = next) {
        next = op->next;
        if (waits_at(node, op)) hf_acquire_on_denied(op, hf_code_of_error(error), error, now);
    }
}

static void on_event(void *context, const hf_reply *event, hf_time now) {
    hf_node *node = context;
    node->ping_at = now + PING_AFTER;
    if (event->type == HF_REPLY_ERROR) {
        on_refused(node, event->string, now);
        return;
    }
    hf_slice kind = hf_reply_string_at(event, 0);
    if (hf_slice_equal(kind, hf_slice_of("message"))) on_message(node, hf_reply_string_at(event, 2), now);
    else if (hf_slice_equal(kind, hf_slice_of("pmessage"))) on_foreign_release(node, hf_reply_string_at(event, 2), now);
    else if (hf_slice_equal(kind, hf_slice_of("subscribe"))) on_subscribed(node, now);
    else if (hf_slice_equal(kind, hf_slice_of("psubscribe")))
        on_pattern_subscribed(node, hf_reply_string_at(event, 1), now);
}

/* A server that has gone without a word leaves the link open for ever: it is asked, and given up when it stays silent.
 */
static void tick_events(hf_node *node, hf_time now) {
    hf_session *events = &node->links[HF_LINK_EVENTS];
    hf_time timeout = events->config->command_timeout;
    if (node->waiting == 0 && now >= node->linger_until) events->wanted = false;
    if (now < node->ping_at) return;
    if (now >= events->heard_at + PING_AFTER + timeout) {
        events->closing = true;
        snprintf(events->reason, sizeof events->reason, "no sign of life");
        events->reason_code = HF_UNREACHABLE;
        node->ping_at = HF_NEVER;
        return;
    }
    hf_slice ping[] = {{"PING", 4}};
    hf_session_say(events, 1, ping);
    node->ping_at = now + timeout;
}

/* ---- time ---- */

static hf_time events_deadline(const hf_node *node) {
    const hf_session *events = &node->links[HF_LINK_EVENTS];
    hf_time soonest = hf_session_deadline(events);
    if (events->state == HF_SESSION_CLOSED) return soonest;
    if (node->waiting == 0) soonest = hf_time_min(soonest, node->linger_until);
    return hf_time_min(soonest, node->ping_at);
}

hf_time hf_client_calls_deadline(const hf_client *client) {
    if (client->quorum) return hf_quorum_calls_deadline(client->quorum);
    hf_time soonest = hf_sentinels_deadline(client);
    if (client->cluster) soonest = hf_cluster_deadline(client->cluster);
    for (size_t i = 0; i < client->node_count; i++) {
        const hf_node *node = client->nodes[i];
        soonest = hf_time_min(soonest, hf_session_deadline(&node->links[HF_LINK_CALLS]));
        soonest = hf_time_min(soonest, events_deadline(node));
    }
    return soonest;
}

hf_time hf_client_keeper_deadline(const hf_client *client) {
    const hf_hold *first = hf_holds_first(&client->holds);
    hf_time soonest = first ? first->wake_at : HF_NEVER;
    if (client->quorum) return hf_time_min(soonest, hf_quorum_keeper_deadline(client->quorum));
    if (client->cluster) soonest = hf_time_min(soonest, hf_cluster_deadline(client->cluster));
    for (size_t i = 0; i < client->node_count; i++)
        soonest = hf_time_min(soonest, hf_session_deadline(&client->nodes[i]->links[HF_LINK_KEEPER]));
    return soonest;
}

hf_time hf_client_deadline(const hf_client *client) {
    hf_time soonest = hf_time_min(hf_client_calls_deadline(client), hf_client_keeper_deadline(client));
    for (const hf_op *op = client->ops; op; op = op->next) soonest = hf_time_min(soonest, hf_op_deadline(op));
    return soonest;
}

/* A call that waits for one hold after the other may find each in use again. */
static void tick_op(hf_op *op, hf_time now) {
    if (op->done) return;
    if (op->client->quorum) hf_ballot_tick(op, now);
    else if (op->spec.kind == HF_OP_ACQUIRE) hf_acquire_tick(op, now);
    else if (now >= hf_op_deadline(op))
        give_up(op, HF_UNREACHABLE, "an earlier command for this key got no reply", now);
}

void hf_client_tick_calls(hf_client *client, hf_time now) {
    if (client->quorum) hf_quorum_tick_calls(client, now);
    if (client->cluster) hf_cluster_tick(client->cluster, now);
    for (size_t i = 0; i < client->node_count && !client->quorum; i++) {
        hf_session_tick(&client->nodes[i]->links[HF_LINK_CALLS], now);
        hf_session_tick(&client->nodes[i]->links[HF_LINK_EVENTS], now);
        tick_events(client->nodes[i], now);
    }
    for (hf_op *op = client->ops; op; op = op->next) tick_op(op, now);
    hf_sentinels_tick(client, now);
}

void hf_client_tick_keeper(hf_client *client, hf_time now) {
    if (client->quorum) {
        hf_quorum_tick_keeper(client, now);
        return;
    }
    if (client->cluster) hf_cluster_tick(client->cluster, now);
    for (size_t i = 0; i < client->node_count; i++) hf_session_tick(&client->nodes[i]->links[HF_LINK_KEEPER], now);
    hf_keeper_tick(client, now);
}

void hf_client_tick(hf_client *client, hf_time now) {
    hf_client_tick_calls(client, now);
    hf_client_tick_keeper(client, now);
}

/* ---- holds ---- */

void hf_client_lose(hf_client *client, hf_hold *hold, hf_lost_reason reason) {
    client->stats.losses++;
    hf_holds_lose(&client->holds, hold, reason);
}

hf_lost_reason hf_lost_reason_of(long long reply) {
    return reply == -1 ? HF_LOST_DELETED : HF_LOST_TAKEN;
}

hf_lost_reason hf_lost_reason_at_end(const hf_hold *hold) {
    bool tried = hold->at_risk || hold->busy;
    return hold->renewed && tried ? HF_LOST_UNREACHABLE : HF_LOST_EXPIRED;
}

void hf_client_look_at(hf_client *client, hf_hold *hold, hf_time now) {
    if (client->quorum) hf_quorum_look_at(client, hold, now);
    else if (hold->state == HF_HOLD_HELD && !hf_hold_is_valid(hold, now))
        hf_client_lose(client, hold, hf_lost_reason_at_end(hold));
}

void hf_client_notice(hf_client *client, hf_time now) {
    if (client->quorum) {
        hf_quorum_notice(client, now);
        return;
    }
    for (hf_hold *hold; (hold = hf_holds_first_ended(&client->holds, now));) {
        hf_client_lose(client, hold, hf_lost_reason_at_end(hold));
    }
}

void hf_client_keep(hf_client *client, hf_hold *hold, hf_time sent_at) {
    if (client->config.sync.replicas > 0) { /* no replica has confirmed it */
        hf_keeper_resume(client, hold, sent_at);
        return;
    }
    hold->valid_until = hf_time_max(hold->valid_until, hf_lease_end(sent_at, hold->lease));
    hf_holds_wake_at(&client->holds, hold, hold->renewed ? hf_lease_renew_at(sent_at, hold->lease) : hold->valid_until);
}

static bool is_several(const hf_op *op) {
    return op->spec.kind == HF_OP_ACQUIRE_ALL || op->spec.kind == HF_OP_RELEASE_ALL;
}

void hf_client_hold_is_free(hf_client *client, hf_hold *hold, hf_time now) {
    hold->busy = false;
    for (hf_op *op = client->ops, *next; op && !hold->busy; op = next) {
        next = op->next;
        if (op->done || !op->blocked || op->hold != hold) continue;
        op->blocked = false;
        if (client->quorum) hf_ballot_unblock(op, now);
        else if (op->spec.kind == HF_OP_ACQUIRE) hf_acquire_unblock(op, now);
        else if (is_several(op)) hf_several_begin(op, now);
        else hf_call_unblock(op, now);
    }
    if (hold->in_table && hold->state == HF_HOLD_LEAVING && !hold->busy) hf_holds_wake_at(&client->holds, hold, now);
}

static hf_op *reentry_under_way(const hf_client *client, const hf_hold *hold) {
    for (hf_op *op = client->ops; op; op = op->next) {
        bool enters = op->spec.kind == HF_OP_ACQUIRE && op->hold == hold && !op->blocked;
        if (enters && op->state != HF_ACQUIRE_DONE) return op;
    }
    return NULL;
}

void hf_client_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now) {
    if (!hold->in_table) return;
    if (client->quorum) {
        hf_quorum_abandon(client, hold, count, now);
        return;
    }
    if (hold->state == HF_HOLD_LOST) {
        hf_keeper_leave_lost(client, hold, now);
        return;
    }
    if (hold->state != HF_HOLD_HELD) return;
    hf_op *reentry = hold->busy ? reentry_under_way(client, hold) : NULL;
    if (reentry) {
        reentry->dropped += count;
        return;
    }
    if (hold->count - hold->base > count) {
        hold->count -= count; /* the server learns it with the next release */
        if (hold->shared) hold->owed += count;
        return;
    }
    hf_keeper_leave(client, hold, now);
}

static void give_up(hf_op *op, hf_code code, const char *reason, hf_time now) {
    if (op->done) return;
    if (op->client->quorum) hf_ballot_give_up(op, now);
    else if (op->spec.kind == HF_OP_ACQUIRE) hf_acquire_give_up(op, now);
    else if (is_several(op)) hf_several_give_up(op, now);
    else hf_call_give_up(op, now);
    hf_op_fail(op, code, "%s", reason);
}

/* Like hf_keeper_leave, for all of them at once: the heap is sorted afterwards. */
static void leave_at_close(hf_client *client, hf_hold *hold, hf_time now) {
    hold->in_table = false;
    if (hold->state != HF_HOLD_LOST || hf_keeper_may_stand(hold)) hf_keeper_leave(client, hold, now);
    hold->in_table = true;
}

void hf_client_close(hf_client *client, hf_time now) {
    client->closed = true;
    for (hf_op *op = client->ops; op; op = op->next) give_up(op, HF_CLOSED, "the client was closed", now);
    if (client->quorum) {
        hf_quorum_close(client, now);
        return;
    }
    for (size_t i = 0; i < client->holds.count; i++) leave_at_close(client, client->holds.heap[i], now);
    hf_holds_resort(&client->holds);
}

bool hf_client_is_quiet(const hf_client *client) {
    if (client->quorum) return hf_quorum_is_quiet(client->quorum);
    for (size_t i = 0; i < client->holds.count; i++) {
        if (client->holds.heap[i]->state == HF_HOLD_LEAVING) return false;
    }
    return true;
}

size_t hf_waiter_format(char *text, size_t size, const hf_client *client, uint64_t wait, uint64_t token_ttl_ms,
                        hf_slice owner) {
    int head =
        snprintf(text, size, "%s:%llu:%llu ", client->uuid, (unsigned long long)wait, (unsigned long long)token_ttl_ms);
    memcpy(text + head, owner.data, owner.size);
    return (size_t)head + owner.size;
}

uint64_t hf_client_asked(const hf_client *client) {
    uint64_t asked = client->asked;
    for (size_t i = 0; client->quorum && i < client->quorum->count; i++) asked += client->quorum->members[i]->asked;
    return asked;
}

hf_stats hf_client_stats(const hf_client *client) {
    hf_stats stats = client->stats;
    for (size_t i = 0; client->quorum && i < client->quorum->count; i++) {
        const hf_stats *member = &client->quorum->members[i]->stats;
        stats.renewals += member->renewals;
        stats.renew_batches += member->renew_batches;
        stats.late_renewals += member->late_renewals;
        stats.undone += member->undone;
    }
    return stats;
}

/* ---- operations ---- */

static const char *const VERBS[] = {
    [HF_OP_ACQUIRE] = "acquire",       [HF_OP_RELEASE] = "release",          [HF_OP_COMPLETE] = "complete",
    [HF_OP_EXTEND] = "extend",         [HF_OP_ACQUIRE_ALL] = "acquire",      [HF_OP_RELEASE_ALL] = "release",
    [HF_OP_CHECK] = "check",           [HF_OP_FORCE] = "force-release",      [HF_OP_INFO] = "read",
    [HF_OP_TTL] = "read the TTL of",   [HF_OP_RAISE] = "raise the token of", [HF_OP_PING] = "ping",
    [HF_OP_COMMAND] = "run a command",
};

void hf_op_succeed(hf_op *op) {
    op->done = true;
    op->failure.code = HF_OK;
}

/* Of several keys the first; empty: none. */
static hf_slice key_of(const hf_op *op) {
    const hf_names *names = op->spec.names ? op->spec.names : is_several(op) ? op->spec.all[0] : NULL;
    return names ? names->key : HF_NO_WAITER;
}

/* The key that says where it goes; empty: anywhere. */
static hf_slice place_key_of(const hf_op *op) {
    bool keyed = op->spec.kind == HF_OP_COMMAND && op->spec.arg_count > 1;
    return keyed ? op->spec.args[1] : key_of(op);
}

static hf_node *first_node_of(const hf_op *op) {
    const hf_client *client = op->client;
    if (op->spec.node > 0) return client->nodes[(op->spec.node - 1) % client->node_count];
    return hf_client_node(client, place_key_of(op));
}

/* Names in several slots cannot be used in one program. */
static bool is_in_pieces(const hf_op *op) {
    return op->client->cluster && op->spec.names && !hf_slot_is_one(op->spec.names);
}

void hf_op_fail(hf_op *op, hf_code code, const char *detail, ...) {
    char text[HF_FAILURE_TEXT];
    va_list args;
    va_start(args, detail);
    vsnprintf(text, sizeof text, detail, args);
    va_end(args);
    hf_failure_set(&op->failure, code, VERBS[op->spec.kind], key_of(op), op->node->server.label, "%s", text);
    op->done = true;
}

bool hf_client_sync(const hf_client *client, hf_request *request) {
    const hf_sync *sync = &client->config.sync;
    return sync->replicas == 0 || hf_request_confirm(request, sync->replicas, sync->timeout);
}

void hf_op_fail_unconfirmed(hf_op *op) {
    const hf_request *request = &op->request;
    const hf_sync *sync = &op->client->config.sync;
    if (request->failure.text[0]) {
        bool denied = hf_code_of_error(request->failure.text) == HF_DENIED;
        hf_op_fail(op, denied ? HF_DENIED : HF_NO_QUORUM, "WAIT for replicas: %s", request->failure.text);
        return;
    }
    hf_op_fail(op, HF_NO_QUORUM, "%u of %u replicas confirmed within %g s; check that the replicas run and follow",
               (unsigned)request->confirmed, (unsigned)sync->replicas, (double)sync->timeout / (double)HF_SECOND);
}

void hf_op_send(hf_op *op, hf_request_done *done, hf_time deadline, bool patient, hf_time now) {
    op->request.done = done;
    op->request.context = op;
    op->request.deadline = deadline;
    op->request.patient = patient;
    hf_cluster *cluster = op->spec.node > 0 ? NULL : op->client->cluster;
    op->request.routing.of_op = true;
    if (cluster) hf_cluster_submit(cluster, place_key_of(op), HF_LINK_CALLS, &op->request, now);
    else hf_session_submit(&op->node->links[HF_LINK_CALLS], &op->request, now);
}

hf_op *hf_client_begin(hf_client *client, const hf_op_spec *spec, hf_time now) {
    hf_op *op = calloc(1, sizeof *op);
    if (!op) return NULL;
    op->client = client;
    op->spec = *spec;
    op->node = first_node_of(op);
    op->begun_at = now;
    op->number = ++client->last_op;
    *client->ops_end = op;
    client->ops_end = &op->next;
    if (client->closed) hf_op_fail(op, HF_CLOSED, "the client was closed");
    else if (is_in_pieces(op))
        hf_op_fail(op, HF_CONFLICT, "its braces are no hash tag, so its lock would be in several slots of the cluster");
    else if (client->quorum) hf_ballot_begin(op, now);
    else if (spec->kind == HF_OP_ACQUIRE) hf_acquire_begin(op, now);
    else if (is_several(op)) hf_several_begin(op, now);
    else hf_call_begin(op, now);
    return op;
}

void hf_op_give_up(hf_op *op, hf_time now) {
    give_up(op, HF_INTERRUPTED, "the operation was given up", now);
}

void hf_op_end(hf_op *op, hf_time now) {
    hf_client *client = op->client;
    hf_op_give_up(op, now);
    hf_ballot_end(op, now);
    hf_client_listen(op, false, now);
    hf_session_drop(&op->request);
    hf_op **at = &client->ops;
    while (*at != op) at = &(*at)->next;
    *at = op->next;
    if (client->ops_end == &op->next) client->ops_end = at;
    if (op->hold) hf_hold_unref(op->hold);
    hf_several_end(op);
    hf_request_clear(&op->request);
    hf_reply_free(op->reply);
    free(op->waiter);
    free(op->record);
    free(op);
}
