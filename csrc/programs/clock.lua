--#fragment
-- The server's clock in µs, and places, which are made from it.
--#include "places.lua"

local function server_us()
  local now = redis.call('TIME')
--#include "seconds.lua"
  return seconds * 1000000 + now[2]
end

-- A whole number as text: in floating point that takes twice as long.
local function digits(number)
  if number < 1e7 then return string.format('%d', number) end
  local low = number % 1e7
  return string.format('%d%07d', (number - low) / 1e7, low)
end
