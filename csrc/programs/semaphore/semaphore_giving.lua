--#fragment
--#include "CHANNEL:announcing"
--#include "semaphore/semaphore.lua"
--#include "base/note.lua:noted"
--#include "semaphore/semaphore_turn.lua"
--#include "semaphore/semaphore_turns.lua"
--#include "queue/turns.lua"
-- Decides whether one of the free permits is left to Redisson's waiters. text: the record
local function is_left(text)
  local was, now = read_record(text), now_ms()
  if redissons() == 0 then
    if was then redis.call('DEL', TURN) end
    return false
  end
  if left_ms(was, now) > 0 then return true end
  -- Their turn is over, or our run continues.
  if was and (was.turns == 0 or add_turn(was, now)) then return false end
  local ms = listen_ms(was)
  write_record(was, 0, 0, true, ms - LISTEN_MS, now + ms)
  return true
end

-- Redisson wakes as many of its waiters as the message counts. A leading 0 announces Redisson's
-- turn to our waiters; if no turn was recorded and it is not Redisson's turn, a second message
-- follows at once. Without the rights to keep the record, there are no turns.
local function announce_free(left)
  local text, turn = string.format('%.0f', left), redis.call('GET', TURN)
  if not turn and announce(KEYS[3], '0' .. text) == 0 then return end
  local known, theirs = pcall(is_left, turn)
  theirs = known and theirs
  if turn then announce(KEYS[3], (theirs and '0' or '') .. text)
  elseif not theirs then announce(KEYS[3], text) end
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
