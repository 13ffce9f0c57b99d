-- The methods of a lock. See docs/reference/api/lock.md.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local error = require("holdfast.compat").error
local events = require "holdfast.events"
local lazy = require "holdfast.lazy"
local fence_headers = lazy "holdfast.fence_headers"
local holder = lazy "holdfast.holder"
local loss = require "holdfast.loss"
local names = lazy "holdfast.names"
local observed = lazy "holdfast.observed"
local options = require "holdfast.options"
local texts = require "holdfast.text"

local raw, meta = driver.lock, core.lock_type
local check_argument, check_self = options.check_argument, options.check_self
local notify, notify_after = loss.notify, loss.notify_after
local check_wait = options.wait

local lock = {}

local acquire = raw.acquire

-- If a wait times out because the lock is still taken, the message names the holder, provided that
-- the client has a single node. With a wait of 0 the message does not, to save a round trip.
-- `keys`: the keys that a multi-lock acquires next, or nil
function raw.acquire(self, wait, keys)
  local acquired, message, code, record = acquire(self, wait, keys)
  if acquired then return acquired end
  if record then return nil, message, code, record end
  if code ~= "busy" then return nil, message, code end
  local data = raw.data(self)
  wait = wait or data.wait
  local waits = wait > 0 and data.max_waiters ~= 0
  local may_name_holder = waits and not core.kinds[data.kind].has_fingerprint
    and #core.client.nodes(data.client) == 1
  if may_name_holder and driver.can_wait(self) then
    message = holder.add_to_failure(self, message, wait)
  end
  return nil, message, code
end

-- Returns a token as a decimal string; nil for nil.
function lock.text_of(token)
  return token and ("%.0f"):format(token)
end

-- Returns the next number for this client's calls to fences and its scheduled runs, counted from 1.
function lock.next_call(client)
  local data = core.client.data(client)
  data.calls = (data.calls or 0) + 1
  return data.calls
end

---@class holdfast.lock
local Lock = {}

meta.__index = Lock
meta.__metatable = meta.__name

-- Acquires or re-enters the lock. `wait`: seconds; 0 tries once, math.huge waits forever.
---@param wait? number
---@return holdfast.lock? lock
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Lock:acquire(wait)
  check_self(self, meta, "lock:acquire", 2)
  if wait ~= nil and check_wait(wait) then
    check_argument(wait, options.wait, "lock:acquire", "wait", 2)
  end
  if events.has_callbacks then notify() end
  return raw.acquire(self, wait)
end

-- The same as acquire(0).
---@return holdfast.lock? lock
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Lock:try_acquire()
  check_self(self, meta, "lock:try_acquire", 2)
  notify()
  return raw.acquire(self, 0)
end

-- Releases one hold; the last one frees the lock and passes it on.
---@return true? released
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Lock:release()
  check_self(self, meta, "lock:release", 2)
  if not events.has_callbacks then return raw.release(self) end
  return notify_after(raw.release(self))
end

-- Frees the lock, even if another owner holds it. That owner finds out at its next renewal, check
-- or release.
---@return boolean? was_locked
---@return string? message
---@return holdfast.code? code
---@return_overload boolean
---@return_overload nil, string, holdfast.code
function Lock:force_release()
  check_self(self, meta, "lock:force_release", 2)
  notify()
  return raw.force_release(self)
end

-- Sets a new lease of `seconds`, starting now. The watchdog also uses it for later renewals.
---@param seconds number
---@return true? extended
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Lock:extend(seconds)
  check_self(self, meta, "lock:extend", 2)
  check_argument(seconds, options.duration, "lock:extend", "seconds", 2)
  notify()
  return raw.extend(self, seconds)
end

-- Asks the server whether this owner still holds the lock.
---@return true? held
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Lock:check()
  check_self(self, meta, "lock:check", 2)
  notify()
  return raw.check(self)
end

-- Returns whether this owner holds the lock and its lease has not ended by the client's clock; no
-- I/O.
---@return boolean held
function Lock:is_held()
  check_self(self, meta, "lock:is_held", 2)
  notify()
  return raw.is_held(self)
end

-- Asks the server whether anyone holds the lock.
---@return boolean? locked
---@return string? message
---@return holdfast.code? code
---@return_overload boolean
---@return_overload nil, string, holdfast.code
function Lock:is_locked()
  check_self(self, meta, "lock:is_locked", 2)
  notify()
  local ttl, message, code = raw.ttl(self)
  if code then return nil, message, code end
  return ttl ~= nil
end

-- Returns this owner's hold count; no I/O.
---@return integer count
function Lock:holds()
  check_self(self, meta, "lock:holds", 2)
  notify()
  return raw.holds(self)
end

-- Returns the seconds for which this owner can rely on the lock, 0 if it does not hold it; no I/O.
---@return number seconds
function Lock:remaining()
  check_self(self, meta, "lock:remaining", 2)
  notify()
  return raw.remaining(self)
end

-- Returns the lock's TTL on the server in seconds, or nil if it is free.
---@return number? seconds
---@return string? message
---@return holdfast.code? code
function Lock:ttl()
  check_self(self, meta, "lock:ttl", 2)
  notify()
  return raw.ttl(self)
