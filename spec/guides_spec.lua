-- What docs/how-to/from and docs/faq.md say about other libraries on the same key, tested with the
-- commands that these send.

local files = require "spec.support.files"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local world = require("spec.support.world").new()

before_each(world.open)
after_each(world.close)

-- Acquires the lock as redis-py, python-redis-lock and node-redlock do.
local function set_nx(server, key, value)
  return server:cli("SET", key, value, "NX", "PX", 30000) == "OK"
end
local DELETE_OWN = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"
local function delete_own(server, key, value)
  return server:cli("EVAL", DELETE_OWN, 1, key, value) == 1
end

describe("a mutex", function()
  it("excludes locks set with SET NX PX as part of a multi-lock", function()
    local client = world.client()
    local both = holdfast.multi_lock { client:mutex("a"), client:mutex("b") }
    assert.is_true(set_nx(world.server, "b", "node"))
    assert.equal("busy", select(3, both:acquire(0)))
    assert.equal(0, world.cli("EXISTS", "a"))
    assert.is_true(delete_own(world.server, "b", "node"))
    assert(both:acquire(0))
    assert.same({ false, false }, { set_nx(world.server, "a", "node"),
      set_nx(world.server, "b", "node") })
    assert(both:release())
  end)
end)

describe("in a quorum", function()
  local servers, client

  before_each(function()
    local urls
    servers, urls = redis.several(3)
    client = holdfast.new { servers = urls, mode = "quorum" }
  end)
  after_each(function()
    client:close()
    for _, server in ipairs(servers) do server:stop() end
  end)

  -- → on how many servers a Redlock gets its lock
  local function redlock()
    local votes = 0
    for _, server in ipairs(servers) do
      votes = votes + (set_nx(server, "invoice", "redlock") and 1 or 0)
    end
    return votes
  end

  -- Acquires a Redisson lock on one server, as RedissonRedLock does on each.
  local TRY_LOCK = [[
    if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
      return redis.call('PTTL', KEYS[1])
    end
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    return redis.call('PEXPIRE', KEYS[1], ARGV[1]) and nil
  ]]

  -- → on how many servers a RedissonRedLock gets its lock
  local function redisson()
    local votes = 0
    for _, server in ipairs(servers) do
      local busy = server:cli("EVAL", TRY_LOCK, 1, "stock", 30000, "java:1")
      votes = votes + (busy and 0 or 1)
    end
    return votes
  end

  it("a lock excludes a RedissonRedLock, and is excluded by it", function()
    local lock = client:lock("stock")
    assert.equal(3, redisson())
    assert.equal("busy", select(3, lock:acquire(0)))
    for _, server in ipairs(servers) do server:cli("DEL", "stock") end
    assert(lock:acquire(0))
    assert.is_true(redisson() < 2)
    assert(lock:release())
  end)

  it("a mutex excludes a Redlock, and is excluded by it", function()
    local mutex = client:mutex("invoice")
    assert(mutex:acquire(0))
    assert.is_true(redlock() < 2)
    local function end_redlock()
      for _, server in ipairs(servers) do delete_own(server, "invoice", "redlock") end
    end
    end_redlock()
    assert(mutex:release())
    -- a server that was too slow for the majority may get the mutex's commands after the release
    assert.truthy(process.wait_until(function()
      local votes = redlock()
      if votes < 3 then end_redlock() end
      return votes == 3
    end, 20))
    assert.is_nil((mutex:acquire(0)))
    assert.equal("conflict", select(3, client:lock("invoice"):acquire(0)))
    end_redlock()
    assert.truthy(process.wait_until(function() return mutex:acquire(0) end, 20))
    assert(mutex:release())
  end)
end)

describe("the replacement for @Idempotent in the guide", function()
  local idempotent, client

  -- Loads the page's function, without its examples.
  before_each(function()
    local page = files.read "docs/how-to/from/idempotent.md"
    local code = page:match("```lua\n(.-)\n%-%- @Idempotent%(key = \"#order.id\"")
    client = world.client()
    local environment = setmetatable({ require = function()
      return { new = function() return client end }
    end }, { __index = _G })
    local load = loadstring or load
    local chunk = assert(load(code .. " return idempotent", "guide", "t", environment))
    if setfenv then setfenv(chunk, environment) end
    idempotent = chunk()
  end)
  after_each(function() world.cli("FLUSHALL") end)

  local function by_id(order) return "pay:" .. order.id end

  local function paying(attributes)
    local runs = 0
    attributes.key = attributes.key or by_id
    return idempotent(attributes, function(_, fails)
      runs = runs + 1
      if fails then error("no luck", 0) end
      return runs
    end)
  end

  it("derives the key from the arguments", function()
    local pay = paying {}
    assert.equal(1, pay { id = 1 })
    assert.equal(2, pay { id = 2 })
    assert.same({ n = 3, nil, select(2, pay { id = 1 }), "duplicate" }, { n = 3, pay { id = 1 } })
    local function joined(a, b) return a .. "_" .. b end
    local two = idempotent({ key = joined }, function(a, b) return a .. b end)
    assert.same({ "xy", "xz" }, { (two("x", "y")), (two("x", "z")) })
    assert.equal("duplicate", select(3, two("x", "y")))
  end)

  it("keeps the key for expireTime in timeUnit after a success", function()
    local ms = { MILLISECONDS = 1, SECONDS = 1e3, MINUTES = 6e4, HOURS = 36e5, DAYS = 864e5 }
    for unit, size in pairs(ms) do
      assert.equal(1, paying { expireTime = 200, timeUnit = unit } { id = unit })
      local left, all = world.cli("PTTL", "pay:" .. unit), 200 * size
      assert.is_true(left <= all and left > all - 20000, unit .. left)
    end
    local pay = paying { expireTime = 50, timeUnit = "MILLISECONDS" }
    assert.equal(1, pay { id = 1 })
    assert(process.wait_until(function() return pay { id = 1 } == 2 end, 20))
    assert.equal(1, paying {} { id = "default" })
    assert.is_true(world.cli("PTTL", "pay:default") <= 1000)
  end)

  it("refuses a duplicate with the message in info", function()
    local pay = paying { info = "请勿重复提交", expireTime = 60 }
    assert.equal(1, pay { id = 1 })
    assert.same({ n = 3, nil, "请勿重复提交", "duplicate" }, { n = 3, pay { id = 1 } })
  end)

  it("with delKey frees the key after a success, but not while the function runs", function()
    local pay
    pay = idempotent({ key = by_id, delKey = true, expireTime = 60 }, function(order, again)
      return again and select(3, pay(order)) or "paid"
    end)
    assert.equal("duplicate", (pay({ id = 1 }, true)))
    assert.equal("paid", (pay { id = 1 }))
    assert.equal("paid", (pay { id = 1 }))
  end)

  it("frees the key after an exception", function()
    local pay = paying { expireTime = 60 }
    assert.has_error(function() pay({ id = 1 }, true) end, "no luck")
    assert.equal(2, pay { id = 1 })
    assert.equal("duplicate", select(3, pay { id = 1 }))
  end)
end)
