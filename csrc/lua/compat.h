/* The parts of the Lua 5.4 API that the binding uses, for Lua 5.1 to 5.5 and LuaJIT. A module
 * compiled for Lua 5.1 or LuaJIT loads under both, because it uses only functions that both
 * export. */
#ifndef HF_COMPAT_H
#define HF_COMPAT_H

#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

_Static_assert(
    LUA_VERSION_NUM >= 501 && LUA_VERSION_NUM <= 505,
    "holdfast supports Lua 5.1 to 5.5 and LuaJIT; these are the headers of another version");

/* Raises an error if the module was compiled with the headers of another Lua version. Lua 5.1 has
 * no such check, but loads no modules of later versions. */
static inline void hf_check_version(lua_State *L) {
#if LUA_VERSION_NUM < 502
    (void)L;
#else
    luaL_checkversion(L);
#endif
}

#if LUA_VERSION_NUM < 502
/* LuaJIT has its own luaL_setfuncs; Lua 5.1 has none. */
static inline void hf_setfuncs(lua_State *L, const luaL_Reg *functions) {
    for (; functions->name; functions++) {
        lua_pushcfunction(L, functions->func);
        lua_setfield(L, -2, functions->name);
    }
}
#else
static inline void hf_setfuncs(lua_State *L, const luaL_Reg *functions) {
    luaL_setfuncs(L, functions, 0);
}
#endif

#if LUA_VERSION_NUM < 504
static inline void *hf_newuserdata(lua_State *L, size_t size) {
    return lua_newuserdata(L, size);
}
#else
static inline void *hf_newuserdata(lua_State *L, size_t size) {
    return lua_newuserdatauv(L, size, 1);
}
#endif

static inline size_t hf_rawlen(lua_State *L, int index) {
#if LUA_VERSION_NUM < 502
    return lua_objlen(L, index);
#else
    return (size_t)lua_rawlen(L, index);
#endif
}

/* Sets the table on top of the stack as the user value of the userdata at `index`, and pops it. */
static inline void hf_setuservalue(lua_State *L, int index) {
#if LUA_VERSION_NUM < 502
    lua_setfenv(L, index);
#elif LUA_VERSION_NUM < 504
    lua_setuservalue(L, index);
#else
    lua_setiuservalue(L, index, 1);
#endif
}

/* Pushes the user value of the userdata at `index`. */
static inline void hf_getuservalue(lua_State *L, int index) {
#if LUA_VERSION_NUM < 502
    lua_getfenv(L, index);
#elif LUA_VERSION_NUM < 504
    lua_getuservalue(L, index);
#else
    lua_getiuservalue(L, index, 1);
#endif
}

/* Calls a function with one light userdata and no results in protected mode, so not even an
 * out-of-memory error escapes. Returns 0, or a nonzero status with the error on the stack. Needs
 * two free slots. */
static inline int hf_cpcall(lua_State *L, lua_CFunction function, void *argument) {
#if LUA_VERSION_NUM < 502
    return lua_cpcall(L, function, argument);
#else
    lua_pushcfunction(L, function);
    lua_pushlightuserdata(L, argument);
    return lua_pcall(L, 1, 0, 0);
#endif
}

/* Pushes an integer, which is exact only up to 2^53 before Lua 5.3. */
static inline void hf_pushuint64(lua_State *L, uint64_t number) {
#if LUA_VERSION_NUM < 503
    lua_pushnumber(L, (lua_Number)number);
#else
    lua_pushinteger(L, (lua_Integer)number);
#endif
}

/* Remembers the main thread for hf_getmainthread. Lua 5.1 and LuaJIT do not record it, so there it
 * is known only if the main thread itself loads the module and calls hf_keepmainthread. */
extern const char hf_main_thread; /* its address is the key in the registry */

static inline void hf_keepmainthread(lua_State *L) {
#if LUA_VERSION_NUM < 502
    lua_pushlightuserdata(L, (void *)(uintptr_t)&hf_main_thread);
    if (lua_pushthread(L)) lua_rawset(L, LUA_REGISTRYINDEX);
    else lua_pop(L, 2);
#else
    (void)L;
#endif
}

/* Returns the main thread, or NULL if it is not known. Allocates no memory. */
static inline lua_State *hf_getmainthread(lua_State *L) {
#if LUA_VERSION_NUM < 502
    lua_pushlightuserdata(L, (void *)(uintptr_t)&hf_main_thread);
    lua_rawget(L, LUA_REGISTRYINDEX);
#else
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
#endif
    lua_State *main = lua_tothread(L, -1);
    lua_pop(L, 1);
    return main;
}

#endif
