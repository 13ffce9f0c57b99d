--#fragment
-- Where the next waiter stands among the first members, if it may have the free mutex: behind the
-- record, if no client that polls has been seen and none is to be looked for now, and the mark of
-- the grant that ends.
--#include "record.lua"
--#include "due.lua"
local was = record_in(first_few)
local i = first_few[4] == '0' and 5 or 3
if not was or was.unused == 0 or is_due(was, now_ms()) then i = #first_few + 1 end
