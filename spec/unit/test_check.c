/* The tools of the unit tests themselves. */
#include "check.h"
#include "memerr.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <sys/wait.h>

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

TEST(the_failing_allocator_says_whether_it_failed_and_then_stops_failing) {
    memerr_fail(1);
    void *none = malloc(8);
    bool failed = memerr_end();
    void *block = malloc(8);
    free(block);
    CHECK(!none && failed && block);
    CHECK(!memerr_end());
}

static int begun, ended;

static void note_begin(void) {
    begun++;
}

static void note_end(void) {
    ended++;
}

CHECK_AROUND(note_begin, note_end)

TEST(set_up_runs_before_each_test_and_each_of_its_cases_and_tear_down_after_each_test) {
    static const int cases[] = {7, 8};
    CHECK_EQ_INT(begun, ended + 1);
    int first = begun, sum = 0;
    EACH_NUMBER (number, 3) CHECK_EQ_INT(begun, first + number + 1);
    EACH_CASE (i, cases) sum += cases[i];
    CHECK_EQ_INT(begun, first + 5);
    CHECK_EQ_INT(sum, 15);
}

static bool went_on;

static void check_in_helper(void) {
    CHECK(begun < 0);
    went_on = true;
}

static void fail_in_helper(void) {
    check_in_helper();
    went_on = true;
}

static void fail_in_child(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) check_in_helper();
    if (child == 0) _exit(0);
    waitpid(child, &status, 0);
    went_on = WEXITSTATUS(status) == 1;
}

/* Returns whether this fails as a test. It prints why, as any test that fails. */
static bool fails(void (*run)(void)) {
    const struct check_test inner = {"inner", run, NULL};
    jmp_buf outer;
    memcpy(&outer, &check_end, sizeof outer);
    went_on = false;
    check_test_alone(&inner);
    memcpy(&check_end, &outer, sizeof outer);
    bool failed = check_failed;
    check_failed = 0;
    return failed;
}

TEST(a_failed_check_ends_its_test_even_if_a_helper_makes_it) {
    CHECK(fails(fail_in_helper) && !went_on);
}

TEST(a_failed_check_ends_the_child_process_that_makes_it) {
    CHECK(!fails(fail_in_child) && went_on);
}

CHECK_MAIN
