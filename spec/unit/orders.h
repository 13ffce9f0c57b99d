/*
 * Threads that run one at a time, in an order that is chosen. They are fibers of one thread; the
 * mutexes, conditions, sleeps, sockets and the clock of the driver are replaced at link time
 * (orders_system.c).
 *
 * A thread gives up its turn at each step: before it locks a mutex, after it has unlocked one,
 * where it sleeps or wakes another one. The plan of the order says which thread goes on then. The
 * clock stands still while one can, and then jumps to the first time that any of them waits for.
 */
#ifndef ORDERS_H
#define ORDERS_H

#include "base/types.h"

/* ---- which order ---- */

#define ORDER_TURNS 2

/* With a seed: a random walk. Without: each thread goes on for as long as it can, but in choice
 * number `at`, counted from 0, option `option` is taken, not option 0. */
typedef struct order_plan {
    uint64_t seed;
    size_t count; /* of the turns */
    struct order_turn {
        uint32_t at, option;
    } turns[ORDER_TURNS];
} order_plan;

/* Writes a plan as "r17", "12:1,40:2" or "-"; the text lives until the next call. */
const char *order_text(const order_plan *plan);
/* Returns false, and the plan is undefined, if the text is none of these. */
bool order_parse(order_plan *plan, const char *text);

/* ---- running one ---- */

/* Returns false where the C library has no fibers. */
bool order_is_possible(void);

typedef struct order_scene {
    const char *name;
    void (*first)(void);         /* the first thread */
    void (*quiet)(hf_time next); /* checks the world when nobody can go on before `next` */
    hf_time most;                /* of the clock, from the start to the end */
} order_scene;

/* Runs the first thread and all that it starts to their end. Returns whether nothing failed; else
 * it has printed why, the plan, and the steps. */
bool order_run(const order_scene *scene, const order_plan *plan);

/* The last order: its choices, of which no more than these count, the options of each, and its
 * steps. */
#define ORDER_CHOICES 1024
uint32_t order_choices(void);
uint32_t order_options(uint32_t choice);
uint32_t order_steps(void);

/* From now on order_run forks at this step, if there are so many, and the child runs `child` with
 * none of the threads; 0: it does not. A child that fails fails the order. */
void order_fork_at(uint32_t step, const order_scene *child);
bool order_is_child(void);

/* Whether the steps of orders that do not fail are printed too. */
void order_print_steps(bool print);

/* ---- for threads ---- */

typedef struct order_thread order_thread;

/* Starts a thread; the order does not wait for the end of one that `serves`. */
order_thread *order_start(const char *name, void *(*run)(void *), void *context, bool serves);
void order_join(order_thread *thread); /* waits for its end */
void order_detach(order_thread *thread);
size_t order_threads(void); /* that do not serve and have not ended, or were not joined */

order_thread *order_current(void);

/* Another thread may go on first. `step` is text for the trace; it must live on. */
void order_step(const char *step);

void order_note(const char *text); /* for the trace alone */

typedef bool order_ready(const void *what);

/* Sleeps until `ready`, or `until`. Returns whether it is ready. */
bool order_wait(const char *step, order_ready *ready, const void *what, hf_time until);
void order_sleep(const char *step, hf_time span);

/* From now on the thread goes on whenever it can: others have their turns while it sleeps. */
void order_be_selfish(void);

/* Returns 0 … count - 1, as the plan says; without a seed 0 except for the turns. */
uint32_t order_choose(uint32_t count);

/* Ends the order, which has failed. */
_Noreturn void order_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define ORDER_CHECK(condition, ...)                                                                \
    do {                                                                                           \
        if (!(condition)) order_fail(__VA_ARGS__);                                                 \
    } while (0)

hf_time order_now(void);
void order_pass(hf_time span); /* time goes by while this thread runs */

/* Returns until when the threads with this context sleep, the first of them; HF_NEVER: none does.
 */
hf_time order_sleeps_until(const void *context);

/* ---- signals ---- */

/* Its handler runs at once, or when the thread lets signals in. */
void order_signal(order_thread *thread);
unsigned order_handled(const order_thread *thread); /* how often the handler has run */

bool order_holds_signals(void); /* this thread */
void order_hold_signals(bool hold);

/* Around a sleep that a signal ends; `holds`: whether signals are held meanwhile. The last one
 * returns whether a signal ended it. */
void order_begin_sleep(void);
bool order_is_interrupted(const order_thread *thread, bool holds);
bool order_end_sleep(bool holds);

#endif
