-- One lock for holdfast and real Redisson clients: Java's and node-redisson.

local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local java_program = require "spec.support.java"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local KEY = "shared"
local CHANNEL = ("redisson_lock__channel:{%s}"):format(KEY)
local unpack = table.unpack or unpack -- luacheck: ignore 113 143
local WAKE = 0.3 -- seconds after which a waiter is in
local START_UP = java_program.START_UP

local server, others, client, lock

local kinds = {
  java = function(args) return java_program.start("Contender", args) end,
  node = function(args)
    local command = { "node", "spec/interop/contender.js", unpack(args) }
    command.env = { NODE_PATH = "build/interop/node/node_modules" }
    return process.start(command)
  end,
}

local function add(kind, name, options)
  if kind == "ours" then return others:add(name, options) end
  local args = { tostring(server.port), tostring(others.store.port), KEY, name }
  return others:join(name, kinds[kind](process.args(args, options)))
end

local function is_out(name, seconds)
  return process.wait_until(function()
    for _, line in ipairs(others.store:cli("LRANGE", "crowd:history", 0, -1)) do
      if line == "out " .. name then return true end
    end
  end, seconds)
end

local function listeners() return server:cli("PUBSUB", "NUMSUB", CHANNEL)[2] end

local scene = crowd.scene(KEY)

local function with_a_server()
  before_each(function()
    server, others, client = scene.open()
    lock = client:lock(KEY)
  end)
  after_each(scene.close)
end

