/* Threads that run one at a time, in a chosen order. They are fibers of one thread; the driver's
 * mutexes, conditions, sleeps, sockets and clock are replaced at link time (orders_system.c).
 *
 * A thread gives up its turn at each step: before it locks a mutex, after it has unlocked one, and
 * where it sleeps or wakes another one. The plan of the order says which thread runs next. The
 * clock stands still while any thread can run, and then jumps to the first time that a thread waits
 * for. */
#ifndef ORDERS_H
#define ORDERS_H

#include "base/types.h"

/* ---- which order ---- */

#define ORDER_TURNS 2

/* With a seed, the order is a random walk. Without, each thread runs for as long as it can, except
 * that choice number `at`, counted from 0, takes option `option` instead of 0. */
typedef struct order_plan {
    uint64_t seed;
    size_t count; /* how many turns are used */
    struct order_turn {
        uint32_t at, option;
    } turns[ORDER_TURNS];
} order_plan;

/* Writes a plan as "r17", "12:1,40:2" or "-"; the string lives until the next call. */
const char *order_text(const order_plan *plan);
/* Returns false, and leaves the plan undefined, if the string is not a plan. */
bool order_parse(order_plan *plan, const char *text);

/* ---- running one ---- */

/* Returns false where the C library has no fibers. */
bool order_is_possible(void);

typedef struct order_scene {
    const char *name;
    void (*first)(void);         /* the first thread */
    void (*quiet)(hf_time next); /* checks the state when no thread can run before `next` */
    hf_time most;                /* how much time may pass on the clock */
} order_scene;

/* Runs the first thread and all that it starts to their end. Returns whether nothing failed;
 * otherwise it has printed the reason, the plan and the steps. */
bool order_run(const order_scene *scene, const order_plan *plan);

/* About the last order: the number of its choices, of which only the first ORDER_CHOICES are
 * recorded; the options of each; and the number of its steps. */
#define ORDER_CHOICES 1024
uint32_t order_choices(void);
uint32_t order_options(uint32_t choice);
uint32_t order_steps(void);

/* From now on order_run forks at this step, if there are that many, and the child runs `child`
 * without any of the threads; 0: no fork. If the child fails, so does the order. */
void order_fork_at(uint32_t step, const order_scene *child);
bool order_is_child(void);

/* Sets whether the steps of orders that do not fail are printed, too. */
void order_print_steps(bool print);

/* ---- for threads ---- */

typedef struct order_thread order_thread;

/* Starts a thread; the order does not wait for the end of one that `serves`. */
order_thread *order_start(const char *name, void *(*run)(void *), void *context, bool serves);
void order_join(order_thread *thread); /* waits for its end */
void order_detach(order_thread *thread);
size_t order_threads(void); /* those that do not serve and have not ended or been joined */

order_thread *order_current(void);

/* Lets another thread run first. `step` is a string for the trace; it must stay alive. */
void order_step(const char *step);

void order_note(const char *text); /* only for the trace */

typedef bool order_ready(const void *what);

/* Sleeps until `ready` returns true or it is `until`. Returns whether it is ready. */
bool order_wait(const char *step, order_ready *ready, const void *what, hf_time until);
void order_sleep(const char *step, hf_time span);

/* From now on the thread runs whenever it can: others have their turns while it sleeps. */
void order_be_selfish(void);

/* Returns 0 … count - 1, as the plan says: without a seed 0, except for the turns. */
uint32_t order_choose(uint32_t count);

/* Ends the order, which has failed. */
_Noreturn void order_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define ORDER_CHECK(condition, ...) ((condition) ? (void)0 : order_fail(__VA_ARGS__))

hf_time order_now(void);
void order_pass(hf_time span); /* lets time pass while this thread runs */

/* Returns the earliest time until which a thread with this context sleeps, or HF_NEVER. */
hf_time order_sleeps_until(const void *context);

/* ---- signals ---- */

/* Sends the thread a signal: its handler runs at once, or when the thread lets signals in. */
void order_signal(order_thread *thread);
unsigned order_handled(const order_thread *thread); /* how often the handler has run */

bool order_holds_signals(void); /* this thread */
void order_hold_signals(bool hold);

/* For use around a sleep that a signal ends. `holds`: signals are held outside the sleep.
 * order_end_sleep returns whether a signal ended it. */
void order_begin_sleep(void);
bool order_is_interrupted(const order_thread *thread, bool holds);
bool order_end_sleep(bool holds);

#endif
