/* The operation that asks or records which run counts for a fire of a schedule. It needs no hold:
 * the program compares the run, its time and its token with those of the record. */
#include "link/nodes.h"
#include "lock/wire.h"
#include "op/operation.h"

static void succeed(hf_op *op, const hf_request *request, const hf_reply *reply) {
    op->result.reply = hf_reply_copy(reply);
    if (!op->result.reply) hf_op_fail_for_memory(op);
    else if (!hf_request_is_confirmed(request)) hf_op_fail_unconfirmed(op);
    else hf_op_succeed(op);
}

static void on_answer(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    (void)now;
    if (!reply)
        hf_op_fail(op, request->failure.code, "%s%s", request->failure.text,
                   request->sends > 0 ? HF_MAY_BE_DONE : "");
    else if (!hf_wire_is_fire(reply))
        hf_op_fail(op, HF_SERVER, "the script returned an unexpected reply");
    else succeed(op, request, reply);
}

static void begin_once(hf_op *op, hf_time now) {
    const hf_op_spec *spec = &op->spec;
    bool encoded = hf_wire_once(&op->request, (size_t)spec->value, spec->arg_count, spec->args) &&
                   hf_client_sync(op->client, &op->request);
    hf_op_run(op, encoded, on_answer, now);
}

const hf_op_impl hf_once_impl = {
    .verb = "check the runs of",
    .quorum_refusal = "a schedule needs a single server, not a quorum",
    .effect_remains = true,
    .begin = begin_once,
};
