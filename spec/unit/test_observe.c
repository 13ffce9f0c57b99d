#include "op/observe.h"

#include "base/lease.h"
#include "op/events.h"
#include "rig.h"

/* A client with its own class, "", and the class "orders", whose index is 1. */
static void start(bool wanted) {
    rig_begin();
    hf_observe_class(&rig.client, "");
    hf_observe_class(&rig.client, "orders");
    observer_of(&rig.client)->wants_all = wanted;
}

static void start_observed(void) {
    start(true);
}

RIG_BEGINS_WITH(start_observed)

static hf_class *class_at(size_t i) {
    return observer_of(&rig.client)->classes[i];
}

/* An acquire of the class "orders". */
static hf_op *begin_order(hf_time wait, uint64_t observer, hf_time now) {
    hf_op *op =
        BEGIN(HF_OP_ACQUIRE, now, spec.wait = wait, spec.class = 1, spec.observer = observer);
    return op;
}

static void hold_order(uint64_t observer, hf_time now) {
    end_with(begin_order(0, observer, now), ACQUIRED, now);
}

static void release(hf_time now) {
    end_with(begin(HF_OP_RELEASE, now), ":1\r\n", now);
}

/* The events in words, a line for each, as far as there is room; the list is empty afterwards. */
static const char *events(void) {
    static char text[4096];
    size_t size = 0;
    text[0] = '\0';
    for (hf_event *event = hf_observe_take(&rig.client), *next; event; event = next) {
        next = event->next;
        if (event->kind != HF_EVENT_OPENED && event->kind != HF_EVENT_CLOSED && size < sizeof text)
            size += (size_t)snprintf(
                text + size, sizeof text - size, "%s %.*s by %.*s, %s, %s, %d ms%s, %d, for %d\n",
                hf_event_name(event->kind), (int)event->key.size, event->key.data,
                (int)event->owner.size, event->owner.data, event->code ? event->code : "-",
                event->class[0] ? event->class : "-", (int)(event->duration / HF_MS),
                event->has_duration ? "" : " untimed", (int)event->token, (int)event->observer);
        free(event);
    }
    return text;
}

TEST(metrics_of_a_class_beyond_the_limit_are_added_to_the_clients_own_class) {
    for (int i = 2; i < HF_CLASSES_MAX; i++)
        CHECK_EQ_INT(hf_observe_class(&rig.client, printed("c%d", i)), i);
    hold_order(0, AT(0));
    CHECK(observer_of(&rig.client)->first); /* it stands behind the last class */
    CHECK_EQ_INT(hf_observe_class(&rig.client, "more"), 0);
    CHECK_EQ_INT(hf_observe_class(&rig.client, "c63"), 63);
}

TEST(metrics_of_a_class_that_cannot_be_allocated_are_added_to_the_clients_own_class) {
    start(false);
    memerr_fail(1), CHECK_EQ_INT(hf_observe_class(&rig.client, "new"), 0);
    memerr_fail(0), CHECK(!class_at(2));
}

TEST(a_metrics_class_name_that_is_too_long_is_truncated) {
    char name[HF_CLASS_NAME + 10] = "";
    start(false);
    memset(name, 'n', sizeof name - 1), CHECK_EQ_INT(hf_observe_class(&rig.client, name), 2);
    CHECK_EQ_INT(strlen(class_at(2)->name), HF_CLASS_NAME - 1);
}

/* ---- histograms ---- */

/* Where a round trip of this time is counted, -1: not once. */
static int bucket_of(hf_time span) {
    int found = -1;
    hf_request request = {.sent_at = AT(0)};
    memset(&class_at(0)->round_trips, 0, sizeof class_at(0)->round_trips);
    hf_observe_reply(first_node(&rig.client), &request, AT(0) + span);
    for (int i = 0; i <= HF_BUCKETS; i++) {
        uint64_t count = class_at(0)->round_trips.counts[i];
        if (count == 1 && found < 0) found = i;
        else if (count > 0) return -1;
    }
    return class_at(0)->round_trips.sum == span ? found : -1;
}

