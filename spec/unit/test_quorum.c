#include "quorum_rig.h"

TEST(a_quorum_acquire_fails_as_soon_as_no_majority_is_possible) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < MAJORITY; i++) {
        CHECK_OUTCOME(op, "under way");
        answer(i, busy(20000, 0, 0), AT(1));
    }
    CHECK_OUTCOME(op, "busy");
    CHECK_CONTAINS(message_of(op), "0 of 5 granted, 2 yet to answer: s1 busy, s2 busy, s3 busy");
    CHECK_EQ_INT(state_of(), -1);
}

/* Answers each command of these servers in this way until `until`. */
static void keep_answering(int first, int end, const char *text, hf_time now, hf_time until) {
    for (; now < until; now += 5 * HF_MS) {
        tick(now);
        for (int i = first; i < end; i++) {
            if (*output_by(i)) feed(link_at(i, CALLS), text, now);
        }
    }
    tick(until);
}

static int count_events(hf_event_kind kind, const char *code) {
    int count = 0;
    for (hf_event *event = hf_observe_take(&rig.client), *next; event; event = next) {
        next = event->next;
        count += event->kind == kind && (!code || strcmp(event->code, code) == 0);
        free(event);
    }
    return count;
}

TEST(a_quorum_acquire_keeps_waiting_while_all_servers_are_replicas_and_reports_that_in_one_event) {
    observer_of(&rig.client)->wants_all = true;
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 60 * HF_SECOND, AT(0));
    keep_answering(0, COUNT, "-READONLY no\r\n", AT(1), AT(5000)), CHECK_OUTCOME(op, "under way");
    CHECK_EQ_INT(count_events(HF_EVENT_CUT_OFF, "denied"), 1);
    keep_answering(0, COUNT, busy(20000, 0, 0), AT(5000), AT(6000)), CHECK_OUTCOME(op, "under way");
    CHECK_EQ_INT(count_events(HF_EVENT_RESUMED, NULL), 1);
}

TEST(a_quorum_acquire_waits_for_refusing_servers_only_if_they_could_make_a_majority) {
    static const struct {
        int granting, refusing; /* the other servers answer with an error */
        int busy;               /* how many of the refusing ones */
        const char *outcome;
    } cases[] = {
        {0, 3, 0, "under way"}, {1, 2, 0, "under way"}, {2, 1, 0, "under way"},
        {0, 3, 2, "under way"}, {1, 2, 1, "under way"}, {0, 2, 1, "no_quorum"},
        {0, 2, 0, "no_quorum"}, {1, 1, 0, "no_quorum"}, {2, 0, 0, "no_quorum"},
    };
    EACH_CASE (i, cases) {
        int refused = cases[i].granting + cases[i].refusing;
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 5 * HF_SECOND, AT(0));
        for (int j = 0; j < COUNT; j++) { /* all at once */
            const char *no = j >= refused ? "-ERR no\r\n" : "-NOREPLICAS no\r\n";
            bool is_busy = j < refused && j >= refused - cases[i].busy;
            if (is_busy) no = busy(1000, 0, 0);
            feed(link_at(j, CALLS), j < cases[i].granting ? yes(7) : no, AT(1));
        }
        tick(AT(1));
        CHECK_OR(strcmp(outcome(op), cases[i].outcome) == 0, "case %zu: %s", i, outcome(op));
    }
}

TEST(a_quorum_call_skips_servers_that_just_refused_a_connection_while_the_others_suffice) {
    rig.down[0] = rig.down[1] = "refused";
    for (int ms = 0; ms < 200; ms += 50) {
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(ms));
        for (int i = 2; i < COUNT; i++) answer(i, yes(7), AT(ms));
        CHECK_OUTCOME(op, "ok");
        hf_op_end(op, AT(ms));
        op = begin_quorum(HF_OP_RELEASE, 0, AT(ms));
        for (int i = 2; i < COUNT; i++) answer(i, ":1\r\n", AT(ms));
        CHECK_OUTCOME(op, "ok");
        hf_op_end(op, AT(ms));
        CHECK_EQ_INT((link_at(0, CALLS)->opened_at - AT(0)) / HF_MS, ms < 100 ? 0 : 100);
    }
    rig.down[0] = rig.down[1] = NULL;
    for (int i = 2; i < 4; i++) { /* now they are needed */
        rig.down[i] = "refused";
        hf_session_closed(link_at(i, CALLS), "gone", AT(160));
    }
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(161));
    answers(0, 2, yes(7), AT(161));
    CHECK_ANSWERS(op, 4, 5, yes(7), AT(161), "ok");
}

TEST(a_quorum_acquire_awaits_a_server_whose_reply_decides_it_until_the_command_timeout) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    GRANT_TOKENS(AT(1), 7, 7);
    pass(AT(1), AT(2500)); /* no majority has answered: all of the command's time is given */
    CHECK_OUTCOME(op, "under way");
    answer(2, busy(20000, 0, 0), AT(2500));
    CHECK_ANSWERS(op, 3, 4, busy(20000, 0, 0), AT(2500), "under way");
    CHECK_PASS(op, AT(2500), AT(3000), "busy");
    CHECK_CONTAINS(message_of(op), "s5 no reply in time");
}

