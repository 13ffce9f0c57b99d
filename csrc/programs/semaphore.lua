--#fragment
-- A semaphore as Redisson's RSemaphore has it: a string, how many permits are free; without it,
-- none. The server does not know the holders of the others.
--
-- KEYS[1] the semaphore, KEYS[2] the note of this call, KEYS[3] the semaphore's channel
-- ARGV[1] ms for which the note stays
local PERMITS = KEYS[1]

local function free()
  local text = redis.call('GET', PERMITS)
  if not text then return 0 end
  -- no number: the key has the wrong type
  return tonumber(text:match('^-?%d+$')) or redis.call('HLEN', PERMITS)
end

--#include "note.lua"
