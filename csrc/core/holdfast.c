/* The functions of holdfast.h that need no file of their own. Most only read the structs of
 * clients, links, operations and holds. */
#include "holdfast.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "interfaces.h"

/* ---- locks ---- */

/* In the name of a lock's channel, Redisson puts the key in braces even if the key already contains
 * some. In a cluster such a channel would be in another slot, so it is not used there. */
hf_names *hf_client_names(const hf_client *client, const hf_kind *kind, hf_slice key) {
    hf_names *names = hf_names_new(kind, key);
    if (names && kind->wraps_key && !client->topology->slots_can_move)
        hf_names_brace_release_channel(names, kind);
    return names;
}

/* ---- holds ---- */

hf_hold_view hf_view_of(const hf_hold *hold) {
    hf_claim *claim = hold->claim;
    return (hf_hold_view){.state = hold->state,
                          .reason = hold->reason,
                          .held = hf_hold_is_held(hold),
                          .over = !hf_hold_in_table(hold) || hf_hold_is_lost(hold),
                          .in_table = hf_hold_in_table(hold),
                          .detached = hold->detached,
                          .ending = hold->detached && claim->has_command_in_flight,
                          .renewed = claim->renewed,
                          .valid_until = claim->valid_until,
                          .count = claim->count,
                          .token = hold->token};
}

hf_hold *hf_client_find(const hf_client *client, const hf_kind *kind, const hf_names *names,
                        hf_slice caller) {
    return hf_holds_find(&client->holds, kind, names->key, caller);
}

bool hf_client_has_hold_like(const hf_client *client, const hf_hold *hold) {
    return hf_holds_find(&client->holds, hold->claim->kind, hf_hold_key(hold),
                         hf_hold_caller(hold));
}

/* ---- clients ---- */

hf_client *hf_client_new(const hf_client_config *config, const unsigned char entropy[24]) {
    hf_client *client = malloc(sizeof *client);
    if (!client || hf_client_init(client, config, entropy)) return client;
    hf_client_delete(client);
    return NULL;
}

void hf_client_delete(hf_client *client) {
    if (client) hf_client_free(client);
    free(client);
}

bool hf_client_start_over(hf_client *client, const unsigned char entropy[24]) {
    static const unsigned char none[24] = {0};
    const hf_client_config config = client->config;
    const hf_observer previous = client->observer;
    bool closed = client->closed;
    bool created = hf_client_init(client, &config, entropy ? entropy : none) && entropy;
    hf_observe_carry_over(client, &previous);
    client->closed = closed || !created;
    return created;
}

const char *hf_client_uuid(const hf_client *client) {
    return client->uuid;
}

const char *hf_client_tenant(const hf_client *client) {
    return client->config.tenant;
}

const char *hf_client_label(const hf_client *client) {
    return client->first.server.label;
}

uint64_t hf_client_approval_requests(const hf_client *client) {
    return client->approval_requests;
}

uint64_t hf_client_loss_count(const hf_client *client) {
    return client->holds.losses;
}

hf_traffic hf_client_traffic(const hf_client *client) {
    hf_traffic traffic = {0};
    for (size_t i = 0; i < hf_client_link_count(client); i++) {
        const hf_session *link = hf_client_link(client, i);
        bool stays_open = i % HF_LINKS != HF_LINK_EVENTS;
        traffic.connections += link->opens;
        traffic.replies += link->reply_count;
        traffic.reconnects += stays_open && link->opens > 0 ? link->opens - 1 : 0;
    }
    return traffic;
}

hf_load hf_client_load(const hf_client *client) {
    hf_load load = {.holds = client->holds.count, .has_work = !hf_client_is_quiet(client)};
    for (const hf_op *op = client->ops; op; op = op->next) load.operations += !op->done;
    for (size_t i = 0; i < client->holds.count; i++) {
        const hf_claim *claim = client->holds.heap[i];
        bool lost = claim->hold && hf_hold_is_lost(claim->hold);
        load.held += !hf_claim_is_leaving(claim) && !lost;
        load.renewed += claim->renewed && hf_claim_is_held(claim);
    }
    return load;
}

bool hf_client_has_kept_locks(const hf_client *client) {
    return client->kept.count > 0;
}

bool hf_client_uses_every_server(const hf_client *client) {
    return client->decider->keys_on_every_server;
}

size_t hf_client_node_of_lock(const hf_client *client, hf_slice key) {
    return client->topology->routes_by_key ? hf_client_group(client, key) + 1 : 0;
}

/* ---- links ---- */

size_t hf_client_node_count(const hf_client *client) {
    return hf_client_link_count(client) / HF_LINKS;
}

bool hf_client_node_may_have_keys(const hf_client *client, size_t index) {
    if (index >= client->node_count) return true; /* a member's node */
    return client->nodes[index]->may_have_keys;
}

