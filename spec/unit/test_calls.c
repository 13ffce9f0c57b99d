#include "client_internal.h"

#include "drive.h"

static struct rig rig;

#define CALLS HF_LINK_CALLS
#define KEEPER HF_LINK_KEEPER

#define RELEASE_OF_K(to) "EVALSHA release " KEYS_OF_K to " 30000 "
#define EXTEND_OF_K(ms) "EVALSHA extend 2 k holdfast_queue:{k} me " ms " "

static hf_op *begin_extend(hf_time lease, hf_time now)
{
    hf_op_spec spec = spec_of(&rig, HF_OP_EXTEND);
    spec.lease = lease;
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    rig_serve(&rig, now);
    return op;
}

/* Held `count` times since `now`. */
static hf_hold *hold_times(uint32_t count, hf_time now)
{
    hf_hold *hold = hold_lock(&rig, now);
    for (uint32_t i = 1; i < count; i++)
        hold_lock(&rig, now);
    said(link_of(&rig, CALLS));
    return hold;
}

/* A renewal is under way since AT(10000). */
static hf_hold *hold_while_renewed(uint32_t count)
{
    hf_hold *hold = hold_times(count, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    if (!hold->busy) abort();
    said(link_of(&rig, KEEPER));
    return hold;
}

static void hear_keeper(const char *text, hf_time now)
{
    hear(link_of(&rig, KEEPER), text, now);
    rig_serve(&rig, now);
}

/* ---- release ---- */

TEST(the_first_release_is_the_last)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(10));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("0"));
    CHECK_EQ_INT(hold->state, HF_HOLD_RELEASING);
    CHECK(!hf_hold_is_valid(hold, AT(10)));
    hear_calls(&rig, ":1\r\n", AT(11));
    CHECK_OUTCOME(op, "ok");
    CHECK(!hold_of(&rig));
    CHECK_EQ_U64(rig.client.stats.releases, 1);
    hf_op_end(op, AT(11));
    rig_sleep(&rig, AT(11), AT(60000));
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(60000));
}

TEST(a_partial_release)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(5000));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("1"));
    CHECK(hf_hold_is_valid(hold, AT(5000)));
    hear_calls(&rig, ":2\r\n", AT(5001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(hold->count, 1);
    CHECK_EQ_U64(hold->valid_until, AT(5000 + 29698)); /* it refreshed the TTL */
    CHECK_EQ_U64(hold->wake_at, AT(15000));
    op = begin(&rig, HF_OP_RELEASE, AT(6000));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("0"));
    hear_calls(&rig, ":1\r\n", AT(6001));
    CHECK_OUTCOME(op, "ok");
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(7000));
}

TEST(what_is_not_held_is_not_released)
{
    rig_begin(&rig);
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(0)), "not_held");
    CHECK_OUTCOME(begin_extend(HF_SECOND, AT(0)), "not_held");
    CHECK_OUTCOME(begin(&rig, HF_OP_CHECK, AT(0)), "not_held");
    CHECK_EQ_INT(link_of(&rig, CALLS)->state, HF_SESSION_CLOSED);
    hold_times(1, AT(0));
    hf_op_spec spec = spec_of(&rig, HF_OP_RELEASE);
    spec.owner = hf_slice_of("you");
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1));
    CHECK_OUTCOME(op, "not_held");
    CHECK_SAID(&rig, CALLS, "");
    rig_end(&rig, AT(2));
}

TEST(released_while_being_released)
{
    rig_begin(&rig);
    hold_times(1, AT(0));
    begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(1)), "not_held");
    CHECK_OUTCOME(begin_acquire(&rig, 0, AT(1)), "busy");
    CHECK_OUTCOME(begin(&rig, HF_OP_CHECK, AT(1)), "not_held");
    rig_end(&rig, AT(2));
}

TEST(a_release_that_finds_nothing_is_a_loss)
{
    static const struct {
        const char *reply;
        hf_lost_reason reason;
    } cases[] = {{":-1\r\n", HF_LOST_DELETED}, {":-2\r\n", HF_LOST_TAKEN}};
    for (size_t i = 0; i < 2; i++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(1, AT(0));
        hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
        hear_calls(&rig, cases[i].reply, AT(2));
        CHECK_OUTCOME(op, "lost");
        CHECK(op->hold == hold);
        CHECK_EQ_INT(hold->reason, cases[i].reason);
        CHECK(!hold_of(&rig));
        CHECK_EQ_U64(rig.client.stats.losses, 1);
        rig_end(&rig, AT(3));
    }
}

