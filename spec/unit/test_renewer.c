#include "op/events.h"
#include "op/operation.h"
#include "op/renewer.h"

#include "drive.h"

static struct rig rig;

#define CALLS HF_LINK_CALLS
#define RENEWER HF_LINK_RENEWER

/* A hold as after an acquire whose command was sent at `now`. */
static hf_hold *add_hold(const char *key, const char *owner, hf_time lease, bool renewed,
                         hf_time now) {
    hf_holds *holds = holds_of(&rig.client);
    hf_hold *hold = hf_holds_add(holds, &hf_kind_lock, hf_slice_of(key), hf_slice_of(owner),
                                 hf_slice_of(owner));
    if (!hold) abort();
    set_hold_state(hold, HF_HOLD_HELD);
    set_count(hold, 1);
    set_count(hold, 1);
    set_lease(hold, lease);
    set_renewed(hold, renewed);
    set_end(hold, hf_lease_end(now, lease));
    hf_holds_wake_at(holds, hold, renewed ? hf_lease_renew_at(now, lease) : ends_at(hold));
    return hold;
}

static void add_many(int count, hf_time lease, hf_time now) {
    char key[16];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "k%03d", i);
        add_hold(key, "me", lease, true, now);
    }
}

/* How many locks the next renewal on the wire is about. */
static int batch_size(void) {
    const char *text = output_of(link_of(&rig, RENEWER));
    int count = 0;
    return sscanf(text, "EVALSHA renew %d", &count) == 1 ? count : 0;
}

static void answer_batch(int count, const char *result, hf_time now) {
    char bytes[2048];
    int size = snprintf(bytes, sizeof bytes, "*%d\r\n", count);
    for (int i = 0; i < count; i++)
        size += snprintf(bytes + size, sizeof bytes - (size_t)size, "%s\r\n", result);
    feed_renewer(&rig, bytes, now);
}

/* ---- renewing ---- */

TEST(a_hold_is_renewed_after_a_third_of_its_lease) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000) - 1);
    CHECK_SENT(&rig, RENEWER, "");
    rig_sleep(&rig, AT(10000) - 1, AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    CHECK(is_in_flight(hold));
    CHECK_EQ_U64(wakes_at(hold),
                 ends_at(hold)); /* so that a renewal that never lands does not hide the loss */
    answer_batch(1, ":1", AT(10400));
    CHECK(!is_in_flight(hold));
    CHECK_EQ_U64(ends_at(hold), AT(10000 + 29698));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(20000));
    CHECK_EQ_U64(hf_client_stats(&rig.client).renewals, 1);
    CHECK_EQ_U64(hf_client_stats(&rig.client).renew_batches, 1);
    rig_end(&rig, AT(11000));
}

TEST(an_explicit_lease_is_renewed_while_the_caller_wants_it) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, false, AT(0));
    hf_client_set_renewed(&rig.client, hold, true, AT(1));
    rig_sleep(&rig, AT(1), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    hf_client_set_renewed(&rig.client, hold, true, AT(10001)); /* under way already */
    CHECK_EQ_U64(wakes_at(hold), ends_at(hold));
    answer_batch(1, ":1", AT(10400));
    hf_client_set_renewed(&rig.client, hold, false, AT(10500));
    CHECK_EQ_U64(wakes_at(hold), ends_at(hold));
    rig_sleep(&rig, AT(10500), AT(39000));
    CHECK_SENT(&rig, RENEWER, "");
    rig_end(&rig, AT(39001));
}

TEST(a_hold_stays_valid_while_it_is_renewed) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    int wakes = 0;
    for (int ms = 0; ms < 60000; ms += 10) {
        wakes += rig_sleep(&rig, AT(ms), AT(ms + 10));
        if (batch_size() == 1) answer_batch(1, ":1", AT(ms + 10));
        CHECK(hf_hold_is_valid(hold, AT(ms + 10)));
    }
    CHECK(hf_client_stats(&rig.client).renewals >= 55 &&
          hf_client_stats(&rig.client).renewals <= 61);
    CHECK(wakes < 200);
    rig_end(&rig, AT(60000));
}

