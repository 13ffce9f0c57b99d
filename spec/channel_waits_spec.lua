-- Latches and plain semaphores wait for a message on one of Redisson's channels, without a place in
-- a queue. latch_spec.lua and plain_semaphore_spec.lua test the rest of each.

local fails = require "spec.support.fails"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"

local world = require("spec.support.world").new()

local KEY = "job"
local LATE = 20 -- seconds; longer than any of these specs waits for a message

-- `shut` makes others wait from now on; `open` lets one pass; `theirs` does this as Redisson,
-- without a message; `message` is Redisson's, `announced` is holdfast's to Redisson; `call` is the
-- code of a wait.
local KINDS = {
  {
    name = "latch", channel = "redisson_countdownlatch__channel__{%s}", message = "0",
    announced = "0",
    call = "wait(%s)", over = "timeout", value = "1", left = false,
    methods = { "count_down", "count", "wait", "delete" },
    shut = function(latch) assert(latch:set(1)) end,
    open = function(latch) assert.equal(0, latch:count_down()) end,
    theirs = function(cli, key) cli("DEL", key) end,
    pass = function(latch, wait) return latch:wait(wait) end,
    is_shut = function(latch) return latch:count() == 1 end,
  },
  {
    name = "plain_semaphore", channel = "redisson_sc:{%s}", message = "1",
    announced = "01",
    call = "acquire(1, %s)", over = "busy", value = "0", left = "0",
    methods = { "acquire", "try_acquire", "release", "drain", "available", "delete" },
    shut = function(pool) assert(pool:set(0)) end,
    open = function(pool) assert(pool:release()) end,
    theirs = function(cli, key) cli("INCRBY", key, 1) end,
    pass = function(pool, wait) return pool:acquire(1, wait) end,
    is_shut = function(pool) return pool:available() == 0 end,
  },
}

-- arg = url, seconds between two rechecks, seconds to wait, key
local WAITER = [[
local client = require("holdfast").new { url = arg[1], grant_lease = tonumber(arg[2]) }
local passed, message, code = client:%s(arg[4]):%s
print("result", code or passed, message)
client:close()
]]

local function ends(child, result)
  assert(child:wait(40), child:output())
  assert.matches("result%s+" .. result, child:output())
end

local function passes(child) ends(child, "true") end

-- Asserts that the child passes too early for one of its own rechecks.
local function passes_at_once(child)
  local from = process.now()
  passes(child)
  assert.is_true(process.now() - from < LATE / 2, child:output())
end

local function wait_subscribed(server, channel, sharded)
  assert(process.wait_until(function()
    return server:cli("PUBSUB", sharded and "SHARDNUMSUB" or "NUMSUB", channel)[2] == 1
  end, 20), "no subscriber")
end

