-- The rules of every schedule.
--
-- The watcher checks the server before and after each program. The tasks report to it what they
-- believe. A claim is what one owner believes: that the lock is held until a moment. Data that the
-- server has lost since the lock was acquired is an excuse.

local rotation = require "spec.sim.rotation"
local rules = require "spec.sim.rules"
local wire = require "spec.sim.wire"

local floor, max = math.floor, math.max

local RECEIVED_WITHIN = 5000     -- a message, in a calm schedule
local CALM_GAP = 400000   -- µs with a released lock and a waiter for it
-- holdfast's turns after a run of Redisson's: as many as the holders seen, within these limits
local MIN_IN_A_ROW, MAX_IN_A_ROW = 3, 9
local LEFT = 48000        -- a free lock is left to Redisson's waiters for at least this long
local MAX_OVERTAKEN = 40  -- how often ours may take the lock during one wait of Redisson's
local CLOCKS_MS = 500     -- how much the ends of a lease may differ

local Watcher = {}
Watcher.__index = Watcher

-- In a calm schedule nothing goes wrong, so a process needs to wait only for the end of a lease.
function Watcher.new(world, servers, plan)
  local server = servers[1]
  local self = setmetatable({
    world = world, server = server, calm = plan.calm, gentle = rules.is_gentle(plan),
    late = rules.is_late(plan),
    recheck_us = rules.longest_grant(plan),
    keys = {}, names = {}, uuids = {}, shared = {}, key_of_wait = {}, queue_of = {},
    vanished = {}, ended = {}, recorded = {},
  }, Watcher)
  for _, part in ipairs(plan.parts) do
    if part.owner then self.shared[part.owner] = true end
  end
  server.watcher = self
  server.redis.replaced.publish = function(run, client, args)
    self:published(args[2], args[3])
    return run(client, args)
  end
  return self
end

