--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "lock/hash.lua:layout"
--#include "lock/hash.lua:holding"
--#include "fair/fair_passing.lua"
-- Takes a fair lock away from its holder, and notifies the first waiter. A key that is not a lock
-- is left unchanged. Not safe to resend: it would hit the next holder.
--
-- A hash is a lock if it has a TTL, one owner with a count, and one of these: the owner is ARGV[1];
-- it has the form <uuid>:<n>; the lock's counter or list exists.
--
-- ARGV[3] and the replies: force.lua, but after a 3 call fair_leave.lua
--#include "base/owners.lua:redisson_owner"

local function is_lock()
  local holder = holder_of(LOCK)
  if redis.call('PTTL', LOCK) < 0 or redis.call('HLEN', LOCK) ~= 1 then return false end
  if not holds_of(LOCK, holder) then return false end
  return holder == OWNER or holder:find(REDISSON_OWNER) or redis.call('EXISTS', COUNTER, QUEUE) > 0
end

--#include "lock/force.lua:only_lock"
redis.call('DEL', LOCK)
return pass_on()
