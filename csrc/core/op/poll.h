/* Operations that wait by polling: a command is sent until it has done what it is for, or the time
 * is over. A poll is due at each message on the channel of the key, once subscribed to, and by the
 * clock, so a message that is lost costs a poll. The type of the operation has its
 * hf_poll_functions, and these functions. */
#ifndef HF_POLL_H
#define HF_POLL_H

#include "interfaces.h"

/* Waits for spec.wait. */
void hf_poll_begin(hf_op *op, hf_time now);
hf_time hf_poll_deadline(const hf_op *op);
void hf_poll_tick(hf_op *op, hf_time now);
void hf_poll_interrupt(hf_op *op, hf_time now);
void hf_poll_abandon(hf_op *op, hf_time now);

/* Something has changed: it polls at once, or when the reply under way has come, which may be
 * older. */
void hf_poll_again(hf_op *op, hf_time now);

/* What is free is left to others for the time of a turn. The operation polls when that is over, or
 * earlier if something has changed. */
void hf_poll_after_turn(hf_op *op, hf_time turn, hf_time now);

/* The events of an operation that polls; `recheck` is called at each message. */
bool hf_poll_waits(const hf_op *op);
void hf_poll_on_subscribed(hf_op *op, hf_time now);
void hf_poll_on_denied(hf_op *op, hf_code code, const char *reason, hf_time now);

/* What waits by polling. */
#define HF_POLL_FUNCTIONS                                                                          \
    .begin = hf_poll_begin, .deadline = hf_poll_deadline, .tick = hf_poll_tick,                    \
    .interrupt = hf_poll_interrupt, .abandon = hf_poll_abandon

#define HF_POLL_WAIT_FUNCTIONS(recheck)                                                            \
    .waits = hf_poll_waits, .on_subscribed = hf_poll_on_subscribed, .on_recheck = (recheck),       \
    .on_denied = hf_poll_on_denied

#endif
