#include "driver.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "crash.h"
#include "system.h"

#define SLICE (50 * HF_MS) /* how soon a wait notices a signal that came between two polls */
#define READ_SIZE 16384

hf_time hf_driver_now(const hf_driver *driver) {
    return driver->set_now ? driver->set_now : hf_now();
}

/* ---- life ---- */

/* Printable and without spaces; "?" when it cannot be told. */
static void read_host_name(char *name, size_t size) {
    bool told = gethostname(name, size) == 0 && name[0] != '\0';
    name[size - 1] = '\0';
    if (!told) snprintf(name, size, "?");
    for (char *at = name; *at; at++) {
        if (*at < 33 || *at > 126) *at = '?';
    }
}

static void introduce(hf_driver *driver) {
    char host[256], text[HF_WHO_SIZE + 128];
    if (!driver->introduces) return;
    read_host_name(host, sizeof host);
    snprintf(text, sizeof text, "%s %ld%s%s", host, (long)getpid(), driver->known_as[0] ? " " : "",
             driver->known_as);
    hf_client_introduce(driver->client, text);
}

void hf_driver_introduce(hf_driver *driver, const char *name) {
    snprintf(driver->known_as, sizeof driver->known_as, "%s", name);
    driver->introduces = true;
    introduce(driver);
}

static bool make_client(hf_driver *driver, const unsigned char *given) {
    unsigned char entropy[24];
    if (given) memcpy(entropy, given, sizeof entropy);
    else if (!hf_random(entropy, sizeof entropy)) return false;
    driver->client = hf_client_new(&driver->config, entropy);
    return driver->client != NULL;
}

static bool has_record(const hf_driver *driver) {
    return driver->config.life == hf_crash_life;
}

/* Sets up what belongs to this process. */
static void begin_here(hf_driver *driver) {
    driver->unrecorded =
        has_record(driver) && !hf_crash_record(hf_client_uuid(driver->client)) ? errno : 0;
    driver->wake[0] = driver->wake[1] = -1;
    driver->process = hf_process();
    driver->rests_until = HF_NEVER;
    introduce(driver);
}

/* Links that there is no memory for are not served: what needs them fails by its time. */
static void notice_links(hf_driver *driver) {
    size_t count = hf_client_link_count(driver->client);
    if (count == driver->connection_count) return;
    hf_connection *grown = realloc(driver->connections, count * sizeof *grown);
    if (!grown) return;
    driver->connections = grown;
    while (driver->connection_count < count)
        grown[driver->connection_count++] = (hf_connection){.fd = -1, .dial = HF_DIAL_IDLE};
}

static void init_locks(hf_driver *driver) {
    hf_cond_init(&driver->changed);
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
    for (size_t i = 0; i < count; i++)
        size += given->shards[i].name ? strlen(given->shards[i].name) + 1 : 0;
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
    if (!copy_config(driver, config) || !make_client(driver, entropy)) {
        free_config(&driver->config);
        free(driver);
        return NULL;
    }
    begin_here(driver);
    init_locks(driver);
    notice_links(driver);
    return driver;
}

/* Without random bytes the client has no identity: it is closed. */
static void start_over(hf_driver *driver) {
    unsigned char entropy[24];
    bool random = hf_random(entropy, sizeof entropy);
    if (!hf_client_start_over(driver->client, random ? entropy : NULL)) driver->closed = true;
}

/* The parent's memory may have been copied in the middle of a change: it is left alone, not freed.
 */
static void begin_anew_after_fork(hf_driver *driver) {
    for (size_t link = 0; link < driver->connection_count; link++) {
        hf_connection *connection = &driver->connections[link];
        hf_file_close(connection->fd, connection->file);
        if (connection->dialing) hf_dial_forget(&connection->dial);
    }
    driver->connection_count = 0;
    for (int end = 0; end < 2; end++) hf_file_close(driver->wake[end], driver->wake_file);
    if (driver->tls) hf_tls_settings_forget(driver->tls);
    if (driver->ready) hf_ready_forget(driver->ready);
    driver->ready = NULL;
    driver->generation++;
    driver->running = driver->stopping = driver->calling = false;
    atomic_store(&driver->watchdog_waits, false);
    driver->sleeps_until = driver->looks_at = 0;
    init_locks(driver);
    start_over(driver);
    begin_here(driver);
    notice_links(driver);
}

