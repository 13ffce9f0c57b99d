/*
 * What the watchdog and its callers hand each other, in the orders in which their threads may run:
 * the driver and the core as they are, in the world of orders.h. Each scene runs in the order
 * without a departure, in each with one, in each with two if there is the time, and in random
 * walks.
 *
 *   test_orders                          all scenes, in $HOLDFAST_ORDERS orders or 10,000
 *   test_orders a_hand_over 12:1,40:2    one order, with its steps
 *   test_orders a_hand_over r17 25       one that forks at step 25
 */
#include "links.h"
#include "orders_client.h"

#define OTHER "other"

#define LONG (30 * HF_SECOND)
#define SHORT (300 * HF_MS) /* a lease that is renewed after a third of it */
#define MIDDLE (3 * HF_SECOND)

/* ---- when nobody can go on ---- */

#define READ_LEFT_AFTER (10 * HF_MS) /* how long a reply that nobody waits for may stay unread */

/* A byte that has come is read, or will be: by those who wake up by the clock. */
static void check_bytes(const hf_driver *driver, hf_time wakes) {
    for (size_t link = 0; link < driver->connection_count; link++) {
        int fd = driver->connections[link].fd;
        bool events = link % HF_LINKS == HF_LINK_EVENTS;
        if (fd < 0 || (events && (driver->calling || !hf_client_has_kept_locks(driver->client))))
            continue;
        hf_slice output = hf_session_output(hf_client_link(driver->client, link));
        ORDER_CHECK(output.size == 0, "link %zu has output that nobody writes", link);
        ORDER_CHECK(!order_has_bytes(fd) || wakes <= order_now() + READ_LEFT_AFTER,
                    "link %zu has bytes that nobody reads", link);
    }
}

/* Nobody sleeps past what is due, no caller whose call is done, no watchdog that may end. */
static void check_sleepers(const caller *of) {
    const hf_driver *driver = of->driver;
    bool may_end = driver->stopping && hf_client_is_quiet(driver->client);
    ORDER_CHECK(!may_end, "the watchdog of %s sleeps though it may end", of->name);
    hf_time due = hf_client_next_tick(driver->client), wakes = order_sleeps_until(driver);
    if (driver->calling) wakes = hf_time_min(wakes, order_sleeps_until(of));
    ORDER_CHECK(wakes <= due, "%s sleeps past what is due", of->name);
    check_bytes(driver, wakes);
    for (const hf_op *op = ops_of(driver->client); op; op = next_op(op))
        ORDER_CHECK(!hf_op_is_done(op) || hf_op_is_detached(op),
                    "%s sleeps though its call is done", of->name);
}

static void check_quiet(hf_time next) {
    (void)next;
    for (size_t i = 0; i < CALLERS; i++) {
        const hf_driver *driver = callers[i].driver;
        if (!driver || driver->process != hf_process_number())
            continue; /* a fork that it has not seen */
        if (driver->running || driver->calling) check_sleepers(&callers[i]);
    }
}

/* ---- all orders ---- */

#define SCENES 16
#define BOTH 20000 /* this many orders of a scene include all with two departures */

#define MOST (120 * HF_SECOND) /* of the clock, in an order */

/* A sanitizer takes its time, and a fork copies what it has noted. */
#ifdef __SANITIZE_ADDRESS__
#define ORDERS 500
#define FORKS 1
#else
#define ORDERS 10000
#define FORKS 10
#endif

static uint64_t orders_to_run = ORDERS; /* of all scenes; with FORKS forks of each */
static const char *only_order, *only_fork;

static bool run_one(const order_scene *scene, const order_plan *plan) {
    long before = memerr_live();
    if (!order_run(scene, plan)) {
        check_failed = 1;
        return false;
    }
    long left = memerr_live() - before;
    if (left != 0)
        check_fail(__FILE__, __LINE__, "order %s leaves %ld allocations", order_text(plan), left);
    return left == 0;
}

