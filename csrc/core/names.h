/* The keys and the channel that belong to one lock key.
 *
 * As Redisson names them: the tag {key} keeps all of them in the key's slot; a key with a brace of its own is taken as
 * it is. All four texts stand in one block that the names own. */
#ifndef HF_NAMES_H
#define HF_NAMES_H

#include "types.h"

typedef struct hf_names {
    hf_slice key;
    hf_slice counter;  /* redisson_lock_token:{key} */
    hf_slice queue;    /* holdfast_queue:{key} */
    hf_slice releases; /* redisson_lock__channel:{key} */
    char *block;
} hf_names;

/* False when out of memory. */
bool hf_names_make(hf_names *names, hf_slice key);

void hf_names_free(hf_names *names);

/* The releases channel as a pattern that matches only itself. False when out of memory; free(pattern->data). */
bool hf_names_pattern(const hf_names *names, hf_slice *pattern);

#endif
