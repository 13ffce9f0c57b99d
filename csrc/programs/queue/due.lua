--#fragment
-- Decides when the free lock is left to clients that poll: see queue.lua.
--#section probing
local POLL_MS = 250 -- duration of one turn of the polling clients
-- Even if no polling client was seen, polling clients get a turn after PROBE_MS. After each unused
-- turn this time doubles, up to PROBE_DOUBLINGS times.
local PROBE_MS = 1000
local PROBE_DOUBLINGS = 6
--#end
local POLLERS_EVERY = 6 -- our waiters get at least this many turns between two of theirs
local LOCK_UNUSED = 5 -- unused turns assumed if a lock's queue is already old

-- Returns whether clients that poll get a turn now. Such clients get another turn after
-- POLLERS_EVERY of our turns, if our turns took at least as long as their last run. Sometimes the
-- lock is left free even if no polling client was seen, because nothing else reveals a client that
-- only polls. If `till` is more than a turn ahead, the server's clock was set back.
local function is_due(record, now)
  local since_ms = now - record.till
  if since_ms < -POLL_MS then return true end
  if record.unused > 0 then
    return since_ms >= PROBE_MS * 2 ^ math.min(record.unused - 1, PROBE_DOUBLINGS)
  end
  return record.turns >= POLLERS_EVERY and since_ms >= record.run
end
