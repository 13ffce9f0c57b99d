/* The lock userdata: its life, what it has taken, and what it knows without asking the server. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lock.h"

/* ---- what this handle has taken ---- */

static void drop_taken(hf_lua_lock *lock, size_t i) {
    hf_hold_unref(lock->taken[i].hold);
    lock->taken[i] = lock->taken[--lock->taken_count];
}

/* After a fork the holds are the parent's: their memory is not touched again. */
void hf_lock_notice_fork(hf_lua_lock *lock) {
    if (lock->generation == lock->driver->generation) return;
    lock->generation = lock->driver->generation;
    lock->taken_count = 0;
}

void hf_lock_enter(hf_lua_lock *lock) {
    hf_driver_enter(lock->driver);
    hf_lock_notice_fork(lock);
}

static bool is_over(const hf_hold *hold) {
    return !hold->in_table || hold->state == HF_HOLD_LOST || hold->state == HF_HOLD_LEAVING;
}

static bool is_replaced(const hf_lua_lock *lock, const hf_hold *hold) {
    const hf_holds *holds = &lock->driver->client.holds;
    return hf_holds_find(holds, hold->layout, hf_hold_key(hold), hf_hold_owner(hold)) != NULL;
}

/* Told, and no newer hold of its owner is there to be kept from. */
static bool is_settled(const hf_lua_lock *lock, const taken *entry) {
    return entry->count == 0 && !is_replaced(lock, entry->hold);
}

static void drop_settled(hf_lua_lock *lock) {
    for (size_t i = lock->taken_count; i-- > 0;) {
        if (is_settled(lock, &lock->taken[i])) drop_taken(lock, i);
    }
}

bool hf_lock_reserve(hf_lua_lock *lock) {
    if (lock->taken_count == lock->taken_capacity) drop_settled(lock);
    if (lock->taken_count < lock->taken_capacity) return true;
    size_t capacity = lock->taken_capacity ? lock->taken_capacity * 2 : 1;
    taken *grown = realloc(lock->taken, capacity * sizeof *grown);
    if (!grown) return false;
    lock->taken = grown;
    lock->taken_capacity = capacity;
    return true;
}

static void note_untold(hf_lua_lock *lock, const taken *entry) {
    if (entry->hold->reason != HF_LOST_NOT && !entry->told) lock->untold = entry->hold->reason;
}

/* Of what this owner took before and is over, one loss that no release has told of is enough. */
static void drop_over(hf_lua_lock *lock, hf_slice owner) {
    bool kept = false;
    for (size_t i = lock->taken_count; i-- > 0;) {
        const hf_hold *hold = lock->taken[i].hold;
        if (!is_over(hold) || !hf_slice_equal(hf_hold_owner(hold), owner)) continue;
        bool keep = hold->state == HF_HOLD_LOST && lock->taken[i].count > 0 && !kept;
        if (!keep) {
            note_untold(lock, &lock->taken[i]);
            drop_taken(lock, i);
        }
        kept = kept || keep;
    }
}

void hf_lock_take(hf_lua_lock *lock, hf_hold *hold) {
    drop_over(lock, hf_hold_owner(hold));
    for (size_t i = lock->taken_count; i-- > 0;) {
        if (lock->taken[i].hold == hold) {
            lock->taken[i].count++;
            return;
        }
    }
    hf_hold_ref(hold);
    lock->taken[lock->taken_count++] = (taken){hold, 1, false};
}

void hf_lock_let_go(hf_lua_lock *lock, const hf_hold *hold) {
    for (size_t i = lock->taken_count; i-- > 0;) {
        taken *entry = &lock->taken[i];
        if (entry->hold != hold) continue;
        note_untold(lock, entry);
        entry->told = entry->told || hold->reason != HF_LOST_NOT;
        entry->count = is_over(hold) || entry->count == 0 ? 0 : entry->count - 1;
        bool lost = hold->state == HF_HOLD_LOST && is_replaced(lock, hold);
        if (entry->count == 0 && !lost) drop_taken(lock, i);
    }
}

const taken *hf_lock_lost(const hf_lua_lock *lock, hf_slice owner) {
    const taken *lost = NULL;
    for (size_t i = 0; i < lock->taken_count; i++) {
        const taken *entry = &lock->taken[i];
        if (!hf_slice_equal(hf_hold_owner(entry->hold), owner)) continue;
        if (entry->hold->in_table) return NULL;
        if (entry->hold->state == HF_HOLD_LOST && !is_settled(lock, entry)) lost = entry;
    }
    return lost;
}

/* ---- life ---- */