TEST(a_batch_has_at_most_a_hundred_keys) {
    rig_begin(&rig);
    add_many(250, 30 * HF_SECOND, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    const char *text = output_of(link_of(&rig, RENEWER));
    CHECK(strncmp(text, "EVALSHA renew 100 k000 k001 ", 28) == 0);
    const char *second = strchr(text, '\n');
    CHECK(second && strncmp(second, "\nEVALSHA renew 100 k100 ", 24) == 0);
    const char *third = strchr(second + 1, '\n');
    CHECK(third && strncmp(third, "\nEVALSHA renew 50 k200 ", 23) == 0);
    CHECK(strstr(third, " me 30000 me 30000"));
    answer_batch(100, ":1", AT(10001));
    CHECK_EQ_U64(hf_client_stats(&rig.client).renewals, 100);
    answer_batch(100, ":1", AT(10001));
    answer_batch(50, ":1", AT(10001));
    CHECK_EQ_U64(hf_client_stats(&rig.client).renewals, 250);
    CHECK_EQ_U64(hf_client_stats(&rig.client).renew_batches, 3);
    CHECK_EQ_U64(hf_client_deadline(&rig.client), AT(20000));
    rig_end(&rig, AT(11000));
}

/* Keys of shards that are different servers. */
TEST(each_shard_renews_its_own_keys) {
    static hf_server servers[2] = {{.host = "h1", .port = 1}, {.host = "h2", .port = 2}};
    static const hf_shard shards[2] = {{NULL, 1}, {NULL, 1}};
    hf_client_config config = rig_config();
    config.mode = HF_MODE_SHARDS;
    config.servers = servers;
    config.shards = shards;
    config.server_count = 2;
    rig_begin_with(&rig, &config);
    CHECK_STR(nodes_of(&rig.client)[0]->server.host, "h1");
    CHECK_STR(nodes_of(&rig.client)[1]->server.host, "h2");
    add_many(20, 30 * HF_SECOND, AT(0));
    hf_client_tick(&rig.client, AT(10000));
    int keys = 0;
    for (size_t node = 0; node < 2; node++) {
        hf_session *renewer = &nodes_of(&rig.client)[node]->links[HF_LINK_RENEWER];
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
    rig_end(&rig, AT(11000));
}

TEST(a_renewal_takes_along_holds_that_are_due_soon) {
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

TEST(a_renewal_takes_along_only_renewed_holds) {
    rig_begin(&rig);
    add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *busy_one = add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
    set_in_flight(busy_one, true);
    hf_hold *lost = add_hold("c", "me", 30 * HF_SECOND, true, AT(0));
    hf_client_lose(&rig.client, lost, HF_LOST_TAKEN);
    add_hold("d", "me", 10 * HF_SECOND, false, AT(0)); /* ends at AT(9898) */
    add_hold("e", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 a me 30000\nEVALSHA renew 1 e me 30000");
    rig_end(&rig, AT(12000));
}

/* Another hold may be due at the same time for another command, or for none. */
TEST(a_renewal_takes_along_no_grant_no_fixed_lease_and_no_kept_lock) {
    for (int i = 0; i < 4; i++) {
        rig_begin(&rig);
        add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
        hf_hold *hold = add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
        set_granted(hold, i == 1);
        set_renewed(hold, i != 2);
        set_keeps_lock(hold, i == 3);
        set_idle(hold, i == 3);
        set_kept_until(hold, AT(20000));
        set_confirm_time(hold, AT(20000));
        hf_holds_wake_at(holds_of(&rig.client), hold, AT(10000) + 1);
        rig_sleep(&rig, AT(0), AT(10000));
        CHECK_EQ_INT(batch_size(), i == 0 ? 2 : 1);
        rig_end(&rig, AT(10001));
    }
}

TEST(each_kind_is_renewed_by_its_own_command) {
    rig_begin(&rig);
    add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    set_kind(add_hold("b", "me", 30 * HF_SECOND, true, AT(0)), &hf_kind_mutex);
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 a me 30000\nEVALSHA mutex_renew 1 b me 30000");
    rig_end(&rig, AT(12000));
}

TEST(each_hold_of_a_batch_gets_its_own_result) {
    rig_begin(&rig);
    hf_hold *a = add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *b = add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *c = add_hold("c", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *d = add_hold("d", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_EQ_INT(batch_size(), 4);
    feed_renewer(&rig, "*3\r\n:1\r\n:-1\r\n:-2\r\n", AT(10001)); /* and one is missing */
    CHECK(is_held(a));
    CHECK_EQ_INT(reason_of(b), HF_LOST_DELETED);
    CHECK_EQ_INT(reason_of(c), HF_LOST_TAKEN);
    CHECK(is_held(d));
    CHECK(is_at_risk(d) && !is_at_risk(a));
    CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 2);
    CHECK_EQ_U64(hf_client_losses(&rig.client), 2);
    CHECK(!is_in_flight(a) && !is_in_flight(b) && !is_in_flight(c) && !is_in_flight(d));
    rig_sleep(&rig, AT(10001), AT(11001));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 d me 30000");
    rig_end(&rig, AT(12000));
}

/* ---- short leases beside long ones ---- */

/* Its renewal is due at `due`, and it ends 57 ms later. */
static hf_hold *add_short(const char *key, hf_time due) {
    return add_hold(key, "me", 90 * HF_MS, true, due - 30 * HF_MS);
}

TEST(a_short_lease_does_not_shorten_the_timeout_of_the_others) {
    rig_begin(&rig);
    hf_hold *a = add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *b = add_short("b", AT(10000));
    rig_sleep(&rig, AT(9000), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 a me 30000\nEVALSHA renew 1 b me 90");
    rig_sleep(&rig, AT(10000), AT(10080)); /* the server takes its time */
    CHECK(is_lost(b));
    CHECK_EQ_INT(failures_of(a), 0);
    CHECK_EQ_U64(link_of(&rig, RENEWER)->opens, 1);
    feed_renewer(&rig, "*1\r\n:1\r\n*1\r\n:1\r\n", AT(10080));
    CHECK_EQ_U64(ends_at(a), AT(10000 + 29698));
    rig_end(&rig, AT(11000));
}

TEST(holds_with_about_the_same_time_left_share_a_batch) {
    static const struct {
        int left_ms, size;
    } cases[] = {{1000, 2}, {250, 2}, {249, 1}, {4000, 2}, {4004, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_hold *a = add_hold("a", "me", 3 * HF_SECOND, true, AT(0));
        hf_hold *b = add_hold("b", "me", 3 * HF_SECOND, true, AT(0));
        set_end(a, AT(2000));
        set_end(b, AT(1000 + cases[i].left_ms));
        rig_sleep(&rig, AT(0), AT(1000));
        CHECK_OR(batch_size() == cases[i].size, "case %zu", i);
        rig_end(&rig, AT(1001));
    }
}

TEST(each_hold_of_a_batch_has_its_own_lease) {
    rig_begin(&rig);
    add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold *other = add_hold("b", "me", 40 * HF_SECOND, true, AT(0));
    hf_holds_wake_at(holds_of(&rig.client), other, AT(10000));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 2 a b me 30000 me 40000");
    rig_end(&rig, AT(10001));
}

/* The first one and the last one of a batch differ by the factor at most, in whatever order. */
TEST(the_times_left_in_a_batch_are_compared_with_all_of_its_holds) {
    static const struct {
        int left[3];
        int size;
    } cases[] = {{{14, 50, 60}, 2}, {{60, 16, 14}, 2}, {{14, 50, 56}, 3}, {{60, 16, 15}, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const keys[] = {"a", "b", "c"};
        rig_begin(&rig);
        for (int j = 0; j < 3; j++) {
            hf_hold *hold = add_hold(keys[j], "me", 60 * HF_SECOND, true, AT(0));
            set_end(hold, AT(cases[i].left[j] * 1000));
            hf_holds_wake_at(holds_of(&rig.client), hold, AT(0));
        }
        rig_tick(&rig, AT(0));
        CHECK_EQ_INT(batch_size(), cases[i].size);
        rig_end(&rig, AT(1));
    }
}

/* A server that has just sent something else is alive; one that was silent before is not. */
TEST(a_link_is_replaced_when_its_server_had_the_time_to_answer) {
    static const struct {
        int lease, due, fails, awaiting, received;
        bool replaced;
    } cases[] = {
        {600, 200, 450, 200, 0, true},    {300, 100, 297, 100, 0, false},
        {300, 100, 297, -500, 90, false}, {300, 100, 297, -500, 40, true},
        {600, 200, 450, 200, 400, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_session *link = link_of(&rig, RENEWER);
        hf_hold *hold = add_hold("k", "me", (hf_time)cases[i].lease * HF_MS, true, AT(0));
        hf_session_opening(link, AT(0));
        hf_session_opened(link, AT(0));
        hf_client_tick(&rig.client, AT(cases[i].due));
        CHECK(is_in_flight(hold));
        link->awaiting_since = AT(cases[i].awaiting);
        link->received_at = AT(cases[i].received);
        hf_client_tick(&rig.client, AT(cases[i].fails));
        CHECK_EQ_INT(hf_session_wants(link, AT(cases[i].fails)) == HF_WANT_CLOSE,
                     cases[i].replaced);
        rig_end(&rig, AT(1000));
    }
}

/* It gets all of the time that is left, and is not begun anew for a hold that ends meanwhile. */
TEST(a_connection_that_is_being_made_is_left_alone) {
    rig_begin(&rig);
    hf_session *link = link_of(&rig, RENEWER);
    hf_hold *hold = add_hold("k", "me", 900 * HF_MS, true, AT(0));
    hf_session_opening(link, AT(290));
    hf_client_tick(&rig.client, AT(300));
    CHECK(is_in_flight(hold));
    hf_client_tick(&rig.client, AT(700));
    CHECK_EQ_INT(failures_of(hold), 0);
    hf_client_tick(&rig.client, AT(900));
    CHECK(is_lost(hold));
    CHECK(hf_session_wants(link, AT(900)) != HF_WANT_CLOSE);
    rig_end(&rig, AT(1000));
}

TEST(a_link_shared_with_the_callers_is_not_replaced_for_a_renewal) {
    hf_client_config config = rig_config();
    config.renewer = HF_LINK_CALLS;
    rig_begin_with(&rig, &config);
    hf_hold *hold = add_hold("k", "me", HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(1000));
    CHECK(is_lost(hold));
    CHECK_EQ_U64(link_of(&rig, HF_LINK_CALLS)->opens, 1);
    rig_end(&rig, AT(1001));
}

/* Only refusals in a row count. */
TEST(a_batch_that_was_taken_ends_the_split_before_it) {
    rig_begin(&rig);
    set_split_open(&rig.client, true);
    add_many(2, 30 * HF_SECOND, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    answer_batch(2, ":1", AT(10001));
    CHECK(!is_split_open(&rig.client));
    rig_end(&rig, AT(10002));
}

TEST(a_renewal_never_shortens_what_the_hold_has) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    set_end(hold, AT(60000));
    hf_renewer_on_renewed(&rig.client, hold, AT(1), AT(2));
    CHECK_EQ_U64(ends_at(hold), AT(60000));
    rig_end(&rig, AT(3));
}

/* Its record or its release has taken it out of the table meanwhile. */
TEST(a_reply_about_a_hold_out_of_the_table_counts_for_nothing) {
    static const char *const results[] = {":1", ":-1", ":-2", ":0"};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        hf_hold_ref(hold);
        rig_sleep(&rig, AT(0), AT(10000));
        hf_holds_remove(holds_of(&rig.client), hold);
        answer_batch(1, results[i], AT(10001));
        CHECK_EQ_U64(hf_client_stats(&rig.client).renewals, 0);
        CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 0);
        CHECK(!is_at_risk(hold) && !is_in_flight(hold));
        hf_hold_unref(hold);
        rig_end(&rig, AT(10002));
    }
}

TEST(only_a_hold_that_is_still_held_is_renewed_late) {
    for (int lost = 0; lost <= 1; lost++) {
        rig_begin(&rig);
        const hf_class *class = hf_observe_class_at(&rig.client, hf_observe_class(&rig.client, ""));
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        set_at_risk(hold, true);
        if (lost) hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
        hf_renewer_on_renewed(&rig.client, hold, AT(1), AT(2));
        CHECK_EQ_U64(class->renewed_late, !lost);
        rig_end(&rig, AT(3));
    }
}

TEST(a_silent_link_is_replaced_even_if_all_leases_are_short) {
    rig_begin(&rig);
    for (int ms = 10000; ms <= 10600; ms += 300) {
        hf_hold *hold = add_short(ms == 10000 ? "a" : ms == 10300 ? "b" : "c", AT(ms));
        rig_sleep(&rig, AT(ms), AT(ms + 100));
        CHECK(is_lost(hold));
        CHECK_EQ_U64(link_of(&rig, RENEWER)->opens, ms == 10600 ? 2 : 1);
    }
    rig_end(&rig, AT(11000));
}

/* ---- a batch that is refused ---- */

static const char FIVE[] = "abcde";

/* Five locks whose renewal is under way since AT(10000). */
static void renew_five(hf_hold *holds[5]) {
    rig_begin(&rig);
    for (int i = 0; i < 5; i++) {
        char key[2] = {FIVE[i], '\0'};
        holds[i] = add_hold(key, "me", 30 * HF_SECOND, true, AT(0));
    }
    rig_sleep(&rig, AT(0), AT(10000));
}

TEST(one_refused_key_does_not_prevent_the_other_renewals) {
    static const char *const errors[] = {"-NOPERM no\r\n", "-CROSSSLOT no\r\n", "-ERR no\r\n",
                                         "-WRONGTYPE no\r\n"};
    for (size_t n = 0; n < sizeof errors / sizeof *errors; n++) {
        hf_hold *holds[5];
        renew_five(holds);
        CHECK_EQ_INT(batch_size(), 5);
        feed_renewer(&rig, errors[n], AT(10001));
        rig_tick(&rig, AT(10001));
        CHECK_SENT(&rig, RENEWER,
                   "EVALSHA renew 1 a me 30000\nEVALSHA renew 1 b me 30000\n"
                   "EVALSHA renew 1 c me 30000\nEVALSHA renew 1 d me 30000\n"
                   "EVALSHA renew 1 e me 30000");
        for (int i = 0; i < 5; i++)
            feed_renewer(&rig, i == 1 ? errors[n] : "*1\r\n:1\r\n", AT(10002));
        for (int i = 0; i < 5; i++) {
            CHECK_EQ_U64(ends_at(holds[i]), AT(i == 1 ? 29698 : 10001 + 29698));
            CHECK_EQ_INT(is_at_risk(holds[i]), i == 1);
        }
        int alone = 0;
        for (int ms = 10010; ms < 20000; ms += 10) { /* it is tried again, by itself */
            rig_sleep(&rig, AT(ms), AT(ms + 10));
            int size = batch_size();
            CHECK(size <= 1);
            if (size == 1) feed_renewer(&rig, errors[n], AT(ms + 10));
            alone += size;
        }
        CHECK(alone > 3);
        rig_sleep(&rig, AT(20000), AT(20001));
        CHECK_EQ_INT(batch_size(), 4);
        CHECK_EQ_U64(splits_of(&rig.client), 1);
        answer_batch(4, ":1", AT(20002));
        CHECK_EQ_U64(splits_of(&rig.client), 0);
        rig_sleep(&rig, AT(20002), AT(29698));
        for (int i = 0; i < 5; i++)
            CHECK_EQ_INT(hold_state(holds[i]), i == 1 ? HF_HOLD_LOST : HF_HOLD_HELD);
        CHECK_EQ_INT(reason_of(holds[1]), HF_LOST_UNREACHABLE);
        rig_end(&rig, AT(30000));
    }
}

TEST(a_batch_without_a_reply_is_not_split) {
    for (int closed = 0; closed < 2; closed++) {
        hf_hold *holds[5];
        renew_five(holds);
        output_of(link_of(&rig, RENEWER));
        if (closed) hf_session_closed(link_of(&rig, RENEWER), "reset", AT(10001));
        else feed_renewer(&rig, "-LOADING wait\r\n", AT(10001));
        rig_sleep(&rig, AT(10001), AT(10200));
        CHECK_EQ_INT(batch_size(), 5);
        CHECK_EQ_U64(splits_of(&rig.client), 0);
        rig_end(&rig, AT(30000));
    }
}

TEST(a_server_that_has_refused_three_batches_takes_one_key_at_a_time) {
    hf_hold *holds[5];
    renew_five(holds);
    for (int round = 1; round <= 5; round++) {
        int now = 10000 * round;
        rig_sleep(&rig, AT(now), AT(now + 3));
        if (round <= 3) {
            CHECK_EQ_INT(batch_size(), 5);
            feed_renewer(&rig, "-CROSSSLOT no\r\n", AT(now));
            rig_tick(&rig, AT(now));
        }
        CHECK_SENT(&rig, RENEWER,
                   "EVALSHA renew 1 a me 30000\nEVALSHA renew 1 b me 30000\n"
                   "EVALSHA renew 1 c me 30000\nEVALSHA renew 1 d me 30000\n"
                   "EVALSHA renew 1 e me 30000");
        for (int i = 0; i < 5; i++) feed_renewer(&rig, "*1\r\n:1\r\n", AT(now + 3));
    }
    CHECK_EQ_U64(splits_of(&rig.client), 3);
    rig_end(&rig, AT(60000));
}

static void feed_refusal_of_five(hf_time now) {
    feed_renewer(&rig, "-ERR no\r\n", now);
    rig_tick(&rig, now);
    output_of(link_of(&rig, RENEWER));
    for (int i = 0; i < 5; i++) feed_renewer(&rig, "*1\r\n:1\r\n", now);
}

TEST(a_server_that_accepts_a_batch_between_refusals_keeps_getting_batches) {
    hf_hold *holds[5];
    renew_five(holds);
    for (int round = 1; round <= 12; round++) {
        rig_sleep(&rig, AT(10000 * round), AT(10000 * round));
        CHECK_EQ_INT(batch_size(), 5);
        if (round % 3 > 0) feed_refusal_of_five(AT(10000 * round));
        else answer_batch(5, ":1", AT(10000 * round));
        CHECK_EQ_INT((int)splits_of(&rig.client), round % 3);
    }
    CHECK(is_held(holds[4]));
    rig_end(&rig, AT(130000));
}

TEST(a_minute_after_too_many_refusals_a_batch_is_tried_again) {
    for (int well = 0; well <= 1; well++) {
        hf_hold *holds[5];
        renew_five(holds);
        for (int round = 1; round <= 16; round++) {
            bool batch = round <= 3 || round == 9 || round == 15 || (well && round > 9);
            rig_sleep(&rig, AT(10000 * round), AT(10000 * round));
            CHECK_OR(batch_size() == (batch ? 5 : 1), "round %d", round);
            if (batch && well && round >= 9) answer_batch(5, ":1", AT(10000 * round));
            else if (batch) feed_refusal_of_five(AT(10000 * round));
            else
                for (int i = 0; i < 5; i++) feed_renewer(&rig, "*1\r\n:1\r\n", AT(10000 * round));
        }
        CHECK_EQ_INT((int)splits_of(&rig.client), well ? 0 : 5);
        rig_end(&rig, AT(170000));
    }
}

/* One of them was released while the batch was under way. */
TEST(a_split_batch_leaves_out_holds_that_have_ended) {
    hf_hold *holds[5];
    renew_five(holds);
    output_of(link_of(&rig, RENEWER));
    hf_client_abandon(&rig.client, holds[0], 1, AT(10001));
    hf_client_lose(&rig.client, holds[1], HF_LOST_TAKEN);
    hf_client_abandon(&rig.client, holds[1], 1, AT(10001));
    feed_renewer(&rig, "-NOPERM no\r\n", AT(10002));
    rig_tick(&rig, AT(10002));
    const char *text = output_of(link_of(&rig, RENEWER));
    CHECK(strstr(text, "EVALSHA leave 4 a ") && !strstr(text, "renew 1 a "));
    CHECK(!strstr(text, " b "));
    CHECK(strstr(text, "EVALSHA renew 1 c ") && strstr(text, "EVALSHA renew 1 e "));
    rig_end(&rig, AT(11000));
}

/* ---- renewals that fail ---- */

TEST(a_failed_renewal_is_retried_within_the_lease) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    int tries = 0;
    for (int ms = 10000; ms <= 29000; ms += 10) {
        rig_sleep(&rig, AT(ms - 10), AT(ms));
        if (batch_size() == 0) continue;
        tries++;
        feed_renewer(&rig, "-OOM command not allowed\r\n", AT(ms));
        CHECK(is_at_risk(hold));
        CHECK(hf_hold_is_valid(hold, AT(ms)));
    }
    CHECK_OR(tries >= 15 && tries <= 60, "%d tries", tries);
    CHECK_EQ_INT(failures_of(hold), tries);
    rig_sleep(&rig, AT(29000), AT(29200));
    feed_renewer(&rig, "*1\r\n:1\r\n", AT(29200));
    CHECK(!is_at_risk(hold));
    CHECK_EQ_INT(failures_of(hold), 0);
    rig_end(&rig, AT(30000));
}

TEST(a_hold_is_lost_before_its_lease_can_end_on_the_server) {
    static const int leases_ms[] = {1, 2, 5, 20, 100, 1000, 3000, 30000};
    for (size_t i = 0; i < sizeof leases_ms / sizeof *leases_ms; i++) {
        rig_begin(&rig);
        rig.refusing = true;
        hf_hold *hold = add_hold("k", "me", (hf_time)leases_ms[i] * HF_MS, true, AT(0));
        int wakes = rig_sleep(&rig, AT(0), AT(leases_ms[i]) - 1);
        CHECK(is_lost(hold));
        CHECK_OR(reason_of(hold) == HF_LOST_UNREACHABLE || reason_of(hold) == HF_LOST_EXPIRED,
                 "lease %d", leases_ms[i]);
        if (leases_ms[i] > 100) CHECK_EQ_INT(reason_of(hold), HF_LOST_UNREACHABLE);
        CHECK_EQ_U64(hf_client_losses(&rig.client), 1);
        CHECK_OR(wakes < 200, "%d wakes", wakes);
        rig_end(&rig, AT(40000));
    }
}

TEST(a_silent_server_does_not_hide_the_loss) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(29698) - 1);
    CHECK(is_held(hold));
    CHECK(first_node(&rig.client)->links[RENEWER].opens >
          2); /* a server that does not answer is tried over new connections */
    rig_sleep(&rig, AT(29698) - 1, AT(29698));
    CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_UNREACHABLE);
    rig_end(&rig, AT(30000));
}

/* Wakes the client until `until`, as rig_sleep does, but leaves the links to the test. */
static void tick_until(hf_time until) {
    for (hf_time at; (at = hf_client_deadline(&rig.client)) <= until;) {
        hf_client_tick(&rig.client, at);
        if (hf_client_deadline(&rig.client) == at) break;
    }
    hf_client_tick(&rig.client, until);
}

#define CONFIRM_K                                                                                  \
    "EVALSHA extend 2 k holdfast_queue:{k} me 30000 2000 " MEMBER("1") " redisson_lock__channel:{" \
                                                                       "k}"

/* A grant of 200 ms, received 50 ms after it began. */
static hf_hold *add_grant(void) {
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    set_granted(hold, true);
    set_end(hold, hf_lease_end(AT(0), 200 * HF_MS));
    set_confirm_time(hold, AT(50) + (ends_at(hold) - AT(50)) / 3);
    set_wait(hold, 1);
    set_token_ttl(hold, 1000);
    hf_renewer_resume(&rig.client, hold, AT(50));
    return hold;
}

TEST(a_confirmation_waits_for_its_connection_until_the_grant_ends) {
    rig_begin(&rig);
    hf_hold *hold = add_grant();
    hf_session *link = link_of(&rig, RENEWER);
    tick_until(AT(100));
    CHECK_EQ_INT(hf_session_wants(link, AT(100)), HF_WANT_OPEN);
    hf_session_opening(link, AT(100));
    tick_until(AT(170));
    hf_session_opened(link, AT(170));
    CHECK_SENT(&rig, RENEWER, CONFIRM_K);
    tick_until(AT(195));
    CHECK_EQ_INT(failures_of(hold), 0);
    feed_renewer(&rig, ":1\r\n", AT(195));
    CHECK(is_held(hold));
    CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(170), 30 * HF_SECOND));
    rig_end(&rig, AT(1000));
}

TEST(a_slow_reply_to_a_confirmation_is_in_time) {
    rig_begin(&rig);
    begin(&rig, HF_OP_PING, AT(0));
    hf_session *link = link_of(&rig, RENEWER);
    hf_session_opening(link, AT(0));
    hf_session_opened(link, AT(1));
    hf_hold *hold = add_grant();
    rig_sleep(&rig, AT(50), AT(100));
    CHECK(strstr(output_of(link), "EVALSHA extend"));
    rig_sleep(&rig, AT(100), AT(190));
    feed_renewer(&rig, ":1\r\n", AT(190));
    CHECK(is_held(hold));
    CHECK_EQ_INT(failures_of(hold), 0);
    CHECK_EQ_U64(link->opens, 1);
    rig_end(&rig, AT(1000));
}

TEST(half_of_the_time_left_is_kept_for_a_new_connection) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(900));
    hf_session_opening(link_of(&rig, RENEWER), AT(900));
    hf_session_opened(link_of(&rig, RENEWER), AT(900));
    rig_sleep(&rig, AT(900), AT(1900));
    CHECK_EQ_INT(batch_size(), 1);
    rig_sleep(&rig, AT(1900), AT(2200));
    CHECK_EQ_INT(failures_of(hold), 1);
    CHECK_EQ_U64(link_of(&rig, RENEWER)->opens, 2);
    CHECK_EQ_INT(batch_size(), 1);
    feed_renewer(&rig, "*1\r\n:1\r\n", AT(2900));
    CHECK(is_held(hold));
    rig_end(&rig, AT(4000));
}

