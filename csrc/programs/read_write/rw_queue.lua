--#fragment
-- The waiters of a read/write lock, and which of them get it: see docs/how-to/read_write.md. The
-- queue is like that of a lock (queue.lua), but its waiters read or write, all unconfirmed grants
-- have the score 0, and the record is "1f 0 0 1 0": until its time, Redisson's clients come first
-- while any of them is waiting.
local KINDS = 'rw'
local TURN_MS = 50 -- how long a free lock is left to Redisson's waiters
local RECHECK_MS = 5 -- after which the first waiter asks whether one of them has taken it
-- While one of them waits to write, new readers of ours are refused and admitted alternately.
local YIELD_MS = 250
-- While our first waiter is a writer, Redisson's readers are kept out for DRAIN_MS to MAX_DRAIN_MS.
-- Then, for DRAIN_PAUSE_MS, those that hold the lock may re-enter it.
local DRAIN_MS, MAX_DRAIN_MS = 50, 30000
local DRAIN_PAUSE_MS = 50
local MAX_INSPECTED = 8 -- if a release leaves up to this many readers, it inspects each of them

--#include "queue/members.lua"
--#include "queue/is_queue.lua"
--#include "queue/forget_record.lua"
-- Removes the waiters before the first one that is alive or is `me`. → that waiter, or nil
local function first_live(me)
  return first_alive(function(member, alive) return member ~= me and is_over(member, alive) end, 1)
end

-- ---- readers ----

-- Removes dead readers. → the number of live ones, and their longest lease
local function live_readers()
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

-- Returns whether a reader is alive, while no writer holds the lock. Removes the dead readers that
-- it finds first. Also returns true if there are very many dead readers: the next script reads the
-- rest. size: the number of readers to read at once; nil: BATCH.
local function has_readers(size)
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

-- Returns whether one of the holders is a foreign client.
local function has_foreign()
  for _, owner in ipairs(redis.call('HKEYS', LOCK)) do
    if owner ~= 'mode' and not owner:gsub(':write$', ''):find(OURS) then return true end
  end
  return false
end

-- If a holder does not hand over, notifies the first waiter, which must listen. me: see first_live
local function notify_first_of_foreign_holder(me)
  if has_foreign() then notify(first_live(me), 'recheck') end
end

-- Admits Redisson's readers again.
local function end_drain()
  redis.call('HSET', LOCK, 'mode', 'read')
  announce(RELEASES, '1')
end

-- Ends a drain unless the first live waiter is a writer. → the mode
local function settle_drain(mode, me)
  if not mode or mode:sub(1, 6) ~= 'drain:' then return mode end
  if (first_live(me) or ''):sub(2, 2) == 'w' then return mode end
  end_drain()
  return 'read'
end

-- ---- Redisson's turn ----

-- Leaves the lock to Redisson's waiters for `ms`.
local function write_turn(ms)
  write_record(record_in(first_members()), 0, 0, true, 0, now_ms() + ms)
  if not first_in_line() then redis.call('PEXPIRE', QUEUE, 2 * ms) end
end

-- → the ms for which no reader may join the present ones. If these are all ours and a client of
-- Redisson is waiting, that client must be a writer.
local function yield_ms()
  if foreign_waiters(RELEASES) == 0 or has_foreign() then return 0 end
  local record = record_in(first_members())
  local left = record and record.till - now_ms() or -YIELD_MS
  if left > YIELD_MS or left <= -YIELD_MS then
    write_turn(YIELD_MS)
    return YIELD_MS
  end
  return math.max(0, left)
end

-- ---- granting ----

-- → the token that draw(ttl_ms) returns; "0" if it fails
local function token_text(draw, ttl_ms)
  local drawn, token = pcall(draw, ttl_ms)
  return drawn and string.format('%.0f', token) or '0'
end

local function admit_writer(member, place)
  local kind, _, number, ttl_ms, owner = parse(member)
  local token = token_text(next_token, ttl_ms)
  set_hold(LOCK, owner .. ':write', 1, GRANT_MS, 0)
  redis.call('ZADD', QUEUE, 0, member)
  send(member, 'grant', kind, number, place_of(place), token, GRANT_MS, LOCK)
end

