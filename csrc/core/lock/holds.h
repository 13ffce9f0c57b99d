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

#include "base/numbers.h"
#include "base/request.h"
#include "holdfast.h"
#include "lock/kind.h"

typedef struct hf_holds hf_holds;
typedef struct hf_lent hf_lent;

/* What a hold of a kept lock is lent from: op/kept.h. It is due when its hold has ended, or others
 * want it. */
struct hf_lent {
    hf_holds *holds;
    hf_hold *hold;   /* in the table, ACQUIRING or HELD; NULL: none */
    uint64_t number; /* in the hold's owner */
    bool wished;     /* others want the lock */
    bool due;        /* it is in the list */
    hf_lent *next_due;
};

/* Of the owner, for the next renewal or confirmation; only where config.needs_approval. */
typedef enum hf_approval {
    HF_APPROVAL_NONE,
    HF_APPROVAL_PENDING, /* the owner is asked */
    HF_APPROVAL_GIVEN
} hf_approval;

struct hf_hold {
    uint64_t number;               /* no other hold of this client has it */
    hf_number by_key;              /* by a hash of key and caller */
    hf_number by_number, by_alias; /* alias: another number that messages may name it by */
    hf_time lease;
    hf_time valid_until; /* held before this */
    hf_time wake_at;     /* when the renewer handles it */
    hf_time confirm_at;  /* while `granted` */
    hf_time shortened;   /* a lease that an extend in doubt may still set; HF_NEVER: none */
    hf_time max_until;   /* no lease of it lasts longer; HF_NEVER: no bound */
    uint64_t token;      /* 0: none */
    uint64_t observer;   /* that gets its events; 0: none of its own */
    hf_time held_since;  /* 0: not held, or its end has been counted */
    hf_time settled_at;  /* when the last command that was `in_flight` ended */
    uint64_t agent;      /* the coroutine that acquired it */
    uint64_t wait;       /* the number of its wait, if it is cleaned up or was granted; 0: none */
    uint64_t token_ttl_ms;
    hf_lent *lent;      /* NULL: the client does not keep it */
    hf_request *record; /* HELD: writes the record of a run whose call has ended; or NULL */
    hf_stake *stakes;
    hf_time keep_until; /* while `idle` */
    size_t heap_index;
    uint32_t count;            /* the owner's holds as the server has them */
    uint32_t permits;          /* of a semaphore: how many it has; 0: it is no semaphore's */
    int32_t amount;            /* CLEANING_UP, of a noted kind: how many its release adds */
    uint32_t pending_releases; /* shared owner: holds released here that the server still counts */
    uint32_t others;           /* shared owner: how many of `count` belong to other processes */
    uint32_t strays;  /* releases through handles without an entry: see hf_hold_note_stray */
    uint32_t dropped; /* entries of collected handles, to release when the re-entry is over */
    uint32_t refs;
    uint16_t class;            /* class of locks, for the counters */
    hf_approval approval : 16; /* small: a hold takes no more memory than before */
    uint32_t failures;         /* in a row, of renewals or of cleaning up */
    hf_hold_state state;
    hf_lost_reason reason;
    const hf_kind *kind;
    bool in_table;
    bool renewed;           /* by the watchdog */
    bool granted;           /* came by a grant that is not confirmed yet */
    bool in_flight;         /* a command that sets its TTL or owner is; no second one is sent */
    bool awaited;           /* an operation may wait until this hold is free */
    bool shared;            /* other processes may use its owner */
    bool same_connection;   /* cleaned up after the command in doubt, over the same connection */
    bool alone;             /* renewed by itself: the server has refused a batch with it */
    bool undoes;            /* CLEANING_UP, of a noted kind: undoes an acquire, adds nothing */
    bool refused;           /* CLEANING_UP: the server refuses it for the moment */
    bool at_risk;           /* the last renewal failed */
    bool unawaited;         /* RELEASING: the release is detached */
    bool keeps;             /* its owner keeps the lock for other callers */
    bool uncertain;         /* the server may count another number of its entries */
    bool idle;              /* HELD: kept, and no caller has it */
    bool unclaimed;         /* CLEANING_UP: a grant for which nobody waits here */
    hf_hold **member_holds; /* quorum: of each member, referenced, NULL: none; NULL: no quorum */
    uint32_t member_count;
    uint32_t copies;   /* quorum: owners made for member holds that servers got later */
    uint32_t refusals; /* quorum: in a row, of servers that had another owner */
    uint32_t key_size, caller_size, owner_size;
    char bytes[]; /* key, caller, owner */
};

struct hf_holds {
    hf_hold **heap;
    size_t count, heap_capacity;
    hf_numbers keys, numbers;
    size_t unclaimed; /* how many are */
    uint64_t last_number;
    uint64_t losses; /* grows with each loss, and when one is entered into a ledger later */
    hf_lent *due;
};

