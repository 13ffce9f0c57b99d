-- holdfast break: what it asks, refuses and frees.

local command = require "spec.support.command"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"

local PATIENCE, comes_to_wait, eventually = jobs.PATIENCE, jobs.comes_to_wait, jobs.eventually
local exits, gives, hold, keep = jobs.exits, jobs.gives, jobs.hold, jobs.keep
local output_of, own, run, says, sees = jobs.output_of, jobs.own, jobs.run, jobs.says, jobs.sees
local server, start, stop, write_lock = jobs.server, jobs.start, jobs.stop, jobs.write_lock
local unpack = table.unpack or unpack

describe("holdfast", function()
  before_each(jobs.open)
  after_each(jobs.close)

  -- `script` types the text on a terminal, then ^D. → the exit code and the output of break
  local function answer(text, ...)
    local child = process.start { "sh", "-c", ("printf '%s' | script -qec \"'%s'\" /dev/null"):format(
      text, table.concat(command.words("break", ...), "' '")), env = command.environment(server) }
    local _, code = child:wait(PATIENCE)
    return code, child:output()
  end

  -- `script` types "y" on a terminal once the file exists. → the child
  local function break_once(file, key)
    local text = "(until test -e %s; do sleep 0.05; done; echo y) | script -qec \"'%s'\" /dev/null"
    local words = table.concat(command.words("break", key), "' '")
    return process.start {
      "sh", "-c", text:format(file, words), env = command.environment(server),
    }
  end

  describe("break", function()
    it("without a terminal fails instead of asking for confirmation, and changes nothing", function()
      hold("k")
      says(64, "^holdfast break: cannot ask[^\n]+\n$", { "break", "k" })
      assert.equal(1, server:cli("EXISTS", "k"))
    end)

    it("says for how long the old holder may keep running", function()
      hold("k")
      local code, output = answer("", "--yes", "k")
      assert.equal(0, code)
      assert.matches("it keeps running until its next renewal %(for at most %d+ s%), alongside the next holder\r\nk: broken",
        output)
    end)

    it("asks for confirmation on a terminal, and breaks the lock only if the answer is yes", function()
      for expected, answers in pairs {
        [1] = { "\\n", "n\\n", "no\\n", "yep\\n", "yesno\\n", "ny\\n", "e\\n", "" },
        [0] = { "y\\n", "YES\\n", " Ye \\n", "\\tyes\\n" },
      } do
        for _, text in ipairs(answers) do
          write_lock "k"
          local code, output = answer(text, "k")
          assert.matches("Break the lock%? %[y/N%]", output)
          assert.same({ expected, expected }, { code, server:cli("EXISTS", "k") }, text)
        end
      end
    end)

    it("takes back the permits of a semaphore without undoing a change of their number", function()
      local go = jobs.file "go"
      local pool = own():semaphore("pool", { permits = 5 })
      local permit = assert(pool:acquire(2))
      local child = break_once(go, "pool")
      sees(child, "Take the permits back")
      assert(pool:set_permits(3))
      assert(io.open(go, "w")):close()
      exits(child, 0)
      assert.equal(3, pool:available())
      assert.is_nil(permit:release())
    end)

    it("takes back only the permits that were held when it asked", function()
      local go = jobs.file "go"
      local pool = own():semaphore("pool", { permits = 5 })
      for _, stays in ipairs { true, false } do
        local old = assert(pool:acquire(2))
        local child = break_once(go, "pool")
        sees(child, "Take the permits back")
        local new = assert(pool:acquire(1))
        if not stays then assert(old:release()) end
        assert(io.open(go, "w")):close()
        exits(child, stays and 0 or 1)
        assert.equal(not stays, child:output():find("changed hands since you were asked; none was taken back", 1, true) ~= nil)
        if stays then assert.same({ "lost" }, { select(3, old:release()) }) end
        assert(new:release())
        assert.equal(5, pool:available())
        os.remove(go)
      end
    end)

    it("asks a different question for permits, a latch, a finished job and a lock without a TTL", function()
      local uuid = "b983c153-7421-469a-addb-44fb92259a1b:1"
      local permit = assert(own():semaphore("pool", { permits = 3 }):acquire(2))
      assert(own():latch("gate"):set(2))
      local waiter = start { "latch", "wait", "gate" }
      eventually(function() return output_of { "show", "gate" }:find("waiters  1", 1, true) end)
      assert.equal(0, (run { "run", "--idempotent", "1h", "job", "--", "true" }))
      server:cli("SET", "endless", uuid)
      server:cli("SET", "number", 7)
      for _, case in ipairs {
        { "pool", 'Clients hold 2 of 3 permits of "pool"; [^\r\n]*Take the permits back%? %[y/N%]', ": broken" },
        { "gate", 'The latch "gate" still has a count of 2; [^\r\n]*Open it%? %[y/N%]', ": broken" },
        { "job", 'The job "job" counts as done for another 3[56]%d%d%.%d s%. Let it run again%? %[y/N%]', ": may run again" },
        { "endless", 'The lock "endless" is held by ' .. uuid:gsub("%-", "%%-")
          .. "; the holder would keep running until its next renewal %(possibly forever%), alongside", ": broken" },
        { "number", 'The lock "number" is held by 7; ', ": broken", "--mutex" },
      } do
        local key = case[1]
        local function dump() return server:cli("DUMP", key == "job" and "holdfast_once:job" or key) end
        local before = dump()
        local code, output = answer("n\\n", case[4] or "--", key)
        assert.equal(1, code, output)
        assert.matches(case[2], output)
        assert.is_nil(output:find(key .. case[3], 1, true))
        assert.same(before, dump())
        code, output = answer("y\\n", case[4] or "--", key)
        assert.equal(0, code, output)
        assert.matches(key .. case[3], output, 1, true)
      end
      exits(waiter, 0)
      assert.equal("3", server:cli("GET", "pool"))
      assert.equal("lost", select(3, permit:release()))
    end)

    it("--yes frees the lock for its waiters", function()
      hold("k")
      local waiter = start { "run", "k", "--", "echo", "ran" }
      comes_to_wait(1, "k")
      gives(0, "k: broken\n", { "break", "--yes", "k" })
      exits(waiter, 0)
      gives(1, "k: was free\n", { "break", "-y", "k" })
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
        says(73, "^holdfast break: [^\n]+\n$", { "break", "--yes", key })
        assert.equal(1, server:cli("EXISTS", key))
      end
      assert.matches('"counter" holds a string that is not a lock: .*%-%-mutex',
        output_of { "break", "-y", "counter" })
    end)

    it("gives the reason if the server refuses to change the key", function()
      hold("k")
      local permit = assert(own():semaphore("pool", { permits = 2 }):acquire(1))
      assert.equal(0, (run { "run", "--idempotent", "1h", "job", "--", "true" }))
      server:cli("ACL", "SETUSER", "clerk", "on", ">x", "~*", "&*", "+@all", "-del", "-unlink", "-zadd")
      for _, key in ipairs { "k", "pool", "job" } do
        local output = says(77, "^holdfast break: [^\n]*cannot ",
          { "break", "--yes", "--url", "unix://clerk:x@" .. server.path, key })
        assert.is_nil(output:find("was free", 1, true))
      end
      server:cli("ACL", "DELUSER", "clerk")
      assert.equal(1, server:cli("EXISTS", "k"))
      assert.equal(79, (run { "run", "--idempotent", "1h", "job", "--", "true" }))
      assert(permit:release())
    end)

    it("frees locks held by other libraries", function()
      hold("named", { owner = "somebody" })
      write_lock("java", "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33")
      server:cli("SET", "redis-py", "c0ffee", "PX", 60000)
      keep(own():mutex("m"))
      for _, key in ipairs { "named", "java", "m" } do
        gives(0, key .. ": broken\n", { "break", "-y", key })
      end
      gives(0, "redis-py: broken\n", { "break", "-y", "--mutex", "redis-py" })
    end)
  end)

  describe("the record of an idempotent job", function()
    local function once(key) return (run { "run", "--idempotent", "1h", key, "--", "true" }) end

    it("is listed by ls and show", function()
      assert.equal(0, once("jobs:a"))
      says(1, "state +free\ndone +for 3[56]%d%d%.%d s more\n", { "show", "jobs:a" })
      assert.matches('"held":false,.*"done_ttl":3[56]', output_of { "show", "--json", "jobs:a" })
      hold("jobs:a")
      hold("jobs:b")
      for _, words in ipairs { { "ls" }, { "ls", "jobs:*" }, { "ls", "*jobs*" } } do
        says(0, "^KEY[^\n]+\njobs:a +[^\n]+\njobs:a +done +%- +%- +3[56]%d%d%.%d s +%- +%- +%-\njobs:b [^\n]+\n$",
          words)
      end
      assert.matches('{"key":"jobs:a","held":false,"done":true,"mutex":false,"kind":"record","waiters":0,"done_ttl":3',
        output_of { "ls", "--json" }, 1, true)
      gives(0, "", { "ls", "other*" })
      assert.matches("^2 locks", output_of { "top", "--interval", "0.1" })
    end)

    it("is shown as a held lock while the job is running", function()
      for _, fingerprint in ipairs { false, "a" } do
        own():idempotent("k", { fingerprint = fingerprint or nil, delete_key = true }, function()
          says(0, "\nk +%S", { "ls" })
          says(0, "", { "show", "k" })
        end)
      end
    end)

    it("is not deleted by break if another run has replaced it since break asked", function()
      local go = jobs.file "go"
      for option, replace in pairs {
        ["--once-per"] = { "SET", "holdfast_once:k", "1 running 8 other:1 host 7" },
        ["--idempotent"] = { "HSET", "holdfast_once:k", "by", "other:1" },
      } do
        assert.equal(0, (run { "run", option, "1h", "k", "--", "true" }))
        local child = break_once(go, "k")
        sees(child, "Let it run again")
        server:cli(unpack(replace))
        local before = server:cli("DUMP", "holdfast_once:k")
        assert(io.open(go, "w")):close()
        exits(child, 1)
        assert.matches("nothing was deleted", child:output(), 1, true)
        assert.same(before, server:cli("DUMP", "holdfast_once:k"))
        server:cli("DEL", "holdfast_once:k")
        os.remove(go)
      end
    end)

    it("is not deleted by break while the job is running", function()
      local records = require "holdfast.command.records"
      local child = start { "run", "--idempotent", "60", "k", "-c", "echo ready; exec sleep 60" }
      sees(child, "ready")
      assert.is_nil(records.ttl(own(), "k"))
      assert.is_false(records.forget(own(), "k", records.ids(own(), "k")))
      assert.equal(1, server:cli("EXISTS", "holdfast_once:k"))
      stop(child, 143)
    end)
  end)
end)