static bool is_forked(const hf_driver *driver) {
    return driver->process != hf_process();
}

void hf_driver_ref(hf_driver *driver) {
    driver->refs++; /* handles and client belong to one Lua state */
}

void hf_driver_unref(hf_driver *driver) {
    if (--driver->refs > 0) return;
    hf_driver_close(driver, HF_SECOND);
    hf_driver_forget_ready(driver);
    hf_client_delete(driver->client);
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
    return hf_client_link(driver->client, link);
}

static bool has_role(size_t link, unsigned roles) {
    return (roles & ROLE(link % HF_LINKS)) != 0;
}

/* If a command has no answer yet, the kernel must not deliver it later: a reset discards it. */
static void shut(hf_driver *driver, size_t link) {
    hf_connection *connection = &driver->connections[link];
    const hf_session *session = session_of(driver, link);
    if (connection->dialing) hf_dial_cancel(&connection->dial);
    if (connection->fd >= 0) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        bool unanswered = hf_session_awaits_reply(session);
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

static void read_link(hf_driver *driver, size_t link);

static void on_dial(hf_driver *driver, size_t link, hf_dial_state state, const char *reason) {
    hf_connection *connection = &driver->connections[link];
    if (state == HF_DIAL_PENDING) {
        if (connection->dial.tls) hf_session_handshaking(session_of(driver, link));
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
    if (!connection->tls) hf_prepare_wait(connection->fd, SLICE);
    hf_session_opened(session_of(driver, link), hf_now());
    if (connection->tls)
        read_link(driver, link); /* no poll reports bytes that came with the handshake */
}

static void open_link(hf_driver *driver, size_t link) {
    hf_connection *connection = &driver->connections[link];
    char reason[160] = "";
    hf_session *session = session_of(driver, link);
    hf_time now = hf_now(), until = hf_time_add(now, driver->config.session.connect_timeout);
    hf_session_opening(session, now);
    connection->dialing = true;
    hf_dial_state state = hf_dial_start(&connection->dial, hf_session_server(session), driver->tls,
                                        now, until, reason, sizeof reason);
    on_dial(driver, link, state, reason);
}

static void step_dial(hf_driver *driver, size_t link) {
    char reason[160] = "";
    hf_dial_state state =
        hf_dial_step(&driver->connections[link].dial, hf_now(), reason, sizeof reason);
    on_dial(driver, link, state, reason);
}

/* Why recv or send failed, by errno; NULL: the server closed the connection. */
static const char *io_error_text(const hf_connection *connection, char *text, size_t size) {
    if (errno == ECONNRESET || errno == EPIPE) return NULL;
    if (connection->tls && errno == EPROTO)
        snprintf(text, size, "%s", hf_tls_reason(connection->tls));
    else return hf_error_text(errno, text, size);
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
    return hf_recv(connection->fd, bytes, size);
}

static ssize_t transmit(const hf_connection *connection, hf_slice bytes) {
    if (connection->tls) return hf_tls_send(connection->tls, bytes.data, bytes.size);
    return hf_send(connection->fd, bytes.data, bytes.size);
}

static void read_link(hf_driver *driver, size_t link) {
    const hf_connection *connection = &driver->connections[link];
    char bytes[READ_SIZE];
    bool more = true;
    while (more && connection->fd >= 0) {
        more = on_received(driver, link, bytes, receive(connection, bytes, sizeof bytes));
    }
}

/* The server may have sent the reason before it closed the connection. */
static void on_write_failed(hf_driver *driver, size_t link) {
    char text[160];
    const char *reason = io_error_text(&driver->connections[link], text, sizeof text);
    read_link(driver, link);
    if (driver->connections[link].fd >= 0) lose_link(driver, link, reason);
}

/* Writes what the connection takes now. False, with errno: it takes nothing any more. */
static bool write_output(hf_driver *driver, size_t link) {
    hf_connection *connection = &driver->connections[link];
    hf_session *session = session_of(driver, link);
    connection->full = false;
    for (hf_slice output; !connection->full && (output = hf_session_output(session)).size > 0;) {
        ssize_t written = transmit(connection, output);
        if (written >= 0) hf_session_written(session, (size_t)written);
        else if (errno == EAGAIN || errno == EWOULDBLOCK) connection->full = true;
        else if (errno != EINTR) return false;
    }
    return true;
}

static void write_link(hf_driver *driver, size_t link) {
    if (driver->connections[link].fd >= 0 && !write_output(driver, link))
        on_write_failed(driver, link);
}

/* Does what the link wants and can do without waiting. */
static void serve_link(hf_driver *driver, size_t link, hf_time now) {
    hf_session *session = session_of(driver, link);
    hf_want want = hf_session_wants(session, now);
    if (want == HF_WANT_CLOSE) {
        lose_link(driver, link, "not needed any more");
        want = hf_session_wants(session, hf_now());
    }
    if (want == HF_WANT_OPEN) open_link(driver, link);
    const hf_connection *connection = &driver->connections[link];
    if (connection->dialing && now >= connection->dial.next_at) step_dial(driver, link);
    write_link(driver, link);
}

static void serve_links(hf_driver *driver, unsigned roles, hf_time now) {
    notice_links(driver);
    for (size_t link = 0; link < driver->connection_count; link++) {
        if (has_role(link, roles)) serve_link(driver, link, now);
    }
}

static void serve_calls(hf_driver *driver, hf_time now) {
    hf_client_tick_calls(driver->client, now);
    serve_links(driver, ROLE(HF_LINK_CALLS) | ROLE(HF_LINK_EVENTS), now);
}

/* Writes what the renewer leaves on the links of calls. While a call reads them, only that call may
 * close them. */
static void write_left(hf_driver *driver) {
    for (size_t link = HF_LINK_CALLS; link < driver->connection_count; link += HF_LINKS) {
        if (!driver->calling) write_link(driver, link);
        else if (driver->connections[link].fd >= 0) write_output(driver, link);
    }
}

static void serve_renewer(hf_driver *driver, hf_time now) {
    hf_client_tick_renewer(driver->client, now);
    serve_links(driver, ROLE(HF_LINK_RENEWER), now);
    write_left(driver);
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

/* After a poll without the mutex: the other thread may have served the link meanwhile, so nothing
 * is taken for granted.
 */
static void on_polled(hf_driver *driver, size_t link, short revents) {
    hf_connection *connection = &driver->connections[link];
    bool readable = revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL);
    if (revents == 0) {
        connection->quiet_at = hf_now();
        return;
    }
    if (connection->dialing) step_dial(driver, link);
    else if (readable || (connection->tls && hf_tls_recv_wants_write(connection->tls)))
        read_link(driver, link);
}

static void lock_again(hf_driver *driver, bool watchdog) {
    if (watchdog) atomic_store(&driver->watchdog_waits, true);
    pthread_mutex_lock(&driver->mutex);
    if (watchdog) atomic_store(&driver->watchdog_waits, false);
}

#define POLL_MOST                                                                                  \
    ((size_t)3 * 1024) /* sockets; what is beyond that waits for a look by the clock */

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
        polled->fds[polled->count++] =
            (struct pollfd){.fd = fd, .events = poll_events(driver, link)};
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

/* Reads what has come, without sleeping. */
static void poll_links(hf_driver *driver, unsigned roles) {
    hf_polled polled;
    choose_polled(driver, roles, &polled);
    if (poll(polled.fds, polled.count, 0) > 0) on_all_polled(driver, roles, &polled);
}

#define NAP HF_SECOND

/* For how long to sleep. The system does not count the time of a suspension as sleep, so a sleep is
 * at most so late after one. */
static hf_time span_of_sleep(hf_time until) {
    hf_time now = hf_now();
    if (until == HF_NEVER) return until;
    return until > now ? hf_time_min(until - now, NAP) : 0;
}

/* Sleeps until one of the links or the extra descriptor, which only the watchdog has, has
 * something, or `until`, or for a part of that. Releases the mutex meanwhile; reads only what
 * `mine` still allows after that. False after a signal. */
static bool sleep_on_links(hf_driver *driver, unsigned (*mine)(const hf_driver *), int extra,
                           hf_time until, const sigset_t *signals) {
    hf_polled polled;
    until = hf_time_min(until, choose_polled(driver, mine(driver), &polled));
    polled.fds[polled.count] = (struct pollfd){.fd = extra, .events = POLLIN};
    hf_time span = span_of_sleep(until);
    pthread_mutex_unlock(&driver->mutex);
    int ready = hf_poll(polled.fds, polled.count + 1, span, signals);
    bool signalled = ready < 0 && errno == EINTR;
    lock_again(driver, extra >= 0);
    if (ready > 0) on_all_polled(driver, mine(driver), &polled);
    return !signalled;
}

/* The caller's thread reads the links of its calls, and all of them while no watchdog runs. */
static unsigned caller_links(const hf_driver *driver) {
    return ROLE(HF_LINK_CALLS) | ROLE(HF_LINK_EVENTS) |
           (driver->running ? 0 : ROLE(HF_LINK_RENEWER));
}

static bool has_left_behind(const hf_driver *driver) {
    for (size_t link = HF_LINK_CALLS; link < driver->connection_count; link += HF_LINKS) {
        if (hf_session_has_work(session_of(driver, link))) return true;
    }
    return false;
}

/* A call of a quorum leaves something behind nearly each time, and so does a release that is not
 * waited for. The next call hears it; the watchdog looks at that now and then. */
static bool leaves_behind(const hf_driver *driver) {
    return hf_client_decides_early(driver->client) || hf_client_has_detached(driver->client);
}

/* The watchdog reads its own link; while no call runs, what calls have left behind, and whether
 * others want a lock that the client keeps. */
static unsigned watchdog_links(const hf_driver *driver) {
    bool left_behind = !driver->calling && !leaves_behind(driver) && has_left_behind(driver);
    bool keeps = !driver->calling && hf_client_keeps(driver->client);
    return ROLE(HF_LINK_RENEWER) | (left_behind ? ROLE(HF_LINK_CALLS) : 0) |
           (keeps ? ROLE(HF_LINK_EVENTS) : 0);
}

/* ---- operations ---- */

/* When the caller's thread is needed; the watchdog does the rest. */
static hf_time call_deadline(const hf_driver *driver, const hf_op *op) {
    if (!driver->running) return hf_client_deadline(driver->client);
    return hf_time_min(hf_client_calls_deadline(driver->client), hf_op_deadline(op));
}

/* Lets the signals in that are pending. False if there was one. */
static bool let_in(hf_driver *driver, const sigset_t *signals) {
    pthread_mutex_unlock(&driver->mutex);
    bool signalled = hf_poll(NULL, 0, 0, signals) < 0 && errno == EINTR;
    pthread_mutex_lock(&driver->mutex);
    return !signalled;
}

/* No signal ends a wait for a condition: they come in behind each. False after a signal. */
static bool wait_for_change(hf_driver *driver, hf_time until, const sigset_t *signals) {
    hf_time now = hf_now();
    hf_cond_wait(&driver->changed, &driver->mutex,
                 hf_time_min(until > now ? until - now : 0, SLICE));
    return !signals || let_in(driver, signals);
}

/* A reply is all there is to wait for: one recv then does what poll and recv would. What comes over
 * the events link changes nothing before that. While signals are held, recv lets none in, so a call
 * that goes on for long sleeps in poll. */
static bool awaits_one_reply(const hf_driver *driver, const hf_op *op, bool holds_signals,
                             hf_time now) {
    const hf_session *calls = session_of(driver, HF_LINK_CALLS);
    const hf_connection *events = &driver->connections[HF_LINK_EVENTS];
    bool late = now >= hf_op_begun_at(op) + SLICE;
    if (holds_signals && (events->fd >= 0 || late)) return false;
    bool alone = driver->running && driver->connection_count == HF_LINKS && !events->dialing;
    bool plain = !driver->connections[HF_LINK_CALLS].tls;
    return hf_op_awaits_reply(op) && alone && plain && hf_session_is_ready(calls) &&
           hf_session_output(calls).size == 0;
}

/* False after a signal. */
static bool receive_reply(hf_driver *driver) {
    int fd = driver->connections[HF_LINK_CALLS].fd;
    char bytes[READ_SIZE];
    pthread_mutex_unlock(&driver->mutex);
    ssize_t size = hf_recv_wait(fd, bytes, sizeof bytes, SLICE);
    int error = errno;
    pthread_mutex_lock(&driver->mutex);
    errno = error;
    on_received(driver, HF_LINK_CALLS, bytes, size);
    return size >= 0 || error != EINTR;
}

/* With `signals`, which are let in while it sleeps, none can come between two sleeps: it need not
 * look by the clock. */
static bool sleep_for_op(hf_driver *driver, hf_op *op, const sigset_t *signals, hf_time now) {
    hf_time until = call_deadline(driver, op), soon = now + SLICE;
    bool left_behind = has_left_behind(driver); /* read by nobody else during a call */
    if (hf_op_is_blocked(op) && driver->running && !left_behind)
        return wait_for_change(driver, until, signals);
    if (hf_op_is_blocked(op)) until = hf_time_min(until, soon);
    if (until > soon && awaits_one_reply(driver, op, signals != NULL, now))
        return receive_reply(driver);
    bool shares =
        driver->connection_count > HF_LINKS; /* the watchdog may need what this thread serves */
    if ((!hf_op_awaits_reply(op) && !signals) || shares) until = hf_time_min(until, soon);
    return sleep_on_links(driver, caller_links, -1, until, signals);
}

#define IDLE HF_MS /* a connection that was silent for this time is read before it is used */

/* Reads a connection that was idle: the server may have closed it, which is to be noticed before a
 * command is sent, and replies that nobody waited for may have come. Returns the time after that.
 */
static hf_time receive_idle(hf_driver *driver) {
    hf_time now = hf_now();
    for (size_t link = HF_LINK_CALLS; link < driver->connection_count; link += HF_LINKS) {
        const hf_session *calls = session_of(driver, link);
        bool left_behind = !hf_client_has_detached(driver->client) && hf_session_has_work(calls);
        hf_time looked_at =
            hf_time_max(hf_session_received_at(calls), driver->connections[link].quiet_at);
        bool idle = left_behind || now >= looked_at + IDLE;
        if (!hf_session_is_ready(calls) || !idle) continue;
        driver->connections[link].quiet_at = now;
        read_link(driver, link);
        now = hf_now();
    }
    return now;
}

/* now: when the operation was begun */
static void carry_on(hf_driver *driver, hf_op *op, bool interruptible, hf_interrupt_check *check,
                     void *context, hf_time now) {
    sigset_t before;
    bool holds = interruptible; /* signals: they come in while it sleeps, as one that came before
                                   would be missed */
    driver->calling = true;
    if (holds) hf_hold_signals(&before);
    while (!hf_op_is_done(op)) {
        bool signalled = false;
        serve_calls(driver, now);
        if (!driver->running) serve_renewer(driver, hf_now());
        if (!hf_op_is_done(op)) {
            hf_driver_wake(driver);
            signalled = !sleep_for_op(driver, op, holds ? &before : NULL, now);
        }
        now = hf_now();
        if (hf_op_is_done(op)) break;
        if (!holds && !hf_op_awaits_reply(op) &&
            now >= hf_op_begun_at(op) + SLICE) { /* the wait is long enough to pay for it */
            hf_hold_signals(&before);
            holds = true;
        }
        if (check(context, signalled)) hf_op_interrupt(op, now);
    }
    if (holds) pthread_sigmask(SIG_SETMASK, &before, NULL);
    driver->calling = false;
    serve_links(driver, ROLE(HF_LINK_CALLS) | ROLE(HF_LINK_EVENTS), now);
    hf_client_end_detached(driver->client, now);
    hf_driver_wake(driver);
}

hf_op *hf_driver_run(hf_driver *driver, const hf_op_spec *spec, bool interruptible,
                     hf_interrupt_check *check, void *context) {
    hf_time now = receive_idle(driver);
    hf_op *op = hf_client_begin(driver->client, spec, now);
    if (op && hf_op_is_done(op) && driver->running) hf_driver_wake(driver);
    else if (op) carry_on(driver, op, interruptible, check, context, now);
    return op;
}

hf_op *hf_driver_send(hf_driver *driver, const hf_op_spec *spec, hf_interrupt_check *check,
                      void *context) {
    hf_time now = receive_idle(driver);
    hf_op *op = hf_client_begin(driver->client, spec, now);
    if (!op || hf_op_is_done(op)) return op;
    if (!driver->running || !hf_op_detach(op)) {
        carry_on(driver, op, false, check, context, now);
        return op;
    }
    serve_links(driver, ROLE(HF_LINK_CALLS) | ROLE(HF_LINK_EVENTS), now);
    hf_driver_wake(driver);
    return op;
}

/* ---- the watchdog ---- */

#define NOW_AND_THEN (10 * HF_MS)

static hf_time watch_deadline(hf_driver *driver) {
    if (driver->calling) return hf_client_renewer_deadline(driver->client);
    hf_time until = hf_client_deadline(driver->client);
    if (!leaves_behind(driver) || !has_left_behind(driver)) {
        driver->looks_at = 0;
        return until;
    }
    if (driver->looks_at == 0) driver->looks_at = hf_now() + NOW_AND_THEN;
    return hf_time_min(until, driver->looks_at);
}

/* Looks now and then, not each time that the watchdog wakes: otherwise each call that leaves
 * something behind would have to wake it. */
static void look_behind(hf_driver *driver) {
    bool due = driver->stopping || hf_now() >= driver->looks_at;
    if (!leaves_behind(driver) || !due) return;
    driver->looks_at = 0;
    poll_links(driver, ROLE(HF_LINK_CALLS));
}

static bool must_go_on(const hf_driver *driver) {
    if (!driver->stopping) return true;
    return hf_now() < driver->stop_by && !hf_client_is_quiet(driver->client);
}

static void *watch(void *context) {
    hf_driver *driver = context;
    pthread_mutex_lock(&driver->mutex);
    while (must_go_on(driver)) {
        driver->sleeps_until = 0;
        if (!driver->calling) {
            look_behind(driver);
            serve_calls(driver, hf_now());
        }
        serve_renewer(driver, hf_now());
        pthread_cond_broadcast(&driver->changed);
        if (!must_go_on(driver)) break;
        hf_time until = watch_deadline(driver);
        if (driver->stopping) until = hf_time_min(until, driver->stop_by);
        driver->sleeps_until = until;
        driver->sleeps_on = watchdog_links(driver);
        sleep_on_links(driver, watchdog_links, driver->wake[0], until, NULL);
        hf_pipe_drain(driver->wake[0]);
        driver->wakes++;
        pthread_cond_broadcast(&driver->changed);
    }
    pthread_mutex_unlock(&driver->mutex);
    return NULL;
}

bool hf_driver_watch(hf_driver *driver) {
    bool none = driver->external || (driver->looped && !driver->closed);
    if (driver->running || driver->unwatched || none) return true;
    if (driver->wake[0] < 0) {
        if (!hf_pipe(driver->wake, false)) return false;
        driver->wake_file = hf_file_of(driver->wake[0]);
    }
    driver->running = hf_thread_start(&driver->thread, watch, driver);
    driver->stopping = false;
    return driver->running;
}

static hf_time loop_deadline(const hf_driver *driver);

/* Whether the caller's thread has left something on the renewer's links: a new map of a cluster
 * sends what has waited for it. A poll waits for those that are full. */
static bool has_unwritten(const hf_driver *driver) {
    for (size_t link = HF_LINK_RENEWER; link < driver->connection_count; link += HF_LINKS) {
        const hf_connection *connection = &driver->connections[link];
        bool takes = connection->fd >= 0 && !connection->full;
        if (takes && hf_session_output(session_of(driver, link)).size > 0) return true;
    }
    return false;
}

void hf_driver_wake(hf_driver *driver) {
    if (driver->ready) hf_ready_by(driver->ready, loop_deadline(driver), hf_now());
    if (!driver->running || driver->sleeps_until == 0) return;
    bool unheard = watchdog_links(driver) & ~driver->sleeps_on;
    if (unheard || has_unwritten(driver) || watch_deadline(driver) < driver->sleeps_until) {
        driver->sleeps_until = 0;
        hf_pipe_wake(driver->wake[1]);
    }
}

static void join_watchdog(hf_driver *driver, hf_time patience) {
    if (!driver->running) return;
    driver->stopping = true;
    driver->stop_by = hf_time_add(hf_now(), patience);
    hf_pipe_wake(driver->wake[1]);
    pthread_mutex_unlock(&driver->mutex);
    pthread_join(driver->thread, NULL);
    pthread_mutex_lock(&driver->mutex);
    driver->running = false;
}

void hf_driver_unwatch(hf_driver *driver) {
    driver->unwatched = true;
    join_watchdog(driver, 0);
}

/* ---- in an event loop ---- */

#define ALL_ROLES (ROLE(HF_LINK_CALLS) | ROLE(HF_LINK_EVENTS) | ROLE(HF_LINK_RENEWER))

hf_op *hf_driver_begin(hf_driver *driver, const hf_op_spec *spec) {
    if (driver->looped) receive_idle(driver);
    return hf_client_begin(driver->client, spec, hf_driver_now(driver));
}

/* An operation that has ended is due until it has been told. */
static hf_time loop_deadline(const hf_driver *driver) {
    hf_time until = hf_client_has_done(driver->client) ? 0 : hf_client_deadline(driver->client);
    until = hf_time_min(until, driver->rests_until);
    for (size_t link = 0; link < driver->connection_count; link++) {
        const hf_connection *connection = &driver->connections[link];
        if (connection->dialing) until = hf_time_min(until, connection->dial.next_at);
    }
    return until;
}

static bool watch_links(hf_driver *driver) {
    size_t count = driver->connection_count;
    hf_watch few[HF_LINKS], *list = count <= HF_LINKS ? few : malloc(count * sizeof *list);
    if (!list) return false;
    for (size_t link = 0; link < count; link++) {
        const hf_connection *connection = &driver->connections[link];
        list[link] =
            (hf_watch){.fd = poll_fd(driver, link),
                       .file = connection->dialing ? connection->dial.file : connection->file};
        if (list[link].fd >= 0) list[link].events = poll_events(driver, link);
    }
    bool watched = hf_ready_watch(driver->ready, list, count);
    if (list != few) free(list);
    return watched;
}

/* If there is no memory for the list, the driver comes back soon. */
static void rest(hf_driver *driver, hf_time until) {
    hf_time now = hf_now();
    if (!watch_links(driver)) until = hf_time_min(until, now + 10 * HF_MS);
    hf_ready_by(driver->ready, hf_time_min(until, loop_deadline(driver)), now);
}

void hf_driver_serve(hf_driver *driver, bool reads) {
    bool reads_first = reads; /* replies that have come count before deadlines that are over */
    if (reads) driver->rests_until = HF_NEVER;
    else reads_first = hf_client_deadline(driver->client) <= hf_now();
    if (reads_first) poll_links(driver, ALL_ROLES);
    serve_calls(driver, hf_now());
    serve_renewer(driver, hf_now());
    if (driver->ready && !reads) rest(driver, HF_NEVER);
}

int hf_driver_rest(hf_driver *driver, hf_time until) {
    if (!driver->ready) driver->ready = hf_ready_new();
    if (!driver->ready) return -1;
    driver->rests_until = until;
    rest(driver, until);
    return hf_ready_fd(driver->ready);
}

void hf_driver_forget_ready(hf_driver *driver) {
    hf_ready_free(driver->ready);
    driver->ready = NULL;
}

/* ---- closing ---- */

void hf_driver_begin_close(hf_driver *driver) {
    hf_driver_enter(driver);
    if (!driver->closed) hf_client_close(driver->client, hf_driver_now(driver));
    driver->closed = true;
    hf_driver_leave(driver);
}

void hf_driver_close(hf_driver *driver, hf_time patience) {
    hf_driver_enter(driver);
    if (!driver->closed) {
        driver->closed = true;
        hf_client_close(driver->client, hf_driver_now(driver));
        driver->unwatched = false;
        if (!hf_client_is_quiet(driver->client)) hf_driver_watch(driver);
    }
    join_watchdog(driver, patience);
    for (size_t link = 0; link < driver->connection_count && !driver->external; link++) {
        write_link(driver, link); /* what nobody waits for */
        lose_link(driver, link, "the client was closed");
    }
    for (int end = 0; end < 2; end++) {
        if (driver->wake[end] >= 0) close(driver->wake[end]);
        driver->wake[end] = -1;
    }
    if (has_record(driver)) hf_crash_forget(hf_client_uuid(driver->client));
    hf_driver_leave(driver);
}
