-- A cluster of three nodes, in a schedule: which node serves which slot, and slots that move, as in
-- redis-server 7.0.
--
-- A slot moves in steps: both nodes learn of the move, the keys move one by one, then the new node
-- learns that it owns the slot, and after it the others. A message to a channel goes to all nodes;
-- only its own node knows that a client is subscribed. A sharded channel moves with its slot: the
-- old node ends its subscriptions when it learns that it no longer owns the slot, and says so.

local Addresses = require "spec.sim.addresses"
local Prng = require "spec.sim.prng"
local pubsub = require "holdfast.testing.redis.pubsub"
local resp = require "holdfast.testing.redis.resp"

local unpack = table.unpack or unpack

local SLOTS = 16384

local Slots = {}
Slots.__index = Slots

-- ---- which slot ----

local function shifted(crc, byte)
  for bit = 7, 0, -1 do
    local top = crc >= 32768
    local one = math.floor(byte / 2 ^ bit) % 2 == 1
    crc = crc * 2 % 65536
    if top ~= one then
      -- crc ~ 0x1021
      local out, place = 0, 1
      local a, b = crc, 4129
      for _ = 1, 16 do
        if a % 2 ~= b % 2 then out = out + place end
        a, b, place = math.floor(a / 2), math.floor(b / 2), place * 2
      end
      crc = out
    end
  end
  return crc
end

local known = {}

-- → the CRC16 (XMODEM) of the hash tag, or of the whole key
local function slot_of(key)
  local slot = known[key]
  if slot then return slot end
  local tag, crc = key:match("^[^{]*{([^}]+)}") or key, 0
  for i = 1, #tag do crc = shifted(crc, tag:byte(i)) end
  slot = crc % SLOTS
  known[key] = slot
  return slot
end

Slots.slot_of = slot_of

-- ---- what a node says ----

