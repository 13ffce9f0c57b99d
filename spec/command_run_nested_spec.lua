-- holdfast run inside a job of holdfast run: when it re-enters the locks of the enclosing run.

local command = require "spec.support.command"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"

local await, eventually, file = jobs.await, jobs.eventually, jobs.file
local gives, hold, is_free, nested_in = jobs.gives, jobs.hold, jobs.is_free, jobs.nested_in
local read, run, server = jobs.read, jobs.run, jobs.server
local with_variables, write = jobs.with_variables, jobs.write

describe("holdfast run", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("with a job", function()
    it("re-enters the lock of an enclosing run through a different URL of the same server", function()
      gives(0, "inside\n", nested_in({ "run", "k" }, "run", "-n", "--url", server:url() .. "?db=0", "k",
        "--", "echo", "inside"))
      assert.is_true(is_free())
    end)

    it("keeps the lock until the last nested run has ended", function()
      local inner = command.words("run", "k", "-c", "echo ready >" .. file "ready" .. "; " .. await "go"
        .. "; redis-cli -s " .. server.path .. " hvals k >" .. file "count")
      gives(0, "", { "run", "k", "-c", "'" .. table.concat(inner, "' '") .. "' >/dev/null 2>&1 & "
        .. await "ready" })
      assert.is_false(is_free())
      assert.equal(1, (run { "run", "-n", "k", "--", "true" }))
      write(file "go", "")
      eventually(is_free)
      assert.equal("1\n", read(file "count"))
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
      local words = nested_in({ "run", "k" }, "run", "-n", "other", "--", "true")
      assert.equal(0, (run(words)))
      local lock = hold "other"
      assert.equal(1, (run(words)))
      assert(lock:release())
    end)

    -- Takes a lock whose acquires return `answers` in turn: { code, entered, left, extends }.
    -- → the result, the holding, the waits, how often the lock was released and extended
    local function take(inside, answers)
      local held = require("holdfast.command.holding").new(nil,
        { keys = { "k" }, wait = 10, lease = 30, config = {} })
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

    it("waits for its full --wait even if signals without effect interrupt it", function()
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
      } do assert.same({}, found(none[1], none[2], none[3], none[4], none[5])) end
    end)
  end)
end)
