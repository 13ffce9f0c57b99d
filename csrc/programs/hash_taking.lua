--#fragment
-- A part of head.lua, which would spend more on a function: OWNER takes the free LOCK for LEASE.
-- call is redis.call.
call('HSET', LOCK, OWNER, '1')
local lock, ms = LOCK, LEASE
--#include "ending.lua"
