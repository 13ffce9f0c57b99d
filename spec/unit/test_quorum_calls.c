/* Calls to a quorum, whose majority decides. */

#include "base/lease.h"

#include "quorum_calls_rig.h"

static hf_op *begin_extend(hf_time lease, hf_time now) {
    return BEGIN_ROUND(HF_OP_EXTEND, now, spec.lease = lease);
}

/* Answers by the first servers, one after the other, until NULL. */
static void answer_all(const char *const *replies, hf_time now) {
    for (int i = 0; i < COUNT && replies[i]; i++) answer(i, replies[i], now);
}

TEST(a_quorum_extension_needs_a_majority) {
    hold_by(5, AT(0));
    hf_hold *hold = hold_of();
    hf_op *op = begin_extend(60 * HF_SECOND, AT(1000));
    for (int i = 0; i < COUNT; i++) CHECK_CONTAINS(output_by(i), "EVALSHA extend");
    answers(0, 2, ":1\r\n", AT(1001)), CHECK_OUTCOME(op, "under way");
    CHECK_EQ_U64(lease_of(hold), 30 * HF_SECOND);
    CHECK_ANSWERS(op, 2, 3, ":1\r\n", AT(1001), "ok");
    CHECK_EQ_U64(lease_of(hold), 60 * HF_SECOND);
    CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(1000), 60 * HF_SECOND));
    CHECK(!is_in_flight(hold));
}

TEST(a_quorum_check_or_extension_without_a_majority_fails) {
    CASES(hf_op_kind kind; const char *replies[COUNT + 1], *outcome, *message) = {
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
         "the lock is no longer held on a majority of the servers (deleted)"},
        {HF_OP_EXTEND,
         {":-2\r\n", ":-2\r\n", ":-2\r\n", ":1\r\n", ":1\r\n"},
         "lost",
         "the lock is no longer held on a majority of the servers (taken)"},
        {HF_OP_CHECK, {":-1\r\n", ":-1\r\n", ":1\r\n", ":1\r\n", ":1\r\n"}, "ok", NULL},
    };
    EACH_CASE (i, cases) {
        hold_by(5, AT(0));
        hf_op *op = cases[i].kind == HF_OP_CHECK ? begin_quorum(HF_OP_CHECK, 0, AT(1000))
                                                 : begin_extend(60 * HF_SECOND, AT(1000));
        answer_all(cases[i].replies, AT(1001)), CHECK_OUTCOME(op, cases[i].outcome);
        if (cases[i].message) CHECK_CONTAINS(message_of(op), cases[i].message);
        CHECK_EQ_U64(lease_of(hold_of()), 30 * HF_SECOND);
    }
}

TEST(a_quorum_check_refused_by_a_majority_waits_only_briefly_for_the_other_replies) {
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_CHECK, 0, AT(1000));
    answers(0, 3, "-ERR no\r\n", AT(1001));
    CHECK_OUTCOME(op, "under way"); /* the other two may reply that it is lost */
    CHECK_PASS(op, AT(1001), AT(1600), "no_quorum");
}

TEST(a_quorum_call_on_a_lock_that_is_not_held_fails) {
    CHECK_OUTCOME(begin_quorum(HF_OP_CHECK, 0, AT(0)), "not_held");
    CHECK_OUTCOME(begin_quorum(HF_OP_RELEASE, 0, AT(0)), "not_held");
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    CHECK_OUTCOME(begin_quorum(HF_OP_CHECK, 0, AT(0)), "not_held");
    CHECK_OUTCOME(op, "under way");
}

