-- Takes a lock: acquiring.lua has the arguments and the replies.
--
-- The common cases come first, in straight lines, without a function: making functions takes longer
-- than running them. Other programs do the same. What is in straight lines in one program and in a
-- function of another is a section of a file.
--
-- The lock is free: the caller neither holds it nor waits for it, and there is no queue; the token
-- is the clock, and the counter's TTL lasts (token.lua) or begins. Anything else is left to the
-- text that follows, which finds everything as it was: a lock without fencing, one whose counter
-- has no end, a guard, a quorum, an owner that keeps the lock (its number begins with 0), and a
-- counter that is not a number, that Java has drawn from, or that is ahead of the clock. A server
-- before 6.2 does not know this SET, and refuses it each time.
local LOCK, COUNTER, QUEUE, RELEASES, OWNER = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local SHORT = not ARGV[4]
local LEASE, TOKEN_TTL = ARGV[SHORT and 2 or 5], ARGV[SHORT and 3 or 6]
local FREE = (SHORT or ARGV[3] == '0' and ARGV[7] == '') and redis.call('EXISTS', LOCK, QUEUE) == 0
if FREE and TOKEN_TTL ~= '0' and #TOKEN_TTL < 16 and not ARGV[8] and OWNER:byte(38) ~= 48 then
  local call, ttl_ms = redis.call, TOKEN_TTL
  local time, drawn, text = call('TIME'), false, nil
--#include "token/drawing.lua"
  if drawn then
--#include "LAYOUT:taking"
    return { 1, text + 0, 0 }
  end
end
local ARGV = SHORT and { OWNER, '2000', '0', '0', LEASE, TOKEN_TTL, '' } or ARGV
local GRANT_MS = ARGV[2]

-- The lock is taken: another owner of ours (owners.lua, here by two letters alone) holds it, and
-- the caller does not wait, or goes behind those that wait already. A holder that does not hand
-- over is noted by acquiring.lua, which ends the time that was left to its kind.
if ARGV[3] == '0' then
--#include "base/clock.lua:places"
--#include "LAYOUT:owning"
  local WAITER, ttl_ms = ARGV[7], holder and redis.call('PTTL', LOCK) or 0
  if ttl_ms > 0 and holder ~= OWNER and holder:byte(15) == 56 and holder:byte(37) == 58 then
    if WAITER == '' then return { 0, ttl_ms, 0, 0, '' } end
    local time = redis.call('TIME')
--#include "queue/behind.lua"
  end
end

--#include "base/clock.lua"
--#include "LAYOUT:layout"
--#include "base/owners.lua:ours"
local PRINT = nil
--#include "token/ranges.lua"
--#include "lock/fresh.lua:fresh"
--#include "LAYOUT:holding"
--#include "CHANNEL:announcing"
--#include "base/owners.lua:javas"
--#include "queue/placing.lua"
--#include "lock/acquiring.lua"
