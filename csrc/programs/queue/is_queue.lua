--#fragment
-- Returns whether QUEUE exists and is a queue.
local function is_queue() return redis.call('TYPE', QUEUE).ok == 'zset' end
