/* One lock's calls to the server. With the blocking driver a call begins, runs and ends here; with
 * an external or looped one Lua begins an operation, drives the client until it is done, and
 * finishes it. */
#include <limits.h>
#include <string.h>

#include "op.h"

/* Sets the spec field that the call's numeric argument means, according to the operation's row. */
static void set_number(hf_op_spec *spec, const hf_lua_lock *lock, double number) {
    switch (hf_op_rows[spec->kind].number) {
    case HF_NUMBER_WAIT:
        spec->value = lock->permits;
        spec->wait = hf_to_time(number);
        break;
    case HF_NUMBER_LEASE: spec->lease = hf_to_time(number); break;
    case HF_NUMBER_KEEP: spec->keep = hf_to_time(number); break;
    case HF_NUMBER_AMOUNT: spec->value = number > 0 && number < 1e15 ? (uint64_t)number : 0; break;
    case HF_NUMBER_CHANGE:
        spec->value = number >= -1e9 && number <= 1e9 ? (uint64_t)(int64_t)number : 0;
        break;
    case HF_NUMBER_NODE: spec->node = (size_t)hf_to_whole(number, INT_MAX); break;
    default: break;
    }
}

static void specify(hf_op_spec *spec, hf_lua_op *self, lua_Number coroutine, double number,
                    hf_slice record) {
    const hf_lua_lock *lock = self->first;
    hf_lua_op_specify(spec, self, coroutine);
    const taken *lost =
        hf_op_kind_needs_a_hold(self->kind) ? hf_lock_lost(lock, spec->caller) : NULL;
    spec->lock_kind = lock->kind;
    spec->names = lock->names;
    spec->fingerprint = lock->fingerprint;
    spec->result = record;
    if (lost) spec->lost = lost->stake.hold, spec->loss_notified = lost->count == 0;
    set_number(spec, lock, number);
    if (!hf_op_kind_acquires(self->kind)) return;
    spec->sheds = lock->sheds && lock->max_waiters > 0;
    spec->max_waiters = lock->max_waiters;
    if (lock->sheds && lock->max_waiters == 0) spec->wait = 0;
    spec->deadlock_check = lock->deadlock_check;
    spec->keep = lock->keep;
}

/* Finalizers of other objects may still use a lock whose own finalizer has run. */
static int push_collected(lua_State *L) {
    lua_pushnil(L);
    lua_pushliteral(L, "the lock was garbage-collected, so it is no longer held");
    lua_pushstring(L, hf_code_name(HF_CLOSED));
    return 3;
}

static void check_supported(lua_State *L, const hf_lua_lock *lock, hf_op_kind kind) {
    luaL_argcheck(L, hf_op_kind_suits(kind, lock->kind), 1,
                  "this kind of lock does not support the operation");
}

static bool takes_words(hf_op_kind kind) {
    return kind == HF_OP_COMMAND || kind == HF_OP_FENCED || kind == HF_OP_ONCE;
}

static void set_words(hf_op_spec *spec, const hf_slice *words, size_t count) {
    spec->args = words;
    spec->arg_count = count;
    if (takes_words(spec->kind) && spec->value > count) spec->value = count;
}

/* The operations on one lock are the rows of HF_OP_LIST. On success a call returns what its row's
 * hf_call_returns says; otherwise it returns nil, message, code. */

static bool has_number(hf_op_kind kind) {
    return hf_op_rows[kind].number > HF_NUMBER_NONE;
}

/* Runs one operation with the blocking driver. The record and the words stay on the stack while it
 * runs. */
static int run_on(lua_State *L, hf_lua_lock *lock, hf_op_kind kind, double argument,
                  hf_slice record, const hf_slice *words, size_t word_count) {
    hf_lua_op self = {.kind = kind, .first = lock, .locks = &lock, .count = 1};
    if (!lock->driver) return push_collected(L);
    check_supported(L, lock, kind);
    hf_lua_op_check_driver(L, lock->driver, true);
    lua_Number number = hf_coroutine_number(L); /* may raise, so before the mutex is locked */
    hf_lua_op_enter(&self);
    hf_op_spec spec;
    specify(&spec, &self, number, argument, record);
    set_words(&spec, words, word_count);
    return hf_lua_op_run(L, &self, &spec);
}

static const hf_slice no_record = {"", 0};

/* name(lock [, number]) */
static int l_call(lua_State *L) {
    hf_op_kind kind = (hf_op_kind)lua_tointeger(L, lua_upvalueindex(2));
    double number = has_number(kind) ? luaL_checknumber(L, 2) : 0;
    return run_on(L, hf_lock_check(L), kind, number, no_record, NULL, 0);
}

/* complete(lock, keep [, record]) -> true | nil, message, code: ends a guard's run and leaves the
 * record for `keep` seconds; 0 frees the key */
static int l_complete(lua_State *L) {
    hf_slice record;
    record.data = luaL_optlstring(L, 3, "", &record.size);
    double keep = luaL_checknumber(L, 2);
    return run_on(L, hf_lock_check(L), HF_OP_COMPLETE, keep, record, NULL, 0);
}

/* Returns the words of the list at `index`, in a userdata that it pushes. Replaces the list with a
 * copy, which keeps their bytes alive even if the caller changes the list. */
