-- The rules of a latch and of a plain semaphore with several servers: those of latch_watcher.lua
-- and plain_watcher.lua, on the server that has it. In a cluster all of them hold. A failover, even
-- with sync, may forget what was done before it was over: then only what began after it is checked,
-- and that each call ends in time.

local huge = math.huge

local LATE_US = 1000000 -- how long a moving slot may delay a message

local system_counts = {}

local Part = {}

function Part:home()
  return self.topology.master or self.topology:node_of(self.name)
end

-- Returns whether no failover has been under way since `at`.
function Part:is_certain(at)
  for _, failover in ipairs(self.failovers) do
    if failover.to >= at then return false end
  end
  return true
end

function Part:failing()
  self.failovers[#self.failovers + 1] = { from = self.world.now, to = huge }
end

function Part.promoted() end

function Part:healed()
  self.failovers[#self.failovers].to = self.world.now
  self:around(function() end)
end

-- → a watcher of latches or plain semaphores for several servers
function system_counts.onto(Counts)
  local Watcher = setmetatable({}, { __index = Counts })
  Watcher.__index = Watcher
  for name, method in pairs(Part) do Watcher[name] = method end
  function Watcher.new(world, servers, plan)
    local self = Counts.new(world, servers, plan)
    for _, server in ipairs(servers) do server.watcher = self end
    self.failovers, self.late_us = {}, self.late_us + LATE_US
    self.calm = self.calm and plan.system == "cluster" and not plan.slow
    return setmetatable(self, Watcher)
  end
  return Watcher
end

return system_counts
