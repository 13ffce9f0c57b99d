local assert_fails = require "spec.support.fails"
local features = require "spec.support.features"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local sys = require "spec.support.sys"
local world = require("spec.support.world").new()

local JAVA = "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33"
local LEASE = 1.5 -- seconds; a third shows a loss, the rest is for a busy machine

before_each(world.open)
after_each(world.close)

local function pack(...) return { n = select("#", ...), ... } end

local function count_of(all)
  local count = 0
  for _ in pairs(all) do count = count + 1 end
  return count
end

-- Works without a call of holdfast until cond(), but at most `seconds`.
local function compute_until(cond, seconds)
  local deadline = process.now() + seconds
  local sum = 0
  while process.now() < deadline do
    for i = 1, 2000 do sum = sum + i % 7 end
    if cond and cond() then return true end
  end
  return sum
end

describe("with_lock", function()
  it("calls the function with the lock and its arguments, nils included", function()
    local client = world.client()
    local seen
    client:with_lock("k", function(lock, ...)
      assert.same({ true, "k", { [lock:owner()] = "1" } },
        { lock:is_held(), lock:key(), world.hash("k") })
      seen = pack(...)
    end, nil, 2, nil)
    assert.same({ pack(nil, 2, nil), 0 }, { seen, world.cli("EXISTS", "k") })
  end)

  it("returns all of the function's results, nils included", function()
    local client = world.client()
    local function results() return nil, 1, nil, false, nil end
    assert.same(pack(results()), pack(client:with_lock("k", results)))
    local many = {}
    for i = 1, 100 do many[i] = i end
    assert.equal(100, select("#", client:with_lock("k", { lease = 5 }, function()
      return (table.unpack or unpack)(many) -- luacheck: ignore 143 113
    end)))
  end)

  it("returns true for a function without results, so that assert works", function()
    local client = world.client()
    assert.same(pack(true), pack(client:with_lock("k", function() end)))
    assert.same(pack(true), pack(client:with_lock("k", { abort_on_loss = true }, function() end)))
    assert.is_true(assert(client:with_lock("k", { lease = 5 }, function() return end)))
  end)

  it("returns an explicit nil or false unchanged", function()
    local client = world.client()
    assert.same(pack(nil), pack(client:with_lock("k", function() return nil end)))
    assert.same(pack(nil, nil), pack(client:with_lock("k", function() return nil, nil end)))
    assert.same(pack(false), pack(client:with_lock("k", function() return false end)))
  end)

  it("accepts any callable value", function()
    local callable = setmetatable({}, { __call = function(_, lock, x) return lock:key() .. x end })
    assert.equal("k1", world.client():with_lock("k", callable, 1))
  end)

  it("does not run the function if the lock is busy or the server unreachable", function()
    world.hold_as(JAVA, "k")
    local ran = false
    local function run() ran = true end
    local result = pack(world.client():with_lock("k", { wait = 0.05 }, run))
    assert.same({ n = 3, nil, result[2], "busy" }, result)
    assert.same({ [JAVA] = "1" }, world.hash("k"))
    world.cli("DEL", "k")
    local client = world.client { url = "unix:///nowhere/redis.sock" }
    assert_fails("unreachable", client:with_lock("k", { wait = 0 }, run))
    assert.is_false(ran)
  end)

  -- Runs the program with this $HOLDFAST_URL. → its exit code and output
  local function run(url, code)
    local child = world.program { code = code, env = { HOLDFAST_URL = url } }
    return { child:wait(20) }, child:output()
  end

  it("uses the default client if called as holdfast.with_lock", function()
    local exit, output = run(world.server:url(), [[
      local holdfast = require "holdfast"
      print(holdfast.with_lock("k", function(lock) return lock:is_held(), lock:key() end))
      print(pcall(holdfast.with_lock, "k", { wait = 1 }, function() error({}) end))
    ]])
    assert.same({ "exit", 0 }, exit)
    assert.matches("^true\tk\nfalse\ttable:", output)
  end)
end)

