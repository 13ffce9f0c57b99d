#include "op/kept.h"

#include "base/lease.h"

#include "op/operation.h"

#include "rig.h"

RIG_BEGINS

#define ASK(number) "EVALSHA acquire " ALL_KEYS OWNER(number) " 30000 1000"
#define ASK_IN_LINE(number)                                                                        \
    "EVALSHA acquire " ALL_KEYS OWNER(number) " 2000 0 0 30000 1000 " MEMBER(number)
#define RELEASE(number) "EVALSHA release " ALL_KEYS OWNER(number)
#define LEAVE(number) "EVALSHA leave " ALL_KEYS OWNER(number) " 2000 0  "
#define SHORTEN(number)                                                                            \
    "EVALSHA extend 2 k holdfast_queue:{k} " OWNER(number) " 2000   redisson_lock__channel:{k}"
#define CONFIRM(number)                                                                            \
    "EVALSHA extend 2 k holdfast_queue:{k} " OWNER(number) " 30000 2000  "                         \
                                                           "redisson_lock__channel:{k}"
#define RANGE "*5\r\n:1\r\n:100\r\n:0\r\n:0\r\n:103\r\n"

/* An acquire of a kept lock by `caller`. */
static hf_op_spec spec_as(const char *caller) {
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
    spec.owner = HF_NO_TEXT;
    spec.caller = hf_slice_of(caller);
    spec.keep = HF_SECOND;
    spec.wait = HF_NEVER;
    return spec;
}

static hf_op *begin_as(const char *caller, hf_op_kind kind, hf_time wait, hf_time now) {
    return BEGIN_SPEC(spec_as(caller), now, spec.kind = kind, spec.wait = wait);
}

static hf_op *acquire(const char *caller, hf_time now) {
    return begin_as(caller, HF_OP_ACQUIRE, HF_NEVER, now);
}

static void release(const char *caller, hf_time now) {
    hf_op *op = begin_as(caller, HF_OP_RELEASE, 0, now);
    CHECK_ENDS(op, "ok", now);
}

static void feed_all(void) {
    sent_over(EVENTS);
    feed_subscribed(AT(0));
}

/* "a" has it since AT(0), and the client receives wishes. */
static void hold_and_end(void) {
    rig_begin();
    hf_op *op = acquire("a", AT(0));
    CHECK_SENT(CALLS, ASK("01"));
    feed_calls(RANGE, AT(0));
    feed_all(), CHECK_OUTCOME(op, "ok"), CHECK_EQ_U64(token_of(hold_in(op)), 100);
    hf_op_end(op, AT(0));
}

/* "a" has released it at `now`: the client keeps it. */
static void keep_idle(hf_time now) {
    hold_and_end();
    release("a", now);
}

/* The same, and its lease is being shortened since AT(668). */
static void keep_shortened(void) {
    keep_idle(AT(1));
    CHECK_SENT_UNTIL(RENEWER, AT(1), AT(668), SHORTEN("01"));
}

/* "a" has waited for the lock and has it by a grant, with a range of tokens, since AT(10). */
static hf_op *granted(void) {
    hf_op *op = acquire("a", AT(0));
    feed_all();
    feed_calls(busy(29000, 0, 0), AT(0));
    feed_calls(busy(29000, 0, 0), AT(0));
    feed_message("1 grant l 01 5 200-230 2000 k", AT(10));
    return op;
}

/* "b" waits in the client for a mutex that "me" has just returned, and that is left to polling
 * clients for a moment. */
static hf_op *wait_for_returned_mutex(void) {
    rig_begin();
    hf_op *op = BEGIN_SPEC(spec_as("me"), AT(0), spec.lock_kind = &hf_kind_mutex);
    CHECK_ANSWER(op, RANGE, AT(0), "ok");
    hf_op *waits = BEGIN_SPEC(spec_as("b"), AT(1), spec.lock_kind = &hf_kind_mutex);
    BEGIN_SPEC(spec_as("me"), AT(1000), spec.lock_kind = &hf_kind_mutex, spec.kind = HF_OP_RELEASE);
    feed_calls(":1\r\n", AT(1000));
    rig_tick(AT(1001)), CHECK(is_queued_here(waits));
    return waits;
}

/* The client does not keep the lock that the caller releases, but sends the release. */
#define CHECK_RELEASE_SENT(caller, now, want)                                                      \
    (CHECK_OUTCOME(begin_as(caller, HF_OP_RELEASE, 0, now), "under way"), CHECK_SENT(CALLS, want))

