#include <string.h>

#include "process.h"

int hf_process_failed(lua_State *L, int error) {
    lua_pushnil(L);
    lua_pushstring(L, strerror(error));
    lua_pushinteger(L, error);
    return 3;
}
