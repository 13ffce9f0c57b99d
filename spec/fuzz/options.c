/* Arbitrary arguments for every function of the Lua API and of holdfast.core, in a Lua 5.4 state:
 * options.lua reads the input and says what must hold. The server's address is one where nobody
 * listens, so that every call ends at once.
 *
 * The lines of Lua that run count as coverage. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "input.h"

#define SCRIPT "spec/fuzz/options.lua"
#define LINES 65536

int luaopen_holdfast_core(lua_State *L);

__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[LINES];

static lua_State *state;

static void count_line(lua_State *L, lua_Debug *where) {
    lua_getinfo(L, "S", where);
    uint32_t hash = 2166136261u;
    for (const char *at = where->short_src; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    counters[(hash + (uint32_t)where->currentline) % LINES]++;
}

static void stop(const char *message) {
    fprintf(stderr, SCRIPT ": %s\n", message);
    abort();
}

static void open_state(void) {
    setenv("LUA_PATH", "./?.lua;./lua/?.lua;./lua/?/init.lua", 1);
    setenv("HOLDFAST_URL", "unix:///nonexistent/holdfast.sock", 1);
    state = luaL_newstate();
    luaL_openlibs(state);
    luaL_getsubtable(state, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(state, luaopen_holdfast_core);
    lua_setfield(state, -2, "holdfast.core");
    lua_settop(state, 0);
    if (luaL_dofile(state, SCRIPT)) stop(lua_tostring(state, -1));
    lua_sethook(state, count_line, LUA_MASKLINE, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!state) open_state();
    lua_pushvalue(state, 1);
    lua_pushlstring(state, (const char *)data, size);
    if (lua_pcall(state, 1, 0, 0)) stop(lua_tostring(state, -1));
    lua_gc(state, LUA_GCCOLLECT);
    return 0;
}
