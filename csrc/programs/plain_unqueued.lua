--#fragment
-- A part of hash_handing.lua: defines unqueued, how many clients wait without a queue. Reads
-- counts.
local unqueued = counts[2]
