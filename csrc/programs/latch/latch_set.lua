--#include "latch/latch.lua"
-- Sets the count, unless the latch is closed.
--
-- ARGV[2] the count
--
-- 1 set; 0 the latch is closed
if count() > 0 then return note(0) end
redis.call('SET', LATCH, ARGV[2])
announce(CHANNEL, '1')
return note(1)
