--#include "semaphore/semaphore.lua"
--#include "base/note.lua:earlier_reply"
-- Acquires all free permits.
--
-- Returns the number of permits acquired.
if earlier_reply then return tonumber(earlier_reply) end
local count = math.max(free_permits(), 0)
if count == 0 then return note(0) end
local taken = string.format('%.0f', count)
redis.call('DECRBY', PERMITS, taken)
return note(count, 'DECRBY', PERMITS, '-' .. taken)
