/* What ends a round of a quorum, and what late replies change. */

#include "quorum_calls_rig.h"

TEST(a_quorum_acquire_fails_if_its_grants_expire_while_the_token_is_written_back) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    GRANT_TOKENS(AT(1), 50, 40);
    CHECK_ANSWERS(op, 2, 3, yes(60), AT(1), "under way");
    for (int i = 0; i < 3; i++)
        hf_holds_mark_lost(holds_of(member(i)), hold_in_heap(holds_of(member(i)), 0),
                           HF_LOST_EXPIRED);
    answers(3, 5, "-ERR no\r\n", AT(2));
    CHECK_ANSWERS(op, 0, 2, "-ERR no\r\n", AT(3), "lost");
}

TEST(a_quorum_hold_missing_on_a_server_is_checked_again_soon_while_it_is_renewed) {
    CASES(int servers; bool renewed, again) = {
        {5, true, false}, {3, true, true}, {3, false, false}, {5, false, false}};
    EACH_CASE (i, cases) {
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.renewed = cases[i].renewed);
        for (int j = 0; j < cases[i].servers; j++) feed(link_at(j, CALLS), yes(7), AT(1));
        tick(AT(1)), CHECK_ENDS(op, "ok", AT(1));
        const hf_hold *hold = hold_of();
        hf_time again = AT(1) + 10 * HF_SECOND;
        CHECK_EQ_U64(wakes_at(hold), cases[i].again ? again : ends_at(hold));
    }
}

TEST(an_idempotent_runs_long_record_is_sent_to_every_server_that_holds_the_run) {
    static char record[301];
    memset(record, 'r', 300);
    hf_op *op = begin_guard(AT(0));
    for (int i = 0; i < COUNT; i++) CHECK_CONTAINS(output_by(i), " print");
    answers(0, MAJORITY, yes(7), AT(1)), CHECK_ENDS(op, "ok", AT(1));
    rig_hush();
    op = BEGIN(HF_OP_COMPLETE, AT(2), spec.lock_kind = &hf_kind_guard,
               spec.fingerprint = hf_slice_of("print"), spec.result = hf_slice_of(record),
               spec.keep = 5 * HF_SECOND);
    for (int i = 0; i < MAJORITY; i++) CHECK_CONTAINS(output_by(i), record);
    CHECK_ANSWERS(op, 0, MAJORITY - 1, ":1\r\n", AT(3), "under way");
    CHECK_ANSWERS(op, MAJORITY - 1, MAJORITY, ":1\r\n", AT(3), "ok");
}

TEST(an_idempotent_runs_record_waits_for_a_slow_server_that_a_majority_needs) {
    hf_op *op = begin_guard(AT(0));
    answers(0, MAJORITY, yes(7), AT(1)), CHECK_ENDS(op, "ok", AT(1));
    op = BEGIN(HF_OP_COMPLETE, AT(2), spec.lock_kind = &hf_kind_guard, spec.keep = 5 * HF_SECOND);
    CHECK_ANSWERS(op, 0, MAJORITY - 1, ":1\r\n", AT(3), "under way");
    tick(AT(1400)), CHECK_OUTCOME(op, "under way");
    CHECK_ANSWERS(op, MAJORITY - 1, MAJORITY, ":1\r\n", AT(1401), "ok");
}

TEST(a_client_that_waits_for_a_quorum_publishes_its_name) {
    hf_client_introduce(&rig.client, "host 7 name");
    begin_quorum(HF_OP_ACQUIRE, 60 * HF_SECOND, AT(0));
    answers(0, COUNT, busy(20000, 0, 0), AT(1));
    rig_hush();
    bool published = false;
    for (int ms = 2; ms < 400 && !published; ms += 2) {
        tick(AT(ms));
        for (int i = 0; i < COUNT; i++) {
            if (strstr(output_by(i), "acquire")) answer(i, busy(20000, 0, 0), AT(ms));
        }
        published = strstr(output_of(link_at(0, RENEWER)), "SET holdfast_client:") != NULL;
    }
    CHECK(published);
}

TEST(a_quorum_hold_is_lost_at_the_end_of_its_lease_even_if_it_was_checked_before) {
    hold_by(3, AT(0));
    answers(3, 5, busy(20000, 0, 0), AT(1));
    hf_hold *hold = watch(hold_of());
    hf_time end = ends_at(hold);
    CHECK(wakes_at(hold) < end);
    for (int i = 0; i < COUNT; i++) {
        rig.down[i] = "refused";
        hf_session_closed(link_at(i, CALLS), "gone", AT(2));
    }
    pass(AT(2), end - 1), CHECK(is_held(hold));
    pass(end - 1, end + 1), CHECK(is_lost(hold));
}

