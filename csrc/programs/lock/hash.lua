--#fragment
-- How a reentrant lock is stored on the server, as Redisson stores it: a hash, owner -> hold count,
-- always with a TTL. It never has a second field. A guard always has one while it runs, "print",
-- and a record has "done", "print" and "by". string.lua has the same sections for a mutex.

--#section layout
local KIND, KINDS = 'hash', 'lg'

local function holds_of(lock, owner)
  return tonumber(redis.call('HGET', lock, owner))
end

-- print: a guard's fingerprint, "": any; nil: it is a lock. → how many fields are new
local function write_hold(lock, owner, holds, print)
  if print then return redis.call('HSET', lock, owner, holds, 'print', print) end
  return redis.call('HSET', lock, owner, holds)
end

-- Creates the hash with the owner's first hold. The key must not exist.
local function create_hold(lock, owner, ms, print)
  write_hold(lock, owner, '1', print)
  --#section ending
  -- Sets the TTL of the lock that the program has just created. If the server refuses that, the
  -- lock is removed, because it would never end, and the program fails. Reads lock and ms.
  if redis.pcall('PEXPIRE', lock, ms) ~= 1 then
    redis.call('DEL', lock)
    redis.call('PEXPIRE', lock, ms)
  end
  --#end
end
--#end

--#section holding
-- Sets the count; never shortens a TTL. It always writes, so that a WAIT behind it waits for what
-- it wrote.
local function set_holds(lock, owner, holds, ms, print)
  if write_hold(lock, owner, holds, print) > 0 then
    -- as in create_hold
    if redis.pcall('PEXPIRE', lock, ms) ~= 1 then
      redis.call('DEL', lock)
      redis.call('PEXPIRE', lock, ms)
    end
  elseif redis.call('PTTL', lock) < tonumber(ms) then
    redis.call('PEXPIRE', lock, ms)
  end
end

-- Fields that stand beside owners, and whose they are: alone, such a field is an owner itself.
local BESIDE = { print = 'guard', done = 'guard', by = 'guard', mode = 'read_write' }

-- → the holder, nil: there is none; the count of `owner`, if that is it; what has the key: "lock",
-- "guard", "read_write", nil: it is gone
local function holder_of(lock, owner)
  local fields = redis.call('HKEYS', lock)
  local holder, kind = nil, fields[1] and 'lock'
  for _, field in ipairs(fields) do
    local beside = fields[2] and BESIDE[field]
    if beside then kind = beside else holder = field end
  end
  return holder, holder and holder == owner and holds_of(lock, owner) or nil, kind
end
--#end

--#section taking
-- OWNER takes the free LOCK for LEASE, in straight lines: see acquire.lua. call is redis.call.
call('HSET', LOCK, OWNER, '1')
local lock, ms = LOCK, LEASE
--#include "lock/hash.lua:ending"
--#end

--#section owning
-- Defines holder, the owner that holds LOCK, in straight lines: see acquire.lua. If LOCK does not
-- exist or is not a lock, holder is nil or false.
local fields = redis.call('HKEYS', LOCK)
local holder = not fields[2] and fields[1]
--#end

--#section removing
-- Removes LOCK if OWNER holds it, in straight lines: see acquire.lua. Defines removed: whether
-- OWNER held it; and LAST_OF_FEW: the index of the last member of the queue that the release reads,
-- here a waiter behind a grant.
local LAST_OF_FEW = '1'
local removed = redis.call('HDEL', LOCK, OWNER) == 1
--#end

--#section handing
-- The common hand-over of a release, in straight lines: see acquire.lua. The first waiter of a lock
-- is listening, and has waited for less than LOCK_PROBE_US; nobody waits without a queue, and the
-- token is the clock, or there is none. Anything else is left to the text that follows, which finds
-- everything as it was: a record, a guard, and an owner that keeps the lock.
do
  local i = first_few[2] == '0' and 3 or 1 -- behind the mark of the grant that ends
  local member, place = first_few[i], (first_few[i + 1] or ''):match('^[1-9]%d*$')
--#include "queue/member.lua:form"
  local kind, client, number, ttl_ms, owner = (place and member or ''):match(MEMBER)
  if owner == '' then owner = client .. ':' .. number end
  if kind == 'l' and #ttl_ms < 16 and owner:byte(38) ~= 48 then
    local counts = redis.pcall('PUBSUB', 'NUMSUB', RELEASES, 'holdfast_grant:' .. client)
--#include "CHANNEL:unqueued"
--#include "base/clock.lua:places"
    local call = redis.call
    local time = (counts[4] or 0) > 0 and unqueued == 0 and call('TIME')
    if time and time[1] * 1000000 + time[2] - place <= LOCK_PROBE_US then
      local drawn, text = ttl_ms == '0', '0'
      if not drawn then
--#include "token/drawing.lua"
      end
      if drawn then
        if i == 3 then call('ZREM', QUEUE, first_few[1]) end
        call('HSET', LOCK, owner, '1')
        local lock, ms = LOCK, GRANT_MS
--#include "lock/hash.lua:ending"
        call('ZADD', QUEUE, '0', member)
        redis.pcall('PUBLISH', 'holdfast_grant:' .. client, '1 grant l ' .. number .. ' ' .. place
          .. ' ' .. text .. ' ' .. GRANT_MS .. ' ' .. LOCK)
        return 1
      end
    end
  end
end
--#end

--#section next
-- The next waiter among the first members of the queue, if it may have the free lock: behind the
-- mark of the grant that ends, if there is one, and not where queue.lua looks for those that poll.
-- → where it stands, behind all of them: nobody may; the server's clock in µs; the members, of
-- which it reads more behind a record
local function next_waiter(few)
  local i, now_us = few[2] == '0' and 3 or 1, server_us()
  if (few[2] or ''):byte() == 45 then -- below 0: a record
--#include_in_function "queue/next_behind_record.lua"
    return next_behind_record(redis.call('ZRANGE', QUEUE, '0', '2', 'WITHSCORES'), now_us)
  end
  local old = now_us - (tonumber(few[i + 1]) or now_us) > LOCK_PROBE_US
  return old and #few + 1 or i, now_us, few
end
--#end
