/* Functions for the whole binding: times, fields, failures, userdata, and blocking operations. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "binding.h"

hf_time hf_to_time(double seconds) {
    double ns = seconds * 1e9;
    if (ns >= 9.2e18) return HF_NEVER;
    return ns > 0 ? (hf_time)llround(ns) : 0;
}

uint64_t hf_to_integer(double number, uint64_t max) {
    if (number >= (double)max) return max;
    return number > 0 ? (uint64_t)number : 0;
}

double hf_to_seconds(hf_time time) {
    return (double)time / 1e9;
}

void hf_push_field(lua_State *L, int index, const char *name) {
    lua_pushvalue(L, index);
    lua_pushstring(L, name);
    lua_rawget(L, -2);
    lua_remove(L, -2);
}

double hf_field_number(lua_State *L, int index, const char *name) {
    hf_push_field(L, index, name);
    double value = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return value;
}

uint64_t hf_field_integer(lua_State *L, int index, const char *name, uint64_t max) {
    return hf_to_integer(hf_field_number(L, index, name), max);
}

bool hf_field_boolean(lua_State *L, int index, const char *name) {
    hf_push_field(L, index, name);
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

const char *hf_field_string(lua_State *L, int index, const char *name, size_t *size) {
    hf_push_field(L, index, name);
    const char *value = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, size) : NULL;
    lua_pop(L, 1);
    return value;
}

void hf_set_string(lua_State *L, const char *name, hf_slice value) {
    lua_pushlstring(L, value.data, value.size);
    lua_setfield(L, -2, name);
}

void hf_set_flag(lua_State *L, const char *name, bool value) {
    lua_pushboolean(L, value);
    lua_setfield(L, -2, name);
}

void hf_set_number(lua_State *L, const char *name, double value) {
    lua_pushnumber(L, (lua_Number)value);
    lua_setfield(L, -2, name);
}

void hf_set_count(lua_State *L, const char *name, uint64_t value) {
    hf_pushuint64(L, value);
    lua_setfield(L, -2, name);
}

hf_slice hf_check_slice(lua_State *L, int index) {
    hf_slice string;
    string.data = luaL_checklstring(L, index, &string.size);
    return string;
}

lua_Number hf_check_within(lua_State *L, int index, lua_Number max) {
    lua_Number number = luaL_checknumber(L, index);
    luaL_argcheck(L, number >= 0 && number <= max, index, "out of range");
    return number;
}

lua_Integer hf_check_integer(lua_State *L, int index, lua_Integer min, lua_Integer max) {
    lua_Integer number = luaL_checkinteger(L, index);
    luaL_argcheck(L, number >= min && number <= max, index, "out of range");
    return number;
}

int hf_push_error(lua_State *L, hf_code code, const char *message) {
    assert(code != HF_OK);
    if (code == HF_NO_MEMORY) return luaL_error(L, "not enough memory");
    lua_pushnil(L);
    lua_pushstring(L, message);
    lua_pushstring(L, hf_code_name(code));
    return 3;
}

/* ---- types ---- */

const char hf_client_type[] = "holdfast.client";
const char hf_lock_type[] = "holdfast.lock";
const char hf_permit_type[] = "holdfast.permit";
const char hf_op_type[] = "holdfast.operation";
const char hf_template_type[] = "holdfast.one_by_one";
const char hf_watchdog_type[] = "holdfast.watchdog";

/* The registry key of a table: type name -> metatable, of the library's last loaded copy. */
static const char METATABLES_KEY = 0;
#define TYPE_INDEX 1 /* where each metatable has its type's address */

void hf_push_registry(lua_State *L, const void *key) {
    lua_pushlightuserdata(L, (void *)(uintptr_t)key);
    lua_rawget(L, LUA_REGISTRYINDEX);
}

void hf_set_registry(lua_State *L, const void *key) {
    lua_pushlightuserdata(L, (void *)(uintptr_t)key);
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

void hf_push_weak_table(lua_State *L, const void *key, const char *mode) {
    hf_push_registry(L, key);
    if (!lua_isnil(L, -1)) return;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_newtable(L);
    lua_pushstring(L, mode);
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    hf_set_registry(L, key);
}

void hf_open_types(lua_State *L) {
    lua_newtable(L);
    hf_set_registry(L, &METATABLES_KEY);
}

void *hf_testudata(lua_State *L, int index, const char *type) {
    void *object = lua_type(L, index) == LUA_TUSERDATA ? lua_touserdata(L, index) : NULL;
    if (!object || !lua_getmetatable(L, index)) return NULL;
    lua_rawgeti(L, -1, TYPE_INDEX);
    bool same = lua_touserdata(L, -1) == type;
    lua_pop(L, 2);
    return same ? object : NULL;
}

void *hf_checkudata(lua_State *L, int index, const char *type) {
    void *object = hf_testudata(L, index, type);
    return object ? object : luaL_checkudata(L, index, type); /* raises for our types */
}

void *hf_new_object(lua_State *L, size_t size, const char *type) {
    assert(lua_istable(L, lua_upvalueindex(1))); /* see hf_set_functions */
    void *object = hf_newuserdata(L, size);
    memset(object, 0, size);
    lua_getfield(L, lua_upvalueindex(1), type);
    lua_setmetatable(L, -2);
    return object;
}

void hf_new_type(lua_State *L, const char *type, const luaL_Reg *metamethods) {
    lua_newtable(L);
    lua_pushstring(L, type);
    lua_setfield(L, -2, "__name");
    hf_set_functions(L, metamethods);
    lua_pushlightuserdata(L, (void *)(uintptr_t)type);
    lua_rawseti(L, -2, TYPE_INDEX);
    hf_push_registry(L, &METATABLES_KEY);
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, type);
    lua_pop(L, 1);
}

