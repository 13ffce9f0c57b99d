--#fragment
-- A lock's users seldom poll. They are looked for first when its queue has not been empty for so
-- long: its first place is as old as the queue.
local LOCK_PROBE_US = 8000000
