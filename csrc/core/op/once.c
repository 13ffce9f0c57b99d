/* The operation that reads or records which run counts for a scheduled time. It needs no hold: the
 * program compares the run, its time and its token with the record's. */
#include "lock/wire.h"
#include "op/operation.h"

static void on_reply(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    (void)now;
    if (!reply) hf_op_fail_in_doubt(op, request);
    else if (hf_wire_is_run(reply)) hf_op_end_by_reply(op, request, reply);
    else hf_op_fail(op, HF_SERVER, "the script returned an unexpected reply");
}

static void begin(hf_op *op, hf_time now) {
    hf_op_run_program(op, hf_program_once(), on_reply, now);
}

const hf_op_impl hf_once_impl = {
    .verb = "check the runs of",
    .quorum_refusal = "a schedule needs a single server, not a quorum",
    .effect_remains = true,
    .begin = begin,
};
