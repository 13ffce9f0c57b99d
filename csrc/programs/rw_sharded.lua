--#fragment
-- How Redisson announces that a read/write lock has become free in a cluster that has sharded
-- channels; see sharded.lua.
local function plain_waiters()
  return redis.pcall('PUBSUB', 'NUMSUB', RELEASES)[2] or 0
end

-- Clients that wait without a queue: Redisson's.
local function foreign_waiters()
  local ours = 'holdfast_listening:' .. RELEASES:sub(#'redisson_rwlock:' + 1)
  local counts = redis.pcall('PUBSUB', 'SHARDNUMSUB', RELEASES, ours)
  return (counts[2] or 0) - (counts[4] or 0) + plain_waiters()
end

-- → how many heard it; "0" is meant for one waiter, "1" for all
local function announce(text)
  local heard = tonumber(redis.pcall('SPUBLISH', RELEASES, text)) or 0
  if plain_waiters() == 0 then return heard end
  return heard + (tonumber(redis.pcall('PUBLISH', RELEASES, text)) or 0)
end
