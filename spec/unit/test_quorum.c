#include "drive.h"
#include "lease.h"
#include "quorum_internal.h"

#define COUNT 5
#define MAJORITY 3

#define CALLS HF_LINK_CALLS
#define KEEPER HF_LINK_KEEPER

static struct rig rig;
static hf_server servers[COUNT];

/* ---- five servers ---- */

static hf_client *member(int i) {
    return rig.client.quorum->members[i];
}

static hf_session *link_at(int i, hf_link link) {
    return &member(i)->first.links[link];
}

static bool is_away[COUNT];

static void serve(hf_time now) {
    for (int i = 0; i < COUNT * HF_LINKS; i++) {
        hf_session *session = hf_client_link(&rig.client, (size_t)i);
        if (hf_session_wants(session, now) == HF_WANT_CLOSE) hf_session_closed(session, "not needed", now);
        if (hf_session_wants(session, now) != HF_WANT_OPEN) continue;
        hf_session_opening(session, now);
        if (is_away[i / HF_LINKS]) hf_session_closed(session, "refused", now);
        else hf_session_opened(session, now);
    }
}

static void tick(hf_time now) {
    hf_client_tick(&rig.client, now);
    serve(now);
    hf_client_tick(&rig.client, now);
}

/* Lets time pass until `until`, waking only when the client asks for it. */
static void pass(hf_time now, hf_time until) {
    int wakes = 0;
    tick(now);
    for (hf_time at; (at = hf_client_deadline(&rig.client)) <= until && wakes < 100000; wakes++) {
        now = hf_time_max(now, at);
        tick(now);
    }
    tick(until);
    if (wakes == 100000) check_fail(__FILE__, __LINE__, "does not come to rest");
}

static void start_with(hf_time restart_guard) {
    hf_client_config config = rig_config();
    for (int i = 0; i < COUNT; i++) {
        servers[i] = (hf_server){.host = "h", .port = (uint16_t)(i + 1)};
        snprintf(servers[i].label, sizeof servers[i].label, "s%d", i + 1);
        is_away[i] = false;
    }
    config.mode = HF_MODE_QUORUM;
    config.servers = servers;
    config.server_count = COUNT;
    config.restart_guard = restart_guard;
    rig_begin_with(&rig, &config);
}

static void start(void) {
    start_with(0);
}

static void finish(hf_time now) {
    rig_end(&rig, now);
}

static hf_op *begin_quorum(hf_op_kind kind, hf_time wait, hf_time now) {
    hf_op_spec spec = spec_of(&rig, kind);
    spec.wait = wait;
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    serve(now);
    tick(now);
    return op;
}

/* The server's reply, or more than one, over the callers' link. */
static void answer(int i, const char *text, hf_time now) {
    hear(link_at(i, CALLS), text, now);
    tick(now);
}

static const char *yes(unsigned long long token) {
    static char text[64];
    snprintf(text, sizeof text, "*4\r\n:1\r\n:%llu\r\n:0\r\n:0\r\n", token);
    return text;
}

static const char *said_by(int i) {
    return said(link_at(i, CALLS));
}

static void hush(void) {
    for (int i = 0; i < COUNT * HF_LINKS; i++) said(hf_client_link(&rig.client, (size_t)i));
}

static size_t parts_held(void) {
    size_t held = 0;
    const hf_hold *hold = hold_of(&rig);
    for (size_t i = 0; hold && i < hold->part_count; i++)
        held += hold->parts[i] && hold->parts[i]->in_table && hold->parts[i]->state == HF_HOLD_HELD;
    return held;
}

/* Held, with yeses of the first `count` servers; the others have not answered. */
static void hold_by(int count, hf_time now) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, now);
    for (int i = 0; i < count; i++) answer(i, yes(77), now);
    hf_op_end(op, now);
    hush();
}

/* What the member has for the key: a state, -1: nothing. */
static int part_state(int i) {
    const hf_hold *part = hf_holds_find(&member(i)->holds, HF_LAYOUT_LOCK, hf_slice_of("k"), hf_slice_of("me"));
    return part ? (int)part->state : -1;
}

