/* The client userdata. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "binding.h"
#include "posix/crash.h"

static hf_lua_client *check_client(lua_State *L) {
    return hf_checkudata(L, 1, hf_client_type);
}

hf_driver *hf_check_driver(lua_State *L, int index) {
    hf_driver *driver = ((hf_lua_client *)hf_checkudata(L, index, hf_client_type))->driver;
    if (!driver) luaL_error(L, "the client was garbage-collected");
    return driver;
}

hf_driver *hf_check_external(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    if (!driver->external) luaL_error(L, "not an external client");
    return driver;
}

static const unsigned char *check_entropy(lua_State *L) {
    size_t size;
    const char *entropy = hf_field_string(L, 1, "entropy", &size);
    if (entropy && size != 24) luaL_error(L, "entropy: 24 bytes");
    return (const unsigned char *)entropy;
}

static void copy_field(lua_State *L, const char *name, char *out, size_t size) {
    hf_push_field(L, 1, name);
    snprintf(out, size, "%s", luaL_optstring(L, -1, ""));
    lua_pop(L, 1);
}

/* Reads the field `tls` of the table at index 1: { ca_file, ca_path, cert, key, server_name, verify
 * }, all of them optional. Returns NULL when out of memory. */
static hf_tls_settings *read_tls_settings(lua_State *L) {
    hf_tls_options options = {0};
    hf_push_field(L, 1, "tls");
    if (lua_istable(L, -1)) {
        options = (hf_tls_options){
            hf_field_string(L, -1, "ca_file", NULL),     hf_field_string(L, -1, "ca_path", NULL),
            hf_field_string(L, -1, "cert", NULL),        hf_field_string(L, -1, "key", NULL),
            hf_field_string(L, -1, "server_name", NULL), false};
        hf_push_field(L, -1, "verify");
        options.accepts_any_certificate = lua_isboolean(L, -1) && !lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    hf_tls_settings *settings = hf_tls_settings_new(&options);
    lua_pop(L, 1);
    return settings;
}

static bool needs_tls(const hf_client_config *config) {
    bool needs = config->session.server.tls;
    for (size_t i = 0; i < config->server_count; i++) needs = needs || config->servers[i].tls;
    return needs;
}

/* Host names are case-insensitive; socket paths are not. */
static bool is_same_server(const hf_server *a, const hf_server *b) {
    if (a->port != b->port) return false;
    return a->port > 0 ? hf_equal_ignoring_case(a->host, b->host) : strcmp(a->host, b->host) == 0;
}

/* Reads the list of URLs at `index` into `servers`. Returns the problem with one of them, or
 * NULL. */
static const char *read_servers(lua_State *L, int index, hf_server servers[HF_SERVERS_MAX],
                                size_t *count) {
    luaL_argcheck(L, lua_istable(L, index), 1, "no list of servers");
    size_t length = hf_rawlen(L, index);
    luaL_argcheck(L, length >= 1 && length <= HF_SERVERS_MAX, 1, "1 to 64 servers");
    for (*count = 0; *count < length; ++*count) {
        size_t size;
        lua_rawgeti(L, index, (int)*count + 1);
        const char *url = luaL_checklstring(L, -1, &size);
        const char *problem = hf_url_read_server(&servers[*count], url, size);
        for (size_t i = 0; i < *count && !problem; i++)
            if (is_same_server(&servers[i], &servers[*count]))
                problem = "this server is given twice";
        if (problem) return lua_pushfstring(L, "%s (server %d)", problem, (int)*count + 1);
        lua_pop(L, 1);
    }
    return NULL;
}

/* Reads the lists `names` (false: no name) and `weights`, which are as long as `servers`. The
 * shards point to strings that the table `names` owns. */
static const hf_shard *read_shards(lua_State *L, size_t count) {
    hf_shard *shards = hf_newuserdata(L, count * sizeof *shards);
    hf_push_field(L, 1, "names");
    hf_push_field(L, 1, "weights");
    luaL_argcheck(L, lua_istable(L, -1) && lua_istable(L, -2), 1, "missing shard names or weights");
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, -2, (int)i + 1);
        lua_rawgeti(L, -2, (int)i + 1);
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        shards[i] = (hf_shard){.name = name,
                               .weight = (unsigned)hf_check_integer(L, -1, 1, HF_RING_MAX_WEIGHT)};
        lua_pop(L, 2);
    }
    return shards;
}

