--#fragment
-- How Redisson announces a release, except in a cluster with sharded channels. sharded.lua has the
-- same sections for such a cluster, and silent.lua those that a mutex needs.

--#section announcing
-- → how many clients wait without a queue: Redisson's. counted: how many are subscribed to this
-- channel, if known.
local function foreign_waiters(releases, counted)
  return counted or redis.pcall('PUBSUB', 'NUMSUB', releases)[2] or 0
end

-- payload: "0", the default, is for one waiter, "1" for all. → how many clients received it; 0 if
-- this client may not publish
local function announce(releases, payload)
  return tonumber(redis.pcall('PUBLISH', releases, payload or '0')) or 0
end
--#end

--#section receivers
-- Announces a release on RELEASES. Straight-line: see acquire.lua. Defines receivers: how many
-- clients received it, or an error if this client may not publish.
local receivers = redis.pcall('PUBLISH', RELEASES, '0')
--#end

--#section unqueued
-- Defines unqueued: how many clients wait without a queue; nil if the server does not say.
-- Straight-line: see acquire.lua. Reads counts: the reply of PUBSUB NUMSUB for RELEASES and one
-- more channel.
local unqueued = counts[2]
--#end