/* Runs the plan, and the plan with each further departure. Returns false if one failed. */
static bool run_departures(const order_scene *scene, order_plan plan, size_t most, uint64_t *left) {
    uint8_t options[ORDER_CHOICES];
    uint32_t first = plan.count > 0 ? plan.turns[plan.count - 1].at + 1 : 0;
    if (*left == 0) return true;
    --*left;
    if (!run_one(scene, &plan)) return false;
    if (plan.count == most) return true;
    uint32_t choices = order_choices();
    for (uint32_t at = first; at < choices; at++) options[at] = (uint8_t)order_options(at);
    struct order_turn *turn = &plan.turns[plan.count++];
    for (turn->at = first; turn->at < choices; turn->at++) {
        for (turn->option = 1; turn->option < options[turn->at]; turn->option++)
            if (!run_departures(scene, plan, most, left)) return false;
    }
    return true;
}

static void explore(const order_scene *scene) {
    uint64_t left = orders_to_run / SCENES, departures = left * 2 / 3;
    left -= departures;
    if (!run_departures(scene, (order_plan){0}, left >= BOTH ? 2 : 1, &departures)) return;
    for (order_plan walk = {.seed = 1}; walk.seed <= left + departures; walk.seed++)
        if (!run_one(scene, &walk)) return;
}

/* In the child each client works with a new identity, and uses nothing of its parent's. */
static void *use_in_child(void *context) {
    caller *self = context;
    const char *key = self == callers ? "child A" : "child B";
    hf_driver *driver = self->driver;
    hf_code code = acquire(self, key, 0, LONG, RUNS);
    ORDER_CHECK(code == (driver->closed ? HF_CLOSED : HF_OK), "it gets %s", hf_code_name(code));
    if (code == HF_OK) CHECK_CODE(release(self, key, RUNS), HF_OK);
    self->driver = NULL;
    hf_driver_close(driver, HF_SECOND);
    return NULL;
}

static void play_child(void) {
    order_system_fork();
    order_net = (order_network){0};
    order_server_now.silent = false;
    for (size_t i = 0; i < CALLERS; i++) {
        caller *of = &callers[i];
        if (of->driver) order_join(order_start(of->name, use_in_child, of, false));
    }
    ORDER_CHECK(order_threads() == 1, "%zu threads are left", order_threads() - 1);
    ORDER_CHECK(order_descriptors() == 0, "%zu descriptors are left", order_descriptors());
}

static const order_scene CHILD = {"child", play_child, check_quiet, MOST};

/* Forks at steps all over an order, and in the check at each step of some. */
static void explore_forks(const order_scene *scene) {
    uint64_t walks = orders_to_run / 20000;
    for (uint64_t seed = 0; seed <= walks && !check_failed; seed++) {
        order_plan plan = {.seed = seed};
        order_fork_at(0, NULL);
        if (!run_one(scene, &plan)) return;
        uint32_t steps = order_steps(), stride = walks > 0 ? 1 : 1 + steps / FORKS;
        for (uint32_t at = 1; at <= steps && !check_failed; at += stride) {
            order_fork_at(at, &CHILD);
            run_one(scene, &plan);
        }
    }
    order_fork_at(0, NULL);
}

static void repeat(const order_scene *scene) {
    order_plan plan;
    CHECK(order_parse(&plan, only_order));
    order_print_steps(true);
    order_fork_at(only_fork ? (uint32_t)strtoul(only_fork, NULL, 10) : 0, &CHILD);
    run_one(scene, &plan);
}