TEST(a_link_shared_with_the_callers_is_not_replaced_early) {
    hf_client_config config = rig_config();
    config.renewer = HF_LINK_CALLS;
    rig_begin_with(&rig, &config);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    begin(&rig, HF_OP_PING, AT(900));
    feed(link_of(&rig, HF_LINK_CALLS), "+PONG\r\n", AT(901));
    rig_sleep(&rig, AT(901), AT(2450));
    CHECK_EQ_INT(failures_of(hold), 0);
    feed(link_of(&rig, HF_LINK_CALLS), "*1\r\n:1\r\n", AT(2450));
    CHECK(is_held(hold));
    CHECK_EQ_U64(link_of(&rig, HF_LINK_CALLS)->opens, 1);
    rig_end(&rig, AT(4000));
}

TEST(a_link_whose_server_is_loading_is_not_replaced) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    for (int ms = 10000; ms < 25000; ms += 10) {
        rig_sleep(&rig, AT(ms - 10), AT(ms));
        if (batch_size() > 0) feed_renewer(&rig, "-LOADING Redis is loading\r\n", AT(ms));
    }
    CHECK(failures_of(hold) > 0);
    CHECK_EQ_U64(link_of(&rig, RENEWER)->opens, 1);
    rig_end(&rig, AT(25000));
}

TEST(a_hold_that_ends_during_its_renewal_is_lost_as_unreachable) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 300 * HF_MS, true, AT(0));
    rig_sleep(&rig, AT(0), AT(150));
    CHECK_EQ_INT(batch_size(), 1);
    hf_client_notice(&rig.client, AT(300));
    CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_UNREACHABLE);
    rig_end(&rig, AT(1000));
}

TEST(an_explicit_lease_expires) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 5 * HF_SECOND, false, AT(0));
    rig_sleep(&rig, AT(0), AT(5000));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_EXPIRED);
    CHECK_SILENT(&rig);
    CHECK_EQ_U64(rig.opens, 0);
    rig_end(&rig, AT(6000));
}