static const hf_slice *push_words(lua_State *L, int index, size_t *count) {
    luaL_checktype(L, index, LUA_TTABLE);
    *count = hf_rawlen(L, index);
    luaL_argcheck(L, *count > 0, index, "no command");
    lua_createtable(L, (int)*count, 0);
    hf_slice *words = hf_newuserdata(L, *count * sizeof *words);
    for (size_t i = 0; i < *count; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        words[i].data = lua_tolstring(L, -1, &words[i].size);
        luaL_argcheck(L, words[i].data, index, "words must be strings or numbers");
        lua_rawseti(L, -3, (int)i + 1);
    }
    lua_pushvalue(L, -2);
    lua_replace(L, index);
    lua_remove(L, -2);
    return words;
}

/* acquire(lock [, wait [, keys]]) -> lock | nil, message, code. `keys`: those of the locks of the
 * same kind that the caller acquires next, if any. */
static int l_acquire(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    double wait = lua_isnoneornil(L, 2) ? lock->wait : lua_tonumber(L, 2);
    size_t count = 0;
    const hf_slice *keys = lua_istable(L, 3) ? push_words(L, 3, &count) : NULL;
    return run_on(L, lock, HF_OP_ACQUIRE, wait, no_record, keys, count);
}

/* fenced(lock, keys, words), once(lock, keys, words) -> the reply of the operation's program | nil,
 * message, code: runs the program with these words, of which the first `keys` are keys. The lock's
 * key names the resource for `fenced`, and the record for `once`. */
static int l_words(lua_State *L) {
    hf_op_kind kind = (hf_op_kind)lua_tointeger(L, lua_upvalueindex(2));
    hf_lua_lock *lock = hf_lock_check(L);
    double keys = luaL_checknumber(L, 2);
    size_t count;
    lua_settop(L, 3);
    const hf_slice *words = push_words(L, 3, &count);
    return run_on(L, lock, kind, keys, no_record, words, count);
}

/* ---- with an external or looped driver ---- */

static hf_op_kind check_kind(lua_State *L, int index) {
    const char *name = luaL_checkstring(L, index);
    for (int kind = 0; kind < HF_OP_KINDS; kind++) {
        bool called = hf_op_rows[kind].number != HF_NUMBER_UNUSED;
        if (called && strcmp(hf_op_rows[kind].name, name) == 0) return (hf_op_kind)kind;
    }
    return (hf_op_kind)luaL_error(L, "there is no operation called %s", name);
}

/* begin(lock, kind [, argument [, record [, finished]]]) -> operation, its number, whether it is
 * done. For a command, call begin(lock, "command", node, { name, argument, ... }) with strings;
 * "fenced" and "once" take the number of their keys in place of the node; "acquire" takes the keys
 * as l_acquire does. The caller finishes the
 * operation when it is done; if the operation is collected instead, it is abandoned. `finished`: a
 * finished operation on one lock of the same client, to be reused; it keeps its number. A ping uses
 * only the lock's client. */
static int l_begin(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return luaL_error(L, "the lock was garbage-collected");
    hf_check_not_fetching(L, lock->driver);
    hf_op_kind kind = check_kind(L, 2);
    check_supported(L, lock, kind);
    double argument = lua_isnoneornil(L, 3) ? lock->wait : lua_tonumber(L, 3);
    const hf_slice *words = NULL;
    size_t word_count = 0;
    hf_slice record = no_record;
    lua_settop(L, 5);
    if (takes_words(kind) || lua_istable(L, 4)) words = push_words(L, 4, &word_count);
    else record.data = luaL_optlstring(L, 4, "", &record.size);
    hf_lua_op *self = lua_isnil(L, 5) ? hf_lua_op_new(L, 1) : hf_lua_op_reuse(L, 5);
    hf_lua_op_anchor(L, 1, 1);
    if (!lua_isnil(L, 4)) hf_lua_op_anchor(L, 2, 4);
    if (words) hf_lua_op_anchor(L, 3, 6);
    self->kind = kind;
    self->first = self->locks[0] = lock;
    lua_Number number = hf_coroutine_number(L); /* may raise, so before the mutex is locked */
    hf_lua_op_enter(self);
    hf_op_spec spec;
    specify(&spec, self, number, argument, record);
    set_words(&spec, words, word_count);
    spec.blocking = lock->driver->blocks;
    if (kind == HF_OP_COMMAND || kind == HF_OP_PING) spec.names = NULL;
    return hf_lua_op_begin(L, self, &spec);
}

void hf_open_calls(lua_State *L) {
    static const luaL_Reg special[] = {
        {"begin", l_begin}, {"acquire", l_acquire}, {"complete", l_complete}, {NULL, NULL}};
    for (int kind = 0; kind < HF_OP_KINDS; kind++) {
        hf_call_number number = hf_op_rows[kind].number;
        bool called = number != HF_NUMBER_UNUSED && number != HF_NUMBER_NODE;
        lua_CFunction call = takes_words((hf_op_kind)kind) ? l_words : l_call;
        if (called) hf_set_numbered(L, hf_op_rows[kind].name, call, kind);
    }
    hf_set_functions(L, special);
}
