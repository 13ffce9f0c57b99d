/* One client for each test of the program, which ends after the test. */
#ifndef RIG_H
#define RIG_H

#include "drive.h"

static struct rig rig;

#define CALLS HF_LINK_CALLS
#define EVENTS HF_LINK_EVENTS
#define RENEWER HF_LINK_RENEWER

static UNUSED void rig_after(void) {
    rig_end(&rig, rig.now);
}

/* Each test begins with what this function does. */
#define RIG_BEGINS_WITH(before) CHECK_AROUND(before, rig_after)

/* Each test begins with a client of the usual configuration. */
#define RIG_BEGINS                                                                                 \
    static void rig_before(void) {                                                                 \
        rig_begin(&rig);                                                                           \
    }                                                                                              \
    RIG_BEGINS_WITH(rig_before)

/* Begins a client whose configuration differs from the usual one by these assignments to `config`.
 */
#define RIG_BEGIN(...)                                                                             \
    do {                                                                                           \
        hf_client_config config = rig_config();                                                    \
        __VA_ARGS__;                                                                               \
        rig_begin_with(&rig, &config);                                                             \
    } while (0)

/* Begins an operation that differs from this usual one by these assignments to `spec`. */
#define BEGIN_SPEC(usual, now, ...)                                                                \
    ({                                                                                             \
        hf_op_spec spec = usual;                                                                   \
        __VA_ARGS__;                                                                               \
        begin_spec(&rig, &spec, now);                                                              \
    })

#define BEGIN(kind, now, ...) BEGIN_SPEC(spec_of(&rig, kind), now, __VA_ARGS__)

/* Ends the operation after this reply over the callers' link. */
static UNUSED void end_with(hf_op *op, const char *reply, hf_time now) {
    feed_calls(&rig, reply, now);
    hf_op_end(op, now);
}

/* The operation's outcome after this reply over the callers' link, or after this grant. */
#define CHECK_ANSWER(op, reply, now, want)                                                         \
    do {                                                                                           \
        feed_calls(&rig, reply, now);                                                              \
        CHECK_OUTCOME(op, want);                                                                   \
    } while (0)

#define CHECK_GRANTS(op, grant, now, want)                                                         \
    do {                                                                                           \
        feed_message(&rig, grant, now);                                                            \
        CHECK_OUTCOME(op, want);                                                                   \
    } while (0)

/* The operation has this outcome, and ends. */
#define CHECK_ENDS(op, want, now)                                                                  \
    do {                                                                                           \
        CHECK_OUTCOME(op, want);                                                                   \
        hf_op_end(op, now);                                                                        \
    } while (0)

/* What the client sends over this link at `now`, or until then. */
#define CHECK_SENT_AT(link, now, want)                                                             \
    do {                                                                                           \
        rig_tick(&rig, now);                                                                       \
        CHECK_SENT(&rig, link, want);                                                              \
    } while (0)

#define CHECK_SENT_UNTIL(link, from, now, want)                                                    \
    do {                                                                                           \
        rig_sleep(&rig, from, now);                                                                \
        CHECK_SENT(&rig, link, want);                                                              \
    } while (0)

/* The operation has this outcome after this reply, and ends. */
#define CHECK_ENDS_WITH(op, reply, now, want)                                                      \
    do {                                                                                           \
        CHECK_ANSWER(op, reply, now, want);                                                        \
        hf_op_end(op, now);                                                                        \
    } while (0)

/* The acquire's state after this reply. */
#define CHECK_ANSWER_STATE(op, reply, now, want)                                                   \
    do {                                                                                           \
        feed_calls(&rig, reply, now);                                                              \
        CHECK_STATE(op, want);                                                                     \
    } while (0)

/* What this link sends after this reply. */
#define CHECK_ANSWER_SENDS(reply, now, link, want)                                                 \
    do {                                                                                           \
        feed_calls(&rig, reply, now);                                                              \
        CHECK_SENT(&rig, link, want);                                                              \
    } while (0)

#define CHECK_INTERRUPTS(op, now)                                                                  \
    do {                                                                                           \
        hf_op_interrupt(op, now);                                                                  \
        CHECK_OUTCOME(op, "interrupted");                                                          \
    } while (0)

/* The operation's outcome once it is `now`, or after the time until then. */
#define CHECK_TICK(op, now, want)                                                                  \
    do {                                                                                           \
        rig_tick(&rig, now);                                                                       \
        CHECK_OUTCOME(op, want);                                                                   \
    } while (0)

#define CHECK_SLEEP(op, from, now, want)                                                           \
    do {                                                                                           \
        rig_sleep(&rig, from, now);                                                                \
        CHECK_OUTCOME(op, want);                                                                   \
    } while (0)

/* The caller's command gets this reply, the subscription is confirmed, and the command that follows
 * gets the same reply. */
static UNUSED void subscribe_with(const char *reply, hf_time now, hf_time subscribed,
                                  hf_time then) {
    feed_calls(&rig, reply, now);
    feed_subscribed(&rig, subscribed);
    feed_calls(&rig, reply, then);
}

/* This is a part of what the client sends over the link, at `now` or until then. */
#define CHECK_SENT_PART(link, part)                                                                \
    do {                                                                                           \
        const char *sent_whole = output_of(link_of(&rig, link));                                   \
        CHECK_OR(strstr(sent_whole, part), "\"%s\" is not in \"%s\"", part, sent_whole);           \
    } while (0)

#define CHECK_SENT_PART_AT(link, now, part)                                                        \
    do {                                                                                           \
        rig_tick(&rig, now);                                                                       \
        CHECK_SENT_PART(link, part);                                                               \
    } while (0)

#define CHECK_SENT_PART_UNTIL(link, from, now, part)                                               \
    do {                                                                                           \
        rig_sleep(&rig, from, now);                                                                \
        CHECK_SENT_PART(link, part);                                                               \
    } while (0)

#endif
