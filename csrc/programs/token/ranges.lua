--#fragment
--#include "token/token.lua"
-- An owner that keeps its lock for the other callers of its client gives each of them a token of
-- its own, from a range of this size: one for each microsecond until the counter is so far ahead of
-- the clock, and no fewer than RANGE_LEAST.
local RANGE_LEAST = 64
local AHEAD_US = 250000

-- The number of such an owner begins with 0: owners.lua has the rest of its form.
local function keeps(owner)
  return owner:byte(38) == 48 and owner:byte(37) == 58 and owner:byte(15) == 56
end

-- The last token of a range that begins with this one.
local function range_end(token, now)
  local last = math.max(token + RANGE_LEAST, now + AHEAD_US)
  return math.min(last + -last % TOKEN_GRAIN, TOKEN_MOST - TOKEN_GRAIN)
end
