/* The lock userdata, and what lock.c, owner.c, call.c and batch.c share.
 *
 * Each call has a caller: the owner that the lock was given, or the calling coroutine (the main one
 * is 1). `taken` lists the holds that were acquired through this handle; __gc releases them. All
 * handles of a caller share one hold. But if a handle's hold was lost and another handle has
 * acquired a new one since, the new hold is not the first handle's: the lost one remains in `taken`
 * until the handle acquires again, or until the new hold is gone, too. The user value keeps the
 * client alive. */
#ifndef HF_LUA_LOCK_H
#define HF_LUA_LOCK_H

#include "binding.h"

/* An entry: the calls of this handle that have acquired one hold. */
typedef struct taken {
    hf_stake stake;
    uint32_t count;     /* acquires not yet released; 0: a release has reported the loss, or is
                           detached */
    uint32_t releasing; /* how many of `count` are being released */
    bool renewed_until_settled; /* the hold is renewed only until `settle` or a release */
} taken;

/* A lock, or permits. Times are in nanoseconds unless it says seconds. */
typedef struct hf_lua_lock {
    hf_driver *driver;   /* referenced */
    uint32_t generation; /* the driver's generation when `taken` was filled */
    uint16_t class;      /* from hf_observe_class */
    bool renewed;        /* the watchdog renews what is acquired */
    bool interruptible;  /* a signal ends the wait of an acquire */
    hf_names *names;     /* owned */
    char *texts;         /* owned: the bytes of owner and fingerprint */
    char *owner;         /* in `texts`, or NULL: the calling coroutine is the owner */
    size_t owner_size;   /* of `owner`, in bytes */
    hf_time lease;
    hf_time max_hold;     /* 0: no limit */
    hf_slice fingerprint; /* of a guard, in `texts`; else empty */
    double wait;          /* the default wait of an acquire, in seconds */
    hf_time within;       /* the time limit of a read-only handle's commands; 0: command_timeout */
    hf_time wait_end;     /* end of the wait of the last acquire that found the lock taken */
    hf_time keep;         /* how long the client keeps the lock for its callers, or 0 */
    hf_time deadlock_check; /* see hf_op_spec; 0: never */
    uint64_t observer;      /* see hf_op_spec; 0: no listener of its own */
    uint64_t token_ttl_ms;  /* see hf_op_spec; 0: no fencing */
    const hf_kind *kind;
    uint64_t handle;  /* the caller's number if these are permits, for every coroutine; 0: a lock */
    uint32_t permits; /* how many an acquire of this handle takes */
    bool shared;      /* other processes may use `owner`, too */
    bool sheds;       /* an acquire fails at once if max_waiters or more are waiting already */
    uint32_t max_waiters;      /* with `sheds`; 0: an acquire does not wait */
    bool async_release;        /* a release does not wait for its reply */
    uint64_t permits_at_first; /* a semaphore's total if it does not exist yet, or 0 */
    int64_t balance;           /* how many acquires through this handle have not been released */
    double waited;             /* how long the last successful acquire took, in seconds, or -1 */
    hf_lost_reason last_loss;  /* of the last released hold; an acquire clears it */
    hf_losses losses;          /* the ledger of what was acquired through the handle */
    taken *taken;              /* the entries, owned */
    size_t taken_count, taken_capacity;
    uint32_t operations; /* how many operations on this lock are under way as userdata */
    bool collected;      /* __gc has run: the last of these operations frees what the lock owns */
} hf_lua_lock;

/* Room for the text of a caller that is a coroutine or a handle of permits. */
typedef struct caller_text {
    char bytes[HF_UUID_SIZE + 24];
} caller_text;

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

/* Returns the caller: the lock's owner, or "<client uuid>/<coroutine>" (with "*" and the handle for
 * permits), which is written to `text`. Call it only after hf_lock_enter, which may change the
 * uuid.
 */
hf_slice hf_lock_caller(const hf_lua_lock *lock, lua_Number number, caller_text *text);

/* The Lua function renumber([number]): gives the calling coroutine this number, or a free one. */
int hf_lock_renumber(lua_State *L);

/* lock.c: between enter and leave */

/* Calls hf_driver_enter, and hf_lock_notice_fork. */
void hf_lock_enter(hf_lua_lock *lock);

/* Empties `taken` after a fork: the holds are the parent's, and their memory is not touched. */
void hf_lock_notice_fork(hf_lua_lock *lock);

/* Makes room in `taken` for the hold of one more operation of this caller, in addition to those
 * that are under way. Returns false when out of memory. */
bool hf_lock_reserve(hf_lua_lock *lock, hf_slice caller);

/* An operation on the lock begins with `pin` and ends with `unpin`. Lua may finalize lock and
 * operation in any order, so what the lock owns is freed only after both. Call `unpin` after leave,
 * as it may free the driver. */
void hf_lock_pin(hf_lua_lock *lock);
void hf_lock_unpin(hf_lua_lock *lock);

/* Notes that the hold was acquired through this handle, perhaps again. */
void hf_lock_take(hf_lua_lock *lock, hf_hold *hold);

/* Notes that a release of the hold begins. Until it ends, the release's operation and not the
 * handle abandons the hold. */
void hf_lock_note_releasing(hf_lua_lock *lock, const hf_hold *hold);

/* Notes that a release of the hold has ended. */
void hf_lock_note_release(hf_lua_lock *lock, hf_hold *hold);

/* Returns the entry of a hold that the caller lost through this handle and has not acquired through
 * it again, if the client's table has no hold of the caller or only another handle's. Otherwise
 * returns NULL. */
const taken *hf_lock_lost(const hf_lua_lock *lock, hf_slice caller);

/* batch.c: functions for several locks, to be added to the lock's functions */
extern const luaL_Reg hf_lock_batch[];

#endif
