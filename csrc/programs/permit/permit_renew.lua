--#include "base/clock.lua"
--#include "permit/permit_now.lua"
--#include "permit/permits.lua"
-- Renews the permits of many owners at once. Never takes one again, never shortens a lease. One
-- that is longer already gets a millisecond more: the server sends a replica nothing for a score
-- that stays, and a WAIT behind it would wait for nothing.
--
-- KEYS[i] the leases of a semaphore's permits; ARGV[2i - 1] an owner, ARGV[2i] its lease in ms
--
-- for each owner: 1 renewed; -1 not all of them are its own any more, or the key has another type
local results = {}
for i, leases in ipairs(KEYS) do
  local ids = ids_of(ARGV[2 * i - 1])
  local readable, ends = pcall(end_of, leases, ids)
  if readable and ends then
    renew_end(leases, ids, math.max(ends + 1, NOW + ARGV[2 * i]))
    results[i] = 1
  else
    results[i] = -1
  end
end
return results
