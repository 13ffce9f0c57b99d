/* holdfast.core: the client, lock and watchdog userdata, and the raw functions that lua/holdfast
 * builds its API on. */
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "binding.h"
#include "lock.h"

static const char MODULE_ADDRESS = 0; /* an address in the module's shared object */
static const char SHARED_KEY = 0;     /* its address is the registry key of the shared table */

/* ---- the number of Lua states that use the module ---- */

static pthread_mutex_t states_mutex = PTHREAD_MUTEX_INITIALIZER;
static int state_count;          /* how many states use the module in this process */
static unsigned counted_process; /* the process in which they were counted */

/* Adds `change` to state_count, and returns the new count. */
static int change_state_count(int change) {
    pthread_mutex_lock(&states_mutex);
    if (counted_process != hf_process_number()) state_count = 0;
    counted_process = hf_process_number();
    state_count += change;
    if (state_count < 0) state_count = 0; /* this state was opened before the fork, in the parent */
    int count = state_count;
    pthread_mutex_unlock(&states_mutex);
    return count;
}

static int l_state_gc(lua_State *L) {
    (void)L;
    change_state_count(-1);
    return 0;
}

/* Pushes the table shared by all copies of the library. The registry keeps it alive until the
 * state is closed. */
static void push_shared(lua_State *L) {
    static const luaL_Reg metamethods[] = {{"__gc", l_state_gc}, {NULL, NULL}};
    hf_push_registry(L, &SHARED_KEY);
    if (!lua_isnil(L, -1)) return;
    lua_pop(L, 1);
    lua_newtable(L);
    hf_newuserdata(L, 1);
    hf_new_type(L, "holdfast.state", metamethods);
    lua_setmetatable(L, -2);
    lua_rawseti(L, -2, 1);
    lua_pushvalue(L, -1);
    hf_set_registry(L, &SHARED_KEY);
    change_state_count(1);
}

/* states() -> the number of open Lua states of this process that loaded the module since the last
 * fork */
static int l_states(lua_State *L) {
    lua_pushinteger(L, change_state_count(0));
    return 1;
}

static int l_now(lua_State *L) {
    lua_pushnumber(L, hf_to_seconds(hf_now()));
    return 1;
}

/* is_before(a, b) -> whether a sorts before b, byte by byte. Lua's < follows the locale. */
static int l_is_before(lua_State *L) {
    size_t a_size, b_size;
    const char *a = luaL_checklstring(L, 1, &a_size), *b = luaL_checklstring(L, 2, &b_size);
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    lua_pushboolean(L, order < 0 || (order == 0 && a_size < b_size));
    return 1;
}

/* sha1(script) -> the SHA1 by which servers identify this script */
static int l_sha1(lua_State *L) {
    size_t size;
    const char *script = luaL_checklstring(L, 1, &size);
    unsigned char digest[SHA_DIGEST_LENGTH];
    char hex[2 * sizeof digest + 1];
    SHA1((const unsigned char *)script, size, digest);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    lua_pushstring(L, hex);
    return 1;
}

/* code_of(error) -> the code for a server's error reply */
static int l_code_of(lua_State *L) {
    lua_pushstring(L, hf_code_name(hf_code_of_error(luaL_checkstring(L, 1))));
    return 1;
}

/* is_transient(code, accepted) -> whether a call that failed with this code may succeed later;
 * `accepted`: the server has accepted such a call before */
static int l_is_transient(lua_State *L) {
    const char *name = luaL_checkstring(L, 1);
    bool accepted = lua_toboolean(L, 2), is_transient = false;
    for (int code = 0; code < HF_CODES; code++) {
        if (strcmp(hf_code_name((hf_code)code), name) == 0)
            is_transient = hf_code_is_transient((hf_code)code, accepted);
    }
    lua_pushboolean(L, is_transient);
    return 1;
}

/* parse_url(url) -> the server's label | nil, what is wrong with the URL */
static int l_parse_url(lua_State *L) {
    size_t size;
    const char *url = luaL_checklstring(L, 1, &size);
    hf_server server;
    const char *problem = hf_url_read_server(&server, url, size);
    if (!problem) {
        lua_pushstring(L, server.label);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, problem);
    return 2;
}

/* login_of(url) -> the user and the password in a URL of any kind, each "" if absent | nil, what is
 * wrong with the URL */
static int l_login_of(lua_State *L) {
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    hf_url url;
    const char *problem = hf_url_read(&url, text, size);
    if (problem) lua_pushnil(L);
    else lua_pushstring(L, url.server.user);
    lua_pushstring(L, problem ? problem : url.server.password);
    return 2;
}

__attribute__((visibility("default"))) int luaopen_holdfast_core(lua_State *L);

int luaopen_holdfast_core(lua_State *L) {
    static const luaL_Reg functions[] = {{"now", l_now},
                                         {"parse_url", l_parse_url},
                                         {"is_before", l_is_before},
                                         {"sha1", l_sha1},
                                         {"code_of", l_code_of},
                                         {"states", l_states},
                                         {"is_transient", l_is_transient},
                                         {"login_of", l_login_of},
                                         {NULL, NULL}};
    hf_check_version(L);
    hf_stay_loaded(&MODULE_ADDRESS); /* a DNS lookup's thread may outlive lua_close */
    hf_keepmainthread(L);
    hf_open_types(L);
    lua_newtable(L);
    push_shared(L);
    lua_setfield(L, -2, "shared");
    hf_set_functions(L, functions);
    hf_open_client(L);
    hf_open_operations(L);
    hf_open_lock(L);
    hf_open_calls(L);
    hf_open_watchdog(L);
    hf_open_engine(L);
    hf_open_template(L);
    hf_open_wire(L);
    return 1;
}
