-- The methods of a client. Those that return an object do no I/O. See docs/reference/api/client.md.

local core = require "holdfast.core"
local error = require("holdfast.compat").error
local lazy = require "holdfast.lazy"
local credentials = lazy "holdfast.credentials"
local deadlocks = lazy "holdfast.deadlocks"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local fence = lazy "holdfast.fence"
local idempotent = lazy "holdfast.idempotent"
local latch = lazy "holdfast.latch"
local lead = lazy "holdfast.lead"
local locale = require "holdfast.locale"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local metrics = lazy "holdfast.metrics"
local multi_lock = lazy "holdfast.multi_lock"
local once = lazy "holdfast.once"
local one_by_one = lazy "holdfast.one_by_one"
local options = require "holdfast.options"
local plain_semaphore = lazy "holdfast.plain_semaphore"
local read_write_lock = lazy "holdfast.read_write_lock"
local semaphore = lazy "holdfast.semaphore"
local servers = require "holdfast.servers"
local with_lock = lazy "holdfast.with_lock"

local raw, meta, watchdog_meta = core.client, core.client_type, core.watchdog_type
local check_argument, check_self, notify = options.check_argument, options.check_self, loss.notify

---@class holdfast.client
local Client = {}

meta.__index = Client
meta.__metatable = meta.__name

---@class holdfast.shard
---@field url string
---@field weight? integer its share of the keys, 1 to 100; default 1
---@field name? string 1 to 255 bytes from which its share is computed; default: its index in the list

---@class holdfast.client_options
---@field url? string redis[s]://[[user:]password@]host[:port][/db], unix://[[user:]password@]/path[?db=N] or
--- redis+sentinel://[[user:]password@]host[:port][,host[:port]…]/master[/db] or
--- redis+cluster://[[user:]password@]host[:port],…; rediss+ for TLS; valkey may replace redis; default $HOLDFAST_URL
---@field servers? (string|holdfast.shard)[] several servers instead of url: 1 to 32 for a quorum, 1 to 64 shards;
--- without url, servers and mode: the quorum in $HOLDFAST_SERVERS
---@field mode? holdfast.mode how servers are used: "quorum", a majority holds each lock; "shards", each has its own keys
---@field restart_guard? number seconds, 0 to 1e9: in a quorum, a server that has been up for less has no vote; set it to the longest lease in use
---@field tls? holdfast.tls_options for rediss://
---@field credentials? fun(server: string, refused: boolean): string, string returns user and password for each log-in to a
--- server, in place of those in its URL; nil and a message if there are none now
---@field sentinel_user? string login for the Sentinels
---@field sentinel_password? string password for the Sentinels
---@field sync? holdfast.sync replicas that must have a lock before it counts
---@field name? string shown to others as the holder, and sent with CLIENT SETNAME; default "holdfast"
---@field lease? number seconds, 0.001 to 1e9; default 30
---@field wait? number seconds that acquire waits; math.huge waits forever; default 10
---@field prefix? string put before every key
---@field tenant? string 1 to 127 bytes: prefix of this user's keys, on a server shared by users who do not trust each other
---@field fencing? boolean for locks that do not set it; default true
---@field token_ttl? number seconds, for locks that do not set it; default a day
---@field connect_timeout? number seconds; default 1
---@field command_timeout? number seconds; default 3
---@field grant_lease? number seconds that a granted lock may remain unconfirmed; default 2
---@field async_release? boolean for locks and templates that do not set it; default false
---@field keep? number seconds, 0 to 60, for locks, mutexes and templates that do not set it; default 0
---@field crash_release? boolean free the locks of crashed processes on this host at once; default false
---@field class? string for counters and events, for locks that do not set it; default ""
---@field on_event? fun(event: holdfast.event) called with each event of its locks and connections
---@field driver? string|table "posix", "cqueues", "copas", "luv" or your own loop; under ngx_lua also "resty", the
--- default there

---@class holdfast.sync
---@field replicas? integer 1 to 1000; default 1
---@field timeout? number seconds, less than command_timeout; default 0.1

local known_sync = { replicas = options.replicas, timeout = options.timeout }

