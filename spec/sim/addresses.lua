-- A kind of fault: another server, or another version, replies at the address of a cluster's node.
--
-- An address may belong to a node of another cluster for a while: any client that has used its own
-- cluster breaks a rule if it sends something there. Two nodes may swap their addresses, which the
-- others learn later. Nodes may begin as Redis 6.2 and be upgraded, one after the other.

local Server = require "spec.sim.server"
local programs = require "spec.sim.programs"

local SLOTS = 16384
local STRANGERS_ID = ("%040d"):format(77)
-- Commands and subcommands that Redis 6.2 lacks.
local LACKS = { SPUBLISH = true, SSUBSCRIBE = true, SUNSUBSCRIBE = true, SHARDNUMSUB = true,
  SHARDCHANNELS = true }

local Addresses = {}
Addresses.__index = Addresses

-- slots: see slots.lua; prng: used only here
function Addresses.new(slots, prng)
  local self = setmetatable({
    slots = slots, run = slots.run, world = slots.run.world, prng = prng, known = {}, at_home = {},
    leads = {}, -- number of an address → the server there
  }, Addresses)
  self.run.network.leads = self.leads
  for _, node in ipairs(slots.nodes) do
    self.known[node.index], self.leads[node.index] = {}, node
    node.redis.lacks = slots.run.plan.from_62 and LACKS or nil
  end
  return self
end

-- → the number of the owner's address, as the node knows it
function Addresses:of(owner, node)
  return self.known[node.index][owner] or owner
end

-- Notes that a client has sent a command with keys to a node of the cluster: it has read a map.
function Addresses:note(client)
  if client.process then self.at_home[client.process] = true end
end

-- → whether all clients have read a map. A client that has not may mistake the other cluster for
-- its own, unless the other addresses that it was given answer (plan.new_clients).
local function all_at_home(self)
  for _, process in pairs(self.run.processes) do
    if not process.dead and not process.closed and not self.at_home[process] then return false end
  end
  return true
end

local function lead(self, address, server)
  self.leads[address] = server
  for _, process in pairs(self.run.processes) do process:drop_all(address, 0) end
end

-- ---- another cluster ----

local function new_stranger(self)
  local server = Server.new(self.world, #self.slots.nodes + 1,
    { rate = 1, offset = 0, gather = 0, seed = self.run.plan.seed })
  server.redis.extra_commands = {
    CLUSTER = function(_, args)
      if args[2]:upper() == "MYID" then return STRANGERS_ID end
      return { { 0, SLOTS - 1, { "s" .. server.address, 6379, STRANGERS_ID } } }
    end,
  }
  server.redis.redirect = function(client, command, args)
    if client.process and #self.slots.keys_of(command, args) > 0 then
      self.world:fail("stranger", "%s sends %s to a node of another cluster", client.process.name,
        command.name)
    end
  end
  return server
end

local function goes(over)
  over.self.world:note("-- the stranger at s%d goes", over.address)
  over.self.stranger.address = nil
  lead(over.self, over.address, over.node)
end

-- Lends the address to a node of another cluster for this long.
function Addresses:lend(address, duration)
  self.stranger = self.stranger or new_stranger(self)
  local is_away = not self.run.plan.new_clients and not all_at_home(self)
  if self.stranger.address or is_away then return end
  local over = { self = self, address = address, node = self.leads[address] }
  self.stranger.address = address
  lead(self, address, self.stranger)
  self.world:at(self.world.now + duration, goes, over)
end

-- ---- nodes that change their addresses ----

local function hear(news)
  local known, a, b = news.known, news.a, news.b
  known[a], known[b] = known[b] or b, known[a] or a
end

-- Swaps the addresses of two nodes forever; the other nodes learn of it within `gap`.
function Addresses:swap(first, second, gap)
  local a, b = self.leads[first], self.leads[second]
  if a == b or self.stranger and self.stranger.address then return end
  lead(self, first, b)
  lead(self, second, a)
  for _, node in ipairs(self.slots.nodes) do
    local own = node == a or node == b
    self.world:at(self.world.now + (own and 0 or self.prng:range(0, gap)), hear,
      { known = self.known[node.index], a = a.index, b = b.index })
  end
end

-- ---- versions ----

-- Restarts the node as Redis 7.
function Addresses:upgrade(index, duration)
  local node = self.slots.nodes[index]
  if not node.redis.lacks then return end
  node.redis.lacks = nil
  node:restart(true, duration)
end

-- Checks that a program that runs on this server is for its version.
function Addresses:check(name, client, server)
  local sharded = name:find "^sharded_" ~= nil
  local fits = sharded == not server.redis.lacks or not sharded and not programs["sharded_" .. name]
  if not fits then
    self.world:fail("version", "%s runs %s on s%d, which has %s sharded channels",
      client.process.name, name, server.index, server.redis.lacks and "no" or "")
  end
end

return Addresses
