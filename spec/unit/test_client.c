#include <time.h>

#include "op/events.h"
#include "op/operation.h"

#include "op/leave.h"
#include "rig.h"

RIG_BEGINS

TEST(an_idle_subscription_connection_is_pinged) {
    hf_client_config config = rig_config();
    config.grant_lease = 60 * HF_SECOND; /* the waiter asks again after that */
    rig_begin_with(&config);
    wait_in_queue(HF_NEVER, AT(0));
    hf_session *events = link_of(EVENTS);
    rig_tick(AT(150)); /* it begins to listen to Redisson's releases */
    output_of(events);
    CHECK_SENT_UNTIL(EVENTS, AT(151), AT(5001), "");
    CHECK_SENT_UNTIL(EVENTS, AT(5001), AT(5002), "PING");
    feed(events, "*2\r\n$4\r\npong\r\n$0\r\n\r\n", AT(5100));
    CHECK_SENT_UNTIL(EVENTS, AT(5100), AT(10100), "PING");
    CHECK_EQ_U64(events->opens, 1);
    rig_sleep(AT(10100), AT(10349)), CHECK_EQ_U64(events->opens, 1);
    rig_sleep(AT(10349), AT(10400)); /* no answer: a new one */
    CHECK_EQ_U64(events->opens, 2);
    CHECK_SENT(EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
}

TEST(idle_connections_are_pinged_after_another_one_to_their_server_got_no_replies) {
    hold_lock(AT(0));
    open_session(link_of(RENEWER), AT(0));
    begin(HF_OP_PING, AT(100));
    CHECK_SENT_UNTIL(RENEWER, AT(100), AT(1599), "");
    CHECK_SENT_UNTIL(RENEWER, AT(1599), AT(1600), "PING");
    CHECK_EQ_U64(link_of(CALLS)->opens, 2);
    rig_sleep(AT(1600), AT(1849)), CHECK_EQ_U64(link_of(RENEWER)->opens, 1);
    rig_sleep(AT(1849), AT(1850)), CHECK_EQ_INT(link_of(RENEWER)->state, HF_SESSION_CLOSED);
}

TEST(a_client_that_is_closing_gives_up_a_silent_connection_after_250_ms) {
    hold_lock(AT(0));
    open_session(link_of(RENEWER), AT(0));
    close_rig(AT(100));
    rig_tick(AT(100));
    rig_sleep(AT(100), AT(349)), CHECK_EQ_U64(link_of(RENEWER)->opens, 1);
    rig_sleep(AT(349), AT(400)), CHECK_EQ_U64(link_of(RENEWER)->opens, 2);
}

TEST(a_subscription_that_is_not_confirmed_is_retried_over_a_new_connection) {
    hf_op *op = begin_acquire(HF_NEVER, AT(0));
    feed_calls(busy(900000, 0, 0), AT(1)), CHECK(is_subscribing(op));
    for (int ms = 1; ms < 10000; ms += 10) {
        rig_sleep(AT(ms), AT(ms + 10));
        if (sent_over(CALLS)[0] != '\0') feed_calls(busy(900000, 0, 0), AT(ms + 10));
    }
    CHECK_EQ_U64(link_of(EVENTS)->opens, 2);
}

static hf_op *wait_as(const char *owner, hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.caller = hf_slice_of(owner), spec.wait = HF_NEVER);
    feed_calls(busy(20000, 0, 0), now);
    return op;
}

/* Each of them may have missed a release until then. */
TEST(all_waiters_of_a_channel_recheck_their_locks_when_its_subscription_starts_or_ends) {
    static const char *const kinds[] = {"psubscribe", "ssubscribe", "sunsubscribe", "smessage"};
    EACH_CASE (i, kinds) {
        hf_op *waiters[] = {wait_in_queue(HF_NEVER, AT(0)), wait_as("you", AT(10))};
        feed_message("1 turn 1 50", AT(20));
        feed_message("1 turn 2 50", AT(21));
        for (int j = 0; j < 2; j++) set_recheck(waiters[j], HF_NEVER);
        feed_event(kinds[i], "redisson_lock__channel:{k}", "1", AT(22));
        for (int j = 0; j < 2; j++) {
            CHECK(rechecks_at(waiters[j]) <= AT(22));
            CHECK_EQ_INT(listening_of(waiters[j]),
                         i == 1 ? HF_SUBSCRIPTION_CONFIRMED : HF_SUBSCRIPTION_REQUESTED);
        }
        feed_event(kinds[i], "redisson_lock__channel:{j}", "1", AT(23));
    }
}

