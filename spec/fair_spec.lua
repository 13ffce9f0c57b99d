-- The fair lock: the list of Redisson's RFairLock.

local assert_fails = require "spec.support.fails"
local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local java = require "spec.support.redisson_fair"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local world = require("spec.support.world").new()

local LIST, TIMEOUTS = "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"
local CHANNEL = "redisson_lock__channel:{k}"
local JAVA = "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33"
local GRANT = 0.5 -- seconds between two rechecks of a waiter
local LONG = 20 -- seconds between rechecks of a waiter that must not need them

describe("a fair lock", function()
  local a, b

  before_each(function()
    world.open()
    a, b = world.client():fair_lock("k"), world.client():fair_lock("k")
  end)

  after_each(world.close)

  it("is stored on the server in Redisson's format", function()
    assert(a:acquire(0)) assert(a:acquire(0))
    assert.same({ [a:owner()] = "2" }, world.hash "k")
    assert.is_true(world.cli("PTTL", "k") > 29000)
    assert.matches("held by another owner", assert_fails("busy", b:acquire(0)))
    assert(a:release())
    assert.same({ [a:owner()] = "1" }, world.hash "k")
    assert(a:release())
    assert.equal(0, world.cli("EXISTS", "k"))
    assert_fails("not_held", a:release())
  end)

  it("puts its waiter into Redisson's list during the wait, and removes it afterwards", function()
    assert(a:acquire(0))
    local waiter = world.program { file = "spec/support/crowd_worker.lua",
      args = { world.server:url(), world.another().path, "k", "w", "kind=fair" } }
    assert(process.wait_until(function() return world.cli("LLEN", LIST) == 1 end, 20))
    local owner = world.cli("LINDEX", LIST, 0)
    assert.matches("^%x+%-%x+%-8%x+%-%x+%-%x+:%d+$", owner)
    local score, time = world.cli("ZSCORE", TIMEOUTS, owner), world.cli("TIME")
    local left = score - time[1] * 1000 - time[2] / 1000
    assert.is_true(left > 2000 and left <= 6001, left) -- a score is whole milliseconds
    assert.equal(1, assert(process.wait_until(function()
      local subscribers = world.cli("PUBSUB", "NUMSUB", CHANNEL .. ":" .. owner)[2]
      return subscribers > 0 and subscribers
    end, 20)))
    local info = assert(b:info())
    assert.same({ a:owner(), 1, 1 }, { info.owner, info.holds, info.waiters })
    assert(a:release())
    assert.same({ "exit", 0 }, { waiter:wait(20) })
    assert.equal(0, world.cli("EXISTS", "k", LIST, TIMEOUTS))
  end)

  it("derives its internal keys from a key with braces as Redisson does", function()
    local key = "a{b}"
    local lock, other = world.client():fair_lock(key), world.client():fair_lock(key)
    assert(lock:acquire(0))
    local gone = java.lock(world.server.path, "x")
    gone.key, gone.list = key, "redisson_lock_queue:" .. key
    gone.timeouts = "redisson_lock_timeout:" .. key
    assert.is_true(gone:try() > 0)
    assert_fails("busy", other:acquire(1))
    assert.same({ gone.owner }, world.cli("LRANGE", gone.list, 0, -1))
    gone:leave()
    gone:close()
    assert(lock:release())
  end)

  it("can be released by force, which notifies the first waiter", function()
    world.hold_as(JAVA, "k", 20000)
    local waiter = java.lock(world.server.path, "k")
    assert.is_true(waiter:try() > 0)
    waiter:listen()
    assert.is_true(assert(a:force_release()))
    assert.same({ "message", CHANNEL .. ":" .. waiter.owner, "0" }, waiter.events:receive(10))
    assert_fails("busy", a:acquire(0))
    assert.is_nil(waiter:try())
    assert.is_true(waiter:release())
    waiter:close()
    assert.is_false((a:force_release()))
  end)

  it("fails with conflict on a key of another type", function()
    world.cli("SET", "k", "v")
    assert_fails("conflict", a:acquire(0))
    assert_fails("conflict", a:acquire(2))
    world.cli("DEL", "k")
    world.cli("HSET", "k", JAVA, 1)
    assert_fails("conflict", a:acquire(0))
    world.cli("DEL", "k")
    world.cli("SET", LIST, "v")
    assert_fails("conflict", a:acquire(0))
    world.cli("DEL", LIST)
  end)

  it("refuses a key in braces whose list another key would use", function()
    local client = world.client()
    local lock, message, code = client:fair_lock("{k}"):acquire(0)
    assert.same({ code = "conflict" }, { lock = lock, code = code })
    assert.matches('"{k}".*would clash on the server with the same key without its braces', message)
    assert(client:fair_lock("{k}:1"):acquire(0))
  end)

  it("has with_fair_lock, which returns what its function returns", function()
    local client = world.client()
    assert.same({ 1, 2 }, { client:with_fair_lock("k", { lease = 5 }, function(lock, ...)
      assert.same({ [lock:owner()] = "1" }, world.hash "k")
      return ...
    end, 1, 2) })
    assert.is_true(client:with_fair_lock("k", function(lock)
      assert.is_true(lock:remaining() > 20)
    end))
    assert.equal(0, world.cli("EXISTS", "k"))
  end)
end)

