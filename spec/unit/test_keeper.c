#include "client_internal.h"

#include "drive.h"

static struct rig rig;

#define CALLS HF_LINK_CALLS
#define KEEPER HF_LINK_KEEPER

static void hear_keeper(const char *text, hf_time now)
{
    hear(link_of(&rig, KEEPER), text, now);
    rig_serve(&rig, now);
}

/* A hold as after an acquire whose command was sent at `now`. */
static hf_hold *add_hold(const char *key, const char *owner, hf_time lease, bool renewed,
                         hf_time now)
{
    hf_holds *holds = &rig.client.holds;
    hf_hold *hold = hf_holds_add(holds, HF_LAYOUT_LOCK, hf_slice_of(key), hf_slice_of(owner));
    if (!hold) abort();
    hold->state = HF_HOLD_HELD;
    hold->count = 1;
    hold->lease = lease;
    hold->renewed = renewed;
    hold->valid_until = hf_lease_end(now, lease);
    hf_holds_wake_at(holds, hold, renewed ? hf_lease_renew_at(now, lease) : hold->valid_until);
    return hold;
}

static void add_many(int count, hf_time lease, hf_time now)
{
    char key[16];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "k%03d", i);
        add_hold(key, "me", lease, true, now);
    }
}

/* How many locks the next renewal on the wire is about. */
static int batch_size(void)
{
    const char *text = said(link_of(&rig, KEEPER));
    int count = 0;
    return sscanf(text, "EVALSHA renew %d", &count) == 1 ? count : 0;
}

static void answer_batch(int count, const char *result, hf_time now)
{
    char bytes[2048];
    int size = snprintf(bytes, sizeof bytes, "*%d\r\n", count);
    for (int i = 0; i < count; i++)
        size += snprintf(bytes + size, sizeof bytes - (size_t)size, "%s\r\n", result);
    hear_keeper(bytes, now);
}

/* ---- renewing ---- */

TEST(renewed_after_a_third_of_the_lease)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000) - 1);
    CHECK_SAID(&rig, KEEPER, "");
    rig_sleep(&rig, AT(10000) - 1, AT(10000));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 30000");
    CHECK(hold->busy);
    CHECK_EQ_U64(hold->wake_at,
                 hold->valid_until); /* so that a renewal that never lands does not hide the loss */
    answer_batch(1, ":1", AT(10400));
    CHECK(!hold->busy);
    CHECK_EQ_U64(hold->valid_until, AT(10000 + 29698));
    CHECK_EQ_U64(hold->wake_at, AT(20000));
    CHECK_EQ_U64(rig.client.stats.renewals, 1);
    CHECK_EQ_U64(rig.client.stats.renew_batches, 1);
    rig_end(&rig, AT(11000));
}

TEST(held_as_long_as_it_is_renewed)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    int wakes = 0;
    for (int ms = 0; ms < 60000; ms += 10) {
        wakes += rig_sleep(&rig, AT(ms), AT(ms + 10));
        if (batch_size() == 1) answer_batch(1, ":1", AT(ms + 10));
        CHECK(hf_hold_is_valid(hold, AT(ms + 10)));
    }
    CHECK(rig.client.stats.renewals >= 55 && rig.client.stats.renewals <= 61);
    CHECK(wakes < 200);
    rig_end(&rig, AT(60000));
}

TEST(at_most_a_hundred_in_a_batch)
{
    rig_begin(&rig);
    add_many(250, 30 * HF_SECOND, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    const char *text = said(link_of(&rig, KEEPER));
    CHECK(strncmp(text, "EVALSHA renew 100 k000 k001 ", 28) == 0);
    const char *second = strchr(text, '\n');
    CHECK(second && strncmp(second, "\nEVALSHA renew 100 k100 ", 24) == 0);
    const char *third = strchr(second + 1, '\n');
    CHECK(third && strncmp(third, "\nEVALSHA renew 50 k200 ", 23) == 0);
    CHECK(strstr(third, " me 30000 me 30000"));
    answer_batch(100, ":1", AT(10001));
    CHECK_EQ_U64(rig.client.stats.renewals, 100);
    answer_batch(100, ":1", AT(10001));
    answer_batch(50, ":1", AT(10001));
    CHECK_EQ_U64(rig.client.stats.renewals, 250);
    CHECK_EQ_U64(rig.client.stats.renew_batches, 3);
    CHECK_EQ_U64(hf_client_deadline(&rig.client), AT(20000));
    rig_end(&rig, AT(11000));
}

TEST(what_is_soon_due_goes_along)
{
    rig_begin(&rig);
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        add_hold(key, "me", 30 * HF_SECOND, true,
                 AT(100 * i)); /* due 100 ms apart; a thirtieth of the lease is 1 s */
    }
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_EQ_INT(batch_size(), 11);
    answer_batch(11, ":1", AT(10001));
    rig_sleep(&rig, AT(10001), AT(11100));
    CHECK_EQ_INT(batch_size(), 9);
    rig_end(&rig, AT(12000));
}