---@class holdfast.tls_options
---@field ca_file? string PEM file of the authorities to trust; default: the system's
---@field ca_path? string directory of authorities, with hashed names
---@field cert? string PEM file of the client's certificate and its chain
---@field key? string PEM file of the certificate's key, without a passphrase
---@field server_name? string name that the server's certificate must match; default: the URL's host
---@field verify? boolean false accepts any certificate, so anyone in between can read and change everything; default true

local known_tls = {
  ca_file = options.path,
  ca_path = options.path,
  cert = options.path,
  key = options.path,
  server_name = options.server_name,
  verify = options.boolean,
}

local known = {
  url = options.text,
  servers = servers.check,
  mode = servers.mode,
  restart_guard = options.restart_guard,
  tls = options.any_table,
  credentials = options.callable,
  sentinel_user = options.secret,
  sentinel_password = options.secret,
  sync = options.any_table,
  name = options.name,
  lease = options.duration,
  wait = options.wait,
  prefix = options.text,
  tenant = options.tenant,
  fencing = options.boolean,
  token_ttl = options.token_ttl,
  connect_timeout = options.timeout,
  command_timeout = options.timeout,
  grant_lease = options.timeout,
  async_release = options.boolean,
  keep = options.keep,
  crash_release = options.boolean,
  class = options.class,
  on_event = options.callable,
  driver = driver.check,
}

local function copy_with(values, name, value)
  local new = options.copy(values)
  new[name] = value
  return new
end

-- The option `keep`, which hands a lock on within the client, does not apply to a multi-lock: it
-- always acquires its locks on the server.
local multi_options = copy_with(locks.options, "keep", nil)

local DEFAULT_URL = "redis://127.0.0.1:6379"

local defaults = setmetatable({}, { __mode = "k" }) -- client -> its lease, wait, prefix, …

-- → a copy of the checked settings: a second read of the user's table could return different values
local function tls_of(given, loop, level)
  local tls = options.check_options(given, known_tls, "holdfast.new: tls", level + 1)
  if (tls.cert == nil) ~= (tls.key == nil) then
    error("holdfast.new: tls: cert and key must be set together", level + 1)
  end
  local problem = loop and loop.check_tls and loop.check_tls(tls)
  if problem then error("holdfast.new: tls: " .. problem, level + 1) end
  return tls
end

-- → replicas, timeout
local function sync_of(given, level)
  if not given.sync then return 0, 0 end
  local sync = options.check_options(given.sync, known_sync, "holdfast.new: sync", level + 1)
  local timeout = sync.timeout or 0.1
  if timeout >= (given.command_timeout or 3) then
    error("holdfast.new: sync: timeout must be less than command_timeout", level + 1)
  end
  return sync.replicas or 1, timeout
end

-- Returns the checked options of new(options), new(url) or new(url, options).
local function read_options(given, more, level)
  if type(more) == "number" then
    -- new(url:gsub(…)) passes gsub's count; a number of 100 or more is meant as a port
    if more >= 100 then
      error("holdfast.new: put the port in the URL, as in redis://host:6379", level + 1)
    end
    more = nil
  end
  if type(given) ~= "string" and given ~= nil then
    if more ~= nil then
      error("holdfast.new: pass one table of options, or a URL and a table", level + 1)
    end
    local checked = options.check_options(given, known, "holdfast.new", level + 1)
    return checked
  end
  local all = options.copy(options.check_options(more, known, "holdfast.new", level + 1))
  if given and (all.url or all.servers) then
    error("holdfast.new: the first argument is already a URL; leave out url and servers", level + 1)
  end
  all.url = given or all.url
  return all
end

-- Takes the servers from the environment if the options name none.
-- → the options, where the servers come from (for messages)
local function locate(given, level)
  if given.url then return given, "url" end
  if given.servers or given.mode then return given, "servers" end
  local env = servers.environment()
  if not env.url and not env.servers then return given, "url" end
  local all = options.copy(given)
  if not env.servers then
    all.url = env.url
    return all, "url in $HOLDFAST_URL"
  end
  local list, expected = servers.split(env.servers)
  local source = "servers in $HOLDFAST_SERVERS"
  if not list then error(("holdfast.new: %s must be %s"):format(source, expected), level + 1) end
  options.check_argument(list, servers.check, "holdfast.new", source, level + 1)
  all.servers, all.mode = list, "quorum"
  return all, source