TEST(a_release_sent_twice_that_finds_nothing_was_done_by_the_first)
{
    rig_begin(&rig);
    hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(2));
    rig_tick(&rig, AT(50));
    said(link_of(&rig, CALLS));
    hear_calls(&rig, ":-1\r\n", AT(51));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(rig.client.stats.losses, 0);
    rig_end(&rig, AT(60));
}

/* A server that came back empty knows neither the program nor the lock. */
TEST(an_unknown_program_does_not_hide_a_loss)
{
    static const char *const passing[] = {"-NOSCRIPT No matching script.\r\n",
                                          "-LOADING Redis is loading\r\n"};
    for (size_t i = 0; i < 2; i++) {
        rig_begin(&rig);
        hold_times(1, AT(0));
        hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
        hear_calls(&rig, passing[i], AT(2));
        rig_tick(&rig, AT(50));
        said(link_of(&rig, CALLS));
        hear_calls(&rig, ":-1\r\n", AT(51));
        CHECK_OUTCOME(op, "lost");
        CHECK_EQ_U64(rig.client.stats.losses, 1);
        rig_end(&rig, AT(60));
    }
}

TEST(a_release_without_an_answer_goes_on_in_the_background)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(100));
    said(link_of(&rig, CALLS));
    rig_sleep(&rig, AT(100), AT(3100));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(op->failure.text, "the release goes on in the background"));
    CHECK_EQ_INT(hold->state, HF_HOLD_LEAVING);
    hf_op_end(op, AT(3100));
    rig_sleep(&rig, AT(3100), AT(3200));
    CHECK_SAID(&rig, CALLS, LEAVE_OF_K("0", ""));
    CHECK_SAID(&rig, KEEPER, "");
    hear_calls(&rig, ":1\r\n", AT(3201));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(4000));
}

TEST(a_partial_release_without_an_answer_is_made_up_for_by_the_next)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(100));
    said(link_of(&rig, CALLS));
    hear_calls(&rig, "-OOM command not allowed\r\n", AT(101));
    CHECK_OUTCOME(op, "server");
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    CHECK_EQ_INT(hold->count, 1);
    rig_sleep(&rig, AT(101), AT(10000));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 30000");
    hear_keeper("*1\r\n:1\r\n", AT(10001));
    begin(&rig, HF_OP_RELEASE, AT(10002));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("0"));
    rig_end(&rig, AT(11000));
}

TEST(behind_a_renewal_a_release_waits)
{
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(10001));
    CHECK_OUTCOME(op, "under way");
    CHECK_SAID(&rig, CALLS, "");
    hear_keeper("*1\r\n:1\r\n", AT(10002));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("0"));
    hear_calls(&rig, ":1\r\n", AT(10003));
    CHECK_OUTCOME(op, "ok");
    rig_sleep(&rig, AT(10003), AT(60000));
    CHECK_SAID(&rig, KEEPER, "");
    rig_end(&rig, AT(60000));
}

TEST(behind_a_renewal_that_finds_it_gone_a_release_is_a_loss)
{
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(10001));
    hear_keeper("*1\r\n:-1\r\n", AT(10002));
    CHECK_OUTCOME(op, "lost");
    CHECK_SAID(&rig, CALLS, "");
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(11000));
}

TEST(behind_a_renewal_without_an_answer_a_release_ends_too)
{
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(10001));
    rig_sleep(&rig, AT(10001), AT(17000));
    CHECK(op->done);
    CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LEAVING);
    rig_end(&rig, AT(18000));
}

/* Two calls wait for the keeper; the first one takes the hold away from under the second. */
TEST(all_who_wait_for_a_hold_go_on_when_it_is_gone)
{
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op *first = begin(&rig, HF_OP_RELEASE, AT(10001));
    hf_op *second = begin(&rig, HF_OP_RELEASE, AT(10001));
    hf_op *third = begin_acquire(&rig, HF_SECOND, AT(10001));
    hear_keeper("*1\r\n:1\r\n", AT(10002));
    CHECK_OUTCOME(first, "under way");
    hear_calls(&rig, ":1\r\n", AT(10003));
    CHECK_OUTCOME(first, "ok");
    CHECK_OUTCOME(second, "not_held");
    CHECK_OUTCOME(third, "under way");
    CHECK_EQ_INT(third->state, HF_ACQUIRE_ASKING);
    hear_calls(&rig, ACQUIRED, AT(10004));
    CHECK_OUTCOME(third, "ok");
    rig_end(&rig, AT(11000));
}

