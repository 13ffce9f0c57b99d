#include "lock/wire.h"

#include <stdlib.h>

#include "base/reply.h"
#include "check.h"
#include "memerr.h"
#include "names_of.h"

/* ---- replies ---- */

static hf_reply *reply_of(const char *bytes) {
    hf_reader reader;
    hf_reply *reply = NULL;
    bool read = hf_reader_open(&reader) && hf_reader_feed(&reader, bytes, strlen(bytes)) &&
                hf_reader_next(&reader, &reply);
    hf_reader_close(&reader);
    if (!read || !reply) abort();
    return reply;
}

TEST(queue_entries_are_parsed_and_malformed_ones_refused) {
    CASES(const char *text, *kind, *waiter, *owner) =
        LIST({"1lu-1:7:0", "lock", "u-1:7", "u-1:7"},
             {"1pu-1:07:86400000 u-1:7*3", "permit", "u-1:07", "u-1:7*3"},
             {"1gu:7:1 a name with spaces", "guard", "u:7", "a name with spaces"},
             {"2lu-1:7:0", NULL, NULL, NULL}, {"1xu-1:7:0", NULL, NULL, NULL},
             {"1lu-1:7", NULL, NULL, NULL}, {"1lu-1:seven:0", NULL, NULL, NULL},
             {"1lu-1:7:", NULL, NULL, NULL}, {"1", NULL, NULL, NULL}, {"", NULL, NULL, NULL});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_waiter read;
        bool fits = hf_wire_read_waiter(hf_slice_of(cases[i].text), &read);
        CHECK_EQ_INT(fits, cases[i].kind != NULL);
        if (!fits || !cases[i].kind) continue;
        CHECK_STR(read.kind->name, cases[i].kind);
        CHECK_MEM(read.waiter.data, read.waiter.size, cases[i].waiter, strlen(cases[i].waiter));
        CHECK_MEM(read.owner.data, read.owner.size, cases[i].owner, strlen(cases[i].owner));
    }
}

TEST(published_waits_are_parsed_and_malformed_ones_refused) {
    static const char *const broken[] = {
        "", "12", "x u:7 l k", "12 u:7 l", "12 u:7 ll k", "12 u:7 x k", "12  l k"};
    hf_waiter read;
    CHECK(hf_wire_read_wait(hf_slice_of("12 u:7 w a key"), &read));
    CHECK_EQ_U64(read.since, 12);
    CHECK(read.kind == &hf_kind_write);
    CHECK_MEM(read.waiter.data, read.waiter.size, "u:7", 3);
    CHECK_MEM(read.key.data, read.key.size, "a key", 5);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        CHECK_OR(!hf_wire_read_wait(hf_slice_of(broken[i]), &read), "\"%s\"", broken[i]);
}