#define CHECK_SAYS(text, part) CHECK_OR(strstr(text, part), "\"%s\" does not say \"%s\"", text, part)

/* ---- decisions ---- */

TEST(all_are_asked_at_once_and_a_majority_decides) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < COUNT; i++) CHECK_SAYS(said_by(i), "EVALSHA acquire");
    answer(0, yes(7), AT(1));
    answer(3, yes(7), AT(1));
    CHECK_OUTCOME(op, "under way");
    answer(4, yes(7), AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(parts_held(), 3);
    CHECK_EQ_U64(hold_of(&rig)->token, 7);
    hf_op_end(op, AT(2));
    finish(AT(3));
}

TEST(the_end_of_a_hold_is_that_of_the_majority) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < MAJORITY; i++) answer(i, yes(7), AT(20));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hold_of(&rig)->valid_until, hf_lease_end(AT(0), 30 * HF_SECOND));
    hf_op_end(op, AT(20));
    finish(AT(21));
}

TEST(it_fails_as_soon_as_no_majority_can_be_had) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < MAJORITY; i++) {
        CHECK_OUTCOME(op, "under way");
        answer(i, busy(20000, 0, 0), AT(1));
    }
    CHECK_OUTCOME(op, "busy");
    CHECK_SAYS(op->failure.text, "0 of 5 taken, 2 not heard yet: s1 busy, s2 busy, s3 busy");
    CHECK_EQ_INT(state_of(&rig), -1);
    hf_op_end(op, AT(1));
    finish(AT(2));
}

TEST(servers_that_are_away_count_at_once) {
    start();
    is_away[0] = is_away[1] = is_away[2] = true;
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 5 * HF_SECOND, AT(0));
    CHECK_OUTCOME(op, "no_quorum"); /* waiting is for those that were there from the beginning */
    CHECK_SAYS(op->failure.text, "s1 refused, s2 refused, s3 refused");
    hf_op_end(op, AT(0));
    finish(AT(1));
}

TEST(servers_that_refused_a_moment_ago_are_spared_while_the_others_suffice) {
    start();
    is_away[0] = is_away[1] = true;
    for (int ms = 0; ms < 200; ms += 50) {
        hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(ms));
        for (int i = 2; i < COUNT; i++) answer(i, yes(7), AT(ms));
        CHECK_OUTCOME(op, "ok");
        hf_op_end(op, AT(ms));
        op = begin_quorum(HF_OP_RELEASE, 0, AT(ms));
        for (int i = 2; i < COUNT; i++) answer(i, ":1\r\n", AT(ms));
        CHECK_OUTCOME(op, "ok");
        hf_op_end(op, AT(ms));
        hush();
        CHECK_EQ_INT((link_at(0, CALLS)->opened_at - AT(0)) / HF_MS, ms < 100 ? 0 : 100);
    }
    is_away[0] = is_away[1] = false;
    for (int i = 2; i < 4; i++) { /* now they are needed */
        is_away[i] = true;
        hf_session_closed(link_at(i, CALLS), "gone", AT(160));
    }
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(161));
    for (int i = 0; i < 2; i++) answer(i, yes(7), AT(161));
    answer(4, yes(7), AT(161));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(161));
    finish(AT(162));
}

TEST(the_server_on_which_it_hangs_is_not_waited_for_long) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answer(0, yes(7), AT(1));
    answer(1, yes(7), AT(1));
    pass(AT(1), AT(2500)); /* no majority has answered: all of the command's time is given */
    CHECK_OUTCOME(op, "under way");
    answer(2, busy(20000, 0, 0), AT(2500));
    answer(3, busy(20000, 0, 0), AT(2500));
    CHECK_OUTCOME(op, "under way");
    pass(AT(2500), AT(3000));
    CHECK_OUTCOME(op, "busy");
    CHECK_SAYS(op->failure.text, "s5 no reply in time");
    hf_op_end(op, AT(3000));
    finish(AT(3000));
}

