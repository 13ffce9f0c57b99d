-- The server is replaced by a later version, or by Valkey, while clients continue: in place, with
-- its data, or by a replica that takes over behind the same address; a cluster node by node. The
-- tests send Redisson's commands themselves. HOLDFAST_SERVERS_DIR is where the later versions are.

local cluster = require "spec.support.cluster"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local proxy = require "spec.chaos.proxy"
local redis = require "spec.support.redis"
local redisson = require "spec.support.redisson"
local resp = require "spec.support.resp"
local servers = require "spec.support.servers"

local PATIENCE = 20
local LEASE = 2 -- seconds
local GRANT = 60 -- seconds; a waiter that misses a message waits longer than the test

-- Returns each step from one version to the next: { from, to }.
local function upgrades()
  local list, known = {}, {}
  for _, family in ipairs { "redis", "valkey" } do
    local chain = servers.chain(family)
    for i = 2, #chain do
      local name = chain[i - 1].path .. chain[i].path
      if not known[name] then
        known[name], list[#list + 1] = true, { from = chain[i - 1], to = chain[i] }
      end
    end
  end
  return list
end

local function relaunch(server, version)
  server.program = version.path
  server:restart(true)
end

local function wait_for(condition)
  return assert.is_truthy(process.wait_until(condition, PATIENCE))
end

local server, spare, way, client, children

local function start(version)
  server = redis.start { program = version.path, persist = true, tcp = true }
  spare = redis.start { program = version.path, persist = true, tcp = true, replica_of = server }
  way = proxy.start(server.path)
  client = holdfast.new { url = way.url, lease = LEASE, grant_lease = GRANT }
  children = {}
end

local function stop()
  for _, child in ipairs(children) do child:stop() end
  client:close()
  way:stop()
  spare:stop()
  server:stop()
end

local function in_place(version)
  relaunch(spare, version)
  relaunch(server, version)
end

local function by_failover(version)
  relaunch(spare, version)
  wait_for(function()
    return spare:cli("INFO", "replication"):find("master_link_status:up", 1, true)
  end)
  assert.equal("OK", server:cli("FAILOVER"))
  wait_for(function() return spare:cli("ROLE")[1] == "master" end)
  way:tell("to", spare.path)
  way:tell("reset")
  server, spare = spare, server
  spare:cli("CONFIG", "REWRITE") -- a later start finds a replica again
  relaunch(spare, version)
end

-- Starts a client of holdfast in another process, which acquires the lock when it is free. In a
-- cluster, `url` is the cluster's and `at` is the key's node.
local function waiter(key, url, at)
  local child = process.lua {
    code = [[
      local client = require("holdfast").new { url = arg[1], grant_lease = tonumber(arg[3]) }
      local lock = client:lock(arg[2])
      print(lock:acquire(60) == lock and "has it with token", ("%.0f"):format(lock:token()),
        lock:release())
      client:close()
    ]],
    args = { url or way.url, key, tostring(GRANT) },
  }
  children[#children + 1] = child
  wait_for(function() return (at or server):cli("ZCARD", ("holdfast_queue:{%s}"):format(key)) > 0 end)
  return child
end

-- Returns a client of Redisson, whose thread waits from now on.
local function their_waiter(key)
  local child = process.lua {
    code = [[
      local lock = require("spec.support.redisson").new(arg[1]):lock(arg[2])
      print(lock:acquire(60) == lock and "theirs has it", lock:release())
    ]],
    args = { server.path, key },
  }
  children[#children + 1] = child
  wait_for(function()
    return server:cli("PUBSUB", "NUMSUB", ("redisson_lock__channel:{%s}"):format(key))[2] == 1
  end)
  return child
end

local function ends_with(child, text)
  local how, code = child:wait(PATIENCE)
  assert.same({ "exit", 0 }, { how, code }, child:output())
  local found = child:output():match(text)
  return found or error(("%q does not match %q"):format(child:output(), text), 2)
end

-- Waits until the waiter listens on the present server.
local function wait_listening(key, at)
  wait_for(function()
    local member = (at or server):cli("ZRANGE", ("holdfast_queue:{%s}"):format(key), -1, -1)[1] or ""
    local uuid = member:match("%x+%-%x+%-%x+%-%x+%-%x+") or "?"
    return (at or server):cli("PUBSUB", "NUMSUB", "holdfast_grant:" .. uuid)[2] == 1
  end)
end

local function renewed(key)
  wait_for(function() return server:cli("PTTL", key) <= 1500 end)
  wait_for(function() return server:cli("PTTL", key) > 1500 end)
end

local WAYS = { { "in place", in_place }, { "by a failover", by_failover } }

for _, step in ipairs(upgrades()) do
  local title = ("%s %s becomes %s %s #check"):format(step.from.family, step.from.version,
    step.to.family, step.to.version)
  describe(title, function()
    before_each(function() start(step.from) end)
    after_each(stop)

    for _, each in ipairs(WAYS) do
      local name, upgrade = each[1], each[2]

      it(name .. ": a holder renews through an upgrade, and hands its lock to a waiter", function()
        local lock = client:lock("k")
        assert(lock:acquire(0))
        local token, child = lock:token(), waiter("k")
        upgrade(step.to)
        renewed("k")
        assert.is_true(lock:is_held())
        wait_listening("k")
        assert(lock:release())
        local later = ends_with(child, "has it with token\t(%d+)\ttrue")
        assert.is_true(tonumber(later) > token)
      end)

      it(name .. ": Redisson releases a lock held before an upgrade, and acquires one that holdfast held", function()
        local theirs = redisson.new(server.path):lock("theirs", { lease = 60 })
        assert(theirs:acquire(0))
        local child, ours = waiter("theirs"), client:lock("ours")
        assert(ours:acquire(0))
        upgrade(step.to)
        theirs.calls:close()
        theirs.calls = assert(resp.connect { path = server.path })
        wait_listening("theirs")
        assert(theirs:release())
        theirs:close()
        ends_with(child, "has it with token\t(%d+)\ttrue")
        local waits = their_waiter("ours")
        assert(ours:release())
        ends_with(waits, "theirs has it\ttrue")
      end)
    end
  end)
end

-- From this version on, a cluster has sharded channels, and Redisson uses them.
local SHARDED = 7

local function upgrades_to_sharded()
  local list = {}
  for _, step in ipairs(upgrades()) do
    if step.from.number < SHARDED and step.to.number >= SHARDED then list[#list + 1] = step end
  end
  return list
end

for _, step in ipairs(upgrades_to_sharded()) do
  local title = ("a cluster of %s %s becomes %s %s node by node #check"):format(step.from.family,
    step.from.version, step.to.family, step.to.version)

  describe(title, function()
    local KEY = "k"
    local nodes, node

    before_each(function()
      nodes = cluster.start {
        masters = 3, replicas = 0, program = step.from.path, conf = { "appendonly yes" },
      }
      node = nodes:node_of(KEY)
      client = holdfast.new { url = nodes:url(), lease = 9, grant_lease = GRANT }
      children = {}
    end)

    after_each(function()
      for _, child in ipairs(children) do child:stop() end
      client:close()
      nodes:stop()
    end)

    -- Calls check(), if given, after each node.
    local function upgrade(check)
      for _, each in ipairs(nodes.nodes) do
        relaunch(each, step.to)
        nodes:wait_settled()
        if check then check() end
      end
    end

    it("a holder renews through an upgrade, and hands its lock to a waiter", function()
      local lock, rival = client:lock(KEY), holdfast.new { url = nodes:url() }
      finally(function() rival:close() end)
      assert(lock:acquire(0))
      local token, child = lock:token(), waiter(KEY, nodes:url(), node)
      upgrade(function()
        local left = lock:remaining()
        wait_for(function() return lock:remaining() > left end)
        wait_for(function() return select(3, rival:lock(KEY):acquire(0)) == "busy" end)
      end)
      assert.is_true(lock:is_held())
      wait_listening(KEY, node)
      assert(lock:release())
      local later = ends_with(child, "has it with token\t(%d+)\ttrue")
      assert.is_true(tonumber(later) > token)
    end)

    it("a client from before the upgrade announces its release where Redisson now subscribes", function()
      local lock = client:lock(KEY)
      assert(lock:acquire(0))
      upgrade()
      local channel = ("redisson_lock__channel:{%s}"):format(KEY)
      for _, verb in ipairs { "SSUBSCRIBE", "SUBSCRIBE" } do
        assert(lock:is_held() or lock:acquire(PATIENCE))
        local listener = assert(resp.connect { path = node.path })
        listener:call(verb, channel)
        assert(lock:release())
        local message = verb == "SSUBSCRIBE" and "smessage" or "message"
        assert.same({ message, channel, "0" }, listener:poll(PATIENCE))
        listener:close()
      end
    end)
  end)
end