TEST(a_kept_lock_goes_to_the_clients_next_caller_without_a_request_to_the_server) {
    keep_idle(AT(1));
    for (uint64_t token = 101; token <= 103; token++) {
        hf_op *op = acquire("b", AT(2));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_U64(token_of(hold_in(op)), token);
        hf_slice owner = hf_hold_owner(hold_in(op));
        CHECK_MEM(owner.data, owner.size, OWNER("01"), sizeof OWNER("01") - 1);
        hf_op_end(op, AT(2));
        release("b", AT(3));
    }
    CHECK_SILENT();
    CHECK_EQ_U64(stats().acquires, 4);
    CHECK_EQ_U64(stats().releases, 4);
}

TEST(each_caller_that_gets_a_kept_lock_has_a_max_hold_of_its_own) {
    for (int i = 0; i < 3; i++) {
        hf_op *op = BEGIN_SPEC(spec_as("a"), AT(100 * i), spec.max_hold = 8 * HF_SECOND);
        if (i == 0) feed_calls(RANGE, AT(0));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_U64(bound_of(hold_in(op)), AT(100 * i + 8000));
        CHECK(ends_at(hold_in(op)) <= bound_of(hold_in(op)));
        hf_op_end(op, AT(100 * i));
        release("a", AT(100 * i + 50));
    }
    CHECK_EQ_U64(claim_bound(hf_holds_first(holds_of(&rig.client))), HF_NEVER);
}

/* Else a caller that enters it again and again would keep it from all others for ever. */
TEST(re_entering_a_lock_does_not_prolong_the_time_for_which_its_client_keeps_it) {
    hold_and_end();
    hf_op *op = acquire("a", AT(900));
    CHECK_ENDS_WITH(op, "*2\r\n:1\r\n:0\r\n", AT(900), "ok");
    op = begin_as("a", HF_OP_RELEASE, 0, AT(901));
    end_with(op, ":2\r\n", AT(901));
    sent_over(CALLS);
    CHECK_RELEASE_SENT("a", AT(1100), RELEASE("01"));
}

TEST(a_kept_lock_that_was_entered_twice_goes_to_no_other_caller_after_one_release) {
    hold_and_end();
    hf_op *op = acquire("a", AT(1));
    end_with(op, "*2\r\n:1\r\n:0\r\n", AT(1));
    hf_op *waits = acquire("b", AT(2));
    op = begin_as("a", HF_OP_RELEASE, 0, AT(3)), CHECK_OUTCOME(op, "under way");
    CHECK_OUTCOME(waits, "under way");
    CHECK_ANSWER(op, ":2\r\n", AT(4), "ok");
    CHECK_OUTCOME(waits, "under way");
}

TEST(a_kept_lock_whose_range_of_tokens_is_used_up_is_acquired_from_the_server_again) {
    keep_idle(AT(1));
    for (int i = 0; i < 3; i++) {
        hf_op_end(acquire("b", AT(2)), AT(2));
        release("b", AT(2));
    }
    hf_op *op = acquire("b", AT(3));
    CHECK_OUTCOME(op, "under way");
    CHECK_SENT(CALLS, LEAVE("01"));
    feed_calls(":1\r\n", AT(3)), CHECK_SENT_PART(CALLS, "EVALSHA acquire " ALL_KEYS);
    CHECK(is_acquiring(hold_in(op)));
}

TEST(callers_that_wait_for_a_kept_lock_get_it_in_order) {
    hold_and_end();
    hf_op *b = acquire("b", AT(1)), *c = acquire("c", AT(2));
    CHECK_OUTCOME(begin_as("d", HF_OP_ACQUIRE, 0, AT(2)), "busy");
    CHECK_SILENT();
    release("a", AT(3)), CHECK_OUTCOME(b, "ok"), CHECK_OUTCOME(c, "under way");
    release("b", AT(4)), CHECK_OUTCOME(c, "ok"), CHECK_EQ_U64(token_of(hold_in(c)), 102);
    CHECK_SILENT();
}

TEST(a_caller_fails_as_busy_at_once_if_max_waiters_callers_already_wait_for_the_kept_lock) {
    hold_and_end();
    hf_op *b = BEGIN_SPEC(spec_as("b"), AT(1), spec.limits_waiters = true, spec.max_waiters = 1);
    CHECK_OUTCOME(b, "under way");
    hf_op *c = BEGIN_SPEC(spec_as("c"), AT(1), spec.limits_waiters = true, spec.max_waiters = 1);
    CHECK_OUTCOME(c, "busy");
    CHECK_MESSAGE(c, "1 already waiting in line, and max_waiters is 1");
    release("a", AT(2)), CHECK_OUTCOME(b, "ok");
}

TEST(a_callers_wait_for_a_kept_lock_ends_by_timeout_or_signal) {
    hold_and_end();
    hf_op *b = begin_as("b", HF_OP_ACQUIRE, 50 * HF_MS, AT(1)), *c = acquire("c", AT(1));
    hf_op *d = acquire("d", AT(1));
    CHECK_EQ_U64(hf_op_next_tick(b), AT(51));
    CHECK_TICK(b, AT(51), "busy");
    CHECK_INTERRUPTS(c, AT(52));
    release("a", AT(53)), CHECK_OUTCOME(d, "ok");
}

