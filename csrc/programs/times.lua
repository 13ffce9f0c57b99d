--#fragment
--#include "clock.lua"
--#include "since.lua"
-- What ends the reply of each info program: the server's clock in µs, and for how many µs the first
-- of those that have kept their places has waited, or else the first one in front; -1: nobody
-- waits.
local function times()
  local now = server_us()
  for _, least in ipairs({ FRONT_MOST, '(0' }) do
    local first = redis.call('ZRANGEBYSCORE', KEYS[3], least, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if first[2] then return now, math.max(now - since_us(tonumber(first[2])), 0) end
  end
  return now, -1
end
