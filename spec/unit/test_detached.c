#include "op/holding.h"
#include "op/operation.h"

#include "op/leave.h"
#include "rig.h"

RIG_BEGINS

#define ASK(number) "EVALSHA acquire " ALL_KEYS OWNER(number) " 30000 1000"
#define LEAVE(number) "EVALSHA leave " ALL_KEYS OWNER(number) " 2000 0  "

static hf_op *begin_own(hf_op_kind kind, hf_time now) {
    return BEGIN(kind, now, spec.owner = HF_NO_TEXT);
}

/* Held since AT(0), by the first owner. */
static void hold_own(void) {
    rig_begin();
    hf_op *op = begin_own(HF_OP_ACQUIRE, AT(0));
    feed_calls(ACQUIRED, AT(0));
    sent_over(CALLS);
    hf_op_end(op, AT(0));
}

static void send_release(hf_time now) {
    hf_op *op = begin_own(HF_OP_RELEASE, now);
    CHECK(hf_op_detach(op));
}

/* The same for a new hold, whose release is under way since AT(1). */
static void hold_and_send_release(void) {
    hold_own();
    send_release(AT(1));
}

TEST(an_async_release_copies_the_strings_of_its_caller) {
    hold_own();
    hf_names *names = malloc(sizeof *names);
    char *caller = strdup("me");
    hf_op_spec spec = spec_of(HF_OP_RELEASE);
    CHECK(hf_names_make(names, hf_slice_of("k")));
    spec.names = names;
    spec.caller.data = caller;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1));
    CHECK(hf_op_detach(op));
    hf_names_free(names);
    free(names);
    free(caller), CHECK_MEM(spec_in(op)->caller.data, spec_in(op)->caller.size, "me", 2);
    CHECK_MEM(spec_in(op)->names->key.data, spec_in(op)->names->key.size, "k", 1);
    rig_sleep(AT(1), AT(3500)); /* no reply in time: its message names the key */
    CHECK(!ops_of(&rig.client));
}

TEST(an_interrupted_acquire_does_not_wait_for_the_async_release_it_overtook) {
    hold_and_send_release();
    hf_op *op = begin_own(HF_OP_ACQUIRE, AT(1));
    hf_op_interrupt(op, AT(1));
    feed_calls("-NOSCRIPT\r\n", AT(2));
    CHECK_ANSWER(op, busy(29000, 0, 0), AT(2), "interrupted");
}

/* Waits behind its own release, which gets no answer. */
static hf_op *follow(void) {
    hold_and_send_release();
    hf_op *op = begin_own(HF_OP_ACQUIRE, AT(1));
    feed_calls("-NOSCRIPT\r\n", AT(2));
    feed_calls(busy(29000, 0, 0), AT(2));
    sent_over(CALLS);
    return op;
}

TEST(an_acquire_that_waits_for_an_async_release_can_be_interrupted_or_abandoned) {
    hf_op *op = follow();
    CHECK_INTERRUPTS(op, AT(3));
    CHECK_EQ_INT(state_of(), -1);
    CHECK_EQ_U64(holds_left(), 1); /* the claim of the release */
    rig_end(AT(4));
    op = follow();
    hf_op_end(op, AT(3)), CHECK_EQ_INT(state_of(), -1), CHECK_EQ_U64(holds_left(), 1);
}

TEST(an_abandoned_release_is_finished_while_its_owner_acquires_again) {
    hold_and_send_release();
    begin_own(HF_OP_ACQUIRE, AT(2));
    sent_over(CALLS);
    hf_op_end(ops_of(&rig.client), AT(3)); /* the release is abandoned */
    rig_tick(AT(3)), CHECK(strstr(sent_over(CALLS), LEAVE("1")) != NULL);
}

TEST(a_release_that_must_wait_for_a_renewal_is_not_sent_asynchronously) {
    hold_own();
    rig_sleep(AT(0), AT(10000)), CHECK(is_in_flight(hold_of()));
    hf_op *op = begin_own(HF_OP_RELEASE, AT(10001));
    CHECK(!hf_op_detach(op));
}

TEST(closing_a_client_finishes_its_async_releases) {
    hold_and_send_release();
    sent_over(CALLS);
    close_rig(AT(2)), CHECK(!ops_of(&rig.client)), CHECK(!is_quiet());
    rig_tick(AT(2)), CHECK(strstr(sent_over(CALLS), LEAVE("1")) != NULL);
}

#define BEGIN_HALF(kind, half, who, now)                                                           \
    BEGIN(kind, now, spec.owner = HF_NO_TEXT, spec.lock_kind = half, spec.caller = who)

/* The other half of a read/write lock is under the same key. */
TEST(an_acquire_of_the_read_half_waits_for_its_own_callers_async_release_of_the_write_half) {
    EACH_NUMBER (another, 2) {
        hf_slice caller = hf_slice_of(another ? "you" : "me");
        end_with(BEGIN_HALF(HF_OP_ACQUIRE, &hf_kind_write, caller, AT(0)), ACQUIRED, AT(0));
        CHECK(hf_op_detach(BEGIN_HALF(HF_OP_RELEASE, &hf_kind_write, caller, AT(1))));
        hf_op *op = BEGIN_HALF(HF_OP_ACQUIRE, &hf_kind_read, hf_slice_of("me"), AT(1));
        feed_calls("-NOSCRIPT\r\n", AT(2));
        CHECK_ANSWER(op, busy(29000, 0, 0), AT(2), another ? "busy" : "under way");
        if (!another) CHECK_ANSWER(op, ":1\r\n" ACQUIRED, AT(3), "ok");
    }
}

