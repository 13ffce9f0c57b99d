/* An acquire by "me" of the lock "k": what it sends and what it leaves behind. */
#ifndef ACQUIRE_RIG_H
#define ACQUIRE_RIG_H

#include "rig.h"

RIG_BEGINS

#define READONLY "-READONLY You can't write against a read only replica.\r\n"

#define CHECK_STATE(op, want) CHECK_EQ_INT(op_state(op), HF_ACQUIRE_##want)

/* The client has nothing left of the lock, and sends nothing about it. */
#define CHECK_NOTHING_LEFT(now)                                                                    \
    (CHECK_EQ_INT(state_of(), -1), CHECK_EQ_INT(first_node(&rig.client)->events_users, 0),         \
     rig_tick(now), CHECK_STR(sent_over(CALLS), ""), CHECK_STR(sent_over(RENEWER), ""))

/* The renewer undoes the acquire over the callers' link, after what was sent there. */
#define CHECK_LEFT_IN_ORDER(waiter, now) CHECK_LEFT_BEHIND("", waiter, now)

/* The same, after a command whose reply arrives now. */
#define CHECK_LEFT_BEHIND(answer, waiter, now)                                                     \
    (CHECK_EQ_INT(state_of(), CLEANING_UP), rig_tick(now),                                         \
     CHECK_SENT(CALLS, LEAVE_OF_K("0", waiter)), feed_calls(answer ":0\r\n", now),                 \
     CHECK_EQ_INT(state_of(), -1), CHECK(is_quiet()))

static UNUSED void begin_as_tenant(void) {
    RIG_BEGIN(strcpy(config.tenant, "a:"));
}

static UNUSED hf_op *begin_shared(hf_time wait, hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.shared = true, spec.wait = wait);
    return op;
}

/* Like wait_in_queue, for a shared owner. */
static UNUSED hf_op *wait_as_shared(hf_time now) {
    hf_op *op = begin_shared(HF_NEVER, now);
    enter_queue(now);
    return op;
}

#define OWN_LEAVE_OF_K(waiter, own) LEAVE_OF_K("0", waiter) own
#define SHARED_MEMBER(number) MEMBER(number) " me"

static UNUSED hf_op *begin_mutex(hf_time wait, bool shared, hf_time now) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, now, spec.lock_kind = &hf_kind_mutex, spec.wait = wait,
                      spec.shared = shared);
    return op;
}

#endif
