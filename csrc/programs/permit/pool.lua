--#fragment
-- Defines LEASES, and FREE: how many permits of a semaphore are free; nil: no total was set.
local LEASES, FREE = KEYS[5], redis.call('GET', LOCK)
if FREE == '0' then
  FREE = 0
else
--#include "base/whole_number.lua"
  FREE = whole_number(LOCK, FREE)
end
