/*
 * A unit test program is a list of TEST functions and one CHECK_MAIN. Each test prints one line,
 * "ok N - name" or "not ok N - name", and a "# file:line: ..." line for each check that failed; a
 * failed check ends its test. A test that leaves a descriptor open has failed. The program's exit
 * code is 0 only if every test passed. An argument picks the tests whose name contains it.
 * CHECK_AROUND names what runs before each test and after it, also after one that failed.
 */
#ifndef CHECK_H
#define CHECK_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct check_test {
    const char *name;
    void (*run)(void);
    struct check_test *next;
};

static struct check_test *check_first, **check_last = &check_first;
static int check_failed;
static void (*check_before)(void), (*check_after)(void);

static inline void check_register(struct check_test *test) {
    *check_last = test;
    check_last = &test->next;
}

#define TEST(test_name)                                                                            \
    static void test_name(void);                                                                   \
    __attribute__((constructor)) static void test_name##_register(void) {                          \
        static struct check_test test = {#test_name, test_name, NULL};                             \
        check_register(&test);                                                                     \
    }                                                                                              \
    static void test_name(void)

#define CHECK_AROUND(before, after)                                                                \
    __attribute__((constructor)) static void check_around(void) {                                  \
        check_before = before;                                                                     \
        check_after = after;                                                                       \
    }

/* A case of a test begins as the test does. */
static inline int check_begin_case(void) {
    if (check_before) check_before();
    return 1;
}

#define EACH_NUMBER(number, count)                                                                 \
    for (int number = 0; number < (int)(count) && check_begin_case(); number++)
#define EACH_CASE(i, cases)                                                                        \
    for (size_t i = 0; i < sizeof(cases) / sizeof *(cases) && check_begin_case(); i++)

__attribute__((format(printf, 3, 4))) static inline void check_fail(const char *file, int line,
                                                                    const char *format, ...) {
    va_list arguments;
    printf("# %s:%d: ", file, line);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    check_failed = 1;
}

/* Every CHECK returns from its function if it fails, so a helper that returns a value calls
 * check_fail. */
#define CHECK_OR(good, ...)                                                                        \
    do {                                                                                           \
        if (!(good)) {                                                                             \
            check_fail(__FILE__, __LINE__, __VA_ARGS__);                                           \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#define CHECK(condition) CHECK_OR(condition, "%s", #condition)

#define CHECK_EQ_INT(got, want)                                                                    \
    do {                                                                                           \
        long long check_got = (long long)(got), check_want = (long long)(want);                    \
        CHECK_OR(check_got == check_want, "%s is %lld, not %lld", #got, check_got, check_want);    \
    } while (0)

#define CHECK_EQ_U64(got, want)                                                                    \
    do {                                                                                           \
        unsigned long long check_got = (uint64_t)(got), check_want = (uint64_t)(want);             \
        CHECK_OR(check_got == check_want, "%s is %llu, not %llu", #got, check_got, check_want);    \
    } while (0)

#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *check_got = (got), *check_want = (want);                                       \
        CHECK_OR(check_got &&strcmp(check_got, check_want) == 0, "%s is \"%s\", not \"%s\"", #got, \
                 check_got ? check_got : "(null)", check_want);                                    \
    } while (0)

#define CHECK_MEM(got, got_length, want, want_length)                                              \
    do {                                                                                           \
        CHECK_EQ_INT(got_length, want_length);                                                     \
        CHECK_OR(memcmp(got, want, (size_t)(want_length)) == 0, "%s differs from %s", #got,        \
                 #want);                                                                           \
    } while (0)

/* Counts the open ones of the first 256 descriptors; no test program needs more. */
static inline int check_open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static inline void check_test_alone(const struct check_test *test) {
    int before = check_open_descriptors();
    if (check_before) check_before();
    test->run();
    if (check_after) check_after();
    int left = check_open_descriptors() - before;
    if (left > 0)
        check_fail(__FILE__, __LINE__, "%s leaves descriptors open: %d", test->name, left);
}

static inline int check_run(const char *only) {
    int count = 0, failures = 0;
    for (const struct check_test *test = check_first; test; test = test->next) {
        if (only && !strstr(test->name, only)) continue;
        check_failed = 0;
        check_test_alone(test);
        failures += check_failed;
        printf("%s %d - %s\n", check_failed ? "not ok" : "ok", ++count, test->name);
        fflush(stdout);
    }
    printf("1..%d\n", count);
    return failures || count == 0;
}

#define CHECK_MAIN                                                                                 \
    int main(int argc, char **argv) {                                                              \
        return check_run(argc > 1 ? argv[1] : NULL);                                               \
    }

#endif