/* Any user who may publish can send it. */
TEST(a_message_makes_a_waiter_leave_the_lock_to_other_libraries_for_at_most_a_second) {
    hf_op *op = wait_in_queue(HF_NEVER, AT(0));
    set_recheck(op, HF_NEVER);
    feed_message("1 turn 1 60000", AT(20)), CHECK_EQ_U64(hf_op_next_tick(op), AT(20 + 1001));
}

/* Another error does not mean that it is permitted now. */
TEST(a_pattern_subscription_that_was_denied_is_not_retried) {
    wait_in_queue(HF_NEVER, AT(0));
    feed(link_of(EVENTS), "-NOPERM no\r\n", AT(10)), CHECK(first_node(&rig.client)->pattern_denied);
    feed(link_of(EVENTS), "-ERR no\r\n", AT(11)), CHECK(first_node(&rig.client)->pattern_denied);
}

TEST(a_confirmed_subscription_is_shared_until_its_connection_is_lost) {
    hf_op *first = wait_in_queue(HF_NEVER, AT(0));
    hf_op *second = wait_as("you", AT(10));
    feed_message("1 turn 1 50", AT(20)),
        CHECK_EQ_INT(listening_of(first), HF_SUBSCRIPTION_REQUESTED);
    set_listening(first, HF_SUBSCRIPTION_CONFIRMED);
    feed_message("1 turn 2 50", AT(21)),
        CHECK_EQ_INT(listening_of(second), HF_SUBSCRIPTION_CONFIRMED);
    cut_link(EVENTS, "reset", AT(30));
    rig_tick(AT(100));
    feed_subscribed(AT(101)), CHECK_EQ_INT(listening_of(first), HF_SUBSCRIPTION_REQUESTED);
    CHECK_EQ_INT(listening_of(second), HF_SUBSCRIPTION_REQUESTED);
}

TEST(a_grant_message_gives_the_lock_to_the_waiter_that_it_names) {
    hf_op *first = wait_in_queue(HF_NEVER, AT(0));
    hf_op *second = wait_as("you", AT(10));
    CHECK_GRANTS(first, GRANT("2", "90"), AT(20), "under way");
    CHECK_OUTCOME(second, "ok");
    CHECK_EQ_U64(token_of(hold_in(second)), 90);
    CHECK_GRANTS(first, GRANT("1", "91"), AT(30), "ok");
}

TEST(a_waiter_ignores_malformed_messages) {
    static const char *const texts[] =
        LIST("", "1", "1 ", "1 grant", "1 grant ", "1 grant l", "1 grant l 9", "1 grant l 9 5",
             "1 grant l 9 5 88", "1 grant l 9 5 88 2000", "1 grant l 9 5 88 2000 ",
             "1 grant x 9 5 88 2000 k", "1 grant lock 9 5 88 2000 k", "1 grant  9 5 88 2000 k",
             "1 grant l x 5 88 2000 k", "1 grant l -1 5 88 2000 k", "1 grant l 9 5 x 2000 k",
             "1 grant l 9 5 88 x k", "1 GRANT l 9 5 88 2000 k",
             "2 grant l 1 5 88 2000 k", /* another format */
             "11 grant l 1 5 88 2000 k", "grant l 1 5 88 2000 k", "grant 1 88 2000 0 2 mek",
             "1 turn", "1 turn ", "1 turn 1", "1 turn 9 50", "1 turn 1 x", "2 turn 1 50",
             "turn 1 50", "1 turn 99999999999999999999 1", "1 recheck", "1 recheck ", "1 recheck x",
             "1 recheck 9", "2 recheck 1", "recheck 1", "1 look 1", "nonsense");
    hf_op *op = wait_in_queue(HF_NEVER, AT(0));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        feed_message(texts[i], AT(10));
        CHECK_OR(is_waiting(op) && hf_op_next_tick(op) > AT(10), "\"%s\"", texts[i]);
        CHECK_OR(holds_left() == 1, "\"%s\"", texts[i]);
    }
    feed(link_of(EVENTS),
         "*1\r\n$7\r\nmessage\r\n*0\r\n:1\r\n+x\r\n$-1\r\n*3\r\n:1\r\n:2\r\n:3\r\n", AT(11));
    feed(link_of(EVENTS), "*1\r\n$8\r\npmessage\r\n*1\r\n$10\r\npsubscribe\r\n", AT(11));
    CHECK(is_waiting(op));
}