TEST(a_fast_majority_without_a_decision_hurries) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < 2; i++) answer(i, yes(7), AT(1));
    for (int i = 2; i < 4; i++) answer(i, busy(20000, 0, 0), AT(1));
    CHECK(op->ballot != NULL);
    pass(AT(1), AT(600));
    CHECK_OUTCOME(op, "busy");
    hf_op_end(op, AT(600));
    finish(AT(600));
}

TEST(a_minority_is_given_back) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answer(0, yes(7), AT(1));
    answer(1, yes(7), AT(1));
    hush();
    for (int i = 2; i < COUNT; i++) answer(i, busy(20000, 0, 0), AT(1));
    CHECK_OUTCOME(op, "busy");
    hf_op_end(op, AT(1));
    tick(AT(1));
    tick(AT(1));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ_INT(part_state(i), HF_HOLD_LEAVING);
        CHECK_SAYS(said(link_at(i, KEEPER)), "EVALSHA leave");
    }
    for (int i = 2; i < COUNT; i++) CHECK_EQ_INT(part_state(i), -1);
    finish(AT(2));
}

TEST(who_waits_tries_again_after_a_random_pause) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 5 * HF_SECOND, AT(0));
    for (int i = 0; i < COUNT; i++) answer(i, busy(20000, 0, 0), AT(1));
    CHECK_OUTCOME(op, "under way");
    hush();
    hf_time again = hf_op_deadline(op);
    CHECK(again > AT(1) && again <= AT(1 + 1 + 200));
    pass(AT(1), again);
    for (int i = 0; i < COUNT; i++) answer(i, yes(9), again);
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, again);
    finish(again);
}

TEST(a_wait_ends_on_time) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 50 * HF_MS, AT(0));
    for (int i = 0; i < COUNT; i++) answer(i, busy(20000, 0, 0), AT(49));
    pass(AT(49), AT(51));
    if (!op->done) {
        for (int i = 0; i < COUNT; i++) answer(i, busy(20000, 0, 0), AT(51));
    }
    CHECK_OUTCOME(op, "busy");
    hf_op_end(op, AT(51));
    finish(AT(52));
}

TEST(an_interrupted_wait_ends_at_once) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, HF_NEVER, AT(0));
    for (int i = 0; i < COUNT; i++) answer(i, busy(20000, 0, 0), AT(1));
    hf_op_interrupt(op, AT(2));
    CHECK_OUTCOME(op, "interrupted");
    hf_op_end(op, AT(2));
    finish(AT(3));
}

/* ---- stragglers ---- */

TEST(a_late_yes_becomes_a_part) {
    start();
    hold_by(3, AT(0));
    CHECK_EQ_INT(parts_held(), 3);
    answer(4, yes(5), AT(100));
    CHECK_EQ_INT(parts_held(), 4);
    CHECK_EQ_U64(hold_of(&rig)->token, 77);
    CHECK(!hf_quorum_is_quiet(rig.client.quorum));
    answer(3, busy(20000, 0, 0), AT(200));
    CHECK_EQ_INT(parts_held(), 4);
    CHECK(hf_quorum_is_quiet(rig.client.quorum));
    finish(AT(300));
}

TEST(a_yes_that_comes_after_the_release_is_left) {
    start();
    hold_by(3, AT(0));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(10));
    for (int i = 0; i < MAJORITY; i++) answer(i, ":1\r\n", AT(11));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(11));
    CHECK_EQ_INT(state_of(&rig), -1);
    for (int i = 3; i < COUNT; i++) CHECK_EQ_INT(part_state(i), HF_HOLD_LEAVING);
    pass(AT(11), AT(12));
    answer(3, yes(78), AT(12)); /* the acquire's own answer, which nobody waits for */
    CHECK_EQ_INT(part_state(3), HF_HOLD_LEAVING);
    CHECK_EQ_INT(state_of(&rig), -1);
    finish(AT(13));
}

