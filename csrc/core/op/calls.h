/* Operations that consist of one command. */
#ifndef HF_CALLS_H
#define HF_CALLS_H

#include "interfaces.h"

/* Fails an operation on spec.lost_hold, a lost hold of the caller. */
void hf_call_fail_on_lost_hold(hf_op *op);

#endif
