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
    process.eventually(function() return #server:cli("PUBSUB", "CHANNELS", "*") == 6 end, 20)
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

  it("in the original order, after the server restarted with its data", function()
    line_up({ persist = true }, GRANT)
    server:kill()
    server:restart(true)
    wait_subscribed()
    assert(lock:release())
    assert.same(names(6), assert_all_notified().names)
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

  it("while connections are killed", function() under(1, kill_connections) end)

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
