local core = require "holdfast.core"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local JAVA = "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33"
local LEASE = 2 -- seconds; long enough for a busy machine
local PATIENCE = 20

before_each(world.open)
after_each(world.close)

local function compute(seconds)
  local deadline, sum = process.now() + seconds, 0
  while process.now() < deadline do
    for i = 1, 1000 do sum = sum + i % 7 end
  end
  return sum
end

-- Another owner takes the lock. The key always exists, because a renewal would report a deletion.
local function take_over(lock)
  world.hold_as(JAVA, "k", 20000)
  world.cli("HDEL", "k", lock:owner())
end

local function kill_connections()
  return world.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
end

describe("the watchdog", function()
  it("renews while the program computes for longer than the lease", function()
    local client = world.client { lease = LEASE }
    local lock = assert(client:lock("k"):acquire())
    compute(1.3 * LEASE)
    assert.is_true(lock:is_held())
    assert.is_true(world.cli("PTTL", "k") > 0)
    assert.same({ [lock:owner()] = "1" }, world.hash("k"))
    assert(lock:check() and lock:release())
    assert.is_true(client:stats().renewals >= 2)
  end)

  it("renews an explicit lease only with watchdog = true, and no lease with watchdog = false", function()
    local client = world.client { lease = LEASE }
    local yes, no = client:lock("yes", { lease = LEASE, watchdog = true }),
      client:lock("no", { watchdog = false })
    local explicit = client:lock("explicit", { lease = LEASE })
    assert(yes:acquire()) assert(no:acquire()) assert(explicit:acquire())
    assert.equal(1, client:watchdog():holds())
    process.sleep(1.3 * LEASE)
    assert.same({ true, "expired", "expired" }, { yes:is_held(), no:lost(), explicit:lost() })
    assert(yes:release())
  end)

  local function await_renewal(client)
    local before = client:stats().renewals
    process.eventually(function() return client:stats().renewals > before end)
  end

  it("keeps renewing after SCRIPT FLUSH and the loss of its connection", function()
    local client = world.client { lease = 3 }
    local lock = assert(client:lock("k"):acquire())
    for _ = 1, 2 do
      world.cli("SCRIPT", "FLUSH")
      assert.is_true(kill_connections() >= 1)
      await_renewal(client)
    end
    assert.is_true(lock:is_held() and lock:check())
    assert.equal(0, client:stats().losses)
    assert(lock:release())
  end)

  it("returns its client's counters under documented names", function()
    local client, stats, losses = world.client(), core.client.stats, 0
    for _ = 1, 300 do losses = losses + client:watchdog():stats().losses end -- LuaJIT compiles it
    assert.equal(0, losses)
    function core.client.stats(of)
      assert(of == client, "it asks for another object's counters")
      return {
        renewals = 1, renew_batches = 2, late_renewals = 3, losses = 4, undone = 5,
        watchdog_wakes = 6,
      }
    end
    local fine, seen = pcall(function() return client:watchdog():stats() end)
    core.client.stats = stats
    assert(fine, seen)
    assert.same({
      renewals = 1, batches = 2, late_renewals = 3, losses = 4, undone = 5, wakes = 6,
    }, seen)
  end)

  it("remains stopped while calls are made, until it is started", function()
    local client = world.client { lease = LEASE }
    local watchdog, lock = client:watchdog(), client:lock("k")
    assert.is_false(watchdog:is_running())
    assert(lock:acquire())
    assert.is_true(watchdog:is_running())
    assert.matches("running", tostring(watchdog))
    assert.equal("holdfast.watchdog", getmetatable(watchdog))
    watchdog:stop()
    assert(lock:release() and lock:acquire())
    watchdog:stop()
    assert.is_false(watchdog:is_running())
    assert.equal("expired", process.wait_until(function() return lock:lost() end, PATIENCE))
    lock:release()
    assert.is_true(watchdog:start() and watchdog:is_running())
    assert(lock:acquire())
    await_renewal(client)
    assert(lock:check() and lock:release())
    client:close()
    assert.is_false(watchdog:start())
    assert.is_false(watchdog:is_running())
  end)

  it("wakes up to renew the first locks of a multi-lock while the others are being acquired", function()
    local client = world.client { lease = 0.8 }
    local function wait_for(counter, count)
      return process.wait_until(function()
        local seen = client:stats()
        return seen.losses == 0 and seen[counter] > count
      end, 5)
    end
    local first = assert(client:lock("first"):acquire())
    assert.is_true(wait_for("renewals", 0) and first:release())
    assert.is_true(wait_for("watchdog_wakes", client:stats().watchdog_wakes))
    local before, lock = client:stats().renewals, client:lock("k", { watchdog = false })
    assert(lock:acquire())
    process.sleep(0.05) -- now the watchdog sleeps until the lease ends
    core.lock.collect(lock)
    assert.is_true(wait_for("renewals", before) and lock:release())
  end)

  it("keeps its client alive, and while it is stopped the client's calls renew locks", function()
    local other = world.client()
    local held = assert(other:lock("taken"):acquire()) -- luacheck: ignore 211 (lasts)
    local watchdog
    do
      local client = holdfast.new { url = world.server:url(), lease = 0.9 }
      local lock = client:lock("k")
      watchdog = client:watchdog()
      assert(lock:acquire())
      watchdog:stop()
      assert.equal("busy", select(3, client:lock("taken"):acquire(0.5)))
      assert.is_true(lock:is_held())
      assert(lock:release())
    end
    collectgarbage() collectgarbage()
    assert.is_true(watchdog:stats().renewals > 0)
    assert.equal(0, watchdog:stats().losses)
    core.watchdog.client(watchdog):close()
  end)

  it("does nothing after it was collected, even if a finalizer still reaches it", function()
    local client = world.client()
    local watchdog = client:watchdog()
    core.watchdog_type.__gc(watchdog)
    for _, name in ipairs { "holds", "is_running", "start", "stop" } do
      assert.error_matches(function() watchdog[name](watchdog) end, "was garbage%-collected")
    end
    assert.equal("holdfast.watchdog: not running", tostring(watchdog))
    core.watchdog_type.__gc(watchdog)
    assert(assert(client:lock("k"):acquire()):release())
  end)

  it("is started again by close if a lock has to be released", function()
    local client = world.client()
    local lock = client:lock("k")
    assert(lock:acquire())
    client:watchdog():stop()
    client:close()
    assert.equal(0, world.cli("EXISTS", "k"))
  end)
end)

