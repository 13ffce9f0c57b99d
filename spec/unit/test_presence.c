#include "op/presence.h"

#include "interfaces.h"
#include "rig.h"

static hf_names other_names;

static void free_both(void) {
    rig_after();
    hf_names_free(&other_names);
}

static void rig_before(void) {
    rig_begin();
}

CHECK_AROUND(rig_before, free_both)

#define NAME "holdfast_client:" DRIVE_UUID

/* Holds a lock for long enough that its name is published. */
static void publish_name(void) {
    rig_begin();
    hf_client_introduce(&rig.client, "host 7 name");
    end_with(begin_acquire(0, AT(0)), ACQUIRED, AT(1));
    CHECK_SENT_AT(RENEWER, AT(249), "");
    CHECK_SENT_AT(RENEWER, AT(250), "SET " NAME " host 7 name PX 300000");
    feed(link_of(RENEWER), "+OK\r\n", AT(251));
}

TEST(a_client_publishes_its_name_even_if_its_acquire_took_a_long_time) {
    hf_client_introduce(&rig.client, "host 7 name");
    hf_op *op = begin_acquire(0, AT(0));
    CHECK_SENT_AT(RENEWER, AT(250), "");
    end_with(op, ACQUIRED, AT(400)), CHECK_EQ_U64(client_next_tick(), AT(500));
    CHECK_SENT_AT(RENEWER, AT(500), "SET " NAME " host 7 name PX 300000");
}

TEST(closing_a_client_deletes_its_published_name_over_a_new_connection_if_necessary) {
    EACH_NUMBER (cut, 2) {
        publish_name();
        if (cut) cut_link(RENEWER, NULL, AT(260));
        close_rig(AT(300)), CHECK(!is_quiet());
        rig_tick(AT(300)), CHECK_EQ_INT(commands_in(sent_over(RENEWER), "DEL " NAME), 1);
        feed(link_of(RENEWER), ":1\r\n:0\r\n", AT(301)), CHECK(is_quiet());
    }
}

TEST(a_client_publishes_its_name_once_it_has_held_a_lock_for_250_ms) {
    publish_name(), CHECK_EQ_U64(hf_presence_next_tick(&rig.client), AT(100250));
    CHECK_SENT_AT(RENEWER, AT(9000), "");
}

TEST(a_client_publishes_its_name_again_soon_if_it_gets_no_reply) {
    hf_client_introduce(&rig.client, "host");
    end_with(BEGIN(HF_OP_ACQUIRE, AT(0), spec.lease = 1000 * HF_SECOND), ACQUIRED, AT(0));
    CHECK_SENT_PART_AT(RENEWER, AT(250), "SET " NAME);
    rig_sleep(AT(250), AT(1749)), CHECK(!strstr(sent_over(RENEWER), "SET " NAME));
    CHECK_SENT_PART_UNTIL(RENEWER, AT(1749), AT(7250), "SET " NAME);
    feed(link_of(RENEWER), "+OK\r\n", AT(7251));
    rig_sleep(AT(7251), AT(107249)), CHECK(!strstr(sent_over(RENEWER), "SET " NAME));
}

TEST(a_client_without_locks_publishes_no_name) {
    hf_client_introduce(&rig.client, "host");
    hf_op *op = begin_acquire(0, AT(0));
    end_with(op, ACQUIRED, AT(1));
    op = begin(HF_OP_RELEASE, AT(2));
    end_with(op, ":1\r\n", AT(3));
    CHECK_SENT_AT(RENEWER, AT(250), "");
    CHECK_EQ_U64(client_next_tick(), HF_NEVER);
}

