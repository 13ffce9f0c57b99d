/* The operation that waits until a lock has a holder other than the one that its caller knows. The
 * operation only reads. A new leader publishes a message on the channel <releases>:leader; the
 * message is a hint to read again. A lost or forged message affects only when the lock is read, not
 * the result. */
#include <stdio.h>
#include <stdlib.h>

#include "lock/names.h"
#include "lock/wire.h"
#include "op/operation.h"
#include "op/poll.h"

static bool encode(hf_op *op) {
    return hf_wire_info(&op->request, op->spec.lock_kind, op->spec.names, op->client->uuid);
}

/* Returns whether the caller knows this holder: spec.result is "<token> <owner>". */
static bool is_known_holder(const hf_op *op, const hf_lock_info *info) {
    char text[HF_OWNER_MAX + 32];
    int size = snprintf(text, sizeof text, "%llu %s", (unsigned long long)info->token, info->owner);
    return hf_slice_equal(op->spec.result, (hf_slice){text, (size_t)size});
}

static bool read_watch_reply(hf_op *op, const hf_reply *reply, hf_time now) {
    hf_lock_info info;
    (void)now;
    hf_wire_read_info(reply, &info);
    info.owner[info.owner_size] = '\0';
    if (info.owner_size == 0 || is_known_holder(op, &info)) return false;
    op->result.info = malloc(sizeof info);
    if (op->result.info) *op->result.info = info;
    else hf_op_fail_out_of_memory(op);
    return !op->done;
}

static void on_timeout(hf_op *op) {
    hf_op_fail(op, HF_TIMEOUT, "it has no other holder yet");
}

static void begin(hf_op *op, hf_time now) {
    op->wait.channels = hf_names_of_waiter(op->spec.names, hf_slice_of("leader"));
    if (op->wait.channels) hf_poll_begin(op, now);
    else hf_op_fail_out_of_memory(op);
}

static const hf_wait_functions wait_functions = {HF_POLL_WAIT_FUNCTIONS(hf_poll_on_recheck)};
static const hf_poll_functions poll_functions = {encode, read_watch_reply, on_timeout, NULL, true};

const hf_op_impl hf_watch_impl = {
    .verb = "watch",
    .quorum_refusal = "the holder can be watched on a single server, not in a quorum",
    .wait = &wait_functions,
    .poll = &poll_functions,
    .begin = begin,
    .next_tick = hf_poll_next_tick,
    .tick = hf_poll_tick,
    .interrupt = hf_poll_interrupt,
    .abandon = hf_poll_abandon,
};
