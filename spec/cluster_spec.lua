-- Locks in a Redis Cluster of real servers: finding the node of a key, following slots that move
-- and masters that die. HOLDFAST_CLUSTER_SECONDS sets for how long slots move back and forth under
-- load; in make test it is a few seconds.

local cluster = require "spec.support.cluster"
local crowd = require "spec.support.crowd"
local fails = require "spec.support.fails"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local rights = require "spec.support.rights"
local resp = require "spec.support.resp"
local holdfast = require "holdfast"

local SECONDS = tonumber(os.getenv("HOLDFAST_CLUSTER_SECONDS")) or 3
local PATIENCE = 60

local nodes, clients, crowds

local function connect(options)
  options = type(options) == "table" and options or { url = options }
  options.url = options.url or nodes:url()
  local client = holdfast.new(options)
  clients[#clients + 1] = client
  return client
end

local function other_master(than)
  for _, node in ipairs(nodes:masters()) do
    if node ~= than then return node end
  end
end

-- Waits until the client has sent `count` more renewals (2).
local function wait_renewed(client, count)
  local before = client:stats().renewals
  assert.truthy(process.wait_until(function()
    return client:stats().renewals >= before + (count or 2)
  end, 40))
end

-- Begins to move the key's slot to another master. → what finish() ends
local function begin_move(key)
  local slot = nodes:slot(key)
  return nodes:begin_move(slot, other_master(nodes:owner(slot)))
end

local function move(key) nodes:move(nodes:slot(key), other_master(nodes:node_of(key))) end

-- Returns the part of a server that a crowd needs.
local function as_server(key)
  return {
    url = function() return nodes:url() end,
    cli = function(_, ...) return nodes:node_of(key):cli(...) end,
  }
end

before_each(function() clients, crowds = {}, {} end)
after_each(function()
  for _, client in ipairs(clients) do client:close() end
  for _, each in ipairs(crowds) do each:stop() end
end)

describe("in a cluster", function()
  setup(function()
    local rule = table.concat(rights.of({ "lock" }, { cluster = true }), " ")
    if redis.major() < 7 then rule = rule:gsub(" [+&]%S*s%l-publish", ""):gsub(" %+ss?u%S+", "") end
    nodes = cluster.start { masters = 3, replicas = 0, users = { rule } }
  end)
  teardown(function() nodes:stop() end)

  it("every key is locked on the node that serves its slot", function()
    local client = connect()
    for i = 1, 30 do
      local key = "place:" .. i
      local lock = assert(client:lock(key):acquire())
      assert.equal(1, nodes:node_of(key):cli("EXISTS", key))
      assert.truthy(lock:token())
      assert.is_true(lock:release())
      assert.equal(0, nodes:node_of(key):cli("EXISTS", key))
    end
    assert.equal(0, client:stats().redirects)
  end)

  it("a client follows one MOVED redirect after a slot has moved, and then uses the new node directly", function()
    local client = connect()
    for round = 1, 2 do
      local lock = assert(client:lock("moved"):acquire())
      local before = client:stats().redirects
      move("moved")
      assert.is_true(lock:check())
      local after = client:stats().redirects
      -- the client may read the slots after the first redirect, and get the second move with them
      assert.is_true(after == before + 1 or round == 2 and after == before, after)
      assert.equal(1, lock:info().holds)
      assert.is_true(lock:release())
      assert.equal(after, client:stats().redirects)
    end
  end)

  it("a fence moves together with the slot of the keys it protects", function()
    local client = connect()
    local lock, fence = assert(client:lock("the lock"):acquire()), client:fence "{price}"
    assert.same({ 1, "OK" }, fence:run(lock, { { "INCR", "n{price}" }, { "SET", "{price}", 1 } }))
    move("{price}")
    assert.same({ 2, 2 }, fence:run(lock, {
      { "INCR", "n{price}" }, { "DEL", "{price}", "n{price}", "x{price}" } }))
    assert.equal(1, nodes:node_of("{price}"):cli("DEL", "holdfast_fence::{price}"))
    assert.equal("conflict", select(3, client:fence("no{tag"):claim(lock)))
    assert.is_true(lock:release())
  end)

  it("a fair lock's queue is still served in order after its slot has moved", function()
    local client = connect { lease = 3 }
    local lock = assert(client:fair_lock("tree"):acquire())
    local line = crowd.new(as_server("tree"), "tree")
    for i = 1, 3 do
      line:add("t" .. i, { kind = "fair" })
      assert(process.wait_until(function()
        return nodes:node_of("tree"):cli("LLEN", "redisson_lock_queue:{tree}") == i
      end, PATIENCE))
    end
    move("tree")
    assert.is_true(lock:check())
    assert(process.wait_until(function()
      return nodes:node_of("tree"):cli("LLEN", "redisson_lock_queue:{tree}") == 3
    end, PATIENCE))
    assert(lock:release())
    assert.is_nil(line:finish(PATIENCE))
    assert.same({ 3, nil }, { #line:history().names, line:history().overlap })
    assert.equal(0, nodes:node_of("tree"):cli("EXISTS", "redisson_lock_queue:{tree}",
      "redisson_lock_timeout:{tree}"))
    line:stop()
  end)

  it("waiters keep their places when their slot moves", function()
    local line = crowd.new(as_server("moving line"), "moving line")
    local held = assert(connect():lock("moving line"):acquire())
    line:line_up({ "a", "b", "c", "d" }, { inside = 0.01, grant_lease = 3 })
    move("moving line")
    -- they learn of the move when they recheck, after the grant lease
    assert.truthy(process.wait_until(function()
      return #nodes:node_of("moving line"):cli("PUBSUB", "CHANNELS", "holdfast_grant:*") >= 4
    end, 20))
    process.sleep(0.1)
    assert.is_true(held:release())
    assert.same({ "a", "b", "c", "d" }, line:assert_turns(4, PATIENCE).names)
    line:stop()
  end)

  it("renewals follow ASK while a slot is being migrated, and other calls wait for the migration to end", function()
    local client = connect { lease = 3, command_timeout = 1 }
    local lock = assert(client:lock("asked"):acquire())
    local on_the_way = begin_move "asked"
    on_the_way:carry()
    local redirects = client:stats().redirects
    wait_renewed(client)
    assert.is_true(client:stats().redirects > redirects)
    assert.is_true(lock:is_held())
    assert.matches("TRYAGAIN", fails("unreachable", connect { command_timeout = 1 }:lock("asked"):try_acquire()))
    on_the_way:finish()
    assert.is_true(lock:check() and lock:release())
  end)

  it("several locks are acquired atomically if they share a hash tag, otherwise one after the other", function()
    local client = connect()
    local tagged = assert(client:multi_lock({ "{cart}:1", "{cart}:2", "{cart}:3" }):acquire())
    assert.is_true(tagged:release())
    local keys = {}
    for i = 1, 8 do keys[i] = "spread:" .. i end
    local spread, rival = client:multi_lock(keys), connect():multi_lock(keys)
    assert(spread:acquire())
    assert.is_true(spread:is_held())
    fails("busy", rival:try_acquire())
    assert.is_true(spread:release())
    assert(rival:acquire(20))
    assert.is_true(rival:release())
  end)

  it("several locks are acquired one after the other through the plain URL of a node", function()
    local node, keys = nodes:node_of "key:1", {}
    for i = 1, 100 do
      if #keys < 3 and nodes:node_of("key:" .. i) == node then keys[#keys + 1] = "key:" .. i end
    end
    local url = ("redis://127.0.0.1:%d"):format(node.port)
    local client, rival = connect(url), connect(url)
    for _ = 1, 2 do
      local all = assert(client:multi_lock(keys):acquire(0))
      fails("busy", rival:multi_lock(keys):acquire(0))
      assert.is_true(all:release())
    end
    local function runs() return tonumber(node:cli("INFO", "commandstats"):match "cmdstat_evalsha:calls=(%d+)") end
    local before = runs()
    assert(client:multi_lock(keys):acquire(0)):release()
    assert.equal(2 * #keys, runs() - before) -- no step is repeated
  end)

  it("a call fails if a node has no cluster support, and its message says so", function()
    local alone = redis.start { tcp = true }
    assert.matches("cluster support disabled",
      fails("server", connect("redis+cluster://127.0.0.1:" .. alone.port):lock("k"):try_acquire()))
    alone:stop()
  end)

  it("ping returns a node's round-trip time", function() assert.is_number(connect():ping()) end)

  it("a client needs only the documented ACL rights", function()
    local url = nodes:url():gsub("//", "//locks:secret@")
    local client, rival = connect { url = url, tenant = "lock:" }, connect { url = url, tenant = "lock:" }
    for i = 1, 6 do
      local lock = assert(client:lock("lock:" .. i):acquire())
      local code
      process.wait_until(function() -- a node that is silent for 100 ms is unreachable
        code = select(3, rival:lock("lock:" .. i):acquire(0.05))
        return code ~= "unreachable"
      end)
      assert.equal("busy", code)
      assert.is_true(lock:release())
    end
    for _, node in ipairs(nodes.nodes) do assert.same({}, rights.refused(node)) end
  end)

  describe("with sharded channels, a lock shared with Redisson", function()
    local KEY, CHANNEL = "shared", "redisson_lock__channel:{shared}"
    local JAVA = "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33"
    local node, others

    local function is_old() return redis.major() < 7 end

    before_each(function()
      if is_old() then return end
      node, others = nodes:node_of(KEY), crowd.new(as_server(KEY), KEY)
    end)

    after_each(function()
      if is_old() then return end
      others:stop()
    end)

    local function counted(how, channel) return node:cli("PUBSUB", how, channel)[2] end

    -- Returns whether the waiter has rechecked after its subscription was confirmed: it has sent no
    -- script for a second, and before that it sends one at least every 200 ms.
    local function asks_no_more()
      local seen = false
      for line in node:cli("CLIENT", "LIST"):gmatch("[^\n]+") do
        if line:find("cmd=eval", 1, true) then
          if line:find(" idle=0 ", 1, true) then return false end
          seen = true
        end
      end
      return seen
    end

    -- A foreign client's lock is released and announced with `publish`, while one of our clients
    -- waits.
    local function is_woken_by(publish)
      node:cli("HSET", KEY, JAVA, 1)
      node:cli("PEXPIRE", KEY, 30000)
      others:add("ours", { grant_lease = 20 }) -- it rechecks after that
      assert.truthy(process.wait_until(function()
        return counted("SHARDNUMSUB", CHANNEL) == 1 and node:cli("PUBSUB", "NUMPAT") == 1
      end, 20))
      assert.equal(1, counted("SHARDNUMSUB", "holdfast_listening:{shared}"))
      assert.truthy(process.wait_until(asks_no_more, 20))
      node:cli("DEL", KEY)
      node:cli(publish, CHANNEL, "0")
      assert.truthy(process.wait_until(function() return others:turns_of("ours") > 0 end, 5))
      assert.is_nil(others:finish(20))
      assert.truthy(process.wait_until(function() return counted("SHARDNUMSUB", CHANNEL) == 0 end, 20))
    end

    for channel, publish in pairs { sharded = "SPUBLISH", plain = "PUBLISH" } do
      it(("wakes its waiter on a release in the %s channel"):format(channel), function()
        if not is_old() then is_woken_by(publish) end
      end)
    end

    it("announces its release on the channel, plain or sharded, that has a subscriber", function()
      if is_old() then return end
      for verb, kind in pairs { SUBSCRIBE = "message", SSUBSCRIBE = "smessage" } do
        local lock = assert(connect():lock(KEY):acquire(0))
        local listener = assert(resp.connect { path = node.path })
        listener:call(verb, CHANNEL)
        others:line_up { "ours" }
        assert(lock:release())
        assert.same({ kind, CHANNEL, "0" }, listener:poll(20))
        listener:close()
        assert.is_nil(others:finish(20))
        others.store:cli("DEL", "crowd:history")
      end
    end)
  end)
end)

-- Moves the slots of the keys from master to master for `seconds`. → how often
local function move_slots(keys, seconds)
  local stop, moves = process.now() + seconds, 0
  while process.now() < stop do
    for _, key in ipairs(keys) do
      move(key)
      moves = moves + 1
    end
  end
  return moves
end

describe("in a cluster under load", function()
  local KEYS, WORKERS = { "load:1", "load:2" }, 3

  it("moving slots and a failover never admit two owners at once, and every wait ends", function()
    nodes = cluster.start { masters = 3, replicas = 1 }
    local seconds = SECONDS + 6
    for i, key in ipairs(KEYS) do
      crowds[i] = crowd.new(as_server(key), key)
      for j = 1, WORKERS do
        crowds[i]:add("w" .. j, { seconds = seconds, inside = 0.002, fence = 1, stubborn = 1,
          lease = 2, wait = 20 })
      end
    end
    local moves = move_slots(KEYS, SECONDS)
    assert.is_true(moves > 0)
    local before = {}
    for i, each in ipairs(crowds) do
      local history = each:history()
      assert.is_nil(history.overlap)
      before[i] = #history.names
      assert.is_true(before[i] > 0)
    end
    local slot = nodes:slot(KEYS[1])
    local dead = nodes:owner(slot)
    dead:kill("KILL")
    nodes:wait_promotion(slot, dead)
    for i, each in ipairs(crowds) do
      assert.is_true(#each:assert_turns(nil, PATIENCE).names > before[i])
    end
    nodes:stop()
  end)
end)