/* ---- grants for waits that have ended ---- */

/* What makes the server forget the grant of this wait, which has an owner of its own. */
#define STRAY_LEAVE(kind, wait) ALL_KEYS OWNER(wait) " 2000 0 1" kind OWNER(wait) ":0 "

/* A client that is subscribed to its grants, because a caller waits. */
static void listen_to_grants(void) {
    rig_begin();
    wait_as("you", AT(0));
    feed_subscribed(AT(1));
    feed_calls(busy(20000, 0, 0), AT(1));
}

/* A wait for "k" that has ended. */
static void had_waited(uint64_t number, const hf_kind *kind) {
    hf_ended_waits_add(ended_of(&rig.client), number, kind, hf_slice_of("k"));
}

/* The owner of a lock that the client keeps has a number of its own kind. */
TEST(a_late_grant_to_a_client_that_keeps_locks_is_handed_to_the_next_waiter) {
    listen_to_grants();
    had_waited(7, &hf_kind_lock);
    feed_message("1 grant l 07 5 88 2000 k", AT(10));
    const hf_claim *claim = hf_holds_find_leaving_by_wait(holds_of(&rig.client), 7);
    CHECK(is_leaving(claim) && !hold_of_claim(claim));
    hf_slice owner = hf_claim_owner(claim);
    CHECK_MEM(owner.data, owner.size, DRIVE_UUID ":07", sizeof DRIVE_UUID ":07" - 1);
}

TEST(two_grants_to_waits_that_have_ended_are_each_handed_to_the_next_waiter) {
    listen_to_grants();
    had_waited(77, &hf_kind_lock);
    had_waited(78, &hf_kind_lock);
    feed_message("1 grant l 77 5 88 2000 k", AT(10));
    CHECK_SENT_AT(RENEWER, AT(10), "EVALSHA leave " STRAY_LEAVE("l", "77"));
    feed_message("1 grant l 78 6 89 2000 k", AT(11));
    CHECK_SENT_AT(RENEWER, AT(11), "EVALSHA leave " STRAY_LEAVE("l", "78"));
    feed_message("1 grant l 78 6 89 2000 k", AT(12)); /* received twice */
    CHECK_SENT_AT(RENEWER, AT(12), "");
    feed(link_of(RENEWER), ":1\r\n:1\r\n", AT(13)), CHECK_EQ_INT(holds_left(), 1);
}

TEST(a_grant_that_belongs_to_a_current_hold_is_not_handed_to_the_next_waiter) {
    CASES(int state; bool passed_on) = {{HF_HOLD_HELD, false},
                                        {HF_HOLD_RELEASING, false},
                                        {CLEANING_UP, false},
                                        {HF_HOLD_LOST, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        listen_to_grants();
        hf_hold *hold = watch(hold_lock(AT(2)));
        if (cases[i].state == CLEANING_UP)
            hf_holds_begin_leaving(holds_of(&rig.client), claim_of(hold));
        else set_hold_state(hold, (hf_hold_state)cases[i].state);
        if (is_lost(hold)) set_reason(hold, HF_LOST_TAKEN);
        set_in_flight(hold, cases[i].state != HF_HOLD_LOST), CHECK_EQ_U64(number_of(hold), 2);
        feed_message(GRANT("2", "88"), AT(10));
        rig_tick(AT(10)), CHECK_EQ_INT(hold_state(hold), cases[i].state);
        CHECK_EQ_INT(holds_left(), cases[i].passed_on ? 3 : 2);
        CHECK_SENT(RENEWER, cases[i].passed_on ? "EVALSHA leave " STRAY_LEAVE("l", "2") : "");
    }
}

TEST(a_client_ignores_a_grant_for_a_lock_that_it_never_waited_for) {
    static const char *const texts[] =
        LIST("1 grant l 78 5 88 2000 k", "1 grant l 77 5 88 2000 j", "1 grant l 77 5 88 2000 kk",
             "1 grant m 77 5 88 2000 k", "1 grant s 77 5 88 2000 k", "1 grant c 77 5 88 2000 k",
             "1 grant f 77 5 88 2000 k", "1 grant p 77 5 88 2000 k", "1 grants r 88 2000 1 77 5 k",
             "1 grant w 1101 5 88 2000 k", "1 grant l 0 5 88 2000 k",
             "1 grant l 2 5 88 2000 j", /* the number of a hold that was lost */
             "1 grant s 2 5 88 2000 k");
    listen_to_grants();
    had_waited(77, &hf_kind_lock);
    lose_hold(hold_lock(AT(2)), HF_LOST_TAKEN);
    rig_tick(AT(9));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        feed_message(texts[i], AT(10));
        rig_tick(AT(10));
        CHECK_OR(holds_left() == 2, "\"%s\"", texts[i]);
        CHECK_SENT(RENEWER, "");
    }
}

