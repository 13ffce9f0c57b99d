/* Independent servers, each with its own keys; ring.h finds the server of a key. */
#ifndef HF_SHARDS_H
#define HF_SHARDS_H

#include "classes.h"

extern const hf_topology hf_shards;

#endif
