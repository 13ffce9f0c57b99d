#include "op/events.h"
#include "op/operation.h"

#include "rig.h"

#define KEYS_OF_POOL "5 k redisson_lock_token:{k} holdfast_queue:{k} redisson_sc:{k} {k}:timeout "
#define ONE DRIVE_UUID ":1"
#define THREE DRIVE_UUID ":1*3"
#define MEMBER_OF_ONE "1p" DRIVE_UUID ":1:1000"
#define MEMBER_OF_THREE "1p" DRIVE_UUID ":1:1000 " THREE

static void pool_begin(void) {
    rig_begin();
    hf_names_free(&rig.names);
    if (!hf_names_make_on(&rig.names, hf_slice_of("k"), &hf_kind_permit)) abort();
}

RIG_BEGINS_WITH(pool_begin)

static hf_op_spec permits_spec(hf_op_kind kind, uint32_t permits) {
    hf_op_spec spec = spec_of(kind);
    spec.lock_kind = &hf_kind_permit;
    spec.owner = HF_NO_TEXT;
    spec.permits = permits;
    return spec;
}

static hf_op *begin_permits(uint32_t permits, hf_time wait, hf_time now) {
    return BEGIN_SPEC(permits_spec(HF_OP_ACQUIRE, permits), now, spec.wait = wait);
}

static hf_op *begin_call(hf_op_kind kind, hf_time now) {
    hf_op_spec spec = permits_spec(kind, 0);
    return begin_spec(&spec, now);
}

static hf_hold *permits_held(void) {
    return hf_holds_find(holds_of(&rig.client), &hf_kind_permit, hf_slice_of("k"),
                         hf_slice_of("me"));
}

static hf_hold *hold_permits(uint32_t permits, hf_time now) {
    hf_op *op = begin_permits(permits, 0, now);
    sent_over(CALLS);
    end_with(op, ACQUIRED, now);
    return permits_held();
}

/* In the queue, and known to wait there. */
static hf_op *permits_waiting(uint32_t permits, hf_time now) {
    hf_op *op = begin_permits(permits, HF_NEVER, now);
    enter_queue(now);
    return op;
}

TEST(an_acquire_of_permits_sends_the_number_of_permits) {
    hf_op_spec spec = permits_spec(HF_OP_ACQUIRE, 1);
    spec.initial_permits = 5;
    begin_spec(&spec, AT(0));
    CHECK_SENT(CALLS, "EVALSHA permit_acquire " KEYS_OF_POOL ONE " 2000 0 0 30000 1000    5");
    rig_end(AT(1));
    pool_begin();
    spec.initial_permits = 1;
    begin_spec(&spec, AT(2));
    CHECK_SENT(CALLS, "EVALSHA permit_acquire " KEYS_OF_POOL ONE " 2000 0 0 30000 1000    1");
}

TEST(an_acquire_of_permits_whose_outcome_is_unknown_is_undone) {
    hf_op *op = begin_permits(3, 0, AT(0));
    sent_over(CALLS);
    hf_op_abandon(op, AT(1));
    CHECK_SENT_AT(CALLS, AT(1), "EVALSHA permit_leave " KEYS_OF_POOL THREE " 2000 0  ");
    feed_calls(ACQUIRED ":1\r\n", AT(2)), CHECK(!permits_held());
}

TEST(a_busy_message_says_whether_all_permits_are_taken_or_their_number_is_not_set) {
    hf_op *op = begin_permits(1, 0, AT(0));
    CHECK_ANSWER(op, busy(1500, 0, 0), AT(1), "busy");
    CHECK_STR(message_of(op),
              "cannot acquire \"k\" on h:1: its permits are taken, for up to 1.499 s more unless "
              "renewed; wait longer or try again later");
    op = begin_permits(1, 0, AT(2));
    feed_calls(busy(-2, 0, 0), AT(3));
    CHECK_STR(
        message_of(op),
        "cannot acquire \"k\" on h:1: too few permits are free (set the total with the permits "
        "option or set_permits); wait longer or try again later");
}

TEST(a_request_for_more_permits_than_exist_fails_with_conflict) {
    hf_op *op = begin_permits(3, HF_NEVER, AT(0));
    CHECK_ANSWER(op, "*2\r\n:-5\r\n:2\r\n", AT(1), "conflict");
    CHECK_MESSAGE(op, "the semaphore's total is 2, fewer than the 3 permits requested");
    CHECK(!permits_held());
}

