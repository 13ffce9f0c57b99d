-- A thread of Java that reads or writes by Redisson's RReadWriteLock. It never loses its
-- connection; it may die.

local Prng = require "spec.sim.prng"
local resp = require "spec.sim.resp"
local scripts = require "spec.support.read_write_scripts"
local wire = require "spec.sim.wire"

local OWNER = "6f1c2b7a-1111-4222-8333-%012d:%d"
local RETRY = 100000

local Java = {}
Java.__index = Java

-- plan: see read_write_plan.lua; slot: 9 to 12
function Java.new(world, server, watcher, plan, slot, seed)
  local self = setmetatable({
    world = world, server = server, watcher = watcher, plan = plan, slot = slot,
    prng = Prng.new(seed + slot), owner = OWNER:format(slot, 1), rounds = plan.rounds, turn = 0,
    keys = { plan.key, wire.read_write_releases_of(plan.key) }, claims = {},
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

-- Sends a script; `done` gets its reply.
function Java:call(done, script)
  self:later(function()
    if self.gone then return end
    local reply
    self.watcher:around(function()
      reply = self.client:call { "EVAL", script, "2", self.keys[1], self.keys[2], self.owner,
        ("%d"):format(self.plan.lease * 1000), wire.tag_of(self.plan.key) }
    end)
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
  for _, claim in pairs(self.claims) do self.watcher:claim(claim, 0) end
  self.client:close()
  self.listener:close()
end

function Java:listen(on)
  if self.gone or self.listens == on then return end
  self.listens = on
  self.listener:feed(resp.command { on and "SUBSCRIBE" or "UNSUBSCRIBE", self.keys[2] })
end

-- What is heard while it does not wait ends its next wait at once: Redisson counts messages.
function Java:hears(bytes)
  if not bytes:find("\r\n[01]\r\n$") then return end
  if self.waits then self:later(self.try, self.prng:range(200, 3000), self.turn)
  else self.told = true end
end

function Java:begin()
  self.layout, self.told = self.plan.layout, false
  self:try(self.turn)
end

-- One attempt of the wait number `turn`; a later one makes it void.
function Java:try(turn)
  if self.gone or turn ~= self.turn then return end
  self.turn, self.waits = self.turn + 1, false
  self.asked_at = self.world.now
  self:call(self.answered, self.layout == "read" and scripts.READ or scripts.WRITE)
end

function Java:claim()
  local claim = {
    key = self.plan.key, owner = self.owner .. (self.layout == "write" and ":write" or ""),
    who = "java " .. self.slot, slot = self.slot, layout = self.layout, asked_at = self.asked_at,
    till = 0, lease_us = self.plan.lease * 1e6,
  }
  self.claims[self.layout] = claim
  self.watcher:claim(claim, self.asked_at + self.plan.lease * 980000)
end

function Java:acquired()
  self:listen(false)
  self:claim()
  if self.plan.dies == "holds" then return self:die() end
  if self.plan.downgrades and self.layout == "write" then
    self.layout = "read"
    return self:try(self.turn)
  end
  self:later(self.claims.write and self.end_write or self.end_read, self.plan.nap)
end

function Java:answered(reply)
  if self.gone then return end
  self.watcher:sleeps(self.plan.key, self.slot, nil)
  if type(reply) == "table" then -- an error
    return self:later(self.try, self.prng:range(1000, RETRY), self.turn)
  end
  if not reply then return self:acquired() end
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
  self.watcher:sleeps(self.plan.key, self.slot, self.layout)
  self:later(self.try, math.max(1000, reply * 1000), self.turn)
end

function Java:let_go(layout, script, done)
  if self.gone then return end
  self.watcher:claim(self.claims[layout], 0)
  self.claims[layout] = nil
  self:call(done, script)
end

function Java:end_write()
  self:let_go("write", scripts.END_WRITE, function()
    if self.claims.read then return self:later(self.end_read, self.plan.nap) end
    self:over()
  end)
end

function Java:end_read()
  self:let_go("read", scripts.END_READ, self.over)
end

function Java:over()
  self.rounds = self.rounds - 1
  if self.rounds > 0 then self:later(self.begin, self.plan.gap) end
end

return Java
