/* A client's creation, ticks and end. Operations, deciders and topologies have their own files. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "link/nodes.h"
#include "op/events.h"
#include "op/holding.h"
#include "op/kept.h"
#include "op/operation.h"
#include "op/presence.h"

bool hf_client_init(hf_client *client, const hf_client_config *config,
                    const unsigned char entropy[24]) {
    assert(config->mode < HF_MODES);
    *client = (hf_client){.config = *config,
                          .topology = hf_topologies[config->mode],
                          .decider = hf_deciders[config->mode],
                          .prepare_node = hf_events_prepare};
    if (config->sync.replicas > 0) client->config.session.confirm_timeout = config->sync.timeout;
    memcpy(&client->random, entropy + 16, sizeof client->random);
    client->random |= 1;
    hf_uuid_format(client->uuid, entropy);
    snprintf(client->grants, sizeof client->grants, "%s%s", hf_prefix.grant, client->uuid);
    client->ops_end = &client->ops;
    hf_nodes_begin(client,
                   client->topology->has_server_list ? config->servers : &config->session.server);
    return client->decider->open(client);
}

void hf_client_free(hf_client *client) {
    assert(!client->ops);
    if (client->topology->close) client->topology->close(client);
    hf_nodes_free(client);
    if (client->topology->free) client->topology->free(client);
    if (client->decider->free) client->decider->free(client);
    hf_holds_free(&client->holds);
    hf_number_table_free(&client->waits);
    hf_ended_waits_free(&client->ended);
    hf_kept_free(client);
    hf_observe_free(client);
}

void hf_client_close(hf_client *client, hf_time now) {
    client->closed = true;
    for (hf_op *op = client->ops; op; op = op->next)
        hf_op_stop(op, HF_CLOSED, "the client was closed", now);
    for (size_t i = 0; i < hf_client_link_count(client); i++)
        hf_session_prepare_close(hf_client_link(client, i));
    hf_presence_close(client, now);
    for (size_t i = 0; i < hf_client_link_count(client); i++)
        hf_session_flush_piggybacked(hf_client_link(client, i), now);
    client->decider->close(client, now);
    hf_client_end_detached(client, now);
}

bool hf_client_is_quiet(const hf_client *client) {
    return client->presence.goodbyes == 0 && client->decider->is_quiet(client);
}

size_t hf_client_link_count(const hf_client *client) {
    return client->decider->link_count(client);
}

hf_session *hf_client_link(const hf_client *client, size_t index) {
    return client->decider->link(client, index);
}

/* ---- time ---- */

hf_time hf_client_calls_next_tick(const hf_client *client) {
    if (client->holds.due) return 0;
    return client->decider->calls_next_tick(client);
}

hf_time hf_client_renewer_next_tick(const hf_client *client) {
    return hf_time_min(hf_presence_next_tick(client), client->decider->renewer_next_tick(client));
}

hf_time hf_client_next_tick(const hf_client *client) {
    hf_time earliest =
        hf_time_min(hf_client_calls_next_tick(client), hf_client_renewer_next_tick(client));
    for (const hf_op *op = client->ops; op; op = op->next)
        earliest = hf_time_min(earliest, hf_op_next_tick(op));
    return earliest;
}

void hf_client_tick_calls(hf_client *client, hf_time now) {
    client->decider->tick_calls(client, now);
    for (hf_op *op = client->ops; op; op = op->next) {
        if (!op->done) hf_op_tick(op, now);
    }
    hf_kept_tick(client, now);
    hf_client_end_detached(client, now);
    hf_holds_check(&client->holds, now);
}

void hf_client_tick_renewer(hf_client *client, hf_time now) {
    hf_presence_tick(client, now);
    client->decider->tick_renewer(client, now);
    hf_holds_check(&client->holds, now);
}

void hf_client_tick(hf_client *client, hf_time now) {
    hf_client_tick_calls(client, now);
    hf_client_tick_renewer(client, now);
}

/* ---- holds ---- */

void hf_client_detect_losses(hf_client *client, hf_time now) {
    client->decider->detect_losses(client, now);
}

void hf_client_approve(hf_client *client, hf_hold *hold, hf_time now) {
    client->decider->approve(client, hold, now);
}

void hf_client_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now) {
    client->decider->set_renewed(client, hold, renewed, now);
}

void hf_client_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now) {
    uint32_t released = count < hold->strays ? count : hold->strays;
    hold->strays -= released;
    bool all_released = released > 0 && released == count;
    if (hf_hold_in_table(hold) && !all_released)
        client->decider->abandon(client, hold, count - released, now);
}

hf_stats hf_client_stats(const hf_client *client) {
    hf_stats stats = client->stats;
    if (client->decider->add_stats) client->decider->add_stats(client, &stats);
    return stats;
}
