/* Operations in Lua. This file begins an operation, applies its result to the locks, and pushes the
 * result. call.c and batch.c fill the operation's spec. */
#include "op.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- beginning ---- */

void hf_lua_op_check_driver(lua_State *L, const hf_driver *driver, bool blocks) {
    if (blocks == (driver->external || driver->uses_event_loop))
        luaL_error(L, blocks ? "this client does not block; use begin and finish"
                             : "this client drives itself");
    hf_check_not_fetching(L, driver);
}

/* The maximum number of anchored values; the first is the lock or the list of locks. */
#define MAX_ANCHORS 3

hf_lua_op *hf_lua_op_new(lua_State *L, size_t count) {
    size_t size = count * (sizeof(hf_lua_lock *) + sizeof(const hf_names *));
    hf_lua_op *self = hf_new_object(L, sizeof *self + size, hf_op_type);
    self->count = count;
    self->locks = (hf_lua_lock **)(self + 1);
    lua_createtable(L, MAX_ANCHORS, 0);
    hf_setuservalue(L, -2);
    return self;
}

hf_lua_op *hf_lua_op_reuse(lua_State *L, int index) {
    hf_lua_op *self = hf_checkudata(L, index, hf_op_type);
    luaL_argcheck(L, self->finished && !self->names, index, "not a finished operation on one lock");
    *self = (hf_lua_op){
        .ticket = self->ticket, .generation = self->generation, .count = 1, .locks = self->locks};
    lua_pushvalue(L, index);
    return self;
}

void hf_lua_op_anchor(lua_State *L, int slot, int index) {
    assert(slot >= 1 && slot <= MAX_ANCHORS && hf_testudata(L, -1, hf_op_type));
    hf_getuservalue(L, -1);
    lua_pushvalue(L, index);
    lua_rawseti(L, -2, slot);
    lua_pop(L, 1);
}

/* Replaces the operation at stack index 1 with its first anchored value, and drops its anchors. */
static void release_anchors(lua_State *L) {
    hf_getuservalue(L, 1);
    lua_rawgeti(L, -1, 1);
    lua_replace(L, 1);
    for (int slot = 1; slot <= MAX_ANCHORS; slot++) {
        lua_pushnil(L);
        lua_rawseti(L, -2, slot);
    }
    lua_pop(L, 1);
}

bool hf_lua_op_enter(const hf_lua_op *self) {
    hf_driver *driver = self->first->driver;
    hf_driver_enter(driver);
    for (size_t i = 0; i < self->count; i++) hf_lock_notice_fork(self->locks[i]);
    return !self->op || self->generation == driver->generation;
}

void hf_lua_op_fill_spec(hf_op_spec *spec, hf_lua_op *self, lua_Number coroutine) {
    const hf_lua_lock *first = self->first;
    assert(hf_driver_is_entered(first->driver));
    *spec = (hf_op_spec){.kind = self->kind};
    if (self->generation == first->driver->generation) spec->ticket = self->ticket;
    spec->caller = hf_lock_caller(first, coroutine, &self->caller);
    spec->time_limit = first->settings.time_limit;
    spec->observer = first->settings.observer;
    spec->class = first->settings.class;
    if (!hf_op_kind_acquires(self->kind)) return;
    spec->agent = (uint64_t)coroutine;
    spec->lease = first->settings.lease;
    spec->max_hold = first->settings.max_hold;
    spec->token_ttl_ms = first->settings.token_ttl_ms;
    spec->renewed = first->settings.renewed;
    spec->shared = first->shared;
    spec->permits = first->kind->has_permits ? first->settings.permits : 0;
    spec->initial_permits = first->settings.initial_permits;
}

/* Makes room for the entries, and starts the watchdog. On failure sets `failure` and returns
 * false. */
static bool prepare_to_begin(const hf_lua_op *self, const hf_op_spec *spec, hf_failure *failure) {
    hf_driver *driver = self->first->driver;
    bool acquires = hf_op_kind_acquires(self->kind);
    if (!acquires && !hf_op_kind_may_need_clean_up(self->kind)) return true;
    for (size_t i = 0; acquires && i < self->count; i++) {
        if (hf_lock_reserve(self->locks[i], spec->caller)) continue;
        failure->code = HF_NO_MEMORY;
        return false;
    }
    if (driver->closed || hf_driver_start_watchdog(driver)) return true;
    hf_failure_set(failure, HF_SERVER, "acquire", self->first->names->key,
                   hf_client_label(driver->client), "cannot start a thread for the watchdog: %s",
                   strerror(errno));
    return false;
}

