/*
 * The driver against a small server in a thread of this program, while chosen system calls may
 * fail.
 */
#ifndef DRIVER_RIG_H
#define DRIVER_RIG_H

#include "driver.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"
#include "link/session.h"
#include "links.h"
#include "syserr.h"
#include "words.h"

#define SOON 5000 /* ms */
#define NAME "two.example"
#define OLD_PASSWORD "old"
#define NEW_PASSWORD "new"
#define NOSCRIPT "-NOSCRIPT No matching script.\r\n"

/* ---- the server ---- */

#define MOST 16
#define ROOM (1 << 17)

typedef struct peer_connection {
    int fd;
    SSL *tls; /* NULL: plain */
    size_t size;
    char bytes[ROOM];
} peer_connection;

/* What it does not do as a server should. Written before it starts. */
typedef struct peer_manner {
    bool queues;          /* the first acquires are busy, and the one that is queued gets a grant */
    bool knows_no_script; /* the first time */
    bool silent;          /* behind the log-in */
    bool speaks_tls;
    unsigned
        ends_with; /* the nth command: it ends its side of the connection instead of an answer */
    unsigned ignores, ignores_to; /* the nth command, and those behind it up to this one */
    unsigned forgets; /* the script of the nth command, whose answer comes with the next one */
    unsigned delays;  /* the nth command: it answers after more than one of the driver's naps */
    unsigned silent_after; /* this many commands; 0: never */
    bool trickles;         /* a byte at a time */
    bool splits;           /* over TLS: two records, which arrive together */
    bool has_password;     /* NEW_PASSWORD */
} peer_manner;

static struct peer {
    peer_manner manner;
    pthread_t thread;
    int listener, stop[2];
    struct sockaddr_in address;
    peer_connection connections[MOST];
    int events; /* the connection that has subscribed; -1: none */
    char channel[128];
    bool held, granted;
    unsigned commands, resets, ends;
    atomic_uint renewals;
} peer;

static UNUSED SSL *tls_of(int fd) {
    for (int i = 0; i < MOST; i++)
        if (peer.connections[i].fd == fd) return peer.connections[i].tls;
    return NULL;
}

static UNUSED void write_two_records(int fd, SSL *tls, const char *bytes, size_t size) {
    int on = 1, off = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    SSL_write(tls, bytes, 1);
    SSL_write(tls, bytes + 1, (int)size - 1);
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
}

static UNUSED void answer_bytes(int fd, const char *bytes, size_t size) {
    SSL *tls = tls_of(fd);
    if (tls && peer.manner.splits) write_two_records(fd, tls, bytes, size);
    else if (tls) SSL_write(tls, bytes, (int)size);
    else send(fd, bytes, size, MSG_NOSIGNAL);
}