TEST(a_caller_that_waited_before_another_client_requested_the_kept_lock_gets_it_first) {
    hold_and_end();
    hf_op *b = acquire("b", AT(1));
    feed_message("1 wish 01", AT(2));
    rig_tick(AT(2));
    hf_op *c = acquire("c", AT(3));
    release("a", AT(4)), CHECK_OUTCOME(b, "ok"), CHECK_SILENT();
    hf_op *last = begin_as("b", HF_OP_RELEASE, 0, AT(5));
    CHECK_SENT(CALLS, RELEASE("01"));
    rig_tick(AT(5));
    CHECK_SENT(CALLS, ASK_IN_LINE("02")); /* behind it, with a place */
    CHECK_ANSWER(last, ":1\r\n", AT(6), "ok");
    CHECK_OUTCOME(c, "under way");
}

TEST(an_acquire_waits_while_its_client_is_returning_the_kept_lock) {
    keep_idle(AT(900));
    CHECK_SENT_UNTIL(RENEWER, AT(900), AT(1000), LEAVE("01"));
    hf_op *keeps = begin_as("b", HF_OP_ACQUIRE, 0, AT(1000));
    hf_op *plain = BEGIN(HF_OP_ACQUIRE, AT(1000), spec.caller = hf_slice_of("c"));
    CHECK_OUTCOME(keeps, "under way");
    CHECK_OUTCOME(plain, "under way");
    CHECK(hf_kept_give_back(&rig.client, NULL, rig.names.key, AT(1000)) == awaited_claim_in(keeps));
    CHECK_SENT(CALLS, "");
    feed(link_of(RENEWER), ":1\r\n", AT(1001)), CHECK_SENT_PART(CALLS, "EVALSHA acquire " ALL_KEYS);
}

TEST(a_kept_lock_with_a_shortened_lease_is_returned_when_its_keep_time_ends) {
    keep_shortened();
    feed(link_of(RENEWER), ":1\r\n", AT(670));
    CHECK_SENT_UNTIL(RENEWER, AT(670), AT(999), "");
    CHECK_SENT_UNTIL(RENEWER, AT(999), AT(1000), LEAVE("01"));
}

/* No replica has it: what replicas have confirmed bounds what is believed. */
TEST(shortening_a_kept_lock_that_no_replica_confirms_does_not_extend_its_hold) {
    RIG_BEGIN(config.sync = (hf_sync){1, 100 * HF_MS});
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.owner = HF_NO_TEXT, spec.lease = 3 * HF_SECOND,
                      spec.keep = 10 * HF_SECOND);
    CHECK_ANSWER(op, RANGE ":1\r\n", AT(0), "ok");
    hf_time confirmed = ends_at(hold_in(op));
    hf_op_end(op, AT(0));
    feed_all();
    release("me", AT(900));
    CHECK_SENT_UNTIL(RENEWER, AT(900), AT(1600), SHORTEN("01"));
    feed(link_of(RENEWER), ":1\r\n", AT(1601));
    CHECK_EQ_U64(claim_ends_at(claim_in_heap(holds_of(&rig.client), 0)), confirmed);
}

TEST(an_idle_kept_lock_that_has_gone_is_not_reported_as_lost) {
    static const char *const replies[] = {":-1\r\n", ":-2\r\n"};
    for (size_t i = 0; i < 2; i++) {
        keep_idle(AT(1));
        rig_sleep(AT(1), AT(668));
        sent_over(RENEWER);
        feed(link_of(RENEWER), replies[i], AT(670)), CHECK_EQ_U64(stats().losses, 0);
        CHECK_EQ_INT(holds_left(), 0); /* there is nothing to return */
        hf_op *op = acquire("b", AT(671));
        CHECK_OUTCOME(op, "under way");
        CHECK(is_asking(op));
        CHECK_SENT(RENEWER, "");
    }
}

TEST(closing_a_client_returns_its_idle_kept_locks) {
    keep_idle(AT(1));
    close_rig(AT(2)), CHECK(!is_quiet()), CHECK(link_of(EVENTS)->stays_open);
    rig_tick(AT(2));
    CHECK(!link_of(EVENTS)->stays_open); /* no caller will wait again */
    CHECK_SENT(RENEWER, LEAVE("01"));
    feed(link_of(RENEWER), ":1\r\n", AT(3)), CHECK(is_quiet());
}

