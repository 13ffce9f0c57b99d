-- Semaphores with leased permits.

local fails = require "spec.support.fails"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"
local resty = require "spec.support.resty"
local world = require("spec.support.world").new()

local KEY = "pool"
local LEASES = "{pool}:timeout"
local QUEUE = "holdfast_queue:{pool}"
local CHANNEL = "redisson_sc:{pool}"
local GRANT = 10 -- seconds; does not end too early on a busy machine

-- Acquires `count` permits once, uses them for `inside` seconds, and writes a line "name permits
-- token" to the list "test:log": how many permits are acquired at that moment.
local WORKER = [[
local url, name, count, inside, grant_lease = arg[1], arg[2], tonumber(arg[3]), tonumber(arg[4]), tonumber(arg[5])
local server = assert(require("spec.support.resp").connect { path = url:match("^unix://(.*)$") })
local client = require("holdfast").new { url = url, grant_lease = grant_lease }
local permit = assert(client:semaphore("pool", { permits = 3, wait = 30 }):acquire(count))
local out = server:call("INCRBY", "test:out", count)
server:call("RPUSH", "test:log", ("%s %d %s"):format(name, out, permit:token_text()))
require("spec.support.sys").sleep(inside)
server:call("DECRBY", "test:out", count)
assert(permit:release())
client:close()
]]

local function new(options)
  options = options or {}
  options.grant_lease = options.grant_lease or GRANT
  return world.client(options)
end

local function work(name, options)
  options = options or {}
  return world.run(WORKER, name, options.count or 1, options.inside or 0, GRANT)
end

local function waiters() return world.cli("ZCOUNT", QUEUE, "(0", "+inf") end

local function wait_queued(count)
  assert(process.wait_until(function() return waiters() == count end, 20), "they do not queue")
end

local function finish(worker)
  local how, code = worker:wait(40)
  assert.same({ "exit", 0 }, { how, code }, worker:output())
end

-- → names in order, the most permits that were acquired at once, tokens
local function history()
  local names, most, tokens = {}, 0, {}
  for i, line in ipairs(world.cli("LRANGE", "test:log", 0, -1)) do
    local name, out, token = line:match("^(%S+) (%S+) (%S+)$")
    names[i], tokens[i], most = name, tonumber(token), math.max(most, tonumber(out))
  end
  return names, most, tokens
end

