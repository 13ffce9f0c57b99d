--#fragment
-- Removes a waiter from the queue. If the member is not queued, removes a granted member with the
-- same client and number, because a client that receives a grant for an ended wait knows only
-- these.
-- → the removed member, if it had a grant
local function forget_wait(member)
  local score = redis.call('ZSCORE', QUEUE, member)
  if score then
    redis.call('ZREM', QUEUE, member)
    return tonumber(score) == 0 and member or nil
  end
  local start = member:match('^1%l[%x-]+:%d+:')
  for _, granted in ipairs(redis.call('ZRANGEBYSCORE', QUEUE, 0, 0, 'LIMIT', 0, BATCH)) do
    if start and granted:find(start, 1, true) == 1 then
      redis.call('ZREM', QUEUE, granted)
      return granted
    end
  end
end
