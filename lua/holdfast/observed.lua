-- Derives times and states from readings of locks, for the status page and the command.

local observed = {}

local names = require "holdfast.names"

observed.LONG_WAIT = 30 -- seconds, the default lease

-- ---- durations by the server's clock ----

observed.FIRST_US = 1e15 -- lower tokens are numbers that Redisson has counted up
local FRONT_MAX = 1e14 -- higher places are in µs; lower ones, of waiters in front, in 1024 µs
local KEPT_US = 250000 -- how far the tokens of an owner that keeps the lock are ahead of the clock
local FUTURE = -1 -- seconds; a lower age means that the server's clock was set back

-- → how many seconds ago, by the server's clock, this place in a queue was assigned, and true if
-- the wait is longer than that, because a waiter at the front got its place later | nil without a
-- place. A place may be ahead of the clock, because no two places are the same.
function observed.waits(place, clock)
  if not place then return nil end
  local in_front = place < FRONT_MAX
  return math.max(clock - (in_front and place * 1024 or place) / 1e6, 0), in_front or nil
end

-- Returns whether the last token was issued to the present holder. A Redisson client draws none, or
-- increments the last one; a reader has the last writer's; any other owner may belong to another
-- program.
local function has_own_token(info)
  local owner = info.owner or ""
  if info.readers and not owner:find(":write$") then return false end
  return names.is_owner(owner) and owner:sub(15, 15) == "8"
end

-- Returns for how many seconds, by the server's clock, the holder had held the lock when `info` was
-- read, or nil if that is not known. A token is that clock in µs, rounded up to a multiple of 8,
-- except in a quorum.
function observed.held_for(info, is_quorum)
  local us = info.token or 0
  if us < observed.FIRST_US or not has_own_token(info) then return nil end
  if us % 8 ~= 0 and not is_quorum then return nil end
  if info.owner:sub(38, 38) == "0" then us = us - KEPT_US end
  local held = info.clock - us / 1e6
  return held >= FUTURE and math.max(held, 0) or nil
end

-- Returns a single word for the state, the worst that applies.
-- `seen`: { away = whether the servers do not reply, deadlocks, losses = numbers, some_down =
-- whether a server of a quorum is down, longest_wait = seconds or nil, is_known = whether all
-- waiters are known }
function observed.state(seen)
  if seen.away then return "away" end
  if seen.deadlocks > 0 then return "deadlock" end
  if seen.losses > 0 then return "losses" end
  if seen.some_down then return "server_down" end
  if (seen.longest_wait or 0) >= observed.LONG_WAIT then return "long_wait" end
  return seen.is_known and "well" or "looking"
end

return observed