TEST(replies_to_an_acquire_are_parsed_and_malformed_ones_refused) {
    CASES(const char *bytes; hf_acquire_reply answer) = {
        {"*4\r\n:1\r\n:7\r\n:2\r\n:9\r\n",
         {HF_VERDICT_YES, .number = 7, .others = 2, .server_us = 9, .ahead = -1}},
        {"*5\r\n:1\r\n:7\r\n:2\r\n:9\r\n:12\r\n",
         {HF_VERDICT_YES, .number = 7, .others = 2, .server_us = 9, .last_token = 12, .ahead = -1}},
        {"*2\r\n:1\r\n:7\r\n", {HF_VERDICT_YES, .number = 7, .ahead = -1}},
        {"*1\r\n:1\r\n", {HF_VERDICT_YES, .ahead = -1}},
        {"*5\r\n:0\r\n:500\r\n:3\r\n:1\r\n$1\r\n5\r\n",
         {HF_VERDICT_BUSY, .ttl_ms = 500, .ahead = 3, .holder_is_foreign = true,
          .place = {"5", 1}}},
        {"*4\r\n:0\r\n:500\r\n:3\r\n:2\r\n", {HF_VERDICT_BUSY, .ttl_ms = 500, .ahead = 3}},
        {"*1\r\n:0\r\n", {HF_VERDICT_BUSY, .ahead = 0}},
        {"*2\r\n:2\r\n:3\r\n", {HF_VERDICT_STILL_HELD, .number = 3, .ahead = -1}},
        {"*1\r\n:2\r\n", {HF_VERDICT_STILL_HELD, .ahead = -1}},
        {"*2\r\n:3\r\n$3\r\nold\r\n", {HF_VERDICT_ALREADY_DONE, .record = {"old", 3}, .ahead = -1}},
        {"*1\r\n:3\r\n", {HF_VERDICT_ALREADY_DONE, .ahead = -1}},
        {"*1\r\n:4\r\n", {HF_VERDICT_MISMATCH, .ahead = -1}},
        {"*1\r\n:-1\r\n", {HF_VERDICT_DELETED, .ahead = -1}},
        {"*1\r\n:-2\r\n", {HF_VERDICT_TAKEN, .ahead = -1}},
        {"*1\r\n:-3\r\n", {HF_VERDICT_NO_TTL, .ahead = -1}},
        {"*1\r\n:-4\r\n", {HF_VERDICT_NEWER_FORMAT, .ahead = -1}},
        {"*2\r\n:-5\r\n:6\r\n", {HF_VERDICT_TOO_MANY, .number = 6, .ahead = -1}},
        {"*2\r\n:-6\r\n$4\r\nlock\r\n", {HF_VERDICT_OTHER_KIND, .ahead = -1, .found = "a lock"}},
        {"*2\r\n:-6\r\n$5\r\nguard\r\n",
         {HF_VERDICT_OTHER_KIND, .ahead = -1, .found = "a guard (idempotent)"}},
        {"*2\r\n:-6\r\n$10\r\nread_write\r\n",
         {HF_VERDICT_OTHER_KIND, .ahead = -1, .found = "a read/write lock"}},
        {"*1\r\n:-6\r\n", {HF_VERDICT_OTHER_KIND, .ahead = -1, .found = "another kind of lock"}},
        {":2147483648\r\n", {HF_VERDICT_YES, .number = 2147483648, .ahead = -1}},
        {":1700000000000000\r\n", {HF_VERDICT_YES, .number = 1700000000000000, .ahead = -1}},
        {":9007199254740984\r\n", {HF_VERDICT_YES, .number = 9007199254740984, .ahead = -1}},
    };
    static const char *const malformed[] = LIST(
        "*1\r\n:5\r\n", "*1\r\n:-7\r\n", "*0\r\n", ":0\r\n", ":1\r\n", ":77\r\n",
        ":9007199254740991\r\n", ":9223372036854775800\r\n", ":-1\r\n", "$1\r\n1\r\n", "$-1\r\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_reply *reply = reply_of(cases[i].bytes);
        hf_acquire_reply got = hf_wire_read_acquire(reply, true), want = cases[i].answer;
        CHECK_OR(got.verdict == want.verdict, "case %zu: verdict %d", i, (int)got.verdict);
        CHECK_EQ_INT(got.number, want.number);
        CHECK_EQ_INT(got.others, want.others);
        CHECK_EQ_INT(got.server_us, want.server_us);
        CHECK_EQ_INT(got.last_token, want.last_token);
        CHECK_EQ_INT(got.ttl_ms, want.ttl_ms);
        CHECK_EQ_INT(got.ahead, want.ahead);
        CHECK_EQ_INT(got.holder_is_foreign, want.holder_is_foreign);
        CHECK(hf_slice_equal(got.place, want.place));
        CHECK(hf_slice_equal(got.record, want.record));
        CHECK_STR(got.found ? got.found : "", want.found ? want.found : "");
        hf_reply_free(reply);
    }
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        hf_reply *reply = reply_of(malformed[i]);
        CHECK_OR(hf_wire_read_acquire(reply, true).verdict == HF_VERDICT_UNEXPECTED, "%s",
                 malformed[i]);
        hf_reply_free(reply);
    }
}

