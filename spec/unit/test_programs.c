#include "programs.h"

#include <stdint.h>

#include "check.h"

static const hf_program *all[32];
static size_t count;

static void add(const hf_program *program)
{
    for (size_t i = 0; i < count; i++) {
        if (all[i] == program) return;
    }
    all[count++] = program;
}

static void collect(void)
{
    static const hf_program *(*const programs[])(hf_layout) = {
        hf_program_acquire, hf_program_release, hf_program_leave, hf_program_force,
        hf_program_extend,  hf_program_renew,   hf_program_info};
    count = 0;
    for (int layout = HF_LAYOUT_LOCK; layout <= HF_LAYOUT_GUARD; layout++) {
        for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
            add(programs[i]((hf_layout)layout));
    }
    add(hf_program_complete());
    add(hf_program_acquire_all());
    add(hf_program_release_all());
}

static uint32_t rotate(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}

static void hash_block(uint32_t h[5], const unsigned char *block)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    }
    for (int i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
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
static void sha1(char hex[41], const char *text, size_t size)
{
    uint32_t h[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    size_t padded = (size + 9 + 63) / 64 * 64;
    for (size_t at = 0; at < padded; at += 64) {
        unsigned char block[64];
        for (size_t i = 0; i < 64; i++) {
            size_t from_end = padded - 1 - (at + i);
            if (at + i < size)
                memcpy(&block[i], text + at + i, 1);
            else if (at + i == size)
                block[i] = 0x80;
            else if (from_end < 8)
                block[i] = (unsigned char)((uint64_t)size * 8 >> 8 * from_end & 0xff);
            else
                block[i] = 0;
        }
        hash_block(h, block);
    }
    snprintf(hex, 41, "%08x%08x%08x%08x%08x", h[0], h[1], h[2], h[3], h[4]);
}

TEST(the_hash_used_here_is_right)
{
    char hex[41];
    sha1(hex, "abc", 3);
    CHECK_STR(hex, "a9993e364706816aba3e25717850c26c9cd0d89d");
    sha1(hex, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56);
    CHECK_STR(hex, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
}

TEST(each_program_is_its_text_and_its_hash)
{
    char hex[41];
    collect();
    CHECK_EQ_INT(
        count, 18); /* seven for a lock, seven for a mutex, a guard's two, two for several locks */
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ_INT(strlen(all[i]->source), all[i]->length);
        sha1(hex, all[i]->source, all[i]->length);
        CHECK_STR(all[i]->sha1, hex);
    }
}

TEST(all_are_different)
{
    collect();
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            CHECK(strcmp(all[i]->sha1, all[j]->sha1) != 0);
            CHECK(strcmp(all[i]->name, all[j]->name) != 0);
        }
    }
}

TEST(each_layout_has_its_own)
{
    CHECK_STR(hf_program_acquire(HF_LAYOUT_LOCK)->name, "acquire");
    CHECK_STR(hf_program_acquire(HF_LAYOUT_MUTEX)->name, "mutex_acquire");
    CHECK_STR(hf_program_acquire(HF_LAYOUT_GUARD)->name, "begin");
    CHECK_STR(hf_program_renew(HF_LAYOUT_MUTEX)->name, "mutex_renew");
    CHECK(hf_program_leave(HF_LAYOUT_GUARD) == hf_program_leave(HF_LAYOUT_LOCK));
    CHECK_STR(hf_program_complete()->name, "complete");
}

TEST(no_line_is_left_unexpanded)
{
    collect();
    for (size_t i = 0; i < count; i++)
        CHECK(!strstr(all[i]->source, "--#"));
}

CHECK_MAIN
