/* Holds of a quorum: how they come, who shares them, why they are lost, and what is counted. */

#include "quorum_calls_rig.h"

TEST(an_idempotent_run_in_a_quorum_is_a_duplicate_if_one_server_has_its_record) {
    hf_op *op = begin_guard(AT(0));
    GRANT_TOKENS(AT(1), 7, 7);
    CHECK_ANSWERS(op, 2, 3, busy(20000, 0, 0), AT(1), "under way");
    answer(4, "*2\r\n:3\r\n$3\r\nold\r\n", AT(1));
    CHECK_PASS(op, AT(1), AT(2000), "duplicate");
    CHECK_MEM(record_of(op), record_size_of(op), "old", 3);
    CHECK_EQ_INT(holds_left(), 0);
}

/* On a minority a lock may exist for a moment after its release. */
TEST(a_quorum_acquire_ignores_a_lock_of_a_different_kind_on_a_minority) {
    static const char other_kind[] = "*1\r\n:-6\r\n";
    static const char *const outcomes[] = {"ok", "busy", "busy", "conflict"};
    EACH_NUMBER (others, 4) {
        hf_op *op = begin_guard(AT(0));
        answers(0, others, other_kind, AT(1));
        CHECK_OUTCOME(op, others < MAJORITY ? "under way" : "conflict");
        if (others < MAJORITY) answers(others, 5, others ? busy(20000, 0, 0) : yes(7), AT(1));
        CHECK_OUTCOME(op, outcomes[others]);
    }
}

TEST(an_idempotent_run_in_a_quorum_is_a_mismatch_if_one_server_has_another_fingerprint) {
    hf_op *op = begin_guard(AT(0));
    answer(0, "*1\r\n:4\r\n", AT(1));
    for (int i = 1; i < 3; i++) answer(i, busy(20000, 0, 0), AT(1));
    CHECK_OUTCOME(op, "mismatch");
    CHECK(!record_of(op));
}

TEST(a_blocking_quorum_wait_for_a_lock_that_the_same_client_holds_fails_as_a_deadlock) {
    EACH_NUMBER (blocking, 2) {
        hold_by(5, AT(0));
        hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(1), spec.caller = spec.owner = hf_slice_of("you"),
                                spec.wait = 5 * HF_SECOND, spec.blocks_callers = blocking);
        CHECK_ANSWERS(op, 0, 5, busy(29000, 0, 0), AT(2), blocking ? "deadlock" : "under way");
        if (blocking) CHECK_CONTAINS(message_of(op), "another owner in this client holds it");
    }
}

TEST(a_quorum_acquire_without_fencing_succeeds_with_the_first_majority) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.token_ttl_ms = 0);
    for (int i = 0; i < MAJORITY; i++) answer(i, yes(40 + (unsigned)i), AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(token_of(hold_of()), 0);
}

TEST(a_shorter_quorum_re_entry_keeps_the_longer_lease) {
    hold_by(5, AT(0));
    hf_hold *hold = hold_of();
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(1), spec.lease = HF_SECOND, spec.renewed = false);
    for (int i = 0; i < MAJORITY; i++) answer(i, yes(90), AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK(is_renewed(hold));
    CHECK_EQ_U64(lease_of(hold), 30 * HF_SECOND);
    CHECK_EQ_U64(token_of(hold), 77);
    CHECK_EQ_INT(count_of(hold), 2);
}

TEST(a_quorums_counters_are_the_sums_over_its_servers) {
    for (int i = 0; i < COUNT; i++) {
        hf_stats *stats = counters_of(member(i));
        stats->renewals = 1;
        stats->renew_batches = 2;
        stats->late_renewals = 3;
        stats->undone = 4;
        stats->acquires = 5; /* the quorum has its own */
    }
    hf_stats counted = stats();
    CHECK_EQ_U64(counted.renewals, 5);
    CHECK_EQ_U64(counted.renew_batches, 10);
    CHECK_EQ_U64(counted.late_renewals, 15);
    CHECK_EQ_U64(counted.undone, 20);
    CHECK_EQ_U64(counted.acquires, 0);
}

TEST(approving_a_quorum_hold_skips_a_server_that_lacks_it) {
    for (int i = 0; i < COUNT; i++) config_in(member(i))->needs_approval = true;
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answers(1, COUNT, yes(77), AT(0));
    hf_op_end(op, AT(0));
    rig_hush();
    pass(AT(0), AT(11000)), CHECK_EQ_U64(hf_client_approval_requests(&rig.client), 4);
    for (int i = 0; i < COUNT; i++) CHECK_STR(output_of(link_at(i, RENEWER)), "");
    rig_hush(), CHECK(!member_holds_of(hold_of())[0]);
    hf_client_approve(&rig.client, hold_of(), AT(11000));
    tick(AT(11000));
    for (int i = 1; i < COUNT; i++)
        CHECK_CONTAINS(output_of(link_at(i, RENEWER)), "EVALSHA renew 1 k");
}

