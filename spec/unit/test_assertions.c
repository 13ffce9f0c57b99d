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

#include "base/buffer.h"
#include "link/session.h"
#include "lock/holds.h"
#include "op/operation.h"

#include "drive.h"

static hf_holds holds; /* those of the process that breaks a rule */

static hf_hold *new_hold(const char *key) {
    hf_hold *hold = hf_holds_add(&holds, &hf_kind_lock, hf_slice_of(key), hf_slice_of("me"),
                                 hf_slice_of("owner"));
    if (!hold) _exit(2);
    return hold;
}

static void take_more_than_there_is(void) {
    hf_buffer buffer = {0};
    hf_buffer_append(&buffer, "ab", 2);
    hf_buffer_consume(&buffer, 3);
}

static void ask_for_chance_without_a_state(void) {
    uint64_t state = 0;
    hf_jitter(&state, 10);
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

static void hold_what_was_lost(void) {
    hf_hold *hold = new_held(100);
    hf_holds_mark_lost(&holds, hold, HF_LOST_TAKEN);
    hf_hold_become(hold, HF_HOLD_HELD);
}

static void lose_what_was_given_up(void) {
    hf_hold *hold = new_held(100);
    hf_hold_ref(hold);
    leave(hold);
    hf_holds_mark_lost(&holds, hold, HF_LOST_TAKEN);
}

static void claim_again_what_leaves(void) {
    hf_claim_become(leave(new_hold("k")), HF_CLAIM_ACTIVE);
}

static void leave_with_a_claim_that_is_gone(void) {
    hf_hold *hold = new_hold("k");
    hf_claim_ref(claim_of(hold));
    hf_hold_ref(hold);
    hf_holds_remove(&holds, claim_of(hold));
    hf_claim_become(claim_of(hold), HF_CLAIM_LEAVING);
}

static void hold_what_leaves(void) {
    hf_hold *hold = new_hold("k");
    set_count(hold, 1);
    hf_hold_become(hold, HF_HOLD_HELD);
    hf_claim_become(claim_of(hold), HF_CLAIM_LEAVING);
    hf_holds_check(&holds, 0);
}

static void hold_without_a_count(void) {
    hf_hold_become(new_hold("k"), HF_HOLD_HELD);
}

static void drop_the_tables_reference(void) {
    hf_hold_unref(new_hold("k"));
}

static void remove_a_hold_twice(void) {
    hf_hold *hold = new_hold("k");
    new_hold("l");
    hf_hold_ref(hold);
    hf_holds_remove(&holds, claim_of(hold));
    hf_holds_remove(&holds, claim_of(hold));
}

static void add_a_hold_twice(void) {
    new_hold("k");
    new_hold("k");
}

static void add_a_hold_without_a_key(void) {
    new_hold("");
}

static void wake_a_hold_that_is_elsewhere_in_the_heap(void) {
    hf_hold *hold = new_hold("k");
    new_hold("l");
    set_heap_place(hold, 1);
    hf_holds_set_wake_at(&holds, claim_of(hold), 10);
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

static void open_a_link_twice(void) {
    hf_session_config config = {.connect_timeout = HF_SECOND};
    hf_session session;
    uint64_t random = 1;
    hf_session_init(&session, &config, &random);
    hf_session_opening(&session, 0);
    hf_session_opening(&session, 1);
}

static void clear_a_request_that_is_sent(void) {
    hf_request request = {.state = HF_REQUEST_SENT};
    hf_request_clear(&request);
}

static void succeed_twice(void) {
    hf_op op = {0};
    hf_op_succeed(&op);
    hf_op_succeed(&op);
}

static void wait_without_having_asked(void) {
    hf_op op = {0};
    hf_op_become(&op, HF_ACQUIRE_WAITING);
}

static void ask_after_the_end(void) {
    hf_op op = {0};
    hf_op_become(&op, HF_ACQUIRE_ASKING);
    hf_op_succeed(&op);
    hf_op_become(&op, HF_ACQUIRE_ASKING);
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

TEST(a_violated_assertion_aborts_the_process) {
    static void (*const acts[])(void) =
        LIST(take_more_than_there_is, ask_for_chance_without_a_state, hold_what_was_lost,
             lose_what_was_given_up, claim_again_what_leaves, leave_with_a_claim_that_is_gone,
             hold_what_leaves, hold_without_a_count, drop_the_tables_reference, remove_a_hold_twice,
             add_a_hold_twice, add_a_hold_without_a_key, wake_a_hold_that_is_elsewhere_in_the_heap,
             sleep_past_the_end_of_a_hold, acquire_without_a_command, release_without_a_command,
             forget_a_clean_up, open_a_link_twice, clear_a_request_that_is_sent, succeed_twice,
             wait_without_having_asked, ask_after_the_end);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        CHECK_OR(is_refused(acts[i]), "act %zu went through", i);
    CHECK(!is_refused(do_nothing) && !is_refused(pass_a_sound_table));
}

CHECK_MAIN
#endif