end

-- Returns the fencing token of the current hold, or nil without one; no I/O.
---@return integer? token
function Lock:token()
  check_self(self, meta, "lock:token", 2)
  notify()
  return raw.token(self)
end

-- Returns the token as a decimal string; no I/O.
---@return string? text
function Lock:token_text()
  check_self(self, meta, "lock:token_text", 2)
  notify()
  return lock.text_of(raw.token(self))
end

-- Returns the headers that pass the current hold's token to a service; no I/O.
---@param resource string what the request writes to
---@return table<string, string>? headers
---@return string? message
---@return holdfast.code? code "lost", "not_held"
---@return_overload nil, string, holdfast.code
function Lock:fence_headers(resource)
  check_self(self, meta, "lock:fence_headers", 2)
  check_argument(resource, options.key, "lock:fence_headers", "resource", 2)
  notify()
  local token = raw.token(self)
  if token then return fence_headers.make(resource, raw.key(self), token) end
  if raw.is_held(self) then
    error("lock:fence_headers: the lock has no fencing tokens; leave out fencing = false when you create it", 2)
  end
  local reason = raw.lost(self)
  local how = reason and ("it was lost (%s)"):format(reason) or "this owner does not hold it"
  return nil, ('the lock "%s" has no token: %s'):format(texts.shown(raw.key(self)), how),
    reason and "lost" or "not_held"
end

-- Returns how this owner's lock was lost: "expired", "taken", "deleted", "unreachable" or
-- "max_hold"; nil if it was not. No I/O.
---@return holdfast.lost_reason? reason
function Lock:lost()
  check_self(self, meta, "lock:lost", 2)
  notify()
  return raw.lost(self)
end

---@class holdfast.lock_info
---@field owner? string the holder; nil if the lock is free
---@field holds integer how many times the holder has acquired the lock
---@field ttl? number seconds
---@field token? integer the last one given for this key
---@field waiters integer how many waiters are queued
---@field position? integer of this client's first waiter in the queue, from 1
---@field host? string of the holder's client, if the client has published it
---@field pid? integer
---@field name? string
---@field readers? integer for a read/write lock
---@field held_for? number seconds by the server's clock, if known
---@field waits? number seconds that the first waiter has waited, by the server's clock

-- Reads the lock's state on the server.
---@return holdfast.lock_info? info
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Lock:info()
  check_self(self, meta, "lock:info", 2)
  notify()
  local info, message, code = raw.info(self)
  if not info then return nil, message, code end
  local client = raw.data(self).client
  info.held_for, info.clock = observed.held_for(info, core.client.is_quorum(client)), nil
  local who = info.owner and names.read(client, info.owner)
  if who then info.host, info.pid, info.name = who.host, who.pid, who.name end
  return info
end

-- Returns the seconds that the last successful acquire through this handle took, or nil if there
-- was none. No I/O.
---@return number? seconds
function Lock:waited()
  check_self(self, meta, "lock:waited", 2)
  return raw.waited(self)
end

-- The key on the server, with the client's prefix.
---@return string key
function Lock:key()
  check_self(self, meta, "lock:key", 2)
  return raw.key(self)
end

-- Returns the owner that an acquire in this coroutine uses.
---@return string owner
function Lock:owner()
  check_self(self, meta, "lock:owner", 2)
  return raw.owner(self)
end

-- `local held <close> = assert(lock:acquire())` releases the lock; a no-op if it is no longer held.
meta.__close = driver.release_on_exit

---@class holdfast.lock_options
---@field lease? number seconds, 0.001 to 1e9, after which the lock expires; if not set, the watchdog renews the client's lease
---@field max_hold? number seconds, 0.001 to 1e9, after which the watchdog stops renewing; default: no limit
---@field wait? number seconds that acquire waits by default; default: the client's
---@field max_waiters? integer 0 to 1e9: acquire fails at once if this many are waiting already; default: no limit
---@field watchdog? boolean true renews even if lease is set; false never renews
---@field owner? string 1 to 255 bytes; default: the calling coroutine of this client
---@field on_lost? fun(lock: holdfast.lock, reason: holdfast.lost_reason)
---@field on_event? fun(event: holdfast.event)
---@field class? string groups locks for counters and events; default: the client's
---@field interruptible? boolean a signal ends a wait
---@field async_release? boolean release returns once it is sent; default: the client's
---@field keep? number seconds, 0 to 60, for which the client keeps a released lock for its own callers; default: the client's
---@field deadlock_check? number seconds, at least 0.5: after waiting this long, acquire checks for a deadlock
---@field fencing? boolean default: the client's, which is true unless set
---@field token_ttl? number seconds that the fencing counter is kept after the last acquire; default: the client's, a day unless set

lock.options = {
  lease = options.duration,
  max_hold = options.duration,
  wait = options.wait,
  max_waiters = options.max_waiters,
  watchdog = options.boolean,
  owner = options.owner,
  on_lost = options.callable,
  on_event = options.callable,
  class = options.class,
  interruptible = options.boolean,
  async_release = options.boolean,
  keep = options.keep,
  deadlock_check = options.deadlock_check,
  fencing = options.boolean,
  token_ttl = options.token_ttl,
}

