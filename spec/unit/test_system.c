/*
 * What is the system's own and what POSIX has instead, side by side: the one in the driver's
 * object, the other compiled here, where only POSIX is declared.
 */
#if defined __linux__ && !defined HF_PORTABLE
#define OBJECT_IS_OF_LINUX 1
#else
#define OBJECT_IS_OF_LINUX 0
#endif
#undef _GNU_SOURCE
#undef _DEFAULT_SOURCE
#undef HF_PORTABLE
#define _POSIX_C_SOURCE 200809L
#define HF_PORTABLE

#define hf_error_text posix_error_text
#define hf_now posix_now
#define hf_random posix_random
#define hf_pipe_wake posix_pipe_wake
#define hf_pipe_drain posix_pipe_drain
#define hf_block_signals posix_hold_signals
#define hf_thread_start posix_thread_start
#define hf_pipe posix_pipe
#define hf_pipe_close posix_pipe_close
#define hf_close_keeping_errno posix_close_keeping_errno
#define hf_socket posix_socket
#define hf_move_above_standard posix_above_standard
#define hf_send posix_send
#define hf_recv posix_recv
#define hf_prepare_wait posix_prepare_wait
#define hf_recv_wait posix_recv_wait
#define hf_poll posix_poll
#define hf_cond_init posix_cond_init
#define hf_cond_wait posix_cond_wait
#define hf_process_number posix_process
#define hf_die_with_parent posix_end_with_parent
#define hf_stay_loaded posix_stay_loaded
#define hf_stamp_file posix_stamp_file
#define hf_probe_peer posix_probe_peer
#include "../../csrc/posix/system.c"
#undef hf_error_text
#undef hf_now
#undef hf_random
#undef hf_pipe_wake
#undef hf_pipe_drain
#undef hf_block_signals
#undef hf_thread_start
#undef hf_pipe
#undef hf_pipe_close
#undef hf_close_keeping_errno
#undef hf_socket
#undef hf_move_above_standard
#undef hf_send
#undef hf_recv
#undef hf_prepare_wait
#undef hf_recv_wait
#undef hf_poll
#undef hf_cond_init
#undef hf_cond_wait
#undef hf_process_number
#undef hf_die_with_parent
#undef hf_stay_loaded
#undef hf_stamp_file
#undef hf_probe_peer
#undef HF_SYSTEM_H
#include "../../csrc/posix/system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "check.h"

static const struct {
    const char *(*error_text)(int, char *, size_t);
    hf_time (*now)(void);
    bool (*pipe)(int *, bool);
    int (*socket)(int);
    ssize_t (*send)(int, const void *, size_t);
    ssize_t (*recv)(int, void *, size_t);
    void (*prepare_wait)(int, hf_time);
    ssize_t (*recv_wait)(int, void *, size_t, hf_time);
    int (*poll)(struct pollfd *, nfds_t, hf_time, const sigset_t *);
    void (*cond_init)(pthread_cond_t *);
    void (*cond_wait)(pthread_cond_t *, pthread_mutex_t *, hf_time);
    unsigned (*process)(void);
    uint64_t (*stamp_file)(const char *);
} SYSTEMS[] = {
    {hf_error_text, hf_now, hf_pipe, hf_socket, hf_send, hf_recv, hf_prepare_wait, hf_recv_wait,
     hf_poll, hf_cond_init, hf_cond_wait, hf_process_number, hf_stamp_file},
    {posix_error_text, posix_now, posix_pipe, posix_socket, posix_send, posix_recv,
     posix_prepare_wait, posix_recv_wait, posix_poll, posix_cond_init, posix_cond_wait,
     posix_process, posix_stamp_file},
};

#define EACH(at) for (size_t at = 0; at < sizeof SYSTEMS / sizeof *SYSTEMS; at++)

static bool has_flags(int fd, bool blocking) {
    return fcntl(fd, F_GETFD) == FD_CLOEXEC && !(fcntl(fd, F_GETFL) & O_NONBLOCK) == blocking;
}

static int pair[2] = {-1, -1}; /* connected sockets, until the test ends */

