--#fragment
--#include "permit_granting.lua"
--#include "permit_queue.lua"
-- One permit is left free to clients that know no queue, for a while; the first waiter of ours is
-- told to look then.
local function begin_foreign_turn()
  write_record(nil, 0, 0, true, 0, NOW + TURN_MS)
  local member = first_waiting()
  local _, _, number = parts(member or '')
  if number then tell(member, 'turn', number, TURN_MS) end
  if redis.call('ZCARD', QUEUE) == 1 then redis.call('PEXPIRE', QUEUE, TURN_MS) end
end

-- How many of the free permits are left to clients that know no queue, now that more are free: one,
-- each other time.
local function kept_for_others()
  local was = record_in(first_members())
  if foreign_waiters(RELEASES) == 0 then
    if was then redis.call('ZREM', QUEUE, was.member) end
    return 0
  end
  if was then
    redis.call('ZREM', QUEUE, was.member)
    return 0
  end
  begin_foreign_turn()
  return 1
end

-- `count` permits have become free: they go to the waiters, of ours and of others in turns.
-- → 1, or 3 where dead waiters are left to be removed before the next one is served
local function pass_on(count)
  local kept = count > 0 and kept_for_others() or reserved()
  local _, more = serve(nil, kept)
  if FREE and FREE > 0 then announce(RELEASES, FREE) end
  return more and 3 or 1
end
