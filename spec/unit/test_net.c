/*
 * Dials to a name with several addresses, as getaddrinfo gives them here: listeners on 127.0.0.1 of
 * which some are silent. Linked with the posix driver, and with getaddrinfo wrapped.
 */
#include "driver.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "memerr.h"

#define NAME "several.example"
#define AT(ms) (1000 * HF_SECOND + HF_MS * (hf_time)(ms))

/* ---- the name's addresses ---- */

static uint16_t ports[3];       /* 0: an address that no connection can be made to, known at once */
static int port_count, no_name; /* no_name: why the name has no address, 0: it has */
static pthread_mutex_t answers = PTHREAD_MUTEX_INITIALIZER; /* held: a look-up gets none */

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **result);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **result);

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **result) {
    if (strcmp(host, NAME) != 0) return __real_getaddrinfo(host, service, hints, result);
    if (hints->ai_flags & AI_NUMERICHOST) return EAI_NONAME;
    pthread_mutex_lock(&answers);
    pthread_mutex_unlock(&answers);
    errno = EMFILE; /* the reason for EAI_SYSTEM */
    if (no_name != 0) return no_name;
    struct addrinfo **end = result;
    for (int i = 0; i < port_count; i++) {
        char text[8];
        snprintf(text, sizeof text, "%u", (unsigned)ports[i]);
        const char *address = ports[i] == 0 ? "255.255.255.255" : "127.0.0.1";
        int failure = __real_getaddrinfo(address, text, hints, end);
        if (failure != 0) return failure;
        end = &(*end)->ai_next;
    }
    return 0;
}

/* ---- listeners ---- */

#define CROWD 8

typedef struct listener {
    int fd, crowd[CROWD];
    struct sockaddr_in address;
} listener;

static int connect_to(const struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

static bool is_connected(int fd, int timeout_ms) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    return poll(&poll_fd, 1, timeout_ms) == 1 && !(poll_fd.revents & (POLLERR | POLLHUP));
}

static listener listen_here(int backlog) {
    listener made = {.fd = socket(AF_INET, SOCK_STREAM, 0), .address = {.sin_family = AF_INET}};
    socklen_t size = sizeof made.address;
    made.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memset(made.crowd, -1, sizeof made.crowd);
    if (bind(made.fd, (struct sockaddr *)&made.address, size) != 0 || listen(made.fd, backlog) != 0)
        abort();
    getsockname(made.fd, (struct sockaddr *)&made.address, &size);
    return made;
}

/* One whose queue is full: it accepts no connection and sends nothing. */
static listener listen_in_silence(void) {
    listener made = listen_here(0);
    for (int i = 0; i < CROWD; i++) {
        made.crowd[i] = connect_to(&made.address);
        if (!is_connected(made.crowd[i], 100)) return made;
    }
    abort();
}

/* ---- what a test uses until it ends ---- */

static listener at[3]; /* that of each of the name's addresses */
static hf_server server = {.host = NAME, .port = 6379, .label = NAME ":6379"};
static hf_tls_settings *settings; /* NULL: without TLS */
static hf_dial dial = {.fd = -1, .lookup_write_fd = -1};
static char reason[128];

static void stop(listener *one) {
    for (int i = 0; i < CROWD; i++)
        if (one->crowd[i] >= 0) close(one->crowd[i]);
    if (one->fd >= 0) close(one->fd);
}

static void stop_all(void) {
    for (int i = 0; i < port_count; i++)
        if (ports[i] != 0) stop(&at[i]);
    port_count = 0;
}

/* A letter for each of the name's addresses: a good one, a silent one, one that refuses, or one to
 * which no connection can be made. */
static void name_is(const char *addresses) {
    stop_all();
    for (; addresses[port_count]; port_count++) {
        char kind = addresses[port_count];
        ports[port_count] = 0;
        if (kind == 'n') continue;
        listener *one = &at[port_count];
        *one = kind == 's' ? listen_in_silence() : listen_here(8);
        ports[port_count] = ntohs(one->address.sin_port);
        if (kind == 'r') {
            close(one->fd);
            one->fd = -1;
        }
    }
}

static void clear(void) {
    hf_dial_cancel(&dial);
    stop_all();
    hf_tls_settings_free(settings);
    settings = NULL;
    server.tls = false;
    no_name = 0;
}

