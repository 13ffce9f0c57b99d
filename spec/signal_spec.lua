local process = require "spec.support.process"
local world = require("spec.support.world").new()

before_each(world.open)
after_each(world.close)

-- A program that catches USR1 and waits for "k", which is held.
local function waiting_program(options, wait)
  world.hold_as("somebody:1", "k")
  local child = world.program {
    code = ([[
      local sys = require "spec.support.sys"
      assert(sys.catch(10))
      local function blocked()
        return io.open("/proc/self/status"):read("*a"):match("SigBlk:%%s*(%%x+)")
      end
      local before = blocked()
      local client = require("holdfast").new(arg[1])
      local lock = client:lock("k", { %s })
      local started = sys.now()
      local got, message, code = lock:acquire(%s)
      print("result", got and "acquired" or code, sys.caught(), math.floor((sys.now() - started) * 1000))
      print("blocked signals", blocked() == before and "as before" or blocked())
      print("info", lock:info().waiters, lock:holds())
      if got then print("release", lock:release()) end
    ]]):format(options, wait),
    args = { world.server:url() },
  }
  assert.is_truthy(process.wait_until(function()
    return world.cli("EXISTS", "holdfast_queue:{k}") == 1
  end, 20),
    child:output())
  return child
end

describe("a signal", function()
  it("ends an interruptible wait and leaves nothing behind", function()
    local child = waiting_program("interruptible = true", "math.huge")
    process.sleep(0.05)
    local sent = process.now()
    child:kill("USR1")
    assert.same({ "exit", 0 }, { child:wait(20) })
    assert.is_true(process.now() - sent < 10)
    assert.matches("result\tinterrupted\t1", child:output())
    assert.matches("blocked signals\tas before", child:output())
    assert.matches("info\t0\t0", child:output())
    assert.same({ "k" }, world.cli("KEYS", "*"))
    assert.same({ ["somebody:1"] = "1" }, world.hash("k"))
    world.cli("DEL", "k")
  end)

  it("ends an interruptible wait of each kind of lock and of one_by_one, with_lock and lead", function()
    world.hold_as("somebody:1", "k")
    world.cli("SET", "m", "somebody:1", "PX", 60000)
    world.cli("SET", "t_1", "somebody:1", "PX", 60000)
    world.cli("MSET", "gate", 1, "places", 0)
    local client = world.client()
    local permit = assert(client:semaphore("pool", { permits = 1 }):acquire())
    local reader = assert(client:read_write_lock("rw"):read():acquire())
    local children = {}
    for name, call in pairs {
      fair = 'client:fair_lock("k", GIVEN):acquire()',
      latch = 'client:latch("gate", GIVEN):wait()',
      lead = 'client:lead("k", { interruptible = true }, error)',
      mutex = 'client:mutex("m", GIVEN):acquire()',
      multi_lock = 'client:multi_lock({ "k", "x" }, GIVEN):acquire(60)',
      one_by_one = 'client:one_by_one(GIVEN):execute("t", 1, error)',
      plain_semaphore = 'client:plain_semaphore("places", GIVEN):acquire()',
      semaphore = 'client:semaphore("pool", GIVEN):acquire()',
      with_lock = 'client:with_lock("k", GIVEN, error)',
      with_write_lock = 'client:with_write_lock("rw", GIVEN, error)',
      write = 'client:read_write_lock("rw", GIVEN):write():acquire()',
    } do
      children[name] = world.program { args = { world.server:url() }, code = [[
        assert(require("spec.support.sys").catch(10))
        local GIVEN = { interruptible = true, wait = 60 }
        local client = require("holdfast").new(arg[1])
        print "begins" io.stdout:flush()
        print(select(3, ]] .. call .. [[))
        os.exit(0) -- the handler of a signal that comes late must not be unloaded
      ]] }
    end
    for name, child in pairs(children) do
      assert(child:wait_output("begins\n", 20), child:output())
      process.wait_until(function()
        child:kill("USR1")
        return child:status()
      end, 20)
      assert.same({ "exit", 0 }, { child:wait(20) }, name)
      assert.equal("begins\ninterrupted\n", child:output(), name)
    end
    assert(permit:release()) assert(reader:release())
    world.cli("FLUSHALL")
  end)

  local function signalled(wait)
    local child = waiting_program("", wait)
    for _ = 1, 5 do
      child:kill("USR1")
      process.sleep(0.03)
    end
    return child
  end

  it("does not end a wait that is not interruptible", function()
    local child = signalled "30"
    assert.is_nil(child:status())
    world.client():lock("k"):force_release()
    assert.same({ "exit", 0 }, { child:wait(20) })
    assert.matches("result\tacquired\t[1-5]", child:output())
    assert.matches("blocked signals\tas before", child:output())
    assert.matches("release\ttrue", child:output())
  end)

  it("does not shorten or lengthen a wait that is not interruptible", function()
    local child = signalled "1"
    assert.same({ "exit", 0 }, { child:wait(20) })
    local took = tonumber(child:output():match("result\tbusy\t%d+\t(%d+)"))
    assert.is_true(took >= 1000 and took < 5000, "took " .. tostring(took))
    world.cli("DEL", "k")
  end)
end)

