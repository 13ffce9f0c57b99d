-- The ring of Jedis spreads keys over independent servers: on which server each key is, and that
-- everything works across servers.

local core = require "holdfast.core"
local fails = require "spec.support.fails"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local holdfast = require "holdfast"

local unpack = table.unpack or unpack

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

-- Names as programs make them, and any bytes in lengths 1 to 99; the same in each run.
local function many_keys()
  local keys, state, bytes = {}, 2026, {}
  for i = 1, 10000, 2 do
    for place = 1, i % 100 do
      state = (state * 16807) % 2147483647
      bytes[place] = state % 256
    end
    keys[i], keys[i + 1] = string.char(unpack(bytes, 1, i % 100)), "lock:{order}:" .. i + 1
  end
  return keys
end

-- "weight" or "name:weight" of each shard → the SHA-1 of the places that the class Sharded of Jedis
-- 3.10.0 gives to these keys
local JEDIS = {
  ["1"] = "cce6c07dc676a4b4093acf62155a34f5dda4ac22",
  ["1 1"] = "2aaa176b1a123af58226f10d6086fb173743417f",
  ["1 1 1"] = "aaed9563dc032dda71990ddbaaa0b24c3722e064",
  ["1 2 5"] = "43561b1e8370b4fb6b5cf7ccbb237f2dbeed1084",
  ["a:1 b:1 c:1"] = "d965ffa5188ba3c5776279d94172450ec44219f5",
  ["a:3 1 Zürich:2"] = "db68f40f0b9337248c17c1a1b7410ff7ae46f57f",
  ["1 1 1 1 1 1 1 1 1 1 1 100"] = "6a38fb8cf5b0cd76eb200ea1d434e3af1c4787e9",
}

before_each(function()
  clients = {}
  servers, urls = redis.several(3)
end)

after_each(function()
  for _, client in ipairs(clients) do client:close() end
  for _, server in ipairs(servers) do server:stop() end
end)

describe("shards", function()
  local many = many_keys()

  for shards, wanted in pairs(JEDIS) do
    it("place keys as Jedis does, with the weights " .. shards, function()
      local entries, places = {}, {}
      for name, weight in shards:gmatch("([^%s:]-):?(%d+)") do
        entries[#entries + 1] = {
          url = "redis://127.0.0.1:" .. #entries + 1, weight = tonumber(weight),
          name = name ~= "" and name or nil,
        }
      end
      local client = connect { servers = entries }
      for i, key in ipairs(many) do places[i] = core.client.group(client, key) end
      assert.equal(wanted, core.sha1(table.concat(places, " ")))
    end)
  end

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
