--#fragment
--#include "CHANNEL:announcing"
-- The waiters of a fair lock, in the layout of RedissonFairLock: see docs/how-to/fair.md.
--
-- KEYS[3] a list: the waiting owners, in the order in which they are served
-- KEYS[4] the prefix of each waiter's channel: <prefix>:<owner>
-- KEYS[5] a sorted set: owner -> the ms of the server's clock at which it counts as dead
--
-- When a client of Redisson arrives, it adds its own timeout to that of the last waiter; when it
-- gets the lock or leaves, it subtracts its timeout from those of all later waiters. So the
-- timeouts of Redisson's waiters depend on the timeout of our waiter before them, and must be
-- lowered when that timeout is.
local TIMEOUTS = KEYS[5]
local OUR_OWNER = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+$'
-- A waiter of Redisson's that was not listening at its turn counts as dead after this time. After a
-- release by Redisson, one of our waiters notices that turn within a grant lease: 5 s in total.
local DEAF_MS = 3000
local MIN_TIMEOUT_MS = 5000 -- the minimum timeout of our waiters
local MIN_TURN_MS = 500 -- the minimum time that our waiter gets to take the free lock
local MAX_TIMEOUT_MS = 1e15
local MAX_REMOVED = 1000 -- maximum number of waiters removed by one script
local SEARCH_LIMIT = 100 -- number of first waiters among which an owner is looked for
local MAX_LOWERED = 1000 -- maximum number of timeouts lowered by one script

--#include "queue/record.lua:now"

local function set_timeout(owner, timeout)
  redis.call('ZADD', TIMEOUTS, string.format('%.0f', timeout), owner)
end

-- → the owner's timeout, or nil. An infinite timeout counts as MAX_TIMEOUT_MS.
local function timeout_of(owner)
  local timeout = tonumber(redis.call('ZSCORE', TIMEOUTS, owner))
  return timeout and math.min(timeout, MAX_TIMEOUT_MS)
end

local function is_ours(owner)
  return owner:find(OUR_OWNER) ~= nil
end

local function grant_channel(owner)
  return 'holdfast_grant:' .. owner:sub(1, 36)
end

-- Returns whether a waiter's timeout has passed, or it is one of ours whose client is not
-- listening. An entry without a timeout is a remnant.
local function is_dead(owner, till, now)
  if not till or till <= now then return true end
  return is_ours(owner) and redis.pcall('PUBSUB', 'NUMSUB', grant_channel(owner))[2] == 0
end

-- Removes the waiters before the first one that is alive or is `me`. → that waiter, its timeout; or
-- nil, nil, whether more must be removed
local function prune_to_first_waiter(me, now)
  for _ = 1, MAX_REMOVED do
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

-- The timeout of our waiter before `first_index` has fallen from `old_timeout` to `new_timeout`:
-- also lowers the timeouts of Redisson's waiters from there on, up to our next waiter, but none of
-- them below `new_timeout`. A timeout that depended on a waiter that has left may already be less
-- than `old_timeout`.
local function lower_timeouts(first_index, old_timeout, new_timeout)
  for index = first_index, first_index + MAX_LOWERED - 1 do
    local owner = redis.call('LINDEX', QUEUE, index)
    if not owner or is_ours(owner) then return end
    local till = timeout_of(owner)
    if till then set_timeout(owner, math.max(till + new_timeout - old_timeout, new_timeout)) end
  end
end

-- Notifies the first waiter that the lock is free, and shortens its timeout: a live one of ours
-- takes the lock soon; one of Redisson's that is not listening may be dead, or about to subscribe
-- and ask again.
local function notify_waiter(owner, till, now)
  if is_ours(owner) then
    redis.pcall('PUBLISH', grant_channel(owner), '1 recheck ' .. owner:sub(38))
    local soon = now + math.max(GRANT_MS / 2, MIN_TURN_MS)
    if till <= soon then return end
    set_timeout(owner, soon)
    lower_timeouts(1, till, soon)
  else
    local channel = RELEASES .. ':' .. owner
    announce(channel)
    if foreign_waiters(channel) == 0 and till > now + DEAF_MS then
      set_timeout(owner, now + DEAF_MS)
    end
  end
end

-- → the index (from 0) of an owner among the first SEARCH_LIMIT ones, the owner before it; or nil
local function index_of(owner)
  local before
  for i, other in ipairs(redis.call('LRANGE', QUEUE, 0, SEARCH_LIMIT - 1)) do
    if other == owner then return i - 1, before end
    before = other
  end
end

-- Removes the owner from the list. Redisson's waiters behind it then depend on the one before it,
-- which is looked for among the first SEARCH_LIMIT members.
local function remove_waiter(owner, now)
  local old_timeout = timeout_of(owner)
  local index, before = 0, nil
  if redis.call('LINDEX', QUEUE, 0) == owner then
    redis.call('LPOP', QUEUE)
  else
    index, before = index_of(owner)
    if index or old_timeout then redis.call('LREM', QUEUE, index and 1 or -1, owner) end
  end
  redis.call('ZREM', TIMEOUTS, owner)
  local base_timeout = before and timeout_of(before) or now
  local new_timeout = math.max(base_timeout, now) + MIN_TIMEOUT_MS
  if index and old_timeout and new_timeout < old_timeout then
    lower_timeouts(index, old_timeout, new_timeout)
  end
end
