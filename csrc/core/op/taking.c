#include "op/taking.h"

#include <assert.h>

#include "op/holding.h"
#include "op/leave.h"
#include "op/operation.h"

hf_hold *hf_op_find_hold(const hf_op *op, hf_slice key, hf_time now) {
    hf_hold *hold = hf_holds_find(&op->client->holds, op->spec.lock_kind, key, op->spec.caller);
    if (hold) hf_client_refresh(op->client, hold, now);
    return hold;
}

/* In a quorum the new hold may have the same owner, so a clean-up would end the new hold. */
void hf_op_drop_lost(const hf_op *op, hf_hold *hold, hf_time now) {
    assert(hf_op_impl_of(op)->acquires && hf_hold_is_lost(hold));
    bool same = hf_slice_equal(op->spec.owner, hf_hold_owner(hold));
    if (same) hf_holds_remove(&op->client->holds, hold->claim);
    else hf_renewer_clean_up_lost(op->client, hold, now);
}

hf_hold *hf_op_add_hold(const hf_op *op, hf_slice key) {
    const hf_op_spec *spec = &op->spec;
    hf_slice owner = spec->shared ? spec->caller : spec->owner;
    hf_hold *hold =
        spec->permits > 0
            ? hf_client_add_permits(op->client, spec->lock_kind, key, spec->caller, spec->permits)
            : hf_client_add_hold(op->client, spec->lock_kind, key, spec->caller, owner);
    if (hold) hold->agent = spec->agent;
    return hold;
}

void hf_op_mark_command_in_flight(hf_op *op, hf_hold *hold) {
    assert(!hold->claim->has_command_in_flight && hf_hold_in_table(hold));
    hold->claim->has_command_in_flight = true;
    hf_holds_set_wake_at(&op->client->holds, hold->claim,
                         hf_hold_is_held(hold) ? hold->claim->valid_until : HF_NEVER);
}

void hf_op_take(hf_op *op, hf_hold *hold, const hf_taken_hold *taken) {
    hf_claim *claim = hold->claim;
    bool is_first = hf_hold_is_acquiring(hold);
    assert(hf_hold_is_live(hold));
    if (is_first) claim->max_until = hf_op_max_until(op, taken->since);
    hf_time end = hf_time_min(taken->end, claim->max_until);
    claim->count = taken->count;
    claim->valid_until = is_first ? end : hf_time_max(claim->valid_until, end);
    claim->lease = is_first ? op->spec.lease : hf_time_max(claim->lease, op->spec.lease);
    claim->renewed = op->spec.renewed || (!is_first && claim->renewed);
    /* the waiter's queue member also contains this TTL, so a grant uses the same one */
    if (is_first) claim->token_ttl_ms = op->spec.token_ttl_ms;
    claim->failures = 0;
    if (is_first || taken->token > hold->token)
        hold->token = taken->token; /* re-entry: higher only if a shared owner's counter was lost */
    hf_hold_become(hold, HF_HOLD_HELD);
    if (is_first) op->client->stats.acquires++;
    else op->client->stats.reentries++;
}

void hf_op_drop_hold(hf_op *op, hf_hold *hold, hf_time now) {
    if (hf_hold_accepts_replies(hold)) hf_holds_remove(&op->client->holds, hold->claim);
    hf_client_unblock(op->client, hold->claim, now);
}