static const char *read_sentinels(lua_State *L, hf_client_config *config, const hf_url *url,
                                  hf_server servers[HF_SERVERS_MAX]) {
    if (url->count > HF_QUORUM_MAX) return "more than 32 Sentinels";
    for (size_t i = 0; i < url->count; i++) {
        servers[i] = (hf_server){0};
        copy_field(L, "sentinel_user", servers[i].user, sizeof servers[i].user);
        copy_field(L, "sentinel_password", servers[i].password, sizeof servers[i].password);
        servers[i].tls = url->server.tls;
        hf_server_set_address(&servers[i], &url->hosts[i]);
    }
    config->mode = HF_MODE_SENTINEL;
    config->servers = servers;
    config->server_count = url->count;
    memcpy(config->master, url->master, sizeof config->master);
    hf_server *master = &config->session.server;
    snprintf(master->label, sizeof master->label, "master \"%.240s\"", url->master);
    return NULL;
}

static void read_cluster(hf_client_config *config, const hf_url *url,
                         hf_server servers[HF_SERVERS_MAX]) {
    for (size_t i = 0; i < url->count; i++) {
        servers[i] = url->server;
        hf_server_set_address(&servers[i], &url->hosts[i]);
    }
    config->mode = HF_MODE_CLUSTER;
    config->servers = servers;
    config->server_count = url->count;
    hf_server *server = &config->session.server;
    snprintf(server->label, sizeof server->label, "cluster %.255s", url->server.label);
}

/* Reads the URL of one server, of Sentinels, or of some of a cluster's nodes. */
static const char *read_url(lua_State *L, hf_client_config *config,
                            hf_server servers[HF_SERVERS_MAX]) {
    hf_url url;
    size_t size;
    hf_push_field(L, 1, "url");
    const char *text = luaL_checklstring(L, -1, &size);
    const char *problem = hf_url_read(&url, text, size);
    if (problem) return problem;
    config->session.server = url.server;
    if (url.kind == HF_URL_SENTINEL) return read_sentinels(L, config, &url, servers);
    if (url.kind == HF_URL_CLUSTER) read_cluster(config, &url, servers);
    return NULL;
}

/* Reads the list `servers`. Messages identify the client by the first server. */
static const char *read_server_list(lua_State *L, hf_client_config *config,
                                    hf_server servers[HF_SERVERS_MAX]) {
    hf_push_field(L, 1, "servers");
    const char *problem = read_servers(L, lua_gettop(L), servers, &config->server_count);
    config->servers = servers;
    config->session.server = servers[0];
    return problem;
}

static const char *read_quorum(lua_State *L, hf_client_config *config,
                               hf_server servers[HF_SERVERS_MAX]) {
    const char *problem = read_server_list(L, config, servers);
    bool too_many = config->server_count > HF_QUORUM_MAX;
    config->mode = HF_MODE_QUORUM;
    return !problem && too_many ? "a quorum can have at most 32 servers" : problem;
}

static const char *read_shard_list(lua_State *L, hf_client_config *config,
                                   hf_server servers[HF_SERVERS_MAX]) {
    const char *problem = read_server_list(L, config, servers);
    config->mode = HF_MODE_SHARDS;
    if (problem) return problem;
    config->shards = read_shards(L, config->server_count);
    snprintf(config->session.server.label, sizeof config->session.server.label, "shards %.255s",
             servers[0].label);
    return NULL;
}

/* Reads a server's URL, or several with their mode, from the table at index 1. `servers`, and the
 * values that this leaves on the stack, must stay there until the client is created. */
static const char *read_topology(lua_State *L, hf_client_config *config,
                                 hf_server servers[HF_SERVERS_MAX]) {
    static const char *const modes[] = {"one", "quorum", "shards", NULL};
    static const char *(*const readers[])(lua_State *, hf_client_config *,
                                          hf_server *) = {read_url, read_quorum, read_shard_list};
    hf_push_field(L, 1, "mode");
    return readers[luaL_checkoption(L, -1, "one", modes)](L, config, servers);
}

/* Stores the option `credentials` in the new client, which is on top of the stack. */
static void store_credentials_option(lua_State *L, hf_driver *driver) {
    driver->fetch = hf_fetch_from_lua;
    hf_push_field(L, 1, "credentials");
    lua_insert(L, -2);
    hf_set_credentials_function(L, driver);
    lua_remove(L, -2);
}

