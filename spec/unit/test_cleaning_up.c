/* What makes the server forget a hold: leaves, clean-ups and abandoned handles. */

#include "base/lease.h"
#include "op/holding.h"
#include "op/leave.h"

#include "renewer_rig.h"

#define LEAVE_7 "EVALSHA leave " KEYS_OF_K "0 1l" DRIVE_UUID ":7:4321"

TEST(a_lost_hold_is_cleaned_up_even_without_memory) {
    hf_hold *hold = watch(add_hold("k", "me", 30 * HF_SECOND, true, AT(0)));
    lose_hold(hold, HF_LOST_EXPIRED);
    memerr_fail(1);
    hf_renewer_clean_up_lost(&rig.client, hold, AT(1));
    CHECK(!memerr_end()); /* it has allocated nothing */
    CHECK(is_leaving(claim_in_heap(holds_of(&rig.client), 0)));
    CHECK(is_lost(hold) && !is_in_table(hold));
    rig_sleep(AT(1), AT(2000)), CHECK_EQ_INT(commands_in(sent_over(RENEWER), "EVALSHA leave"), 1);
}

TEST(the_clean_up_of_a_replaced_hold_sends_its_owner_and_queue_entry) {
    EACH_NUMBER (shared, 2) {
        hf_hold *hold = watch(add_hold("k", "me", 70 * HF_SECOND, true, AT(0)));
        set_shared(hold, shared);
        set_granted(hold, shared);
        set_token_ttl(hold, 4321);
        set_wait(hold, 7);
        const hf_claim *other = NULL;
        if (shared) {
            other = hf_renewer_clean_up_grant(&rig.client, claim_of(hold), AT(1));
        } else {
            hf_renewer_clean_up(&rig.client, claim_of(hold), AT(1));
            CHECK(hf_renewer_set_aside(&rig.client, claim_of(hold), AT(1)));
            other = hf_holds_first(holds_of(&rig.client));
        }
        CHECK(is_leaving(other) && !hold_of_claim(other));
        CHECK_EQ_U64(claim_ends_at(other), AT(1) + 70 * HF_SECOND);
        CHECK_SENT_UNTIL(CALLS, AT(1), AT(2000), "");
        CHECK_SENT(RENEWER, shared ? LEAVE_7 " me 0" : LEAVE_7 " ");
    }
}

/* Only what the clock has ended may be on the server still. */
TEST(a_lost_hold_is_cleaned_up_only_if_it_may_still_exist_on_the_server) {
    for (int reason = HF_LOST_NONE + 1; reason < HF_LOST_REASONS; reason++) {
        for (int bits = 0; bits < 8; bits++) {
            bool shared = bits & 1, granted = bits & 2, waited = bits & 4;
            bool clock = reason == HF_LOST_EXPIRED || reason == HF_LOST_UNREACHABLE ||
                         reason == HF_LOST_MAX_HOLD;
            rig_begin();
            hf_hold *hold = watch(add_hold("k", "me", HF_SECOND, true, AT(0)));
            set_shared(hold, shared);
            set_granted(hold, granted);
            set_wait(hold, waited ? 7 : 0);
            lose_hold(hold, (hf_lost_reason)reason);
            CHECK_EQ_INT(hf_hold_may_be_on_server(hold), clock && (!shared || (granted && waited)));
        }
    }
}

/* The queue's mark of a confirmed grant has gone. */
TEST(after_a_loss_a_queue_entry_is_cleaned_up_only_if_its_grant_was_unconfirmed) {
    EACH_NUMBER (bits, 4) {
        hf_hold *hold = watch(add_hold("k", "me", HF_SECOND, true, AT(0)));
        set_granted(hold, bits & 1);
        set_wait(hold, bits & 2 ? 7 : 0);
        hf_renewer_on_lost(&rig.client, hold, HF_LOST_TAKEN, AT(1));
        CHECK_EQ_INT(hold_count(&rig.client), bits == 3 ? 2 : 1);
    }
}

TEST(a_shared_owners_clean_up_releases_only_the_holds_of_its_own_process) {
    CASES(uint32_t count, others, pending; const char *sent; bool once) =
        LIST({3, 1, 0, "1  2", true}, {3, 1, 2, "1  4", true}, {2, 2, 0, "2  0", false});
    EACH_CASE (i, cases) {
        hf_hold *hold = watch(add_hold("k", "me", 30 * HF_SECOND, true, AT(0)));
        set_shared(hold, true);
        set_count(hold, cases[i].count);
        set_others(hold, cases[i].others);
        set_pending(hold, cases[i].pending);
        hf_renewer_clean_up(&rig.client, claim_of(hold), AT(1));
        rig_tick(AT(1));
        CHECK_SENT(RENEWER, printed("EVALSHA leave " KEYS_OF_K "%s", cases[i].sent));
        cut_link(RENEWER, "reset", AT(2));
        rig_sleep(AT(2), AT(2000)), CHECK_EQ_INT(sent_over(RENEWER)[0] != '\0', !cases[i].once);
    }
}

