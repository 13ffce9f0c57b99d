-- Count-down latches. See docs/how-to/latch.md.
--
-- A latch has no holder, so there is nothing to renew, lose or release.

local driver = require "holdfast.driver"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local options = require "holdfast.options"

local raw = driver.lock
local check_argument, check_self, notify = options.check_argument, options.check_self, loss.notify

---@class holdfast.latch
local Latch = {}
Latch.__index = Latch
Latch.__name = "holdfast.latch"

local check_count = options.whole(1, 1000000000, "1 to 1e9")

---@class holdfast.latch_options
---@field wait? number seconds that latch:wait waits by default; default: the client's
---@field class? string for counters and events; default: the client's
---@field on_event? fun(event: holdfast.event)
---@field interruptible? boolean a signal ends a wait

local latch = {
  options = locks.add_options({}, { "wait", "class", "on_event", "interruptible" }),
}

-- `given` must already have been checked; `defaults` are the client's.
function latch.new(client, key, given, defaults)
  local handle = locks.new(client, key, given, defaults, "latch")
  return setmetatable({ handle = handle, default_wait = given.wait or defaults.wait }, Latch)
end

-- Starts a count, unless the latch is already counting.
---@param count integer 1 to 1e9
---@return boolean? set false if it is already counting; it then continues to count
---@return string? message
---@return holdfast.code? code
---@return_overload boolean
---@return_overload nil, string, holdfast.code
function Latch:set(count)
  check_self(self, Latch, "latch:set", 2)
  check_argument(count, check_count, "latch:set", "count", 2)
  notify()
  return raw.set_count(self.handle, count)
end

-- Counts down. The call that reaches 0 opens the latch.
---@param amount? integer 1 to 1e9; default 1
---@return (integer|false)? left the remaining count; false if the latch was open
---@return string? message
---@return holdfast.code? code
---@return_overload integer|false
---@return_overload nil, string, holdfast.code
function Latch:count_down(amount)
  check_self(self, Latch, "latch:count_down", 2)
  if amount ~= nil then check_argument(amount, check_count, "latch:count_down", "amount", 2) end
  notify()
  return raw.count_down(self.handle, amount or 1)
end

-- Returns the remaining count, which is 0 if the latch is open.
---@return integer? count
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Latch:count()
  check_self(self, Latch, "latch:count", 2)
  notify()
  local count, message, code = raw.count(self.handle)
  if not count then return nil, message, code end
  return math.max(count, 0)
end

-- Waits until the latch is open. `wait`: seconds; 0 checks once, math.huge waits forever.
---@param wait? number
---@return true? open
---@return string? message
---@return holdfast.code? code "timeout" if it is still closed
---@return_overload nil, string, holdfast.code
function Latch:wait(wait)
  check_self(self, Latch, "latch:wait", 2)
  if wait ~= nil then check_argument(wait, options.wait, "latch:wait", "wait", 2) end
  notify()
  return raw.await(self.handle, wait or self.default_wait)
end

-- Opens the latch, even if its count is not 0.
---@return boolean? was_closed false if it was open
---@return string? message
---@return holdfast.code? code
---@return_overload boolean
---@return_overload nil, string, holdfast.code
function Latch:delete()
  check_self(self, Latch, "latch:delete", 2)
  notify()
  return raw.delete(self.handle, 0)
end

-- Returns the latch's key on the server, with the client's prefix.
---@return string key
function Latch:key()
  check_self(self, Latch, "latch:key", 2)
  return raw.key(self.handle)
end

function Latch:__tostring()
  return Latch.__name .. ": " .. raw.key(self.handle)
end

return latch