TEST(a_quorum_hold_is_restored_on_a_server_under_a_new_suffix_of_its_owner) {
    char copy[64];
    hold_by(3, AT(0));
    answers(3, 5, busy(20000, 0, 0), AT(1));
    hf_slice owner = hf_hold_owner(hold_of());
    snprintf(copy, sizeof copy, " %.*s.1 2000 ", (int)owner.size, owner.data);
    begin_quorum(HF_OP_ACQUIRE, 0, AT(10));
    for (int i = 3; i < COUNT; i++) CHECK_CONTAINS(output_by(i), copy);
}

TEST(an_idempotent_runs_record_that_no_majority_stored_is_not_resent) {
    hf_op *op = begin_guard(AT(0));
    answers(0, COUNT, yes(7), AT(1));
    hf_op_end(op, AT(1));
    op = BEGIN(HF_OP_COMPLETE, AT(2), spec.lock_kind = &hf_kind_guard, spec.keep = 5 * HF_SECOND);
    answers(0, 2, ":1\r\n", AT(3));
    CHECK_ANSWERS(op, 2, COUNT, "-ERR no\r\n", AT(3), "no_quorum");
    CHECK_CONTAINS(message_of(op),
                   "2 of 5 recorded it (the others keep the lock until its lease ends): s3 server");
    hf_op_end(op, AT(3));
    rig_hush();
    pass(AT(3), AT(1000));
    for (int i = 0; i < COUNT * HF_LINKS; i++)
        CHECK_STR(output_of(hf_client_link(&rig.client, (size_t)i)), "");
}

TEST(an_idempotent_runs_record_on_a_majority_keeps_the_run_locked_on_the_other_servers) {
    hf_op *op = begin_guard(AT(0));
    answers(0, COUNT, yes(7), AT(1));
    hf_op_end(op, AT(1));
    op = BEGIN(HF_OP_COMPLETE, AT(2), spec.lock_kind = &hf_kind_guard, spec.keep = 5 * HF_SECOND);
    CHECK_ANSWERS_END(op, 0, MAJORITY, ":1\r\n", AT(3), "ok");
    for (int i = MAJORITY; i < COUNT; i++) {
        const hf_hold *part =
            hf_holds_find(holds_of(member(i)), &hf_kind_guard, hf_slice_of("k"), hf_slice_of("me"));
        CHECK(part);
        CHECK(is_held(part));
    }
}

TEST(a_quorum_attempt_waits_for_slow_servers_ten_times_as_long_as_for_its_majority) {
    CASES(int answered, most) = {{100, 1100}, {10, 260}, {25, 275}, {26, 286}, {1000, 3000}};
    EACH_CASE (i, cases) {
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
        answers(0, 2, yes(7), AT(cases[i].answered));
        answers(2, 4, busy(20000, 0, 0), AT(cases[i].answered));
        CHECK_EQ_U64(round_of(op)->decide_by, AT(cases[i].most));
    }
}

TEST(a_quorum_call_skips_only_servers_that_have_just_refused_a_connection) {
    CASES(unsigned opens_since_reply; hf_code code; bool skipped) = {
        {1, HF_UNREACHABLE, true}, {0, HF_UNREACHABLE, false}, {1, HF_DENIED, false}};
    EACH_CASE (i, cases) {
        rig.down[0] = "refused";
        hf_op_end(begin_quorum(HF_OP_TTL, 0, AT(0)), AT(0));
        hf_session *calls = link_at(0, CALLS);
        CHECK(calls->state == HF_SESSION_CLOSED);
        calls->opens_since_reply = cases[i].opens_since_reply;
        calls->reason_code = cases[i].code;
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(50));
        CHECK_OR(round_of(op)->votes[0].skipped == cases[i].skipped, "case %zu", i);
    }
}

TEST(a_quorum_call_tries_all_servers_if_all_have_just_refused_a_connection) {
    for (int i = 0; i < COUNT; i++) rig.down[i] = "refused";
    hf_op *op = begin_quorum(HF_OP_TTL, 0, AT(0));
    CHECK_ENDS(op, "no_quorum", AT(0));
    hf_op_spec spec = spec_of(HF_OP_TTL);
    op = hf_client_begin(&rig.client, &spec, AT(50));
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ_INT(hf_session_wants(link_at(i, CALLS), AT(50)), HF_WANT_OPEN);
}

