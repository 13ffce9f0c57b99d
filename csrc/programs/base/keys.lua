--#fragment
-- A program's keys and first arguments for one lock: see queue.lua.
local LOCK, COUNTER, QUEUE, RELEASES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OWNER, GRANT_MS = ARGV[1], ARGV[2]
