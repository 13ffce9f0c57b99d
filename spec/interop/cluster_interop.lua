-- One lock for holdfast and Redisson in cluster mode, whose releases are announced in sharded
-- channels.

local cluster = require "spec.support.cluster"
local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local java_program = require "spec.support.java"
local process = require "spec.support.process"

local KEY = "shared"
local CHANNEL = ("redisson_lock__channel:{%s}"):format(KEY)
local INSIDE, WAKE = 1, 0.3 -- seconds that theirs is in; that ours may come after it
local ROUNDS = 3 -- their median counts
local MEASURED = 6 -- seconds of each round
local WARM = 200 -- turns of Redisson's, after which its machine has compiled what they need
local START_UP = java_program.START_UP

local nodes, others, client, lock

local function add_java(name, options)
  local args = process.args({
    tostring(nodes.nodes[1].port), tostring(others.store.port), KEY, name, "cluster=1",
  }, options)
  return others:join(name, java_program.start("Contender", args))
end

local function new_crowd()
  local server = {
    url = function() return nodes:url() end,
    cli = function(_, ...) return nodes:node_of(KEY):cli(...) end,
  }
  return crowd.new(server, KEY, { tcp = true })
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
    others = new_crowd()
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
    assert.truthy(others:came_in("theirs", START_UP))
    assert.equal("busy", (select(3, lock:acquire(0))))
    assert(lock:acquire(10)) assert(lock:release())
    assert.is_nil(others:finish(30))
  end)

  for name, case in pairs {
    ["sharded channels"] = { "SHARDNUMSUB", {} },
    ["plain channels, which Redisson before 3.22 uses"] = { "NUMSUB", { sharded = 0 } },
  } do
    it("wake each other over " .. name, function()
      local node, options = nodes:node_of(KEY), case[2]
      options.inside = INSIDE
      assert(lock:acquire(0))
      add_java("theirs", options)
      assert.truthy(process.wait_until(function()
        return node:cli("PUBSUB", case[1], CHANNEL)[2] == 1
      end, START_UP))
      process.sleep(0.1)
      assert(lock:release())
      assert.truthy(others:came_in("theirs", 2)) -- its own clock would let it wait for the rest of 30 s
      local before = process.now()
      assert(lock:acquire(10))
      assert.is_true(process.now() - before < INSIDE + WAKE)
      assert(lock:release())
      assert.is_nil(others:finish(30))
    end)
  end

  -- Counts while all take turns. → the turns of Redisson and of holdfast
  local function contest(javas, ours)
    local options = { endless = 1, inside = 0.002, outside = 0.001, together = 1 }
    for i = 1, javas do add_java("java" .. i, options) end
    for i = 1, ours do others:add("ours" .. i, options) end
    others:begin(START_UP)
    local function turns()
      local history = others:history()
      return count(history, "java"), count(history, "ours")
    end
    assert.truthy(process.wait_until(function() return turns() >= WARM end, START_UP))
    local java, lua = turns()
    process.sleep(MEASURED)
    local java_then, lua_then = turns()
    for _, worker in ipairs(others.workers) do assert.is_nil(worker:status(), worker.name) end
    others:call_off()
    assert.is_nil(others:finish(60))
    local all = others:history()
    assert.is_nil(all.overlap)
    assert.equal(0, all.lost)
    return java_then - java, lua_then - lua
  end

  -- Each side has at least this share of the turns.
  local function share(javas, ours, least)
    local shares, told = {}, {}
    for round = 1, ROUNDS do
      if round > 1 then
        others:stop()
        others = new_crowd()
      end
      local java, lua = contest(javas, ours)
      told[round] = ("Redisson %d turns, holdfast %d"):format(java, lua)
      print(("\nin a cluster, %d and %d: %s"):format(javas, ours, told[round]))
      shares[round] = math.min(java, lua) / (java + lua)
    end
    table.sort(shares)
    assert.is_true(shares[(ROUNDS + 1) / 2] >= least, table.concat(told, "; "))
  end

  it("both get turns with three waiters each", function() share(3, 3, 0.35) end)
  it("both get turns with one waiter each", function() share(1, 1, 0.35) end)

  it("lose no update with three waiters each while their slot moves", function()
    for i = 1, 3 do
      local options = { seconds = 6, inside = 0.002, outside = 0.001, together = 1 }
      add_java("java" .. i, options)
      others:add("ours" .. i, options)
    end
    others:begin(START_UP)
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
    print(("\nholdfast %d turns, Redisson %d"):format(count(history, "ours"),
      count(history, "java")))
    assert.is_true(count(history, "ours") > 0)
    assert.is_true(count(history, "java") > 0)
  end)
end)
