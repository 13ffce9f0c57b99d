--#fragment
-- The last waiter's place, nil: there is none. A score above all places is nobody's, and its member
-- goes.
local function last_place()
  local last = tonumber(redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2])
  if not last or last < PLACE_END then return last end
  redis.call('ZREMRANGEBYSCORE', QUEUE, PLACE_END, '+inf')
  return last_place()
end
