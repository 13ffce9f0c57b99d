--#include "semaphore/semaphore_giving.lua"
-- Adds permits.
--
-- ARGV[2] number of permits; below 0: removes permits
--
-- the number of free permits
if noted then return tonumber(noted) end
return give(ARGV[2])
