/* Declarations that the files of a quorum's operations share. */
#ifndef HF_ROUND_H
#define HF_ROUND_H

#include "quorum/internal.h"

/* round_acquire.c */
void hf_round_begin_acquire(hf_op *op, hf_time now);
void hf_round_check_acquire(hf_op *op, hf_time now);
void hf_round_fail_acquire(hf_op *op, hf_code code, hf_time now);
void hf_round_forget_hold(hf_op *op);
void hf_round_on_cycle(hf_op *op, hf_time now); /* the acquire is the youngest waiter in a cycle */

/* round_calls.c */
void hf_round_begin_on_hold(hf_op *op, hf_time now);
void hf_round_fail_lost(hf_op *op, const hf_hold *hold);
void hf_round_check_call(hf_op *op, hf_time now);
void hf_round_release_entry(hf_client *client, hf_hold *hold, hf_time now);

#endif
