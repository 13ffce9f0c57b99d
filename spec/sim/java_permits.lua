-- A thread of Java that takes permits of Redisson's RPermitExpirableSemaphore. It never loses its
-- connection; it may die.

local Prng = require "spec.sim.prng"
local resp = require "spec.sim.resp"
local scripts = require "spec.support.permit_scripts"
local wire = require "spec.sim.wire"

local RETRY = 100000
local unpack = table.unpack or unpack

local Java = {}
Java.__index = Java

-- plan: see pool_plan.lua; slot: 9 to 12
function Java.new(world, server, watcher, plan, slot, seed)
  local self = setmetatable({
    world = world, server = server, watcher = watcher, plan = plan, slot = slot,
    prng = Prng.new(seed + slot), rounds = plan.rounds, turn = 0,
    keys = { plan.key, wire.leases_of(plan.key), wire.permits_channel_of(plan.key) },
  }, Java)
  local function hears(bytes) self:hears(bytes) end
  local function drops() self:ends() end
  self.client = server.redis:connect(hears, drops)
  self.listener = server.redis:connect(hears, drops)
  world:at(plan.start, self.begin, self)
  return self
end

function Java:later(run, duration, argument)
  self.world:at(self.world.now + duration, run, self, argument)
end

-- By its own clock, which goes as the server's does.
local function now_ms(self)
  return math.floor(self.server.redis.clock() / 1000)
end

-- Sends a script with the time, and the values that make() returns; `done` gets its reply.
function Java:call(done, script, make)
  self:later(function()
    if self.gone then return end
    local args = { "EVAL", script, "3", self.keys[1], self.keys[2], self.keys[3],
      ("%d"):format(now_ms(self)), ("%d"):format(self.plan.permits) }
    for _, value in ipairs(make()) do args[#args + 1] = value end
    local reply
    self.watcher:around(function() reply = self.client:call(args) end)
    self:later(done, self.prng:range(200, 3000), reply)
  end, self.prng:range(200, 3000))
end

function Java:ends()
  self.gone = true
  self.watcher:sleeps(self.plan.key, self.slot, nil)
end

function Java:die()
  self.world:note("java %d dies", self.slot)
  self:ends()
  if self.claim then self.watcher:claim(self.claim, 0) end
  self.client:close()
  self.listener:close()
end

function Java:listen(on)
  if self.gone or self.listens == on then return end
  self.listens = on
  self.listener:feed(resp.command { on and "SUBSCRIBE" or "UNSUBSCRIBE", self.keys[3] })
end

-- What is heard while it does not wait ends its next wait at once: Redisson counts messages.
function Java:hears(bytes)
  if not bytes:find("message\r\n", 1, true) then return end
  if self.waits then self:later(self.try, self.prng:range(200, 3000), self.turn)
  else self.told = true end
end

function Java:begin()
  self.told = false
  self:try(self.turn)
end

local function new_ids(self)
  local ids = {}
  for i = 1, self.plan.permits do
    local bytes = {}
    for j = 1, 16 do bytes[j] = string.char(self.prng:range(0, 255)) end
    bytes[1] = "j" -- ours begin with another letter
    ids[i] = table.concat(bytes)
  end
  return ids
end

-- One attempt of the wait number `turn`; a later one makes it void.
function Java:try(turn)
  if self.gone or turn ~= self.turn then return end
  self.turn, self.waits = self.turn + 1, false
  self.ids = new_ids(self)
  self:call(self.answered, scripts.ACQUIRE, function()
    self.asked_at = self.world.now
    return { ("%d"):format(now_ms(self) + self.plan.lease * 1000), unpack(self.ids) }
  end)
end

function Java:acquired()
  self:listen(false)
  self.claim = {
    key = self.plan.key, ids = self.ids, who = "java " .. self.slot, slot = self.slot,
    asked_at = self.asked_at, till = 0, lease_us = self.plan.lease * 1e6,
  }
  self.watcher:claim(self.claim, self.asked_at + self.plan.lease * 980000)
  if self.plan.dies == "holds" then return self:die() end
  self:later(self.release, self.plan.nap)
end

function Java:answered(reply)
  if self.gone then return end
  self.watcher:sleeps(self.plan.key, self.slot, nil)
  if type(reply) == "table" then -- an error
    return self:later(self.try, self.prng:range(1000, RETRY), self.turn)
  end
  if reply == "OK" then return self:acquired() end
  if not self.listens then
    self:listen(true)
    return self:try(self.turn)
  end
  if self.plan.dies == "waits" then return self:die() end
  if self.told then
    self.told = false
    return self:later(self.try, self.prng:range(200, 3000), self.turn)
  end
  self.waits = true
  self.watcher:sleeps(self.plan.key, self.slot, self.plan.permits)
  local ends = reply and tonumber(reply:sub(2))
  if ends then self:later(self.try, math.max(1000, (ends - now_ms(self)) * 1000), self.turn) end
end

function Java:release()
  if self.gone then return end
  self.watcher:claim(self.claim, 0)
  self:call(self.over, scripts.RELEASE, function() return self.ids end)
end

function Java:over()
  self.claim, self.rounds = nil, self.rounds - 1
  if self.rounds > 0 then self:later(self.begin, self.plan.gap) end
end

return Java
