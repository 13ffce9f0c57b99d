--#fragment
-- A turn of Redisson's waiters: for so long our clients leave one permit that is free to them. The
-- key beside the notes of the calls is there as long as it goes on.
local TURN_MS = 10

local function turn_key()
  return (NOTE:gsub('[^:]*:%d+$', 'turn'))
end
