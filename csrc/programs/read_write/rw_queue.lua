--#fragment
-- The waiters of a read/write lock, and which of them get it: see docs/how-to/read_write.md. The
-- queue is like that of a lock (queue.lua), but its waiters read or write, and all unconfirmed
-- grants have the score 0. Redisson's clients and ours hold the lock in alternating runs, as they
-- hold a lock; no turns are left to clients that poll. See record.lua for the record; `unused` is 1
-- if our readers have yielded to Redisson, which is not a run of Redisson's.
local WAITER_KINDS = 'rw'
local RECHECK_MS = 5 -- the first waiter asks this often whether Redisson has taken the free lock
-- While a client of Redisson's waits to write, our new readers are refused for YIELD_MS, then
-- admitted for YIELD_MS, and so on.
local YIELD_MS = 250
-- While our first waiter is a writer, Redisson's readers are kept out for DRAIN_MS to MAX_DRAIN_MS.
-- Then, for DRAIN_PAUSE_MS, the readers that hold the lock may re-enter it.
local DRAIN_MS, MAX_DRAIN_MS = 50, 30000
local DRAIN_PAUSE_MS = 50
local MAX_INSPECTED = 8 -- a release checks each remaining reader if there are no more than this

--#include "queue/members.lua"
--#include "queue/turns.lua"
--#include "queue/runs.lua"
--#include "queue/is_queue.lua"
--#include "queue/forget_record.lua"
-- Removes the waiters before the first one that is alive or is `me`. → that waiter, or nil
local function prune_to_first_live(me)
  local function reject(member, alive) return member ~= me and reject_unservable(member, alive) end
  return prune_to_first_alive(reject, 1)
end

-- ---- readers ----

-- Removes dead readers. → the number of live ones, and their longest lease
local function prune_readers()
  local fields, live, longest = redis.call('HGETALL', LOCK), 0, 0
  for i = 1, #fields, 2 do
    local owner, count = fields[i], tonumber(fields[i + 1])
    if count and not is_write(owner) then
      local ms = longest_lease(LOCK, owner, 1, count)
      if ms == -2 then redis.call('HDEL', LOCK, owner) else live = live + 1 end
      longest = math.max(longest, ms)
    end
  end
  return live, math.max(longest, 1) -- a TTL of 0 would delete the lock
end

-- Called while no writer holds the lock: removes dead readers until it finds a live one. size: the
-- number of readers to read at once; nil: BATCH. → whether a reader is alive; also true if there
-- are very many dead readers, because the next script then reads the rest
local function prune_to_live_reader(size)
  local cursor = '0'
  for _ = 1, MAX_BATCHES do
    local page = redis.call('HSCAN', LOCK, cursor, 'COUNT', size or BATCH)
    local fields = page[2]
    for i = 1, #fields, 2 do
      local owner, count = fields[i], tonumber(fields[i + 1])
      if count then
        if longest_lease(LOCK, owner, 1, count) ~= -2 then return true end
        redis.call('HDEL', LOCK, owner)
      end
    end
    cursor = page[1]
    if cursor == '0' then return false end
  end
  return true
end

-- → whether one of the holders is a foreign client; whether one is our client
local function has_foreign()
  local foreign, ours = false, false
  for _, owner in ipairs(redis.call('HKEYS', LOCK)) do
    local is_ours = owner:gsub(':write$', ''):find(OUR_OWNER) ~= nil
    ours = ours or is_ours
    foreign = foreign or owner ~= 'mode' and not is_ours
  end
  return foreign, ours
end

-- If a holder does not hand over, notifies the first waiter, which must listen for the release. me:
-- see prune_to_first_live.
local function notify_first_of_foreign_holder(me)
  if has_foreign() then notify(prune_to_first_live(me), 'recheck') end
end

-- Notifies Redisson's waiters. payload: "0" wakes one thread, or the next that begins to wait; "1"
-- wakes all that wait, but misses a thread that is about to wait, so "0" follows it.
local function announce_free(payload)
  if announce(RELEASES, payload) > 0 and payload == '1' then announce(RELEASES, '0') end
end

-- Admits Redisson's readers again.
local function end_drain()
  redis.call('HSET', LOCK, 'mode', 'read')
  announce_free('1')
end

-- Ends a drain unless the first live waiter is a writer. → the mode
local function settle_drain(mode, me)
  if not mode or mode:sub(1, 6) ~= 'drain:' then return mode end
  if (prune_to_first_live(me) or ''):sub(2, 2) == 'w' then return mode end
  end_drain()
  return 'read'
end

-- ---- Redisson's turn ----

