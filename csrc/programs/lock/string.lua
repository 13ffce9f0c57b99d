--#fragment
-- A mutex is stored as SET key owner NX PX stores it: a string, the owner. Other clients may set it
-- without a TTL. They poll, so releases are not announced. The sections are those of hash.lua.

--#section layout
local KIND, KINDS = 'string', 'm'

local function holds_of(lock, owner)
  return redis.call('GET', lock) == owner and 1 or nil
end

local function create_hold(lock, owner, ms)
  redis.call('SET', lock, owner, 'PX', ms)
end
--#end

--#section holding
-- Never shortens a TTL: the command may arrive late, after one with a longer lease.
local function set_holds(lock, owner, _, ms)
  redis.call('SET', lock, owner, 'PX', math.max(redis.call('PTTL', lock), tonumber(ms)))
end

local function holder_of(lock, owner)
  local holder = redis.call('GET', lock)
  return holder, holder and holder == owner and 1 or nil, 'lock'
end
--#end

--#section taking
call('SET', LOCK, OWNER, 'PX', LEASE)
--#end

--#section owning
local holder = redis.call('GET', LOCK)
--#end

--#section removing
-- The last member that a release reads is a waiter after the record and a grant.
local LAST_OF_FEW = '2'
local removed = call('GET', LOCK) == OWNER and call('DEL', LOCK) == 1
--#end

--#section handing
-- A mutex has a record before its first waiter, so it has no straight-line hand-over.
--#end

--#section next
--#include "queue/next_behind_record.lua"
-- The next waiter for a free mutex, which has a record before it.
local next_waiter = next_behind_record
--#end
