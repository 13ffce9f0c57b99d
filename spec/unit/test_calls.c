#include "op/events.h"
#include "op/operation.h"
#include "op/renewer.h"

#include "drive.h"

static struct rig rig;

#define CALLS HF_LINK_CALLS
#define RENEWER HF_LINK_RENEWER

#define RELEASE_OF_K(to) "EVALSHA release " KEYS_OF_K to " 30000 "
#define CHECK_OF_K "EVALSHA extend 2 k holdfast_queue:{k} me 0  "
#define EXTEND_OF_K(ms)                                                                            \
    "EVALSHA extend 2 k holdfast_queue:{k} me " ms "   redisson_lock__channel:{k}"

static hf_op *begin_extend(hf_time lease, hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_EXTEND);
    spec.lease = lease;
    hf_op *op = begin_spec(&rig, &spec, now);
    return op;
}

/* Held `count` times since `now`. */
static hf_hold *hold_times(uint32_t count, hf_time now) {
    hf_hold *hold = hold_lock(&rig, now);
    for (uint32_t i = 1; i < count; i++) hold_lock(&rig, now);
    output_of(link_of(&rig, CALLS));
    return hold;
}

/* A renewal is under way since AT(10000). */
static hf_hold *hold_while_renewed(uint32_t count) {
    hf_hold *hold = hold_times(count, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    if (!is_in_flight(hold)) abort();
    output_of(link_of(&rig, RENEWER));
    return hold;
}

/* ---- release ---- */

TEST(a_release_of_one_hold_frees_the_lock) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(10));
    CHECK_SENT(&rig, CALLS, BRIEF_RELEASE_OF_K);
    CHECK(is_releasing(hold));
    CHECK(!hf_hold_is_valid(hold, AT(10)));
    feed_calls(&rig, ":1\r\n", AT(11));
    CHECK_OUTCOME(op, "ok");
    CHECK(!hold_of(&rig));
    CHECK_EQ_U64(hf_client_stats(&rig.client).releases, 1);
    hf_op_end(op, AT(11));
    rig_sleep(&rig, AT(11), AT(60000));
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(60000));
}

TEST(a_partial_release_keeps_the_rest_and_renews_the_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(5000));
    CHECK_SENT(&rig, CALLS, RELEASE_OF_K("1"));
    CHECK(hf_hold_is_valid(hold, AT(5000)));
    feed_calls(&rig, ":2\r\n", AT(5001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK_EQ_U64(ends_at(hold), AT(5000 + 29698)); /* it refreshed the TTL */
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(15000));
    op = begin(&rig, HF_OP_RELEASE, AT(6000));
    CHECK_SENT(&rig, CALLS, BRIEF_RELEASE_OF_K);
    feed_calls(&rig, ":1\r\n", AT(6001));
    CHECK_OUTCOME(op, "ok");
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(7000));
}

TEST(a_call_on_a_lock_that_is_not_held_fails) {
    rig_begin(&rig);
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(0)), "not_held");
    CHECK_OUTCOME(begin_extend(HF_SECOND, AT(0)), "not_held");
    CHECK_OUTCOME(begin(&rig, HF_OP_CHECK, AT(0)), "not_held");
    CHECK_EQ_INT(link_of(&rig, CALLS)->state, HF_SESSION_CLOSED);
    hold_times(1, AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    spec.caller = hf_slice_of("you");
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1));
    CHECK_OUTCOME(op, "not_held");
    CHECK_SENT(&rig, CALLS, "");
    rig_end(&rig, AT(2));
}

TEST(calls_on_a_lock_that_is_being_released_fail) {
    rig_begin(&rig);
    hold_times(1, AT(0));
    begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(1)), "not_held");
    CHECK_OUTCOME(begin_acquire(&rig, 0, AT(1)), "busy");
    CHECK_OUTCOME(begin(&rig, HF_OP_CHECK, AT(1)), "not_held");
    rig_end(&rig, AT(2));
}

TEST(a_release_that_finds_nothing_is_a_loss) {
    static const struct {
        const char *reply;
        hf_lost_reason reason;
    } cases[] = {{":-1\r\n", HF_LOST_DELETED}, {":-2\r\n", HF_LOST_TAKEN}};
    for (size_t i = 0; i < 2; i++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(1, AT(0));
        hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
        feed_calls(&rig, cases[i].reply, AT(2));
        CHECK_OUTCOME(op, "lost");
        CHECK(hold_in(op) == hold);
        CHECK_EQ_INT(reason_of(hold), cases[i].reason);
        CHECK(!hold_of(&rig));
        CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 1);
        rig_end(&rig, AT(3));
    }
}

TEST(a_release_sent_twice_that_finds_nothing_succeeds) {
    rig_begin(&rig);
    hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(2));
    rig_tick(&rig, AT(50));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, ":-1\r\n", AT(51));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 0);
    rig_end(&rig, AT(60));
}

/* A server that came back empty knows neither the program nor the lock. */
TEST(an_unknown_program_does_not_hide_a_loss) {
    static const char *const passing[] = {"-NOSCRIPT No matching script.\r\n",
                                          "-LOADING Redis is loading\r\n"};
    for (size_t i = 0; i < 2; i++) {
        rig_begin(&rig);
        hold_times(1, AT(0));
        hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
        feed_calls(&rig, passing[i], AT(2));
        rig_tick(&rig, AT(50));
        output_of(link_of(&rig, CALLS));
        feed_calls(&rig, ":-1\r\n", AT(51));
        CHECK_OUTCOME(op, "lost");
        CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 1);
        rig_end(&rig, AT(60));
    }
}

TEST(a_release_without_a_reply_goes_on_in_the_background) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(100));
    output_of(link_of(&rig, CALLS));
    rig_sleep(&rig, AT(100), AT(3100));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(message_of(op), "the release continues in the background"));
    CHECK(is_cleaned_up(hold));
    hf_op_end(op, AT(3100));
    rig_sleep(&rig, AT(3100), AT(3200));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", ""));
    CHECK_SENT(&rig, RENEWER, "");
    feed_calls(&rig, ":1\r\n", AT(3201));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(4000));
}

TEST(the_next_release_includes_a_failed_partial_one) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(100));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, "-ERR no\r\n", AT(101));
    CHECK_OUTCOME(op, "server");
    CHECK(is_held(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    rig_sleep(&rig, AT(101), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    feed_renewer(&rig, "*1\r\n:1\r\n", AT(10001));
    begin(&rig, HF_OP_RELEASE, AT(10002));
    CHECK_SENT(&rig, CALLS, BRIEF_RELEASE_OF_K);
    rig_end(&rig, AT(11000));
}

TEST(a_release_waits_behind_a_renewal) {
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(10001));
    CHECK_OUTCOME(op, "under way");
    CHECK_SENT(&rig, CALLS, "");
    feed_renewer(&rig, "*1\r\n:1\r\n", AT(10002));
    CHECK_SENT(&rig, CALLS, BRIEF_RELEASE_OF_K);
    feed_calls(&rig, ":1\r\n", AT(10003));
    CHECK_OUTCOME(op, "ok");
    rig_sleep(&rig, AT(10003), AT(60000));
    CHECK_SENT(&rig, RENEWER, "");
    rig_end(&rig, AT(60000));
}

TEST(a_release_behind_a_renewal_that_finds_a_loss_reports_it) {
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(10001));
    feed_renewer(&rig, "*1\r\n:-1\r\n", AT(10002));
    CHECK_OUTCOME(op, "lost");
    CHECK_SENT(&rig, CALLS, "");
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(11000));
}

TEST(a_release_behind_a_renewal_without_a_reply_times_out) {
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(10001));
    rig_sleep(&rig, AT(10001), AT(17000));
    CHECK(hf_op_is_done(op));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_end(&rig, AT(18000));
}

/* Two calls wait for the renewer; the first one takes the hold away from under the second. */
TEST(all_calls_that_wait_for_a_hold_go_on_when_it_is_released) {
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op *first = begin(&rig, HF_OP_RELEASE, AT(10001));
    hf_op *second = begin(&rig, HF_OP_RELEASE, AT(10001));
    hf_op *third = begin_acquire(&rig, HF_SECOND, AT(10001));
    feed_renewer(&rig, "*1\r\n:1\r\n", AT(10002));
    CHECK_OUTCOME(first, "under way");
    feed_calls(&rig, ":1\r\n", AT(10003));
    CHECK_OUTCOME(first, "ok");
    CHECK_OUTCOME(second, "not_held");
    CHECK_OUTCOME(third, "under way");
    CHECK(is_asking(third));
    feed_calls(&rig, ACQUIRED, AT(10004));
    CHECK_OUTCOME(third, "ok");
    rig_end(&rig, AT(11000));
}

/* The same, when the hold was lost and abandoned before the renewal's reply came. */
TEST(a_call_that_waits_for_a_hold_goes_on_after_it_left_the_table) {
    rig_begin(&rig);
    hf_hold *hold = hold_while_renewed(1);
    hf_op *waiting = begin_extend(HF_SECOND, AT(10001));
    CHECK_OUTCOME(waiting, "under way");
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_client_abandon(&rig.client, hold, 1, AT(10002));
    CHECK(!hold_of(&rig));
    CHECK_OUTCOME(waiting, "under way");
    feed_renewer(&rig, "*1\r\n:1\r\n", AT(10003));
    CHECK_OUTCOME(waiting, "lost");
    rig_end(&rig, AT(11000));
}

TEST(the_release_of_a_lost_hold_reports_the_loss_and_forgets_it) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_OUTCOME(op, "lost");
    CHECK(strstr(message_of(op), "another owner holds it"));
    CHECK(!hold_of(&rig));
    CHECK_SILENT(&rig);
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(2)), "not_held");
    rig_end(&rig, AT(3));
}

static hf_op *begin_about_lost(hf_op_kind kind, hf_hold *lost, bool notified) {
    hf_op_spec spec = spec_of(&rig, kind);
    spec.lost = lost;
    spec.loss_notified = notified;
    return hf_client_begin(&rig.client, &spec, AT(40000));
}

