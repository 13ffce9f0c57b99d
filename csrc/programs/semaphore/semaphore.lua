--#fragment
-- A semaphore is stored as in Redisson's RSemaphore: a string, the number of free permits; without
-- the string, there are no permits. The server does not know who holds the permits that are taken.
--
-- KEYS[1] the semaphore, KEYS[2] this call's note, KEYS[3] the semaphore's channel
-- ARGV[1] the note's TTL in ms
local PERMITS = KEYS[1]

--#include "base/read_integer.lua"
local function free_permits()
  return read_integer(PERMITS, redis.call('GET', PERMITS)) or 0
end

--#include "base/note.lua:note"
