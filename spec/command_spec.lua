local command = require "spec.support.command"
local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"
local terminal = require "spec.support.terminal"

local unpack = table.unpack or unpack

local PATIENCE = 40
local GRANT = 20 -- seconds between a waiter's rechecks if no message comes

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

-- Makes a directory for settings files, until the end of the block.
-- → function(line, …) → the environment of a command whose file has these lines
local function settings_files()
  local directory, number = process.directory(), 0
  teardown(function() process.remove(directory) end)
  return function(...)
    number = number + 1
    local path = ("%s/%d.conf"):format(directory, number)
    local file = assert(io.open(path, "w"))
    file:write(table.concat({ ... }, "\n"), "\n")
    file:close()
    return { HOLDFAST_CONFIG = path }
  end
end

describe("holdfast", function()
  local server, client, held -- kept here, because a collected handle is released

  setup(function() server = redis.start { tcp = true } end)
  teardown(function() server:stop() end)
  before_each(function()
    server:cli("FLUSHALL")
    client, held = holdfast.new(server:url()), {}
  end)
  after_each(function() client:close() end)

  local function run(...) return command.run(server, { ... }) end

  local function keep(lock)
    held[#held + 1] = assert(lock:acquire())
  end

  local function acquire(key, opts) keep(client:lock(key, opts)) end

  local function hold_by_command(...)
    local child = command.start(server, { "run", "--name", "nightly job", ... })
    assert(child:wait_output("ready", PATIENCE), child:output())
    return child
  end

  local function hold(key)
    return hold_by_command(key, "--", "sh", "-c", "echo ready; exec sleep 60")
  end

  describe("ls", function()
    it("lists locks, and no other hashes or strings", function()
      acquire("one")
      acquire("named", { owner = "somebody" })
      server:cli("HSET", "counter", "visits", 7)
      server:cli("EXPIRE", "counter", 60)
      server:cli("HSET", "big", "a", 1, "b", 2)
      server:cli("SET", "text", "x")
      local code, output = run("ls")
      assert.equal(0, code)
      assert.matches("^KEY +OWNER +HOLDS +HELD +TTL +TOKEN +WAITERS +WAIT\n", output)
      assert.matches("\nnamed  somebody +1 +%- +[%d.]+ s +%d+ +0 +%-\none +[^\n]+ 1 +%d+ m?s +[%d.]+ s +%d+ +0 +%-\n$", output)
    end)

    it("prints nothing if there are no locks", function()
      assert.same({ 0, "" }, { run("ls") })
    end)

    it("--json prints the locks that match a pattern as JSON", function()
      acquire("jobs:a\n\255")
      acquire("other")
      local code, output = run("ls", "--json", "jobs:*")
      assert.equal(0, code)
      assert.matches('^{"key":"jobs:a\\u000a?\\?n?\\u00ff","held":true,"mutex":false,"owner":"[%x:-]+",.*"holds":1,' ..
        '"held_for":[%d.e-]+,"ttl":[%d.]+,"token":%d+,"waiters":0}\n$', (output:gsub("\\n", "\\u000a")))
    end)

    it("--json prints valid UTF-8 whatever bytes a key has", function()
      acquire("fine:\195\164\226\130\172\240\159\148\146")
      acquire("torn:\233\194\160\128\128") -- without the 2 bytes in the middle it would be UTF-8
      local _, output = run("ls", "--json")
      assert.is_truthy(output:find('"fine:\195\164\226\130\172\240\159\148\146"', 1, true))
      assert.is_truthy(output:find([["torn:\u00e9\u00c2\u00a0\u0080\u0080"]], 1, true))
    end)

    it("--json prints numbers without exponents, and null for infinity and NaN", function()
      local json = require "holdfast.command.json"
      for text, value in pairs { null = math.huge, ["0"] = 0, ["1700000000123456"] = 1700000000123456,
        ["-3"] = -3, ["0.125"] = 0.125, ["true"] = true, ["false"] = false, ['""'] = "" } do
        assert.equal(text, json.value(value))
      end
      assert.equal("null", json.value(-math.huge))
      assert.equal("null", json.value(0 / 0))
      assert.equal('{"b":false,"a":1,"l":[{},2]}', json.object { { "b", false }, { "none" }, { "a", 1 },
        { "l", json.list { json.object {}, "2" } } })
    end)

    it("finds all locks among thousands of keys, with SCAN instead of KEYS", function()
      for i = 1, 3000 do server:cli("SET", "filler:" .. i, i) end
      for i = 1, 40 do acquire("many:" .. i) end
      local monitor = server:monitor()
      local _, output = run("ls", "many:*")
      assert.equal(41, select(2, output:gsub("\n", "")))
      assert.equal(0, monitor:count("KEYS"))
      assert.is_true(monitor:count("SCAN") > 1)
      monitor:close()
    end)

    it("lists locks even on servers whose SCAN lacks TYPE", function()
      acquire("one")
      local core, locks = require "holdfast.core", require "holdfast.command.locks"
      local real = core.client.command
      finally(function() core.client.command = real end)
      core.client.command = function(c, words)
        if words[7] == "TYPE" then return nil, "ERR syntax error", "server" end
        return real(c, words)
      end
      local list = assert(locks.all(client))
      assert.equal(1, #list)
    end)

    it("lists mutexes only with --mutex", function()
      keep(client:mutex("m"))
      server:cli("SET", "text", ("x"):rep(40))
      assert.same({ 0, "" }, { run("ls") })
      local _, output = run("ls", "--mutex")
      assert.matches("\nm +[^\n]+ 1 [^\n]+\n$", output)
      keep(client:mutex("n"))
      assert.matches("^KEY[^\n]+\nn +[^\n]+\n$", (select(2, run("ls", "--mutex", "n*"))))
    end)

    it("exits with 69 if the server is unreachable", function()
      assert.equal(69, (run("ls", "--url", "unix:///no/such.sock")))
    end)
  end)

  describe("on several servers", function()
    local servers, list, quorum

    before_each(function()
      servers = redis.several(3)
      local urls = {}
      for i, each in ipairs(servers) do urls[i] = each:url() end
      list, quorum = table.concat(urls, ","),
        holdfast.new { servers = urls, mode = "quorum", name = "lua-owner" }
    end)
    after_each(function()
      quorum:close()
      for _, each in ipairs(servers) do each:stop() end
    end)

    -- → the output of these words, once the names of a holder in Lua and of a job are published
    local function named(words)
      local code, output
      assert(process.wait_until(function()
        code, output = command.run(server, words)
        return output:find("lua%-owner") and output:find("nightly")
      end, PATIENCE), output)
      assert.equal(0, code)
      return output
    end

    it("ls and top name the holders, even while one server is down", function()
      local lock = assert(quorum:lock("from:lua"):acquire())
      local job = command.start(server, {
        "run", "--servers", list, "--name", "nightly", "from:job", "--", "sleep", "60",
      })
      servers[1]:cli("HSET", "from:minority", "b983c153-7421-869a-addb-44fb92259a1b:1", 1)
      servers[1]:cli("PEXPIRE", "from:minority", 60000)
      for _, away in ipairs { false, true } do
        if away then servers[3]:kill("KILL") end
        local output = named { "ls", "--servers", list }
        assert.matches("\nfrom:job +%S+ pid " .. job.pid .. " nightly +1 ", output)
        assert.matches("\nfrom:lua +%S+ pid %d+ lua%-owner +1 +%d+ m?s +[%d.]+ s ", output)
        assert.is_nil(output:find("minority", 1, true))
        assert.equal(3, select(2, output:gsub("\n", "")))
        output = named { "top", "--servers", list, "--interval", "0.1" }
        assert.matches("^2 locks, 0 waiters\n", output)
        assert.is_nil(output:find("minority", 1, true))
      end
      servers[2]:kill("KILL")
      assert.equal(69, (command.run(server, { "ls", "--servers", list })))
      job:kill("KILL")
      job:wait(PATIENCE)
      lock:release()
    end)

    it("ls --mutex lists mutexes; ls, show and break handle an idempotency record", function()
      local mutex = assert(quorum:mutex("m"):acquire())
      assert.matches("\nm +%S+ ", (select(2,
        command.run(server, { "ls", "--mutex", "--servers", list }))))
      mutex:release()
      assert.equal(0, (command.run(server, { "run", "--servers", list, "--idempotent", "60", "once",
        "--", "true" })))
      assert.matches("\nonce +done ", (select(2, command.run(server, { "ls", "--servers", list }))))
      assert.matches("\ndone +for ", (select(2,
        command.run(server, { "show", "--servers", list, "once" }))))
      assert.equal(0, (command.run(server, { "break", "--yes", "--servers", list, "once" })))
      assert.same({ 0, "" }, { command.run(server, { "ls", "--servers", list }) })
    end)
  end)

  describe("show", function()
    it("names the holder and the waiters", function()
      local holder = hold("k")
      local waiter = command.start(server, { "run", "--name", "second", "k", "--", "true" })
      assert(process.wait_until(function()
        return client:lock("k"):info().waiters == 1
      end, PATIENCE))
      assert(process.wait_until(function()
        return #server:cli("KEYS", "holdfast_client:*") == 2
      end, PATIENCE))
      local code, output = run("show", "k")
      assert.equal(0, code)
      assert.matches("key +k\nstate +held\nowner +[%x:-]+\nwho +%S+ pid " .. holder.pid
        .. " nightly job\n", output)
      assert.matches("\nholds +1\nheld +for %d+ m?s\nttl +[%d.]+ s\ntoken +%d+\nwaiters +1\n", output)
      assert.matches("\n +1 +%S+ pid " .. waiter.pid .. " second, for %d+ m?s\n$", output)
      code, output = run("show", "--json", "k")
      assert.equal(0, code)
      assert.matches('"host":"[^"]+","pid":' .. holder.pid .. ',"name":"nightly job"', output, 1)
      assert.matches('"queue":%[{"owner":"[%x:-]+","host":"[^"]+","pid":' .. waiter.pid
        .. ',"name":"second","waits":[%d.e-]+}%]', output)
      waiter:kill("TERM")
      holder:kill("TERM")
      assert.same({ "exit", 143 }, { waiter:wait(PATIENCE) })
      assert.same({ "exit", 143 }, { holder:wait(PATIENCE) })
    end)

    it("names the waiters of a key with braces", function()
      acquire("a{b}c")
      local waiter = command.start(server, { "run", "--name", "patient", "a{b}c", "--", "true" })
      assert(process.wait_until(function()
        return client:lock("a{b}c"):info().waiters == 1
      end, PATIENCE))
      assert(process.wait_until(function()
        return #server:cli("KEYS", "holdfast_client:*") == 2
      end, PATIENCE))
      assert.matches("\nwaiters +1\n +1 +%S+ pid " .. waiter.pid .. " patient, for %d+ m?s\n$",
        (select(2, run("show", "a{b}c"))))
      waiter:kill("TERM")
      assert.same({ "exit", 143 }, { waiter:wait(PATIENCE) })
    end)

    it("measures hold and wait times by the server's clock", function()
      acquire("k")
      local seconds, us = unpack(server:cli("TIME"))
      local function ago(span) return ("%d%06d"):format(seconds - span, us - us % 8) end
      local function member(number) return crowd.member("00000000-0000-8000-8000-000000000000", number) end
      server:cli("SET", "redisson_lock_token:{k}", ago(7860))
      server:cli("ZADD", crowd.queue_of "k", ago(250), member(1), ago(125), member(2),
        ("%.3f"):format(ago(65) / 1024), member(3))
      local _, output = run("show", "k")
      assert.matches("\nheld +for 2 h 11 min\n", output)
      assert.matches("\n     1 +[%x-]+:3, for at least 1 min %d+ s\n     2 +[%x-]+:1, for 4 min %d+ s\n"
        .. "     3 +[%x-]+:2, for 2 min %d+ s\n$", output)
      output = select(2, run("show", "--json", "k"))
      assert.matches('"held_for":78%d%d[%d.]*,.*"waits":2[56]%d[%d.]*,', output)
      assert.matches('{"owner":"[%x-]+:3","waits":[67]%d[%d.]*,"at_least":true}', output)
      assert.matches('{"owner":"[%x-]+:1","waits":2[56]%d[%d.]*}', output)
      output = select(2, run("ls"))
      assert.matches("\nk +[^\n]+ 2 h 11 min +%S+ s +%d+ +3 +4 min %d+ s\n$", output)
      server:cli("DEL", crowd.queue_of "k")
    end)

    it("lists the waiters of a fair lock, and break notifies the first of them", function()
      local lock = client:fair_lock("k")
      assert(lock:acquire(0))
      local store = redis.start()
      local waiter = process.lua { file = "spec/support/crowd_worker.lua",
        args = { server:url(), store.path, "k", "waiter", "kind=fair", "grant_lease=" .. GRANT } }
      assert(process.wait_until(function() return lock:info().waiters == 1 end, PATIENCE))
      assert(process.wait_until(function()
        return #server:cli("KEYS", "holdfast_client:*") == 2
      end, PATIENCE))
      local code, output = run("show", "k")
      assert.equal(0, code)
      assert.matches("\nstate +held\n", output)
      assert.matches("\nwaiters +1\n +1 +%S+ pid " .. waiter.pid .. "\n$", output)
      local from = process.now()
      assert.equal(0, (run("break", "--yes", "k")))
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) }, waiter:output())
      assert.is_true(process.now() - from < GRANT / 2)
      assert.is_nil((lock:release()))
      store:stop()
    end)

    it("lists the first 50 waiters, and says that there are more", function()
      server:cli("HSET", "k", "b983c153-7421-469a-addb-44fb92259a1b:1", 1)
      server:cli("PEXPIRE", "k", 60000)
      for _, count in ipairs { 50, 51 } do
        for i = server:cli("LLEN", "redisson_lock_queue:{k}") + 1, count do
          local owner = ("b983c153-7421-469a-addb-%012d:1"):format(i)
          server:cli("RPUSH", "redisson_lock_queue:{k}", owner)
          server:cli("ZADD", "redisson_lock_timeout:{k}", 4e12, owner)
        end
        local _, output = run("show", "k")
        assert.matches("\nwaiters  " .. count .. "\n", output)
        assert.equal(50, select(2, output:gsub("\n *%d+ +b983c153%-7421%-469a%-addb%-0", "")))
        assert.equal(count > 50, output:find("…", 1, true) ~= nil)
      end
      server:cli("DEL", "k", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}")
    end)

    it("omits queue entries that are not waiters", function()
      acquire("k")
      local uuid, numbers = "b983c153-7421-469a-addb-44fb92259a1b", { "1", "2", "3" }
      server:cli("ZADD", "holdfast_queue:{k}", -5, "1f 0 0 0 0", 0, "1l" .. uuid .. ":1:7", 1, "1l" .. uuid .. ":2:8",
        2, "1l" .. uuid .. ":3:9")
      local _, output = run("show", "k")
      assert.matches("\n +1 +" .. uuid:gsub("%-", "%%-") .. ":" .. numbers[2] .. ", for [^\n]+\n +2 +"
        .. uuid:gsub("%-", "%%-") .. ":" .. numbers[3] .. ", for [^\n]+\n$", output)
      assert.is_nil(output:find(uuid .. ":1\n", 1, true))
      server:cli("DEL", "holdfast_queue:{k}")
    end)

    it("exits with 1 for a free lock", function()
      local code, output = run("show", "k")
      assert.equal(1, code)
      assert.matches("state +free\n", output)
    end)

    it("exits with 73 for a key that is not a lock", function()
      server:cli("RPUSH", "list", 1)
      assert.equal(73, (run("show", "list")))
    end)

    it("exits with 73 for a hash that is not a lock, and says why", function()
      server:cli("HSET", "user", "name", "bob", "age", 5)
      server:cli("HSET", "visits", "today", 5)
      server:cli("HSET", "one", "name", "bob")
      server:cli("EXPIRE", "one", 60)
      local why = { user = "it has 2 fields", visits = "it has no TTL",
        one = "it does not contain a hold count" }
      for key, text in pairs(why) do
        local expected = ('holdfast show: "%s" holds a hash that is not a lock: %s\n'):format(key,
          text)
        assert.same({ 73, expected }, { run("show", key) })
      end
    end)

    it("reports a lock as free if it is released while show reads it", function()
      acquire("k")
      local core, locks = require "holdfast.core", require "holdfast.command.locks"
      local real = core.client.command
      finally(function() core.client.command = real end)
      core.client.command = function(c, words, ...)
        if words[1] == "HLEN" then server:cli("DEL", "k") end
        return real(c, words, ...)
      end
      assert(locks.inspect(client, "k"))
      assert.is_false(assert(locks.inspect(client, "k")).held)
    end)

    it("recognizes a mutex", function()
      keep(client:mutex("m"))
      assert.matches("state +held, a mutex\n", select(2, run("show", "m")))
    end)

    it("does not take another program's string for a mutex", function()
      server:cli("SET", "theirs", "hello")
      assert.matches("state +a string: another program's lock", select(2, run("show", "theirs")))
      assert.matches('"mutex":false.*"kind":"string"', select(2, run("show", "--json", "theirs")))
    end)

    it("run suggests a fix if the key holds a string or another kind of lock", function()
      server:cli("SET", "theirs", "hello")
      acquire("plain")
      for _, words in ipairs {
        { "run", "-n", "theirs", "--", "true" }, { "run", "-n", "--shared", "plain", "--", "true" },
      } do
        local code, output = run((table.unpack or unpack)(words))
        assert.equal(73, code)
        assert.matches("; use another KEY, or the same --shared, --exclusive or --permits in every run with this KEY\n",
          output, 1, true)
        assert.is_nil(output:find("client:", 1, true), output)
      end
    end)
  end)

  describe("break", function()
    it("without a terminal fails instead of asking for confirmation, and changes nothing", function()
      acquire("k")
      local code, output = run("break", "k")
      assert.equal(64, code)
      assert.matches("^holdfast break: cannot ask[^\n]+\n$", output)
      assert.equal(1, server:cli("EXISTS", "k"))
    end)

    it("says for how long the old holder may keep running", function()
      acquire("k")
      local words = table.concat(command.words("break", "--yes", "k"), "' '")
      local child = process.start { "script", "-qec", "'" .. words .. "'", "/dev/null",
        env = command.environment(server) }
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      assert.matches("it keeps running until its next renewal %(for at most %d+ s%), alongside the next holder\r\nk: broken",
        child:output())
    end)

    it("asks for confirmation on a terminal, and breaks the lock only if the answer is yes", function()
      local function take()
        server:cli("HSET", "k", "b983c153-7421-469a-addb-44fb92259a1b:1", 1)
        server:cli("PEXPIRE", "k", 60000)
      end
      take()
      local words = table.concat(command.words("break", "k"), "' '")
      -- `script` types the text on a terminal, then ^D.
      local function answer(text)
        local child = process.start { "sh", "-c", ("printf '%s' | script -qec \"'%s'\" /dev/null"):format(
          text, words), env = command.environment(server) }
        local _, code = child:wait(PATIENCE)
        assert.matches("Break the lock%? %[y/N%]", child:output())
        return code
      end
      for _, no in ipairs { "\\n", "n\\n", "no\\n", "yep\\n", "yesno\\n", "ny\\n", "e\\n", "" } do
        assert.equal(1, answer(no), no)
        assert.equal(1, server:cli("EXISTS", "k"), no)
      end
      for _, yes in ipairs { "y\\n", "YES\\n", " Ye \\n", "\\tyes\\n" } do
        assert.equal(0, answer(yes), yes)
        assert.equal(0, server:cli("EXISTS", "k"), yes)
        take()
      end
    end)

    it("asks a different question for permits, a latch, a finished job and a lock without a TTL", function()
      local uuid = "b983c153-7421-469a-addb-44fb92259a1b:1"
      local function answer(key, text, option)
        local words = table.concat(command.words("break", option or "--", key), "' '")
        local child = process.start { "sh", "-c", ("printf '%s\\n' | script -qec \"'%s'\" /dev/null"):format(
          text, words), env = command.environment(server) }
        local _, code = child:wait(PATIENCE)
        return code, child:output()
      end
      local permit = assert(client:semaphore("pool", { permits = 3 }):acquire(2))
      assert(client:latch("gate"):set(2))
      local waiter = command.start(server, { "latch", "wait", "gate" })
      assert(process.wait_until(function()
        return select(2, run("show", "gate")):find("waiters  1", 1, true)
      end, PATIENCE))
      assert.equal(0, (run("run", "--idempotent", "1h", "job", "--", "true")))
      server:cli("SET", "endless", uuid)
      server:cli("SET", "number", 7)
      for _, case in ipairs {
        { "pool", '2 of 3 permits of "pool" are taken; [^\r\n]*Take them back%? %[y/N%]', ": broken" },
        { "gate", 'The latch "gate" still has a count of 2; [^\r\n]*Open it%? %[y/N%]', ": broken" },
        { "job", 'The job "job" counts as done for another 3[56]%d%d%.%d s%. Let it run again%? %[y/N%]', ": may run again" },
        { "endless", 'The lock "endless" is held by ' .. uuid:gsub("%-", "%%-")
          .. "; the holder would keep running until its next renewal %(possibly forever%), alongside", ": broken" },
        { "number", 'The lock "number" is held by 7; ', ": broken", "--mutex" },
      } do
        local key = case[1]
        local before = server:cli("DUMP", key == "job" and "holdfast_once:job" or key)
        local code, output = answer(key, "n", case[4])
        assert.equal(1, code, output)
        assert.matches(case[2], output)
        assert.is_nil(output:find(key .. case[3], 1, true))
        assert.same(before, server:cli("DUMP", key == "job" and "holdfast_once:job" or key))
        code, output = answer(key, "y", case[4])
        assert.equal(0, code, output)
        assert.matches(key .. case[3], output, 1, true)
      end
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
      assert.equal("3", server:cli("GET", "pool"))
      assert.equal("lost", select(3, permit:release()))
    end)

    it("--yes frees the lock for its waiters", function()
      acquire("k")
      local waiter = command.start(server, { "run", "k", "--", "echo", "ran" })
      assert(process.wait_until(function()
        return client:lock("k"):info().waiters == 1
      end, PATIENCE))
      assert.same({ 0, "k: broken\n" }, { run("break", "--yes", "k") })
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
      assert.same({ 1, "k: was free\n" }, { run("break", "-y", "k") })
    end)
  end)

  describe("break", function()
    it("refuses keys that are not locks", function()
      server:cli("HSET", "user", "name", "bob", "age", 5)
      server:cli("HSET", "visits", "today", 5)
      server:cli("HSET", "today", "visits", 5)
      server:cli("EXPIRE", "today", 60)
      server:cli("SET", "counter", 5)
      server:cli("SET", "session", ("x"):rep(40), "EX", 60)
      server:cli("RPUSH", "list", 1)
      for _, key in ipairs { "user", "visits", "today", "counter", "session", "list" } do
        local code, output = run("break", "--yes", key)
        assert.equal(73, code, key)
        assert.matches("^holdfast break: [^\n]+\n$", output)
        assert.equal(1, server:cli("EXISTS", key))
      end
      assert.matches('"counter" holds a string that is not a lock: .*%-%-mutex',
        (select(2, run("break", "-y", "counter"))))
    end)

    it("gives the reason if the server refuses to change the key", function()
      acquire("k")
      local permit = assert(client:semaphore("pool", { permits = 2 }):acquire(1))
      assert.equal(0, (run("run", "--idempotent", "1h", "job", "--", "true")))
      server:cli("ACL", "SETUSER", "clerk", "on", ">x", "~*", "&*", "+@all", "-del", "-unlink", "-zadd")
      for _, key in ipairs { "k", "pool", "job" } do
        local code, output = run("break", "--yes", "--url", "unix://clerk:x@" .. server.path, key)
        assert.equal(77, code, output)
        assert.matches("^holdfast break: [^\n]*cannot ", output)
        assert.is_nil(output:find("was free", 1, true))
      end
      server:cli("ACL", "DELUSER", "clerk")
      assert.equal(1, server:cli("EXISTS", "k"))
      assert.equal(79, (run("run", "--idempotent", "1h", "job", "--", "true")))
      assert(permit:release())
    end)

    it("frees locks held by other libraries", function()
      acquire("named", { owner = "somebody" })
      server:cli("HSET", "java", "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33", 2)
      server:cli("PEXPIRE", "java", 60000)
      server:cli("SET", "redis-py", "c0ffee", "PX", 60000)
      keep(client:mutex("m"))
      for _, key in ipairs { "named", "java", "m" } do
        assert.same({ 0, key .. ": broken\n" }, { run("break", "-y", key) })
      end
      assert.same({ 0, "redis-py: broken\n" }, { run("break", "-y", "--mutex", "redis-py") })
    end)
  end)

  describe("the record of an idempotent job", function()
    local function once(key) return (run("run", "--idempotent", "1h", key, "--", "true")) end

    it("is listed by ls and show", function()
      assert.equal(0, once("jobs:a"))
      local code, output = run("show", "jobs:a")
      assert.equal(1, code)
      assert.matches("state +free\ndone +for 3[56]%d%d%.%d s more\n", output)
      assert.matches('"held":false,.*"done_ttl":3[56]',
        (select(2, run("show", "--json", "jobs:a"))))
      acquire("jobs:a")
      acquire("jobs:b")
      for _, words in ipairs { { "ls" }, { "ls", "jobs:*" }, { "ls", "*jobs*" } } do
        code, output = run((table.unpack or unpack)(words))
        assert.equal(0, code)
        assert.matches("^KEY[^\n]+\njobs:a +[^\n]+\njobs:a +done +%- +%- +3[56]%d%d%.%d s +%- +%- +%-\njobs:b [^\n]+\n$",
          output)
      end
      assert.matches('{"key":"jobs:a","held":false,"done":true,"mutex":false,"kind":"record","waiters":0,"done_ttl":3',
        (select(2, run("ls", "--json"))), 1, true)
      assert.same({ 0, "" }, { run("ls", "other*") })
      assert.matches("^2 locks", (select(2, run("top", "--interval", "0.1"))))
    end)

    it("is deleted by break, after which the job runs again", function()
      assert.equal(0, once("jobs:a"))
      assert.equal(79, once("jobs:a"))
      assert.same({ 0, "jobs:a: may run again\n" }, { run("break", "--yes", "jobs:a") })
      assert.same({ 1, "jobs:a: was free\n" }, { run("break", "--yes", "jobs:a") })
      assert.equal(0, once("jobs:a"))
      acquire("jobs:a")
      assert.same({ 0, "jobs:a: broken\n" }, { run("break", "--yes", "jobs:a") })
      assert.equal(79, once("jobs:a"))
    end)

    it("is shown as a held lock while the job is running", function()
      for _, fingerprint in ipairs { false, "a" } do
        client:idempotent("k", { fingerprint = fingerprint or nil, delete_key = true }, function()
          local code, output = run("ls")
          assert.equal(0, code)
          assert.matches("\nk +%S", output)
          code, output = run("show", "k")
          assert.equal(0, code, output)
        end)
      end
    end)

    it("is not deleted by break while the job is running", function()
      local records = require "holdfast.command.records"
      local child = hold_by_command("--idempotent", "60", "k", "--", "sh", "-c",
        "echo ready; exec sleep 60")
      assert.is_nil(records.ttl(client, "k"))
      assert.is_false(records.forget(client, "k"))
      assert.equal(1, server:cli("EXISTS", "holdfast_once:k"))
      child:kill("TERM")
      assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    end)
  end)

  describe("output", function()
    it("that cannot be written makes each verb exit with 74", function()
      local latch = client:latch "parts"
      assert(latch:set(9))
      keep(client:lock "k")
      for _, words in ipairs { "ls", "ls --json", "show k", "top --interval 0.1", "ping", "--version",
        "show --help", "latch count parts", "latch down parts", "deadlocks --all" } do
        local script = command.shell_prelude(server) .. "\nholdfast " .. words
        local child = command.other { "sh", "-c", script .. " >/dev/full" }
        local expected = words:find "deadlocks" and 0 or 74 -- `deadlocks` prints nothing
        assert.same({ "exit", expected }, { child:wait(PATIENCE) }, words)
        assert.matches(expected == 74 and "^holdfast: cannot write to standard output: [^\n]+\n$" or "^$",
          child:output())
        child = command.other { "sh", "-c", script .. " >&-" }
        assert.same({ "exit", expected }, { child:wait(PATIENCE) }, words)
        child = command.other { "sh", "-c", script .. " | true" }
        assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
        assert.equal("", child:output())
      end
      assert(latch:delete())
    end)

    it("that says no and cannot be written makes the verb exit with 74, but an error keeps its own code", function()
      for words, code in pairs { ["show free"] = 74, ["break --yes free"] = 74,
        ["show --url unix:///no/such.sock k"] = 69, ["show a b"] = 64 } do
        local child = command.other { "sh", "-c", command.shell_prelude(server) .. "\nholdfast "
          .. words .. " >/dev/full" }
        assert.same({ "exit", code }, { child:wait(PATIENCE) }, words)
      end
    end)

    it("with --json reports an error as one line of JSON, with the time in UTC", function()
      local before = os.time()
      local code, text = command.run(server, { "ls", "--json", "a", "b", env = { TZ = "XXX-7" } })
      assert.equal(64, code)
      local time = text:match('^{"event":"error","time":"([%d:T-]+)%.%d%d%dZ",'
        .. '"message":"unexpected argument \\"b\\"","code":"usage","exit":64}\n$')
      assert.is_truthy(time, text)
      assert.is_true(time >= os.date("!%Y-%m-%dT%H:%M:%S", before))
      assert.is_true(time <= os.date("!%Y-%m-%dT%H:%M:%S"))
      code, text = run("ls", "a", "b")
      assert.same({ 64, 'holdfast ls: unexpected argument "b"\nusage: holdfast ls [options] [PATTERN]\n' },
        { code, text })
      assert.same({ 0, "" }, { run("ls", "--", "-a*") })
    end)

    it("escapes control characters in a client's name", function()
      local uuid = "11111111-2222-8333-8444-555555555555"
      server:cli("HSET", "k", uuid .. ":1", 1)
      server:cli("PEXPIRE", "k", 60000)
      server:cli("SET", "holdfast_client:" .. uuid, "host 1 x\27[31my", "PX", 60000)
      for _, words in ipairs { { "ls" }, { "top", "--interval", "0.1" } } do
        assert.matches("host pid 1 x\\x1b[31my", select(2, run((table.unpack or unpack)(words))), 1,
          true)
      end
    end)
  end)

  describe("ping", function()
    local with_file = settings_files()

    it("prints how long the server took to reply", function()
      local code, output = run("ping")
      assert.equal(0, code)
      assert.matches("^answered in [%d.]+ ms %(first answer: [%d.]+ ms%)\n$", output)
      code, output = run("ping", "--url", "unix:///no/such.sock")
      assert.equal(69, code)
      assert.equal(1, select(2, output:gsub("\n", "")))
    end)

    it("waits for a reply as long as the settings file allows", function()
      server:kill("STOP")
      finally(function() server:kill("CONT") end)
      local patient = command.start(server, { "ping", env = with_file "command_timeout = 1m" })
      local usual = command.start(server, { "ping", env = with_file "" })
      assert.same({ "exit", 69 }, { usual:wait(PATIENCE) })
      assert.is_nil((patient:status()))
      server:kill("CONT")
      assert.same({ "exit", 0 }, { patient:wait(PATIENCE) })
      local ms, first = patient:output():match("^answered in ([%d.]+) ms %(first answer: ([%d.]+) ms%)\n$")
      assert.is_true(tonumber(first) > 1000 and tonumber(ms) < tonumber(first), patient:output())
    end)

    it("names the valid range if the timeout in the settings file is wrong", function()
      for _, name in ipairs { "connect_timeout", "command_timeout" } do
        for _, wrong in ipairs { "0", "2h", "soon" } do
          local child = command.start(server,
            { "ping", env = with_file(name .. " = " .. wrong) })
          assert.same({ "exit", 64 }, { child:wait(PATIENCE) })
          assert.matches(name .. " must be a duration from 0.001 s to 1h", child:output(), 1, true)
        end
      end
    end)
  end)

  describe("bench", function()
    it("prints a table, and leaves no key for longer than a minute", function()
      local code, output = run("bench", "--cycles", "20", "--workers", "2")
      assert.equal(0, code, output)
      assert.matches("uncontended +[%d.]+ +%d+\nhand%-off, 2 processes +[%d.]+ +%d+\n$", output)
      for _, key in ipairs(server:cli("KEYS", "*")) do
        assert.is_true(server:cli("TTL", key) <= 62) -- the token_ttl is 60 s
      end
    end)

    -- Runs a bench with `workers` workers, all of which end with the exit code `exit`.
    -- → the exit code, the output, the words and the variables of each worker
    local function bench(cycles, workers, exit)
      local child = process.lua {
        args = { command.program, sys.interpreter(), exit, cycles, workers },
        env = { HOLDFAST_URL = server:url():gsub("unix://", "unix://default:secret@"), HOLDFAST_SERVERS = false,
          HOLDFAST_CONFIG = "/dev/null" },
        code = [[
          local process = require "holdfast.process"
          local spawn, own = process.spawn, arg
          arg = { [0] = own[1], [-1] = own[2] }
          process.spawn = function(words, environment, terminal)
            print("worker", table.concat(words, " "), table.concat(environment, " "))
            local all = { "sh", "-c", '"$@"; exit ' .. own[3], "sh" }
            for _, word in ipairs(words) do all[#all + 1] = word end
            return spawn(all, environment, terminal)
          end
          os.exit(require("holdfast.command").main { "bench", "--cycles", own[4], "--workers", own[5] })
        ]],
      }
      local _, code = child:wait(PATIENCE)
      return code, child:output()
    end

    it("prints the time of one cycle and one hand-off, and hides the password from other users", function()
      local from = process.now()
      local code, output = bench(50, 2, 0)
      local most = (process.now() - from) * 1e6
      assert.equal(0, code, output)
      local count = 0
      for microseconds, per_second in output:gmatch " +([%d.]+) +(%d+)\n" do
        count = count + 1
        assert.is_true(microseconds * (count == 1 and 50 or 100) < most, output)
        assert.is_true(math.abs(microseconds * per_second / 1e6 - 1) < 0.02, output)
      end
      assert.equal(2, count, output)
      for words, variables in output:gmatch "worker\t([^\t]+)\t([^\n]+)\n" do
        count = count + 1
        assert.matches(" bench %-%-worker holdfast_bench:[%x-]+ %-%-cycles 50$", words)
        assert.is_nil(words:find("secret", 1, true))
        assert.matches("^HOLDFAST_URL=unix://default:secret@%S+ HOLDFAST_SERVERS=$", variables)
      end
      assert.equal(4, count, output)
    end)

    it("fails if one of its workers fails", function()
      local code, output = bench(5, 1, 3)
      assert.equal(70, code, output)
      assert.matches("holdfast bench: a worker failed\n", output)
    end)

    it("measures the server of --url, in its workers too", function()
      local code, output = command.run(nil, { "bench", "--cycles", "2", "--workers", "1", "--url",
        server:url(), env = { HOLDFAST_SERVERS = "unix:///no/a.sock,unix:///no/b.sock" } })
      assert.equal(0, code, output)
    end)
  end)

  describe("help", function()
    it("of every verb has usage, grouped options and three examples", function()
      local code, output = run("--help")
      assert.equal(0, code)
      for verb in output:gmatch("\n  (%l+) ") do
        local verb_code, text = run(verb, "--help")
        assert.equal(0, verb_code)
        assert.matches("^Usage: holdfast " .. verb, text)
        assert.matches("\n\n%u%l+:\n +%-", text, 1, verb) -- the options are in groups
        local examples = assert(text:match("\n\nExamples:\n(.*)$"), verb)
        assert.equal(3, select(2, examples:gsub("[^\n]*holdfast [^\n]*\n", "")), verb)
        for line in (output .. text):gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
      end
    end)

    it("names the default server, $HOLDFAST_URL and every form of URL", function()
      for _, verb in ipairs { "run", "top", false } do
        local text = select(2, run(verb or "--help", verb and "--help" or nil)):gsub("%s+", " ")
        for _, what in ipairs { "redis://127.0.0.1:6379", "$HOLDFAST_URL", "redis://[user:password@]host[:port][/db]",
          "unix:///path", "redis+sentinel://host,host/master", "redis+cluster://host,host", "rediss ", "valkey " } do
          assert.truthy(text:find(what, 1, true), ("%s is not in the help of %s"):format(what, verb or "all"))
        end
      end
    end)

    it("lists the exit codes that the verb can return", function()
      local function listed(verb)
        local _, text = run(verb, "--help")
        local heading, rows = text:match("\n(Exit codes[^\n]*):\n(.-)\n\n")
        local codes = {}
        for code in ("\n" .. rows):gmatch("\n  (%d+)") do codes[#codes + 1] = code end
        return heading .. ": " .. table.concat(codes, " ")
      end
      local own = "Exit codes, besides the command's own: "
      assert.equal(own .. "1 64 69 70 73 75 76 77 79 124 126 128", listed "run")
      assert.equal(own .. "64 73 75 77 126 128", listed "lead")
      assert.equal("Exit codes: 1 64 69 70 73 74 75 76 77 128", listed "hold")
      assert.equal("Exit codes: 1 64 69 70 73 76 77 128", listed "wait")
      assert.equal("Exit codes: 1 64 69 70 73 74 77 128", listed "latch")
    end)

    it("uses the documented exit code for each failure and signal", function()
      local exits = require "holdfast.command.exits"
      for code, exit in pairs { busy = 1, usage = 64, deadlock = 64, unreachable = 69, server = 70,
        conflict = 73, lost = 75, no_quorum = 76, denied = 77, duplicate = 79, unsupported = 70 } do
        assert.equal(exit, exits.of(code), code)
      end
      for signal, exit in pairs { HUP = 129, INT = 130, QUIT = 131, USR1 = 138, USR2 = 140,
        TERM = 143, [9] = 137 } do
        assert.equal(exit, exits.of_signal(signal), signal)
      end
    end)

    it("leaves a --help after -- to the job", function()
      assert.same({ 0, "--help\n" }, { run("run", "k", "--", "printf", "%s\\n", "--help") })
    end)

    it("prints the version with --version", function()
      local text = "holdfast " .. holdfast._VERSION .. "\n"
      assert.same({ 0, text }, { run("--version") })
      assert.same({ 0, text }, { run("-V") })
    end)

    it("is the same from -h, --help and `help VERB`", function()
      local _, overview = run("--help")
      assert.same({ 0, overview }, { run("-h") })
      assert.same({ 0, overview }, { run("help") })
      local _, text = run("run", "--help")
      assert.matches("75          the lock was lost", text, 1, true)
      assert.same({ 0, text }, { run("run", "-h") })
      assert.same({ 0, text }, { run("help", "run") })
      assert.is_nil(select(2, run("bench", "--help")):find("--worker ", 1, true))
    end)
  end)
end)

-- ---- as it is installed ----

describe("the installed command", function()
  local directory

  local function shell(script)
    local child = command.other { "sh", "-ec", script }
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
    return child:output()
  end

  before_each(function()
    directory = process.directory()
    local version = _VERSION:match("%d%.%d")
    shell(([[
      cd %s && mkdir -p "a b/bin" "a b/share/lua/%s" "a b/lib/lua/%s" links
      ln -s "$OLDPWD/lua/holdfast" "a b/share/lua/%s/holdfast"
      ln -s "$OLDPWD/%s/%s/holdfast" "a b/lib/lua/%s/holdfast"
      cp "$OLDPWD/bin/holdfast" "a b/bin/holdfast"
    ]]):format(directory, version, version, version, process.build, process.flavour, version))
  end)
  after_each(function() process.remove(directory) end)

  local function version_by(path)
    return shell(("cd %s && unset LUA_PATH LUA_CPATH LUA_INIT && '%s' %s --version"):format(
      directory, sys.interpreter(), path))
  end

  it("finds its modules relative to its own path", function()
    local expected = "holdfast " .. holdfast._VERSION .. "\n"
    assert.equal(expected, version_by("'a b/bin/holdfast'"))
    assert.equal(expected, version_by(directory .. "/'a b/bin/holdfast'"))
    assert.equal(expected, shell(
      ("cd '%s/a b/bin' && unset LUA_PATH LUA_CPATH LUA_INIT && '%s' holdfast --version"):format(
        directory, sys.interpreter())))
  end)

  it("finds its modules in a built source tree", function()
    local root = shell("pwd"):match("[^\n]+")
    local expected = "holdfast " .. holdfast._VERSION .. "\n"
    if process.build ~= "./build" then return end
    assert.equal(expected, version_by("'" .. root .. "/bin/holdfast'"))
    assert.equal(expected, shell(("unset LUA_PATH LUA_CPATH LUA_INIT && '%s' bin/holdfast --version"):format(
      sys.interpreter())))
  end)

  it("does not run LUA_INIT, whose failure would look like a busy lock", function()
    if process.build ~= "./build" or process.flavour ~= "lua5.4" then return end
    local init = "LUA_INIT=@/nonexistent.lua LUA_INIT_5_4=@/nonexistent.lua "
    assert.equal("holdfast " .. holdfast._VERSION .. "\n", shell(init .. "bin/holdfast --version"))
  end)

  it("says what to do if its modules are missing", function()
    local child = command.other { "sh", "-c", ([[
      cd %s && unset LUA_PATH LUA_CPATH LUA_INIT && mkdir -p bin && cp "$OLDPWD/bin/holdfast" bin
      '%s' bin/holdfast --version
    ]]):format(directory, sys.interpreter()) }
    local how, code = child:wait(PATIENCE)
    assert.same({ "exit", 70 }, { how, code })
    assert.matches("^holdfast: cannot find holdfast%.process for Lua %d%.%d beside bin/holdfast: [^\n]+make install[^\n]+\n$",
      child:output())
  end)

  it("runs no code from the current directory, LUA_PATH or LUA_CPATH", function()
    local evil = directory .. "/evil"
    shell(([[
      mkdir -p %s/holdfast/command %s/luarocks && cd %s
      echo 'io.stderr:write("this was run: ", ...)' >holdfast.lua
      for file in holdfast/init holdfast/core holdfast/process holdfast/version holdfast/command \
          holdfast/command/init holdfast/command/ls luarocks/loader; do
        cp holdfast.lua $file.lua
      done
      cp holdfast.lua holdfast/core.so && cp holdfast.lua holdfast/process.so
    ]]):format(evil, evil, evil))
    local version = _VERSION:match("%d%.%d"):gsub("%.", "_")
    local unset, sources = "unset LUA_PATH LUA_CPATH LUA_INIT; ", shell("pwd"):match("[^\n]+")
    local paths = ("LUA_PATH='%s/?.lua;%s/?/init.lua' LUA_CPATH=%s/?.so "):format(evil, evil, evil)
    local newer = paths:gsub("(LUA_C?PATH)", "%1_" .. version)
    local places = { "../a b/bin/holdfast", "../links/holdfast" }
    if process.build == "./build" then places[3] = sources .. "/bin/holdfast" end
    shell(("ln -s '../a b/bin/holdfast' %s/links/holdfast"):format(directory))
    for _, place in ipairs(places) do
      for _, environment in ipairs { "", paths, newer } do
        assert.equal("holdfast " .. holdfast._VERSION .. "\n", shell(("cd %s; %s%s'%s' '%s' --version"):format(
          evil, unset, environment, sys.interpreter(), place)))
      end
    end
  end)

  it("finds its modules through symbolic links", function()
    shell(("cd %s/links && ln -s '../a b/bin/holdfast' 'it''s' && ln -s it''s holdfast"):format(directory))
    assert.equal("holdfast " .. holdfast._VERSION .. "\n", version_by("links/holdfast"))
    assert.equal("holdfast " .. holdfast._VERSION .. "\n", version_by("links/it''s"))
  end)
end)

-- ---- documents ----

describe("the documents of the command", function()
  local VERBS = { "run", "lead", "hold", "wait", "latch", "ls", "show", "top", "deadlocks", "doctor", "break",
    "ping", "bench", "acl" }
  local INTERNAL = { worker = true }

  it("list every exit code", function()
    local man, page = read("docs/holdfast.1"), read("docs/reference/command.md")
    for name, code in pairs(require "holdfast.command.exits") do
      if type(code) == "number" and code > 0 then
        assert.matches("\n%.It [%d ,]*" .. code .. "[ ,\n]", man, 1, name)
        assert.matches("\n| [%d, ]*" .. code .. "[ ,]", page, 1, name)
      end
    end
  end)

  it("list every option, as do the completions", function()
    local man, zsh = read("docs/holdfast.1"), read("completions/_holdfast")
    for _, verb in ipairs(VERBS) do
      for _, option in ipairs(require("holdfast.command." .. verb).options) do
        local name = option[1]:gsub("%-", "%%-")
        if not INTERNAL[option[1]] then
          assert.matches("%-" .. name .. "[ \n]", man)
          assert.matches("%-%-" .. name .. "[=%[}]", zsh)
        end
      end
    end
  end)

  it("list no option that does not exist", function()
    local known = { help = true, version = true, timeout = true } -- --timeout is refused
    for _, verb in ipairs(VERBS) do
      for _, option in ipairs(require("holdfast.command." .. verb).options) do
        known[option[1]] = true
        for _, alias in ipairs(option.aliases or {}) do known[alias] = true end
      end
    end
    local man = read("docs/holdfast.1"):gsub("%.Bl[^\n]*", "")
    for name in man:gmatch("%f[%-%w]%-(%l%l[%l-]*)") do
      assert.is_true(known[name], "docs/holdfast.1: " .. name)
    end
    for path, text in pairs { ["docs/reference/command.md"] = read("docs/reference/command.md"),
        ["docs/reference/job.md"] = read("docs/reference/job.md"), ["docs/how-to/cron.md"] = read("docs/how-to/cron.md"),
        ["completions/_holdfast"] = read("completions/_holdfast"),
        ["completions/holdfast.bash"] = read("completions/holdfast.bash") } do
      for name in text:gmatch("%f[%-%w]%-%-(%l[%l-]*)") do
        assert.is_true(known[name], path .. ": " .. name)
      end
    end
  end)

  it("are accepted by mandoc", function()
    if not process.succeeds "command -v mandoc >/dev/null" then return pending("there is no mandoc") end
    local lint = command.other { "mandoc", "-Tlint", "-Wwarning", "docs/holdfast.1" }
    assert.same({ "exit", 0 }, { lint:wait(PATIENCE) })
  end)

  it("include completions that bash and zsh can parse", function()
    for shell, path in pairs { bash = "completions/holdfast.bash",
        zsh = "completions/_holdfast" } do
      if process.succeeds("command -v " .. shell .. " >/dev/null") then
        local child = command.other { shell, "-n", path }
        assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      end
    end
  end)

  it("include completions of verbs, options and keys in bash", function()
    local server = redis.start()
    finally(function() server:stop() end)
    local client = holdfast.new(server:url())
    local lock = assert(client:lock("jobs:backup"):acquire())
    local script = command.shell_prelude(server) .. [[

      . completions/holdfast.bash
      try() {
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=1000
        _holdfast holdfast "${COMP_WORDS[COMP_CWORD]}"
        echo "<${COMPREPLY[*]}>"
      }
      try holdfast b
      try holdfast run --restart
      try holdfast run --servers
      try holdfast run --se
      try holdfast help ho
      try holdfast run --min
      try holdfast show jo
      try holdfast run -w ""
      try holdfast latch d
      try holdfast latch --q
    ]]
    local child = command.other { "bash", "-c", script }
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    assert.equal("<break bench>\n<--restart-guard>\n<--servers>\n<--servers>\n<hold>\n" ..
      "<--min-hold>\n<jobs:backup>\n<>\n<down delete>\n<--quiet>\n", child:output())
    assert(lock:release())
    client:close()
  end)
end)

-- ---- over TLS ----

describe("over TLS", function()
  local certificates = require "spec.support.certificates"

  local made, server
  local with_file = settings_files()

  setup(function()
    made = certificates.make()
    server = redis.start {
      tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert, clients = "yes" },
    }
  end)
  teardown(function() server:stop() end)

  local function config(...)
    local env = with_file(...)
    env.HOLDFAST_URL = false
    return env
  end

  local function run(words, env)
    words.env = env or { HOLDFAST_URL = server:tls_url() }
    return command.run(server, words)
  end

  -- The verb's words, with the options for the files first.
  local function with_files(name, ...)
    local words = { name, "--ca", made.ca.cert, "--cert=" .. made.client.cert, "--key",
      made.client.key }
    for _, word in ipairs { ... } do words[#words + 1] = word end
    return words
  end

  local function verb(...) return run(with_files(...)) end

  it("every verb presents the client certificate", function()
    local client = holdfast.new(server:url())
    local lock = assert(client:lock("held"):acquire())
    assert.equal(0, (verb "ping"))
    local code, output = verb "ls"
    assert.equal(0, code)
    assert.matches("\nheld ", output)
    code, output = verb("show", "held")
    assert.equal(0, code)
    assert.matches("state +held", output)
    assert.equal(0, (verb "top"))
    assert.equal(0, (verb("bench", "--cycles", "20", "--workers", "2")))
    assert.equal(0, (verb("break", "-y", "held")))
    lock:release()
    client:close()
    code, output = verb("run", "k", "--", "echo", "ran")
    assert.equal(0, code)
    assert.matches("ran", output)
  end)

  it("the settings file names the certificates", function()
    local env = config("url = " .. server:tls_url(), "ca = " .. made.ca.cert, "cert = "
      .. made.client.cert,
      "key = " .. made.client.key)
    assert.equal(0, (run({ "ping" }, env)))
    assert.equal(0, (run({ "run", "k", "--", "true" }, env)))
    assert.equal(69, (run({ "ping", "--ca", made.other_ca.cert }, env)))
  end)

  it("the settings file sets how long the handshake may take", function()
    server:kill("STOP")
    finally(function() server:kill("CONT") end)
    local function ping(...)
      return command.start(nil, { "ping", env = config("url = " .. server:tls_url(),
        "ca = " .. made.ca.cert, "cert = " .. made.client.cert, "key = " .. made.client.key,
        "command_timeout = 1m", ...) })
    end
    local patient, usual = ping "connect_timeout = 1m", ping()
    assert.same({ "exit", 69 }, { usual:wait(PATIENCE) })
    assert.is_nil((patient:status()))
    server:kill("CONT")
    assert.same({ "exit", 0 }, { patient:wait(PATIENCE) })
  end)

  it("certificates in the settings file do not affect a server without TLS", function()
    local env = config("ca = " .. made.ca.cert, "cert = " .. made.client.cert, "key = "
      .. made.client.key)
    assert.equal(0, (run({ "ping", "--url", server:url() }, env)))
  end)

  it("a missing certificate, key or rediss:// is reported", function()
    local code, output = run { "ping", "--ca", made.ca.cert }
    assert.equal(69, code)
    assert.matches("client certificate", output)
    code, output = run { "ping", "--cert", made.client.cert }
    assert.equal(64, code)
    assert.matches("%-%-cert and %-%-key must be used together", output)
    code, output = run({ "ping", "--url", server:url(), "--ca", made.ca.cert })
    assert.equal(64, code)
    assert.matches("%-%-ca, %-%-cert and %-%-key need rediss://", output)
    code, output = run({ "ping", "--key", made.client.key }, config("url = " .. server:tls_url(),
      "cert = " .. made.client.cert, "key = " .. made.client.key))
    assert.equal(64, code)
    assert.matches("%-%-cert and %-%-key must be used together", output)
    code, output = run({ "ping" }, config("url = " .. server:tls_url(), "cert = x"))
    assert.equal(64, code)
    assert.matches("cert and key must be set together in the settings file", output)
  end)

  it("a quorum can mix servers with and without TLS", function()
    local plain = redis.start()
    finally(function() plain:stop() end)
    local servers = table.concat({ server:tls_url(), plain:url() }, ",")
    local code = run(with_files("run", "--servers", servers, "--idempotent", "60", "k", "--",
      "true"), {
      HOLDFAST_URL = false,
    })
    assert.equal(0, code)
    local shown, output = run(with_files("show", "--servers", servers, "k"),
      { HOLDFAST_URL = false })
    assert.matches("done", output)
    assert.equal(1, shown)
  end)
end)

-- ---- on a terminal ----

describe("on a terminal", function()
  if not terminal.is_there() then return pending("there is no tmux") end

  local server, directory, client, shell

  local function screen() return shell:screen() end
  local function sees(pattern) shell:sees(pattern) end
  local function types(...) shell:types(...) end

  -- The job reads the typed line, and prints it. A line that comes while the shell still changes
  -- the terminal's mode is delivered with the next Enter, and may not be echoed.
  local function gets_words()
    local seen, typed = nil, 0
    types("words", "Enter")
    process.wait_until(function()
      seen = screen()
      if seen:find("went on\n+code %d") then return true end
      typed = typed + 1
      if typed % 100 == 0 then types("Enter") end
    end, PATIENCE)
    assert.matches("words\n+went on\n+code 0\n", seen)
  end

  -- The job's own child sleeps: a shell may miss a key that is typed between its fork and its exec.
  local function is_there(name, states)
    local tty = shell:tmux("display", "-p", "-t", "spec", "#{pane_tty}"):match("pts/%d+")
    local list = command.other { "pgrep", "-x", "-r", states, "-t", tty, name }
    return select(2, list:wait(PATIENCE)) == 0
  end

  local function sleeps(name)
    assert(process.wait_until(function() return is_there(name, "S") end, PATIENCE), screen())
  end

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)

  before_each(function()
    server:cli("FLUSHALL")
    client = holdfast.new(server:url())
    directory = process.directory()
    shell = terminal.open(command.shell_prelude(server), 100, 20)
  end)

  after_each(function()
    shell:close()
    client:close()
    process.remove(directory)
  end)

  -- No parent of the group could give it the terminal or continue it.
  for name, job in pairs {
    ["reads the terminal"] = "cat /dev/tty",
    ["reads the terminal again and again"] = "trap '' HUP; while :; do cat /dev/tty; done",
  } do
    it("a job that " .. name .. " ends, with its lock, if no shell can give it the terminal", function()
      types("(holdfast run --grace 0.1 k -c \"" .. job .. "\" &)", "Enter")
      sees("holdfast run: the job waits for the terminal, which no shell is left to give")
      assert(process.wait_until(function() return server:cli("EXISTS", "k") == 0 end, PATIENCE), screen())
    end)
  end

  it("a script gets the terminal back once its job has ended", function()
    types("(holdfast run k -- head -n 1; head -n 1; echo both)", "Enter")
    sleeps("head")
    types("words", "Enter")
    sees("words\nwords\n")
    assert(process.wait_until(function() return server:cli("EXISTS", "k") == 0 end, PATIENCE))
    sleeps("head")
    types("more", "Enter")
    sees("more\nmore\nboth\n")
  end)

  -- The shell would read what is typed before the job runs.
  local READS = "sh -c 'echo rea''dy; head -n 1; echo went on'"

  it("the job can read from the terminal", function()
    types("holdfast run k -- " .. READS .. "; echo code $?", "Enter")
    sleeps("head")
    gets_words()
  end)

  it("Ctrl-C ends the job", function()
    types("holdfast run k -- sh -c 'echo rea''dy; sleep 60'; echo code $?", "Enter")
    sleeps("sleep")
    types("C-c")
    sees("code 130")
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("a job that lost its lock is ended even if `stty tostop` stops background output", function()
    types("stty tostop; holdfast run --lease 9 k -- sleep 60; echo code $?", "Enter")
    sleeps("sleep")
    server:cli("DEL", "k")
    sees("lost the lock.*code 75")
  end)

  it("a job that lost its lock is ended even while Ctrl-S holds back output", function()
    types("holdfast run --lease 9 k -- sleep 60; echo code $?", "Enter")
    sleeps("sleep")
    types("C-s")
    server:cli("DEL", "k")
    assert(process.wait_until(function() return not is_there("sleep", "S,R,D,T") end, PATIENCE))
    types("C-q")
    sees("code 75")
  end)

  it("a job that cannot start gives the terminal back", function()
    types("holdfast run k -- /no/such/command; echo code $?", "Enter")
    sees("cannot start.*code 127")
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("break does not free a lock that changed hands after the user was asked", function()
    server:cli("HSET", "k", "b983c153-7421-469a-addb-44fb92259a1b:1", 1)
    server:cli("PEXPIRE", "k", 60000)
    types("holdfast break k; echo code $?", "Enter")
    sees("b983c153.*Break the lock")
    server:cli("HDEL", "k", "b983c153-7421-469a-addb-44fb92259a1b:1")
    server:cli("HSET", "k", "c983c153-7421-469a-addb-44fb92259a1b:1", 1)
    server:cli("PEXPIRE", "k", 60000)
    types("y", "Enter")
    sees("changed hands.*code 1")
    assert.equal(1, server:cli("EXISTS", "k"))
    types("holdfast break k; echo code $?", "Enter")
    sees("c983c153.*Break the lock")
    server:cli("SET", "redisson_lock_token:{k}", 8) -- the same owner has acquired it again
    types("y", "Enter")
    sees("changed hands.*changed hands.*code 1")
    types("clear; holdfast break k; echo code $?", "Enter")
    sees("^The lock.*c983c153.*Break the lock") -- the earlier question may still be on the screen
    types("y", "Enter")
    sees("k: broken.*code 0")
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("break reports a lock as free if it was released while the user was asked", function()
    server:cli("HSET", "k", "b983c153-7421-469a-addb-44fb92259a1b:1", 1)
    server:cli("PEXPIRE", "k", 60000)
    types("holdfast break k; echo code $?", "Enter")
    sees("b983c153.*Break the lock")
    server:cli("DEL", "k")
    types("y", "Enter")
    sees("k: was free\ncode 1")
  end)

  it("Ctrl-Z stops a run and fg continues it, with its lock still held", function()
    types("holdfast run k -- " .. READS .. "; echo code $?", "Enter")
    sleeps("head")
    types("C-z")
    sees("Stopped")
    assert.equal(1, server:cli("EXISTS", "k"))
    types("fg >/dev/null; echo code $?", "Enter")
    sleeps("head")
    gets_words()
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("Ctrl-Z also stops the job's child processes, even those that ignore TSTP", function()
    local path = directory .. "/pid"
    types(("holdfast run k -c 'trap \"\" TSTP; sleep 60 & echo $! >%s; trap - TSTP; wait'; echo code $?"):format(path),
      "Enter")
    sleeps("sleep")
    types("C-z")
    sees("Stopped")
    local pid = tonumber(read(path))
    assert.truthy(process.wait_until(function()
      return read(("/proc/%d/stat"):format(pid)):find(") T ", 1, true)
    end, PATIENCE))
    types("fg >/dev/null; echo code $?", "Enter")
    sleeps("sleep")
    process.signal(pid, "KILL")
    sees("code 0")
  end)

  it("Ctrl-Z stops a whole pipeline, although only the job has the terminal", function()
    types("holdfast run k -- " .. READS .. " | cat; echo code $?", "Enter")
    sleeps("head")
    types("C-z")
    sees("Stopped")
    types("fg >/dev/null; echo code $?", "Enter")
    sleeps("head")
    gets_words()
  end)

  it("a job stopped for longer than its lease is ended when it is continued", function()
    types("holdfast run --lease 4 k -- sh -c 'echo rea''dy; head -n 1; echo went on'; echo code $?", "Enter")
    sleeps("head")
    types("C-z")
    sees("Stopped")
    assert(process.wait_until(function() return server:cli("EXISTS", "k") == 0 end, PATIENCE))
    types("fg >/dev/null; echo code $?", "Enter")
    sees("lost the lock.*code 75")
  end)

  it("a background job stops when it reads the terminal, and fg gives it the terminal", function()
    types("set -b; holdfast run k -- " .. READS .. " &", "Enter")
    sees("Stopped")
    types("fg >/dev/null; echo code $?", "Enter")
    sleeps("head")
    gets_words()
  end)

  it("a job gets the terminal at its start if its input and output are the terminal", function()
    local file = assert(io.open(directory .. "/place", "w"))
    file:write([[
      set -- $(ps -o tpgid=,pgid= -p $$)
      [ "$1" = "$2" ] && echo in front || echo behind
    ]])
    file:close()
    -- in a pipe, the shell's function would run in its own process
    local line = ("'%s' run k -- sh %s/place"):format(table.concat(command.words(), "' '"), directory)
    for i, case in ipairs { { "", "in front" }, { " | cat", "behind" }, { " </dev/null", "behind" } } do
      types(("clear; %s%s; echo code %d"):format(line, case[1], i), "Enter")
      sees(("\n?%s\ncode %d\n"):format(case[2], i))
    end
  end)

  it("a job in a script or pipeline gets the terminal when it reads", function()
    types("(holdfast run k -- " .. READS .. "; echo code $?) | cat", "Enter")
    sleeps("head")
    gets_words()
  end)

  it("ls and deadlocks say so if they have nothing to list, and break asks for confirmation", function()
    types("holdfast ls; holdfast deadlocks; holdfast ls | wc -c", "Enter")
    sees("\nno locks\nno deadlocks\n0\n")
    types("clear", "Enter")
    local lock = assert(client:lock("k"):acquire())
    types("holdfast break k; echo code $?", "Enter")
    sees("Break the lock%? %[y/N%]")
    types("n", "Enter")
    sees("code 1")
    assert.equal(1, server:cli("EXISTS", "k"))
    types("clear; holdfast break k; echo code $?", "Enter")
    sees("^The lock.*Break the lock%? %[y/N%]")
    types("y", "Enter")
    sees("k: broken\ncode 0")
    assert.is_false(lock:is_locked())
  end)
end)
