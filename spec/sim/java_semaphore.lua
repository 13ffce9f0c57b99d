-- A thread of Java that takes permits of Redisson's RSemaphore and gives them back; those of a
-- thread that dies are lost.

local java = require "spec.sim.java"
local scripts = require "spec.support.count_scripts".semaphore
local wire = require "spec.sim.wire"

local Java = java.subclass()
-- Redisson wakes as many of its waiters as the message says.
Java.message = "message\r\n%$%d+\r\n[^\r]+\r\n%$%d+\r\n0*[1-9]"

-- plan: see system_plan.lua
function Java.new(world, server, watcher, plan, slot, seed)
  return java.new(Java, world, server, watcher, plan, slot, seed,
    wire.permits_channel_of(plan.key))
end

function Java:send(done, script)
  self:call(done, script, { self.plan.key, self.channel }, function()
    return { self.plan.permits }
  end)
end

function Java:begin()
  self.notified = false
  self:try(self.turn)
end

function Java:attempt()
  self:send(self.answered, scripts.acquire)
end

function Java:take()
  self.watcher:serves(self.slot)
  self.watcher:believe(self.plan.permits)
end

function Java:goes_on()
  self:later(self.release, self.plan.nap)
end

function Java:answered(reply)
  if self.gone then return end
  self:wakes()
  if reply == 1 then return self:acquired() end
  self:sleeps(reply, self.plan.permits)
end

function Java:release()
  if self.gone then return end
  self.watcher:believe(-self.plan.permits)
  self:send(self.over, scripts.release)
end

return Java
