--#fragment
-- The time of a program about permits: what TIME returned, in µs and in ms.
local time = redis.call('TIME')
local US = time[1] * 1000000 + time[2]
local NOW = (US - US % 1000) / 1000
