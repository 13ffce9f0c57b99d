/* What a quorum does with a hold, or asks about a key. */
#include "quorum_rig.h"

#include "op/observe.h"

static hf_op *begin_extend(hf_time lease, hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_EXTEND);
    spec.lease = lease;
    hf_op *op = begin_round(&spec, now);
    return op;
}

/* Answers by the first servers, one after the other, until NULL. */
static void answer_all(const char *const *replies, hf_time now) {
    for (int i = 0; i < COUNT && replies[i]; i++) answer(i, replies[i], now);
}

/* Enters the hold of the caller once more, by `count` servers. */
static void enter_again(int count, hf_time now) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, now);
    answers(0, count, yes(77), now);
    hf_op_end(op, now);
    rig_hush(&rig);
}

/* ---- extend, check ---- */

TEST(an_extension_needs_a_majority) {
    start();
    hold_by(5, AT(0));
    hf_hold *hold = hold_of(&rig);
    hf_op *op = begin_extend(60 * HF_SECOND, AT(1000));
    for (int i = 0; i < COUNT; i++) CHECK_CONTAINS(output_by(i), "EVALSHA extend");
    answers(0, 2, ":1\r\n", AT(1001));
    CHECK_OUTCOME(op, "under way");
    CHECK_EQ_U64(lease_of(hold), 30 * HF_SECOND);
    answer(2, ":1\r\n", AT(1001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(lease_of(hold), 60 * HF_SECOND);
    CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(1000), 60 * HF_SECOND));
    CHECK(!is_in_flight(hold));
    hf_op_end(op, AT(1002));
    finish(AT(1003));
}

TEST(a_check_leaves_the_lease_as_it_is) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_CHECK, 0, AT(1000));
    answers(0, 3, ":1\r\n", AT(1001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(lease_of(hold_of(&rig)), 30 * HF_SECOND);
    hf_op_end(op, AT(1002));
    finish(AT(1003));
}

TEST(a_check_or_extension_without_a_majority_fails) {
    static const struct {
        hf_op_kind kind;
        const char *replies[COUNT + 1], *outcome, *message;
    } cases[] = {
        {HF_OP_CHECK,
         {":1\r\n", ":1\r\n", "-ERR no\r\n", "-ERR no\r\n", "-ERR no\r\n"},
         "no_quorum",
         "2 of 5 confirmed: s3 server, s4 server, s5 server"},
        {HF_OP_EXTEND,
         {":1\r\n", ":1\r\n", "-ERR no\r\n", "-ERR no\r\n", "-ERR no\r\n"},
         "no_quorum",
         "2 of 5 extended: s3 server"},
        {HF_OP_CHECK,
         {":1\r\n", ":1\r\n", ":-1\r\n", ":-1\r\n", ":-1\r\n"},
         "lost",
         "it is no longer held on a majority of the servers (deleted)"},
        {HF_OP_EXTEND,
         {":-2\r\n", ":-2\r\n", ":-2\r\n", ":1\r\n", ":1\r\n"},
         "lost",
         "it is no longer held on a majority of the servers (taken)"},
        {HF_OP_CHECK, {":-1\r\n", ":-1\r\n", ":1\r\n", ":1\r\n", ":1\r\n"}, "ok", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hold_by(5, AT(0));
        hf_op *op = cases[i].kind == HF_OP_CHECK ? begin_quorum(HF_OP_CHECK, 0, AT(1000))
                                                 : begin_extend(60 * HF_SECOND, AT(1000));
        answer_all(cases[i].replies, AT(1001));
        CHECK_OUTCOME(op, cases[i].outcome);
        if (cases[i].message) CHECK_CONTAINS(message_of(op), cases[i].message);
        CHECK_EQ_U64(lease_of(hold_of(&rig)), 30 * HF_SECOND);
        hf_op_end(op, AT(1002));
        finish(AT(1003));
    }
}

TEST(a_failed_check_waits_for_the_other_replies_but_not_for_long) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_CHECK, 0, AT(1000));
    answers(0, 3, "-ERR no\r\n", AT(1001));
    CHECK_OUTCOME(op, "under way"); /* the other two may reply that it is lost */
    pass(AT(1001), AT(1600));
    CHECK_OUTCOME(op, "no_quorum");
    hf_op_end(op, AT(1600));
    finish(AT(1601));
}

TEST(a_call_on_a_lock_that_is_not_held_fails) {
    start();
    CHECK_OUTCOME(begin_quorum(HF_OP_CHECK, 0, AT(0)), "not_held");
    CHECK_OUTCOME(begin_quorum(HF_OP_RELEASE, 0, AT(0)), "not_held");
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    CHECK_OUTCOME(begin_quorum(HF_OP_CHECK, 0, AT(0)), "not_held");
    CHECK_OUTCOME(op, "under way");
    finish(AT(1));
}

/* ---- release ---- */

TEST(each_entry_is_released_on_every_server) {
    start();
    hold_by(5, AT(0));
    enter_again(5, AT(1));
    CHECK_EQ_INT(count_of(hold_of(&rig)), 2);
    CHECK_EQ_U64(hf_client_stats(&rig.client).reentries, 1);
    CHECK_EQ_U64(hf_client_stats(&rig.client).acquires, 1);
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
    for (int i = 0; i < MAJORITY; i++) CHECK_CONTAINS(output_by(i), "EVALSHA release 4 k");
    answers(0, 3, ":2\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(3));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    op = begin_quorum(HF_OP_RELEASE, 0, AT(4));
    for (int i = 0; i < COUNT; i++) CHECK_CONTAINS(output_by(i), "EVALSHA release 4 k");
    answers(0, 3, ":1\r\n", AT(5));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(5));
    CHECK_EQ_INT(state_of(&rig), -1);
    CHECK_EQ_U64(hf_client_stats(&rig.client).releases, 2);
    finish(AT(6));
}

TEST(a_server_that_did_not_grant_the_re_entry_gets_no_release) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    answers(0, 3, yes(77), AT(1));
    CHECK_OUTCOME(op, "ok");
    answer(3, busy(20000, 0, 0), AT(1));
    answer(4, busy(20000, 0, 0), AT(1));
    hf_op_end(op, AT(1));
    rig_hush(&rig);
    op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
    CHECK_STR(output_by(3), "");
    CHECK_STR(output_by(4), "");
    CHECK_OUTCOME(op, "under way");
    answer(0, ":2\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(3));
    finish(AT(4));
}

TEST(a_release_without_a_majority_is_lost_or_goes_on) {
    static const struct {
        const char *replies[COUNT + 1], *outcome, *message;
        uint64_t losses;
    } cases[] = {
        {{":1\r\n", ":1\r\n", ":-1\r\n", ":-1\r\n", ":-1\r\n"},
         "lost",
         "it is no longer held on a majority of the servers (deleted)",
         1},
        {{":1\r\n", ":1\r\n", "-ERR no\r\n", "-ERR no\r\n", "-ERR no\r\n"},
         "no_quorum",
         "2 of 5 released (the release continues in the background): s3 server",
         0},
        {{":1\r\n", ":-1\r\n", ":-1\r\n", "-ERR no\r\n", "-ERR no\r\n"},
         "no_quorum",
         "1 of 5 released",
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hold_by(5, AT(0));
        hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
        CHECK(is_releasing(hold_of(&rig)));
        answer_all(cases[i].replies, AT(2));
        CHECK_OUTCOME(op, cases[i].outcome);
        CHECK_CONTAINS(message_of(op), cases[i].message);
        CHECK_EQ_U64(hf_client_stats(&rig.client).losses, cases[i].losses);
        CHECK_EQ_INT(state_of(&rig), -1);
        hf_op_end(op, AT(3));
        finish(AT(4));
    }
}

TEST(a_partial_release_without_a_majority_is_a_loss) {
    const char *gone[] = {":-1\r\n", ":-1\r\n", ":-1\r\n", ":2\r\n", ":2\r\n", NULL};
    start();
    hold_by(5, AT(0));
    enter_again(5, AT(1));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
    answer_all(gone, AT(3));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LOST);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1); /* one handle is left */
    CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 1);
    hf_op_end(op, AT(4));
    op = begin_quorum(HF_OP_RELEASE, 0, AT(5));
    CHECK_OUTCOME(op, "lost");
    hf_op_end(op, AT(5));
    CHECK_EQ_INT(state_of(&rig), -1);
    for (int i = 3; i < COUNT; i++) CHECK_EQ_INT(part_state(i), HF_HOLD_CLEANING_UP);
    finish(AT(6));
}

TEST(a_call_on_another_handles_lost_hold_does_not_release_it) {
    start();
    hold_by(5, AT(0));
    hf_hold *lost = hold_of(&rig);
    hf_hold_ref(lost);
    hf_client_lose(&rig.client, lost, HF_LOST_TAKEN);
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    spec.lost = lost;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1));
    CHECK_OUTCOME(op, "lost");
    hf_op_end(op, AT(1));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LOST); /* it is not released by that */
    spec.loss_notified = true;
    op = hf_client_begin(&rig.client, &spec, AT(2));
    CHECK_OUTCOME(op, "not_held");
    hf_op_end(op, AT(2));
    hf_hold_unref(lost);
    finish(AT(3));
}

