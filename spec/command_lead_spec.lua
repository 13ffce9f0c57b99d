-- holdfast lead and holdfast wait: the real command against real servers.

local command = require "spec.support.command"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"

local PATIENCE = 20
local SIGNALS = { HUP = 1, USR1 = 10, TERM = 15, CHLD = 17, CONT = 18, TSTP = 20, WINCH = 28 }

local eventually = process.eventually

local function lines_of(path)
  local list, file = {}, io.open(path)
  for line in file and file:lines() or function() end do list[#list + 1] = line end
  if file then file:close() end
  return list
end

-- → the state of the process: "R", "S", "T", ...
local function state(pid)
  return lines_of("/proc/" .. pid .. "/stat")[1]:match("%) (%a)")
end

describe("holdfast", function()
  local server, directory, children, client

  setup(function() server = redis.start { tcp = true } end)
  teardown(function() server:stop() end)
  before_each(function()
    server:cli("FLUSHALL")
    directory, children = process.directory(), {}
    client = holdfast.new(server:url())
  end)
  after_each(function()
    client:close()
    for _, child in ipairs(children) do
      child:kill("TERM")
      child:wait(PATIENCE)
      child:stop()
    end
    process.remove(directory)
    server:cli("FLUSHALL")
  end)

  local function start(...)
    local child = command.start(server, { ... })
    children[#children + 1] = child
    return child
  end

  local function run(...) return command.run(server, { ... }) end

  -- Starts a job under options and a key, and waits until it runs.
  local function job(...)
    local words = { "run", ... }
    for _, word in ipairs { "--", "sh", "-c", "echo ready $HOLDFAST_TOKEN; exec sleep 60" } do
      words[#words + 1] = word
    end
    local child = start((table.unpack or unpack)(words))
    assert(child:wait_output("ready[ %d]*\n", PATIENCE), child:output())
    return child
  end

  local function waiters() return server:cli("ZCOUNT", "holdfast_queue:{k}", "(0", "+inf") end

  describe("lead", function()
    local path

    before_each(function() path = directory .. "/terms" end)

    -- A daemon that writes its process id and its token to the file.
    local function daemon(more)
      return ("echo $$ $HOLDFAST_TOKEN >>%s; %s"):format(path, more or "exec sleep 60")
    end

    local function terms()
      local list = {}
      for i, line in ipairs(lines_of(path)) do
        local pid, token = line:match("^(%d+) (%d+)$")
        list[i] = { pid = tonumber(pid), token = tonumber(token) }
      end
      return list
    end

    -- Starts a leader. → it, in its first term
    local function leads(...)
      local child = start("lead", ...)
      eventually(function() return #terms() == 1 end)
      return child
    end

    local function runs(pid)
      return process.signal(pid, 0) == true or process.signal(pid, 0) == 0
    end

    it("--once runs the command once under the lock, and exits with its code", function()
      local code, output = run("lead", "--once", "k", "--", "sh", "-c",
        "echo key $HOLDFAST_KEY; exit 3")
      assert.same({ 3, "key k\n" }, { code, output })
      assert.equal(0, server:cli("EXISTS", "k"))
      assert.same({ "redisson_lock_token:{k}" }, server:leaks().keys)
    end)

    it("starts its command again once the previous one has ended and --pause has passed", function()
      local child = start("lead", "--pause", "50ms", "--json", "k", "-c", daemon "exit 7")
      eventually(function() return #terms() >= 3 end)
      child:kill("TERM")
      child:wait(PATIENCE)
      local list = terms()
      for i = 2, #list do assert.is_true(list[i].token > list[i - 1].token) end
      assert.matches('"event":"ended","time":"[^"]+","exit":7}', child:output())
      assert.equal(0, server:cli("EXISTS", "k"))
    end)

    it("closes its connections when a term ends", function()
      start("lead", "--pause", "10ms", "k", "-c", daemon "exit 0")
      local most = 0
      eventually(function()
        local count = select(2, server:cli("CLIENT", "LIST"):gsub("\n", ""))
        most = math.max(most, count)
        return #terms() >= 12
      end)
      -- connections of the term, of the last term, which are closing, and of the spec
      assert.is_true(most <= 8, most)
    end)

    it("leaves no descriptor or process behind when a term ends", function()
      local child = start("lead", "-v", "--pause", "5ms", "k", "-c", daemon "exit 0")
      local function open()
        local list = io.popen(("ls /proc/%d/fd | wc -l"):format(child.pid))
        local count = tonumber(list:read("*a"))
        list:close()
        return count
      end
      eventually(function() return #terms() >= 3 end)
      local early = open()
      eventually(function() return #terms() >= 15 end)
      local late = open()
      assert.is_true(late <= early + 7, early .. " → " .. late) -- a term has a few connections
    end)

    it("exits with 77 without retrying when access is denied", function()
      server:cli("ACL", "SETUSER", "reader", "on", ">x", "~*", "&*", "+@all", "-evalsha", "-eval")
      local code, output = run("lead", "--pause", "10ms", "--url", "unix://reader:x@" .. server.path, "k", "--", "true")
      server:cli("ACL", "DELUSER", "reader")
      assert.equal(77, code, output)
      assert.is_nil(output:find("will retry", 1, true))
    end)

    it("warns once that the server does not respond while it waits, and leads once it does", function()
      local own = redis.start { tcp = true }
      finally(function() own:stop() end)
      own:cli("HSET", "k", "somebody", 1)
      own:cli("PEXPIRE", "k", 3600000)
      local child = command.start(own, { "lead", "k", "-c", daemon() })
      children[#children + 1] = child
      eventually(function() return own:cli("ZCARD", "holdfast_queue:{k}") == 1 end)
      own:kill("STOP")
      local warning = 'holdfast lead: waiting to lead "k": no answer from [^\n]+; still waiting\n'
      assert(child:wait_output(warning, PATIENCE), child:output())
      process.sleep(1.5)
      assert.equal(1, select(2, child:output():gsub("still waiting", "")), child:output())
      own:kill("CONT")
      own:cli("DEL", "k")
      eventually(function() return #terms() == 1 end)
      child:kill("TERM")
      child:wait(PATIENCE)
    end)

    it("while it waits, names the current leader in a line with -v and in an event with --json", function()
      local first = leads("k", "-c", daemon())
      local second = start("lead", "k", "-c", daemon())
      eventually(function() return waiters() == 1 end)
      local said, event = start("lead", "-v", "k", "--", "true"), start("lead", "--json", "k", "--", "true")
      for _, child in ipairs { said, event } do
        assert(child:wait_output("waiting", PATIENCE), child:output())
        assert.is_nil(child:output():find("leader", 1, true) or child:output():find("now led", 1, true))
      end
      first:kill("TERM")
      assert(said:wait_output(('holdfast lead: "k" is now led by %%S+ pid %d\n'):format(second.pid), PATIENCE), said:output())
      assert(event:wait_output('"event":"leader","time":"[^"]+","key":"k","owner":"[^"]+","host":"[^"]+","pid":'
        .. second.pid .. ',"token":%d+}\n', PATIENCE), event:output())
    end)

    it("measures each term's wait from the end of the previous term", function()
      local child = start("lead", "--pause", "0", "--json", "k", "-c", daemon "sleep 0.3")
      local pattern = '"waited":([%d.e-]+)}.*"waited":([%d.e-]+)}.*"waited":([%d.e-]+)}'
      assert(child:wait_output(pattern, PATIENCE), child:output())
      local third = select(3, child:output():match(pattern))
      assert.is_true(tonumber(third) < 0.6, third) -- the time of two commands
    end)

    it("runs one leader at a time, and the next takes over when that leader ends", function()
      local first = leads("k", "-c", daemon())
      start("lead", "k", "-c", daemon())
      eventually(function() return waiters() == 1 end)
      first:kill("TERM")
      assert.same({ "exit", 128 + SIGNALS.TERM }, { first:wait(PATIENCE) })
      eventually(function() return #terms() == 2 end)
      assert.is_true(terms()[2].token > terms()[1].token)
      assert.is_false(runs(terms()[1].pid))
    end)

    it("is replaced by a waiting `holdfast lead` after its lease if it is killed", function()
      local first = leads("--lease", "3", "k", "-c", daemon())
      start("lead", "--lease", "3", "k", "-c", daemon())
      eventually(function() return waiters() == 1 end)
      first:kill("KILL")
      eventually(function() return #terms() == 2 end)
    end)

    it("stops its command when the lock is lost, and starts it again with a new hold", function()
      local child = leads("--lease", "4", "k", "-c", daemon())
      server:cli("DEL", "k")
      eventually(function() return #terms() == 2 end)
      local list = terms()
      assert.is_false(runs(list[1].pid))
      assert.is_true(list[2].token > list[1].token)
      assert.matches('lost the lock "k": its key was deleted on the server; stopping the job',
        child:output())
      assert.equal(server:cli("HGETALL", "k")[2], "1")
    end)

    it("exits with 75 if it loses the lock while it is stopping because of a signal", function()
      local child = leads("--lease", "3", "--grace", "0.1", "-v", "k", "-c", "trap '' TERM; "
        .. daemon "while :; do sleep 0.05; done")
      child:kill("TERM")
      assert(child:wait_output("passing on TERM", PATIENCE), child:output())
      server:cli("DEL", "k")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.equal(1, #terms())
    end)

    it("retries while a majority of servers is unreachable, until a signal ends it", function()
      local child = start("lead", "--pause", "10ms", "--servers",
        server:url() .. ",unix:///no/a.sock,unix:///no/b.sock", "k", "--", "true")
      assert(child:wait_output("will retry", PATIENCE), child:output())
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)

    it("forwards HUP to its command, and continues leading if that does not end", function()
      local child = leads("k", "-c", ("trap 'echo reload >>%s/hup' HUP; "):format(directory)
        .. daemon "while :; do sleep 0.05; done")
      child:kill(SIGNALS.HUP)
      eventually(function() return #lines_of(directory .. "/hup") == 1 end)
      process.sleep(0.2)
      assert.is_nil(child:status())
      assert.equal(1, #terms())
    end)

    it("exits when its command dies of a signal that `holdfast lead` forwarded", function()
      for _, name in ipairs { "USR1", "HUP" } do
        os.remove(path)
        local child = start("lead", "k", "-c", daemon())
        eventually(function() return #terms() == 1 end)
        child:kill(SIGNALS[name])
        assert.same({ "exit", 128 + SIGNALS[name] }, { child:wait(PATIENCE) })
      end
      os.remove(path)
      local child = leads("--pause", "20ms", "k", "-c", "trap 'echo caught' USR1; "
        .. daemon "while :; do sleep 0.05; done")
      child:kill(SIGNALS.USR1)
      assert(child:wait_output("caught", PATIENCE), child:output())
      process.signal(terms()[1].pid, "KILL")
      eventually(function() return #terms() == 2 end)
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)

    it("--once starts its command again if the lock was lost", function()
      local child = leads("--once", "--lease", "1", "k", "-c", daemon())
      server:cli("DEL", "k")
      eventually(function() return #terms() == 2 end)
      process.signal(terms()[2].pid, "KILL")
      assert.same({ "exit", 137 }, { child:wait(PATIENCE) })
    end)

    it("leaves the queue when a signal ends its wait", function()
      local lock = assert(client:lock("k"):acquire())
      local child = start("lead", "k", "-c", daemon())
      eventually(function() return waiters() == 1 end)
      child:kill("TERM")
      assert.same({ "exit", 128 + SIGNALS.TERM }, { child:wait(PATIENCE) })
      assert.equal(0, lock:info().waiters)
      assert.equal(0, #terms())
      lock:release()
    end)

    it("starts its next term although ignored signals arrived before it", function()
      local child = leads("--pause", "0.1s", "k", "-c", daemon())
      local hold = start("hold", "k")
      eventually(function() return waiters() == 1 end)
      process.signal(terms()[1].pid, SIGNALS.TERM)
      eventually(function() return hold:output():find("^k ") and waiters() == 1 end)
      child:kill("STOP")
      hold:kill("TERM")
      hold:wait(PATIENCE)
      for _, number in ipairs { SIGNALS.WINCH, SIGNALS.CONT } do child:kill(number) end
      eventually(function() return #terms() == 2 end, PATIENCE, child:output())
    end)

    it("starts its next term after a loss or a killed command, despite ignored signals", function()
      local child = leads("--pause", "0.1s", "k", "-c", daemon())
      for _, name in ipairs { "WINCH", "CHLD", "CONT" } do child:kill(SIGNALS[name]) end
      process.sleep(0.3)
      process.signal(terms()[1].pid, "KILL")
      eventually(function() return #terms() == 2 end, PATIENCE, child:output())
      child:kill(SIGNALS.WINCH)
      process.sleep(0.3)
      server:cli("DEL", "k")
      eventually(function() return #terms() == 3 end, PATIENCE, child:output())
      child:kill("TERM")
      assert.equal(143, select(2, child:wait(PATIENCE)), child:output())
    end)

    it("keeps its place in the queue when signals arrive that have no effect", function()
      local child = leads("--pause", "0.1s", "k", "-c", daemon())
      local hold = start("hold", "k")
      eventually(function() return waiters() == 1 end)
      process.signal(terms()[1].pid, SIGNALS.TERM)
      eventually(function() return hold:output():find("^k ") and waiters() == 1 end)
      start("run", "k", "--", "sleep", "60")
      eventually(function() return waiters() == 2 end)
      local queue = server:cli("ZRANGE", "holdfast_queue:{k}", 0, -1)
      for _, name in ipairs { "WINCH", "CONT", "CHLD" } do child:kill(SIGNALS[name]) end
      process.sleep(0.3)
      assert.same(queue, server:cli("ZRANGE", "holdfast_queue:{k}", 0, -1))
    end)

    it("stops only itself on TSTP between two terms, not its process group", function()
      local words = command.words("lead", "-v", "--pause", "60", "k", "-c",
        "echo $PPID >" .. directory .. "/lead")
      local script = ("'%s' & sleep 60 & echo $! >%s/other; wait"):format(table.concat(words, "' '"),
        directory)
      local shell = process.start { env = command.environment(server), "bash", "-c",
        'set -m; bash -c "$0" & wait', script }
      assert(shell:wait_output("released", PATIENCE), shell:output())
      local pid = tonumber(lines_of(directory .. "/lead")[1])
      local other = tonumber(lines_of(directory .. "/other")[1])
      process.signal(pid, SIGNALS.TSTP)
      eventually(function() return state(pid) == "T" end)
      assert.equal("S", state(other))
      process.signal(pid, SIGNALS.CONT)
      process.signal(pid, SIGNALS.TERM)
      process.signal(other, SIGNALS.TERM)
      assert.same({ "exit", 0 }, { shell:wait(PATIENCE) })
    end)

    it("retries until an unreachable server is up, and warns once", function()
      local other = redis.start()
      local url = other:url()
      other:kill("TERM")
      eventually(function() return not other:is_running() end)
      local child = start("lead", "-v", "--once", "--pause", "20ms", "--url", url, "k", "--", "echo",
        "ran")
      assert(child:wait_output("will retry", PATIENCE), child:output())
      process.sleep(0.2)
      other:restart(true)
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.equal(1, select(2, child:output():gsub("will retry", "")), child:output())
      assert.matches("\nran\n", child:output())
      local waited = child:output():match('acquired "k" after ([%d.]+) s')
      assert.is_true(tonumber(waited) >= 0.2, waited) -- the outage counts
      other:stop()
    end)

    it("warns again when the same failure recurs in a later term", function()
      local other = redis.start()
      local url = other:url()
      other:kill("KILL")
      eventually(function() return not other:is_running() end)
      local child = start("lead", "--pause", "20ms", "--lease", "1", "--url", url, "k", "-c",
        ("echo in; while test ! -e %s; do sleep 0.02; done"):format(path))
      assert(child:wait_output("will retry", PATIENCE), child:output())
      other:restart(true)
      assert(child:wait_output("will retry\nin\n", PATIENCE), child:output())
      other:kill("KILL")
      assert(io.open(path, "w")):close()
      assert(child:wait_output("will retry\nin\n.*will retry", PATIENCE), child:output())
      child:kill("TERM")
      assert(child:wait(PATIENCE))
      other:stop()
    end)

    it("waits for the whole --pause between two terms although signals arrive", function()
      local child = start("lead", "-v", "--pause", "60", "k", "--", "echo", "in")
      assert(child:wait_output("released", PATIENCE), child:output())
      for _ = 1, 3 do
        for _, name in ipairs { "WINCH", "CONT", "CHLD" } do child:kill(SIGNALS[name]) end
        process.sleep(0.05)
      end
      assert.equal(1, select(2, child:output():gsub("acquired", "")))
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)

    it("rejects invalid arguments with 64, and a command that cannot start with 127", function()
      for _, case in ipairs {
        { 64, "no KEY", "--", "true" },
        { 64, "no %-%- before the command", "k" },
        { 64, 'unexpected argument "l"; lead takes one KEY', "k", "l", "--", "true" },
        { 64, "unknown option %-%-one%-by%-one", "--one-by-one", "a:b", "--", "true" },
        { 127, 'cannot start "/no/such"', "k", "--", "/no/such" },
      } do
        local words = { "lead", (table.unpack or unpack)(case, 3) }
        local code, output = command.run(server, words)
        assert.equal(case[1], code, output)
        assert.matches("^holdfast lead: " .. case[2], output)
      end
      for _, verb in ipairs { "lead", "hold", "run", "wait", "ls", "show", "deadlocks" } do
        local code, output = run(verb, "--json", "--bogus")
        assert.equal(64, code)
        assert.matches('^{"event":"error",.*unknown option %-%-bogus.*"code":"usage","exit":64}\n$', output)
      end
      server:cli("SET", "text", "no lock")
      assert.equal(73, (run("lead", "text", "--", "true")))
    end)
  end)

  describe("run --shared and --exclusive", function()
    it("admit many shared runs or one exclusive run at a time", function()
      local readers = { job("--shared", "k"), job("-s", "k") }
      assert.same({ "read" }, { server:cli("HGET", "k", "mode") })
      assert.equal(1, (run("run", "-n", "-x", "k", "--", "true")))
      local writer = start("run", "--exclusive", "k", "--", "sh", "-c", "echo ready; exec sleep 60")
      eventually(function() return waiters() == 1 end)
      -- a reader does not overtake the waiter
      assert.equal(1, (run("run", "-n", "-s", "k", "--", "true")))
      for _, reader in ipairs(readers) do
        reader:kill("TERM")
        assert.same({ "exit", 143 }, { reader:wait(PATIENCE) })
      end
      assert(writer:wait_output("ready\n", PATIENCE), writer:output())
      assert.equal("write", server:cli("HGET", "k", "mode"))
      assert.equal(1, (run("run", "-n", "-s", "k", "--", "true")))
      assert.equal(1, (run("wait", "-n", "k")))
      writer:kill("TERM")
      writer:wait(PATIENCE)
      assert.equal(0, server:cli("EXISTS", "k"))
    end)

    it("exclude and share with the library's read/write locks", function()
      local both = client:read_write_lock("k")
      assert(both:read():acquire())
      assert.equal(0, (run("run", "-n", "-s", "k", "--", "true")))
      assert.equal(1, (run("run", "-n", "-x", "k", "--", "true")))
      both:read():release()
      job("-x", "k")
      assert.equal("busy", select(3, both:read():acquire(0)))
    end)

    it("are listed by ls, show and top, and can be broken", function()
      job("-s", "--name", "first", "k")
      job("-s", "k")
      job("-x", "--name", "alone", "w")
      local output
      eventually(function()
        output = select(2, run("ls"))
        return output:find("alone", 1, true) and output:find("pid", 1, true)
      end)
      assert.matches("\nk +[^\n]+ %(2 readers%) +1 ", output)
      assert.matches("\nw +%S+ pid %d+ alone %(one writer%) +1 ", output)
      assert.matches("\nstate +held, 2 readers\n", (select(2, run("show", "k"))))
      assert.matches("\nstate +held, one writer\n", (select(2, run("show", "w"))))
      output = select(2, run("top", "--interval", "0.1"))
      assert.matches("^2 locks, ", output)
      assert.matches("\nk +[^\n]+ %(2 readers%) ", output)
      assert.matches("\nw +%S+ pid %d+ alone %(one writer%) ", output)
      assert.matches('"mode":"read","readers":2,', (select(2, run("show", "--json", "k"))))
      assert.matches('"key":"w".*"mode":"write","readers":0,',
        (select(2, run("ls", "--json", "w"))))
      assert.equal(0, (run("break", "--yes", "k")))
      assert.same({ "w" }, server:cli("KEYS", "w"))
      assert.equal(0, server:cli("EXISTS", "k"))
    end)

    it("refuse a nested run that would wait for its parent, but not one whose parent has died", function()
      local inner = command.words("run", "-s", "-n", "-E", "0", "k", "--", "echo", "in")
      local code, output = run("run", "-s", "k", "--", (table.unpack or unpack)(inner))
      assert.equal(64, code)
      assert.matches('^holdfast run: cannot acquire "k": an enclosing run already holds it', output)
      code, output = command.run(server, {
        "run", "-s", "k", "--", "echo", "in",
        env = { HOLDFAST_KEY = "k", HOLDFAST_OWNER = "97907af0-0bfa-87c1-bcdb-a7e838d23152:1",
          HOLDFAST_TOKEN = "1" },
      })
      assert.same({ 0, "in\n" }, { code, output })
    end)

    it("refuse a nested run of another kind on the same key", function()
      local reader = holdfast.new(server:url()):read_write_lock("k"):read()
      assert(reader:acquire(0))
      local inner = command.words("run", "-n", "-q", "k", "--", "echo", "in")
      local code, output = run("run", "-s", "k", "--", (table.unpack or unpack)(inner))
      assert.equal(64, code)
      assert.matches('^holdfast run: cannot acquire "k": an enclosing run already holds it', output)
      assert.is_true(reader:check())
      assert(reader:release())
    end)

    it("reject options that cannot be combined with them", function()
      for _, words in ipairs {
        { "-s", "-x", "k" }, { "-s", "--one-by-one", "a:b" },
        { "-x", "--servers", "redis://a,redis://b", "k" },
      } do
        local code, output = run("run", words[1], words[2], words[3], words[4] or "--", "--",
          "true")
        assert.equal(64, code, output)
        assert.matches("^holdfast run: %-s and %-x ", output)
      end
      assert.equal(64, (run("lead", "-s", "k", "--", "true")))
    end)
  end)

  describe("run --permits", function()
    local function queued() return server:cli("ZCARD", "holdfast_queue:{pool}") end

    local function permit_job(...)
      local child = job("--permits", "2", ...)
      assert.matches("ready %d+\n", child:output())
      return child
    end

    it("runs up to N jobs at once, and the next one when one has ended", function()
      local first = permit_job("pool")
      permit_job("pool")
      assert.equal("0", server:cli("GET", "pool"))
      assert.equal(1, (run("run", "-n", "--permits", "2", "pool", "--", "true")))
      assert.equal(5, (command.run_out(server,
        { "run", "-w", "0.1", "-E", "5", "--permits", "2", "pool", "--", "true" })))
      assert.equal(1, (run("wait", "-n", "pool")))
      local third = start("run", "--permits", "2", "pool", "--", "echo", "third")
      eventually(function() return queued() == 1 end)
      first:kill("TERM")
      assert.same({ "exit", 143 }, { first:wait(PATIENCE) })
      assert.same({ "exit", 0 }, { third:wait(PATIENCE) })
      assert.equal("third\n", third:output())
      assert.equal("1", server:cli("GET", "pool"))
      assert.equal(0, (run("wait", "-n", "pool")))
    end)

    it("counts permits of the library, and keeps an existing number of permits", function()
      local pool = client:semaphore("pool", { permits = 1 })
      local permit = assert(pool:acquire())
      assert.equal(1, (run("run", "-n", "--permits", "2", "pool", "--", "true")))
      permit:release()
      assert.equal(0, (run("run", "-n", "--permits", "2", "pool", "--", "true")))
      assert.equal(1, pool:permits())
    end)

    it("renews its permit, and ends the job if the permit is lost", function()
      local child = permit_job("--lease", "4", "pool")
      process.sleep(4.5)
      assert.equal("1", server:cli("GET", "pool"))
      assert.equal(1, #server:cli("ZRANGE", "{pool}:timeout", 0, -1))
      server:cli("DEL", "pool", "{pool}:timeout")
      assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
      assert.matches('lost the lock "pool"', child:output())
    end)

    it("frees the permit of a killed run when its lease ends", function()
      local child = permit_job("--lease", "3", "pool")
      child:kill("KILL")
      permit_job("pool")
      assert.equal(0, (run("run", "-w", "10", "--permits", "2", "pool", "--", "true")))
    end)

    it("makes holdfast hold take one permit", function()
      local child = start("hold", "--permits", "2", "pool")
      assert(child:wait_output("^pool %d+\n", PATIENCE), child:output())
      assert.equal("1", server:cli("GET", "pool"))
      child:kill("TERM")
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.equal("2", server:cli("GET", "pool"))
    end)

    it("is listed by ls, show and top with the owners of the permits", function()
      local first = permit_job("--name", "first", "pool")
      local pool = client:semaphore("pool")
      local permit = assert(pool:acquire())
      local braced = assert(client:semaphore("a{b}c", { permits = 3 }):acquire(2))
      server:cli("SET", "counter", 5)
      server:cli("ZADD", "{counter}:timeout:x", 1, "m")
      server:cli("ZADD", "words:timeout", 1, "m")
      local waiter = start("run", "--permits", "2", "--name", "third", "pool", "--", "true")
      eventually(function()
        local _, output = run("show", "pool")
        return output:find("first") and output:find("third")
      end)
      local output = select(2, run("ls"))
      assert.matches("\npool +2 of 2 permits +2 +%- +[%d.]+ s +%d+ +1 +%d+ m?s\n$", output)
      assert.matches("\na{b}c +2 of 3 permits +2 ", output)
      assert.is_nil(output:find("counter") or output:find("words"))
      assert.matches("^KEY[^\n]+\npool [^\n]+\n$", (select(2, run("ls", "po*"))))
      assert.matches("^KEY[^\n]+\na{b}c [^\n]+\n$", (select(2, run("ls", "a{*"))))
      output = select(2, run("show", "pool"))
      assert.matches("\nstate +held\npermits +2 of 2 taken\n", output)
      assert.matches("\n +1 by %S+ pid " .. first.pid .. " first, [%d.]+ s\n", output)
      assert.matches("\nwaiters +1\n +1 +%S+ pid " .. waiter.pid .. " third, for %d+ m?s\n", output)
      output = select(2, run("show", "--json", "pool"))
      assert.matches('"held":true,"mutex":false,"permits":2,"available":0,"kind":"semaphore","holds":2,', output)
      assert.matches('"holders":%[{.*"name":"first","permits":1,"ttl":[%d.]+}', output)
      assert.matches('"permits":3,"available":1,"kind":"semaphore","holds":2,', (select(2, run("ls", "--json", "a*"))))
      output = select(2, run("top", "--interval", "0.1"))
      assert.matches("^2 locks, 1 waiter\n", output)
      assert.matches("\npool +2 of 2 permits ", output)
      assert.is_true(permit:release() and braced:release())
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
      assert.equal(0, (run("show", "pool")))
      first:kill("TERM")
      first:wait(PATIENCE)
      local code
      code, output = run("show", "pool")
      assert.equal(1, code)
      assert.matches("\nstate +free\npermits +0 of 2 taken\n", output)
      assert.same({ 0, "" }, { run("ls") })
    end)

    it("makes show count the permits of each owner", function()
      local other = holdfast.new(server:url())
      local three = assert(client:semaphore("pool", { permits = 9, lease = 60 }):acquire(3))
      local two = assert(other:semaphore("pool", { lease = 30 }):acquire(2))
      local _, text = run("show", "pool")
      assert.matches("permits +5 of 9 taken\n", text)
      assert.matches("\n +3 by [^\n]*, [456]%d%.%d s\n", text)
      assert.matches("\n +2 by [^\n]*, [123]%d%.%d s\n", text)
      assert(three:release())
      assert(two:release())
      other:close()
    end)

    it("makes show omit expired permits, and mark those that never expire", function()
      local permit = assert(client:semaphore("pool", { permits = 4 }):acquire(1))
      server:cli("ZADD", "{pool}:timeout", 922337203685477, ("x"):rep(16), 1000, ("y"):rep(16))
      server:cli("DECRBY", "pool", 2)
      local _, text = run("show", "pool")
      assert.matches("\n +1 by [^\n]*, [123]%d%.%d s\n +1 by " .. ("78"):rep(16) .. ", none\n", text)
      assert.is_nil(text:find("79797979", 1, true))
      server:cli("ZREM", "{pool}:timeout", ("x"):rep(16), ("y"):rep(16))
      assert(permit:release())
    end)

    it("makes show name permit and lock owners of a tenant", function()
      local holders = {
        ["t:pool"] = start("hold", "--tenant", "t:", "--name", "nightly", "--permits", "2", "t:pool"),
        ["t:k"] = start("hold", "--tenant", "t:", "--name", "nightly", "t:k"),
      }
      for key, holder in pairs(holders) do
        eventually(function()
          return select(2, run("show", "--tenant", "t:", key)):find(" pid " .. holder.pid .. " nightly", 1, true)
        end, PATIENCE, key)
        assert.is_nil((select(2, run("show", key))):find("nightly", 1, true))
      end
    end)

    it("makes break hand all permits to the waiters", function()
      local pool = client:semaphore("pool", { permits = 250, lease = 60 })
      local permit = assert(pool:acquire(250))
      local waiter = start("run", "--permits", "2", "pool", "--", "echo", "in")
      eventually(function() return queued() == 1 end)
      assert.same({ 0, "pool: broken\n" }, { run("break", "--yes", "pool") })
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
      assert.equal("250", server:cli("GET", "pool"))
      assert.equal("lost", select(3, permit:release()))
      assert.same({ 1, "pool: was free\n" }, { run("break", "--yes", "pool") })
      server:cli("SET", "counter", 5)
      assert.equal(73, (run("break", "--yes", "counter")))
      assert.equal("5", server:cli("GET", "counter"))
    end)

    it("rejects options that cannot be combined with it", function()
      for _, words in ipairs {
        { "a", "b" }, { "-s", "a" }, { "-x", "a" }, { "--one-by-one", "a:b" },
        { "--servers", "redis://a,redis://b", "a" },
      } do
        local code, output = run("run", "--permits", "2", words[1], words[2] or "--",
          words[3] or "--", "--", "true")
        assert.equal(64, code, output)
        assert.matches("^holdfast run: %-%-permits ", output)
      end
      assert.matches("%-%-permits must be a whole number from 1", (select(2,
        run("run", "--permits", "0", "a", "--", "true"))))
      assert.equal(64, (run("lead", "--permits", "2", "k", "--", "true")))
    end)
  end)

  describe("wait", function()
    local lock

    before_each(function() lock = client:lock("k") end)

    it("returns at once if the lock is free", function()
      assert.same({ 0, "" }, { run("wait", "k") })
      assert.same({ 0, "" }, { run("wait", "-n", "k", "l") })
    end)

    it("returns when the lock is free, without acquiring it or joining its queue", function()
      assert(lock:acquire())
      local monitor = server:monitor()
      local child = start("wait", "k", "other")
      eventually(function() return monitor:count("HLEN") > 1 end) -- the waiter has looked twice
      assert.is_nil(child:status())
      assert.equal(0, lock:info().waiters)
      lock:release()
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.equal("", child:output())
      local names = {}
      for _, entry in ipairs(monitor:commands()) do
        local of_holder = entry.script or (entry.args[2] or ""):find("^holdfast_client:")
        if not of_holder then names[entry.args[1]:upper()] = true end
      end
      assert.is_true(names.TYPE and names.HLEN)
      for name in pairs(names) do
        assert.truthy(("CLIENT INFO PING TYPE EXISTS HGET HLEN EVALSHA EVAL ZCARD"):find(name, 1, true),
          name)
      end
      monitor:close()
    end)

    it("returns when all of several keys are free", function()
      assert(lock:acquire())
      local other = assert(client:mutex("m"):acquire())
      local child = start("wait", "k", "m")
      lock:release()
      process.sleep(0.2)
      assert.is_nil(child:status())
      other:release()
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    end)

    it("ends on INT without output", function()
      assert(lock:acquire())
      local monitor = server:monitor()
      local child = start("wait", "k")
      eventually(function() return monitor:count("HLEN") > 1 end)
      monitor:close()
      child:kill("INT")
      assert.same({ "signal", 2 }, { child:wait(PATIENCE) })
      assert.equal("", child:output())
      lock:release()
    end)

    it("gives up after -w with 1 or the code of -E, and prints nothing with -q", function()
      assert(lock:acquire())
      eventually(function() return lock:info().host end)
      local code, output = run("wait", "-n", "k")
      assert.equal(1, code)
      assert.matches('^holdfast wait: "k" is held by %S+ %(pid %d+%) for %d+ m?s, up to %d+ s more unless renewed\n$',
        output)
      assert.matches(('"code":"busy","exit":9,"host":"[^"]+","pid":%d,"held_for":[%%d.]+}\n$'):format(lock:info().pid),
        (select(2, run("wait", "-n", "--json", "-E9", "k"))))
      server:cli("SET", "endless", lock:owner())
      assert.matches('^holdfast wait: "endless" is held by %S+ %(pid %d+%)\n$', (select(2, run("wait", "-n", "endless"))))
      server:cli("DEL", "endless")
      assert.equal(5, (command.run_out(server, { "wait", "-w", "1s", "-E", "5", "k" })))
      assert.same({ 0, "" }, { run("wait", "-n", "-E", "0", "k") })
      assert.same({ 1, "" }, { run("wait", "-n", "-q", "k") })
      lock:release()
    end)

    it("keeps waiting through a restart of the server", function()
      local other = redis.start { persist = true }
      local far = holdfast.new(other:url())
      local held = assert(far:lock("k", { lease = 3 }):acquire())
      local monitor = other:monitor()
      local child = start("wait", "--url", other:url(), "k")
      eventually(function() return monitor:count("HLEN") > 0 end)
      monitor:close()
      other:kill("KILL")
      process.sleep(0.3)
      other:restart(false)
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      assert.is_truthy(held)
      far:close()
      other:stop()
    end)

    it("keeps waiting after its connection was killed, and still ends after -w", function()
      assert(lock:acquire())
      local monitor = server:monitor()
      local child = start("wait", "-w", "0.6", "k", "other")
      eventually(function() return monitor:count("HLEN") > 0 end)
      monitor:close()
      server:cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
      server:cli("SET", "other", "x")
      server:cli("DEL", "k")
      assert.same({ "exit", 1 }, { child:wait(PATIENCE) }, child:output())
      assert.matches('"other" is held\n', child:output())
      server:cli("DEL", "other")
    end)

    it("returns once a majority of several servers reports the lock free", function()
      local servers, urls = redis.several(3)
      local quorum = holdfast.new { servers = urls, mode = "quorum" }
      local held = assert(quorum:lock("k"):acquire())
      local list = table.concat(urls, ",")
      assert.equal(1, (run("wait", "-n", "--servers", list, "k")))
      held:release()
      assert.equal(0, (run("wait", "--servers", list, "k")))
      quorum:close()
      for _, each in ipairs(servers) do each:stop() end
    end)

    it("exits with 64 for wrong arguments, 69 without a server and 73 for a key of another type", function()
      assert.equal(64, (run("wait")))
      assert.equal(64, (run("wait", "-n", "-w", "1", "k")))
      assert.equal(69, (run("wait", "--url", "unix:///no/such.sock", "k")))
      server:cli("RPUSH", "list", "x")
      assert.equal(73, (run("wait", "list")))
    end)
  end)
end)

describe("holdfast on a cluster", function()
  local cluster = require "spec.support.cluster"
  local nodes, client

  setup(function() nodes = cluster.start { masters = 3, replicas = 0 } end)
  teardown(function() nodes:stop() end)
  before_each(function()
    client = holdfast.new(nodes:url())
    assert(client:ping())
  end)
  after_each(function() client:close() end)

  local function run(...)
    return command.run({ url = function() return nodes:url() end }, { ... })
  end

  it("lists, shows and breaks semaphores and read/write locks on every node", function()
    local permits, readers, expected = {}, {}, { "KEY" }
    for i = 1, 6 do
      permits[i] = assert(client:semaphore("pool:" .. i, { permits = 3 }):acquire(2))
      readers[i] = client:read_write_lock("rw:" .. i):read()
      assert(readers[i]:acquire())
    end
    for _, kind in ipairs { "pool:", "rw:" } do
      for i = 1, 6 do expected[#expected + 1] = kind .. i end
    end
    local keys = {}
    for key in select(2, run("ls")):gmatch("([^ \n]+) [^\n]+\n") do keys[#keys + 1] = key end
    assert.same(expected, keys)
    for i = 1, 6 do
      local code, output = run("show", "pool:" .. i)
      assert.equal(0, code)
      assert.matches("\npermits +2 of 3 taken\n +2 by ", output)
      assert.same({ 0, ("pool:%d: broken\n"):format(i) }, { run("break", "--yes", "pool:" .. i) })
      assert.same({ 0, ("rw:%d: broken\n"):format(i) }, { run("break", "--yes", "rw:" .. i) })
      assert.equal("lost", select(3, permits[i]:release()))
    end
    assert.same({ 0, "" }, { run("ls") })
  end)

  it("ls, show and top read latches, idempotent runs and waiters from the node of each key", function()
    local held = {}
    local function start(...)
      local child = command.start({ url = function() return nodes:url() end }, { ... })
      held[#held + 1] = child
      return child
    end
    local waiters, locks = {}, {}
    for i = 1, 3 do
      assert(client:latch("gate:" .. i):set(2))
      start("latch", "wait", "gate:" .. i)
      locks[i] = assert(client:lock("a{busy" .. i .. "}"):acquire())
      waiters[i] = start("run", "--name", "patient", "a{busy" .. i .. "}", "--", "true")
    end
    for i = 1, 3 do
      local shown
      assert.equal(0, (run("run", "--idempotent", "1h", "job:" .. i, "--", "true")))
      assert.matches("\ndone +for 3", (select(2, run("show", "job:" .. i))))
      assert(process.wait_until(function()
        shown = select(2, run("show", "a{busy" .. i .. "}"))
        return shown:find(" pid " .. waiters[i].pid .. " patient", 1, true)
      end, PATIENCE), shown)
      assert(process.wait_until(function()
        shown = select(2, run("show", "gate:" .. i))
        return shown == ("key      gate:%d\nstate    a latch, closed\ncount    2\nwaiters  1\n"):format(i)
      end, PATIENCE), shown)
    end
    local _, list = run("ls")
    for i = 1, 3 do
      assert.matches("\njob:" .. i .. " +done ", list)
      assert.matches("\ngate:" .. i .. " +2 left +%- +%- +%- +%- +1 +%-\n", list)
      assert.same({ 0, ("job:%d: may run again\n"):format(i) }, { run("break", "--yes", "job:" .. i) })
      assert.same({ 0, ("gate:%d: broken\n"):format(i) }, { run("break", "--yes", "gate:" .. i) })
    end
    for _, child in ipairs(held) do
      child:kill("TERM")
      assert(child:wait(PATIENCE))
    end
    for _, lock in ipairs(locks) do assert(lock:release()) end
  end)

  it("show counts sharded and plain subscribers of a latch once each", function()
    if redis.major() < 7 then return end
    assert(client:latch("gate"):set(2))
    local channel = "redisson_countdownlatch__channel__{gate}"
    local listener = resp.connect { path = nodes:node_of("gate").path }
    for i, verb in ipairs { "SSUBSCRIBE", "SUBSCRIBE", "SUNSUBSCRIBE" } do
      listener:call(verb, i == 2 and "redisson_countdownlatch__channel__gate" or channel)
      assert.matches("\nstate    a latch, closed\ncount    2\nwaiters  1\n", (select(2, run("show", "gate"))))
      assert.matches("\ngate  2 left +%- +%- +%- +%- +1 +%-\n", (select(2, run("ls", "gat*"))))
    end
    listener:close()
    assert(client:latch("gate"):delete())
  end)

  it("run --permits acquires a permit", function()
    local permit = assert(client:semaphore("pool", { permits = 1 }):acquire())
    assert.equal(1, (run("run", "-n", "--permits", "1", "pool", "--", "true")))
    permit:release()
    assert.same({ 0, "in\n" }, { run("run", "--permits", "1", "pool", "--", "echo", "in") })
  end)
end)
