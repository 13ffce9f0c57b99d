--#fragment
-- How Redisson announces that a read/write lock has become free, but in a cluster that has sharded
-- channels (rw_sharded.lua).

-- Clients that wait without a queue: Redisson's.
local function foreign_waiters()
  return redis.pcall('PUBSUB', 'NUMSUB', RELEASES)[2] or 0
end

-- → how many heard it; "0" is meant for one waiter, "1" for all
local function announce(text)
  return tonumber(redis.pcall('PUBLISH', RELEASES, text)) or 0
end
