--#fragment
-- A mutex's release is not announced. The file has the sections of plain.lua that a mutex needs.

--#section announcing
local function foreign_waiters(_, _)
  return 0
end

local function announce(_)
  return 0
end
--#end

--#section receivers
local receivers = 0
--#end
