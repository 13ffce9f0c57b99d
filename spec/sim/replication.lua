-- Asynchronous replication of one server to another. WAIT counts like in Redis 7.2 and Valkey: by
-- what the client itself has written.
--
-- For each command that wrote, the replica gets the state after it. States arrive in order, late,
-- and not while the link is cut; what had not arrived when the link ends is lost.

local Redis = require "holdfast.testing.redis"

local Replication = {}
Replication.__index = Replication

local function copy_of(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for name, item in pairs(value) do copy[name] = copy_of(item) end
  return setmetatable(copy, getmetatable(value))
end

-- ---- what has been confirmed ----

local function confirmed(self, client)
  return not self.over and self.acknowledged >= (client.written or 0) and 1 or 0
end

local function answer_those_who_wait(self)
  for client, wait in pairs(self.waiting) do
    if confirmed(self, client) >= wait.need then
      self.waiting[client] = nil
      self.answers[#self.answers + 1] = { number = wait.number, client = client }
    end
  end
  table.sort(self.answers, function(a, b) return a.number < b.number end)
  local answers = self.answers
  self.answers = {}
  for _, each in ipairs(answers) do each.client:unblock(1) end
end

local function give_up(waiter)
  local self, client = waiter.replication, waiter.client
  if self.waiting[client] ~= waiter.wait then return end
  self.waiting[client] = nil
  client:unblock(confirmed(self, client))
end

-- WAIT replicas milliseconds
local function wait(self, client, args)
  local need = tonumber(args[2])
  local count = confirmed(self, client)
  if need <= count then return count end
  self.waits = self.waits + 1
  local waiter = { replication = self, client = client,
    wait = { need = need, number = self.waits } }
  self.waiting[client] = waiter.wait
  self.world:at(self.world.now + tonumber(args[3]) * 1000, give_up, waiter)
  return Redis.BLOCKED
end

-- ---- the stream ----

local function acknowledge(ack)
  local self = ack.replication
  if self.over then return end
  self.acknowledged = math.max(self.acknowledged, ack.offset)
  answer_those_who_wait(self)
end

local function arrive(self)
  if self.over then return end
  if self.cut_until > self.world.now then return self.world:at(self.cut_until + 1, arrive, self) end
  local item = table.remove(self.under_way, 1)
  self.replica.db.entries = item.entries
  self.world:at(self.world.now + self.latency(), acknowledge,
    { replication = self, offset = item.offset })
end

local function wrote(self, client)
  self.offset = self.offset + 1
  client.written = self.offset
  self.under_way[#self.under_way + 1] = { offset = self.offset,
    entries = copy_of(self.master.db.entries) }
  self.at = math.max(self.at, self.world.now + self.latency())
  self.world:at(self.at, arrive, self)
end

-- The replica copies all that the master has, and follows it. latency: a function, in microseconds
function Replication.new(world, master, replica, latency)
  local self = setmetatable({
    world = world, master = master, replica = replica, latency = latency, offset = 0,
    acknowledged = 0, at = 0,
    under_way = {}, waiting = {}, answers = {}, waits = 0, cut_until = 0,
  }, Replication)
  replica.db.entries = copy_of(master.db.entries)
  replica.redis.is_replica = true
  master.redis.on_write = function(client) wrote(self, client) end
  master.redis.extra_commands.WAIT = function(client, args) return wait(self, client, args) end
  return self
end

-- Nothing gets through for this long.
function Replication:cut(duration)
  self.cut_until = math.max(self.cut_until, self.world.now + duration)
end

-- The link ends; the first `kept` states under way still arrive.
function Replication:stop(kept)
  for i = 1, math.min(kept, #self.under_way) do
    self.replica.db.entries = self.under_way[i].entries
  end
  self.over, self.under_way = true, {}
  self.master.redis.on_write = nil
  self.master.redis.extra_commands.WAIT = function() return 0 end
  local waiting = self.waiting
  self.waiting = {}
  local list = {}
  for client, each in pairs(waiting) do
    list[#list + 1] = { client = client, number = each.number }
  end
  table.sort(list, function(a, b) return a.number < b.number end)
  for _, each in ipairs(list) do each.client:unblock(0) end
end

return Replication
