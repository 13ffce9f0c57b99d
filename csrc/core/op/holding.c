#include "op/holding.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "op/observe.h"

hf_lost_reason hf_lost_reason_of(hf_verdict verdict) {
    return verdict == HF_VERDICT_DELETED ? HF_LOST_DELETED : HF_LOST_TAKEN;
}

hf_lost_reason hf_lost_reason_at_end(const hf_claim *claim) {
    assert(hf_claim_is_held(claim));
    if (hf_claim_has_last_lease(claim)) return HF_LOST_MAX_HOLD;
    bool tried = hf_claim_is_at_risk(claim) || claim->has_command_in_flight;
    return claim->renewed && tried ? HF_LOST_UNREACHABLE : HF_LOST_EXPIRED;
}

void hf_client_refresh(hf_client *client, hf_hold *hold, hf_time now) {
    client->decider->refresh(client, hold, now);
}

void hf_client_unblock(hf_client *client, hf_claim *claim, hf_time now) {
    hf_op *op = claim->awaited ? client->ops : NULL;
    claim->has_command_in_flight = claim->awaited = false;
    claim->settled_ms = (uint32_t)(now / HF_MS);
    for (hf_op *next; op && !claim->has_command_in_flight; op = next) {
        bool is_waiting = op->awaited_claim == claim || (op->hold && op->hold->claim == claim);
        next = op->next;
        if (op->done || !op->blocked || !is_waiting) continue;
        op->blocked = false;
        op->impl->unblock(op, now);
    }
    if (op) claim->awaited = true;
    if (hf_claim_is_leaving(claim) && !claim->has_command_in_flight)
        hf_holds_set_wake_at(&client->holds, claim, now);
}

size_t hf_client_write_waiter(char *text, const hf_client *client, const hf_claim *claim,
                              uint64_t wait, uint64_t token_ttl_ms) {
    bool named = claim->shared || hf_wire_owner_has_permits(claim->kind, hf_claim_owner(claim));
    hf_slice owner = named ? hf_claim_owner(claim) : HF_NO_TEXT;
    bool keeps = !claim->shared && hf_wire_owner_keeps(hf_claim_owner(claim));
    return hf_wire_waiter(text, claim->kind, client->uuid, wait, token_ttl_ms, keeps, owner);
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

/* Returns `owner` or, if it is empty, the owner with this number, written to `text`. */
static hf_slice owner_of(const hf_client *client, const hf_kind *kind, hf_slice owner,
                         uint64_t number, char text[HF_OWNER_SIZE]) {
    if (owner.size > 0) return owner;
    return (hf_slice){text, hf_wire_owner(text, kind, client->uuid, number)};
}

hf_hold *hf_client_add_hold(hf_client *client, const hf_kind *kind, hf_slice key, hf_slice caller,
                            hf_slice owner) {
    char text[HF_OWNER_SIZE];
    owner = owner_of(client, kind, owner, client->holds.last_number + 1, text);
    return hf_holds_add(&client->holds, kind, key, caller, owner);
}

hf_claim *hf_client_add_claim(hf_client *client, const hf_kind *kind, hf_slice key,
                              hf_slice owner) {
    char text[HF_OWNER_SIZE];
    owner = owner_of(client, kind, owner, client->holds.last_number + 1, text);
    return hf_holds_add_claim(&client->holds, kind, key, owner);
}

hf_hold *hf_client_add_permits(hf_client *client, const hf_kind *kind, hf_slice key,
                               hf_slice caller, uint32_t permits) {
    assert(kind->has_permits && permits > 0);
    char text[HF_PERMITS_OWNER_SIZE];
    size_t size = hf_wire_permits_owner(text, client->uuid, client->holds.last_number + 1, permits);
    return hf_client_add_hold(client, kind, key, caller, (hf_slice){text, size});
}

hf_claim *hf_client_copy_claim(hf_client *client, const hf_claim *claim) {
    hf_claim *copy =
        hf_client_add_claim(client, claim->kind, hf_claim_key(claim), hf_claim_owner(claim));
    if (!copy) return NULL;
    copy->shared = claim->shared;
    copy->lease = claim->lease;
    copy->token_ttl_ms = claim->token_ttl_ms;
    hf_holds_set_wait(&client->holds, copy, claim->wait);
    return copy;
}
