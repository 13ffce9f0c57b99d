-- Semaphores whose permits have no lease. What latches have in common with them is tested in
-- channel_waits_spec.lua.

local fails = require "spec.support.fails"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"
local resty = require "spec.support.resty"

local world = require("spec.support.world").new()

local KEY = "pool"
local CHANNEL = "redisson_sc:{pool}"
local LATE = 20 -- seconds; longer than any of these specs waits for a message

-- Starts a process that waits for `count` permits (1), and rechecks late.
local function waiter(count)
  return world.program { args = { world.server:url(), LATE, count or 1 }, code = [[
    local client = require("holdfast").new { url = arg[1], grant_lease = tonumber(arg[2]) }
    print("result", client:plain_semaphore("pool"):acquire(tonumber(arg[3]), 30))
    client:close() ]] }
end

local function listeners(count, channel)
  assert(process.wait_until(function()
    return world.cli("PUBSUB", "NUMSUB", channel or CHANNEL)[2] == (count or 1)
  end, 10), "nobody listens")
  process.sleep(0.05) -- for the recheck after the subscription
end

-- Asserts that the child gets its permits too early for one of its own rechecks.
local function gets_it(child)
  local from = process.now()
  assert(child:wait(40), child:output())
  assert.matches("result\ttrue\n", child:output())
  assert.is_true(process.now() - from < LATE / 2, child:output())
end

local function listen(channel)
  local java = assert(resp.connect { path = world.server.path })
  java:call("SUBSCRIBE", channel or CHANNEL)
  return java
end

local function free() return tonumber(world.cli("GET", KEY)) end

local function comes_to(count)
  assert(process.wait_until(function() return free() == count end, 10),
    ("%s permits are free"):format(free()))
end

describe("a plain semaphore", function()
  before_each(world.open)
  after_each(function()
    if world.server.process:status() == nil then world.cli("DEL", KEY) end
    world.close()
  end)

  it("is stored in Redisson's format, and announces how many permits are free", function()
    local pool, java = world.client():plain_semaphore(KEY), listen()
    local function announced() return tonumber(java:receive()[3]) end -- as Redisson reads it
    assert.is_true(pool:set(3))
    assert.equal(3, announced())
    assert.same({ "3", -1 }, { world.cli("GET", KEY), world.cli("PTTL", KEY) })
    assert.is_true(pool:acquire() and pool:acquire(2))
    assert.equal("0", world.cli("GET", KEY))
    assert.is_true(pool:release(2))
    assert.equal(2, announced())
    assert.equal(-1, pool:add(-3))
    assert.equal(0, pool:add(1))
    assert.is_true(pool:release())
    assert.equal(1, announced()) -- never a number below 1
    java:close()
  end)

  it("gives out all permits that it has, and gives a call all it requests or none", function()
    local pool = world.client():plain_semaphore(KEY)
    assert.same({ 0, 0, false }, { pool:available(), pool:drain(), pool:delete() })
    fails("busy", pool:try_acquire())
    assert.is_true(pool:set(3))
    assert.is_false(pool:set(5))
    assert.is_true(pool:try_acquire(2))
    assert.matches("too few permits are free %(1 of the 2 requested%)",
      fails("busy", pool:acquire(2, 0)))
    assert.same({ 1, 1 }, { pool:available(), pool:drain() })
    assert.same({ 0, true, 5 }, { pool:available(), pool:release(5), pool:available() })
    assert.same({ 7, 5 }, { pool:add(2), pool:add(-2) })
    assert.same({ true, 0, KEY }, { pool:delete(), pool:available(), pool:key() })
    assert.same({ true, false, 0 }, { pool:set(0), pool:set(1), pool:available() })
    fails("busy", pool:try_acquire())
  end)

  it("wakes its waiters when permits are released, added or set", function()
    local pool = world.client():plain_semaphore(KEY)
    for _, way in ipairs { "release", "add", "set" } do
      if way == "set" then world.cli("DEL", KEY) end
      local child = waiter()
      listeners()
      assert.is_nil(child:status())
      assert(pool[way](pool, 1))
      gets_it(child)
      assert.equal(0, free())
    end
  end)

  it("serves a waiter when Redisson releases, but not on a forged message", function()
    local child = waiter()
    listeners()
    for _, text in ipairs { "1", "0", "-1", "nonsense" } do world.cli("PUBLISH", CHANNEL, text) end
    process.sleep(0.2)
    assert.is_nil(child:status())
    world.cli("PUBLISH", CHANNEL, world.cli("INCRBY", KEY, 1))
    gets_it(child)
  end)

  it("undoes an acquire that got no reply, but completes a release that got none", function()
    local client = world.client { command_timeout = 0.2 }
    local pool = client:plain_semaphore(KEY)
    assert(pool:set(3))
    for _ = 1, 2 do
      world.server:kill("STOP")
      fails("unreachable", pool:acquire(2, 0.3))
      fails("unreachable", pool:drain())
      world.server:kill("CONT")
      comes_to(3)
      process.wait_until(function() return client:stats().holds == 0 end, 10)
      assert.equal(3, free())
      world.server:kill("STOP")
      assert.matches("continues in the background", fails("unreachable", pool:release()))
      world.server:kill("CONT")
      comes_to(4)
      assert.equal(3, pool:add(-1))
    end
    assert.is_true(client:stats().undone >= 2) -- only calls that were sent are undone
  end)

  it("treats large and negative numbers, keys with a TTL and keys with braces as Redisson does", function()
    local client = world.client()
    local pool = client:plain_semaphore(KEY)
    world.cli("SET", KEY, "9007199254740000")
    assert.is_true(pool:acquire(1000000000))
    assert.equal(9007198254740000, pool:available())
    world.cli("SET", KEY, "-3")
    fails("busy", pool:try_acquire())
    assert.same({ -3, 0, false }, { pool:available(), pool:drain(), pool:set(2) })
    assert.is_true(pool:release(4))
    world.cli("SET", KEY, "2", "PX", 50000)
    assert(pool:acquire() and pool:release() and pool:drain())
    assert.is_true(world.cli("PTTL", KEY) > 0)
    local java = listen "redisson_sc:a{b}"
    local braces = client:plain_semaphore "a{b}"
    assert(braces:set(1))
    assert.equal("01", java:receive()[3])
    assert(braces:delete())
    java:close()
  end)

  describe("with_permit", function()
    it("releases the permits after the function, however the function ends", function()
      local pool = world.client():plain_semaphore(KEY)
      assert(pool:set(3))
      assert.same({ 2, 7, nil, 8, n = 4 }, (function(...)
        return { n = select("#", ...), ... }
      end)(pool:with_permit(function(...) return pool:available(), ... end,
        7, nil, 8)))
      assert.is_true(pool:with_permit({ count = 3 }, function()
        assert.equal(0, pool:available())
        assert.equal("busy", (select(3, pool:with_permit({ wait = 0 }, error))))
      end))
      local ok, err = pcall(pool.with_permit, pool, { count = 2 },
        function() error({ "mine" }) end)
      assert.same({ false, { "mine" } }, { ok, err })
      assert.equal(3, free())
    end)

    it("returns the function's results even if the release is completed later", function()
      local pool = world.client({ command_timeout = 0.1 }):plain_semaphore(KEY)
      assert(pool:set(3))
      assert.equal("mine", pool:with_permit({ count = 2 }, function()
        world.cli("CLIENT", "PAUSE", 300, "ALL")
        return "mine"
      end))
      comes_to(3)
    end)

    it("returns closed if the function closed the client, and leaves the permits taken", function()
      local client = world.client()
      local pool = client:plain_semaphore(KEY)
      assert(pool:set(3))
      local done, _, code, results = pool:with_permit({ count = 2 }, function()
        client:close()
        return "mine", nil
      end)
      assert.same({ nil, "closed", { "mine", nil, n = 2 } }, { done, code, results })
      assert.equal(1, free())
    end)

    it("releases the permits of a coroutine that is closed #puc", function()
      if not coroutine.close then return end
      local pool = world.client():plain_semaphore(KEY)
      assert(pool:set(3))
      local thread = coroutine.create(function()
        pool:with_permit({ count = 2 }, coroutine.yield)
      end)
      assert(coroutine.resume(thread))
      assert.equal(1, free())
      assert(coroutine.close(thread))
      comes_to(3)
    end)
  end)
end)

