--#fragment
-- Shared by the programs that acquire, pass on or leave a lock. See docs/reference/protocol.md.
--
-- KEYS[1] the lock
-- KEYS[2] its fencing counter
-- KEYS[3] its queue: a sorted set, the lowest score is served first
--           score >  0   a waiter, "1<kind><client uuid>:<number>:<token ttl ms>[ <owner>]"; the
--                        score is its place, which is never used twice; the default owner is
--                        <client uuid>:<number>
--           score == 0   a waiter that was granted the lock and has not confirmed it
--           -1 to 0      a waiter that was passed over: passing_over.lua
--           score < -1   the record of foreign clients: record.lua
-- KEYS[4] the channel on which Redisson announces a release
-- ARGV[1] owner, ARGV[2] grant lease in ms
local POLL_RECHECK_MS = 20 -- the first waiter then asks whether a polling client has come
local LAST_OF_THREE = '2' -- the index of the last of three members: record, grant and waiter

--#include "queue/members.lua"
--#include "queue/settling.lua"
--#include "queue/granting.lua"
--#include "queue/due.lua"
--#include "queue/turns.lua"

-- → the first member after the record, and its score
local function first_after_record()
  local members = first_members()
  local i = record_in(members) and 3 or 1
  return members[i], tonumber(members[i + 1])
end

-- Settles a grant in the queue of a free lock: the client that received it died, or was paused for
-- longer than the grant lease. If `client` received the grant, it is asking now and therefore
-- alive, so its waiter goes to the front. Otherwise, all waiters of the client that received it are
-- evicted.
local function settle_missed_grant(client)
  local member = redis.call('ZRANGEBYSCORE', QUEUE, '0', '0', 'LIMIT', '0', '1')[1]
  if not member then return end
  if client_of(member) ~= client then return evict(client_of(member)) end
  redis.call('ZADD', QUEUE, front_place(), member)
end

-- Removes the members between the record and the first waiter that can be served, and a record
-- without waiters; the lock is free or about to be. The member `me` can be served, and a waiter in
-- a newer format serves itself. `members`: the first ones with their scores, if known.
-- → that waiter's member and its place, or nil and nil; the number of foreign waiters, or nil if no
-- waiter was read; whether more members must be removed
local function prune_to_first_waiter(me, members)
  local foreign
  for batch = -1, MAX_BATCHES do
    local last = batch < 1 and LAST_OF_THREE or BATCH - 1
    members = batch < 0 and members or redis.pcall('ZRANGE', QUEUE, '0', last, 'WITHSCORES')
    local record = record_in(members)
    local from = record and 3 or 1
    if #members < from then
      if record and record.turns == 0 then redis.call('DEL', QUEUE) end
      return nil, nil, foreign
    end
    local alive, counted = listening(members, from)
    local gone, found = {}, nil
    foreign = foreign or foreign_waiters(RELEASES, counted)
    for i = from, #members, 2 do
      local waits = tonumber(members[i + 1]) > 0
      if members[i] == me or waits and not reject_unservable(members[i], alive) then
        found = i
        break
      end
      gone[#gone + 1] = members[i]
    end
    if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end
    if found then return members[found], tonumber(members[found + 1]), foreign end
  end
  return nil, nil, foreign, true
end

local function grant(member, place)
  give(member, format_place(place), parse(member))
end

-- Gives the free lock to the first waiter. During our run this counts as another turn, so
-- call begin_our_run only afterwards. Stops before the member `me`, which can take the lock itself.
-- → true: given; false: not given; nil: there may be a waiter behind dead ones, which the next
-- script removes
local function hand_over(me)
  local member, place, _, more = prune_to_first_waiter(me)
  if more then return nil end
  if not member or member == me or is_newer(member) then return false end
  local record = record_in(first_members())
  if record and record.turns > 0 then
    write_record(record, record.turns + 1, 0, record.holders, record.run, record.till)
  end
  grant(member, place)
  return true
end

-- Leaves the free lock to others for `ms`, even if our callers arrive in the meantime; our
-- first waiter must ask again after `recheck_ms`. member: that waiter, or nil.
local function leave_free(record, ms, recheck_ms, unused, listeners, member)
  local run = listeners and ms - LISTEN_MS or 0
  write_record(record, 0, unused, listeners and '-' or 0, run, now_ms() + ms)
  notify(member, 'turn', recheck_ms)
  if redis.call('ZCARD', QUEUE) == 1 then redis.call('PEXPIRE', QUEUE, ms) end
end

-- Leaves the lock to Redisson's waiters.
local function give_foreign_turn(record, member)
  keep_counter()
  local ms = listen_ms(record)
  leave_free(record, ms, ms, record and record.unused or 0, true, member)
end

-- Returns whether a lock's first waiter has waited so long that the lock must be left to polling
-- clients, although no such client is known. If each wait in a queue is short, acquiring.lua writes
-- a record instead.
local function is_old(member, place)
  return parse(member) == 'l' and place > FRONT_MAX and server_us() - place > LOCK_PROBE_US
end

-- Leaves the free lock to polling clients if their turn has come, and otherwise updates the record
-- for our own turn. → whether the lock is left to them
local function leave_to_pollers(record, member, place)
  if not record and KEY_TYPE == 'hash' then
    if not is_old(member, place) then return false end
    leave_free(nil, POLL_MS, POLL_RECHECK_MS, LOCK_UNUSED, false, member)
    return true
  end
  local now = now_ms()
  local pollers_seen = record and record.unused == 0
  if record and is_due(record, now) then
    leave_free(record, POLL_MS, POLL_RECHECK_MS, record.unused + 1, false, member)
    return true
  end
  -- There is no record yet, or a shared owner of ours was taken for a polling client.
  if not record or pollers_seen and record.turns == 0 and not OWNER:find(OUR_OWNER) then
    write_record(record, 0, 1, 0, 0, now)
  elseif pollers_seen then
    write_record(record, record.turns + 1, 0, record.holders, record.run, record.till)
  end
  return false
end

-- Frees the lock, and hands it over or leaves it to others: our clients and others take turns to
-- get it. heads: the first members of the queue, if the lock is already free.
-- → 1, or 3 if dead waiters must be removed before the next waiter gets the lock
local function pass_on(heads)
  if not heads then redis.call('DEL', LOCK) end
  heads = heads or redis.pcall('ZRANGE', QUEUE, '0', LAST_OF_THREE, 'WITHSCORES')
  local record = record_in(heads)
  local member, place, foreign, more = prune_to_first_waiter(nil, heads)
  local can_grant = member and not is_newer(member)
  if can_grant and foreign == 0 then
    if not leave_to_pollers(record, member, place) then grant(member, place) end
    return 1
  end
  if can_grant and add_turn(record, now_ms()) then
    grant(member, place)
    return 1
  end
  local received, is_alone = announce(RELEASES), not member and not more
  local listens = (foreign or received > 0 and foreign_waiters(RELEASES) or 0) > 0
  if listens and is_alone and add_turn(record, now_ms()) then
    redis.call('PEXPIRE', QUEUE, MAX_LISTEN_MS)
  elseif listens then
    give_foreign_turn(record, member)
  elseif record and is_alone then
    redis.call('DEL', QUEUE)
  end
  return foreign == 0 and more and 3 or 1
end