static void close_end(int i) {
    if (pair[i] >= 0) close(pair[i]);
    pair[i] = -1;
}

static void close_pair(void) {
    close_end(0);
    close_end(1);
}

CHECK_AROUND(NULL, close_pair)

/* Two connected sockets of the system at `at`. */
static void connect_pair(size_t at) {
    close_pair();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/test_system.%ld.%zu", (long)getpid(),
             at);
    int listener = SYSTEMS[at].socket(AF_UNIX);
    pair[0] = SYSTEMS[at].socket(AF_UNIX);
    if (listener < 0 || pair[0] < 0) abort();
    if (bind(listener, (const struct sockaddr *)&address, sizeof address) != 0) abort();
    if (listen(listener, 1) != 0) abort();
    if (connect(pair[0], (const struct sockaddr *)&address, sizeof address) != 0) abort();
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
    unlink(address.sun_path);
}

TEST(an_unknown_system_error_is_shown_with_its_number) {
    char text[96];
    EACH (at) CHECK(strstr(SYSTEMS[at].error_text(98765, text, sizeof text), "98765"));
}

TEST(a_system_error_text_that_does_not_fit_is_truncated_and_terminated) {
    char text[8];
    volatile size_t size = sizeof text; /* so that the compiler does not warn of what is tested */
    memset(text, 'x', sizeof text);
    CHECK(memchr(posix_error_text(ECONNREFUSED, text, size), '\0', sizeof text));
    CHECK(hf_error_text(ECONNREFUSED, text, size)[0] != '\0');
}

/* Or its caller would spin through the rest of a millisecond. */
TEST(a_sleep_is_never_shorter_than_requested) {
    EACH (at) {
        hf_time before = hf_now();
        for (int i = 0; i < 5; i++) CHECK_EQ_INT(SYSTEMS[at].poll(NULL, 0, 900000, NULL), 0);
        CHECK(hf_now() - before >= 4 * HF_MS);
    }
}

/* Otherwise the identity of a client would be made of whatever is in memory. */
TEST(drawing_random_bytes_fails_if_their_source_cannot_be_opened) {
    unsigned char bytes[24];
    struct rlimit limit;
    CHECK_EQ_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    CHECK_EQ_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool random = posix_random(bytes, sizeof bytes);
    int error = errno;
    setrlimit(RLIMIT_NOFILE, &limit), CHECK(!random);
    CHECK_EQ_INT(error, EMFILE);
}

static void *mask_of_thread(void *mask) {
    pthread_sigmask(SIG_BLOCK, NULL, mask);
    return NULL;
}

