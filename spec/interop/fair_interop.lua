-- One list for holdfast and Redisson's RFairLock, on one server and in a cluster.

local crowd = require "spec.support.crowd"
local java_program = require "spec.support.java"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local KEY = "shared"
local LIST, TIMEOUTS = "redisson_lock_queue:{shared}", "redisson_lock_timeout:{shared}"
local unpack = table.unpack or unpack -- luacheck: ignore 113 143
local WAKE = 0.3 -- seconds after which a waiter is in
local START_UP = java_program.START_UP
local GRANT = 10 -- seconds between two polls of a holdfast waiter: it is woken, or the spec fails

local server, others, client, lock, port, options_of_java

local function java(name, options)
  local args = { tostring(port), tostring(others.store.port), KEY, name, "fair=1" }
  args = process.args(process.args(args, options_of_java), options)
  return others:join(name, java_program.start("Contender", args))
end

local function ours(name, options)
  options = options or {}
  options.kind, options.grant_lease = "fair", options.grant_lease or GRANT
  return others:add(name, options)
end

local function list() return server:cli("LRANGE", LIST, 0, -1) end

-- One after the other, behind those that wait.
local function line_up(waiters)
  for _, waiter in ipairs(waiters) do
    local before = #list()
    local start, name, options = unpack(waiter)
    start(name, options)
    assert(process.wait_until(function() return #list() == before + 1 end, START_UP), name)
  end
end

local function assert_order(names)
  assert.same(names, others:assert_turns(nil, 30).names)
  assert.equal(0, server:cli("EXISTS", KEY))
  assert.equal(0, server:cli("EXISTS", LIST, TIMEOUTS))
end

local function heard()
  return #server:cli("PUBSUB", "CHANNELS", "redisson_lock__channel:*")
    + #server:cli("PUBSUB", "SHARDCHANNELS", "redisson_lock__channel:*")
end

local function one_server()
  local one = redis.start { tcp = true }
  port, options_of_java = one.port, {}
  return one
end

local function in_a_cluster(sharded)
  return function()
    local nodes = crowd.cluster_of(KEY)
    port, options_of_java = nodes.port, { cluster = 1, sharded = sharded }
    return nodes
  end
end

-- Gives each test of this block what `start` starts, a crowd and a client with a lock.
local function with_servers(start)
  local scene = crowd.scene(KEY, start)
  before_each(function()
    server, others, client = scene.open()
    lock = client:fair_lock(KEY)
  end)
  after_each(scene.close)
end

for place, start in pairs {
  ["on one server"] = one_server,
  ["in a cluster"] = in_a_cluster(1),
  ["in a cluster, with plain channels"] = in_a_cluster(0),
} do
  describe("holdfast and Java's fair lock " .. place, function()
    with_servers(start)

    it("exclude each other and count re-entries", function()
      assert(lock:acquire(0)) assert(lock:acquire(0))
      local refused = java("refused", { wait = 0.05 })
      assert(refused:wait(START_UP))
      assert.matches("failed busy", refused:output())
      assert.same({}, list())
      assert(lock:release()) assert(lock:release())
      java("twice", { holds = 2, inside = 1 })
      assert.truthy(others:came_in("twice", START_UP))
      assert.equal(2, lock:info().holds)
      assert.equal("busy", (select(3, lock:acquire(0))))
      assert(lock:acquire(5)) assert(lock:release())
      assert.is_nil(others:finish(10))
    end)

    it("are served in the order of the list, each notified at once", function()
      assert(lock:acquire(0))
      line_up { { java, "java1" }, { ours, "ours1" }, { java, "java2" }, { ours, "ours2" },
        { ours, "ours3" }, { java, "java3" } }
      assert(process.wait_until(function() return heard() >= 6 end, 10))
      process.sleep(0.2)
      local since = process.now()
      assert(lock:release())
      assert(process.wait_until(function() return #others:history().names == 6 end, 5))
      assert.is_true(process.now() - since < 6 * WAKE)
      assert_order { "java1", "ours1", "java2", "ours2", "ours3", "java3" }
    end)

    it("let no waiter pass another, not even by try_acquire", function()
      java("java1", { inside = 1 })
      assert.truthy(others:came_in("java1", START_UP))
      line_up { { ours, "ours1", { inside = 0.05 } }, { ours, "ours2" } }
      while not lock:try_acquire() do process.sleep(0.002) end
      assert.same({ "java1", "ours1", "ours2" }, others:history().names)
      assert(lock:release())
      assert_order { "java1", "ours1", "ours2" }
    end)
  end)
end

describe("Java's fair lock on one server", function()
  with_servers(one_server)

  it("skips dead holdfast waiters to serve Java's", function()
    assert(lock:acquire(0))
    line_up { { ours, "ours1", { grant_lease = 1 } }, { java, "java1" } }
    others.workers[1]:kill("KILL")
    assert(process.wait_until(function()
      return #server:cli("PUBSUB", "CHANNELS", "holdfast_grant:*") == 0
    end, 5))
    local start = process.now()
    assert(lock:release())
    assert.truthy(others:came_in("java1", 8))
    assert.is_true(process.now() - start < 1)
    assert.same({ "exit", 0 }, { others.workers[2]:wait(10) })
  end)

  it("skips dead holdfast waiters when only Java's waiters are left", function()
    java("java1", { inside = 1 })
    assert.truthy(others:came_in("java1", START_UP))
    line_up { { ours, "ours1", { grant_lease = 1 } } }
    java("java2")
    others.workers[2]:kill("KILL")
    assert.truthy(others:came_in("java2", START_UP + 8))
    assert.same({ "exit", 0 }, { others.workers[3]:wait(10) })
  end)

  it("skips Java's dead waiters to serve holdfast's after a few seconds", function()
    assert(lock:acquire(0))
    line_up { { java, "java1", { wait = 120 } }, { ours, "ours1", { grant_lease = 1 } } }
    others.workers[1]:kill("KILL")
    assert(process.wait_until(function() return heard() == 1 end, 5))
    local start = process.now()
    assert(lock:release())
    assert.truthy(others:came_in("ours1", 10))
    assert.is_true(process.now() - start < 5)
    assert.same({ "exit", 0 }, { others.workers[2]:wait(10) })
  end)

  it("keeps a holdfast waiter's place during a hold longer than Java's timeouts", function()
    local brief = client:fair_lock(KEY, { lease = 1, watchdog = true })
    assert(brief:acquire(0))
    line_up { { java, "java1", { wait = 60, inside = 0.2 } }, { ours, "ours1" }, { java, "java2" } }
    process.sleep(8)
    assert(brief:release())
    assert_order { "java1", "ours1", "java2" }
  end)

  it("can be released by force from either side", function()
    assert(lock:acquire(0))
    local forcer = java("forcer", { force = 1 })
    others:begin(START_UP)
    assert(forcer:wait_output("forced true", 5))
    assert.is_nil((lock:release()))
    assert.is_nil(others:finish(10))
    java("java1", { inside = 2 })
    assert.truthy(others:came_in("java1", START_UP))
    assert.is_true(assert(lock:force_release()))
    assert(lock:acquire(0)):release()
  end)

  it("serves four waiters of each side without overlap or timeout", function()
    for i = 1, 4 do
      java("java" .. i, { turns = 25, inside = 0.001, together = 1 })
      ours("ours" .. i, { turns = 25, inside = 0.001, together = 1, grant_lease = 2 })
    end
    others:begin(START_UP)
    local from = process.now()
    others:assert_turns(200, START_UP)
    print(("\n200 turns in %.1f s"):format(process.now() - from))
    assert.equal(0, server:cli("EXISTS", LIST, TIMEOUTS))
  end)
end)
