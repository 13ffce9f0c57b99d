-- What a living client has given up in schedules of several servers must not remain on the current
-- master, or on the node that has the key, once the network and the servers are well.
--
-- A hold is given up when its caller has released or dropped it, or when an acquire has failed; a
-- place in the queue is given up when it has no acquire. A hold that a failover brings back is
-- excused: the replica did not know of its release.

local Server = require "spec.sim.server"
local rules = require "spec.sim.rules"
local wire = require "spec.sim.wire"

local max = math.max

local PLACE = "a place in the queue"
local CHECK_EVERY = 50000
local PROMPT = 500000  -- µs, while all is well
local AGAIN = 1500000  -- after trouble: a failed command is retried after a second
local QUIET = 1500000  -- all is well after this long without trouble

local OF_ALL = { stall = true, fail_over = true, unlink = true, stranger = true, swap = true,
  upgrade = true, rotate = true }
for kind in pairs(Server.refusals) do OF_ALL[kind] = true end

local GivenUp = {}
GivenUp.__index = GivenUp

-- of: a watcher of systems
function GivenUp.new(of)
  return setmetatable({
    of = of, world = of.world, trouble_till = -QUIET, till_of = {}, looks = {}, freed = {},
    excused = {}, unfinished = {},
  }, GivenUp)
end

-- ---- trouble ----

-- Moving slots are checked separately, at each moment.
function GivenUp:troubled(fault, process)
  local till = self.world.now + (fault.duration or 0)
  if fault.name == "move_slot" then return end
  if OF_ALL[fault.name] then self.trouble_till = max(self.trouble_till, till)
  else self.till_of[process] = max(self.till_of[process] or 0, till) end
end

-- Another server has become the master.
function GivenUp:promoted()
  for owner in pairs(self.freed) do self.excused[owner] = true end
  self.has_failed_over = true
end

-- A program has released what the owner had on the server.
function GivenUp:released(owner, server)
  local master = self.of.topology.master
  self.freed[owner] = true
  if master and server ~= master then self.excused[owner] = true end
end

-- → until when there is or was trouble for the process and the key
local function trouble_of(self, process, key)
  local now, topology = self.world.now, self.of.topology
  if topology.fails_over or topology.moving and topology:is_moving(key.name) then return now end
  return max(self.trouble_till, self.till_of[process] or -QUIET, process.lost_at - 1,
    process.paused_until - 1)
end

-- ---- what is left ----

local function at_master(self)
  local topology = self.of.topology
  return function(name)
    local server = topology.master or topology:node_of(name)
    server.redis:read_clock()
    return rules.live(server, name), server
  end
end

local function is_about(task, key)
  return not task.over and not task.dead and task.plan.key == key.name
end

-- → the names of the holds that callers believe in or may release; how many acquires are under way
local function wanted_in(process, key)
  local names, acquires = {}, 0
  for _, task in ipairs(process.tasks) do
    for _, claim in ipairs(is_about(task, key) and task.claims or {}) do
      names[key.ops.name_of(claim.owner)] = true
    end
    local leads = task.plan.leads or task.vanished
    if is_about(task, key) and (leads or task.op and task.waits_for == key.name) then
      acquires = acquires + 1
    end
  end
  return names, acquires
end

-- → the oldest hold or place of the process that is on the server but not wanted, beyond what
-- acquires under way may have got
local function left_of(self, process, key)
  local at, list, since = at_master(self), {}, self.looks[process][key.name].since
  local wanted, acquires = wanted_in(process, key)
  local places, seen = self.has_failed_over and 0 or key.ops.places(at, key, process.uuid), {}
  for _, name in ipairs(key.ops.holders(at, key, process.uuid)) do
    local idle = wanted[name] or self.excused[name] or self.unfinished[name] or wire.keeps(name)
    if not idle then
      since[name], seen[name] = since[name] or self.world.now, true
      list[#list + 1] = name
    end
  end
  if places > acquires then
    since[PLACE], seen[PLACE] = since[PLACE] or self.world.now, true
  end
  for name in pairs(since) do since[name] = seen[name] and since[name] end
  table.sort(list, function(a, b)
    return since[a] < since[b] or since[a] == since[b] and a < b
  end)
  local most = max(0, acquires - places)
  for i = #list, #list - most + 1, -1 do list[i] = nil end
  if seen[PLACE] then list[#list + 1] = PLACE end
  return list, since
end

local function check(self, process, key)
  local state = self.looks[process][key.name]
  state.due = false
  if process.dead then return end
  local list, since = left_of(self, process, key)
  local now = self.world.now
  state.trouble = max(state.trouble, trouble_of(self, process, key))
  for _, name in ipairs(list) do
    local well = since[name] - state.trouble >= QUIET
    local till = well and since[name] + PROMPT or max(since[name], state.trouble) + AGAIN
    if now > till then
      self.world:fail("given_up", "%s: %s has given up %s, which has stayed for %.3f s", key.name,
        process.name, name == PLACE and "its wait" or "its hold", (now - since[name]) / 1e6)
    end
  end
  if next(since) then self:watch(process, key) end
end

-- The process may have given something up.
function GivenUp:watch(process, key)
  self.looks[process] = self.looks[process] or {}
  local states = self.looks[process]
  states[key.name] = states[key.name] or { since = {}, trouble = -QUIET }
  local state = states[key.name]
  if state.due then return end
  state.due = true
  self.world:at(self.world.now + CHECK_EVERY, check, self, process, key)
end

return GivenUp