/* So that the handler of a program that wants to know of its crashes runs. */
TEST(a_background_thread_receives_no_signals_except_those_of_its_own_faults) {
    pthread_t thread;
    sigset_t mask, before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    CHECK(hf_thread_start(&thread, mask_of_thread, &mask));
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    static const int others[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGALRM,
                                 SIGCHLD, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        CHECK_OR(sigismember(&mask, faults[i]) == 0, "signal %d", faults[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK_OR(sigismember(&mask, others[i]) == 1, "signal %d", others[i]);
        CHECK_EQ_INT(sigismember(&after, others[i]), sigismember(&before, others[i]));
    }
}

static bool has_no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context) {
    if (has_no_threads) return EAGAIN;
    return __real_pthread_create(thread, attributes, run, context);
}

TEST(a_thread_that_cannot_be_started_sets_errno) {
    pthread_t thread;
    sigset_t mask;
    has_no_threads = true;
    errno = 0;
    bool started = hf_thread_start(&thread, mask_of_thread, &mask);
    has_no_threads = false;
    CHECK(!started);
    CHECK_EQ_INT(errno, EAGAIN);
}

TEST(pipes_and_sockets_are_closed_by_exec) {
    EACH (at) {
        int ends[2];
        for (int blocking = 0; blocking < 2; blocking++) {
            CHECK(SYSTEMS[at].pipe(ends, blocking));
            CHECK(has_flags(ends[0], blocking));
            CHECK(has_flags(ends[1], blocking));
            close(ends[0]);
            close(ends[1]);
        }
        int fd = SYSTEMS[at].socket(AF_INET);
        CHECK(has_flags(fd, false));
        close(fd);
        errno = 0;
        CHECK_EQ_INT(SYSTEMS[at].socket(-1), -1);
        CHECK(errno != 0 && errno != EBADF);
    }
}

static int ends_of_nothing[2];

/* In a child, which has the standard streams below `first` alone. Returns what has gone wrong, 0:
 * nothing. */
static int open_without_standard_streams(size_t at, int first) {
    int ends[2];
    for (int fd = 0; fd < first; fd++) dup2(ends_of_nothing[0], fd);
    for (int fd = first; fd < 3; fd++) close(fd);
    if (SYSTEMS[at].socket(AF_INET) < 3) return 1;
    if (first < 3 && fcntl(first, F_GETFD) >= 0) return 4;
    if (!SYSTEMS[at].pipe(ends, false) || ends[0] < 3 || ends[1] < 3) return 2;
    return has_flags(ends[0], false) && has_flags(ends[1], false) ? 0 : 3;
}

TEST(no_descriptor_is_opened_with_the_number_of_a_standard_stream) {
    CHECK_EQ_INT(pipe(ends_of_nothing), 0);
    EACH (at) {
        for (int first = 0; first < 3; first++) {
            int status;
            pid_t child = fork();
            if (child == 0) _exit(open_without_standard_streams(at, first));
            CHECK_EQ_INT(waitpid(child, &status, 0), child);
            CHECK_OR(WEXITSTATUS(status) == 0, "from %d on: %d", first, WEXITSTATUS(status));
        }
    }
    close(ends_of_nothing[0]);
    close(ends_of_nothing[1]);
}

/* In a child, which may open `above` descriptors that are no standard streams. */
static int open_without_room(size_t at, rlim_t above) {
    int ends[2];
    for (int fd = 0; fd < 256; fd++) close(fd);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
    limit.rlim_cur = 3 + above;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
    errno = 0;
    if (above == 0 && (SYSTEMS[at].socket(AF_INET) != -1 || errno == 0)) return 2;
    errno = 0;
    if (SYSTEMS[at].pipe(ends, false) || errno == 0) return 3;
    if (above == 1 && errno != EMFILE) return 4;
    return check_open_descriptors() == 0 ? 0 : 5;
}

TEST(a_failed_open_leaves_no_descriptor_if_only_standard_streams_are_free) {
    EACH (at) {
        for (rlim_t above = 0; above < 2; above++) {
            int status;
            pid_t child = fork();
            if (child == 0) _exit(open_without_room(at, above));
            CHECK_EQ_INT(waitpid(child, &status, 0), child);
            CHECK_EQ_INT(WEXITSTATUS(status), 0);
        }
    }
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0) abort();
    fclose(file);
}

TEST(a_rewritten_or_replaced_file_has_a_different_stamp) {
    char path[64], other[64];
    snprintf(path, sizeof path, "/tmp/test_system.%ld.a", (long)getpid());
    snprintf(other, sizeof other, "/tmp/test_system.%ld.b", (long)getpid());
    EACH (at) {
        write_file(path, "one");
        struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}}, young[2] = {0};
        utimensat(AT_FDCWD, path, old, 0);
        uint64_t first = SYSTEMS[at].stamp_file(path), again = SYSTEMS[at].stamp_file(path);
        write_file(path, "two");
        uint64_t written = SYSTEMS[at].stamp_file(path);
        write_file(other, "two");
        clock_gettime(CLOCK_REALTIME, &young[0]);
        young[1] = young[0];
        utimensat(AT_FDCWD, path, young, 0);
        utimensat(AT_FDCWD, other, young, 0);
        uint64_t before = SYSTEMS[at].stamp_file(path);
        if (rename(other, path) != 0) abort();
        uint64_t replaced = SYSTEMS[at].stamp_file(path);
        unlink(path);
        CHECK(first != 0 && again == first);
        CHECK(written != first);
        CHECK(replaced != before);
        CHECK_EQ_INT(SYSTEMS[at].stamp_file(path), 0);
        CHECK_EQ_INT(SYSTEMS[at].stamp_file(NULL), 0);
    }
}