TEST(a_check_of_a_lost_hold_releases_nothing) {
    start();
    hold_by(5, AT(0));
    hf_client_lose(&rig.client, hold_of(&rig), HF_LOST_TAKEN);
    hf_op *op = begin_quorum(HF_OP_CHECK, 0, AT(1));
    CHECK_OUTCOME(op, "lost");
    hf_op_end(op, AT(1));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LOST);
    CHECK_EQ_INT(part_state(0), HF_HOLD_HELD);
    op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
    CHECK_OUTCOME(op, "lost");
    hf_op_end(op, AT(2));
    CHECK_EQ_INT(state_of(&rig), -1);
    CHECK_EQ_INT(part_state(0), HF_HOLD_CLEANING_UP);
    finish(AT(3));
}

/* ---- abandoned ---- */

TEST(an_abandoned_entry_leaves_the_others) {
    start();
    hold_by(5, AT(0));
    enter_again(5, AT(1));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(2));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    CHECK_EQ_INT(parts_held(), 5);
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(3));
    CHECK_EQ_INT(state_of(&rig), -1);
    for (int i = 0; i < COUNT; i++) CHECK_EQ_INT(part_state(i), HF_HOLD_CLEANING_UP);
    finish(AT(4));
}

TEST(abandoning_too_many_entries_abandons_all) {
    start();
    hold_by(5, AT(0));
    hf_client_abandon(&rig.client, hold_of(&rig), 7, AT(2));
    CHECK_EQ_INT(state_of(&rig), -1);
    for (int i = 0; i < COUNT; i++) CHECK_EQ_INT(part_state(i), HF_HOLD_CLEANING_UP);
    finish(AT(4));
}

TEST(an_entry_abandoned_during_a_partial_release_is_cleaned_up_after_it) {
    start();
    hold_by(5, AT(0));
    enter_again(5, AT(1));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(3));
    for (int i = 0; i < MAJORITY; i++) feed(link_at(i, CALLS), ":2\r\n", AT(4));
    tick(AT(4));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(state_of(&rig), -1);
    for (int i = 0; i < MAJORITY; i++) CHECK_EQ_INT(part_state(i), HF_HOLD_CLEANING_UP);
    hf_op_end(op, AT(5));
    finish(AT(6));
}

TEST(all_entries_abandoned_during_a_re_entry_are_dropped) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(2));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(2));
    answers(0, 5, yes(77), AT(3));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(state_of(&rig), -1);
    for (int i = 0; i < MAJORITY; i++) CHECK_EQ_INT(part_state(i), HF_HOLD_CLEANING_UP);
    hf_op_end(op, AT(4));
    finish(AT(5));
}

TEST(a_re_entry_granted_too_late_does_not_count_on_its_server) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    answers(0, 3, yes(77), AT(2));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(2));
    answer(4, yes(77), AT(3));
    CHECK_EQ_INT(count_of(hold_of(&rig)), 2);
    CHECK_EQ_INT(count_of(member_holds_of(hold_of(&rig))[0]), 2);
    CHECK_EQ_INT(count_of(member_holds_of(hold_of(&rig))[4]), 1);
    finish(AT(4));
}

TEST(an_entry_abandoned_during_a_re_entry_is_dropped_at_its_end) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(2));
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    CHECK_EQ_INT(dropped_of(hold_of(&rig)), 1);
    answers(0, 3, yes(77), AT(3));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    hf_op_end(op, AT(4));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    CHECK_EQ_INT(dropped_of(hold_of(&rig)), 0); /* it goes once */
    finish(AT(5));
}

/* The hold is lost or abandoned during a release, whose replies say that it has ended, too. */
TEST(a_release_reports_no_loss_of_an_abandoned_hold) {
    for (int lost = 0; lost <= 1; lost++) {
        start();
        hold_by(5, AT(0));
        enter_again(5, AT(1));
        hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
        if (lost) hf_client_lose(&rig.client, hold_of(&rig), HF_LOST_TAKEN);
        else hf_client_abandon(&rig.client, hold_of(&rig), 2, AT(2));
        answers(0, 3, ":-1\r\n", AT(3));
        pass(AT(3), AT(600));
        CHECK_OUTCOME(op, "lost");
        CHECK_EQ_INT(hf_client_stats(&rig.client).losses, lost);
        hf_op_end(op, AT(600));
        finish(AT(601));
    }
}

TEST(an_abandoned_release_goes_on_in_the_background) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    hf_op_abandon(op, AT(2));
    CHECK_OUTCOME(op, "interrupted");
    hf_op_end(op, AT(2));
    CHECK_EQ_INT(state_of(&rig), -1);
    pass(AT(2), AT(3));
    finish(AT(3));
}

TEST(an_abandoned_partial_release_still_counts) {
    start();
    hold_by(5, AT(0));
    enter_again(5, AT(1));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
    hf_op_abandon(op, AT(3));
    hf_op_end(op, AT(3));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    CHECK(!is_in_flight(hold_of(&rig)));
    finish(AT(4));
}

TEST(an_abandoned_check_does_not_change_the_hold) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_CHECK, 0, AT(2));
    hf_op_abandon(op, AT(3));
    hf_op_end(op, AT(3));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    CHECK_EQ_INT(parts_held(), 5);
    CHECK(!is_in_flight(hold_of(&rig)));
    finish(AT(4));
}

/* ---- one command of a hold at a time ---- */

TEST(a_release_waits_behind_a_check) {
    start();
    hold_by(5, AT(0));
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(1));
    rig_hush(&rig);
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    CHECK_STR(output_by(0), "");
    CHECK(hf_op_is_blocked(op));
    answers(0, 3, ":1\r\n", AT(2));
    CHECK_OUTCOME(check, "ok");
    CHECK(!hf_op_is_blocked(op));
    hf_op_end(check, AT(2));
    CHECK_CONTAINS(output_by(0), "EVALSHA release");
    answers(0, 3, ":1\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(3));
    CHECK_EQ_INT(state_of(&rig), -1);
    finish(AT(4));
}

TEST(a_release_behind_a_check_that_finds_a_loss_ends_the_hold) {
    start();
    hold_by(5, AT(0));
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(1));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    CHECK(hf_op_is_blocked(op));
    answers(0, COUNT, ":-1\r\n", AT(2));
    CHECK_OUTCOME(check, "lost");
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(state_of(&rig), -1);
    hf_op_end(check, AT(3));
    hf_op_end(op, AT(3));
    finish(AT(4));
}

TEST(a_release_abandoned_behind_a_check_still_releases) {
    start();
    hold_by(5, AT(0));
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(1));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    hf_op_abandon(op, AT(2));
    CHECK(!hf_op_is_blocked(op));
    hf_op_end(op, AT(2));
    CHECK_EQ_INT(state_of(&rig), -1);
    hf_op_end(check, AT(3));
    finish(AT(4));
}

TEST(an_acquire_waits_behind_a_check_until_its_timeout) {
    start();
    hold_by(5, AT(0));
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(1));
    rig_hush(&rig);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    CHECK(hf_op_is_blocked(op));
    CHECK_STR(output_by(0), "");
    CHECK_EQ_U64(hf_op_deadline(op), AT(3001));
    hf_op *patient = begin_quorum(HF_OP_ACQUIRE, 9 * HF_SECOND, AT(2));
    CHECK_EQ_U64(hf_op_deadline(patient), AT(9002));
    hf_op_interrupt(patient, AT(3));
    CHECK_OUTCOME(patient, "interrupted");
    hf_op_interrupt(op, AT(3));
    CHECK_OUTCOME(op, "interrupted");
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    hf_op_end(patient, AT(4));
    hf_op_end(op, AT(4));
    hf_op_end(check, AT(4));
    finish(AT(5));
}

/* ---- about a key ---- */

TEST(the_ttl_is_the_largest_that_a_majority_has) {
    static const struct {
        const char *replies[COUNT + 1];
        long long value;
    } cases[] = {
        {{":500\r\n", ":400\r\n", ":300\r\n", ":200\r\n", ":100\r\n"}, 300},
        {{":100\r\n", ":500\r\n", ":200\r\n", ":400\r\n", ":300\r\n"}, 300},
        {{":500\r\n", ":400\r\n", ":-2\r\n", ":-2\r\n", ":-2\r\n"}, -2},
        {{":500\r\n", ":400\r\n", ":300\r\n", "-ERR no\r\n", "-ERR no\r\n"}, 300},
        {{":500\r\n", ":500\r\n", ":500\r\n", ":500\r\n", ":500\r\n"}, 500},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hf_op *op = begin_quorum(HF_OP_TTL, 0, AT(0));
        for (int j = 0; j < COUNT; j++) CHECK_CONTAINS(output_by(j), "PTTL k");
        answer_all(cases[i].replies, AT(1));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_INT(value_of(op), cases[i].value);
        hf_op_end(op, AT(1));
        finish(AT(2));
    }
}

#define OWNER_OF_US DRIVE_UUID ":3"
#define INFO(owner, holds, token)                                                                  \
    "*6\r\n$" owner "\r\n:" holds "\r\n:1500\r\n:" token "\r\n:4\r\n:2\r\n"
#define NOBODY "*6\r\n$0\r\n\r\n:0\r\n:-2\r\n:90\r\n:0\r\n:-1\r\n"

