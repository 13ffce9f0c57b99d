/* Operations on one lock. With the blocking driver, an operation begins and ends within one call.
 * With an external driver or an event loop, Lua begins it, drives the client until it is done, and
 * finishes it. */
#include <limits.h>
#include <string.h>

#include "op.h"

/* Stores the call's numeric argument in the field of the spec that the operation's row names. */
static void set_argument(hf_op_spec *spec, const hf_lua_lock *lock, double argument) {
    switch (hf_op_rows[spec->kind].number) {
    case HF_NUMBER_WAIT:
        spec->value = lock->settings.permits;
        spec->wait = hf_to_time(argument);
        break;
    case HF_NUMBER_LEASE: spec->lease = hf_to_time(argument); break;
    case HF_NUMBER_KEEP: spec->keep = hf_to_time(argument); break;
    case HF_NUMBER_AMOUNT:
        spec->value = argument > 0 && argument < 1e15 ? (uint64_t)argument : 0;
        break;
    case HF_NUMBER_CHANGE:
        spec->value = argument >= -1e9 && argument <= 1e9 ? (uint64_t)(int64_t)argument : 0;
        break;
    case HF_NUMBER_NODE: spec->node = (size_t)hf_to_integer(argument, INT_MAX); break;
    default: break;
    }
}

static void fill_spec(hf_op_spec *spec, hf_lua_op *self, lua_Number coroutine, double argument,
                      hf_slice record) {
    const hf_lua_lock *lock = self->first;
    hf_lua_op_fill_spec(spec, self, coroutine);
    const hf_lock_entry *lost =
        hf_op_kind_needs_a_hold(self->kind) ? hf_lock_find_lost(lock, spec->caller) : NULL;
    spec->lock_kind = lock->kind;
    spec->names = lock->names;
    spec->fingerprint = lock->fingerprint;
    spec->result = record;
    if (lost) spec->lost_hold = lost->stake.hold, spec->loss_reported = lost->count == 0;
    set_argument(spec, lock, argument);
    if (!hf_op_kind_acquires(self->kind)) return;
    spec->limits_waiters = lock->settings.limits_waiters && lock->settings.max_waiters > 0;
    spec->max_waiters = lock->settings.max_waiters;
    if (lock->settings.limits_waiters && lock->settings.max_waiters == 0) spec->wait = 0;
    spec->deadlock_check = lock->settings.deadlock_check;
    spec->keep = lock->settings.keep;
}

static void check_supported(lua_State *L, const hf_lua_lock *lock, hf_op_kind kind) {
    luaL_argcheck(L, hf_op_kind_supports(kind, lock->kind), 1,
                  "this kind of lock does not support the operation");
}

static bool takes_args(hf_op_kind kind) {
    return kind == HF_OP_COMMAND || kind == HF_OP_FENCED || kind == HF_OP_ONCE;
}

static void set_args(hf_op_spec *spec, const hf_slice *args, size_t count) {
    spec->args = args;
    spec->arg_count = count;
    if (takes_args(spec->kind) && spec->value > count) spec->value = count;
}

/* The operations on one lock are the rows of HF_OP_LIST. On success, a call returns the value that
 * its row's hf_call_returns names; on failure, nil, message, code. */

/* Runs one operation with the blocking driver. The record and the arguments are on the stack. */
static int run_blocking(lua_State *L, hf_lua_lock *lock, hf_op_kind kind, double argument,
                        hf_slice record, const hf_slice *args, size_t arg_count) {
    hf_lua_op self = {.kind = kind, .first = lock, .locks = &lock, .count = 1};
    if (!lock->driver) /* finalizers of other objects may still use a lock after its own has run */
        return hf_push_error(L, HF_CLOSED,
                             "the lock was garbage-collected, so it is no longer held");
    check_supported(L, lock, kind);
    hf_lua_op_check_driver(L, lock->driver, true);
    lua_Number coroutine = hf_coroutine_number(L); /* may raise, so before the mutex is locked */
    hf_lua_op_enter(&self);
    hf_op_spec spec;
    fill_spec(&spec, &self, coroutine, argument, record);
    set_args(&spec, args, arg_count);
    return hf_lua_op_run(L, &self, &spec);
}

static const hf_slice no_record = {"", 0};

/* The Lua function of most operations: OPERATION(lock [, number]) */
static int l_call(lua_State *L) {
    hf_op_kind kind = (hf_op_kind)lua_tointeger(L, lua_upvalueindex(2));
    double argument = hf_op_rows[kind].number > HF_NUMBER_NONE ? luaL_checknumber(L, 2) : 0;
    return run_blocking(L, hf_lock_check(L), kind, argument, no_record, NULL, 0);
}

/* complete(lock, keep [, record]) -> true | nil, message, code: ends a guard's run and keeps the
 * record for `keep` seconds, or frees the key if that is 0 */
static int l_complete(lua_State *L) {
    hf_slice record;
    record.data = luaL_optlstring(L, 3, "", &record.size);
    double keep = luaL_checknumber(L, 2);
    return run_blocking(L, hf_lock_check(L), HF_OP_COMPLETE, keep, record, NULL, 0);
}

/* force_release(lock [, owner]) -> whether it was locked | nil, message, code. With an owner, the
 * lock is freed only if that owner holds it. */
static int l_force_release(lua_State *L) {
    hf_slice owner;
    owner.data = luaL_optlstring(L, 2, "", &owner.size);
    return run_blocking(L, hf_lock_check(L), HF_OP_FORCE, 0, owner, NULL, 0);
}

