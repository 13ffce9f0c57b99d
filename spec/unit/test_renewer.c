/* Renewals: when, which together, and what their replies mean. */

#include "base/lease.h"
#include "op/leave.h"
#include "op/renew.h"

#include "renewer_rig.h"

static void add_many(int count, hf_time lease, hf_time now) {
    for (int i = 0; i < count; i++) add_hold(printed("k%03d", i), "me", lease, true, now);
}

TEST(a_renewal_batch_has_at_most_a_hundred_keys) {
    add_many(250, 30 * HF_SECOND, AT(0));
    rig_sleep(AT(0), AT(10000));
    const char *text = sent_over(RENEWER);
    CHECK(strncmp(text, "EVALSHA renew 100 k000 k001 ", 28) == 0);
    const char *second = strchr(text, '\n');
    CHECK(second && strncmp(second, "\nEVALSHA renew 100 k100 ", 24) == 0);
    const char *third = strchr(second + 1, '\n');
    CHECK(third && strncmp(third, "\nEVALSHA renew 50 k200 ", 23) == 0);
    CHECK(strstr(third, " me 30000 me 30000"));
    answer_batch(100, ":1", AT(10001)), CHECK_EQ_U64(stats().renewals, 100);
    answer_batch(100, ":1", AT(10001));
    answer_batch(50, ":1", AT(10001)), CHECK_EQ_U64(stats().renewals, 250);
    CHECK_EQ_U64(stats().renew_batches, 3);
    CHECK_EQ_U64(client_next_tick(), AT(20000));
}

TEST(keys_on_different_shards_are_renewed_separately) {
    static hf_server servers[2] = {{.host = "h1", .port = 1}, {.host = "h2", .port = 2}};
    static const hf_shard shards[2] = {{NULL, 1}, {NULL, 1}};
    RIG_BEGIN(config.mode = HF_MODE_SHARDS, config.servers = servers, config.shards = shards,
              config.server_count = 2);
    CHECK_STR(nodes_of(&rig.client)[0]->server.host, "h1");
    CHECK_STR(nodes_of(&rig.client)[1]->server.host, "h2");
    add_many(20, 30 * HF_SECOND, AT(0));
    hf_client_tick(&rig.client, AT(10000));
    int keys = 0;
    for (size_t node = 0; node < 2; node++) {
        hf_session *renewer = &nodes_of(&rig.client)[node]->links[RENEWER];
        open_session(renewer, AT(10000));
        char *word = strtok((char *)(uintptr_t)output_of(renewer), " \n");
        for (; word; word = strtok(NULL, " \n")) {
            if (word[0] != 'k') continue;
            keys++;
            CHECK_OR(hf_ring_find(ring_of(&rig.client), hf_slice_of(word)) == node,
                     "%s at node %zu", word, node);
        }
    }
    CHECK_EQ_INT(keys, 20);
}

TEST(a_renewal_batch_includes_holds_that_are_due_soon) {
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        add_hold(key, "me", 30 * HF_SECOND, true,
                 AT(100 * i)); /* due 100 ms apart; a thirtieth of the lease is 1 s */
    }
    CHECK_BATCH(AT(0), AT(10000), 11);
    answer_batch(11, ":1", AT(10001));
    CHECK_BATCH(AT(10001), AT(11100), 9);
}

