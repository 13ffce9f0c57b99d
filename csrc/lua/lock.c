/* The lock userdata: its creation, destruction and holds, and calls that do not ask the server. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lock.h"

/* ---- the entries ---- */

static void move_entry(hf_lock_entry *to, const hf_lock_entry *from) {
    *to = *from;
    hf_stake_move(&to->stake, &from->stake);
}

/* If a detached release found a loss, from now on only `last_loss` records it. */
static void drop_entry(hf_lua_lock *lock, size_t i) {
    assert(i < lock->entry_count && lock->generation == lock->driver->generation);
    hf_hold_view view = hf_view_of(lock->entries[i].stake.hold);
    if (view.detached && view.reason != HF_LOST_NONE) lock->last_loss = view.reason;
    hf_stake_end(&lock->entries[i].stake);
    if (i < --lock->entry_count) move_entry(&lock->entries[i], &lock->entries[lock->entry_count]);
}

void hf_lock_notice_fork(hf_lua_lock *lock) {
    assert(hf_driver_is_entered(lock->driver));
    if (lock->generation == lock->driver->generation) return;
    lock->generation = lock->driver->generation;
    lock->entry_count = 0;
}

void hf_lock_enter(hf_lua_lock *lock) {
    hf_driver_enter(lock->driver);
    hf_lock_notice_fork(lock);
}

/* Returns whether the entry is no longer needed: its loss was reported, and its owner has no newer
 * hold that could be mistaken for the lost one. */
static bool is_obsolete(const hf_lua_lock *lock, const hf_lock_entry *entry) {
    return entry->count == 0 && !hf_view_of(entry->stake.hold).ending &&
           !hf_client_has_hold_like(lock->driver->client, entry->stake.hold);
}

/* Drops the obsolete entries, except those of `caller`, which is about to acquire: if it acquires
 * through another handle first, they are needed again. */
static void drop_obsolete(hf_lua_lock *lock, hf_slice caller) {
    for (size_t i = lock->entry_count; i-- > 0;) {
        const hf_lock_entry *entry = &lock->entries[i];
        bool is_ours = hf_slice_equal(hf_hold_caller(entry->stake.hold), caller);
        if (!is_ours && is_obsolete(lock, entry)) drop_entry(lock, i);
    }
}

bool hf_lock_reserve(hf_lua_lock *lock, hf_slice caller) {
    assert(hf_driver_is_entered(lock->driver));
    size_t additional = (size_t)lock->operation_count + 1;
    if (lock->entry_count + additional > lock->entry_capacity) drop_obsolete(lock, caller);
    size_t needed = lock->entry_count + additional;
    if (needed <= lock->entry_capacity) return true;
    size_t capacity = needed > 1 ? 2 * needed : 1;
    hf_lock_entry *grown = malloc(capacity * sizeof *grown);
    if (!grown) return false;
    for (size_t i = 0; i < lock->entry_count; i++) move_entry(&grown[i], &lock->entries[i]);
    free(lock->entries);
    lock->entries = grown;
    lock->entry_capacity = capacity;
    return true;
}

/* Drops the entries of the caller's ended holds, except one loss that no release has reported. */
static void drop_ended(hf_lua_lock *lock, hf_slice caller) {
    bool kept = false;
    for (size_t i = lock->entry_count; i-- > 0;) {
        const hf_hold *hold = lock->entries[i].stake.hold;
        hf_hold_view view = hf_view_of(hold);
        if (!view.over || view.ending || !hf_slice_equal(hf_hold_caller(hold), caller)) continue;
        bool keep = view.state == HF_HOLD_LOST && lock->entries[i].count > 0 && !kept;
        if (!keep) drop_entry(lock, i);
        kept = kept || keep;
    }
}

void hf_lock_add_hold(hf_lua_lock *lock, hf_hold *hold) {
    assert(hf_driver_is_entered(lock->driver));
    drop_ended(lock, hf_hold_caller(hold));
    for (size_t i = lock->entry_count; i-- > 0;) {
        if (lock->entries[i].stake.hold == hold) {
            lock->entries[i].count++;
            return;
        }
    }
    assert(lock->entry_count < lock->entry_capacity); /* hf_lock_reserve was called */
    hf_lock_entry *entry = &lock->entries[lock->entry_count++];
    *entry = (hf_lock_entry){.count = 1};
    hf_stake_begin(&entry->stake, lock->driver->client, hold, &lock->losses);
}

