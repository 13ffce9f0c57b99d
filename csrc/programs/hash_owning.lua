--#fragment
-- A part of following.lua, which would spend more on a function: defines holder, who has LOCK; nil
-- or false: the key is none, or not a lock's.
local fields = redis.call('HKEYS', LOCK)
local holder = not fields[2] and fields[1]
