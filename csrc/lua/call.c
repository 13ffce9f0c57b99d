/* One lock's calls to the server. With the blocking driver a call begins, runs and ends here; with
 * an external one Lua begins an operation, drives the client until it is done, and finishes it. */
#include <limits.h>
#include <string.h>

#include "op.h"

/* `seconds`: how long an acquire waits, an extend's lease, how long complete keeps the record. */
static void specify(hf_op_spec *spec, hf_lua_op *self, lua_Number number, double seconds,
                    hf_slice record) {
    const hf_lua_lock *lock = self->first;
    hf_lua_op_specify(spec, self, number);
    const taken *lost =
        hf_op_kind_needs_a_hold(self->kind) ? hf_lock_lost(lock, spec->caller) : NULL;
    spec->lock_kind = lock->kind;
    spec->names = lock->names;
    spec->fingerprint = lock->fingerprint;
    if (lost) spec->lost = lost->stake.hold, spec->loss_notified = lost->count == 0;
    spec->value = seconds > 0 && seconds < 1e15 ? (uint64_t)seconds : 0;
    switch (self->kind) {
    case HF_OP_ACQUIRE:
        spec->sheds = lock->sheds && lock->max_waiters > 0;
        spec->max_waiters = lock->max_waiters;
        spec->wait = lock->sheds && lock->max_waiters == 0 ? 0 : hf_to_time(seconds);
        spec->deadlock_check = lock->deadlock_check;
        spec->keep = lock->keep;
        break;
    case HF_OP_AWAIT: spec->wait = hf_to_time(seconds); break;
    case HF_OP_TAKE:
        spec->value = lock->permits;
        spec->wait = hf_to_time(seconds);
        break;
    case HF_OP_GIVE:
        spec->value = seconds >= -1e9 && seconds <= 1e9 ? (uint64_t)(int64_t)seconds : 0;
        break;
    case HF_OP_EXTEND: spec->lease = hf_to_time(seconds); break;
    case HF_OP_PAUSE:
        spec->wait = hf_to_time(seconds), spec->node = 1;
        break; /* no matter of a quorum */
    case HF_OP_COMPLETE:
        spec->keep = hf_to_time(seconds);
        spec->result = record;
        break;
    default: break;
    }
}

/* Finalizers of others may still use a lock whose own finalizer has run. */
static int push_collected(lua_State *L) {
    lua_pushnil(L);
    lua_pushliteral(L, "the lock was garbage-collected, so it is no longer held");
    lua_pushstring(L, hf_code_name(HF_CLOSED));
    return 3;
}

static void check_suits(lua_State *L, const hf_lua_lock *lock, hf_op_kind kind) {
    luaL_argcheck(L, hf_op_kind_suits(kind, lock->kind), 1, "not of a kind with such operations");
}

static bool takes_words(hf_op_kind kind) {
    return kind == HF_OP_COMMAND || kind == HF_OP_FENCED;
}

static void set_words(hf_op_spec *spec, const hf_slice *words, size_t count) {
    spec->args = words;
    spec->arg_count = count;
    if (spec->kind == HF_OP_FENCED && spec->value > count) spec->value = count;
}

/* What a call has behind the lock; SPECIAL: it has its own function, or is for `begin` alone. */
typedef enum form { NOTHING, NUMBER, SPECIAL } form;

/* The operations on one lock. A call returns this, or nil, message, code:
 *
 *   release, check       true
 *   extend               (seconds) true
 *   force_release        whether it was locked
 *   ttl                  seconds; math.huge for a key without TTL; nil when free
 *   info                 { owner, holds, ttl, token, waiters, position } as the server has it
 *   pause                (seconds) true, after that time; it fails if a signal or the end of the
 *                        client comes first
 *   set                  (count) true: the semaphore has this many permits
 *   set_count            (count) whether the latch counts from now on; false: it counts already
 *   count_down           (amount) how many are still to come; false: the latch was open
 *   count                how many are still to come
 *   await                (seconds) true: the latch is open
 *   delete               whether the latch was closed
 *   take                 (seconds) true: this handle's number of permits is the caller's
 *   give                 (amount) how many permits are free
 *   drain                how many permits it has taken
 */
