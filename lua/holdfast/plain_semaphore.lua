-- Semaphores whose permits have no lease. See docs/how-to/plain_semaphore.md.
--
-- The server does not know the holders, so there is nothing to renew or lose, and permits that a
-- process does not release remain taken.

local driver = require "holdfast.driver"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local options = require "holdfast.options"
local with_lock = require "holdfast.with_lock"

local raw = driver.lock
local check_argument, check_self, notify = options.check_argument, options.check_self, loss.notify

---@class holdfast.plain_semaphore
local PlainSemaphore = {}
PlainSemaphore.__index = PlainSemaphore
PlainSemaphore.__name = "holdfast.plain_semaphore"

local MAX_PERMITS = 1000000000

local check_count = options.whole(1, MAX_PERMITS, "1 to 1e9")
local check_new_total = options.whole(0, MAX_PERMITS, "0 to 1e9")
local check_change = options.whole(-MAX_PERMITS, MAX_PERMITS, "-1e9 to 1e9")

---@class holdfast.plain_semaphore_options
---@field wait? number seconds that acquire waits by default; default: the client's
---@field class? string for counters and events; default: the client's
---@field on_event? fun(event: holdfast.event)
---@field interruptible? boolean a signal ends a wait

local plain_semaphore = {
  options = locks.add_options({}, { "wait", "class", "on_event", "interruptible" }),
}

---@class holdfast.with_plain_permit_options
---@field count? integer 1 to 1e9; default 1
---@field wait? number seconds; default: the semaphore's

local with_options = { count = check_count, wait = options.wait }

-- Returns a handle that acquires this many permits.
local function make_handle(self, count)
  if count == 1 and self.single then return self.single end
  return locks.new(self.client, self.name, self.given, self.defaults, "plain_semaphore", count)
end

-- `given` must already have been checked; `defaults` are the client's.
function plain_semaphore.new(client, key, given, defaults)
  local self = { client = client, name = key, given = options.copy(given), defaults = defaults,
    wait = given.wait or defaults.wait }
  self.single = make_handle(self, 1)
  return setmetatable(self, PlainSemaphore)
end

local function take(self, lock, wait)
  notify()
  return raw.take(lock, wait or self.wait)
end

-- Acquires `count` permits, all or none. `wait`: seconds; 0 tries once, math.huge waits forever.
---@param count? integer 1 to 1e9; default 1
---@param wait? number
---@return true? acquired
---@return string? message
---@return holdfast.code? code "busy" if too few were free
---@return_overload nil, string, holdfast.code
function PlainSemaphore:acquire(count, wait)
  check_self(self, PlainSemaphore, "plain_semaphore:acquire", 2)
  if count ~= nil then check_argument(count, check_count, "plain_semaphore:acquire", "count", 2) end
  if wait ~= nil then check_argument(wait, options.wait, "plain_semaphore:acquire", "wait", 2) end
  return take(self, make_handle(self, count or 1), wait)
end

-- The same as acquire(count, 0).
---@param count? integer
---@return true? acquired
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function PlainSemaphore:try_acquire(count)
  check_self(self, PlainSemaphore, "plain_semaphore:try_acquire", 2)
  if count ~= nil then check_argument(count, check_count, "plain_semaphore:try_acquire", "count", 2) end
  return take(self, make_handle(self, count or 1), 0)
end

-- Gives back permits, even if another client acquired them.
---@param count? integer 1 to 1e9; default 1
---@return true? released
---@return string? message
---@return holdfast.code? code after "unreachable" or "denied" the release continues in the background
---@return_overload nil, string, holdfast.code
function PlainSemaphore:release(count)
  check_self(self, PlainSemaphore, "plain_semaphore:release", 2)
  if count ~= nil then check_argument(count, check_count, "plain_semaphore:release", "count", 2) end
  notify()
  local free, message, code = raw.give(self.single, count or 1)
  if not free then return nil, message, code end
  return true