/* Only a renewal can have failed; a check of a fixed lease has not. */
TEST(the_reason_of_a_loss_by_the_clock) {
    static const struct {
        bool renewed, at_risk, in_flight, last;
        hf_lost_reason reason;
    } cases[] = {
        {true, false, false, false, HF_LOST_EXPIRED},
        {true, true, false, false, HF_LOST_UNREACHABLE},
        {true, false, true, false, HF_LOST_UNREACHABLE},
        {false, true, false, false, HF_LOST_EXPIRED},
        {false, false, true, false, HF_LOST_EXPIRED},
        {true, true, true, true, HF_LOST_MAX_HOLD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", HF_SECOND, cases[i].renewed, AT(0));
        set_at_risk(hold, cases[i].at_risk);
        set_in_flight(hold, cases[i].in_flight);
        if (cases[i].last) set_bound(hold, ends_at(hold));
        hf_renewer_lose_at_end(&rig.client, hold, AT(1000));
        CHECK_EQ_INT(reason_of(hold), cases[i].reason);
        rig_end(&rig, AT(1001));
    }
}

TEST(a_renewal_lost_with_its_connection_is_sent_again) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    output_of(link_of(&rig, RENEWER));
    hf_session_closed(link_of(&rig, RENEWER), "reset", AT(10100));
    rig_sleep(&rig, AT(10100), AT(10200));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    answer_batch(1, ":1", AT(10300));
    CHECK(ends_at(hold) > AT(39698) && ends_at(hold) <= AT(10200 + 29698));
    rig_end(&rig, AT(11000));
}

TEST(a_reply_after_the_loss_changes_nothing) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(1000));
    CHECK_EQ_INT(batch_size(), 1);
    hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
    answer_batch(1, ":1", AT(1001));
    CHECK(is_lost(hold));
    CHECK_EQ_U64(hf_client_stats(&rig.client).late_renewals, 1);
    CHECK(!is_in_flight(hold));
    rig_end(&rig, AT(11000));
}

TEST(a_reply_after_the_hold_was_abandoned_changes_nothing) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(1000));
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_client_abandon(&rig.client, hold, 1, AT(1001));
    CHECK_EQ_INT(hold_count(&rig.client), 0);
    hf_hold *again = add_hold("k", "me", 3 * HF_SECOND, true, AT(1002));
    answer_batch(1, ":-1", AT(1003)); /* about the old one */
    CHECK(is_held(again));
    CHECK_EQ_U64(hf_client_stats(&rig.client).losses, 1);
    rig_end(&rig, AT(11000));
}

TEST(a_malformed_reply_to_a_renewal_is_a_failure) {
    static const char *const replies[] = {"+OK\r\n",           "$-1\r\n", "*0\r\n",
                                          "*1\r\n$1\r\nx\r\n", ":0\r\n",  "-ERR no\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        rig_sleep(&rig, AT(0), AT(10000));
        feed_renewer(&rig, replies[i], AT(10001));
        CHECK(is_held(hold));
        CHECK(is_at_risk(hold) && !is_in_flight(hold));
        CHECK_EQ_U64(ends_at(hold), AT(29698));
        rig_end(&rig, AT(11000));
    }
}

TEST(a_client_may_renew_over_its_callers_link) {
    hf_client_config config = rig_config();
    config.renewer = CALLS;
    rig_begin_with(&rig, &config);
    add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_SENT(&rig, CALLS, "EVALSHA renew 1 k me 30000");
    CHECK_EQ_INT(link_of(&rig, RENEWER)->state, HF_SESSION_CLOSED);
    feed_calls(&rig, "*1\r\n:1\r\n", AT(10001));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(20000));
    rig_end(&rig, AT(11000));
}

/* ---- confirming a grant ---- */

static hf_hold *granted_hold(bool renewed) {
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.wait = HF_NEVER;
    spec.renewed = renewed;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(0));
    feed_subscribed(&rig, AT(0));
    feed_calls(&rig, busy(20000, 0, 0), AT(0));
    feed_message(&rig, GRANT("1", "88"), AT(100));
    if (!hf_op_is_done(op)) abort();
    hf_op_end(op, AT(100));
    output_of(link_of(&rig, CALLS));
    return hold_of(&rig);
}

TEST(a_grant_is_confirmed_to_the_lease) {
    for (int renewed = 0; renewed < 2; renewed++) {
        rig_begin(&rig);
        hf_hold *hold = granted_hold(renewed);
        CHECK_EQ_U64(ends_at(hold), AT(1978));
        rig_sleep(&rig, AT(100), AT(800));
        CHECK_SENT(&rig, RENEWER, CONFIRM_K);
        CHECK(is_granted(hold) && is_in_flight(hold));
        hf_time sent_at = AT(100) + (AT(1978) - AT(100)) / 3;
        feed_renewer(&rig, ":1\r\n", AT(801));
        CHECK(!is_granted(hold) && !is_in_flight(hold));
        CHECK_EQ_U64(ends_at(hold), hf_lease_end(sent_at, 30 * HF_SECOND));
        CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client),
                     renewed ? sent_at + 10 * HF_SECOND : ends_at(hold));
        rig_end(&rig, AT(1000));
    }
}

TEST(a_grant_that_cannot_be_confirmed_is_lost_in_time) {
    rig_begin(&rig);
    hf_hold *hold = granted_hold(true);
    rig.refusing = true;
    rig_sleep(&rig, AT(100), AT(1978) - 1);
    CHECK(is_held(hold));
    rig_sleep(&rig, AT(1978) - 1, AT(1978));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_UNREACHABLE);
    rig_end(&rig, AT(3000));
}

TEST(a_grant_found_taken_is_lost) {
    rig_begin(&rig);
    hf_hold *hold = granted_hold(true);
    rig_sleep(&rig, AT(100), AT(800));
    feed_renewer(&rig, ":-2\r\n", AT(801));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_TAKEN);
    rig_end(&rig, AT(1000));
}

/* It sets a lease that is shorter than the grant's, and may do so at any time. */
TEST(a_confirmation_without_a_reply_bounds_later_leases) {
    static const struct {
        int lease_ms;
        bool checked, sent_twice;
        int believed_ms;
    } cases[] = {{1000, false, false, 988}, {1000, true, false, 988},    {1000, false, true, 988},
                 {1000, true, true, 988},   {4000, false, false, 59398}, {4000, true, true, 59398}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_hold *hold = granted_hold(true);
        hf_session_opening(link_of(&rig, RENEWER), AT(100));
        hf_session_opened(link_of(&rig, RENEWER), AT(100));
        hf_link link = cases[i].checked ? CALLS : RENEWER;
        set_lease(hold, (hf_time)cases[i].lease_ms * HF_MS);
        if (cases[i].checked) begin(&rig, HF_OP_CHECK, AT(200));
        rig_sleep(&rig, AT(200), AT(cases[i].checked ? 200 : 800));
        CHECK(strstr(output_of(link_of(&rig, link)), "EVALSHA extend"));
        if (cases[i].sent_twice) {
            hf_session_closed(link_of(&rig, link), "reset", AT(801));
            rig_sleep(&rig, AT(801), AT(802));
            feed(link_of(&rig, link), ":1\r\n", AT(802));
        } else if (cases[i].checked) {
            hf_op_end(ops_of(&rig.client), AT(801));
        }
        int ms = 802;
        for (; is_in_flight(hold) && ms < 1900; ms++) rig_tick(&rig, AT(ms));
        CHECK(is_held(hold));
        hf_op_spec spec = spec_of(&rig, HF_OP_EXTEND);
        spec.lease = 60 * HF_SECOND;
        hf_session_closed(link_of(&rig, CALLS), "reset", AT(ms));
        hf_op *op = begin_spec(&rig, &spec, AT(ms));
        feed_calls(&rig, ":1\r\n", AT(ms));
        CHECK_OUTCOME(op, "ok");
        CHECK_EQ_U64(ends_at(hold), AT(ms + cases[i].believed_ms));
        rig_end(&rig, AT(2000));
    }
}

TEST(a_grant_is_confirmed_for_no_longer_than_its_max_hold) {
    rig_begin(&rig);
    hf_hold *hold = granted_hold(true);
    set_bound(hold, AT(10000));
    rig_sleep(&rig, AT(100), AT(800));
    const char *sent = output_of(link_of(&rig, RENEWER));
    CHECK(strstr(sent, "EVALSHA extend") && !strstr(sent, " 30000 "));
    rig_end(&rig, AT(900));
}

/* A late renewal sets the lease that the hold has anyway. */
TEST(a_renewal_without_a_reply_bounds_nothing) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", HF_SECOND, true, AT(0));
    hf_session_opening(link_of(&rig, RENEWER), AT(0));
    hf_session_opened(link_of(&rig, RENEWER), AT(0));
    rig_sleep(&rig, AT(0), AT(800));
    CHECK(failures_of(hold) > 0);
    CHECK_EQ_U64(shortened_lease(hold), HF_NEVER);
    rig_end(&rig, AT(2000));
}

/* Another process may have set a longer lease than that of the grant. */
TEST(a_shared_owners_grant_is_confirmed_whatever_its_ttl) {
    rig_begin(&rig);
    hf_hold *hold = granted_hold(true);
    set_shared(hold, true);
    rig_sleep(&rig, AT(100), AT(800));
    const char *sent = output_of(link_of(&rig, RENEWER));
    CHECK(strstr(sent, "EVALSHA extend") && !strstr(sent, " 30000 2000 "));
    rig_end(&rig, AT(900));
}

/* ---- leaving ---- */

TEST(a_hold_to_clean_up_is_cleaned_up_with_one_leave) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(10));
    CHECK(!hf_client_is_quiet(&rig.client));
    rig_tick(&rig, AT(10));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    rig_sleep(&rig, AT(10), AT(1000));
    CHECK_SENT(&rig, RENEWER, ""); /* once */
    feed_renewer(&rig, ":1\r\n", AT(1001));
    CHECK(!hold_of(&rig));
    CHECK(hf_client_is_quiet(&rig.client));
    CHECK_EQ_U64(hf_client_stats(&rig.client).undone, 1);
    rig_end(&rig, AT(1002));
}

