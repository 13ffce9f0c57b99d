--#fragment
-- Takes the lock, enters it again, or tells how long it is taken. Safe to send twice.
--
-- ARGV[3] from      the count the owner knows of; the new one is from + 1
-- ARGV[4] shared    1: other processes may use this owner, so a count it does not know of is theirs
-- ARGV[5] lease     ms; a re-entry never shortens the one that runs
-- ARGV[6] token ttl ms, 0: no fencing, 2^53 - 1 or more: the counter has no TTL
-- ARGV[7] waiter    its member of the queue, "": do not wait
-- ARGV[8] print     of a guard: the request's fingerprint, "": any; PRINT, nil: it is a lock
-- ARGV[9] floor     of a quorum: the token is at least this, and the reply tells the server's clock
-- ARGV[10], ARGV[11] of other kinds: permit_acquire.lua, rw_acquire.lua
--
-- A lock or mutex may be asked for by owner, lease and token ttl alone: the rest is 0 or "" then,
-- and the grant lease is 2 s.
--
-- { 1, token, others, clock µs, last }
--                                acquired; token 0: unchanged, or no fencing; `others`: by how many
--                                more, or less, than from + 1 the server counts, where a grant came
--                                meanwhile; last: of an owner that keeps the lock the last token of
--                                its range
-- { 0, ttl ms, ahead, foreign, place, overdue ms }
--                                busy, a TTL of -1: without end; `ahead` waiters come first;
--                                foreign 1: the holder will not hand over; 2: it keeps the lock,
--                                and its client does not listen for wishes; the waiter
--                                stands at `place`, "": in no queue; overdue: when the first waiter
--                                is passed over unless it asks again; only where waiters check it
-- { 2, count }                   another process of this shared owner holds it
-- { -1 } { -2 }                  from > 0 but the hold is gone: the key is gone, another owner has
--                                it
-- { -3 }                         a hash without TTL, which no lock leaves behind
-- { -4 }                         the first waiter is of a format that this program does not know
-- { -6, kind }                   another kind has the key: "lock", "guard", "read_write"
local FROM, SHARED, WAITER, FLOOR = tonumber(ARGV[3]), ARGV[4] == '1', ARGV[7], tonumber(ARGV[9])
local WANTED = PRINT and 'guard' or 'lock'

-- A re-entry keeps its token; another process that joins a shared owner has yet to learn it, or to
-- draw one if the counter was lost.
local function token_of_hold()
  if FROM == 0 then return next_token(TOKEN_TTL, FLOOR, nil, keeps(OWNER) and range_end) end
  if not SHARED or TOKEN_TTL == '0' then return 0 end
  return token_in(redis.call('GET', COUNTER)) or next_token(TOKEN_TTL, FLOOR)
end

-- The client of this owner keeps the lock: tells it that others want it. → whether it listens
local function send_wish(owner)
  return redis.pcall('PUBLISH', 'holdfast_grant:' .. owner:sub(1, 36), '1 wish ' .. owner:sub(38))
    ~= 0
end

local function take(others)
  local token, last = token_of_hold()
  set_holds(LOCK, OWNER, FROM + 1 + others, LEASE, PRINT)
  if WAITER ~= '' then redis.call('ZREM', QUEUE, WAITER) end
  if FROM == 0 and keeps(OWNER) and redis.call('ZCARD', QUEUE) > 0 then send_wish(OWNER) end
  return { 1, token, others, FLOOR and server_us() or last and 0, last }
end

local function granted()
  return WAITER ~= '' and tonumber(redis.call('ZSCORE', QUEUE, WAITER)) == 0
end

-- A client that knows no queue has the lock: those that poll get turns from now on.
local function note_foreign()
  local was, now = record_in(first_members()), now_ms()
  local noted = was and was.turns == 0 and was.unused == 0 and not was.listeners
  if noted and was.till <= now then return end
  write_record(was, 0, 0, false, 0, was and was.listeners and math.min(now, was.began) or now)
end

-- Somebody has waited since the LOCK_PROBE_US of the server's clock before this one, when `last`
-- came. Each waiter of a queue may wait for less, so from now on a record tells how old the queue
-- of a lock is. It is due in LOCK_PROBE_US: due.lua.
local function note_lasting_queue(last, place)
  local before, now = math.floor(last / LOCK_PROBE_US), math.floor(place / LOCK_PROBE_US)
  if before == now or WAITER:sub(2, 2) ~= 'l' or record_in(first_members()) then return end
  write_record(nil, 0, 4, false, 0, now_ms())
end

--#include "queue/queueing.lua"
local function busy(ttl_ms, foreign, holder)
  if WAITER == '' then return { 0, ttl_ms, 0, foreign and 1 or 0, '' } end
  local place, stood, last = enqueue()
  if last and last > FRONT_MOST then note_lasting_queue(last, place) end
  local ahead, overdue_ms = redis.call('ZCOUNT', QUEUE, '(0', '(' .. place), nil
  local kept = holder and not foreign and keeps(holder)
  if foreign or kept then
    ahead, overdue_ms = check_ahead(place, ahead, nil, kept and 2)
  elseif stood then
    redis.call('PEXPIRE', QUEUE, QUEUE_MS)
  end
  local deaf = kept and ahead == 0 and not send_wish(holder)
  return { 0, ttl_ms, ahead, foreign and 1 or deaf and 2 or 0, place, overdue_ms }
end

local lock_ms = redis.call('PTTL', LOCK)
if lock_ms ~= -2 then
  local holder, count, kind = holder_of(LOCK, OWNER)
  if count and kind == WANTED then
    if not SHARED then return take(0) end
    -- its grant is counted already
    if granted() then return take(count - 1 - FROM) end
    if FROM > 0 and count == FROM then return take(0) end
    return { 2, count }
  end
  if FROM > 0 then return { -2 } end
  if lock_ms == -1 and KIND == 'hash' then return { -3 } end
  if kind ~= WANTED then return { -6, kind } end
  local foreign = holder and not holder:find(OURS)
  local java = foreign and KIND == 'hash' and holder:find(JAVAS)
  if java and not FLOOR then keep_counter() end
  if foreign and WAITER ~= '' and (java or KIND == 'string') then note_foreign() end
  return busy(lock_ms, foreign, holder)
end
if FROM > 0 then return { -1 } end
if granted() then return take(0) end

--#include "queue/queue.lua"
--#include "queue/runs.lua"
-- Nobody holds it: it is the caller's unless others come first.
take_up_place()
settle_missed_grant(WAITER ~= '' and client_of(WAITER) or OWNER:sub(1, 36))
local left = PRINT and 0 or foreign_ms(POLL_MS) -- nobody else runs what a guard guards
if left > 0 then return busy(left, true) end
local function after_foreign()
  local was = record_in(first_members())
  return was and was.turns == 0 and was.unused == 0
end

if after_foreign() and is_behind_first(enqueue) then return busy(tonumber(GRANT_MS), true) end
if OWNER:find(OURS) then note_ours() end
local given = hand_over(WAITER)
if given then
  local holder, _, kind = holder_of(LOCK)
  if kind ~= WANTED then return { -6, kind } end
  return busy(tonumber(GRANT_MS), false, holder)
end
if given == nil then return busy(1, false) end
if is_newer(first() or '') then return { -4 } end
return take(0)
