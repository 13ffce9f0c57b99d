--#fragment
-- When the free lock is left to clients that poll: see queue.lua.
local POLL_MS = 250 -- how long one turn of the polling clients lasts
local POLLERS_EVERY = 6 -- our own queue gets at least this many turns between two of theirs
-- Even if no polling client was seen, polling clients get a turn after this time. After each turn
-- that none of them used, the time doubles, up to this many times.
local PROBE_MS = 1000
local PROBE_DOUBLINGS = 6
local LOCK_UNUSED = 5 -- how many unused turns are assumed if a lock's queue is already old

-- Whether clients that poll get a turn now. They get the lock again after some turns of ours that
-- took at least as long as their last run. Now and then the lock is left free even if no polling
-- client was seen, because nothing else reveals a client that only polls. If `till` is further
-- ahead than a turn, the server's clock was set back.
local function is_due(was, now)
  local since = now - was.till
  if since < -POLL_MS then return true end
  if was.unused > 0 then
    return since >= PROBE_MS * 2 ^ math.min(was.unused - 1, PROBE_DOUBLINGS)
  end
  return was.turns >= POLLERS_EVERY and since >= was.run
end
