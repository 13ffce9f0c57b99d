--#fragment
--#include "fair/fair_queue.lua"
-- Whether the list exists, and the timeouts have the right type or do not exist; otherwise both are
-- left unchanged.
local function is_sound()
  local kind = redis.call('TYPE', QUEUE).ok == 'list' and redis.call('TYPE', TIMEOUTS).ok
  return kind == 'zset' or kind == 'none'
end

-- The lock is free: notifies the first waiter.
-- → 1, or 3 if dead waiters must be removed before the next one is notified
local function pass_on()
  if not is_sound() then return 1 end
  local now = now_ms()
  local owner, till, more = first_waiter(nil, now)
  if owner then wake(owner, till, now) end
  return more and 3 or 1
end
