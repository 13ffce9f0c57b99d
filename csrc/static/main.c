/* The command as one executable into which Lua, the modules in lua/ and the C modules are linked.
 * It loads no modules from disk, and otherwise behaves like an installed bin/holdfast. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

#include "static/modules.h"

int luaopen_holdfast_core(lua_State *L);
int luaopen_holdfast_process(lua_State *L);

/* Runs in a protected call: an error in it must not look like the command's result. */
static const char main_source[] = "local process = require 'holdfast.process'\n"
                                  "process.default 'INT'\n"
                                  "return require('holdfast.command').main(arg)\n";

/* The loader for package.preload → the module */
static int load_module(lua_State *L) {
    const hf_lua_module *module = lua_touserdata(L, lua_upvalueindex(1));
    if (luaL_loadbufferx(L, (const char *)module->source, module->size, module->chunk_name, "t"))
        return lua_error(L);
    lua_pushstring(L, module->name);
    lua_call(L, 1, 1);
    return 1;
}

static void preload(lua_State *L) {
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    for (const hf_lua_module *module = hf_lua_modules; module->name; module++) {
        lua_pushlightuserdata(L, (void *)(size_t)module);
        lua_pushcclosure(L, load_module, 1);
        lua_setfield(L, -2, module->name);
    }
    lua_pushcfunction(L, luaopen_holdfast_core);
    lua_setfield(L, -2, "holdfast.core");
    lua_pushcfunction(L, luaopen_holdfast_process);
    lua_setfield(L, -2, "holdfast.process");
    lua_pop(L, 1);
}

/* Prevents modules from being loaded from the environment's paths or the current directory. */
static void clear_paths(lua_State *L) {
    lua_getglobal(L, "package");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "path");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "cpath");
    lua_pop(L, 1);
}

static void set_arguments(lua_State *L, int count, char **args) {
    lua_createtable(L, count, 1);
    for (int i = 0; i < count; i++) {
        lua_pushstring(L, args[i]);
        lua_rawseti(L, -2, i);
    }
    lua_setglobal(L, "arg");
}

static int add_traceback(lua_State *L) {
    const char *message = lua_tostring(L, 1);
    luaL_traceback(L, L, message ? message : "an error without a text", 1);
    return 1;
}

/* Called in protected mode with count, args. → the exit code */
static int protected_main(lua_State *L) {
    int count = (int)lua_tointeger(L, 1);
    char **args = lua_touserdata(L, 2);
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    luaL_openlibs(L);
    clear_paths(L);
    preload(L);
    set_arguments(L, count, args);
    if (luaL_loadbufferx(L, main_source, sizeof main_source - 1, "=holdfast", "t"))
        return lua_error(L);
    lua_call(L, 0, 1);
    return 1;
}

int main(int count, char **args) {
    lua_State *L = luaL_newstate();
    if (!L) {
        fputs("holdfast: not enough memory\n", stderr);
        return 70;
    }
    lua_pushcfunction(L, add_traceback);
    lua_pushcfunction(L, protected_main);
    lua_pushinteger(L, count);
    lua_pushlightuserdata(L, args);
    int exit_code = 70;
    if (lua_pcall(L, 2, 1, 1)) fprintf(stderr, "holdfast: %s\n", lua_tostring(L, -1));
    else exit_code = (int)lua_tointeger(L, -1);
    fflush(NULL);
    exit(exit_code); /* like os.exit, without closing the state */
}