TEST(each_hold_renewed_in_one_batch_gets_its_own_result) {
    hf_hold *a = add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *b = add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *c = add_hold("c", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *d = add_hold("d", "me", 30 * HF_SECOND, true, AT(0));
    CHECK_BATCH(AT(0), AT(10000), 4);
    feed_renewer("*3\r\n:1\r\n:-1\r\n:-2\r\n", AT(10001)); /* and one is missing */
    CHECK(is_held(a));
    CHECK_EQ_INT(reason_of(b), HF_LOST_DELETED);
    CHECK_EQ_INT(reason_of(c), HF_LOST_TAKEN);
    CHECK(is_held(d));
    CHECK(is_at_risk(d) && !is_at_risk(a));
    CHECK_EQ_U64(stats().losses, 2);
    CHECK_EQ_U64(hf_client_loss_count(&rig.client), 2);
    CHECK(!is_in_flight(a) && !is_in_flight(b) && !is_in_flight(c) && !is_in_flight(d));
    CHECK_SENT_UNTIL(RENEWER, AT(10001), AT(11001), "EVALSHA renew 1 d me 30000");
}

/* Its renewal is due at `due`, and it ends 57 ms later. */
static hf_hold *add_short(const char *key, hf_time due) {
    return add_hold(key, "me", 90 * HF_MS, true, due - 30 * HF_MS);
}

TEST(a_short_lease_in_a_batch_does_not_shorten_the_timeout_of_the_other_renewals) {
    hf_hold *a = add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *b = add_short("b", AT(10000));
    rig_sleep(AT(9000), AT(10000));
    CHECK_SENT(RENEWER, "EVALSHA renew 1 a me 30000\nEVALSHA renew 1 b me 90");
    rig_sleep(AT(10000), AT(10080)); /* the server takes its time */
    CHECK(is_lost(b));
    CHECK_EQ_INT(failures_of(a), 0);
    CHECK_EQ_U64(link_of(RENEWER)->opens, 1);
    feed_renewer("*1\r\n:1\r\n*1\r\n:1\r\n", AT(10080));
    CHECK_EQ_U64(ends_at(a), AT(10000 + 29698));
}

TEST(holds_with_about_the_same_time_left_are_renewed_in_one_batch) {
    CASES(int left_ms, size) = {{1000, 2}, {250, 2}, {249, 1}, {4000, 2}, {4004, 1}};
    EACH_CASE (i, cases) {
        hf_hold *a = add_hold("a", "me", 3 * HF_SECOND, true, AT(0));
        hf_hold *b = add_hold("b", "me", 3 * HF_SECOND, true, AT(0));
        set_end(a, AT(2000));
        set_end(b, AT(1000 + cases[i].left_ms));
        rig_sleep(AT(0), AT(1000)), CHECK_OR(batch_size() == cases[i].size, "case %zu", i);
    }
}

/* A server that has just sent something else is alive; one that was silent before is not. */
TEST(a_renewal_without_a_reply_replaces_its_connection_only_if_that_was_silent_long_enough) {
    CASES(int lease, due, fails, awaiting, received; bool replaced) = {
        {600, 200, 450, 200, 0, true},    {300, 100, 297, 100, 0, false},
        {300, 100, 297, -500, 90, false}, {300, 100, 297, -500, 40, true},
        {600, 200, 450, 200, 400, true},
    };
    EACH_CASE (i, cases) {
        hf_session *link = link_of(RENEWER);
        hf_hold *hold = add_hold("k", "me", (hf_time)cases[i].lease * HF_MS, true, AT(0));
        hf_session_opening(link, AT(0));
        hf_session_opened(link, AT(0));
        hf_client_tick(&rig.client, AT(cases[i].due)), CHECK(is_in_flight(hold));
        link->awaiting_since = AT(cases[i].awaiting);
        link->received_at = AT(cases[i].received);
        hf_client_tick(&rig.client, AT(cases[i].fails));
        CHECK_EQ_INT(hf_session_wants(link, AT(cases[i].fails)) == HF_WANT_CLOSE,
                     cases[i].replaced);
    }
}

/* It gets all of the time that is left, and is not begun anew for a hold that ends meanwhile. */
TEST(a_renewal_does_not_restart_a_connection_that_is_being_opened) {
    hf_session *link = link_of(RENEWER);
    hf_hold *hold = add_hold("k", "me", 900 * HF_MS, true, AT(0));
    hf_session_opening(link, AT(290));
    hf_client_tick(&rig.client, AT(300)), CHECK(is_in_flight(hold));
    hf_client_tick(&rig.client, AT(700)), CHECK_EQ_INT(failures_of(hold), 0);
    hf_client_tick(&rig.client, AT(900)), CHECK(is_lost(hold));
    CHECK(hf_session_wants(link, AT(900)) != HF_WANT_CLOSE);
}

TEST(a_late_renewal_is_counted_in_the_metrics_only_if_its_hold_was_not_lost) {
    EACH_NUMBER (lost, 2) {
        const hf_class *class = hf_observe_class_at(&rig.client, hf_observe_class(&rig.client, ""));
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        set_at_risk(hold, true);
        if (lost) lose_hold(hold, HF_LOST_EXPIRED);
        hf_renewer_on_renewed(&rig.client, claim_of(hold), AT(1), AT(2));
        CHECK_EQ_U64(class->renewed_late, !lost);
    }
}

static const char FIVE[] = "abcde";

/* Five locks whose renewal is under way since AT(10000). */
static void renew_five(hf_hold *holds[5]) {
    rig_begin();
    for (int i = 0; i < 5; i++) {
        char key[2] = {FIVE[i], '\0'};
        holds[i] = add_hold(key, "me", 30 * HF_SECOND, true, AT(0));
    }
    rig_sleep(AT(0), AT(10000));
}

TEST(a_key_that_the_server_refuses_does_not_prevent_the_renewal_of_the_others) {
    static const char *const errors[] = {"-NOPERM no\r\n", "-CROSSSLOT no\r\n", "-ERR no\r\n",
                                         "-WRONGTYPE no\r\n"};
    for (size_t n = 0; n < sizeof errors / sizeof *errors; n++) {
        hf_hold *holds[5];
        renew_five(holds), CHECK_EQ_INT(batch_size(), 5);
        feed_renewer(errors[n], AT(10001));
        CHECK_SENT_AT(RENEWER, AT(10001),
                      "EVALSHA renew 1 a me 30000\nEVALSHA renew 1 b me 30000\n"
                      "EVALSHA renew 1 c me 30000\nEVALSHA renew 1 d me 30000\n"
                      "EVALSHA renew 1 e me 30000");
        for (int i = 0; i < 5; i++) feed_renewer(i == 1 ? errors[n] : "*1\r\n:1\r\n", AT(10002));
        for (int i = 0; i < 5; i++) {
            CHECK_EQ_U64(ends_at(holds[i]), AT(i == 1 ? 29698 : 10001 + 29698));
            CHECK_EQ_INT(is_at_risk(holds[i]), i == 1);
        }
        int alone = 0;
        for (int ms = 10010; ms < 20000; ms += 10) { /* it is tried again, by itself */
            rig_sleep(AT(ms), AT(ms + 10));
            int size = batch_size();
            CHECK(size <= 1);
            if (size == 1) feed_renewer(errors[n], AT(ms + 10));
            alone += size;
        }
        CHECK(alone > 3);
        CHECK_BATCH(AT(20000), AT(20001), 4);
        answer_batch(4, ":1", AT(20002));
        rig_sleep(AT(20002), AT(29698));
        for (int i = 0; i < 5; i++)
            CHECK_EQ_INT(hold_state(holds[i]), i == 1 ? HF_HOLD_LOST : HF_HOLD_HELD);
        CHECK_EQ_INT(reason_of(holds[1]), HF_LOST_UNREACHABLE);
    }
}

TEST(a_renewal_batch_without_a_reply_is_not_split) {
    for (int closed = 0; closed < 2; closed++) {
        hf_hold *holds[5];
        renew_five(holds);
        sent_over(RENEWER);
        if (closed) cut_link(RENEWER, "reset", AT(10001));
        else feed_renewer("-LOADING wait\r\n", AT(10001));
        CHECK_BATCH(AT(10001), AT(10200), 5);
    }
}

static void feed_refusal_of_five(hf_time now) {
    feed_renewer("-ERR no\r\n", now);
    rig_tick(now);
    sent_over(RENEWER);
    for (int i = 0; i < 5; i++) feed_renewer("*1\r\n:1\r\n", now);
}

TEST(a_server_that_accepts_a_renewal_batch_between_refusals_keeps_getting_batches) {
    hf_hold *holds[5];
    renew_five(holds);
    for (int round = 1; round <= 12; round++) {
        rig_sleep(AT(10000 * round), AT(10000 * round)), CHECK_EQ_INT(batch_size(), 5);
        if (round % 3 > 0) feed_refusal_of_five(AT(10000 * round));
        else answer_batch(5, ":1", AT(10000 * round));
    }
    CHECK(is_held(holds[4]));
}

TEST(a_minute_after_it_refused_three_renewal_batches_a_server_gets_a_batch_again) {
    for (int well = 0; well <= 1; well++) {
        hf_hold *holds[5];
        renew_five(holds);
        for (int round = 1; round <= 16; round++) {
            bool batch = round <= 3 || round == 9 || round == 15 || (well && round > 9);
            rig_sleep(AT(10000 * round), AT(10000 * round));
            CHECK_OR(batch_size() == (batch ? 5 : 1), "round %d", round);
            if (batch && well && round >= 9) answer_batch(5, ":1", AT(10000 * round));
            else if (batch) feed_refusal_of_five(AT(10000 * round));
            else
                for (int i = 0; i < 5; i++) feed_renewer("*1\r\n:1\r\n", AT(10000 * round));
        }
    }
}

TEST(a_failed_renewal_is_retried_within_the_lease) {
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    int tries = 0;
    for (int ms = 10000; ms <= 29000; ms += 10) {
        rig_sleep(AT(ms - 10), AT(ms));
        if (batch_size() == 0) continue;
        tries++;
        feed_renewer("-OOM command not allowed\r\n", AT(ms)), CHECK(is_at_risk(hold));
        CHECK(hf_hold_is_valid(hold, AT(ms)));
    }
    CHECK_OR(tries >= 15 && tries <= 60, "%d tries", tries);
    CHECK_EQ_INT(failures_of(hold), tries);
    rig_sleep(AT(29000), AT(29200));
    feed_renewer("*1\r\n:1\r\n", AT(29200)), CHECK(!is_at_risk(hold));
    CHECK_EQ_INT(failures_of(hold), 0);
}

/* Wakes the client until `until`, as rig_sleep does, but leaves the links to the test. */
static void tick_until(hf_time until) {
    for (hf_time at; (at = client_next_tick()) <= until;) {
        hf_client_tick(&rig.client, at);
        if (client_next_tick() == at) break;
    }
    hf_client_tick(&rig.client, until);
}

/* A grant of 200 ms, received 50 ms after it began. */
static hf_hold *add_grant(void) {
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    set_granted(hold, true);
    set_end(hold, hf_lease_end(AT(0), 200 * HF_MS));
    set_confirm_time(hold, AT(50) + (ends_at(hold) - AT(50)) / 3);
    set_wait(hold, 1);
    set_token_ttl(hold, 1000);
    hf_renewer_resume(&rig.client, claim_of(hold), AT(50));
    return hold;
}

TEST(a_grants_confirmation_waits_for_its_connection_until_the_grant_ends) {
    hf_hold *hold = add_grant();
    hf_session *link = link_of(RENEWER);
    tick_until(AT(100)), CHECK_EQ_INT(hf_session_wants(link, AT(100)), HF_WANT_OPEN);
    hf_session_opening(link, AT(100));
    tick_until(AT(170));
    hf_session_opened(link, AT(170)), CHECK_SENT(RENEWER, CONFIRM_K);
    tick_until(AT(195)), CHECK_EQ_INT(failures_of(hold), 0);
    feed_renewer(":1\r\n", AT(195)), CHECK(is_held(hold));
    CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(170), 30 * HF_SECOND));
}