TEST(info_returns_the_owner_of_a_majority) {
    static const struct {
        const char *replies[COUNT + 1], *owner;
        uint64_t token;
    } cases[] = {
        {{INFO("3\r\nyou", "2", "7"), INFO("3\r\nyou", "2", "9"), INFO("3\r\nyou", "2", "8"),
          NOBODY, NOBODY},
         "you",
         9},
        {{INFO("3\r\nyou", "2", "10"), INFO("3\r\nyou", "2", "9"), INFO("3\r\nyou", "2", "8"),
          NOBODY, NOBODY},
         "you",
         10},
        {{INFO("3\r\nyou", "2", "9"), INFO("3\r\nyou", "2", "8"), NOBODY, NOBODY, NOBODY}, "", 0},
        {{INFO("3\r\nyou", "2", "9"), INFO("3\r\nyou", "2", "8"), INFO("3\r\nshe", "2", "8"),
          INFO("3\r\nshe", "2", "8"), NOBODY},
         "",
         0},
        {{"-ERR no\r\n", INFO("3\r\nyou", "2", "9"), INFO("3\r\nyou", "2", "8"),
          INFO("3\r\nyou", "2", "10"), "-ERR no\r\n"},
         "you",
         10},
        /* copies */
        {{INFO("38\r\n" OWNER_OF_US, "1", "9"), INFO("40\r\n" OWNER_OF_US ".1", "1", "9"),
          INFO("41\r\n" OWNER_OF_US ".12", "1", "9"), NOBODY, NOBODY},
         OWNER_OF_US,
         9},
        /* no copies: another library's, or no number behind its uuid */
        {{INFO("5\r\nhe.11", "1", "9"), INFO("5\r\nhe.11", "1", "9"), INFO("5\r\nhe.11", "1", "9"),
          NOBODY, NOBODY},
         "he.11",
         9},
        {{INFO("5\r\nhe.11", "1", "9"), INFO("5\r\nhe.12", "1", "9"), INFO("2\r\nhe", "1", "9"),
          NOBODY, NOBODY},
         "",
         0},
        {{INFO("38\r\n" DRIVE_UUID ".3", "1", "9"), INFO("38\r\n" DRIVE_UUID ".3", "1", "9"),
          INFO("38\r\n" DRIVE_UUID ".3", "1", "9"), NOBODY, NOBODY},
         DRIVE_UUID ".3",
         9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hf_op *op = begin_quorum(HF_OP_INFO, 0, AT(0));
        answer_all(cases[i].replies, AT(1));
        CHECK_OUTCOME(op, "ok");
        CHECK_MEM(info_of(op)->owner, info_of(op)->owner_size, cases[i].owner,
                  strlen(cases[i].owner));
        CHECK_EQ_U64(info_of(op)->token, cases[i].token);
        CHECK_EQ_INT(info_of(op)->waiters, 0);
        CHECK_EQ_INT(info_of(op)->ttl_ms, cases[i].owner[0] ? 1500 : -2);
        CHECK_EQ_INT(info_of(op)->ahead, cases[i].owner[0] ? 2 : -1);
        hf_op_end(op, AT(1));
        finish(AT(2));
    }
}

TEST(info_waits_for_every_reply_that_comes_soon) {
    start();
    hf_op *op = begin_quorum(HF_OP_INFO, 0, AT(0));
    answers(0, 3, NOBODY, AT(10));
    CHECK_OUTCOME(op, "under way");
    pass(AT(10), AT(1500));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1500));
    finish(AT(1501));
}

TEST(info_fails_without_a_majority) {
    const char *const replies[] = {NOBODY,        NOBODY,        "-ERR no\r\n",
                                   "-ERR no\r\n", "-ERR no\r\n", NULL};
    start();
    hf_op *op = begin_quorum(HF_OP_INFO, 0, AT(0));
    answer_all(replies, AT(1));
    CHECK_OUTCOME(op, "no_quorum");
    CHECK_CONTAINS(message_of(op), "2 of 5 answered: s3 server");
    hf_op_end(op, AT(1));
    finish(AT(2));
}

TEST(an_error_of_a_majority_is_the_result) {
    static const struct {
        const char *replies[COUNT + 1], *outcome;
    } cases[] = {
        {{"-NOPERM a\r\n", "-NOPERM a\r\n", "-NOPERM a\r\n", ":1\r\n", ":1\r\n"}, "denied"},
        {{"-NOPERM a\r\n", "-NOPERM a\r\n", "-ERR no\r\n", ":1\r\n", ":1\r\n"}, "no_quorum"},
        {{"-WRONGTYPE a\r\n", "-WRONGTYPE a\r\n", "-WRONGTYPE a\r\n", ":1\r\n", ":1\r\n"},
         "conflict"},
        {{"-WRONGTYPE a\r\n", "-WRONGTYPE a\r\n", "-ERR no\r\n", ":1\r\n", ":1\r\n"}, "no_quorum"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hf_op *op = begin_quorum(HF_OP_TTL, 0, AT(0));
        answer_all(cases[i].replies, AT(1));
        CHECK_OUTCOME(op, cases[i].outcome);
        hf_op_end(op, AT(1));
        finish(AT(2));
    }
}

/* Two of four can keep a majority from the others. */
TEST(half_of_an_even_quorum_decides_an_error_and_a_loss) {
    static const struct {
        const char *replies[COUNT], *outcome;
    } reads[] =
        {
            {{"-NOPERM a\r\n", "-NOPERM a\r\n", ":1\r\n", ":1\r\n"}, "denied"},
            {{"-WRONGTYPE a\r\n", "-WRONGTYPE a\r\n", ":1\r\n", ":1\r\n"}, "conflict"},
            {{"-NOPERM a\r\n", "-WRONGTYPE a\r\n", ":1\r\n", ":1\r\n"}, "no_quorum"},
        },
      releases[] = {
          {{":-1\r\n", ":-1\r\n", ":1\r\n", ":1\r\n"}, "lost"},
          {{":-1\r\n", "-ERR no\r\n", ":1\r\n", ":1\r\n"}, "no_quorum"},
          {{":-1\r\n", ":1\r\n", ":1\r\n", ":1\r\n"}, "ok"},
      };
    server_count = 4;
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        start();
        hf_op *op = begin_quorum(HF_OP_TTL, 0, AT(0));
        answer_all(reads[i].replies, AT(1));
        CHECK_OUTCOME(op, reads[i].outcome);
        hf_op_end(op, AT(1));
        hold_by(4, AT(2));
        op = begin_quorum(HF_OP_RELEASE, 0, AT(3));
        answer_all(releases[i].replies, AT(4));
        CHECK_OUTCOME(op, releases[i].outcome);
        hf_op_end(op, AT(4));
        finish(AT(5));
    }
    server_count = COUNT;
}

TEST(force_frees_the_lock_on_every_server) {
    static const struct {
        const char *replies[COUNT + 1];
        int value;
    } cases[] = {
        {{":1\r\n", ":1\r\n", ":1\r\n", ":0\r\n", ":0\r\n"}, 1},
        {{":0\r\n", ":0\r\n", ":0\r\n", ":0\r\n", ":1\r\n"}, 1},
        {{":1\r\n", ":0\r\n", ":0\r\n", ":0\r\n", ":0\r\n"}, 1},
        {{":0\r\n", ":0\r\n", ":0\r\n", ":0\r\n", ":0\r\n"}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hold_by(5, AT(0));
        hf_op *op = begin_quorum(HF_OP_FORCE, 0, AT(1));
        answer_all(cases[i].replies, AT(2));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_INT(value_of(op), cases[i].value);
        CHECK_EQ_INT(state_of(&rig), HF_HOLD_LOST);
        CHECK_EQ_INT(reason_of(hold_of(&rig)), HF_LOST_DELETED);
        hf_op_end(op, AT(2));
        finish(AT(3));
    }
}

TEST(force_works_without_a_hold_of_its_own) {
    start();
    hf_op *op = begin_quorum(HF_OP_FORCE, 0, AT(1));
    answers(0, 5, ":1\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(value_of(op), 1);
    hf_op_end(op, AT(2));
    finish(AT(3));
}

TEST(commands_and_batches_need_a_single_server) {
    static const hf_slice get[] = {{"GET", 3}, {"k", 1}};
    static const hf_names *batch[1];
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_COMMAND);
    spec.names = NULL;
    spec.lock_kind = NULL;
    spec.args = get;
    spec.arg_count = 2;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
    CHECK_OUTCOME(op, "server");
    CHECK_CONTAINS(message_of(op), "a command needs a single server, not a quorum");
    hf_op_end(op, AT(0));
    spec = spec_of(&rig, HF_OP_ACQUIRE_ALL);
    batch[0] = &rig.names;
    spec.names = NULL;
    spec.batch = batch;
    spec.batch_count = 1;
    op = hf_client_begin(&rig.client, &spec, AT(1));
    CHECK_OUTCOME(op, "server");
    CHECK_CONTAINS(message_of(op), "one-step operations on several locks need a single server");
    hf_op_end(op, AT(1));
    for (int i = 0; i < COUNT; i++) CHECK_STR(output_by(i), "");
    finish(AT(2));
}

/* ---- a guard ---- */

static hf_op *begin_guard(hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lock_kind = &hf_kind_guard;
    spec.fingerprint = hf_slice_of("print");
    hf_op *op = begin_round(&spec, now);
    return op;
}

TEST(one_server_with_the_record_decides) {
    start();
    hf_op *op = begin_guard(AT(0));
    answer(0, yes(7), AT(1));
    answer(1, yes(7), AT(1));
    answer(2, busy(20000, 0, 0), AT(1));
    CHECK_OUTCOME(op, "under way");
    answer(4, "*2\r\n:3\r\n$3\r\nold\r\n", AT(1));
    pass(AT(1), AT(2000));
    CHECK_OUTCOME(op, "duplicate");
    CHECK_MEM(record_of(op), record_size_of(op), "old", 3);
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    hf_op_end(op, AT(2000));
    finish(AT(2001));
}

/* On a minority a lock may exist for a moment after its release. */
TEST(a_lock_of_another_kind_on_a_few_servers_decides_nothing) {
    static const char other_kind[] = "*1\r\n:-6\r\n";
    static const char *const outcomes[] = {"ok", "busy", "busy", "conflict"};
    for (int others = 0; others < 4; others++) {
        start();
        hf_op *op = begin_guard(AT(0));
        answers(0, others, other_kind, AT(1));
        CHECK_OUTCOME(op, others < MAJORITY ? "under way" : "conflict");
        if (others < MAJORITY) answers(others, 5, others ? busy(20000, 0, 0) : yes(7), AT(1));
        CHECK_OUTCOME(op, outcomes[others]);
        hf_op_end(op, AT(1));
        finish(AT(2));
    }
}

TEST(one_server_with_another_request_decides) {
    start();
    hf_op *op = begin_guard(AT(0));
    answer(0, "*1\r\n:4\r\n", AT(1));
    for (int i = 1; i < 3; i++) answer(i, busy(20000, 0, 0), AT(1));
    CHECK_OUTCOME(op, "mismatch");
    CHECK(!record_of(op));
    hf_op_end(op, AT(1));
    finish(AT(2));
}

/* ---- acquires ---- */

TEST(a_blocking_wait_for_an_owner_of_the_same_client_is_a_deadlock) {
    for (int blocking = 0; blocking < 2; blocking++) {
        start();
        hold_by(5, AT(0));
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.caller = spec.owner = hf_slice_of("you");
        spec.wait = 5 * HF_SECOND;
        spec.blocking = blocking;
        hf_op *op = begin_round(&spec, AT(1));
        answers(0, 5, busy(29000, 0, 0), AT(2));
        CHECK_OUTCOME(op, blocking ? "deadlock" : "under way");
        if (blocking) CHECK_CONTAINS(message_of(op), "another owner in this client holds it");
        hf_op_end(op, AT(2));
        finish(AT(3));
    }
}

TEST(without_fencing_the_first_majority_is_enough) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.token_ttl_ms = 0;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    for (int i = 0; i < MAJORITY; i++) answer(i, yes(40 + (unsigned)i), AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(token_of(hold_of(&rig)), 0);
    hf_op_end(op, AT(1));
    finish(AT(2));
}

TEST(a_re_entry_keeps_the_token_whatever_the_servers_draw) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    for (int i = 0; i < MAJORITY; i++) answer(i, yes(100 + (unsigned long long)i), AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(token_of(hold_of(&rig)), 77);
    hf_op_end(op, AT(2));
    finish(AT(3));
}

TEST(max_hold_begins_with_the_attempt_that_succeeds) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.wait = 10 * HF_SECOND;
    spec.max_hold = 60 * HF_SECOND;
    hf_op *op = begin_round(&spec, AT(0));
    answers(0, COUNT, busy(20000, 0, 0), AT(100));
    hf_time again = round_of(op)->retry_at;
    CHECK(again > AT(100));
    tick(again);
    answers(0, COUNT, yes(77), again + HF_MS);
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(bound_of(hold_of(&rig)), again + 60 * HF_SECOND);
    hf_op_end(op, again + HF_MS);
    finish(again + 2 * HF_MS);
}