/* The force may have been carried out from when it is sent. */
TEST(a_kept_lock_that_was_released_by_force_goes_to_no_other_caller) {
    hold_and_end();
    hf_op *b = acquire("b", AT(1));
    begin_as("c", HF_OP_FORCE, 0, AT(2));
    sent_over(CALLS);
    hf_op *op = begin_as("a", HF_OP_RELEASE, 0, AT(3));
    CHECK_SENT(CALLS, RELEASE("01"));
    feed_calls(":1\r\n", AT(4));
    CHECK_ANSWER(op, ":-1\r\n", AT(4), "lost");
    CHECK_TICK(b, AT(4), "under way");
    CHECK_SENT_PART(CALLS, "EVALSHA acquire " ALL_KEYS);
    CHECK_ANSWER(b, RANGE, AT(5), "ok");
    hf_op *d = acquire("d", AT(6));
    release("b", AT(7));
    CHECK_OUTCOME(d, "ok"); /* it is another hold */
}

TEST(a_kept_lock_that_is_released_by_force_while_its_lease_is_shortened_is_returned) {
    keep_shortened();
    begin_as("c", HF_OP_FORCE, 0, AT(669));
    sent_over(CALLS);
    hf_op *b = acquire("b", AT(670));
    feed(link_of(RENEWER), ":1\r\n", AT(671));
    CHECK_ANSWER(b, ":1\r\n", AT(671), "under way");
    CHECK_SENT_PART_AT(CALLS, AT(671), LEAVE("01"));
}

TEST(a_client_that_returns_a_kept_mutex_leaves_it_briefly_to_polling_clients) {
    hf_op *waits = wait_for_returned_mutex();
    CHECK_EQ_U64(hf_op_next_tick(waits), AT(1025));
    rig_tick(AT(1025)), CHECK(is_asking(waits));
}

/* The client has not looked at the wish yet. */
TEST(a_request_from_another_client_just_before_the_release_lets_earlier_callers_go_first) {
    hold_and_end();
    hf_op *b = acquire("b", AT(1));
    feed_message("1 wish 01", AT(2));
    release("a", AT(2)), CHECK_OUTCOME(b, "ok"), CHECK_SILENT();
}

/* It has waited in the client already, with as many as it allows. */
TEST(a_caller_that_has_waited_in_its_client_is_not_refused_by_max_waiters_on_the_server) {
    hold_and_end();
    hf_op *b = BEGIN_SPEC(spec_as("b"), AT(1), spec.limits_waiters = true, spec.max_waiters = 1);
    begin_as("a", HF_OP_RELEASE, 0, AT(1100));
    rig_tick(AT(1100)), CHECK(is_asking(b)); /* at once */
    feed_calls(":1\r\n", AT(1101));
    CHECK_ANSWER(b, busy(20000, 5, 0), AT(1101), "under way");
    CHECK(is_waiting(b));
}

TEST(a_caller_that_waits_for_a_kept_lock_again_is_the_last_in_line) {
    hold_and_end();
    hf_op *b = acquire("b", AT(1)), *c = acquire("c", AT(1));
    hf_kept_cancel(b);
    hf_op_become(b, HF_ACQUIRE_BLOCKED), CHECK(hf_kept_begin(b, AT(2)));
    release("a", AT(3)), CHECK_OUTCOME(c, "ok");
    release("c", AT(4)), CHECK_OUTCOME(b, "ok");
    release("b", AT(5)), CHECK_SILENT();
}

/* The reply does not say when the lease began, and a second copy may come late. */
TEST(a_kept_locks_shortened_lease_counts_from_its_sending_and_is_not_sent_again) {
    for (int twice = 0; twice <= 1; twice++) {
        keep_shortened();
        if (twice) {
            cut_link(RENEWER, "reset", AT(670));
            CHECK_SENT_UNTIL(RENEWER, AT(670), AT(720), SHORTEN("01"));
        }
        feed(link_of(RENEWER), ":1\r\n", AT(900));
        const hf_claim *claim = hf_holds_first(holds_of(&rig.client));
        CHECK_EQ_INT(is_leaving(claim), twice);
        CHECK(twice || claim_ends_at(claim) <= hf_lease_end(AT(668), 2 * HF_SECOND));
    }
}

TEST(the_lease_of_an_idle_kept_lock_is_shortened_once_and_then_renewed) {
    end_with(BEGIN_SPEC(spec_as("a"), AT(0), spec.keep = 60 * HF_SECOND), RANGE, AT(0));
    release("a", AT(1));
    CHECK_SENT_UNTIL(RENEWER, AT(1), AT(668), SHORTEN("01"));
    feed(link_of(RENEWER), ":1\r\n", AT(669));
    CHECK_SENT_UNTIL(RENEWER, AT(669), AT(1400), "EVALSHA renew 1 k " OWNER("01") " 2000");
}

