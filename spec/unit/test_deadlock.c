#include "op/deadlock.h"
#include "op/presence.h"
#include "rig.h"

RIG_BEGINS

/* An acquire of "k" waits; replies about the others decide whether it is in a cycle. */

/* It looks after a second. */
static hf_op *wait_for_k(hf_time check) {
    rig_begin();
    hf_op *op =
        BEGIN(HF_OP_ACQUIRE, AT(0), spec.wait = 60 * HF_SECOND, spec.deadlock_check = check);
    enter_queue(AT(0));
    return op;
}

static void feed_holder(const char *owner, int ahead) {
    feed_owner(owner, ahead, AT(1000));
}

/* It has asked who holds "k", and this is the answer. */
static hf_op *search_from(const char *owner, int ahead) {
    hf_op *op = wait_for_k(HF_SECOND);
    output_at(AT(1000));
    feed_holder(owner, ahead);
    return op;
}

static void feed_wait(const char *wait) {
    feed_calls(printed("$%zu\r\n%s\r\n", strlen(wait), wait), AT(1000));
}

TEST(a_deadlock_search_follows_owners_and_their_waits_until_it_finds_a_cycle) {
    hf_op *op = wait_for_k(HF_SECOND);
    CHECK_STR(output_at(AT(999)), "");
    CHECK_EQ_U64(hf_op_next_tick(op), AT(1000));
    CHECK_STR(output_at(AT(1000)), INFO_OF("k", OWN));
    feed_holder("you", -1); /* it may have left the queue: that does not matter here */
    CHECK_SENT(CALLS, "GET holdfast_wait:you");
    feed_wait("500 " ABOVE " l j"), CHECK_SENT(CALLS, INFO_OF("j", ABOVE));
    feed_holder("me", 0), CHECK_SENT(CALLS, "GET holdfast_wait:me"), CHECK(is_searching(op));
    feed_wait("501 " OWN " l k"), CHECK(!is_searching(op));
    CHECK(strncmp(sent_over(CALLS), "EVALSHA leave ", 14) == 0);
    CHECK_ANSWER(op, ":1\r\n", AT(1001), "deadlock");
    CHECK_MESSAGE(op, "the waits form a cycle: \"k\", held by you, which waits for "
                      "\"j\", held by me; always take locks in the same order");
}

/* Whether it ends, after waits of others since these times, and its own. */
static bool ends_in(const char *const *others, size_t count, const char *own) {
    hf_op *op = wait_for_k(HF_SECOND);
    output_at(AT(1000));
    for (size_t i = 0; i < count; i++) {
        feed_holder("you", 0);
        feed_wait(others[i]);
    }
    feed_holder("me", 0);
    feed_wait(own);
    bool ends = is_cancelling(op);
    if (is_searching(op)) check_fail(__FILE__, __LINE__, "it still searches");
    rig_end(AT(1002));
    return ends;
}

TEST(only_the_youngest_waiter_of_a_deadlock_fails) {
    CASES(const char *others[3], *own; bool ends) = {
        {{"500 " ABOVE " l j"}, "501 " OWN " l k", true},
        {{"501 " ABOVE " l j"}, "500 " OWN " l k", false},
        {{"500 " ABOVE " l j"}, "500 " OWN " l k", false}, /* equal: the greater name */
        {{"500 " BELOW " l j"}, "500 " OWN " l k", true},
        {{"800 " ABOVE " l j", "500 " BELOW " l i"}, "700 " OWN " l k", false},
        {{"500 " ABOVE " l j", "800 " BELOW " l i"}, "700 " OWN " l k", false},
        {{"500 " ABOVE " l j", "800 " BELOW " l i"}, "900 " OWN " l k", true},
        {{"700 " ABOVE " l j", "700 " BELOW " l i"}, "700 " OWN " l k", false},
        {{"700 " BELOW " l j", "700 " ABOVE " l i"}, "700 " OWN " l k", false},
        {{"700 " BELOW " l j", "600 " ABOVE " l i"}, "700 " OWN " l k", true},
        {{NULL}, "1 " OWN " l k", true}, /* the holder is the one that waits */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t count = 0;
        while (cases[i].others[count]) count++;
        CHECK_OR(ends_in(cases[i].others, count, cases[i].own) == cases[i].ends, "case %zu", i);
    }
}