/* There the next acquire may overtake it: over another connection, or another server. */
TEST(an_acquire_waits_for_an_async_release_that_it_could_otherwise_overtake) {
    for (int where = 0; where < 4; where++) {
        hold_own();
        hf_topology topology = *topology_of(&rig.client);
        const hf_topology *before = topology_of(&rig.client);
        send_release(AT(1));
        sent_over(CALLS);
        topology.slots_can_move = where >= 2;
        set_topology(&rig.client, &topology);
        set_member(&rig.client, where < 2);
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(1), spec.owner = HF_NO_TEXT,
                          spec.wait = (hf_time)(where % 2) * HF_SECOND);
        CHECK_OUTCOME(op, "under way");
        CHECK(is_blocked_acquire(op));
        CHECK_SENT(CALLS, "");
        set_topology(&rig.client, before);
        set_member(&rig.client, false);
        CHECK_ANSWER_SENDS(":1\r\n", AT(2), CALLS, ASK("2"));
    }
}

TEST(an_acquire_does_not_wait_for_another_callers_async_release) {
    hold_and_send_release();
    hf_op *op =
        BEGIN(HF_OP_ACQUIRE, AT(1), spec.owner = HF_NO_TEXT, spec.caller = hf_slice_of("you"));
    feed_calls("-NOSCRIPT\r\n", AT(2));
    CHECK_ANSWER(op, busy(29000, 0, 0), AT(2), "busy");
}

/* A permit of `key`, taken by `caller` at AT(0), or asked for. */
static hf_op *begin_permit(hf_op_kind kind, const hf_names *names, const char *caller, hf_time wait,
                           hf_time now) {
    hf_op *op = BEGIN(kind, now, spec.owner = HF_NO_TEXT, spec.lock_kind = &hf_kind_permit,
                      spec.names = names, spec.caller = hf_slice_of(caller),
                      spec.permits = kind == HF_OP_ACQUIRE, spec.wait = wait);
    rig_serve(now);
    return op;
}

/* Each permit has a caller of its own, so a release of any of them is the program's own. */
TEST(an_acquire_of_a_permit_waits_for_an_async_release_of_that_semaphore) {
    static const char *const released[] = {"k", "j"};
    EACH_NUMBER (i, 2) {
        hf_names pool, other;
        if (!hf_names_make_on(&pool, hf_slice_of("k"), &hf_kind_permit)) abort();
        if (!hf_names_make_on(&other, hf_slice_of(released[i]), &hf_kind_permit)) abort();
        hf_op *op = begin_permit(HF_OP_ACQUIRE, &other, "you", 0, AT(0));
        end_with(op, ACQUIRED, AT(0));
        CHECK(hf_op_detach(begin_permit(HF_OP_RELEASE, &other, "you", 0, AT(1))));
        op = begin_permit(HF_OP_ACQUIRE, &pool, "me", 0, AT(1));
        feed_calls("-NOSCRIPT\r\n", AT(2));
        CHECK_ANSWER(op, busy(29000, 0, 0), AT(2), i == 0 ? "under way" : "busy");
        rig_end(AT(3));
        hf_names_free(&pool);
        hf_names_free(&other);
    }
}

/* The server counts the holds of a shared owner together: the release might take the new one. */
TEST(a_shared_owners_acquire_waits_for_its_async_release) {
    end_with(BEGIN(HF_OP_ACQUIRE, AT(0), spec.shared = true), ACQUIRED, AT(0));
    CHECK(hf_op_detach(BEGIN(HF_OP_RELEASE, AT(1), spec.shared = true)));
    sent_over(CALLS);
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(1), spec.shared = true, spec.wait = HF_SECOND);
    rig_tick(AT(1)), CHECK_STR(sent_over(CALLS), "");
    feed_calls(":1\r\n", AT(2)), CHECK_SENT_PART(CALLS, "EVALSHA acquire");
    CHECK_ANSWER(op, ACQUIRED, AT(3), "ok");
}

TEST(an_async_release_of_one_of_two_holds_does_not_report_the_lock_as_released) {
    hold_own();
    end_with(begin_own(HF_OP_ACQUIRE, AT(1)), ACQUIRED, AT(1));
    hf_hold *hold = hold_of();
    CHECK_EQ_INT(count_of(hold), 2);
    send_release(AT(2)), CHECK(is_held(hold)), CHECK(!is_detached(hold));
}

TEST(an_acquire_continues_if_the_async_release_before_it_is_abandoned) {
    hf_op *op = follow();
    CHECK(is_awaiting_release(op));
    hf_op_end(ops_of(&rig.client), AT(3)), CHECK(is_asking(op));
    CHECK(strstr(sent_over(CALLS), ASK("2")) != NULL);
}

TEST(an_async_release_that_runs_out_of_memory_is_not_sent) {
    for (unsigned long nth = 1; nth <= 3; nth++) {
        hold_own();
        hf_op *op = begin_own(HF_OP_RELEASE, AT(1));
        memerr_fail(nth);
        bool detached = hf_op_detach(op);
        CHECK_EQ_INT(memerr_failed(), nth < 3);
        memerr_fail(0), CHECK_EQ_INT(detached, nth == 3);
        CHECK_EQ_INT(hf_op_is_detached(op), detached);
        CHECK_EQ_INT(detached_count(&rig.client), detached);
    }
}

CHECK_MAIN