/* new{ url, sentinel_user, sentinel_password, mode, servers, names, weights, restart_guard, name,
 * connect_timeout, command_timeout, grant_lease, sync_replicas, sync_timeout, external,
 * uses_event_loop, blocks, needs_approval, renewer_link, entropy, tls, published_name, tenant,
 * crash_release, credentials } -> client | nil, the problem with the URL. Lua drives an external
 * client through core.engine. With renewer_link, the client renews over a third link; with blocks,
 * no call begins while another call of the client is waiting. With uses_event_loop, an event loop
 * serves it through core.engine. */
static int l_new(lua_State *L) {
    hf_client_config config;
    memset(&config, 0, sizeof config);
    luaL_checktype(L, 1, LUA_TTABLE);
    hf_server *servers = hf_newuserdata(L, HF_SERVERS_MAX * sizeof *servers);
    const char *problem = read_topology(L, &config, servers);
    bool tls = needs_tls(&config);
    hf_push_field(L, 1, "tls");
    if (!problem && !lua_isnil(L, -1) && !tls) problem = "the tls option requires rediss://";
    if (problem) {
        lua_pushnil(L);
        lua_pushstring(L, problem);
        return 2;
    }
    copy_field(L, "name", config.session.name, sizeof config.session.name);
    copy_field(L, "tenant", config.tenant, sizeof config.tenant);
    config.session.reads_server_info = true;
    config.session.tests_script_isolation = config.tenant[0] != '\0';
    hf_push_field(L, 1, "credentials");
    bool fetches_login = lua_isfunction(L, -1);
    config.session.fetches_login = fetches_login;
    config.restart_guard = hf_to_time(hf_field_number(L, 1, "restart_guard"));
    config.session.connect_timeout = hf_to_time(hf_field_number(L, 1, "connect_timeout"));
    config.session.command_timeout = hf_to_time(hf_field_number(L, 1, "command_timeout"));
    config.grant_lease = hf_to_time(hf_field_number(L, 1, "grant_lease"));
    config.sync.replicas = (uint32_t)hf_field_integer(L, 1, "sync_replicas", 1000);
    config.sync.timeout = hf_to_time(hf_field_number(L, 1, "sync_timeout"));
    config.needs_approval = hf_field_boolean(L, 1, "needs_approval");
    bool external = hf_field_boolean(L, 1, "external"),
         uses_event_loop = hf_field_boolean(L, 1, "uses_event_loop");
    bool renewer_link = !(external || uses_event_loop) || hf_field_boolean(L, 1, "renewer_link");
    config.renewer = renewer_link ? HF_LINK_RENEWER : HF_LINK_CALLS;
    if (hf_field_boolean(L, 1, "crash_release")) config.life = hf_crash_probe_process;
    const unsigned char *entropy = check_entropy(L);
    hf_lua_client *client = hf_new_object(L, sizeof *client, hf_client_type);
    lua_newtable(L);
    hf_setuservalue(L, -2);
    client->driver = hf_driver_new(&config, entropy);
    if (!client->driver) return luaL_error(L, "cannot create a client: %s", strerror(errno));
    client->driver->external = external;
    client->driver->blocks = !(external || uses_event_loop) || hf_field_boolean(L, 1, "blocks");
    if (fetches_login) store_credentials_option(L, client->driver);
    hf_push_field(L, 1, "published_name");
    if (!lua_isnil(L, -1)) hf_driver_introduce(client->driver, luaL_checkstring(L, -1));
    lua_pop(L, 1);
    client->driver->uses_event_loop = uses_event_loop;
    if (!tls) return 1;
    client->driver->tls = read_tls_settings(L);
    if (!client->driver->tls) return luaL_error(L, "not enough memory");
    return 1;
}

static int l_gc(lua_State *L) {
    hf_lua_client *client = check_client(L);
    if (client->driver) {
        hf_driver_close(client->driver, HF_SECOND);
        hf_driver_unref(client->driver);
    }
    client->driver = NULL;
    return 0;
}

/* close(client, timeout): releases all holds, and waits up to `timeout` seconds for the server */
static int l_close(lua_State *L) {
    hf_driver *driver = check_client(L)->driver;
    if (driver) hf_check_not_fetching(L, driver);
    if (driver) hf_driver_close(driver, hf_to_time(luaL_checknumber(L, 2)));
    return 0;
}

