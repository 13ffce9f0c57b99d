/*
 * One descriptor for many, with real pipes. test_ready_portable.c compiles the same for systems
 * without epoll.
 */
#include "../../csrc/posix/ready.h"
#include "../../csrc/posix/system.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "memerr.h"

#define SOON 5000 /* ms that a test waits at most */

static bool is_ready(const hf_ready *ready, int timeout) {
    struct pollfd polled = {.fd = hf_ready_fd(ready), .events = POLLIN};
    return poll(&polled, 1, timeout) == 1;
}

static hf_watch watch(int fd, short events) {
    return (hf_watch){.fd = fd, .file = hf_file_of(fd), .events = events};
}

static int count_open(void) {
    int open = 0;
    for (int fd = 0; fd < 256; fd++) open += fcntl(fd, F_GETFD) >= 0;
    return open;
}

static hf_ready *ready;
static int ends[2];

static void make_set(void) {
    if (pipe(ends) != 0 || !(ready = hf_ready_new())) abort();
}

static void free_set(void) {
    close(ends[0]);
    close(ends[1]);
    hf_ready_free(ready);
}

CHECK_AROUND(make_set, free_set)

/* Whether its descriptor is readable while the set watches this list. */
#define CHECK_READY_WITH(list, count)                                                              \
    CHECK(hf_ready_watch(ready, list, count) && is_ready(ready, SOON))
#define CHECK_IDLE_WITH(list, count)                                                               \
    CHECK(hf_ready_watch(ready, list, count) && !is_ready(ready, 20))

/* Forks without the set, whose thread would keep the child of an emulator from starting one. */
static pid_t fork_alone(void) {
    hf_ready_free(ready);
    ready = NULL;
    return fork();
}

TEST(the_ready_descriptor_is_never_a_standard_stream) {
    int status;
    pid_t child = fork_alone();
    if (child == 0) {
        for (int fd = 0; fd < 3; fd++) close(fd);
        hf_ready *own = hf_ready_new();
        bool above = own && hf_ready_fd(own) > 2 && dup(hf_ready_fd(own)) == 0;
        hf_ready_free(own);
        _exit(above ? 0 : 1);
    }
    CHECK_EQ_INT(waitpid(child, &status, 0), child);
    CHECK_EQ_INT(status, 0);
}

/* In a child. Returns whether each attempt without room for all descriptors has left none and has
 * closed no other one. */
static bool fails_alone(void) {
    struct rlimit limit;
    for (int fd = 0; fd < 256; fd++) close(fd);
    for (int fd = 0; fd < 3; fd++) open("/", O_RDONLY);
    getrlimit(RLIMIT_NOFILE, &limit);
    for (limit.rlim_cur = 3;; limit.rlim_cur++) {
        setrlimit(RLIMIT_NOFILE, &limit);
        hf_ready *own = hf_ready_new();
        hf_ready_free(own);
        if (count_open() != 3) return false;
        if (own) return limit.rlim_cur > 3;
    }
}

TEST(running_out_of_descriptors_closes_no_descriptor_that_the_ready_set_does_not_own) {
    int status;
    pid_t child = fork_alone();
    if (child == 0) _exit(fails_alone() ? 0 : 1);
    CHECK_EQ_INT(waitpid(child, &status, 0), child);
    CHECK_EQ_INT(status, 0);
}

TEST(a_ready_set_leaks_no_memory) {
    hf_ready_free(ready); /* a thread of it may allocate at any time */
    long before = memerr_live();
    ready = hf_ready_new();
    hf_watch list[] = {watch(ends[0], POLLIN), watch(ends[1], POLLOUT)};
    bool watched = ready && hf_ready_watch(ready, list, 2) && is_ready(ready, SOON);
    hf_ready_free(ready);
    ready = NULL;
    CHECK_EQ_INT(memerr_live(), before);
    CHECK(watched);
}

TEST(the_ready_descriptor_is_closed_by_exec) {
    bool before[256];
    for (int fd = 0; fd < 256; fd++) before[fd] = fcntl(fd, F_GETFD) >= 0;
    hf_ready *own = hf_ready_new();
    int made = 0, kept = 0;
    for (int fd = 0; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFD);
        made += flags >= 0 && !before[fd];
        kept += flags >= 0 && !before[fd] && !(flags & FD_CLOEXEC);
    }
    hf_ready_free(own);
    CHECK(made >= 2);
    CHECK_EQ_INT(kept, 0);
}

TEST(a_forked_child_that_drops_a_ready_set_closes_its_copies_of_the_descriptors) {
    int status, open = count_open();
    hf_ready *own = hf_ready_new();
    CHECK(own);
    pid_t child = fork();
    if (child == 0) {
        hf_ready_forget(own);
        _exit(count_open() == open ? 0 : 1);
    }
    CHECK_EQ_INT(waitpid(child, &status, 0), child);
    CHECK_EQ_INT(status, 0);
    CHECK(!is_ready(own, 0));
    hf_ready_free(own);
    CHECK_EQ_INT(count_open(), open);
}

TEST(the_ready_descriptor_is_readable_while_a_watched_descriptor_is) {
    char byte;
    hf_watch list[] = {{.fd = -1}, watch(ends[0], POLLIN)};
    CHECK_IDLE_WITH(list, 2);
    CHECK_EQ_INT(write(ends[1], "x", 1), 1);
    CHECK(is_ready(ready, SOON));
    CHECK(hf_ready_watch(ready, list, 2)); /* nobody has read it */
    CHECK(is_ready(ready, SOON));
    CHECK_EQ_INT(read(ends[0], &byte, 1), 1);
    CHECK_IDLE_WITH(list, 2);
}