/* The same, when the hold was lost and let go before the renewal's answer came. */
TEST(who_waits_for_a_hold_goes_on_although_it_left_the_table)
{
    rig_begin(&rig);
    hf_hold *hold = hold_while_renewed(1);
    hf_op *waiting = begin_extend(HF_SECOND, AT(10001));
    CHECK_OUTCOME(waiting, "under way");
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_client_abandon(&rig.client, hold, 1, AT(10002));
    CHECK(!hold_of(&rig));
    CHECK_OUTCOME(waiting, "under way");
    hear_keeper("*1\r\n:1\r\n", AT(10003));
    CHECK_OUTCOME(waiting, "lost");
    rig_end(&rig, AT(11000));
}

TEST(a_lost_hold_is_let_go_by_its_release)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_OUTCOME(op, "lost");
    CHECK(strstr(op->failure.text, "another owner has it"));
    CHECK(!hold_of(&rig));
    CHECK_SILENT(&rig);
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(2)), "not_held");
    rig_end(&rig, AT(3));
}

static hf_op *begin_about_lost(hf_op_kind kind, hf_hold *lost, bool told)
{
    hf_op_spec spec = spec_of(&rig, kind);
    spec.lost = lost;
    spec.lost_told = told;
    return hf_client_begin(&rig.client, &spec, AT(40000));
}

TEST(who_has_lost_a_hold_does_not_touch_a_newer_one_of_its_owner)
{
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
        CHECK(op->hold == old);
        CHECK(strstr(op->failure.text, "another owner has it"));
        CHECK_OUTCOME(begin_about_lost(kinds[i], old, true), "not_held");
    }
    CHECK_SILENT(&rig);
    CHECK(hf_hold_is_valid(newer, AT(40000)));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(40001));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("0"));
    hear_calls(&rig, ":1\r\n", AT(40002));
    CHECK_OUTCOME(op, "ok");
    rig_end(&rig, AT(40002));
    hf_hold_unref(old);
}

/* A release that waited for the keeper was not about what its owner has acquired meanwhile. */
TEST(a_release_that_waits_does_not_turn_to_a_newer_hold)
{
    rig_begin(&rig);
    hf_hold *hold = hold_while_renewed(1);
    hf_op *waiting = begin(&rig, HF_OP_RELEASE, AT(10001));
    hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
    hf_hold *newer = hold_times(1, AT(10002));
    CHECK(newer != hold);
    hear_keeper("*1\r\n:1\r\n", AT(10003));
    CHECK_OUTCOME(waiting, "lost");
    CHECK(hf_hold_is_valid(newer, AT(10003)));
    CHECK_SAID(&rig, CALLS, "");
    rig_end(&rig, AT(11000));
}

/* Two handles had it: the one is told by its release, the other by the hold it still refers to. */
TEST(a_lost_hold_stays_lost_while_a_stand_in_leaves)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_hold_ref(hold);
    CHECK_OUTCOME(begin(&rig, HF_OP_RELEASE, AT(29698)), "lost");
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LEAVING);
    CHECK(hold_of(&rig) != hold);
    hf_hold *newer = hold_times(1, AT(29699));
    CHECK_EQ_INT(newer->state, HF_HOLD_HELD);
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_INT(hold->reason, HF_LOST_EXPIRED);
    rig_end(&rig, AT(30000));
    hf_hold_unref(hold);
}

TEST(a_hold_lost_by_the_clock_may_still_stand_there)
{
    rig_begin(&rig);
    hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(29698)); /* nobody has noticed yet */
    CHECK_OUTCOME(op, "lost");
    CHECK(strstr(op->failure.text, "its lease ended before this"));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LEAVING);
    rig_tick(&rig, AT(29698));
    CHECK_SAID(&rig, KEEPER, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(30000));
}

TEST(given_up_a_release_goes_on_in_the_background)
{
    rig_begin(&rig);
    hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    hf_op_end(op, AT(2));
    rig_tick(&rig, AT(2));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("0") "\n" LEAVE_OF_K("0", ""));
    hear_calls(&rig, ":1\r\n:0\r\n", AT(3));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(3));
}

TEST(given_up_a_partial_release_has_let_go_all_the_same)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op_end(begin(&rig, HF_OP_RELEASE, AT(1)), AT(2));
    said(link_of(&rig, CALLS));
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    CHECK_EQ_INT(hold->count, 1);
    CHECK(!hold->busy);
    begin(&rig, HF_OP_RELEASE, AT(3));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("0"));
    rig_end(&rig, AT(4));
}

TEST(given_up_before_it_began_a_release_goes_on_in_the_background)
{
    rig_begin(&rig);
    hold_while_renewed(1);
    hf_op_end(begin(&rig, HF_OP_RELEASE, AT(10001)), AT(10002));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LEAVING);
    rig_tick(&rig, AT(10002));
    CHECK_SAID(&rig, KEEPER, ""); /* not before the renewal is answered */
    hear_keeper("*1\r\n:1\r\n", AT(10003));
    rig_tick(&rig, AT(10003));
    CHECK_SAID(&rig, KEEPER, LEAVE_OF_K("0", ""));
    hear_keeper(":1\r\n", AT(10004));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(10005));
}

