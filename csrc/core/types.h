/* The words every file of the core uses.
 *
 * A time is a monotonic count of nanoseconds that the caller passes in; the core owns no clock. HF_NEVER is later than
 * every time. Sizes and counts that come from outside are capped where they are read. */
#ifndef HF_TYPES_H
#define HF_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "defects.h"

typedef uint64_t hf_time;

#define HF_NEVER UINT64_MAX
#define HF_MS ((hf_time)1000000)
#define HF_SECOND ((hf_time)1000000000)

static inline hf_time hf_time_min(hf_time a, hf_time b) {
    return a < b ? a : b;
}

static inline hf_time hf_time_max(hf_time a, hf_time b) {
    return a > b ? a : b;
}

/* a + b, where never stays never. */
static inline hf_time hf_time_add(hf_time a, hf_time b) {
    return a > HF_NEVER - b ? HF_NEVER : a + b;
}

/* Bytes that belong to somebody else. */
typedef struct hf_slice {
    const char *data;
    size_t size;
} hf_slice;

bool hf_slice_equal(hf_slice a, hf_slice b);

/* A slice of a NUL-terminated text. */
hf_slice hf_slice_of(const char *text);

#define HF_UUID_SIZE 36

/* Fills `uuid` (HF_UUID_SIZE characters and a NUL) from 16 random bytes. Version 8 of RFC 9562: Java's are version 4,
 * so the programs can tell our holders from Redisson's. */
void hf_uuid_format(char uuid[HF_UUID_SIZE + 1], const unsigned char random[16]);

/* A small generator for jitter only; never for identities. The state must not be 0. */
uint64_t hf_jitter(uint64_t *state, uint64_t below);

#endif