describe("an error in with_lock", function()
  it("is raised unchanged after the release, even if it cannot be converted to a string", function()
    local client = world.client()
    local function object(tostring) return setmetatable({}, { __tostring = tostring }) end
    local values = { "text", { code = 7 }, 42, false, object(function() return "!" end),
      object(function() error "no text" end), object(function() return nil end),
      object(function() return {} end) }
    for i, value in ipairs(values) do
      local function raise_it() error(value, 0) end
      local result = pack(pcall(client.with_lock, client, "k", function() raise_it() return 1 end))
      assert.same({ 2, false }, { result.n, result[1] })
      assert.is_true(rawequal(value, result[2]))
      assert.equal(0, world.cli("EXISTS", "k"))
      if i > 5 then assert.matches("error value of type table.*raise_it", holdfast.traceback()) end
    end
  end)

  it("keeps its position in the source, and may have nil as its value", function()
    local client = world.client()
    local function raised(fn) return select(2, pcall(client.with_lock, client, "k", fn)) end
    assert.matches("with_lock_spec%.lua:%d+: here$", raised(function() error("here") end))
    -- Lua 5.5 turns nil into a string
    assert.equal(select(2, pcall(error)), raised(function() error() end))
    assert.equal(0, world.cli("EXISTS", "k"))
  end)

  it("has its traceback in the coroutine that raised it", function()
    local client = world.client()
    local function fail(name)
      pcall(client.with_lock, client, name, function() error(name) end)
      return holdfast.traceback()
    end
    local outer = fail("outer")
    local first, second = coroutine.create(function()
      coroutine.yield(fail("first"))
      return holdfast.traceback()
    end), coroutine.create(function() return holdfast.traceback() end)
    local _, inner = coroutine.resume(first)
    assert.matches("with_lock_spec.lua:%d+: first\n", inner)
    assert.same({ true, nil }, { coroutine.resume(second) })
    assert.equal(outer, holdfast.traceback())
    assert.same({ true, inner }, { coroutine.resume(first) })
  end)

  it("keeps no coroutine alive through its traceback", function()
    local client, left = world.client(), setmetatable({}, { __mode = "k" })
    for _ = 1, 20 do
      local thread = coroutine.create(function()
        pcall(client.with_lock, client, "k", error)
        return holdfast.traceback()
      end)
      local _, traceback = coroutine.resume(thread)
      assert.is_string(traceback)
      left[thread] = true
    end
    for _ = 1, 3 do collectgarbage() end
    assert.is_true(count_of(left) < 10, count_of(left)) -- a stale slot of the stack may keep one
  end)
end)

-- Lua 5.1 cannot yield in a protected call, which with_lock makes.
local it_yields = features.yields_in_pcall and it or pending

describe("with_lock in a coroutine", function()
  it_yields("lets the function yield, and holds the lock until it returns", function()
    local client = world.client()
    local other = world.client():lock("k")
    local thread = coroutine.create(function(...)
      return "result", client:with_lock("k", function(lock, x)
        local y, z = coroutine.yield(x + 1)
        assert.is_true(lock:is_held())
        return y, nil, z
      end, ...)
    end)
    assert.same(pack(true, 2), pack(coroutine.resume(thread, 1)))
    assert.equal("busy", select(3, other:try_acquire()))
    assert.same(pack(true, "result", "y", nil, "z"), pack(coroutine.resume(thread, "y", "z")))
    assert.same({ "dead", 0 }, { coroutine.status(thread), world.cli("EXISTS", "k") })
  end)

  it_yields("raises unchanged an error raised after a yield", function()
    local client, reason = world.client(), {}
    local thread = coroutine.create(function()
      return client:with_lock("k", function()
        coroutine.yield()
        error(reason)
      end)
    end)
    assert(coroutine.resume(thread))
    assert.same(pack(false, reason), pack(coroutine.resume(thread)))
    assert.equal(0, world.cli("EXISTS", "k"))
  end)
end)

