#include "system.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef HF_LINUX
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/time.h>
#endif

/* ---- errors ---- */

/* POSIX (musl, macOS, the BSDs): strerror_r fills the buffer and returns 0 or an error number. */
__attribute__((unused)) static const char *posix_text(int result, int error, char *text,
                                                      size_t size) {
    if (result != 0 && snprintf(text, size, "error %d", error) < 0 && size > 0) text[0] = '\0';
    return text;
}

/* glibc with _GNU_SOURCE: strerror_r returns the text, which may not be in the buffer. */
__attribute__((unused)) static const char *gnu_text(const char *result, int error, char *text,
                                                    size_t size) {
    (void)error, (void)text, (void)size;
    return result;
}

static const char *text_of(int error, char *text, size_t size) {
    return _Generic(strerror_r(error, text, size), int: posix_text, char *: gnu_text)(
        strerror_r(error, text, size), error, text, size);
}

/* Replaces musl's message for unknown numbers, which is the same for all of them. */
const char *hf_error_text(int error, char *text, size_t size) {
    char buf[96];
    const char *message = text_of(error, text, size), *unknown = text_of(INT_MAX, buf, sizeof buf);
    assert(message && unknown);
    if (strcmp(message, unknown) != 0) return message;
    if (snprintf(text, size, "error %d", error) < 0 && size > 0) text[0] = '\0';
    return text;
}

/* ---- dead peers ---- */

void hf_probe_peer(int fd) {
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#ifdef TCP_KEEPIDLE
    int idle = 30, between = 5, probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
#endif
#ifdef TCP_USER_TIMEOUT
    unsigned ms = 15000;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
#endif
}

/* ---- files ---- */

/* Returns the modification time's fraction of a second. If there is none, a file that was just
 * written may be written again within the second, so it counts as changed until the second has
 * passed. */
static uint64_t second_fraction(const struct stat *info) {
#ifdef HF_LINUX
    return (uint64_t)info->st_mtim.tv_nsec;
#else
    return time(NULL) - info->st_mtime < 2 ? hf_now() : 0;
#endif
}

/* FNV-1a over 64-bit numbers */
uint64_t hf_stamp_file(const char *path) {
    struct stat info;
    if (!path || stat(path, &info) != 0) return 0;
    const uint64_t parts[] = {(uint64_t)info.st_dev,   (uint64_t)info.st_ino,
                              (uint64_t)info.st_size,  (uint64_t)info.st_mtime,
                              (uint64_t)info.st_ctime, second_fraction(&info)};
    uint64_t stamp = 0xcbf29ce484222325;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        stamp = (stamp ^ parts[i]) * 0x100000001b3;
    return stamp;
}

/* ---- threads ---- */

void hf_block_signals(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, before);
}

bool hf_thread_start(pthread_t *thread, void *(*run)(void *), void *context) {
    sigset_t before;
    hf_block_signals(&before);
    int result = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = result;
    return result == 0;
}

/* Linux, macOS and the BSDs declare dladdr, unless only POSIX is requested. */
void hf_stay_loaded(const void *address) {
#ifdef _GNU_SOURCE
    Dl_info info;
    if (dladdr((void *)(uintptr_t)address, &info) && info.dli_fname)
        dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
#else
    (void)address;
#endif
}

/* ---- descriptors ---- */

#define FIRST_FREE (STDERR_FILENO + 1)

int hf_close_keeping_errno(int fd) {
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int hf_move_above_standard(int fd) {
    if (fd < 0 || fd >= FIRST_FREE) return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE);
    hf_close_keeping_errno(fd);
    return above;
}

void hf_pipe_close(int ends[2]) {
    for (int end = 0; end < 2; end++) {
        if (ends[end] >= 0) ends[end] = hf_close_keeping_errno(ends[end]);
    }
}

/* On failure both ends are closed. */
static bool pipe_above_standard(int ends[2]) {
    for (int end = 0; end < 2; end++) ends[end] = hf_move_above_standard(ends[end]);
    if (ends[0] >= 0 && ends[1] >= 0) return true;
    hf_pipe_close(ends);
    return false;
}

void hf_pipe_wake(int end) {
    ssize_t written = write(end, "", 1);
    (void)written; /* a full pipe wakes the thread as well */
}

void hf_pipe_drain(int end) {
    char bytes[64];
    while (read(end, bytes, sizeof bytes) > 0) continue;
}

