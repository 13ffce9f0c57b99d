/* What two features do where they meet: spec/pairs.md lists the pairs, and names a test for each.
 * Each test begins with its own client, of one server or of a cluster. */
#include "cluster_rig.h"
#include "op/crash.h"
#include "op/kept.h"

RIG_BEGINS_WITH(cluster_before)

/* ---- what the tests have in common ---- */

#define OTHER "11111111-2222-8333-8444-555555555555"
#define KEPT OWNER("01")
#define TOKENS "*5\r\n:1\r\n:100\r\n:0\r\n:0\r\n:103\r\n"
#define INFO "EVALSHA info 3 k redisson_lock_token:{k} holdfast_queue:{k} " OWN
#define CRASH_RELEASE(program) "EVALSHA " program " " ALL_KEYS OTHER ":7"

/* A call by `caller` on a lock that the client keeps. */
static hf_op *begin_kept(const char *caller, hf_op_kind kind, hf_time now) {
    return BEGIN(kind, now, spec.caller = hf_slice_of(caller), spec.owner = HF_NO_TEXT,
                 spec.keep = HF_SECOND, spec.wait = HF_NEVER);
}

/* The client does this for `caller` without a request. */
static void check_kept_call(const char *caller, hf_op_kind kind, hf_time now) {
    hf_op *op = begin_kept(caller, kind, now);
    CHECK_ENDS(op, "ok", now);
}

/* The client keeps the lock, which "a" released at AT(1). */
static void keep_idle(void) {
    rig_begin();
    hf_op *op = begin_kept("a", HF_OP_ACQUIRE, AT(0));
    end_with(op, TOKENS, AT(0));
    feed_subscribed(AT(0));
    check_kept_call("a", HF_OP_RELEASE, AT(1));
    rig_hush();
}

static hf_life life_of_other = HF_LIFE_ENDED;

static hf_life life(const char *uuid) {
    (void)uuid;
    return life_of_other;
}

/* An acquire that waits in line with crash_release; from here on it asks only for the owner. */
static hf_op *wait_for_crash(void) {
    RIG_BEGIN(config.life = life);
    hf_observe_all(&rig.client);
    hf_op *op = wait_in_queue(600 * HF_SECOND, AT(0));
    set_recheck(op, HF_NEVER);
    set_listen_time(op, HF_NEVER);
    return op;
}

/* Returns how many crash releases were reported since the last call. */
static int crashes_reported(void) {
    int count = 0;
    for (hf_event *event = hf_observe_take(&rig.client), *next; event; event = next) {
        next = event->next;
        count += event->kind == HF_EVENT_CRASH_RELEASED;
        free(event);
    }
    return count;
}

/* The classes "", "a" and "b" have the numbers 0, 1 and 2. */
static void add_classes(void) {
    hf_observe_class(&rig.client, "");
    hf_observe_class(&rig.client, "a");
    hf_observe_class(&rig.client, "b");
}

static const hf_class *class_at(size_t number) {
    return hf_observe_class_at(&rig.client, number);
}

static int trips_of(size_t number) {
    int count = 0;
    for (int i = 0; i <= HF_BUCKETS; i++) count += (int)class_at(number)->round_trips.counts[i];
    return count;
}

TEST(a_kept_locks_acquire_that_is_resent_returns_a_range_of_tokens) {
    rig_begin();
    hf_op *op = begin_kept("a", HF_OP_ACQUIRE, AT(0));
    CHECK_SENT(CALLS, "EVALSHA acquire " ALL_KEYS KEPT " 30000 1000");
    cut_link(CALLS, "reset", AT(1));
    CHECK_SENT_AT(CALLS, AT(50), "EVALSHA acquire " ALL_KEYS KEPT " 30000 1000");
    CHECK_ENDS_WITH(op, TOKENS, AT(51), "ok");
    check_kept_call("a", HF_OP_RELEASE, AT(52));
    op = begin_kept("b", HF_OP_ACQUIRE, AT(53));
    CHECK_OUTCOME(op, "ok"), CHECK_EQ_U64(token_of(hold_in(op)), 101);
    CHECK_STR(sent_over(CALLS), "");
}

