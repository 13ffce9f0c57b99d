--#fragment
--#include "releases.lua"
-- The waiters of a fair lock, in the layout of Redisson's RFairLock: see docs/protocol.md.
--
-- KEYS[3] a list: the owners that wait, in the order in which they are served
-- KEYS[4] what the channel of each waiter begins with: <it>:<owner>
-- KEYS[5] a sorted set: owner -> the ms of the server's clock at which it is taken for dead
--
-- A client of Redisson adds its own timeout to that of the last waiter when it comes, and subtracts
-- it from the timeouts of all behind it when it gets the lock or goes. So the timeouts of its
-- waiters rest on that of the waiter of ours before them, and are lowered with it.
local TIMEOUTS = KEYS[5]
local OURS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+$'
local UNHEARD_MS = 5000 -- after which a waiter of Redisson's is dead that nobody heard at its turn
local LEAST_TIMEOUT_MS = 5000 -- of a waiter of ours
local MOST_TIMEOUT_MS = 1e15
local MOST_DEAD = 1000 -- waiters that one script removes

--#include "now.lua"

local function set_timeout(owner, ms)
  redis.call('ZADD', TIMEOUTS, string.format('%.0f', ms), owner)
end

-- One without an end is a very late one.
local function timeout_of(owner)
  local ms = tonumber(redis.call('ZSCORE', TIMEOUTS, owner))
  return ms and math.min(ms, MOST_TIMEOUT_MS)
end

local function is_ours(owner)
  return owner:find(OURS) ~= nil
end

local function grants_of(owner)
  return 'holdfast_grant:' .. owner:sub(1, 36)
end

-- Its time is over, or its client is gone. Without a timeout it is what is left of a waiter.
local function is_dead(owner, till, now)
  if not till or till <= now then return true end
  return is_ours(owner) and redis.pcall('PUBSUB', 'NUMSUB', grants_of(owner))[2] == 0
end

-- The first waiter that lives, or that is `me`; those before it are forgotten.
-- → owner, its timeout | nil, nil, whether there are more to forget
local function first_waiter(me, now)
  for _ = 1, MOST_DEAD do
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

-- Tells the first waiter that the lock is free. Whether one of ours lives is known; one of
-- Redisson's that does not listen may be dead, or about to subscribe, and looks once more then.
local function wake(owner, till, now)
  if is_ours(owner) then
    redis.pcall('PUBLISH', grants_of(owner), '1 recheck ' .. owner:sub(38))
  elseif announce(RELEASES .. ':' .. owner) == 0 and till > now + UNHEARD_MS then
    set_timeout(owner, now + UNHEARD_MS)
  end
end

-- The timeout of the waiter of ours at this place falls from `old` to `new`.
local function lower_behind(members, at, old, new)
  for i = at + 1, #members do
    if is_ours(members[i]) then break end
    if timeout_of(members[i]) then redis.call('ZINCRBY', TIMEOUTS, new - old, members[i]) end
  end
end

local function place_of(members, owner)
  for i, other in ipairs(members) do
    if other == owner then return i end
  end
end

-- It got the lock, or goes: those behind it rest on who was before it.
local function forget(owner, now)
  local old = timeout_of(owner)
  if old and old > now + LEAST_TIMEOUT_MS then
    local members = redis.call('LRANGE', QUEUE, 0, -1)
    local at = place_of(members, owner)
    local base = at and at > 1 and timeout_of(members[at - 1]) or now
    local new = math.max(base, now) + LEAST_TIMEOUT_MS
    if at and new < old then lower_behind(members, at, old, new) end
  end
  redis.call('LREM', QUEUE, 0, owner)
  redis.call('ZREM', TIMEOUTS, owner)
end
