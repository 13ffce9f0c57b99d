local command = require "spec.support.command"
local holdfast = require "holdfast"
local lfs = require "lfs"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

-- POSIX cannot end a job together with the program that started it.
local ENDS_WITH_PARENT = not process.build:find("portable", 1, true)

local PATIENCE = 40
local CROWD_PATIENCE = 120 -- seconds; many processes start
local SIGNALS = { HUP = 1, INT = 2, QUIT = 3, USR1 = 10, USR2 = 12, TERM = 15, TSTP = 20,
  WINCH = 28 }

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

-- Returns the state of the process: "R", "S", "T", ...; nil after its end.
local function state(pid)
  return read(("/proc/%d/stat"):format(pid)):match("%) (%a)")
end

local function is_gone(pid)
  local is = state(pid)
  return is == nil or is == "Z"
end

-- On a busy machine a program may be late once, but not each time.
local function in_time(seconds, attempt)
  local took
  for _ = 1, 3 do
    took = attempt()
    if took < seconds then return end
  end
  error(("it took %.3f s, each time more than %s"):format(took, seconds), 2)
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

  -- Where holdfast cannot prove that a process has ended, it says so first.
  local function run(words)
    local code, output = command.run(server, words)
    output = output:gsub('^{"event":"crash_release_off"[^\n]*"unsupported"}\n', "")
    return code, (output:gsub("^holdfast run: crash release is off: this system[^\n]*\n", ""))
  end
  local function start(words) return command.start(server, words) end
  local function is_free(key) return server:cli("EXISTS", key or "k") == 0 end

  -- Returns the key under which the child has published itself, or nil.
  local function name_of(child)
    for _, key in ipairs(server:cli("KEYS", "holdfast_client:*")) do
      if (server:cli("GET", key) or ""):match("^%S+ (%d+)") == tostring(child.pid) then
        return key
      end
    end
  end

  -- A job that sets the traps with which the script begins, writes its process id to the file,
  -- prints "ready", and runs the rest.
  local function job(script)
    local traps, rest = "", script
    repeat
      local trap, after = rest:match("^(trap '[^']*' %u+; )(.*)$")
      if trap then traps, rest = traps .. trap, after end
    until not trap
    return traps .. "echo $$ >" .. directory .. "/pid; echo ready; " .. rest
  end

  local function start_job(words, script)
    words[#words + 1] = "--"
    for _, word in ipairs { "sh", "-c", job(script) } do words[#words + 1] = word end
    local child = start(words)
    assert(child:wait_output("ready\n", PATIENCE), child:output())
    return child, tonumber(read(directory .. "/pid"))
  end

  -- Starts a job whose standard error is a full pipe that nobody reads.
  -- → the child, the process ids of the job and of holdfast
  local function start_unread(option)
    local fifo, ids = directory .. "/fifo", directory .. "/ids"
    local script = command.shell_prelude(server) .. ("\nmkfifo %s; exec 7<>%s\n"):format(fifo, fifo)
      .. "holdfast run " .. option .. " --lease 9 k -c 'yes >&2 & echo $! $$ $PPID >" .. ids
      .. "; exec sleep 60' 2>" .. fifo
    local child = command.other { "sh", "-c", script }
    eventually(function() return lines_of(read(ids)) == 1 end)
    local writer, pid, parent = read(ids):match("(%d+) (%d+) (%d+)")
    eventually(function() return state(tonumber(writer)) == "S" end)
    return child, tonumber(pid), tonumber(parent)
  end

  describe("with a job", function()
    it("holds the lock, exits with the job's code, and leaves no key except the token counter", function()
      local child = start_job({ "run", "k" }, "exit 7")
      assert.same({ "exit", 7 }, { child:wait(PATIENCE) })
      assert.equal("ready\n", child:output())
      assert.same({ "redisson_lock_token:{k}" }, server:leaks().keys)
    end)

    it("keeps the lock until the job ends", function()
      local child, pid = start_job({ "run", "k" }, "exec sleep 60")
      assert.is_false(is_free())
      eventually(function() return #server:cli("KEYS", "holdfast_client:*") == 1 end)
      process.signal(pid, "TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
      assert.is_true(is_free())
    end)

    it("passes standard input, output and error through to the job", function()
      local script = command.shell_prelude(server) ..
        "\nprintf 'a b' | holdfast run k -- sh -c 'cat; echo err >&2' 2>" .. directory .. "/err"
      local child = command.other { "sh", "-c", script }
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.equal("a b", child:output())
      assert.equal("err\n", read(directory .. "/err"))
    end)

    it("does not mistake its own output for a signal when its standard descriptors are closed", function()
      local script = command.shell_prelude(server) .. "\nholdfast run -v k -- touch " .. directory
        .. "/ran <&- >&- 2>&-"
      assert.same({ "exit", 0 }, { command.other({ "sh", "-c", script }):wait(PATIENCE) })
      assert.is_true(exists(directory .. "/ran"))
    end)

    it("passes arguments unchanged, without a shell", function()
      local code, output = run { "run", "k", "--", "printf", "%s|", "a b", "$HOME", "", "--", "-n" }
      assert.equal(0, code)
      assert.equal("a b|$HOME||--|-n|", output)
    end)

    it("-c runs a shell command line", function()
      local code, output = run { "run", "k", "-c", "echo $((6 * 7)); exit 4" }
      assert.equal(4, code)
      assert.equal("42\n", output)
    end)

    it("exits with 127 if the command does not exist, with 126 if it cannot be executed", function()
      local code, output = run { "run", "k", "--", "/no/such/command" }
      assert.equal(127, code)
      assert.matches('^holdfast run: cannot start "/no/such/command": [^\n]+\n$', output)
      assert.equal(126, (run { "run", "k", "--", "/tmp" }))
      assert.matches('^holdfast run: cannot start "": ', (select(2, run { "run", "k", "--", "" })))
      assert.is_true(is_free())
    end)

    it("gives the job HOLDFAST_KEY, _OWNER, _TOKEN and _URL in its environment", function()
      local code, output = run { "run", "k", "--", "sh", "-c",
        'echo "$HOLDFAST_KEY $HOLDFAST_OWNER $HOLDFAST_TOKEN $HOLDFAST_URL"' }
      assert.equal(0, code)
      local token = server:cli("GET", "redisson_lock_token:{k}")
      local uuid = "%x+%-%x+%-%x+%-%x+%-%x+"
      assert.matches("^k " .. uuid .. ":1 " .. token .. " unix://", output)
    end)

    describe("on a server with a password", function()
      local closed, url, bare, path

      setup(function()
        closed = redis.start { password = "s3cret" }
        url = closed:url()
        bare = url:gsub("//.*@", "//")
      end)
      teardown(function() closed:stop() end)
      before_each(function()
        path = directory .. "/password.conf"
        local file = assert(io.open(path, "w"))
        file:write("url = ", url, "\n")
        file:close()
      end)

      local SHOWS = { "--", "sh", "-c", 'echo "$HOLDFAST_URL"' }

      local function shown(verb, env, ...)
        local words = { verb, env = env, ... }
        for _, word in ipairs(SHOWS) do words[#words + 1] = word end
        local code, output = run(words)
        assert.equal(0, code, output)
        return (output:gsub("\n$", ""))
      end

      it("hides the password from the job unless it was in the environment or --pass-url is given", function()
        local by_file = { HOLDFAST_URL = false, HOLDFAST_CONFIG = path }
        local by_variable = { HOLDFAST_URL = url }
        for _, verb in ipairs { { "run", "-n" }, { "lead", "--once" } } do
          local name, option = verb[1], verb[2]
          assert.equal(bare, shown(name, by_file, option, "k"))
          assert.equal(url, shown(name, by_file, option, "--pass-url", "k"))
          assert.equal(url, shown(name, by_variable, option, "k"))
          assert.equal(bare, shown(name, nil, option, "--url", url, "k"))
          assert.equal(url, shown(name, nil, option, "--url", url, "--pass-url", "k"))
        end
      end)

      it("lets a nested run re-enter through the same settings file, never on a different server", function()
        local inner = command.words("run", "-n", "k", "--", "echo", "inside")
        local function nested(...)
          local words = { "run", env = { HOLDFAST_URL = false, HOLDFAST_CONFIG = path }, "k", "--", ... }
          for _, word in ipairs(inner) do words[#words + 1] = word end
          return run(words)
        end
        assert.same({ 0, "inside\n" }, { nested() })
        local code, output = nested("env", "HOLDFAST_CONFIG=/dev/null")
        assert.equal(77, code, output)
        assert.matches("NOAUTH.*%-%-pass%-url", output)
        code, output = run { "run", "-n", "k", "--", "true",
          env = { HOLDFAST_URL = bare, HOLDFAST_CONFIG = "/dev/null" } }
        assert.equal(77, code, output)
        assert.is_nil(output:find("--pass-url", 1, true))
      end)
    end)

    it("--url clears HOLDFAST_SERVERS in the job's environment", function()
      local code, output = run { "run", "--url", server:url(), "k", "--", "sh", "-c",
        'echo "$HOLDFAST_URL|${HOLDFAST_SERVERS-unset}"', env = { HOLDFAST_SERVERS = "unix:///a" } }
      assert.same({ 0, server:url() .. "|\n" }, { code, output })
    end)

    it("re-enters the lock of an enclosing run", function()
      local words = command.words("run", "-n", "k", "--", "sh", "-c", "redis-cli -s " .. server.path
        .. " hvals k")
      local code, output = run { "run", "k", "--", (table.unpack or unpack)(words) }
      assert.equal(0, code, output)
      assert.equal("2\n", output)
      assert.is_true(is_free())
    end)

    it("re-enters the lock of an enclosing run through a different URL of the same server", function()
      local words = command.words("run", "-n", "--url", server:url() .. "?db=0", "k", "--", "echo",
        "inside")
      local code, output = run { "run", "k", "--", (table.unpack or unpack)(words) }
      assert.same({ 0, "inside\n" }, { code, output })
      assert.is_true(is_free())
    end)

    it("keeps the lock until the last nested run has ended", function()
      local inner = command.words("run", "k", "--", "sh", "-c",
        "echo ready >" .. directory .. "/ready; while [ ! -e " .. directory
          .. "/go ]; do sleep 0.02; done; " ..
        "redis-cli -s " .. server.path .. " hvals k >" .. directory .. "/count")
      for i, word in ipairs(inner) do inner[i] = "'" .. word .. "'" end
      local code, output = run { "run", "k", "-c", table.concat(inner, " ") .. " >/dev/null 2>&1 & "
        ..
        "while [ ! -e " .. directory .. "/ready ]; do sleep 0.02; done" }
      assert.equal(0, code, output)
      assert.is_false(is_free())
      assert.equal(1, (run { "run", "-n", "k", "--", "true" }))
      io.open(directory .. "/go", "w"):close()
      eventually(is_free)
      assert.equal("1\n", read(directory .. "/count"))
    end)

    it("does not re-enter a lock whose hold has ended", function()
      local _, output = run { "run", "k", "-c", 'echo "$HOLDFAST_OWNER $HOLDFAST_TOKEN"' }
      local owner, token = output:match("^(%S+) (%S+)\n$")
      local env = { HOLDFAST_KEY = "k", HOLDFAST_OWNER = owner, HOLDFAST_TOKEN = token }
      local first = start { "run", "k", "-c", "echo in; exec sleep 60", env = env }
      assert(first:wait_output("in\n", PATIENCE), first:output())
      assert.equal(0, server:cli("HEXISTS", "k", owner))
      local code = run { "run", "-n", "k", "--", "touch", directory .. "/ran", env = env }
      assert.equal(1, code)
      assert.is_false(exists(directory .. "/ran"))
      first:kill("TERM")
      assert.same({ "exit", 143 }, { first:wait(PATIENCE) })
    end)

    it("does not re-enter a lock whose token differs from HOLDFAST_TOKEN", function()
      server:cli("HSET", "k", "11111111-2222-8333-8444-555555555555:1", 1)
      server:cli("PEXPIRE", "k", 60000)
      server:cli("SET", "redisson_lock_token:{k}", "500")
      local env = { HOLDFAST_KEY = "k", HOLDFAST_OWNER = "11111111-2222-8333-8444-555555555555:1" }
      for _, token in ipairs { "499", "", "501" } do
        env.HOLDFAST_TOKEN = token
        assert.equal(1, (run { "run", "-n", "k", "--", "true", env = env }))
      end
      env.HOLDFAST_TOKEN = "500"
      assert.equal(0, (run { "run", "-n", "k", "--", "true", env = env }))
      assert.same({ "11111111-2222-8333-8444-555555555555:1", "1" }, server:cli("HGETALL", "k"))
    end)

    it("acquires a key other than the enclosing run's as a separate lock", function()
      local words = command.words("run", "-n", "other", "--", "true")
      assert.equal(0, (run { "run", "k", "--", (table.unpack or unpack)(words) }))
      local holder = holdfast.new(server:url())
      local lock = assert(holder:lock("other"):acquire())
      assert.equal(1, (run { "run", "k", "--", (table.unpack or unpack)(words) }))
      assert(lock:release())
      holder:close()
    end)

    it("--max-runtime ends the job with TERM, then KILL after the grace period, and exits with 124", function()
      local words = { "run", "--max-runtime", "0.2", "--grace", "0.2", "--idempotent", "60", "--json", "k", "--",
        "sh", "-c", "trap 'echo got TERM' TERM; while :; do sleep 0.02; done" }
      local child = start(words)
      assert.same({ "exit", 124 }, { child:wait(PATIENCE) })
      local output = child:output()
      for _, part in ipairs {
        '"event":"overdue"', '"seconds":0.2', "the job has reached its %-%-max%-runtime of 0.2 s; stopping the job",
        "got TERM", '"event":"ended"[^\n]*"signal":9', '"event":"released"',
      } do assert.matches(part, output) end
      assert.is_nil(output:find('"lost"', 1, true))
      assert.is_true(is_free())
      assert.equal(0, (run { "run", "--max-runtime", "1m", "--idempotent", "60", "k", "--", "true" }))
    end)

    it("does not record success if the job exits with 0 after --max-runtime", function()
      assert.equal(124, (run { "run", "--max-runtime", "0.2", "--idempotent", "60", "k", "--", "sh", "-c",
        "trap 'exit 0' TERM; while :; do sleep 0.02; done" }))
      assert.equal(0, (run { "run", "--idempotent", "60", "k", "--", "true" }))
    end)

    it("exits with 75 if the lock is lost while --max-runtime ends the job", function()
      local child = start_job({ "run", "--max-runtime", "0.3", "--grace", "60", "k" },
        "trap 'redis-cli -s " .. server.path .. " del k >/dev/null; exit 0' TERM; while :; do sleep 0.02; done")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
    end)

    it("--min-hold keeps the lock after a short job", function()
      local child = start { "run", "--min-hold", "60", "k", "--", "sh", "-c", "echo done; exit 5" }
      assert(child:wait_output("done", PATIENCE))
      local lock = holdfast.new(server:url()):lock("k")
      assert.same("busy", select(3, lock:acquire(0.3)))
      child:kill("TERM")
      assert.same({ "exit", 5 }, { child:wait(PATIENCE) })
      assert.is_true(is_free())
    end)

    it("exits with 75 when the lock is lost during --min-hold", function()
      local child = start { "run", "--min-hold", "60", "--lease", "3", "-v", "k", "--", "true" }
      assert(child:wait_output("exited with code 0\n", PATIENCE), child:output())
      server:cli("DEL", "k")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
    end)

    it("ends --min-hold on a signal that would have ended the job, and on no other signal", function()
      local child = start { "run", "-v", "--min-hold", "60", "k", "-c", "exit 3" }
      assert(child:wait_output("exited with code 3\n", PATIENCE), child:output())
      for _, name in ipairs { "WINCH", "CONT", "TSTP" } do child:kill(SIGNALS[name] or name) end
      process.sleep(0.1)
      assert.is_nil((child:status()))
      assert.is_false(is_free())
      child:kill("TERM")
      assert.same({ "exit", 3 }, { child:wait(PATIENCE) })
      assert.is_true(is_free())
    end)

    it("with --one-by-one ends the job before an unrenewed lease can end, as `holdfast hold` exits before that", function()
      local all = {}
      for _, words in ipairs { { "hold" }, { "run", "-c", "exec sleep 60" } } do
        table.insert(words, 2, "--lease")
        table.insert(words, 3, "1.5")
        table.insert(words, 4, "--one-by-one")
        table.insert(words, 5, "mail:" .. words[1])
        all[#all + 1] = start(words)
      end
      for _, child in ipairs(all) do
        assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
        assert.matches("its lease was about to expire", child:output(), 1, true)
      end
    end)

    it("warns if it cannot release the lock, and exits with the job's code", function()
      local doomed = redis.start()
      finally(function() doomed:stop() end)
      local child = start { "run", "--url", doomed:url(), "--json", "k", "-c",
        "echo ready; while [ ! -e " .. directory .. "/go ]; do sleep 0.02; done; exit 5" }
      assert(child:wait_output("ready", PATIENCE), child:output())
      doomed:kill("KILL")
      io.open(directory .. "/go", "w"):close()
      assert.same({ "exit", 5 }, { child:wait(PATIENCE) })
      assert.is_nil(child:output():find('"released"', 1, true), child:output())
      assert.matches('"event":"warning"[^\n]+cannot release[^\n]+the lock will expire in at most 30 s","code":"unreachable"',
        child:output())
    end)

    it("waits for a hung server once, not once per key, when it releases several keys", function()
      in_time(8, function()
        local doomed = redis.start()
        os.remove(directory .. "/go")
        local words = { "run", "--url", doomed:url(), "--lease", "15", "-c",
          "echo ready; while [ ! -e " .. directory .. "/go ]; do sleep 0.02; done; exit 5",
          env = { HOLDFAST_CONFIG = "/dev/null" } } -- a server must answer within 1.5 s
        for i = 1, 16 do words[#words + 1] = "k" .. i end
        local child = start(words)
        assert(child:wait_output("ready", PATIENCE), child:output())
        doomed:kill("STOP")
        local stopped = process.now()
        io.open(directory .. "/go", "w"):close()
        local how, code = child:wait(PATIENCE)
        local took = process.now() - stopped
        doomed:stop()
        assert.same({ "exit", 5 }, { how, code }, child:output())
        local _, count = child:output():gsub('cannot release "k%d+"[^\n]+the lock will expire in at most', "")
        assert.equal(16, count, child:output())
        return took
      end)
    end)

    it("reports a lock whose lease ended during its release as not released, not as lost", function()
      local holding = require "holdfast.command.holding"
      local function release(left, code)
        local warnings = {}
        local out = { problem = function(_, _, _, text) warnings[#warnings + 1] = text end }
        local held, lock = holding.new(nil, {}, out), {}
        function lock:key() return "k" end
        function lock:lost() end
        function lock:remaining() return left end
        function lock:release()
          process.sleep(0.02)
          return nil, "cannot release it", code
        end
        held.locks = { lock }
        return held:release(), table.concat(warnings)
      end
      assert.same({ true, 'cannot release "k": no answer in time; the lock expired with its lease' },
        { release(0.01, "lost") })
      assert.same({ nil, "" }, { release(60, "lost") })
      assert.same({ nil, "" }, { release(-1, "lost") })
      assert.same({ nil, "" }, { release(60, "not_held") })
    end)

    -- Takes a lock whose acquires return `answers` in turn: { code, entered, left, extends }.
    -- → the result, the holding, the waits, how often the lock was released and extended
    local function take(inside, answers)
      local held = require("holdfast.command.holding").new(nil,
        { keys = { "k" }, wait = 10, lease = 30, chosen = {} })
      local seen, answer = { waits = {}, inside = {}, released = 0, extended = 0 }, nil
      function held:make_locks(given)
        local lock = { remaining = function() return answer.left or 30 end }
        function lock.acquire(_, seconds)
          answer = table.remove(answers, 1)
          table.insert(seen.waits, seconds)
          table.insert(seen.inside, given.k ~= nil)
          process.sleep(0.01)
          if answer.code then return nil, "no lock", answer.code end
          return lock
        end
        function lock.extend(_, seconds)
          seen.extended = seen.extended + 1
          assert.equal(30, seconds)
          if answer.extends == false then return nil, "no extend", "lost" end
          return true
        end
        function lock.release() seen.released = seen.released + 1 return true end
        self.locks, self.group = { lock }, lock
      end
      function held.has_reentered() return answer.entered ~= false end
      return { held:acquire_locks(inside) }, held, seen
    end

    it("waits for its full --wait although signals without effect interrupt it", function()
      local results, _, seen = take({}, { { code = "interrupted" }, { code = "interrupted" }, { code = "busy" } })
      assert.same({ nil, "no lock", "busy" }, results)
      assert.is_true(seen.waits[1] > 9.9 and seen.waits[2] <= 9.99 and seen.waits[3] <= 9.98)
    end)

    it("re-enters the lock of an enclosing run without a wait, and waits for any other lock", function()
      local around = { k = { owner = "o", token = "1" } }
      local results, held, seen = take(around, { {} })
      assert.same({ { true }, true, { 0 }, 0 },
        { results, held.is_nested, seen.waits, seen.released })
      for _, first in ipairs { { code = "busy" }, { entered = false } } do
        results, held, seen = take(around, { first, {} })
        assert.same({ { true }, false, { true, false } }, { results, held.is_nested, seen.inside })
        assert.is_true(seen.waits[2] > 9)
        assert.equal(first.code and 0 or 1, seen.released)
      end
      results, held, seen = take(around, { { code = "conflict" } })
      assert.same({ { nil, "no lock", "conflict" }, 1 }, { results, #seen.waits })
      assert.is_nil(held.is_nested)
    end)

    it("releases a granted lock that it cannot confirm", function()
      local results, _, seen = take({}, { { left = 18, extends = false } })
      assert.same({ { nil, "no extend", "lost" }, 1, 1 }, { results, seen.released, seen.extended })
      results, _, seen = take({}, { { left = 18 } })
      assert.same({ { true }, 0, 1 }, { results, seen.released, seen.extended })
      assert.equal(0, select(3, take({}, { { left = 18.1 } })).extended)
    end)

    it("gives the job no extra descriptor except the one whose closing shows that the job has ended", function()
      local plain = command.other { "setsid", "sh", "-c", "ls /proc/self/fd" }
      assert.same({ "exit", 0 }, { plain:wait(PATIENCE) })
      for _, option in ipairs { "--no-crash-release", "--lease=30" } do
        local _, output = run { "run", option, "k", "-c", "ls /proc/self/fd" }
        if option == "--lease=30" then output = output:gsub("4%d%d\n", "") end
        assert.equal(plain:output(), output)
      end
    end)

    it("-v prints each step", function()
      local text = 'holdfast run: acquired "k" after %d+%.%d%d%d s\nholdfast run: started pid %d+\n'
      local function with(script) return select(2, run { "run", "-v", "k", "-c", script }) end
      assert.matches("^" .. text .. 'holdfast run: exited with code 3\nholdfast run: released "k"\n$', with "exit 3")
      assert.matches("^" .. text .. "holdfast run: terminated by signal 9\n", with "kill -9 $$")
      local child = start_job({ "run", "-v", "k" }, "trap 'exit 0' INT; while :; do sleep 0.02; done")
      child:kill("INT")
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.matches("\nholdfast run: passing on INT\n", child:output())
    end)

    it("--json prints each step as an event", function()
      local code, output = run { "run", "--json", "k", "--", "sh", "-c", "exit 3" }
      assert.equal(3, code)
      output = output:gsub(',"time":"%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ"', "<time>")
      assert.matches('^{"event":"acquired"<time>,"key":"k","owner":"[%x:-]+","token":%d+,"waited":[%d.e-]+}\n' ..
        '{"event":"started"<time>,"pid":%d+}\n{"event":"ended"<time>,"exit":3}\n' ..
        '{"event":"released"<time>,"key":"k"}\n$', output)
      code, output = run { "run", "--json", "k" }
      assert.equal(64, code)
      assert.matches('^{"event":"error","time":"[^"]+","message":"no %-%- before the command[^"]*","code":"usage","exit":64}\n$', output)
    end)

    -- The job may print text that looks like an event, and may try to write to that descriptor.
    it("--json-fd prints events to a descriptor that the job does not inherit", function()
      local events, errors = directory .. "/events", directory .. "/errors"
      local words = table.concat(command.words("run", "--json-fd", "7", "k", "--", "sh", "-c"), "' '")
      local child = process.start { "sh", "-c", ([[
        '%s' 'echo "{\"event\":\"lost\"}" >&2; echo plain >&2; echo forged 2>&- >&7; exit 3' 7>%s 2>%s]]):format(words,
        events, errors), env = command.environment(server) }
      child:wait(PATIENCE)
      local names = {}
      for line in io.lines(events) do
        local unsupported = line:find('^{"event":"crash_release_off".*"unsupported"}$') -- on some systems
        if not unsupported then names[#names + 1] = line:match('^{"event":"(%l+)",.*}$') or line end
      end
      assert.same({ "acquired", "started", "ended", "released" }, names)
      local file = assert(io.open(errors))
      assert.matches('^{"event":"lost"}\nplain\n', file:read("*a"))
      file:close()
    end)

    it("refuses a --json-fd that is not open or that the job would inherit", function()
      for _, fd in ipairs { "2", "0", "-1", "77", "x", "3.5", "99999999999" } do
        local code, output = run { "run", "--json-fd", fd, "k", "--", "true" }
        assert.equal(64, code)
        assert.equal(('holdfast run: --json-fd must be an open descriptor, 3 or higher, not "%s"\n'):format(fd), output)
      end
    end)

    it("accepts durations with units", function()
      local function lease(text)
        local _, output = run { "run", "--lease", text, "k", "-c", "redis-cli -s " .. server.path
          .. " pttl k" }
        return tonumber(output)
      end
      for text, seconds in pairs { ["90"] = 90, ["15.5s"] = 15.5, ["15500ms"] = 15.5, ["5m"] = 300,
        ["1h30m"] = 5400,
        ["1d"] = 86400, ["2w"] = 1209600, ["1h0.5m"] = 3630 } do
        local ms = lease(text)
        assert.is_true(ms > seconds * 500 and ms <= seconds * 1000, text .. ": " .. ms)
      end
    end)

    it("accepts flock's long option names", function()
      local holder = holdfast.new(server:url())
      local lock = assert(holder:lock("k"):acquire())
      assert.equal(9, (run { "run", "--nonblock", "--conflict-exit-code", "9", "k", "--", "true" }))
      assert.equal(9, (run { "run", "--nb", "--conflict-exit-code=9", "k", "--", "true" }))
      assert(lock:release())
      holder:close()
    end)

    it("rejects option values that are out of range or malformed", function()
      local options = require "holdfast.command.options"
      local known = require("holdfast.command.run").options
      for _, case in ipairs {
        { "--lease", "0.1", 0.1 }, { "--lease", "1e9", 1e9 }, { "--min-hold", "0", 0 },
        { "--lease", "5ms" }, { "--lease", "0.099" }, { "--lease", "1000000001" },
        { "--wait", "-1" }, { "--wait", "nan" }, { "--wait", "1h30" }, { "--wait", "5x" },
        { "--wait", "" }, { "--wait", "m" },
        { "--wait", "1h 2m" }, { "--wait", ("1s"):rep(33) }, { "--wait", ("1s"):rep(32), 32 },
        { "--busy-exit", "0", 0 }, { "--busy-exit", "255", 255 }, { "--busy-exit", "256" },
        { "--busy-exit", "-1" }, { "--busy-exit", "1.5" }, { "--busy-exit", "x" },
        { "--permits", "1", 1 }, { "--permits", "1e9", 1e9 }, { "--permits", "0" },
        { "--permits", "1.5" },
        { "--permits", "1000000001" }, { "--name", ("n"):rep(127), ("n"):rep(127) },
        { "--name", ("n"):rep(128) }, { "--name", "a b", "a b" }, { "--name", "" },
        { "--name", "a\27b" },
        { "--url", "" },
      } do
        local name, text, value = case[1], case[2], case[3]
        for _, words in ipairs { { "run", name, text }, { "run", name .. "=" .. text } } do
          local values, message = options.read(known, words, 2)
          if value ~= nil then
            assert.equal(value, values[name:sub(3)], text)
          else
            assert.is_nil(values, text)
            assert.matches("^" .. name:gsub("%p", "%%%0") .. " must be ", message)
          end
        end
      end
      assert.equal("--quiet takes no value",
        select(2, options.read(known, { "run", "--quiet=1" }, 2)))
      assert.equal("-w needs a value: TIME", select(2, options.read(known, { "run", "-nw" }, 2)))
      assert.equal("--wait needs a value: TIME",
        select(2, options.read(known, { "run", "--wait" }, 2)))
      assert.same({ "-" }, select(2, options.read(known, { "run", "-" }, 2)))
      local values = options.read(known, { "run", "-qvw5", "-E", "4" }, 2)
      assert.same({ quiet = true, verbose = true, wait = 5, ["busy-exit"] = 4 }, values)
    end)

    -- Calls `call` with only these environment variables.
    local function with_variables(variables, call, ...)
      local getenv = os.getenv
      os.getenv = function(name) return variables[name] end -- luacheck: ignore 122
      local results = { pcall(call, ...) }
      os.getenv = getenv -- luacheck: ignore 122
      assert(results[1], results[2])
      return (table.unpack or unpack)(results, 2, 3)
    end

    -- → the plan of a run with these words | nil, message
    local function plan_of(...)
      local options, target = require "holdfast.command.options", require "holdfast.command.target"
      local given, words = options.read(require("holdfast.command.run").options, { "run", ... }, 2)
      return with_variables({ HOLDFAST_CONFIG = "/dev/null" }, target.read, assert(given, words), words)
    end

    it("takes keys, lease, wait, grace period and mode from its options", function()
      for _, case in ipairs {
        { { "k" }, { keys = { "k" }, lease = 30, grace = 5, wait = math.huge, renewed = true,
          mode = false } },
        { { "-n", "--grace", "0", "b", "a" }, { keys = { "b", "a" }, wait = 0, grace = 0 } },
        { { "-w0", "k" }, { wait = 0 } }, { { "-w", "9", "k" }, { wait = 9 } },
        { { "-w", "9", "-w5", "k" }, { wait = 5 } },
        { { "--lease", "3", "k" }, { lease = 3, renewed = true } },
        { { "--one-by-one", "a:b:c" }, { keys = { "a_b:c" }, biz_type = "a", biz_id = "b:c",
          renewed = true, lease = 30 } },
        { { "--one-by-one", "a:b", "--lease", "3" }, { renewed = false, lease = 3 } },
        { { "-s", "k" }, { mode = "read" } }, { { "-x", "k" }, { mode = "write" } },
        { { "one\nkey" }, { keys = { "one\nkey" } } },
        { { ("k"):rep(131000) }, { renewed = true } },
        { { ("k"):rep(131001) }, "the KEYs are longer than 131000 bytes in total" },
        { { ("k"):rep(65500), ("l"):rep(65500) }, "the KEYs are longer than 131000 bytes in total" },
        { { "a", "b\nc" }, "with several KEYs, none may contain a line break" },
        { { "a", "b", "a" }, '"a" is given twice' },
        { { "a", "" }, "KEY is empty" }, { {}, "no KEY" },
        { { "k", "--one-by-one", "a:b" },
          'unexpected argument "k"; --one-by-one takes no KEY; put -- before the command' },
        { { "--one-by-one", ":b" }, '--one-by-one must be TYPE:ID, not ":b"' },
        { { "--one-by-one", "a:" }, '--one-by-one must be TYPE:ID, not "a:"' },
        { { "holdfast_queue:{k}" },
          'KEY must be one that does not begin with "holdfast_queue:", which' },
        { { "-s", "-x", "k" }, "-s and -x cannot be combined" },
        { { "-s", "--one-by-one", "a:b" }, "-s and -x do not work with --one-by-one" },
        { { "-x", "--servers", "redis://a", "k" }, "-s and -x need a single server, not --servers" },
        { { "--permits", "2", "a", "b" }, "--permits takes one KEY" },
        { { "--permits", "2", "--one-by-one", "a:b" }, "--permits does not work with --one-by-one" },
        { { "--permits", "2", "-x", "k" }, "--permits does not work with -s or -x" },
        { { "--permits", "2", "--servers", "redis://a", "k" },
          "--permits needs a single server, not --servers" },
        { { "-n", "-w", "0", "k" }, "-n and -w cannot be combined" },
        { { "-q", "-v", "k" }, "-q and -v cannot be combined" },
      } do
        local plan, message = plan_of((table.unpack or unpack)(case[1]))
        if type(case[2]) == "string" then
          assert.is_nil(plan, case[2])
          assert.matches(case[2], message, 1, true)
        else
          assert(plan, message)
          for name, value in pairs(case[2]) do
            assert.same({ name, value }, { name, plan[name] })
          end
        end
      end
    end)

    it("recognizes an enclosing run by its environment only on the same kind of servers", function()
      local inherited = require("holdfast.command.target").inherited
      local one, two = { owner = "o", token = "1" }, { owner = "p", token = "2" }
      local function found(chosen, key, owner, token, servers)
        return with_variables({ HOLDFAST_KEY = key, HOLDFAST_OWNER = owner, HOLDFAST_TOKEN = token,
          HOLDFAST_SERVERS = servers, HOLDFAST_URL = "redis://a" }, inherited, chosen)
      end
      local single, quorum = { url = "redis://b" }, { servers = { "redis://b" } }
      assert.same({ k = one }, found(single, "k", "o", "1"))
      assert.same({ k = one, l = two }, found(single, "k\nl", "o\np", "1\n2"))
      assert.same({ ["k\nl"] = one }, found(single, "k\nl", "o", "1"))
      assert.same({ k = { owner = "o", token = "" }, l = { owner = "p", token = "" } },
        found(quorum, "k\nl", "o\np", "\n", "redis://a,redis://b"))
      for _, none in ipairs {
        { single, nil, "o", "1" }, { single, "", "o", "1" }, { single, "k", nil, "1" },
        { single, "k", "", "1" }, { quorum, "k", "o", "1" }, { single, "k", "o", "1", "redis://a" },
      } do
        assert.same({}, found(none[1], none[2], none[3], none[4], none[5]))
      end
    end)

    it("re-enters a key that contains a line break", function()
      local words = command.words("run", "-n", "a\nb", "--", "echo", "in")
      assert.same({ 0, "in\n" }, { run { "run", "a\nb", "--", (table.unpack or unpack)(words) } })
    end)

    it("limits its timeouts to a tenth of the lease", function()
      local settings, target = require "holdfast.command.settings", require "holdfast.command.target"
      local client, seen = settings.client, nil
      settings.client = function(_, opts) seen = opts return {} end
      finally(function() settings.client = client end)
      for lease, times in pairs { [0.1] = { 0.1, 0.1 }, [5] = { 0.5, 0.5 }, [20] = { 1, 2 },
        [60] = { 1, 3 } } do
        target.client({ keys = { "k" }, lease = lease, chosen = {} }, { crash_release = true })
        assert.same({ lease = lease, connect_timeout = times[1], command_timeout = times[2],
          crash_release = true }, seen)
      end
      local keys = {}
      for i = 1, 1025 do keys[i] = "k" .. i end
      local plan = { keys = keys, lease = 5, chosen = {} }
      assert.same({ nil, "at most 1024 KEYs" }, { target.client(plan) })
      keys[1025] = nil
      assert.is_truthy(target.client(plan))
    end)

    it("refuses --timeout, which flock uses for --wait, and names --wait", function()
      local code, output = run { "run", "--timeout", "1", "k", "--", "true" }
      assert.equal(64, code)
      assert.matches("use %-%-wait %(%-w%) to limit the wait for the lock, or %-%-max%-runtime to limit the job", output)
      assert.matches("there is no %-%-timeout; to limit the wait, use %-%-wait %(%-w%)\n",
        (select(2, run { "hold", "--timeout", "1", "k" })))
    end)

    it("suggests the intended line if -- is missing", function()
      assert.equal("holdfast run: no -- before the command; did you mean holdfast run k -- sleep …?\n",
        select(2, run { "run", "-n", "k", "sleep", "1" }))
      assert.equal("holdfast lead: no -- before the command; use holdfast lead KEY -- command\n",
        select(2, run { "lead", "k" }))
    end)

    it("suggests the intended subcommand, and prints the help if there is none", function()
      for word, verb in pairs { rnu = "run", list = "ls", status = "show", lock = "run" } do
        local code, output = run { word, "k" }
        assert.same({ 64, ('holdfast: unknown subcommand "%s"; did you mean holdfast %s? holdfast --help lists all subcommands\n')
          :format(word, verb) }, { code, output })
      end
      local code, output = run {}
      assert.equal(64, code)
      assert.equal(select(2, run { "--help" }), output)
    end)

    it("suggests the intended option", function()
      local _, output = run { "run", "--nowait", "k", "--", "true" }
      assert.equal("holdfast run: unknown option --nowait; did you mean --no-wait? --help lists all options\n", output)
      _, output = run { "run", "--unlock", "k", "--", "true" }
      assert.equal("holdfast run: unknown option --unlock; --help lists all options\n", output)
      _, output = run { "run", "-u", "k", "--", "true" }
      assert.equal("holdfast run: unknown option -u; --help lists all options\n", output)
    end)

    it("suggests the intended option if the verb is missing", function()
      for word, meant in pairs { ["--verison"] = "--version", ["--hlep"] = "--help", ["-version"] = "--version" } do
        assert.same({ 64, ("holdfast: unknown option %s; did you mean %s?\n"):format(word, meant) }, { run { word } })
      end
      assert.same({ 64, "holdfast: options come after the subcommand: holdfast SUBCOMMAND --wait …\n" }, { run { "--wait" } })
    end)

    it("-v prints a key with a line break as one line", function()
      local _, output = run { "run", "-v", "a\nb", "--", "true" }
      assert.matches('^holdfast run: acquired "a\\x0ab" after', output)
    end)
  end)

  describe("on a busy lock", function()
    local holder, lock

    before_each(function()
      holder = holdfast.new(server:url())
      lock = assert(holder:lock("k"):acquire())
    end)
    after_each(function() holder:close() end)

    it("exits with 1 or the code of -E, at once with -n or after -w", function()
      for _, words in ipairs { { "-n" }, { "-w", "1" }, { "-w0" }, { "--wait=1" } } do
        local code, output = command.run_out(server,
          { "run", words[1], words[2] or "--lease=30", "k", "--", "touch", directory .. "/ran" })
        assert.equal(1, code)
        assert.matches('^holdfast run: cannot acquire "k" [^\n]+\n$', output)
      end
      assert.equal(9, (run { "run", "-nE9", "k", "--", "touch", directory .. "/ran" }))
      assert.equal(0, (run { "run", "-n", "-E", "0", "k", "--", "touch", directory .. "/ran" }))
      assert.is_false(exists(directory .. "/ran"))
    end)

    it("names the holder, even with -n", function()
      eventually(function() return lock:info().host end)
      local who = lock:info()
      local part = ("held by %s (pid %d) for "):format(who.host, who.pid)
      assert.matches(part, select(2, run { "run", "-n", "k", "--", "true" }), 1, true)
      assert.matches(('"host":"%s","pid":%d,"held_for":'):format(who.host, who.pid),
        select(2, run { "run", "-n", "--json", "free", "k", "--", "true" }), 1, true)
    end)

    it("prints nothing with -E 0 or -q", function()
      for _, words in ipairs {
        { "-n", "-E", "0" }, { "-w", "1", "-E", "0" }, { "-n", "-q" }, { "-nqE9" },
        { "-w0", "--quiet", "-E0" },
      } do
        words = { "run", words[1], words[2], words[3], words[4] }
        for _, word in ipairs { "k", "--", "echo", "ran" } do words[#words + 1] = word end
        assert.equal("", (select(2, command.run_out(server, words))))
      end
      assert.matches('^{"event":"error".*"code":"busy","exit":0[,}]',
        select(2, run { "run", "-n", "-E0", "--json", "k", "--",
        "true" }))
      assert.matches("^holdfast run: cannot acquire",
        (select(2, run { "run", "-n", "-E0", "-v", "k", "--", "true" })))
      assert.matches("usage\"", (select(2, run { "run", "-q", "--json", "k" })))
      local code, output = run { "run", "-q", "--url", "unix:///no/such.sock", "k", "--", "true" }
      assert.equal(69, code)
      assert.equal(1, lines_of(output))
    end)

    it("waits until the lock is free", function()
      local child = start { "run", "k", "--", "echo", "ran" }
      eventually(function() return lock:info().waiters == 1 end)
      assert(lock:release())
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.equal("ran\n", child:output())
    end)

    it("extends a granted lock to its full lease before the job starts", function()
      local child = start { "run", "--lease", "40", "k", "--", "redis-cli", "-s", server.path,
        "pttl", "k" }
      eventually(function() return lock:info().waiters == 1 end)
      assert(lock:release())
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.is_true(tonumber(child:output()) > 20000)
    end)

    for _, name in ipairs { "TERM", "INT", "HUP", "USR1" } do
      it("leaves the queue when " .. name .. " ends its wait", function()
        local child = start { "run", "k", "--", "touch", directory .. "/ran" }
        local published
        eventually(function()
          published = name_of(child)
          return published and lock:info().waiters == 1
        end)
        child:kill(SIGNALS[name])
        assert.same({ "exit", 128 + SIGNALS[name] }, { child:wait(PATIENCE) })
        assert.equal(0, lock:info().waiters)
        assert.equal(0, server:cli("EXISTS", published))
        assert.is_false(exists(directory .. "/ran"))
      end)
    end

    it("-v says that the job was not started when a signal ends the wait", function()
      for option, expected in pairs {
        ["-v"] = "^holdfast run: terminated by TERM before anything was started\n$",
        ["--json"] = '^{"event":"signal","time":"[^"]+","signal":"TERM"}\n$', ["--lease=30"] = "^$",
      } do
        local child = start { "run", option, "k", "--", "true" }
        eventually(function() return lock:info().waiters == 1 end)
        child:kill("TERM")
        assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
        local said = child:output():gsub('[^\n]*crash[_ ]release[^\n]*\n', ""):gsub('{"event":"waiting"[^\n]*\n', "")
        assert.matches(expected, (said:gsub("holdfast run: waiting for[^\n]*\n", "")))
      end
    end)

    it("is skipped in the queue if it is killed", function()
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

  describe("with wrong input", function()
    local cases = {
      ["a missing --"] = { "run", "k", "touch", "FILE" },
      ["no command"] = { "run", "k", "--" },
      ["no key"] = { "run", "--", "touch", "FILE" },
      ["an empty key"] = { "run", "", "--", "touch", "FILE" },
      ["a duplicate key"] = { "run", "k", "l", "k", "--", "touch", "FILE" },
      ["an empty key among several"] = { "run", "k", "", "--", "touch", "FILE" },
      ["a line break in one of several keys"] = { "run", "k", "l\nm", "--", "touch", "FILE" },
      ["keys too long for the job's environment"] = { "run", ("k"):rep(70000), ("l"):rep(70000), "--",
        "touch", "FILE" },
      ["--idempotent for several keys"] = { "run", "--idempotent", "60", "k", "l", "--", "touch",
        "FILE" },
      ["-q together with -v"] = { "run", "-q", "-v", "k", "--", "touch", "FILE" },
      ["an unknown unit"] = { "run", "-w", "5y", "k", "--", "touch", "FILE" },
      ["a unit without a number"] = { "run", "-w", "m", "k", "--", "touch", "FILE" },
      ["a duration of spaces"] = { "run", "-w", " ", "k", "--", "touch", "FILE" },
      ["an unknown option"] = { "run", "--lase", "3", "k", "--", "touch", "FILE" },
      ["an unknown short option"] = { "run", "-u", "k", "--", "touch", "FILE" },
      ["a missing value"] = { "run", "k", "-w" },
      ["a word instead of a number"] = { "run", "-w", "soon", "k", "--", "touch", "FILE" },
      ["a negative wait"] = { "run", "-w", "-1", "k", "--", "touch", "FILE" },
      ["an exit code out of range"] = { "run", "-E", "256", "k", "--", "touch", "FILE" },
      ["a value for a switch"] = { "run", "--json=yes", "k", "--", "touch", "FILE" },
      ["-n together with -w"] = { "run", "-n", "-w", "1", "k", "--", "touch", "FILE" },
      ["-c together with --"] = { "run", "-c", "touch FILE", "k", "--", "touch", "FILE" },
      ["an invalid URL"] = { "run", "--url", "http://x", "k", "--", "touch", "FILE" },
      ["--url together with --servers"] = { "run", "--url", "redis://a", "--servers", "redis://b", "k", "--",
        "touch", "FILE" },
      ["a TYPE:ID without an id"] = { "run", "--one-by-one", "x", "--", "touch", "FILE" },
      ["an unknown subcommand"] = { "walk", "k", "--", "touch", "FILE" },
      ["an option before the verb"] = { "--url", "redis://h", "run", "k", "--", "touch", "FILE" },
    }
    for name, words in pairs(cases) do
      it("exits with 64 and one line of output: " .. name, function()
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

    it("exits with 64 and one line of output for more keys than a multi-lock may have", function()
      local keys = {}
      for i = 1, 1025 do keys[i] = i end
      local child = process.start { env = command.environment(server), "sh", "-c",
        "exec '" .. table.concat(command.words "run", "' '") .. "' " .. table.concat(keys, " ")
          .. " -- true" }
      assert.same({ "exit", 64 }, { child:wait(PATIENCE) })
      assert.equal("holdfast run: at most 1024 KEYs\n", child:output())
    end)

    it("exits with 70 on an internal error", function()
      if command.is_static then return pending "the command as one file ignores LUA_INIT" end
      local code, output = run { "run", "-n", "k", "--", "true", env = {
        LUA_INIT = "package.preload['holdfast.command'] = function() error('broken') end" } }
      assert.equal(70, code)
      assert.matches("^holdfast: [^\n]*broken\n", output)
    end)

    local function refused(expected, words)
      local code, output = run(words)
      assert.equal(expected, code)
      assert.matches("^holdfast run: cannot ", output)
      assert.equal(1, lines_of(output))
      assert.is_false(exists(directory .. "/ran"))
    end

    it("exits with 69 if the server is unreachable", function()
      refused(69, { "run", "--url", "unix:///no/such.sock", "k", "--", "touch", directory
        .. "/ran" })
    end)

    it("exits with 69 if the server hangs, before even a short lease could end", function()
      local hung = redis.start()
      finally(function() hung:stop() end)
      hung:kill("STOP")
      in_time(2.5, function()
        local from = process.now()
        refused(69, { "run", "--lease", "2", "--url", hung:url(), "k", "--", "true",
          env = { HOLDFAST_CONFIG = "/dev/null" } })
        return process.now() - from
      end)
      hung:kill("CONT")
    end)

    it("exits with 77 if the password is wrong", function()
      local closed = redis.start { password = "secret" }
      finally(function() closed:stop() end)
      refused(77, { "run", "--url", "unix://" .. closed.path, "k", "--", "touch", directory
        .. "/ran" })
    end)

    it("exits with 73 if the key has another type", function()
      server:cli("SET", "k", "v")
      refused(73, { "run", "-n", "k", "--", "touch", directory .. "/ran" })
    end)
  end)

  describe("on signals", function()
    it("forwards each signal to the job's process group", function()
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
      if not ENDS_WITH_PARENT then process.signal(pid, "KILL") end
      eventually(function() return is_gone(pid) end)
    end)

    it("forwards signals although nobody reads its output", function()
      local child, pid, parent = start_unread("-v")
      process.signal(parent, "TERM")
      eventually(function() return is_gone(pid) end)
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)

    it("gives the job a process group of its own", function()
      local child, pid = start_job({ "run", "k" }, "exec sleep 60")
      assert.equal(tostring(pid), read(("/proc/%d/stat"):format(pid)):match("%) %a %d+ (%d+)"))
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)

    it("stops and continues the job, and renews the lock while it is stopped", function()
      local child, pid = start_job({ "run", "--lease", "4", "k" }, "exec sleep 60")
      child:kill(SIGNALS.TSTP)
      eventually(function() return state(pid) == "T" end)
      local last, rises = 0, 0
      eventually(function() -- renewals outlast the lease
        local ttl = server:cli("PTTL", "k")
        if ttl > last then rises = rises + 1 end
        last = ttl
        return rises == 4
      end)
      child:kill("CONT")
      eventually(function() return state(pid) == "S" end)
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)

    it("ends a stopped job on TERM or HUP", function()
      for _, name in ipairs { "TERM", "HUP" } do
        local child, pid = start_job({ "run", "k" }, "exec sleep 60")
        child:kill(SIGNALS.TSTP)
        eventually(function() return state(pid) == "T" end)
        child:kill(SIGNALS[name])
        assert.same({ "exit", 128 + SIGNALS[name] }, { child:wait(PATIENCE) })
      end
    end)

    it("leaves a signal ignored that was ignored at its start", function()
      local script = command.shell_prelude(server) .. "\ntrap '' HUP ALRM\nholdfast run k -- sh -c '"
        .. job("kill -HUP $PPID; kill -HUP $$; kill -ALRM $$; echo alive") .. "'"
      local child = command.other { "sh", "-c", script }
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.matches("alive", child:output())
    end)

    it("exits with the job's code although SIGCHLD was ignored", function()
      local words = command.words("run", "k", "-c", "exit 7")
      local child = process.start { env = command.environment(server),
        "env", "--ignore-signal=CHLD", (table.unpack or unpack)(words) }
      assert.same({ "exit", 7 }, { child:wait(PATIENCE) })
    end)

    it("kills the job when it is killed itself, and the lock ends with its lease", function()
      local child, pid = start_job({ "run", "--lease", "4", "k" }, "exec sleep 60")
      child:kill("KILL")
      assert.same({ "signal", 9 }, { child:wait(PATIENCE) })
      if not ENDS_WITH_PARENT then process.signal(pid, "KILL") end
      eventually(function() return is_gone(pid) end)
      eventually(is_free)
    end)

    it("releases the lock when the job is killed", function()
      local child, pid = start_job({ "run", "k" }, "exec sleep 60")
      process.signal(pid, "KILL")
      assert.same({ "exit", 137 }, { child:wait(PATIENCE) })
      assert.is_true(is_free())
    end)
  end)

  describe("on a loss", function()
    it("ends the job with TERM, and says why", function()
      local child, pid = start_job({ "run", "--lease", "9", "k" },
        "trap 'echo ending; exit 0' TERM; while :; do sleep 0.05; done")
      server:cli("FLUSHALL")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.matches('lost the lock "k": its key was deleted on the server; stopping the job\n',
        child:output(), 1, true)
      assert.matches("ending\n", child:output())
      assert.is_true(is_gone(pid))
    end)

    it("ends the job although nobody reads its output", function()
      local child, pid = start_unread("")
      server:cli("DEL", "k")
      eventually(function() return is_gone(pid) end)
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
    end)

    it("kills the job's whole process group after the grace period", function()
      local child, pid = start_job({ "run", "--lease", "5", "--grace", "0.3", "k" },
        "trap '' TERM; sh -c 'sleep 60' & echo $! >" .. directory
          .. "/grandchild; wait; while :; do sleep 0.05; done")
      local grandchild
      eventually(function()
        grandchild = tonumber(read(directory .. "/grandchild"))
        return grandchild
      end)
      server:cli("FLUSHALL")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      eventually(function() return is_gone(pid) and is_gone(grandchild) end)
    end)

    it("reports how the job ended, and kills the rest of its process group", function()
      local child = start_job({ "run", "--lease", "5", "--grace", "0.3", "--json", "k" },
        "sh -c 'trap \"\" TERM; echo $$ >" .. directory .. "/left; exec sleep 60' & exec sleep 60")
      local left
      eventually(function()
        left = tonumber(read(directory .. "/left"))
        return left
      end)
      server:cli("FLUSHALL")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.matches('"event":"ended","time":"[^"]+","signal":15}', child:output())
      eventually(function() return is_gone(left) end)
    end)

    it("ends the job before another owner can acquire the lock", function()
      in_time(5, function()
        local child, pid = start_job({ "run", "--lease", "5", "--grace", "60", "k" },
          "trap '' TERM; while :; do sleep 0.05; done")
        server:kill("STOP")
        local stopped = process.now()
        eventually(function() return is_gone(pid) end)
        local took = process.now() - stopped
        server:kill("CONT")
        assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
        assert.matches("it could not be renewed", child:output())
        return took
      end)
    end)

    -- Runs a job under a fake lock, which reports `lost`, and `left` seconds counted from the
    -- start.
    -- → what the job's callbacks and its result contain
    local function under(lost, left, argv)
      local child = process.lua { args = argv, code = ([[
        local core, job = require "holdfast.core", require "holdfast.command.job"
        local till = core.now() + %s
        local lock = { lost = function() return %s end,
          remaining = function() return till - core.now() end }
        local function ignore() end
        local result = job.run(lock, {
          argv = arg, environment = {}, lease = 10, renewed = true, grace = 0, min_hold = 0,
          on_started = ignore, on_signal = ignore, on_ended = ignore,
          on_lost = function(reason, left) print(reason, left) end,
        })
        print("result", result.how, result.lost)
      ]]):format(left, lost) }
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      return child:output()
    end

    it("ends the job before the lease ends even with a grace period of 0", function()
      in_time(0, function()
        local left = under("nil", 0.35, { "sleep", "60" }):match("^unreachable\t(%S+)\nresult\tsignal\tunreachable\n$")
        return -assert(tonumber(left))
      end)
    end)

    it("does not start the job if the lock is lost before the start", function()
      for _, case in ipairs { { '"deleted"', 5, "deleted" }, { "nil", 0.05, "unreachable" } } do
        local result = under(case[1], case[2], { "touch", directory .. "/ran" })
        assert.matches(("^%s\t%%S+\nresult\tnil\t%s\n$"):format(case[3], case[3]), result)
        assert.is_false(exists(directory .. "/ran"))
      end
    end)

    it("ends the job when the server is killed", function()
      local doomed = redis.start()
      finally(function() doomed:stop() end)
      local child, pid = start_job({ "run", "--url", doomed:url(), "--lease", "6", "k" },
        "exec sleep 60")
      doomed:kill("KILL")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.is_true(is_gone(pid))
    end)

    it("exits with 75 if only the release finds the loss", function()
      local child = start_job({ "run", "k" }, "redis-cli -s " .. server.path
        .. " del k >/dev/null; exit 0")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.matches("holdfast run: [^\n]*deleted", child:output())
    end)
  end)

  it("started by ten hosts with one crontab runs on only one of them, and prints nothing on the others", function()
    for _ = 1, 5 do
      local hosts = {}
      for i = 1, 10 do
        hosts[i] = start { "run", "-n", "-E", "0", "--min-hold", "60", "--name", "nightly",
          "jobs:backup", "--",
          "sh", "-c", "echo x >>" .. directory .. "/runs" }
      end
      local left
      eventually(function()
        left = {}
        for _, host in ipairs(hosts) do
          if not host:status() then left[#left + 1] = host end
        end
        return #left == 1 and lines_of(read(directory .. "/runs")) > 0
      end)
      left[1]:kill("TERM")
      for _, host in ipairs(hosts) do
        assert.same({ "exit", 0 }, { host:wait(PATIENCE) })
        assert.equal("", host:output())
      end
      assert.equal("x\n", read(directory .. "/runs"))
      os.remove(directory .. "/runs")
    end
  end)

  it("started 50 times at once runs its jobs one at a time, in order of arrival", function()
    local client = holdfast.new(server:url())
    local lock = assert(client:lock("k"):acquire())
    local script = ("mkdir %s/in || echo overlap >>%s/order; echo $0 >>%s/order; rmdir %s/in"):gsub("%%s", directory)
    local children, expected = {}, {}
    for i = 1, 50 do
      children[i] = start { "run", "k", "--", "sh", "-c", script, ("%d"):format(i) }
      expected[i] = ("%d\n"):format(i)
      assert(process.wait_until(function() return lock:info().waiters == i end, CROWD_PATIENCE))
    end
    assert(lock:release())
    for i = 1, 50 do assert.same({ "exit", 0 }, { children[i]:wait(CROWD_PATIENCE) }) end
    assert.equal(table.concat(expected), read(directory .. "/order"))
    client:close()
  end)

  describe("with several keys or records", function()
    it("--one-by-one acquires the mutex TYPE_ID", function()
      assert.equal("a_b:c\n",
        select(2, run { "run", "--one-by-one", "a:b:c", "-c", "echo $HOLDFAST_KEY" }))
      local child = start_job({ "run", "--one-by-one", "order:7" }, "exec sleep 60")
      assert.equal("string", server:cli("TYPE", "order_7"))
      eventually(function() return name_of(child) end)
      local code, output = run { "run", "-n", "--one-by-one", "order:7", "--", "true" }
      assert.equal(1, code)
      assert.matches("^holdfast run: type=order id=7: already running, held by %S+ %(pid " .. child.pid
        .. "%) for %d+ m?s, up to %d+ s[^\n]*\n$", output)
      local waiter = start { "run", "--one-by-one", "order:7", "--", "true" }
      eventually(function() return server:cli("ZCARD", "holdfast_queue:{order_7}") == 1 end)
      waiter:kill("TERM")
      assert.same({ "exit", 143 }, { waiter:wait(PATIENCE) })
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
      assert.is_true(is_free("order_7"))
    end)

    it("--one-by-one fails with deadlock inside a run of the same type and id", function()
      local words = command.words("run", "-n", "-E", "0", "--json", "--one-by-one", "a:b", "--",
        "true")
      local code, output = run { "run", "--one-by-one", "a:b", "--",
        (table.unpack or unpack)(words) }
      assert.equal(64, code)
      assert.matches('"code":"deadlock","exit":64}\n$', output)
      assert.matches("type=a id=b: an enclosing run already holds it and must finish", output, 1, true)
    end)

    it("--one-by-one ignores HOLDFAST_KEY of an enclosing run, and acquires its own lock", function()
      local env = { HOLDFAST_KEY = "a_b", HOLDFAST_OWNER = "11111111-2222-8333-8444-555555555555:1",
        HOLDFAST_TOKEN = "500" }
      assert.same({ 0, "ran\n" }, { run { "run", "-w", "2", "--one-by-one", "a:b", "--", "echo",
        "ran", env = env } })
    end)

    it("acquires several keys, all or none", function()
      local holder = holdfast.new(server:url())
      local lock = assert(holder:lock("b"):acquire())
      local code, output = run { "run", "-n", "a", "b", "c", "--", "true" }
      assert.equal(1, code)
      assert.matches('cannot acquire "b"', output)
      assert.is_true(is_free("a") and is_free("c"))
      local child = start { "run", "c", "a", "b", "--", "sh", "-c",
        'echo "$HOLDFAST_KEY"; echo "$HOLDFAST_TOKEN"; echo "$HOLDFAST_OWNER" | wc -l; exit 6' }
      eventually(function() return lock:info().waiters == 1 end)
      assert.is_false(is_free("a"))
      assert(lock:release())
      assert.same({ "exit", 6 }, { child:wait(PATIENCE) })
      local counter = {}
      for i, key in ipairs { "c", "a", "b" } do
        counter[i] = server:cli("GET", "redisson_lock_token:{" .. key .. "}")
      end
      assert.equal("c\na\nb\n" .. table.concat(counter, "\n") .. "\n3\n", child:output())
      assert.is_true(is_free("a") and is_free("b") and is_free("c"))
      holder:close()
    end)

    it("-v prints the events of each of several keys", function()
      local _, output = run { "run", "-v", "a", "b", "--", "true" }
      for _, text in ipairs { 'acquired "a"', 'acquired "b"', 'released "a"', 'released "b"' } do
        assert.matches(text, output, 1, true)
      end
    end)

    it("ends the job when one of several keys is lost, and names that key", function()
      local child = start_job({ "run", "--lease", "9", "a", "b" }, "exec sleep 60")
      server:cli("DEL", "b")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.matches('lost the lock "b": its key was deleted on the server; stopping the job\n',
        child:output(), 1, true)
      assert.is_true(is_free("a"))
    end)

    it("names the key whose lease ends first if none of several keys could be renewed", function()
      local holding, said = require "holdfast.command.holding", {}
      local out = { problem = function(_, event, fields, text) said = { event, fields, text } end }
      local held = holding.new({}, {}, out)
      local function lock(key, left, reason)
        return { key = function() return key end, remaining = function() return left end,
          lost = function() return reason end }
      end
      held.locks = { lock("a", 3), lock("b", 1), lock("c", 2) }
      held:report_lost("unreachable", 1, "stopping the job")
      assert.same({ "lost", { { "key", "b" }, { "reason", "unreachable" }, { "left", 1 } },
        'lost the lock "b": it could not be renewed; stopping the job' }, said)
      held.locks[3] = lock("c", 2, "taken")
      held:report_lost("taken", 0, "exiting")
      assert.equal('lost the lock "c": another owner holds it; exiting', said[3])
    end)

    it("re-enters the keys that an enclosing run holds, if it is given several", function()
      for _, keys in ipairs { { "b" }, { "b", "a" }, { "b", "z" } } do
        local words = { "run", "-n" }
        for _, key in ipairs(keys) do words[#words + 1] = key end
        words[#words + 1] = "-c"
        words[#words + 1] = "redis-cli -s " .. server.path .. " hvals b"
        local code, output = run { "run", "a", "b", "--", (table.unpack or unpack)(command.words(
          (table.unpack or unpack)(words))) }
        assert.equal(0, code, output)
        assert.equal("2\n", output)
        assert.is_true(is_free("a") and is_free("b"))
      end
    end)

    it("--idempotent exits with 79, -E or --duplicate-exit for a job that is done already", function()
      local function once(...) return run { "run", "--idempotent", "1h", ... } end
      assert.equal(0, (once("k", "--", "true")))
      assert.equal(79, (once("k", "--", "true")))
      assert.same({ 0, "" }, { once("-E", "0", "k", "--", "true") })
      assert.same({ 0, "" }, { once("--duplicate-exit", "0", "k", "--", "true") })
      assert.same({ 7, "" }, { once("-E", "0", "-q", "--duplicate-exit", "7", "k", "--", "true") })
      assert.matches('^holdfast run: "k" is already done or running, on unix:%S+; `holdfast show` prints',
        (select(2, once("-E", "3", "k", "--", "true"))))
    end)

    it("--idempotent runs the job once per interval, and again after a failure", function()
      local function once(exit)
        return (run { "run", "--idempotent", "60", "k", "--", "sh", "-c", "exit " .. exit })
      end
      assert.equal(3, once(3))
      assert.equal(0, once(0))
      local code, output = run { "run", "--idempotent", "60", "k", "--", "touch", directory
        .. "/ran" }
      assert.equal(79, code)
      assert.equal(1, lines_of(output))
      assert.is_false(exists(directory .. "/ran"))
      assert.is_true(is_free())
    end)

    it("--idempotent does not record success if the lock was lost", function()
      local child = start_job({ "run", "--idempotent", "1h", "--lease", "3", "k" },
        "trap 'exit 0' TERM; while :; do sleep 0.05; done")
      server:cli("DEL", "k")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.is_falsy(server:cli("HGET", "holdfast_once:k", "done"))
      assert.same({ 0, "ran\n" }, { run { "run", "--idempotent", "1h", "k", "--", "echo", "ran" } })
    end)

    it("--idempotent records success before the rest of --min-hold, so that a crash meanwhile causes no second run", function()
      local words = { "run", "--idempotent", "1h", "--min-hold", "60", "k", "--", "echo", "ran" }
      local child = start(words)
      local function is_done() return server:cli("HEXISTS", "holdfast_once:k", "done") == 1 end
      assert(process.wait_until(is_done, PATIENCE), child:output())
      assert.is_false(is_free())
      child:kill("KILL")
      child:wait(PATIENCE)
      server:cli("DEL", "k")
      assert.equal(79, (run(words)))
    end)

    it("--idempotent waits for the record of a crashed run only if its lock excludes all other runs", function()
      local now = require("holdfast.core").now
      for _, words in ipairs { { "-n" }, { "--permits", "2" }, { "-s" }, { "--no-crash-release" } } do
        local all = { "run", "--idempotent", "1h" }
        for _, word in ipairs(words) do all[#all + 1] = word end
        for _, word in ipairs { "k", "--", "true" } do all[#all + 1] = word end
        in_time(1.9, function()
          server:cli("FLUSHALL")
          local code, took
          local client = holdfast.new(server:url())
          client:idempotent("holdfast_once:k", { expire = 60 }, function()
            local start_at = now()
            code = run(all)
            took = now() - start_at
          end)
          client:close()
          assert.equal(79, code)
          return took
        end)
      end
    end)

    it("--idempotent does not wait for an enclosing run's record", function()
      local inner = command.words("run", "--idempotent", "1h", "k", "--", "true")
      in_time(1.9, function()
        local from = process.now()
        local code, output = run { "run", "--idempotent", "1h", "k", "--", (table.unpack or unpack)(inner) }
        assert.equal(79, code, output)
        return process.now() - from
      end)
    end)

    it("--idempotent retries writing a record that the server refuses, and exits once it is written", function()
      local own = redis.start()
      finally(function() own:stop() end)
      local line = "echo >>" .. directory .. "/runs; echo ready; while [ ! -e " .. directory .. "/go ]; do sleep 0.02; done"
      local child = start { "run", "--url", own:url(), "--idempotent", "1h", "k", "-c", line,
        env = { HOLDFAST_CONFIG = "/dev/null" } }
      assert(child:wait_output("ready", PATIENCE), child:output())
      own:cli("REPLICAOF", "127.0.0.1", "1")
      io.open(directory .. "/go", "w"):close()
      assert(child:wait_output("READONLY", PATIENCE), child:output())
      own:cli("REPLICAOF", "NO", "ONE")
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      assert.equal(1, own:cli("HEXISTS", "holdfast_once:k", "done"))
    end)

    it("--idempotent warns and exits with the job's code if success cannot be recorded", function()
      for _, exit in ipairs { 0, 5 } do
        local doomed = redis.start()
        os.remove(directory .. "/go")
        local child = start { "run", "-w", "60", "--url", doomed:url(), "--lease", "3", "--idempotent", "1h", "k", "-c",
          "echo ready; while [ ! -e " .. directory .. "/go ]; do sleep 0.02; done; exit " .. exit,
          env = { HOLDFAST_CONFIG = "/dev/null" } }
        assert(child:wait_output("ready", PATIENCE), child:output())
        doomed:kill("KILL")
        io.open(directory .. "/go", "w"):close()
        assert.same({ "exit", exit }, { child:wait(PATIENCE) }, child:output())
        local _, lines = child:output():gsub("holdfast run: cannot [^\n]+\n", "")
        assert.equal(exit == 0 and 2 or 1, lines, child:output())
        doomed:stop()
      end
    end)

    it("reads server, lease and name from the settings file", function()
      local path = directory .. "/holdfast.conf"
      local file = assert(io.open(path, "w"))
      file:write("# where\nurl = ", server:url(), "\nlease = 7 # seconds\nname = nightly job\n")
      file:close()
      local env = { HOLDFAST_URL = false, HOLDFAST_CONFIG = path }
      local code, output = run { "run", "k", "-c", "redis-cli -s " .. server.path .. " pttl k",
        env = env }
      assert.equal(0, code)
      assert.is_true(tonumber(output) <= 7000)
      file = assert(io.open(path, "w"))
      file:write("url: x\n")
      file:close()
      code, output = run { "run", "k", "--", "true", env = env }
      assert.equal(64, code)
      assert.matches("holdfast.conf:1: ", output, 1, true)
    end)

    it("prefers options to the settings file, and the environment's server to the file's", function()
      local path = directory .. "/holdfast.conf"
      local file = assert(io.open(path, "w"))
      file:write("# of all\nurl = redis://127.0.0.1:1\nname = night#1 # of jobs\n",
        "lease = 7\ntenant = t:\n")
      file:close()
      -- → the name, the tenant and the lease of a `hold` with these words
      local function held(...)
        local words = { "hold", ... }
        words[#words + 1], words.env = "k", { HOLDFAST_CONFIG = path }
        local child = start(words)
        assert(child:wait_output("^k ", PATIENCE), child:output())
        local lease, tenant, name = server:cli("PTTL", "k"), nil, nil
        eventually(function()
          local key = server:cli("KEYS", "holdfast_client:*")[1]
          tenant = key and key:match("^holdfast_client:(.*)%x%x%x%x%x%x%x%x%-%x+%-%x+%-%x+%-%x+$")
          name = key and (server:cli("GET", key) or ""):match("^%S+ %d+ (.*)$")
          return name
        end)
        child:kill("TERM")
        assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
        return { name, tenant, math.ceil(lease / 20000) }
      end
      assert.same({ "night#1", "t:", 1 }, held())
      assert.same({ "day", "u:", 4 }, held("--name", "day", "--tenant", "u:", "--lease", "80"))
    end)

    it("refuses a settings file that names the server twice", function()
      local path = directory .. "/holdfast.conf"
      for text, message in pairs {
        ["url = redis://a\nname = n\nurl = redis://b\n"] = ":3: url is set twice\n",
        ["url = redis://a\nservers = redis://b\n"] = ": url and servers cannot be combined\n",
      } do
        local file = assert(io.open(path, "w"))
        file:write(text)
        file:close()
        assert.same({ 64, "holdfast run: " .. path .. message },
          { run { "run", "k", "--", "true", env = { HOLDFAST_CONFIG = path } } })
      end
    end)

    it("ignores a trailing newline, carriage return or quotes around a URL", function()
      local url, path = server:url(), directory .. "/holdfast.conf"
      for _, around in ipairs { "%s\n", "%s\r", "%s\r\n", '"%s"', "'%s'" } do
        local given = around:format(url)
        local file = assert(io.open(path, "w"))
        file:write("url = ", given, "\n")
        file:close()
        for _, words in ipairs {
          { "ping", "--url", given },
          { "ping", env = { HOLDFAST_URL = given } },
          { "ping", "--servers", given },
          { "ping", env = { HOLDFAST_SERVERS = given } },
          { "ping", env = { HOLDFAST_URL = false, HOLDFAST_CONFIG = path } },
        } do
          local code, output = run(words)
          assert.equal(0, code, output)
        end
      end
    end)

    it("names where an invalid URL comes from", function()
      local path = directory .. "/holdfast.conf"
      local file = assert(io.open(path, "w"))
      file:write("url = bad\n")
      file:close()
      local environment = { HOLDFAST_URL = "bad" }
      for place, words in pairs {
        ["--url"] = { "ls", "--url", "bad" },
        ["url in $HOLDFAST_URL"] = { "ls", env = environment },
        ["url in " .. path] = { "ls", env = { HOLDFAST_URL = false, HOLDFAST_CONFIG = path } },
      } do
        local code, output = run(words)
        assert.equal(64, code)
        assert.matches("^holdfast ls: " .. place:gsub("%p", "%%%0")
          .. ": a URL must begin with a scheme, as in redis://127%.0%.0%.1:6379", output)
      end
    end)

    it("fails if the settings file cannot be read", function()
      assert(lfs.mkdir(directory .. "/config"))
      assert(lfs.mkdir(directory .. "/config/holdfast.conf"))
      local ours = { HOLDFAST_URL = false, HOLDFAST_CONFIG = false,
        XDG_CONFIG_HOME = directory .. "/config" }
      local given = { HOLDFAST_URL = false, HOLDFAST_CONFIG = directory .. "/config" }
      for env, path in pairs { [ours] = "config/holdfast.conf: ", [given] = "config: " } do
        local code, output = run { "run", "k", "--", "touch", directory .. "/ran", env = env }
        assert.equal(64, code)
        assert.matches("cannot read .*" .. path:gsub("%p", "%%%0"), output)
        assert.is_false(exists(directory .. "/ran"))
      end
    end)

    it("looks for the settings file in ~/.config if XDG_CONFIG_HOME is empty", function()
      assert(lfs.mkdir(directory .. "/.config"))
      local file = assert(io.open(directory .. "/.config/holdfast.conf", "w"))
      file:write("url: x\n")
      file:close()
      local env = { HOLDFAST_URL = false, HOLDFAST_CONFIG = false, HOME = directory,
        XDG_CONFIG_HOME = "" }
      local code, output = run { "run", "k", "--", "true", env = env }
      assert.equal(64, code)
      assert.matches(".config/holdfast.conf:1: ", output, 1, true)
    end)
  end)
end)

describe("holdfast hold", function()
  local server

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)
  before_each(function() server:cli("FLUSHALL") end)

  local function start(...) return command.start(server, { "hold", ... }) end
  local function exists_key(key) return server:cli("EXISTS", key) == 1 end

  it("prints key and token once it holds the lock, and releases on a signal", function()
    for _, name in ipairs { "TERM", "INT", "HUP" } do
      local child = start("k")
      assert(child:wait_output("^k %d+\n", PATIENCE), child:output())
      assert.equal("k " .. server:cli("GET", "redisson_lock_token:{k}") .. "\n", child:output())
      assert.is_true(exists_key("k"))
      eventually(function() return #server:cli("KEYS", "holdfast_client:*") == 1 end)
      child:kill(SIGNALS[name])
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.is_false(exists_key("k"))
      assert.equal(0, #server:cli("KEYS", "holdfast_client:*"))
    end
  end)

  it("releases the lock and exits with 74 if it cannot print that it holds it", function()
    for _, output in ipairs { "/dev/full", "&-" } do
      local child = command.other { "sh", "-c", command.shell_prelude(server)
        .. "\nholdfast hold k >" .. output }
      assert.same({ "exit", 74 }, { child:wait(PATIENCE) })
      assert.matches("^holdfast hold: cannot write to standard output: [^\n]+\n$", child:output())
      assert.is_false(exists_key("k"))
    end
  end)

  it("holds several keys, all or none", function()
    local child = start("a", "--", "b")
    assert(child:wait_output("^a %d+\nb %d+\n", PATIENCE), child:output())
    child:kill("TERM")
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    assert.is_false(exists_key("a") or exists_key("b"))
  end)

  it("waits for a busy lock, or gives up with -n and -w like run", function()
    local first = start("k")
    assert(first:wait_output("^k %d+\n", PATIENCE), first:output())
    assert.equal(1, (command.run(server, { "hold", "-n", "k" })))
    assert.same({ 4, "" }, { command.run_out(server, { "hold", "-qw", "1", "-E4", "k" }) })
    local second = start("k")
    eventually(function() return server:cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    local third = start("k")
    eventually(function() return server:cli("ZCOUNT", "holdfast_queue:{k}", "(0", "+inf") == 2 end)
    third:kill("TERM")
    assert.same({ "exit", 143 }, { third:wait(PATIENCE) })
    first:kill("TERM")
    assert(second:wait_output("^k %d+\n", PATIENCE), second:output())
    second:kill("TERM")
    assert.same({ "exit", 0 }, { second:wait(PATIENCE) })
  end)

  it("exits with 75 when the lock is lost", function()
    local child = start("--lease", "9", "k")
    assert(child:wait_output("^k %d+\n", PATIENCE), child:output())
    server:cli("DEL", "k")
    assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
    assert.matches('lost the lock "k": its key was deleted on the server; exiting\n',
      child:output(), 1, true)
  end)

  it("exits with 75 if only the release finds the loss", function()
    local child = start("-v", "k")
    assert(child:wait_output("k %d+\n", PATIENCE), child:output())
    server:cli("DEL", "k")
    child:kill("TERM")
    assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
    assert.matches("holdfast hold: terminated by TERM\n.*holdfast hold: [^\n]*deleted", child:output())
  end)

  it("prints a key with a line break as one line, and events with --json", function()
    local child = start("--json", "a\nb")
    assert(child:wait_output("a\\x0ab %d+\n", PATIENCE), child:output())
    child:kill("USR1")
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    assert.matches('"event":"acquired".*"event":"signal","time":"[^"]+","signal":"USR1"}\n{"event":"released"',
      child:output())
  end)

  it("exits with 75 before the lease can end if the server is gone", function()
    local doomed = redis.start()
    finally(function() doomed:stop() end)
    in_time(4, function()
      local child = start("--url", doomed:url(), "--lease", "4", "--json", "k")
      assert(child:wait_output("\nk %d+\n", PATIENCE), child:output())
      doomed:kill("STOP")
      assert(child:wait_output('"reason":"unreachable","left":', PATIENCE), child:output())
      local left = tonumber(child:output():match('"left":(%-?[%d.e-]+)'))
      doomed:kill("CONT")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      return 4 - left
    end)
  end)

  it("exits with 64 without a key", function()
    local code, output = command.run(server, { "hold" })
    assert.same({ 64, "holdfast hold: no KEY\n" }, { code, output })
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

  it("holds the lock on a majority, and a nested run re-enters it", function()
    local inner = command.words("run", "-n", "k", "--", "sh", "-c",
      'echo "$HOLDFAST_TOKEN|$HOLDFAST_URL"')
    local code, output = run { "run", "--servers", list(servers), "k", "--",
      (table.unpack or unpack)(inner) }
    assert.equal(0, code, output)
    assert.matches("^%d+|\n$", output)
    eventually(function() return standing("k") == 0 end)
  end)

  it("lets a Lua job create the same client from the environment", function()
    local code, output = run { "run", "--servers", list(servers), "k", "-c",
      sys.interpreter() .. [[ -e 'print(require("holdfast").new():lock("k"):info().owner)']] }
    assert.equal(0, code, output)
    assert.matches("^%x+%-.*:%d+\n$", output)
  end)

  it("does not re-enter a lock whose hold has ended", function()
    local _, output = run { "run", "--servers", list(servers), "k", "-c",
      'echo "$HOLDFAST_OWNER $HOLDFAST_TOKEN"' }
    local owner, token = output:match("^(%S+) (%S+)\n$")
    local env = { HOLDFAST_KEY = "k", HOLDFAST_OWNER = owner, HOLDFAST_TOKEN = token,
      HOLDFAST_SERVERS = list(servers) }
    local first = command.start(nil, { "run", "k", "-c", "echo in; exec sleep 60", env = env })
    assert(first:wait_output("in\n", PATIENCE), first:output())
    assert.equal(1, (run { "run", "-n", "k", "--", "true", env = env }))
    first:kill("TERM")
    assert.same({ "exit", 143 }, { first:wait(PATIENCE) })
  end)

  it("runs while one of three servers is down, and exits with 76 while two are down", function()
    servers[1]:kill()
    local words = { "run", "--servers", list(servers), "k", "--", "touch", directory .. "/ran" }
    assert.equal(0, (run(words)))
    assert.is_true(exists(directory .. "/ran"))
    os.remove(directory .. "/ran")
    servers[2]:kill()
    local code, output = run(words)
    assert.equal(76, code)
    assert.matches("^holdfast run: cannot acquire \"k\"", output)
    assert.matches("[01] of 3 granted", output)
    assert.matches(servers[2].path, output, 1, true)
    assert.equal(1, lines_of(output))
    assert.is_false(exists(directory .. "/ran"))
  end)

  it("says which lock it is waiting for, not which locks it already holds", function()
    local child = command.start(nil, { "hold", "--servers", list(servers), "b" })
    assert(child:wait_output("^b ", PATIENCE), child:output())
    local waiter = command.start(nil,
      { "run", "-v", "--servers", list(servers), "a", "b", "--", "true" })
    assert(waiter:wait_output('waiting for "%a": [^\n]+\n', PATIENCE), waiter:output())
    assert.matches('waiting for "b": held by ', waiter:output(), 1, true)
    child:kill("TERM")
    assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
  end)

  it("exits with 1 or the code of -E if the lock is busy", function()
    local holder = holdfast.new { servers = { servers[1]:url(), servers[2]:url(),
      servers[3]:url() }, mode = "quorum" }
    local held = assert(holder:lock("k"):acquire())
    eventually(function() return standing("k") == 3 end)
    assert.equal(1, (run { "run", "-n", "--servers", list(servers), "k", "--", "true" }))
    assert.equal(7, (command.run_out(nil,
      { "run", "-w", "1", "-E", "7", "--servers", list(servers), "k", "--", "true" })))
    assert(held:release())
    holder:close()
  end)

  it("ends the job before the lease can end if a majority goes down", function()
    local child = command.start(nil, { "run", "--servers", list(servers), "--lease", "6", "k",
      "-c",
      "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.05; done" })
    assert(child:wait_output("ready\n", PATIENCE), child:output())
    servers[1]:kill()
    process.sleep(6.5)
    assert.is_nil((child:status()), "one dead server of three ended the job")
    servers[3]:kill()
    assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
    assert.matches("told\n", child:output(), 1, true)
    assert.matches('lost the lock "k": it could not be renewed', child:output(), 1, true)
  end)

  it("reads servers and restart guard from the environment and the settings file", function()
    local function by(env, key)
      return run { "run", "-n", key or "k", "--", "sh", "-c", 'echo "$HOLDFAST_SERVERS"',
        env = env }
    end
    local code, output = by { HOLDFAST_SERVERS = list(servers) }
    assert.equal(0, code, output)
    assert.equal(list(servers) .. "\n", output)
    local path = directory .. "/holdfast.conf"
    local file = assert(io.open(path, "w"))
    file:write("servers = ", list(servers), "\nrestart_guard = 3600\n")
    file:close()
    -- a release may not have reached the other servers yet
    code, output = by({ HOLDFAST_CONFIG = path }, "k2")
    assert.equal(76, code)
    assert.matches("restarted recently", output)
    assert.equal(0, (run { "run", "-n", "--restart-guard", "0", "k4", "--", "true",
      env = { HOLDFAST_CONFIG = path } }))
    code, output = run { "run", "-n", "--servers", list(servers), "--restart-guard", "3600", "k3",
      "--", "true" }
    assert.equal(76, code)
    assert.matches("restarted recently", output)
  end)

  it("show and break read and delete the record of --idempotent on all servers", function()
    local where = { "--servers", list(servers) }
    local function once()
      return (run { "run", where[1], where[2], "--idempotent", "1h", "k", "--", "true" })
    end
    local function show() return select(2, run { "show", where[1], where[2], "k" }) end
    local function clear() return { run { "break", "-y", where[1], where[2], "k" } } end
    servers[1]:cli("HSET", "holdfast_once:other", "done", "D")
    servers[1]:cli("PEXPIRE", "holdfast_once:other", 60000)
    local _, shown = run { "show", where[1], where[2], "other" }
    assert.is_nil(shown:find("done", 1, true)) -- a record on one server of three does not count
    assert.equal(0, once())
    assert.equal(79, once())
    local victim = 3 -- the remaining majority has the record
    for i, server in ipairs(servers) do
      if server:cli("EXISTS", "holdfast_once:k") == 0 then victim = i end
    end
    servers[victim]:kill()
    assert.matches("state    free\ndone     for 3[56]", show())
    assert.same({ 0, "k: may run again\n" }, clear())
    assert.same({ 1, "k: was free\n" }, clear())
    assert.is_nil(show():find("done", 1, true))
    assert.equal(0, once())
    servers[victim % 3 + 1]:kill()
    assert.equal(76, clear()[1])
  end)

  it("rejects duplicate, malformed or empty server lists and unsupported verbs", function()
    local url = servers[1]:url()
    for _, words in ipairs {
      { "run", "--servers", url .. "," .. url, "k", "--", "true" },
      { "run", "--servers", "redis://a,b", "k", "--", "true" },
      { "run", "--servers", ",", "k", "--", "true" },
      { "run", "--url", url, "--restart-guard", "3", "k", "--", "true" },
      { "bench", "--servers", list(servers) },
    } do
      local code, output = run(words)
      assert.equal(64, code)
      assert.equal(1, lines_of(output))
    end
  end)

  it("rejects a server list with an empty entry", function()
    local file = directory .. "/settings"
    local function refused(number, by, words)
      local code, output = run(words)
      assert.equal(64, code)
      assert.equal(("holdfast run: %s must be URLs separated by commas (number %d is empty)\n")
        :format(by, number), output)
    end
    local url = servers[1]:url()
    refused(2, "--servers", { "run", "--servers", url .. ",", "k", "--", "true" })
    refused(1, "--servers", { "run", "--servers", "," .. url, "k", "--", "true" })
    refused(2, "--servers", { "run", "--servers", url .. ",," .. url, "k", "--", "true" })
    refused(2, "servers in $HOLDFAST_SERVERS", { "run", "k", "--", "true",
      env = { HOLDFAST_SERVERS = url .. ", " } })
    local settings = assert(io.open(file, "w"))
    settings:write("servers = ", url, ",\n")
    settings:close()
    refused(2, "servers in " .. file, { "run", "k", "--", "true",
      env = { HOLDFAST_URL = false, HOLDFAST_CONFIG = file } })
  end)

  it("accepts a --restart-guard from 0 s to 1e9 s", function()
    local function guarded(guard)
      return run { "run", "-n", "--servers", list(servers), "--restart-guard", guard, "k", "--",
        "true" }
    end
    assert.equal(0, (guarded "0"))
    assert.equal(76, (guarded "2h"))
    assert.equal(76, (guarded "1e9"))
    local code, output = guarded "2e9"
    assert.equal(64, code)
    assert.matches('%-%-restart%-guard must be a duration from 0 s to 1e9 s.*, not "2e9"', output)
  end)

  it("publishes its name to each server under its tenant's prefix", function()
    local child = command.start(nil, { "hold", "--servers", list(servers), "--tenant", "t:", "k" })
    assert(child:wait_output("^k ", PATIENCE), child:output())
    for _, server in ipairs(servers) do
      eventually(function()
        return (server:cli("KEYS", "holdfast_client:*")[1] or ""):find("^holdfast_client:t:")
      end)
    end
    child:kill("TERM")
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
  end)

  it("is rejected by verbs that work only with a single server", function()
    assert.equal(64, (run { "bench", "--servers", list(servers) }))
    local url = servers[1]:url()
    local _, output = run { "bench", env = { HOLDFAST_SERVERS = list(servers) } }
    assert.equal("holdfast bench: this verb works only with a single server; specify it with --url\n", output)
    assert.equal(0, (run { "ls", "--url", url, env = { HOLDFAST_SERVERS = list(servers) } }))
  end)

  it("show, ping and break query all servers", function()
    local holder = holdfast.new { servers = { servers[1]:url(), servers[2]:url(),
      servers[3]:url() }, mode = "quorum" }
    local lock = assert(holder:lock("k"):acquire())
    local mutex = assert(holder:mutex("m"):acquire())
    eventually(function() return standing("k") == 3 and standing("m") == 3 end)
    local code, output = run { "show", "--servers", list(servers), "k" }
    assert.equal(0, code)
    assert.matches("state    held\n", output, 1, true)
    assert.matches("owner    " .. lock:owner(), output, 1, true)
    code, output = run { "show", "--servers", list(servers), "m" }
    assert.equal(0, code, output)
    assert.matches("state    held, a mutex\n", output, 1, true)
    assert.is_true(mutex:is_held())
    assert.equal(1, (run { "show", "--servers", list(servers), "other" }))
    code, output = run { "ping", "--servers", list(servers) }
    assert.equal(0, code)
    assert.matches("^answered in ", output)
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
