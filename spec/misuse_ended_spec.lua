-- Objects after their end: those of a closed client, collected ones, and those of a program that
-- exits without cleaning up.

local core = require "holdfast.core"
local features = require "spec.support.features"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local unpack = table.unpack or unpack

local client, lock

before_each(function()
  world.open()
  client = world.client()
  lock = client:lock("k")
end)
after_each(world.close)

describe("metamethods called directly", function()
  local function metatable(value) return debug.getmetatable(value) end

  it("do not crash if called on a different object", function()
    for _, value in ipairs { lock, client, client:watchdog() } do
      local gc, text = metatable(value).__gc, metatable(value).__tostring
      for _, other in ipairs { false, 1, "x", {}, io.stdout } do
        assert.is_false((pcall(gc, other)))
        assert.is_false((pcall(text, other)))
      end
      assert.is_false((pcall(gc)))
    end
  end)

  it("do not crash if called after __gc", function()
    local dead = holdfast.new(world.server:url())
    local dead_lock = assert(dead:lock("k"):acquire())
    local dead_watchdog = dead:watchdog()
    for _, value in ipairs { dead_lock, dead_watchdog, dead } do
      metatable(value).__gc(value)
      metatable(value).__gc(value)
      assert.is_string(tostring(value))
      for name in pairs(metatable(value).__index) do pcall(value[name], value, "k", print) end
      for name in pairs(metatable(value).__index) do pcall(value[name], value, 1) end
    end
    assert.is_truthy(world.is_free("k"))
  end)
end)

describe("a collected object", function()
  it("can still be used from a finalizer without a crash", function()
    local child = world.run [[
      local holdfast = require "holdfast"
      local client = holdfast.new(arg[1])
      local lock = assert(client:lock("k"):acquire())
      local calls = {
        function() lock:release() end, function() lock:acquire(0) end, function() lock:is_held() end,
        function() lock:owner() end, function() lock:key() end, function() tostring(lock) end,
        function() client:lock("other"):acquire(0) end, function() client:close() end,
        function() tostring(client) end,
      }
      local function last() for _, call in ipairs(calls) do pcall(call) end print "last" end
      -- the object that gets its finalizer first is finalized last
      if newproxy then
        keep = newproxy(true)
        getmetatable(keep).__gc = last
      else
        keep = setmetatable({}, { __gc = last })
      end
      local early = setmetatable({}, { __index = holdfast })
      lock, client = assert(client:lock("k"):acquire()), early.new(arg[1])
      assert(client:lock("other"):acquire())
    ]]
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    assert.matches("last", child:output())
    assert.is_truthy(world.is_free("k"))
    assert.is_truthy(world.is_free("other"))
  end)

  it("is not checked for losses by later calls on other locks", function()
    for _ = 1, 20 do
      do
        local short = holdfast.new(world.server:url()):lock("k",
          { lease = 0.001, on_lost = function() end })
        short:acquire()
      end
      collectgarbage()
      assert.is_false(lock:is_held())
      collectgarbage("step")
      assert.is_false(lock:is_held())
    end
    assert.is_truthy(world.is_free("k"))
  end)
end)

