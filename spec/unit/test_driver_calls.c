#include "driver_rig.h"

/* ---- a server that does not behave ---- */

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
        .name = "a silent server of a loop", .uses_event_loop = true, .manner = {.silent = true}}));
}

TEST(closing_a_connection_without_a_reply_outstanding_closes_it_cleanly) {
    for (int tls = 0; tls < 2; tls++) {
        CHECK(run_once((scenario){.name = "a server", .manner = {.speaks_tls = tls == 1}}));
        CHECK_EQ_INT(peer.resets, 0);
        CHECK(peer.ends > 0);
    }
}

/* The collector closes a client that is closed already. */
TEST(closing_a_client_twice_closes_no_descriptor_that_it_does_not_own) {
    int ends[8][2];
    hf_driver *driver = begin_run((scenario){.name = "two closes"});
    bool done = take_turn(driver);
    hf_driver_close(driver, HF_SECOND);
    for (int i = 0; i < 8; i++) done = pipe(ends[i]) == 0 && done;
    hf_driver_unref(driver);
    int closed = 0;
    for (int i = 0; i < 16; i++) closed += close(ends[i / 2][i % 2]) != 0;
    stop_peer(), CHECK(done), CHECK_EQ_INT(closed, 0);
}

/* A child process may have copies of the sockets, and keep them open. */
TEST(a_connection_that_has_ended_no_longer_wakes_an_event_loop) {
    hf_driver *driver =
        begin_run((scenario){.name = "a copy of a socket", .uses_event_loop = true});
    bool done = take_turn(driver);
    hf_driver_enter(driver);
    int copy = dup(driver->connections[HF_LINK_CALLS].fd);
    shutdown(copy, SHUT_RD);
    hf_driver_serve(driver, true);
    bool ended = driver->connections[HF_LINK_CALLS].fd < 0;
    struct pollfd loop = {hf_driver_prepare_wait(driver, HF_NEVER), POLLIN, 0};
    int ready = poll(&loop, 1, 0);
    hf_driver_leave(driver);
    hf_driver_unref(driver);
    close(copy);
    stop_peer(), CHECK(done && ended), CHECK_EQ_INT(ready, 0);
}

/* A command that is sent over it may count as lost, or as sent twice. */
TEST(a_call_in_an_event_loop_does_not_use_a_connection_that_has_ended) {
    hf_driver *driver =
        begin_run((scenario){.name = "a server that has closed", .uses_event_loop = true});
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
    stop_peer(), CHECK(done), CHECK(!used);
}

/* The loop has ended, or the client was collected: a thread does what is left. */
TEST(closing_a_client_outside_its_event_loop_releases_its_locks) {
    static const bool looped[] = {false, true, false, true};
    for (size_t i = 0; i < 4; i++) {
        hf_driver *driver =
            new_holder((scenario){.name = "a holder", .uses_event_loop = looped[i]});
        if (i < 2) hf_driver_close(driver, 10 * HF_SECOND);
        end_holder(driver), CHECK_OR(!peer.held, "case %zu", i);
    }
}

/* Nothing else would be due for ten seconds. */
TEST(a_sleeping_event_loop_is_woken_to_clean_up_an_abandoned_lock) {
    hf_driver *driver = new_holder((scenario){.name = "a loop", .uses_event_loop = true});
    hf_driver_enter(driver);
    struct pollfd ready = {hf_driver_prepare_wait(driver, HF_NEVER), POLLIN, 0};
    bool early = poll(&ready, 1, 0) == 1;
    hf_hold *hold =
        hf_client_find(driver->client, hf_kind_by_name("lock"), held_names, (hf_slice){"me", 2});
    if (hold) hf_client_abandon(driver->client, hold, 1, hf_now());
    hf_driver_wake(driver);
    bool woken = poll(&ready, 1, SOON) == 1;
    leave_holder(driver), CHECK(hold && !early), CHECK(woken), CHECK(!peer.held);
}