/* Its first copy may have removed one of two entries, but not the last one. */
TEST(a_multi_locks_release_that_was_sent_twice_after_a_re_entry_reports_a_lock_that_is_gone) {
    EACH_NUMBER (entries, 2) {
        hf_names both[2];
        rig_begin();
        const hf_names *batch[] = {&both[0], &both[1]};
        if (!hf_names_make(&both[0], hf_slice_of("a"))) abort();
        if (!hf_names_make(&both[1], hf_slice_of("b"))) abort();
        for (int i = 0; i <= entries; i++) {
            hf_op *op = BEGIN(HF_OP_ACQUIRE_ALL, AT(i), spec.names = NULL, spec.batch = batch,
                              spec.batch_count = 2);
            CHECK_ENDS_WITH(op, "*3\r\n:1\r\n:11\r\n:12\r\n", AT(i), "ok");
        }
        hf_op *op = BEGIN(HF_OP_RELEASE_ALL, AT(10), spec.names = NULL, spec.batch = batch,
                          spec.batch_count = 2);
        cut_link(CALLS, "reset", AT(11));
        rig_tick(AT(50));
        CHECK_ENDS_WITH(op, "*2\r\n:-1\r\n:-1\r\n", AT(51), entries == 0 ? "ok" : "lost");
        CHECK_EQ_U64(stats().losses, entries == 0 ? 0 : 2);
        hf_names_free(&both[0]), hf_names_free(&both[1]);
    }
}

TEST(a_resent_acquire_is_counted_once_in_its_metrics_class) {
    rig_begin();
    add_classes();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.class = 1);
    cut_link(CALLS, "reset", AT(1));
    CHECK_SENT_PART_AT(CALLS, AT(50), "acquire");
    CHECK_ENDS_WITH(op, ACQUIRED, AT(53), "ok");
    CHECK_EQ_INT(class_at(1)->outcomes[HF_OK], 1);
    CHECK_EQ_INT(trips_of(1), 1), CHECK_EQ_U64(class_at(1)->round_trips.sum, 3 * HF_MS);
}

TEST(max_hold_counts_from_the_last_sending_of_a_resent_acquire) {
    rig_begin();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.max_hold = 8 * HF_SECOND);
    cut_link(CALLS, "reset", AT(1));
    CHECK_SENT_PART_AT(CALLS, AT(50), "acquire");
    CHECK_ANSWER(op, ACQUIRED, AT(90), "ok");
    CHECK_EQ_U64(bound_of(hold_in(op)), AT(8050)), CHECK(ends_at(hold_in(op)) <= AT(8050));
}

/* The second copy cannot tell whether the first one or the end of the lease freed the lock. */
TEST(a_crash_release_that_is_resent_is_reported_only_if_its_last_copy_freed_the_lock) {
    EACH_NUMBER (freed, 2) {
        wait_for_crash();
        output_at(AT(50));
        feed_owner(OTHER ":7", 0, AT(51)), CHECK_SENT(CALLS, CRASH_RELEASE("release"));
        cut_link(CALLS, "reset", AT(52));
        CHECK_SENT_AT(CALLS, AT(100), CRASH_RELEASE("release"));
        feed_calls(freed ? ":1\r\n" : ":-1\r\n", AT(101)), CHECK_EQ_INT(crashes_reported(), freed);
    }
}

TEST(a_re_entry_follows_its_slot_to_the_new_node) {
    cluster_known(AT(0));
    hold_k(AT(10));
    hf_op *op = acquire(0, AT(11));
    const char *enters = printed("EVALSHA sharded_acquire " KEYS_OF_K "1 0 30000 1000 ");
    CHECK_NODE_SENT(0, CALLS, enters);
    CHECK_THEN_SENT(0, MOVED_TO_B, AT(12), 1, enters);
    CHECK_ANSWER_BY(1, op, YES, AT(13), "ok");
    CHECK_EQ_INT(count_of(hold_in(op)), 2);
}

TEST(a_re_entry_is_counted_in_its_own_metrics_class_and_the_release_in_that_of_the_hold) {
    rig_begin();
    add_classes();
    for (uint16_t number = 1; number <= 2; number++)
        end_with(BEGIN(HF_OP_ACQUIRE, AT(number), spec.class = number), ACQUIRED, AT(number));
    for (int left = 1; left >= 0; left--)
        end_with(BEGIN(HF_OP_RELEASE, AT(5), spec.class = 2), left ? ":2\r\n" : ":1\r\n", AT(5));
    CHECK_EQ_INT(class_at(1)->outcomes[HF_OK], 1), CHECK_EQ_INT(class_at(2)->outcomes[HF_OK], 0);
    CHECK_EQ_INT(class_at(1)->reentries, 0), CHECK_EQ_INT(class_at(2)->reentries, 1);
    CHECK_EQ_INT(class_at(1)->releases, 1), CHECK_EQ_INT(class_at(2)->releases, 0);
}