/* As much as the server may have of it: the command names the owner, its place and its permits. */
TEST(what_stands_in_for_a_hold_has_all_of_it) {
    for (int shared = 0; shared <= 1; shared++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 70 * HF_SECOND, true, AT(0));
        set_shared(hold, shared);
        set_granted(hold, shared);
        set_keeps_lock(hold, true);
        set_token_ttl(hold, 4321);
        set_wait(hold, 7);
        hf_hold *other = NULL;
        if (shared) {
            other = hf_renewer_clean_up_grant(&rig.client, hold, AT(1));
        } else {
            hf_renewer_clean_up(&rig.client, hold, AT(1));
            CHECK(hf_renewer_set_aside(&rig.client, hold, AT(1)));
            other = hf_holds_first(holds_of(&rig.client));
        }
        CHECK(other && is_cleaned_up(other));
        CHECK_EQ_INT(is_shared(other), shared);
        CHECK(keeps_lock(other));
        CHECK_EQ_U64(lease_of(other), 70 * HF_SECOND);
        CHECK_EQ_U64(token_ttl_of(other), 4321);
        CHECK_EQ_U64(wait_of_hold(other), 7);
        CHECK_EQ_U64(ends_at(other), AT(1) + 70 * HF_SECOND);
        CHECK_EQ_INT(hf_hold_caller(other).size, 0);
        CHECK(!uses_same_connection(other));
        rig_end(&rig, AT(2));
    }
}

TEST(a_stand_in_for_permits_leaves_all_of_them) {
    rig_begin(&rig);
    hf_hold *hold =
        hf_client_add_permits(&rig.client, &hf_kind_permit, hf_slice_of("k"), hf_slice_of("me"), 3);
    hf_renewer_clean_up_replaced(&rig.client, hold, AT(0));
    hf_hold *other = hf_holds_first(holds_of(&rig.client));
    CHECK(other != hold);
    CHECK_EQ_INT(permits_of(other), 3);
    CHECK(uses_same_connection(other));
    rig_end(&rig, AT(1));
}

/* Only what the clock has ended may be on the server still. */
TEST(a_lost_hold_may_stand_by_its_reason) {
    for (int reason = HF_LOST_NOT + 1; reason < HF_LOST_REASONS; reason++) {
        for (int bits = 0; bits < 8; bits++) {
            bool shared = bits & 1, granted = bits & 2, waited = bits & 4;
            bool clock = reason == HF_LOST_EXPIRED || reason == HF_LOST_UNREACHABLE ||
                         reason == HF_LOST_MAX_HOLD;
            rig_begin(&rig);
            hf_hold *hold = add_hold("k", "me", HF_SECOND, true, AT(0));
            set_shared(hold, shared);
            set_granted(hold, granted);
            set_wait(hold, waited ? 7 : 0);
            hf_client_lose(&rig.client, hold, (hf_lost_reason)reason);
            CHECK_EQ_INT(hf_renewer_may_stand(hold), clock && (!shared || (granted && waited)));
            rig_end(&rig, AT(1));
        }
    }
}

/* The queue's mark of a confirmed grant has gone. */
TEST(a_loss_removes_the_mark_of_an_unconfirmed_grant_alone) {
    for (int bits = 0; bits < 4; bits++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", HF_SECOND, true, AT(0));
        set_granted(hold, bits & 1);
        set_wait(hold, bits & 2 ? 7 : 0);
        hf_renewer_lose(&rig.client, hold, HF_LOST_TAKEN, AT(1));
        CHECK_EQ_INT(hold_count(&rig.client), bits == 3 ? 2 : 1);
        rig_end(&rig, AT(2));
    }
}

/* A hold in the table keeps its caller's place there, so that a new acquire waits for it. */
TEST(a_lost_hold_is_cleaned_up_for_its_caller) {
    for (int replaced = 0; replaced <= 1; replaced++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", HF_SECOND, true, AT(0));
        hf_hold_ref(hold);
        hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
        if (replaced) hf_holds_remove(holds_of(&rig.client), hold);
        hf_renewer_clean_up_lost(&rig.client, hold, AT(1));
        CHECK_EQ_INT(hold_count(&rig.client), 1);
        CHECK_EQ_INT(hold_of(&rig) != NULL, !replaced);
        hf_hold_unref(hold);
        rig_end(&rig, AT(2));
    }
}

TEST(a_clean_up_is_tried_for_its_lease_and_thirty_seconds_at_least) {
    static const struct {
        int lease_s, until_s;
        bool shared;
        uint32_t others;
    } cases[] = {{3, 31, false, 0}, {70, 71, false, 0}, {70, 71, true, 1}, {3, 3, true, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", (hf_time)cases[i].lease_s * HF_SECOND, true, AT(0));
        set_end(hold, AT(3000));
        set_shared(hold, cases[i].shared);
        set_others(hold, cases[i].others);
        hf_renewer_clean_up(&rig.client, hold, AT(1000));
        CHECK_EQ_U64(ends_at(hold), AT(cases[i].until_s * 1000));
        CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(1000));
        rig_end(&rig, AT(1001));
    }
}

/* How many of its entries are this client's, and what the other processes keep. */
TEST(a_leave_of_a_shared_owner_names_its_own_entries) {
    static const struct {
        uint32_t count, others, pending;
        const char *sent;
        bool once;
    } cases[] = {{3, 1, 0, "1  2", true}, {3, 1, 2, "1  4", true}, {2, 2, 0, "2  0", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        set_shared(hold, true);
        set_count(hold, cases[i].count);
        set_others(hold, cases[i].others);
        set_pending(hold, cases[i].pending);
        hf_renewer_clean_up(&rig.client, hold, AT(1));
        rig_tick(&rig, AT(1));
        snprintf(text, sizeof text, "EVALSHA leave " KEYS_OF_K "%s", cases[i].sent);
        CHECK_SENT(&rig, RENEWER, text);
        hf_session_closed(link_of(&rig, RENEWER), "reset", AT(2));
        rig_sleep(&rig, AT(2), AT(2000));
        CHECK_EQ_INT(output_of(link_of(&rig, RENEWER))[0] != '\0', !cases[i].once);
        rig_end(&rig, AT(2001));
    }
}

/* Behind the command in doubt there is no other link to try. */
TEST(a_clean_up_behind_a_command_does_not_replace_the_renewers_link) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    begin(&rig, HF_OP_PING, AT(0));
    feed(link_of(&rig, CALLS), "+PONG\r\n", AT(0));
    hf_renewer_clean_up_same_connection(&rig.client, hold, AT(1));
    rig_tick(&rig, AT(1));
    CHECK_SENT(&rig, RENEWER, "");
    CHECK(strstr(output_of(link_of(&rig, CALLS)), "EVALSHA leave "));
    rig_end(&rig, AT(3));
}

/* A caller waits for it: it goes over that caller's link, and fails at once if there is none. */
TEST(a_clean_up_that_a_caller_waits_for_is_sent_at_once) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(1));
    rig.refusing = true;
    hf_renewer_clean_up_first(&rig.client, hold, AT(2));
    rig_serve(&rig, AT(2));
    CHECK_EQ_INT(failures_of(hold), 1);
    CHECK(uses_same_connection(hold));
    rig_end(&rig, AT(3));
}

/* One that is blocked has entered nothing: the next command for the hold is the leave. */
TEST(an_acquire_that_is_blocked_keeps_no_abandoned_hold) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK(is_in_flight(hold));
    hf_op *op = begin_acquire(&rig, HF_SECOND, AT(10001));
    CHECK(hf_op_is_blocked(op));
    hf_client_abandon(&rig.client, hold, 1, AT(10002));
    CHECK_EQ_INT(dropped_of(hold), 0);
    CHECK(is_cleaned_up(hold));
    rig_end(&rig, AT(10003));
}

/* Each loss is reported once, in the order of the reasons, and the first one is remembered. */
TEST(a_ledger_counts_each_loss_of_several_holds) {
    static const char *const keys[] = {"a", "b", "c"};
    static const hf_lost_reason reasons[] = {HF_LOST_TAKEN, HF_LOST_EXPIRED, HF_LOST_TAKEN};
    hf_losses losses = {0};
    hf_stake stakes[3];
    rig_begin(&rig);
    for (int i = 0; i < 3; i++) {
        hf_hold *hold = add_hold(keys[i], "me", HF_SECOND, true, AT(0));
        hf_stake_begin(&stakes[i], &rig.client, hold, &losses);
        hf_client_lose(&rig.client, hold, reasons[i]);
        CHECK_EQ_INT(losses.first, HF_LOST_TAKEN);
    }
    CHECK_EQ_INT(hf_losses_take(&losses), HF_LOST_EXPIRED);
    CHECK_EQ_INT(hf_losses_take(&losses), HF_LOST_TAKEN);
    CHECK_EQ_INT(hf_losses_take(&losses), HF_LOST_TAKEN);
    CHECK_EQ_INT(hf_losses_take(&losses), HF_LOST_NOT);
    for (int i = 0; i < 3; i++) hf_stake_end(&stakes[i]);
    rig_end(&rig, AT(1));
}

/* The holds of handles that end in any order, of which those that are left are notified. */
TEST(each_stake_in_a_hold_is_entered_in_whatever_order_they_end) {
    for (int ends = 0; ends < 3; ends++) {
        hf_losses losses[3] = {{0}};
        hf_stake stakes[3], moved;
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", HF_SECOND, true, AT(0));
        for (int i = 0; i < 3; i++) hf_stake_begin(&stakes[i], &rig.client, hold, &losses[i]);
        hf_stake_move(&moved, &stakes[(ends + 1) % 3]);
        hf_stake_end(&stakes[ends]);
        hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
        for (int i = 0; i < 3; i++)
            CHECK_EQ_INT(losses[i].unreported[HF_LOST_TAKEN], i == ends ? 0 : 1);
        hf_stake_end(&moved);
        hf_stake_end(&stakes[(ends + 2) % 3]);
        CHECK(!stakes_of(hold));
        rig_end(&rig, AT(1));
    }
}

/* Entries that handles leave behind one after the other during a re-entry. */
TEST(entries_abandoned_during_a_re_entry_add_up) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    set_count(hold, 4);
    hf_op *op = begin_acquire(&rig, 0, AT(1));
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    hf_client_abandon(&rig.client, hold, 2, AT(2));
    CHECK_EQ_INT(dropped_of(hold), 3);
    feed_calls(&rig, "*2\r\n:1\r\n:0\r\n", AT(3));
    CHECK_OUTCOME(op, "ok");
    CHECK_EQ_INT(count_of(hold), 2);
    CHECK_EQ_INT(dropped_of(hold), 0);
    CHECK(is_uncertain(hold));
    rig_end(&rig, AT(4));
}

TEST(entries_of_a_shared_owner_that_are_abandoned_are_all_pending) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    set_shared(hold, true);
    set_count(hold, 5);
    set_others(hold, 1);
    hf_client_abandon(&rig.client, hold, 3, AT(1));
    CHECK_EQ_INT(count_of(hold), 2);
    CHECK_EQ_INT(pending_of(hold), 3);
    hf_client_abandon(&rig.client, hold, 1, AT(2)); /* the last one of its own */
    CHECK(is_cleaned_up(hold));
    rig_end(&rig, AT(3));
}

