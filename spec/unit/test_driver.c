/*
 * The driver against a small server in a thread of this program, while chosen system calls fail:
 * each scenario runs with its 1st, 2nd, 3rd … call having a fault, until it makes fewer calls.
 * Every operation ends, the client works again afterwards, and no descriptor, thread or allocation
 * is left.
 */
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

static SSL *tls_of(int fd) {
    for (int i = 0; i < MOST; i++)
        if (peer.connections[i].fd == fd) return peer.connections[i].tls;
    return NULL;
}

static void write_two_records(int fd, SSL *tls, const char *bytes, size_t size) {
    int on = 1, off = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    SSL_write(tls, bytes, 1);
    SSL_write(tls, bytes + 1, (int)size - 1);
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
}

static void answer_bytes(int fd, const char *bytes, size_t size) {
    SSL *tls = tls_of(fd);
    if (tls && peer.manner.splits) write_two_records(fd, tls, bytes, size);
    else if (tls) SSL_write(tls, bytes, (int)size);
    else send(fd, bytes, size, MSG_NOSIGNAL);
}

static void sleep_us(long us) {
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static void answer(int fd, const char *text) {
    size_t size = strlen(text);
    if (!peer.manner.trickles) answer_bytes(fd, text, size);
    for (size_t i = 0; peer.manner.trickles && i < size; i++) {
        answer_bytes(fd, text + i, 1);
        sleep_us(100);
    }
}

static void push_message(const char *kind, const char *channel, const char *text, bool number) {
    char bytes[1024];
    int size = snprintf(bytes, sizeof bytes, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(kind),
                        kind, strlen(channel), channel);
    char *rest = bytes + size;
    if (number) snprintf(rest, sizeof bytes - (size_t)size, ":%s\r\n", text);
    else snprintf(rest, sizeof bytes - (size_t)size, "$%zu\r\n%s\r\n", strlen(text), text);
    if (peer.events >= 0) answer(peer.events, bytes);
}

/* A waiter that has no place in the queue yet sends nothing; one that has gets the lock. */
static void on_acquire(int fd, const char *waiter) {
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

static void on_command(int fd, char *const words[], size_t count) {
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
static bool take_command(peer_connection *from) {
    char *words[WORDS_MAX];
    size_t used, count = words_take(from->bytes, from->size, words, &used);
    if (count == 0) return false;
    on_command(from->fd, words, count);
    from->size -= used;
    memmove(from->bytes, from->bytes + used, from->size);
    return true;
}

static void drop(peer_connection *from) {
    if (peer.events == from->fd) peer.events = -1;
    SSL_free(from->tls);
    from->tls = NULL;
    close(from->fd);
    from->fd = -1;
}

/* As recv; what is no end and no error yet is EAGAIN. */
static ssize_t receive(peer_connection *from) {
    char *end = from->bytes + from->size;
    if (!from->tls) return recv(from->fd, end, ROOM - from->size, MSG_DONTWAIT);
    int size = SSL_read(from->tls, end, (int)(ROOM - from->size));
    int error = SSL_get_error(from->tls, size);
    bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    errno = waits ? EAGAIN : EPROTO;
    return size > 0 ? size : error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static void serve_connection(peer_connection *from) {
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
static SSL_CTX *server_context(void) {
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

static SSL *accept_tls(int fd) {
    SSL *tls = SSL_new(server_context());
    if (!tls || SSL_set_fd(tls, fd) != 1) abort();
    fcntl(fd, F_SETFL, O_NONBLOCK);
    SSL_set_accept_state(tls);
    return tls;
}

static void accept_one(void) {
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
static void block_pipe_signal(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static void *serve(void *context) {
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

static int listen_here(struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET};
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)address, size) != 0 || listen(fd, MOST) != 0) abort();
    getsockname(fd, (struct sockaddr *)address, &size);
    return fd;
}

static void start_peer(peer_manner manner) {
    peer = (struct peer){.manner = manner, .events = -1};
    for (int i = 0; i < MOST; i++) peer.connections[i].fd = -1;
    peer.listener = listen_here(&peer.address);
    if (pipe(peer.stop) != 0 || pthread_create(&peer.thread, NULL, serve, NULL) != 0) abort();
}

/* Serves what has been sent before it ends. */
static void stop_peer(void) {
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
    bool by_name, looped, asynchronous;
    bool renews;      /* the lock is held until it has been renewed */
    hf_time patience; /* until a silent server counts as unreachable; 0: 20 s */
} scenario;

static scenario now_runs;
static hf_code last_code;
static char last_text[sizeof(hf_failure)];

static bool was_refused; /* the old password */

/* The old password until the server has refused it. A fault of its own: it finds none. */
static void fetch_password(void *context, const char *server, bool refused,
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

static hf_driver *new_driver(void) {
    hf_client_config config = {
        .session = {.connect_timeout = 20 * HF_SECOND,
                    .command_timeout = now_runs.patience ? now_runs.patience : 20 * HF_SECOND,
                    .name = "unit",
                    .asks_login = now_runs.manner.has_password},
        .grant_lease = 10 * HF_SECOND,
        .renewer = now_runs.looped ? HF_LINK_CALLS : HF_LINK_RENEWER};
    hf_server *server = &config.session.server;
    snprintf(server->host, sizeof server->host, "%s", now_runs.by_name ? NAME : "127.0.0.1");
    snprintf(server->label, sizeof server->label, "here");
    server->port = ntohs(peer.address.sin_port);
    server->tls = now_runs.manner.speaks_tls;
    hf_driver *driver = hf_driver_new(&config, NULL);
    if (!driver) return NULL;
    driver->looped = now_runs.looped;
    was_refused = false;
    if (now_runs.manner.has_password) driver->fetch = fetch_password;
    if (server->tls) driver->tls = hf_tls_settings_new(&(hf_tls_options){.trusting = true});
    if (!server->tls || driver->tls) return driver;
    hf_driver_unref(driver);
    return NULL;
}

static bool never(void *context, bool signalled) {
    (void)context;
    (void)signalled;
    return false;
}

/* What an event loop does. */
static hf_op *run_in_loop(hf_driver *driver, const hf_op_spec *spec) {
    hf_op *op = hf_driver_begin(driver, spec);
    hf_driver_serve(driver, false);
    while (op && !hf_op_is_done(op)) {
        int fd = hf_driver_rest(driver, hf_now() + 60 * HF_SECOND);
        hf_driver_leave(driver);
        if (fd < 0) sleep_us(1000);
        else poll(&(struct pollfd){fd, POLLIN, 0}, 1, 20000);
        hf_driver_enter(driver);
        hf_driver_serve(driver, true);
    }
    return op;
}

static bool run_op(hf_driver *driver, hf_op_spec *spec) {
    hf_driver_enter(driver);
    bool sends = now_runs.asynchronous && spec->kind == HF_OP_RELEASE;
    bool watched = hf_driver_watch(driver);
    hf_op *op = NULL;
    if (watched && now_runs.looped) op = run_in_loop(driver, spec);
    else if (watched && sends) op = hf_driver_send(driver, spec, never, NULL);
    else if (watched) op = hf_driver_run(driver, spec, false, never, NULL);
    last_code = op && hf_op_is_detached(op) ? HF_OK : op ? hf_op_code(op) : HF_NO_MEMORY;
    snprintf(last_text, sizeof last_text, "%s", op ? message_of(op) : "no memory or thread");
    if (op && !hf_op_is_detached(op)) hf_op_end(op, hf_now());
    hf_driver_leave(driver);
    return last_code == HF_OK;
}

/* A third of the lease passes; the watchdog renews the lock. */
static bool await_renewal(hf_driver *driver) {
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

static hf_op_spec acquire_of(const hf_names *names) {
    return (hf_op_spec){.kind = HF_OP_ACQUIRE,
                        .lock_kind = hf_kind_named("lock"),
                        .names = names,
                        .caller = {"me", 2},
                        .lease = now_runs.lease ? now_runs.lease : 30 * HF_SECOND,
                        .wait = now_runs.wait,
                        .token_ttl_ms = 1000,
                        .renewed = true,
                        .blocking = true};
}

/* An acquire and a release. */
static bool take_turn(hf_driver *driver) {
    hf_names *names = hf_client_names(driver->client, hf_kind_named("lock"), hf_slice_of("k"));
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

static int count_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return 0;
    for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static int count_held_signals(void) {
    sigset_t held;
    int count = 0;
    pthread_sigmask(SIG_BLOCK, NULL, &held);
    for (int number = 1; number <= 64; number++) count += sigismember(&held, number) == 1;
    return count;
}

static inventory take_inventory(void) {
    return (inventory){check_open_descriptors(), count_threads(), memerr_live() + address_lists,
                       count_held_signals()};
}

static bool is_same(inventory a, inventory b) {
    return a.descriptors == b.descriptors && a.threads == b.threads &&
           a.allocations == b.allocations && a.held == b.held;
}

static int threads_at_start; /* this one; an emulator has some of its own */

/* Besides them the server's is there. A thread of the last run may still be ending. */
static inventory take_first_inventory(void) {
    for (int i = 0; i < SOON && count_threads() > threads_at_start + 1; i++) sleep_us(1000);
    return take_inventory();
}

/* A thread that looks up a name may end a little later. */
static inventory take_inventory_like(inventory before) {
    inventory now = take_inventory();
    for (int i = 0; i < SOON && !is_same(now, before); i++) {
        sleep_us(1000);
        now = take_inventory();
    }
    return now;
}

/* ---- the sweep ---- */

#define MEMORY SYSERR_FAULTS /* an allocation fails */
#define TURNS 20             /* until it works again: what fails is tried again after a pause */

static void inject(syserr_fault fault, unsigned nth) {
    syserr_inject(fault == MEMORY ? SYSERR_NONE : fault, nth);
    memerr_fail(fault == MEMORY ? nth : 0);
}

static const char *injected(syserr_fault fault) {
    if (fault == MEMORY) return memerr_failed() ? "an allocation" : NULL;
    return syserr_injected();
}

/* One that ends no connection and takes nothing away is not noticed. */
static bool is_harmless(syserr_fault fault) {
    return fault <= SYSERR_SHORT;
}

/* → whether the fault came, and in which call */
static const char *run_with(syserr_fault fault, unsigned nth) {
    char where[160];
    start_peer(now_runs.manner);
    inventory before = take_first_inventory();
    hf_time began_at = __real_hf_now();
    inject(fault, nth);
    hf_driver *driver = new_driver();
    bool done = driver && take_turn(driver);
    const char *call = injected(fault);
    inject(SYSERR_NONE, 0);
    snprintf(where, sizeof where, "%s, call %u (%s) %s", now_runs.name, nth, call ? call : "-",
             fault == MEMORY ? "without memory" : syserr_names[fault]);
    if (!done && is_harmless(fault)) check_fail(__FILE__, __LINE__, "%s: %s", where, last_text);
    for (int turn = 0; driver && !done && turn < TURNS; turn++) {
        sleep_us(turn > 0 ? 10000 : 0);
        done = take_turn(driver);
    }
    if (driver && !done) check_fail(__FILE__, __LINE__, "%s: not again: %s", where, last_text);
    if (driver) hf_driver_unref(driver);
    hf_time took = __real_hf_now() - began_at;
    inventory after = take_inventory_like(before);
    if (!is_same(after, before))
        check_fail(__FILE__, __LINE__,
                   "%s: leaves %d descriptors, %d threads, %ld allocations, %d signals held", where,
                   after.descriptors - before.descriptors, after.threads - before.threads,
                   after.allocations - before.allocations, after.held - before.held);
    stop_peer();
    if (peer.held) check_fail(__FILE__, __LINE__, "%s: the server still has the lock", where);
    if (took > 10 * HF_SECOND) check_fail(__FILE__, __LINE__, "%s: takes too long", where);
    return call;
}

/* `step`: from one call that fails to the next one; HOLDFAST_EACH_CALL: each. */
static void sweep_by(scenario of, unsigned step) {
    now_runs = of;
    if (getenv("HOLDFAST_EACH_CALL")) step = 1;
    for (syserr_fault fault = SYSERR_INTERRUPTED; fault <= MEMORY; fault++) {
        unsigned first = 1 + (unsigned)fault % step;
        for (unsigned nth = first; run_with(fault, nth) && nth < 1000; nth += step) continue;
    }
}

static void sweep(scenario of) {
    sweep_by(of, 1);
}

TEST(calls_on_a_lock_survive_each_injected_fault) {
    sweep((scenario){.name = "a lock", .by_name = true, .manner = {.knows_no_script = true}});
}

TEST(an_async_release_survives_each_injected_fault) {
    sweep((scenario){.name = "an asynchronous release", .asynchronous = true});
}

TEST(a_wait_survives_each_injected_fault) {
    sweep((scenario){.name = "a wait", .wait = 20 * HF_SECOND, .manner = {.queues = true}});
}

TEST(calls_in_an_event_loop_survive_each_injected_fault) {
    sweep((scenario){.name = "a loop", .looped = true});
}

TEST(a_wait_in_an_event_loop_survives_each_injected_fault) {
    sweep((scenario){.name = "a wait in a loop",
                     .looped = true,
                     .wait = 20 * HF_SECOND,
                     .manner = {.queues = true}});
}

TEST(a_renewal_survives_each_injected_fault) {
    sweep_by((scenario){.name = "a renewal", .renews = true}, 3);
}

/* The server refuses the first password. */
TEST(calls_with_a_fetched_login_survive_each_injected_fault) {
    sweep((scenario){.name = "a fetched login", .manner = {.has_password = true}});
    CHECK(was_refused);
}

TEST(a_wait_with_a_fetched_login_survives_each_injected_fault) {
    sweep_by((scenario){.name = "a wait with a fetched login",
                        .wait = 20 * HF_SECOND,
                        .manner = {.has_password = true, .queues = true}},
             5);
}

TEST(a_renewal_with_a_fetched_login_survives_each_injected_fault) {
    sweep_by((scenario){.name = "a renewal with a fetched login",
                        .renews = true,
                        .manner = {.has_password = true}},
             7);
}

/* Handshakes are slow. */
TEST(calls_over_tls_survive_each_injected_fault) {
    sweep_by((scenario){.name = "a lock over TLS", .manner = {.speaks_tls = true}}, 13);
}

TEST(calls_over_tls_survive_each_interrupted_system_call) {
    now_runs = (scenario){.name = "a lock over TLS", .manner = {.speaks_tls = true}};
    for (unsigned nth = 1; run_with(SYSERR_INTERRUPTED, nth) && nth < 1000; nth++) continue;
}

TEST(a_renewal_over_tls_survives_each_injected_fault) {
    sweep_by(
        (scenario){.name = "a renewal over TLS", .renews = true, .manner = {.speaks_tls = true}},
        17);
}

TEST(a_wait_over_tls_survives_each_injected_fault) {
    sweep_by((scenario){.name = "a wait over TLS",
                        .wait = 20 * HF_SECOND,
                        .manner = {.speaks_tls = true, .queues = true}},
             17);
}

TEST(calls_in_an_event_loop_over_tls_survive_each_injected_fault) {
    sweep_by((scenario){.name = "a loop over TLS", .looped = true, .manner = {.speaks_tls = true}},
             13);
}

/* ---- a server that does not behave ---- */

/* One turn, which must leave nothing here; false: it failed. */
static bool run_once(scenario of) {
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

/* On a busy machine the patience may be over before the client has sent its command: then the next
 * try has more of it. */
static bool resets_a_silent_server(scenario of) {
    for (of.patience = 300 * HF_MS; of.patience <= 10 * HF_SECOND; of.patience *= 5) {
        if (run_once(of) || last_code != HF_UNREACHABLE) return false;
        if (peer.resets > 0 && peer.ends == 0) return true;
    }
    return false;
}

/* The kernel would deliver the command of a connection that is closed cleanly, at any time. */
TEST(closing_a_connection_with_a_reply_outstanding_resets_it) {
    CHECK(
        resets_a_silent_server((scenario){.name = "a silent server", .manner = {.silent = true}}));
    CHECK(resets_a_silent_server((scenario){
        .name = "a silent server of a loop", .looped = true, .manner = {.silent = true}}));
}

TEST(closing_a_connection_without_a_reply_outstanding_closes_it_cleanly) {
    for (int tls = 0; tls < 2; tls++) {
        CHECK(run_once((scenario){.name = "a server", .manner = {.speaks_tls = tls == 1}}));
        CHECK_EQ_INT(peer.resets, 0);
        CHECK(peer.ends > 0);
    }
}

/* The first command is that of the log-in, without which the server is unreachable. */
TEST(commands_that_were_unanswered_when_a_connection_ended_are_sent_again) {
    for (unsigned after = 2; after <= 4; after++) {
        CHECK(run_once((scenario){.name = "a half-closed connection",
                                  .manner = {.knows_no_script = true, .ends_with = after}}));
        CHECK(!peer.held);
    }
}

/* The collector closes a client that is closed already. */
TEST(closing_a_client_twice_closes_no_descriptor_that_it_does_not_own) {
    int ends[8][2];
    now_runs = (scenario){.name = "two closes"};
    inject(SYSERR_NONE, 0);
    start_peer(now_runs.manner);
    hf_driver *driver = new_driver();
    bool done = take_turn(driver);
    hf_driver_close(driver, HF_SECOND);
    for (int i = 0; i < 8; i++) done = pipe(ends[i]) == 0 && done;
    hf_driver_unref(driver);
    int closed = 0;
    for (int i = 0; i < 16; i++) closed += close(ends[i / 2][i % 2]) != 0;
    stop_peer();
    CHECK(done);
    CHECK_EQ_INT(closed, 0);
}

/* The loop carries on what the close has begun. */
static bool close_in_loop(hf_driver *driver) {
    hf_driver_begin_close(driver);
    hf_driver_enter(driver);
    hf_time began_at = __real_hf_now();
    while (!hf_client_is_quiet(driver->client) && __real_hf_now() - began_at < SOON * HF_MS) {
        poll(&(struct pollfd){hf_driver_rest(driver, HF_NEVER), POLLIN, 0}, 1, SOON);
        hf_driver_serve(driver, true);
    }
    bool quiet = hf_client_is_quiet(driver->client);
    hf_driver_leave(driver);
    return quiet;
}

TEST(closing_a_client_in_an_event_loop_releases_its_locks) {
    now_runs = (scenario){.name = "a close in a loop", .looped = true};
    inject(SYSERR_NONE, 0);
    start_peer(now_runs.manner);
    hf_driver *driver = new_driver();
    hf_names *names = hf_client_names(driver->client, hf_kind_named("lock"), hf_slice_of("k"));
    hf_op_spec acquire = acquire_of(names);
    bool acquired = run_op(driver, &acquire);
    bool quiet = close_in_loop(driver), closed = driver->closed;
    hf_names_delete(names);
    hf_driver_unref(driver);
    stop_peer();
    CHECK(acquired && quiet && closed);
    CHECK(!peer.held);
}

/* A child process may have copies of the sockets, and keep them open. */
TEST(a_connection_that_has_ended_no_longer_wakes_an_event_loop) {
    now_runs = (scenario){.name = "a copy of a socket", .looped = true};
    inject(SYSERR_NONE, 0);
    start_peer(now_runs.manner);
    hf_driver *driver = new_driver();
    bool done = take_turn(driver);
    hf_driver_enter(driver);
    int copy = dup(driver->connections[HF_LINK_CALLS].fd);
    shutdown(copy, SHUT_RD);
    hf_driver_serve(driver, true);
    bool ended = driver->connections[HF_LINK_CALLS].fd < 0;
    struct pollfd loop = {hf_driver_rest(driver, HF_NEVER), POLLIN, 0};
    int ready = poll(&loop, 1, 0);
    hf_driver_leave(driver);
    hf_driver_unref(driver);
    close(copy);
    stop_peer();
    CHECK(done && ended);
    CHECK_EQ_INT(ready, 0);
}

/* A command that is sent over it may count as lost, or as sent twice. */
TEST(a_call_in_an_event_loop_does_not_use_a_connection_that_has_ended) {
    now_runs = (scenario){.name = "a server that has closed", .looped = true};
    inject(SYSERR_NONE, 0);
    start_peer(now_runs.manner);
    hf_driver *driver = new_driver();
    bool done = take_turn(driver);
    hf_op_spec ping = {.kind = HF_OP_PING};
    hf_driver_enter(driver);
    shutdown(driver->connections[HF_LINK_CALLS].fd, SHUT_RD);
    sleep_us(2000);
    hf_op *op = hf_driver_begin(driver, &ping);
    bool used = driver->connections[HF_LINK_CALLS].fd >= 0;
    hf_op_end(op, hf_now());
    hf_driver_leave(driver);
    hf_driver_unref(driver);
    stop_peer();
    CHECK(done);
    CHECK(!used);
}

/* ---- a client that has a lock ---- */

static hf_names *held_names;

/* A driver that has acquired the lock; the server runs. */
static hf_driver *new_holder(scenario of) {
    now_runs = of;
    inject(SYSERR_NONE, 0);
    start_peer(of.manner);
    hf_driver *driver = new_driver();
    held_names = hf_client_names(driver->client, hf_kind_named("lock"), hf_slice_of("k"));
    hf_op_spec acquire = acquire_of(held_names);
    if (!run_op(driver, &acquire)) check_fail(__FILE__, __LINE__, "%s: %s", of.name, last_text);
    return driver;
}

static void end_holder(hf_driver *driver) {
    hf_names_delete(held_names);
    hf_driver_unref(driver);
    stop_peer();
}

/* The loop has ended, or the client was collected: a thread does what is left. */
TEST(closing_a_client_outside_its_event_loop_releases_its_locks) {
    static const bool looped[] = {false, true, false, true};
    for (size_t i = 0; i < 4; i++) {
        hf_driver *driver = new_holder((scenario){.name = "a holder", .looped = looped[i]});
        if (i < 2) hf_driver_close(driver, 10 * HF_SECOND);
        end_holder(driver);
        CHECK_OR(!peer.held, "case %zu", i);
    }
}

/* Nothing else would be due for ten seconds. */
TEST(a_sleeping_event_loop_is_woken_to_clean_up_an_abandoned_lock) {
    hf_driver *driver = new_holder((scenario){.name = "a loop", .looped = true});
    hf_driver_enter(driver);
    struct pollfd ready = {hf_driver_rest(driver, HF_NEVER), POLLIN, 0};
    bool early = poll(&ready, 1, 0) == 1;
    hf_hold *hold =
        hf_client_find(driver->client, hf_kind_named("lock"), held_names, (hf_slice){"me", 2});
    if (hold) hf_client_abandon(driver->client, hold, 1, hf_now());
    hf_driver_wake(driver);
    bool woken = poll(&ready, 1, SOON) == 1;
    hf_driver_leave(driver);
    end_holder(driver);
    CHECK(hold && !early);
    CHECK(woken);
    CHECK(!peer.held);
}

static bool is_readable(int fd, int timeout) {
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, timeout) == 1;
}

/* The task may be late: until then others may begin calls. */
TEST(an_event_loop_remains_woken_until_the_clients_task_has_run) {
    hf_driver *driver = new_holder((scenario){.name = "a loop", .looped = true});
    hf_driver_enter(driver);
    int fd = hf_driver_rest(driver, hf_now() + HF_MS);
    bool woken = is_readable(fd, SOON);
    hf_driver_serve(driver, false);
    bool stays = is_readable(fd, SOON);
    hf_driver_wake(driver);
    stays = stays && is_readable(fd, SOON);
    hf_driver_serve(driver, true);
    hf_driver_wake(driver);
    bool goes_on = is_readable(fd, 0); /* nothing is due for ten seconds */
    hf_driver_leave(driver);
    end_holder(driver);
    CHECK(woken);
    CHECK(stays);
    CHECK(!goes_on);
}

TEST(an_event_loop_remains_woken_until_a_caller_has_taken_its_result) {
    hf_driver *driver = new_holder((scenario){.name = "a loop", .looped = true});
    hf_op_spec ping = {.kind = HF_OP_PING};
    hf_driver_enter(driver);
    hf_op *op = run_in_loop(driver, &ping);
    bool waits = is_readable(hf_driver_rest(driver, HF_NEVER), SOON);
    hf_driver_wake(driver);
    waits = waits && is_readable(hf_ready_fd(driver->ready), SOON);
    hf_op_end(op, hf_now());
    bool goes_on = is_readable(hf_driver_rest(driver, HF_NEVER), 0);
    hf_driver_leave(driver);
    end_holder(driver);
    CHECK(waits);
    CHECK(!goes_on);
}

/* The loop was busy with something else for half a minute. */
TEST(a_call_uses_a_reply_that_has_arrived_even_if_its_deadline_has_passed) {
    for (int reads = 0; reads < 2; reads++) {
        hf_driver *driver = new_holder((scenario){.name = "a loop", .looped = true});
        hf_op_spec ping = {.kind = HF_OP_PING};
        hf_driver_enter(driver);
        hf_op *op = hf_driver_begin(driver, &ping);
        hf_driver_serve(driver, false);
        bool answered = is_readable(driver->connections[HF_LINK_CALLS].fd, SOON);
        atomic_fetch_add(&ahead, 30 * HF_SECOND);
        hf_driver_serve(driver, reads == 1);
        hf_code code = hf_op_is_done(op) ? hf_op_code(op) : HF_BUSY;
        hf_op_end(op, hf_now());
        hf_driver_leave(driver);
        end_holder(driver);
        CHECK(answered);
        CHECK_EQ_INT(code, HF_OK);
    }
}

/* Until it sleeps, unless that is for longer than `span`: then false. */
static bool watchdog_sleeps_at_most(hf_driver *driver, hf_time span) {
    for (;;) {
        hf_driver_enter(driver);
        bool sleeps = driver->sleeps_until > 0, soon = driver->sleeps_until <= hf_now() + span;
        hf_driver_leave(driver);
        if (sleeps || !soon) return soon;
        sleep_us(1000);
    }
}

/* It would find out by itself only a second later. */
TEST(a_call_that_leaves_work_to_the_watchdog_wakes_it) {
    hf_driver *driver = new_holder((scenario){.name = "a holder"});
    bool renews = watchdog_sleeps_at_most(driver, 11 * HF_SECOND);
    hf_op_spec release = acquire_of(held_names);
    release.kind = HF_OP_RELEASE;
    hf_driver_enter(driver);
    hf_op *op = hf_driver_send(driver, &release, never, NULL);
    bool detached = op && hf_op_is_detached(op);
    bool reads_soon = driver->sleeps_until <= hf_now() + 10 * HF_MS;
    hf_driver_leave(driver);
    end_holder(driver);
    CHECK(renews);
    CHECK(detached && reads_soon);
}

/* While the mutex is held, no other thread sends it. */
TEST(an_async_release_is_sent_before_the_call_returns) {
    hf_driver *driver = new_holder((scenario){.name = "a holder"});
    hf_op_spec release = acquire_of(held_names);
    release.kind = HF_OP_RELEASE;
    hf_driver_enter(driver);
    const hf_session *calls = hf_link_session(driver, HF_LINK_CALLS);
    hf_op *op = hf_driver_send(driver, &release, never, NULL);
    bool detached = op && hf_op_is_detached(op), awaited = hf_session_awaits_reply(calls);
    size_t unsent = hf_session_output(calls).size;
    hf_driver_leave(driver);
    end_holder(driver);
    CHECK(detached && awaited);
    CHECK_EQ_INT(unsent, 0);
}

/* A reply says that the server no longer knows the script of an earlier release. While this thread
 * holds the mutex, no other one sends that release again. */
TEST(an_async_release_that_must_be_resent_is_sent_before_another_call_returns) {
    hf_driver *driver = new_holder((scenario){.name = "a holder", .manner = {.forgets = 3}});
    hf_op_spec release = acquire_of(held_names), ping = {.kind = HF_OP_PING};
    release.kind = HF_OP_RELEASE;
    hf_driver_enter(driver);
    const hf_session *calls = hf_link_session(driver, HF_LINK_CALLS);
    hf_op *op = hf_driver_send(driver, &release, never, NULL);
    bool detached = op && hf_op_is_detached(op);
    hf_op *other = hf_driver_run(driver, &ping, false, never, NULL);
    bool answered = other && hf_op_code(other) == HF_OK;
    if (other) hf_op_end(other, hf_now());
    bool awaited = hf_session_awaits_reply(calls);
    size_t unsent = hf_session_output(calls).size;
    hf_driver_leave(driver);
    end_holder(driver);
    CHECK(detached && answered && awaited);
    CHECK_EQ_INT(unsent, 0);
    CHECK(!peer.held);
}

/* The process was suspended for a while. */
TEST(an_async_release_uses_a_reply_that_has_arrived_even_if_its_deadline_has_passed) {
    hf_driver *driver = new_holder((scenario){.name = "a holder"});
    hf_op_spec release = acquire_of(held_names);
    release.kind = HF_OP_RELEASE;
    hf_driver_enter(driver);
    hf_op *op = hf_driver_send(driver, &release, never, NULL);
    bool detached = op && hf_op_is_detached(op);
    bool answered = is_readable(driver->connections[HF_LINK_CALLS].fd, SOON);
    atomic_fetch_add(&ahead, 30 * HF_SECOND);
    hf_driver_leave(driver);
    for (bool ended = false; !ended; sleep_us(200)) {
        hf_driver_enter(driver);
        ended = !hf_client_has_detached(driver->client);
        hf_driver_leave(driver);
    }
    end_holder(driver);
    CHECK(detached && answered);
    CHECK_EQ_INT(peer.commands, 3);
    CHECK_EQ_INT(peer.resets, 0);
}

/* Poll and recv would be two system calls for each reply. */
TEST(a_call_waits_for_its_reply_in_a_single_system_call) {
    hf_driver *driver = new_holder((scenario){.name = "a holder"});
    hf_op_spec ping = {.kind = HF_OP_PING};
    atomic_store(&reply_waits, 0);
    bool done = run_op(driver, &ping);
    unsigned waits = atomic_load(&reply_waits);
    end_holder(driver);
    CHECK(done);
    CHECK(waits > 0);
}

/* Until then the release waits, because the renewal is about the same hold. */
TEST(a_call_returns_as_soon_as_the_watchdog_has_received_its_reply) {
    unsigned early = 0;
    for (int tries = 0; tries < 3 && early == 0; tries++) {
        hf_driver *driver = new_holder((scenario){.name = "a renewal", .manner = {.delays = 4}});
        hf_op_spec release = acquire_of(held_names);
        release.kind = HF_OP_RELEASE;
        unsigned renewals = atomic_load(&peer.renewals);
        atomic_store(&early_ends, 0);
        atomic_fetch_add(&ahead, 11 * HF_SECOND);
        hf_driver_enter(driver);
        hf_pipe_wake(driver->wake[1]);
        hf_driver_leave(driver);
        for (bool sent = false; !sent; sleep_us(200)) {
            hf_driver_enter(driver);
            sent = hf_session_awaits_reply(hf_link_session(driver, HF_LINK_RENEWER)) ||
                   atomic_load(&peer.renewals) > renewals;
            hf_driver_leave(driver);
        }
        bool released = run_op(driver, &release);
        early = atomic_load(&early_ends);
        end_holder(driver);
        CHECK_OR(released, "%s", last_text);
    }
    CHECK(early > 0);
}

TEST(a_watchdog_that_was_woken_sleeps_again_once_it_has_no_work) {
    hf_driver *driver = new_holder((scenario){.name = "a holder"});
    bool renewed = await_renewal(driver);
    hf_driver_enter(driver);
    uint64_t before = driver->wakes;
    hf_driver_leave(driver);
    sleep_us(50000);
    hf_driver_enter(driver);
    uint64_t wakes = driver->wakes - before;
    hf_driver_leave(driver);
    end_holder(driver);
    CHECK(renewed);
    CHECK_OR(wakes < 20, "%llu wakes", (unsigned long long)wakes);
}

TEST(a_slow_reply_does_not_close_the_connection) {
    for (unsigned delays = 2; delays <= 3; delays++) {
        CHECK(run_once((scenario){.name = "a slow server", .manner = {.delays = delays}}));
        CHECK_EQ_INT(peer.resets, 0);
        CHECK_EQ_INT(peer.commands, 3);
    }
}

TEST(a_watchdog_thread_that_cannot_start_is_reported_and_can_start_later) {
    for (unsigned nth = 1; nth < 10; nth++) {
        now_runs = (scenario){.name = "no thread"};
        hf_driver *driver = new_driver();
        hf_driver_enter(driver);
        inject(SYSERR_BROKEN, nth);
        errno = 0;
        bool started = hf_driver_watch(driver), running = driver->running;
        int error = errno;
        const char *call = syserr_injected();
        inject(SYSERR_NONE, 0);
        bool later = hf_driver_watch(driver) && driver->running;
        hf_driver_leave(driver);
        hf_driver_unref(driver);
        CHECK(later);
        if (!call) return;
        CHECK_OR(!started && !running && error != 0, "%s", call);
    }
}

/* A nap of the watchdog is a second. */
TEST(closing_a_client_takes_no_longer_than_its_timeout) {
    hf_time took = HF_NEVER;
    for (int tries = 0; tries < 3 && took > 700 * HF_MS; tries++) {
        hf_driver *driver =
            new_holder((scenario){.name = "a server that hangs", .manner = {.silent_after = 2}});
        hf_time began_at = __real_hf_now();
        hf_driver_close(driver, 100 * HF_MS);
        took = __real_hf_now() - began_at;
        end_holder(driver);
        CHECK(peer.commands == 3 && took >= 100 * HF_MS);
    }
    CHECK_OR(took < 700 * HF_MS, "it took %llu ms", (unsigned long long)(took / HF_MS));
}

/* The release of unknown outcome of the first turn comes before the second one. */
TEST(calls_finish_background_releases_while_the_watchdog_is_stopped) {
    hf_driver *driver = new_holder((scenario){
        .name = "a server that loses replies",
        .patience = HF_SECOND,
        .manner = {.ignores = 3, .ignores_to = 4}}); /* it is sent again over a new connection */
    hf_op_spec release = acquire_of(held_names);
    release.kind = HF_OP_RELEASE;
    hf_driver_enter(driver);
    hf_driver_unwatch(driver);
    hf_driver_leave(driver);
    bool lost = !run_op(driver, &release) && last_code == HF_UNREACHABLE;
    hf_driver_enter(driver);
    bool stopped = !driver->running;
    hf_driver_leave(driver);
    bool again = take_turn(driver);
    end_holder(driver);
    CHECK(lost && stopped);
    CHECK_OR(again, "%s", last_text);
    CHECK(!peer.held);
}

static volatile sig_atomic_t signals_taken;

static void take_signal(int number) {
    (void)number;
    signals_taken++;
}

/* A signal that the program blocks stays pending, and another one is as free as before. */
static bool keeps_the_mask(hf_driver *driver, bool interruptible) {
    hf_op_spec pause = {.kind = HF_OP_PAUSE, .wait = 3 * HF_POLL_SLICE};
    sigset_t blocked, before, after, pending;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    struct sigaction action = {.sa_handler = take_signal}, old;
    sigaction(SIGUSR2, &action, &old);
    signals_taken = 0;
    pthread_kill(pthread_self(), SIGUSR2);
    hf_driver_enter(driver);
    hf_op *op = hf_driver_run(driver, &pause, interruptible, never, NULL);
    bool paused = op && hf_op_code(op) == HF_OK;
    if (op) hf_op_end(op, hf_now());
    hf_driver_leave(driver);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    sigpending(&pending);
    bool good = paused && signals_taken == 0 && sigismember(&pending, SIGUSR2) == 1 &&
                sigismember(&after, SIGUSR2) == 1 && sigismember(&after, SIGUSR1) == 0 &&
                sigismember(&after, SIGTERM) == sigismember(&before, SIGTERM);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    good = good && signals_taken == 1;
    sigaction(SIGUSR2, &old, NULL);
    return good;
}

TEST(a_call_receives_no_blocked_signals_and_leaves_the_signal_mask_unchanged) {
    hf_driver *driver = new_holder((scenario){.name = "a holder"});
    bool plain = keeps_the_mask(driver, false), interruptible = keeps_the_mask(driver, true);
    end_holder(driver);
    CHECK(plain);
    CHECK(interruptible);
}

/* One recv sleeps instead of poll and recv; OpenSSL must never sleep. */
TEST(a_call_waits_in_recv_only_if_the_connection_has_no_tls) {
    for (int tls = 0; tls < 2; tls++) {
        hf_driver *driver =
            new_holder((scenario){.name = "a holder", .manner = {.speaks_tls = tls == 1}});
        hf_driver_enter(driver);
        int fd = driver->connections[HF_LINK_CALLS].fd;
        bool sleeps = !(fcntl(fd, F_GETFL) & O_NONBLOCK);
        hf_driver_leave(driver);
        end_holder(driver);
#ifdef HF_LINUX
        CHECK_EQ_INT(sleeps, tls == 0);
#else
        CHECK(!sleeps);
#endif
    }
}

/* ---- the child of a fork ---- */

#ifdef HF_LINUX
#define OF_READY 2 /* descriptors: an epoll set and a timer */
#else
#define OF_READY 4 /* two pipes */
#endif

static bool is_clean(const hf_driver *driver) {
    bool clean = !driver->running && !driver->stopping && !driver->calling && !driver->ready &&
                 !atomic_load(&driver->watchdog_waits) && driver->sleeps_until == 0 &&
                 driver->leftover_at == 0 && driver->wake[0] == -1 && driver->wake[1] == -1;
    for (size_t link = 0; link < driver->connection_count; link++)
        clean = clean && driver->connections[link].fd == -1 && !driver->connections[link].dialing;
    return clean && driver->connection_count == HF_LINKS;
}

/* Returns the step that failed, 0: none. `own`: the descriptors that the parent's driver has. */
static int go_on_in_child(hf_driver *driver, int own) {
    uint32_t generation = driver->generation;
    int open = check_open_descriptors();
    alarm(30);
    hf_driver_enter(driver);
    if (driver->generation != generation + 1) return 1;
    if (!is_clean(driver)) return 2;
    if (check_open_descriptors() != open - own) return 3;
    hf_driver_leave(driver);
    if (!take_turn(driver)) return 4;
    hf_driver_unref(driver);
    return check_open_descriptors() == open - own ? 0 : 5;
}

/* It forks while another thread of its own may be anywhere: qemu does not survive that. */
static int fork_in_the_middle(hf_driver *driver, int (*go_on)(hf_driver *, int)) {
    int status = -1, own = driver->running ? 2 : 0;
    if (getenv("HOLDFAST_EMULATED")) return 0;
    hf_driver_enter(driver);
    while (pthread_mutex_trylock(&driver->gate) != 0) { /* the watchdog waits for the mutex */
        hf_driver_leave(driver);
        hf_driver_enter(driver);
    }
    if (driver->looped && hf_driver_rest(driver, HF_NEVER) >= 0) own += OF_READY;
    for (size_t link = 0; link < driver->connection_count; link++)
        own += driver->connections[link].fd >= 0;
    hf_driver before = *driver;
    atomic_store(&driver->watchdog_waits, true);
    driver->calling = driver->stopping = true;
    driver->sleeps_until = driver->leftover_at = 1;
    pid_t child = fork();
    if (child == 0) _exit(go_on(driver, own));
    driver->calling = driver->stopping = false;
    driver->sleeps_until = before.sleeps_until;
    driver->leftover_at = before.leftover_at;
    atomic_store(&driver->watchdog_waits, false);
    pthread_mutex_unlock(&driver->gate);
    hf_driver_leave(driver);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(a_forked_child_starts_without_its_parents_locks_and_connections) {
    for (int kind = 0; kind < 4; kind++) {
        hf_driver *driver = new_holder((scenario){
            .name = "a parent", .looped = kind % 2 == 1, .manner = {.speaks_tls = kind / 2 == 1}});
        int failed = fork_in_the_middle(driver, go_on_in_child);
        end_holder(driver);
        CHECK_OR(failed == 0, "kind %d, step %d", kind, failed);
    }
}

/* It has closed all that it does not know, and opened files of its own under those numbers. */
static int go_on_with_files_of_its_own(hf_driver *driver, int own) {
    int numbers[HF_LINKS + 2], count = 0, file = open("/dev/null", O_RDONLY);
    (void)own;
    for (size_t link = 0; link < driver->connection_count; link++)
        numbers[count++] = driver->connections[link].fd;
    for (int end = 0; end < 2; end++) numbers[count++] = driver->wake[end];
    for (int i = 0; i < count; i++)
        if (numbers[i] >= 0) dup2(file, numbers[i]);
    int closed = driver->ready ? OF_READY : 0, open = check_open_descriptors();
    alarm(30);
    hf_driver_enter(driver);
    hf_driver_leave(driver);
    return check_open_descriptors() == open - closed ? 0 : 1;
}

TEST(a_forked_child_closes_none_of_the_files_that_it_has_opened_itself) {
    for (int looped = 0; looped < 2; looped++) {
        hf_driver *driver = new_holder((scenario){.name = "a parent", .looped = looped == 1});
        int failed = fork_in_the_middle(driver, go_on_with_files_of_its_own);
        end_holder(driver);
        CHECK_EQ_INT(failed, 0);
    }
}

#ifdef HF_LINUX /* elsewhere they come from a file */

static int go_on_without_random_bytes(hf_driver *driver, int own) {
    (void)own;
    alarm(30);
    inject(SYSERR_BROKEN, 1);
    hf_driver_enter(driver);
    hf_driver_leave(driver);
    const char *call = syserr_injected();
    inject(SYSERR_NONE, 0);
    if (!call || strcmp(call, "getrandom") != 0 || !driver->closed) return 1;
    return take_turn(driver) ? 2 : last_code == HF_CLOSED ? 0 : 3;
}

TEST(a_forked_child_without_random_bytes_gets_a_closed_client) {
    hf_driver *driver = new_holder((scenario){.name = "a parent"});
    int failed = fork_in_the_middle(driver, go_on_without_random_bytes);
    end_holder(driver);
    CHECK_EQ_INT(failed, 0);
}

#endif

/* ---- a client of several servers ---- */

static const hf_server TWO[] = {{.host = "127.0.0.1", .port = 1, .label = "one"},
                                {.host = "127.0.0.1", .port = 2, .label = "two"}};

static const hf_shard SHARDS[] = {
    {"a name that takes more bytes than the two entries themselves do", 7}, {"second", 1}};
static const hf_shard SHORT_FIRST[] = {{"first", 1}, {"a name that is longer than that", 7}};
static const hf_shard *shards = SHARDS;

static hf_driver *new_driver_of(size_t count) {
    hf_client_config config = {.session = {.connect_timeout = HF_SECOND,
                                           .command_timeout = HF_SECOND,
                                           .server = TWO[0],
                                           .name = "unit"},
                               .mode = HF_MODE_SHARDS,
                               .servers = TWO,
                               .shards = shards,
                               .server_count = count,
                               .renewer = HF_LINK_RENEWER};
    return hf_driver_new(&config, NULL);
}

static void copy_servers_and_names(const hf_shard *given) {
    long before = memerr_live();
    for (size_t count = 1; count <= 2; count++) {
        shards = given;
        hf_driver *driver = new_driver_of(count);
        shards = SHARDS;
        const hf_client_config *config = &driver->config;
        CHECK(config->servers != TWO && memcmp(config->servers, TWO, count * sizeof *TWO) == 0);
        for (size_t i = 0; i < count; i++) {
            CHECK(config->shards[i].name != given[i].name);
            CHECK_STR(config->shards[i].name, given[i].name);
            CHECK_EQ_INT(config->shards[i].weight, given[i].weight);
        }
        hf_driver_unref(driver);
        CHECK_EQ_INT(memerr_live(), before);
    }
}

TEST(a_client_copies_its_list_of_servers_and_their_names) {
    copy_servers_and_names(SHARDS);
    copy_servers_and_names(SHORT_FIRST);
}

static bool make_driver_of_two(void *context) {
    (void)context;
    hf_driver *driver = new_driver_of(2);
    if (driver) hf_driver_unref(driver);
    return driver != NULL;
}

TEST(a_client_that_cannot_be_created_leaks_no_memory) {
    long before = memerr_live();
    CHECK(memerr_until_success(make_driver_of_two, NULL, 100) > 0);
    CHECK_EQ_INT(memerr_live(), before);
}

TEST(an_event_loop_with_many_connections_leaks_no_memory) {
    hf_driver *driver = new_driver_of(2);
    driver->looped = true;
    hf_driver_enter(driver);
    bool ready = hf_driver_rest(driver, HF_NEVER) >= 0;
    long before = memerr_live();
    for (int i = 0; i < 3; i++) ready = hf_driver_rest(driver, HF_NEVER) >= 0 && ready;
    long after = memerr_live();
    hf_driver_leave(driver);
    hf_driver_unref(driver);
    CHECK(ready);
    CHECK_EQ_INT(after, before);
}

/* Whichever link it is, and whatever a link that does not dial has left there. */
TEST(a_client_wakes_up_at_the_earliest_timer_of_several_connection_attempts) {
    static const hf_time times[] = {HF_NEVER, 70, 50, 60, 10, HF_NEVER};
    hf_driver *driver = new_driver_of(2);
    CHECK_EQ_INT(driver->connection_count, 2 * HF_LINKS);
    CHECK_EQ_U64(hf_links_next_dial(driver), HF_NEVER);
    hf_time found[2 * HF_LINKS];
    for (size_t link = 0; link < 2 * HF_LINKS; link++) {
        driver->connections[link].dialing = link != 4;
        driver->connections[link].dial.next_at = times[link];
        found[link] = hf_links_next_dial(driver);
    }
    for (size_t link = 0; link < 2 * HF_LINKS; link++) driver->connections[link].dialing = false;
    hf_driver_unref(driver);
    static const hf_time expected[] = {HF_NEVER, 70, 50, 50, 50, 50};
    for (size_t link = 0; link < 2 * HF_LINKS; link++) CHECK_EQ_U64(found[link], expected[link]);
}

TEST(the_watchdog_sends_waiting_output_on_every_connection_that_becomes_writable) {
    int ends[2];
    hf_driver *driver = new_driver_of(2);
    for (size_t link = HF_LINK_RENEWER; link < 2 * HF_LINKS; link += HF_LINKS) {
        hf_connection *connection = &driver->connections[link];
        CHECK(!hf_links_have_unwritten(driver));
        hf_session_opening(hf_link_session(driver, link), hf_now());
        hf_session_opened(hf_link_session(driver, link), hf_now());
        CHECK(!hf_links_have_unwritten(driver));
        CHECK_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        connection->fd = ends[0];
        CHECK(hf_links_have_unwritten(driver));
        connection->full = true;
        CHECK(!hf_links_have_unwritten(driver));
        close(ends[1]);
    }
    hf_driver_unref(driver);
}

/* A session that has logged in, a second ago. */
static void log_in(hf_session *session) {
    hf_time then = hf_now() - HF_SECOND;
    hf_session_opening(session, then);
    hf_session_opened(session, then);
    hf_session_written(session, hf_session_output(session).size);
    hf_session_feed(session, "+OK\r\n", 5, then);
}

/* Of the two one was closed by its server, and one has failed, as a pipe does that is no socket. */
static void read_idle_connections(bool watched) {
    const char *const reasons[] = {"the server closed the connection", strerror(ENOTSOCK)};
    int ends[2][2];
    hf_driver *driver = new_driver_of(2);
    CHECK_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[0]), 0);
    CHECK_EQ_INT(pipe(ends[1]), 0);
    for (size_t i = 0; i < 2; i++) {
        size_t link = HF_LINK_CALLS + i * HF_LINKS;
        log_in(hf_client_link(driver->client, link));
        driver->connections[link].fd = ends[i][0];
        close(ends[i][1]);
    }
    driver->running = watched;
    hf_links_read_idle(driver);
    driver->running = false;
    for (size_t i = 0; i < 2; i++) {
        size_t link = HF_LINK_CALLS + i * HF_LINKS;
        CHECK_EQ_INT(driver->connections[link].fd, -1);
        CHECK_STR(hf_client_link(driver->client, link)->reason, reasons[i]);
    }
    hf_driver_unref(driver);
}

/* What must not be sent twice would fail over such a connection. The watchdog does not read them.
 */
TEST(a_call_first_detects_idle_connections_that_their_servers_have_closed) {
    read_idle_connections(false);
    read_idle_connections(true);
}

/* As by a server that closes it before it has read a command. */
TEST(a_connection_reset_by_the_server_is_reported_as_closed_by_it) {
    struct sockaddr_in address;
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    hf_driver *driver = new_driver_of(1);
    hf_session *calls = hf_client_link(driver->client, HF_LINK_CALLS);
    int listener = listen_here(&address), fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ_INT(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    int other = accept(listener, NULL, NULL);
    setsockopt(other, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(other);
    close(listener);
    log_in(calls);
    driver->connections[HF_LINK_CALLS].fd = fd;
    bool ended = is_readable(fd, SOON);
    hf_links_read_idle(driver);
    CHECK(ended);
    CHECK_EQ_INT(driver->connections[HF_LINK_CALLS].fd, -1);
    CHECK_STR(calls->reason, "the server closed the connection");
    hf_driver_unref(driver);
}

/* ---- who the client is ---- */

/* A reader splits it at the spaces, and writes it to a terminal. */
TEST(a_client_publishes_its_host_as_one_printable_word) {
    static char longest[301];
    memset(longest, 'h', sizeof longest - 1);
    const struct {
        const char *host, *name, *text; /* text: before the pid, NULL: 255 letters */
    } CASES[] = {{"web-3", "", "web-3"},
                 {"web-3", "billing", "web-3"},
                 {"web-3", "b", "web-3"},
                 {"web 3", "", "web?3"},
                 {"\x1b[2J~!", "", "?[2J~!"},
                 {"b\xc3\xbc\x7f", "billing and more", "b???"},
                 {"", "", "?"},
                 {NULL, "billing", "?"},
                 {longest, "billing", NULL}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char text[512], start[256] = "";
        hf_driver *driver = new_driver_of(2);
        if (CASES[i].text) snprintf(start, sizeof start, "%s", CASES[i].text);
        else memset(start, 'h', sizeof start - 1);
        host_name = CASES[i].host;
        snprintf(text, sizeof text, "%s %ld%s%s", start, (long)getpid(),
                 CASES[i].name[0] ? " " : "", CASES[i].name);
        hf_driver_introduce(driver, CASES[i].name);
        bool same = strcmp(introduction_of(driver->client), text) == 0;
        hf_driver_unref(driver);
        host_name = NULL;
        CHECK_OR(same, "case %zu is not \"%s\"", i, text);
    }
}

static int introduce_the_child(hf_driver *driver, int own) {
    char text[64];
    (void)own;
    alarm(30);
    hf_driver_enter(driver);
    snprintf(text, sizeof text, "web-3 %ld billing", (long)getpid());
    bool same = strcmp(introduction_of(driver->client), text) == 0;
    hf_driver_leave(driver);
    return same ? 0 : 1;
}

/* Otherwise its locks would be shown as its parent's. */
TEST(a_forked_child_publishes_its_own_pid) {
    hf_driver *driver = new_driver_of(2);
    host_name = "web-3";
    hf_driver_introduce(driver, "billing");
    int failed = fork_in_the_middle(driver, introduce_the_child);
    host_name = NULL;
    hf_driver_unref(driver);
    CHECK_EQ_INT(failed, 0);
}

/* ---- replies in pieces ---- */

TEST(replies_are_received_correctly_one_byte_at_a_time) {
    CHECK(run_once((scenario){.name = "a slow server", .manner = {.trickles = true}}));
    CHECK(run_once((scenario){.name = "a slow server with a queue",
                              .wait = 20 * HF_SECOND,
                              .manner = {.trickles = true, .queues = true}}));
    CHECK(!peer.held);
}

/* OpenSSL reads ahead, so the socket is not readable for the second record. */
TEST(replies_over_tls_are_received_correctly_as_two_records_at_once) {
    static const bool looped[] = {false, true};
    for (size_t i = 0; i < 2; i++) {
        CHECK(run_once((scenario){.name = "a server that splits its replies",
                                  .looped = looped[i],
                                  .patience = 2 * HF_SECOND,
                                  .manner = {.speaks_tls = true, .splits = true}}));
        CHECK(!peer.held);
    }
}

static void start_refusing(void) {
    static bool made;
    if (made) return;
    made = true;
    close(listen_here(&refusing));
}

/* ---- OpenSSL's memory ---- */

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *block);

static void *allocate(size_t size, const char *file, int line) {
    (void)file;
    (void)line;
    return __real_malloc(size);
}

static void *reallocate(void *old, size_t size, const char *file, int line) {
    (void)file;
    (void)line;
    return __real_realloc(old, size);
}

static void release(void *block, const char *file, int line) {
    (void)file;
    (void)line;
    __real_free(block);
}

/* Where OpenSSL is linked statically, its allocations would fail and be counted, too. */
int main(int argc, char **argv) {
    if (!CRYPTO_set_mem_functions(allocate, reallocate, release)) return 1;
    threads_at_start = count_threads();
    start_refusing();
    return check_run(argc > 1 ? argv[1] : NULL);
}
