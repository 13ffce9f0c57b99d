-- A thread of Java that waits at Redisson's RCountDownLatch, counts it down, or sets it.

local java = require "spec.sim.java"
local scripts = require "spec.support.count_scripts".latch
local wire = require "spec.sim.wire"

local Java = java.subclass()
Java.message = "\r\n0\r\n"

-- plan: see system_plan.lua
function Java.new(world, server, watcher, plan, slot, seed)
  return java.new(Java, world, server, watcher, plan, slot, seed, wire.latch_channel_of(plan.key))
end

function Java:send(done, script)
  self:call(done, script, { self.plan.key, self.channel }, function()
    return { self.plan.amount }
  end)
end

function Java:begin()
  self.notified = false
  if self.plan.calls == "await" then return self:try(self.turn) end
  self:send(self.over, scripts[self.plan.calls])
end

function Java:attempt()
  self:send(self.answered, scripts.await)
end

function Java:answered(left)
  if self.gone then return end
  self:wakes()
  if left == 0 then
    self:listen(false)
    return self:over()
  end
  self:sleeps(left, 1)
end

return Java
