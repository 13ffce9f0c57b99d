-- The idempotent guard runs a function once per key. A later call returns "duplicate", or the
-- results of the first call.
--
-- During the run the key is a lock, which the watchdog renews. After a success the key contains a
-- record for `expire` seconds: "D", or with `replay` "R" and the results. With `delete_key` it is
-- free instead. After an error the key is free, or with `keep_on_error` contains a record.

local compat = require "holdfast.compat"
local driver = require "holdfast.driver"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local options = require "holdfast.options"
local record = require "holdfast.record"
local with_lock = require "holdfast.with_lock"

local raw = driver.lock

local DEFAULT_EXPIRE = 1 -- seconds
local DEFAULT_INFO = "duplicate: this call is already running or has just finished"
local MAX_RECORD_SIZE = 65536 -- bytes of encoded results

local idempotent = {}

---@class holdfast.idempotent_options
---@field expire? number seconds for which duplicates are refused after a success; default 1
---@field info? string the message for a duplicate
---@field delete_key? boolean free the key after a success; default false
---@field replay? boolean return the first run's results to duplicates; default false
---@field fingerprint? string identifies the request, 1 byte or more; a call with a different one for the same key is a mismatch; a call without one matches any
---@field wait? number seconds to wait for the current run; default 0
---@field keep_on_error? boolean an error counts as done; default false
---@field lease? number seconds after which the key of a dead run is free; default: the client's
---@field class? string for counters and events; default: the client's
---@field on_event? fun(event: holdfast.event)

-- On the server an empty fingerprint means none, which matches any other.
local function fingerprint_option(value)
  if type(value) ~= "string" or value == "" then return "a non-empty string" end
end

idempotent.options = {
  expire = options.duration,
  info = options.text,
  delete_key = options.boolean,
  replay = options.boolean,
  fingerprint = fingerprint_option,
  wait = options.wait,
  keep_on_error = options.boolean,
  lease = options.duration,
  class = options.class,
  on_event = options.callable,
}

local function refuse(opts, message, code, stored)
  if code ~= "duplicate" and code ~= "busy" then return nil, message, code end
  if opts.replay and stored and stored:sub(1, 1) == "R" then
    local values = record.decode(stored:sub(2))
    if values then return with_lock.return_results(compat.unpack(values, 1, values.n)) end
  end
  return nil, opts.info or DEFAULT_INFO, "duplicate"
end

local function complete(guard, opts, ...)
  local text = opts.replay and record.encode(MAX_RECORD_SIZE, ...)
  local expire = opts.delete_key and 0 or opts.expire or DEFAULT_EXPIRE
  return raw.complete(guard, expire, text and "R" .. text or "D")
end

local function finish(guard, opts, succeeded, ...)
  if not succeeded then
    if opts.keep_on_error then
      raw.complete(guard, opts.expire or DEFAULT_EXPIRE, "D")
    else
      raw.release(guard)
    end
    error((...), 0)
  end
  local completed, message, code = complete(guard, opts, ...)
  if completed then return with_lock.return_results(...) end
  return nil, message, code, { n = select("#", ...), ... }
end

-- `opts` and `fn` must already have been checked.
function idempotent.run(client, key, defaults, opts, fn, ...)
  local guard = locks.new(client, key, {
    lease = opts.lease,
    watchdog = true,
    wait = opts.wait or 0,
    fingerprint = opts.fingerprint,
    fencing = false,
    async_release = false,
    class = opts.class,
    on_event = opts.on_event,
  }, defaults, "guard")
  loss.notify()
  local acquired, message, code, stored = with_lock.acquire(guard)
  if not acquired then return refuse(opts, message, code, stored) end
  return finish(guard, opts, with_lock.call(guard, fn, ...))
end

return idempotent