TEST(an_abandoned_acquire_of_a_shared_owner_is_not_sent_again) {
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE);
    spec.shared = true;
    spec.lease = 60 * HF_SECOND;
    spec.wait = HF_NEVER;
    hf_op *op = begin_spec(&rig, &spec, AT(0));
    hf_op_end(op, AT(1));
    const hf_hold *hold = hold_of(&rig);
    CHECK(hold && is_cleaned_up(hold) && is_in_flight(hold));
    CHECK(uses_same_connection(hold));
    hf_session *link = link_of(&rig, CALLS);
    output_of(link);
    hf_session_closed(link, "reset", AT(2)); /* it is not sent again */
    for (int ms = 3; ms < 500; ms += 10) rig_tick(&rig, AT(ms));
    CHECK(!strstr(output_of(link), "EVALSHA acquire"));
    rig_end(&rig, AT(501));
}

/* A pending release begins the time of a hold that had none, from the asking. */
TEST(a_pending_release_starts_the_lease_of_a_first_entry_only) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    set_shared(hold, true);
    hf_time end = ends_at(hold);
    hf_renewer_add_pending_release(hold, AT(500));
    CHECK_EQ_INT(pending_of(hold), 1);
    CHECK_EQ_U64(ends_at(hold), end);
    set_count(hold, 0);
    set_others(hold, 0);
    set_pending(hold, 0);
    set_hold_state(hold, HF_HOLD_ACQUIRING);
    hf_renewer_add_pending_release(hold, AT(500));
    CHECK_EQ_U64(ends_at(hold), AT(500 + 29698));
    hf_renewer_add_pending_release(hold, AT(900));
    CHECK_EQ_INT(pending_of(hold), 2);
    CHECK_EQ_U64(ends_at(hold), AT(500 + 29698));
    set_shared(hold, false);
    set_pending(hold, 0);
    hf_renewer_add_pending_release(hold, AT(900));
    CHECK_EQ_INT(pending_of(hold), 0);
    rig_end(&rig, AT(901));
}

TEST(a_leave_is_retried_until_the_lease_has_ended) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(0));
    int tries = 0;
    for (int ms = 0; ms < 31000 && hold_of(&rig); ms += 10) {
        rig_sleep(&rig, AT(ms), AT(ms + 10));
        if (output_of(link_of(&rig, RENEWER))[0] == '\0') continue;
        tries++;
        feed_renewer(&rig, "-OOM command not allowed\r\n", AT(ms + 10));
    }
    CHECK(!hold_of(&rig));
    CHECK_OR(tries > 25 && tries < 100, "%d tries", tries);
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(40000));
}

TEST(a_closed_client_retries_a_leave_soon) {
    rig_begin(&rig);
    add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_client_close(&rig.client, AT(10));
    rig_tick(&rig, AT(10));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    feed_renewer(&rig, "-OOM command not allowed\r\n", AT(11));
    rig_sleep(&rig, AT(11), AT(100));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(101));
}

TEST(a_closed_client_retries_a_leave_after_a_fifth_of_a_second_at_most) {
    static const int pauses[] = {50, 100, 200, 200, 200, 200};
    for (uint32_t failures = 0; failures < 6; failures++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        hf_client_close(&rig.client, AT(10));
        rig_tick(&rig, AT(10));
        set_failures(hold, failures);
        feed_renewer(&rig, "-OOM command not allowed\r\n", AT(11));
        CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(11 + pauses[failures]));
        rig_end(&rig, AT(12));
    }
}

/* The callers go on over it; only the renewer's own link is replaced for a leave. */
TEST(a_leave_without_a_reply_leaves_the_callers_link_open) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    set_shared(hold, true);
    set_end(hold, AT(500));
    hf_renewer_clean_up_same_connection(&rig.client, hold, AT(1));
    rig_tick(&rig, AT(1));
    CHECK(strstr(output_of(link_of(&rig, CALLS)), "EVALSHA leave"));
    hf_client_tick(&rig.client, AT(500));
    CHECK(!hold_of(&rig));
    CHECK(hf_session_wants(link_of(&rig, CALLS), AT(500)) != HF_WANT_CLOSE);
    rig_end(&rig, AT(501));
}

TEST(a_leave_to_an_unreachable_server_ends) {
    rig_begin(&rig);
    rig.refusing = true;
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(0));
    int wakes = rig_sleep(&rig, AT(0), AT(40000));
    CHECK(!hold_of(&rig));
    CHECK_OR(wakes < 300, "%d wakes", wakes);
    CHECK_EQ_U64(hf_client_deadline(&rig.client), HF_NEVER);
    rig_end(&rig, AT(40000));
}

TEST(a_key_of_another_type_needs_no_leave) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(0));
    rig_tick(&rig, AT(0));
    feed_renewer(&rig, "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
                 AT(1));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(2));
}

TEST(a_leave_is_repeated_while_dead_waiters_are_left) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(0));
    for (int turn = 0; turn < 3; turn++) {
        rig_tick(&rig, AT(turn));
        CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
        CHECK(is_cleaned_up(hold_of(&rig)));
        feed_renewer(&rig, turn < 2 ? ":3\r\n" : ":1\r\n", AT(turn));
    }
    CHECK(!hold_of(&rig));
    CHECK_EQ_U64(hf_client_stats(&rig.client).undone, 1);
    rig_end(&rig, AT(3));
}

TEST(a_leave_names_the_place_in_the_queue) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    set_wait(hold, 7);
    set_token_ttl(hold, 1000);
    set_others(hold, 2);
    set_same_connection(hold, true);
    hf_renewer_clean_up(&rig.client, hold, AT(0));
    rig_tick(&rig, AT(0));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("2", MEMBER("7")));
    CHECK_SENT(&rig, RENEWER, "");
    rig_end(&rig, AT(2));
}

TEST(a_hold_abandoned_during_its_renewal_is_cleaned_up_after_it) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_EQ_INT(batch_size(), 1);
    hf_client_abandon(&rig.client, hold, 1, AT(10001));
    rig_sleep(&rig, AT(10001), AT(10100));
    CHECK_SENT(&rig, RENEWER, "");
    answer_batch(1, ":1", AT(10100));
    CHECK_EQ_U64(hf_client_stats(&rig.client).renewals, 1);
    rig_tick(&rig, AT(10100));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    feed_renewer(&rig, ":1\r\n", AT(10101));
    CHECK(!hold_of(&rig));
    rig_end(&rig, AT(11000));
}

TEST(a_hold_abandoned_during_a_failed_renewal_is_cleaned_up_after_it) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    output_of(link_of(&rig, RENEWER));
    hf_client_abandon(&rig.client, hold, 1, AT(10001));
    feed_renewer(&rig, "-OOM no\r\n", AT(10002));
    CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
    rig_tick(&rig, AT(10002));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(11000));
}

TEST(a_hold_abandoned_during_an_extend_is_cleaned_up_after_it) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_op *op = begin(&rig, HF_OP_EXTEND, AT(10));
    hf_client_abandon(&rig.client, hold, 1, AT(11));
    rig_tick(&rig, AT(12));
    CHECK_SENT(&rig, RENEWER, "");
    feed_calls(&rig, ":1\r\n", AT(13));
    CHECK(hf_op_is_done(op));
    rig_tick(&rig, AT(13));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(11000));
}

TEST(a_batch_waits_for_a_clean_up_and_sends_it_at_once) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(0));
    hf_holds_wake_at(holds_of(&rig.client), hold, ends_at(hold)); /* its last try has failed */
    const hf_names *all[] = {&rig.names};
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE_ALL);
    spec.names = NULL;
    spec.batch = all;
    spec.batch_count = 1;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(29990));
    CHECK(hf_op_is_blocked(op));
    rig_serve(&rig, AT(29990));
    CHECK_SENT(&rig, CALLS, LEAVE_OF_K("0", ""));
    feed_calls(&rig, ":1\r\n", AT(29995));
    CHECK(!hf_op_is_blocked(op));
    CHECK(strstr(output_of(link_of(&rig, CALLS)), "EVALSHA acquire_all 4 k "));
    rig_end(&rig, AT(34000));
}

/* ---- only with the owner's approval ---- */

static void begin_needs_approval(void) {
    hf_client_config config = rig_config();
    config.needs_approval = true;
    rig_begin_with(&rig, &config);
}

TEST(with_needs_approval_a_hold_is_renewed_only_when_approved) {
    begin_needs_approval();
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(12000));
    CHECK_SENT(&rig, RENEWER, "");
    CHECK(approval_of(hold) == HF_APPROVAL_PENDING);
    CHECK_EQ_U64(hf_client_approvals_asked(&rig.client), 1);
    hf_client_approve(&rig.client, hold, AT(12000));
    rig_tick(&rig, AT(12000));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    answer_batch(1, ":1", AT(12001));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(22000));
    rig_sleep(&rig, AT(12001), AT(25000)); /* one approval, one renewal */
    CHECK_SENT(&rig, RENEWER, "");
    CHECK(approval_of(hold) == HF_APPROVAL_PENDING);
    rig_sleep(&rig, AT(25000), AT(12000 + 29698));
    CHECK(is_lost(hold));
    rig_end(&rig, AT(50000));
}

TEST(with_needs_approval_an_approval_not_asked_for_does_not_count) {
    begin_needs_approval();
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_client_approve(&rig.client, hold, AT(1));
    rig_sleep(&rig, AT(1), AT(12000));
    CHECK_SENT(&rig, RENEWER, "");
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_client_approve(&rig.client, hold, AT(12000));
    rig_sleep(&rig, AT(12000), AT(13000));
    CHECK_SENT(&rig, RENEWER, "");
    rig_end(&rig, AT(50000));
}

TEST(with_needs_approval_a_batch_has_only_approved_holds) {
    begin_needs_approval();
    hf_hold *first = add_hold("a", "me", 30 * HF_SECOND, true, AT(0));
    add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    CHECK_EQ_U64(approvals_asked(&rig.client), 2);
    hf_client_approve(&rig.client, first, AT(10001));
    rig_tick(&rig, AT(10001));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 a me 30000");
    rig_end(&rig, AT(50000));
}

TEST(with_needs_approval_an_approval_may_come_during_a_command) {
    begin_needs_approval();
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(10000));
    begin(&rig, HF_OP_CHECK, AT(10001));
    hf_client_approve(&rig.client, hold, AT(10002));
    rig_tick(&rig, AT(10002));
    CHECK_SENT(&rig, RENEWER, "");
    feed_calls(&rig, "-NOPERM no\r\n", AT(10003));
    rig_tick(&rig, AT(10003));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 30000");
    rig_end(&rig, AT(50000));
}

/* ---- abandoned handles ---- */