TEST(calls_on_a_lost_hold_do_not_touch_a_newer_one_of_its_owner) {
    static const hf_op_kind kinds[] = {HF_OP_RELEASE, HF_OP_COMPLETE, HF_OP_EXTEND, HF_OP_CHECK};
    rig_begin(&rig);
    hf_hold *old = hold_times(1, AT(0));
    hf_hold_ref(old);
    hf_client_lose(&rig.client, old, HF_LOST_TAKEN);
    hf_hold *newer = hold_times(1, AT(40000));
    CHECK(newer != old);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        hf_op *op = begin_about_lost(kinds[i], old, false);
        CHECK_OUTCOME(op, "lost");
        CHECK(hold_in(op) == old);
        CHECK(strstr(message_of(op), "another owner holds it"));
        CHECK_OUTCOME(begin_about_lost(kinds[i], old, true), "not_held");
    }
    CHECK_SILENT(&rig);
    CHECK(hf_hold_is_valid(newer, AT(40000)));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(40001));
    CHECK_SENT(&rig, CALLS, BRIEF_RELEASE_OF_K);
    feed_calls(&rig, ":1\r\n", AT(40002));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(40002));
    hf_hold_unref(old);
}

/* A release that waited for the renewer was not about what its owner has acquired meanwhile. */
TEST(a_release_that_waits_does_not_release_a_newer_hold) {
    rig_begin(&rig);
    hf_hold *hold = hold_while_renewed(1);
    hf_op *waiting = begin(&rig, HF_OP_RELEASE, AT(10001));
    hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
    hf_hold *newer = hold_times(1, AT(10002));
    CHECK(newer != hold);
    feed_renewer(&rig, "*1\r\n:1\r\n", AT(10003));
    CHECK_OUTCOME(waiting, "lost");
    CHECK(hf_hold_is_valid(newer, AT(10003)));
    CHECK_SENT(&rig, CALLS, "");
    rig_end(&rig, AT(11000));
}

/* Two handles had it: one learns of the loss by its release, the other by the hold it still
 * refers to. */
TEST(a_lost_hold_stays_lost_while_its_stand_in_is_cleaned_up) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_hold_ref(hold);
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(29698)), "lost");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    CHECK(hold_of(&rig) != hold);
    rig_tick(&rig, AT(29698));
    feed_renewer(&rig, ":1\r\n", AT(29699));
    hf_hold *newer = hold_times(1, AT(29699));
    CHECK(is_held(newer));
    CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_EXPIRED);
    rig_end(&rig, AT(30000));
    hf_hold_unref(hold);
}

TEST(a_hold_lost_by_the_clock_is_cleaned_up_by_its_release) {
    rig_begin(&rig);
    hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(29698)); /* the client has not noticed yet */
    CHECK_OUTCOME(op, "lost");
    CHECK(strstr(message_of(op), "its lease had already ended"));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_tick(&rig, AT(29698));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(30000));
}

TEST(an_abandoned_release_goes_on_in_the_background) {
    rig_begin(&rig);
    hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    hf_op_end(op, AT(2));
    rig_tick(&rig, AT(2));
    CHECK_SENT(&rig, CALLS, BRIEF_RELEASE_OF_K "\n" LEAVE_OF_K("0", ""));
    feed_calls(&rig, ":1\r\n:0\r\n", AT(3));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(3));
}

TEST(an_abandoned_partial_release_still_counts) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op_end(begin(&rig, HF_OP_RELEASE, AT(1)), AT(2));
    output_of(link_of(&rig, CALLS));
    CHECK(is_held(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK(!is_in_flight(hold));
    begin(&rig, HF_OP_RELEASE, AT(3));
    CHECK_SENT(&rig, CALLS, BRIEF_RELEASE_OF_K);
    rig_end(&rig, AT(4));
}

TEST(a_release_abandoned_before_it_was_sent_goes_on_in_the_background) {
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op_end(begin(&rig, HF_OP_RELEASE, AT(10001)), AT(10002));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_tick(&rig, AT(10002));
    CHECK_SENT(&rig, RENEWER, ""); /* not before the renewal is answered */
    feed_renewer(&rig, "*1\r\n:1\r\n", AT(10003));
    rig_tick(&rig, AT(10003));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    feed_renewer(&rig, ":1\r\n", AT(10004));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(10005));
}

/* It cannot be sent twice, and the server may not know the program yet. */
TEST(a_sent_release_of_a_shared_owner_is_finished_after_its_end) {
    rig_begin(&rig);
    set_shared(hold_times(1, AT(0)), true);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    output_of(link_of(&rig, CALLS));
    hf_op_end(op, AT(2));
    CHECK(!hf_client_is_quiet(&rig.client));
    feed_calls(&rig, "-NOSCRIPT No matching script\r\n", AT(3));
    CHECK(strncmp(output_of(link_of(&rig, CALLS)), "EVAL release", 12) == 0);
    CHECK(!hf_client_is_quiet(&rig.client));
    feed_calls(&rig, ":1\r\n", AT(4));
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(5));
}

TEST(a_shared_owner_releases_only_its_own) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    set_others(hold, 1); /* one of them is another process's */
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_SENT(&rig, CALLS, RELEASE_OF_K("1"));
    CHECK(is_releasing(hold));
    feed_calls(&rig, ":2\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(3));
}

TEST(the_rest_may_be_abandoned_during_a_release) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_SENT(&rig, CALLS, RELEASE_OF_K("1"));
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    feed_calls(&rig, ":2\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    rig_tick(&rig, AT(3));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(3));
}

TEST(the_rest_may_be_abandoned_during_a_release_that_outlives_the_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_SENT(&rig, CALLS, RELEASE_OF_K("1"));
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
    feed_calls(&rig, ":2\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    rig_tick(&rig, AT(3));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    feed_renewer(&rig, ":1\r\n", AT(4));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(4));
}

/* A second copy would release another process's hold. */
TEST(a_shared_owners_release_is_not_sent_after_the_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_shared(hold, true);
    set_end(hold, AT(500));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(1));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(2));
    CHECK(!hf_op_is_done(op));
    rig_sleep(&rig, AT(2), AT(501));
    CHECK_OUTCOME(op, "unreachable");
    rig_end(&rig, AT(501));
}

TEST(a_shared_owners_release_is_not_sent_twice) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_shared(hold, true);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_SENT(&rig, CALLS, RELEASE_OF_K("0") "1");
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(2));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(message_of(op), "the lock expires with its lease"));
    rig_sleep(&rig, AT(2), AT(60000));
    CHECK_SENT(&rig, CALLS, "");
    CHECK_SENT(&rig, RENEWER, "");
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    rig_end(&rig, AT(60000));
}

TEST(a_shared_owners_refused_release_goes_on_in_the_background) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_shared(hold, true);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    feed_calls(&rig, "-ERR no\r\n", AT(2));
    CHECK_OUTCOME(op, "server");
    output_of(link_of(&rig, CALLS));
    rig_tick(&rig, AT(3));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", "") "1");
    rig_end(&rig, AT(4));
}

TEST(a_shared_owners_pending_release_is_sent_with_the_next) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(3, AT(0));
    set_shared(hold, true);
    begin(&rig, HF_OP_RELEASE, AT(1));
    feed_calls(&rig, "-OOM no\r\n", AT(2));
    CHECK_EQ_INT(count_of(hold), 2);
    CHECK_EQ_INT(pending_of(hold), 1);
    output_of(link_of(&rig, CALLS));
    begin(&rig, HF_OP_RELEASE, AT(3));
    CHECK_SENT(&rig, CALLS, RELEASE_OF_K("1") "2");
    feed_calls(&rig, ":2\r\n", AT(4));
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK_EQ_INT(pending_of(hold), 0);
    rig_end(&rig, AT(5));
}

/* What was abandoned since the release was sent is not among what it releases. */
TEST(a_shared_owners_rest_may_be_abandoned_during_a_release) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(3, AT(0));
    set_shared(hold, true);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_SENT(&rig, CALLS, RELEASE_OF_K("2") "1");
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    feed_calls(&rig, ":2\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    rig_tick(&rig, AT(3));
    CHECK(is_cleaned_up(hold));
    char *leave = strdup(output_of(link_of(&rig, CALLS)));
    char *renewer = strdup(output_of(link_of(&rig, RENEWER)));
    CHECK_STR(*leave ? leave : renewer, LEAVE_OF_K("0", "") "2");
    free(leave);
    free(renewer);
    rig_end(&rig, AT(4));
}

/* The first one took along what was owed: sent again by the next, it would be another process's. */
TEST(a_pending_release_that_may_have_been_sent_is_not_sent_again) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(3, AT(0));
    set_shared(hold, true);
    begin(&rig, HF_OP_RELEASE, AT(1));
    feed_calls(&rig, "-OOM no\r\n", AT(2));
    CHECK_EQ_INT(pending_of(hold), 1);
    output_of(link_of(&rig, CALLS));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(3));
    CHECK_SENT(&rig, CALLS, RELEASE_OF_K("1") "2");
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(4));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_INT(count_of(hold), 1);
    CHECK_EQ_INT(pending_of(hold), 0);
    begin(&rig, HF_OP_RELEASE, AT(50));
    rig_tick(&rig, AT(60));
    CHECK_SENT(&rig, CALLS, RELEASE_OF_K("0") "1");
    rig_end(&rig, AT(70));
}

/* ---- extend, check ---- */

