--#include "semaphore.lua"
-- Takes permits, if so many are free. An attempt that finds too few leaves no note: it is made
-- again. The note of an acquire is how many it has taken; 0: it was undone, so a copy of it that
-- comes late takes none.
--
-- ARGV[2] how many
--
-- { 1, free }: taken, so many are left; { 0, free }: too few
if noted then return { noted == '0' and 0 or 1, free() } end
local count, left = tonumber(ARGV[2]), free()
if left < count then return { 0, left } end
left = redis.call('DECRBY', PERMITS, ARGV[2])
note(count, 'DECRBY', PERMITS, '-' .. ARGV[2])
return { 1, left }