/* Renews, confirms and cleans up as a server would, and returns how many clean-ups came. */
static size_t answer_renewer(hf_time now) {
    size_t left = 0;
    const char *text = sent_over(RENEWER);
    for (const char *at = text; *at; at += *at == '\n') {
        bool leaves = strncmp(at, "EVALSHA leave", 13) == 0;
        feed(link_of(RENEWER), leaves ? ":0\r\n" : "*1\r\n:1\r\n", now);
        left += leaves;
        at += strcspn(at, "\n");
    }
    return left;
}

TEST(a_flood_of_forged_grants_takes_bounded_memory_and_work) {
    hf_hold *hold = hold_lock(AT(0));
    wait_as("you", AT(0));
    feed_subscribed(AT(1));
    feed_calls(busy(20000, 0, 0), AT(1));
    size_t most = 0, left = 0;
    for (int i = 0; i < 100000; i++) {
        had_waited(100 + (uint64_t)i, &hf_kind_lock);
        feed_message(printed("1 grant l %d 5 88 2000 k", 100 + i), AT(10 + i));
        if (holds_left() > most) most = holds_left();
        if (i % 1000 != 0) continue; /* the client does nothing else meanwhile */
        rig_tick(AT(10 + i));
        left += answer_renewer(AT(10 + i));
        CHECK(hf_hold_is_valid(hold, AT(10 + i)));
    }
    CHECK(most <= 2 + 64);
    CHECK(left > 64 && left <= 100 * 64);
}

TEST(several_grants_for_a_shared_owners_lost_hold_cause_a_single_clean_up) {
    listen_to_grants();
    hf_hold *hold = hold_lock(AT(2));
    set_shared(hold, true);
    set_granted(hold, true);
    hf_holds_set_wait(holds_of(&rig.client), claim_of(hold), 90);
    hf_holds_mark_lost(holds_of(&rig.client), hold, HF_LOST_EXPIRED);
    size_t before = hold_count(&rig.client);
    for (int i = 0; i < 3; i++) feed_message(GRANT("90", "88"), AT(10 + i));
    CHECK_EQ_INT(holds_left(), before + 1);
}

TEST(an_interrupt_ends_an_acquire_but_no_other_call) {
    hf_op *op = begin(HF_OP_PING, AT(0));
    hf_op_interrupt(op, AT(1)), CHECK_OUTCOME(op, "under way");
    CHECK_ANSWER(op, "+PONG\r\n", AT(2), "ok");
}

/* ---- any order of events ----
 *
 * Random operations, answers, messages, lost connections and times. Whatever comes, some things
 * hold: the deadline moves on, every hold is looked at in time, and every operation ends once the
 * server answers again. */

enum {
    OWNERS = 3,
    SHARED = 2,
    KEYS = 2,
    OPS = 8
}; /* SHARED: its text is that of other processes, too */

static uint64_t luck;
static hf_names key_names[KEYS];
static const hf_names *both_keys[KEYS];
static hf_time clock_now;
static char owner_names[OWNERS][16];

static int chance(int below) {
    return (int)hf_jitter(&luck, (uint64_t)below);
}

