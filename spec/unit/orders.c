#include "orders.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define MAX_THREADS 12
#define MAX_STEPS 1000000 /* an order with more has no end */
#define KEPT_STEPS 8192   /* the last ones, for the trace */
#define MAX_PRINTED 400   /* of these; an order that is repeated prints all */
#define START (1000 * HF_SECOND)

#define STACK_SIZE ((size_t)256 << 10)

#ifdef __GLIBC__
bool order_is_possible(void) {
    return true;
}
#else
/* musl declares these, and has none of them. */
int getcontext(ucontext_t *context) {
    (void)context;
    abort();
}

int setcontext(const ucontext_t *context) {
    (void)context;
    abort();
}

void makecontext(ucontext_t *context, void (*run)(void), int count, ...) {
    (void)context;
    (void)run;
    (void)count;
    abort();
}

int swapcontext(ucontext_t *from, const ucontext_t *to) {
    (void)from;
    (void)to;
    abort();
}

bool order_is_possible(void) {
    return false;
}
#endif

struct order_thread {
    ucontext_t fiber;
    const char *name;
    void *(*run)(void *);
    void *context;
    bool used, serves, ended, detached, selfish;
    const char *step; /* before which it waits for its turn */
    order_ready *ready;
    const void *what;
    hf_time until;
    bool of_parent; /* in the child of a fork: it is not there */
    bool holds_signals, pending, interrupted;
    unsigned handled;
};

typedef struct step {
    const char *thread, *text;
    hf_time at;
} step;

static struct order {
    const order_scene *scene;
    order_plan plan;
    order_thread threads[MAX_THREADS], *current;
    ucontext_t outside;
    hf_time now;
    uint64_t random;
    uint32_t
        loyalty; /* a random walk leaves the running thread at one choice in this many; 0: at any */
    uint32_t choices, steps, first_step;
    uint8_t options[ORDER_CHOICES];
    step trace[KEPT_STEPS]; /* a ring */
    bool failed;
} order;

static char stacks[MAX_THREADS][STACK_SIZE] __attribute__((aligned(64)));
static bool prints_steps, is_child, has_forked;
static uint32_t fork_step;
static const order_scene *fork_scene;

/* ---- plans ---- */

const char *order_text(const order_plan *plan) {
    static char text[64];
    snprintf(text, sizeof text, "-");
    if (plan->seed) snprintf(text, sizeof text, "r%llu", (unsigned long long)plan->seed);
    for (size_t i = 0, size = 0; i < plan->count; i++) {
        int wrote = snprintf(text + size, sizeof text - size, "%s%u:%u", i > 0 ? "," : "",
                             plan->turns[i].at, plan->turns[i].option);
        size += (size_t)wrote;
    }
    return text;
}

bool order_parse(order_plan *plan, const char *text) {
    int read = 0;
    *plan = (order_plan){0};
    if (strcmp(text, "-") == 0) return true;
    if (text[0] == 'r') return (plan->seed = strtoull(text + 1, NULL, 10)) > 0;
    while (plan->count < ORDER_TURNS) {
        struct order_turn *turn = &plan->turns[plan->count++];
        if (sscanf(text, "%u:%u%n", &turn->at, &turn->option, &read) != 2) return false;
        text += read;
        if (*text++ != ',') return text[-1] == '\0';
    }
    return false;
}

static uint32_t draw(uint32_t count) {
    order.random ^= order.random << 13;
    order.random ^= order.random >> 7;
    order.random ^= order.random << 17;
    return (uint32_t)(order.random >> 33) % count;
}

static uint32_t planned(uint32_t choice, uint32_t count) {
    for (size_t i = 0; i < order.plan.count; i++) {
        if (order.plan.turns[i].at == choice) return order.plan.turns[i].option % count;
    }
    return 0;
}

/* Counts the choice. Where there is one option there is none. */
static uint32_t note_choice(uint32_t count) {
    if (order.choices < ORDER_CHOICES) order.options[order.choices] = (uint8_t)count;
    return order.choices++;
}

uint32_t order_choose(uint32_t count) {
    if (count < 2) return 0;
    uint32_t choice = note_choice(count);
    return order.plan.seed ? draw(count) : planned(choice, count);
}

