#include "base/buffer.h"

#include <stdlib.h>

#include "check.h"
#include "memerr.h"

static hf_buffer buffer;

static void clear(void) {
    hf_buffer_free(&buffer);
}

CHECK_AROUND(NULL, clear)

static bool content_is(const char *want) {
    return hf_slice_equal(hf_buffer_content(&buffer), hf_slice_of(want));
}

/* Random appends and consumes against a plain array that only grows. */
TEST(a_buffer_preserves_its_bytes_under_appends_and_reads_in_any_order) {
    enum { MOST = 200000 };
    char *model = malloc(MOST);
    size_t start = 0, end = 0;
    uint64_t random = 7;
    CHECK(model);
    while (end + 300 < MOST) {
        char piece[300];
        size_t size = (size_t)hf_jitter(&random, sizeof piece);
        for (size_t i = 0; i < size; i++) piece[i] = (char)hf_jitter(&random, 256);
        CHECK(hf_buffer_append(&buffer, piece, size));
        memcpy(model + end, piece, size);
        end += size;
        size_t taken = (size_t)hf_jitter(&random, hf_jitter(&random, 4) ? 310 : end - start + 1);
        if (taken > end - start) taken = end - start;
        hf_buffer_consume(&buffer, taken);
        start += taken;
        CHECK(hf_slice_equal(hf_buffer_content(&buffer), (hf_slice){model + start, end - start}));
    }
    free(model);
}

TEST(a_buffer_never_grows_beyond_its_size_limit) {
    char *bytes = calloc(1, HF_BUFFER_CAP);
    CHECK(bytes);
    CHECK(!hf_buffer_append(&buffer, bytes, HF_BUFFER_CAP + 1));
    CHECK_EQ_INT(hf_buffer_content(&buffer).size, 0);
    CHECK(hf_buffer_append(&buffer, bytes, HF_BUFFER_CAP));
    CHECK(!hf_buffer_append(&buffer, bytes, 1));
    CHECK_EQ_INT(hf_buffer_content(&buffer).size, HF_BUFFER_CAP);
    hf_buffer_consume(&buffer, 1), CHECK(hf_buffer_append(&buffer, bytes, 1));
    hf_buffer_free(&buffer);
    free(bytes);
}

TEST(a_failed_allocation_leaves_a_buffers_content_unchanged) {
    char bytes[2000];
    memset(bytes, 'x', sizeof bytes);
    memerr_fail(1), CHECK(!hf_buffer_append(&buffer, "abc", 3));
    memerr_fail(0), CHECK(hf_buffer_append(&buffer, "abc", 3));
    hf_buffer_consume(&buffer, 1);
    memerr_fail(1), CHECK(!hf_buffer_append(&buffer, bytes, sizeof bytes));
    memerr_fail(0), CHECK(content_is("bc")), CHECK(hf_buffer_append(&buffer, "d", 1));
    CHECK(content_is("bcd"));
}

CHECK_MAIN
