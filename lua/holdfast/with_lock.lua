-- Runs a function under a lock: acquires, calls, and releases even if the function raises.

local abort = require "holdfast.abort"
local compat = require "holdfast.compat"
local driver = require "holdfast.driver"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local traceback = require "holdfast.traceback"

local raw = driver.lock

local with_lock = {}

---@class holdfast.with_lock_options : holdfast.lock_options
---@field abort_on_loss? boolean raise an error in fn soon after the lock is lost

with_lock.options = { abort_on_loss = abort.check }
for name, check in pairs(locks.options) do
  with_lock.options[name] = check
end

-- Returns fn's results, or true if there are none, so that assert and if see success.
function with_lock.return_results(...)
  if select("#", ...) == 0 then return true end
  return ...
end

-- Returns a failure, and fn's results in a table: the lock did not protect all of fn's run, or its
-- release failed.
function with_lock.fail_unprotected(message, code, ...)
  return nil, message, code, { n = select("#", ...), ... }
end

-- → why fn's results cannot be trusted: message, code | nil. That the release did not reach the
-- server, or that fn had already released the lock, is not a reason.
local function find_problem(lock, reason, message, code)
  if code == "lost" or code == "conflict" then return message, code end
  if reason then return ("the lock was lost (%s)"):format(reason), "lost" end
  local released_elsewhere = code == "not_held" or code == "closed"
  if released_elsewhere and raw.balance(lock) > 0 then return message, code end
end

-- An error of fn takes precedence over one of on_lost. A loss counts even if fn has acquired the
-- lock again.
local function finish(lock, succeeded, ...)
  local reason = raw.lost(lock) or raw.first_loss(lock)
  local _, message, code = raw.release(lock)
  local notified, failure = loss.try_notify()
  local aborted = not succeeded and abort.is_loss_of((...), lock)
  if not succeeded and not aborted then error((...), 0) end
  if not notified then error(failure, 0) end
  if aborted then
    return nil, code == "lost" and message or tostring((...)), "lost" -- any locale: an error text
  end
  message, code = find_problem(lock, reason, message, code)
  if code then return with_lock.fail_unprotected(message, code, ...) end
  return with_lock.return_results(...)
end

-- Returns xpcall(fn, …, ...). Calls abandon(lock) if the coroutine is closed before that returns.
function with_lock.call_guarded(abandon, lock, fn, ...)
  return compat.closing(abandon, lock, compat.xpcall, fn, traceback.keep, ...)
end

-- Like call_guarded, but releases the lock if the coroutine is closed.
function with_lock.call(lock, fn, ...)
  return compat.closing(raw.abandon, lock, compat.xpcall, fn, traceback.keep, ...)
end

local function reacquire_if_closed(lock, acquired, ...)
  if acquired and raw.is_closed(lock) then return raw.acquire(lock) end
  return acquired, ...
end

-- Acquires the lock for a function that is called next. Fails with "closed" if the client was
-- closed, which released the lock, before the acquire returned.
function with_lock.acquire(lock)
  return reacquire_if_closed(lock, raw.acquire(lock))
end

local function settle(opts, succeeded, ...)
  if opts.settle then opts.settle(succeeded) end
  return succeeded, ...
end

-- Runs fn(lock, ...) under a lock that was just acquired for the first time. Calls
-- opts.settle(succeeded), if set, before the release.
function with_lock.run_held(lock, opts, fn, ...)
  if opts.abort_on_loss then return finish(lock, settle(opts, abort.call(lock, fn, lock, ...))) end
  return finish(lock, settle(opts, with_lock.call(lock, fn, lock, ...)))
end

-- The lock must be new; `opts` and `fn` must already have been checked.
function with_lock.run(lock, opts, fn, ...)
  if opts.abort_on_loss then driver.check_hooks(lock) end
  loss.notify()
  local acquired, message, code = with_lock.acquire(lock)
  if not acquired then return nil, message, code end
  return with_lock.run_held(lock, opts, fn, ...)
end

return with_lock
