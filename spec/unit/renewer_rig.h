/* Holds like those after an acquire, and what the renewer sends about them. */
#ifndef RENEWER_RIG_H
#define RENEWER_RIG_H

#include "base/lease.h"
#include "op/leave.h"

#include "rig.h"

RIG_BEGINS

/* Adds a hold like one after an acquire whose command was sent at `now`. */
static UNUSED hf_hold *add_hold(const char *key, const char *owner, hf_time lease, bool renewed,
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
    hf_holds_set_wake_at(holds, claim_of(hold),
                         renewed ? hf_lease_renew_at(now, lease) : ends_at(hold));
    return hold;
}

/* Returns how many locks the next renewal on the wire covers. */
static UNUSED int batch_size(void) {
    const char *text = sent_over(RENEWER);
    int count = 0;
    return sscanf(text, "EVALSHA renew %d", &count) == 1 ? count : 0;
}

/* How many locks the renewal covers that is sent until `now`. */
#define CHECK_BATCH(from, now, want) (rig_sleep(from, now), CHECK_EQ_INT(batch_size(), want))

/* A hold since AT(0) whose clean-up begins at `now`. */
static UNUSED hf_hold *clean_up(const char *key, const char *owner, hf_time lease, hf_time now) {
    hf_hold *hold = watch(add_hold(key, owner, lease, true, AT(0)));
    hf_renewer_clean_up(&rig.client, claim_of(hold), now);
    return hold;
}

static UNUSED void answer_batch(int count, const char *result, hf_time now) {
    char bytes[2048];
    int size = snprintf(bytes, sizeof bytes, "*%d\r\n", count);
    for (int i = 0; i < count; i++)
        size += snprintf(bytes + size, sizeof bytes - (size_t)size, "%s\r\n", result);
    feed_renewer(bytes, now);
}

static UNUSED hf_hold *granted_hold(bool renewed) {
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.wait = HF_NEVER, spec.renewed = renewed);
    subscribe_with(busy(20000, 0, 0), AT(0), AT(0), AT(0));
    feed_message(GRANT("1", "88"), AT(100));
    if (!hf_op_is_done(op)) abort();
    hf_op_end(op, AT(100)), sent_over(CALLS);
    return hold_of();
}

#endif