/* In microseconds, as docs/reference/api/metrics.md has them. */
TEST(the_histogram_buckets_end_at_the_documented_times) {
    static const int ends[HF_BUCKETS] = {100,     250,     500,      1000,    2500,   5000,
                                         10000,   25000,   50000,    100000,  250000, 500000,
                                         1000000, 5000000, 15000000, 60000000};
    start(false), CHECK_EQ_INT(bucket_of(0), 0);
    for (int i = 0; i < HF_BUCKETS; i++) {
        CHECK_EQ_INT((int)(hf_bucket_bounds[i] * 1e6 + 0.5), ends[i]);
        CHECK_EQ_INT(bucket_of((hf_time)ends[i] * 1000), i);
        CHECK_EQ_INT(bucket_of((hf_time)ends[i] * 1000 + 1), i + 1);
    }
}

TEST(a_renewals_round_trip_is_counted_in_the_clients_own_metrics_class) {
    start(false);
    hold_order(0, AT(0));
    uint64_t before = class_at(1)->round_trips.sum;
    rig_tick(AT(10001));
    feed(link_of(RENEWER), "*1\r\n:1\r\n", AT(10003));
    CHECK_EQ_U64(class_at(0)->round_trips.sum, 2 * HF_MS);
    CHECK_EQ_U64(class_at(1)->round_trips.sum, before);
}

TEST(outcomes_and_times_are_counted_by_metrics_class) {
    start(false);
    hf_op *op = begin_order(0, 0, AT(0));
    CHECK_ENDS_WITH(op, busy(20000, 0, 0), AT(1), "busy");
    op = begin_order(0, 0, AT(10));
    end_with(op, ACQUIRED, AT(12));
    hf_class *class = class_at(1);
    CHECK_EQ_INT(class->outcomes[HF_BUSY], 1);
    CHECK_EQ_INT(class->outcomes[HF_OK], 1);
    CHECK_EQ_U64(class->waited.sum, 2 * HF_MS);
    op = begin_order(0, 0, AT(20)); /* entered again */
    end_with(op, ACQUIRED, AT(21)), CHECK_EQ_INT(class->reentries, 1);
    CHECK_EQ_INT(class->outcomes[HF_OK], 1);
    CHECK_EQ_U64(class->waited.sum, 2 * HF_MS);
    op = begin(HF_OP_RELEASE, AT(30)); /* one of two */
    end_with(op, ":2\r\n", AT(30)), CHECK_EQ_INT(class->releases, 0);
    CHECK_EQ_U64(class->held.sum, 0);
    release(AT(40)), CHECK_EQ_INT(class->releases, 1), CHECK_EQ_U64(class->held.sum, 28 * HF_MS);
    CHECK_EQ_INT(class->held.counts[8], 1);
    CHECK_EQ_INT(class->hand_offs, 0);
    CHECK_STR(events(), ""); /* nobody wants them */
}

TEST(a_lock_that_was_handed_over_is_counted_as_a_hand_off) {
    start(false);
    hf_op *op = begin_order(10 * HF_SECOND, 0, AT(0));
    subscribe_with(busy(20000, 0, 0), AT(1), AT(2), AT(3));
    CHECK_GRANTS(op, GRANT("1", "9"), AT(40), "ok");
    hf_op_end(op, AT(40)), CHECK_EQ_INT(class_at(1)->hand_offs, 1);
    CHECK_EQ_U64(class_at(1)->waited.sum, 40 * HF_MS);
}

/* The quorum has the event; the class is its own. */
TEST(a_late_renewal_or_a_risk_on_one_server_of_a_quorum_is_counted_without_an_event) {
    EACH_NUMBER (kind, 4) {
        bool member = kind & 1, risk = kind & 2;
        start(true);
        hold_order(0, AT(0));
        events();
        set_member(&rig.client, member);
        if (risk) hf_observe_risk(&rig.client, claim_of(hold_of()), AT(1));
        else hf_observe_renewal(&rig.client, claim_of(hold_of()), true);
        CHECK_EQ_U64(risk ? class_at(1)->risks : class_at(1)->renewed_late, 1);
        CHECK_EQ_INT(observer_of(&rig.client)->first != NULL, !member);
        set_member(&rig.client, false);
    }
}

