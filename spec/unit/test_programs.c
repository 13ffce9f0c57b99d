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

TEST(the_tests_own_sha1_function_matches_the_standards_examples) {
    char hex[41];
    sha1(hex, "abc", 3), CHECK_STR(hex, "a9993e364706816aba3e25717850c26c9cd0d89d");
    sha1(hex, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56);
    CHECK_STR(hex, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
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

TEST(no_two_server_scripts_have_the_same_name_or_text) {
    collect();
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            CHECK(strcmp(all[i]->sha1, all[j]->sha1) != 0);
            CHECK(strcmp(all[i]->name, all[j]->name) != 0);
        }
    }
}

TEST(no_embedded_server_script_contains_an_unexpanded_include) {
    collect();
    for (size_t i = 0; i < count; i++) CHECK(!strstr(text_of(all[i]), "--#"));
}

/* Their programs in the order of hf_verb; "-": none. */
TEST(each_kind_of_lock_has_the_server_scripts_that_the_test_lists) {
    CASES(const hf_kind *kind; const char *programs) = {
        {&hf_kind_lock,
         "acquire release - leave extend renew force info - acquire_all release_all - - - -"},
        {&hf_kind_mutex, "mutex_acquire mutex_release - mutex_leave mutex_extend mutex_renew "
                         "mutex_force mutex_info - - - - - - -"},
        {&hf_kind_guard, "begin complete complete leave extend renew force info - - - - - - -"},
        {&hf_kind_read,
         "rw_acquire rw_release - rw_leave rw_extend rw_renew rw_force rw_info - - - - - - -"},
        {&hf_kind_write,
         "rw_acquire rw_release - rw_leave rw_extend rw_renew rw_force rw_info - - - - - - -"},
        {&hf_kind_fair, "fair_acquire fair_release - fair_leave fair_extend renew fair_force "
                        "fair_info - - - - - - -"},
        {&hf_kind_permit, "permit_acquire permit_release - permit_leave permit_extend permit_renew "
                          "- permit_info permit_set - - - - - -"},
        {&hf_kind_latch, "- - - - - - - - - - - latch_set latch_down latch_delete -"},
        {&hf_kind_plain_semaphore, "semaphore_acquire semaphore_release - semaphore_leave - - - - "
                                   "- - - semaphore_set - semaphore_delete semaphore_drain"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char programs[256] = "";
        for (int verb = 0; verb < HF_VERBS; verb++) {
            const hf_program *program = hf_kind_program(cases[i].kind, (hf_verb)verb);
            strcat(strcat(programs, verb > 0 ? " " : ""), program ? program->name : "-");
        }
        CHECK_STR(programs, cases[i].programs);
    }
}

/* Returns the traits as letters: r reentrant, a publishes_releases, f has_fingerprint, c
 * has_permits, j many_owners, l uses_list, w wraps_key, k may_be_kept, u
 * subscribes_to_channel_itself, t counts_our_subscribers, n has_call_notes. */
static const char *traits_of(const hf_kind *kind) {
    static char text[16];
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s%s%s%s%s", kind->reentrant ? "r" : "",
             kind->publishes_releases ? "a" : "", kind->has_fingerprint ? "f" : "",
             kind->has_permits ? "c" : "", kind->many_owners ? "j" : "", kind->uses_list ? "l" : "",
             kind->wraps_key ? "w" : "", kind->may_be_kept ? "k" : "",
             kind->subscribes_to_channel_itself ? "u" : "", kind->counts_our_subscribers ? "t" : "",
             kind->has_call_notes ? "n" : "");
    return text;
}

TEST(each_kind_of_lock_has_the_properties_that_the_test_lists) {
    static const struct {
        const hf_kind *kind;
        const char *name, *letter, *traits, *suffix, *channel;
        const hf_kind *reads, *writes;
    } rows[] = {
        {&hf_kind_lock, "lock", "l", "rak", NULL, NULL, NULL, NULL},
        {&hf_kind_mutex, "mutex", "m", "k", NULL, NULL, NULL, NULL},
        {&hf_kind_guard, "guard", "g", "af", NULL, NULL, NULL, NULL},
        {&hf_kind_read, "read", "r", "raj", NULL, "redisson_rwlock:", NULL, &hf_kind_write},
        {&hf_kind_write, "write", "w", "ra", ":write", "redisson_rwlock:", &hf_kind_read, NULL},
        {&hf_kind_permit, "permit", "p", "ac", NULL, "redisson_sc:", NULL, NULL},
        {&hf_kind_latch, "latch", "c", "awun", NULL, "redisson_countdownlatch__channel__", NULL,
         NULL},
        {&hf_kind_fair, "fair", "f", "ralu", NULL, NULL, NULL, NULL},
        {&hf_kind_plain_semaphore, "plain_semaphore", "s", "autn", NULL, "redisson_sc:", NULL,
         NULL},
    };
    size_t known = 0;
    while (hf_kinds[known]) known++;
    CHECK_EQ_INT(known, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < known; i++) {
        const hf_kind *kind = rows[i].kind;
        CHECK(hf_kinds[i] == kind && hf_kind_by_letter(rows[i].letter[0]) == kind);
        CHECK(hf_kind_by_name(rows[i].name) == kind);
        CHECK_STR(traits_of(kind), rows[i].traits);
        CHECK_STR(kind->owner_suffix ? kind->owner_suffix : "",
                  rows[i].suffix ? rows[i].suffix : "");
        CHECK_STR(kind->channel_prefix ? kind->channel_prefix : "",
                  rows[i].channel ? rows[i].channel : "");
        CHECK(kind->read_half == rows[i].reads && kind->write_half == rows[i].writes);
    }
    CHECK(!hf_kind_by_letter('x') && !hf_kind_by_name("x"));
}

CHECK_MAIN
