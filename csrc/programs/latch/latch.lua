--#fragment
--#include "CHANNEL:announcing"
-- A count-down latch is stored as in Redisson's RCountDownLatch: a string, the remaining count.
-- Without the string, or at 0, the latch is open.
--
-- KEYS[1] the latch, KEYS[2] this call's note, KEYS[3] the latch's channel
-- ARGV[1] the note's TTL in ms
local LATCH, CHANNEL = KEYS[1], KEYS[3]

--#include "base/read_integer.lua"
local function count()
  return math.max(read_integer(LATCH, redis.call('GET', LATCH)) or 0, 0)
end

--#include "base/note.lua:note"
-- Opens the latch. left: the latch's count, which is restored if the server refuses the note.
-- → reply
local function open(left, reply)
  redis.call('DEL', LATCH)
  note(reply, 'DECRBY', LATCH, string.format('%.0f', -left))
  announce(CHANNEL, '0')
  return reply
end

--#include "base/note.lua:earlier_reply"
if earlier_reply then return tonumber(earlier_reply) end