TEST(a_shorter_re_entry_keeps_the_longer_lease) {
    start();
    hold_by(5, AT(0));
    hf_hold *hold = hold_of(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lease = HF_SECOND;
    spec.renewed = false;
    hf_op *op = begin_round(&spec, AT(1));
    for (int i = 0; i < MAJORITY; i++) answer(i, yes(90), AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK(is_renewed(hold));
    CHECK_EQ_U64(lease_of(hold), 30 * HF_SECOND);
    CHECK_EQ_U64(token_of(hold), 77);
    CHECK_EQ_INT(count_of(hold), 2);
    hf_op_end(op, AT(2));
    finish(AT(3));
}

TEST(a_re_entry_without_a_majority_does_not_change_the_hold) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    answers(0, 3, "-ERR no\r\n", AT(2));
    CHECK_OUTCOME(op, "no_quorum");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    CHECK(!is_in_flight(hold_of(&rig)));
    hf_op_end(op, AT(2));
    finish(AT(3));
}

/* ---- what it sums up ---- */

TEST(the_counts_of_the_members_are_added) {
    start();
    for (int i = 0; i < COUNT; i++) {
        hf_stats *stats = counters_of(member(i));
        stats->renewals = 1;
        stats->renew_batches = 2;
        stats->late_renewals = 3;
        stats->undone = 4;
        stats->acquires = 5; /* the quorum has its own */
    }
    hf_stats stats = hf_client_stats(&rig.client);
    CHECK_EQ_U64(stats.renewals, 5);
    CHECK_EQ_U64(stats.renew_batches, 10);
    CHECK_EQ_U64(stats.late_renewals, 15);
    CHECK_EQ_U64(stats.undone, 20);
    CHECK_EQ_U64(stats.acquires, 0);
    finish(AT(1));
}

TEST(the_owners_approval_goes_to_every_member) {
    start();
    for (int i = 0; i < COUNT; i++) config_in(member(i))->needs_approval = true;
    hold_by(4, AT(0));
    pass(AT(0), AT(11000));
    CHECK_EQ_U64(hf_client_approvals_asked(&rig.client), 4);
    for (int i = 0; i < COUNT; i++) CHECK_STR(output_of(link_at(i, RENEWER)), "");
    hf_client_approve(&rig.client, hold_of(&rig), AT(11000));
    tick(AT(11000));
    for (int i = 0; i < 4; i++) CHECK_CONTAINS(output_of(link_at(i, RENEWER)), "EVALSHA renew 1 k");
    finish(AT(11001));
}

TEST(the_owners_approval_skips_a_server_without_the_hold) {
    start();
    for (int i = 0; i < COUNT; i++) config_in(member(i))->needs_approval = true;
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answers(1, COUNT, yes(77), AT(0));
    hf_op_end(op, AT(0));
    rig_hush(&rig);
    pass(AT(0), AT(11000));
    rig_hush(&rig);
    CHECK(!member_holds_of(hold_of(&rig))[0]);
    hf_client_approve(&rig.client, hold_of(&rig), AT(11000));
    tick(AT(11000));
    for (int i = 1; i < 4; i++) CHECK_CONTAINS(output_of(link_at(i, RENEWER)), "EVALSHA renew 1 k");
    finish(AT(11001));
}

TEST(a_hold_that_is_renewed_from_now_on_is_repaired) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.renewed = false;
    hf_op *op = begin_round(&spec, AT(0));
    answers(0, 4, yes(77), AT(0));
    answer(4, busy(20000, 0, 0), AT(0));
    hf_op_end(op, AT(0));
    rig_hush(&rig);
    CHECK(wakes_at(hold_of(&rig)) > AT(20000));
    hf_client_set_renewed(&rig.client, hold_of(&rig), true, AT(1000));
    CHECK(wakes_at(hold_of(&rig)) <= AT(11000));
    finish(AT(1001));
}

TEST(a_hold_that_is_no_longer_renewed_is_renewed_at_no_member) {
    start();
    hold_by(4, AT(0));
    hf_client_set_renewed(&rig.client, hold_of(&rig), false, AT(1));
    pass(AT(1), AT(11000));
    for (int i = 0; i < COUNT; i++) CHECK_STR(output_of(link_at(i, RENEWER)), "");
    hf_client_set_renewed(&rig.client, hold_of(&rig), true, AT(11000));
    tick(AT(11000));
    for (int i = 0; i < 4; i++) CHECK_CONTAINS(output_of(link_at(i, RENEWER)), "EVALSHA renew 1 k");
    finish(AT(11001));
}

TEST(a_member_counts_for_the_class_of_the_quorum) {
    start();
    hf_observe_class(&rig.client, "");
    observer_of(&rig.client)->wanted = true;
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
    finish(AT(10101));
}

TEST(a_quorum_is_quiet_when_every_member_is) {
    for (int last = 0; last < COUNT; last++) {
        start();
        hold_by(5, AT(0));
        CHECK(hf_client_is_quiet(&rig.client));
        hf_client_close(&rig.client, AT(1));
        tick(AT(1));
        for (int i = 1; i <= COUNT; i++) {
            CHECK(!hf_client_is_quiet(&rig.client));
            feed(link_at((last + i) % COUNT, RENEWER), ":1\r\n", AT(2));
            tick(AT(2));
        }
        CHECK(hf_client_is_quiet(&rig.client));
        finish(AT(3));
    }
}

TEST(a_closed_quorum_waits_for_the_rest_once_a_majority_is_quiet) {
    start();
    hold_by(5, AT(0));
    hf_client_close(&rig.client, AT(10));
    tick(AT(10));
    for (int i = 0; i < MAJORITY; i++) feed(link_at(i, RENEWER), ":1\r\n", AT(30));
    tick(AT(30));
    pass(AT(30), AT(279));
    CHECK(!hf_client_is_quiet(&rig.client));
    CHECK_EQ_U64(hf_client_deadline(&rig.client), AT(280));
    pass(AT(279), AT(280));
    CHECK(hf_client_is_quiet(&rig.client));
    finish(AT(281));
}

TEST(a_closed_quorum_gives_the_rest_ten_times_as_long_as_a_majority_took) {
    start();
    hold_by(5, AT(0));
    hf_client_close(&rig.client, AT(10));
    tick(AT(10));
    for (int i = 0; i < MAJORITY; i++) feed(link_at(i, RENEWER), ":1\r\n", AT(50));
    tick(AT(50));
    pass(AT(50), AT(449));
    CHECK(!hf_client_is_quiet(&rig.client));
    pass(AT(449), AT(450));
    CHECK(hf_client_is_quiet(&rig.client));
    finish(AT(451));
}