TEST(each_quorum_release_is_sent_to_every_server) {
    hold_by(5, AT(0));
    hold_by(5, AT(1)), CHECK_EQ_INT(count_of(hold_of()), 2), CHECK_EQ_U64(stats().reentries, 1);
    CHECK_EQ_U64(stats().acquires, 1);
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
    for (int i = 0; i < MAJORITY; i++) CHECK_CONTAINS(output_by(i), "EVALSHA release 4 k");
    answers(0, 3, ":2\r\n", AT(3)), CHECK_ENDS(op, "ok", AT(3));
    CHECK_EQ_INT(state_of(), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold_of()), 1);
    op = begin_quorum(HF_OP_RELEASE, 0, AT(4));
    for (int i = 0; i < COUNT; i++) CHECK_CONTAINS(output_by(i), "EVALSHA release 4 k");
    CHECK_ANSWERS(op, 0, 2, ":1\r\n", AT(5), "under way");
    CHECK_ANSWERS_END(op, 2, 3, ":1\r\n", AT(5), "ok");
    CHECK_EQ_INT(state_of(), -1);
    CHECK_EQ_INT(part_state(0), -1);
    for (int i = MAJORITY; i < COUNT; i++) CHECK(part_state(i) != -1); /* in the background */
    CHECK_EQ_U64(stats().releases, 2);
}

TEST(a_server_that_did_not_grant_a_re_entry_receives_no_release_for_it) {
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    CHECK_ANSWERS(op, 0, 3, yes(77), AT(1), "ok");
    answer(3, busy(20000, 0, 0), AT(1));
    answer(4, busy(20000, 0, 0), AT(1));
    hf_op_end(op, AT(1));
    rig_hush();
    op = begin_quorum(HF_OP_RELEASE, 0, AT(2)), CHECK_STR(output_by(3), "");
    CHECK_STR(output_by(4), "");
    CHECK_OUTCOME(op, "under way");
    CHECK_ANSWERS(op, 0, 1, ":2\r\n", AT(3), "ok");
}

TEST(a_quorum_release_without_a_majority_reports_a_loss_or_continues_in_the_background) {
    CASES(const char *replies[COUNT + 1], *outcome, *message; uint64_t losses) = {
        {{":1\r\n", ":1\r\n", ":-1\r\n", ":-1\r\n", ":-1\r\n"},
         "lost",
         "the lock is no longer held on a majority of the servers (deleted)",
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
    EACH_CASE (i, cases) {
        hold_by(5, AT(0));
        hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
        CHECK(is_releasing(hold_of()));
        answer_all(cases[i].replies, AT(2)), CHECK_OUTCOME(op, cases[i].outcome);
        CHECK_CONTAINS(message_of(op), cases[i].message);
        CHECK_EQ_U64(stats().losses, cases[i].losses);
        CHECK_EQ_INT(state_of(), -1);
    }
}

TEST(a_call_on_another_handles_lost_hold_does_not_release_it) {
    hold_by(5, AT(0));
    hf_hold *lost = watch(hold_of());
    lose_hold(lost, HF_LOST_TAKEN);
    hf_op_spec spec = spec_of(HF_OP_RELEASE);
    spec.lost_hold = lost;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1));
    CHECK_ENDS(op, "lost", AT(1));
    CHECK_EQ_INT(state_of(), HF_HOLD_LOST); /* it is not released by that */
    spec.loss_reported = true;
    op = hf_client_begin(&rig.client, &spec, AT(2)), CHECK_ENDS(op, "not_held", AT(2));
}

TEST(abandoning_one_re_entry_of_a_quorum_hold_keeps_the_others) {
    hold_by(5, AT(0));
    hold_by(5, AT(1));
    abandon_hold(hold_of(), 1, AT(2)), CHECK_EQ_INT(state_of(), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(hold_of()), 1);
    CHECK_EQ_INT(parts_held(), 5);
    abandon_hold(hold_of(), 7, AT(3)), CHECK_EQ_INT(state_of(), -1); /* more than there are */
    for (int i = 0; i < COUNT; i++) CHECK_EQ_INT(part_state(i), CLEANING_UP);
}

