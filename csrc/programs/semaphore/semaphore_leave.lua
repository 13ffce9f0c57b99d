--#include "semaphore/semaphore_giving.lua"
-- Undoes an acquire or a drain: releases the permits in its note, unless the semaphore was deleted
-- in the meantime.
--
-- 1 the call had taken permits; 0 it had taken none
local taken = tonumber(earlier_reply or '0')
if taken == 0 then return note(0) end
if redis.call('EXISTS', PERMITS) == 1 then add_permits(taken, 0) else note(0) end
return 1
