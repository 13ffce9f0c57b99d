-- The methods of a lock. See docs/api.md.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local loss = require "holdfast.loss"
local options = require "holdfast.options"

local raw, meta = driver.lock, core.lock_type
local argument, check_self, tell = options.argument, options.self, loss.tell

local function tell_after(...)
  tell()
  return ...
end

---@class holdfast.lock
local Lock = {}

meta.__index = Lock
meta.__metatable = meta.__name

-- Takes the lock, or enters it once more. `wait`: seconds, 0 tries once, math.huge waits for ever.
---@param wait? number
---@return holdfast.lock? lock
---@return string? message
---@return string? code
function Lock:acquire(wait)
  check_self(self, meta, "lock:acquire", 2)
  if wait ~= nil then argument(wait, options.wait, "lock:acquire", "wait", 2) end
  tell()
  return raw.acquire(self, wait)
end

-- acquire(0).
---@return holdfast.lock? lock
---@return string? message
---@return string? code
function Lock:try_acquire()
  check_self(self, meta, "lock:try_acquire", 2)
  tell()
  return raw.acquire(self, 0)
end

-- Lets go of one hold; the last one frees the lock and passes it on.
---@return true? released
---@return string? message
---@return string? code
function Lock:release()
  check_self(self, meta, "lock:release", 2)
  return tell_after(raw.release(self))
end

-- Frees the lock whoever holds it. The holder is told at its next renewal, check or release.
---@return boolean? was_locked
---@return string? message
---@return string? code
function Lock:force_release()
  check_self(self, meta, "lock:force_release", 2)
  tell()
  return raw.force_release(self)
end

-- A new lease of `seconds` from now; the watchdog goes on with it.
---@param seconds number
---@return true? extended
---@return string? message
---@return string? code
function Lock:extend(seconds)
  check_self(self, meta, "lock:extend", 2)
  argument(seconds, options.lease, "lock:extend", "seconds", 2)
  tell()
  return raw.extend(self, seconds)
end

-- Asks the server whether this owner still holds it.
---@return true? held
---@return string? message
---@return string? code
function Lock:check()
  check_self(self, meta, "lock:check", 2)
  tell()
  return raw.check(self)
end

-- Held by this owner and locally still valid; no I/O.
---@return boolean
function Lock:is_held()
  check_self(self, meta, "lock:is_held", 2)
  tell()
  return raw.is_held(self)
end

-- Held by anyone, as the server says.
---@return boolean? locked
---@return string? message
---@return string? code
function Lock:is_locked()
  check_self(self, meta, "lock:is_locked", 2)
  tell()
  local ttl, message, code = raw.ttl(self)
  if code then return nil, message, code end
  return ttl ~= nil
end

-- This owner's hold count; no I/O.
---@return integer
function Lock:holds()
  check_self(self, meta, "lock:holds", 2)
  tell()
  return raw.holds(self)
end

-- Seconds for which this owner may believe in the lock, 0 if it does not hold it; no I/O.
---@return number
function Lock:remaining()
  check_self(self, meta, "lock:remaining", 2)
  tell()
  return raw.remaining(self)
end

-- The lock's TTL on the server in seconds; nil when it is free.
---@return number? seconds
---@return string? message
---@return string? code
function Lock:ttl()
  check_self(self, meta, "lock:ttl", 2)
  tell()
  return raw.ttl(self)
end

-- The fencing token of the current hold, nil without one; no I/O.
---@return integer?
function Lock:token()
  check_self(self, meta, "lock:token", 2)
  tell()
  return raw.token(self)
end

-- How this owner's lock was lost: "expired", "taken", "deleted", "unreachable"; nil if it was not. No I/O.
---@return string? reason
function Lock:lost()
  check_self(self, meta, "lock:lost", 2)
  tell()
  return raw.lost(self)
end

-- The lock as the server has it; owner, ttl and token are absent when there is none, position (from 1) when none of
-- this client's callers waits.
---@return {owner: string?, holds: integer, ttl: number?, token: integer?, waiters: integer, position: integer?}? info
---@return string? message
---@return string? code
function Lock:info()
  check_self(self, meta, "lock:info", 2)
  tell()
  return raw.info(self)
end

-- The key on the server, with the client's prefix.
---@return string
function Lock:key()
  check_self(self, meta, "lock:key", 2)
  return raw.key(self)
end

-- Who owns when this coroutine acquires.
---@return string
function Lock:owner()
  check_self(self, meta, "lock:owner", 2)
  return raw.owner(self)
end

-- `local held <close> = assert(lock:acquire())`: release, once more or not at all if it is not held any more.
meta.__close = raw.release

---@class holdfast.lock_options
---@field lease? number seconds, 0.001 to 1e9: the lock ends by itself; without: the watchdog renews the client's lease
---@field wait? number seconds that acquire waits by default; the client's
---@field watchdog? boolean renew although a lease is given, or do not although none is
---@field owner? string 1 to 255 bytes; the calling coroutine of this client
---@field on_lost? fun(lock: holdfast.lock, reason: string)
---@field interruptible? boolean a signal ends a wait
---@field fencing? boolean default true
---@field token_ttl? number seconds that the fencing counter outlives the last acquire; 7 days

local lock = {}

lock.options = {
  lease = options.lease,
  wait = options.wait,
  watchdog = options.boolean,
  owner = options.owner,
  on_lost = options.callable,
  interruptible = options.boolean,
  fencing = options.boolean,
  token_ttl = options.lease,
}

local WEEK = 7 * 24 * 3600

-- A lock of the client; `given` is checked, `defaults` are the client's lease, wait and prefix. `layout`: nil is the
-- reentrant lock's, "mutex" that of SET NX PX, "guard" that of the idempotent guard.
function lock.new(client, key, given, defaults, layout)
  local watchdog = given.watchdog
  if watchdog == nil then watchdog = given.lease == nil end
  local self = raw.new(client, {
    client = client,
    key = defaults.prefix .. key,
    layout = layout,
    external = defaults.external,
    quorum = defaults.quorum,
    print = given.print,
    lease = given.lease or defaults.lease,
    wait = given.wait or defaults.wait,
    renewed = watchdog,
    owner = given.owner,
    interruptible = given.interruptible,
    token_ttl = given.fencing == false and 0 or given.token_ttl or WEEK,
    on_lost = given.on_lost,
  })
  if given.on_lost then loss.watch(self, client) end
  return self
end

return lock
