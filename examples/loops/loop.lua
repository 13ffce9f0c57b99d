-- An event loop on LuaSocket's select, with the functions that holdfast needs.

local socket = require "socket"

local loop = { name = "the little loop" }
local ready, sleepers, readers = {}, {}, {} -- coroutines; coroutine -> time; watch -> coroutine
local inside -- the coroutine that is running

local function resume(thread)
  if coroutine.status(thread) == "dead" then return end -- coroutine.close has closed it
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
  return nil, "outside the little loop; make the call in a function passed to loop.spawn"
end

function loop.watch(fd)
  local function wait(watch)
    readers[watch] = inside
    coroutine.yield()
  end
  local function nothing() end
  return { getfd = function() return fd end, dirty = nothing, wait = wait, close = nothing }
end

function loop.signal()
  local fired, waiter
  local function wait()
    if not fired then
      waiter = inside
      coroutine.yield()
    end
    return true
  end
  local function fire()
    if waiter and not fired then ready[#ready + 1] = waiter end
    fired = true
  end
  return { wait = wait, fire = fire }
end

function loop.run() -- until no coroutine is ready, asleep or reading
  while #ready > 0 or next(sleepers) or next(readers) do
    local now, watches, nearest = ready, {}, #ready > 0 and 0 or 3600
    ready = {}
    for _, thread in ipairs(now) do resume(thread) end
    for _, time in pairs(sleepers) do
      nearest = math.max(0, math.min(nearest, time - socket.gettime()))
    end
    for watch in pairs(readers) do watches[#watches + 1] = watch end
    for _, watch in ipairs((socket.select(watches, nil, nearest))) do
      ready[#ready + 1], readers[watch] = readers[watch], nil
    end
    for thread, time in pairs(sleepers) do
      if time <= socket.gettime() then ready[#ready + 1], sleepers[thread] = thread, nil end
    end
  end
end

return loop