TEST(a_shared_owner_releases_only_its_own)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hold->base = 1; /* one of them is another process's */
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("1"));
    CHECK_EQ_INT(hold->state, HF_HOLD_RELEASING);
    hear_calls(&rig, ":2\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(3));
}

TEST(the_rest_abandoned_while_a_release_is_under_way)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(2, AT(0));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("1"));
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    hear_calls(&rig, ":2\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    rig_tick(&rig, AT(3));
    CHECK_SAID(&rig, CALLS, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(3));
}

/* A second copy would let go of another process's hold. */
TEST(of_a_shared_owner_a_release_is_not_sent_twice)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hold->shared = true;
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("0") "1");
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(2));
    CHECK_OUTCOME(op, "unreachable");
    CHECK(strstr(op->failure.text, "it ends with its lease"));
    rig_sleep(&rig, AT(2), AT(60000));
    CHECK_SAID(&rig, CALLS, "");
    CHECK_SAID(&rig, KEEPER, "");
    CHECK_EQ_INT(rig.client.holds.count, 0);
    rig_end(&rig, AT(60000));
}

TEST(of_a_shared_owner_a_refused_release_goes_on_in_the_background)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hold->shared = true;
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    hear_calls(&rig, "-OOM no\r\n", AT(2));
    CHECK_OUTCOME(op, "server");
    said(link_of(&rig, CALLS));
    rig_tick(&rig, AT(3));
    CHECK_SAID(&rig, CALLS, LEAVE_OF_K("0", "") "1");
    rig_end(&rig, AT(4));
}

TEST(of_a_shared_owner_what_was_not_let_go_of_is_made_up_for)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(3, AT(0));
    hold->shared = true;
    begin(&rig, HF_OP_RELEASE, AT(1));
    hear_calls(&rig, "-OOM no\r\n", AT(2));
    CHECK_EQ_INT(hold->count, 2);
    CHECK_EQ_INT(hold->owed, 1);
    said(link_of(&rig, CALLS));
    begin(&rig, HF_OP_RELEASE, AT(3));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("1") "2");
    hear_calls(&rig, ":2\r\n", AT(4));
    CHECK_EQ_INT(hold->count, 1);
    CHECK_EQ_INT(hold->owed, 0);
    rig_end(&rig, AT(5));
}

/* What was abandoned since the release was sent is not among what it lets go of. */
TEST(of_a_shared_owner_the_rest_is_abandoned_while_a_release_is_under_way)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(3, AT(0));
    hold->shared = true;
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("2") "1");
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    hear_calls(&rig, ":2\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    rig_tick(&rig, AT(3));
    CHECK_EQ_INT(hold->state, HF_HOLD_LEAVING);
    char *leave = strdup(said(link_of(&rig, CALLS)));
    char *keeper = strdup(said(link_of(&rig, KEEPER)));
    CHECK_STR(*leave ? leave : keeper, LEAVE_OF_K("0", "") "2");
    free(leave);
    free(keeper);
    rig_end(&rig, AT(4));
}

/* The first one took along what was owed: sent again by the next, it would be another process's. */
TEST(of_a_shared_owner_what_an_unanswered_release_took_along_is_owed_no_more)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(3, AT(0));
    hold->shared = true;
    begin(&rig, HF_OP_RELEASE, AT(1));
    hear_calls(&rig, "-OOM no\r\n", AT(2));
    CHECK_EQ_INT(hold->owed, 1);
    said(link_of(&rig, CALLS));
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(3));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("1") "2");
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(4));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_INT(hold->count, 1);
    CHECK_EQ_INT(hold->owed, 0);
    begin(&rig, HF_OP_RELEASE, AT(50));
    rig_tick(&rig, AT(60));
    CHECK_SAID(&rig, CALLS, RELEASE_OF_K("0") "1");
    rig_end(&rig, AT(70));
}

/* ---- extend, check ---- */

TEST(extended)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(60 * HF_SECOND, AT(1000));
    CHECK_SAID(&rig, CALLS, EXTEND_OF_K("60000"));
    CHECK(hf_hold_is_valid(hold, AT(1000)));
    hear_calls(&rig, ":1\r\n", AT(1500));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hold->lease, 60 * HF_SECOND);
    CHECK_EQ_U64(hold->valid_until, AT(1000 + 59398));
    CHECK_EQ_U64(hold->wake_at, AT(21000));
    op = begin_extend(HF_SECOND, AT(2000)); /* also a shorter one */
    hear_calls(&rig, ":1\r\n", AT(2001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hold->valid_until, AT(2988));
    rig_end(&rig, AT(2500));
}

