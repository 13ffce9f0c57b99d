-- One semaphore for holdfast and real Redisson clients.

local holdfast = require "holdfast"
local java_program = require "spec.support.java"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local KEY = "pool"
local CHANNEL = "redisson_sc:{pool}"
local START_UP = java_program.START_UP
-- of all turns, for either side: on a busy machine Java comes too late for some of the turns left
-- to it
local FLOOR = 0.05

local OURS = [[
local holdfast, sys = require "holdfast", require "spec.support.sys"
local resp = require "spec.support.resp"
local port, name, count, seconds, inside = tonumber(arg[1]), arg[2], tonumber(arg[3]), tonumber(arg[4]), tonumber(arg[5])
local server = assert(resp.connect { port = port })
local client = holdfast.new("redis://127.0.0.1:" .. port)
local pool = client:semaphore("pool")
print "ready" io.flush()
while server:call("EXISTS", "test:start") == 0 do sys.sleep(0.005) end
local stop, taken = sys.now() + seconds, 0
while sys.now() < stop do
  local permit = assert(pool:acquire(count))
  server:call("RPUSH", "test:log", name .. " " .. server:call("INCRBY", "test:out", count))
  sys.sleep(inside)
  server:call("INCRBY", "test:out", -count)
  assert(permit:release())
  sys.sleep(0.002)
  taken = taken + 1
end
client:close()
print("done " .. taken)
]]

local server, client, pool, workers

local function java(name, options)
  local args = process.args({ tostring(server.port), KEY, name }, options)
  workers[#workers + 1] = java_program.start("Permits", args)
  return workers[#workers]
end

local function ours(name, count, seconds, inside)
  workers[#workers + 1] = process.lua { code = OURS,
    args = { server.port, name, count, seconds, inside } }
end

local function begin()
  for _, worker in ipairs(workers) do
    assert(worker:wait_output("ready", START_UP), worker:output())
  end
  server:cli("SET", "test:start", 1)
end

-- → turns by side, the most permits that were out at once
local function history()
  local turns, most = {}, 0
  for _, line in ipairs(server:cli("LRANGE", "test:log", 0, -1)) do
    local side, out = line:match("^(%a+)%d* (%S+)$")
    turns[side] = (turns[side] or 0) + 1
    most = math.max(most, tonumber(out))
  end
  return turns, most
end

describe("a semaphore shared by holdfast and Redisson", function()
  before_each(function()
    server = redis.start { tcp = true }
    workers = {}
    client = holdfast.new(server:url())
    pool = client:semaphore(KEY, { permits = 3 })
  end)

  after_each(function()
    client:close()
    for _, worker in ipairs(workers) do worker:stop() end
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
      ours("ours" .. i, i % 2 + 1, 4, 0.003)
    end
    begin()
    for _, worker in ipairs(workers) do
      local how, code = worker:wait(40)
      assert.same({ "exit", 0 }, { how, code }, worker:output())
    end
    local turns, most = history()
    local all = turns.java + turns.ours
    assert.is_true(most <= 3, "most: " .. most)
    assert.is_true(turns.java >= FLOOR * all and turns.ours >= FLOOR * all,
      ("%d : %d"):format(turns.java, turns.ours))
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