describe("after client:close()", function()
  local function closed(...)
    assert.is_nil((...))
    assert.is_string((select(2, ...)))
    assert.equal("closed", (select(3, ...)))
  end

  it("calls on a lock fail with closed, and its lock is free", function()
    assert(lock:acquire())
    client:close()
    assert.equal(0, world.cli("EXISTS", "k"))
    for _, name in ipairs {
      "acquire", "try_acquire", "release", "force_release", "check", "is_locked", "ttl", "info",
    } do closed(lock[name](lock)) end
    closed(lock:acquire(0.05))
    closed(lock:extend(5))
    closed(client:ping())
    closed(client:lock("other"):acquire())
  end)

  it("calls on every other object fail with closed", function()
    local all, pool = client:multi_lock { "a", "b" }, client:semaphore("s", { permits = 2 })
    local plain, latch, fence = client:plain_semaphore "p", client:latch "l", client:fence "f"
    local rw, runs, near = client:read_write_lock "rw", client:one_by_one(), world.client()
    local permit, elsewhere = assert(pool:acquire()), assert(near:lock("e"):acquire())
    client:close()
    local function error_if_run() error "it runs" end
    closed(all:extend(5))
    closed(holdfast.multi_lock({ near:lock "n", lock }):acquire())
    assert.equal(0, world.cli("EXISTS", "n"))
    for names, object in pairs {
      ["acquire try_acquire check release"] = all, ["release"] = permit,
      ["acquire try_acquire info available permits"] = pool,
      ["acquire try_acquire release drain available delete"] = plain,
      ["count_down count wait delete"] = latch, ["acquire"] = rw:read(), ["acquire "] = rw:write(),
      ["deadlocks"] = client,
    } do
      for name in names:gmatch "%S+" do closed(object[name](object)) end
    end
    for name, case in pairs {
      extend = { permit, 5 }, set_permits = { pool, 3 }, add = { plain, 1 }, set = { latch, 1 },
      claim = { fence, elsewhere }, call = { fence, elsewhere, "SET", "f", "1" },
      run = { fence, elsewhere, { { "SET", "f", "1" } } }, with_permit = { pool, error_if_run },
      execute = { runs, "t", 1, error_if_run },
    } do closed(case[1][name](unpack(case))) end
    closed(plain:set(1))
    closed(plain:with_permit(error_if_run))
    for _, name in ipairs {
      "with_lock", "with_read_lock", "with_write_lock", "with_fair_lock", "idempotent", "lead",
    } do closed(client[name](client, "k", error_if_run)) end
    world.cli("DEL", "s")
  end)

  it("getters report that nothing is held", function()
    assert(lock:acquire())
    client:close()
    assert.is_false(lock:is_held())
    assert.equal(0, lock:holds())
    assert.equal(0, lock:remaining())
    assert.is_nil(lock:token())
    assert.equal("k", lock:key())
    assert.is_string(lock:owner())
    assert.matches("not held", tostring(lock))
    assert.is_false(client:watchdog():is_running())
    assert.is_false(client:watchdog():start())
    assert.equal(0, client:watchdog():holds())
    client:watchdog():stop()
    assert.is_table(client:stats())
  end)

  it("closing again is a no-op", function()
    client:close()
    client:close()
    holdfast.new(world.server:url()):close()
  end)

  it("losses that were found before it are still reported", function()
    local lost = {}
    local function note(_, reason) lost[#lost + 1] = reason end
    local held = assert(client:lock("k", { watchdog = true, lease = 0.3, on_lost = note }):acquire())
    world.cli("DEL", "k")
    assert(process.wait_until(function() return core.client.stats(client).losses == 1 end, 20))
    client:close()
    assert.same({ "deleted" }, lost)
    assert.equal("deleted", held:lost())
  end)
end)

describe("a program that exits without cleaning up", function()
  local function run(code, expected)
    local child = world.program { code = code, args = { world.server:url() } }
    assert.same({ "exit", expected }, { child:wait(20) }, child:output())
    assert.is_truthy(world.is_free("k"))
    return child:output()
  end

  it("leaves no lock when it ends", function()
    run([[assert(require("holdfast").new(arg[1]):lock("k"):acquire())]], 0)
  end)

  it("leaves no lock when it fails", function()
    local output = run([[
      held = assert(require("holdfast").new(arg[1]):lock("k"):acquire())
      error "fails"
    ]], 1)
    assert.matches("fails", output)
  end)

  if features.exit_closes then
    it("leaves no lock when it closes its Lua state with os.exit", function()
      run([[
        held = assert(require("holdfast").new(arg[1]):lock("k"):acquire())
        os.exit(3, true)
      ]], 3)
    end)
  end

  it("exits within seconds even if the server hangs", function()
    local child = world.run [[
      held = assert(require("holdfast").new(arg[1]):lock("k", { lease = 2 }):acquire())
      print("held") io.stdout:flush()
      require("spec.support.sys").sleep(0.2)
    ]]
    assert.is_truthy(child:wait_output("held", 20))
    world.server:kill("STOP")
    local started = process.now()
    assert.same({ "exit", 0 }, { child:wait(30) })
    assert.is_true(process.now() - started < 15)
    world.server:kill("CONT")
    assert.is_truthy(world.is_free("k"))
  end)
end)