describe("a plain semaphore whose server was restarted", function()
  it("receives a release that was begun during the outage, which close waits for", function()
    local server = redis.start { persist = true }
    local client = holdfast.new(server:url())
    assert(client:plain_semaphore(KEY):set(1))
    local child = process.lua { args = { server:url(), server.path }, code = [[
      local client = require("holdfast").new { url = arg[1], command_timeout = 30 }
      local pool, process = client:plain_semaphore "pool", require "spec.support.process"
      local sys = require "spec.support.sys"
      io.stdout:setvbuf "line"
      assert(pool:acquire())
      print "acquired"
      process.wait_until(function()
        local fd = sys.connect_unix(arg[2])
        return not fd or not sys.close(fd)
      end, 10)
      print("release", select(3, pool:release()))
      local began = process.now()
      client:close()
      print(process.now() - began < 15 and "closed" or "late") ]] }
    assert(process.wait_until(function() return child:output():find "acquired" end, 10), child:output())
    server:kill("KILL")
    assert(process.wait_until(function() return child:output():find "release%s+unreachable" end, 10),
      child:output())
    assert.is_nil(child:status())
    server:restart(true)
    assert(child:wait(20), child:output())
    assert.matches("closed", child:output())
    assert.equal(1, client:plain_semaphore(KEY):available())
    client:close()
    server:stop()
  end)
end)

if not resty.is_there() then return end

describe("a plain semaphore under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  it("releases the permits of a request that ended during its acquire", function()
    resty.start { init = "function POOL() return CLIENT:plain_semaphore('pool', { wait = 30 }) end",
      server = resty.handler("/dies", [[
        ngx.thread.spawn(function() POOL():acquire(2) end)
        ngx.sleep(0.1)
        ngx.exit(204)
      ]]) .. resty.handler("/give", "SAY(POOL():release(2))") }
    local server = resty.server
    assert.equal(204, resty.front:get("/dies").status)
    assert.equal("true", resty.say "/give")
    process.sleep(0.3)
    assert(process.wait_until(function() return server:cli("GET", "pool") == "2" end, 10))
    process.sleep(1.5)
    assert.equal("2", server:cli("GET", "pool"))
    server:cli("DEL", "pool")
  end)
end)
