-- A server and clients whose callers wait in coroutines of one event loop:
--
--   local world = require("spec.support.looped").new(loop)
--   before_each(function() server, client = world.open() end) after_each(world.close)

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local TICK = 0.01

local looped = {}

function looped.median(values)
  table.sort(values)
  return values[math.ceil(#values / 2)]
end

local median = looped.median

function looped.new(loop)
  local world, clients, server = {}, nil, nil

  -- the loop's functions
  world.plain = type(loop.driver) == "table" and loop.driver or require("holdfast.loop." .. loop.name)

  -- coroutine.close, where it works under this loop: Lua 5.4 has it
  world.close_coroutine = loop.name ~= "cqueues" and coroutine.close or nil

  -- → the server, a client
  function world.open()
    server, clients = redis.start { tcp = true }, {}
    return server, world.client()
  end

  function world.close()
    for _, each in ipairs(clients) do each:close() end
    server:stop()
  end

  -- Creates a client that world.close closes; `options` may have url, servers or driver.
  function world.client(options)
    options = options or {}
    options.url = options.url or not options.servers and server:url() or nil
    options.driver = options.driver or loop.driver
    local made = holdfast.new(options)
    clients[#clients + 1] = made
    return made
  end

  -- The loop's functions, of which some are replaced.
  function world.with(functions) return setmetatable(functions, { __index = world.plain }) end

  -- Watches descriptors like the loop, but calls around(wait) for each wait.
  function world.watching(around)
    return world.with { watch = function(fd)
      local watched = world.plain.watch(fd)
      return {
        wait = function() around(function() watched:wait() end) end,
        close = function() watched:close() end,
      }
    end }
  end

  -- Each wait for a descriptor fails while is_broken() is true, or is the error.
  function world.breaking(is_broken)
    return world.watching(function(wait)
      local broken = is_broken()
      if broken then error(broken == true and "broken" or broken, 0) end
      wait()
    end)
  end

  function world.is_free(key) return server:cli("EXISTS", key) == 0 end

  function world.waiters(key)
    return server:cli("ZCOUNT", "holdfast_queue:{" .. key .. "}", "(0", "+inf")
  end

  -- In a coroutine of the loop.
  function world.eventually(cond, seconds, why)
    return loop.wait_until(cond, seconds) or error(why or "the condition did not become true", 2)
  end

  -- The same of a condition that needs the collector.
  function world.collects(cond, seconds)
    world.eventually(function()
      collectgarbage()
      return cond()
    end, seconds)
  end

  -- → a coroutine of the loop that has begun to run fn
  function world.begin(fn)
    local thread
    loop.spawn(function()
      thread = coroutine.running()
      fn()
    end)
    world.eventually(function() return thread end)
    return thread
  end

  -- Ticks until is_over(). → how late each tick was, in seconds
  function world.tick(is_over)
    local late = {}
    while not is_over() do
      local due = process.now() + TICK
      loop.sleep(TICK)
      late[#late + 1] = process.now() - due
    end
    return late
  end

  -- → how late a tick may be: a busy machine also delays the ticks of an idle loop
  local function allowed()
    local count, late = 0, nil
    loop.run(function()
      late = world.tick(function()
        count = count + 1
        return count > 20
      end)
    end)
    return 0.005 + 3 * median(late)
  end

  -- attempt() returns how late the ticks were. A loop that the library blocks fails each attempt.
  function world.assert_on_time(attempt)
    local most, late
    for _ = 1, 3 do
      most = allowed()
      late = attempt()
      if #late >= 5 and median(late) <= most then return end
    end
    error(("%d ticks, late by %.1f ms, allowed are %.1f"):format(#late, median(late) * 1000,
      most * 1000))
  end

  -- Deletes a renewed lock `a` of the client, whose task finds the loss. → the lock: collected, it
  -- would be released
  function world.lose(client)
    local lock = client:lock("a", { lease = 2, watchdog = true })
    assert(lock:acquire())
    server:cli("DEL", "a")
    return lock
  end

  return world
end

-- → what fn() has written to io.stderr
function looped.quietly(fn)
  local stderr, errors = io.stderr, {}
  rawset(io, "stderr", { write = function(_, ...) errors[#errors + 1] = table.concat { ... } end })
  local fine, message = pcall(fn)
  rawset(io, "stderr", stderr)
  assert(fine, message)
  return errors
end

return looped
