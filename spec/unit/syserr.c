#include "syserr.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

const char *const syserr_names[SYSERR_FAULTS] = {"none",  "interrupted", "not ready",
                                                 "short", "broken",      "ended"};

static _Atomic syserr_fault chosen;
static atomic_uint left;
static const char *_Atomic injected;
static _Thread_local bool exempt;

void syserr_inject(syserr_fault fault, unsigned nth) {
    atomic_store(&chosen, SYSERR_NONE);
    atomic_store(&injected, NULL);
    atomic_store(&left, nth);
    atomic_store(&chosen, fault);
}

const char *syserr_injected(void) {
    return atomic_load(&injected);
}

void syserr_exempt_thread(void) {
    exempt = true;
}

#define CAN(fault) (1u << SYSERR_##fault)

/* The fault of this call, which can have the faults of the set. */
static syserr_fault fault_of(const char *call, unsigned can) {
    syserr_fault fault = atomic_load(&chosen);
    if (exempt || fault == SYSERR_NONE || !(can & (1u << fault))) return SYSERR_NONE;
    if (atomic_fetch_sub(&left, 1) != 1) return SYSERR_NONE;
    atomic_store(&injected, call);
    return fault;
}

/* What a call that moves bytes returns. `broken`: its errno; `size`: cut to 1 by a short one. True
 * when it has its result. */
static bool moves(const char *call, unsigned can, int broken, size_t *size, ssize_t *result) {
    syserr_fault fault = fault_of(call, can);
    if (fault == SYSERR_SHORT && *size > 1) *size = 1;
    if (fault == SYSERR_NONE || fault == SYSERR_SHORT) return false;
    *result = fault == SYSERR_ENDED ? 0 : -1;
    if (fault == SYSERR_INTERRUPTED) errno = EINTR;
    if (fault == SYSERR_NOT_READY) errno = EAGAIN;
    if (fault == SYSERR_BROKEN) errno = broken;
    return true;
}

bool syserr_fails(const char *call, int error) {
    if (fault_of(call, CAN(BROKEN)) == SYSERR_NONE) return false;
    errno = error;
    return true;
}

#define MOVES (CAN(INTERRUPTED) | CAN(NOT_READY) | CAN(SHORT) | CAN(BROKEN))
#define WAITS (CAN(INTERRUPTED) | CAN(NOT_READY) | CAN(BROKEN))

/* Declares the real call and ours, and begins ours. */
#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

WRAP(ssize_t, recv, int fd, void *bytes, size_t size, int flags) {
    ssize_t result;
    if (moves("recv", MOVES | CAN(ENDED), ECONNRESET, &size, &result)) return result;
    return __real_recv(fd, bytes, size, flags);
}

WRAP(ssize_t, send, int fd, const void *bytes, size_t size, int flags) {
    ssize_t result;
    if (moves("send", MOVES, EPIPE, &size, &result)) return result;
    return __real_send(fd, bytes, size, flags);
}

WRAP(ssize_t, getrandom, void *bytes, size_t size, unsigned flags) {
    ssize_t result;
    if (moves("getrandom", CAN(BROKEN), ENOSYS, &size, &result)) return result;
    return __real_getrandom(bytes, size, flags);
}

WRAP(int, poll, struct pollfd *fds, nfds_t count, int timeout) {
    size_t size = 0;
    ssize_t result;
    if (!moves("poll", WAITS, ENOMEM, &size, &result)) return __real_poll(fds, count, timeout);
    return errno == EAGAIN ? 0 : -1;
}

/* The same, fortified. */
WRAP(int, __poll_chk, struct pollfd *fds, nfds_t count, int timeout, size_t room) {
    (void)room;
    return __wrap_poll(fds, count, timeout);
}

WRAP(int, ppoll, struct pollfd *fds, nfds_t count, const struct timespec *timeout,
     const sigset_t *signals) {
    size_t size = 0;
    ssize_t result;
    if (!moves("ppoll", WAITS, ENOMEM, &size, &result))
        return __real_ppoll(fds, count, timeout, signals);
    return errno == EAGAIN ? 0 : -1;
}

WRAP(int, connect, int fd, const struct sockaddr *address, socklen_t size) {
    syserr_fault fault = fault_of("connect", CAN(INTERRUPTED) | CAN(BROKEN));
    int result = fault == SYSERR_BROKEN ? -1 : __real_connect(fd, address, size);
    if (fault == SYSERR_NONE) return result;
    errno = fault == SYSERR_BROKEN ? ENETUNREACH : EINTR;
    return -1;
}

WRAP(int, socket, int family, int type, int protocol) {
    return syserr_fails("socket", EMFILE) ? -1 : __real_socket(family, type, protocol);
}

WRAP(int, pipe2, int ends[2], int flags) {
    return syserr_fails("pipe2", EMFILE) ? -1 : __real_pipe2(ends, flags);
}

WRAP(int, epoll_create1, int flags) {
    return syserr_fails("epoll_create1", EMFILE) ? -1 : __real_epoll_create1(flags);
}

WRAP(int, epoll_ctl, int epoll, int what, int fd, struct epoll_event *event) {
    return syserr_fails("epoll_ctl", ENOSPC) ? -1 : __real_epoll_ctl(epoll, what, fd, event);
}

WRAP(int, timerfd_create, int clock, int flags) {
    return syserr_fails("timerfd_create", EMFILE) ? -1 : __real_timerfd_create(clock, flags);
}

WRAP(int, getsockopt, int fd, int level, int name, void *value, socklen_t *size) {
    return syserr_fails("getsockopt", ENOBUFS) ? -1
                                               : __real_getsockopt(fd, level, name, value, size);
}

WRAP(int, setsockopt, int fd, int level, int name, const void *value, socklen_t size) {
    return syserr_fails("setsockopt", ENOBUFS) ? -1
                                               : __real_setsockopt(fd, level, name, value, size);
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
     void *context) {
    if (syserr_fails("pthread_create", EAGAIN)) return EAGAIN;
    return __real_pthread_create(thread, attributes, run, context);
}
