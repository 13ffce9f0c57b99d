--#fragment
-- As hash_taking.lua.
call('SET', LOCK, OWNER, 'PX', LEASE)
