#include "base/types.h"

#include "check.h"

TEST(strings_are_compared_byte_by_byte) {
    CHECK(hf_slice_equal((hf_slice){"a\0b", 3}, (hf_slice){"a\0b", 3}));
    CHECK(!hf_slice_equal((hf_slice){"a\0b", 3}, (hf_slice){"a\0c", 3}));
    CHECK(!hf_slice_equal((hf_slice){"ab", 2}, (hf_slice){"abc", 3}));
    CHECK(hf_slice_equal((hf_slice){NULL, 0}, (hf_slice){"", 0}));
    CHECK(hf_slice_equal(hf_slice_of("abc"), (hf_slice){"abc", 3}));
    CHECK_EQ_INT(hf_slice_of("").size, 0);
}

TEST(seconds_are_printed_rounded_with_a_decimal_point) {
    char text[32];
    CHECK_STR(hf_seconds_text(text, 0, 1), "0.0");
    CHECK_STR(hf_seconds_text(text, 29 * HF_SECOND + 950 * HF_MS, 1), "30.0");
    CHECK_STR(hf_seconds_text(text, 29 * HF_SECOND + 949 * HF_MS, 1), "29.9");
    CHECK_STR(hf_seconds_text(text, 1500 * HF_MS, 3), "1.500");
    CHECK_STR(hf_seconds_text(text, 1042 * HF_MS + 499999, 3), "1.042");
    CHECK_STR(hf_seconds_text(text, 7, 9), "0.000000007");
}

TEST(words_are_compared_case_insensitively) {
    CHECK(hf_equal_ignoring_case("Host-1.I", "hOST-1.i"));
    CHECK(hf_equal_ignoring_case("", ""));
    CHECK(!hf_equal_ignoring_case("a", "ab"));
    CHECK(!hf_equal_ignoring_case("ab", "a"));
    CHECK(!hf_equal_ignoring_case("[", "{")); /* which differ as a letter and its capital do */
    CHECK(!hf_equal_ignoring_case("\xc4", "\xe4"));
}

TEST(generated_uuids_have_version_8) {
    char uuid[HF_UUID_SIZE + 1];
    unsigned char random[16];
    memset(random, 0xff, sizeof random);
    hf_uuid_format(uuid, random), CHECK_STR(uuid, "ffffffff-ffff-8fff-bfff-ffffffffffff");
    memset(random, 0, sizeof random);
    hf_uuid_format(uuid, random), CHECK_STR(uuid, "00000000-0000-8000-8000-000000000000");
    for (int i = 0; i < 16; i++) random[i] = (unsigned char)(i * 17);
    hf_uuid_format(uuid, random), CHECK_STR(uuid, "00112233-4455-8677-8899-aabbccddeeff");
}

TEST(random_jitter_with_a_bound_of_zero_or_one_is_zero) {
    uint64_t state = 42;
    CHECK_EQ_U64(hf_jitter(&state, 0), 0);
    CHECK_EQ_U64(hf_jitter(&state, 1), 0);
}

CHECK_MAIN