for _, kind in ipairs(KINDS) do
  local CHANNEL = kind.channel:format(KEY)
  local title = "a " .. kind.name:gsub("_", " ")

  local function new(client, key, opts) return client[kind.name](client, key or KEY, opts) end

  -- Starts a process that waits; it rechecks every `often` seconds, by default late.
  local function waiter(url, key, often)
    local code = WAITER:format(kind.name, kind.call:format("tonumber(arg[3])"))
    return process.lua { code = code, args = { url, often or LATE, 60, key or KEY } }
  end

  describe(title .. " with waiters", function()
    local handle

    before_each(function()
      world.open()
      handle = new(world.client())
      kind.shut(handle)
    end)

    after_each(function()
      world.cli("DEL", KEY)
      world.close()
    end)

    it("keeps no waiter waiting for longer than its caller allowed", function()
      local client = world.client()
      for _, seconds in ipairs { 0, 0.05, 0.4 } do
        for _, wait in ipairs {
          function() return kind.pass(new(client), seconds) end,
          function() return kind.pass(new(client, KEY, { wait = seconds })) end,
        } do
          local got, message, code, took
          process.wait_until(function() -- a server that is silent for 100 ms is unreachable
            local from = process.now()
            got, message, code = wait()
            took = process.now() - from
            return code ~= "unreachable"
          end)
          fails(kind.over, got, message, code)
          assert.is_true(took >= seconds and took < seconds + 3, took)
        end
      end
    end)

    it("is subscribed to again by its waiter after the waiter's connection was killed", function()
      local child = waiter(world.server:url())
      wait_subscribed(world.server, CHANNEL)
      world.cli("CLIENT", "KILL", "TYPE", "pubsub")
      wait_subscribed(world.server, CHANNEL)
      kind.open(handle)
      passes_at_once(child)
    end)

    it("is polled by its waiter if the user may not subscribe to its channel", function()
      world.cli("ACL", "SETUSER", "deaf", "reset", "on", ">secret", "~*", "+@all",
        "&holdfast_grant:*")
      local child = waiter((world.server:url():gsub("^unix://", "unix://deaf:secret@")))
      process.sleep(0.3)
      kind.theirs(world.cli, KEY)
      passes_at_once(child)
    end)
  end)

  describe(title .. " on a server that restarts or fails over", function()
    it("keeps its waiter waiting through a failover by Sentinels", function()
      local set = require("spec.support.sentinel").start {}
      local client = holdfast.new(set:url())
      local handle = new(client, "far")
      kind.shut(handle)
      assert(set:wait_key("far") ~= false)
      local child = waiter(set:url(), "far", 2)
      process.sleep(0.3)
      set:fail_over()
      assert(process.wait_until(function() return kind.is_shut(handle) end, 30))
      assert.is_nil(child:status())
      kind.open(handle)
      passes(child)
      client:close()
      set:stop()
    end)
  end)

  describe(title .. " in a cluster", function()
    local sharded = redis.major() >= 7
    local far = kind.channel:format("far")
    local nodes, client

    setup(function()
      nodes = require("spec.support.cluster").start { masters = 3, replicas = 0 }
    end)
    teardown(function() nodes:stop() end)
    before_each(function() client = holdfast.new(nodes:url()) end)
    after_each(function()
      nodes:node_of("far"):cli("DEL", "far")
      client:close()
    end)

    it("is stored on the node of its key, and its waiter follows a slot that moves", function()
      local handle = new(client, "far")
      kind.shut(handle)
      local node, other = nodes:node_of "far", nil
      assert.equal(kind.value, node:cli("GET", "far"))
      local child = waiter(nodes:url(), "far", 2)
      wait_subscribed(node, far, sharded)
      for _, master in ipairs(nodes:masters()) do other = master ~= node and master or other end
      nodes:move(nodes:slot "far", other)
      assert.is_true(kind.is_shut(handle))
      assert.equal(kind.value, other:cli("GET", "far"))
      assert.is_nil(child:status())
      kind.open(handle)
      passes(child)
      assert.equal(kind.left, other:cli("GET", "far"))
    end)

    it("wakes subscribers of the sharded and the plain channel, and its own waiters use the sharded one", function()
      if not sharded then return end
      local handle, node = new(client, "far"), nodes:node_of "far"
      kind.shut(handle)
      local java, old = assert(resp.connect { port = node.port }),
        assert(resp.connect { port = node.port })
      java:call("SSUBSCRIBE", far)
      old:call("SUBSCRIBE", far)
      kind.open(handle)
      assert.same({ "smessage", far, kind.announced }, java:receive())
      assert.same({ "message", far, kind.announced }, old:receive())
      java:call("SUNSUBSCRIBE", far)
      assert(handle:delete() ~= nil)
      kind.shut(handle)
      local child = waiter(nodes:url(), "far")
      wait_subscribed(node, far, true)
      process.sleep(0.1) -- for the recheck after the subscription
      kind.theirs(function(...) return node:cli(...) end, "far")
      node:cli("SPUBLISH", far, kind.message)
      passes_at_once(child)
      java:close()
      old:close()
    end)
  end)
end