if coroutine.close then
  describe("coroutine.close in the function of with_lock, one_by_one or idempotent", function()
    local function suspended(run)
      collectgarbage("stop") -- the collector would release what was forgotten
      local thread = coroutine.create(run)
      assert(coroutine.resume(thread))
      return thread
    end

    after_each(function() collectgarbage("restart") end)

    it("releases the lock of with_lock or one_by_one, and the key of idempotent", function()
      local client = world.client()
      local runs = {
        k = function() client:with_lock("k", coroutine.yield) end,
        t_1 = function() client:one_by_one():execute("t", 1, coroutine.yield) end,
        g = function() client:idempotent("g", { expire = 60 }, coroutine.yield) end,
      }
      for key, run in pairs(runs) do
        local thread = suspended(run)
        assert.equal(1, world.cli("EXISTS", key))
        assert.is_true(coroutine.close(thread))
        assert.is_true(world.is_free(key))
      end
      assert.is_true(process.wait_until(function() -- counted when the reply is read
        return client:stats().releases + client:stats().undone == 3
      end))
    end)

    it("releases every hold of nested calls, and no other", function()
      local client = world.client()
      local outside = assert(client:lock("outside"):acquire())
      local thread = suspended(function()
        client:with_lock("a", { abort_on_loss = true }, function()
          client:with_lock("a", function()
            client:with_lock("b", function(lock)
              assert(lock:acquire())
              coroutine.yield()
            end)
          end)
        end)
      end)
      assert.equal(2, world.cli("EXISTS", "a", "b"))
      coroutine.close(thread)
      assert.is_true(world.is_free("a") and world.is_free("b") and outside:release())
      local own = client:lock("k", { owner = "me" })
      thread = suspended(function()
        assert(own:acquire())
        client:with_lock("k", { owner = "me" }, coroutine.yield)
      end)
      assert.equal(2, own:holds())
      assert.is_true(coroutine.close(thread))
      assert.equal(1, own:holds())
      assert.is_true(own:check() and own:release())
      assert.equal(0, world.cli("EXISTS", "k"))
    end)

    it("does not wait for the server", function()
      local client = world.client { command_timeout = 20 }
      local thread = suspended(function() client:with_lock("k", coroutine.yield) end)
      world.server:kill("STOP")
      local began = process.now()
      assert.is_true(coroutine.close(thread))
      assert.is_true(process.now() - began < 10)
      world.server:kill("CONT")
      assert.is_true(world.is_free("k"))
    end)
  end)
end

describe("a lock lost in with_lock", function()
  it("makes it return nil, a message, lost and the function's results", function()
    local client = world.client()
    local _, results = assert_fails("lost", client:with_lock("k", function()
      world.cli("DEL", "k")
      return "a", nil, "c", nil
    end))
    assert.same({ n = 4, "a", nil, "c", nil }, results)
    _, results = assert_fails("lost", client:with_lock("k", { lease = 0.1 }, function()
      process.sleep(0.15)
      return "done"
    end))
    assert.same({ n = 1, "done" }, results)
  end)

  describe("and an on_lost that raises an error", function()
    local function run(fn)
      local client = world.client()
      local opts = { on_lost = function() error("of on_lost", 0) end }
      local result = pack(pcall(client.with_lock, client, "k", opts, function()
        world.cli("DEL", "k")
        return fn()
      end))
      assert.is_true(world.client():lock("k"):acquire(0):release())
      return result
    end

    it("do not hide the function's own error", function()
      local reason = {}
      local result = run(function() error(reason) end)
      assert.same(pack(false, reason), result)
      assert.equal(reason, result[2])
    end)

    it("make with_lock raise on_lost's error if the function succeeded", function()
      assert.same(pack(false, "of on_lost"), run(function() return "done" end))
    end)
  end)
end)

describe("a release at the end of with_lock", function()
  it("returns conflict and the results if the key has another type", function()
    local message, results = assert_fails("conflict", world.client():with_lock("k", function()
      world.cli("DEL", "k")
      world.cli("RPUSH", "k", "x")
      return "done"
    end))
    assert.matches('"k"', message)
    assert.same({ n = 1, "done" }, results)
    world.cli("DEL", "k")
  end)

  it("returns lost and the results if the function acquired again after a loss", function()
    local client = world.client { lease = LEASE }
    local function lose(lock)
      world.cli("DEL", "k")
      assert.equal("lost", select(3, lock:check()))
      assert.equal("deleted", lock:lost())
    end
    local function again(lock)
      lose(lock)
      assert(lock:acquire())
      assert.is_true(lock:is_held())
      return "done"
    end
    local after = {
      again,
      function(lock)
        lose(lock)
        assert.equal("lost", select(3, lock:release()))
        assert(lock:acquire())
        return "done"
      end,
      function(lock) return again(lock), assert(lock:release()) and nil end,
      function(lock) return again(lock) and again(lock) end,
    }
    for _, fn in ipairs(after) do
      local message, results = assert_fails("lost", client:with_lock("k", fn))
      assert.matches("deleted", message)
      assert.equal("done", results[1])
      assert.is_true(world.is_free("k"))
    end
  end)

  it("does not fail if the function released the lock itself", function()
    local client = world.client()
    assert.equal("done", client:with_lock("k", function(lock)
      assert(lock:acquire()) assert(lock:release()) assert(lock:release())
      return "done"
    end))
    assert.equal("lost", select(3, client:with_lock("k", function(lock)
      assert(lock:acquire()) assert(lock:release())
      world.cli("DEL", "k")
    end)))
  end)
end)

