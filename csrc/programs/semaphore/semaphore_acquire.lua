--#include "semaphore/semaphore.lua"
--#include "semaphore/semaphore_turn.lua"
-- Acquires permits, if enough are free. An attempt that finds too few leaves no note, because it is
-- repeated. The note of an acquire is how many it has taken; 0: it was undone, so a late copy of it
-- takes none.
--
-- ARGV[2] how many; ARGV[3] '1': Redisson's clients have released since their turn began, so the
-- turn ends
--
-- { 1, free } acquired, `free` are left; { 0, free } too few; { 0, free, ms } too few, because one
-- more is left to Redisson's clients, for at most `ms`
local noted, turn
if redis.call('EXISTS', NOTE, TURN) > 0 then
  noted, turn = redis.call('GET', NOTE), redis.call('GET', TURN)
end
if noted then return { noted == '0' and 0 or 1, free() } end
local count, left = tonumber(ARGV[2]), free()
if turn then
--#include "CHANNEL:announcing"
--#include "semaphore/semaphore_turns.lua"
  local was, now = read_record(turn), now_ms()
  local theirs = was and was.turns == 0
  if theirs and was.listeners and (left < 1 or ARGV[3] == '1') then
    write_record(was, 0, 0, false, 0, math.min(now, was.began))
    was = read_record(redis.call('GET', TURN))
  end
  if theirs and left >= count then
    local ms = left_ms(was, now)
    if ms > 0 and left == count then return { 0, left - 1, ms } end
    if ms == 0 and listeners(KEYS[3] .. ':holdfast') == 0 then
      redis.call('DEL', TURN)
    elseif ms == 0 then
      -- A turn that none of theirs was seen to use has ended on time.
      local ended = was.listeners and math.min(now, was.till) or now
      local run = math.min(ended - was.began, RUN_MS)
      write_record(was, 1, 0, was.listeners, math.max(0, run), now)
    end
  end
end
if left < count then return { 0, left } end
left = redis.call('DECRBY', PERMITS, ARGV[2])
note(count, 'DECRBY', PERMITS, '-' .. ARGV[2])
return { 1, left }