end

-- Adds permits to the semaphore, or removes some if `change` is negative.
---@param change integer -1e9 to 1e9
---@return integer? free the number of free permits; negative if more are taken than exist
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function PlainSemaphore:add(change)
  check_self(self, PlainSemaphore, "plain_semaphore:add", 2)
  check_argument(change, check_change, "plain_semaphore:add", "change", 2)
  notify()
  return raw.give(self.single, change)
end

-- Acquires all free permits.
---@return integer? taken
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function PlainSemaphore:drain()
  check_self(self, PlainSemaphore, "plain_semaphore:drain", 2)
  notify()
  return raw.drain(self.single)
end

-- Returns the number of free permits; negative if more are taken than exist.
---@return integer? permits
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function PlainSemaphore:available()
  check_self(self, PlainSemaphore, "plain_semaphore:available", 2)
  notify()
  return raw.count(self.single)
end

-- Sets the number of permits, unless it is already set.
---@param permits integer 0 to 1e9
---@return boolean? set false if it was already set, and nothing has changed
---@return string? message
---@return holdfast.code? code
---@return_overload boolean
---@return_overload nil, string, holdfast.code
function PlainSemaphore:set(permits)
  check_self(self, PlainSemaphore, "plain_semaphore:set", 2)
  check_argument(permits, check_new_total, "plain_semaphore:set", "permits", 2)
  notify()
  return raw.set_count(self.single, permits)
end

-- Deletes the semaphore. Its waiters keep waiting.
---@return boolean? deleted false if there was none
---@return string? message
---@return holdfast.code? code
---@return_overload boolean
---@return_overload nil, string, holdfast.code
function PlainSemaphore:delete()
  check_self(self, PlainSemaphore, "plain_semaphore:delete", 2)
  notify()
  return raw.delete(self.single, 0)
end

-- Returns the semaphore's key on the server, with the client's prefix.
---@return string key
function PlainSemaphore:key()
  check_self(self, PlainSemaphore, "plain_semaphore:key", 2)
  return raw.key(self.single)
end

function PlainSemaphore:__tostring()
  return PlainSemaphore.__name .. ": " .. raw.key(self.single)
end

-- ---- with_permit ----

-- A release that the server refuses or does not reply to continues in the background.
local CONTINUES_LATER = { unreachable = true, denied = true }

local function finish(self, count, succeeded, ...)
  local _, message, code = raw.give(self.single, count)
  if not succeeded then error((...), 0) end
  if code and not CONTINUES_LATER[code] then
    return with_lock.fail_unprotected(message, code, ...)
  end
  return with_lock.return_results(...)
end

-- Calls fn(...) while holding permits, and gives them back even if fn raises. They remain taken if
-- the process dies, or if the client is closed, in which case this returns nil, message, "closed"
-- and a table of fn's results.
---@param opts? holdfast.with_plain_permit_options
---@param fn holdfast.callback
---@param ... any for fn
---@return any ... fn's results, true for none; nil, message, code when fn did not run
---@overload fun(self: holdfast.plain_semaphore, fn: holdfast.callback, ...): ...
function PlainSemaphore:with_permit(opts, fn, ...)
  check_self(self, PlainSemaphore, "plain_semaphore:with_permit", 2)
  if options.callable(opts) == nil then
    options.not_after_function(with_options, "plain_semaphore:with_permit", "", 2, fn, ...)
    return PlainSemaphore.with_permit(self, {}, opts, fn, ...)
  end
  opts = options.check_options(opts, with_options, "plain_semaphore:with_permit", 2)
  check_argument(fn, options.callable, "plain_semaphore:with_permit", "fn", 2)
  local count = opts.count or 1
  local lock = make_handle(self, count)
  local taken, message, code = take(self, lock, opts.wait)
  if not taken then return nil, message, code end
  return finish(self, count, with_lock.call_guarded(driver.give_later, lock, fn, ...))
end

return plain_semaphore