/* Which of the threads that can go on does. The first one is the one that runs, if it is among
 * them. */
static uint32_t choose_thread(const order_thread *first, uint32_t count) {
    if (count < 2 || (first == order.current && first->selfish)) return 0;
    uint32_t choice = note_choice(count);
    if (!order.plan.seed) return planned(choice, count);
    return order.loyalty > 0 && draw(order.loyalty) > 0 ? 0 : draw(count);
}

uint32_t order_choices(void) {
    return order.choices < ORDER_CHOICES ? order.choices : ORDER_CHOICES;
}

uint32_t order_options(uint32_t choice) {
    return order.options[choice];
}

uint32_t order_steps(void) {
    return order.steps;
}

/* ---- what is printed ---- */

void order_print_steps(bool print) {
    prints_steps = print;
}

static void print_steps(void) {
    uint32_t most = prints_steps ? KEPT_STEPS : MAX_PRINTED;
    for (uint32_t i = order.steps > most ? order.steps - most : 0; i < order.steps; i++) {
        const step *at = &order.trace[i % KEPT_STEPS];
        printf("# %4u %10.3f ms  %-10s %s\n", i + 1, (double)(at->at - START) / 1e6, at->thread,
               at->text);
    }
}

static void print_failure(const char *format, va_list arguments) {
    printf("# %s, order %s, step %u%s: ", order.scene->name, order_text(&order.plan), order.steps,
           is_child ? ", the child of a fork" : "");
    vprintf(format, arguments);
    printf("\n# to repeat it: test_orders %s %s", order.scene->name, order_text(&order.plan));
    if (fork_step > 0) printf(" %u", fork_step);
    putchar('\n');
    print_steps();
    fflush(stdout);
}

/* For what ends the program: an assertion, a sanitizer. */
static void print_place(void) {
    if (!order.current) return;
    printf("# in %s, order %s, fork at %u:\n", order.scene->name, order_text(&order.plan),
           fork_step);
    print_steps();
    fflush(stdout);
}

static void on_abort(int number) {
    print_place();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_for_aborts(void) {
    static bool watched;
    if (watched) return;
    watched = true;
    signal(SIGABRT, on_abort);
#ifdef __SANITIZE_ADDRESS__
    __asan_set_death_callback(print_place);
#endif
}

/* ---- stacks ---- */

/* The sanitizer must know each change of the stack. It keeps little of what was freed: a fork
 * would copy that. Locals stay on the stacks of the threads: what newer compilers put beside them
 * is gone with the first change. */
#ifdef __SANITIZE_ADDRESS__
/* Visible: the sanitizer's library looks for it. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);

const char *__asan_default_options(void) {
    return "quarantine_size_mb=4:detect_stack_use_after_return=0";
}

static const void *outside_stack;
static size_t outside_size;

static void before_switch(const order_thread *to) {
    const void *stack = to ? to->fiber.uc_stack.ss_sp : outside_stack;
    __sanitizer_start_switch_fiber(NULL, stack, to ? STACK_SIZE : outside_size);
}

static void after_switch(bool from_outside) {
    __sanitizer_finish_switch_fiber(NULL, from_outside ? &outside_stack : NULL,
                                    from_outside ? &outside_size : NULL);
}

/* Those of a thread that has not returned from them. */
static void forget_frames(char *stack) {
    __asan_unpoison_memory_region(stack, STACK_SIZE);
}
#else
static void before_switch(const order_thread *to) {
    (void)to;
}

static void after_switch(bool from_outside) {
    (void)from_outside;
}

static void forget_frames(char *stack) {
    (void)stack;
}
#endif

/* ---- turns ---- */

static void leave_order(void) {
    order.current = NULL;
    before_switch(NULL);
    setcontext(&order.outside);
    abort();
}

void order_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_failure(format, arguments);
    va_end(arguments);
    order.failed = true;
    leave_order();
    abort();
}

static bool is_ready(const order_thread *thread) {
    return !thread->ready || thread->until <= order.now || thread->ready(thread->what);
}

