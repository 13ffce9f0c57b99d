--#fragment
-- The server's time for the permit programs: the reply of TIME, and the same time in µs (US) and in
-- ms (NOW).
local time = redis.call('TIME')
local US
do
  local now = time
--#include "base/clock.lua:seconds"
  US = seconds * 1000000 + now[2]
end
local NOW = (US - US % 1000) / 1000