/* ---- why it is lost ---- */

TEST(a_reason_given_by_a_server_outweighs_an_unreachable_one) {
    static const struct {
        hf_lost_reason reasons[MAJORITY], reason;
    } cases[] = {
        {{HF_LOST_TAKEN, HF_LOST_UNREACHABLE, HF_LOST_UNREACHABLE}, HF_LOST_TAKEN},
        {{HF_LOST_UNREACHABLE, HF_LOST_UNREACHABLE, HF_LOST_TAKEN}, HF_LOST_TAKEN},
        {{HF_LOST_EXPIRED, HF_LOST_UNREACHABLE, HF_LOST_EXPIRED}, HF_LOST_UNREACHABLE},
        {{HF_LOST_EXPIRED, HF_LOST_DELETED, HF_LOST_TAKEN}, HF_LOST_DELETED},
        {{HF_LOST_UNREACHABLE, HF_LOST_EXPIRED, HF_LOST_EXPIRED}, HF_LOST_UNREACHABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hold_by(5, AT(0));
        hf_hold *hold = hold_of(&rig);
        for (int j = 0; j < MAJORITY; j++)
            hf_client_lose(member(j), member_holds_of(hold)[j], cases[i].reasons[j]);
        CHECK(is_held(hold));
        tick(AT(1));
        CHECK(is_lost(hold));
        CHECK_OR(reason_of(hold) == cases[i].reason, "case %zu: %s", i,
                 hf_lost_reason_name(reason_of(hold)));
        finish(AT(2));
    }
}

/* ---- a shared owner ---- */

TEST(a_server_that_lacks_a_shared_owners_hold_is_asked_for_the_same_owner) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.shared = true;
    hf_op *op = begin_round(&spec, AT(0));
    answers(0, 4, yes(77), AT(0));
    answer(4, busy(20000, 0, 0), AT(0));
    hf_op_end(op, AT(0));
    rig_hush(&rig);
    hf_holds_wake_at(holds_of(&rig.client), hold_of(&rig), AT(100));
    tick(AT(100));
    CHECK_CONTAINS(output_by(4), "EVALSHA acquire " KEYS_OF_K "0 1 30000 1000");
    finish(AT(101));
}

TEST(a_shared_owner_holds_by_a_majority) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.shared = true;
    hf_op *op = begin_round(&spec, AT(0));
    for (int i = 0; i < COUNT; i++) CHECK_CONTAINS(output_by(i), " me 2000 0 1 30000 1000 ");
    for (int i = 0; i < MAJORITY; i++) answer(i, yes(7), AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    hf_op_end(op, AT(1));
    finish(AT(2));
}

TEST(the_clocks_of_servers_that_replied_stand_for_the_others) {
    char text[96];
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 1; i <= MAJORITY; i++) { /* 100 s behind ours; the first one's is not known */
        snprintf(text, sizeof text, "*4\r\n:1\r\n:77\r\n:0\r\n:%llu\r\n",
                 (unsigned long long)(AT(0) / 1000 - 100000000));
        answer(i, text, AT(0));
    }
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(0));
    uint64_t proposal = hf_quorum_propose(quorum_of(&rig.client), AT(0));
    CHECK_EQ_U64(proposal, AT(0) / 1000 - 100000000 + 2000);
    finish(AT(1));
}

TEST(the_clock_of_a_server_is_compared_with_the_time_of_the_request) {
    start();
    hf_op op = {0};
    set_begun_at(&op, AT(0));
    request_in(&op)->sent_at = AT(500); /* it waited for a connection */
    set_server_us(&op, (long long)(AT(700) / 1000));
    hf_quorum_learn_clock(quorum_of(&rig.client), 0, &op);
    CHECK_EQ_INT((int)quorum_of(&rig.client)->ahead[0], 200000);
    finish(AT(1));
}

TEST(a_token_is_proposed_for_the_end_of_a_round_like_the_last) {
    char text[96];
    start();
    snprintf(text, sizeof text, "*4\r\n:1\r\n:77\r\n:0\r\n:%llu\r\n",
             (unsigned long long)(AT(0) / 1000));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, HF_SECOND, AT(0));
    answers(0, COUNT, busy(20000, 0, 0), AT(5)); /* an attempt that failed is no measure */
    hf_time again = round_of(op)->retry_at;
    tick(again);
    snprintf(text, sizeof text, "*4\r\n:1\r\n:77\r\n:0\r\n:%llu\r\n",
             (unsigned long long)(again / 1000));
    answers(0, COUNT, text, again + 100 * HF_MS);
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, again + 100 * HF_MS);
    uint64_t proposal = hf_quorum_propose(quorum_of(&rig.client), AT(1000));
    CHECK_EQ_U64(proposal, (AT(1000) + 102 * HF_MS) / 1000);
    finish(AT(1001));
}

TEST(a_round_that_took_long_moves_a_token_by_a_second_at_most) {
    char text[96];
    start();
    snprintf(text, sizeof text, "*4\r\n:1\r\n:77\r\n:0\r\n:%llu\r\n",
             (unsigned long long)(AT(0) / 1000));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answers(0, COUNT, text, AT(1400));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1400));
    CHECK_EQ_U64(hf_quorum_propose(quorum_of(&rig.client), AT(3000)), AT(4002) / 1000);
    finish(AT(3001));
}

TEST(a_token_is_never_negative) {
    start();
    hf_quorum *quorum = quorum_of(&rig.client);
    quorum->clocks_known = true;
    for (int i = 0; i < COUNT; i++) quorum->ahead[i] = -(int64_t)(AT(0) / 1000);
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0)), 2000);
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0) - 2 * HF_MS + 1000), 1);
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0) - 2 * HF_MS), 0);
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0) - HF_SECOND), 0);
    quorum->ahead[3] += 5;
    CHECK_EQ_U64(hf_quorum_propose(quorum, AT(0)), 2005);
    finish(AT(1));
}

TEST(a_server_that_has_not_replied_yet_is_not_asked_again) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lease = HF_SECOND;
    hf_op *op = begin_round(&spec, AT(0));
    for (int i = 0; i < 3; i++) answer(i, yes(7), AT(1));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1));
    answer(3, busy(100, 0, 0), AT(1));
    rig_hush(&rig);
    pass(AT(1), AT(500)); /* a third of the lease is over */
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    CHECK_CONTAINS(output_by(3), "EVALSHA acquire");
    CHECK_STR(output_by(4), "");
    finish(AT(501));
}

TEST(members_ask_their_servers_what_the_client_asks_and_what_the_guard_needs) {
    static const struct {
        bool asks;
        hf_time guard;
        bool asks_server, asks_known;
    } cases[] = {{false, 0, false, false},
                 {true, 0, true, false},
                 {false, HF_SECOND, true, true},
                 {true, HF_SECOND, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start(); /* for the servers */
        finish(AT(0));
        hf_client_config config = rig_config();
        config.mode = HF_MODE_QUORUM;
        config.servers = servers;
        config.server_count = COUNT;
        config.restart_guard = cases[i].guard;
        config.session.asks_server = cases[i].asks;
        rig_begin_with(&rig, &config);
        CHECK_STR(first_node(&rig.client)->server.label, "a quorum of 5 servers");
        for (int j = 0; j < COUNT; j++) {
            const hf_session_config *session = &config_in(member(j))->session;
            CHECK_OR(session->asks_server == cases[i].asks_server, "case %zu", i);
            CHECK_OR(session->asks_known == cases[i].asks_known, "case %zu", i);
        }
        finish(AT(0));
    }
}

TEST(each_member_has_a_name_of_its_own) {
    start();
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < i; j++)
            CHECK(strcmp(hf_client_uuid(member(i)), hf_client_uuid(member(j))) != 0);
    }
    finish(AT(1));
}

TEST(without_a_guard_no_server_is_marked) {
    static const char info[] = "$29\r\n# Server\r\nrun_id:0123456789\r\n\r\n";
    start();
    for (int i = 0; i < COUNT; i++) config_in(member(i))->session.asks_server = true;
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < COUNT; i++) {
        answer(i, info, AT(0));
        CHECK_STR(link_at(i, CALLS)->run_id, "0123456789");
    }
    for (int i = 0; i < COUNT; i++) answer(i, yes(7), AT(1));
    CHECK_OUTCOME(op, "ok");
    for (int i = 0; i < COUNT; i++) CHECK(!strstr(output_by(i), "holdfast_known"));
    hf_op_end(op, AT(1));
    finish(AT(2));
}

/* ---- what ends a round ---- */

TEST(votes_that_expire_during_the_write_back_make_no_hold) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answer(0, yes(50), AT(1));
    answer(1, yes(40), AT(1));
    answer(2, yes(60), AT(1));
    CHECK_OUTCOME(op, "under way");
    for (int i = 0; i < 3; i++)
        hf_holds_lose(holds_of(member(i)), holds_of(member(i))->heap[0], HF_LOST_EXPIRED);
    answers(3, 5, "-ERR no\r\n", AT(2));
    answers(0, 2, "-ERR no\r\n", AT(3));
    CHECK_OUTCOME(op, "lost");
    finish(AT(4));
}

TEST(a_token_that_a_bare_majority_has_is_not_written_back) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    rig_hush(&rig);
    feed(link_at(0, CALLS), yes(5), AT(1));
    for (int i = 1; i < 4; i++) feed(link_at(i, CALLS), yes(9), AT(1));
    hf_client_tick(&rig.client, AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(token_of(hold_of(&rig)), 9);
    for (int i = 0; i < 4; i++) CHECK_STR(output_by(i), "");
    finish(AT(2));
}