/* The caller of `wanted` holds "k" and waits for the key since AT(0). */
static hf_op *hold_and_wait_as(const hf_op_spec *wanted, const char *key) {
    rig_begin();
    hf_client_introduce(&rig.client, "host 7 name");
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.agent = 7);
    end_with(op, ACQUIRED, AT(0));
    hf_names_free(&other_names);
    if (!hf_names_make(&other_names, hf_slice_of(key))) abort();
    op = begin_spec(wanted, AT(0));
    subscribe_with(busy(20000, 0, 0), AT(1), AT(2), AT(3));
    sent_over(CALLS);
    return op;
}

static hf_op_spec wait_of(uint64_t agent) {
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
    spec.names = &other_names;
    spec.wait = 60 * HF_SECOND;
    spec.agent = agent;
    return spec;
}

/* The same caller holds "k" and waits for "j" since AT(0). */
static hf_op *hold_and_wait(uint64_t agent) {
    hf_op_spec spec = wait_of(agent);
    return hold_and_wait_as(&spec, "j");
}

#define WAIT_OF_ME(waited) "EVALSHA wait 1 holdfast_wait:me " DRIVE_UUID ":2 l j " waited " 10000"

TEST(a_wait_is_published_if_its_caller_holds_a_lock) {
    hf_op *op = hold_and_wait(7);
    CHECK_SENT_AT(RENEWER, AT(249), "");
    CHECK_SENT_AT(RENEWER, AT(250), WAIT_OF_ME("250") "\nSET " NAME " host 7 name PX 300000");
    feed(link_of(RENEWER), ":1\r\n+OK\r\n", AT(251));
    CHECK_SENT_AT(RENEWER, AT(3249), "");
    rig_tick(AT(3250)); /* again, before it is forgotten */
    CHECK_SENT(RENEWER, WAIT_OF_ME("3250"));
    feed(link_of(RENEWER), ":1\r\n", AT(3251));
    feed_calls(busy(20000, 0, 0), AT(3251)); /* it has rechecked meanwhile */
    hf_op_interrupt(op, AT(3252));
    CHECK_ANSWER(op, ":1\r\n", AT(3253), "interrupted");
    CHECK_STR(sent_over(RENEWER), "");
    hf_op_end(op, AT(3253)), CHECK_SENT(RENEWER, "DEL holdfast_wait:me");
}

/* No other tenant may write what has this prefix. */
TEST(a_tenants_published_names_start_with_its_prefix) {
    hf_op *op = hold_and_wait(7);
    strcpy(config_in(&rig.client)->tenant, "a:");
    CHECK_SENT_AT(RENEWER, AT(250),
                  "EVALSHA wait 1 holdfast_wait:a:me " DRIVE_UUID ":2 l j 250 10000\n"
                  "SET holdfast_client:a:" DRIVE_UUID " host 7 name PX 300000");
    hf_op_end(op, AT(251)), CHECK_SENT_PART(RENEWER, "DEL holdfast_wait:a:me");
    close_rig(AT(252)), CHECK_SENT_PART(RENEWER, "DEL holdfast_client:a:" DRIVE_UUID);
}

/* The wait ends while there is no connection for `ms`. → whether it is deleted later */
static bool is_taken_back_after(int ms) {
    hf_op *op = hold_and_wait(7);
    rig_tick(AT(250));
    sent_over(RENEWER);
    feed(link_of(RENEWER), ":1\r\n+OK\r\n", AT(251));
    cut_link(RENEWER, NULL, AT(260));
    rig.refusing = true;
    hf_op_end(op, AT(300));
    rig_sleep(AT(300), AT(300 + ms));
    rig.refusing = false;
    rig_sleep(AT(300 + ms), AT(3000 + ms));
    return strstr(sent_over(RENEWER), "DEL holdfast_wait:me");
}