void hf_lock_begin_release(hf_lua_lock *lock, hf_hold *hold) {
    assert(hf_driver_is_entered(lock->driver));
    for (size_t i = 0; i < lock->entry_count; i++) {
        hf_lock_entry *entry = &lock->entries[i];
        if (entry->stake.hold != hold || entry->count == entry->releasing) continue;
        entry->releasing++;
        return;
    }
}

/* Ends the renewals that `collect` began. */
static void stop_renewing(hf_lua_lock *lock, hf_lock_entry *entry) {
    hf_hold *hold = entry->stake.hold;
    if (entry->renewed_until_settled && hf_view_of(hold).held)
        hf_client_set_renewed(lock->driver->client, hold, false, hf_driver_now(lock->driver));
    entry->renewed_until_settled = false;
}

void hf_lock_end_release(hf_lua_lock *lock, hf_hold *hold) {
    assert(hf_driver_is_entered(lock->driver));
    hf_hold_view view = hf_view_of(hold);
    bool has_entry = false;
    for (size_t i = lock->entry_count; i-- > 0;) {
        hf_lock_entry *entry = &lock->entries[i];
        if (entry->stake.hold != hold) continue;
        has_entry = has_entry || entry->count > 0;
        entry->count = view.over || entry->count == 0 ? 0 : entry->count - 1;
        if (entry->releasing > 0) entry->releasing--;
        if (entry->releasing > entry->count) entry->releasing = entry->count;
        stop_renewing(lock, entry);
        bool lost =
            view.state == HF_HOLD_LOST && hf_client_has_hold_like(lock->driver->client, hold);
        if (entry->count == 0 && !lost && !view.ending) drop_entry(lock, i);
    }
    if (!has_entry && !view.over) hf_hold_add_stray(hold);
}

const hf_lock_entry *hf_lock_find_lost(const hf_lua_lock *lock, hf_slice caller) {
    assert(hf_driver_is_entered(lock->driver));
    const hf_lock_entry *lost = NULL;
    for (size_t i = 0; i < lock->entry_count; i++) {
        const hf_lock_entry *entry = &lock->entries[i];
        if (!hf_slice_equal(hf_hold_caller(entry->stake.hold), caller)) continue;
        hf_hold_view view = hf_view_of(entry->stake.hold);
        if (view.in_table) return NULL;
        if (view.state == HF_HOLD_LOST && !is_obsolete(lock, entry)) lost = entry;
    }
    return lost;
}

/* ---- creating and destroying ---- */

static const hf_kind *check_kind(lua_State *L) {
    hf_push_field(L, 2, "kind");
    const char *name = luaL_optstring(L, -1, "lock");
    const hf_kind *kind = hf_kind_by_name(name);
    if (!kind) luaL_error(L, "there is no kind of lock called %s", name);
    lua_pop(L, 1);
    return kind;
}

/* Reads the settings from the table at stack index 2. */
static void read_settings(lua_State *L, hf_lock_settings *settings) {
    settings->lease = hf_to_time(hf_field_number(L, 2, "lease"));
    settings->max_hold = hf_to_time(hf_field_number(L, 2, "max_hold"));
    settings->wait = hf_field_number(L, 2, "wait");
    settings->time_limit = hf_to_time(hf_field_number(L, 2, "within"));
    settings->limits_waiters = hf_field_boolean(L, 2, "max_waiters");
    settings->max_waiters = (uint32_t)hf_field_integer(L, 2, "max_waiters", UINT32_MAX);
    settings->keep = hf_to_time(hf_field_number(L, 2, "keep"));
    settings->observer = hf_field_integer(L, 2, "observer", UINT64_MAX);
    settings->class = (uint16_t)hf_field_integer(L, 2, "class", HF_CLASSES_MAX - 1);
    settings->deadlock_check = hf_to_time(hf_field_number(L, 2, "deadlock_check"));
    settings->token_ttl_ms =
        hf_to_integer(ceil(hf_field_number(L, 2, "token_ttl") * 1000), HF_NO_TOKEN_TTL);
    settings->permits = (uint32_t)hf_field_integer(L, 2, "permits", UINT32_MAX);
    settings->initial_permits = hf_field_integer(L, 2, "initial_permits", INT64_MAX);
    settings->renewed = hf_field_boolean(L, 2, "renewed");
    settings->interruptible = hf_field_boolean(L, 2, "interruptible");
    settings->async_release = hf_field_boolean(L, 2, "async_release");
}