TEST(a_wait_that_asked_no_server_names_none) {
    start();
    hold_by(5, AT(0));
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(1));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, HF_SECOND, AT(1));
    CHECK(hf_op_is_blocked(op));
    hf_op_interrupt(op, AT(2));
    CHECK_OUTCOME(op, "interrupted");
    const char *end = strstr(message_of(op), "0 of 5 granted, 5 yet to answer");
    CHECK_STR(end, "0 of 5 granted, 5 yet to answer");
    hf_op_end(op, AT(3));
    hf_op_end(check, AT(3));
    finish(AT(4));
}

TEST(the_release_also_sends_the_leaves_for_late_replies) {
    start();
    hold_by(3, AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    begin_spec(&rig, &spec, AT(10));
    for (int i = 3; i < COUNT; i++) CHECK_CONTAINS(output_by(i), "EVALSHA leave");
    finish(AT(11));
}

TEST(a_renewed_hold_that_a_server_lacks_is_checked_again_soon) {
    static const struct {
        int servers;
        bool renewed, again;
    } cases[] = {{5, true, false}, {3, true, true}, {3, false, false}, {5, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.renewed = cases[i].renewed;
        hf_op *op = begin_spec(&rig, &spec, AT(0));
        for (int j = 0; j < cases[i].servers; j++) feed(link_at(j, CALLS), yes(7), AT(1));
        tick(AT(1));
        CHECK_OUTCOME(op, "ok");
        hf_op_end(op, AT(1));
        const hf_hold *hold = hold_of(&rig);
        hf_time again = AT(1) + 10 * HF_SECOND;
        CHECK_EQ_U64(wakes_at(hold), cases[i].again ? again : ends_at(hold));
        finish(AT(2));
    }
}

TEST(a_command_may_go_to_one_of_the_servers) {
    static const hf_slice get[] = {{"GET", 3}, {"k", 1}};
    for (unsigned node = 1; node <= COUNT + 2; node++) {
        unsigned asked = (node - 1) % COUNT;
        start();
        hf_op_spec spec = spec_of(&rig, HF_OP_COMMAND);
        spec.names = NULL;
        spec.lock_kind = NULL;
        spec.args = get;
        spec.arg_count = 2;
        spec.node = node;
        hf_op *op = begin_spec(&rig, &spec, AT(0));
        for (unsigned i = 0; i < COUNT; i++)
            CHECK_STR(output_by((int)i), i == asked ? "GET k" : "");
        answer((int)asked, "$1\r\nv\r\n", AT(1));
        CHECK_OUTCOME(op, "ok");
        finish(AT(2));
    }
}

TEST(a_long_record_goes_to_every_server_that_has_the_lock) {
    static char record[301];
    memset(record, 'r', 300);
    start();
    hf_op *op = begin_guard(AT(0));
    for (int i = 0; i < COUNT; i++) CHECK_CONTAINS(output_by(i), " print");
    answers(0, MAJORITY, yes(7), AT(1));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(1));
    rig_hush(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_COMPLETE);
    spec.lock_kind = &hf_kind_guard;
    spec.fingerprint = hf_slice_of("print");
    spec.result = hf_slice_of(record);
    spec.keep = 5 * HF_SECOND;
    op = begin_spec(&rig, &spec, AT(2));
    for (int i = 0; i < MAJORITY; i++) CHECK_CONTAINS(output_by(i), record);
    answers(0, MAJORITY, ":1\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(3));
    finish(AT(4));
}

TEST(a_client_that_waits_for_a_quorum_is_published) {
    start();
    hf_client_introduce(&rig.client, "host 7 name");
    begin_quorum(HF_OP_ACQUIRE, 60 * HF_SECOND, AT(0));
    answers(0, COUNT, busy(20000, 0, 0), AT(1));
    rig_hush(&rig);
    bool published = false;
    for (int ms = 2; ms < 400 && !published; ms += 2) {
        tick(AT(ms));
        for (int i = 0; i < COUNT; i++) {
            if (strstr(output_by(i), "acquire")) answer(i, busy(20000, 0, 0), AT(ms));
        }
        published = strstr(output_of(link_at(0, RENEWER)), "SET holdfast_client:") != NULL;
    }
    CHECK(published);
    finish(AT(400));
}

TEST(a_hold_that_a_server_lacks_is_checked_no_later_than_its_end) {
    start();
    hold_by(3, AT(0));
    hf_hold *hold = hold_of(&rig);
    hf_holds_wake_at(holds_of(&rig.client), hold, HF_NEVER);
    hf_quorum_refresh(&rig.client, hold, AT(25000));
    CHECK(ends_at(hold) < AT(30000));
    CHECK_EQ_U64(wakes_at(hold), ends_at(hold));
    finish(AT(25001));
}

TEST(a_hold_is_lost_at_its_end_although_it_was_checked_before) {
    start();
    hold_by(3, AT(0));
    answers(3, 5, busy(20000, 0, 0), AT(1));
    hf_hold *hold = hold_of(&rig);
    hf_hold_ref(hold);
    hf_time end = ends_at(hold);
    CHECK(wakes_at(hold) < end);
    for (int i = 0; i < COUNT; i++) {
        rig.down[i] = "refused";
        hf_session_closed(link_at(i, CALLS), "gone", AT(2));
    }
    pass(AT(2), end - 1);
    CHECK(is_held(hold));
    pass(end - 1, end + 1);
    CHECK(is_lost(hold));
    hf_hold_unref(hold);
    finish(end + 2);
}

TEST(a_server_without_the_hold_gets_a_copy_of_the_owner) {
    char copy[64];
    start();
    hold_by(3, AT(0));
    answers(3, 5, busy(20000, 0, 0), AT(1));
    hf_slice owner = hf_hold_owner(hold_of(&rig));
    snprintf(copy, sizeof copy, " %.*s.1 2000 ", (int)owner.size, owner.data);
    begin_quorum(HF_OP_ACQUIRE, 0, AT(10));
    for (int i = 3; i < COUNT; i++) CHECK_CONTAINS(output_by(i), copy);
    finish(AT(11));
}

TEST(a_re_entry_blocks_other_calls) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    CHECK(is_in_flight(hold_of(&rig)));
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(1));
    CHECK(hf_op_is_blocked(check));
    answers(0, 3, yes(77), AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK(!hf_op_is_blocked(check));
    finish(AT(3));
}

TEST(the_write_back_of_a_token_has_the_usual_timeout) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answer(0, yes(50), AT(1));
    answer(1, yes(40), AT(1));
    answer(2, yes(60), AT(2000));
    CHECK_OUTCOME(op, "under way");
    CHECK_EQ_U64(round_of(op)->decide_by, AT(5000));
    finish(AT(2001));
}

