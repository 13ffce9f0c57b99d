--#fragment
-- As plain_receivers.lua: a mutex's release is announced to nobody.
local receivers = 0
