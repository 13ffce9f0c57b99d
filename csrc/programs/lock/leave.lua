--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/ranges.lua"
--#include "LAYOUT:layout"
--#include "LAYOUT:holding"
--#include "base/owners.lua:ours"
--#include "base/owners.lua:redisson_owner"
--#include "queue/placing.lua"
--#include "CHANNEL:announcing"
--#include "queue/queue.lua"
--#include "queue/runs.lua"
--#include "queue/is_queue.lua"
--#include "queue/forgetting.lua"
--#include "queue/notifying.lua"
-- Ends a wait, or undoes an acquire whose outcome is unknown. A lock that was granted in the
-- meantime, or is found free, goes to the next waiter. Safe to resend, except for a shared owner.
--
-- ARGV[3] remaining      the hold count that remains
-- ARGV[4] waiter         the waiter's member in the queue; "": none
-- ARGV[5] release_count  for a shared owner, instead of `remaining`: the holds to release; 0: the
--                        one granted to the waiter, if any; "": not shared
--
-- 1 released, and passed on if no hold remains; 0 nothing was released; 3 like 1 or 0, but the
-- queue still has dead waiters, or waiters that must learn of a record: call it again
local REMAINING, WAITER, RELEASE_COUNT = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

-- Serves the new first waiter. Only the first waiter listens for the release of a holder that does
-- not hand over, asks a holder that keeps the lock to give it up, asks again after a turn of
-- foreign clients, or gets the free lock. If the key now holds a record, notifies all its waiters.
-- → the program's reply, unless a hold was released
local function serve_next()
  local holder = holder_of(LOCK)
  if holder then
    if not holder:find(OUR_OWNER) or keeps(holder) then
      notify(prune_to_first_alive(reject_unservable), 'recheck')
    end
    return 0
  end
  if redis.call('EXISTS', LOCK) == 1 then
    return redis.call('HEXISTS', LOCK, 'by') == 1 and notify_done() and 3 or 0
  end
  settle_missed_grant(OWNER:sub(1, 36))
  local left_ms = foreign_ms(POLL_MS)
  if left_ms > 0 then
    notify(prune_to_first_alive(reject_unservable), 'turn', left_ms)
    return 0
  end
  -- A holder's lease has ended during our run: continue as after its release.
  local heads = redis.call('ZRANGE', QUEUE, '0', LAST_OF_THREE, 'WITHSCORES')
  local record = record_in(heads)
  if record and record.turns > 0 then return pass_on(heads) == 3 and 3 or 0 end
  local handed_over = hand_over()
  begin_our_run(now_ms())
  return handed_over == nil and 3 or 0
end

local granted_member, queued = nil, is_queue()
if WAITER ~= '' and queued then
  granted_member = forget_wait(WAITER)
  if not first_after_record() then redis.call('DEL', QUEUE) end
end
local _, _, _, _, owner = parse(granted_member or '')
-- For a shared owner, the client knew only the number of the wait.
if owner and owner ~= OWNER then OWNER, RELEASE_COUNT = owner, 0 end
local count = holds_of(LOCK, OWNER)
if RELEASE_COUNT == 0 and granted_member then RELEASE_COUNT = 1 end
local remaining = RELEASE_COUNT and count and count - RELEASE_COUNT or REMAINING
if not count or count <= remaining then
  return queued and not count and serve_next() or 0
end
if remaining > 0 then
  set_holds(LOCK, OWNER, remaining, 0)
  return 1
end
return pass_on()