TEST(abandoning_a_shared_owners_quorum_hold_keeps_its_other_processes_holds) {
    hold_by(5, AT(0));
    hold_by(5, AT(1));
    hf_hold *hold = hold_of();
    for (int i = 0; i < COUNT; i++) {
        set_count(member_holds_of(hold)[i], 4);
        set_others(member_holds_of(hold)[i], 2);
    }
    abandon_hold(hold, 1, AT(2)), CHECK_EQ_INT(parts_held(), 5);
    for (int i = 0; i < COUNT; i++) CHECK_EQ_INT(count_of(member_holds_of(hold)[i]), 3);
}

TEST(a_quorum_restores_only_holds_that_are_held_and_renewed) {
    CASES(bool renewed, lost) = {{true, false}, {false, false}, {true, true}};
    EACH_CASE (i, cases) {
        hold_by(3, AT(0));
        answers(3, 5, busy(20000, 0, 0), AT(1));
        rig_hush();
        hf_hold *hold = hold_of();
        set_renewed(hold, cases[i].renewed);
        if (cases[i].lost) lose_hold(hold, HF_LOST_TAKEN);
        hf_holds_set_wake_at(holds_of(&rig.client), claim_of(hold), AT(100));
        tick(AT(100));
        bool repaired = strstr(output_by(4), "EVALSHA acquire") != NULL;
        CHECK_OR(repaired == (i == 0), "case %zu", i);
    }
}

/* It is too late for the vote, but not for what it has taken. */
TEST(a_grant_that_arrives_after_a_quorum_has_decided_is_undone) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < 2; i++) answer(i, yes(50 + (unsigned)i), AT(1));
    answer(2, busy(20000, 0, 0), AT(1));
    hf_time end = round_of(op)->decide_by; /* the others have a moment */
    feed(link_at(3, CALLS), yes(52), end);
    hf_client_tick_calls(&rig.client, end);
    CHECK_EQ_INT(round_of(op)->state, HF_ROUND_WRITING_BACK);
    CHECK(round_of(op)->votes[4].counted && !hf_op_is_done(round_of(op)->votes[4].op));
    feed(link_at(4, CALLS), yes(60), end + HF_MS), CHECK_EQ_INT(part_state(4), HF_HOLD_HELD);
    CHECK_ANSWERS(op, 0, 2, ":1\r\n", end + 2 * HF_MS, "ok");
    CHECK_EQ_INT(part_state(3), HF_HOLD_HELD);
    CHECK_EQ_INT(part_state(4), CLEANING_UP);
}

TEST(a_forced_release_in_a_quorum_does_not_report_a_hold_as_lost_twice) {
    hf_op *acquire = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    hf_op *op = begin_quorum(HF_OP_FORCE, 0, AT(1));
    CHECK_ANSWERS(acquire, 0, 3, yes(7), AT(2), "ok");
    lose_hold(hold_of(), HF_LOST_TAKEN);
    answers(0, 5, ":1\r\n", AT(3));
    CHECK_PASS(op, AT(3), AT(600), "ok");
    CHECK_EQ_U64(stats().losses, 1);
    CHECK_EQ_INT(reason_of(hold_of()), HF_LOST_TAKEN);
}

TEST(a_quorum_acquire_works_for_a_shared_owner_of_one_letter) {
    hf_op *op =
        BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.caller = hf_slice_of("x"), spec.shared = true);
    CHECK(strstr(output_by(0), " x 2000 0 1 30000 "));
    CHECK_ANSWERS(op, 0, 3, yes(7), AT(1), "ok");
    const hf_hold *part = member_holds_of(hold_in(op))[0];
    CHECK(hf_slice_equal(hf_hold_caller(part), hf_slice_of("x")));
}

TEST(an_interrupted_quorum_acquire_waits_up_to_250_ms_for_a_majority) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 9 * HF_SECOND, AT(0));
    answers(0, 2, yes(7), AT(1));
    hf_op_interrupt(op, AT(2));
    tick(AT(3)), CHECK_OUTCOME(op, "under way");
    CHECK_ANSWERS(op, 2, 3, yes(7), AT(4), "ok");
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(5));
    hf_op_interrupt(check, AT(5)); /* it does not wait */
    CHECK_OUTCOME(check, "under way");
    start();
    op = begin_quorum(HF_OP_ACQUIRE, 9 * HF_SECOND, AT(0));
    answers(0, 2, yes(7), AT(1));
    hf_op_interrupt(op, AT(2));
    CHECK_PASS(op, AT(2), AT(252), "interrupted");
}