end

-- Raises if a URL contains bytes that the core would report as a bad port or scheme.
local function check_bytes(urls, source, level)
  for _, url in ipairs(urls) do
    local problem = servers.check_bytes(url)
    if problem then error(("holdfast.new: %s: %s"):format(source, problem), level + 1) end
  end
end

local TWO_LOGINS = "holdfast.new: credentials: leave user and password out of the URL"

-- → a function that fetches user and password for each log-in | nil without the option credentials
local function fetcher_of(given, urls, level)
  if not given.credentials then return nil end
  for _, url in ipairs(urls) do
    if url:find("://.*@") then error(TWO_LOGINS, level + 1) end
  end
  return credentials.make_fetcher(given.credentials)
end

-- `loop`: holdfast.testing's loop, which replaces the option driver, or nil.
local function new(given, level, more, loop)
  local source, missing
  given, source = locate(read_options(given, more, level + 1), level + 1)
  local conflict = servers.check_together(given)
  if conflict then error("holdfast.new: " .. conflict, level + 1) end
  local lists = servers.to_lists(given.servers or {})
  local url = servers.url(given.url or DEFAULT_URL)
  local urls = given.servers and lists.urls or { url }
  check_bytes(urls, source, level + 1)
  local sync_replicas, sync_timeout = sync_of(given, level + 1)
  if not loop then loop, missing = driver.loop(given.driver) end
  if missing then error("holdfast.new: driver: " .. missing, level + 1) end
  local tls = given.tls and tls_of(given.tls, loop, level + 1)
  local fetch = fetcher_of(given, urls, level + 1)
  local uses_sentinel = not given.servers and url:find("^[a-z]+%+sentinel://")
  if (given.sentinel_user or given.sentinel_password) and not uses_sentinel then
    error("holdfast.new: sentinel_user and sentinel_password need redis+sentinel://", level + 1)
  end
  if given.sentinel_user and not given.sentinel_password then
    error('holdfast.new: sentinel_user needs sentinel_password; use "" if the user has none',
      level + 1)
  end
  if given.mode == "quorum" and (given.keep or 0) > 0 then
    error("holdfast.new: the option keep needs a single server, not a quorum",
      level + 1)
  end
  if given.mode == "quorum" and given.crash_release then
    error("holdfast.new: crash_release does not work in a quorum, which has no queue", level + 1)
  end
  local settings = loop and loop.settings or {}
  local client, problem = raw.new {
    mode = given.mode,
    servers = lists.urls,
    weights = lists.weights,
    names = lists.names,
    restart_guard = given.restart_guard or 0,
    url = url,
    credentials = fetch,
    sentinel_user = locale.text(given.sentinel_user or ""),
    sentinel_password = locale.text(given.sentinel_password or ""),
    sync_replicas = sync_replicas,
    sync_timeout = sync_timeout,
    name = given.name or "holdfast",
    published_name = given.name or "",
    connect_timeout = given.connect_timeout or 1,
    command_timeout = given.command_timeout or 3,
    grant_lease = given.grant_lease or 2,
    external = settings.external,
    blocks = settings.blocks,
    needs_approval = settings.needs_approval,
    uses_event_loop = settings.uses_event_loop,
    tls = tls,
    tenant = given.tenant,
    crash_release = given.crash_release or false,
  }
  if not client then error(("holdfast.new: %s: %s"):format(source, problem), level + 1) end
  defaults[client] = {
    lease = given.lease or 30,
    wait = given.wait or 10,
    prefix = given.prefix or "",
    fencing = given.fencing,
    token_ttl = given.token_ttl,
    async_release = given.async_release,
    keep = given.keep or 0,
    crash_release = given.crash_release,
    class = given.class or "",
    classes = {},
    loop = loop,
    quorum = given.mode == "quorum",
    servers_id = table.concat(lists.urls, " ") .. " " .. (given.url and url or ""),
    close_timeout = given.command_timeout or 3,
  }
  driver.set_loop(client, loop)
  if fetch and loop then credentials.set_fetcher(client, fetch) end
  core.client.class(client, given.class or "")
  if given.on_event then events.watch(client, given.on_event) end
  return client
