#include "op/holding.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "op/observe.h"

hf_lost_reason hf_lost_reason_of(hf_verdict verdict) {
    return verdict == HF_VERDICT_DELETED ? HF_LOST_DELETED : HF_LOST_TAKEN;
}

hf_lost_reason hf_lost_reason_at_end(const hf_hold *hold) {
    assert(hold->state == HF_HOLD_HELD);
    if (hf_claim_has_last_lease(&hold->claim)) return HF_LOST_MAX_HOLD;
    bool tried = hold->at_risk || hold->in_flight;
    return hold->renewed && tried ? HF_LOST_UNREACHABLE : HF_LOST_EXPIRED;
}

void hf_client_refresh(hf_client *client, hf_hold *hold, hf_time now) {
    client->decider->refresh(client, hold, now);
}

void hf_client_unblock(hf_client *client, hf_hold *hold, hf_time now) {
    hf_op *op = hold->awaited ? client->ops : NULL;
    hold->in_flight = hold->awaited = false;
    hold->settled_at = now;
    for (hf_op *next; op && !hold->in_flight; op = next) {
        next = op->next;
        if (op->done || !op->blocked || (op->hold != hold && op->behind != hold)) continue;
        op->blocked = false;
        op->impl->unblock(op, now);
    }
    if (op) hold->awaited = true;
    if (hf_claim_is_leaving(&hold->claim) && !hold->in_flight)
        hf_holds_wake_at(&client->holds, &hold->claim, now);
}

size_t hf_client_write_waiter(char *text, const hf_client *client, const hf_claim *claim,
                              uint64_t wait, uint64_t token_ttl_ms) {
    bool named = claim->shared || claim->permits > 1;
    hf_slice owner = named ? hf_claim_owner(claim) : HF_NO_TEXT;
    return hf_wire_waiter(text, claim->kind, client->uuid, wait, token_ttl_ms, claim->keeps, owner);
}

hf_slice hf_client_write_claim_waiter(char *text, const hf_client *client, const hf_claim *claim) {
    if (claim->wait == 0) return HF_NO_TEXT;
    size_t size = hf_client_write_waiter(text, client, claim, claim->wait, claim->token_ttl_ms);
    return (hf_slice){text, size};
}

hf_wire_lock hf_client_wire_lock(const hf_client *client, const hf_claim *claim,
                                 const hf_names *names) {
    return (hf_wire_lock){claim->kind, names, hf_claim_owner(claim), client->config.grant_lease};
}

hf_hold *hf_client_add_hold(hf_client *client, const hf_kind *kind, hf_slice key, hf_slice caller,
                            hf_slice owner) {
    char text[HF_OWNER_SIZE];
    if (owner.size == 0) {
        uint64_t number = client->holds.last_number + 1;
        owner = (hf_slice){text, hf_wire_owner(text, kind, client->uuid, number)};
    }
    return hf_holds_add(&client->holds, kind, key, caller, owner);
}

hf_hold *hf_client_add_permits(hf_client *client, const hf_kind *kind, hf_slice key,
                               hf_slice caller, uint32_t permits) {
    assert(kind->counted && permits > 0);
    char text[HF_PERMITS_OWNER_SIZE];
    size_t size = hf_wire_permits_owner(text, client->uuid, client->holds.last_number + 1, permits);
    hf_hold *hold = hf_client_add_hold(client, kind, key, caller, (hf_slice){text, size});
    if (hold) hold->permits = permits;
    return hold;
}

hf_hold *hf_client_add_copy(hf_client *client, const hf_claim *claim, hf_slice caller) {
    hf_hold *hold =
        hf_client_add_hold(client, claim->kind, hf_claim_key(claim), caller, hf_claim_owner(claim));
    if (!hold) return NULL;
    hold->shared = claim->shared;
    hold->permits = claim->permits;
    hold->keeps = claim->keeps;
    hold->lease = claim->lease;
    hold->token_ttl_ms = claim->token_ttl_ms;
    hf_holds_note_wait(&client->holds, hold, claim->wait);
    return hold;
}
