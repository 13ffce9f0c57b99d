/* The life of an operation: its node, its failure, its request, its end. What it does stands in acquire.c, calls.c and
 * several.c, for a quorum in ballot.c. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "client_internal.h"
#include "cluster.h"
#include "quorum.h"

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
    const hf_names *names = op->spec.names ? op->spec.names : hf_op_is_several(op) ? op->spec.all[0] : NULL;
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

void hf_op_move(hf_op *op, hf_node *node, hf_time now) {
    bool listens = op->events;
    if (op->node == node) return;
    hf_client_listen(op, false, now);
    op->node = node;
    hf_client_listen(op, listens, now);
    if (listens && node->subscribed) hf_acquire_on_subscribed(op, now);
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
    else if (hf_op_is_several(op)) hf_several_begin(op, now);
    else hf_call_begin(op, now);
    return op;
}

void hf_op_stop(hf_op *op, hf_code code, const char *reason, hf_time now) {
    if (op->done) return;
    if (op->client->quorum) hf_ballot_give_up(op, now);
    else if (op->spec.kind == HF_OP_ACQUIRE) hf_acquire_give_up(op, now);
    else if (hf_op_is_several(op)) hf_several_give_up(op, now);
    else hf_call_give_up(op, now);
    hf_op_fail(op, code, "%s", reason);
}

void hf_op_give_up(hf_op *op, hf_time now) {
    hf_op_stop(op, HF_INTERRUPTED, "the operation was given up", now);
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
