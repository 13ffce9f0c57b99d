-- The rules of every schedule of a semaphore, in place of watcher.lua's.
--
-- A claim is what the holder of permits believes. The server's count is checked: free and taken
-- permits add up to the total. A permit is taken back from a holder only after its claim has ended.

local rotation = require "spec.sim.rotation"
local rules = require "spec.sim.rules"
local wire = require "spec.sim.wire"

local max = math.max

local CALM_GAP = 400000   -- µs with enough free permits and a waiter for them
local CLOCKS_MS = 500     -- how much the ends of a lease may differ
local SLOTS = 12
local MAX_IN_RETURN, ROUNDED = 2000000, 2000 -- µs of holdfast's turns after Redisson's

local Watcher = {}
Watcher.__index = Watcher

function Watcher.new(world, servers, plan)
  local self = setmetatable({
    world = world, server = servers[1], calm = plan.calm, gentle = rules.is_gentle(plan),
    late = rules.is_late(plan), recheck_us = rules.longest_grant(plan),
    keys = {}, names = {}, uuids = {}, permits = {}, resizes = plan.resizes,
  }, Watcher)
  for _, key in ipairs(plan.keys) do self.permits[key.name] = key.permits end
  for _, part in ipairs(plan.parts) do
    if part.dies == "holds" then self.gentle = false end
  end
  servers[1].watcher = self
  return self
end