describe("a loss", function()
  local losses

  before_each(function() losses = {} end)

  local function on_lost(lock, reason)
    losses[#losses + 1] = { lock = lock, reason = reason, thread = coroutine.running() }
  end

  -- Calls holdfast until it has reported `count` losses.
  local function await_losses(client, count)
    assert.truthy(process.wait_until(function()
      client:stats()
      return #losses == count
    end, PATIENCE))
  end

  -- Waits without calling holdfast, then calls it.
  local function after(client, seconds)
    process.sleep(seconds)
    assert.same({}, losses)
    await_losses(client, 1)
  end

  local function assert_loss(reason, lock)
    assert.equal(1, #losses)
    assert.equal(reason, losses[1].reason)
    assert.equal(lock, losses[1].lock)
    assert.equal(coroutine.running(), losses[1].thread)
    assert.equal(reason, lock:lost())
    assert.equal(reason, select(2, core.lock.standing(lock)))
    assert.same({ false, 1 }, { lock:is_held(), #losses })
  end

  it("at the end of the lease is reported as expired", function()
    local client = world.client()
    local lock = assert(client:lock("k", { lease = 1, on_lost = on_lost }):acquire())
    after(client, 1)
    assert_loss("expired", lock)
  end)

  local function evict()
    world.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    world.cli("CONFIG", "SET", "maxmemory", "1")
    assert(process.wait_until(function() return world.cli("EXISTS", "k") == 0 end, 10))
    world.cli("CONFIG", "SET", "maxmemory", "0")
  end

  -- name → the reason, what causes the loss, seconds until it is found
  for name, case in pairs {
    ["to another owner is reported as taken, and changes nothing"] = { "taken", take_over },
    ["of the key is reported as deleted, and does not recreate the key"] = {
      "deleted", function() world.cli("DEL", "k") end,
    },
    ["through FLUSHALL is reported as deleted"] = { "deleted", function() world.cli("FLUSHALL") end },
    ["through eviction is reported as deleted"] = { "deleted", evict },
    ["of the server's connection is reported as unreachable"] = {
      "unreachable", function() world.server:kill() end, 1.1 * LEASE,
    },
  } do
    it(name, function()
      local client = world.client { lease = LEASE }
      local lock = assert(client:lock("k", { on_lost = on_lost }):acquire())
      case[2](lock)
      after(client, case[3] or LEASE / 2)
      assert_loss(case[1], lock)
      if case[1] == "deleted" then assert.equal(0, world.cli("EXISTS", "k")) end
      if case[1] == "taken" then
        assert.same({ [JAVA] = "1" }, world.hash("k"))
        assert.is_true(world.cli("PTTL", "k") > 15000)
        world.cli("DEL", "k")
      end
    end)
  end

  it("is not reported after a release or a failed acquire", function()
    local client = world.client { lease = LEASE }
    local lock = client:lock("k", { on_lost = on_lost })
    assert(lock:acquire()) assert(lock:release())
    world.hold_as(JAVA, "k")
    assert.is_nil((lock:try_acquire()))
    process.sleep(LEASE / 2) -- a renewal would have found the loss
    client:stats()
    assert.same({ {}, nil }, { losses, (lock:lost()) })
    world.cli("DEL", "k")
  end)

  it("can be answered in on_lost by acquiring the lock again", function()
    local client = world.client { lease = LEASE }
    local again
    local lock = client:lock("k", { on_lost = function(self) again = self:acquire(PATIENCE) end })
    assert(lock:acquire())
    world.cli("DEL", "k")
    assert.truthy(process.wait_until(function()
      client:stats()
      return again
    end, PATIENCE))
    assert.equal(lock, again)
    assert.is_true(lock:check())
    assert(lock:release())
  end)
end)

-- While the host is suspended, the client's clock runs, but the time of a sleep stands still.
describe("after the machine was suspended", function()
  local SUSPENDED = [[
    local process = require "spec.support.process"
    local client = require("holdfast").new(arg[1], { lease = 30, grant_lease = 20 })
    local function suspend(seconds)
      local path = os.getenv("HOLDFAST_CLOCK")
      local file = assert(io.open(path .. ".new", "w"))
      file:write(seconds)
      file:close()
      assert(os.rename(path .. ".new", path))
    end
  ]]

  -- Runs the code, which may call suspend(seconds), and must print "true".
  local function run(code)
    local clock, others = process.directory() .. "/clock", os.getenv("LD_PRELOAD")
    local child = world.program { code = SUSPENDED .. code, args = { world.server:url() }, env = {
      HOLDFAST_CLOCK = clock,
      LD_PRELOAD = (others and others .. " " or "") .. process.build .. "/support/clock.so",
    } }
    assert.same({ "exit", 0 }, { child:wait(60) })
    assert.equal("true\n", child:output())
  end

  it("a lock whose renewal is due is renewed soon", function()
    run [[
      local lock = assert(client:lock("k"):acquire())
      process.sleep(1) -- the watchdog sleeps much longer
      suspend(15)
      process.sleep(3)
      print(client:stats().renewals > 0 and lock:is_held())
      client:close()
    ]]
  end)

  it("a wait that has timed out ends soon", function()
    local held = assert(world.client():lock("k"):acquire()) -- luacheck: ignore 211 (lasts)
    run [[
      local lock = client:lock("k", { interruptible = true })
      local sys = require "spec.support.sys"
      local pid = sys.fork()
      if pid == 0 then
        process.sleep(1)
        suspend(100)
        sys.exit(0)
      end
      local began = process.now()
      local _, _, code = lock:acquire(20)
      print(code == "busy" and process.now() - began < 4)
      client:close()
    ]]
  end)
end)