TEST(a_re_entered_quorum_hold_is_renewed_if_either_acquire_requested_renewal) {
    EACH_NUMBER (i, 4) {
        hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.renewed = i & 1);
        answers(0, 3, yes(7), AT(1)), CHECK_EQ_INT(is_renewed(hold_in(op)), i & 1);
        hf_op_end(op, AT(1));
        op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(2), spec.renewed = i & 2, spec.lease = 40 * HF_SECOND);
        CHECK_ANSWERS(op, 0, 3, yes(7), AT(3), "ok");
        CHECK_EQ_INT(is_renewed(hold_in(op)), i > 0);
        CHECK_EQ_U64(lease_of(hold_in(op)), 40 * HF_SECOND);
    }
}

TEST(an_abandoned_quorum_hold_undoes_a_late_grant_that_has_just_arrived) {
    hold_by(3, AT(0)), CHECK(quorum_of(&rig.client)->late_replies);
    feed(link_at(4, CALLS), yes(5), AT(1)); /* not counted yet */
    abandon_hold(hold_of(), 1, AT(1));
    tick(AT(2)), CHECK(!quorum_of(&rig.client)->late_replies),
        CHECK_EQ_INT(part_state(4), CLEANING_UP), CHECK_EQ_INT(part_state(3), CLEANING_UP);
}

TEST(an_abandoned_quorum_acquire_leaves_no_hold_in_the_client) {
    hf_op_end(begin_quorum(HF_OP_ACQUIRE, 0, AT(0)), AT(1)), CHECK_EQ_INT(holds_left(), 0);
}

TEST(a_quorum_re_entry_reports_that_its_hold_was_lost_in_the_meantime) {
    EACH_NUMBER (granted, 2) {
        hold_by(5, AT(0));
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 60 * HF_SECOND, AT(1));
        hf_op *behind = begin_quorum(HF_OP_CHECK, 0, AT(1));
        CHECK(hf_op_is_blocked(behind));
        lose_hold(hold_of(), HF_LOST_TAKEN);
        CHECK_ANSWERS(op, 0, 3, granted ? yes(77) : busy(20000, 0, 0), AT(2), "lost");
        CHECK_CONTAINS(message_of(op),
                       granted ? "this owner lost the lock in the meantime" : "busy");
        CHECK_OUTCOME(behind, "lost");
        hf_op_end(op, AT(2)), CHECK_EQ_INT(state_of(), HF_HOLD_LOST);
        CHECK(!is_in_flight(hold_of()));
    }
}

/* The members know it, and the quorum has not checked them since. */
TEST(a_failed_quorum_re_entry_reports_a_loss_that_no_call_has_reported_yet) {
    hold_by(5, AT(0));
    hf_hold *hold = hold_of();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    for (int i = 0; i < MAJORITY; i++) {
        hf_client_lose(member(i), member_holds_of(hold)[i], HF_LOST_TAKEN);
        feed(link_at(i, CALLS), "-ERR no\r\n", AT(2));
    }
    CHECK(is_held(hold));
    hf_client_tick_calls(&rig.client, AT(2)), CHECK_OUTCOME(op, "lost"), CHECK(is_lost(hold));
}

TEST(the_error_of_a_failed_quorum_acquire_fits_its_buffer_even_with_long_server_names) {
    for (int i = 0; i < COUNT; i++) {
        memset(servers[i].label, 'a' + i, sizeof servers[i].label - 1);
        servers[i].label[sizeof servers[i].label - 1] = '\0';
    }
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answers(0, 5, "-ERR no\r\n", AT(1));
    pass(AT(1), AT(600)), CHECK_CONTAINS(message_of(op), "0 of 5 granted");
    CHECK_CONTAINS(message_of(op), "aaaa server, bbbb");
}

TEST(an_abandoned_quorum_hold_is_counted_as_released) {
    hf_observe_class(&rig.client, "");
    observer_of(&rig.client)->wants_all = true;
    hold_by(5, AT(0));
    abandon_hold(hold_of(), 1, AT(7));
    CHECK_EQ_INT(observer_of(&rig.client)->classes[0]->releases, 1);
    CHECK_EQ_U64(observer_of(&rig.client)->classes[0]->held.sum, 7 * HF_MS);
}

TEST(a_quorum_client_wakes_up_at_the_earliest_deadline_of_its_servers_connections) {
    EACH_NUMBER (first, COUNT) {
        begin_quorum(HF_OP_TTL, 0, AT(0));
        hf_session *link = link_at(first, CALLS);
        link->awaiting_since = link->received_at = AT(0) - HF_SECOND;
        CHECK_EQ_U64(calls_next_tick(), AT(500));
    }
}