TEST(only_what_is_renewed_goes_along)
{
    rig_begin(&rig);
    add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *busy_one = add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
    busy_one->busy = true;
    hf_hold *lost = add_hold("c", "me", 30 * HF_SECOND, true, AT(0));
    hf_client_lose(&rig.client, lost, HF_LOST_TAKEN);
    add_hold("d", "me", 10 * HF_SECOND, false, AT(0)); /* ends at AT(9898) */
    add_hold("e", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 a me 30000\nEVALSHA renew 1 e me 30000");
    rig_end(&rig, AT(12000));
}

TEST(layouts_are_renewed_apart)
{
    rig_begin(&rig);
    add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    add_hold("b", "me", 30 * HF_SECOND, true, AT(0))->layout = HF_LAYOUT_MUTEX;
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 a me 30000\nEVALSHA mutex_renew 1 b me 30000");
    rig_end(&rig, AT(12000));
}

TEST(each_gets_its_own_answer)
{
    rig_begin(&rig);
    hf_hold *a = add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *b = add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *c = add_hold("c", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *d = add_hold("d", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_EQ_INT(batch_size(), 4);
    hear_keeper("*3\r\n:1\r\n:-1\r\n:-2\r\n", AT(10001)); /* and one is missing */
    CHECK_EQ_INT(a->state, HF_HOLD_HELD);
    CHECK_EQ_INT(b->reason, HF_LOST_DELETED);
    CHECK_EQ_INT(c->reason, HF_LOST_TAKEN);
    CHECK_EQ_INT(d->state, HF_HOLD_HELD);
    CHECK(d->at_risk && !a->at_risk);
    CHECK_EQ_U64(rig.client.stats.losses, 2);
    CHECK_EQ_U64(rig.client.holds.news, 2);
    CHECK(!a->busy && !b->busy && !c->busy && !d->busy);
    rig_sleep(&rig, AT(10001), AT(11001));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 d me 30000");
    rig_end(&rig, AT(12000));
}

/* ---- renewals that fail ---- */

TEST(a_failed_renewal_is_retried_within_the_lease)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    int tries = 0;
    for (int ms = 10000; ms <= 29000; ms += 10) {
        rig_sleep(&rig, AT(ms - 10), AT(ms));
        if (batch_size() == 0) continue;
        tries++;
        hear_keeper("-OOM command not allowed\r\n", AT(ms));
        CHECK(hold->at_risk);
        CHECK(hf_hold_is_valid(hold, AT(ms)));
    }
    CHECK_OR(tries >= 15 && tries <= 60, "%d tries", tries);
    CHECK_EQ_INT(hold->failures, tries);
    rig_sleep(&rig, AT(29000), AT(29200));
    hear_keeper("*1\r\n:1\r\n", AT(29200));
    CHECK(!hold->at_risk);
    CHECK_EQ_INT(hold->failures, 0);
    rig_end(&rig, AT(30000));
}

TEST(lost_before_the_lease_can_end)
{
    static const int leases_ms[] = {1, 2, 5, 20, 100, 1000, 3000, 30000};
    for (size_t i = 0; i < sizeof leases_ms / sizeof *leases_ms; i++) {
        rig_begin(&rig);
        rig.refusing = true;
        hf_hold *hold = add_hold("k", "me", (hf_time)leases_ms[i] * HF_MS, true, AT(0));
        int wakes = rig_sleep(&rig, AT(0), AT(leases_ms[i]) - 1);
        CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
        CHECK_OR(hold->reason == HF_LOST_UNREACHABLE || hold->reason == HF_LOST_EXPIRED, "lease %d",
                 leases_ms[i]);
        if (leases_ms[i] > 100) CHECK_EQ_INT(hold->reason, HF_LOST_UNREACHABLE);
        CHECK_EQ_U64(rig.client.holds.news, 1);
        CHECK_OR(wakes < 200, "%d wakes", wakes);
        rig_end(&rig, AT(40000));
    }
}

TEST(a_silent_server_does_not_hide_the_loss)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(29698) - 1);
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    CHECK(rig.client.first.links[KEEPER].opens >
          2); /* a server that does not answer is tried over new connections */
    rig_sleep(&rig, AT(29698) - 1, AT(29698));
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_INT(hold->reason, HF_LOST_UNREACHABLE);
    rig_end(&rig, AT(30000));
}

