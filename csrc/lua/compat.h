/* The Lua 5.4 API on LuaJIT, as far as the binding needs it. */
#ifndef HF_COMPAT_H
#define HF_COMPAT_H

#include <lauxlib.h>
#include <lua.h>

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

/* Sets the table on top as the value kept with the userdata at `index`; pops it. */
static inline void hf_setuservalue(lua_State *L, int index) {
#if LUA_VERSION_NUM < 502
    lua_setfenv(L, index);
#elif LUA_VERSION_NUM < 504
    lua_setuservalue(L, index);
#else
    lua_setiuservalue(L, index, 1);
#endif
}

/* Pushes the value kept with the userdata at `index`. */
static inline void hf_getuservalue(lua_State *L, int index) {
#if LUA_VERSION_NUM < 502
    lua_getfenv(L, index);
#elif LUA_VERSION_NUM < 504
    lua_getuservalue(L, index);
#else
    lua_getiuservalue(L, index, 1);
#endif
}

#endif
