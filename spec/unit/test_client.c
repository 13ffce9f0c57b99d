#include "client_internal.h"

#include "drive.h"

static struct rig rig;

#define CALLS HF_LINK_CALLS
#define EVENTS HF_LINK_EVENTS
#define KEEPER HF_LINK_KEEPER

/* ---- a new client ---- */

TEST(a_new_client_wants_nothing)
{
    rig_begin(&rig);
    CHECK_STR(rig.client.uuid, DRIVE_UUID);
    CHECK_STR(rig.client.grants, DRIVE_GRANTS);
    CHECK_EQ_U64(hf_client_deadline(&rig.client), HF_NEVER);
    CHECK(hf_client_is_quiet(&rig.client));
    rig_tick(&rig, AT(0));
    CHECK_EQ_U64(rig.opens, 0);
    rig_end(&rig, AT(0));
}

TEST(a_place_in_the_queue_says_whose_it_is)
{
    char text[HF_UUID_SIZE + 64 + HF_OWNER_MAX], owner[HF_OWNER_MAX];
    rig_begin(&rig);
    memset(owner, 'o', sizeof owner);
    size_t size = hf_waiter_format(text, sizeof text, &rig.client, UINT64_MAX, UINT64_MAX,
                                   (hf_slice){owner, sizeof owner});
    CHECK(size <= sizeof text);
    CHECK(memcmp(text, DRIVE_UUID ":18446744073709551615:18446744073709551615 ooo",
                 HF_UUID_SIZE + 46) == 0);
    rig_end(&rig, AT(0));
}

/* ---- the events link ---- */

TEST(a_quiet_events_link_is_asked_for_a_sign_of_life)
{
    rig_begin(&rig);
    wait_in_queue(&rig, HF_NEVER, AT(0));
    hf_session *events = link_of(&rig, EVENTS);
    rig_sleep(&rig, AT(3), AT(5001));
    CHECK_SAID(&rig, EVENTS, "");
    rig_sleep(&rig, AT(5001), AT(5002));
    CHECK_SAID(&rig, EVENTS, "PING");
    hear(events, "*2\r\n$4\r\npong\r\n$0\r\n\r\n", AT(5100));
    rig_sleep(&rig, AT(5100), AT(10100));
    CHECK_SAID(&rig, EVENTS, "PING");
    CHECK_EQ_U64(events->opens, 1);
    rig_sleep(&rig, AT(10100), AT(13099));
    CHECK_EQ_U64(events->opens, 1);
    rig_sleep(&rig, AT(13099), AT(13200)); /* no answer: a new one */
    CHECK_EQ_U64(events->opens, 2);
    CHECK_SAID(&rig, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    rig_end(&rig, AT(14000));
}

TEST(a_subscription_that_is_never_confirmed_is_given_up)
{
    rig_begin(&rig);
    hf_op *op = begin_acquire(&rig, HF_NEVER, AT(0));
    hear_calls(&rig, busy(900000, 0, 0), AT(1));
    CHECK_EQ_INT(op->state, HF_ACQUIRE_SUBSCRIBING);
    for (int ms = 1; ms < 10000; ms += 10) {
        rig_sleep(&rig, AT(ms), AT(ms + 10));
        if (said(link_of(&rig, CALLS))[0] != '\0')
            hear_calls(&rig, busy(900000, 0, 0), AT(ms + 10));
    }
    CHECK_EQ_U64(link_of(&rig, EVENTS)->opens, 2);
    rig_end(&rig, AT(10000));
}

TEST(after_a_grant_the_events_link_stays_for_a_moment)
{
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    hear_message(&rig, "grant 1 88 2000 0 2 mek", AT(100));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(100));
    rig_sleep(&rig, AT(100), AT(599));
    CHECK_EQ_INT(link_of(&rig, EVENTS)->state, HF_SESSION_READY);
    rig_sleep(&rig, AT(599), AT(600));
    CHECK_EQ_INT(link_of(&rig, EVENTS)->state, HF_SESSION_CLOSED);
    CHECK(!rig.client.first.subscribed);
    rig_end(&rig, AT(700));
}

