--#include "layout.lua"
--#include "queue.lua"
-- Lets go of one hold. The last one frees the lock and passes it on.
--
-- ARGV[3] to     the count that stays; 0: free it
-- ARGV[4] lease  ms, the least TTL of a lock that is still held
-- ARGV[5] own    of an owner that other processes share, instead of `to`: how many holds to let go of; "": not shared
--
-- 1 freed, 2 still held; not held by this owner: -1 the key is gone, -2 another owner has it
local TO, LEASE, OWN = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

local count = holds_of(LOCK, OWNER)
if not count then
  return redis.call('EXISTS', LOCK) == 0 and -1 or -2
end
local to = OWN and count - OWN or TO
if to > 0 then
  set_holds(LOCK, OWNER, to, LEASE)
  return 2
end
pass_on()
return 1