/* Wakes the client until `until`, as rig_sleep does, but leaves the links to the test. */
static void tick_until(hf_time until)
{
    for (hf_time at; (at = hf_client_deadline(&rig.client)) <= until;) {
        hf_client_tick(&rig.client, at);
        if (hf_client_deadline(&rig.client) == at) break;
    }
    hf_client_tick(&rig.client, until);
}

/* A grant of 200 ms, heard 50 ms after it began. */
static hf_hold *add_grant(void)
{
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hold->granted = true;
    hold->valid_until = hf_lease_end(AT(0), 200 * HF_MS);
    hf_keeper_resume(&rig.client, hold, AT(50));
    return hold;
}

TEST(a_confirmation_has_all_that_is_left_for_its_connection)
{
    rig_begin(&rig);
    hf_hold *hold = add_grant();
    hf_session *link = link_of(&rig, KEEPER);
    tick_until(AT(100));
    CHECK_EQ_INT(hf_session_wants(link, AT(100)), HF_WANT_OPEN);
    hf_session_opening(link, AT(100));
    tick_until(AT(170));
    hf_session_opened(link, AT(170));
    CHECK_SAID(&rig, KEEPER, "EVALSHA extend 2 k holdfast_queue:{k} me 30000 2000");
    tick_until(AT(195));
    CHECK_EQ_INT(hold->failures, 0);
    hear_keeper(":1\r\n", AT(195));
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    CHECK_EQ_U64(hold->valid_until, hf_lease_end(AT(170), 30 * HF_SECOND));
    rig_end(&rig, AT(1000));
}

TEST(a_slow_answer_to_a_confirmation_is_in_time)
{
    rig_begin(&rig);
    begin(&rig, HF_OP_PING, AT(0));
    hf_session *link = link_of(&rig, KEEPER);
    hf_session_opening(link, AT(0));
    hf_session_opened(link, AT(1));
    hf_hold *hold = add_grant();
    rig_sleep(&rig, AT(50), AT(100));
    CHECK(strstr(said(link), "EVALSHA extend"));
    rig_sleep(&rig, AT(100), AT(190));
    hear_keeper(":1\r\n", AT(190));
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    CHECK_EQ_INT(hold->failures, 0);
    CHECK_EQ_U64(link->opens, 1);
    rig_end(&rig, AT(1000));
}

TEST(half_of_what_is_left_is_for_a_new_connection)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(900));
    hf_session_opening(link_of(&rig, KEEPER), AT(900));
    hf_session_opened(link_of(&rig, KEEPER), AT(900));
    rig_sleep(&rig, AT(900), AT(1900));
    CHECK_EQ_INT(batch_size(), 1);
    rig_sleep(&rig, AT(1900), AT(2200));
    CHECK_EQ_INT(hold->failures, 1);
    CHECK_EQ_U64(link_of(&rig, KEEPER)->opens, 2);
    CHECK_EQ_INT(batch_size(), 1);
    hear_keeper("*1\r\n:1\r\n", AT(2900));
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    rig_end(&rig, AT(4000));
}

TEST(a_link_that_the_callers_have_too_is_not_given_up_early)
{
    hf_client_config config = rig_config();
    config.keeper = HF_LINK_CALLS;
    rig_begin_with(&rig, &config);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    begin(&rig, HF_OP_PING, AT(900));
    hear(link_of(&rig, HF_LINK_CALLS), "+PONG\r\n", AT(901));
    rig_sleep(&rig, AT(901), AT(2900));
    CHECK_EQ_INT(hold->failures, 0);
    hear(link_of(&rig, HF_LINK_CALLS), "*1\r\n:1\r\n", AT(2900));
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    CHECK_EQ_U64(link_of(&rig, HF_LINK_CALLS)->opens, 1);
    rig_end(&rig, AT(4000));
}

