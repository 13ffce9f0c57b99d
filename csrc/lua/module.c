/* holdfast.core: the client, lock and watchdog userdata, and the raw functions that lua/holdfast builds its API on. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "binding.h"

hf_time hf_to_time(double seconds) {
    double ns = seconds * 1e9;
    if (ns >= 9.2e18) return HF_NEVER;
    return ns <= 0 ? 0 : (hf_time)llround(ns);
}

double hf_to_seconds(hf_time time) {
    return (double)time / 1e9;
}

int hf_push_failure(lua_State *L, const hf_failure *failure) {
    if (failure->code == HF_NO_MEMORY) return luaL_error(L, "not enough memory");
    lua_pushnil(L);
    lua_pushstring(L, failure->text);
    lua_pushstring(L, hf_code_name(failure->code));
    return 3;
}

void *hf_new_object(lua_State *L, size_t size, const char *type) {
    void *object = hf_newuserdata(L, size);
    memset(object, 0, size);
    luaL_getmetatable(L, type);
    lua_setmetatable(L, -2);
    return object;
}

void hf_new_type(lua_State *L, const char *type, const luaL_Reg *metamethods) {
    luaL_newmetatable(L, type);
    lua_pushstring(L, type);
    lua_setfield(L, -2, "__name");
    luaL_setfuncs(L, metamethods, 0);
}

/* ---- signals ---- */

typedef struct watched_hooks {
    lua_State *L, *main;
    lua_Hook before, main_before;
    bool interruptible;
} watched_hooks;

static lua_State *main_state(lua_State *L) {
#if LUA_VERSION_NUM >= 502
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    lua_State *main = lua_tothread(L, -1);
    lua_pop(L, 1);
    return main;
#else
    return L; /* LuaJIT's hooks are global */
#endif
}

static bool check_interrupt(void *context, bool signalled) {
    const watched_hooks *hooks = context;
    if (signalled && hooks->interruptible) return true;
    return lua_gethook(hooks->L) != hooks->before || lua_gethook(hooks->main) != hooks->main_before;
}

hf_op *hf_run_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec, bool interruptible) {
    lua_State *main = main_state(L);
    watched_hooks hooks = {L, main, lua_gethook(L), lua_gethook(main), interruptible};
    return hf_driver_run(driver, spec, interruptible, check_interrupt, &hooks);
}

/* ---- the module ---- */

static const char NAMED_HERE = 0; /* any address of the module */

/* The watchdog runs this module's code: it must stay mapped after lua_close has unloaded it. */
static void pin_module(void) {
    Dl_info info;
    if (dladdr((void *)(uintptr_t)&NAMED_HERE, &info) && info.dli_fname) {
        dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

/* ---- how many Lua states use the module ---- */

static pthread_mutex_t states_mutex = PTHREAD_MUTEX_INITIALIZER;
static int states; /* of process states_pid */
static pid_t states_pid;

static void count_state(int change) {
    pthread_mutex_lock(&states_mutex);
    if (states_pid != getpid()) states = 0;
    states_pid = getpid();
    states += change;
    if (states < 0) states = 0; /* the end of one that a parent had opened */
    pthread_mutex_unlock(&states_mutex);
}

static int l_state_gc(lua_State *L) {
    (void)L;
    count_state(-1);
    return 0;
}

/* Kept in the registry: it ends with the state. */
static void watch_state(lua_State *L) {
    static const luaL_Reg metamethods[] = {{"__gc", l_state_gc}, {NULL, NULL}};
    hf_newuserdata(L, 1);
    hf_new_type(L, "holdfast.state", metamethods);
    lua_setmetatable(L, -2);
    luaL_ref(L, LUA_REGISTRYINDEX);
    count_state(1);
}

/* states() -> how many Lua states of this process have loaded the module since it was forked, and are still open */
static int l_states(lua_State *L) {
    count_state(0);
    lua_pushinteger(L, states);
    return 1;
}

static int l_now(lua_State *L) {
    lua_pushnumber(L, hf_to_seconds(hf_now()));
    return 1;
}

static int l_parse_url(lua_State *L) {
    size_t size;
    const char *url = luaL_checklstring(L, 1, &size);
    hf_server server;
    const char *wrong = hf_url_parse(&server, url, size);
    if (!wrong) {
        lua_pushstring(L, server.label);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, wrong);
    return 2;
}

__attribute__((visibility("default"))) int luaopen_holdfast_core(lua_State *L);

int luaopen_holdfast_core(lua_State *L) {
    static const luaL_Reg functions[] = {
        {"now", l_now}, {"parse_url", l_parse_url}, {"states", l_states}, {NULL, NULL}};
    pin_module();
    watch_state(L);
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    hf_open_client(L);
    hf_open_lock(L);
    hf_open_watchdog(L);
    hf_open_engine(L);
    hf_open_template(L);
    return 1;
}
