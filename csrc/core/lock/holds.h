/* The table of the client's holds and claims, which also says when each claim needs attention next.
 *
 * Two strings identify a hold. `caller` identifies its holder in this client: a coroutine, or a
 * shared owner. `owner` identifies the claim on the server. Unless processes share it, an owner
 * is never used again, so a command that arrives late affects no other hold.
 *
 * A hold in the table is found by kind, key and caller. It is freed when its last reference is
 * dropped. The heap contains the claims: heap[0] needs attention first, and claims with the same
 * time are served in the order of their numbers. The heap has room for every claim in the table, so
 * only adding a claim or giving it another hold allocates memory. */
#ifndef HF_HOLDS_H
#define HF_HOLDS_H

#include "lock/claims.h"

typedef struct hf_holds hf_holds;

/* The part of a kept lock that this file uses: see op/kept.h. The kept lock is due when its claim
 * has ended, when others want the lock, or when op/kept.c must decide who asks next. */
struct hf_kept_lock {
    hf_holds *holds;
    hf_claim *claim;        /* its claim in the table, REQUESTED or ACTIVE, or NULL */
    hf_time keep_until;     /* when the client must stop keeping its current claim */
    bool wanted;            /* others have asked for the lock */
    bool due;               /* it is in the list holds->due */
    hf_kept_lock *next_due; /* the next kept lock in that list, or NULL */
};

struct hf_hold {
    hf_claim *claim;    /* what the server may have stored for it, referenced */
    uint64_t token;     /* the fencing token, or 0 */
    uint64_t observer;  /* the number of the listener for its events, or 0 */
    hf_time held_since; /* 0 if it is not held, or once the time held has been counted */
    uint64_t agent;     /* the number of the coroutine that acquired it */
    hf_stake *stakes;   /* the list of its stakes */
    uint32_t strays;    /* releases through handles without an entry: see hf_hold_add_stray */
    uint32_t deferred_entries; /* entries to abandon after the re-entry, whose handles are gone */
    uint32_t copies;         /* quorum: how many copies its owner has, on servers acquired later */
    uint32_t refs;           /* the number of references to it */
    hf_hold_state state : 8; /* changed only by hf_hold_become */
    hf_lost_reason reason : 8; /* why it was lost, or HF_LOST_NONE */
    bool detached;             /* RELEASING or LOST: no caller is waiting for the release */
    bool within_claim;         /* its memory is part of its claim's memory */
    uint8_t member_count;      /* the size of `member_holds` */
    uint8_t busy_replies;      /* quorum: consecutive busy replies to repairs, at most 16 */
    uint16_t caller_size;      /* the size of `caller` */

    /* In a quorum: each member's hold, referenced, or NULL if it has none. Otherwise NULL. */
    hf_hold **member_holds;
    char caller[];
};

struct hf_holds {
    hf_claim **heap; /* the table's claims, ordered by wake_at */
    size_t count, heap_capacity;
    hf_number_table keys, numbers; /* the same claims by key and by number */
    size_t late_grants;            /* how many claims have leave.granted_too_late */
    uint64_t last_number;
    uint64_t losses;   /* increases at each loss, and when a new stake enters an earlier loss */
    hf_kept_lock *due; /* the list of kept locks that are due */
};

/* Returns the hold's key. The slice remains valid until the hold is freed. */
hf_slice hf_hold_key(const hf_hold *hold);

/* Return whether the claim is REQUESTED, or LEAVING. */
static inline bool hf_claim_is_requested(const hf_claim *claim) {
    return claim->state == HF_CLAIM_REQUESTED;
}
static inline bool hf_claim_is_leaving(const hf_claim *claim) {
    return claim->state == HF_CLAIM_LEAVING;
}

/* Returns whether the claim is ACTIVE and its hold, if any, is HELD. The renewer renews only such
 * claims. */
static inline bool hf_claim_is_held(const hf_claim *claim) {
    bool held = !claim->hold || claim->hold->state == HF_HOLD_HELD;
    return claim->state == HF_CLAIM_ACTIVE && held;
}

/* Returns the caller's hold of this lock in the table, or NULL. */
hf_hold *hf_holds_find(const hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller);

/* Returns the caller's LEAVING claim to this lock, or NULL if there is none or it was set aside. */
hf_claim *hf_holds_find_leaving(const hf_holds *holds, const hf_kind *kind, hf_slice key,
                                hf_slice caller);

/* Returns any caller's HELD hold of this lock that lasts at least until `until` and that no other
 * process may release, or NULL. Searches the whole table. */
hf_hold *hf_holds_find_lasting(const hf_holds *holds, const hf_kind *kind, hf_slice key,
                               hf_time until);

/* Returns the claim with this number, the claim of a kept lock whose owner has this number, a
 * shared owner's claim that was granted to the wait with this number, or NULL. */
hf_claim *hf_holds_find_by_number(const hf_holds *holds, uint64_t number);

/* Returns a LEAVING claim whose wait has this number, or NULL. */
hf_claim *hf_holds_find_leaving_by_wait(const hf_holds *holds, uint64_t number);

/* Sets the number of the claim's wait, 0 for none, and makes it the claim's alias. */
void hf_holds_set_wait(hf_holds *holds, hf_claim *claim, uint64_t wait);

/* Marks a LEAVING claim as granted too late. The table counts such claims. */
void hf_holds_mark_late_grant(hf_holds *holds, hf_claim *claim);

