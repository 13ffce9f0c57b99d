--#fragment
--#include "releases.lua"
--#include "semaphore.lua"
-- Redisson wakes as many of its waiters as the message counts.
local function give(count)
  free() -- fails if the key is none
  local left = redis.call('INCRBY', PERMITS, count)
  if left > 0 then announce(KEYS[3], string.format('%.0f', left)) end
  return left
end