TEST(a_quorum_acquire_granted_by_a_minority_only_is_undone_there) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    GRANT_TOKENS(AT(1), 7, 7);
    rig_hush();
    CHECK_ANSWERS_END(op, 2, COUNT, busy(20000, 0, 0), AT(1), "busy");
    tick(AT(1));
    tick(AT(1));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ_INT(part_state(i), CLEANING_UP);
        CHECK_CONTAINS(output_of(link_at(i, RENEWER)), "EVALSHA leave");
    }
    for (int i = 2; i < COUNT; i++) CHECK_EQ_INT(part_state(i), -1);
}

TEST(a_quorum_waiter_tries_again_after_a_random_pause) {
    char first[512];
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 5 * HF_SECOND, AT(0));
    snprintf(first, sizeof first, "%s", output_by(0));
    CHECK_CONTAINS(first, hf_client_uuid(&rig.client));
    CHECK_ANSWERS(op, 0, COUNT, busy(20000, 0, 0), AT(1), "under way");
    rig_hush();
    hf_time again = hf_op_next_tick(op);
    CHECK(again > AT(1) && again <= AT(1 + 1 + 200));
    pass(AT(1), again);
    const char *second = output_by(0);
    CHECK_CONTAINS(second, "EVALSHA acquire");
    CHECK(strcmp(first, second) != 0); /* each attempt has an owner of its own */
    CHECK_ANSWERS(op, 0, COUNT, yes(9), again, "ok");
}

TEST(a_quorum_waiter_pauses_for_at_least_a_millisecond_and_longer_after_each_attempt) {
    hf_time longest = 0, least = HF_NEVER, now = AT(1);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, HF_NEVER, AT(0));
    for (int attempt = 1; attempt <= 600; attempt++) {
        for (int i = 0; i < COUNT; i++) answer(i, busy(20000, 0, 0), now);
        CHECK_EQ_INT(round_of(op)->attempts, attempt);
        hf_time pause = hf_op_next_tick(op) - now, most = attempt < 5 ? 10u << attempt : 200;
        CHECK(pause >= HF_MS && pause <= (most + 3) * HF_MS);
        longest = hf_time_max(longest, pause);
        least = hf_time_min(least, pause);
        now += pause;
        tick(now);
    }
    CHECK(longest >= 150 * HF_MS && least < 5 * HF_MS);
    CHECK_EQ_U64(stats().waits, 1);
}

TEST(a_quorum_waiter_times_out_on_time_if_servers_stop_replying_during_its_wait) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, HF_SECOND, AT(0));
    answers(0, COUNT, busy(20000, 0, 0), AT(800));
    CHECK_PASS(op, AT(800), AT(999), "under way");
    pass(AT(999), AT(1250)), CHECK(hf_op_is_done(op));
}

TEST(a_quorum_acquire_that_waits_behind_another_call_of_its_owner_times_out_on_time) {
    hold_by(COUNT, AT(0));
    begin_quorum(HF_OP_CHECK, 0, AT(1));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 500 * HF_MS, AT(1));
    CHECK(hf_op_is_blocked(op));
    CHECK_PASS(op, AT(1), AT(500), "under way");
    CHECK_PASS(op, AT(500), AT(501), "unreachable");
}

TEST(a_quorum_acquire_waits_for_another_call_of_its_owner_and_then_proceeds) {
    hf_op *first = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    hf_op *second = begin_quorum(HF_OP_ACQUIRE, HF_SECOND, AT(1)),
          *third = begin_quorum(HF_OP_ACQUIRE, 300 * HF_MS, AT(1)),
          *fourth = begin_quorum(HF_OP_ACQUIRE, HF_NEVER, AT(1)),
          *last = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    CHECK_OUTCOME(last, "busy");
    CHECK(hf_op_is_blocked(second) && hf_op_is_blocked(third) && hf_op_is_blocked(fourth));
    CHECK_INTERRUPTS(fourth, AT(2));
    CHECK_PASS(third, AT(2), AT(301), "busy");
    CHECK_ANSWERS(first, 0, COUNT, yes(7), AT(302), "ok");
    CHECK_OUTCOME(second, "under way");
    CHECK(!hf_op_is_blocked(second));
    CHECK_ANSWERS(second, 0, COUNT, yes(0), AT(303), "ok");
    CHECK_EQ_INT(count_of(hold_of()), 2);
}

/* It was behind the first one all the time, and behind the second one only for a moment. */
TEST(a_quorum_acquire_blocked_by_several_calls_of_its_owner_ends_as_busy) {
    hf_op *first = begin_quorum(HF_OP_ACQUIRE, HF_NEVER, AT(0));
    hf_op *second = begin_quorum(HF_OP_ACQUIRE, HF_NEVER, AT(0)),
          *third = begin_quorum(HF_OP_ACQUIRE, HF_SECOND, AT(0));
    answers(0, COUNT, busy(20000, 0, 0), AT(1));
    hf_time retry_at = round_of(first)->retry_at;
    CHECK(retry_at < AT(1000));
    tick(AT(990));
    rig_hush();
    CHECK_ANSWERS(first, 0, COUNT, yes(7), AT(998), "ok");
    CHECK(!hf_op_is_blocked(second) && hf_op_is_blocked(third));
    tick(AT(1000)), CHECK_OUTCOME(third, "busy");
    CHECK_CONTAINS(message_of(third), "another call by this owner");
}

TEST(an_interrupted_quorum_waiter_ends_at_once) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, HF_NEVER, AT(0));
    answers(0, COUNT, busy(20000, 0, 0), AT(1));
    CHECK_INTERRUPTS(op, AT(2));
}

