--#include "base/keys.lua"
--#include "permit/permit_now.lua"
--#include "permit/pool.lua"
-- Releases an owner's permits, which go to waiters. Safe to resend.
--
-- ARGV[3] to [5] unused; ARGV[6] the member of an unconfirmed grant, if any
--
-- 1 released; 3 released, but dead waiters remain: call permit_leave.lua; -1 this owner did not
-- have all of the permits
local WAITER, ONE, call = ARGV[6] or '', OWNER:match('^:(%d+)$', 37), redis.call

local freed = 0
if ONE then
  local owner, number = OWNER, ONE
--#include "permit/permits.lua:id"
  freed = call('ZREM', LEASES, id)
end
if WAITER ~= '' then redis.pcall('ZREM', QUEUE, WAITER) end

-- The common hand-over, in straight-line code as in acquire.lua: the one permit goes to the first
-- waiter, which needs one and is listening, no foreign client waits, and there is no record of
-- turns. If Redisson has a permit, the second waiter must be notified, so that case is not handled
-- here.
local first_two = freed == 1 and FREE == 0
  and redis.pcall('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', '0', '2')
if first_two and first_two[1] then
  local member, place = first_two[1], first_two[2]:match('^[1-9]%d*$')
  local owner, number, ttl_ms = (place and member or ''):match('^1p([%x-]+):(%d+):(%d+)$')
  if owner and #ttl_ms < 16 then
    local counts = redis.pcall('PUBSUB', 'NUMSUB', RELEASES, 'holdfast_grant:' .. owner)
--#include "CHANNEL:unqueued"
    local usual = (counts[4] or 0) > 0 and unqueued == 0
      and redis.pcall('ZCOUNT', QUEUE, '-inf', '(-1') == 0
    if usual and first_two[3] then
--#include "permit/pool_changes.lua:foreign"
      usual = not foreign
    end
    local drawn, token_string, token = usual and ttl_ms == '0', '0'
    if usual and not drawn then
--#include "token/drawing.lua"
    end
    if drawn then
--#include "permit/permits.lua:id"
      local ms = NOW + GRANT_MS
      local low = ms % 1e7 -- like digits() in clock.lua
      local till = string.format('%d%07d', (ms - low) / 1e7, low)
--#include "permit/permit_acquire.lua:taking"
      -- If the waiter still has a permit whose lease has ended, that permit counts as taken, so
      -- this one is not needed and must be counted as free, below.
      if added == 1 then
        call('ZADD', QUEUE, '0', member)
        redis.pcall('PUBLISH', 'holdfast_grant:' .. owner,
          '1 grant p ' .. number .. ' ' .. place .. ' ' .. token_string .. ' ' .. GRANT_MS .. ' '
            .. LOCK)
        return 1
      end
    end
  end
end

--#include "base/clock.lua"
--#include "permit/permits.lua"
--#include "token/token.lua"
--#include "CHANNEL:announcing"
--#include "permit/pool_changes.lua"
local IDS = ids_of(OWNER)
freed = ONE and add_free(freed == 1 and IDS or {}) or put_back(IDS)
local reply = freed == #IDS and 1 or -1
local has_queue = redis.call('EXISTS', QUEUE) == 1
if not has_queue and ((FREE or 0) < 1 or announce(RELEASES, FREE) == 0) then return reply end
--#include "base/owners.lua:ours"
--#include "queue/placing.lua"
--#include "permit/permit_passing.lua"
local result = pass_on(freed)
return reply == 1 and result or reply