static double number_field(lua_State *L, const char *name) {
    lua_getfield(L, 2, name);
    double value = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return value;
}

static bool boolean_field(lua_State *L, const char *name) {
    lua_getfield(L, 2, name);
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

static hf_layout layout_field(lua_State *L) {
    static const char *const layouts[] = {"lock", "mutex", "guard", NULL};
    lua_getfield(L, 2, "layout");
    hf_layout layout = (hf_layout)luaL_checkoption(L, -1, "lock", layouts);
    lua_pop(L, 1);
    return layout;
}

/* new(client, { key, layout, lease, wait, renewed, owner, interruptible, token_ttl }) -> lock. The table stays with the
 * lock; it must hold the client. */
static int l_new(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    size_t key_size, owner_size = 0;
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "key");
    const char *key = luaL_checklstring(L, -1, &key_size);
    lua_getfield(L, 2, "owner");
    const char *owner = luaL_optlstring(L, -1, NULL, &owner_size);
    lua_getfield(L, 2, "print");
    size_t print_size;
    const char *print = luaL_optlstring(L, -1, "", &print_size);
    hf_lua_lock *lock = hf_new_object(L, sizeof *lock, HF_LOCK_TYPE);
    lua_pushvalue(L, 2);
    hf_setuservalue(L, -2);
    lock->driver = driver;
    hf_driver_ref(driver);
    lock->generation = driver->generation;
    lock->lease = hf_to_time(number_field(L, "lease"));
    lock->wait = number_field(L, "wait");
    lock->token_ttl_ms = (uint64_t)ceil(number_field(L, "token_ttl") * 1000);
    lock->layout = layout_field(L);
    lock->renewed = boolean_field(L, "renewed");
    lock->interruptible = boolean_field(L, "interruptible");
    if (!hf_names_make(&lock->names, (hf_slice){key, key_size})) return luaL_error(L, "not enough memory");
    lock->print = (hf_slice){print, print_size}; /* the table keeps it */
    if (!owner) return 1;
    lock->shared = true;
    lock->owner = malloc(owner_size);
    if (!lock->owner) return luaL_error(L, "not enough memory");
    memcpy(lock->owner, owner, owner_size);
    lock->owner_size = owner_size;
    return 1;
}

/* Does no I/O: what is still held goes to the watchdog. */
static void abandon(hf_lua_lock *lock) {
    hf_lock_enter(lock);
    hf_time now = hf_driver_now(lock->driver);
    while (lock->taken_count > 0) {
        hf_client_abandon(&lock->driver->client, lock->taken[0].hold, lock->taken[0].count, now);
        drop_taken(lock, 0);
    }
    hf_driver_nudge(lock->driver);
    hf_driver_leave(lock->driver);
}

static int l_gc(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return 0;
    abandon(lock);
    hf_names_free(&lock->names);
    free(lock->taken);
    free(lock->owner);
    lock->owner = NULL;
    hf_driver_unref(lock->driver);
    lock->driver = NULL;
    return 0;
}

/* abandon(lock): lets go in the background of all that was acquired through this handle; does no I/O */
static int l_abandon(lua_State *L) {
    abandon(hf_lock_check(L));
    return 0;
}

/* allow(lock): the owners of what was acquired through this handle are there; what asks for that is renewed */
static int l_allow(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    hf_lock_enter(lock);
    hf_time now = hf_driver_now(lock->driver);
    for (size_t i = 0; i < lock->taken_count; i++) hf_client_allow(&lock->driver->client, lock->taken[i].hold, now);
    hf_driver_leave(lock->driver);
    return 0;
}

/* ---- without the server ---- */

/* The calling owner's hold, NULL when it has none; a hold whose time is over is marked lost. */
static hf_hold *own_hold(hf_lua_lock *lock, lua_Number number) {
    owner_text text;
    hf_client *client = &lock->driver->client;
    hf_hold *hold = hf_holds_find(&client->holds, lock->layout, lock->names.key, hf_lock_owner(lock, number, &text));
    if (hold) hf_client_look_at(client, hold, hf_driver_now(lock->driver));
    return hold;
}

typedef struct view {
    bool held;
    uint32_t holds;
    hf_time left;
    uint64_t token;
    hf_lost_reason loss;
} view;

