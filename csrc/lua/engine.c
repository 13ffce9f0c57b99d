/* core.engine: drives a client from Lua. For an external client, Lua owns the sockets and the
 * clock. For a client of an event loop (serve, prepare_wait, wake, forget), Lua waits for a
 * descriptor.
 *
 * Links are numbered from 1 to links(client). Each server has three: for calls, for events and for
 * the renewer. The third is never opened if the client has no separate renewer link. Times are in
 * seconds of any monotonic clock. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "binding.h"

static hf_session *check_link(lua_State *L, hf_driver *driver) {
    lua_Integer link = luaL_checkinteger(L, 2);
    bool exists = link >= 1 && link <= (lua_Integer)hf_client_link_count(driver->client);
    luaL_argcheck(L, exists, 2, "no such link");
    return hf_client_link(driver->client, (size_t)link - 1);
}

/* set_now(client, seconds): sets the time that the client uses instead of the system's */
static int l_set_now(lua_State *L) {
    hf_check_external(L)->external_now = hf_to_time(luaL_checknumber(L, 2));
    return 0;
}

/* wants(client, link) -> "login", "open", "close" or nil: what the caller must do for the link */
static int l_wants(lua_State *L) {
    hf_driver *driver = hf_check_external(L);
    hf_session *session = check_link(L, driver);
    hf_driver_enter(driver);
    hf_want want = hf_session_wants(session, hf_driver_now(driver));
    hf_driver_leave(driver);
    static const char *const names[] = {
        [HF_WANT_LOGIN] = "login", [HF_WANT_OPEN] = "open", [HF_WANT_CLOSE] = "close"};
    lua_pushstring(L, names[want]); /* NULL becomes nil */
    return 1;
}

/* Reports a change of the link's socket to its session. Raises an error if the session does not
 * expect this change now. */
static int report_change(lua_State *L, bool (*expects)(const hf_session *),
                         void (*change)(hf_session *, hf_time)) {
    hf_driver *driver = hf_check_external(L);
    hf_session *session = check_link(L, driver);
    hf_driver_enter(driver);
    bool is_expected = expects(session);
    if (is_expected) change(session, hf_driver_now(driver));
    hf_driver_leave(driver);
    return is_expected ? 0 : luaL_argerror(L, 2, "the link is not in that state");
}

static void begin_handshake(hf_session *session, hf_time now) {
    (void)now;
    hf_session_handshaking(session);
}

/* Each of these reports the new state of the link's socket. opening(client, link): it is about to
 * connect. handshaking(client, link): it is connected and about to do a TLS handshake.
 * opened(client, link): it is ready. closed(client, link [, reason]): it is closed; without a
 * reason, by the server. */
static int l_opening(lua_State *L) {
    return report_change(L, hf_session_may_open, hf_session_opening);
}

static int l_handshaking(lua_State *L) {
    return report_change(L, hf_session_is_opening, begin_handshake);
}

static int l_opened(lua_State *L) {
    return report_change(L, hf_session_is_opening, hf_session_opened);
}

static int l_closed(lua_State *L) {
    hf_driver *driver = hf_check_external(L);
    hf_session *session = check_link(L, driver);
    const char *reason = luaL_optstring(L, 3, NULL);
    hf_driver_enter(driver);
    hf_session_closed(session, reason, hf_driver_now(driver));
    hf_driver_leave(driver);
    return 0;
}

static void push_chunks(lua_State *L, hf_slice bytes, size_t max_size) {
    lua_createtable(L, (int)(bytes.size / max_size + 1), 0);
    for (int i = 1; bytes.size > 0; i++) {
        size_t size = bytes.size < max_size ? bytes.size : max_size;
        lua_pushlstring(L, bytes.data, size);
        lua_rawseti(L, -2, i);
        bytes = (hf_slice){bytes.data + size, bytes.size - size};
    }
}

/* output(client, link [, part]) -> the bytes to write, as a list of strings; nil if there are none.
 * `part`: the fraction of the bytes in each string (0 to 1, by default 1). The client then counts
 * the bytes as written.
 *
 * A finalizer that runs while Lua allocates memory may add to the output, which may move it, or end
 * the connection. So the bytes are copied before the strings are created, and their number is
 * checked again after the buffer was allocated. */
