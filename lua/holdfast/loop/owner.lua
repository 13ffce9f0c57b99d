-- The owner of a call, as the pump and the driver see it: the calling coroutine, which the core
-- tells from others by itself. A loop has these functions in its field `owner`;
-- holdfast.loop.ngx has its own, because there the owner is a request.

local running, status = coroutine.running, coroutine.status

local owner = {}

-- waiter -> its coroutine, while that lives
local threads = setmetatable({}, { __mode = "kv" })

-- A call of this pump begins. → its owner; false: the core knows
function owner.enter() return false end

-- This call waits from now on, or no longer does.
function owner.waits(waiter, does)
  threads[waiter] = does and running() or nil
end

local function is_living(waiter)
  local thread = threads[waiter]
  return thread ~= nil and status(thread) ~= "dead"
end

-- → a function that returns whether the owner of a waiter still exists, and may go on waiting
function owner.living() return is_living end

-- A call has ended with this first result. `pump`: nil for a call that blocked.
function owner.settle() end

-- Nobody has a hold of the lock any more.
function owner.forget() end

-- → the blocking call of this kind, so that it counts for its owner; `several`: it is given a list
-- of locks
function owner.around_call(_, run) return run end

-- → the function of a lock, so that it is about the calling owner's hold
function owner.around_question(ask) return ask end

-- → the mark of an owner that may end before its coroutine does; nil: there is none
function owner.mark() return nil end

-- Whether this process is about to end, so that no term of a leader may begin.
function owner.ends() return false end

return owner
