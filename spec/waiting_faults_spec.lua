-- Waiting for a lock while the server, its connections and its keys are faulty.

local crowd = require "spec.support.crowd"
local fails = require "spec.support.fails"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local KEY = "crowd"
local QUEUE = crowd.queue_of(KEY)
local TOKEN = ("redisson_lock_token:{%s}"):format(KEY)
-- Seconds. GRANT does not end too early on a busy machine. With BRIEF, a missed message costs
-- little time.
local GRANT, BRIEF = 10, 2

local server, others, client, lock

local names = crowd.names

local function assert_turns(...) return others:assert_turns(...) end

local function prepare(options, grant_lease)
  server = redis.start(options)
  others = crowd.new(server, KEY)
  client = holdfast.new { url = server:url(), grant_lease = grant_lease or GRANT }
  lock = client:lock(KEY)
end

local function clean_up()
  client:close()
  others:clear()
end

local function kill_connections()
  local self = server:cli("CLIENT", "ID")
  for line in server:cli("CLIENT", "LIST"):gmatch("[^\n]+") do
    local id = line:match("^id=(%d+)")
    if tonumber(id) ~= self then server:cli("CLIENT", "KILL", "ID", id) end
  end
end

describe("a crowd of waiters acquires the lock one at a time", function()
  after_each(clean_up)

  local function line_up(options, grant_lease, given)
    prepare(options, given or grant_lease)
    assert(lock:acquire(0))
    others:line_up(names(6), { inside = 0.01, grant_lease = grant_lease })
  end

  -- After the fault, only the crowd's processes hold the lock, and all get it long before their
  -- wait ends.
  local function assert_all_in() return assert_turns(6, 20) end

  -- All get it by messages alone: no waiter rechecks by the clock.
  local function assert_all_notified()
    local start = process.now()
    local history = assert_turns(6)
    assert.is_true(process.now() - start < GRANT * 0.8)
    return history
  end

  local function wait_subscribed()
    assert.truthy(process.wait_until(function()
      return #server:cli("PUBSUB", "CHANNELS", "*") == 6
    end, 20))
  end

  it("after FLUSHALL", function()
    line_up(nil, BRIEF)
    server:cli("FLUSHALL")
    assert_all_in()
  end)

  it("after SCRIPT FLUSH", function()
    line_up(nil, GRANT)
    server:cli("SCRIPT", "FLUSH")
    assert(lock:release())
    assert.same(names(6), assert_all_notified().names)
  end)

  it("in the original order, after the loss of every connection", function()
    line_up(nil, GRANT)
    kill_connections()
    wait_subscribed()
    assert(lock:release())
    assert.same(names(6), assert_all_notified().names)
  end)

  it("after the loss of every connection at the moment of the release", function()
    line_up(nil, GRANT, BRIEF)
    kill_connections()
    assert(lock:release())
    assert_all_notified()
  end)

  it("in the original order, after the server restarted with its data", function()
    line_up({ persist = true }, GRANT)
    server:kill()
    server:restart(true)
    wait_subscribed()
    assert(lock:release())
    assert.same(names(6), assert_all_notified().names)
  end)

  it("after the server restarted without its data", function()
    line_up(nil, BRIEF)
    server:restart()
    assert_all_in()
  end)

  it("after the server was paused for 3 s", function()
    line_up(nil, BRIEF)
    others:add("late", { stubborn = 1 }) -- the server may have closed its first connection
    server:cli("CLIENT", "PAUSE", 3000)
    lock:release() -- the answer may come too late
    assert_turns(7, 20)
  end)

  it("after their queue was deleted", function()
    line_up(nil, BRIEF)
    server:cli("DEL", QUEUE)
    assert(lock:release())
    assert_all_in()
  end)

  it("after the key was deleted under its holder", function()
    line_up(nil, BRIEF)
    server:cli("DEL", KEY)
    assert.same(names(6), assert_all_in().names)
  end)

  it("after the token counter had another type for a while", function()
    line_up(nil, GRANT)
    server:cli("DEL", TOKEN)
    server:cli("RPUSH", TOKEN, "x")
    assert(lock:release())
    assert.is_nil(others:finish())
    for _, worker in ipairs(others.workers) do
      assert.matches("failed conflict", worker:output())
    end
    server:cli("DEL", TOKEN)
    assert(lock:acquire(0)) assert(lock:release())
  end)
end)

describe("a crowd that acquires again and again loses no update", function()
  after_each(clean_up)

  local CALM = 2.5 -- seconds without a fault, for the processes to end and remove their names

  -- Runs six processes for `seconds`, with a fault every 50 ms.
  local function under(seconds, fault, options)
    prepare(options)
    for _, name in ipairs(names(6)) do
      others:add(name, { seconds = seconds + CALM, inside = 0.001, wait = 10, stubborn = 1,
        grant_lease = 1 })
    end
    for _, worker in ipairs(others.workers) do assert(worker:wait_output("ready", 20)) end
    local stop = process.now() + seconds
    while process.now() < stop do
      fault()
      process.sleep(0.05)
    end
    local history = others:assert_turns()
    for _, name in ipairs(names(6)) do assert.is_true(others:turns_of(name) > 0, name) end
    crowd.assert_rising(history.tokens)
    return history
  end

  it("while scripts are flushed", function()
    under(0.6, function() server:cli("SCRIPT", "FLUSH") end)
  end)

  it("while connections are killed", function() under(1, kill_connections) end)

  it("while subscriber connections are killed", function()
    under(0.8, function() server:cli("CLIENT", "KILL", "TYPE", "pubsub") end)
  end)

  it("while the server is paused", function()
    under(0.8, function() server:cli("CLIENT", "PAUSE", 30) end)
  end)

  it("while the server restarts with its data", function()
    under(1.5, function()
      process.sleep(0.2)
      server:kill()
      server:restart(true)
    end, { persist = true })
  end)
end)

