/* Operations that atomically acquire several locks of one client (all or none), or release them.
 * With the blocking driver, such an operation begins and ends within one call; with an external
 * driver or an event loop, Lua begins it and finishes it later: see call.c. */
#include "op.h"

#include <string.h>

/* Reads the list of locks at stack index 1, and returns its length. Raises if a lock has been
 * garbage-collected, or unless all locks belong to one client and are of one kind, which supports
 * the operation. */
static size_t check_locks(lua_State *L, hf_op_kind kind, hf_lua_lock *locks[HF_BATCH_MAX]) {
    luaL_checktype(L, 1, LUA_TTABLE);
    size_t count = 0;
    for (;;) {
        lua_rawgeti(L, 1, (int)count + 1);
        if (lua_isnil(L, -1)) break;
        luaL_argcheck(L, count < HF_BATCH_MAX, 1, "too many locks");
        locks[count] = hf_checkudata(L, -1, hf_lock_type);
        luaL_argcheck(L, locks[count]->driver, 1, "a lock that was garbage-collected");
        luaL_argcheck(L, locks[count]->driver == locks[0]->driver, 1, "locks of different clients");
        bool supported = hf_op_kind_supports(kind, locks[count]->kind);
        luaL_argcheck(L, supported && locks[count]->kind == locks[0]->kind, 1,
                      "locks of other kinds");
        lua_pop(L, 1);
        count++;
    }
    lua_pop(L, 1);
    return count;
}

/* Excludes the locks whose hold was lost: the same caller may have acquired a new hold through
 * another handle, which this operation must not release. */
static void exclude_lost(hf_lua_op *self, lua_Number coroutine) {
    size_t given_count = self->count;
    self->count = 0;
    for (size_t i = 0; i < given_count; i++) {
        hf_lua_lock *lock = self->locks[i];
        caller_buffer buffer;
        const hf_lock_entry *lost =
            hf_lock_find_lost(lock, hf_lock_caller(lock, coroutine, &buffer));
        if (!lost) {
            self->locks[self->count++] = lock;
            continue;
        }
        lock->last_loss = hf_view_of(lost->stake.hold).reason;
        hf_lock_end_release(lock, lost->stake.hold);
    }
    self->lost = given_count - self->count;
}

static void fill_spec(hf_op_spec *spec, hf_lua_op *self, lua_Number coroutine) {
    if (hf_op_kind_releases(self->kind)) exclude_lost(self, coroutine);
    for (size_t i = 0; i < self->count; i++) self->names[i] = self->locks[i]->names;
    hf_lua_op_fill_spec(spec, self, coroutine);
    spec->lock_kind = self->first->kind;
    spec->batch = self->names;
    spec->batch_count = self->count;
}

int hf_lock_call_all(lua_State *L) {
    hf_op_kind kind = (hf_op_kind)lua_tointeger(L, lua_upvalueindex(2));
    hf_lua_lock *locks[HF_BATCH_MAX];
    const hf_names *names[HF_BATCH_MAX];
    size_t count = check_locks(L, kind, locks);
    if (count == 0) return luaL_argerror(L, 1, "no locks");
    hf_lua_op self = {
        .kind = kind, .first = locks[0], .locks = locks, .names = names, .count = count};
    hf_lua_op_check_driver(L, locks[0]->driver, true);
    lua_Number coroutine = hf_coroutine_number(L); /* may raise, so before the mutex is locked */
    hf_lua_op_enter(&self);
    hf_op_spec spec;
    fill_spec(&spec, &self, coroutine);
    return hf_lua_op_run(L, &self, &spec);
}

int hf_lock_begin_all(lua_State *L) {
    static const char *const names[] = {"acquire_all", "release_all", NULL};
    static const hf_op_kind kinds[] = {HF_OP_ACQUIRE_ALL, HF_OP_RELEASE_ALL};
    hf_op_kind kind = kinds[luaL_checkoption(L, 2, NULL, names)];
    hf_lua_lock *locks[HF_BATCH_MAX];
    size_t count = check_locks(L, kind, locks);
    if (count == 0) return luaL_argerror(L, 1, "no locks");
    hf_lua_op_check_driver(L, locks[0]->driver, false);
    hf_lua_op *self = hf_lua_op_new(L, count);
    hf_lua_op_anchor(L, 1, 1);
    self->kind = kind;
    self->first = locks[0];
    self->names = (const hf_names **)(self->locks + count);
    memcpy(self->locks, locks, count * sizeof *locks);
    lua_Number coroutine = hf_coroutine_number(L); /* may raise, so before the mutex is locked */
    hf_lua_op_enter(self);
    hf_op_spec spec;
    fill_spec(&spec, self, coroutine);
    return hf_lua_op_begin(L, self, &spec);
}
