#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_internal.h"
#include "cluster.h"
#include "quorum.h"
#include "sentinel.h"

static void init_node(hf_node *node, hf_client *client, const hf_server *server) {
    *node = (hf_node){.client = client, .server = *server, .ping_at = HF_NEVER};
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session_init(&node->links[link], &client->config.session, &client->random);
        node->links[link].server = &node->server;
        node->links[link].context = node;
    }
    hf_events_open(node);
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

/* ---- time ---- */

hf_time hf_client_calls_deadline(const hf_client *client) {
    if (client->quorum) return hf_quorum_calls_deadline(client->quorum);
    hf_time soonest = hf_sentinels_deadline(client);
    if (client->cluster) soonest = hf_cluster_deadline(client->cluster);
    for (size_t i = 0; i < client->node_count; i++) {
        const hf_node *node = client->nodes[i];
        soonest = hf_time_min(soonest, hf_session_deadline(&node->links[HF_LINK_CALLS]));
        soonest = hf_time_min(soonest, hf_events_deadline(node));
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
        hf_op_stop(op, HF_UNREACHABLE, "an earlier command for this key got no reply", now);
}

void hf_client_tick_calls(hf_client *client, hf_time now) {
    if (client->quorum) hf_quorum_tick_calls(client, now);
    if (client->cluster) hf_cluster_tick(client->cluster, now);
    for (size_t i = 0; i < client->node_count && !client->quorum; i++) {
        hf_session_tick(&client->nodes[i]->links[HF_LINK_CALLS], now);
        hf_session_tick(&client->nodes[i]->links[HF_LINK_EVENTS], now);
        hf_events_tick(client->nodes[i], now);
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

void hf_client_hold_is_free(hf_client *client, hf_hold *hold, hf_time now) {
    hold->busy = false;
    for (hf_op *op = client->ops, *next; op && !hold->busy; op = next) {
        next = op->next;
        if (op->done || !op->blocked || op->hold != hold) continue;
        op->blocked = false;
        if (client->quorum) hf_ballot_unblock(op, now);
        else if (op->spec.kind == HF_OP_ACQUIRE) hf_acquire_unblock(op, now);
        else if (hf_op_is_several(op)) hf_several_begin(op, now);
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

/* Like hf_keeper_leave, for all of them at once: the heap is sorted afterwards. */
static void leave_at_close(hf_client *client, hf_hold *hold, hf_time now) {
    hold->in_table = false;
    if (hold->state != HF_HOLD_LOST || hf_keeper_may_stand(hold)) hf_keeper_leave(client, hold, now);
    hold->in_table = true;
}

void hf_client_close(hf_client *client, hf_time now) {
    client->closed = true;
    for (hf_op *op = client->ops; op; op = op->next) hf_op_stop(op, HF_CLOSED, "the client was closed", now);
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