static int l_output(lua_State *L) {
    char small[2048];
    hf_driver *driver = hf_check_external(L);
    hf_session *session = check_link(L, driver);
    lua_Number part = lua_isnoneornil(L, 3) ? 1 : hf_check_within(L, 3, 1);
    size_t size = hf_session_output(session).size;
    char *bytes = size <= sizeof small ? small : hf_newuserdata(L, size);
    hf_driver_enter(driver);
    hf_slice output = hf_session_output(session);
    if (size > output.size) size = output.size;
    if (size > 0) memcpy(bytes, output.data, size);
    hf_session_written(session, size);
    hf_driver_leave(driver);
    if (size == 0) return 0;
    push_chunks(L, (hf_slice){bytes, size}, (size_t)(part * (double)size) + 1);
    return 1;
}

/* feed(client, link, bytes) -> whether there is work to do: a reply is complete, or the connection
 * ends */
static int l_feed(lua_State *L) {
    hf_driver *driver = hf_check_external(L);
    hf_session *session = check_link(L, driver);
    size_t size;
    const char *bytes = luaL_checklstring(L, 3, &size);
    hf_driver_enter(driver);
    bool has_work = hf_session_feed(session, bytes, size, hf_driver_now(driver));
    hf_driver_leave(driver);
    lua_pushboolean(L, has_work);
    return 1;
}

/* tick(client): does what is due */
static int l_tick(lua_State *L) {
    hf_driver *driver = hf_check_external(L);
    hf_driver_enter(driver);
    hf_client_tick(driver->client, hf_driver_now(driver));
    hf_driver_leave(driver);
    return 0;
}

/* deadline(client) -> the time at which tick must be called, or math.huge */
static int l_deadline(lua_State *L) {
    hf_driver *driver = hf_check_external(L);
    hf_driver_enter(driver);
    hf_time deadline = hf_client_next_tick(driver->client);
    hf_driver_leave(driver);
    lua_pushnumber(L, deadline == HF_NEVER ? HUGE_VAL : hf_to_seconds(deadline));
    return 1;
}

/* links(client) -> the number of links, which may grow with a tick or a feed */
static int l_links(lua_State *L) {
    hf_driver *driver = hf_check_external(L);
    hf_driver_enter(driver);
    lua_pushinteger(L, (lua_Integer)hf_client_link_count(driver->client));
    hf_driver_leave(driver);
    return 1;
}

/* Pushes what the driver must do for the link: "open", "close", "write" or false. A link that is
 * merely no longer needed may remain open. */
static void push_action(lua_State *L, const hf_session *session, hf_time now) {
    hf_want want = hf_session_wants(session, now);
    if (hf_session_must_close(session)) lua_pushliteral(L, "close");
    else if (want == HF_WANT_OPEN || want == HF_WANT_LOGIN) lua_pushliteral(L, "open");
    else if (hf_session_output(session).size > 0) lua_pushliteral(L, "write");
    else lua_pushboolean(L, false);
}

/* Fills the table at stack index 2 with the numbers of the operations that have ended since the
 * last call. May raise an error, so the mutex must not be locked. It need not be, because only one
 * thread uses an external client, or one of an event loop. */
static void list_done(lua_State *L, hf_client *client) {
    int count = 0;
    for (hf_op *op = NULL; (op = hf_client_next_done(client, op));) {
        lua_pushnumber(L, (lua_Number)hf_op_ticket(op));
        lua_rawseti(L, 2, ++count);
    }
    lua_pushnil(L);
    lua_rawseti(L, 2, count + 1);
}

/* advance(client, done, actions) -> link count, deadline, approval count
 *
 * Does what is due. Then fills `done` with the numbers of the operations that have ended since the
 * last call, and `actions` with what the driver must do for each link (push_action). The deadline
 * is the time of the next call, or math.huge. The approval count grows with each hold that needs
 * approval. */
static int l_advance(lua_State *L) {
    hf_driver *driver = hf_check_external(L);
    hf_client *client = driver->client;
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    hf_driver_enter(driver);
    hf_time now = hf_driver_now(driver), deadline = hf_client_next_tick(client);
    if (deadline <= now) {
        hf_client_tick(client, now);
        deadline = hf_client_next_tick(client);
    }
    list_done(L, client);
    size_t links = hf_client_link_count(client);
    for (size_t i = 0; i < links; i++) {
        push_action(L, hf_client_link(client, i), now);
        lua_rawseti(L, 3, (int)i + 1);
    }
    lua_pushinteger(L, (lua_Integer)links);
    lua_pushnumber(L, deadline == HF_NEVER ? HUGE_VAL : hf_to_seconds(deadline));
    lua_pushnumber(L, (lua_Number)hf_client_approval_requests(client));
    hf_driver_leave(driver);
    return 3;
}

static hf_driver *check_event_loop(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    if (!driver->uses_event_loop) luaL_error(L, "not a client of an event loop");
    return driver;
}

