-- The rules of every schedule of read/write locks, in place of watcher.lua's.
--
-- A claim is what one owner believes: that it reads or writes until a moment. The server must have
-- the hold for at least as long, unless data was lost there since it was acquired.

local rotation = require "spec.sim.rotation"
local rules = require "spec.sim.rules"
local Watcher = require "spec.sim.watcher"
local wire = require "spec.sim.wire"

local floor, max = math.floor, math.max

local CALM_GAP = 400000
local CLOCKS_MS = 500
local PAUSE_MS = 250 -- for how long holdfast readers may join again next to a writer of Redisson
local CLOCKS_US = 1500 -- the server's times are in whole milliseconds
-- holdfast's turns after a run of Redisson's: as many as the holders seen, within these limits
local MIN_IN_A_ROW, MAX_IN_A_ROW = 3, 9
local MAX_RUN, ROUNDED = 2000000, 2000 -- µs of holdfast's run after Redisson's
local MAX_OVERTAKEN = 40 -- how often holdfast may take the lock during one wait of Redisson's

local ReadWrite = setmetatable({}, { __index = Watcher })
ReadWrite.__index = ReadWrite

function ReadWrite.new(world, servers, plan)
  local self = setmetatable(Watcher.new(world, servers, plan), ReadWrite)
  for _, part in ipairs(plan.parts) do
    if part.dies == "holds" then self.gentle = false end
    if part.what == "java_read_write" then self.foreign = true end
  end
  servers[1].redis.replaced.publish = nil
  return self
end

function ReadWrite:add_key(name, kind)
  Watcher.add_key(self, name, kind)
  local key = self.keys[name]
  key.claims, key.holders, key.read_by, key.lost = {}, {}, {}, {}
  key.queue = wire.queue_of(name)
  key.releases, key.asleep = wire.read_write_releases_of(name), {}
  key.freed_at, key.readable_since = math.huge, math.huge
  key.theirs_since, key.their_run, key.ours_since = nil, 0, 0
  key.ours_in_a_row, key.seen = 0, 0
end

-- A thread of Java sleeps from now on until it has the lock to read or write; nil: it is awake.
function ReadWrite:sleeps(name, slot, kind)
  local asleep = self.keys[name].asleep
  local overtaken = asleep[slot] and asleep[slot].overtaken or 0
  asleep[slot] = kind and { since = self.world.now, kind = kind, overtaken = overtaken }
end

-- ---- the server ----

local function live(self, name) return rules.live(self.server, name) end

-- → the moment at which the server forgets the owner's last hold | nil: it has none
local function end_of(self, key, owner)
  local entry = live(self, key.name)
  local count = entry and tonumber(entry.value.values[owner])
  if not count then return nil end
  local till = floor(self.server:moment(entry.expires + 1))
  if wire.writes(owner) then return till end
  local longest = 0
  for n = 1, count do
    local hold = live(self, wire.hold_key(key.name, owner, n))
    if hold then longest = max(longest, floor(self.server:moment(hold.expires + 1))) end
  end
  return longest > 0 and math.min(longest, till) or nil
end

-- → owner → count, as the server has it
local function holders_of(self, key)
  local entry, holders = live(self, key.name), {}
  for _, field in ipairs(entry and entry.value.fields or {}) do
    if field ~= "mode" then holders[field] = tonumber(entry.value.values[field]) end
  end
  return holders
end

-- A grant that was not confirmed yet may be given again after a loss.
function ReadWrite:count(name, owner)
  local key = self.keys[name]
  return not key.lost[owner] and holders_of(self, key)[owner] or nil
end

local function queue_of(self, key)
  local entry = live(self, key.queue)
  return entry and entry.value or nil
end

local function is_subscribed(self, member)
  return self.server.redis.channels[wire.channel_of(wire.client_of(member))] ~= nil
end

-- ---- claims ----

-- Returns whether the claim began before data was lost, and was not confirmed since.
local function is_excused(key, claim)
  return claim.till <= key.loss_at + claim.lease_us and claim.asked_at <= key.loss_at
end

local function check_pair(self, key, a, b)
  if a.kind == "read" and b.kind == "read" or a.slot == b.slot then return end
  if is_excused(key, a) or is_excused(key, b) then return end
  self.world:fail("exclusion", "%s: %s (%s, until %.6f) and %s (%s, until %.6f) hold it", key.name,
    a.who, a.kind,
    a.till / 1e6, b.who, b.kind, b.till / 1e6)
