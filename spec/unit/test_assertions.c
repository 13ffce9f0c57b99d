/*
 * The assertions of the core are on in this build: a broken invariant is reported at its line.
 */
#ifdef NDEBUG
#include <stdio.h>

int main(void) {
    puts("1..0 # skip this build has no assertions");
    return 0;
}
#else
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lock/holds.h"

#include "drive.h"

static hf_holds holds; /* those of the process that breaks a rule */

static hf_hold *new_hold(const char *key) {
    hf_hold *hold = hf_holds_add(&holds, &hf_kind_lock, hf_slice_of(key), hf_slice_of("me"),
                                 hf_slice_of("owner"));
    if (!hold) _exit(2);
    return hold;
}

/* Returns a held hold that ends at 100, and needs attention at `wake`. */
static hf_hold *new_held(hf_time wake) {
    hf_hold *hold = new_hold("k");
    set_count(hold, 1);
    set_end(hold, 100);
    hf_hold_become(hold, HF_HOLD_HELD);
    hf_holds_set_wake_at(&holds, claim_of(hold), wake);
    return hold;
}

/* Returns the claim of the hold, which is over. */
static hf_claim *leave(hf_hold *hold) {
    hf_claim *claim = claim_of(hold);
    hf_holds_begin_leaving(&holds, claim);
    return claim;
}

static void hold_what_leaves(void) {
    hf_hold *hold = new_hold("k");
    set_count(hold, 1);
    hf_hold_become(hold, HF_HOLD_HELD);
    hf_claim_become(claim_of(hold), HF_CLAIM_LEAVING);
    hf_holds_check(&holds, 0);
}

static void pass_a_sound_table(void) {
    new_held(100);
    hf_holds_check(&holds, 0);
    hf_holds_set_wake_at(&holds, claim_of(hold_in_heap(&holds, 0)), 101);
    hf_holds_check(&holds, 101);
    leave(hold_in_heap(&holds, 0));
    hf_holds_check(&holds, 101);
}

static void sleep_past_the_end_of_a_hold(void) {
    new_held(101);
    hf_holds_check(&holds, 0);
}

static void acquire_without_a_command(void) {
    new_hold("k");
    hf_holds_check(&holds, 0);
}

static void release_without_a_command(void) {
    hf_hold_become(new_held(100), HF_HOLD_RELEASING);
    hf_holds_check(&holds, 0);
}

static void forget_a_clean_up(void) {
    hf_hold *hold = new_held(100);
    hf_holds_set_wake_at(&holds, leave(hold), HF_NEVER);
    hf_holds_check(&holds, 0);
}

static void do_nothing(void) {
}

/* Whether `act` ends a process by an assertion. */
static bool is_refused(void (*act)(void)) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        act();
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return false;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST(the_self_check_of_the_table_of_holds_aborts_on_a_hold_without_a_command_or_wake_time) {
    static void (*const acts[])(void) =
        LIST(hold_what_leaves, sleep_past_the_end_of_a_hold, acquire_without_a_command,
             release_without_a_command, forget_a_clean_up);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        CHECK_OR(is_refused(acts[i]), "act %zu went through", i);
    CHECK(!is_refused(do_nothing) && !is_refused(pass_a_sound_table));
}

CHECK_MAIN
#endif