end

local function check_keep(client, given, what, level)
  if (given.keep or 0) == 0 then return end
  if defaults[client].quorum then
    error(what .. ": the option keep needs a single server, not a quorum", level + 1)
  elseif given.owner then
    error(what .. ": keep and owner cannot be combined, because other processes may share the owner",
      level + 1)
  end
end

local CLIENT_OWNER = "^[0-9a-f-]+:[0-9]+$"

-- With crash_release, raises for an owner of the form <client uuid>:<n>: a crash of the client with
-- that uuid would free this owner's hold.
local function check_owner(client, given, what, level)
  local owner = defaults[client].crash_release and given.owner
  if owner and #owner > 36 and owner:find(CLIENT_OWNER) then
    error(what .. ": owner must not have the form <client uuid>:<n> if crash_release is on, "
      .. "since a crash of that client would free the lock; choose another value", level + 1)
  end
end

-- Returns a lock's checked options.
local function lock_options(client, given, known_options, what, level)
  if given == nil or given == locks.no_options then return locks.no_options end
  given = options.check_options(given, known_options, what, level + 1)
  check_keep(client, given, what, level + 1)
  locks.check_limits_apply(given, defaults[client], nil, what, level + 1)
  check_owner(client, given, what, level + 1)
  return given
end

-- Checks the client and the key of a call. `quorum_unsupported`: the plural name of what the call
-- creates, if a quorum does not support it; else nil. `name`: the argument's name; default "key".
local function check_call(self, what, key, quorum_unsupported, name)
  check_self(self, meta, what, 3)
  check_argument(key, options.key, what, name or "key", 3)
  check_argument(defaults[self].prefix .. key, options.unreserved_key, what, name or "key", 3)
  if quorum_unsupported and defaults[self].quorum then
    error(("%s: %s need a single server, not a quorum"):format(what, quorum_unsupported), 3)
  end
end

-- A lock on `key`.
---@param key string 1 to 1048576 bytes
---@param opts? holdfast.lock_options
---@return holdfast.lock lock
function Client:lock(key, opts)
  check_call(self, "client:lock", key)
  return locks.new(self, key, lock_options(self, opts, locks.options, "client:lock", 2),
    defaults[self])
end

-- A lock stored the way `SET key owner NX PX` does it, so it excludes all clients that use that
-- command. It is not reentrant.
---@param key string 1 to 1048576 bytes
---@param opts? holdfast.lock_options
---@return holdfast.lock mutex
function Client:mutex(key, opts)
  check_call(self, "client:mutex", key)
  return locks.new(self, key, lock_options(self, opts, locks.options, "client:mutex", 2),
    defaults[self], "mutex")
end

-- A read/write lock, compatible with Redisson's RReadWriteLock.
---@param key string 1 to 1048576 bytes
---@param opts? holdfast.lock_options without owner
---@return holdfast.read_write_lock locks
function Client:read_write_lock(key, opts)
  check_call(self, "client:read_write_lock", key, "read/write locks")
  opts = lock_options(self, opts, read_write_lock.options, "client:read_write_lock", 2)
  return read_write_lock.new(self, key, opts, defaults[self])
end

-- A lock whose waiters line up in the list of RedissonFairLock.
---@param key string 1 to 1048576 bytes
---@param opts? holdfast.lock_options without owner
---@return holdfast.lock lock
function Client:fair_lock(key, opts)
  check_call(self, "client:fair_lock", key, "fair locks")
  opts = lock_options(self, opts, read_write_lock.options, "client:fair_lock", 2)
  return locks.new(self, key, opts, defaults[self], "fair")
end