TEST(a_re_entry_abandoned_during_a_partial_quorum_release_is_cleaned_up_after_it) {
    hold_by(5, AT(0));
    hold_by(5, AT(1));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
    abandon_hold(hold_of(), 1, AT(3));
    for (int i = 0; i < MAJORITY; i++) feed(link_at(i, CALLS), ":2\r\n", AT(4));
    tick(AT(4)), CHECK_OUTCOME(op, "ok"), CHECK_EQ_INT(state_of(), -1);
    for (int i = 0; i < MAJORITY; i++) CHECK_EQ_INT(part_state(i), CLEANING_UP);
}

TEST(a_quorum_hold_that_is_abandoned_entirely_during_a_re_entry_is_cleaned_up) {
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    abandon_hold(hold_of(), 1, AT(2));
    abandon_hold(hold_of(), 1, AT(2));
    CHECK_ANSWERS(op, 0, 5, yes(77), AT(3), "ok");
    CHECK_EQ_INT(state_of(), -1);
    for (int i = 0; i < MAJORITY; i++) CHECK_EQ_INT(part_state(i), CLEANING_UP);
}

TEST(a_quorum_re_entry_granted_after_the_majority_adds_no_hold_on_its_server) {
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    CHECK_ANSWERS_END(op, 0, 3, yes(77), AT(2), "ok");
    answer(4, yes(77), AT(3)), CHECK_EQ_INT(count_of(hold_of()), 2);
    CHECK_EQ_INT(count_of(member_holds_of(hold_of())[0]), 2);
    CHECK_EQ_INT(count_of(member_holds_of(hold_of())[4]), 1);
}

TEST(a_hold_abandoned_during_a_quorum_re_entry_is_removed_when_the_re_entry_ends) {
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    abandon_hold(hold_of(), 1, AT(2)), CHECK_EQ_INT(count_of(hold_of()), 1);
    CHECK_ANSWERS(op, 0, 3, yes(77), AT(3), "ok");
    CHECK_EQ_INT(count_of(hold_of()), 1);
    hf_op_end(op, AT(4)), CHECK_EQ_INT(state_of(), HF_HOLD_HELD);
    hold_by(5, AT(5)); /* it goes once */
    CHECK_EQ_INT(count_of(hold_of()), 2);
}

/* The hold is lost or abandoned during a release, whose replies say that it has ended, too. */
TEST(a_quorum_release_does_not_count_a_hold_abandoned_during_it_as_lost) {
    EACH_NUMBER (lost, 2) {
        hold_by(5, AT(0));
        hold_by(5, AT(1));
        hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(2));
        if (lost) lose_hold(hold_of(), HF_LOST_TAKEN);
        else abandon_hold(hold_of(), 2, AT(2));
        answers(0, 3, ":-1\r\n", AT(3));
        CHECK_PASS(op, AT(3), AT(600), "lost");
        CHECK_EQ_INT(stats().losses, lost);
    }
}

TEST(an_abandoned_quorum_release_is_finished_in_the_background) {
    hold_by(5, AT(0));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    hf_op_abandon(op, AT(2)), CHECK_ENDS(op, "interrupted", AT(2)), CHECK_EQ_INT(state_of(), -1);
    pass(AT(2), AT(3));
}

TEST(an_abandoned_partial_quorum_release_removes_one_hold_and_an_abandoned_check_none) {
    EACH_NUMBER (releases, 2) {
        hold_by(5, AT(0));
        if (releases) hold_by(5, AT(1));
        hf_op *op = begin_quorum(releases ? HF_OP_RELEASE : HF_OP_CHECK, 0, AT(2));
        hf_op_abandon(op, AT(3));
        hf_op_end(op, AT(3)), CHECK_EQ_INT(state_of(), HF_HOLD_HELD);
        CHECK_EQ_INT(count_of(hold_of()), 1);
        CHECK_EQ_INT(parts_held(), 5);
        CHECK(!is_in_flight(hold_of()));
    }
}

