#include "types.h"

#include <stdio.h>
#include <string.h>

#ifdef HF_DEFECTS
hf_defect hf_defect_on;
#endif

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
    snprintf(uuid, HF_UUID_SIZE + 1, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

uint64_t hf_jitter(uint64_t *state, uint64_t below) {
    uint64_t x = *state; /* xorshift64, Marsaglia 2003 */
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return below == 0 ? 0 : x % below;
}
