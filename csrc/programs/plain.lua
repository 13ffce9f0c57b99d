--#fragment
-- How Redisson announces a release, but in a cluster that has sharded channels (sharded.lua).

-- Clients that wait without a queue: Redisson's.
local function foreign_waiters(releases)
  return redis.pcall('PUBSUB', 'NUMSUB', releases)[2] or 0
end

local function announce(releases)
  redis.pcall('PUBLISH', releases, '0')
end
