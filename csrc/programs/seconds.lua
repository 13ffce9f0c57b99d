--#fragment
-- Sets seconds: those of `now`, what TIME returned. A clock in the far future runs on between 2112
-- and 2184, so tokens and places stay below 2^53 and keep room to rise.
local seconds = now[1] + 0
if seconds >= 4500000000 then seconds = 4500000000 + seconds % 2250000000 end