TEST(extended_a_lock_that_is_not_renewed)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hold->renewed = false;
    hf_holds_wake_at(&rig.client.holds, hold, hold->valid_until);
    begin_extend(60 * HF_SECOND, AT(1000));
    said(link_of(&rig, CALLS));
    hear_calls(&rig, ":1\r\n", AT(1500));
    CHECK_EQ_U64(hold->wake_at, AT(1000 + 59398));
    rig_sleep(&rig, AT(1500), AT(60397));
    CHECK_SILENT(&rig);
    CHECK(hf_hold_is_valid(hold, AT(60397)));
    rig_sleep(&rig, AT(60397), AT(60398));
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    rig_end(&rig, AT(61000));
}

TEST(extended_too_late)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(HF_SECOND, AT(1000));
    hear_calls(&rig, ":1\r\n", AT(1988));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(hold->reason, HF_LOST_EXPIRED);
    CHECK_EQ_U64(rig.client.holds.news, 1);
    rig_end(&rig, AT(2500));
}

TEST(extended_after_the_loss_was_told)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hold->renewed = false;
    hf_op *op = begin_extend(60 * HF_SECOND, AT(29000));
    rig_sleep(&rig, AT(29000), AT(29700));
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    hear_calls(&rig, ":1\r\n", AT(29800));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_U64(rig.client.holds.news, 1);
    rig_end(&rig, AT(30000));
}

TEST(extended_but_gone)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(HF_SECOND, AT(1000));
    hear_calls(&rig, ":-2\r\n", AT(1001));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(hold->reason, HF_LOST_TAKEN);
    CHECK(hold_of(&rig) == hold); /* until the owner lets go */
    rig_end(&rig, AT(2500));
}

TEST(an_extend_without_an_answer_is_believed_only_for_the_shorter_lease)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(10 * HF_SECOND, AT(1000));
    rig_sleep(&rig, AT(1000), AT(4000));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_EQ_U64(hold->valid_until, AT(1000 + 9898));
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    rig_sleep(&rig, AT(4000), AT(4001));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 30000"); /* which settles it */
    hear_keeper("*1\r\n:1\r\n", AT(4002));
    CHECK_EQ_U64(hold->valid_until, AT(4000 + 29698));
    rig_end(&rig, AT(5000));
}

TEST(given_up_an_extend_is_believed_only_for_the_shorter_lease)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hold->renewed = false;
    hf_holds_wake_at(&rig.client.holds, hold, hold->valid_until);
    hf_op_end(begin_extend(HF_SECOND, AT(1000)), AT(1100));
    CHECK_EQ_U64(hold->valid_until, AT(1988));
    CHECK_EQ_U64(hold->wake_at, AT(1988));
    CHECK(!hold->busy);
    rig_end(&rig, AT(5000));
}

TEST(a_refused_extend_changes_nothing)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin_extend(HF_SECOND, AT(1000));
    hear_calls(&rig, "-NOPERM no\r\n", AT(1001));
    CHECK_OUTCOME(op, "denied");
    CHECK_EQ_U64(hold->valid_until, AT(29698));
    CHECK_EQ_U64(hold->wake_at, AT(10000));
    rig_end(&rig, AT(2000));
}

TEST(checked)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_CHECK, AT(1000));
    CHECK_SAID(&rig, CALLS, EXTEND_OF_K("0"));
    hear_calls(&rig, ":1\r\n", AT(1001));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_U64(hold->valid_until, AT(29698));
    CHECK_EQ_U64(hold->wake_at, AT(10000));
    op = begin(&rig, HF_OP_CHECK, AT(2000));
    hear_calls(&rig, ":-1\r\n", AT(2001));
    CHECK_OUTCOME(op, "lost");
    CHECK_EQ_INT(hold->reason, HF_LOST_DELETED);
    op = begin(&rig, HF_OP_CHECK, AT(3000));
    CHECK_OUTCOME(op, "lost");
    CHECK(strstr(op->failure.text, "its key was deleted on the server"));
    rig_end(&rig, AT(4000));
}