/* Pushes a userdata with the arguments in the list at `index`, and returns it. Replaces the list
 * with a copy, which keeps the strings alive even if the caller changes the list. */
static const hf_slice *push_args(lua_State *L, int index, size_t *count) {
    luaL_checktype(L, index, LUA_TTABLE);
    *count = hf_rawlen(L, index);
    luaL_argcheck(L, *count > 0, index, "no command");
    lua_createtable(L, (int)*count, 0);
    hf_slice *args = hf_newuserdata(L, *count * sizeof *args);
    for (size_t i = 0; i < *count; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        args[i].data = lua_tolstring(L, -1, &args[i].size);
        luaL_argcheck(L, args[i].data, index, "arguments must be strings or numbers");
        lua_rawseti(L, -3, (int)i + 1);
    }
    lua_pushvalue(L, -2);
    lua_replace(L, index);
    lua_remove(L, -2);
    return args;
}

/* acquire(lock [, wait [, keys]]) -> lock | nil, message, code. `keys`: the keys of the locks of
 * the same kind that the caller acquires next, if any. */
static int l_acquire(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    double wait = lua_isnoneornil(L, 2) ? lock->settings.wait : lua_tonumber(L, 2);
    size_t count = 0;
    const hf_slice *keys = lua_istable(L, 3) ? push_args(L, 3, &count) : NULL;
    return run_blocking(L, lock, HF_OP_ACQUIRE, wait, no_record, keys, count);
}

/* fenced(lock, key_count, args), once(lock, key_count, args) -> the reply of the operation's
 * program | nil, message, code. The first `key_count` arguments are keys. The lock's key names the
 * resource for `fenced`, and the record for `once`. */
static int l_call_with_args(lua_State *L) {
    hf_op_kind kind = (hf_op_kind)lua_tointeger(L, lua_upvalueindex(2));
    hf_lua_lock *lock = hf_lock_check(L);
    double key_count = luaL_checknumber(L, 2);
    size_t count;
    lua_settop(L, 3);
    const hf_slice *args = push_args(L, 3, &count);
    return run_blocking(L, lock, kind, key_count, no_record, args, count);
}

/* ---- with an external driver or an event loop ---- */

static hf_op_kind check_kind(lua_State *L, int index) {
    const char *name = luaL_checkstring(L, index);
    for (int kind = 0; kind < HF_OP_KINDS; kind++) {
        bool has_call = hf_op_rows[kind].number != HF_NUMBER_UNUSED;
        if (has_call && strcmp(hf_op_rows[kind].name, name) == 0) return (hf_op_kind)kind;
    }
    return (hf_op_kind)luaL_error(L, "there is no operation called %s", name);
}

/* begin(lock, kind [, argument [, record [, finished]]]) -> operation, its number, whether it is
 * done. For "command", `argument` is a node and `record` a list of strings, { name, argument, ...
 * }. For "fenced" and "once", they are the number of keys and the arguments. For "acquire",
 * `record` is the list `keys` of l_acquire. The caller finishes the operation when it is done; if
 * it is garbage-collected first, it is abandoned. `finished`: a finished operation on one lock of
 * the same client, which is reused and keeps its number. A ping uses only the lock's client. */
static int l_begin(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return luaL_error(L, "the lock was garbage-collected");
    hf_check_not_fetching(L, lock->driver);
    hf_op_kind kind = check_kind(L, 2);
    check_supported(L, lock, kind);
    double argument = lua_isnoneornil(L, 3) ? lock->settings.wait : lua_tonumber(L, 3);
    const hf_slice *args = NULL;
    size_t arg_count = 0;
    hf_slice record = no_record;
    lua_settop(L, 5);
    if (takes_args(kind) || lua_istable(L, 4)) args = push_args(L, 4, &arg_count);
    else record.data = luaL_optlstring(L, 4, "", &record.size);
    hf_lua_op *self = lua_isnil(L, 5) ? hf_lua_op_new(L, 1) : hf_lua_op_reuse(L, 5);
    hf_lua_op_anchor(L, 1, 1);
    if (!lua_isnil(L, 4)) hf_lua_op_anchor(L, 2, 4);
    if (args) hf_lua_op_anchor(L, 3, 6);
    self->kind = kind;
    self->first = self->locks[0] = lock;
    lua_Number coroutine = hf_coroutine_number(L); /* may raise, so before the mutex is locked */
    hf_lua_op_enter(self);
    hf_op_spec spec;
    fill_spec(&spec, self, coroutine, argument, record);
    set_args(&spec, args, arg_count);
    spec.blocks_callers = lock->driver->blocks;
    if (kind == HF_OP_COMMAND || kind == HF_OP_PING) spec.names = NULL;
    return hf_lua_op_begin(L, self, &spec);
}

void hf_open_calls(lua_State *L) {
    static const luaL_Reg special[] = {{"begin", l_begin},
                                       {"acquire", l_acquire},
                                       {"complete", l_complete},
                                       {"force_release", l_force_release},
                                       {NULL, NULL}};
    lua_getfield(L, -1, "lock");
    for (int kind = 0; kind < HF_OP_KINDS; kind++) {
        hf_number_meaning number = hf_op_rows[kind].number;
        bool has_call = number != HF_NUMBER_UNUSED && number != HF_NUMBER_NODE;
        lua_CFunction call = takes_args((hf_op_kind)kind) ? l_call_with_args : l_call;
        if (has_call) hf_set_numbered(L, hf_op_rows[kind].name, call, kind);
    }
    hf_set_functions(L, special);
    lua_pop(L, 1);
}
