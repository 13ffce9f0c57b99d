-- The methods of a client. See docs/api.md.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local idempotent = require "holdfast.idempotent"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local multi_lock = require "holdfast.multi_lock"
local one_by_one = require "holdfast.one_by_one"
local options = require "holdfast.options"
local servers = require "holdfast.servers"
local templates = require "holdfast.with_lock"

local raw, meta, watchdog_meta = core.client, core.client_type, core.watchdog_type
local argument, check_self, tell = options.argument, options.self, loss.tell

---@class holdfast.client
local Client = {}

meta.__index = Client
meta.__metatable = meta.__name

---@class holdfast.shard
---@field url string
---@field weight? integer its share of the keys, 1 to 100; 1
---@field name? string that its share is computed from, 1 to 255 bytes; its place in the list

---@class holdfast.client_options
---@field url? string redis[s]://[[user:]password@]host[:port][/db], unix://[[user:]password@]/path[?db=N] or
--- redis+sentinel://[[user:]password@]host[:port][,host[:port]…]/master[/db] or
--- redis+cluster://[[user:]password@]host[:port],…; $HOLDFAST_URL
---@field servers? (string|holdfast.shard)[] several servers instead of url: 1 to 32 of a quorum, 1 to 64 shards
---@field mode? string of several servers: "quorum", a lock is held by a majority of them; "shards", each has its keys
---@field restart_guard? number seconds: in a quorum a server up for less has no vote; the longest lease anybody uses
---@field tls? holdfast.tls_options for rediss://
---@field sentinel_user? string of the Sentinels
---@field sentinel_password? string of the Sentinels
---@field sync? holdfast.sync replicas that must have a lock before it counts
---@field name? string for CLIENT SETNAME; "holdfast"
---@field lease? number seconds, 0.001 to 1e9; 30
---@field wait? number seconds that acquire waits, math.huge: no end; 10
---@field prefix? string before every key
---@field connect_timeout? number seconds; 1
---@field command_timeout? number seconds; 3
---@field grant_lease? number seconds that a granted lock may stay unconfirmed; 2
---@field driver? string "posix"; under ngx_lua "resty" too, which is then the default

---@class holdfast.sync
---@field replicas? integer 1 to 1000; 1
---@field timeout? number seconds, less than command_timeout; 0.1

local known_sync = { replicas = options.replicas, timeout = options.timeout }

---@class holdfast.tls_options
---@field ca_file? string PEM file of the authorities to trust; the system's
---@field ca_path? string directory of them, with hashed names
---@field cert? string PEM file of the client's certificate and its chain
---@field key? string PEM file of its key, without a passphrase
---@field server_name? string whom the server's certificate must be for; the URL's host
---@field verify? boolean false: any certificate will do, so whoever is in between can read and change everything; true

local known_tls = {
  ca_file = options.path,
  ca_path = options.path,
  cert = options.path,
  key = options.path,
  server_name = options.path,
  verify = options.boolean,
}

local known = {
  url = options.text,
  servers = servers.check,
  mode = servers.mode,
  restart_guard = options.timeout,
  tls = options.any_table,
  sentinel_user = options.secret,
  sentinel_password = options.secret,
  sync = options.any_table,
  name = options.name,
  lease = options.lease,
  wait = options.wait,
  prefix = options.text,
  connect_timeout = options.timeout,
  command_timeout = options.timeout,
  grant_lease = options.timeout,
  driver = options.one_of((table.unpack or unpack)(driver.names)),
}

local DEFAULT_URL = "redis://127.0.0.1:6379"

local defaults = setmetatable({}, { __mode = "k" }) -- client -> its lease, wait and prefix

local NGINX_TRUSTS = "holdfast.new: tls: under ngx_lua the authorities are those of lua_ssl_trusted_certificate"

local function check_tls(tls, external, level)
  options.table(tls, known_tls, "holdfast.new: tls", level + 1)
  if (tls.cert == nil) ~= (tls.key == nil) then error("holdfast.new: tls: cert and key go together", level + 1) end
  if external and (tls.ca_file or tls.ca_path) then error(NGINX_TRUSTS, level + 1) end
