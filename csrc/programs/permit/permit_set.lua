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
-- Sets the total number of permits. Permits that are taken remain taken, so the number of free ones
-- may be below 0.
-- Safe to resend.
--
-- ARGV[3] permits
--
-- 1 set; 3 set, but dead waiters remain: call permit_leave.lua
local reclaimed = reclaim()
local added = ARGV[3] - total_permits()
FREE = redis.call('INCRBY', LOCK, string.format('%.0f', added))
settle_missed_grants('')
return pass_on(math.max(0, reclaimed + added))
