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
if left < count then return { 0, left } end
if turn and left == count then
  if ARGV[3] ~= '1' then return { 0, left - 1, TURN_MS } end
  redis.call('DEL', TURN)
end
left = redis.call('DECRBY', PERMITS, ARGV[2])
note(count, 'DECRBY', PERMITS, '-' .. ARGV[2])
return { 1, left }