static view look(lua_State *L, hf_lua_lock *lock) {
    lua_Number number = lock->owner ? 0 : hf_coroutine_number(L);
    view seen = {0};
    if (!lock->driver) return seen;
    hf_lock_enter(lock);
    const hf_hold *hold = own_hold(lock, number);
    hf_time now = hf_driver_now(lock->driver);
    owner_text text;
    const taken *lost = hf_lock_lost(lock, hf_lock_owner(lock, number, &text));
    if (lost) {
        seen.loss = lost->hold->reason;
    } else if (hold && hf_hold_is_valid(hold, now)) {
        seen = (view){true, hold->count, hold->valid_until - now, hold->token, HF_LOST_NOT};
    } else if (hold && hold->state == HF_HOLD_LOST) {
        seen.loss = hold->reason;
    } else {
        seen.loss = lock->last_loss;
    }
    hf_driver_leave(lock->driver);
    return seen;
}

static int l_is_held(lua_State *L) {
    lua_pushboolean(L, look(L, hf_lock_check(L)).held);
    return 1;
}

static int l_holds(lua_State *L) {
    lua_pushinteger(L, (lua_Integer)look(L, hf_lock_check(L)).holds);
    return 1;
}

static int l_remaining(lua_State *L) {
    lua_pushnumber(L, hf_to_seconds(look(L, hf_lock_check(L)).left));
    return 1;
}

static int l_token(lua_State *L) {
    uint64_t token = look(L, hf_lock_check(L)).token;
    if (token == 0) lua_pushnil(L);
    else hf_push_token(L, token);
    return 1;
}

static int l_lost(lua_State *L) {
    lua_pushstring(L, hf_lost_reason_name(look(L, hf_lock_check(L)).loss)); /* NULL is nil */
    return 1;
}

/* untold(lock) -> the reason of a loss that was not told yet, of whichever owner acquired through this handle */
static int l_untold(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return 0;
    hf_lock_enter(lock);
    hf_lost_reason reason = lock->untold;
    lock->untold = HF_LOST_NOT;
    for (size_t i = 0; i < lock->taken_count && reason == HF_LOST_NOT; i++) {
        if (lock->taken[i].told || lock->taken[i].hold->reason == HF_LOST_NOT) continue;
        lock->taken[i].told = true;
        reason = lock->taken[i].hold->reason;
    }
    hf_driver_leave(lock->driver);
    lua_pushstring(L, hf_lost_reason_name(reason));
    return 1;
}

static int l_key(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    lua_pushlstring(L, lock->names.key.data, lock->names.key.size);
    return 1;
}

static int l_owner(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    lua_Number number = lock->owner ? 0 : hf_coroutine_number(L);
    owner_text text;
    if (!lock->driver) return 0;
    hf_lock_enter(lock);
    hf_driver_leave(lock->driver); /* a fork gives a new uuid */
    hf_slice owner = hf_lock_owner(lock, number, &text);
    lua_pushlstring(L, owner.data, owner.size);
    return 1;
}

static int l_tostring(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    view seen = look(L, lock);
    char state[64] = "not held";
    if (seen.held) snprintf(state, sizeof state, "held, %.1f s left", hf_to_seconds(seen.left));
    else if (seen.loss) snprintf(state, sizeof state, "lost: %s", hf_lost_reason_name(seen.loss));
    luaL_Buffer buffer;
    luaL_buffinit(L, &buffer);
    luaL_addstring(&buffer, HF_LOCK_TYPE ": ");
    luaL_addlstring(&buffer, lock->names.key.data ? lock->names.key.data : "", lock->names.key.size);
    luaL_addstring(&buffer, " (");
    luaL_addstring(&buffer, state);
    luaL_addstring(&buffer, ")");
    luaL_pushresult(&buffer);
    return 1;
}

/* data(lock) -> the table it was made with */
static int l_data(lua_State *L) {
    luaL_checkudata(L, 1, HF_LOCK_TYPE);
    hf_getuservalue(L, 1);
    return 1;
}

void hf_open_lock(lua_State *L) {
    hf_open_operations(L);
    hf_open_operations_of_all(L);
    static const luaL_Reg metamethods[] = {{"__gc", l_gc}, {"__tostring", l_tostring}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"new", l_new},
                                         {"abandon", l_abandon},
                                         {"allow", l_allow},
                                         {"renumber", hf_lock_renumber},
                                         {"is_held", l_is_held},
                                         {"holds", l_holds},
                                         {"remaining", l_remaining},
                                         {"token", l_token},
                                         {"lost", l_lost},
                                         {"untold", l_untold},
                                         {"key", l_key},
                                         {"owner", l_owner},
                                         {"data", l_data},
                                         {NULL, NULL}};
    hf_new_type(L, HF_LOCK_TYPE, metamethods);
    lua_setfield(L, -2, "lock_type");
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    luaL_setfuncs(L, hf_lock_calls, 0);
    luaL_setfuncs(L, hf_lock_several, 0);
    lua_setfield(L, -2, "lock");
}