/* Whoever looks often must not be the one who loses it. */
TEST(checked_again_and_again_it_is_still_renewed)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    for (int ms = 900; ms < 100000; ms += 900) {
        rig_sleep(&rig, AT(ms - 900), AT(ms));
        if (said(link_of(&rig, KEEPER))[0] != '\0') hear_keeper("*1\r\n:1\r\n", AT(ms));
        hf_op *op = begin(&rig, HF_OP_CHECK, AT(ms));
        hear_calls(&rig, ":1\r\n", AT(ms));
        CHECK_OUTCOME(op, "ok");
        hf_op_end(op, AT(ms));
    }
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    CHECK_OR(rig.client.stats.renew_batches >= 8 && rig.client.stats.renew_batches <= 10,
             "%d renewals", (int)rig.client.stats.renew_batches);
    rig_end(&rig, AT(100000));
}

TEST(a_renewal_that_falls_due_during_a_check_comes_after_it)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_CHECK, AT(9900));
    rig_sleep(&rig, AT(9900), AT(10500));
    CHECK_SAID(&rig, KEEPER, "");
    hear_calls(&rig, ":1\r\n", AT(10500));
    CHECK_OUTCOME(op, "ok");
    rig_sleep(&rig, AT(10500), AT(10501));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 30000");
    CHECK(hold->busy);
    rig_end(&rig, AT(11000));
}

TEST(given_up_a_check_leaves_the_hold_as_it_was)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op_end(begin(&rig, HF_OP_CHECK, AT(1000)), AT(1001));
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    CHECK(!hold->busy);
    CHECK_EQ_U64(hold->valid_until, AT(29698));
    rig_sleep(&rig, AT(1001), AT(10000));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 30000");
    rig_end(&rig, AT(11000));
}

/* ---- a guard's record ---- */

static hf_hold *hold_guard(hf_time now)
{
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.layout = HF_LAYOUT_GUARD;
    spec.print = hf_slice_of("p");
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    rig_serve(&rig, now);
    hear_calls(&rig, ACQUIRED, now);
    hf_hold *hold = op->hold;
    hf_op_end(op, now);
    said(link_of(&rig, CALLS));
    return hold;
}

static hf_op *begin_complete(hf_time now)
{
    hf_op_spec spec = spec_of(&rig, HF_OP_COMPLETE);
    spec.layout = HF_LAYOUT_GUARD;
    spec.print = hf_slice_of("p");
    spec.result = hf_slice_of("done");
    spec.keep = 5 * HF_SECOND;
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    rig_serve(&rig, now);
    return op;
}

TEST(a_record_is_left)
{
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    CHECK_SAID(&rig, CALLS, "EVALSHA complete " KEYS_OF_K "5000 p done");
    hear_calls(&rig, ":1\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(rig.client.holds.count, 0);
    rig_end(&rig, AT(3));
}

TEST(a_record_that_was_not_written_leaves_the_key_taken)
{
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    hear_calls(&rig, "-OOM no\r\n", AT(2));
    CHECK_OUTCOME(op, "server");
    CHECK_EQ_INT(rig.client.holds.count, 0);
    hold_guard(AT(10));
    hf_op_end(begin_complete(AT(11)), AT(12));
    CHECK_EQ_INT(rig.client.holds.count, 0);
    said(link_of(&rig, CALLS));
    rig_sleep(&rig, AT(12), AT(60000));
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(60000));
}

TEST(a_record_after_a_loss)
{
    rig_begin(&rig);
    hold_guard(AT(0));
    hf_op *op = begin_complete(AT(1));
    hear_calls(&rig, "-NOSCRIPT\r\n", AT(2));
    hear_calls(&rig, ":-1\r\n", AT(3));
    CHECK_OUTCOME(op, "lost");
    rig_end(&rig, AT(3));
}

TEST(a_record_that_was_sent_twice_and_is_not_there_is_lost) {
    const hf_time keeps[] = {5 * HF_SECOND, 0};
    for (int i = 0; i < 2; i++) {
        rig_begin(&rig);
        hold_guard(AT(0));
        hf_op *op = begin_complete(AT(1));
        op->spec.keep = keeps[i];
        hf_session_closed(link_of(&rig, CALLS), "reset", AT(2));
        rig_tick(&rig, AT(50));
        hear_calls(&rig, ":-1\r\n", AT(51));
        CHECK_OUTCOME(op, keeps[i] > 0 ? "lost" : "ok");
        CHECK_EQ_INT(rig.client.holds.count, 0);
        rig_end(&rig, AT(60));
    }
}

/* ---- without a hold ---- */