TEST(after_a_wait_in_vain_the_events_link_is_closed)
{
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_SECOND, AT(0));
    rig_tick(&rig, AT(1000));
    hear_calls(&rig, ":0\r\n", AT(1001));
    CHECK_OUTCOME(op, "busy");
    rig_tick(&rig, AT(1001));
    CHECK_EQ_INT(link_of(&rig, EVENTS)->state, HF_SESSION_CLOSED);
    CHECK_EQ_U64(hf_client_deadline(&rig.client), HF_NEVER);
    rig_end(&rig, AT(1100));
}

static hf_op *wait_as(const char *owner, hf_time now)
{
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.owner = hf_slice_of(owner);
    spec.wait = HF_NEVER;
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    rig_serve(&rig, now);
    hear_calls(&rig, busy(20000, 0, 0), now);
    return op;
}

TEST(two_waiters_hear_one_foreign_channel_once)
{
    rig_begin(&rig);
    hf_op *first = wait_in_queue(&rig, HF_NEVER, AT(0));
    hf_op *second = wait_as("you", AT(10));
    said(link_of(&rig, CALLS));
    CHECK_EQ_INT(second->state, HF_ACQUIRE_WAITING);
    hear_message(&rig, "turn 1 50", AT(20));
    CHECK_SAID(&rig, EVENTS, "PSUBSCRIBE redisson_lock__channel:{k}");
    hear_message(&rig, "turn 2 50", AT(21));
    CHECK_SAID(&rig, EVENTS, "");
    CHECK(second->foreign && second->recheck_at <= AT(21)); /* it may have missed one */
    hf_op_end(first, AT(30));
    CHECK_SAID(&rig, EVENTS, "");
    hf_op_end(second, AT(31));
    CHECK_SAID(&rig, EVENTS, "PUNSUBSCRIBE redisson_lock__channel:{k}");
    rig_end(&rig, AT(1100));
}

TEST(each_grant_finds_its_waiter)
{
    rig_begin(&rig);
    hf_op *first = wait_in_queue(&rig, HF_NEVER, AT(0));
    hf_op *second = wait_as("you", AT(10));
    hear_message(&rig, "grant 2 90 2000 0 3 youk", AT(20));
    CHECK_OUTCOME(first, "under way");
    CHECK_OUTCOME(second, "ok");
    CHECK_EQ_U64(second->hold->token, 90);
    hear_message(&rig, "grant 1 91 2000 0 2 mek", AT(30));
    CHECK_OUTCOME(first, "ok");
    rig_end(&rig, AT(1100));
}

TEST(a_record_makes_its_waiter_look)
{
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    hear_message(&rig, "look 1", AT(20));
    CHECK_EQ_U64(op->recheck_at, AT(20));
    rig_end(&rig, AT(1100));
}

TEST(messages_that_make_no_sense_are_ignored)
{
    static const char *const texts[] = {"",
                                        "grant",
                                        "grant ",
                                        "grant 1",
                                        "grant 1 ",
                                        "grant x 1 0 2 mek",
                                        "grant 9 88 2000 0 2",
                                        "grant 9 88 2000 0 2 ",
                                        "grant 9 88 2000 0 2 me",
                                        "grant 9 88 2000 0 0 k",
                                        "grant 9 88 2000 0 99999999999999999999999 mek",
                                        "grant 9 88 2000 0 18446744073709551615 mek",
                                        "grant 9 88 0 -1 mek",
                                        "turn",
                                        "turn ",
                                        "turn 1",
                                        "turn 9 50",
                                        "turn 99999999999999999999 1",
                                        "look",
                                        "look ",
                                        "look x",
                                        "look 9",
                                        "nonsense",
                                        "GRANT 1 88 0 2 mek"};
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, HF_NEVER, AT(0));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        hear_message(&rig, texts[i], AT(10));
        CHECK_OR(op->state == HF_ACQUIRE_WAITING && op->recheck_at > AT(10), "\"%s\"", texts[i]);
        CHECK_OR(rig.client.holds.count == 1, "\"%s\"", texts[i]);
    }
    hear(link_of(&rig, EVENTS),
         "*1\r\n$7\r\nmessage\r\n*0\r\n:1\r\n+x\r\n$-1\r\n*3\r\n:1\r\n:2\r\n:3\r\n", AT(11));
    hear(link_of(&rig, EVENTS), "*1\r\n$8\r\npmessage\r\n*1\r\n$10\r\npsubscribe\r\n", AT(11));
    CHECK_EQ_INT(op->state, HF_ACQUIRE_WAITING);
    rig_end(&rig, AT(1100));
}