TEST(a_yes_that_was_not_counted_before_the_end_is_left) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, HF_SECOND, AT(0));
    hear(link_at(2, CALLS), yes(7), AT(1));
    CHECK_EQ_INT(part_state(2), HF_HOLD_HELD);
    hf_op_end(op, AT(1));
    CHECK_EQ_INT(part_state(2), HF_HOLD_LEAVING);
    finish(AT(2));
}

TEST(a_lost_hold_that_is_acquired_anew_leaves_its_parts) {
    start();
    hold_by(5, AT(0));
    for (int i = 0; i < 3; i++) hf_client_lose(member(i), hold_of(&rig)->parts[i], HF_LOST_DELETED);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(10));
    for (int i = 0; i < MAJORITY; i++) answer(i, busy(20000, 0, 0), AT(11));
    CHECK_OUTCOME(op, "busy");
    hf_op_end(op, AT(11));
    for (int i = 3; i < COUNT; i++) CHECK_EQ_INT(part_state(i), HF_HOLD_LEAVING);
    finish(AT(12));
}

TEST(a_record_needs_a_majority_that_has_the_lock) {
    start();
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.layout = HF_LAYOUT_GUARD;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
    serve(AT(0));
    for (int i = 0; i < MAJORITY; i++) answer(i, yes(77), AT(1));
    hf_op_end(op, AT(1));
    spec.kind = HF_OP_COMPLETE;
    spec.keep = 5 * HF_SECOND;
    op = hf_client_begin(&rig.client, &spec, AT(10));
    serve(AT(10));
    answer(0, ":1\r\n", AT(11));
    CHECK_OUTCOME(op, "under way");
    for (int i = 1; i < MAJORITY; i++) answer(i, ":1\r\n", AT(12));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(12));
    finish(AT(13));
}

TEST(a_release_is_done_with_a_majority_and_goes_on_with_the_rest) {
    start();
    hold_by(5, AT(0));
    tick(AT(1));
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, AT(10));
    for (int i = 0; i < MAJORITY; i++) {
        CHECK_OUTCOME(op, "under way");
        answer(i, ":1\r\n", AT(11));
    }
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(11));
    CHECK_EQ_INT(part_state(0), -1);
    CHECK(part_state(3) != -1 && part_state(4) != -1);
    finish(AT(12));
}

/* ---- tokens ---- */

TEST(the_token_is_the_majority_th_smallest_and_is_raised_where_it_is_not_known) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    hush();
    answer(0, yes(50), AT(1));
    answer(1, yes(40), AT(1));
    answer(2, yes(60), AT(1));
    CHECK_OUTCOME(op, "under way");
    CHECK_EQ_U64(op->ballot ? 60 : 0, 60);
    CHECK_SAYS(said_by(0), "redisson_lock_token:{k} 60 1000");
    CHECK_SAYS(said_by(1), "redisson_lock_token:{k} 60 1000");
    CHECK_STR(said_by(2), "");
    answer(0, ":1\r\n", AT(2));
    CHECK_OUTCOME(op, "under way");
    answer(1, ":1\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hold_of(&rig)->token, 60);
    hf_op_end(op, AT(2));
    finish(AT(3));
}

TEST(a_late_yes_may_know_the_token) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answer(0, yes(50), AT(1));
    answer(1, yes(60), AT(1));
    answer(2, yes(60), AT(1));
    CHECK_OUTCOME(op, "under way");
    answer(3, yes(61), AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hold_of(&rig)->token, 60);
    CHECK_EQ_INT(parts_held(), 4);
    hf_op_end(op, AT(2));
    finish(AT(3));
}

TEST(tokens_that_cannot_be_raised_are_no_quorum) {
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    answer(0, yes(50), AT(1));
    answer(1, yes(40), AT(1));
    answer(2, yes(60), AT(1));
    pass(AT(1), AT(4000));
    CHECK_OUTCOME(op, "no_quorum");
    CHECK_EQ_INT(state_of(&rig), -1);
    hf_op_end(op, AT(4000));
    finish(AT(4000));
}