TEST(force)
{
    rig_begin(&rig);
    hf_hold *hold = hold_times(1, AT(0));
    hf_op *op = begin(&rig, HF_OP_FORCE, AT(1));
    CHECK_SAID(&rig, CALLS,
               "EVALSHA force 4 k redisson_lock_token:{k} holdfast_queue:{k} "
               "redisson_lock__channel:{k} me 2000");
    hear_calls(&rig, ":1\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(op->value, 1);
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_INT(hold->reason, HF_LOST_DELETED);
    op = begin(&rig, HF_OP_FORCE, AT(3));
    hear_calls(&rig, ":0\r\n", AT(4));
    CHECK_EQ_INT(op->value, 0);
    op = begin(&rig, HF_OP_FORCE, AT(5));
    hear_calls(&rig, "-WRONGTYPE the key holds a string\r\n", AT(6));
    CHECK_OUTCOME(op, "conflict");
    rig_end(&rig, AT(7));
}

TEST(info)
{
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_INFO, AT(1));
    CHECK_SAID(&rig, CALLS, "EVALSHA info 3 k redisson_lock_token:{k} holdfast_queue:{k} " DRIVE_UUID);
    hear_calls(&rig, "*6\r\n$3\r\nyou\r\n:2\r\n:1500\r\n$16\r\n1722500000000001\r\n:3\r\n:-1\r\n",
               AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_STR(op->info.owner, "you");
    CHECK_EQ_INT(op->info.holds, 2);
    CHECK_EQ_INT(op->info.ttl_ms, 1500);
    CHECK_EQ_U64(op->info.token, 1722500000000001);
    CHECK_EQ_INT(op->info.waiters, 3);
    CHECK_EQ_INT(op->info.ahead, -1);
    rig_end(&rig, AT(7));
}

TEST(info_that_makes_no_sense)
{
    static const char *const replies[] = {"*0\r\n", ":1\r\n", "$-1\r\n",
                                          "*6\r\n*0\r\n+x\r\n$-1\r\n$1\r\nx\r\n*0\r\n:1\r\n"};
    for (size_t i = 0; i < 4; i++) {
        rig_begin(&rig);
        hf_op *op = begin(&rig, HF_OP_INFO, AT(1));
        hear_calls(&rig, replies[i], AT(2));
        CHECK(op->done);
        CHECK_STR(op->info.owner, "");
        rig_end(&rig, AT(7));
    }
}

TEST(an_owner_longer_than_ours_can_be_is_cut)
{
    static char reply[5000];
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_INFO, AT(1));
    int size = snprintf(reply, sizeof reply, "*6\r\n$4000\r\n");
    memset(reply + size, 'o', 4000);
    strcpy(reply + size + 4000, "\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    hear_calls(&rig, reply, AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(strlen(op->info.owner), HF_OWNER_MAX);
    rig_end(&rig, AT(7));
}

TEST(ttl_and_ping)
{
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_TTL, AT(1));
    CHECK_SAID(&rig, CALLS, "PTTL k");
    hear_calls(&rig, ":1234\r\n", AT(2));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(op->value, 1234);
    op = begin(&rig, HF_OP_PING, AT(3));
    CHECK_SAID(&rig, CALLS, "PING");
    hear_calls(&rig, "+PONG\r\n", AT(4));
    CHECK_OUTCOME(op, "ok");
    op = begin(&rig, HF_OP_PING, AT(5));
    rig_sleep(&rig, AT(5), AT(3005));
    CHECK_OUTCOME(op, "unreachable");
    CHECK_STR(op->failure.text, "cannot ping on h:1: no reply in time; check that the server runs "
                                "and can be reached from here");
    rig_end(&rig, AT(4000));
}

static hf_op *begin_command(hf_time now)
{
    static const hf_slice args[] = {{"INFO", 4}, {"server", 6}};
    hf_op_spec spec = {.kind = HF_OP_COMMAND, .args = args, .arg_count = 2};
    hf_op *op = hf_client_begin(&rig.client, &spec, now);
    rig_serve(&rig, now);
    return op;
}

TEST(a_command_of_the_callers)
{
    rig_begin(&rig);
    hf_op *op = begin_command(AT(0));
    CHECK_SAID(&rig, CALLS, "INFO server");
    hear_calls(&rig, "*2\r\n:1\r\n$1\r\nx\r\n", AT(1));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(op->reply->size, 2);
    CHECK_STR(op->reply->elements[1]->string, "x");
    op = begin_command(AT(2));
    hear_calls(&rig, "-ERR no\r\n", AT(3));
    CHECK_OUTCOME(op, "server");
    CHECK(!op->reply);
    rig_end(&rig, AT(4));
}

