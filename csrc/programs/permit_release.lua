--#include "keys.lua"
--#include "clock.lua"
--#include "permit_id.lua"
--#include "pool.lua"
-- Gives an owner's permits back; they go to those that wait.
--
-- ARGV[3] to [5] are those of release.lua; ARGV[6] the member of the queue that the permits were
-- granted to, if any
--
-- 1 given back, 3 given back, and dead waiters are left to be removed before the next one is
-- served; -1 not all of them were this owner's
local WAITER, ONE = ARGV[6] or '', OWNER:match('^:(%d+)$', 37)

local freed = ONE and redis.call('ZREM', LEASES, first_id(OWNER, ONE)) or 0
if WAITER ~= '' then redis.pcall('ZREM', QUEUE, WAITER) end

-- The common hand-over before the rest is made: the one permit goes to the first waiter, which
-- needs one and listens, and no client is there that knows no queue. Whoever is behind that waiter
-- would have to be told of a permit that Redisson has.
local head = freed == 1 and FREE == 0
  and redis.pcall('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', '0', '2')
if head and head[1] then
--#include "token.lua"
--#include "permit_granting.lua"
  local member, place = head[1], head[2]
  local client, number, ttl_ms = member:match('^1p([%x-]+):(%d+):(%d+)$')
--#include "pool_foreign.lua"
--#include "releases.lua"
  local counts = redis.pcall('PUBSUB', 'NUMSUB', RELEASES, 'holdfast_grant:' .. (client or ''))
  if client and place:find('^[1-9]%d*$') and (counts[4] or 0) > 0
    and foreign_waiters(RELEASES, counts[2]) == 0 and (not head[3] or not is_foreign()) then
    redis.call('ZADD', LEASES, digits(NOW + GRANT_MS), first_id(client, number))
    announce_grant(member, place, client, number, ttl_ms)
    return 1
  end
end

--#include "permits.lua"
--#include "token.lua"
--#include "releases.lua"
--#include "pool_changes.lua"
local IDS = ids_of(OWNER)
freed = ONE and add_free(freed) or put_back(IDS)
local done = freed == #IDS and 1 or -1
local waits = redis.call('EXISTS', QUEUE) == 1
if not waits and ((FREE or 0) < 1 or announce(RELEASES, FREE) == 0) then return done end
--#include "ours.lua"
--#include "placing.lua"
--#include "permit_passing.lua"
local passed = pass_on(freed)
return done == 1 and passed or done