TEST(an_acquire_without_the_option_keep_sends_its_request_to_the_server) {
    static hf_names other;
    CASES(const char *key; hf_time keep; bool shared; uint64_t token_floor) =
        LIST({"j", 0, false, 0}, {"k", 0, false, 0}, {"j", HF_SECOND, true, 0},
             {"k", HF_SECOND, true, 0}, {"j", HF_SECOND, false, 9});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hold_and_end();
        if (!hf_names_make(&other, hf_slice_of(cases[i].key))) abort();
        hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
        spec.names = &other;
        spec.caller = hf_slice_of("b");
        spec.keep = cases[i].keep;
        spec.shared = cases[i].shared;
        spec.token_floor = cases[i].token_floor;
        hf_op *op = begin_spec(&spec, AT(1));
        CHECK(is_asking(op));
        CHECK_SENT_PART(CALLS, "EVALSHA acquire ");
        CHECK_ANSWER(op, RANGE, AT(2), "ok");
        spec.kind = HF_OP_RELEASE;
        CHECK_OUTCOME(begin_spec(&spec, AT(3)), "under way");
        CHECK_SENT_PART(CALLS, "EVALSHA release ");
        rig_end(AT(4));
        hf_names_free(&other);
    }
}

TEST(an_unconfirmed_grant_is_still_confirmed_after_the_kept_lock_went_to_the_next_caller) {
    keep_idle(AT(1));
    hf_op *op = acquire("b", AT(2));
    CHECK_OUTCOME(op, "ok");
    hf_hold *hold = hold_in(op);
    CHECK(is_renewed(hold));
    hf_time confirm_at = AT(2) + (ends_at(hold) - AT(2)) / 3;
    CHECK_EQ_U64(renewer_next_tick(), confirm_at);
    CHECK_SENT_UNTIL(RENEWER, AT(2), confirm_at - 1, "");
    CHECK_SENT_AT(RENEWER, confirm_at, CONFIRM("01"));
}

TEST(a_callers_second_wait_for_a_kept_lock_continues_after_the_clean_up_of_its_first_one) {
    hold_and_end();
    hf_op *first = acquire("b", AT(1)), *second = acquire("b", AT(1));
    begin_as("a", HF_OP_CHECK, 0, AT(2));
    feed_calls(":-2\r\n", AT(3));
    rig_tick(AT(3)), CHECK(is_asking(first)), CHECK(is_queued_here(second));
    hf_op_end(first, AT(4));
    rig_tick(AT(4)), CHECK(is_blocked_acquire(second)), CHECK(hf_op_is_blocked(second));
    CHECK_INTERRUPTS(second, AT(5));
}

TEST(a_caller_that_waits_twice_gets_the_kept_lock_once_and_then_sends_a_request) {
    hold_and_end();
    hf_op *first = acquire("b", AT(1)), *second = acquire("b", AT(1));
    release("a", AT(2)), CHECK_OUTCOME(first, "ok");
    CHECK_RELEASE_SENT("b", AT(3), RELEASE("01"));
    feed_calls(":1\r\n", AT(4));
    CHECK_SENT_PART_AT(CALLS, AT(4), "EVALSHA acquire " ALL_KEYS);
    CHECK_ANSWER(second, RANGE, AT(5), "ok");
}

TEST(a_client_can_tell_whether_it_keeps_a_lock) {
    CHECK(!hf_client_has_kept_locks(&rig.client));
    hold_and_end(), CHECK(hf_client_has_kept_locks(&rig.client));
}

/* A kept lock of `key`, which nobody uses. */
static void keep_key(const char *key, hf_time now) {
    hf_names names;
    if (!hf_names_make(&names, hf_slice_of(key))) abort();
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
    spec.names = &names;
    spec.owner = HF_NO_TEXT;
    spec.keep = 100 * HF_SECOND;
    hf_op *op = begin_spec(&spec, now);
    if (!hf_op_is_done(op)) feed_calls(RANGE, now);
    hf_op_end(op, now);
    spec.kind = HF_OP_RELEASE;
    op = begin_spec(&spec, now), CHECK_ENDS(op, "ok", now);
    hf_names_free(&names);
}

TEST(a_client_that_keeps_a_hundred_locks_gives_each_of_them_to_its_next_caller) {
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 100; i++) {
            keep_key(printed("key%d", i), AT(0));
            CHECK_EQ_INT(kept_count(&rig.client), round == 0 ? i + 1 : 100);
        }
        sent_over(CALLS);
    }
    keep_key("key7", AT(1)), CHECK_SENT(CALLS, ""), CHECK_EQ_INT(holds_left(), 100);
}

TEST(a_kept_lock_goes_to_no_other_caller_if_memory_runs_out) {
    EACH_FAILURE(nth, 1) {
        keep_idle(AT(1));
        memerr_fail(nth);
        hf_op *op = acquire("b", AT(2));
        bool failed = memerr_end();
        if (failed && op) CHECK_OUTCOME(op, "no_memory");
        if (op) hf_op_end(op, AT(2));
        op = acquire("c", AT(3));
        if (!failed) abandon_hold(hold_in_heap(holds_of(&rig.client), 0), 1, AT(3));
        else CHECK_OUTCOME(op, "ok");
    }
}