-- A lock on several keys of this server; it acquires all of them or none.
---@param keys string[] all different
---@param opts? holdfast.lock_options `wait` is 1.5 seconds for each key by default
---@return holdfast.multi_lock lock
function Client:multi_lock(keys, opts)
  check_self(self, meta, "client:multi_lock", 2)
  check_argument(keys, multi_lock.check_keys, "client:multi_lock", "keys", 2)
  opts = lock_options(self, opts, multi_options, "client:multi_lock", 2)
  if defaults[self].keep > 0 then opts = copy_with(opts, "keep", 0) end
  local handles = {}
  for i = 1, #keys do
    check_argument(defaults[self].prefix .. keys[i], options.unreserved_key, "client:multi_lock", "keys", 2)
    handles[i] = locks.new(self, keys[i], opts, defaults[self])
  end
  -- no tail call: the level counts this function
  return (multi_lock.new(handles, opts.wait, "client:multi_lock", 2))
end

-- A template that runs functions one at a time for each business type and id.
---@param opts? holdfast.one_by_one_options
---@return holdfast.one_by_one template
function Client:one_by_one(opts)
  check_self(self, meta, "client:one_by_one", 2)
  opts = options.check_options(opts, one_by_one.options, "client:one_by_one", 2)
  check_keep(self, opts, "client:one_by_one", 2)
  one_by_one.check_limits_apply(opts, opts.lease, defaults[self], "client:one_by_one", 2)
  return one_by_one.new(self, opts, defaults[self])
end

-- Calls fn(...) unless another call for this key is running or counts as done.
---@param key string
---@param opts? holdfast.idempotent_options
---@param fn holdfast.callback
---@param ... any for fn
---@return any ... fn's results, or true if it returns none; nil, info, "duplicate"; nil, message, code, followed
--- by fn's results if the end of the run could not be recorded
---@overload fun(self: holdfast.client, key: string, fn: holdfast.callback, ...): ...
function Client:idempotent(key, opts, fn, ...)
  check_call(self, "client:idempotent", key)
  if options.callable(opts) == nil then
    options.not_after_function(idempotent.options, "client:idempotent", "key, ", 2, fn, ...)
    return idempotent.run(self, key, defaults[self], {}, opts, fn, ...)
  end
  opts = options.check_options(opts, idempotent.options, "client:idempotent", 2)
  check_argument(fn, options.callable, "client:idempotent", "fn", 2)
  return idempotent.run(self, key, defaults[self], opts, fn, ...)
end

-- Calls fn(lock, ...) once for each time of a schedule that many clients share. Does not call it if
-- another call on this key, less than half a period ago by the server's clock, already counts.
---@param key string
---@param period number seconds, 0.1 to 1e9, between scheduled times
---@param opts? holdfast.once_options
---@param fn holdfast.lock_callback
---@param ... any for fn
---@return any ... as client:with_lock; nil, message, "duplicate", holdfast.scheduled_run if another call counts
---@overload fun(self: holdfast.client, key: string, period: number, fn: holdfast.lock_callback, ...): ...
function Client:once(key, period, opts, fn, ...)
  check_call(self, "client:once", key, "schedules")
  check_argument(period, options.period, "client:once", "period", 2)
  if options.callable(opts) == nil then
    options.not_after_function(once.options, "client:once", "key, period, ", 2, fn, ...)
    return once.run(self, key, period, defaults[self], {}, opts, fn, ...)
  end
  opts = options.check_options(opts, once.options, "client:once", 2)
  locks.check_limits_apply(opts, defaults[self], true, "client:once", 2)
  check_argument(fn, options.callable, "client:once", "fn", 2)
  return once.run(self, key, period, defaults[self], opts, fn, ...)
end

-- Runs fn under a lock of this kind (see locks.new).
local function run_with_kind(self, name, kind, key, opts, fn, ...)
  local known_options = kind and read_write_lock.with_options or with_lock.options
  if options.callable(opts) == nil then
    options.not_after_function(known_options, name, "key, ", 2, fn, ...)
    local lock = locks.new(self, key, locks.no_options, defaults[self], kind)
    return with_lock.run(lock, locks.no_options, opts, fn, ...)
  end
  opts = lock_options(self, opts, known_options, name, 2)
  check_argument(fn, options.callable, name, "fn", 2)
  return with_lock.run(locks.new(self, key, opts, defaults[self], kind), opts, fn, ...)
