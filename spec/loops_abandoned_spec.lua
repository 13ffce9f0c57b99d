-- Event loops: what is left of callers whose coroutine is closed, raises an error or is collected.

local core = require "holdfast.core"
local holdfast = require "holdfast"
local looped = require "spec.support.looped"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

for _, loop in ipairs(loops) do
  describe("the event loop " .. loop.name, function()
    local world, server, client = looped.new(loop), nil, nil
    local begin, close_coroutine, collects = world.begin, world.close_coroutine, world.collects
    local eventually, is_free, new = world.eventually, world.is_free, world.client
    local waiters = world.waiters
    local function it_runs(name, fn) it(name, function() loop.run(fn) end) end
    local run = loop.run
    local wait_until = loop.wait_until

    before_each(function() server, client = world.open() end)
    after_each(world.close)

    it("keeps no lock alive after a call has ended", function()
      local alive = setmetatable({}, { __mode = "k" })
      local function use()
        local lock = client:lock("a")
        alive[lock] = true
        assert(lock:acquire())
        assert(lock:release())
      end
      run(function() for _ = 1, 3 do use() end end)
      process.eventually(function()
        collectgarbage()
        return next(alive) == nil
      end)
    end)

    it("removes a waiter from the queue if its wait raises an error", function()
      local base, signals, cancelled = world.plain, {}, nil
      local function signal()
        local inner, thread = base.signal(), coroutine.running()
        signals[thread] = inner
        return {
          wait = function(_, seconds)
            local fired = inner:wait(seconds)
            if cancelled == thread then error("cancelled", 0) end
            return fired
          end,
          fire = function() inner:fire() end,
        }
      end
      local cancelling = new { driver = {
        check = base.check, spawn = base.spawn, watch = base.watch, signal = signal,
      } }
      run(function()
        local held, failure, over = assert(client:lock("a"):acquire()), nil, false
        local waiting = begin(function()
          local lock = cancelling:lock("a")
          failure = select(2, pcall(lock.acquire, lock, 60))
          cancelled = nil
          eventually(function() return over end)
        end)
        eventually(function() return waiters("a") == 1 end)
        cancelled = waiting
        signals[waiting]:fire()
        local left = wait_until(function() return waiters("a") == 0 end, 5)
        over = true
        assert.is_true(held:release())
        assert.is_true(left)
        assert.equal("cancelled", failure)
        assert.is_true(is_free("a"))
      end)
    end)

    it_runs("frees a lock at once when its handle is collected", function()
      local function leave() assert(client:lock("a"):acquire()) end
      leave()
      assert.is_false(is_free("a"))
      collects(function() return is_free("a") end, 0.5)
    end)

    it("releases a to-be-closed variable, whichever coroutine closes it #puc", function()
      if not close_coroutine then return end
      local hold = assert(load([[
        local take, wait = ...
        local held <close> = assert(take())
        wait()
      ]]))
      local makers = {
        a = function() return client:lock("a"):acquire() end,
        b = function() return client:semaphore("b", { permits = 1 }):acquire() end,
        c = function() return client:multi_lock { "c", "d" }:acquire() end,
      }
      run(function()
        for key, take in pairs(makers) do
          local holding
          local failing = begin(function()
            hold(take, function() holding = true coroutine.yield(loop.driver) end)
          end)
          eventually(function() return holding end)
          if key ~= "b" then assert.is_false(is_free(key)) end
          assert.is_true(close_coroutine(failing))
          eventually(function() return key ~= "b" and is_free(key) or server:cli("GET", "b") == "1" end)
        end
      end)
    end)

    it_runs("holds no lock of a multi-lock whose coroutine is closed while it waits #puc", function()
      if not close_coroutine then return end
      local held, both = assert(client:lock("b"):acquire()), client:multi_lock { "a", "b" }
      local waiting = begin(function() both:acquire(60) end)
      eventually(function() return waiters("b") == 1 and not is_free("a") end)
      assert.is_true(close_coroutine(waiting))
      eventually(function() return is_free("a") and waiters("b") == 0 end)
      assert.is_true(held:release())
    end)

    it_runs("holds no lock of a multi-lock whose wait raises an error", function()
      if loop.name ~= "luv" then return end -- the others resume it again
      local held, both = assert(client:lock("b"):acquire()), client:multi_lock { "a", "b" }
      local failure
      local waiting = begin(function() failure = select(2, pcall(both.acquire, both, 60)) end)
      eventually(function() return waiters("b") == 1 and not is_free("a") end)
      coroutine.resume(waiting)
      eventually(function() return failure and is_free("a") and waiters("b") == 0 end)
      assert.matches("was resumed, but not by the event loop", failure)
      assert.is_true(held:release())
    end)

    it_runs("releases all locks of a multi-lock even if one release raises an error", function()
      if loop.name ~= "luv" then return end -- the others resume it again
      local acquired, failure
      local both = holdfast.multi_lock { new():lock("a"), new():lock("b") }
      local releasing = begin(function()
        acquired = assert(both:acquire(20))
        server:cli("CLIENT", "PAUSE", 300)
        failure = select(2, pcall(both.release, both))
      end)
      eventually(function() return acquired and not both:is_held() end)
      coroutine.resume(releasing)
      eventually(function() return failure and is_free("a") and is_free("b") end)
      assert.matches("was resumed, but not by the event loop", failure)
    end)

    it("raises the error of the roll-back when a multi-lock cannot be acquired", function()
      if loop.name ~= "luv" then return end -- the others resume it again
      local other = redis.start { tcp = true }
      local all = holdfast.multi_lock { new({ url = other:tcp_url() }):lock("0"), new():lock("a") }
      local taken = new():lock("a")
      run(function()
        local failure
        assert(taken:acquire(20))
        local acquiring = begin(function() failure = select(2, pcall(all.acquire, all, 0.3)) end)
        eventually(function() return waiters("a") == 1 end)
        other:kill("STOP")
        eventually(function() return waiters("a") == 0 end)
        loop.sleep(0.2)
        coroutine.resume(acquiring)
        other:kill("CONT")
        eventually(function() return failure and other:cli("EXISTS", "0") == 0 end)
        taken:release()
        assert.matches("was resumed, but not by the event loop", failure)
      end)
      other:stop()
    end)

    it("releases all locks of a multi-lock if its releasing coroutine is closed #puc", function()
      if not close_coroutine or loop.name ~= "luv" then return end -- the others resume it again
      local one, two = new(), new()
      local both, more = holdfast.multi_lock { one:lock("a"), two:lock("b") }, two:lock("b")
      run(function()
        local releasing
        loop.spawn(function()
          assert(more:acquire(20) and both:acquire(20))
          server:cli("CLIENT", "PAUSE", 300)
          releasing = coroutine.running() -- the lock is not held earlier, either
          both:release()
        end)
        eventually(function() return releasing and not both:is_held() end)
        assert.is_true(close_coroutine(releasing))
        eventually(function() return is_free("a") and server:cli("HVALS", "b")[1] == "1" end)
        two:close() -- the other hold is not released
      end)
    end)

    it("releases a coroutine's lock if it is closed while its listener waits #puc", function()
      if not close_coroutine then return end
      local waiting
      local opts = { on_event = function(event)
        if event.event ~= "acquired" then return end
        waiting = coroutine.running()
        coroutine.yield(loop.driver)
      end }
      run(function()
        local pool = client:plain_semaphore("pool", opts)
        assert(pool:set(1))
        local lock, both = client:lock("a", opts), client:multi_lock({ "b", "c" }, opts)
        local calls = {
          function() lock:acquire() end,
          function() both:acquire() end,
          function() client:with_lock("d", opts, print) end,
          function() pool:with_permit(print) end,
        }
        for i, call in ipairs(calls) do
          waiting = nil
          loop.spawn(call)
          eventually(function() return waiting ~= nil end, nil, i)
          assert.is_true(close_coroutine(waiting))
        end
        eventually(function()
          return is_free("a") and is_free("b") and is_free("c") and is_free("d")
            and pool:available() == 1
        end)
        assert.is_false(lock:is_held() or both:is_held())
      end)
    end)

    it("keeps no permits for a coroutine that is closed while it waits #puc", function()
      if not close_coroutine then return end
      for _, call in ipairs { "acquire", "drain" } do
        run(function()
          local pool = client:plain_semaphore("pool")
          pool:delete()
          assert(pool:set(3))
          loop.sleep(0.05) -- the task has ended
          server:cli("CLIENT", "PAUSE", "200")
          local waiting = begin(function() pool[call](pool) end)
          assert.is_true(coroutine.status(waiting) == "suspended" and close_coroutine(waiting))
          loop.sleep(0.5)
          eventually(function() return tonumber(server:cli("GET", "pool")) == 3 end)
        end)
      end
    end)

    it_runs("leaves neither a lock nor a place in the queue for a coroutine that is closed #puc", function()
      if not close_coroutine then return end
      local held, holding = assert(client:lock("a"):acquire()), nil
      local waiting = begin(function() client:lock("a"):acquire(60) end)
      loop.spawn(function()
        client:with_lock("b", function()
          holding = coroutine.running()
          coroutine.yield(loop.driver)
        end)
      end)
      eventually(function() return waiters("a") == 1 and holding ~= nil end)
      assert.is_true(close_coroutine(waiting))
      assert.is_true(close_coroutine(holding))
      eventually(function() return is_free("b") end)
      eventually(function() return waiters("a") == 0 end)
      assert.is_true(held:release())
    end)

    -- Returns a client whose woken callers do not continue between hold_back() and resume().
    local function late_callers()
      local held_back, fire_now = false, nil
      local function signal()
        local made = world.plain.signal()
        local function fire()
          if held_back then fire_now = made.fire else made.fire() end
        end
        return { wait = made.wait, fire = fire }
      end
      local late = { client = new { driver = world.with { signal = signal } } }
      function late.hold_back() held_back = true end
      function late.is_woken() return fire_now ~= nil end
      function late.resume()
        held_back = false
        fire_now()
      end
      return late
    end

    -- Acquires, and resumes the caller only when the keys, which it was granted, are free again.
    -- let_in() makes the keys free for the acquire; without it, they are free already.
    -- → the message and the code of the acquire
    local function acquire_and_cancel(late, lock, keys, let_in)
      local got, message, code = true, nil, nil
      local function are_free()
        for _, key in ipairs(keys) do
          if not is_free(key) then return false end
        end
        return true
      end
      if not let_in then late.hold_back() end
      loop.spawn(function() got, message, code = lock:acquire(60) end)
      if let_in then
        eventually(function() return waiters(keys[1]) == 1 end)
        late.hold_back()
        let_in()
      end
      eventually(late.is_woken)
      local freed = wait_until(are_free, 10)
      late.resume()
      eventually(function() return got ~= true end)
      late.client:close()
      assert.is_true(freed)
      return message, code
    end

    local has_little = type(loop.driver) == "table" and not rawget(_G, "jit")

    it_runs("treats a coroutine that was woken but does not continue as cancelled #puc", function()
      if not has_little then return end
      local held, late = assert(client:lock("a"):acquire()), late_callers()
      local message, code = acquire_and_cancel(late, late.client:lock("a"), { "a" }, function()
        held:release()
      end)
      assert.equal("interrupted", code)
      assert.matches('^cannot acquire "a" on .*: the calling coroutine was woken but did not continue', message)
    end)

    it_runs("leaves other handles' holds alone when a handle is abandoned during its release", function()
      local one, two = client:lock("a", { owner = "me" }), client:lock("a", { owner = "me" })
      for _, lock in ipairs { one, two } do assert(lock:acquire()) end
      local released
      server:kill("STOP")
      loop.spawn(function() released = one:release() end)
      loop.sleep(0.05)
      core.lock.abandon(one)
      server:kill("CONT")
      eventually(function() return released end)
      loop.sleep(0.05)
      assert.is_true(two:check())
      assert.is_true(two:release())
      assert.is_true(is_free("a"))
    end)

    it_runs("keeps each coroutine's loss in a handle even if another coroutine acquires through it", function()
      local function reader() return client:read_write_lock("a"):read() end
      local read, step, at, codes = reader(), 0, { 0, 0 }, {}
      local function reach(i, number)
        at[i] = number
        eventually(function() return step >= number end)
      end
      for i = 1, 2 do
        loop.spawn(function()
          assert(read:acquire(20))
          reach(i, 1)
          local since = read:check() or reader():acquire(20)
          reach(i, 2)
          codes[i] = select(3, read:check()) or "held"
          assert(since:release())
        end)
      end
      local function wait_for_both(number)
        eventually(function() return at[1] == number and at[2] == number end)
      end
      wait_for_both(1)
      server:cli("DEL", "a")
      step = 1
      wait_for_both(2)
      assert(read:acquire(20))
      step = 2
      eventually(function() return codes[1] ~= nil and codes[2] ~= nil end)
      assert.same({ "lost", "lost" }, codes)
      assert.is_true(read:release())
    end)

    it("leaves other handles' holds alone if a handle's release raises an error", function()
      if loop.name ~= "luv" then return end -- the others resume it again
      local short = new { lease = 1 }
      local function release_one(locks) return locks[1]:release() end
      local function release_all(locks) return holdfast.multi_lock(locks):release() end
      for keys, release in pairs { [{ "a" }] = release_one, [{ "a", "b" }] = release_all } do
        local lost, gone, kept, releasing, failure = {}, {}, {}, nil, nil
        run(function()
          loop.spawn(function()
            for _, key in ipairs(keys) do
              gone[#gone + 1] = assert(short:lock(key):acquire(20))
              kept[#kept + 1] = assert(short:lock(key, {
                on_lost = function() lost[key] = true end,
              }):acquire(20))
            end
            releasing = coroutine.running()
            server:cli("CLIENT", "PAUSE", 200)
            failure = select(2, pcall(release, gone))
          end)
          eventually(function() return releasing ~= nil end)
          coroutine.resume(releasing)
          assert.matches("was resumed, but not by the event loop", failure)
          for i, key in ipairs(keys) do
            assert.is_true(core.lock.standing(kept[i]) ~= nil)
            server:cli("DEL", key)
            eventually(function() return lost[key] end)
            assert.is_nil(core.lock.first_loss(gone[i]))
          end
        end)
      end
    end)

    it("frees the lock that an abandoned acquire has acquired", function()
      local function begin_all(keys)
        local locks = {}
        for i, key in ipairs(keys) do locks[i] = client:lock(key) end
        if #keys == 1 then return (core.lock.begin(locks[1], "acquire", 20)) end
        return (core.lock.begin_all(locks, "acquire_all"))
      end
      run(function()
        for _, keys in ipairs { { "a" }, { "a", "b" } } do
          for _, abandons in ipairs { true, false } do
            local op = begin_all(keys)
            eventually(function() return client:ping() and op:is_done() end)
            for _, key in ipairs(keys) do assert.is_false(is_free(key)) end
            if abandons then op:abandon() end
            op = nil -- luacheck: ignore 311
            for _, key in ipairs(keys) do
              collects(function() return client:ping() and is_free(key) end)
            end
          end
        end
      end)
    end)

    it_runs("holds no lock of a multi-lock acquired for a cancelled coroutine #puc", function()
      if not has_little then return end
      local late = late_callers()
      local both = late.client:multi_lock { "a", "b" }
      assert.equal("interrupted", select(2, acquire_and_cancel(late, both, { "a", "b" })))
    end)
  end)
end
