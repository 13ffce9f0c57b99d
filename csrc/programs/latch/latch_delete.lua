--#include "latch/latch.lua"
-- Opens the latch, whatever its count. Publishes the message for a count of 0, because the message
-- of Redisson's own delete would not wake Redisson's waiters.
--
-- 1 opened; 0 the latch was already open
local left = count()
if left == 0 then return note(0) end
return open(left, 1)
