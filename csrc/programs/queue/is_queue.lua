--#fragment
-- Whether there is a queue, and nothing else in its place.
local function is_queue()
  return redis.call('TYPE', QUEUE).ok == 'zset'
end
