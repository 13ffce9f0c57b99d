/* Detects whether an acquire waits for itself: another owner holds the lock that it wants, and is
 * waiting for a second lock, and so on, until the holder is this acquire's own caller. Each step
 * sends two commands: `info` reads the owner of the key, and GET reads what that owner is waiting
 * for (holdfast_wait:<owner>, which presence.c writes). All waiters of a cycle read the same waits,
 * so only one of them fails: the one that began to wait last.
 *
 * In a quorum each step asks every server, and continues with the majority's reply. */
#ifndef HF_DEADLOCK_H
#define HF_DEADLOCK_H

#include "client.h"

/* Returns when the acquire checks next; HF_NEVER if checks are off or one is running. A check may
 * miss a cycle if a reply is lost or a waiter publishes late, so it is repeated whenever the wait
 * has doubled in length. */
hf_time hf_deadlock_next_check(const hf_op *op);

/* Begins a check if one is due. If the acquire is the youngest waiter in a cycle, the check sets
 * op->deadlock.cycle and calls on_cycle once the last reply has arrived. */
void hf_deadlock_tick(hf_op *op, void (*on_cycle)(hf_op *op, hf_time now), hf_time now);

/* Ends the operation's checks. */
void hf_deadlock_end(hf_op *op);

#endif
