/* The lock userdata, and what lock.c, owner.c, call.c and several.c share of it.
 *
 * Who owns is decided at each call: the given owner, or the coroutine that calls (main is 1). `taken` lists the holds
 * that were acquired through this handle; they are what __gc lets go of. The handles of one owner are one owner, but a
 * handle whose own hold was lost has nothing to do with what another one acquired since: it stays in `taken` until the
 * handle itself acquires, or that is gone too. The user value keeps the client alive. */
#ifndef HF_LUA_LOCK_H
#define HF_LUA_LOCK_H

#include "binding.h"

typedef struct taken {
    hf_hold *hold;  /* referenced */
    uint32_t count; /* 0: a release has told of its loss */
    bool told;      /* of its loss, to on_lost */
} taken;

typedef struct hf_lua_lock {
    hf_driver *driver;
    uint32_t generation; /* of the driver when `taken` was filled */
    hf_names names;
    char *owner; /* NULL: the calling coroutine */
    size_t owner_size;
    hf_time lease;
    hf_slice print; /* a guard's */
    double wait;    /* seconds, the default */
    uint64_t token_ttl_ms;
    hf_layout layout;
    bool renewed, interruptible, shared;
    hf_lost_reason untold;    /* of a loss that a release found and nobody has told yet */
    hf_lost_reason last_loss; /* of the hold released last; cleared by an acquire */
    taken *taken;
    size_t taken_count, taken_capacity;
} hf_lua_lock;

typedef struct owner_text {
    char bytes[HF_UUID_SIZE + 24];
} owner_text;

static inline hf_lua_lock *hf_lock_check(lua_State *L) {
    return luaL_checkudata(L, 1, HF_LOCK_TYPE);
}

/* owner.c */

/* The calling coroutine's number: 1 for main, the next free one at a coroutine's first call. May raise. */
lua_Number hf_coroutine_number(lua_State *L);

/* The owner that calls; only after hf_lock_enter, which may change the uuid. `text` holds it. */
hf_slice hf_lock_owner(const hf_lua_lock *lock, lua_Number number, owner_text *text);

int hf_lock_renumber(lua_State *L);

/* lock.c: between enter and leave */

/* hf_driver_enter; after a fork the holds are the parent's: their memory is not touched again. */
void hf_lock_enter(hf_lua_lock *lock);
void hf_lock_notice_fork(hf_lua_lock *lock);

/* Room for one more hold in `taken`; false when out of memory. */
bool hf_lock_reserve(hf_lua_lock *lock);

/* One more hold was acquired, or released, through this handle. */
void hf_lock_take(hf_lua_lock *lock, hf_hold *hold);
void hf_lock_let_go(hf_lua_lock *lock, const hf_hold *hold);

/* What this owner has lost by this handle and not acquired through it anew, while the table has nothing of it, or the
 * hold of another handle. NULL: nothing. */
const taken *hf_lock_lost(const hf_lua_lock *lock, hf_slice owner);

/* call.c. Below 2^53: exact in LuaJIT's numbers too. */
void hf_push_token(lua_State *L, uint64_t token);

/* call.c: what an acquire needs before it begins: room for the hold, and the watchdog. False: `failure` says why. */
bool hf_lock_prepare(hf_lua_lock *lock, hf_failure *failure);

/* What calls the server, for the table of the lock's functions. */
extern const luaL_Reg hf_lock_calls[];        /* call.c */
extern const luaL_Reg hf_lock_several[];      /* several.c */
void hf_open_operations(lua_State *L);        /* call.c */
void hf_open_operations_of_all(lua_State *L); /* several.c */

#endif