describe("a semaphore", function()
  before_each(world.open)
  after_each(function()
    world.cli("DEL", KEY, "test:log", "test:out")
    world.close()
  end)

  it("is stored in Redisson's format", function()
    local pool = new():semaphore(KEY, { permits = 4, lease = 20 })
    local one = assert(pool:acquire())
    local two = assert(pool:acquire(2))
    assert.same({ "1", -1 }, { world.cli("GET", KEY), world.cli("PTTL", KEY) })
    local leases, now = world.cli("ZRANGE", LEASES, 0, -1, "WITHSCORES"),
      world.cli("TIME")[1] * 1000
    assert.equal(6, #leases)
    for i = 1, 5, 2 do
      assert.equal(16, #leases[i])
      local left = leases[i + 1] - now
      assert.is_true(left > 18000 and left < 22000, leases[i + 1])
    end
    assert.is_true(two:token() > one:token())
    assert.equal(("%.0f"):format(two:token()), two:token_text())
    assert.same({ 1, 2 }, { one:count(), two:count() })
    assert.is_true(one:release() and two:release())
    assert.same({ "4", 0 }, { world.cli("GET", KEY), world.cli("EXISTS", LEASES) })
  end)

  it("returns its key, permits, waiters and lease", function()
    local pool = new():semaphore(KEY, { permits = 4, lease = 20 })
    assert.equal(KEY, pool:key())
    assert.same({ permits = 0, available = 0, held = 0, waiters = 0 }, pool:info())
    local permit = assert(pool:acquire(3))
    local info = pool:info()
    assert.is_true(info.ttl > 18 and info.ttl <= 20)
    info.ttl = nil
    assert.same({ permits = 4, available = 1, held = 3, waiters = 0, token = permit:token() }, info)
    assert.same({ 4, 1 }, { pool:permits(), pool:available() })
    assert.is_true(permit:is_held() and permit:remaining() > 10)
    assert.equal(KEY, permit:key())
    assert.matches("^holdfast.permit: pool %(held, ", tostring(permit))
    permit:release()
    assert.is_false(permit:is_held())
    assert.same({ 0, nil, nil }, { permit:remaining(), permit:token(), permit:lost() })
    assert.matches("not_held", select(3, permit:release()))
  end)

  it("has no permits before they are set, which its busy message suggests, and then serves its waiters", function()
    local pool = new():semaphore(KEY)
    local none = "too few permits are free %(set the total with the permits option or set_permits%)"
    assert.matches(none, fails("busy", pool:acquire(1, 0)))
    assert(pool:set_permits(0))
    assert.matches(none, fails("busy", pool:acquire(1, 0)))
    local worker = world.run [[
      local client = require("holdfast").new(arg[1])
      assert(client:semaphore("pool"):acquire(1, 10)):release()
      client:close() ]]
    wait_queued(1)
    assert(pool:set_permits(1))
    finish(worker)
  end)

  it("refuses a key in braces whose leases another key would use", function()
    local client = new()
    local pool = client:semaphore("{pool}", { permits = 2 })
    local message = fails("conflict", pool:acquire(1, 0))
    assert.matches('"{pool}".*would clash on the server with the same key without its braces', message)
    fails("conflict", pool:set_permits(3))
    fails("conflict", pool:available())
    assert.equal(0, world.cli("EXISTS", "{pool}"))
    assert(assert(client:semaphore("{pool}:1", { permits = 1 }):acquire(1, 0)):release())
    for _, key in ipairs(world.cli("KEYS", "*:1")) do world.cli("DEL", key) end
  end)

  it("has the number of permits that was last set, whatever its options say", function()
    local pool = new():semaphore(KEY, { permits = 3 })
    local message = fails("conflict", pool:acquire(4, 0))
    assert.matches("the semaphore's total is 3, fewer than the 4 permits requested", message)
    fails("conflict", pool:try_acquire(4))
    fails("conflict", pool:with_permit({ count = 4 }, error))
    local later = new():semaphore(KEY, { permits = 9 })
    fails("conflict", later:acquire(4))
    assert.equal(3, later:permits())
    assert(pool:set_permits(5))
    assert(assert(pool:acquire(5, 0)):release())
    assert(assert(pool:try_acquire(5)):release())
    assert.equal("in", assert(pool:with_permit({ count = 5 }, function() return "in" end)))
    fails("conflict", pool:acquire(6, 0))
    assert(pool:set_permits(0))
    fails("busy", pool:try_acquire())
    assert.equal(0, pool:permits())
  end)

  it("serves waiters in order of arrival, and lets none pass a large request", function()
    local pool = new():semaphore(KEY, { permits = 3 })
    local a, b, c = assert(pool:acquire()), assert(pool:acquire()), assert(pool:acquire())
    local big = work("big", { count = 3, inside = 0.05 })
    wait_queued(1)
    local small = {}
    for i = 1, 3 do
      small[i] = work("small" .. i, { inside = 0.02 })
      wait_queued(1 + i)
    end
    fails("busy", pool:try_acquire())
    assert(a:release())
    fails("busy", pool:try_acquire())
    assert(b:release())
    assert.equal(4, waiters())
    assert(c:release())
    finish(big)
    for i = 1, 3 do finish(small[i]) end
    local names, most, tokens = history()
    assert.same({ "big", 3 }, { names[1], most })
    local token = {}
    for i, name in ipairs(names) do token[name] = tokens[i] end
    assert.is_true(token.big < token.small1 and token.small1 < token.small2
      and token.small2 < token.small3)
  end)

  it("ends a permit at its explicit lease, which can be changed, and reports the loss", function()
    local reported
    local pool = new():semaphore(KEY, { permits = 1, lease = 5, on_lost = function(permit, reason)
      reported = { permit:count(), reason }
    end })
    local permit, other = assert(pool:acquire()), new():semaphore(KEY)
    assert(permit:extend(20))
    assert.is_true(permit:remaining() > 18)
    assert(permit:extend(1))
    local next_permit = assert(other:acquire(1, 20))
    assert.same({ false, "expired", { 1, "expired" } }, { permit:is_held(), permit:lost(), reported })
    fails("lost", permit:release())
    assert.is_true(next_permit:is_held() and next_permit:release())
    assert.equal("1", world.cli("GET", KEY))
  end)

  it("reports a loss when its data was deleted", function()
    local client = new { lease = 3 }
    local pool = client:semaphore(KEY, { permits = 2 })
    local permit = assert(pool:acquire())
    world.cli("FLUSHALL")
    assert(process.wait_until(function() return permit:lost() end, 20))
    assert.equal("deleted", permit:lost())
    local again = assert(pool:acquire(2, 20))
    fails("lost", permit:release())
    assert.is_true(again:is_held() and again:release())
    assert.equal("2", world.cli("GET", KEY))
  end)

  it("takes a permit back when its handle is collected", function()
    local pool = new():semaphore(KEY, { permits = 1 })
    do local _ = assert(pool:acquire()) end
    collectgarbage() collectgarbage()
    assert(assert(pool:acquire(1, 20)):release())
  end)

  it("has permits that any coroutine of the client can use and release", function()
    local pool = new():semaphore(KEY, { permits = 2 })
    local permit
    coroutine.wrap(function() permit = assert(pool:acquire()) end)()
    assert.is_true(permit:is_held())
    local second = assert(pool:acquire(1, 0))
    coroutine.wrap(function() assert(second:release()) end)()
    assert(permit:release())
  end)

  it("runs a function with permits in with_permit", function()
    local pool = new():semaphore(KEY, { permits = 3 })
    assert.same({ 2, "x" }, { pool:with_permit({ count = 2 }, function(permit, x)
      return permit:count(), x
    end, "x") })
    assert.is_true(pool:with_permit(function() assert.equal(2, pool:available()) end))
    local from = process.now()
    fails("busy", pool:with_permit({ count = 3 }, function()
      return pool:with_permit({ wait = 0 }, error)
    end))
    assert.is_true(process.now() - from < 5)
    assert.equal(3, pool:available())
    assert.has_error(function() pool:with_permit(function() error("oops", 0) end) end, "oops")
    assert.equal(3, pool:available())
    local results = { pool:with_permit(function() world.cli("FLUSHALL") return 7 end) }
    assert.same({ "lost", 7 }, { results[3], results[4][1] })
  end)

  it("serves a waiter at once when Redisson releases", function()
    local pool = new():semaphore(KEY, { permits = 1 })
    assert(pool:acquire()):release()
    world.cli("DECRBY", KEY, 1)
    world.cli("ZADD", LEASES, ("%d"):format((world.cli("TIME")[1] + 30) * 1000), "java000000000001")
    local worker = work "waits"
    wait_queued(1)
    process.eventually(function() return world.cli("PUBSUB", "NUMPAT") == 1 end)
    process.sleep(0.05)
    local from = process.now()
    world.cli("ZREM", LEASES, "java000000000001")
    world.cli("PUBLISH", CHANNEL, world.cli("INCRBY", KEY, 1))
    finish(worker)
    assert.is_true(process.now() - from < GRANT / 2)
  end)
end)

-- ---- where ----

describe("a semaphore in a cluster", function()
  local nodes, client

  before_each(function()
    nodes = require("spec.support.cluster").start { masters = 3, replicas = 0 }
    client = holdfast.new(nodes:url())
  end)

  after_each(function()
    client:close()
    nodes:stop()
  end)

  it("is stored and renewed on the node of its key, and follows its slot", function()
    local pool = client:semaphore("far", { permits = 2, lease = 1.5, watchdog = true })
    local permit = assert(pool:acquire(2))
    local node = nodes:node_of("far")
    assert.equal(2, node:cli("ZCARD", "{far}:timeout"))
    local other
    for _, master in ipairs(nodes:masters()) do other = master ~= node and master or other end
    nodes:move(nodes:slot("far"), other)
    process.sleep(2)
    assert.same({ nil, 2 }, { permit:lost(), other:cli("ZCARD", "{far}:timeout") })
    local second = holdfast.new(nodes:url())
    local waits = process.lua { args = { nodes:url() }, code = [[
      local client = require("holdfast").new(arg[1])
      assert(client:semaphore("far"):acquire(1, 20)):release()
      client:close() ]] }
    assert(process.wait_until(function() return pool:info().waiters == 1 end, 20))
    assert(permit:release())
    assert.same({ "exit", 0 }, { waits:wait(20) }, waits:output())
    assert.equal(2, second:semaphore("far"):available())
    second:close()
  end)

  it("notifies Redisson on the sharded channel", function()
    if redis.major() < 7 then return end
    local pool = client:semaphore("far", { permits = 1 })
    local permit = assert(pool:acquire())
    local java = assert(resp.connect { port = nodes:node_of("far").port })
    java:call("SSUBSCRIBE", "redisson_sc:{far}")
    assert(permit:release())
    assert.same({ "smessage", "redisson_sc:{far}", "1" }, java:receive())
    java:close()
  end)

  it("refuses a key with braces that are not a hash tag", function()
    fails("conflict", client:semaphore("a{}b", { permits = 1 }):acquire(1, 0))
  end)
end)

if not resty.is_there() then return end

describe("a semaphore under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  it("gives permits to requests, and frees those that a finished request left held", function()
    resty.start { workers = 2,
      init = "function POOL() return CLIENT:semaphore('pool', { permits = 2, wait = 10 }) end",
      server = resty.handler("/work", [[
        SAY(POOL():with_permit(function(permit)
          ngx.sleep(0.05)
          return permit:count()
        end))
      ]]) .. resty.handler("/forget", "SAY((POOL():acquire(2)):is_held())") .. resty.FINISH
        .. resty.handler("/info", [[
          local info = POOL():info()
          SAY(info.held, info.permits)
        ]]) }
    for _ = 1, 5 do assert.equal("1", resty.say "/work") end
    assert.equal("true", resty.say "/forget")
    resty.comes_to_say("/info", "0|2", 20)
    resty.server:cli("DEL", "pool")
  end)
end)
