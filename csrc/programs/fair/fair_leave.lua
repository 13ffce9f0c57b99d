--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "lock/hash.lua:layout"
--#include "lock/hash.lua:holding"
--#include "fair/fair_passing.lua"
-- Ends a wait for a fair lock, or undoes an acquire whose outcome is unknown. If the lock is then
-- free, notifies the first waiter. Safe to resend.
--
-- ARGV[3] remaining  the hold count that remains
-- ARGV[4] waiter     "": the owner does not wait
--
-- 1 a hold was released; 0 none was; 3 either, but dead waiters remain: call it again
local REMAINING = tonumber(ARGV[3])

if ARGV[4] ~= '' and is_sound() then remove_waiter(OWNER, now_ms()) end
local count = holds_of(LOCK, OWNER)
if not count or count <= REMAINING then
  local free = redis.call('EXISTS', LOCK) == 0
  return free and pass_on() == 3 and 3 or 0
end
if REMAINING > 0 then
  set_holds(LOCK, OWNER, REMAINING, 0)
  return 1
end
redis.call('DEL', LOCK)
return pass_on()