TEST(a_quorum_hold_whose_renewal_is_switched_on_is_soon_restored_on_a_server_that_lacks_it) {
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.renewed = false);
    answers(0, 4, yes(77), AT(0));
    answer(4, busy(20000, 0, 0), AT(0));
    hf_op_end(op, AT(0)), CHECK(wakes_at(hold_of()) > AT(20000));
    hf_client_set_renewed(&rig.client, hold_of(), true, AT(1000));
    CHECK(wakes_at(hold_of()) <= AT(11000));
}

TEST(a_quorum_hold_whose_renewal_is_switched_off_is_renewed_on_no_server) {
    hold_by(4, AT(0));
    hf_client_set_renewed(&rig.client, hold_of(), false, AT(1));
    pass(AT(1), AT(11000));
    for (int i = 0; i < COUNT; i++) CHECK_STR(output_of(link_at(i, RENEWER)), "");
    hf_client_set_renewed(&rig.client, hold_of(), true, AT(11000));
    tick(AT(11000));
    for (int i = 0; i < 4; i++) CHECK_CONTAINS(output_of(link_at(i, RENEWER)), "EVALSHA renew 1 k");
}

TEST(a_quorums_acquire_is_counted_once_and_its_renewals_once_for_each_server) {
    hf_observe_class(&rig.client, "");
    observer_of(&rig.client)->wants_all = true;
    hold_by(5, AT(0));
    pass(AT(0), AT(10100));
    for (int i = 0; i < COUNT; i++) feed(link_at(i, RENEWER), "*1\r\n:1\r\n", AT(10100));
    hf_class *class = observer_of(&rig.client)->classes[0];
    CHECK_EQ_INT(class->renewals, 5);
    CHECK_EQ_INT(class->outcomes[HF_OK], 1);
    int acquired = 0, opened = 0;
    for (hf_event *event = hf_observe_take(&rig.client), *next; event; event = next) {
        next = event->next;
        acquired += event->kind == HF_EVENT_ACQUIRED;
        opened += event->kind == HF_EVENT_OPENED;
        free(event);
    }
    CHECK_EQ_INT(acquired, 1);
    CHECK_EQ_INT(opened, 10);
    CHECK(!observer_of(member(0))->first);
}

TEST(a_closed_quorum_client_is_done_once_every_server_has_replied) {
    EACH_NUMBER (last, COUNT) {
        hold_by(5, AT(0)), CHECK(is_quiet());
        close_rig(AT(1));
        tick(AT(1));
        for (int i = 1; i <= COUNT; i++) {
            CHECK(!is_quiet());
            feed(link_at((last + i) % COUNT, RENEWER), ":1\r\n", AT(2));
            tick(AT(2));
        }
        CHECK(is_quiet());
    }
}

TEST(
    a_closed_quorum_client_awaits_late_replies_for_250_ms_or_ten_times_as_long_as_a_majority_took) {
    static const struct { int majority_at, end; } cases[] = {{30, 280}, {50, 450}};
    EACH_CASE (i, cases) {
        hf_time answered = AT(cases[i].majority_at), end = AT(cases[i].end);
        hold_by(5, AT(0));
        close_rig(AT(10));
        tick(AT(10));
        for (int j = 0; j < MAJORITY; j++) feed(link_at(j, RENEWER), ":1\r\n", answered);
        tick(answered);
        pass(answered, end - HF_MS), CHECK(!is_quiet()), CHECK_EQ_U64(client_next_tick(), end);
        pass(end - HF_MS, end), CHECK(is_quiet());
    }
}

TEST(the_reason_of_a_quorum_loss_is_one_that_a_server_gave_rather_than_unreachable) {
    CASES(hf_lost_reason reasons[MAJORITY], reason) = {
        {{HF_LOST_TAKEN, HF_LOST_UNREACHABLE, HF_LOST_UNREACHABLE}, HF_LOST_TAKEN},
        {{HF_LOST_UNREACHABLE, HF_LOST_UNREACHABLE, HF_LOST_TAKEN}, HF_LOST_TAKEN},
        {{HF_LOST_EXPIRED, HF_LOST_UNREACHABLE, HF_LOST_EXPIRED}, HF_LOST_UNREACHABLE},
        {{HF_LOST_EXPIRED, HF_LOST_DELETED, HF_LOST_TAKEN}, HF_LOST_DELETED},
        {{HF_LOST_UNREACHABLE, HF_LOST_EXPIRED, HF_LOST_EXPIRED}, HF_LOST_UNREACHABLE},
    };
    EACH_CASE (i, cases) {
        hold_by(5, AT(0));
        hf_hold *hold = hold_of();
        for (int j = 0; j < MAJORITY; j++)
            hf_client_lose(member(j), member_holds_of(hold)[j], cases[i].reasons[j]);
        CHECK(is_held(hold));
        tick(AT(1)), CHECK(is_lost(hold));
        CHECK_OR(reason_of(hold) == cases[i].reason, "case %zu: %s", i,
                 hf_lost_reason_name(reason_of(hold)));
    }
}

