-- A thread of Java that uses Redisson's RFairLock.

local java = require "spec.sim.java"
local scripts = require "spec.support.fair_scripts"
local wire = require "spec.sim.wire"

local MIN_SLEEP, MAX_SLEEP = 100000, 60000000 -- Redisson does not sleep at all while it spins

local Java = java.subclass()
Java.message = "\r\n0\r\n"

-- plan: see fair_plan.lua
function Java.new(world, server, watcher, plan, slot, seed)
  local owner = java.UUID:format(slot) .. ":1"
  return java.new(Java, world, server, watcher, plan, slot, seed,
    wire.releases_of(plan.key) .. ":" .. owner)
end

function Java:send(done, script, make)
  local key = self.plan.key
  self:call(done, script, { key, wire.list_of(key), wire.timeouts_of(key) }, make)
end

function Java:claims() return { self.claim } end

function Java:begin()
  self.since = self.world.now
  self:try(self.turn)
end

function Java:attempt()
  local now = self:now_ms()
  self:send(self.answered, scripts.ACQUIRE, function()
    return { now, self.owner, self.plan.lease * 1000, self.plan.wait * 1000 }
  end)
end

function Java:take()
  self.claim = self:believe { owner = self.owner }
end

function Java:goes_on()
  self:later(self.release, self.plan.nap)
end

function Java:leave()
  self:listen(false)
  self:send(self.over, scripts.LEAVE, function() return { self.plan.wait * 1000, self.owner } end)
end

function Java:answered(reply)
  if self.gone then return end
  if not reply then return self:acquired() end
  if self:is_busy(reply) then return end
  local patience = self.plan.patience
  if patience and self.world.now >= self.since + patience then return self:leave() end
  if self:heeds() then return end
  self.waits = true
  local sleep = math.min(MAX_SLEEP, math.max(MIN_SLEEP, reply * 1000))
  if patience then sleep = math.min(sleep, self.since + patience - self.world.now) end
  self:later(self.try, math.max(1000, sleep), self.turn)
end

function Java:release()
  if self.gone then return end
  local now = self:now_ms()
  self.watcher:claim(self.claim, 0)
  self:send(self.over, scripts.RELEASE, function()
    return { now, self.owner, wire.releases_of(self.plan.key) }
  end)
end

return Java
