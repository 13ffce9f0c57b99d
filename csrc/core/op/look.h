/* Operations that wait by looking: a command is sent until it has done what it is for, or the time
 * is over. A look is due at each message on the channel of the key, once that is heard, and by the
 * clock, so a message that is lost costs a look. The class of the operation has its hf_look_class,
 * and these functions. */
#ifndef HF_LOOK_H
#define HF_LOOK_H

#include "classes.h"

/* Begin and abandon a call of one command, which does not wait. */
void hf_look_begin_call(hf_op *op, bool encoded, hf_request_done *done, hf_time now);
void hf_look_abandon_call(hf_op *op, hf_time now);

/* Waits for spec.wait. */
void hf_look_begin(hf_op *op, hf_time now);
hf_time hf_look_deadline(const hf_op *op);
void hf_look_tick(hf_op *op, hf_time now);
void hf_look_interrupt(hf_op *op, hf_time now);
void hf_look_abandon(hf_op *op, hf_time now);

/* Something has changed: it looks at once, or when the reply under way has come, which may be
 * older. */
void hf_look_again(hf_op *op, hf_time now);

/* The events of an operation that looks; `recheck` is called at each message. */
bool hf_look_waits(const hf_op *op);
void hf_look_on_subscribed(hf_op *op, hf_time now);
void hf_look_on_grant(hf_op *op, const hf_message *grant, hf_time now);
void hf_look_on_window(hf_op *op, hf_time turn, hf_time now);
void hf_look_on_denied(hf_op *op, hf_code code, const char *reason, hf_time now);

/* The functions of a class that waits by looking. */
#define HF_LOOK_FUNCTIONS                                                                          \
    .begin = hf_look_begin, .deadline = hf_look_deadline, .tick = hf_look_tick,                    \
    .interrupt = hf_look_interrupt, .abandon = hf_look_abandon

#define HF_LOOK_WAIT_FUNCTIONS(recheck)                                                            \
    .waits = hf_look_waits, .on_subscribed = hf_look_on_subscribed, .on_grant = hf_look_on_grant,  \
    .on_window = hf_look_on_window, .on_recheck = (recheck), .on_denied = hf_look_on_denied

#endif