const hf_session *hf_client_link_of_key(const hf_client *client, hf_slice key, size_t index) {
    if (!client->decider->keys_on_every_server)
        return index == 0 ? &hf_client_node(client, key)->links[HF_LINK_CALLS] : NULL;
    size_t link = index * HF_LINKS + HF_LINK_CALLS;
    return link < hf_client_link_count(client) ? hf_client_link(client, link) : NULL;
}

const char *hf_session_run_id(const hf_session *session) {
    return hf_session_is_ready(session) ? session->run_id : "";
}

const hf_server *hf_session_server(const hf_session *session) {
    return session->server;
}

bool hf_session_must_close(const hf_session *session) {
    return session->closing;
}

bool hf_session_awaits_reply(const hf_session *session) {
    return session->first_reply != session->next_reply;
}

bool hf_session_is_ready(const hf_session *session) {
    return session->state == HF_SESSION_READY;
}

hf_time hf_session_received_at(const hf_session *session) {
    return session->received_at;
}

/* ---- operations ---- */

const char *hf_op_kind_verb(hf_op_kind kind) {
    return hf_op_impls[kind]->verb;
}

bool hf_op_kind_acquires(hf_op_kind kind) {
    return hf_op_impls[kind]->acquires;
}

bool hf_op_kind_releases(hf_op_kind kind) {
    return hf_op_impls[kind]->releases;
}

bool hf_op_kind_may_need_clean_up(hf_op_kind kind) {
    return hf_op_impls[kind]->settles_later;
}

bool hf_op_kind_needs_a_hold(hf_op_kind kind) {
    return hf_op_impls[kind]->needs_hold;
}

bool hf_op_kind_supports(hf_op_kind kind, const hf_kind *lock_kind) {
    const hf_op_impl *impl = hf_op_impls[kind];
    if (impl->settles_later && !lock_kind->has_call_notes) return false;
    if ((impl->acquires || impl->needs_hold) && !impl->settles_later && lock_kind->has_call_notes)
        return false;
    hf_verb verb = hf_op_rows[kind].verb;
    return verb == HF_VERB_NONE || hf_kind_program(lock_kind, verb);
}

uint64_t hf_op_ticket(const hf_op *op) {
    return op->spec.ticket > 0 ? op->spec.ticket : op->number;
}

hf_time hf_op_wait_end(const hf_op *op) {
    return op->wait.until;
}

hf_time hf_op_begun_at(const hf_op *op) {
    return op->begun_at;
}

bool hf_op_is_done(const hf_op *op) {
    return op->done;
}

bool hf_op_is_blocked(const hf_op *op) {
    return op->blocked;
}

bool hf_op_awaits_reply(const hf_op *op) {
    return !op->done && (!hf_op_impl_of(op)->wait || op->state == HF_ACQUIRE_ASKING);
}

hf_code hf_op_code(const hf_op *op) {
    return op->failure.code;
}

void hf_op_take_result(hf_op *op, hf_result *result) {
    assert(op->done || op->detached);
    op->result.taken = true;
    result->failure.code = op->failure.code;
    if (op->failure.code != HF_OK)
        snprintf(result->failure.text, sizeof result->failure.text, "%s",
                 hf_fault_text(&op->failure));
    if (op->result.info) result->info = *op->result.info;
    result->value = op->result.value;
    result->reply = op->result.reply;
    result->record = op->result.record;
    result->record_size = op->result.record_size;
    op->result.reply = NULL;
    op->result.record = NULL;
}

size_t hf_op_hold_count(const hf_op *op) {
    if (op->spec.batch) return op->batch.holds ? op->spec.batch_count : 0;
    return op->hold ? 1 : 0;
}

hf_hold *hf_op_hold(const hf_op *op, size_t index) {
    assert(index < hf_op_hold_count(op));
    return op->spec.batch ? op->batch.holds[index] : op->hold;
}

/* Returns the first unreported operation from `op` on, or NULL. A detached operation no longer has
 * a caller; its former caller may reuse the ticket for another operation. */
static hf_op *find_unreported(hf_op *op) {
    while (op && (!op->done || op->reported || op->detached)) op = op->next;
    return op;
}

hf_op *hf_client_next_done(hf_client *client, const hf_op *after) {
    hf_op *op = find_unreported(after ? after->next : client->ops);
    if (op) op->reported = true;
    return op;
}

bool hf_client_has_next_done(const hf_client *client) {
    return find_unreported(client->ops) != NULL;
}

bool hf_op_is_detached(const hf_op *op) {
    return op->detached;
}

bool hf_client_has_detached(const hf_client *client) {
    return client->detached > 0;
}

/* ---- counters and events ---- */

const hf_class *hf_observe_class_at(const hf_client *client, size_t index) {
    assert(index < HF_CLASSES_MAX);
    return client->observer.classes[index];
}

void hf_observe_all(hf_client *client) {
    client->observer.wants_all = true;
}