TEST(replies_to_an_acquire_of_several_locks_are_parsed) {
    CASES(const char *bytes; hf_verdict verdict; long long i; const char *has) = {
        {"*3\r\n:1\r\n:11\r\n:12\r\n", HF_VERDICT_YES, 11, NULL},
        {"*2\r\n:0\r\n:2\r\n", HF_VERDICT_BUSY, 2, NULL},
        {"*1\r\n:0\r\n", HF_VERDICT_BUSY, 0, NULL},
        {"*2\r\n:-2\r\n:1\r\n", HF_VERDICT_TAKEN, 1, NULL},
        {"*3\r\n:-6\r\n:1\r\n$5\r\nguard\r\n", HF_VERDICT_OTHER_KIND, 1, "a guard (idempotent)"},
        {"*2\r\n:-6\r\n:1\r\n", HF_VERDICT_OTHER_KIND, 1, "another kind of lock"},
        {"*0\r\n", HF_VERDICT_UNEXPECTED, 0, NULL},
        {"*3\r\n:1\r\n:11\r\n:9007199254740991\r\n", HF_VERDICT_YES, 11, NULL},
        {"*3\r\n:1\r\n:11\r\n:9007199254740992\r\n", HF_VERDICT_UNEXPECTED, 11, NULL},
        {"*3\r\n:1\r\n:11\r\n:-1\r\n", HF_VERDICT_UNEXPECTED, 11, NULL},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        long long i = -1;
        hf_reply *reply = reply_of(cases[n].bytes);
        const char *has = NULL;
        CHECK_EQ_INT(hf_wire_read_acquire_all(reply, &i, &has), cases[n].verdict);
        CHECK_EQ_INT(i, cases[n].i);
        if (cases[n].has) CHECK_STR(has, cases[n].has);
        hf_reply_free(reply);
    }
    hf_reply *reply = reply_of("*3\r\n:1\r\n:11\r\n:12\r\n");
    CHECK_EQ_U64(hf_wire_token_at(reply, 0), 11);
    CHECK_EQ_U64(hf_wire_token_at(reply, 1), 12);
    CHECK_EQ_U64(hf_wire_token_at(reply, 2), 0);
    hf_reply_free(reply);
}

