--#include "semaphore/semaphore_giving.lua"
-- Sets the number of permits, unless the semaphore already exists.
--
-- ARGV[2] number of permits
--
-- 1 set; 0 the semaphore already exists
if earlier_reply then return tonumber(earlier_reply) end
free_permits() -- fails if the key is not a semaphore
if redis.call('EXISTS', PERMITS) == 1 then return note(0) end
return add_permits(ARGV[2], 1)
