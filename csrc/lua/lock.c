/* The lock userdata: one key of one client, with the options it was made with.
 *
 * Who owns is decided at each call: the given owner, or the coroutine that calls (main is 1). `taken` lists the holds
 * that were acquired through this handle; they are what __gc lets go of. Its user value keeps the client alive. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

typedef struct taken {
    hf_hold *hold; /* referenced */
    uint32_t count;
    bool told; /* of its loss */
} taken;

typedef struct hf_lua_lock {
    hf_driver *driver;
    uint32_t generation; /* of the driver when `taken` was filled */
    hf_names names;
    char *owner; /* NULL: the calling coroutine */
    size_t owner_size;
    hf_time lease;
    hf_slice print; /* a guard's */
    double wait; /* seconds, the default */
    uint64_t token_ttl_ms;
    hf_layout layout;
    bool renewed, interruptible, shared;
    hf_lost_reason untold;    /* of a loss that a release found and nobody has told yet */
    hf_lost_reason last_loss; /* of the hold released last; cleared by an acquire */
    taken *taken;
    size_t taken_count, taken_capacity;
} hf_lua_lock;

static hf_lua_lock *check_lock(lua_State *L) {
    return luaL_checkudata(L, 1, HF_LOCK_TYPE);
}

/* ---- owners ---- */

static const char COROUTINES = 0; /* its address: the registry key of a weak table, coroutine -> number */

