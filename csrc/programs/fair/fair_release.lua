--#include "base/keys.lua"
-- Releases one hold of a fair lock. The last release frees the lock and notifies the first waiter.
-- Safe to resend.
--
-- ARGV[3] remaining  the hold count that remains; 0: free the lock
-- ARGV[4] lease      ms, the minimum TTL of a lock that is still held
--
-- 1 freed; 3 freed, but dead waiters remain: call fair_leave.lua; 2 still held; not held by this
-- owner: -1 the key is gone, -2 another owner holds it
local call = redis.call
if not tonumber(call('HGET', LOCK, OWNER)) then
  return call('EXISTS', LOCK) == 0 and -1 or -2
end
if ARGV[3] == '0' then
  call('DEL', LOCK)
  if call('EXISTS', QUEUE) == 0 then return 1 end
end

--#include "lock/hash.lua:layout"
--#include "lock/hash.lua:holding"
if ARGV[3] ~= '0' then
  set_holds(LOCK, OWNER, ARGV[3], ARGV[4])
  return 2
end
--#include "base/clock.lua"
--#include "fair/fair_passing.lua"
return pass_on()
