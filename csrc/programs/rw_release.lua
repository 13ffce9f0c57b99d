--#include "keys.lua"
--#include "releases.lua"
-- Lets go of one hold. With the last one whoever waits for that comes in. A writer that reads, too,
-- goes on as a reader.
--
-- ARGV[3] to      the count that stays; 0: none
-- ARGV[4] lease   ms, the least lease of holds that stay
-- ARGV[5] unused
-- ARGV[6] waiter  the member of a grant that was not confirmed; may be left out
--
-- 1 no hold stays, 3 likewise, and the next script is to go on with those that wait, 2 some stay;
-- not held by this owner: -1 the key is gone, -2 others have it
local TO, LEASE, WAITER = tonumber(ARGV[3]), ARGV[4], ARGV[6]

local holds = tonumber(redis.call('HGET', LOCK, OWNER))
if not holds then
  return redis.call('EXISTS', LOCK) == 0 and -1 or -2
end
--#include "rw_leaving.lua"
--#include "clock.lua"
--#include "token.lua"
--#include "rw.lua"
--#include "rw_token.lua"
--#include "ours.lua"
--#include "placing.lua"
--#include "first_in_line.lua"
--#include "rw_queue.lua"
if holds == 0 then
  write_turn(TURN_MS)
  return 1
end
if WAITER then redis.pcall('ZREM', QUEUE, WAITER) end
local result = let_go(holds, TO)
if result == 2 then renew_holds(LOCK, OWNER, TO, LEASE) end
return result
