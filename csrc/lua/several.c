/* Several locks of one client in one step. With the blocking driver a call begins, runs and ends here; with an external
 * one Lua begins an operation, drives the client until it is done, and finishes it. */
#include <assert.h>

#include "lock.h"

/* The locks in the list at index 1: of one client, of the reentrant layout, no key twice. */
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
    lua_Number number = first->owner ? 0 : hf_coroutine_number(L);
    for (size_t i = 0; i < count; i++) names[i] = &locks[i]->names;
    return (hf_op_spec){.kind = kind,
                        .owner = hf_lock_owner(first, number, text),
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
            hf_lock_let_go(locks[i], hold);
        } else if (op->failure.code == HF_OK) {
            hf_lock_take(locks[i], hold);
            locks[i]->last_loss = HF_LOST_NOT;
        }
    }
}

static int push_result(lua_State *L, const hf_failure *failure) {
    if (failure->code != HF_OK) return hf_push_failure(L, failure);
    lua_pushboolean(L, true);
    return 1;
}

static hf_driver *enter(hf_lua_lock *const *locks, size_t count) {
    hf_driver_enter(locks[0]->driver);
    for (size_t i = 0; i < count; i++) hf_lock_notice_fork(locks[i]);
    return locks[0]->driver;
}

static bool prepare(hf_lua_lock *const *locks, size_t count, hf_failure *failure) {
    for (size_t i = 0; i < count && failure->code == HF_OK; i++) hf_lock_prepare(locks[i], failure);
    return failure->code == HF_OK;
}

/* Takes those out whose own hold was lost: what another handle has acquired since is not theirs. How many. */
static size_t take_out_lost(lua_State *L, hf_lua_lock **locks, size_t count) {
    lua_Number number = locks[0]->owner ? 0 : hf_coroutine_number(L);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        owner_text text;
        const taken *lost = hf_lock_lost(locks[i], hf_lock_owner(locks[i], number, &text));
        if (!lost) {
            locks[kept++] = locks[i];
            continue;
        }
        locks[i]->last_loss = lost->hold->reason;
        hf_lock_let_go(locks[i], lost->hold);
    }
    return count - kept;
}

static void add_lost(hf_failure *failure, const hf_lua_lock *first, size_t lost, size_t count) {
    if (lost == 0 || failure->code != HF_OK) return;
    hf_failure_set(failure, HF_LOST, "release", first->names.key, first->driver->config.session.server.label,
                   "%zu of %zu keys were not held any more", lost, count);
}

static hf_failure run_op(lua_State *L, hf_op_kind kind, hf_lua_lock *const *locks, size_t count) {
    const hf_names *names[HF_ALL_MAX];
    owner_text text;
    hf_driver *driver = locks[0]->driver;
    hf_op_spec spec = spec_of_all(L, kind, locks, count, names, &text);
    hf_op *op = hf_run_op(L, driver, &spec, false);
    if (!op) return (hf_failure){.code = HF_NO_MEMORY};
    hf_failure failure = op->failure;
    settle_all(op, locks);
    hf_op_end(op, hf_driver_now(driver));
    return failure;
}

static hf_failure release_locks(lua_State *L, hf_lua_lock **locks, size_t count) {
    const hf_lua_lock *first = locks[0];
    size_t lost = take_out_lost(L, locks, count);
    hf_failure failure = {.code = HF_OK};
    if (lost < count) failure = run_op(L, HF_OP_RELEASE_ALL, locks, count - lost);
    add_lost(&failure, first, lost, count);
    return failure;
}

static int run_all(lua_State *L, hf_op_kind kind) {
    hf_lua_lock *locks[HF_ALL_MAX] = {NULL};
    size_t count = check_locks(L, locks);
    if (count == 0 || !locks[0]) return luaL_argerror(L, 1, "no locks");
    if (locks[0]->driver->external) return luaL_error(L, "this client's operations are begun and finished");
    hf_failure failure = {.code = HF_OK};
    hf_coroutine_number(L); /* may raise: not with the mutex held */
    hf_driver *driver = enter(locks, count);
    if (prepare(locks, count, &failure)) {
        bool releases = kind == HF_OP_RELEASE_ALL;
        failure = releases ? release_locks(L, locks, count) : run_op(L, kind, locks, count);
    }
    hf_driver_leave(driver);
    return push_result(L, &failure);
}

/* acquire_all{ lock, … } -> true | nil, message, code: one attempt at all of them or none */
static int l_acquire_all(lua_State *L) {
    return run_all(L, HF_OP_ACQUIRE_ALL);
}

/* release_all{ lock, … } -> true | nil, message, code: lets go of one hold of each */
static int l_release_all(lua_State *L) {
    return run_all(L, HF_OP_RELEASE_ALL);
}

/* ---- with an external driver ---- */

