#include "quorum_rig.h"

#include "op/deadlock.h"

/* An acquire of "k" waits for a majority of five servers; what a majority of them replies about
 * the others decides whether it is in a cycle. */

#define COPY "ffffffff-ffff-4fff-8fff-ffffffffffff:8.2"

/* Its first attempt has failed; it checks at 2 ms, before the next one at 300 ms. */
static hf_op *pause_for_k(void) {
    start();
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.wait = 60 * HF_SECOND,
                            spec.deadlock_check = 2 * HF_MS);
    answers(0, server_count, busy(20000, 0, 0), AT(1));
    round_of(op)->retry_at = AT(300);
    int decided = server_count - MAJORITY + 1;
    answers(decided, server_count, ":1\r\n", AT(1)); /* the others got a `leave` */
    rig_hush();
    return op;
}

static hf_op *wait_for_k(void) {
    hf_op *op = pause_for_k();
    tick(AT(2));
    return op;
}

static const char *owner_is(const char *owner) {
    static char text[256];
    snprintf(text, sizeof text, "*6\r\n$%zu\r\n%s\r\n:1\r\n:20000\r\n:7\r\n:0\r\n:-1\r\n",
             strlen(owner), owner);
    return text;
}

static const char *wait_is(const char *wait) {
    static char text[256];
    snprintf(text, sizeof text, "$%zu\r\n%s\r\n", strlen(wait), wait);
    return text;
}

static void all_reply(const char *text) {
    for (int i = 0; i < COUNT; i++) CHECK_STR(output_by(i), text);
}

TEST(a_quorum_deadlock_search_queries_every_server_and_follows_a_majority) {
    hf_op *op = wait_for_k();
    all_reply(INFO_OF("k", OWN));
    answers(0, 2, owner_is("else"), AT(2));
    answers(2, 4, owner_is(COPY), AT(2));
    all_reply("");
    answer(4, owner_is("ffffffff-ffff-4fff-8fff-ffffffffffff:8"), AT(2));
    all_reply("GET holdfast_wait:ffffffff-ffff-4fff-8fff-ffffffffffff:8");
    answers(0, 2, "$-1\r\n", AT(2));
    answers(2, 5, wait_is("500 " ABOVE " l j"), AT(2));
    all_reply(INFO_OF("j", ABOVE));
    answers(0, 2, "-ERR no\r\n", AT(2));
    answers(2, 5, owner_is("me"), AT(2));
    all_reply("GET holdfast_wait:me");
    CHECK_ANSWERS(op, 0, 5, wait_is("501 " OWN " l k"), AT(2), "deadlock");
    CHECK_CONTAINS(message_of(op), "the waits form a cycle: \"k\", held by "
                                   "ffffffff-ffff-4fff-8fff-ffffffffffff:8, which waits for \"j\", "
                                   "held by me; always take locks in the same order");
    CHECK_EQ_INT(holds_left(), 0);
}

TEST(a_quorum_deadlock_search_finds_nothing_without_a_majority_for_an_owner_or_a_wait) {
    for (int wait = 0; wait < 2; wait++) {
        hf_op *op = wait_for_k();
        if (wait) answers(0, COUNT, owner_is("you"), AT(2));
        answers(0, 2, wait ? wait_is("1 " OWN " l k") : owner_is("you"), AT(2));
        answers(2, 4, wait ? wait_is("1 " OWN " l j") : owner_is("me"), AT(2));
        CHECK(is_searching(op));
        answer(4, wait ? "$-1\r\n" : owner_is(""), AT(2)), CHECK(!is_searching(op));
        CHECK_OUTCOME(op, "under way");
    }
}

TEST(replies_from_half_of_the_servers_do_not_establish_a_quorum_deadlock) {
    server_count = 4;
    hf_op *op = wait_for_k();
    answers(0, 2, owner_is("you"), AT(2));
    answers(2, 4, owner_is(""), AT(2)), CHECK(!is_searching(op));
    hf_op_end(op, AT(2));
    rig_end(AT(3));
    server_count = COUNT;
}

TEST(a_quorum_deadlock_search_distinguishes_owners_that_differ_only_in_their_first_letter) {
    static const char *const owners[] = {"you", "xou", "zou", "vou", "wou"};
    hf_op *op = wait_for_k();
    for (int i = 0; i < COUNT; i++) answer(i, owner_is(owners[i]), AT(2));
    CHECK(!is_searching(op));
}

/* ---- clocks ---- */