TEST(a_server_that_grants_after_the_majority_still_counts_toward_the_quorum_hold) {
    hold_by(3, AT(0)), CHECK_EQ_INT(parts_held(), 3);
    answer(4, yes(5), AT(100)), CHECK_EQ_INT(parts_held(), 4);
    CHECK_EQ_U64(token_of(hold_of()), 77);
    CHECK(!is_quiet());
    answer(3, busy(20000, 0, 0), AT(200)), CHECK_EQ_INT(parts_held(), 4), CHECK(is_quiet());
}

TEST(a_new_quorum_acquire_cleans_up_what_a_lost_hold_left_on_each_server) {
    hold_by(5, AT(0));
    for (int i = 0; i < 3; i++)
        hf_client_lose(member(i), member_holds_of(hold_of())[i], HF_LOST_DELETED);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(10));
    CHECK_ANSWERS_END(op, 0, MAJORITY, busy(20000, 0, 0), AT(11), "busy");
    for (int i = 3; i < COUNT; i++) CHECK_EQ_INT(part_state(i), CLEANING_UP);
}

TEST(a_quorum_of_five_writes_its_third_lowest_token_back_to_the_servers_with_lower_ones) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    rig_hush();
    GRANT_TOKENS(AT(1), 50, 40);
    CHECK_ANSWERS(op, 2, 3, yes(60), AT(1), "under way");
    CHECK_EQ_U64(round_of(op) ? 60 : 0, 60);
    CHECK_CONTAINS(output_by(0), " 1 redisson_lock_token:{k} 60 1000");
    CHECK_CONTAINS(output_by(1), "redisson_lock_token:{k} 60 1000");
    CHECK_STR(output_by(2), "");
    CHECK_ANSWERS(op, 0, 1, ":1\r\n", AT(2), "under way");
    CHECK_ANSWERS(op, 1, 2, ":1\r\n", AT(2), "ok");
    CHECK_EQ_U64(token_of(hold_of()), 60);
}

TEST(the_quorums_token_is_also_written_to_servers_that_grant_late) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    rig_hush();
    GRANT_TOKENS(AT(1), 60, 50, 60);
    CHECK_CONTAINS(output_by(1), "redisson_lock_token:{k} 60 1000");
    CHECK_ANSWERS(op, 1, 2, "-OOM no\r\n", AT(2), "under way");
    answer(3, yes(40), AT(3)), CHECK_CONTAINS(output_by(3), "redisson_lock_token:{k} 60 1000");
    CHECK_STR(output_by(1), "");
    CHECK_ANSWERS(op, 3, 4, ":1\r\n", AT(4), "ok");
    CHECK_EQ_U64(token_of(hold_of()), 60);
}

TEST(a_quorum_acquire_fails_if_its_token_cannot_be_written_to_a_majority) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    GRANT_TOKENS(AT(1), 50, 40, 60);
    CHECK_PASS(op, AT(1), AT(4000), "no_quorum");
    CHECK_EQ_INT(state_of(), -1);
}

static hf_op *begin_short_acquire(hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.lease = HF_SECOND);
    rig_hush();
    return op;
}

/* Since the votes of the first two have expired, another owner may have had 10 from them and the
 * fourth. */
TEST(a_quorum_ignores_the_token_of_an_expired_grant_when_it_chooses_its_own) {
    hf_op *op = begin_short_acquire(AT(0));
    GRANT_TOKENS(AT(1), 5, 6);
    answer(2, yes(8), AT(900));
    rig_hush();
    for (int i = 3; i < COUNT; i++) feed(link_at(i, CALLS), yes(8 + (unsigned)i), AT(980));
    hf_holds_mark_lost(holds_of(member(0)), hold_in_heap(holds_of(member(0)), 0), HF_LOST_EXPIRED);
    hf_holds_mark_lost(holds_of(member(1)), hold_in_heap(holds_of(member(1)), 0), HF_LOST_EXPIRED);
    tick(AT(980)), CHECK_OUTCOME(op, "under way");
    CHECK_CONTAINS(output_by(2), "redisson_lock_token:{k} 12 1000");
    CHECK_ANSWERS(op, 2, 3, ":1\r\n", AT(981), "under way");
    CHECK_ANSWERS(op, 3, 4, ":1\r\n", AT(981), "ok");
    CHECK_EQ_U64(token_of(hold_of()), 12);
}

TEST(a_quorum_acquire_fails_as_lost_if_its_first_grants_expired_before_a_majority_granted) {
    hf_op *op = begin_short_acquire(AT(0));
    GRANT_TOKENS(AT(1), 5, 6);
    for (int i = 0; i < 2; i++)
        hf_holds_mark_lost(holds_of(member(i)), hold_in_heap(holds_of(member(i)), 0),
                           HF_LOST_EXPIRED);
    answer(2, yes(11), AT(900)), CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(state_of(), -1);
}

TEST(a_quorum_acquire_proposes_a_token_ahead_of_all_server_clocks_it_has_seen) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    CHECK_EQ_U64(hf_quorum_propose(quorum_of(&rig.client), AT(0)), 1);
    for (int i = 0; i < MAJORITY; i++) /* clocks that are i seconds ahead of the client's */
        answer(i, yes_at(AT(1000 * i)), AT(4));
    CHECK_ENDS(op, "ok", AT(4));
    uint64_t proposal = hf_quorum_propose(quorum_of(&rig.client), AT(100));
    CHECK(proposal > AT(2100) / 1000 && proposal < AT(2200) / 1000);
}

