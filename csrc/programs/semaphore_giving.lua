--#fragment
--#include "releases.lua"
--#include "semaphore.lua"
--#include "noted.lua"
--#include "semaphore_turn.lua"
local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0
end

-- How many of Redisson's clients listen. Ours also listen to a second channel.
local function redissons()
  local count = listeners(KEYS[3])
  if count > 0 then count = count - listeners(KEYS[3] .. ':holdfast') end
  return foreign_waiters(KEYS[3], count)
end

-- INCRBY refuses most of what is no number of permits; free() tells why.
local function add(count)
  local left = redis.pcall('INCRBY', PERMITS, count)
  if type(left) == 'number' and math.abs(left) < 2 ^ 62 then return left end
  if type(left) == 'number' then redis.call('DECRBY', PERMITS, count) end
  free()
  return redis.call('INCRBY', PERMITS, count)
end

-- Redisson wakes as many of its waiters as the message counts. A 0 in front of the number tells
-- ours that it is Redisson's turn.
local function give(count)
  local left, mark = add(count), ''
  if left <= 0 then return left end
  if redissons() > 0 then
    redis.pcall('SET', TURN, '1', 'PX', TURN_MS)
    mark = '0'
  end
  announce(KEYS[3], mark .. string.format('%.0f', left))
  return left
end