static UNUSED void sleep_us(long us) {
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static UNUSED void answer(int fd, const char *text) {
    size_t size = strlen(text);
    if (!peer.manner.trickles) answer_bytes(fd, text, size);
    for (size_t i = 0; peer.manner.trickles && i < size; i++) {
        answer_bytes(fd, text + i, 1);
        sleep_us(100);
    }
}

static UNUSED void push_message(const char *kind, const char *channel, const char *text,
                                bool number) {
    char bytes[1024];
    int size = snprintf(bytes, sizeof bytes, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(kind),
                        kind, strlen(channel), channel);
    char *rest = bytes + size;
    if (number) snprintf(rest, sizeof bytes - (size_t)size, ":%s\r\n", text);
    else snprintf(rest, sizeof bytes - (size_t)size, "$%zu\r\n%s\r\n", strlen(text), text);
    if (peer.events >= 0) answer(peer.events, bytes);
}

/* A waiter that has no place in the queue yet sends nothing; one that has gets the lock. */
static UNUSED void on_acquire(int fd, const char *waiter) {
    char grant[128], number[32] = "";
    if (!peer.manner.queues || peer.granted) {
        peer.held = true;
        answer(fd, ACQUIRED);
        return;
    }
    answer(fd, busy(20000, 0, 0));
    const char *at = strchr(waiter, ':');
    if (!at || peer.events < 0) return;
    snprintf(number, strcspn(at + 1, ":") + 1, "%s", at + 1);
    snprintf(grant, sizeof grant, "1 grant l %s " PLACE " 77 2000 k", number);
    peer.held = peer.granted = true;
    push_message("message", peer.channel, grant, false);
}

static UNUSED void on_command(int fd, char *const words[], size_t count) {
    const char *program =
        count > 1 && words[0][0] == 'E' ? sent_program(words[1], strlen(words[1])) : NULL;
    if (++peer.commands == peer.manner.ends_with) shutdown(fd, SHUT_WR);
    bool silent = peer.manner.silent && strcmp(words[0], "CLIENT") != 0;
    if (peer.commands == peer.manner.delays) sleep_us(130000);
    unsigned last = peer.manner.ignores_to ? peer.manner.ignores_to : peer.manner.ignores;
    silent = silent || (peer.commands >= peer.manner.ignores && peer.commands <= last);
    silent = silent || (peer.manner.silent_after && peer.commands > peer.manner.silent_after);
    silent = silent || peer.commands == peer.manner.forgets;
    if (silent || peer.commands == peer.manner.ends_with) return;
    if (peer.manner.forgets && peer.commands == peer.manner.forgets + 1) {
        answer(fd, NOSCRIPT "+PONG\r\n");
        return;
    }
    if (strcmp(words[0], "SUBSCRIBE") == 0) {
        peer.events = fd;
        snprintf(peer.channel, sizeof peer.channel, "%s", words[1]);
        push_message("subscribe", words[1], "1", true);
    } else if (strcmp(words[0], "AUTH") == 0) {
        bool right = !peer.manner.has_password || strcmp(words[count - 1], NEW_PASSWORD) == 0;
        answer(fd, right ? "+OK\r\n" : "-WRONGPASS invalid username-password pair\r\n");
    } else if (strcmp(words[0], "EVALSHA") == 0 && peer.manner.knows_no_script) {
        peer.manner.knows_no_script = false;
        answer(fd, NOSCRIPT);
    } else if (program && strcmp(program, "acquire") == 0) {
        on_acquire(fd, words[count - 1]);
    } else if (program && (!strcmp(program, "release") || !strcmp(program, "leave"))) {
        peer.held = false;
        answer(fd, ":1\r\n");
    } else if (program && strcmp(program, "renew") == 0) {
        answer(fd, "*1\r\n:1\r\n");
        atomic_fetch_add(&peer.renewals, 1);
    } else {
        answer(fd, program ? ":1\r\n" : "+PONG\r\n");
    }
}

/* Takes a whole command off the bytes. False: it is not complete. */
static UNUSED bool take_command(peer_connection *from) {
    char *words[WORDS_MAX];
    size_t used, count = words_take(from->bytes, from->size, words, &used);
    if (count == 0) return false;
    on_command(from->fd, words, count);
    from->size -= used;
    memmove(from->bytes, from->bytes + used, from->size);
    return true;
}

static UNUSED void drop(peer_connection *from) {
    if (peer.events == from->fd) peer.events = -1;
    SSL_free(from->tls);
    from->tls = NULL;
    close(from->fd);
    from->fd = -1;
}

/* As recv; what is no end and no error yet is EAGAIN. */
static UNUSED ssize_t receive(peer_connection *from) {
    char *end = from->bytes + from->size;
    if (!from->tls) return recv(from->fd, end, ROOM - from->size, MSG_DONTWAIT);
    int size = SSL_read(from->tls, end, (int)(ROOM - from->size));
    int error = SSL_get_error(from->tls, size);
    bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    errno = waits ? EAGAIN : EPROTO;
    return size > 0 ? size : error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static UNUSED void serve_connection(peer_connection *from) {
    ssize_t size = receive(from);
    if (from->tls && size < 0 && errno == EAGAIN) return;
    peer.resets += size < 0;
    peer.ends += size == 0;
    if (size <= 0) {
        drop(from);
        return;
    }
    from->size += (size_t)size;
    while (take_command(from)) continue;
}

/* A context with a key and a certificate of its own, which no client can check. */
static UNUSED SSL_CTX *server_context(void) {
    static SSL_CTX *context;
    if (context) return context;
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    X509 *certificate = X509_new();
    context = SSL_CTX_new(TLS_server_method());
    if (!maker || !certificate || !context || EVP_PKEY_keygen_init(maker) != 1 ||
        EVP_PKEY_keygen(maker, &key) != 1)
        abort();
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    if (!X509_sign(certificate, key, NULL) || SSL_CTX_use_certificate(context, certificate) != 1 ||
        SSL_CTX_use_PrivateKey(context, key) != 1)
        abort();
    SSL_CTX_set_num_tickets(context, 0);
    X509_free(certificate);
    EVP_PKEY_free(key);
    EVP_PKEY_CTX_free(maker);
    return context;
}

static UNUSED SSL *accept_tls(int fd) {
    SSL *tls = SSL_new(server_context());
    if (!tls || SSL_set_fd(tls, fd) != 1) abort();
    fcntl(fd, F_SETFL, O_NONBLOCK);
    SSL_set_accept_state(tls);
    return tls;
}

static UNUSED void accept_one(void) {
    for (int i = 0; i < MOST; i++) {
        if (peer.connections[i].fd >= 0) continue;
        int fd = accept(peer.listener, NULL, NULL), on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        peer.connections[i].fd = fd;
        peer.connections[i].size = 0;
        peer.connections[i].tls = peer.manner.speaks_tls ? accept_tls(fd) : NULL;
        return;
    }
    abort();
}

/* OpenSSL writes without MSG_NOSIGNAL. */
static UNUSED void block_pipe_signal(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static UNUSED void *serve(void *context) {
    struct pollfd fds[MOST + 2] = {{peer.stop[0], POLLIN, 0}, {peer.listener, POLLIN, 0}};
    syserr_exempt_thread();
    block_pipe_signal();
    while (!(fds[0].revents & POLLIN)) {
        for (int i = 0; i < MOST; i++)
            fds[i + 2] = (struct pollfd){peer.connections[i].fd, POLLIN, 0};
        poll(fds, MOST + 2, -1);
        for (int i = 0; i < MOST; i++)
            if (fds[i + 2].revents) serve_connection(&peer.connections[i]);
        if (fds[1].revents) accept_one();
    }
    return context;
}

static UNUSED int listen_here(struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET};
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)address, size) != 0 || listen(fd, MOST) != 0) abort();
    getsockname(fd, (struct sockaddr *)address, &size);
    return fd;
}