TEST(status_replies_of_the_other_server_scripts_are_parsed) {
    CASES(long long status; hf_verdict verdict) = {
        {0, HF_VERDICT_BUSY},         {1, HF_VERDICT_YES},         {2, HF_VERDICT_STILL_HELD},
        {3, HF_VERDICT_NEEDS_LEAVE},  {4, HF_VERDICT_UNEXPECTED},  {-1, HF_VERDICT_DELETED},
        {-2, HF_VERDICT_TAKEN},       {-3, HF_VERDICT_UNEXPECTED}, {99, HF_VERDICT_UNEXPECTED},
        {100, HF_VERDICT_UNEXPECTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char bytes[64];
        snprintf(bytes, sizeof bytes, "*2\r\n:7\r\n:%lld\r\n", cases[i].status);
        hf_reply *several = reply_of(bytes);
        snprintf(bytes, sizeof bytes, ":%lld\r\n", cases[i].status);
        hf_reply *one = reply_of(bytes);
        CHECK_EQ_INT(hf_wire_read_verdict(one), cases[i].verdict);
        CHECK_EQ_INT(hf_wire_read_verdict_at(one, 0), cases[i].verdict);
        CHECK_EQ_INT(hf_wire_read_verdict_at(several, 0), HF_VERDICT_UNEXPECTED);
        CHECK_EQ_INT(hf_wire_read_verdict_at(several, 1), cases[i].verdict);
        CHECK_EQ_INT(hf_wire_read_verdict_at(several, 2), HF_VERDICT_UNEXPECTED);
        hf_reply_free(one);
        hf_reply_free(several);
    }
}

TEST(impossible_numbers_in_replies_are_replaced_by_the_nearest_limit) {
    static const char MOST[] = ":9223372036854775807\r\n", LEAST[] = ":-9223372036854775808\r\n";
    char bytes[256];
    hf_lock_info info;
    snprintf(bytes, sizeof bytes, "*6\r\n$2\r\nme\r\n%s%s%s%s%s", MOST, LEAST, LEAST, MOST, MOST);
    hf_reply *reply = reply_of(bytes);
    hf_wire_read_info(reply, &info);
    hf_reply_free(reply);
    CHECK_EQ_INT(info.holds, 1LL << 53);
    CHECK_EQ_INT(info.ttl_ms, -(1LL << 53));
    CHECK_EQ_U64(info.token, 0);
    CHECK_EQ_INT(info.ahead, 1LL << 53);
    snprintf(bytes, sizeof bytes, "*4\r\n:1\r\n%s%s%s", MOST, LEAST, MOST);
    reply = reply_of(bytes);
    hf_acquire_reply answer = hf_wire_read_acquire(reply, true);
    hf_reply_free(reply);
    CHECK_EQ_INT(answer.server_us, 1LL << 53);
    CHECK_EQ_INT(answer.others, -(1LL << 53));
}

TEST(a_lone_number_is_the_reply_to_an_acquire_only_if_it_can_be_its_token) {
    CASES(const char *bytes; hf_verdict without, with) = {
        {":0\r\n", HF_VERDICT_YES, HF_VERDICT_UNEXPECTED},
        {":8\r\n", HF_VERDICT_UNEXPECTED, HF_VERDICT_YES},
        {":9007199254740984\r\n", HF_VERDICT_UNEXPECTED, HF_VERDICT_YES}, /* the last token */
        {":9007199254740992\r\n", HF_VERDICT_UNEXPECTED, HF_VERDICT_UNEXPECTED},
        {":9223372036854775800\r\n", HF_VERDICT_UNEXPECTED, HF_VERDICT_UNEXPECTED},
        {":-8\r\n", HF_VERDICT_UNEXPECTED, HF_VERDICT_UNEXPECTED},
        {"*2\r\n:1\r\n:0\r\n", HF_VERDICT_YES, HF_VERDICT_YES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_reply *reply = reply_of(cases[i].bytes);
        CHECK_EQ_INT(hf_wire_read_acquire(reply, false).verdict, cases[i].without);
        CHECK_EQ_INT(hf_wire_read_acquire(reply, true).verdict, cases[i].with);
        hf_reply_free(reply);
    }
}

TEST(replies_to_info_are_parsed_and_an_empty_one_describes_a_free_lock) {
    hf_lock_info info;
    hf_reply *reply =
        reply_of("*10\r\n$2\r\nme\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n");
    hf_wire_read_info(reply, &info), CHECK_MEM(info.owner, info.owner_size, "me", 2);
    CHECK_EQ_INT(info.holds, 1);
    CHECK_EQ_INT(info.ttl_ms, 2);
    CHECK_EQ_U64(info.token, 3);
    CHECK_EQ_INT(info.waiters, 4);
    CHECK_EQ_INT(info.ahead, 5);
    CHECK_EQ_INT(info.readers, 6);
    CHECK_EQ_INT(info.free, 7);
    CHECK_EQ_INT(info.clock_us, 8);
    CHECK_EQ_INT(info.waited_us, 9);
    hf_reply_free(reply);
    reply = reply_of("*0\r\n");
    memset(&info, 0, sizeof info);
    hf_wire_read_info(reply, &info), CHECK_EQ_INT(info.owner_size, 0), CHECK_EQ_INT(info.holds, 0);
    CHECK_EQ_INT(info.ttl_ms, -2);
    CHECK_EQ_U64(info.token, 0);
    CHECK_EQ_INT(info.waiters, 0);
    CHECK_EQ_INT(info.ahead, -1);
    CHECK_EQ_INT(info.readers, -1);
    CHECK_EQ_INT(info.free, 0);
    CHECK_EQ_INT(info.clock_us, 0);
    CHECK_EQ_INT(info.waited_us, -1);
    hf_reply_free(reply);
}

TEST(an_owner_in_an_info_reply_that_is_too_long_is_truncated) {
    char bytes[HF_OWNER_MAX + 64];
    hf_lock_info info;
    for (int size = HF_OWNER_MAX - 1; size <= HF_OWNER_MAX + 1; size++) {
        int at = snprintf(bytes, sizeof bytes, "*1\r\n$%d\r\n", size);
        memset(bytes + at, 'o', (size_t)size);
        snprintf(bytes + at + size, sizeof bytes - (size_t)(at + size), "\r\n");
        hf_reply *reply = reply_of(bytes);
        hf_wire_read_info(reply, &info);
        CHECK_EQ_INT(info.owner_size, size < HF_OWNER_MAX ? size : HF_OWNER_MAX);
        hf_reply_free(reply);
    }
}

#define UUID "00010203-0405-8607-8809-0a0b0c0d0e0f"

TEST(owners_and_queue_entries_are_written_in_the_documented_format) {
    char text[HF_WAITER_SIZE];
    size_t size = hf_wire_owner(text, &hf_kind_lock, UUID, 12);
    CHECK_MEM(text, size, UUID ":12", 39);
    size = hf_wire_owner(text, &hf_kind_write, UUID, 12);
    CHECK_MEM(text, size, UUID ":12:write", 45);
    size = hf_wire_permits_owner(text, UUID, 3, 1), CHECK_MEM(text, size, UUID ":3", 38);
    size = hf_wire_permits_owner(text, UUID, 3, 2), CHECK_MEM(text, size, UUID ":3*2", 40);
    size = hf_wire_waiter(text, &hf_kind_mutex, UUID, 4, 1000, false, HF_NO_TEXT);
    CHECK_MEM(text, size, "1m" UUID ":4:1000", 45);
    size = hf_wire_waiter(text, &hf_kind_lock, UUID, 4, 1000, false, hf_slice_of("job"));
    CHECK_MEM(text, size, "1l" UUID ":4:1000 job", 49);
}

/* ---- messages ---- */

/* A message in words; the slices as they are. */
static const char *in_words(const char *text) {
    static char words[256];
    hf_message message = hf_wire_read_message(hf_slice_of(text));
    switch (message.type) {
    case HF_MESSAGE_NONE: return "none";
    case HF_MESSAGE_WANTED:
        snprintf(words, sizeof words, "wish of %llu", (unsigned long long)message.number);
        return words;
    case HF_MESSAGE_WINDOW:
    case HF_MESSAGE_RECHECK:
        snprintf(words, sizeof words, "%s of %llu in %llu ms",
                 message.type == HF_MESSAGE_WINDOW ? "window" : "recheck",
                 (unsigned long long)message.number, (unsigned long long)(message.delay / HF_MS));
        return words;
    default: break;
    }
    int size = 0;
    do {
        size += snprintf(words + size, sizeof words - (size_t)size, "%llu at %.*s, ",
                         (unsigned long long)message.number, (int)message.place.size,
                         message.place.data);
    } while (hf_wire_next_grant(&message));
    if (message.keeps)
        size += snprintf(words + size, sizeof words - (size_t)size, "kept up to %llu, ",
                         (unsigned long long)message.last_token);
    snprintf(words + size, sizeof words - (size_t)size, "%s, token %llu, %llu ms, key %.*s",
             message.kind->name, (unsigned long long)message.token,
             (unsigned long long)(message.lease / HF_MS), (int)message.key.size, message.key.data);
    return words;
}

TEST(messages_of_the_grant_channel_are_parsed_and_malformed_ones_refused) {
    CASES(const char *text, *words) = {
        {"1 grant l 3 5 77 2000 a key", "3 at 5, lock, token 77, 2000 ms, key a key"},
        {"1 grant m 10 x 0 0 k", "10 at x, mutex, token 0, 0 ms, key k"},
        {"1 grant l 3 5 77 2000 ", "3 at 5, lock, token 77, 2000 ms, key "},
        {"1 grant l 18446744073709551615 5 1 1 k",
         "18446744073709551615 at 5, lock, token 1, 1 ms, key k"},
        {"1 grant l 18446744073709551616 5 1 1 k",
         "18446744073709551615 at 5, lock, token 1, 1 ms, key k"},
        {"1 grant l 18446744073709551619 5 1 1 k",
         "18446744073709551615 at 5, lock, token 1, 1 ms, key k"},
        {"1 grant l 99999999999999999999 5 1 1 k",
         "18446744073709551615 at 5, lock, token 1, 1 ms, key k"},
        {"1 grant l 03 5 77-99 2000 k", "3 at 5, kept up to 99, lock, token 77, 2000 ms, key k"},
        {"1 grant l 03 5 77 2000 k", "3 at 5, kept up to 0, lock, token 77, 2000 ms, key k"},
        {"1 grant l 3 5 9007199254740991 2000 k",
         "3 at 5, lock, token 9007199254740991, 2000 ms, key k"},
        {"1 grant l 3 5 9007199254740992 2000 k", "3 at 5, lock, token 0, 2000 ms, key k"},
        {"1 grant l 3 5 99999999999999999999 2000 k", "3 at 5, lock, token 0, 2000 ms, key k"},
        {"1 grant l 03 5 77-9007199254740992 2000 k",
         "3 at 5, kept up to 0, lock, token 0, 2000 ms, key k"},
        {"1 grants r 9007199254740992 2000 1 3 a k", "3 at a, read, token 0, 2000 ms, key k"},
        {"1 wish 3", "wish of 3"},
        {"1 grants r 77 2000 2 3 a 4 b a key",
         "3 at a, 4 at b, read, token 77, 2000 ms, key a key"},
        {"1 grants r 77 2000 1 3 a k", "3 at a, read, token 77, 2000 ms, key k"},
        {"1 grant l 3 5 77 18446744073709551615 k",
         "3 at 5, lock, token 77, 18446744073709 ms, key k"}, /* HF_NEVER */
        {"1 wish 1844674407370955161", "wish of 1844674407370955161"},
        {"1 wish 18446744073709551614", "wish of 18446744073709551614"},
        {"1 turn 3 50", "window of 3 in 50 ms"},
        {"1 turn 3", "window of 3 in 0 ms"},
        {"1 recheck 3", "recheck of 3 in 0 ms"},
        {"1 recheck 3 20", "recheck of 3 in 20 ms"},
    };
    static const char *const malformed[] =
        LIST("1 grant l 03 5 77- 2000 k", "1 grant l 03 5 77-x 2000 k", "1 grant l 03 5 -99 2000 k",
             "1 grant l", "1 grant l 0", "1 wish", "1 wish x", "1 grant ? 3 5 77 2000 k",
             "1 grant lm 3 5 77 2000 k", "1 grant  3 5 77 2000 k", "1 grant l x 5 77 2000 k",
             "1 grant l 3: 5 77 2000 k", "1 grant l 3/ 5 77 2000 k", "1 grant l  5 77 2000 k",
             "1 grant l 3 5 x 2000 k", "1 grant l 3 5 77 x k", "1 grant l 3 5 77",
             "2 grant l 3 5 77 2000 k", "1 grants r 77 2000 0 k", "1 grants r 77 2000 2 3 a k",
             "1 grants r 77 2000 x 3 a k", "1 grants r 77 x 1 3 a k", "1 grants r x 2000 1 3 a k",
             "1 grants ? 77 2000 1 3 a k", "1 grants rr 77 2000 1 3 a k", "1 recheck x",
             "1 other 3", "1 turn", "1", "", "10 turn 3 50");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STR(in_words(cases[i].text), cases[i].words);
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        CHECK_OR(strcmp(in_words(malformed[i]), "none") == 0, "\"%s\"", malformed[i]);
}

/* The first byte behind a message is nobody's. */
TEST(parsing_a_message_reads_nothing_past_its_end) {
    static const char *const messages[] = {"1 grant l 03 5 77-99 2000 a key",
                                           "1 grants r 77 2000 2 3 a 4 b a key", "1 recheck 3 20",
                                           "1 wish 3"};
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        for (size_t size = 0; size <= strlen(messages[i]); size++) {
            char *exact = malloc(size > 0 ? size : 1);
            if (!exact) abort();
            memcpy(exact, messages[i], size);
            hf_message message = hf_wire_read_message((hf_slice){exact, size});
            CHECK(message.type == HF_MESSAGE_GRANT || message.more == 0);
            free(exact);
        }
    }
}

/* ---- memory ---- */

#define PLACES 3

static hf_names names[PLACES];
static const hf_slice owners[PLACES] = {{"me", 2}, {"you", 3}, {"they", 4}};
static const hf_time leases[PLACES] = {HF_SECOND, 2 * HF_SECOND, 3 * HF_SECOND};

static hf_wire_lock lock_of(const hf_kind *kind) {
    return (hf_wire_lock){kind, &names[0], owners[0], 2 * HF_SECOND};
}

static bool note(hf_request *request) {
    hf_wire_lock lock = lock_of(&hf_kind_latch);
    return hf_wire_call_with_note(request, &lock, HF_VERB_COUNT_DOWN, 1, HF_SECOND, false);
}

static bool forget(hf_request *request) {
    hf_wire_lock lock = lock_of(&hf_kind_latch);
    return hf_wire_forget_note(request, &lock);
}

static bool renew(hf_request *request, const hf_kind *kind) {
    const hf_slice keys[PLACES] = {names[0].key, names[1].key, names[2].key};
    return (kind->has_permits ? hf_wire_renew_permits : hf_wire_renew)(request, kind, PLACES, keys,
                                                                       owners, leases);
}

static bool renew_locks(hf_request *request) {
    return renew(request, &hf_kind_lock);
}

static bool renew_reads(hf_request *request) {
    return renew(request, &hf_kind_read);
}

static bool renew_writes(hf_request *request) {
    return renew(request, &hf_kind_write);
}

static bool renew_permits(hf_request *request) {
    return renew(request, &hf_kind_permit);
}

static void make_each(hf_wire_batch_lock each[PLACES]) {
    for (size_t i = 0; i < PLACES; i++)
        each[i] = (hf_wire_batch_lock){&names[i], owners[i], (uint32_t)i, leases[i]};
}

static bool acquire_all(hf_request *request) {
    hf_wire_batch_lock each[PLACES];
    make_each(each);
    return hf_wire_acquire_all(request, &hf_kind_lock, PLACES, each, 2 * HF_SECOND, 30 * HF_SECOND,
                               1000);
}

static bool release_all(hf_request *request) {
    hf_wire_batch_lock each[PLACES];
    make_each(each);
    return hf_wire_release_all(request, &hf_kind_lock, PLACES, each, 2 * HF_SECOND);
}

static void make_names(void) {
    static const char *const keys[PLACES] = {"a", "b", "c"};
    for (size_t i = 0; i < PLACES; i++) {
        if (!hf_names_make(&names[i], hf_slice_of(keys[i]))) abort();
    }
}

static void free_names(void) {
    for (size_t i = 0; i < PLACES; i++) hf_names_free(&names[i]);
}

TEST(encoding_a_command_reports_a_failed_allocation) {
    static bool (*const encoders[])(hf_request *) = {
        note,         forget,        renew_locks, renew_reads,
        renew_writes, renew_permits, acquire_all, release_all,
    };
    make_names();
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++) {
        EACH_FAILURE(nth, 1) {
            hf_request request = {0};
            memerr_fail(nth);
            bool made = encoders[i](&request);
            CHECK_OR(made == !memerr_end(), "encoder %zu, allocation %lu", i, nth);
            CHECK((request.bytes != NULL) == made);
            hf_request_clear(&request);
        }
    }
    free_names();
}

