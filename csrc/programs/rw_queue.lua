--#fragment
-- The waiters of a read/write lock, and which of them get it: see docs/protocol.md.
--
-- KEYS[3] its queue: a sorted set, the lowest score is served first
--           score >  0   a waiter, "1r<client uuid>:<number>:<token ttl ms>" to read, "1w…" to
--                    write; the score is its
--                        place, which no waiter has twice
--           score == 0   a waiter that was let in by a grant it has not confirmed
--           score <  0   "1f 0 0 1 0": until -score ms of server time Redisson's clients come
--                    first, while any waits
local QUEUE_MS = 120000
local OURS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+$'
local TURN_MS = 50 -- of a free lock, for Redisson's waiters
local LOOK_MS = 5 -- when the first waiter looks whether one of them has come
-- While one of them waits to write no new readers of ours come in, then for as long they do.
local YIELD_MS = 250
-- While a writer of ours waits first, Redisson's readers are kept out.
local DRAIN_MS, MOST_DRAIN_MS = 50, 30000
local DRAIN_PAUSE_MS = 50 -- then those that have it may enter it again
local FEW = 8 -- readers of which a release looks at each, if somebody waits
local BATCH, MOST_BATCHES = 100, 10 -- of waiters that one script lets in or removes

--#include "now.lua"

local function place_of(score)
  return string.format('%.17g', score)
end

-- kind, client, number, token ttl, owner; nil: no waiter for a read/write lock
local function parts(member)
  local kind, client, number, ttl_ms = member:match('^1([rw])([%x-]+):(%d+):(%d+)$')
  if not kind then return nil end
  return kind, client, number, ttl_ms, client .. ':' .. number .. (kind == 'w' and ':write' or '')
end

--#include "member.lua"

-- A client that may not publish leaves its waiters to their clocks: what it has written must not be
-- half done.
local function tell(client, ...)
  redis.pcall('PUBLISH', 'holdfast_grant:' .. client, '1 ' .. table.concat({ ... }, ' '))
end

-- A set of the channels of these waiters' clients that somebody listens to.
local function listening(members)
  local channels, seen, set = {}, {}, {}
  for i = 1, #members, 2 do
    local channel = 'holdfast_grant:' .. client_of(members[i])
    if not seen[channel] then channels[#channels + 1] = channel end
    seen[channel] = true
  end
  local counts = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels))
  for i = 1, #counts, 2 do set[counts[i]:sub(16)] = counts[i + 1] > 0 end
  return set
end

-- Why this member cannot be served: no waiter for such a lock, a dead one.
local function is_over(member, alive)
  local kind, client, number = member:match('^1(%l)([%x-]+):(%d+)')
  if not kind then return not is_newer(member) end
  if kind ~= 'r' and kind ~= 'w' then tell(client, 'recheck', number) return true end
  return not alive[client]
end

-- The first waiter that lives, as `me` does; of those before it one script forgets some thousand.
local function first_alive(me)
  local size = 1
  for _ = 0, MOST_BATCHES do
    local members = redis.pcall('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0,
      size)
    if #members == 0 then return nil end
    local alive = listening(members)
    for i = 1, #members, 2 do
      if members[i] == me or not is_over(members[i], alive) then return members[i] end
      redis.call('ZREM', QUEUE, members[i])
    end
    size = BATCH
  end
end

-- To the first waiter.
local function tell_first(word, ...)
  local _, client, number = parts(first_alive() or '')
  if number then tell(client, word, number, ...) end
end

-- ---- readers ----

-- The longest lease of a reader's holds; -2: it is dead.
local function lease_of(owner, count)
  return longest_lease(LOCK, owner, 1, count)
end

-- Forgets dead readers. → how many live, the longest of their leases
local function live_readers()
  local fields, live, longest = redis.call('HGETALL', LOCK), 0, 0
  for i = 1, #fields, 2 do
    local owner, count = fields[i], tonumber(fields[i + 1])
    if count and not is_write(owner) then
      local ms = lease_of(owner, count)
      if ms == -2 then redis.call('HDEL', LOCK, owner) else live = live + 1 end
      longest = math.max(longest, ms)
    end
  end
  return live, math.max(longest, 1) -- a TTL of 0 would delete the lock
end

-- Whether a reader lives, while nobody writes. Dead ones that are found before it are forgotten; of
-- very many the next script looks at the rest. size: of the pages in which it looks at them.
local function has_readers(size)
  local cursor = '0'
  for _ = 1, MOST_BATCHES do
    local page = redis.call('HSCAN', LOCK, cursor, 'COUNT', size or BATCH)
    local fields = page[2]
    for i = 1, #fields, 2 do
      local owner, count = fields[i], tonumber(fields[i + 1])
      if count then
        if lease_of(owner, count) ~= -2 then return true end
        redis.call('HDEL', LOCK, owner)
      end
    end
    cursor = page[1]
    if cursor == '0' then return false end
  end
  return true
end

