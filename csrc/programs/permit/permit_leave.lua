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
--#include "queue/is_queue.lua"
--#include "queue/forgetting.lua"
-- Ends a wait, or undoes an acquire whose outcome is unknown. Permits that the owner thus acquired
-- go to waiters. For an owner without a count, releases all permits with its number. Safe to
-- resend.
--
-- ARGV[3] 0; ARGV[4] its member of the queue, "": none; ARGV[5] ""
--
-- 1 it had permits; 0 it had none; 3 either, but dead waiters remain: call it again
local WAITER = ARGV[4]

local function all_of(owner)
  local ids = ids_of(owner)
  while #ids > 0 and not owner:find('*', 1, true) and redis.call('ZSCORE', LEASES, ids[#ids]) do
    ids[#ids + 1] = ids[#ids]:sub(1, 14) .. struct.pack('>I2', #ids + 1)
  end
  return ids
end

local queued = is_queue()
local was_first = queued and WAITER ~= '' and first_in_line() == WAITER
if WAITER ~= '' and queued then forget_wait(WAITER) end
local given = put_back(all_of(OWNER))
local back = reclaim()
local freed = given + back
settle_missed_grants(OWNER:sub(1, 36))
if freed == 0 and not (queued and first_in_line()) then
  if queued then forget_record() end
  return 0
end
local passed = pass_on(freed)
if was_first and is_foreign() then notify_first() end
return passed == 3 and 3 or given > 0 and 1 or 0
