-- Waiters in a fair lock's list that act like Redisson's, for specs: each has an owner, a timeout
-- and a channel. Shares no code with what it tests.

local process = require "spec.support.process"
local resp = require "spec.support.resp"
local scripts = require "spec.support.fair_scripts"

local Lock = {}
Lock.__index = Lock

function Lock:_run(script, ...)
  local reply = self.calls:call("EVAL", script, 3, self.key, self.list, self.timeouts, ...)
  assert(type(reply) ~= "table" or not reply.err, type(reply) == "table" and reply.err)
  return reply
end

function Lock:_now_ms()
  local time = self.calls:call("TIME")
  return ("%.0f"):format(time[1] * 1000 + math.floor(time[2] / 1000))
end

-- Tries once, and is queued. → nil if it has acquired the lock | the seconds to sleep
function Lock:try()
  self.tries = self.tries + 1
  local ms = self:_run(scripts.ACQUIRE, self:_now_ms(), self.owner, self.lease_ms, self.wait_ms)
  return ms and ms / 1000 or nil
end

function Lock:listen()
  self.events = assert(resp.connect { path = self.path })
  self.events:call("SUBSCRIBE", self.channel .. ":" .. self.owner)
end

-- → whether it has acquired the lock within `seconds`
function Lock:acquire(seconds)
  local deadline, sleep = process.now() + seconds, self:try()
  if sleep then
    self:listen()
    sleep = self:try()
  end
  while sleep and process.now() < deadline do
    self.events:poll(math.max(0, math.min(sleep, deadline - process.now())))
    sleep = self:try()
  end
  if sleep then self:_run(scripts.LEAVE, self.wait_ms, self.owner) end
  self:stop_listening()
  return not sleep
end

function Lock:release()
  return self:_run(scripts.RELEASE, self:_now_ms(), self.owner, self.channel) == 1
end

function Lock:leave() self:_run(scripts.LEAVE, self.wait_ms, self.owner) end

function Lock:stop_listening()
  if self.events then self.events:close() end
  self.events = nil
end

function Lock:close()
  self:stop_listening()
  self.calls:close()
end

local M = {}
local count = 0

-- options: lease (30), wait (300): seconds
function M.lock(path, key, options)
  count = count + 1
  local function ms(name, otherwise)
    return ("%.0f"):format((options and options[name] or otherwise) * 1000)
  end
  return setmetatable({
    path = path,
    calls = assert(resp.connect { path = path }),
    tries = 0,
    key = key,
    list = ("redisson_lock_queue:{%s}"):format(key),
    timeouts = ("redisson_lock_timeout:{%s}"):format(key),
    channel = ("redisson_lock__channel:{%s}"):format(key),
    owner = ("%08x-0000-4000-8000-%012x:%d"):format(require("spec.support.sys").getpid(), count, 1),
    lease_ms = ms("lease", 30),
    wait_ms = ms("wait", 300),
  }, Lock)
end

return M