TEST(a_waiter_takes_granted_permits_and_confirms_them) {
    hf_op *op = permits_waiting(3, AT(0));
    CHECK_GRANTS(op, "1 grant p 1 5 88 2000 k", AT(500), "ok");
    CHECK(is_granted(permits_held()));
    hf_op_end(op, AT(500));
    CHECK_SENT_UNTIL(RENEWER, AT(500), AT(1200),
                     "EVALSHA permit_extend 2 {k}:timeout holdfast_queue:{k} " THREE
                     " 30000 2000 " MEMBER_OF_THREE " redisson_sc:{k}");
    feed(link_of(RENEWER), ":1\r\n", AT(1201)), CHECK(!is_granted(permits_held()));
}

TEST(a_release_of_permits_before_their_confirmation_removes_their_grant_from_the_queue) {
    hf_op *op = permits_waiting(1, AT(0));
    feed_message("1 grant p 1 5 88 2000 k", AT(500));
    hf_op_end(op, AT(500));
    op = begin_call(HF_OP_RELEASE, AT(501));
    CHECK_SENT(CALLS, "EVALSHA permit_release " KEYS_OF_POOL ONE " 2000 0 30000  " MEMBER_OF_ONE);
    CHECK_ANSWER(op, ":1\r\n", AT(502), "ok");
    CHECK(!permits_held());
}

TEST(a_release_of_permits_that_was_sent_twice_and_finds_them_gone_succeeds) {
    hold_permits(3, AT(0));
    hf_op *op = begin_call(HF_OP_RELEASE, AT(10));
    CHECK_SENT(CALLS, "EVALSHA permit_release " KEYS_OF_POOL THREE " 2000 0 30000 ");
    cut_link(CALLS, "reset", AT(20));
    rig_tick(AT(120));
    CHECK_ANSWER(op, ":-1\r\n", AT(121), "ok");
}

TEST(permits_are_renewed_on_the_key_that_holds_their_leases) {
    hold_permits(3, AT(0));
    rig_sleep(AT(1), AT(10000));
    CHECK_SENT(RENEWER, "EVALSHA permit_renew 1 {k}:timeout " THREE " 30000");
    feed(link_of(RENEWER), "*1\r\n:1\r\n", AT(10001));
    CHECK_EQ_U64(ends_at(permits_held()), AT(39698));
    rig_sleep(AT(10001), AT(20000));
    feed(link_of(RENEWER), "*1\r\n:-1\r\n", AT(20001));
    CHECK_EQ_INT(reason_of(permits_held()), HF_LOST_DELETED);
}

TEST(permits_granted_to_a_wait_that_has_ended_are_released) {
    hf_op *op = permits_waiting(1, AT(0));
    hf_ended_waits_add(ended_of(&rig.client), 7, &hf_kind_permit, hf_slice_of("k"));
    feed_message("1 grant p 7 5 88 2000 k", AT(500));
    CHECK_SENT_AT(RENEWER, AT(500),
                  "EVALSHA permit_leave " KEYS_OF_POOL DRIVE_UUID ":7 2000 0 1p" DRIVE_UUID
                  ":7:0 ");
    CHECK(!hf_op_is_done(op));
}

TEST(set_permits_sets_the_number_of_a_semaphores_permits) {
    hf_op_spec spec = permits_spec(HF_OP_SET, 0);
    spec.value = 9;
    hf_op *op = begin_spec(&spec, AT(0));
    CHECK_SENT(CALLS, "EVALSHA permit_set " KEYS_OF_POOL " 2000 9");
    CHECK_ENDS_WITH(op, ":1\r\n", AT(1), "ok");
    CHECK_SENT_AT(RENEWER, AT(1), ""), CHECK_EQ_INT(holds_left(), 0);
    op = hf_client_begin(&rig.client, &spec, AT(2)); /* dead waiters are left */
    CHECK_ANSWER(op, ":3\r\n", AT(3), "ok");
    CHECK_SENT_AT(RENEWER, AT(3), "EVALSHA permit_leave " KEYS_OF_POOL DRIVE_UUID ":1 2000 0  ");
}

TEST(info_returns_the_state_of_a_semaphore) {
    hf_op *op = begin_call(HF_OP_INFO, AT(0));
    CHECK_SENT(CALLS, "EVALSHA permit_info 4 k redisson_lock_token:{k} holdfast_queue:{k} "
                      "{k}:timeout " DRIVE_UUID);
    CHECK_ANSWER(op, "*8\r\n$0\r\n\r\n:3\r\n:1200\r\n$2\r\n77\r\n:4\r\n:-1\r\n:-1\r\n:-2\r\n",
                 AT(1), "ok");
    CHECK_EQ_INT(info_of(op)->holds, 3);
    CHECK_EQ_INT(info_of(op)->free, -2);
    CHECK_EQ_INT(info_of(op)->ttl_ms, 1200);
    CHECK_EQ_INT(info_of(op)->waiters, 4);
}

CHECK_MAIN
