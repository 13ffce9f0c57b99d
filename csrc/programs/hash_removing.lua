--#fragment
local LAST_OF_FEW = '1' -- of the members that a release looks at: a grant, and a waiter behind it
local removed = redis.call('HDEL', LOCK, OWNER) == 1
