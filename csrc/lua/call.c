/* The lock's calls to the server. With the blocking driver a call begins, runs and ends here; with an external one Lua
 * begins an operation, drives the client until it is done, and finishes it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lock.h"

/* An operation under way, as Lua sees it. Its user value keeps the lock alive; with a blocking driver it begins and
 * ends within one call. */
typedef struct hf_lua_op {
    hf_lua_lock *lock;
    hf_op *op;
    uint32_t generation; /* of the driver when it began */
    owner_text text;     /* the operation's owner points here */
} hf_lua_op;

/* Locks for a call. False in the child of a fork: the operation is the parent's, its memory is not touched again. */
static bool enter_op(const hf_lua_op *self) {
    hf_lock_enter(self->lock);
    return self->generation == self->lock->driver->generation;
}

static void end_op(hf_lua_op *self) {
    if (self->op) hf_op_end(self->op, hf_driver_now(self->lock->driver));
    self->op = NULL;
}

static bool is_about_hold(hf_op_kind kind) {
    return kind == HF_OP_RELEASE || kind == HF_OP_COMPLETE || kind == HF_OP_EXTEND || kind == HF_OP_CHECK;
}

static hf_op_spec spec_of(lua_State *L, hf_lua_op *self, hf_op_kind kind, double seconds) {
    hf_lua_lock *lock = self->lock;
    lua_Number number = lock->owner ? 0 : hf_coroutine_number(L);
    hf_op_spec spec = {
        .kind = kind, .layout = lock->layout, .names = &lock->names, .owner = hf_lock_owner(lock, number, &self->text)};
    if (kind == HF_OP_PING) spec.names = NULL;
    spec.print = lock->print;
    if (kind == HF_OP_EXTEND) spec.lease = hf_to_time(seconds);
    const taken *lost = is_about_hold(kind) ? hf_lock_lost(lock, spec.owner) : NULL;
    if (lost) spec.lost = lost->hold, spec.lost_told = lost->count == 0;
    if (kind != HF_OP_ACQUIRE) return spec;
    spec.wait = hf_to_time(seconds);
    spec.lease = lock->lease;
    spec.token_ttl_ms = lock->token_ttl_ms;
    spec.renewed = lock->renewed;
    spec.shared = lock->shared;
    return spec;
}

static void settle_acquire(hf_lua_lock *lock, hf_op *op) {
    if (op->failure.code != HF_OK) return;
    hf_lock_take(lock, op->hold);
    hf_client_allow(&lock->driver->client, op->hold, hf_driver_now(lock->driver)); /* who takes it is there */
    lock->last_loss = HF_LOST_NOT;
}

/* Notes what the operation says about the holds this handle has taken. */
static void settle_on_hold(hf_lua_lock *lock, hf_op *op) {
    bool releases = op->spec.kind == HF_OP_RELEASE || op->spec.kind == HF_OP_COMPLETE;
    if (op->hold && op->failure.code == HF_LOST) lock->last_loss = op->hold->reason;
    if (op->hold && releases) hf_lock_let_go(lock, op->hold);
}

/* What the operation has to tell, kept while the mutex is let go of. */
typedef struct outcome {
    hf_op_kind kind;
    hf_failure failure;
    long long value, holds, ttl_ms, waiters, ahead;
    uint64_t token;
    char owner[HF_OWNER_MAX + 1];
    size_t owner_size;
    char *record; /* to be freed; NULL: none */
    size_t record_size;
} outcome;

static void settle(hf_lua_op *self, outcome *result) {
    hf_op *op = self->op;
    if (op->spec.kind == HF_OP_ACQUIRE) settle_acquire(self->lock, op);
    else settle_on_hold(self->lock, op);
    result->kind = op->spec.kind;
    result->failure = op->failure;
    result->value = op->value;
    result->holds = op->info.holds;
    result->ttl_ms = op->info.ttl_ms;
    result->waiters = op->info.waiters;
    result->ahead = op->info.ahead;
    result->token = op->info.token;
    memcpy(result->owner, op->info.owner, sizeof result->owner);
    result->owner_size = op->info.owner_size;
    result->record = op->record;
    result->record_size = op->record_size;
    op->record = NULL;
    end_op(self);
}

void hf_push_token(lua_State *L, uint64_t token) {
#if LUA_VERSION_NUM >= 503
    lua_pushinteger(L, (lua_Integer)token);
#else
    lua_pushnumber(L, (lua_Number)token);
#endif
}

static void set_integer(lua_State *L, const char *name, long long value) {
    lua_pushinteger(L, (lua_Integer)value);
    lua_setfield(L, -2, name);
}

/* PTTL in seconds, math.huge without a TTL, nil without a key. */
static void push_ttl(lua_State *L, long long ttl_ms) {
    if (ttl_ms == -2) lua_pushnil(L);
    else lua_pushnumber(L, ttl_ms == -1 ? HUGE_VAL : (double)ttl_ms / 1e3);
}

