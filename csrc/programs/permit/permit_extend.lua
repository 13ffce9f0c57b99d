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
-- 1 this owner has the permits; -1 it does not have all of them
local IDS = ids_of(ARGV[1])

local first_end = first_end_of(KEYS[1], IDS)
if not first_end then return -1 end
if ARGV[2] ~= '0' then
  local ttl_ms, max_ms = first_end - NOW, tonumber(ARGV[3])
  local remains = max_ms and ttl_ms > max_ms and ttl_ms >= tonumber(ARGV[2])
  local new_end = remains and first_end or NOW + ARGV[2]
  renew_end(KEYS[1], IDS, new_end == first_end and new_end + 1 or new_end)
  if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end
  if not remains and ttl_ms > tonumber(ARGV[2]) then
--#include "CHANNEL:announcing"
--#include "queue/shortened.lua"
    announce(ARGV[5], #IDS)
  end
end
return 1
