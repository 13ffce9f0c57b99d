/* A proxy that passes bytes on between clients and one server, and misbehaves on command.
 *
 *   proxy LISTEN SERVER CONTROL
 *
 * Each address is a TCP port on 127.0.0.1 (to listen, 0 means any) or the path of a unix socket.
 * The proxy prints "ready PORT" once it listens; PORT is 0 for a path. Commands are lines sent to
 * CONTROL, each answered by "ok", a number or "what?":
 *
 *   delay MS             delays each byte, both ways
 *   chunk BYTES          passes at most this many at a time, a millisecond apart; 0 ends that
 *   stop WAY             holds bytes back until `go`, like a network that is cut for a while
 *   lose WAY             drops bytes; `go` resets the connections that lost some
 *   go                   ends delay, chunk, stop and lose
 *   forget WAY           drops all bytes of the current connections; new connections work
 *   keepalive            resets the connections that lost bytes, as the server's keepalive would
 *   cut WAY BYTES        resets the connection that sends the last of this many more bytes
 *   refuse, accept       refuses new connections, or accepts them again
 *   to SERVER            sends new connections to this server; the others remain
 *   reset                resets all connections
 *   segments             answers how many TCP segments with data the clients of the open
 * connections have sent: with TCP_NODELAY, one for each write that is not larger late MS resets all
 * connections, but delivers to the server what their clients had sent, that much later
 *
 * WAY is up (to the server), down or both. When a client resets its connection, its bytes that are
 * still held back are dropped, as a real sender would drop them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <linux/tcp.h> /* unlike glibc's netinet/tcp.h, it knows the number of segments with data */
#else
#include <netinet/tcp.h>
#endif
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 64
#define PIECE 16384
#define QUEUED_MAX (1 << 20) /* bytes held back, beyond which the sender waits */
#define MS 1000000ull
#define NEVER UINT64_MAX

enum { UP, DOWN, WAYS };

typedef struct piece {
    struct piece *next;
    uint64_t due;
    size_t size, sent;
    char bytes[];
} piece;

typedef struct stream {
    int from, to;
    bool ended; /* the sender sends no more */
    bool lost;  /* bytes were dropped */
    bool hung;  /* the sender is gone; its bytes wait for the end of a stop */
    bool gone;  /* the receiver is gone; bytes for it are dropped */
    piece *first, *last;
    size_t queued;
} stream;

typedef struct connection {
    bool open;
    stream streams[WAYS];
} connection;

typedef struct rule {
    bool stopped, losing;
    long long cut_after; /* bytes, or -1 for never */
} rule;

static connection connections[CONNECTIONS];
static rule rules[WAYS] = {{.cut_after = -1}, {.cut_after = -1}};
static uint64_t delay;
static size_t chunk;
static bool refusing;
static int listener = -1, control_listener = -1, control = -1;
static const char *listen_at;
static char server_at[256];

static uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 * MS + (uint64_t)ts.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void move_to(const char *address) {
    snprintf(server_at, sizeof server_at, "%s", address);
}

/* ---- sockets ---- */

static bool is_path(const char *address) {
    return strchr(address, '/') != NULL;
}

static socklen_t parse_address(const char *text, struct sockaddr_storage *storage) {
    memset(storage, 0, sizeof *storage);
    if (is_path(text)) {
        struct sockaddr_un *address = (struct sockaddr_un *)storage;
        address->sun_family = AF_UNIX;
        snprintf(address->sun_path, sizeof address->sun_path, "%s", text);
        return sizeof *address;
    }
    struct sockaddr_in *address = (struct sockaddr_in *)storage;
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address->sin_port = htons((uint16_t)atoi(text));
    return sizeof *address;
}

static int new_socket(const char *address) {
    int fd =
        socket(is_path(address) ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) die("socket");
    return fd;
}

static int new_listener(const char *address) {
    struct sockaddr_storage storage;
    socklen_t size = parse_address(address, &storage);
    int fd = new_socket(address), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&storage, size) != 0) die(address);
    if (listen(fd, 64) != 0) die("listen");
    return fd;
}

static unsigned port_of(int fd) {
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &size);
    return address.sin_family == AF_INET ? ntohs(address.sin_port) : 0;
}

static int free_port(void) {
    int fd = new_listener("0"), port = (int)port_of(fd);
    close(fd);
    return port;
}

