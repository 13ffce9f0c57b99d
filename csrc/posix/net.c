#include "net.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "system.h"

struct hf_lookup {
    pthread_mutex_t mutex;
    bool done, abandoned;
    int result, error; /* the result of getaddrinfo, and its errno */
    struct addrinfo *addresses;
    int notify[2];
    char host[HF_URL_HOST], port[8];
};

/* ---- names ---- */

static void free_lookup(hf_lookup *lookup) {
    if (lookup->addresses) freeaddrinfo(lookup->addresses);
    hf_pipe_close(lookup->notify);
    pthread_mutex_destroy(&lookup->mutex);
    free(lookup);
}

static const struct addrinfo HINTS = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};

static void *run_lookup(void *context) {
    hf_lookup *lookup = context;
    struct addrinfo *addresses = NULL;
    int result = getaddrinfo(lookup->host, lookup->port, &HINTS, &addresses);
    int error = errno;
    pthread_mutex_lock(&lookup->mutex);
    lookup->result = result;
    lookup->error = error;
    lookup->addresses = addresses;
    lookup->done = true;
    bool abandoned = lookup->abandoned;
    if (!abandoned) hf_pipe_wake(lookup->notify[1]);
    pthread_mutex_unlock(&lookup->mutex);
    if (abandoned) free_lookup(lookup);
    return NULL;
}

static bool start_thread(hf_lookup *lookup) {
    pthread_t thread;
    if (!hf_thread_start(&thread, run_lookup, lookup)) return false;
    pthread_detach(thread);
    return true;
}

static hf_lookup *start_lookup(const char *host, const char *port) {
    hf_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup) return NULL;
    lookup->notify[0] = lookup->notify[1] = -1;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    snprintf(lookup->port, sizeof lookup->port, "%s", port);
    pthread_mutex_init(&lookup->mutex, NULL);
    if (hf_pipe(lookup->notify, false) && start_thread(lookup)) return lookup;
    free_lookup(lookup);
    return NULL;
}

/* ---- descriptors ---- */

hf_file hf_file_of(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 ? (hf_file){status.st_dev, status.st_ino} : (hf_file){0};
}

void hf_file_close(int fd, hf_file file) {
    if (fd < 0) return;
    hf_file current = hf_file_of(fd);
    if (current.device == file.device && current.inode == file.inode) close(fd);
}

/* Sets the descriptor to poll. */
static void set_polled(hf_dial *dial, int fd) {
    dial->fd = fd;
    dial->file = hf_file_of(fd);
}

static void close_socket(hf_dial *dial) {
    if (dial->fd >= 0) close(dial->fd);
    dial->fd = -1;
}

/* ---- sockets ---- */

#define MAX_SHARE (250 * HF_MS) /* the maximum time for an address that is not the last */

static int open_socket(int family) {
    int fd = hf_socket(family);
    if (fd >= 0 && family != AF_UNIX) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        hf_probe_peer(fd);
    }
    return fd;
}

static hf_dial_state begin_connect(hf_dial *dial, const struct sockaddr *address, socklen_t size) {
    int fd = open_socket(address->sa_family);
    if (fd < 0) {
        dial->error = errno;
        return HF_DIAL_FAILED;
    }
    set_polled(dial, fd);
    dial->events = POLLOUT;
    if (connect(fd, address, size) == 0) return HF_DIAL_CONNECTED;
    dial->error = errno;
    if (errno == EINPROGRESS || errno == EINTR) return HF_DIAL_PENDING;
    close_socket(dial);
    return HF_DIAL_FAILED;
}

static hf_dial_state fail_with_errno(hf_dial *dial, char *reason, size_t size) {
    char text[96];
    snprintf(reason, size, "%s", hf_error_text(dial->error, text, sizeof text));
    hf_dial_cancel(dial);
    return HF_DIAL_FAILED;
}

static hf_dial_state continue_handshake(hf_dial *dial, char *reason, size_t size) {
    hf_tls_state state = hf_tls_handshake(dial->tls, &dial->events, reason, size);
    if (state == HF_TLS_PENDING) return HF_DIAL_PENDING;
    if (state == HF_TLS_CONNECTED) return HF_DIAL_CONNECTED;
    hf_dial_cancel(dial);
    return HF_DIAL_FAILED;
}

/* Called when the socket is connected: begins the TLS handshake if the server has TLS. */
static hf_dial_state on_connected(hf_dial *dial, char *reason, size_t size) {
    dial->next_at = HF_NEVER;
    if (!dial->server->tls) return HF_DIAL_CONNECTED;
    dial->tls = hf_tls_new(dial->tls_settings, dial->server->host, dial->fd, reason, size);
    if (dial->tls) return continue_handshake(dial, reason, size);
    hf_dial_cancel(dial);
    return HF_DIAL_FAILED;
}

/* Returns when the address that is being tried has used up its share of the time. */
static hf_time share_end(const hf_dial *dial, hf_time now) {
    hf_time share_count = 1;
    for (const struct addrinfo *address = dial->next; address; address = address->ai_next)
        share_count++;
    if (share_count == 1 || now >= dial->until) return HF_NEVER;
    return now + hf_time_min((dial->until - now) / share_count, MAX_SHARE);
}