TEST(an_abandoned_lock_causes_an_event_for_its_release) {
    hold_order(0, AT(0));
    events();
    abandon_hold(hold_of(), 1, AT(7)), CHECK_EQ_INT(class_at(1)->releases, 1);
    CHECK_STR(events(), "released k by me, -, orders, 7 ms, 77, for 0\n");
}

TEST(a_client_without_metrics_classes_records_no_metrics) {
    rig_begin();
    hold_lock(AT(0));
    rig_tick(AT(10001));
    feed(link_of(RENEWER), "-ERR no\r\n", AT(10002));
    rig_sleep(AT(10002), AT(12500));
    feed(link_of(RENEWER), "*1\r\n:1\r\n", AT(12500));
    hf_op *op = begin_acquire(0, AT(12501));
    end_with(op, ACQUIRED, AT(12502));
    release(AT(12503));
    release(AT(12504));
    op = begin_acquire(0, AT(12505));
    end_with(op, busy(20000, 0, 0), AT(12506)), CHECK(!class_at(0));
}

TEST(a_lost_lock_causes_an_event_with_the_reason) {
    hold_order(0, AT(0));
    events();
    rig_tick(AT(10001));
    feed(link_of(RENEWER), "-ERR no\r\n", AT(10002));
    CHECK_STR(events(), "at_risk k by me, -, orders, 19696 ms, 77, for 0\n");
    rig_sleep(AT(10002), AT(12500));
    feed(link_of(RENEWER), "*1\r\n:1\r\n", AT(12500));
    CHECK_STR(events(), "renewed_late k by me, -, orders, 0 ms, 77, for 0\n");
    rig_sleep(AT(12500), AT(23000));
    feed(link_of(RENEWER), "*1\r\n:-1\r\n", AT(23000));
    const char *text = events();
    CHECK_OR(strncmp(text, "lost k by me, deleted, orders, ", 31) == 0, "%s", text);
}

TEST(the_observer_of_one_lock_gets_only_that_locks_events) {
    start(false);
    hold_order(0, AT(0));
    release(AT(1)), CHECK_STR(events(), "");
    hold_order(8, AT(2));
    release(AT(3));
    CHECK_STR(events(), "acquired k by me, -, orders, 0 ms, 77, for 8\n"
                        "released k by me, -, orders, 1 ms, 77, for 8\n");
    CHECK(!observer_of(&rig.client)->first);
    CHECK_EQ_INT(observer_of(&rig.client)->count, 0);
}

TEST(the_end_of_a_connection_causes_an_event_with_the_reason) {
    end_with(begin(HF_OP_PING, AT(0)), "+PONG\r\n", AT(1));
    cut_link(CALLS, "reset", AT(2));
    hf_event *opened = hf_observe_take(&rig.client);
    CHECK(opened && opened->kind == HF_EVENT_OPENED && !opened->code);
    CHECK_MEM(opened->key.data, opened->key.size, "h:1", 3);
    CHECK_EQ_INT(opened->owner.size, 0);
    CHECK_STR(opened->class, "");
    hf_event *closed = opened->next;
    CHECK(closed && closed->kind == HF_EVENT_CLOSED && !closed->next);
    CHECK_STR(closed->code, "unreachable");
    CHECK(!closed->has_duration);
    free(opened);
    free(closed);
}

TEST(events_beyond_the_limit_are_dropped_until_the_stored_ones_are_read) {
    hold_order(0, AT(0));
    events();
    hf_hold *hold = hold_of();
    for (int i = 0; i < HF_EVENTS_MAX; i++) hf_observe_risk(&rig.client, claim_of(hold), AT(1));
    CHECK_EQ_U64(observer_of(&rig.client)->dropped, 0);
    CHECK_EQ_INT(observer_of(&rig.client)->count, HF_EVENTS_MAX);
    hf_observe_risk(&rig.client, claim_of(hold), AT(1));
    CHECK_EQ_U64(observer_of(&rig.client)->dropped, 1);
    CHECK_EQ_INT(observer_of(&rig.client)->count, HF_EVENTS_MAX);
    events();
    hf_observe_risk(&rig.client, claim_of(hold), AT(30000)); /* its lease is over */
    CHECK(observer_of(&rig.client)->first && observer_of(&rig.client)->first->duration == 0);
    CHECK_STR(events(), "at_risk k by me, -, orders, 0 ms, 77, for 0\n");
}