/* ---- servers that came back ---- */

#define GUARD (60 * HF_SECOND)

/* The log-in of the server's connections: which run it is, and the mark that clients left there,
 * "": none. Its own clock says that it is old, which counts for nothing. */
static void log_in(int i, const char *run_id, const char *mark, hf_time now) {
    char info[160], text[320];
    snprintf(info, sizeof info,
             "# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\nuptime_in_seconds:90000\r\n",
             run_id);
    int size = snprintf(text, sizeof text, "$%zu\r\n%s\r\n", strlen(info), info);
    if (mark[0])
        snprintf(text + size, sizeof text - (size_t)size, "$%zu\r\n%s\r\n", strlen(mark), mark);
    else snprintf(text + size, sizeof text - (size_t)size, "$-1\r\n");
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session *session = link_at(i, (hf_link)link);
        if (session->state == HF_SESSION_LOGIN) feed(session, text, now);
    }
    tick(now);
}

static void log_in_all(const char *run_id, const char *mark, hf_time now) {
    for (int i = 0; i < COUNT; i++) log_in(i, run_id, mark, now);
}

/* Each server grants an acquire. → its outcome */
static const char *acquire_at(hf_time now) {
    static char outcome_text[32];
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, now);
    answers(0, COUNT, yes(7), now);
    snprintf(outcome_text, sizeof outcome_text, "%s", outcome(op));
    hf_op_end(op, now);
    return outcome_text;
}

/* Each server, which is known for longer than the guard, has granted the lock. */
static void acquire_marked(hf_time now) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, now);
    log_in_all("r1", "r1", now);
    CHECK_ANSWERS_END(op, 0, COUNT, yes(7), now + HF_MS, "ok");
}

/* Replies to the leaves of all member holds. */
static void answer_leaves(hf_time now) {
    tick(now);
    for (int i = 0; i < COUNT * HF_LINKS; i++) {
        hf_session *link = hf_client_link(&rig.client, (size_t)i);
        if (link->state == HF_SESSION_READY && link->first_reply < link->next_reply)
            feed(link, ":1\r\n", now);
    }
    tick(now);
}

TEST(a_client_with_restart_guard_reads_each_servers_run_id_at_login) {
    start_with(GUARD);
    begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    hf_slice key = hf_slice_of("k");
    CHECK_STR(hf_session_run_id(hf_client_link_of_key(&rig.client, key, 1)), "");
    for (int i = 0; i < COUNT; i++) log_in(i, i == 1 ? "r2" : "r1", "", AT(0));
    CHECK_STR(hf_session_run_id(hf_client_link_of_key(&rig.client, key, 0)), "r1");
    CHECK_STR(hf_session_run_id(hf_client_link_of_key(&rig.client, key, 1)), "r2");
    CHECK(hf_client_link_of_key(&rig.client, key, COUNT - 1));
    CHECK(!hf_client_link_of_key(&rig.client, key, COUNT));
}

TEST(a_server_that_restarted_within_restart_guard_does_not_count_toward_a_quorum) {
    start_with(GUARD);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < COUNT; i++) log_in(i, "r1", i < 3 ? "" : "r1", AT(0));
    answers(0, COUNT, yes(7), AT(1)), CHECK_OUTCOME(op, "no_quorum");
    CHECK_CONTAINS(message_of(op), "s1 restarted recently");
    CHECK(!strstr(message_of(op), "s4"));
    hf_op_end(op, AT(1));
    tick(AT(1));
    for (int i = 0; i < COUNT; i++) CHECK_EQ_INT(part_state(i), CLEANING_UP);
}

TEST(a_late_grant_from_a_recently_restarted_server_is_undone) {
    start_with(GUARD);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < COUNT; i++) log_in(i, "r1", i < 4 ? "r1" : "", AT(0));
    answers(0, MAJORITY, yes(7), AT(1)), CHECK_ENDS(op, "ok", AT(1));
    answers(MAJORITY, COUNT, yes(7), AT(2)), CHECK_EQ_INT(parts_held(), 4);
    CHECK_EQ_INT(part_state(4), CLEANING_UP);
}

TEST(a_restarted_server_counts_after_restart_guard_and_is_then_marked_as_known) {
    start_with(GUARD);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    log_in_all("r1", "", AT(0));
    CHECK_ANSWERS_END(op, 0, COUNT, yes(7), AT(1), "no_quorum");
    tick(AT(1));
    log_in_all("r1", "", AT(1)); /* the renewers' connections */
    answer_leaves(AT(1)), CHECK_STR(acquire_at(AT(59999)), "no_quorum");
    answer_leaves(AT(59999));
    rig_hush(), CHECK_STR(acquire_at(AT(60000)), "ok");
    CHECK_CONTAINS(output_by(0), "SET holdfast_known r1");
}

TEST(a_quorum_re_entry_that_a_restarted_server_granted_is_released_there_once) {
    start_with(GUARD);
    acquire_marked(AT(0));
    link_at(0, CALLS)->run_id_stored = false;
    link_at(0, CALLS)->known_since = AT(2);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(2));
    CHECK_ANSWERS(op, 0, COUNT, yes(7), AT(3), "ok");
    CHECK(hf_quorum_is_guarded(&rig.client, 0, AT(3)));
    hf_op_end(op, AT(3)), CHECK_EQ_INT(count_of(hold_of()), 2);
    CHECK_EQ_INT(part_state(0), HF_HOLD_HELD);
    CHECK_EQ_INT(count_of(member_holds_of(hold_of())[0]), 1);
}