end

-- → replicas, timeout
local function sync_of(given, level)
  if not given.sync then return 0, 0 end
  local sync = options.table(given.sync, known_sync, "holdfast.new: sync", level + 1)
  local timeout = sync.timeout or 0.1
  if timeout >= (given.command_timeout or 3) then
    error("holdfast.new: sync: timeout must be less than command_timeout", level + 1)
  end
  return sync.replicas or 1, timeout
end

local function new(given, level)
  if type(given) == "string" then given = { url = given } end
  given = options.table(given, known, "holdfast.new", level + 1)
  local at_odds = servers.check_together(given)
  if at_odds then error("holdfast.new: " .. at_odds, level + 1) end
  local several = servers.lists(given.servers or {})
  local sync_replicas, sync_timeout = sync_of(given, level + 1)
  local external = (given.driver or driver.default) == "resty"
  if given.tls then check_tls(given.tls, external, level + 1) end
  local client, wrong = raw.new {
    mode = given.mode,
    servers = several.urls,
    weights = several.weights,
    names = several.names,
    restart_guard = given.restart_guard or 0,
    url = given.url or os.getenv("HOLDFAST_URL") or DEFAULT_URL,
    sentinel_user = given.sentinel_user,
    sentinel_password = given.sentinel_password,
    sync_replicas = sync_replicas,
    sync_timeout = sync_timeout,
    name = given.name or "holdfast",
    connect_timeout = given.connect_timeout or 1,
    command_timeout = given.command_timeout or 3,
    grant_lease = given.grant_lease or 2,
    external = external,
    attended = external,
    tls = given.tls,
  }
  if not client then error(("holdfast.new: %s: %s"):format(given.servers and "servers" or "url", wrong), level + 1) end
  defaults[client] = {
    lease = given.lease or 30,
    wait = given.wait or 10,
    prefix = given.prefix or "",
    external = external,
    quorum = given.mode == "quorum",
    patience = given.command_timeout or 3,
  }
  return client
end

-- A lock on `key`; does no I/O.
---@param key string 1 to 1048576 bytes
---@param opts? holdfast.lock_options
---@return holdfast.lock
function Client:lock(key, opts)
  check_self(self, meta, "client:lock", 2)
  argument(key, options.key, "client:lock", "key", 2)
  return locks.new(self, key, options.table(opts, locks.options, "client:lock", 2), defaults[self])
end

-- A lock in the layout of SET key owner NX PX, which excludes whoever else uses that; its owner cannot enter it twice.
-- Does no I/O.
---@param key string 1 to 1048576 bytes
---@param opts? holdfast.lock_options
---@return holdfast.lock
function Client:mutex(key, opts)
  check_self(self, meta, "client:mutex", 2)
  argument(key, options.key, "client:mutex", "key", 2)
  return locks.new(self, key, options.table(opts, locks.options, "client:mutex", 2), defaults[self], "mutex")
end

-- One lock over several keys of this server: all or none. Does no I/O.
---@param keys string[] no key twice
---@param opts? holdfast.lock_options `wait` is 1.5 seconds for each key by default
---@return holdfast.multi_lock
function Client:multi_lock(keys, opts)
  check_self(self, meta, "client:multi_lock", 2)
  argument(keys, multi_lock.check_keys, "client:multi_lock", "keys", 2)
  opts = options.table(opts, locks.options, "client:multi_lock", 2)
  local members = {}
  for i, key in ipairs(keys) do
    members[i] = locks.new(self, key, opts, defaults[self])
  end
  return (multi_lock.new(members, opts.wait, "client:multi_lock", 2)) -- no tail call: the level counts this function
end

-- A template that runs functions one by one for each business type and id.
---@param opts? holdfast.one_by_one_options
---@return holdfast.one_by_one
function Client:one_by_one(opts)
  check_self(self, meta, "client:one_by_one", 2)
  return one_by_one.new(self, options.table(opts, one_by_one.options, "client:one_by_one", 2), defaults[self])
end

