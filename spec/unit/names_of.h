/* Names of locks in structs of a test. */
#ifndef NAMES_OF_H
#define NAMES_OF_H

#include "lock/names.h"

#define NAMES_UNUSED __attribute__((unused))

/* Returns false when out of memory. */
static NAMES_UNUSED inline bool hf_names_make_on(hf_names *names, hf_slice key,
                                                 const hf_kind *kind) {
    const hf_names *made = hf_names_new(kind, key);
    if (made) *names = *made;
    return made != NULL;
}

static NAMES_UNUSED inline bool hf_names_make(hf_names *names, hf_slice key) {
    return hf_names_make_on(names, key, NULL);
}

/* The strings follow the struct that hf_names_new has made. */
static NAMES_UNUSED inline void hf_names_free(hf_names *names) {
    if (names->key.data) hf_names_delete((hf_names *)(void *)(uintptr_t)names->key.data - 1);
    *names = (hf_names){0};
}

#endif
