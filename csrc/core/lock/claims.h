/* A claim is what a server may have stored under one owner. The renewer works on claims; a hold is
 * a caller's view of a claim.
 *
 *     REQUESTED --> ACTIVE --> LEAVING --> GONE
 *
 *   REQUESTED  an acquire that names the owner is under way
 *   ACTIVE     the server has stored the owner, as far as this client knows
 *   LEAVING    the renewer is removing the owner from the server
 *   GONE       nothing is left to remove, and the claim is not in the table
 *
 * Because owners are never reused, a claim only moves forward. It may skip states. It is freed when
 * its hold, the table, every task and every operation have dropped their references. It may outlive
 * its hold, be given another one afterwards, or never have one. A claim in the table has no hold if
 * and only if it is LEAVING, has a `record`, or belongs to a kept lock that no caller holds.
 *
 * Invariants of a claim:
 * - At most one command that sets its TTL or its owner is in flight.
 * - No lease requested for it ends after `max_until`.
 * - While it is ACTIVE, `valid_until` is not after the end of its lease on the server, unless
 *   that lease was ended early, for example by a forced release.
 * - While it is in the table, it is in the heap, and no other claim has its number.
 * - Only a claim with a shared owner has `pending_releases`. */
#ifndef HF_CLAIMS_H
#define HF_CLAIMS_H

#include <assert.h>

#include "base/numbers.h"
#include "base/request.h"
#include "holdfast.h"
#include "lock/kind.h"

typedef struct hf_kept_lock hf_kept_lock;

typedef enum hf_claim_state {
    HF_CLAIM_REQUESTED,
    HF_CLAIM_ACTIVE,
    HF_CLAIM_LEAVING,
    HF_CLAIM_GONE,
    HF_CLAIM_STATES
} hf_claim_state;

/* The owner's approval for the next renewal or confirmation, if config.needs_approval is set. */
typedef enum hf_approval {
    HF_APPROVAL_NONE,
    HF_APPROVAL_PENDING, /* the owner has been asked */
    HF_APPROVAL_GIVEN
} hf_approval;

/* A shared owner's holds on the server that do not belong to a caller of this client. */
typedef struct hf_share {
    uint32_t others;           /* how many of `count` are other processes' holds */
    uint32_t pending_releases; /* released here, but still counted by the server */
} hf_share;

/* The fields that only a LEAVING claim uses. */
typedef struct hf_leave {
    int32_t amount;          /* for kinds with call notes: how many permits the clean-up releases */
    bool undoes_acquire : 1; /* for kinds with call notes: the clean-up undoes an acquire */
    bool same_connection : 1;  /* the clean-up must use the connection of the command in doubt */
    bool refused : 1;          /* the server refuses the clean-up for a transient reason */
    bool granted_too_late : 1; /* its wait had ended before it was granted */
} hf_leave;

typedef struct hf_claim {
    hf_hold *hold;             /* the hold that relies on it, or NULL */
    hf_number_entry by_number; /* its entry in holds->numbers; the number is unique in the client */
    hf_number_entry by_alias;  /* a second entry there, for another number that messages may use */
    hf_number_entry by_key;    /* its entry in holds->keys, for a hash of key and caller */
    const hf_kind *kind;
    hf_time lease;         /* the lease that renewals request */
    hf_time valid_until;   /* the end of its validity */
    hf_time wake_at;       /* when the renewer handles the claim next */
    hf_time confirm_at;    /* when to confirm the grant that acquired it, or HF_NEVER */
    hf_time shorter_lease; /* a shorter lease that a command in doubt may have set; or HF_NEVER */
    hf_time max_until;     /* no lease may end after this time; HF_NEVER for no limit */
    uint64_t wait;         /* LEAVING or granted: the number of its wait, or 0 */
    uint64_t token_ttl_ms; /* the fencing counter's TTL in milliseconds; 0 for no fencing */
    hf_kept_lock *kept;    /* the kept lock to which it belongs, or NULL */
    hf_request *record;    /* the request that writes an ended run's record, or NULL */
    uint32_t heap_index;   /* its place in holds->heap */
    uint32_t count;        /* the server's count of its owner's holds */
    hf_share share;        /* for a shared owner */
    hf_leave leave;        /* all zero unless it is LEAVING */
    uint32_t failures;     /* consecutive failed renewals or attempts to clean up */
    uint32_t key_size;     /* the size of the key, the first part of `bytes` */
    uint32_t refs;         /* the number of references to it */
    uint32_t settled_ms;   /* the low 32 bits of the time in ms at which its last command ended */
    uint16_t owner_size;   /* the size of the owner, which follows the key */
    uint8_t class;         /* the index of its class, from hf_observe_class */
    hf_approval approval : 2;
    hf_claim_state state : 3;       /* changed only by hf_claim_become */
    bool renewed : 1;               /* the watchdog renews it */
    bool has_command_in_flight : 1; /* a command that sets its TTL or owner is in flight */
    bool awaited : 1;               /* an operation may be waiting until no command is in flight */
    bool shared : 1;                /* other processes may use its owner */
    bool refused_in_batch : 1; /* a batch that contained it was refused, so it is renewed alone */
    bool count_uncertain : 1;  /* the server's count may differ from `count` */
    char bytes[];              /* key, owner */
} hf_claim;

