#include "net.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct hf_lookup {
    pthread_mutex_t mutex;
    bool done, abandoned;
    int result; /* getaddrinfo's */
    struct addrinfo *addresses;
    int notify[2];
    char host[HF_URL_HOST], port[8];
};

/* ---- names ---- */

static void free_lookup(hf_lookup *lookup) {
    if (lookup->addresses) freeaddrinfo(lookup->addresses);
    if (lookup->notify[0] >= 0) close(lookup->notify[0]);
    if (lookup->notify[1] >= 0) close(lookup->notify[1]);
    pthread_mutex_destroy(&lookup->mutex);
    free(lookup);
}

static const struct addrinfo HINTS = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};

static void *run_lookup(void *context) {
    hf_lookup *lookup = context;
    struct addrinfo *addresses = NULL;
    int result = getaddrinfo(lookup->host, lookup->port, &HINTS, &addresses);
    pthread_mutex_lock(&lookup->mutex);
    lookup->result = result;
    lookup->addresses = addresses;
    lookup->done = true;
    bool abandoned = lookup->abandoned;
    if (!abandoned) {
        ssize_t written = write(lookup->notify[1], "", 1);
        (void)written;
    }
    pthread_mutex_unlock(&lookup->mutex);
    if (abandoned) free_lookup(lookup);
    return NULL;
}

static bool start_thread(hf_lookup *lookup) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&thread, &attributes, run_lookup, lookup);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return result == 0;
}

static hf_lookup *start_lookup(const char *host, const char *port) {
    hf_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup) return NULL;
    lookup->notify[0] = lookup->notify[1] = -1;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    snprintf(lookup->port, sizeof lookup->port, "%s", port);
    pthread_mutex_init(&lookup->mutex, NULL);
    if (pipe2(lookup->notify, O_CLOEXEC | O_NONBLOCK) == 0 && start_thread(lookup)) return lookup;
    free_lookup(lookup);
    return NULL;
}

static void abandon_lookup(hf_lookup *lookup) {
    pthread_mutex_lock(&lookup->mutex);
    bool done = lookup->done;
    lookup->abandoned = true;
    pthread_mutex_unlock(&lookup->mutex);
    if (done) free_lookup(lookup);
}

/* ---- sockets ---- */

static int open_socket(int family) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && family != AF_UNIX) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    return fd;
}

static hf_dial_state begin_connect(hf_dial *dial, const struct sockaddr *address, socklen_t size) {
    dial->fd = open_socket(address->sa_family);
    if (dial->fd < 0) {
        dial->error = errno;
        return HF_DIAL_FAILED;
    }
    if (connect(dial->fd, address, size) == 0) return HF_DIAL_CONNECTED;
    dial->error = errno;
    dial->events = POLLOUT;
    if (errno == EINPROGRESS || errno == EINTR) return HF_DIAL_PENDING;
    close(dial->fd);
    dial->fd = -1;
    return HF_DIAL_FAILED;
}

static hf_dial_state fail_with_errno(hf_dial *dial, char *reason, size_t size) {
    char text[96];
    snprintf(reason, size, "%s", strerror_r(dial->error, text, sizeof text));
    hf_dial_cancel(dial);
    return HF_DIAL_FAILED;
}

static hf_dial_state try_addresses(hf_dial *dial, char *reason, size_t size) {
    while (dial->next) {
        struct addrinfo *address = dial->next;
        dial->next = address->ai_next;
        hf_dial_state state = begin_connect(dial, address->ai_addr, address->ai_addrlen);
        if (state != HF_DIAL_FAILED) return state;
    }
    return fail_with_errno(dial, reason, size);
}

static hf_dial_state start_unix(hf_dial *dial, const hf_server *server, char *reason, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, server->host, sizeof address.sun_path - 1);
    hf_dial_state state = begin_connect(dial, (const struct sockaddr *)&address, sizeof address);
    return state == HF_DIAL_FAILED ? fail_with_errno(dial, reason, size) : state;
}

static hf_dial_state start_tcp(hf_dial *dial, const hf_server *server, char *reason, size_t size) {
    char port[8];
    struct addrinfo numeric = HINTS;
    numeric.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    snprintf(port, sizeof port, "%u", (unsigned)server->port);
    if (getaddrinfo(server->host, port, &numeric, &dial->addresses) == 0) {
        dial->next = dial->addresses;
        return try_addresses(dial, reason, size);
    }
    dial->lookup = start_lookup(server->host, port);
    if (!dial->lookup) {
        snprintf(reason, size, "cannot look up the name: no thread or descriptor left");
        return HF_DIAL_FAILED;
    }
    dial->fd = dial->lookup->notify[0];
    dial->events = POLLIN;
    return HF_DIAL_PENDING;
}

hf_dial_state hf_dial_start(hf_dial *dial, const hf_server *server, char *reason, size_t size) {
    *dial = HF_DIAL_IDLE;
    return server->port == 0 ? start_unix(dial, server, reason, size) : start_tcp(dial, server, reason, size);
}

static hf_dial_state finish_lookup(hf_dial *dial, char *reason, size_t size) {
    hf_lookup *lookup = dial->lookup;
    pthread_mutex_lock(&lookup->mutex);
    bool done = lookup->done;
    int result = lookup->result;
    if (done) {
        dial->addresses = dial->next = lookup->addresses;
        lookup->addresses = NULL;
    }
    pthread_mutex_unlock(&lookup->mutex);
    if (!done) return HF_DIAL_PENDING;
    free_lookup(lookup);
    dial->lookup = NULL;
    dial->fd = -1;
    if (result == 0) return try_addresses(dial, reason, size);
    snprintf(reason, size, "cannot look up the name: %s", gai_strerror(result));
    return HF_DIAL_FAILED;
}

static hf_dial_state finish_connect(hf_dial *dial, char *reason, size_t size) {
    struct pollfd poll_fd = {.fd = dial->fd, .events = POLLOUT};
    if (poll(&poll_fd, 1, 0) <= 0) return HF_DIAL_PENDING;
    socklen_t length = sizeof dial->error;
    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &dial->error, &length) != 0) dial->error = errno;
    if (dial->error == 0) return HF_DIAL_CONNECTED;
    close(dial->fd);
    dial->fd = -1;
    return try_addresses(dial, reason, size);
}

hf_dial_state hf_dial_step(hf_dial *dial, char *reason, size_t size) {
    return dial->lookup ? finish_lookup(dial, reason, size) : finish_connect(dial, reason, size);
}

void hf_dial_cancel(hf_dial *dial) {
    if (dial->lookup) abandon_lookup(dial->lookup);
    else if (dial->fd >= 0) close(dial->fd);
    if (dial->addresses) freeaddrinfo(dial->addresses);
    *dial = HF_DIAL_IDLE;
}
