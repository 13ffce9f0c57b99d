--#fragment
-- The common wait before the rest is made: another owner of ours (ours.lua, here by two letters
-- alone) has the lock, and the caller goes behind those that wait already. A holder that does not
-- hand over is noted by acquiring.lua, which ends the time that was left to its kind.
if ARGV[3] == '0' and ARGV[7] ~= '' then
  local WAITER, ttl_ms = ARGV[7], redis.call('PTTL', LOCK)
  local holder = ttl_ms > 0 and first_owner(LOCK)
  if holder and holder ~= OWNER and holder:byte(15) == 56 and holder:byte(37) == 58 then
--#include "behind.lua"
  end
end
