--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "lock/hash.lua:layout"
--#include "lock/hash.lua:holding"
--#include "fair/fair_passing.lua"
-- Takes a fair lock away from whoever holds it, and tells who is first in the list. A key that is
-- no lock stays as it is: a lock is a hash with a TTL and one owner with a count, and either this
-- owner, an owner of the form <uuid>:<n>, or a counter or waiters beside it.
--
-- 1 it was locked, 3 likewise, and dead waiters are left to be removed before the next one is
-- notified, 0 it was free
--#include "base/owners.lua:javas"

local function is_lock()
  local holder = holder_of(LOCK)
  if redis.call('PTTL', LOCK) < 0 or redis.call('HLEN', LOCK) ~= 1 then return false end
  if not holds_of(LOCK, holder) then return false end
  return holder == OWNER or holder:find(JAVAS) or redis.call('EXISTS', COUNTER, QUEUE) > 0
end

--#include "lock/force.lua:only_lock"
redis.call('DEL', LOCK)
return pass_on()