static hf_dial_state try_addresses(hf_dial *dial, hf_time now, char *reason, size_t size) {
    while (dial->next) {
        struct addrinfo *address = dial->next;
        dial->next = address->ai_next;
        hf_dial_state state = begin_connect(dial, address->ai_addr, address->ai_addrlen);
        dial->next_at = share_end(dial, now);
        if (state == HF_DIAL_CONNECTED) return on_connected(dial, reason, size);
        if (state == HF_DIAL_PENDING) return state;
    }
    return fail_with_errno(dial, reason, size);
}

static hf_dial_state start_unix(hf_dial *dial, char *reason, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, dial->server->host, sizeof address.sun_path - 1);
    hf_dial_state state = begin_connect(dial, (const struct sockaddr *)&address, sizeof address);
    return state == HF_DIAL_FAILED ? fail_with_errno(dial, reason, size) : state;
}

static hf_dial_state start_tcp(hf_dial *dial, hf_time now, char *reason, size_t size) {
    char port[8];
    struct addrinfo numeric = HINTS;
    numeric.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    snprintf(port, sizeof port, "%u", (unsigned)dial->server->port);
    if (getaddrinfo(dial->server->host, port, &numeric, &dial->addresses) == 0) {
        dial->next = dial->addresses;
        return try_addresses(dial, now, reason, size);
    }
    dial->lookup = start_lookup(dial->server->host, port);
    if (!dial->lookup) {
        snprintf(reason, size, "cannot look up the name: no threads or file descriptors left");
        return HF_DIAL_FAILED;
    }
    set_polled(dial, dial->lookup->notify[0]);
    dial->lookup_write_fd = dial->lookup->notify[1];
    dial->events = POLLIN;
    return HF_DIAL_PENDING;
}

hf_dial_state hf_dial_start(hf_dial *dial, const hf_server *server, hf_tls_settings *settings,
                            hf_time now, hf_time until, char *reason, size_t size) {
    *dial = HF_DIAL_IDLE;
    dial->server = server;
    dial->tls_settings = settings;
    dial->until = until;
    return server->port == 0 ? start_unix(dial, reason, size) : start_tcp(dial, now, reason, size);
}

/* For EAI_SYSTEM, gai_strerror says only "System error"; errno has the reason. */
static void describe_lookup_failure(int result, int error, char *reason, size_t size) {
    char text[96];
    const char *why =
        result == EAI_SYSTEM ? hf_error_text(error, text, sizeof text) : gai_strerror(result);
    snprintf(reason, size, "cannot look up the name: %s", why);
}

static hf_dial_state finish_lookup(hf_dial *dial, hf_time now, char *reason, size_t size) {
    hf_lookup *lookup = dial->lookup;
    pthread_mutex_lock(&lookup->mutex);
    bool done = lookup->done;
    int result = lookup->result, error = lookup->error;
    if (done) {
        dial->addresses = dial->next = lookup->addresses;
        lookup->addresses = NULL;
    }
    pthread_mutex_unlock(&lookup->mutex);
    if (!done) return HF_DIAL_PENDING;
    free_lookup(lookup);
    dial->lookup = NULL;
    dial->fd = dial->lookup_write_fd = -1;
    if (result == 0) return try_addresses(dial, now, reason, size);
    describe_lookup_failure(result, error, reason, size);
    return HF_DIAL_FAILED;
}

static hf_dial_state finish_connect(hf_dial *dial, hf_time now, char *reason, size_t size) {
    struct pollfd poll_fd = {.fd = dial->fd, .events = POLLOUT};
    socklen_t length = sizeof dial->error;
    if (poll(&poll_fd, 1, 0) <= 0) {
        if (now < dial->next_at) return HF_DIAL_PENDING;
        dial->error = ETIMEDOUT;
    } else if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &dial->error, &length) != 0) {
        dial->error = errno;
    }
    if (dial->error == 0) return on_connected(dial, reason, size);
    close_socket(dial);
    return try_addresses(dial, now, reason, size);
}

hf_dial_state hf_dial_step(hf_dial *dial, hf_time now, char *reason, size_t size) {
    assert(dial->fd >= 0 && dial->server); /* the lookup's pipe, or a socket */
    if (dial->lookup) return finish_lookup(dial, now, reason, size);
    if (dial->tls) return continue_handshake(dial, reason, size);
    return finish_connect(dial, now, reason, size);
}

/* The thread frees the lookup when it ends, perhaps minutes later. The pipe is closed here, because
 * the child of a fork would inherit the pipe but not the thread. */
static void abandon_lookup(hf_dial *dial) {
    hf_lookup *lookup = dial->lookup;
    pthread_mutex_lock(&lookup->mutex);
    bool done = lookup->done;
    lookup->abandoned = true;
    hf_pipe_close(lookup->notify);
    dial->fd = dial->lookup_write_fd = -1;
    pthread_mutex_unlock(&lookup->mutex);
    if (done) free_lookup(lookup);
}

void hf_dial_cancel(hf_dial *dial) {
    hf_tls_free(dial->tls, false);
    if (dial->lookup) abandon_lookup(dial);
    else close_socket(dial);
    if (dial->addresses) freeaddrinfo(dial->addresses);
    *dial = HF_DIAL_IDLE;
}

void hf_dial_forget(hf_dial *dial) {
    hf_file_close(dial->fd, dial->file);
    hf_file_close(dial->lookup_write_fd, dial->file);
    *dial = HF_DIAL_IDLE;
}