TEST(a_link_that_answers_that_it_is_loading_is_not_given_up)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    for (int ms = 10000; ms < 25000; ms += 10) {
        rig_sleep(&rig, AT(ms - 10), AT(ms));
        if (batch_size() > 0) hear_keeper("-LOADING Redis is loading\r\n", AT(ms));
    }
    CHECK(hold->failures > 0);
    CHECK_EQ_U64(link_of(&rig, KEEPER)->opens, 1);
    rig_end(&rig, AT(25000));
}

TEST(what_ends_while_its_renewal_is_under_way_was_unreachable)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 300 * HF_MS, true, AT(0));
    rig_sleep(&rig, AT(0), AT(150));
    CHECK_EQ_INT(batch_size(), 1);
    hf_client_notice(&rig.client, AT(300));
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_INT(hold->reason, HF_LOST_UNREACHABLE);
    rig_end(&rig, AT(1000));
}

TEST(an_explicit_lease_expires)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 5 * HF_SECOND, false, AT(0));
    rig_sleep(&rig, AT(0), AT(5000));
    CHECK_EQ_INT(hold->reason, HF_LOST_EXPIRED);
    CHECK_SILENT(&rig);
    CHECK_EQ_U64(rig.opens, 0);
    rig_end(&rig, AT(6000));
}

TEST(a_renewal_lost_with_its_connection_is_sent_again)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    said(link_of(&rig, KEEPER));
    hf_session_closed(link_of(&rig, KEEPER), "reset", AT(10100));
    rig_sleep(&rig, AT(10100), AT(10200));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 30000");
    answer_batch(1, ":1", AT(10300));
    CHECK(hold->valid_until > AT(39698) && hold->valid_until <= AT(10200 + 29698));
    rig_end(&rig, AT(11000));
}

TEST(an_answer_after_the_loss_changes_nothing)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(1000));
    CHECK_EQ_INT(batch_size(), 1);
    hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
    answer_batch(1, ":1", AT(1001));
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_U64(rig.client.stats.late_renewals, 1);
    CHECK(!hold->busy);
    rig_end(&rig, AT(11000));
}

TEST(an_answer_after_the_hold_was_let_go_changes_nothing)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(1000));
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_client_abandon(&rig.client, hold, 1, AT(1001));
    CHECK_EQ_INT(rig.client.holds.count, 0);
    hf_hold *again = add_hold("k", "me", 3 * HF_SECOND, true, AT(1002));
    answer_batch(1, ":-1", AT(1003)); /* about the old one */
    CHECK_EQ_INT(again->state, HF_HOLD_HELD);
    CHECK_EQ_U64(rig.client.stats.losses, 1);
    rig_end(&rig, AT(11000));
}

TEST(an_answer_of_another_kind_is_a_failure)
{
    static const char *const replies[] = {"+OK\r\n",           "$-1\r\n", "*0\r\n",
                                          "*1\r\n$1\r\nx\r\n", ":0\r\n",  "-ERR no\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        rig_sleep(&rig, AT(0), AT(10000));
        hear_keeper(replies[i], AT(10001));
        CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
        CHECK(hold->at_risk && !hold->busy);
        CHECK_EQ_U64(hold->valid_until, AT(29698));
        rig_end(&rig, AT(11000));
    }
}

TEST(a_client_may_renew_over_its_callers_link)
{
    hf_client_config config = rig_config();
    config.keeper = CALLS;
    rig_begin_with(&rig, &config);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_SAID(&rig, CALLS, "EVALSHA renew 1 k me 30000");
    CHECK_EQ_INT(link_of(&rig, KEEPER)->state, HF_SESSION_CLOSED);
    hear_calls(&rig, "*1\r\n:1\r\n", AT(10001));
    CHECK_EQ_U64(hold->wake_at, AT(20000));
    rig_end(&rig, AT(11000));
}

/* ---- confirming a grant ---- */

static hf_hold *granted_hold(bool renewed)
{
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.wait = HF_NEVER;
    spec.renewed = renewed;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(0));
    rig_serve(&rig, AT(0));
    hear_calls(&rig, busy(20000, 0, 0), AT(0));
    hear_subscribed(&rig, AT(0));
    hear_calls(&rig, busy(20000, 0, 0), AT(0));
    hear_message(&rig, "grant 1 88 2000 0 2 mek", AT(100));
    if (!op->done) abort();
    hf_op_end(op, AT(100));
    said(link_of(&rig, CALLS));
    return hold_of(&rig);
}

