/* A claim is what a server may have under one owner. The renewer knows claims; what a caller
 * believes of one is its hold.
 *
 *     ASKED --> STANDING --> LEAVING --> GONE
 *
 *   ASKED     an acquire that names the owner is under way
 *   STANDING  the server has the owner, as far as this client knows
 *   LEAVING   the renewer makes the server forget the owner
 *   GONE      nothing of it is left: it is out of the table
 *
 * It goes one way only, and may skip states: an owner is never used again. A claim is a part of its
 * hold, whose state says which of these it is in: ASKED is ACQUIRING, LEAVING is CLEANING_UP, and
 * any other hold in the table has a claim that is STANDING.
 *
 * What is always true of a claim:
 * - It has at most one command in flight that sets its TTL or its owner.
 * - No lease that is asked for ends after `max_until`.
 * - While it is STANDING, `valid_until` is not after the end of its lease on the server, unless
 *   somebody has ended that lease.
 * - In the table it has a place in the heap, and no other claim has its number.
 * - Only a shared owner has `pending_releases`, and only a kept lock is `idle`.
 * - `same_connection` and `unclaimed` are set only while it is LEAVING. */
#ifndef HF_CLAIMS_H
#define HF_CLAIMS_H

#include "base/numbers.h"
#include "base/request.h"
#include "holdfast.h"
#include "lock/kind.h"

typedef struct hf_lent hf_lent;

/* The owner's approval for the next renewal or confirmation, with config.needs_approval. */
typedef enum hf_approval {
    HF_APPROVAL_NONE,
    HF_APPROVAL_PENDING, /* the owner is asked */
    HF_APPROVAL_GIVEN
} hf_approval;

/* The fields of a claim. A hold has them as its own, too. */
#define HF_CLAIM_FIELDS                                                                            \
    uint64_t number;     /* no other claim of this client has it */                                \
    hf_number by_number; /* its entry in holds->numbers */                                         \
    hf_number by_alias;  /* the same for another number by which messages may name it */           \
    const hf_kind *kind;                                                                           \
    hf_time lease;         /* the lease that renewals ask for */                                   \
    hf_time valid_until;   /* until when it is held */                                             \
    hf_time wake_at;       /* when the renewer handles it */                                       \
    hf_time confirm_at;    /* with `granted`: when it must be confirmed */                         \
    hf_time shortened;     /* a lease that an extend in doubt may still set; HF_NEVER: none */     \
    hf_time max_until;     /* no lease may end after this time; HF_NEVER: no limit */              \
    hf_time settled_at;    /* when the last command that was in flight ended */                    \
    uint64_t wait;         /* the number of its wait, if LEAVING or granted; 0: none */            \
    uint64_t token_ttl_ms; /* the TTL of the fencing counter, in milliseconds; 0: no fencing */    \
    hf_lent *lent;         /* the kept lock that it is lent from; NULL: it is not kept */          \
    hf_time keep_until;    /* with `idle`: until when the client keeps it */                       \
    hf_request *record;    /* writes the record of a run whose call has ended; or NULL */          \
    size_t heap_index;     /* its place in holds->heap */                                          \
    uint32_t count;        /* how many holds of its owner the server counts */                     \
    uint32_t others;       /* shared owner: how many of `count` belong to other processes */       \
    uint32_t pending_releases; /* shared owner: released here, and the server still counts them */ \
    uint32_t permits;          /* how many permits it has; 0: it is not a semaphore's */           \
    int32_t amount;            /* LEAVING, of a kind with call notes: how many its release adds */ \
    uint32_t failures;         /* failed renewals, or attempts to clean up, in a row */            \
    uint32_t refs;             /* how many references keep it alive */                             \
    hf_approval approval : 8;                                                                      \
    bool in_table;                                                                                 \
    bool renewed;          /* the watchdog renews it */                                            \
    bool granted;          /* it came by a grant that is not confirmed yet */                      \
    bool in_flight;        /* a command that sets its TTL or owner is: no second one is sent */    \
    bool awaited;          /* an operation may wait until no command for it is in flight */        \
    bool shared;           /* other processes may use its owner */                                 \
    bool refused_in_batch; /* the server has refused a batch with it: it is renewed alone */       \
    bool at_risk;          /* the last renewal failed */                                           \
    bool uncertain;        /* the server may count another number of its entries */                \
    bool keeps;            /* its owner keeps the lock for other callers */                        \
    bool idle;             /* the client keeps it, and no caller has it */                         \
    bool same_connection;  /* LEAVING: over the connection of the command in doubt */              \
    bool undoes;    /* LEAVING, of a kind with call notes: undoes an acquire, adds nothing */      \
    bool refused;   /* LEAVING: the server refuses it for a transient reason */                    \
    bool unclaimed; /* LEAVING: it came by a grant for which nobody is waiting here */

typedef struct hf_claim {
    HF_CLAIM_FIELDS
} hf_claim;

/* Asserts what is always true of a claim. */
void hf_claim_check(const hf_claim *claim);

/* Returns how many of a shared owner's holds on the server belong to this client. */
uint32_t hf_claim_own(const hf_claim *claim);

/* Notes that the server counts no hold of this client any more. */
void hf_claim_freed(hf_claim *claim);

/* Notes that the server's count is `count` now: holds that are not this client's belong to the
 * owner's other processes. */
void hf_claim_rebase(hf_claim *claim, uint32_t count);

/* Notes that the server may run a command that sets this lease if the TTL is at most `most`. */
void hf_claim_bound_lease(hf_claim *claim, hf_time lease, hf_time most);

/* Returns the lease that a renewal gives: the claim's, or less while an extend in doubt may still
 * set a shorter one. */
hf_time hf_claim_lease(const hf_claim *claim);

/* Returns the lease to ask for in place of `lease` with a command that is sent at `sent_at`: less
 * if that would last longer than `max_until`. */
hf_time hf_claim_lease_within(const hf_claim *claim, hf_time lease, hf_time sent_at);

/* Returns the end of the lease that this command sets; never after `max_until`. */
hf_time hf_claim_end_of(const hf_claim *claim, hf_time lease, hf_time sent_at);

/* Returns how long its lease still lasts. */
hf_time hf_claim_time_left(const hf_claim *claim, hf_time now);

/* Returns for how long it may still be held; 0: it has no limit. */
hf_time hf_claim_max_left(const hf_claim *claim, hf_time now);

/* Returns whether its present lease lasts until `max_until`, so that no renewal makes it longer. */
bool hf_claim_has_last_lease(const hf_claim *claim);

#endif
