--#fragment
--#include "CHANNEL:announcing"
-- A count-down latch as Redisson's RCountDownLatch has it: a string, how many are still to come.
-- Without it, or at 0, the latch is open.
--
-- KEYS[1] the latch, KEYS[2] the note of this call, KEYS[3] the latch's channel
-- ARGV[1] ms for which the note stays
local LATCH, CHANNEL = KEYS[1], KEYS[3]

--#include "base/whole_number.lua"
local function count()
  return math.max(whole_number(LATCH, redis.call('GET', LATCH)) or 0, 0)
end

--#include "base/note.lua:note"
-- left: how many were to come. → the reply
local function open(left, reply)
  redis.call('DEL', LATCH)
  note(reply, 'DECRBY', LATCH, string.format('%.0f', -left))
  announce(CHANNEL, '0')
  return reply
end

--#include "base/note.lua:noted"
if noted then return tonumber(noted) end
