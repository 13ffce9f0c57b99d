-- One lock for holdfast and Redisson in cluster mode, whose releases are announced in sharded channels.

local cluster = require "spec.support.cluster"
local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local process = require "spec.support.process"

local KEY = "shared"
local CHANNEL = ("redisson_lock__channel:{%s}"):format(KEY)
local START_UP = 60 -- seconds: a machine of few cores starts several Java processes at once

local nodes, others, client, lock

local function classpath()
  local file = assert(io.open("build/interop/classpath"))
  local text = file:read("*a")
  file:close()
  return "build/interop/java/classes:" .. text
end

local function add_java(name, options)
  local args = {
    "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", classpath(), "Contender",
    tostring(nodes.nodes[1].port), tostring(others.store.port), KEY, name, "cluster=1",
  }
  for option, value in pairs(options or {}) do args[#args + 1] = option .. "=" .. tostring(value) end
  return others:join(name, process.start(args))
end

local function begin()
  for _, worker in ipairs(others.workers) do
    local ready = process.wait_until(function() return worker:status() or worker:output():match("ready") end, START_UP)
    assert(ready == "ready", worker:output())
  end
  others.store:cli("SET", "crowd:start", 1)
end

local function came_in(name, seconds)
  return process.wait_until(function() return others:turns_of(name) > 0 end, seconds)
end

local function count(history, kind)
  local turns = 0
  for _, name in ipairs(history.names) do
    if name:match("%a+") == kind then turns = turns + 1 end
  end
  return turns
end

describe("holdfast and Redisson in a cluster", function()
  before_each(function()
    nodes = cluster.start { masters = 3, replicas = 0 }
    local server = {
      url = function() return nodes:url() end,
      cli = function(_, ...) return nodes:node_of(KEY):cli(...) end,
    }
    others = crowd.new(server, KEY, { tcp = true })
    client = holdfast.new(nodes:url())
    lock = client:lock(KEY)
  end)

  after_each(function()
    client:close()
    others:stop()
    nodes:stop()
  end)

  it("exclude each other", function()
    assert(lock:acquire(0))
    local refused = add_java("refused", { wait = 0.05 })
    assert(refused:wait(START_UP))
    assert.matches("failed busy", refused:output())
    assert(lock:release())
    add_java("theirs", { inside = 1 })
    assert.truthy(came_in("theirs", START_UP))
    assert.equal("busy", (select(3, lock:acquire(0))))
    assert(lock:acquire(10))
    assert(lock:release())
    assert.is_nil(others:finish(30))
  end)

  it("wake each other: ours announces in the channel of the slot, theirs is noticed by the clock", function()
    local node = nodes:node_of(KEY)
    assert(lock:acquire(0))
    add_java("theirs", { inside = 1 })
    assert.truthy(process.wait_until(function()
      return node:cli("PUBSUB", "SHARDNUMSUB", CHANNEL)[2] == 1
    end, START_UP))
    process.sleep(0.1)
    assert(lock:release())
    assert.truthy(came_in("theirs", 2)) -- its own clock would let it wait for the rest of 30 s
    local before = process.now()
    assert(lock:acquire(10))
    assert.is_true(process.now() - before < 3)
    assert(lock:release())
    assert.is_nil(others:finish(30))
  end)

  it("lose no update, 3 and 3, while their slot moves, and both get in", function()
    for i = 1, 3 do
      local options = { seconds = 6, inside = 0.002, outside = 0.001, together = 1 }
      add_java("java" .. i, options)
      others:add("ours" .. i, options)
    end
    begin()
    for _ = 1, 3 do
      process.sleep(1)
      local owner = nodes:node_of(KEY)
      for _, node in ipairs(nodes:masters()) do
        if node ~= owner then
          nodes:move(nodes:slot(KEY), node)
          break
        end
      end
    end
    assert.is_nil(others:finish(90))
    local history = others:history()
    assert.is_nil(history.overlap)
    assert.equal(0, history.lost)
    print(("\nholdfast %d turns, Redisson %d"):format(count(history, "ours"), count(history, "java")))
    assert.is_true(count(history, "ours") > 0)
    assert.is_true(count(history, "java") > 0)
  end)
end)
