#include "orders_system.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memerr.h"
#include "system.h"

/* Declares the real call and ours, and begins ours. */
#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* ---- the clock ---- */

WRAP(hf_time, hf_now, void) {
    return order_now();
}

WRAP(bool, hf_random, unsigned char *bytes, size_t size) {
    memset(bytes, order_is_child() ? 0x5A : 0x3C, size);
    return true;
}

/* ---- threads ---- */

#define NAMES 4

static struct name {
    const void *context;
    const char *name;
} names[NAMES];

void order_system_name(const void *context, const char *name) {
    size_t at = 0;
    while (at < NAMES - 1 && names[at].context) at++;
    names[at] = (struct name){context, name};
}

static const char *name_of(const void *context) {
    for (size_t i = 0; i < NAMES; i++)
        if (names[i].context == context) return names[i].name;
    return "look-up";
}

WRAP(bool, hf_thread_start, pthread_t *thread, void *(*run)(void *), void *context) {
    order_thread *started = order_start(name_of(context), run, context, false);
    memcpy(thread, &started, sizeof started);
    return true;
}

static order_thread *thread_of(pthread_t thread) {
    order_thread *named;
    memcpy(&named, &thread, sizeof named);
    return named;
}

WRAP(int, pthread_join, pthread_t thread, void **result) {
    (void)result;
    order_join(thread_of(thread));
    return 0;
}

WRAP(int, pthread_detach, pthread_t thread) {
    order_detach(thread_of(thread));
    return 0;
}

/* ---- mutexes ---- */

#define MUTEXES 16

typedef struct mutex {
    const pthread_mutex_t *at;
    const order_thread *owner;
} mutex;

static mutex mutexes[MUTEXES];

static mutex *mutex_at(const pthread_mutex_t *at) {
    mutex *unused = NULL;
    for (size_t i = 0; i < MUTEXES; i++) {
        if (mutexes[i].at == at) return &mutexes[i];
        if (!mutexes[i].at) unused = &mutexes[i];
    }
    ORDER_CHECK(unused, "there are more than %d mutexes", MUTEXES);
    *unused = (mutex){.at = at};
    return unused;
}

static bool is_unlocked(const void *what) {
    return !((const mutex *)what)->owner;
}

WRAP(int, pthread_mutex_init, pthread_mutex_t *at, const pthread_mutexattr_t *attributes) {
    (void)attributes;
    mutex_at(at)->owner = NULL;
    return 0;
}

WRAP(int, pthread_mutex_destroy, pthread_mutex_t *at) {
    mutex *destroyed = mutex_at(at);
    ORDER_CHECK(is_unlocked(destroyed), "it destroys a mutex that is locked");
    destroyed->at = NULL;
    return 0;
}

static void lock(pthread_mutex_t *at, const char *step) {
    mutex *locked = mutex_at(at);
    ORDER_CHECK(locked->owner != order_current(), "it locks a mutex twice");
    order_wait(step, is_unlocked, locked, HF_NEVER);
    locked->owner = order_current();
}

static void unlock(pthread_mutex_t *at) {
    mutex *locked = mutex_at(at);
    ORDER_CHECK(locked->owner == order_current(), "it unlocks a mutex that it has not locked");
    locked->owner = NULL;
}

WRAP(int, pthread_mutex_lock, pthread_mutex_t *at) {
    lock(at, "locks a mutex");
    return 0;
}

WRAP(int, pthread_mutex_unlock, pthread_mutex_t *at) {
    unlock(at);
    order_step("has unlocked a mutex");
    return 0;
}

/* For assertions: no step. */
WRAP(int, pthread_mutex_trylock, pthread_mutex_t *at) {
    mutex *locked = mutex_at(at);
    if (locked->owner) return EBUSY;
    locked->owner = order_current();
    return 0;
}

/* ---- conditions ---- */

#define SLEEPERS 4

typedef struct sleeper {
    const pthread_cond_t *condition; /* NULL: woken, or none */
    uint64_t number;
} sleeper;

static sleeper sleepers[SLEEPERS];
static uint64_t last_sleeper;

static bool is_woken(const void *what) {
    return !((const sleeper *)what)->condition;
}