/* Copies the owner, if there is one, and the fingerprint. Returns false when out of memory. */
static bool copy_strings(hf_lua_lock *lock, hf_slice owner, hf_slice fingerprint) {
    lock->strings = malloc(owner.size + fingerprint.size + 1);
    if (!lock->strings) return false;
    if (owner.data) {
        memcpy(lock->strings, owner.data, owner.size);
        lock->shared = true;
        lock->owner = lock->strings;
        lock->owner_size = owner.size;
    }
    memcpy(lock->strings + owner.size, fingerprint.data, fingerprint.size);
    lock->fingerprint = (hf_slice){lock->strings + owner.size, fingerprint.size};
    return true;
}

/* The strings for a new lock, which stay on the stack. */
typedef struct strings {
    hf_slice key, owner, fingerprint;
} strings;

static strings check_strings(lua_State *L) {
    strings found = {0};
    luaL_checktype(L, 2, LUA_TTABLE);
    hf_push_field(L, 2, "key");
    found.key = hf_check_slice(L, -1);
    luaL_argcheck(L, found.key.size > 0, 2, "key must not be empty");
    hf_push_field(L, 2, "owner");
    found.owner.data = luaL_optlstring(L, -1, NULL, &found.owner.size);
    if (!found.owner.data) found.owner.size = 0;
    bool is_valid = found.owner.size <= HF_OWNER_MAX && (!found.owner.data || found.owner.size > 0);
    luaL_argcheck(L, is_valid, 2, "owner must be 1 to 255 bytes long");
    hf_push_field(L, 2, "fingerprint");
    found.fingerprint.data = luaL_optlstring(L, -1, "", &found.fingerprint.size);
    return found;
}

/* Creates a lock on top of the stack, and pops its user value from there. */
static hf_lua_lock *new_lock(lua_State *L, hf_driver *driver, const hf_kind *kind, hf_slice key) {
    bool has_permits = kind->has_permits;
    hf_lua_lock *lock = hf_new_object(L, sizeof *lock, has_permits ? hf_permit_type : hf_lock_type);
    lua_insert(L, -2);
    hf_setuservalue(L, -2);
    *lock = (hf_lua_lock){.driver = driver,
                          .kind = kind,
                          .generation = driver->generation,
                          .handle = has_permits ? ++driver->last_handle : 0,
                          .waited = -1};
    hf_driver_ref(driver);
    lock->names = hf_client_names(driver->client, kind, key);
    if (!lock->names) luaL_error(L, "not enough memory");
    return lock;
}

/* new(client, { key, kind, owner, fingerprint, lease, max_hold, wait, within, max_waiters, keep,
 * observer, class, deadlock_check, token_ttl, permits, initial_permits, renewed, interruptible,
 * async_release }) -> lock, or permits. Keeps the table, which must refer to the client. */
static int l_new(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    strings found = check_strings(L);
    const hf_kind *kind = check_kind(L);
    luaL_argcheck(L, !kind->has_permits || hf_field_integer(L, 2, "permits", 1) > 0, 2,
                  "no permits");
    lua_pushvalue(L, 2);
    hf_lua_lock *lock = new_lock(L, driver, kind, found.key);
    read_settings(L, &lock->settings);
    if (!copy_strings(lock, found.owner, found.fingerprint))
        return luaL_error(L, "not enough memory");
    return 1;
}

/* copy(lock, key) -> a lock with another key and the same settings, but no owner or fingerprint */
static int l_copy(lua_State *L) {
    const hf_lua_lock *from = hf_lock_check(L);
    hf_slice key = hf_check_slice(L, 2);
    luaL_argcheck(L, key.size > 0, 2, "key must not be empty");
    if (!from->driver) return luaL_error(L, "the lock was garbage-collected");
    hf_getuservalue(L, 1);
    new_lock(L, from->driver, from->kind, key)->settings = from->settings;
    return 1;
}

