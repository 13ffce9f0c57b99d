#include "lock/kind.h"

#include <stdint.h>

#include "drive.h"

static const hf_program *all[64];
static size_t count;

static void add(const hf_program *program) {
    for (size_t i = 0; i < count; i++) {
        if (all[i] == program) return;
    }
    all[count++] = program;
}

static void collect(void) {
    count = 0;
    for (size_t i = 0; hf_kinds[i]; i++) {
        for (int verb = 0; verb < HF_VERBS; verb++) {
            const hf_program *program = hf_kind_program(hf_kinds[i], (hf_verb)verb);
            if (program) add(program);
        }
    }
}

static uint32_t rotate(uint32_t x, int by) {
    return x << by | x >> (32 - by);
}

static void hash_block(uint32_t h[5], const unsigned char *block) {
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    }
    for (int i = 16; i < 80; i++) w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999u
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1u
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu
                              : (b ^ c ^ d) + 0xca62c1d6u;
        uint32_t next = rotate(a, 5) + f + e + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

/* FIPS 180-4, SHA-1, as 40 hex digits: what EVALSHA looks a script up by. */
static void sha1(char hex[41], const char *text, size_t size) {
    uint32_t h[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    size_t padded = (size + 9 + 63) / 64 * 64;
    for (size_t at = 0; at < padded; at += 64) {
        unsigned char block[64];
        for (size_t i = 0; i < 64; i++) {
            size_t from_end = padded - 1 - (at + i);
            if (at + i < size) memcpy(&block[i], text + at + i, 1);
            else if (at + i == size) block[i] = 0x80;
            else if (from_end < 8)
                block[i] = (unsigned char)((uint64_t)size * 8 >> 8 * from_end & 0xff);
            else block[i] = 0;
        }
        hash_block(h, block);
    }
    snprintf(hex, 41, "%08x%08x%08x%08x%08x", h[0], h[1], h[2], h[3], h[4]);
}

TEST(the_sha1_embedded_with_each_server_script_matches_its_text) {
    char hex[41];
    collect();
    CHECK_EQ_INT(count, 47); /* seven for a lock, a mutex, a read/write lock and a semaphore, a
                                guard's two, a latch's three, a plain semaphore's six, a fair lock's
                                six, two for several locks */
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ_INT(strlen(text_of(all[i])), all[i]->length);
        sha1(hex, text_of(all[i]), all[i]->length), CHECK_STR(all[i]->sha1, hex);
    }
}

CHECK_MAIN
