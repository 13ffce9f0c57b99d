--#include "read_write/rw.lua"
-- Sets a new lease, which also confirms a grant. An unchanged lease is written again, so that a
-- later WAIT covers it. Safe to resend.
--
-- KEYS[1] the lock, KEYS[2] its queue, KEYS[3] the key with the first hold's lease, or for a writer
-- the lock again: a server that moves the slot runs the command only if it has all keys
-- ARGV[1] owner, ARGV[2] lease in ms, 0: only check
-- ARGV[3] a lease above this many ms is not shortened, "": any lease may be shortened
-- ARGV[4] the member of the queue that was granted the lock, "": none
-- ARGV[5] the channel of releases
--
-- 1 held by this owner; -1 the key is gone, -2 others hold it
local LOCK, OWNER, LEASE, MAX_MS = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local function extend_key(key)
  local ttl_ms = redis.call('PTTL', key)
  local remains = MAX_MS and ttl_ms > MAX_MS and ttl_ms >= LEASE
  set_lease(key, remains and ttl_ms or LEASE)
end

local count = tonumber(redis.call('HGET', LOCK, OWNER))
if not count then
  return redis.call('EXISTS', LOCK) == 0 and -1 or -2
end
if LEASE == 0 then return 1 end
if not is_write(OWNER) then
  for n = 1, math.min(count, MAX_KEYS) do extend_key(hold_key(LOCK, OWNER, n)) end
end
local ttl_ms, is_only_holder = redis.call('PTTL', LOCK), redis.call('HLEN', LOCK) == 2
local remains = ttl_ms >= LEASE and (not is_only_holder or MAX_MS and ttl_ms > MAX_MS)
redis.call('PEXPIRE', LOCK, remains and ttl_ms or LEASE)
if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end
if not remains and ttl_ms > LEASE then
--#include "CHANNEL:announcing"
--#include "queue/shortened.lua"
  if announce(ARGV[5], '1') > 0 then announce(ARGV[5], '0') end -- see announce_free
end
return 1
