--#fragment
-- How Redisson announces a release, except in a cluster that has sharded channels: sharded.lua has
-- the same sections for that, and silent.lua for a mutex.

--#section announcing
-- Clients that wait without a queue: Redisson's. counted: how many listen to this channel, if that
-- is known.
local function foreign_waiters(releases, counted)
  return counted or redis.pcall('PUBSUB', 'NUMSUB', releases)[2] or 0
end

-- payload: "0" is meant for one waiter, "1" for all. → how many got it
local function announce(releases, payload)
  return tonumber(redis.pcall('PUBLISH', releases, payload or '0')) or 0
end
--#end

--#section receivers
-- Announces a release on RELEASES, in straight lines: see acquire.lua. Defines receivers: how many
-- clients got it; an error if the client may not publish.
local receivers = redis.pcall('PUBLISH', RELEASES, '0')
--#end

--#section unqueued
-- Defines unqueued: how many clients wait without a queue, in straight lines: see acquire.lua.
-- Reads counts: what PUBSUB NUMSUB says of RELEASES and of one more channel.
local unqueued = counts[2]
--#end
