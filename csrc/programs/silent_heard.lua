--#fragment
local heard = 0
