#include "op/events.h"
#include "op/operation.h"

#include "rig.h"

#define KEYS_OF_POOL "5 k redisson_lock_token:{k} holdfast_queue:{k} redisson_sc:{k} {k}:timeout "
#define ONE DRIVE_UUID ":1"
#define THREE DRIVE_UUID ":1*3"
#define MEMBER_OF_ONE "1p" DRIVE_UUID ":1:1000"

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

TEST(an_acquire_of_permits_whose_outcome_is_unknown_is_undone) {
    hf_op *op = begin_permits(3, 0, AT(0));
    sent_over(CALLS);
    hf_op_abandon(op, AT(1));
    CHECK_SENT_AT(CALLS, AT(1), "EVALSHA permit_leave " KEYS_OF_POOL THREE " 2000 0  ");
    feed_calls(ACQUIRED ":1\r\n", AT(2)), CHECK(!permits_held());
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
