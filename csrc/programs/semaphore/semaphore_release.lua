--#include "semaphore/semaphore_giving.lua"
-- Adds permits.
--
-- ARGV[2] how many; below 0: removes permits
--
-- how many are free
if noted then return tonumber(noted) end
return give(ARGV[2])
