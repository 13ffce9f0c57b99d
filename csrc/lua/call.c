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
    if (lost) spec->lost = lost->hold, spec->loss_notified = lost->count == 0;
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
    lua_pushliteral(L, "the lock was collected and has let go");
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

static int run(lua_State *L, hf_op_kind kind, double seconds, hf_slice record) {
    return run_on(L, hf_lock_check(L), kind, seconds, record, NULL, 0);
}

static const hf_slice no_record = {"", 0};

/* acquire(lock [, wait]) -> lock | nil, message, code */
static int l_acquire(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    double wait = lua_isnoneornil(L, 2) ? lock->wait : lua_tonumber(L, 2);
    return run_on(L, lock, HF_OP_ACQUIRE, wait, no_record, NULL, 0);
}

/* release(lock) -> true | nil, message, code */
static int l_release(lua_State *L) {
    return run(L, HF_OP_RELEASE, 0, no_record);
}

/* complete(lock, keep [, record]) -> true | nil, message, code: ends a guard's run and leaves the
 * record for `keep` seconds, 0: frees the key */
static int l_complete(lua_State *L) {
    hf_slice record;
    record.data = luaL_optlstring(L, 3, "", &record.size);
    return run(L, HF_OP_COMPLETE, luaL_checknumber(L, 2), record);
}

/* extend(lock, seconds) -> true | nil, message, code */
static int l_extend(lua_State *L) {
    return run(L, HF_OP_EXTEND, luaL_checknumber(L, 2), no_record);
}

/* check(lock) -> true | nil, message, code */
static int l_check(lua_State *L) {
    return run(L, HF_OP_CHECK, 0, no_record);
}

/* force_release(lock) -> whether it was locked | nil, message, code */
static int l_force_release(lua_State *L) {
    return run(L, HF_OP_FORCE, 0, no_record);
}

/* ttl(lock) -> seconds; math.huge for a key without TTL; nil when free | nil, message, code */
static int l_ttl(lua_State *L) {
    return run(L, HF_OP_TTL, 0, no_record);
}

/* info(lock) -> { owner, holds, ttl, token, waiters, position } as the server has it | nil,
 * message, code */
static int l_info(lua_State *L) {
    return run(L, HF_OP_INFO, 0, no_record);
}

/* pause(lock, seconds) -> true, after that time | nil, message, code: a signal or the end of the
 * client came first */
static int l_pause(lua_State *L) {
    return run(L, HF_OP_PAUSE, luaL_checknumber(L, 2), no_record);
}

/* set(permits, count) -> true | nil, message, code: how many permits the semaphore has */
static int l_set(lua_State *L) {
    return run(L, HF_OP_SET, luaL_checknumber(L, 2), no_record);
}

/* set_count(latch, count) -> whether it counts from now on; false: it counts already | nil,
 * message, code */
static int l_set_count(lua_State *L) {
    return run(L, HF_OP_SET_COUNT, luaL_checknumber(L, 2), no_record);
}

/* count_down(latch, amount) -> how many are still to come; false: it was open | nil, message, code
 */
static int l_count_down(lua_State *L) {
    return run(L, HF_OP_COUNT_DOWN, luaL_checknumber(L, 2), no_record);
}

/* count(latch) -> how many are still to come | nil, message, code */
static int l_count(lua_State *L) {
    return run(L, HF_OP_COUNT, 0, no_record);
}

/* await(latch, seconds) -> true: it is open | nil, message, code */
static int l_await(lua_State *L) {
    return run(L, HF_OP_AWAIT, luaL_checknumber(L, 2), no_record);
}

/* delete(latch) -> whether it was closed | nil, message, code */
static int l_delete(lua_State *L) {
    return run(L, HF_OP_DELETE, 0, no_record);
}

/* take(permits, seconds) -> true: this handle's number of permits is the caller's | nil, message,
 * code */
static int l_take(lua_State *L) {
    return run(L, HF_OP_TAKE, luaL_checknumber(L, 2), no_record);
}

/* give(permits, amount) -> how many are free | nil, message, code */
static int l_give(lua_State *L) {
    return run(L, HF_OP_GIVE, luaL_checknumber(L, 2), no_record);
}

/* drain(permits) -> how many it has taken | nil, message, code */
static int l_drain(lua_State *L) {
    return run(L, HF_OP_DRAIN, 0, no_record);
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

static const struct {
    const char *name;
    hf_op_kind kind;
} KINDS[] = {
    {"acquire", HF_OP_ACQUIRE},     {"release", HF_OP_RELEASE},
    {"complete", HF_OP_COMPLETE},   {"extend", HF_OP_EXTEND},
    {"check", HF_OP_CHECK},         {"force_release", HF_OP_FORCE},
    {"info", HF_OP_INFO},           {"ttl", HF_OP_TTL},
    {"ping", HF_OP_PING},           {"command", HF_OP_COMMAND},
    {"pause", HF_OP_PAUSE},         {"set", HF_OP_SET},
    {"set_count", HF_OP_SET_COUNT}, {"count_down", HF_OP_COUNT_DOWN},
    {"count", HF_OP_COUNT},         {"await", HF_OP_AWAIT},
    {"delete", HF_OP_DELETE},       {"take", HF_OP_TAKE},
    {"give", HF_OP_GIVE},           {"drain", HF_OP_DRAIN},
    {"fenced", HF_OP_FENCED},
};

static hf_op_kind check_kind(lua_State *L, int index) {
    const char *name = luaL_checkstring(L, index);
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        if (strcmp(KINDS[i].name, name) == 0) return KINDS[i].kind;
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

const luaL_Reg hf_lock_calls[] = {
    {"begin", l_begin},
    {"acquire", l_acquire},
    {"release", l_release},
    {"complete", l_complete},
    {"force_release", l_force_release},
    {"extend", l_extend},
    {"check", l_check},
    {"ttl", l_ttl},
    {"info", l_info},
    {"pause", l_pause},
    {"set", l_set},
    {"set_count", l_set_count},
    {"count_down", l_count_down},
    {"count", l_count},
    {"await", l_await},
    {"delete", l_delete},
    {"take", l_take},
    {"give", l_give},
    {"drain", l_drain},
    {"fenced", l_fenced},
    {NULL, NULL},
};
