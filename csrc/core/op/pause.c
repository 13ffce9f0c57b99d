/* The operation that pauses for spec.wait. It sends nothing, and ends if the client is closed. */
#include "op/operation.h"

static void begin(hf_op *op, hf_time now) {
    op->wait.until = hf_time_add(now, op->spec.wait);
}

static hf_time next_tick(const hf_op *op) {
    return op->wait.until;
}

static void tick(hf_op *op, hf_time now) {
    if (now >= op->wait.until) hf_op_succeed(op);
}

static void interrupt(hf_op *op, hf_time now) {
    (void)now;
    hf_op_fail(op, HF_INTERRUPTED, "the wait was interrupted by a signal");
}

const hf_op_impl hf_pause_impl = {.verb = "wait",
                                  .local_only = true,
                                  .begin = begin,
                                  .next_tick = next_tick,
                                  .tick = tick,
                                  .interrupt = interrupt};
