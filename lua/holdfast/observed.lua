-- Derives times and states from the data that was read for locks.

local observed = {}

local names = require "holdfast.names"

observed.LONG_WAIT = 30 -- seconds, the default lease

-- ---- durations by the server's clock ----

observed.FIRST_US = 1e15 -- lower tokens are counters of Redisson
local FRONT_MAX = 1e14 -- higher places are in µs; lower ones, of waiters at the front, in 1024 µs
local KEPT_US = 250000 -- how far a keeping owner's tokens are ahead of the clock
local MIN_AGE = -1 -- seconds; a lower age means that the server's clock was set back

-- `place`: a queue member's score, or nil. It may be ahead of the clock, because places are unique.
-- → the seconds, by the server's clock, since the place was assigned, then true if the wait is
-- longer, because a waiter at the front got its place later | nil
function observed.waits(place, clock)
  if not place then return nil end
  local in_front = place < FRONT_MAX
  return math.max(clock - (in_front and place * 1024 or place) / 1e6, 0), in_front or nil
end

-- Returns whether the last token was issued to the current holder. A Redisson client issues none,
-- or increments the last one; a reader has the last writer's; other owners may be other programs'.
local function has_own_token(info)
  local owner = info.owner or ""
  if info.readers and not owner:find(":write$") then return false end
  return names.is_owner(owner) and owner:sub(15, 15) == "8"
end

-- Returns the seconds, by the server's clock, from the acquire until `info` was read, or nil if
-- unknown. A token is that clock in µs, rounded up to a multiple of 8, except in a quorum.
function observed.held_for(info, is_quorum)
  local us = info.token or 0
  if us < observed.FIRST_US or not has_own_token(info) then return nil end
  if us % 8 ~= 0 and not is_quorum then return nil end
  if info.owner:sub(38, 38) == "0" then us = us - KEPT_US end
  local held = info.clock - us / 1e6
  return held >= MIN_AGE and math.max(held, 0) or nil
end

-- Returns a word for the worst state that applies.
-- `seen`: { away = whether the servers do not reply, deadlocks, losses = numbers, some_down =
-- whether a quorum's server is down, longest_wait = seconds or nil, knows_waiters = whether all
-- waiters are known }
function observed.state(seen)
  if seen.away then return "away" end
  if seen.deadlocks > 0 then return "deadlock" end
  if seen.losses > 0 then return "losses" end
  if seen.some_down then return "server_down" end
  if (seen.longest_wait or 0) >= observed.LONG_WAIT then return "long_wait" end
  return seen.knows_waiters and "well" or "looking"
end

return observed