/* Abandons up to `count` holds of the entry. Returns the number of abandoned holds. */
static uint32_t abandon_holds(hf_lua_lock *lock, size_t i, uint32_t count, hf_time now) {
    hf_lock_entry *entry = &lock->entries[i];
    assert(entry->releasing <= entry->count);
    uint32_t left = entry->count - entry->releasing, abandoned = left < count ? left : count;
    if (entry->releasing == 0 || abandoned > 0)
        hf_client_abandon(lock->driver->client, entry->stake.hold, abandoned, now);
    stop_renewing(lock, entry);
    entry->count -= abandoned;
    if (entry->count == 0) drop_entry(lock, i);
    return abandoned;
}

/* Abandons all entries. Does no I/O: the watchdog releases the holds. */
static void abandon_all(hf_lua_lock *lock) {
    hf_lock_enter(lock);
    hf_time now = hf_driver_now(lock->driver);
    for (size_t i = lock->entry_count; i-- > 0;) abandon_holds(lock, i, UINT32_MAX, now);
    while (lock->operation_count == 0 && lock->entry_count > 0) drop_entry(lock, 0);
    hf_driver_wake(lock->driver);
    hf_driver_leave(lock->driver);
}

static void free_lock(hf_lua_lock *lock) {
    abandon_all(lock);
    hf_names_delete(lock->names);
    lock->names = NULL;
    free(lock->entries);
    free(lock->strings);
    lock->strings = lock->owner = NULL;
    hf_driver_unref(lock->driver);
    lock->driver = NULL;
}

void hf_lock_pin(hf_lua_lock *lock) {
    lock->operation_count++;
}

void hf_lock_unpin(hf_lua_lock *lock) {
    assert(lock->operation_count > 0);
    if (--lock->operation_count == 0 && lock->collected) free_lock(lock);
}

static int l_gc(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return 0;
    lock->collected = true;
    if (lock->operation_count == 0) free_lock(lock);
    else abandon_all(lock);
    return 0;
}

/* Returns the caller's number, or the one at stack index 2. */
static lua_Number check_number(lua_State *L, const hf_lua_lock *lock) {
    if (lua_isnumber(L, 2)) return hf_check_within(L, 2, HF_MAX_COROUTINE_NUMBER);
    return lock->owner || lock->handle > 0 ? 0 : hf_coroutine_number(L);
}

/* number(lock) -> the caller's number among the callers of this handle; 0 if they all share one
 * owner */
static int l_number(lua_State *L) {
    lua_pushnumber(L, check_number(L, hf_lock_check(L)));
    return 1;
}

/* Abandons up to `count` holds of this caller. Returns the number of abandoned holds. */
static uint32_t abandon_caller(hf_lua_lock *lock, hf_slice caller, uint32_t count, hf_time now) {
    uint32_t left = count;
    for (size_t i = lock->entry_count; i-- > 0 && left > 0;) {
        const hf_lock_entry *entry = &lock->entries[i];
        bool is_other = !hf_slice_equal(hf_hold_caller(entry->stake.hold), caller);
        if (is_other) continue;
        left -= abandon_holds(lock, i, left, now);
    }
    return count - left;
}

/* abandon(lock [, number, count]): begins to release in the background, without I/O, everything
 * that was acquired through this handle, or up to `count` holds of the caller with this number */
static int l_abandon(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return 0; /* a weak table may still refer to it */
    if (lua_isnoneornil(L, 2)) {
        abandon_all(lock);
        lock->balance = 0;
        return 0;
    }
    lua_Number number = hf_check_within(L, 2, HF_MAX_COROUTINE_NUMBER);
    uint32_t count = (uint32_t)hf_check_within(L, 3, UINT32_MAX);
    caller_buffer buffer;
    hf_lock_enter(lock);
    hf_time now = hf_driver_now(lock->driver);
    lock->balance -= abandon_caller(lock, hf_lock_caller(lock, number, &buffer), count, now);
    hf_driver_wake(lock->driver);
    hf_driver_leave(lock->driver);
    return 0;
}

/* approve(lock, number): reports that the caller with this number is still alive, so that its hold
 * is renewed if that needs approval */
static int l_approve(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    lua_Number number = hf_check_within(L, 2, HF_MAX_COROUTINE_NUMBER);
    caller_buffer buffer;
    if (!lock->driver) return 0;
    hf_lock_enter(lock);
    hf_client *client = lock->driver->client;
    hf_hold *hold =
        hf_client_find(client, lock->kind, lock->names, hf_lock_caller(lock, number, &buffer));
    if (hold) hf_client_approve(client, hold, hf_driver_now(lock->driver));
    hf_driver_leave(lock->driver);
    return 0;
}

