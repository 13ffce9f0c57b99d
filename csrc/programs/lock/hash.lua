--#fragment
-- A reentrant lock is stored as in Redisson: a hash, owner -> hold count, always with a TTL. It
-- never has a second field. A guard also has the field "print" during its run, and a record has
-- "done", "print" and "by". string.lua has the same sections for a mutex.

--#section layout
-- The Redis type of the key, and the letters of the kinds whose waiters get this type of lock.
local KEY_TYPE, WAITER_KINDS = 'hash', 'lg'

local function holds_of(lock, owner)
  return tonumber(redis.call('HGET', lock, owner))
end

-- fingerprint: a guard's, "" for any, or nil for a lock. → the number of new fields
local function write_hold(lock, owner, holds, fingerprint)
  if fingerprint then return redis.call('HSET', lock, owner, holds, 'print', fingerprint) end
  return redis.call('HSET', lock, owner, holds)
end

-- Creates the hash with the owner's first hold. The key must not exist.
local function create_hold(lock, owner, ms, fingerprint)
  write_hold(lock, owner, '1', fingerprint)
  --#section set_ttl
  -- Sets the TTL of the lock that was just created. If the server refuses, removes the lock, which
  -- would otherwise never expire, and fails. Reads lock and ms.
  if redis.pcall('PEXPIRE', lock, ms) ~= 1 then
    redis.call('DEL', lock)
    redis.call('PEXPIRE', lock, ms)
  end
  --#end
end
--#end

--#section holding
-- Sets the count; never shortens a TTL. Always writes, so that a later WAIT covers the hold.
local function set_holds(lock, owner, holds, ms, fingerprint)
  local is_new = write_hold(lock, owner, holds, fingerprint) > 0
  if not is_new and redis.call('PTTL', lock) >= tonumber(ms) then return end
  if redis.pcall('PEXPIRE', lock, ms) == 1 then return end
  if is_new then redis.call('DEL', lock) end -- see create_hold
  redis.call('PEXPIRE', lock, ms)
end

-- Fields that can accompany an owner, and the kind that has them. A single field is an owner.
local KIND_OF_FIELD = { print = 'guard', done = 'guard', by = 'guard', mode = 'read_write' }

-- → the holder or nil; the count of `owner`, if it is the holder; the kind of the key's lock:
-- "lock", "guard", "read_write", or nil if the key is gone
local function holder_of(lock, owner)
  local fields = redis.call('HKEYS', lock)
  local holder, kind = nil, fields[1] and 'lock'
  for _, field in ipairs(fields) do
    local kind_of_field = fields[2] and KIND_OF_FIELD[field]
    if kind_of_field then kind = kind_of_field else holder = field end
  end
  return holder, holder and holder == owner and holds_of(lock, owner) or nil, kind
end
--#end

--#section take
-- OWNER takes the free LOCK for LEASE. Straight-line code: see acquire.lua. call is redis.call.
call('HSET', LOCK, OWNER, '1')
local lock, ms = LOCK, LEASE
--#include "lock/hash.lua:set_ttl"
--#end

--#section find_holder
-- Sets holder to the owner that holds LOCK; to nil if LOCK does not exist, and to false if it has
-- several fields, which a lock never has. Straight-line code: see acquire.lua.
local fields = call('HKEYS', LOCK)
holder = not fields[2] and fields[1]
--#end

--#section remove
-- Removes LOCK if OWNER holds it. Straight-line code: see acquire.lua. Defines removed (whether
-- OWNER held it) and LAST_READ, the index of the last queue member that a release reads. Before the
-- first waiter there may be a grant.
local LAST_READ = '1'
local removed = call('HDEL', LOCK, OWNER) == 1
--#end

--#section hand_over
-- The common case of a hand-over by a release. Straight-line code: see acquire.lua. It applies if
-- the first waiter wants a lock, is listening, and has waited for no longer than LOCK_PROBE_US; if
-- nobody is waiting outside the queue; if the record, if there is one, says that no polling client
-- was seen, and that it is not time to look for one; and if the token comes from the clock, or
-- there is no token. The code that follows handles everything else, such as a guard, or an owner
-- that keeps the lock, and finds nothing changed.
do
  local heads, time = first_few, call('TIME')
  if (heads[2] or ''):byte() == 45 then -- below 0: a record, in the format of record.lua
--#include "queue/due.lua:probing"
    local unused = tonumber(heads[1]:match('^1f %d+ ([1-9]%d*) '))
    local since_ms = time[1] * 1000 + time[2] / 1000 + heads[2]
    -- See is_due.
    local waits = unused and since_ms >= -POLL_MS
      and since_ms < PROBE_MS * 2 ^ math.min(unused - 1, PROBE_DOUBLINGS)
    heads = waits and call('ZRANGE', QUEUE, '1', '2', 'WITHSCORES') or {}
  end
  local i = heads[2] == '0' and 3 or 1 -- after the member of the grant that ends
  -- A place at most LOCK_PROBE_US old is an integer if it has 16 characters. MEMBER of member.lua
  -- takes longer to match: it checks each character of the uuid. Here a client that is listening on
  -- the uuid's channel shows that the uuid is valid.
  local member, place = heads[i] or '', heads[i + 1] or ''
  local client, number, ttl_ms, owner = member:match('^1l([^:]+):(%d+):(%d+) ?(.*)$')
  if owner == '' then owner = client .. ':' .. number end
  if client and #place == 16 and #ttl_ms < 16 and owner:byte(38) ~= 48 then
    local counts = redis.pcall('PUBSUB', 'NUMSUB', RELEASES, 'holdfast_grant:' .. client)
--#include "CHANNEL:unqueued"
--#include "base/clock.lua:places"
    local is_listening = (counts[4] or 0) > 0 and unqueued == 0
    if is_listening and time[1] * 1000000 + time[2] - place <= LOCK_PROBE_US then
      local drawn, token_string, token = ttl_ms == '0', '0'
      if not drawn then
--#include "token/drawing.lua"
      end
      if drawn then
        if i == 3 then call('ZREM', QUEUE, heads[1]) end
        call('HSET', LOCK, owner, '1')
        local lock, ms = LOCK, GRANT_MS
--#include "lock/hash.lua:set_ttl"
        call('ZADD', QUEUE, '0', member)
        redis.pcall('PUBLISH', 'holdfast_grant:' .. client, '1 grant l ' .. number .. ' ' .. place
          .. ' ' .. token_string .. ' ' .. GRANT_MS .. ' ' .. LOCK)
        return 1
      end
    end
  end
end
--#end

--#section next
-- Finds the next waiter for the free lock among the first members of the queue, after the member of
-- the grant that ends, if there is one.
-- → its index in the members, or an index past their end if queue.lua must first look for clients
-- that poll; the server's clock in µs; the members, of which it reads more if there is a record
local function next_waiter(head_members)
  local i, now_us = head_members[2] == '0' and 3 or 1, server_us()
  if (head_members[2] or ''):byte() == 45 then -- below 0: a record
--#include_in_function "queue/next_behind_record.lua"
    return next_behind_record(redis.call('ZRANGE', QUEUE, '0', '2', 'WITHSCORES'), now_us)
  end
  local is_old = now_us - (tonumber(head_members[i + 1]) or now_us) > LOCK_PROBE_US
  return is_old and #head_members + 1 or i, now_us, head_members
end
--#end
