--#fragment
-- How Redisson announces a release, but in a cluster that has sharded channels (sharded.lua).

-- Clients that wait without a queue: Redisson's.
local function foreign_waiters(releases)
  return redis.pcall('PUBSUB', 'NUMSUB', releases)[2] or 0
end

-- Those, and who listens to the channels: { channel, count, … }
local function listeners(releases, ...)
  local counts = redis.pcall('PUBSUB', 'NUMSUB', releases, ...)
  return counts[2] or 0, counts
end

-- → how many heard it
local function announce(releases, payload)
  return tonumber(redis.pcall('PUBLISH', releases, payload or '0')) or 0
end
