--#include "latch/latch.lua"
-- Counts down. At 0 the latch opens.
--
-- ARGV[2] the decrement
--
-- Returns the remaining count, or -1 if the latch was already open.
local left = count()
if left == 0 then return note(-1) end
if left > tonumber(ARGV[2]) then
  return note(redis.call('DECRBY', LATCH, ARGV[2]), 'DECRBY', LATCH, '-' .. ARGV[2])
end
return open(left, 0)