TEST(the_events_watched_on_a_descriptor_can_be_changed) {
    hf_watch list[] = {watch(ends[1], POLLIN)};
    CHECK_IDLE_WITH(list, 1);
    list[0].events = POLLOUT;
    CHECK_READY_WITH(list, 1);
    CHECK_IDLE_WITH(NULL, 0);
}

/* A socket that takes no more bytes may still have some to read. */
TEST(either_of_two_watched_events_makes_the_ready_descriptor_readable) {
    int pair[2];
    char bytes[4096] = "";
    CHECK_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    while (send(pair[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
    hf_watch list[] = {watch(pair[0], POLLIN | POLLOUT)};
    CHECK_IDLE_WITH(list, 1);
    CHECK_EQ_INT(write(pair[1], "x", 1), 1);
    CHECK(is_ready(ready, SOON));
    CHECK_EQ_INT(read(pair[0], bytes, 1), 1);
    CHECK_IDLE_WITH(list, 1);
    while (recv(pair[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
    CHECK(is_ready(ready, SOON));
    close(pair[0]);
    close(pair[1]);
}

/* At the same index, the old one has left the set by itself. */
TEST(a_new_descriptor_that_reuses_a_closed_ones_number_is_watched_at_the_same_or_another_index) {
    for (int moves = 0; moves < 2; moves++) {
        int first[2], second[2];
        CHECK_EQ_INT(pipe(first), 0);
        hf_watch list[] = {{.fd = -1}, watch(first[0], POLLIN)};
        CHECK(hf_ready_watch(ready, list, 2));
        close(first[0]), CHECK_EQ_INT(pipe(second), 0), CHECK_EQ_INT(second[0], first[0]);
        list[1] = (hf_watch){.fd = -1};
        list[moves ? 0 : 1] = watch(second[0], POLLIN);
        CHECK_IDLE_WITH(list, 2);
        CHECK_EQ_INT(write(second[1], "x", 1), 1);
        CHECK(is_ready(ready, SOON));
        close(first[1]);
        close(second[0]);
        close(second[1]);
    }
}

#ifdef HF_LINUX
/* As where the user has no watch left: epoll does not take a file. */
TEST(a_descriptor_that_cannot_be_watched_is_reported_while_the_others_remain_watched) {
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    hf_watch list[] = {watch(file, POLLIN), watch(ends[0], POLLIN)};
    for (int i = 0; i < 2; i++) CHECK(!hf_ready_watch(ready, list, 2));
    CHECK_EQ_INT(write(ends[1], "x", 1), 1);
    CHECK(is_ready(ready, SOON));
    close(file);
}
#endif

TEST(a_descriptor_that_was_removed_can_be_watched_again_with_the_next_list) {
    hf_watch list[] = {{.fd = -1}, watch(ends[0], POLLIN), {.fd = -1}};
    hf_ready_unwatch(ready, 7); /* there is none */
    CHECK(hf_ready_watch(ready, list, 3));
    hf_ready_unwatch(ready, 1);
    hf_ready_unwatch(ready, 1), CHECK(hf_ready_watch(ready, list, 3));
    CHECK_EQ_INT(write(ends[1], "x", 1), 1);
    CHECK(is_ready(ready, SOON));
    CHECK(hf_ready_watch(ready, list, 1)); /* the list has become shorter */
    CHECK(!is_ready(ready, 20));
    CHECK_READY_WITH(list, 2);
}

TEST(the_ready_descriptor_becomes_readable_at_the_earliest_given_time) {
    hf_time now = hf_now();
    hf_ready_set_time(ready, now + 3600 * HF_SECOND, now), CHECK(!is_ready(ready, 20));
    hf_ready_set_time(ready, now + 50 * HF_MS, now);
    hf_ready_set_time(ready, now + 3600 * HF_SECOND, now); /* the earlier time stays */
    CHECK(is_ready(ready, SOON));
    hf_ready_set_time(ready, HF_NEVER, hf_now()); /* it has come */
    CHECK(!is_ready(ready, 20));
    hf_ready_set_time(ready, 0, hf_now()), CHECK(is_ready(ready, SOON));
}

TEST(a_time_in_the_past_makes_the_ready_descriptor_readable_at_once) {
    hf_ready_set_time(ready, 0, hf_now()), CHECK(is_ready(ready, SOON));
}

TEST(the_ready_descriptor_becomes_readable_at_its_timer_even_if_it_watches_others) {
    char byte;
    hf_watch list[] = {watch(ends[0], POLLIN)};
    hf_time now = hf_now(), woken = 0;
    hf_ready_set_time(ready, now + 1000 * HF_MS, now);
    for (int round = 0; round < 50 && woken == 0; round++) {
        CHECK_EQ_INT(write(ends[1], "x", 1), 1);
        CHECK(is_ready(ready, SOON));
        CHECK_EQ_INT(read(ends[0], &byte, 1), 1);
        CHECK(hf_ready_watch(ready, list, 1));
        if (is_ready(ready, 100)) woken = hf_now();
    }
    CHECK(woken >= now + 1000 * HF_MS);
}

CHECK_MAIN
