#include "op/operation.h"

#include "rig.h"

RIG_BEGINS

static hf_op *begin_pause(hf_time wait, hf_time now) {
    hf_op_spec spec = {.kind = HF_OP_PAUSE, .wait = wait, .node = 1};
    return hf_client_begin(&rig.client, &spec, now);
}

TEST(a_pause_between_two_attempts_ends_when_its_time_has_passed_and_opens_no_connection) {
    hf_op *op = begin_pause(100 * HF_MS, AT(0));
    CHECK_EQ_U64(hf_op_next_tick(op), AT(100));
    CHECK_EQ_U64(client_next_tick(), AT(100));
    rig_tick(AT(99)), CHECK(!hf_op_is_done(op));
    CHECK_TICK(op, AT(100), "ok");
    CHECK_EQ_U64(rig.opens, 0);
}

TEST(a_pause_between_two_attempts_is_ended_by_a_signal_or_by_closing_the_client) {
    hf_op *op = begin_pause(HF_SECOND, AT(0)), *other = begin_pause(HF_SECOND, AT(0));
    hf_op_interrupt(op, AT(5)), CHECK_EQ_INT(hf_op_code(op), HF_INTERRUPTED);
    CHECK(!hf_op_is_done(other));
    close_rig(AT(6)), CHECK_EQ_INT(hf_op_code(other), HF_CLOSED);
}

CHECK_MAIN
