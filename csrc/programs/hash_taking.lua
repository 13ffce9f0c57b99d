--#fragment
call('HSET', LOCK, OWNER, '1')
call('PEXPIRE', LOCK, LEASE)