static void push_coroutines(lua_State *L) {
    lua_pushlightuserdata(L, (void *)(uintptr_t)&COROUTINES);
    lua_rawget(L, LUA_REGISTRYINDEX);
    if (!lua_isnil(L, -1)) return;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_newtable(L);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_pushlightuserdata(L, (void *)(uintptr_t)&COROUTINES);
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

/* The next free number, for the thread below the table of coroutines on top. */
static lua_Number number_coroutine(lua_State *L) {
    lua_rawgeti(L, -1, 1);
    lua_Number number = lua_tonumber(L, -1) < 1 ? 2 : lua_tonumber(L, -1) + 1;
    lua_pop(L, 1);
    lua_pushnumber(L, number);
    lua_rawseti(L, -2, 1);
    lua_pushvalue(L, -2);
    lua_pushnumber(L, number);
    lua_rawset(L, -3);
    return number;
}

/* The calling coroutine's number: 1 for main, the next free one at a coroutine's first call. */
static lua_Number coroutine_number(lua_State *L) {
    if (lua_pushthread(L)) {
        lua_pop(L, 1);
        return 1;
    }
    push_coroutines(L);
    lua_pushvalue(L, -2);
    lua_rawget(L, -2);
    lua_Number number = lua_tonumber(L, -1);
    lua_pop(L, 1);
    if (number == 0) number = number_coroutine(L);
    lua_pop(L, 2);
    return number;
}

/* renumber(): the calling coroutine is another owner from now on. ngx_lua runs one request after the other in the same
 * coroutine. */
static int l_renumber(lua_State *L) {
    if (lua_pushthread(L)) return 0;
    push_coroutines(L);
    number_coroutine(L);
    return 0;
}

typedef struct owner_text {
    char bytes[HF_UUID_SIZE + 24];
} owner_text;

/* The owner that calls; only after hf_driver_enter, which may change the uuid. */
static hf_slice owner_of(const hf_lua_lock *lock, lua_Number number, owner_text *text) {
    if (lock->owner) return (hf_slice){lock->owner, lock->owner_size};
    char digits[24];
    hf_slice decimal = hf_decimal(digits, (uint64_t)number);
    memcpy(text->bytes, lock->driver->client.uuid, HF_UUID_SIZE);
    text->bytes[HF_UUID_SIZE] = ':';
    memcpy(text->bytes + HF_UUID_SIZE + 1, decimal.data, decimal.size);
    return (hf_slice){text->bytes, HF_UUID_SIZE + 1 + decimal.size};
}

/* ---- what this handle has taken ---- */

static void drop_taken(hf_lua_lock *lock, size_t i) {
    hf_hold_unref(lock->taken[i].hold);
    lock->taken[i] = lock->taken[--lock->taken_count];
}

/* After a fork the holds are the parent's: their memory is not touched again. */
static void notice_fork(hf_lua_lock *lock) {
    if (lock->generation == lock->driver->generation) return;
    lock->generation = lock->driver->generation;
    lock->taken_count = 0;
}

static void enter(hf_lua_lock *lock) {
    hf_driver_enter(lock->driver);
    notice_fork(lock);
}

static bool reserve_taken(hf_lua_lock *lock) {
    if (lock->taken_count < lock->taken_capacity) return true;
    size_t capacity = lock->taken_capacity ? lock->taken_capacity * 2 : 1;
    taken *grown = realloc(lock->taken, capacity * sizeof *grown);
    if (!grown) return false;
    lock->taken = grown;
    lock->taken_capacity = capacity;
    return true;
}

static bool is_over(const hf_hold *hold) {
    return !hold->in_table || hold->state == HF_HOLD_LOST || hold->state == HF_HOLD_LEAVING;
}

static void add_taken(hf_lua_lock *lock, hf_hold *hold) {
    for (size_t i = lock->taken_count; i-- > 0;) {
        if (lock->taken[i].hold == hold) {
            lock->taken[i].count++;
            return;
        }
    }
    hf_hold_ref(hold);
    lock->taken[lock->taken_count++] = (taken){hold, 1, false};
}

static void remove_taken(hf_lua_lock *lock, const hf_hold *hold) {
    for (size_t i = lock->taken_count; i-- > 0;) {
        if (lock->taken[i].hold != hold) continue;
        if (hold->reason != HF_LOST_NOT && !lock->taken[i].told) lock->untold = hold->reason;
        if (--lock->taken[i].count == 0 || is_over(hold)) drop_taken(lock, i);
    }
}

/* A lost hold of this owner that a newer one has replaced in the table: its holder is yet to be told. */
static hf_hold *superseded(const hf_lua_lock *lock, hf_slice owner) {
    for (size_t i = 0; i < lock->taken_count; i++) {
        hf_hold *hold = lock->taken[i].hold;
        if (!hold->in_table && hold->state == HF_HOLD_LOST && hf_slice_equal(hf_hold_owner(hold), owner)) return hold;
    }
    return NULL;
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

/* new(client, { key, layout, lease, wait, renewed, owner, interruptible, token_ttl }) -> lock. The table stays with the lock;
 * it must hold the client. */
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
    enter(lock);
    hf_time now = hf_driver_now(lock->driver);
    while (lock->taken_count > 0) {
        hf_client_abandon(&lock->driver->client, lock->taken[0].hold, lock->taken[0].count, now);
        drop_taken(lock, 0);
    }
    hf_driver_nudge(lock->driver);
    hf_driver_leave(lock->driver);
}

static int l_gc(lua_State *L) {
    hf_lua_lock *lock = check_lock(L);
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
    abandon(check_lock(L));
    return 0;
}

/* allow(lock): the owners of what was acquired through this handle are there; what asks for that is renewed */
static int l_allow(lua_State *L) {
    hf_lua_lock *lock = check_lock(L);
    enter(lock);
    hf_time now = hf_driver_now(lock->driver);
    for (size_t i = 0; i < lock->taken_count; i++) hf_client_allow(&lock->driver->client, lock->taken[i].hold, now);
    hf_driver_leave(lock->driver);
    return 0;
}

/* ---- with the server ---- */

/* An operation under way, as Lua sees it. Its user value keeps the lock alive; with a blocking driver it begins and ends
 * within one call. */
typedef struct hf_lua_op {
    hf_lua_lock *lock;
    hf_op *op;
    owner_text text; /* the operation's owner points here */
} hf_lua_op;

static void end_op(hf_lua_op *self) {
    if (self->op) hf_op_end(self->op, hf_driver_now(self->lock->driver));
    self->op = NULL;
}

static hf_op_spec spec_of(lua_State *L, hf_lua_op *self, hf_op_kind kind, double seconds) {
    hf_lua_lock *lock = self->lock;
    lua_Number number = lock->owner ? 0 : coroutine_number(L);
    hf_op_spec spec = {.kind = kind, .layout = lock->layout, .names = &lock->names, .owner = owner_of(lock, number, &self->text)};
    if (kind == HF_OP_PING) spec.names = NULL;
    spec.print = lock->print;
    if (kind == HF_OP_EXTEND) spec.lease = hf_to_time(seconds);
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
    add_taken(lock, op->hold);
    hf_client_allow(&lock->driver->client, op->hold, hf_driver_now(lock->driver)); /* who takes it is there */
    lock->last_loss = HF_LOST_NOT;
}

/* Notes what the operation says about the holds this handle has taken. */
static void settle_on_hold(hf_lua_lock *lock, hf_op *op) {
    bool releases = op->spec.kind == HF_OP_RELEASE || op->spec.kind == HF_OP_COMPLETE;
    if (op->hold && op->failure.code == HF_LOST) lock->last_loss = op->hold->reason;
    if (op->hold && releases) remove_taken(lock, op->hold);
    hf_hold *older = op->failure.code == HF_NOT_HELD ? superseded(lock, op->spec.owner) : NULL;
    if (!older) return;
    hf_failure_set(&op->failure, HF_LOST, "use", lock->names.key, lock->driver->config.session.server.label,
                   "it was lost: %s", hf_lost_reason_name(older->reason));
    lock->last_loss = older->reason;
    if (releases) remove_taken(lock, older);
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

/* Below 2^53: exact in LuaJIT's numbers too. */
static void push_token(lua_State *L, uint64_t token) {
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
    push_token(L, result->token);
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

static bool prepare_acquire(hf_lua_lock *lock, hf_failure *failure) {
    if (!reserve_taken(lock)) {
        failure->code = HF_NO_MEMORY;
        return false;
    }
    if (lock->driver->closed || hf_driver_watch(lock->driver)) return true;
    hf_failure_set(failure, HF_SERVER, "acquire", lock->names.key, lock->driver->config.session.server.label,
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
    hf_lua_op self = {.lock = check_lock(L)};
    outcome result = {.kind = kind, .failure = {.code = HF_OK}};
    hf_driver *driver = self.lock->driver;
    if (!driver) return push_collected(L);
    if (driver->external) return luaL_error(L, "this client's operations are begun and finished");
    coroutine_number(L); /* may raise: not with the mutex held */
    enter(self.lock);
    if (kind != HF_OP_ACQUIRE || prepare_acquire(self.lock, &result.failure)) {
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
    hf_lua_lock *lock = check_lock(L);
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

/* ---- several locks at once ---- */

/* The locks in the list at index 1: of one client with a blocking driver, of the reentrant layout, no key twice. */
static size_t check_locks(lua_State *L, hf_lua_lock *locks[HF_ALL_MAX]) {
    luaL_checktype(L, 1, LUA_TTABLE);
    size_t count = 0;
    for (;;) {
        lua_rawgeti(L, 1, (int)count + 1);
        if (lua_isnil(L, -1)) break;
        luaL_argcheck(L, count < HF_ALL_MAX, 1, "too many locks");
        locks[count] = luaL_checkudata(L, -1, HF_LOCK_TYPE);
        luaL_argcheck(L, locks[count]->driver, 1, "a lock that was collected");
        luaL_argcheck(L, locks[count]->driver == locks[0]->driver, 1, "locks of different clients");
        lua_pop(L, 1);
        count++;
    }
    lua_pop(L, 1);
    return count;
}

static hf_op_spec spec_of_all(lua_State *L, hf_op_kind kind, hf_lua_lock *const *locks, size_t count,
                              const hf_names **names, owner_text *text) {
    const hf_lua_lock *first = locks[0];
    lua_Number number = first->owner ? 0 : coroutine_number(L);
    for (size_t i = 0; i < count; i++) names[i] = &locks[i]->names;
    return (hf_op_spec){.kind = kind,
                        .owner = owner_of(first, number, text),
                        .lease = first->lease,
                        .token_ttl_ms = first->token_ttl_ms,
                        .renewed = first->renewed,
                        .all = names,
                        .all_count = count};
}

static void settle_all(const hf_op *op, hf_lua_lock *const *locks) {
    for (size_t i = 0; op->holds && i < op->spec.all_count; i++) {
        hf_hold *hold = op->holds[i];
        assert(locks[i]);
        if (!hold) continue;
        if (hold->state == HF_HOLD_LOST) locks[i]->last_loss = hold->reason;
        if (op->spec.kind == HF_OP_RELEASE_ALL) {
            remove_taken(locks[i], hold);
        } else if (op->failure.code == HF_OK) {
            add_taken(locks[i], hold);
            locks[i]->last_loss = HF_LOST_NOT;
        }
    }
}

static int run_all(lua_State *L, hf_op_kind kind) {
    hf_lua_lock *locks[HF_ALL_MAX] = {NULL};
    const hf_names *names[HF_ALL_MAX];
    size_t count = check_locks(L, locks);
    if (count == 0 || !locks[0]) return luaL_argerror(L, 1, "no locks");
    outcome result = {.kind = HF_OP_CHECK, .failure = {.code = HF_OK}};
    owner_text text;
    hf_driver *driver = locks[0]->driver;
    coroutine_number(L); /* may raise: not with the mutex held */
    hf_driver_enter(driver);
    for (size_t i = 0; i < count; i++) notice_fork(locks[i]);
    for (size_t i = 0; i < count && result.failure.code == HF_OK; i++) prepare_acquire(locks[i], &result.failure);
    if (result.failure.code == HF_OK) {
        hf_op_spec spec = spec_of_all(L, kind, locks, count, names, &text);
        hf_op *op = hf_run_op(L, driver, &spec, false);
        result.failure.code = HF_NO_MEMORY;
        if (op) {
            result.failure = op->failure;
            settle_all(op, locks);
            hf_op_end(op, hf_driver_now(driver));
        }
    }
    hf_driver_leave(driver);
    return push_outcome(L, &result);
}

/* acquire_all{ lock, … } -> true | nil, message, code: one attempt at all of them or none */
static int l_acquire_all(lua_State *L) {
    return run_all(L, HF_OP_ACQUIRE_ALL);
}

/* release_all{ lock, … } -> true | nil, message, code: lets go of one hold of each */
static int l_release_all(lua_State *L) {
    return run_all(L, HF_OP_RELEASE_ALL);
}

/* ---- operations of an external driver ---- */

static const char *const KINDS[] = {"acquire", "release", "complete", "extend", "check", "force_release", "info", "ttl", "ping",
                                    NULL};
static const hf_op_kind KIND_OF[] = {HF_OP_ACQUIRE, HF_OP_RELEASE, HF_OP_COMPLETE, HF_OP_EXTEND, HF_OP_CHECK,
                                     HF_OP_FORCE,   HF_OP_INFO,    HF_OP_TTL,      HF_OP_PING};

/* begin(lock, kind [, seconds [, record]]) -> operation, its number. To be finished once it is done; collecting it gives it
 * up. A ping is about the lock's client alone. */
static int l_begin(lua_State *L) {
    hf_lua_lock *lock = check_lock(L);
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
    coroutine_number(L);
    enter(lock);
    hf_failure failure = {.code = HF_OK};
    if (kind != HF_OP_ACQUIRE || prepare_acquire(lock, &failure)) {
        hf_op_spec spec = spec_of(L, self, kind, seconds);
        if (kind == HF_OP_COMPLETE) spec.keep = hf_to_time(seconds), spec.result = record;
        self->op = hf_client_begin(&lock->driver->client, &spec, hf_driver_now(lock->driver));
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
    lua_pushboolean(L, !self->op || self->op->done);
    return 1;
}

/* finish(operation) -> what the blocking call returns; one that is not done is given up and "interrupted" */
static int l_op_finish(lua_State *L) {
    hf_lua_op *self = check_op(L);
    outcome result;
    if (!self->op) return luaL_error(L, "the operation is finished");
    hf_getuservalue(L, 1);
    lua_rawgeti(L, -1, 1);
    lua_replace(L, 1);
    enter(self->lock);
    if (!self->op->done) hf_op_give_up(self->op, hf_driver_now(self->lock->driver));
    settle(self, &result);
    hf_driver_leave(self->lock->driver);
    return push_outcome(L, &result);
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
    hf_driver_enter(self->lock->driver);
    abandon_acquired(self);
    end_op(self);
    hf_driver_leave(self->lock->driver);
    return 0;
}

/* ---- without the server ---- */

/* The calling owner's hold, NULL when it has none; a hold whose time is over is marked lost. */
static hf_hold *own_hold(hf_lua_lock *lock, lua_Number number) {
    owner_text text;
    hf_client *client = &lock->driver->client;
    hf_hold *hold = hf_holds_find(&client->holds, lock->layout, lock->names.key, owner_of(lock, number, &text));
    if (hold && hold->state == HF_HOLD_HELD && !hf_hold_is_valid(hold, hf_driver_now(lock->driver))) {
        hf_client_lose(client, hold, hf_lost_reason_at_end(hold));
    }
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
    lua_Number number = lock->owner ? 0 : coroutine_number(L);
    view seen = {0};
    if (!lock->driver) return seen;
    enter(lock);
    const hf_hold *hold = own_hold(lock, number);
    hf_time now = hf_driver_now(lock->driver);
    if (hold && hf_hold_is_valid(hold, now)) {
        seen = (view){true, hold->count, hold->valid_until - now, hold->token, HF_LOST_NOT};
    } else if (hold && hold->state == HF_HOLD_LOST) {
        seen.loss = hold->reason;
    } else {
        seen.loss = lock->last_loss;
    }
    if (!seen.held) {
        owner_text text;
        const hf_hold *older = superseded(lock, owner_of(lock, number, &text));
        if (older && seen.loss == HF_LOST_NOT) seen.loss = older->reason;
    }
    hf_driver_leave(lock->driver);
    return seen;
}

static int l_is_held(lua_State *L) {
    lua_pushboolean(L, look(L, check_lock(L)).held);
    return 1;
}

static int l_holds(lua_State *L) {
    lua_pushinteger(L, (lua_Integer)look(L, check_lock(L)).holds);
    return 1;
}

static int l_remaining(lua_State *L) {
    lua_pushnumber(L, hf_to_seconds(look(L, check_lock(L)).left));
    return 1;
}

static int l_token(lua_State *L) {
    uint64_t token = look(L, check_lock(L)).token;
    if (token == 0) lua_pushnil(L);
    else push_token(L, token);
    return 1;
}

static int l_lost(lua_State *L) {
    lua_pushstring(L, hf_lost_reason_name(look(L, check_lock(L)).loss)); /* NULL is nil */
    return 1;
}

/* untold(lock) -> the reason of a loss that was not told yet, of whichever owner acquired through this handle */
static int l_untold(lua_State *L) {
    hf_lua_lock *lock = check_lock(L);
    if (!lock->driver) return 0;
    enter(lock);
    hf_lost_reason reason = lock->untold;
    lock->untold = HF_LOST_NOT;
    for (size_t i = 0; i < lock->taken_count && reason == HF_LOST_NOT; i++) {
        if (lock->taken[i].told || lock->taken[i].hold->state != HF_HOLD_LOST) continue;
        lock->taken[i].told = true;
        reason = lock->taken[i].hold->reason;
    }
    hf_driver_leave(lock->driver);
    lua_pushstring(L, hf_lost_reason_name(reason));
    return 1;
}

static int l_key(lua_State *L) {
    hf_lua_lock *lock = check_lock(L);
    lua_pushlstring(L, lock->names.key.data, lock->names.key.size);
    return 1;
}

static int l_owner(lua_State *L) {
    hf_lua_lock *lock = check_lock(L);
    lua_Number number = lock->owner ? 0 : coroutine_number(L);
    owner_text text;
    if (!lock->driver) return 0;
    enter(lock);
    hf_driver_leave(lock->driver); /* a fork gives a new uuid */
    hf_slice owner = owner_of(lock, number, &text);
    lua_pushlstring(L, owner.data, owner.size);
    return 1;
}

static int l_tostring(lua_State *L) {
    hf_lua_lock *lock = check_lock(L);
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

static void open_operations(lua_State *L) {
    static const luaL_Reg metamethods[] = {{"__gc", l_op_gc}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"is_done", l_op_is_done}, {"finish", l_op_finish}, {NULL, NULL}};
    hf_new_type(L, HF_OP_TYPE, metamethods);
    lua_pop(L, 1);
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    lua_setfield(L, -2, "operation");
}

void hf_open_lock(lua_State *L) {
    open_operations(L);
    static const luaL_Reg metamethods[] = {{"__gc", l_gc}, {"__tostring", l_tostring}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"new", l_new},
                                         {"begin", l_begin},
                                         {"abandon", l_abandon},
                                         {"allow", l_allow},
                                         {"renumber", l_renumber},
                                         {"acquire", l_acquire},
                                         {"release", l_release},
                                         {"complete", l_complete},
                                         {"acquire_all", l_acquire_all},
                                         {"release_all", l_release_all},
                                         {"force_release", l_force_release},
                                         {"extend", l_extend},
                                         {"check", l_check},
                                         {"is_held", l_is_held},
                                         {"holds", l_holds},
                                         {"remaining", l_remaining},
                                         {"ttl", l_ttl},
                                         {"token", l_token},
                                         {"lost", l_lost},
                                         {"untold", l_untold},
                                         {"info", l_info},
                                         {"key", l_key},
                                         {"owner", l_owner},
                                         {"data", l_data},
                                         {NULL, NULL}};
    hf_new_type(L, HF_LOCK_TYPE, metamethods);
    lua_setfield(L, -2, "lock_type");
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    lua_setfield(L, -2, "lock");
}
