-- Count-down latches. channel_waits_spec.lua tests what plain semaphores have in common with them.

local fails = require "spec.support.fails"
local process = require "spec.support.process"
local resp = require "spec.support.resp"

local world = require("spec.support.world").new()

local KEY = "job"
local CHANNEL = "redisson_countdownlatch__channel__{job}"
local LATE = 20 -- seconds; longer than any of these specs waits for a message

-- Starts a process that waits, and rechecks late.
local function waiter()
  return world.program { args = { world.server:url(), LATE }, code = [[
    local client = require("holdfast").new { url = arg[1], grant_lease = tonumber(arg[2]) }
    print("result", client:latch("job"):wait(30))
    client:close() ]] }
end

local function listeners(count)
  assert(process.wait_until(function()
    return world.cli("PUBSUB", "NUMSUB", CHANNEL)[2] == (count or 1)
  end, 20), "nobody listens")
end

-- Asserts that the latch opens too early for one of the child's own rechecks.
local function opens(child)
  local from = process.now()
  assert(child:wait(40), child:output())
  assert.matches("result\ttrue\n", child:output())
  assert.is_true(process.now() - from < LATE / 2, child:output())
end

-- Does what Redisson's countDown does.
local function java_counts_down()
  if world.cli("DECR", KEY) > 0 then return end
  world.cli("DEL", KEY)
  world.cli("PUBLISH", CHANNEL, 0)
end

local function listen(channel)
  local java = assert(resp.connect { path = world.server.path })
  java:call("SUBSCRIBE", channel or CHANNEL)
  return java
end

describe("a latch", function()
  before_each(world.open)
  after_each(function()
    if world.server.process:status() == nil then world.cli("DEL", KEY) end
    world.close()
  end)

  it("is stored in Redisson's format, and announced on Redisson's channel", function()
    local latch, java = world.client():latch(KEY), listen()
    assert.is_true(latch:set(3))
    assert.same({ "message", CHANNEL, "1" }, java:receive())
    assert.same({ "3", -1 }, { world.cli("GET", KEY), world.cli("PTTL", KEY) })
    assert.equal(2, latch:count_down())
    assert.equal("2", world.cli("GET", KEY))
    assert.equal(0, latch:count_down(2))
    assert.same({ "message", CHANNEL, "0" }, java:receive())
    assert.equal(0, world.cli("EXISTS", KEY))
    java:close()
  end)

  it("counts down to 0 and no further, and can be set again", function()
    local latch = world.client():latch(KEY)
    assert.same({ 0, true, false }, { latch:count(), latch:wait(0), latch:count_down() })
    assert.is_true(latch:set(2))
    assert.is_false(latch:set(5))
    assert.equal(2, latch:count())
    assert.matches("its count is still 2", fails("timeout", latch:wait(0)))
    assert.equal(0, latch:count_down(7))
    assert.same({ false, false }, { latch:count_down(), latch:delete() })
    assert.is_true(latch:wait())
    assert.is_true(latch:set(1))
    assert.is_true(latch:delete())
    assert.same({ 0, KEY }, { latch:count(), latch:key() })
  end)

  it("opens for all waiters at 0, and not before", function()
    local latch, children = world.client():latch(KEY), {}
    assert(latch:set(2))
    for i = 1, 5 do children[i] = waiter() end
    listeners(5)
    assert.equal(1, latch:count_down())
    process.sleep(0.2)
    for _, child in ipairs(children) do assert.is_nil(child:status()) end
    assert.equal(0, latch:count_down())
    for _, child in ipairs(children) do opens(child) end
  end)

  it("opens when Redisson counts down, but not on a forged message", function()
    assert(world.client():latch(KEY):set(2))
    local child = waiter()
    listeners()
    java_counts_down()
    for _, text in ipairs { "1", "0", "nonsense" } do world.cli("PUBLISH", CHANNEL, text) end
    process.sleep(0.2)
    assert.is_nil(child:status())
    java_counts_down()
    opens(child)
  end)

  it("treats large and negative numbers and keys with braces as Redisson does", function()
    local client = world.client()
    world.cli("SET", KEY, "9000000000000")
    assert.equal(8999999999999, client:latch(KEY):count_down())
    world.cli("SET", KEY, "9007199254740993")
    assert(client:latch(KEY):count_down(2))
    assert.equal("9007199254740991", world.cli("GET", KEY))
    for _, text in ipairs { "0", "-3" } do
      world.cli("SET", KEY, text)
      local latch = client:latch(KEY)
      assert.same({ 0, true, false }, { latch:count(), latch:wait(0), latch:count_down() })
      assert.is_true(latch:set(2))
      assert.equal(0, latch:count_down(2))
    end
    local java = listen "redisson_countdownlatch__channel__{a{b}}"
    local latch = client:latch "a{b}"
    assert(latch:set(1))
    assert.equal("1", java:receive()[3])
    assert.equal(0, latch:count_down())
    assert.equal("0", java:receive()[3])
    java:close()
  end)

  it("fails with conflict on a key of another type, and leaves it unchanged", function()
    local latch = world.client():latch(KEY)
    for _, words in ipairs { { "RPUSH", KEY, "x" }, { "SET", KEY, "owner:1" }, { "SET", KEY, "" },
        { "SET", KEY, "-12.50" }, { "SET", KEY, "0.00" }, { "SET", KEY, "nan" }, { "SET", KEY, "1.5" },
        { "SET", KEY, "007" }, { "SET", KEY, " 7" }, { "HSET", KEY, "a", "b" } } do
      world.cli("DEL", KEY)
      world.cli((table.unpack or unpack)(words))
      local before = world.cli("DUMP", KEY)
      fails("conflict", latch:set(1))
      fails("conflict", latch:count_down())
      fails("conflict", latch:count())
      fails("conflict", latch:wait(0.1))
      fails("conflict", latch:delete())
      assert.equal(before, world.cli("DUMP", KEY))
    end
  end)
end)
