-- The API of lua-resty-lock. Its locks exclude all processes that use the same Redis server, not
-- only the workers of one nginx: replace require "resty.lock" with require "holdfast.resty_lock".
--
-- An object holds at most one lock. Each hold has its own owner, so two objects exclude each
-- other even in the same request, and any coroutine may unlock what another has locked.

local core = require "holdfast.core"
local holdfast = require "holdfast"
local locale = require "holdfast.locale"
local options = require "holdfast.options"

---@class holdfast.resty_lock
---@field client? holdfast.client for all locks; if not set, created from the environment at first use
local resty_lock = { _VERSION = holdfast._VERSION }
resty_lock.__index = resty_lock

local DEFAULT_EXPTIME, DEFAULT_TIMEOUT = 30, 5 -- seconds
local OPTIONS = { exptime = options.duration, timeout = options.wait }
-- These options tell lua-resty-lock how to poll. They have no effect here, because nothing polls.
for _, name in ipairs { "step", "ratio", "max_step" } do OPTIONS[name] = options.number_or_default end
local call_count = 0 -- number of lock() calls in this process so far

-- Creates an object without a lock; does no I/O. Its locks have keys "DICT_NAME:KEY"; it needs no
-- lua_shared_dict.
---@param dict_name string
---@param opts? { exptime: number?, timeout: number? } seconds; default 30 and 5
---@return holdfast.resty_lock lock
function resty_lock.new(_, dict_name, opts)
  options.check_argument(dict_name, options.key, "resty_lock:new", "dict_name", 2)
  opts = options.check_options(opts, OPTIONS, "resty_lock:new", 2)
  local exptime = opts.exptime or DEFAULT_EXPTIME
  local timeout = opts.timeout and math.min(opts.timeout, exptime) or DEFAULT_TIMEOUT
  return setmetatable({ name = dict_name, exptime = exptime, timeout = timeout }, resty_lock)
end

---@param key string
---@return number? elapsed seconds of waiting, 0 if the lock was free
---@return string? message "timeout"; "nil key"; "locked" if this object holds a lock; or what failed
function resty_lock:lock(key)
  if key == nil then return nil, "nil key" end
  if self.held_lock then return nil, "locked" end
  key = type(key) == "number" and locale.text(key) or key
  options.check_argument(key, options.key, "lock:lock", "key", 2)
  resty_lock.client = resty_lock.client or holdfast.new()
  call_count = call_count + 1
  local owner = ("%s/%.0f"):format(core.client.uuid(resty_lock.client), call_count)
  local lock = resty_lock.client:lock(self.name .. ":" .. key,
    { lease = self.exptime, fencing = false, owner = owner })
  local acquired, message, code = lock:acquire(0)
  local elapsed = acquired and 0
  if code == "busy" and self.timeout > 0 then
    acquired, message, code = lock:acquire(self.timeout)
    elapsed = acquired and lock:waited()
  end
  if not acquired then return nil, code == "busy" and "timeout" or message end
  if self.held_lock then -- another coroutine has locked a key in the meantime
    lock:release()
    return nil, "locked"
  end
  self.held_lock = lock
  return elapsed
end

---@return integer? 1
---@return string? message "unlocked" if this object holds no lock; or what failed
function resty_lock:unlock()
  local lock = self.held_lock
  if not lock then return nil, "unlocked" end
  self.held_lock = nil
  local released, message = lock:release()
  return released and 1 or nil, message
end

---@param seconds? number the new lease, starting now; default: the object's `exptime`
---@return boolean? true
---@return string? message "unlocked" if this object holds no lock; or what failed
function resty_lock:expire(seconds)
  if not self.held_lock then return nil, "unlocked" end
  options.check_argument(seconds or self.exptime, options.duration, "lock:expire", "seconds", 2)
  local extended, message = self.held_lock:extend(seconds or self.exptime)
  return extended, message
end

return resty_lock