TEST(a_shared_owners_acquire_waits_until_its_client_has_returned_the_kept_lock) {
    keep_idle();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(2), spec.shared = true, spec.keep = HF_SECOND);
    CHECK_OUTCOME(op, "under way");
    CHECK_SENT(CALLS, "EVALSHA leave " ALL_KEYS KEPT " 2000 0  ");
    feed_calls(":1\r\n", AT(3)), CHECK_SENT(CALLS, ASK_OF_K("0", "1", ""));
    CHECK_ENDS_WITH(op, ACQUIRED, AT(4), "ok");
    op = BEGIN(HF_OP_RELEASE, AT(5), spec.shared = true, spec.keep = HF_SECOND);
    CHECK_SENT_PART(CALLS, "EVALSHA release "), CHECK_ENDS_WITH(op, ":1\r\n", AT(6), "ok");
}

TEST(a_kept_lock_is_shortened_and_returned_at_its_slots_new_node) {
    cluster_known(AT(0));
    hf_op *op = begin_kept("a", HF_OP_ACQUIRE, AT(1));
    output_of(at(0, CALLS));
    feeds(0, CALLS, TOKENS, AT(1)), CHECK_ENDS(op, "ok", AT(1));
    feeds_event(0, "subscribe", "1", AT(1));
    check_kept_call("a", HF_OP_RELEASE, AT(2));
    rig_hush();
    rig_sleep(AT(2), AT(700)), CHECK_CONTAINS(output_of(at(0, RENEWER)), "extend 2 k ");
    feeds(0, RENEWER, MOVED_TO_B, AT(701));
    CHECK_CONTAINS(output_of(at(1, RENEWER)), "extend 2 k ");
    feeds(1, RENEWER, ":1\r\n", AT(702));
    check_kept_call("b", HF_OP_ACQUIRE, AT(703)), check_kept_call("b", HF_OP_RELEASE, AT(704));
    rig_sleep(AT(704), AT(1001));
    CHECK_NODE_SENT(1, RENEWER, "EVALSHA sharded_leave " ALL_KEYS OWNER("02") " 2000 0  ");
}

TEST(a_kept_locks_callers_are_counted_in_their_own_metrics_classes) {
    rig_begin();
    add_classes();
    static const char *const callers[] = {"", "a", "b"};
    for (uint16_t number = 1; number <= 2; number++) {
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(number), spec.caller = hf_slice_of(callers[number]),
                          spec.owner = HF_NO_TEXT, spec.keep = HF_SECOND, spec.class = number);
        if (number == 1) feed_calls(TOKENS, AT(1));
        CHECK_ENDS(op, "ok", AT(number));
        check_kept_call(callers[number], HF_OP_RELEASE, AT(10 * number));
    }
    for (size_t number = 1; number <= 2; number++) {
        CHECK_EQ_INT(class_at(number)->outcomes[HF_OK], 1);
        CHECK_EQ_INT(class_at(number)->releases, 1);
    }
    CHECK_EQ_INT(trips_of(1), 1), CHECK_EQ_INT(trips_of(2), 0);
}

TEST(a_shared_owners_and_a_fair_locks_acquires_are_counted_in_their_metrics_classes) {
    CASES(const hf_kind *kind; bool shared) = {{&hf_kind_lock, true}, {&hf_kind_fair, false}};
    EACH_CASE (i, cases) {
        rig_begin();
        add_classes();
        hf_names names;
        if (!hf_names_make_on(&names, hf_slice_of("k"), cases[i].kind)) abort();
        for (int times = 0; times < 2; times++) {
            hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(times), spec.class = 1, spec.names = &names,
                              spec.lock_kind = cases[i].kind, spec.shared = cases[i].shared);
            CHECK_ENDS_WITH(op, ACQUIRED, AT(times), "ok");
        }
        CHECK_EQ_INT(class_at(1)->outcomes[HF_OK], 1), CHECK_EQ_INT(class_at(1)->reentries, 1);
        for (int left = 1; left >= 0; left--) {
            hf_op *op = BEGIN(HF_OP_RELEASE, AT(5), spec.names = &names,
                              spec.lock_kind = cases[i].kind, spec.shared = cases[i].shared);
            CHECK_ENDS_WITH(op, left ? ":2\r\n" : ":1\r\n", AT(5), "ok");
        }
        CHECK_EQ_INT(class_at(1)->releases, 1), CHECK_EQ_INT(trips_of(1), 4);
        hf_names_free(&names);
    }
}

