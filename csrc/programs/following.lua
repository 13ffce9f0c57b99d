--#fragment
-- The common refusal in straight lines, as in head.lua: another owner of ours (ours.lua, here by
-- two letters alone) has the lock, and the caller does not wait, or goes behind those that wait
-- already. A holder that does not hand over is noted by acquiring.lua, which ends the time that was
-- left to its kind.
if ARGV[3] == '0' then
--#include "places.lua"
--#include "owning.lua"
  local WAITER, ttl_ms = ARGV[7], holder and redis.call('PTTL', LOCK) or 0
  if ttl_ms > 0 and holder ~= OWNER and holder:byte(15) == 56 and holder:byte(37) == 58 then
    if WAITER == '' then return { 0, ttl_ms, 0, 0, '' } end
    local time = redis.call('TIME')
--#include "behind.lua"
  end
end
