--#fragment
-- The waiter that is served first | nil
local function first_in_line()
  return redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'LIMIT', '0', '1')[1]
end
