-- The owner of a call, for the pump and the driver. Here it is the calling coroutine, which the
-- core can identify. A loop's field `owner` contains these functions; holdfast.loop.ngx has its
-- own, because there the owner is a request.

local running, status = coroutine.running, coroutine.status

local owner = {}

-- waiter -> its coroutine, until the coroutine is garbage-collected
local threads = setmetatable({}, { __mode = "kv" })

-- Called when a call of this pump begins. → its owner | false if the core identifies it
function owner.begin_call() return false end

-- Called when a call begins to wait (`is_waiting`) or has waited.
function owner.set_waiting(waiter, is_waiting)
  threads[waiter] = is_waiting and running() or nil
end

local function is_alive(waiter)
  local thread = threads[waiter]
  return thread ~= nil and status(thread) ~= "dead"
end

-- → a function that returns whether a waiter's owner still exists and may continue to wait
function owner.alive_check() return is_alive end

-- Called when a call has ended, with the pump (nil if the call blocked), lock, kind, owner and
-- first result.
function owner.record_result() end

-- Called when no caller holds the lock any more.
function owner.forget() end

-- Wraps a blocking call so that it is made by, and recorded for, the calling owner. `takes_list`:
-- the call takes a list of locks.
function owner.around_call(_kind, run, _takes_list) return run end

-- Wraps a lock's local query, such as is_held, so that it is about the calling owner's hold.
function owner.around_query(ask) return ask end

-- → the mark of an owner that may end before its coroutine does | nil
function owner.mark() return nil end

-- Returns whether this process is about to exit, so that no leader's term may begin.
function owner.is_exiting() return false end

return owner