TEST(a_handle_with_several_holds_reports_each_loss_once) {
    static const char *const keys[] = {"a", "b", "c"};
    static const hf_lost_reason reasons[] = {HF_LOST_TAKEN, HF_LOST_EXPIRED, HF_LOST_TAKEN};
    hf_losses losses = {0};
    hf_stake stakes[3];
    for (int i = 0; i < 3; i++) {
        hf_hold *hold = watch(add_hold(keys[i], "me", HF_SECOND, true, AT(0)));
        hf_stake_begin(&stakes[i], &rig.client, hold, &losses);
        lose_hold(hold, reasons[i]), CHECK_EQ_INT(losses.first, HF_LOST_TAKEN);
    }
    CHECK_EQ_INT(hf_losses_take(&losses), HF_LOST_EXPIRED);
    CHECK_EQ_INT(hf_losses_take(&losses), HF_LOST_TAKEN);
    CHECK_EQ_INT(hf_losses_take(&losses), HF_LOST_TAKEN);
    CHECK_EQ_INT(hf_losses_take(&losses), HF_LOST_NONE);
    for (int i = 0; i < 3; i++) hf_stake_end(&stakes[i]);
}

TEST(holds_abandoned_one_after_the_other_during_a_re_entry_are_all_subtracted_at_its_end) {
    hf_hold *hold = watch(hold_lock(AT(0)));
    set_count(hold, 4);
    hf_op *op = begin_acquire(0, AT(1));
    abandon_hold(hold, 1, AT(2));
    abandon_hold(hold, 2, AT(2)), CHECK_EQ_INT(count_of(hold), 4);
    CHECK_ANSWER(op, "*2\r\n:1\r\n:0\r\n", AT(3), "ok");
    CHECK_EQ_INT(count_of(hold), 2);
    CHECK(is_uncertain(hold));
}

TEST(abandoned_holds_of_a_shared_owner_are_all_released_with_the_next_command) {
    hf_hold *hold = watch(add_hold("k", "me", 30 * HF_SECOND, true, AT(0)));
    set_shared(hold, true);
    set_count(hold, 5);
    set_others(hold, 1);
    abandon_hold(hold, 3, AT(1)), CHECK_EQ_INT(count_of(hold), 2);
    CHECK_EQ_INT(pending_of(hold), 3);
    abandon_hold(hold, 1, AT(2)); /* the last one of its own */
    CHECK(is_cleaned_up(hold));
}

TEST(a_shared_owners_abandoned_acquire_is_not_resent) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.shared = true, spec.lease = 60 * HF_SECOND,
                      spec.wait = HF_NEVER);
    hf_op_end(op, AT(1));
    const hf_claim *claim = leaving_of();
    CHECK(claim && claim_is_in_flight(claim));
    hf_session *link = link_of(CALLS);
    output_of(link);
    hf_session_closed(link, "reset", AT(2)); /* it is not sent again */
    for (int ms = 3; ms < 500; ms += 10) rig_tick(AT(ms));
    CHECK_SENT(CALLS, LEAVE_OF_K("0", "") "0");
}

/* A pending release begins the time of a hold that had none, from the asking. */
TEST(a_shared_owners_pending_release_sets_a_lease_only_if_the_hold_had_none) {
    hf_hold *hold = watch(add_hold("k", "me", 30 * HF_SECOND, true, AT(0)));
    set_shared(hold, true);
    hf_time end = ends_at(hold);
    hf_renewer_add_pending_release(claim_of(hold), AT(500)), CHECK_EQ_INT(pending_of(hold), 1);
    CHECK_EQ_U64(ends_at(hold), end);
    set_count(hold, 0);
    set_others(hold, 0);
    set_pending(hold, 0);
    set_hold_state(hold, HF_HOLD_ACQUIRING);
    hf_renewer_add_pending_release(claim_of(hold), AT(500));
    CHECK_EQ_U64(ends_at(hold), AT(500 + 29698));
    hf_renewer_add_pending_release(claim_of(hold), AT(900)), CHECK_EQ_INT(pending_of(hold), 2);
    CHECK_EQ_U64(ends_at(hold), AT(500 + 29698));
    set_shared(hold, false);
    set_pending(hold, 0);
    hf_renewer_add_pending_release(claim_of(hold), AT(900)), CHECK_EQ_INT(pending_of(hold), 0);
}

TEST(a_closed_client_connects_again_at_once_after_its_server_has_refused_connections) {
    int ms = 10;
    rig_cut("reset", AT(5));
    rig.refusing = true;
    clean_up("k", "me", 30 * HF_SECOND, AT(ms));
    for (; link_of(RENEWER)->retry_at < AT(ms + 250) && ms < 9000; ms++)
        rig_sleep(AT(ms), AT(ms + 1));
    CHECK_OR(ms < 9000, "no pause is longer than 250 ms");
    rig.refusing = false;
    hf_client_close(&rig.client, AT(ms));
    CHECK_SENT_AT(RENEWER, AT(ms), LEAVE_OF_K("0", ""));
}

