--#fragment
-- Permits that are taken and come back, and what becomes of those whose lease has ended.
local LEAST_BACK, MOST_BACK = 100, 2000 -- permits of those that are gone that one script takes back

-- Takes what is not the owner's yet.
local function draw(ids, ms)
  local drawn = set_end(LEASES, ids, ms)
  if drawn > 0 then FREE = redis.call('INCRBY', LOCK, -drawn) end
end

-- → how many
local function add_free(removed)
  if removed > 0 and FREE then FREE = redis.call('INCRBY', LOCK, removed) end
  return removed
end

-- → how many of them were taken
local function put_back(ids)
  return add_free(#ids > 0 and redis.call('ZREM', LEASES, unpack(ids)) or 0)
end

-- Takes back the permits of those that are gone, so many if they are wanted. → how many
local function reclaim(wanted)
  local most = math.min(math.max(wanted or 0, LEAST_BACK), MOST_BACK)
  return put_back(redis.call('ZRANGEBYSCORE', LEASES, '-inf', digits(NOW), 'LIMIT', '0', most))
end

local function is_foreign()
--#include "pool_foreign.lua"
  return foreign
end

local function all_permits()
  return (FREE or 0) + redis.call('ZCARD', LEASES)
end