TEST(an_extend_sets_the_lease_from_its_sending) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(1000));
    CHECK_SENT(&rig, CALLS, EXTEND_OF_K("60000"));
    CHECK(hf_hold_is_valid(hold, AT(1000)));
    feed_calls(&rig, ":1\r\n", AT(1500));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(lease_of(hold), 60 * HF_SECOND);
    CHECK_EQ_U64(ends_at(hold), AT(1000 + 59398));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(21000));
    op = begin_extend(HF_SECOND, AT(2000)); /* also a shorter one */
    feed_calls(&rig, ":1\r\n", AT(2001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(ends_at(hold), AT(2988));
    rig_end(&rig, AT(2500));
}

TEST(an_extend_works_on_a_lock_that_is_not_renewed) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_renewed(hold, false);
    hf_holds_wake_at(holds_of(&rig.client), hold, ends_at(hold));
    begin_extend(60 * HF_SECOND, AT(1000));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, ":1\r\n", AT(1500));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(1000 + 59398));
    rig_sleep(&rig, AT(1500), AT(60397));
    CHECK_SILENT(&rig);
    CHECK(hf_hold_is_valid(hold, AT(60397)));
    rig_sleep(&rig, AT(60397), AT(60398));
    CHECK(is_lost(hold));
    rig_end(&rig, AT(61000));
}

TEST(an_extend_answered_after_its_lease_is_a_loss) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(HF_SECOND, AT(1000));
    feed_calls(&rig, ":1\r\n", AT(1988));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(reason_of(hold), HF_LOST_EXPIRED);
    CHECK_EQ_U64(hf_client_losses(&rig.client), 1);
    rig_end(&rig, AT(2500));
}

TEST(an_extend_answered_after_the_loss_changes_nothing) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_renewed(hold, false);
    hf_op *op = begin_extend(60 * HF_SECOND, AT(29000));
    rig_sleep(&rig, AT(29000), AT(29700));
    CHECK(is_lost(hold));
    feed_calls(&rig, ":1\r\n", AT(29800));
    CHECK_OUTCOME(op, "lost");
    CHECK(is_lost(hold));
    CHECK_EQ_U64(hf_client_losses(&rig.client), 1);
    rig_end(&rig, AT(30000));
}

TEST(an_extend_that_finds_the_lock_gone_is_a_loss) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(HF_SECOND, AT(1000));
    feed_calls(&rig, ":-2\r\n", AT(1001));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(reason_of(hold), HF_LOST_TAKEN);
    CHECK(hold_of(&rig) == hold); /* until the owner releases it */
    rig_end(&rig, AT(2500));
}

TEST(an_extend_without_a_reply_counts_only_for_the_shorter_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(10 * HF_SECOND, AT(1000));
    rig_sleep(&rig, AT(1000), AT(4000));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_U64(ends_at(hold), AT(1000 + 9898));
    CHECK(is_held(hold));
    for (hf_time now = AT(4000); now < AT(60000);) { /* it may be carried out at any time */
        hf_time next = wakes_at(hold);
        CHECK(next > now && next <= ends_at(hold) - 6 * HF_SECOND);
        rig_sleep(&rig, now, next);
        CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
        feed_renewer(&rig, "*1\r\n:1\r\n", next + HF_MS);
        CHECK_EQ_U64(ends_at(hold), next + 9898 * HF_MS);
        now = next + HF_MS;
    }
    CHECK(is_held(hold));
    rig_end(&rig, AT(70000));
}

/* A late copy of the first extend may still reach the server behind the second one. */
TEST(the_shortest_lease_counts_after_an_extend_that_may_arrive_late) {
    static const struct {
        int first_ms, second_ms, believed_ms;
    } cases[] = {{10000, 60000, 9898}, {60000, 10000, 9898}, {10000, 4000, 3958}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(1, AT(0));
        hf_op *op = begin_extend((hf_time)cases[i].first_ms * HF_MS, AT(1000));
        hf_session_closed(link_of(&rig, CALLS), "reset", AT(1001));
        rig_sleep(&rig, AT(1001), AT(1100));
        feed_calls(&rig, ":1\r\n", AT(1101));
        CHECK_OUTCOME(op, "ok");
        op = begin_extend((hf_time)cases[i].second_ms * HF_MS, AT(2000));
        feed_calls(&rig, ":1\r\n", AT(2001));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_U64(lease_of(hold), (hf_time)cases[i].second_ms * HF_MS);
        CHECK_EQ_U64(ends_at(hold), AT(2000 + cases[i].believed_ms));
        rig_end(&rig, AT(5000));
    }
}

TEST(an_abandoned_extend_counts_only_for_the_shorter_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_renewed(hold, false);
    hf_holds_wake_at(holds_of(&rig.client), hold, ends_at(hold));
    hf_op_end(begin_extend(HF_SECOND, AT(1000)), AT(1100));
    CHECK_EQ_U64(ends_at(hold), AT(1988));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(1988));
    CHECK(!is_in_flight(hold));
    rig_end(&rig, AT(5000));
}

TEST(a_refused_extend_changes_nothing) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(HF_SECOND, AT(1000));
    feed_calls(&rig, "-NOPERM no\r\n", AT(1001));
    CHECK_OUTCOME(op, "denied");
    CHECK_EQ_U64(ends_at(hold), AT(29698));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(10000));
    rig_end(&rig, AT(2000));
}

TEST(a_check_confirms_the_hold_or_finds_a_loss) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_CHECK, AT(1000));
    CHECK_SENT(&rig, CALLS, CHECK_OF_K);
    feed_calls(&rig, ":1\r\n", AT(1001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(ends_at(hold), AT(29698));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(10000));
    op = begin(&rig, HF_OP_CHECK, AT(2000));
    feed_calls(&rig, ":-1\r\n", AT(2001));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(reason_of(hold), HF_LOST_DELETED);
    op = begin(&rig, HF_OP_CHECK, AT(3000));
    CHECK_OUTCOME(op, "lost");
    CHECK(strstr(message_of(op), "its key was deleted on the server"));
    rig_end(&rig, AT(4000));
}

/* Not only a renewal may be overtaken by it. */
TEST(no_command_counts_for_more_after_an_extend_that_may_arrive_late) {
    static const struct {
        hf_op_kind kind;
        const char *reply;
    } cases[] = {{HF_OP_ACQUIRE, "*2\r\n:1\r\n:0\r\n"}, {HF_OP_RELEASE, ":2\r\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(2, AT(0));
        hf_op_end(begin_extend(10 * HF_SECOND, AT(1000)), AT(1001));
        hf_session_closed(link_of(&rig, CALLS), "reset", AT(1002));
        hf_op *op = begin(&rig, cases[i].kind, AT(3000));
        feed_calls(&rig, cases[i].reply, AT(3001));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_U64(ends_at(hold), AT(3000 + 9898));
        CHECK(hf_client_renewer_deadline(&rig.client) <= AT(3000 + 3334));
        rig_end(&rig, AT(5000));
    }
}

static hf_hold *hold_granted(hf_time now) {
    hf_op *op = wait_in_queue(&rig, HF_NEVER, now);
    feed_message(&rig, GRANT("1", "88"), now + 100 * HF_MS);
    hf_op_end(op, now + 100 * HF_MS);
    hf_hold *hold = hold_of(&rig);
    if (!hold || !is_granted(hold)) abort();
    return hold;
}

#define CONFIRM_K                                                                                  \
    "EVALSHA extend 2 k holdfast_queue:{k} me 30000 2000 " MEMBER("1") " redisson_lock__channel:{" \
                                                                       "k}"

TEST(a_check_of_a_granted_hold_confirms_it) {
    rig_begin(&rig);
    hf_hold *hold = hold_granted(AT(0));
    hf_op *op = begin(&rig, HF_OP_CHECK, AT(200));
    CHECK_SENT(&rig, CALLS, CONFIRM_K);
    feed_calls(&rig, ":1\r\n", AT(201));
    CHECK_OUTCOME(op, "ok");
    CHECK(!is_granted(hold));
    CHECK_EQ_U64(ends_at(hold), AT(200 + 29698));
    rig_sleep(&rig, AT(201), AT(10199));
    CHECK_SENT(&rig, RENEWER, "");
    begin(&rig, HF_OP_CHECK, AT(10199));
    CHECK_SENT(&rig, CALLS, CHECK_OF_K);
    rig_end(&rig, AT(10199));
}

TEST(a_check_renews_a_hold_that_is_due) {
    static const struct {
        int ms;
        bool renewed, renews;
    } cases[] = {
        {9999, true, false}, {10000, true, true}, {29000, true, true}, {29000, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(1, AT(0));
        set_renewed(hold, cases[i].renewed);
        begin(&rig, HF_OP_CHECK, AT(cases[i].ms));
        CHECK_SENT(
            &rig, CALLS,
            cases[i].renews
                ? "EVALSHA extend 2 k holdfast_queue:{k} me 30000 0  redisson_lock__channel:{k}"
                : CHECK_OF_K);
        feed_calls(&rig, ":1\r\n", AT(cases[i].ms + 1));
        CHECK_EQ_U64(ends_at(hold), AT(29698 + (cases[i].renews ? cases[i].ms : 0)));
        rig_end(&rig, AT(30000));
    }
}

/* Such a renewal never sets less than what stands. */
TEST(a_check_that_renews_without_a_reply_bounds_nothing) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_lease(hold, HF_SECOND); /* less than the grant lease */
    set_end(hold, AT(988));
    hf_op_end(begin(&rig, HF_OP_CHECK, AT(500)), AT(501));
    CHECK(strstr(output_of(link_of(&rig, CALLS)), "me 1000 0 "));
    feed_calls(&rig, ":1\r\n", AT(502));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(600));
    feed_calls(&rig, ":1\r\n", AT(601));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(ends_at(hold), AT(600 + 59398));
    rig_end(&rig, AT(700));
}