/* ---- grants for waits that have ended ---- */

#define COROUTINE DRIVE_UUID ":5"

TEST(a_stray_grant_is_passed_on)
{
    rig_begin(&rig);
    wait_as("you", AT(0));
    hear_subscribed(&rig, AT(1));
    said(link_of(&rig, CALLS));
    hear_message(&rig, "grant 77 88 2000 0 38 " COROUTINE "k", AT(10));
    rig_tick(&rig, AT(10));
    CHECK_SAID(&rig, KEEPER,
               "EVALSHA leave 4 k redisson_lock_token:{k} holdfast_queue:{k} redisson_lock__channel:{k} " COROUTINE
               " 2000 0 " DRIVE_UUID ":77:0 " COROUTINE " ");
    hear_message(&rig, "grant 77 88 2000 0 38 " COROUTINE "k", AT(11)); /* once is enough */
    rig_tick(&rig, AT(11));
    CHECK_SAID(&rig, KEEPER, "");
    hear(link_of(&rig, KEEPER), ":1\r\n", AT(12));
    CHECK_EQ_INT(rig.client.holds.count, 1);
    rig_end(&rig, AT(1100));
}

/* By now another of its processes may have the lock. */
TEST(a_stray_grant_of_a_shared_owner_is_left_alone)
{
    static const char *const owners[] = {"2 me", "38 " DRIVE_UUID "!5", ("36 " DRIVE_UUID),
                                         "38 10010203-0405-8607-8809-0a0b0c0d0e0f:5"};
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
        char text[128];
        rig_begin(&rig);
        wait_as("you", AT(0));
        hear_subscribed(&rig, AT(1));
        snprintf(text, sizeof text, "grant 77 88 2000 0 %sk", owners[i]);
        hear_message(&rig, text, AT(10));
        rig_tick(&rig, AT(10));
        CHECK_SAID(&rig, KEEPER, "");
        CHECK_EQ_INT(rig.client.holds.count, 1);
        rig_end(&rig, AT(1100));
    }
}

TEST(a_stray_grant_of_a_lock_that_was_lost_is_passed_on)
{
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    hf_hold_ref(hold);
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    wait_as("you", AT(0));
    hear_subscribed(&rig, AT(1));
    hear_message(&rig, "grant 77 88 2000 0 2 mek", AT(10));
    rig_tick(&rig, AT(10));
    CHECK_SAID(&rig, KEEPER, "EVALSHA leave " KEYS_OF_K "0 " DRIVE_UUID ":77:0 me ");
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    rig_end(&rig, AT(1100));
    hf_hold_unref(hold);
}

/* The release has handed it to an old wait of its own owner. */
TEST(a_stray_grant_that_comes_before_the_answer_to_the_release)
{
    rig_begin(&rig);
    wait_as("you", AT(0));
    hear_subscribed(&rig, AT(1));
    hear_calls(&rig, busy(20000, 0, 0), AT(1));
    hf_hold *hold = hold_lock(&rig, AT(2));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(3));
    said(link_of(&rig, CALLS));
    hear_message(&rig, "grant 77 88 2000 0 2 mek", AT(10));
    rig_tick(&rig, AT(10));
    CHECK_SAID(&rig, CALLS, "");
    hear_calls(&rig, ":1\r\n", AT(11));
    CHECK_OUTCOME(op, "ok");
    rig_tick(&rig, AT(11));
    CHECK_EQ_INT(hold->state, HF_HOLD_LEAVING);
    CHECK_SAID(&rig, CALLS, "EVALSHA leave " KEYS_OF_K "0 " DRIVE_UUID ":77:1000 me ");
    hear_calls(&rig, ":1\r\n", AT(12));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(1100));
}

