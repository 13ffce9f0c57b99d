--#fragment
-- WAITER goes behind those that wait already, if there are any: see following.lua.
local last = tonumber(redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2])
local place = last and last > FRONT_MOST and last < PLACE_END and digits(last + 1)
if place and redis.call('ZADD', QUEUE, 'NX', place, WAITER) == 1 then
  return { 0, ttl_ms, redis.call('ZCARD', QUEUE) - 1, 0, place }
end
