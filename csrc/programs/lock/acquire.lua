-- Acquires a lock. Arguments and replies: acquiring.lua.
--
-- The common cases come first, as straight-line code without functions, because creating functions
-- takes longer than running them. Other programs do the same. If one program needs code in
-- straight-line form and another needs it in a function, it is a section of a file that both
-- include.
--
-- First case: the lock is free, the caller does not hold it, and there is no queue. The code after
-- the first two cases handles everything else.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local LOCK, COUNTER, QUEUE, RELEASES, OWNER = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local SHORT, LEASE, TOKEN_TTL = not ARGV[4], ARGV[2], ARGV[3]
if not SHORT then LEASE, TOKEN_TTL = ARGV[5], ARGV[6] end
local FREE
do
  local IS_NEW, WAITER, holder = SHORT or ARGV[3] == '0', SHORT and '' or ARGV[7], nil
  FREE = IS_NEW and WAITER == '' and call('EXISTS', LOCK, QUEUE) == 0
  if IS_NEW and not FREE then
--#include "LAYOUT:find_holder"
    -- A caller that waits usually finds the lock taken, so this comes first.
    FREE = WAITER ~= '' and not holder and call('EXISTS', LOCK, QUEUE) == 0
  end
--#include "lock/free.lua"
  if TOKEN then
--#include "LAYOUT:take"
    return TOKEN
  end

  -- Second case: another of our owners holds the lock, and the caller does not wait, or queues. Not
  -- all of the uuid is checked. acquiring.lua handles an owner that keeps the lock (its number
  -- begins with 0), and records a holder that does not hand over, which ends a foreign turn.
--#include "base/clock.lua:places"
  local ttl_ms = holder and call('PTTL', LOCK) or 0
  if ttl_ms > 0 and holder ~= OWNER and holder:byte(15) == 56 and holder:find('^:[1-9]%d*$', 37)
  then
    if WAITER == '' then return { 0, ttl_ms, 0, 0, '' } end
    local time, MAY_BE_FIRST = call('TIME'), true
    local last = (call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2] or 0) + 0
--#include "queue/behind.lua"
  end
end
ARGV = SHORT and { OWNER, '2000', '0', '0', LEASE, TOKEN_TTL, '' } or ARGV
local GRANT_MS = ARGV[2]

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
