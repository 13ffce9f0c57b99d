/* Holds, and calls about them. */
#ifndef CALLS_RIG_H
#define CALLS_RIG_H

#include "rig.h"

RIG_BEGINS

#define RELEASE_OF_K(to) "EVALSHA release " KEYS_OF_K to " 30000 "
#define CHECK_OF_K "EVALSHA extend 2 k holdfast_queue:{k} me 0  "
#define EXTEND_OF_K(ms)                                                                            \
    "EVALSHA extend 2 k holdfast_queue:{k} me " ms "   redisson_lock__channel:{k}"

static UNUSED hf_op *begin_extend(hf_time lease, hf_time now) {
    hf_op *op = BEGIN(HF_OP_EXTEND, now, spec.lease = lease);
    return op;
}

/* Acquires the lock `count` times at `now`. */
static UNUSED hf_hold *hold_times(uint32_t count, hf_time now) {
    hf_hold *hold = hold_lock(now);
    for (uint32_t i = 1; i < count; i++) hold_lock(now);
    sent_over(CALLS);
    return hold;
}

/* Like hold_times, with a renewal under way since AT(10000). */
static UNUSED hf_hold *hold_while_renewed(uint32_t count) {
    hf_hold *hold = hold_times(count, AT(0));
    rig_sleep(AT(0), AT(10000));
    if (!is_in_flight(hold)) abort();
    sent_over(RENEWER);
    return hold;
}

static UNUSED hf_hold *hold_guard(hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.lock_kind = &hf_kind_guard,
                      spec.fingerprint = hf_slice_of("p"));
    feed_calls(ACQUIRED, now);
    hf_hold *hold = hold_in(op);
    hf_op_end(op, now), sent_over(CALLS);
    return hold;
}

static UNUSED hf_op *begin_complete(hf_time now) {
    hf_op *op = BEGIN(HF_OP_COMPLETE, now, spec.lock_kind = &hf_kind_guard,
                      spec.fingerprint = hf_slice_of("p"), spec.result = hf_slice_of("done"),
                      spec.keep = 5 * HF_SECOND);
    return op;
}

static UNUSED hf_op *begin_guard(hf_op_kind kind) {
    hf_op_spec spec = spec_of(kind);
    spec.lock_kind = &hf_kind_guard;
    hold_guard(AT(0));
    return begin_spec(&spec, AT(1));
}

static UNUSED hf_op *begin_call(hf_op_kind kind) {
    static const hf_slice word[] = {{"TIME", 4}};
    hf_op_spec spec = spec_of(kind);
    if (kind == HF_OP_COMPLETE) return begin_guard(kind);
    if (kind == HF_OP_COMMAND) spec.args = word, spec.arg_count = 1;
    if (kind == HF_OP_SET) spec.lock_kind = &hf_kind_permit;
    if (hf_op_kind_needs_a_hold(kind)) hold_times(1, AT(0));
    return begin_spec(&spec, AT(1));
}

static const hf_op_kind CALL_KINDS[] = {
    HF_OP_RELEASE, HF_OP_COMPLETE, HF_OP_EXTEND,  HF_OP_CHECK, HF_OP_FORCE, HF_OP_INFO,
    HF_OP_TTL,     HF_OP_PING,     HF_OP_COMMAND, HF_OP_RAISE, HF_OP_SET,
};

static const char *const senseless[] = {":0\r\n", ":99\r\n", "+OK\r\n", "$-1\r\n"};

#endif
