--#fragment
-- How Redisson announces a release in a cluster with sharded channels. Redisson clients with
-- shardedSubscriptionMode OFF, or older than 3.22, listen to the plain channel, on the same node. A
-- client of ours that listens to the sharded channel also listens to a second one, whose listeners
-- are subtracted: only Redisson's count.

--#section announcing
local function plain_waiters(releases)
  return redis.pcall('PUBSUB', 'NUMSUB', releases)[2] or 0
end

-- → how many clients wait without a queue: Redisson's. counted: how many are subscribed to the
-- plain channel, if known.
local function foreign_waiters(releases, counted)
  local ours = 'holdfast_listening:' .. releases:match('^[^:]*:(.*)$')
  local counts = redis.pcall('PUBSUB', 'SHARDNUMSUB', releases, ours)
  return (counts[2] or 0) - (counts[4] or 0) + (counted or plain_waiters(releases))
end

-- payload: "0", the default, is for one waiter, "1" for all. A plain message goes to all nodes, so
-- it is sent only if a client is listening. → how many clients received it; a refused message
-- counts 0
local function announce(releases, payload)
  local receivers = tonumber(redis.pcall('SPUBLISH', releases, payload or '0')) or 0
  if plain_waiters(releases) == 0 then return receivers end
  return receivers + (tonumber(redis.pcall('PUBLISH', releases, payload or '0')) or 0)
end
--#end

--#section receivers
-- Announces a release on RELEASES as announce does. Straight-line: see acquire.lua. Defines
-- receivers: how many clients received it.
local receivers = tonumber(redis.pcall('SPUBLISH', RELEASES, '0')) or 0
if (redis.pcall('PUBSUB', 'NUMSUB', RELEASES)[2] or 0) ~= 0 then
  receivers = receivers + (tonumber(redis.pcall('PUBLISH', RELEASES, '0')) or 0)
end
--#end

--#section unqueued
-- Defines unqueued: what foreign_waiters returns; nil if the server does not say. Straight-line:
-- see acquire.lua. Reads counts, as in plain.lua.
local both = redis.pcall('PUBSUB', 'SHARDNUMSUB', RELEASES,
  'holdfast_listening:' .. RELEASES:match('^[^:]*:(.*)$'))
local unqueued = counts[2] and both[2] and counts[2] + both[2] - both[4]
--#end