TEST(a_renewal_without_a_reply_keeps_half_of_the_lease_for_a_new_connection) {
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    rig_sleep(AT(0), AT(900));
    hf_session_opening(link_of(RENEWER), AT(900));
    hf_session_opened(link_of(RENEWER), AT(900));
    CHECK_BATCH(AT(900), AT(1900), 1);
    rig_sleep(AT(1900), AT(2200)), CHECK_EQ_INT(failures_of(hold), 1);
    CHECK_EQ_U64(link_of(RENEWER)->opens, 2);
    CHECK_EQ_INT(batch_size(), 1);
    feed_renewer("*1\r\n:1\r\n", AT(2900)), CHECK(is_held(hold));
}

TEST(a_renewal_that_runs_out_of_memory_is_retried) {
    EACH_FAILURE(nth, 3) {
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        hf_session_opening(link_of(RENEWER), AT(0));
        hf_session_opened(link_of(RENEWER), AT(0));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(10000));
        bool failed = memerr_end();
        CHECK(is_held(hold));
        CHECK_EQ_INT(is_at_risk(hold), failed);
        CHECK(client_next_tick() > AT(10000));
        CHECK_BATCH(AT(10000), AT(11500), 1);
    }
}

TEST(a_client_that_remains_out_of_memory_does_not_retry_renewals_in_a_busy_loop) {
    hf_hold *hold = add_hold("k", "me", 300 * HF_MS, true, AT(0));
    hf_hold *left = add_hold("l", "me", 300 * HF_MS, true, AT(0));
    hf_holds_begin_leaving(holds_of(&rig.client), claim_of(left));
    rig.refusing = true;
    int wakes = 0;
    for (hf_time now = AT(0); now < AT(400); wakes++) {
        memerr_fail(1);
        hf_client_tick(&rig.client, now);
        memerr_fail(0);
        rig_serve(now), CHECK(client_next_tick() > now);
        now = client_next_tick();
    }
    CHECK(wakes < 200);
    CHECK(is_lost(hold));
}

TEST(a_hold_with_a_fixed_lease_does_not_wake_up_its_client_before_its_end) {
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, false, AT(0));
    hf_holds_set_wake_at(holds_of(&rig.client), claim_of(hold), AT(100));
    rig_tick(AT(100)), CHECK_EQ_U64(renewer_next_tick(), ends_at(hold));
    CHECK_SILENT();
}

TEST(a_renewal_batch_includes_no_holds_that_have_ended) {
    EACH_NUMBER (over, 2) {
        set_end(add_hold("a", "me", 30 * HF_SECOND, true, AT(0)), AT(10000) + 1);
        hf_hold *hold = add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
        set_end(hold, AT(10000) + !over);
        hf_client_tick(&rig.client, AT(10000));
        rig_serve(AT(10000)), CHECK_EQ_INT(batch_size(), over ? 1 : 2);
        CHECK_EQ_INT(hold_state(hold), over ? HF_HOLD_LOST : HF_HOLD_HELD);
    }
}

CHECK_MAIN