static UNUSED void start_peer(peer_manner manner) {
    peer = (struct peer){.manner = manner, .events = -1};
    for (int i = 0; i < MOST; i++) peer.connections[i].fd = -1;
    peer.listener = listen_here(&peer.address);
    if (pipe(peer.stop) != 0 || pthread_create(&peer.thread, NULL, serve, NULL) != 0) abort();
}

/* Serves what has been sent before it ends. */
static UNUSED void stop_peer(void) {
    if (write(peer.stop[1], "", 1) != 1) abort();
    pthread_join(peer.thread, NULL);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < MOST; i++) {
        while (peer.connections[i].fd >= 0) {
            poll(&(struct pollfd){peer.connections[i].fd, POLLIN, 0}, 1, SOON);
            serve_connection(&peer.connections[i]);
        }
    }
    signal(SIGPIPE, SIG_DFL);
    close(peer.stop[0]);
    close(peer.stop[1]);
    close(peer.listener);
}

/* ---- a name with two addresses, of which the first refuses ---- */

static struct sockaddr_in refusing;
static atomic_int address_lists; /* that were not freed */

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **result);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **result);

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **result) {
    if (strcmp(host, NAME) != 0) {
        int none = __real_getaddrinfo(host, service, hints, result);
        address_lists += none == 0;
        return none;
    }
    if (hints->ai_flags & AI_NUMERICHOST) return EAI_NONAME;
    if (syserr_fails("getaddrinfo", 0)) return EAI_AGAIN;
    if (__real_getaddrinfo("127.0.0.1", "1", hints, result) != 0) return EAI_AGAIN;
    if (__real_getaddrinfo("127.0.0.1", service, hints, &(*result)->ai_next) != 0) abort();
    memcpy((*result)->ai_addr, &refusing, sizeof refusing);
    address_lists++;
    return 0;
}

