#include "base/reply.h"

#include <stdlib.h>

#include "check.h"
#include "memerr.h"

static hf_reader reader;

/* The first reply in `bytes`; NULL when more is needed, or with *broken set when they are no reply.
 */
static hf_reply *read_bytes(const char *bytes, size_t size, bool *broken) {
    hf_reply *reply = NULL;
    *broken = !hf_reader_open(&reader) || !hf_reader_feed(&reader, bytes, size) ||
              !hf_reader_next(&reader, &reply);
    hf_reader_close(&reader);
    return reply;
}

static hf_reply *read_text(const char *text) {
    bool broken;
    return read_bytes(text, strlen(text), &broken);
}

static bool is_broken(const char *text) {
    bool broken;
    hf_reply_free(read_bytes(text, strlen(text), &broken));
    return broken;
}

TEST(replies_of_every_type_are_parsed) {
    CASES(const char *text; hf_reply_type type; const char *string; long long integer;
          size_t size) = {{"+OK\r\n", HF_REPLY_STATUS, "OK", 0, 2},
                          {"-ERR no\r\n", HF_REPLY_ERROR, "ERR no", 0, 6},
                          {":-42\r\n", HF_REPLY_INTEGER, NULL, -42, 0},
                          {"$-1\r\n", HF_REPLY_NIL, NULL, 0, 0},
                          {"*-1\r\n", HF_REPLY_NIL, NULL, 0, 0},
                          {"*0\r\n", HF_REPLY_ARRAY, NULL, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_reply *reply = read_text(cases[i].text);
        CHECK_OR(reply && reply->type == cases[i].type, "case %zu", i);
        CHECK_EQ_INT(reply->integer, cases[i].integer);
        CHECK_EQ_INT(reply->size, cases[i].size);
        if (cases[i].string) CHECK_STR(reply->string, cases[i].string);
        hf_reply_free(reply);
    }
    bool broken;
    hf_reply *reply = read_bytes("$4\r\na\0\r\n\r\n", 10, &broken);
    CHECK(reply && reply->type == HF_REPLY_STRING);
    CHECK_MEM(reply->string, reply->size, "a\0\r\n", 4);
    hf_reply_free(reply);
}

TEST(a_reply_that_announces_a_huge_array_allocates_nothing) {
    memerr_fail(0), CHECK(is_broken("*1000000000\r\n")), CHECK(is_broken("*4097\r\n"));
    CHECK(is_broken("*2147483648\r\n"));
    CHECK(is_broken("*9223372036854775807\r\n"));
    CHECK(is_broken("*99999999999999999999\r\n"));
    CHECK(memerr_count() < 200);
}

TEST(the_limit_on_a_replys_elements_applies_across_all_nesting_levels) {
    CHECK(!is_broken(printed("*%d\r\n", HF_REPLY_MAX_ELEMENTS)));
    CHECK(is_broken("*2\r\n*4095\r\n"));
    CHECK(!is_broken("*2\r\n*4094\r\n"));
    CHECK(is_broken("*2\r\n*1\r\n:1\r\n*4094\r\n"));
}

/* Reads an array of `count` strings of `size` bytes; false when the reader refuses. */
static bool reads_strings(int count, size_t size) {
    char head[64], *bytes = calloc(1, size + 1);
    hf_reply *reply = NULL;
    bool good = bytes && hf_reader_open(&reader);
    int head_size = snprintf(head, sizeof head, "*%d\r\n", count);
    good = good && hf_reader_feed(&reader, head, (size_t)head_size);
    for (int i = 0; good && i < count; i++) {
        head_size = snprintf(head, sizeof head, "$%zu\r\n", size);
        good = hf_reader_feed(&reader, head, (size_t)head_size) &&
               hf_reader_feed(&reader, bytes, size) && hf_reader_feed(&reader, "\r\n", 2) &&
               hf_reader_next(&reader, &reply);
    }
    good = good && reply;
    hf_reply_free(reply);
    hf_reader_close(&reader);
    free(bytes);
    return good;
}

TEST(the_limit_on_a_replys_bytes_applies_across_all_elements) {
    CHECK(reads_strings(1, HF_REPLY_MAX_BYTES));
    CHECK(!reads_strings(1, HF_REPLY_MAX_BYTES + 1));
    CHECK(reads_strings(4, HF_REPLY_MAX_BYTES / 4));
    CHECK(!reads_strings(4, HF_REPLY_MAX_BYTES / 4 + 1));
}

TEST(the_limits_on_elements_and_bytes_apply_to_each_reply_separately) {
    static char text[HF_REPLY_MAX_ELEMENTS * 4 + 16];
    int size = snprintf(text, sizeof text, "*%d\r\n", HF_REPLY_MAX_ELEMENTS);
    for (int i = 0; i < HF_REPLY_MAX_ELEMENTS; i++, size += 4) memcpy(text + size, ":1\r\n", 4);
    CHECK(hf_reader_open(&reader));
    for (int round = 0; round < 3; round++) {
        hf_reply *reply = NULL;
        CHECK(hf_reader_feed(&reader, text, (size_t)size));
        CHECK(hf_reader_next(&reader, &reply));
        CHECK(reply && reply->size == HF_REPLY_MAX_ELEMENTS);
        hf_reply_free(reply);
    }
    hf_reader_close(&reader);
}

TEST(a_reply_line_longer_than_the_limit_is_refused) {
    static char bytes[65536];
    hf_reply *reply = NULL;
    size_t fed = 0;
    memset(bytes, 'x', sizeof bytes);
    bytes[0] = '+';
    CHECK(hf_reader_open(&reader));
    bool good = true;
    for (; good && fed <= 2 * HF_REPLY_MAX_BYTES; fed += sizeof bytes) {
        good = hf_reader_feed(&reader, bytes, sizeof bytes) && hf_reader_next(&reader, &reply);
        CHECK(!reply);
        bytes[0] = 'x';
    }
    CHECK(!good);
    hf_reader_close(&reader);
}

TEST(integers_and_strings_can_be_read_from_a_replys_array_elements) {
    hf_reply *reply =
        read_text("*7\r\n:5\r\n$2\r\n-7\r\n$0\r\n\r\n$2\r\n5x\r\n$-1\r\n+st\r\n*0\r\n");
    CHECK(reply);
    CHECK_EQ_INT(hf_reply_integer_at(reply, 0, 99), 5);
    CHECK_EQ_INT(hf_reply_integer_at(reply, 1, 99), -7);
    for (size_t i = 2; i < 9; i++) CHECK_EQ_INT(hf_reply_integer_at(reply, i, 99), 99);
    CHECK_EQ_INT(hf_reply_string_at(reply, 0).size, 0);
    CHECK(hf_slice_equal(hf_reply_string_at(reply, 1), hf_slice_of("-7")));
    CHECK(hf_slice_equal(hf_reply_string_at(reply, 5), hf_slice_of("st")));
    CHECK(hf_reply_string_at(reply, 4).data && hf_reply_string_at(reply, 4).size == 0);
    CHECK_EQ_INT(hf_reply_string_at(reply, 9).size, 0);
    hf_reply_free(reply);
    CHECK_EQ_INT(hf_reply_integer_at(NULL, 0, 99), 99);
    CHECK_EQ_INT(hf_reply_string_at(NULL, 0).size, 0);
    reply = read_text(":5\r\n"), CHECK_EQ_INT(hf_reply_integer_at(reply, 0, 99), 99);
    hf_reply_free(reply);
}

static bool same(const hf_reply *a, const hf_reply *b) {
    if (a->type != b->type || a->integer != b->integer || a->size != b->size) return false;
    if (a->string && memcmp(a->string, b->string, a->size + 1) != 0) return false;
    for (size_t i = 0; a->type == HF_REPLY_ARRAY && i < a->size; i++) {
        if (!same(a->elements[i], b->elements[i])) return false;
    }
    return true;
}

static bool copy_whole(void *context) {
    hf_reply *copy = hf_reply_copy(context);
    bool whole = copy && same(context, copy);
    hf_reply_free(copy);
    return whole;
}

TEST(copying_a_reply_survives_each_failed_allocation) {
    static const char bytes[] = "*5\r\n$3\r\na\0b\r\n*2\r\n:1\r\n$-1\r\n-E\r\n*0\r\n+OK\r\n";
    bool broken;
    hf_reply *reply = read_bytes(bytes, sizeof bytes - 1, &broken);
    CHECK(reply);
    CHECK(memerr_until_success(copy_whole, reply, 100) > 10);
    hf_reply_free(reply);
}

static bool read_nested(void *context) {
    (void)context;
    hf_reply *reply = read_text("*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n-E\r\n");
    bool good = reply && reply->elements[1]->elements[0]->integer == 1;
    hf_reply_free(reply);
    return good;
}

TEST(parsing_replies_survives_each_failed_allocation) {
    CHECK(memerr_until_success(read_nested, NULL, 100) > 8);
}

TEST(parsing_survives_random_mutations_of_replies) {
    static const char good[] = "*3\r\n:1\r\n$3\r\nabc\r\n*2\r\n+OK\r\n-ERR x\r\n$-1\r\n:12\r\n";
    static const char letters[] = "*$+-:\r\n0123456789ax,#_(=%~>";
    uint64_t random = 11;
    for (int round = 0; round < 20000; round++) {
        char bytes[sizeof good];
        memcpy(bytes, good, sizeof good);
        for (uint64_t n = 1 + hf_jitter(&random, 3); n > 0; n--) {
            bytes[hf_jitter(&random, sizeof good - 1)] =
                letters[hf_jitter(&random, sizeof letters - 1)];
        }
        hf_reply *reply;
        CHECK(hf_reader_open(&reader));
        CHECK(hf_reader_feed(&reader, bytes, sizeof good - 1));
        while (hf_reader_next(&reader, &reply) && reply) hf_reply_free(reply);
        hf_reader_close(&reader);
    }
}

CHECK_MAIN
