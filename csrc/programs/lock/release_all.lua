--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/ranges.lua"
--#include "lock/hash.lua:layout"
--#include "lock/hash.lua:holding"
--#include "base/owners.lua:ours"
--#include "base/owners.lua:redisson_owner"
--#include "queue/placing.lua"
--#include "CHANNEL:announcing"
--#include "queue/queue.lua"
-- Releases one hold of each of several locks. Safe to resend.
--
-- KEYS[4i - 3 .. 4i] lock i with its counter, queue and channel
-- ARGV[1] unused, ARGV[2] grant lease in ms
-- ARGV[3i] the owner of lock i, ARGV[3i + 1] its remaining hold count, 0: free the lock
-- ARGV[3i + 2] lease in ms, the minimum TTL of a lock that is still held
--
-- for each lock, as in release.lua: 1 or 3 freed, 2 still held; not held: -1 the key is gone, -2
-- another owner holds it, or the key has another type
local function release(remaining, lease)
  local readable, count = pcall(holds_of, LOCK, OWNER)
  if not (readable and count) then
    return redis.call('EXISTS', LOCK) == 0 and -1 or -2
  end
  if remaining > 0 then
    set_holds(LOCK, OWNER, remaining, lease)
    return 2
  end
  return pass_on()
end

local results = {}
for i = 1, #KEYS / 4 do
  LOCK, COUNTER, QUEUE, RELEASES = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
  OWNER = ARGV[3 * i]
  results[i] = release(tonumber(ARGV[3 * i + 1]), ARGV[3 * i + 2])
end
return results
