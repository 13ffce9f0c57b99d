-- What only one event loop does: luv, which runs callbacks, and cqueues, whose controllers may be
-- closed.

local holdfast = require "holdfast"
local looped = require "spec.support.looped"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

-- → the loop of this name, or nil
local function named(name)
  for _, loop in ipairs(loops) do
    if loop.name == name then return loop end
  end
end

local luv = named "luv"

describe("luv", function()
  if not luv then return pending "there is no luv for this Lua" end

  it("is not loaded inside a coroutine, which its callbacks would later use", function()
    local child = process.lua { code = [[
      coroutine.wrap(function() print(pcall(require("holdfast").new, { driver = "luv" })) end)()
      print(package.loaded.luv, require("luv"))
      coroutine.wrap(function() print(require("holdfast").new { driver = "luv" }) end)()
    ]] }
    assert.equal("exit", (child:wait(20)))
    local failure, loaded, made = child:output():match("^(.-)\n(.-)\n(.-)\n")
    assert.matches('^false\t.*holdfast.new: driver: luv runs callbacks .* call require "luv"', failure)
    assert.matches("^nil\ttable: ", loaded)
    assert.matches("^holdfast.client: ", made)
  end)

  it("reports an error raised by a caller after a wait", function()
    local server = redis.start()
    local child = process.lua { args = { server:url() }, code = [[
      local uv = require "luv"
      coroutine.wrap(function()
        local client = require("holdfast").new { url = arg[1], driver = "luv" }
        client:ping()
        io.stderr:write("asked\n")
        client:close()
        error "of the caller"
      end)()
      uv.run()
    ]] }
    assert.equal("exit", (child:wait(20)))
    assert.matches("asked.*of the caller.*stack traceback.*in function", child:output())
    server:stop()
  end)

  it("keeps no handle of a closed client", function()
    local uv, server = require "luv", redis.start()
    local function handles()
      local open = 0
      uv.walk(function(handle) open = open + (handle:is_closing() and 0 or 1) end)
      return open
    end
    local before, between = handles(), 0
    for _ = 1, 2 do
      luv.run(function()
        for _ = 1, 3 do
          local client = holdfast.new { url = server:url(), driver = "luv" }
          client:with_lock("a", function() between = math.max(between, handles()) end)
          client:close()
        end
      end)
      assert.equal(before, handles())
    end
    assert.is_true(between > before)
    server:stop()
  end)
end)

local loop = named "cqueues"

describe("under cqueues", function()
  if not loop then return pending "there is no cqueues for this Lua" end

  local cqueues = require "cqueues"
  local world, server, client = looped.new(loop), nil, nil
  local run, eventually, collects = loop.run, world.eventually, world.collects
  local function it_runs(name, fn) it(name, function() run(fn) end) end

  before_each(function() server, client = world.open() end)
  after_each(world.close)

  local function is_waited_for() return server:cli("ZCARD", "holdfast_queue:{a}") == 1 end

  local function drop_controller(fn, when)
    local inner = cqueues.new()
    inner:wrap(fn)
    eventually(function()
      assert(inner:step(0))
      return when()
    end)
    inner:close()
  end

  it("a wait that ended while the loop was blocked still uses a reply that has arrived", function()
    local holder = holdfast.new { url = server:url() }
    local held, codes, left = assert(holder:lock("a"):acquire(0)), {}, 16
    run(function() assert(client:ping()) end)
    for i = 1, left do
      loop.spawn(function()
        codes[i] = select(3, client:lock("a"):acquire(0.5 + i / 10))
        left = left - 1
      end)
    end
    loop.spawn(function()
      while left > 0 do
        process.sleep(0.3)
        loop.sleep(0)
      end
    end)
    run()
    assert(held:release())
    holder:close()
    for i = 1, 16 do assert.equal("busy", codes[i]) end
  end)

  -- These waits check once a second that the task works.
  it("waits of several seconds end at their deadlines", function()
    local holder, codes = holdfast.new { url = server:url(), lease = 60 }, {}
    local a, b = assert(holder:lock("a"):acquire(0)), assert(holder:lock("b"):acquire(0))
    for i = 1, 3 do
      loop.spawn(function() codes[i] = select(3, client:lock(i == 3 and "b" or "a"):acquire(3)) end)
    end
    run()
    assert(a:release() and b:release())
    holder:close()
    assert.same({ "busy", "busy", "busy" }, codes)
  end)

  it("a wait still completes if one background task never starts", function()
    local loses = false
    local one = world.client { driver = world.with { spawn = function(fn)
      if not loses then return world.plain.spawn(fn) end
      loses = false
    end } }
    for _ = 1, 2 do
      run(function()
        loses = true
        assert(one:with_lock("a", function() end))
      end)
      assert.is_false(loses)
    end
    one:close()
  end)

  it_runs("a waiter leaves the queue when its controller is closed", function()
    local held = assert(client:lock("a"):acquire())
    drop_controller(function() client:lock("a"):acquire(60) end, is_waited_for)
    collects(function() return not is_waited_for() end)
    assert.is_true(held:release())
  end)

  it("a generator made with auxlib.wrap can wait for a lock", function()
    local rows = {}
    run(function()
      for row in require("cqueues.auxlib").wrap(function()
        client:with_lock("a", function() for i = 1, 3 do coroutine.yield(i) end end)
      end) do rows[#rows + 1] = row end
    end)
    assert.same({ 1, 2, 3 }, rows)
  end)

  it("a nested coroutine that is closed releases its locks, all of a multi-lock #puc", function()
    if not coroutine.close then return end
    local resume = require("cqueues.auxlib").resume
    local hold = assert(load([[
      local take = ...
      local held <close> = assert(take())
      coroutine.yield("held")
    ]]))
    local other = holdfast.new { url = server:url(), driver = "cqueues" }
    local both = holdfast.multi_lock { client:lock("b"), other:lock("c") }
    local function count() return server:cli("EXISTS", "a", "b", "c") end
    local function assert_left(lock, keys)
      local nested = coroutine.create(hold)
      resume(nested, function() return lock:acquire() end)
      assert.equal(keys, count())
      assert.is_true(coroutine.close(nested))
      eventually(function() return count() == 0 end)
    end
    run(function()
      assert_left(client:lock("a"), 1)
      for _ = 1, 2 do assert_left(both, 2) end
    end)
    other:close()
  end)

  it_runs("a client continues in another controller when the one that served it is closed", function()
    local entered
    drop_controller(function()
      client:with_lock("a", function()
        entered = true
        cqueues.sleep(60)
      end)
    end, function() return entered end)
    collectgarbage()
    assert.is_true(client:with_lock("b", { wait = 20 }, function(lock) return lock:check() end))
    collects(function() return server:cli("EXISTS", "a") == 0 end)
  end)
end)