hf_slice hf_hold_key(const hf_hold *hold);

hf_hold *hf_holds_find(const hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller);

/* Returns a valid hold of this lock, of any caller, that does not end before `until` and that no
 * other process may release; NULL: there is none. Reads the whole table. */
hf_hold *hf_holds_find_lasting(const hf_holds *holds, const hf_kind *kind, hf_slice key,
                               hf_time until);

/* Returns the hold with this number, or a shared owner's hold that came by the wait with this
 * number; NULL: there is none. */
hf_hold *hf_holds_find_wait(const hf_holds *holds, uint64_t number);

/* Returns a hold that cleans up what the wait with this number may have left; NULL: there is none.
 */
hf_hold *hf_holds_find_clean_up(const hf_holds *holds, uint64_t number);

/* Messages may name the hold by this number, too, instead of an earlier alias. */
void hf_holds_alias(hf_holds *holds, hf_hold *hold, uint64_t number);

/* Sets the hold's `wait`. */
void hf_holds_note_wait(hf_holds *holds, hf_hold *hold, uint64_t wait);

/* The hold, which is cleaned up, counts as unclaimed while it is in the table. */
void hf_holds_note_unclaimed(hf_holds *holds, hf_hold *hold);

/* Adds a new hold in the state ACQUIRING, with one reference for the table; its number is the
 * table's last_number. Copies the texts. Returns NULL when out of memory. */
hf_hold *hf_holds_add(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller,
                      hf_slice owner);

/* Takes it out of the table, which drops the table's reference. */
void hf_holds_remove(hf_holds *holds, hf_hold *hold);

/* Changes the hold's state; no other function does. Asserts that the step is legal. */
void hf_hold_become(hf_hold *hold, hf_hold_state state);

/* Asserts what is always true of a hold. */
void hf_hold_check(const hf_hold *hold);

/* Adds it to the list of due holds. */
void hf_lent_note(hf_lent *lent);

/* Others want the lock with this number in its owner, if the client still holds it. */
void hf_holds_wish(hf_holds *holds, uint64_t number);

void hf_holds_wake_at(hf_holds *holds, hf_hold *hold, hf_time at);

/* Restores the order of the heap after wake_at was set directly. */
void hf_holds_resort(hf_holds *holds);

/* Every hold of this lock that is HELD needs attention then. Reads the whole table. */
void hf_holds_wake_all(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_time at);

/* Returns the hold that needs attention first; NULL: there is none. */
hf_hold *hf_holds_first(const hf_holds *holds);

/* Returns a hold that is HELD although its time is over; NULL: there is none. Checks only holds
 * that need attention. */
hf_hold *hf_holds_first_ended(const hf_holds *holds, hf_time now);

/* Returns whether a release of it is under way that no caller waits for. */
bool hf_hold_is_released(const hf_hold *hold);

/* Returns whether its owner counts on it. A hold that is cleaned up has no owner any more, so a
 * reply that it is gone is no loss. */
bool hf_hold_can_be_lost(const hf_hold *hold);

/* Returns "<uuid>:<number>" of "<uuid>:<number>.<copy>", by which a server of a quorum knows an
 * owner whose lock was written to it again; every other owner as it is. */
hf_slice hf_owner_without_copy(hf_slice owner);

/* Marks the hold lost, which can be lost: only for hf_client_lose. */
void hf_holds_lose(hf_holds *holds, hf_hold *hold, hf_lost_reason reason);

/* Returns how many of a shared owner's holds on the server belong to this client. */
uint32_t hf_hold_own(const hf_hold *hold);

/* The server counts no hold of this client any more. */
void hf_hold_freed(hf_hold *hold);

/* The server's count is `count` now: holds that are not this client's belong to the owner's other
 * processes. */
void hf_hold_rebase(hf_hold *hold, uint32_t count);

/* From now on the server may run a command that sets this lease if the TTL is at most `most`. */
void hf_hold_bound_lease(hf_hold *hold, hf_time lease, hf_time most);

/* Returns the lease that a renewal gives: the hold's, or less while an extend in doubt may still
 * set a shorter one. */
hf_time hf_hold_lease(const hf_hold *hold);

/* Returns the lease to ask for in place of `lease` with a command that is sent at `sent_at`: less
 * if that would last longer than `max_until`. */
hf_time hf_hold_lease_within(const hf_hold *hold, hf_time lease, hf_time sent_at);

/* Returns the end of the lease that this command sets; never after `max_until`. */
hf_time hf_hold_end_of(const hf_hold *hold, hf_time lease, hf_time sent_at);

/* Returns for how long it may still be held; 0: it has no bound. */
hf_time hf_hold_max_left(const hf_hold *hold, hf_time now);

/* Returns whether its present lease lasts until `max_until`: no renewal makes it longer. */
bool hf_hold_has_last_lease(const hf_hold *hold);

void hf_holds_free(hf_holds *holds);

#endif
