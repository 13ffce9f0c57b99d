/* The kinds of locks. Each kind is a row with everything in which it differs from others. */
#ifndef HF_KIND_H
#define HF_KIND_H

#include "base/programs.h"
#include "holdfast.h"

/* What a program does to a lock. */
typedef enum hf_verb {
    HF_VERB_ACQUIRE,
    HF_VERB_RELEASE,
    HF_VERB_COMPLETE,
    HF_VERB_LEAVE,
    HF_VERB_EXTEND,
    HF_VERB_RENEW,
    HF_VERB_FORCE,
    HF_VERB_INFO,
    HF_VERB_SET,
    HF_VERB_ACQUIRE_ALL,
    HF_VERB_RELEASE_ALL,
    HF_VERB_SET_COUNT,
    HF_VERB_COUNT_DOWN,
    HF_VERB_DELETE,
    HF_VERB_DRAIN,
    HF_VERBS
} hf_verb;

struct hf_kind {
    const char *name; /* for users of the core */
    char letter;      /* in members of queues and in grants */
    bool reentrant;   /* its owner may enter it again; else a second acquire is busy */
    bool
        announced; /* Redisson publishes its releases, and receives ours; else other clients poll */
    bool fingerprinted;  /* its acquire has a fingerprint, which a grant does not write */
    bool counted;        /* a number of permits; an acquire takes one or several */
    bool joint;          /* several owners may hold it at once, and get it in one grant */
    bool listed;         /* waits in Redisson's list; each waiter has a channel of its own */
    bool bare;           /* keys in braces are refused: they have the names of those without */
    const char *suffix;  /* after <uuid>:<number> in its owners; NULL: nothing */
    const char *channel; /* before the key, in the channel of its releases; NULL: as for a lock */
    bool wraps;          /* that channel has the key in braces, also a key with braces of its own */
    bool kept;           /* a client may keep it for its callers */
    bool one_owner;      /* has one owner at a time, which info returns */
    bool uncounted; /* no program counts who listens to it: a subscription need not be a pattern */
    bool
        noted; /* nobody holds it: each call leaves a note on the server, by which it counts once */
    const char *taken;                /* why an acquire is busy */
    const hf_kind *reads, *writes;    /* the other half of a read/write lock; NULL: it has none */
    unsigned char programs[HF_VERBS]; /* kind.c's own */
};

extern const hf_kind hf_kind_lock;  /* the reentrant hash of Redisson's RLock */
extern const hf_kind hf_kind_mutex; /* the string of SET NX PX */
extern const hf_kind hf_kind_guard; /* a hash that becomes the record of a run */
extern const hf_kind hf_kind_read;  /* the halves of Redisson's RReadWriteLock */
extern const hf_kind hf_kind_write;
extern const hf_kind hf_kind_permit; /* the permits of Redisson's RPermitExpirableSemaphore */
extern const hf_kind hf_kind_fair;   /* Redisson's RFairLock */
extern const hf_kind hf_kind_latch;  /* Redisson's RCountDownLatch, which nobody holds */
extern const hf_kind hf_kind_plain_semaphore; /* Redisson's RSemaphore: permits without a lease */

/* All kinds; the last element is NULL. */
extern const hf_kind *const hf_kinds[];

/* Returns the kind with this letter; NULL: there is none. */
const hf_kind *hf_kind_of_letter(char letter);

/* Returns the kind's program for the verb; NULL: it has none. */
const hf_program *hf_kind_program(const hf_kind *kind, hf_verb verb);

#endif