/* The task may be late: until then others may begin calls. */
TEST(an_event_loop_remains_woken_until_the_clients_task_has_run) {
    hf_driver *driver = new_holder((scenario){.name = "a loop", .uses_event_loop = true});
    hf_driver_enter(driver);
    int fd = hf_driver_prepare_wait(driver, hf_now() + HF_MS);
    bool woken = is_readable(fd, SOON);
    hf_driver_serve(driver, false);
    bool stays = is_readable(fd, SOON);
    hf_driver_wake(driver);
    stays = stays && is_readable(fd, SOON);
    hf_driver_serve(driver, true);
    hf_driver_wake(driver);
    bool goes_on = is_readable(fd, 0); /* nothing is due for ten seconds */
    leave_holder(driver), CHECK(woken), CHECK(stays), CHECK(!goes_on);
}

TEST(an_event_loop_remains_woken_until_a_caller_has_taken_its_result) {
    hf_driver *driver = new_holder((scenario){.name = "a loop", .uses_event_loop = true});
    hf_op_spec ping = {.kind = HF_OP_PING};
    hf_driver_enter(driver);
    hf_op *op = run_in_loop(driver, &ping);
    bool waits = is_readable(hf_driver_prepare_wait(driver, HF_NEVER), SOON);
    hf_driver_wake(driver);
    waits = waits && is_readable(hf_ready_fd(driver->ready), SOON);
    hf_op_end(op, hf_now());
    bool goes_on = is_readable(hf_driver_prepare_wait(driver, HF_NEVER), 0);
    leave_holder(driver), CHECK(waits), CHECK(!goes_on);
}

