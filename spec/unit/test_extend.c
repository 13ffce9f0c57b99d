/* Extending and checking a hold. */

#include "base/lease.h"

#include "calls_rig.h"

TEST(the_new_lease_of_an_extend_is_measured_from_the_sending_of_its_command) {
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(1000));
    CHECK_SENT(CALLS, EXTEND_OF_K("60000"));
    CHECK(hf_hold_is_valid(hold, AT(1000)));
    CHECK_ANSWER(op, ":1\r\n", AT(1500), "ok");
    CHECK_EQ_U64(lease_of(hold), 60 * HF_SECOND);
    CHECK_EQ_U64(ends_at(hold), AT(1000 + 59398));
    CHECK_EQ_U64(renewer_next_tick(), AT(21000));
    op = begin_extend(HF_SECOND, AT(2000)); /* also a shorter one */
    CHECK_ANSWER(op, ":1\r\n", AT(2001), "ok");
    CHECK_EQ_U64(ends_at(hold), AT(2988));
    op = begin_extend(60 * HF_SECOND, AT(2100)); /* and a longer one again */
    CHECK_ANSWER(op, ":1\r\n", AT(2101), "ok");
    CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(2100), 60 * HF_SECOND));
}

TEST(an_extend_that_finds_the_lock_gone_or_is_answered_after_its_lease_reports_a_loss) {
    CASES(const char *reply; int at; hf_lost_reason reason) = {{":1\r\n", 1988, HF_LOST_EXPIRED},
                                                               {":-2\r\n", 1001, HF_LOST_TAKEN}};
    EACH_CASE (i, cases) {
        hf_hold *hold = hold_times(1, AT(0));
        hf_op *op = begin_extend(HF_SECOND, AT(1000));
        CHECK_ANSWER(op, cases[i].reply, AT(cases[i].at), "lost");
        CHECK_EQ_INT(reason_of(hold), cases[i].reason);
        CHECK_EQ_U64(hf_client_loss_count(&rig.client), 1);
        CHECK(hold_of() == hold); /* until the owner releases it */
    }
}

TEST(after_an_extend_without_a_reply_the_shorter_of_the_two_leases_applies) {
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(10 * HF_SECOND, AT(1000));
    CHECK_SLEEP(op, AT(1000), AT(4000), "unreachable");
    CHECK_EQ_U64(ends_at(hold), AT(1000 + 9898));
    CHECK(is_held(hold));
    for (hf_time now = AT(4000); now < AT(60000);) { /* it may be carried out at any time */
        hf_time next = wakes_at(hold);
        CHECK(next > now && next <= ends_at(hold) - 6 * HF_SECOND);
        CHECK_SENT_UNTIL(RENEWER, now, next, "EVALSHA renew 1 k me 30000");
        feed_renewer("*1\r\n:1\r\n", next + HF_MS);
        CHECK_EQ_U64(ends_at(hold), next + 9898 * HF_MS);
        now = next + HF_MS;
    }
    CHECK(is_held(hold));
}

static hf_hold *hold_granted(hf_time now) {
    hf_op *op = wait_in_queue(HF_NEVER, now);
    feed_message(GRANT("1", "88"), now + 100 * HF_MS);
    hf_op_end(op, now + 100 * HF_MS);
    hf_hold *hold = hold_of();
    if (!hold || !is_granted(hold)) abort();
    return hold;
}

TEST(a_check_also_renews_the_lock_if_a_renewal_is_due) {
    CASES(int ms; bool renewed, renews) = {
        {9999, true, false}, {10000, true, true}, {29000, true, true}, {29000, false, false}};
    EACH_CASE (i, cases) {
        hf_hold *hold = hold_times(1, AT(0));
        set_renewed(hold, cases[i].renewed);
        begin(HF_OP_CHECK, AT(cases[i].ms));
        CHECK_SENT(
            CALLS,
            cases[i].renews
                ? "EVALSHA extend 2 k holdfast_queue:{k} me 30000 0  redisson_lock__channel:{k}"
                : CHECK_OF_K);
        feed_calls(":1\r\n", AT(cases[i].ms + 1));
        CHECK_EQ_U64(ends_at(hold), AT(29698 + (cases[i].renews ? cases[i].ms : 0)));
    }
}

