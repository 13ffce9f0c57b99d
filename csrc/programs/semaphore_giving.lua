--#fragment
--#include "releases.lua"
--#include "semaphore.lua"
-- Redisson wakes as many of its waiters as the message counts. reply: what the note says, nil: how
-- many are free then. → that
local function give(count, reply)
  local was = whole_number(PERMITS, redis.call('GET', PERMITS)) -- fails if the key is none
  local left = redis.call('INCRBY', PERMITS, count)
  reply = reply or left
  if was then
    note(reply, 'INCRBY', PERMITS, string.format('%.0f', -count))
  else
    note(reply, 'DEL', PERMITS)
  end
  if left > 0 then announce(KEYS[3], string.format('%.0f', left)) end
  return reply
end
