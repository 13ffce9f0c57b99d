-- Event loops: how losses and events are delivered.

local holdfast = require "holdfast"
local looped = require "spec.support.looped"
local loops = require "spec.support.loops"
local process = require "spec.support.process"

for _, loop in ipairs(loops) do
  describe("the event loop " .. loop.name, function()
    local world, server, client = looped.new(loop), nil, nil
    local close_coroutine, collects = world.close_coroutine, world.collects
    local eventually, is_free, lose = world.eventually, world.is_free, world.lose
    local new, waiters = world.client, world.waiters
    local run = loop.run
    local wait_until = loop.wait_until

    before_each(function() server, client = world.open() end)
    after_each(world.close)

    it("starts a single coroutine to deliver events, however late that coroutine runs", function()
      local is_slow, begun, lost = false, 0, false
      local one = new { on_event = function(event)
        lost = lost or event.event == "lost" and begun
      end, driver = world.with { spawn = function(fn)
        if not is_slow then return world.plain.spawn(fn) end
        begun = begun + 1
        world.plain.spawn(function()
          loop.sleep(0.3)
          fn()
        end)
      end } }
      run(function()
        local _ = lose(one)
        is_slow = true
        wait_until(function() return begun > 0 end)
        server:cli("CLIENT", "KILL", "TYPE", "pubsub") -- wakes the task
        server:cli("CLIENT", "KILL", "TYPE", "normal")
        eventually(function() return lost ~= false end)
        is_slow = false
        one:close()
      end)
      assert.equal(1, lost)
    end)

    it("loses no other lock while a listener waits for a lock", function()
      local listening, took
      listening = new { on_event = function(event)
        if event.event ~= "lost" then return end
        took = listening:with_lock("log", { wait = 60 }, function() return true end)
      end }
      run(function()
        local log = assert(client:lock("log"):acquire())
        local kept = listening:lock("kept", { lease = 2, watchdog = true })
        assert(kept:acquire())
        local lost = lose(listening)
        eventually(function() return waiters("log") == 1 end)
        loop.sleep(2.5)
        assert.is_nil(took)
        assert.is_true(kept:check())
        assert.is_true(log:release())
        eventually(function() return took end)
        assert.is_true(kept:release())
        assert.is_false(lost:is_held())
        listening:close()
      end)
    end)

    it("delivers every event even if a listener closes the client", function()
      for _, way in ipairs { "on_event", "on_lost" } do
        local seen, listening, closed = {}, nil, nil
        local function close()
          listening:close()
          closed = true
        end
        listening = new { on_event = function(event)
          seen[#seen + 1] = event.event
          if way == "on_event" and event.event == "lost" then close() end
        end }
        run(function()
          local kept = listening:lock("kept")
          assert(kept:acquire())
          local lock = listening:lock("a", {
            lease = 2, watchdog = true, on_lost = way == "on_lost" and close or nil,
          })
          assert(lock:acquire())
          server:cli("DEL", "a")
          eventually(function() return closed end, nil, way)
          assert.is_true(is_free("kept"))
          eventually(function() return seen[#seen] == "closed" end, nil, way)
        end)
        assert.same({ "opened", "acquired", "acquired", "lost", "released", "closed" }, seen)
      end
    end)

    it("delivers events one at a time to a listener that waits, including the last ones", function()
      local seen, inside, most = {}, 0, 0
      local listening = new { on_event = function(event)
        inside = inside + 1
        most = math.max(most, inside)
        loop.sleep(0.05)
        inside = inside - 1
        seen[#seen + 1] = event.event .. " " .. (event.key or "")
      end }
      run(function()
        local left = 2
        for _, key in ipairs { "b", "c" } do
          loop.spawn(function()
            assert(listening:with_lock(key, function() loop.sleep(0.01) end))
            left = left - 1
          end)
        end
        local lost = lose(listening)
        eventually(function() return left == 0 and listening:stats().losses == 1 end)
        assert.is_false(lost:is_held())
        listening:close()
        listening, lost = nil, nil -- luacheck: ignore 311
        collects(function() return seen[#seen] == "closed " end)
      end)
      assert.equal(1, most)
      table.sort(seen)
      assert.same({ "acquired a", "acquired b", "acquired c", "closed ", "lost a", "opened ",
        "released b", "released c" }, seen)
    end)

    it("delivers a client's last events even if another client's listener is still waiting", function()
      local alive, seen, waits, over = setmetatable({}, { __mode = "k" }), {}, false, false
      local slow = new { on_event = function()
        waits = true
        wait_until(function() return over end)
      end }
      local function use()
        local one = holdfast.new { url = server:url(), driver = loop.driver,
          on_event = function(event) seen[#seen + 1] = event.event end }
        alive[one] = true
        assert(one:with_lock("a", function() end))
        one:close()
      end
      run(function()
        loop.spawn(function() slow:with_lock("b", function() end) end)
        eventually(function() return waits end)
        use()
        collects(function() return next(alive) == nil end)
        over = true
        wait_until(function() return seen[#seen] == "closed" end)
      end)
      assert.same({ "opened", "acquired", "released", "closed" }, seen)
    end)

    it("delivers events after a coroutine that delivered them was closed #puc", function()
      if not close_coroutine then return end
      local seen, waiting, waits_at, losing = {}, nil, nil, nil -- luacheck: ignore 231
      local listening = new { on_event = function(event)
        seen[event.event .. " " .. (event.key or "")] = true
        if waiting or event.event ~= waits_at or event.key ~= "a" then return end
        waiting = coroutine.running()
        assert(client:lock("busy"):acquire(60))
      end }
      run(function()
        local busy = assert(client:lock("busy"):acquire())
        -- `acquired` comes in the coroutine of a call, `lost` in one that the client's task has
        -- made
        for at, key in pairs { acquired = "b", lost = "c" } do
          waiting, waits_at = nil, at
          loop.spawn(function() losing = lose(listening) end)
          eventually(function() return waiting ~= nil end, nil, at)
          assert.is_true(close_coroutine(waiting))
          assert(listening:with_lock(key, function() end))
          eventually(function() return seen["released " .. key] end, nil, at)
          assert.is_true(seen["acquired " .. key])
          server:cli("DEL", "a")
        end
        eventually(function() return waiters("busy") == 0 end)
        assert.is_true(busy:release())
        listening:close() -- this also frees the lock of the first closed coroutine
      end)
    end)

    it("reports a lock lost before its caller resumed, and starts no leader's term with it", function()
      if loop.name ~= "cqueues" then return end -- other loops resume callers at once
      local losses, terms, ended, coming = 0, 0, false, false
      run(function()
        local lease = 0.4
        local own = new { lease = lease }
        local probe = own:lock("probe")
        local function begin(call)
          ended, coming = false, true
          loop.spawn(function()
            call()
            ended = true
          end)
          local before = own:stats().acquires
          for _ = 1, 20 do -- one of these runs between the reply and its caller
            loop.spawn(function()
              while not ended do
                if coming and own:stats().acquires > before then
                  coming = false
                  local till = process.now() + 1.2 * lease
                  while process.now() < till do end
                  return probe:is_held()
                end
                loop.sleep(0)
              end
            end)
          end
          eventually(function() return ended end)
        end
        local lock = own:lock("a", { on_lost = function() losses = losses + 1 end })
        begin(function()
          lock:acquire()
          loop.sleep(lease)
          lock:release()
        end)
        eventually(function() return own:stats().losses == losses end)
        begin(function()
          local led, _, code = own:lead("b", { once = true }, function(term)
            terms = terms + 1
            assert.is_true(term:is_leader() and term:token() ~= nil)
            return "led"
          end)
          assert.equal("led", led, code)
        end)
        assert.equal(1, terms)
      end)
    end)

    it("lets a leader resign before its first term begins", function()
      local results
      run(function()
        local probe = client:lock("probe")
        loop.spawn(function()
          results = { client:lead("a", {
            lease = 1,
            on_event = function(event) if event.event == "acquired" then loop.sleep(1) end end,
            on_lost = function(term) term:resign() end,
          }, function() return "led" end) }
        end)
        eventually(function() return not is_free("a") end)
        server:cli("DEL", "a")
        eventually(function()
          probe:is_held()
          return results ~= nil
        end)
      end)
      assert.equal("interrupted", results[3])
      assert.matches("resigned before its term", results[2])
    end)
  end)
end
