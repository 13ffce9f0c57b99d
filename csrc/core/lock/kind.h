/* The kinds of locks. An hf_kind describes everything that sets its kind apart from the others. */
#ifndef HF_KIND_H
#define HF_KIND_H

#include "base/programs.h"
#include "holdfast.h"

extern const hf_kind hf_kind_lock;  /* the reentrant hash of Redisson's RLock */
extern const hf_kind hf_kind_mutex; /* a string as set by SET NX PX */
extern const hf_kind hf_kind_guard; /* a hash that becomes the record of a run */
extern const hf_kind hf_kind_read;  /* the halves of Redisson's RReadWriteLock */
extern const hf_kind hf_kind_write;
extern const hf_kind hf_kind_permit; /* the permits of Redisson's RPermitExpirableSemaphore */
extern const hf_kind hf_kind_fair;   /* RedissonFairLock */
extern const hf_kind hf_kind_latch;  /* Redisson's RCountDownLatch, which has no holder */
extern const hf_kind hf_kind_plain_semaphore; /* Redisson's RSemaphore: permits without a lease */

/* Returns the kind that queue members and grants identify by this letter, or NULL. */
const hf_kind *hf_kind_by_letter(char letter);

/* Returns whether a release of a lock of this kind grants it to the first of holdfast's waiters. */
bool hf_kind_release_grants(const hf_kind *kind);

/* Returns the kind's program for the verb (less than HF_VERBS), or NULL if there is none. */
const hf_program *hf_kind_program(const hf_kind *kind, hf_verb verb);

#endif