/* A check without a result, then the next one after twice as long a wait. */
TEST(a_deadlock_search_is_repeated_after_twice_the_last_pause) {
    hf_op *op = wait_for_k(HF_SECOND / 2);
    output_at(AT(500));
    feed_calls("-ERR no\r\n", AT(501)), CHECK(!is_searching(op));
    CHECK_EQ_U64(hf_deadlock_next_check(op), AT(1000));
    CHECK_EQ_U64(hf_op_next_tick(op), AT(1000));
    CHECK_STR(output_at(AT(999)), "");
    CHECK_STR(output_at(AT(1001)), INFO_OF("k", OWN));
    CHECK(hf_deadlock_next_check(op) == HF_NEVER);
    feed_holder("me", 0);
    feed_wait("500 " OWN " l k"), CHECK(is_cancelling(op));
}

TEST(a_deadlock_search_ends_at_a_published_wait_that_is_not_in_the_queue) {
    hf_op *op = search_from("you", 0);
    feed_wait("500 " ABOVE " l j");
    sent_over(CALLS);
    feed_holder("me", -1), CHECK(!is_searching(op)), CHECK_STR(output_at(AT(1001)), "");
}

TEST(a_deadlock_search_ends_at_a_malformed_wait) {
    static const char *const waits[] =
        LIST("", "500", "500 ", "500 " ABOVE, "500 " ABOVE " l", "500 " ABOVE " l ",
             "500 " ABOVE " lj k", "500 " ABOVE " ? j", "500 short l j",
             "500 ffffffff-ffff-4fff-8fff-ffffffffffff l j", /* no number behind it */
             "-");
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        hf_op *op = search_from("you", 0);
        sent_over(CALLS);
        feed_wait(waits[i]), CHECK_OR(!is_searching(op), "\"%s\" is followed", waits[i]);
        CHECK_STR(output_at(AT(1001)), "");
        CHECK(is_waiting(op));
    }
}

