--#include "LAYOUT:layout"
-- Renews many locks. Never re-creates a lock, shortens a lease or changes another owner's lock. A
-- longer TTL is written again unchanged, so that a later WAIT covers it. Safe to resend.
--
-- KEYS[i] a lock; ARGV[2i - 1] its owner, ARGV[2i] its lease in ms
--
-- for each lock: 1 renewed; -1 the key is gone, -2 another owner holds it, or the key has another
-- type
local results = {}
for i, lock in ipairs(KEYS) do
  local readable, count = pcall(holds_of, lock, ARGV[2 * i - 1])
  if readable and count then
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(ARGV[2 * i])))
    results[i] = 1
  else
    results[i] = redis.call('EXISTS', lock) == 0 and -1 or -2
  end
end
return results
