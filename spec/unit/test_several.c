#include "client_internal.h"

#include "drive.h"

#define CALLS HF_LINK_CALLS
#define KEEPER HF_LINK_KEEPER
#define COUNT 3

static struct rig rig;
static hf_names names[COUNT];
static const hf_names *all[COUNT];

static void start(void)
{
    static const char *const keys[COUNT] = {"a", "b", "c"};
    rig_begin(&rig);
    for (size_t i = 0; i < COUNT; i++) {
        if (!hf_names_make(&names[i], hf_slice_of(keys[i]))) abort();
        all[i] = &names[i];
    }
}

static void finish(hf_time now)
{
    rig_end(&rig, now);
    for (size_t i = 0; i < COUNT; i++)
        hf_names_free(&names[i]);
}

static hf_op *begin_all(hf_op_kind kind, hf_time now)
{
    hf_op_spec spec = spec_of(&rig, kind);
    spec.names = NULL;
    spec.all = all;
    spec.all_count = COUNT;
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    rig_serve(&rig, now);
    return op;
}

static hf_op *begin_one(hf_op_kind kind, size_t i, hf_time now)
{
    hf_op_spec spec = spec_of(&rig, kind);
    spec.names = &names[i];
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    rig_serve(&rig, now);
    return op;
}

static hf_hold *hold_at(size_t i)
{
    return hf_holds_find(&rig.client.holds, HF_LAYOUT_LOCK, names[i].key, hf_slice_of("me"));
}

static int state_at(size_t i)
{
    return hold_at(i) ? (int)hold_at(i)->state : -1;
}

#define THEIR_KEYS                                                                                 \
    "12 a redisson_lock_token:{a} holdfast_queue:{a} redisson_lock__channel:{a} "                  \
    "b redisson_lock_token:{b} holdfast_queue:{b} redisson_lock__channel:{b} "                     \
    "c redisson_lock_token:{c} holdfast_queue:{c} redisson_lock__channel:{c} me 2000 "
#define ALL_ACQUIRED "*4\r\n:1\r\n:11\r\n:12\r\n:13\r\n"

static void hold_all(hf_time now)
{
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, now);
    said(link_of(&rig, CALLS));
    hear_calls(&rig, ALL_ACQUIRED, now);
    hf_op_end(op, now);
}

TEST(all_are_acquired)
{
    start();
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    CHECK_SAID(&rig, CALLS, "EVALSHA acquire_all " THEIR_KEYS "30000 1000 0 0 0");
    hear_calls(&rig, ALL_ACQUIRED, AT(1));
    CHECK_OUTCOME(op, "ok");
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_EQ_INT(state_at(i), HF_HOLD_HELD);
        CHECK_EQ_INT(hold_at(i)->count, 1);
        CHECK_EQ_U64(hold_at(i)->token, 11 + i);
        CHECK_EQ_U64(hold_at(i)->valid_until, AT(29698));
        CHECK_EQ_U64(hold_at(i)->wake_at, AT(10000));
        CHECK(!hold_at(i)->busy);
    }
    rig_sleep(&rig, AT(1), AT(10000));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 3 a b c me 30000 me 30000 me 30000");
    finish(AT(11000));
}

TEST(one_is_busy)
{
    start();
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    hear_calls(&rig, "*3\r\n:0\r\n:2\r\n:500\r\n", AT(1));
    CHECK_OUTCOME(op, "busy");
    CHECK(strstr(op->failure.text, "\"b\""));
    CHECK_EQ_INT(rig.client.holds.count, 0);
    finish(AT(2));
}

TEST(an_answer_too_late_is_not_acquired)
{
    start();
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    hear_calls(&rig, ALL_ACQUIRED, AT(29698));
    CHECK_OUTCOME(op, "lost");
    for (size_t i = 0; i < COUNT; i++)
        CHECK_EQ_INT(state_at(i), HF_HOLD_LEAVING);
    finish(AT(30000));
}

TEST(an_unknown_outcome_is_undone)
{
    start();
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    rig_sleep(&rig, AT(0), AT(3000));
    CHECK_OUTCOME(op, "unreachable");
    for (size_t i = 0; i < COUNT; i++)
        CHECK_EQ_INT(state_at(i), HF_HOLD_LEAVING);
    finish(AT(4000));
    start();
    op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(1));
    rig_tick(&rig, AT(50));
    hear_calls(&rig, "-READONLY no\r\n", AT(51)); /* says nothing about the first copy */
    CHECK_OUTCOME(op, "denied");
    for (size_t i = 0; i < COUNT; i++)
        CHECK_EQ_INT(state_at(i), HF_HOLD_LEAVING);
    finish(AT(4000));
}

