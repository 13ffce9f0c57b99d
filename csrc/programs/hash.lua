--#fragment
-- How a reentrant lock stands on the server, as Redisson has it: a hash, owner -> hold count,
-- always with a TTL. It never has a second field. A guard always has one while it runs, "print",
-- and a record has "done", "print" and "by".
local KIND, KINDS = 'hash', 'lg'

local function holds_of(lock, owner)
  return tonumber(redis.call('HGET', lock, owner))
end

-- print: a guard's fingerprint, "": any; nil: it is a lock. → how many fields are new
local function write_hold(lock, owner, holds, print)
  if print then return redis.call('HSET', lock, owner, holds, 'print', print) end
  return redis.call('HSET', lock, owner, holds)
end

-- The first hold, while there is no key.
local function create_hold(lock, owner, ms, print)
  write_hold(lock, owner, '1', print)
--#include "ending.lua"
end
