-- A thread of Java that reads or writes with Redisson's RReadWriteLock.

local java = require "spec.sim.java"
local scripts = require "spec.sim.read_write_scripts"
local wire = require "spec.sim.wire"

local Java = java.subclass()
Java.message = "\r\n[01]\r\n$"

-- plan: see read_write_plan.lua
function Java.new(world, server, watcher, plan, slot, seed)
  local self = java.new(Java, world, server, watcher, plan, slot, seed,
    wire.read_write_releases_of(plan.key))
  self.claim_of = {}
  return self
end

-- "0" also ends a wait that is about to begin. "1" wakes all threads that wait, but no other; only
-- when a thread of Java sends it, none is missed, because no rule judges how Redisson does that.
function Java:receive(bytes)
  local arrives = self.waits or self.world.is_java_calling or bytes:find("\r\n0\r\n$")
  if arrives then java.receive(self, bytes) end
end

function Java:send(done, script)
  self:call(done, script, { self.plan.key, self.channel }, function()
    return { self.owner, self.plan.lease * 1000, wire.tag_of(self.plan.key) }
  end)
end

function Java:claims()
  local list = {}
  for _, kind in ipairs { "read", "write" } do list[#list + 1] = self.claim_of[kind] end
  return list
end

function Java:begin()
  self.kind, self.notified = self.plan.kind, false
  self:try(self.turn)
end

function Java:attempt()
  self:send(self.answered, self.kind == "read" and scripts.READ or scripts.WRITE)
end

function Java:take()
  self.claim_of[self.kind] = self:believe {
    owner = self.owner .. (self.kind == "write" and ":write" or ""), kind = self.kind,
  }
end

function Java:goes_on()
  if self.plan.downgrades and self.kind == "write" then
    self.kind = "read"
    return self:try(self.turn)
  end
  self:later(self.claim_of.write and self.end_write or self.end_read, self.plan.nap)
end

function Java:answered(reply)
  if self.gone then return end
  self:wakes()
  if not reply then return self:acquired() end
  if not self:sleeps(reply, self.kind) then return end
  self:later(self.try, math.max(1000, reply * 1000), self.turn)
end

function Java:unlock(kind, script, done)
  if self.gone then return end
  self.watcher:claim(self.claim_of[kind], 0)
  self.claim_of[kind] = nil
  self:send(done, script)
end

function Java:end_write()
  self:unlock("write", scripts.END_WRITE, function()
    if self.claim_of.read then return self:later(self.end_read, self.plan.nap) end
    self:over()
  end)
end

function Java:end_read()
  self:unlock("read", scripts.END_READ, self.over)
end

return Java
