--#fragment
-- How many permits of one semaphore are free.
local LEASES = KEYS[5]
local free_text = redis.call('GET', LOCK)
local FREE = tonumber(free_text) -- nil: nobody has said how many there are
if free_text and not FREE then redis.call('HLEN', LOCK) end -- no number: the key has the wrong type
