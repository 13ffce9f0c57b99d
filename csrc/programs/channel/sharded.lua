--#fragment
-- How Redisson announces a release in a cluster with sharded channels. Redisson clients with
-- shardedSubscriptionMode OFF, or older than 3.22, listen to the plain channel on the same node. If
-- our client listens to the sharded channel, it also listens to a second one. Subtracting the
-- second channel's listeners leaves only Redisson's.

--#section announcing
local function plain_waiters(releases)
  return redis.pcall('PUBSUB', 'NUMSUB', releases)[2] or 0
end

-- → the number of Redisson's waiters, which are not queued. counted: the number of clients
-- subscribed to the plain channel, if known.
local function foreign_waiters(releases, counted)
  local second_channel = 'holdfast_listening:' .. releases:match('^[^:]*:(.*)$')
  local counts = redis.pcall('PUBSUB', 'SHARDNUMSUB', releases, second_channel)
  return (counts[2] or 0) - (counts[4] or 0) + (counted or plain_waiters(releases))
end

-- payload: "0" (default) is for one waiter, "1" for all. A plain message goes to all nodes, so it
-- is sent only if a client is listening. → the number of clients that received it; 0 if refused
local function announce(releases, payload)
  local receivers = tonumber(redis.pcall('SPUBLISH', releases, payload or '0')) or 0
  if plain_waiters(releases) == 0 then return receivers end
  return receivers + (tonumber(redis.pcall('PUBLISH', releases, payload or '0')) or 0)
end
--#end

--#section receivers
-- Announces a release on RELEASES like announce. Straight-line code: see acquire.lua. Defines
-- receivers: the number of clients that received it.
local receivers = tonumber(redis.pcall('SPUBLISH', RELEASES, '0')) or 0
if (redis.pcall('PUBSUB', 'NUMSUB', RELEASES)[2] or 0) ~= 0 then
  receivers = receivers + (tonumber(redis.pcall('PUBLISH', RELEASES, '0')) or 0)
end
--#end

--#section unqueued
-- Defines unqueued: the result of foreign_waiters; nil if that is unknown. Straight-line:
-- see acquire.lua. Reads counts: see plain.lua.
local sharded = redis.pcall('PUBSUB', 'SHARDNUMSUB', RELEASES,
  'holdfast_listening:' .. RELEASES:match('^[^:]*:(.*)$'))
local unqueued = counts[2] and sharded[2] and counts[2] + sharded[2] - sharded[4]
--#end