end

-- Calls fn(lock, ...) while holding the lock on `key`, and releases the lock even if fn raises.
---@param key string
---@param opts? holdfast.with_lock_options
---@param fn holdfast.lock_callback
---@param ... any for fn
---@return any ... fn's results, or true if it returns none; nil, message, code when fn did not run; nil, message,
--- code, results when fn ran unprotected: "lost" if the lock was lost in the meantime, "conflict" if the release found
--- a key of another type, "not_held" if it found another owner
---@overload fun(self: holdfast.client, key: string, fn: holdfast.lock_callback, ...): ...
function Client:with_lock(key, opts, fn, ...)
  check_call(self, "client:with_lock", key)
  return run_with_kind(self, "client:with_lock", nil, key, opts, fn, ...)
end

-- A semaphore whose permits each have a lease.
---@param key string 1 to 1048576 bytes
---@param opts? holdfast.semaphore_options
---@return holdfast.semaphore semaphore
function Client:semaphore(key, opts)
  check_call(self, "client:semaphore", key, "semaphores")
  opts = options.check_options(opts, semaphore.options, "client:semaphore", 2)
  locks.check_limits_apply(opts, defaults[self], nil, "client:semaphore", 2)
  return semaphore.new(self, key, opts, defaults[self])
end

-- Redisson's RSemaphore: its permits have no lease, so a permit that is never released remains
-- taken.
---@param key string 1 to 1048576 bytes
---@param opts? holdfast.plain_semaphore_options
---@return holdfast.plain_semaphore semaphore
function Client:plain_semaphore(key, opts)
  check_call(self, "client:plain_semaphore", key, "plain semaphores")
  opts = options.check_options(opts, plain_semaphore.options, "client:plain_semaphore", 2)
  return plain_semaphore.new(self, key, opts, defaults[self])
end

-- A gate that opens when a count reaches 0; compatible with Redisson's RCountDownLatch.
---@param key string 1 to 1048576 bytes
---@param opts? holdfast.latch_options
---@return holdfast.latch latch
function Client:latch(key, opts)
  check_call(self, "client:latch", key, "latches")
  opts = options.check_options(opts, latch.options, "client:latch", 2)
  return latch.new(self, key, opts, defaults[self])
end

-- A fence: the server carries out writes to `resource` only while no later holder of the lock has
-- written to it or claimed it.
---@param resource string 1 to 1048576 bytes
---@param opts? holdfast.fence_options
---@return holdfast.fence fence
function Client:fence(resource, opts)
  check_call(self, "client:fence", resource, "fences", "resource")
  opts = options.check_options(opts, fence.options, "client:fence", 2)
  return fence.new(self, resource, opts, defaults[self])
end

-- Calls fn(lock, ...) while holding the read lock on `key`; otherwise like with_lock.
---@param key string
---@param opts? holdfast.with_lock_options
---@param fn holdfast.lock_callback
---@param ... any for fn
---@return any ... as for with_lock
---@overload fun(self: holdfast.client, key: string, fn: holdfast.lock_callback, ...): ...
function Client:with_read_lock(key, opts, fn, ...)
  check_call(self, "client:with_read_lock", key, "read/write locks")
  return run_with_kind(self, "client:with_read_lock", "read", key, opts, fn, ...)
end

-- Calls fn(lock, ...) while holding the write lock on `key`; otherwise like with_lock.
---@param key string
---@param opts? holdfast.with_lock_options
---@param fn holdfast.lock_callback
---@param ... any for fn
---@return any ... as for with_lock
---@overload fun(self: holdfast.client, key: string, fn: holdfast.lock_callback, ...): ...
function Client:with_write_lock(key, opts, fn, ...)
  check_call(self, "client:with_write_lock", key, "read/write locks")
  return run_with_kind(self, "client:with_write_lock", "write", key, opts, fn, ...)
end