-- Whether one of the holders is a client that knows no queue.
local function has_foreign()
  for _, owner in ipairs(redis.call('HKEYS', LOCK)) do
    if owner ~= 'mode' and not owner:gsub(':write$', ''):find(OURS) then return true end
  end
  return false
end

-- The first waiter listens to holders that will not hand over.
local function tell_first_of_foreign()
  if has_foreign() then tell_first('recheck') end
end

-- Ends what keeps Redisson's readers out.
local function end_drain()
  redis.call('HSET', LOCK, 'mode', 'read')
  announce('1')
end

-- It is needed only while the first waiter that lives is to write. → the mode
local function settle_drain(mode, me)
  if not mode or mode:sub(1, 6) ~= 'drain:' then return mode end
  local member = first_alive(me)
  if member and member:sub(2, 2) == 'w' then return mode end
  end_drain()
  return 'read'
end

-- ---- Redisson's turn ----

-- → the record and until when it is Redisson's turn | nil
local function turn()
  local first = redis.call('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')
  local score = tonumber(first[2])
  if score and score <= -1 then return first[1], -score end
end

local function has_waiters()
  return redis.call('ZCOUNT', QUEUE, '(0', '+inf') > 0
end

local function end_turn()
  local record = turn()
  if record then redis.call('ZREM', QUEUE, record) end
end

local function write_turn(ms)
  end_turn()
  redis.call('ZADD', QUEUE, string.format('%.0f', -(now_ms() + ms)), '1f 0 0 1 0')
  if not has_waiters() then redis.call('PEXPIRE', QUEUE, 2 * ms) end
end

-- How long the free lock is left to Redisson's waiters. More than the longest turn: the server's
-- clock went back.
local function turn_ms()
  local record, till = turn()
  if not record or foreign_waiters() == 0 then return 0 end
  local left = till - now_ms()
  return left <= YIELD_MS and math.max(0, left) or 0
end

-- How long no reader joins those that are in, all of ours: a client of Redisson waits, so it is to
-- write.
local function yield_ms()
  if foreign_waiters() == 0 or has_foreign() then return 0 end
  local record, till = turn()
  local left = record and till - now_ms() or -YIELD_MS
  if left > YIELD_MS or left <= -YIELD_MS then
    write_turn(YIELD_MS)
    return YIELD_MS
  end
  return math.max(0, left)
end

-- ---- letting in ----


local function token_text(draw, ttl_ms)
  local drawn, token = pcall(draw, ttl_ms)
  return drawn and string.format('%.0f', token) or '0'
end

local function admit_writer(member, place)
  local kind, client, number, ttl_ms, owner = parts(member)
  local token = token_text(next_token, ttl_ms)
  enter(LOCK, owner, 1, GRANT_MS, 0)
  redis.call('ZADD', QUEUE, 0, member)
  tell(client, 'grant', kind, number, place_of(place), token, GRANT_MS, LOCK)
end

-- One message for each client: "grants r <token> <ms> <count> <number> <place> … <key>".
local function tell_readers(groups)
  for _, group in ipairs(groups) do
    tell(group.client, 'grants', 'r', group.token, GRANT_MS, #group / 2, table.concat(group, ' '),
      LOCK)
  end
end

