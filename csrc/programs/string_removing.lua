--#fragment
-- Of the members that a release looks at: the record, a grant, and a waiter behind it.
local LAST_OF_FEW = '2'
local removed = redis.call('GET', LOCK) == OWNER and redis.call('DEL', LOCK) == 1
