-- What two observations of a lock show, for the status page and `holdfast top`.

local observed = {}

local OLDEST = 30 * 86400 -- seconds; what is older is no time
local LONG_WAIT = 30 -- seconds, the default lease

-- Since when this holder has the lock, in seconds of the clock; `before`: the previous
-- entry. Fencing tokens are the server's clock in microseconds, unless locks are taken faster or
-- that clock was set; else it is the time of the first observation.
function observed.since(entry, before, now)
  if before and before.since and before.owner == entry.owner and before.token == entry.token then
    return before.since
  end
  local since = entry.token and entry.token / 1e6
  return since and since > now - OLDEST and since <= now + 1 and math.min(since, now) or now
end

-- How many hand-offs there were at least: one if the holder is another one, or has taken the lock
-- again. Hand-offs in between leave no count: tokens and places in a queue that has run empty
-- follow the server's clock, and a waiter that leaves a queue may have given up.
function observed.handed_over(before, entry)
  if not before then return 0 end
  if before.owner ~= entry.owner then return 1 end
  return before.token and entry.token and entry.token > before.token and 1 or 0
end

-- The one word for all that is seen, the worst first.
-- `seen`: { away = whether the servers do not answer, deadlocks, losses = numbers, some_down =
-- whether a server of a quorum is down, longest_wait = seconds or nil }
function observed.state(seen)
  if seen.away then return "away" end
  if seen.deadlocks > 0 then return "deadlock" end
  if seen.losses > 0 then return "losses" end
  if seen.some_down then return "server_down" end
  if (seen.longest_wait or 0) >= LONG_WAIT then return "long_wait" end
  return "well"
end

return observed
