/* One client for each test of the program, which ends after the test. */
#ifndef RIG_H
#define RIG_H

#include "drive.h"

#define CALLS HF_LINK_CALLS
#define EVENTS HF_LINK_EVENTS
#define RENEWER HF_LINK_RENEWER

static UNUSED void rig_after(void) {
    rig_end(rig.now);
}

/* Each test begins with what this function does. */
#define RIG_BEGINS_WITH(before) CHECK_AROUND(before, rig_after)

/* Each test begins with a client of the usual configuration. */
#define RIG_BEGINS                                                                                 \
    static void rig_before(void) {                                                                 \
        rig_begin();                                                                               \
    }                                                                                              \
    RIG_BEGINS_WITH(rig_before)

/* Begins a client whose configuration differs from the usual one by these assignments to `config`.
 */
#define RIG_BEGIN(...)                                                                             \
    do {                                                                                           \
        hf_client_config config = rig_config();                                                    \
        __VA_ARGS__;                                                                               \
        rig_begin_with(&config);                                                                   \
    } while (0)

/* Begins an operation that differs from this usual one by these assignments to `spec`. */
#define BEGIN_SPEC(usual, now, ...)                                                                \
    ({                                                                                             \
        hf_op_spec spec = usual;                                                                   \
        __VA_ARGS__;                                                                               \
        begin_spec(&spec, now);                                                                    \
    })

#define BEGIN(kind, now, ...) BEGIN_SPEC(spec_of(kind), now, __VA_ARGS__)

/* Ends the operation after this reply over the callers' link. */
static UNUSED void end_with(hf_op *op, const char *reply, hf_time now) {
    feed_calls(reply, now);
    hf_op_end(op, now);
}

/* Goes through with the operation, which may be NULL: its links open, and its requests get these
 * replies. One that subscribes has the last one after two requests without success. Returns whether
 * it has succeeded. */
static UNUSED bool carry_through(hf_op *op, const char *first, const char *last, bool subscribes) {
    for (int i = 0; op && !hf_op_is_done(op) && i < 3; i++) {
        const char *reply = i < 2 ? first : last;
        rig_tick(AT(10 + i));
        if (link_of(CALLS)->state == HF_SESSION_READY)
            hf_session_feed(link_of(CALLS), reply, strlen(reply), AT(10 + i));
        if (hf_op_is_done(op) || !subscribes) continue;
        rig_serve(AT(10 + i));
        if (link_of(EVENTS)->state == HF_SESSION_READY) feed_subscribed(AT(10 + i));
    }
    if (op && !hf_op_is_done(op)) rig_sleep(AT(20), AT(9000));
    if (op && !hf_op_is_done(op)) abort();
    return op && hf_op_code(op) == HF_OK;
}

/* The operation's outcome after this reply over the callers' link, or after this grant. */
#define CHECK_ANSWER(op, reply, now, want) (feed_calls(reply, now), CHECK_OUTCOME(op, want))

#define CHECK_GRANTS(op, grant, now, want) (feed_message(grant, now), CHECK_OUTCOME(op, want))

/* The operation has this outcome, and ends. */
#define CHECK_ENDS(op, want, now) (CHECK_OUTCOME(op, want), hf_op_end(op, now))

/* What the client sends over this link at `now`, or until then. */
#define CHECK_SENT_AT(link, now, want) (rig_tick(now), CHECK_SENT(link, want))

#define CHECK_SENT_UNTIL(link, from, now, want) (rig_sleep(from, now), CHECK_SENT(link, want))

/* The operation has this outcome after this reply, and ends. */
#define CHECK_ENDS_WITH(op, reply, now, want)                                                      \
    (CHECK_ANSWER(op, reply, now, want), hf_op_end(op, now))

/* The acquire's state after this reply. */
#define CHECK_ANSWER_STATE(op, reply, now, want) (feed_calls(reply, now), CHECK_STATE(op, want))

/* What this link sends after this reply. */
#define CHECK_ANSWER_SENDS(reply, now, link, want) (feed_calls(reply, now), CHECK_SENT(link, want))

#define CHECK_INTERRUPTS(op, now) (hf_op_interrupt(op, now), CHECK_OUTCOME(op, "interrupted"))

/* The operation's outcome once it is `now`, or after the time until then. */
#define CHECK_TICK(op, now, want) (rig_tick(now), CHECK_OUTCOME(op, want))

#define CHECK_SLEEP(op, from, now, want) (rig_sleep(from, now), CHECK_OUTCOME(op, want))

/* The caller's command gets this reply, the subscription is confirmed, and the command that follows
 * gets the same reply. */
static UNUSED void subscribe_with(const char *reply, hf_time now, hf_time subscribed,
                                  hf_time then) {
    feed_calls(reply, now);
    feed_subscribed(subscribed);
    feed_calls(reply, then);
}

/* This is a part of what the client sends over the link, at `now` or until then. */
#define CHECK_SENT_PART(link, part) CHECK_CONTAINS(sent_over(link), part)

#define CHECK_SENT_PART_AT(link, now, part) (rig_tick(now), CHECK_SENT_PART(link, part))

#define CHECK_SENT_PART_UNTIL(link, from, now, part)                                               \
    (rig_sleep(from, now), CHECK_SENT_PART(link, part))

#endif