-- Adds the lock options with these names to a table of options. → the table
function lock.add_options(known, wanted)
  for _, name in ipairs(wanted) do known[name] = lock.options[name] end
  return known
end

-- The default token_ttl. Once a counter has expired, the next token comes from the server's clock.
local DAY = 24 * 3600

local function value_or(given, default)
  if given == nil then return default end
  return given
end

local function token_ttl_of(given, defaults)
  return value_or(given.fencing, defaults.fencing) == false and 0 or given.token_ttl
    or defaults.token_ttl or DAY
end

local function class_of(client, name, defaults)
  name = name or defaults.class
  local number = defaults.classes[name]
  if not number then
    number = core.client.class(client, name)
    defaults.classes[name] = number
  end
  return number
end

-- A lock with the option `owner` is never kept, because other processes may use the same owner.
local function keep_of(given, defaults, kind)
  if not core.kinds[kind].may_be_kept or given.owner then return 0 end
  return given.keep or defaults.keep
end

lock.no_options = {} -- passed to lock.new if there are no options

local function is_renewed(given)
  if given.watchdog == nil then return given.lease == nil end
  return given.watchdog
end

-- Raises at `level` if max_hold has no effect, or for max_waiters in a quorum, which has no queue.
-- `renewed`: whether the watchdog renews the lock; nil: the options decide.
function lock.check_limits_apply(given, defaults, renewed, func_name, level)
  if renewed == nil then renewed = is_renewed(given) end
  if given.max_hold and not renewed then
    error(func_name .. ": max_hold limits how long the watchdog renews the lock; without a watchdog, " ..
      "the lease is already the limit, so leave out max_hold or set watchdog = true", level + 1)
  elseif given.max_waiters and defaults.quorum then
    error(func_name .. ": max_waiters does not work in a quorum, which has no queue", level + 1)
  end
end

local function make(client, key, given, defaults, kind, permits)
  local self = raw.new(client, {
    client = client,
    key = defaults.prefix .. key,
    kind = kind,
    loop = defaults.loop,
    quorum = defaults.quorum,
    fingerprint = given.fingerprint,
    permits = permits,
    initial_permits = given.permits,
    lease = given.lease or defaults.lease,
    max_hold = given.max_hold,
    max_waiters = given.max_waiters,
    wait = given.wait or defaults.wait,
    keep = keep_of(given, defaults, kind),
    renewed = is_renewed(given),
    owner = given.owner,
    interruptible = given.interruptible,
    async_release = value_or(given.async_release, defaults.async_release),
    deadlock_check = given.deadlock_check or 0,
    class = class_of(client, given.class, defaults),
    observer = events.observer(client, given.on_event),
    on_event = given.on_event,
    token_ttl = token_ttl_of(given, defaults),
    on_lost = given.on_lost,
  })
  if given.on_lost then loss.watch(self, client) end
  return self
end

local MAX_SHARED = 64 -- option sets cached for each kind of lock; one more clears that kind's cache

local function is_shareable(given)
  return not (given.owner or given.on_lost or given.on_event or given.fingerprint or given.permits)
end

-- Returns the node for locks with these options in the tree with this root. The tree has one level
-- for each option, in the order in which pairs returns them.
local function node_for(root, given)
  local node = root
  for name, value in pairs(given) do
    local values = node[name] or {}
    node[name] = values
    node = values[value] or {}
    values[value] = node
  end
  return node
end

-- Stores a lock with these options in the node, as the prototype that others are copied from. It is
-- never returned to a caller, because it outlives the callers' handles.
local function add_prototype(client, key, given, defaults, kind, all, node)
  all.count = (all.count or 0) + 1
  if all.count > MAX_SHARED then core.client.data(client)[kind] = nil end
  node.prototype = make(client, key, given, defaults, kind)
end

-- Creates a lock with its own settings table. Takes the same arguments as lock.new.
function lock.unshared(client, key, given, defaults, kind, permits)
  return make(client, key, given, defaults, kind or "lock", permits)
end

-- Creates a lock. `given` must already have been checked; `defaults` are the client's. `kind`: its
-- name in csrc/core/lock/kind.c; default "lock". `permits`: the number that an acquire takes. Locks
-- with the same options share one settings table, whose `key` is the first lock's, unless the
-- options are specific to one lock (see is_shareable).
function lock.new(client, key, given, defaults, kind, permits)
  kind = kind or "lock"
  local has_no_options = given == lock.no_options
  if permits or not has_no_options and not is_shareable(given) then
    return make(client, key, given, defaults, kind, permits)
  end
  local data = core.client.data(client)
  local all = data[kind] or {}
  data[kind] = all
  local node = has_no_options and all or node_for(all, given)
  if not node.prototype then add_prototype(client, key, given, defaults, kind, all, node) end
  return raw.copy(node.prototype, defaults.prefix .. key)
end

return lock
