--#fragment
-- The same behind the record, if no client that polls has been seen and none is to be looked for
-- now.
--#include "record.lua"
--#include "due.lua"
local was = record_in(first_few)
i = first_few[4] == '0' and 5 or 3
if not was or was.unused == 0 or is_due(was, math.floor(now_us / 1000)) then i = #first_few + 1 end
