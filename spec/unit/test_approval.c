/* Renewals and confirmations that need the approval of the owner. */

#include "renewer_rig.h"

static void begin_needs_approval(void) {
    RIG_BEGIN(config.needs_approval = true);
}

TEST(with_needs_approval_a_hold_is_renewed_only_when_approved) {
    begin_needs_approval();
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    CHECK_SENT_UNTIL(RENEWER, AT(0), AT(12000), "");
    CHECK_EQ_U64(hf_client_approval_requests(&rig.client), 1);
    hf_client_approve(&rig.client, hold, AT(12000));
    CHECK_SENT_AT(RENEWER, AT(12000), "EVALSHA renew 1 k me 30000");
    answer_batch(1, ":1", AT(12001)), CHECK_EQ_U64(renewer_next_tick(), AT(22000));
    rig_sleep(AT(12001), AT(25000)); /* one approval, one renewal */
    CHECK_SENT(RENEWER, "");
    CHECK_EQ_U64(hf_client_approval_requests(&rig.client), 2);
    rig_sleep(AT(25000), AT(12000 + 29698)), CHECK(is_lost(hold));
}

TEST(with_needs_approval_a_hold_is_renewed_even_if_approved_during_another_command) {
    begin_needs_approval();
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(AT(0), AT(10000));
    begin(HF_OP_CHECK, AT(10001));
    hf_client_approve(&rig.client, hold, AT(10002));
    CHECK_SENT_AT(RENEWER, AT(10002), "");
    feed_calls("-NOPERM no\r\n", AT(10003));
    CHECK_SENT_AT(RENEWER, AT(10003), "EVALSHA renew 1 k me 30000");
}

TEST(with_needs_approval_a_grant_without_approval_is_not_confirmed) {
    config_in(&rig.client)->needs_approval = true;
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, false, AT(0));
    set_granted(hold, true);
    set_end(hold, AT(2000));
    hf_holds_set_wake_at(holds_of(&rig.client), claim_of(hold), AT(600));
    rig_sleep(AT(0), AT(1999)), CHECK_EQ_U64(hf_client_approval_requests(&rig.client), 1);
    CHECK_SENT(RENEWER, "");
    rig_sleep(AT(1999), AT(2000)), CHECK(is_lost(hold));
}

CHECK_MAIN
