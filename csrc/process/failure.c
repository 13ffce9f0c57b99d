#include <limits.h>
#include <string.h>

#include "process.h"

int hf_process_failed(lua_State *L, int error) {
    lua_pushnil(L);
    lua_pushstring(L, strerror(error));
    lua_pushinteger(L, error);
    return 3;
}

int hf_check_int(lua_State *L, int index) {
    lua_Integer number = luaL_checkinteger(L, index);
    luaL_argcheck(L, number >= INT_MIN && number <= INT_MAX, index, "out of range");
    return (int)number;
}
