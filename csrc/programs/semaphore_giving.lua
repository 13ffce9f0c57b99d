--#fragment
--#include "releases.lua"
--#include "semaphore.lua"
--#include "semaphore_turn.lua"
-- How many of Redisson's clients listen. Ours also listen to a second channel.
local function redissons()
  local counts = redis.pcall('PUBSUB', 'NUMSUB', KEYS[3], KEYS[3] .. ':holdfast')
  return foreign_waiters(KEYS[3], (counts[2] or 0) - (counts[4] or 0))
end

-- Redisson wakes as many of its waiters as the message counts. A 0 in front of the number tells
-- ours that it is Redisson's turn.
local function give(count)
  free() -- fails if the key is none
  local left = redis.call('INCRBY', PERMITS, count)
  if left <= 0 then return left end
  local mark = ''
  if redissons() > 0 then
    redis.pcall('SET', turn_key(), '1', 'PX', TURN_MS)
    mark = '0'
  end
  announce(KEYS[3], mark .. string.format('%.0f', left))
  return left
end