-- Leaves the lock to Redisson's waiters for `ms`. began: when their run began; nil: it begins now.
-- unused: see above; nil: 0.
local function write_turn(record, ms, began, unused)
  local now = now_ms()
  local held_ms = now - math.min(began or now, now)
  write_record(record, 0, unused or 0, '-', ms - LISTEN_MS + held_ms, now + ms)
  if not first_in_line() then redis.call('PEXPIRE', QUEUE, 2 * ms) end
end

-- Lets a writer of Redisson's take its turn: if all readers are ours and a client of Redisson is
-- waiting, that client must be a writer. During our run, a reader that joins takes one of our
-- turns. → the ms for which no reader may join the present readers
local function yield_ms()
  if foreign_waiters(RELEASES) == 0 or has_foreign() then return 0 end
  local record, now = record_in(first_members()), now_ms()
  if add_turn(record, now) then return 0 end
  local is_left = record and record.turns == 0 and record.listeners
  local left_ms = is_left and record.till - now or -YIELD_MS
  if left_ms > YIELD_MS or left_ms <= -YIELD_MS then
    write_turn(record, YIELD_MS, nil, 1)
    return YIELD_MS
  end
  return math.max(0, left_ms)
end

-- ---- granting ----

-- → the token that draw(ttl_ms) returns, as a string; "0" if the draw fails
local function draw_token_string(draw, ttl_ms)
  local drawn, token = pcall(draw, ttl_ms)
  return drawn and string.format('%.0f', token) or '0'
end

local function admit_writer(member, place)
  local kind, _, number, ttl_ms, owner = parse(member)
  local token = draw_token_string(next_token, ttl_ms)
  set_hold(LOCK, owner .. ':write', 1, GRANT_MS, 0)
  redis.call('ZADD', QUEUE, 0, member)
  send(member, 'grant', kind, number, format_place(place), token, GRANT_MS, LOCK)
end