TEST(a_client_returns_an_idle_kept_lock_if_there_is_no_memory_to_shorten_its_lease) {
    EACH_FAILURE(nth, 2) {
        keep_idle(AT(1));
        open_session(link_of(RENEWER), AT(1));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(668));
        bool failed = memerr_end();
        rig_sleep(AT(668), AT(900));
        const char *text = sent_over(RENEWER);
        CHECK(strstr(text, failed ? LEAVE("01") : SHORTEN("01")));
    }
}

TEST(a_kept_lock_goes_to_the_next_caller_only_if_its_lease_and_tokens_suffice) {
    CASES(hf_time lease, at; uint64_t token_ttl_ms; bool lent) = {
        {30 * HF_SECOND, AT(2), 1000, true},      {30 * HF_SECOND, AT(2), 0, true},
        {30 * HF_SECOND, AT(2), 1, true},         {30 * HF_SECOND, AT(2), 999, true},
        {30 * HF_SECOND, AT(2), 1001, false},     {60 * HF_SECOND, AT(2), 1000, true},
        {30 * HF_SECOND - 1, AT(2), 1000, false}, {5 * HF_SECOND, AT(2), 1000, false},
        {30 * HF_SECOND, AT(999), 1000, true},    {30 * HF_SECOND, AT(1000), 1000, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        keep_idle(AT(1));
        hf_op *op = BEGIN_SPEC(spec_as("b"), cases[i].at, spec.lease = cases[i].lease,
                               spec.token_ttl_ms = cases[i].token_ttl_ms);
        CHECK_OR(hf_op_is_done(op) == cases[i].lent, "case %zu", i);
        uint64_t token = cases[i].token_ttl_ms > 0 ? 101 : 0;
        if (hf_op_is_done(op)) CHECK_EQ_U64(token_of(hold_in(op)), token);
    }
}

/* Less than a quarter of a grant is left. */
TEST(a_kept_lock_whose_lease_ends_soon_goes_to_no_other_caller) {
    for (int late = 0; late <= 1; late++) {
        keep_idle(AT(1));
        hf_claim *idle = claim_in_heap(holds_of(&rig.client), 0);
        set_claim_end(idle, AT(502) + !late);
        set_claim_lease(idle, 2 * HF_SECOND);
        CHECK_EQ_INT(hf_op_is_done(acquire("b", AT(2))), !late);
    }
}

TEST(a_client_does_not_keep_a_lock_whose_lease_or_number_of_holds_is_uncertain) {
    for (int doubt = 0; doubt < 5; doubt++) {
        hold_and_end();
        hf_hold *hold = hold_in_heap(holds_of(&rig.client), 0);
        if (doubt == 1) set_shortened_lease(hold, 5 * HF_SECOND);
        if (doubt == 2) set_at_risk(hold, true);
        if (doubt == 3) set_uncertain(hold, true);
        if (doubt == 4) set_end(hold, AT(1));
        hf_op *op = begin_as("a", HF_OP_RELEASE, 0, AT(1));
        if (doubt == 0) CHECK_OUTCOME(op, "ok");
        else if (doubt == 4) CHECK_OUTCOME(op, "lost");
        else CHECK_SENT(CALLS, RELEASE("01"));
    }
}

TEST(a_client_opens_a_new_connection_if_shortening_a_kept_lock_gets_no_reply) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.owner = HF_NO_TEXT, spec.lease = 4 * HF_SECOND,
                      spec.keep = 10 * HF_SECOND);
    end_with(op, RANGE, AT(0));
    release("me", AT(1));
    open_session(link_of(RENEWER), AT(1));
    CHECK_SENT_UNTIL(RENEWER, AT(1), AT(668), SHORTEN("01"));
    rig_sleep(AT(668), AT(2150)), CHECK_EQ_U64(link_of(RENEWER)->opens, 1);
    rig_sleep(AT(2150), AT(2400)); /* half of what was left, not the time of a command */
    CHECK_EQ_U64(link_of(RENEWER)->opens, 2);
    CHECK_SENT(RENEWER, SHORTEN("01") "\n" LEAVE("01"));
}

TEST(a_client_frees_its_record_of_a_kept_lock_when_the_last_local_waiter_ends) {
    hf_op *first = acquire("a", AT(0)), *waits = acquire("b", AT(0));
    CHECK_ANSWER(first, "-ERR x\r\n", AT(1), "server");
    CHECK_INTERRUPTS(waits, AT(1));
    rig_tick(AT(1)), CHECK_EQ_INT(kept_count(&rig.client), 0);
    waits = wait_for_returned_mutex(); /* the last waiter leaves then */
    hf_op_interrupt(waits, AT(1002));
    rig_tick(AT(1002)), CHECK_EQ_INT(kept_count(&rig.client), 0);
}

