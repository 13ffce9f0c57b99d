/* The client's holds, and when each one needs attention next.
 *
 * A hold is one lock on one key, from the acquire until the server has forgotten it. It has two
 * texts. The caller names its holder in this client: a coroutine, or the text of a shared owner.
 * The owner names the hold on the server: no two holds have the same owner, unless processes share
 * it, so a command that arrives late matches no other hold.
 *
 * A hold is found by (kind, key, caller) while it is in the table, and lives until the table and
 * every handle have released it (refs). heap[0] needs attention first; equal times are served in
 * the order of their numbers. The heap has room for every hold in the table, so only hf_holds_add
 * allocates. */
#ifndef HF_HOLDS_H
#define HF_HOLDS_H

#include "lock/claims.h"

typedef struct hf_holds hf_holds;

/* A kept lock, as far as the holds know of it: see op/kept.h. It is due when its hold has ended or
 * others want the lock. */
struct hf_lent {
    hf_holds *holds;
    hf_hold *hold;     /* its hold in the table, ACQUIRING or HELD, or NULL */
    uint64_t number;   /* the number in the hold's owner */
    bool wished;       /* others want the lock */
    bool due;          /* it is in the list holds->due */
    hf_lent *next_due; /* the next one in that list, or NULL */
};

struct hf_hold {
    union {
        hf_claim claim;
        struct {
            HF_CLAIM_FIELDS
        };
    };
    hf_number by_key;   /* its entry in holds->keys, by a hash of key and caller */
    uint64_t token;     /* the fencing token; 0: none */
    uint64_t observer;  /* the listener that gets its events; 0: none of its own */
    hf_time held_since; /* 0: it is not held, or its end has been counted */
    uint64_t agent;     /* the number of the coroutine that acquired it */
    hf_stake *stakes;   /* the list of stakes in it */
    uint32_t strays;    /* releases through handles without an entry: see hf_hold_note_stray */
    uint32_t dropped;   /* entries of collected handles, to release when the re-entry is over */
    uint16_t class;     /* its class, for the counters: an index from hf_observe_class */
    hf_hold_state state : 8;   /* changed only by hf_hold_become */
    hf_lost_reason reason : 8; /* why it was lost; HF_LOST_NOT: it was not */
    bool unawaited;            /* RELEASING: the release is detached */

    /* Of a quorum: the hold of each member, referenced, or NULL for a member without one. NULL
     * otherwise. */
    hf_hold **member_holds;

    uint32_t member_count; /* of `member_holds` */
    uint32_t copies;   /* of a quorum: how many owners were made for servers that got it later */
    uint32_t refusals; /* of a quorum: how many servers in a row had another owner */
    uint32_t key_size, caller_size, owner_size; /* of the texts in `bytes` */
    char bytes[];                               /* key, caller, owner */
};

struct hf_holds {
    hf_hold **heap; /* the table's holds, as a heap by wake_at */
    size_t count, heap_capacity;
    hf_numbers keys, numbers; /* the same holds by key and by number */
    size_t unclaimed;         /* how many of them are unclaimed */
    uint64_t last_number;     /* the number of the last hold */
    uint64_t losses; /* grows with each loss, and when one is entered into a ledger later */
    hf_lent *due;    /* the list of kept locks that are due */
};

/* Returns the hold's key, a part of the hold. */
hf_slice hf_hold_key(const hf_hold *hold);

/* Returns the hold that the claim is a part of, and the key and the owner that the claim is for. */
static inline hf_hold *hf_claim_hold(const hf_claim *claim) {
    return (hf_hold *)claim;
}
static inline hf_slice hf_claim_key(const hf_claim *claim) {
    return hf_hold_key(hf_claim_hold(claim));
}
static inline hf_slice hf_claim_owner(const hf_claim *claim) {
    return hf_hold_owner(hf_claim_hold(claim));
}

