#include "op/events.h"
#include "op/operation.h"

#include "rig.h"

RIG_BEGINS

#define CHANNEL "redisson_lock__channel:{k}:leader"
#define INFO "EVALSHA info 3 k redisson_lock_token:{k} holdfast_queue:{k} " DRIVE_UUID
#define HELD(owner, token)                                                                         \
    "*6\r\n$3\r\n" owner "\r\n:1\r\n:5000\r\n$2\r\n" token "\r\n:0\r\n:-1\r\n"
#define FREE "*6\r\n$0\r\n\r\n:0\r\n:-2\r\n$2\r\n42\r\n:0\r\n:-1\r\n"

static hf_op *begin_watch(const char *known, hf_time wait, hf_time now) {
    hf_op *op = BEGIN(HF_OP_WATCH, now, spec.result = hf_slice_of(known), spec.wait = wait);
    rig_serve(now);
    return op;
}

/* Knows that o:1 holds the lock with token 42, and is subscribed from `now` + 3 ms. */
static hf_op *watching(hf_time wait, hf_time now) {
    hf_op *op = begin_watch("42 o:1", wait, now);
    subscribe_with(HELD("o:1", "42"), now + HF_MS, now + 2 * HF_MS, now + 2 * HF_MS);
    feed_event("subscribe", CHANNEL, "2", now + 3 * HF_MS);
    feed_calls(HELD("o:1", "42"), now + 3 * HF_MS);
    rig_hush();
    return op;
}

static void check_known(const char *known, const char *reply, const char *want) {
    rig_begin();
    hf_op *op = begin_watch(known, HF_NEVER, AT(0));
    CHECK_SENT(CALLS, INFO);
    CHECK_ANSWER(op, reply, AT(1), want);
    rig_end(AT(2));
}

TEST(on_change_is_called_if_the_holder_or_token_differs_from_the_known_one) {
    check_known("", HELD("o:1", "42"), "ok");
    check_known("42 o:1", HELD("o:2", "42"), "ok");
    check_known("42 o:1", HELD("o:1", "43"), "ok");
    check_known("42 o:1", HELD("o:1", "42"), "under way");
    check_known("42 o:1", FREE, "under way");
    check_known("", FREE, "under way");
}

TEST(on_change_gets_the_state_that_its_watch_read) {
    hf_op *op = watching(HF_NEVER, AT(0));
    feed_event("message", CHANNEL, "1", AT(10)), CHECK_SENT(CALLS, INFO);
    CHECK_ANSWER(op, HELD("o:2", "43"), AT(11), "ok");
    hf_result result;
    hf_op_take_result(op, &result), CHECK_STR(result.info.owner, "o:2");
    CHECK_EQ_U64(result.info.token, 43);
    CHECK_SENT(EVENTS, "UNSUBSCRIBE " CHANNEL);
    CHECK_EQ_INT(first_node(&rig.client)->events_users, 0);
}

/* Only connections are events. */
static void check_no_event(void) {
    for (const hf_event *event = observer_of(&rig.client)->first; event; event = event->next)
        CHECK(event->kind == HF_EVENT_OPENED || event->kind == HF_EVENT_CLOSED);
}

TEST(a_watch_for_on_change_appears_neither_as_a_wait_nor_in_events) {
    hf_observe_all(&rig.client);
    hf_op *op = watching(100 * HF_MS, AT(0));
    rig_sleep(AT(4), AT(101));
    CHECK_ANSWER(op, HELD("o:1", "42"), AT(102), "timeout");
    CHECK_STR(message_of(op), "cannot watch \"k\" on h:1: it has no other holder yet; "
                              "wait longer or try again later");
    hf_op_end(op, AT(102)), CHECK_EQ_U64(stats().waits, 0), CHECK_EQ_U64(stats().rechecks, 0);
    check_no_event();
}

CHECK_MAIN