void __real_freeaddrinfo(struct addrinfo *list);
void __wrap_freeaddrinfo(struct addrinfo *list);

void __wrap_freeaddrinfo(struct addrinfo *list) {
    address_lists--;
    __real_freeaddrinfo(list);
}

/* ---- the name of the host ---- */

static const char *host_name; /* NULL: the system does not know it */

int __wrap_gethostname(char *name, size_t size);

/* As glibc, it does not end a name that is too long. */
int __wrap_gethostname(char *name, size_t size) {
    if (!host_name) return -1;
    size_t length = strlen(host_name) + 1;
    memcpy(name, host_name, length < size ? length : size);
    return 0;
}

/* ---- the clock ---- */

static _Atomic hf_time ahead; /* of the system's */

hf_time __real_hf_now(void);
hf_time __wrap_hf_now(void);

hf_time __wrap_hf_now(void) {
    return __real_hf_now() + atomic_load(&ahead);
}

static atomic_uint early_ends; /* of waits for a condition, before their span was over */

void __real_hf_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, hf_time span);
void __wrap_hf_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, hf_time span);

void __wrap_hf_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, hf_time span) {
    hf_time began_at = __real_hf_now();
    __real_hf_cond_wait(condition, mutex, span);
    early_ends += __real_hf_now() < began_at + span;
}

static atomic_uint reply_waits; /* for one reply, in one call */

ssize_t __real_hf_recv_wait(int fd, void *bytes, size_t size, hf_time span);
ssize_t __wrap_hf_recv_wait(int fd, void *bytes, size_t size, hf_time span);

ssize_t __wrap_hf_recv_wait(int fd, void *bytes, size_t size, hf_time span) {
    reply_waits++;
    return __real_hf_recv_wait(fd, bytes, size, span);
}

/* ---- the client ---- */

typedef struct scenario {
    const char *name;
    peer_manner manner;
    hf_time wait, lease, pause; /* 0: a free lock, 30 s, none */
    bool by_name, uses_event_loop, asynchronous;
    bool renews;      /* the lock is held until it has been renewed */
    hf_time patience; /* until a silent server counts as unreachable; 0: 20 s */
} scenario;

static scenario now_runs;
static hf_code last_code;
static char last_text[sizeof(hf_failure)];

static bool was_refused; /* the old password */

/* The old password until the server has refused it. A fault of its own: it finds none. */
static UNUSED void fetch_password(void *context, const char *server, bool refused,
                                  hf_credentials *fetched) {
    (void)context;
    (void)server;
    was_refused = was_refused || refused;
    *fetched = (hf_credentials){.code = HF_OK};
    snprintf(fetched->password, sizeof fetched->password, "%s",
             was_refused ? NEW_PASSWORD : OLD_PASSWORD);
    if (!syserr_fails("fetch", EIO)) return;
    fetched->code = HF_UNREACHABLE;
    snprintf(fetched->reason, sizeof fetched->reason, "the vault is closed");
}

static UNUSED hf_driver *new_driver(void) {
    hf_client_config config = {
        .session = {.connect_timeout = 20 * HF_SECOND,
                    .command_timeout = now_runs.patience ? now_runs.patience : 20 * HF_SECOND,
                    .name = "unit",
                    .fetches_login = now_runs.manner.has_password},
        .grant_lease = 10 * HF_SECOND,
        .renewer = now_runs.uses_event_loop ? HF_LINK_CALLS : HF_LINK_RENEWER};
    hf_server *server = &config.session.server;
    snprintf(server->host, sizeof server->host, "%s", now_runs.by_name ? NAME : "127.0.0.1");
    snprintf(server->label, sizeof server->label, "here");
    server->port = ntohs(peer.address.sin_port), server->tls = now_runs.manner.speaks_tls;
    hf_driver *driver = hf_driver_new(&config, NULL);
    if (!driver) return NULL;
    driver->uses_event_loop = now_runs.uses_event_loop;
    was_refused = false;
    if (now_runs.manner.has_password) driver->fetch = fetch_password;
    if (server->tls)
        driver->tls = hf_tls_settings_new(&(hf_tls_options){.accepts_any_certificate = true});
    if (!server->tls || driver->tls) return driver;
    hf_driver_unref(driver);
    return NULL;
}

