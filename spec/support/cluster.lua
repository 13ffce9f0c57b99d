-- A Redis Cluster of real servers on loopback. When start() returns, all slots are served, replicas
-- follow, and every node reports that. As with single servers, nothing remains when the program
-- ends.

local process = require "spec.support.process"
local redis = require "spec.support.redis"

local SLOTS = 16384
local PATIENCE = 60 -- seconds; a limit for a busy machine, not the usual time
local MIGRATE_TIMEOUT = 5000 -- ms

local Cluster = {}
Cluster.__index = Cluster

local cluster = {}

local function expect_ok(reply)
  assert(reply == "OK", type(reply) == "table" and reply.err or "not OK")
end

local function wait(what, cond) return assert(process.wait_until(cond, PATIENCE), what) end

function Cluster:running()
  local up = {}
  for _, node in ipairs(self.nodes) do
    if node:is_running() and not node.hung then up[#up + 1] = node end
  end
  return up
end

function Cluster:_all(holds)
  for _, node in ipairs(self:running()) do
    if not holds(node) then return false end
  end
  return true
end

local function info(node)
  local text = node:cli("CLUSTER", "INFO")
  return function(name) return text:match(name .. ":(%S+)") end
end

-- Returns whether every running node reports that all slots are served.
function Cluster:is_ok()
  return self:_all(function(node)
    return info(node)("cluster_state") == "ok" and info(node)("cluster_slots_ok") == tostring(SLOTS)
  end)
end

local function meet(self)
  for i, node in ipairs(self.nodes) do
    expect_ok(node:cli("CLUSTER", "SET-CONFIG-EPOCH", i))
    node.id = node:cli("CLUSTER", "MYID")
  end
  for _, node in ipairs(self.nodes) do
    for _, other in ipairs(self.nodes) do
      if other ~= node then
        expect_ok(node:cli("CLUSTER", "MEET", other.host, other.port, other.bus_port))
      end
    end
  end
  wait("the nodes do not find each other", function()
    return self:_all(function(node)
      local _, linked = node:cli("CLUSTER", "NODES"):gsub(" connected", "")
      return linked == #self.nodes and info(node)("cluster_known_nodes") == tostring(#self.nodes)
    end)
  end)
end

-- Lists single slots, because ADDSLOTSRANGE came with 7.0.
local function share_slots(self, masters)
  for i = 1, masters do
    local command = { "CLUSTER", "ADDSLOTS" }
    for slot = math.floor((i - 1) * SLOTS / masters), math.floor(i * SLOTS / masters) - 1 do
      command[#command + 1] = ("%d"):format(slot)
    end
    expect_ok(self.nodes[i]:cli(command))
  end
end

local function follow(self, masters)
  for i = masters + 1, #self.nodes do
    local master = self.nodes[(i - 1) % masters + 1]
    wait("a replica does not find its master", function()
      return self.nodes[i]:cli("CLUSTER", "REPLICATE", master.id) == "OK"
    end)
  end
end

function Cluster:_replicas_follow()
  return self:_all(function(node)
    local role = node:cli("ROLE")
    return role[1] == "master" or role[4] == "connected"
  end)
end

-- start{ masters = 3, replicas = 1 (per master), password, node_timeout = 1000 (ms), conf = { lines
-- },
--   program = path, tls (as for redis.start, with alone = true),
--   places = { { host, under } for each node, as for redis.start } }
function cluster.start(options)
  options = options or {}
  local masters = options.masters or 3
  local conf = {
    "cluster-node-timeout " .. (options.node_timeout or 1000),
    "cluster-replica-validity-factor 0", -- a replica is never too old to take over
    "cluster-migration-barrier 1000", -- no replica is moved to another master
  }
  for _, line in ipairs(options.conf or {}) do conf[#conf + 1] = line end
  -- moved: slot → the node that it was moved to last
  local self = setmetatable({ options = options, moved = {} }, Cluster)
  self.nodes = {}
  for i = 1, masters * (1 + (options.replicas or 1)) do
    local place = options.places and options.places[i] or {}
    self.nodes[i] = redis.start {
      cluster = true, password = options.password, users = options.users, conf = conf,
      tls = options.tls, program = options.program, host = place.host, under = place.under,
    }
  end
  meet(self)
  share_slots(self, masters)
  follow(self, masters)
  self:wait_settled()
  return self
end

-- Returns a URL with the addresses of these nodes, or of all.
function Cluster:url(nodes)
  local hosts = {}
  for i, node in ipairs(nodes or self.nodes) do hosts[i] = node.host .. ":" .. node.port end
  local login = self.options.password and (":%s@"):format(self.options.password) or ""
  return ("%s+cluster://%s%s"):format(self.options.tls and "rediss" or "redis", login,
    table.concat(hosts, ","))
end

function Cluster:slot(key) return self:running()[1]:cli("CLUSTER", "KEYSLOT", key) end

function Cluster:_by_id(id)
  for _, node in ipairs(self.nodes) do
    if node.id == id then return node end
  end
end

-- Returns the master of a slot according to `asked`, or to any running node. → node | nil
function Cluster:owner(slot, asked)
  for _, range in ipairs((asked or self:running()[1]):cli("CLUSTER", "SLOTS")) do
    if range[1] <= slot and slot <= range[2] then return self:_by_id(range[3][3]) end
  end
end

-- Returns whether all running nodes name the same masters for the same slots.
function Cluster:_agrees()
  local first
  return self:_all(function(node)
    local lines = {}
    for _, range in ipairs(node:cli("CLUSTER", "SLOTS")) do
      lines[#lines + 1] = ("%d %d %s"):format(range[1], range[2], range[3][3])
    end
    table.sort(lines)
    local text = table.concat(lines, "\n")
    first = first or text
    return text == first
  end)
end

function Cluster:node_of(key) return self:owner(self:slot(key)) end

-- Returns the running nodes that report that they are masters.
function Cluster:masters()
  local list = {}
  for _, node in ipairs(self:running()) do
    if node:cli("ROLE")[1] == "master" then list[#list + 1] = node end
  end
  return list
end

function Cluster:replicas_of(master)
  local list = {}
  for _, node in ipairs(self:running()) do
    local role = node:cli("ROLE")
    if role[1] == "slave" and role[3] == master.port then list[#list + 1] = node end
  end
  return list
end

-- Waits until all slots are served, replicas follow, and all nodes agree.
function Cluster:wait_settled()
  return wait("the cluster does not come to rest", function()
    return self:is_ok() and self:_replicas_follow() and self:_agrees()
  end)
end

-- Starts a cluster of one node, which serves all slots. stop() ends it.
function cluster.stranger()
  local node = redis.start { cluster = true }
  expect_ok(node:cli("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1))
  wait("the other cluster does not serve", function()
    return info(node)("cluster_state") == "ok"
  end)
  return node
end

-- Kills a master after its replica has all its writes, and promotes the replica. → whether it did
function Cluster:kill_in_sync(master)
  local replica = self:replicas_of(master)[1]
  if not replica then return false end
  expect_ok(master:cli("CLIENT", "PAUSE", 1000, "WRITE"))
  local in_sync = master:cli("WAIT", 1, 500) >= 1
  if not in_sync then return false end
  master:kill("KILL")
  return replica:cli("CLUSTER", "FAILOVER", "TAKEOVER") == "OK"
end

function Cluster:hang(node)
  node.hung = true
  node:kill("STOP")
end

function Cluster:resume(node)
  node:kill("CONT")
  node.hung = nil
end

-- Announces again who owns the slot. If two nodes learn of a slot's previous move after its last
-- one, they may name each other forever.
function Cluster:_insist(slot, to)
  if not to:is_running() or to:cli("ROLE")[1] ~= "master" then return end
  to:cli("CLUSTER", "BUMPEPOCH")
  for _, node in ipairs(self:masters()) do node:cli("CLUSTER", "SETSLOT", slot, "NODE", to.id) end
end

-- Waits for cond(). Until then announces once a second that the slot belongs to choose(), a node or
-- nil, and that other slots belong to the nodes that they were moved to.
function Cluster:_wait_insisting(what, slot, choose, cond)
  local insist_at = process.now() + 1
  return wait(what, function()
    local result = cond()
    if result or process.now() < insist_at then return result end
    insist_at = process.now() + 1
    for moved, to in pairs(self.moved) do
      if moved ~= slot then self:_insist(moved, to) end
    end
    local to = choose()
    if to then self:_insist(slot, to) end
  end)
end

-- Waits until another node has the slot of `old`, all slots are served and all nodes agree. → that
-- node
function Cluster:wait_promotion(slot, old)
  local promoted
  local function chosen()
    return promoted and promoted ~= old and promoted:is_running() and promoted or nil
  end
  self:_wait_insisting("no replica was promoted", slot, chosen, function()
    promoted = self:owner(slot)
    return chosen() and self:is_ok() and self:_agrees()
  end)
  return promoted
end

-- A slot that is being moved from one master to another. During the move the old owner replies ASK
-- for a key that it no longer has, and the new one accepts commands for the key after ASKING.
local Move = {}
Move.__index = Move

function Cluster:begin_move(slot, to)
  local function another()
    for _, node in ipairs(self:masters()) do
      if node ~= to then return node end
    end
  end
  -- the owner itself must agree
  local from = self:_wait_insisting("nobody has the slot", slot, another, function()
    local owner = self:owner(slot)
    return owner and owner ~= to and self:owner(slot, owner) == owner
      and owner:cli("CLUSTER", "NODES"):find(to.id .. " %S+ %S*master") and owner
  end)
  local move = setmetatable({ cluster = self, slot = slot, from = from, to = to }, Move)
  expect_ok(to:cli("CLUSTER", "SETSLOT", slot, "IMPORTING", from.id))
  expect_ok(from:cli("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id))
  return move
end

-- Moves at most `count` keys, by default all. → how many
function Move:carry(count)
  local keys = self.from:cli("CLUSTER", "GETKEYSINSLOT", self.slot, count or 1000)
  if #keys == 0 then return 0 end
  local command = { "MIGRATE", self.to.host, self.to.port, "", 0, MIGRATE_TIMEOUT }
  local password = self.cluster.options.password
  for _, word in ipairs(password and { "AUTH", password } or {}) do command[#command + 1] = word end
  command[#command + 1] = "KEYS"
  for _, key in ipairs(keys) do command[#command + 1] = key end
  local reply = self.from:cli(command)
  assert(reply == "OK" or reply == "NOKEY", type(reply) == "table" and reply.err or reply)
  return #keys
end

-- Moves the remaining keys, and tells all masters the slot's new owner, that one first.
function Move:finish()
  wait("the slot does not become empty", function()
    self:carry()
    return self.from:cli("CLUSTER", "COUNTKEYSINSLOT", self.slot) == 0
  end)
  self.cluster.moved[self.slot] = self.to
  for _, node in ipairs { self.to, self.from } do
    expect_ok(node:cli("CLUSTER", "SETSLOT", self.slot, "NODE", self.to.id))
  end
  for _, node in ipairs(self.cluster:masters()) do
    if node ~= self.to and node ~= self.from then
      node:cli("CLUSTER", "SETSLOT", self.slot, "NODE", self.to.id)
    end
  end
end

-- Moves a whole slot. The nodes agree when it returns.
function Cluster:move(slot, to)
  self:begin_move(slot, to):finish()
  self:_wait_insisting("the nodes do not agree", slot, function()
    return to
  end, function() return self:_agrees() end)
end

function Cluster:stop() for _, node in ipairs(self.nodes) do node:stop() end end

return cluster
