-- The loop of luv, also in luvit: libuv's default loop, as run by uv.run().

local compat = require "holdfast.compat"
local pump = require "holdfast.loop.pump"

local here, is_main = coroutine.running()
if here and not is_main and not package.loaded.luv then
  error('luv runs callbacks in the coroutine that loads it; call require "luv" outside any coroutine', 0)
end

local uv = require "luv"

local loop = { name = "luv" }

function loop.check()
  if compat.isyieldable() then return true end
  return nil, "outside a coroutine; make the call in one, e.g. coroutine.wrap(function() … end)()"
end

-- Keeps handles alive while they close: luv would free a collected handle that libuv still uses.
local closing = {} -- luacheck: ignore 241

local function close(handle)
  closing[handle] = true
  handle:close(function() closing[handle] = nil end)
end

-- Raises an error from the coroutine again in a separate callback, where luv reports it.
local function resume(thread)
  local resumed, message = coroutine.resume(thread)
  if resumed then return end
  local text = debug.traceback(thread, compat.error_text(message))
  local timer = uv.new_timer()
  timer:start(0, 0, function()
    close(timer)
    error(text, 0)
  end)
end

function loop.spawn(fn)
  resume(coroutine.create(fn))
end

-- Suspends the calling coroutine until wake is called. If the coroutine is the iterator of a `for`
-- loop, yielding nil would silently end that loop. So this yields a value, with which the loop
-- resumes the coroutine too early, and raise_resumed reports that.
local function suspend(self)
  self.thread = coroutine.running()
  coroutine.yield(self)
  if not self.thread then return end
  self.thread = false
  pump.raise_resumed()
end

local function wake(self)
  local thread = self.thread
  self.thread = false
  if thread and coroutine.status(thread) == "suspended" then resume(thread) end
end

local Watch = {}
Watch.__index = Watch

function Watch:wait()
  suspend(self)
end

function Watch:close()
  close(self.poll)
end

function loop.watch(fd)
  local watch = setmetatable({ poll = assert(uv.new_poll(fd)) }, Watch)
  watch.poll:start("r", function() wake(watch) end)
  return watch
end

local Signal = {}
Signal.__index = Signal

function Signal:wait()
  while not self.fired do suspend(self) end
  return true
end

function Signal:fire()
  self.fired = true
  wake(self)
end

function loop.signal()
  return setmetatable({ fired = false, thread = false }, Signal)
end

return loop
