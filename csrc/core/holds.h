/* What this client holds, and when each hold needs attention next.
 *
 * A hold is one owner's lock on one key. It is found by (layout, key, owner) while it is in the table, and lives until
 * the table and every handle have let go of it (refs). heap[0] needs attention first; equal times are served in the
 * order of their numbers. The table has room in its heap for each hold it has, so that nothing but hf_holds_add
 * allocates. */
#ifndef HF_HOLDS_H
#define HF_HOLDS_H

#include "programs.h"
#include "types.h"

typedef enum hf_hold_state {
    HF_HOLD_ACQUIRING, /* asked for; nothing is held yet */
    HF_HOLD_HELD,
    HF_HOLD_LOST,      /* `reason` says how; stays until the owner lets go or acquires anew */
    HF_HOLD_RELEASING, /* the owner's release is under way */
    HF_HOLD_LEAVING    /* the keeper is to make the server forget it */
} hf_hold_state;

typedef enum hf_lost_reason {
    HF_LOST_NOT,
    HF_LOST_EXPIRED,
    HF_LOST_TAKEN,
    HF_LOST_DELETED,
    HF_LOST_UNREACHABLE
} hf_lost_reason;

/* "expired", "taken", …; NULL for HF_LOST_NOT. */
const char *hf_lost_reason_name(hf_lost_reason reason);

typedef struct hf_hold hf_hold;

struct hf_hold {
    hf_hold *next_in_bucket;
    uint64_t hash, number;
    hf_time lease;
    hf_time valid_until; /* held before this */
    hf_time wake_at;     /* the keeper looks at it then */
    uint64_t token;      /* 0: none */
    uint64_t wait;       /* its place in the queue, for a hold that leaves; 0: none */
    uint64_t token_ttl_ms;
    size_t heap_index;
    uint32_t count; /* the owner's holds as the server has them */
    uint32_t owed;  /* of a shared owner: holds let go of here that the server still counts */
    uint32_t base;  /* those of them that belong to other processes of a shared owner */
    uint32_t refs;
    uint32_t failures; /* of renewals in a row */
    hf_hold_state state;
    hf_layout layout;
    hf_lost_reason reason;
    bool in_table;
    bool renewed;    /* by the watchdog */
    bool granted;    /* came by a grant that is not confirmed yet */
    bool busy;       /* a command that sets its TTL or its owner is in flight; no second one is sent */
    bool shared;     /* other processes may use its owner */
    bool leftover;   /* an earlier acquire of unknown outcome may stand on the server */
    bool in_order;   /* leaves behind a command of unknown outcome, over the same link */
    bool astray;     /* leaves; a command that does so got no answer, and may be under way over the keeper's own link */
    bool at_risk;    /* the last renewal failed */
    bool asks;       /* for its owner's word, before it is renewed */
    bool allowed;    /* the owner has given it */
    hf_hold **parts; /* of a quorum: the holds of its members, each referenced, NULL: none; NULL: not one of a quorum */
    uint32_t part_count;
    uint32_t key_size, owner_size;
    char bytes[]; /* key, owner */
};

typedef struct hf_holds {
    hf_hold **buckets;
    size_t bucket_count; /* 0 or a power of two */
    hf_hold **heap;
    size_t count, heap_capacity;
    uint64_t last_number;
    uint64_t news; /* grows with each loss */
} hf_holds;

hf_slice hf_hold_key(const hf_hold *hold);
hf_slice hf_hold_owner(const hf_hold *hold);

hf_hold *hf_holds_find(const hf_holds *holds, hf_layout layout, hf_slice key, hf_slice owner);

/* A new hold in the state ACQUIRING, with one reference for the table. NULL when out of memory. */
hf_hold *hf_holds_add(hf_holds *holds, hf_layout layout, hf_slice key, hf_slice owner);

/* Takes it out of the table, which drops the table's reference. */
void hf_holds_remove(hf_holds *holds, hf_hold *hold);

void hf_hold_ref(hf_hold *hold);
void hf_hold_unref(hf_hold *hold);

void hf_holds_wake_at(hf_holds *holds, hf_hold *hold, hf_time at);

/* Puts the heap in order after wake_at was set without it. */
void hf_holds_resort(hf_holds *holds);

/* The hold that needs attention first, NULL when there is none. */
hf_hold *hf_holds_first(const hf_holds *holds);

/* One that is HELD although its time is over, NULL when there is none. Looks only at holds that need attention. */
hf_hold *hf_holds_first_ended(const hf_holds *holds, hf_time now);

void hf_holds_lose(hf_holds *holds, hf_hold *hold, hf_lost_reason reason);

/* Of a shared owner: how many holds of this client the server counts. */
uint32_t hf_hold_own(const hf_hold *hold);

/* The server's count has become `count`: what is not this client's own belongs to the owner's other processes. */
void hf_hold_rebase(hf_hold *hold, uint32_t count);

/* True while the owner may believe in it. */
bool hf_hold_is_valid(const hf_hold *hold, hf_time now);

void hf_holds_free(hf_holds *holds);

#endif