TEST(abandoning_all_entries_cleans_the_hold_up) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    set_count(hold, 3);
    hf_client_abandon(&rig.client, hold, 2, AT(1));
    CHECK(is_held(hold));
    CHECK_EQ_INT(count_of(hold), 1);
    hf_client_abandon(&rig.client, hold, 1, AT(2));
    CHECK(is_cleaned_up(hold));
    hf_client_abandon(&rig.client, hold, 1, AT(2)); /* by a second handle: nothing more to do */
    CHECK(is_cleaned_up(hold));
    rig_end(&rig, AT(3));
}

TEST(abandoning_a_lost_hold_forgets_it) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_hold_ref(hold);
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_client_abandon(&rig.client, hold, 1, AT(1));
    CHECK(!is_in_table(hold));
    hf_client_abandon(&rig.client, hold, 1, AT(1));
    hf_hold_unref(hold);
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(3));
}

/* Its last renewal may have been carried out, although the reply was lost. */
TEST(abandoning_a_hold_lost_by_the_clock_cleans_it_up) {
    static const hf_lost_reason reasons[] = {HF_LOST_UNREACHABLE, HF_LOST_EXPIRED};
    for (size_t i = 0; i < 2; i++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
        hf_hold_ref(hold);
        hf_client_lose(&rig.client, hold, reasons[i]);
        hf_client_abandon(&rig.client, hold, 1, AT(3000));
        CHECK(is_lost(hold));
        CHECK_EQ_INT(state_of(&rig), HF_HOLD_CLEANING_UP);
        CHECK(!hf_client_is_quiet(&rig.client));
        rig_tick(&rig, AT(3001));
        CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
        feed_renewer(&rig, ":1\r\n", AT(3002));
        CHECK_EQ_INT(hold_count(&rig.client), 0);
        CHECK(hf_client_is_quiet(&rig.client));
        hf_hold_unref(hold);
        rig_end(&rig, AT(4000));
    }
}

TEST(closing_cleans_up_holds_lost_by_the_clock) {
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

/* The lost entries are another process's by now; only the mark in the queue is this client's. */
TEST(closing_removes_the_mark_of_a_shared_owners_lost_grant_and_no_entry) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    set_shared(hold, true);
    set_granted(hold, true);
    set_wait(hold, 5);
    hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
    hf_client_close(&rig.client, AT(1));
    rig_tick(&rig, AT(1));
    CHECK_SENT(&rig, RENEWER, "EVALSHA leave " KEYS_OF_K "0 1l" DRIVE_UUID ":5:1000 me 0");
    rig_end(&rig, AT(2));
}

static hf_time fake_deadlines[2];
static int fake_ticks[2];

static hf_time fake_deadline(const hf_client *client, hf_link half) {
    (void)client;
    return fake_deadlines[half == HF_LINK_RENEWER];
}

static void fake_tick(hf_client *client, hf_link half, hf_time now) {
    (void)client, (void)now;
    fake_ticks[half == HF_LINK_RENEWER]++;
}

/* A driver may serve the halves in two threads, and each must find its nodes by itself. */
TEST(each_half_of_a_client_serves_its_own_half_of_the_topology) {
    rig_begin(&rig);
    const hf_topology *before = topology_of(&rig.client);
    hf_topology topology = *before;
    topology.deadline = fake_deadline;
    topology.tick = fake_tick;
    set_topology(&rig.client, &topology);
    fake_deadlines[0] = AT(70);
    fake_deadlines[1] = AT(90);
    CHECK_EQ_U64(hf_client_calls_deadline(&rig.client), AT(70));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), AT(90));
    CHECK_EQ_U64(hf_client_deadline(&rig.client), AT(70));
    hf_client_tick_renewer(&rig.client, AT(1));
    CHECK(fake_ticks[0] == 0 && fake_ticks[1] == 1);
    hf_client_tick_calls(&rig.client, AT(1));
    CHECK(fake_ticks[0] == 1 && fake_ticks[1] == 1);
    set_topology(&rig.client, before);
    rig_end(&rig, AT(2));
}

/* Its reply is still to come, and what follows waits for that. */
TEST(a_leave_in_flight_is_awaited_beyond_the_lease) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(0));
    rig_tick(&rig, AT(0));
    CHECK(is_in_flight(hold));
    set_end(hold, AT(100));
    hf_holds_wake_at(holds_of(&rig.client), hold, AT(100));
    rig_tick(&rig, AT(100));
    CHECK(hold_of(&rig) == hold && is_in_flight(hold));
    CHECK(!hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(101));
}

/* While its slot moves it can be renewed by its key alone, also if nobody wants it renewed. */
TEST(a_grant_at_risk_in_a_moving_slot_is_renewed_by_its_key) {
    for (int moves = 0; moves <= 1; moves++) {
        rig_begin(&rig);
        const hf_topology *before = topology_of(&rig.client);
        hf_topology topology = *before;
        hf_hold *hold = granted_hold(true);
        before = topology_of(&rig.client);
        topology.moves_slots = moves;
        set_topology(&rig.client, &topology);
        set_at_risk(hold, true);
        set_renewed(hold, false);
        rig_sleep(&rig, AT(100), AT(800));
        const char *sent = output_of(link_of(&rig, RENEWER));
        CHECK(strstr(sent, moves ? "EVALSHA renew 1 k" : "EVALSHA extend"));
        set_topology(&rig.client, before);
        rig_end(&rig, AT(900));
    }
}

/* ---- memory ---- */

TEST(without_memory_a_renewal_is_retried) {
    unsigned long nth = 1;
    bool failed = true;
    for (; failed; nth++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        hf_session_opening(link_of(&rig, RENEWER), AT(0));
        hf_session_opened(link_of(&rig, RENEWER), AT(0));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(10000));
        failed = memerr_failed();
        memerr_fail(0);
        CHECK(is_held(hold));
        CHECK_EQ_INT(is_at_risk(hold), failed);
        CHECK(hf_client_deadline(&rig.client) > AT(10000));
        rig_sleep(&rig, AT(10000), AT(11500));
        CHECK_EQ_INT(batch_size(), 1);
        rig_end(&rig, AT(12000));
    }
    CHECK(nth > 4);
}

TEST(without_memory_a_confirmation_is_retried) {
    unsigned long nth = 1;
    bool failed = true;
    for (; failed; nth++) {
        rig_begin(&rig);
        hf_hold *hold = granted_hold(true);
        hf_session_opening(link_of(&rig, RENEWER), AT(100));
        hf_session_opened(link_of(&rig, RENEWER), AT(100));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(800));
        failed = memerr_failed();
        memerr_fail(0);
        rig_serve(&rig, AT(800));
        CHECK(is_held(hold));
        CHECK(hf_client_deadline(&rig.client) > AT(800));
        rig_sleep(&rig, AT(800), AT(1100));
        CHECK_SENT(&rig, RENEWER, CONFIRM_K);
        rig_end(&rig, AT(12000));
    }
    CHECK(nth > 4);
}

TEST(a_lasting_lack_of_memory_causes_no_busy_loop) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 300 * HF_MS, true, AT(0));
    hf_hold *left = add_hold("l", "me", 300 * HF_MS, true, AT(0));
    set_hold_state(left, HF_HOLD_CLEANING_UP);
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
    CHECK(is_lost(hold));
    rig_end(&rig, AT(12000));
}

TEST(without_memory_a_leave_is_retried) {
    unsigned long nth = 1;
    bool failed = true;
    for (; failed; nth++) {
        rig_begin(&rig);
        hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
        hf_session_opening(link_of(&rig, RENEWER), AT(0));
        hf_session_opened(link_of(&rig, RENEWER), AT(0));
        hf_renewer_clean_up(&rig.client, hold, AT(1));
        memerr_fail(nth);
        hf_client_tick(&rig.client, AT(1));
        failed = memerr_failed();
        memerr_fail(0);
        rig_sleep(&rig, AT(1), AT(1100));
        CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
        rig_end(&rig, AT(12000));
    }
    CHECK(nth > 4);
}

/* ---- the owner's approval ---- */

TEST(with_needs_approval_a_hold_without_approval_expires) {
    rig_begin(&rig);
    config_in(&rig.client)->needs_approval = true;
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    rig_sleep(&rig, AT(0), AT(1000) - 1);
    CHECK(approval_of(hold) != HF_APPROVAL_PENDING);
    rig_sleep(&rig, AT(1000) - 1, AT(2900));
    CHECK(approval_of(hold) == HF_APPROVAL_PENDING);
    CHECK_EQ_U64(approvals_asked(&rig.client), 1);
    CHECK_SENT(&rig, RENEWER, "");
    rig_sleep(&rig, AT(2900), AT(3000));
    CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_EXPIRED);
    rig_end(&rig, AT(3000));
}

TEST(with_needs_approval_each_approval_is_for_one_renewal) {
    rig_begin(&rig);
    config_in(&rig.client)->needs_approval = true;
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_client_approve(&rig.client, hold, AT(500)); /* nobody asked */
    rig_sleep(&rig, AT(500), AT(1000));
    CHECK_SENT(&rig, RENEWER, "");
    hf_client_approve(&rig.client, hold, AT(1000));
    rig_sleep(&rig, AT(1000), AT(1001));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 3000");
    answer_batch(1, ":1", AT(1002));
    rig_sleep(&rig, AT(1002), AT(2100));
    CHECK_EQ_U64(approvals_asked(&rig.client), 2);
    CHECK_SENT(&rig, RENEWER, "");
    rig_end(&rig, AT(2100));
}

TEST(with_needs_approval_a_grant_without_approval_is_not_confirmed) {
    rig_begin(&rig);
    config_in(&rig.client)->needs_approval = true;
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, false, AT(0));
    set_granted(hold, true);
    set_end(hold, AT(2000));
    hf_holds_wake_at(holds_of(&rig.client), hold, AT(600));
    rig_sleep(&rig, AT(0), AT(1999));
    CHECK(approval_of(hold) == HF_APPROVAL_PENDING);
    CHECK_SENT(&rig, RENEWER, "");
    rig_sleep(&rig, AT(1999), AT(2000));
    CHECK(is_lost(hold));
    rig_end(&rig, AT(2000));
}

TEST(with_needs_approval_a_renewal_takes_along_only_approved_holds) {
    rig_begin(&rig);
    config_in(&rig.client)->needs_approval = true;
    hf_hold *first = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    add_hold("l", "me", 3 * HF_SECOND, true, AT(50)); /* due soon enough to be taken along */
    rig_sleep(&rig, AT(0), AT(1000));
    CHECK_EQ_U64(approvals_asked(&rig.client), 1);
    hf_client_approve(&rig.client, first, AT(1001));
    rig_sleep(&rig, AT(1001), AT(1002));
    CHECK_SENT(&rig, RENEWER, "EVALSHA renew 1 k me 3000");
    rig_end(&rig, AT(1002));
}