TEST(a_grant_is_confirmed_to_the_lease)
{
    for (int renewed = 0; renewed < 2; renewed++) {
        rig_begin(&rig);
        hf_hold *hold = granted_hold(renewed);
        CHECK_EQ_U64(hold->valid_until, AT(1978));
        rig_sleep(&rig, AT(100), AT(800));
        CHECK_SAID(&rig, KEEPER, "EVALSHA extend 2 k holdfast_queue:{k} me 30000 2000");
        CHECK(hold->granted && hold->busy);
        hf_time sent_at = AT(100) + (AT(1978) - AT(100)) / 3;
        hear_keeper(":1\r\n", AT(801));
        CHECK(!hold->granted && !hold->busy);
        CHECK_EQ_U64(hold->valid_until, hf_lease_end(sent_at, 30 * HF_SECOND));
        CHECK_EQ_U64(hold->wake_at, renewed ? sent_at + 10 * HF_SECOND : hold->valid_until);
        rig_end(&rig, AT(1000));
    }
}

TEST(a_grant_that_cannot_be_confirmed_is_lost_in_time)
{
    rig_begin(&rig);
    hf_hold *hold = granted_hold(true);
    rig.refusing = true;
    rig_sleep(&rig, AT(100), AT(1978) - 1);
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    rig_sleep(&rig, AT(1978) - 1, AT(1978));
    CHECK_EQ_INT(hold->reason, HF_LOST_UNREACHABLE);
    rig_end(&rig, AT(3000));
}

TEST(a_grant_that_was_taken_back)
{
    rig_begin(&rig);
    hf_hold *hold = granted_hold(true);
    rig_sleep(&rig, AT(100), AT(800));
    hear_keeper(":-2\r\n", AT(801));
    CHECK_EQ_INT(hold->reason, HF_LOST_TAKEN);
    rig_end(&rig, AT(1000));
}

TEST(a_grant_with_an_explicit_lease_that_is_released_in_part_is_still_confirmed)
{
    rig_begin(&rig);
    hf_hold *hold = granted_hold(false);
    hf_op_spec spec = spec_of(&rig, HF_OP_CHECK);
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(200));
    hear_calls(&rig, ":1\r\n", AT(201));
    CHECK_OUTCOME(op, "ok");
    rig_sleep(&rig, AT(201), AT(800));
    CHECK_SAID(&rig, KEEPER, "EVALSHA extend 2 k holdfast_queue:{k} me 30000 2000");
    CHECK(hold->granted);
    rig_end(&rig, AT(1000));
}

/* ---- leaving ---- */

TEST(what_was_left_behind_is_left)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_keeper_leave(&rig.client, hold, AT(10));
    CHECK(!hf_client_is_quiet(&rig.client));
    rig_tick(&rig, AT(10));
    CHECK_SAID(&rig, KEEPER, LEAVE_OF_K("0", ""));
    rig_sleep(&rig, AT(10), AT(1000));
    CHECK_SAID(&rig, KEEPER, ""); /* once */
    hear_keeper(":1\r\n", AT(1001));
    CHECK(!hold_of(&rig));
    CHECK(hf_client_is_quiet(&rig.client));
    CHECK_EQ_U64(rig.client.stats.undone, 1);
    rig_end(&rig, AT(1002));
}

TEST(leaving_is_retried_and_given_up_when_the_lease_has_ended)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_keeper_leave(&rig.client, hold, AT(0));
    int tries = 0;
    for (int ms = 0; ms < 31000 && hold_of(&rig); ms += 10) {
        rig_sleep(&rig, AT(ms), AT(ms + 10));
        if (said(link_of(&rig, KEEPER))[0] == '\0') continue;
        tries++;
        hear_keeper("-OOM command not allowed\r\n", AT(ms + 10));
    }
    CHECK(!hold_of(&rig));
    CHECK_OR(tries > 25 && tries < 100, "%d tries", tries);
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(40000));
}

TEST(leaving_a_server_that_is_gone_ends)
{
    rig_begin(&rig);
    rig.refusing = true;
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_keeper_leave(&rig.client, hold, AT(0));
    int wakes = rig_sleep(&rig, AT(0), AT(40000));
    CHECK(!hold_of(&rig));
    CHECK_OR(wakes < 300, "%d wakes", wakes);
    CHECK_EQ_U64(hf_client_deadline(&rig.client), HF_NEVER);
    rig_end(&rig, AT(40000));
}

