-- The event loops available for this Lua, each as { name, driver, spawn(fn), sleep(seconds),
-- run([fn]), wait_until(look, seconds) }. run calls fn in a coroutine of the loop, and returns when
-- all spawned coroutines have ended. wait_until, in such a coroutine, calls look() until it returns
-- true. Debian packages copas only for Lua 5.1, LuaJIT and 5.2. Lua 5.1 supports no loop, because
-- its coroutines cannot yield inside pcall.

local compat = require "holdfast.compat"
local process = require "spec.support.process"

local loops = {}

if not compat.yields_in_pcall then return loops end

local MAX_RUN = 60 -- seconds that one run may take
local MAX_STEP = 0.05 -- seconds that a step of wait_until counts at most, as in process.wait_until
local LATE = ("a coroutine of the loop does not end in %d s"):format(MAX_RUN)

local function add(name, make)
  local found, loop = pcall(make)
  if not found then
    assert(tostring(loop):find("not found:", 1, true), loop)
    return
  end
  loop.name, loop.driver = name, loop.driver or name
  local run = loop.run
  function loop.run(fn)
    if fn then loop.spawn(fn) end
    run()
  end
  function loop.wait_until(look, seconds)
    local left, last = seconds or 20, process.now()
    while not look() and left > 0 do
      loop.sleep(0.005)
      local now = process.now()
      left, last = left - math.min(now - last, MAX_STEP), now
    end
    return look()
  end
  loops[#loops + 1] = loop
end

-- → a function that wraps fn to store its error, a function that raises the stored error
local function watched()
  local failure
  local function guard(fn)
    return function()
      local fine, message = xpcall(fn, function(message)
        return debug.traceback(tostring(message), 2)
      end)
      if not fine then failure = message end
    end
  end
  local function raise()
    local message = failure
    failure = nil
    if message then error(message, 0) end
  end
  return guard, raise
end

add("cqueues", function()
  local cqueues = require "cqueues"
  local queue = {}
  local loop = { sleep = cqueues.sleep }
  local guard, raise = watched()
  function loop.spawn(fn)
    if cqueues.running() then cqueues.running():wrap(guard(fn)) else queue[#queue + 1] =
      guard(fn) end
  end
  -- A controller starts the function that it was given last first.
  function loop.run()
    local controller = cqueues.new()
    for i = #queue, 1, -1 do controller:wrap(queue[i]) end
    queue = {}
    assert(controller:loop(MAX_RUN))
    local ended = controller:empty()
    controller:close()
    raise()
    assert(ended, LATE)
  end
  return loop
end)

add("luv", function()
  local uv = require "luv"
  local loop = {}
  local guard, raise = watched()
  local function after(seconds, thread)
    local timer = uv.new_timer()
    uv.update_time() -- a timer counts from the loop's cached time
    timer:start(math.ceil(seconds * 1000), 0, function()
      timer:close()
      coroutine.resume(thread)
    end)
  end
  function loop.spawn(fn) after(0, coroutine.create(guard(fn))) end
  function loop.sleep(seconds)
    after(seconds, coroutine.running())
    coroutine.yield()
  end
  function loop.run()
    local late, ended = uv.new_timer(), true
    uv.update_time()
    late:start(MAX_RUN * 1000, 0, function()
      ended = false
      uv.stop()
    end)
    late:unref()
    uv.run()
    late:close()
    -- a handle collected before its close is carried out would be freed twice
    uv.run("nowait")
    raise()
    assert(ended, LATE)
  end
  return loop
end)

add("copas", function()
  local copas = require "copas"
  local nowhere = { insert = function() end, push = function() end }
  local loop = {}
  local guard, raise = watched()
  local queue, sleepers, left = {}, {}, 0
  function loop.spawn(fn)
    local guarded = guard(fn)
    left = left + 1
    queue[#queue + 1] = function()
      guarded()
      left = left - 1
    end
  end
  -- Copas 1 has no timers.
  function loop.sleep(seconds)
    sleepers[coroutine.running()] = process.now() + seconds
    coroutine.yield(sleepers, nowhere)
  end
  local function wake()
    local due = {}
    for thread, time in pairs(sleepers) do
      if time <= process.now() then due[#due + 1] = thread end
    end
    for _, thread in ipairs(due) do
      sleepers[thread] = nil
      copas.addthread(thread)
    end
  end
  function loop.run()
    -- continues for as long as a client's task may need to end
    local till, linger, steps = process.now() + MAX_RUN, nil, 0
    while (left > 0 or process.now() < linger or steps < 50) and process.now() < till do
      local begun = queue
      queue = {}
      for _, fn in ipairs(begun) do copas.addthread(fn) end
      wake()
      copas.step(0.001)
      steps = steps + 1
      if left > 0 or not linger then linger, steps = process.now() + 0.1, 0 end
    end
    raise()
    assert(left == 0, LATE)
  end
  return loop
end)

add("a loop of the user's", function()
  local little = require "examples.loops.loop"
  local loop = { driver = little, sleep = little.sleep }
  local guard, raise = watched()
  function loop.spawn(fn) little.spawn(guard(fn)) end
  function loop.run()
    little.run()
    raise()
  end
  return loop
end)

return loops
