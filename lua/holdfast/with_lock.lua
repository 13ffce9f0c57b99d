-- Runs a function under a lock: acquire, call, release, whatever happens in between.

local driver = require "holdfast.driver"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local traceback = require "holdfast.traceback"

local raw = driver.lock

local with_lock = {}

---@class holdfast.with_lock_options : holdfast.lock_options
---@field abort_on_loss? boolean fn gets an error soon after the lock is lost

with_lock.options = { abort_on_loss = loss.check_abort }
for name, check in pairs(locks.options) do
  with_lock.options[name] = check
end

local function lost(message, ...)
  return nil, message, "lost", { n = select("#", ...), ... }
end

-- After fn: its error goes on as it is, its results only if the lock was held to the end.
local function finish(lock, ran, ...)
  local reason = raw.lost(lock)
  local _, message, code = raw.release(lock)
  loss.tell()
  if not ran then
    local err = ...
    if loss.is_abort(err, lock) then return nil, message or tostring(err), "lost" end
    error(err, 0)
  end
  if reason or code == "lost" then return lost(message or "lost: " .. reason, ...) end
  return ...
end

local function call(fn, lock, ...)
  return xpcall(fn, traceback.keep, lock, ...)
end

-- Runs fn(lock, ...) under a lock that was just acquired.
function with_lock.run_held(lock, opts, fn, ...)
  if opts.abort_on_loss then return finish(lock, loss.abort_on(lock, call, fn, lock, ...)) end
  return finish(lock, call(fn, lock, ...))
end

-- The lock is fresh, `opts` and `fn` are checked.
function with_lock.run(lock, opts, fn, ...)
  loss.tell()
  local acquired, message, code = raw.acquire(lock)
  if not acquired then return nil, message, code end
  return with_lock.run_held(lock, opts, fn, ...)
end

return with_lock
