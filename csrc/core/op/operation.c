#include "op/operation.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/slots.h"
#include "lock/kind.h"
#include "op/crash.h"
#include "op/deadlock.h"
#include "op/events.h"
#include "op/observe.h"
#include "op/presence.h"

#define TO(state) (1 << HF_ACQUIRE_##state)

/* The transitions between the states of an acquire, which may end in any of them. An operation that
 * polls is only ever BEGUN, ASKING or WAITING; one on several locks remains BEGUN. */
static const int next_states[HF_ACQUIRE_STATES] = {
    [HF_ACQUIRE_BEGUN] = TO(QUEUED_LOCALLY) | TO(BLOCKED) | TO(ASKING),
    /* It waits for a lock that the client keeps, or for its turn to ask the server (kept.h). */
    [HF_ACQUIRE_QUEUED_LOCALLY] = TO(BLOCKED) | TO(ASKING),
    /* It waits for earlier commands or calls that concern its hold, one after the other. */
    [HF_ACQUIRE_BLOCKED] = TO(QUEUED_LOCALLY) | TO(BLOCKED) | TO(ASKING),
    /* It asks again at once if another process of its owner has changed the count. */
    [HF_ACQUIRE_ASKING] =
        TO(ASKING) | TO(AWAITING_RELEASE) | TO(SUBSCRIBING) | TO(WAITING) | TO(CANCELLING),
    /* The reply was busy. It waits for an earlier release by its own client. */
    [HF_ACQUIRE_AWAITING_RELEASE] = TO(AWAITING_RELEASE) | TO(ASKING),
    /* The reply was busy. It cannot queue before the client is subscribed to its channel. */
    [HF_ACQUIRE_SUBSCRIBING] = TO(ASKING) | TO(CANCELLING),
    /* A grant ends it. It asks again to check a grant, after a message, or at a recheck. */
    [HF_ACQUIRE_WAITING] = TO(ASKING) | TO(CANCELLING),
    /* The wait is over, and the server is removing it from the queue. */
    [HF_ACQUIRE_CANCELLING] = 0,
};

void hf_op_become(hf_op *op, hf_acquire_state state) {
    assert(!op->done && state < HF_ACQUIRE_STATES && next_states[op->state] & 1 << state);
    (void)next_states;
    op->state = state;
}

void hf_op_succeed(hf_op *op) {
    assert(!op->done);
    op->done = true;
    op->failure.code = HF_OK;
}

static hf_slice key_of(const hf_op *op) {
    const hf_names *names = hf_op_names(op);
    return names ? names->key : HF_NO_TEXT;
}

/* Returns the key that determines the operation's node; empty if any node will do. */
static hf_slice routing_key_of(const hf_op *op) {
    return op->spec.arg_count > 1 && !op->spec.names ? op->spec.args[1] : key_of(op);
}

static hf_node *first_node_of(const hf_op *op) {
    const hf_client *client = op->client;
    if (op->spec.node == 0) return hf_client_node(client, routing_key_of(op));
    size_t nodes = client->decider->link_count(client) / HF_LINKS;
    return client->decider->link(client, (op->spec.node - 1) % nodes * HF_LINKS)->context;
}

/* A command to one particular node bypasses the decider, even one that implements all operations,
 * such as the majority of a quorum. */
static const hf_op_impl *impl_of(const hf_client *client, const hf_op_spec *spec) {
    return client->decider->op_impl && spec->node == 0 ? client->decider->op_impl
                                                       : hf_op_impls[spec->kind];
}

/* Returns whether the lock's names are in several slots, so that no program can use them all. */
static bool spans_slots(const hf_op *op) {
    return op->client->topology->slots_can_move && op->spec.names &&
           !hf_names_share_slot(op->spec.names);
}

/* Returns whether another key would have the same names on the server. Locks of a kind with
 * refuses_braced_key would then take each other's permits or places in the queue. */
static bool has_colliding_names(const hf_op *op) {
    const hf_kind *kind = op->spec.lock_kind;
    return kind && kind->refuses_braced_key && op->spec.names &&
           hf_names_collide_with_unbraced(op->spec.names->key);
}

