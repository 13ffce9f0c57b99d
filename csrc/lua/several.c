/* Several locks of one client in one step, with the blocking driver. */
#include <assert.h>

#include "lock.h"

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
    if (lost == 0 || failure.code != HF_OK) return failure;
    hf_failure_set(&failure, HF_LOST, "release", first->names.key, first->driver->config.session.server.label,
                   "%zu of %zu keys were not held any more", lost, count);
    return failure;
}

static int run_all(lua_State *L, hf_op_kind kind) {
    hf_lua_lock *locks[HF_ALL_MAX] = {NULL};
    size_t count = check_locks(L, locks);
    if (count == 0 || !locks[0]) return luaL_argerror(L, 1, "no locks");
    hf_failure failure = {.code = HF_OK};
    hf_driver *driver = locks[0]->driver;
    hf_coroutine_number(L); /* may raise: not with the mutex held */
    hf_driver_enter(driver);
    for (size_t i = 0; i < count; i++) hf_lock_notice_fork(locks[i]);
    for (size_t i = 0; i < count && failure.code == HF_OK; i++) hf_lock_prepare(locks[i], &failure);
    if (failure.code == HF_OK) {
        bool releases = kind == HF_OP_RELEASE_ALL;
        failure = releases ? release_locks(L, locks, count) : run_op(L, kind, locks, count);
    }
    hf_driver_leave(driver);
    if (failure.code != HF_OK) return hf_push_failure(L, &failure);
    lua_pushboolean(L, true);
    return 1;
}

/* acquire_all{ lock, … } -> true | nil, message, code: one attempt at all of them or none */
static int l_acquire_all(lua_State *L) {
    return run_all(L, HF_OP_ACQUIRE_ALL);
}

/* release_all{ lock, … } -> true | nil, message, code: lets go of one hold of each */
static int l_release_all(lua_State *L) {
    return run_all(L, HF_OP_RELEASE_ALL);
}

const luaL_Reg hf_lock_several[] = {{"acquire_all", l_acquire_all}, {"release_all", l_release_all}, {NULL, NULL}};
