--#fragment
-- A mutex is the string that SET key owner NX PX creates; its value is the owner. Other clients may
-- set it without a TTL. They poll, so releases are not announced. Sections: see hash.lua.

--#section layout
local KEY_TYPE, WAITER_KINDS = 'string', 'm'

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

--#section take
call('SET', LOCK, OWNER, 'PX', LEASE)
--#end

--#section find_holder
holder = call('GET', LOCK)
--#end

--#section remove
-- The index of the last queue member that a release reads. The first waiter may follow both the
-- record and a grant.
local LAST_READ = '2'
local removed = call('GET', LOCK) == OWNER and call('DEL', LOCK) == 1
--#end

--#section hand_over
-- A mutex has a record before its first waiter, so it has no straight-line hand-over.
--#end

--#section next
--#include "queue/next_behind_record.lua"
-- Finds the next waiter for a free mutex, after the record.
local next_waiter = next_behind_record
--#end
