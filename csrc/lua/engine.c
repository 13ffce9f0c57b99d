/* core.engine: drives an external client from Lua, which owns the sockets and the clock.
 *
 * Links are numbers from 1 to links(client): three for each server, for its calls, its events and, where the client has
 * a keeper link of its own, its keeper. Times are seconds of whatever monotonic clock the caller keeps to. */
#include <math.h>

#include "binding.h"

#ifdef HF_DEFECTS
#include "../core/programs.h"
#endif

static hf_driver *check_external(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    if (!driver->external) luaL_error(L, "not an external client");
    return driver;
}

static hf_session *check_link(lua_State *L, hf_driver *driver) {
    lua_Integer link = luaL_checkinteger(L, 2);
    bool known = link >= 1 && (size_t)link <= hf_client_link_count(&driver->client);
    luaL_argcheck(L, known, 2, "no such link");
    return hf_client_link(&driver->client, (size_t)link - 1);
}

/* set_now(client, seconds): from now on this is its time, instead of the system's. */
static int l_set_now(lua_State *L) {
    check_external(L)->set_now = hf_to_time(luaL_checknumber(L, 2));
    return 0;
}

/* wants(client, link) -> "open", "close" or nil: what to do with the link's socket */
static int l_wants(lua_State *L) {
    hf_driver *driver = check_external(L);
    hf_session *session = check_link(L, driver);
    hf_driver_enter(driver);
    hf_want want = hf_session_wants(session, hf_driver_now(driver));
    hf_driver_leave(driver);
    if (want == HF_WANT_NOTHING) lua_pushnil(L);
    else lua_pushstring(L, want == HF_WANT_OPEN ? "open" : "close");
    return 1;
}

/* Tells the link's session what its socket does. */
static int tell(lua_State *L, void (*what)(hf_session *, hf_time)) {
    hf_driver *driver = check_external(L);
    hf_session *session = check_link(L, driver);
    hf_driver_enter(driver);
    what(session, hf_driver_now(driver));
    hf_driver_leave(driver);
    return 0;
}

static void agreeing(hf_session *session, hf_time now) {
    (void)now;
    hf_session_agreeing(session);
}

/* opening(client, link); agreeing(client, link): connected, now the TLS handshake; opened(client, link);
 * closed(client, link [, reason]): without one the server closed it */
static int l_opening(lua_State *L) {
    return tell(L, hf_session_opening);
}

static int l_agreeing(lua_State *L) {
    return tell(L, agreeing);
}

static int l_opened(lua_State *L) {
    return tell(L, hf_session_opened);
}

static int l_closed(lua_State *L) {
    hf_driver *driver = check_external(L);
    hf_session *session = check_link(L, driver);
    const char *reason = luaL_optstring(L, 3, NULL);
    hf_driver_enter(driver);
    hf_session_closed(session, reason, hf_driver_now(driver));
    hf_driver_leave(driver);
    return 0;
}

/* output(client, link) -> the bytes to write, which count as written; nil when there are none */
static int l_output(lua_State *L) {
    hf_driver *driver = check_external(L);
    hf_session *session = check_link(L, driver);
    hf_driver_enter(driver);
    hf_slice output = hf_session_output(session);
    hf_driver_leave(driver);
    if (output.size == 0) return 0;
    lua_pushlstring(L, output.data, output.size);
    hf_session_written(session, output.size);
    return 1;
}

/* feed(client, link, bytes) */
static int l_feed(lua_State *L) {
    hf_driver *driver = check_external(L);
    hf_session *session = check_link(L, driver);
    size_t size;
    const char *bytes = luaL_checklstring(L, 3, &size);
    hf_driver_enter(driver);
    hf_session_feed(session, bytes, size, hf_driver_now(driver));
    hf_driver_leave(driver);
    return 0;
}

/* tick(client): does what is due */
static int l_tick(lua_State *L) {
    hf_driver *driver = check_external(L);
    hf_driver_enter(driver);
    hf_client_tick(&driver->client, hf_driver_now(driver));
    hf_driver_leave(driver);
    return 0;
}

/* deadline(client) -> when tick has something to do next; math.huge: never */
static int l_deadline(lua_State *L) {
    hf_driver *driver = check_external(L);
    hf_driver_enter(driver);
    hf_time deadline = hf_client_deadline(&driver->client);
    hf_driver_leave(driver);
    lua_pushnumber(L, deadline == HF_NEVER ? HUGE_VAL : hf_to_seconds(deadline));
    return 1;
}

/* links(client) -> how many there are; the number may grow with a tick or a feed */
static int l_links(lua_State *L) {
    hf_driver *driver = check_external(L);
    hf_driver_enter(driver);
    lua_pushinteger(L, (lua_Integer)hf_client_link_count(&driver->client));
    hf_driver_leave(driver);
    return 1;
}

/* turn(client, done, chores) -> links, deadline, asked
 *
 * Does what is due, then tells what the driver is to do: `chores` gets for each link "open", "close", "write" or false;
 * the number of links; when to come again, math.huge: no need; and a number that grows when a hold asks for its owner's
 * word. The list `done` becomes the numbers of the operations that have ended since the last turn. A link that is
 * merely not needed may stay open. */
static void push_chore(lua_State *L, const hf_session *session, hf_time now) {
    if (session->closing) lua_pushliteral(L, "close");
    else if (hf_session_wants(session, now) == HF_WANT_OPEN) lua_pushliteral(L, "open");
    else if (hf_session_output(session).size > 0) lua_pushliteral(L, "write");
    else lua_pushboolean(L, false);
}

