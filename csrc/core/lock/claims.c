#include "lock/claims.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/lease.h"

/* Returns the size of a claim with its strings, rounded up to the alignment of a claim. */
static size_t padded_claim_size(size_t strings_size) {
    size_t size = offsetof(hf_claim, bytes) + strings_size, alignment = _Alignof(hf_claim);
    return (size + alignment - 1) / alignment * alignment;
}

void *hf_claim_extra_bytes(hf_claim *claim) {
    return (char *)claim + padded_claim_size((size_t)claim->key_size + claim->owner_size);
}

hf_claim *hf_claim_new(const hf_kind *kind, hf_slice key, hf_slice owner, size_t room) {
    assert(kind && key.size > 0 && owner.size <= UINT16_MAX);
    size_t fields = offsetof(hf_claim, bytes); /* less than sizeof, which includes padding */
    hf_claim *claim = malloc(padded_claim_size(key.size + owner.size) + room);
    if (!claim) return NULL;
    memset(claim, 0, fields);
    memcpy(claim->bytes, key.data, key.size);
    memcpy(claim->bytes + key.size, owner.data, owner.size);
    claim->key_size = (uint32_t)key.size;
    claim->owner_size = (uint16_t)owner.size;
    claim->shorter_lease = claim->max_until = claim->wake_at = claim->confirm_at = HF_NEVER;
    claim->kind = kind;
    claim->refs = 1;
    return claim;
}

enum { ACTIVE = 1 << HF_CLAIM_ACTIVE, LEAVING = 1 << HF_CLAIM_LEAVING };
enum { GONE = 1 << HF_CLAIM_GONE };

static const int allowed_next[HF_CLAIM_STATES] = {
    [HF_CLAIM_REQUESTED] = ACTIVE | LEAVING | GONE,
    [HF_CLAIM_ACTIVE] = LEAVING | GONE,
    [HF_CLAIM_LEAVING] = GONE,
};

void hf_claim_become(hf_claim *claim, hf_claim_state state) {
    assert(state < HF_CLAIM_STATES);
    assert(allowed_next[claim->state] & 1 << state);
    (void)allowed_next;
    claim->state = state;
}

void hf_claim_free(hf_claim *claim) {
    assert(claim->refs == 0 && claim->state == HF_CLAIM_GONE && !claim->kept && !claim->hold);
    free(claim);
}

void hf_claim_check(const hf_claim *claim) {
    assert(claim->refs > 0 && claim->kind);
    assert(!claim->kept || hf_claim_in_table(claim));
    assert((!claim->leave.undoes_acquire && claim->leave.amount == 0) ||
           claim->kind->has_call_notes);
    assert(claim->share.pending_releases == 0 || claim->shared);
    assert(claim->state < HF_CLAIM_STATES);
    assert(claim->state != HF_CLAIM_LEAVING || !claim->hold);
    assert(
        claim->state == HF_CLAIM_LEAVING || claim->state == HF_CLAIM_GONE ||
        (!claim->leave.same_connection && !claim->leave.refused && !claim->leave.granted_too_late));
    (void)claim;
}

uint32_t hf_claim_own_holds(const hf_claim *claim) {
    assert(claim->count + claim->share.pending_releases >= claim->share.others);
    return claim->count - claim->share.others + claim->share.pending_releases;
}

void hf_claim_drop_own_holds(hf_claim *claim) {
    claim->count = claim->share.others;
    claim->share.pending_releases = 0;
}

void hf_claim_set_count(hf_claim *claim, uint32_t count) {
    assert(claim->count >= claim->share.others);
    uint32_t own = claim->count - claim->share.others;
    claim->share.others = count > own ? count - own : 0;
    claim->count = count;
}

void hf_claim_limit_lease(hf_claim *claim, hf_time lease, hf_time max_ttl_to_shorten) {
    assert(lease > 0);
    if (lease < max_ttl_to_shorten) claim->shorter_lease = hf_time_min(claim->shorter_lease, lease);
}

hf_time hf_claim_time_left(const hf_claim *claim, hf_time now) {
    return claim->valid_until > now ? claim->valid_until - now : 0;
}

hf_time hf_claim_max_left(const hf_claim *claim, hf_time now) {
    if (claim->max_until == HF_NEVER) return 0;
    return claim->max_until > now ? claim->max_until - now : HF_LEASE_MIN;
}

hf_time hf_claim_capped_lease(const hf_claim *claim, hf_time lease, hf_time sent_at) {
    hf_time left = hf_claim_max_left(claim, sent_at);
    return left > 0 ? hf_time_min(lease, left) : lease;
}

hf_time hf_claim_lease_end(const hf_claim *claim, hf_time lease, hf_time sent_at) {
    hf_time end = hf_lease_end(sent_at, hf_claim_capped_lease(claim, lease, sent_at));
    return hf_time_min(end, claim->max_until);
}

/* `valid_until` is earlier than the end of the lease by the drift. This uses the drift of the full
 * lease. A lease cut off by max_until has less drift, so this errs towards true. */
bool hf_claim_has_last_lease(const hf_claim *claim) {
    hf_time drift = claim->lease - hf_lease_end(0, claim->lease);
    return hf_time_add(claim->valid_until, drift) >= claim->max_until;
}
