-- A thread of Java that locks by Redisson's RFairLock. It never loses its connection; it may die.

local Prng = require "spec.sim.prng"
local resp = require "spec.sim.resp"
local scripts = require "spec.support.fair_scripts"
local wire = require "spec.sim.wire"

local OWNER = "6f1c2b7a-1111-4222-8333-%012d:%d"
local LEAST_SLEEP, MOST_SLEEP = 100000, 60000000 -- Redisson does not sleep at all where it spins

local Java = {}
Java.__index = Java

-- plan: see fair_plan.lua; slot: 9 to 12
function Java.new(world, server, watcher, plan, slot, seed)
  local self = setmetatable({
    world = world, server = server, watcher = watcher, plan = plan, slot = slot,
    prng = Prng.new(seed + slot), owner = OWNER:format(slot, 1), rounds = plan.rounds, turn = 0,
    keys = { plan.key, wire.list_of(plan.key), wire.timeouts_of(plan.key) },
  }, Java)
  self.channel = wire.releases_of(plan.key) .. ":" .. self.owner
  local function hears(bytes) self:hears(bytes) end
  local function drops() self.gone = true end
  self.client = server.redis:connect(hears, drops)
  self.listener = server.redis:connect(hears, drops)
  world:at(plan.start, self.begin, self)
  return self
end

function Java:later(run, duration, argument)
  self.world:at(self.world.now + duration, run, self, argument)
end

-- Sends a script with these values; `done` gets its reply.
function Java:call(done, script, ...)
  local values = { ... }
  self:later(function()
    if self.gone then return end
    local args = { "EVAL", script, "3", self.keys[1], self.keys[2], self.keys[3] }
    for _, value in ipairs(values) do
      args[#args + 1] = type(value) == "number" and ("%.0f"):format(value) or value
    end
    local reply
    self.watcher:around(function() reply = self.client:call(args) end, self.owner)
    if done then self:later(done, self.prng:range(200, 3000), reply) end
  end, self.prng:range(200, 3000))
end

function Java:die()
  self.world:note("java %d dies", self.slot)
  self.gone = true
  if self.claim then self.watcher:claim(self.claim, 0) end
  self.client:close()
  self.listener:close()
end

function Java:listen(on)
  if self.gone or self.listens == on then return end
  self.listens = on
  self.listener:feed(resp.command { on and "SUBSCRIBE" or "UNSUBSCRIBE", self.channel })
end

-- What is heard while it does not wait ends its next wait at once: Redisson counts messages.
function Java:hears(bytes)
  if not bytes:find("\r\n0\r\n", 1, true) then return end
  if self.waits then self:later(self.try, self.prng:range(200, 3000), self.turn)
  else self.told = true end
end

function Java:begin()
  self.since = self.world.now
  self:try(self.turn)
end

-- By its own clock, which goes as the server's does.
local function now_ms(self)
  return math.floor(self.server.redis.clock() / 1000)
end

-- One attempt of the wait number `turn`; a later one makes it void.
function Java:try(turn)
  if self.gone or turn ~= self.turn then return end
  self.turn, self.waits = self.turn + 1, false
  self.asked_at = self.world.now
  self:call(self.answered, scripts.ACQUIRE, now_ms(self), self.owner,
    self.plan.lease * 1000, self.plan.wait * 1000)
end

function Java:acquired()
  self:listen(false)
  self.claim = {
    key = self.plan.key, owner = self.owner, who = "java " .. self.slot, slot = self.slot,
    asked_at = self.asked_at, till = 0, lease_us = self.plan.lease * 1e6,
  }
  self.watcher:claim(self.claim, self.asked_at + self.plan.lease * 980000)
  if self.plan.dies == "holds" then return self:die() end
  self:later(self.release, self.plan.nap)
end

function Java:leave()
  self:listen(false)
  self:call(self.over, scripts.LEAVE, self.plan.wait * 1000, self.owner)
end

function Java:answered(reply)
  if self.gone then return end
  if type(reply) == "table" then -- an error
    return self:later(self.try, self.prng:range(1000, 100000), self.turn)
  end
  if not reply then return self:acquired() end
  if self.plan.dies == "deaf" then return self:die() end
  if not self.listens then
    self:listen(true)
    return self:try(self.turn)
  end
  if self.plan.dies == "waits" then return self:die() end
  local patience = self.plan.patience
  if patience and self.world.now >= self.since + patience then return self:leave() end
  if self.told then
    self.told = false
    return self:later(self.try, self.prng:range(200, 3000), self.turn)
  end
  self.waits = true
  local sleep = math.min(MOST_SLEEP, math.max(LEAST_SLEEP, reply * 1000))
  if patience then sleep = math.min(sleep, self.since + patience - self.world.now) end
  self:later(self.try, math.max(1000, sleep), self.turn)
end

function Java:release()
  if self.gone then return end
  self.watcher:claim(self.claim, 0)
  self:call(self.over, scripts.RELEASE, now_ms(self), self.owner,
    wire.releases_of(self.plan.key))
end

function Java:over()
  self.rounds = self.rounds - 1
  if self.rounds > 0 then self:later(self.begin, self.plan.gap) end
end

return Java
