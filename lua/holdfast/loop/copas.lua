-- The loop of copas, version 1.1 or newer.

local copas = require "copas"
local isyieldable = require("holdfast.compat").isyieldable
local pump = require "holdfast.loop.pump"

local loop = { name = "copas" }

function loop.check()
  if isyieldable() then return true end
  return nil, "outside copas; make the call in a function passed to copas.addthread or copas.addserver"
end

function loop.spawn(fn)
  copas.addthread(fn)
end

-- An object that copas treats as a socket. The first receive reports a timeout, so that copas waits
-- until the descriptor is readable; the second one succeeds.
local Watch = {}
Watch.__index = Watch

function Watch:getfd() return self.fd end
function Watch.dirty() return false end
function Watch.settimeout() end
function Watch.close() end

function Watch:receive()
  self.looked = not self.looked
  if self.looked then return nil, "timeout", "" end
  return ""
end

function Watch:wait()
  copas.receive(self)
end

function loop.watch(fd)
  return setmetatable({ fd = fd, looked = false }, Watch)
end

-- Copas 1 can suspend a coroutine only in a queue. This queue stores nothing, because the signal
-- knows its waiter.
local empty_queue = { insert = function() end, push = function() end }

local function suspend(self)
  self.thread = coroutine.running()
  if copas.wakeup then copas.sleep(-1) else coroutine.yield(self, empty_queue) end
  if not self.thread then return end
  self.thread = false
  pump.raise_resumed()
end

local Signal = {}
Signal.__index = Signal

-- Copas 2 and newer close a signal like a socket when its coroutine ends.
function Signal.close() end

function Signal:wait()
  while not self.fired do suspend(self) end
  return true
end

function Signal:fire()
  local thread = self.thread
  self.fired, self.thread = true, false
  if not thread or coroutine.status(thread) ~= "suspended" then return end
  if copas.wakeup then copas.wakeup(thread) else copas.addthread(thread) end
end

function loop.signal()
  return setmetatable({ fired = false, thread = false }, Signal)
end

return loop