/* ---- locks of a set that is being acquired ---- */

/* Until `settle` no caller knows that the lock is held, so its loss must not be reported. */
static void collect(hf_lua_lock *lock, hf_lock_entry *entry) {
    hf_hold_view view = hf_view_of(entry->stake.hold);
    if (view.count == 1) entry->stake.muted = true;
    if (view.renewed) return;
    entry->renewed_until_settled = true;
    hf_client_set_renewed(lock->driver->client, entry->stake.hold, true,
                          hf_driver_now(lock->driver));
}

static void settle(hf_lua_lock *lock, hf_lock_entry *entry) {
    entry->stake.muted = false;
    stop_renewing(lock, entry);
}

static int for_own_entries(lua_State *L, void (*act)(hf_lua_lock *, hf_lock_entry *)) {
    hf_lua_lock *lock = hf_lock_check(L);
    lua_Number number = check_number(L, lock);
    caller_buffer buffer;
    if (!lock->driver) return 0;
    hf_lock_enter(lock);
    hf_slice caller = hf_lock_caller(lock, number, &buffer);
    for (size_t i = 0; i < lock->entry_count; i++) {
        hf_lock_entry *entry = &lock->entries[i];
        bool is_ours =
            entry->count > 0 && hf_slice_equal(hf_hold_caller(entry->stake.hold), caller);
        if (is_ours && hf_view_of(entry->stake.hold).held) act(lock, entry);
    }
    hf_driver_wake(lock->driver);
    hf_driver_leave(lock->driver);
    return 0;
}

/* collect(lock): while more locks of a set are being acquired, renews the caller's hold and does
 * not report its loss. Ends with the hold's release, or with settle(lock) once all are held. */
static int l_collect(lua_State *L) {
    return for_own_entries(L, collect);
}

static int l_settle(lua_State *L) {
    return for_own_entries(L, settle);
}

/* ---- calls that do not ask the server ---- */

/* Returns the caller's hold, or NULL. Marks the hold as lost if its validity has ended. */
static hf_hold *find_own_hold(hf_lua_lock *lock, lua_Number number) {
    caller_buffer buffer;
    hf_client *client = lock->driver->client;
    hf_hold *hold =
        hf_client_find(client, lock->kind, lock->names, hf_lock_caller(lock, number, &buffer));
    if (hold) hf_client_refresh(client, hold, hf_driver_now(lock->driver));
    return hold;
}

typedef struct lock_state {
    bool held;
    uint32_t holds;
    hf_time left;
    uint64_t token;
    hf_lost_reason loss;
} lock_state;

/* Returns the loss that a detached release, or else the last release, has found. */
static hf_lost_reason find_late_loss(const hf_lua_lock *lock, hf_slice caller) {
    for (size_t i = 0; i < lock->entry_count; i++) {
        const hf_hold *hold = lock->entries[i].stake.hold;
        hf_hold_view view = hf_view_of(hold);
        bool late = view.detached && view.state == HF_HOLD_LOST;
        if (late && hf_slice_equal(hf_hold_caller(hold), caller)) return view.reason;
    }
    return lock->last_loss;
}

static lock_state read_state(lua_State *L, hf_lua_lock *lock) {
    lua_Number number = check_number(L, lock);
    lock_state state = {0};
    if (!lock->driver) return state;
    hf_lock_enter(lock);
    const hf_hold *hold = find_own_hold(lock, number);
    hf_time now = hf_driver_now(lock->driver);
    caller_buffer buffer;
    const hf_lock_entry *lost = hf_lock_find_lost(lock, hf_lock_caller(lock, number, &buffer));
    hf_hold_view view = hold ? hf_view_of(hold) : (hf_hold_view){0};
    if (lost) {
        state.loss = hf_view_of(lost->stake.hold).reason;
    } else if (hold && hf_hold_is_valid(hold, now)) {
        state = (lock_state){true, view.count, view.valid_until - now, view.token, HF_LOST_NONE};
    } else if (hold && view.state == HF_HOLD_LOST) {
        state.loss = view.reason;
    } else {
        state.loss = find_late_loss(lock, hf_lock_caller(lock, number, &buffer));
    }
    hf_driver_leave(lock->driver);
    return state;
}

static int l_is_held(lua_State *L) {
    lua_pushboolean(L, read_state(L, hf_lock_check(L)).held);
    return 1;
}

