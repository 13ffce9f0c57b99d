/* Calls: about a key or a hold, in every state and without memory. */

#include "base/lease.h"
#include "op/operation.h"

#include "calls_rig.h"

/* ---- freed, with dead waiters that are left ---- */

static hf_op *begin_release_of_lock(hf_time now) {
    hold_times(1, AT(0));
    return begin(HF_OP_RELEASE, now);
}

static hf_op *begin_complete_of_guard(hf_time now) {
    hold_guard(AT(0));
    return begin_complete(now);
}

/* A hold of the renewer's own, with this number, which nobody has. */
#define PASS_ON_K(number) "EVALSHA leave " ALL_KEYS OWNER(number) " 2000 0  "

TEST(a_release_that_must_skip_many_dead_waiters_hands_the_lock_over_in_the_background) {
    static hf_op *(*const begins[])(hf_time) = {begin_release_of_lock, begin_complete_of_guard};
    EACH_CASE (i, begins) {
        hf_op *op = begins[i](AT(1));
        sent_over(CALLS);
        CHECK_ANSWER(op, ":3\r\n", AT(2), "ok");
        CHECK_EQ_U64(stats().releases, 1);
        CHECK(!is_in_table(hold_in(op)));
        for (int turn = 0; turn < 3; turn++) {
            CHECK_SENT_AT(RENEWER, AT(3 + turn), PASS_ON_K("2"));
            CHECK(!is_quiet());
            feed(link_of(RENEWER), turn < 2 ? ":3\r\n" : ":0\r\n", AT(3 + turn));
        }
        CHECK(is_quiet());
        CHECK_EQ_INT(holds_left(), 0);
        CHECK_EQ_U64(stats().undone, 1);
        CHECK_SENT(CALLS, "");
    }
}

/* By then another process of this owner may have the lock: only the dead waiters are the renewer's
 * business. */
TEST(a_shared_owners_lock_is_handed_over_in_the_background_without_releasing_another_hold) {
    EACH_NUMBER (abandoned, 2) {
        hf_hold *hold = hold_times(1, AT(0));
        hf_session *link = link_of(abandoned ? RENEWER : CALLS);
        set_shared(hold, true);
        if (abandoned) abandon_hold(hold, 1, AT(1));
        else begin(HF_OP_RELEASE, AT(1));
        rig_tick(AT(1));
        CHECK_STR(output_of(link), abandoned ? LEAVE_OF_K("0", "") "1" : RELEASE_OF_K("0") "1");
        feed(link, ":3\r\n", AT(2));
        for (int turn = 0; turn < 2; turn++) {
            rig_tick(AT(3 + turn));
            CHECK_SENT(RENEWER, abandoned ? LEAVE_OF_K("0", "") "0" : PASS_ON_K("2"));
            feed(link_of(RENEWER), turn < 1 ? ":3\r\n" : ":0\r\n", AT(3 + turn));
        }
        CHECK(is_quiet());
        CHECK_EQ_INT(holds_left(), 0);
    }
}

/* The owner may have it through another process by then. */
TEST(a_shared_owners_clean_up_is_not_sent_after_the_lease_has_ended) {
    hf_hold *hold = hold_times(1, AT(0));
    hf_time end = ends_at(hold);
    set_shared(hold, true);
    abandon_hold(hold, 1, end); /* before the client has noticed that it ended */
    hf_op *op = begin(HF_OP_ACQUIRE, end);
    CHECK_SENT(CALLS, "");
    CHECK_SENT_AT(RENEWER, end, "");
    CHECK(strstr(sent_over(CALLS), "EVALSHA acquire ") != NULL);
    CHECK_ANSWER(op, ACQUIRED, end + HF_MS, "ok");
}

TEST(a_forced_release_frees_the_lock_and_the_callers_own_hold_is_reported_as_lost) {
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(HF_OP_FORCE, AT(1));
    CHECK_SENT(CALLS, "EVALSHA force 4 k redisson_lock_token:{k} holdfast_queue:{k} "
                      "redisson_lock__channel:{k} me 2000");
    CHECK_ANSWER(op, ":1\r\n", AT(2), "ok");
    CHECK_EQ_INT(value_of(op), 1);
    CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_DELETED);
    op = begin(HF_OP_FORCE, AT(3));
    feed_calls(":0\r\n", AT(4)), CHECK_EQ_INT(value_of(op), 0);
    op = begin(HF_OP_FORCE, AT(4));
    CHECK_ANSWER(op, ":3\r\n", AT(5), "ok");
    CHECK(value_of(op) > 0);
    op = begin(HF_OP_FORCE, AT(5));
    CHECK_ANSWER(op, "-WRONGTYPE the key holds a string\r\n", AT(6), "conflict");
}