-- Admits waiting readers. members: their members and places, in turn. Sends each client one message
-- for its readers with fencing and one for the others: "grants r <token> <ms> <count> <number>
-- <place> … <key>".
local function admit_readers(members)
  local grants, groups = {}, {}
  for i = 1, #members, 2 do
    local _, client, number, ttl_ms, owner = parse(members[i])
    local group_key = client .. (ttl_ms == '0' and '' or '+')
    if not groups[group_key] then
      groups[group_key] = { member = members[i], token = draw_token_string(last_token, ttl_ms) }
      groups[#groups + 1] = groups[group_key]
    end
    local group = groups[group_key]
    group[#group + 1], group[#group + 2] = number, format_place(tonumber(members[i + 1]))
    grants[i], grants[i + 1] = 0, members[i]
    set_hold(LOCK, owner, 1, GRANT_MS, 0)
  end
  redis.call('ZADD', QUEUE, unpack(grants))
  for _, group in ipairs(groups) do
    send(group.member, 'grants', 'r', group.token, GRANT_MS, #group / 2, table.concat(group, ' '),
      LOCK)
  end
end

-- Grants the lock to as many of these members as may have it, and removes dead ones. Updates
-- `state`: see serve. → whether later members may also get the lock; whether a waiter in a newer
-- format blocks the queue
local function serve_batch(members, state)
  local alive, removed, readers, may_continue, newer = (listening(members, 1)), {}, {}, true, false
  for i = 1, #members, 2 do
    local member = members[i]
    local writes = member:sub(2, 2) == 'w'
    if member ~= state.me and reject_unservable(member, alive) then
      removed[#removed + 1] = member
    elseif is_newer(member) then
      may_continue, newer = false, true
    elseif member == state.me then
      state.is_served, state.skipped, may_continue = not writes or not state.mode, 1, not writes
      state.mode = 'read'
    elseif writes then
      if not state.mode then admit_writer(member, tonumber(members[i + 1])) end
      may_continue = false
    else
      readers[#readers + 1], readers[#readers + 2] = member, members[i + 1]
      state.mode = 'read'
    end
    if not may_continue then break end
  end
  if #removed > 0 then redis.call('ZREM', QUEUE, unpack(removed)) end
  if #readers > 0 then
    admit_readers(readers)
    if not may_continue then notify_first_of_foreign_holder(state.me) end
  end
  return may_continue, newer
end

local function in_our_run()
  local record = record_in(first_members())
  return record and record.turns > 0
end

-- Grants the lock from the first waiter on: to the writer that finds it free, or to all readers
-- before the first writer. The caller's own member `me` gets no grant, because the caller acquires
-- the lock itself. mode: nil if the lock is free; otherwise readers hold it. writes: whether the
-- caller writes. → whether the caller may acquire the lock; whether a waiter in a newer format
-- blocks the queue; whether another script must continue
local function serve(mode, me, writes)
  local state = { mode = mode, me = me, skipped = 0, is_served = false }
  for batch = 1, MAX_BATCHES do
    local writer_only = batch == 1 and (first_in_line() or ''):sub(2, 2) == 'w'
    local members = redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT',
      state.skipped, writer_only and 1 or BATCH)
    if #members == 0 then
      local may_acquire = state.skipped == 0 and (not writes or not state.mode)
      -- If readers have yielded to Redisson, the record says when they must do so again. But if the
      -- lock remains free, the record would have no TTL.
      if not (state.mode or in_our_run()) or foreign_waiters(RELEASES) == 0 then
        forget_record()
      end
      return state.is_served or may_acquire, false, false
    end
    local may_continue, newer = serve_batch(members, state)
    if not may_continue then return state.is_served, newer, false end
  end
  return state.is_served, false, true
end

-- ---- releasing ----

-- Passes on the free lock: Redisson's waiters and ours take turns to get it. payload: see announce.
-- → 1, or 3 if another script must continue
local function pass_on(payload)
  local removed = redis.pcall('ZREMRANGEBYSCORE', QUEUE, 0, 0) -- all grants have ended
  if type(removed) ~= 'number' then
    announce_free(payload)
    return 1
  end
  local foreign = foreign_waiters(RELEASES) > 0
  local member = foreign and prune_to_first_live() or nil
  local record = foreign and record_in(first_members()) or nil
  local is_ours = foreign and not is_newer(member or '') and add_turn(record, now_ms())
  if foreign and not is_ours then
    write_turn(record, listen_ms(record))
    notify(member, 'turn', RECHECK_MS)
    announce_free(payload)
    return 1
  end
  if is_ours and not first_in_line() then redis.call('PEXPIRE', QUEUE, MAX_LISTEN_MS) end
  local _, _, more = serve(nil)
  local mode = redis.call('HGET', LOCK, 'mode')
  if not mode or foreign and mode == 'read' then announce_free(payload) end
  return more and 3 or 1
end

-- Called after a reader has left; up to max_left other readers remain. was_longest: whether the
-- lock's TTL came from that reader's lease. The first waiter then waits until a shorter lease ends.
local function on_reader_left(max_left, was_longest)
  local mode = max_left > 0 and redis.call('HGET', LOCK, 'mode')
  if max_left > MAX_INSPECTED and not was_longest or mode == 'write' then return 1 end
  if max_left > MAX_SEARCHED and prune_to_live_reader(MAX_INSPECTED) then return 1 end
  local live, longest = prune_readers()
  if live == 0 then
    redis.call('DEL', LOCK)
    return pass_on('0')
  end
  local is_shorter = longest < redis.call('PTTL', LOCK)
  if is_shorter then redis.call('PEXPIRE', LOCK, longest) end
  if is_queue() then
    if is_shorter then notify(prune_to_first_live(), 'recheck', longest) end
    notify_first_of_foreign_holder()
  end
  settle_drain(mode)
  return 1
end

-- Called after the writer has left; it may continue as a reader.
local function on_writer_left()
  local live, longest = prune_readers()
  if live == 0 then
    redis.call('DEL', LOCK)
    return pass_on('1')
  end
  redis.call('HSET', LOCK, 'mode', 'read')
  redis.call('PEXPIRE', LOCK, longest)
  announce_free('1')
  if not is_queue() then return 1 end
  local left_ms = yield_ms()
  if left_ms > 0 then
    notify(prune_to_first_live(), 'turn', left_ms)
    return 1
  end
  local _, _, more = serve('read')
  return more and 3 or 1
end

-- Keeps `remaining` of the owner's `count` holds and releases the others. → 1 no hold remains; 2
-- some remain; 3 no hold remains, and another script must continue
local function release_holds(count, remaining)
  if remaining > 0 then
    trim_holds(LOCK, OWNER, remaining, count)
    redis.call('HSET', LOCK, OWNER, remaining)
    return 2
  end
  local left, writes = redis.call('HLEN', LOCK) - 2, is_write(OWNER)
  local was_longest = not writes and left > MAX_INSPECTED and determines_ttl(LOCK, OWNER, count)
  delete_leases(LOCK, OWNER, 0, count)
  if left == 0 then redis.call('DEL', LOCK) else redis.call('HDEL', LOCK, OWNER) end
  return writes and on_writer_left() or on_reader_left(left, was_longest)
end