static void wake(const pthread_cond_t *condition, bool all) {
    sleeper *first = NULL;
    for (size_t i = 0; i < SLEEPERS; i++) {
        if (sleepers[i].condition != condition) continue;
        if (all) sleepers[i].condition = NULL;
        else if (!first || sleepers[i].number < first->number) first = &sleepers[i];
    }
    if (first) first->condition = NULL;
}

WRAP(void, hf_cond_init, pthread_cond_t *condition) {
    (void)condition;
}

WRAP(int, pthread_cond_destroy, pthread_cond_t *condition) {
    for (size_t i = 0; i < SLEEPERS; i++)
        ORDER_CHECK(sleepers[i].condition != condition, "it destroys a condition in use");
    return 0;
}

WRAP(void, hf_cond_wait, pthread_cond_t *condition, pthread_mutex_t *at, hf_time span) {
    size_t place = 0;
    while (place < SLEEPERS && sleepers[place].condition) place++;
    ORDER_CHECK(place < SLEEPERS, "more than %d threads wait for conditions", SLEEPERS);
    sleepers[place] = (sleeper){condition, ++last_sleeper};
    unlock(at);
    order_wait("waits for a condition", is_woken, &sleepers[place], hf_time_add(order_now(), span));
    sleepers[place].condition = NULL;
    lock(at, "locks the condition's mutex");
}

WRAP(int, pthread_cond_broadcast, pthread_cond_t *condition) {
    wake(condition, true);
    order_step("has woken those that wait for a condition");
    return 0;
}

WRAP(int, pthread_cond_signal, pthread_cond_t *condition) {
    wake(condition, false);
    order_step("has woken one that waits for a condition");
    return 0;
}

/* ---- descriptors ---- */

#define FILES 32

typedef struct file {
    enum { FREE, SOCKET, READ_END, WRITE_END } kind;
    uint64_t serial;
    order_socket *socket;
    size_t bytes;        /* of a pipe, at its reading end */
    struct file *reader; /* where what a writing end writes arrives; NULL: that end is closed */
    bool resets;         /* SO_LINGER: closing it takes back what was sent */
    hf_time connected_at;
} file;

static file files[FILES];
static uint64_t last_serial;
order_socket order_sockets[ORDER_SOCKETS];
order_network order_net;

void order_system_begin(void) {
    memset(names, 0, sizeof names);
    memset(mutexes, 0, sizeof mutexes);
    memset(sleepers, 0, sizeof sleepers);
    memset(files, 0, sizeof files);
    for (size_t i = 0; i < ORDER_SOCKETS; i++) order_sockets[i].used = false;
    order_net = (order_network){0};
}

size_t order_descriptors(void) {
    size_t count = 0;
    for (size_t i = 0; i < FILES; i++) count += files[i].kind != FREE;
    return count;
}

void order_system_fork(void) {
    for (size_t i = 0; i < ORDER_SOCKETS; i++)
        order_sockets[i].of_parent = order_sockets[i].used && !order_sockets[i].closed;
}

static file *file_of(int fd) {
    int at = fd - ORDER_FIRST_FD;
    ORDER_CHECK(at >= 0 && at < FILES && files[at].kind != FREE,
                "it uses descriptor %d, which is not open", fd);
    return &files[at];
}

static file *open_file(int *fd) {
    int at = 0;
    while (at < FILES && files[at].kind != FREE) at++;
    ORDER_CHECK(at < FILES, "more than %d descriptors are open", FILES);
    files[at] = (file){.serial = ++last_serial};
    *fd = ORDER_FIRST_FD + at;
    return &files[at];
}

/* Its own, to read or write. */
static file *socket_of(int fd) {
    file *of = file_of(fd);
    ORDER_CHECK(of->kind == SOCKET, "descriptor %d is no socket", fd);
    ORDER_CHECK(!of->socket->of_parent, "the child of a fork uses its parent's connection");
    return of;
}

WRAP(int, fstat, int fd, struct stat *status) {
    if (fd < ORDER_FIRST_FD) return __real_fstat(fd, status);
    memset(status, 0, sizeof *status);
    status->st_ino = (ino_t)file_of(fd)->serial;
    return 0;
}

static void close_socket(const file *closed) {
    order_socket *of = closed->socket;
    if (of->of_parent) return;
    of->closed = true;
    of->coming.size = 0;
    if (closed->resets) of->sent.size = 0;
    if (of->ended || of->sent.size == 0) of->used = false;
}

