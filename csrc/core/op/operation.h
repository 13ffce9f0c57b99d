/* The parts that all operations share: their nodes, requests, failures and completion. Each
 * hf_op_impl does the rest. */
#ifndef HF_OPERATION_H
#define HF_OPERATION_H

#include "interfaces.h"
#include "link/nodes.h"
#include "op/holding.h"

/* The end of a failure's message if the server may have done something that is not undone. */
#define HF_MAY_HAVE_TAKEN_EFFECT "; the call may have taken effect anyway"

/* Changes the operation's state; no other function does. Asserts that the transition is legal. */
void hf_op_become(hf_op *op, hf_acquire_state state);

/* End the operation: with HF_OK, or with a failure whose message names its key and server. */
void hf_op_succeed(hf_op *op);
void hf_op_fail(hf_op *op, hf_code code, const char *detail, ...)
    __attribute__((format(printf, 3, 4)));

/* Fail an operation because its request has failed, or because memory has run out. */
void hf_op_fail_with_request(hf_op *op, const hf_request *request);
void hf_op_fail_out_of_memory(hf_op *op);

/* Fails an operation because its request, whose effect is not undone, has failed. If the request
 * was sent, the message says that it may have taken effect. */
void hf_op_fail_in_doubt(hf_op *op, const hf_request *request);

/* Ends an operation whose result is this reply: with HF_OK, or with a failure if too few replicas
 * have confirmed the write or when out of memory. */
void hf_op_end_by_reply(hf_op *op, const hf_request *request, const hf_reply *reply);

/* Fails an acquire because the key has a lock of another kind. `found`: see hf_acquire_reply. */
void hf_op_fail_for_other_kind(hf_op *op, const char *found);

/* Fails an operation whose request was carried out, but confirmed by too few replicas. */
void hf_op_fail_unconfirmed(hf_op *op);

/* Fails an operation unless it is done, and undoes what it may have left on the server. */
void hf_op_stop(hf_op *op, hf_code code, const char *reason, hf_time now);

/* Sends the operation's request over the callers' link. */
void hf_op_send(hf_op *op, hf_request_done *done, hf_time deadline, bool waits_for_connection,
                hf_time now);

/* Sends an operation's only command. If `encoded` is false, the operation fails: out of memory.
 * `done` is usually hf_op_on_reply, which passes the reply to the implementation, or fails the
 * operation if there is no reply. */
void hf_op_run(hf_op *op, bool encoded, hf_request_done *done, hf_time now);
void hf_op_on_reply(hf_request *request, const hf_reply *reply, hf_time now);

/* Calls the program as an operation's only command. Its arguments are the spec's `args`; the first
 * spec.value of them are keys. Replicas must confirm the call if config.sync says so. */
void hf_op_run_program(hf_op *op, const hf_program *program, hf_request_done *done, hf_time now);

/* Does what is due for an operation that has not ended yet. */
void hf_op_tick(hf_op *op, hf_time now);

/* Limits the time of the operation's request: it ends by `until`, with or without a reply. */
void hf_op_limit_request(hf_op *op, hf_time until);

/* Sets op->awaited_claim to this claim or to NULL, and drops the reference to the previous claim.
 */
void hf_op_set_awaited_claim(hf_op *op, hf_claim *claim);

/* Blocks the operation until hf_client_unblock is called for this claim, which must be
 * op->awaited_claim or the claim of the operation's hold. */
void hf_op_block(hf_op *op, hf_claim *claim);

/* Returns the operation's lock with this owner, for encoding commands. */
hf_wire_lock hf_op_wire_lock(const hf_op *op, hf_slice owner);

/* Returns when a hold that the operation acquires must end: max_hold after `since`, or HF_NEVER if
 * there is no limit. */
hf_time hf_op_max_until(const hf_op *op, hf_time since);

/* For a kind without holders: writes to `text` the owner that identifies this call, and returns
 * it. */
hf_slice hf_op_owner(const hf_op *op, char text[HF_OWNER_SIZE]);

#endif
