--#fragment
-- How many permits of one semaphore are free; nil: nobody has set how many there are.
local LEASES, FREE = KEYS[5], redis.call('GET', LOCK)
if FREE == '0' then
  FREE = 0
else
--#include "base/whole_number.lua"
  FREE = whole_number(LOCK, FREE)
end