/* The other processes keep their own. */
TEST(a_shared_owners_hold_ends_at_max_hold_and_releases_nothing) {
    rig_begin();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.shared = true, spec.max_hold = 12 * HF_SECOND);
    feed_calls("*2\r\n:2\r\n:1\r\n", AT(1)), rig_hush(); /* another process holds it once */
    CHECK_ANSWER(op, ACQUIRED, AT(2), "ok");
    hf_hold *hold = watch(hold_in(op));
    hf_op_end(op, AT(2)), CHECK_EQ_INT(others_of(hold), 1), CHECK_EQ_U64(bound_of(hold), AT(12001));
    rig_sleep(AT(2), AT(12001)), CHECK(is_lost(hold));
    CHECK_STR(hf_lost_reason_name(reason_of(hold)), "max_hold");
    op = BEGIN(HF_OP_RELEASE, AT(12002), spec.shared = true), CHECK_ENDS(op, "lost", AT(12002));
    rig_sleep(AT(12002), AT(20000));
    CHECK(!strstr(sent_over(CALLS), "release") && !strstr(sent_over(RENEWER), "leave"));
}

TEST(a_fair_locks_partial_release_extends_it_to_max_hold_at_most) {
    rig_begin();
    hf_names names;
    if (!hf_names_make_on(&names, hf_slice_of("k"), &hf_kind_fair)) abort();
    for (int i = 0; i < 2; i++) {
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(i), spec.names = &names, spec.lock_kind = &hf_kind_fair,
                          spec.max_hold = 8 * HF_SECOND);
        CHECK_ENDS_WITH(op, ACQUIRED, AT(i), "ok");
    }
    sent_over(CALLS);
    BEGIN(HF_OP_RELEASE, AT(1000), spec.names = &names, spec.lock_kind = &hf_kind_fair);
    CHECK_SENT_PART(CALLS, " me 2000 1 7000 "); /* and not 30000 */
    rig_end(AT(1000));
    hf_names_free(&names);
}

TEST(an_acquire_that_follows_a_redirect_is_counted_once_in_its_metrics_class) {
    cluster_known(AT(0));
    add_classes();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(10), spec.class = 1);
    output_of(at(0, CALLS));
    feeds(0, CALLS, MOVED_TO_B, AT(11)), output_of(at(1, CALLS));
    CHECK_ANSWER_BY(1, op, YES, AT(14), "ok");
    hf_op_end(op, AT(14)), CHECK_EQ_INT(class_at(1)->outcomes[HF_OK], 1);
    CHECK_EQ_U64(class_at(1)->waited.sum, 4 * HF_MS);
}

TEST(a_waiter_interrupted_after_its_slot_has_moved_leaves_the_queue_of_the_new_node) {
    cluster_known(AT(0));
    hf_op *op = in_queue(AT(1000));
    rig_sleep(AT(1000), AT(3050)), CHECK_CONTAINS(output_of(at(0, CALLS)), "sharded_acquire");
    feeds(0, CALLS, MOVED_TO_B, AT(3051)), output_of(at(1, CALLS));
    feeds(1, CALLS, busy(20000, 0, 0), AT(3052));
    feeds_event(1, "subscribe", "1", AT(3053)), output_of(at(1, CALLS));
    feeds(1, CALLS, busy(20000, 0, 0), AT(3054)), CHECK(is_waiting(op));
    hf_op_interrupt(op, AT(3060));
    CHECK_CONTAINS(output_of(at(1, CALLS)), "sharded_leave"), CHECK_NODE_SENT(0, CALLS, "");
    CHECK_ANSWER_BY(1, op, ":0\r\n", AT(3061), "interrupted");
}

TEST(a_renewal_that_follows_its_slot_extends_no_hold_beyond_max_hold) {
    cluster_known(AT(0));
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(10), spec.max_hold = 35 * HF_SECOND);
    output_of(at(0, CALLS));
    CHECK_ANSWER_BY(0, op, YES, AT(10), "ok");
    hf_hold *hold = watch(hold_in(op));
    hf_op_end(op, AT(10));
    rig_sleep(AT(10), AT(10100));
    const char *renews = printed("EVALSHA renew 1 k me 25000");
    CHECK_NODE_SENT(0, RENEWER, renews);
    feeds(0, RENEWER, MOVED_TO_B, AT(10200)), CHECK_NODE_SENT(1, RENEWER, renews);
    feeds(1, RENEWER, "*1\r\n:1\r\n", AT(10201));
    CHECK_EQ_U64(bound_of(hold), AT(35010)), CHECK(ends_at(hold) <= AT(35010));
    rig_sleep(AT(10201), AT(35010)), CHECK(is_lost(hold));
}