TEST(after_a_forced_release_the_client_checks_its_other_callers_holds_of_that_lock) {
    hf_hold *hold = hold_times(1, AT(0));
    BEGIN(HF_OP_FORCE, AT(1), spec.caller = spec.owner = hf_slice_of("another"));
    feed_calls(":1\r\n", AT(2)), CHECK(is_held(hold));
    CHECK_SENT_AT(RENEWER, AT(2), "EVALSHA renew 1 k me 30000");
    feed(link_of(RENEWER), "*1\r\n:-1\r\n", AT(3)), CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_DELETED);
}

TEST(a_forced_release_whose_reply_is_lost_is_not_sent_again) {
    hf_op *op = begin(HF_OP_FORCE, AT(1));
    cut_link(CALLS, "reset", AT(2)), CHECK_OUTCOME(op, "unreachable");
    CHECK_SENT_AT(CALLS, AT(50), "");
}

TEST(a_forced_release_interrupted_by_close_reports_that_it_may_have_taken_effect) {
    EACH_NUMBER (sent, 2) {
        hf_op_spec spec = spec_of(HF_OP_FORCE);
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(1));
        if (sent) rig_serve(AT(1));
        close_rig(AT(2)), CHECK_OUTCOME(op, "closed");
        CHECK_EQ_INT(strstr(message_of(op), "may have taken effect") != NULL, sent);
    }
}

/* ---- memory ---- */

struct trial {
    hf_op_kind kind;
    const char *reply;
};

/* One operation that needs no hold, with a new client. */
static bool carry_out(void *context) {
    const struct trial *tried = context;
    rig_begin();
    static const hf_slice args[] = {{"GET", 3}, {"x", 1}};
    hf_op_spec spec = spec_of(tried->kind);
    spec.args = args;
    spec.arg_count = 2;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(10));
    bool good = carry_through(op, tried->reply, tried->reply, false);
    rig_end(AT(9000));
    return good;
}

TEST(calls_without_a_hold_survive_each_failed_allocation) {
    static struct trial trials[] = {
        {HF_OP_FORCE, ":1\r\n"},
        {HF_OP_INFO, "*6\r\n$2\r\nme\r\n:2\r\n:1500\r\n$2\r\n17\r\n:3\r\n:-1\r\n"},
        {HF_OP_TTL, ":1\r\n"},
        {HF_OP_PING, "+PONG\r\n"},
        {HF_OP_COMMAND, "*2\r\n$1\r\na\r\n:1\r\n"}};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        CHECK(memerr_until_success(carry_out, &trials[i], 100) > 6);
}

/* The same on a held lock, whose acquire is not disturbed. */
static void check_survives(hf_op_kind kind, const char *reply, uint32_t count) {
    EACH_FAILURE(nth, 2) {
        bool guard = kind == HF_OP_COMPLETE;
        hf_hold *hold = watch(guard ? hold_guard(AT(0)) : hold_times(count, AT(0)));
        memerr_fail(nth);
        hf_op *op = BEGIN(kind, AT(10), spec.lock_kind = guard ? &hf_kind_guard : &hf_kind_lock);
        hf_session *link = link_of(CALLS);
        if (op && !hf_op_is_done(op)) hf_session_feed(link, reply, strlen(reply), AT(11));
        bool failed = memerr_end();
        if (op && hf_op_is_done(op)) CHECK(!is_in_flight(hold));
        if (op && !hf_op_is_done(op)) rig_sleep(AT(11), AT(9000));
        CHECK(!op || hf_op_is_done(op));
        CHECK(failed || hf_op_code(op) == HF_OK);
        CHECK(is_held(hold) || is_cleaned_up(hold) || !is_in_table(hold));
        if (is_held(hold) && is_in_table(hold)) CHECK(renewer_next_tick() <= ends_at(hold));
        rig_end(AT(9000));
    }
}

TEST(calls_on_a_hold_survive_each_failed_allocation) {
    check_survives(HF_OP_RELEASE, ":1\r\n", 1);
    check_survives(HF_OP_RELEASE, ":2\r\n", 2);
    check_survives(HF_OP_EXTEND, ":1\r\n", 1);
    check_survives(HF_OP_CHECK, ":1\r\n", 1);
    check_survives(HF_OP_COMPLETE, ":1\r\n", 1);
}

TEST(a_shared_owners_abandoned_release_is_not_finished_if_memory_runs_out) {
    set_shared(hold_times(1, AT(0)), true);
    hf_op *op = begin(HF_OP_RELEASE, AT(1));
    sent_over(CALLS);
    memerr_fail(2); /* the first is for the message */
    hf_op_end(op, AT(2)), CHECK(memerr_failed());
    memerr_fail(0);
    CHECK_ANSWER_SENDS("-NOSCRIPT No matching script\r\n", AT(3), CALLS, "");
}

