--#fragment
-- How Redisson announces a release, except in a cluster with sharded channels. sharded.lua has the
-- same sections for such a cluster, and silent.lua has those that a mutex needs.

--#section announcing
-- → the number of Redisson's waiters, which are not queued. counted: the number of clients
-- subscribed to this channel, if known.
local function foreign_waiters(releases, counted)
  return counted or redis.pcall('PUBSUB', 'NUMSUB', releases)[2] or 0
end

-- payload: "0" (default) is for one waiter, "1" for all. → the number of clients that received it;
-- 0 if this client may not publish
local function announce(releases, payload)
  return tonumber(redis.pcall('PUBLISH', releases, payload or '0')) or 0
end
--#end

--#section receivers
-- Announces a release on RELEASES. Straight-line code: see acquire.lua. Defines receivers: the
-- number of clients that received it, or an error if this client may not publish.
local receivers = redis.pcall('PUBLISH', RELEASES, '0')
--#end

--#section unqueued
-- Defines unqueued: the number of waiters that are not queued; nil if that is unknown.
-- Straight-line code: see acquire.lua. Reads counts: the reply of PUBSUB NUMSUB for RELEASES and
-- one more channel.
local unqueued = counts[2]
--#end