describe("a failed release by with_lock's function", function()
  local client

  before_each(function() client = world.client { command_timeout = 0.5 } end)

  local function stopped(release, ...)
    world.server:kill("STOP")
    local code = select(3, release(...))
    world.server:kill("CONT")
    assert.equal("unreachable", code)
    return "done"
  end

  local function succeeds(fn)
    assert.equal("done", client:with_lock("k", fn))
    assert.is_true(world.is_free("k"))
  end

  it("is completed in the background, and with_lock succeeds", function()
    succeeds(function(lock) return stopped(lock.release, lock) end)
    assert.equal("done", client:lead("k", function(term) return stopped(term.resign, term) end))
    assert.is_true(world.is_free("k"))
  end)

  it("of a hold that the function acquired does not make with_lock fail", function()
    succeeds(function(lock)
      assert(lock:acquire())
      stopped(lock.release, lock)
      assert.is_true(lock:is_held())
      assert(lock:release())
      return "done"
    end)
  end)

  it("that the server denied does not make with_lock fail", function()
    succeeds(function(lock)
      world.cli("ACL", "SETUSER", "default", "-evalsha", "-eval")
      local code = select(3, lock:release())
      world.cli("ACL", "SETUSER", "default", "+evalsha", "+eval")
      assert.equal("denied", code)
      return "done"
    end)
  end)
end)