static void random_begin(void) {
    static const hf_op_kind kinds[] = {HF_OP_ACQUIRE,     HF_OP_ACQUIRE, HF_OP_ACQUIRE,
                                       HF_OP_RELEASE,     HF_OP_RELEASE, HF_OP_EXTEND,
                                       HF_OP_CHECK,       HF_OP_FORCE,   HF_OP_ACQUIRE_ALL,
                                       HF_OP_RELEASE_ALL, HF_OP_PING,    HF_OP_COMPLETE};
    static const hf_time waits[] = {0, 50 * HF_MS, 5 * HF_SECOND, HF_NEVER};
    static const hf_time leases[] = {20 * HF_MS, 500 * HF_MS, 3 * HF_SECOND, 30 * HF_SECOND};
    hf_op_kind kind = kinds[chance(sizeof kinds / sizeof *kinds)];
    bool several = kind == HF_OP_ACQUIRE_ALL || kind == HF_OP_RELEASE_ALL;
    int owner = chance(OWNERS);
    hf_op_spec spec = {.kind = kind,
                       .names = several || kind == HF_OP_PING ? NULL : &key_names[chance(KEYS)],
                       .batch = several ? both_keys : NULL,
                       .batch_count = several ? KEYS : 0,
                       .caller = hf_slice_of(owner_names[owner]),
                       .lease = leases[chance(4)],
                       .wait = waits[chance(4)],
                       .lock_kind = &hf_kind_lock,
                       .token_ttl_ms = (uint64_t)chance(2) * 1000,
                       .renewed = chance(2),
                       .shared = owner == SHARED,
                       .keep = (hf_time)chance(3) * HF_SECOND};
    if (kind == HF_OP_COMPLETE) spec.lock_kind = &hf_kind_guard;
    else if (!several && chance(4) == 0) spec.lock_kind = hf_kinds[1 + chance(2)];
    hf_client_begin(&rig.client, &spec, clock_now);
}

static hf_op *random_op(void) {
    int count = 0;
    for (hf_op *op = ops_of(&rig.client); op; op = next_op(op)) count++;
    if (count == 0) return NULL;
    hf_op *op = ops_of(&rig.client);
    for (int i = chance(count); i > 0; i--) op = next_op(op);
    return op;
}

/* An answer that the program may give. */
static const char *likely_answer(const hf_program *program) {
    static const char *const acquired[] =
        LIST(ACQUIRED, "*5\r\n:1\r\n:5\r\n:0\r\n:0\r\n:25\r\n", "*2\r\n:1\r\n:0\r\n",
             "*5\r\n:0\r\n:20\r\n:0\r\n:0\r\n$1\r\n5\r\n",
             "*5\r\n:0\r\n:30000\r\n:2\r\n:0\r\n$1\r\n5\r\n",
             "*5\r\n:0\r\n:30000\r\n:0\r\n:1\r\n$1\r\n6\r\n", "*2\r\n:2\r\n:2\r\n", GONE);
    static const char *const all[] = {"*3\r\n:1\r\n:5\r\n:6\r\n", "*3\r\n:1\r\n:5\r\n:6\r\n",
                                      "*3\r\n:0\r\n:1\r\n:100\r\n", "*2\r\n:-1\r\n:2\r\n"};
    static const char *const released[] = {":1\r\n", ":2\r\n", ":-1\r\n", ":3\r\n"};
    static const char *const released_all[] = {"*2\r\n:1\r\n:1\r\n", "*2\r\n:2\r\n:1\r\n",
                                               "*2\r\n:-1\r\n:-2\r\n"};
    static const char *const renewed[] = {"*2\r\n:1\r\n:1\r\n", "*2\r\n:1\r\n:1\r\n",
                                          "*2\r\n:-1\r\n:1\r\n"};
    static const char *const kept[] = {":1\r\n",  ":1\r\n",  ":1\r\n",
                                       ":-1\r\n", ":-2\r\n", ":3\r\n"};
    if (!program) return "+PONG\r\n";
    if (strstr(program->name, "acquire_all")) return all[chance(4)];
    if (strstr(program->name, "acquire") || strstr(program->name, "begin"))
        return acquired[chance(8)];
    if (strstr(program->name, "release_all")) return released_all[chance(3)];
    if (strstr(program->name, "release")) return released[chance(4)];
    if (strstr(program->name, "renew")) return renewed[chance(3)];
    return kept[chance(6)];
}

static const char *unlikely_answer(void) {
    static const char *const answers[] =
        LIST(":0\r\n", "*1\r\n:-3\r\n", "*2\r\n:2\r\n:1\r\n", "*2\r\n:2\r\n:3\r\n",
             "*5\r\n:0\r\n:-1\r\n:0\r\n:1\r\n$1\r\n7\r\n", TAKEN, "*1\r\n:-4\r\n",
             "*2\r\n:3\r\n$1\r\nr\r\n", "*1\r\n:4\r\n", "$-1\r\n", "+OK\r\n", "-NOSCRIPT\r\n",
             "-LOADING\r\n", "-BUSY x\r\n", "-NOPERM\r\n", "-OOM\r\n", "-WRONGTYPE\r\n",
             "-READONLY\r\n", "garbage\r\n");
    return answers[chance(sizeof answers / sizeof *answers)];
}

