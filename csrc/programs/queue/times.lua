--#fragment
--#include "base/clock.lua"
--#section since
-- → when a waiter began to wait, in µs of the server's clock, according to its place. A waiter in
-- front got its place when it came back (front_place in placing.lua), and has waited for longer.
local function since_us(place)
  return place < FRONT_MAX and place * 1024 or place
end
--#end

-- → the last two numbers of an info program's reply: the server's clock in µs; the µs for which the
-- first waiter has waited that kept its place, or else the first one in front, or -1 if nobody is
-- waiting
local function times()
  local now = server_us()
  for _, min_place in ipairs({ FRONT_MAX, '(0' }) do
    local first = redis.call('ZRANGEBYSCORE', KEYS[3], min_place, '+inf', 'WITHSCORES',
      'LIMIT', 0, 1)
    if first[2] then return now, math.max(now - since_us(tonumber(first[2])), 0) end
  end
  return now, -1
end
