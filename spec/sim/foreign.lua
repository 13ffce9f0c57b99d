-- A client that does not use the queue: Redisson on a reentrant lock, a plain SET NX PX on a mutex.
-- What it does follows from the keys and channels in docs/how-to/redis.md; it never loses its
-- connection.

local Prng = require "spec.sim.prng"
local resp = require "holdfast.testing.redis.resp"
local rotation = require "spec.sim.rotation"
local wire = require "spec.sim.wire"

local OWNER = "6f1c2b7a-1111-4222-8333-%012d:%d"
local POLL = 100000

local ACQUIRE = [[
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return false
end
return redis.call('PTTL', KEYS[1])
]]

local RELEASE = [[
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 1
]]

local SET = "if redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1]) then return false end return 0"
local COMPARE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])"

local Foreign = {}
Foreign.__index = Foreign

-- plan: see plan.lua; slot: 9 to 12
function Foreign.new(world, server, watcher, plan, slot, seed)
  local self = setmetatable({
    world = world, server = server, watcher = watcher, plan = plan, slot = slot,
    prng = Prng.new(seed + slot),
    name = "foreign " .. slot, owner = OWNER:format(slot, 1),
    rounds = plan.rounds, channel = wire.releases_of(plan.key), turn = 0,
  }, Foreign)
  self.client = server.redis:connect(function(bytes)
    self:receive(bytes)
  end, function() self.gone = true end)
  self.listener = server.redis:connect(function(bytes)
    self:receive(bytes)
  end, function() self.gone = true end)
  rotation.admit(self.client, self.listener)
  world:at(plan.start, self.try, self, 0)
  return self
end

function Foreign:later(run, duration, argument)
  self.world:at(self.world.now + duration, run, self, argument)
end

-- Sends a script; `done` gets its reply.
function Foreign:call(done, script, keys, values)
  self:later(function()
    local args = { "EVAL", script, tostring(#keys) }
    for _, word in ipairs(keys) do args[#args + 1] = word end
    for _, word in ipairs(values) do args[#args + 1] = word end
    local reply
    self.watcher:around(function() reply = self.client:call(args) end)
    self:later(done, self.prng:range(200, 3000), reply)
  end, self.prng:range(200, 3000))
end

function Foreign:listen(on)
  if self.gone or self.listens == on then return end
  self.listens, self.notified = on, false
  self.listener:feed(resp.command { on and "SUBSCRIBE" or "UNSUBSCRIBE", self.channel })
end

-- A message that arrives while it does not wait ends its next wait at once: Redisson counts
-- messages.
function Foreign:receive(bytes)
  if not bytes:find("\r\n0\r\n", 1, true) then return end
  if self.waits then self:later(self.try, self.prng:range(200, 3000), self.turn)
  else self.notified = true end
end

-- Makes one attempt of the wait with the number `turn`; a no-op once a later wait has begun.
function Foreign:try(turn)
  if self.gone or turn ~= self.turn then return end
  self.turn, self.waits = self.turn + 1, false
  self.asked_at = self.world.now
  local mutex = self.plan.kind == "mutex"
  self:call(self.answered, mutex and SET or ACQUIRE, { self.plan.key },
    { tostring(math.floor(self.plan.lease * 1000)), self.owner })
end

function Foreign:answered(reply)
  if self.gone then return end
  -- an error
  if type(reply) == "table" then
    return self:later(self.try, self.prng:range(1000, POLL), self.turn)
  end
  if reply == false then
    self.was_in = true
    self.watcher:sleeps(self.plan.key, self.slot, nil)
    self:listen(false)
    self.claim = {
      key = self.plan.key, owner = self.owner, who = "foreign " .. self.slot, slot = self.slot,
      asked_at = self.asked_at,
      till = 0, lease_us = self.plan.lease * 1e6,
    }
    self.watcher:claim(self.claim, self.asked_at + self.plan.lease * 980000)
    return self:later(self.release, self.plan.nap)
  end
  if self.plan.kind == "mutex" then
    return self:later(self.try, self.prng:range(1000, POLL), self.turn)
  end
  if self.listens then
    self.waits = not self.notified
    self.watcher:sleeps(self.plan.key, self.slot, true)
    local ms = self.notified and 0 or reply + 1
    self.notified = false
    return self:later(self.try, ms * 1000 + self.prng:range(200, 3000), self.turn)
  end
  self:listen(true)
  self:try(self.turn)
end

function Foreign:release()
  if self.gone then return end
  self.watcher:claim(self.claim, 0)
  local mutex = self.plan.kind == "mutex"
  self:call(self.released, mutex and COMPARE or RELEASE, mutex and { self.plan.key }
    or { self.plan.key, self.channel },
    { self.owner })
end

function Foreign:released()
  self.rounds = self.rounds - 1
  if self.rounds > 0 then self:later(self.try, self.plan.gap, self.turn) end
end

return Foreign
