/* The client's holds, and when each one needs attention next.
 *
 * Two strings identify a hold. The caller identifies its holder in this client: a coroutine, or the
 * string of a shared owner. The owner identifies the hold on the server. No two holds have the same
 * owner unless processes share it, so a command that arrives late affects no other hold.
 *
 * A hold in the table is found by kind, key and caller. It lives until the table and every handle
 * have dropped their references. heap[0] needs attention first; equal times are served in the order
 * of their numbers. The heap has room for every hold in the table, so only hf_holds_add
 * allocates. */
#ifndef HF_HOLDS_H
#define HF_HOLDS_H

#include "lock/claims.h"

typedef struct hf_holds hf_holds;

/* A kept lock, as far as the holds need it: see op/kept.h. It is due when its hold has ended or
 * others want the lock. */
struct hf_lent {
    hf_holds *holds;
    hf_hold *hold;     /* its hold in the table, ACQUIRING or HELD, or NULL */
    uint64_t number;   /* the number in the hold's owner */
    bool wished;       /* others have asked for the lock */
    bool due;          /* it is in the list holds->due */
    hf_lent *next_due; /* the next kept lock in that list, or NULL */
};

struct hf_hold {
    union {
        hf_claim claim;
        struct {
            HF_CLAIM_FIELDS
        };
    };
    hf_number by_key;        /* the hold's entry in holds->keys, by a hash of key and caller */
    uint64_t token;          /* the fencing token, or 0 */
    uint64_t observer;       /* the number of the listener that gets its events, or 0 */
    hf_time held_since;      /* 0 if it is not held, or its end has been counted */
    uint64_t agent;          /* the number of the coroutine that acquired it */
    hf_stake *stakes;        /* the list of its stakes */
    uint32_t strays;         /* releases through handles without an entry: see hf_hold_note_stray */
    uint32_t dropped;        /* entries of garbage-collected handles, released after the re-entry */
    uint16_t class;          /* its class for the counters, from hf_observe_class */
    hf_hold_state state : 8; /* changed only by hf_hold_become */
    hf_lost_reason reason : 8; /* why it was lost, or HF_LOST_NOT */
    bool unawaited;            /* RELEASING: the release is detached */

    /* In a quorum: the hold of each member, referenced, or NULL for a member without one. Otherwise
     * NULL. */
    hf_hold **member_holds;

    uint32_t member_count; /* the size of `member_holds` */
    uint32_t copies; /* in a quorum: how many owners were created for servers that joined later */
    uint32_t busy_replies; /* in a quorum: how many servers in a row had another owner */
    uint32_t key_size, caller_size, owner_size; /* the sizes of the strings in `bytes` */
    char bytes[];                               /* key, caller, owner */
};

struct hf_holds {
    hf_hold **heap; /* the table's holds, ordered by wake_at */
    size_t count, heap_capacity;
    hf_numbers keys, numbers; /* the same holds by key and by number */
    size_t unclaimed;         /* how many of the holds are unclaimed */
    uint64_t last_number;
    uint64_t losses; /* grows with each loss, even one that is entered into a ledger later */
    hf_lent *due;    /* the list of kept locks that are due */
};

/* Returns the hold's key. The slice is valid as long as the hold. */
hf_slice hf_hold_key(const hf_hold *hold);

/* Return the claim's hold, key and owner. */
static inline hf_hold *hf_claim_hold(const hf_claim *claim) {
    return (hf_hold *)claim;
}
static inline hf_slice hf_claim_key(const hf_claim *claim) {
    return hf_hold_key(hf_claim_hold(claim));
}
static inline hf_slice hf_claim_owner(const hf_claim *claim) {
    return hf_hold_owner(hf_claim_hold(claim));
}

/* Returns whether the claim is ASKED. */
static inline bool hf_claim_is_asked(const hf_claim *claim) {
    return claim->in_table && hf_claim_hold(claim)->state == HF_HOLD_ACQUIRING;
}

/* Returns whether the claim is STANDING and its hold HELD. The renewer renews only such claims. */
static inline bool hf_claim_is_held(const hf_claim *claim) {
    return claim->in_table && hf_claim_hold(claim)->state == HF_HOLD_HELD;
}

