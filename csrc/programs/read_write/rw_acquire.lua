--#include "base/keys.lua"
--#include "CHANNEL:announcing"
-- Acquires the lock to read or write, re-enters it, or returns how long it will be taken. Safe to
-- resend.
--
-- ARGV[3] from      the owner's hold count as far as the client knows; the new one is from + 1
-- ARGV[4] unused
-- ARGV[5] lease     ms; a re-entry never shortens the TTL
-- ARGV[6] token ttl ms, 0: no fencing, 2^53 - 1 or more: the counter has no TTL
-- ARGV[7] waiter    its member of the queue, "": do not wait
-- ARGV[11] writer   for a read hold: the owner under which the same caller writes; may be left out
--
-- { 1, token, 0 }                acquired; a write hold draws a token, a read hold has the last
--                                writer's; 0: unchanged, or no fencing
-- a token                        acquired: short for { 1, token, 0 }, see free.lua
-- { 0, ttl ms, ahead, foreign, place, overdue ms }
--                                taken; ttl -1: its end is unknown; ahead: waiters that come first;
--                                foreign 1: a holder does not hand over, or the lock is left to
--                                foreign clients; place: the waiter's, "": not queued; overdue: see
--                                acquiring.lua
-- { -1 } { -2 }                  from > 0, but the hold is lost: -1 the key is gone, -2 others hold
--                                it
-- { -3 }                         a hash without a TTL, which is not a lock
-- { -4 }                         a waiter that comes first has a format that this program does not
--                                know
local FROM, LEASE, TOKEN_TTL = tonumber(ARGV[3]), ARGV[5], ARGV[6]
local WAITER, WRITER = ARGV[7], ARGV[11]
-- The common cases, in straight-line code as in acquire.lua: a writer finds the lock free and
-- nobody waiting, and draws a token from the clock; or a reader arrives when nobody writes or
-- waits. The code that follows handles everything else, such as a counter without a token.
local call = redis.call
local FREE = FROM == 0 and WAITER == '' and OWNER:sub(-6) == ':write'
  and call('EXISTS', LOCK, QUEUE) == 0
--#include "lock/free.lua"
if TOKEN then
  call('HSET', LOCK, 'mode', 'write', OWNER, '1')
  local lock, ms = LOCK, LEASE
--#include "lock/hash.lua:set_ttl"
  return TOKEN
end
local lock_mode = call('HGET', LOCK, 'mode')
local holds = lock_mode and tonumber(call('HGET', LOCK, OWNER)) or 0
if FROM == 0 and holds == 0 and (not lock_mode or lock_mode == 'read') and OWNER:sub(-6) ~= ':write' then
  local free = lock_mode and call('EXISTS', QUEUE) == 0 and foreign_waiters(RELEASES) == 0
    or not lock_mode and call('EXISTS', LOCK, QUEUE) == 0
  local token = free and (TOKEN_TTL == '0' and 0 or tonumber(call('GET', COUNTER)))
  if token and (token > 0 or TOKEN_TTL == '0') and token < 9007199254740983 then
    if not lock_mode then
      call('HSET', LOCK, 'mode', 'read', OWNER, '1')
      local lock, ms = LOCK, LEASE
--#include "lock/hash.lua:set_ttl"
    else
      call('HSET', LOCK, OWNER, '1')
      if call('PTTL', LOCK) < tonumber(LEASE) then call('PEXPIRE', LOCK, LEASE) end
    end
    local tag = LOCK:find('{', 1, true) and LOCK or '{' .. LOCK .. '}'
    call('SET', tag .. ':' .. OWNER .. ':rwlock_timeout:1', '1', 'PX', LEASE)
    return { 1, token, 0 }
  end
end

--#include "base/clock.lua"
--#include "token/token.lua"
--#include "read_write/rw.lua"
local WRITES = is_write(OWNER)

if FROM > 0 then
  if holds == 0 then return { lock_mode and -2 or -1 } end
  set_hold(LOCK, OWNER, FROM + 1, LEASE, holds, true)
  return { 1, 0, 0 }
end
if not lock_mode and redis.call('EXISTS', LOCK) == 1 then
  return redis.error_reply('WRONGTYPE the key holds a lock of another kind')
end

--#include "read_write/rw_token.lua"
local function take()
  local token = WRITES and next_token(TOKEN_TTL) or last_token(TOKEN_TTL)
  set_hold(LOCK, OWNER, 1, LEASE, holds, lock_mode and true or false)
  if WAITER ~= '' then redis.call('ZREM', QUEUE, WAITER) end
  return { 1, token, 0 }
end

if holds > 0 or WRITER and lock_mode == 'write' and redis.call('HEXISTS', LOCK, WRITER) == 1 then
  return take()
