#include "quorum_rig.h"

/* What becomes of a hold of five servers that a majority has lost. */

static hf_hold *held(const char *key) {
    return hf_holds_find(holds_of(&rig.client), &hf_kind_lock, hf_slice_of(key), hf_slice_of("me"));
}

static void lose_on(hf_hold *hold, int count) {
    for (int i = 0; i < count; i++)
        hf_client_lose(member(i), member_holds_of(hold)[i], HF_LOST_DELETED);
}

/* The renewals that these servers were asked for since the last time; they say yes. */
static int answer_renewals(int from, hf_time now) {
    int renewals = 0;
    for (int i = from; i < COUNT; i++) {
        const char *text = output_of(link_at(i, RENEWER));
        while ((text = strstr(text, "EVALSHA renew"))) {
            text++;
            renewals++;
            feed(link_at(i, RENEWER), "*1\r\n:1\r\n", now);
        }
    }
    return renewals;
}

TEST(a_quorum_holds_loss_is_reported_even_while_another_hold_is_missing_on_a_server) {
    hf_names second = {0};
    CHECK(hf_names_make(&second, hf_slice_of("k2")));
    hold_by(COUNT, AT(0));
    hf_hold *first = held("k");
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(5000), spec.names = &second);
    answers(0, COUNT, yes(78), AT(5000));
    hf_op_end(op, AT(5000));
    for (hf_time t = 5100; t < 16000; t += 100) { /* both are renewed and checked once */
        tick(AT(t));
        answer_renewals(0, AT(t));
    }
    lose_on(first, 3);
    lose_on(held("k2"), 1);
    hf_client_detect_losses(&rig.client, AT(16001)), CHECK(is_lost(first));
    rig_end(AT(16003));
    hf_names_free(&second);
}

static void tick_from(hf_time from, hf_time to, int renewing) {
    for (hf_time t = from; t <= to; t += 100) {
        tick(AT(t));
        answer_renewals(renewing, AT(t));
    }
}

static bool is_asked(int i) {
    return strstr(output_by(i), "EVALSHA acquire");
}

#define BUSY "*5\r\n:0\r\n:1000\r\n:0\r\n:0\r\n$0\r\n\r\n"
#define FULL "-OOM command not allowed when used memory > 'maxmemory'.\r\n"

/* Five servers had it; the first one has deleted it and is asked for it again at about 40 s, the
 * next two have been silent since 11 s, so a majority ends at about 40.8 s. → when it is asked
 */
static hf_time near_the_end(void) {
    start();
    hold_by(COUNT, AT(0));
    tick_from(100, 8500, 3);
    hf_client_lose(member(0), member_holds_of(held("k"))[0], HF_LOST_DELETED);
    hf_time asked_at = 0;
    for (hf_time t = 8600; t <= 40500; t += 100) {
        for (int i = 1; i < 3 && t == 11000; i++)
            hf_session_closed(link_at(i, RENEWER), "gone", AT(t));
        tick(AT(t));
        answer_renewals(t >= 11000 && t <= 11200 ? 1 : 3, AT(t));
        if (!is_asked(0)) continue;
        asked_at = t;
        if (t < 35000) answer(0, FULL, AT(t));
    }
    return asked_at;
}

TEST(a_late_grant_after_its_majority_has_expired_does_not_revive_a_quorum_hold) {
    CHECK(near_the_end() > 39000);
    CHECK(is_held(held("k")));
    feed(link_at(0, CALLS), yes(90), AT(41500)); /* before the client has noticed that it ended */
    tick(AT(41500)), CHECK(is_lost(held("k")));
}

/* → how often the server was asked for the lock until then; it had another owner each time */
static int refuse_until(int i, hf_time from, hf_time to) {
    int asked = 0;
    for (hf_time t = from; t <= to; t += 5) {
        tick(AT(t));
        answer_renewals(0, AT(t));
        if (!is_asked(i)) continue;
        asked++;
        answer(i, BUSY, AT(t));
    }
    return asked;
}

static void get_it_back(int i, hf_time from) {
    for (hf_time t = from; !is_asked(i); t += 5) {
        CHECK(t < from + 2000);
        tick(AT(t));
    }
    answer(i, yes(90), AT(from + 2000)), CHECK_EQ_U64(parts_held(), COUNT);
}

/* Held by all servers but the first one, which has another owner. */
static void hold_beside_another(bool renewed) {
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.renewed = renewed);
    answer(0, BUSY, AT(1));
    CHECK_ANSWERS_END(op, 1, COUNT, yes(77), AT(1), "ok");
    rig_hush();
}

TEST(a_quorum_hold_is_soon_restored_on_a_server_that_had_another_owner_at_first) {
    hold_beside_another(true), CHECK_EQ_INT(refuse_until(0, 2, 45), 0);
    CHECK_EQ_INT(refuse_until(0, 50, 60), 1);
    get_it_back(0, 65);
}

