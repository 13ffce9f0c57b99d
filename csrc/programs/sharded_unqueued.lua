--#fragment
-- As plain_unqueued.lua: see foreign_waiters of sharded.lua.
local both = redis.pcall('PUBSUB', 'SHARDNUMSUB', RELEASES,
  'holdfast_listening:' .. RELEASES:match('^[^:]*:(.*)$'))
local unqueued = counts[2] and both[2] and counts[2] + both[2] - both[4]