static void random_answer(hf_session *session) {
    if (session->first_reply == session->next_reply) return;
    const hf_request *request =
        session->replies[session->first_reply & (session->replies_capacity - 1)];
    bool likely = request && chance(8) > 0;
    feed(session, likely ? likely_answer(request->program) : unlikely_answer(), clock_now);
}

static void random_event(void) {
    char text[128];
    hf_session *events = link_of(EVENTS);
    if (events->state != HF_SESSION_READY) return;
    int wait = chance(6), key = chance(KEYS);
    switch (chance(8)) {
    case 6: snprintf(text, sizeof text, "1 wish 0%d", wait); break;
    case 7:
        snprintf(text, sizeof text, "1 grant %c 0%d %d %d-%d 2000 %s", "lm"[chance(2)], wait,
                 chance(3) ? 5 : 6, chance(3), chance(20), key ? "y" : "x");
        break;
    case 0: feed_subscribed(clock_now); return;
    case 1: snprintf(text, sizeof text, "1 turn %d %d", wait, chance(100)); break;
    case 2: snprintf(text, sizeof text, "1 recheck %d", wait); break;
    case 3: feed(events, "-NOPERM\r\n", clock_now); return;
    case 4:
        feed_event("psubscribe", key ? "redisson_lock__channel:{y}" : "redisson_lock__channel:{x}",
                   "2", clock_now);
        return;
    default:
        snprintf(text, sizeof text, "1 grant %c %d %d %d 2000 %s", "lmg"[chance(3)], wait,
                 chance(3) ? 5 : 6, chance(3), key ? "y" : "x");
    }
    feed_message(text, clock_now);
}

static void random_step(void) {
    hf_op *op = random_op();
    int count = 0;
    for (hf_op *other = ops_of(&rig.client); other; other = next_op(other)) count++;
    switch (chance(18)) {
    case 0:
    case 1:
        if (count < OPS) random_begin();
        break;
    case 2:
        if (op && (hf_op_is_done(op) || chance(4) == 0)) hf_op_end(op, clock_now);
        break;
    case 3:
        if (op && chance(3) == 0) hf_op_interrupt(op, clock_now);
        break;
    case 4:
        if (op && hold_in(op) && chance(8) == 0) abandon_hold(hold_in(op), 1, clock_now);
        break;
    case 5:
        if (chance(8) == 0)
            hf_session_closed(&first_node(&rig.client)->links[chance(HF_LINKS)], "reset",
                              clock_now);
        break;
    case 6: rig.refusing = chance(10) == 0; break;
    case 7: random_event(); break;
    case 8: clock_now += (hf_time)chance(20) * HF_MS; break;
    case 9:
        if (chance(4) == 0) clock_now += (hf_time)chance(4000) * HF_MS;
        break;
    case 10: hf_client_detect_losses(&rig.client, clock_now); break;
    default: random_answer(&first_node(&rig.client)->links[chance(2) ? CALLS : RENEWER]); break;
    }
}

static const char *broken_rule(void) {
    size_t waiting = kept_count(&rig.client);
    for (const hf_op *op = ops_of(&rig.client); op; op = next_op(op)) {
        waiting += needs_events(op);
        if (hf_op_is_done(op) && needs_events(op)) return "a done operation listens";
        if (hf_op_is_blocked(op) && !hf_op_is_done(op) && !hold_in(op) && !awaited_claim_in(op))
            return "blocked by nothing";
    }
    if (waiting != first_node(&rig.client)->events_users) return "the number of waiters is wrong";
    const hf_holds *holds = holds_of(&rig.client);
    for (size_t i = 0; i < holds->count; i++) {
        const hf_claim *claim = claim_in_heap(holds, i),
                       *parent = claim_in_heap(holds, i ? (i - 1) / 2 : 0);
        if (claim_wakes_at(parent) > claim_wakes_at(claim)) return "the heap is out of order";
        hf_time noticed_by = hf_time_max(claim_ends_at(claim), clock_now);
        bool late = claim_wakes_at(claim) > noticed_by;
        if (is_leaving(claim) && !claim_is_in_flight(claim) && late)
            return "the renewer would never handle it";
        const hf_hold *hold = hold_of_claim(claim);
        if (!hold) continue;
        if (is_held(hold) && late) return "a loss would be noticed late";
        if (is_held(hold) && count_of(hold) <= others_of(hold)) return "held but not counted";
        bool forgotten = is_held(hold) && is_renewed(hold) && !is_in_flight(hold) &&
                         wakes_at(hold) >= ends_at(hold) && failures_of(hold) == 0;
        if (forgotten) return "it would never be renewed";
    }
    return NULL;
}

