--#include "base/keys.lua"
--#include "lock/fresh.lua:free"
local call = redis.call
--#include "lock/free.lua"
if TOKEN then
--#include "lock/hash.lua:take"
  return TOKEN
end
--#include "base/clock.lua"
--#include "token/ranges.lua"
--#include "lock/hash.lua:layout"
--#include "lock/hash.lua:holding"
local FINGERPRINT = nil
--#include "lock/fresh.lua:fresh"
--#include "fair/fair_queue.lua"
-- Acquires a fair lock, re-enters it, or adds the owner to Redisson's list. Safe to resend.
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
-- A waiter with up to this many waiters ahead asks again every grant lease; with more, less often.
-- The program reads at most this many waiters from the list.
local READ_LIMIT = 100
local MAX_RECHECK_MS = 30000
local MISSED_RECHECKS = 3 -- one of our waiters that has missed this many rechecks counts as dead
local SLACK_MS = 1000
local JAVA_WAIT_MS = 300000 -- the timeout that a client of Redisson adds by default

local function take(now)
  local token = FROM == 0 and next_token(TOKEN_TTL) or 0
  set_holds(LOCK, OWNER, FROM + 1, LEASE)
  if WAITER ~= '' then remove_waiter(OWNER, now) end
  return { 1, token, 0 }
end

-- Finds the owner among the first members of the list. → the number of waiters before it, or nil if
-- it is not there; the number of Redisson's waiters before it, and the last of these
local function find_owner(members)
  local redisson_count, last = 0, nil
  for i, owner in ipairs(members) do
    if owner == OWNER then return i - 1, redisson_count, last end
    if not is_ours(owner) then redisson_count, last = redisson_count + 1, owner end
  end
  return nil, redisson_count, last
end

-- When one of Redisson's waiters leaves the list, it subtracts its own timeout from those of all
-- later waiters. So the owner's timeout must include that of each Redisson waiter before it: the
-- default, or more if the timeout of the last one shows that. → the ms of the server's clock at
-- which their timeouts end
local function redisson_timeout(redisson_count, last, lock_ms, now)
  local default_timeout, till = now + redisson_count * JAVA_WAIT_MS, last and timeout_of(last) or 0
  return till - math.max(0, lock_ms) > default_timeout + SLACK_MS and till or default_timeout
end

-- Does the same as redisson_timeout if there are too many waiters before the caller to read them
-- all. owner: the last one in the list, or the caller if it is already queued. When the timeout of
-- `owner` was set, it included all timeouts that are subtracted later; if `owner` is ours, its own
-- part is less than JAVA_WAIT_MS.
local function distant_timeout(owner, now)
  local till = math.max(now, timeout_of(owner) or 0)
  if not is_ours(owner) then return till + JAVA_WAIT_MS end
  return till - (till - now) % JAVA_WAIT_MS
end

-- Appends the owner to the list, or keeps its place, and sets its timeout.
-- → the number of waiters before it
local function queue_up(lock_ms, now)
  local old_timeout, count = timeout_of(OWNER), redis.call('LLEN', QUEUE)
  local reads_list = old_timeout or count < READ_LIMIT
  local first_owners = reads_list and redis.call('LRANGE', QUEUE, 0, READ_LIMIT - 1) or {}
  local index, redisson_count, last = find_owner(first_owners)
  local is_new = not index and (not old_timeout or #first_owners == count)
  local ahead = index or is_new and count or count - 1
  local base_timeout = (index or #first_owners == count)
    and redisson_timeout(redisson_count, last, lock_ms, now)
    or distant_timeout(is_new and redis.call('LINDEX', QUEUE, -1) or OWNER, now)
  if is_new then redis.call('RPUSH', QUEUE, OWNER) end
  local recheck_ms = math.min(GRANT_MS * math.max(1, ahead / READ_LIMIT), MAX_RECHECK_MS)
  local own_ms = math.max(MIN_TIMEOUT_MS, math.ceil(MISSED_RECHECKS * recheck_ms))
  local new_timeout = base_timeout + own_ms
  set_timeout(OWNER, new_timeout)
  if index and old_timeout and new_timeout < old_timeout then
    lower_timeouts(index + 1, old_timeout, new_timeout)
  end
  return ahead
end

local function busy(lock_ms, ttl_ms, now)
  local ahead = WAITER ~= '' and queue_up(lock_ms, now) or 0
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

local owner, till, more = prune_to_first_waiter(OWNER, now)
if owner == OWNER or not owner and not more then return take(now) end
if not owner then return busy(0, 1, now) end
notify_waiter(owner, till, now)
return busy(0, math.min(tonumber(GRANT_MS), timeout_of(owner) - now), now)
