--#fragment
-- How a reentrant lock stands on the server, as Redisson has it: a hash, owner -> hold count,
-- always with a TTL. A guard's has one more field while it runs, "print", and a record has "done",
-- "print" and "by".
local KIND, KINDS = 'hash', 'lg'
local LAST_OF_FEW = '1' -- of the members that a release looks at: a grant, and a waiter behind it

local function holds_of(lock, owner)
  return tonumber(redis.call('HGET', lock, owner))
end

-- The holder, where nothing stands beside it.
local function first_owner(lock)
  return redis.call('HKEYS', lock)[1]
end

-- Whatever its count is. The key ends with its only field. → whether there was such a hold
local function remove_hold(lock, owner)
  return redis.call('HDEL', lock, owner) == 1
end

-- The first hold, while there is no key.
local function create_hold(lock, owner, ms)
  redis.call('HSET', lock, owner, '1')
  redis.call('PEXPIRE', lock, ms)
end