/* Returns whether the claim is STANDING and its hold is HELD: the renewer renews no other. */
static inline bool hf_claim_is_held(const hf_claim *claim) {
    return claim->in_table && hf_claim_hold(claim)->state == HF_HOLD_HELD;
}

/* Returns whether the claim is LEAVING. */
static inline bool hf_claim_is_leaving(const hf_claim *claim) {
    return claim->in_table && hf_claim_hold(claim)->state == HF_HOLD_CLEANING_UP;
}

/* Returns the hold of this lock that the caller has in the table, or NULL. */
hf_hold *hf_holds_find(const hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller);

/* Returns a valid hold of this lock, of any caller, that does not end before `until` and that no
 * other process may release, or NULL. Reads the whole table. */
hf_hold *hf_holds_find_lasting(const hf_holds *holds, const hf_kind *kind, hf_slice key,
                               hf_time until);

/* Returns the hold with this number, or a shared owner's hold that came by the wait with this
 * number, or NULL. */
hf_hold *hf_holds_find_wait(const hf_holds *holds, uint64_t number);

/* Returns a hold that cleans up what the wait with this number may have left, or NULL. */
hf_hold *hf_holds_find_clean_up(const hf_holds *holds, uint64_t number);

/* From now on messages may name the hold by this number, too, and by no earlier alias. */
void hf_holds_alias(hf_holds *holds, hf_hold *hold, uint64_t number);

/* Sets the hold's `wait`. */
void hf_holds_note_wait(hf_holds *holds, hf_hold *hold, uint64_t wait);

/* From now on the hold, which is cleaned up, counts as unclaimed while it is in the table. */
void hf_holds_note_unclaimed(hf_holds *holds, hf_hold *hold);

/* Adds a new hold in the state ACQUIRING, with one reference for the table; its number is the
 * table's last_number. Copies the texts. Returns NULL when out of memory. */
hf_hold *hf_holds_add(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller,
                      hf_slice owner);

/* Takes the hold out of the table, and drops the table's reference. */
void hf_holds_remove(hf_holds *holds, hf_hold *hold);

/* Changes the hold's state; no other function does. Asserts that the step is allowed. */
void hf_hold_become(hf_hold *hold, hf_hold_state state);

/* Asserts what is always true of a hold. */
void hf_hold_check(const hf_hold *hold);

/* Adds the kept lock to the list of those that are due. */
void hf_lent_note(hf_lent *lent);

/* Notes that others want the lock whose owner has this number, if the client still holds it. */
void hf_holds_wish(hf_holds *holds, uint64_t number);

/* Sets when the claim needs attention. */
void hf_holds_wake_at(hf_holds *holds, hf_claim *claim, hf_time at);

/* Restores the order of the heap after wake_at was set directly. */
void hf_holds_resort(hf_holds *holds);

/* Makes every hold of this lock that is HELD need attention at this time. Reads the whole table. */
void hf_holds_wake_all(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_time at);

/* Returns the hold that needs attention first, or NULL. */
hf_hold *hf_holds_first(const hf_holds *holds);

/* Returns a hold that is HELD although its time is over, or NULL. Checks only holds that need
 * attention. */
hf_hold *hf_holds_first_ended(const hf_holds *holds, hf_time now);

/* Returns whether a release of the hold is under way that no caller is waiting for. */
bool hf_hold_is_released(const hf_hold *hold);

/* Returns whether the owner counts on the hold. A hold that is cleaned up has no owner any more, so
 * it is not a loss if the server replies that it is gone. */
bool hf_hold_can_be_lost(const hf_hold *hold);

/* Returns an owner of the form "<uuid>:<number>.<copy>" as "<uuid>:<number>", and every other owner
 * unchanged. A server of a quorum to which a lock was written again knows its owner as a copy. */
hf_slice hf_owner_without_copy(hf_slice owner);

/* Marks a hold that can be lost as lost. Only hf_client_lose calls it. */
void hf_holds_lose(hf_holds *holds, hf_hold *hold, hf_lost_reason reason);

void hf_holds_free(hf_holds *holds);

#endif