TEST(a_crash_release_follows_its_slot_to_the_new_node) {
    RIG_BEGIN(config.mode = HF_MODE_CLUSTER, config.servers = SERVERS, config.server_count = 2,
              config.life = life);
    hf_observe_all(&rig.client);
    hf_op *op = acquire(600 * HF_SECOND, AT(0));
    rig_tick(AT(0)), output_of(at(0, CALLS));
    feeds(0, CALLS, HALVES, AT(0));
    feeds(0, CALLS, busy(20000, 0, 0), AT(1));
    feeds_event(0, "subscribe", "1", AT(2));
    feeds(0, CALLS, busy(20000, 0, 0), AT(3)), CHECK(is_waiting(op));
    rig_hush();
    set_recheck(op, HF_NEVER), set_listen_time(op, HF_NEVER);
    rig_tick(AT(60)), CHECK_NODE_SENT(0, CALLS, INFO);
    CHECK_THEN_SENT(0, MOVED_TO_B, AT(61), 1, INFO);
    char text[256];
    snprintf(text, sizeof text, "*6\r\n$38\r\n" OTHER ":7\r\n:1\r\n:20000\r\n:7\r\n:1\r\n:0\r\n");
    CHECK_THEN_SENT(1, text, AT(62), 1, CRASH_RELEASE("sharded_release"));
    feeds(1, CALLS, ":1\r\n", AT(63)), CHECK_EQ_INT(crashes_reported(), 1);
}

TEST(an_interrupted_wait_is_counted_in_its_metrics_class) {
    rig_begin();
    add_classes();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.wait = HF_NEVER, spec.class = 1);
    enter_queue(AT(0));
    hf_op_interrupt(op, AT(10)), CHECK_ENDS_WITH(op, ":0\r\n", AT(11), "interrupted");
    CHECK_EQ_INT(class_at(1)->outcomes[HF_INTERRUPTED], 1);
    CHECK_EQ_INT(class_at(0)->outcomes[HF_INTERRUPTED], 0);
}

TEST(a_hold_that_ends_at_max_hold_is_counted_as_lost_in_its_metrics_class) {
    rig_begin();
    add_classes();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.class = 1, spec.max_hold = 8 * HF_SECOND);
    CHECK_ENDS_WITH(op, ACQUIRED, AT(1), "ok");
    rig_sleep(AT(1), AT(8000)), CHECK_EQ_INT(class_at(1)->losses[HF_LOST_MAX_HOLD], 1);
    CHECK_EQ_INT(class_at(1)->releases, 0), CHECK(class_at(1)->held.sum <= 8 * HF_SECOND);
}

TEST(a_waiter_that_acquires_although_its_request_was_interrupted_holds_for_max_hold) {
    rig_begin();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.wait = HF_NEVER, spec.max_hold = 8 * HF_SECOND);
    hf_op_interrupt(op, AT(10)), CHECK_ANSWER(op, ACQUIRED, AT(11), "ok");
    hf_hold *hold = watch(hold_in(op));
    CHECK_EQ_U64(bound_of(hold), AT(8000));
    hf_op_end(op, AT(11));
    rig_sleep(AT(11), AT(8000)), CHECK(is_lost(hold));
}

TEST(an_interrupted_waiter_still_reports_the_crash_release_that_it_has_sent) {
    hf_op *op = wait_for_crash();
    output_at(AT(50));
    feed_owner(OTHER ":7", 0, AT(51)), CHECK_SENT(CALLS, CRASH_RELEASE("release"));
    hf_op_interrupt(op, AT(52)), CHECK_SENT_PART(CALLS, "EVALSHA leave ");
    feed_calls(":1\r\n", AT(53)), CHECK_EQ_INT(crashes_reported(), 1);
    CHECK_ENDS_WITH(op, ":0\r\n", AT(54), "interrupted");
    rig_sleep(AT(54), AT(3000)), CHECK_STR(sent_over(CALLS), "");
}

CHECK_MAIN