/* Those that can go on, from the one that runs. */
static uint32_t list_ready(order_thread *ready[MAX_THREADS]) {
    uint32_t count = 0;
    size_t first = order.current ? (size_t)(order.current - order.threads) : 0;
    for (size_t i = 0; i < MAX_THREADS; i++) {
        order_thread *thread = &order.threads[(first + i) % MAX_THREADS];
        if (thread->used && !thread->ended && is_ready(thread)) ready[count++] = thread;
    }
    return count;
}

static bool is_over(void) {
    for (size_t i = 0; i < MAX_THREADS; i++) {
        const order_thread *thread = &order.threads[i];
        if (thread->used && !thread->ended && !thread->serves) return false;
    }
    return true;
}

static hf_time next_time(void) {
    hf_time next = HF_NEVER;
    for (size_t i = 0; i < MAX_THREADS; i++) {
        const order_thread *thread = &order.threads[i];
        if (thread->used && !thread->ended) next = hf_time_min(next, thread->until);
    }
    return next;
}

static void let_time_pass(void) {
    hf_time next = next_time();
    ORDER_CHECK(next != HF_NEVER, "nobody can go on");
    if (order.scene->quiet) order.scene->quiet(next);
    ORDER_CHECK(next <= START + order.scene->most, "it takes longer than %llu ms",
                (unsigned long long)(order.scene->most / HF_MS));
    order.now = next;
}

static void fork_here(void);

/* The child goes on with the threads that serve, so it cannot begin on the stack of one. */
static bool must_fork(void) {
    bool due = fork_step > 0 && order.steps + 1 >= fork_step;
    return due && !has_forked && !order.current->serves;
}

static void note(const order_thread *thread, const char *text) {
    ORDER_CHECK(order.steps < MAX_STEPS, "it has no end");
    order.trace[order.steps++ % KEPT_STEPS] = (step){thread->name, text, order.now};
}

void order_note(const char *text) {
    note(order.current, text);
}

static void go_on(void) {
    order_thread *ready[MAX_THREADS], *from = order.current;
    uint32_t count;
    if (is_over()) leave_order();
    while ((count = list_ready(ready)) == 0) let_time_pass();
    order_thread *next = ready[choose_thread(ready[0], count)];
    note(next, next->step);
    order.current = next;
    if (next == from) return;
    before_switch(next);
    swapcontext(&from->fiber, &next->fiber);
    after_switch(false);
}

bool order_wait(const char *text, order_ready *ready, const void *what, hf_time until) {
    order_thread *self = order.current;
    if (must_fork()) fork_here();
    self->step = text;
    self->ready = ready;
    self->what = what;
    self->until = until;
    go_on();
    self->ready = NULL;
    self->until = HF_NEVER;
    return !ready || ready(what);
}

void order_step(const char *text) {
    order_wait(text, NULL, NULL, HF_NEVER);
}

void order_be_selfish(void) {
    order.current->selfish = true;
}

static bool never(const void *what) {
    (void)what;
    return false;
}

void order_sleep(const char *text, hf_time span) {
    order_wait(text, never, NULL, order.now + span);
}

hf_time order_now(void) {
    return order.now;
}

void order_pass(hf_time span) {
    order.now += span;
}

hf_time order_sleeps_until(const void *context) {
    hf_time until = HF_NEVER;
    for (size_t i = 0; i < MAX_THREADS; i++) {
        const order_thread *thread = &order.threads[i];
        bool sleeps = thread->used && !thread->ended && thread->ready;
        if (sleeps && thread->context == context) until = hf_time_min(until, thread->until);
    }
    return until;
}

/* ---- threads ---- */

static void run_thread(void) {
    order_thread *self = order.current;
    after_switch(order.steps == order.first_step);
    self->run(self->context);
    self->ended = true;
    if (self->detached) self->used = false;
    go_on();
}

static order_thread *free_thread(void) {
    for (size_t i = 0; i < MAX_THREADS; i++) {
        if (!order.threads[i].used) return &order.threads[i];
    }
    order_fail("it has more than %d threads", MAX_THREADS);
}