/* A scene, which is two tests. */
#define SCENE(scene)                                                                               \
    static void play_##scene(void);                                                                \
    static const order_scene scene_##scene = {#scene, play_##scene, check_quiet, MOST};            \
    TEST(scene) {                                                                                  \
        if (only_order) repeat(&scene_##scene);                                                    \
        else explore(&scene_##scene);                                                              \
    }                                                                                              \
    TEST(forks_in_##scene) {                                                                       \
        if (!only_order) explore_forks(&scene_##scene);                                            \
    }                                                                                              \
    static void play_##scene(void)

/* ---- scenes ---- */

typedef void *thread_run(void *context);

static void begin_world(void) {
    static const hf_time DELAYS[] = {0, HF_MS, 5 * HF_MS, 20 * HF_MS};
    order_system_begin();
    memset(callers, 0, sizeof callers);
    order_server_start();
    order_server_now.delay = DELAYS[order_choose(4)];
}

/* Nothing is left: on the server, of threads and descriptors. */
static void end_world(void) {
    for (size_t i = 0; i < CALLERS; i++)
        if (callers[i].driver) close_client(&callers[i]);
    order_sleep("lets the others end", 10 * HF_SECOND);
    ORDER_CHECK(order_threads() == 1, "%zu threads are left", order_threads() - 1);
    ORDER_CHECK(order_descriptors() == 0, "%zu descriptors are left", order_descriptors());
    ORDER_CHECK(order_server_is_empty(), "the server has something left");
}

/* Runs these threads, and waits for their end. */
static void run_all(thread_run *const runs[], size_t count) {
    order_thread *threads[4];
    for (size_t i = 0; i < count; i++) {
        caller *of = i < CALLERS && callers[i].driver ? &callers[i] : NULL;
        threads[i] = order_start(of ? of->name : "other", runs[i], of, false);
        if (of) of->thread = threads[i];
    }
    for (size_t i = 0; i < count; i++) order_join(threads[i]);
}

#define RUN_ALL(...)                                                                               \
    run_all((thread_run *const[]){__VA_ARGS__},                                                    \
            sizeof((thread_run *const[]){__VA_ARGS__}) / sizeof(thread_run *))

static void open_clients(size_t count) {
    for (size_t i = 0; i < count; i++) open_client(&callers[i], "127.0.0.1");
}

/* A scene of this many clients: these threads run. */
#define SCENE_OF(scene, clients, ...)                                                              \
    SCENE(scene) {                                                                                 \
        begin_world();                                                                             \
        open_clients(clients);                                                                     \
        RUN_ALL(__VA_ARGS__);                                                                      \
        end_world();                                                                               \
    }

static void *use_lock(void *context) {
    caller *self = context;
    CHECK_CODE(acquire(self, K, LONG, LONG, RUNS), HF_OK);
    CHECK_CODE(release(self, K, RUNS), HF_OK);
    return NULL;
}

/* Two clients: the one that comes later gets the lock by a grant. */
SCENE_OF(hand_over, 2, use_lock, use_lock)

/* One client with two locks, of which one is released about when it is renewed. */
static void *hold_two(void *context) {
    caller *self = context;
    CHECK_CODE(acquire(self, K, 0, SHORT, RUNS), HF_OK);
    CHECK_CODE(acquire(self, OTHER, 0, SHORT, RUNS), HF_OK);
    CHECK_CODE(rest(self, SHORT / 3), HF_OK);
    CHECK_CODE(release(self, K, RUNS), HF_OK);
    CHECK_CODE(acquire(self, K, 0, SHORT, RUNS), HF_OK);
    CHECK_CODE(rest(self, 2 * SHORT), HF_OK);
    CHECK_CODE(release(self, OTHER, RUNS), HF_OK);
    CHECK_CODE(release(self, K, RUNS), HF_OK);
    return NULL;
}

SCENE_OF(renewals, 1, hold_two)

/* Releases that are not waited for, before an acquire and before the end. */
static void *send_releases(void *context) {
    caller *self = context;
    for (int i = 0; i < 2; i++) {
        CHECK_CODE(acquire(self, K, LONG, LONG, RUNS), HF_OK);
        CHECK_CODE(release(self, K, SENDS), HF_OK);
    }
    bool waits = order_choose(2) > 0;
    order_sleep("does something else", waits ? 100 * HF_MS : 0);
    ORDER_CHECK(!waits || !hf_client_has_detached(self->driver->client), "a reply is not read");
    return NULL;
}

SCENE_OF(releases_that_are_sent, 1, send_releases)

/* A lock that somebody else holds, until the scene gives it free. */
static order_lock *hold_elsewhere(const char *key) {
    order_lock *lock = order_server_lock(key);
    snprintf(lock->owner, sizeof lock->owner, "somebody");
    lock->until = HF_NEVER;
    return lock;
}

/* A wait that a signal ends, whether it is handled in a sleep or between two. */
static void *wait_for_signal(void *context) {
    caller *self = context;
    manner how = order_choose(2) == 0 ? RUNS_INTERRUPTIBLY : RUNS;
    CHECK_CODE(acquire(self, K, LONG, LONG, how), HF_INTERRUPTED);
    CHECK_CODE(acquire(self, OTHER, 0, LONG, RUNS), HF_OK);
    CHECK_CODE(release(self, OTHER, RUNS), HF_OK);
    return NULL;
}

static bool is_in_call(const void *what) {
    return ((const hf_driver *)what)->calling;
}

#define NOTICED (200 * HF_MS) /* a signal, until then; the call leaves the queue first */

static void signal_within(hf_time span) {
    const caller *waits = &callers[0];
    order_sleep("waits with the signal", order_choose(3) * 70 * HF_MS);
    hf_time until = order_now() + span;
    order_signal(waits->thread);
    while (waits->driver->calling && order_now() < until)
        order_sleep("looks whether it was noticed", 20 * HF_MS);
    ORDER_CHECK(order_now() < until, "the signal is not noticed");
}

static void *send_signal(void *context) {
    order_wait("waits with the signal", is_in_call, callers[0].driver, HF_NEVER);
    signal_within(NOTICED);
    return context;
}

static void wait_for_another(thread_run *waits, thread_run *signals) {
    begin_world();
    open_clients(1);
    order_lock *lock = hold_elsewhere(K);
    RUN_ALL(waits, signals);
    lock->owner[0] = '\0';
    end_world();
}

SCENE(a_signal) {
    wait_for_another(wait_for_signal, send_signal);
}

static bool is_queued(const void *what) {
    const hf_op *op = ops_of(((const hf_driver *)what)->client);
    return op && is_waiting(op);
}

/* A signal that comes just before a sleep does not end it, and in the queue nothing else does. */
static void *signal_in_queue(void *context) {
    order_wait("waits with the signal", is_queued, callers[0].driver, HF_NEVER);
    signal_within(HF_POLL_SLICE + 70 * HF_MS);
    return context;
}

static void *wait_for_that_signal(void *context) {
    CHECK_CODE(acquire(context, K, LONG, LONG, RUNS), HF_INTERRUPTED);
    return NULL;
}

SCENE(a_signal_to_a_queued_call) {
    wait_for_another(wait_for_that_signal, signal_in_queue);
}

/* A signal that comes just before a sleep does not end it, and a server that says nothing does not
 * either. */
static void *call_a_silent_server(void *context) {
    order_server_now.silent = true;
    hf_code code = acquire(context, K, 0, LONG, RUNS);
    ORDER_CHECK(code == HF_INTERRUPTED, "it gets %s", hf_code_name(code));
    order_server_now.silent = false;
    CHECK_CODE(acquire(context, OTHER, 0, LONG, RUNS), HF_OK);
    CHECK_CODE(release(context, OTHER, RUNS), HF_OK);
    return NULL;
}

static void *signal_soon(void *context) {
    order_wait("waits with the signal", is_in_call, callers[0].driver, HF_NEVER);
    signal_within(HF_POLL_SLICE + NOTICED);
    return context;
}

SCENE_OF(a_signal_to_a_call_without_a_reply, 1, call_a_silent_server, signal_soon)

static bool is_renewing(const void *what) {
    const hf_client *client = ((const hf_driver *)what)->client;
    return hold_count(client) > 0 && is_in_flight(hold_in_heap(holds_of(client), 0));
}

/* A call that waits for a renewal without a reply, which the signal does not interrupt. */
static void *enter_again(void *context) {
    caller *self = context;
    CHECK_CODE(acquire(self, K, 0, MIDDLE, RUNS), HF_OK);
    order_server_now.silent = true;
    order_wait("waits for the renewal", is_renewing, self->driver, HF_NEVER);
    hf_code code = acquire(self, K, LONG, MIDDLE, RUNS_INTERRUPTIBLY);
    ORDER_CHECK(code == HF_INTERRUPTED, "it gets %s", hf_code_name(code));
    order_server_now.silent = false;
    CHECK_CODE(release(self, K, RUNS), HF_OK);
    return NULL;
}

static bool waits_for_renewal(const void *what) {
    const hf_op *op = ops_of(((const hf_driver *)what)->client);
    return op && hf_op_is_blocked(op);
}

static void *signal_blocked(void *context) {
    order_wait("waits with the signal", waits_for_renewal, callers[0].driver, HF_NEVER);
    return send_signal(context);
}

SCENE_OF(a_signal_to_a_blocked_call, 1, enter_again, signal_blocked)

/* A release that waits for a renewal, which fails by its time. */
static void *release_blocked(void *context) {
    caller *self = context;
    CHECK_CODE(acquire(self, K, 0, MIDDLE, RUNS), HF_OK);
    order_server_now.silent = true;
    order_wait("waits for the renewal", is_renewing, self->driver, HF_NEVER);
    hf_code code = release(self, K, order_choose(2) == 0 ? RUNS : SENDS);
    ORDER_CHECK(code == HF_UNREACHABLE, "it gets %s", hf_code_name(code));
    order_server_now.silent = false;
    return NULL;
}

SCENE_OF(a_release_behind_a_renewal_that_fails, 1, release_blocked)

/* A wait whose end and whose grant come at about the same time. */
static void *wait_shortly(void *context) {
    caller *self = context;
    hf_code code = acquire(self, K, 150 * HF_MS, LONG, RUNS);
    ORDER_CHECK(code == HF_OK || code == HF_BUSY, "the wait ends with %s", hf_code_name(code));
    if (code == HF_OK) CHECK_CODE(release(self, K, RUNS), HF_OK);
    return NULL;
}

static void *hold_shortly(void *context) {
    caller *self = context;
    CHECK_CODE(acquire(self, K, LONG, LONG, RUNS), HF_OK);
    order_sleep("works", 150 * HF_MS);
    CHECK_CODE(release(self, K, order_choose(2) == 0 ? RUNS : SENDS), HF_OK);
    return NULL;
}

SCENE_OF(the_end_of_a_wait, 2, hold_shortly, wait_shortly)

/* An answer that comes when its call is over, and perhaps another one runs, or that never comes. */
static void *give_up_soon(void *context) {
    caller *self = context;
    hf_time delay = order_server_now.delay, late = order_choose(3);
    order_server_now.silent = late == 2;
    hf_code code = acquire(self, K, delay / 2, LONG, RUNS);
    order_sleep("does something else", late == 2 ? 1200 * HF_MS : late * delay / 2);
    order_server_now.silent = false;
    if (order_choose(2) > 0) order_server_now.delay = 0;
    if (code == HF_OK) CHECK_CODE(release(self, K, RUNS), HF_OK);
    CHECK_CODE(acquire(self, OTHER, LONG, LONG, RUNS), HF_OK);
    CHECK_CODE(release(self, OTHER, RUNS), HF_OK);
    return NULL;
}

SCENE_OF(a_late_answer, 1, give_up_soon)

/* A lock that the client keeps for its callers, and returns when that time has passed. */
static hf_code acquire_to_keep(caller *self, hf_time keep) {
    hf_op_spec spec = {
        .kind = HF_OP_ACQUIRE, .wait = LONG, .lease = LONG, .renewed = true, .keep = keep};
    return call_on(self, K, spec, RUNS);
}

static void *keep_it(void *context) {
    caller *self = context;
    hf_time keep = order_choose(2) == 0 ? HF_SECOND : HF_SECOND / 2;
    for (int i = 0; i < 2; i++) {
        CHECK_CODE(acquire_to_keep(self, keep), HF_OK);
        CHECK_CODE(release(self, K, order_choose(2) == 0 ? RUNS : SENDS), HF_OK);
        order_sleep("does something else", order_choose(2) * 600 * HF_MS);
    }
    order_sleep("lets the client return it", 2 * HF_SECOND);
    ORDER_CHECK(order_server_is_empty(), "it is not returned");
    return NULL;
}

SCENE_OF(a_kept_lock, 1, keep_it)

/* Another client wants the lock that is kept: it is returned as soon as nobody uses it. */
static void *keep_it_long(void *context) {
    caller *self = context;
    CHECK_CODE(acquire_to_keep(self, LONG), HF_OK);
    order_sleep("works", order_choose(2) * 50 * HF_MS);
    CHECK_CODE(release(self, K, RUNS), HF_OK);
    order_sleep("does something else", 5 * HF_SECOND);
    return NULL;
}

static void *want_it(void *context) {
    caller *self = context;
    hf_time begun_at = order_now();
    CHECK_CODE(acquire(self, K, LONG, LONG, RUNS), HF_OK);
    ORDER_CHECK(order_now() < begun_at + 5 * HF_SECOND, "the wish is noticed late");
    CHECK_CODE(release(self, K, RUNS), HF_OK);
    return NULL;
}

SCENE_OF(a_wish, 2, keep_it_long, want_it)

/* Somebody deletes the lock while its holder works or releases it: the one who finds it first
 * reports the loss, and the release does not take it for its own. */
static void *lose(void *context) {
    caller *self = context;
    bool deleted = false;
    CHECK_CODE(acquire(self, K, 0, SHORT, RUNS), HF_OK);
    rest(self, SHORT / 3);
    deleted = !order_server_is_held(order_server_lock(K));
    hf_code code = release(self, K, RUNS);
    ORDER_CHECK(code == HF_OK || code == HF_LOST, "the release ends with %s", hf_code_name(code));
    ORDER_CHECK(!deleted || code == HF_LOST, "the release of a lock that is gone is ok");
    return NULL;
}

static void *delete_it(void *context) {
    order_sleep("waits with its deletion", order_choose(3) * SHORT / 3);
    order_server_delete(K);
    return context;
}

SCENE_OF(a_loss, 1, lose, delete_it)

/* The watchdog stops and starts under a lock that is held. */
static void *stop_and_start(void *context) {
    caller *self = context;
    hf_driver *driver = self->driver;
    CHECK_CODE(acquire(self, K, 0, LONG, RUNS), HF_OK);
    for (int i = 0; i < 2; i++) {
        hf_driver_enter(driver);
        hf_driver_stop_watchdog(driver);
        ORDER_CHECK(!driver->running, "the watchdog runs though it was stopped");
        driver->watchdog_stopped = false;
        if (order_choose(2) == 0)
            ORDER_CHECK(hf_driver_start_watchdog(driver), "it does not start");
        hf_driver_leave(driver);
    }
    CHECK_CODE(release(self, K, order_choose(2) == 0 ? RUNS : SENDS), HF_OK);
    return NULL;
}

SCENE_OF(stops_and_starts, 1, stop_and_start)

/* The client is closed while it holds a lock, and while a release and perhaps a renewal are under
 * way. */
static void *hold_and_close(void *context) {
    caller *self = context;
    CHECK_CODE(acquire(self, K, 0, SHORT, RUNS), HF_OK);
    CHECK_CODE(acquire(self, OTHER, 0, SHORT, RUNS), HF_OK);
    order_sleep("works", order_choose(2) * SHORT / 3);
    CHECK_CODE(release(self, K, SENDS), HF_OK);
    hf_driver_close(self->driver, HF_SECOND);
    ORDER_CHECK(order_server_is_empty(), "the close leaves something on the server");
    CHECK_CODE(acquire(self, K, 0, SHORT, RUNS), HF_CLOSED);
    return NULL;
}

SCENE_OF(a_close, 1, hold_and_close)

/* The server closes one of the connections, at any moment. What was asked at the log-in fails, and
 * all else is sent again. */
static void *hang_up(void *context) {
    order_sleep("waits before it hangs up", order_choose(4) * 50 * HF_MS);
    order_server_hang_up();
    return context;
}

static void *use_again(void *context) {
    caller *self = context;
    hf_code code = acquire(self, K, 0, LONG, RUNS);
    while (code == HF_UNREACHABLE) code = acquire(self, K, LONG, LONG, RUNS);
    ORDER_CHECK(code == HF_OK, "it gets %s", hf_code_name(code));
    CHECK_CODE(rest(self, SHORT / 3), HF_OK);
    release(self, K, order_choose(2) == 0 ? RUNS : SENDS);
    return NULL;
}

SCENE_OF(a_broken_connection, 1, use_again, hang_up)

/* A name is found at about the time at which the dial gives up. */
static void *try_by_name(void *context) {
    caller *self = context;
    hf_code code = acquire(self, K, 0, LONG, RUNS);
    ORDER_CHECK(code == HF_OK || code == HF_UNREACHABLE, "it ends with %s", hf_code_name(code));
    if (code == HF_OK) CHECK_CODE(release(self, K, RUNS), HF_OK);
    return NULL;
}

SCENE(a_slow_name) {
    begin_world();
    open_client(&callers[0], "name.example");
    order_net.looks_up_in = order_choose(2) == 0 ? HF_SECOND : HF_SECOND / 2;
    order_net.connects_in = order_choose(2) * 5 * HF_MS;
    RUN_ALL(try_by_name);
    end_world();
}

/* ---- a mutex that is not fair ---- */

#define LOOKS 250

/* Locks the mutex again as soon as it has unlocked it, and sleeps while it has it. */
static void *look_on_and_on(void *context) {
    caller *self = context;
    CHECK_CODE(acquire(self, K, 0, SHORT, RUNS), HF_OK);
    order_be_selfish();
    for (int i = 0; i < LOOKS; i++) {
        hf_driver_enter(self->driver);
        order_sleep("is stopped while it looks", HF_MS);
        hf_driver_leave(self->driver);
    }
    ORDER_CHECK(order_server_lock(K)->renewed_at > 0, "the watchdog never gets the mutex");
    CHECK_CODE(release(self, K, RUNS), HF_OK);
    return NULL;
}

static void play_looks(void) {
    begin_world();
    open_client(&callers[0], "127.0.0.1");
    RUN_ALL(look_on_and_on);
    end_world();
}

TEST(a_caller_that_polls_constantly_does_not_starve_the_watchdog) {
    static const order_scene scene = {"a_caller_that_looks", play_looks, NULL, MOST};
    for (order_plan plan = {0}; plan.seed < 10 && !check_failed; plan.seed++)
        run_one(&scene, &plan);
}

int main(int argc, char **argv) {
    const char *orders = getenv("HOLDFAST_ORDERS");
    if (orders) orders_to_run = strtoull(orders, NULL, 10);
    bool possible = order_is_possible() && orders_to_run > 0;
    if (!possible) return puts("ok 1 - there are no fibers here") < 0;
    only_order = argc > 2 ? argv[2] : NULL;
    only_fork = argc > 3 ? argv[3] : NULL;
    return check_run(argc > 1 ? argv[1] : NULL);
}
