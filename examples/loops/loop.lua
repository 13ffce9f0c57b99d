-- An event loop of one page over LuaSocket's select, and what holdfast needs of it: check, spawn,
-- watch and signal. Coroutines sleep, wait for a descriptor, or wait for each other.

local socket = require "socket"

local loop = { name = "the little loop" }

-- coroutines; by the time they wake; by what they wait for
local ready, sleepers, readers = {}, {}, {}
local inside -- the coroutine of this loop that runs

local function resume(thread)
  inside = thread
  local fine, message = coroutine.resume(thread)
  inside = nil
  if not fine then io.stderr:write(debug.traceback(thread, tostring(message)), "\n") end
end

function loop.spawn(fn) ready[#ready + 1] = coroutine.create(fn) end

function loop.sleep(seconds)
  sleepers[inside] = socket.gettime() + seconds
  coroutine.yield()
end

function loop.check()
  if inside and inside == coroutine.running() then return true end
  return nil, "outside the little loop: call it in a function given to loop.spawn"
end

-- watch:wait() ends when the descriptor is readable. Select asks a table for its descriptor with
-- getfd.
function loop.watch(fd)
  local watch = { getfd = function()
    return fd
  end, dirty = function() return false end, close = function() end }
  function watch.wait()
    readers[watch] = inside
    coroutine.yield()
  end
  return watch
end

-- signal:wait() ends when signal:fire() is or was called.
function loop.signal()
  local fired, waiter = false, nil
  return {
    wait = function()
      waiter = inside
      while not fired do coroutine.yield() end
      return true
    end,
    fire = function()
      fired = true
      if waiter then ready[#ready + 1] = waiter end
    end,
  }
end

-- Runs until no coroutine is ready, asleep or reading.
function loop.run()
  while #ready > 0 or next(sleepers) or next(readers) do
    local now, list, nearest = ready, {}, #ready > 0 and 0 or 3600
    ready = {}
    for _, thread in ipairs(now) do resume(thread) end
    if #ready > 0 then nearest = 0 end
    for _, time in pairs(sleepers) do
      nearest = math.max(0, math.min(nearest, time - socket.gettime()))
    end
    for watch in pairs(readers) do list[#list + 1] = watch end
    for _, watch in ipairs((socket.select(list, nil, nearest))) do
      ready[#ready + 1], readers[watch] = readers[watch], nil
    end
    for thread, time in pairs(sleepers) do
      if time <= socket.gettime() then ready[#ready + 1], sleepers[thread] = thread, nil end
    end
  end
end

return loop
