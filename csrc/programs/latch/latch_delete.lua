--#include "latch/latch.lua"
-- Opens the latch however many are still to come. Redisson's waiters would sleep on with the
-- message of its own delete.
--
-- 1, 0 it was open
local left = count()
if left == 0 then return note(0) end
return open(left, 1)