for _, kind in ipairs { "java", "node" } do
  describe("holdfast and " .. kind, function()
    with_a_server()

    it("exclude each other and count re-entries", function()
      assert(lock:acquire(0)) assert(lock:acquire(0))
      assert.equal("2", server:cli("HVALS", KEY)[1])
      local refused = add(kind, "refused", { wait = 0.05 })
      assert(refused:wait(START_UP))
      assert.matches("failed busy", refused:output())
      assert(lock:release()) assert(lock:release())
      assert.equal(0, server:cli("EXISTS", KEY))

      add(kind, "twice", { holds = 2, inside = 1 })
      assert.truthy(others:came_in("twice", START_UP))
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

    it("wake each other's waiters at a release", function()
      assert(lock:acquire(0))
      add(kind, "theirs", { inside = 1 })
      assert.truthy(process.wait_until(function() return listeners() == 1 end, START_UP))
      process.sleep(0.1)
      assert(lock:release())
      assert.truthy(others:came_in("theirs", 0.3))
      add("ours", "ours")
      process.eventually(function() return server:cli("PUBSUB", "NUMPAT") == 1 end, 0.9)
      assert.truthy(is_out("theirs", 2))
      assert.truthy(others:came_in("ours", 0.3))
      others:assert_turns()
    end)

    it("lose no update with four clients each, and both get turns", function()
      for i = 1, 4 do
        local options = { seconds = 4, inside = 0.002, outside = 0.001, together = 1 }
        add(kind, kind .. i, options)
        options.lease, options.watchdog = 3, 1
        add("ours", "ours" .. i, options)
      end
      others:begin(START_UP)
      local history = others:assert_turns(nil, 60)
      local mine, theirs = others:turns_of_side("ours"), others:turns_of_side(kind)
      print(("\nholdfast %d turns, %s %d"):format(mine, kind, theirs))
      for i = 1, 4 do
        assert.is_true(others:turns_of("ours" .. i) > 0)
        assert.is_true(others:turns_of(kind .. i) > 0)
      end
      assert.is_true(math.min(mine, theirs) > 0.1 * history.turns)
    end)

    it("acquire the lock of a killed process of the other side once its lease has ended", function()
      local theirs = add(kind, "theirs", { inside = 60 })
      assert.truthy(others:came_in("theirs", START_UP))
      theirs:stop()
      server:cli("PEXPIRE", KEY, 500) -- of the 30 s that Redisson gave it
      local before = process.now()
      assert(lock:acquire(5))
      assert.is_true(process.now() - before < 1)
      assert(lock:release())
    end)
  end)
end

describe("holdfast's waiter on a lock shared with Java", function()
  with_a_server()

  it("acquires soon after Java's forceUnlock of holdfast's lock", function()
    assert(lock:acquire(0))
    local java = add("java", "java", { force = 1 })
    assert.truthy(java:wait_output("ready", START_UP))
    add("ours", "ours")
    assert.truthy(others:wait_queued(1, 10))
    process.sleep(0.5) -- it waits for more than a moment
    others.store:cli("SET", "crowd:start", 1)
    assert.truthy(java:wait_output("forced true", START_UP))
    assert.truthy(others:came_in("ours", WAKE))
    assert.equal("lost", (select(3, lock:release())))
  end)
end)

describe("a holdfast waiter beside Java's MultiLock", function()
  local KEYS = { "a", "b", "c", "d", "e" }
  local SOON = 5 -- seconds; the lease is 30
  local HOLDER = [[
    local client = require("holdfast").new { url = arg[1], crash_release = true }
    assert(client:multi_lock({ "a", "b", "c", "d", "e" }):acquire(60))
    print "in"
    io.flush()
    if arg[2] then require("spec.support.sys").sleep(60) end
  ]]
  local programs

  before_each(function() server, programs = redis.start { tcp = true }, {} end)

  after_each(function()
    for _, program in ipairs(programs) do program:stop() end
    server:stop()
  end)

  local function start(...)
    programs[#programs + 1] = process.lua { code = HOLDER, args = { server:url(), ... } }
    return programs[#programs]
  end

  it("frees all keys of a killed multi-lock at once even if Java acquires the first key", function()
    local killed, port = start("stay"), tostring(server.port)
    assert(killed:wait_output("in"))
    local java = java_program.start("Contender",
      { port, port, table.concat(KEYS, ","), "theirs", "multi=1", "wait=60" })
    programs[#programs + 1] = java
    assert(java:wait_output("ready", START_UP))
    assert.is_true(process.wait_until(function()
      return server:cli("PUBSUB", "NUMSUB", "redisson_lock__channel:{a}")[2] > 0
    end, START_UP))
    local ours = start()
    assert.is_true(process.wait_until(function()
      return server:cli("ZCOUNT", "holdfast_queue:{a}", "(0", "+inf") == 1
    end))
    killed:kill("KILL")
    assert(ours:wait_output("in", SOON), ours:output())
    assert(java:wait_output("done 1", SOON), java:output())
  end)
end)

describe("holdfast and Redisson's SpinLock", function()
  local SECONDS = 45
  local FIRST = 30 -- 8 s after the last moment without a holdfast waiter
  local FAIR, LEAST = 2 / 6, 0.25 -- of that

  with_a_server()

  it("both get at least a quarter of their fair share", function()
    local options = { seconds = SECONDS, inside = 0.002, together = 1, wait = 60 }
    for i = 1, 4 do add("ours", "ours" .. i, options) end
    options.spin = 1
    for i = 1, 2 do add("java", "java" .. i, options) end
    others:begin(START_UP)
    assert.truthy(others:came_in("java1", FIRST) and others:came_in("java2", FIRST))
    local history = others:assert_turns(nil, 60)
    local turns = { ours = 0, java = 0 }
    for name, count in pairs(crowd.turns_together(history.names)) do
      local side = name:match("%a+")
      turns[side] = turns[side] + count
    end
    local all = turns.ours + turns.java
    print(("\nSpinLocks, 2: %d turns; ours, 4: %d; %.2f of their fair share"):format(turns.java, turns.ours,
      turns.java / all / FAIR))
    assert.is_true(turns.java >= LEAST * FAIR * all and turns.ours >= LEAST * (1 - FAIR) * all)
  end)
end)

describe("Java's waiter on a lock that a holdfast client keeps", function()
  local KEEP, HOLD = 1, 0.02
  local kept

  with_a_server()
  before_each(function() kept = client:lock(KEY, { keep = KEEP }) end)

  -- Takes the lock again and again until done() is true. → seconds since Java waits
  local function use_until(done)
    local till, since = process.now() + START_UP, nil
    repeat
      assert(kept:acquire(10))
      process.sleep(HOLD)
      if not since and listeners() == 1 then since = process.now() end
      assert(kept:release())
    until since and done() or process.now() > till
    assert.is_true(process.now() <= till)
    return process.now() - since
  end

  it("acquires within keep plus one hold while the holdfast client uses the lock constantly", function()
    for i = 1, 3 do
      local name = "java" .. i
      add("java", name)
      local took = use_until(function() return others:turns_of(name) > 0 end)
      assert.is_true(took < KEEP + HOLD + WAKE, took .. " s")
    end
    others:assert_turns()
  end)

  it("acquires within keep once the holdfast client no longer uses the lock", function()
    add("java", "java")
    use_until(function() return true end)
    assert.truthy(others:came_in("java", KEEP + WAKE))
    others:assert_turns()
  end)
end)

describe("holdfast and RFencedLock", function()
  with_a_server()

  it("draw tokens that rise across both kinds of lock", function()
    for i = 1, 2 do
      add("ours", "ours" .. i, { turns = 30, inside = 0.001, outside = 0.001, together = 1 })
      add("java", "java" .. i, { turns = 30, inside = 0.001, outside = 0.001, fenced = 1,
        together = 1 })
    end
    others:begin(START_UP)
    local history = others:assert_turns(nil, 60)
    assert.equal(120, #history.tokens)
    for i = 2, 120 do assert.is_true(history.tokens[i] > history.tokens[i - 1]) end
  end)

  -- Java alone, for longer than the TTL that we gave the counter.
  local function tokens_of_java_alone(seconds)
    add("java", "java", { seconds = seconds, outside = 0.2, fenced = 1 })
    local history = others:assert_turns(nil, START_UP + seconds)
    assert.is_true(#history.tokens > 2 * seconds)
    for i = 2, #history.tokens do assert.is_true(history.tokens[i] > history.tokens[i - 1]) end
    return history.tokens[#history.tokens]
  end

  local function token_of_ours(options)
    local one = holdfast.new(server:url())
    local fenced = one:lock(KEY, options)
    assert(fenced:acquire(10))
    local token = fenced:token()
    assert(fenced:release())
    one:close()
    return token
  end

  it("draw tokens that never fall once both have used the key", function()
    local met = add("java", "met", { inside = 0.5, fenced = 1, together = 1 })
    assert.truthy(met:wait_output("ready", START_UP))
    local first = token_of_ours { token_ttl = 2 }
    others:begin(START_UP)
    assert.truthy(others:came_in("met", START_UP))
    local second = token_of_ours { token_ttl = 2 }
    assert.is_true(second > first)
    assert.is_nil(others:finish(30))
    assert.is_true(tokens_of_java_alone(5) > second)
  end)

  it("draw tokens that never fall even if holdfast only released while Java waited", function()
    local one = holdfast.new(server:url())
    local fenced = one:lock(KEY, { token_ttl = 2 })
    assert(fenced:acquire(10))
    local first = fenced:token()
    add("java", "met", { fenced = 1 })
    assert.truthy(process.wait_until(function() return listeners() == 1 end, START_UP))
    assert(fenced:release())
    one:close()
    assert.is_nil(others:finish(30))
    assert.is_true(tokens_of_java_alone(5) > first)
  end)
end)
