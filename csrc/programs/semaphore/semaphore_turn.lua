--#fragment
-- The key that stores the record of turns: see semaphore_turns.lua.
local TURN = KEYS[3] .. ':turns'
