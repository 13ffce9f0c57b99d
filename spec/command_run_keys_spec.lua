-- holdfast run with several keys or with TYPE:ID, and with --idempotent.

local jobs = require "spec.support.jobs"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local PATIENCE, await, client = jobs.PATIENCE, jobs.await, jobs.client
local eventually, exists, exits, file = jobs.eventually, jobs.exists, jobs.exits, jobs.file
local gives, hold, in_time, is_free = jobs.gives, jobs.hold, jobs.in_time, jobs.is_free
local name_of, nested_in, run = jobs.name_of, jobs.nested_in, jobs.run
local says, sees, server, start = jobs.says, jobs.sees, jobs.server, jobs.start
local start_job, stop, write = jobs.start_job, jobs.stop, jobs.write
local unpack = table.unpack or unpack

describe("holdfast run", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("with several keys or records", function()
    it("--one-by-one acquires the mutex TYPE_ID", function()
      gives(0, "a_b:c\n", { "run", "--one-by-one", "a:b:c", "-c", "echo $HOLDFAST_KEY" })
      local child = start_job({ "run", "--one-by-one", "order:7" }, "exec sleep 60")
      assert.equal("string", server:cli("TYPE", "order_7"))
      eventually(function() return name_of(child) end)
      says(1, "^holdfast run: type=order id=7: already running, held by %S+ %(pid " .. child.pid
        .. "%) for %d+ m?s, up to %d+ s[^\n]*\n$", { "run", "-n", "--one-by-one", "order:7", "--", "true" })
      local waiter = start { "run", "--one-by-one", "order:7", "--", "true" }
      eventually(function() return server:cli("ZCARD", "holdfast_queue:{order_7}") == 1 end)
      stop(waiter, 143)
      stop(child, 143)
      assert.is_true(is_free("order_7"))
    end)

    it("--one-by-one fails with deadlock inside a run of the same type and id", function()
      says(64, 'type=a id=b: an enclosing run already holds it and must finish.*"code":"deadlock","exit":64}\n$',
        nested_in({ "run", "--one-by-one", "a:b" }, "run", "-n", "-E", "0", "--json", "--one-by-one", "a:b",
          "--", "true"))
    end)

    it("--one-by-one ignores HOLDFAST_KEY of an enclosing run, and acquires its own lock", function()
      local env = { HOLDFAST_KEY = "a_b", HOLDFAST_OWNER = "11111111-2222-8333-8444-555555555555:1",
        HOLDFAST_TOKEN = "500" }
      gives(0, "ran\n", { "run", "-w", "2", "--one-by-one", "a:b", "--", "echo", "ran", env = env })
    end)

    it("acquires several keys, all or none", function()
      local lock = hold "b"
      says(1, 'cannot acquire "b"', { "run", "-n", "a", "b", "c", "--", "true" })
      assert.is_true(is_free("a") and is_free("c"))
      local child = start { "run", "c", "a", "b", "--", "sh", "-c",
        'echo "$HOLDFAST_KEY"; echo "$HOLDFAST_TOKEN"; echo "$HOLDFAST_OWNER" | wc -l; exit 6' }
      eventually(function() return lock:info().waiters == 1 end)
      assert.is_false(is_free("a"))
      assert(lock:release())
      exits(child, 6)
      local counter = {}
      for i, key in ipairs { "c", "a", "b" } do
        counter[i] = server:cli("GET", "redisson_lock_token:{" .. key .. "}")
      end
      assert.equal("c\na\nb\n" .. table.concat(counter, "\n") .. "\n3\n", child:output())
      assert.is_true(is_free("a") and is_free("b") and is_free("c"))
    end)

    it("ends the job when one of several keys is lost, and names that key", function()
      local child = start_job({ "run", "--lease", "9", "a", "b" }, "exec sleep 60")
      server:cli("DEL", "b")
      exits(child, 75)
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
        gives(0, "2\n", nested_in({ "run", "a", "b" }, "run", "-nc",
          "redis-cli -s " .. server.path .. " hvals b", unpack(keys)))
        assert.is_true(is_free("a") and is_free("b"))
      end
    end)

    it("--idempotent exits with 79, -E or --duplicate-exit for a job that is done already", function()
      local function once(...)
        local words = { "run", "--idempotent", "1h", ... }
        for _, word in ipairs { "k", "--", "true" } do words[#words + 1] = word end
        return words
      end
      local DONE = '^holdfast run: "k" is already done or running, on unix:%S+; `holdfast show` prints'
      gives(0, "", once())
      says(79, DONE, once())
      gives(0, "", once("-E", "0"))
      gives(0, "", once("--duplicate-exit", "0"))
      gives(7, "", once("-E", "0", "-q", "--duplicate-exit", "7"))
      says(3, DONE, once("-E", "3"))
    end)

    it("--idempotent runs the job once per interval, and again after a failure", function()
      local function once(exit)
        return (run { "run", "--idempotent", "60", "k", "--", "sh", "-c", "exit " .. exit })
      end
      assert.equal(3, once(3))
      assert.equal(0, once(0))
      says(79, "^[^\n]+\n$", { "run", "--idempotent", "60", "k", "--", "touch", file "ran" })
      assert.is_false(exists(file "ran"))
      assert.is_true(is_free())
    end)

    it("--idempotent does not record success if the lock was lost", function()
      local child = start_job({ "run", "--idempotent", "1h", "--lease", "3", "k" },
        "trap 'exit 0' TERM; while :; do sleep 0.05; done")
      server:cli("DEL", "k")
      exits(child, 75)
      assert.is_falsy(server:cli("HGET", "holdfast_once:k", "done"))
      gives(0, "ran\n", { "run", "--idempotent", "1h", "k", "--", "echo", "ran" })
    end)

    it("--idempotent records success before the rest of --min-hold, so that a crash then causes no second run", function()
      local words = { "run", "--idempotent", "1h", "--min-hold", "60", "k", "--", "echo", "ran" }
      local child = start(words)
      eventually(function() return server:cli("HEXISTS", "holdfast_once:k", "done") == 1 end)
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
          client():idempotent("holdfast_once:k", { expire = 60 }, function()
            local start_at = now()
            code = run(all)
            took = now() - start_at
          end)
          assert.equal(79, code)
          return took
        end)
      end
    end)

    it("--idempotent does not wait for an enclosing run's record", function()
      local once = { "run", "--idempotent", "1h", "k" }
      in_time(1.9, function()
        local from = process.now()
        says(79, "", nested_in(once, "run", "--idempotent", "1h", "k", "--", "true"))
        return process.now() - from
      end)
    end)

    it("--idempotent retries writing a record that the server refuses, and exits once it is written", function()
      local own = redis.start()
      finally(function() own:stop() end)
      local line = "echo >>" .. file "runs" .. "; echo ready; " .. await "go"
      local child = start { "run", "--url", own:url(), "--idempotent", "1h", "k", "-c", line,
        env = { HOLDFAST_CONFIG = "/dev/null" } }
      sees(child, "ready")
      own:cli("REPLICAOF", "127.0.0.1", "1")
      write(file "go", "")
      sees(child, "READONLY")
      own:cli("REPLICAOF", "NO", "ONE")
      exits(child, 0)
      assert.equal(1, own:cli("HEXISTS", "holdfast_once:k", "done"))
    end)

    it("--idempotent warns and exits with the job's code if success cannot be recorded", function()
      for _, exit in ipairs { 0, 5 } do
        local doomed = redis.start()
        os.remove(file "go")
        local child = start { "run", "-w", "60", "--url", doomed:url(), "--lease", "3", "--idempotent",
          "1h", "k", "-c", "echo ready; " .. await "go" .. "; exit " .. exit,
          env = { HOLDFAST_CONFIG = "/dev/null" } }
        sees(child, "ready")
        doomed:kill("KILL")
        write(file "go", "")
        exits(child, exit)
        local _, lines = child:output():gsub("holdfast run: cannot [^\n]+\n", "")
        assert.equal(exit == 0 and 2 or 1, lines, child:output())
        doomed:stop()
      end
    end)
  end)
end)