-- A program that calls a server that hangs: "acquire" and "release" wait for the reply, "acquire
-- again" for a renewal that waits for its own. Without a signal the calls take 4.5 s, the last one
-- 3 s.
local function stuck_program(call, interruptible)
  return world.run([[
    local process = require "spec.support.process"
    assert(require("spec.support.sys").catch(10))
    local call, interruptible = arg[2], arg[3] == "true"
    local client = require("holdfast").new { url = arg[1], lease = 4.5, command_timeout = 4.5 }
    local lock = assert(client:lock("k", { interruptible = interruptible }):acquire())
    if call == "acquire" then assert(lock:release()) end
    process.signal(tonumber(arg[4]), "STOP")
    if call == "acquire again" then
      assert(process.wait_until(function()
        local stats = client:stats()
        return stats.renew_batches > stats.renewals
      end, 20))
    end
    print("go") io.stdout:flush()
    local from = process.now()
    local _, how = pcall(function()
      local _, code
      if call == "release" then _, _, code = lock:release() else _, _, code = lock:acquire(10) end
      return code
    end)
    print("ended", how, process.now() - from) io.stdout:flush()
    os.exit(0) -- the handler of a signal that comes late must not be unloaded
  ]], call, interruptible, world.server.pid)
end

describe("while the server hangs", function()
  -- The server receives what the program has sent when it continues.
  after_each(function()
    world.server:kill("CONT")
    assert.is_truthy(process.wait_until(function()
      world.cli("FLUSHALL")
      return world.server:leaks().clients == 0
    end, 20))
    world.cli("FLUSHALL")
  end)

  local function start(call, interruptible)
    local child = stuck_program(call, interruptible)
    assert.is_truthy(child:wait_output("go", 20), child:output())
    return child
  end

  local function ended_in(child, pattern)
    local ended = child:wait_output("ended%s+[^\n]+\n", 20)
    assert.matches(pattern, ended or child:output())
    return tonumber(ended:match("(%S+)\n"))
  end

  for _, call in ipairs { "acquire", "acquire again" } do
    it("a signal ends an interruptible " .. call, function()
      local child = start(call, true)
      process.wait_until(function()
        return child:output():find("ended") or not child:kill("USR1")
      end, 20)
      local took = ended_in(child, "interrupted")
      assert.is_true(took < 2, ("took %.3f s"):format(took))
    end)

    for _, interruptible in ipairs { false, true } do
      local how = interruptible and ", interruptible" or ""
      it(("Ctrl-C ends %s%s"):format(call, how), function()
        local child = start(call, interruptible)
        process.sleep(0.2)
        child:kill("INT")
        local took = ended_in(child, "interrupted!")
        assert.is_true(took < 2, ("took %.3f s"):format(took))
      end)
    end
  end

  for _, call in ipairs { "acquire", "release", "acquire again" } do
    for _, interruptible in ipairs { false, true } do
      local how = interruptible and ", interruptible" or ""
      it(("an uncaught signal ends a program in %s%s"):format(call, how), function()
        local child = start(call, interruptible)
        process.sleep(0.2)
        local sent = process.now()
        child:kill("TERM")
        assert.same({ "signal", 15 }, { child:wait(20) })
        assert.is_true(process.now() - sent < 2)
      end)
    end
  end
end)

describe("Ctrl-C", function()
  local function interrupt(code)
    local child = world.program { code = code, args = { world.server:url() } }
    assert.is_truthy(child:wait_output("go", 20), child:output())
    process.wait_until(function() return world.cli("EXISTS", "holdfast_queue:{k}") == 1 end, 0.3)
    local sent = process.now()
    child:kill("INT")
    local how = child:wait(20)
    assert.equal("exit", how)
    assert.matches("interrupted!", child:output())
    return process.now() - sent, child:output()
  end

  it("ends a wait in the standalone interpreter at once", function()
    world.hold_as("somebody:1", "k")
    local best = math.huge
    for _ = 1, 3 do
      local took, output = interrupt [[
        local lock = require("holdfast").new(arg[1]):lock("k")
        print("go") io.stdout:flush()
        lock:acquire(30)
        print "went on"
      ]]
      assert.is_nil(output:find("went on"))
      best = math.min(best, took)
    end
    assert.is_true(best < 1, ("took %.3f s"):format(best))
    assert.same({ "k" }, world.cli("KEYS", "*"))
    world.cli("DEL", "k")
  end)

  it("ends a wait in a coroutine at once", function()
    world.hold_as("somebody:1", "k")
    local took = interrupt [[
      local lock = require("holdfast").new(arg[1]):lock("k")
      print("go") io.stdout:flush()
      coroutine.wrap(function() lock:acquire(30) end)()
    ]]
    assert.is_true(took < 10)
    assert.same({ "k" }, world.cli("KEYS", "*"))
    world.cli("DEL", "k")
  end)

  it("is not confused with a debug hook that the program had set", function()
    world.hold_as("somebody:1", "k")
    local lock, calls = world.client():lock("k"), 0
    local function wait_with(hook)
      local thread = coroutine.create(function() return select(3, lock:acquire(0.15)) end)
      debug.sethook(thread, hook, "", 1000)
      local _, code = coroutine.resume(thread)
      return code
    end
    local hook, mask, every = debug.gethook()
    debug.sethook(function() calls = calls + 1 end, "", 1000)
    local plain, code = pcall(function() return select(3, lock:acquire(0.15)) end)
    local in_thread = wait_with()
    local in_both = wait_with(function() calls = calls + 1 end)
    debug.sethook(hook, mask, every)
    assert.same({ true, "busy", "busy", "busy" }, { plain, code, in_thread, in_both })
    world.cli("DEL", "k")
  end)

  it("releases the lock of with_lock whose function it interrupts", function()
    local took = interrupt [[
      require("holdfast").new(arg[1]):with_lock("k", function()
        if jit then jit.off() end -- compiled loops of LuaJIT do not handle signals
        print("go") io.stdout:flush()
        while true do require("spec.support.sys").sleep(0.001) end
      end)
    ]]
    assert.is_true(took < 10)
    assert.equal(0, world.cli("EXISTS", "k"))
  end)
end)
