--#fragment
--#include "CHANNEL:announcing"
-- The waiters of a fair lock, in the layout of RedissonFairLock: see docs/how-to/fair.md.
--
-- KEYS[3] a list: the waiting owners, in the order in which they are served
-- KEYS[4] the prefix of each waiter's channel: <prefix>:<owner>
-- KEYS[5] a sorted set: owner -> the ms of the server's clock at which it counts as dead
--
-- When a client of Redisson arrives, it adds its own timeout to that of the last waiter; when it
-- gets the lock or leaves, it subtracts that timeout from the timeouts of all later waiters. So the
-- timeouts of Redisson's waiters depend on that of our waiter before them, and are lowered with it.
local TIMEOUTS = KEYS[5]
local OURS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+$'
-- A waiter of Redisson's that was not listening at its turn counts as dead after this time. After a
-- release by Redisson, a waiter of ours learns of that turn within a grant lease: 5 s in all.
local DEAF_MS = 3000
local MIN_TIMEOUT_MS = 5000 -- the minimum timeout of a waiter of ours
local MIN_TURN_MS = 500 -- the least time that a waiter of ours gets to take the free lock
local MAX_TIMEOUT_MS = 1e15
local MAX_DEAD = 1000 -- waiters that one script removes
local NEAR = 100 -- waiters at the head of the list, among which an owner is searched
local MAX_LOWERED = 1000 -- timeouts that one script lowers

--#include "queue/record.lua:now"

local function set_timeout(owner, ms)
  redis.call('ZADD', TIMEOUTS, string.format('%.0f', ms), owner)
end

-- → the owner's timeout or nil. An infinite one counts as very late.
local function timeout_of(owner)
  local ms = tonumber(redis.call('ZSCORE', TIMEOUTS, owner))
  return ms and math.min(ms, MAX_TIMEOUT_MS)
end

local function is_ours(owner)
  return owner:find(OURS) ~= nil
end

local function grants_of(owner)
  return 'holdfast_grant:' .. owner:sub(1, 36)
end

-- Whether a waiter's timeout has passed or, of ours, its client is not listening. An entry without
-- a timeout is a remnant.
local function is_dead(owner, till, now)
  if not till or till <= now then return true end
  return is_ours(owner) and redis.pcall('PUBSUB', 'NUMSUB', grants_of(owner))[2] == 0
end

-- The first waiter that is alive or is `me`; those before it are removed.
-- → owner, its timeout; or nil, nil, whether more must be removed
local function first_waiter(me, now)
  for _ = 1, MAX_DEAD do
    local owner = redis.call('LINDEX', QUEUE, 0)
    if not owner then
      redis.call('DEL', TIMEOUTS)
      return nil
    end
    local till = timeout_of(owner)
    if owner == me or not is_dead(owner, till, now) then return owner, till end
    redis.call('LPOP', QUEUE)
    redis.call('ZREM', TIMEOUTS, owner)
  end
  return nil, nil, true
end

-- The timeout of a waiter of ours before this place fell from `old` to `new`. Lowers those of
-- Redisson's waiters from this place on, up to the next waiter of ours, but none below `new`: one
-- that depended on a waiter that has gone may already be less than `old`.
local function lower_behind(place, old, new)
  for at = place, place + MAX_LOWERED - 1 do
    local owner = redis.call('LINDEX', QUEUE, at)
    if not owner or is_ours(owner) then return end
    local till = timeout_of(owner)
    if till then set_timeout(owner, math.max(till + new - old, new)) end
  end
end

-- Notifies the first waiter that the lock is free, and shortens its timeout: a live one of ours
-- takes the lock soon; one of Redisson's that is not listening may be dead, or about to subscribe
-- and ask again.
local function wake(owner, till, now)
  if is_ours(owner) then
    redis.pcall('PUBLISH', grants_of(owner), '1 recheck ' .. owner:sub(38))
    local soon = now + math.max(GRANT_MS / 2, MIN_TURN_MS)
    if till <= soon then return end
    set_timeout(owner, soon)
    lower_behind(1, till, soon)
  else
    local channel = RELEASES .. ':' .. owner
    announce(channel)
    if foreign_waiters(channel) == 0 and till > now + DEAF_MS then
      set_timeout(owner, now + DEAF_MS)
    end
  end
end

-- → the place of an owner among the first NEAR ones, from 0, and the owner before it; or nil
local function place_of(owner)
  local before
  for i, other in ipairs(redis.call('LRANGE', QUEUE, 0, NEAR - 1)) do
    if other == owner then return i - 1, before end
    before = other
  end
end

-- Removes the owner from the list. Redisson's waiters behind it then depend on the one before it,
-- which is searched among the first ones.
local function forget(owner, now)
  local old = timeout_of(owner)
  local at, before = 0, nil
  if redis.call('LINDEX', QUEUE, 0) == owner then
    redis.call('LPOP', QUEUE)
  else
    at, before = place_of(owner)
    if at or old then redis.call('LREM', QUEUE, at and 1 or -1, owner) end
  end
  redis.call('ZREM', TIMEOUTS, owner)
  local base = before and timeout_of(before) or now
  local new = math.max(base, now) + MIN_TIMEOUT_MS
  if at and old and new < old then lower_behind(at, old, new) end
end
