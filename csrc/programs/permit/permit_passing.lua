--#fragment
--#include "permit/permit_granting.lua"
--#include "queue/passing_over.lua:first_in_line"
--#include "permit/permit_queue.lua"
--#include "queue/turns.lua"
--#include "queue/forget_record.lua"
-- Called after permits were freed: leaves one of them to foreign clients if it is their turn, and
-- records that. → the number of permits that are left to foreign clients, and the ms for which
local function keep_for_others()
  local kept, left_ms = reserved()
  if kept > 0 then return kept, left_ms end
  local record, queued = record_in(first_members()), first_in_line()
  if (queued or foreign_waiters(RELEASES) > 0) and add_turn(record, NOW) then
    if redis.call('ZCARD', QUEUE) == 1 then redis.call('PEXPIRE', QUEUE, MAX_LISTEN_MS) end
    return 0, 0
  end
  if foreign_waiters(RELEASES) == 0 then
    forget_record()
    return 0, 0
  end
  if queued and record and record.turns == 0 then return 0, 0 end -- their turn is over
  left_ms = listen_ms(record)
  write_record(record, 0, 0, '-', left_ms - LISTEN_MS, NOW + left_ms)
  return 1, left_ms
end

-- Makes our first waiter ask again after `left_ms`: a free permit is left to foreign clients.
local function notify_turn(member, left_ms)
  notify(member, 'turn', left_ms)
  if redis.call('ZCARD', QUEUE) == 1 then redis.call('PEXPIRE', QUEUE, left_ms) end
end

-- Gives free permits to waiters; count: see pass_on. Leaves a queue of another type unchanged.
-- → whether dead waiters must be removed before the next one is served
local function pass_to_waiters(count)
  local kind = redis.call('TYPE', QUEUE).ok
  if kind ~= 'zset' and kind ~= 'none' then return false end
  local decide = count > 0 and keep_for_others or reserved
  local kept, left_ms = decide()
  local first_left, more = serve(nil, kept)
  if kept > 0 then notify_turn(first_left, left_ms) end
  return more
end

-- Passes on `count` freed permits: our waiters and others take turns to get them.
-- → 1, or 3 if dead waiters must be removed before the next one is served
local function pass_on(count)
  local more = pass_to_waiters(count)
  if FREE and FREE > 0 then announce(RELEASES, FREE) end
  return more and 3 or 1
end
