/* The watchdog userdata: a view of a client's renewals. Its user value keeps the client alive. */
#include "binding.h"

typedef struct hf_lua_watchdog {
    hf_driver *driver;
} hf_lua_watchdog;

static hf_driver *check_watchdog(lua_State *L) {
    hf_lua_watchdog *watchdog = hf_checkudata(L, 1, hf_watchdog_type);
    if (!watchdog->driver) luaL_error(L, "the watchdog was garbage-collected");
    return watchdog->driver;
}

/* new(client) -> watchdog */
static int l_new(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_lua_watchdog *watchdog = hf_new_object(L, sizeof *watchdog, hf_watchdog_type);
    lua_newtable(L);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "client");
    hf_setuservalue(L, -2);
    watchdog->driver = driver;
    hf_driver_ref(driver);
    return 1;
}

static int l_gc(lua_State *L) {
    hf_lua_watchdog *watchdog = hf_checkudata(L, 1, hf_watchdog_type);
    if (watchdog->driver) hf_driver_unref(watchdog->driver);
    watchdog->driver = NULL;
    return 0;
}

/* holds(watchdog) -> the number of holds that it renews */
static int l_holds(lua_State *L) {
    hf_driver *driver = check_watchdog(L);
    hf_driver_enter(driver);
    size_t renewed = hf_client_load(driver->client).renewed;
    hf_driver_leave(driver);
    lua_pushinteger(L, (lua_Integer)renewed);
    return 1;
}

/* Enters the driver, which detects a fork and then clears `running`: the child has none of the
 * parent's threads. */
static bool is_running(hf_driver *driver) {
    hf_driver_enter(driver);
    bool running = driver->running;
    hf_driver_leave(driver);
    return running;
}

static int l_is_running(lua_State *L) {
    lua_pushboolean(L, is_running(check_watchdog(L)));
    return 1;
}

static int l_stop(lua_State *L) {
    hf_driver *driver = check_watchdog(L);
    hf_driver_enter(driver);
    hf_driver_stop_watchdog(driver);
    hf_driver_leave(driver);
    return 0;
}

static int l_start(lua_State *L) {
    hf_driver *driver = check_watchdog(L);
    hf_driver_enter(driver);
    driver->watchdog_stopped = false;
    bool started = !driver->closed && hf_driver_start_watchdog(driver);
    hf_driver_leave(driver);
    lua_pushboolean(L, started);
    return 1;
}

/* client(watchdog) -> the client that it belongs to */
static int l_client(lua_State *L) {
    check_watchdog(L);
    hf_getuservalue(L, 1);
    lua_getfield(L, -1, "client");
    return 1;
}

static int l_tostring(lua_State *L) {
    const hf_lua_watchdog *watchdog = hf_checkudata(L, 1, hf_watchdog_type);
    bool running = watchdog->driver && is_running(watchdog->driver);
    lua_pushfstring(L, "%s: %s", hf_watchdog_type, running ? "running" : "not running");
    return 1;
}

void hf_open_watchdog(lua_State *L) {
    static const luaL_Reg metamethods[] = {
        {"__gc", l_gc}, {"__tostring", l_tostring}, {NULL, NULL}};
    static const luaL_Reg functions[] = {
        {"new", l_new},   {"holds", l_holds}, {"is_running", l_is_running},
        {"stop", l_stop}, {"start", l_start}, {"client", l_client},
        {NULL, NULL}};
    hf_new_type(L, hf_watchdog_type, metamethods);
    lua_setfield(L, -2, "watchdog_type");
    lua_newtable(L);
    hf_set_functions(L, functions);
    lua_setfield(L, -2, "watchdog");
}