/* The loop was busy with something else for half a minute. */
TEST(a_call_uses_a_reply_that_has_arrived_even_if_its_deadline_has_passed) {
    for (int reads = 0; reads < 2; reads++) {
        hf_driver *driver = new_holder((scenario){.name = "a loop", .uses_event_loop = true});
        hf_op_spec ping = {.kind = HF_OP_PING};
        hf_driver_enter(driver);
        hf_op *op = hf_driver_begin(driver, &ping);
        hf_driver_serve(driver, false);
        bool answered = is_readable(driver->connections[HF_LINK_CALLS].fd, SOON);
        atomic_fetch_add(&ahead, 30 * HF_SECOND);
        hf_driver_serve(driver, reads == 1);
        hf_code code = hf_op_is_done(op) ? hf_op_code(op) : HF_BUSY;
        hf_op_end(op, hf_now());
        leave_holder(driver), CHECK(answered), CHECK_EQ_INT(code, HF_OK);
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
    hf_op_spec release = release_of(held_names);
    hf_driver_enter(driver);
    hf_op *op = hf_driver_send(driver, &release, never, NULL);
    bool detached = op && hf_op_is_detached(op);
    bool reads_soon = driver->sleeps_until <= hf_now() + 10 * HF_MS;
    leave_holder(driver), CHECK(renews), CHECK(detached && reads_soon);
}

/* A reply says that the server no longer knows the script of an earlier release. While this thread
 * holds the mutex, no other one sends that release again. */
TEST(an_async_release_that_must_be_resent_is_sent_before_another_call_returns) {
    hf_driver *driver = new_holder((scenario){.name = "a holder", .manner = {.forgets = 3}});
    hf_op_spec release = release_of(held_names), ping = {.kind = HF_OP_PING};
    hf_driver_enter(driver);
    const hf_session *calls = hf_link_session(driver, HF_LINK_CALLS);
    hf_op *op = hf_driver_send(driver, &release, never, NULL);
    bool detached = op && hf_op_is_detached(op);
    hf_op *other = hf_driver_run(driver, &ping, false, never, NULL);
    bool answered = other && hf_op_code(other) == HF_OK;
    if (other) hf_op_end(other, hf_now());
    bool awaited = hf_session_awaits_reply(calls);
    size_t unsent = hf_session_output(calls).size;
    leave_holder(driver), CHECK(detached && answered && awaited), CHECK_EQ_INT(unsent, 0);
    CHECK(!peer.held);
}

/* The process was suspended for a while. */
TEST(an_async_release_uses_a_reply_that_has_arrived_even_if_its_deadline_has_passed) {
    hf_driver *driver = new_holder((scenario){.name = "a holder"});
    hf_op_spec release = release_of(held_names);
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
    end_holder(driver), CHECK(detached && answered), CHECK_EQ_INT(peer.commands, 3);
    CHECK_EQ_INT(peer.resets, 0);
}

/* Poll and recv would be two system calls for each reply. */
TEST(a_call_waits_for_its_reply_in_a_single_system_call) {
    hf_driver *driver = new_holder((scenario){.name = "a holder"});
    hf_op_spec ping = {.kind = HF_OP_PING};
    atomic_store(&reply_waits, 0);
    bool done = run_op(driver, &ping);
    unsigned waits = atomic_load(&reply_waits);
    end_holder(driver), CHECK(done), CHECK(waits > 0);
}

/* Until then the release waits, because the renewal is about the same hold. */
TEST(a_call_returns_as_soon_as_the_watchdog_has_received_its_reply) {
    unsigned early = 0;
    for (int tries = 0; tries < 3 && early == 0; tries++) {
        hf_driver *driver = new_holder((scenario){.name = "a renewal", .manner = {.delays = 4}});
        hf_op_spec release = release_of(held_names);
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
        end_holder(driver), CHECK_OR(released, "%s", last_text);
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
    leave_holder(driver), CHECK(renewed);
    CHECK_OR(wakes < 20, "%llu wakes", (unsigned long long)wakes);
}

TEST(a_watchdog_thread_that_cannot_start_is_reported_and_can_start_later) {
    for (unsigned nth = 1; nth < 10; nth++) {
        now_runs = (scenario){.name = "no thread"};
        hf_driver *driver = new_driver();
        hf_driver_enter(driver);
        inject(SYSERR_BROKEN, nth);
        errno = 0;
        bool started = hf_driver_start_watchdog(driver), running = driver->running;
        int error = errno;
        const char *call = syserr_injected();
        inject(SYSERR_NONE, 0);
        bool later = hf_driver_start_watchdog(driver) && driver->running;
        hf_driver_leave(driver);
        hf_driver_unref(driver), CHECK(later);
        if (!call) return;
        CHECK_OR(!started && !running && error != 0, "%s", call);
    }
}

/* The release of unknown outcome of the first turn comes before the second one. */
TEST(calls_finish_background_releases_while_the_watchdog_is_stopped) {
    hf_driver *driver = new_holder((scenario){
        .name = "a server that loses replies",
        .patience = HF_SECOND,
        .manner = {.ignores = 3, .ignores_to = 4}}); /* it is sent again over a new connection */
    hf_op_spec release = release_of(held_names);
    hf_driver_enter(driver);
    hf_driver_stop_watchdog(driver);
    hf_driver_leave(driver);
    bool lost = !run_op(driver, &release) && last_code == HF_UNREACHABLE;
    hf_driver_enter(driver);
    bool stopped = !driver->running;
    hf_driver_leave(driver);
    bool again = take_turn(driver);
    end_holder(driver), CHECK(lost && stopped), CHECK_OR(again, "%s", last_text), CHECK(!peer.held);
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
    end_holder(driver), CHECK(plain), CHECK(interruptible);
}

/* One recv sleeps instead of poll and recv; OpenSSL must never sleep. */
TEST(a_call_waits_in_recv_only_if_the_connection_has_no_tls) {
    for (int tls = 0; tls < 2; tls++) {
        hf_driver *driver =
            new_holder((scenario){.name = "a holder", .manner = {.speaks_tls = tls == 1}});
        hf_driver_enter(driver);
        int fd = driver->connections[HF_LINK_CALLS].fd;
        bool sleeps = !(fcntl(fd, F_GETFL) & O_NONBLOCK);
        leave_holder(driver);
#ifdef HF_LINUX
        CHECK_EQ_INT(sleeps, tls == 0);
#else
        CHECK(!sleeps);
#endif
    }
}

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
                                  .uses_event_loop = looped[i],
                                  .patience = 2 * HF_SECOND,
                                  .manner = {.speaks_tls = true, .splits = true}}));
        CHECK(!peer.held);
    }
}

DRIVER_MAIN
