--#include "read_write/rw.lua"
-- Renews holds of many locks. Never re-creates a hold or shortens a lease. A longer lease is
-- written again unchanged, so that a later WAIT covers it. Safe to resend.
--
-- KEYS[2i - 1] a lock, KEYS[2i] the key with the first hold's lease, or for a writer the lock
-- again: a server that moves the slot runs the command only if it has both
-- ARGV[2i - 1] its owner, ARGV[2i] its lease in ms
--
-- for each lock: 1 renewed; -1 the key is gone, -2 others hold it, or the key has another type
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