/* Checks that confirm nothing leave the confirmation where it was. */
TEST(checks_do_not_delay_the_confirmation) {
    rig_begin(&rig);
    hf_hold *hold = hold_granted(AT(0));
    hf_time confirm_at = confirms_at(hold);
    CHECK(confirm_at > AT(700) && confirm_at < AT(800));
    for (hf_time now = AT(110); now < confirm_at; now += 10 * HF_MS) {
        rig_tick(&rig, now);
        CHECK_SENT(&rig, RENEWER, "");
        hf_op *op = begin(&rig, HF_OP_CHECK, now);
        feed_calls(&rig, "-NOPERM no\r\n", now + HF_MS);
        CHECK_OUTCOME(op, "denied");
        hf_op_end(op, now);
        CHECK(is_granted(hold));
        CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), hf_time_max(confirm_at, now + HF_MS));
    }
    rig_sleep(&rig, confirm_at - HF_MS, confirm_at + HF_MS);
    CHECK_SENT(&rig, RENEWER, CONFIRM_K);
    rig_end(&rig, AT(1000));
}

TEST(a_read_fails_after_its_own_time_if_that_is_shorter_than_the_timeout) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_INFO);
    spec.within = 200 * HF_MS;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    rig_sleep(&rig, AT(0), AT(199));
    CHECK_OUTCOME(op, "under way");
    rig_sleep(&rig, AT(199), AT(200));
    CHECK_OUTCOME(op, "unreachable");
    hf_op_end(op, AT(200));
    spec.within = 4 * HF_SECOND;
    op = begin_spec(&rig, &spec, AT(300));
    rig_sleep(&rig, AT(300), AT(3300));
    CHECK_OUTCOME(op, "unreachable");
    rig_end(&rig, AT(3300));
}

/* A caller that checks often must not lose the lock for that. */
TEST(repeated_checks_do_not_prevent_the_renewal) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    for (int ms = 900; ms < 100000; ms += 900) {
        for (int at = ms - 900; at < ms; at += 100) {
            rig_sleep(&rig, AT(at), AT(at + 100));
            if (output_of(link_of(&rig, RENEWER))[0] != '\0')
                feed_renewer(&rig, "*1\r\n:1\r\n", AT(at + 100));
        }
        hf_op *op = begin(&rig, HF_OP_CHECK, AT(ms));
        feed_calls(&rig, ":1\r\n", AT(ms));
        CHECK_OUTCOME(op, "ok");
        hf_op_end(op, AT(ms));
    }
    CHECK(is_held(hold));
    CHECK_OR(hf_client_stats(&rig.client).renew_batches >= 8 &&
                 hf_client_stats(&rig.client).renew_batches <= 10,
             "%d renewals", (int)hf_client_stats(&rig.client).renew_batches);
    rig_end(&rig, AT(100000));
}

TEST(a_renewal_that_falls_due_during_a_check_comes_after_it) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_CHECK, AT(9900));
    rig_sleep(&rig, AT(9900), AT(10500));
    CHECK_SENT(&rig, RENEWER, "");
    feed_calls(&rig, ":1\r\n", AT(10500));
    CHECK_OUTCOME(op, "ok");
    rig_sleep(&rig, AT(10500), AT(10501));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    CHECK(is_in_flight(hold));
    rig_end(&rig, AT(11000));
}

TEST(an_abandoned_check_does_not_change_the_hold) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op_end(begin(&rig, HF_OP_CHECK, AT(1000)), AT(1001));
    CHECK(is_held(hold));
    CHECK(!is_in_flight(hold));
    CHECK_EQ_U64(ends_at(hold), AT(29698));
    rig_sleep(&rig, AT(1001), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    rig_end(&rig, AT(11000));
}

/* ---- a guard's record ---- */

static hf_hold *hold_guard(hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_guard;
    spec.fingerprint = hf_slice_of("p");
    hf_op *op = begin_spec(&rig, &spec, now);
    feed_calls(&rig, ACQUIRED, now);
    hf_hold *hold = hold_in(op);
    hf_op_end(op, now);
    output_of(link_of(&rig, CALLS));
    return hold;
}

static hf_op *begin_complete(hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_COMPLETE);
    spec.lock_kind = &hf_kind_guard;
    spec.fingerprint = hf_slice_of("p");
    spec.result = hf_slice_of("done");
    spec.keep = 5 * HF_SECOND;
    hf_op *op = begin_spec(&rig, &spec, now);
    return op;
}

TEST(a_run_leaves_its_record) {
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    CHECK_SENT(&rig, CALLS, "EVALSHA complete " KEYS_OF_K "5000 p done");
    feed_calls(&rig, ":1\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    rig_end(&rig, AT(3));
}

/* As when the client is closed: the server may not know the program yet. */
TEST(a_sent_record_is_finished_after_the_close) {
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    output_of(link_of(&rig, CALLS));
    hf_client_close(&rig.client, AT(2));
    CHECK_OUTCOME(op, "closed");
    CHECK(!hf_client_is_quiet(&rig.client));
    feed_calls(&rig, "-NOSCRIPT No matching script\r\n", AT(3));
    CHECK(strncmp(output_of(link_of(&rig, CALLS)), "EVAL complete", 13) == 0);
    CHECK(!hf_client_is_quiet(&rig.client));
    feed_calls(&rig, ":1\r\n", AT(4));
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(5));
}

TEST(a_record_that_was_not_written_leaves_the_hold_on_the_server) {
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    feed_calls(&rig, "-ERR no\r\n", AT(2));
    CHECK_OUTCOME(op, "server");
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    hold_guard(AT(10));
    hf_op_end(begin_complete(AT(11)), AT(12));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, "-ERR no\r\n", AT(12));
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    rig_sleep(&rig, AT(12), AT(60000));
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(60000));
}

TEST(a_record_abandoned_during_a_renewal_drops_the_hold) {
    rig_begin(&rig);
    hold_guard(AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    output_of(link_of(&rig, RENEWER));
    hf_op *op = begin_complete(AT(10001));
    CHECK_SENT(&rig, CALLS, "");
    hf_op_end(op, AT(10002));
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    feed_renewer(&rig, "*1\r\n:1\r\n", AT(10003));
    rig_sleep(&rig, AT(10003), AT(60000));
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(60000));
}

TEST(a_record_of_a_lost_run_is_a_loss) {
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    feed_calls(&rig, "-NOSCRIPT\r\n", AT(2));
    feed_calls(&rig, ":-1\r\n", AT(3));
    CHECK_OUTCOME(op, "lost");
    rig_end(&rig, AT(3));
}

TEST(a_record_that_was_sent_twice_and_is_missing_is_a_loss) {
    const hf_time keeps[] = {5 * HF_SECOND, 0};
    for (int i = 0; i < 2; i++) {
        rig_begin(&rig);
        hold_guard(AT(0));
        hf_op *op = begin_complete(AT(1));
        spec_in(op)->keep = keeps[i];
        hf_session_closed(link_of(&rig, CALLS), "reset", AT(2));
        rig_tick(&rig, AT(50));
        feed_calls(&rig, ":-1\r\n", AT(51));
        CHECK_OUTCOME(op, keeps[i] > 0 ? "lost" : "ok");
        CHECK_EQ_INT(hold_count(&rig.client), 0);
        rig_end(&rig, AT(60));
    }
}

/* ---- freed, with dead waiters that are left ---- */

static hf_op *begin_release_of_lock(hf_time now) {
    hold_times(1, AT(0));
    return begin(&rig, HF_OP_RELEASE, now);
}

static hf_op *begin_complete_of_guard(hf_time now) {
    hold_guard(AT(0));
    return begin_complete(now);
}

/* A hold of the renewer's own, with this number, which nobody has. */
#define PASS_ON_K(number)                                                                          \
    "EVALSHA leave 4 k redisson_lock_token:{k} holdfast_queue:{k} "                                \
    "redisson_lock__channel:{k} " DRIVE_UUID ":" number " 2000 0  "

TEST(the_renewer_goes_on_when_dead_waiters_are_left) {
    static hf_op *(*const begins[])(hf_time) = {begin_release_of_lock, begin_complete_of_guard};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        rig_begin(&rig);
        hf_op *op = begins[i](AT(1));
        output_of(link_of(&rig, CALLS));
        feed_calls(&rig, ":3\r\n", AT(2));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_U64(hf_client_stats(&rig.client).releases, 1);
        CHECK(!is_in_table(hold_in(op)));
        for (int turn = 0; turn < 3; turn++) {
            rig_tick(&rig, AT(3 + turn));
            CHECK_SENT(&rig, RENEWER, PASS_ON_K("2"));
            CHECK(!hf_client_is_quiet(&rig.client));
            feed(link_of(&rig, RENEWER), turn < 2 ? ":3\r\n" : ":0\r\n", AT(3 + turn));
        }
        CHECK(hf_client_is_quiet(&rig.client));
        CHECK_EQ_INT(hold_count(&rig.client), 0);
        CHECK_EQ_U64(hf_client_stats(&rig.client).undone, 1);
        CHECK_SENT(&rig, CALLS, "");
        rig_end(&rig, AT(7));
    }
}

/* By then another process of this owner may have the lock: only the dead waiters are the renewer's
 * business. */
TEST(the_renewer_releases_nothing_more_for_a_shared_owner) {
    for (int abandoned = 0; abandoned < 2; abandoned++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(1, AT(0));
        hf_session *link = link_of(&rig, abandoned ? RENEWER : CALLS);
        set_shared(hold, true);
        if (abandoned) hf_client_abandon(&rig.client, hold, 1, AT(1));
        else begin(&rig, HF_OP_RELEASE, AT(1));
        rig_tick(&rig, AT(1));
        CHECK_STR(output_of(link), abandoned ? LEAVE_OF_K("0", "") "1" : RELEASE_OF_K("0") "1");
        feed(link, ":3\r\n", AT(2));
        for (int turn = 0; turn < 2; turn++) {
            rig_tick(&rig, AT(3 + turn));
            CHECK_SENT(&rig, RENEWER, abandoned ? LEAVE_OF_K("0", "") "0" : PASS_ON_K("2"));
            feed(link_of(&rig, RENEWER), turn < 1 ? ":3\r\n" : ":0\r\n", AT(3 + turn));
        }
        CHECK(hf_client_is_quiet(&rig.client));
        CHECK_EQ_INT(hold_count(&rig.client), 0);
        rig_end(&rig, AT(7));
    }
}