function Watcher:add_key(name, kind)
  self.keys[name] = {
    name = name, kind = kind, counter = wire.counter_of(name),
    releases = wire.releases_of(name),
    waiters = {}, claims = {}, wanting = {}, last_token = 0, takes = 0, loss_at = -1,
      lost_token = -1, free_since = 0,
    store = { take = 0 }, take_of = {}, ranges = {}, tenures = {}, taken = {},
    turns = {}, turns_with_shared = {}, ours_in_a_row = 0, seen = 0, overtaken = {},
    arrivals = 0,
    records = {}, prints = {}, done_for_sure = 0,
  }
  self.names[#self.names + 1] = name
end

function Watcher:add_process(process)
  self.uuids[process.uuid] = process
end

-- ---- claims ----

-- Returns whether the claim began before data was lost, and was not confirmed since. The processes
-- of a shared owner cannot tell which hold was whose.
local function is_excused(key, claim)
  if claim.shared then return key.loss_at >= 0 end
  if claim.till > key.loss_at + claim.lease_us then return false end
  if claim.token then return claim.token <= key.lost_token end
  return claim.asked_at <= key.loss_at
end

local function check_pair(self, key, a, b)
  local same = a.owner == b.owner and (a.shared or a.who == b.who)
  if same or is_excused(key, a) or is_excused(key, b) then return end
  self.world:fail("exclusion", "%s: both %s (until %.6f) and %s (until %.6f) hold it", key.name,
    a.who, a.till / 1e6,
    b.who, b.till / 1e6)
end

-- The claim now ends at `till`; 0: it has ended.
function Watcher:claim(claim, till)
  local key, now = self.keys[claim.key], self.world.now
  if key.granted_to == claim.owner then
    key.granted_to = nil
    if self.calm and now - key.granted_at > CALM_GAP then
      self.world:fail("grant", "%s: %s has heard of its grant after %.3f s", key.name, claim.who,
        (now - key.granted_at) / 1e6)
    end
  end
  local tenure, ended = key.tenures[claim.owner], till <= now
  local lapsed = ended and claim.till and claim.till <= now
  claim.till = till
  -- if its lease is over before its release, it may remain on the server for a grant lease more
  if tenure then tenure.idle = ended and now + (lapsed and self.recheck_us or 0) or nil end
  if ended then
    key.claims[claim.slot] = nil
    return
  end
  key.claims[claim.slot] = claim
  for slot = 1, 12 do
    local other = key.claims[slot]
    if other and other ~= claim and other.till > now then check_pair(self, key, claim, other) end
  end
end

-- ---- what a client keeps ----

local function is_subscribed(self, client)
  return self.server.redis.channels[wire.channel_of(client)] ~= nil
end

local MAX_IN_RETURN, ROUNDED = 2000000, 2000 -- µs of holdfast's turns after Redisson's
local MAX_AHEAD = 300000 -- how far its tokens may be ahead of the server's clock
local KEEP_SLACK = 20000

-- Each caller has its own token, from the range that the server has given to the owner. → whether
-- it had the hold already, by another handle
local function check_kept_token(self, key, claim)
  local found
  for _, range in ipairs(key.ranges) do
    local within = claim.token and range.from < claim.token and claim.token <= range.to
    if within and range.take.owner == claim.owner then found = range.take end
  end
  local entered = found and found.issued == claim.token and found.who == claim.who
  if not found or not entered and claim.token <= (found.issued or 0) then
    self.world:fail("token", "%s: %s has token %s, which is not its own", key.name, claim.who,
      tostring(claim.token))
    return
  end
  found.issued, found.who = claim.token, claim.who
  key.last_token = max(key.last_token, claim.token)
  claim.take = found.number
  return entered
end

-- A lock is not kept for longer than allowed, nor lent to callers that ask after others want it.
local function check_tenure(self, key, claim)
  local now, tenures = self.world.now, key.tenures
  local tenure = tenures[claim.owner] or {}
  tenures[claim.owner] = tenure
  tenure.since = tenure.since or now
  if claim.keep and now > tenure.since + claim.keep * 1.01e6 + KEEP_SLACK then
    self.world:fail("tenure", "%s: %s gets what was kept for %.3f s", key.name, claim.who,
      (now - tenure.since) / 1e6)
  end
  if self.calm and tenure.wished_at and claim.asked_at > tenure.wished_at then
    self.world:fail("wish", "%s: %s gets it though others want it", key.name, claim.who)
  end
end

-- The hold's caller has vanished, but its client notices that only at `noticed_at`.
function Watcher:vanishes(name, owner, noticed_at)
  self.vanished[owner] = true
  local tenure = self.keys[name].tenures[owner]
  if tenure then tenure.idle = noticed_at end
end

-- A kept lock that no caller holds goes to waiters of other clients.
local function check_idle(self, key)
  local tenure, first = key.tenures[key.holder or ""], key.waiters[1]
  local idle = self.calm and tenure and tenure.idle and first
    and wire.client_of(first.member) ~= wire.client_of_owner(key.holder)
  if not idle then
    key.idle_since = nil
    return
  end
  key.idle_since = max(key.idle_since or self.world.now, tenure.idle)
  if self.world.now - key.idle_since > CALM_GAP then
    self.world:fail("wish", "%s: %s keeps it for %.3f s, unused, though others wait", key.name,
      key.holder, (self.world.now - key.idle_since) / 1e6)
  end
end

-- Notes by when a client learns that others want what it keeps.
local function note_wish(self, channel, number)
  for uuid, process in pairs(self.uuids) do
    for _, name in ipairs(self.names) do
      local tenures, owner = self.keys[name].tenures, uuid .. ":" .. number
      if channel == wire.channel_of(uuid) and is_subscribed(self, uuid) then
        tenures[owner] = tenures[owner] or {}
        local tenure = tenures[owner]
        tenure.wished_at = tenure.wished_at or self.world.now + process.far + KEEP_SLACK
      end
    end
  end
end

-- From now on the process knows that what it took by force has no owner.
function Watcher:took_by_force(process, name)
  local key = self.keys[name]
  for owner in pairs(key.taken) do
    local own = wire.client_of_owner(owner) == process.uuid
    if own and key.taken[owner] == true then key.taken[owner] = self.world.now end
  end
end

local function check_forced(self, key, claim)
  local known_at = tonumber(key.taken[claim.owner])
  if known_at and claim.asked_at > known_at then
    self.world:fail("taken", "%s: %s gets what its client took by force %.3f s ago", key.name,
      claim.who, (self.world.now - known_at) / 1e6)
  end
end

-- The first claim of a hold, after an acquire that is not a re-entry.
function Watcher:granted(claim)
  local key = self.keys[claim.key]
  check_forced(self, key, claim)
  local kept = wire.keeps(claim.owner)
  if not claim.fenced or not claim.token and claim.shared or is_excused(key, claim) then return end
  if kept then
    if not check_kept_token(self, key, claim) then check_tenure(self, key, claim) end
    return
  end
  local take = key.take_of[claim.token]
  if not take then
    self.world:fail("token", "%s: %s has token %s that the server has not given", key.name,
      claim.who,
      tostring(claim.token))
  elseif take.owner ~= claim.owner then
    self.world:fail("token", "%s: %s has the token of %s", key.name, claim.who, take.owner)
  end
  claim.take = take and take.number
  key.last_token = max(key.last_token, claim.token or 0)
end

-- Returns whether a failover excuses two leaders' terms at a time, or a leader's token.
function Watcher.excuses() return false end
function Watcher.may_be_one_of_two() return false end

-- A write to a store that checks tokens. → whether it was accepted
function Watcher:write(claim)
  local key = self.keys[claim.key]
  local store = key.store
  if not claim.token or claim.token < (store.token or 0) then return false end
  local is_older = claim.take and claim.take < store.take
  if is_older and not (key.fell and claim.token - store.token <= MAX_AHEAD) then
    self.world:fail("fence", "%s: a write of an older hold was accepted", key.name)
  end
  store.token, store.take = claim.token, max(store.take, claim.take or 0)
  return true
end

-- The tokens after a loss may be below those before it.
local function note_loss(self, key)
  key.loss_at = self.world.now
  key.lost_token = max(key.lost_token, key.reserved or 0, key.last_token)
end

-- Data of a key is lost, or a lock was taken away: its owner may continue to believe in it.
function Watcher:lose(name)
  local key = self.keys[name]
  note_loss(self, key)
  key.counter_lost = true
  key.holder, key.done_until, key.done_for_sure = nil, nil, 0
  if key.turns.theirs_since then key.turns_unknown_till = self.world.now + MAX_IN_RETURN end
  key.free_since = max(key.free_since, self.world.now)
end

-- The server is about to lose its data.
function Watcher:forget()
  for _, name in ipairs(self.names) do
    self:lose(name)
    self.keys[name].waiters = {}
  end
end

-- The server's clock is about to be set forward: holds acquired before may end early.
function Watcher:hasten()
  for _, name in ipairs(self.names) do
    local key = self.keys[name]
    note_loss(self, key)
    key.done_for_sure = 0
  end
end

-- ---- what must be done once ----

-- → the record that this run must leave
function Watcher:record(name, task, print)
  local records = self.keys[name].records
  local text = ("D %s %d"):format(task.name, self.world.now)
  records[text] = print
  return text
end

-- The record of a run was left at `asked_at` or later: until `until_time` it must not run again.
function Watcher:completed(name, asked_at, until_time)
  local key = self.keys[name]
  if key.loss_at < asked_at then key.done_for_sure = max(key.done_for_sure, floor(until_time)) end
end

-- How an attempt to begin a run ended; record: of an earlier run, if it was given one
function Watcher:begun(name, task, print, asked_at, code, record)
  local key = self.keys[name]
  if not code and key.done_for_sure > self.world.now and key.loss_at < asked_at then
    self.world:fail("once", "%s: %s runs what was done", name, task.name)
  end
  if record then
    local before = key.records[record]
    if not before then
      self.world:fail("record", "%s: %s was given %q, which nobody left", name, task.name, record)
    elseif before ~= "" and print ~= "" and before ~= print then
      self.world:fail("record", "%s: %s was given the record of another request", name, task.name)
    end
  end
  if code == "mismatch" then
    local others = false
    for other in pairs(key.prints) do others = others or other ~= "" and other ~= print end
    if print == "" or not others then
      self.world:fail("record", "%s: %s matches, and was told not", name, task.name)
    end
  end
end

-- ---- the server ----

local function live(self, name) return rules.live(self.server, name) end

-- → holder | nil, its count, whether it is the record of a run, another holder | nil
local function holder_in(entry)
  if not entry then return nil end
  if entry.kind == "string" then return entry.value, 1 end
  local holder, count, done, others
  for _, field in ipairs(entry.value.fields) do
    if field == "done" then
      done = true
    elseif field ~= "print" and field ~= "by" then
      others = holder
      holder, count = field, tonumber(entry.value.values[field])
    end
  end
  return holder, count, done, others
end

-- → the holder's count of a key as the server has it | nil
function Watcher:count(name, owner)
  local holder, count = holder_in(live(self, name))
  return holder == owner and count or nil
end

-- → the key's queue | nil
local function queue_of(self, key)
  local entry = live(self, key.queue)
  return entry and entry.kind == "zset" and entry.value or nil
end

-- → the member that has the lock by a grant | nil
local function granted_in(queue)
  -- after the record, and waiters that were passed over
  for i, score in ipairs(queue and queue.scores or {}) do
    if score >= 0 then return score == 0 and queue.members[i] or nil end
  end
end

-- The server has taken the lock from an owner, which must have known that before.
local function check_backed(self, key, owner, what)
  for slot = 1, 12 do
    local claim = key.claims[slot]
    if claim and claim.owner == owner and claim.till > self.world.now
        and not (claim.shared or is_excused(key, claim)) then
      self.world:fail("backed", "%s: %s takes it from %s, which believes in it until %.6f",
        key.name, what, claim.who,
        claim.till / 1e6)
    end
  end
end

-- A grant ran out: its waiter must not have received it. A grant that is repeated for a vanished
-- caller runs out if its client unsubscribed at that moment.
local function check_taken(self, key)
  if self.calm and key.granted_to == key.holder and key.missed_by ~= key.holder then
    self.world:fail("grant", "%s: granted to %s, which did not take it", key.name, key.holder)
  end
end

-- Notes what only time has changed.
local function catch_up(self, key)
  local now_ms = self.server.redis:now_ms()
  if key.holder and key.expires and now_ms > key.expires then
    check_taken(self, key)
    check_backed(self, key, key.holder, "the end of its lease")
    key.holder, key.expired = nil, true
    key.free_since = floor(self.server:moment(key.expires + 1))
  end
  if key.done_until and now_ms > key.done_until then
    key.free_since = floor(self.server:moment(key.done_until + 1))
    key.done_until = nil
  end
  if not queue_of(self, key) then key.waiters = {} end
end

-- ---- whose grant it is ----

-- A wait is for one key, a queue for one key.
local function note_queue(self, lock, queue)
  local key = self.keys[lock]
  if not key then return end
  local other = self.queue_of[queue]
  if other and other ~= lock then
    self.world:fail("names", "%s and %s have the same queue, %s", lock, other, queue)
  end
  self.queue_of[queue], key.queue = lock, queue
end

local function note_waits(self, key)
  local queue = queue_of(self, key)
  for _, member in ipairs(queue and queue.members or {}) do
    local wait = not wire.is_record(member) and wire.wait_of(member)
    if wait then
      local name = wire.client_of(member) .. " " .. wait
      self.key_of_wait[name] = self.key_of_wait[name] or key.name
    end
  end
end

-- A message was published. A grant names the wait that it belongs to.
function Watcher:published(channel, message)
  local wait, name = wire.grant_in(message)
  local wished = wire.wish_in(message)
  if wished then note_wish(self, channel, wished) end
  if not wait or name == rules.FORGED then return end
  for _, key_name in ipairs(self.names) do note_waits(self, self.keys[key_name]) end
  for uuid, process in pairs(self.uuids) do
    local waits_for = self.key_of_wait[uuid .. " " .. wait]
    if channel == wire.channel_of(uuid) and waits_for and waits_for ~= name then
      self.world:fail("names", "%s: granted to %s, which waits for %s", name, process.name,
        waits_for)
    end
  end
end

-- Checks repeated acquires. A guard also asks for the record of its run, and a process that joins a
-- shared owner's hold asks again with the count of holds that it was told.
local function check_asking(self, name, client, args)
  local wait = self.calm and client.process and wire.ACQUIRES[name] and name ~= "begin"
    and wire.wait_in(args)
  local joins = name == "acquire" and wire.from_in(args) ~= "0"
  if wait and not joins then rules.check_asking(self.world, client, wait) end
end

-- A process may release the hold of another one only after that one has ended.
local function check_release(self, name, client, args)
  local releases = name and (name:find("release$") or name == "complete")
  local owner = releases and client.process and args[4 + tonumber(args[3])]
  local other = owner and self.uuids[wire.client_of_owner(owner)]
  if other and other ~= client.process and not other.dead then
    self.world:fail("crash", "%s releases %s of %s, which lives", client.process.name, owner, other.name)
  end
end

function Watcher:before(name, client, args)
  check_release(self, name, client, args)
  self.server.redis:read_clock()
  wire.each_lock(name, args, note_queue, self)
  for _, key_name in ipairs(self.names) do catch_up(self, self.keys[key_name]) end
  if client.process then rules.count_command(self.world, client.process) end
  self.missed, self.granted_member, self.passed_over = {}, {}, {}
  for _, key_name in ipairs(self.names) do
    local key = self.keys[key_name]
    rules.note_passed_over(queue_of(self, key), self.passed_over)
    local member = granted_in(queue_of(self, key))
    self.granted_member[key_name] = member
    self.missed[key_name] = member and not key.holder and wire.client_of(member) or nil
  end
  if name == "renew" or name == "mutex_renew" then self:check_renewal(client, args) end
  check_asking(self, name, client, args)
end

function Watcher:check_renewal(client, args, keys_each)
  if not client.process then return end
  wire.each_renewal(args, function(key, owner)
    rules.check_renewal(self.world, client, key, owner)
  end, keys_each)
end

-- Checks that a waiter that has left the queue had a reason.
local function check_left(self, key, waiter, name, args)
  local member = waiter.member
  local legit = wire.owner_of(member) == key.holder or member == self.granted_member[key.name]
    or wire.names(args, member) or not is_subscribed(self, wire.client_of(member))
    or self.missed[key.name] == wire.client_of(member)
    or self.passed_over[member] or name == "complete"
  if not legit then
    self.world:fail("queue", "%s: %s was dropped from the queue", key.name, member)
  end
end

local function update_waiters(self, key, name, args)
  local queue = queue_of(self, key)
  local insertion_ids = queue and queue.insertion_ids or {}
  local kept, known = {}, {}
  for _, waiter in ipairs(key.waiters) do
    if insertion_ids[waiter.member] == waiter.insertion_id then
      kept[#kept + 1] = waiter
      known[waiter.member] = true
    else
      check_left(self, key, waiter, name, args)
    end
  end
  for _, member in ipairs(queue and queue.members or {}) do
    if not wire.is_record(member) and not known[member] then
      key.arrivals = key.arrivals + 1
      local id = insertion_ids[member]
      kept[#kept + 1] = { member = member, insertion_id = id, arrival = key.arrivals }
    end
  end
  key.waiters = kept
  for _, waiter in ipairs(kept) do
    local score = queue.score_of[waiter.member]
    if score < 0 and score > -1 then waiter.away_until = key.arrivals end
  end
end

-- Checks that no earlier waiter that could receive a grant was passed over by the new holder. One
-- that was passed over before does not precede waiters that came meanwhile.
local function check_order(self, key)
  local queue = queue_of(self, key)
  if not queue or not wire.is_ours(key.holder) then return end
  local arrival = math.huge
  for _, waiter in ipairs(key.waiters) do
    if wire.owner_of(waiter.member) == key.holder then arrival = waiter.arrival end
  end
  for _, waiter in ipairs(key.waiters) do
    if waiter.arrival >= arrival then return end
    local is_same = queue.insertion_ids[waiter.member] == waiter.insertion_id
    local score = is_same and queue.score_of[waiter.member]
    local away = (waiter.away_until or 0) >= arrival and arrival < math.huge
    if score and score > 0 and not away and is_subscribed(self, wire.client_of(waiter.member)) then
      self.world:fail("order", "%s: %s has overtaken %s", key.name, key.holder, waiter.member)
      return
    end
  end
end

local function check_gap(self, key)
  local calm_since = self.calm and 0 or rotation.settled_at(self.world)
  if not calm_since then return end
  local since = nil
  for slot = 1, 12 do
    local wanting = key.wanting[slot]
    if wanting and (not since or wanting < since) then since = wanting end
  end
  local gap = since and self.world.now - max(since, key.free_since, calm_since) or 0
  local rechecks = not self.calm or key.expired or self.foreign
  local recheck_us = rechecks and self.recheck_us or 0
  if gap > CALM_GAP + recheck_us then
    self.world:fail("idle", "%s: free for %.3f s while somebody waits", key.name, gap / 1e6)
  end
end

local function check_claims(self, key)
  local now = self.world.now
  for slot = 1, 12 do
    local claim = key.claims[slot]
    if claim and claim.owner ~= key.holder and claim.till > now and not is_excused(key, claim) then
      self.world:fail("exclusion", "%s: the server gives it to %s while %s holds it until %.6f",
        key.name, key.holder,
        claim.who, claim.till / 1e6)
    end
  end
end

-- Returns whether the call may be for this key: foreign commands do not say so.
local function may_concern(args, key)
  if not args[4] then return true end
  for _, arg in ipairs(args) do
    if arg == key.name then return true end
  end
  return false
end

-- Every token that the server gives is higher than all before it. One hold may get several, of
-- which only the last counts. Keys whose names differ only in braces share a counter.
local function check_token(self, key, args)
  local entry = live(self, key.counter)
  local token = entry and tonumber(entry.value)
  if not token or token == key.token then return end
  local holder = may_concern(args, key) and key.holder or nil
  local kept = holder and wire.keeps(holder)
  local before = max(not key.counter_lost and key.reserved or 0, key.last_token)
  local from = before < token and not key.counter_lost and before or 0
  key.fell = key.fell or key.counter_lost and key.ahead -- a range begins below the last one, too
  if key.counter_lost then key.reserved = nil end
  key.token, key.counter_lost = token, nil
  if token <= before and not (key.ahead and before - token <= MAX_AHEAD) then
    self.world:fail("token", "%s: %s got token %.0f after %.0f", key.name, tostring(key.holder),
      token, before)
  end
  local take = { owner = key.holder, number = key.takes }
  if kept then
    key.ranges[#key.ranges + 1] = { from = from, to = token, take = take }
    key.reserved = token
  elseif holder then
    key.last_token = token
  else
    key.reserved = token
  end
  key.ahead = key.ahead or kept or not holder -- an owner with the counter, too, may keep
  if key.holder and not kept then key.take_of[token] = take end -- also by joining a shared owner
end

-- Redisson's waiters and holdfast's hold the lock in turns: Redisson's turn begins when one of its
-- clients acquires the lock or the lock is left to them, and then holdfast's may last as long. The
-- programs count a shared owner as holdfast's when it acquires the lock, and as Redisson's when
-- they look at the holder: both are right. They may have missed a Redisson hold that was deleted.
-- They also miss one that no waiter of holdfast saw; holdfast's run, which is recorded since
-- our_run, then goes on.
local function note_turn(turns, is_theirs, is_taken, now, our_run)
  if is_theirs then
    turns.theirs_since = turns.theirs_since or now
  elseif is_taken and turns.theirs_since then
    if not our_run or our_run + ROUNDED >= turns.theirs_since then
      turns.their_run, turns.ours_since = math.min(now - turns.theirs_since, MAX_IN_RETURN), now
    end
    turns.theirs_since = nil
  end
end

-- Once a waiter of holdfast has seen that Redisson holds the lock, holdfast may hold it as often as
-- one of its waiters saw that, or MIN_IN_A_ROW times. That is over when the lock has been left to
-- Redisson's waiters and none of them came.
local function note_seen(self, key, name, args, reply)
  local holder = key.holder
  if name ~= "acquire" or not holder or wire.is_ours(holder) then return end
  local waits = type(reply) == "table" and reply[1] == 0 and reply[4] == 1 and reply[5] ~= ""
  if waits and may_concern(args, key) then key.seen = self.shared[holder] and 0 or key.seen + 1 end
end

local function note_ours_in_a_row(self, key)
  local holder, left_at = key.holder, key.left_at
  key.left_at = nil
  if self.shared[holder] ~= nil then
    key.seen = 0
  elseif not wire.is_ours(holder) then
    key.seen = key.ours_in_a_row == 0 and key.seen or 0
    key.ours_in_a_row = 0
  elseif left_at and self.world.now - left_at >= LEFT then
    key.ours_in_a_row, key.seen = 1, 0
  elseif key.granted_to or key.ours_in_a_row == 0 then
    key.ours_in_a_row = key.ours_in_a_row + 1
  end
end

local function has_too_many_turns(key)
  local most = math.max(MIN_IN_A_ROW, math.min(key.seen, MAX_IN_A_ROW))
  return key.seen > 0 and key.ours_in_a_row > most
end

-- → when holdfast's run began, in µs, if the record says that it goes on
local function our_run_since(self, key)
  local queue = queue_of(self, key)
  local is_ours = queue and queue.members[1] and queue.members[1]:find("^1f [1-9]")
  local age_ms = is_ours and self.server.redis:now_ms() + queue.scores[1]
  return age_ms and self.world.now - age_ms * 1000
end

-- A program that frees the lock may leave it to Redisson's waiters, unless holdfast's run goes on.
-- So does the end of a call whose lease is over.
local function note_sides(self, key, before, name)
  local holder, now = key.holder, self.world.now
  local freed = before or key.expired and not key.left_at and name:find("leave$")
  local our_run = our_run_since(self, key)
  local left = freed and not holder and self.server.redis.channels[key.releases] and not our_run
  key.left_at = left and now or key.left_at
  local is_theirs = left or holder and not wire.is_ours(holder)
  local is_shared = holder and self.shared[holder] ~= nil
  note_turn(key.turns, is_theirs and not is_shared, holder, now, our_run)
  note_turn(key.turns_with_shared, is_theirs, holder, now, our_run)
end

-- While the server refuses writes, the programs cannot record whose turn it is.
local function is_in_return(self, turns)
  local tolerance = ROUNDED + self.server.refused_for
  return turns.their_run and self.world.now - turns.ours_since <= turns.their_run + tolerance
end

-- A grant needs a client that can receive it, and must not keep a lock from Redisson's waiters.
local function check_grant(self, key, before)
  local owner = key.granted_to
  local client = wire.client_of_owner(owner)
  if not is_subscribed(self, client) then
    self.world:fail("grant", "%s: granted to %s, which cannot hear it", key.name, owner)
  end
  if self.vanished[owner] then
    self.world:at(self.world.now + RECEIVED_WITHIN, function()
      key.missed_by = not is_subscribed(self, client) and owner or nil
    end)
  end
  local is_known = self.world.now > (key.turns_unknown_till or 0)
  local in_return = is_in_return(self, key.turns) or is_in_return(self, key.turns_with_shared)
  if before and is_known and key.kind == "lock" and self.server.redis.channels[key.releases]
      and (has_too_many_turns(key) or not in_return) then
    self.world:fail("turn", "%s: handed over to %s although Redisson waits", key.name,
      key.granted_to)
  end
end

-- A client that gets a lock which it keeps learns in the same reply that others want it.
local function check_told(self, key)
  local tenure, silent = key.tenures[key.holder], self.server.redis.faults.deny_channels
  if silent or not wire.keeps(key.holder) or tenure and tenure.wished_at then return end
  for _, waiter in ipairs(key.waiters) do
    if wire.owner_of(waiter.member) ~= key.holder then
      self.world:fail("wish", "%s: granted to %s, which does not hear of %s", key.name, key.holder,
        waiter.member)
      return
    end
  end
end

-- Called when the lock is taken. Redisson keeps no order among its clients, so ours have overtaken
-- a waiting one only if none of them takes the lock for longer than Redisson's last run.
local function note_overtaken(self, key)
  local is_ours = wire.is_ours(key.holder)
  local in_return = is_in_return(self, key.turns) or is_in_return(self, key.turns_with_shared)
  for slot, times in pairs(key.overtaken) do
    key.overtaken[slot] = is_ours and times + 1 or 0
    if self.calm and is_ours and times >= MAX_OVERTAKEN and not in_return then
      self.world:fail("overtaken", "%s: ours have taken it %d times while foreign %d waits", key.name,
        times + 1, slot)
    end
  end
end

local function pass(self, key, before)
  key.takes = key.takes + 1
  note_overtaken(self, key)
  self.world:note("  %s passes to %s", key.name, key.holder)
  if key.done_until then
    self.world:fail("once", "%s: %s runs what was done", key.name, key.holder)
  end
  check_claims(self, key)
  check_order(self, key)
  if not before then check_gap(self, key) end
end

local function is_granted(self, key)
  local member = granted_in(queue_of(self, key))
  return member and wire.owner_of(member) == key.holder
end

-- All locks are acquired or none, except those that an earlier wait of the same owner is granted
-- meanwhile.
local function check_several(self, args, reply)
  local took = reply[1] == 1
  wire.each_lock("acquire_all", args, function(_, lock, _, owner)
    local key = self.keys[lock]
    local has = key.holder == owner
    if took and not has or has and key.passed and not took and not is_granted(self, key) then
      self.world:fail("several", "%s: %s %s it, though it %s all", key.name, owner, has and "has"
        or "lacks",
        took and "got" or "did not get")
    end
  end)
end

-- A run that has lost its lease cannot leave a record.
local function check_completed(self, key, before, args)
  local owner = wire.owner_in(args)
  if key.done_until and before ~= owner then
    self.world:fail("once", "%s: %s leaves a record, though %s held it", key.name, owner,
      tostring(before))
  end
end

-- Signals what the program did: see aim.lua.
local SIGNAL_OF = { renew = "renewed", mutex_renew = "renewed" }
for _, name in ipairs { "release", "leave", "complete" } do
  SIGNAL_OF[name], SIGNAL_OF["mutex_" .. name] = "freed", "freed"
end

local function tell_program(self, name, client, args, reply)
  local process = client.process
  if not process then return end
  local waits = type(reply) == "table" and reply[1] == 0 and wire.ACQUIRES[name]
  local signal = SIGNAL_OF[name] or waits and "waits"
  local has_place = waits and type(reply[5]) == "string" and reply[5] ~= ""
  if has_place and client.process then client.process.placed[args[4]] = self.world.now end
  if signal then self.world:signal(signal, process, args[4]) end
end

local function tell_pass(self, key, client)
  local member = granted_in(queue_of(self, key))
  local process = key.granted_to and member and self.uuids[wire.client_of(member)] or client.process
  if process then self.world:signal(key.granted_to and "grant" or "take", process, key.name) end
end

-- A wait has ended. A copy of its acquire that arrives later remains queued until it is served.
local function note_ended(self, args)
  for _, name in ipairs(self.names) do
    local queue = queue_of(self, self.keys[name])
    for _, word in ipairs(args) do
      if not (queue and queue.score_of[word]) then self.ended[word] = true end
    end
  end
end

function Watcher:after(name, client, args, reply)
  local forced = (name == "force" or name == "mutex_force") and type(reply) == "number"
  if forced then
    local forced_key, process = self.keys[args[4]], client.process
    local holder = forced_key.holder
    local is_own = holder and process and wire.client_of_owner(holder) == process.uuid
    if is_own then forced_key.taken[holder] = true end
    self:lose(args[4])
  end
  self.world:note("  %s runs %s for %s", "server", name, client.process and client.process.name
    or "admin")
  for _, key_name in ipairs(self.names) do
    local key = self.keys[key_name]
    local entry = live(self, key_name)
    local holder, _, done, other = holder_in(entry)
    if other then
      self.world:fail("exclusion", "%s: the server has both %s and %s in it", key_name, holder,
        other)
    end
    local before = key.holder
    key.holder, key.expires, key.passed = holder, entry and entry.expires, holder
      and holder ~= before
    note_sides(self, key, before, name)
    if holder and holder ~= before then
      pass(self, key, before)
      key.granted_to = not wire.names(args, holder) and wire.is_ours(holder) and holder or nil
      key.granted_at = self.world.now
      note_ours_in_a_row(self, key)
      if key.granted_to then check_grant(self, key, before) end
      tell_pass(self, key, client)
    end
    if before and before ~= holder then check_backed(self, key, before, name) end
    note_seen(self, key, name, args, reply)
    check_token(self, key, args)
    check_idle(self, key)
    if before and not holder then key.free_since, key.expired = self.world.now, false end
    local was_done = key.done_until
    key.done_until = done and entry.expires or nil
    if name == "complete" and not was_done then check_completed(self, key, before, args) end
    update_waiters(self, key, name, args)
    if key.passed and key.granted_to then check_told(self, key) end
  end
  if name:find("leave$") then note_ended(self, args) end
  if name == "complete" and type(reply) == "number" then self.recorded[args[#args]] = true end
  if name == "acquire_all" then check_several(self, args, reply) end
  tell_program(self, name, client, args, reply)
end

-- A client without a queue waits from now on, and listens to releases; nil: its wait has ended.
function Watcher:sleeps(name, slot, waits)
  local overtaken = self.keys[name].overtaken
  overtaken[slot] = waits and (overtaken[slot] or 0) or nil
end

-- Foreign commands have other names.
function Watcher:around(run)
  self:before(nil, {}, {})
  run()
  self:after("foreign", {}, {})
end

-- One of the owner's processes may have lost a hold. Another one may keep it alive.
function Watcher:may_lose(owner)
  if self.shared[owner] then self.shared[owner] = false end
end

local SETTLES = { 5000, 30000, 100000 }

-- If no process waits for a reply, has anything left to undo, or has a hold, the server has no hold
-- either. While a process has one, it may still release what else was acquired.
local function check_shares(self, owner, name)
  local count, share = self:count(name, owner), 0
  if not self.shared[owner] or not count then return end
  for _, process in pairs(self.uuids) do
    if process.dead or not process:is_quiet() then return end
    for _, task in ipairs(process.tasks) do
      local own = task:share_of(owner, name)
      if not own then return end
      share = share + own
    end
  end
  if share == 0 then
    self.world:fail("count", "%s: nobody has it as %s, the server counts %d", name, owner, count)
  end
end

-- A process has released a hold of a shared owner, has one more, or has waited for one without
-- success.
function Watcher:share_changed(owner, name)
  if not self.gentle then return end
  for _, later in ipairs(SETTLES) do
    self.world:at(self.world.now + later, check_shares, self, owner, name)
  end
end

-- Called when a release has reported that its hold was lost.
function Watcher:lost(plan, handle)
  if plan.owner then self:may_lose(plan.owner) end
  if not (self.calm and plan.renewed and not plan.extend and handle.kind ~= "guard") then
    return
  end
  self.world:fail("lost", "%s: the lock was not kept, though nothing went wrong", handle.key)
end

-- ---- operations ----

-- How an acquire ended.
function Watcher.answered() end

Watcher.bound = rules.bound

-- ---- the end ----

local function check_queue_left(self, key)
  local queue = queue_of(self, key)
  for _, member in ipairs(queue and queue.members or {}) do
    local process = self.uuids[wire.client_of(member)]
    local waits = queue.score_of[member] > 0 and not self.ended[member]
    if process and not process.dead and waits then
      self.world:fail("orphan", "%s: %s still stands in the queue", key.name, member)
    end
  end
end

-- No caller holds it any more, so the server must know that: leases are only for the dead. A lease
-- that has ended by our clock may have a moment left by the server's.
local function check_lock_left(self, key)
  local entry = live(self, key.name)
  local holder = holder_in(entry)
  local ours = holder and (self.uuids[wire.client_of_owner(holder)] or self.shared[holder])
  if not (self.gentle and ours) then return end
  if entry.expires - self.server.redis:now_ms() > CLOCKS_MS then
    self.world:fail("orphan", "%s: %s still has it on the server", key.name, holder)
  end
end

-- Only Redisson creates a counter without a TTL.
local function check_counter(self, key)
  local counter = live(self, key.counter)
  if counter and not counter.expires and not self.foreign then
    self.world:fail("endless", "%s: its counter has no TTL, and Redisson was not there", key.name)
  end
end

-- → what the client has or waits for on the server, its key | nil
function Watcher:left_by(uuid)
  self.server.redis:read_clock()
  for _, name in ipairs(self.names) do
    local key = self.keys[name]
    local holder, queue = holder_in(live(self, name)), queue_of(self, key)
    local is_guard = key.kind == "guard" -- a run without a record keeps its key
    if holder and not is_guard and wire.client_of_owner(holder) == uuid then return holder, name end
    local member = rules.place_of(queue, uuid)
    if member then return member, name end
  end
end

-- The schedule has ended; after `later` microseconds no lease runs any more.
function Watcher:finish(later)
  local world = self.world
  self.server.redis:read_clock()
  for _, name in ipairs(self.names) do
    if not self.late then check_queue_left(self, self.keys[name]) end
    check_lock_left(self, self.keys[name])
    check_counter(self, self.keys[name])
  end
  rules.check_channels(world, self.uuids, self.server.redis)
  world.now = world.now + later
  self.server.redis:read_clock()
  if self.keeps_leases then return end -- they are from a far future
  for _, name in ipairs(self.names) do
    if live(self, name) then world:fail("orphan", "%s is still there", name) end
  end
  rules.check_queues_gone(self)
end

return Watcher
