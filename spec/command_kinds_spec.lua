-- What ls, show, top, wait and break print about latches and fair locks.

local command = require "spec.support.command"
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local PATIENCE = 20

local function run(...) return command.run(world.server, { ... }) end

local function start(...)
  local child = command.start(world.server, { ... })
  world.children[#world.children + 1] = child
  return child
end

local function listens(channel)
  assert(process.wait_until(function()
    return world.cli("PUBSUB", "NUMSUB", channel)[2] == 1
  end, PATIENCE), channel)
end

local function waits_for_latch(key, channel)
  local child = start("latch", "wait", key)
  listens(channel or "redisson_countdownlatch__channel__{" .. key .. "}")
  return child
end

-- A process that acquires a fair lock, releases it and ends.
local function waits_for_fair_lock(key)
  local child = world.program {
    code = [[
      local lock = require("holdfast").new(arg[1]):fair_lock(arg[2])
      assert(lock:acquire(60)):release()
    ]],
    args = { world.server:url(), key },
  }
  return child
end

describe("holdfast", function()
  before_each(world.open)
  after_each(function()
    world.cli("FLUSHALL")
    world.close()
  end)

  describe("with a latch", function()
    local latch

    before_each(function()
      latch = world.client():latch("gate")
      assert(latch:set(3))
    end)

    it("show prints a latch's count and the number of its waiters", function()
      local child = waits_for_latch "gate"
      assert.same({ 0, "key      gate\nstate    a latch, closed\ncount    3\nwaiters  1\n" },
        { run("show", "gate") })
      assert.matches('"held":true,.*"mutex":false,"kind":"latch","count":3,.*"waiters":1,"queue":%[%]',
        (select(2, run("show", "--json", "gate"))))
      assert(latch:delete())
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.equal(1, (run("show", "gate")))
    end)

    it("show says that a number without waiters may be a latch or a semaphore", function()
      local expected = "state    a number: a latch (closed) or a semaphore\ncount    3\n"
      assert.truthy((select(2, run("show", "gate"))):find(expected, 1, true))
    end)

    it("wait and show treat a count of 0 or less as open", function()
      for _, count in ipairs { 0, -5 } do
        world.cli("SET", "gate", count)
        assert.equal(0, (run("wait", "-n", "gate")))
        local expected = "state    a number: a latch (open) or a semaphore\ncount    "
        local code, output = run("show", "gate")
        assert.equal(1, code)
        assert.truthy(output:find(expected .. count, 1, true))
      end
    end)

    it("ls lists the latch while it has waiters", function()
      assert.same({ 0, "" }, { run("ls") })
      waits_for_latch "gate"
      assert(world.client():latch("a{b}c"):set(1))
      waits_for_latch("a{b}c", "redisson_countdownlatch__channel__{a{b}c}")
      local code, output = run("ls")
      assert.equal(0, code)
      assert.matches("\na{b}c  1 left +%- +%- +%- +%- +1 +%-\ngate   3 left +%- +%- +%- +%- +1 +%-\n$", output)
      assert.matches("\ngate ", (select(2, run("ls", "g*"))))
      assert.same({ 0, "" }, { run("ls", "h*") })
      assert.matches("^2 locks, 2 waiters\n.*\ngate +3 left +%- +1 +%- +%-\n",
        (select(2, run("top", "--interval", "0.1"))))
    end)

    it("break opens a latch for its waiters", function()
      local child = waits_for_latch "gate"
      assert.same({ 0, "gate: broken\n" }, { run("break", "--yes", "gate") })
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.equal(0, world.cli("EXISTS", "gate"))
    end)

    it("show and break treat a number with a TTL as another program's lock", function()
      world.cli("SET", "theirs", 0, "PX", 60000)
      assert.matches("^holdfast wait: \"theirs\" is held for up to ", (select(2, run("wait", "-n", "theirs"))))
      local code, output = run("show", "theirs")
      assert.equal(0, code)
      assert.matches("state    a string: another program's lock", output, 1, true)
      assert.equal(73, (run("break", "--yes", "theirs")))
      assert.same({ 0, "theirs: broken\n" }, { run("break", "--yes", "--mutex", "theirs") })
    end)

    it("break refuses to delete a number that nobody waits for", function()
      local code, output = run("break", "--yes", "gate")
      assert.equal(73, code)
      assert.matches("holdfast latch delete", output)
      assert.equal("3", world.cli("GET", "gate"))
      assert.same({ 0, "gate: broken\n" }, { run("break", "--yes", "--mutex", "gate") })
    end)
  end)

  it("show recognizes a plain semaphore by its waiters", function()
    world.cli("SET", "pool", 0)
    local listener = world.program {
      code = [[
        local server = require("spec.support.resp").connect { path = arg[1] }
        server:call("SUBSCRIBE", "redisson_sc:{pool}")
        require("spec.support.process").sleep(60)
      ]],
      args = { world.server.path },
    }
    listens "redisson_sc:{pool}"
    assert.same({ 0, "key      pool\nstate    a plain semaphore\ncount    0\nwaiters  1\n" },
      { run("show", "pool") })
    assert.matches("\npool  0 permits free ", (select(2, run("ls"))))
    assert.equal(73, (run("break", "-y", "pool")))
    world.cli("SET", "pool", 2) -- a semaphore with permits left
    assert.same({ 0, "" }, { run("ls") })
    assert.equal(0, (run("wait", "-n", "pool")))
    listener:kill("KILL")
    listener:wait(PATIENCE)
  end)

  it("ls lists a semaphore once even if other programs have subscribed to its channel", function()
    local permit = assert(world.client():semaphore("pool", { permits = 1 }):acquire())
    local listener = world.program {
      code = [[
        require("spec.support.resp").connect({ path = arg[1] }):call("SUBSCRIBE", "redisson_sc:{pool}")
        require("spec.support.process").sleep(60)
      ]],
      args = { world.server.path },
    }
    listens "redisson_sc:{pool}"
    local _, output = run("ls")
    assert.matches("^KEY[^\n]+\npool  1 of 1 permit +1 +%- +[%d.]+ s +%d+ +0 +%-\n$", output)
    assert.matches("^1 lock, 0 waiters\n", (select(2, run("top", "--interval", "0.1"))))
    assert.matches("\npermits  1 of 1 taken\n", (select(2, run("show", "pool"))))
    listener:kill("KILL")
    listener:wait(PATIENCE)
    assert(permit:release())
  end)

  it("ls recognizes a lock by its owner, its token counter or its queue", function()
    for key, owner in pairs { plain = "somebody", token = "somebody", queue = "somebody",
      java = "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33" } do
      world.cli("HSET", key, owner, 1)
      world.cli("PEXPIRE", key, 60000)
    end
    world.cli("SET", "redisson_lock_token:{token}", 7)
    world.cli("ZADD", "holdfast_queue:{queue}", 1, "1l5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:1:1")
    local keys = {}
    for key in select(2, run("ls")):gmatch "\n(%l+) " do keys[#keys + 1] = key end
    assert.same({ "java", "queue", "token" }, keys)
    assert.equal(73, (run("break", "--yes", "plain")))
    for _, key in ipairs(keys) do assert.same({ 0, key .. ": broken\n" }, { run("break", "--yes", key) }) end
  end)

  describe("with a fair lock", function()
    local lock

    before_each(function()
      lock = world.client():fair_lock("booking")
      assert(lock:acquire(0))
    end)

    it("ls and top count a fair lock's waiters", function()
      local first, second = waits_for_fair_lock "booking", waits_for_fair_lock "booking"
      assert(process.wait_until(function() return lock:info().waiters == 2 end, PATIENCE))
      local code, output = run("ls")
      assert.equal(0, code)
      assert.matches("\nbooking +[^\n]+ 2 +%-\n$", output)
      assert.matches('"kind":"fair",.*"waiters":2}', (select(2, run("ls", "--json"))))
      assert.matches("^1 lock, 2 waiters\n", (select(2, run("top", "--interval", "0.1"))))
      assert(lock:release())
      for _, child in ipairs { first, second } do
        assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      end
    end)
  end)
end)