TEST(no_two_copies_of_an_owner_are_the_same) {
    start();
    hold_by(5, AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    hf_round *round = hf_round_new(&spec, 0);
    for (unsigned i = 1; i <= 3; i++) {
        hf_round_choose_copy(round, hold_of(&rig));
        CHECK_EQ_INT(copies_of(hold_of(&rig)), (int)i);
        CHECK_EQ_INT(round->owner.data[round->owner.size - 1], (int)('0' + i));
    }
    hf_round_unref(round);
    finish(AT(1));
}

TEST(the_first_server_may_have_the_copy_of_an_owner) {
    start();
    hf_op *op = begin_quorum(HF_OP_INFO, 0, AT(0));
    answer(0, INFO("40\r\n" OWNER_OF_US ".1", "1", "9"), AT(1));
    answers(1, 3, INFO("38\r\n" OWNER_OF_US, "1", "9"), AT(1));
    answers(3, COUNT, NOBODY, AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_MEM(info_of(op)->owner, info_of(op)->owner_size, OWNER_OF_US, strlen(OWNER_OF_US));
    finish(AT(2));
}

TEST(a_record_without_a_majority_is_not_sent_again) {
    start();
    hf_op *op = begin_guard(AT(0));
    answers(0, COUNT, yes(7), AT(1));
    hf_op_end(op, AT(1));
    hf_op_spec spec = spec_of(&rig, HF_OP_COMPLETE);
    spec.lock_kind = &hf_kind_guard;
    spec.keep = 5 * HF_SECOND;
    op = begin_spec(&rig, &spec, AT(2));
    answers(0, 2, ":1\r\n", AT(3));
    answers(2, COUNT, "-ERR no\r\n", AT(3));
    CHECK_OUTCOME(op, "no_quorum");
    CHECK_CONTAINS(message_of(op),
                   "2 of 5 recorded it (the others keep the lock until its lease ends): s3 server");
    hf_op_end(op, AT(3));
    rig_hush(&rig);
    pass(AT(3), AT(1000));
    for (int i = 0; i < COUNT * HF_LINKS; i++)
        CHECK_STR(output_of(hf_client_link(&rig.client, (size_t)i)), "");
    finish(AT(1000));
}

TEST(after_a_record_the_other_member_holds_stay) {
    start();
    hf_op *op = begin_guard(AT(0));
    answers(0, COUNT, yes(7), AT(1));
    hf_op_end(op, AT(1));
    hf_op_spec spec = spec_of(&rig, HF_OP_COMPLETE);
    spec.lock_kind = &hf_kind_guard;
    spec.keep = 5 * HF_SECOND;
    op = begin_spec(&rig, &spec, AT(2));
    answers(0, MAJORITY, ":1\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(3));
    for (int i = MAJORITY; i < COUNT; i++) {
        const hf_hold *part =
            hf_holds_find(holds_of(member(i)), &hf_kind_guard, hf_slice_of("k"), hf_slice_of("me"));
        CHECK(part);
        CHECK(is_held(part));
    }
    finish(AT(4));
}

TEST(a_slow_majority_gives_the_others_ten_times_as_long) {
    static const struct {
        int answered, most;
    } cases[] = {{100, 1100}, {10, 260}, {25, 275}, {26, 286}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
        answers(0, 2, yes(7), AT(cases[i].answered));
        answers(2, 4, busy(20000, 0, 0), AT(cases[i].answered));
        CHECK_EQ_U64(round_of(op)->decide_by, AT(cases[i].most));
        finish(AT(cases[i].answered));
    }
}

TEST(only_a_server_that_refused_a_connection_just_now_is_skipped) {
    static const struct {
        unsigned failed_opens;
        hf_code code;
        bool skipped;
    } cases[] = {{1, HF_UNREACHABLE, true}, {0, HF_UNREACHABLE, false}, {1, HF_DENIED, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        rig.down[0] = "refused";
        hf_op_end(begin_quorum(HF_OP_TTL, 0, AT(0)), AT(0));
        hf_session *calls = link_at(0, CALLS);
        CHECK(calls->state == HF_SESSION_CLOSED);
        calls->failed_opens = cases[i].failed_opens;
        calls->reason_code = cases[i].code;
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(50));
        CHECK_OR(round_of(op)->votes[0].skipped == cases[i].skipped, "case %zu", i);
        finish(AT(51));
    }
}

TEST(a_slow_majority_does_not_extend_the_time_of_a_command) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answers(0, 2, yes(77), AT(1000));
    answer(2, busy(20000, 0, 0), AT(1000));
    CHECK_OUTCOME(op, "under way");
    CHECK_EQ_U64(round_of(op)->decide_by, AT(3000));
    finish(AT(1001));
}

TEST(a_failure_repeats_what_a_server_says_about_a_missing_right) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answers(0, COUNT, "-NOPERM this user has no right\r\n", AT(1));
    CHECK_OUTCOME(op, "denied");
    CHECK_CONTAINS(message_of(op), "no right");
    finish(AT(2));
}

TEST(servers_are_tried_at_once_if_all_just_refused) {
    start();
    for (int i = 0; i < COUNT; i++) rig.down[i] = "refused";
    hf_op *op = begin_quorum(HF_OP_TTL, 0, AT(0));
    CHECK_OUTCOME(op, "no_quorum");
    hf_op_end(op, AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_TTL);
    op = hf_client_begin(&rig.client, &spec, AT(50));
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ_INT(hf_session_wants(link_at(i, CALLS), AT(50)), HF_WANT_OPEN);
    finish(AT(51));
}

TEST(holds_of_the_owners_other_processes_are_not_abandoned) {
    start();
    hold_by(5, AT(0));
    enter_again(5, AT(1));
    hf_hold *hold = hold_of(&rig);
    for (int i = 0; i < COUNT; i++) {
        set_count(member_holds_of(hold)[i], 4);
        set_others(member_holds_of(hold)[i], 2);
    }
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    CHECK_EQ_INT(parts_held(), 5);
    for (int i = 0; i < COUNT; i++) CHECK_EQ_INT(count_of(member_holds_of(hold)[i]), 3);
    finish(AT(3));
}

TEST(only_held_and_renewed_holds_are_repaired) {
    static const struct {
        bool renewed, lost;
    } cases[] = {{true, false}, {false, false}, {true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hold_by(3, AT(0));
        answers(3, 5, busy(20000, 0, 0), AT(1));
        rig_hush(&rig);
        hf_hold *hold = hold_of(&rig);
        set_renewed(hold, cases[i].renewed);
        if (cases[i].lost) hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
        hf_holds_wake_at(holds_of(&rig.client), hold, AT(100));
        tick(AT(100));
        bool repaired = strstr(output_by(4), "EVALSHA acquire") != NULL;
        CHECK_OR(repaired == (i == 0), "case %zu", i);
        finish(AT(101));
    }
}

TEST(a_failure_mentions_one_missing_reply) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answer(0, yes(7), AT(1));
    answers(1, 4, "-ERR no\r\n", AT(1));
    CHECK_CONTAINS(message_of(op), "1 of 5 granted, 1 yet to answer: s2 server, s3 server");
    finish(AT(2));
}

TEST(calls_behind_a_waiting_re_entry_time_out) {
    start();
    hold_by(5, AT(0));
    hf_op *entry = begin_quorum(HF_OP_ACQUIRE, 60 * HF_SECOND, AT(1));
    answers(0, 5, busy(20000, 0, 0), AT(1));
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(2));
    CHECK(hf_op_is_blocked(check));
    tick(AT(3002) - 1);
    CHECK_OUTCOME(check, "under way");
    tick(AT(3002));
    CHECK_OUTCOME(check, "unreachable");
    CHECK_CONTAINS(message_of(check), "an earlier command for this key got no reply");
    CHECK(!hf_op_is_blocked(check));
    CHECK_OUTCOME(entry, "under way");
    CHECK_EQ_INT(count_of(hold_of(&rig)), 1);
    finish(AT(3003));
}

/* It is too late for the vote, but not for what it has taken. */
TEST(a_grant_received_during_the_write_back_is_cleaned_up) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < 2; i++) answer(i, yes(50 + (unsigned)i), AT(1));
    answer(2, busy(20000, 0, 0), AT(1));
    hf_time end = round_of(op)->decide_by; /* the others have a moment */
    feed(link_at(3, CALLS), yes(52), end);
    hf_client_tick_calls(&rig.client, end);
    CHECK_EQ_INT(round_of(op)->state, HF_ROUND_WRITING_BACK);
    CHECK(round_of(op)->votes[4].counted && !hf_op_is_done(round_of(op)->votes[4].op));
    feed(link_at(4, CALLS), yes(60), end + HF_MS);
    CHECK_EQ_INT(part_state(4), HF_HOLD_HELD);
    answers(0, 2, ":1\r\n", end + 2 * HF_MS);
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(part_state(3), HF_HOLD_HELD);
    CHECK_EQ_INT(part_state(4), HF_HOLD_CLEANING_UP);
    finish(end + 3 * HF_MS);
}

TEST(the_owner_of_a_hold_is_that_of_its_members) {
    static const struct {
        bool shared;
        const char *of_member, *owner;
    } cases[] = {{true, "me.x", "me.x"}, {false, DRIVE_UUID ":1.2", DRIVE_UUID ":1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        hold_by(3, AT(0));
        hf_hold *hold = hold_of(&rig);
        hf_hold *part = hf_holds_add(holds_of(member(1)), kind_of(hold), hf_slice_of("k"),
                                     hf_slice_of("you"), hf_slice_of(cases[i].of_member));
        set_shared(hold, cases[i].shared);
        hf_hold_unref(member_holds_of(hold)[0]);
        hf_hold_unref(member_holds_of(hold)[1]);
        member_holds_of(hold)[0] = NULL;
        member_holds_of(hold)[1] = part;
        hf_hold_ref(part);
        hf_slice owner = hf_hold_owner(hold);
        CHECK_MEM(owner.data, owner.size, cases[i].owner, strlen(cases[i].owner));
        finish(AT(1));
    }
}

TEST(force_does_not_lose_a_hold_that_is_lost_already) {
    start();
    hf_op *acquire = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    rig_hush(&rig);
    hf_op *op = begin_quorum(HF_OP_FORCE, 0, AT(1));
    answers(0, 3, yes(7), AT(2));
    CHECK_OUTCOME(acquire, "ok");
    hf_client_lose(&rig.client, hold_of(&rig), HF_LOST_TAKEN);
    answers(0, 5, ":1\r\n", AT(3));
    pass(AT(3), AT(600));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 1);
    CHECK_EQ_INT(reason_of(hold_of(&rig)), HF_LOST_TAKEN);
    finish(AT(601));
}

TEST(a_caller_may_have_one_letter) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.caller = hf_slice_of("x");
    spec.shared = true;
    hf_op *op = begin_round(&spec, AT(0));
    CHECK(strstr(output_by(0), " x 2000 0 1 30000 "));
    answers(0, 3, yes(7), AT(1));
    CHECK_OUTCOME(op, "ok");
    const hf_hold *part = member_holds_of(hold_in(op))[0];
    CHECK(hf_slice_equal(hf_hold_caller(part), hf_slice_of("x")));
    finish(AT(2));
}

TEST(an_interrupted_attempt_may_still_get_a_majority_for_250_ms) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 9 * HF_SECOND, AT(0));
    answers(0, 2, yes(7), AT(1));
    hf_op_interrupt(op, AT(2));
    tick(AT(3));
    CHECK_OUTCOME(op, "under way");
    answer(2, yes(7), AT(4));
    CHECK_OUTCOME(op, "ok");
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(5));
    hf_op_interrupt(check, AT(5)); /* it does not wait */
    CHECK(!is_interrupted(check));
    finish(AT(6));
    start();
    op = begin_quorum(HF_OP_ACQUIRE, 9 * HF_SECOND, AT(0));
    answers(0, 2, yes(7), AT(1));
    hf_op_interrupt(op, AT(2));
    pass(AT(2), AT(252));
    CHECK_OUTCOME(op, "interrupted");
    finish(AT(1000));
}

