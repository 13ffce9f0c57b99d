/* The operations of one command. */
#ifndef HF_CALLS_H
#define HF_CALLS_H

#include "classes.h"

extern const hf_op_class hf_release_class, hf_complete_class, hf_extend_class, hf_check_class,
    hf_force_class, hf_info_class, hf_ttl_class, hf_ping_class, hf_command_class, hf_raise_class,
    hf_set_class;

/* Begins an operation about a lost hold of the caller: spec.lost. */
void hf_call_begin_on_lost(hf_op *op);

#endif
