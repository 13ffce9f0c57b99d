-- The methods of a lock. See docs/reference/api/lock.md.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local error = require("holdfast.compat").error
local events = require "holdfast.events"
local fence_headers = require "holdfast.fence_headers"
local loss = require "holdfast.loss"
local names = require "holdfast.names"
local observed = require "holdfast.observed"
local options = require "holdfast.options"
local texts = require "holdfast.text"

local raw, meta = driver.lock, core.lock_type
local argument, check_self = options.argument, options.self
local notify, notify_after = loss.notify, loss.notify_after
local is_wrong_wait = options.wait

local lock = {}

-- A token as decimal text; nil: none.
function lock.text_of(token)
  return token and ("%.0f"):format(token)
end

-- A number above those of the client's earlier calls on a fence or for a fire.
function lock.next_call(client)
  local data = core.client.data(client)
  data.calls = (data.calls or 0) + 1
  return data.calls
end

---@class holdfast.lock
local Lock = {}

meta.__index = Lock
meta.__metatable = meta.__name

-- Takes the lock, or enters it again. `wait`: seconds, 0 tries once, math.huge waits for ever.
---@param wait? number
---@return holdfast.lock? lock
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Lock:acquire(wait)
  check_self(self, meta, "lock:acquire", 2)
  if wait ~= nil and is_wrong_wait(wait) then
    argument(wait, options.wait, "lock:acquire", "wait", 2)
  end
  if events.heeded then notify() end
  return raw.acquire(self, wait)
end

-- acquire(0).
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
  if not events.heeded then return raw.release(self) end
  return notify_after(raw.release(self))
end

-- Frees the lock, whoever holds it. The holder learns it at its next renewal, check or release.
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

-- A new lease of `seconds` from now; the watchdog goes on with it.
---@param seconds number
---@return true? extended
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Lock:extend(seconds)
  check_self(self, meta, "lock:extend", 2)
  argument(seconds, options.lease, "lock:extend", "seconds", 2)
  notify()
  return raw.extend(self, seconds)
end

-- Asks the server whether this owner still holds it.
---@return true? held
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Lock:check()
  check_self(self, meta, "lock:check", 2)
  notify()
  return raw.check(self)
end

-- Held by this owner and locally still valid; no I/O.
---@return boolean held
function Lock:is_held()
  check_self(self, meta, "lock:is_held", 2)
  notify()
  return raw.is_held(self)
end

-- Held by anyone, according to the server.
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

-- This owner's hold count; no I/O.
---@return integer count
function Lock:holds()
  check_self(self, meta, "lock:holds", 2)
  notify()
  return raw.holds(self)
end

-- Seconds for which this owner may believe in the lock, 0 if it does not hold it; no I/O.
---@return number seconds
function Lock:remaining()
  check_self(self, meta, "lock:remaining", 2)
  notify()
  return raw.remaining(self)
end

-- The lock's TTL on the server in seconds; nil when it is free.
---@return number? seconds
---@return string? message
---@return holdfast.code? code
function Lock:ttl()
  check_self(self, meta, "lock:ttl", 2)
  notify()
  return raw.ttl(self)
end

-- The fencing token of the current hold, nil without one; no I/O.
---@return integer? token
function Lock:token()
  check_self(self, meta, "lock:token", 2)
  notify()
  return raw.token(self)
end

-- The same as decimal text, also where `..` and tostring write 14 digits; no I/O.
---@return string? text
function Lock:token_text()
  check_self(self, meta, "lock:token_text", 2)
  notify()
  return lock.text_of(raw.token(self))
end

-- The headers that pass the token of the current hold to a service; no I/O.
---@param resource string what the request writes to
---@return table<string, string>? headers
---@return string? message
---@return holdfast.code? code "lost", "not_held"
---@return_overload nil, string, holdfast.code
function Lock:fence_headers(resource)
  check_self(self, meta, "lock:fence_headers", 2)
  argument(resource, options.key, "lock:fence_headers", "resource", 2)
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

-- How this owner's lock was lost: "expired", "taken", "deleted", "unreachable", "max_hold"; nil if it was not.
-- No I/O.
---@return holdfast.lost_reason? reason
function Lock:lost()
  check_self(self, meta, "lock:lost", 2)
  notify()
  return raw.lost(self)
end

---@class holdfast.lock_info
---@field owner? string the holder; nil: the lock is free
---@field holds integer how many times it holds the lock
---@field ttl? number seconds
---@field token? integer the last one given for this key
---@field waiters integer how many waiters are queued
---@field position? integer in the queue, from 1, of this client's first waiter
---@field host? string of the holder's client, unless it has not published it
---@field pid? integer
---@field name? string
---@field readers? integer for a read/write lock
---@field held_for? number seconds by the server's clock, if that is known
---@field waits? number seconds that the first waiter has waited, by the server's clock

