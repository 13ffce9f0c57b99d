local command = require "spec.support.command"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local PATIENCE = 20
local SIGNALS = { HUP = 1, INT = 2, QUIT = 3, USR1 = 10, USR2 = 12, TERM = 15, TSTP = 20, WINCH = 28 }

local function eventually(condition)
  return assert.is_truthy(process.wait_until(condition, PATIENCE))
end

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

local function read(path)
  local file = io.open(path)
  local text = file and file:read("*a") or ""
  if file then file:close() end
  return text
end

-- "R", "S", "T", ...; nil when it is gone
local function state(pid)
  return read(("/proc/%d/stat"):format(pid)):match("%) (%a)")
end

local function is_gone(pid)
  local is = state(pid)
  return is == nil or is == "Z"
end

local function lines_of(text)
  return select(2, text:gsub("\n", ""))
end

describe("holdfast run", function()
  local server, directory

  setup(function() server = redis.start { tcp = true } end)
  teardown(function() server:stop() end)
  before_each(function()
    server:cli("FLUSHALL")
    directory = process.directory()
  end)
  after_each(function() process.remove(directory) end)

  local function run(words) return command.run(server, words) end
  local function start(words) return command.start(server, words) end
  local function is_free(key) return server:cli("EXISTS", key or "k") == 0 end

  -- A job that says "ready" and then runs the rest; its process id is in the file.
  local function job(script)
    return "echo $$ >" .. directory .. "/pid; echo ready; " .. script
  end

  local function start_job(words, script)
    words[#words + 1] = "--"
    for _, word in ipairs { "sh", "-c", job(script) } do words[#words + 1] = word end
    local child = start(words)
    assert(child:wait_output("ready\n", PATIENCE), child:output())
    return child, tonumber(read(directory .. "/pid"))
  end

  describe("around a job", function()
    it("holds the lock, passes the exit code on, and leaves nothing behind", function()
      local child = start_job({ "run", "k" }, "exit 7")
      assert.same({ "exit", 7 }, { child:wait(PATIENCE) })
      assert.equal("ready\n", child:output())
      assert.same({ "redisson_lock_token:{k}" }, server:leaks().keys)
    end)

    it("holds it while the job runs", function()
      local child, pid = start_job({ "run", "k" }, "exec sleep 60")
      assert.is_false(is_free())
      assert.equal(1, #server:cli("KEYS", "holdfast_client:*"))
      process.signal(pid, "TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
      assert.is_true(is_free())
    end)

    it("passes standard input and both outputs through", function()
      local script = command.shell_prelude(server) ..
        "\nprintf 'a b' | holdfast run k -- sh -c 'cat; echo err >&2' 2>" .. directory .. "/err"
      local child = command.other { "sh", "-c", script }
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.equal("a b", child:output())
      assert.equal("err\n", read(directory .. "/err"))
    end)

    it("passes arguments as they are, without a shell", function()
      local code, output = run { "run", "k", "--", "printf", "%s|", "a b", "$HOME", "", "--", "-n" }
      assert.equal(0, code)
      assert.equal("a b|$HOME||--|-n|", output)
    end)

    it("runs a shell with -c", function()
      local code, output = run { "run", "k", "-c", "echo $((6 * 7)); exit 4" }
      assert.equal(4, code)
      assert.equal("42\n", output)
    end)

    it("gives 127 for a command that is not there, 126 for one that cannot be run", function()
      local code, output = run { "run", "k", "--", "/no/such/command" }
      assert.equal(127, code)
      assert.matches("^holdfast run: cannot start /no/such/command: [^\n]+\n$", output)
      assert.equal(126, (run { "run", "k", "--", "/tmp" }))
      assert.is_true(is_free())
    end)

    it("tells the job its key, owner, token and server", function()
      local code, output = run { "run", "k", "--", "sh", "-c",
        'echo "$HOLDFAST_KEY $HOLDFAST_OWNER $HOLDFAST_TOKEN $HOLDFAST_URL"' }
      assert.equal(0, code)
      local token = server:cli("GET", "redisson_lock_token:{k}")
      local uuid = "%x+%-%x+%-%x+%-%x+%-%x+"
      assert.matches("^k " .. uuid .. ":1 " .. token .. " unix://", output)
    end)

    it("is entered again by a run inside it", function()
      local words = command.words("run", "-n", "k", "--", "sh", "-c", "redis-cli -s " .. server.path .. " hvals k")
      local code, output = run { "run", "k", "--", (table.unpack or unpack)(words) }
      assert.equal(0, code, output)
      assert.equal("2\n", output)
      assert.is_true(is_free())
    end)

    it("is not entered by another key's run inside", function()
      local words = command.words("run", "-n", "other", "--", "true")
      assert.equal(0, (run { "run", "k", "--", (table.unpack or unpack)(words) }))
      local holder = holdfast.new(server:url())
      local lock = assert(holder:lock("other"):acquire())
      assert.equal(1, (run { "run", "k", "--", (table.unpack or unpack)(words) }))
      assert(lock:release())
      holder:close()
    end)

    it("keeps the lock for --min-hold", function()
      local child = start { "run", "--min-hold", "60", "k", "--", "sh", "-c", "echo done; exit 5" }
      assert(child:wait_output("done", PATIENCE))
      local lock = holdfast.new(server:url()):lock("k")
      assert.same("busy", select(3, lock:acquire(0.3)))
      child:kill("TERM")
      assert.same({ "exit", 5 }, { child:wait(PATIENCE) })
      assert.is_true(is_free())
    end)

    it("tells events as JSON", function()
      local code, output = run { "run", "--json", "k", "--", "sh", "-c", "exit 3" }
      assert.equal(3, code)
      assert.matches('^{"event":"acquired","key":"k","owner":"[%x:-]+","token":%d+,"waited":[%d.e-]+}\n' ..
        '{"event":"started","pid":%d+}\n{"event":"ended","exit":3}\n{"event":"released","key":"k"}\n$', output)
      code, output = run { "run", "--json", "k" }
      assert.equal(64, code)
      assert.matches('^{"event":"error","message":"no %-%- before the command","code":"usage","exit":64}\n$', output)
    end)

    it("says what happens with -v", function()
      local _, output = run { "run", "-v", "a\nb", "--", "true" }
      assert.matches('^holdfast run: acquired "a\\x0ab" after', output)
    end)
  end)

  describe("that cannot have the lock", function()
    local holder, lock

    before_each(function()
      holder = holdfast.new(server:url())
      lock = assert(holder:lock("k"):acquire())
    end)
    after_each(function() holder:close() end)

    it("gives 1, or the code of -E, at once or after -w", function()
      for _, words in ipairs { { "-n" }, { "-w", "0.1" }, { "-w0" }, { "--wait=0.1" } } do
        local code, output = run { "run", words[1], words[2] or "-v", "k", "--", "touch", directory .. "/ran" }
        assert.equal(1, code)
        assert.matches('^holdfast run: cannot acquire "k" [^\n]+\n$', output)
      end
      assert.equal(9, (run { "run", "-nE9", "k", "--", "touch", directory .. "/ran" }))
      assert.equal(0, (run { "run", "-n", "-E", "0", "k", "--", "touch", directory .. "/ran" }))
      assert.is_false(exists(directory .. "/ran"))
    end)

    it("waits for it", function()
      local child = start { "run", "k", "--", "echo", "ran" }
      eventually(function() return lock:info().waiters == 1 end)
      assert(lock:release())
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.equal("ran\n", child:output())
    end)

    it("confirms a lock that was handed over before the job starts", function()
      local child = start { "run", "--lease", "40", "k", "--", "redis-cli", "-s", server.path, "pttl", "k" }
      eventually(function() return lock:info().waiters == 1 end)
      assert(lock:release())
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.is_true(tonumber(child:output()) > 20000)
    end)

    for _, name in ipairs { "TERM", "INT", "HUP", "USR1" } do
      it("ends by " .. name .. " while it waits, and leaves the queue", function()
        local child = start { "run", "k", "--", "touch", directory .. "/ran" }
        eventually(function() return lock:info().waiters == 1 end)
        child:kill(SIGNALS[name])
        assert.same({ "exit", 128 + SIGNALS[name] }, { child:wait(PATIENCE) })
        assert.equal(0, lock:info().waiters)
        assert.is_false(exists(directory .. "/ran"))
        assert.same({}, server:cli("KEYS", "holdfast_client:*"))
      end)
    end

    it("is skipped when it is killed while it waits", function()
      local dead = start { "run", "k", "--", "touch", directory .. "/ran" }
      eventually(function() return lock:info().waiters == 1 end)
      local child = start { "run", "k", "--", "echo", "ran" }
      eventually(function() return lock:info().waiters == 2 end)
      dead:kill("KILL")
      dead:wait(PATIENCE)
      assert(lock:release())
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.is_false(exists(directory .. "/ran"))
    end)
  end)

  describe("that is asked wrongly", function()
    local cases = {
      ["a missing --"] = { "run", "k", "touch", "FILE" },
      ["no command"] = { "run", "k", "--" },
      ["no key"] = { "run", "--", "touch", "FILE" },
      ["an empty key"] = { "run", "", "--", "touch", "FILE" },
      ["two keys"] = { "run", "k", "l", "--", "touch", "FILE" },
      ["an unknown option"] = { "run", "--lase", "3", "k", "--", "touch", "FILE" },
      ["an unknown short option"] = { "run", "-x", "k", "--", "touch", "FILE" },
      ["a missing value"] = { "run", "k", "-w" },
      ["a bad number"] = { "run", "-w", "soon", "k", "--", "touch", "FILE" },
      ["a negative wait"] = { "run", "-w", "-1", "k", "--", "touch", "FILE" },
      ["a bad exit code"] = { "run", "-E", "256", "k", "--", "touch", "FILE" },
      ["a value for a switch"] = { "run", "--json=yes", "k", "--", "touch", "FILE" },
      ["-n and -w"] = { "run", "-n", "-w", "1", "k", "--", "touch", "FILE" },
      ["-c and --"] = { "run", "-c", "touch FILE", "k", "--", "touch", "FILE" },
      ["a bad URL"] = { "run", "--url", "http://x", "k", "--", "touch", "FILE" },
      ["--url and --servers"] = { "run", "--url", "redis://a", "--servers", "redis://b", "k", "--", "touch", "FILE" },
      ["a bad TYPE:ID"] = { "run", "--one-by-one", "x", "--", "touch", "FILE" },
      ["an unknown verb"] = { "walk", "k", "--", "touch", "FILE" },
      ["no verb"] = {},
    }
    for name, words in pairs(cases) do
      it("says so in one line and gives 64: " .. name, function()
        local path, given = directory .. "/ran", {}
        for i, word in ipairs(words) do given[i] = word:gsub("FILE", path) end
        local code, output = run(given)
        assert.equal(64, code)
        assert.matches("^holdfast", output)
        assert.equal(1, lines_of(output))
        assert.is_false(exists(path))
        assert.same({}, server:cli("KEYS", "*"))
      end)
    end

    local function refused(expected, words)
      local code, output = run(words)
      assert.equal(expected, code)
      assert.matches("^holdfast run: cannot ", output)
      assert.equal(1, lines_of(output))
      assert.is_false(exists(directory .. "/ran"))
    end

    it("gives 69 for a server that is not there", function()
      refused(69, { "run", "--url", "unix:///no/such.sock", "k", "--", "touch", directory .. "/ran" })
    end)

    it("gives 77 for a password that is wrong", function()
      local closed = redis.start { password = "secret" }
      finally(function() closed:stop() end)
      refused(77, { "run", "--url", "unix://" .. closed.path, "k", "--", "touch", directory .. "/ran" })
    end)

    it("gives 73 for a key that holds something else", function()
      server:cli("SET", "k", "v")
      refused(73, { "run", "-n", "k", "--", "touch", directory .. "/ran" })
    end)
  end)

  describe("and signals", function()
    it("passes each on to the job's group", function()
      local traps = {}
      for name in pairs(SIGNALS) do
        if name ~= "TSTP" then traps[#traps + 1] = ("trap 'echo got %s' %s"):format(name, name) end
      end
      local child, pid = start_job({ "run", "k" },
        table.concat(traps, "; ") .. "; echo set; while :; do sleep 0.05; done")
      assert(child:wait_output("set", PATIENCE))
      for name, number in pairs(SIGNALS) do
        if name ~= "TSTP" then
          child:kill(number)
          assert(child:wait_output("got " .. name .. "\n", PATIENCE), name)
        end
      end
      child:stop()
      eventually(function() return is_gone(pid) end)
    end)

    it("gives the job a process group of its own", function()
      local child, pid = start_job({ "run", "k" }, "exec sleep 60")
      assert.equal(tostring(pid), read(("/proc/%d/stat"):format(pid)):match("%) %a %d+ (%d+)"))
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)

    it("stops and continues the job, and keeps the lock meanwhile", function()
      local child, pid = start_job({ "run", "--lease", "0.6", "k" }, "exec sleep 60")
      child:kill(SIGNALS.TSTP)
      eventually(function() return state(pid) == "T" end)
      local last, rises = 0, 0
      eventually(function() -- it is renewed for longer than a lease
        local ttl = server:cli("PTTL", "k")
        if ttl > last then rises = rises + 1 end
        last = ttl
        return rises == 5
      end)
      child:kill("CONT")
      eventually(function() return state(pid) == "S" end)
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)

    it("ends a job that is stopped", function()
      local child, pid = start_job({ "run", "k" }, "exec sleep 60")
      child:kill(SIGNALS.TSTP)
      eventually(function() return state(pid) == "T" end)
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)

    it("leaves ignored what was ignored", function()
      local script = command.shell_prelude(server) .. "\ntrap '' HUP\nholdfast run k -- sh -c '" ..
        job("kill -HUP $PPID; kill -HUP $$; echo alive") .. "'"
      local child = command.other { "sh", "-c", script }
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.matches("alive", child:output())
    end)

    it("takes the job along when it is killed; the lock goes with its lease", function()
      local child, pid = start_job({ "run", "--lease", "0.5", "k" }, "exec sleep 60")
      child:kill("KILL")
      assert.same({ "signal", 9 }, { child:wait(PATIENCE) })
      eventually(function() return is_gone(pid) end)
      eventually(is_free)
    end)

    it("releases when the job is killed", function()
      local child, pid = start_job({ "run", "k" }, "exec sleep 60")
      process.signal(pid, "KILL")
      assert.same({ "exit", 137 }, { child:wait(PATIENCE) })
      assert.is_true(is_free())
    end)
  end)

  describe("that loses the lock", function()
    it("ends the job with TERM, and says why", function()
      local child, pid = start_job({ "run", "--lease", "0.6", "k" },
        "trap 'echo ending; exit 0' TERM; while :; do sleep 0.05; done")
      server:cli("FLUSHALL")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.matches('lost the lock "k": its key was deleted on the server; ending the job\n', child:output(), 1, true)
      assert.matches("ending\n", child:output())
      assert.is_true(is_gone(pid))
    end)

    it("kills after the grace, with all that the job has started", function()
      local child, pid = start_job({ "run", "--lease", "0.6", "--grace", "0.3", "k" },
        "trap '' TERM; sh -c 'sleep 60' & echo $! >" .. directory .. "/grandchild; wait; while :; do sleep 0.05; done")
      local grandchild
      eventually(function()
        grandchild = tonumber(read(directory .. "/grandchild"))
        return grandchild
      end)
      server:cli("FLUSHALL")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      eventually(function() return is_gone(pid) and is_gone(grandchild) end)
    end)

    it("ends the job before another can have the lock", function()
      local child, pid = start_job({ "run", "--lease", "2", "--grace", "0.2", "k" },
        "trap '' TERM; while :; do sleep 0.05; done")
      server:kill("STOP")
      local stopped = process.now()
      eventually(function() return is_gone(pid) end)
      local took = process.now() - stopped
      server:kill("CONT")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.matches("it could not be renewed", child:output())
      assert.is_true(took < 2, took)
    end)

    it("ends the job when the server is killed", function()
      local doomed = redis.start()
      finally(function() doomed:stop() end)
      local child, pid = start_job({ "run", "--url", doomed:url(), "--lease", "1", "k" }, "exec sleep 60")
      doomed:kill("KILL")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.is_true(is_gone(pid))
    end)

    it("gives 75 as well when only the release finds it out", function()
      local child = start_job({ "run", "k" }, "redis-cli -s " .. server.path .. " del k >/dev/null; exit 0")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.matches("holdfast run: [^\n]*deleted", child:output())
    end)
  end)

  it("runs 50 at once one at a time, in the order they came", function()
    local client = holdfast.new(server:url())
    local lock = assert(client:lock("k"):acquire())
    local script = ("mkdir %s/in || echo overlap >>%s/order; echo $0 >>%s/order; rmdir %s/in"):gsub("%%s", directory)
    local children, expected = {}, {}
    for i = 1, 50 do
      children[i] = start { "run", "k", "--", "sh", "-c", script, ("%d"):format(i) }
      expected[i] = ("%d\n"):format(i)
      eventually(function() return lock:info().waiters == i end)
    end
    assert(lock:release())
    for i = 1, 50 do assert.same({ "exit", 0 }, { children[i]:wait(PATIENCE) }) end
    assert.equal(table.concat(expected), read(directory .. "/order"))
    client:close()
  end)

  describe("in other ways", function()
    it("queues up with --one-by-one for a type and an id", function()
      local child = start_job({ "run", "--one-by-one", "order:7" }, "exec sleep 60")
      assert.equal("string", server:cli("TYPE", "order_7"))
      local code, output = run { "run", "-n", "--one-by-one", "order:7", "--", "true" }
      assert.equal(1, code)
      assert.matches("type=order id=7", output, 1, true)
      local waiter = start { "run", "--one-by-one", "order:7", "--", "true" }
      eventually(function() return server:cli("ZCARD", "holdfast_queue:{order_7}") == 1 end)
      waiter:kill("TERM")
      assert.same({ "exit", 143 }, { waiter:wait(PATIENCE) })
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
      assert.is_true(is_free("order_7"))
    end)

    it("does not wait for itself with --one-by-one", function()
      local words = command.words("run", "--one-by-one", "a:b", "--", "true")
      local code, output = run { "run", "--one-by-one", "a:b", "--", (table.unpack or unpack)(words) }
      assert.equal(1, code)
      assert.matches("runs inside", output)
    end)

    it("runs once in a while with --idempotent, and again after a failure", function()
      local function once(exit)
        return (run { "run", "--idempotent", "60", "k", "--", "sh", "-c", "exit " .. exit })
      end
      assert.equal(3, once(3))
      assert.equal(0, once(0))
      local code, output = run { "run", "--idempotent", "60", "k", "--", "touch", directory .. "/ran" }
      assert.equal(79, code)
      assert.equal(1, lines_of(output))
      assert.is_false(exists(directory .. "/ran"))
      assert.is_true(is_free())
    end)

    it("finds the server in a file", function()
      local path = directory .. "/holdfast.conf"
      local file = assert(io.open(path, "w"))
      file:write("# where\nurl = ", server:url(), "\nlease = 7 # seconds\nname = nightly job\n")
      file:close()
      local env = { HOLDFAST_URL = false, HOLDFAST_CONFIG = path }
      local code, output = run { "run", "k", "-c", "redis-cli -s " .. server.path .. " pttl k", env = env }
      assert.equal(0, code)
      assert.is_true(tonumber(output) <= 7000)
      file = assert(io.open(path, "w"))
      file:write("url: x\n")
      file:close()
      code, output = run { "run", "k", "--", "true", env = env }
      assert.equal(64, code)
      assert.matches("holdfast.conf:1: ", output, 1, true)
    end)
  end)
end)

-- "unix:///a/1,unix:///a/2": the words of --servers
local function list(servers)
  local urls = {}
  for i, server in ipairs(servers) do urls[i] = server:url() end
  return table.concat(urls, ",")
end

describe("holdfast run over several servers", function()
  local servers, directory

  before_each(function()
    servers, directory = redis.several(3), process.directory()
  end)
  after_each(function()
    for _, server in ipairs(servers) do server:stop() end
    process.remove(directory)
  end)

  local function run(words) return command.run(nil, words) end

  local function standing(key)
    local count = 0
    for _, server in ipairs(servers) do
      if server:is_running() and server:cli("EXISTS", key) == 1 then count = count + 1 end
    end
    return count
  end

  it("holds the lock on a majority, and is entered again by a run inside", function()
    local inner = command.words("run", "-n", "k", "--", "sh", "-c", 'echo "$HOLDFAST_TOKEN|$HOLDFAST_URL"')
    local code, output = run { "run", "--servers", list(servers), "k", "--", (table.unpack or unpack)(inner) }
    assert.equal(0, code, output)
    assert.matches("^%d+|\n$", output)
    eventually(function() return standing("k") == 0 end)
  end)

  it("goes on with one of three gone, and gives 76 with two", function()
    servers[1]:kill()
    local words = { "run", "--servers", list(servers), "k", "--", "touch", directory .. "/ran" }
    assert.equal(0, (run(words)))
    assert.is_true(exists(directory .. "/ran"))
    os.remove(directory .. "/ran")
    servers[2]:kill()
    local code, output = run(words)
    assert.equal(76, code)
    assert.matches("^holdfast run: cannot acquire \"k\"", output)
    assert.matches("[01] of 3 taken", output)
    assert.matches(servers[2].path, output, 1, true)
    assert.equal(1, lines_of(output))
    assert.is_false(exists(directory .. "/ran"))
  end)

  it("says busy with the code of --busy-exit", function()
    local holder = holdfast.new { servers = { servers[1]:url(), servers[2]:url(), servers[3]:url() }, mode = "quorum" }
    assert(holder:lock("k"):acquire())
    eventually(function() return standing("k") == 3 end)
    assert.equal(1, (run { "run", "-n", "--servers", list(servers), "k", "--", "true" }))
    assert.equal(7, (run { "run", "-w", "0.2", "-E", "7", "--servers", list(servers), "k", "--", "true" }))
    holder:close()
  end)

  it("ends the job before the lock can end when a majority dies", function()
    local child = command.start(nil, { "run", "--servers", list(servers), "--lease", "1.5", "k", "-c",
      "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.05; done" })
    assert(child:wait_output("ready\n", PATIENCE), child:output())
    servers[1]:kill()
    process.sleep(2)
    assert.is_nil((child:status()), "one dead server of three ended the job")
    servers[3]:kill()
    assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
    assert.matches("told\n", child:output(), 1, true)
    assert.matches('lost the lock "k": it could not be renewed', child:output(), 1, true)
  end)

  it("reads the servers and the guard from the environment and a file", function()
    local function by(env) return run { "run", "-n", "k", "--", "sh", "-c", 'echo "$HOLDFAST_SERVERS"', env = env } end
    local code, output = by { HOLDFAST_SERVERS = list(servers) }
    assert.equal(0, code, output)
    assert.equal(list(servers) .. "\n", output)
    local path = directory .. "/holdfast.conf"
    local file = assert(io.open(path, "w"))
    file:write("servers = ", list(servers), "\nrestart_guard = 3600\n")
    file:close()
    code, output = by { HOLDFAST_CONFIG = path }
    assert.equal(76, code)
    assert.matches("restarted a short time ago", output)
    code, output = run { "run", "-n", "--servers", list(servers), "--restart-guard", "3600", "k", "--", "true" }
    assert.equal(76, code)
    assert.matches("restarted a short time ago", output)
  end)

  it("is refused when asked wrongly", function()
    local url = servers[1]:url()
    for _, words in ipairs {
      { "run", "--servers", url .. "," .. url, "k", "--", "true" },
      { "run", "--servers", "redis://a,b", "k", "--", "true" },
      { "run", "--servers", ",", "k", "--", "true" },
      { "run", "--url", url, "--restart-guard", "3", "k", "--", "true" },
      { "ls", "--servers", list(servers) },
      { "top", "--servers", list(servers) },
      { "bench", "--servers", list(servers) },
    } do
      local code, output = run(words)
      assert.equal(64, code)
      assert.equal(1, lines_of(output))
    end
    local _, output = run { "ls", env = { HOLDFAST_SERVERS = list(servers) } }
    assert.equal("holdfast ls: this verb looks at one server, not at several: name one with --url\n", output)
    assert.equal(0, (run { "ls", "--url", url, env = { HOLDFAST_SERVERS = list(servers) } }))
  end)

  it("is seen by show, ping and break", function()
    local holder = holdfast.new { servers = { servers[1]:url(), servers[2]:url(), servers[3]:url() }, mode = "quorum" }
    local lock = assert(holder:lock("k"):acquire())
    assert(holder:mutex("m"):acquire())
    eventually(function() return standing("k") == 3 and standing("m") == 3 end)
    local code, output = run { "show", "--servers", list(servers), "k" }
    assert.equal(0, code)
    assert.matches("state    held\n", output, 1, true)
    assert.matches("owner    " .. lock:owner(), output, 1, true)
    code, output = run { "show", "--servers", list(servers), "m" }
    assert.equal(0, code, output)
    assert.matches("state    held, a mutex\n", output, 1, true)
    assert.equal(1, (run { "show", "--servers", list(servers), "other" }))
    code, output = run { "ping", "--servers", list(servers) }
    assert.equal(0, code)
    assert.matches("^answers in ", output)
    code, output = run { "break", "--yes", "--servers", list(servers), "k" }
    assert.equal(0, code)
    assert.equal("k: broken\n", output)
    assert.equal(0, standing("k"))
    servers[2]:kill() servers[3]:kill()
    assert.equal(76, (run { "ping", "--servers", list(servers) }))
    assert.equal(76, (run { "show", "--servers", list(servers), "k" }))
    holder:close()
  end)
end)