function Watcher:add_key(name, kind)
  self.keys[name] = {
    name = name, kind = kind, queue = wire.queue_of(name), leases = wire.leases_of(name),
    counter = wire.counter_of(name), claims = {}, wanting = {}, prints = {}, waiters = {},
      taken = {}, last_token = 0,
    loss_at = -1, most = self.permits[name], lapsed = {}, place_of = {}, member_of = {},
      marked = {}, missed = {}, asleep = {}, ours_till = 0,
  }
  self.names[#self.names + 1] = name
end

-- A thread of Java sleeps from now on until that many permits are free; nil: it is awake.
function Watcher:sleeps(name, slot, permits)
  self.keys[name].asleep[slot] = permits and { since = self.world.now, permits = permits }
end

function Watcher:add_process(process)
  self.uuids[process.uuid] = process
end

-- ---- the server ----

local function live(self, name) return rules.live(self.server, name) end

local function zset(self, name)
  local entry = live(self, name)
  return entry and entry.kind == "zset" and entry.value or nil
end

local function free_of(self, key)
  local entry = live(self, key.name)
  return entry and tonumber(entry.value) or nil
end

-- Redisson's permits have no owner.
local function ids_of(claim)
  return claim.ids or wire.ids_of(claim.owner)
end

-- → when the first of its leases ends, in ms | nil: not all of them exist
local function end_of(self, key, claim)
  local leases, first = zset(self, key.leases), nil
  for _, id in ipairs(ids_of(claim)) do
    local score = leases and leases.score_of[id]
    if not score then return nil end
    first = first and math.min(first, score) or score
  end
  return first
end

local function is_subscribed(self, client)
  return self.server.redis.channels[wire.channel_of(client)] ~= nil
end

-- ---- claims ----

-- Taken before data was lost, and not confirmed since.
local function is_excused(key, claim)
  return claim.till <= key.loss_at + claim.lease_us and claim.asked_at <= key.loss_at
end

local function check_backed(self, key, claim, what)
  if claim.till <= self.world.now or is_excused(key, claim) then return end
  local ends = end_of(self, key, claim)
  if not ends or self.server:moment(ends + 1) < claim.till then
    self.world:fail("backed", "%s: %s believes in its permits until %.6f, but %s, %s", key.name,
      claim.who,
      claim.till / 1e6, what, ends and ("they end at %.6f"):format(self.server:moment(ends
        + 1) / 1e6) or "they are gone")
  end
end

-- Checks that callers believe in no more permits than exist.
local function check_sum(self, key)
  local sum, now = 0, self.world.now
  for slot = 1, SLOTS do
    local claim = key.claims[slot]
    if claim and claim.till > now and not is_excused(key, claim) then sum = sum + claim.permits end
  end
  if sum > key.most then
    self.world:fail("exclusion", "%s: %d permits are believed in, there are %d", key.name, sum,
      key.most)
  end
end

-- The claim now ends at `till`; 0: it has ended.
function Watcher:claim(claim, till)
  local key = self.keys[claim.key]
  claim.till, claim.permits = till, #ids_of(claim)
  key.claims[claim.slot] = till > self.world.now and claim or nil
  if till <= self.world.now then return end
  self.server.redis:read_clock()
  check_sum(self, key)
  check_backed(self, key, claim, "as the server has it")
end

function Watcher:granted(claim)
  local key = self.keys[claim.key]
  if not claim.token then
    self.world:fail("token", "%s: %s has no token", key.name, claim.who)
  elseif key.token_of and key.token_of[claim.token] then
    self.world:fail("token", "%s: %s has the token of another", key.name, claim.who)
  end
  key.token_of = key.token_of or {}
  key.token_of[claim.token or 0] = claim.owner
end

function Watcher.write() return true end

function Watcher:lose(name)
  local key = self.keys[name]
  key.loss_at, key.uncounted, key.waiters, key.member_of = self.world.now, true, {}, {}
end

function Watcher:forget()
  for _, name in ipairs(self.names) do
    self:lose(name)
    self.keys[name].total = nil -- all of it is gone
  end
end

-- ---- programs ----

local function check_renewal(self, client, args)
  wire.each_renewal(args, function(_, owner)
    for _, name in ipairs(self.names) do
      rules.check_renewal(self.world, client, name, owner)
    end
  end)
end

-- → when the lease of the last of `count` permits ended | nil: fewer have ended
local function ended_at(self, key, count)
  local leases, ends = zset(self, key.leases), {}
  for _, score in pairs(leases and leases.score_of or {}) do ends[#ends + 1] = score end
  table.sort(ends)
  local till = ends[count] and self.server:moment(ends[count] + 1)
  return till and till <= self.world.now and till or nil
end

-- Redisson's waiters are notified of free permits, and of permits whose lease has ended when the
-- first such permit is found. None is free before the total is set.
local function check_asleep(self, key)
  if not self.calm then return end
  local free = free_of(self, key) or 0
  for slot, java in pairs(key.asleep) do
    local ended = free < java.permits and ended_at(self, key, java.permits - free)
    if free < java.permits then java.since = max(java.since, ended or self.world.now) end
    if self.world.now - java.since > CALM_GAP then
      self.world:fail("asleep", "%s: %d permits are free for %.3f s, and java %d sleeps", key.name,
        java.permits, (self.world.now - java.since) / 1e6, slot)
    end
  end
end

local function check_gap(self, key)
  local calm_since = self.calm and 0 or rotation.settled_at(self.world)
  if not calm_since or not key.idle_since then return end
  local gap = self.world.now - max(key.idle_since, calm_since)
  if gap > CALM_GAP + (self.calm and 0 or self.recheck_us) then
    self.world:fail("idle", "%s: permits are free for %.3f s while somebody waits", key.name, gap / 1e6)
  end
end

function Watcher:before(name, client, args)
  self.server.redis:read_clock()
  for _, key_name in ipairs(self.names) do
    check_gap(self, self.keys[key_name])
    check_asleep(self, self.keys[key_name])
  end
  if not client.process then return end
  rules.count_command(self.world, client.process)
  if name == "permit_renew" then check_renewal(self, client, args) end
end

-- Checks that free and taken permits add up to the total.
local function check_count(self, key, name, args)
  local free, leases = free_of(self, key), zset(self, key.leases)
  if not free then key.total = nil return end
  local all = free + (leases and leases.count or 0)
  if name == "permit_set" then key.most = max(key.most, tonumber(args[#args])) end
  if name == "permit_set" or not key.total then key.total, key.uncounted = all, false end
  if all ~= key.total and not key.uncounted then
    self.world:fail("count", "%s: there are %d permits, after %s %d", key.name, key.total,
      tostring(name), all)
  end
  key.total = all
end

-- Waiters that came before and could receive a grant were served before. A waiter whose grant ran
-- out gets its place in front again when its client asks.
local function check_order(self, key, owner)
  if key.missed[owner] then return end
  local queue, place = zset(self, key.queue), key.place_of and key.place_of[owner]
  for _, member in ipairs(queue and queue.members or {}) do
    local score = queue.score_of[member]
    local known = not wire.is_record(member) and score > 0 and key.place_of
      and key.place_of[wire.owner_of(member)]
    if known and (not place or known < place) and is_subscribed(self, wire.client_of(member)) then
      self.world:fail("order", "%s: %s has overtaken %s", key.name, owner, member)
      return
    end
  end
end

-- Notes whose permits are new. An owner has all of its permits or none. → how many owners got
-- theirs by a grant, how many by their own command
local function note_taken(self, key, args)
  local leases, taken = zset(self, key.leases), {}
  for _, id in ipairs(leases and leases.members or {}) do
    taken[id:sub(1, 14)] = leases.score_of[id]
  end
  local granted, took, now = 0, 0, self.server.redis:now_ms()
  for stem, ends in pairs(key.taken) do
    if not taken[stem] and ends <= now then key.lapsed[stem] = true end
  end
  for stem in pairs(taken) do
    if not key.taken[stem] then
      local owner = key.owner_of and key.owner_of[stem]
      local named = false
      for i = 4, #args do
        local own = wire.is_permit_owner(args[i]) and wire.ids_of(args[i])[1]:sub(1, 14) == stem
        named = named or own and args[i]
      end
      if named then took = took + 1 else granted = granted + 1 end
      owner = owner or named
      if owner then check_order(self, key, owner) end
      if not named and owner and not is_subscribed(self, owner:sub(1, 36)) then
        self.world:fail("grant", "%s: granted to %s, which cannot hear it", key.name, owner)
      end
    end
  end
  key.taken = taken
  return granted, took
end

-- Checks that a waiter that has left the queue had a reason.
local function check_waiters(self, key, args)
  local queue = zset(self, key.queue)
  for owner, member in pairs(key.member_of) do
    local stem, client = wire.ids_of(owner)[1]:sub(1, 14), wire.client_of(member)
    local left = not (queue and queue.score_of[member]) and not key.taken[stem] and queue
    local legit = wire.names(args, member) or not is_subscribed(self, client)
      or #wire.ids_of(owner) > (key.total or 0)
      or key.marked[client] or key.uncounted
    if left and not legit then
      self.world:fail("queue", "%s: %s was dropped from the queue", key.name, member)
    end
  end
end

-- Notes the clients that had let a grant run out before.
local function note_marks(key, member, marked)
  local stem = wire.ids_of(wire.owner_of(member))[1]:sub(1, 14)
  if key.lapsed[stem] or key.taken[stem] then marked[wire.client_of(member)] = true end
end

local PASSED_OVER = 2 ^ 60 -- from passing_over.lua

local function note_waiters(self, key, args)
  check_waiters(self, key, args)
  local queue, places, owners, members, marked = zset(self, key.queue), {}, {}, {}, {}
  key.missed = {}
  for _, member in ipairs(queue and queue.members or {}) do
    if not wire.is_record(member) then
      local owner, score = wire.owner_of(member), queue.score_of[member]
      if score > 0 then
        places[owner], members[owner] = score, member
      elseif score < 0 then
        places[owner] = -score * PASSED_OVER
      else
        note_marks(key, member, marked)
        key.missed[owner] = key.lapsed[wire.ids_of(owner)[1]:sub(1, 14)]
      end
      owners[wire.ids_of(owner)[1]:sub(1, 14)] = owner
    end
  end
  key.place_of, key.owner_of, key.member_of, key.marked = places, owners, members, marked
end

local SETTLES = { permit_leave = true, permit_set = true }

-- A program that serves waiters forgets earlier grants that ran out.
local function check_marks(self, key, name, args, reply, new)
  local queue, leases = zset(self, key.queue), zset(self, key.leases)
  local settles = SETTLES[name] and type(reply) == "number" or name == "permit_acquire"
    and new > 0
  if not settles or args[4] ~= key.name then return end
  for _, member in ipairs(queue and queue.members or {}) do
    if queue.score_of[member] == 0 then
      for _, id in ipairs(wire.ids_of(wire.owner_of(member))) do
        if not (leases and leases.score_of[id]) then
          self.world:fail("grant", "%s: %s is marked as granted, and does not have it", key.name,
            member)
          return
        end
      end
    end
  end
end

-- If enough permits are free for the first waiter that can receive a grant, it must get them soon.
local function note_idle(self, key)
  local queue, free = zset(self, key.queue), free_of(self, key)
  local first, place
  for _, member in ipairs(queue and queue.members or {}) do
    local score = queue.score_of[member]
    if score > 0 and not wire.is_record(member) and (not place or score < place) then
      first, place = member, score
    end
  end
  local served = not first or not free or free < #wire.ids_of(wire.owner_of(first))
  if served then key.idle_since = nil return end
  key.idle_since = key.idle_since or self.world.now
end

local function check_token(self, key)
  local entry = live(self, key.counter)
  local token = entry and tonumber(entry.value)
  if not token or token == key.token then return end
  key.token = token
  if token <= key.last_token then
    self.world:fail("token", "%s: token %.0f after %.0f", key.name, token, key.last_token)
  end
  key.last_token = token
end

local PASSES_ON = { permit_release = true, permit_leave = true, permit_set = true }

-- A permit that comes back is left to Redisson's waiters, in turns with holdfast's, which last for
-- no longer. Redisson's turn begins when a permit is left to its clients, or there is no total, and
-- ends at the latest when a release leaves none.
local function check_turn(self, key, name, granted)
  local now, wants = self.world.now, false
  if self.resizes or not PASSES_ON[name] then return end
  local free = free_of(self, key)
  if not free or free > 0 then
    local listens = self.server.redis.channels[wire.permits_channel_of(key.name)]
    key.theirs_since = listens and (key.theirs_since or now)
  elseif granted > 0 and key.theirs_since then
    local their_run = math.min(now - key.theirs_since, MAX_IN_RETURN)
    key.ours_till, key.theirs_since = max(key.ours_till, now + their_run + ROUNDED), nil
  elseif granted > 0 and now > key.ours_till and name == "permit_release" then
    for _, java in pairs(key.asleep) do wants = wants or java.permits == 1 end
    if not wants then return end
    self.world:fail("turn", "%s: handed over although Redisson waits", key.name)
  end
end

local SIGNAL_OF = { permit_renew = "renewed", permit_release = "freed", permit_leave = "freed" }

local function announce(self, key, name, client, reply, granted)
  local process = client.process
  if not process then return end
  local waits = name == "permit_acquire" and type(reply) == "table" and reply[1] == 0
  local took = name == "permit_acquire" and type(reply) == "table" and reply[1] == 1
  local signal = SIGNAL_OF[name] or waits and "waits" or took and "take"
  if granted > 0 then self.world:signal("grant", process, key.name) end
  if signal then self.world:signal(signal, process, key.name) end
end

function Watcher:after(name, client, args, reply)
  self.world:note("  server runs %s for %s", tostring(name), client.process and client.process.name
    or "admin")
  for _, key_name in ipairs(self.names) do
    local key = self.keys[key_name]
    check_count(self, key, name, args)
    local granted, took = note_taken(self, key, args)
    note_waiters(self, key, args)
    check_turn(self, key, name, granted)
    for slot = 1, SLOTS do
      local claim = key.claims[slot]
      if claim then check_backed(self, key, claim, "after " .. tostring(name)) end
    end
    check_token(self, key)
    check_marks(self, key, name, args, reply, granted + took)
    note_idle(self, key)
    announce(self, key, name, client, reply, granted)
  end
end

function Watcher:around(run)
  self:before(nil, {}, {})
  run()
  self:after("foreign", {}, {})
end

-- ---- operations ----

function Watcher.may_lose() end
function Watcher.share_changed() end
function Watcher.answered() end
function Watcher.count() end

function Watcher:lost(plan, handle)
  if not (self.calm and plan.renewed and not plan.extend) then return end
  self.world:fail("lost", "%s: the permits were not kept, though nothing went wrong", handle.key)
end

Watcher.bound = rules.bound

-- ---- the end ----

local function check_queue_left(self, key)
  local queue = zset(self, key.queue)
  for _, member in ipairs(queue and queue.members or {}) do
    local process = not wire.is_record(member) and self.uuids[wire.client_of(member)]
    if process and not process.dead and queue.score_of[member] > 0 then
      self.world:fail("orphan", "%s: %s still stands in the queue", key.name, member)
    end
  end
end

-- No permits are held any more, so the server must know that: leases are only for the dead.
local function check_left(self, key)
  local leases, now = zset(self, key.leases), self.server.redis:now_ms()
  for _, id in ipairs(leases and leases.members or {}) do
    if self.gentle and leases.score_of[id] - now > CLOCKS_MS then
      self.world:fail("orphan", "%s: a permit is still taken", key.name)
    end
  end
end

-- → what the client has or waits for on the server, its key | nil
function Watcher:left_by(uuid)
  self.server.redis:read_clock()
  for _, name in ipairs(self.names) do
    local leases, now = zset(self, self.keys[name].leases), self.server.redis:now_ms()
    local member = rules.place_of(zset(self, self.keys[name].queue), uuid)
    if member then return member, name end
    for _, id in ipairs(leases and leases.members or {}) do
      if wire.is_permit_of(id, uuid) and leases.score_of[id] > now then return "a permit", name end
    end
  end
end

-- The schedule has ended; after `later` microseconds no lease runs any more.
function Watcher:finish(later)
  self.server.redis:read_clock()
  for _, name in ipairs(self.names) do
    if not self.late then check_queue_left(self, self.keys[name]) end
    check_left(self, self.keys[name])
  end
  rules.check_channels(self.world, self.uuids, self.server.redis)
  self.world.now = self.world.now + later
  self.server.redis:read_clock()
  local now = self.server.redis:now_ms()
  for _, name in ipairs(self.names) do
    local leases = zset(self, self.keys[name].leases)
    for _, id in ipairs(leases and leases.members or {}) do
      if leases.score_of[id] > now then
        self.world:fail("orphan", "%s: a lease has no end", name)
      end
    end
  end
end


return Watcher
