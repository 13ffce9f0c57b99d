-- holdfast lead and holdfast wait: the real command against real servers.

local command = require "spec.support.command"
local holdfast = require "holdfast"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"

local PATIENCE, SIGNALS, eventually = jobs.PATIENCE, jobs.SIGNALS, jobs.eventually
local exits, gives, says, sees = jobs.exits, jobs.gives, jobs.says, jobs.sees
local server, stop = jobs.server, jobs.stop
local unpack = table.unpack or unpack

local function lines_of(path)
  local list = {}
  for line in jobs.read(path):gmatch "[^\n]+" do list[#list + 1] = line end
  return list
end

describe("holdfast", function()
  local children, client

  before_each(function()
    jobs.open()
    children, client = {}, jobs.own()
  end)
  after_each(function()
    jobs.close()
    for _, child in ipairs(children) do
      child:kill("TERM")
      child:wait(PATIENCE)
      child:stop()
    end
    server:cli("FLUSHALL")
  end)

  local function start(...)
    local child = jobs.start { ... }
    children[#children + 1] = child
    return child
  end

  local function run(...) return jobs.run { ... } end
  local function output_of(...) return jobs.output_of { ... } end

  -- Asserts that the run of `true` under these options ends with this code.
  local function runs_with(code, ...)
    local words = { "run", ... }
    words[#words + 1], words[#words + 2] = "--", "true"
    assert.equal(code, (jobs.run(words)))
  end

  -- Starts a job under options and a key, and waits until it runs.
  local function job(...)
    local words = { "run", ... }
    for _, word in ipairs { "--", "sh", "-c", "echo ready $HOLDFAST_TOKEN; exec sleep 60" } do
      words[#words + 1] = word
    end
    local child = start(unpack(words))
    sees(child, "ready[ %d]*\n")
    return child
  end

  local function waiters(key)
    return server:cli("ZCOUNT", ("holdfast_queue:{%s}"):format(key or "k"), "(0", "+inf")
  end

  local function awaits(count, key) eventually(function() return waiters(key) == count end) end

  describe("lead", function()
    local path

    before_each(function() path = jobs.file "terms" end)

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

    local function comes_to(count) eventually(function() return #terms() == count end) end

    -- Starts a leader. → it, in its first term
    local function leads(...)
      local child = start("lead", ...)
      comes_to(1)
      return child
    end

    -- → a leader that waits for its second term, and the `holdfast hold` that it waits for
    local function waits_again()
      local child, hold = leads("--pause", "0.1s", "k", "-c", daemon()), start("hold", "k")
      awaits(1)
      process.signal(terms()[1].pid, SIGNALS.TERM)
      eventually(function() return hold:output():find("^k ") and waiters() == 1 end)
      return child, hold
    end

    local function runs(pid)
      return process.signal(pid, 0) == true or process.signal(pid, 0) == 0
    end

    it("--once runs the command once under the lock, and exits with its code", function()
      gives(3, "key k\n", { "lead", "--once", "k", "--", "sh", "-c", "echo key $HOLDFAST_KEY; exit 3" })
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

    it("leaves no descriptor or process behind when a term ends", function()
      local child = start("lead", "-v", "--pause", "5ms", "k", "-c", daemon "exit 0")
      local function open()
        local count = 0
        for _ in require("lfs").dir(("/proc/%d/fd"):format(child.pid)) do count = count + 1 end
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
      local output = says(77, "", { "lead", "--pause", "10ms", "--url", "unix://reader:x@" .. server.path,
        "k", "--", "true" })
      server:cli("ACL", "DELUSER", "reader")
      assert.not_matches("will retry", output)
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
      sees(child, warning)
      process.sleep(1.5)
      assert.equal(1, select(2, child:output():gsub("still waiting", "")), child:output())
      own:kill("CONT")
      own:cli("DEL", "k")
      comes_to(1)
      stop(child, 143)
    end)

    it("while it waits, names the current leader in a line with -v and in an event with --json", function()
      local first = leads("k", "-c", daemon())
      local second = start("lead", "k", "-c", daemon())
      awaits(1)
      local said, event = start("lead", "-v", "k", "--", "true"), start("lead", "--json", "k", "--", "true")
      for _, child in ipairs { said, event } do
        sees(child, "waiting")
        assert.not_matches("leader", child:output()) assert.not_matches("now led", child:output())
      end
      first:kill("TERM")
      sees(said, ('holdfast lead: "k" is now led by %%S+ pid %d\n'):format(second.pid))
      sees(event, '"event":"leader","time":"[^"]+","key":"k","owner":"[^"]+","host":"[^"]+","pid":'
        .. second.pid .. ',"token":%d+}\n')
    end)

    it("measures each term's wait from the end of the previous term", function()
      local child = start("lead", "--pause", "0", "--json", "k", "-c", daemon "sleep 0.3")
      local pattern = '"waited":([%d.e-]+)}.*"waited":([%d.e-]+)}.*"waited":([%d.e-]+)}'
      sees(child, pattern)
      local third = select(3, child:output():match(pattern))
      assert.is_true(tonumber(third) < 0.6, third) -- the time of two commands
    end)

    it("stops its command when the lock is lost, and starts it again with a new hold", function()
      local child = leads("--lease", "4", "k", "-c", daemon())
      server:cli("DEL", "k")
      comes_to(2)
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
      sees(child, "passing on TERM")
      server:cli("DEL", "k")
      exits(child, 75)
      assert.equal(1, #terms())
    end)

    it("forwards HUP to its command, and continues leading if the command survives it", function()
      local child = leads("k", "-c", "trap 'echo reload >>" .. jobs.file "hup" .. "' HUP; "
        .. daemon "while :; do sleep 0.05; done")
      child:kill(SIGNALS.HUP)
      eventually(function() return #lines_of(jobs.file "hup") == 1 end)
      process.sleep(0.2)
      assert.same({ nil, 1 }, { child:status(), #terms() })
    end)

    it("exits when its command dies of a signal that `holdfast lead` forwarded", function()
      for _, name in ipairs { "USR1", "HUP" } do
        os.remove(path)
        local child = start("lead", "k", "-c", daemon())
        comes_to(1)
        child:kill(SIGNALS[name])
        exits(child, 128 + SIGNALS[name])
      end
      os.remove(path)
      local child = leads("--pause", "20ms", "k", "-c", "trap 'echo caught' USR1; "
        .. daemon "while :; do sleep 0.05; done")
      child:kill(SIGNALS.USR1)
      sees(child, "caught")
      process.signal(terms()[1].pid, "KILL")
      comes_to(2)
      stop(child, 143)
    end)

    it("--once starts its command again if the lock was lost", function()
      local child = leads("--once", "--lease", "1", "k", "-c", daemon())
      server:cli("DEL", "k")
      comes_to(2)
      process.signal(terms()[2].pid, "KILL")
      exits(child, 137)
    end)

    it("keeps its place in the queue when signals arrive that have no effect", function()
      local child = waits_again()
      start("run", "k", "--", "sleep", "60")
      awaits(2)
      local queue = server:cli("ZRANGE", "holdfast_queue:{k}", 0, -1)
      for _, name in ipairs { "WINCH", "CONT", "CHLD" } do child:kill(SIGNALS[name]) end
      process.sleep(0.3)
      assert.same(queue, server:cli("ZRANGE", "holdfast_queue:{k}", 0, -1))
    end)

    it("stops only itself on TSTP between two terms, not its process group", function()
      local words = command.words("lead", "-v", "--pause", "60", "k", "-c",
        "echo $PPID >" .. jobs.file "lead")
      local script = ("'%s' & sleep 60 & echo $! >%s; wait"):format(table.concat(words, "' '"),
        jobs.file "other")
      local shell = process.start { env = command.environment(server), "bash", "-c",
        'set -m; bash -c "$0" & wait', script }
      sees(shell, "released")
      local pid = tonumber(lines_of(jobs.file "lead")[1])
      local other = tonumber(lines_of(jobs.file "other")[1])
      process.signal(pid, SIGNALS.TSTP)
      eventually(function() return jobs.state(pid) == "T" end)
      assert.equal("S", jobs.state(other))
      process.signal(pid, SIGNALS.CONT)
      process.signal(pid, SIGNALS.TERM)
      process.signal(other, SIGNALS.TERM)
      exits(shell, 0)
    end)

    it("retries until an unreachable server is up, and warns once for each term that fails", function()
      local other = redis.start()
      finally(function() other:stop() end)
      local function goes_down()
        other:kill("KILL")
        eventually(function() return not other:is_running() end)
      end
      goes_down()
      local child = start("lead", "-v", "--pause", "20ms", "--lease", "1", "--url", other:url(), "k", "-c",
        "echo in; " .. jobs.await "ended")
      sees(child, "will retry")
      process.sleep(0.2)
      other:restart(true)
      sees(child, "\nin\n")
      assert.equal(1, select(2, child:output():gsub("will retry", "")), child:output())
      local waited = child:output():match('acquired "k" after ([%d.]+) s')
      assert.is_true(tonumber(waited) >= 0.2, waited) -- the outage counts
      goes_down()
      jobs.write(jobs.file "ended", "")
      sees(child, "will retry.*\nin\n.*will retry")
      child:kill("TERM")
      assert(child:wait(PATIENCE))
    end)

    it("waits for the whole --pause between two terms even if signals arrive", function()
      local child = start("lead", "-v", "--pause", "60", "k", "--", "echo", "in")
      sees(child, "released")
      for _ = 1, 3 do
        for _, name in ipairs { "WINCH", "CONT", "CHLD" } do child:kill(SIGNALS[name]) end
        process.sleep(0.05)
      end
      assert.equal(1, select(2, child:output():gsub("acquired", "")))
      stop(child, 143)
    end)

    it("rejects invalid arguments with 64, and a command that cannot start with 127", function()
      for _, case in ipairs {
        { 64, "no KEY", "--", "true" },
        { 64, "no %-%- before the command", "k" },
        { 64, 'unexpected argument "l"; lead takes one KEY', "k", "l", "--", "true" },
        { 64, "unknown option %-%-one%-by%-one", "--one-by-one", "a:b", "--", "true" },
        { 127, 'cannot start "/no/such"', "k", "--", "/no/such" },
      } do
        says(case[1], "^holdfast lead: " .. case[2], { "lead", unpack(case, 3) })
      end
      for _, subcommand in ipairs { "lead", "hold", "run", "wait", "ls", "show", "deadlocks" } do
        says(64, '^{"event":"error",.*unknown option %-%-bogus.*"code":"usage","exit":64}\n$',
          { subcommand, "--json", "--bogus" })
      end
      server:cli("SET", "text", "no lock")
      assert.equal(73, (run("lead", "text", "--", "true")))
    end)
  end)

  describe("run --shared and --exclusive", function()
    it("admit many shared runs or one exclusive run at a time", function()
      local readers = { job("--shared", "k"), job("-s", "k") }
      assert.same({ "read" }, { server:cli("HGET", "k", "mode") })
      runs_with(1, "-n", "-x", "k")
      local writer = start("run", "--exclusive", "k", "--", "sh", "-c", "echo ready; exec sleep 60")
      awaits(1)
      -- a reader does not overtake the waiter
      runs_with(1, "-n", "-s", "k")
      for _, reader in ipairs(readers) do stop(reader, 143) end
      sees(writer, "ready\n")
      assert.equal("write", server:cli("HGET", "k", "mode"))
      runs_with(1, "-n", "-s", "k")
      assert.equal(1, (run("wait", "-n", "k")))
      stop(writer, 143)
      assert.equal(0, server:cli("EXISTS", "k"))
    end)

    it("are listed by ls, show and top, and can be broken", function()
      job("-s", "--name", "first", "k")
      job("-s", "k")
      job("-x", "--name", "alone", "w")
      local output
      eventually(function()
        output = output_of("ls")
        return output:find("alone", 1, true) and output:find("pid", 1, true)
      end)
      assert.matches("\nk +[^\n]+ %(2 readers%) +1 ", output)
      assert.matches("\nw +%S+ pid %d+ alone %(one writer%) +1 ", output)
      assert.matches("\nstate +held, 2 readers\n", output_of("show", "k"))
      assert.matches("\nstate +held, one writer\n", output_of("show", "w"))
      output = output_of("top", "--interval", "0.1")
      assert.matches("^2 locks, ", output)
      assert.matches("\nk +[^\n]+ %(2 readers%) ", output)
      assert.matches("\nw +%S+ pid %d+ alone %(one writer%) ", output)
      assert.matches('"mode":"read","readers":2,', output_of("show", "--json", "k"))
      assert.matches('"key":"w".*"mode":"write","readers":0,',
        output_of("ls", "--json", "w"))
      assert.equal(0, (run("break", "--yes", "k")))
      assert.same({ { "w" }, 0 }, { server:cli("KEYS", "w"), server:cli("EXISTS", "k") })
    end)

    it("refuse a nested run that would wait for its parent, but not one whose parent has died", function()
      for _, under in ipairs { { "-s", "-n", "-E", "0" }, { "-n", "-q" } } do
        local words = { "run", unpack(under) }
        for _, word in ipairs { "k", "--", "echo", "in" } do words[#words + 1] = word end
        says(64, '^holdfast run: cannot acquire "k": an enclosing run already holds it',
          { "run", "-s", "k", "--", unpack(command.words(unpack(words))) })
      end
      gives(0, "in\n", {
        "run", "-s", "k", "--", "echo", "in",
        env = { HOLDFAST_KEY = "k", HOLDFAST_OWNER = "97907af0-0bfa-87c1-bcdb-a7e838d23152:1",
          HOLDFAST_TOKEN = "1" },
      })
    end)
  end)

  describe("run --permits", function()
    local function permit_job(...)
      local child = job("--permits", "2", ...)
      assert.matches("ready %d+\n", child:output())
      return child
    end

    it("runs up to N jobs at once, and the next one when one has ended", function()
      local first = permit_job("pool")
      permit_job("pool")
      assert.equal("0", server:cli("GET", "pool"))
      runs_with(1, "-n", "--permits", "2", "pool")
      assert.equal(5, (command.run_out(server,
        { "run", "-w", "0.1", "-E", "5", "--permits", "2", "pool", "--", "true" })))
      assert.equal(1, (run("wait", "-n", "pool")))
      local third = start("run", "--permits", "2", "pool", "--", "echo", "third")
      awaits(1, "pool")
      stop(first, 143)
      exits(third, 0)
      assert.same({ "third\n", "1" }, { third:output(), server:cli("GET", "pool") })
      assert.equal(0, (run("wait", "-n", "pool")))
    end)

    it("renews its permit, and ends the job if the permit is lost", function()
      local child = permit_job("--lease", "2", "pool")
      process.sleep(2.5)
      assert.equal("1", server:cli("GET", "pool"))
      assert.equal(1, #server:cli("ZRANGE", "{pool}:timeout", 0, -1))
      server:cli("DEL", "pool", "{pool}:timeout")
      exits(child, 75)
      assert.matches('lost the lock "pool"', child:output())
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
      local output = output_of("ls")
      assert.matches("\npool +2 of 2 permits +2 +%- +[%d.]+ s +%d+ +1 +%d+ m?s\n$", output)
      assert.matches("\na{b}c +2 of 3 permits +2 ", output)
      assert.is_nil(output:find("counter") or output:find("words"))
      assert.matches("^KEY[^\n]+\npool [^\n]+\n$", output_of("ls", "po*"))
      assert.matches("^KEY[^\n]+\na{b}c [^\n]+\n$", output_of("ls", "a{*"))
      output = output_of("show", "pool")
      assert.matches("\nstate +held\npermits +2 of 2 taken\n", output)
      assert.matches("\n +1 by %S+ pid " .. first.pid .. " first, [%d.]+ s\n", output)
      assert.matches("\nwaiters +1\n +1 +%S+ pid " .. waiter.pid .. " third, for %d+ m?s\n", output)
      output = output_of("show", "--json", "pool")
      assert.matches('"held":true,"mutex":false,"permits":2,"available":0,"kind":"semaphore","holds":2,', output)
      assert.matches('"holders":%[{.*"name":"first","permits":1,"ttl":[%d.]+}', output)
      assert.matches('"permits":3,"available":1,"kind":"semaphore","holds":2,', output_of("ls", "--json", "a*"))
      output = output_of("top", "--interval", "0.1")
      assert.matches("^2 locks, 1 waiter\n", output)
      assert.matches("\npool +2 of 2 permits ", output)
      assert.is_true(permit:release() and braced:release())
      exits(waiter, 0)
      assert.equal(0, (run("show", "pool")))
      stop(first, 143)
      says(1, "\nstate +free\npermits +0 of 2 taken\n", { "show", "pool" })
      gives(0, "", { "ls" })
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
          return output_of("show", "--tenant", "t:", key):find(" pid " .. holder.pid .. " nightly", 1, true)
        end, PATIENCE, key)
        assert.is_nil(output_of("show", key):find("nightly", 1, true))
      end
    end)

    it("makes break hand all permits to the waiters", function()
      local pool = client:semaphore("pool", { permits = 250, lease = 60 })
      local permit = assert(pool:acquire(250))
      local waiter = start("run", "--permits", "2", "pool", "--", "echo", "in")
      awaits(1, "pool")
      gives(0, "pool: broken\n", { "break", "--yes", "pool" })
      exits(waiter, 0)
      assert.equal("250", server:cli("GET", "pool"))
      assert.equal("lost", select(3, permit:release()))
      gives(1, "pool: was free\n", { "break", "--yes", "pool" })
      server:cli("SET", "counter", 5)
      assert.equal(73, (run("break", "--yes", "counter")))
      assert.equal("5", server:cli("GET", "counter"))
    end)
  end)

  describe("wait", function()
    local lock

    before_each(function() lock = client:lock("k") end)

    it("returns when the lock is free, without acquiring it or joining its queue", function()
      assert(lock:acquire())
      local monitor = server:monitor()
      local child = start("wait", "k", "other")
      eventually(function() return monitor:count("HLEN") > 1 end) -- the waiter has looked twice
      assert.same({ nil, 0 }, { child:status(), lock:info().waiters })
      lock:release()
      exits(child, 0)
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
      exits(child, 0)
    end)

    it("gives up after -w with 1 or the code of -E, and prints nothing with -q", function()
      assert(lock:acquire())
      eventually(function() return lock:info().host end)
      says(1, '^holdfast wait: "k" is held by %S+ %(pid %d+%) for %d+ m?s, up to %d+ s more unless renewed\n$',
        { "wait", "-n", "k" })
      assert.matches(('"code":"busy","exit":9,"host":"[^"]+","pid":%d,"held_for":[%%d.]+}\n$'):format(lock:info().pid),
        output_of("wait", "-n", "--json", "-E9", "k"))
      server:cli("SET", "endless", lock:owner())
      assert.matches('^holdfast wait: "endless" is held by %S+ %(pid %d+%)\n$', output_of("wait", "-n", "endless"))
      server:cli("DEL", "endless")
      assert.equal(5, (command.run_out(server, { "wait", "-w", "1s", "-E", "5", "k" })))
      gives(0, "", { "wait", "-n", "-E", "0", "k" })
      gives(1, "", { "wait", "-n", "-q", "k" })
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
      exits(child, 0)
      assert.is_truthy(held)
      far:close()
      other:stop()
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

  local here = { url = function() return nodes:url() end }

  local function run(...) return command.run(here, { ... }) end
  local function output_of(...) return (select(2, run(...))) end
  local function prints(code, output, words)
    assert.same({ code, output }, { run(unpack(words)) })
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
    for key in output_of("ls"):gmatch("([^ \n]+) [^\n]+\n") do keys[#keys + 1] = key end
    assert.same(expected, keys)
    for i = 1, 6 do
      assert.matches("\npermits +2 of 3 taken\n +2 by ", output_of("show", "pool:" .. i))
      prints(0, ("pool:%d: broken\n"):format(i), { "break", "--yes", "pool:" .. i })
      prints(0, ("rw:%d: broken\n"):format(i), { "break", "--yes", "rw:" .. i })
      assert.equal("lost", select(3, permits[i]:release()))
    end
    prints(0, "", { "ls" })
  end)

  it("ls, show and top read latches, idempotent runs and waiters from the node of each key", function()
    local held = {}
    local function start(...)
      held[#held + 1] = command.start(here, { ... })
      return held[#held]
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
      prints(0, "", { "run", "--idempotent", "1h", "job:" .. i, "--", "true" })
      assert.matches("\ndone +for 3", output_of("show", "job:" .. i))
      assert(process.wait_until(function()
        shown = output_of("show", "a{busy" .. i .. "}")
        return shown:find(" pid " .. waiters[i].pid .. " patient", 1, true)
      end, PATIENCE), shown)
      assert(process.wait_until(function()
        shown = output_of("show", "gate:" .. i)
        return shown == ("key      gate:%d\nstate    a latch, closed\ncount    2\nwaiters  1\n"):format(i)
      end, PATIENCE), shown)
    end
    local _, list = run("ls")
    for i = 1, 3 do
      assert.matches("\njob:" .. i .. " +done ", list)
      assert.matches("\ngate:" .. i .. " +2 left +%- +%- +%- +%- +1 +%-\n", list)
      prints(0, ("job:%d: may run again\n"):format(i), { "break", "--yes", "job:" .. i })
      prints(0, ("gate:%d: broken\n"):format(i), { "break", "--yes", "gate:" .. i })
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
      assert.matches("\nstate    a latch, closed\ncount    2\nwaiters  1\n", output_of("show", "gate"))
      assert.matches("\ngate  2 left +%- +%- +%- +%- +1 +%-\n", output_of("ls", "gat*"))
    end
    listener:close()
    assert(client:latch("gate"):delete())
  end)
end)
