--#fragment
-- A waiter's place is the server's time in µs, or the last place plus 1 if that is higher. No place
-- is used twice, so a grant that names a place cannot be an old grant, and a place shows how long
-- its waiter has been waiting. One exception: waiters that were passed over do not count for the
-- last place, so a new waiter may get the place of one of them.

local function format_place(score)
  return score > FRONT_MAX and digits(score) or string.format('%.17g', score)
end

-- → a place before all waiters except those that were put in front earlier
local function front_place() return server_us() / 1024 end

--#include "queue/record.lua"