/* The clock must move on: a driver sleeps until the deadline. */
static bool is_spinning(void) {
    for (int i = 0; i < 50; i++) {
        rig_tick(clock_now);
        if (client_next_tick() > clock_now) return false;
    }
    return true;
}

/* From here on every question is answered; then no operation may stay. */
static bool all_end(void) {
    rig.refusing = false;
    for (hf_op *op = ops_of(&rig.client); op; op = next_op(op)) hf_op_interrupt(op, clock_now);
    for (int i = 0; i < 2000; i++) {
        bool any = false;
        for (const hf_op *op = ops_of(&rig.client); op; op = next_op(op))
            any = any || !hf_op_is_done(op);
        if (!any) return true;
        rig_tick(clock_now);
        for (int link = CALLS; link < HF_LINKS; link += RENEWER - CALLS) {
            hf_session *session = &first_node(&rig.client)->links[link];
            if (session->first_reply < session->next_reply) feed(session, ":1\r\n", clock_now);
        }
        clock_now = hf_time_max(clock_now, hf_time_min(client_next_tick(), clock_now + 20 * HF_MS));
    }
    return false;
}

static void begin_play(uint64_t seed, hf_link renewer) {
    luck = seed * 0x9e3779b97f4a7c15ull | 1;
    clock_now = AT(0);
    RIG_BEGIN(config.renewer = renewer);
    for (int i = 0; i < KEYS; i++) {
        if (!hf_names_make(&key_names[i], hf_slice_of(i ? "y" : "x"))) abort();
        both_keys[i] = &key_names[i];
    }
    for (int i = 0; i < OWNERS; i++) snprintf(owner_names[i], sizeof owner_names[i], "o%d", i);
}

static void end_play(void) {
    rig_end(clock_now);
    for (int i = 0; i < KEYS; i++) hf_names_free(&key_names[i]);
}

static const char *play(uint64_t seed, hf_link renewer) {
    const char *broken = NULL;
    begin_play(seed, renewer);
    for (int i = 0; i < 400 && !broken; i++) {
        random_step();
        if (is_spinning()) broken = "the deadline does not move on";
        if (!broken) broken = broken_rule();
    }
    if (!broken && !all_end()) broken = "an operation never ends";
    if (!broken && chance(2)) close_rig(clock_now);
    if (!broken) broken = is_closed(&rig.client) ? NULL : broken_rule();
    end_play();
    return broken;
}

TEST(a_clients_invariants_hold_under_random_orders_of_events) {
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        const char *broken = play(seed, seed % 2 ? RENEWER : CALLS);
        CHECK_OR(!broken, "seed %d: %s", (int)seed, broken);
    }
}

TEST(a_clients_invariants_hold_under_random_orders_of_events_with_failing_allocations) {
    for (uint64_t seed = 1; seed <= 300; seed++) {
        begin_play(seed, rig_config().renewer);
        for (int i = 0; i < 200; i++) {
            int kind = chance(3);
            memerr_fail(kind == 0 ? (unsigned long)chance(6) + 1 : 0);
            if (kind == 0 && chance(2)) random_begin();
            else hf_client_tick(&rig.client, clock_now);
            memerr_fail(0);
            random_step();
            rig_serve(clock_now);
            const char *broken = broken_rule();
            CHECK_OR(!broken || strcmp(broken, "it would never be renewed") == 0, "seed %d: %s",
                     (int)seed, broken);
        }
        CHECK_OR(all_end(), "seed %d: an operation never ends", (int)seed);
        end_play();
    }
}