/* Such a renewal never sets less than what stands. */
TEST(a_renewing_check_without_a_reply_does_not_limit_later_leases) {
    hf_hold *hold = hold_times(1, AT(0));
    set_lease(hold, HF_SECOND); /* less than the grant lease */
    set_end(hold, AT(988));
    hf_op_end(begin(HF_OP_CHECK, AT(500)), AT(501)), CHECK_SENT_PART(CALLS, "me 1000 0 ");
    feed_calls(":1\r\n", AT(502));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(600));
    CHECK_ANSWER(op, ":1\r\n", AT(601), "ok");
    CHECK_EQ_U64(ends_at(hold), AT(600 + 59398));
}

TEST(an_extend_confirms_a_grant) {
    hf_hold *hold = hold_granted(AT(0));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(200));
    CHECK_ANSWER(op, ":1\r\n", AT(201), "ok");
    CHECK(!is_granted(hold));
    CHECK_EQ_U64(renewer_next_tick(), hf_lease_renew_at_from_end(ends_at(hold), 60 * HF_SECOND));
}

/* A longer lease that another process has set stays. */
TEST(a_shared_owners_extend_never_shortens_the_lease) {
    set_shared(hold_times(1, AT(0)), true);
    begin_extend(60 * HF_SECOND, AT(1));
    CHECK_SENT(CALLS,
               "EVALSHA extend 2 k holdfast_queue:{k} me 60000 0  redisson_lock__channel:{k}");
}

TEST(an_extend_abandoned_before_it_was_sent_changes_nothing) {
    hf_hold *hold = hold_times(1, AT(0));
    cut_link(CALLS, "idle", AT(500));
    hf_op_spec spec = spec_of(HF_OP_EXTEND);
    spec.lease = 10 * HF_SECOND;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1000));
    CHECK_EQ_U64(ends_at(hold), AT(1000 + 9898));
    hf_op_end(op, AT(1100)), CHECK_EQ_U64(ends_at(hold), AT(29698));
    CHECK_EQ_U64(renewer_next_tick(), AT(10000));
}

TEST(a_check_that_extends_no_lease_does_not_wait_for_replicas) {
    hf_hold *hold = hold_times(1, AT(0));
    config_in(&rig.client)->sync = (hf_sync){1, 100 * HF_MS};
    begin(HF_OP_CHECK, AT(1)), CHECK_SENT(CALLS, CHECK_OF_K);
    feed_calls(":1\r\n", AT(2));
    set_bound(hold, ends_at(hold)); /* no renewal makes it longer */
    begin(HF_OP_CHECK, AT(29000)), CHECK_SENT(CALLS, CHECK_OF_K);
}

TEST(an_extend_with_a_malformed_reply_reports_no_loss) {
    EACH_CASE (i, senseless) {
        hf_hold *hold = hold_times(1, AT(0));
        hf_op *op = begin_extend(5 * HF_SECOND, AT(10));
        CHECK_ANSWER(op, senseless[i], AT(11), "server");
        CHECK(hf_hold_is_valid(hold, AT(11)) && !is_in_flight(hold));
        CHECK(!hf_hold_is_valid(hold, AT(5010)));
        op = begin(HF_OP_CHECK, AT(12));
        CHECK_ANSWER(op, senseless[i], AT(13), "server");
        CHECK(hf_hold_is_valid(hold, AT(13)));
        CHECK_EQ_U64(stats().losses, 0);
        begin_extend(60 * HF_SECOND, AT(14)); /* the first one may still set its lease */
        feed_calls(":1\r\n", AT(15));
        CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(14), 5 * HF_SECOND));
    }
}

CHECK_MAIN
