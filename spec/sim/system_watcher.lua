-- The rules of every schedule with a failover or with slots that move, in place of watcher.lua's.
--
--   sync      exclusion, without an excuse: what is believed in is on the replica, which is the one
--             that takes over
--   sentinel  exclusion, except for holds from before the old master was gone, for at most a
--             lease; and a client does not go on to use a master that was replaced, once it has
--             asked the Sentinels
--   cluster   exclusion, without an excuse: each key is at one node at a time; and no caller
--             learns that servers are away
--   all       a hold or place that a living client has given up does not remain: given_up.lua
--
-- No order of waiters is checked: a failover forgets places, a slot that moves is heard of at
-- different times. What exclusion is for a kind of lock: system_kinds.lua.

local GivenUp = require "spec.sim.given_up"
local Quorum = require "spec.sim.quorum_watcher"
local kinds = require "spec.sim.system_kinds"
local rules = require "spec.sim.rules"
local wire = require "spec.sim.wire"

local max, huge = math.max, math.huge

local SLOTS = 12
local CLOCKS_US = 5000 -- how much earlier than by the owner's rounding a lease may end there
local LOOKS = 1500000  -- the Sentinels are asked each second, and need time to reply
local IDLE = 350000     -- they are not asked while nothing is held or wanted
local MAX_GAP = 4000000
local FIRST_SENTINEL = 3
local MAX_MOVE = 0.5  -- seconds that a slot may take to move
local MAX_PAUSE = 320000 -- µs between a refusal and the retry

local Watcher = setmetatable({}, { __index = Quorum })
Watcher.__index = Watcher

-- → the server that decides in the end
local function renewer_of(self, name)
  if self.system == "cluster" then return self.topology:node_of(name) end
  local replication = self.topology.replication
  return replication.over and self.topology.fails_over
    and (self.old and self.topology.master or self.topology.replica)
    or replication.replica
end

-- → the entry of that name on the server that decides | nil, that server
local function entry_at(self, name)
  local server = renewer_of(self, name)
  server.redis:read_clock()
  return rules.live(server, name), server
end

-- Signals that a program grants a lock.
local function hear_grants(self, server)
  local function publish(run, client, args)
    local process = self.uuids[args[2]:match("^holdfast_grant:(.*)")]
    local key = args[3]:match("^1 grant %S+ %S+ %S+ %S+ %S+ (.*)")
    if process and key then self.world:signal("grant", process, key) end
    return run(client, args)
  end
  server.redis.replaced.publish, server.redis.replaced.spublish = publish, publish
end

function Watcher.new(world, servers, plan)
  local self = setmetatable(Quorum.new(world, servers, plan), Watcher)
  self.system, self.failovers, self.on_old = plan.system, {}, {}
  self.given_up = GivenUp.new(self)
  -- a slot takes longer to move than a caller waits
  self.faults, self.slow = plan.faults, plan.slow
  self.permits, self.key_of_leases, self.farthest = {}, {}, 0
  self.excused = {} -- the owners whose token may be lower than others
  for _, distance in pairs(plan.distances or {}) do -- four messages for a reply over a new link
    self.farthest = max(self.farthest, 4 * distance)
  end
  for _, key in ipairs(plan.keys) do self.permits[key.name] = key.permits end
  self.at = function(name) return entry_at(self, name) end
  for _, server in ipairs(servers) do hear_grants(self, server) end
  return self
end

function Watcher:add_key(name, kind)
  Quorum.add_key(self, name, kind)
  local key = self.keys[name]
  key.ops, key.tokens = kinds[kind], {}
  key.ops.add_key(key, self.permits[name])
  if key.leases then self.key_of_leases[key.leases] = name end
end

-- ---- failovers ----