TEST(a_quorum_release_that_waits_for_a_check_reports_the_loss_that_the_check_finds) {
    hold_by(5, AT(0));
    hf_op *check = begin_quorum(HF_OP_CHECK, 0, AT(1));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    CHECK(hf_op_is_blocked(op));
    CHECK_ANSWERS(check, 0, COUNT, ":-1\r\n", AT(2), "lost");
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(state_of(), -1);
}

TEST(a_quorum_release_abandoned_while_it_waits_for_a_check_still_frees_the_lock) {
    hold_by(5, AT(0));
    begin_quorum(HF_OP_CHECK, 0, AT(1));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    hf_op_abandon(op, AT(2)), CHECK(!hf_op_is_blocked(op));
    hf_op_end(op, AT(2)), CHECK_EQ_INT(state_of(), -1);
}

TEST(a_quorums_ttl_is_the_largest_for_which_a_majority_still_has_the_lock) {
    CASES(const char *replies[COUNT + 1]; long long value) = {
        {{":500\r\n", ":400\r\n", ":300\r\n", ":200\r\n", ":100\r\n"}, 300},
        {{":100\r\n", ":500\r\n", ":200\r\n", ":400\r\n", ":300\r\n"}, 300},
        {{":500\r\n", ":400\r\n", ":-2\r\n", ":-2\r\n", ":-2\r\n"}, -2},
        {{":500\r\n", ":400\r\n", ":300\r\n", "-ERR no\r\n", "-ERR no\r\n"}, 300},
        {{":500\r\n", ":500\r\n", ":500\r\n", ":500\r\n", ":500\r\n"}, 500},
    };
    EACH_CASE (i, cases) {
        hf_op *op = begin_quorum(HF_OP_TTL, 0, AT(0));
        for (int j = 0; j < COUNT; j++) CHECK_CONTAINS(output_by(j), "PTTL k");
        answer_all(cases[i].replies, AT(1)), CHECK_OUTCOME(op, "ok");
        CHECK_EQ_INT(value_of(op), cases[i].value);
    }
}

