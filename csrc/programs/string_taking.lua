--#fragment
call('SET', LOCK, OWNER, 'PX', LEASE)
