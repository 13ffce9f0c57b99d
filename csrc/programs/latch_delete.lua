--#include "latch.lua"
-- Opens the latch however many are still to come. Redisson's waiters would sleep on with the
-- message of its own delete.
--
-- 1, 0 it was open
if count() == 0 then return note(0) end
open()
return note(1)
