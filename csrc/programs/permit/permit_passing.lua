--#fragment
--#include "permit/permit_granting.lua"
--#include "queue/passing_over.lua:first_in_line"
--#include "permit/permit_queue.lua"
--#include "queue/forget_record.lua"
-- Decides how many of the free permits are left to foreign clients, now that more are free: one,
-- every other time. → how many, and for how many ms
local function kept_for_others()
  if forget_record() or foreign_waiters(RELEASES) == 0 then return 0, 0 end
  write_record(nil, 0, 0, true, 0, NOW + TURN_MS)
  return 1, TURN_MS
end

-- A free permit is left to foreign clients: our first waiter must ask again after `left_ms`.
local function notify_turn(member, left_ms)
  notify(member, 'turn', left_ms)
  if redis.call('ZCARD', QUEUE) == 1 then redis.call('PEXPIRE', QUEUE, left_ms) end
end

-- Gives free permits to waiters; count: as for pass_on. A queue of another type is left unchanged.
-- → whether dead waiters must be removed before the next one is served
local function pass_to_waiters(count)
  local kind = redis.call('TYPE', QUEUE).ok
  if kind ~= 'zset' and kind ~= 'none' then return false end
  local kept_or_reserved = count > 0 and kept_for_others or reserved
  local kept, left_ms = kept_or_reserved()
  local before = FREE
  local first_left, more = serve(nil, kept)
  -- Foreign clients released a permit that went to one of ours: the next turn is theirs.
  if count == 0 and FREE ~= before then forget_record() end
  if kept > 0 then notify_turn(first_left, left_ms) end
  return more
end

-- `count` permits have become free: our waiters and others get them in turns.
-- → 1, or 3 if dead waiters must be removed before the next one is served
local function pass_on(count)
  local more = pass_to_waiters(count)
  if FREE and FREE > 0 then announce(RELEASES, FREE) end
  return more and 3 or 1
end