-- The master is gone, or cut off; another server is promoted, which most Sentinels report from
-- `known_at` on; the old master becomes its replica.
function Watcher:failing()
  self.failovers[#self.failovers + 1] = { from = self.world.now, to = huge }
end

function Watcher:promoted(_, old, known_at)
  self.old, self.known_at, self.on_old, self.on_new = old, known_at, {}, {}
  self.given_up:promoted()
end

function Watcher:healed()
  self.old = nil
  self.failovers[#self.failovers].to = self.world.now
end

function Watcher:troubled(fault, process) self.given_up:troubled(fault, process) end

-- Excuses a claim, or a leader's term, that began before the old master was gone.
function Watcher:excuses(claim)
  if self.system ~= "sentinel" then return false end
  for _, failover in ipairs(self.failovers) do
    if claim.asked_at <= failover.to and claim.till <= failover.to + claim.lease_us then
      return true
    end
  end
  return false
end

-- Returns whether a failover was under way when the claim began: another owner may have acquired
-- the lock on the other master, with a higher token.
function Watcher:may_be_one_of_two(claim)
  if self.system ~= "sentinel" then return false end
  for _, failover in ipairs(self.failovers) do
    if claim.asked_at <= failover.to then return true end
  end
  return false
end

-- ---- claims ----

-- Checks that what is believed in is where it cannot be lost. A lock that no one else can have
-- acquired meanwhile may have ended by itself.
local function check_backed(self, key, claim)
  if self.system == "sentinel" or claim.till <= claim.backed then return end
  local till = key.ops.has_until(self.at, key, claim)
  claim.backed = claim.till
  if claim.till > till + CLOCKS_US then
    self.world:fail("backed", "%s: %s believes in it until %.6f, the server has it until %.6f",
      key.name, claim.who, claim.till / 1e6, till / 1e6)
  end
end

-- Moving slots, however slow, must not cost an owner a lock of one key. A lock of several keys
-- cannot be renewed while these are on two nodes.
local function check_kept(self, key, claim)
  if self.system ~= "cluster" or self.faults or not claim.kept or claim.over then return end
  if not key.ops.one_key and self.topology:longest_apart(claim.key) > claim.lease_us / 4 then
    return
  end
  self.world:fail("lost", "%s: %s has lost it, though only slots moved", claim.key,
    claim.who)
end

local function check_pairs(self, key, claim)
  for _, other in ipairs(key.claims) do
    local both = other ~= claim and key.ops.excludes(claim, other)
    if both and not self:excuses(claim) and not self:excuses(other) then
      self.world:fail("exclusion", "%s: both %s (until %.6f) and %s (until %.6f) hold it", key.name,
        claim.who,
        claim.till / 1e6, other.who, other.till / 1e6)
    end
  end
end

-- Checks that callers believe in no more permits than exist.
local function check_sum(self, key)
  local sum = 0
  for _, claim in ipairs(key.claims) do
    if not self:excuses(claim) then sum = sum + key.ops.count(claim) end
  end
  if sum > key.most then
    self.world:fail("exclusion", "%s: %d permits are believed in, there are %d", key.name, sum,
      key.most)
  end
end

-- The claim now ends at `till`; 0: it has ended.
function Watcher:claim(claim, till)
  local key, now = self.keys[claim.key], self.world.now
  claim.till, claim.backed = till, claim.backed or 0
  for i = #key.claims, 1, -1 do
    local other = key.claims[i]
    if other == claim or other.till <= now then table.remove(key.claims, i) end
  end
  if till <= now then
    local process = self.uuids[wire.client_of_owner(claim.owner)]
    if process then self.given_up:watch(process, key) end
    check_kept(self, key, claim)
    return
  end
  key.claims[#key.claims + 1] = claim
  if key.ops.count then check_sum(self, key) else check_pairs(self, key, claim) end
  check_backed(self, key, claim)
end

local function check_gap(self, key)
  local since = key.free_since
  for _, claim in ipairs(key.claims) do
    if claim.till > self.world.now then since = self.world.now end
  end
  local wanted
  for slot = 1, SLOTS do
    local wanting = key.wanting[slot]
    if wanting and (not wanted or wanting < wanted) then wanted = wanting end
  end
  local gap = wanted and self.world.now - max(wanted, since) or 0
  if self.system == "cluster" and not self.faults and not self.slow and gap > MAX_GAP then
    self.world:fail("idle", "%s: nobody got it for %.3f s while somebody waited", key.name,
      gap / 1e6)
  end
end

-- Each acquire of permits has its own token.
local function check_own_token(self, key, claim, excused)
  if not claim.token then
    self.world:fail("token", "%s: %s has no token", key.name, claim.who)
  elseif key.tokens[claim.token] and not excused then
    self.world:fail("token", "%s: %s has the token of another", key.name, claim.who)
  end
  if claim.token and not excused then key.tokens[claim.token] = true end
end

-- A reader's token is that of the last writer before it, unless a failover has lost that.
local function check_readers_token(self, key, claim)
  if claim.token and claim.token < key.last_token and self.system ~= "sentinel" then
    self.world:fail("token", "%s: %s reads with token %.0f after %.0f", key.name, claim.who,
      claim.token, key.last_token)
  end
end

-- Returns whether a claim's token may be lower than others. A caller that is lent a kept lock has a
-- token that was drawn with the lock: see keep.md.
local function is_token_excused(self, claim)
  return self:may_be_one_of_two(claim) or self.excused[claim.owner]
end

-- The first claim of a hold, after an acquire that is not a re-entry.
function Watcher:granted(claim)
  local key = self.keys[claim.key]
  check_gap(self, key)
  if not claim.fenced or claim.shared then return end
  local excused = is_token_excused(self, claim)
  self.excused[claim.owner] = excused
  if claim.kind == "permit" then
    check_own_token(self, key, claim, excused)
  elseif claim.kind == "read" then
    check_readers_token(self, key, claim)
  else
    rules.check_token(self.world, key, claim, excused)
  end
end

-- A write to a store that checks tokens; readers and holders of permits do not write. → whether it
-- was accepted
function Watcher:write(claim)
  if claim.kind == "read" or claim.kind == "permit" then return true end
  return rules.write(self.world, self.keys[claim.key], claim, is_token_excused(self, claim))
end

-- ---- what must be done once ----

-- A replica does not confirm records.
function Watcher:begun(name, task, print, asked_at, code, record)
  if self.system == "cluster" then Quorum.begun(self, name, task, print, asked_at, code, record) end
end

-- A run whose record may not have been left keeps its key.
function Watcher:not_completed(owner) self.given_up.unfinished[owner] = true end

-- ---- operations ----

local AWAY = { unreachable = true, server = true, conflict = true, no_quorum = true, denied = true }

-- Moving slots affect only a wait that ends meanwhile: its reason is the last refusal.
function Watcher:answered(task, key, code)
  local wait = task.plan.wait
  if code then self.given_up:watch(task.process, self.keys[key]) end
  local too_many = code == "conflict" and self.keys[key].leases -- there are fewer permits in total
  if too_many then return end
  if self.system ~= "cluster" or self.faults or self.slow or not AWAY[code] then return end
  local ends_in_move = wait < MAX_MOVE or self.topology:has_just_moved(key, MAX_PAUSE)
  if wait > 0 and ends_in_move then return end
  self.world:fail("served", "%s: %s gets %s", key, task.name, code)
end

local function plain(name)
  return (name:gsub("^sharded_", ""))
end

local function are_silent(self)
  for i = FIRST_SENTINEL, #self.servers do
    if self.servers[i].paused_until > self.world.now - LOOKS then return true end
  end
  return false
end

-- No client continues with a master that was replaced: one that notices asks the Sentinels at once.
-- And no client goes back to it.
local function check_moved(self, client)
  local process = client.process
  if process.paused_us > 0 or self.faults or client.sent_at < self.known_at then return end
  if self.on_new[process] and client.sent_at > self.on_new[process] then
    self.world:fail("moved", "%s goes back to a master that was replaced", process.name)
  end
  local use = self.on_old[process]
  if not use or client.sent_at > use.last + IDLE or are_silent(self) then
    use = { first = client.sent_at }
  end
  use.last, self.on_old[process] = client.sent_at, use
  if client.sent_at > use.first + LOOKS + self.farthest then
    self.world:fail("moved", "%s still uses a master that was replaced", process.name)
  end
end

-- How many keys each hold has; Quorum.before checks renewals of locks.
local RENEWALS = { permit_renew = 1, rw_renew = 2 }

function Watcher:before(name, client, args, server)
  if not client.process then return end
  if self.system == "cluster" then self.topology.addresses:check(name, client, server) end
  if server == self.old then check_moved(self, client) end
  if self.old and server == self.topology.master then
    self.on_new[client.process] = client.sent_at
  end
  Quorum.before(self, plain(name), client, args, server)
  local keys_each = RENEWALS[plain(name)]
  if not keys_each then return end
  wire.each_renewal(args, function(key, owner)
    self:check_late(client, "renews", owner, self.key_of_leases[key] or key, server)
  end, keys_each)
end

local function note_free(self)
  for _, name in ipairs(self.names) do
    local key = self.keys[name]
    if key.ops.is_taken(self.at, key) then key.free_since = self.world.now end
  end
end

function Watcher:after(name, client, args, reply, server)
  self.world:note("  s%d runs %s for %s", server.index, name, client.process and client.process.name
    or "admin")
  note_free(self)
  local process = client.process
  local what = plain(name)
  if what == "permit_set" and reply == 1 then
    local key = self.keys[args[4]]
    key.most = max(key.most, tonumber(args[#args]))
  end
  if not process then return end
  local takes = wire.ACQUIRES[what] and type(reply) == "table" and reply[1] == 1
  if wire.ACQUIRES[what] then self.world:signal(takes and "take" or "waits", process, args[4]) end
  if what:find("renew", 1, true) then self.world:signal("renewed", process, args[4]) end
  if what:find("extend", 1, true) then self.world:signal("extended", process, args[4]) end
  local frees = what:find("release", 1, true) or what:find("leave", 1, true)
  if frees or what:find("complete", 1, true) then
    self.given_up:released(self.keys[args[4]].ops.name_of(wire.owner_in(args)), server)
  end
  if frees then
    self.world:signal("freed", process, args[4])
  end
end

-- ---- the end ----

local function check_left(self, what)
  for _, server in ipairs(self.servers) do
    server.redis:read_clock()
    for _, name in ipairs(self.names) do
      local key = self.keys[name]
      local left = key.ops.left(server, key) or key.queue and server.db:find(key.queue)
        and key.queue
      if left and not server.redis.is_replica then
        self.world:fail("orphan", "%s is still there on s%d %s", left, server.index, what)
      end
    end
    rules.check_channels(self.world, self.uuids, server.redis, " on s" .. server.index)
  end
end

-- The schedule has ended; after `later` microseconds no lease runs any more, and no queue exists.
function Watcher:finish(later)
  self.world.now = self.world.now + later + 125000000
  check_left(self, "after all leases")
end

return Watcher