TEST(a_quorum_wait_that_ends_before_restart_guard_fails_as_no_quorum) {
    start_with(GUARD);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 50 * HF_MS, AT(0));
    log_in_all("r1", "", AT(0));
    answers(0, COUNT, yes(7), AT(1));
    hf_time retry_at = round_of(op)->retry_at;
    set_wait_end(op, retry_at); /* it ends in the pause */
    CHECK_PASS(op, AT(1), retry_at, "no_quorum");
    CHECK_CONTAINS(message_of(op), "s1 restarted recently");
    CHECK_CONTAINS(message_of(op), "; wait longer than restart_guard");
}

/* Replies to what the renewer sends for the member holds: that they are renewed. */
static void renew_all(hf_time now, const bool *refuses) {
    for (int i = 0; i < COUNT; i++) {
        const char *text = output_of(link_at(i, RENEWER));
        if (strstr(text, "EVALSHA renew"))
            feed(link_at(i, RENEWER), refuses[i] ? GONE : "*1\r\n:1\r\n", now);
    }
    tick(now);
}

static const char *with_suffix(const char *text, const char *suffix) {
    static char whole[128];
    snprintf(whole, sizeof whole, "%s%s", text, suffix);
    return whole;
}

/* A leave for the member hold that was lost does not free the one that is acquired later. */
TEST(a_quorum_hold_is_restored_under_a_new_owner_name_on_a_server_that_lost_it) {
    const bool refuses[COUNT] = {true, false, false, false, false};
    char owner[64];
    hold_by(5, AT(0));
    hf_slice text = hf_hold_owner(hold_of());
    snprintf(owner, sizeof owner, "%.*s", (int)text.size, text.data);
    pass(AT(0), AT(10100));
    renew_all(AT(10100), refuses), CHECK_EQ_INT(parts_held(), 4);
    CHECK_EQ_INT(state_of(), HF_HOLD_HELD);
    rig_hush();
    pass(AT(10100), AT(20300));
    const char *repair = output_by(0);
    CHECK_CONTAINS(repair, "EVALSHA acquire");
    CHECK_CONTAINS(repair, " 30000 1000 ");
    answer(0, yes(90), AT(20300)), CHECK_EQ_INT(parts_held(), 5);
    CHECK_EQ_U64(token_of(hold_of()), 77);
    CHECK(hf_slice_equal(hf_hold_owner(member_holds_of(hold_of())[0]),
                         hf_slice_of(with_suffix(owner, ".1"))));
    CHECK(hf_slice_equal(hf_hold_owner(hold_of()), hf_slice_of(owner)));
}

TEST(a_quorum_hold_is_restored_with_its_token_even_after_a_re_entry_without_fencing) {
    const bool refuses[COUNT] = {true, false, false, false, false};
    hold_by(5, AT(0));
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(1), spec.token_ttl_ms = 0);
    CHECK_ANSWERS(op, 0, 5, yes(0), AT(2), "ok");
    pass(AT(2), AT(10100));
    renew_all(AT(10100), refuses), CHECK_EQ_INT(parts_held(), 4);
    rig_hush();
    pass(AT(10100), AT(20300)), CHECK_CONTAINS(output_by(0), " 30000 1000 ");
}

TEST(a_quorum_hold_is_lost_when_its_majority_expires_without_a_renewal) {
    hold_by(5, AT(0));
    for (int i = 0; i < 3; i++) rig.down[i] = "refused";
    for (int i = 0; i < 3; i++) hf_session_closed(link_at(i, RENEWER), "gone", AT(1));
    hf_hold *hold = watch(hold_of());
    hf_time end = ends_at(hold);
    pass(AT(1), end - 1), CHECK(is_held(hold));
    pass(end - 1, end + 1), CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_UNREACHABLE);
}

TEST(a_quorum_hold_abandoned_during_a_check_is_not_reported_as_lost) {
    hold_by(COUNT, AT(0));
    hf_op *op = begin_quorum(HF_OP_CHECK, 0, AT(10));
    abandon_hold(hold_of(), 1, AT(11));
    for (int i = 0; i < COUNT; i++) answer(i, ":1\r\n", AT(12));
    CHECK_OUTCOME(op, "not_held");
    CHECK_EQ_U64(stats().losses, 0);
    CHECK_EQ_U64(hf_client_loss_count(&rig.client), 0);
}

TEST(a_lost_quorum_hold_is_cleaned_up_on_a_server_as_soon_as_the_server_is_back) {
    hold_by(5, AT(0));
    hf_time end = ends_at(hold_of());
    for (int i = 0; i < 3; i++) rig.down[i] = "refused";
    for (int i = 0; i < 3 * HF_LINKS; i++) {
        hf_session *session = hf_client_link(&rig.client, (size_t)i);
        if (session->state != HF_SESSION_CLOSED) hf_session_closed(session, "gone", AT(1));
    }
    pass(AT(1), end);
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, end);
    CHECK_ENDS(op, "lost", end);
    hf_time now = end + 5 * HF_SECOND;
    pass(end, now); /* by now it is tried once in a second */
    rig.down[0] = NULL;
    rig_hush();
    hf_session *renewer = link_at(0, RENEWER);
    now = renewer->opened_at + 150 * HF_MS;
    CHECK_EQ_INT(renewer->state, HF_SESSION_CLOSED);
    CHECK(renewer->retry_at > now);
    op = begin_quorum(HF_OP_ACQUIRE, 0, now), CHECK_EQ_INT(renewer->state, HF_SESSION_READY);
    CHECK_CONTAINS(output_of(renewer), "EVALSHA leave");
}