-- Admits `members`, waiting readers, each with its place. Sends each client one message: "grants r
-- <token> <ms> <count> <number> <place> … <key>".
local function admit_readers(members)
  local marks, groups = {}, {}
  for i = 1, #members, 2 do
    local _, client, number, ttl_ms, owner = parse(members[i])
    local name = client .. (ttl_ms == '0' and '' or '+')
    if not groups[name] then
      groups[name] = { member = members[i], token = token_text(last_token, ttl_ms) }
      groups[#groups + 1] = groups[name]
    end
    local group = groups[name]
    group[#group + 1], group[#group + 2] = number, place_of(tonumber(members[i + 1]))
    marks[i], marks[i + 1] = 0, members[i]
    set_hold(LOCK, owner, 1, GRANT_MS, 0)
  end
  redis.call('ZADD', QUEUE, unpack(marks))
  for _, group in ipairs(groups) do
    send(group.member, 'grants', 'r', group.token, GRANT_MS, #group / 2, table.concat(group, ' '),
      LOCK)
  end
end

-- Grants the lock to as many of these members as may have it, and removes dead ones. See serve.
-- → whether more may follow; whether a newer format blocks the queue
local function serve_batch(members, state)
  local alive, removed, readers, may_continue, newer = (listening(members, 1)), {}, {}, true, false
  for i = 1, #members, 2 do
    local member = members[i]
    local writes = member:sub(2, 2) == 'w'
    if member ~= state.me and is_over(member, alive) then
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

-- Grants the lock from the first waiter on: to the writer that finds it free, or to all readers
-- before the first writer. The caller's own member `me` acquires by itself. mode: nil if the lock
-- is free; otherwise readers hold it. writes: whether the caller writes.
-- → whether the caller may acquire; whether a newer format blocks the queue; whether another script
-- must continue
local function serve(mode, me, writes)
  local state = { mode = mode, me = me, skipped = 0, is_served = false }
  for batch = 1, MAX_BATCHES do
    local writer_only = batch == 1 and (first_in_line() or ''):sub(2, 2) == 'w'
    local members = redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT',
      state.skipped, writer_only and 1 or BATCH)
    if #members == 0 then
      local free = state.skipped == 0 and (not writes or not state.mode)
      -- If readers have yielded to Redisson, the record says when they must do so again.
      if not mode or foreign_waiters(RELEASES) == 0 then forget_record() end
      return state.is_served or free, false, false
    end
    local may_continue, newer = serve_batch(members, state)
    if not may_continue then return state.is_served, newer, false end
  end
  return state.is_served, false, true
end

-- ---- releasing ----

-- Passes on the free lock, which Redisson's waiters and ours get in turns.
-- → 1, or 3 if another script must continue
local function pass_on(text)
  local forgotten = redis.pcall('ZREMRANGEBYSCORE', QUEUE, 0, 0) -- all grants have ended
  if type(forgotten) ~= 'number' then
    announce(RELEASES, text)
    return 1
  end
  if foreign_waiters(RELEASES) > 0 then
    write_turn(TURN_MS)
    notify(first_live(), 'turn', RECHECK_MS)
    announce(RELEASES, text)
    return 1
  end
  local _, _, more = serve(nil)
  if redis.call('EXISTS', LOCK) == 0 then announce(RELEASES, text) end
  return more and 3 or 1
end

-- Called after a reader has left; `left` others may remain. The first waiter waits for the longest
-- lease to end, which may have been that reader's.
local function on_reader_left(left, was_longest)
  local mode = left > 0 and redis.call('HGET', LOCK, 'mode')
  if left > MAX_INSPECTED and not was_longest or mode == 'write' then return 1 end
  if left > MAX_SEARCHED and has_readers(MAX_INSPECTED) then return 1 end
  local live, longest = live_readers()
  if live == 0 then
    redis.call('DEL', LOCK)
    return pass_on('0')
  end
  local shorter = longest < redis.call('PTTL', LOCK)
  if shorter then redis.call('PEXPIRE', LOCK, longest) end
  if is_queue() then
    if shorter then notify(first_live(), 'recheck', longest) end
    notify_first_of_foreign_holder()
  end
  settle_drain(mode)
  return 1
end

-- Called after the writer has left; it may continue as a reader.
local function on_writer_left()
  local live, longest = live_readers()
  if live == 0 then
    redis.call('DEL', LOCK)
    return pass_on('1')
  end
  redis.call('HSET', LOCK, 'mode', 'read')
  redis.call('PEXPIRE', LOCK, longest)
  announce(RELEASES, '1')
  if not is_queue() then return 1 end
  local left = yield_ms()
  if left > 0 then
    notify(first_live(), 'turn', left)
    return 1
  end
  local _, _, more = serve('read')
  return more and 3 or 1
end

-- Leaves `remaining` of the owner's `count` holds. → 1 none remains; 2 some remain; 3 none remains,
-- and another script must continue
local function release_holds(count, remaining)
  if remaining > 0 then
    trim_holds(LOCK, OWNER, remaining, count)
    redis.call('HSET', LOCK, OWNER, remaining)
    return 2
  end
  local left, writes = redis.call('HLEN', LOCK) - 2, is_write(OWNER)
  local was_longest = not writes and left > MAX_INSPECTED and final_lease(LOCK, OWNER, count)
  delete_leases(LOCK, OWNER, 0, count)
  if left == 0 then redis.call('DEL', LOCK) else redis.call('HDEL', LOCK, OWNER) end
  return writes and on_writer_left() or on_reader_left(left, was_longest)
end