/* The second time it would release another process's hold. */
TEST(the_renewer_sends_a_shared_owners_leave_once) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_shared(hold, true);
    hf_client_abandon(&rig.client, hold, 1, AT(1));
    rig_tick(&rig, AT(1));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", "") "1");
    hf_session_closed(link_of(&rig, RENEWER), "reset", AT(2));
    rig_sleep(&rig, AT(2), AT(5000));
    CHECK_SENT(&rig, RENEWER, "");
    CHECK(hf_client_is_quiet(&rig.client));
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    rig_end(&rig, AT(5001));
}

/* The owner may have it through another process by then. */
TEST(a_shared_owners_leave_is_not_sent_after_the_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_time end = ends_at(hold);
    set_shared(hold, true);
    hf_client_abandon(&rig.client, hold, 1, end); /* before the client has noticed that it ended */
    hf_op *op = begin(&rig, HF_OP_ACQUIRE, end);
    CHECK_SENT(&rig, CALLS, "");
    rig_tick(&rig, end);
    CHECK_SENT(&rig, RENEWER, "");
    CHECK(strstr(output_of(link_of(&rig, CALLS)), "EVALSHA acquire ") != NULL);
    feed_calls(&rig, ACQUIRED, end + HF_MS);
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, end + 2 * HF_MS);
}

/* ---- without a hold ---- */

TEST(force_frees_the_lock_and_its_own_hold_is_lost) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_FORCE, AT(1));
    CHECK_SENT(&rig, CALLS,
               "EVALSHA force 4 k redisson_lock_token:{k} holdfast_queue:{k} "
               "redisson_lock__channel:{k} me 2000");
    feed_calls(&rig, ":1\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(value_of(op), 1);
    CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_DELETED);
    op = begin(&rig, HF_OP_FORCE, AT(3));
    feed_calls(&rig, ":0\r\n", AT(4));
    CHECK_EQ_INT(value_of(op), 0);
    op = begin(&rig, HF_OP_FORCE, AT(4));
    feed_calls(&rig, ":3\r\n", AT(5));
    CHECK_OUTCOME(op, "ok");
    CHECK(value_of(op) > 0);
    op = begin(&rig, HF_OP_FORCE, AT(5));
    feed_calls(&rig, "-WRONGTYPE the key holds a string\r\n", AT(6));
    CHECK_OUTCOME(op, "conflict");
    rig_end(&rig, AT(7));
}

TEST(the_holds_of_other_callers_are_checked_after_a_force) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_FORCE);
    spec.caller = spec.owner = hf_slice_of("another");
    hf_client_begin(&rig.client, &spec, AT(1));
    feed_calls(&rig, ":1\r\n", AT(2));
    CHECK(is_held(hold));
    rig_tick(&rig, AT(2));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    feed(link_of(&rig, RENEWER), "*1\r\n:-1\r\n", AT(3));
    CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_DELETED);
    rig_end(&rig, AT(4));
}

TEST(info_returns_owner_holds_ttl_token_and_waiters) {
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_INFO, AT(1));
    CHECK_SENT(&rig, CALLS,
               "EVALSHA info 3 k redisson_lock_token:{k} holdfast_queue:{k} " DRIVE_UUID);
    feed_calls(&rig, "*6\r\n$3\r\nyou\r\n:2\r\n:1500\r\n$16\r\n1722500000000001\r\n:3\r\n:-1\r\n",
               AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_STR(info_of(op)->owner, "you");
    CHECK_EQ_INT(info_of(op)->holds, 2);
    CHECK_EQ_INT(info_of(op)->ttl_ms, 1500);
    CHECK_EQ_U64(info_of(op)->token, 1722500000000001);
    CHECK_EQ_INT(info_of(op)->waiters, 3);
    CHECK_EQ_INT(info_of(op)->ahead, -1);
    rig_end(&rig, AT(7));
}

TEST(a_malformed_reply_to_info_gives_no_owner) {
    static const char *const replies[] = {"*0\r\n", ":1\r\n", "$-1\r\n",
                                          "*6\r\n*0\r\n+x\r\n$-1\r\n$1\r\nx\r\n*0\r\n:1\r\n"};
    for (size_t i = 0; i < 4; i++) {
        rig_begin(&rig);
        hf_op *op = begin(&rig, HF_OP_INFO, AT(1));
        feed_calls(&rig, replies[i], AT(2));
        CHECK(hf_op_is_done(op));
        CHECK_STR(info_of(op)->owner, "");
        rig_end(&rig, AT(7));
    }
}

TEST(an_owner_longer_than_the_limit_is_cut) {
    static char reply[5000];
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_INFO, AT(1));
    int size = snprintf(reply, sizeof reply, "*6\r\n$4000\r\n");
    memset(reply + size, 'o', 4000);
    strcpy(reply + size + 4000, "\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    feed_calls(&rig, reply, AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(strlen(info_of(op)->owner), HF_OWNER_MAX);
    rig_end(&rig, AT(7));
}

TEST(ttl_and_ping) {
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_TTL, AT(1));
    CHECK_SENT(&rig, CALLS, "PTTL k");
    feed_calls(&rig, ":1234\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(value_of(op), 1234);
    op = begin(&rig, HF_OP_PING, AT(3));
    CHECK_SENT(&rig, CALLS, "PING");
    feed_calls(&rig, "+PONG\r\n", AT(4));
    CHECK_OUTCOME(op, "ok");
    op = begin(&rig, HF_OP_PING, AT(5));
    rig_sleep(&rig, AT(5), AT(3005));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_STR(message_of(op),
              "cannot ping on h:1: no reply in time; check that the server is running "
              "and can be reached from here");
    rig_end(&rig, AT(4000));
}

static hf_op *begin_command(hf_time now) {
    static const hf_slice args[] = {{"INFO", 4}, {"server", 6}};
    hf_op_spec spec = {.kind = HF_OP_COMMAND, .args = args, .arg_count = 2};
    hf_op *op = begin_spec(&rig, &spec, now);
    return op;
}

TEST(a_callers_command_returns_its_reply) {
    rig_begin(&rig);
    hf_op *op = begin_command(AT(0));
    CHECK_SENT(&rig, CALLS, "INFO server");
    feed_calls(&rig, "*2\r\n:1\r\n$1\r\nx\r\n", AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(reply_in(op)->size, 2);
    CHECK_STR(reply_in(op)->elements[1]->string, "x");
    op = begin_command(AT(2));
    feed_calls(&rig, "-ERR no\r\n", AT(3));
    CHECK_OUTCOME(op, "server");
    CHECK(!reply_in(op));
    rig_end(&rig, AT(4));
}

TEST(out_of_memory_a_command_fails) {
    bool good = false;
    unsigned long nth = 1;
    for (; nth < 100 && !good; nth++) {
        rig_begin(&rig);
        memerr_fail(nth);
        hf_op *op = begin_command(AT(0));
        hf_session *link = link_of(&rig, CALLS);
        if (op && !hf_op_is_done(op)) hf_session_feed(link, "*2\r\n:1\r\n$1\r\nx\r\n", 15, AT(1));
        bool failed = memerr_failed();
        memerr_fail(0);
        if (op && !hf_op_is_done(op)) rig_sleep(&rig, AT(1), AT(4000));
        CHECK(!op || hf_op_is_done(op));
        good = op && hf_op_code(op) == HF_OK && !failed;
        rig_end(&rig, AT(4000));
    }
    CHECK(good && nth > 8);
}

TEST(force_is_not_sent_twice) {
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_FORCE, AT(1));
    output_of(link_of(&rig, CALLS));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(2));
    CHECK_OUTCOME(op, "unreachable");
    rig_tick(&rig, AT(50));
    CHECK_SENT(&rig, CALLS, "");
    rig_end(&rig, AT(60));
}

TEST(a_force_that_was_sent_before_the_close_may_have_been_done) {
    for (int sent = 0; sent <= 1; sent++) {
        rig_begin(&rig);
        hf_op_spec spec = spec_of(&rig, HF_OP_FORCE);
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(1));
        if (sent) rig_serve(&rig, AT(1));
        hf_client_close(&rig.client, AT(2));
        CHECK_OUTCOME(op, "closed");
        CHECK_EQ_INT(strstr(message_of(op), "may have taken effect") != NULL, sent);
        rig_end(&rig, AT(3));
    }
}

TEST(abandoned_calls_without_a_hold_leave_nothing) {
    static const hf_op_kind kinds[] = {HF_OP_FORCE, HF_OP_INFO, HF_OP_TTL, HF_OP_PING};
    rig_begin(&rig);
    for (size_t i = 0; i < 4; i++) {
        hf_op_end(begin(&rig, kinds[i], AT(1)), AT(2));
        feed_calls(&rig, ":1\r\n", AT(3));
    }
    CHECK(!ops_of(&rig.client));
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(4));
}

TEST(no_call_begins_after_the_close) {
    static const hf_op_kind kinds[] = {HF_OP_ACQUIRE, HF_OP_RELEASE, HF_OP_EXTEND, HF_OP_CHECK,
                                       HF_OP_FORCE,   HF_OP_INFO,    HF_OP_TTL,    HF_OP_PING};
    rig_begin(&rig);
    hf_client_close(&rig.client, AT(0));
    for (size_t i = 0; i < 8; i++) CHECK_OUTCOME(begin(&rig, kinds[i], AT(1)), "closed");
    CHECK_EQ_INT(link_of(&rig, CALLS)->state, HF_SESSION_CLOSED);
    rig_end(&rig, AT(4));
}

/* ---- memory ---- */

struct trial {
    hf_op_kind kind;
    const char *reply;
};

