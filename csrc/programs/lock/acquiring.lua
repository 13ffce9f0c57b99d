--#fragment
-- Acquires the lock, re-enters it, or returns how long it will be taken. Safe to resend.
--
-- ARGV[3] from      the owner's hold count as far as the client knows; the new one is from + 1
-- ARGV[4] shared    1: other processes may also use this owner, and may have increased the count
-- ARGV[5] lease     ms; a re-entry never shortens the TTL
-- ARGV[6] token ttl ms, 0: no fencing, 2^53 - 1 or more: the counter has no TTL
-- ARGV[7] waiter    the waiter's member of the queue, "": do not wait
-- ARGV[8] print     guards: the request's fingerprint, "": any; for a lock, FINGERPRINT is nil
-- ARGV[9] floor     quorums: the minimum token; the reply then has the server's clock
-- ARGV[10], ARGV[11] are for other kinds: permit_acquire.lua, rw_acquire.lua
--
-- The program of a lock or mutex also accepts three arguments: owner, lease and token TTL. The
-- others are then 0 or "", and the grant lease is 2 s.
--
-- a token                        acquired: short for { 1, token, 0 }
-- { 1, token, others, clock µs, last }
--                                acquired; token 0: unchanged, or no fencing; others: the server's
--                                count minus (from + 1), not 0 if a shared owner was granted the
--                                lock in the meantime; last: the last token of the range of an
--                                owner that keeps the lock
-- { 0, ttl ms, ahead, foreign, place, overdue ms }
--                                taken; ttl -1: its end is unknown; ahead: waiters that come first;
--                                foreign 1: the holder does not hand over, or the free lock is left
--                                to foreign clients; 2: the holder keeps the lock, and its client
--                                did not receive the request; place: the waiter's,
--                                "": not queued; overdue: ms until the first waiter is passed over
--                                unless it asks again, only if this waiter has to check that
-- { 2, count }                   another process of this shared owner holds it
-- { -1 } { -2 }                  from > 0, but the hold is lost: -1 the key is gone, -2 another
--                                owner holds it
-- { -3 }                         a hash without a TTL, which is not a lock
-- { -4 }                         the first waiter has a format that this program does not know
-- { -6, kind }                   the key belongs to another kind: "lock", "guard", "read_write"
local FROM, SHARED, WAITER, FLOOR = tonumber(ARGV[3]), ARGV[4] == '1', ARGV[7], tonumber(ARGV[9])
local EXPECTED_KIND = FINGERPRINT and 'guard' or 'lock'

-- → the hold's token. A re-entry keeps its token. A process that joins a shared owner gets the
-- current token, or draws one if the counter was lost.
local function hold_token()
  if FROM == 0 then return next_token(TOKEN_TTL, FLOOR, nil, keeps(OWNER) and range_end) end
  if not SHARED or TOKEN_TTL == '0' then return 0 end
  return token_in(redis.call('GET', COUNTER)) or next_token(TOKEN_TTL, FLOOR)
end

-- Notifies the client of `owner`, an owner that keeps the lock, that others want the lock.
-- → whether that client is listening
local function request_lock(owner)
  return redis.pcall('PUBLISH', 'holdfast_grant:' .. owner:sub(1, 36), '1 wish ' .. owner:sub(38))
    ~= 0
end

local function take(others)
  local token, last = hold_token()
  set_holds(LOCK, OWNER, FROM + 1 + others, LEASE, FINGERPRINT)
  if WAITER ~= '' then redis.call('ZREM', QUEUE, WAITER) end
  if FROM == 0 and keeps(OWNER) and redis.call('ZCARD', QUEUE) > 0 then request_lock(OWNER) end
  return { 1, token, others, FLOOR and server_us() or last and 0, last }
end

local function is_granted()
  return WAITER ~= '' and tonumber(redis.call('ZSCORE', QUEUE, WAITER)) == 0
end

--#include "queue/foreign_holder.lua"

-- Called for a new waiter at `place`, behind a waiter at `last`. If a multiple of LOCK_PROBE_US
-- lies between these two places, writes a record that shows the age of a lock's queue even if each
-- waiter waits for less than LOCK_PROBE_US. The record is due after LOCK_PROBE_US: see due.lua.
local function record_lasting_queue(last, place)
  local last_period, period = math.floor(last / LOCK_PROBE_US), math.floor(place / LOCK_PROBE_US)
  if last_period == period or WAITER:sub(2, 2) ~= 'l' or record_in(first_members()) then return end
  write_record(nil, 0, 4, 0, 0, now_ms())
end

--#include "queue/queueing.lua"
local function busy(ttl_ms, foreign, holder)
  if WAITER == '' then return { 0, ttl_ms, 0, foreign and 1 or 0, '' } end
  local place, was_queued, last = enqueue()
  if last and last > FRONT_MAX then record_lasting_queue(last, place) end
  local ahead, overdue_ms = redis.call('ZCOUNT', QUEUE, '(0', '(' .. place), nil
  local is_kept = holder and not foreign and keeps(holder)
  if foreign or is_kept then
    ahead, overdue_ms = check_ahead(place, ahead, nil, is_kept and 2)
  elseif was_queued then
    redis.call('PEXPIRE', QUEUE, QUEUE_MS)
  end
  local is_deaf = is_kept and ahead == 0 and not request_lock(holder)
  return { 0, ttl_ms, ahead, foreign and 1 or is_deaf and 2 or 0, place, overdue_ms }
end

local lock_ms = redis.call('PTTL', LOCK)
if lock_ms ~= -2 then
  local holder, count, kind = holder_of(LOCK, OWNER)
  if count and kind == EXPECTED_KIND then
    if not SHARED then return take(0) end
    -- The count already includes the hold that was granted.
    if is_granted() then return take(count - 1 - FROM) end
    if FROM > 0 and count == FROM then return take(0) end
    return { 2, count }
  end
  if FROM > 0 then return { -2 } end
  if lock_ms == -1 and KEY_TYPE == 'hash' then return { -3 } end
  if kind ~= EXPECTED_KIND then return { -6, kind } end
  local foreign = holder and not holder:find(OUR_OWNER)
  local is_redisson = foreign and KEY_TYPE == 'hash' and holder:find(REDISSON_OWNER)
  if is_redisson and not FLOOR then keep_counter() end
  if foreign and WAITER ~= '' and (is_redisson or KEY_TYPE == 'string') then
    record_foreign_holder()
  end
  return busy(lock_ms, foreign, holder)
end
if FROM > 0 then return { -1 } end
--#include "queue/runs.lua"
if is_granted() then
  begin_our_run(now_ms())
  return take(0)
end

--#include "queue/queue.lua"
-- The lock is free. The caller gets it unless others come first.
restore_place()
settle_missed_grant(WAITER ~= '' and client_of(WAITER) or OWNER:sub(1, 36))
local left_ms = FINGERPRINT and 0 or foreign_ms(POLL_MS) -- foreign clients have no guards
if left_ms > 0 then return busy(left_ms, true) end
local function is_after_foreign_turn()
  local record = record_in(first_members())
  return record and record.turns == 0 and record.unused == 0
end

if is_after_foreign_turn() and let_first_ask(enqueue) then
  return busy(tonumber(GRANT_MS), true)
end
local handed_over = hand_over(WAITER)
begin_our_run(now_ms())
if handed_over then
  local holder, _, kind = holder_of(LOCK)
  if kind ~= EXPECTED_KIND then return { -6, kind } end
  return busy(tonumber(GRANT_MS), false, holder)
end
if handed_over == nil then return busy(1, false) end
if is_newer(first_after_record() or '') then return { -4 } end
return take(0)
