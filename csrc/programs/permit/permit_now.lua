--#fragment
-- The time of a program for permits: the reply of TIME, and the clock in µs and in ms.
local time = redis.call('TIME')
local US
do
  local now = time
--#include "base/clock.lua:seconds"
  US = seconds * 1000000 + now[2]
end
local NOW = (US - US % 1000) / 1000
