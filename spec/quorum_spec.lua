-- A lock held by a majority of independent servers.

local holdfast = require "holdfast"
local crowd = require "spec.support.crowd"
local fails = require "spec.support.fails"
local leftovers = require "spec.support.leftovers"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local world = require("spec.support.world").new(false)

local unpack = table.unpack or unpack
local LEASE = 2 -- seconds

local servers

local function urls(list)
  local all = {}
  for i, server in ipairs(list or servers) do all[i] = server:url() end
  return all
end

local function quorum(opts)
  opts = opts or {}
  opts.servers = opts.servers or urls()
  opts.mode = "quorum"
  local client = holdfast.new(opts)
  world.clients[#world.clients + 1] = client
  return client
end

-- → how many servers have the key
local function standing(key) return redis.holding(servers, key) end

local function wait_standing(key, count)
  return process.wait_until(function() return standing(key) == count end, 20)
end

-- Sends the command to the first `count` servers.
local function tell(count, ...) for i = 1, count do servers[i]:cli(...) end end

-- Sends the signal to these servers, KILL by default.
local function signal(list, name) for _, i in ipairs(list) do servers[i]:kill(name) end end

-- Closes the clients first, and asserts that nothing is left on the servers.
local function leaves_nothing()
  for _, client in ipairs(world.clients) do client:close() end
  for i, server in ipairs(servers) do
    local left = server:is_running() and leftovers.on(server, false, 20)
    assert(not left, ("server %d: %s"):format(i, tostring(left)))
    server:stop()
  end
end

describe("a quorum", function()
  before_each(function()
    world.open()
    servers = redis.several(5)
  end)

  after_each(function()
    for _, server in ipairs(servers) do
      if server:is_running() then server:kill("CONT") end
    end
    leaves_nothing()
    world.close()
  end)

  it("acquires, re-enters, extends, checks and releases a lock on all servers", function()
    local lock, began = quorum():lock("k"), process.now()
    assert.equal(lock, assert(lock:acquire(1)))
    assert.truthy(wait_standing("k", 5))
    local token = lock:token()
    assert.is_true(token > 0)
    assert(lock:acquire())
    assert.same({ 2, token }, { lock:holds(), lock:token() })
    assert.is_true(lock:extend(20))
    assert.is_true(lock:remaining() > 15 and lock:remaining() <= 20)
    assert.is_true(lock:check())
    local info = assert(lock:info())
    assert.same({ lock:owner(), 2 }, { info.owner, info.holds })
    assert.is_true(info.held_for >= 0 and info.held_for < process.now() - began)
    assert.is_true(lock:ttl() > 15)
    assert.is_true(lock:release())
    assert.same({ true, 5 }, { lock:is_held(), standing("k") })
    assert.is_true(lock:release())
    assert.is_false(lock:is_held())
    assert.truthy(wait_standing("k", 0))
    assert.is_nil(lock:ttl())
    fails("not_held", lock:release())
    assert.match("^holdfast.client: a quorum of 5 servers", tostring(world.clients[1]))
  end)

  it("excludes other quorum clients, and shows the votes in the busy message", function()
    local mine, other = quorum():lock("k"), quorum():lock("k")
    assert(mine:acquire())
    assert.truthy(wait_standing("k", 5))
    local message = fails("busy", other:try_acquire())
    assert.match("0 of 5 granted", message, 1, true)
    assert.match("busy", message)
    assert.equal(5, standing("k"))
    assert(mine:release()) assert(other:acquire(5)) assert(other:release())
  end)

  it("of an even number of servers needs more than half of them", function()
    local half = quorum { servers = urls { servers[3], servers[4] } }:lock("k")
    local four = quorum { servers = urls { unpack(servers, 1, 4) } }:lock("k")
    assert(half:acquire())
    fails("busy", four:acquire(0))
    assert.truthy(wait_standing("k", 2))
    assert(half:release()) assert(four:acquire(5)) assert(four:release())
  end)

  it("works with two of five servers down, and fails as no_quorum with three down", function()
    local client = quorum { command_timeout = 1 }
    local lock = client:lock("k")
    signal { 1, 2 }
    assert(lock:acquire(5)) assert(lock:release())
    signal { 3 }
    local message = fails("no_quorum", lock:acquire(0))
    assert.match("[012] of 5 granted", message)
    assert.match(servers[3].path, message, 1, true)
    assert.truthy(wait_standing("k", 0))
    assert.match("[012] of 5 answered", fails("no_quorum", lock:info()))
  end)

  it("reports a loss when a majority cannot renew the lock", function()
    local lost
    local client = quorum { lease = LEASE, command_timeout = 1 }
    local lock = client:lock("k", { on_lost = function(_, reason) lost = reason end })
    assert(lock:acquire())
    signal { 1, 2, 3 }
    assert.truthy(process.wait_until(function() return not lock:is_held() end, 20))
    assert.same({ "unreachable", "unreachable" }, { lock:lost(), lost })
    fails("lost", lock:release())
    assert.truthy(wait_standing("k", 0))
  end)

  it("draws tokens that rise from hold to hold, even across different majorities", function()
    local a, b = quorum():lock("k"), quorum():lock("k")
    local last = 0
    for i = 1, 20 do
      local lock = i % 2 == 0 and a or b
      local down = { servers[i % 5 + 1], servers[(i + 2) % 5 + 1] }
      for _, server in ipairs(down) do server:kill("STOP") end
      assert(lock:acquire(10))
      assert.is_true(lock:token() > last)
      last = lock:token()
      assert(lock:release())
      for _, server in ipairs(down) do server:kill("CONT") end
    end
  end)

  it("never has two owners while servers hang and die", function()
    local group = crowd.new({ url = function() return table.concat(urls(), ",") end }, "k")
    for i = 1, 4 do group:add("p" .. i, { turns = 10, inside = 0.001 }) end
    process.sleep(0.2)
    servers[3]:kill("STOP")
    process.sleep(0.2)
    servers[3]:kill("CONT")
    servers[1]:kill()
    crowd.assert_rising(group:assert_turns(40, 60).tokens)
    group:stop()
  end)

  it("releases the lock of a collected handle and of a closed client", function()
    local client = quorum()
    do
      local lock = client:lock("k")
      assert(lock:acquire())
      assert.truthy(wait_standing("k", 5))
    end
    collectgarbage() collectgarbage()
    assert.truthy(wait_standing("k", 0))
    local held = assert(client:lock("k"):acquire()) -- luacheck: ignore 211 (lasts)
    client:close()
    assert.truthy(wait_standing("k", 0))
  end)

  it("supports with_lock, one_by_one and idempotent", function()
    local client = quorum()
    assert.equal("done", client:with_lock("k", function(lock)
      assert.is_true(lock:is_held())
      return "done"
    end))
    assert.equal(7, client:one_by_one():execute("order", 7, function() return 7 end))
    local runs = 0
    local function run()
      runs = runs + 1
      return "paid", runs
    end
    for _ = 1, 2 do
      assert.same({ "paid", 1 }, { client:idempotent("job", { expire = 20, replay = true }, run) })
    end
    fails("duplicate", client:idempotent("job", { expire = 20 }, run))
    assert.equal(1, runs)
    tell(5, "DEL", "job")
    local both = assert(client:multi_lock({ "a", "b" }):acquire(5))
    assert.truthy(wait_standing("a", 5))
    assert(both:release())
    local mutex = assert(client:mutex("m"):acquire())
    fails("busy", mutex:try_acquire())
    assert(mutex:release())
    assert.is_true(client:ping() > 0)
  end)

  it("names the servers that deny access, and fails with denied if they prevent a majority", function()
    tell(2, "CONFIG", "SET", "requirepass", "secret")
    local lock = quorum():lock("k")
    assert(lock:acquire(5)) assert(lock:release())
    servers[3]:cli("CONFIG", "SET", "requirepass", "secret")
    local refused, result = quorum():lock("k"), nil
    -- one server may answer late, another may not have got the release yet
    process.wait_until(function()
      result = { refused:acquire(0) }
      return result[3] ~= "no_quorum" and result[3] ~= "busy"
    end, 20)
    local message = fails("denied", unpack(result, 1, 3))
    assert.match(servers[1].path, message, 1, true)
    assert.match("NOAUTH", message)
    tell(3, "CONFIG", "SET", "requirepass", "")
  end)

  for what, case in pairs {
    ["a minority hangs"] = { { 2, 5 }, 20 }, ["a majority hangs"] = { { 1, 2, 3 }, 2 },
  } do
    it("closes soon while " .. what, function()
      local hung, client = case[1], quorum { command_timeout = case[2] }
      local lock = client:lock("k")
      assert(lock:acquire() and lock:release() and lock:acquire())
      signal(hung, "STOP")
      local from = process.now()
      client:close()
      assert.is_true(process.now() - from < 10)
      fails("closed", lock:acquire())
      if #hung == 2 then
        for _, i in ipairs { 1, 3, 4 } do assert.equal(0, servers[i]:cli("EXISTS", "k")) end
      end
      signal(hung, "CONT")
      tell(5, "DEL", "k")
    end)
  end
end)
