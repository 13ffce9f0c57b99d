/* The operation that writes to a resource behind a fence: the commands run only if no later holder
 * of the lock has written. It needs no hold, because the server compares the tokens. */
#include "lock/wire.h"
#include "op/operation.h"

/* The code "stale" promises that the write has not run and never will. This is not certain if a
 * call was sent twice: the first copy may have run, and a later write may have made the server
 * refuse the second copy. */
static void fail_stale(hf_op *op, const hf_request *request, const char *why) {
    bool doubtful = request->possible_runs > 1;
    hf_op_fail(op, doubtful ? HF_UNREACHABLE : HF_STALE, "%s%s", why,
               doubtful ? HF_MAY_HAVE_TAKEN_EFFECT : "");
}

static void on_refused(hf_op *op, const hf_request *request, const hf_reply *reply) {
    hf_slice other = hf_reply_string_at(reply, 1);
    switch (hf_reply_integer_at(reply, 0, 1)) {
    case 0:
        fail_stale(op, request, "a later holder of the lock has written to this resource");
        break;
    case -1:
        hf_op_fail(op, HF_CONFLICT, "the resource belongs to the lock \"%.*s\"",
                   (int)(other.size < 64 ? other.size : 64), other.data);
        break;
    case -2: fail_stale(op, request, "a later write by this client has superseded this one"); break;
    default: hf_op_fail(op, HF_SERVER, "the script returned an unexpected reply");
    }
}

static void on_reply(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    (void)now;
    if (!reply) hf_op_fail_in_doubt(op, request);
    else if (hf_wire_is_fence_accepted(reply)) hf_op_end_by_reply(op, request, reply->elements[1]);
    else on_refused(op, request, reply);
}

static void begin_fenced(hf_op *op, hf_time now) {
    hf_op_run_program(op, hf_program_fence(), on_reply, now);
}

const hf_op_impl hf_fenced_impl = {
    .verb = "write to",
    .quorum_refusal = "a fence needs a single server, not a quorum",
    .effect_remains = true,
    .begin = begin_fenced,
};
