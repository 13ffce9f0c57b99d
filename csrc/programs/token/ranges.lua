--#fragment
--#include "token/token.lua"
-- An owner that keeps its lock for its client's other callers gives each of them a token from a
-- range: one token for each µs until the counter is AHEAD_US ahead of the clock, and at least
-- RANGE_MIN.
local RANGE_MIN = 64
local AHEAD_US = 250000

-- The number of such an owner begins with 0. See owners.lua for the form of owners.
local function keeps(owner)
  return owner:byte(38) == 48 and owner:byte(37) == 58 and owner:byte(15) == 56
end

-- The last token of a range that begins with this one.
local function range_end(token, now)
  local last = math.max(token + RANGE_MIN, now + AHEAD_US)
  return math.min(last + -last % TOKEN_GRAIN, TOKEN_MAX - TOKEN_GRAIN)
end