/* An operation under way, as Lua sees it. Its user value is the list of locks. */
typedef struct all_op {
    hf_op *op; /* NULL: finished, or none of them was held any more */
    hf_lua_lock *first;
    size_t count, lost; /* that take part, that were taken out */
    bool finished;
    owner_text text; /* the operation's owner points here, its names are `names` */
    hf_lua_lock *locks[HF_ALL_MAX];
    const hf_names *names[HF_ALL_MAX];
} all_op;

static all_op *check_all_op(lua_State *L) {
    return luaL_checkudata(L, 1, HF_OP_ALL_TYPE);
}

/* begin_all({ lock, … }, kind) -> operation, its number or 0 when it is done. To be finished once it is done;
 * collecting it gives it up. */
static int l_begin_all(lua_State *L) {
    static const char *const names[] = {"acquire_all", "release_all", NULL};
    static const hf_op_kind kinds[] = {HF_OP_ACQUIRE_ALL, HF_OP_RELEASE_ALL};
    hf_op_kind kind = kinds[luaL_checkoption(L, 2, NULL, names)];
    all_op *self = hf_new_object(L, sizeof *self, HF_OP_ALL_TYPE);
    self->count = check_locks(L, self->locks);
    luaL_argcheck(L, self->count > 0, 1, "no locks");
    luaL_argcheck(L, self->locks[0]->driver->external, 1, "locks of a client that drives itself");
    lua_pushvalue(L, 1);
    hf_setuservalue(L, -2);
    hf_coroutine_number(L);
    hf_failure failure = {.code = HF_OK};
    self->first = self->locks[0];
    hf_driver *driver = enter(self->locks, self->count);
    bool prepared = prepare(self->locks, self->count, &failure);
    if (prepared && kind == HF_OP_RELEASE_ALL) self->lost = take_out_lost(L, self->locks, self->count);
    self->count -= self->lost;
    if (prepared && self->count > 0) {
        hf_op_spec spec = spec_of_all(L, kind, self->locks, self->count, self->names, &self->text);
        self->op = hf_client_begin(&driver->client, &spec, hf_driver_now(driver));
    }
    hf_driver_leave(driver);
    if (!self->op && (!prepared || self->count > 0)) return luaL_error(L, "not enough memory");
    lua_pushnumber(L, self->op ? (lua_Number)self->op->number : 0);
    return 2;
}

/* is_done_all(operation) */
static int l_is_done_all(lua_State *L) {
    const all_op *self = check_all_op(L);
    lua_pushboolean(L, !self->op || self->op->done);
    return 1;
}

static void end_all(all_op *self, hf_time now) {
    hf_op_end(self->op, now);
    self->op = NULL;
}

/* finish_all(operation) -> what the blocking call returns; one that is not done is given up and "interrupted" */
static int l_finish_all(lua_State *L) {
    all_op *self = check_all_op(L);
    if (self->finished) return luaL_error(L, "the operation is finished");
    self->finished = true;
    hf_driver *driver = self->first->driver;
    hf_failure failure = {.code = HF_OK};
    hf_driver_enter(driver);
    if (self->op) {
        hf_time now = hf_driver_now(driver);
        if (!self->op->done) hf_op_give_up(self->op, now);
        failure = self->op->failure;
        settle_all(self->op, self->locks);
        end_all(self, now);
    }
    add_lost(&failure, self->first, self->lost, self->count + self->lost);
    hf_driver_leave(driver);
    return push_result(L, &failure);
}

/* Nobody has taken what this operation acquired. */
static void abandon_acquired(const all_op *self, hf_client *client, hf_time now) {
    const hf_op *op = self->op;
    if (op->spec.kind != HF_OP_ACQUIRE_ALL || !op->done || op->failure.code != HF_OK) return;
    for (size_t i = 0; i < self->count; i++) hf_client_abandon(client, op->holds[i], 1, now);
}

/* At the end of a Lua state the locks may be gone first. */
static bool has_all_locks(const all_op *self) {
    for (size_t i = 0; i < self->count; i++) {
        if (!self->locks[i]->driver) return false;
    }
    return true;
}

static int l_all_gc(lua_State *L) {
    all_op *self = check_all_op(L);
    if (!self->op || !has_all_locks(self)) return 0;
    hf_driver *driver = self->locks[0]->driver;
    hf_driver_enter(driver);
    hf_time now = hf_driver_now(driver);
    abandon_acquired(self, &driver->client, now);
    end_all(self, now);
    hf_driver_leave(driver);
    return 0;
}

void hf_open_operations_of_all(lua_State *L) {
    static const luaL_Reg metamethods[] = {{"__gc", l_all_gc}, {NULL, NULL}};
    hf_new_type(L, HF_OP_ALL_TYPE, metamethods);
    lua_pop(L, 1);
}

const luaL_Reg hf_lock_several[] = {{"acquire_all", l_acquire_all}, {"release_all", l_release_all},
                                    {"begin_all", l_begin_all},     {"is_done_all", l_is_done_all},
                                    {"finish_all", l_finish_all},   {NULL, NULL}};
