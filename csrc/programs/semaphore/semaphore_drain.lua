--#include "semaphore/semaphore.lua"
--#include "base/note.lua:noted"
-- Acquires all free permits.
--
-- how many
if noted then return tonumber(noted) end
local count = math.max(free(), 0)
if count == 0 then return note(0) end
local taken = string.format('%.0f', count)
redis.call('DECRBY', PERMITS, taken)
return note(count, 'DECRBY', PERMITS, '-' .. taken)
