-- Acquires a lock. Arguments and replies: acquiring.lua.
--
-- The common cases come first, as straight-line code without functions, because creating functions
-- takes longer than running them. Other programs do the same. If one program needs code in
-- straight-line form and another needs it in a function, it is a section of a file that both
-- include.
--
-- First case: the lock is free, the caller neither holds it nor waits for it, and there is no
-- queue. The code after the first two cases handles everything else.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local LOCK, COUNTER, QUEUE, RELEASES, OWNER = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local SHORT, LEASE, TOKEN_TTL = not ARGV[4], ARGV[2], ARGV[3]
if not SHORT then LEASE, TOKEN_TTL = ARGV[5], ARGV[6] end
local FREE = (SHORT or ARGV[3] == '0' and ARGV[7] == '') and call('EXISTS', LOCK, QUEUE) == 0
--#include "lock/free.lua"
if TOKEN then
--#include "LAYOUT:take"
  return TOKEN
end
ARGV = SHORT and { OWNER, '2000', '0', '0', LEASE, TOKEN_TTL, '' } or ARGV
local GRANT_MS = ARGV[2]

-- Second case: another of our owners holds the lock (owners.lua; here only two of its characters
-- are checked), and the caller does not wait, or queues behind other waiters. acquiring.lua handles
-- a holder that does not hand over: it records the holder, which ends a turn of foreign clients.
if ARGV[3] == '0' then
--#include "base/clock.lua:places"
--#include "LAYOUT:find_holder"
  local WAITER, ttl_ms = ARGV[7], holder and call('PTTL', LOCK) or 0
  if ttl_ms > 0 and holder ~= OWNER and holder:byte(15) == 56 and holder:byte(37) == 58 then
    if WAITER == '' then return { 0, ttl_ms, 0, 0, '' } end
    local time = call('TIME')
--#include "queue/behind.lua"
  end
end

--#include "base/clock.lua"
--#include "LAYOUT:layout"
--#include "base/owners.lua:ours"
local FINGERPRINT = nil
--#include "token/ranges.lua"
--#include "lock/fresh.lua:fresh"
--#include "LAYOUT:holding"
--#include "CHANNEL:announcing"
--#include "base/owners.lua:redisson_owner"
--#include "queue/placing.lua"
--#include "lock/acquiring.lua"