CHECK_AROUND(NULL, clear)

/* ---- dials ---- */

/* Steps until the look-up is over. */
static hf_dial_state look_up(hf_time now, hf_time until) {
    hf_dial_state state =
        hf_dial_start(&dial, &server, settings, now, until, reason, sizeof reason);
    while (state == HF_DIAL_PENDING && dial.lookup) {
        struct pollfd poll_fd = {.fd = dial.fd, .events = dial.events};
        poll(&poll_fd, 1, 5000);
        state = hf_dial_step(&dial, now, reason, sizeof reason);
    }
    return state;
}

static hf_dial_state step(hf_time now) {
    return hf_dial_step(&dial, now, reason, sizeof reason);
}

static hf_dial_state step_when_ready(hf_time now) {
    struct pollfd poll_fd = {.fd = dial.fd, .events = dial.events};
    poll(&poll_fd, 1, 5000);
    return step(now);
}

/* Looks the name up, and tries its addresses to the end. */
static hf_dial_state connect_by_name(void) {
    hf_dial_state state = look_up(AT(0), AT(1000));
    while (state == HF_DIAL_PENDING) state = step_when_ready(AT(0));
    return state;
}

static uint16_t port_of_peer(int fd) {
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    getpeername(fd, (struct sockaddr *)&address, &size);
    return ntohs(address.sin_port);
}

TEST(a_silent_address_is_given_250_ms_before_the_next_one_is_tried) {
    name_is("sg"), CHECK_EQ_INT(look_up(AT(0), AT(1000)), HF_DIAL_PENDING);
    CHECK_EQ_U64(dial.next_at, AT(250));
    CHECK_EQ_INT(step(AT(249)), HF_DIAL_PENDING);
    CHECK_EQ_U64(dial.next_at, AT(250));
    hf_dial_state state = step(AT(250));
    CHECK_EQ_U64(dial.next_at, HF_NEVER);
    if (state == HF_DIAL_PENDING) state = step_when_ready(AT(251));
    CHECK_EQ_INT(state, HF_DIAL_CONNECTED);
    CHECK_EQ_INT(port_of_peer(dial.fd), ntohs(at[1].address.sin_port));
}

TEST(a_name_without_an_address_is_reported_with_the_reason) {
    no_name = EAI_NONAME;
    CHECK_EQ_INT(look_up(AT(0), AT(1000)), HF_DIAL_FAILED);
    CHECK(strstr(reason, "cannot look up the name: "));
    CHECK(strstr(reason, gai_strerror(EAI_NONAME)));
    CHECK(dial.fd == -1 && dial.lookup_write_fd == -1 && !dial.lookup);
}

/* Its message is the one of the TLS settings. */
TEST(a_connection_attempt_that_cannot_begin_tls_leaves_no_descriptor) {
    name_is("g");
    server.tls = true;
    settings = hf_tls_settings_new(&(hf_tls_options){.ca_file = "/nowhere/ca"});
    CHECK_EQ_INT(connect_by_name(), HF_DIAL_FAILED);
    CHECK_STR(reason, "TLS: cannot use ca_file /nowhere/ca: No such file or directory");
    CHECK_EQ_INT(dial.fd, -1);
}

TEST(a_unix_socket_path_of_maximum_length_can_be_connected_to) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    hf_server here = {.port = 0};
    size_t most = sizeof address.sun_path - 1;
    int size = snprintf(here.host, sizeof here.host, "/tmp/test_net.%ld.", (long)getpid());
    memset(here.host + size, 'x', most - (size_t)size);
    memcpy(address.sun_path, here.host, most);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool listens = bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0;
    hf_dial_state state = hf_dial_start(&dial, &here, NULL, AT(0), AT(1000), reason, sizeof reason);
    hf_dial_cancel(&dial);
    close(fd);
    unlink(address.sun_path);
    CHECK(listens);
    CHECK_EQ_INT(state, HF_DIAL_CONNECTED);
}

TEST(a_socket_that_cannot_be_reached_is_reported_with_the_reason) {
    static const hf_server nowhere = {.host = "/nowhere/redis.sock", .port = 0};
    CHECK_EQ_INT(hf_dial_start(&dial, &nowhere, NULL, AT(0), AT(1000), reason, sizeof reason),
                 HF_DIAL_FAILED);
    CHECK_STR(reason, "No such file or directory");
    CHECK_EQ_INT(dial.fd, -1);
}