/* ---- the holds ---- */

static void add_hold(hf_lua_lock *lock, const hf_op *op, hf_hold *hold, hf_time now) {
    lock->balance++;
    lock->waited = hf_to_seconds(now - hf_op_begun_at(op));
    hf_lock_add_hold(lock, hold);
    hf_client_approve(lock->driver->client, hold, now); /* its caller is waiting for the result */
    lock->last_loss = HF_LOST_NONE;
}

/* Returns whether a release with this result has ended this hold. A release that did not reach the
 * server counts, because it continues in the background. After a loss, each of several holds must
 * be examined, because perhaps only some were lost. */
static bool ends_hold(const hf_lua_op *self, hf_code code, const hf_hold_view *view) {
    if (code == HF_LOST) return self->names && view->state != HF_HOLD_LOST;
    return code != HF_CONFLICT && code != HF_NOT_HELD;
}

/* Records in the lock how the operation has changed the hold. */
static void update_lock(const hf_lua_op *self, hf_lua_lock *lock, hf_hold *hold, hf_time now) {
    hf_code code = hf_op_code(self->op);
    hf_hold_view view = hf_view_of(hold);
    bool lost = code == HF_LOST || view.state == HF_HOLD_LOST;
    if (lost && view.reason != HF_LOST_NONE) lock->last_loss = view.reason;
    if (hf_op_kind_acquires(self->kind) && code == HF_OK) add_hold(lock, self->op, hold, now);
    if (code == HF_BUSY) lock->wait_end = hf_op_wait_end(self->op);
    if (!hf_op_kind_releases(self->kind)) return;
    if (ends_hold(self, code, &view)) lock->balance--;
    hf_lock_end_release(lock, hold);
}

/* Abandons holds that this operation has acquired but that no caller has received. */
static void abandon_acquired(const hf_lua_op *self) {
    hf_driver *driver = self->first->driver;
    const hf_op *op = self->op;
    if (!hf_op_kind_acquires(self->kind) || !hf_op_is_done(op) || hf_op_code(op) != HF_OK) return;
    for (size_t i = 0; i < hf_op_hold_count(op); i++)
        hf_client_abandon(driver->client, hf_op_hold(op, i), 1, hf_driver_now(driver));
}

/* Calls `act` for each hold that the operation releases, even if the release was abandoned. */
static void for_released(const hf_lua_op *self, void (*act)(hf_lua_lock *, hf_hold *)) {
    for (size_t i = 0; hf_op_kind_releases(self->kind) && i < hf_op_hold_count(self->op); i++) {
        if (hf_op_hold(self->op, i)) act(self->locks[i], hf_op_hold(self->op, i));
    }
}

/* ---- the result ---- */

/* The operation's result, for use after the mutex is unlocked. */
typedef struct outcome {
    hf_call_returns returns;
    bool has_permits; /* the lock is a semaphore */
    hf_result result; /* the caller frees its reply and record */
} outcome;

/* Ends the operation, unless it is detached: then it ends itself. */
static void end_op(hf_lua_op *self, hf_time now) {
    if (self->op && !hf_op_is_detached(self->op)) hf_op_end(self->op, now);
    self->op = NULL;
}

static void report_lost(const hf_lua_op *self, hf_failure *failure) {
    const hf_lua_lock *first = self->first;
    if (self->lost == 0 || failure->code != HF_OK) return;
    hf_failure_set(
        failure, HF_LOST, "release", first->names->key, first->driver->config.session.server.label,
        "%zu of the %zu locks had already been lost", self->lost, self->lost + self->count);
}

static void take_result(hf_lua_op *self, hf_result *result) {
    const hf_op *op = self->op;
    hf_time now = hf_driver_now(self->first->driver);
    for (size_t i = 0; i < hf_op_hold_count(op); i++) {
        if (hf_op_hold(op, i)) update_lock(self, self->locks[i], hf_op_hold(op, i), now);
    }
    hf_op_take_result(self->op, result);
    end_op(self, now);
}

static void set_integer(lua_State *L, const char *name, long long value) {
    lua_pushinteger(L, (lua_Integer)value);
    lua_setfield(L, -2, name);
}

/* Converts a reply to PTTL to seconds and pushes it: math.huge without a TTL, nil without a key. */
static void push_ttl(lua_State *L, long long ttl_ms) {
    if (ttl_ms == -2) lua_pushnil(L);
    else lua_pushnumber(L, ttl_ms == -1 ? HUGE_VAL : (double)ttl_ms / 1e3);
}

