--#fragment
-- A turn of Redisson's waiters: for so long our clients leave one permit that is free to them. The
-- key TURN is there as long as it goes on.
local TURN, TURN_MS = KEYS[3] .. ':turn', 10
