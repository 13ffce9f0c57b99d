/* Confirming a lock that came by a grant. */

#include "base/lease.h"

#include "renewer_rig.h"

TEST(confirming_a_grant_sets_its_full_lease) {
    EACH_NUMBER (renewed, 2) {
        hf_hold *hold = granted_hold(renewed);
        CHECK_EQ_U64(ends_at(hold), AT(1978));
        CHECK_SENT_UNTIL(RENEWER, AT(100), AT(800), CONFIRM_K);
        CHECK(is_granted(hold) && is_in_flight(hold));
        hf_time sent_at = AT(100) + (AT(1978) - AT(100)) / 3;
        feed_renewer(":1\r\n", AT(801)), CHECK(!is_granted(hold) && !is_in_flight(hold));
        CHECK_EQ_U64(ends_at(hold), hf_lease_end(sent_at, 30 * HF_SECOND));
        CHECK_EQ_U64(renewer_next_tick(), renewed ? sent_at + 10 * HF_SECOND : ends_at(hold));
    }
}

TEST(a_confirmation_removes_the_grants_mark_even_after_a_re_entry_with_another_token_ttl) {
    granted_hold(true);
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(200), spec.token_ttl_ms = 0);
    CHECK_ANSWER(op, "*3\r\n:1\r\n:0\r\n:0\r\n", AT(201), "ok");
    CHECK_SENT_UNTIL(RENEWER, AT(201), AT(800), CONFIRM_K);
}

/* It sets a lease that is shorter than the grant's, and may do so at any time. */
TEST(a_confirmation_that_the_server_may_still_receive_limits_later_leases) {
    CASES(int lease_ms; bool checked, sent_twice; int believed_ms) = {
        {1000, false, false, 988}, {1000, true, false, 988},    {1000, false, true, 988},
        {1000, true, true, 988},   {4000, false, false, 59398}, {4000, true, true, 59398}};
    EACH_CASE (i, cases) {
        hf_hold *hold = granted_hold(true);
        hf_session_opening(link_of(RENEWER), AT(100));
        hf_session_opened(link_of(RENEWER), AT(100));
        hf_link link = cases[i].checked ? CALLS : RENEWER;
        set_lease(hold, (hf_time)cases[i].lease_ms * HF_MS);
        if (cases[i].checked) begin(HF_OP_CHECK, AT(200));
        rig_sleep(AT(200), AT(cases[i].checked ? 200 : 800));
        CHECK_SENT_PART(link, "EVALSHA extend");
        if (cases[i].sent_twice) {
            cut_link(link, "reset", AT(801));
            rig_sleep(AT(801), AT(802));
            feed(link_of(link), ":1\r\n", AT(802));
        } else if (cases[i].checked) {
            hf_op_end(ops_of(&rig.client), AT(801));
        }
        int ms = 802;
        for (; is_in_flight(hold) && ms < 1900; ms++) rig_tick(AT(ms));
        CHECK(is_held(hold));
        hf_op_spec spec = spec_of(HF_OP_EXTEND);
        spec.lease = 60 * HF_SECOND;
        cut_link(CALLS, "reset", AT(ms));
        hf_op *op = begin_spec(&spec, AT(ms));
        CHECK_ANSWER(op, ":1\r\n", AT(ms), "ok");
        CHECK_EQ_U64(ends_at(hold), AT(ms + cases[i].believed_ms));
    }
}

/* The server grants the extension, and the hold lasts for that long. */
static void check_extends_by(hf_time lease, hf_time now) {
    hf_op *op = BEGIN(HF_OP_EXTEND, now, spec.lease = lease);
    CHECK_ANSWER(op, ":1\r\n", now, "ok");
    CHECK_EQ_U64(ends_at(hold_of()), hf_lease_end(now, lease));
}

TEST(a_grant_is_confirmed_for_no_longer_than_its_max_hold) {
    set_bound(granted_hold(true), AT(10000));
    rig_sleep(AT(100), AT(800));
    const char *sent = sent_over(RENEWER);
    CHECK(strstr(sent, "EVALSHA extend") && !strstr(sent, " 30000 "));
}

TEST(a_grants_confirmation_that_runs_out_of_memory_is_retried) {
    EACH_FAILURE(nth, 3) {
        hf_hold *hold = granted_hold(true);
        hf_session_opening(link_of(RENEWER), AT(100));
        hf_session_opened(link_of(RENEWER), AT(100));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(800));
        memerr_end();
        rig_serve(AT(800)), CHECK(is_held(hold)), CHECK(client_next_tick() > AT(800));
        CHECK_SENT_UNTIL(RENEWER, AT(800), AT(1100), CONFIRM_K);
    }
}

TEST(a_grants_confirmation_waits_while_its_connection_cannot_be_opened) {
    hf_op *op = wait_in_queue(10 * HF_SECOND, AT(0));
    CHECK_GRANTS(op, GRANT("1", "9"), AT(10), "ok");
    hf_op_end(op, AT(10));
    hf_hold *hold = hold_of();
    CHECK(is_granted(hold));
    rig.refusing = true;
    rig_tick(wakes_at(hold)), CHECK(link_of(RENEWER)->opens_since_reply > 0),
        CHECK(is_in_flight(hold));
    CHECK(!is_at_risk(hold));
}

TEST(a_confirmation_that_got_its_reply_does_not_limit_later_leases) {
    hf_hold *hold = granted_hold(true);
    hf_session_opening(link_of(RENEWER), AT(100));
    hf_session_opened(link_of(RENEWER), AT(100));
    set_lease(hold, HF_SECOND);
    CHECK_SENT_PART_UNTIL(RENEWER, AT(200), AT(800), "EVALSHA extend");
    feed_renewer(":1\r\n", AT(801)), CHECK(!is_granted(hold));
    check_extends_by(60 * HF_SECOND, AT(802));
}

CHECK_MAIN
