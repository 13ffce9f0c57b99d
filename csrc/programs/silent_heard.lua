--#fragment
-- As plain_heard.lua: a mutex's release is announced to nobody.
local heard = 0