/* Whether it ends if the servers give these times for the other wait and for its own; 0: none. */
static bool ends_in(const int other[COUNT], const int own[COUNT]) {
    char text[128];
    hf_op *op = wait_for_k();
    answers(0, COUNT, owner_is("you"), AT(2));
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "%d " ABOVE " l j", other[i]);
        answer(i, other[i] ? wait_is(text) : "$-1\r\n", AT(2));
    }
    answers(0, COUNT, owner_is("me"), AT(2));
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "%d " OWN " l k", own[i]);
        answer(i, own[i] ? wait_is(text) : "$-1\r\n", AT(2));
    }
    bool ends = hf_op_is_done(op);
    hf_op_end(op, AT(2));
    rig_end(AT(3));
    return ends;
}

TEST(in_a_quorum_deadlock_the_waiter_that_is_youngest_by_the_servers_median_time_fails) {
    CASES(int other[COUNT], own[COUNT]; bool ends) = {
        {{100, 200, 300, 400, 500}, {101, 201, 301, 401, 501}, true},
        {{101, 201, 301, 401, 501}, {100, 200, 300, 400, 500}, false},
        {{500, 100, 300, 200, 400}, {400, 501, 301, 1, 1}, true},      /* 300, 301 */
        {{900, 900, 300, 200, 100}, {400, 100, 100, 299, 400}, false}, /* 300, 299 */
        {{300, 300, 300, 900, 900}, {301, 301, 301, 100, 100}, true},  /* 300, 301 */
        {{100, 900, 900, 0, 0}, {300, 200, 0, 0, 800}, false},         /* 900, 300 */
        {{100, 200, 900, 900, 0}, {300, 0, 0, 299, 201}, true},        /* 200, 299 */
        {{300, 300, 300, 300, 300}, {300, 300, 300, 300, 300}, false}, /* by their names */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_OR(ends_in(cases[i].other, cases[i].own) == cases[i].ends, "case %zu", i);
}

TEST(a_server_that_hangs_delays_a_step_of_a_quorum_deadlock_search_by_at_most_250_ms) {
    for (int hangs = 0; hangs < COUNT; hangs += 3) { /* it and the next one */
        hf_op *op = wait_for_k();
        int first = hangs == 0 ? 2 : 0;
        hf_session *calls = link_at(first, CALLS);
        rig_hush();
        answers(first, first + 2, owner_is("you"), AT(2)), CHECK(is_searching(op));
        answer(first + 2, owner_is("you"), AT(3));
        for (int i = hangs; i < hangs + 2; i++) hf_session_tick(link_at(i, CALLS), AT(252));
        CHECK_STR(output_of(calls), "");
        for (int i = hangs; i < hangs + 2; i++) hf_session_tick(link_at(i, CALLS), AT(253));
        CHECK_STR(output_of(calls), "GET holdfast_wait:you");
    }
}

TEST(replies_from_half_of_the_servers_do_not_shorten_a_deadlock_searchs_step) {
    server_count = 4;
    hf_op *op = wait_for_k();
    rig_hush();
    answers(0, 2, owner_is("you"), AT(2));
    for (int i = 2; i < 4; i++) hf_session_tick(link_at(i, CALLS), AT(260));
    answer(2, owner_is("you"), AT(260));
    answer(3, owner_is("you"), AT(260));
    for (int i = 0; i < 4; i++) CHECK_STR(output_by(i), "GET holdfast_wait:you");
    hf_op_end(op, AT(260));
    rig_end(AT(261));
    server_count = COUNT;
}

TEST(a_timeout_in_one_step_of_a_quorum_deadlock_search_does_not_shorten_the_next_step) {
    wait_for_k();
    answers(0, COUNT, owner_is("you"), AT(2));
    rig_hush();
    answers(0, 2, "$-1\r\n", AT(3));
    for (int i = 2; i < COUNT; i++) hf_session_tick(link_at(i, CALLS), AT(260));
    answers(2, COUNT, wait_is("500 " ABOVE " l j"), AT(260));
    all_reply(INFO_OF("j", ABOVE));
}

TEST(a_quorum_acquire_without_memory_to_search_for_deadlocks_keeps_waiting) {
    EACH_FAILURE(nth, 1) {
        hf_op *op = wait_for_k();
        answers(0, COUNT, owner_is("me"), AT(2));
        memerr_fail(nth);
        answers(0, COUNT, wait_is("5 " OWN " l k"), AT(2));
        bool failed = memerr_end();
        CHECK(failed || hf_op_is_done(op));
        CHECK(!hf_op_is_done(op) || hf_op_code(op) == HF_DEADLOCK ||
              hf_op_code(op) == HF_NO_MEMORY);
        hf_op_end(op, AT(2));
        rig_end(AT(3));
    }
}

CHECK_MAIN