-- Calls fn(...) unless it runs or has run for this key.
---@param key string
---@param opts? holdfast.idempotent_options | fun(...): ...
---@param fn? fun(...): ...
---@return any ... fn's results; nil, info, "duplicate"; nil, message, code; fn's results behind these when the end of
--- the run could not be recorded
function Client:idempotent(key, opts, fn, ...)
  check_self(self, meta, "client:idempotent", 2)
  argument(key, options.key, "client:idempotent", "key", 2)
  if options.callable(opts) == nil then return idempotent.run(self, key, defaults[self], {}, opts, fn, ...) end
  opts = options.table(opts, idempotent.options, "client:idempotent", 2)
  argument(fn, options.callable, "client:idempotent", "fn", 2)
  return idempotent.run(self, key, defaults[self], opts, fn, ...)
end

-- Calls fn(lock, ...) while holding the lock on `key`; releases it in any case.
---@param key string
---@param opts? holdfast.with_lock_options | fun(lock: holdfast.lock, ...): ...
---@param fn? fun(lock: holdfast.lock, ...): ...
---@return any ... fn's results; nil, message, code when fn did not run; nil, message, "lost", results when the lock was
--- lost meanwhile
function Client:with_lock(key, opts, fn, ...)
  check_self(self, meta, "client:with_lock", 2)
  argument(key, options.key, "client:with_lock", "key", 2)
  if options.callable(opts) == nil then return Client.with_lock(self, key, {}, opts, fn, ...) end
  opts = options.table(opts, templates.options, "client:with_lock", 2)
  argument(fn, options.callable, "client:with_lock", "fn", 2)
  return templates.run(locks.new(self, key, opts, defaults[self]), opts, fn, ...)
end

-- Counters since the client was made: acquires, releases, grants, renewals, losses, connections, …
---@return table<string, number>
function Client:stats()
  check_self(self, meta, "client:stats", 2)
  tell()
  return raw.stats(self)
end

-- Asks the server for a sign of life.
---@return number? seconds that it took
---@return string? message
---@return string? code
function Client:ping()
  check_self(self, meta, "client:ping", 2)
  tell()
  return driver.ping(self)
end

-- Releases what this client holds and ends its watchdog; later calls fail with "closed".
function Client:close()
  check_self(self, meta, "client:close", 2)
  tell()
  driver.close(self, defaults[self].patience)
end

-- ---- the watchdog ----

---@class holdfast.watchdog
local Watchdog = {}

watchdog_meta.__index = Watchdog
watchdog_meta.__metatable = watchdog_meta.__name

-- The thread that renews this client's locks.
---@return holdfast.watchdog
function Client:watchdog()
  check_self(self, meta, "client:watchdog", 2)
  return core.watchdog.new(self)
end

-- How many locks it renews.
---@return integer
function Watchdog:holds()
  check_self(self, watchdog_meta, "watchdog:holds", 2)
  return core.watchdog.holds(self)
end

-- Whether its thread runs; it starts with the first acquire.
---@return boolean
function Watchdog:is_running()
  check_self(self, watchdog_meta, "watchdog:is_running", 2)
  return core.watchdog.is_running(self)
end

-- Ends the thread until start: meanwhile nothing is renewed but while another call of the client runs.
function Watchdog:stop()
  check_self(self, watchdog_meta, "watchdog:stop", 2)
  core.watchdog.stop(self)
end

---@return boolean started
function Watchdog:start()
  check_self(self, watchdog_meta, "watchdog:start", 2)
  return core.watchdog.start(self)
end

-- The client's counters that concern renewing.
---@return table<string, number>
function Watchdog:stats()
  check_self(self, watchdog_meta, "watchdog:stats", 2)
  local all = raw.stats(core.watchdog.client(self))
  return {
    renewals = all.renewals,
    batches = all.renew_batches,
    late_renewals = all.late_renewals,
    losses = all.losses,
    undone = all.undone,
    wakes = all.watchdog_wakes,
  }
end

-- The defaults of a client, for what builds locks of its own.
local function defaults_of(client)
  return defaults[client]
end

return { new = new, defaults = defaults_of }