TEST(an_error_leaves_nothing)
{
    start();
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    hear_calls(&rig, "-NOSCRIPT\r\n", AT(1));
    hear_calls(&rig, "-OOM no\r\n", AT(2));
    CHECK_OUTCOME(op, "server");
    CHECK_EQ_INT(rig.client.holds.count, 0);
    finish(AT(3));
}

TEST(an_answer_the_program_never_gives)
{
    static const char *const replies[] = {"+OK\r\n", "*0\r\n", "*2\r\n:7\r\n:1\r\n",
                                          "*2\r\n:-3\r\n:9\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        start();
        hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
        hear_calls(&rig, replies[i], AT(1));
        CHECK_OUTCOME(op, "server");
        for (size_t j = 0; j < COUNT; j++)
            CHECK_EQ_INT(state_at(j), HF_HOLD_LEAVING);
        finish(AT(3));
    }
    start();
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
    hear_calls(&rig, "*2\r\n:-1\r\n:99\r\n", AT(1)); /* no such lock */
    CHECK(op->done);
    finish(AT(3));
}

TEST(entered_again)
{
    start();
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(1000));
    CHECK_SAID(&rig, CALLS, "EVALSHA acquire_all " THEIR_KEYS "30000 1000 1 1 1");
    hear_calls(&rig, "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n", AT(1001));
    CHECK_OUTCOME(op, "ok");
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_EQ_INT(hold_at(i)->count, 2);
        CHECK_EQ_U64(hold_at(i)->token, 11 + i);
        CHECK_EQ_U64(hold_at(i)->wake_at, AT(11000));
    }
    finish(AT(2000));
}

/* A shorter lease refreshes nothing: what is believed must not be longer than what the server has.
 */
TEST(entered_again_for_a_shorter_time)
{
    start();
    hold_all(AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE_ALL);
    spec.names = NULL;
    spec.all = all;
    spec.all_count = COUNT;
    spec.lease = HF_SECOND;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(5000));
    hear_calls(&rig, "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n", AT(5001));
    CHECK_OUTCOME(op, "ok");
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_EQ_U64(hold_at(i)->valid_until, AT(29698));
        CHECK(hold_at(i)->wake_at <= AT(10000));
    }
    finish(AT(6000));
}

TEST(after_a_failed_second_entry_they_are_still_renewed)
{
    static const char *const replies[] = {"-OOM no\r\n", "*3\r\n:0\r\n:1\r\n:500\r\n",
                                          "*1\r\n:7\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        start();
        hold_all(AT(0));
        begin_all(HF_OP_ACQUIRE_ALL, AT(9900));
        rig_sleep(&rig, AT(9900), AT(10100)); /* the renewal fell due meanwhile */
        CHECK_SAID(&rig, KEEPER, "");
        hear_calls(&rig, replies[i], AT(10100));
        rig_sleep(&rig, AT(10100), AT(10101));
        CHECK_SAID(&rig, KEEPER, "EVALSHA renew 3 a b c me 30000 me 30000 me 30000");
        finish(AT(11000));
    }
}

TEST(one_of_them_is_gone)
{
    start();
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(1000));
    hear_calls(&rig, "*2\r\n:-2\r\n:2\r\n", AT(1001));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(state_at(0), HF_HOLD_HELD);
    CHECK_EQ_INT(hold_at(1)->reason, HF_LOST_TAKEN);
    CHECK_EQ_INT(state_at(2), HF_HOLD_HELD);
    finish(AT(2000));
}

TEST(all_are_released)
{
    start();
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10));
    CHECK_SAID(&rig, CALLS, "EVALSHA release_all " THEIR_KEYS "0 30000 0 30000 0 30000");
    hear_calls(&rig, "*3\r\n:1\r\n:1\r\n:1\r\n", AT(11));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(rig.client.holds.count, 0);
    finish(AT(12));
}