WRAP(int, close, int fd) {
    if (fd < ORDER_FIRST_FD) return __real_close(fd);
    file *closed = file_of(fd);
    if (closed->kind == SOCKET) close_socket(closed);
    for (size_t i = 0; i < FILES; i++)
        if (files[i].reader == closed) files[i].reader = NULL;
    closed->kind = FREE;
    return 0;
}

/* ---- pipes ---- */

WRAP(bool, hf_pipe, int ends[2], bool blocking) {
    (void)blocking;
    file *reader = open_file(&ends[0]);
    reader->kind = READ_END;
    file *writer = open_file(&ends[1]);
    writer->kind = WRITE_END;
    writer->reader = reader;
    writer->serial = reader->serial; /* as one inode */
    return true;
}

WRAP(void, hf_pipe_wake, int fd) {
    file *writer = file_of(fd);
    ORDER_CHECK(writer->kind == WRITE_END, "descriptor %d is not written to", fd);
    if (writer->reader) writer->reader->bytes++;
    order_step("has written to a pipe");
}

WRAP(void, hf_pipe_drain, int fd) {
    file_of(fd)->bytes = 0;
}

/* ---- sockets ---- */

WRAP(int, hf_socket, int family) {
    int fd;
    (void)family;
    file *opened = open_file(&fd);
    opened->kind = SOCKET;
    for (size_t i = 0; i < ORDER_SOCKETS && !opened->socket; i++)
        if (!order_sockets[i].used) opened->socket = &order_sockets[i];
    ORDER_CHECK(opened->socket, "there are more than %d sockets", ORDER_SOCKETS);
    order_socket *made = opened->socket;
    made->used = true;
    made->closed = made->ended = made->of_parent = false;
    made->sent.size = made->coming.size = 0;
    made->channel[0] = '\0';
    return fd;
}

WRAP(int, connect, int fd, const struct sockaddr *address, socklen_t size) {
    file *of = socket_of(fd);
    (void)address;
    (void)size;
    of->connected_at = hf_time_add(order_now(), order_net.connects_in);
    order_net.tried_at = order_now();
    errno = EINPROGRESS;
    return order_net.connects_in > 0 ? -1 : 0;
}

WRAP(int, getsockopt, int fd, int level, int name, void *value, socklen_t *size) {
    (void)level;
    (void)name;
    socket_of(fd);
    memset(value, 0, *size);
    return 0;
}

WRAP(int, setsockopt, int fd, int level, int name, const void *value, socklen_t size) {
    (void)level;
    (void)value;
    (void)size;
    file *of = socket_of(fd);
    if (name == SO_LINGER) of->resets = true;
    return 0;
}

WRAP(void, hf_prepare_wait, int fd, hf_time span) {
    (void)span;
    socket_of(fd);
}