TEST(a_hold_is_restored_less_and_less_often_on_a_server_where_another_owner_has_the_lock) {
    hold_by(4, AT(0));
    answer(4, BUSY, AT(1)), CHECK_EQ_INT(refuse_until(4, 2, 45), 0);
    CHECK_EQ_INT(refuse_until(4, 50, 1600), 5);   /* 50, 150, 350, 750, 1550 ms */
    CHECK_EQ_INT(refuse_until(4, 1605, 9600), 8); /* each second from then on */
    get_it_back(4, 9605);
    hf_client_lose(member(4), member_holds_of(held("k"))[4], HF_LOST_TAKEN);
    CHECK_EQ_INT(refuse_until(4, 11700, 12500), 0); /* with the next renewal */
}

TEST(a_quorum_soon_tries_to_restore_a_hold_that_a_server_has_lost_again) {
    hold_by(4, AT(0));
    answer(4, BUSY, AT(1)), CHECK_EQ_INT(refuse_until(4, 50, 1600), 5);
    get_it_back(4, 1605);
    hf_client_lose(member(4), member_holds_of(held("k"))[4], HF_LOST_TAKEN);
    CHECK_EQ_INT(refuse_until(4, 3610, 14000), 5);
}

TEST(a_quorum_tries_to_restore_a_missing_hold_within_an_hour_whatever_its_lease) {
    hold_by(5, AT(0));
    hf_hold *hold = hold_of();
    set_lease(hold, 1000000 * HF_SECOND);
    for (int i = 0; i < 20; i++) {
        hf_holds_set_wake_at(holds_of(&rig.client), claim_of(hold), HF_NEVER);
        hf_quorum_on_busy(&rig.client, hold, AT(1)), CHECK(wakes_at(hold) < AT(3600 * 1000));
    }
    CHECK(wakes_at(hold) > AT(3000 * 1000));
}

TEST(a_quorum_hold_that_is_not_renewed_is_not_restored_on_a_server_that_lacks_it) {
    hold_beside_another(false), CHECK_EQ_INT(refuse_until(0, 2, 9000), 0);
}

#define HOLDS 250

static int count_asked(int i) {
    int asked = 0;
    for (const char *at = output_by(i); (at = strstr(at, "EVALSHA acquire")); at++) asked++;
    return asked;
}

/* Each is held, and the last server has only replied that it is full. */
static void hold_many(hf_names names[HOLDS]) {
    for (int k = 0; k < HOLDS; k++) {
        CHECK(hf_names_make(&names[k], hf_slice_of(printed("k%d", k))));
        hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.names = &names[k]);
        answers(0, 4, yes(77), AT(0));
        answer(4, FULL, AT(0)), CHECK_ENDS(op, "ok", AT(0));
    }
    rig_hush();
}

static const char *all_renewed(int count) {
    static char text[8 * HOLDS];
    size_t size = (size_t)snprintf(text, sizeof text, "*%d\r\n", count);
    while (count-- > 0) size += (size_t)snprintf(text + size, sizeof text - size, ":1\r\n");
    return text;
}

/* Replies yes to what the server is asked for over this link. */
static void answer_all(hf_session *link, hf_time now) {
    static char text[SENT_SIZE];
    int count;
    memcpy(text, output_of(link), sizeof text);
    for (const char *at = text; (at = strstr(at, "EVALSHA ")); at++) {
        bool acquires = strncmp(at, "EVALSHA acquire", 15) == 0;
        if (sscanf(at, "EVALSHA renew %d", &count) == 1) feed(link, all_renewed(count), now);
        else feed(link, acquires ? yes(90) : ":1\r\n", now);
    }
    tick(now);
}

static int count_lacking(void) {
    int lacking = 0;
    for (size_t k = 0; k < holds_left(); k++)
        lacking +=
            !hf_member_hold_is_held(member_holds_of(hold_in_heap(holds_of(&rig.client), k))[4]);
    return lacking;
}

TEST(a_quorum_restores_hundreds_of_holds_on_a_server_in_groups_of_a_hundred) {
    static hf_names names[HOLDS];
    int asked = 0;
    hold_many(names);
    for (hf_time t = 10; t <= 12000; t += 10) { /* it hangs */
        tick(AT(t));
        for (int i = 0; i < 4; i++) answer_all(link_at(i, RENEWER), AT(t));
        asked += count_asked(4);
    }
    CHECK_EQ_INT(asked, 3 * 100); /* over one connection after the other */
    hf_session_closed(link_at(4, CALLS), "gone", AT(12000));
    for (hf_time t = 12010; t <= 23000; t += 10) {
        tick(AT(t));
        for (int i = 0; i < 4; i++) answer_all(link_at(i, RENEWER), AT(t));
        answer_all(link_at(4, CALLS), AT(t));
        answer_all(link_at(4, RENEWER), AT(t));
    }
    CHECK_EQ_INT(count_lacking(), 0);
    rig_end(AT(23001));
    for (int k = 0; k < HOLDS; k++) hf_names_free(&names[k]);
}

