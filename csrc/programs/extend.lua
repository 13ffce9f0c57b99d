--#include "layout.lua"
-- Sets a new lease, which also confirms a lock that came by a grant. Changes nothing for anyone but
-- the owner. A lease that stays is written again, so that a WAIT behind it waits for that.
--
-- KEYS[1] the lock, KEYS[2] its queue
-- ARGV[1] owner, ARGV[2] lease in ms, 0: only check
-- ARGV[3] a TTL of more ms than this is not shortened, "": any may be
-- ARGV[4] the member of the queue that the grant went to, "": none
-- ARGV[5] the channel of releases, which as a key that is never there would stop this in a cluster
-- while its slot moves
--
-- 1 held by this owner; -1 the key is gone, -2 another owner has it
--#include "extending.lua"
if shorter then
--#include "listeners.lua"
--#include "shortened.lua"
  announce(ARGV[5])
end
return 1
