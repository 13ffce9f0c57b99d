/* The operation that writes to a resource behind a fence: commands that run only if no later holder
 * of the lock has written. It needs no hold: the server compares the tokens. */
#ifndef HF_FENCE_H
#define HF_FENCE_H

#include "classes.h"

extern const hf_op_class hf_fenced_class;

#endif