void hf_set_functions(lua_State *L, const luaL_Reg *functions) {
    assert(lua_istable(L, -1));
    for (; functions->name; functions++) {
        hf_push_registry(L, &METATABLES_KEY);
        lua_pushcclosure(L, functions->func, 1);
        lua_setfield(L, -2, functions->name);
    }
}

void hf_set_numbered(lua_State *L, const char *name, lua_CFunction function, int number) {
    assert(lua_istable(L, -1));
    hf_push_registry(L, &METATABLES_KEY);
    lua_pushinteger(L, number);
    lua_pushcclosure(L, function, 2);
    lua_setfield(L, -2, name);
}

void hf_new_methods(lua_State *L, const luaL_Reg *methods) {
    lua_newtable(L);
    hf_set_functions(L, methods);
    lua_setfield(L, -2, "__index");
}

/* ---- signals ---- */

const char hf_main_thread = 0;

typedef struct watched_hooks {
    const hf_driver *driver;
    lua_State *L, *main;
    lua_Hook before, main_before;
    bool interruptible;
} watched_hooks;

static bool check_interrupt(void *context, bool signalled) {
    const watched_hooks *hooks = context;
    if (signalled && hooks->interruptible) return true;
    return lua_gethook(hooks->L) != hooks->before || lua_gethook(hooks->main) != hooks->main_before;
}

static watched_hooks watch_hooks(lua_State *L, const hf_driver *driver, bool interruptible) {
    lua_State *main = hf_getmainthread(L);
    if (!main) main = L;
    return (watched_hooks){driver, L, main, lua_gethook(L), lua_gethook(main), interruptible};
}

hf_op *hf_run_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec, bool interruptible) {
    watched_hooks hooks = watch_hooks(L, driver, interruptible);
    return hf_driver_run(driver, spec, interruptible, check_interrupt, &hooks);
}

void hf_run_both(lua_State *L, hf_driver *driver, hf_op *op, const hf_op *other,
                 bool interruptible) {
    watched_hooks hooks = watch_hooks(L, driver, interruptible);
    hf_driver_run_both(driver, op, other, interruptible, check_interrupt, &hooks);
}

hf_op *hf_send_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec) {
    watched_hooks hooks = watch_hooks(L, driver, false);
    return hf_driver_send(driver, spec, check_interrupt, &hooks);
}

/* ---- credentials ---- */

/* The registry key of a weak table: driver -> client, whose user value has the function. */
static const char CLIENTS_KEY = 0;

void hf_check_not_fetching(lua_State *L, const hf_driver *driver) {
    if (driver->fetching)
        luaL_error(L, "the function credentials must not use the client that it logs in");
}

void hf_set_credentials_function(lua_State *L, const hf_driver *driver) {
    assert(hf_testudata(L, -1, hf_client_type) && lua_isfunction(L, -2));
    hf_getuservalue(L, -1);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "credentials");
    lua_pop(L, 1);
    hf_push_weak_table(L, &CLIENTS_KEY, "v");
    lua_pushlightuserdata(L, (void *)(uintptr_t)driver);
    lua_pushvalue(L, -3);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

typedef struct fetch_request {
    const hf_driver *driver;
    const char *server;
    bool refused;
    hf_credentials *fetched;
} fetch_request;

static bool copy_secret(lua_State *L, int index, char *target) {
    size_t size;
    const char *secret = lua_tolstring(L, index, &size);
    if (!secret || size >= HF_URL_SECRET) return false;
    memcpy(target, secret, size + 1);
    return true;
}

static int l_fetch(lua_State *L) {
    const fetch_request *request = lua_touserdata(L, 1);
    hf_credentials *fetched = request->fetched;
    hf_push_weak_table(L, &CLIENTS_KEY, "v");
    lua_pushlightuserdata(L, (void *)(uintptr_t)request->driver);
    lua_rawget(L, -2);
    hf_getuservalue(L, -1);
    lua_getfield(L, -1, "credentials");
    lua_pushstring(L, request->server);
    lua_pushboolean(L, request->refused);
    lua_call(L, 2, 3);
    bool is_valid = copy_secret(L, -3, fetched->user) && copy_secret(L, -2, fetched->password);
    fetched->code = is_valid ? HF_OK : lua_toboolean(L, -1) ? HF_DENIED : HF_UNREACHABLE;
    const char *reason = lua_tostring(L, -2);
    if (!is_valid) snprintf(fetched->reason, sizeof fetched->reason, "no credentials: %s", reason);
    return 0;
}

void hf_fetch_from_lua(void *context, const char *server, bool refused, hf_credentials *fetched) {
    const watched_hooks *hooks = context;
    assert(hooks->driver->fetching);
    fetch_request request = {hooks->driver, server, refused, fetched};
    *fetched = (hf_credentials){.code = HF_NO_MEMORY, .reason = "out of memory"};
    if (!lua_checkstack(hooks->L, 4)) return;
    if (hf_cpcall(hooks->L, l_fetch, &request) != 0) lua_pop(hooks->L, 1);
}

void hf_log_in(lua_State *L, hf_driver *driver) {
    watched_hooks hooks = watch_hooks(L, driver, false);
    hf_driver_enter(driver);
    hf_driver_fetch_credentials(driver, &hooks);
    hf_driver_leave(driver);
}