-- members: waiters to read, each with its place
local function admit_readers(members)
  local marks, groups = {}, {}
  for i = 1, #members, 2 do
    local _, client, number, ttl_ms, owner = parts(members[i])
    local name = client .. (ttl_ms == '0' and '' or '+')
    if not groups[name] then
      groups[name] = { client = client, token = token_text(last_token, ttl_ms) }
      groups[#groups + 1] = groups[name]
    end
    local group = groups[name]
    group[#group + 1], group[#group + 2] = number, place_of(members[i + 1])
    marks[i], marks[i + 1] = 0, members[i]
    enter(LOCK, owner, 1, GRANT_MS, 0)
  end
  redis.call('ZADD', QUEUE, unpack(marks))
  tell_readers(groups)
end

-- Lets in, of these members, those that may come in, and removes dead ones. See serve.
-- → whether more may follow, whether a newer format stands in the way
local function serve_batch(members, state)
  local alive, gone, readers, open, newer = listening(members), {}, {}, true, false
  for i = 1, #members, 2 do
    local member = members[i]
    local writes = member:sub(2, 2) == 'w'
    if member ~= state.me and is_over(member, alive) then
      gone[#gone + 1] = member
    elseif is_newer(member) then
      open, newer = false, true
    elseif member == state.me then
      state.mine, state.kept, open = not writes or not state.mode, 1, not writes
      state.mode = 'read'
    elseif writes then
      if not state.mode then admit_writer(member, members[i + 1]) end
      open = false
    else
      readers[#readers + 1], readers[#readers + 2] = member, members[i + 1]
      state.mode = 'read'
    end
    if not open then break end
  end
  if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end
  if #readers > 0 then
    admit_readers(readers)
    if not open then tell_first_of_foreign() end
  end
  return open, newer
end

local function is_writer_first()
  local member = redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'LIMIT', 0, 1)[1]
  return member and member:sub(2, 2) == 'w'
end

-- Lets in whom it can, from the first waiter on: the writer that finds the lock free, or all
-- readers before the first writer. The caller's own member `me` comes in by itself. mode: nil: the
-- lock is free; else readers have it.
-- → whether the caller may come in, who writes or not; whether a newer format stands in the way;
-- whether a next script is to go on
local function serve(mode, me, writes)
  local state = { mode = mode, me = me, kept = 0, mine = false }
  for batch = 1, MOST_BATCHES do
    local members = redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT',
      state.kept, batch == 1 and is_writer_first() and 1 or BATCH)
    if #members == 0 then
      local free = state.kept == 0 and (not writes or not state.mode)
      -- Beside readers that have stood back it tells when they are to do so again.
      if not mode or foreign_waiters() == 0 then end_turn() end
      return state.mine or free, false, false
    end
    local open, newer = serve_batch(members, state)
    if not open then return state.mine, newer, false end
  end
  return state.mine, false, true
end

local function forget_client(client)
  for _, member in ipairs(redis.call('ZRANGE', QUEUE, 0, 10 * BATCH - 1)) do
    if client_of(member) == client then redis.call('ZREM', QUEUE, member) end
  end
end

-- Grants that ran out, as their holds are gone. A writer's client is as good as dead: all its
-- waiters are forgotten, unless it is here to ask; that one's waiter keeps its place.
local function settle_missed_grants(client)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', QUEUE, 0, 0, 'LIMIT', 0, BATCH)) do
    local kind, of, _, _, owner = parts(member)
    if not kind or redis.call('HEXISTS', LOCK, owner) == 0 then
      if of == client then
        redis.call('ZADD', QUEUE, server_us() / 1024, member)
        redis.call('PEXPIRE', QUEUE, QUEUE_MS)
      else
        redis.call('ZREM', QUEUE, member)
        if kind == 'w' then forget_client(of) end
      end
    end
  end
end

-- ---- becoming free ----

-- No grant is open any more. → false: the queue is none
local function forget_grants()
  return type(redis.pcall('ZREMRANGEBYSCORE', QUEUE, 0, 0)) == 'number'
end

-- The lock is free: it goes to Redisson's waiters and to ours in turns.
-- → 1, or 3 where the next script is to go on
local function pass_on(text)
  if not forget_grants() then
    announce(text)
    return 1
  end
  if foreign_waiters() > 0 then
    write_turn(TURN_MS)
    tell_first('turn', LOOK_MS)
    announce(text)
    return 1
  end
  local _, _, more = serve(nil)
  if redis.call('EXISTS', LOCK) == 0 then announce(text) end
  return more and 3 or 1
end

local function queue_is_sound()
  return redis.call('TYPE', QUEUE).ok == 'zset'
end

-- A reader has gone; `left` others may stay. The first waiter counts on the longest lease, which
-- may have been the one that is gone.
local function after_reader(left, was_longest)
  local mode = left > 0 and redis.call('HGET', LOCK, 'mode')
  if left > FEW and not was_longest or mode == 'write' then return 1 end
  if left > MANY and has_readers(FEW) then return 1 end
  local live, longest = live_readers()
  if live == 0 then
    redis.call('DEL', LOCK)
    return pass_on('0')
  end
  local shorter = longest < redis.call('PTTL', LOCK)
  if shorter then redis.call('PEXPIRE', LOCK, longest) end
  if queue_is_sound() then
    if shorter then tell_first('recheck', longest) end
    tell_first_of_foreign()
  end
  settle_drain(mode)
  return 1
end

-- The writer has gone; it may go on as a reader.
local function after_writer()
  local live, longest = live_readers()
  if live == 0 then
    redis.call('DEL', LOCK)
    return pass_on('1')
  end
  redis.call('HSET', LOCK, 'mode', 'read')
  redis.call('PEXPIRE', LOCK, longest)
  announce('1')
  if not queue_is_sound() then return 1 end
  local left = yield_ms()
  if left > 0 then
    tell_first('turn', left)
    return 1
  end
  local _, _, more = serve('read')
  return more and 3 or 1
end

-- Lets the owner have `to` holds of `count`. → 1 all are gone, 2 some stay, 3: 1, and a next script
-- is to go on
local function let_go(count, to)
  if to > 0 then
    keep_holds(LOCK, OWNER, to, count)
    redis.call('HSET', LOCK, OWNER, to)
    return 2
  end
  local left, writes = redis.call('HLEN', LOCK) - 2, is_write(OWNER)
  local was_longest = not writes and left > FEW and longest_of_all(LOCK, OWNER, count)
  drop_holds(LOCK, OWNER, 0, count)
  redis.call('HDEL', LOCK, OWNER)
  return writes and after_writer() or after_reader(left, was_longest)
end