static void no_delay(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void reset_socket(int fd) {
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

/* Refuses connections but keeps the port: its socket remains bound, but does not listen. */
static void refuse(void) {
    if (refusing) return;
    refusing = true;
    if (!is_path(listen_at)) {
        shutdown(listener, SHUT_RD);
        return;
    }
    close(listener);
    unlink(listen_at);
}

static void accept_again(void) {
    if (!refusing) return;
    refusing = false;
    if (is_path(listen_at)) listener = new_listener(listen_at);
    else if (listen(listener, 64) != 0) die("listen");
}

/* ---- connections ---- */

static void drop_pieces(stream *s) {
    while (s->first) {
        piece *p = s->first;
        s->first = p->next;
        free(p);
    }
    s->last = NULL;
    s->queued = 0;
}

static void end(connection *c, bool by_reset) {
    for (int way = 0; way < WAYS; way++) {
        drop_pieces(&c->streams[way]);
        if (c->streams[way].from < 0) continue;
        if (by_reset) reset_socket(c->streams[way].from);
        else close(c->streams[way].from);
    }
    c->open = false;
}

static void reset_all(bool only_lost) {
    for (connection *c = connections; c < connections + CONNECTIONS; c++) {
        bool lost = c->streams[UP].lost || c->streams[DOWN].lost;
        if (c->open && (lost || !only_lost)) end(c, true);
    }
}

static void forget(int ways) {
    for (connection *c = connections; c < connections + CONNECTIONS; c++) {
        for (int way = 0; way < WAYS; way++) {
            if (!(ways & 1 << way)) continue;
            drop_pieces(&c->streams[way]);
            c->streams[way].lost = true;
        }
    }
}

static connection *unused(void) {
    for (connection *c = connections; c < connections + CONNECTIONS; c++) {
        if (!c->open) return c;
    }
    return NULL;
}

static void take_connection(void) {
    struct sockaddr_storage storage;
    socklen_t size = parse_address(server_at, &storage);
    int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) return;
    connection *c = unused();
    int server = new_socket(server_at);
    bool connected =
        c && (connect(server, (struct sockaddr *)&storage, size) == 0 || errno == EINPROGRESS);
    if (!connected) {
        close(server);
        reset_socket(client);
        return;
    }
    no_delay(client);
    no_delay(server);
    *c = (connection){.open = true};
    c->streams[UP] = (stream){.from = client, .to = server};
    c->streams[DOWN] = (stream){.from = server, .to = client};
}

/* ---- bytes ---- */

static void append(stream *s, const char *bytes, size_t size, uint64_t due) {
    piece *p = malloc(sizeof *p + size);
    if (!p) die("malloc");
    *p = (piece){.due = due, .size = size};
    memcpy(p->bytes, bytes, size);
    if (s->last) s->last->next = p;
    else s->first = p;
    s->last = p;
    s->queued += size;
}

static void enqueue(stream *s, const char *bytes, size_t size, uint64_t now) {
    uint64_t due = now + delay;
    if (s->last && s->last->due > due) due = s->last->due; /* a shorter delay overtakes nothing */
    for (size_t at = 0, part; at < size; at += part, due += chunk ? MS : 0) {
        part = chunk && size - at > chunk ? chunk : size - at;
        append(s, bytes + at, part, due);
    }
}

/* Returns how many bytes may pass before the cut. */
static size_t before_cut(rule *r, size_t size, bool *cut) {
    if (r->cut_after < 0) return size;
    size_t allowed = r->cut_after < (long long)size ? (size_t)r->cut_after : size;
    *cut = r->cut_after <= (long long)size;
    r->cut_after = *cut ? -1 : r->cut_after - (long long)size;
    return allowed;
}

/* Receives bytes. Returns false if the connection is over. */
static bool take_bytes(connection *c, int way, uint64_t now) {
    stream *s = &c->streams[way];
    char bytes[PIECE];
    ssize_t size = recv(s->from, bytes, sizeof bytes, 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) {
        s->ended = true;
    } else if (s->gone) {
        return true;
    } else if (rules[way].losing || s->lost) {
        s->lost = true;
    } else {
        bool cut = false;
        size_t allowed = before_cut(&rules[way], (size_t)size, &cut);
        enqueue(s, bytes, allowed, now);
        if (cut) { /* bytes before the cut still arrive */
            for (piece *p = s->first; p; p = p->next)
                send(s->to, p->bytes + p->sent, p->size - p->sent, MSG_NOSIGNAL);
            return false;
        }
    }
    return true;
}

/* Resets the client's connection. The server gets what the client had sent at `due`, and then the
 * end of the connection. */
static void leave_late(connection *c, uint64_t now, uint64_t due) {
    stream *up = &c->streams[UP], *down = &c->streams[DOWN];
    char bytes[PIECE];
    for (ssize_t size; !up->ended && (size = recv(up->from, bytes, sizeof bytes, 0)) > 0;) {
        append(up, bytes, (size_t)size, now);
    }
    for (piece *p = up->first; p; p = p->next) p->due = due;
    drop_pieces(down);
    reset_socket(up->from);
    up->from = down->to = -1;
    up->ended = down->gone = true;
}

static void reset_late(uint64_t now, uint64_t ms) {
    for (connection *c = connections; c < connections + CONNECTIONS; c++) {
        if (c->open && !c->streams[DOWN].gone) leave_late(c, now, now + ms * MS);
    }
}

static bool deliver(int way, stream *s, uint64_t now) {
    while (s->first && s->first->due <= now && !rules[way].stopped) {
        piece *p = s->first;
        ssize_t size = send(s->to, p->bytes + p->sent, p->size - p->sent, MSG_NOSIGNAL);
        if (size < 0) return errno == EAGAIN || errno == EINTR;
        p->sent += (size_t)size;
        s->queued -= (size_t)size;
        if (p->sent < p->size) return true;
        s->first = p->next;
        if (!s->first) s->last = NULL;
        free(p);
    }
    return !(s->ended && !s->first && !s->lost && !rules[way].stopped);
}

static void serve(connection *c, short client_events, short server_events, uint64_t now) {
    if ((client_events | server_events) & POLLERR) {
        end(c, true);
        return;
    }
    short events[WAYS] = {client_events, server_events};
    for (int way = 0; way < WAYS; way++) {
        stream *s = &c->streams[way];
        s->hung = s->hung || events[way] & POLLHUP;
        bool readable = events[way] & (POLLIN | POLLHUP) && !s->ended && !rules[way].stopped;
        if (readable && !take_bytes(c, way, now)) {
            end(c, true);
            return;
        }
    }
    bool goes_on = true;
    for (int way = 0; way < WAYS; way++) goes_on = deliver(way, &c->streams[way], now) && goes_on;
    if (!goes_on) end(c, false);
}

/* ---- commands ---- */

static int ways_of(const char *text) {
    if (strcmp(text, "up") == 0) return 1 << UP;
    if (strcmp(text, "down") == 0) return 1 << DOWN;
    return strcmp(text, "both") == 0 ? 1 << UP | 1 << DOWN : 0;
}

static void change(int ways, void (*apply)(rule *, long long), long long number) {
    for (int way = 0; way < WAYS; way++) {
        if (ways & 1 << way) apply(&rules[way], number);
    }
}

static void apply_stop(rule *r, long long unused_number) {
    (void)unused_number;
    r->stopped = true;
}

static void apply_lose(rule *r, long long unused_number) {
    (void)unused_number;
    r->losing = true;
}

static void apply_cut(rule *r, long long number) {
    r->cut_after = number;
}

static void apply_go(rule *r, long long unused_number) {
    (void)unused_number;
    *r = (rule){.cut_after = -1};
}

static unsigned segments(void) {
    unsigned sum = 0;
    for (const connection *c = connections; c < connections + CONNECTIONS; c++) {
        struct tcp_info info = {0};
        socklen_t size = sizeof info;
        if (!c->open || c->streams[UP].from < 0) continue;
        getsockopt(c->streams[UP].from, IPPROTO_TCP, TCP_INFO, &info, &size);
        sum += info.tcpi_data_segs_in;
    }
    return sum;
}

static bool obey(const char *line) {
    char word[16] = "", way[16] = "";
    long long number = 0;
    int ways = sscanf(line, "%15s %15s %lld", word, way, &number) >= 2 ? ways_of(way) : 0;
    if (strcmp(word, "delay") == 0) delay = (uint64_t)atoll(way) * MS;
    else if (strcmp(word, "chunk") == 0) chunk = (size_t)atoll(way);
    else if (strcmp(word, "stop") == 0 && ways) change(ways, apply_stop, 0);
    else if (strcmp(word, "lose") == 0 && ways) change(ways, apply_lose, 0);
    else if (strcmp(word, "forget") == 0 && ways) forget(ways);
    else if (strcmp(word, "cut") == 0 && ways && number >= 0) change(ways, apply_cut, number);
    else if (strcmp(word, "refuse") == 0) refuse();
    else if (strcmp(word, "accept") == 0) accept_again();
    else if (strncmp(line, "to ", 3) == 0) move_to(line + 3);
    else if (strcmp(word, "reset") == 0) reset_all(false);
    else if (strcmp(word, "keepalive") == 0) reset_all(true);
    else if (strcmp(word, "late") == 0) reset_late(now_ns(), (uint64_t)atoll(way));
    else if (strcmp(word, "go") == 0) {
        delay = chunk = 0;
        change(1 << UP | 1 << DOWN, apply_go, 0);
        reset_all(true);
    } else {
        return false;
    }
    return true;
}

static void take_commands(void) {
    static char text[256];
    static size_t size;
    ssize_t more = recv(control, text + size, sizeof text - 1 - size, 0);
    if (more <= 0 && !(more < 0 && (errno == EAGAIN || errno == EINTR))) {
        close(control);
        control = -1;
        size = 0;
    }
    if (more <= 0) return;
    size += (size_t)more;
    text[size] = '\0';
    for (char *stop; (stop = strchr(text, '\n'));) {
        *stop = '\0';
        char number[16];
        snprintf(number, sizeof number, "%u\n", segments());
        const char *answer = strcmp(text, "segments") == 0 ? number
                             : obey(text)                  ? "ok\n"
                                                           : "what?\n";
        send(control, answer, strlen(answer), MSG_NOSIGNAL);
        size -= (size_t)(stop + 1 - text);
        memmove(text, stop + 1, size + 1);
    }
    if (size == sizeof text - 1) size = 0;
}

/* ---- the loop ---- */

static short events_of(const connection *c, int way) {
    const stream *in = &c->streams[way], *out = &c->streams[1 - way];
    bool reads = !in->ended && !rules[way].stopped && in->queued < QUEUED_MAX;
    bool writes = out->first && !rules[1 - way].stopped && out->first->due <= now_ns();
    return (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
}

static int timeout_ms(void) {
    uint64_t now = now_ns(), first = NEVER;
    for (const connection *c = connections; c < connections + CONNECTIONS; c++) {
        for (int way = 0; way < WAYS && c->open; way++) {
            const piece *p = c->streams[way].first;
            if (p && !rules[way].stopped && p->due > now && p->due < first) first = p->due;
        }
    }
    return first == NEVER ? -1 : (int)((first - now) / MS + 1);
}

/* Returns the descriptor to poll, or -1. A peer that hung up would wake poll forever, so it is not
 * polled while its bytes must wait. */
static int fd_of(const connection *c, int way) {
    const stream *s = &c->streams[way];
    bool mute = s->ended || (s->hung && rules[way].stopped);
    return c->open && !mute ? s->from : -1;
}

static void add(struct pollfd *fds, size_t *count, int fd, short events) {
    fds[(*count)++] = (struct pollfd){.fd = fd, .events = events};
}

static void turn(void) {
    struct pollfd fds[2 * CONNECTIONS + 3];
    size_t count = 0;
    for (const connection *c = connections; c < connections + CONNECTIONS; c++) {
        for (int way = 0; way < WAYS; way++) add(fds, &count, fd_of(c, way), events_of(c, way));
    }
    add(fds, &count, refusing ? -1 : listener, POLLIN);
    add(fds, &count, control_listener, POLLIN);
    add(fds, &count, control, POLLIN);
    if (poll(fds, count, timeout_ms()) < 0 && errno != EINTR) die("poll");
    uint64_t now = now_ns();
    for (size_t i = 0; i < CONNECTIONS; i++) {
        if (connections[i].open)
            serve(&connections[i], fds[2 * i].revents, fds[2 * i + 1].revents, now);
    }
    if (fds[count - 1].revents) take_commands();
    if (fds[count - 3].revents & POLLIN) take_connection();
    if (fds[count - 2].revents & POLLIN) {
        if (control >= 0) close(control);
        control = accept4(control_listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: proxy LISTEN SERVER CONTROL\n");
        return 2;
    }
    char port[16];
    snprintf(port, sizeof port, "%d", strcmp(argv[1], "0") == 0 ? free_port() : 0);
    listen_at = strcmp(argv[1], "0") == 0 ? port : argv[1];
    move_to(argv[2]);
    listener = new_listener(listen_at);
    control_listener = new_listener(argv[3]);
    printf("ready %u\n", port_of(listener));
    fflush(stdout);
    for (;;) turn();
}