TEST(a_re_entered_hold_is_renewed_if_either_entry_is) {
    for (int i = 0; i < 4; i++) {
        start();
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.renewed = i & 1;
        hf_op *op = begin_round(&spec, AT(0));
        answers(0, 3, yes(7), AT(1));
        CHECK_EQ_INT(is_renewed(hold_in(op)), i & 1);
        hf_op_end(op, AT(1));
        spec.renewed = i & 2;
        spec.lease = 40 * HF_SECOND;
        op = begin_round(&spec, AT(2));
        answers(0, 3, yes(7), AT(3));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_INT(is_renewed(hold_in(op)), i > 0);
        CHECK_EQ_U64(lease_of(hold_in(op)), 40 * HF_SECOND);
        finish(AT(4));
    }
}

TEST(an_abandoned_hold_awaits_no_late_reply) {
    start();
    hold_by(3, AT(0));
    CHECK(quorum_of(&rig.client)->late_replies);
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(1));
    CHECK(!quorum_of(&rig.client)->late_replies);
    CHECK_EQ_INT(part_state(4), HF_HOLD_CLEANING_UP);
    finish(AT(2));
}

TEST(an_abandoned_hold_gives_back_a_late_grant_that_has_just_come) {
    start();
    hold_by(3, AT(0));
    feed(link_at(4, CALLS), yes(5), AT(1)); /* not counted yet */
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(1));
    tick(AT(2));
    CHECK_EQ_INT(part_state(4), HF_HOLD_CLEANING_UP);
    CHECK_EQ_INT(part_state(3), HF_HOLD_CLEANING_UP);
    finish(AT(3));
}

TEST(an_abandoned_acquire_leaves_no_hold) {
    start();
    hf_op_end(begin_quorum(HF_OP_ACQUIRE, 0, AT(0)), AT(1));
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    finish(AT(2));
}

TEST(a_re_entry_of_a_hold_lost_meanwhile_reports_the_loss) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    hf_op *behind = begin_quorum(HF_OP_CHECK, 0, AT(1));
    CHECK(hf_op_is_blocked(behind));
    hf_client_lose(&rig.client, hold_of(&rig), HF_LOST_TAKEN);
    answers(0, 3, yes(77), AT(2));
    CHECK_OUTCOME(op, "lost");
    CHECK_OUTCOME(behind, "lost");
    hf_op_end(op, AT(2));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LOST);
    CHECK(!is_in_flight(hold_of(&rig)));
    finish(AT(3));
}

/* The members know it, and the quorum has not checked them since. */
TEST(a_failed_re_entry_reports_a_loss_not_noticed_yet) {
    start();
    hold_by(5, AT(0));
    hf_hold *hold = hold_of(&rig);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    for (int i = 0; i < MAJORITY; i++) {
        hf_client_lose(member(i), member_holds_of(hold)[i], HF_LOST_TAKEN);
        feed(link_at(i, CALLS), "-ERR no\r\n", AT(2));
    }
    CHECK(is_held(hold));
    hf_client_tick_calls(&rig.client, AT(2));
    CHECK_OUTCOME(op, "lost");
    CHECK(is_lost(hold));
    finish(AT(3));
}

TEST(a_failure_of_servers_with_long_names_fits) {
    start();
    for (int i = 0; i < COUNT; i++) {
        memset(servers[i].label, 'a' + i, sizeof servers[i].label - 1);
        servers[i].label[sizeof servers[i].label - 1] = '\0';
    }
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answers(0, 5, "-ERR no\r\n", AT(1));
    pass(AT(1), AT(600));
    CHECK_CONTAINS(message_of(op), "0 of 5 granted");
    CHECK_CONTAINS(message_of(op), "aaaa server, bbbb");
    finish(AT(601));
}

TEST(an_abandoned_hold_is_observed_as_released) {
    start();
    hf_observe_class(&rig.client, "");
    observer_of(&rig.client)->wanted = true;
    hold_by(5, AT(0));
    hf_client_abandon(&rig.client, hold_of(&rig), 1, AT(7));
    CHECK_EQ_INT(observer_of(&rig.client)->classes[0]->releases, 1);
    CHECK_EQ_U64(observer_of(&rig.client)->classes[0]->held.sum, 7 * HF_MS);
    finish(AT(8));
}

TEST(a_quorum_wakes_when_a_member_or_its_operation_does) {
    for (int first = 0; first < COUNT; first++) {
        start();
        begin_quorum(HF_OP_TTL, 0, AT(0));
        hf_session *link = link_at(first, CALLS);
        link->awaiting_since = link->received_at = AT(0) - HF_SECOND;
        CHECK_EQ_U64(hf_client_calls_deadline(&rig.client), AT(500));
        finish(AT(1));
    }
}

TEST(a_call_behind_a_re_entry_finds_an_abandoned_hold_not_held) {
    start();
    hold_by(5, AT(0));
    hf_hold *hold = hold_of(&rig);
    hf_hold_ref(hold);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1)), *check = begin_quorum(HF_OP_CHECK, 0, AT(1));
    CHECK(hf_op_is_blocked(check));
    hf_client_abandon(&rig.client, hold, 2, AT(2));
    answers(0, 3, yes(77), AT(3));
    CHECK_OUTCOME(op, "ok");
    CHECK_OUTCOME(check, "not_held");
    hf_op_end(check, AT(3));
    hf_op_end(op, AT(3));
    CHECK(!is_in_table(hold));
    CHECK_EQ_INT(refs_of(hold), 1);
    hf_hold_unref(hold);
    finish(AT(4));
}

TEST(a_refused_member_release_is_cleaned_up_when_the_release_is_abandoned) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    answer(4, "-ERR no\r\n", AT(2));
    CHECK_OUTCOME(op, "under way");
    hf_op_end(op, AT(3));
    CHECK_EQ_INT(part_state(4), HF_HOLD_CLEANING_UP);
    finish(AT(4));
}

/* A late reply may outlive what its caller has passed. */
TEST(the_members_operations_copy_their_texts) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
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
    finish(AT(1));
}

TEST(a_failed_write_back_waits_for_the_missing_replies) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answer(0, yes(50), AT(1));
    answer(1, yes(40), AT(1));
    answer(2, yes(60), AT(1));
    answers(0, 2, "-ERR no\r\n", AT(2));
    CHECK_OUTCOME(op, "under way");
    answers(3, 5, yes(70), AT(3));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(token_of(hold_of(&rig)), 60);
    finish(AT(4));
}

TEST(force_ends_a_hold_before_its_members_are_checked) {
    start();
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_FORCE, 0, AT(1));
    for (int i = 0; i < COUNT; i++) feed(link_at(i, CALLS), ":1\r\n", AT(2));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    hf_client_tick_calls(&rig.client, AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LOST);
    CHECK_EQ_INT(reason_of(hold_of(&rig)), HF_LOST_DELETED);
    finish(AT(3));
}

TEST(a_ping_succeeds_with_a_majority) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_PING);
    hf_op *op = begin_round(&spec, AT(0));
    answers(0, 2, "+PONG\r\n", AT(1));
    CHECK_OUTCOME(op, "under way");
    answer(2, "+PONG\r\n", AT(1));
    CHECK_OUTCOME(op, "ok");
    finish(AT(2));
}

TEST(a_call_without_a_hold_fails_as_soon_as_no_majority_is_possible) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_PING);
    hf_op *op = begin_round(&spec, AT(0));
    answers(0, 2, "-ERR no\r\n", AT(1));
    CHECK_OUTCOME(op, "under way");
    answer(2, "-ERR no\r\n", AT(1));
    CHECK_OUTCOME(op, "no_quorum");
    finish(AT(2));
}

TEST(one_server_that_is_busy_may_decide) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answers(0, 2, yes(7), AT(1));
    answer(2, busy(20000, 0, 0), AT(1));
    answers(3, 5, "-ERR no\r\n", AT(1));
    CHECK_OUTCOME(op, "busy");
    finish(AT(2));
}

/* The leave goes over the callers' link, which is down: the member's operation waits for that. */
TEST(a_leave_over_the_callers_link_is_tried_at_once) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    hf_op *op = hf_client_begin(member(0), &spec, AT(0));
    rig_serve(&rig, AT(0));
    hf_op_end(op, AT(1)); /* it may have been acquired */
    rig.down[0] = "refused";
    hf_session *calls = link_at(0, CALLS);
    hf_session_closed(calls, "gone", AT(1));
    hf_time now = AT(1);
    for (; calls->failed_opens < 9; now += 100 * HF_MS) tick(now);
    CHECK_EQ_INT(part_state(0), HF_HOLD_CLEANING_UP);
    CHECK(calls->state == HF_SESSION_CLOSED && calls->retry_at > now);
    rig.down[0] = NULL;
    now = hf_time_max(now, calls->opened_at + 101 * HF_MS);
    CHECK(calls->retry_at > now);
    hf_client_begin(&rig.client, &spec, now);
    CHECK_EQ_INT(hf_session_wants(calls, now), HF_WANT_OPEN);
    finish(now);
}

TEST(servers_that_are_asked_later_have_the_time_of_a_command) {
    start();
    rig.down[0] = rig.down[1] = "refused";
    hf_op_end(begin_quorum(HF_OP_TTL, 0, AT(0)), AT(0));
    rig_hush(&rig);
    rig.down[0] = rig.down[1] = NULL;
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(50));
    CHECK(round_of(op)->votes[0].skipped && round_of(op)->votes[1].skipped);
    CHECK_EQ_U64(round_of(op)->decide_by, AT(3050));
    answer(2, ":1\r\n-ERR no\r\n", AT(2000)); /* also that of the first command */
    CHECK(!round_of(op)->votes[0].skipped && !round_of(op)->votes[1].skipped);
    CHECK_EQ_U64(round_of(op)->decide_by, AT(5000));
    finish(AT(2001));
}

CHECK_MAIN
