--#include "semaphore/semaphore_giving.lua"
-- Sets how many permits there are, unless the semaphore exists.
--
-- ARGV[2] how many
--
-- 1 set; 0 it exists
if noted then return tonumber(noted) end
free()
if redis.call('EXISTS', PERMITS) == 1 then return note(0) end
return give(ARGV[2], 1)
