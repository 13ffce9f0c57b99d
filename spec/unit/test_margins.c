/*
 * What must happen before a lease ends, by a clock that the test moves: renewals come in time, a
 * loss is known before the server can give the lock to others, and until then the client tries to
 * renew it. The driver and the core run as they are, in the world of orders.h, with leases from
 * 100 ms to an hour; HOLDFAST_MARGINS of each kind, 15 if not set.
 */
#include "orders_client.h"

#define HOUR (3600 * HF_SECOND)

/* ---- what is drawn ---- */

/* What becomes of the network, from `out_at` on. */
typedef enum outage { LOSES_ALL, REFUSES_ALL, OUTAGES } outage;

static const char *const OUTAGE_NAMES[OUTAGES] = {"all is lost", "connections end"};

static struct draw {
    hf_time lease, delay;
    hf_time out_at; /* after the acquire was begun */
    outage outage;
} drawn;

static uint64_t random_state;

static hf_time below(hf_time most) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return most > 0 ? (random_state >> 11) % most : 0;
}

/* About as many of each order of magnitude. */
static hf_time draw_lease(hf_time least) {
    hf_time lease = least;
    while (lease < HOUR && below(4) > 0) lease *= 3;
    lease += below(2 * lease);
    return hf_time_min(lease - lease % HF_MS, HOUR);
}

static const char *drawn_text(void) {
    static char text[128];
    snprintf(text, sizeof text, "lease %.0f ms, delay %.1f ms, from %.1f ms on %s",
             (double)drawn.lease / 1e6, (double)drawn.delay / 1e6, (double)drawn.out_at / 1e6,
             OUTAGE_NAMES[drawn.outage]);
    return text;
}

/* ---- one lock ---- */

static hf_time begun_at;
static hf_hold *held;

#define MARGIN(condition, what)                                                                    \
    ORDER_CHECK(condition, "%s: %s, at %.3f ms; the server's lease ends at %.3f ms", drawn_text(), \
                what, (double)(order_now() - begun_at) / 1e6,                                      \
                (double)(order_server_lock(K)->until - begun_at) / 1e6)

#define EXACT HF_MS /* a time that is no later than this is the one that was meant */

static void *take_it(void *context) {
    hf_code code = acquire(context, K, 0, drawn.lease, RUNS);
    ORDER_CHECK(code == HF_OK, "it gets %s", hf_code_name(code));
    return NULL;
}

/* A server whose clock is as fast as it may be, and a client with the lock. */
static void begin_world(void) {
    caller *holder = &callers[0];
    order_system_begin();
    memset(callers, 0, sizeof callers);
    order_server_start();
    order_server_now.fast = true;
    order_server_now.delay = drawn.delay;
    open_client(holder, "127.0.0.1");
    begun_at = order_now();
    order_join(order_start("A", take_it, holder, false));
    held = hold_in_heap(holds_of(holder->driver->client), 0);
    hf_hold_ref(held);
}

static void end_world(void) {
    hf_hold_unref(held);
    close_client(&callers[0]);
}

static void sleep_until(hf_time at) {
    if (at > order_now()) order_sleep("lets time pass", at - order_now());
}

static void go_out(void) {
    order_net.loses = true;
    if (drawn.outage != REFUSES_ALL) return;
    order_net.connects_in = HF_NEVER;
    for (int link = 0; link < HF_LINKS; link++) order_server_hang_up();
}

static void come_back(void) {
    order_net.loses = false;
    order_net.connects_in = 0;
}

static bool is_held_no_longer(const void *what) {
    return !is_held((const hf_hold *)what);
}

/* ---- what is tested ---- */

static uint64_t draws = 15;

static void run_draws(const order_scene *scene, hf_time least, hf_time (*draw_out_at)(void)) {
    for (uint64_t seed = 1; seed <= draws && !check_failed; seed++) {
        random_state = seed * 0x9E3779B97F4A7C15u;
        drawn.lease = draw_lease(least);
        drawn.delay = below(hf_time_min(drawn.lease / 50, 100 * HF_MS));
        drawn.outage = (outage)below(OUTAGES);
        drawn.out_at = draw_out_at();
        if (!order_run(scene, &(order_plan){.seed = seed})) check_failed = 1;
    }
}

/* While it can, the client renews the lock when a third of its lease is over. */
static void check_last_renewal(const order_lock *lock) {
    hf_time last = hf_time_max(lock->renewed_at, begun_at), now = begun_at + drawn.out_at;
    MARGIN(now <= last + drawn.lease / 3 + 4 * drawn.delay + EXACT, "it was not renewed in time");
}

/* A try that fails, and the pause behind it. */
static hf_time longest_try(void) {
    return callers[0].driver->config.session.connect_timeout + HF_SECOND + EXACT;
}

static void play_loss(void) {
    begin_world();
    const order_lock *lock = order_server_lock(K);
    sleep_until(begun_at + drawn.out_at);
    check_last_renewal(lock);
    go_out();
    order_wait("waits for the loss", is_held_no_longer, held, HF_NEVER);
    MARGIN(order_now() <= lock->until, "the loss is known behind the lease");
    MARGIN(order_now() >= ends_at(held), "the loss is known before the end");
    MARGIN(order_now() <= ends_at(held) + EXACT, "the loss is known late");
    MARGIN(reason_of(held) == HF_LOST_UNREACHABLE, "the reason of the loss is another one");
    MARGIN(order_now() <= order_net.tried_at + longest_try(), "the last try was too early");
    come_back();
    end_world();
}

static hf_time out_at_any_time(void) {
    return drawn.lease / 20 + below(2 * drawn.lease);
}

TEST(a_holder_learns_of_a_loss_before_another_owner_can_get_the_lock) {
    static const order_scene scene = {"a_loss", play_loss, NULL, HF_NEVER / 2};
    run_draws(&scene, 100 * HF_MS, out_at_any_time);
}

static void play_outage(void) {
    begin_world();
    sleep_until(begun_at + drawn.out_at);
    go_out();
    sleep_until(ends_at(held) - drawn.lease / 2);
    come_back();
    hf_time back_at = order_now();
    /* one more pause: the try may be another command's, and a renewal end while it waits for it */
    sleep_until(back_at + longest_try() + HF_SECOND + 4 * drawn.delay);
    MARGIN(order_server_lock(K)->renewed_at >= back_at, "it is not renewed soon");
    sleep_until(begun_at + 2 * drawn.lease);
    MARGIN(!is_held_no_longer(held), "it is lost");
    end_world();
}

static hf_time out_before_the_first_renewal(void) {
    return drawn.lease / 20 + below(drawn.lease / 4);
}

/* With a shorter lease one connection that cannot be made may take all of the time. */
TEST(no_lock_is_lost_in_an_outage_that_ends_while_half_of_the_lease_is_left) {
    static const order_scene scene = {"an_outage", play_outage, NULL, HF_NEVER / 2};
    run_draws(&scene, 5 * HF_SECOND, out_before_the_first_renewal);
}

int main(int argc, char **argv) {
    if (!order_is_possible()) return puts("ok 1 - there are no fibers here") < 0;
    const char *count = getenv("HOLDFAST_MARGINS");
    if (count) draws = strtoull(count, NULL, 10);
    return check_run(argc > 1 ? argv[1] : NULL);
}