TEST(out_of_memory_a_command_fails)
{
    bool good = false;
    unsigned long nth = 1;
    for (; nth < 100 && !good; nth++) {
        rig_begin(&rig);
        memerr_fail(nth);
        hf_op *op = begin_command(AT(0));
        hf_session *link = link_of(&rig, CALLS);
        if (op && !op->done) hf_session_feed(link, "*2\r\n:1\r\n$1\r\nx\r\n", 15, AT(1));
        bool failed = memerr_failed();
        memerr_fail(0);
        if (op && !op->done) rig_sleep(&rig, AT(1), AT(4000));
        CHECK(!op || op->done);
        good = op && op->failure.code == HF_OK && !failed;
        rig_end(&rig, AT(4000));
    }
    CHECK(good && nth > 8);
}

TEST(force_is_not_sent_twice)
{
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_FORCE, AT(1));
    said(link_of(&rig, CALLS));
    hf_session_closed(link_of(&rig, CALLS), "reset", AT(2));
    CHECK_OUTCOME(op, "unreachable");
    rig_tick(&rig, AT(50));
    CHECK_SAID(&rig, CALLS, "");
    rig_end(&rig, AT(60));
}

TEST(given_up_they_leave_nothing)
{
    static const hf_op_kind kinds[] = {HF_OP_FORCE, HF_OP_INFO, HF_OP_TTL, HF_OP_PING};
    rig_begin(&rig);
    for (size_t i = 0; i < 4; i++) {
        hf_op_end(begin(&rig, kinds[i], AT(1)), AT(2));
        hear_calls(&rig, ":1\r\n", AT(3));
    }
    CHECK(!rig.client.ops);
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(4));
}

TEST(after_the_close_nothing_begins)
{
    static const hf_op_kind kinds[] = {HF_OP_ACQUIRE, HF_OP_RELEASE, HF_OP_EXTEND, HF_OP_CHECK,
                                       HF_OP_FORCE,   HF_OP_INFO,    HF_OP_TTL,    HF_OP_PING};
    rig_begin(&rig);
    hf_client_close(&rig.client, AT(0));
    for (size_t i = 0; i < 8; i++)
        CHECK_OUTCOME(begin(&rig, kinds[i], AT(1)), "closed");
    CHECK_EQ_INT(link_of(&rig, CALLS)->state, HF_SESSION_CLOSED);
    rig_end(&rig, AT(4));
}

/* ---- memory ---- */

struct trial {
    hf_op_kind kind;
    const char *reply;
};

/* One operation that needs no hold, with a new client. */
static bool carry_out(void *context)
{
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
    for (int i = 0; op && !op->done && i < 3; i++) {
        rig_tick(&own, AT(10 + i));
        hf_session *link = link_of(&own, CALLS);
        if (link->state == HF_SESSION_READY)
            hf_session_feed(link, tried->reply, strlen(tried->reply), AT(10 + i));
    }
    if (op && !op->done) rig_sleep(&own, AT(20), AT(5000));
    if (op && !op->done) abort();
    bool good = op && op->failure.code == HF_OK;
    rig_end(&own, AT(5000));
    return good;
}

TEST(out_of_memory_without_a_hold)
{
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
static void check_survives(hf_op_kind kind, const char *reply, uint32_t count)
{
    bool good = false;
    unsigned long nth = 1;
    for (; nth < 100 && !good; nth++) {
        rig_begin(&rig);
        hf_hold *hold = hold_times(count, AT(0));
        hf_hold_ref(hold);
        memerr_fail(nth);
        hf_op_spec spec = spec_of(&rig, kind);
        hf_op *op = hf_client_begin(&rig.client, &spec, AT(10));
        hf_session *link = link_of(&rig, CALLS);
        if (op && !op->done) hf_session_feed(link, reply, strlen(reply), AT(11));
        bool failed = memerr_failed();
        memerr_fail(0);
        if (op && op->done) CHECK(!hold->busy);
        if (op && !op->done) rig_sleep(&rig, AT(11), AT(9000));
        CHECK(!op || op->done);
        good = op && op->failure.code == HF_OK && !failed;
        bool known =
            hold->state == HF_HOLD_HELD || hold->state == HF_HOLD_LEAVING || !hold->in_table;
        CHECK(known);
        if (hold->state == HF_HOLD_HELD && hold->in_table)
            CHECK(hold->wake_at <= hold->valid_until);
        hf_hold_unref(hold);
        rig_end(&rig, AT(9000));
    }
    CHECK(good && nth > 3);
}

TEST(out_of_memory_on_a_hold)
{
    check_survives(HF_OP_RELEASE, ":1\r\n", 1);
    check_survives(HF_OP_RELEASE, ":2\r\n", 2);
    check_survives(HF_OP_EXTEND, ":1\r\n", 1);
    check_survives(HF_OP_CHECK, ":1\r\n", 1);
    check_survives(HF_OP_COMPLETE, ":1\r\n", 1);
}

CHECK_MAIN