/* Runs a command and returns its duration, or 0 without setting `result` when out of memory. */
static hf_time run_command(lua_State *L, hf_driver *driver, const hf_op_spec *spec,
                           hf_result *result) {
    hf_time duration = 0;
    if (driver->external) luaL_error(L, "this client does not block; use begin and finish");
    hf_check_not_fetching(L, driver);
    hf_driver_enter(driver);
    hf_op *op = hf_run_op(L, driver, spec, false);
    if (op) {
        duration = hf_now() - hf_op_begun_at(op);
        hf_op_take_result(op, result);
        hf_op_end(op, hf_now());
    }
    hf_driver_leave(driver);
    return duration;
}

/* needs_login(client) -> whether the server has refused the watchdog's last credentials.
 * log_in(client) fetches new ones for it without running a command. */
static int l_needs_login(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_driver_enter(driver);
    lua_pushboolean(L, hf_driver_needs_login(driver));
    hf_driver_leave(driver);
    return 1;
}

static int l_log_in(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_check_not_fetching(L, driver);
    hf_log_in(L, driver);
    return 0;
}

static int l_ping(lua_State *L) {
    hf_op_spec spec = {.kind = HF_OP_PING};
    hf_result result = {.failure = {.code = HF_NO_MEMORY}};
    hf_time duration = run_command(L, hf_check_driver(L, 1), &spec, &result);
    if (result.failure.code != HF_OK)
        return hf_push_error(L, result.failure.code, result.failure.text);
    lua_pushnumber(L, hf_to_seconds(duration));
    return 1;
}

/* ---- commands ---- */

static void push_reply(lua_State *L, const hf_reply *reply) {
    luaL_checkstack(L, 2, "the reply is nested too deeply");
    switch (reply->type) {
    case HF_REPLY_NIL: lua_pushnil(L); break;
    case HF_REPLY_INTEGER: lua_pushinteger(L, (lua_Integer)reply->integer); break;
    case HF_REPLY_ARRAY:
        lua_createtable(L, (int)reply->size, 0);
        for (size_t i = 0; i < reply->size; i++) {
            push_reply(L, reply->elements[i]);
            lua_rawseti(L, -2, (int)i + 1);
        }
        break;
    default: lua_pushlstring(L, reply->string, reply->size);
    }
}

/* Reads the arguments before the driver is entered, so that an error leaks nothing. The strings
 * stay on the stack. */
static const hf_slice *check_args(lua_State *L, int index, size_t *count) {
    *count = hf_rawlen(L, index);
    luaL_argcheck(L, *count > 0, index, "no command");
    hf_slice *args = hf_newuserdata(L, *count * sizeof *args);
    luaL_checkstack(L, (int)*count, "too many arguments");
    for (size_t i = 0; i < *count; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        args[i].data = lua_tolstring(L, -1, &args[i].size);
        luaL_argcheck(L, args[i].data, index, "arguments must be strings or numbers");
    }
    return args;
}

static int l_push_reply(lua_State *L) {
    push_reply(L, lua_touserdata(L, 1));
    return 1;
}

int hf_push_reply(lua_State *L, hf_reply *reply) {
    lua_pushcfunction(L, l_push_reply);
    lua_pushlightuserdata(L, reply);
    int status = lua_pcall(L, 1, 1, 0);
    hf_reply_free(reply);
    return status == 0 ? 1 : lua_error(L);
}

/* command(client, { name, arguments... }, node [, seconds]) -> the reply (a string, an integer, a
 * list, or nil) | nil, message, code. Reads or sets keys that are not locks. The command may be
 * sent twice, so it must be safe to repeat. It goes to `node`, one of nodes(client), by default to
 * the node of its first argument. It times out after `seconds`, by default command_timeout. */
static int l_command(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_op_spec spec = {.kind = HF_OP_COMMAND, .time_limit = hf_to_time(luaL_optnumber(L, 4, 0))};
    if (!lua_isnoneornil(L, 3)) spec.node = (size_t)hf_check_integer(L, 3, 0, INT_MAX);
    hf_result result = {.failure = {.code = HF_NO_MEMORY}};
    luaL_checktype(L, 2, LUA_TTABLE);
    spec.args = check_args(L, 2, &spec.arg_count);
    run_command(L, driver, &spec, &result);
    return result.reply ? hf_push_reply(L, result.reply)
                        : hf_push_error(L, result.failure.code, result.failure.text);
}

