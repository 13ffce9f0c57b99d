--#fragment
-- How Redisson announces a release, but in a cluster that has sharded channels (sharded.lua).

-- Clients that wait without a queue: Redisson's. counted: how many listen to this channel, if that
-- is known.
local function foreign_waiters(releases, counted)
  return counted or redis.pcall('PUBSUB', 'NUMSUB', releases)[2] or 0
end

-- payload: "0" is meant for one waiter, "1" for all. → how many got it
local function announce(releases, payload)
  return tonumber(redis.pcall('PUBLISH', releases, payload or '0')) or 0
end