TEST(a_quorums_info_returns_the_owner_that_a_majority_names) {
    CASES(const char *replies[COUNT + 1], *owner; uint64_t token) = {
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
        {{INFO("40\r\n" OWNER_OF_US ".1", "1", "9"), INFO("38\r\n" OWNER_OF_US, "1", "9"),
          INFO("38\r\n" OWNER_OF_US, "1", "9"), NOBODY, NOBODY},
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
    EACH_CASE (i, cases) {
        hf_op *op = begin_quorum(HF_OP_INFO, 0, AT(0));
        answer_all(cases[i].replies, AT(1)), CHECK_OUTCOME(op, "ok");
        CHECK_MEM(info_of(op)->owner, info_of(op)->owner_size, cases[i].owner,
                  strlen(cases[i].owner));
        CHECK_EQ_U64(info_of(op)->token, cases[i].token);
        CHECK_EQ_INT(info_of(op)->waiters, 0);
        CHECK_EQ_INT(info_of(op)->ttl_ms, cases[i].owner[0] ? 1500 : -2);
        CHECK_EQ_INT(info_of(op)->ahead, cases[i].owner[0] ? 2 : -1);
    }
}

TEST(a_quorums_info_returns_the_highest_token_and_the_latest_server_time) {
#define BEFORE_TOKEN "*10\r\n$3\r\nyou\r\n:1\r\n:1500\r\n:"
#define BEFORE_CLOCK "\r\n:4\r\n:2\r\n:-1\r\n:0\r\n:"
#define BEHIND_CLOCK "\r\n:7\r\n"
    const char *const replies[] = {BEFORE_TOKEN "16" BEFORE_CLOCK "30" BEHIND_CLOCK,
                                   BEFORE_TOKEN "24" BEFORE_CLOCK "50" BEHIND_CLOCK,
                                   BEFORE_TOKEN "8" BEFORE_CLOCK "40" BEHIND_CLOCK,
                                   NOBODY,
                                   NOBODY,
                                   NULL};
    hf_op *op = begin_quorum(HF_OP_INFO, 0, AT(0));
    answer_all(replies, AT(1)), CHECK_OUTCOME(op, "ok"), CHECK_EQ_U64(info_of(op)->token, 24);
    CHECK_EQ_INT(info_of(op)->clock_us, 50);
    CHECK_EQ_INT(info_of(op)->waited_us, -1);
}

TEST(a_quorums_info_waits_briefly_for_the_replies_of_all_servers) {
    hf_op *op = begin_quorum(HF_OP_INFO, 0, AT(0));
    CHECK_ANSWERS(op, 0, 3, NOBODY, AT(10), "under way");
    CHECK_PASS(op, AT(10), AT(1500), "ok");
}

/* Two of four can keep a majority from the others. */
TEST(two_of_four_servers_suffice_to_fail_a_quorum_call_or_to_report_a_loss) {
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
    EACH_CASE (i, reads) {
        hf_op *op = begin_quorum(HF_OP_TTL, 0, AT(0));
        answer_all(reads[i].replies, AT(1)), CHECK_ENDS(op, reads[i].outcome, AT(1));
        hold_by(4, AT(2));
        op = begin_quorum(HF_OP_RELEASE, 0, AT(3));
        answer_all(releases[i].replies, AT(4)), CHECK_OUTCOME(op, releases[i].outcome);
    }
    server_count = COUNT;
}

TEST(a_forced_release_in_a_quorum_frees_the_lock_on_every_server) {
    static const struct {
        const char *replies[COUNT + 1];
        int value;
    } cases[] = {
        {{":1\r\n", ":1\r\n", ":1\r\n", ":0\r\n", ":0\r\n"}, 1},
        {{":0\r\n", ":0\r\n", ":0\r\n", ":0\r\n", ":1\r\n"}, 1},
        {{":1\r\n", ":0\r\n", ":0\r\n", ":0\r\n", ":0\r\n"}, 1},
        {{":0\r\n", ":0\r\n", ":0\r\n", ":0\r\n", ":0\r\n"}, 0},
    };
    EACH_CASE (i, cases) {
        hold_by(5, AT(0));
        hf_op *op = begin_quorum(HF_OP_FORCE, 0, AT(1));
        answer_all(cases[i].replies, AT(2)), CHECK_OUTCOME(op, "ok");
        CHECK_EQ_INT(value_of(op), cases[i].value);
        CHECK_EQ_INT(state_of(), HF_HOLD_LOST);
        CHECK_EQ_INT(reason_of(hold_of()), HF_LOST_DELETED);
    }
}

TEST(a_forced_release_in_a_quorum_needs_no_hold_of_its_caller) {
    hf_op *op = begin_quorum(HF_OP_FORCE, 0, AT(1));
    CHECK_ANSWERS(op, 0, 5, ":1\r\n", AT(2), "ok");
    CHECK_EQ_INT(value_of(op), 1);
}

TEST(a_client_of_a_quorum_refuses_plain_commands_and_multi_locks) {
    static const hf_slice get[] = {{"GET", 3}, {"k", 1}};
    static const hf_names *batch[1];
    hf_op_spec spec = spec_of(HF_OP_COMMAND);
    spec.names = NULL;
    spec.lock_kind = NULL;
    spec.args = get;
    spec.arg_count = 2;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
    CHECK_OUTCOME(op, "server");
    CHECK_CONTAINS(message_of(op), "a command needs a single server, not a quorum");
    hf_op_end(op, AT(0));
    spec = spec_of(HF_OP_ACQUIRE_ALL);
    batch[0] = &rig.names;
    spec.names = NULL;
    spec.batch = batch;
    spec.batch_count = 1;
    op = hf_client_begin(&rig.client, &spec, AT(1)), CHECK_OUTCOME(op, "server");
    CHECK_CONTAINS(message_of(op), "one-step operations on several locks need a single server");
    hf_op_end(op, AT(1));
    for (int i = 0; i < COUNT; i++) CHECK_STR(output_by(i), "");
}

CHECK_MAIN
