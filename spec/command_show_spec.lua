-- holdfast ls and show: the locks, holders and waiters that they name.

local crowd = require "spec.support.crowd"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local PATIENCE, client, comes_to_wait = jobs.PATIENCE, jobs.client, jobs.comes_to_wait
local eventually, exits, gives, hold = jobs.eventually, jobs.exits, jobs.gives, jobs.hold
local keep, output_of, own, run, says = jobs.keep, jobs.output_of, jobs.own, jobs.run, jobs.says
local sees, server, start = jobs.sees, jobs.server, jobs.start
local write_lock = jobs.write_lock
local unpack = table.unpack or unpack

local GRANT = 20 -- seconds between a waiter's rechecks if no message comes

describe("holdfast", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("ls", function()
    it("lists locks, and no other hashes or strings", function()
      hold("one")
      hold("named", { owner = "somebody" })
      server:cli("HSET", "counter", "visits", 7)
      server:cli("EXPIRE", "counter", 60)
      server:cli("HSET", "big", "a", 1, "b", 2)
      server:cli("SET", "text", "x")
      local output = says(0, "^KEY +OWNER +HOLDS +HELD +TTL +TOKEN +WAITERS +WAIT\n", { "ls" })
      assert.matches("\nnamed  somebody +1 +%- +[%d.]+ s +%d+ +0 +%-\none +[^\n]+ 1 +%d+ m?s +[%d.]+ s +%d+ +0 +%-\n$", output)
    end)

    it("prints nothing if there are no locks", function() gives(0, "", { "ls" }) end)

    it("--json prints the locks that match a pattern as JSON", function()
      hold("jobs:a\n\255")
      hold("other")
      local output = output_of { "ls", "--json", "jobs:*" }
      assert.matches('^{"key":"jobs:a\\u000a?\\?n?\\u00ff","held":true,"mutex":false,"owner":"[%x:-]+",.*"holds":1,' ..
        '"held_for":[%d.e-]+,"ttl":[%d.]+,"token":%d+,"waiters":0}\n$', (output:gsub("\\n", "\\u000a")))
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
      for i = 1, 40 do hold("many:" .. i) end
      local monitor = server:monitor()
      local output = output_of { "ls", "many:*" }
      assert.equal(41, select(2, output:gsub("\n", "")))
      assert.equal(0, monitor:count("KEYS"))
      assert.is_true(monitor:count("SCAN") > 1)
      monitor:close()
    end)

    it("lists locks even on servers whose SCAN lacks TYPE", function()
      hold("one")
      local core, locks = require "holdfast.core", require "holdfast.command.locks"
      local real = core.client.command
      finally(function() core.client.command = real end)
      core.client.command = function(c, words)
        if words[7] == "TYPE" then return nil, "ERR syntax error", "server" end
        return real(c, words)
      end
      local list = assert(locks.all(own()))
      assert.equal(1, #list)
    end)

    it("lists mutexes only with --mutex", function()
      keep(own():mutex("m"))
      server:cli("SET", "text", ("x"):rep(40))
      gives(0, "", { "ls" })
      local output = output_of { "ls", "--mutex" }
      assert.matches("\nm +[^\n]+ 1 [^\n]+\n$", output)
      keep(own():mutex("n"))
      assert.matches("^KEY[^\n]+\nn +[^\n]+\n$", output_of { "ls", "--mutex", "n*" })
    end)
  end)

  describe("on several servers", function()
    local servers, list, quorum

    before_each(function()
      local urls
      servers, urls = redis.several(3)
      list, quorum = table.concat(urls, ","), client { servers = urls, mode = "quorum", name = "lua-owner" }
    end)
    after_each(function()
      quorum:close()
      for _, each in ipairs(servers) do each:stop() end
    end)

    local function over(subcommand, ...) return { subcommand, "--servers", list, ... } end

    -- → the output of these words, once the names of a holder in Lua and of a job are published
    local function named(words)
      return eventually(function()
        local code, output = run(words)
        return code == 0 and output:find("lua%-owner") and output:find("nightly") and output
      end)
    end

    it("ls and top name the holders, even while one server is down", function()
      local lock = assert(quorum:lock("from:lua"):acquire())
      local job = start(over("run", "--name", "nightly", "from:job", "--", "sleep", "60"))
      servers[1]:cli("HSET", "from:minority", "b983c153-7421-869a-addb-44fb92259a1b:1", 1)
      servers[1]:cli("PEXPIRE", "from:minority", 60000)
      for _, away in ipairs { false, true } do
        if away then servers[3]:kill("KILL") end
        local output = named(over "ls")
        assert.matches("\nfrom:job +%S+ pid " .. job.pid .. " nightly +1 ", output)
        assert.matches("\nfrom:lua +%S+ pid %d+ lua%-owner +1 +%d+ m?s +[%d.]+ s ", output)
        assert.is_nil(output:find("minority", 1, true))
        assert.equal(3, select(2, output:gsub("\n", "")))
        output = named(over("top", "--interval", "0.1"))
        assert.matches("^2 locks, 0 waiters\n", output)
        assert.is_nil(output:find("minority", 1, true))
      end
      servers[2]:kill("KILL")
      assert.equal(69, (run(over "ls")))
      job:kill("KILL")
      job:wait(PATIENCE)
      lock:release()
    end)
  end)

  describe("show", function()
    it("names the holder and the waiters", function()
      local holder = start { "run", "--name", "nightly job", "k", "-c", "echo ready; exec sleep 60" }
      sees(holder, "ready")
      local waiter = start { "run", "--name", "second", "k", "--", "true" }
      comes_to_wait(1, "k")
      eventually(function() return #server:cli("KEYS", "holdfast_client:*") >= 2 end)
      local output = says(0, "key +k\nstate +held\nowner +[%x:-]+\nwho +%S+ pid " .. holder.pid
        .. " nightly job\n", { "show", "k" })
      assert.matches("\nholds +1\nheld +for %d+ m?s\nttl +[%d.]+ s\ntoken +%d+\nwaiters +1\n", output)
      assert.matches("\n +1 +%S+ pid " .. waiter.pid .. " second, for %d+ m?s\n$", output)
      output = says(0, '"host":"[^"]+","pid":' .. holder.pid .. ',"name":"nightly job"', { "show", "--json", "k" })
      assert.matches('"queue":%[{"owner":"[%x:-]+","host":"[^"]+","pid":' .. waiter.pid
        .. ',"name":"second","waits":[%d.e-]+}%]', output)
      waiter:kill("TERM")
      holder:kill("TERM")
      exits(waiter, 143)
      exits(holder, 143)
    end)

    it("measures hold and wait times by the server's clock", function()
      hold("k")
      local seconds, us = unpack(server:cli("TIME"))
      local function ago(span) return ("%d%06d"):format(seconds - span, us - us % 8) end
      local function member(number) return crowd.member("00000000-0000-8000-8000-000000000000", number) end
      server:cli("SET", "redisson_lock_token:{k}", ago(7860))
      server:cli("ZADD", crowd.queue_of "k", ago(250), member(1), ago(125), member(2),
        ("%.3f"):format(ago(65) / 1024), member(3))
      local output = output_of { "show", "k" }
      assert.matches("\nheld +for 2 h 11 min\n", output)
      assert.matches("\n     1 +[%x-]+:3, for at least 1 min %d+ s\n     2 +[%x-]+:1, for 4 min %d+ s\n"
        .. "     3 +[%x-]+:2, for 2 min %d+ s\n$", output)
      output = output_of { "show", "--json", "k" }
      assert.matches('"held_for":78%d%d[%d.]*,.*"waits":2[56]%d[%d.]*,', output)
      assert.matches('{"owner":"[%x-]+:3","waits":[67]%d[%d.]*,"at_least":true}', output)
      assert.matches('{"owner":"[%x-]+:1","waits":2[56]%d[%d.]*}', output)
      output = output_of { "ls" }
      assert.matches("\nk +[^\n]+ 2 h 11 min +%S+ s +%d+ +3 +4 min %d+ s\n$", output)
      server:cli("DEL", crowd.queue_of "k")
    end)

    it("lists the waiters of a fair lock, and break notifies the first of them", function()
      local lock = assert(own():fair_lock("k"):acquire(0))
      local store = redis.start()
      local waiter = process.lua { file = "spec/support/crowd_worker.lua",
        args = { server:url(), store.path, "k", "waiter", "kind=fair", "grant_lease=" .. GRANT } }
      eventually(function() return lock:info().waiters == 1 end)
      eventually(function() return #server:cli("KEYS", "holdfast_client:*") == 2 end)
      local output = says(0, "\nstate +held\n", { "show", "k" })
      assert.matches("\nwaiters +1\n +1 +%S+ pid " .. waiter.pid .. "\n$", output)
      local from = process.now()
      assert.equal(0, (run { "break", "--yes", "k" }))
      exits(waiter, 0)
      assert.is_true(process.now() - from < GRANT / 2)
      assert.is_nil((lock:release()))
      store:stop()
    end)

    it("lists the first 50 waiters, and says that there are more", function()
      write_lock "k"
      for _, count in ipairs { 50, 51 } do
        for i = server:cli("LLEN", "redisson_lock_queue:{k}") + 1, count do
          local owner = ("b983c153-7421-469a-addb-%012d:1"):format(i)
          server:cli("RPUSH", "redisson_lock_queue:{k}", owner)
          server:cli("ZADD", "redisson_lock_timeout:{k}", 4e12, owner)
        end
        local output = output_of { "show", "k" }
        assert.matches("\nwaiters  " .. count .. "\n", output)
        assert.equal(50, select(2, output:gsub("\n *%d+ +b983c153%-7421%-469a%-addb%-0", "")))
        assert.equal(count > 50, output:find("…", 1, true) ~= nil)
      end
      server:cli("DEL", "k", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}")
    end)

    it("omits queue entries that are not waiters", function()
      hold("k")
      local uuid = "b983c153-7421-469a-addb-44fb92259a1b"
      server:cli("ZADD", "holdfast_queue:{k}", -5, "1f 0 0 0 0", 0, "1l" .. uuid .. ":1:7", 1, "1l" .. uuid .. ":2:8",
        2, "1l" .. uuid .. ":3:9")
      local output = output_of { "show", "k" }
      assert.matches(("\n +1 +UUID:2, for [^\n]+\n +2 +UUID:3, for [^\n]+\n$")
        :gsub("UUID", (uuid:gsub("%-", "%%%%-"))), output)
      assert.is_nil(output:find(uuid .. ":1\n", 1, true))
      server:cli("DEL", "holdfast_queue:{k}")
    end)

    it("exits with 1 for a free lock", function() says(1, "state +free\n", { "show", "k" }) end)

    it("exits with 73 for a hash that is not a lock, and says why", function()
      server:cli("HSET", "user", "name", "bob", "age", 5)
      server:cli("HSET", "visits", "today", 5)
      server:cli("HSET", "one", "name", "bob")
      server:cli("EXPIRE", "one", 60)
      for key, text in pairs { user = "it has 2 fields", visits = "it has no TTL",
        one = "it does not contain a hold count" } do
        gives(73, ('holdfast show: "%s" holds a hash that is not a lock: %s\n'):format(key, text),
          { "show", key })
      end
    end)

    it("reports a lock as free if it is released while show reads it", function()
      hold("k")
      local core, locks = require "holdfast.core", require "holdfast.command.locks"
      local real = core.client.command
      finally(function() core.client.command = real end)
      core.client.command = function(c, words, ...)
        if words[1] == "HLEN" then server:cli("DEL", "k") end
        return real(c, words, ...)
      end
      assert(locks.inspect(own(), "k"))
      assert.is_false(assert(locks.inspect(own(), "k")).held)
    end)

    it("does not take another program's string for a mutex", function()
      server:cli("SET", "theirs", "hello")
      assert.matches("state +a string: another program's lock", output_of { "show", "theirs" })
      assert.matches('"mutex":false.*"kind":"string"', output_of { "show", "--json", "theirs" })
    end)

    it("run suggests a fix if the key holds a string or another kind of lock", function()
      server:cli("SET", "theirs", "hello")
      hold("plain")
      for _, words in ipairs {
        { "run", "-n", "theirs", "--", "true" }, { "run", "-n", "--shared", "plain", "--", "true" },
      } do
        local output = says(73, "; use another KEY, or the same %-%-shared, %-%-exclusive or %-%-permits in every run "
          .. "with this KEY\n", words)
        assert.is_nil(output:find("client:", 1, true), output)
      end
    end)
  end)
end)