/* ---- time ---- */

#if defined HF_LINUX && defined CLOCK_BOOTTIME
#define CLOCK CLOCK_BOOTTIME /* CLOCK_MONOTONIC stops while a Linux host is suspended */
#else
#define CLOCK CLOCK_MONOTONIC
#endif

#define HOUR (3600 * HF_SECOND)

static hf_time read_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (hf_time)time.tv_sec * HF_SECOND + (hf_time)time.tv_nsec;
}

static struct timespec timespec_of(hf_time time) {
    return (struct timespec){(time_t)(time / HF_SECOND), (long)(time % HF_SECOND)};
}

hf_time hf_now(void) {
    return read_clock(CLOCK);
}

/* ---- forks ---- */

static unsigned fork_count;

static void count_fork(void) {
    fork_count++;
}

static void register_fork_handler(void) {
    pthread_atfork(NULL, NULL, count_fork);
}

/* Returns the number of forks that pthread_atfork has reported. */
static unsigned count_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork_handler);
    return fork_count;
}

#ifdef HF_LINUX

bool hf_random(unsigned char *bytes, size_t size) {
    return getrandom(bytes, size, 0) == (ssize_t)size;
}

bool hf_pipe(int ends[2], bool blocking) {
    return pipe2(ends, O_CLOEXEC | (blocking ? 0 : O_NONBLOCK)) == 0 && pipe_above_standard(ends);
}

