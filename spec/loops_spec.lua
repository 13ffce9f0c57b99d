-- The API in event loops: callers wait in coroutines, while the loop continues.

local certificates = require "spec.support.certificates"
local core = require "holdfast.core"
local holdfast = require "holdfast"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local TICK = 0.01

local function median(values)
  table.sort(values)
  return values[math.ceil(#values / 2)]
end

local function has(name)
  for _, loop in ipairs(loops) do
    if loop.name == name then return true end
  end
  return false
end

describe("an event loop", function()
  it("written by the user is checked for the functions it must have", function()
    local function new(driver)
      return select(2, pcall(function() local _ = holdfast.new { driver = driver } end))
    end
    assert.matches("loops_spec.lua:%d+: .*driver must be a loop .*not one without check", new {})
    local function nothing() end
    assert.matches("not one without watch", new { check = nothing, spawn = nothing, signal = nothing })
    assert.matches('driver must be one of "posix".*"luv", or your own loop', new "carrier pigeon")
    assert.matches("driver must be one of", new(7))
  end)

  it("is named in the message if its library is not installed", function()
    local child = process.lua { code = [[
      package.preload.cqueues = function() error("no cqueues here", 0) end
      package.preload["cqueues.condition"] = package.preload.cqueues
      print(pcall(require("holdfast").new, { driver = "cqueues" }))
    ]] }
    assert.equal("exit", (child:wait(20)))
    assert.matches("^false\tholdfast.new: driver: .*no cqueues here",
      (child:output():gsub("^(false\t)[^%s]+:%d+: ", "%1")))
  end)

  it("refuses to load luv inside a coroutine, which luv's callbacks would later use", function()
    if not has("luv") then return pending("there is no luv for this Lua") end
    local child = process.lua { code = [[
      coroutine.wrap(function()
        print(pcall(require("holdfast").new, { driver = "luv" }))
      end)()
      print(package.loaded.luv, require("luv"))
      coroutine.wrap(function()
        print(require("holdfast").new { driver = "luv" })
      end)()
    ]] }
    assert.equal("exit", (child:wait(20)))
    local failure, loaded, made = child:output():match("^(.-)\n(.-)\n(.-)\n")
    assert.matches('^false\t.*holdfast.new: driver: luv runs callbacks .* call require "luv"', failure)
    assert.matches("^nil\ttable: ", loaded)
    assert.matches("^holdfast.client: ", made)
  end)

  -- The lock is newer than the operations that it uses again, so its finalizer runs first.
  it("can be collected before its operations, as can locks before theirs", function()
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
  describe("of " .. loop.name, function()
    local server, client, clients

    local function new(options)
      options = options or {}
      options.url, options.driver = options.url or not options.servers and server:url() or nil,
        loop.driver
      local made = holdfast.new(options)
      clients[#clients + 1] = made
      return made
    end

    local run, wait_until = loop.run, loop.wait_until

    local function is_free(key)
      return server:cli("EXISTS", key) == 0
    end

    local function waiters(key)
      return server:cli("ZCOUNT", "holdfast_queue:{" .. key .. "}", "(0", "+inf")
    end

    -- Ticks until is_over(). → how late each tick was, in seconds
    local function tick(is_over)
      local late = {}
      while not is_over() do
        local due = process.now() + TICK
        loop.sleep(TICK)
        late[#late + 1] = process.now() - due
      end
      return late
    end

    -- → how late a tick may be: a busy machine also delays the ticks of an idle loop
    local function allowed()
      local count, late = 0, nil
      run(function()
        late = tick(function()
          count = count + 1
          return count > 20
        end)
      end)
      return 0.005 + 3 * median(late)
    end

    -- attempt() returns how late the ticks were. A loop that the library blocks fails each attempt.
    local function assert_on_time(attempt)
      local most, late
      for _ = 1, 3 do
        most = allowed()
        late = attempt()
        if #late >= 5 and median(late) <= most then return end
      end
      error(("%d ticks, late by %.1f ms, allowed are %.1f"):format(#late, median(late) * 1000,
        most * 1000))
    end

    before_each(function()
      server = redis.start { tcp = true }
      clients = {}
      client = new()
    end)

    after_each(function()
      for _, each in ipairs(clients) do each:close() end
      server:stop()
    end)

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
        assert.same({ true, 2 }, { client:with_lock("c", function(held, x)
          return held:is_held(), x
        end, 2) })
        assert.same({ false, "bad" }, { pcall(client.with_lock, client, "c", function()
          error("bad", 0)
        end) })
        assert.equal("one", client:one_by_one():execute("order", 7, function() return "one" end))
        assert.equal("first", client:idempotent("d", function() return "first" end))
        assert.equal("duplicate", (select(3, client:idempotent("d", function()
          return "second"
        end))))
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

    it("serves 200 coroutines on one key in order without delaying a timer",
      function()
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

    it("serves coroutines in the order of a fair lock's list", function()
      local order, most, left = {}, 0, 20
      for i = 1, 20 do
        loop.spawn(function()
          assert(client:with_fair_lock("a", { wait = 60 }, function(lock)
            most = math.max(most, assert(lock:info()).waiters)
            loop.sleep(0.005)
            order[#order + 1] = i
          end))
          left = left - 1
        end)
      end
      loop.run()
      assert.equal(0, left)
      for i = 1, 20 do assert.equal(i, order[i]) end
      assert.is_true(most >= 10, most .. " in the list")
      assert.equal(0, server:cli("EXISTS", "redisson_lock_queue:{a}", "redisson_lock_timeout:{a}"))
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

    it("lets many coroutines start an acquire on one handle at once", function()
      local half = client:read_write_lock("k"):read()
      local lock = new { async_release = true }:lock("a")
      local got = 0
      for _ = 1, 20 do
        loop.spawn(function()
          assert(half:acquire(20))
          loop.sleep(0.01)
          assert(half:release())
          assert(lock:acquire(20))
          loop.sleep(0.001)
          assert(lock:release())
          got = got + 1
        end)
      end
      loop.run()
      assert.equal(20, got)
    end)

    it("is not blocked while a server is silent", function()
      local slow = new { command_timeout = 2 }
      assert_on_time(function()
        local over, late, got, message, code = false, nil, nil, nil, nil
        run(function()
          assert(slow:ping())
          server:kill("STOP")
          loop.spawn(function() late = tick(function() return over end) end)
          local from = process.now()
          got, message, code = slow:lock("a"):acquire(5)
          over = true
          assert.is_true(process.now() - from >= 1.9, process.now() - from)
          server:kill("CONT")
          assert(slow:with_lock("a", function() return true end))
        end)
        assert.is_nil(got)
        assert.equal("unreachable", code)
        assert.matches('^cannot acquire "a" on unix:', message)
        return late
      end)
    end)

    it("reports no deadlock between separate coroutines of two clients", function()
      local one, two, reader, codes = new(), new(), new(), {}
      run(function()
        local near, far = assert(one:lock("near"):acquire()), assert(two:lock("far"):acquire())
        loop.spawn(function() codes[1] = select(3, one:lock("far"):acquire(30)) or "got it" end)
        loop.spawn(function() codes[2] = select(3, two:lock("near"):acquire(30)) or "got it" end)
        assert.is_true(wait_until(function()
          return waiters("near") == 1 and waiters("far") == 1
        end))
        loop.sleep(0.5) -- by then the callers that hold and wait are published
        assert.same({}, server:cli("KEYS", "holdfast_wait:*"))
        assert.same({}, reader:deadlocks().cycles)
        near:release()
        far:release()
        assert.is_true(wait_until(function() return codes[1] ~= nil and codes[2] ~= nil end))
        one:close()
        two:close()
      end)
      assert.same({ "got it", "got it" }, codes)
    end)

    it("keeps no lock alive after a call has ended", function()
      local alive = setmetatable({}, { __mode = "k" })
      local function use()
        local lock = client:lock("a")
        alive[lock] = true
        assert(lock:acquire())
        assert(lock:release())
      end
      run(function()
        for _ = 1, 3 do use() end
      end)
      assert.is_true(process.wait_until(function()
        collectgarbage()
        return next(alive) == nil
      end))
    end)

    it("deletes a caller's published wait when the client is closed", function()
      local other, code = new(), nil
      run(function()
        local far = assert(other:lock("far"):acquire())
        loop.spawn(function()
          local near = assert(client:lock("near"):acquire())
          code = select(3, client:lock("far"):acquire(30))
          near:release()
        end)
        assert.is_true(wait_until(function()
          return #server:cli("KEYS", "holdfast_wait:*") == 1
        end))
        client:close()
        assert.same({}, server:cli("KEYS", "holdfast_wait:*"))
        assert.is_true(wait_until(function() return code == "closed" end))
        far:release()
      end)
    end)

    it("either refuses an acquire or renews its lock when no descriptors are left", function()
      local child = process.lua { descriptors = 100, args = { loop.name, server:url() }, code = [[
        local loop
        for _, each in ipairs(require "spec.support.loops") do
          if each.name == arg[1] then loop = each end
        end
        local function attempt(free)
          local client = require("holdfast").new { url = arg[2], driver = loop.driver, lease = 2 }
          local lock, files = client:lock("a"), {}
          repeat
            local file = io.open("/dev/null")
            files[#files + 1] = file
          until not file
          for _ = 1, free do table.remove(files):close() end
          local acquired, _, code = lock:acquire(5)
          for _, file in ipairs(files) do file:close() end
          if acquired then
            loop.wait_until(function() return client:stats().renewals > 0 or lock:lost() end)
            code = lock:is_held()
          end
          client:close()
          return code
        end
        loop.run(function()
          loop.sleep(0.01) -- the loop has its own descriptors
          for free = 0, 4 do io.write(tostring(attempt(free)), " ") end
        end)
      ]] }
      assert.equal("exit", (child:wait(60)))
      local output = child:output()
      assert.matches("^unreachable ", output)
      assert.equal("", (output:gsub("true ", ""):gsub("unreachable ", "")))
      assert.matches("true $", output)
    end)

    -- Returns the client's loop, in which each wait for a descriptor fails while is_broken() is
    -- true, or is the error.
    local function breaking(is_broken)
      local plain = loop.driver
      if type(plain) == "string" then plain = require("holdfast.loop." .. plain) end
      local function watch(fd)
        local watched = plain.watch(fd)
        return {
          wait = function()
            local broken = is_broken()
            if broken then error(broken == true and "broken" or broken, 0) end
            watched:wait()
          end,
          close = function() watched:close() end,
        }
      end
      return setmetatable({ watch = watch }, { __index = plain })
    end

    local function quietly(fn)
      local stderr, errors = io.stderr, {}
      rawset(io, "stderr", { write = function(_, ...) errors[#errors + 1] = table.concat { ... } end })
      local fine, message = pcall(fn)
      rawset(io, "stderr", stderr)
      assert(fine, message)
      return errors
    end

    it("does not wake again and again because a forked child has a copy of a closed connection", function()
      local wakes = 0
      local plain = type(loop.driver) == "string" and require("holdfast.loop." .. loop.driver) or loop.driver
      local function watch(fd)
        local watched = plain.watch(fd)
        return {
          wait = function()
            watched:wait()
            wakes = wakes + 1
          end,
          close = function() watched:close() end,
        }
      end
      loop.run(function()
        local driver = setmetatable({ watch = watch }, { __index = plain })
        local resting = holdfast.new { url = server:url(), driver = driver }
        local lock = resting:lock("a", { lease = 60 })
        assert(lock:acquire(5))
        local child = sys.fork()
        if child == 0 then
          sys.sleep(60)
          sys.exit(0)
        end
        server:cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert.is_true(loop.wait_until(function() return lock:check() end))
        local before = wakes
        for _ = 1, 50 do loop.sleep(0.005) end
        sys.kill(child, 9)
        sys.wait(child)
        assert.is_true(wakes - before < 20)
        lock:release()
        resting:close()
      end)
    end)

    it("still renews locks after its background task has raised an error", function()
      local broken = false
      local driver = breaking(function()
        local was = broken
        broken = false
        return was
      end)
      local one = holdfast.new { url = server:url(), driver = driver, lease = 2 }
      local errors = quietly(function()
        run(function()
          local lock = assert(one:lock("a"):acquire())
          broken = true
          assert.is_true(wait_until(function() return not broken end))
          local before = one:stats().renewals
          wait_until(function() return one:stats().renewals > before + 1 or lock:lost() end)
          assert.is_true(lock:is_held())
          assert.is_true(lock:release())
          one:close()
        end)
      end)
      assert.same({ "holdfast: broken\n" }, errors)
    end)

    it("fails a call if every new background task raises an error", function()
      local tasks = 0
      local one = holdfast.new { url = server:url(), lease = 2, driver = breaking(function()
        tasks = tasks + 1
        return "broken " .. tasks
      end) }
      local errors = quietly(function()
        run(function()
          local acquired, message, code = one:lock("a"):acquire(20)
          assert.is_nil(acquired)
          assert.equal("unreachable", code)
          assert.matches("cannot start a task: broken 3", message, 1, true)
        end)
        one:close()
      end)
      for i = 1, 3 do assert.equal(("holdfast: broken %d\n"):format(i), errors[i]) end
      assert.is_true(tasks == 3 and #errors < 10)
    end)

    it("fails a wait if every new background task raises an error from then on", function()
      local broken = false
      local one = holdfast.new {
        url = server:url(), driver = breaking(function() return broken end), lease = 2,
      }
      local ended, message, code
      quietly(function()
        run(function()
          local held = assert(client:lock("a"):acquire())
          loop.spawn(function()
            ended, message, code = one:lock("a"):acquire(20)
            ended = ended or false
          end)
          assert.is_true(wait_until(function() return waiters("a") == 1 end))
          broken = true
          server:cli("CLIENT", "KILL", "TYPE", "pubsub") -- wakes the task
          assert.is_true(wait_until(function() return ended ~= nil end, 10))
          assert(held:release())
        end)
        one:close()
      end)
      assert.is_false(ended)
      assert.equal("unreachable", code)
      assert.matches("cannot start a task: broken", message, 1, true)
      assert.truthy(process.wait_until(function() return is_free("a") and waiters("a") == 0 end))
    end)

    it("tolerates a background task that repeatedly raises an error after it has waited", function()
      local waits = 0
      local one = holdfast.new { url = server:url(), driver = breaking(function()
        waits = waits + 1
        return waits % 2 == 0
      end) }
      local errors = quietly(function()
        run(function()
          for _ = 1, 10 do assert(one:with_lock("a", function() end)) end
          one:close()
        end)
      end)
      assert.is_true(#errors > 3, #errors .. " errors")
    end)

    it("raises an error at the line of a call outside the loop", function()
      local fine, message = pcall(function()
        local lock = client:lock("a")
        local _ = lock:acquire(0)
      end)
      assert.is_false(fine)
      assert.matches("loops_spec.lua:%d+: holdfast: cannot acquire here: the call has to wait for the server, which is impossible outside ", message)
      fine, message = pcall(function() local _ = client:ping() end)
      assert.is_false(fine)
      assert.matches("loops_spec.lua:%d+: holdfast: cannot ping here: the call has to wait", message)
      assert.is_false(client:lock("a"):is_held())
    end)

    it("renews a held lock, and ends once nothing is held", function()
      local short = new { lease = 1.5 }
      local from
      run(function()
        assert(short:with_lock("a", function(lock)
          loop.sleep(2)
          assert.is_true(lock:is_held())
          assert.is_true(lock:check())
        end))
        from = process.now()
      end)
      assert.is_true(process.now() - from < 5, process.now() - from)
      assert.is_true(short:stats().renewals >= 2)
    end)

    it("ends soon after the last release", function()
      local late = {}
      for i = 1, 3 do
        local released_at
        run(function()
          assert(client:with_lock("a", function()
            loop.sleep(0.6)
            return true
          end))
          released_at = process.now()
        end)
        late[i] = process.now() - released_at
      end
      assert.is_true(median(late) < 0.4, median(late))
    end)

    it("reports an expired lock to on_lost", function()
      local reported
      run(function()
        local lock = assert(client:lock("a", { lease = 1, on_lost = function(_, reason)
          reported = reason
        end }):acquire())
        wait_until(function() return lock:lost() end)
        assert.equal("expired", reported)
        assert.equal("lost", (select(3, lock:release())))
      end)
    end)

    it("reports a loss to on_lost and on_event without a further call", function()
      local reason, lost
      local listening = new { on_event = function(event)
        lost = event.event == "lost" and event or lost
      end }
      run(function()
        local lock = listening:lock("a", { lease = 3, watchdog = true, on_lost = function(_, why)
          reason = why
        end })
        assert(lock:acquire())
        server:cli("DEL", "a")
        assert.is_true(wait_until(function() return reason ~= nil and lost ~= nil end))
      end)
      assert.same({ "deleted", "a", "deleted" }, { reason, lost.key, lost.code })
    end)

    -- Deletes a renewed lock `a` of the client: the client's task finds the loss.
    local losing -- kept here: a collected lock would be released

    local function lose(listening)
      losing = listening:lock("a", { lease = 2, watchdog = true })
      assert(losing:acquire())
      server:cli("DEL", "a")
    end

    it("starts a single coroutine to deliver events, however late that coroutine runs", function()
      local plain, is_slow, begun, lost = loop.driver, false, 0, false
      if type(plain) == "string" then plain = require("holdfast.loop." .. plain) end
      local one = holdfast.new { url = server:url(), on_event = function(event)
        lost = lost or event.event == "lost" and begun
      end, driver = setmetatable({ spawn = function(fn)
        if not is_slow then return plain.spawn(fn) end
        begun = begun + 1
        plain.spawn(function()
          loop.sleep(0.3)
          fn()
        end)
      end }, { __index = plain }) }
      run(function()
        lose(one)
        is_slow = true
        wait_until(function() return begun > 0 end)
        server:cli("CLIENT", "KILL", "TYPE", "pubsub") -- wakes the task
        server:cli("CLIENT", "KILL", "TYPE", "normal")
        assert.is_true(wait_until(function() return lost ~= false end))
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
        lose(listening)
        assert.is_true(wait_until(function() return waiters("log") == 1 end))
        loop.sleep(3)
        assert.is_nil(took)
        assert.is_true(kept:check())
        assert.is_true(log:release())
        assert.is_true(wait_until(function() return took end))
        assert.is_true(kept:release())
        listening:close()
      end)
    end)

    it("delivers every event although a listener closes the client", function()
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
          assert.is_true(wait_until(function() return closed end), way)
          assert.is_true(is_free("kept"))
          assert.is_true(wait_until(function() return seen[#seen] == "closed" end), way)
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
        lose(listening)
        assert.is_true(wait_until(function() return left == 0 end))
        assert.is_true(wait_until(function() return listening:stats().losses == 1 end))
        listening:close()
        listening, losing = nil, nil
        assert.is_true(wait_until(function()
          collectgarbage()
          return seen[#seen] == "closed "
        end))
      end)
      assert.equal(1, most)
      table.sort(seen)
      assert.same({ "acquired a", "acquired b", "acquired c", "closed ", "lost a", "opened ",
        "released b", "released c" }, seen)
    end)

    it("delivers a client's last events although another client's listener is still waiting",
      function()
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
          assert.is_true(wait_until(function() return waits end))
          use()
          assert.is_true(wait_until(function()
            collectgarbage()
            return next(alive) == nil
          end))
          over = true
          wait_until(function() return seen[#seen] == "closed" end)
        end)
        assert.same({ "opened", "acquired", "released", "closed" }, seen)
      end)

    it("delivers events after a coroutine that delivered them was closed #puc", function()
      local close = coroutine.close -- Lua 5.4
      if not close or loop.name == "cqueues" then return end
      local seen, waiting, waits_at = {}, nil, nil
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
          loop.spawn(function() lose(listening) end)
          assert.is_true(wait_until(function() return waiting ~= nil end), at)
          assert.is_true(close(waiting))
          assert(listening:with_lock(key, function() end))
          assert.is_true(wait_until(function() return seen["released " .. key] end), at)
          assert.is_true(seen["acquired " .. key])
          server:cli("DEL", "a")
        end
        assert.is_true(wait_until(function() return waiters("busy") == 0 end))
        assert.is_true(busy:release())
        listening:close() -- this also frees the lock of the first closed coroutine
      end)
    end)

    it("supports abort_on_loss, or refuses it under LuaJIT #puc", function()
      run(function()
        local lock_lost = { abort_on_loss = true, lease = 1 }
        if rawget(_G, "jit") then
          local fine, message = pcall(function()
            local _ = client:with_lock("a", lock_lost, print)
          end)
          assert.is_false(fine)
          assert.matches("loops_spec.lua:%d+: holdfast: abort_on_loss", message)
          local template, ran = client:one_by_one(), false
          fine, message = pcall(function()
            local _ = template:execute("a", 1, { abort_on_loss = true }, function() ran = true end)
          end)
          assert.is_false(fine or ran)
          assert.matches("loops_spec.lua:%d+: holdfast: abort_on_loss", message)
          return
        end
        local other
        loop.spawn(function()
          other = client:with_lock("b", { abort_on_loss = true }, function()
            loop.sleep(2)
            return "whole"
          end)
        end)
        local _, _, code = client:with_lock("a", lock_lost, function()
          loop.sleep(0.1)
          local till = process.now() + 20
          while process.now() < till do end
        end)
        assert.equal("lost", code)
        assert.is_true(wait_until(function() return other == "whole" end))
      end)
    end)

    it("acquires and releases a multi-lock with one command each", function()
      run(function()
        local both = client:multi_lock { "e", "f", "g" }
        assert(both:acquire() and both:release()) -- now the server has the programs
        local monitor = server:monitor()
        assert(both:acquire())
        assert.is_true(both:is_held() and both:release())
        assert.equal(2, monitor:count("EVALSHA"))
        monitor:close()
        local other = assert(client:lock("f", { owner = "other" }):acquire())
        assert.equal("busy", (select(3, both:acquire(0))))
        assert.is_true(is_free("e") and is_free("g"))
        loop.spawn(function()
          loop.sleep(0.1)
          assert(other:release())
        end)
        assert(both:acquire(5))
        both = nil -- luacheck: ignore 311
        assert.is_true(wait_until(function()
          collectgarbage()
          return is_free("e") and is_free("f") and is_free("g")
        end))
      end)
    end)

    it("raises an error at the line of a call in a generator, and leaves no lock", function()
      local function rows()
        client:with_lock("a", function() coroutine.yield("row") end)
      end
      run(function()
        local next_row = coroutine.wrap(rows)
        local fine, message = pcall(next_row)
        if fine then fine, message = pcall(next_row) end
        assert.is_false(fine)
        assert.matches("^spec/loops_spec.lua:%d+: holdfast: ", message)
        assert.is_true(wait_until(function() return is_free("a") end))
      end)
    end)

    it("hands the lock to the next waiter when with_lock's function raises an error", function()
      local entered
      run(function()
        loop.spawn(function()
          loop.sleep(0.01)
          assert(client:with_lock("a", { wait = 20 }, function() entered = true end))
        end)
        local fine = pcall(client.with_lock, client, "a", function()
          loop.sleep(0.1)
          error("on purpose")
        end)
        assert.is_false(fine)
      end)
      assert.is_true(entered)
    end)

    it("ends waits and frees locks when the client is closed, and leaves nothing behind", function()
      local codes = {}
      run(function()
        local other = new()
        local held = assert(client:lock("a"):acquire())
        for i = 1, 3 do
          loop.spawn(function() codes[i] = select(3, other:lock("a"):acquire(30)) or "none" end)
        end
        assert.is_true(wait_until(function() return waiters("a") == 3 end))
        other:close()
        assert.is_true(wait_until(function() return #codes == 3 end))
        assert.equal(0, waiters("a"))
        client:close()
        assert.is_true(is_free("a"))
        assert.is_false(held:is_held())
        assert.equal("closed", (select(3, held:acquire())))
        assert.is_true(wait_until(function() return server:leaks().clients == 0 end))
      end)
      assert.same({ "closed", "closed", "closed" }, codes)
    end)

    it("returns closed from with_lock if another coroutine closes the client", function()
      local entered, closed, result = false, false, nil
      run(function()
        loop.spawn(function()
          result = { client:with_lock("a", function(lock)
            entered = true
            assert.is_true(wait_until(function() return closed end))
            assert.is_false(lock:is_held())
            return "done"
          end) }
        end)
        assert.is_true(wait_until(function() return entered end))
        client:close()
        assert(new():lock("a"):acquire(0)):release()
        closed = true
        assert.is_true(wait_until(function() return result ~= nil end))
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

    it("frees locks when the client is closed although its background task raises an error", function()
      local closing, released_at = false, nil
      local one = holdfast.new {
        url = server:url(), driver = breaking(function() return closing end),
      }
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
      assert.truthy(process.wait_until(function() return is_free("a") end, 10))
      assert.truthy(process.wait_until(function() return server:leaks().clients == 0 end, 10))
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

    it("returns from client:close, and ends, although a server is down", function()
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

    it("soon returns from client:close if the server goes silent while a release is being retried", function()
      local function close()
        local hasty, from = new { command_timeout = 1 }, nil
        run(function()
          assert(hasty:lock("a"):acquire())
          server:cli("REPLICAOF", "127.0.0.1", 1) -- a replica refuses the release
          loop.spawn(function()
            loop.sleep(0.7)
            server:kill("STOP")
          end)
          from = process.now()
          hasty:close()
        end)
        local seconds = process.now() - from
        server:kill("CONT")
        server:cli("REPLICAOF", "NO", "ONE")
        server:cli("FLUSHALL")
        return seconds
      end
      local best, tries = math.huge, 0
      repeat best, tries = math.min(best, close()), tries + 1 until best < 1.4 or tries == 3
      assert.is_true(best < 1.4, best)
    end)

    it("is not kept running by a release after client:close", function()
      local from
      run(function()
        local lock = assert(client:lock("a"):acquire())
        client:close()
        assert.is_nil(lock:release())
        from = process.now()
      end)
      assert.is_true(process.now() - from < 5)
    end)

    it("is not kept running by a leader that resigns after client:close", function()
      local term, led, from
      run(function()
        loop.spawn(function()
          client:lead("a", function(this)
            term = this
            assert.is_true(wait_until(function() return from ~= nil end))
          end)
          led = true
        end)
        assert.is_true(wait_until(function() return term ~= nil end))
        client:close()
        assert.is_true(term:resign())
        from = process.now()
        assert.is_true(wait_until(function() return led end))
      end)
      assert.is_true(process.now() - from < 5)
    end)

    it("is not kept running by a to-be-closed variable after close #puc", function()
      local close = coroutine.close -- Lua 5.4
      if not close or loop.name == "cqueues" then return end
      local hold = assert(load([[
        local take, wait = ...
        local held <close> = assert(take())
        wait()
      ]]))
      local holding, from
      run(function()
        loop.spawn(function()
          hold(function() return client:lock("a"):acquire() end, function()
            holding = coroutine.running()
            coroutine.yield(loop.driver)
          end)
        end)
        assert.is_true(wait_until(function() return holding ~= nil end))
        client:close()
        assert.is_true(close(holding))
        from = process.now()
      end)
      assert.is_true(is_free("a"))
      assert.is_true(process.now() - from < 5)
    end)

    it("lets one owner's second acquire wait for the first, and re-enter", function()
      run(function()
        local other = assert(client:lock("a", { owner = "other" }):acquire())
        local mine, entered = client:lock("a", { owner = "me" }), 0
        for _ = 1, 3 do
          loop.spawn(function()
            assert(mine:acquire(20))
            entered = entered + 1
          end)
        end
        assert.is_true(wait_until(function() return other:info().waiters == 1 end))
        assert.equal("busy", (select(3, mine:acquire(0))))
        assert.equal("busy", (select(3, mine:acquire(0.01))))
        assert(other:release())
        assert.is_true(wait_until(function() return entered == 3 end))
        assert.equal(3, mine:holds())
        for _ = 1, 3 do assert(mine:release()) end
        assert.is_true(is_free("a"))
      end)
    end)

    it("removes a waiter from the queue if its wait raises an error", function()
      local base = type(loop.driver) == "table" and loop.driver
        or require("holdfast.loop." .. loop.name)
      local signals, cancelled = {}, nil
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
      local cancelling = holdfast.new { url = server:url(), driver = {
        check = base.check, spawn = base.spawn, watch = base.watch, signal = signal,
      } }
      clients[#clients + 1] = cancelling
      run(function()
        local held, waiting, failure, over = assert(client:lock("a"):acquire()), nil, nil, false
        loop.spawn(function()
          waiting = coroutine.running()
          local lock = cancelling:lock("a")
          failure = select(2, pcall(lock.acquire, lock, 60))
          cancelled = nil
          assert.is_true(wait_until(function() return over end))
        end)
        assert.is_true(wait_until(function() return waiters("a") == 1 end))
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

    it("frees a lock at once when its handle is collected", function()
      run(function()
        local function leave() assert(client:lock("a"):acquire()) end
        leave()
        assert.is_false(is_free("a"))
        assert.is_true(wait_until(function()
          collectgarbage()
          return is_free("a")
        end, 0.5))
      end)
    end)

    it("releases a to-be-closed variable, whichever coroutine closes it #puc", function()
      local close = coroutine.close -- Lua 5.4
      if not close or loop.name == "cqueues" then return end
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
          local holding, failing, free
          loop.spawn(function()
            failing = coroutine.running()
            hold(take, function() holding = true coroutine.yield(loop.driver) end)
          end)
          assert.is_true(wait_until(function() return holding end))
          if key ~= "b" then assert.is_false(is_free(key)) end
          assert.is_true(close(failing))
          assert.is_true(wait_until(function()
            free = key ~= "b" and is_free(key) or server:cli("GET", "b") == "1"
            return free
          end))
        end
      end)
    end)

    it("holds no lock of a multi-lock whose coroutine is closed while it waits #puc",
      function()
      local close = coroutine.close -- Lua 5.4
      if not close or loop.name == "cqueues" then return end
      run(function()
        local held, waiting = assert(client:lock("b"):acquire()), nil
        local both = client:multi_lock { "a", "b" }
        loop.spawn(function()
          waiting = coroutine.running()
          both:acquire(60)
        end)
        assert.is_true(wait_until(function() return waiters("b") == 1 and not is_free("a") end))
        assert.is_true(close(waiting))
        assert.is_true(wait_until(function() return is_free("a") and waiters("b") == 0 end))
        assert.is_true(held:release())
      end)
    end)

    it("holds no lock of a multi-lock whose wait raises an error", function()
      if loop.name ~= "luv" then return end -- the others resume it again
      run(function()
        local held, waiting, failure = assert(client:lock("b"):acquire()), nil, nil
        local both = client:multi_lock { "a", "b" }
        loop.spawn(function()
          waiting = coroutine.running()
          failure = select(2, pcall(both.acquire, both, 60))
        end)
        assert.is_true(wait_until(function() return waiters("b") == 1 and not is_free("a") end))
        coroutine.resume(waiting)
        assert.is_true(wait_until(function()
          return failure and is_free("a") and waiters("b") == 0
        end))
        assert.matches("was resumed, but not by the event loop", failure)
        assert.is_true(held:release())
      end)
    end)

    it("releases all locks of a multi-lock although one release raises an error", function()
      if loop.name ~= "luv" then return end -- the others resume it again
      run(function()
        local releasing, acquired, failure
        local both = holdfast.multi_lock { new():lock("a"), new():lock("b") }
        loop.spawn(function()
          releasing = coroutine.running()
          acquired = assert(both:acquire(20))
          server:cli("CLIENT", "PAUSE", 300)
          failure = select(2, pcall(both.release, both))
        end)
        assert.is_true(wait_until(function() return acquired and not both:is_held() end))
        coroutine.resume(releasing)
        assert.is_true(wait_until(function() return failure and is_free("a") and is_free("b") end))
        assert.matches("was resumed, but not by the event loop", failure)
      end)
    end)

    it("raises the error of the roll-back when a multi-lock cannot be acquired", function()
      if loop.name ~= "luv" then return end -- the others resume it again
      local other = redis.start { tcp = true }
      local all = holdfast.multi_lock { new({ url = other:tcp_url() }):lock("0"), new():lock("a") }
      local taken = new():lock("a")
      run(function()
        local acquiring, failure
        assert(taken:acquire(20))
        loop.spawn(function()
          acquiring = coroutine.running()
          failure = select(2, pcall(all.acquire, all, 0.3))
        end)
        assert.is_true(wait_until(function() return waiters("a") == 1 end))
        other:kill("STOP")
        assert.is_true(wait_until(function() return waiters("a") == 0 end))
        loop.sleep(0.2)
        coroutine.resume(acquiring)
        other:kill("CONT")
        assert.is_true(wait_until(function()
          return failure and other:cli("EXISTS", "0") == 0
        end))
        taken:release()
        assert.matches("was resumed, but not by the event loop", failure)
      end)
      other:stop()
    end)

    it("releases all locks of a multi-lock if its releasing coroutine is closed #puc",
      function()
        local close = coroutine.close -- Lua 5.4
        if not close or loop.name ~= "luv" then return end -- the others resume it again
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
          assert.is_true(wait_until(function() return releasing and not both:is_held() end))
          assert.is_true(close(releasing))
          assert.is_true(wait_until(function()
            return is_free("a") and server:cli("HVALS", "b")[1] == "1"
          end))
          two:close() -- the other hold is not released
        end)
      end)

    it("releases a coroutine's lock if it is closed while its listener waits #puc",
      function()
      local close = coroutine.close -- Lua 5.4
      if not close or loop.name == "cqueues" then return end
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
          assert.is_true(wait_until(function() return waiting ~= nil end), i)
          assert.is_true(close(waiting))
        end
        assert.is_true(wait_until(function()
          return is_free("a") and is_free("b") and is_free("c") and is_free("d")
            and pool:available() == 1
        end))
        assert.is_false(lock:is_held() or both:is_held())
      end)
    end)

    it("keeps no permits for a coroutine that is closed while it waits #puc", function()
      local close = coroutine.close -- Lua 5.4
      if not close or loop.name == "cqueues" then return end
      for _, call in ipairs { "acquire", "drain" } do
        run(function()
          local pool = client:plain_semaphore("pool")
          pool:delete()
          assert(pool:set(3))
          loop.sleep(0.05) -- the task has ended
          server:cli("CLIENT", "PAUSE", "200")
          local waiting
          loop.spawn(function()
            waiting = coroutine.running()
            pool[call](pool)
          end)
          assert.is_true(wait_until(function() return waiting ~= nil end))
          assert.is_true(coroutine.status(waiting) == "suspended" and close(waiting))
          loop.sleep(0.5)
          assert.is_true(wait_until(function() return tonumber(server:cli("GET", "pool")) == 3 end))
        end)
      end
    end)

    it("reports a lock lost before its caller resumes, and starts no leader's term with it", function()
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
          assert.is_true(wait_until(function() return ended end))
        end
        local lock = own:lock("a", { on_lost = function() losses = losses + 1 end })
        begin(function()
          lock:acquire()
          loop.sleep(lease)
          lock:release()
        end)
        assert.is_true(wait_until(function() return own:stats().losses == losses end))
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
        assert.is_true(wait_until(function() return not is_free("a") end))
        server:cli("DEL", "a")
        assert.is_true(wait_until(function()
          probe:is_held()
          return results ~= nil
        end))
      end)
      assert.equal("interrupted", results[3])
      assert.matches("resigned before its term", results[2])
    end)

    it("leaves neither a lock nor a place in the queue for a coroutine that is closed #puc",
      function()
      local close = coroutine.close -- Lua 5.4
      if not close or loop.name == "cqueues" then return end
      run(function()
        local held, waiting, holding = assert(client:lock("a"):acquire()), nil, nil
        loop.spawn(function()
          waiting = coroutine.running()
          client:lock("a"):acquire(60)
        end)
        loop.spawn(function()
          client:with_lock("b", function()
            holding = coroutine.running()
            coroutine.yield(loop.driver)
          end)
        end)
        assert.is_true(wait_until(function() return waiters("a") == 1 and holding ~= nil end))
        assert.is_true(close(waiting))
        assert.is_true(close(holding))
        assert.is_true(wait_until(function() return is_free("b") end))
        assert.is_true(wait_until(function() return waiters("a") == 0 end))
        assert.is_true(held:release())
      end)
    end)

    -- Returns a client whose woken callers do not continue between hold_back() and resume().
    local function late_callers()
      local plain, held_back, fire_now = loop.driver, false, nil
      local function signal()
        local made = plain.signal()
        local function fire()
          if held_back then fire_now = made.fire else made.fire() end
        end
        return { wait = made.wait, fire = fire }
      end
      loop.driver = setmetatable({ signal = signal }, { __index = plain })
      local late = { client = new() }
      loop.driver = plain
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
        assert.is_true(wait_until(function() return waiters(keys[1]) == 1 end))
        late.hold_back()
        let_in()
      end
      assert.is_true(wait_until(late.is_woken))
      local freed = wait_until(are_free, 10)
      late.resume()
      assert.is_true(wait_until(function() return got ~= true end))
      late.client:close()
      assert.is_true(freed)
      return message, code
    end

    local has_little = type(loop.driver) == "table" and not rawget(_G, "jit")

    it("treats a coroutine as cancelled that was woken but does not continue #puc", function()
      if not has_little then return end
      run(function()
        local held, late = assert(client:lock("a"):acquire()), late_callers()
        local message, code = acquire_and_cancel(late, late.client:lock("a"), { "a" }, function()
          held:release()
        end)
        assert.equal("interrupted", code)
        assert.matches('^cannot acquire "a" on .*: the calling coroutine was woken but did not continue', message)
      end)
    end)

    it("releases no hold of another handle for a handle that is abandoned during its release", function()
      run(function()
        local one, two = client:lock("a", { owner = "me" }), client:lock("a", { owner = "me" })
        for _, lock in ipairs { one, two } do assert(lock:acquire()) end
        local released
        server:kill("STOP")
        loop.spawn(function() released = one:release() end)
        loop.sleep(0.05)
        core.lock.abandon(one)
        server:kill("CONT")
        assert.is_true(wait_until(function() return released end))
        loop.sleep(0.05)
        assert.is_true(two:check())
        assert.is_true(two:release())
        assert.is_true(is_free("a"))
      end)
    end)

    it("releases every remaining hold of an abandoned handle", function()
      run(function()
        local read, others = client:read_write_lock("a"):read(), nil
        loop.spawn(function() others = read:acquire(20) end)
        assert.is_true(wait_until(function() return others ~= nil end))
        assert(others and read:acquire(20))
        assert.is_true(read:release())
        assert.is_false(is_free("a"))
        core.lock.abandon(read)
        assert.is_true(wait_until(function() return is_free("a") end))
      end)
    end)

    it("renews locks over the same connection as its calls", function()
      run(function()
        local lock = assert(client:lock("a", { lease = 1, watchdog = true }):acquire(20))
        assert.is_true(wait_until(function() return client:stats().renewals > 0 end))
        assert.equal(1, client:stats().connections)
        assert.is_true(lock:release())
      end)
    end)

    it("keeps each coroutine's loss in a handle although another coroutine acquires through it", function()
      run(function()
        local function reader() return client:read_write_lock("a"):read() end
        local read, step, at, codes = reader(), 0, { 0, 0 }, {}
        local function reach(i, number)
          at[i] = number
          assert(wait_until(function() return step >= number end))
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
          assert.is_true(wait_until(function() return at[1] == number and at[2] == number end))
        end
        wait_for_both(1)
        server:cli("DEL", "a")
        step = 1
        wait_for_both(2)
        assert(read:acquire(20))
        step = 2
        assert.is_true(wait_until(function() return codes[1] ~= nil and codes[2] ~= nil end))
        assert.same({ "lost", "lost" }, codes)
        assert.is_true(read:release())
      end)
    end)

    it("leaves the hold unchanged when a re-entry is abandoned in flight", function()
      run(function()
        local lock = assert(client:lock("a"):acquire(20))
        server:kill("STOP")
        local op = core.lock.begin(lock, "acquire", 20)
        loop.sleep(0.05)
        assert.is_false(op:is_done())
        op:abandon()
        server:kill("CONT")
        assert.is_true(client:ping() ~= nil and lock:check())
        assert.equal(1, lock:holds())
        assert.is_true(lock:release())
        assert.is_true(is_free("a"))
      end)
    end)

    it("releases only its own holds if a release raises an error", function()
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
          assert.is_true(wait_until(function() return releasing ~= nil end))
          coroutine.resume(releasing)
          assert.matches("was resumed, but not by the event loop", failure)
          for i, key in ipairs(keys) do
            assert.is_true(core.lock.standing(kept[i]) ~= nil)
            server:cli("DEL", key)
            assert.is_true(wait_until(function() return lost[key] end))
            assert.is_nil(core.lock.first_loss(gone[i]))
          end
        end)
      end
    end)

    it("releases nothing for a multi-lock whose lost locks were all acquired again", function()
      run(function()
        local locks = { client:lock("a"), client:lock("b") }
        local both, since = holdfast.multi_lock(locks), client:multi_lock { "a", "b" }
        local function lose_both()
          assert(both:acquire(20))
          server:cli("DEL", "a", "b")
          assert.equal("lost", select(3, both:check()))
          assert(since:acquire(20))
        end
        lose_both()
        assert.equal("lost", select(3, both:release()))
        assert.is_true(since:check() and since:release())
        lose_both()
        local op, number, done = core.lock.begin_all(locks, "release_all")
        assert.same({ 0, true, "lost" }, { number, done, (select(3, op:detach())) })
        assert.is_true(since:check() and since:release())
      end)
    end)

    it("frees the lock that an abandoned acquire has acquired", function()
      local function begin(keys)
        local locks = {}
        for i, key in ipairs(keys) do locks[i] = client:lock(key) end
        if #keys == 1 then return (core.lock.begin(locks[1], "acquire", 20)) end
        return (core.lock.begin_all(locks, "acquire_all"))
      end
      local function abandon(op) op:abandon() end
      local function collect() end
      run(function()
        for _, keys in ipairs { { "a" }, { "a", "b" } } do
          for _, leave in ipairs { abandon, collect } do
            local op = begin(keys)
            assert.is_true(wait_until(function() return client:ping() and op:is_done() end))
            for _, key in ipairs(keys) do assert.is_false(is_free(key)) end
            leave(op)
            op = nil -- luacheck: ignore 311
            for _, key in ipairs(keys) do
              assert.is_true(wait_until(function()
                collectgarbage()
                return client:ping() and is_free(key)
              end))
            end
          end
        end
      end)
    end)

    it("holds no lock of a multi-lock acquired for a cancelled coroutine #puc",
      function()
      if not has_little then return end
      run(function()
        local late = late_callers()
        local both = late.client:multi_lock { "a", "b" }
        assert.equal("interrupted", select(2, acquire_and_cancel(late, both, { "a", "b" })))
      end)
    end)

    it("leaves no connection and no lock of a collected client", function()
      local before
      run(function()
        before = server:leaks().clients
        local function leave()
          local lost = holdfast.new { url = server:url(), driver = loop.driver }
          assert.is_true(assert(lost:lock("a"):acquire()):is_held())
        end
        leave()
        assert.is_true(wait_until(function()
          collectgarbage()
          return is_free("a") and server:leaks().clients == before
        end))
      end)
    end)

    it("works over TLS, and verifies the certificate", function()
      local made = certificates.make()
      local guarded = redis.start { tls = { cert = made.server.cert, key = made.server.key,
        ca = made.ca.cert } }
      run(function()
        local trusting = new { url = guarded:tls_url(), tls = { ca_file = made.ca.cert } }
        assert(trusting:with_lock("a", function(lock) assert.is_true(lock:check()) end))
        local entered
        loop.spawn(function()
          loop.sleep(0.01)
          entered = trusting:with_lock("a", { wait = 20 }, function() return true end)
        end)
        assert(trusting:with_lock("a", function() loop.sleep(0.1) end))
        assert.is_true(wait_until(function() return entered end))
        local strict = new { url = guarded:tls_url(), connect_timeout = 5, command_timeout = 5 }
        local _, message, code = strict:lock("a"):acquire(5)
        assert.equal("unreachable", code)
        assert.matches("certificate verify failed", message)
        trusting:close()
        strict:close()
      end)
      guarded:stop()
    end)

    it("keeps a quorum lock while one of three servers is down", function()
      local others = redis.several(2, { tcp = true })
      run(function()
        local urls = { server:tcp_url(), others[1]:tcp_url(), others[2]:tcp_url() }
        local quorum = new { servers = urls, mode = "quorum", lease = 3, command_timeout = 3 }
        assert(quorum:with_lock("a", { wait = 20 }, function(lock)
          others[1]:kill()
          loop.sleep(4)
          assert.is_true(lock:is_held())
        end))
        quorum:close()
      end)
      for _, each in ipairs(others) do each:stop() end
    end)

    -- → the other two servers, their client
    local function quorum_of_three()
      local others = redis.several(2, { tcp = true })
      local urls = { server:tcp_url(), others[1]:tcp_url(), others[2]:tcp_url() }
      return others, new { servers = urls, mode = "quorum" }
    end

    it("releases a quorum lock on close even on servers that lack the program",
      function()
        local others, quorum = quorum_of_three()
        run(function()
          assert(quorum:lock("a"):acquire(5))
          quorum:close()
        end)
        for _, each in ipairs { server, others[1], others[2] } do
          assert.is_true(process.wait_until(function() return each:cli("EXISTS", "a") == 0 end, 5))
        end
        for _, each in ipairs(others) do each:stop() end
      end)

    it("undoes a late grant of a slow quorum server while idle", function()
      local others, quorum = quorum_of_three()
      run(function()
        assert(quorum:with_lock("a", { wait = 5 }, function() return true end))
        for _, each in ipairs(others) do
          each:cli("HSET", "a", "somebody", 1)
          each:cli("PEXPIRE", "a", 60000)
        end
        server:kill("STOP")
        assert.equal("busy", (select(3, quorum:lock("a"):acquire(0))))
        loop.sleep(0.2)
        server:kill("CONT")
        assert.is_true(wait_until(function() return is_free("a") end, 5))
        quorum:close()
      end)
      for _, each in ipairs(others) do each:stop() end
    end)

    it("completes an async release before close returns", function()
      local lock = new { command_timeout = 3 }:lock("a", { owner = "me", async_release = true })
      run(function()
        assert(lock:acquire(0))
        server:kill("STOP")
        assert(lock:release())
        loop.spawn(function()
          loop.sleep(0.2)
          server:kill("CONT")
        end)
        clients[2]:close()
      end)
      assert.is_true(process.wait_until(function() return is_free("a") end, 5))
    end)

    it("uses a server again after it was restarted", function()
      run(function()
        assert(client:with_lock("a", function() end))
        server:kill()
        assert.equal("unreachable", (select(3, client:lock("a"):acquire(0))))
        server:restart()
        assert.is_true(wait_until(function() return client:with_lock("a", function() end) end))
      end)
    end)
  end)
end

for _, loop in ipairs(loops) do
  if loop.name == "luv" then
    it("luv reports an error raised by a caller after a wait", function()
      local server = redis.start()
      local child = process.lua { args = { server:url() }, code = [[
        local uv = require "luv"
        coroutine.wrap(function()
          local client = require("holdfast").new { url = arg[1], driver = "luv" }
          client:ping()
          io.stderr:write("asked\n")
          client:close()
          error "of the caller"
        end)()
        uv.run()
      ]] }
      assert.equal("exit", (child:wait(20)))
      assert.matches("asked.*of the caller.*stack traceback.*in function", child:output())
      server:stop()
    end)

    it("a closed client leaves no handle in luv's loop", function()
      local uv, server = require "luv", redis.start()
      local function handles()
        local open = 0
        uv.walk(function(handle) open = open + (handle:is_closing() and 0 or 1) end)
        return open
      end
      local before, between = handles(), 0
      for _ = 1, 2 do
        loop.run(function()
          for _ = 1, 3 do
            local client = holdfast.new { url = server:url(), driver = "luv" }
            client:with_lock("a", function() between = math.max(between, handles()) end)
            client:close()
          end
        end)
        assert.equal(before, handles())
      end
      assert.is_true(between > before)
      server:stop()
    end)
  end
end

for _, loop in ipairs(loops) do
  if loop.name == "cqueues" then
    describe("under cqueues", function()
      local cqueues = require "cqueues"
      local server, client

      before_each(function()
        server = redis.start()
        client = holdfast.new { url = server:url(), driver = "cqueues" }
      end)

      after_each(function()
        client:close()
        server:stop()
      end)

      local function is_waited_for()
        return server:cli("ZCARD", "holdfast_queue:{a}") == 1
      end

      local run, wait_until = loop.run, loop.wait_until

      local function drop_controller(fn, when)
        local inner = cqueues.new()
        inner:wrap(fn)
        assert.is_true(wait_until(function()
          assert(inner:step(0))
          return when()
        end, 20))
        inner:close()
      end

      it("a wait that ended while the loop was blocked still uses a reply that has arrived", function()
        local holder = holdfast.new { url = server:url() }
        local held, codes, left = assert(holder:lock("a"):acquire(0)), {}, 16
        run(function() assert(client:ping()) end)
        for i = 1, left do
          loop.spawn(function()
            codes[i] = select(3, client:lock("a"):acquire(0.5 + i / 10))
            left = left - 1
          end)
        end
        loop.spawn(function()
          while left > 0 do
            process.sleep(0.3)
            loop.sleep(0)
          end
        end)
        run()
        assert(held:release())
        holder:close()
        for i = 1, 16 do assert.equal("busy", codes[i]) end
      end)

      -- These waits check once a second that the task works.
      it("waits of several seconds end at their deadlines", function()
        local holder, codes = holdfast.new { url = server:url(), lease = 60 }, {}
        local a, b = assert(holder:lock("a"):acquire(0)), assert(holder:lock("b"):acquire(0))
        for i = 1, 3 do
          loop.spawn(function()
            codes[i] = select(3, client:lock(i == 3 and "b" or "a"):acquire(8))
          end)
        end
        run()
        assert(a:release() and b:release())
        holder:close()
        assert.same({ "busy", "busy", "busy" }, codes)
      end)

      it("a wait still completes if one background task never starts", function()
        local plain, loses = require "holdfast.loop.cqueues", false
        local one = holdfast.new { url = server:url(), driver = setmetatable({
          spawn = function(fn)
            if not loses then return plain.spawn(fn) end
            loses = false
          end,
        }, { __index = plain }) }
        for _ = 1, 2 do
          run(function()
            loses = true
            assert(one:with_lock("a", function() end))
          end)
          assert.is_false(loses)
        end
        one:close()
      end)

      it("a waiter leaves the queue when its controller is closed", function()
        run(function()
          local held = assert(client:lock("a"):acquire())
          drop_controller(function() client:lock("a"):acquire(60) end, is_waited_for)
          assert.is_true(wait_until(function()
            collectgarbage()
            return not is_waited_for()
          end, 20))
          assert.is_true(held:release())
        end)
      end)

      it("a generator made with auxlib.wrap can wait for a lock", function()
        local rows = {}
        run(function()
          for row in require("cqueues.auxlib").wrap(function()
            client:with_lock("a", function()
              for i = 1, 3 do coroutine.yield(i) end
            end)
          end) do rows[#rows + 1] = row end
        end)
        assert.same({ 1, 2, 3 }, rows)
      end)

      it("a nested coroutine that is closed releases its locks, all of a multi-lock #puc",
        function()
          local close = coroutine.close -- Lua 5.4
          if not close then return end
          local resume = require("cqueues.auxlib").resume
          local hold = assert(load([[
            local take = ...
            local held <close> = assert(take())
            coroutine.yield("held")
          ]]))
          local other = holdfast.new { url = server:url(), driver = "cqueues" }
          local both = holdfast.multi_lock { client:lock("b"), other:lock("c") }
          local function count() return server:cli("EXISTS", "a", "b", "c") end
          local function assert_left(lock, keys)
            local nested = coroutine.create(hold)
            resume(nested, function() return lock:acquire() end)
            assert.equal(keys, count())
            assert.is_true(close(nested))
            assert.is_true(wait_until(function() return count() == 0 end))
          end
          run(function()
            assert_left(client:lock("a"), 1)
            for _ = 1, 2 do assert_left(both, 2) end
          end)
          other:close()
        end)

      it("a client continues in another controller when the one that served it is closed", function()
        run(function()
          local entered
          drop_controller(function()
            client:with_lock("a", function()
              entered = true
              cqueues.sleep(60)
            end)
          end, function() return entered end)
          collectgarbage()
          assert.is_true(client:with_lock("b", { wait = 20 }, function(lock)
            return lock:check()
          end))
          assert.is_true(wait_until(function()
            collectgarbage()
            return server:cli("EXISTS", "a") == 0
          end, 20))
        end)
      end)
    end)
  end
end

describe("the blocking driver", function()
  local server, client, holders

  before_each(function()
    server = redis.start()
    client, holders = holdfast.new(server:url()), {}
  end)

  after_each(function()
    client:close()
    server:stop()
  end)

  -- Acquires the lock in a coroutine, which then stays suspended until the test ends or resumes it.
  local function held_by_coroutine(lock)
    local thread = coroutine.wrap(function()
      assert(lock:acquire(0))
      coroutine.yield()
      assert(lock:release())
    end)
    thread()
    holders[#holders + 1] = thread
    return thread
  end

  -- → what a wait for the lock returns, and how long it took
  local function wait_for(lock, seconds)
    local from = process.now()
    local got, message, code = lock:acquire(seconds)
    return got and "got" or code, message, process.now() - from
  end

  it("fails as deadlock instead of waiting for another coroutine of the client", function()
    for _, kind in ipairs { "lock", "mutex" } do
      local release = held_by_coroutine(client[kind](client, "a"))
      local code, message, took = wait_for(client[kind](client, "a"), 20)
      assert.equal("deadlock", code)
      assert.matches('cannot acquire "a" on .*another owner in this client holds it', message)
      assert.is_true(took < 10, took)
      assert.equal("busy", (wait_for(client[kind](client, "a"), 0)))
      release()
      assert.equal("got", (wait_for(client[kind](client, "a"), 20)))
      server:cli("FLUSHALL")
    end
    assert.equal(0, server:cli("EXISTS", "holdfast_queue:{a}"))
    assert.equal(2, client:stats().failures.deadlock)
  end)

  it("fails as deadlock in a quorum, too, if another coroutine of the client holds the lock", function()
    local servers = redis.several(3)
    local urls = { servers[1]:url(), servers[2]:url(), servers[3]:url() }
    local quorum = holdfast.new { servers = urls, mode = "quorum", command_timeout = 10 }
    for key, kind in pairs { a = "lock", m = "mutex" } do
      local function handle() return quorum[kind](quorum, key) end
      local release = held_by_coroutine(handle())
      local code, message, took = wait_for(handle(), 20)
      assert.equal("deadlock", code)
      assert.matches('cannot acquire "' .. key .. '" on a quorum of 3 servers: another owner in this client holds it', message)
      assert.is_true(took < 10, took)
      assert.equal("busy", (wait_for(handle(), 0)))
      servers[1]:kill("STOP") -- a majority still reports that it is held
      assert.equal("deadlock", (wait_for(handle(), 20)))
      servers[1]:kill("CONT")
      release()
      assert.equal("got", (wait_for(handle(), 20)))
    end
    held_by_coroutine(quorum:lock("b", { lease = 1 })) -- its lease ends
    assert.equal("got", (wait_for(quorum:lock("b"), 20)))
    held_by_coroutine(quorum:lock("c", { owner = "shared" })) -- another process may release it
    assert.equal("busy", (wait_for(quorum:lock("c"), 1)))
    local other = holdfast.new { servers = urls, mode = "quorum" }
    held_by_coroutine(other:lock("d"))
    assert.equal("busy", (wait_for(quorum:lock("d"), 1)))
    other:close()
    quorum:close()
    for _, each in ipairs(servers) do each:stop() end
  end)

  it("waits if another coroutine's lock may still become free", function()
    held_by_coroutine(client:lock("a", { lease = 1 })) -- its lease ends
    assert.equal("got", (wait_for(client:lock("a"), 20)))
    held_by_coroutine(client:lock("b", { owner = "shared" })) -- another process may release it
    assert.equal("busy", (wait_for(client:lock("b"), 1)))
    local other = holdfast.new(server:url()) -- a different client
    held_by_coroutine(other:lock("c"))
    assert.equal("busy", (wait_for(client:lock("c"), 1)))
    other:close()
    held_by_coroutine(client:lock("d", { lease = 60, watchdog = false })) -- longer than the wait
    assert.equal("deadlock", (wait_for(client:lock("d"), 5)))
  end)
end)
