--#fragment
--#include "fair/fair_queue.lua"
-- Returns whether the list exists, and the timeouts are a sorted set or do not exist; if not, both
-- keys are left unchanged.
local function is_sound()
  local kind = redis.call('TYPE', QUEUE).ok == 'list' and redis.call('TYPE', TIMEOUTS).ok
  return kind == 'zset' or kind == 'none'
end

-- Notifies the first waiter that the lock is free.
-- → 1, or 3 if dead waiters must be removed before the next one is notified
local function pass_on()
  if not is_sound() then return 1 end
  local now = now_ms()
  local owner, till, more = prune_to_first_waiter(nil, now)
  if owner then notify_waiter(owner, till, now) end
  return more and 3 or 1
end
