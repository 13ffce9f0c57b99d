-- One semaphore for holdfast and real Redisson clients.

local holdfast = require "holdfast"
local java_program = require "spec.support.java"
local listening = require "spec.interop.listening"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local KEY = "pool"
local CHANNEL = "redisson_sc:{pool}"
local START_UP = java_program.START_UP
-- of all turns, for either side: on a busy machine Java comes too late for some of the turns left
-- to it
local FLOOR = 0.05

local server, client, pool

local function java(name, options)
  local args = process.args({ tostring(server.port), KEY, name }, options)
  return listening.join(java_program.start("Permits", args))
end

describe("a semaphore shared by holdfast and Redisson", function()
  before_each(function()
    server = redis.start { tcp = true }
    client = holdfast.new(server:url())
    pool = client:semaphore(KEY, { permits = 3 })
  end)

  after_each(function()
    client:close()
    listening.stop()
    server:stop()
  end)

  it("counts the permits of both sides", function()
    local permit = assert(pool:acquire(2))
    local refused = java("refused", { count = 2, wait = 0.05 })
    assert(refused:wait(START_UP))
    assert.matches("failed busy", refused:output())
    local theirs = java("theirs", { hold = 1, lease = 3 })
    assert(theirs:wait_output("\nin", START_UP))
    assert.same({ 3, 0, 3 }, { pool:permits(), pool:available(), pool:info().held })
    local acquired, _, code = pool:acquire(1, 0)
    assert.same({ nil, "busy" }, { acquired, code })
    theirs:kill("KILL")
    local from = process.now()
    local taken_back = assert(pool:acquire(1, 6)) -- nobody else calls
    assert.is_true(process.now() - from < 3.5)
    assert(taken_back:release()) assert(permit:release())
  end)

  it("wakes the waiters of both sides at a release", function()
    local permit = assert(pool:acquire(3))
    local theirs = java("theirs", { inside = 1, count = 3 })
    assert(process.wait_until(function()
      return server:cli("PUBSUB", "NUMSUB", CHANNEL)[2] == 1
    end, START_UP))
    process.sleep(0.1)
    local from = process.now()
    assert(permit:release()) assert(theirs:wait_output("\nin", 1))
    assert.is_true(process.now() - from < 0.3)
    local ours_again = assert(pool:acquire(3, 5))
    assert.is_true(process.now() - from < 1.6)
    assert.equal("0", server:cli("GET", "test:out"))
    assert(ours_again:release())
    assert.matches("done 1", theirs:wait_output("(done %d)", 10))
  end)

  it("never has more holders than permits with four clients of each side, and both get turns", function()
    assert(pool:acquire()):release()
    for i = 1, 4 do
      java("java" .. i, { seconds = 4, inside = 0.003, outside = 0.002, count = i % 2 + 1,
        after_start = 1 })
      listening.works(server, "semaphore", "ours" .. i, i % 2 + 1, 4, 0.003)
    end
    local turns, most = listening.turns(server)
    assert.is_true(most <= 3, "most: " .. most)
    assert.is_true(math.min(turns.java, turns.ours) >= FLOOR * (turns.java + turns.ours))
    assert.equal("3", server:cli("GET", KEY))
    assert.equal(0, server:cli("EXISTS", "{pool}:timeout"))
  end)

  it("can be resized from either side", function()
    assert(pool:acquire()):release()
    local java_waits = java("waits", { count = 5, wait = 30 })
    assert(process.wait_until(function()
      return server:cli("PUBSUB", "NUMSUB", CHANNEL)[2] == 1
    end, START_UP))
    assert(pool:set_permits(5)) assert(java_waits:wait_output("\nin", 1))
    assert(java_waits:wait(10))
    assert.equal(5, pool:permits())
  end)
end)
