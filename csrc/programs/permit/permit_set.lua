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
-- Sets the total number of permits. Those that are taken remain taken, so fewer than 0 may be free.
-- Safe to resend.
--
-- ARGV[3] permits
--
-- 1 set; 3 set, but dead waiters remain: call permit_leave.lua
local back = reclaim()
local more = ARGV[3] - all_permits()
FREE = redis.call('INCRBY', LOCK, string.format('%.0f', more))
settle_missed_grants('')
return pass_on(math.max(0, back + more))