TEST(a_leave_without_a_reply_closes_its_connection) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", HF_SECOND, true, AT(0));
    set_shared(hold, true);
    hf_client_abandon(&rig.client, hold, 1, AT(10));
    rig_tick(&rig, AT(10));
    CHECK(strncmp(output_of(link_of(&rig, RENEWER)), "EVALSHA leave ", 14) == 0);
    CHECK_EQ_INT(link_of(&rig, RENEWER)->state, HF_SESSION_READY);
    rig_sleep(&rig, AT(10), AT(1000)); /* the owner's other process may have it from then on */
    CHECK_EQ_INT(link_of(&rig, RENEWER)->state, HF_SESSION_CLOSED);
    rig_end(&rig, AT(1001));
}

/* Its mark in the queue shows that it has the lock by a grant; only that is released. */
TEST(a_shared_owners_lost_grant_is_cleaned_up_by_its_mark_only) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    set_shared(hold, true);
    set_granted(hold, true);
    set_wait(hold, 5);
    hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
    hf_op *op = begin(&rig, HF_OP_RELEASE, AT(1));
    CHECK_OUTCOME(op, "lost");
    hf_op_end(op, AT(1));
    rig_tick(&rig, AT(1));
    CHECK_SENT(&rig, RENEWER, "EVALSHA leave " KEYS_OF_K "0 1l" DRIVE_UUID ":5:1000 me 0");
    hf_session_closed(link_of(&rig, RENEWER), "reset", AT(2));
    rig_sleep(&rig, AT(2), AT(300)); /* it takes nothing from anybody if it is sent twice */
    CHECK(strncmp(output_of(link_of(&rig, RENEWER)), "EVALSHA leave ", 14) == 0);
    rig_end(&rig, AT(301));
}

TEST(a_confirmation_waits_for_its_connection) {
    rig_begin(&rig);
    hf_op *op = wait_in_queue(&rig, 10 * HF_SECOND, AT(0));
    feed_message(&rig, GRANT("1", "9"), AT(10));
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, AT(10));
    hf_hold *hold = hold_of(&rig);
    CHECK(is_granted(hold));
    rig.refusing = true;
    rig_tick(&rig, wakes_at(hold));
    CHECK(link_of(&rig, RENEWER)->failed_opens > 0);
    CHECK(is_in_flight(hold));
    CHECK(!is_at_risk(hold));
    rig_end(&rig, AT(2000));
}

TEST(a_clean_up_starts_without_failures) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    set_failures(hold, 3);
    hf_renewer_clean_up(&rig.client, hold, AT(1));
    CHECK_EQ_INT(failures_of(hold), 0);
    rig_end(&rig, AT(2));
}

TEST(a_clean_up_set_aside_is_retried_later) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(0));
    CHECK(hf_renewer_set_aside(&rig.client, hold, AT(0)));
    const hf_hold *aside = hf_holds_first(holds_of(&rig.client));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), hf_lease_retry_at(AT(0), ends_at(aside)));
    rig_sleep(&rig, AT(0), AT(999));
    CHECK_SENT(&rig, RENEWER, "");
    rig_sleep(&rig, AT(999), AT(1000));
    CHECK_SENT(&rig, RENEWER, LEAVE_OF_K("0", ""));
    rig_end(&rig, AT(1001));
}

TEST(a_confirmation_with_a_reply_bounds_nothing) {
    rig_begin(&rig);
    hf_hold *hold = granted_hold(true);
    hf_session_opening(link_of(&rig, RENEWER), AT(100));
    hf_session_opened(link_of(&rig, RENEWER), AT(100));
    set_lease(hold, HF_SECOND);
    rig_sleep(&rig, AT(200), AT(800));
    CHECK(strstr(output_of(link_of(&rig, RENEWER)), "EVALSHA extend"));
    feed_renewer(&rig, ":1\r\n", AT(801));
    CHECK(!is_granted(hold));
    CHECK_EQ_U64(shortened_lease(hold), HF_NEVER);
    rig_end(&rig, AT(802));
}

TEST(a_lost_hold_is_not_due_again) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, true, AT(0));
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_time before = wakes_at(hold);
    hf_renewer_resume(&rig.client, hold, AT(1));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), before);
    rig_end(&rig, AT(2));
}

/* The owner may have it through another process. */
TEST(a_shared_owners_lost_hold_without_a_mark_is_not_cleaned_up) {
    static const struct {
        bool granted;
        uint64_t wait;
    } cases[] = {{false, 0}, {false, 5}, {true, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_begin(&rig);
        hf_hold *hold = hold_lock(&rig, AT(0));
        set_shared(hold, true);
        set_granted(hold, cases[i].granted);
        set_wait(hold, cases[i].wait);
        hf_client_lose(&rig.client, hold, HF_LOST_EXPIRED);
        CHECK(!hf_renewer_may_stand(hold));
        hf_renewer_clean_up_grant(&rig.client, hold, AT(1));
        hf_client_abandon(&rig.client, hold, 1, AT(1));
        CHECK_EQ_INT(hold_count(&rig.client), 0);
        rig_tick(&rig, AT(1));
        CHECK_SILENT(&rig);
        rig_end(&rig, AT(2));
    }
}

TEST(a_hold_that_is_not_renewed_sleeps_until_its_end) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 3 * HF_SECOND, false, AT(0));
    hf_holds_wake_at(holds_of(&rig.client), hold, AT(100));
    rig_tick(&rig, AT(100));
    CHECK_EQ_U64(hf_client_renewer_deadline(&rig.client), ends_at(hold));
    CHECK_SILENT(&rig);
    rig_end(&rig, AT(101));
}

TEST(only_a_sent_request_is_finished_by_the_renewer) {
    rig_begin(&rig);
    hf_op *op = begin(&rig, HF_OP_PING, AT(0));
    CHECK(hf_renewer_see_through(&rig.client, request_in(op)));
    CHECK_EQ_INT(unanswered_count(&rig.client), 1);
    CHECK(!hf_client_is_quiet(&rig.client));
    feed_calls(&rig, "+PONG\r\n", AT(1));
    CHECK_EQ_INT(unanswered_count(&rig.client), 0);
    rig_end(&rig, AT(2));
    rig_begin(&rig);
    hf_op_spec spec = spec_of(&rig, HF_OP_PING);
    op = hf_client_begin(&rig.client, &spec, AT(0)); /* no connection yet */
    CHECK(!hf_renewer_see_through(&rig.client, request_in(op)));
    CHECK_EQ_INT(unanswered_count(&rig.client), 0);
    CHECK(hf_client_is_quiet(&rig.client));
    rig_end(&rig, AT(2));
}

TEST(an_entry_abandoned_during_a_batch_is_dropped_at_its_end) {
    static hf_names other;
    rig_begin(&rig);
    if (!hf_names_make(&other, hf_slice_of("l"))) abort();
    hf_hold *first = hold_lock(&rig, AT(0));
    const hf_names *all[] = {&rig.names, &other};
    hf_op_spec spec = spec_of(&rig, HF_OP_ACQUIRE_ALL);
    spec.names = NULL;
    spec.batch = all;
    spec.batch_count = 2;
    hf_op *op = begin_spec(&rig, &spec, AT(1));
    CHECK(batch_holds_of(op) && batch_holds_of(op)[0] == first && is_in_flight(first));
    hf_client_abandon(&rig.client, first, 1, AT(2));
    CHECK(is_held(first));
    CHECK_EQ_INT(dropped_of(first), 1);
    rig_end(&rig, AT(3));
    hf_names_free(&other);
}

TEST(a_shared_owners_lost_hold_removes_its_mark) {
    rig_begin(&rig);
    hf_hold *hold = hold_lock(&rig, AT(0));
    set_shared(hold, true);
    set_granted(hold, true);
    set_wait(hold, 5);
    hf_client_lose(&rig.client, hold, HF_LOST_TAKEN);
    hf_renewer_clean_up_grant(&rig.client, hold, AT(1));
    rig_tick(&rig, AT(1));
    CHECK_SENT(&rig, RENEWER, "EVALSHA leave " KEYS_OF_K "0 1l" DRIVE_UUID ":5:1000 me 0");
    rig_end(&rig, AT(2));
}

/* The renewer may still leave by the mark when the lease of the hold is over, and no longer by its
 * count. */
TEST(a_shared_owners_mark_is_removed_even_after_the_lease) {
    for (int granted = 0; granted <= 1; granted++) {
        rig_begin(&rig);
        hf_hold *hold = hold_lock(&rig, AT(0));
        set_shared(hold, true);
        set_granted(hold, granted);
        set_wait(hold, 5);
        set_end(hold, AT(100));
        hf_client_abandon(&rig.client, hold, 1, AT(1));
        CHECK(is_cleaned_up(hold));
        rig_tick(&rig, AT(100)); /* the lease ends before the leave is sent */
        CHECK_EQ_INT(hold_count(&rig.client), granted);
        if (granted)
            CHECK_SENT(&rig, RENEWER, "EVALSHA leave " KEYS_OF_K "0 1l" DRIVE_UUID ":5:1000 me 0");
        else CHECK_SILENT(&rig);
        rig_end(&rig, AT(101));
    }
}

TEST(a_renewal_does_not_take_along_holds_that_have_ended) {
    for (int over = 0; over <= 1; over++) {
        rig_begin(&rig);
        set_end(add_hold("a", "me", 30 * HF_SECOND, true, AT(0)), AT(10000) + 1);
        hf_hold *hold = add_hold("b", "me", 30 * HF_SECOND, true, AT(0));
        set_end(hold, AT(10000) + !over);
        hf_client_tick(&rig.client, AT(10000));
        rig_serve(&rig, AT(10000));
        CHECK_EQ_INT(batch_size(), over ? 1 : 2);
        CHECK_EQ_INT(hold_state(hold), over ? HF_HOLD_LOST : HF_HOLD_HELD);
        rig_end(&rig, AT(10001));
    }
}

TEST(without_memory_a_leave_is_not_retried_at_once) {
    rig_begin(&rig);
    hf_hold *hold = add_hold("k", "me", 30 * HF_SECOND, true, AT(0));
    open_session(link_of(&rig, RENEWER), AT(0));
    hf_renewer_clean_up(&rig.client, hold, AT(1));
    memerr_fail(1);
    hf_client_tick(&rig.client, AT(1));
    CHECK(memerr_failed());
    memerr_fail(0);
    CHECK_SENT(&rig, RENEWER, "");
    CHECK(hf_client_renewer_deadline(&rig.client) > AT(1));
    rig_end(&rig, AT(2));
}

CHECK_MAIN