TEST(some_were_lost)
{
    start();
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10));
    hear_calls(&rig, "*3\r\n:1\r\n:-1\r\n:1\r\n", AT(11));
    CHECK_OUTCOME(op, "lost");
    CHECK(strstr(op->failure.text, "1 of 3 keys"));
    CHECK_EQ_INT(rig.client.holds.count, 0);
    CHECK_EQ_U64(rig.client.stats.losses, 1);
    finish(AT(12));
}

TEST(released_although_the_first_reply_was_lost)
{
    start();
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(11));
    rig_tick(&rig, AT(50));
    hear_calls(&rig, "*3\r\n:-1\r\n:-1\r\n:-2\r\n", AT(51));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(rig.client.stats.losses, 0);
    finish(AT(60));
    start();
    hold_all(AT(0));
    op = begin_all(HF_OP_RELEASE_ALL, AT(10));
    hear_calls(&rig, "-NOSCRIPT\r\n", AT(11));
    hear_calls(&rig, "*3\r\n:-1\r\n:-1\r\n:-1\r\n", AT(12));
    CHECK_OUTCOME(op, "lost"); /* an unknown program is no lost reply */
    finish(AT(60));
}

TEST(a_release_without_an_answer_goes_on_in_the_background)
{
    start();
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10));
    rig_sleep(&rig, AT(10), AT(3010));
    CHECK_OUTCOME(op, "unreachable");
    for (size_t i = 0; i < COUNT; i++)
        CHECK_EQ_INT(state_at(i), HF_HOLD_LEAVING);
    finish(AT(4000));
}

TEST(none_is_held)
{
    start();
    CHECK_OUTCOME(begin_all(HF_OP_RELEASE_ALL, AT(0)), "not_held");
    hold_all(AT(0));
    for (size_t i = 0; i < COUNT; i++)
        hf_client_abandon(&rig.client, hold_at(i), 1, AT(1));
    CHECK_OUTCOME(begin_all(HF_OP_RELEASE_ALL, AT(1)), "not_held"); /* let go already */
    rig_tick(&rig, AT(2));
    CHECK(strstr(said(link_of(&rig, KEEPER)), "EVALSHA leave 4 a "));
    finish(AT(12));
}

TEST(given_up_an_acquire_is_undone)
{
    start();
    hf_op_end(begin_all(HF_OP_ACQUIRE_ALL, AT(0)), AT(1));
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_EQ_INT(state_at(i), HF_HOLD_LEAVING);
        CHECK(hold_at(i)->in_order);
    }
    finish(AT(12));
}

TEST(given_up_a_release_goes_on_in_the_background)
{
    start();
    hold_all(AT(0));
    hf_op_end(begin_all(HF_OP_RELEASE_ALL, AT(1)), AT(2));
    for (size_t i = 0; i < COUNT; i++)
        CHECK_EQ_INT(state_at(i), HF_HOLD_LEAVING);
    finish(AT(12));
}

TEST(behind_a_renewal_they_wait)
{
    start();
    hold_all(AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    said(link_of(&rig, KEEPER));
    hf_op *op = begin_all(HF_OP_RELEASE_ALL, AT(10001));
    CHECK_OUTCOME(op, "under way");
    CHECK_SAID(&rig, CALLS, "");
    hear(link_of(&rig, KEEPER), "*3\r\n:1\r\n:1\r\n:1\r\n", AT(10002));
    CHECK_SAID(&rig, CALLS, "EVALSHA release_all " THEIR_KEYS "0 30000 0 30000 0 30000");
    finish(AT(11000));
    start();
    hold_all(AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    said(link_of(&rig, KEEPER));
    hf_op_end(begin_all(HF_OP_RELEASE_ALL, AT(10001)), AT(10002)); /* given up before it began */
    for (size_t i = 0; i < COUNT; i++)
        CHECK_EQ_INT(state_at(i), HF_HOLD_LEAVING);
    finish(AT(11000));
}

TEST(whoever_waits_for_one_of_them_goes_on)
{
    start();
    hold_all(AT(0));
    hf_op *all_op = begin_all(HF_OP_RELEASE_ALL, AT(1));
    hf_op *one = begin_one(HF_OP_CHECK, 1, AT(1));
    hf_op *two = begin_one(HF_OP_ACQUIRE, 2, AT(1));
    CHECK_OUTCOME(one, "under way");
    hear_calls(&rig, "*3\r\n:1\r\n:-1\r\n:1\r\n", AT(2));
    CHECK_OUTCOME(all_op, "lost");
    CHECK_OUTCOME(one, "lost");
    CHECK_EQ_INT(two->state, HF_ACQUIRE_ASKING);
    finish(AT(11000));
}

TEST(one_is_lost_while_they_are_entered_again)
{
    start();
    hold_all(AT(0));
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(10));
    hf_client_lose(&rig.client, hold_at(1), HF_LOST_EXPIRED);
    hear_calls(&rig, "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n", AT(11));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(state_at(0), HF_HOLD_HELD);
    CHECK_EQ_INT(hold_at(0)->count, 1);
    CHECK_EQ_INT(state_at(1), HF_HOLD_LOST);
    finish(AT(12));
}

/* What stood there before is not forgotten because another lock was busy. */
TEST(a_leftover_adopted_in_vain_goes_on_being_left)
{
    start();
    hold_all(AT(0));
    hf_client_abandon(&rig.client, hold_at(2), 1, AT(1));
    hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(1));
    hear_calls(&rig, "*3\r\n:0\r\n:1\r\n:500\r\n", AT(2));
    CHECK_OUTCOME(op, "busy");
    CHECK_EQ_INT(state_at(0), HF_HOLD_HELD);
    CHECK_EQ_INT(state_at(2), HF_HOLD_LEAVING);
    said(link_of(&rig, CALLS));
    rig_tick(&rig, AT(2));
    CHECK(strstr(said(link_of(&rig, CALLS)), "EVALSHA leave 4 c "));
    finish(AT(11000));
}