TEST(a_shared_owners_quorum_hold_is_restored_under_the_same_owner) {
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.shared = true);
    answers(0, 4, yes(77), AT(0));
    answer(4, busy(20000, 0, 0), AT(0));
    hf_op_end(op, AT(0));
    rig_hush();
    hf_holds_set_wake_at(holds_of(&rig.client), claim_of(hold_of()), AT(100));
    tick(AT(100)), CHECK_CONTAINS(output_by(4), "EVALSHA acquire " KEYS_OF_K "0 1 30000 1000");
}

TEST(a_quorum_token_assumes_that_unknown_server_clocks_agree_with_the_others) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 1; i <= MAJORITY; i++) /* 100 s behind ours; the first one's is not known */
        answer(i, yes_at(AT(0) - 100 * HF_SECOND), AT(0));
    CHECK_ENDS(op, "ok", AT(0));
    uint64_t proposal = hf_quorum_propose(quorum_of(&rig.client), AT(0));
    CHECK_EQ_U64(proposal, AT(0) / 1000 - 100000000 + 2000);
}

TEST(a_quorums_proposed_token_allows_for_an_attempt_as_long_as_the_last) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, HF_SECOND, AT(0));
    answers(0, COUNT, busy(20000, 0, 0), AT(5)); /* an attempt that failed is no measure */
    hf_time again = round_of(op)->retry_at;
    tick(again);
    CHECK_ANSWERS_END(op, 0, COUNT, yes_at(again), again + 100 * HF_MS, "ok");
    uint64_t proposal = hf_quorum_propose(quorum_of(&rig.client), AT(1000));
    CHECK_EQ_U64(proposal, (AT(1000) + 102 * HF_MS) / 1000);
}

TEST(a_slow_quorum_attempt_moves_the_proposed_token_by_at_most_a_second) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    CHECK_ANSWERS_END(op, 0, COUNT, yes_at(AT(0)), AT(1400), "ok");
    CHECK_EQ_U64(hf_quorum_propose(quorum_of(&rig.client), AT(3000)), AT(4002) / 1000);
}

TEST(a_quorums_proposed_token_is_never_negative) {
    hf_quorum *quorum = quorum_of(&rig.client);
    quorum->clocks_known = true;
    for (int i = 0; i < COUNT; i++) quorum->clock_leads_us[i] = -(int64_t)(AT(0) / 1000);
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0)), 2000);
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0) - 2 * HF_MS + 1000), 1);
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0) - 2 * HF_MS), 0);
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0) - HF_SECOND), 0);
    quorum->clock_leads_us[3] += 5;
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0)), 2005);
}

TEST(a_quorum_hold_is_not_restored_on_a_server_that_has_not_replied_yet) {
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.lease = HF_SECOND);
    for (int i = 0; i < 3; i++) answer(i, yes(7), AT(1));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1));
    answer(3, busy(100, 0, 0), AT(1));
    rig_hush();
    pass(AT(1), AT(500)); /* a third of the lease is over */
    CHECK_EQ_INT(state_of(), HF_HOLD_HELD);
    CHECK_CONTAINS(output_by(3), "EVALSHA acquire");
    CHECK_STR(output_by(4), "");
}

TEST(each_server_of_a_quorum_client_has_a_uuid_of_its_own) {
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < i; j++)
            CHECK(strcmp(hf_client_uuid(member(i)), hf_client_uuid(member(j))) != 0);
    }
}

TEST(a_quorum_client_without_restart_guard_writes_no_mark_for_known_servers) {
    static const char info[] = "$29\r\n# Server\r\nrun_id:0123456789\r\n\r\n";
    for (int i = 0; i < COUNT; i++) config_in(member(i))->session.reads_server_info = true;
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < COUNT; i++)
        answer(i, info, AT(0)), CHECK_STR(link_at(i, CALLS)->run_id, "0123456789");
    for (int i = 0; i < COUNT; i++) answer(i, yes(7), AT(1));
    CHECK_OUTCOME(op, "ok");
    for (int i = 0; i < COUNT; i++) CHECK(!strstr(output_by(i), "holdfast_known"));
}

CHECK_MAIN
