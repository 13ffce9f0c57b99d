-- A master, its replica and three Sentinels, in a schedule.
--
-- A failover: the master dies, or is cut off from all but the clients and one Sentinel. Some time
-- later the replica is promoted. The Sentinels learn of it one after the other; the one that was
-- cut off does when the cut ends. Until then the old master continues to serve clients that still
-- use it. It comes back as the replica.

local Replication = require "spec.sim.replication"
local Prng = require "spec.sim.prng"

local SENTINELS = 3
local TELLS = 300000 -- µs until all Sentinels know, except one that is cut off

local Sentinels = {}
Sentinels.__index = Sentinels

local function host_of(server)
  return "s" .. server.index
end

local function follow(self)
  local prng, plan = self.prng, self.run.plan
  self.replication = Replication.new(self.run.world, self.master, self.replica, function()
    return prng:range(plan.replication[1], plan.replication[2])
  end)
end

local function own_commands(self, server)
  return {
    ROLE = function()
      if server.redis.is_replica then
        return { "slave", host_of(self.master), 6379, "connected", 0 }
      end
      return { "master", 0, {} }
    end,
    WAIT = function() return 0 end,
  }
end

local function add_sentinel(self, index)
  local server = self.run.servers[index]
  self.views[index] = self.master
  server.redis.extra_commands = {
    SENTINEL = function() return { host_of(self.views[index]), "6379" } end,
  }
end

-- → the URL for clients
function Sentinels.url()
  return "redis+sentinel://s3,s4,s5/m"
end

-- run: see simulator.lua, with five servers, of which the last three are the Sentinels
function Sentinels.new(run)
  local self = setmetatable({
    run = run, prng = Prng.new(run.plan.seed * 3 + 1), master = run.servers[1],
    replica = run.servers[2], views = {},
  }, Sentinels)
  for i = 1, 2 do run.servers[i].redis.extra_commands = own_commands(self, run.servers[i]) end
  for i = 3, 2 + SENTINELS do add_sentinel(self, i) end
  follow(self)
  return self
end

-- ---- a failover ----

local function learn(lesson)
  local self = lesson.self
  self.views[lesson.index] = self.master
end

local function drop_clients(server)
  for _, client in ipairs(server.redis:clients()) do
    if client ~= server.admin then client:drop() end
  end
end

local function come_back(self)
  local old = self.replica
  drop_clients(old)
  old.down_until = 0
  for index in pairs(self.views) do self.views[index] = self.master end
  follow(self)
  self.run.world:note("-- s%d is back, as a replica", old.index)
  self.run.watcher:healed(old)
  self.fails_over = false
end

local function promote(failover)
  local self, world = failover.self, failover.self.run.world
  self.master, self.replica = self.replica, self.master
  self.master.redis.is_replica = false
  local stale = failover.how == "cut_off" and (failover.stale or self.prng:range(3, 2 + SENTINELS))
    or nil
  for index = 3, 2 + SENTINELS do
    if index ~= stale then
      world:at(world.now + self.prng:range(0, TELLS), learn, { self = self, index = index })
    end
  end
  world:note("-- s%d is promoted", self.master.index)
  self.run.watcher:promoted(self.master, self.replica, world.now + TELLS)
  world:at(world.now + failover.rest, come_back, self)
end

-- how: "crash" or "cut_off". The replica is promoted after `detect`, and the old master is back
-- `rest` after that. Until then the Sentinel `stale` learns nothing, if the master is cut off; nil:
-- any Sentinel.
function Sentinels:fail_over(how, detect, rest, stale)
  if self.fails_over then return end
  local world = self.run.world
  self.fails_over = true
  self.run.watcher:failing()
  self.replication:stop(self.prng:range(0, #self.replication.under_way))
  if how == "crash" then
    self.master.down_until = math.huge
    drop_clients(self.master)
  end
  world:at(world.now + detect, promote, { self = self, how = how, rest = rest, stale = stale })
end

-- Cuts the link between the two for a while.
function Sentinels:unlink(duration)
  if not self.replication.over then self.replication:cut(duration) end
end

return Sentinels
