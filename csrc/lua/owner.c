/* The owner of a call: the lock's option `owner`, or the calling coroutine. Coroutines get their
 * numbers from a weak table in the registry, so each Lua state has its own numbers. */
#include <assert.h>
#include <string.h>

#include "lock.h"

#define MAIN 1 /* the number of the main coroutine */

static const char COROUTINES = 0; /* registry key of a weak table: coroutine -> number */

/* Assigns a number to the thread that is just below the table of coroutines on top of the stack. */
static void set_number(lua_State *L, lua_Number number) {
    lua_pushvalue(L, -2);
    lua_pushnumber(L, number);
    lua_rawset(L, -3);
}

/* Assigns the next free number to the same thread, and returns it. */
static lua_Number assign_number(lua_State *L) {
    lua_rawgeti(L, -1, 1);
    lua_Number number = lua_tonumber(L, -1) < MAIN ? MAIN + 1 : lua_tonumber(L, -1) + 1;
    lua_pop(L, 1);
    lua_pushnumber(L, number);
    lua_rawseti(L, -2, 1);
    set_number(L, number);
    return number;
}

lua_Number hf_coroutine_number(lua_State *L) {
    bool is_main = lua_pushthread(L);
    hf_push_weak_table(L, &COROUTINES, "k");
    lua_pushvalue(L, -2);
    lua_rawget(L, -2);
    lua_Number number = lua_tonumber(L, -1);
    lua_pop(L, 1);
    if (number == 0) number = is_main ? MAIN : assign_number(L);
    lua_pop(L, 2);
    return number;
}

/* renumber([number]) -> number: makes the calling coroutine act as a different owner: the one with
 * this number, or a new one. ngx_lua may run several requests in one coroutine. */
int hf_lock_renumber(lua_State *L) {
    lua_Number number = lua_isnoneornil(L, 1) ? 0 : hf_check_within(L, 1, HF_MAX_COROUTINE_NUMBER);
    lua_pushthread(L);
    hf_push_weak_table(L, &COROUTINES, "k");
    if (number == 0) number = assign_number(L);
    else set_number(L, number);
    lua_pushnumber(L, number);
    return 1;
}

hf_slice hf_lock_caller(const hf_lua_lock *lock, lua_Number number, caller_buffer *buffer) {
    if (lock->owner) return (hf_slice){lock->owner, lock->owner_size};
    assert(hf_driver_is_entered(lock->driver) && lock->generation == lock->driver->generation);
    char digits[24];
    hf_slice decimal = hf_decimal(digits, lock->handle > 0 ? lock->handle : (uint64_t)number);
    memcpy(buffer->bytes, hf_client_uuid(lock->driver->client), HF_UUID_SIZE);
    buffer->bytes[HF_UUID_SIZE] = lock->handle > 0 ? '*' : '/'; /* owners on servers have ':' */
    memcpy(buffer->bytes + HF_UUID_SIZE + 1, decimal.data, decimal.size);
    return (hf_slice){buffer->bytes, HF_UUID_SIZE + 1 + decimal.size};
}
