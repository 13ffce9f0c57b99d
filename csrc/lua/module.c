/* holdfast.core: the client, lock and watchdog userdata, and the raw functions that lua/holdfast
 * builds its API on. */
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "binding.h"
#include "lock.h"

static const char MODULE_ADDRESS = 0; /* any address of the module */
static const char SHARED = 0;         /* its address is the registry key of a table */

/* ---- how many Lua states use the module ---- */

static pthread_mutex_t states_mutex = PTHREAD_MUTEX_INITIALIZER;
static int states; /* in the process with the number `process` */
static unsigned process;

/* Adds `change` to the number of states, and returns the new number. */
static int count_state(int change) {
    pthread_mutex_lock(&states_mutex);
    if (process != hf_process()) states = 0;
    process = hf_process();
    states += change;
    if (states < 0) states = 0; /* a state that the parent of a fork had opened has ended */
    int now = states;
    pthread_mutex_unlock(&states_mutex);
    return now;
}

static int l_state_gc(lua_State *L) {
    (void)L;
    count_state(-1);
    return 0;
}

/* Pushes the table that all copies of the library share. The registry keeps it until the state
 * ends. */
static void push_shared(lua_State *L) {
    static const luaL_Reg metamethods[] = {{"__gc", l_state_gc}, {NULL, NULL}};
    hf_push_registry(L, &SHARED);
    if (!lua_isnil(L, -1)) return;
    lua_pop(L, 1);
    lua_newtable(L);
    hf_newuserdata(L, 1);
    hf_new_type(L, "holdfast.state", metamethods);
    lua_setmetatable(L, -2);
    lua_rawseti(L, -2, 1);
    lua_pushvalue(L, -1);
    hf_set_registry(L, &SHARED);
    count_state(1);
}

/* states() -> how many Lua states of this process have loaded the module since the last fork and
 * are still open */
static int l_states(lua_State *L) {
    lua_pushinteger(L, count_state(0));
    return 1;
}

static int l_now(lua_State *L) {
    lua_pushnumber(L, hf_to_seconds(hf_now()));
    return 1;
}

/* is_before(a, b) -> whether the bytes of a come before those of b. Lua's < follows the locale. */
static int l_is_before(lua_State *L) {
    size_t a_size, b_size;
    const char *a = luaL_checklstring(L, 1, &a_size), *b = luaL_checklstring(L, 2, &b_size);
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    lua_pushboolean(L, order < 0 || (order == 0 && a_size < b_size));
    return 1;
}

/* sha1(text) -> the name that servers give to a script with this text */
static int l_sha1(lua_State *L) {
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    unsigned char digest[SHA_DIGEST_LENGTH];
    char name[2 * sizeof digest + 1];
    SHA1((const unsigned char *)text, size, digest);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(name + 2 * i, 3, "%02x", digest[i]);
    lua_pushstring(L, name);
    return 1;
}

/* code_of(error) -> the code for an error reply of the server */
static int l_code_of(lua_State *L) {
    lua_pushstring(L, hf_code_name(hf_code_of_error(luaL_checkstring(L, 1))));
    return 1;
}

/* may_pass(code, accepted) -> whether a call that failed with this code may succeed later;
 * `accepted`: the server has accepted such a call before */
static int l_may_pass(lua_State *L) {
    const char *name = luaL_checkstring(L, 1);
    bool accepted = lua_toboolean(L, 2), passes = false;
    for (int code = 0; code < HF_CODES; code++) {
        if (strcmp(hf_code_name((hf_code)code), name) == 0)
            passes = hf_code_is_transient((hf_code)code, accepted);
    }
    lua_pushboolean(L, passes);
    return 1;
}

static int l_parse_url(lua_State *L) {
    size_t size;
    const char *url = luaL_checklstring(L, 1, &size);
    hf_server server;
    const char *wrong = hf_url_read_server(&server, url, size);
    if (!wrong) {
        lua_pushstring(L, server.label);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, wrong);
    return 2;
}

/* login_of(url) -> user, password of a URL of any kind, "" for none | nil, what is wrong with the
 * URL */
static int l_login_of(lua_State *L) {
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    hf_url url;
    const char *wrong = hf_url_read(&url, text, size);
    if (wrong) lua_pushnil(L);
    else lua_pushstring(L, url.server.user);
    lua_pushstring(L, wrong ? wrong : url.server.password);
    return 2;
}

__attribute__((visibility("default"))) int luaopen_holdfast_core(lua_State *L);

int luaopen_holdfast_core(lua_State *L) {
    static const luaL_Reg functions[] = {
        {"now", l_now},           {"parse_url", l_parse_url}, {"is_before", l_is_before},
        {"sha1", l_sha1},         {"code_of", l_code_of},     {"states", l_states},
        {"may_pass", l_may_pass}, {"login_of", l_login_of},   {NULL, NULL}};
    hf_check_version(L);
    hf_stay_loaded(&MODULE_ADDRESS); /* a look-up's thread may outlive lua_close */
    hf_keepmainthread(L);
    hf_open_types(L);
    lua_newtable(L);
    push_shared(L);
    lua_setfield(L, -2, "shared");
    hf_set_functions(L, functions);
    hf_open_client(L);
    lua_getfield(L, -1, "client");
    hf_open_observer(L);
    lua_pop(L, 1);
    hf_open_operations(L);
    hf_open_lock(L);
    lua_getfield(L, -1, "lock");
    hf_open_calls(L);
    lua_pop(L, 1);
    hf_open_watchdog(L);
    hf_open_engine(L);
    hf_open_template(L);
    hf_open_wire(L);
    return 1;
}