static UNUSED bool never(void *context, bool signalled) {
    (void)context;
    (void)signalled;
    return false;
}

/* What an event loop does. */
static UNUSED hf_op *run_in_loop(hf_driver *driver, const hf_op_spec *spec) {
    hf_op *op = hf_driver_begin(driver, spec);
    hf_driver_serve(driver, false);
    while (op && !hf_op_is_done(op)) {
        int fd = hf_driver_prepare_wait(driver, hf_now() + 60 * HF_SECOND);
        hf_driver_leave(driver);
        if (fd < 0) sleep_us(1000);
        else poll(&(struct pollfd){fd, POLLIN, 0}, 1, 20000);
        hf_driver_enter(driver);
        hf_driver_serve(driver, true);
    }
    return op;
}

static UNUSED bool run_op(hf_driver *driver, hf_op_spec *spec) {
    hf_driver_enter(driver);
    bool sends = now_runs.asynchronous && spec->kind == HF_OP_RELEASE;
    bool watched = hf_driver_start_watchdog(driver);
    hf_op *op = NULL;
    if (watched && now_runs.uses_event_loop) op = run_in_loop(driver, spec);
    else if (watched && sends) op = hf_driver_send(driver, spec, never, NULL);
    else if (watched) op = hf_driver_run(driver, spec, false, never, NULL);
    last_code = op && hf_op_is_detached(op) ? HF_OK : op ? hf_op_code(op) : HF_NO_MEMORY;
    snprintf(last_text, sizeof last_text, "%s", op ? message_of(op) : "no memory or thread");
    if (op && !hf_op_is_detached(op)) hf_op_end(op, hf_now());
    hf_driver_leave(driver);
    return last_code == HF_OK;
}

/* A third of the lease passes; the watchdog renews the lock. */
static UNUSED bool await_renewal(hf_driver *driver) {
    unsigned before = atomic_load(&peer.renewals);
    hf_time began_at = __real_hf_now();
    atomic_fetch_add(&ahead, 11 * HF_SECOND);
    hf_driver_enter(driver);
    if (driver->running) hf_pipe_wake(driver->wake[1]);
    hf_driver_leave(driver);
    while (atomic_load(&peer.renewals) == before) {
        if (__real_hf_now() - began_at > SOON * HF_MS) return false;
        sleep_us(200);
    }
    return true;
}

static UNUSED hf_op_spec acquire_of(const hf_names *names) {
    return (hf_op_spec){.kind = HF_OP_ACQUIRE,
                        .lock_kind = hf_kind_by_name("lock"),
                        .names = names,
                        .caller = {"me", 2},
                        .lease = now_runs.lease ? now_runs.lease : 30 * HF_SECOND,
                        .wait = now_runs.wait,
                        .token_ttl_ms = 1000,
                        .renewed = true,
                        .blocks_callers = true};
}

static UNUSED hf_op_spec release_of(const hf_names *names) {
    hf_op_spec spec = acquire_of(names);
    spec.kind = HF_OP_RELEASE;
    return spec;
}

/* An acquire and a release. */
static UNUSED bool take_turn(hf_driver *driver) {
    hf_names *names = hf_client_names(driver->client, hf_kind_by_name("lock"), hf_slice_of("k"));
    hf_op_spec acquire = acquire_of(names);
    hf_op_spec pause = {.kind = HF_OP_PAUSE, .wait = now_runs.pause}, release = acquire;
    release.kind = HF_OP_RELEASE;
    bool done = names && run_op(driver, &acquire) && (!pause.wait || run_op(driver, &pause)) &&
                (!now_runs.renews || await_renewal(driver)) && run_op(driver, &release);
    hf_names_delete(names);
    return done;
}

/* ---- what is left ---- */

typedef struct inventory {
    int descriptors, threads;
    long allocations;
    int held; /* signals that this thread holds */
} inventory;

static UNUSED int count_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return 0;
    for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static UNUSED int count_held_signals(void) {
    sigset_t held;
    int count = 0;
    pthread_sigmask(SIG_BLOCK, NULL, &held);
    for (int number = 1; number <= 64; number++) count += sigismember(&held, number) == 1;
    return count;
}

