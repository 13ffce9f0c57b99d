/* The operations on a semaphore whose permits have no lease. Nobody holds one on the server: a call
 * takes or adds permits. */
#ifndef HF_PLAIN_SEMAPHORE_H
#define HF_PLAIN_SEMAPHORE_H

#include "classes.h"

extern const hf_op_class hf_take_class, hf_give_class, hf_drain_class;

#endif
