--#fragment
-- As hash_removing.lua. The last member is a waiter behind the record and a grant.
local LAST_OF_FEW = '2'
local removed = redis.call('GET', LOCK) == OWNER and redis.call('DEL', LOCK) == 1