TEST(a_key_that_became_something_else_needs_no_leaving)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_keeper_leave(&rig.client, hold, AT(0));
    rig_tick(&rig, AT(0));
    hear_keeper("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", AT(1));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(2));
}

TEST(left_with_its_place_in_the_queue)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hold->wait = 7;
    hold->token_ttl_ms = 1000;
    hold->base = 2;
    hold->in_order = true;
    hf_keeper_leave(&rig.client, hold, AT(0));
    rig_tick(&rig, AT(0));
    CHECK_SAID(&rig, CALLS, LEAVE_OF_K("2", PLACE("7")));
    CHECK_SAID(&rig, KEEPER, "");
    rig_end(&rig, AT(2));
}

TEST(left_while_it_is_renewed)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_EQ_INT(batch_size(), 1);
    hf_client_abandon(&rig.client, hold, 1, AT(10001));
    rig_sleep(&rig, AT(10001), AT(10100));
    CHECK_SAID(&rig, KEEPER, "");
    answer_batch(1, ":1", AT(10100));
    CHECK_EQ_U64(rig.client.stats.renewals, 1);
    rig_tick(&rig, AT(10100));
    CHECK_SAID(&rig, KEEPER, LEAVE_OF_K("0", ""));
    hear_keeper(":1\r\n", AT(10101));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(11000));
}

TEST(left_while_its_renewal_fails)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    said(link_of(&rig, KEEPER));
    hf_client_abandon(&rig.client, hold, 1, AT(10001));
    hear_keeper("-OOM no\r\n", AT(10002));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_LEAVING);
    rig_tick(&rig, AT(10002));
    CHECK_SAID(&rig, KEEPER, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(11000));
}

TEST(left_while_extended)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_op *op = begin(&rig, HF_OP_EXTEND, AT(10));
    hf_client_abandon(&rig.client, hold, 1, AT(11));
    rig_tick(&rig, AT(12));
    CHECK_SAID(&rig, KEEPER, "");
    hear_calls(&rig, ":1\r\n", AT(13));
    CHECK(op->done);
    rig_tick(&rig, AT(13));
    CHECK_SAID(&rig, KEEPER, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(11000));
}

TEST(whoever_waits_for_a_leaving_that_is_given_up_goes_on)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_keeper_leave(&rig.client, hold, AT(0));
    hf_holds_wake_at(&rig.client.holds, hold, hold->valid_until); /* its last try has failed */
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.shared = true; /* which does not adopt */
    spec.wait = HF_NEVER;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(29990));
    CHECK_EQ_INT(op->state, HF_ACQUIRE_BLOCKED);
    rig_sleep(&rig, AT(29990), AT(30000));
    CHECK_EQ_INT(op->state, HF_ACQUIRE_ASKING);
    rig_end(&rig, AT(34000));
}

/* ---- only with the owner's word ---- */

static void begin_attended(void)
{
    hf_client_config config = rig_config();
    config.attended = true;
    rig_begin_with(&rig, &config);
}

TEST(attended_it_is_renewed_only_with_its_owners_word)
{
    begin_attended();
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(12000));
    CHECK_SAID(&rig, KEEPER, "");
    CHECK(hold->asks);
    CHECK_EQ_U64(rig.client.asked, 1);
    hf_client_allow(&rig.client, hold, AT(12000));
    rig_tick(&rig, AT(12000));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 30000");
    answer_batch(1, ":1", AT(12001));
    CHECK_EQ_U64(hold->wake_at, AT(22000));
    rig_sleep(&rig, AT(12001), AT(25000)); /* one word, one renewal */
    CHECK_SAID(&rig, KEEPER, "");
    CHECK(hold->asks);
    rig_sleep(&rig, AT(25000), AT(12000 + 29698));
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    rig_end(&rig, AT(50000));
}

TEST(attended_a_word_that_was_not_asked_for_counts_for_nothing)
{
    begin_attended();
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_client_allow(&rig.client, hold, AT(1));
    rig_sleep(&rig, AT(1), AT(12000));
    CHECK_SAID(&rig, KEEPER, "");
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_client_allow(&rig.client, hold, AT(12000));
    rig_sleep(&rig, AT(12000), AT(13000));
    CHECK_SAID(&rig, KEEPER, "");
    rig_end(&rig, AT(50000));
}

