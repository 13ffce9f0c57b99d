/* The acquire operation of one lock. */
#ifndef HF_ACQUIRE_H
#define HF_ACQUIRE_H

#include "interfaces.h"

#define HF_UNDER_WAY "another call by this owner for this key is in progress"

/* Sets op->hold to the caller's own hold or a new one, or only op->behind to a claim of the
 * caller that must leave first. Returns false on failure. */
bool hf_acquire_choose_hold(hf_op *op, hf_time now);

/* Makes the acquire, which has no hold, wait until no command is in flight for the claim, or until
 * it has left. */
void hf_acquire_block(hf_op *op, hf_claim *claim, hf_time now);

/* Asks the server for the lock, once no other command for the caller's hold is in flight. */
void hf_acquire_ask(hf_op *op, hf_time now);

/* For a wait that ended before it could ask the server: returns whether it waited for another call
 * of its owner. Otherwise the server has not replied. */
bool hf_acquire_was_behind_another(const hf_op *op, hf_time now);

/* Returns when a hold that is granted until `end` must be confirmed. */
hf_time hf_acquire_confirm_at(const hf_op *op, hf_time end, hf_time now);

/* Returns whether another caller of this client, which cannot run during this wait, holds the lock
 * at least until the end of the wait. */
bool hf_acquire_waits_for_itself(const hf_op *op);

/* Fails the operation with HF_DEADLOCK because it waits for itself, or is part of a cycle. */
void hf_acquire_fail_as_deadlock(hf_op *op);

/* Fails the operation as busy, because max_waiters or more are already waiting: `waiters`. */
void hf_acquire_fail_as_shed(hf_op *op, long long waiters);

#endif
