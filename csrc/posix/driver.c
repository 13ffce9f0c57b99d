#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLICE (50 * HF_MS) /* how soon a wait notices a signal that came between two polls */
#define READ_SIZE 16384

#ifdef CLOCK_BOOTTIME
#define CLOCK CLOCK_BOOTTIME /* a suspended host must not believe in its old lease */
#else
#define CLOCK CLOCK_MONOTONIC
#endif

hf_time hf_now(void) {
    struct timespec time;
    clock_gettime(CLOCK, &time);
    return (hf_time)time.tv_sec * HF_SECOND + (hf_time)time.tv_nsec;
}

hf_time hf_driver_now(const hf_driver *driver) {
    return driver->set_now ? driver->set_now : hf_now();
}

/* ---- life ---- */

static bool init_client(hf_driver *driver, const unsigned char *given) {
    unsigned char entropy[24];
    if (given) memcpy(entropy, given, sizeof entropy);
    else if (getrandom(entropy, sizeof entropy, 0) != (ssize_t)sizeof entropy) return false;
    if (!hf_client_init(&driver->client, &driver->config, entropy)) return false;
    driver->wake[0] = driver->wake[1] = -1;
    driver->pid = getpid();
    return true;
}

/* Links that there is no memory for are not served: what needs them fails by its time. */
static void notice_links(hf_driver *driver) {
    size_t count = hf_client_link_count(&driver->client);
    if (count == driver->connection_count) return;
    hf_connection *grown = realloc(driver->connections, count * sizeof *grown);
    if (!grown) return;
    driver->connections = grown;
    while (driver->connection_count < count)
        grown[driver->connection_count++] = (hf_connection){.fd = -1, .dial = HF_DIAL_IDLE};
}

static void init_locks(hf_driver *driver) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&driver->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&driver->mutex, NULL);
}

static bool copy_servers(hf_client_config *config, const hf_client_config *given) {
    if (given->server_count == 0) return true;
    hf_server *servers = calloc(given->server_count, sizeof *servers);
    if (servers) memcpy(servers, given->servers, given->server_count * sizeof *servers);
    config->servers = servers;
    return servers != NULL;
}

static bool copy_shards(hf_client_config *config, const hf_client_config *given) {
    size_t count = given->server_count, size = count * sizeof(hf_shard);
    if (!given->shards || count == 0) return true;
    for (size_t i = 0; i < count; i++) size += given->shards[i].name ? strlen(given->shards[i].name) + 1 : 0;
    hf_shard *shards = malloc(size);
    config->shards = shards;
    if (!shards) return false;
    char *name = (char *)(shards + count);
    for (size_t i = 0; i < count; i++) {
        shards[i] = given->shards[i];
        if (!shards[i].name) continue;
        size_t length = strlen(shards[i].name) + 1;
        shards[i].name = memcpy(name, shards[i].name, length);
        name += length;
    }
    return true;
}

static bool copy_config(hf_driver *driver, const hf_client_config *given) {
    driver->config = *given;
    driver->config.servers = NULL;
    driver->config.shards = NULL;
    return copy_servers(&driver->config, given) && copy_shards(&driver->config, given);
}

static void free_config(hf_client_config *config) {
    free((void *)(uintptr_t)config->servers);
    free((void *)(uintptr_t)config->shards);
}

hf_driver *hf_driver_new(const hf_client_config *config, const unsigned char *entropy) {
    hf_driver *driver = calloc(1, sizeof *driver);
    if (!driver) return NULL;
    driver->refs = 1;
    if (!copy_config(driver, config) || !init_client(driver, entropy)) {
        hf_client_free(&driver->client);
        free_config(&driver->config);
        free(driver);
        return NULL;
    }
    init_locks(driver);
    notice_links(driver);
    return driver;
}

/* The parent's memory may have been copied in the middle of a change: it is left alone, not freed. */
static void begin_anew_after_fork(hf_driver *driver) {
    for (size_t link = 0; link < driver->connection_count; link++) {
        hf_connection *connection = &driver->connections[link];
        hf_file_close(connection->fd, connection->file);
        if (connection->dialing) hf_dial_forget(&connection->dial);
    }
    driver->connection_count = 0;
    for (int end = 0; end < 2; end++) hf_file_close(driver->wake[end], driver->wake_file);
    if (driver->tls) hf_tls_settings_forget(driver->tls);
    driver->generation++;
    driver->running = driver->stopping = driver->calling = false;
    atomic_store(&driver->watchdog_waits, false);
    driver->sleeps_until = 0;
    init_locks(driver);
    if (!init_client(driver, NULL)) driver->closed = true;
    driver->client.closed = driver->closed;
    notice_links(driver);
}

