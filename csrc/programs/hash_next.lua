--#fragment
-- Where the next waiter stands among the first members, if it may have the free lock: behind the
-- mark of the grant that ends, if there is one, and not where queue.lua looks for those that poll.
--#include "lock_probe.lua"
local i, now_us = first_few[2] == '0' and 3 or 1, server_us()
if (first_few[2] or ''):byte() == 45 then -- below 0: a record
  first_few = redis.call('ZRANGE', QUEUE, '0', '2', 'WITHSCORES')
--#include "recorded_next.lua"
elseif now_us - (tonumber(first_few[i + 1]) or now_us) > LOCK_PROBE_US then
  i = #first_few + 1
end
