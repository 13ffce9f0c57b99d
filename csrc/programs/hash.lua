--#fragment
-- How a reentrant lock stands on the server, as Redisson has it: a hash, owner -> hold count, always with a TTL.
local KIND = 'hash'

local function holds_of(lock, owner)
  return tonumber(redis.call('HGET', lock, owner))
end

-- Sets the count; never shortens a TTL.
local function set_holds(lock, owner, count, ms)
  redis.call('HSET', lock, owner, count)
  if redis.call('PTTL', lock) < tonumber(ms) then redis.call('PEXPIRE', lock, ms) end
end

local function holder_of(lock)
  return redis.call('HKEYS', lock)[1]
end

--#include "releases.lua"