describe("a client closed in with_lock", function()
  it("makes every call that runs a function return nil, a message, closed and the results", function()
    local calls = {
      function(client, close) return client:lead("k", { once = true }, close) end,
      function(client, close) return client:one_by_one():execute("t", 1, close) end,
      function(client, close) return client:semaphore("s", { permits = 1 }):with_permit(close) end,
    }
    local options = { {}, { async_release = true }, { abort_on_loss = true }, { keep = 1 } }
    for _, opts in ipairs(options) do
      calls[#calls + 1] = function(client, close) return client:with_lock("k", opts, close) end
    end
    for _, call in ipairs(calls) do
      local client = world.client()
      local _, results = assert_fails("closed", call(client, function()
        client:close()
        assert.equal(0, world.cli("EXISTS", "k"))
        return "done"
      end))
      assert.same({ n = 1, "done" }, results)
    end
    world.cli("DEL", "s")
  end)

  it("does not fail the call if the function released the lock before", function()
    local client = world.client()
    assert.equal("done", client:with_lock("k", function(lock)
      assert(lock:release())
      client:close()
      return "done"
    end))
  end)

  it("does not hide the function's own error", function()
    local client, reason = world.client(), {}
    assert.same(pack(false, reason), pack(pcall(client.with_lock, client, "k", function()
      client:close()
      error(reason)
    end)))
  end)

  it("before the function begins prevents it from running", function()
    local runs = {
      function(client) return client:with_lock("k", error) end,
      function(client) return client:lead("k", { once = true }, error) end,
      function(client) return client:one_by_one():execute("t", 1, error) end,
      function(client) return client:idempotent("k", error) end,
      function(client) return client:semaphore("s", { permits = 1 }):with_permit(error) end,
    }
    for _, run in ipairs(runs) do
      local client
      client = world.client { on_event = function(event)
        if event.event == "acquired" then client:close() end
      end }
      local result = pack(run(client))
      assert.same({ n = 3, nil, result[2], "closed" }, result)
      assert.matches("^.*cannot acquire ", result[2])
    end
    world.cli("DEL", "s")
  end)
end)

describe("abort_on_loss", function()
  local function lose_and_compute(key)
    world.cli("DEL", key)
    compute_until(nil, 20)
    return "ran to its end"
  end

  -- Asserts that with_lock returns `lost` long before fn would end. → its message
  local function assert_aborted(client, key, fn)
    local started = process.now()
    local message, results = assert_fails("lost", client:with_lock(key, { abort_on_loss = true }, fn))
    assert.is_nil(results)
    assert.is_true(process.now() - started < 10)
    return message
  end

  it("aborts a computing function soon after the loss, even in a JIT-compiled loop", function()
    for _ = 1, 3 do compute_until(nil, 0.02) end
    local message = assert_aborted(world.client { lease = LEASE }, "k", function()
      return lose_and_compute("k")
    end)
    assert.matches('^cannot release "k" on .*: its key was deleted on the server', message)
  end)

  it("aborts a function that catches errors", function()
    local caught
    assert_aborted(world.client { lease = LEASE }, "k", function()
      caught = select(2, pcall(lose_and_compute, "k"))
      compute_until(nil, 20)
    end)
    assert.equal('holdfast: the lock "k" was lost (deleted) while it was still needed', tostring(caught))
  end)

  it("does not disturb a function that keeps its lock", function()
    local client = world.client { lease = LEASE }
    assert.same(pack(1, nil), pack(client:with_lock("k", { abort_on_loss = true }, function()
      compute_until(nil, 2 * LEASE)
      return 1, nil
    end)))
  end)

  it("aborts the outer function from inside an inner one", function()
    local client = world.client { lease = LEASE }
    local inner
    assert_aborted(client, "outer", function()
      inner = pack(client:with_lock("inner", { abort_on_loss = true }, function()
        return lose_and_compute("outer")
      end))
      return "went on"
    end)
    assert.same({ nil, 0 }, { inner, world.cli("EXISTS", "inner") })
  end)

  it("aborts the outer function at once if both locks are lost", function()
    local client = world.client()
    local short, inner = { lease = 0.4, abort_on_loss = true }, nil
    local outer = pack(client:with_lock("outer", short, function()
      inner = pack(client:with_lock("inner", short, function()
        sys.sleep(0.5)
        return compute_until(function() return false end, 10)
      end))
      return "went on"
    end))
    assert.same({ nil, "lost", nil }, { inner, outer[3], outer[4] })
  end)

  it("aborts only the inner function if only its lock is lost", function()
    local client = world.client { lease = LEASE }
    assert.same(pack("went on"), pack(client:with_lock("outer", { abort_on_loss = true }, function()
      assert_aborted(client, "inner", function() return lose_and_compute("inner") end)
      return "went on"
    end)))
  end)

  it("still watches the outer lock after the inner call has ended, even in a coroutine", function()
    local client = world.client { lease = LEASE }
    coroutine.wrap(function()
      assert_aborted(client, "outer", function()
        client:with_lock("inner", { abort_on_loss = true }, function() end)
        return lose_and_compute("outer")
      end)
    end)()
  end)

  it("keeps the caller's debug hook working", function()
    local client = world.client()
    local count = 0
    local function hook() count = count + 1 end
    debug.sethook(hook, "", 100)
    local called = client:with_lock("k", { abort_on_loss = true }, function()
      count = 0
      return compute_until(function() return count > 0 end, 5)
    end)
    local after = { debug.gethook() }
    debug.sethook()
    assert.same({ { hook, "", 100 }, true }, { after, called })
    client:with_lock("k", { abort_on_loss = true }, function() end)
    assert.is_nil(debug.gethook())
  end)

  it("keeps the caller's line hook working while it watches the lock", function()
    local client, seen, inside = world.client { lease = LEASE }, {}, nil
    local function hook(event, line) seen[event .. " " .. type(line)] = true end
    debug.sethook(hook, "l")
    local result = pack(client:with_lock("k", { abort_on_loss = true }, function()
      seen = {}
      compute_until(nil, 0.02)
      inside, seen = seen, {}
      return lose_and_compute("k")
    end))
    local after = { debug.gethook() }
    debug.sethook()
    assert.same({ { ["line number"] = true }, { hook, "l", 0 }, "lost" }, { inside, after, result[3] })
  end)

  it("keeps no caller's hook alive", function()
    local client, left = world.client(), setmetatable({}, { __mode = "k" })
    for i = 1, 20 do
      local function hook() return i end
      left[hook] = true
      debug.sethook(hook, "", 1000)
      client:with_lock("k", { abort_on_loss = true }, function() end)
      debug.sethook()
    end
    for _ = 1, 3 do collectgarbage() end
    assert.is_true(count_of(left) < 10, count_of(left)) -- a stale slot of the stack may keep one
  end)

  if rawget(_G, "jit") then
    it("turns LuaJIT's compiler back on afterwards, unless the program had turned it off", function()
      local client = world.client()
      local is_on, inside = jit.status()
      finally(function() jit[is_on and "on" or "off"]() end)
      for _, mode in ipairs { "off", "on" } do
        jit[mode]()
        client:with_lock("k", { abort_on_loss = true }, function() inside = jit.status() end)
        assert.same({ false, mode == "on" }, { inside, (jit.status()) })
      end
    end)
  end

  it("is refused if the caller has a debug hook written in C", function()
    local child = world.run [[
      debug.gethook = function() return "external hook", "", 100 end
      local client = require("holdfast").new(arg[1])
      local function run() print "run" end
      print(pcall(client.with_lock, client, "k", { abort_on_loss = true }, run))
      print(pcall(client.lead, client, "k", { once = true, abort_on_loss = true }, run))
      print(pcall(function() return client:one_by_one():execute("k", 1, { abort_on_loss = true }, run) end))
      local pool = client:semaphore("pool", { permits = 1 })
      print(pcall(pool.with_permit, pool, { abort_on_loss = true }, run))
      print(client:lock("k"):ttl(), client:mutex("k_1"):ttl(), client:lock("pool"):ttl())
    ]]
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    local refused = "false\t[^\n]*abort_on_loss does not work alongside a debug hook set from C[^\n]*\n"
    assert.matches("^" .. refused:rep(4) .. "nil\tnil\tnil\n$", child:output())
  end)

  -- The hook is called every 1000 instructions. The loss comes at each place of a period before the
  -- function's end, so the hook comes at each place after it.
  local PERIOD = 1100

  local function spin(count)
    for _ = 1, count do end -- luacheck: ignore 542
  end

  local function lose(lock)
    world.cli("DEL", lock:key())
    assert.is_nil((lock:check()))
  end

  -- Calls run(i) in a coroutine for each place. → string of the result → how often
  local function sweep(run)
    local seen = {}
    for i = 1, PERIOD do
      local thread = coroutine.create(run)
      local what = select(2, assert(coroutine.resume(thread, i)))
      if debug.gethook(thread) or debug.gethook() then what = what .. ", and the hook stays" end
      seen[what] = (seen[what] or 0) + 1
    end
    return seen
  end

  local function outcome(fine, result, _, code)
    if not fine then return "raised " .. tostring(result) end
    return tostring(result) .. " " .. tostring(code)
  end

  it("never raises its error out of with_lock, wherever the function ends", function()
    local client = world.client()
    local seen = sweep(function(i)
      return outcome(pcall(client.with_lock, client, "k", { abort_on_loss = true }, function(lock)
        lose(lock)
        spin(i)
      end))
    end)
    assert.same({ ["nil lost"] = PERIOD }, seen)
  end)

  it("never replaces the function's own error by a different one", function()
    local client = world.client()
    local seen = sweep(function(i)
      return outcome(pcall(client.with_lock, client, "k", { abort_on_loss = true }, function(lock)
        spin(i % 2 * PERIOD / 2) -- in some runs, the hook is called right after the loss
        lose(lock)
        spin(i)
        error("mine", 0)
      end))
    end)
    assert.equal(PERIOD, (seen["raised mine"] or 0) + (seen["nil lost"] or 0))
    assert.is_true(seen["raised mine"] > 0)
  end)

  it("for an outer lock leaves no inner lock held", function()
    local client = world.client()
    collectgarbage("stop") -- the collector would release what was forgotten
    local seen = sweep(function(i)
      local function body(lock)
        lose(lock)
        client:with_lock("inner", function() spin(i) end)
        return "whole"
      end
      local what = outcome(pcall(client.with_lock, client, "outer", { abort_on_loss = true }, body))
      return what .. ", inner " .. world.cli("EXISTS", "inner")
    end)
    collectgarbage("restart")
    assert.equal(PERIOD, seen["nil lost, inner 0"])
  end)

  describe("lets a callback for the loss finish:", function()
    local begun, ended, client, opts

    local function callback(what)
      if type(what) == "table" and what.event ~= "lost" then return end
      begun = begun + 1
      spin(5000)
      ended = ended + 1
    end

    before_each(function() begun, ended, client = 0, 0, world.client { lease = LEASE } end)

    local WAYS = {
      on_lost = function() opts = { abort_on_loss = true, on_lost = callback } end,
      ["the lock's on_event"] = function() opts = { abort_on_loss = true, on_event = callback } end,
      ["the client's on_event"] = function()
        client, opts = world.client { lease = LEASE, on_event = callback }, { abort_on_loss = true }
      end,
    }

    local function assert_aborted_once(fn)
      local result, _, code, results = client:with_lock("k", opts, fn)
      assert.is_nil(result)
      assert.same({ "lost" }, { code, results })
      assert.same({ 1, 1 }, { begun, ended })
    end

    for name, choose in pairs(WAYS) do
      it(name .. ", called by the call that found the loss", function()
        choose()
        assert_aborted_once(function(lock)
          world.cli("DEL", "k")
          lock:check()
          lock:is_held()
          compute_until(nil, 20)
          return "whole"
        end)
      end)

      it(name .. ", called by a later call", function()
        choose()
        assert_aborted_once(function(lock)
          world.cli("DEL", "k")
          local deadline = process.now() + 20
          while process.now() < deadline do lock:is_held() end
          return "whole"
        end)
      end)
    end

    it("the client's on_event, even after an on_lost called within it", function()
      local other, losses
      losses, client = 0, world.client { lease = LEASE, on_event = function(event)
        if event.event ~= "lost" or event.key ~= "k" then return end
        begun = begun + 1
        other:check()
        other:is_held() -- calls the on_lost
        spin(5000)
        ended = ended + 1
      end }
      opts = { abort_on_loss = true }
      other = assert(client:lock("other", { on_lost = function() losses = losses + 1 end }):acquire())
      assert_aborted_once(function(lock)
        world.cli("DEL", "k", "other")
        lock:check()
        compute_until(nil, 20)
        return "whole"
      end)
      assert.equal(1, losses)
    end)

    it("a with_lock inside the callback is aborted only when its own lock is lost", function()
      local inner, outer
      client = world.client()
      opts = { abort_on_loss = true, on_lost = function()
        inner = pack(client:with_lock("inner", { abort_on_loss = true }, function(lock)
          lose(lock)
          compute_until(nil, 20)
          return "whole"
        end))
        spin(5000)
        ended = ended + 1
      end }
      outer = pack(client:with_lock("k", opts, function(lock)
        lose(lock)
        lock:is_held()
        compute_until(nil, 20)
        return "whole"
      end))
      assert.same({ "lost", "lost", 1 }, { inner[3], outer[3], ended })
    end)
  end)

  it("aborts at the end of the holdfast call in which the hook checks the lock", function()
    local client, most = world.client(), 0
    for i = 1, 100 do
      local calls = 0
      client:with_lock("k", { abort_on_loss = true }, function(lock)
        lose(lock)
        spin(i)
        for _ = 1, 10000 do
          calls = calls + 1
          lock:is_held()
        end
      end)
      most = math.max(most, calls)
    end
    assert.is_true(most < 100, most .. " calls") -- each is more than 10 instructions
  end)

  it_yields("watches each of several coroutines, whichever ends first", function()
    local client = world.client()
    local jit = rawget(_G, "jit")
    local compiles = jit and jit.status()
    local function start(key, work)
      local thread = coroutine.create(function()
        return client:with_lock(key, { abort_on_loss = true }, function(lock)
          coroutine.yield()
          return work(lock)
        end)
      end)
      assert(coroutine.resume(thread))
      return thread
    end
    local function compute(lock)
      lose(lock)
      compute_until(nil, 20)
      return "ran to its end"
    end
    local function finds(thread)
      local began = process.now()
      assert.equal("lost", (select(4, coroutine.resume(thread))))
      assert.is_true(process.now() - began < 10)
    end
    local function ends(thread) assert.same(pack(true, "end"), pack(coroutine.resume(thread))) end
    local function work() return "end" end
    local older, newer = start("a", work), start("b", compute)
    ends(older)
    finds(newer)
    older, newer = start("a", compute), start("b", work)
    ends(newer)
    finds(older)
    assert.is_nil(debug.gethook())
    assert.equal(compiles, jit and jit.status())
  end)

  it_yields("leaves no hook of a coroutine that is collected", function()
    local client = world.client()
    local function leave()
      assert(coroutine.resume(coroutine.create(function()
        client:with_lock("k", { abort_on_loss = true }, function() coroutine.yield() end)
      end)))
    end
    leave()
    assert.is_true(compute_until(function()
      collectgarbage()
      return debug.gethook() == nil and world.cli("EXISTS", "k") == 0
    end, 20))
  end)
end)