static hf_op *begin_short_acquire(hf_time now) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.lease = HF_SECOND;
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    serve(now);
    hush();
    return op;
}

/* Since the yeses of the first two have ended, somebody may have had 10 from them and the fourth. */
TEST(an_ended_yes_does_not_make_the_token) {
    start();
    hf_op *op = begin_short_acquire(AT(0));
    answer(0, yes(5), AT(1));
    answer(1, yes(6), AT(1));
    answer(2, yes(8), AT(900));
    hush();
    for (int i = 3; i < COUNT; i++) hear(link_at(i, CALLS), yes(8 + (unsigned)i), AT(980));
    hf_holds_lose(&member(0)->holds, member(0)->holds.heap[0], HF_LOST_EXPIRED);
    hf_holds_lose(&member(1)->holds, member(1)->holds.heap[0], HF_LOST_EXPIRED);
    tick(AT(980));
    CHECK_OUTCOME(op, "under way");
    CHECK_SAYS(said_by(2), "redisson_lock_token:{k} 12 1000");
    answer(2, ":1\r\n", AT(981));
    CHECK_OUTCOME(op, "under way");
    answer(3, ":1\r\n", AT(981));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hold_of(&rig)->token, 12);
    hf_op_end(op, AT(981));
    finish(AT(982));
}

TEST(yeses_that_have_ended_make_no_hold) {
    start();
    hf_op *op = begin_short_acquire(AT(0));
    answer(0, yes(5), AT(1));
    answer(1, yes(6), AT(1));
    for (int i = 0; i < 2; i++) hf_holds_lose(&member(i)->holds, member(i)->holds.heap[0], HF_LOST_EXPIRED);
    answer(2, yes(11), AT(900));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(state_of(&rig), -1);
    hf_op_end(op, AT(900));
    finish(AT(901));
}

TEST(a_token_is_proposed_ahead_of_the_clocks_it_has_seen) {
    char text[96];
    start();
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    CHECK_EQ_U64(hf_quorum_propose(rig.client.quorum, AT(0)), 1);
    for (int i = 0; i < MAJORITY; i++) { /* clocks that are i seconds ahead of ours */
        snprintf(text, sizeof text, "*4\r\n:1\r\n:77\r\n:0\r\n:%llu\r\n",
                 (unsigned long long)(AT(0) / 1000 + (hf_time)i * 1000000));
        answer(i, text, AT(4));
    }
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(4));
    uint64_t proposal = hf_quorum_propose(rig.client.quorum, AT(100));
    CHECK(proposal > AT(2100) / 1000 && proposal < AT(2200) / 1000);
    finish(AT(100));
}

/* ---- servers that came back ---- */

static void log_in(int i, int uptime, hf_time now) {
    char info[64], text[128];
    snprintf(info, sizeof info, "# Server\r\nuptime_in_seconds:%d\r\n", uptime);
    snprintf(text, sizeof text, "$%zu\r\n%s\r\n", strlen(info), info);
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session *session = link_at(i, (hf_link)link);
        if (session->state == HF_SESSION_LOGIN) hear(session, text, now);
    }
    tick(now);
}

TEST(a_server_that_restarted_has_no_vote) {
    start_with(60 * HF_SECOND);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < COUNT; i++) log_in(i, i < 3 ? 10 : 1000, AT(0));
    for (int i = 0; i < COUNT; i++) answer(i, yes(7), AT(1));
    CHECK_OUTCOME(op, "no_quorum");
    CHECK_SAYS(op->failure.text, "s1 restarted a short time ago");
    hf_op_end(op, AT(1));
    tick(AT(1));
    for (int i = 0; i < COUNT; i++) CHECK_EQ_INT(part_state(i), HF_HOLD_LEAVING);
    finish(AT(2));
}

