--#fragment
-- The lease has become shorter: ARGV[2] ms. Tells the first waiter in the queue KEYS[2], which
-- counts on the longer one. So do clients that know no queue: whoever includes this tells those.
local waiter = redis.pcall('ZRANGEBYSCORE', KEYS[2], '(0', '+inf', 'LIMIT', 0, 1)[1]
local client, number = (waiter or ''):match('^1%l([%x-]+):(%d+)')
if number then
  redis.pcall('PUBLISH', 'holdfast_grant:' .. client, '1 recheck ' .. number .. ' ' .. ARGV[2])
end
