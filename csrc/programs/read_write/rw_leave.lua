--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/token.lua"
--#include "read_write/rw.lua"
--#include "CHANNEL:announcing"
--#include "read_write/rw_token.lua"
--#include "base/owners.lua:ours"
--#include "queue/placing.lua"
--#include "queue/passing_over.lua:first_in_line"
--#include "read_write/rw_queue.lua"
--#include "read_write/rw_settling.lua"
--#include "queue/forgetting.lua"
-- Ends a wait, or undoes an acquire whose outcome is unknown. A hold that was granted in the
-- meantime is released, and later waiters may get the lock. Safe to resend.
--
-- ARGV[3] remaining  the hold count that remains
-- ARGV[4] waiter     the waiter's member in the queue; "": none
-- ARGV[5] unused
--
-- 1 a hold was released; 0 none was; 3 either of these, but waiters remain to be served: call it
-- again
local REMAINING, WAITER = tonumber(ARGV[3]), ARGV[4]

-- Grants the lock to the new first waiter. If a holder does not hand over, notifies that waiter, so
-- that it listens for the release. → the program's reply, unless a hold was released
local function serve_next()
  local mode = redis.call('HGET', LOCK, 'mode')
  if mode and mode ~= 'write' and not prune_to_live_reader() then
    redis.call('DEL', LOCK)
    return pass_on('0') == 3 and 3 or 0
  end
  if mode == 'write' or not mode and redis.call('EXISTS', LOCK) == 1 then
    if mode then notify_first_of_foreign_holder() end
    return 0
  end
  settle_missed_grants(OWNER:sub(1, 36))
  mode = settle_drain(mode)
  local left_ms = mode and yield_ms() or not mode and foreign_ms(YIELD_MS) or 0
  if left_ms > 0 then
    notify(prune_to_first_live(), 'turn', left_ms)
    return 0
  end
  local _, _, more = serve(mode)
  if not mode then begin_our_run(now_ms()) end
  if mode and first_in_line() then notify_first_of_foreign_holder() end
  return more and 3 or 0
end

local queued = is_queue()
if WAITER ~= '' and queued then forget_wait(WAITER) end
local count = tonumber(redis.call('HGET', LOCK, OWNER))
if not count or count <= REMAINING then
  return queued and not count and serve_next() or 0
end
local result = release_holds(count, REMAINING)
return result == 2 and 1 or result
