--#fragment
--#include "token/token.lua"
-- An owner may keep its lock for its client's other callers; each of them then gets the next token
-- of a range. The range ends AHEAD_US ahead of the clock, or later if it would otherwise have fewer
-- than RANGE_MIN tokens.
local RANGE_MIN = 64
local AHEAD_US = 250000

-- Returns whether this owner keeps its lock: then its number begins with 0. For the form of owners,
-- see owners.lua.
local function keeps(owner)
  return owner:byte(38) == 48 and owner:byte(37) == 58 and owner:byte(15) == 56
end

-- → the last token of a range that begins with `token`
local function range_end(token, now)
  local last = math.max(token + RANGE_MIN, now + AHEAD_US)
  return math.min(last + -last % TOKEN_GRAIN, TOKEN_MAX - TOKEN_GRAIN)
end
