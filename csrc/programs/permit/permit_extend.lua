--#include "base/clock.lua"
--#include "permit/permit_now.lua"
--#include "permit/permits.lua"
-- Sets a new lease for an owner's permits, which also confirms a grant. A lease that would not
-- change gets 1 ms more, as in permit_renew.lua. Safe to resend.
--
-- KEYS[1] the permits' leases, KEYS[2] the queue
-- ARGV as in extend.lua: owner; lease in ms, 0: only check; the ms above which a lease is not
-- shortened; member of the queue; the channel of releases
--
-- 1 this owner has them; -1 not all of them
local IDS = ids_of(ARGV[1])

local ends = end_of(KEYS[1], IDS)
if not ends then return -1 end
if ARGV[2] ~= '0' then
  local ttl_ms, most = ends - NOW, tonumber(ARGV[3])
  local stays = most and ttl_ms > most and ttl_ms >= tonumber(ARGV[2])
  local new = stays and ends or NOW + ARGV[2]
  renew_end(KEYS[1], IDS, new == ends and new + 1 or new)
  if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end
  if not stays and ttl_ms > tonumber(ARGV[2]) then
--#include "CHANNEL:announcing"
--#include "queue/shortened.lua"
    announce(ARGV[5], #IDS)
  end
end
return 1