TEST(deleting_a_published_wait_is_retried_until_the_server_replies) {
    CHECK(is_taken_back_after(5000)); /* as long as its key may exist */
    CHECK(is_taken_back_after(0));
    cut_link(RENEWER, NULL, AT(3001));
    CHECK_SENT_PART_UNTIL(RENEWER, AT(3001), AT(3500), "DEL holdfast_wait:me");
    rig_sleep(AT(3500), AT(6999)); /* silent: another connection */
    CHECK_SENT_PART(RENEWER, "DEL holdfast_wait:me");
    feed(link_of(RENEWER), ":1\r\n", AT(7000));
    cut_link(RENEWER, NULL, AT(7001));
    rig_sleep(AT(7001), AT(8000)), CHECK(!strstr(sent_over(RENEWER), "DEL"));
}

TEST(a_waiting_client_publishes_its_name_even_if_it_holds_nothing) {
    hf_client_introduce(&rig.client, "host");
    hf_op *op = wait_in_queue(60 * HF_SECOND, AT(0));
    CHECK_SENT_AT(RENEWER, AT(250), "SET " NAME " host PX 300000");
    feed(link_of(RENEWER), "+OK\r\n", AT(251));
    hf_op_end(op, AT(252)), CHECK(!strstr(sent_over(RENEWER), "holdfast_wait"));
}

TEST(closing_a_client_deletes_its_published_waits) {
    hold_and_wait(7);
    rig_tick(AT(250));
    sent_over(RENEWER);
    feed(link_of(RENEWER), ":1\r\n+OK\r\n", AT(251));
    close_rig(AT(300));
    rig_tick(AT(300));
    const char *text = sent_over(RENEWER);
    CHECK_OR(strstr(text, "DEL holdfast_wait:me\n"), "%s", text);
    CHECK_OR(strstr(text, "DEL " NAME "\n"), "%s", text);
    hf_op_end(ops_of(&rig.client), AT(301));
    CHECK_SENT_AT(RENEWER, AT(301), "");
}

TEST(a_wait_is_not_published_if_memory_runs_out) {
    int unpublished = 0;
    EACH_FAILURE(nth, 1) {
        hold_and_wait(7);
        memerr_fail(nth);
        rig_tick(AT(250));
        memerr_end();
        rig_sleep(AT(250), AT(4000));
        unpublished += !strstr(sent_over(RENEWER), "holdfast_wait:");
    }
    CHECK_EQ_INT(unpublished, 1);
}

TEST(a_published_wait_that_could_not_be_renewed_is_still_deleted) {
    EACH_FAILURE(nth, 1) {
        hf_op *op = hold_and_wait(7);
        rig_tick(AT(250));
        memerr_fail(nth);
        rig_tick(AT(3250));
        memerr_end();
        sent_over(RENEWER);
        hf_op_end(op, AT(3251));
        CHECK_SENT_PART_UNTIL(RENEWER, AT(3251), AT(4000), "DEL holdfast_wait:me");
    }
}

TEST(a_wait_is_published_for_at_most_64_of_the_locks_that_its_caller_holds) {
    static hf_names many[70];
    hold_and_wait(7);
    for (int i = 0; i < 70; i++) {
        if (!hf_names_make(&many[i], hf_slice_of(printed("k%d", i)))) abort();
        end_with(BEGIN(HF_OP_ACQUIRE, AT(4), spec.names = &many[i], spec.agent = 7), ACQUIRED,
                 AT(4));
    }
    rig_tick(AT(250));
    int count = 0;
    for (const char *at = sent_over(RENEWER); (at = strstr(at, "holdfast_wait:")); at++) count++;
    CHECK_EQ_INT(count, 64);
    for (int i = 0; i < 70; i++) hf_names_free(&many[i]);
}

TEST(a_closed_client_does_not_wake_up_to_publish_its_name) {
    publish_name();
    close_rig(AT(300)), CHECK_EQ_U64(hf_presence_next_tick(&rig.client), HF_NEVER);
}

