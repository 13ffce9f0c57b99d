--#include "read_write/rw.lua"
-- Renews holds of many locks at once. Never re-creates one, never shortens a lease. One that is
-- longer already is written again, so that a WAIT behind it waits for that.
--
-- KEYS[2i - 1] a lock, KEYS[2i] where the lease of the first hold stands, of a writer the lock
-- again: a server that moves the slot carries it out only where it finds both
-- ARGV[2i - 1] its owner, ARGV[2i] its lease in ms
--
-- for each lock: 1 renewed; -1 the key is gone, -2 others (or another type) have it
local results = {}
for i = 1, #KEYS / 2 do
  local lock, owner, ms = KEYS[2 * i - 1], ARGV[2 * i - 1], ARGV[2 * i]
  local count = redis.pcall('HGET', lock, owner)
  count = type(count) == 'string' and tonumber(count)
  if count then
    renew_holds(lock, owner, count, ms)
    results[i] = 1
  else
    results[i] = redis.call('EXISTS', lock) == 0 and -1 or -2
  end
end
return results