-- Calls fn(lock, ...) while holding the fair lock on `key`; otherwise like with_lock.
---@param key string
---@param opts? holdfast.with_lock_options
---@param fn holdfast.lock_callback
---@param ... any for fn
---@return any ... as for with_lock
---@overload fun(self: holdfast.client, key: string, fn: holdfast.lock_callback, ...): ...
function Client:with_fair_lock(key, opts, fn, ...)
  check_call(self, "client:with_fair_lock", key, "fair locks")
  return run_with_kind(self, "client:with_fair_lock", "fair", key, opts, fn, ...)
end

-- Waits to become the leader, calls fn(term, ...), and waits again once fn has returned. Ends after
-- one term with options.once, or with term:resign() or client:close().
---@param key string
---@param opts? holdfast.lead_options
---@param fn holdfast.term_callback
---@param ... any for fn
---@return any ... for the last term, as from client:with_lock; nil, message, "closed"
---@overload fun(self: holdfast.client, key: string, fn: holdfast.term_callback, ...): ...
function Client:lead(key, opts, fn, ...)
  check_call(self, "client:lead", key)
  if options.callable(opts) == nil then
    options.not_after_function(lead.options, "client:lead", "key, ", 2, fn, ...)
    return lead.run(self, key, {}, defaults[self], opts, fn, ...)
  end
  opts = options.check_options(opts, lead.options, "client:lead", 2)
  lead.check(opts, defaults[self], 2)
  check_argument(fn, options.callable, "client:lead", "fn", 2)
  return lead.run(self, key, opts, defaults[self], fn, ...)
end

-- Returns the counters since the client was created.
---@return holdfast.stats stats
function Client:stats()
  check_self(self, meta, "client:stats", 2)
  notify()
  local all = raw.stats(self)
  all.classes = metrics.classes(self)
  return all
end

-- Returns the client's counters in the text format of OpenMetrics.
---@return string text
function Client:metrics()
  check_self(self, meta, "client:metrics", 2)
  notify()
  return metrics.render(metrics.samples(self))
end

-- Finds the owners that wait for each other. Each cycle is a deadlock: a list of its waits, the
-- oldest first.
---@return { cycles: holdfast.wait[][], waits: holdfast.wait[] }? found
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Client:deadlocks()
  check_self(self, meta, "client:deadlocks", 2)
  notify()
  return deadlocks.find(self)
end

-- Sends the server a PING.
---@return number? seconds until the reply
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Client:ping()
  check_self(self, meta, "client:ping", 2)
  notify()
  return driver.ping(self, defaults[self].loop)
end

-- Releases everything that this client holds and stops its watchdog. Later calls fail with
-- "closed".
function Client:close()
  check_self(self, meta, "client:close", 2)
  notify()
  driver.close(self, defaults[self].loop, defaults[self].close_timeout)
  notify()
end

-- ---- the watchdog ----

---@class holdfast.watchdog
local Watchdog = {}

watchdog_meta.__index = Watchdog
watchdog_meta.__metatable = watchdog_meta.__name

-- The thread that renews this client's locks.
---@return holdfast.watchdog watchdog
function Client:watchdog()
  check_self(self, meta, "client:watchdog", 2)
  return core.watchdog.new(self)
end

-- Returns the number of locks that the watchdog renews.
---@return integer count
function Watchdog:holds()
  check_self(self, watchdog_meta, "watchdog:holds", 2)
  return core.watchdog.holds(self)
end

-- Returns whether the watchdog's thread is running; the first acquire starts it. An event loop has
-- no such thread.
---@return boolean running
function Watchdog:is_running()
  check_self(self, watchdog_meta, "watchdog:is_running", 2)
  return core.watchdog.is_running(self)
end

-- Stops the thread. Until start is called, locks are renewed only while a call of the client is
-- running. Has no effect in an event loop.
function Watchdog:stop()
  check_self(self, watchdog_meta, "watchdog:stop", 2)
  core.watchdog.stop(self)
end

-- Starts the thread again after stop.
---@return boolean started
function Watchdog:start()
  check_self(self, watchdog_meta, "watchdog:start", 2)
  return core.watchdog.start(self)
end

-- Returns the client's counters about renewals.
---@return table<string, integer> stats
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

-- defaults(client): for modules that create locks themselves
return { new = new, defaults = function(client) return defaults[client] end }
