--#include "latch/latch.lua"
-- Opens the latch whatever its count. Publishes the message of a count-down to 0, because after
-- that of Redisson's own delete, Redisson's waiters would keep sleeping.
--
-- 1 opened; 0 it was open
local left = count()
if left == 0 then return note(0) end
return open(left, 1)
