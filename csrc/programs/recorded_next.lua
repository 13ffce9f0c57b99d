--#fragment
--#include "record.lua"
--#include "due.lua"
-- The same behind the record, if no client that polls has been seen and none is to be looked for
-- now: see hash_next.lua. us: the server's clock, if it is known.
local function next_behind_record(members, us)
  local now, was = us or server_us(), record_in(members)
  local nobody = not was or was.unused == 0 or is_due(was, math.floor(now / 1000))
  return nobody and #members + 1 or members[4] == '0' and 5 or 3, now, members
end