static void push_info(lua_State *L, const hf_lock_info *info, bool has_permits) {
    lua_newtable(L);
    if (info->owner_size > 0) hf_set_string(L, "owner", (hf_slice){info->owner, info->owner_size});
    set_integer(L, "holds", info->holds);
    set_integer(L, "waiters", info->waiters);
    if (has_permits) set_integer(L, "free", info->free);
    if (info->ahead >= 0) set_integer(L, "position", info->ahead + 1);
    if (info->readers >= 0) set_integer(L, "readers", info->readers);
    push_ttl(L, info->ttl_ms);
    lua_setfield(L, -2, "ttl");
    hf_set_number(L, "clock", (double)info->clock_us / 1e6);
    if (info->waited_us >= 0) hf_set_number(L, "waits", (double)info->waited_us / 1e6);
    if (info->token > 0) hf_set_count(L, "token", info->token);
}

/* Pushes nil, message, "duplicate", record. */
static int push_record(lua_State *L, const hf_result *result) {
    int pushed = hf_push_error(L, result->failure.code, result->failure.text);
    lua_pushlstring(L, result->record, result->record_size);
    free(result->record);
    return pushed + 1;
}

/* Pushes the results of the call; the lock is at stack index 1. */
static int push_outcome(lua_State *L, const outcome *out) {
    const hf_result *result = &out->result;
    if (result->record) return push_record(L, result);
    if (result->failure.code != HF_OK)
        return hf_push_error(L, result->failure.code, result->failure.text);
    switch (out->returns) {
    case HF_RETURNS_LOCK: lua_pushvalue(L, 1); break;
    case HF_RETURNS_BOOLEAN: lua_pushboolean(L, result->value > 0); break;
    case HF_RETURNS_VALUE: lua_pushinteger(L, (lua_Integer)result->value); break;
    case HF_RETURNS_VALUE_OR_FALSE:
        if (result->value < 0) lua_pushboolean(L, false);
        else lua_pushinteger(L, (lua_Integer)result->value);
        break;
    case HF_RETURNS_TTL: push_ttl(L, result->value); break;
    case HF_RETURNS_INFO: push_info(L, &result->info, out->has_permits); break;
    case HF_RETURNS_REPLY: return hf_push_reply(L, result->reply);
    default: lua_pushboolean(L, true);
    }
    return 1;
}

/* Sets only some fields, because clearing the large strings of the struct would cost time. */
static void init_outcome(outcome *out, const hf_lua_op *self) {
    out->returns = hf_op_rows[self->kind].returns;
    if (out->returns == HF_RETURNS_INFO) memset(&out->result.info, 0, sizeof out->result.info);
    out->has_permits = self->first->kind->has_permits;
    out->result.failure.code = HF_OK;
    out->result.value = 0;
    out->result.reply = NULL;
    out->result.record = NULL;
}

/* ---- with the blocking driver ---- */

int hf_lua_op_run(lua_State *L, hf_lua_op *self, hf_op_spec *spec) {
    hf_driver *driver = self->first->driver;
    assert(hf_driver_is_entered(driver) && !self->op);
    outcome out;
    hf_result *result = &out.result;
    init_outcome(&out, self);
    spec->blocks_callers = true;
    if (self->count > 0 && prepare_to_begin(self, spec, &result->failure)) {
        bool sends_only = self->kind == HF_OP_RELEASE && self->first->settings.async_release;
        self->op = sends_only ? hf_send_op(L, driver, spec)
                              : hf_run_op(L, driver, spec, self->first->settings.interruptible);
        if (self->op) take_result(self, result);
        else result->failure.code = HF_NO_MEMORY;
    }
    report_lost(self, &result->failure);
    hf_driver_leave(driver);
    return push_outcome(L, &out);
}

/* ---- with an external driver or an event loop ---- */

static void pin(const hf_lua_op *self) {
    hf_lock_pin(self->first);
    for (size_t i = 0; i < self->count; i++) hf_lock_pin(self->locks[i]);
}

static void unpin(const hf_lua_op *self) {
    for (size_t i = 0; i < self->count; i++) hf_lock_unpin(self->locks[i]);
    hf_lock_unpin(self->first);
}

