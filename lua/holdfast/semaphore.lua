-- Semaphores whose permits have a lease. See docs/how-to/semaphore.md.
--
-- Each permit object is a separate hold. Any coroutine that has the object may use it.

local abort = require "holdfast.abort"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local options = require "holdfast.options"
local with_lock = require "holdfast.with_lock"

local raw, meta = driver.lock, core.permit_type
local check_argument, check_self = options.check_argument, options.check_self
local notify, notify_after = loss.notify, loss.notify_after

local MAX_COUNT = 1000
local MAX_PERMITS = 1000000000

local semaphore = {}

local check_count = options.whole(1, MAX_COUNT, "1 to 1000")
local check_permits = options.whole(1, MAX_PERMITS, "1 to 1e9")
local check_new_total = options.whole(0, MAX_PERMITS, "0 to 1e9")

-- ---- permits ----

---@class holdfast.permit
local Permit = {}

meta.__index = Permit
meta.__metatable = meta.__name

-- Gives the permits back.
---@return true? released
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Permit:release()
  check_self(self, meta, "permit:release", 2)
  return notify_after(raw.release(self))
end

-- Sets a new lease of `seconds`, starting now. The watchdog also uses it for later renewals.
---@param seconds number
---@return true? extended
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Permit:extend(seconds)
  check_self(self, meta, "permit:extend", 2)
  check_argument(seconds, options.duration, "permit:extend", "seconds", 2)
  notify()
  return raw.extend(self, seconds)
end

-- Returns whether the permit is held and its lease has not ended by the client's clock; no I/O.
---@return boolean held
function Permit:is_held()
  check_self(self, meta, "permit:is_held", 2)
  notify()
  return raw.is_held(self)
end

-- Returns the seconds for which the caller can rely on the permit, 0 if it is not held; no I/O.
---@return number seconds
function Permit:remaining()
  check_self(self, meta, "permit:remaining", 2)
  notify()
  return raw.remaining(self)
end

-- Returns how the permit was lost: "expired", "deleted", "unreachable" or "max_hold"; nil if it was
-- not. No I/O.
---@return holdfast.lost_reason? reason
function Permit:lost()
  check_self(self, meta, "permit:lost", 2)
  notify()
  return raw.lost(self)
end

-- Returns the permit's fencing token, or nil if it is not held; no I/O.
---@return integer? token
function Permit:token()
  check_self(self, meta, "permit:token", 2)
  notify()
  return raw.token(self)
end

-- Returns the token as a decimal string with all digits, even in Lua versions whose tostring writes
-- only 14; no I/O.
---@return string? text
function Permit:token_text()
  check_self(self, meta, "permit:token_text", 2)
  notify()
  return locks.text_of(raw.token(self))
end

-- Returns the number of permits that this object holds.
---@return integer count
function Permit:count()
  check_self(self, meta, "permit:count", 2)
  return raw.data(self).permits
end

-- Returns the seconds that the permit's acquire took; no I/O.
---@return number? seconds
function Permit:waited()
  check_self(self, meta, "permit:waited", 2)
  return raw.waited(self)
end

-- Returns the semaphore's key on the server, with the client's prefix.
---@return string key
function Permit:key()
  check_self(self, meta, "permit:key", 2)
  return raw.key(self)
end

-- `local permit <close> = assert(pool:acquire())` releases the permit.
meta.__close = driver.release_on_exit

-- ---- semaphores ----

---@class holdfast.semaphore
local Semaphore = {}
Semaphore.__index = Semaphore
Semaphore.__name = "holdfast.semaphore"

---@class holdfast.semaphore_options
---@field permits? integer 1 to 1e9: the number of permits, if the semaphore does not exist yet
---@field lease? number seconds, 0.001 to 1e9, after which a permit expires; if not set, the watchdog renews the client's lease
---@field max_hold? number seconds, 0.001 to 1e9, after which the watchdog stops renewing a permit; default: no limit
---@field wait? number seconds that acquire waits by default; default: the client's
---@field max_waiters? integer 0 to 1e9: acquire fails at once if this many are waiting already; default: no limit
---@field watchdog? boolean true renews even if lease is set; false never renews
---@field on_lost? fun(permit: holdfast.permit, reason: holdfast.lost_reason)
---@field on_event? fun(event: holdfast.event)
---@field class? string for counters and events; default: the client's
---@field interruptible? boolean a signal ends a wait
---@field fencing? boolean default: the client's, which is true unless set
---@field token_ttl? number seconds that the fencing counter is kept after the last acquire; default: the client's, a day unless set

semaphore.options = locks.add_options({ permits = check_permits }, {
  "lease", "max_hold", "wait", "max_waiters", "watchdog", "on_lost", "on_event", "class",
  "interruptible", "fencing", "token_ttl",
})

