/* Operations that wait by polling: they resend a command until it has succeeded or the wait times
 * out. They poll at each message on the key's channel, once the client is subscribed to it, and at
 * regular intervals, so a lost message only delays a poll. Such an operation's hf_op_impl has
 * hf_poll_functions and the functions below. */
#ifndef HF_POLL_H
#define HF_POLL_H

#include "interfaces.h"

/* Implement hf_op_impl. The wait lasts up to spec.wait. */
void hf_poll_begin(hf_op *op, hf_time now);
hf_time hf_poll_next_tick(const hf_op *op);
void hf_poll_tick(hf_op *op, hf_time now);
void hf_poll_interrupt(hf_op *op, hf_time now);
void hf_poll_abandon(hf_op *op, hf_time now);

/* Called when something has changed. The operation polls at once, or after the reply under way,
 * because that reply may be older than the change. */
void hf_poll_again(hf_op *op, hf_time now);

/* Leaves free permits to other clients for `turn`, then polls. hf_poll_again makes the operation
 * poll earlier. */
void hf_poll_after_turn(hf_op *op, hf_time turn, hf_time now);

/* Implement hf_wait_functions. */
bool hf_poll_is_waiting(const hf_op *op);
void hf_poll_on_subscribed(hf_op *op, hf_time now);
void hf_poll_on_recheck(hf_op *op, hf_time delay, hf_time now); /* polls at once */
void hf_poll_on_denied(hf_op *op, hf_code code, const char *reason, hf_time now);

/* The fields of an hf_op_impl and of hf_wait_functions. `recheck` is called for each message. */
#define HF_POLL_FUNCTIONS                                                                          \
    .begin = hf_poll_begin, .next_tick = hf_poll_next_tick, .tick = hf_poll_tick,                  \
    .interrupt = hf_poll_interrupt, .abandon = hf_poll_abandon

#define HF_POLL_WAIT_FUNCTIONS(recheck)                                                            \
    .is_waiting = hf_poll_is_waiting, .on_subscribed = hf_poll_on_subscribed,                      \
    .on_recheck = (recheck), .on_denied = hf_poll_on_denied

#endif
