--#include "keys.lua"
--#include "clock.lua"
--#include "token.lua"
--#include "permit_now.lua"
--#include "permits.lua"
--#include "pool.lua"
--#include "pool_changes.lua"
--#include "releases.lua"
--#include "ours.lua"
--#include "placing.lua"
--#include "permit_passing.lua"
-- Sets how many permits there are in all. Those that are taken stay taken; there may be fewer than
-- none free then.
--
-- ARGV[3] permits
--
-- 1, 3 dead waiters are left to be removed before the next one is served
local back = reclaim()
local more = ARGV[3] - all_permits()
FREE = redis.call('INCRBY', LOCK, string.format('%.0f', more))
settle_missed_grants('')
return pass_on(math.max(0, back + more))
