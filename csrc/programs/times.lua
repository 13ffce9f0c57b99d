--#fragment
--#include "clock.lua"
-- What ends the reply of each info program: the server's clock in µs, and for how many µs the first
-- of those that keep their places has waited, or else the first one in front; -1: nobody waits. A
-- place in front is from the moment at which the waiter got it.
local function times()
  local now = server_us()
  for _, least in ipairs({ FRONT_MOST, '(0' }) do
    local found = redis.call('ZRANGEBYSCORE', KEYS[3], least, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local place = tonumber(found[2])
    if place then
      if place < FRONT_MOST then place = place * 1024 end
      return now, math.max(now - place, 0)
    end
  end
  return now, -1
end
