-- One latch for holdfast and real Redisson clients.

local cluster = require "spec.support.cluster"
local holdfast = require "holdfast"
local java_program = require "spec.support.java"
local listening = require "spec.interop.listening"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local LATE = 20 -- seconds between two polls of holdfast: only a message is faster
local WOKEN = LATE / 2
-- Four waiters of each side, so a message that wakes one of a process or one process is seen.
local PROCESSES, THREADS, OURS_WAITING = 2, 2, 4

local OURS = [[
local holdfast, sys = require "holdfast", require "spec.support.sys"
local client = holdfast.new { url = arg[1], grant_lease = tonumber(arg[3]) }
print("done " .. tostring(client:latch(arg[2]):wait(60)))
client:close()
]]

local done, heard_by, join = listening.done, listening.heard_by, listening.join

local port, url, client, latch

local function java(key, what, options)
  return join(java_program.start("Latches", process.args({ tostring(port), key, what }, options)))
end

local function ours(key)
  return join(process.lua { code = OURS, args = { url, key, LATE } })
end

-- They listen to the channel when this returns. options: of Latches, for each thread of Redisson's
-- processes. → the processes
local function all_wait(server, key, channel, options, sharded)
  local all = {}
  options = options or {}
  options.threads = THREADS
  for i = 1, PROCESSES do all[i] = java(key, "wait", options) end
  for _ = 1, OURS_WAITING do all[#all + 1] = ours(key) end
  heard_by(server, #all, channel, sharded)
  return all
end

local function passed(all)
  local count = 0
  for _, child in ipairs(all) do count = count + select(2, child:output():gsub("done true\n", "")) end
  return count
end

local function all_pass(all)
  local want = PROCESSES * THREADS + OURS_WAITING
  process.wait_until(function() return passed(all) == want end, WOKEN)
  assert.equal(want, passed(all))
end

describe("a latch shared by holdfast and Redisson", function()
  local server
  local CHANNEL = "redisson_countdownlatch__channel__{job}"

  before_each(function()
    server = redis.start { tcp = true }
    port, url = server.port, server:tcp_url()
    client = holdfast.new(url)
    latch = client:latch "job"
  end)

  after_each(function()
    client:close()
    listening.stop()
    server:stop()
  end)

  it("has the same count on both sides", function()
    assert.is_true(latch:set(4))
    done(java("job", "set", { count = 9 }), "false")
    done(java("job", "down", { count = 3 }), "1")
    assert.equal(1, latch:count())
    assert.equal(0, latch:count_down())
    done(java("job", "wait"), "true")
    done(java("job", "set", { count = 2 }), "true")
    assert.same({ false, 2 }, { latch:set(5), latch:count() })
    assert.equal("timeout", (select(3, latch:wait(0))))
    done(java("job", "down", { count = 2 }), "0")
    assert.is_true(latch:wait(0))
    assert.is_false(latch:count_down())
  end)

  it("opens for waiters on both sides when holdfast counts down", function()
    assert.is_true(latch:set(2))
    local all = all_wait(server, "job", CHANNEL)
    assert.equal(1, latch:count_down())
    process.sleep(0.3)
    assert.equal(0, passed(all))
    assert.equal(0, latch:count_down())
    all_pass(all)
  end)

  it("opens for waiters on both sides when Redisson counts down", function()
    assert.is_true(latch:set(2))
    local all = all_wait(server, "job", CHANNEL)
    done(java("job", "down", { count = 2 }), "0")
    all_pass(all)
  end)

  it("opens for Redisson's waiters when holdfast deletes it", function()
    assert.is_true(latch:set(2))
    local theirs = java("job", "wait")
    heard_by(server, 1, CHANNEL)
    assert.is_true(latch:delete())
    done(theirs, "true", WOKEN)
  end)

  it("opens for holdfast's waiters when Redisson deletes it", function()
    assert.is_true(latch:set(2))
    local mine = ours "job"
    heard_by(server, 1, CHANNEL)
    done(java("job", "delete"), "true")
    done(mine, "true", WOKEN)
  end)

  it("is shared even if its key contains braces", function()
    local braces = client:latch "a{b}"
    assert.is_true(braces:set(1))
    local theirs = java("a{b}", "wait")
    heard_by(server, 1, "redisson_countdownlatch__channel__{a{b}}")
    assert.equal(0, braces:count_down())
    done(theirs, "true", WOKEN)
  end)
end)

describe("a latch shared by holdfast and Redisson in a cluster", function()
  it("opens for waiters on both sides when either counts down", function()
    local nodes = cluster.start { masters = 3, replicas = 0 }
    local channel = "redisson_countdownlatch__channel__{job}"
    local node, sharded = nodes:node_of "job", redis.major() >= 7
    port, url = nodes.nodes[1].port, nodes:url()
    client = holdfast.new(url)
    latch = client:latch "job"
    for _, opens in ipairs { "ours", "theirs" } do
      assert.is_true(latch:set(1))
      local all = all_wait(node, "job", channel, { cluster = 1 }, sharded)
      if opens == "ours" then assert.equal(0, latch:count_down())
      else done(java("job", "down", { cluster = 1 }), "0") end
      all_pass(all)
    end
    client:close()
    listening.stop()
    nodes:stop()
  end)
end)
