#ifndef HF_PAUSE_H
#define HF_PAUSE_H

#include "classes.h"

/* Waits for spec.wait and sends nothing: a pause that works with every driver and that closing the
 * client ends. */
extern const hf_op_class hf_pause_class;

#endif
