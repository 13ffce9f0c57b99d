-- A thread of Java that takes permits of Redisson's RPermitExpirableSemaphore.

local java = require "spec.sim.java"
local scripts = require "spec.sim.permit_scripts"
local wire = require "spec.sim.wire"

local unpack = table.unpack or unpack

local Java = java.subclass()
Java.message = "message\r\n"

-- plan: see pool_plan.lua
function Java.new(world, server, watcher, plan, slot, seed)
  return java.new(Java, world, server, watcher, plan, slot, seed, wire.permits_channel_of(plan.key))
end

-- Sends a script with the time, the number of permits, and the values that make() returns.
function Java:send(done, script, make)
  self:call(done, script, { self.plan.key, wire.leases_of(self.plan.key), self.channel }, function()
    return { self:now_ms(), self.plan.permits, unpack(make()) }
  end)
end

function Java:claims() return { self.claim } end

function Java:begin()
  self.notified = false
  self:try(self.turn)
end

local function new_ids(self)
  local ids = {}
  for i = 1, self.plan.permits do
    local bytes = {}
    for j = 1, 16 do bytes[j] = string.char(self.prng:range(0, 255)) end
    bytes[1] = "j" -- holdfast's begin with another letter
    ids[i] = table.concat(bytes)
  end
  return ids
end

function Java:attempt()
  self.ids = new_ids(self)
  self:send(self.answered, scripts.ACQUIRE, function()
    self.asked_at = self.world.now
    return { self:now_ms() + self.plan.lease * 1000, unpack(self.ids) }
  end)
end

function Java:take()
  self.claim = self:believe { ids = self.ids }
end

function Java:goes_on()
  self:later(self.release, self.plan.nap)
end

function Java:answered(reply)
  if self.gone then return end
  self:wakes()
  if reply == "OK" then return self:acquired() end
  if not self:sleeps(reply, self.plan.permits) then return end
  local ends = reply and tonumber(reply:sub(2))
  if ends then self:later(self.try, math.max(1000, (ends - self:now_ms()) * 1000), self.turn) end
end

function Java:release()
  if self.gone then return end
  self.watcher:claim(self.claim, 0)
  self:send(self.over, scripts.RELEASE, function() return self.ids end)
end

function Java:over()
  self.claim = nil
  java.over(self)
end

return Java