static int option_of(int fd, int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}

TEST(a_connection_sends_small_commands_without_delay_and_uses_keepalive) {
    name_is("g"), CHECK_EQ_INT(connect_by_name(), HF_DIAL_CONNECTED);
    CHECK(option_of(dial.fd, IPPROTO_TCP, TCP_NODELAY) > 0);
    CHECK(option_of(dial.fd, SOL_SOCKET, SO_KEEPALIVE) > 0);
#ifdef TCP_USER_TIMEOUT
    CHECK_EQ_INT(option_of(dial.fd, IPPROTO_TCP, TCP_KEEPIDLE), 30);
    CHECK_EQ_INT(option_of(dial.fd, IPPROTO_TCP, TCP_KEEPINTVL), 5);
    CHECK_EQ_INT(option_of(dial.fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    CHECK_EQ_INT(option_of(dial.fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 15000);
#endif
}

TEST(each_new_connection_looks_up_its_host_names_current_address) {
    for (int i = 0; i < 2; i++) {
        name_is("g"), CHECK_EQ_INT(connect_by_name(), HF_DIAL_CONNECTED);
        CHECK_EQ_INT(port_of_peer(dial.fd), ntohs(at[0].address.sin_port));
        hf_dial_cancel(&dial);
    }
}

TEST(several_addresses_of_a_host_share_a_short_connect_timeout_equally) {
    name_is("ssg"), CHECK_EQ_INT(look_up(AT(0), AT(300)), HF_DIAL_PENDING);
    CHECK_EQ_U64(dial.next_at, AT(100));
    CHECK_EQ_INT(step(AT(120)), HF_DIAL_PENDING);
    CHECK_EQ_U64(dial.next_at, AT(210));
    hf_dial_state state = step(AT(210));
    if (state == HF_DIAL_PENDING) state = step_when_ready(AT(211));
    CHECK_EQ_INT(state, HF_DIAL_CONNECTED);
}

TEST(the_last_of_a_hosts_addresses_gets_the_rest_of_the_connect_timeout) {
    name_is("s"), CHECK_EQ_INT(look_up(AT(0), AT(1000)), HF_DIAL_PENDING);
    CHECK_EQ_U64(dial.next_at, HF_NEVER);
    CHECK_EQ_INT(step(AT(999)), HF_DIAL_PENDING);
}

TEST(a_refused_connection_attempt_moves_to_the_next_address_at_once) {
    name_is("rg"), CHECK_EQ_INT(connect_by_name(), HF_DIAL_CONNECTED);
    hf_dial_cancel(&dial);
    name_is("rr"), CHECK_EQ_INT(connect_by_name(), HF_DIAL_FAILED);
    CHECK_STR(reason, "Connection refused");
}

/* As those of IPv6 on a host that has none. */
TEST(addresses_that_fail_at_once_leave_the_rest_of_the_connect_timeout_to_the_others) {
    CASES(const char *addresses; hf_dial_state state) = {{"ng", HF_DIAL_CONNECTED},
                                                         {"nng", HF_DIAL_CONNECTED},
                                                         {"n", HF_DIAL_FAILED},
                                                         {"nn", HF_DIAL_FAILED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        name_is(cases[i].addresses), CHECK_EQ_INT(connect_by_name(), cases[i].state);
        CHECK(dial.fd >= 0 || (cases[i].state == HF_DIAL_FAILED && reason[0] != '\0'));
        hf_dial_cancel(&dial);
    }
}

TEST(a_tls_handshake_gets_the_rest_of_the_connect_timeout) {
    name_is("gg");
    server.tls = true;
    settings = hf_tls_settings_new(&(hf_tls_options){.accepts_any_certificate = true});
    hf_dial_state state = look_up(AT(0), AT(1000));
    while (state == HF_DIAL_PENDING && !dial.tls) state = step_when_ready(AT(0));
    CHECK_EQ_INT(state, HF_DIAL_PENDING);
    CHECK_EQ_U64(dial.next_at, HF_NEVER);
}

/* ---- the driver ---- */

static void *serve_one(void *context) {
    char bytes[1024];
    int fd = accept(((listener *)context)->fd, NULL, NULL);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) send(fd, "+PONG\r\n", 7, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static bool never(void *context, bool signalled) {
    (void)context;
    (void)signalled;
    return false;
}

static hf_driver *new_looped_driver(const hf_server *of) {
    hf_client_config config = {.session = {.server = *of,
                                           .connect_timeout = 20 * HF_SECOND,
                                           .command_timeout = 20 * HF_SECOND},
                               .renewer = HF_LINK_CALLS};
    hf_driver *driver = hf_driver_new(&config, NULL);
    driver->uses_event_loop = true;
    return driver;
}

static void end_driver(hf_driver *driver, hf_op *op) {
    hf_op_end(op, hf_now());
    hf_driver_leave(driver);
    hf_driver_unref(driver);
}

/* How long a call took that had to try both. */
static hf_time dial_two(hf_code *code) {
    name_is("sg");
    pthread_t thread;
    pthread_create(&thread, NULL, serve_one, &at[1]);
    hf_client_config config = {.session = {.server = server,
                                           .connect_timeout = 20 * HF_SECOND,
                                           .command_timeout = 20 * HF_SECOND}};
    hf_driver *driver = hf_driver_new(&config, NULL);
    hf_op_spec ping = {.kind = HF_OP_PING};
    hf_driver_enter(driver);
    hf_time began_at = hf_now();
    hf_op *op = hf_driver_run(driver, &ping, true, never, NULL); /* not woken by the clock */
    hf_time took = hf_now() - began_at;
    *code = hf_op_code(op);
    end_driver(driver, op);
    shutdown(at[1].fd, SHUT_RDWR); /* ends an accept, too */
    pthread_join(thread, NULL);
    return took;
}

/* By a sleep that ends then: one that is not told of it lasts for a second. */
TEST(a_sleeping_call_wakes_by_itself_to_try_the_next_address) {
    hf_time took = HF_NEVER;
    for (int tries = 0; tries < 3 && took > 900 * HF_MS; tries++) {
        hf_code code;
        took = dial_two(&code), CHECK_EQ_INT(code, HF_OK);
        CHECK(took >= 250 * HF_MS);
    }
    CHECK_OR(took < 900 * HF_MS, "it took %llu ms", (unsigned long long)(took / HF_MS));
}

/* What an event loop does: it sleeps until the descriptor is readable. */
static hf_op *run_in_loop(hf_driver *driver, const hf_op_spec *spec, int timeout_ms) {
    hf_op *op = hf_driver_begin(driver, spec);
    while (!hf_op_is_done(op)) {
        hf_driver_serve(driver, false);
        struct pollfd ready = {.fd = hf_driver_prepare_wait(driver, HF_NEVER), .events = POLLIN};
        if (hf_op_is_done(op)) break;
        hf_driver_leave(driver);
        bool woken = poll(&ready, 1, timeout_ms) == 1;
        hf_driver_enter(driver);
        if (!woken) break;
        hf_driver_serve(driver, true);
    }
    return op;
}

/* The name's addresses are set. */
static void check_loop(listener *good) {
    pthread_t thread;
    pthread_create(&thread, NULL, serve_one, good);
    hf_driver *driver = new_looped_driver(&server);
    hf_op_spec ping = {.kind = HF_OP_PING};
    hf_driver_enter(driver);
    hf_op *op = run_in_loop(driver, &ping, 5000);
    bool done = hf_op_is_done(op);
    hf_code code = hf_op_code(op);
    end_driver(driver, op);
    shutdown(good->fd, SHUT_RDWR); /* ends an accept, too */
    pthread_join(thread, NULL);
    CHECK(done);
    CHECK_EQ_INT(code, HF_OK);
}

TEST(an_event_loop_is_woken_to_try_the_next_address) {
    name_is("sg");
    check_loop(&at[1]);
}

/* A standard input that cannot be watched would wake it as well. */
TEST(an_event_loop_wakes_up_for_the_clients_sockets_and_not_for_standard_input) {
    int ends[2], input = dup(STDIN_FILENO);
    name_is("g"), CHECK(pipe(ends) == 0 && dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
    check_loop(&at[0]);
    if (input >= 0) dup2(input, STDIN_FILENO);
    else close(STDIN_FILENO);
    close(input);
    close(ends[0]);
    close(ends[1]);
}

/* The child of a fork has a copy of what the look-up's thread has written to. */
TEST(an_event_loop_no_longer_watches_the_descriptor_of_a_finished_name_lookup) {
    name_is("g");
    hf_driver *driver = new_looped_driver(&server);
    hf_op_spec ping = {.kind = HF_OP_PING};
    pthread_mutex_lock(&answers);
    hf_driver_enter(driver);
    hf_op *op = hf_driver_begin(driver, &ping);
    hf_driver_serve(driver, false);
    struct pollfd ready = {.fd = hf_driver_prepare_wait(driver, HF_NEVER), .events = POLLIN};
    const hf_connection *calls = &driver->connections[HF_LINK_CALLS];
    bool looked_up = calls->dialing && calls->dial.lookup;
    int copy = dup(calls->dial.fd);
    pthread_mutex_unlock(&answers);
    while (calls->dialing && poll(&ready, 1, 5000) == 1) { /* nobody answers the connection */
        hf_driver_serve(driver, true);
        hf_driver_prepare_wait(driver, HF_NEVER);
    }
    bool connected = calls->fd >= 0, stays_ready = poll(&ready, 1, 20) == 1;
    hf_op_abandon(op, hf_now());
    end_driver(driver, op);
    close(copy);
    CHECK(looked_up && connected);
    CHECK(!stays_ready);
}

/* Returns its status. The parent's driver is in the middle of a look-up, or of a connect. */
static int fork_while_dialing(bool looks_up) {
    int status = -1, before = check_open_descriptors();
    hf_driver *driver = new_looped_driver(&server);
    hf_op_spec ping = {.kind = HF_OP_PING};
    const hf_dial *calls = &driver->connections[HF_LINK_CALLS].dial;
    if (looks_up) pthread_mutex_lock(&answers);
    hf_driver_enter(driver);
    hf_op *op = hf_driver_begin(driver, &ping);
    hf_driver_serve(driver, false);
    struct pollfd ready = {.fd = hf_driver_prepare_wait(driver, HF_NEVER), .events = POLLIN};
    while (!looks_up && calls->lookup && poll(&ready, 1, 5000) == 1) {
        hf_driver_serve(driver, true);
        hf_driver_prepare_wait(driver, HF_NEVER);
    }
    bool dials = calls->fd >= 0 && (calls->lookup != NULL) == looks_up;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        hf_driver_enter(driver);
        _exit(dials && check_open_descriptors() == before ? 0 : 1);
    }
    if (looks_up) pthread_mutex_unlock(&answers);
    hf_op_abandon(op, hf_now());
    end_driver(driver, op);
    waitpid(child, &status, 0);
    return status;
}

TEST(a_forked_child_has_no_descriptor_of_its_parents_connection_attempt) {
    name_is("s");
    int looked_up = fork_while_dialing(true), connected = fork_while_dialing(false);
    CHECK_EQ_INT(looked_up, 0);
    CHECK_EQ_INT(connected, 0);
}

TEST(a_sleeping_event_loop_is_woken_for_a_connection_that_a_call_opens) {
    name_is("g");
    hf_server here = {.host = "127.0.0.1", .label = "here", .port = ports[0]};
    hf_driver *driver = new_looped_driver(&here);
    hf_op_spec ping = {.kind = HF_OP_PING};
    hf_driver_enter(driver);
    struct pollfd ready = {.fd = hf_driver_prepare_wait(driver, HF_NEVER), .events = POLLIN};
    bool early = poll(&ready, 1, 0) == 1;
    hf_op *op = hf_driver_begin(driver, &ping);
    hf_driver_serve(driver, false);
    bool woken = poll(&ready, 1, 5000) == 1;
    hf_op_abandon(op, hf_now());
    end_driver(driver, op), CHECK(!early);
    CHECK(woken);
}

TEST(a_name_lookup_without_free_descriptors_is_reported) {
    struct rlimit most, none;
    CHECK_EQ_INT(getrlimit(RLIMIT_NOFILE, &most), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = most.rlim_max};
    CHECK_EQ_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
    hf_dial_state state =
        hf_dial_start(&dial, &server, NULL, AT(0), AT(1000), reason, sizeof reason);
    setrlimit(RLIMIT_NOFILE, &most), CHECK_EQ_INT(state, HF_DIAL_FAILED);
    CHECK_STR(reason, "cannot look up the name: no threads or file descriptors left");
}

static atomic_int mutexes; /* some systems allocate them */

int __real_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
    mutexes++;
    return __real_pthread_mutex_init(mutex, attributes);
}

int __real_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex) {
    mutexes--;
    return __real_pthread_mutex_destroy(mutex);
}

static bool is_live(long allocations) {
    for (int i = 0; i < 5000 && memerr_live() != allocations; i++) poll(NULL, 0, 1);
    return memerr_live() == allocations;
}

static int threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && readdir(tasks)) count++;
    if (tasks) closedir(tasks);
    return count - 2; /* "." and ".." */
}

/* Its thread has finished, will finish, or was seen to have finished. The thread of an earlier
 * test's lookup may still have to free it. */
TEST(a_name_lookup_leaks_no_memory_whenever_it_is_cancelled) {
    for (int i = 0; i < 5000 && threads() > 1; i++) poll(NULL, 0, 1);
    name_is("g");
    for (int when = 0; when < 3; when++) {
        long before = memerr_live();
        int mutexes_before = mutexes;
        if (when == 1) pthread_mutex_lock(&answers);
        if (when == 2) look_up(AT(0), AT(1000));
        else hf_dial_start(&dial, &server, NULL, AT(0), AT(1000), reason, sizeof reason);
        if (when == 0) poll(&(struct pollfd){.fd = dial.fd, .events = POLLIN}, 1, 5000);
        hf_dial_cancel(&dial);
        if (when == 1) pthread_mutex_unlock(&answers);
        CHECK_OR(is_live(before), "case %d: %ld allocations", when, memerr_live() - before);
        CHECK_OR(mutexes == mutexes_before, "case %d: %d mutexes", when, mutexes - mutexes_before);
    }
}

static long pages_of_memory(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages;
}

/* A thread that nobody joins or detaches keeps its stack. */
TEST(name_lookups_leave_no_threads_behind) {
    no_name = EAI_NONAME;
    for (int i = 0; i < 3; i++) look_up(AT(0), AT(1000));
    long before = pages_of_memory();
    for (int i = 0; i < 20; i++) {
        look_up(AT(0), AT(1000));
        poll(NULL, 0, 1); /* the thread ends */
    }
    long grown = (pages_of_memory() - before) * sysconf(_SC_PAGESIZE);
    CHECK_OR(grown < 80L << 20, "%ld MB", grown >> 20);
}

/* ---- files ---- */

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

TEST(an_abandoned_name_lookup_keeps_no_descriptors) {
    pthread_mutex_lock(&answers);
    hf_dial_state state =
        hf_dial_start(&dial, &server, NULL, AT(0), AT(1000), reason, sizeof reason);
    int ends[2] = {dial.fd, dial.lookup_write_fd};
    bool was_open = is_open(ends[0]) && is_open(ends[1]);
    hf_dial_cancel(&dial);
    bool stays_open = is_open(ends[0]) || is_open(ends[1]);
    pthread_mutex_unlock(&answers);
    CHECK(state == HF_DIAL_PENDING && was_open);
    CHECK(!stays_open);
}

TEST(a_descriptor_is_closed_only_if_it_still_refers_to_the_same_file) {
    int ends[2], others[2];
    CHECK(pipe(ends) == 0 && pipe(others) == 0);
    hf_file file = hf_file_of(ends[0]);
    close(ends[0]), CHECK_EQ_INT(dup2(others[0], ends[0]), ends[0]);
    hf_file_close(ends[0], file), CHECK_EQ_INT(write(others[1], "x", 1), 1);
    char byte;
    CHECK_EQ_INT(read(ends[0], &byte, 1), 1);
    hf_file_close(ends[0], hf_file_of(others[0])), CHECK_EQ_INT(read(ends[0], &byte, 1), -1);
    hf_file_close(ends[0], file);
    hf_file_close(-1, file);
    close(ends[1]);
    close(others[0]);
    close(others[1]);
}

CHECK_MAIN