/* holds(lock [, number]) -> the number of holds of the caller, or of the caller with this number */
static int l_holds(lua_State *L) {
    lua_pushinteger(L, (lua_Integer)read_state(L, hf_lock_check(L)).holds);
    return 1;
}

static int l_remaining(lua_State *L) {
    lua_pushnumber(L, hf_to_seconds(read_state(L, hf_lock_check(L)).left));
    return 1;
}

static int l_token(lua_State *L) {
    uint64_t token = read_state(L, hf_lock_check(L)).token;
    if (token == 0) lua_pushnil(L);
    else hf_pushuint64(L, token);
    return 1;
}

static int l_lost(lua_State *L) {
    lua_pushstring(
        L, hf_lost_reason_name(read_state(L, hf_lock_check(L)).loss)); /* NULL becomes nil */
    return 1;
}

/* first_loss(lock) -> the reason for the first loss of a hold that any owner has acquired through
 * this handle, even if the lock has been acquired again since; nil if none was lost */
static int l_first_loss(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return 0;
    hf_lock_enter(lock);
    hf_lost_reason reason = lock->losses.first;
    hf_driver_leave(lock->driver);
    lua_pushstring(L, hf_lost_reason_name(reason)); /* NULL becomes nil */
    return 1;
}

/* pending_loss(lock) -> the reason for an unreported loss of any owner that acquired through this
 * handle; the next call returns the reason for another one */
static int l_pending_loss(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return 0;
    hf_lock_enter(lock);
    hf_lost_reason reason = hf_losses_take(&lock->losses);
    hf_driver_leave(lock->driver);
    lua_pushstring(L, hf_lost_reason_name(reason));
    return 1;
}

/* has_news(lock) -> whether a detached release is under way or the client has undelivered events;
 * whether there is an unreported loss */
static int l_has_news(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    if (!lock->driver) return 0;
    hf_lock_enter(lock);
    bool has_events = hf_observe_has_events(lock->driver->client);
    for (size_t i = 0; i < lock->entry_count; i++)
        has_events = has_events || hf_view_of(lock->entries[i].stake.hold).ending;
    bool has_loss = hf_losses_peek(&lock->losses) != HF_LOST_NONE;
    hf_driver_leave(lock->driver);
    lua_pushboolean(L, has_events);
    lua_pushboolean(L, has_loss);
    return 2;
}

/* standing(lock) -> the seconds left of a hold that any coroutine has acquired through this handle
 * | nil, the reason for its loss, or nil if it was released or there was none */
static int l_standing(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    hf_lost_reason reason = HF_LOST_NONE;
    if (!lock->driver) return 0;
    hf_lock_enter(lock);
    hf_time now = hf_driver_now(lock->driver), left = 0;
    for (size_t i = 0; i < lock->entry_count; i++) {
        hf_hold *hold = lock->entries[i].stake.hold;
        if (hf_view_of(hold).in_table) hf_client_refresh(lock->driver->client, hold, now);
        hf_hold_view view = hf_view_of(hold);
        if (view.in_table && hf_hold_is_valid(hold, now)) left = view.valid_until - now;
        else if (view.reason != HF_LOST_NONE) reason = view.reason;
    }
    hf_driver_leave(lock->driver);
    if (left > 0) lua_pushnumber(L, hf_to_seconds(left));
    else lua_pushnil(L);
    lua_pushstring(L, left > 0 ? NULL : hf_lost_reason_name(reason));
    return 2;
}

/* balance(lock) -> the number of acquires minus releases through this handle, including releases
 * that have not reached the server; a fork does not change it */
static int l_balance(lua_State *L) {
    lua_pushnumber(L, (lua_Number)hf_lock_check(L)->balance);
    return 1;
}

/* is_closed(lock) -> whether its client was closed, which releases all holds */
static int l_is_closed(lua_State *L) {
    const hf_lua_lock *lock = hf_lock_check(L);
    lua_pushboolean(L, !lock->driver || lock->driver->closed);
    return 1;
}

/* overdue(lock) -> the seconds by which this handle's last acquire that failed with HF_BUSY
 * exceeded its wait; call it only after such a failure */
static int l_overdue(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    hf_time now = 0;
    if (lock->driver) {
        hf_lock_enter(lock);
        now = hf_driver_now(lock->driver);
        hf_driver_leave(lock->driver);
    }
    lua_pushnumber(L, now > lock->wait_end ? hf_to_seconds(now - lock->wait_end) : 0);
    return 1;
}