static void append(order_bytes *to, const char *bytes, size_t size) {
    ORDER_CHECK(to->size + size <= ORDER_ROOM, "more than %d bytes are on their way", ORDER_ROOM);
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

void order_socket_send(order_socket *to, const char *bytes, size_t size) {
    if (!to->closed && !to->ended) append(&to->coming, bytes, size);
}

void order_socket_end(order_socket *of) {
    of->ended = true;
    of->sent.size = 0;
    if (of->closed) of->used = false;
}

void order_socket_free(order_socket *of) {
    of->used = false;
}

WRAP(ssize_t, hf_send, int fd, const void *bytes, size_t size) {
    file *of = socket_of(fd);
    if (of->socket->ended) {
        errno = EPIPE;
        return -1;
    }
    if (!order_net.loses) append(&of->socket->sent, bytes, size);
    order_net.tried_at = order_now();
    order_step("has sent bytes");
    return (ssize_t)size;
}

static ssize_t receive(int fd, void *bytes, size_t size) {
    order_socket *of = socket_of(fd)->socket;
    size_t got = of->coming.size < size ? of->coming.size : size;
    memcpy(bytes, of->coming.bytes, got);
    memmove(of->coming.bytes, of->coming.bytes + got, of->coming.size - got);
    of->coming.size -= got;
    if (got > 0 || of->ended) return (ssize_t)got;
    errno = EAGAIN;
    return -1;
}

WRAP(ssize_t, hf_recv, int fd, void *bytes, size_t size) {
    return receive(fd, bytes, size);
}

bool order_has_bytes(int fd) {
    const file *of = file_of(fd);
    return of->socket->coming.size > 0 || of->socket->ended;
}

/* ---- sleeps that a descriptor ends ---- */

typedef struct polling {
    struct pollfd *fds;
    nfds_t count;
    const order_thread *thread;
    bool holds; /* signals */
} polling;

static short events_at(const struct pollfd *polled) {
    const file *of = &files[polled->fd - ORDER_FIRST_FD];
    if (polled->fd < ORDER_FIRST_FD) return 0;
    if (of->kind == FREE) return POLLNVAL;
    if (of->kind == READ_END) return of->bytes > 0 ? POLLIN : 0;
    ORDER_CHECK(!of->socket->of_parent, "the child of a fork waits for its parent's connection");
    bool connected = order_now() >= of->connected_at;
    bool readable = connected && (of->socket->coming.size > 0 || of->socket->ended);
    return (short)((readable ? POLLIN : 0) | (connected ? POLLOUT : 0));
}

static int count_ready(const polling *self) {
    int count = 0;
    for (nfds_t i = 0; i < self->count; i++) {
        struct pollfd *polled = &self->fds[i];
        polled->revents = (short)(events_at(polled) & (polled->events | POLLNVAL));
        count += polled->revents != 0;
    }
    return count;
}

static bool must_wake(const void *what) {
    const polling *self = what;
    return count_ready(self) > 0 || order_is_interrupted(self->thread, self->holds);
}

/* A connect that is under way ends by the clock. */
static hf_time end_of_connects(const polling *self) {
    hf_time until = HF_NEVER;
    for (nfds_t i = 0; i < self->count; i++) {
        if (self->fds[i].fd < ORDER_FIRST_FD || !(self->fds[i].events & POLLOUT)) continue;
        until = hf_time_min(until, file_of(self->fds[i].fd)->connected_at);
    }
    return until;
}

static int sleep_until(const char *step, const polling *self, hf_time until) {
    order_begin_sleep();
    until = hf_time_min(until, end_of_connects(self));
    order_wait(step, must_wake, self, until);
    int ready = count_ready(self);
    if (!order_end_sleep(self->holds)) return ready;
    if (ready > 0) return ready;
    errno = EINTR;
    return -1;
}

WRAP(int, hf_poll, struct pollfd *fds, nfds_t count, hf_time span, const sigset_t *signals) {
    bool holds = signals ? sigismember(signals, SIGTERM) == 1 : order_holds_signals();
    polling self = {fds, count, order_current(), holds};
    return sleep_until("polls", &self, hf_time_add(order_now(), span));
}

/* With a timeout of 0: no step. */
WRAP(int, poll, struct pollfd *fds, nfds_t count, int timeout) {
    polling self = {fds, count, order_current(), true};
    ORDER_CHECK(timeout == 0, "it polls without hf_poll");
    return count_ready(&self);
}

/* The same, fortified. */
WRAP(int, __poll_chk, struct pollfd *fds, nfds_t count, int timeout, size_t room) {
    (void)room;
    return __wrap_poll(fds, count, timeout);
}

WRAP(ssize_t, hf_recv_wait, int fd, void *bytes, size_t size, hf_time span) {
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    polling self = {&readable, 1, order_current(), order_holds_signals()};
    if (sleep_until("receives", &self, hf_time_add(order_now(), span)) < 0) return -1;
    return receive(fd, bytes, size);
}

/* ---- signals ---- */

static void write_mask(sigset_t *mask) {
    if (order_holds_signals()) sigfillset(mask);
    else sigemptyset(mask);
}

WRAP(void, hf_block_signals, sigset_t *before) {
    write_mask(before);
    order_hold_signals(true);
}

WRAP(int, pthread_sigmask, int how, const sigset_t *set, sigset_t *before) {
    ORDER_CHECK(how == SIG_SETMASK && !before, "it changes the mask in another way");
    order_hold_signals(sigismember(set, SIGTERM) == 1);
    return 0;
}

/* ---- names ---- */

/* A name takes its time, and is the loopback address. */
WRAP(int, getaddrinfo, const char *host, const char *service, const struct addrinfo *hints,
     struct addrinfo **result) {
    bool numeric = (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (numeric && (host[0] < '0' || host[0] > '9')) return EAI_NONAME;
    if (!numeric) order_sleep("looks up a name", order_net.looks_up_in);
    return __real_getaddrinfo(numeric ? host : "127.0.0.1", service, hints, result);
}
