-- A client that locks like Redisson, for specs: a hash with owner -> count, and no queue. A waiter
-- subscribes to the channel of releases and retries at each message, and when the TTL has ended.
-- Shares no code with what it tests.

local process = require "spec.support.process"
local resp = require "spec.support.resp"

local ACQUIRE = [[
  local mine = redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
  if not mine and redis.call('EXISTS', KEYS[1]) == 1 then return { redis.call('PTTL', KEYS[1]), 0 } end
  local token = ARGV[3] == '1' and redis.call('INCR', KEYS[2]) or 0
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return { 'mine', token }
]]

local RELEASE = [[
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return false end
  if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return 0
  end
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[2], '0')
  return 1
]]

local Lock = {}
Lock.__index = Lock

function Lock:_try()
  local reply = self.calls:call("EVAL", ACQUIRE, 2, self.key, self.counter, self.lease_ms,
    self.owner,
    self.fenced and 1 or 0)
  assert(not reply.err, reply.err)
  if reply[1] ~= "mine" then return nil, reply[1] / 1000 end
  if self.fenced then self.last_token = reply[2] end
  return true
end

-- Subscribes, whether or not it ever tries.
function Lock:listen()
  self.events = assert(resp.connect { path = self.path })
  self.events:call("SUBSCRIBE", self.channel)
end

function Lock:stop_listening()
  if self.events then self.events:close() end
  self.events = nil
end

-- → self | nil, message, "busy"
function Lock:acquire(wait)
  local deadline = process.now() + wait
  local mine, ttl = self:_try()
  if not mine and wait > 0 then
    self:listen()
    mine, ttl = self:_try()
  end
  while not mine and process.now() < deadline do
    self.events:poll(math.max(0, math.min(ttl, deadline - process.now())))
    mine, ttl = self:_try()
  end
  self:stop_listening()
  if mine then return self end
  return nil, "held by another", "busy"
end

function Lock:release()
  local reply = self.calls:call("EVAL", RELEASE, 2, self.key, self.channel, self.lease_ms,
    self.owner)
  if reply then return true end
  return nil, "not the owner", "not_held"
end

function Lock:token() return self.last_token end

function Lock:close()
  self:stop_listening()
  self.calls:close()
end

local Client = {}
Client.__index = Client

local count = 0

-- options: fenced, lease (30)
function Client:lock(key, options)
  count = count + 1
  return setmetatable({
    path = self.path,
    calls = assert(resp.connect { path = self.path }),
    key = key,
    counter = ("redisson_lock_token:{%s}"):format(key),
    channel = ("redisson_lock__channel:{%s}"):format(key),
    owner = ("%08x-0000-4000-8000-%012x:%d"):format(require("spec.support.sys").getpid(), count, 1),
    lease_ms = ("%.0f"):format((options and options.lease or 30) * 1000),
    fenced = options and options.fenced,
  }, Lock)
end

local redisson = {}

function redisson.new(path) return setmetatable({ path = path }, Client) end

return redisson