TEST(a_kept_lock_goes_to_the_next_caller_without_a_token_if_fencing_is_off) {
    for (int i = 0; i < 2; i++) {
        hf_op *op = BEGIN_SPEC(spec_as("me"), AT(0), spec.token_ttl_ms = 0);
        if (i == 0) feed_calls("*2\r\n:1\r\n:0\r\n", AT(0));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_U64(token_of(hold_in(op)), 0);
        hf_op_end(op, AT(0));
        release("me", AT(1));
    }
}

TEST(a_kept_lock_that_goes_to_the_next_caller_adopts_that_callers_options) {
    keep_idle(AT(1));
    hf_op *op = BEGIN_SPEC(spec_as("b"), AT(2), spec.agent = 7, spec.renewed = false,
                           spec.lease = 60 * HF_SECOND);
    CHECK_OUTCOME(op, "ok");
    const hf_hold *hold = hold_in(op);
    CHECK_EQ_INT(agent_of(hold), 7);
    CHECK(!is_renewed(hold) && is_granted(hold));
    CHECK_EQ_U64(lease_of(hold), 60 * HF_SECOND);
    CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(0), 30 * HF_SECOND)); /* until it is confirmed */
    CHECK_EQ_INT(count_of(hold), 1);
}

TEST(an_acquire_of_another_kind_waits_until_the_clients_kept_lock_is_returned) {
    for (int in_flight = 0; in_flight <= 1; in_flight++) {
        keep_idle(AT(1));
        if (in_flight) rig_sleep(AT(1), AT(668));
        if (in_flight) CHECK_SENT(RENEWER, SHORTEN("01"));
        hf_op *op = BEGIN_SPEC(spec_as("b"), AT(668), spec.lock_kind = &hf_kind_guard);
        CHECK(is_blocked_acquire(op));
        if (in_flight) CHECK_SENT(CALLS, "");
        if (in_flight) feed(link_of(RENEWER), ":1\r\n", AT(669));
        CHECK_SENT(CALLS, LEAVE("01"));
        feed_calls(":1\r\n", AT(670)), CHECK(is_asking(op));
        CHECK_SENT_PART(CALLS, "EVALSHA begin ");
    }
}

TEST(a_caller_that_waits_in_its_client_queries_the_server_when_the_holders_lease_ends) {
    EACH_NUMBER (asked, 2) {
        hf_op *op = BEGIN_SPEC(spec_as("a"), AT(0), spec.renewed = false);
        feed_calls(RANGE, AT(0));
        feed_all();
        hf_time end = ends_at(hold_in(op));
        hf_op_end(op, AT(0));
        hf_op *b = acquire("b", AT(1)), *c = acquire("c", AT(1));
        CHECK_EQ_U64(hf_op_next_tick(b), end);
        CHECK_EQ_U64(hf_op_next_tick(c), end);
        rig_tick(end - 1), CHECK(is_queued_here(b));
        if (asked) hf_op_tick(b, end);
        else acquire("d", end);
        CHECK_EQ_U64(stats().losses, 1);
        hf_client_tick_calls(&rig.client, end), CHECK(is_asking(b)), CHECK(is_queued_here(c));
        CHECK_EQ_U64(hf_op_next_tick(c), HF_NEVER);
    }
}

/* Also callers that asked between the wish for the returned lock and the wish for this one. */
TEST(callers_that_waited_before_another_clients_next_request_get_the_kept_lock_first) {
    hold_and_end();
    feed_message("1 wish 01", AT(1));
    rig_tick(AT(1));
    hf_op *b = acquire("b", AT(2)), *c = acquire("c", AT(2));
    end_with(begin_as("a", HF_OP_RELEASE, 0, AT(2)), ":1\r\n", AT(2));
    rig_tick(AT(2));
    CHECK_ANSWER(b, RANGE, AT(3), "ok");
    char wish[64];
    snprintf(wish, sizeof wish, "1 wish 0%llu", (unsigned long long)number_of(hold_in(b)));
    feed_message(wish, AT(4));
    rig_tick(AT(4));
    release("b", AT(5)), CHECK_OUTCOME(c, "ok");
}

/* A release of a lock that came by a grant names that until it is confirmed. */
TEST(a_kept_lock_goes_to_the_next_caller_together_with_its_unconfirmed_grant) {
    hf_op *op = granted();
    hf_op_end(op, AT(10));
    release("a", AT(11)), CHECK_EQ_U64(claim_wait(claim_in_heap(holds_of(&rig.client), 0)), 1);
    op = BEGIN_SPEC(spec_as("b"), AT(12), spec.lease = HF_SECOND); /* also for a shorter lease */
    CHECK_EQ_U64(wait_of_hold(hold_in(op)), 1);
    hf_hold *hold = hold_in(op);
    hf_op_end(op, AT(12));
    set_granted(hold, false); /* it has been confirmed */
    release("b", AT(13)), CHECK_EQ_U64(claim_wait(claim_in_heap(holds_of(&rig.client), 0)), 0);
}

