/* Operations that consist of one command. */
#ifndef HF_CALLS_H
#define HF_CALLS_H

#include "interfaces.h"

/* Fails an operation on spec.lost, a lost hold of the caller: with HF_LOST or, if the caller has
 * been notified of the loss, with HF_NOT_HELD. */
void hf_call_fail_on_lost(hf_op *op);

#endif
