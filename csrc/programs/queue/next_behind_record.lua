--#fragment
--#include "queue/record.lua"
--#include "queue/due.lua"
-- Does the same as next_waiter in hash.lua, for members that begin with a record. us: the server's
-- clock in µs, if known.
-- → the next waiter's index in the members, or an index past their end if there is no record, a
-- polling client was seen, or it is time to look for one; the clock in µs; the members
local function next_behind_record(members, us)
  local now, record = us or server_us(), record_in(members)
  local no_waiter = not record or record.unused == 0 or is_due(record, math.floor(now / 1000))
  return no_waiter and #members + 1 or members[4] == '0' and 5 or 3, now, members
end
