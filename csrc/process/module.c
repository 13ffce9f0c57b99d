#include <string.h>
#include <unistd.h>

#include "process.h"

int hf_process_failed(lua_State *L, int error) {
    lua_pushnil(L);
    lua_pushstring(L, strerror(error));
    lua_pushinteger(L, error);
    return 3;
}

static int l_pid(lua_State *L) {
    lua_pushinteger(L, getpid());
    return 1;
}

static int l_host(lua_State *L) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    lua_pushstring(L, name);
    return 1;
}

__attribute__((visibility("default"))) int luaopen_holdfast_process(lua_State *L);

int luaopen_holdfast_process(lua_State *L) {
    static const luaL_Reg functions[] = {{"pid", l_pid}, {"host", l_host}, {NULL, NULL}};
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    hf_open_signals(L);
    hf_open_child(L);
    hf_open_terminal(L);
    return 1;
}
