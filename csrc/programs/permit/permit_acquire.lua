--#include "base/keys.lua"
--#include "permit/permit_now.lua"
--#include "permit/pool.lua"
-- Acquires permits, or returns the time until the lease of a permit ends. Safe to resend.
--
-- The arguments are those of acquiring.lua, with 0 for ARGV[3] and ARGV[4], and
-- ARGV[10] permits  the total to set if the semaphore does not exist yet; may be left out: the
--                   caller then waits until a total is set
--
-- { 1, token }                          acquired; token 0: no fencing
-- { 0, ttl ms, ahead, foreign, place, overdue ms }
--                                       taken; ttl -1: no end is known; ahead: waiters that come
--                                       first; foreign 1: this waiter is the first one, and must
--                                       listen to Redisson's releases; overdue: see acquiring.lua
-- { -4 }                                the first waiter has a format that this program does not
--                                       know
-- { -5, permits }                       the total is smaller than the request; a waiter then calls
--                                       permit_leave
local LEASE, TOKEN_TTL, WAITER, PERMITS = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[10])
local ENDLESS = 922337203685477 -- the end that Redisson stores for a lease that never ends

if not FREE and PERMITS then
--#include "CHANNEL:announcing"
  FREE = PERMITS - redis.call('ZCARD', LEASES)
  redis.call('SET', LOCK, string.format('%.0f', FREE))
  if FREE > 0 then announce(RELEASES, FREE) end
end
local first_end = tonumber(redis.call('ZRANGE', LEASES, '0', '0', 'WITHSCORES')[2])

-- The common cases, in straight-line code as in acquire.lua, for an owner that needs one permit: no
-- permit is free, and the owner queues; a permit is free, and nobody waits; or the owner has its
-- permit already, usually because it was granted.
local ONE = (first_end or ENDLESS) > NOW and OWNER:match('^:(%d+)$', 37)
if ONE then
  local owner, number, call = OWNER, ONE, redis.call
--#include "permit/permits.lua:id"
  local none_free = WAITER ~= '' and first_end and (FREE or 1) < 1
  local is_usual = none_free or FREE and FREE > 0
  local own_end = is_usual and call('ZSCORE', LEASES, id)
  local tail_score = is_usual and not own_end
    and (call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2] or -1) + 0
  local has_queue = tail_score ~= -1 -- no member has this score
  if none_free and not own_end then
    local ttl_ms = first_end < ENDLESS and first_end - NOW or -1
--#include "base/clock.lua:places"
    local last, MAY_BE_FIRST = tail_score, not has_queue -- or the queue has only grants
      or tail_score == 0 and call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2] == '0'
    if MAY_BE_FIRST then
--#include "permit/pool_changes.lua:foreign"
      MAY_BE_FIRST = not foreign
    end
--#include "queue/behind.lua"
  elseif is_usual and #TOKEN_TTL < 16 and (own_end or not has_queue) then
    local ttl_ms, drawn, token, token_string = TOKEN_TTL, TOKEN_TTL == '0', 0
    if not drawn then
--#include "token/drawing.lua"
    end
    if drawn then
      local ms = NOW + LEASE
      if own_end then ms = math.max(ms, own_end + 1) end -- see take()
      local low = ms % 1e7 -- as digits of clock.lua
      local till = string.format('%d%07d', (ms - low) / 1e7, low)
      if own_end then
        call('ZADD', LEASES, till, id)
        if WAITER ~= '' then call('ZREM', QUEUE, WAITER) end
        return { 1, token }
      end
      call('INCRBY', LOCK, '-1')
      --#section taking
      -- Takes the permit with this id, which no longer counts as free, until `till`. If the server
      -- refuses that, counts the permit as free again, and fails. Defines added: 1, or 0 if the id
      -- is already in LEASES.
      local added = tonumber(redis.pcall('ZADD', LEASES, 'NX', till, id))
      if not added then
        call('INCRBY', LOCK, '1')
        call('ZADD', LEASES, till, id)
      end
      --#end
      return { 1, token }
    end
  end
end

