--#fragment
--#include "fair_queue.lua"
-- The lock is free: tells who is first.
-- → 1, or 3 where dead waiters are left to be removed before the next one is told
local function pass_on()
  if redis.call('TYPE', QUEUE).ok ~= 'list' then return 1 end
  local now = now_ms()
  local owner, till, more = first_waiter(nil, now)
  if owner then wake(owner, till, now) end
  return more and 3 or 1
end
