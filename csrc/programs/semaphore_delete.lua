--#include "semaphore.lua"
--#include "noted.lua"
-- Deletes the semaphore. Those that wait go on waiting, until there are permits again.
--
-- 1, 0 there was none
if noted then return tonumber(noted) end
free()
return note(redis.call('DEL', PERMITS))
