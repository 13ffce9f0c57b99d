--#fragment
-- A part of permit_acquire.lua and permit_release.lua, which would spend more on a function: the
-- permit with this id, which no longer counts as free, is taken until `till`. If the server refuses
-- that, the permit is free, and the program fails.
if not tonumber(redis.pcall('ZADD', LEASES, till, id)) then
  call('INCRBY', LOCK, '1')
  call('ZADD', LEASES, till, id)
end
