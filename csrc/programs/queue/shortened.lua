--#fragment
-- Notifies the first waiter in the queue KEYS[2] that the lease was shortened to ARGV[2] ms,
-- because that waiter expects the longer lease. Foreign clients also expect it; the program that
-- includes this file notifies them.
local waiter = redis.pcall('ZRANGEBYSCORE', KEYS[2], '(0', '+inf', 'LIMIT', 0, 1)[1]
local client, number = (waiter or ''):match('^1%l([%x-]+):(%d+)')
if number then
  redis.pcall('PUBLISH', 'holdfast_grant:' .. client, '1 recheck ' .. number .. ' ' .. ARGV[2])
end