/* A late reply may outlive what its caller has passed. */
TEST(the_calls_of_a_quorum_client_copy_the_strings_of_their_caller) {
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_guard;
    spec.shared = true;
    spec.fingerprint = hf_slice_of("print");
    spec.result = hf_slice_of("result");
    hf_op *op = begin_round(&spec, AT(0));
    const hf_op_spec *own = spec_in(round_of(op)->votes[0].op);
    CHECK(hf_slice_equal(own->caller, spec.caller) && own->caller.data != spec.caller.data);
    CHECK(hf_slice_equal(own->owner, spec.owner) && own->owner.data != spec.owner.data);
    CHECK(hf_slice_equal(own->fingerprint, spec.fingerprint));
    CHECK(own->fingerprint.data != spec.fingerprint.data);
    CHECK(hf_slice_equal(own->result, spec.result) && own->result.data != spec.result.data);
    CHECK(own->names != spec.names && hf_slice_equal(own->names->key, spec.names->key));
}

TEST(a_quorum_acquire_whose_token_write_failed_still_succeeds_with_later_grants) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    GRANT_TOKENS(AT(1), 50, 40, 60);
    CHECK_ANSWERS(op, 0, 2, "-ERR no\r\n", AT(2), "under way");
    CHECK_ANSWERS(op, 3, 5, yes(70), AT(3), "ok");
    CHECK_EQ_U64(token_of(hold_of()), 60);
}

TEST(a_forced_release_in_a_quorum_ends_its_callers_own_hold_before_it_checks_the_servers) {
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_FORCE, 0, AT(1));
    for (int i = 0; i < COUNT; i++) feed(link_at(i, CALLS), ":1\r\n", AT(2));
    CHECK_EQ_INT(state_of(), HF_HOLD_HELD);
    hf_client_tick_calls(&rig.client, AT(2)), CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(state_of(), HF_HOLD_LOST);
    CHECK_EQ_INT(reason_of(hold_of()), HF_LOST_DELETED);
}

TEST(a_quorums_ping_ends_as_soon_as_a_majority_has_answered_or_is_no_longer_possible) {
    static const char *const cases[][2] = {{"+PONG\r\n", "ok"}, {"-ERR no\r\n", "no_quorum"}};
    EACH_CASE (i, cases) {
        hf_op *op = begin_quorum(HF_OP_PING, 0, AT(0));
        CHECK_ANSWERS(op, 0, 2, cases[i][0], AT(1), "under way");
        CHECK_ANSWERS(op, 2, 3, cases[i][0], AT(1), cases[i][1]);
    }
}

/* The leave goes over the callers' link, which is down: the member's operation waits for that. */
TEST(a_quorum_acquire_of_unknown_outcome_is_undone_as_soon_as_its_connection_is_back) {
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
    hf_op *op = hf_client_begin(member(0), &spec, AT(0));
    rig_serve(AT(0));
    hf_op_end(op, AT(1)); /* it may have been acquired */
    rig.down[0] = "refused";
    hf_session *calls = link_at(0, CALLS);
    hf_session_closed(calls, "gone", AT(1));
    hf_time now = AT(1);
    for (; calls->opens_since_reply < 9; now += 100 * HF_MS) tick(now);
    CHECK_EQ_INT(part_state(0), CLEANING_UP);
    CHECK(calls->state == HF_SESSION_CLOSED && calls->retry_at > now);
    rig.down[0] = NULL;
    now = hf_time_max(now, calls->opened_at + 101 * HF_MS), CHECK(calls->retry_at > now);
    hf_client_begin(&rig.client, &spec, now);
    CHECK_EQ_INT(hf_session_wants(calls, now), HF_WANT_OPEN);
}

TEST(a_skipped_server_that_receives_the_request_later_has_the_full_command_timeout) {
    rig.down[0] = rig.down[1] = "refused";
    hf_op_end(begin_quorum(HF_OP_TTL, 0, AT(0)), AT(0));
    rig.down[0] = rig.down[1] = NULL;
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(50));
    CHECK(round_of(op)->votes[0].skipped && round_of(op)->votes[1].skipped);
    CHECK_EQ_U64(round_of(op)->decide_by, AT(3050));
    answer(2, ":1\r\n-ERR no\r\n", AT(2000)); /* also that of the first command */
    CHECK(!round_of(op)->votes[0].skipped && !round_of(op)->votes[1].skipped);
    CHECK_EQ_U64(round_of(op)->decide_by, AT(5000));
}

CHECK_MAIN