static void push_failures(lua_State *L, const hf_stats *stats) {
    lua_newtable(L);
    for (int code = HF_OK + 1; code < HF_CODES; code++)
        hf_set_count(L, hf_code_name((hf_code)code), stats->failures[code]);
}

/* stats(client) -> a table of counters since the client was created */
static int l_stats(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_driver_enter(driver);
    hf_stats stats = hf_client_stats(driver->client);
    hf_traffic traffic = hf_client_traffic(driver->client);
    uint64_t wakes = driver->wakes, holds = hf_client_load(driver->client).holds;
    hf_driver_leave(driver);
    lua_newtable(L);
#define SET_COUNTER(name) hf_set_count(L, #name, stats.name);
    HF_COUNTERS(SET_COUNTER)
    push_failures(L, &stats);
    lua_setfield(L, -2, "failures");
    hf_set_count(L, "connections", traffic.connections);
    hf_set_count(L, "reconnects", traffic.reconnects);
    hf_set_count(L, "round_trips", traffic.replies);
    hf_set_count(L, "watchdog_wakes", wakes);
    hf_set_count(L, "holds", holds);
    return 1;
}

/* has_losses(client) -> whether a hold was lost since the last call. Returns nothing for a
 * garbage-collected client, to which a weak table may still refer. */
static int l_has_losses(lua_State *L) {
    hf_lua_client *client = check_client(L);
    hf_driver *driver = client->driver;
    if (!driver) return 0;
    hf_driver_enter(driver);
    hf_client_detect_losses(driver->client, hf_driver_now(driver));
    uint64_t losses = hf_client_loss_count(driver->client);
    bool more = losses != client->losses_seen;
    client->losses_seen = losses;
    hf_driver_leave(driver);
    lua_pushboolean(L, more);
    return 1;
}

static int l_uuid(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_driver_enter(driver); /* changes the uuid after a fork */
    hf_driver_leave(driver);
    lua_pushstring(L, hf_client_uuid(driver->client));
    return 1;
}

/* introduce(client, name): sets the name that is published after host and pid; "" for none */
static int l_introduce(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    const char *name = luaL_checkstring(L, 2);
    hf_driver_enter(driver);
    hf_driver_introduce(driver, name);
    hf_driver_leave(driver);
    return 0;
}

/* who(client) -> "host pid[ name]", as the client publishes it */
static int l_who(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    char who[HF_WHO_SIZE];
    hf_driver_enter(driver); /* changes the pid after a fork */
    snprintf(who, sizeof who, "%s", hf_client_who(driver->client));
    hf_driver_leave(driver);
    lua_pushstring(L, who);
    return 1;
}

/* data(client) -> a table for values that live as long as the client and may refer to it */
static int l_data(lua_State *L) {
    check_client(L);
    hf_getuservalue(L, 1);
    return 1;
}

/* Pushes the server's current label, for messages, and returns it. The label may change at any
 * time, even in the watchdog's thread, when the Sentinels report a new master. */
static const char *push_label(lua_State *L, hf_driver *driver) {
    char label[sizeof((hf_server *)0)->label];
    hf_driver_enter(driver);
    snprintf(label, sizeof label, "%s", hf_client_label(driver->client));
    hf_driver_leave(driver);
    lua_pushstring(L, label);
    return lua_tostring(L, -1);
}

/* server(client) -> its server's label, for messages */
static int l_server(lua_State *L) {
    push_label(L, hf_check_driver(L, 1));
    return 1;
}

/* seconds_to_certificate_expiry(client) -> seconds until the first certificate of the open
 * connections (a server's or the client's) expires; nil without TLS */
static int l_certificate_seconds_left(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_driver_enter(driver);
    double seconds_left = hf_driver_certificate_seconds_left(driver);
    hf_driver_leave(driver);
    if (isinf(seconds_left)) return 0;
    lua_pushnumber(L, seconds_left);
    return 1;
}

/* tenant(client) -> the prefix of this tenant's keys (config.tenant), or "" */
static int l_tenant(lua_State *L) {
    lua_pushstring(L, hf_client_tenant(hf_check_driver(L, 1)->client));
    return 1;
}

/* Writes "<run id>/<db>"; or, if the run id is unknown, writes the server's address as this program
 * knows it, and returns false. */
