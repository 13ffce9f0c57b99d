--#include "base/clock.lua"
--#include "permit/permit_now.lua"
--#include "permit/permits.lua"
-- Renews the permits of many owners. Never takes a permit again or shortens a lease. A lease that
-- already ends later is extended by 1 ms, because the server does not replicate an unchanged score,
-- so a later WAIT would cover nothing. Safe to resend.
--
-- KEYS[i] the leases of a semaphore's permits; ARGV[2i - 1] an owner, ARGV[2i] its lease in ms
--
-- for each owner: 1 renewed; -1 it no longer has all of its permits, or the key has another type
local results = {}
for i, leases in ipairs(KEYS) do
  local ids = ids_of(ARGV[2 * i - 1])
  local readable, first_end = pcall(first_end_of, leases, ids)
  if readable and first_end then
    renew_end(leases, ids, math.max(first_end + 1, NOW + ARGV[2 * i]))
    results[i] = 1
  else
    results[i] = -1
  end
end
return results