/* serve(client [, done]): does what is due and sends what can be sent. If there is a list `done`,
 * first reads what has arrived, and fills the list with the numbers of the operations that have
 * ended. */
static int l_serve(lua_State *L) {
    hf_driver *driver = check_event_loop(L);
    bool reads = lua_istable(L, 2);
    hf_driver_enter(driver);
    hf_driver_serve(driver, reads);
    hf_driver_leave(driver);
    if (reads) list_done(L, driver->client);
    return 0;
}

/* defer_output(client): leaves the output for the end of this iteration of the loop, so that
 * commands begun in the same iteration are sent in one write. The descriptor returned by
 * `prepare_wait` becomes readable, and `serve` then sends. */
static int l_defer_output(lua_State *L) {
    hf_driver *driver = check_event_loop(L);
    hf_driver_enter(driver);
    hf_driver_defer_output(driver);
    hf_driver_leave(driver);
    return 0;
}

/* ended(client, done): fills the list with the numbers of the operations that have ended since the
 * last call */
static int l_ended(lua_State *L) {
    hf_driver *driver = check_event_loop(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    hf_driver_enter(driver); /* creates a new client after a fork */
    hf_driver_leave(driver);
    list_done(L, driver->client);
    return 0;
}

/* ---- credentials ---- */

/* Returns the link at stack index 2. Raises for a blocking client, which fetches its credentials
 * itself. */
static hf_session *check_link_for_login(lua_State *L, hf_driver *driver) {
    if (!driver->external && !driver->uses_event_loop)
        luaL_error(L, "this client fetches them itself");
    return check_link(L, driver);
}

/* next_login(client) -> the first link that needs credentials, or nil */
static int l_next_login(lua_State *L) {
    hf_driver *driver = check_event_loop(L);
    hf_driver_enter(driver);
    size_t count = hf_client_link_count(driver->client), link = 0;
    hf_time now = hf_driver_now(driver);
    while (link < count &&
           hf_session_wants(hf_client_link(driver->client, link), now) != HF_WANT_LOGIN)
        link++;
    hf_driver_leave(driver);
    if (link == count) return 0;
    lua_pushinteger(L, (lua_Integer)link + 1);
    return 1;
}

/* ask_login(client, link) -> the server's label, whether it has refused the last credentials. Must
 * be followed by log_in or login_failed for the link, or by `closed` for an external client. */
static int l_ask_login(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_session *session = check_link_for_login(L, driver);
    hf_driver_enter(driver);
    bool wants = hf_session_wants(session, hf_driver_now(driver)) == HF_WANT_LOGIN;
    bool refused = hf_session_is_login_refused(session);
    char server[sizeof hf_session_server(session)->label];
    memcpy(server, hf_session_server(session)->label, sizeof server);
    if (wants) hf_session_fetching_login(session);
    hf_driver_leave(driver);
    luaL_argcheck(L, wants, 2, "the link is not in that state");
    lua_pushstring(L, server);
    lua_pushboolean(L, refused);
    return 2;
}

/* log_in(client, link, user, password) */
static int l_log_in(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_session *session = check_link_for_login(L, driver);
    const char *user = luaL_checkstring(L, 3), *password = luaL_checkstring(L, 4);
    hf_driver_enter(driver);
    hf_session_log_in(session, user, password);
    hf_driver_leave(driver);
    return 0;
}

/* login_failed(client, link, reason, is_final): there are no credentials. Calls fail as "denied" if
 * that is final, else as "unreachable". */
static int l_login_failed(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_session *session = check_link_for_login(L, driver);
    char reason[160];
    snprintf(reason, sizeof reason, "no credentials: %s", luaL_checkstring(L, 3));
    hf_code code = lua_toboolean(L, 4) ? HF_DENIED : HF_UNREACHABLE;
    hf_driver_enter(driver);
    hf_session_login_failed(session, code, reason, hf_driver_now(driver));
    hf_driver_leave(driver);
    return 0;
}

/* forget_logins(client): reports that no credentials are being fetched any more */
static int l_forget_logins(lua_State *L) {
    hf_driver *driver = check_event_loop(L);
    hf_driver_enter(driver);
    for (size_t i = 0; i < hf_client_link_count(driver->client); i++)
        hf_session_cancel_fetching(hf_client_link(driver->client, i));
    hf_driver_leave(driver);
    return 0;
}

/* prepare_wait(client, seconds) -> a descriptor that becomes readable when `serve` has something to
 * do, or after that many seconds | nil, message */
static int l_prepare_wait(lua_State *L) {
    hf_driver *driver = check_event_loop(L);
    hf_time timeout = hf_to_time(luaL_checknumber(L, 2));
    hf_driver_enter(driver);
    int fd = hf_driver_prepare_wait(driver, hf_time_add(hf_now(), timeout));
    int error = errno;
    hf_driver_leave(driver);
    if (fd < 0) {
        lua_pushnil(L);
        lua_pushfstring(L, "cannot create a file descriptor to wait on: %s", strerror(error));
        return 2;
    }
    lua_pushinteger(L, fd);
    return 1;
}

/* wake(client): makes the descriptor returned by `prepare_wait` readable now */
static int l_wake(lua_State *L) {
    hf_driver *driver = check_event_loop(L);
    hf_driver_enter(driver);
    driver->serve_by = 0;
    if (driver->ready) hf_ready_set_time(driver->ready, 0, hf_now());
    hf_driver_leave(driver);
    return 0;
}

/* forget(client): closes the descriptor returned by `prepare_wait`; nothing may be waiting on it */
static int l_forget(lua_State *L) {
    hf_driver_close_ready_fd(check_event_loop(L));
    return 0;
}

/* close(client): begins to release everything; the loop must serve the client until it is quiet */
static int l_close(lua_State *L) {
    hf_driver_begin_close(hf_check_driver(L, 1));
    return 0;
}

/* load(client) -> the number of unfinished operations; the number of holds that the client has or
 * may still get; 1 if something remains to be undone or reported, else 0 */
static int l_load(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_driver_enter(driver);
    hf_load load = hf_client_load(driver->client);
    hf_driver_leave(driver);
    lua_pushinteger(L, (lua_Integer)load.operations);
    lua_pushinteger(L, (lua_Integer)load.held);
    lua_pushinteger(L, (lua_Integer)load.has_work);
    return 3;
}

/* server(client, link) -> host or socket path, port or 0 */
static int l_server(lua_State *L) {
    const hf_server *server = hf_session_server(check_link(L, hf_check_external(L)));
    lua_pushstring(L, server->host);
    lua_pushinteger(L, server->port);
    return 2;
}

/* tls(client, link) -> { cert, key, server_name, verify }; nil for a connection without TLS */
static int l_tls(lua_State *L) {
    hf_driver *driver = hf_check_external(L);
    if (!hf_session_server(check_link(L, driver))->tls) return 0;
    const hf_tls_options *options = hf_tls_settings_options(driver->tls);
    lua_createtable(L, 0, 4);
    lua_pushstring(L, options->cert); /* NULL becomes nil */
    lua_setfield(L, -2, "cert");
    lua_pushstring(L, options->key);
    lua_setfield(L, -2, "key");
    lua_pushstring(L, options->server_name);
    lua_setfield(L, -2, "server_name");
    hf_set_flag(L, "verify", !options->accepts_any_certificate);
    return 1;
}

/* timeouts(client) -> the time limits in seconds for connecting and for a command */
static int l_timeouts(lua_State *L) {
    const hf_session_config *config = &hf_check_external(L)->config.session;
    lua_pushnumber(L, hf_to_seconds(config->connect_timeout));
    lua_pushnumber(L, hf_to_seconds(config->command_timeout));
    return 2;
}

/* is_quiet(client) -> whether the client has nothing left to undo on the server */
static int l_is_quiet(lua_State *L) {
    lua_pushboolean(L, hf_client_is_quiet(hf_check_driver(L, 1)->client));
    return 1;
}

/* introduce(client, text): like client.introduce, but without host and pid, which vary */
static int l_introduce(lua_State *L) {
    hf_client_introduce(hf_check_external(L)->client, luaL_checkstring(L, 2));
    return 0;
}

void hf_open_engine(lua_State *L) {
    static const luaL_Reg functions[] = {{"set_now", l_set_now},
                                         {"wants", l_wants},
                                         {"opening", l_opening},
                                         {"handshaking", l_handshaking},
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
                                         {"advance", l_advance},
                                         {"load", l_load},
                                         {"timeouts", l_timeouts},
                                         {"serve", l_serve},
                                         {"defer_output", l_defer_output},
                                         {"ended", l_ended},
                                         {"next_login", l_next_login},
                                         {"ask_login", l_ask_login},
                                         {"log_in", l_log_in},
                                         {"login_failed", l_login_failed},
                                         {"forget_logins", l_forget_logins},
                                         {"prepare_wait", l_prepare_wait},
                                         {"wake", l_wake},
                                         {"forget", l_forget},
                                         {"close", l_close},
                                         {"introduce", l_introduce},
                                         {NULL, NULL}};
    lua_newtable(L);
    hf_set_functions(L, functions);
    lua_setfield(L, -2, "engine");
}
