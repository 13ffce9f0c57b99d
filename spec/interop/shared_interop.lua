-- One lock for holdfast and real Redisson clients: Java's and node-redisson.

local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local KEY = "shared"
local CHANNEL = ("redisson_lock__channel:{%s}"):format(KEY)
local unpack = table.unpack or unpack -- luacheck: ignore 113 143
local START_UP = 60 -- seconds: a machine of few cores starts several Java processes at once

local server, others, client, lock

local function classpath()
  local file = assert(io.open("build/interop/classpath"))
  local text = file:read("*a")
  file:close()
  return "build/interop/java/classes:" .. text
end

local kinds = {
  java = function(args)
    local small = { "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m" }
    return process.start { "java", small[1], small[2], small[3], "-cp", classpath(), "Contender", unpack(args) }
  end,
  node = function(args)
    local command = { "node", "spec/interop/contender.js", unpack(args) }
    command.env = { NODE_PATH = "build/interop/node/node_modules" }
    return process.start(command)
  end,
}


local function add(kind, name, options)
  if kind == "ours" then return others:add(name, options) end
  local args = { tostring(server.port), tostring(others.store.port), KEY, name }
  for option, value in pairs(options or {}) do args[#args + 1] = option .. "=" .. tostring(value) end
  return others:join(name, kinds[kind](args))
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

local function is_out(name, seconds)
  return process.wait_until(function()
    for _, line in ipairs(others.store:cli("LRANGE", "crowd:history", 0, -1)) do
      if line == "out " .. name then return true end
    end
  end, seconds)
end

local function listeners() return server:cli("PUBSUB", "NUMSUB", CHANNEL)[2] end

local function assert_one_at_a_time(seconds)
  assert.is_nil(others:finish(seconds or 30))
  local history = others:history()
  assert.is_nil(history.overlap)
  assert.equal(0, history.lost)
  return history
end

local function turns_by_kind(history)
  local turns = {}
  for _, name in ipairs(history.names) do
    local kind = name:match("%a+")
    turns[kind] = (turns[kind] or 0) + 1
  end
  return turns
end

for _, kind in ipairs { "java", "node" } do
  describe("holdfast and " .. kind, function()
    before_each(function()
      server = redis.start { tcp = true }
      others = crowd.new(server, KEY, { tcp = true })
      client = holdfast.new(server:url())
      lock = client:lock(KEY)
    end)

    after_each(function()
      client:close()
      others:stop()
      server:stop()
    end)

    it("exclude each other and count re-entries", function()
      assert(lock:acquire(0))
      assert(lock:acquire(0))
      assert.equal("2", server:cli("HVALS", KEY)[1])
      local refused = add(kind, "refused", { wait = 0.05 })
      assert(refused:wait(START_UP))
      assert.matches("failed busy", refused:output())
      assert(lock:release())
      assert(lock:release())
      assert.equal(0, server:cli("EXISTS", KEY))

      add(kind, "twice", { holds = 2, inside = 1 })
      assert.truthy(came_in("twice", START_UP))
      local info = lock:info()
      assert.equal(2, info.holds)
      local _, _, code = lock:acquire(0)
      assert.equal("busy", code)
      assert.equal("not_held", (select(3, lock:release())))
      assert(lock:acquire(5))
      assert.truthy(is_out("twice", 1))
      assert(lock:release())
      assert.is_nil(others:finish(10))
    end)

    it("wake each other", function()
      assert(lock:acquire(0))
      add(kind, "theirs", { inside = 1 })
      assert.truthy(process.wait_until(function() return listeners() == 1 end, START_UP))
      process.sleep(0.1)
      assert(lock:release())
      assert.truthy(came_in("theirs", 0.3))
      add("ours", "ours")
      assert.truthy(process.wait_until(function() return server:cli("PUBSUB", "NUMPAT") == 1 end, 0.9))
      assert.truthy(is_out("theirs", 2))
      assert.truthy(came_in("ours", 0.3))
      assert_one_at_a_time()
    end)

    it("lose no update, 4 and 4, and both get in", function()
      for i = 1, 4 do
        local options = { seconds = 4, inside = 0.002, outside = 0.001, together = 1 }
        add(kind, kind .. i, options)
        options.lease, options.watchdog = 3, 1
        add("ours", "ours" .. i, options)
      end
      begin()
      local history = assert_one_at_a_time(60)
      local turns = turns_by_kind(history)
      print(("\nholdfast %d turns, %s %d"):format(turns.ours or 0, kind, turns[kind] or 0))
      for i = 1, 4 do
        assert.is_true(others:turns_of("ours" .. i) > 0)
        assert.is_true(others:turns_of(kind .. i) > 0)
      end
      assert.is_true(turns.ours > 0.1 * history.turns)
      assert.is_true(turns[kind] > 0.1 * history.turns)
    end)

    it("go on after each other's death", function()
      local theirs = add(kind, "theirs", { inside = 60 })
      assert.truthy(came_in("theirs", START_UP))
      theirs:stop()
      server:cli("PEXPIRE", KEY, 500) -- of the 30 s that Redisson gave it
      local before = process.now()
      assert(lock:acquire(5))
      assert.is_true(process.now() - before < 1)
      assert(lock:release())
    end)
  end)
end

describe("holdfast and RFencedLock", function()
  before_each(function()
    server = redis.start { tcp = true }
    others = crowd.new(server, KEY, { tcp = true })
  end)

  after_each(function()
    others:stop()
    server:stop()
  end)

  it("give tokens that grow together", function()
    for i = 1, 2 do
      add("ours", "ours" .. i, { turns = 30, inside = 0.001, outside = 0.001, together = 1 })
      add("java", "java" .. i, { turns = 30, inside = 0.001, outside = 0.001, fenced = 1, together = 1 })
    end
    begin()
    local history = assert_one_at_a_time(60)
    assert.equal(120, #history.tokens)
    for i = 2, 120 do assert.is_true(history.tokens[i] > history.tokens[i - 1]) end
  end)
end)
