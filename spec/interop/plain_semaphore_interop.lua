-- One plain semaphore for holdfast and real Redisson clients.

local cluster = require "spec.support.cluster"
local holdfast = require "holdfast"
local java_program = require "spec.support.java"
local listening = require "spec.interop.listening"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local KEY, CHANNEL = "pool", "redisson_sc:{pool}"
local LATE = 20 -- seconds between two polls of holdfast: only a message is faster
local FLOOR = 0.05 -- of all turns, for either side: there is no order between them

local WAITS = [[
local holdfast = require "holdfast"
local client = holdfast.new { url = arg[1], grant_lease = tonumber(arg[3]) }
print("done " .. tostring(client:plain_semaphore(arg[2]):acquire(tonumber(arg[4]), 60)))
client:close()
]]

local done, heard_by, join = listening.done, listening.heard_by, listening.join

local port, url, client, pool

local function java(key, what, options)
  return join(java_program.start("Semaphores", process.args({ tostring(port), key, what }, options)))
end

local function ours(key, count)
  return join(process.lua { code = WAITS, args = { url, key, LATE, count or 1 } })
end

describe("a plain semaphore shared by holdfast and Redisson", function()
  local server

  before_each(function()
    server = redis.start { tcp = true }
    port, url = server.port, server:tcp_url()
    client = holdfast.new(url)
    pool = client:plain_semaphore(KEY)
  end)

  after_each(function()
    client:close()
    listening.stop()
    server:stop()
  end)

  it("has the same number of permits on both sides", function()
    assert.is_true(pool:set(4))
    done(java(KEY, "set", { count = 9 }), "false")
    done(java(KEY, "acquire", { count = 3, wait = 1 }), "true")
    assert.equal(1, pool:available())
    assert.is_nil(pool:try_acquire(2))
    assert.is_true(pool:try_acquire())
    done(java(KEY, "acquire", { wait = 0 }), "false")
    done(java(KEY, "release", { count = 2 }), "true")
    assert.equal(2, pool:available())
    done(java(KEY, "add", { count = 3 }), "true")
    assert.equal(7, pool:add(2))
    done(java(KEY, "drain"), "7")
    assert.equal(-2, pool:add(-2))
    done(java(KEY, "available"), "-2")
    done(java(KEY, "delete"), "true")
    assert.is_false(pool:delete())
    done(java(KEY, "set", { count = 2 }), "true")
    assert.same({ 2, 0 }, { pool:drain(), pool:available() })
  end)

  it("wakes waiters on both sides when holdfast releases permits", function()
    local theirs, mine = java(KEY, "acquire"), ours(KEY, 2)
    heard_by(server, 2, CHANNEL)
    assert(pool:release(3))
    done(theirs, "true", 2)
    done(mine, "true", 2)
    assert.equal(0, pool:available())
  end)

  it("wakes waiters on both sides when Redisson releases permits", function()
    local theirs, mine = java(KEY, "acquire", { count = 2 }), ours(KEY)
    heard_by(server, 2, CHANNEL)
    done(java(KEY, "release", { count = 3 }), "true")
    done(theirs, "true", 2)
    done(mine, "true", 2)
    assert.equal(0, pool:available())
  end)

  it("wakes Redisson's waiters when holdfast sets or adds permits", function()
    assert.is_true(pool:set(0))
    local first = java(KEY, "acquire")
    heard_by(server, 1, CHANNEL)
    assert.equal(-1, pool:add(-1))
    assert.equal(0, pool:add(1))
    assert.equal(1, pool:add(1))
    done(first, "true", 2)
    assert.is_true(pool:delete())
    local second = java(KEY, "acquire")
    heard_by(server, 1, CHANNEL)
    assert.is_true(pool:set(1))
    done(second, "true", 2)
  end)

  it("is shared even if its key contains braces", function()
    local theirs = java("a{b}", "acquire")
    heard_by(server, 1, "redisson_sc:a{b}")
    assert(client:plain_semaphore("a{b}"):release())
    done(theirs, "true", 2)
  end)

  it("never has more holders than permits, and both sides get turns", function()
    assert.is_true(pool:set(3))
    for i = 1, 2 do
      java(KEY, "work", { seconds = 4, count = i, inside = 0.002, outside = 0.002 })
      listening.works(server, "plain_semaphore", "ours", i, 4, 0.002)
    end
    local turns, most = listening.turns(server)
    assert.equal(3, most)
    assert.is_true(math.min(turns.java, turns.ours) >= FLOOR * (turns.java + turns.ours))
    assert.equal(3, pool:available())
  end)
end)

describe("a plain semaphore shared by holdfast and Redisson in a cluster", function()
  it("wakes waiters on both sides when either side releases permits", function()
    local nodes = cluster.start { masters = 3, replicas = 0 }
    local node, sharded = nodes:node_of(KEY), redis.major() >= 7
    port, url = nodes.nodes[1].port, nodes:url()
    client = holdfast.new(url)
    pool = client:plain_semaphore(KEY)
    for _, gives in ipairs { "ours", "theirs" } do
      local theirs, mine = java(KEY, "acquire", { cluster = 1 }), ours(KEY)
      heard_by(node, 2, CHANNEL, sharded)
      if gives == "ours" then assert(pool:release(2))
      else done(java(KEY, "release", { cluster = 1, count = 2 }), "true") end
      done(theirs, "true", 2)
      done(mine, "true", 2)
    end
    assert.equal(0, pool:available())
    client:close()
    listening.stop()
    nodes:stop()
  end)
end)