TEST(a_quorum_hold_that_could_not_be_restored_yet_is_checked_at_least_a_millisecond_later) {
    static hf_names names[HOLDS];
    hold_many(names);
    for (size_t k = 0; k < HOLDS; k++)
        set_lease(hold_in_heap(holds_of(&rig.client), k), 9 * HF_MS / 2);
    for (size_t k = 0; k < HOLDS; k++) set_wake(hold_in_heap(holds_of(&rig.client), k), AT(10));
    hf_client_tick(&rig.client, AT(10)), CHECK_EQ_INT(count_asked(4), 100);
    CHECK(wakes_at(hold_of_claim(hf_holds_first(holds_of(&rig.client)))) >= AT(11));
    rig_end(AT(12));
    for (int k = 0; k < HOLDS; k++) hf_names_free(&names[k]);
}

TEST(a_quorum_release_that_waited_until_its_hold_was_lost_does_not_free_a_newer_hold) {
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.shared = true, spec.renewed = false,
                            spec.lease = HF_SECOND);
    answers(0, COUNT, yes(77), AT(0));
    hf_op_end(op, AT(0));
    begin_quorum(HF_OP_CHECK, 0, AT(1));
    hf_op *release = begin_quorum(HF_OP_RELEASE, 0, AT(1));
    CHECK(hf_op_is_blocked(release));
    pass(AT(2), AT(1100)); /* its lease ends */
    answers(0, 3, ":-1\r\n", AT(1100));
    hf_op *acquire = BEGIN_ROUND(HF_OP_ACQUIRE, AT(1101), spec.shared = true, spec.renewed = false);
    CHECK_ANSWERS_END(acquire, 0, 3, yes(99), AT(1102), "ok");
    rig_hush();
    for (hf_time t = 1103; t < 5200 && !hf_op_is_done(release); t += 5) tick(AT(t));
    CHECK_OUTCOME(release, "lost");
    CHECK(is_held(held("k")));
    CHECK_STR(output_by(0), "");
}

TEST(a_partial_quorum_release_that_finds_a_loss_leaves_no_hold_on_any_server) {
    hold_by(COUNT, AT(0));
    hf_op *again = begin_quorum(HF_OP_ACQUIRE, 0, AT(1));
    CHECK_ANSWERS_END(again, 0, COUNT, yes(0), AT(1), "ok");
    hf_op *release = begin_quorum(HF_OP_RELEASE, 0, AT(2));
    answers(0, 3, ":-1\r\n", AT(2));
    answers(3, COUNT, ":2\r\n", AT(2));
    for (hf_time t = 3; t < 5200 && !hf_op_is_done(release); t += 5) tick(AT(t));
    CHECK_OUTCOME(release, "lost");
    CHECK_EQ_INT(parts_held(), 0);
}

static void hold_for(hf_time max_hold, int yeses) {
    hf_op *op = BEGIN_ROUND(HF_OP_ACQUIRE, AT(0), spec.max_hold = max_hold);
    answers(0, yeses, yes(77), AT(1));
    hf_op_end(op, AT(1));
    rig_hush();
}

TEST(a_quorum_hold_restored_on_a_server_later_also_ends_at_max_hold) {
    hold_for(40 * HF_SECOND, MAJORITY);
    hf_hold *hold = held("k");
    answer(4, busy(1000, 0, 0), AT(2));
    for (hf_time t = 100; t <= 20000; t += 100) {
        tick(AT(t));
        answer_renewals(0, AT(t));
        if (is_asked(4)) answer(4, yes(77), AT(t));
        if (t == 500) answer(3, yes(77), AT(t));
    }
    CHECK_EQ_INT(parts_held(), COUNT);
    for (int i = 0; i < COUNT; i++) CHECK(bound_of(member_holds_of(hold)[i]) <= AT(40000));
    tick_from(20100, 40000, 0), CHECK_STR(hf_lost_reason_name(reason_of(hold)), "max_hold");
}

TEST(a_quorum_re_entry_gives_no_server_a_lease_beyond_max_hold) {
    hold_for(40 * HF_SECOND, MAJORITY);
    hf_hold *hold = held("k");
    answers(MAJORITY, COUNT, busy(100, 0, 0), AT(2));
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, AT(3));
    CHECK_ANSWERS_END(op, 0, COUNT, yes(77), AT(4), "ok");
    CHECK_EQ_INT(parts_held(), COUNT);
    for (int i = 0; i < COUNT; i++) CHECK(bound_of(member_holds_of(hold)[i]) <= AT(40000));
}

TEST(a_quorum_loss_before_max_hold_is_reported_with_the_servers_reason) {
    hold_for(5 * HF_SECOND, COUNT);
    hf_hold *hold = held("k");
    lose_on(hold, 3);
    hf_client_detect_losses(&rig.client, AT(1000)), CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_DELETED);
}

CHECK_MAIN