static const struct {
    const char *name;
    hf_op_kind kind;
    form form;
} calls[] = {
    {"acquire", HF_OP_ACQUIRE, SPECIAL},    {"release", HF_OP_RELEASE, NOTHING},
    {"complete", HF_OP_COMPLETE, SPECIAL},  {"extend", HF_OP_EXTEND, NUMBER},
    {"check", HF_OP_CHECK, NOTHING},        {"force_release", HF_OP_FORCE, NOTHING},
    {"info", HF_OP_INFO, NOTHING},          {"ttl", HF_OP_TTL, NOTHING},
    {"ping", HF_OP_PING, SPECIAL},          {"command", HF_OP_COMMAND, SPECIAL},
    {"pause", HF_OP_PAUSE, NUMBER},         {"set", HF_OP_SET, NUMBER},
    {"set_count", HF_OP_SET_COUNT, NUMBER}, {"count_down", HF_OP_COUNT_DOWN, NUMBER},
    {"count", HF_OP_COUNT, NOTHING},        {"await", HF_OP_AWAIT, NUMBER},
    {"delete", HF_OP_DELETE, NOTHING},      {"take", HF_OP_TAKE, NUMBER},
    {"give", HF_OP_GIVE, NUMBER},           {"drain", HF_OP_DRAIN, NOTHING},
    {"fenced", HF_OP_FENCED, SPECIAL},
};

#define CALLS (sizeof calls / sizeof *calls)

/* Runs one operation with the blocking driver. The record and the words stay on the stack while it
 * runs. */
static int run_on(lua_State *L, hf_lua_lock *lock, hf_op_kind kind, double seconds, hf_slice record,
                  const hf_slice *words, size_t word_count) {
    hf_lua_op self = {.kind = kind, .first = lock, .locks = &lock, .count = 1};
    if (!lock->driver) return push_collected(L);
    check_suits(L, lock, kind);
    hf_lua_op_check_driver(L, lock->driver, true);
    lua_Number number = hf_coroutine_number(L); /* may raise: not with the mutex held */
    hf_lua_op_enter(&self);
    hf_op_spec spec;
    specify(&spec, &self, number, seconds, record);
    set_words(&spec, words, word_count);
    return hf_lua_op_run(L, &self, &spec);
}

static const hf_slice no_record = {"", 0};

/* name(lock [, number]): a row of `calls` */
static int l_call(lua_State *L) {
    size_t i = (size_t)lua_tointeger(L, lua_upvalueindex(2));
    double number = calls[i].form == NUMBER ? luaL_checknumber(L, 2) : 0;
    return run_on(L, hf_lock_check(L), calls[i].kind, number, no_record, NULL, 0);
}

/* acquire(lock [, wait]) -> lock | nil, message, code */
static int l_acquire(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    double wait = lua_isnoneornil(L, 2) ? lock->wait : lua_tonumber(L, 2);
    return run_on(L, lock, HF_OP_ACQUIRE, wait, no_record, NULL, 0);
}

/* complete(lock, keep [, record]) -> true | nil, message, code: ends a guard's run and leaves the
 * record for `keep` seconds, 0: frees the key */
static int l_complete(lua_State *L) {
    hf_slice record;
    record.data = luaL_optlstring(L, 3, "", &record.size);
    double keep = luaL_checknumber(L, 2);
    return run_on(L, hf_lock_check(L), HF_OP_COMPLETE, keep, record, NULL, 0);
}

/* The words of the list at this stack index, in a userdata that is left on the stack. A list of our
 * own, which keeps their bytes, takes that place: the caller may change the given one. */
