--#include "latch/latch.lua"
-- Opens the latch. Publishes the message for a count of 0, because the message of Redisson's own
-- delete would not wake Redisson's waiters.
--
-- ARGV[2] only if this is the latch's count; 0: any count; may be left out
--
-- 1 opened; 0 the latch was already open, or has another count
local left, expected = count(), tonumber(ARGV[2] or 0)
if left == 0 or expected > 0 and left ~= expected then return note(0) end
return open(left, 1)
