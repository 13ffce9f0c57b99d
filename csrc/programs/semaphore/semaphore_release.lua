--#include "semaphore/semaphore_giving.lua"
-- Adds permits.
--
-- ARGV[2] number of permits; below 0: removes permits
--
-- Returns the number of free permits.
if earlier_reply then return tonumber(earlier_reply) end
return add_permits(ARGV[2])
