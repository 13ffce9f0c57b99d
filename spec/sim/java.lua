-- What threads of Java that use Redisson have in common: a connection for calls and one for
-- messages, which they never lose, and their deaths. A subclass has `message`, the pattern of
-- messages that end its waits; attempt(), which tries once; take(), which notes what it acquired;
-- goes_on(), which does what follows; and claims(), which lists what it believes it holds.

local Prng = require "spec.sim.prng"
local resp = require "holdfast.testing.redis.resp"
local rotation = require "spec.sim.rotation"

local java = {}
java.__index = java

java.UUID = "6f1c2b7a-1111-4222-8333-%012d"
java.RETRY = 100000

-- Creates a class of threads with these methods.
function java.subclass()
  local class = setmetatable({}, java)
  class.__index = class
  return class
end

-- plan: see the plans; slot: 9 to 12; channel: what it subscribes to while it waits
function java.new(class, world, server, watcher, plan, slot, seed, channel)
  local self = setmetatable({
    world = world, server = server, watcher = watcher, plan = plan, slot = slot,
    prng = Prng.new(seed + slot), rounds = plan.rounds, turn = 0, channel = channel,
    owner = java.UUID:format(slot) .. ":1", name = "java " .. slot,
  }, class)
  local function receive(bytes) self:receive(bytes) end
  local function drops() self:ends() end
  self.client = server.redis:connect(receive, drops)
  self.listener = server.redis:connect(receive, drops)
  rotation.admit(self.client, self.listener)
  world:at(plan.start, self.begin, self)
  return self
end

function java:later(run, duration, argument)
  self.world:at(self.world.now + duration, run, self, argument)
end

-- The time of its own clock, which runs like the server's.
function java:now_ms()
  return math.floor(self.server.redis.clock() / 1000)
end

-- Sends a script with the keys and the values that make() returns at that time; `done` gets its
-- reply.
function java:call(done, script, keys, make)
  self:later(function()
    if self.gone then return end
    local args, reply = { "EVAL", script, tostring(#keys) }, nil
    for _, key in ipairs(keys) do args[#args + 1] = key end
    for _, value in ipairs(make()) do
      args[#args + 1] = type(value) == "number" and ("%.0f"):format(value) or value
    end
    self.world.is_java_calling = true
    self.watcher:around(function() reply = self.client:call(args) end, self.owner)
    self.world.is_java_calling = false
    if done then self:later(done, self.prng:range(200, 3000), reply) end
  end, self.prng:range(200, 3000))
end

-- One attempt of the wait number `turn`.
function java:try(turn)
  if self.gone or turn ~= self.turn then return end
  self.turn, self.waits = self.turn + 1, false
  self.asked_at = self.world.now
  self:attempt()
end

-- From now on the thread believes that it holds what it asked for. → the claim
function java:believe(claim)
  local plan = self.plan
  claim.key, claim.who, claim.slot = plan.key, "java " .. self.slot, self.slot
  claim.asked_at, claim.till, claim.lease_us = self.asked_at, 0, plan.lease * 1e6
  self.watcher:claim(claim, self.asked_at + plan.lease * 980000)
  return claim
end

function java:acquired()
  self.was_in = true
  self:listen(false)
  self:take()
  if self.plan.dies == "holds" then return self:die() end
  self:goes_on()
end

function java.claims() return {} end

function java:ends()
  self.gone = true
  if self.watcher.sleeps then self.watcher:sleeps(self.plan.key, self.slot, nil) end
end

function java:die()
  self.world:note("java %d dies", self.slot)
  self:ends()
  for _, claim in ipairs(self:claims()) do self.watcher:claim(claim, 0) end
  self.client:close()
  self.listener:close()
end

function java:listen(on)
  if self.gone or self.listens == on then return end
  local reply = self.listener:feed(resp.command { on and "SUBSCRIBE" or "UNSUBSCRIBE",
    self.channel })
  self.listens = on and reply:sub(1, 1) ~= "-"
end

-- A message that arrives while it does not wait ends its next wait at once: Redisson counts
-- messages.
function java:receive(bytes)
  if not bytes:find(self.message) then return end
  if self.waits then self:later(self.try, self.prng:range(200, 3000), self.turn)
  else self.notified = true end
end

-- → whether it had something to do before it can sleep: to retry after an error, to subscribe, to
-- die, to handle a message
function java:is_busy(reply)
  if type(reply) == "table" then -- an error
    self:later(self.try, self.prng:range(1000, java.RETRY), self.turn)
  elseif self.plan.dies == "deaf" then
    self:die()
  elseif not self.listens then
    self:listen(true)
    if self.listens then self:try(self.turn) else self:later(self.try, java.RETRY, self.turn) end
  elseif self.plan.dies == "waits" then
    self:die()
  else
    return false
  end
  return true
end

-- Handles messages that have arrived first.
function java:heeds()
  if not self.notified then return false end
  self.notified = false
  self:later(self.try, self.prng:range(200, 3000), self.turn)
  return true
end

function java:wakes()
  self.watcher:sleeps(self.plan.key, self.slot, nil)
end

-- Called when the reply granted nothing. → whether the thread now sleeps until it is notified of
-- that many permits, or of its half of a lock
function java:sleeps(reply, wanted)
  if self:is_busy(reply) or self:heeds() then return false end
  self.waits = true
  self.watcher:sleeps(self.plan.key, self.slot, wanted)
  return true
end

function java:over()
  self.rounds = self.rounds - 1
  if self.rounds > 0 then self:later(self.begin, self.plan.gap) end
end

return java