static UNUSED inventory take_inventory(void) {
    return (inventory){check_open_descriptors(), count_threads(), memerr_live() + address_lists,
                       count_held_signals()};
}

static UNUSED bool is_same(inventory a, inventory b) {
    return a.descriptors == b.descriptors && a.threads == b.threads &&
           a.allocations == b.allocations && a.held == b.held;
}

static int threads_at_start; /* this one; an emulator has some of its own */

/* Besides them the server's is there. A thread of the last run may still be ending. */
static UNUSED inventory take_first_inventory(void) {
    for (int i = 0; i < SOON && count_threads() > threads_at_start + 1; i++) sleep_us(1000);
    return take_inventory();
}

/* A thread that looks up a name may end a little later. */
static UNUSED inventory take_inventory_like(inventory before) {
    inventory now = take_inventory();
    for (int i = 0; i < SOON && !is_same(now, before); i++) {
        sleep_us(1000);
        now = take_inventory();
    }
    return now;
}

static UNUSED bool is_readable(int fd, int timeout) {
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, timeout) == 1;
}

/* ---- faults ---- */

#define MEMORY SYSERR_FAULTS /* an allocation fails */

static UNUSED void inject(syserr_fault fault, unsigned nth) {
    syserr_inject(fault == MEMORY ? SYSERR_NONE : fault, nth);
    memerr_fail(fault == MEMORY ? nth : 0);
}

/* One turn, which must leave nothing here; false: it failed. */
static UNUSED bool run_once(scenario of) {
    now_runs = of;
    inject(SYSERR_NONE, 0);
    start_peer(of.manner);
    inventory before = take_first_inventory();
    hf_driver *driver = new_driver();
    bool done = take_turn(driver);
    hf_driver_unref(driver);
    if (!is_same(take_inventory_like(before), before))
        check_fail(__FILE__, __LINE__, "%s: something is left", of.name);
    stop_peer();
    return done;
}

/* ---- a client that has a lock ---- */

static UNUSED hf_names *held_names;

/* Starts the server without any fault, and makes the driver. */
static UNUSED hf_driver *begin_run(scenario of) {
    now_runs = of;
    inject(SYSERR_NONE, 0);
    start_peer(of.manner);
    return new_driver();
}

/* A driver that has acquired the lock; the server runs. */
static UNUSED hf_driver *new_holder(scenario of) {
    hf_driver *driver = begin_run(of);
    held_names = hf_client_names(driver->client, hf_kind_by_name("lock"), hf_slice_of("k"));
    hf_op_spec acquire = acquire_of(held_names);
    if (!run_op(driver, &acquire)) check_fail(__FILE__, __LINE__, "%s: %s", of.name, last_text);
    return driver;
}

static UNUSED void end_holder(hf_driver *driver) {
    hf_names_delete(held_names);
    hf_driver_unref(driver);
    stop_peer();
}

static UNUSED void leave_holder(hf_driver *driver) {
    hf_driver_leave(driver);
    end_holder(driver);
}

static UNUSED void start_refusing(void) {
    static bool made;
    if (made) return;
    made = true;
    close(listen_here(&refusing));
}

/* ---- OpenSSL's memory ---- */

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *block);

static UNUSED void *allocate(size_t size, const char *file, int line) {
    (void)file;
    (void)line;
    return __real_malloc(size);
}

static UNUSED void *reallocate(void *old, size_t size, const char *file, int line) {
    (void)file;
    (void)line;
    return __real_realloc(old, size);
}

static UNUSED void release(void *block, const char *file, int line) {
    (void)file;
    (void)line;
    __real_free(block);
}

/* Where OpenSSL is linked statically, its allocations would fail and be counted, too. */
static int run_driver_tests(const char *only) {
    if (!CRYPTO_set_mem_functions(allocate, reallocate, release)) return 1;
    threads_at_start = count_threads();
    start_refusing();
    return check_run(only);
}

#define DRIVER_MAIN                                                                                \
    int main(int argc, char **argv) {                                                              \
        return run_driver_tests(argc > 1 ? argv[1] : NULL);                                        \
    }

#endif
