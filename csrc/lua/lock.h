/* The lock userdata, and what lock.c, owner.c, call.c and batch.c share of it.
 *
 * Each call has its caller: the given owner, or the calling coroutine (main is 1). `taken` lists
 * the holds that were acquired through this handle; __gc releases them. All handles of a caller
 * have the same hold. But when a handle's hold was lost, a hold that another handle acquired since
 * is not the first handle's: the lost one stays in `taken` until the handle acquires again, or
 * until the other hold is gone too. The user value keeps the client alive. */
#ifndef HF_LUA_LOCK_H
#define HF_LUA_LOCK_H

#include "binding.h"

typedef struct taken {
    hf_stake stake;
    uint32_t count;         /* 0: a release has reported its loss, or is detached */
    uint32_t releasing;     /* of `count`: releases that are under way */
    bool renewed_meanwhile; /* it is renewed until `settle` or a release only */
} taken;

typedef struct hf_lua_lock {
    hf_driver *driver;
    uint32_t generation; /* the driver's when `taken` was filled */
    uint16_t class;
    bool renewed, interruptible;
    hf_names *names;
    char *texts; /* the bytes of owner and fingerprint */
    char *owner; /* NULL: the calling coroutine */
    size_t owner_size;
    hf_time lease;
    hf_time max_hold;     /* 0: no bound */
    hf_slice fingerprint; /* a guard's */
    double wait;          /* seconds, the default */
    hf_time within;   /* how long a command of a read-only handle may take; 0: command_timeout */
    hf_time wait_end; /* of the last acquire through this handle that found it taken */
    hf_time keep;     /* how long the client keeps it for its callers; 0: it does not */
    hf_time deadlock_check;
    uint64_t observer;
    uint64_t token_ttl_ms;
    const hf_kind *kind;
    uint64_t handle;  /* permits: the caller's number, whatever coroutine calls; 0: a lock */
    uint32_t permits; /* of the handle */
    bool shared;
    bool sheds; /* an acquire fails at once behind more than max_waiters */
    uint32_t max_waiters;
    bool async_release;        /* a release does not wait for its reply */
    uint64_t permits_at_first; /* a semaphore's total if it does not exist yet; 0: not given */
    int64_t balance;           /* acquires less releases of their holds through this handle */
    double waited;             /* seconds of the last acquire that got the lock; -1: none did */
    hf_lost_reason last_loss;  /* of the last released hold; an acquire clears it */
    hf_losses losses;          /* of what was acquired through the handle */
    taken *taken;
    size_t taken_count, taken_capacity;
    uint32_t operations; /* userdata whose operations are under way */
    bool collected;      /* the last of these frees what the lock has */
} hf_lua_lock;

typedef struct caller_text {
    char bytes[HF_UUID_SIZE + 24];
} caller_text;

/* Returns the lock or the permits at stack index 1. */
static inline hf_lua_lock *hf_lock_check(lua_State *L) {
    hf_lua_lock *lock = hf_testudata(L, 1, hf_lock_type);
    if (!lock) lock = hf_testudata(L, 1, hf_permit_type);
    return lock ? lock : hf_checkudata(L, 1, hf_lock_type);
}

/* owner.c */

/* Returns the calling coroutine's number: 1 for main, the next free one at another's first call;
 * or what hf_lock_renumber has given it. May raise. */
lua_Number hf_coroutine_number(lua_State *L);

/* Returns the caller: the lock's owner, else "<client uuid>/<coroutine>", in `text`. Call it only
 * after hf_lock_enter, which may change the uuid. */
hf_slice hf_lock_caller(const hf_lua_lock *lock, lua_Number number, caller_text *text);

int hf_lock_renumber(lua_State *L);

/* lock.c: between enter and leave */

/* Calls hf_driver_enter. After a fork the holds are the parent's; their memory is not used. */
void hf_lock_enter(hf_lua_lock *lock);
void hf_lock_notice_fork(hf_lua_lock *lock);

/* Makes room in `taken` for the hold of one more operation, of this caller, beside those that are
 * under way. Returns false when out of memory. */
bool hf_lock_reserve(hf_lua_lock *lock, hf_slice caller);

/* An operation on the lock is under way, and has ended. Their finalizers may run in any order: what
 * the operation uses lasts until both have run. The second may free the driver: call it after
 * leave. */
void hf_lock_pin(hf_lua_lock *lock);
void hf_lock_unpin(hf_lua_lock *lock);

/* Another hold was acquired through this handle, is being released, or was. A hold that is being
 * released is not abandoned with the handle: the operation does that. */
void hf_lock_take(hf_lua_lock *lock, hf_hold *hold);
void hf_lock_note_releasing(hf_lua_lock *lock, const hf_hold *hold);
void hf_lock_note_release(hf_lua_lock *lock, hf_hold *hold);

/* Returns the hold that the caller lost through this handle and has not acquired through it again,
 * if the table has no hold of the caller, or that of another handle. NULL: there is none. */
const taken *hf_lock_lost(const hf_lua_lock *lock, hf_slice caller);

/* The functions of several locks, for the table of the lock's functions. */
extern const luaL_Reg hf_lock_batch[]; /* batch.c */

#endif