/* By another way than its message the waiter has already learnt of its grant. */
TEST(a_late_grant_does_not_take_a_held_lock_away)
{
    static const hf_layout layouts[] = {HF_LAYOUT_LOCK, HF_LAYOUT_GUARD, HF_LAYOUT_MUTEX};
    for (size_t i = 0; i < 3; i++) {
        rig_begin(&rig);
        wait_as("you", AT(0));
        hear_subscribed(&rig, AT(1));
        hear_calls(&rig, busy(20000, 0, 0), AT(1));
        hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
        spec.layout = layouts[i];
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(5));
        hear_calls(&rig, ACQUIRED, AT(6));
        CHECK_OUTCOME(op, "ok");
        hear_message(&rig,
                     layouts[i] == HF_LAYOUT_MUTEX ? "grant 77 88 2000 1 2 mek"
                                                   : "grant 77 88 2000 0 2 mek",
                     AT(10));
        rig_tick(&rig, AT(10));
        CHECK_SAID(&rig, KEEPER, "");
        CHECK(hf_hold_is_valid(op->hold, AT(10)));
        rig_end(&rig, AT(1100));
    }
}

TEST(a_stray_grant_with_an_owner_that_cannot_be_ours_is_ignored)
{
    static char text[1200];
    for (int size = HF_OWNER_MAX; size < 1000; size += 37) {
        rig_begin(&rig);
        wait_as("you", AT(0));
        hear_subscribed(&rig, AT(1));
        int head = snprintf(text, sizeof text, "grant 18446744073709551615 88 2000 0 %d ", size);
        memset(text + head, 'o', (size_t)size);
        memcpy(text + head, COROUTINE, strlen(COROUTINE));
        strcpy(text + head + size, "key");
        hear_message(&rig, text, AT(10));
        rig_tick(&rig, AT(10));
        CHECK_EQ_INT(rig.client.holds.count, size <= HF_OWNER_MAX ? 2 : 1);
        rig_end(&rig, AT(1100));
    }
}

/* ---- losses ---- */

TEST(notice_marks_what_has_ended_and_nothing_else)
{
    rig_begin(&rig);
    hf_hold *renewed =
        hold_lock(&rig, AT(0)); /* due at AT(10000), whether or not somebody renews it */
    hf_hold *holds[20];
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        hf_hold *hold = holds[i] =
            hf_holds_add(&rig.client.holds, HF_LAYOUT_LOCK, hf_slice_of(key), hf_slice_of("me"));
        hold->state = HF_HOLD_HELD;
        hold->valid_until = AT(10000 + 100 * i);
        hf_holds_wake_at(&rig.client.holds, hold, hold->valid_until);
    }
    hf_client_notice(&rig.client, AT(9999));
    CHECK_EQ_U64(rig.client.holds.news, 0);
    hf_client_notice(&rig.client, AT(10950));
    for (int i = 0; i < 20; i++)
        CHECK_EQ_INT(holds[i]->state, i < 10 ? HF_HOLD_LOST : HF_HOLD_HELD);
    CHECK_EQ_INT(renewed->state, HF_HOLD_HELD);
    CHECK_EQ_U64(rig.client.holds.news, 10);
    CHECK_EQ_U64(rig.client.stats.losses, 10);
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(11000));
}

/* ---- closing ---- */

TEST(closing_lets_go_of_everything)
{
    rig_begin(&rig);
    hold_lock(&rig, AT(0));
    hf_op *waiting = wait_as("you", AT(1));
    hear_subscribed(&rig, AT(2));
    hear_calls(&rig, busy(20000, 0, 0), AT(2));
    hf_op *asking = begin_acquire(&rig, 0, AT(3));
    hf_op *blocked = begin(&rig, HF_OP_CHECK, AT(3));
    hf_op *ping = begin(&rig, HF_OP_PING, AT(3));
    for (int link = 0; link < HF_LINKS; link++)
        said(&rig.client.first.links[link]);
    CHECK(blocked->blocked);
    hf_client_close(&rig.client, AT(4));
    CHECK_OUTCOME(waiting, "closed");
    CHECK_OUTCOME(asking, "closed");
    CHECK_OUTCOME(blocked, "closed");
    CHECK_OUTCOME(ping, "closed");
    CHECK(!hf_client_is_quiet(&rig.client));
    CHECK_EQ_INT(rig.client.first.waiting, 0);
    rig_tick(&rig, AT(4));
    CHECK_EQ_INT(link_of(&rig, EVENTS)->state, HF_SESSION_CLOSED);
    CHECK(strstr(said(link_of(&rig, CALLS)), DRIVE_UUID ":1:1000 you"));
    CHECK_SAID(&rig, KEEPER, LEAVE_OF_K("0", ""));
    hear(link_of(&rig, KEEPER), ":1\r\n", AT(5));
    hear(link_of(&rig, CALLS), "*2\r\n:1\r\n:0\r\n:1\r\n+PONG\r\n:0\r\n:0\r\n", AT(5));
    rig_tick(&rig, AT(5));
    CHECK(hf_client_is_quiet(&rig.client));
    CHECK_EQ_INT(rig.client.holds.count, 0);
    rig_end(&rig, AT(6));
}