/* ---- any order ---- */

static uint64_t dice_state;

static unsigned chance(unsigned below) {
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((dice_state >> 33) % below);
}

static const char *any_answer(void) {
    switch (chance(8)) {
    case 0: return busy(20000, 0, 0);
    case 1: return "-LOADING Redis is loading\r\n";
    case 2: return GONE;
    case 3: return "*1\r\n:1\r\n";
    case 4: return ":1\r\n";
    default: return yes(1 + chance(50));
    }
}

static void check_holds(hf_time now) {
    for (size_t i = 0; i < holds_left(); i++) {
        const hf_hold *hold = hold_in_heap(holds_of(&rig.client), i);
        if (!is_held(hold) || ends_at(hold) <= now) continue;
        size_t valid = 0;
        for (size_t j = 0; j < member_count_of(hold); j++) {
            const hf_hold *part = member_holds_of(hold)[j];
            valid += part && is_in_table(part) && is_held(part) && ends_at(part) >= ends_at(hold);
        }
        if (valid < MAJORITY) check_fail(__FILE__, __LINE__, "valid by %zu parts alone", valid);
    }
}

/* feed() without an allocation of its own */
static void feed_link(hf_session *session, const char *text, hf_time now) {
    hf_session_feed(session, text, strlen(text), now);
}

static void one_event(hf_time now) {
    static const hf_op_kind kinds[] = {HF_OP_ACQUIRE, HF_OP_ACQUIRE, HF_OP_RELEASE, HF_OP_EXTEND,
                                       HF_OP_CHECK,   HF_OP_INFO,    HF_OP_FORCE,   HF_OP_TTL};
    int i = (int)chance(COUNT);
    hf_link link = chance(3) ? CALLS : RENEWER;
    switch (chance(12)) {
    case 0: {
        hf_op_kind kind = kinds[chance(8)];
        hf_op *op = begin_quorum(kind, chance(2) * HF_SECOND, now);
        if (op && chance(8) == 0) hf_op_interrupt(op, now);
        break;
    }
    case 1:
        if (link_at(i, link)->state != HF_SESSION_CLOSED)
            hf_session_closed(link_at(i, link), "lost", now);
        break;
    case 2: rig.down[i] = chance(3) ? NULL : "refused"; break;
    case 3:
        if (ops_of(&rig.client)) hf_op_end(ops_of(&rig.client), now);
        break;
    case 4:
        if (hold_of()) abandon_hold(hold_of(), 1, now);
        break;
    default:
        if (link_at(i, link)->state == HF_SESSION_READY &&
            link_at(i, link)->first_reply != link_at(i, link)->next_reply)
            feed_link(link_at(i, link), any_answer(), now);
    }
}

static void play(unsigned events, bool out_of_memory) {
    hf_time now = AT(0);
    start();
    for (unsigned i = 0; i < events && !check_failed; i++) {
        memerr_fail(out_of_memory && chance(4) == 0 ? chance(5) + 1 : 0);
        one_event(now);
        memerr_fail(0);
        tick(now);
        check_holds(now);
        rig_hush();
        now += (hf_time)chance(300) * HF_MS;
        pass(now, now);
        check_holds(now);
    }
    close_rig(now);
    pass(now, now + 120 * HF_SECOND), CHECK_EQ_INT(holds_left(), 0);
    rig_end(now + 120 * HF_SECOND);
}

static void play_all(uint64_t first, uint64_t end, bool out_of_memory) {
    for (uint64_t seed = first; seed < end && !check_failed; seed++) {
        dice_state = seed;
        play(150, out_of_memory);
    }
}

TEST(a_quorum_hold_never_outlives_its_majority_whatever_the_order_of_events) {
    play_all(1, 300, false);
}

TEST(a_quorum_hold_never_outlives_its_majority_even_when_allocations_fail) {
    for (dice_state = 1000; dice_state < 1300 && !check_failed;) {
        uint64_t seed = dice_state;
        play(150, true);
        dice_state = seed + 1;
    }
}

/* ---- out of memory ---- */

static bool acquire_and_release(void *unused) {
    (void)unused;
    start();
    bool open = quorum_of(&rig.client) && quorum_of(&rig.client)->count == COUNT;
    hf_op *op = open ? begin_quorum(HF_OP_ACQUIRE, 0, AT(0)) : NULL;
    for (int i = 0; i < COUNT && op; i++) {
        if (link_at(i, CALLS)->first_reply != link_at(i, CALLS)->next_reply)
            answer(i, yes(40 + (unsigned)i), AT(1));
    }
    if (op) pass(AT(1), AT(1));
    for (int i = 0; i < COUNT && op; i++) {
        if (link_at(i, CALLS)->first_reply != link_at(i, CALLS)->next_reply)
            answer(i, ":1\r\n", AT(2));
    }
    if (op) pass(AT(2), AT(4000));
    bool good = op && hf_op_is_done(op) && hf_op_code(op) == HF_OK;
    if (op && !hf_op_is_done(op)) check_fail(__FILE__, __LINE__, "the acquire does not end");
    if (op) hf_op_end(op, AT(4000));
    rig_end(AT(4000));
    return good;
}

