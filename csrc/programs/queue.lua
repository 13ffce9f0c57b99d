--#fragment
-- Shared by the programs that take, pass on or leave a lock.
--
-- KEYS[1] the lock
-- KEYS[2] its fencing counter
-- KEYS[3] its queue: a sorted set whose lowest score is served first
--           score >  0   a waiter, "<client uuid>:<wait>:<token ttl ms> <owner>"
--           score == 0   the waiter that holds the lock by a grant it has not confirmed
--           score <  0   "foreign": until -score ms of server time, the free lock is
--                        left to clients that know no queue
-- KEYS[4] the channel on which Redisson announces a release
-- ARGV[1] owner, ARGV[2] grant lease in ms
local LOCK, COUNTER, QUEUE, RELEASES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OWNER, GRANT_MS = ARGV[1], ARGV[2]
local QUEUE_MS = 120000
local TURN_MS = 50
local TOKEN_MOST = 9007199254740991 -- 2^53 - 1: exact in every client's numbers
local OURS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+$'

local function server_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- A token above every earlier one, also when the counter was lost. A counter without a TTL is Java's: it stays so.
local function next_token(ttl_ms, floor)
  if ttl_ms == '0' then return 0 end
  local last = tonumber(redis.call('GET', COUNTER))
  if last and not (last >= 0 and last < TOKEN_MOST) then last = 0 end
  local token = math.max((last or 0) + 1, server_us(), floor or 0)
  local text = string.format('%.0f', token)
  if last and redis.call('PTTL', COUNTER) == -1 then
    redis.call('SET', COUNTER, text)
  else
    redis.call('SET', COUNTER, text, 'PX', ttl_ms)
  end
  return token
end

local function channel_of(member)
  return 'holdfast_grant:' .. member:sub(1, 36)
end

-- Whether the waiter's client is there. Patterns that somebody else listens to do not count.
local function listens(member)
  return (redis.pcall('PUBSUB', 'NUMSUB', channel_of(member))[2] or 0) > 0
end

-- A client that may not publish leaves its waiters to their clocks: what it has written must not be half done.
local function tell(member, text)
  redis.pcall('PUBLISH', channel_of(member), text)
end

-- Forgets every waiter of the member's client: it is dead, or as good as dead.
local function bury(member)
  local client = member:sub(1, 36)
  for _, other in ipairs(redis.call('ZRANGE', QUEUE, 0, -1)) do
    if other:sub(1, 36) == client then redis.call('ZREM', QUEUE, other) end
  end
end

local function first()
  local head = redis.call('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')
  return head[1], tonumber(head[2])
end

local function parts(member)
  return member:match('^[^:]*:(%d+):(%d+) (.*)$')
end

-- A free lock whose queue starts with a grant: its holder died, or was paused for longer than the grant. A client that
-- is here to ask lives: its waiter keeps its place.
local function settle_missed_grant(client)
  local member, score = first()
  if score ~= 0 then return end
  if member:sub(1, 36) == client then redis.call('ZADD', QUEUE, 0.5, member) else bury(member) end
end

-- How long the free lock is left to clients that know no queue, while any of them waits. More than a turn: the server's
-- clock went back.
local function foreign_ms()
  local _, score = first()
  if not score or score >= 0 or foreign_waiters(RELEASES) == 0 then return 0 end
  local left = -score - math.floor(server_us() / 1000)
  return left <= TURN_MS and math.max(0, left) or 0
end

-- Drops what stands before the waiters, and what is no waiter; the lock is free or about to be.
local function first_waiter()
  local member, score = first()
  while member and (score <= 0 or not parts(member)) do
    redis.call('ZREM', QUEUE, member)
    member, score = first()
  end
  return member
end

-- Gives the free lock to the first waiter that listens; a waiter that finds no token with its grant asks for one.
-- Stops before the member `me`, which can take it by itself.
local function hand_over(me)
  local member = first_waiter()
  while member and member ~= me do
    local wait, ttl_ms, owner = parts(member)
    local counted, token = pcall(next_token, ttl_ms)
    local text = counted and string.format('%.0f', token) or '0'
    local layout = KIND == 'string' and 1 or 0
    if listens(member) then
      set_holds(LOCK, owner, 1, GRANT_MS)
      redis.call('ZADD', QUEUE, 0, member)
      redis.call('PEXPIRE', QUEUE, QUEUE_MS)
      tell(member, table.concat({ 'grant', wait, text, GRANT_MS, layout, #owner, owner .. LOCK }, ' '))
      return true
    end
    bury(member)
    member = first_waiter()
  end
  return false
end

-- Leaves the free lock to Redisson's waiters for a moment, also before callers of ours that come meanwhile; the first
-- waiter of ours is told to look again after it.
local function foreign_turn()
  local member = first_waiter()
  while member and not listens(member) do
    bury(member)
    member = first_waiter()
  end
  redis.call('ZADD', QUEUE, -(math.floor(server_us() / 1000) + TURN_MS), 'foreign')
  if member then
    tell(member, table.concat({ 'turn', (parts(member)), TURN_MS }, ' '))
  else
    redis.call('PEXPIRE', QUEUE, TURN_MS)
  end
end

-- Frees the lock. It goes to the next one, of ours and of Redisson's in turns. A queue of another type is left alone.
local function pass_on()
  redis.call('DEL', LOCK)
  local waiters = redis.pcall('ZCARD', QUEUE)
  if type(waiters) == 'number' then
    if foreign_waiters(RELEASES) > 0 then
      foreign_turn()
    elseif waiters > 0 and hand_over() then
      return
    end
  end
  announce(RELEASES)
end
