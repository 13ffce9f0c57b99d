--#fragment
-- How a waiter gets its place: the server's time in µs, or one behind the last place if that is not
-- before it. So no waiter has a place twice, and a grant that names it cannot be an old one; and a
-- place tells since when its waiter waits. Those that were passed over do not count: a waiter that
-- comes meanwhile may have the place of one of them.
local QUEUE_MS = 120000

local function place_of(score)
  return score > FRONT_MOST and digits(score) or string.format('%.17g', score)
end

-- Before all waiters but those that were put there earlier.
local function front_place()
  return server_us() / 1024
end

--#include "queue/record.lua"