TEST(a_quorum_acquire_and_release_survive_each_failed_allocation) {
    CHECK(memerr_until_success(acquire_and_release, NULL, 2000) > 20);
}

TEST(a_quorum_acquire_waits_out_a_servers_restart_guard_only_if_that_server_is_decisive) {
    CASES(int yeses; const char *outcome) = {{2, "under way"}, {1, "no_quorum"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start_with(GUARD);
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 100 * HF_SECOND, AT(0));
        for (int j = 0; j < COUNT; j++) log_in(j, "r1", j == 0 ? "" : "r1", AT(0));
        answers(0, 1 + cases[i].yeses, yes(7), AT(1));
        CHECK_ANSWERS(op, 1 + cases[i].yeses, COUNT, "-ERR no\r\n", AT(1), cases[i].outcome);
    }
}

TEST(a_server_that_does_not_reply_is_not_reported_with_a_refusal_from_an_earlier_outage) {
    rig.down[0] = "refused";
    for (int ms = 0; ms <= 600; ms += 200) {
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(ms));
        CHECK_ANSWERS_END(op, 1, COUNT, yes(7), AT(ms), "ok");
        op = begin_quorum(HF_OP_RELEASE, 0, AT(ms));
        CHECK_ANSWERS_END(op, 1, COUNT, ":1\r\n", AT(ms), "ok");
    }
    rig.down[0] = NULL;
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(2000));
    CHECK_EQ_INT(link_at(0, CALLS)->state, HF_SESSION_READY);
    CHECK_STR(link_at(0, CALLS)->reason, "refused"); /* it stands until the server has served */
    answers(1, 3, yes(7), AT(2001));
    answers(3, COUNT, busy(20000, 0, 0), AT(2001));
    CHECK_PASS(op, AT(2001), AT(5000), "busy");
    CHECK_CONTAINS(message_of(op), "s1 no reply in time");
}

TEST(a_quorum_acquire_proposes_a_token_only_with_fencing_on) {
    EACH_NUMBER (fenced, 2) {
        quorum_of(&rig.client)->clocks_known = true;
        hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
        if (!fenced) spec.token_ttl_ms = 0;
        begin_spec(&spec, AT(0));
        CHECK_EQ_INT(strstr(output_by(0), printed(" %llu", (unsigned long long)(AT(2) / 1000))) !=
                         NULL,
                     fenced);
    }
}

TEST(a_quorum_release_stops_awaiting_late_replies_for_its_own_hold_only) {
    static hf_names other;
    hold_by(3, AT(0));
    if (!hf_names_make(&other, hf_slice_of("j"))) abort();
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(1), spec.names = &other);
    CHECK_ANSWERS(op, 0, 3, yes(78), AT(2), "ok");
    hf_hold *hold = watch(hold_in(op));
    hf_op_end(op, AT(2)), CHECK(hf_quorum_awaits_reply(quorum_of(&rig.client), hold, 3));
    hf_op *release = begin_quorum(HF_OP_RELEASE, 0, AT(3));
    CHECK(!hf_quorum_awaits_reply(quorum_of(&rig.client), hold_in(release), 3));
    CHECK(hf_quorum_awaits_reply(quorum_of(&rig.client), hold, 3));
    CHECK(hf_quorum_awaits_reply(quorum_of(&rig.client), hold, 4));
    rig_end(AT(4));
    hf_names_free(&other);
}

TEST(each_renewal_tries_to_restore_a_quorum_hold_on_a_server_that_lacks_it) {
    const bool none[COUNT] = {false};
    hold_by(3, AT(0));
    answers(3, COUNT, "-OOM full\r\n", AT(1));
    rig_hush();
    for (int ms = 10100; ms < 41000; ms += 10100) {
        pass(AT(ms - 10100), AT(ms));
        renew_all(AT(ms), none);
        for (int i = 3; i < COUNT; i++) CHECK_CONTAINS(output_by(i), "EVALSHA acquire");
        answers(3, COUNT, "-OOM full\r\n", AT(ms));
        answers(3, COUNT, ":1\r\n", AT(ms)); /* what was in doubt is undone */
    }
}

/* Three have answered, but not alike; the others' connections were quiet. */
TEST(a_quorum_acquire_waits_for_servers_whose_idle_connections_turn_out_to_be_dead) {
    hold_by(5, AT(0));
    hf_op *release = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    answers(0, COUNT, ":1\r\n", AT(2));
    hf_op_end(release, AT(2));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(20000));
    answers(0, 2, yes(90), AT(20001));
    answer(2, "-ERR no\r\n", AT(20001));
    pass(AT(20001), AT(20450)); /* both are asked again */
    CHECK_ANSWERS(op, 3, COUNT, yes(90), AT(20450), "ok");
}

TEST(the_callers_task_and_the_renewers_each_add_a_late_grant_to_its_quorum_hold) {
    EACH_NUMBER (renewer, 2) {
        hold_by(3, AT(0)), CHECK(calls_next_tick() > AT(100));
        feed(link_at(4, CALLS), yes(5), AT(100)), CHECK_EQ_U64(calls_next_tick(), 0);
        if (renewer) hf_client_tick_renewer(&rig.client, AT(100));
        else hf_client_tick_calls(&rig.client, AT(100));
        CHECK_EQ_INT(parts_held(), 4);
    }
}