static bool is_forked(const hf_driver *driver) {
    return driver->pid != getpid();
}

void hf_driver_ref(hf_driver *driver) {
    driver->refs++; /* handles and client belong to one Lua state */
}

void hf_driver_unref(hf_driver *driver) {
    if (--driver->refs > 0) return;
    hf_driver_close(driver, HF_SECOND);
    hf_client_free(&driver->client);
    free(driver->connections);
    free_config(&driver->config);
    hf_tls_settings_free(driver->tls);
    pthread_mutex_destroy(&driver->mutex);
    pthread_cond_destroy(&driver->changed);
    free(driver);
}

void hf_driver_enter(hf_driver *driver) {
    if (is_forked(driver)) begin_anew_after_fork(driver);
    if (driver->external) return;
    while (atomic_load(&driver->watchdog_waits)) sched_yield();
    pthread_mutex_lock(&driver->mutex);
}

void hf_driver_leave(hf_driver *driver) {
    if (!driver->external) pthread_mutex_unlock(&driver->mutex);
}

/* ---- links ---- */

#define ROLE(link) (1u << (link)) /* a set of links: those of all nodes with this role */

static hf_session *session_of(const hf_driver *driver, size_t link) {
    return hf_client_link(&driver->client, link);
}

static bool has_role(size_t link, unsigned roles) {
    return (roles & ROLE(link % HF_LINKS)) != 0;
}

/* With a command still unanswered the kernel must not deliver it later: the reset throws it away. */
static void shut(hf_driver *driver, size_t link) {
    hf_connection *connection = &driver->connections[link];
    const hf_session *session = session_of(driver, link);
    if (connection->dialing) hf_dial_cancel(&connection->dial);
    if (connection->fd >= 0) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        bool unanswered = session->first_slot != session->next_slot;
        if (unanswered) setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        hf_tls_free(connection->tls, !unanswered);
        close(connection->fd);
    }
    connection->fd = -1;
    connection->tls = NULL;
    connection->dialing = false;
}

/* reason: as hf_session_closed's */
static void lose_link(hf_driver *driver, size_t link, const char *reason) {
    shut(driver, link);
    hf_session_closed(session_of(driver, link), reason, hf_now());
}