TEST(closing_many_holds_keeps_them_in_order)
{
    rig_begin(&rig);
    for (int i = 0; i < 500; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        hf_hold *hold =
            hf_holds_add(&rig.client.holds, HF_LAYOUT_LOCK, hf_slice_of(key), hf_slice_of("me"));
        hold->state = i % 7 ? HF_HOLD_HELD : HF_HOLD_LOST;
        hold->busy = i % 5 == 0;
        hold->valid_until = AT(i * 37 % 500);
        hf_holds_wake_at(&rig.client.holds, hold, i % 7 ? AT(i * 31 % 400) : HF_NEVER);
    }
    hf_client_close(&rig.client, AT(0));
    hf_time last = 0;
    for (size_t i = 0; i < rig.client.holds.count; i++) {
        const hf_hold *hold = rig.client.holds.heap[i],
                      *parent = rig.client.holds.heap[i ? (i - 1) / 2 : 0];
        CHECK(parent->wake_at <= hold->wake_at);
        CHECK(hold->state == HF_HOLD_LEAVING || hold->state == HF_HOLD_LOST);
        last = hf_time_max(last, hold->wake_at);
    }
    CHECK_EQ_U64(last, HF_NEVER);
    rig_end(&rig, AT(6));
}

TEST(freed_in_the_middle_of_everything)
{
    rig_begin(&rig);
    hold_lock(&rig, AT(0));
    rig_sleep(&rig, AT(0), AT(10000)); /* a renewal under way */
    hf_hold *left =
        hf_holds_add(&rig.client.holds, HF_LAYOUT_LOCK, hf_slice_of("other"), hf_slice_of("me"));
    left->in_order = true;
    hf_keeper_leave(&rig.client, left, AT(10000));
    rig_tick(&rig, AT(10000)); /* a leaving too */
    hf_session_closed(link_of(&rig, CALLS), "reset",
                      AT(10001)); /* which waits for a connection now */
    wait_as("you", AT(10002));
    hf_client_close(&rig.client, AT(10003));
    rig_end(&rig, AT(10004));
}

TEST(an_interrupt_is_for_acquires)
{
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_PING, AT(0));
    hf_op_interrupt(op, AT(1));
    CHECK_OUTCOME(op, "under way");
    hear_calls(&rig, "+PONG\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(3));
}

TEST(operations_end_in_any_order)
{
    for (int first = 0; first < 3; first++) {
        rig_begin(&rig);
        hf_op *ops[3];
        for (int i = 0; i < 3; i++)
            ops[i] = begin(&rig, HF_OP_PING, AT(0));
        hf_op_end(ops[first], AT(1));
        hf_op *more = begin(&rig, HF_OP_TTL, AT(2));
        hf_op_end(ops[(first + 1) % 3], AT(3));
        hear_calls(&rig, "+PONG\r\n+PONG\r\n+PONG\r\n:5\r\n", AT(4));
        CHECK_OUTCOME(ops[(first + 2) % 3], "ok");
        CHECK_OUTCOME(more, "ok");
        CHECK_EQ_INT(more->value, 5);
        rig_end(&rig, AT(5));
    }
}

/* ---- any order of events ----
 *
 * Random operations, answers, messages, lost connections and times. Whatever comes, some things
 * hold: the deadline moves on, every hold is looked at in time, and every operation ends once the
 * server answers again. */

enum { OWNERS = 2, KEYS = 2, OPS = 8 };

static uint64_t luck;
static hf_names key_names[KEYS];
static const hf_names *both_keys[KEYS];
static hf_time clock_now;
static char owner_names[OWNERS][16];

static int chance(int below)
{
    return (int)hf_jitter(&luck, (uint64_t)below);
}

