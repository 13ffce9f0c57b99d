--#fragment
-- Where the next waiter stands among the first members, if it may have the free lock: behind the
-- mark of the grant that ends, if there is one, and not while queue.lua looks for those that poll.
--#include "due.lua"
local i = first_few[2] == '0' and 3 or 1
local now_us = server_us()
if now_us - (tonumber(first_few[i + 1]) or 0) > LOCK_PROBE_US then i = #first_few + 1 end