static void push_info(lua_State *L, const outcome *result) {
    lua_newtable(L);
    if (result->owner_size > 0) {
        lua_pushlstring(L, result->owner, result->owner_size);
        lua_setfield(L, -2, "owner");
    }
    set_integer(L, "holds", result->holds);
    set_integer(L, "waiters", result->waiters);
    if (result->ahead >= 0) set_integer(L, "position", result->ahead + 1);
    push_ttl(L, result->ttl_ms);
    lua_setfield(L, -2, "ttl");
    if (result->token == 0) return;
    hf_push_token(L, result->token);
    lua_setfield(L, -2, "token");
}

/* nil, message, "duplicate", record */
static int push_record(lua_State *L, const outcome *result) {
    int pushed = hf_push_failure(L, &result->failure);
    lua_pushlstring(L, result->record, result->record_size);
    free(result->record);
    return pushed + 1;
}

/* The lock is at stack index 1. */
static int push_outcome(lua_State *L, const outcome *result) {
    if (result->record) return push_record(L, result);
    if (result->failure.code != HF_OK) return hf_push_failure(L, &result->failure);
    switch (result->kind) {
    case HF_OP_ACQUIRE: lua_pushvalue(L, 1); break;
    case HF_OP_FORCE: lua_pushboolean(L, result->value > 0); break;
    case HF_OP_TTL: push_ttl(L, result->value); break;
    case HF_OP_INFO: push_info(L, result); break;
    default: lua_pushboolean(L, true);
    }
    return 1;
}

bool hf_lock_prepare(hf_lua_lock *lock, hf_failure *failure) {
    if (!hf_lock_reserve(lock)) {
        failure->code = HF_NO_MEMORY;
        return false;
    }
    if (lock->driver->closed || hf_driver_watch(lock->driver)) return true;
    hf_failure_set(failure, HF_SERVER, "acquire", lock->names.key, lock->driver->client.first.server.label,
                   "no thread for the watchdog: %s", strerror(errno));
    return false;
}

/* complete's arguments after the seconds: the record; they stay on the stack while it runs. */
static void add_record(lua_State *L, hf_op_spec *spec, double seconds) {
    size_t size;
    const char *record = luaL_optlstring(L, 3, "", &size);
    spec->keep = hf_to_time(seconds);
    spec->result = (hf_slice){record, size};
}

/* Finalizers of others may still use a lock whose own finalizer has run. */
static int push_collected(lua_State *L) {
    lua_pushnil(L);
    lua_pushliteral(L, "the lock was collected and has let go");
    lua_pushstring(L, hf_code_name(HF_CLOSED));
    return 3;
}

/* Runs one operation with the blocking driver. */
static int run(lua_State *L, hf_op_kind kind, double seconds) {
    hf_lua_op self = {.lock = hf_lock_check(L)};
    outcome result = {.kind = kind, .failure = {.code = HF_OK}};
    hf_driver *driver = self.lock->driver;
    if (!driver) return push_collected(L);
    if (driver->external) return luaL_error(L, "this client's operations are begun and finished");
    hf_coroutine_number(L); /* may raise: not with the mutex held */
    hf_lock_enter(self.lock);
    if (kind != HF_OP_ACQUIRE || hf_lock_prepare(self.lock, &result.failure)) {
        hf_op_spec spec = spec_of(L, &self, kind, seconds);
        if (kind == HF_OP_COMPLETE) add_record(L, &spec, seconds);
        self.op = hf_run_op(L, driver, &spec, self.lock->interruptible);
        if (self.op) settle(&self, &result);
        else result.failure.code = HF_NO_MEMORY;
    }
    hf_driver_leave(driver);
    return push_outcome(L, &result);
}

/* acquire(lock [, wait]) -> lock | nil, message, code */
static int l_acquire(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    return run(L, HF_OP_ACQUIRE, lua_isnoneornil(L, 2) ? lock->wait : lua_tonumber(L, 2));
}

/* release(lock) -> true | nil, message, code */
static int l_release(lua_State *L) {
    return run(L, HF_OP_RELEASE, 0);
}

/* complete(lock, keep [, record]) -> true | nil, message, code: ends a guard's run and leaves the record for `keep`
 * seconds, 0: frees the key */
static int l_complete(lua_State *L) {
    luaL_optstring(L, 3, "");
    return run(L, HF_OP_COMPLETE, luaL_checknumber(L, 2));
}

/* extend(lock, seconds) -> true | nil, message, code */
static int l_extend(lua_State *L) {
    return run(L, HF_OP_EXTEND, luaL_checknumber(L, 2));
}

/* check(lock) -> true | nil, message, code */
static int l_check(lua_State *L) {
    return run(L, HF_OP_CHECK, 0);
}

/* force_release(lock) -> whether it was locked | nil, message, code */
static int l_force_release(lua_State *L) {
    return run(L, HF_OP_FORCE, 0);
}

/* ttl(lock) -> seconds; math.huge for a key without TTL; nil when free | nil, message, code */
static int l_ttl(lua_State *L) {
    return run(L, HF_OP_TTL, 0);
}