/* The arguments behind the program, separated by spaces. */
static const char *arguments_of(const hf_request *request) {
    static char text[2048];
    const char *at = memchr(request->bytes, '\n', request->size) + 1;
    char *out = text;
    for (int i = 0; at < request->bytes + request->size; i++) {
        char *end;
        size_t size = strtoul(at + 1, &end, 10);
        if (i > 2) *out++ = ' ';
        if (i > 1) {
            memcpy(out, end + 2, size);
            out += size;
        }
        at = end + 2 + size + 2;
    }
    *out = '\0';
    return text;
}

TEST(renewals_and_releases_of_several_locks_are_encoded) {
    CASES(bool (*encode)(hf_request *); const char *arguments) = {
        {renew_locks, "3 a b c me 1000 you 2000 they 3000"},
        {renew_reads, "6 a {a}:me:rwlock_timeout:1 b {b}:you:rwlock_timeout:1 "
                      "c {c}:they:rwlock_timeout:1 me 1000 you 2000 they 3000"},
        {renew_writes, "6 a a b b c c me 1000 you 2000 they 3000"},
        {renew_permits, "3 {a}:timeout {b}:timeout {c}:timeout me 1000 you 2000 they 3000"},
    };
    static const char each_of_three[] = " me 0 1000 you 1 2000 they 2 3000";
    hf_request request = {0};
    make_names();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(cases[i].encode(&request));
        CHECK_STR(arguments_of(&request), cases[i].arguments);
    }
    CHECK(release_all(&request));
    const char *text = arguments_of(&request);
    CHECK_STR(text + strlen(text) - (sizeof each_of_three - 1), each_of_three);
    hf_request_clear(&request);
    free_names();
}

