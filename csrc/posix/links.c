#include "links.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "system.h"

#define READ_SIZE 16384

void hf_links_make_room(hf_driver *driver) {
    size_t count = hf_client_link_count(driver->client);
    if (count == driver->connection_count) return;
    hf_connection *grown = realloc(driver->connections, count * sizeof *grown);
    if (!grown) return;
    driver->connections = grown;
    while (driver->connection_count < count)
        grown[driver->connection_count++] = (hf_connection){.fd = -1, .dial = HF_DIAL_IDLE};
}

static bool has_role(size_t link, unsigned roles) {
    return (roles & HF_ROLE(link % HF_LINKS)) != 0;
}

static void unwatch(hf_driver *driver, size_t link) {
    if (driver->ready) hf_ready_unwatch(driver->ready, link);
}

/* Closes the link's connection. If a command has no reply yet, the connection is reset, so that the
 * kernel discards its output and the command is not delivered later. While a call reads its links,
 * only that call may close them. */
static void close_connection(hf_driver *driver, size_t link) {
    assert(!driver->calling || !hf_driver_is_watchdog(driver) ||
           link % HF_LINKS == HF_LINK_RENEWER);
    hf_connection *connection = &driver->connections[link];
    const hf_session *session = hf_link_session(driver, link);
    unwatch(driver, link);
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

/* `reason`: see hf_session_closed */
static void drop_link(hf_driver *driver, size_t link, const char *reason) {
    close_connection(driver, link);
    hf_session_closed(hf_link_session(driver, link), reason, hf_now());
}

static void read_link(hf_driver *driver, size_t link);

static void on_dial(hf_driver *driver, size_t link, hf_dial_state state, const char *reason) {
    hf_connection *connection = &driver->connections[link];
    if (state == HF_DIAL_PENDING) {
        if (connection->dial.tls) hf_session_handshaking(hf_link_session(driver, link));
        return;
    }
    if (state == HF_DIAL_FAILED) {
        connection->dialing = false;
        drop_link(driver, link, reason);
        return;
    }
    assert(state == HF_DIAL_CONNECTED && connection->fd < 0);
    connection->fd = connection->dial.fd;
    connection->file = connection->dial.file;
    connection->tls = connection->dial.tls;
    connection->dial.fd = -1;
    connection->dial.tls = NULL;
    connection->dialing = false;
    hf_dial_cancel(&connection->dial);
    if (!connection->tls) hf_prepare_wait(connection->fd, HF_POLL_SLICE);
    hf_session_opened(hf_link_session(driver, link), hf_now());
    if (connection->tls)
        read_link(driver, link); /* no poll reports bytes that arrived with the handshake */
}

static void open_link(hf_driver *driver, size_t link) {
    hf_connection *connection = &driver->connections[link];
    char reason[160] = "";
    hf_session *session = hf_link_session(driver, link);
    hf_time now = hf_now(), until = hf_time_add(now, driver->config.session.connect_timeout);
    assert(connection->fd < 0 && !connection->dialing);
    hf_session_opening(session, now);
    connection->dialing = true;
    hf_dial_state state = hf_dial_start(&connection->dial, hf_session_server(session), driver->tls,
                                        now, until, reason, sizeof reason);
    on_dial(driver, link, state, reason);
}

static void continue_dial(hf_driver *driver, size_t link) {
    char reason[160] = "";
    unwatch(driver, link); /* the dial may continue with another descriptor */
    hf_dial_state state =
        hf_dial_step(&driver->connections[link].dial, hf_now(), reason, sizeof reason);
    on_dial(driver, link, state, reason);
}

/* Returns why recv or send failed, by errno; NULL if the server closed the connection. */
static const char *io_error_text(const hf_connection *connection, char *text, size_t size) {
    if (errno == ECONNRESET || errno == EPIPE) return NULL;
    if (connection->tls && errno == EPROTO)
        snprintf(text, size, "%s", hf_tls_reason(connection->tls));
    else return hf_error_text(errno, text, size);
    return text;
}

/* Handles the result and errno of recv. Returns true when there may be more to read. */
static bool on_received(hf_driver *driver, size_t link, const char *bytes, ssize_t size) {
    const hf_connection *connection = &driver->connections[link];
    char text[160];
    if (size > 0) hf_session_feed(hf_link_session(driver, link), bytes, (size_t)size, hf_now());
    else if (size == 0) drop_link(driver, link, NULL);
    else if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    else if (errno != EINTR) drop_link(driver, link, io_error_text(connection, text, sizeof text));
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
    bool may_have_more = true;
    while (may_have_more && connection->fd >= 0) {
        ssize_t size = receive(connection, bytes, sizeof bytes);
        may_have_more = on_received(driver, link, bytes, size);
    }
}

/* The server may have sent the reason before it closed the connection. */
static void on_write_failed(hf_driver *driver, size_t link) {
    char text[160];
    const char *reason = io_error_text(&driver->connections[link], text, sizeof text);
    read_link(driver, link);
    if (driver->connections[link].fd >= 0) drop_link(driver, link, reason);
}

/* Writes as much as the socket accepts. Returns false and sets errno if the connection has
 * failed. */
static bool write_output(hf_driver *driver, size_t link) {
    hf_connection *connection = &driver->connections[link];
    hf_session *session = hf_link_session(driver, link);
    connection->is_full = false;
    for (hf_slice output; !connection->is_full && (output = hf_session_output(session)).size > 0;) {
        ssize_t written = transmit(connection, output);
        if (written >= 0) hf_session_written(session, (size_t)written);
        else if (errno == EAGAIN || errno == EWOULDBLOCK) connection->is_full = true;
        else if (errno != EINTR) return false;
    }
    return true;
}

static void write_link(hf_driver *driver, size_t link) {
    if (driver->connections[link].fd >= 0 && !write_output(driver, link))
        on_write_failed(driver, link);
}

/* Returns whether the watchdog, which cannot fetch credentials, serves this link, now or later. */
static bool is_served_by_watchdog(const hf_driver *driver, size_t link) {
    return driver->running && (!driver->calling || link % HF_LINKS == HF_LINK_RENEWER);
}

/* Does what the link wants, as far as possible without waiting. */
static void serve_link(hf_driver *driver, size_t link, hf_time now) {
    hf_session *session = hf_link_session(driver, link);
    hf_want want = hf_session_wants(session, now);
    if (want == HF_WANT_CLOSE) {
        drop_link(driver, link, "not needed any more");
        want = hf_session_wants(session, hf_now());
    }
    if (want == HF_WANT_LOGIN && is_served_by_watchdog(driver, link)) {
        hf_session_log_in_again(session);
        want = HF_WANT_OPEN;
    }
    if (want == HF_WANT_OPEN) open_link(driver, link);
    const hf_connection *connection = &driver->connections[link];
    if (connection->dialing && now >= connection->dial.next_at) continue_dial(driver, link);
    write_link(driver, link);
}

static bool needs_login(hf_driver *driver, size_t link, unsigned roles, hf_time now) {
    const hf_session *session = hf_link_session(driver, link);
    if (is_served_by_watchdog(driver, link)) return hf_session_needs_other_login(session);
    return has_role(link, roles) && hf_session_wants(session, now) == HF_WANT_LOGIN;
}

/* Releases the mutex while it fetches the credentials; the client may get more links in the
 * meantime. */
static void log_in(hf_driver *driver, size_t link, void *context) {
    assert(!hf_driver_is_watchdog(driver) && !driver->fetching); /* it may call Lua */
    hf_session *session = hf_link_session(driver, link);
    hf_credentials fetched;
    char server[sizeof hf_session_server(session)->label];
    bool refused = hf_session_is_login_refused(session);
    memcpy(server, hf_session_server(session)->label, sizeof server);
    hf_session_fetching_login(session);
    driver->fetching = true;
    pthread_mutex_unlock(&driver->mutex);
    driver->fetch(context, server, refused, &fetched);
    pthread_mutex_lock(&driver->mutex);
    driver->fetching = false;
    if (fetched.code == HF_OK) hf_session_log_in(session, fetched.user, fetched.password);
    else hf_session_login_failed(session, fetched.code, fetched.reason, hf_now());
}

bool hf_links_fetch_credentials(hf_driver *driver, unsigned roles, void *context) {
    assert(hf_driver_is_entered(driver));
    bool needed_any = false;
    for (size_t link = 0; driver->fetch && link < driver->connection_count; link++) {
        if (!needs_login(driver, link, roles, hf_now())) continue;
        log_in(driver, link, context);
        needed_any = true;
    }
    return needed_any;
}

void hf_links_serve(hf_driver *driver, unsigned roles, hf_time now) {
    assert(hf_driver_is_entered(driver));
    hf_links_make_room(driver);
    for (size_t link = 0; link < driver->connection_count; link++) {
        if (has_role(link, roles)) serve_link(driver, link, now);
    }
}

void hf_links_serve_calls(hf_driver *driver, hf_time now) {
    assert(hf_driver_is_entered(driver));
    hf_client_tick_calls(driver->client, now);
    hf_links_serve(driver, HF_ROLE(HF_LINK_CALLS) | HF_ROLE(HF_LINK_EVENTS), now);
}

/* Writes output that the renewer has added to the links for calls. While a call reads these links,
 * only that call may close them. */
static void write_leftover(hf_driver *driver) {
    for (size_t link = HF_LINK_CALLS; link < driver->connection_count; link += HF_LINKS) {
        if (!driver->calling) write_link(driver, link);
        else if (driver->connections[link].fd >= 0) write_output(driver, link);
    }
}

void hf_links_serve_renewer(hf_driver *driver, hf_time now) {
    assert(hf_driver_is_entered(driver));
    hf_client_tick_renewer(driver->client, now);
    hf_links_serve(driver, HF_ROLE(HF_LINK_RENEWER), now);
    write_leftover(driver);
}

static short poll_events(const hf_driver *driver, size_t link) {
    const hf_connection *connection = &driver->connections[link];
    if (connection->dialing) return connection->dial.events;
    bool output = hf_session_output(hf_link_session(driver, link)).size > 0;
    if (connection->tls) return hf_tls_events(connection->tls, output);
    return (short)(POLLIN | (output ? POLLOUT : 0));
}

static int poll_fd(const hf_driver *driver, size_t link) {
    const hf_connection *connection = &driver->connections[link];
    return connection->dialing ? connection->dial.fd : connection->fd;
}

/* Called after a poll without the mutex. Examines the link's state again, because the other thread
 * may have served the link in the meantime. */
static void on_polled(hf_driver *driver, size_t link, short revents) {
    hf_connection *connection = &driver->connections[link];
    bool readable = revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL);
    if (revents == 0) {
        connection->quiet_at = hf_now();
        return;
    }
    if (connection->dialing) continue_dial(driver, link);
    else if (readable || (connection->tls && hf_tls_recv_wants_write(connection->tls)))
        read_link(driver, link);
}

