--#fragment
-- The keys and the first arguments of a program about one lock: queue.lua tells what they are.
local LOCK, COUNTER, QUEUE, RELEASES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OWNER, GRANT_MS = ARGV[1], ARGV[2]
