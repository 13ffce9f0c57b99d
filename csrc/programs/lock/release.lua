-- Releases one hold, or several of a shared owner. The last one frees the lock and passes it on.
-- Safe to resend, except for a shared owner.
--
-- ARGV[3] remaining      the hold count that remains; 0: free the lock
-- ARGV[4] lease          ms, the minimum TTL of a lock that is still held
-- ARGV[5] release_count  for a shared owner, instead of `remaining`: the holds to release; "": not
--                        shared; "once": free the lock if it is held once
--
-- With the owner as the only argument: frees a lock that is not shared, with a grant lease of 2 s.
--
-- 1 freed; 3 freed, but dead waiters remain: call leave.lua; 2 still held; not held by this owner:
-- -1 the key is gone, -2 another owner holds it
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local LOCK, COUNTER, QUEUE, RELEASES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OWNER, GRANT_MS = ARGV[1], ARGV[2] or '2000'
if ARGV[2] and (ARGV[3] ~= '0' or ARGV[5] ~= '') then
--#include "LAYOUT:layout"
  local REMAINING, LEASE, RELEASE_COUNT = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
  local count = holds_of(LOCK, OWNER)
  if ARGV[5] == 'once' and count and count > 1 then return 2 end
  local remaining = count and (RELEASE_COUNT and count - RELEASE_COUNT or REMAINING) or 0
  if remaining > 0 then
--#include "LAYOUT:holding"
    set_holds(LOCK, OWNER, remaining, LEASE)
    return 2
  end
end

-- The common case, in straight-line code as in acquire.lua: nobody waits, and nobody receives the
-- message.
--#include "LAYOUT:remove"
if not removed then
  return redis.call('EXISTS', LOCK) == 0 and -1 or -2
end
local first_few = redis.pcall('EXISTS', QUEUE) == 1
  and redis.pcall('ZRANGE', QUEUE, '0', LAST_READ, 'WITHSCORES')
if not first_few or first_few.err then
--#include "CHANNEL:receivers"
  if receivers == 0 or not tonumber(receivers) or first_few then return 1 end
  first_few = {}
end

--#include "LAYOUT:hand_over"

--#include "LAYOUT:layout"
--#include "CHANNEL:announcing"
--#include "base/clock.lua"
--#include "token/ranges.lua"
-- Hands over a mutex, a lock with a record, or a lock to an owner that keeps it, before the other
-- functions are created: if the next waiter is listening, and nobody is waiting outside the queue.
do
--#include "queue/member.lua:parse"
--#include "LAYOUT:next"
  local i, now_us
  i, now_us, first_few = next_waiter(first_few)
  local member, place = first_few[i] or '', (first_few[i + 1] or ''):match('^[1-9]%d*$')
  local kind, client, number, ttl_ms, owner = parse(member)
  if kind and place and WAITER_KINDS:find(kind, 1, true) then
    local counts = redis.pcall('PUBSUB', 'NUMSUB', RELEASES, 'holdfast_grant:' .. client)
    if (counts[4] or 0) > 0 and foreign_waiters(RELEASES, counts[2]) == 0 then
      if first_few[i - 1] == '0' then redis.call('ZREM', QUEUE, first_few[i - 2]) end
--#include "queue/granting.lua:giving"
      return 1
    end
  end
end

--#include "base/owners.lua:ours"
--#include "base/owners.lua:redisson_owner"
--#include "queue/placing.lua"
--#include "queue/queue.lua"
if #first_few > 0 then return pass_on(first_few) end
-- The message may also have been received by observers, or by our waiters, which subscribe by
-- pattern; even a receiver on an unreachable host counts.
if foreign_waiters(RELEASES) > 0 then give_foreign_turn(nil) end
return 1