/* A recv without flags sleeps for a slice at most; everything else says MSG_DONTWAIT. */
static void make_blocking(int fd) {
    struct timeval slice = {.tv_sec = 0, .tv_usec = SLICE / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

static void read_link(hf_driver *driver, size_t link);

static void on_dial(hf_driver *driver, size_t link, hf_dial_state state, const char *reason) {
    hf_connection *connection = &driver->connections[link];
    if (state == HF_DIAL_PENDING) {
        if (connection->dial.tls) hf_session_agreeing(session_of(driver, link));
        return;
    }
    if (state == HF_DIAL_FAILED) {
        connection->dialing = false;
        lose_link(driver, link, reason);
        return;
    }
    connection->fd = connection->dial.fd;
    connection->file = connection->dial.file;
    connection->tls = connection->dial.tls;
    connection->dial.fd = -1;
    connection->dial.tls = NULL;
    connection->dialing = false;
    hf_dial_cancel(&connection->dial);
    if (!connection->tls) make_blocking(connection->fd);
    hf_session_opened(session_of(driver, link), hf_now());
    if (connection->tls) read_link(driver, link); /* what came with the handshake no poll would tell of */
}

static void open_link(hf_driver *driver, size_t link) {
    hf_connection *connection = &driver->connections[link];
    char reason[160] = "";
    hf_session *session = session_of(driver, link);
    hf_time now = hf_now(), until = hf_time_add(now, driver->config.session.connect_timeout);
    hf_session_opening(session, now);
    connection->dialing = true;
    hf_dial_state state =
        hf_dial_start(&connection->dial, session->server, driver->tls, now, until, reason, sizeof reason);
    on_dial(driver, link, state, reason);
}

static void step_dial(hf_driver *driver, size_t link) {
    char reason[160] = "";
    hf_dial_state state = hf_dial_step(&driver->connections[link].dial, hf_now(), reason, sizeof reason);
    on_dial(driver, link, state, reason);
}

/* Why recv or send failed, by errno; NULL: the server closed the connection. */
static const char *io_error_text(const hf_connection *connection, char *text, size_t size) {
    if (errno == ECONNRESET || errno == EPIPE) return NULL;
    if (connection->tls && errno == EPROTO) snprintf(text, size, "%s", hf_tls_reason(connection->tls));
    else return strerror_r(errno, text, size);
    return text;
}

/* What recv returned, with its errno. True when there may be more. */
static bool on_received(hf_driver *driver, size_t link, const char *bytes, ssize_t size) {
    const hf_connection *connection = &driver->connections[link];
    char text[160];
    if (size > 0) hf_session_feed(session_of(driver, link), bytes, (size_t)size, hf_now());
    else if (size == 0) lose_link(driver, link, NULL);
    else if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    else if (errno != EINTR) lose_link(driver, link, io_error_text(connection, text, sizeof text));
    return size == READ_SIZE || (size > 0 && connection->tls) || (size < 0 && errno == EINTR);
}

static ssize_t receive(const hf_connection *connection, char *bytes, size_t size) {
    if (connection->tls) return hf_tls_recv(connection->tls, bytes, size);
    return recv(connection->fd, bytes, size, MSG_DONTWAIT);
}

static ssize_t transmit(const hf_connection *connection, hf_slice bytes) {
    if (connection->tls) return hf_tls_send(connection->tls, bytes.data, bytes.size);
    return send(connection->fd, bytes.data, bytes.size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void read_link(hf_driver *driver, size_t link) {
    const hf_connection *connection = &driver->connections[link];
    char bytes[READ_SIZE];
    bool more = true;
    while (more && connection->fd >= 0) {
        more = on_received(driver, link, bytes, receive(connection, bytes, sizeof bytes));
    }
}

/* A server that hung up may have said why before. */
static void on_write_failed(hf_driver *driver, size_t link) {
    char text[160];
    const char *reason = io_error_text(&driver->connections[link], text, sizeof text);
    read_link(driver, link);
    if (driver->connections[link].fd >= 0) lose_link(driver, link, reason);
}

static void write_link(hf_driver *driver, size_t link) {
    hf_connection *connection = &driver->connections[link];
    hf_session *session = session_of(driver, link);
    while (connection->fd >= 0) {
        hf_slice output = hf_session_output(session);
        if (output.size == 0) return;
        ssize_t written = transmit(connection, output);
        if (written >= 0) hf_session_written(session, (size_t)written);
        else if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        else if (errno != EINTR) on_write_failed(driver, link);
    }
}

/* Does what the link wants and can do without waiting. */
static void serve_link(hf_driver *driver, size_t link) {
    hf_session *session = session_of(driver, link);
    hf_want want = hf_session_wants(session, hf_now());
    if (want == HF_WANT_CLOSE) lose_link(driver, link, "not needed any more");
    if (hf_session_wants(session, hf_now()) == HF_WANT_OPEN) open_link(driver, link);
    const hf_connection *connection = &driver->connections[link];
    if (connection->dialing && hf_now() >= connection->dial.next_at) step_dial(driver, link);
    write_link(driver, link);
}

static void serve_links(hf_driver *driver, unsigned roles) {
    notice_links(driver);
    for (size_t link = 0; link < driver->connection_count; link++) {
        if (has_role(link, roles)) serve_link(driver, link);
    }
}

static void serve_calls(hf_driver *driver) {
    hf_client_tick_calls(&driver->client, hf_now());
    serve_links(driver, ROLE(HF_LINK_CALLS) | ROLE(HF_LINK_EVENTS));
}

static void serve_keeper(hf_driver *driver) {
    hf_client_tick_keeper(&driver->client, hf_now());
    serve_links(driver, ROLE(HF_LINK_KEEPER));
    for (size_t link = HF_LINK_CALLS; !driver->calling && link < driver->connection_count; link += HF_LINKS)
        write_link(driver, link); /* the keeper leaves there too */
}

static short poll_events(const hf_driver *driver, size_t link) {
    const hf_connection *connection = &driver->connections[link];
    if (connection->dialing) return connection->dial.events;
    bool output = hf_session_output(session_of(driver, link)).size > 0;
    if (connection->tls) return hf_tls_events(connection->tls, output);
    return (short)(POLLIN | (output ? POLLOUT : 0));
}

static int poll_fd(const hf_driver *driver, size_t link) {
    const hf_connection *connection = &driver->connections[link];
    return connection->dialing ? connection->dial.fd : connection->fd;
}

/* After a poll without the mutex: the other thread may have served the link meanwhile, so nothing is taken for granted.
 */
static void on_polled(hf_driver *driver, size_t link, short revents) {
    const hf_connection *connection = &driver->connections[link];
    bool readable = revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL);
    if (revents == 0) return;
    if (connection->dialing) step_dial(driver, link);
    else if (readable || (connection->tls && hf_tls_recv_wants_write(connection->tls))) read_link(driver, link);
}

static struct timespec timespec_of(hf_time span) {
    hf_time capped = hf_time_min(span, 3600 * HF_SECOND);
    return (struct timespec){(time_t)(capped / HF_SECOND), (long)(capped % HF_SECOND)};
}

static void lock_again(hf_driver *driver, bool watchdog) {
    if (watchdog) atomic_store(&driver->watchdog_waits, true);
    pthread_mutex_lock(&driver->mutex);
    if (watchdog) atomic_store(&driver->watchdog_waits, false);
}

#define POLL_MOST ((size_t)3 * 1024) /* sockets; what is beyond that waits for a look by the clock */

typedef struct hf_polled {
    struct pollfd fds[POLL_MOST + 1];
    size_t links[POLL_MOST];
    nfds_t count;
} hf_polled;

/* Returns when the next of the dials among them tries its next address. */
static hf_time choose_polled(const hf_driver *driver, unsigned roles, hf_polled *polled) {
    hf_time until = HF_NEVER;
    polled->count = 0;
    for (size_t link = 0; link < driver->connection_count && polled->count < POLL_MOST; link++) {
        int fd = has_role(link, roles) ? poll_fd(driver, link) : -1;
        if (fd < 0) continue;
        const hf_connection *connection = &driver->connections[link];
        if (connection->dialing) until = hf_time_min(until, connection->dial.next_at);
        polled->links[polled->count] = link;
        polled->fds[polled->count++] = (struct pollfd){.fd = fd, .events = poll_events(driver, link)};
    }
    return until;
}

static void on_all_polled(hf_driver *driver, unsigned roles, const hf_polled *polled) {
    for (nfds_t i = 0; i < polled->count; i++) {
        size_t link = polled->links[i];
        bool same = poll_fd(driver, link) == polled->fds[i].fd;
        if (same && has_role(link, roles)) on_polled(driver, link, polled->fds[i].revents);
    }
}

/* Takes what is there, without sleeping. */
static void look_at_links(hf_driver *driver, unsigned roles) {
    hf_polled polled;
    choose_polled(driver, roles, &polled);
    if (poll(polled.fds, polled.count, 0) > 0) on_all_polled(driver, roles, &polled);
}

/* Sleeps until one of the links or the extra descriptor, which only the watchdog has, has something, or `until`.
 * Releases the mutex meanwhile; reads only what `mine` still allows after that. False after a signal. */
static bool sleep_on_links(hf_driver *driver, unsigned (*mine)(const hf_driver *), int extra, hf_time until,
                           const sigset_t *signals) {
    hf_polled polled;
    until = hf_time_min(until, choose_polled(driver, mine(driver), &polled));
    polled.fds[polled.count] = (struct pollfd){.fd = extra, .events = POLLIN};
    hf_time now = hf_now();
    struct timespec timeout = timespec_of(until > now ? until - now : 0);
    pthread_mutex_unlock(&driver->mutex);
    int ready = ppoll(polled.fds, polled.count + 1, &timeout, signals);
    bool signalled = ready < 0 && errno == EINTR;
    lock_again(driver, extra >= 0);
    if (ready > 0) on_all_polled(driver, mine(driver), &polled);
    return !signalled;
}

/* The caller's thread reads the links of its calls, and all of them while no watchdog runs. */
static unsigned caller_links(const hf_driver *driver) {
    return ROLE(HF_LINK_CALLS) | ROLE(HF_LINK_EVENTS) | (driver->running ? 0 : ROLE(HF_LINK_KEEPER));
}

static bool has_left_behind(const hf_driver *driver) {
    for (size_t link = HF_LINK_CALLS; link < driver->connection_count; link += HF_LINKS) {
        if (hf_session_has_work(session_of(driver, link))) return true;
    }
    return false;
}

/* The watchdog reads its own link, and what calls have left behind while none runs. A quorum leaves something behind
 * with nearly each call, and hears it with the next one: the watchdog looks at that now and then. */
static unsigned watchdog_links(const hf_driver *driver) {
    bool left_behind = !driver->calling && !driver->client.quorum && has_left_behind(driver);
    return ROLE(HF_LINK_KEEPER) | (left_behind ? ROLE(HF_LINK_CALLS) : 0);
}

/* ---- operations ---- */

/* What needs the caller's thread; the watchdog sees to the rest. */
static hf_time call_deadline(const hf_driver *driver, const hf_op *op) {
    if (!driver->running) return hf_client_deadline(&driver->client);
    return hf_time_min(hf_client_calls_deadline(&driver->client), hf_op_deadline(op));
}

static void wait_for_change(hf_driver *driver, hf_time until) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    hf_time now = hf_now(), span = hf_time_min(until > now ? until - now : 0, SLICE);
    hf_time end = (hf_time)at.tv_sec * HF_SECOND + (hf_time)at.tv_nsec + span;
    at = (struct timespec){(time_t)(end / HF_SECOND), (long)(end % HF_SECOND)};
    pthread_cond_timedwait(&driver->changed, &driver->mutex, &at);
}

/* A reply is all there is to wait for: one recv then does what poll and recv would. */
static bool awaits_one_reply(const hf_driver *driver, const hf_op *op, hf_time until) {
    const hf_session *calls = session_of(driver, HF_LINK_CALLS);
    bool asks = op->spec.kind != HF_OP_ACQUIRE || op->state == HF_ACQUIRE_ASKING;
    bool alone = driver->running && driver->connection_count == HF_LINKS &&
                 driver->connections[HF_LINK_EVENTS].fd < 0 && !driver->connections[HF_LINK_EVENTS].dialing;
    bool plain = !driver->connections[HF_LINK_CALLS].tls;
    return asks && alone && plain && calls->state == HF_SESSION_READY && hf_session_output(calls).size == 0 &&
           until > hf_now() + SLICE;
}

/* False after a signal. */
static bool receive_reply(hf_driver *driver) {
    int fd = driver->connections[HF_LINK_CALLS].fd;
    char bytes[READ_SIZE];
    pthread_mutex_unlock(&driver->mutex);
    ssize_t size = recv(fd, bytes, sizeof bytes, 0);
    int error = errno;
    pthread_mutex_lock(&driver->mutex);
    errno = error;
    on_received(driver, HF_LINK_CALLS, bytes, size);
    return size >= 0 || error != EINTR;
}

static bool sleep_for_op(hf_driver *driver, hf_op *op, const sigset_t *signals) {
    hf_time until = call_deadline(driver, op);
    bool left_behind = has_left_behind(driver); /* read by nobody else during a call */
    if (op->blocked && driver->running && !left_behind) {
        wait_for_change(driver, until);
        return true;
    }
    if (op->blocked) until = hf_time_min(until, hf_now() + SLICE);
    if (awaits_one_reply(driver, op, until)) return receive_reply(driver);
    bool waits = op->spec.kind == HF_OP_ACQUIRE && op->state != HF_ACQUIRE_ASKING;
    bool shares = driver->connection_count > HF_LINKS; /* the watchdog may need what this thread serves */
    if (waits || shares) until = hf_time_min(until, hf_now() + SLICE);
    return sleep_on_links(driver, caller_links, -1, until, signals);
}

#define IDLE HF_MS /* a connection heard so long ago is looked at before it is used */

/* A server that closed the idle connection meanwhile: better noticed before a command is sent into it. And replies that
 * nobody waited for have their say. */
static void hear_idle(hf_driver *driver) {
    for (size_t link = HF_LINK_CALLS; link < driver->connection_count; link += HF_LINKS) {
        const hf_session *calls = session_of(driver, link);
        bool idle = hf_session_has_work(calls) || hf_now() >= calls->heard_at + IDLE;
        if (calls->state == HF_SESSION_READY && idle) read_link(driver, link);
    }
}

static void hold_signals(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t held;
    sigfillset(&held);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&held, faults[i]);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

hf_op *hf_driver_run(hf_driver *driver, const hf_op_spec *spec, bool interruptible, hf_interrupt_check *check,
                     void *context) {
    sigset_t before;
    hear_idle(driver);
    hf_op *op = hf_client_begin(&driver->client, spec, hf_now());
    if (!op) return NULL;
    driver->calling = true;
    if (interruptible) hold_signals(&before); /* they come in while it sleeps: one that came before would be missed */
    while (!op->done) {
        serve_calls(driver);
        if (!driver->running) serve_keeper(driver);
        if (op->done) break;
        hf_driver_nudge(driver);
        bool signalled = !sleep_for_op(driver, op, interruptible ? &before : NULL);
        if (!op->done && check(context, signalled)) hf_op_interrupt(op, hf_now());
    }
    if (interruptible) pthread_sigmask(SIG_SETMASK, &before, NULL);
    driver->calling = false;
    serve_links(driver, ROLE(HF_LINK_CALLS) | ROLE(HF_LINK_EVENTS));
    hf_driver_nudge(driver);
    return op;
}

/* ---- the watchdog ---- */

#define NOW_AND_THEN (10 * HF_MS)

static hf_time watch_deadline(const hf_driver *driver) {
    if (driver->calling) return hf_client_keeper_deadline(&driver->client);
    hf_time until = hf_client_deadline(&driver->client);
    return driver->client.quorum && has_left_behind(driver) ? hf_time_min(until, hf_now() + NOW_AND_THEN) : until;
}

static bool must_go_on(const hf_driver *driver) {
    if (!driver->stopping) return true;
    return hf_now() < driver->stop_by && !hf_client_is_quiet(&driver->client);
}

static void drain(int fd) {
    char bytes[64];
    while (read(fd, bytes, sizeof bytes) > 0) continue;
}

static void *watch(void *context) {
    hf_driver *driver = context;
    pthread_mutex_lock(&driver->mutex);
    while (must_go_on(driver)) {
        driver->sleeps_until = 0;
        if (!driver->calling) {
            if (driver->client.quorum) look_at_links(driver, ROLE(HF_LINK_CALLS));
            serve_calls(driver);
        }
        serve_keeper(driver);
        pthread_cond_broadcast(&driver->changed);
        if (!must_go_on(driver)) break;
        hf_time until = watch_deadline(driver);
        if (driver->stopping) until = hf_time_min(until, driver->stop_by);
        driver->sleeps_until = until;
        sleep_on_links(driver, watchdog_links, driver->wake[0], until, NULL);
        drain(driver->wake[0]);
        driver->wakes++;
        pthread_cond_broadcast(&driver->changed);
    }
    pthread_mutex_unlock(&driver->mutex);
    return NULL;
}

bool hf_driver_watch(hf_driver *driver) {
    if (driver->running || driver->unwatched || driver->external) return true;
    if (driver->wake[0] < 0) {
        if (pipe2(driver->wake, O_CLOEXEC | O_NONBLOCK) != 0) return false;
        driver->wake_file = hf_file_of(driver->wake[0]);
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&driver->thread, NULL, watch, driver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = result;
    driver->running = result == 0;
    driver->stopping = false;
    return driver->running;
}

static void wake_watchdog(hf_driver *driver) {
    ssize_t written = write(driver->wake[1], "", 1);
    (void)written; /* a full pipe wakes as well */
}

void hf_driver_nudge(hf_driver *driver) {
    if (!driver->running || driver->sleeps_until == 0) return;
    bool left_behind = watchdog_links(driver) != ROLE(HF_LINK_KEEPER);
    if (left_behind || watch_deadline(driver) < driver->sleeps_until) {
        driver->sleeps_until = 0;
        wake_watchdog(driver);
    }
}

static void join_watchdog(hf_driver *driver, hf_time patience) {
    if (!driver->running) return;
    driver->stopping = true;
    driver->stop_by = hf_time_add(hf_now(), patience);
    wake_watchdog(driver);
    pthread_mutex_unlock(&driver->mutex);
    pthread_join(driver->thread, NULL);
    pthread_mutex_lock(&driver->mutex);
    driver->running = false;
}

void hf_driver_unwatch(hf_driver *driver) {
    driver->unwatched = true;
    join_watchdog(driver, 0);
}

/* ---- closing ---- */

void hf_driver_close(hf_driver *driver, hf_time patience) {
    hf_driver_enter(driver);
    if (!driver->closed) {
        driver->closed = true;
        hf_client_close(&driver->client, hf_driver_now(driver));
        driver->unwatched = false;
        if (!hf_client_is_quiet(&driver->client)) hf_driver_watch(driver);
        join_watchdog(driver, patience);
    }
    for (size_t link = 0; link < driver->connection_count && !driver->external; link++)
        lose_link(driver, link, "the client was closed");
    for (int end = 0; end < 2; end++) {
        if (driver->wake[end] >= 0) close(driver->wake[end]);
        driver->wake[end] = -1;
    }
    hf_driver_leave(driver);
}
