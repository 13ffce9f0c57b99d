--#fragment
-- When the free lock is left to clients that poll: see queue.lua.
local POLL_MS = 250 -- a turn of theirs
local POLLERS_EVERY = 6 -- turns of ours at least between two of theirs
local PROBE_MS = 1000 -- after which those that nobody has seen get a turn; then after twice as long
local PROBE_DOUBLINGS = 6
local LOCK_UNUSED = 5 -- as if so many turns of theirs had passed, where a lock's queue is old

-- Clients that poll get the lock again after some turns of ours that took at least as long as their
-- last run. Now and then it is left free even if none was seen, because nothing else reveals a
-- client that only polls. If `till` is further ahead than a turn, the server's clock was set back.
local function is_due(was, now)
  local since = now - was.till
  if since < -POLL_MS then return true end
  if was.unused > 0 then
    return since >= PROBE_MS * 2 ^ math.min(was.unused - 1, PROBE_DOUBLINGS)
  end
  return was.turns >= POLLERS_EVERY and since >= was.run
end
