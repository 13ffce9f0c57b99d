/* The operations on a latch, which nobody holds. Only the count opens a latch, so a message is only
 * a hint to poll. An outdated message costs a poll, and a lost one delays the next poll. */
#include "lock/wire.h"
#include "op/operation.h"
#include "op/poll.h"

/* A call's note must outlast any delay that a proxy may add to a command, and the time for which
 * the client may resend it. */
#define MIN_NOTE_TTL (60 * HF_SECOND)
#define NOTE_TTL_IN_TIMEOUTS 4

/* ---- changing the count ---- */

static void on_changed(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    (void)now;
    if (reply) {
        op->result.value = reply->integer;
        hf_op_succeed(op);
    } else {
        hf_op_fail_in_doubt(op, request);
    }
}

static void begin_change(hf_op *op, hf_time now) {
    char owner[HF_OWNER_SIZE];
    hf_wire_lock lock = hf_op_wire_lock(op, hf_op_owner(op, owner));
    hf_time keep = hf_time_max(MIN_NOTE_TTL,
                               NOTE_TTL_IN_TIMEOUTS * op->client->config.session.command_timeout);
    bool encoded = hf_wire_call_with_note(&op->request, &lock, hf_op_rows[op->spec.kind].verb,
                                          (long long)op->spec.value, keep, false);
    hf_op_run(op, encoded, on_changed, now);
}

/* ---- reading the count ---- */

/* Sets the operation's result to the count in the reply. If the reply is not a count, fails the
 * operation and returns false. */
static bool read_count(hf_op *op, const hf_reply *reply) {
    bool read = hf_wire_read_count(reply, &op->result.value);
    if (!read) hf_op_fail(op, HF_CONFLICT, "the key holds a string that is not a whole number");
    return read;
}

static void on_count(hf_op *op, const hf_reply *reply, hf_time now) {
    (void)now;
    if (read_count(op, reply)) hf_op_succeed(op);
}

static bool encode_count(hf_op *op) {
    return hf_wire_get_count(&op->request, op->spec.names);
}

static void begin_count(hf_op *op, hf_time now) {
    hf_op_run(op, encode_count(op), hf_op_on_reply, now);
}

/* ---- waiting ---- */

static bool read_await_reply(hf_op *op, const hf_reply *reply, hf_time now) {
    (void)now;
    return read_count(op, reply) && op->result.value <= 0;
}

static void on_timeout(hf_op *op) {
    hf_op_fail(op, HF_TIMEOUT, "its count is still %lld", op->result.value);
}

static const hf_wait_functions wait_functions = {HF_POLL_WAIT_FUNCTIONS(hf_poll_on_recheck)};
static const hf_poll_functions poll_functions = {encode_count, read_await_reply, on_timeout, NULL,
                                                 false};

/* ---- the implementation ---- */

#define CALL_IMPL(name, verb_text, begin_fn, ...)                                                  \
    const hf_op_impl hf_##name##_impl = {.verb = (verb_text), .begin = (begin_fn), __VA_ARGS__}

CALL_IMPL(set_count, "set the count of", begin_change, .effect_remains = true);
CALL_IMPL(count_down, "count down", begin_change, .effect_remains = true);
CALL_IMPL(count, "read the count of", begin_count, .on_reply = on_count);
CALL_IMPL(delete, "delete", begin_change, .effect_remains = true);

const hf_op_impl hf_await_impl = {
    .verb = "wait for",
    .wait = &wait_functions,
    .poll = &poll_functions,
    HF_POLL_FUNCTIONS,
};
