--#include "semaphore/semaphore.lua"
--#include "semaphore/semaphore_turn.lua"
-- Acquires permits, if enough are free. An attempt that finds too few writes no note, because the
-- attempt is repeated. An acquire's note is the number of permits that it has taken; 0: the acquire
-- was undone, so a late copy of it takes none.
--
-- ARGV[2] number of permits; ARGV[3] '1': Redisson's clients have released permits since their turn
-- began, so the turn ends
--
-- { 1, free } acquired, `free` permits remain; { 0, free } too few are free; { 0, free, ms } too
-- few, because one of the free permits is reserved for Redisson's clients, for up to `ms`
local earlier_reply, stored_record
if redis.call('EXISTS', NOTE, TURN) > 0 then
  earlier_reply, stored_record = redis.call('GET', NOTE), redis.call('GET', TURN)
end
if earlier_reply then return { earlier_reply == '0' and 0 or 1, free_permits() } end
local count, left = tonumber(ARGV[2]), free_permits()
if stored_record then
--#include "CHANNEL:announcing"
--#include "semaphore/semaphore_turns.lua"
  local record, now = read_record(stored_record), now_ms()
  local is_their_turn = record and record.turns == 0
  if is_their_turn and record.listeners and (left < 1 or ARGV[3] == '1') then
    write_record(record, 0, 0, 0, 0, math.min(now, record.began))
    record = read_record(redis.call('GET', TURN))
  end
  if is_their_turn and left >= count then
    local ms = left_ms(record, now)
    if ms > 0 and left == count then return { 0, left - 1, ms } end
    if ms == 0 and listeners(KEYS[3] .. ':holdfast') == 0 then
      redis.call('DEL', TURN)
    elseif ms == 0 then
      -- If none of Redisson's clients was seen to use the turn, it ended on time.
      local end_ms = record.listeners and math.min(now, record.till) or now
      local run = math.min(end_ms - record.began, MAX_RUN_MS)
      write_record(record, 1, 0, record.holders, math.max(0, run), now)
    end
  end
end
if left < count then return { 0, left } end
left = redis.call('DECRBY', PERMITS, ARGV[2])
note(count, 'DECRBY', PERMITS, '-' .. ARGV[2])
return { 1, left }
