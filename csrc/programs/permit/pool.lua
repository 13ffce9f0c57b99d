--#fragment
-- Defines LEASES, the key of the set of permit leases, and FREE, the number of free permits, or nil
-- if no total was set.
local LEASES, FREE = KEYS[5], redis.call('GET', LOCK)
if FREE == '0' then
  FREE = 0
else
--#include "base/read_integer.lua"
  FREE = read_integer(LOCK, FREE)
end