/* Return the claim's strings. The slices remain valid for as long as the claim exists. */
static inline hf_slice hf_claim_key(const hf_claim *claim) {
    return (hf_slice){claim->bytes, claim->key_size};
}
static inline hf_slice hf_claim_owner(const hf_claim *claim) {
    return (hf_slice){claim->bytes + claim->key_size, claim->owner_size};
}

/* Returns whether it was acquired by a grant that is not confirmed yet. */
static inline bool hf_claim_is_unconfirmed(const hf_claim *claim) {
    return claim->confirm_at != HF_NEVER;
}

/* Returns whether a command for it ended within the last `span`. An older command is mistaken for a
 * recent one about every 50 days, when settled_ms wraps. */
static inline bool hf_claim_has_settled_within(const hf_claim *claim, hf_time span, hf_time now) {
    return (uint32_t)(now / HF_MS) - claim->settled_ms < span / HF_MS;
}

/* Returns whether its last renewal failed. */
static inline bool hf_claim_is_at_risk(const hf_claim *claim) {
    return claim->failures > 0 && claim->state == HF_CLAIM_ACTIVE;
}

/* Returns whether it belongs to a kept lock that no caller holds. */
static inline bool hf_claim_is_idle(const hf_claim *claim) {
    return claim->kept && !claim->hold;
}

/* Returns a new claim with one reference, or NULL when out of memory. Copies the strings. `room` is
 * the number of extra bytes to allocate for its first hold. */
hf_claim *hf_claim_new(const hf_kind *kind, hf_slice key, hf_slice owner, size_t room);

/* Returns the extra bytes that hf_claim_new allocated, with the alignment of a claim. They are not
 * initialised, and are freed with the claim. */
void *hf_claim_extra_bytes(hf_claim *claim);

/* Sets the claim's state; no other function does. Asserts that this is a step forward. */
void hf_claim_become(hf_claim *claim, hf_claim_state state);

/* Returns whether the claim is in the table, which it is unless it is GONE. */
static inline bool hf_claim_in_table(const hf_claim *claim) {
    return claim->state != HF_CLAIM_GONE;
}

/* Frees a claim that is GONE and has no references. */
void hf_claim_free(hf_claim *claim);

/* Add and drop a reference. Dropping the last one frees the claim. */
static inline void hf_claim_ref(hf_claim *claim) {
    assert(claim->refs > 0 && claim->refs < UINT32_MAX);
    claim->refs++;
}
static inline void hf_claim_unref(hf_claim *claim) {
    assert(claim->refs > 0);
    if (--claim->refs == 0) hf_claim_free(claim);
}

/* Asserts the invariants of a claim. */
void hf_claim_check(const hf_claim *claim);

/* Returns how many of a shared owner's holds on the server belong to this client. */
uint32_t hf_claim_own_holds(const hf_claim *claim);

/* Records that the server no longer counts any hold of this client. */
void hf_claim_drop_own_holds(hf_claim *claim);

/* Records that the server's count is now `count`. Holds that are not this client's belong to other
 * processes with this owner. */
void hf_claim_set_count(hf_claim *claim, uint32_t count);

/* Records that a command in doubt may still shorten a TTL to `lease`. The command does not affect a
 * TTL that is longer than `max_ttl_to_shorten`. */
void hf_claim_limit_lease(hf_claim *claim, hf_time lease, hf_time max_ttl_to_shorten);

/* Returns the lease for a renewal: the claim's lease, or the shorter one that a command in doubt
 * may still set. */
static inline hf_time hf_claim_lease(const hf_claim *claim) {
    return hf_time_min(claim->lease, claim->shorter_lease);
}

/* Returns the lease to request with a command sent at `sent_at`: `lease`, or a shorter one if
 * `lease` would end after `max_until`. */
hf_time hf_claim_capped_lease(const hf_claim *claim, hf_time lease, hf_time sent_at);

/* Returns the end of a lease that was requested at `sent_at`; never after `max_until`. */
hf_time hf_claim_lease_end(const hf_claim *claim, hf_time lease, hf_time sent_at);

/* Returns how much of the lease is left. */
hf_time hf_claim_time_left(const hf_claim *claim, hf_time now);

/* Returns how long it may still be held (at least HF_LEASE_MIN), or 0 if there is no limit. */
hf_time hf_claim_max_left(const hf_claim *claim, hf_time now);

/* Returns whether the current lease ends at `max_until`, so that renewals cannot extend it. */
bool hf_claim_has_last_lease(const hf_claim *claim);

#endif
