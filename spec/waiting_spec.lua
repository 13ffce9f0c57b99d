-- Waiting for a lock: first come, first served.

local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local KEY = "crowd"
local QUEUE = crowd.queue_of(KEY)
-- Seconds. GRANT does not end too early on a busy machine; tests that wait for the end of a grant
-- use SHORT.
local GRANT, SHORT = 10, 2

local server, others, client, lock
local holders -- luacheck: ignore 241 (keeps their locks)

local names = crowd.names

local function assert_turns(turns) return others:assert_turns(turns) end

local function use_grant_lease(seconds)
  if client then client:close() end
  client = holdfast.new { url = server:url(), grant_lease = seconds }
  lock = client:lock(KEY)
end

-- Makes the processes wait in this order for the lock, which the spec holds.
local function hold_before(list, options)
  assert(lock:acquire(0))
  options = options or {}
  options.grant_lease = options.grant_lease or GRANT
  others:line_up(list, options)
end

local function elapsed(fn, ...)
  local start = process.now()
  fn(...)
  return process.now() - start
end

describe("a waiter", function()
  before_each(function()
    server, holders = redis.start(), {}
    others = crowd.new(server, KEY)
    use_grant_lease(GRANT)
  end)

  after_each(function()
    client:close()
    others:clear()
  end)

  it("gets the lock in order of arrival, with increasing tokens", function()
    hold_before(names(8))
    assert(lock:release())
    local history = assert_turns(8)
    assert.same(names(8), history.names)
    for i = 2, 8 do assert.is_true(history.tokens[i] > history.tokens[i - 1]) end
  end)

  it("leaves neither a place in the queue nor a subscription when its wait ends", function()
    assert(lock:acquire(0))
    local other = holdfast.new(server:url())
    for _, wait in ipairs { 0.001, 0.05, 0.3 } do
      local acquired, message, code, took
      process.wait_until(function() -- a server that is silent for 100 ms is unreachable
        local before = process.now()
        acquired, message, code = other:lock(KEY):acquire(wait)
        took = process.now() - before
        return code ~= "unreachable"
      end)
      assert.same({ nil, "busy" }, { acquired, code })
      assert.matches("held by ", message)
      assert.is_true(took >= wait and took < wait + 1, ("%.3f s"):format(took))
      assert.equal(0, server:cli("EXISTS", QUEUE))
    end
    process.eventually(function() return #server:cli("PUBSUB", "CHANNELS", "*") == 0 end)
    other:close()
  end)

  it("whose process was killed is skipped at the hand-off", function()
    hold_before(names(4), { inside = 0.01 })
    others.workers[1]:stop()
    others.workers[2]:stop()
    table.remove(others.workers, 1)
    table.remove(others.workers, 1)
    local start = process.now()
    assert(lock:release())
    assert.truthy(others:came_in("w3", GRANT))
    assert.is_true(process.now() - start < GRANT / 2)
    assert.same({ "w3", "w4" }, assert_turns(2).names)
  end)

  local function assert_one_lease(took)
    assert.is_true(took > SHORT * 0.8 and took < 2 * SHORT * 0.9, ("%.3f s"):format(took))
  end

  it("whose process is stopped costs one grant lease, and gets its turn when it resumes", function()
    use_grant_lease(SHORT)
    hold_before(names(3), { grant_lease = SHORT })
    others.workers[1]:kill("STOP")
    local start = process.now()
    assert(lock:release())
    assert.truthy(others:came_in("w2", 5))
    assert_one_lease(process.now() - start)
    assert.truthy(others:came_in("w3", 5))
    assert.is_true(process.now() - start < 2 * SHORT * 0.9)
    others.workers[1]:kill("CONT")
    assert.same({ "w2", "w3", "w1" }, assert_turns(3).names)
  end)

  it("has its position in the queue in lock:info()", function()
    assert(lock:acquire(0))
    local uuid = lock:owner():sub(1, 36)
    assert.is_nil(client:lock(KEY):info().position)
    local queue = ("holdfast_queue:{%s}"):format(KEY)
    server:cli("ZADD", queue, 1, crowd.member("00000000-0000-8000-8000-000000000000", 1), 2,
      crowd.member(uuid, 7))
    local info = client:lock(KEY):info()
    assert.same({ 2, 2 }, { info.waiters, info.position })
    server:cli("DEL", queue)
    assert(lock:release())
  end)

  it("acquires soon after the lease of a killed holder ends", function()
    local holder = others:add("holder", { lease = 2, watchdog = 1, inside = 60 })
    assert.truthy(others:came_in("holder", 5))
    others:line_up({ "heir" }, { grant_lease = GRANT })
    local left = server:cli("PTTL", KEY)
    assert.truthy(process.wait_until(function() -- until it is renewed
      local before = left
      left = server:cli("PTTL", KEY)
      return left > before
    end))
    holder:stop()
    table.remove(others.workers, 1)
    left = server:cli("PTTL", KEY) / 1000
    assert.is_true(elapsed(function() assert.truthy(others:came_in("heir", 20)) end) < left + GRANT / 2)
    assert.is_nil(others:finish())
  end)

  it("wakes its process only to check the lock again", function()
    hold_before(names(1), { grant_lease = 0.5 })
    local status = ("/proc/%d/task/%d/status"):format(others.workers[1].pid, others.workers[1].pid)
    local function sleeps()
      return tonumber(assert(io.open(status)):read("*a"):match("\nvoluntary_ctxt_switches:%s*(%d+)"))
    end
    local before, count = sleeps(), nil
    local seconds = elapsed(function()
      process.sleep(1)
      count = sleeps() - before
    end)
    -- two or three rechecks in a second
    assert.is_true(count <= 12 * seconds, ("%d times in %.3f s"):format(count, seconds))
    server:cli("DEL", KEY)
    assert.is_nil(others:finish(30))
  end)

  it("uses one connection for grants, whatever the number of keys", function()
    for i = 1, 5 do holders[i] = assert(client:lock("key" .. i, { owner = "holder" }):acquire(0)) end
    local releaser = process.lua {
      code = [[
        local client = require("holdfast").new(arg[1])
        for i = 1, 5 do
          local lock = client:lock("key" .. i)
          require("spec.support.process").wait_until(function() return lock:info().waiters == 1 end,
            20)
          lock:force_release()
        end
      ]],
      args = { server:url() },
    }
    local other = holdfast.new(server:url())
    local locks = {} -- luacheck: ignore 241
    for i = 1, 5 do
      locks[i] = assert(other:lock("key" .. i):acquire(20))
      local subscribers = select(2, server:cli("CLIENT", "LIST", "TYPE", "pubsub"):gsub("[^\n]+",
        ""))
      assert.equal(1, subscribers)
      assert.equal(1, #server:cli("PUBSUB", "CHANNELS", "*"))
    end
    releaser:wait(20)
    assert.is_true(other:stats().connections <= 3) -- one for calls, one for the watchdog
    -- the subscription is kept for a next wait, but not for ever
    process.eventually(function() return #server:cli("PUBSUB", "CHANNELS", "*") == 0 end, 20)
    other:close()
  end)

  describe("causes the same number of commands per hand-off", function()
    -- → the commands that the server executes for one hand-off and for one arrival, with `count`
    -- places in the queue
    local function cost_of(count)
      local acquire = crowd.program("acquire")
      server:cli("FLUSHALL")
      local silent = crowd.silent_client(server, count)
      server:cli("PING")
      assert(lock:acquire(0)) assert(lock:release()) assert(lock:acquire(0))
      for i = 1, count do server:cli("ZADD", QUEUE, i, crowd.member(silent.uuid, i)) end
      local before = crowd.calls(server)
      assert(lock:release())
      local hand_off = crowd.calls_since(server, before)
      assert.matches("^1 grant l ", silent.connection:receive(5)[3])
      before = crowd.calls(server)
      assert.equal(0, server:cli("EVAL", acquire, 4, KEY, "token", QUEUE, "channel", "me", 500, 0,
        0, 30000, 0, crowd.member(silent.uuid, count + 1))[1])
      local arrival = crowd.calls_since(server, before)
      silent.connection:close()
      server:cli("FLUSHALL")
      return { hand_off = hand_off, arrival = arrival }
    end

    it("with 2, 32, 256 and 4,096 waiters", function()
      assert(lock:acquire(0)) -- now its client has published its name, for more than a minute
      assert(process.wait_until(function() return #server:cli("KEYS", "holdfast_client:*") == 1 end))
      assert(lock:release())
      local few = cost_of(2)
      assert.equal(1, few.hand_off.evalsha)
      assert.equal(1, few.hand_off.publish)
      for _, count in ipairs { 32, 256, 4096 } do assert.same(few, cost_of(count)) end
    end)
  end)
end)