static bool write_database_name(char *text, size_t size, const hf_session *link) {
    const hf_server *server = hf_session_server(link);
    const char *run_id = hf_session_run_id(link);
    if (run_id[0]) snprintf(text, size, "%s/%u", run_id, server->db);
    else snprintf(text, size, "%s %s:%u/%u", server->label, server->host, server->port, server->db);
    return run_id[0] != '\0';
}

/* database_names(client, key) -> a list of strings that identify the databases that hold the key;
 * true if every program would use the same strings, because all servers are connected and have sent
 * run ids */
static int l_database_names(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_slice key = hf_check_slice(L, 2);
    bool known = true;
    lua_newtable(L);
    for (int i = 0;; i++) {
        char text[2 * HF_URL_HOST + 64];
        hf_driver_enter(driver);
        const hf_session *link = hf_client_link_of_key(driver->client, key, (size_t)i);
        if (link) known = write_database_name(text, sizeof text, link) && known;
        hf_driver_leave(driver);
        if (!link) break;
        lua_pushstring(L, text);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushboolean(L, known);
    return 2;
}

/* nodes(client) -> the list of the nodes that store keys, for `command`; empty while a cluster's
 * nodes are unknown */
static int l_nodes(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    const hf_client *client = driver->client;
    int count = 0;
    hf_driver_enter(driver);
    size_t capacity = hf_client_node_count(client);
    hf_driver_leave(driver);
    lua_createtable(L, (int)capacity, 0); /* no error may be raised while the mutex is locked */
    hf_driver_enter(driver);
    for (size_t i = 0; i < hf_client_node_count(client) && i < capacity; i++) {
        if (!hf_client_node_may_have_keys(client, i)) continue;
        lua_pushinteger(L, (lua_Integer)i + 1);
        lua_rawseti(L, -2, ++count);
    }
    hf_driver_leave(driver);
    return 1;
}

/* is_quorum(client) */
static int l_is_quorum(lua_State *L) {
    lua_pushboolean(L, hf_client_uses_every_server(hf_check_driver(L, 1)->client));
    return 1;
}

/* node_of_lock(client, key) -> the node for a command on a key that belongs to this lock, such as
 * its queue; nil if the name of that key itself leads to the right node */
static int l_node_of_lock(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_slice key = hf_check_slice(L, 2);
    hf_driver_enter(driver);
    size_t node = hf_client_node_of_lock(driver->client, key);
    hf_driver_leave(driver);
    if (node > 0) lua_pushinteger(L, (lua_Integer)node);
    else lua_pushnil(L);
    return 1;
}

/* group(client, key) -> the number of the key's group; keys in the same group can be used in one
 * atomic command. It is the slot in a cluster, the shard, or 0 with one server. */
static int l_group(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_slice key = hf_check_slice(L, 2);
    hf_driver_enter(driver);
    lua_pushinteger(L, (lua_Integer)hf_client_group(driver->client, key));
    hf_driver_leave(driver);
    return 1;
}

static int l_tostring(lua_State *L) {
    hf_driver *driver = check_client(L)->driver;
    if (!driver) {
        lua_pushfstring(L, "%s: (closed)", hf_client_type);
        return 1;
    }
    lua_pushfstring(L, "%s: %s%s", hf_client_type, push_label(L, driver),
                    driver->closed ? " (closed)" : "");
    return 1;
}

void hf_open_client(lua_State *L) {
    static const luaL_Reg metamethods[] = {
        {"__gc", l_gc}, {"__tostring", l_tostring}, {NULL, NULL}};
    static const luaL_Reg functions[] = {
        {"new", l_new},
        {"close", l_close},
        {"ping", l_ping},
        {"needs_login", l_needs_login},
        {"log_in", l_log_in},
        {"stats", l_stats},
        {"has_losses", l_has_losses},
        {"uuid", l_uuid},
        {"server", l_server},
        {"seconds_to_certificate_expiry", l_certificate_seconds_left},
        {"tenant", l_tenant},
        {"database_names", l_database_names},
        {"command", l_command},
        {"group", l_group},
        {"nodes", l_nodes},
        {"is_quorum", l_is_quorum},
        {"node_of_lock", l_node_of_lock},
        {"introduce", l_introduce},
        {"who", l_who},
        {"data", l_data},
        {NULL, NULL}};
    hf_new_type(L, hf_client_type, metamethods);
    lua_setfield(L, -2, "client_type");
    lua_newtable(L);
    hf_set_functions(L, functions);
    hf_set_functions(L, hf_client_observer);
    lua_setfield(L, -2, "client");
}