static void list_done(lua_State *L, hf_client *client) {
    int count = 0;
    for (hf_op *op = client->ops; op; op = op->next) {
        if (!op->done || op->told) continue;
        op->told = true;
        lua_pushnumber(L, (lua_Number)op->number);
        lua_rawseti(L, 2, ++count);
    }
    lua_pushnil(L);
    lua_rawseti(L, 2, count + 1);
}

static int l_turn(lua_State *L) {
    hf_driver *driver = check_external(L);
    hf_client *client = &driver->client;
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    hf_driver_enter(driver);
    hf_time now = hf_driver_now(driver), deadline = hf_client_deadline(client);
    if (deadline <= now) {
        hf_client_tick(client, now);
        deadline = hf_client_deadline(client);
    }
    list_done(L, client);
    size_t links = hf_client_link_count(client);
    for (size_t i = 0; i < links; i++) {
        push_chore(L, hf_client_link(client, i), now);
        lua_rawseti(L, 3, (int)i + 1);
    }
    lua_pushinteger(L, (lua_Integer)links);
    lua_pushnumber(L, deadline == HF_NEVER ? HUGE_VAL : hf_to_seconds(deadline));
    lua_pushnumber(L, (lua_Number)hf_client_asked(client));
    hf_driver_leave(driver);
    return 3;
}

/* load(client) -> operations not ended, holds that are ours or may become so, holds to be undone */
static int l_load(lua_State *L) {
    hf_driver *driver = check_external(L);
    const hf_client *client = &driver->client;
    int operations = 0, held = 0, leaving = 0;
    hf_driver_enter(driver);
    for (const hf_op *op = client->ops; op; op = op->next) operations++;
    for (size_t i = 0; i < client->holds.count; i++) {
        hf_hold_state state = client->holds.heap[i]->state;
        leaving += state == HF_HOLD_LEAVING;
        held += state != HF_HOLD_LEAVING && state != HF_HOLD_LOST;
    }
    hf_driver_leave(driver);
    lua_pushinteger(L, operations);
    lua_pushinteger(L, held);
    lua_pushinteger(L, leaving);
    return 3;
}

/* server(client, link) -> host or socket path, port or 0 */
static int l_server(lua_State *L) {
    const hf_server *server = check_link(L, check_external(L))->server;
    lua_pushstring(L, server->host);
    lua_pushinteger(L, server->port);
    return 2;
}

/* tls(client, link) -> { cert, key, server_name, verify }; nil for a plain connection */
static int l_tls(lua_State *L) {
    hf_driver *driver = check_external(L);
    if (!check_link(L, driver)->server->tls) return 0;
    const hf_tls_options *options = hf_tls_settings_options(driver->tls);
    lua_createtable(L, 0, 4);
    lua_pushstring(L, options->cert); /* NULL is nil */
    lua_setfield(L, -2, "cert");
    lua_pushstring(L, options->key);
    lua_setfield(L, -2, "key");
    lua_pushstring(L, options->server_name);
    lua_setfield(L, -2, "server_name");
    lua_pushboolean(L, !options->trusting);
    lua_setfield(L, -2, "verify");
    return 1;
}

/* timeouts(client) -> seconds for a connection, for a command */
static int l_timeouts(lua_State *L) {
    const hf_session_config *config = &check_external(L)->config.session;
    lua_pushnumber(L, hf_to_seconds(config->connect_timeout));
    lua_pushnumber(L, hf_to_seconds(config->command_timeout));
    return 2;
}

/* is_external(client) */
static int l_is_external(lua_State *L) {
    lua_pushboolean(L, hf_check_driver(L, 1)->external);
    return 1;
}

/* is_quiet(client) -> nothing is left to be undone on the server */
static int l_is_quiet(lua_State *L) {
    lua_pushboolean(L, hf_client_is_quiet(&check_external(L)->client));
    return 1;
}

#ifdef HF_DEFECTS
/* defect(name): from now on this one is on, "NONE": none */
static int l_defect(lua_State *L) {
#define HF_DEFECT_NAME(name) #name,
    static const char *const names[] = {HF_DEFECT_LIST(HF_DEFECT_NAME) NULL};
    hf_defect_on = (hf_defect)luaL_checkoption(L, 1, NULL, names);
    return 0;
}

/* program(name, sha1, source): from now on this is the program */
static int l_program(lua_State *L) {
    size_t length;
    const char *source = luaL_checklstring(L, 3, &length);
    lua_pushboolean(L, hf_program_replace(luaL_checkstring(L, 1), luaL_checkstring(L, 2), source, length));
    return 1;
}
#endif

void hf_open_engine(lua_State *L) {
    static const luaL_Reg functions[] = {{"set_now", l_set_now},
                                         {"wants", l_wants},
                                         {"opening", l_opening},
                                         {"agreeing", l_agreeing},
                                         {"opened", l_opened},
                                         {"closed", l_closed},
                                         {"output", l_output},
                                         {"feed", l_feed},
                                         {"tick", l_tick},
                                         {"deadline", l_deadline},
                                         {"server", l_server},
                                         {"tls", l_tls},
                                         {"links", l_links},
                                         {"is_quiet", l_is_quiet},
                                         {"turn", l_turn},
                                         {"load", l_load},
                                         {"timeouts", l_timeouts},
                                         {"is_external", l_is_external},
                                         {NULL, NULL}};
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
#ifdef HF_DEFECTS
    lua_pushcfunction(L, l_defect);
    lua_setfield(L, -2, "defect");
    lua_pushcfunction(L, l_program);
    lua_setfield(L, -2, "program");
#endif
    lua_setfield(L, -2, "engine");
}
