--#fragment
-- How Redisson announces a release in a cluster that has sharded channels. None of ours listens there.

-- Clients that wait without a queue: Redisson's.
local function foreign_waiters(releases)
  return redis.pcall('PUBSUB', 'SHARDNUMSUB', releases)[2] or 0
end

local function announce(releases)
  redis.pcall('SPUBLISH', releases, '0')
end