TEST(a_majority_of_old_servers_is_enough) {
    start_with(60 * HF_SECOND);
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(0));
    for (int i = 0; i < COUNT; i++) log_in(i, i < 2 ? 10 : 1000, AT(0));
    for (int i = 0; i < COUNT; i++) answer(i, yes(7), AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(parts_held(), 3);
    hf_op_end(op, AT(1));
    finish(AT(2));
}

/* What the keeper says of the parts is answered: renewals with yes. */
static void renew_all(hf_time now, const bool *refuses) {
    for (int i = 0; i < COUNT; i++) {
        const char *text = said(link_at(i, KEEPER));
        if (strstr(text, "EVALSHA renew")) hear(link_at(i, KEEPER), refuses[i] ? GONE : "*1\r\n:1\r\n", now);
    }
    tick(now);
}

TEST(a_missing_part_is_planted_again) {
    const bool refuses[COUNT] = {true, false, false, false, false};
    start();
    hold_by(5, AT(0));
    pass(AT(0), AT(10100));
    renew_all(AT(10100), refuses);
    CHECK_EQ_INT(parts_held(), 4);
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_HELD);
    hush();
    pass(AT(10100), AT(20300));
    CHECK_SAYS(said_by(0), "EVALSHA acquire");
    answer(0, yes(90), AT(20300));
    CHECK_EQ_INT(parts_held(), 5);
    CHECK_EQ_U64(hold_of(&rig)->token, 77);
    finish(AT(20301));
}

TEST(it_is_lost_with_the_part_that_breaks_the_majority) {
    const bool refuses[COUNT] = {true, true, true, false, false};
    start();
    hold_by(5, AT(0));
    pass(AT(0), AT(10100));
    hf_hold *hold = hold_of(&rig);
    hf_hold_ref(hold);
    renew_all(AT(10100), refuses);
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_INT(hold->reason, HF_LOST_DELETED);
    hf_hold_unref(hold);
    finish(AT(10200));
}

TEST(it_is_lost_at_the_end_of_the_majority_when_nobody_renews) {
    start();
    hold_by(5, AT(0));
    for (int i = 0; i < 3; i++) is_away[i] = true;
    for (int i = 0; i < 3; i++) hf_session_closed(link_at(i, KEEPER), "gone", AT(1));
    hf_hold *hold = hold_of(&rig);
    hf_hold_ref(hold);
    hf_time end = hold->valid_until;
    pass(AT(1), end - 1);
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    pass(end - 1, end + 1);
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_INT(hold->reason, HF_LOST_UNREACHABLE);
    hf_hold_unref(hold);
    finish(end + 2);
}

TEST(a_server_that_is_owed_a_leave_is_tried_at_once) {
    start();
    hold_by(5, AT(0));
    hf_time end = hold_of(&rig)->valid_until;
    for (int i = 0; i < 3; i++) is_away[i] = true;
    for (int i = 0; i < 3 * HF_LINKS; i++) {
        hf_session *session = hf_client_link(&rig.client, (size_t)i);
        if (session->state != HF_SESSION_CLOSED) hf_session_closed(session, "gone", AT(1));
    }
    pass(AT(1), end);
    hf_op *op = begin_quorum(HF_OP_RELEASE, 0, end);
    CHECK_OUTCOME(op, "lost");
    hf_op_end(op, end);
    hf_time now = end + 5 * HF_SECOND;
    pass(end, now); /* by now it is tried once in a second */
    is_away[0] = false;
    hush();
    hf_session *keeper = link_at(0, KEEPER);
    now = keeper->opened_at + 150 * HF_MS;
    CHECK_EQ_INT(keeper->state, HF_SESSION_CLOSED);
    CHECK(keeper->retry_at > now);
    op = begin_quorum(HF_OP_ACQUIRE, 0, now);
    CHECK_EQ_INT(keeper->state, HF_SESSION_READY);
    CHECK_SAYS(said(keeper), "EVALSHA leave");
    hf_op_end(op, now);
    finish(now);
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
    for (size_t i = 0; i < rig.client.holds.count; i++) {
        const hf_hold *hold = rig.client.holds.heap[i];
        if (hold->state != HF_HOLD_HELD || hold->valid_until <= now) continue;
        size_t valid = 0;
        for (size_t j = 0; j < hold->part_count; j++) {
            const hf_hold *part = hold->parts[j];
            valid += part && part->in_table && part->state == HF_HOLD_HELD && part->valid_until >= hold->valid_until;
        }
        if (valid < MAJORITY) check_fail(__FILE__, __LINE__, "valid by %zu parts alone", valid);
    }
}