static const hf_slice *push_words(lua_State *L, int index, size_t *count) {
    luaL_checktype(L, index, LUA_TTABLE);
    *count = hf_rawlen(L, index);
    luaL_argcheck(L, *count > 0, index, "no command");
    lua_createtable(L, (int)*count, 0);
    hf_slice *words = hf_newuserdata(L, *count * sizeof *words);
    for (size_t i = 0; i < *count; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        words[i].data = lua_tolstring(L, -1, &words[i].size);
        luaL_argcheck(L, words[i].data, index, "words are strings or numbers");
        lua_rawseti(L, -3, (int)i + 1);
    }
    lua_pushvalue(L, -2);
    lua_replace(L, index);
    lua_remove(L, -2);
    return words;
}

/* fenced(lock, keys, words) -> the text of the answers | nil, message, code: runs the program of a
 * fence with these words, of which the first `keys` are keys. The lock's key is the resource. */
static int l_fenced(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    double keys = luaL_checknumber(L, 2);
    size_t count;
    lua_settop(L, 3);
    const hf_slice *words = push_words(L, 3, &count);
    return run_on(L, lock, HF_OP_FENCED, keys, no_record, words, count);
}

/* ---- with an external driver ---- */

static hf_op_kind check_kind(lua_State *L, int index) {
    const char *name = luaL_checkstring(L, index);
    for (size_t i = 0; i < CALLS; i++) {
        if (strcmp(calls[i].name, name) == 0) return calls[i].kind;
    }
    return (hf_op_kind)luaL_error(L, "no operation is called %s", name);
}

/* begin(lock, kind [, seconds [, record [, finished]]]) -> operation, its number, whether it is
 * done. A command is begun by begin(lock, "command", node, { name, argument, ... }) with strings;
 * "fenced" has how many of its words are keys in place of the node. The caller finishes the
 * operation when it is done; the collector abandons it. `finished`: an operation that was, on one
 * lock; it is begun again. A ping uses the lock's client only. */
static int l_begin(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return luaL_error(L, "the lock was collected");
    hf_op_kind kind = check_kind(L, 2);
    check_suits(L, lock, kind);
    double seconds = lua_isnoneornil(L, 3) ? lock->wait : lua_tonumber(L, 3);
    const hf_slice *words = NULL;
    size_t word_count = 0;
    hf_slice record = no_record;
    lua_settop(L, 5);
    if (takes_words(kind)) words = push_words(L, 4, &word_count);
    else record.data = luaL_optlstring(L, 4, "", &record.size);
    hf_lua_op *self = lua_isnil(L, 5) ? hf_lua_op_new(L, 1) : hf_lua_op_again(L, 5);
    hf_lua_op_keep(L, 1, 1);
    if (!lua_isnil(L, 4)) hf_lua_op_keep(L, 2, 4);
    if (words) hf_lua_op_keep(L, 3, 6);
    self->kind = kind;
    self->first = self->locks[0] = lock;
    lua_Number number = hf_coroutine_number(L); /* may raise: not with the mutex held */
    hf_lua_op_enter(self);
    hf_op_spec spec;
    specify(&spec, self, number, seconds, record);
    set_words(&spec, words, word_count);
    if (kind == HF_OP_COMMAND) spec.node = (size_t)hf_to_whole(seconds, INT_MAX);
    if (kind == HF_OP_COMMAND || kind == HF_OP_PING) spec.names = NULL;
    return hf_lua_op_begin(L, self, &spec);
}

void hf_open_calls(lua_State *L) {
    static const luaL_Reg special[] = {{"begin", l_begin},
                                       {"acquire", l_acquire},
                                       {"complete", l_complete},
                                       {"fenced", l_fenced},
                                       {NULL, NULL}};
    hf_set_functions(L, special);
    for (size_t i = 0; i < CALLS; i++)
        if (calls[i].form != SPECIAL) hf_set_numbered(L, calls[i].name, l_call, (int)i);
}