/* waited(lock) -> the seconds that the last successful acquire through this handle took; nil if
 * there was none */
static int l_waited(lua_State *L) {
    double waited = hf_lock_check(L)->waited;
    if (waited < 0) return 0;
    lua_pushnumber(L, waited);
    return 1;
}

/* A garbage-collected lock has no key. */
static hf_slice key_of(const hf_lua_lock *lock) {
    return lock->names ? lock->names->key : (hf_slice){"", 0};
}

static int l_key(lua_State *L) {
    hf_slice key = key_of(hf_lock_check(L));
    lua_pushlstring(L, key.data, key.size);
    return 1;
}

/* owner(lock) -> the owner of this caller's hold as stored on the server, or the caller itself */
static int l_owner(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    lua_Number number = check_number(L, lock);
    caller_buffer buffer;
    char bytes[HF_OWNER_MAX + 1];
    if (!lock->driver) return 0;
    hf_lock_enter(lock);
    const hf_hold *hold = find_own_hold(lock, number);
    bool held = hold && hf_view_of(hold).held;
    hf_slice owner = held ? hf_hold_owner(hold) : hf_lock_caller(lock, number, &buffer);
    memcpy(bytes, owner.data, owner.size);
    hf_driver_leave(lock->driver);
    lua_pushlstring(L, bytes, owner.size);
    return 1;
}

static int l_tostring(lua_State *L) {
    hf_lua_lock *lock = hf_lock_check(L);
    lock_state state = read_state(L, lock);
    hf_slice key = key_of(lock);
    char description[64] = "not held";
    char left[32];
    if (state.held)
        snprintf(description, sizeof description, "held, %s s left",
                 hf_seconds_text(left, state.left, 1));
    else if (state.loss)
        snprintf(description, sizeof description, "lost: %s", hf_lost_reason_name(state.loss));
    luaL_Buffer buffer;
    luaL_buffinit(L, &buffer);
    luaL_addstring(&buffer, lock->kind->has_permits ? hf_permit_type : hf_lock_type);
    luaL_addstring(&buffer, ": ");
    luaL_addlstring(&buffer, key.data, key.size);
    luaL_addstring(&buffer, " (");
    luaL_addstring(&buffer, description);
    luaL_addstring(&buffer, ")");
    luaL_pushresult(&buffer);
    return 1;
}

/* data(lock) -> the table that it was created with */
static int l_data(lua_State *L) {
    hf_lock_check(L);
    hf_getuservalue(L, 1);
    return 1;
}

void hf_open_lock(lua_State *L) {
    static const luaL_Reg metamethods[] = {
        {"__gc", l_gc}, {"__tostring", l_tostring}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"new", l_new},
                                         {"copy", l_copy},
                                         {"number", l_number},
                                         {"abandon", l_abandon},
                                         {"approve", l_approve},
                                         {"collect", l_collect},
                                         {"settle", l_settle},
                                         {"renumber", hf_lock_renumber},
                                         {"is_held", l_is_held},
                                         {"holds", l_holds},
                                         {"remaining", l_remaining},
                                         {"token", l_token},
                                         {"lost", l_lost},
                                         {"first_loss", l_first_loss},
                                         {"standing", l_standing},
                                         {"pending_loss", l_pending_loss},
                                         {"has_news", l_has_news},
                                         {"balance", l_balance},
                                         {"is_closed", l_is_closed},
                                         {"overdue", l_overdue},
                                         {"waited", l_waited},
                                         {"key", l_key},
                                         {"owner", l_owner},
                                         {"begin_all", hf_lock_begin_all},
                                         {"data", l_data},
                                         {NULL, NULL}};
    hf_new_type(L, hf_lock_type, metamethods);
    lua_setfield(L, -2, "lock_type");
    hf_new_type(L, hf_permit_type, metamethods);
    lua_setfield(L, -2, "permit_type");
    lua_newtable(L);
    hf_set_functions(L, functions);
    hf_set_numbered(L, "acquire_all", hf_lock_call_all, HF_OP_ACQUIRE_ALL);
    hf_set_numbered(L, "release_all", hf_lock_call_all, HF_OP_RELEASE_ALL);
    lua_setfield(L, -2, "lock");
}