/* One operation that needs no hold, with a new client. */
static bool carry_out(void *context) {
    const struct trial *tried = context;
    hf_client_config config = rig_config();
    struct rig own = {.refusing = false};
    hf_client_init(&own.client, &config, DRIVE_ENTROPY);
    if (!hf_names_make(&own.names, hf_slice_of("k"))) return false;
    static const hf_slice args[] = {{"GET", 3}, {"x", 1}};
    hf_op_spec spec = spec_of(&own, tried->kind);
    spec.args = args;
    spec.arg_count = 2;
    hf_op *op = hf_client_begin(&own.client, &spec, AT(10));
    for (int i = 0; op && !hf_op_is_done(op) && i < 3; i++) {
        rig_tick(&own, AT(10 + i));
        hf_session *link = link_of(&own, CALLS);
        if (link->state == HF_SESSION_READY)
            hf_session_feed(link, tried->reply, strlen(tried->reply), AT(10 + i));
    }
    if (op && !hf_op_is_done(op)) rig_sleep(&own, AT(20), AT(5000));
    if (op && !hf_op_is_done(op)) abort();
    bool good = op && hf_op_code(op) == HF_OK;
    rig_end(&own, AT(5000));
    return good;
}

TEST(out_of_memory_without_a_hold) {
    static struct trial trials[] = {
        {HF_OP_FORCE, ":1\r\n"},
        {HF_OP_INFO, "*6\r\n$2\r\nme\r\n:2\r\n:1500\r\n$2\r\n17\r\n:3\r\n:-1\r\n"},
        {HF_OP_TTL, ":1\r\n"},
        {HF_OP_PING, "+PONG\r\n"},
        {HF_OP_COMMAND, "*2\r\n$1\r\na\r\n:1\r\n"}};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        CHECK(memerr_until_success(carry_out, &trials[i], 100) > 6);
    }
}

/* The same on a held lock, whose acquire is not disturbed. */
static void check_survives(hf_op_kind kind, const char *reply, uint32_t count) {
    bool good = false;
    unsigned long nth = 1;
    for (; nth < 100 && !good; nth++) {
        rig_begin(&rig);
        bool guard = kind == HF_OP_COMPLETE;
        hf_hold *hold = guard ? hold_guard(AT(0)) : hold_times(count, AT(0));
        hf_hold_ref(hold);
        memerr_fail(nth);
        hf_op_spec spec = spec_of(&rig, kind);
        spec.lock_kind = kind_of(hold);
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(10));
        hf_session *link = link_of(&rig, CALLS);
        if (op && !hf_op_is_done(op)) hf_session_feed(link, reply, strlen(reply), AT(11));
        bool failed = memerr_failed();
        memerr_fail(0);
        if (op && hf_op_is_done(op)) CHECK(!is_in_flight(hold));
        if (op && !hf_op_is_done(op)) rig_sleep(&rig, AT(11), AT(9000));
        CHECK(!op || hf_op_is_done(op));
        good = op && hf_op_code(op) == HF_OK && !failed;
        bool known = is_held(hold) || is_cleaned_up(hold) || !is_in_table(hold);
        CHECK(known);
        if (is_held(hold) && is_in_table(hold))
            CHECK(hf_client_renewer_deadline(&rig.client) <= ends_at(hold));
        hf_hold_unref(hold);
        rig_end(&rig, AT(9000));
    }
    CHECK(good && nth > 3);
}

TEST(out_of_memory_on_a_hold) {
    check_survives(HF_OP_RELEASE, ":1\r\n", 1);
    check_survives(HF_OP_RELEASE, ":2\r\n", 2);
    check_survives(HF_OP_EXTEND, ":1\r\n", 1);
    check_survives(HF_OP_CHECK, ":1\r\n", 1);
    check_survives(HF_OP_COMPLETE, ":1\r\n", 1);
}

TEST(a_callers_command_may_have_one_word) {
    static const hf_slice word[] = {{"TIME", 4}};
    rig_begin(&rig);
    hf_op_spec spec = {.kind = HF_OP_COMMAND, .args = word, .arg_count = 1};
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    CHECK_SENT(&rig, CALLS, "TIME");
    feed_calls(&rig, "-ERR no\r\n", AT(1));
    CHECK_OUTCOME(op, "server");
    rig_end(&rig, AT(2));
}

TEST(without_memory_an_abandoned_release_of_a_shared_owner_is_not_finished) {
    rig_begin(&rig);
    set_shared(hold_times(1, AT(0)), true);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    output_of(link_of(&rig, CALLS));
    memerr_fail(1);
    hf_op_end(op, AT(2));
    CHECK(memerr_failed());
    memerr_fail(0);
    feed_calls(&rig, "-NOSCRIPT No matching script\r\n", AT(3));
    CHECK_SENT(&rig, CALLS, "");
    rig_end(&rig, AT(5));
}

TEST(a_check_does_not_shorten_an_extended_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(1000));
    feed_calls(&rig, ":1\r\n", AT(1001));
    CHECK_OUTCOME(op, "ok");
    hf_time end = ends_at(hold);
    CHECK_EQ_U64(end, hf_lease_end(AT(1000), 60 * HF_SECOND));
    op = begin(&rig, HF_OP_CHECK, AT(2000));
    CHECK_EQ_U64(ends_at(hold), end);
    feed_calls(&rig, ":1\r\n", AT(2001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(ends_at(hold), end);
    rig_end(&rig, AT(2002));
}

TEST(a_call_without_a_wait_fails_if_it_cannot_connect) {
    static const hf_op_kind kinds[] = {HF_OP_PING, HF_OP_TTL, HF_OP_INFO, HF_OP_FORCE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        rig_begin(&rig);
        rig.refusing = true;
        hf_op *op = begin(&rig, kinds[i], AT(0));
        CHECK_OUTCOME(op, "unreachable");
        rig_end(&rig, AT(1));
    }
}

TEST(a_second_check_keeps_the_renewal_waiting) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *first = begin(&rig, HF_OP_CHECK, AT(1000));
    hf_op *second = begin(&rig, HF_OP_CHECK, AT(1000));
    CHECK(hf_op_is_blocked(second));
    feed_calls(&rig, ":1\r\n", AT(1001));
    CHECK_OUTCOME(first, "ok");
    CHECK(!hf_op_is_blocked(second));
    CHECK(is_in_flight(hold));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), ends_at(hold));
    rig_end(&rig, AT(1002));
}

TEST(dead_waiters_left_by_a_force_are_passed_over_in_the_background) {
    static const struct {
        const char *reply;
        bool passes_on;
    } cases[] = {{":3\r\n", true}, {":1\r\n", false}, {":0\r\n", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_op *op = begin(&rig, HF_OP_FORCE, AT(0));
        feed_calls(&rig, cases[i].reply, AT(1));
        CHECK_OUTCOME(op, "ok");
        rig_tick(&rig, AT(1));
        bool leaves = strstr(output_of(link_of(&rig, RENEWER)), "EVALSHA leave") != NULL;
        CHECK_EQ_INT(leaves, cases[i].passes_on);
        rig_end(&rig, AT(2));
    }
}

TEST(a_release_behind_a_command_that_never_ends_is_unreachable) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_in_flight(hold, true);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK(hf_op_is_blocked(op));
    hf_op_tick(op, AT(3000));
    CHECK_OUTCOME(op, "under way");
    hf_op_tick(op, AT(3001));
    CHECK_OUTCOME(op, "unreachable");
    rig_end(&rig, AT(3002));
}

TEST(a_hold_is_not_due_while_its_record_is_in_flight) {
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    CHECK_EQ_U64(wakes_at(hold_in(op)), ends_at(hold_in(op)));
    rig_end(&rig, AT(2));
}

/* ---- abandoned ---- */

static hf_op *begin_guard(hf_op_kind kind) {
    hf_op_spec spec = spec_of(&rig, kind);
    spec.lock_kind = &hf_kind_guard;
    hold_guard(AT(0));
    return begin_spec(&rig, &spec, AT(1));
}

static hf_op *begin_call(hf_op_kind kind) {
    static const hf_slice word[] = {{"TIME", 4}};
    hf_op_spec spec = spec_of(&rig, kind);
    if (kind == HF_OP_COMPLETE) return begin_guard(kind);
    if (kind == HF_OP_COMMAND) spec.args = word, spec.arg_count = 1;
    if (kind == HF_OP_SET) spec.lock_kind = &hf_kind_permit;
    if (hf_op_kind_needs_a_hold(kind)) hold_times(1, AT(0));
    return begin_spec(&rig, &spec, AT(1));
}

static const hf_op_kind CALL_KINDS[] = {
    HF_OP_RELEASE, HF_OP_COMPLETE, HF_OP_EXTEND,  HF_OP_CHECK,      HF_OP_FORCE, HF_OP_INFO,
    HF_OP_TTL,     HF_OP_PING,     HF_OP_COMMAND, HF_OP_WRITE_BACK, HF_OP_SET,
};

TEST(an_abandoned_call_ignores_its_reply) {
    for (size_t i = 0; i < sizeof CALL_KINDS / sizeof *CALL_KINDS; i++) {
        rig_begin(&rig);
        hf_op *op = begin_call(CALL_KINDS[i]);
        CHECK(output_of(link_of(&rig, CALLS))[0] != '\0');
        hf_op_abandon(op, AT(2));
        feed_calls(&rig, ":1\r\n", AT(3));
        CHECK_OUTCOME(op, "interrupted");
        CHECK_EQ_U64(hf_client_stats(&rig.client).releases, 0);
        CHECK(!reply_in(op));
        rig_end(&rig, AT(4));
    }
}

TEST(without_memory_an_abandoned_release_of_a_shared_owner_ignores_its_reply) {
    rig_begin(&rig);
    set_shared(hold_times(1, AT(0)), true);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    memerr_fail(1);
    hf_op_abandon(op, AT(2));
    CHECK(memerr_failed());
    memerr_fail(0);
    feed_calls(&rig, ":1\r\n", AT(3));
    CHECK_OUTCOME(op, "interrupted");
    CHECK_EQ_U64(hf_client_stats(&rig.client).releases, 0);
    rig_end(&rig, AT(4));
}

