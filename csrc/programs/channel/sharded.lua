--#fragment
-- How Redisson announces a release in a cluster that has sharded channels. Redisson clients with
-- shardedSubscriptionMode OFF, or older than 3.22, listen to the plain channel, on the same node. A
-- client of ours that listens to the sharded one listens to another one as well, so it is not taken
-- for one of Redisson's.

--#section announcing
local function plain_waiters(releases)
  return redis.pcall('PUBSUB', 'NUMSUB', releases)[2] or 0
end

-- Clients that wait without a queue: Redisson's. counted: how many listen to the plain channel, if
-- that is known.
local function foreign_waiters(releases, counted)
  local ours = 'holdfast_listening:' .. releases:match('^[^:]*:(.*)$')
  local counts = redis.pcall('PUBSUB', 'SHARDNUMSUB', releases, ours)
  return (counts[2] or 0) - (counts[4] or 0) + (counted or plain_waiters(releases))
end

-- payload: "0" is meant for one waiter, "1" for all. → how many got it. A plain message goes to
-- all nodes, so it is sent only where somebody listens.
local function announce(releases, payload)
  local receivers = tonumber(redis.pcall('SPUBLISH', releases, payload or '0')) or 0
  if plain_waiters(releases) == 0 then return receivers end
  return receivers + (tonumber(redis.pcall('PUBLISH', releases, payload or '0')) or 0)
end
--#end

--#section receivers
-- What announce does.
local receivers = tonumber(redis.pcall('SPUBLISH', RELEASES, '0')) or 0
if (redis.pcall('PUBSUB', 'NUMSUB', RELEASES)[2] or 0) ~= 0 then
  receivers = receivers + (tonumber(redis.pcall('PUBLISH', RELEASES, '0')) or 0)
end
--#end

--#section unqueued
-- What foreign_waiters counts.
local both = redis.pcall('PUBSUB', 'SHARDNUMSUB', RELEASES,
  'holdfast_listening:' .. RELEASES:match('^[^:]*:(.*)$'))
local unqueued = counts[2] and both[2] and counts[2] + both[2] - both[4]
--#end
