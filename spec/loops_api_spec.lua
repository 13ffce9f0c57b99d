-- The API in event loops: callers wait in coroutines, while the loop continues.

local holdfast = require "holdfast"
local looped = require "spec.support.looped"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local quietly = looped.quietly

describe("an event loop", function()
  it("written by the user is checked for the functions it must have", function()
    local function new(driver)
      return select(2, pcall(function() local _ = holdfast.new { driver = driver } end))
    end
    assert.matches("loops_%l+_spec.lua:%d+: .*driver must be a loop .*not one without check", new {})
    local function nothing() end
    assert.matches("not one without watch", new { check = nothing, spawn = nothing, signal = nothing })
    assert.matches('driver must be one of "posix".*"luv", or your own loop', new "carrier pigeon")
    assert.matches("driver must be one of", new(7))
  end)

  it("is named in the message if its library is not installed", function()
    local child = process.lua { code = [[
      package.preload.cqueues = function() error("no cqueues here", 0) end
      package.preload["cqueues.condition"] = package.preload.cqueues
      print(pcall(function() local _ = require("holdfast").new { driver = "cqueues" } end))
    ]] }
    assert.equal("exit", (child:wait(20)))
    assert.matches("^false\t[^\n]+:3: holdfast.new: driver: .*no cqueues here", child:output())
  end)

  -- The lock is newer than the operations that it uses again, so its finalizer runs first.
  it("may be collected before its operations, and a lock before the operations on it", function()
    local server = redis.start()
    local function child_of(code)
      local child = process.lua { args = { server:url() }, code = [[
        local raw, load = require("holdfast.core").lock, require("holdfast.core").engine.load
        local function nothing() end
        local client = require("holdfast").new {
          url = arg[1],
          driver = { check = nothing, watch = nothing, spawn = nothing, signal = nothing },
        }
        local function wait()
          local ops = {}
          for i = 1, 2 do ops[i] = raw.begin(client:lock("first"), "info") end
          for i = 1, 2 do ops[i]:finish() end
          local lock = client:lock("second")
          for i = 1, 2 do raw.begin(lock, "acquire", 20, nil, ops[i]) end
          return raw.data(lock).client
        end
        local core = wait()
        print(load(core))
      ]] .. code }
      local how, status = child:wait(20)
      return child:output() .. how .. " " .. tostring(status)
    end
    local collected = child_of [[
      for _ = 1, 3 do collectgarbage() end
      print(load(core))
    ]]
    assert.matches("^2\t.*\n0\t.*\nexit 0$", collected)
    assert.matches("^2\t.*\nexit 0$", child_of "os.exit(0, true)")
    server:stop()
  end)
end)