TEST(an_abandoned_release_of_an_own_owner_awaits_no_reply) {
    rig_begin(&rig);
    hold_times(1, AT(0));
    hf_op_end(begin(&rig, HF_OP_RELEASE, AT(1)), AT(2));
    CHECK_EQ_INT(unanswered_count(&rig.client), 0);
    rig_end(&rig, AT(3));
}

TEST(a_check_behind_an_abandoned_one_keeps_the_renewal_waiting) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *first = begin(&rig, HF_OP_CHECK, AT(1000));
    hf_op *second = begin(&rig, HF_OP_CHECK, AT(1000));
    CHECK(hf_op_is_blocked(second));
    hf_op_abandon(first, AT(1001));
    CHECK(!hf_op_is_blocked(second) && is_in_flight(hold));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), ends_at(hold));
    rig_end(&rig, AT(1002));
}

/* ---- what they are ---- */

TEST(calls_on_a_hold_need_one_and_two_of_them_end_it) {
    for (size_t i = 0; i < sizeof CALL_KINDS / sizeof *CALL_KINDS; i++) {
        hf_op_kind kind = CALL_KINDS[i];
        bool ends = kind == HF_OP_RELEASE || kind == HF_OP_COMPLETE;
        CHECK_EQ_INT(hf_op_kind_needs_a_hold(kind),
                     ends || kind == HF_OP_EXTEND || kind == HF_OP_CHECK);
        CHECK_EQ_INT(hf_op_kind_releases(kind), ends);
        CHECK(!hf_op_kind_acquires(kind) && !hf_op_kind_lingers(kind));
    }
}

TEST(an_extend_that_was_sent_once_bounds_no_later_one) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(10 * HF_SECOND, AT(1000));
    feed_calls(&rig, ":1\r\n", AT(1001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(shortened_lease(hold), HF_NEVER);
    op = begin_extend(60 * HF_SECOND, AT(2000));
    feed_calls(&rig, ":1\r\n", AT(2001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(2000), 60 * HF_SECOND));
    rig_end(&rig, AT(2002));
}

TEST(an_extend_confirms_a_grant) {
    rig_begin(&rig);
    hf_hold *hold = hold_granted(AT(0));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(200));
    feed_calls(&rig, ":1\r\n", AT(201));
    CHECK_OUTCOME(op, "ok");
    CHECK(!is_granted(hold));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client),
                 hf_lease_renew_before(ends_at(hold), 60 * HF_SECOND));
    rig_end(&rig, AT(202));
}

/* A longer lease that another process has set stays. */
TEST(an_extend_of_a_shared_owner_never_shortens) {
    rig_begin(&rig);
    set_shared(hold_times(1, AT(0)), true);
    begin_extend(60 * HF_SECOND, AT(1));
    CHECK_SENT(&rig, CALLS,
               "EVALSHA extend 2 k holdfast_queue:{k} me 60000 0  redisson_lock__channel:{k}");
    rig_end(&rig, AT(2));
}

TEST(an_abandoned_extend_is_renewed_by_its_shorter_lease) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op_end(begin_extend(10 * HF_SECOND, AT(1000)), AT(1100));
    CHECK_EQ_U64(ends_at(hold), AT(1000 + 9898));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client),
                 hf_lease_renew_before(ends_at(hold), 10 * HF_SECOND));
    rig_end(&rig, AT(1101));
}

TEST(an_extend_abandoned_before_it_was_sent_changes_nothing) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_session_closed(link_of(&rig, CALLS), "idle", AT(500));
    hf_op_spec spec = spec_of(&rig, HF_OP_EXTEND);
    spec.lease = 10 * HF_SECOND;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1000));
    CHECK_EQ_U64(ends_at(hold), AT(1000 + 9898));
    hf_op_end(op, AT(1100));
    CHECK_EQ_U64(ends_at(hold), AT(29698));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(10000));
    rig_end(&rig, AT(1101));
}

TEST(a_hold_is_not_due_while_it_is_released) {
    for (uint32_t count = 1; count <= 2; count++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(count, AT(0));
        begin(&rig, HF_OP_RELEASE, AT(1));
        CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client),
                     count == 1 ? HF_NEVER : ends_at(hold));
        rig_end(&rig, AT(2));
    }
}

TEST(a_hold_that_may_have_been_released_is_uncertain) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK(!is_uncertain(hold));
    feed_calls(&rig, "-OOM no\r\n", AT(2));
    CHECK(is_uncertain(hold));
    rig_end(&rig, AT(3));
}

/* Its handles learn of the loss by it. */
TEST(a_hold_lost_during_a_partial_release_stays_until_its_last_release) {
    for (int abandoned = 0; abandoned < 2; abandoned++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(2, AT(0));
        hf_hold_ref(hold);
        begin(&rig, HF_OP_RELEASE, AT(1));
        if (abandoned) hf_client_abandon(&rig.client, hold, 1, AT(2));
        hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
        feed_calls(&rig, "-OOM no\r\n", AT(3));
        CHECK(is_lost(hold));
        CHECK_EQ_INT(count_of(hold), abandoned ? 0 : 1);
        CHECK_EQ_INT(is_in_table(hold), !abandoned);
        rig_end(&rig, AT(4));
        hf_hold_unref(hold);
    }
}

TEST(a_key_to_be_freed_that_is_missing_is_a_loss_unless_sent_twice) {
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    spec_in(op)->keep = 0;
    feed_calls(&rig, ":-1\r\n", AT(2));
    CHECK_OUTCOME(op, "lost");
    rig_end(&rig, AT(3));
}

TEST(calls_on_a_hold_fail_if_they_cannot_connect) {
    static const hf_op_kind kinds[] = {HF_OP_RELEASE, HF_OP_COMPLETE, HF_OP_EXTEND, HF_OP_CHECK};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        rig_begin(&rig);
        hf_op_spec spec = spec_of(&rig, kinds[i]);
        if (kinds[i] == HF_OP_COMPLETE) {
            spec.lock_kind = &hf_kind_guard;
            hold_guard(AT(0));
        } else {
            hold_times(1, AT(0));
        }
        hf_session_closed(link_of(&rig, CALLS), "idle", AT(1));
        rig.refusing = true;
        CHECK_OUTCOME(begin_spec(&rig, &spec, AT(2)), "unreachable");
        rig_end(&rig, AT(3));
    }
}

TEST(each_reason_of_a_loss_has_its_message) {
    static const char *const words[] = {
        [HF_LOST_EXPIRED] = "its lease had already ended",
        [HF_LOST_TAKEN] = "another owner holds it",
        [HF_LOST_DELETED] = "its key was deleted on the server",
        [HF_LOST_UNREACHABLE] = "it could not be renewed in time",
        [HF_LOST_MAX_HOLD] = "it was held for as long as max_hold allows",
    };
    _Static_assert(sizeof words / sizeof *words == HF_LOST_REASONS, "each reason has its words");
    for (int reason = HF_LOST_EXPIRED; reason < HF_LOST_REASONS; reason++) {
        rig_begin(&rig);
        hf_client_lose(&rig.client, hold_times(1, AT(0)), (hf_lost_reason)reason);
        hf_op *op = begin(&rig, HF_OP_CHECK, AT(1));
        CHECK_OUTCOME(op, "lost");
        CHECK_OR(strstr(message_of(op), words[reason]), "%s", message_of(op));
        rig_end(&rig, AT(2));
    }
}

TEST(an_extend_answered_after_the_last_lease_names_max_hold) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    set_bound(hold, AT(2000));
    hf_hold_ref(hold);
    hf_op *op = begin_extend(60 * HF_SECOND, AT(1));
    set_hold_state(hold, HF_HOLD_HELD);
    feed_calls(&rig, ":1\r\n", AT(2500));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(reason_of(hold), HF_LOST_MAX_HOLD);
    hf_hold_unref(hold);
    rig_end(&rig, AT(2600));
}

/* Each one counts, by whichever reply it ends. */
TEST(each_release_is_counted_once) {
    rig_begin(&rig);
    hold_times(2, AT(0));
    begin(&rig, HF_OP_RELEASE, AT(1));
    feed_calls(&rig, ":2\r\n", AT(2));
    CHECK_EQ_U64(hf_client_stats(&rig.client).releases, 1);
    begin(&rig, HF_OP_RELEASE, AT(3));
    output_of(link_of(&rig, CALLS));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(4));
    rig_tick(&rig, AT(50));
    output_of(link_of(&rig, CALLS));
    feed_calls(&rig, ":-1\r\n", AT(51));
    CHECK_EQ_U64(hf_client_stats(&rig.client).releases, 2);
    rig_end(&rig, AT(60));
}

/* The owner has acquired the lock again: cleaning up would take that from it. */
TEST(a_failed_release_of_a_lost_and_replaced_hold_cleans_nothing_up) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    begin_acquire(&rig, 0, AT(2));
    output_of(link_of(&rig, CALLS));
    CHECK(!is_in_table(hold));
    feed_calls(&rig, "-OOM no\r\n" ACQUIRED, AT(3));
    CHECK(hf_op_is_done(op));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    rig_tick(&rig, AT(4));
    CHECK_EQ_INT(hold_count(&rig.client), 1);
    CHECK_SENT(&rig, CALLS, "");
    rig_end(&rig, AT(5));
}

TEST(a_check_needs_no_replica_but_confirms_nothing_without_one) {
    for (int replicas = 0; replicas <= 1; replicas++) {
        rig_begin(&rig);
        hf_hold *hold = hold_granted(AT(0));
        hf_time end = ends_at(hold);
        config_in(&rig.client)->sync = (hf_sync){1, 100 * HF_MS};
        hf_op *op = begin(&rig, HF_OP_CHECK, AT(200));
        CHECK(strstr(output_of(link_of(&rig, CALLS)), "WAIT 1 100"));
        feed_calls(&rig, replicas ? ":1\r\n:1\r\n" : ":1\r\n:0\r\n", AT(201));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_INT(is_granted(hold), !replicas);
        CHECK_EQ_INT(ends_at(hold) == end, !replicas);
        rig_end(&rig, AT(202));
    }
}

