-- What the coroutines of an event loop send in one turn: how many writes, as a proxy in front of
-- the server sees them, and that none of their commands is lost, doubled, late or out of order.

local holdfast = require "holdfast"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local proxy = require "spec.chaos.proxy"
local redis = require "spec.support.redis"

local unpack = table.unpack or unpack

local TASKS = 8

for _, loop in ipairs(loops) do
  describe("in a turn of " .. loop.name, function()
    local server, between, client, writes

    -- The loop's own functions, but `before_wait`, if set, is called before a call's coroutine
    -- waits, in the turn in which it has asked for something.
    local before_wait
    local given = type(loop.driver) == "table" and loop.driver
      or require("holdfast.loop." .. loop.driver)
    local driver = setmetatable({}, { __index = given })

    function driver.signal()
      local signal = given.signal()
      local function wait(_, seconds)
        if before_wait then before_wait() end
        return signal:wait(seconds)
      end
      return { wait = wait, fire = function() signal:fire() end }
    end

    before_each(function()
      server, before_wait = redis.start {}, nil
      between = proxy.start(server.path)
      client = holdfast.new { url = between.url, driver = driver, command_timeout = 5 }
    end)

    after_each(function()
      between:stop()
      server:stop()
    end)

    local function lock_of(i) return client:lock("turn:" .. i) end

    local function keys() return #server:cli("KEYS", "turn:*") end

    -- Waits, without giving the loop a turn, until this many locks are held on the server.
    local function await_keys(count)
      assert(process.wait_until(function() return keys() == count end, 5), "the keys on the server: " .. keys())
    end

    -- Lets the replies through that the proxy has stopped, all of them before the next turn.
    local function let_through()
      between:tell "go"
      between:segments()
    end

    -- Runs fn with the connection open and the programs loaded. Then closes the client, because the
    -- loop continues while it holds locks.
    local function run(fn)
      loop.run(function()
        local lock = client:lock "warm-up"
        for _ = 1, 2 do assert(lock:acquire(5)) assert(lock:release()) end
        writes = between:segments()
        local ran, message = pcall(fn)
        before_wait = nil
        between:tell "go"
        client:close()
        if not ran then error(message, 0) end
      end)
    end

    local function new_writes()
      local before = writes
      writes = between:segments()
      return writes - before
    end

    -- Calls act(i) in a coroutine of its own for each of the tasks. → a function that returns how
    -- many have returned
    local function spawn_all(count, act)
      local ended = 0
      for i = 1, count do
        loop.spawn(function()
          act(i)
          ended = ended + 1
        end)
      end
      return function() return ended end
    end

    local function call(act, ...) return act(...) end

    -- Makes the tasks acquire a lock each, and wake up in the same turn, in which each calls
    -- act(i, lock), by way of `caller` if that is given.
    local function wake_together(act, caller)
      between:tell("stop", "down")
      local ended = spawn_all(TASKS, function(i)
        local lock = lock_of(i)
        assert(lock:acquire(5))
        return (caller or call)(act, i, lock) -- leaves no reference to the lock here
      end)
      assert(loop.wait_until(function() return keys() == TASKS end))
      new_writes()
      let_through()
      return ended
    end

    it("a task that is alone sends its command at once", function()
      local seen = {}
      run(function()
        local lock = lock_of "alone"
        before_wait = function()
          seen[#seen + 1] = process.wait_until(function() return keys() == (1 + #seen) % 2 end, 5)
        end
        assert(lock:acquire(5)) assert(lock:release())
        assert.equal(2, new_writes())
      end)
      assert.same({ true, true }, seen)
    end)

    it("tasks that begin together cause one write after that of the first task", function()
      run(function()
        between:tell("stop", "down")
        local ended = spawn_all(TASKS, function(i) assert(lock_of(i):acquire(5)) end)
        assert(loop.wait_until(function() return keys() == TASKS end))
        assert.is_true(new_writes() <= 2)
        let_through()
        assert(loop.wait_until(function() return ended() == TASKS end))
      end)
    end)

    it("tasks that are woken together cause one write", function()
      run(function()
        local ended = wake_together(function(_, lock) assert(lock:release()) end)
        assert(loop.wait_until(function() return ended() == TASKS end))
        assert.equal(1, new_writes())
        await_keys(0)
      end)
    end)

    -- → the keys of the scripts that clients have called since the monitor began, in order
    local function called(monitor)
      local list = {}
      for _, entry in ipairs(monitor:commands()) do
        local calls = not entry.script and entry.args[1]:upper() == "EVALSHA"
        if calls then list[#list + 1] = entry.args[4] end
      end
      monitor:close()
      return list
    end

    it("an asynchronous release is sent before it returns", function()
      local released = 0
      run(function()
        local ended = wake_together(function(i)
          local lock = assert(client:lock("async:" .. i, { async_release = true }):acquire(5))
          assert(lock:release())
          local function is_free() return server:cli("EXISTS", "async:" .. i) == 0 end
          if process.wait_until(is_free, 5) then released = released + 1 end
        end)
        assert(loop.wait_until(function() return ended() == TASKS end))
      end)
      assert.equal(TASKS, released)
    end)

    it("commands are sent in the order in which tasks have asked for them", function()
      local asked, sent = {}, nil
      run(function()
        local monitor = server:monitor()
        local ended = wake_together(function(i, lock)
          asked[#asked + 1] = "turn:" .. i
          assert(lock:release())
        end)
        assert(loop.wait_until(function() return ended() == TASKS end))
        sent = called(monitor)
      end)
      assert.equal(2 * TASKS, #sent)
      assert.same(asked, { unpack(sent, TASKS + 1) })
    end)

    -- With each task in turn: whichever continues last, the others' commands must not wait for it,
    -- nor for the task that serves the client to come by itself, which is a second later.
    it("a task that asks for nothing more delays none of the others' commands", function()
      run(function()
        for idle = 1, TASKS do
          local over, seen = false, nil
          local ended = wake_together(function(i, lock)
            if i == idle then
              for _ = 1, 5 do loop.sleep(0.001) end
              seen = new_writes()
              assert(loop.wait_until(function() return over end))
            end
            assert(lock:release())
          end)
          assert(loop.wait_until(function() return seen ~= nil and keys() == 1 end))
          assert.is_true(seen == 1 or seen == 2)
          over = true
          assert(loop.wait_until(function() return ended() == TASKS end))
          await_keys(0)
        end
      end)
    end)

    for name, failing in pairs { first = 1, last = TASKS } do
      it(("an error in the %s task neither loses nor doubles another's command"):format(name), function()
        run(function()
          local monitor, failed, released = server:monitor(), nil, 0
          wake_together(function(i, lock)
            if i == failing then
              failed = lock -- collected later, because that sends a command
              error "of the task"
            end
            assert(lock:release())
            released = released + 1
          end, pcall)
          assert(loop.wait_until(function() return failed and released == TASKS - 1 end))
          assert.equal(1, keys())
          local counts = {}
          for _, key in ipairs(called(monitor)) do counts[key] = (counts[key] or 0) + 1 end
          for i = 1, TASKS do assert.equal(i == failing and 1 or 2, counts["turn:" .. i]) end
        end)
      end)
    end

    it("a collected lock is released even if its command is sent together with others'", function()
      run(function()
        local ended = wake_together(function(i, lock)
          if i ~= 3 then return assert(lock:release()) end
          lock = nil -- luacheck: no unused
          collectgarbage() collectgarbage()
        end)
        assert(loop.wait_until(function() return ended() == TASKS and keys() == 0 end))
      end)
    end)

    it("a wait that ends within the turn fails on time and leaves no lock", function()
      run(function()
        between:tell("stop", "down")
        local ended = spawn_all(2, function(i) assert(lock_of(i):acquire(5)) end)
        local from, acquired, code = process.now(), nil, nil
        loop.spawn(function()
          local blocked = false
          before_wait = function() -- the command is not sent yet, and the turn ends after its wait
            if blocked then return end
            blocked = true
            process.sleep(0.1)
          end
          local _
          acquired, _, code = lock_of("late"):acquire(0.05)
        end)
        assert(loop.wait_until(function() return code end))
        assert.is_nil(acquired)
        assert.is_true(process.now() - from < 2)
        let_through()
        assert(loop.wait_until(function() return ended() == 2 end))
        assert(loop.wait_until(function() return keys() == 2 end))
      end)
    end)
  end)
end