TEST(a_published_name_expires_with_the_longest_held_lock) {
    EACH_NUMBER (i, 2) {
        hf_client_introduce(&rig.client, "x");
        hf_hold *hold = hold_lock(AT(0));
        hf_holds_set_wake_at(holds_of(&rig.client), claim_of(hold), AT(1000));
        set_end(hold, AT(i == 0 ? 600250 : 1000));
        hf_hold *other = hf_holds_add(holds_of(&rig.client), &hf_kind_lock, hf_slice_of("j"),
                                      hf_slice_of("me"), hf_slice_of("me"));
        set_count(other, 1);
        hf_hold_become(other, HF_HOLD_HELD);
        hf_holds_set_wake_at(holds_of(&rig.client), claim_of(other), AT(1000));
        set_end(other, AT(i == 0 ? 1000 : 600250));
        CHECK_SENT_AT(RENEWER, AT(250), "SET " NAME " x PX 600000");
    }
}

TEST(closing_a_client_twice_deletes_its_published_name_once) {
    publish_name();
    close_rig(AT(300));
    CHECK_SENT_PART_AT(RENEWER, AT(300), "DEL " NAME);
    close_rig(AT(301));
    CHECK_SENT_AT(RENEWER, AT(301), "");
}

TEST(a_waiter_that_rechecks_its_lock_often_publishes_its_wait_only_when_that_is_due) {
    hf_op *op = hold_and_wait(7);
    rig_tick(AT(250));
    sent_over(RENEWER);
    feed(link_of(RENEWER), ":1\r\n+OK\r\n", AT(251));
    hf_presence_on_wait(op, AT(300));
    CHECK_SENT_AT(RENEWER, AT(300), "");
    rig_sleep(AT(300), AT(3250) - 1), CHECK(!strstr(sent_over(RENEWER), "holdfast_wait:"));
    CHECK_SENT_PART_AT(RENEWER, AT(3250), "holdfast_wait:");
}

TEST(an_acquire_is_not_published_as_a_wait_before_it_is_queued) {
    static hf_names other;
    publish_name();
    if (!hf_names_make(&other, hf_slice_of("j"))) abort();
    BEGIN(HF_OP_ACQUIRE, AT(260), spec.names = &other, spec.wait = 60 * HF_SECOND);
    presence_of(&rig.client)->check_at = AT(600);
    rig_tick(AT(600)), CHECK(!strstr(sent_over(RENEWER), "holdfast_wait"));
    rig_end(AT(601));
    hf_names_free(&other);
}

TEST(a_published_wait_contains_even_a_long_key_in_full) {
    static char key[3000];
    hf_op_spec spec = wait_of(7);
    memset(key, 'j', sizeof key - 1);
    hold_and_wait_as(&spec, key), CHECK_SENT_PART_AT(RENEWER, AT(250), key);
}

/* Waits for "j" as a second call. */
static hf_op *wait_beside(hf_time now) {
    if (!hf_names_make(&other_names, hf_slice_of("j"))) abort();
    hf_op_spec spec = wait_of(8);
    hf_op *op = begin_spec(&spec, now);
    feed_calls(busy(20000, 0, 0), now);
    return op;
}

TEST(a_published_name_is_not_renewed_before_it_is_due) {
    publish_name();
    end_with(begin(HF_OP_RELEASE, AT(300)), ":1\r\n", AT(301));
    hf_op_end(wait_beside(AT(1000)), AT(1001));
    rig_tick(AT(1250)), CHECK_EQ_U64(hf_presence_next_tick(&rig.client), HF_NEVER);
    begin_acquire(0, AT(2000)), CHECK_EQ_U64(hf_presence_next_tick(&rig.client), AT(100250));
}

TEST(a_waiting_client_renews_its_published_name) {
    hf_client_introduce(&rig.client, "host");
    wait_in_queue(200 * HF_SECOND, AT(0));
    rig_tick(AT(250));
    wait_beside(AT(1000));
    rig_tick(AT(1250)), CHECK_EQ_U64(hf_presence_next_tick(&rig.client), AT(100250));
}

CHECK_MAIN
