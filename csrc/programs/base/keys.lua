--#fragment
-- The keys of one lock, and the program's first arguments: see queue.lua.
local LOCK, COUNTER, QUEUE, RELEASES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OWNER, GRANT_MS = ARGV[1], ARGV[2]
