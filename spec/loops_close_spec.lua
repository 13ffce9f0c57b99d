-- Event loops: client:close, after which nothing keeps the loop running.

local holdfast = require "holdfast"
local looped = require "spec.support.looped"
local loops = require "spec.support.loops"
local process = require "spec.support.process"

local quietly = looped.quietly

for _, loop in ipairs(loops) do
  describe("the event loop " .. loop.name, function()
    local world, server, client = looped.new(loop), nil, nil
    local breaking = world.breaking
    local collects, eventually, is_free = world.collects, world.eventually, world.is_free
    local new, waiters = world.client, world.waiters
    local run = loop.run
    local function it_runs(name, fn) it(name, function() run(fn) end) end

    before_each(function() server, client = world.open() end)
    after_each(world.close)

    it("ends waits and frees locks when the client is closed, and leaves nothing behind", function()
      local codes = {}
      run(function()
        local other = new()
        local held = assert(client:lock("a"):acquire())
        for i = 1, 3 do
          loop.spawn(function() codes[i] = select(3, other:lock("a"):acquire(30)) or "none" end)
        end
        eventually(function() return waiters("a") == 3 end)
        other:close()
        eventually(function() return #codes == 3 end)
        assert.equal(0, waiters("a"))
        client:close()
        assert.is_true(is_free("a"))
        assert.is_false(held:is_held())
        assert.equal("closed", (select(3, held:acquire())))
        eventually(function() return server:leaks().clients == 0 end)
      end)
      assert.same({ "closed", "closed", "closed" }, codes)
    end)

    it("returns closed from with_lock if another coroutine closes the client", function()
      local entered, closed, result = false, false, nil
      run(function()
        loop.spawn(function()
          result = { client:with_lock("a", function(lock)
            entered = true
            eventually(function() return closed end)
            assert.is_false(lock:is_held())
            return "done"
          end) }
        end)
        eventually(function() return entered end)
        client:close()
        assert(new():lock("a"):acquire(0)):release()
        closed = true
        eventually(function() return result ~= nil end)
      end)
      assert.is_nil(result[1])
      assert.equal("closed", result[3])
      assert.equal("done", result[4][1])
    end)

    it("returns from client:close as soon as the locks are free", function()
      local least = math.huge
      run(function()
        for _ = 1, 5 do
          local one = new()
          assert(one:lock("a"):acquire(5))
          local from = process.now()
          one:close()
          least = math.min(least, process.now() - from)
          assert.is_true(is_free("a"))
        end
      end)
      assert.is_true(least < 0.5, least) -- without a wake-up, it would look once a second
    end)

    it("frees locks when the client is closed even if its background task raises an error", function()
      local closing, released_at = false, nil
      local one = new { driver = breaking(function() return closing end) }
      quietly(function()
        run(function()
          assert(one:lock("a"):acquire(5))
          loop.sleep(0.05) -- the task rests
          server:cli("CLIENT", "PAUSE", 300)
          closing = true
          one:close()
          released_at = process.now()
        end)
      end)
      assert.is_true(process.now() - released_at < 10)
      process.eventually(function() return is_free("a") end, 10)
      process.eventually(function() return server:leaks().clients == 0 end, 10)
    end)

    it("returns from client:close, and ends, even if a server is down", function()
      local from, returned
      run(function()
        local hasty = new { command_timeout = 1, lease = 30 }
        assert(hasty:lock("a"):acquire())
        server:kill()
        from = process.now()
        hasty:close()
        returned = process.now()
      end)
      assert.is_true(returned - from < 10, returned - from)
      assert.is_true(process.now() - returned < 10, process.now() - returned)
    end)

    -- The loop ends at most 5 s after fn.
    local function ends_soon(fn)
      local from
      run(function()
        fn()
        from = process.now()
      end)
      assert.is_true(process.now() - from < 5)
    end

    it("is not kept running by a release after client:close", function()
      ends_soon(function()
        local lock = assert(client:lock("a"):acquire())
        client:close()
        assert.is_nil(lock:release())
      end)
    end)

    it("allows client:close outside the loop", function()
      run(function() assert(client:with_lock("a", function() end)) end)
      client:close()
      assert.equal(0, server:leaks().clients)
      new():close()
    end)

    it("frees locks on close after the loop has stopped", function()
      if loop.name ~= "copas" then return end -- the other loops run while a lock is held
      local held
      run(function() held = assert(client:lock("a", { owner = "me" }):acquire()) end)
      assert.is_true(held:is_held())
      client:close()
      assert.is_true(is_free("a"))
      assert.is_false(held:is_held())
      assert.equal(0, server:leaks().clients)
      run(function() end) -- the client's task ends when the loop goes on
    end)

    it_runs("leaves no connection and no lock of a collected client", function()
      local before = server:leaks().clients
      local function leave()
        local lost = holdfast.new { url = server:url(), driver = loop.driver }
        assert.is_true(assert(lost:lock("a"):acquire()):is_held())
      end
      leave()
      collects(function() return is_free("a") and server:leaks().clients == before end)
    end)

    it("completes an async release before close returns", function()
      local slow = new { command_timeout = 3 }
      local lock = slow:lock("a", { owner = "me", async_release = true })
      run(function()
        assert(lock:acquire(0))
        server:kill("STOP")
        assert(lock:release())
        loop.spawn(function()
          loop.sleep(0.2)
          server:kill("CONT")
        end)
        slow:close()
      end)
      process.eventually(function() return is_free("a") end, 5)
    end)
  end)
end