end

local function check_backed(self, key, claim)
  if is_excused(key, claim) then return end
  self.server.redis:read_clock()
  local till = end_of(self, key, claim.owner)
  if not till or claim.till > till + CLOCKS_US then
    self.world:fail("backed", "%s: %s believes that it may %s until %.6f, the server says %s",
      key.name, claim.who,
      claim.kind, claim.till / 1e6, till and ("%.6f"):format(till / 1e6) or "that it does not")
  end
end

function ReadWrite:claim(claim, till)
  local key, now = self.keys[claim.key], self.world.now
  claim.till = till
  key.claims[claim] = nil
  for i = #key.claims, 1, -1 do
    if key.claims[i] == claim or key.claims[i].till <= now then table.remove(key.claims, i) end
  end
  if till <= now then return end
  for _, other in ipairs(key.claims) do check_pair(self, key, claim, other) end
  key.claims[#key.claims + 1] = claim
  check_backed(self, key, claim)
end

function ReadWrite:granted(claim)
  local key = self.keys[claim.key]
  if is_excused(key, claim) then return end
  local take = key.take_of[claim.token]
  if not take then
    self.world:fail("token", "%s: %s has token %s that the server has not given", key.name,
      claim.who,
      tostring(claim.token))
  elseif claim.kind == "write" and take.owner ~= claim.owner then
    self.world:fail("token", "%s: %s has the token of %s", key.name, claim.who,
      tostring(take.owner))
  end
  claim.take = take and take.number
end

-- A reader writes nothing, but what it reads must not be older than the writes before its own
-- acquire.
function ReadWrite:write(claim)
  if claim.kind == "write" then return Watcher.write(self, claim) end
  local store = self.keys[claim.key].store
  if claim.till > self.world.now and not is_excused(self.keys[claim.key], claim)
      and (store.token or 0) > claim.token then
    self.world:fail("fence", "%s: %s reads while a newer writer writes", claim.key, claim.who)
  end
end

function ReadWrite:lose(name)
  Watcher.lose(self, name)
  local key = self.keys[name]
  for owner in pairs(key.holders) do key.lost[owner] = true end
  key.holders = {}
end

-- ---- programs ----

-- Checks what only time has changed: no owner may believe in a hold that the server has forgotten.
local function check_forgotten(self, key, owner, what)
  for _, claim in ipairs(key.claims) do
    if claim.owner == owner and claim.till > self.world.now + CLOCKS_US
        and not is_excused(key, claim) then
      self.world:fail("backed", "%s: %s takes it from %s, which believes in it until %.6f",
        key.name, what, claim.who,
        claim.till / 1e6)
    end
  end
end

-- → since when a thread of Java could have had the lock and was notified of that. It is not
-- notified of the end of a lease, nor by Redisson that a writer continues as a reader.
local function open_since(self, key, kind)
  local entry = live(self, key.name)
  if not entry then return key.freed_at end
  return kind == "read" and key.mode == "read" and key.readable_since or math.huge
end

local function check_asleep(self, key)
  for slot, java in pairs(self.calm and key.asleep or {}) do
    local gap = self.world.now - max(java.since, open_since(self, key, java.kind))
    if gap > CALM_GAP then
      self.world:fail("asleep", "%s: java %d could have had it for %.3f s", key.name, slot,
        gap / 1e6)
    end
  end
end

function ReadWrite:before(name, client, args)
  self.server.redis:read_clock()
  if client.process then rules.count_command(self.world, client.process) end
  for _, key_name in ipairs(self.names) do
    local key = self.keys[key_name]
    if not live(self, key_name) then
      for owner in pairs(key.holders) do
        check_forgotten(self, key, owner, "the end of its lease")
      end
      if next(key.holders) then
        key.free_since, key.freed_at, key.unheard = self.world.now, math.huge, true
      end
      key.holders, key.mode, key.paused_till = {}, nil, nil
    end
    check_asleep(self, key)
    key.was = queue_of(self, key) and { members = {}, scores = {} } or nil
    for i, member in ipairs(key.was and queue_of(self, key).members or {}) do
      key.was.members[i], key.was.scores[i] = member, queue_of(self, key).scores[i]
    end
    key.counted, key.subscribed = live(self, key.counter) ~= nil, {}
    for _, member in ipairs(key.was and key.was.members or {}) do
      key.subscribed[member] = is_subscribed(self, member)
    end
  end
  if name == "rw_renew" then self:check_renewal(client, args, 2) end
end

local function has_writer(holders)
  for owner in pairs(holders) do
    if wire.writes(owner) then return owner end
  end
end

-- If there are two holders, neither writes; but a writer may read, too.
local function check_holders(self, key, holders)
  local writer = has_writer(holders)
  if not writer then return end
  for owner in pairs(holders) do
    local same = wire.client_of_owner(owner) == wire.client_of_owner(writer)
    local dead = not end_of(self, key, owner)
    if owner ~= writer and not dead and (wire.writes(owner) or not same) then
      self.world:fail("exclusion", "%s: the server has both %s and %s in it", key.name, writer,
        owner)
    end
  end
end

-- Checks that no waiter that could receive a grant was passed over by the new holder. A reader
-- never passes a waiting writer, except under its own write lock.
local function check_order(self, key, owner, args)
  if not key.was or self.beneath or not wire.is_ours(owner) then return end
  local own_score, queue = math.huge, queue_of(self, key)
  for i, member in ipairs(key.was.members) do
    if wire.owner_of(member) == owner then own_score = key.was.scores[i] end
  end
  for i, member in ipairs(key.was.members) do
    local score = key.was.scores[i]
    local stays = queue and queue.score_of[member] == score
    if stays and score > 0 and score < own_score and key.subscribed[member]
        and not wire.names(args, member) then
      self.world:fail("order", "%s: %s has overtaken %s", key.name, owner, member)
      return
    end
  end
end

local function check_gap(self, key)
  local calm_since = self.calm and 0 or rotation.settled_at(self.world)
  if not calm_since then return end
  local since
  for slot = 1, 12 do
    local wanting = key.wanting[slot]
    if wanting and (not since or wanting < since) then since = wanting end
  end
  local gap = since and self.world.now - max(since, key.free_since, calm_since) or 0
  local freed = self.calm and since and self.world.now - max(since, key.freed_at) or 0
  if gap > CALM_GAP + self.recheck_us or freed > CALM_GAP then
    self.world:fail("idle", "%s: free for %.3f s while somebody waits", key.name, gap / 1e6)
  end
end

-- A writer's tokens grow; readers get the last one.
local function check_token(self, key)
  local entry = live(self, key.counter)
  local token = entry and tonumber(entry.value)
  if not token or token == key.token then return end
  key.token = token
  if token <= key.last_token then
    self.world:fail("token", "%s: token %.0f after %.0f", key.name, token, key.last_token)
  elseif key.counted and not has_writer(key.holders) then
    self.world:fail("token", "%s: token %.0f is drawn for a reader", key.name, token)
  end
  key.last_token, key.takes = token, key.takes + 1
  key.take_of[token] = { owner = has_writer(key.holders), number = key.takes }
end

-- Checks that a waiter that has left the queue had a reason.
local function check_left(self, key, args)
  local queue = queue_of(self, key)
  for i, member in ipairs(key.was and key.was.members or {}) do
    local gone = not (queue and queue.score_of[member]) and key.was.scores[i] > 0
    local evicted = self.missed[wire.client_of(member)]
    local legit = key.holders[wire.owner_of(member)] or wire.names(args, member)
      or not key.subscribed[member] or evicted
    if gone and not legit then
      self.world:fail("queue", "%s: %s was dropped from the queue", key.name, member)
    end
  end
end

-- Notes the clients that let a grant run out.
local function note_missed(self, key)
  for i, member in ipairs(key.was and key.was.members or {}) do
    if key.was.scores[i] == 0 and not key.holders[wire.owner_of(member)] then
      self.missed[wire.client_of(member)] = true
    end
  end
end

-- The queue must not keep the mark of a grant whose hold is gone: its waiter would be let in again.
local function check_marks(self, key, holders)
  local queue = queue_of(self, key)
  for i, member in ipairs(self.calm and queue and queue.members or {}) do
    if queue.scores[i] == 0 and not holders[wire.owner_of(member)] then
      self.world:fail("grant", "%s: %s is marked as granted, and does not have it", key.name, member)
    end
  end
end

-- If the first waiter, which can receive a grant or asks, could be let in, the holder must be dead
-- or read as the waiter would.
local function check_waiting(self, key, holders, args)
  if self.server.redis.channels[key.releases] then return end
  local queue, live_holders, writer = queue_of(self, key), 0, has_writer(holders)
  for owner in pairs(holders) do
    live_holders = live_holders + (end_of(self, key, owner) and 1 or 0)
  end
  for i, member in ipairs(queue and queue.members or {}) do
    if queue.scores[i] > 0 and (is_subscribed(self, member) or wire.names(args, member)) then
      if live_holders == 0 or not writer and not wire.writes(member) then
        self.world:fail("idle", "%s: %s could come in and waits", key.name, member)
      end
      return
    end
  end
end

-- Redisson's readers are kept out only for a writer that waits first and can receive a grant or
-- asks.
local function check_drain(self, key, args)
  local entry, queue = live(self, key.name), queue_of(self, key)
  local mode = entry and entry.value.values.mode
  if not mode or not mode:find("^drain:") then return end
  for i, member in ipairs(queue and queue.members or {}) do
    if queue.scores[i] > 0 and (is_subscribed(self, member) or wire.names(args, member)) then
      if wire.writes(member) then return end
      break
    end
  end
  self.world:fail("drain", "%s: Redisson's readers are kept out for nobody", key.name)
end

-- → the ms until which the record leaves the lock to Redisson's waiters, or nil
local function left_till(self, key)
  local queue = queue_of(self, key)
  local first = queue and queue.members[1]
  return first and first:find("^1f 0 [01] %- ") and -queue.scores[1] or nil
end

local function only_ours_read(holders)
  for owner in pairs(holders) do
    if wire.writes(owner) or not wire.is_ours(owner) then return false end
  end
  return next(holders) ~= nil
end

-- Holdfast readers that let a Redisson writer go first do not do so again at once. A note from
-- before they acquired the lock is about the turn of another writer.
local function check_pause(self, key, holders)
  local now = self.server.redis:now_ms()
  local till = left_till(self, key) or key.noted_till or 0
  local is_new, goes_on = till > (key.noted_till or 0), false
  for owner in pairs(holders) do goes_on = goes_on or key.read_by[owner] end
  key.noted_till, key.read_by = till, holders
  if not goes_on then key.paused_till = nil end -- all leases had ended
  if not only_ours_read(holders) or not self.server.redis.channels[key.releases] then
    key.paused_till = nil
  elseif is_new then
    if key.paused_till and now < key.paused_till + PAUSE_MS then
      self.world:fail("turn", "%s: readers stand back twice for one writer of Redisson", key.name)
    end
    key.paused_till = till
  end
end

-- A program must not leave an owner less time than the owner believes in.
local function check_believed(self, key, holders)
  for _, claim in ipairs(key.claims) do
    if holders[claim.owner] and claim.till > self.world.now then check_backed(self, key, claim) end
  end
end

local function first_waiter(self, key)
  local queue = queue_of(self, key)
  for i, member in ipairs(queue and queue.members or {}) do
    if queue.scores[i] > 0 then return member end
  end
end

-- No message announces the end of a lease. The first waiter notices it, and the new holder, when it
-- asks.
local function note_first(self, key, args)
  local member = first_waiter(self, key)
  key.unheard = key.unheard and member ~= nil and not wire.names(args, member)
end

-- Redisson's readers are kept out only for a writer that waits first.
local function note_mode(self, key, name)
  local entry = live(self, key.name)
  local mode = entry and entry.value.values.mode
  local drains = mode and mode:find("^drain:")
  if drains then mode = wire.writes(first_waiter(self, key) or "") and "drain" or "read" end
  if mode ~= key.mode then
    local told = key.mode and name ~= "foreign"
    key.mode, key.readable_since = mode, told and self.world.now or math.huge
  end
end

-- → whether a client of Redisson holds the lock; whether one of holdfast's does
local function sides_of(holders)
  local theirs, ours = false, false
  for owner in pairs(holders) do
    if wire.is_ours(owner) then ours = true else theirs = true end
  end
  return theirs, ours
end

-- → when holdfast's run began, if the record says that it goes on
local function our_run_began_ms(self, key)
  local queue = queue_of(self, key)
  local is_ours = queue and queue.members[1] and queue.members[1]:find("^1f [1-9]")
  return is_ours and -queue.scores[1] or nil
end

-- Returns whether the record still says that holdfast's run has lasted since before `since`. The
-- programs miss a run of Redisson's that begins when the last of holdfast's readers leaves, and in
-- which no waiter asks.
local function was_missed(self, key, since)
  local began_ms = our_run_began_ms(self, key)
  return began_ms and self.server.redis:now_ms() - began_ms > (self.world.now - since) / 1000 + 2
end

-- Returns whether the record says that a client of Redisson holds the lock, as it has done since
-- `score`. A reader of holdfast that joins Redisson's readers does not end their run, and no
-- program sees how these leave.
local function is_recorded_since(self, key, score)
  local queue = queue_of(self, key)
  local is_theirs = queue and queue.members[1] and queue.members[1]:find("^1f 0 0 %d ")
  return is_theirs and (not score or queue.scores[1] == score) and queue.scores[1]
end

-- Redisson's run begins when the lock is left to its waiters or only its clients hold it. It ends
-- when only clients of holdfast hold the lock.
local function note_runs(self, key, before, holders)
  local now, theirs, ours = self.world.now, sides_of(holders)
  local left = not next(holders) and next(before) and self.server.redis.channels[key.releases]
    and not our_run_began_ms(self, key)
  local begins = left or theirs and not ours
  if begins or left_till(self, key) then
    local recorded = key.recorded and is_recorded_since(self, key, key.recorded.score)
    key.theirs_since = key.theirs_since or recorded and key.recorded.since or now
    if begins then key.seen, key.ours_in_a_row = key.ours_in_a_row == 0 and key.seen or 0, 0 end
  elseif ours and not theirs and key.theirs_since then
    if not was_missed(self, key, key.theirs_since) then
      key.their_run, key.ours_since = math.min(now - key.theirs_since, MAX_RUN), now
    end
    local score = is_recorded_since(self, key)
    key.recorded = score and { since = key.theirs_since, score = score }
    key.theirs_since = nil
  end
end

-- A waiter of holdfast sees that only clients of Redisson hold the lock. When the lock is left to
-- them, counting begins again.
local function note_seen(self, key, name, args, holders, reply)
  local waits = name == "rw_acquire" and type(reply) == "table" and reply[1] == 0
    and reply[5] ~= "" and args[4] == key.name
  local theirs, ours = sides_of(holders)
  if left_till(self, key) then key.seen = 0
  elseif waits and theirs and not ours then key.seen = key.seen + 1 end
end

-- While the server refuses writes, the programs cannot record whose turn it is.
local function is_in_our_run(self, key)
  local tolerance = ROUNDED + self.server.refused_for
  return not key.theirs_since and self.world.now - key.ours_since <= key.their_run + tolerance
end

-- Counts how often holdfast takes the lock while threads of Java sleep, except during a run that is
-- no longer than Redisson's last one.
local function check_overtaken(self, key)
  local in_our_run = is_in_our_run(self, key)
  for slot, java in pairs(self.calm and key.asleep or {}) do
    if sides_of(key.holders) then java.overtaken = 0
    elseif not in_our_run then java.overtaken = java.overtaken + 1 end
    if java.overtaken > MAX_OVERTAKEN then
      self.world:fail("overtaken", "%s: ours have taken it %d times while java %d sleeps", key.name,
        java.overtaken, slot)
    end
  end
end

-- A release leaves the lock to Redisson's waiters unless holdfast's run may go on. While none of them
-- listens, releases do not count.
local function check_turn(self, key, name, before, holders, new)
  local freed = (name == "rw_release" or name == "rw_leave") and next(before)
    and self.server.redis.channels[key.releases]
  for owner in pairs(before) do freed = freed and not holders[owner] end
  if not freed then
    if key.ours_in_a_row == 0 then key.ours_in_a_row = 1 end
    return
  end
  key.ours_in_a_row = key.ours_in_a_row + 1
  local most = math.max(MIN_IN_A_ROW, math.min(key.seen, MAX_IN_A_ROW))
  local too_many = key.seen > 0 and key.ours_in_a_row > most
  if next(key.asleep) and (too_many or not is_in_our_run(self, key)) then
    self.world:fail("turn", "%s: handed over to %s although Redisson waits", key.name, new)
  end
end

local function was_joined(before, holders)
  for owner in pairs(before) do
    if holders[owner] then return true end
  end
end

local SERVES = { rw_acquire = true, rw_release = true, rw_leave = true }
local SIGNAL_OF = { rw_renew = "renewed", rw_release = "freed", rw_leave = "freed" }

local function look_at(self, key, name, client, args, reply)
  local holders, before, new = holders_of(self, key), key.holders, nil
  check_holders(self, key, holders)
  for owner in pairs(before) do
    if not holders[owner] then check_forgotten(self, key, owner, name) end
  end
  check_believed(self, key, holders)
  check_pause(self, key, holders)
  note_missed(self, key)
  for owner in pairs(holders) do
    if not before[owner] and (not new or owner < new) then new = owner end
  end
  if new and not next(before) then check_gap(self, key) end
  if not next(holders) and next(before) then
    key.free_since, key.freed_at = self.world.now, key.unheard and math.huge or self.world.now
  end
  note_mode(self, key, name)
  note_first(self, key, args)
  note_runs(self, key, before, holders)
  if new and wire.is_ours(new) then check_turn(self, key, name, before, holders, new) end
  note_seen(self, key, name, args, holders, reply)
  key.holders = holders
  if new and not was_joined(before, holders) then check_overtaken(self, key) end
  for owner in pairs(holders) do
    if not before[owner] then check_order(self, key, owner, args) end
  end
  if new and client.process then
    self.world:signal(wire.names(args, new) and "take" or "grant", client.process, key.name)
  end
  check_token(self, key)
  check_marks(self, key, holders)
  local status = type(reply) == "table" and reply[1] or reply
  -- Otherwise nothing has changed for others. Nor has it when one of several readers releases, or
  -- enters again: the next client that asks finds that a writer before them is dead.
  local reader_goes = name == "rw_release" or name == "rw_leave" and status == 1
  local stay = reader_goes and next(holders) and not has_writer(before)
  local enters = name == "rw_acquire" and status == 1 and before[wire.owner_in(args)]
  local found = type(status) == "number" and status >= 0 and status ~= 2 and not stay and not enters
  if found and SERVES[name] and args[4] == key.name then
    check_waiting(self, key, holders, args)
    check_drain(self, key, args)
  end
end

function ReadWrite:after(name, client, args, reply)
  if name == "rw_force" and type(reply) == "number" then self:lose(args[4]) end
  self.world:note("  %s runs %s for %s", "server", name, client.process and client.process.name
    or "admin")
  self.missed = {}
  self.beneath = name == "rw_acquire" and args[4 + tonumber(args[3]) + 10] ~= nil
  for _, key_name in ipairs(self.names) do
    local key = self.keys[key_name]
    look_at(self, key, name, client, args, reply)
    check_left(self, key, args)
  end
  if client.process and SIGNAL_OF[name] then
    self.world:signal(SIGNAL_OF[name], client.process, args[4])
  end
  local waits = name == "rw_acquire" and type(reply) == "table" and reply[1] == 0
  if client.process and waits then self.world:signal("waits", client.process, args[4]) end
end

function ReadWrite:lost(plan, handle)
  if not (self.calm and plan.renewed and not plan.extend) then return end
  self.world:fail("lost", "%s: the lock was not kept, though nothing went wrong", handle.key)
end

-- ---- the end ----

function ReadWrite:left_by(uuid)
  self.server.redis:read_clock()
  for _, name in ipairs(self.names) do
    local key = self.keys[name]
    for owner in pairs(holders_of(self, key)) do
      local own = wire.client_of_owner(owner) == uuid
      if own and end_of(self, key, owner) then return owner, name end
    end
    local member = rules.place_of(queue_of(self, key), uuid)
    if member then return member, name end
  end
end

local function check_left_over(self, key)
  local queue = queue_of(self, key)
  for i, member in ipairs(queue and queue.members or {}) do
    local process = self.uuids[wire.client_of(member)]
    if process and not process.dead and queue.scores[i] > 0 and not self.late then
      self.world:fail("orphan", "%s: %s still stands in the queue", key.name, member)
    end
  end
  local entry = live(self, key.name)
  if self.gentle and entry and entry.expires - self.server.redis:now_ms() > CLOCKS_MS then
    self.world:fail("orphan", "%s: it is still held on the server", key.name)
  end
end

local function check_all_gone(self)
  for name in pairs(self.server.db.entries) do
    local counts = name:find("^redisson_lock_token:") or name:find("^holdfast_")
    if live(self, name) and not counts then self.world:fail("orphan", "%s is still there", name) end
  end
end

function ReadWrite:finish(later)
  local world = self.world
  self.server.redis:read_clock()
  for _, name in ipairs(self.names) do check_left_over(self, self.keys[name]) end
  rules.check_channels(world, self.uuids, self.server.redis)
  world.now = world.now + later
  self.server.redis:read_clock()
  check_all_gone(self)
  rules.check_queues_gone(self)
end

return ReadWrite