/* Returns whether the claim is LEAVING. */
static inline bool hf_claim_is_leaving(const hf_claim *claim) {
    return claim->in_table && hf_claim_hold(claim)->state == HF_HOLD_CLEANING_UP;
}

/* Returns the caller's hold of this lock in the table, or NULL. */
hf_hold *hf_holds_find(const hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller);

/* Returns any caller's valid hold of this lock that lasts at least until `until` and that no other
 * process may release, or NULL. Searches the whole table. */
hf_hold *hf_holds_find_lasting(const hf_holds *holds, const hf_kind *kind, hf_slice key,
                               hf_time until);

/* Returns the hold with this number, or a shared owner's hold that came by the wait with this
 * number, or NULL. */
hf_hold *hf_holds_find_wait(const hf_holds *holds, uint64_t number);

/* Returns a hold that is cleaning up what the wait with this number may have left, or NULL. */
hf_hold *hf_holds_find_clean_up(const hf_holds *holds, uint64_t number);

/* Lets messages name the hold by this number, too, instead of any earlier alias. */
void hf_holds_alias(hf_holds *holds, hf_hold *hold, uint64_t number);

void hf_holds_note_wait(hf_holds *holds, hf_hold *hold, uint64_t wait);

/* Counts a hold that is being cleaned up as unclaimed while it is in the table. */
void hf_holds_note_unclaimed(hf_holds *holds, hf_hold *hold);

/* Adds a new hold in the state ACQUIRING, with one reference for the table; its number is the
 * table's last_number. Copies the strings. Returns NULL when out of memory. */
hf_hold *hf_holds_add(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller,
                      hf_slice owner);

/* Removes the hold from the table, and drops the table's reference. */
void hf_holds_remove(hf_holds *holds, hf_hold *hold);

/* Changes the hold's state; no other function does. Asserts that the step is allowed. */
void hf_hold_become(hf_hold *hold, hf_hold_state state);

/* Asserts the invariants of a hold. */
void hf_hold_check(const hf_hold *hold);

/* Asserts the invariants of the table, and what is true of its holds once the event at `now` has
 * been handled. Examines at most the first 64 holds of the heap. */
void hf_holds_check(const hf_holds *holds, hf_time now);

/* Adds the kept lock to the list of due ones. */
void hf_lent_note(hf_lent *lent);

/* Notes that others want the lock whose owner has this number, if the client still holds it. */
void hf_holds_wish(hf_holds *holds, uint64_t number);

/* Sets when the claim needs attention. */
void hf_holds_wake_at(hf_holds *holds, hf_claim *claim, hf_time at);

/* Restores the order of the heap after wake_at was set directly. */
void hf_holds_resort(hf_holds *holds);

/* Makes all HELD holds of this lock need attention at `at`, unless they need it earlier. Searches
 * the whole table. */
void hf_holds_wake_all(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_time at);

/* Returns the hold that needs attention first, or NULL. */
hf_hold *hf_holds_first(const hf_holds *holds);

/* Returns a hold that is HELD although its validity has ended, or NULL. Examines only holds that
 * need attention. */
hf_hold *hf_holds_first_ended(const hf_holds *holds, hf_time now);

/* Returns whether an acquire may still make the hold HELD, or enter it again. */
bool hf_hold_is_live(const hf_hold *hold);

/* Returns whether a release of the hold is under way without a caller that waits for it. */
bool hf_hold_is_released(const hf_hold *hold);

/* Returns whether the owner relies on the hold. A hold that is being cleaned up has no owner any
 * more, so a reply that it is gone is not a loss. */
bool hf_hold_can_be_lost(const hf_hold *hold);

/* Returns an owner of the form "<uuid>:<number>.<copy>" as "<uuid>:<number>", and any other owner
 * unchanged. In a quorum, a server to which a lock was written again has a copy as its owner. */
hf_slice hf_owner_without_copy(hf_slice owner);

/* Marks a hold as lost; it must be one that can be lost. Only hf_client_lose calls this. */
void hf_holds_lose(hf_holds *holds, hf_hold *hold, hf_lost_reason reason);

void hf_holds_free(hf_holds *holds);

#endif
