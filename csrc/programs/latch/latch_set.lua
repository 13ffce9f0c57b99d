--#include "latch/latch.lua"
-- Begins a count, unless the latch counts already.
--
-- ARGV[2] count
--
-- 1, 0 it counts already
if count() > 0 then return note(0) end
redis.call('SET', LATCH, ARGV[2])
announce(CHANNEL, '1')
return note(1)