describe("a wait", function()
  before_each(function() prepare() end)
  after_each(clean_up)

  local function assert_conflict(wait)
    local before = process.now()
    fails("conflict", lock:acquire(wait))
    assert.is_true(process.now() - before < 10)
  end

  it("fails with conflict quickly 500 times in a row, while the watchdog cleans up", function()
    server:cli("HSET", KEY, "somebody:1", 1)
    for i = 1, 500 do assert_conflict(i % 2 * 20) end
    server:cli("DEL", KEY)
  end)

  it("fails with conflict if the queue's key has another type", function()
    for _, command in ipairs { { "SET", QUEUE, 1 }, { "RPUSH", QUEUE, 1 },
        { "HSET", QUEUE, 1, 1 } } do
      local holder = holdfast.new(server:url())
      local held = assert(holder:lock(KEY):acquire(0))
      server:cli(command)
      assert_conflict(20)
      assert(held:release())
      assert.equal(0, server:cli("EXISTS", KEY))
      assert_conflict(0)
      assert.equal(0, server:cli("EXISTS", KEY))
      server:cli("DEL", QUEUE)
      holder:close()
    end
  end)

  it("acquires the free lock behind a queue of dead waiters", function()
    for i = 1, 20 do
      server:cli("ZADD", QUEUE, i, crowd.member(("%08x-0000-8000-8000-000000000000"):format(i), 1))
    end
    local before = process.now()
    assert(lock:acquire(GRANT))
    assert.is_true(process.now() - before < GRANT / 2)
    assert.equal(0, server:cli("EXISTS", QUEUE))
    assert(lock:release())
  end)

  it("acquires the free lock behind queue entries that are not waiters", function()
    local function waits()
      for _, each in ipairs(server:cli("ZRANGE", QUEUE, 0, -1)) do
        if each:find("^1l%x+%-") then return true end
      end
    end
    local half = ("0"):rep(8) .. "-0000-8000-8000-000000000000:x:y z"
    for _, member in ipairs { "", "x", "foreign", "1f 0 0 0 0", "1f 6 0 0 0", ("x"):rep(100),
        half } do
      for _, score in ipairs { "-inf", -1, 0, 0.5, 1, "+inf" } do
        server:cli("ZADD", QUEUE, score, member)
        assert(lock:acquire(20))
        server:cli("ZADD", QUEUE, score, member)
        assert(lock:release()) assert(lock:acquire(20))
        server:cli("ZADD", QUEUE, score, member)
        others:add("next", { grant_lease = GRANT })
        if score ~= "+inf" then assert(process.wait_until(waits, 20)) end -- no place follows +inf
        assert(lock:release())
        assert.is_nil(others:finish())
        assert.matches("done 1", others.workers[#others.workers]:output())
        others.workers = {}
        server:cli("DEL", QUEUE)
      end
    end
  end)

  it("never becomes a busy loop, whatever is done to its keys", function()
    server:cli("HSET", KEY, "somebody:1", 1)
    server:cli("PEXPIRE", KEY, 30000)
    local lease = 0.5
    others:line_up(names(3), { wait = 60, grant_lease = lease })
    local wreck = {
      function() server:cli("DEL", QUEUE) end,
      function()
        server:cli("ZADD", QUEUE, 0, crowd.member(("0"):rep(8) .. "-0000-8000-8000-000000000000",
          1))
      end,
      function() server:cli("ZADD", QUEUE, -1, "foreign") end,
      function() server:cli("PEXPIRE", KEY, 5000) end,
      function() server:cli("HSET", KEY, "somebody:2", 1) end,
      function() server:cli("CLIENT", "KILL", "TYPE", "pubsub") end,
    }
    for i, wreckage in ipairs(wreck) do
      wreckage()
      local commands, seconds = crowd.commands_in(server, 0.4)
      -- rechecks, each with a new subscription
      local most = 3 * 2 * (seconds / (lease * 0.9) + 1) + 6
      assert.is_true(commands <= most, ("%d: %d commands"):format(i, commands))
    end
    server:cli("DEL", KEY)
    assert_turns(3)
  end)

  it("fails with conflict, instead of hanging, if the key loses its TTL", function()
    assert(lock:acquire(0))
    others:line_up(names(2), { wait = 60, grant_lease = BRIEF })
    server:cli("PERSIST", KEY)
    assert.is_nil(others:finish(30))
    for _, worker in ipairs(others.workers) do
      assert.matches("failed conflict", worker:output())
    end
    assert(lock:release())
  end)
end)

describe("an acquire given up before its reply", function()
  before_each(function() prepare() end)
  after_each(clean_up)

  for what, options in pairs { ["held by a coroutine"] = {},
      ["held by a shared owner"] = { owner = "job" } } do
    -- The server executes the acquire when its caller has given up.
    local function give_up()
      local token = server:cli("GET", TOKEN)
      server:cli("CLIENT", "PAUSE", 60000, "WRITE")
      assert.equal("unreachable", select(3, lock:acquire(0.01)))
      server:cli("CLIENT", "UNPAUSE")
      assert.truthy(process.wait_until(function() return server:cli("GET", TOKEN) ~= token end, 20))
    end

    it("leaves no lock " .. what, function()
      lock = client:lock(KEY, options)
      assert(lock:acquire(0)) assert(lock:release())
      give_up()
      assert.truthy(process.wait_until(function() return server:cli("EXISTS", KEY) == 0 end, 20))
      assert(lock:acquire(0)) assert(lock:release())
      assert.equal(0, server:cli("EXISTS", KEY))
    end)
  end
end)
