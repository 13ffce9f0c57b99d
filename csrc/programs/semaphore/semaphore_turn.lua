--#fragment
-- During a turn of Redisson's waiters our clients leave them one free permit. The key TURN exists
-- during the turn.
local TURN, TURN_MS = KEYS[3] .. ':turn', 10
