-- Adapter for the cqueues event loop, which lua-http also uses.

local condition = require "cqueues.condition"
local cqueues = require "cqueues"
local isyieldable = require("holdfast.compat").isyieldable
local pump = require "holdfast.loop.pump"

local loop = { name = "cqueues" }

function loop.check()
  if cqueues.running() and isyieldable() then return true end
  if cqueues.running() then return nil, "where a coroutine cannot yield" end
  return nil, "outside a running cqueues controller; make the call in a function passed to cq:wrap"
end

function loop.spawn(fn)
  cqueues.running():wrap(fn)
end

local Watch = {}
Watch.__index = Watch

function Watch:wait()
  cqueues.poll(self)
end

-- A controller keeps a descriptor's state until cancel is called.
function Watch:close()
  cqueues.cancel(self.pollfd)
end

function loop.watch(fd)
  return setmetatable({ pollfd = fd, events = "r" }, Watch)
end

local Signal = {}
Signal.__index = Signal

-- A coroutine inside one of the controller's coroutines may wait only if whatever resumes it passes
-- its yields on, as cqueues.auxlib does. Otherwise poll returns an object that it was not
-- called with.
function Signal:wait(seconds)
  if self.fired then return true end
  local due = cqueues.poll(self.condition, seconds)
  if due ~= self.condition and due ~= seconds then
    pump.raise_resumed("; create the coroutine with cqueues.auxlib.wrap")
  end
  return self.fired
end

function Signal:fire()
  self.fired = true
  self.condition:signal()
end

function loop.signal()
  return setmetatable({ fired = false, condition = condition.new() }, Signal)
end

return loop
