--#fragment
-- A part of following.lua and permit_acquire.lua, which would spend more on a function: WAITER goes
-- behind those that wait already, and the program ends with the reply. It goes on if nobody waits,
-- or if WAITER stands in QUEUE. ttl_ms: for how long what it waits for is taken.
local last = tonumber(redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2])
if last and last > FRONT_MOST and last < PLACE_END then
  local low = (last + 1) % 1e7 -- as digits of clock.lua
  local place = string.format('%d%07d', (last + 1 - low) / 1e7, low)
  if redis.call('ZADD', QUEUE, 'NX', place, WAITER) == 1 then
    return { 0, ttl_ms, redis.call('ZCARD', QUEUE) - 1, 0, place }
  end
end
