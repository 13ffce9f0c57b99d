/* The life of an operation: its node, its request, its failure, its end. hf_op_impl has the rest.
 */
#ifndef HF_OPERATION_H
#define HF_OPERATION_H

#include "interfaces.h"
#include "link/nodes.h"
#include "op/holding.h"

/* Ends the message of a failure if the server may have carried out what nobody undoes. */
#define HF_MAY_BE_DONE "; the call may have taken effect anyway"

/* Changes the operation's state; no other function does. Asserts that the step is legal. */
void hf_op_become(hf_op *op, hf_acquire_state state);

/* End the operation: with HF_OK, or with a failure about its key and server. */
void hf_op_succeed(hf_op *op);
void hf_op_fail(hf_op *op, hf_code code, const char *detail, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for an operation whose request has failed, and when out of memory. */
void hf_op_fail_as(hf_op *op, const hf_request *request);
void hf_op_fail_for_memory(hf_op *op);

/* The same for a request whose effect is not undone: the message says so if it was sent. */
void hf_op_fail_in_doubt(hf_op *op, const hf_request *request);

/* Ends an operation whose result is this reply to its request: with HF_OK, or with a failure if too
 * few replicas have confirmed the write, or out of memory. */
void hf_op_succeed_with(hf_op *op, const hf_request *request, const hf_reply *reply);

/* Fails an acquire because a lock of another kind has the key; `has` as in hf_wire_answer. */
void hf_op_fail_for_other_kind(hf_op *op, const char *has);

/* Fails an operation whose request was run but confirmed by too few replicas. */
void hf_op_fail_unconfirmed(hf_op *op);

/* Ends an operation that is not done, and undoes what it may have left on the server. */
void hf_op_stop(hf_op *op, hf_code code, const char *reason, hf_time now);

/* Sends the operation's request over the callers' link. */
void hf_op_send(hf_op *op, hf_request_done *done, hf_time deadline, bool waits_for_connection,
                hf_time now);

/* Sends the one command of an operation; `encoded`: false, there was no memory for it. `done` gets
 * the reply: hf_op_on_answer gives it to the implementation, and fails the operation without one.
 */
void hf_op_run(hf_op *op, bool encoded, hf_request_done *done, hf_time now);
void hf_op_on_answer(hf_request *request, const hf_reply *reply, hf_time now);

/* Sends the one command of an operation that runs the program with the words of its spec, of which
 * the first spec.value are keys, and may wait for replicas. */
void hf_op_run_words(hf_op *op, const hf_program *program, hf_request_done *done, hf_time now);

/* Does what is due for an operation that is not done. */
void hf_op_tick(hf_op *op, hf_time now);

/* Ends the operation's request at `until` at the latest. */
void hf_op_hurry(hf_op *op, hf_time until);

/* The operation is blocked until hf_client_unblock of this hold, which it refers to. */
void hf_op_block(hf_op *op, hf_hold *hold);

/* Returns the operation's lock, held or requested by this owner, for the arguments of programs. */
hf_wire_lock hf_op_wire_lock(const hf_op *op, hf_slice owner);

/* Returns the time until which a hold that the operation acquires may last: its max_hold, counted
 * from `since`; HF_NEVER: no limit. */
hf_time hf_op_max_until(const hf_op *op, hf_time since);

/* Writes to `text` the owner that names the call of an operation on something that nobody holds,
 * and returns it. */
hf_slice hf_op_owner(const hf_op *op, char text[HF_OWNER_SIZE]);

#endif
