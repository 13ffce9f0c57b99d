--#fragment
-- The next waiter among the first members of the queue, if it may have the free lock: behind the
-- mark of the grant that ends, if there is one, and not where queue.lua looks for those that poll.
-- → where it stands, behind all of them: nobody may; the server's clock in µs; the members, of
-- which it reads more behind a record
local function next_waiter(few)
  local i, now_us = few[2] == '0' and 3 or 1, server_us()
  if (few[2] or ''):byte() == 45 then -- below 0: a record
--#include "recorded_next.lua"
    return next_behind_record(redis.call('ZRANGE', QUEUE, '0', '2', 'WITHSCORES'), now_us)
  end
  local old = now_us - (tonumber(few[i + 1]) or now_us) > LOCK_PROBE_US
  return old and #few + 1 or i, now_us, few
end