end
local joins_readers = lock_mode == 'read' and not WRITES
if (not lock_mode or joins_readers) and redis.call('EXISTS', QUEUE) == 0 then
  if not lock_mode or foreign_waiters(RELEASES) == 0 then return take() end
end

--#include "base/owners.lua:ours"
--#include "queue/placing.lua"
--#include "queue/queueing.lua"
--#include "queue/times.lua:since"
--#include "read_write/rw_queue.lua"
--#include "read_write/rw_settling.lua"
--#include "queue/foreign_holder.lua"
-- Keeps Redisson's readers out while our first waiter is a writer: the longer that writer has
-- waited, the longer at a time. Pauses in between, so that present readers can re-enter. has_ours:
-- whether our readers hold the lock, too; then this is not a run of Redisson's. → the ms until
-- the writer must ask again
local function drain_readers(place, has_ours)
  local now, till = now_ms(), tonumber(lock_mode:match('^drain:(%d+)$'))
  if till and till > now and till - now <= MAX_DRAIN_MS then return till - now end
  local record = record_in(first_members())
  if till then
    write_turn(record, DRAIN_PAUSE_MS, record and record.began)
    end_drain()
    return DRAIN_PAUSE_MS
  end
  local left_ms = record and record.till - now or 0
  if left_ms > 0 and left_ms <= DRAIN_PAUSE_MS then return left_ms end
  if has_ours then forget_record() else record_foreign_holder() end
  local ms = math.max(DRAIN_MS, math.min((now - since_us(place + 0) / 1000) / 8, MAX_DRAIN_MS))
  redis.call('HSET', LOCK, 'mode', string.format('drain:%.0f', now + ms))
  return ms
end

local own_place, overdue_ms
local function ensure_queued()
  own_place = own_place or enqueue()
  return own_place
end

-- Queues the caller if it waits, and passes over first waiters that are dead or have not asked in
-- time.
local function check_first()
  if WAITER == '' then return end
  local place, _ = ensure_queued(), nil
  _, overdue_ms = check_ahead(place, redis.call('ZCOUNT', QUEUE, '(0', '(' .. place), has_foreign)
  lock_mode = settle_drain(lock_mode, WAITER) -- a writer may have been passed over
end

local function busy(ttl_ms, foreign)
  if WAITER == '' then return { 0, ttl_ms, 0, foreign and 1 or 0, '' } end
  local place = ensure_queued()
  local ahead = redis.call('ZCOUNT', QUEUE, '(0', '(' .. place)
  if ahead == 0 then redis.call('PEXPIRE', QUEUE, QUEUE_MS) end
  if ahead == 0 and not foreign and lock_mode then
    local has_ours
    foreign, has_ours = has_foreign()
    if foreign and WRITES and lock_mode ~= 'write' then
      ttl_ms = math.min(ttl_ms, math.ceil(drain_readers(place, has_ours)))
    end
  end
  return { 0, ttl_ms, ahead, foreign and 1 or 0, place, overdue_ms }
end

if lock_mode and lock_mode ~= 'write' and not prune_to_live_reader() then
  redis.call('DEL', LOCK)
  lock_mode = nil
end
local lock_ms = lock_mode and redis.call('PTTL', LOCK) or 0
if lock_ms == -1 then return { -3 } end
if lock_mode == 'write' then
  local is_foreign = has_foreign()
  check_first()
  if is_foreign and first_in_line() then record_foreign_holder()
  elseif is_foreign then forget_record() end -- without waiters, the record would have no TTL
  return busy(lock_ms, false)
end
settle_missed_grants(OWNER:sub(1, 36))
restore_place()
lock_mode = settle_drain(lock_mode, WAITER)
local left_ms = lock_mode and (WRITES and 0 or yield_ms())
  or not lock_mode and foreign_ms(YIELD_MS) or 0
if left_ms > 0 then return busy(lock_mode and left_ms or math.min(left_ms, RECHECK_MS), true) end
if not lock_mode and foreign_waiters(RELEASES) > 0 and let_first_ask(ensure_queued) then
  return busy(tonumber(GRANT_MS), true)
end
if lock_mode then check_first() end
local is_served, newer, more = serve(lock_mode, WAITER, WRITES)
if not lock_mode then begin_our_run(now_ms()) end
if is_served then
  local reply = take()
  -- The next waiter does not know this lease, or that Redisson's readers hold the lock.
  notify(prune_to_first_live(), 'recheck')
  return reply
end
if newer then return { -4 } end
lock_mode = redis.call('HGET', LOCK, 'mode')
return busy(more and 1 or redis.call('PTTL', LOCK), false)