TEST(a_quorum_acquire_that_has_no_memory_for_its_hold_fails_as_no_memory) {
    bool reported = false;
    for (unsigned long nth = 1; nth < 20 && !reported; nth++) {
        start();
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
        answers(0, MAJORITY - 1, yes(77), AT(1));
        feed(link_at(MAJORITY - 1, CALLS), yes(77), AT(1));
        memerr_fail(nth);
        hf_client_tick_calls(&rig.client, AT(1));
        memerr_fail(0);
        reported = hf_op_is_done(op) && hf_op_code(op) == HF_NO_MEMORY;
        if (hf_op_is_done(op)) CHECK(hf_op_code(op) != HF_LOST);
    }
    CHECK(reported);
}

TEST(a_quorum_can_choose_the_token_that_its_first_server_drew) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    rig_hush();
    GRANT_TOKENS(AT(1), 60, 50);
    CHECK_ANSWERS(op, 2, 3, yes(40), AT(1), "under way");
    CHECK_CONTAINS(output_by(1), "redisson_lock_token:{k} 60 1000");
    CHECK_ANSWERS(op, 1, 3, ":1\r\n", AT(2), "ok");
    CHECK_EQ_U64(token_of(hold_of()), 60);
}

/* The renewers' connections have met another run of three servers. No other process can release the
 * hold of a single owner, so a renewal there is as good as any. */
TEST(only_a_single_owners_existing_hold_counts_on_a_recently_restarted_server) {
    CASES(bool shared; const char *run_id; bool run_id_stored;
          int state) = {{true, "r1", false, HF_HOLD_HELD}, {true, "r2", true, HF_HOLD_HELD},
                        {true, "r2", false, HF_HOLD_LOST}, {true, "r", false, HF_HOLD_LOST},
                        {true, "", false, HF_HOLD_HELD},   {false, "r2", false, HF_HOLD_HELD}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start_with(GUARD);
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.shared = cases[i].shared);
        log_in_all("r1", "r1", AT(0));
        CHECK_ANSWERS_END(op, 0, COUNT, yes(7), AT(1), "ok");
        hf_hold *hold = hold_of();
        for (int j = 0; j < MAJORITY; j++) {
            hf_session *renewer = link_at(j, RENEWER);
            snprintf(renewer->run_id, sizeof renewer->run_id, "%s", cases[i].run_id);
            renewer->run_id_stored = cases[i].run_id_stored;
            renewer->known_since = AT(1);
        }
        hf_quorum_refresh(&rig.client, hold, AT(2));
        CHECK_OR((int)hold_state(hold) == cases[i].state, "case %zu", i);
    }
}

TEST(a_quorum_call_evaluates_each_servers_reply_as_soon_as_it_arrives) {
    EACH_NUMBER (i, COUNT) {
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
        CHECK(hf_op_next_tick(op) > AT(1));
        feed(link_at(i, CALLS), yes(7), AT(1)), CHECK_EQ_U64(hf_op_next_tick(op), 0);
    }
    for (int i = 0; i < 2; i++) { /* also that of a token that is written back */
        start();
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
        for (int j = 0; j < MAJORITY; j++) answer(j, yes(50 + (unsigned)j), AT(1));
        CHECK_EQ_U64(hf_op_next_tick(op), AT(3001));
        feed(link_at(i, CALLS), ":1\r\n", AT(2)), CHECK_EQ_U64(hf_op_next_tick(op), 0);
    }
}

TEST(a_grant_without_a_server_time_leaves_the_servers_clock_unknown_to_a_quorum) {
    hold_by(5, AT(0)), CHECK(!quorum_of(&rig.client)->clocks_known);
}

TEST(a_late_grant_for_a_lost_quorum_hold_is_undone) {
    hold_by(3, AT(0));
    lose_hold(hold_of(), HF_LOST_TAKEN);
    answer(4, yes(7), AT(1)), CHECK_EQ_INT(part_state(4), CLEANING_UP);
    CHECK_EQ_INT(state_of(), HF_HOLD_LOST);
}

TEST(a_late_grant_is_added_to_a_quorum_hold_before_it_is_checked_for_a_loss) {
    hold_by(3, AT(0));
    hf_hold *hold = hold_of();
    feed(link_at(3, CALLS), yes(7), AT(1));
    hf_client_lose(member(0), member_holds_of(hold)[0], HF_LOST_TAKEN);
    hf_client_tick_renewer(&rig.client, AT(1)), CHECK(is_held(hold)), CHECK_EQ_INT(parts_held(), 3);
}

TEST(a_quorum_waiter_pauses_longer_if_its_attempts_take_longer) {
    hf_time longest = 0;
    EACH_NUMBER (i, 40) {
        set_random(&rig.client, 0x9e3779b97f4a7c15u * (uint64_t)(i + 1));
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, HF_NEVER, AT(0));
        for (int j = 0; j < COUNT; j++) feed(link_at(j, CALLS), busy(20000, 0, 0), AT(40));
        hf_client_tick_calls(&rig.client, AT(40));
        CHECK_EQ_INT(round_of(op)->state, HF_ROUND_PAUSING);
        hf_time pause = hf_op_next_tick(op) - AT(40);
        CHECK(pause <= 101 * HF_MS); /* 20 ms, and twice as long as the round took */
        longest = hf_time_max(longest, pause);
    }
    CHECK(longest > 80 * HF_MS);
}

CHECK_MAIN