/* info(lock) -> { owner, holds, ttl, token, waiters, position } as the server has it | nil, message, code */
static int l_info(lua_State *L) {
    return run(L, HF_OP_INFO, 0);
}

/* ---- operations of an external driver ---- */

static const char *const KINDS[] = {"acquire",       "release", "complete", "extend", "check",
                                    "force_release", "info",    "ttl",      "ping",   NULL};
static const hf_op_kind KIND_OF[] = {HF_OP_ACQUIRE, HF_OP_RELEASE, HF_OP_COMPLETE, HF_OP_EXTEND, HF_OP_CHECK,
                                     HF_OP_FORCE,   HF_OP_INFO,    HF_OP_TTL,      HF_OP_PING};

/* begin(lock, kind [, seconds [, record]]) -> operation, its number. To be finished once it is done; collecting it
 * gives it up. A ping is about the lock's client alone. */
static int l_begin(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return luaL_error(L, "the lock was collected");
    hf_op_kind kind = KIND_OF[luaL_checkoption(L, 2, NULL, KINDS)];
    double seconds = lua_isnoneornil(L, 3) ? lock->wait : lua_tonumber(L, 3);
    lua_settop(L, 4);
    hf_slice record = {"", 0};
    record.data = luaL_optlstring(L, 4, "", &record.size);
    hf_lua_op *self = hf_new_object(L, sizeof *self, HF_OP_TYPE);
    lua_newtable(L);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    lua_pushvalue(L, 4);
    lua_rawseti(L, -2, 2); /* the operation points into the record */
    hf_setuservalue(L, -2);
    self->lock = lock;
    hf_coroutine_number(L);
    hf_lock_enter(lock);
    hf_failure failure = {.code = HF_OK};
    if (kind != HF_OP_ACQUIRE || hf_lock_prepare(lock, &failure)) {
        hf_op_spec spec = spec_of(L, self, kind, seconds);
        if (kind == HF_OP_COMPLETE) spec.keep = hf_to_time(seconds), spec.result = record;
        self->op = hf_client_begin(&lock->driver->client, &spec, hf_driver_now(lock->driver));
        self->generation = lock->driver->generation;
    }
    hf_driver_leave(lock->driver);
    if (!self->op) return luaL_error(L, "not enough memory");
    lua_pushnumber(L, (lua_Number)self->op->number);
    return 2;
}

static hf_lua_op *check_op(lua_State *L) {
    return luaL_checkudata(L, 1, HF_OP_TYPE);
}

/* is_done(operation) */
static int l_op_is_done(lua_State *L) {
    const hf_lua_op *self = check_op(L);
    bool done = true;
    if (self->op && self->lock->driver) {
        done = !enter_op(self) || self->op->done;
        hf_driver_leave(self->lock->driver);
    }
    lua_pushboolean(L, done);
    return 1;
}

static int push_forked(lua_State *L) {
    lua_pushnil(L);
    lua_pushliteral(L, "the process was forked: this is the parent's");
    lua_pushstring(L, hf_code_name(HF_INTERRUPTED));
    return 3;
}

/* finish(operation) -> what the blocking call returns; one that is not done is given up and "interrupted" */
static int l_op_finish(lua_State *L) {
    hf_lua_op *self = check_op(L);
    outcome result;
    if (!self->op) return luaL_error(L, "the operation is finished");
    hf_getuservalue(L, 1);
    lua_rawgeti(L, -1, 1);
    lua_replace(L, 1);
    bool ours = enter_op(self);
    if (ours && !self->op->done) hf_op_give_up(self->op, hf_driver_now(self->lock->driver));
    if (ours) settle(self, &result);
    self->op = NULL;
    hf_driver_leave(self->lock->driver);
    return ours ? push_outcome(L, &result) : push_forked(L);
}

/* Nobody has taken what this operation acquired. */
static void abandon_acquired(hf_lua_op *self) {
    hf_op *op = self->op;
    if (op->spec.kind != HF_OP_ACQUIRE || !op->done || op->failure.code != HF_OK) return;
    hf_client_abandon(&self->lock->driver->client, op->hold, 1, hf_driver_now(self->lock->driver));
}

static int l_op_gc(lua_State *L) {
    hf_lua_op *self = check_op(L);
    if (!self->op || !self->lock->driver) return 0;
    if (enter_op(self)) {
        abandon_acquired(self);
        end_op(self);
    }
    self->op = NULL;
    hf_driver_leave(self->lock->driver);
    return 0;
}

void hf_open_operations(lua_State *L) {
    static const luaL_Reg metamethods[] = {{"__gc", l_op_gc}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"is_done", l_op_is_done}, {"finish", l_op_finish}, {NULL, NULL}};
    hf_new_type(L, HF_OP_TYPE, metamethods);
    lua_pop(L, 1);
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    lua_setfield(L, -2, "operation");
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
    {NULL, NULL},
};
