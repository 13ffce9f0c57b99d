--#fragment
--#include "CHANNEL:announcing"
--#include "semaphore/semaphore.lua"
--#include "base/note.lua:noted"
--#include "semaphore/semaphore_turn.lua"
local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0
end

-- → how many of Redisson's clients are listening. Ours also listen to a second channel, whose
-- listeners are subtracted.
local function redissons()
  local count = listeners(KEYS[3])
  if count > 0 then count = count - listeners(KEYS[3] .. ':holdfast') end
  return foreign_waiters(KEYS[3], count)
end

-- Redisson wakes as many of its waiters as the message counts. A leading 0 announces Redisson's
-- turn to our waiters; if it is not their turn, a second message follows at once.
local function announce_free(left)
  local text = string.format('%.0f', left)
  if announce(KEYS[3], '0' .. text) == 0 then return end
  if redissons() > 0 then
    redis.pcall('SET', TURN, '1', 'PX', TURN_MS)
  else
    announce(KEYS[3], text)
  end
end

-- Adds `count` permits. reply: what the note contains, or nil for the new number of free permits.
-- → what the note contains
local function give(count, reply)
  local was = whole_number(PERMITS, redis.call('GET', PERMITS)) -- fails if the key is not a semaphore
  local left = redis.call('INCRBY', PERMITS, count)
  reply = reply or left
  if was then
    note(reply, 'INCRBY', PERMITS, string.format('%.0f', -count))
  else
    note(reply, 'DEL', PERMITS)
  end
  if left > 0 then announce_free(left) end
  return reply
end