TEST(a_check_does_not_shorten_a_lease_that_was_extended) {
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(1000));
    CHECK_ANSWER(op, ":1\r\n", AT(1001), "ok");
    hf_time end = ends_at(hold);
    CHECK_EQ_U64(end, hf_lease_end(AT(1000), 60 * HF_SECOND));
    op = begin(HF_OP_CHECK, AT(2000)), CHECK_EQ_U64(ends_at(hold), end);
    CHECK_ANSWER(op, ":1\r\n", AT(2001), "ok");
    CHECK_EQ_U64(ends_at(hold), end);
}

TEST(a_forced_release_that_must_skip_many_dead_waiters_finishes_in_the_background) {
    CASES(const char *reply; bool passes_on) =
        LIST({":3\r\n", true}, {":1\r\n", false}, {":0\r\n", false});
    EACH_CASE (i, cases) {
        hf_op *op = begin(HF_OP_FORCE, AT(0));
        CHECK_ANSWER(op, cases[i].reply, AT(1), "ok");
        rig_tick(AT(1));
        bool leaves = strstr(sent_over(RENEWER), "EVALSHA leave") != NULL;
        CHECK_EQ_INT(leaves, cases[i].passes_on);
    }
}

TEST(a_release_that_waits_for_a_command_without_a_reply_fails_as_unreachable) {
    set_in_flight(hold_times(1, AT(0)), true);
    hf_op *op = begin(HF_OP_RELEASE, AT(1));
    CHECK(hf_op_is_blocked(op));
    hf_op_tick(op, AT(3000)), CHECK_OUTCOME(op, "under way");
    hf_op_tick(op, AT(3001)), CHECK_OUTCOME(op, "unreachable"),
        CHECK_EQ_INT(state_of(), CLEANING_UP);
}

TEST(calls_on_a_held_lock_fail_as_unreachable_if_they_cannot_connect) {
    static const hf_op_kind kinds[] = {HF_OP_RELEASE, HF_OP_COMPLETE, HF_OP_EXTEND, HF_OP_CHECK};
    EACH_CASE (i, kinds) {
        hf_op_spec spec = spec_of(kinds[i]);
        if (kinds[i] == HF_OP_COMPLETE) {
            spec.lock_kind = &hf_kind_guard;
            hold_guard(AT(0));
        } else {
            hold_times(1, AT(0));
        }
        cut_link(CALLS, "idle", AT(1));
        rig.refusing = true;
        CHECK_OUTCOME(begin_spec(&spec, AT(2)), "unreachable");
    }
}

TEST(each_reason_of_a_loss_has_an_error_message_of_its_own) {
    static const char *const words[] =
        LIST([HF_LOST_EXPIRED] = "its lease had already ended",
             [HF_LOST_TAKEN] = "another owner holds it",
             [HF_LOST_DELETED] = "its key was deleted on the server",
             [HF_LOST_UNREACHABLE] = "it could not be renewed in time",
             [HF_LOST_MAX_HOLD] = "it was held for as long as max_hold allows");
    _Static_assert(sizeof words / sizeof *words == HF_LOST_REASONS, "each reason has its words");
    for (int reason = HF_LOST_EXPIRED; reason < HF_LOST_REASONS; reason++) {
        rig_begin();
        lose_hold(hold_times(1, AT(0)), (hf_lost_reason)reason);
        hf_op *op = begin(HF_OP_CHECK, AT(1));
        CHECK_OUTCOME(op, "lost");
        CHECK_OR(strstr(message_of(op), words[reason]), "%s", message_of(op));
    }
}

TEST(set_permits_without_a_reply_reports_that_it_may_have_taken_effect) {
    hf_op *op = begin_call(HF_OP_SET);
    hf_op_abandon(op, AT(2)), CHECK_MESSAGE(op, "may have taken effect");
}

TEST(a_call_that_runs_out_of_memory_does_not_stop_the_renewal_of_its_hold) {
    static const hf_op_kind kinds[] = {HF_OP_RELEASE, HF_OP_EXTEND, HF_OP_CHECK};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        EACH_FAILURE(nth, 1) {
            hf_hold *hold = hold_times(1, AT(0));
            for (int n = 0; n < 16; n++) begin(HF_OP_PING, AT(1)); /* no room for a reply */
            hf_op_spec spec = spec_of(kinds[i]);
            memerr_fail(1 + nth); /* the first one is the operation itself */
            hf_op *op = hf_client_begin(&rig.client, &spec, AT(1000));
            bool failed = memerr_end();
            CHECK_OUTCOME(op, failed ? "no_memory" : "under way");
            CHECK_EQ_INT(is_in_flight(hold), !failed);
            if (failed && is_held(hold)) CHECK_EQ_U64(renewer_next_tick(), AT(10000));
            if (failed && !is_held(hold)) CHECK(renewer_next_tick() <= AT(1000));
        }
    }
}

CHECK_MAIN
