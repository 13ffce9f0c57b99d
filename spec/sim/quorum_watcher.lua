-- The rules of every schedule of a quorum, in place of watcher.lua's.
--
-- A claim is what one owner believes. It must be backed: at its end a majority of the servers must
-- still have the lock for that owner, by the servers' own clocks. What a server forgot in a restart
-- counts until it would have ended, because that is what restart_guard ensures, even if the server
-- then gives the lock to others and forgets that, too. There is no queue, and no order of service.

local rules = require "spec.sim.rules"
local wire = require "spec.sim.wire"

local floor, max = math.floor, math.max
local live = rules.live

local MAX_COMMANDS = 600 -- of one process to one server, per second
local SLACK = 300000
local CLOCKS_MS = 500     -- how much the ends of a lease may differ
local MAX_GAP = 5000000  -- in a calm schedule: the lock is wanted, but not acquired
local MIN_GRACE = 90000 -- µs; a server that takes longer may count as unreachable
local AWAKE = 1000000     -- after a pause, for the timeouts that it caused
local SLOTS = 12

local Watcher = {}
Watcher.__index = Watcher

-- servers: a list, see server.lua
function Watcher.new(world, servers, plan)
  local self = setmetatable({
    world = world, servers = servers, calm = plan.calm, kind = plan.kind,
    fast = plan.network[2] <= 8000,
    majority = floor(#servers / 2) + 1, healthy = {}, keys = {}, names = {}, uuids = {},
      counts = {},
  }, Watcher)
  for _, server in ipairs(servers) do
    server.watcher = self
    self.healthy[server.index] = plan.kind ~= "majority"
  end
  for _, index in ipairs(plan.faulty or {}) do self.healthy[index] = false end
  return self
end

function Watcher:add_key(name, kind)
  self.keys[name] = {
    name = name, kind = kind, claims = {}, wanting = {}, last_token = 0, loss_at = -1,
    free_since = 0,
    store = {}, records = {}, prints = {}, done_for_sure = 0, ghosts = {}, released = {},
  }
  for _, server in ipairs(self.servers) do
    self.keys[name].released[server.index], self.keys[name].ghosts[server.index] = {}, {}
  end
  self.names[#self.names + 1] = name
end

function Watcher:add_process(process)
  self.uuids[process.uuid] = process
end

-- ---- the servers ----

local function holder_in(entry)
  if not entry then return nil end
  if entry.kind == "string" then return entry.value end
  for _, field in ipairs(entry.value.fields) do
    if field ~= "done" and field ~= "print" and field ~= "by" then return field end
  end
  return nil
end

local function read_clocks(self)
  for _, server in ipairs(self.servers) do server.redis:read_clock() end
end

-- → the owner's count | nil
local function count_in(entry, owner)
  local holder = holder_in(entry)
  if not holder or not wire.is_copy(holder, owner) then return nil end
  return entry.kind == "string" and 1 or tonumber(entry.value.values[holder])
end

-- → the moment until which the server has the lock for the owner, or had until it forgot it
local function backed_until(key, server, owner)
  local entry = live(server, key.name)
  local till = count_in(entry, owner) and entry.expires and floor(server:moment(entry.expires + 1))
    or 0
  return max(till, key.ghosts[server.index][wire.origin_of(owner)] or 0)
end

-- → the moment until which a majority has the lock for the owner
local function majority_until(self, key, owner)
  local ends = {}
  for i, server in ipairs(self.servers) do ends[i] = backed_until(key, server, owner) end
  table.sort(ends, function(a, b) return a > b end)
  return ends[self.majority]
end

-- Data of a server is about to be lost.
function Watcher:forget(server)
  server.redis:read_clock()
  for _, name in ipairs(self.names) do
    local key, entry = self.keys[name], live(server, name)
    local owner, ghosts = holder_in(entry), key.ghosts[server.index]
    if owner then
      owner = wire.origin_of(owner)
      ghosts[owner] = max(ghosts[owner] or 0, floor(server:moment(entry.expires + 1)))
    end
    key.done_for_sure, key.forgotten_at = 0, self.world.now
  end
end

-- ---- claims ----

-- Returns whether the claim began before the lock was forced. The processes of a shared owner
-- cannot tell which hold was whose.
local function is_excused(key, claim)
  if key.loss_at < 0 then return false end
  if claim.shared then return true end
  return claim.asked_at <= key.loss_at and claim.till <= key.loss_at + claim.lease_us
end

local function check_pair(self, key, a, b)
  if a.owner == b.owner or is_excused(key, a) or is_excused(key, b) then return end
  self.world:fail("exclusion", "%s: both %s (until %.6f) and %s (until %.6f) hold it", key.name,
    a.who, a.till / 1e6,
    b.who, b.till / 1e6)
end

local function check_backed(self, key, claim)
  if is_excused(key, claim) or key.loss_at >= 0 then return end
  read_clocks(self)
  local till = majority_until(self, key, claim.owner)
  if claim.till > till then
    self.world:fail("backed", "%s: %s believes in it until %.6f, a majority has it until %.6f",
      key.name, claim.who,
      claim.till / 1e6, till / 1e6)
  end
end

-- The claim now ends at `till`; 0: it has ended.
function Watcher:claim(claim, till)
  local key, now = self.keys[claim.key], self.world.now
  claim.till = till
  if till <= now then
    key.claims[claim.slot] = nil
    return
  end
  key.claims[claim.slot] = claim
  for slot = 1, SLOTS do
    local other = key.claims[slot]
    if other and other ~= claim and other.till > now then check_pair(self, key, claim, other) end
  end
  check_backed(self, key, claim)
end

local function check_gap(self, key)
  local since
  for slot = 1, SLOTS do
    local wanting = key.wanting[slot]
    if wanting and (not since or wanting < since) then since = wanting end
  end
  local gap = since and self.world.now - max(since, key.free_since) or 0
  if self.calm and gap > MAX_GAP then
    self.world:fail("idle", "%s: nobody got it for %.3f s while somebody waited", key.name,
      gap / 1e6)
  end
end

-- The first claim of a hold, after an acquire that is not a re-entry.
function Watcher:granted(claim)
  local key = self.keys[claim.key]
  check_gap(self, key)
  if not claim.fenced or claim.shared or is_excused(key, claim) then return end
  rules.check_token(self.world, key, claim)
end

-- A write to a store that checks tokens. A holder that counts a part which was taken away by force
-- believes in its majority until it checks, and has a newer token. → whether the write was accepted
function Watcher:write(claim)
  local key, stray = self.keys[claim.key], is_excused(self.keys[claim.key], claim)
  local refused = claim.token and key.stray_token and claim.token < key.stray_token
  local accepted = rules.write(self.world, key, claim, stray or refused)
  if stray and accepted then key.stray_token = claim.token end
  return accepted
end

-- ---- what must be done once ----

-- → the record that this run must leave
function Watcher:record(name, task, print)
  local text = ("D %s %d"):format(task.name, self.world.now)
  self.keys[name].records[text] = print
  return text
end

-- A run has succeeded: until `until_time` it must not run again.
function Watcher:completed(name, _, until_time)
  local key = self.keys[name]
  if not key.forgotten_at then key.done_for_sure = max(key.done_for_sure, floor(until_time)) end
end

-- How an attempt to begin a run ended; record: of an earlier run, if it was given one
function Watcher:begun(name, task, print, _, code, record)
  local key = self.keys[name]
  if not code and key.done_for_sure > self.world.now then
    self.world:fail("once", "%s: %s runs what was done", name, task.name)
  end
  local before = record and key.records[record]
  if record and not before then
    self.world:fail("record", "%s: %s was given %q, which nobody left", name, task.name, record)
  elseif record and before ~= "" and print ~= "" and before ~= print then
    self.world:fail("record", "%s: %s was given the record of another request", name, task.name)
  end
end

-- ---- operations ----

local AWAY = { no_quorum = true, unreachable = true, denied = true, server = true }

-- Checks a busy reply: the servers that said busy or did not reply, with those that said yes, could
-- be a majority of another owner. Without such a message the caller waits for another call of its
-- own process.
local function check_busy(self, task, key, message)
  local yes, count, others = message:match("(%d+) of (%d+) granted(.*)")
  if not yes then return end
  local unheard = others:match("^, (%d+) yet to answer") or 0
  local _, busy = others:gsub(" busy[,;]", "")
  if 2 * (yes + unheard + busy) <= tonumber(count) then
    self.world:fail("busy", "%s: %s gets %s", key, task.name, message)
  end
end

-- Checks how an acquire has ended. With only a minority faulty, it must not fail because servers
-- are away, unless it took a while to find that out.
function Watcher:answered(task, key, code, asked_at, paused_us, message)
  if code == "busy" then check_busy(self, task, key, message) end
  if not AWAY[code] or not self.fast or self.kind == "majority" then return end
  if task.process.paused_us ~= paused_us or task.process.paused_until > asked_at - AWAKE then
    return
  end
  if code == "no_quorum" and self.world.now - asked_at > MIN_GRACE and not self.calm then
    return
  end
  self.world:fail("unnoticed", "%s: %s gets %s", key, task.name, code)
end

-- → how long an operation may take, in simulated time; nil: for ever. An acquire asks, then writes
-- its token back, and may begin both just before its end.
function Watcher.bound(process, verb, wait)
  local timeout = process.plan.command_timeout
  if verb ~= "acquire" then return (2 * timeout + 0.1) * 1.01e6 + SLACK end
  if wait == math.huge then return nil end
  return (wait > 0 and wait + 1 or 3 * timeout + 0.2) * 1.01e6 + SLACK
end

-- One of the owner's processes may have lost a hold, has released one, or has one more.
function Watcher.may_lose() end
function Watcher.share_changed() end

-- A hold was lost, as its release tells.
function Watcher:lost(plan, handle)
  if not (self.calm and plan.renewed and not plan.extend and handle.kind ~= "guard") then
    return
  end
  self.world:fail("lost", "%s: the lock was not kept, though nothing went wrong", handle.key)
end

-- A server may count fewer holds than the owner has, or for a while more: what the owner believes
-- in must be backed, and nothing may be left.
function Watcher.count() end

-- ---- commands ----

local function count_command(self, process, server)
  local counts = self.counts[process] or {}
  self.counts[process] = counts
  local count = counts[server.index] or { since = 0, number = 0 }
  counts[server.index] = count
  if self.world.now - count.since > 1000000 then count.since, count.number = self.world.now, 0 end
  count.number = count.number + 1
  if count.number > MAX_COMMANDS then
    self.world:fail("spin", "%s has sent s%d more than %d commands in a second", process.name,
      server.index,
      MAX_COMMANDS)
  end
end

-- A server that lags may get a renewal that was sent before the release, and the release after it,
-- but nothing after that. A guard is renewed until its client knows that the record exists.
function Watcher:check_late(client, what, owner, name, server)
  local process = client.process
  local hold = wire.origin_of(owner) .. " " .. name
  local released, vanished = process.released[hold], process.vanished[hold]
  local held_up = process.plan.command_timeout * 1.01e6 + process.paused_us
  local here = self.keys[name].kind ~= "guard" and self.keys[name].released[server.index][owner]
  if released and client.sent_at > released + held_up or what == "renews" and here
      and client.sent_at > here then
    self.world:fail("renewal", "%s %s %s after its release", process.name, what, name)
  end
  if what == "renews" and vanished and client.sent_at > vanished
      + 2e6 * process.plan.command_timeout then
    self.world:fail("renewal", "%s %s %s without its owner's word", process.name, what, name)
  end
end

local function note_queue(self, lock, queue)
  self.keys[lock].queue = queue
end

local RENEWALS = { renew = true, mutex_renew = true }

local FORCES = { force = true, mutex_force = true }

function Watcher:before(name, client, args, server)
  server.redis:read_clock()
  if FORCES[name] then self.holder_before = holder_in(live(server, args[4])) end
  if not client.process then return end
  count_command(self, client.process, server)
  wire.each_lock(name, args, note_queue, self)
  if wire.ACQUIRES[name] then
    self:check_late(client, "acquires", wire.owner_in(args), args[4], server)
  end
  if not RENEWALS[name] then return end
  wire.each_renewal(args, function(key, owner)
    self:check_late(client, "renews", owner, key, server)
  end)
end

local function note_owners(self, key)
  local counts = {}
  for _, server in ipairs(self.servers) do
    local owner = holder_in(live(server, key.name))
    if owner then
      owner = wire.origin_of(owner)
      counts[owner] = (counts[owner] or 0) + 1
      if counts[owner] >= self.majority then key.free_since = self.world.now end
    end
  end
end

local LEAVES = { release = true, leave = true, mutex_release = true, mutex_leave = true,
  complete = true }

-- Notes when the server last got a release of the owner. Each process of a shared owner releases
-- for itself.
local function note_release(self, name, args, server)
  if not (LEAVES[name] or wire.ACQUIRES[name]) then return end
  local owner, key = wire.owner_in(args), self.keys[args[4]]
  if owner:find("^svc") then return end
  local has = count_in(live(server, key.name), owner)
  if has or LEAVES[name] then
    key.released[server.index][owner] = not has and self.world.now or nil
  end
end

-- Frees what the expected owner holds, also under one of its copies, and nothing else. Without
-- fencing, a shared owner's lock looks like another program's hash.
local function check_forced(self, args, reply, server)
  local holder, expected = self.holder_before, args[10]
  local is_expected = not expected or holder and wire.origin_of(holder) == expected
  local freed = type(reply) == "number" and reply > 0
  local refused = type(reply) == "table" and reply.err or ""
  local spares = holder and is_expected
    and (reply == 0 or refused:find("not a lock", 1, true) and not holder:find("^svc"))
  if spares or freed and not is_expected then
    self.world:fail("forced", "%s: s%d %s what %s holds; expected: %s", args[4], server.index,
      freed and "frees" or "does not free", tostring(holder), expected or "any owner")
  end
end

function Watcher:after(name, client, args, reply, server)
  note_release(self, name, args, server)
  if FORCES[name] then check_forced(self, args, reply, server) end
  self.world:note("  s%d runs %s for %s", server.index, name, client.process and client.process.name
    or "admin")
  if FORCES[name] and reply ~= 0 then self.keys[args[4]].loss_at = self.world.now end
  for _, key_name in ipairs(self.names) do note_owners(self, self.keys[key_name]) end
end

-- ---- the end ----

-- No caller holds it any more, so a server that could be reached knows that: leases are only for
-- the dead. A lease that has ended by our clock may have a moment left by the server's; a run whose
-- record could not be left keeps its key.
local function check_lock_left(self, key, server)
  local entry = live(server, key.name)
  local holder = holder_in(entry)
  local process = holder and self.uuids[wire.client_of_owner(holder)]
  if not process or process.dead or not self.healthy[server.index] then return end
  if key.kind == "guard" and not self.calm then return end
  if entry.expires - server.redis:now_ms() > CLOCKS_MS then
    self.world:fail("orphan", "%s: %s still has it on s%d", key.name, holder, server.index)
  end
end

local function each_key(self, run)
  read_clocks(self)
  for _, server in ipairs(self.servers) do
    for _, name in ipairs(self.names) do run(self, self.keys[name], server) end
  end
end

local function check_expired(self, key, server)
  if live(server, key.name) then
    self.world:fail("orphan", "%s is still there on s%d", key.name, server.index)
  end
end

local function check_queue(self, key, server)
  if key.queue and live(server, key.queue) then
    self.world:fail("orphan", "%s has a queue on s%d", key.name, server.index)
  end
end

-- The schedule has ended; after `later` microseconds no lease runs any more.
function Watcher:finish(later)
  each_key(self, check_lock_left)
  each_key(self, check_queue)
  self.world.now = self.world.now + later
  each_key(self, check_expired)
end

-- What a shared owner leaves behind is not checked here: a lost hold of it may remain on any
-- server.
function Watcher:may_lose() end

return Watcher
