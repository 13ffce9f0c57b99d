--#fragment
--#include "CHANNEL:announcing"
--#include "semaphore/semaphore.lua"
--#include "base/note.lua:earlier_reply"
--#include "semaphore/semaphore_turn.lua"
--#include "semaphore/semaphore_turns.lua"
--#include "queue/turns.lua"
-- Leaves one of the free permits to Redisson's waiters if it is their turn, and updates the record.
-- stored: see read_record. → whether the permit is left to them
local function leave_permit_to_redisson(stored)
  local record, now = read_record(stored), now_ms()
  if redisson_listeners() == 0 then
    if record then redis.call('DEL', TURN) end
    return false
  end
  if left_ms(record, now) > 0 then return true end
  -- Their turn is over, or our run continues.
  if record and (record.turns == 0 or add_turn(record, now)) then return false end
  local ms = listen_ms(record)
  write_record(record, 0, 0, '-', ms - LISTEN_MS, now + ms)
  return true
end

-- Publishes the number of free permits. Redisson wakes as many of its waiters as the number in the
-- message. A leading 0 announces Redisson's turn to our waiters; if no turn was recorded and it is
-- not Redisson's turn, a second message follows at once. If this client may not write the record,
-- there are no turns.
local function announce_free(left)
  local payload, stored = string.format('%.0f', left), redis.call('GET', TURN)
  if not stored and announce(KEYS[3], '0' .. payload) == 0 then return end
  local ok, is_left = pcall(leave_permit_to_redisson, stored)
  is_left = ok and is_left
  if stored then announce(KEYS[3], (is_left and '0' or '') .. payload)
  elseif not is_left then announce(KEYS[3], payload) end
end

-- Adds `count` permits. reply: what the note contains, or nil for the new number of free permits.
-- → what the note contains
local function add_permits(count, reply)
  -- Fails if the key is not a semaphore.
  local old_count = read_integer(PERMITS, redis.call('GET', PERMITS))
  local left = redis.call('INCRBY', PERMITS, count)
  reply = reply or left
  if old_count then
    note(reply, 'INCRBY', PERMITS, string.format('%.0f', -count))
  else
    note(reply, 'DEL', PERMITS)
  end
  if left > 0 then announce_free(left) end
  return reply
end
