--#fragment
-- How a waiter gets its place: behind the last one, in an empty queue the server's time in µs. So
-- no waiter has a place twice, and a grant that names it cannot be an old one. Those that were
-- passed over do not count: who comes meanwhile may have the place of one of them.
local QUEUE_MS = 120000

local function place_of(score)
  return score > FRONT_MOST and digits(score) or string.format('%.17g', score)
end

-- Before all waiters but those that were put there earlier.
local function front_place()
  return server_us() / 1024
end

--#include "record.lua"
