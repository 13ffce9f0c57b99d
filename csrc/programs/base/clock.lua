--#fragment
-- The server's clock in µs, and limits of the waiters' places, which are derived from that clock.
--#section places
local QUEUE_MS = 120000 -- the TTL of a queue
local FRONT_MAX = 1e14 -- above the places of waiters in front, below all other places
local PLACE_END = 9007199254740991 -- 2^53 - 1: above all places
-- Few clients poll for a lock, so the programs look for such clients only once a waiter has waited
-- this long, or a queue has had waiters for this long.
local LOCK_PROBE_US = 8000000
--#end

local function server_us()
  local now = redis.call('TIME')
  --#section seconds
  -- Defines seconds: the seconds in `now`, the reply of TIME. A clock in the far future is mapped
  -- to the years 2112 to 2184, so that tokens and places remain below 2^53 and can still rise.
  local seconds = now[1] + 0
  if seconds >= 4500000000 then seconds = 4500000000 + seconds % 2250000000 end
  --#end
  return seconds * 1000000 + now[2]
end

-- → an integer as a string; formatting it as a floating-point number takes twice as long
local function digits(number)
  if number < 1e7 then return string.format('%d', number) end
  local low = number % 1e7
  return string.format('%d%07d', (number - low) / 1e7, low)
end