---@class holdfast.with_permit_options
---@field count? integer 1 to 1000; default 1
---@field wait? number seconds; default: the semaphore's
---@field abort_on_loss? boolean raise an error in fn soon after the permit is lost

local with_options = { count = check_count, wait = options.wait, abort_on_loss = abort.check }

-- Creates a handle for this many permits, without acquiring them.
local function make_handle(self, count, wait)
  local given = self.given
  if wait then given = setmetatable({ wait = wait }, { __index = given }) end
  return locks.new(self.client, self.name, given, self.defaults, "permit", count)
end

-- `given` must already have been checked; `defaults` are the client's.
function semaphore.new(client, key, given, defaults)
  local self = { client = client, name = key, given = options.copy(given), defaults = defaults }
  self.any_handle = make_handle(self, 1)
  return setmetatable(self, Semaphore)
end

-- Acquires `count` permits, all or none. `wait`: seconds; 0 tries once, math.huge waits forever.
---@param count? integer 1 to 1000; default 1
---@param wait? number
---@return holdfast.permit? permit
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Semaphore:acquire(count, wait)
  check_self(self, Semaphore, "semaphore:acquire", 2)
  if count ~= nil then check_argument(count, check_count, "semaphore:acquire", "count", 2) end
  if wait ~= nil then check_argument(wait, options.wait, "semaphore:acquire", "wait", 2) end
  notify()
  return raw.acquire(make_handle(self, count or 1), wait)
end

-- The same as acquire(count, 0).
---@param count? integer
---@return holdfast.permit? permit
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Semaphore:try_acquire(count)
  check_self(self, Semaphore, "semaphore:try_acquire", 2)
  if count ~= nil then check_argument(count, check_count, "semaphore:try_acquire", "count", 2) end
  notify()
  return raw.acquire(make_handle(self, count or 1), 0)
end

-- Calls fn(permit, ...) while holding permits, and gives them back even if fn raises.
---@param opts? holdfast.with_permit_options
---@param fn holdfast.permit_callback
---@param ... any for fn
---@return any ... as from client:with_lock
---@overload fun(self: holdfast.semaphore, fn: holdfast.permit_callback, ...): ...
function Semaphore:with_permit(opts, fn, ...)
  check_self(self, Semaphore, "semaphore:with_permit", 2)
  if options.callable(opts) == nil then
    options.not_after_function(with_options, "semaphore:with_permit", "", 2, fn, ...)
    return Semaphore.with_permit(self, {}, opts, fn, ...)
  end
  opts = options.check_options(opts, with_options, "semaphore:with_permit", 2)
  check_argument(fn, options.callable, "semaphore:with_permit", "fn", 2)
  return with_lock.run(make_handle(self, opts.count or 1, opts.wait), opts, fn, ...)
end

-- Returns the semaphore's key on the server, with the client's prefix.
---@return string key
function Semaphore:key()
  check_self(self, Semaphore, "semaphore:key", 2)
  return raw.key(self.any_handle)
end

function Semaphore:__tostring()
  return Semaphore.__name .. ": " .. raw.key(self.any_handle)
end

---@class holdfast.semaphore_info
---@field permits integer in total
---@field available integer
---@field held integer
---@field waiters integer
---@field ttl? number seconds until the first lease ends; nil if no permit is taken
---@field token? integer the last one issued
---@field position? integer of this client's first waiter in the queue, from 1
---@field waits? number seconds that the first waiter has waited, by the server's clock

-- Reads the semaphore's state on the server.
---@return holdfast.semaphore_info? info
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Semaphore:info()
  check_self(self, Semaphore, "semaphore:info", 2)
  notify()
  local info, message, code = raw.info(self.any_handle)
  if not info then return nil, message, code end
  info.held, info.available, info.permits = info.holds, info.free, info.holds + info.free
  info.holds, info.free, info.clock = nil, nil, nil
  return info
end

-- Returns the number of free permits; negative if more are taken than exist.
---@return integer? permits
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Semaphore:available()
  check_self(self, Semaphore, "semaphore:available", 2)
  local info, message, code = Semaphore.info(self)
  if not info then return nil, message, code end
  return info.available
end

-- Returns the total number of permits.
---@return integer? permits
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Semaphore:permits()
  check_self(self, Semaphore, "semaphore:permits", 2)
  local info, message, code = Semaphore.info(self)
  if not info then return nil, message, code end
  return info.permits
end

-- Sets the number of permits. Permits in use remain valid.
---@param permits integer 0 to 1e9
---@return true? set
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Semaphore:set_permits(permits)
  check_self(self, Semaphore, "semaphore:set_permits", 2)
  check_argument(permits, check_new_total, "semaphore:set_permits", "permits", 2)
  notify()
  return raw.set(self.any_handle, permits)
end

return semaphore
