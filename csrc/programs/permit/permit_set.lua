--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/token.lua"
--#include "permit/permit_now.lua"
--#include "permit/permits.lua"
--#include "permit/pool.lua"
--#include "permit/pool_changes.lua"
--#include "CHANNEL:announcing"
--#include "base/owners.lua:ours"
--#include "queue/placing.lua"
--#include "permit/permit_passing.lua"
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
