#include "driver_rig.h"

/* ---- the child of a fork ---- */

#ifdef HF_LINUX
#define OF_READY 2 /* descriptors: an epoll set and a timer */
#else
#define OF_READY 4 /* two pipes */
#endif

/* It forks while another thread of its own may be anywhere: qemu does not survive that. */
static int fork_in_the_middle(hf_driver *driver, int (*go_on)(hf_driver *, int)) {
    int status = -1, own = driver->running ? 2 : 0;
    if (getenv("HOLDFAST_EMULATED")) return 0;
    hf_driver_enter(driver);
    while (pthread_mutex_trylock(&driver->gate) != 0) { /* the watchdog waits for the mutex */
        hf_driver_leave(driver);
        hf_driver_enter(driver);
    }
    if (driver->uses_event_loop && hf_driver_prepare_wait(driver, HF_NEVER) >= 0) own += OF_READY;
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
        hf_driver *driver =
            new_holder((scenario){.name = "a parent", .uses_event_loop = looped == 1});
        int failed = fork_in_the_middle(driver, go_on_with_files_of_its_own);
        end_holder(driver), CHECK_EQ_INT(failed, 0);
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
    end_holder(driver), CHECK_EQ_INT(failed, 0);
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
        hf_driver_unref(driver), CHECK_EQ_INT(memerr_live(), before);
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
    driver->uses_event_loop = true;
    hf_driver_enter(driver);
    bool ready = hf_driver_prepare_wait(driver, HF_NEVER) >= 0;
    long before = memerr_live();
    for (int i = 0; i < 3; i++) ready = hf_driver_prepare_wait(driver, HF_NEVER) >= 0 && ready;
    long after = memerr_live();
    hf_driver_leave(driver);
    hf_driver_unref(driver), CHECK(ready), CHECK_EQ_INT(after, before);
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

static bool count_wake_up(void *context, bool signalled) {
    (void)signalled;
    ++*(int *)context;
    return false;
}

/* Otherwise what the watchdog queues for the caller's links would wait until the caller wakes up.
 */
TEST(an_interruptible_call_of_several_servers_wakes_up_regularly_for_the_watchdog) {
    int wakes[2] = {0, 0}, paused = 0;
    for (size_t i = 0; i < 2; i++) {
        hf_driver *driver = new_driver_of(i + 1);
        hf_op_spec pause = {.kind = HF_OP_PAUSE, .wait = 6 * HF_POLL_SLICE};
        hf_driver_enter(driver);
        hf_op *op = hf_driver_run(driver, &pause, true, count_wake_up, &wakes[i]);
        paused += op && hf_op_code(op) == HF_OK;
        if (op) hf_op_end(op, hf_now());
        hf_driver_leave(driver);
        hf_driver_unref(driver);
    }
    CHECK_EQ_INT(paused, 2), CHECK(wakes[0] <= 1), CHECK(wakes[1] > 1);
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
        connection->is_full = true;
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
    hf_links_read_idle(driver), CHECK(ended);
    CHECK_EQ_INT(driver->connections[HF_LINK_CALLS].fd, -1);
    CHECK_STR(calls->reason, "the server closed the connection");
    hf_driver_unref(driver);
}

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
    (void)own;
    alarm(30);
    hf_driver_enter(driver);
    bool same =
        strcmp(introduction_of(driver->client), printed("web-3 %ld billing", (long)getpid())) == 0;
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
    hf_driver_unref(driver), CHECK_EQ_INT(failed, 0);
}

DRIVER_MAIN