TEST(one_call_empties_a_pipe_that_is_full_of_wake_ups) {
    int ends[2];
    char byte;
    CHECK(hf_pipe(ends, false));
    for (int i = 0; i < 100000; i++) hf_pipe_wake(ends[1]);
    hf_pipe_drain(ends[0]);
    ssize_t left = read(ends[0], &byte, 1);
    close(ends[0]);
    close(ends[1]);
    CHECK_EQ_INT(left, -1);
}

TEST(data_that_has_arrived_is_received_without_sleeping) {
    EACH (at) {
        char bytes[8];
        connect_pair(at);
        SYSTEMS[at].prepare_wait(pair[0], 20 * HF_MS);
        CHECK_EQ_INT(SYSTEMS[at].recv(pair[0], bytes, sizeof bytes), -1);
        CHECK(errno == EAGAIN || errno == EWOULDBLOCK);
        errno = 0;
        CHECK_EQ_INT(SYSTEMS[at].recv_wait(pair[0], bytes, sizeof bytes, 20 * HF_MS), -1);
        CHECK(errno == EAGAIN || errno == EWOULDBLOCK);
        CHECK_EQ_INT(SYSTEMS[at].send(pair[1], "one", 3), 3);
        CHECK_EQ_INT(SYSTEMS[at].recv_wait(pair[0], bytes, sizeof bytes, 60 * HF_SECOND), 3);
        CHECK_EQ_INT(SYSTEMS[at].send(pair[1], "two", 3), 3);
        CHECK_EQ_INT(SYSTEMS[at].recv(pair[0], bytes, sizeof bytes), 3);
        size_t sent = 0;
        ssize_t size;
        while ((size = SYSTEMS[at].send(pair[0], "xxxxxxxx", 8)) > 0 && sent < 100000000)
            sent += (size_t)size;
        CHECK(size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
    }
}

/* Others wait for the mutex meanwhile: a receive returns at once, and only hf_recv_wait sleeps. */
TEST(a_receive_without_data_returns_at_once_and_a_wait_for_data_sleeps) {
    EACH (at) {
        for (int waits = 0; waits < 2; waits++) {
            char bytes[8];
            hf_time span = waits ? 20 * HF_MS : 900 * HF_MS;
            connect_pair(at);
            SYSTEMS[at].prepare_wait(pair[0], span);
            hf_time from = SYSTEMS[at].now();
            ssize_t size = waits ? SYSTEMS[at].recv_wait(pair[0], bytes, sizeof bytes, span)
                                 : SYSTEMS[at].recv(pair[0], bytes, sizeof bytes);
            hf_time took = SYSTEMS[at].now() - from;
            CHECK_EQ_INT(size, -1);
            CHECK_OR(waits ? took > 10 * HF_MS : took < 800 * HF_MS, "took %llu ns",
                     (unsigned long long)took);
        }
    }
}

static volatile sig_atomic_t raised;

static void on_signal(int number) {
    raised = number;
}

static void catch_signal(int number) {
    struct sigaction action = {.sa_handler = on_signal};
    raised = 0;
    sigaction(number, &action, NULL);
}

TEST(sending_on_a_broken_connection_raises_no_signal) {
    catch_signal(SIGPIPE);
    EACH (at) {
        connect_pair(at);
        close_end(1), CHECK_EQ_INT(SYSTEMS[at].send(pair[0], "x", 1), -1);
        CHECK_EQ_INT(errno, EPIPE);
        CHECK_EQ_INT(raised, 0);
    }
}

TEST(a_sigpipe_pending_before_a_send_is_still_pending_afterwards) {
    sigset_t broken, before;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    EACH (at) {
        catch_signal(SIGPIPE);
        connect_pair(at);
        close_end(1);
        sigprocmask(SIG_BLOCK, &broken, &before);
        raise(SIGPIPE), CHECK_EQ_INT(SYSTEMS[at].send(pair[0], "x", 1), -1);
        CHECK_EQ_INT(raised, 0);
        sigprocmask(SIG_SETMASK, &before, NULL), CHECK_EQ_INT(raised, SIGPIPE);
    }
}

TEST(a_pending_signal_ends_a_sleep_however_long_the_sleep_is) {
    static const hf_time spans[] = {0, 60 * HF_SECOND};
    sigset_t blocked, before, now;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    EACH (at) {
        for (size_t i = 0; i < 2; i++) {
            catch_signal(SIGUSR1);
            sigprocmask(SIG_BLOCK, &blocked, &before);
            CHECK_EQ_INT(SYSTEMS[at].poll(NULL, 0, 0, &before), 0); /* none is pending yet */
            raise(SIGUSR1);
            hf_time start = hf_now();
            CHECK(SYSTEMS[at].poll(NULL, 0, spans[i], &before) < 0 && errno == EINTR);
            CHECK_EQ_INT(raised, SIGUSR1);
            CHECK(hf_now() - start < 30 * HF_SECOND);
            sigprocmask(SIG_SETMASK, NULL, &now), CHECK(sigismember(&now, SIGUSR1) == 1);
            sigprocmask(SIG_SETMASK, &before, NULL);
        }
    }
}

TEST(a_sleep_ends_when_a_descriptor_is_ready) {
    sigset_t none;
    sigemptyset(&none);
    EACH (at) {
        connect_pair(at);
        struct pollfd fds[] = {{.fd = -1, .events = POLLIN},
                               {.fd = pair[0], .events = POLLIN},
                               {.fd = pair[1], .events = POLLIN | POLLOUT}};
        CHECK_EQ_INT(SYSTEMS[at].poll(fds, 2, 5 * HF_MS, &none), 0);
        CHECK_EQ_INT(SYSTEMS[at].poll(fds, 3, 60 * HF_SECOND, &none), 1);
        CHECK_EQ_INT(fds[1].revents, 0);
        CHECK_EQ_INT(fds[2].revents, POLLOUT);
        CHECK_EQ_INT(SYSTEMS[at].poll(fds, 3, HF_NEVER, &none), 1);
        CHECK_EQ_INT(SYSTEMS[at].poll(fds, 3, HF_NEVER, NULL), 1);
        SYSTEMS[at].send(pair[1], "x", 1);
        CHECK_EQ_INT(SYSTEMS[at].poll(fds, 2, 60 * HF_SECOND, &none), 1);
        CHECK_EQ_INT(fds[0].revents, 0);
        CHECK_EQ_INT(fds[1].revents, POLLIN);
        CHECK_EQ_INT(fds[2].revents, POLLOUT); /* which was not among them */
        struct pollfd falling[] = {{.fd = pair[1], .events = POLLIN}, {.fd = pair[0], .events = 0}};
        CHECK(pair[1] > pair[0]);
        SYSTEMS[at].send(pair[0], "x", 1);
        CHECK_EQ_INT(SYSTEMS[at].poll(falling, 2, 5 * HF_SECOND, &none), 1);
        CHECK_EQ_INT(falling[0].revents, POLLIN);
    }
}

/* FD_SETSIZE is the first number for which a set has no room. */
TEST(a_sleep_ends_for_a_descriptor_with_a_number_above_fd_setsize) {
    struct rlimit limit;
    sigset_t none;
    sigemptyset(&none), CHECK_EQ_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK_EQ_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EACH (at) {
        for (int number = FD_SETSIZE - 1; number <= FD_SETSIZE + 1; number++) {
            connect_pair(at), CHECK_EQ_INT(dup2(pair[0], number), number);
            struct pollfd watched = {.fd = number, .events = POLLIN};
            CHECK_EQ_INT(SYSTEMS[at].poll(&watched, 1, 5 * HF_MS, &none), 0);
            SYSTEMS[at].send(pair[1], "x", 1);
            CHECK_EQ_INT(SYSTEMS[at].poll(&watched, 1, 60 * HF_SECOND, &none), 1);
            CHECK_EQ_INT(watched.revents, POLLIN);
            close(number);
        }
    }
}

/* One that returns at once would make its caller spin. */
TEST(a_timed_wait_on_a_condition_sleeps) {
    EACH (at) {
        static const hf_time spans[] = {20 * HF_MS, 20 * HF_MS, HF_NEVER};
        hf_time slept = 0;
        pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t condition;
        SYSTEMS[at].cond_init(&condition);
        pthread_mutex_lock(&mutex);
        for (size_t i = 0; i < (at == 0 && OBJECT_IS_OF_LINUX ? 2 : 3); i++) {
            hf_time before = hf_now();
            SYSTEMS[at].cond_wait(&condition, &mutex, spans[i]);
            slept += hf_now() - before;
        }
        pthread_mutex_unlock(&mutex);
        pthread_cond_destroy(&condition);
        CHECK(slept >= (at == 0 && OBJECT_IS_OF_LINUX ? 19 : 2) * HF_MS);
    }
}

/* Whose id is that of its parent in a namespace of its own; and in the child of a child. */
TEST(a_forked_process_is_recognized_as_a_different_one) {
    EACH (at) {
        int status;
        unsigned own = SYSTEMS[at].process();
        pid_t child = fork();
        if (child == 0) {
            unsigned childs = SYSTEMS[at].process();
            bool another = childs != own && SYSTEMS[at].process() == childs;
            pid_t grandchild = fork();
            unsigned last = SYSTEMS[at].process();
            if (grandchild == 0) _exit(last != own && last != childs ? 0 : 1);
            bool waited = waitpid(grandchild, &status, 0) == grandchild && status == 0;
            _exit(another && waited && last == childs ? 0 : 1);
        }
        CHECK_EQ_INT(waitpid(child, &status, 0), child);
        CHECK_EQ_INT(status, 0);
        CHECK_EQ_INT(SYSTEMS[at].process(), own);
    }
}

#define EMULATED "HOLDFAST_TEST_ACCEPTS_ANY_ADVICE"

int __real_madvise(void *start, size_t size, int advice);
int __wrap_madvise(void *start, size_t size, int advice);

/* An emulator may accept what it does not heed. */
int __wrap_madvise(void *start, size_t size, int advice) {
    return getenv(EMULATED) ? 0 : __real_madvise(start, size, advice);
}

static const char *program;

/* The system is asked when the program starts, so the program is started again. */
TEST(a_forked_process_is_recognized_even_if_the_system_cannot_wipe_memory_on_fork) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        setenv(EMULATED, "1", 1);
        execl(program, program, "a_forked_process_is_recognized_as_a_different_one", (char *)NULL);
        _exit(errno == ENOEXEC ? 0 : 1); /* it is itself emulated */
    }
    CHECK_EQ_INT(waitpid(child, &status, 0), child);
    bool has_libraries = WIFEXITED(status) && WEXITSTATUS(status) != 127; /* not where a loader
                                                                             was told where */
    if (has_libraries) CHECK_EQ_INT(status, 0);
}

TEST(a_process_can_be_made_to_end_with_its_parent_where_the_system_supports_that) {
    CHECK(!posix_end_with_parent(SIGKILL));
    int report[2], status;
    if (pipe(report) != 0) abort();
    pid_t parent = fork();
    if (parent == 0) { /* its child has the writing end, and reports first whether it will end */
        pid_t child = fork();
        if (child == 0) {
            char can = hf_die_with_parent(SIGKILL) ? 'y' : 'n';
            if (write(report[1], &can, 1) != 1 || can == 'n') _exit(0);
            for (;;) pause();
        }
        close(report[1]);
        char can;
        _exit(read(report[0], &can, 1) == 1 && can == 'y' ? 1 : 0);
    }
    close(report[1]);
    char none;
    CHECK_EQ_INT(waitpid(parent, &status, 0), parent);
    CHECK_EQ_INT(WEXITSTATUS(status), OBJECT_IS_OF_LINUX);
    CHECK_EQ_INT(read(report[0], &none, 1), 0); /* the end: nobody has the writing end any more */
    close(report[0]);
}

int main(int argc, char **argv) {
    program = argv[0];
    return check_run(argc > 1 ? argv[1] : NULL);
}
