--#fragment
--#include "last_place.lua"
-- A waiter keeps its place; one whose grant ran out while somebody else took the lock goes before
-- the others. Its looks keep the queue.
local function enqueue()
  local last = last_place()
  if last and last < 0 then last = nil end
  local place = digits(last and last > FRONT_MOST and last + 1 or server_us())
  if redis.call('ZADD', QUEUE, 'NX', place, WAITER) == 0 then
    place = place_of(tonumber(redis.call('ZSCORE', QUEUE, WAITER)))
    last = nil
  end
  if place == '0' then
    place = place_of(front_place())
    redis.call('ZADD', QUEUE, place, WAITER)
  end
  if not last then redis.call('PEXPIRE', QUEUE, QUEUE_MS) end
  return place
end
