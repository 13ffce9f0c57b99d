-- One read/write lock for holdfast and Redisson's RReadWriteLock.

local crowd = require "spec.support.crowd"
local java_program = require "spec.support.java"
local process = require "spec.support.process"

local KEY = "shared"
local CHANNEL = ("redisson_rwlock:{%s}"):format(KEY)
local WAKE = 0.3 -- seconds after which a waiter is in
local START_UP = java_program.START_UP

local server, others, client, lock

local ROLES = { read = 0, write = 1, both = 2 }

local function java(name, options)
  local args = { tostring(server.port), tostring(others.store.port), KEY, name }
  for option, value in pairs(options) do
    args[#args + 1] = option .. "=" .. tostring(option == "role" and ROLES[value] or value)
  end
  return others:join(name, java_program.start("ReadWriter", args))
end

local function ours(name, options)
  local args = process.args({ server:url(), others.store.path, KEY, name }, options)
  return others:join(name, process.lua { file = "spec/support/read_write_worker.lua", args = args })
end

-- → how many turns each name had
local function history()
  local turns, readers, writer = {}, 0, nil
  for i, line in ipairs(others.store:cli("LRANGE", "crowd:history", 0, -1)) do
    local what, name = line:match("^(%S+) (%S+)")
    if what == "r+" then
      assert.is_nil(writer, ("%d: %s reads while %s writes"):format(i, name, tostring(writer)))
      readers = readers + 1
    elseif what == "r-" then
      readers = readers - 1
    elseif what == "w+" then
      assert.is_nil(writer, ("%d: %s and %s write"):format(i, name, tostring(writer)))
      assert.equal(0, readers, ("%d: %s writes while others read"):format(i, name))
      writer = name
    else
      writer = nil
    end
    if what:sub(2) == "+" then turns[name] = (turns[name] or 0) + 1 end
  end
  assert.is_nil(others.store:cli("GET", "pair:torn") or nil)
  return turns
end

local function came_in(name, seconds)
  return process.wait_until(function() return history()[name] end, seconds)
end

local function listeners() return server:cli("PUBSUB", "NUMSUB", CHANNEL)[2] end

describe("a read/write lock shared with Java", function()
  local scene = crowd.scene(KEY)

  before_each(function()
    server, others, client = scene.open()
    lock = client:read_write_lock(KEY)
  end)
  after_each(scene.close)

  it("admits readers of both sides together, or one writer of either", function()
    assert(lock:read():acquire(0))
    java("reader", { role = "read", inside = 2, holds = 2 })
    assert.truthy(came_in("reader", START_UP))
    assert.equal(2, assert(lock:write():info()).readers)
    assert(lock:read():release())
    assert.equal("busy", (select(3, lock:write():acquire(0))))
    assert(lock:read():acquire(0))
    local writer = java("writer", { role = "write", wait = 0.05 })
    assert.truthy(writer:wait_output("failed busy", START_UP))
    assert(lock:read():release())
    assert.is_nil(others:finish(START_UP))
    assert.equal(0, server:cli("EXISTS", KEY))
  end)

  it("wakes writers of either side when the other side's readers leave", function()
    assert(lock:read():acquire(0))
    java("writer", { role = "write", inside = 1 })
    assert.truthy(process.wait_until(function() return listeners() == 1 end, START_UP))
    process.sleep(0.1)
    assert(lock:read():release())
    assert.truthy(came_in("writer", WAKE))
    ours("reader", { role = "read" })
    ours("second", { role = "write" })
    assert.is_nil(others:finish(10))
    local turns = history()
    assert.same({ 1, 1, 1 }, { turns.writer, turns.reader, turns.second })
  end)

  it("wakes Java's readers when a holdfast writer releases or becomes a reader", function()
    assert(lock:write():acquire(0))
    for i = 1, 2 do java("java" .. i, { role = "read", inside = 0.5 }) end
    assert.truthy(process.wait_until(function() return listeners() == 2 end, START_UP))
    process.sleep(0.1)
    assert(lock:read():acquire(0)) assert(lock:write():release())
    assert.truthy(came_in("java1", WAKE) and came_in("java2", WAKE))
    assert(lock:read():release())
    assert.is_nil(others:finish(10))
  end)

  it("ends the hold of Java's dead readers with their leases", function()
    local dead = java("dead", { role = "read", lease = 1.5, inside = 60 })
    assert.truthy(dead:wait_output("in", START_UP))
    assert(lock:read():acquire(0))
    dead:stop()
    local writer = ours("writer", { role = "write" })
    assert.truthy(others:wait_queued(1, 5))
    local start = process.now()
    assert(lock:read():release())
    assert.truthy(writer:wait_output("in", 5))
    assert.is_true(process.now() - start < 2)
    assert.equal("exit", (writer:wait(5))) -- a killed one would leave its grant in the queue
  end)

  for what, sides in pairs {
    ["a holdfast writer acquire among Java's readers, which may re-enter"] = { ours, java, "java", 1 },
    ["Java's writer acquire among holdfast's readers"] = { java, ours, "ours" },
  } do
    it("lets " .. what, function()
      local write, read, reader, reenters = (table.unpack or unpack)(sides, 1, 4)
      for i = 1, 3 do
        local holds = reenters and i
        read(reader .. i, { role = "read", holds = holds, seconds = 6, inside = 0.02, together = 1 })
      end
      write("writer", { role = "write", seconds = 5, inside = 0.002, outside = 0.05, together = 1 })
      others:begin(START_UP)
      assert.is_nil(others:finish(START_UP))
      local turns = history()
      assert.is_true((turns.writer or 0) >= 8)
      for i = 1, 3 do assert.is_true(turns[reader .. i] > 10, reader .. i) end
    end)
  end

  it("shows no reader a half-written value, and all of four clients on each side get turns", function()
    local roles = { "read", "read", "write", "both" }
    for i, role in ipairs(roles) do
      local options = { role = role, seconds = 6, inside = 0.002, outside = 0.001, together = 1 }
      java("java" .. i, options)
      options.lease = 3
      ours("ours" .. i, options)
    end
    others:begin(START_UP)
    assert.is_nil(others:finish(START_UP))
    local turns, sums = history(), { ours = 0, java = 0 }
    for i = 1, 4 do
      for kind in pairs(sums) do
        assert.is_true((turns[kind .. i] or 0) > 5,
          ("%s%d (%s): %s turns"):format(kind, i, roles[i], turns[kind .. i]))
        sums[kind] = sums[kind] + turns[kind .. i]
      end
    end
    print(("\nholdfast %d turns, Java %d"):format(sums.ours, sums.java))
    assert.is_true(sums.ours > 0.1 * (sums.ours + sums.java))
    assert.is_true(sums.java > 0.1 * (sums.ours + sums.java))
  end)
end)
