/* The tools of the unit tests themselves. */
#include "check.h"
#include "memerr.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

static bool three_allocations(void *context) {
    char *a = malloc(8);
    char *b = a ? calloc(1, 8) : NULL;
    char *c = b ? strdup(context) : NULL;
    bool success = c != NULL;
    free(a);
    free(b);
    free(c);
    return success;
}

static bool never(void *context) {
    (void)context;
    return false;
}

static bool reads_a_reply(void *context) {
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    (void)context;
    if (!reader) return false;
    bool success = redisReaderFeed(reader, "+OK\r\n", 5) == REDIS_OK &&
                   redisReaderGetReply(reader, &reply) == REDIS_OK;
    if (reply) freeReplyObject(reply);
    redisReaderFree(reader);
    return success;
}

TEST(the_failing_allocator_fails_each_allocation_once) {
    CHECK_EQ_INT(memerr_until_success(three_allocations, "text", 10), 3);
}

TEST(the_failing_allocator_stops_at_its_limit_of_trials) {
    CHECK_EQ_INT(memerr_until_success(three_allocations, "text", 2), -1);
}

TEST(the_failing_allocator_reports_a_failure_that_no_allocation_caused) {
    CHECK_EQ_INT(memerr_until_success(never, NULL, 10), -1);
}

TEST(the_failing_allocator_also_fails_allocations_of_hiredis) {
    CHECK(memerr_until_success(reads_a_reply, NULL, 100) > 1);
}

TEST(the_check_macros_accept_equal_values) {
    CHECK_EQ_INT(-1, -1);
    CHECK_EQ_U64(UINT64_MAX, UINT64_MAX);
    CHECK_STR("a", "a");
    CHECK_MEM("a\0b", 3, "a\0b", 3);
}

CHECK_MAIN