static void random_begin(void)
{
    static const hf_op_kind kinds[] = {HF_OP_ACQUIRE,     HF_OP_ACQUIRE, HF_OP_ACQUIRE,
                                       HF_OP_RELEASE,     HF_OP_RELEASE, HF_OP_EXTEND,
                                       HF_OP_CHECK,       HF_OP_FORCE,   HF_OP_ACQUIRE_ALL,
                                       HF_OP_RELEASE_ALL, HF_OP_PING,    HF_OP_COMPLETE};
    static const hf_time waits[] = {0, 50 * HF_MS, 5 * HF_SECOND, HF_NEVER};
    static const hf_time leases[] = {20 * HF_MS, 500 * HF_MS, 3 * HF_SECOND, 30 * HF_SECOND};
    hf_op_kind kind = kinds[chance(sizeof kinds / sizeof *kinds)];
    bool several = kind == HF_OP_ACQUIRE_ALL || kind == HF_OP_RELEASE_ALL;
    hf_op_spec spec = {.kind = kind,
                       .names = several || kind == HF_OP_PING ? NULL : &key_names[chance(KEYS)],
                       .all = both_keys,
                       .all_count = KEYS,
                       .owner = hf_slice_of(owner_names[chance(OWNERS)]),
                       .lease = leases[chance(4)],
                       .wait = waits[chance(4)],
                       .token_ttl_ms = (uint64_t)chance(2) * 1000,
                       .renewed = chance(2),
                       .shared = chance(4) == 0,
                       .keep = HF_SECOND};
    if (kind == HF_OP_COMPLETE)
        spec.layout = HF_LAYOUT_GUARD;
    else if (!several && chance(4) == 0)
        spec.layout = (hf_layout)(1 + chance(2));
    hf_client_begin(&rig.client, &spec, clock_now);
}

static hf_op *random_op(void)
{
    int count = 0;
    for (hf_op *op = rig.client.ops; op; op = op->next)
        count++;
    if (count == 0) return NULL;
    hf_op *op = rig.client.ops;
    for (int i = chance(count); i > 0; i--)
        op = op->next;
    return op;
}

/* An answer that the program may give. */
static const char *likely_answer(const hf_program *program)
{
    static const char *const acquired[] = {ACQUIRED,
                                           ACQUIRED,
                                           "*2\r\n:1\r\n:0\r\n",
                                           "*4\r\n:0\r\n:20\r\n:0\r\n:0\r\n",
                                           "*4\r\n:0\r\n:30000\r\n:2\r\n:0\r\n",
                                           "*4\r\n:0\r\n:30000\r\n:0\r\n:1\r\n",
                                           "*2\r\n:2\r\n:2\r\n",
                                           GONE};
    static const char *const all[] = {"*3\r\n:1\r\n:5\r\n:6\r\n", "*3\r\n:1\r\n:5\r\n:6\r\n",
                                      "*3\r\n:0\r\n:1\r\n:100\r\n", "*2\r\n:-1\r\n:2\r\n"};
    static const char *const released[] = {":1\r\n", ":2\r\n", ":-1\r\n"};
    static const char *const released_all[] = {"*2\r\n:1\r\n:1\r\n", "*2\r\n:2\r\n:1\r\n",
                                               "*2\r\n:-1\r\n:-2\r\n"};
    static const char *const renewed[] = {"*2\r\n:1\r\n:1\r\n", "*2\r\n:1\r\n:1\r\n",
                                          "*2\r\n:-1\r\n:1\r\n"};
    static const char *const kept[] = {":1\r\n", ":1\r\n", ":1\r\n", ":-1\r\n", ":-2\r\n"};
    if (!program) return "+PONG\r\n";
    if (strstr(program->name, "acquire_all")) return all[chance(4)];
    if (strstr(program->name, "acquire") || strstr(program->name, "begin"))
        return acquired[chance(8)];
    if (strstr(program->name, "release_all")) return released_all[chance(3)];
    if (strstr(program->name, "release")) return released[chance(3)];
    if (strstr(program->name, "renew")) return renewed[chance(3)];
    return kept[chance(5)];
}