void hf_op_fail(hf_op *op, hf_code code, const char *detail, ...) {
    assert(code != HF_OK);
    char text[HF_FAILURE_TEXT_SIZE];
    va_list args;
    va_start(args, detail);
    vsnprintf(text, sizeof text, detail, args);
    va_end(args);
    hf_failure failure = {.code = HF_OK};
    hf_failure_set(&failure, code, hf_op_impls[op->spec.kind]->verb, key_of(op),
                   op->node->server.label, "%s", text);
    hf_fault_set(&op->failure, code, failure.text);
    op->done = true;
}

void hf_op_fail_with_request(hf_op *op, const hf_request *request) {
    hf_op_fail(op, request->failure.code, "%s", hf_fault_text(&request->failure));
}

void hf_op_fail_in_doubt(hf_op *op, const hf_request *request) {
    hf_op_fail(op, request->failure.code, "%s%s", hf_fault_text(&request->failure),
               request->possible_runs > 0 ? HF_MAY_HAVE_TAKEN_EFFECT : "");
}

void hf_op_end_by_reply(hf_op *op, const hf_request *request, const hf_reply *reply) {
    op->result.reply = hf_reply_copy(reply);
    if (!op->result.reply) hf_op_fail_out_of_memory(op);
    else if (!hf_request_is_confirmed(request)) hf_op_fail_unconfirmed(op);
    else hf_op_succeed(op);
}

void hf_op_fail_out_of_memory(hf_op *op) {
    hf_op_fail(op, HF_NO_MEMORY, "out of memory");
}

void hf_op_fail_for_other_kind(hf_op *op, const char *found) {
    hf_op_fail(op, HF_CONFLICT,
               "%s already uses the key, and different kinds of lock cannot share a key", found);
}

void hf_op_fail_unconfirmed(hf_op *op) {
    const hf_request *request = &op->request;
    const hf_sync *sync = &op->client->config.sync;
    const char *refused = hf_fault_text(&request->failure);
    if (refused[0]) {
        bool denied = hf_code_of_error(refused) == HF_DENIED;
        hf_op_fail(op, denied ? HF_DENIED : HF_NO_QUORUM, "WAIT for replicas failed: %s", refused);
        return;
    }
    char seconds[32];
    hf_seconds_text(seconds, sync->timeout, 6);
    size_t size = strlen(seconds);
    while (seconds[size - 1] == '0') size--;
    if (seconds[size - 1] == '.') size--;
    hf_op_fail(op, HF_NO_QUORUM, "%u of %u replicas confirmed the write within %.*s s",
               (unsigned)request->confirmed, (unsigned)sync->replicas, (int)size, seconds);
}

void hf_op_send(hf_op *op, hf_request_done *done, hf_time deadline, bool waits_for_connection,
                hf_time now) {
    assert(!op->done && !op->blocked && op->request.bytes);
    op->request.done = done;
    op->request.context = op;
    op->request.deadline = deadline;
    op->request.waits_for_connection = waits_for_connection;
    op->request.routing.context_is_op = true;
    if (op->spec.node > 0) hf_session_submit(&op->node->links[HF_LINK_CALLS], &op->request, now);
    else hf_client_submit(op->client, routing_key_of(op), HF_LINK_CALLS, &op->request, now);
}

static hf_time command_deadline(const hf_op *op) {
    hf_time timeout = op->client->config.session.command_timeout, within = op->spec.time_limit;
    return op->begun_at + (within > 0 ? hf_time_min(within, timeout) : timeout);
}

void hf_op_run(hf_op *op, bool encoded, hf_request_done *done, hf_time now) {
    if (encoded) hf_op_send(op, done, command_deadline(op), false, now);
    else hf_op_fail_out_of_memory(op);
}

