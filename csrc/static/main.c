/* The command as one executable: Lua, the modules of `lua` and the C modules are linked in, and
 * nothing is loaded from outside. It does what bin/holdfast does in an installation. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

#include "static/modules.h"

int luaopen_holdfast_core(lua_State *L);
int luaopen_holdfast_process(lua_State *L);

/* Runs in a protected call: an error in it must not look like a result of the command. */
static const char run[] = "local process = require 'holdfast.process'\n"
                          "process.default 'INT'\n"
                          "return require('holdfast.command').main(arg)\n";

/* → the module. The loader in package.preload. */
static int load_module(lua_State *L) {
    const hf_lua_module *module = lua_touserdata(L, lua_upvalueindex(1));
    if (luaL_loadbufferx(L, (const char *)module->text, module->size, module->chunk, "t"))
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

/* No module may come from the environment's paths or the current directory. */
static void close_paths(lua_State *L) {
    lua_getglobal(L, "package");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "path");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "cpath");
    lua_pop(L, 1);
}

static void set_arguments(lua_State *L, int count, char **words) {
    lua_createtable(L, count, 1);
    for (int i = 0; i < count; i++) {
        lua_pushstring(L, words[i]);
        lua_rawseti(L, -2, i);
    }
    lua_setglobal(L, "arg");
}

static int add_traceback(lua_State *L) {
    const char *message = lua_tostring(L, 1);
    luaL_traceback(L, L, message ? message : "an error without a text", 1);
    return 1;
}

/* main(count, words) → the exit code */
static int protected_main(lua_State *L) {
    int count = (int)lua_tointeger(L, 1);
    char **words = lua_touserdata(L, 2);
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    luaL_openlibs(L);
    close_paths(L);
    preload(L);
    set_arguments(L, count, words);
    if (luaL_loadbufferx(L, run, sizeof run - 1, "=holdfast", "t")) return lua_error(L);
    lua_call(L, 0, 1);
    return 1;
}

int main(int count, char **words) {
    lua_State *L = luaL_newstate();
    if (!L) {
        fputs("holdfast: not enough memory\n", stderr);
        return 70;
    }
    lua_pushcfunction(L, add_traceback);
    lua_pushcfunction(L, protected_main);
    lua_pushinteger(L, count);
    lua_pushlightuserdata(L, words);
    int exit_code = 70;
    if (lua_pcall(L, 2, 1, 1)) fprintf(stderr, "holdfast: %s\n", lua_tostring(L, -1));
    else exit_code = (int)lua_tointeger(L, -1);
    fflush(NULL);
    exit(exit_code); /* like os.exit, without closing the state */
}