TEST(a_check_that_renews_nothing_waits_for_no_replica) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    config_in(&rig.client)->sync = (hf_sync){1, 100 * HF_MS};
    begin(&rig, HF_OP_CHECK, AT(1));
    CHECK_SENT(&rig, CALLS, CHECK_OF_K);
    feed_calls(&rig, ":1\r\n", AT(2));
    set_bound(hold, ends_at(hold)); /* no renewal makes it longer */
    begin(&rig, HF_OP_CHECK, AT(29000));
    CHECK_SENT(&rig, CALLS, CHECK_OF_K);
    rig_end(&rig, AT(29001));
}

TEST(a_partial_release_never_shortens_what_the_hold_has) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    set_end(hold, AT(60000));
    begin(&rig, HF_OP_RELEASE, AT(5000));
    feed_calls(&rig, ":2\r\n", AT(5001));
    CHECK_EQ_U64(ends_at(hold), AT(60000));
    rig_end(&rig, AT(5002));
}

/* No replica confirms a release, so the lease that it sets does not count. */
TEST(a_partial_release_extends_nothing_that_replicas_must_confirm) {
    for (uint16_t replicas = 0; replicas <= 1; replicas++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(2, AT(0));
        config_in(&rig.client)->sync = (hf_sync){replicas, 100 * HF_MS};
        begin(&rig, HF_OP_RELEASE, AT(5000));
        output_of(link_of(&rig, CALLS));
        feed_calls(&rig, ":2\r\n:0\r\n", AT(5001));
        CHECK_EQ_INT(count_of(hold), 1);
        CHECK_EQ_U64(ends_at(hold), AT(replicas ? 29698 : 5000 + 29698));
        CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(replicas ? 10000 : 15000));
        rig_end(&rig, AT(5002));
    }
}

/* A record may be written as long as no other run may have begun. */
TEST(a_refused_record_is_written_until_the_lease_ends) {
    rig_begin(&rig);
    hf_time end = ends_at(hold_guard(AT(0)));
    hf_op *op = begin_complete(AT(1));
    feed_calls(&rig, "-LOADING wait\r\n", AT(2));
    for (int ms = 50; ms < 3500; ms += 50) {
        rig_tick(&rig, AT(ms));
        if (output_of(link_of(&rig, CALLS))[0]) feed_calls(&rig, "-LOADING wait\r\n", AT(ms));
    }
    CHECK(hf_op_is_done(op) && strstr(message_of(op), "in the background"));
    CHECK(!hf_client_is_quiet(&rig.client));
    rig.refusing = true;
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(3500));
    rig_sleep(&rig, AT(3500), end - 1);
    CHECK(!hf_client_is_quiet(&rig.client));
    rig_sleep(&rig, end - 1, end + HF_MS);
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, end + HF_MS);
}

/* Its operation is long gone when the reply comes. */
TEST(a_refused_record_that_is_written_at_last_ends_quietly) {
    rig_begin(&rig);
    hf_observe_class(&rig.client, "");
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    int ms = 2;
    for (feed_calls(&rig, "-LOADING wait\r\n", AT(ms)); ms < 3500; ms += 50) {
        rig_tick(&rig, AT(ms));
        if (output_of(link_of(&rig, CALLS))[0]) feed_calls(&rig, "-LOADING wait\r\n", AT(ms));
    }
    CHECK(hf_op_is_done(op) && !hf_client_is_quiet(&rig.client));
    hf_op_end(op, AT(ms));
    for (; !output_of(link_of(&rig, CALLS))[0] && ms < 10000; ms += 50) rig_tick(&rig, AT(ms));
    feed_calls(&rig, ":1\r\n", AT(ms));
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(ms));
}

/* The server compares it with the owner that it knows. */
TEST(force_names_the_owner_of_the_callers_own_hold) {
    for (int held = 0; held <= 1; held++) {
        rig_begin(&rig);
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.owner = hf_slice_of("owner");
        if (held) begin_spec(&rig, &spec, AT(0));
        if (held) feed_calls(&rig, ACQUIRED, AT(0));
        output_of(link_of(&rig, CALLS));
        begin(&rig, HF_OP_FORCE, AT(1));
        CHECK(strstr(output_of(link_of(&rig, CALLS)), held ? " owner " : " me ") != NULL);
        rig_end(&rig, AT(2));
    }
}

TEST(changed_permits_without_a_reply_may_have_been_set) {
    rig_begin(&rig);
    hf_op *op = begin_call(HF_OP_SET);
    output_of(link_of(&rig, CALLS));
    hf_op_abandon(op, AT(2));
    CHECK(strstr(message_of(op), "may have taken effect"));
    rig_end(&rig, AT(3));
}

TEST(an_extend_of_a_hold_abandoned_meanwhile_is_a_loss) {
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(1));
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    feed_calls(&rig, ":1\r\n", AT(3));
    CHECK_OUTCOME(op, "lost");
    CHECK_OR(strstr(message_of(op), ": lost"), "%s", message_of(op));
    rig_end(&rig, AT(4));
}

TEST(a_call_that_waits_for_a_hold_ends_when_a_release_finds_it_lost) {
    rig_begin(&rig);
    hf_hold *hold = hold_while_renewed(1);
    hf_op *waits = begin_extend(HF_SECOND, AT(10001));
    CHECK(hf_op_is_blocked(waits));
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(10002)), "lost");
    CHECK_OUTCOME(waits, "lost");
    rig_end(&rig, AT(10003));
}

TEST(a_call_that_fails_for_memory_leaves_the_hold_to_the_renewer) {
    static const hf_op_kind kinds[] = {HF_OP_RELEASE, HF_OP_EXTEND, HF_OP_CHECK};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool failed = true;
        unsigned long nth = 2; /* the first one is the operation itself */
        for (; failed && nth < 20; nth++) {
            rig_begin(&rig);
            hf_hold *hold = hold_times(1, AT(0));
            for (int n = 0; n < 16; n++) begin(&rig, HF_OP_PING, AT(1)); /* no room for a reply */
            hf_op_spec spec = spec_of(&rig, kinds[i]);
            memerr_fail(nth);
            hf_op *op = hf_client_begin(&rig.client, &spec, AT(1000));
            failed = memerr_failed();
            memerr_fail(0);
            CHECK_OUTCOME(op, failed ? "no_memory" : "under way");
            CHECK_EQ_INT(is_in_flight(hold), !failed);
            if (failed && is_held(hold))
                CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(10000));
            if (failed && !is_held(hold))
                CHECK(hf_client_renewer_deadline(&rig.client) <= AT(1000));
            rig_end(&rig, AT(1001));
        }
        CHECK(!failed && nth > 3);
    }
}

/* A lost hold is cleaned up once, before a call that waits for it goes on. */
TEST(a_hold_that_two_releases_find_lost_is_cleaned_up_once) {
    rig_begin(&rig);
    hf_hold *hold = hold_while_renewed(1);
    hf_op *waits = begin(&rig, HF_OP_RELEASE, AT(10001));
    CHECK(hf_op_is_blocked(waits));
    hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(10002)), "lost");
    CHECK_OUTCOME(waits, "lost");
    CHECK_EQ_INT(hold_count(&rig.client), 1);
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_end(&rig, AT(10003));
}

TEST(a_call_behind_an_abandoned_record_finds_nothing_held) {
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    hf_op_spec spec = spec_of(&rig, HF_OP_CHECK);
    spec.lock_kind = &hf_kind_guard;
    hf_op *waits = begin_spec(&rig, &spec, AT(2));
    CHECK(hf_op_is_blocked(waits));
    hf_op_abandon(op, AT(3));
    CHECK_OUTCOME(waits, "not_held");
    rig_end(&rig, AT(4));
}

/* ---- malformed replies ---- */

static const char *const senseless[] = {":0\r\n", ":99\r\n", "+OK\r\n", "$-1\r\n"};

TEST(a_malformed_reply_to_an_extend_is_not_a_loss) {
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(1, AT(0));
        hf_op *op = begin_extend(5 * HF_SECOND, AT(10));
        feed_calls(&rig, senseless[i], AT(11));
        CHECK_OUTCOME(op, "server");
        CHECK(hf_hold_is_valid(hold, AT(11)) && !is_in_flight(hold));
        CHECK(!hf_hold_is_valid(hold, AT(5010)));
        CHECK_EQ_U64(shortened_lease(hold), 5 * HF_SECOND);
        op = begin(&rig, HF_OP_CHECK, AT(12));
        feed_calls(&rig, senseless[i], AT(13));
        CHECK_OUTCOME(op, "server");
        CHECK(hf_hold_is_valid(hold, AT(13)));
        CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 0);
        rig_end(&rig, AT(14));
    }
}

TEST(a_release_with_a_malformed_reply_goes_on_in_the_background) {
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++) {
        rig_begin(&rig);
        hold_times(1, AT(0));
        hf_op *op = begin(&rig, HF_OP_RELEASE, AT(10));
        feed_calls(&rig, senseless[i], AT(11));
        CHECK_OUTCOME(op, "server");
        CHECK(strstr(message_of(op), "the release continues in the background"));
        CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
        CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 0);
        rig_end(&rig, AT(12));
    }
}

TEST(a_malformed_reply_to_a_record_is_not_a_loss) {
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++) {
        rig_begin(&rig);
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.lock_kind = &hf_kind_guard;
        begin_spec(&rig, &spec, AT(10));
        feed_calls(&rig, ACQUIRED, AT(10));
        spec.kind = HF_OP_COMPLETE;
        spec.keep = HF_SECOND;
        hf_op *op = begin_spec(&rig, &spec, AT(11));
        feed_calls(&rig, senseless[i], AT(12));
        CHECK_OUTCOME(op, "server");
        CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 0);
        rig_end(&rig, AT(13));
    }
}

CHECK_MAIN