/* Adds a new ACQUIRING hold and its claim, whose number is then the table's last_number. The table
 * owns a reference to each. Copies the strings. Returns NULL when out of memory. */
hf_hold *hf_holds_add(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller,
                      hf_slice owner);

/* Adds a new claim without a hold in the same way. It cannot be found by its key. */
hf_claim *hf_holds_add_claim(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice owner);

/* Gives an ACTIVE claim in the table to this caller, and ends the claim's previous hold, if it had
 * one. Returns the new hold, which is ACQUIRING. When out of memory, changes nothing and returns
 * NULL. */
hf_hold *hf_holds_give(hf_holds *holds, hf_claim *claim, hf_slice caller);

/* Ends and drops the hold of a claim that belongs to a kept lock. The claim is then stored under an
 * empty caller. */
void hf_holds_make_idle(hf_holds *holds, hf_claim *claim);

/* Makes the claim LEAVING, and ends and drops its hold. The caller can find the claim until it is
 * set aside. */
void hf_holds_begin_leaving(hf_holds *holds, hf_claim *claim);

/* Ends and drops the claim's hold, if it has one. The claim remains in the table, but its caller
 * can no longer find it. */
void hf_holds_set_aside(hf_holds *holds, hf_claim *claim);

/* Removes the claim and its hold from the table, and drops the table's references. */
void hf_holds_remove(hf_holds *holds, hf_claim *claim);

/* Sets the hold's state; no other function does. Asserts that this change is allowed. A hold that
 * becomes HELD makes its REQUESTED claim ACTIVE. */
void hf_hold_become(hf_hold *hold, hf_hold_state state);

/* Asserts the invariants of the table, and what must be true of its claims once the event at `now`
 * has been handled. Examines at most the first 64 claims of the heap. */
void hf_holds_check(const hf_holds *holds, hf_time now);

/* Adds the kept lock to the list holds->due. */
void hf_kept_lock_set_due(hf_kept_lock *keep);

/* Called when others want the lock whose owner has this number. Does nothing if the client no
 * longer keeps that lock. */
void hf_holds_on_wanted(hf_holds *holds, uint64_t number);

/* Sets when the claim needs attention. */
void hf_holds_set_wake_at(hf_holds *holds, hf_claim *claim, hf_time at);

/* Restores the heap's order after wake_at was set directly. */
void hf_holds_resort(hf_holds *holds);

/* Makes all held claims to this lock need attention at `at` or earlier. Searches the whole
 * table. */
void hf_holds_wake_all(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_time at);

/* Returns the claim that needs attention first, or NULL. */
hf_claim *hf_holds_first(const hf_holds *holds);

/* Returns a claim that is held although its validity has ended, or NULL. Examines only claims that
 * are due. */
hf_claim *hf_holds_first_expired(const hf_holds *holds, hf_time now);

/* Returns whether the hold is in the table, where its caller can find it. */
static inline bool hf_hold_in_table(const hf_hold *hold) {
    return hold->claim->hold == hold;
}

/* Return whether the hold is in the table and ACQUIRING, or HELD. */
static inline bool hf_hold_is_acquiring(const hf_hold *hold) {
    return hold->state == HF_HOLD_ACQUIRING && hf_hold_in_table(hold);
}
static inline bool hf_hold_is_held(const hf_hold *hold) {
    return hold->state == HF_HOLD_HELD && hf_hold_in_table(hold);
}

/* Return whether the hold is LOST, or RELEASING. Its caller may have a newer hold. */
static inline bool hf_hold_is_lost(const hf_hold *hold) {
    return hold->state == HF_HOLD_LOST;
}
static inline bool hf_hold_is_releasing(const hf_hold *hold) {
    return hold->state == HF_HOLD_RELEASING;
}

/* Returns whether replies about the hold's owner still apply to its claim. They do if the hold is
 * in the table, or if its caller has given it up and the claim is LEAVING, but not if the claim is
 * LEAVING because the hold was lost. */
static inline bool hf_hold_accepts_replies(const hf_hold *hold) {
    bool given_up = !hf_hold_is_lost(hold) || hold->detached;
    return hf_hold_in_table(hold) || (given_up && hf_claim_is_leaving(hold->claim));
}

/* Returns whether an acquire may still make the hold HELD or re-enter it. */
static inline bool hf_hold_is_live(const hf_hold *hold) {
    return hf_hold_is_acquiring(hold) || hf_hold_is_held(hold);
}

/* Returns whether the hold's release is detached and under way. */
bool hf_hold_has_detached_release(const hf_hold *hold);

/* Returns whether the caller relies on the hold, or on its release. If the caller has given the
 * hold up, a reply that the hold is gone does not count as a loss. */
bool hf_hold_can_be_lost(const hf_hold *hold);

/* Returns an owner of the form "<uuid>:<number>.<copy>" as "<uuid>:<number>", and any other owner
 * unchanged. When a quorum acquires a held lock on one more server, it uses a copy of the owner
 * there. */
hf_slice hf_owner_strip_copy(hf_slice owner);

/* Marks a hold that can be lost as lost. Only hf_client_lose calls this. */
void hf_holds_mark_lost(hf_holds *holds, hf_hold *hold, hf_lost_reason reason);

void hf_holds_free(hf_holds *holds);

#endif