for _, loop in ipairs(loops) do
  describe("the event loop " .. loop.name, function()
    local world, server, client = looped.new(loop), nil, nil
    local new, assert_on_time, breaking = world.client, world.assert_on_time, world.breaking
    local eventually, is_free = world.eventually, world.is_free
    local tick = world.tick
    local function it_runs(name, fn) it(name, function() loop.run(fn) end) end
    local run = loop.run

    before_each(function() server, client = world.open() end)
    after_each(world.close)

    it("supports the same API with the same error codes", function()
      run(function()
        local lock = client:lock("a")
        assert.equal(lock, lock:acquire(1))
        assert.equal(lock, lock:acquire())
        assert.same({ 2, true, true }, { lock:holds(), lock:is_held(), lock:check() })
        assert.equal(lock:owner(), lock:info().owner)
        assert.is_true(lock:ttl() > 20 and lock:is_locked())
        assert.is_true(lock:extend(10) and lock:remaining() < 10)
        assert.is_true(lock:release() and lock:release())
        assert.equal("not_held", (select(3, lock:release())))
        local mine, other = client:lock("b", { owner = "one" }), client:lock("b", { owner = "two" })
        assert(mine:acquire())
        local from = process.now()
        assert.equal("busy", (select(3, other:acquire(0))))
        assert.is_true(process.now() - from < 5)
        assert.equal("busy", (select(3, other:acquire(1))))
        assert.is_true(other:force_release())
        assert.equal("lost", (select(3, mine:release())))
        local function use(held, x) return held:is_held(), x end
        local function fail() error("bad", 0) end
        assert.same({ true, 2 }, { client:with_lock("c", use, 2) })
        assert.same({ false, "bad" }, { pcall(client.with_lock, client, "c", fail) })
        assert.equal("one", client:one_by_one():execute("order", 7, function() return "one" end))
        assert.equal("first", client:idempotent("d", function() return "first" end))
        assert.equal("duplicate", (select(3, client:idempotent("d", function() return "second" end))))
        local pages = client:read_write_lock("h")
        assert(pages:read():acquire())
        assert.equal("deadlock", (select(3, pages:write():acquire())))
        assert.is_true(pages:read():release())
        assert.same({ "w" }, { client:with_write_lock("h", function() return "w" end) })
        local both = client:multi_lock { "e", "f" }
        assert.equal(both, both:acquire())
        assert.is_true(both:is_held() and both:release())
        local mutex = assert(client:mutex("g"):acquire())
        assert.is_true(mutex:release())
        assert.is_true(client:ping() < 3)
      end)
      server:cli("FLUSHALL")
      assert.is_true(client:stats().connections <= 2)
    end)

    it("serves 200 coroutines on one key in order without delaying a timer", function()
      assert_on_time(function()
        local count, order, late, left = 0, {}, nil, 200
        for i = 1, 200 do
          loop.spawn(function()
            assert(client:with_lock("a", { wait = 60 }, function()
              local seen = count
              loop.sleep(0.001)
              count = seen + 1
              order[#order + 1] = i
            end))
            left = left - 1
          end)
        end
        loop.spawn(function() late = tick(function() return left == 0 end) end)
        loop.run()
        assert.equal(200, count)
        for i = 1, 200 do assert.equal(i, order[i]) end
        return late
      end)
      assert.is_true(client:stats().connections <= 2)
    end)

    it("lets several coroutines read at once, and only one write", function()
      local readers, writer, most, left = 0, false, 0, 60
      -- The nine before the first writer wait for each other.
      local function stay()
        for _ = 1, 5000 do
          loop.sleep(0.002)
          if most >= 9 then return end
        end
      end
      for i = 1, 60 do
        local half = i % 10 == 0 and "with_write_lock" or "with_read_lock"
        loop.spawn(function()
          assert(client[half](client, "a", { wait = 60 }, function()
            assert(not writer)
            if half == "with_write_lock" then writer = assert(readers == 0) else readers = readers + 1 end
            most = math.max(most, readers)
            stay()
            if half == "with_write_lock" then writer = false else readers = readers - 1 end
          end))
          left = left - 1
        end)
      end
      loop.run()
      assert.equal(0, left)
      assert.is_true(most >= 9, most .. " readers at once")
      assert.is_true(client:stats().connections <= 2)
    end)

    it("never has more coroutines inside than a semaphore has permits", function()
      local pool = client:semaphore("pool", { permits = 3, wait = 60 })
      local inside, most, left = 0, 0, 20
      for _ = 1, 20 do
        loop.spawn(function()
          assert(pool:with_permit(function()
            inside = inside + 1
            most = math.max(most, inside)
            loop.sleep(0.002)
            inside = inside - 1
          end))
          left = left - 1
        end)
      end
      loop.run()
      assert.same({ true, 0 }, { most <= 3, left })
    end)

    it("lets many coroutines start an acquire on one handle at once", function()
      local half = client:read_write_lock("k"):read()
      local lock = new { async_release = true }:lock("a")
      local got = 0
      for _ = 1, 20 do
        loop.spawn(function()
          assert(half:acquire(20))
          loop.sleep(0.01)
          assert(half:release()) assert(lock:acquire(20))
          loop.sleep(0.001)
          assert(lock:release())
          got = got + 1
        end)
      end
      loop.run()
      assert.equal(20, got)
    end)

    it("raises an error at the line of a call outside the loop", function()
      local fine, message = pcall(function()
        local lock = client:lock("a")
        local _ = lock:acquire(0)
      end)
      assert.is_false(fine)
      assert.matches("loops_%l+_spec.lua:%d+: holdfast: cannot acquire here: the call has to wait for the server, which is impossible outside ", message)
      fine, message = pcall(function() local _ = client:ping() end)
      assert.is_false(fine)
      assert.matches("loops_%l+_spec.lua:%d+: holdfast: cannot ping here: the call has to wait", message)
      assert.is_false(client:lock("a"):is_held())
    end)

    it_runs("supports abort_on_loss, or refuses it under LuaJIT #puc", function()
      local lock_lost = { abort_on_loss = true, lease = 1 }
      if rawget(_G, "jit") then
        local fine, message = pcall(function()
          local _ = client:with_lock("a", lock_lost, print)
        end)
        assert.is_false(fine)
        assert.matches("loops_%l+_spec.lua:%d+: holdfast: abort_on_loss", message)
        local template, ran = client:one_by_one(), false
        fine, message = pcall(function()
          local _ = template:execute("a", 1, { abort_on_loss = true }, function() ran = true end)
        end)
        assert.is_false(fine or ran)
        assert.matches("loops_%l+_spec.lua:%d+: holdfast: abort_on_loss", message)
        return
      end
      local other
      loop.spawn(function()
        other = client:with_lock("b", { abort_on_loss = true }, function()
          loop.sleep(2)
          return "whole"
        end)
      end)
      local is_whole
      local _, _, code = client:with_lock("a", lock_lost, function()
        loop.sleep(0.1)
        local till = process.now() + 20
        while process.now() < till do end
        is_whole = true
      end)
      assert.same({ "lost", nil }, { code, is_whole })
      eventually(function() return other == "whole" end)
    end)

    it("raises an error at the line of a call in a generator, and leaves no lock", function()
      local function rows() client:with_lock("a", function() coroutine.yield("row") end) end
      run(function()
        local next_row = coroutine.wrap(rows)
        local fine, message = pcall(next_row)
        if fine then fine, message = pcall(next_row) end
        assert.is_false(fine)
        assert.matches("^spec/loops_%l+_spec.lua:%d+: holdfast: ", message)
        eventually(function() return is_free("a") end)
      end)
    end)

    it("names server and key in a failure, with control characters escaped", function()
      for _, driver in ipairs { loop.driver, breaking(function() return "broken" end) } do
        local one = holdfast.new { url = "unix:///nowhere/redis.sock", driver = driver }
        local messages
        quietly(function()
          run(function()
            messages = { (select(2, one:ping())), (select(2, one:lock("a\27[1m"):acquire(0))) }
          end)
        end)
        for _, message in ipairs(messages) do
          assert.matches("/nowhere/redis.sock", message, 1, true)
          assert.is_nil(message:find("\27", 1, true))
        end
        assert.matches('^cannot ping on [^"]*$', messages[1])
        assert.matches('^cannot acquire "a', messages[2])
        one:close()
      end
    end)

    it_runs("lets one owner's second acquire wait for the first, and re-enter", function()
      local other = assert(client:lock("a", { owner = "other" }):acquire())
      local mine, entered = client:lock("a", { owner = "me" }), 0
      for _ = 1, 3 do
        loop.spawn(function()
          assert(mine:acquire(20))
          entered = entered + 1
        end)
      end
      eventually(function() return other:info().waiters == 1 end)
      assert.equal("busy", (select(3, mine:acquire(0))))
      assert.equal("busy", (select(3, mine:acquire(0.01))))
      assert(other:release())
      eventually(function() return entered == 3 end)
      assert.equal(3, mine:holds())
      for _ = 1, 3 do assert(mine:release()) end
      assert.is_true(is_free("a"))
    end)
  end)
end