TEST(an_event_is_dropped_if_there_is_no_memory_for_it) {
    hold_order(0, AT(0));
    events();
    memerr_fail(1);
    hf_observe_risk(&rig.client, claim_of(hold_of()), AT(1));
    memerr_fail(0), CHECK_EQ_U64(observer_of(&rig.client)->dropped, 1), CHECK_STR(events(), "");
    hf_op *op = begin_order(0, 0, AT(2));
    feed_calls(busy(20000, 0, 0), AT(3));
    memerr_fail(1);
    hf_op_end(op, AT(3));
    memerr_fail(0), CHECK_STR(events(), "");
}

/* ---- waits that are cut off ---- */

/* Refuses the ask that is due next. */
static void refuse_ask(const char *error, hf_time now, hf_time until) {
    for (; now < until; now += 10 * HF_MS) {
        rig_tick(now);
        if (*sent_over(CALLS)) feed_calls(error, now);
    }
}

TEST(a_wait_that_the_server_refuses_causes_one_event_at_the_start_and_one_at_the_end) {
    begin_order(60 * HF_SECOND, 7, AT(0));
    feed_calls("-OOM no\r\n", AT(1000));
    CHECK_STR(events(), "cut_off k by me, unreachable, orders, 1000 ms, 0, for 7\n");
    refuse_ask("-READONLY no\r\n", AT(1010), AT(5000)), CHECK_STR(events(), "");
    rig_sleep(AT(5000), AT(6000));
    feed_calls(busy(20000, 0, 0), AT(6000));
    CHECK_STR(events(), "resumed k by me, -, orders, 6000 ms, 0, for 7\n");
}

TEST(the_event_of_a_refused_wait_carries_the_servers_message) {
    begin_order(60 * HF_SECOND, 7, AT(0));
    events();
    feed_calls("-OOM no\r\n", AT(1));
    hf_event *event = hf_observe_take(&rig.client);
    CHECK(event && event->kind == HF_EVENT_CUT_OFF);
    static const char message[] = "cannot acquire \"k\" on h:1: OOM no";
    CHECK(event->message.size > sizeof message &&
          memcmp(event->message.data, message, sizeof message - 1) == 0);
    free(event);
}

TEST(a_wait_whose_server_is_down_causes_an_event_once_connecting_has_failed) {
    begin_order(60 * HF_SECOND, 7, AT(0));
    subscribe_with(busy(20000, 0, 0), AT(1), AT(2), AT(3));
    events();
    rig_cut("cut", AT(100));
    CHECK_STR(events(), ""); /* the next connection may work */
    rig.refusing = true;
    rig_sleep(AT(100), AT(9000));
    const char *told = events();
    CHECK(strncmp(told, "cut_off k by me, unreachable, orders, ", 38) == 0);
    CHECK(strchr(told, '\n')[1] == '\0');
    rig.refusing = false;
    hf_time now = rig_await_command(link_of(EVENTS), AT(9000));
    feed_subscribed(now);
    now = rig_await_command(link_of(CALLS), now);
    feed_calls(busy(20000, 0, 0), now);
    CHECK(strncmp(events(), "resumed k by me, -, orders, ", 28) == 0);
}

TEST(a_call_that_does_not_wait_causes_no_event_of_a_refused_wait) {
    begin_order(0, 7, AT(0));
    feed_calls("-LOADING no\r\n", AT(1)), CHECK_STR(events(), "");
}

/* ---- several locks ---- */

static hf_names pair[2];

static hf_op *begin_pair(hf_op_kind kind, size_t count, hf_time now) {
    static const hf_names *const both[] = {&pair[0], &pair[1]};
    return BEGIN(kind, now, spec.names = NULL, spec.batch = both, spec.batch_count = count,
                 spec.class = 1);
}

static void start_pair(void) {
    start(true);
    CHECK(hf_names_make(&pair[0], hf_slice_of("a")) && hf_names_make(&pair[1], hf_slice_of("b")));
}

