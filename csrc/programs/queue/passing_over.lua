--#fragment
-- If a holder will not hand over the lock, the first waiter listens for its release and keeps
-- asking, which renews the queue's TTL. If the first waiter is dead, or has not asked in time, it
-- is passed over: its client's waiters get the scores -place / PASSED_OVER, so they are no longer
-- first. Each one gets its place back when it asks.
local PASSED_OVER = 2 ^ 60
local RECHECK_WITHIN = 0.5 -- the first waiter asks again within this many grant leases
local MAX_PASSED = 10 -- maximum number of clients passed over by one script
local MAX_SCANNED = 1000 -- a client's waiters are passed over if they are among the first 1000
local MAX_REMAINING = 100 -- if more waiters are already passed over, all of them are removed
local MANY_AHEAD = 100 -- behind this many, a waiter asks less often and need not check the first

local function send_recheck(member)
  redis.pcall('PUBLISH', 'holdfast_grant:' .. member:sub(3, 38),
    '1 recheck ' .. (member:match('^%d+', 40) or ''))
end

--#section first_in_line
-- → the waiter that is served first, or nil
local function first_in_line()
  return redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'LIMIT', '0', '1')[1]
end
--#end

local function is_dead(member)
  return redis.pcall('PUBSUB', 'NUMSUB', 'holdfast_grant:' .. member:sub(3, 38))[2] == 0
end

-- Passes over all waiters of the client of `head`. head_only: passes over only `head`, which its
-- client may have forgotten.
local function pass_over(head, head_only)
  if redis.call('ZCOUNT', QUEUE, '(-1', '(0') > MAX_REMAINING then
    redis.call('ZREMRANGEBYSCORE', QUEUE, '(-1', '(0')
  end
  local members = redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', '0',
    MAX_SCANNED)
  for i = 1, #members, 2 do
    local member = members[i]
    if member == head or not head_only and member:sub(3, 38) == head:sub(3, 38) then
      redis.call('ZADD', QUEUE, string.format('%.17g', -members[i + 1] / PASSED_OVER), member)
      send_recheck(member)
    end
  end
end

-- Called when WAITER asks again. If WAITER was passed over, restores its place.
local function restore_place()
  local score = WAITER ~= '' and tonumber(redis.call('ZSCORE', QUEUE, WAITER)) or 0
  if score < 0 then
    redis.call('ZADD', QUEUE, string.format('%.17g', -score * PASSED_OVER), WAITER)
  end
end

-- Called when WAITER, at this place, asks again: passes over the first waiter if it is dead or has
-- not asked in time. has_silent_holder(): whether a holder does not hand over; nil: yes. within:
-- the number of grant leases within which the first waiter must ask; nil: RECHECK_WITHIN.
-- → the number of waiters before WAITER; the ms until the first of them is passed over, or nil if
-- WAITER does not have to check that; whether a waiter has been passed over
local function check_ahead(place, ahead, has_silent_holder, within)
  local client_uuid, passed = WAITER:sub(3, 38), false
  for _ = 1, ahead > 0 and MAX_PASSED or 0 do
    local first = first_in_line()
    if first == WAITER then break end
    local left_ms = redis.call('PTTL', QUEUE) - QUEUE_MS + GRANT_MS * (within or RECHECK_WITHIN)
    local is_own = first:sub(3, 38) == client_uuid
    local stays = first:find('^[2-9]%l%x') -- a newer format
      or left_ms > 0 and (is_own or not is_dead(first))
    if stays or has_silent_holder and not has_silent_holder() then
      if left_ms <= 0 then redis.call('PEXPIRE', QUEUE, QUEUE_MS) end
      if passed then send_recheck(first) end
      ahead = redis.call('ZCOUNT', QUEUE, '(0', '(' .. place)
      return ahead, stays and ahead < MANY_AHEAD and math.ceil(math.max(left_ms, 0)) or nil, passed
    end
    pass_over(first, is_own)
    redis.call('PEXPIRE', QUEUE, QUEUE_MS)
    passed = true
  end
  redis.call('PEXPIRE', QUEUE, QUEUE_MS)
  return redis.call('ZCOUNT', QUEUE, '(0', '(' .. place), nil, passed
end

-- If another waiter comes first, notifies it, so that it asks for what a foreign client has just
-- released. It gets no grant, because a grant to a suspended client would block everybody.
-- → whether another waiter comes first, or was just passed over and may still ask
local function let_first_ask(enter_queue)
  if WAITER ~= '' then
    local place = enter_queue()
    local _, _, passed = check_ahead(place, redis.call('ZCOUNT', QUEUE, '(0', '(' .. place))
    if passed then return true end
  end
  local head = first_in_line()
  if not head or head == WAITER or head:find('^[2-9]%l%x') or is_dead(head) then return false end
  send_recheck(head)
  return true
end
