/* The operations on a latch. Nobody holds one: a call changes or reads its count, or waits until
 * that is 0. */
#ifndef HF_LATCH_H
#define HF_LATCH_H

#include "classes.h"

extern const hf_op_class hf_set_count_class, hf_count_down_class, hf_count_class, hf_await_class,
    hf_delete_class;

#endif
