--#fragment
-- As hash_owning.lua.
local holder = redis.call('GET', LOCK)
