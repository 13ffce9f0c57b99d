-- Sentinels, clusters and shards in event loops: callers wait in coroutines, while the loop's task
-- follows a master or a slot that moves. All but the shards use TLS.

local certificates = require "spec.support.certificates"
local cluster = require "spec.support.cluster"
local core = require "holdfast.core"
local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local loops = require "spec.support.loops"
local redis = require "spec.support.redis"
local sentinel = require "spec.support.sentinel"

local PATIENCE = 30 -- seconds, enough for a busy machine

local made, clients

-- Options for servers that use only TLS, also with each other.
local function tls_alone()
  return { cert = made.server.cert, key = made.server.key, ca = made.ca.cert, alone = true }
end

local function connect(loop, options)
  options.driver = loop.driver
  options.tls = options.url and { ca_file = made.ca.cert } or nil
  local client = holdfast.new(options)
  clients[#clients + 1] = client
  return client
end

-- Starts two callers that wait for the key; `server_of` returns the server of its queue. → the
-- callers in the order in which they held it, filled in later
local function line_up(loop, client, key, server_of)
  local order = {}
  for i = 1, 2 do
    loop.spawn(function()
      assert(client:with_lock(key, { wait = 60 }, function(lock)
        assert.is_true(lock:check())
        order[#order + 1] = i
      end))
    end)
    assert.is_true(loop.wait_until(function()
      return server_of(key):cli("ZCOUNT", crowd.queue_of(key), "(0", "+inf") == i
    end, PATIENCE))
  end
  return order
end

-- Asserts that the two callers have held the key in their order, and that it is free.
local function served(loop, order, key, server_of)
  assert.is_true(loop.wait_until(function() return #order == 2 end, PATIENCE))
  assert.same({ 1, 2 }, order)
  assert.is_true(loop.wait_until(function()
    return server_of(key):cli("EXISTS", key) == 0
  end, PATIENCE))
end

local function each_loop(name, test)
  for _, loop in ipairs(loops) do
    it(name .. ", under " .. loop.name, function() test(loop) end)
  end
end

setup(function()
  made = certificates.make()
  -- opens what the loops then keep open
  for _, loop in ipairs(loops) do loop.run(function() loop.sleep(0) end) end
end)

before_each(function() clients = {} end)

after_each(function()
  for _, each in ipairs(clients) do each:close() end
end)

describe("Sentinels", function()
  local set

  setup(function() set = sentinel.start { tls = tls_alone(), password = "secret" } end)
  teardown(function() set:stop() end)

  local function master() return set:master() end

  each_loop("lead to a master, whose successor takes over its locks and waiters", function(loop)
    loop.run(function()
      local client = connect(loop, { url = set:url(), sync = { replicas = 1, timeout = 1 },
        command_timeout = 20 })
      local other = connect(loop, { url = set:url(), command_timeout = 20 })
      local held = assert(client:lock("k"):acquire(PATIENCE))
      local order = line_up(loop, other, "k", master)
      set:wait_key(crowd.queue_of("k"))
      local old = set:master()
      local new = set:fail_over()
      assert.are_not.equal(old, new)
      assert.is_true(held:check())
      assert.equal(1, new:cli("EXISTS", "k"))
      assert.is_true(loop.wait_until(function()
        return #new:cli("PUBSUB", "CHANNELS", "holdfast_grant:*") == 1
          and new:cli("ZCOUNT", crowd.queue_of("k"), "(0", "+inf") == 2
      end, PATIENCE))
      assert.is_true(held:release())
      served(loop, order, "k", master)
      set:wait_ready()
    end)
  end)
end)

describe("a cluster", function()
  local nodes

  setup(function()
    nodes = cluster.start { masters = 3, replicas = 0, tls = tls_alone(), password = "secret" }
  end)
  teardown(function() nodes:stop() end)

  local function node_of(key) return nodes:node_of(key) end

  local function another_than(node)
    return node == nodes.nodes[1] and nodes.nodes[2] or nodes.nodes[1]
  end

  each_loop("serves locks and queues on every node", function(loop)
    loop.run(function()
      local client = connect(loop, { url = nodes:url { nodes.nodes[1] } })
      local seen = {}
      for i = 1, 12 do
        local key = "place:" .. i
        local held = assert(client:lock(key):acquire(0))
        assert.equal(1, node_of(key):cli("EXISTS", key))
        if not seen[node_of(key)] then
          seen[node_of(key)] = true
          local order = line_up(loop, client, key, node_of)
          assert.is_true(held:release())
          served(loop, order, key, node_of)
        else
          assert.is_true(held:release())
        end
      end
      for _, node in ipairs(nodes.nodes) do assert.is_true(seen[node]) end
      assert.equal(0, client:stats().redirects)
    end)
  end)

  each_loop("can move a slot whose lock is held and has waiters", function(loop)
    loop.run(function()
      local client, other = connect(loop, { url = nodes:url() }),
        connect(loop, { url = nodes:url() })
      local held = assert(client:lock("moved"):acquire(0))
      local order = line_up(loop, other, "moved", node_of)
      local from = node_of("moved")
      nodes:move(nodes:slot("moved"), another_than(from))
      assert.is_true(held:check())
      assert.is_true(client:stats().redirects > 0)
      assert.is_true(loop.wait_until(function()
        return #node_of("moved"):cli("PUBSUB", "CHANNELS", "holdfast_grant:*") == 1
      end, PATIENCE))
      assert.is_true(held:release())
      served(loop, order, "moved", node_of)
    end)
  end)
end)

describe("shards", function()
  local servers, urls

  before_each(function() servers, urls = redis.several(3) end)
  after_each(function() for _, server in ipairs(servers) do server:stop() end end)

  each_loop("have separate locks and queues, and a shard that is down affects only its own keys",
    function(loop)
    loop.run(function()
      local client = connect(loop, { servers = urls, mode = "shards", command_timeout = 2 })
      local function server_of(key) return servers[core.client.group(client, key) + 1] end
      local keys = {}
      for i = 1, 100 do keys[server_of("k" .. i)] = "k" .. i end
      local holds = {}
      for _, server in ipairs(servers) do
        local key = keys[server]
        local held = assert(client:lock(key):acquire(0))
        assert.equal(1, server:cli("EXISTS", key))
        local order = line_up(loop, client, key, server_of)
        assert.is_true(held:release())
        served(loop, order, key, server_of)
        holds[server] = assert(client:lock(key):acquire(0))
      end
      servers[1]:kill()
      assert.equal("unreachable", (select(3,
        client:lock(keys[servers[1]], { owner = "other" }):acquire(0))))
      for i = 2, 3 do
        assert.is_true(holds[servers[i]]:check())
        assert.is_true(holds[servers[i]]:release())
      end
      client:close() -- otherwise the loop would run for the lease of what the dead server held
    end)
  end)
end)
