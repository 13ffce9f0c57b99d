--#include "base/keys.lua"
--#include "lock/fresh.lua:free"
local call = redis.call
--#include "lock/free.lua"
if TOKEN then
--#include "lock/hash.lua:taking"
  return TOKEN
end
--#include "base/clock.lua"
--#include "token/ranges.lua"
--#include "lock/hash.lua:layout"
--#include "lock/hash.lua:holding"
local PRINT = nil
--#include "lock/fresh.lua:fresh"
--#include "fair/fair_queue.lua"
-- Acquires a fair lock, re-enters it, or queues in Redisson's list. Safe to resend.
--
-- ARGV[3] from      the owner's hold count as far as the client knows; the new one is from + 1
-- ARGV[4] unused
-- ARGV[5] lease     ms; a re-entry never shortens the TTL
-- ARGV[6] token ttl ms, 0: no fencing, 2^53 - 1 or more: the counter has no TTL
-- ARGV[7] waiter    "": do not wait
--
-- { 1, token, 0 }            acquired; token 0: unchanged, or no fencing
-- a token                    acquired: short for { 1, token, 0 }, see free.lua
-- { 0, ttl ms, ahead, 0, '' } taken; ahead: waiters that come first; a number above 100 may be too
--                             high, but at least 100 come first
-- { -1 } { -2 }              from > 0, but the hold is lost: -1 the key is gone, -2 another owner
--                            holds it
-- { -3 }                     a hash without a TTL, which is not a lock
-- { -6, kind }               the key belongs to another kind: "guard", "read_write"
local FROM, WAITER = tonumber(ARGV[3]), ARGV[7]
-- A waiter with at most this many waiters ahead asks again every grant lease; with more, less
-- often. No more waiters are read from the list.
local CROWD = 100
local MAX_RECHECK_MS = 30000
local RECHECKS = 3 -- how many rechecks a waiter of ours misses before it counts as dead
local SLACK_MS = 1000
local JAVA_WAIT_MS = 300000 -- the timeout that a client of Redisson adds by default

local function take(now)
  local token = FROM == 0 and next_token(TOKEN_TTL) or 0
  set_holds(LOCK, OWNER, FROM + 1, LEASE)
  if WAITER ~= '' then forget(OWNER, now) end
  return { 1, token, 0 }
end

-- Finds the owner among the first members of the list. → how many come first, or nil if it is not
-- there; how many of those are Redisson's, and the last of them
local function place_in(members)
  local theirs, last = 0, nil
  for i, owner in ipairs(members) do
    if owner == OWNER then return i - 1, theirs, last end
    if not is_ours(owner) then theirs, last = theirs + 1, owner end
  end
  return nil, theirs, last
end

-- Each of Redisson's waiters before the owner will subtract its own timeout from the owner's when
-- it leaves the list. So the owner's timeout must include theirs: the default for each of them, or
-- what the last one's shows if that is more.
-- → the ms of the server's clock at which theirs end
local function end_of_theirs(theirs, last, lock_ms, now)
  local usual, till = now + theirs * JAVA_WAIT_MS, last and timeout_of(last) or 0
  return till - math.max(0, lock_ms) > usual + SLACK_MS and till or usual
end

-- The same if too many come first to read them all. owner: the last one in the list or, if the
-- caller is already queued, the caller. The timeout of `owner` includes what was to be subtracted
-- when it was set; what a waiter of ours has added of its own is less than JAVA_WAIT_MS.
local function end_of_far(owner, now)
  local till = math.max(now, timeout_of(owner) or 0)
  if not is_ours(owner) then return till + JAVA_WAIT_MS end
  return till - (till - now) % JAVA_WAIT_MS
end

-- Appends the owner to the list, or keeps its place, and sets its timeout. → how many come first
local function stand(lock_ms, now)
  local old, count = timeout_of(OWNER), redis.call('LLEN', QUEUE)
  local near = (old or count < CROWD) and redis.call('LRANGE', QUEUE, 0, CROWD - 1) or {}
  local at, theirs, last = place_in(near)
  local comes = not at and (not old or #near == count)
  local ahead = at or comes and count or count - 1
  local base = (at or #near == count) and end_of_theirs(theirs, last, lock_ms, now)
    or end_of_far(comes and redis.call('LINDEX', QUEUE, -1) or OWNER, now)
  if comes then redis.call('RPUSH', QUEUE, OWNER) end
  local recheck_ms = math.min(GRANT_MS * math.max(1, ahead / CROWD), MAX_RECHECK_MS)
  local new = base + math.max(MIN_TIMEOUT_MS, math.ceil(RECHECKS * recheck_ms))
  set_timeout(OWNER, new)
  if at and old and new < old then lower_behind(at + 1, old, new) end
  return ahead
end

local function busy(lock_ms, ttl_ms, now)
  local ahead = WAITER ~= '' and stand(lock_ms, now) or 0
  return { 0, ttl_ms, ahead, 0, '' }
end

local lock_ms, now = redis.call('PTTL', LOCK), now_ms()
if lock_ms ~= -2 then
  if FROM > 0 then return holds_of(LOCK, OWNER) and take(now) or { -2 } end
  local _, count, kind = holder_of(LOCK, OWNER)
  if kind == 'lock' and count then return take(now) end
  if lock_ms == -1 then return { -3 } end
  if kind ~= 'lock' then return { -6, kind } end
  return busy(lock_ms, lock_ms, now)
end
if FROM > 0 then return { -1 } end

local owner, till, more = first_waiter(OWNER, now)
if owner == OWNER or not owner and not more then return take(now) end
if not owner then return busy(0, 1, now) end
wake(owner, till, now)
return busy(0, math.min(tonumber(GRANT_MS), timeout_of(owner) - now), now)
