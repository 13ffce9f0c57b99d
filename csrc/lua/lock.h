/* The lock userdata, and declarations shared by lock.c, owner.c, call.c and batch.c.
 *
 * Each call has a caller: the lock's owner, if it was given one, or the calling coroutine (the main
 * coroutine has number 1). The entries list the holds that were acquired through this handle; __gc
 * releases them. All handles of a caller share one hold. Suppose handle A's hold was lost, and
 * handle B has since acquired a new one. The new hold is not A's: A's entry keeps the lost hold
 * until A acquires again, or until the new hold has ended as well. The user value keeps the client
 * alive. */
#ifndef HF_LUA_LOCK_H
#define HF_LUA_LOCK_H

#include "binding.h"

/* One hold, and the acquires of it through this handle. */
typedef struct hf_lock_entry {
    hf_stake stake;
    uint32_t count;     /* acquires not yet released; 0: a release has reported the loss, or is
                           detached */
    uint32_t releasing; /* the part of `count` that is being released */
    bool renewed_until_settled; /* the hold is renewed only until `settle` or a release */
} hf_lock_entry;

/* Times are in nanoseconds unless a comment says seconds. */
typedef struct hf_lock_settings {
    hf_time lease;
    hf_time max_hold;         /* 0: no limit */
    double wait;              /* the default wait of an acquire, in seconds */
    hf_time time_limit;       /* the time limit of a read-only handle's commands, or 0 */
    hf_time keep;             /* how long the client keeps the lock for its callers, or 0 */
    hf_time deadlock_check;   /* see hf_op_spec; 0: never */
    uint64_t observer;        /* see hf_op_spec; 0: the lock has no listener */
    uint64_t token_ttl_ms;    /* see hf_op_spec; 0: no fencing */
    uint64_t initial_permits; /* a semaphore's total if it does not exist yet, or 0 */
    uint32_t permits;         /* how many an acquire through this handle takes */
    uint32_t max_waiters;     /* with `limits_waiters`; 0: an acquire does not wait */
    uint16_t class;           /* from hf_observe_class */
    bool limits_waiters;      /* an acquire fails at once if max_waiters or more are waiting */
    bool renewed;             /* the watchdog renews each hold that is acquired */
    bool interruptible;       /* a signal ends the wait of an acquire */
    bool async_release;       /* a release does not wait for its reply */
} hf_lock_settings;

/* A lock, or permits. */
typedef struct hf_lua_lock {
    hf_driver *driver; /* referenced */
    const hf_kind *kind;
    hf_lock_settings settings;
    uint32_t generation;  /* the driver's generation when the entries were added */
    hf_names *names;      /* owned */
    char *strings;        /* owned: the owner's bytes, then those of `fingerprint` */
    char *owner;          /* in `strings`, or NULL if the calling coroutine is the owner */
    size_t owner_size;    /* in bytes */
    bool shared;          /* other processes may also use `owner` */
    hf_slice fingerprint; /* a guard's, stored in `strings`; empty for other kinds */
    uint64_t handle;      /* permits: identifies the caller, whichever coroutine calls; lock: 0 */
    hf_time wait_end;     /* when the last acquire that failed with HF_BUSY stopped waiting */
    int64_t balance;      /* acquires minus releases through this handle */
    double waited;        /* the seconds that the last successful acquire took, or -1 */
    hf_lost_reason last_loss; /* why the last released hold was lost; an acquire clears it */
    hf_losses losses;         /* the losses of holds acquired through the handle */
    hf_lock_entry *entries;   /* owned */
    size_t entry_count, entry_capacity;
    uint32_t operation_count; /* how many userdata of unfinished operations on this lock exist */
    bool collected; /* __gc has run: the last of these operations frees what the lock owns */
} hf_lua_lock;

/* A buffer for the name of a caller that is a coroutine or a handle of permits. */
typedef struct caller_buffer {
    char bytes[HF_UUID_SIZE + 24];
} caller_buffer;

/* Returns the lock or the permits at stack index 1. Raises for anything else. */
static inline hf_lua_lock *hf_lock_check(lua_State *L) {
    hf_lua_lock *lock = hf_testudata(L, 1, hf_lock_type);
    if (!lock) lock = hf_testudata(L, 1, hf_permit_type);
    return lock ? lock : hf_checkudata(L, 1, hf_lock_type);
}

/* owner.c */

/* Returns the calling coroutine's number. The main one is 1, and every other coroutine gets the
 * next free number at its first call, unless hf_lock_renumber has given it one. Raises when out of
 * memory. */
lua_Number hf_coroutine_number(lua_State *L);

/* Returns the caller: the lock's owner, or "<client uuid>/<coroutine>", or for permits "<client
 * uuid>*<handle>", which is written to `buffer`. Call it after hf_lock_enter, which may change the
 * uuid. */
hf_slice hf_lock_caller(const hf_lua_lock *lock, lua_Number number, caller_buffer *buffer);

/* The Lua function renumber([number]) of owner.c. */
int hf_lock_renumber(lua_State *L);

/* lock.c: call these between enter and leave */

/* Calls hf_driver_enter and hf_lock_notice_fork. */
void hf_lock_enter(hf_lua_lock *lock);

/* After a fork, drops all entries: the holds are the parent's, and their memory is not touched. */
void hf_lock_notice_fork(hf_lua_lock *lock);

/* Makes room for the entry of one more operation of this caller, in addition to those under way.
 * Returns false when out of memory. */
bool hf_lock_reserve(hf_lua_lock *lock, hf_slice caller);

/* Each operation on the lock begins with `pin` and ends with `unpin`. Lua may finalize lock and
 * operation in any order, so the lock's memory is freed only after both. Call `unpin` after leave,
 * because it may free the driver. */
void hf_lock_pin(hf_lua_lock *lock);
void hf_lock_unpin(hf_lua_lock *lock);

/* Records that the hold was acquired, perhaps again, through this handle. */
void hf_lock_add_hold(hf_lua_lock *lock, hf_hold *hold);

/* Records that a release of the hold has begun. Until it ends, only the release's operation, not
 * the handle, may abandon the hold. */
void hf_lock_begin_release(hf_lua_lock *lock, hf_hold *hold);

/* Records that a release of the hold has ended. */
void hf_lock_end_release(hf_lua_lock *lock, hf_hold *hold);

/* Returns the entry of a hold that the caller lost through this handle and that has left the table.
 * Returns NULL if there is none, or if the caller has acquired through this handle again. */
const hf_lock_entry *hf_lock_find_lost(const hf_lua_lock *lock, hf_slice caller);

/* batch.c: the Lua functions acquire_all{ lock, … } and release_all{ lock, … } -> true | nil,
 * message, code. The first tries once to acquire all locks or none; the second releases one hold of
 * each lock. */
int hf_lock_call_all(lua_State *L);

/* begin_all({ lock, … }, kind) -> operation, its number, whether it is done. The caller finishes
 * the operation when it is done; an operation that is garbage-collected first is abandoned. */
int hf_lock_begin_all(lua_State *L);

#endif
