--#fragment
-- During a turn of Redisson's waiters our clients leave one free permit to them. The key TURN
-- exists during the turn.
local TURN, TURN_MS = KEYS[3] .. ':turn', 10
