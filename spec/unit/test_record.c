/* A guard's record of its run. */

#include "calls_rig.h"

TEST(an_idempotent_run_whose_resent_record_is_missing_reports_a_loss) {
    const hf_time keeps[] = {5 * HF_SECOND, 0};
    EACH_NUMBER (i, 2) {
        hold_guard(AT(0));
        hf_op *op = begin_complete(AT(1));
        spec_in(op)->keep = keeps[i];
        cut_link(CALLS, "reset", AT(2));
        rig_tick(AT(50));
        CHECK_ANSWER(op, ":-1\r\n", AT(51), keeps[i] > 0 ? "lost" : "ok");
        CHECK_EQ_INT(holds_left(), 0);
    }
}

/* A caller that waits until nothing is held waits for the record, too. */
TEST(an_idempotent_run_counts_as_held_until_its_record_has_been_written) {
    hold_guard(AT(0));
    hf_op_end(begin_complete(AT(1)), AT(2)), CHECK_EQ_U64(hf_client_load(&rig.client).held, 1);
    sent_over(CALLS);
    feed_calls(":1\r\n", AT(3)), CHECK_EQ_U64(hf_client_load(&rig.client).held, 0);
}

TEST(a_call_that_waits_for_an_idempotent_runs_abandoned_record_fails_as_not_held) {
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    hf_op *waits = BEGIN(HF_OP_CHECK, AT(2), spec.lock_kind = &hf_kind_guard);
    CHECK(hf_op_is_blocked(waits));
    hf_op_abandon(op, AT(3)), CHECK_OUTCOME(waits, "not_held");
}

TEST(an_idempotent_run_whose_record_gets_a_malformed_reply_reports_no_loss) {
    EACH_CASE (i, senseless) {
        hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
        spec.lock_kind = &hf_kind_guard;
        begin_spec(&spec, AT(10));
        feed_calls(ACQUIRED, AT(10));
        spec.kind = HF_OP_COMPLETE;
        spec.keep = HF_SECOND;
        hf_op *op = begin_spec(&spec, AT(11));
        CHECK_ANSWER(op, senseless[i], AT(12), "server");
        CHECK_EQ_U64(stats().losses, 0);
    }
}

CHECK_MAIN