static void finish_pair(hf_time now) {
    rig_end(now);
    hf_names_free(&pair[0]);
    hf_names_free(&pair[1]);
}

TEST(each_lock_of_a_multi_lock_has_its_own_events) {
    start_pair();
    hf_op *op = begin_pair(HF_OP_ACQUIRE_ALL, 2, AT(0));
    CHECK_ENDS_WITH(op, "*3\r\n:1\r\n:11\r\n:12\r\n", AT(2), "ok");
    CHECK_STR(events(), "acquired a by me, -, orders, 2 ms, 11, for 0\n"
                        "acquired b by me, -, orders, 2 ms, 12, for 0\n");
    CHECK_EQ_INT(class_at(1)->outcomes[HF_OK], 2);
    op = begin_pair(HF_OP_RELEASE_ALL, 2, AT(5));
    CHECK_ENDS_WITH(op, "*2\r\n:1\r\n:1\r\n", AT(6), "ok");
    CHECK_STR(events(), "released a by me, -, orders, 4 ms, 11, for 0\n"
                        "released b by me, -, orders, 4 ms, 12, for 0\n");
    CHECK_EQ_INT(class_at(1)->releases, 2);
    finish_pair(AT(7));
}

/* However often and late the command was sent that decided. */
TEST(an_acquires_event_contains_the_time_since_its_call_and_names_the_caller) {
    hf_op *op = begin_order(10 * HF_SECOND, 0, AT(0));
    feed_calls(busy(20000, 0, 0), AT(1));
    feed_subscribed(AT(500));
    CHECK_ENDS_WITH(op, ACQUIRED, AT(501), "ok");
    hf_event *event = observer_of(&rig.client)->first;
    while (event && event->kind != HF_EVENT_ACQUIRED) event = event->next;
    CHECK(event);
    CHECK_EQ_U64(event->duration, 501 * HF_MS);
    CHECK_EQ_U64(class_at(1)->waited.sum, 501 * HF_MS);
    events();
    op = BEGIN(HF_OP_ACQUIRE, AT(600), spec.caller = hf_slice_of("caller"),
               spec.owner = hf_slice_of("owner"));
    end_with(op, busy(20000, 0, 0), AT(601));
    event = observer_of(&rig.client)->first;
    while (event && event->kind != HF_EVENT_BUSY) event = event->next;
    CHECK(event);
    CHECK_MEM(event->owner.data, event->owner.size, "caller", 6);
}

TEST(a_failed_multi_lock_causes_one_event_even_if_it_has_a_single_lock) {
    EACH_NUMBER (locks, 2) {
        start_pair();
        hf_op *op = begin_pair(HF_OP_ACQUIRE_ALL, (size_t)locks + 1, AT(0));
        end_with(op, "-ERR no\r\n", AT(2));
        CHECK_STR(events(), "failed a by me, server, orders, 2 ms, 0, for 0\n");
        CHECK_EQ_INT(class_at(1)->outcomes[HF_SERVER], 1);
        finish_pair(AT(3));
    }
}

TEST(a_lock_that_is_released_at_once_is_recorded_with_a_hold_time_of_zero) {
    start(false);
    hold_order(0, AT(0));
    end_with(begin(HF_OP_RELEASE, AT(0)), ":1\r\n", AT(0)), CHECK_EQ_U64(class_at(1)->releases, 1);
    CHECK_EQ_U64(class_at(1)->held.sum, 0);
}

TEST(a_lost_lock_is_not_counted_as_released) {
    hold_order(0, AT(0));
    lose_hold(hold_of(), HF_LOST_UNREACHABLE);
    CHECK_EQ_U64(class_at(1)->losses[HF_LOST_UNREACHABLE], 1);
    close_rig(AT(2)); /* it may exist on the server: it is cleaned up */
    CHECK_EQ_U64(class_at(1)->losses[HF_LOST_UNREACHABLE], 1);
    CHECK_EQ_U64(class_at(1)->releases, 0);
    const char *text = events();
    CHECK_OR(!strstr(text, "released"), "%s", text);
}

CHECK_MAIN