static void check_survives(hf_op_kind kind, const char *reply, bool held)
{
    bool good = false;
    unsigned long nth = 1;
    for (; nth < 200 && !good; nth++) {
        start();
        if (held) hold_all(AT(0));
        memerr_fail(nth);
        hf_op_spec spec = spec_of(&rig, kind);
        spec.names = NULL;
        spec.all = all;
        spec.all_count = COUNT;
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(10));
        rig_serve(&rig, AT(10));
        if (op && !op->done) hf_session_feed(link_of(&rig, CALLS), reply, strlen(reply), AT(11));
        bool failed = memerr_failed();
        memerr_fail(0);
        if (op && !op->done) rig_sleep(&rig, AT(11), AT(9000));
        CHECK(!op || op->done);
        good = op && op->failure.code == HF_OK && !failed;
        for (size_t i = 0; i < COUNT; i++) {
            bool acquired = op && kind == HF_OP_ACQUIRE_ALL && op->failure.code == HF_OK;
            if (acquired) CHECK_EQ_INT(state_at(i), HF_HOLD_HELD);
            if (kind == HF_OP_ACQUIRE_ALL && !acquired && hold_at(i))
                CHECK_EQ_INT(state_at(i), HF_HOLD_LEAVING);
            CHECK(state_at(i) != HF_HOLD_ACQUIRING);
        }
        finish(AT(9000));
    }
    CHECK(good && nth > 5);
}

/* Two holds that are being undone are in use by turns: whoever needs both waits no longer than any call. */
TEST(a_blocked_call_ends_in_time)
{
    start();
    begin_one(HF_OP_ACQUIRE, 0, AT(0));
    rig_sleep(&rig, AT(0), AT(1500));
    begin_one(HF_OP_ACQUIRE, 1, AT(1500));
    rig_sleep(&rig, AT(1500), AT(5000));
    hf_op *both = begin_all(HF_OP_ACQUIRE_ALL, AT(5000));
    CHECK(both->blocked);
    rig_sleep(&rig, AT(5000), AT(8000));
    CHECK_OUTCOME(both, "unreachable");
    finish(AT(8000));
}

TEST(a_number_of_no_lock)
{
    static const char *const numbers[] = {"0", "4", "-1", "9223372036854775807", "-9223372036854775808"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char reply[64];
        start();
        hf_op *op = begin_all(HF_OP_ACQUIRE_ALL, AT(0));
        snprintf(reply, sizeof reply, "*2\r\n:-1\r\n:%s\r\n", numbers[i]);
        hear_calls(&rig, reply, AT(1));
        CHECK_OUTCOME(op, "lost");
        finish(AT(2));
    }
}

TEST(out_of_memory)
{
    check_survives(HF_OP_ACQUIRE_ALL, ALL_ACQUIRED, false);
    check_survives(HF_OP_RELEASE_ALL, "*3\r\n:1\r\n:1\r\n:1\r\n", true);
}

CHECK_MAIN
