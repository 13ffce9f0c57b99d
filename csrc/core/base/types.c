#include "base/types.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

bool hf_slice_equal(hf_slice a, hf_slice b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

hf_slice hf_slice_of(const char *text) {
    return (hf_slice){text, strlen(text)};
}

void hf_uuid_format(char uuid[HF_UUID_SIZE + 1], const unsigned char random[16]) {
    unsigned char b[16];
    memcpy(b, random, sizeof b);
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x80);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(uuid, HF_UUID_SIZE + 1,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

uint64_t hf_jitter(uint64_t *state, uint64_t below) {
    assert(*state != 0);
    uint64_t x = *state; /* xorshift64, Marsaglia 2003 */
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return below == 0 ? 0 : x % below;
}

bool hf_slice_skip(hf_slice *slice, const char *prefix) {
    size_t size = strlen(prefix);
    if (slice->size < size || memcmp(slice->data, prefix, size) != 0) return false;
    slice->data += size;
    slice->size -= size;
    return true;
}

hf_slice hf_slice_copy(char **to, hf_slice from) {
    hf_slice copy = {*to, from.size};
    if (from.size > 0) memcpy(*to, from.data, from.size);
    *to += from.size;
    return copy;
}

const char *hf_seconds_text(char text[32], hf_time time, unsigned digits) {
    hf_time units_per_second = 1;
    for (unsigned i = 0; i < digits; i++) units_per_second *= 10;
    hf_time unit = HF_SECOND / units_per_second;
    hf_time count = time / unit + (time % unit > (unit - 1) / 2);
    snprintf(text, 32, "%llu.%0*llu", (unsigned long long)(count / units_per_second), (int)digits,
             (unsigned long long)(count % units_per_second));
    return text;
}

static char lower(char byte) {
    if (byte >= 'A' && byte <= 'Z') return (char)(byte - 'A' + 'a');
    return byte;
}

bool hf_equal_ignoring_case(const char *a, const char *b) {
    while (*a && lower(*a) == lower(*b)) a++, b++;
    return lower(*a) == lower(*b);
}

static uint64_t hash_word(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 32;
}

uint64_t hf_hash(uint64_t hash, hf_slice bytes) {
    uint64_t word;
    for (; bytes.size >= sizeof word; bytes.data += sizeof word, bytes.size -= sizeof word) {
        memcpy(&word, bytes.data, sizeof word);
        hash = hash_word(hash, word);
    }
    word = bytes.size;
    for (size_t i = 0; i < bytes.size; i++) word = word << 8 | (unsigned char)bytes.data[i];
    return hash_word(hash, word);
}
