/* Several locks of one caller in one program: all or none are acquired, all are released. */
#ifndef HF_BATCH_H
#define HF_BATCH_H

#include "classes.h"

extern const hf_op_class hf_acquire_all_class, hf_release_all_class;

#endif
