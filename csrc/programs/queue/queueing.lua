--#fragment
-- Removes members whose score is above all places and therefore invalid. → the highest score in the
-- queue, or nil
local function prune_to_last_place()
  local last = tonumber(redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2])
  if not last or last < PLACE_END then return last end
  redis.call('ZREMRANGEBYSCORE', QUEUE, PLACE_END, '+inf')
  return prune_to_last_place()
end

--#include "queue/passing_over.lua"
-- Queues WAITER. A queued waiter keeps its place; a waiter whose grant expired before somebody else
-- took the lock goes to the front.
-- → its place; whether it was queued before; for a new waiter, the place of the waiter before it,
-- or nil
local function enqueue()
  local last = prune_to_last_place()
  if last and last <= 0 then last = nil end
  local place = digits(math.max((last or 0) + 1, server_us()))
  if redis.call('ZADD', QUEUE, 'NX', place, WAITER) == 1 then
    if not last then redis.call('PEXPIRE', QUEUE, QUEUE_MS) end
    return place, false, last
  end
  restore_place()
  local score = tonumber(redis.call('ZSCORE', QUEUE, WAITER))
  if score > 0 then return format_place(score), true end
  place = format_place(front_place())
  redis.call('ZADD', QUEUE, place, WAITER)
  return place, true
end
