/* The decider of a client without a quorum: the server that has the lock's key decides. */
#include <assert.h>

#include "link/nodes.h"
#include "op/events.h"
#include "op/holding.h"
#include "op/leave.h"
#include "op/observe.h"
#include "op/renew.h"

static bool open_topology(hf_client *client) {
    return !client->topology->open || client->topology->open(client);
}

static size_t link_count(const hf_client *client) {
    return client->node_count * HF_LINKS;
}

static hf_session *link_at(const hf_client *client, size_t index) {
    assert(index / HF_LINKS < client->node_count);
    return &client->nodes[index / HF_LINKS]->links[index % HF_LINKS];
}

/* ---- time ---- */

static hf_time topology_next_tick(const hf_client *client, hf_link caller_link) {
    return client->topology->next_tick ? client->topology->next_tick(client, caller_link)
                                       : HF_NEVER;
}

static hf_time calls_next_tick(const hf_client *client) {
    hf_time earliest = topology_next_tick(client, HF_LINK_CALLS);
    for (size_t i = 0; i < client->node_count; i++) {
        const hf_node *node = client->nodes[i];
        earliest = hf_time_min(earliest, hf_session_next_tick(&node->links[HF_LINK_CALLS]));
        earliest = hf_time_min(earliest, hf_events_next_tick(node));
    }
    return earliest;
}

static hf_time renewer_next_tick(const hf_client *client) {
    const hf_claim *first = hf_holds_first(&client->holds);
    hf_time earliest =
        hf_time_min(first ? first->wake_at : HF_NEVER, topology_next_tick(client, HF_LINK_RENEWER));
    for (size_t i = 0; i < client->node_count; i++)
        earliest =
            hf_time_min(earliest, hf_session_next_tick(&client->nodes[i]->links[HF_LINK_RENEWER]));
    return earliest;
}

static void tick_topology(hf_client *client, hf_link caller_link, hf_time now) {
    if (client->topology->tick) client->topology->tick(client, caller_link, now);
}

static void tick_calls(hf_client *client, hf_time now) {
    tick_topology(client, HF_LINK_CALLS, now);
    for (size_t i = 0; i < client->node_count; i++) {
        hf_session_tick(&client->nodes[i]->links[HF_LINK_CALLS], now);
        hf_session_tick(&client->nodes[i]->links[HF_LINK_EVENTS], now);
        hf_events_tick(client->nodes[i], now);
        hf_node_report_silence(client->nodes[i], now);
    }
}

static void tick_renewer(hf_client *client, hf_time now) {
    tick_topology(client, HF_LINK_RENEWER, now);
    for (size_t i = 0; i < client->node_count; i++)
        hf_session_tick(&client->nodes[i]->links[HF_LINK_RENEWER], now);
    hf_renewer_tick(client, now);
}

/* ---- holds ---- */

static void refresh(hf_client *client, hf_hold *hold, hf_time now) {
    if (hf_hold_is_held(hold) && !hf_hold_is_valid(hold, now))
        hf_renewer_on_lost(client, hold, hf_lost_reason_at_end(hold->claim), now);
}

static void lose_ended(hf_client *client, hf_time now) {
    for (hf_claim *claim; (claim = hf_holds_first_expired(&client->holds, now));)
        hf_renewer_on_claim_lost(client, claim, hf_lost_reason_at_end(claim), now);
}

static void clean_up_all(hf_client *client, hf_time now) {
    for (size_t i = 0; i < client->holds.count; i++)
        hf_renewer_clean_up_at_close(client, client->holds.heap[i], now);
    hf_holds_resort(&client->holds);
}

static bool is_quiet(const hf_client *client) {
    for (size_t i = 0; i < client->holds.count; i++) {
        if (hf_claim_is_leaving(client->holds.heap[i])) return false;
    }
    return client->unanswered == 0;
}

static hf_client *client_at(hf_client *client, size_t index) {
    return index == 0 ? client : NULL;
}

const hf_decider hf_single_decider = {
    .open = open_topology,
    .close = clean_up_all,
    .link_count = link_count,
    .link = link_at,
    .calls_next_tick = calls_next_tick,
    .renewer_next_tick = renewer_next_tick,
    .tick_calls = tick_calls,
    .tick_renewer = tick_renewer,
    .is_quiet = is_quiet,
    .refresh = refresh,
    .detect_losses = lose_ended,
    .approve = hf_renewer_approve,
    .set_renewed = hf_renewer_set_renewed,
    .abandon = hf_renewer_abandon,
    .on_link = hf_observe_link,
    .on_reply = hf_observe_reply,
    .on_delay = hf_observe_delay,
    .move = hf_op_move,
    .client_at = client_at,
};