TEST(reopening_a_subscription_connection_does_not_count_as_a_reconnect) {
    hf_traffic traffic = hf_client_traffic(&rig.client);
    CHECK_EQ_U64(traffic.reconnects, 0);
    CHECK_EQ_U64(traffic.connections, 0);
    wait_in_queue(60 * HF_SECOND, AT(0));
    cut_link(EVENTS, "gone", AT(10));
    rig_sleep(AT(10), AT(1000)), CHECK(link_of(EVENTS)->opens > 1);
    traffic = hf_client_traffic(&rig.client), CHECK_EQ_U64(traffic.reconnects, 0);
    cut_link(CALLS, "gone", AT(1000));
    begin(HF_OP_PING, AT(1500)), CHECK_EQ_U64(link_of(CALLS)->opens, 2);
    traffic = hf_client_traffic(&rig.client), CHECK_EQ_U64(traffic.reconnects, 1);
}

TEST(a_client_without_random_bytes_still_draws_random_numbers) {
    static const unsigned char zeros[24];
    hf_client_config config = rig_config();
    rig_after(), CHECK(hf_client_init(&rig.client, &config, zeros));
    CHECK(random_of(&rig.client) != 0);
    hf_client_free(&rig.client);
}

TEST(creating_a_client_fails_if_there_is_no_memory_for_its_servers) {
    static const hf_server servers[] = {{.host = "a", .port = 1, .label = "a:1"},
                                        {.host = "b", .port = 2, .label = "b:2"},
                                        {.host = "c", .port = 3, .label = "c:3"}};
    static const hf_shard shards[3] = {{NULL, 1}, {NULL, 1}, {NULL, 1}};
    static const hf_mode modes[] = {HF_MODE_SHARDS, HF_MODE_CLUSTER, HF_MODE_SENTINEL,
                                    HF_MODE_QUORUM};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        EACH_FAILURE(nth, 1) {
            hf_client_config config = rig_config();
            config.mode = modes[i];
            config.servers = servers;
            config.shards = shards;
            config.server_count = 3;
            memerr_fail(nth);
            rig_after();
            bool made = hf_client_init(&rig.client, &config, DRIVE_ENTROPY);
            bool failed = memerr_end();
            CHECK(made == !failed);
            hf_client_free(&rig.client);
        }
    }
}

static int invalidations;
static hf_link invalidated;

static void note_invalidated(hf_node *node, hf_link link, hf_time now) {
    (void)node;
    (void)now;
    invalidations++;
    invalidated = link;
}

TEST(losing_the_subscription_connection_rereads_the_map_only_while_an_acquire_waits) {
    static hf_topology topology;
    topology = *topology_of(&rig.client);
    topology.invalidate = note_invalidated;
    set_topology(&rig.client, &topology);
    invalidations = 0;
    hf_op *op = wait_in_queue(HF_NEVER, AT(0));
    cut_link(EVENTS, "reset", AT(10)), CHECK_EQ_INT(invalidations, 1);
    CHECK_EQ_INT(invalidated, CALLS);
    rig_serve(AT(11));
    hf_op_end(op, AT(12));
    cut_link(EVENTS, "reset", AT(13)), CHECK_EQ_INT(invalidations, 1);
}

/* A handle that is abandoned may be one whose hold another handle has released. */
TEST(abandoning_handles_removes_no_hold_that_another_handle_has_released_already) {
    static const struct {
        uint32_t held, released, first, left, second, left_then; /* 0 left: it is cleaned up */
    } cases[] = {{1, 1, 1, 1, 1, 0}, {1, 1, 2, 0, 0, 0}, {3, 2, 1, 3, 2, 2}, {3, 1, 2, 2, 1, 1}};
    EACH_CASE (i, cases) {
        hf_hold *hold = watch(hold_lock(AT(0)));
        set_count(hold, cases[i].held);
        for (uint32_t j = 0; j < cases[i].released; j++) hf_hold_add_stray(hold);
        abandon_hold(hold, cases[i].first, AT(1));
        CHECK_EQ_INT(is_held(hold) ? count_of(hold) : 0, cases[i].left);
        if (!is_held(hold)) CHECK(is_cleaned_up(hold));
        if (cases[i].second == 0) continue;
        abandon_hold(hold, cases[i].second, AT(2));
        CHECK_EQ_INT(is_held(hold) ? count_of(hold) : 0, cases[i].left_then);
        if (!is_held(hold)) CHECK(is_cleaned_up(hold));
    }
}

CHECK_MAIN