--#include "base/clock.lua"
--#include "permit/permits.lua"
--#include "token/token.lua"
--#include "permit/pool_changes.lua"
local IDS = ids_of(OWNER)
local reclaimed = first_end and first_end <= NOW and reclaim(#IDS - (FREE or 0)) or 0

local own_end = first_end and first_end_of(LEASES, IDS)

-- Takes the requested permits. The owner may already have some of them, from a grant or because
-- they were set aside. The leases of those do not become shorter, because others know when they
-- end.
local function take()
  local token = next_token(TOKEN_TTL, nil, US)
  local last = #IDS > 1 and last_end_of(LEASES, IDS) or own_end or 0
  take_permits(IDS, math.max(NOW + LEASE, last + 1))
  if WAITER ~= '' then redis.call('ZREM', QUEUE, WAITER) end
  return { 1, token }
end

if own_end then return take() end
if FREE and FREE >= #IDS and redis.call('EXISTS', QUEUE) == 0 then return take() end

--#include "base/owners.lua:ours"
--#include "queue/placing.lua"
--#include "CHANNEL:announcing"
--#include "queue/queueing.lua"
-- No permit is free, and none was reclaimed: no waiter can be served.
local none_free = FREE and FREE < 1 and reclaimed == 0

--#include "queue/foreign_holder.lua:counting"
-- Records that a client of Redisson has taken the permit that was left to listening clients.
-- Redisson's turn is over when that permit is free again.
local function record_taken()
  local members = first_members()
  local record = record_in(members)
  if not record or record.turns > 0 then return end
  if not record.listeners then return count_holder(record, members) end
  write_record(record, 0, 0, 1, 0, math.min(NOW, record.began))
end

local function busy(left_ms, foreign)
  if reclaimed > 0 then
    first_end = tonumber(redis.call('ZRANGE', LEASES, '0', '0', 'WITHSCORES')[2])
  end
  local ttl_ms = left_ms > 0 and left_ms
    or first_end and first_end < ENDLESS and first_end - NOW or -1
  if WAITER == '' then return { 0, ttl_ms, 0, 0, '' } end
  local place, was_queued = enqueue()
  if none_free then record_taken() end
  local ahead, overdue_ms = redis.call('ZCOUNT', QUEUE, '(0', '(' .. place), nil
  if was_queued then
    ahead, overdue_ms = check_ahead(place, ahead, not foreign and redisson_has_permit or nil)
  end
  local listens = ahead == 0 and (foreign or redisson_has_permit())
  return { 0, ttl_ms, ahead, listens and 1 or 0, place, overdue_ms }
end

if none_free and #IDS == 1 then return busy(0, false) end

--#include "permit/permit_granting.lua"
--#include "permit/permit_queue.lua"
--#include "queue/forget_record.lua"
local total = #IDS > 1 and total_permits() or 0
if total > 0 and #IDS > total then return { -5, total } end
settle_missed_grants(OWNER:sub(1, 36))
restore_place()
local kept, left_ms = reserved()
-- The next waiter must listen for Redisson's releases, and ask again when the first lease ends.
-- Notifies that waiter if Redisson has a permit, or if the lease that ends first is this owner's.
local function notify_next_if_needed()
  local ends_first = redis.call('ZRANGE', LEASES, '0', '0')[1]:sub(1, 14) == IDS[1]:sub(1, 14)
  if ends_first or redisson_has_permit() then notify_first() end
end

-- If the first waiter needs several permits, free ones are set aside for it.
local needs_several = (first_in_line() or ''):find('*', 1, true)
if (FREE or 0) > kept and not needs_several and foreign_waiters(RELEASES) > 0
    and let_first_ask(enqueue) then
  if reclaimed > 0 then announce(RELEASES, FREE) end
  return busy(tonumber(GRANT_MS), false)
end
local first_left, more = serve(WAITER, kept)
if more then return busy(1, false) end
if first_left and is_newer(first_left) then return { -4 } end
local free = FREE or 0
if (not first_left or first_left == WAITER) and free - kept >= #lacking(IDS) then
  if kept == 0 and (first_left or foreign_waiters(RELEASES) > 0) then
    begin_our_run(NOW)
  elseif kept == 0 then
    forget_record()
  end
  local reply = take()
  serve(nil, kept) -- others get the remaining reclaimed permits
  if first_left then notify_next_if_needed() end
  return reply
end
-- Reclaimed permits, such as those that were set aside for this waiter, may serve others.
if reclaimed > 0 and free > kept then announce(RELEASES, free) end
return busy(free >= #IDS and left_ms or 0, kept > 0)