/* The callers go on over it; only the renewer's own link is replaced for a leave. */
TEST(a_clean_up_without_a_reply_does_not_close_the_connection_of_calls) {
    hf_hold *hold = watch(hold_lock(AT(0)));
    set_shared(hold, true);
    set_end(hold, AT(500));
    hf_renewer_clean_up_on_same_connection(&rig.client, claim_of(hold), AT(1));
    CHECK_SENT_PART_AT(CALLS, AT(1), "EVALSHA leave");
    hf_client_tick(&rig.client, AT(500)), CHECK_EQ_INT(state_of(), -1);
    CHECK(hf_session_wants(link_of(CALLS), AT(500)) != HF_WANT_CLOSE);
}

TEST(a_clean_up_that_runs_out_of_memory_is_retried) {
    EACH_FAILURE(nth, 3) {
        hf_hold *hold = watch(add_hold("k", "me", 30 * HF_SECOND, true, AT(0)));
        hf_session_opening(link_of(RENEWER), AT(0));
        hf_session_opened(link_of(RENEWER), AT(0));
        hf_renewer_clean_up(&rig.client, claim_of(hold), AT(1));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(1));
        memerr_end();
        CHECK(renewer_next_tick() > AT(1));
        CHECK_SENT_UNTIL(RENEWER, AT(1), AT(1100), LEAVE_OF_K("0", ""));
    }
}

/* Its mark in the queue shows that it has the lock by a grant; only that is released. */
TEST(the_clean_up_of_a_shared_owners_lost_grant_removes_its_queue_entry_and_no_hold) {
    enum { RELEASES, CLOSES, CLEANS_UP, WAYS };
    EACH_NUMBER (way, WAYS) {
        hf_hold *hold = watch(hold_lock(AT(0)));
        set_shared(hold, true);
        set_granted(hold, true);
        set_wait(hold, 5);
        lose_hold(hold, way == CLEANS_UP ? HF_LOST_TAKEN : HF_LOST_EXPIRED);
        if (way == RELEASES) CHECK_ENDS(begin(HF_OP_RELEASE, AT(1)), "lost", AT(1));
        if (way == CLOSES) close_rig(AT(1));
        if (way == CLEANS_UP) hf_renewer_clean_up_grant(&rig.client, claim_of(hold), AT(1));
        CHECK_SENT_AT(RENEWER, AT(1), "EVALSHA leave " KEYS_OF_K "0 1l" DRIVE_UUID ":5:1000 me 0");
        cut_link(RENEWER, "reset", AT(2));
        rig_sleep(AT(2), AT(300)); /* it takes nothing from anybody if it is sent twice */
        CHECK(strncmp(sent_over(RENEWER), "EVALSHA leave ", 14) == 0);
    }
}

TEST(a_hold_that_a_new_one_replaced_during_its_clean_up_is_cleaned_up_at_the_next_retry) {
    hf_hold *hold = clean_up("k", "me", 30 * HF_SECOND, AT(0));
    CHECK(hf_renewer_set_aside(&rig.client, claim_of(hold), AT(0)));
    const hf_claim *aside = hf_holds_first(holds_of(&rig.client));
    CHECK_EQ_U64(renewer_next_tick(), hf_lease_retry_at(AT(0), claim_ends_at(aside)));
    CHECK_SENT_UNTIL(RENEWER, AT(0), AT(999), "");
    CHECK_SENT_UNTIL(RENEWER, AT(999), AT(1000), LEAVE_OF_K("0", ""));
}

TEST(an_abandoned_request_is_finished_in_the_background_only_if_it_had_been_sent) {
    hf_op *op = begin(HF_OP_PING, AT(0));
    CHECK(hf_renewer_take_over_request(&rig.client, request_in(op)));
    CHECK_EQ_INT(unanswered_count(&rig.client), 1);
    CHECK(!is_quiet());
    feed_calls("+PONG\r\n", AT(1)), CHECK_EQ_INT(unanswered_count(&rig.client), 0);
    rig_begin();
    hf_op_spec spec = spec_of(HF_OP_PING);
    op = hf_client_begin(&rig.client, &spec, AT(0)); /* no connection yet */
    CHECK(!hf_renewer_take_over_request(&rig.client, request_in(op)));
    CHECK_EQ_INT(unanswered_count(&rig.client), 0);
    CHECK(is_quiet());
}

/* The renewer may still leave by the mark when the lease of the hold is over, and no longer by its
 * count. */
TEST(a_shared_owners_lost_grant_is_removed_from_the_queue_even_after_its_lease) {
    EACH_NUMBER (granted, 2) {
        hf_hold *hold = watch(hold_lock(AT(0)));
        set_shared(hold, true);
        set_granted(hold, granted);
        set_wait(hold, 5);
        set_end(hold, AT(100));
        abandon_hold(hold, 1, AT(1)), CHECK(is_cleaned_up(hold));
        rig_tick(AT(100)); /* the lease ends before the leave is sent */
        CHECK_EQ_INT(holds_left(), granted);
        if (granted)
            CHECK_SENT(RENEWER, "EVALSHA leave " KEYS_OF_K "0 1l" DRIVE_UUID ":5:1000 me 0");
        else CHECK_SILENT();
    }
}

CHECK_MAIN