/* hear() without an allocation of its own */
static void feed(hf_session *session, const char *text, hf_time now) {
    hf_session_feed(session, text, strlen(text), now);
}

static void one_event(hf_time now) {
    static const hf_op_kind kinds[] = {HF_OP_ACQUIRE, HF_OP_ACQUIRE, HF_OP_RELEASE, HF_OP_EXTEND,
                                       HF_OP_CHECK,   HF_OP_INFO,    HF_OP_FORCE,   HF_OP_TTL};
    int i = (int)chance(COUNT);
    hf_link link = chance(3) ? CALLS : KEEPER;
    switch (chance(12)) {
    case 0: {
        hf_op_kind kind = kinds[chance(8)];
        hf_op *op = begin_quorum(kind, chance(2) * HF_SECOND, now);
        if (op && chance(8) == 0) hf_op_interrupt(op, now);
        break;
    }
    case 1:
        if (link_at(i, link)->state != HF_SESSION_CLOSED) hf_session_closed(link_at(i, link), "lost", now);
        break;
    case 2: is_away[i] = !chance(3); break;
    case 3:
        if (rig.client.ops) hf_op_end(rig.client.ops, now);
        break;
    case 4:
        if (hold_of(&rig)) hf_client_abandon(&rig.client, hold_of(&rig), 1, now);
        break;
    default:
        if (link_at(i, link)->state == HF_SESSION_READY && link_at(i, link)->first_slot != link_at(i, link)->next_slot)
            feed(link_at(i, link), any_answer(), now);
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
        hush();
        now += (hf_time)chance(300) * HF_MS;
        pass(now, now);
        check_holds(now);
    }
    hf_client_close(&rig.client, now);
    pass(now, now + 120 * HF_SECOND);
    CHECK_EQ_INT(rig.client.holds.count, 0);
    finish(now + 120 * HF_SECOND);
}

TEST(any_order_of_events_keeps_the_majority) {
    for (dice_state = 1; dice_state < 300 && !check_failed;) {
        uint64_t seed = dice_state;
        play(150, false);
        dice_state = seed + 1;
    }
}

TEST(any_order_of_events_without_memory_keeps_the_majority) {
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
    bool open = rig.client.quorum && rig.client.quorum->count == COUNT;
    hf_op *op = open ? begin_quorum(HF_OP_ACQUIRE, 0, AT(0)) : NULL;
    for (int i = 0; i < COUNT && op; i++) {
        if (link_at(i, CALLS)->first_slot != link_at(i, CALLS)->next_slot) answer(i, yes(40 + (unsigned)i), AT(1));
    }
    if (op) pass(AT(1), AT(1));
    for (int i = 0; i < COUNT && op; i++) {
        if (link_at(i, CALLS)->first_slot != link_at(i, CALLS)->next_slot) answer(i, ":1\r\n", AT(2));
    }
    if (op) pass(AT(2), AT(4000));
    bool good = op && op->done && op->failure.code == HF_OK;
    if (op && !op->done) check_fail(__FILE__, __LINE__, "the acquire does not end");
    if (op) hf_op_end(op, AT(4000));
    finish(AT(4000));
    return good;
}

TEST(each_allocation_may_fail) {
    CHECK(memerr_until_success(acquire_and_release, NULL, 2000) > 20);
}

CHECK_MAIN