/* ---- calls that leave out what is usual ---- */

/* What is sent behind the keys of lock "a". */
static const char *behind_keys(hf_request *request, bool made) {
    static const char last_key[] = "redisson_lock__channel:{a} ";
    if (!made) abort();
    const char *text = strstr(arguments_of(request), last_key);
    hf_request_clear(request);
    return text ? text + sizeof last_key - 1 : "no such key";
}

static const char *acquire_sent(const hf_wire_lock *lock, const hf_wire_acquire *acquire) {
    hf_request request = {0};
    return behind_keys(&request, hf_wire_acquire_call(&request, lock, acquire));
}

static const char *release_sent(const hf_wire_lock *lock, uint32_t to, uint32_t own) {
    hf_request request = {0};
    return behind_keys(&request,
                       hf_wire_release(&request, lock, to, 3 * HF_SECOND, own, HF_NO_TEXT));
}

TEST(an_acquire_is_sent_with_short_arguments_only_in_the_usual_case) {
    CASES(const hf_kind *kind; const char *waiter, *sent; hf_time grant_lease; uint64_t floor;
          uint32_t from; bool shared) =
        LIST({&hf_kind_lock, "", "me 30000 1000", 2 * HF_SECOND, 0, 0, false},
             {&hf_kind_mutex, "", "me 30000 1000", 2 * HF_SECOND, 0, 0, false},
             {&hf_kind_guard, "", "me 2000 0 0 30000 1000  ", 2 * HF_SECOND, 0, 0, false},
             {&hf_kind_lock, "", "me 1999 0 0 30000 1000 ", 1999 * HF_MS, 0, 0, false},
             {&hf_kind_lock, "w", "me 2000 0 0 30000 1000 w", 2 * HF_SECOND, 0, 0, false},
             {&hf_kind_lock, "", "me 2000 0 0 30000 1000   7", 2 * HF_SECOND, 7, 0, false},
             {&hf_kind_lock, "", "me 2000 1 0 30000 1000 ", 2 * HF_SECOND, 0, 1, false},
             {&hf_kind_lock, "", "me 2000 0 1 30000 1000 ", 2 * HF_SECOND, 0, 0, true});
    make_names();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_wire_lock lock = lock_of(cases[i].kind);
        lock.grant_lease = cases[i].grant_lease;
        hf_wire_acquire acquire = {.holds_before = cases[i].from,
                                   .shared = cases[i].shared,
                                   .lease = 30 * HF_SECOND,
                                   .token_ttl_ms = 1000,
                                   .waiter = hf_slice_of(cases[i].waiter),
                                   .fingerprint = HF_NO_TEXT,
                                   .token_floor = cases[i].floor,
                                   .writer = HF_NO_TEXT};
        CHECK_STR(acquire_sent(&lock, &acquire), cases[i].sent);
    }
    free_names();
}

TEST(a_release_is_sent_with_short_arguments_only_in_the_usual_case) {
    make_names();
    hf_wire_lock lock = lock_of(&hf_kind_lock), mutex = lock_of(&hf_kind_mutex);
    CHECK_STR(release_sent(&lock, 0, HF_WIRE_NOT_SHARED), "me");
    CHECK_STR(release_sent(&mutex, 0, HF_WIRE_NOT_SHARED), "me");
    CHECK_STR(release_sent(&lock, 1, HF_WIRE_NOT_SHARED), "me 2000 1 3000 ");
    CHECK_STR(release_sent(&lock, 0, 2), "me 2000 0 3000 2");
    CHECK_STR(release_sent(&lock, 0, HF_WIRE_ONLY_IF_HELD_ONCE), "me 2000 0 3000 once");
    lock.grant_lease = HF_SECOND;
    CHECK_STR(release_sent(&lock, 0, HF_WIRE_NOT_SHARED), "me 1000 0 3000 ");
    free_names();
}

CHECK_MAIN