int hf_lua_op_begin(lua_State *L, hf_lua_op *self, const hf_op_spec *spec) {
    hf_driver *driver = self->first->driver;
    assert(hf_driver_is_entered(driver) && !self->op && hf_testudata(L, -1, hf_op_type) == self);
    hf_failure failure = {.code = HF_OK};
    self->generation = driver->generation;
    if (self->count > 0 && prepare_to_begin(self, spec, &failure))
        self->op = hf_driver_begin(driver, spec);
    if (self->op) for_released(self, hf_lock_begin_release);
    hf_driver_leave(driver);
    if (!self->op && self->count > 0) return luaL_error(L, "not enough memory");
    if (self->op) self->ticket = hf_op_ticket(self->op), pin(self);
    lua_pushnumber(L, self->op ? (lua_Number)self->ticket : 0);
    lua_pushboolean(L, !self->op || hf_op_is_done(self->op));
    return 3;
}

static hf_lua_op *check_op(lua_State *L) {
    return hf_checkudata(L, 1, hf_op_type);
}

/* is_done(operation) */
static int l_is_done(lua_State *L) {
    const hf_lua_op *self = check_op(L);
    bool done = true;
    if (self->op) {
        done = !hf_lua_op_enter(self) || hf_op_is_done(self->op);
        hf_driver_leave(self->first->driver);
    }
    lua_pushboolean(L, done);
    return 1;
}

/* finish(operation) -> the results of the blocking call. An operation that is not done is
 * abandoned, with the code "interrupted". */
static int l_finish(lua_State *L) {
    hf_lua_op *self = check_op(L);
    outcome out;
    if (self->finished) return luaL_error(L, "the operation has already finished");
    init_outcome(&out, self);
    self->finished = true;
    release_anchors(L);
    bool began_here = hf_lua_op_enter(self), has_begun = self->op != NULL;
    if (began_here && has_begun) {
        if (!hf_op_is_done(self->op) && !hf_op_is_detached(self->op))
            hf_op_abandon(self->op, hf_driver_now(self->first->driver));
        take_result(self, &out.result);
    }
    report_lost(self, &out.result.failure);
    self->op = NULL;
    hf_driver_leave(self->first->driver);
    if (has_begun) unpin(self);
    if (began_here) return push_outcome(L, &out);
    return hf_push_error(L, HF_INTERRUPTED,
                         "the process was forked, and only the parent can finish this operation");
}

/* wait(operation, other) -> whether `operation` is done: runs both with the blocking driver until
 * one of them is done; a signal interrupts only `operation` */
static int l_wait(lua_State *L) {
    const hf_lua_op *self = check_op(L), *other = hf_checkudata(L, 2, hf_op_type);
    bool done = true;
    if (self->op) {
        hf_driver *driver = self->first->driver;
        hf_lua_op_check_driver(L, driver, true);
        bool began_here = hf_lua_op_enter(self);
        if (began_here)
            hf_run_both(L, driver, self->op, other->op, self->first->settings.interruptible);
        done = !began_here || hf_op_is_done(self->op);
        hf_driver_leave(driver);
    }
    lua_pushboolean(L, done);
    return 1;
}

/* detach(operation) -> the results of finish; an unfinished release continues in the background |
 * false if the operation is not done and the caller must wait for it */
static int l_detach(lua_State *L) {
    const hf_lua_op *self = check_op(L);
    bool must_wait = false;
    if (self->op && !self->finished) {
        bool may_detach = hf_op_kind_releases(self->kind);
        must_wait = hf_lua_op_enter(self) && !hf_op_is_done(self->op) &&
                    !(may_detach && hf_op_detach(self->op));
        hf_driver_leave(self->first->driver);
    }
    if (!must_wait) return l_finish(L);
    lua_pushboolean(L, false);
    return 1;
}

/* abandon(operation), which is also its finalizer: discards the result, and abandons the holds that
 * the operation has acquired */
static int l_op_abandon(lua_State *L) {
    hf_lua_op *self = check_op(L);
    self->finished = true;
    if (!self->op) return 0;
    if (hf_lua_op_enter(self)) {
        abandon_acquired(self);
        for_released(self, hf_lock_end_release);
        end_op(self, hf_driver_now(self->first->driver));
        hf_driver_wake(self->first->driver);
    }
    self->op = NULL;
    hf_driver_leave(self->first->driver);
    unpin(self);
    return 0;
}

void hf_open_operations(lua_State *L) {
    static const luaL_Reg metamethods[] = {{"__gc", l_op_abandon}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"is_done", l_is_done},    {"wait", l_wait},
                                         {"finish", l_finish},      {"detach", l_detach},
                                         {"abandon", l_op_abandon}, {NULL, NULL}};
    hf_new_type(L, hf_op_type, metamethods);
    hf_new_methods(L, functions);
    lua_pop(L, 1);
    lua_newtable(L);
    hf_set_functions(L, functions);
    lua_setfield(L, -2, "operation");
}