TEST(a_deadlock_search_follows_a_wait_for_a_different_kind_of_lock) {
    CASES(const char *wait, *query) = {
        {"500 " ABOVE " m a key", "EVALSHA mutex_info 3 a key redisson_lock_token:{a key} "
                                  "holdfast_queue:{a key} " ABOVE},
        {"500 " ABOVE " p j", "EVALSHA permit_info 4 j redisson_lock_token:{j} holdfast_queue:{j} "
                              "{j}:timeout " ABOVE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wait_for_k(HF_SECOND);
        output_at(AT(1000));
        feed_holder("you", 0);
        sent_over(CALLS);
        feed_wait(cases[i].wait), CHECK_SENT(CALLS, cases[i].query);
    }
}

TEST(a_deadlock_search_follows_at_most_64_steps) {
    hf_op *op = wait_for_k(HF_SECOND);
    output_at(AT(1000));
    int steps = 0;
    for (; is_searching(op) && steps < 1000; steps++) {
        feed_holder("you", 0);
        if (!is_searching(op)) break;
        feed_wait(printed("%d ffffffff-ffff-4fff-8fff-ffffffffffff:%d l j", 500 + steps, steps));
    }
    CHECK_EQ_INT(steps, 65);
    CHECK(is_waiting(op));
}

/* The operation waits for a lock of the cycle, and is no part of it. */
TEST(a_deadlock_search_ends_at_a_cycle_without_its_own_waiter) {
    CASES(int before, others, steps) = {{0, 2, 4}, {1, 2, 4}, {2, 3, 7},
                                        {0, 4, 8}, {3, 4, 8}, {4, 5, 13}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_op *op = wait_for_k(HF_SECOND);
        output_at(AT(1000));
        int steps = 0;
        while (is_searching(op) && steps < 64) {
            int after = steps - cases[i].before;
            int waiter = after < 0 ? steps : cases[i].before + after % cases[i].others;
            feed_holder("you", 0);
            feed_wait(printed("500 ffffffff-ffff-4fff-8fff-ffffffffffff:%d l j", waiter));
            steps++;
        }
        CHECK_OR(steps == cases[i].steps, "case %zu: %d steps", i, steps);
        CHECK_OUTCOME(op, "under way");
    }
}

TEST(a_deadlock_search_that_outlives_its_acquire_ends_without_effect) {
    static const char *const replies[] = {
        "*6\r\n$3\r\nyou\r\n:1\r\n:20000\r\n:7\r\n:1\r\n:0\r\n",
        "$48\r\n500 ffffffff-ffff-4fff-8fff-ffffffffffff:7 l jjj\r\n"};
    for (int i = 0; i < 2; i++) {
        hf_op *op = wait_for_k(HF_SECOND);
        output_at(AT(1000));
        if (i == 1) feed_holder("you", 0);
        sent_over(CALLS);
        CHECK_GRANTS(op, GRANT("1", "9"), AT(1000), "ok");
        hf_op_end(op, AT(1000));
        CHECK_ANSWER_SENDS(replies[i], AT(1001), CALLS, "");
    }
}

TEST(a_deadlock_does_not_end_a_waiter_whose_request_to_the_server_is_in_flight) {
    hf_op *op = search_from("me", 0);
    feed_message("1 grant l 1 6 77 2000 k", AT(1000)); /* of another place */
    CHECK(is_asking(op));
    feed_wait("5 " OWN " l k"), CHECK(is_asking(op)), CHECK(!is_searching(op));
}

static bool look(void *context) {
    (void)context;
    rig_tick(AT(1000));
    const hf_op *op = ops_of(&rig.client);
    if (is_searching(op)) feed_holder("you", 0);
    if (is_searching(op)) feed_wait("500 " BELOW " l j");
    if (is_searching(op)) feed_holder("me", 0);
    if (is_searching(op)) feed_wait("501 " OWN " l k");
    return is_cancelling(op);
}

TEST(an_acquire_without_memory_to_search_for_deadlocks_keeps_waiting) {
    EACH_FAILURE(nth, 5) {
        hf_op *op = wait_for_k(HF_SECOND);
        memerr_fail(nth);
        bool ended = look(NULL);
        CHECK(memerr_end() || ended);
        CHECK(ended || !hf_op_is_done(op) || hf_op_code(op) == HF_NO_MEMORY);
        rig_end(AT(1001));
    }
}

TEST(a_deadlock_search_follows_a_wait_for_a_long_key) {
    char key[400], wait[500];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    for (int size = 1; size < 400; size++) {
        wait_for_k(HF_SECOND);
        output_at(AT(1000));
        feed_holder("you", -1);
        sent_over(CALLS);
        snprintf(wait, sizeof wait, "500 " ABOVE " l %.*s", size, key);
        feed_wait(wait);
        const char *text = sent_over(CALLS);
        CHECK_OR(strstr(text, key + sizeof key - 1 - size), "%s", text);
    }
}

/* Of two names that begin alike the longer one is the greater. */
TEST(the_owners_name_decides_which_of_two_equally_old_waiters_in_a_deadlock_fails) {
    static const char *const others[] = {"700 " DRIVE_UUID ":0 l j", "700 " DRIVE_UUID ":10 l i"};
    CHECK(!ends_in(others, 2, "700 " OWN " l k"));
}

TEST(a_deadlock_search_reads_the_wait_of_an_owner_of_maximum_length) {
    char owner[HF_OWNER_MAX + 1], want[HF_OWNER_MAX + 64];
    memset(owner, 'o', HF_OWNER_MAX);
    owner[HF_OWNER_MAX] = '\0';
    wait_for_k(HF_SECOND);
    output_at(AT(1000));
    feed_holder(owner, 0);
    snprintf(want, sizeof want, "GET holdfast_wait:%s", owner), CHECK_SENT(CALLS, want);
}

/* Around the size of what is read of it. */
TEST(a_deadlock_search_ends_at_a_wait_that_consists_of_digits_only) {
    for (size_t size = 120; size <= 140; size++) {
        char wait[200];
        memset(wait, '1', size);
        wait[size] = '\0';
        hf_op *op = search_from("you", 0);
        feed_wait(wait), CHECK(!is_searching(op)), CHECK(is_waiting(op));
    }
}

CHECK_MAIN
