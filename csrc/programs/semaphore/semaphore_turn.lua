--#fragment
-- The key of the record of turns: see semaphore_turns.lua.
local TURN = KEYS[3] .. ':turns'