-- The lock's state on the server.
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
  local who = info.owner and names.of(client, info.owner)
  if who then info.host, info.pid, info.name = who.host, who.pid, who.name end
  return info
end

-- How many seconds the last acquire through this handle took that got the lock; nil: none did. No
-- I/O.
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

-- The owner when this coroutine acquires.
---@return string owner
function Lock:owner()
  check_self(self, meta, "lock:owner", 2)
  return raw.owner(self)
end

-- `local held <close> = assert(lock:acquire())`: release; does nothing if it is not held any more.
meta.__close = driver.leave

---@class holdfast.lock_options
---@field lease? number seconds, 0.001 to 1e9: the lock ends by itself; without: the watchdog renews the client's lease
---@field max_hold? number seconds, 0.001 to 1e9, after which the watchdog renews it no longer; no bound
---@field wait? number seconds that acquire waits by default; the client's
---@field max_waiters? integer 0 to 1e9: acquire fails at once if more wait already; any number
---@field watchdog? boolean true: renew even if lease is set; false: never renew
---@field owner? string 1 to 255 bytes; the calling coroutine of this client
---@field on_lost? fun(lock: holdfast.lock, reason: holdfast.lost_reason)
---@field on_event? fun(event: holdfast.event)
---@field class? string groups locks for counters and events; the client's
---@field interruptible? boolean a signal ends a wait
---@field async_release? boolean release returns once it is sent; the client's
---@field keep? number seconds, 0 to 60, for which the client keeps it for its callers; the client's
---@field deadlock_check? number seconds, at least 0.5: after waiting this long, acquire checks for a deadlock
---@field fencing? boolean the client's, true by default
---@field token_ttl? number seconds that the fencing counter is kept after the last acquire; the client's, a day by default

lock.options = {
  lease = options.lease,
  max_hold = options.lease,
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

-- A counter that has expired is replaced by the server's clock.
local DAY = 24 * 3600

local function first_of(given, default)
  if given == nil then return default end
  return given
end

local function token_ttl_of(given, defaults)
  return first_of(given.fencing, defaults.fencing) == false and 0 or given.token_ttl
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

-- The processes of a shared owner are not one client's.
local function keep_of(given, defaults, kind)
  if not core.kinds[kind].kept or given.owner then return 0 end
  return given.keep or defaults.keep
end

-- For lock.new: no options.
lock.none = {}

local function is_renewed(given)
  if given.watchdog == nil then return given.lease == nil end
  return given.watchdog
end

-- Raises at `level` if max_hold bounds nothing, or a quorum, which has no queue, gets max_waiters.
-- `renewed`: whether the watchdog renews it; nil: as the options say.
function lock.check_bounds(given, defaults, renewed, what, level)
  if renewed == nil then renewed = is_renewed(given) end
  if given.max_hold and not renewed then
    error(what .. ": max_hold limits how long the watchdog renews the lock; without a watchdog, " ..
      "the lease is already the limit, so leave out max_hold or set watchdog = true", level + 1)
  elseif given.max_waiters and defaults.quorum then
    error(what .. ": max_waiters does not work in a quorum, which has no queue", level + 1)
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
    permits_at_first = given.permits,
    lease = given.lease or defaults.lease,
    max_hold = given.max_hold,
    max_waiters = given.max_waiters,
    wait = given.wait or defaults.wait,
    keep = keep_of(given, defaults, kind),
    renewed = is_renewed(given),
    owner = given.owner,
    interruptible = given.interruptible,
    async_release = first_of(given.async_release, defaults.async_release),
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

-- A lock without options: a copy of the first one of the client and the kind.
local function make_plain(client, key, defaults, kind)
  local plain = core.client.data(client)
  plain[kind] = plain[kind] or make(client, key, lock.none, defaults, kind)
  return raw.copy(plain[kind], defaults.prefix .. key)
end

-- A lock of the client; `given` is checked, `defaults` are the client's lease, wait and prefix.
-- `kind`: the name of a kind of csrc/core/lock/kind.c; "lock" unless given. `permits`: how many
-- permits of a semaphore it is, or its acquire takes of a plain one.
function lock.new(client, key, given, defaults, kind, permits)
  kind = kind or "lock"
  if given == lock.none and not permits then return make_plain(client, key, defaults, kind) end
  return make(client, key, given, defaults, kind, permits)
end

return lock
