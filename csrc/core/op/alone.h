/* A client without a quorum: the server of a key decides about its lock. */
#ifndef HF_ALONE_H
#define HF_ALONE_H

#include "classes.h"

extern const hf_decider hf_alone;

#endif
