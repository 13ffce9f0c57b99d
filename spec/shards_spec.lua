-- The ring of Jedis spreads keys over independent servers: on which server each key is, and that
-- everything works across servers.

local core = require "holdfast.core"
local fails = require "spec.support.fails"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local holdfast = require "holdfast"

local servers, urls, clients

local function connect(options)
  options = options or {}
  options.servers, options.mode = options.servers or urls, "shards"
  local client = holdfast.new(options)
  clients[#clients + 1] = client
  return client
end

local function server_of(client, key) return servers[core.client.group(client, key) + 1] end

-- → a key for each server
local function keys_of_all(client, prefix)
  local keys, found = {}, 0
  for i = 1, 1000 do
    local key = (prefix or "key:") .. i
    local place = core.client.group(client, key) + 1
    if not keys[place] then
      keys[place] = key
      found = found + 1
      if found == #servers then return keys end
    end
  end
end

local function places(options)
  local client, list = connect(options), {}
  for i = 0, 11 do list[i + 1] = core.client.group(client, "order:" .. i) end
  return table.concat(list)
end

before_each(function()
  clients = {}
  servers, urls = redis.several(3)
end)

after_each(function()
  for _, client in ipairs(clients) do client:close() end
  for _, server in ipairs(servers) do server:stop() end
end)

describe("shards", function()
  it("place keys as Jedis does", function()
    assert.equal("002000021202", places())
    assert.equal("221002211202",
      places {
        servers = { urls[1], { url = urls[2], weight = 2 }, { url = urls[3], weight = 5 } } })
    assert.equal("011220222220",
      places { servers = { { url = urls[1], name = "a" }, { url = urls[2], name = "b" },
        { url = urls[3], name = "c" } } })
  end)

  it("are not queried for a holder's name, which may be on a different server", function()
    local holder, waiter = connect { name = "billing" }, connect()
    for _, key in pairs(keys_of_all(holder)) do
      local lock = assert(holder:lock(key):acquire())
      assert(process.wait_until(function() return lock:info().name == "billing" end, 20))
      assert.matches("held by another owner, for up to ",
        fails("busy", waiter:lock(key):acquire(0.02)), 1, true)
    end
  end)

  it("store each lock with its counter, semaphore with its leases and latch on its own server", function()
    local client = connect()
    local function are_on_one_server(count, key, ...)
      for _, server in ipairs(servers) do
        local here = server == server_of(client, key)
        assert.equal(here and count or 0, server:cli("EXISTS", key, ...))
      end
    end
    for i = 0, 11 do
      local key = "order:" .. i
      local lock = assert(client:lock(key):acquire())
      are_on_one_server(2, key, ("redisson_lock_token:{%s}"):format(key))
      local pool, latch = "pool:" .. i, "latch:" .. i
      local permit = assert(client:semaphore(pool, { permits = 3 }):acquire(2))
      are_on_one_server(2, pool, ("{%s}:timeout"):format(pool))
      assert(client:latch(latch):set(1))
      are_on_one_server(1, latch)
      assert.is_true(lock:release() and permit:release())
    end
  end)

  it("store each fence on the server of the key it protects", function()
    local client = connect()
    local lock = assert(client:lock("a lock"):acquire())
    for place, key in ipairs(keys_of_all(client, "price:")) do
      assert.equal("OK", client:fence(key):call(lock, "SET", key, place))
      local fence = ("holdfast_fence:{%s}"):format(key)
      assert.equal(2, servers[place]:cli("EXISTS", key, fence))
    end
    assert.is_true(lock:release())
  end)

  it("acquire several keys atomically on one server, and in order across several", function()
    local client, rival = connect(), connect()
    local keys = keys_of_all(client)
    local spread, other = client:multi_lock(keys), rival:multi_lock(keys)
    assert(spread:acquire())
    fails("busy", other:try_acquire())
    assert.is_true(spread:release())
    assert(other:acquire())
    assert.is_true(other:release())
    local same = {}
    for i = 1, 100 do
      local key = "same:" .. i
      if core.client.group(client, key) == 0 and #same < 3 then same[#same + 1] = key end
    end
    local monitor = servers[1]:monitor()
    local together = assert(client:multi_lock(same):acquire())
    assert.is_true(together:release())
    assert.is_true(monitor:count("EVALSHA") + monitor:count("EVAL") <= 4)
    monitor:close()
  end)

  it("that are down affect only their own keys, and are named in the message", function()
    local client = connect()
    local keys = keys_of_all(client)
    servers[2]:kill("KILL")
    for place, key in ipairs(keys) do
      local lock, message, code = client:lock(key):acquire(3)
      if place == 2 then
        assert.equal("unreachable", code)
        assert.matches(servers[2].path, message, 1, true)
      else
        assert.is_true(lock:release())
      end
    end
    fails("unreachable", client:multi_lock(keys):acquire(3))
    for place, key in ipairs(keys) do
      if place ~= 2 then assert(connect():lock(key):try_acquire()):release() end
    end
  end)
end)
