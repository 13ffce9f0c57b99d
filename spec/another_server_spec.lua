-- Another server answers at the address of an absent one: see docs/how-to/servers.md.
-- spec/unit/test_cluster_nodes.c tests this for the nodes of a cluster, which have ids.

local core = require "holdfast.core"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sentinel = require "spec.support.sentinel"

local PATIENCE = 30
local LEASE = 3

local clients, servers

local function connect(options)
  options.lease, options.name = LEASE, "spec"
  local client = holdfast.new(options)
  clients[#clients + 1] = client
  return client
end

local function start(port)
  local server = redis.start { tcp = true, port = port }
  servers[#servers + 1] = server
  return server
end

-- → another server at the same address, without the data
local function replace(server)
  server:kill("KILL")
  return start(server.port)
end

local function urls_of(list)
  local urls = {}
  for i, server in ipairs(list) do urls[i] = server:tcp_url() end
  return urls
end

local eventually = process.eventually

local function is_renewed(lock)
  local before = lock:remaining()
  eventually(function() return lock:remaining() > before end, PATIENCE, "it is not renewed")
end

-- Acquires two locks; another client acquires the second one on the other server. The next renewal
-- shows the holder both losses.
local function learns(client, others, absent, taken, replace_it)
  local one, two, reasons = client:lock(absent), client:lock(taken), {}
  for _, lock in ipairs { one, two } do assert(lock:acquire(0)) end
  replace_it()
  local theirs = assert(others():lock(taken):acquire(PATIENCE))
  for i, lock in ipairs { one, two } do
    eventually(function() return lock:lost() end, PATIENCE, "the loss is not reported")
    reasons[i] = lock:lost()
    assert.is_false(lock:is_held())
  end
  assert.same({ "deleted", "taken" }, reasons)
  assert.is_true(theirs:is_held())
  assert(client:lock(absent):acquire(PATIENCE))
end

before_each(function() clients, servers = {}, {} end)
after_each(function()
  for _, client in ipairs(clients) do client:close() end
  for _, server in ipairs(servers) do server:stop() end
end)

describe("after a restart as another server at the same address", function()
  it("a single server grants its locks again, and the old holders learn of their losses at the next renewal", function()
    local server = start()
    local url = server:tcp_url()
    learns(connect { url = url }, function() return connect { url = url } end, "a", "b",
      function() replace(server) end)
  end)

  it("a shard grants again only the locks of that shard", function()
    local shards = { start(), start() }
    local options = { mode = "shards", servers = urls_of(shards) }
    local client = connect(options)
    local keys = { {}, {} } -- keys[shard]
    for i = 1, 40 do table.insert(keys[core.client.group(client, "k" .. i) + 1], "k" .. i) end
    local kept = client:lock(keys[1][1])
    assert(kept:acquire(0))
    learns(client, function() return connect(options) end, keys[2][1], keys[2][2],
      function() replace(shards[2]) end)
    is_renewed(kept)
    assert(kept:release())
  end)

  it("a master found through Sentinels grants its locks again if it is still a master", function()
    local set = sentinel.start { replicas = 0, sentinels = 1, quorum = 1, down_after = 60000 }
    finally(function() set:stop() end)
    local options = { url = set:url(), command_timeout = PATIENCE }
    learns(connect(options), function() return connect(options) end, "a", "b",
      function() replace(set:master()) end)
  end)

  it("a quorum with one such server keeps a held lock, and admits no second owner", function()
    local quorum = { start(), start(), start() }
    local options = { mode = "quorum", servers = urls_of(quorum) }
    local lock, other = connect(options):lock("k"), connect(options):lock("k")
    assert(lock:acquire(0))
    local new = replace(quorum[2])
    assert.equal("busy", (select(3, other:acquire(0))))
    is_renewed(lock)
    eventually(function() return new:cli("EXISTS", "k") == 1 end, PATIENCE, "the lock is not on the new server")
    assert(lock:release())
    assert(other:acquire(PATIENCE))
  end)
end)