void hf_op_run_program(hf_op *op, const hf_program *program, hf_request_done *done, hf_time now) {
    const hf_op_spec *spec = &op->spec;
    bool encoded =
        hf_request_call(&op->request, program, (size_t)spec->value, spec->arg_count, spec->args) &&
        hf_client_sync(op->client, &op->request);
    hf_op_run(op, encoded, done, now);
}

void hf_op_on_reply(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (reply) op->impl->on_reply(op, reply, now);
    else hf_op_fail_with_request(op, request);
}

void hf_op_limit_request(hf_op *op, hf_time until) {
    op->request.deadline = hf_time_min(op->request.deadline, until);
    op->request.resend_until = hf_time_min(op->request.resend_until, until);
}

hf_wire_lock hf_op_wire_lock(const hf_op *op, hf_slice owner) {
    return (hf_wire_lock){op->spec.lock_kind, op->spec.names, owner,
                          op->client->config.grant_lease};
}

hf_time hf_op_max_until(const hf_op *op, hf_time since) {
    return op->spec.max_hold > 0 ? hf_time_add(since, op->spec.max_hold) : HF_NEVER;
}

hf_slice hf_op_owner(const hf_op *op, char text[HF_OWNER_SIZE]) {
    return (hf_slice){text, hf_wire_owner(text, op->spec.lock_kind, op->client->uuid, op->number)};
}

/* There may be thousands of waiters, each with an operation. Up to this size, glibc allocates
 * without a search. */
_Static_assert(sizeof(hf_op) <= 1032, "an operation must be small");

hf_op *hf_client_begin(hf_client *client, const hf_op_spec *spec, hf_time now) {
    hf_op *op = malloc(sizeof *op);
    if (!op) return NULL;
    assert(spec->batch_count <= HF_BATCH_MAX);
    assert(!spec->names || (spec->lock_kind && spec->batch_count == 0));
    /* The row must say that the call's number is a lease. Without a lease the hold would end at
     * once. */
    assert(!hf_op_impls[spec->kind]->sets_lease ||
           hf_op_rows[spec->kind].number == HF_NUMBER_LEASE);
    *op = (hf_op){.client = client, .spec = *spec, .begun_at = now, .number = ++client->last_op};
    if (hf_op_impls[spec->kind]->local_only) op->spec.node = 1;
    if (spec->max_hold > 0) op->spec.lease = hf_time_min(spec->lease, spec->max_hold);
    op->impl = impl_of(client, &op->spec);
    op->node = first_node_of(op);
    op->link = client->ops_end;
    assert(!*op->link);
    *op->link = op;
    client->ops_end = &op->next;
    hf_presence_on_begin(client, now);
    if (client->closed) hf_op_fail(op, HF_CLOSED, "the client was closed");
    else if (spans_slots(op))
        hf_op_fail(op, HF_CONFLICT,
                   "the key's braces do not form a hash tag, so the lock would span several slots "
                   "of the cluster");
    else if (has_colliding_names(op))
        hf_op_fail(op, HF_CONFLICT,
                   "this key cannot be used, because it would clash on the server with the same "
                   "key without its braces");
    else op->impl->begin(op, now);
    return op;
}

void hf_op_stop(hf_op *op, hf_code code, const char *reason, hf_time now) {
    if (op->done) return;
    bool doubtful = op->impl->effect_remains && op->request.possible_runs > 0;
    hf_op_fail(op, code, "%s%s", reason, doubtful ? HF_MAY_HAVE_TAKEN_EFFECT : "");
    if (op->impl->abandon) op->impl->abandon(op, now);
    else hf_session_drop(&op->request);
}

void hf_op_abandon(hf_op *op, hf_time now) {
    hf_op_stop(op, HF_INTERRUPTED, "the operation was cancelled", now);
}

void hf_op_interrupt(hf_op *op, hf_time now) {
    if (!op->done && op->impl->interrupt) op->impl->interrupt(op, now);
}

hf_time hf_op_next_tick(const hf_op *op) {
    if (op->done) return op->detached ? 0 : HF_NEVER;
    if (op->impl->next_tick) return op->impl->next_tick(op);
    return op->blocked ? command_deadline(op) : HF_NEVER;
}

