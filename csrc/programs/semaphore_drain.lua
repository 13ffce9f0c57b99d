--#include "semaphore.lua"
--#include "noted.lua"
-- Takes all permits that are free.
--
-- how many
if noted then return tonumber(noted) end
local count = math.max(free(), 0)
if count > 0 then redis.call('DECRBY', PERMITS, string.format('%.0f', count)) end
return note(count)