-- ---- waiting ----

describe("the list of a fair lock", function()
  local server, others, client, lock, javas

  before_each(function()
    server = redis.start()
    others = crowd.new(server, "k")
    client = holdfast.new { url = server:url(), grant_lease = GRANT }
    lock = client:fair_lock("k")
    javas = {}
  end)

  after_each(function()
    client:close()
    for _, each in ipairs(javas) do each:close() end
    others:clear()
  end)

  local function list() return server:cli("LRANGE", LIST, 0, -1) end

  local function add(name, options)
    options = options or {}
    options.kind, options.grant_lease = "fair", options.grant_lease or GRANT
    return others:add(name, options)
  end

  -- Starts processes that wait in this order behind those that wait already.
  local function line_up(names, options)
    for _, name in ipairs(names) do
      local before = #list()
      add(name, options)
      assert(process.wait_until(function() return #list() == before + 1 end, 20), name)
    end
  end

  local function java_waits(options)
    local waiter = java.lock(server.path, "k", options)
    javas[#javas + 1] = waiter
    assert.is_truthy(waiter:try())
    if not (options and options.deaf) then waiter:listen() end
    return waiter
  end

  local function assert_order(names)
    local history = others:assert_turns()
    assert.same(names, history.names)
    crowd.assert_rising(history.tokens)
  end

  it("is served in order of arrival", function()
    assert(lock:acquire(0))
    line_up({ "w1", "w2", "w3", "w4", "w5" }, { grant_lease = LONG })
    local start = process.now()
    assert(lock:release())
    assert_order { "w1", "w2", "w3", "w4", "w5" }
    assert.is_true(process.now() - start < LONG / 2)
  end)

  it("skips waiters whose process has died", function()
    assert(lock:acquire(0))
    line_up({ "w1", "w2", "w3" }, { grant_lease = LONG })
    others.workers[1]:kill("KILL")
    others.workers[2]:kill("KILL")
    assert(process.wait_until(function()
      return #server:cli("PUBSUB", "CHANNELS", "holdfast_grant:*") == 1
    end, 20))
    local start = process.now()
    assert(lock:release()) assert(others.workers[3]:wait_output("done", LONG))
    assert.is_true(process.now() - start < LONG / 2)
    assert.same({ "w3" }, others:history().names)
    assert.equal(0, server:cli("EXISTS", LIST, TIMEOUTS))
  end)

  it("is served in one order across Redisson's and holdfast's waiters", function()
    assert(lock:acquire(0))
    local first = java_waits()
    line_up { "w1" }
    local second = java_waits()
    line_up { "w2" }
    assert(lock:release())
    assert.equal("0", first.events:receive(10)[3])
    assert.is_nil(first:try())
    assert.same({}, others:history().names)
    assert.is_true(first:release())
    assert.equal("0", second.events:receive(10)[3])
    assert.same({ "w1" }, others:history().names)
    assert.is_nil(second:try())
    assert.is_true(second:release())
    assert_order { "w1", "w2" }
  end)

  it("skips a dead holdfast waiter even if only Redisson clients are left", function()
    local holder = java.lock(server.path, "k")
    javas[1] = holder
    assert.is_nil(holder:try())
    line_up { "w1" }
    local waiter = java_waits()
    others.workers[1]:kill("KILL")
    assert.is_true(holder:release())
    assert(process.wait_until(function() return not waiter:try() end, 20)) -- not after 300 s
    assert.is_true(waiter:release())
  end)

  it("is joined again by waiters whose connections were killed", function()
    assert(lock:acquire(0))
    line_up { "w1", "w2" }
    server:cli("CLIENT", "KILL", "TYPE", "pubsub")
    process.sleep(GRANT)
    assert(lock:release())
    assert.is_nil(others:finish(20))
    assert.equal(2, #others:history().names)
  end)

  it("wakes a holdfast waiter by Redisson's message alone", function()
    local holder = java.lock(server.path, "k")
    javas[1] = holder
    assert.is_nil(holder:try())
    line_up({ "w1" }, { grant_lease = LONG })
    local owner = list()[1]
    assert(process.wait_until(function()
      return server:cli("PUBSUB", "NUMSUB", CHANNEL .. ":" .. owner)[2] == 1
    end, 20))
    process.sleep(0.1)
    local start = process.now()
    assert.is_true(holder:release())
    assert(others.workers[1]:wait_output("done", LONG))
    assert.is_true(process.now() - start < LONG / 2)
    assert_order { "w1" }
  end)

  it("notifies a holdfast waiter over the grant channel if it has no channel of its own", function()
    assert(lock:acquire(0))
    local silent = crowd.silent_client(server, 7)
    server:cli("RPUSH", LIST, silent.uuid .. ":5")
    server:cli("ZADD", TIMEOUTS, "99999999999999", silent.uuid .. ":5")
    assert(lock:release())
    assert.equal("1 recheck 5", silent.connection:receive(10)[3])
    silent.connection:close()
    server:cli("DEL", LIST, TIMEOUTS)
  end)
end)