TEST(attended_it_does_not_go_along_without_its_owners_word)
{
    begin_attended();
    hf_hold *first = add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_EQ_U64(rig.client.asked, 2);
    hf_client_allow(&rig.client, first, AT(10001));
    rig_tick(&rig, AT(10001));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 a me 30000");
    rig_end(&rig, AT(50000));
}

TEST(attended_the_word_may_come_while_a_command_is_in_flight)
{
    begin_attended();
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    begin(&rig, HF_OP_CHECK, AT(10001));
    hf_client_allow(&rig.client, hold, AT(10002));
    rig_tick(&rig, AT(10002));
    CHECK_SAID(&rig, KEEPER, "");
    hear_calls(&rig, ":1\r\n", AT(10003));
    rig_tick(&rig, AT(10003));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 30000");
    rig_end(&rig, AT(50000));
}

/* ---- handles that are gone ---- */

TEST(abandoned)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hold->count = 3;
    hf_client_abandon(&rig.client, hold, 2, AT(1));
    CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
    CHECK_EQ_INT(hold->count, 1);
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    CHECK_EQ_INT(hold->state, HF_HOLD_LEAVING);
    hf_client_abandon(&rig.client, hold, 1, AT(2)); /* by a second handle: nothing more to do */
    CHECK_EQ_INT(hold->state, HF_HOLD_LEAVING);
    rig_end(&rig, AT(3));
}

TEST(abandoned_when_lost)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold_ref(hold);
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_client_abandon(&rig.client, hold, 1, AT(1));
    CHECK(!hold->in_table);
    hf_client_abandon(&rig.client, hold, 1, AT(1));
    hf_hold_unref(hold);
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(3));
}

/* Its last renewal may have been carried out, although nobody heard so. */
TEST(abandoned_when_lost_by_the_clock_it_is_left)
{
    static const hf_lost_reason reasons[] = {HF_LOST_UNREACHABLE, HF_LOST_EXPIRED};
    for (size_t i = 0; i < 2; i++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
        hf_hold_ref(hold);
        hf_client_lose(&rig.client, hold, reasons[i]);
        hf_client_abandon(&rig.client, hold, 1, AT(3000));
        CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
        CHECK_EQ_INT(state_of(&rig), HF_HOLD_LEAVING);
        CHECK(!hf_client_is_quiet(&rig.client));
        rig_tick(&rig, AT(3001));
        CHECK_SAID(&rig, KEEPER, LEAVE_OF_K("0", ""));
        hear_keeper(":1\r\n", AT(3002));
        CHECK_EQ_INT(rig.client.holds.count, 0);
        CHECK(hf_client_is_quiet(&rig.client));
        hf_hold_unref(hold);
        rig_end(&rig, AT(4000));
    }
}

TEST(lost_by_the_clock_and_closed_it_is_left)
{
    static const hf_lost_reason reasons[] = {HF_LOST_UNREACHABLE, HF_LOST_DELETED};
    for (int i = 0; i < 2; i++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
        hf_client_lose(&rig.client, hold, reasons[i]);
        hf_client_close(&rig.client, AT(3000));
        CHECK_EQ_INT(hf_client_is_quiet(&rig.client), i);
        rig_end(&rig, AT(30000));
    }
}

/* ---- memory ---- */

TEST(out_of_memory_a_renewal_is_tried_again)
{
    unsigned long nth = 1;
    bool failed = true;
    for (; failed; nth++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        hf_session_opening(link_of(&rig, KEEPER), AT(0));
        hf_session_opened(link_of(&rig, KEEPER), AT(0));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(10000));
        failed = memerr_failed();
        memerr_fail(0);
        CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
        CHECK_EQ_INT(hold->at_risk, failed);
        CHECK(hf_client_deadline(&rig.client) > AT(10000));
        rig_sleep(&rig, AT(10000), AT(11500));
        CHECK_EQ_INT(batch_size(), 1);
        rig_end(&rig, AT(12000));
    }
    CHECK(nth > 4);
}

TEST(out_of_memory_a_confirmation_is_tried_again)
{
    unsigned long nth = 1;
    bool failed = true;
    for (; failed; nth++) {
        rig_begin(&rig);
        hf_hold *hold = granted_hold(true);
        hf_session_opening(link_of(&rig, KEEPER), AT(100));
        hf_session_opened(link_of(&rig, KEEPER), AT(100));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(800));
        failed = memerr_failed();
        memerr_fail(0);
        rig_serve(&rig, AT(800));
        CHECK_EQ_INT(hold->state, HF_HOLD_HELD);
        CHECK(hf_client_deadline(&rig.client) > AT(800));
        rig_sleep(&rig, AT(800), AT(1100));
        CHECK_SAID(&rig, KEEPER, "EVALSHA extend 2 k holdfast_queue:{k} me 30000 2000");
        rig_end(&rig, AT(12000));
    }
    CHECK(nth > 4);
}