void hf_op_tick(hf_op *op, hf_time now) {
    assert(!op->done && !op->impl->tick == !op->impl->next_tick);
    if (op->impl->tick) op->impl->tick(op, now);
    else if (now >= hf_op_next_tick(op))
        hf_op_stop(op, HF_UNREACHABLE, "an earlier command for this key got no reply", now);
}

void hf_op_set_awaited_claim(hf_op *op, hf_claim *claim) {
    if (claim) hf_claim_ref(claim);
    if (op->awaited_claim) hf_claim_unref(op->awaited_claim);
    op->awaited_claim = claim;
}

void hf_op_block(hf_op *op, hf_claim *claim) {
    assert(!op->done && (op->awaited_claim == claim || (op->hold && op->hold->claim == claim)));
    op->blocked = true;
    claim->awaited = true;
}

/* Copies the names and the caller to which the spec points. Returns false when out of memory. */
static bool copy_lock(hf_op *op) {
    hf_slice caller = op->spec.caller;
    hf_names *names = hf_names_new(op->spec.lock_kind, op->spec.names->key);
    char *text = malloc(caller.size + 1);
    if (!names || !text) {
        hf_names_delete(names);
        free(text);
        return false;
    }
    memcpy(text, caller.data, caller.size);
    op->spec.names = op->owned_names = names;
    op->spec.caller.data = op->owned_caller = text;
    return true;
}

bool hf_op_detach(hf_op *op) {
    assert(!op->detached);
    bool on_one_lock = op->spec.names && !op->spec.batch;
    if (op->done || op->blocked || !on_one_lock || !copy_lock(op)) return false;
    op->detached = true;
    op->client->detached++;
    if (op->hold && hf_hold_is_releasing(op->hold)) op->hold->detached = true;
    return true;
}

void hf_client_end_detached(hf_client *client, hf_time now) {
    for (hf_op *op = client->ops, *next; op && client->detached > 0; op = next) {
        next = op->next;
        if (op->detached && op->done) hf_op_end(op, now);
    }
}

/* Ends the checks, the publication and the listening that the operation may have begun for its
 * wait. */
static void end_wait(hf_op *op, hf_time now) {
    hf_deadlock_end(op);
    hf_crash_end(op);
    hf_presence_on_wait_end(op, now);
    hf_op_set_listening(op, false, now);
}

/* Removes the number by which messages find the operation. */
static void forget_number(hf_op *op) {
    const hf_op_spec *spec = &op->spec;
    if (hf_kind_release_grants(spec->lock_kind))
        hf_ended_waits_add(&op->client->ended, op->wait.number, spec->lock_kind, spec->names->key);
    hf_number_table_remove(&op->client->waits, &op->wait.by_number);
}

void hf_op_end(hf_op *op, hf_time now) {
    hf_client *client = op->client;
    hf_op_abandon(op, now);
    if (op->spec.wait > 0) end_wait(op, now);
    hf_observe_op(op, now);
    assert(op->done && *op->link == op);
    if (hf_op_impl_of(op)->acquires && op->failure.code != HF_OK)
        client->stats.failures[op->failure.code]++;
    if (op->impl->end) op->impl->end(op, now);
    hf_session_drop(&op->request);
    *op->link = op->next;
    if (op->next) op->next->link = op->link;
    else client->ops_end = op->link;
    if (op->wait.by_number.object) forget_number(op);
    if (op->hold) hf_hold_unref(op->hold);
    hf_op_set_awaited_claim(op, NULL);
    assert(!op->wait.needs_events && client->detached >= op->detached);
    client->detached -= op->detached;
    if (op->detached) hf_names_delete(op->owned_names);
    free(op->owned_caller);
    hf_names_delete(op->wait.channels);
    hf_request_clear(&op->request);
    hf_fault_free(&op->failure);
    hf_reply_free(op->result.reply);
    free(op->result.record);
    free(op->result.info);
    free(op->deadlock.cycle);
    free(op);
}
