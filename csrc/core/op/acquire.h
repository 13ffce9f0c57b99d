/* The acquire operation of one lock. */
#ifndef HF_ACQUIRE_H
#define HF_ACQUIRE_H

#include "interfaces.h"

#define HF_UNDER_WAY "another call by this owner for this key is in progress"

/* Sets op->hold to the caller's hold or a new one. If a claim of the caller must be cleaned up
 * first, sets op->awaited_claim to it instead. Returns false if the operation has failed. */
bool hf_acquire_choose_hold(hf_op *op, hf_time now);

/* Blocks the acquire, which has no hold, until no command is in flight for the claim or the claim
 * is gone. */
void hf_acquire_block(hf_op *op, hf_claim *claim, hf_time now);

/* Asks the server for the lock as soon as no other command for the caller's hold is in flight. */
void hf_acquire_ask(hf_op *op, hf_time now);

/* For a wait that ended before the acquire could ask the server: returns whether the wait was for
 * another call of its owner. If not, the server did not reply in time. */
bool hf_acquire_waited_for_other_call(const hf_op *op, hf_time now);

/* Returns when to confirm a hold that was granted until `end`. */
hf_time hf_acquire_confirm_at(const hf_op *op, hf_time end, hf_time now);

/* Returns whether this wait is a deadlock within the client: another caller holds the lock at least
 * until the wait ends, and cannot run before that. */
bool hf_acquire_waits_for_itself(const hf_op *op);

/* Fails the operation with HF_DEADLOCK, because it waits for itself or is part of a cycle. */
void hf_acquire_fail_as_deadlock(hf_op *op);

/* Fails the operation with HF_BUSY: `waiters` are waiting, and max_waiters allows no more. */
void hf_acquire_fail_at_max_waiters(hf_op *op, long long waiters);

#endif