static const char *unlikely_answer(void)
{
    static const char *const answers[] = {":0\r\n",
                                          "*1\r\n:-3\r\n",
                                          "*2\r\n:2\r\n:1\r\n",
                                          "*2\r\n:2\r\n:3\r\n",
                                          "*4\r\n:0\r\n:-1\r\n:0\r\n:1\r\n",
                                          TAKEN,
                                          "*2\r\n:3\r\n$1\r\nr\r\n",
                                          "*1\r\n:4\r\n",
                                          "$-1\r\n",
                                          "+OK\r\n",
                                          "-NOSCRIPT\r\n",
                                          "-LOADING\r\n",
                                          "-BUSY x\r\n",
                                          "-NOPERM\r\n",
                                          "-OOM\r\n",
                                          "-WRONGTYPE\r\n",
                                          "-READONLY\r\n",
                                          "garbage\r\n"};
    return answers[chance(sizeof answers / sizeof *answers)];
}

static void random_answer(hf_session *session)
{
    if (session->first_slot == session->next_slot) return;
    const hf_request *request =
        session->replies[session->first_slot & (session->replies_capacity - 1)];
    bool likely = request && chance(8) > 0;
    hear(session, likely ? likely_answer(request->program) : unlikely_answer(), clock_now);
}

static void random_event(void)
{
    char text[128];
    hf_session *events = link_of(&rig, EVENTS);
    if (events->state != HF_SESSION_READY) return;
    int wait = chance(6), key = chance(KEYS);
    switch (chance(6)) {
    case 0:
        hear_subscribed(&rig, clock_now);
        return;
    case 1:
        snprintf(text, sizeof text, "turn %d %d", wait, chance(100));
        break;
    case 2:
        snprintf(text, sizeof text, "look %d", wait);
        break;
    case 3:
        hear(events, "-NOPERM\r\n", clock_now);
        return;
    case 4:
        hear_event(&rig, "psubscribe",
                   key ? "redisson_lock__channel:{y}" : "redisson_lock__channel:{x}", "2",
                   clock_now);
        return;
    default:
        snprintf(text, sizeof text, "grant %d %d 2000 %d 2 o%d%s", wait, chance(3), chance(2),
                 chance(OWNERS), key ? "y" : "x");
    }
    hear_message(&rig, text, clock_now);
}

static void random_step(void)
{
    hf_op *op = random_op();
    int count = 0;
    for (hf_op *other = rig.client.ops; other; other = other->next)
        count++;
    switch (chance(18)) {
    case 0:
    case 1:
        if (count < OPS) random_begin();
        break;
    case 2:
        if (op && (op->done || chance(4) == 0)) hf_op_end(op, clock_now);
        break;
    case 3:
        if (op && chance(3) == 0) hf_op_interrupt(op, clock_now);
        break;
    case 4:
        if (op && op->hold && chance(8) == 0)
            hf_client_abandon(&rig.client, op->hold, 1, clock_now);
        break;
    case 5:
        if (chance(8) == 0)
            hf_session_closed(&rig.client.first.links[chance(HF_LINKS)], "reset", clock_now);
        break;
    case 6:
        rig.refusing = chance(10) == 0;
        break;
    case 7:
        random_event();
        break;
    case 8:
        clock_now += (hf_time)chance(20) * HF_MS;
        break;
    case 9:
        if (chance(4) == 0) clock_now += (hf_time)chance(4000) * HF_MS;
        break;
    case 10:
        hf_client_notice(&rig.client, clock_now);
        break;
    default:
        random_answer(&rig.client.first.links[chance(2) ? CALLS : KEEPER]);
        break;
    }
}

static const char *broken_rule(void)
{
    size_t waiting = 0;
    for (const hf_op *op = rig.client.ops; op; op = op->next) {
        waiting += op->events;
        if (op->done && op->events) return "a done operation listens";
        if (op->blocked && !op->done && !op->hold) return "blocked by nothing";
    }
    if (waiting != rig.client.first.waiting) return "the number of waiters is wrong";
    const hf_holds *holds = &rig.client.holds;
    for (size_t i = 0; i < holds->count; i++) {
        const hf_hold *hold = holds->heap[i], *parent = holds->heap[i ? (i - 1) / 2 : 0];
        if (parent->wake_at > hold->wake_at || hold->heap_index != i)
            return "the heap is out of order";
        hf_time noticed_by = hf_time_max(hold->valid_until, clock_now);
        if (hold->state == HF_HOLD_HELD && hold->wake_at > noticed_by)
            return "a loss would be noticed late";
        if (hold->state == HF_HOLD_HELD && hold->count <= hold->base) return "held but not counted";
        bool hidden =
            hold->state == HF_HOLD_LEAVING && !hold->busy && hold->wake_at > hold->valid_until;
        if (hidden) return "the keeper would never come to it";
        bool forgotten = hold->state == HF_HOLD_HELD && hold->renewed && !hold->busy &&
                         hold->wake_at >= hold->valid_until && hold->failures == 0;
        if (forgotten) return "it would never be renewed";
    }
    return NULL;
}

