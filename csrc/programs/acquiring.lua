--#fragment
-- Takes the lock, enters it again, or tells how long it is taken. Safe to send twice.
--
-- ARGV[3] from      the count the owner knows of; the new one is from + 1
-- ARGV[4] shared    1: other processes may use this owner, so a count it does not know of is theirs
-- ARGV[5] lease     ms; a re-entry never shortens the one that runs
-- ARGV[6] token ttl ms, 0: no fencing
-- ARGV[7] waiter    its place in the queue, "": do not wait
-- ARGV[9] floor     of a quorum: the token is at least this, and the reply tells the server's clock
--
-- { 1, token, others, clock µs }  acquired; token 0: unchanged, or no fencing; `others`: holds of other processes that
--                                came along with a grant
-- { 0, ttl ms, ahead, foreign, kept }
--                                busy, a TTL of -1: without end; `ahead` waiters come first; foreign 1: the holder will
--                                not hand over; kept 1: the waiter stood in the queue before, and has not missed a
--                                grant
-- { 2, count }                   another process of this shared owner holds it
-- { -1 } { -2 }                  from > 0 but the hold is gone: the key is gone, another owner has it
-- { -3 }                         a hash without TTL, which no lock leaves behind
local FROM, SHARED, LEASE, TOKEN_TTL, WAITER = tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5], ARGV[6], ARGV[7]
local FLOOR = tonumber(ARGV[9])

-- A re-entry keeps its token; another process that joins a shared owner has yet to learn it, or to draw one if the
-- counter was lost.
local function token_of_hold()
  if FROM == 0 then return next_token(TOKEN_TTL, FLOOR) end
  if not SHARED or TOKEN_TTL == '0' then return 0 end
  return tonumber(redis.call('GET', COUNTER)) or next_token(TOKEN_TTL, FLOOR)
end

local function take(others)
  local token = token_of_hold()
  set_holds(LOCK, OWNER, FROM + 1 + others, LEASE)
  if WAITER ~= '' then redis.call('ZREM', QUEUE, WAITER) end
  if FROM > 0 then redis.pcall('ZREMRANGEBYSCORE', QUEUE, 0, 0) end
  return { 1, token, others, FLOOR and server_us() }
end

local function granted()
  return WAITER ~= '' and tonumber(redis.call('ZSCORE', QUEUE, WAITER)) == 0
end

-- A waiter keeps its place; one whose grant ran out while somebody else took the lock goes before the others.
local function enqueue()
  local score = redis.call('ZSCORE', QUEUE, WAITER)
  local kept = score and tonumber(score) > 0
  if score and not kept then
    score = 0.5
    redis.call('ZADD', QUEUE, score, WAITER)
  elseif not score then
    local last = redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]
    score = math.max(0, tonumber(last or 0)) + 1
    redis.call('ZADD', QUEUE, score, WAITER)
  end
  redis.call('PEXPIRE', QUEUE, QUEUE_MS)
  return redis.call('ZCOUNT', QUEUE, '(0', '(' .. score), kept and 1 or 0
end

local function busy(ttl_ms, foreign)
  local ahead, kept = 0, 0
  if WAITER ~= '' then ahead, kept = enqueue() end
  return { 0, ttl_ms, ahead, foreign and 1 or 0, kept }
end

local function acquire()
  local count = holds_of(LOCK, OWNER)
  if count then
    if not SHARED or (FROM > 0 and count == FROM) then return take(0) end
    if FROM == 0 and granted() then return take(count - 1) end
    return { 2, count }
  end
  local ttl_ms = redis.call('PTTL', LOCK)
  if FROM > 0 then return { ttl_ms == -2 and -1 or -2 } end
  if ttl_ms == -1 and KIND == 'hash' then return { -3 } end
  if ttl_ms == -2 then
    if granted() then return take(0) end
    settle_missed_grant((WAITER ~= '' and WAITER or OWNER):sub(1, 36))
    local left = foreign_ms()
    if left > 0 then return busy(left, true) end
    if not hand_over(WAITER) then return take(0) end
    return busy(tonumber(GRANT_MS), false)
  end
  local foreign = not holder_of(LOCK):find(OURS)
  if foreign then redis.call('ZREM', QUEUE, 'foreign') end
  return busy(ttl_ms, foreign)
end
