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
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct check_test {
    const char *name;
    void (*run)(void);
    struct check_test *next;
};

static struct check_test *check_first, **check_last = &check_first;
static int check_failed;
static jmp_buf check_end;   /* where a test continues that a check has ended */
static pid_t check_process; /* that runs the tests */
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

/* The rows of a test's table, whose columns are these fields. */
#define CASES(...)                                                                                 \
    static const struct { __VA_ARGS__; } cases[]

/* The elements of an array, as many on a line as fit. */
#define LIST(...)                                                                                  \
    { __VA_ARGS__ }

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

/* Ends the test, or the child process of a test in which the check failed. */
__attribute__((format(printf, 3, 4), noreturn)) static inline void
check_stop(const char *file, int line, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    check_fail(file, line, "%s", text);
    if (getpid() == check_process) longjmp(check_end, 1);
    fflush(stdout);
    _exit(1);
}

/* Every check is an expression, and one that fails ends the test, also from a function that the
 * test calls. Only the thread of the tests may check. A check of what follows from a call can stand
 * behind it on the same line: call(), CHECK(...). */
#define CHECK_OR(good, ...) ((good) ? (void)0 : check_stop(__FILE__, __LINE__, __VA_ARGS__))
#define CHECK(condition) CHECK_OR(condition, "%s", #condition)
#define CHECK_EQ_INT(got, want)                                                                    \
    check_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
#define CHECK_EQ_U64(got, want)                                                                    \
    check_u64(__FILE__, __LINE__, #got, (uint64_t)(got), (uint64_t)(want))
#define CHECK_STR(got, want) check_str(__FILE__, __LINE__, #got, got, want)
#define CHECK_MEM(got, got_length, want, want_length)                                              \
    (CHECK_EQ_INT(got_length, want_length),                                                        \
     CHECK_OR(memcmp(got, want, (size_t)(want_length)) == 0, "%s differs from %s", #got, #want))

#define CHECK_CONTAINS(text, part) check_contains(__FILE__, __LINE__, text, part)

static inline void check_int(const char *file, int line, const char *what, long long got,
                             long long want) {
    if (got != want) check_stop(file, line, "%s is %lld, not %lld", what, got, want);
}

static inline void check_u64(const char *file, int line, const char *what, uint64_t got,
                             uint64_t want) {
    if (got == want) return;
    check_stop(file, line, "%s is %llu, not %llu", what, (unsigned long long)got,
               (unsigned long long)want);
}

static inline void check_str(const char *file, int line, const char *what, const char *got,
                             const char *want) {
    if (got && strcmp(got, want) == 0) return;
    check_stop(file, line, "%s is \"%s\", not \"%s\"", what, got ? got : "(null)", want);
}

static inline void check_contains(const char *file, int line, const char *text, const char *part) {
    if (!strstr(text, part)) check_stop(file, line, "\"%s\" is not in \"%s\"", part, text);
}

/* Returns what printf prints, as a string that lasts until the eighth call from here. */
__attribute__((format(printf, 1, 2))) static inline const char *printed(const char *format, ...) {
    static char texts[8][2048];
    static unsigned next;
    va_list arguments;
    char *text = texts[next++ % 8];
    va_start(arguments, format);
    vsnprintf(text, sizeof *texts, format, arguments);
    va_end(arguments);
    return text;
}

/* Counts the open ones of the first 256 descriptors; no test program needs more. Not inline: gcc
 * warns of variables beside setjmp. */
__attribute__((noinline)) static int check_open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static inline void check_test_alone(const struct check_test *test) {
    int before = check_open_descriptors();
    check_process = getpid();
    if (setjmp(check_end) == 0) {
        if (check_before) check_before();
        test->run();
    }
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