/* The clock must move on: a driver sleeps until the deadline. */
static bool is_spinning(void)
{
    for (int i = 0; i < 50; i++) {
        rig_tick(&rig, clock_now);
        if (hf_client_deadline(&rig.client) > clock_now) return false;
    }
    return true;
}

/* From here on every question is answered; then no operation may stay. */
static bool all_end(void)
{
    rig.refusing = false;
    for (hf_op *op = rig.client.ops; op; op = op->next)
        hf_op_interrupt(op, clock_now);
    for (int i = 0; i < 2000; i++) {
        bool any = false;
        for (const hf_op *op = rig.client.ops; op; op = op->next)
            any = any || !op->done;
        if (!any) return true;
        rig_tick(&rig, clock_now);
        for (int link = CALLS; link < HF_LINKS; link += KEEPER - CALLS) {
            hf_session *session = &rig.client.first.links[link];
            if (session->first_slot < session->next_slot) hear(session, ":1\r\n", clock_now);
        }
        clock_now = hf_time_max(
            clock_now, hf_time_min(hf_client_deadline(&rig.client), clock_now + 20 * HF_MS));
    }
    return false;
}

static const char *play(uint64_t seed, bool own_keeper)
{
    const char *broken = NULL;
    hf_client_config config = rig_config();
    config.keeper = own_keeper ? KEEPER : CALLS;
    luck = seed * 0x9e3779b97f4a7c15ull | 1;
    clock_now = AT(0);
    rig_begin_with(&rig, &config);
    for (int i = 0; i < KEYS; i++) {
        if (!hf_names_make(&key_names[i], hf_slice_of(i ? "y" : "x"))) abort();
        both_keys[i] = &key_names[i];
    }
    for (int i = 0; i < OWNERS; i++)
        snprintf(owner_names[i], sizeof owner_names[i], "o%d", i);
    for (int i = 0; i < 400 && !broken; i++) {
        random_step();
        if (is_spinning()) broken = "the deadline does not move on";
        if (!broken) broken = broken_rule();
    }
    if (!broken && !all_end()) broken = "an operation never ends";
    if (!broken && chance(2)) hf_client_close(&rig.client, clock_now);
    if (!broken) broken = rig.client.closed ? NULL : broken_rule();
    rig_end(&rig, clock_now);
    for (int i = 0; i < KEYS; i++)
        hf_names_free(&key_names[i]);
    return broken;
}

TEST(any_order_of_events)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        const char *broken = play(seed, seed % 2);
        CHECK_OR(!broken, "seed %d: %s", (int)seed, broken);
    }
}

/* The same with allocations that fail now and then. */
TEST(any_order_of_events_short_of_memory)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        hf_client_config config = rig_config();
        luck = seed * 0x9e3779b97f4a7c15ull | 1;
        clock_now = AT(0);
        rig_begin_with(&rig, &config);
        for (int i = 0; i < KEYS; i++) {
            if (!hf_names_make(&key_names[i], hf_slice_of(i ? "y" : "x"))) abort();
            both_keys[i] = &key_names[i];
        }
        for (int i = 0; i < 200; i++) {
            int kind = chance(3);
            memerr_fail(kind == 0 ? (unsigned long)chance(6) + 1 : 0);
            if (kind == 0 && chance(2))
                random_begin();
            else
                hf_client_tick(&rig.client, clock_now);
            memerr_fail(0);
            random_step();
            rig_serve(&rig, clock_now);
            const char *broken = broken_rule();
            CHECK_OR(!broken || strcmp(broken, "it would never be renewed") == 0, "seed %d: %s",
                     (int)seed, broken);
        }
        CHECK_OR(all_end(), "seed %d: an operation never ends", (int)seed);
        rig_end(&rig, clock_now);
        for (int i = 0; i < KEYS; i++)
            hf_names_free(&key_names[i]);
    }
}

CHECK_MAIN
