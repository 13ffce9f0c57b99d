/* Times, strings and numbers for every file of the core.
 *
 * A time is a monotonic count of nanoseconds, passed in by the caller, because the core has no
 * clock. HF_NEVER is later than every other time. Sizes and counts from outside are limited where
 * they are read. */
#ifndef HF_TYPES_H
#define HF_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Returns a + b, at most HF_NEVER. */
static inline hf_time hf_time_add(hf_time a, hf_time b) {
    return a > HF_NEVER - b ? HF_NEVER : a + b;
}

/* Converts milliseconds to a time. A value that is too large becomes a time just below HF_NEVER. */
static inline hf_time hf_time_of_ms(uint64_t ms) {
    return hf_time_min(ms, HF_NEVER / HF_MS) * HF_MS;
}

/* A reference to bytes that something else owns. */
typedef struct hf_slice {
    const char *data;
    size_t size;
} hf_slice;

bool hf_slice_equal(hf_slice a, hf_slice b);

/* Returns a slice of a whole NUL-terminated string. */
hf_slice hf_slice_of(const char *text);

/* Removes the prefix from the slice. Returns false if the slice does not start with it. */
bool hf_slice_skip(hf_slice *slice, const char *prefix);

/* Copies the bytes to `*to`, moves `*to` past them, and returns the copy. */
hf_slice hf_slice_copy(char **to, hf_slice from);

#define HF_HASH_SEED 0xcbf29ce484222325ull

/* Hashes bytes for hash tables. `hash` is the seed, or the hash of the preceding bytes. */
uint64_t hf_hash(uint64_t hash, hf_slice bytes);

/* Writes the time in seconds, rounded to `digits` (1..9) decimal places, and returns `text`. Unlike
 * printf, this ignores the program's locale. */
const char *hf_seconds_text(char text[32], hf_time time, unsigned digits);

/* Returns whether two strings are equal, ignoring the case of ASCII letters. Unlike strcasecmp,
 * this ignores the program's locale. */
bool hf_equal_ignoring_case(const char *a, const char *b);

/* Writes `value` to `text` in decimal, and returns the digits, which may not begin at `text`. */
static inline hf_slice hf_decimal(char text[24], uint64_t value) {
    char *end = text + 23, *first = end;
    *end = '\0';
    do *--first = (char)('0' + value % 10);
    while (value /= 10);
    return (hf_slice){first, (size_t)(end - first)};
}

#define HF_UUID_SIZE 36

/* Fills `uuid` (HF_UUID_SIZE characters and a NUL) from 16 random bytes. The UUID is of version 8
 * (RFC 9562). Java's are of version 4, so the programs can tell holdfast's holders from
 * Redisson's. */
void hf_uuid_format(char uuid[HF_UUID_SIZE + 1], const unsigned char random[16]);

/* Returns a random number less than `below`, or 0 if that is 0. Use it only for jitter, not for
 * identities. The state must not be 0. */
uint64_t hf_jitter(uint64_t *state, uint64_t below);

#endif