order_thread *order_start(const char *name, void *(*run)(void *), void *context, bool serves) {
    order_thread *thread = free_thread();
    *thread = (order_thread){.name = name,
                             .run = run,
                             .context = context,
                             .used = true,
                             .serves = serves,
                             .step = "starts",
                             .until = HF_NEVER};
    char *stack = stacks[thread - order.threads];
    forget_frames(stack);
    getcontext(&thread->fiber);
    thread->fiber.uc_stack.ss_sp = stack;
    thread->fiber.uc_stack.ss_size = STACK_SIZE;
    makecontext(&thread->fiber, run_thread, 0);
    return thread;
}

static bool has_ended(const void *what) {
    return ((const order_thread *)what)->ended;
}

void order_join(order_thread *thread) {
    ORDER_CHECK(thread->used && !thread->detached && !thread->of_parent,
                "it joins a thread that is not there");
    order_wait("joins a thread", has_ended, thread, HF_NEVER);
    thread->used = false;
}

void order_detach(order_thread *thread) {
    thread->detached = true;
    if (thread->ended) thread->used = false;
}

size_t order_threads(void) {
    size_t count = 0;
    for (size_t i = 0; i < MAX_THREADS; i++) {
        const order_thread *thread = &order.threads[i];
        count += thread->used && !thread->serves && !thread->of_parent;
    }
    return count;
}

order_thread *order_current(void) {
    return order.current;
}

/* ---- signals ---- */

void order_signal(order_thread *thread) {
    if (thread->holds_signals) {
        thread->pending = true;
        return;
    }
    thread->handled++;
    thread->interrupted = true;
}

unsigned order_handled(const order_thread *thread) {
    return thread->handled;
}

bool order_holds_signals(void) {
    return order.current->holds_signals;
}

static void let_in(order_thread *self) {
    if (self->pending) self->handled++;
    self->interrupted = self->interrupted || self->pending;
    self->pending = false;
}

void order_hold_signals(bool hold) {
    order.current->holds_signals = hold;
    if (!hold) let_in(order.current);
}

void order_begin_sleep(void) {
    order.current->interrupted = false;
}

bool order_is_interrupted(const order_thread *thread, bool holds) {
    return thread->interrupted || (thread->pending && !holds);
}

bool order_end_sleep(bool holds) {
    if (!holds) let_in(order.current);
    return order.current->interrupted;
}

/* ---- an order ---- */

static void *run_first(void *context) {
    (void)context;
    order.scene->first();
    return NULL;
}

/* Runs the scene with the threads that are there, and a first one. */
static bool run_scene(const order_scene *scene) {
    volatile bool began = false;
    order.scene = scene;
    getcontext(&order.outside);
    if (!began) {
        began = true;
        order.current = order_start("first", run_first, NULL, false);
        order.first_step = order.steps;
        before_switch(order.current);
        setcontext(&order.current->fiber);
    }
    after_switch(false);
    return !order.failed;
}

bool order_run(const order_scene *scene, const order_plan *plan) {
    watch_for_aborts();
    memset(order.threads, 0, sizeof order.threads);
    order.plan = *plan;
    order.now = START;
    order.random = plan->seed * 0x9E3779B97F4A7C15u;
    order.loyalty = plan->seed ? (uint32_t[]){0, 2, 8, 30}[draw(4)] : 0;
    order.choices = order.steps = 0;
    order.failed = has_forked = false;
    bool good = run_scene(scene);
    if (good && prints_steps) print_steps();
    fflush(stdout);
    return good;
}

/* ---- a fork ---- */

void order_fork_at(uint32_t at, const order_scene *child) {
    fork_step = at;
    fork_scene = child;
}

bool order_is_child(void) {
    return is_child;
}

/* The child has the memory of all threads, and runs none of them. It ends well by KILL, so that no
 * checker looks for what it has left of its parent's memory. */
static void run_child(void) {
    is_child = true;
    order.scene = fork_scene;
    for (size_t i = 0; i < MAX_THREADS; i++) {
        order_thread *thread = &order.threads[i];
        if (thread->used && !thread->serves) thread->ended = thread->of_parent = true;
    }
    if (!run_scene(fork_scene)) _exit(1);
    raise(SIGKILL);
}

static void fork_here(void) {
    int status = 0;
    has_forked = true;
    pid_t child = fork();
    if (child == 0) run_child();
    waitpid(child, &status, 0);
    bool good = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    ORDER_CHECK(good, "the child of the fork failed");
}