int hf_socket(int family) {
    return hf_move_above_standard(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

ssize_t hf_send(int fd, const void *bytes, size_t size) {
    return send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t hf_recv(int fd, void *bytes, size_t size) {
    return recv(fd, bytes, size, MSG_DONTWAIT);
}

/* Sets the socket's receive timeout, so that one recv replaces poll and recv. */
void hf_prepare_wait(int fd, hf_time span) {
    struct timeval timeout = {.tv_sec = 0, .tv_usec = (suseconds_t)(span / 1000)};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

ssize_t hf_recv_wait(int fd, void *bytes, size_t size, hf_time span) {
    (void)span;
    return recv(fd, bytes, size, 0);
}

int hf_poll(struct pollfd *fds, nfds_t count, hf_time span, const sigset_t *signals) {
    struct timespec timeout = timespec_of(hf_time_min(span, HOUR));
    return ppoll(fds, count, &timeout, signals);
}

void hf_cond_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void hf_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, hf_time span) {
    struct timespec until = timespec_of(read_clock(CLOCK_MONOTONIC) + hf_time_min(span, HOUR));
    pthread_cond_timedwait(condition, mutex, &until);
}

/* Points to this process's number, or to 0 before it has one, in a page that the kernel zeroes in a
 * forked child; NULL if the kernel does not support that. */
static _Atomic unsigned *process;

/* The number of numbered processes: this one and its ancestors. */
static _Atomic unsigned generations;

/* An emulator may accept any advice, so an invalid one is tried first. */
__attribute__((constructor)) static void allocate_process_page(void) {
#ifdef MADV_WIPEONFORK
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (madvise(page, size, -1) != 0 && madvise(page, size, MADV_WIPEONFORK) == 0) process = page;
    else munmap(page, size);
#endif
}

unsigned hf_process_number(void) {
    if (!process) return count_forks();
    unsigned own = atomic_load_explicit(process, memory_order_relaxed);
    if (own != 0) return own;
    unsigned next = atomic_fetch_add(&generations, 1) + 1;
    return atomic_compare_exchange_strong(process, &own, next) ? next : own;
}

bool hf_die_with_parent(int number) {
    return prctl(PR_SET_PDEATHSIG, number) == 0;
}

#else

#define SIGNAL_INTERVAL (50 * HF_MS) /* the maximum delay of a signal just before a sleep */

bool hf_random(unsigned char *bytes, size_t size) {
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t received = read(fd, bytes, size);
    close(fd);
    return received == (ssize_t)size;
}

/* Sets a new descriptor's flags. Another thread may fork before that, which POSIX cannot
 * prevent. */
static bool set_flags(int fd, bool blocking) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) return false;
    return blocking || fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool hf_pipe(int ends[2], bool blocking) {
    if (pipe(ends) != 0 || !pipe_above_standard(ends)) return false;
    if (set_flags(ends[0], blocking) && set_flags(ends[1], blocking)) return true;
    hf_pipe_close(ends);
    return false;
}

int hf_socket(int family) {
    int fd = hf_move_above_standard(socket(family, SOCK_STREAM, 0));
    return fd < 0 || set_flags(fd, false) ? fd : hf_close_keeping_errno(fd);
}

static bool is_pending(int number) {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

/* Consumes the SIGPIPE that the send has raised, unless one was already pending. */
ssize_t hf_send(int fd, const void *bytes, size_t size) {
    sigset_t broken, before;
    int number;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    bool was_pending = is_pending(SIGPIPE);
    ssize_t sent = send(fd, bytes, size, 0);
    int error = errno;
    if (sent < 0 && error == EPIPE && !was_pending && is_pending(SIGPIPE))
        sigwait(&broken, &number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return sent;
}

ssize_t hf_recv(int fd, void *bytes, size_t size) {
    return recv(fd, bytes, size, 0);
}

void hf_prepare_wait(int fd, hf_time span) {
    (void)fd;
    (void)span;
}

/* Rounds up, so that no caller busy-waits for the last fraction of a millisecond. */
static int to_milliseconds(hf_time span) {
    return (int)((hf_time_min(span, HOUR) + HF_MS - 1) / HF_MS);
}

ssize_t hf_recv_wait(int fd, void *bytes, size_t size, hf_time span) {
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    if (poll(&readable, 1, to_milliseconds(span)) < 0) return -1;
    return recv(fd, bytes, size, 0);
}

/* A signal between two of these system calls does not end the sleep; it takes effect up to
 * SIGNAL_INTERVAL later. */
static int poll_unblocked(struct pollfd *fds, nfds_t count, hf_time span, const sigset_t *signals) {
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, signals, &before);
    int ready = poll(fds, count, to_milliseconds(hf_time_min(span, SIGNAL_INTERVAL)));
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return ready;
}

/* Fills the sets for pselect. Returns the largest descriptor + 1, or -1 if one is too large for a
 * set. */
static int fill_sets(const struct pollfd *fds, nfds_t count, fd_set *readable, fd_set *writable) {
    int end = 0;
    FD_ZERO(readable);
    FD_ZERO(writable);
    for (nfds_t i = 0; i < count; i++) {
        if (fds[i].fd < 0) continue;
        if (fds[i].fd >= FD_SETSIZE) return -1;
        if (fds[i].events & POLLIN) FD_SET(fds[i].fd, readable);
        if (fds[i].events & POLLOUT) FD_SET(fds[i].fd, writable);
        if (fds[i].fd >= end) end = fds[i].fd + 1;
    }
    return end;
}

static void read_sets(struct pollfd *fds, nfds_t count, const fd_set *readable,
                      const fd_set *writable) {
    for (nfds_t i = 0; i < count; i++) {
        bool in = fds[i].fd >= 0 && FD_ISSET(fds[i].fd, readable);
        bool out = fds[i].fd >= 0 && FD_ISSET(fds[i].fd, writable);
        fds[i].revents = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0));
    }
}

#define MIN_SLEEP (HF_MS / 10) /* the shortest sleep: macOS delivers no signal without one */

/* In POSIX, only pselect changes the mask and sleeps atomically. */
int hf_poll(struct pollfd *fds, nfds_t count, hf_time span, const sigset_t *signals) {
    if (!signals) return poll(fds, count, to_milliseconds(span));
    fd_set readable, writable;
    int end = fill_sets(fds, count, &readable, &writable);
    if (end < 0) return poll_unblocked(fds, count, span, signals);
    struct timespec timeout = timespec_of(hf_time_min(hf_time_max(span, MIN_SLEEP), HOUR));
    int ready = pselect(end, &readable, &writable, NULL, &timeout, signals);
    if (ready > 0) read_sets(fds, count, &readable, &writable);
    return ready;
}

void hf_cond_init(pthread_cond_t *condition) {
    pthread_cond_init(condition, NULL);
}

/* Only sleeps for a short time: on macOS, conditions use the wall clock, which may be set back
 * during the wait. */
void hf_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, hf_time span) {
    (void)condition;
    struct timespec nap = timespec_of(hf_time_min(span, HF_MS));
    pthread_mutex_unlock(mutex);
    nanosleep(&nap, NULL);
    pthread_mutex_lock(mutex);
}

unsigned hf_process_number(void) {
    return count_forks();
}

bool hf_die_with_parent(int number) {
    (void)number;
    return false;
}

#endif