TEST(out_of_memory_all_the_time_is_no_busy_loop)
{
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 300 * HF_MS, true, AT(0));
    hf_hold *left = add_hold("l", "me", 300 * HF_MS, true, AT(0));
    left->state = HF_HOLD_LEAVING;
    rig.refusing = true;
    int wakes = 0;
    for (hf_time now = AT(0); now < AT(400); wakes++) {
        memerr_fail(1);
        hf_client_tick(&rig.client, now);
        memerr_fail(0);
        rig_serve(&rig, now);
        CHECK(hf_client_deadline(&rig.client) > now);
        now = hf_client_deadline(&rig.client);
    }
    CHECK(wakes < 200);
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    rig_end(&rig, AT(12000));
}

TEST(out_of_memory_leaving_is_tried_again)
{
    unsigned long nth = 1;
    bool failed = true;
    for (; failed; nth++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        hf_session_opening(link_of(&rig, KEEPER), AT(0));
        hf_session_opened(link_of(&rig, KEEPER), AT(0));
        hf_keeper_leave(&rig.client, hold, AT(1));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(1));
        failed = memerr_failed();
        memerr_fail(0);
        rig_sleep(&rig, AT(1), AT(1100));
        CHECK_SAID(&rig, KEEPER, LEAVE_OF_K("0", ""));
        rig_end(&rig, AT(12000));
    }
    CHECK(nth > 4);
}

/* ---- the owner's word ---- */

TEST(attended_not_renewed_without_the_owners_word)
{
    rig_begin(&rig);
    rig.client.config.attended = true;
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(1000) - 1);
    CHECK(!hold->asks);
    rig_sleep(&rig, AT(1000) - 1, AT(2900));
    CHECK(hold->asks);
    CHECK_EQ_U64(rig.client.asked, 1);
    CHECK_SAID(&rig, KEEPER, "");
    rig_sleep(&rig, AT(2900), AT(3000));
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_INT(hold->reason, HF_LOST_EXPIRED);
    rig_end(&rig, AT(3000));
}

TEST(attended_one_renewal_for_each_word)
{
    rig_begin(&rig);
    rig.client.config.attended = true;
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_client_allow(&rig.client, hold, AT(500)); /* nobody asked */
    rig_sleep(&rig, AT(500), AT(1000));
    CHECK_SAID(&rig, KEEPER, "");
    hf_client_allow(&rig.client, hold, AT(1000));
    rig_sleep(&rig, AT(1000), AT(1001));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 3000");
    answer_batch(1, ":1", AT(1002));
    rig_sleep(&rig, AT(1002), AT(2100));
    CHECK_EQ_U64(rig.client.asked, 2);
    CHECK_SAID(&rig, KEEPER, "");
    rig_end(&rig, AT(2100));
}

TEST(attended_a_grant_that_nobody_takes_is_not_confirmed)
{
    rig_begin(&rig);
    rig.client.config.attended = true;
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, false, AT(0));
    hold->granted = true;
    hold->valid_until = AT(2000);
    hf_holds_wake_at(&rig.client.holds, hold, AT(600));
    rig_sleep(&rig, AT(0), AT(1999));
    CHECK(hold->asks);
    CHECK_SAID(&rig, KEEPER, "");
    rig_sleep(&rig, AT(1999), AT(2000));
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    rig_end(&rig, AT(2000));
}

TEST(attended_batches_take_only_the_allowed)
{
    rig_begin(&rig);
    rig.client.config.attended = true;
    hf_hold *first = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    add_hold("l", "me", 3 * HF_SECOND, true, AT(50)); /* due soon enough to be taken along */
    rig_sleep(&rig, AT(0), AT(1000));
    CHECK_EQ_U64(rig.client.asked, 1);
    hf_client_allow(&rig.client, first, AT(1001));
    rig_sleep(&rig, AT(1001), AT(1002));
    CHECK_SAID(&rig, KEEPER, "EVALSHA renew 1 k me 3000");
    rig_end(&rig, AT(1002));
}

CHECK_MAIN
