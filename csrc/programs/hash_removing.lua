--#fragment
-- A part of release.lua, which would spend more on a function. Reads LOCK and OWNER, and removes
-- the lock if it is this owner's. Defines removed: whether it was; and LAST_OF_FEW: which member of
-- the queue is the last that the release looks at, here a waiter behind a grant.
local LAST_OF_FEW = '1'
local removed = redis.call('HDEL', LOCK, OWNER) == 1