TEST(two_forced_releases_return_an_idle_kept_lock_only_once) {
    keep_idle(AT(1));
    begin(HF_OP_FORCE, AT(2)), begin(HF_OP_FORCE, AT(2));
    const char *sent = sent_over(CALLS), *leave = strstr(sent, "EVALSHA leave ");
    CHECK(leave == sent && strstr(sent, "EVALSHA force "));
    CHECK(!strstr(leave + 1, "EVALSHA leave "));
}

TEST(an_idle_kept_lock_belongs_to_no_caller) {
    hold_and_end();
    hf_op *op = begin_as("a", HF_OP_RELEASE, 0, AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(hf_view_of(hold_in(op)).state, HF_HOLD_RELEASING);
    CHECK(hf_view_of(hold_in(op)).over);
    const hf_claim *idle = claim_in_heap(holds_of(&rig.client), 0);
    CHECK_EQ_INT(holds_left(), 1);
    CHECK(claim_is_idle(idle) && claim_is_renewed(idle));
    CHECK_SENT_AT(RENEWER, AT(1000), LEAVE("01"));
}

/* The server does not answer the return, and its lease has ended. */
TEST(a_client_that_could_not_return_a_kept_lock_does_not_keep_that_key_again) {
    keep_idle(AT(900));
    open_session(link_of(RENEWER), AT(900));
    CHECK_SENT_UNTIL(RENEWER, AT(900), AT(1000), LEAVE("01"));
    rig_sleep(AT(1000), AT(12000)), CHECK_EQ_INT(holds_left(), 1);
    CHECK(claim_failures(claim_in_heap(holds_of(&rig.client), 0)) > 0);
    hf_op *op = acquire("b", AT(12000));
    CHECK_ENDS_WITH(op, RANGE, AT(12000), "ok");
    sent_over(CALLS);
    CHECK_RELEASE_SENT("b", AT(12001), RELEASE("02"));
    feed_calls(":1\r\n", AT(12002));
}

TEST(a_client_returns_a_kept_lock_if_there_is_no_memory_for_the_next_callers_hold) {
    int without = 0;
    EACH_FAILURE(nth, 1) {
        hold_and_end();
        hf_op *b = acquire("b", AT(1));
        memerr_fail(nth);
        hf_op *op = begin_as("a", HF_OP_RELEASE, 0, AT(2));
        bool failed = memerr_end();
        if (!failed) CHECK_OUTCOME(b, "ok");
        if (hf_op_is_done(b) && failed) {
            CHECK_OUTCOME(b, "no_memory");
            CHECK_SENT(CALLS, RELEASE("01"));
            CHECK_OUTCOME(op, "under way");
            without++;
        }
    }
    CHECK(without > 0);
}

/* "b" waits in the client for the lock of "a", and asks for it by another call, which does not keep
 * it. */
static void wait_and_ask(hf_op **waits, hf_op **asks) {
    hold_and_end();
    *waits = acquire("b", AT(1));
    *asks = BEGIN_SPEC(spec_as("b"), AT(2), spec.keep = spec.wait = 0);
    CHECK(is_queued_here(*waits));
    CHECK(is_asking(*asks));
}

TEST(a_caller_waits_for_the_kept_lock_again_after_its_other_call_has_ended) {
    hf_op *waits, *asks;
    wait_and_ask(&waits, &asks);
    begin_as("a", HF_OP_RELEASE, 0, AT(3));
    rig_tick(AT(3)), CHECK(is_blocked_acquire(waits));
    acquire("c", AT(4));
    CHECK_ANSWER(asks, busy(20000, 0, 0), AT(5), "busy");
    CHECK(is_queued_here(waits));
}

TEST(a_caller_blocked_by_its_other_call_does_not_receive_a_lost_kept_lock) {
    hf_op *waits, *asks;
    wait_and_ask(&waits, &asks);
    feed_calls("*4\r\n:1\r\n:200\r\n:0\r\n:0\r\n", AT(3)); /* it was taken by force */
    CHECK_OUTCOME(asks, "ok");
    hf_op *check = begin_as("b", HF_OP_CHECK, 0, AT(4));
    hf_hold *of_a =
        hf_holds_find(holds_of(&rig.client), &hf_kind_lock, hf_slice_of("k"), hf_slice_of("a"));
    lose_hold(of_a, HF_LOST_TAKEN);
    rig_tick(AT(4)), CHECK_EQ_INT(kept_count(&rig.client), 0), CHECK(is_blocked_acquire(waits));
    CHECK_ANSWER(check, ":-2\r\n", AT(5), "lost");
    CHECK(is_asking(waits));
}

CHECK_MAIN