/* The watchdog holds the gate while it waits for the mutex: see hf_driver_enter. */
static void lock_as_watchdog(hf_driver *driver) {
    pthread_mutex_lock(&driver->gate);
    atomic_store(&driver->watchdog_waits, true);
    pthread_mutex_lock(&driver->mutex);
    atomic_store(&driver->watchdog_waits, false);
    pthread_mutex_unlock(&driver->gate);
}

#define POLL_MAX ((size_t)HF_LINKS * HF_NODES_MAX) /* the maximum number of sockets in one poll */

typedef struct hf_polled {
    struct pollfd fds[POLL_MAX + 1];
    size_t links[POLL_MAX];
    nfds_t count;
} hf_polled;

/* Fills `polled` with the sockets of these roles. Returns when the first of their dials must try
 * its next address, or HF_NEVER. */
static hf_time fill_polled(const hf_driver *driver, unsigned roles, hf_polled *polled) {
    hf_time until = HF_NEVER;
    polled->count = 0;
    assert(driver->connection_count <= POLL_MAX);
    for (size_t link = 0; link < driver->connection_count; link++) {
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

void hf_links_read(hf_driver *driver, unsigned roles) {
    assert(hf_driver_is_entered(driver));
    hf_polled polled;
    fill_polled(driver, roles, &polled);
    if (poll(polled.fds, polled.count, 0) > 0) on_all_polled(driver, roles, &polled);
}

#define MAX_SLEEP HF_SECOND

/* Returns how long to sleep. The limit is MAX_SLEEP because the system does not count a suspend of
 * the host as sleep, so the thread would wake up late by the length of the suspend. */
static hf_time limit_sleep(hf_time until) {
    hf_time now = hf_now();
    if (until == HF_NEVER) return until;
    return until > now ? hf_time_min(until - now, MAX_SLEEP) : 0;
}

bool hf_links_sleep(hf_driver *driver, unsigned (*roles_of)(const hf_driver *), int extra,
                    hf_time until, const sigset_t *signals) {
    assert(hf_driver_is_entered(driver));
    assert(!driver->external);
    hf_polled polled;
    until = hf_time_min(until, fill_polled(driver, roles_of(driver), &polled));
    polled.fds[polled.count] = (struct pollfd){.fd = extra, .events = POLLIN};
    hf_time span = limit_sleep(until);
    pthread_mutex_unlock(&driver->mutex);
    int ready = hf_poll(polled.fds, polled.count + 1, span, signals);
    bool signalled = ready < 0 && errno == EINTR;
    if (extra >= 0) lock_as_watchdog(driver);
    else pthread_mutex_lock(&driver->mutex);
    if (ready > 0) on_all_polled(driver, roles_of(driver), &polled);
    return !signalled;
}

bool hf_links_have_work(const hf_driver *driver) {
    for (size_t link = HF_LINK_CALLS; link < driver->connection_count; link += HF_LINKS) {
        if (hf_session_has_work(hf_link_session(driver, link))) return true;
    }
    return false;
}

bool hf_links_have_unwritten(const hf_driver *driver) {
    for (size_t link = HF_LINK_RENEWER; link < driver->connection_count; link += HF_LINKS) {
        const hf_connection *connection = &driver->connections[link];
        bool is_writable = connection->fd >= 0 && !connection->is_full;
        if (is_writable && hf_session_output(hf_link_session(driver, link)).size > 0) return true;
    }
    return false;
}

bool hf_links_receive_reply(hf_driver *driver) {
    assert(hf_driver_is_entered(driver));
    int fd = driver->connections[HF_LINK_CALLS].fd;
    char bytes[READ_SIZE];
    pthread_mutex_unlock(&driver->mutex);
    ssize_t size = hf_recv_wait(fd, bytes, sizeof bytes, HF_POLL_SLICE);
    int error = errno;
    pthread_mutex_lock(&driver->mutex);
    errno = error;
    on_received(driver, HF_LINK_CALLS, bytes, size);
    return size >= 0 || error != EINTR;
}

#define IDLE_AFTER HF_MS /* a connection that was silent for longer is read before sending */

hf_time hf_links_read_idle(hf_driver *driver) {
    hf_time now = hf_now();
    for (size_t link = HF_LINK_CALLS; link < driver->connection_count; link += HF_LINKS) {
        const hf_session *calls = hf_link_session(driver, link);
        bool has_leftover = !driver->uses_event_loop && !hf_client_has_detached(driver->client) &&
                            hf_session_has_work(calls);
        hf_time read_at =
            hf_time_max(hf_session_received_at(calls), driver->connections[link].quiet_at);
        bool idle = has_leftover || now >= read_at + IDLE_AFTER;
        if (!hf_session_is_ready(calls) || !idle) continue;
        driver->connections[link].quiet_at = now;
        read_link(driver, link);
        now = hf_now();
    }
    return now;
}

bool hf_links_watch(hf_driver *driver) {
    assert(hf_driver_is_entered(driver));
    size_t count = driver->connection_count;
    hf_watch buf[HF_LINKS] = {0}, *list = count <= HF_LINKS ? buf : malloc(count * sizeof *list);
    if (!list) return false;
    for (size_t link = 0; link < count; link++) {
        const hf_connection *connection = &driver->connections[link];
        list[link] =
            (hf_watch){.fd = poll_fd(driver, link),
                       .file = connection->dialing ? connection->dial.file : connection->file};
        if (list[link].fd >= 0) list[link].events = poll_events(driver, link);
    }
    bool watched = hf_ready_watch(driver->ready, list, count);
    if (list != buf) free(list);
    return watched;
}

hf_time hf_links_next_dial(const hf_driver *driver) {
    hf_time until = HF_NEVER;
    for (size_t link = 0; link < driver->connection_count; link++) {
        const hf_connection *connection = &driver->connections[link];
        if (connection->dialing) until = hf_time_min(until, connection->dial.next_at);
    }
    return until;
}

void hf_links_close(hf_driver *driver) {
    assert(hf_driver_is_entered(driver));
    for (size_t link = 0; link < driver->connection_count; link++) {
        write_link(driver, link); /* it may have output that no call waits for */
        drop_link(driver, link, "the client was closed");
    }
}

void hf_links_forget(hf_driver *driver) {
    for (size_t link = 0; link < driver->connection_count; link++) {
        hf_connection *connection = &driver->connections[link];
        hf_file_close(connection->fd, connection->file);
        if (connection->dialing) hf_dial_forget(&connection->dial);
    }
    driver->connection_count = 0;
}
