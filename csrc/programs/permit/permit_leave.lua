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
-- Ends a wait, or undoes an acquire whose outcome is unknown: the owner's permits go to waiters. If
-- the owner has no count, releases all permits with its number. Safe to resend.
--
-- ARGV[3] 0; ARGV[4] the waiter's member of the queue, "": none; ARGV[5] ""
--
-- 1 the owner had permits; 0 it had none; 3 either of these, but dead waiters remain: call it again
local WAITER = ARGV[4]

local function all_ids_of(owner)
  local ids = ids_of(owner)
  while #ids > 0 and not owner:find('*', 1, true) and redis.call('ZSCORE', LEASES, ids[#ids]) do
    ids[#ids + 1] = ids[#ids]:sub(1, 14) .. struct.pack('>I2', #ids + 1)
  end
  return ids
end

local queued = is_queue()
local was_first = queued and WAITER ~= '' and first_in_line() == WAITER
if WAITER ~= '' and queued then forget_wait(WAITER) end
local released = put_back(all_ids_of(OWNER))
local freed = released + reclaim()
settle_missed_grants(OWNER:sub(1, 36))
if freed == 0 and not (queued and first_in_line()) then
  if queued then forget_record() end
  return 0
end
local result = pass_on(freed)
if was_first and redisson_has_permit() then notify_first() end
return result == 3 and 3 or released > 0 and 1 or 0
