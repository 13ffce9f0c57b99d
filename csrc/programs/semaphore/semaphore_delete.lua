--#include "semaphore/semaphore.lua"
--#include "base/note.lua:earlier_reply"
-- Deletes the semaphore. Waiters keep waiting until there are permits again.
--
-- 1 deleted; 0 there was none
if earlier_reply then return tonumber(earlier_reply) end
local left = string.format('%.0f', free_permits())
if redis.call('DEL', PERMITS) == 0 then return note(0) end
return note(1, 'INCRBY', PERMITS, left)