local function first_owner(self, slot)
  return math.min(#self.nodes, math.floor(slot * #self.nodes / SLOTS) + 1)
end

-- → the index of the slot's owner, as this node sees it
local function owner_of(self, node, slot)
  return self.views[node.index][slot] or first_owner(self, slot)
end

-- → a node's address, as this node knows it
local function address(self, index, node)
  return ("s%d:6379"):format(self.addresses:of(index, node))
end

local function sorted(map)
  local list = {}
  for key in pairs(map) do list[#list + 1] = key end
  table.sort(list)
  return list
end

local function id_of(node)
  return ("%040d"):format(node.index)
end

-- CLUSTER SLOTS
local function list_slots(self, node)
  local edges, list = { [0] = true, [SLOTS] = true }, {}
  for i = 1, #self.nodes - 1 do edges[math.ceil(i * SLOTS / #self.nodes)] = true end
  for slot in pairs(self.views[node.index]) do edges[slot], edges[slot + 1] = true, true end
  local starts = sorted(edges)
  for i = 1, #starts - 1 do
    local owner = owner_of(self, node, starts[i])
    list[i] = { starts[i], starts[i + 1] - 1,
      { "s" .. self.addresses:of(owner, node), 6379, id_of(self.nodes[owner]) } }
  end
  return list
end

local KEY_AT = {
  get = 2, set = 2, pttl = 2, exists = 2, hget = 2, hgetall = 2, ssubscribe = 2, spublish = 2,
  type = 2,
}

local function keys_of(command, args)
  local keys = {}
  if command.name == "eval" or command.name == "evalsha" then
    for i = 1, tonumber(args[3]) or 0 do keys[i] = args[3 + i] end
  elseif KEY_AT[command.name] then
    keys[1] = args[KEY_AT[command.name]]
  end
  return keys
end

Slots.keys_of = keys_of

local function count_there(node, keys)
  local there = 0
  for _, key in ipairs(keys) do
    if node.db:find(key) then there = there + 1 end
  end
  return there
end

-- → error text | nil
local function redirect(self, node, client, command, args)
  local asking = client.asking
  client.asking = false
  local keys = keys_of(command, args)
  if not keys[1] then return nil end
  self.addresses:note(client)
  local slot = slot_of(keys[1])
  for _, key in ipairs(keys) do
    if slot_of(key) ~= slot then return "CROSSSLOT Keys in request don't hash to the same slot" end
  end
  local owner, moving = owner_of(self, node, slot), self.moving[slot]
  local is_channel = command.name == "ssubscribe" or command.name == "spublish"
  local there = is_channel and #keys or count_there(node, keys)
  local again = "TRYAGAIN Multiple keys request during rehashing of slot"
  if owner == node.index then
    if not moving or moving.from ~= node or there == #keys then return nil end
    return there > 0 and again or ("ASK %d %s"):format(slot, address(self, moving.to.index, node))
  end
  if moving and moving.to == node and asking then
    return #keys > 1 and there < #keys and again or nil
  end
  return ("MOVED %d %s"):format(slot, address(self, owner, node))
end

-- Sends a message to all nodes.
local function spread(self, node)
  local inner = node.redis.replaced.publish
  node.redis.replaced.publish = function(run, client, args)
    local heard = inner and inner(run, client, args) or run(client, args)
    if self.relaying then return heard end
    for _, other in ipairs(self.nodes) do
      if other ~= node then
        self.run.world:at(self.run.world.now + self.prng:range(50, 2000), function()
          self.relaying = true
          other.admin:call { "PUBLISH", args[2], args[3] }
          self.relaying = false
        end)
      end
    end
    return heard
  end
end

-- → the URL for clients
function Slots.url()
  return "redis+cluster://s1,s2,s3"
end

-- run: see simulator.lua
function Slots.new(run)
  local self = setmetatable({
    run = run, nodes = run.servers, prng = Prng.new(run.plan.seed * 3 + 2), views = {}, moving = {},
    moved_at = {}, apart = {},
  }, Slots)
  self.addresses = Addresses.new(self, self.prng)
  for _, node in ipairs(self.nodes) do
    self.views[node.index] = {}
    node.redis.extra_commands = {
      CLUSTER = function(_, args)
        return args[2]:upper() == "MYID" and id_of(node) or list_slots(self, node)
      end,
      ASKING = function(client)
        client.asking = true
        return { ok = "OK" }
      end,
    }
    node.redis.redirect = function(client, command, args)
      return redirect(self, node, client, command, args)
    end
    spread(self, node)
  end
  return self
end

-- ---- a slot that moves ----

local SUNSUBSCRIBE = pubsub.SUNSUBSCRIBE[3]

local function end_subscriptions(node, slot)
  for _, client in ipairs(node.redis:clients()) do
    for _, channel in ipairs { unpack(client.shards) } do
      if slot_of(channel) == slot then
        client.on_message(resp.encode(SUNSUBSCRIBE(client, { "SUNSUBSCRIBE", channel })))
      end
    end
  end
end

local function take_over(move)
  move.self.views[move.node.index][move.slot] = move.to
  if move.leaves then end_subscriptions(move.node, move.slot) end
  if move.last then
    move.self.moving[move.slot], move.self.moved_at[move.slot] = nil, move.self.run.world.now
  end
end

-- → the longest time for which keys of the key's slot were on two nodes
function Slots:longest_apart(key)
  local slot = slot_of(key)
  local move = self.moving[slot]
  local now_apart = move and move.since and self.run.world.now - move.since or 0
  return math.max(self.apart[slot] or 0, now_apart)
end

-- Ends a move whose keys have all arrived: the new node learns of it first, then the old one, then
-- the rest.
local function finish(self, move, gap)
  local world, at = self.run.world, self.run.world.now
  if move.since then
    self.apart[move.slot] = math.max(self.apart[move.slot] or 0, at - move.since)
  end
  local order = { move.to, move.from }
  for _, node in ipairs(self.nodes) do
    if node ~= move.to and node ~= move.from then order[#order + 1] = node end
  end
  for i, node in ipairs(order) do
    world:at(at, take_over, { self = self, node = node, slot = move.slot, to = move.to.index,
      last = i == #order, leaves = node == move.from })
    at = at + self.prng:range(0, gap)
  end
end

local function move_key(move)
  local self, from, to = move.self, move.from, move.to
  from.redis:read_clock()
  to.redis:read_clock()
  for _, key in ipairs(from.db:keys()) do
    if slot_of(key) == move.slot then
      local entry = from.db.entries[key]
      from.db:remove(key)
      if entry.expires then
        entry.expires = to.redis:now_ms() + math.max(1, entry.expires - from.redis:now_ms())
      end
      to.db.entries[key] = entry
      self.run.world:note("-- %s goes to s%d", key, to.index)
      move.since = move.since or self.run.world.now
      return self.run.world:at(self.run.world.now + self.prng:range(0, move.gap), move_key, move)
    end
  end
  finish(self, move, move.gap)
end

-- Moves the key's slot to another node; gap: the longest time between two steps
function Slots:move(key, gap)
  local slot = slot_of(key)
  if self.moving[slot] then return end
  local from = self.nodes[owner_of(self, self.nodes[1], slot)]
  local to = self.nodes[from.index % #self.nodes + 1]
  local move = { self = self, slot = slot, from = from, to = to, gap = gap }
  self.moving[slot] = move
  self.run.world:note("-- the slot of %s moves from s%d to s%d", key, from.index, to.index)
  self.run.world:at(self.run.world.now + self.prng:range(0, gap), move_key, move)
end

-- Returns whether the slot of the key is moving, so that two nodes may have the key.
function Slots:is_moving(key)
  return self.moving[slot_of(key)] ~= nil
end

-- Returns whether it is moving, or was within the last `us` microseconds.
function Slots:has_just_moved(key, us)
  local at = self.moved_at[slot_of(key)]
  return self:is_moving(key) or at ~= nil and self.run.world.now - at <= us
end

-- → the node that has the key, or would have it
function Slots:node_of(key)
  for _, node in ipairs(self.nodes) do
    if node.db:find(key) then return node end
  end
  return self.nodes[owner_of(self, self.nodes[1], slot_of(key))]
end

return Slots
