-- One lock for holdfast and Redisson in cluster mode, whose releases are announced in sharded
-- channels.

local crowd = require "spec.support.crowd"
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

describe("holdfast and Redisson in a cluster", function()
  local scene = crowd.scene(KEY, function() return crowd.cluster_of(KEY) end)

  before_each(function()
    local server
    server, others, client = scene.open()
    nodes, lock = server.nodes, client:lock(KEY)
  end)
  after_each(scene.close)

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
    local function turns() return others:turns_of_side("java"), others:turns_of_side("ours") end
    assert.truthy(process.wait_until(function() return turns() >= WARM end, START_UP))
    local java, lua = turns()
    process.sleep(MEASURED)
    local java_then, lua_then = turns()
    for _, worker in ipairs(others.workers) do assert.is_nil(worker:status(), worker.name) end
    others:call_off()
    others:assert_turns(nil, 60)
    return java_then - java, lua_then - lua
  end

  -- Each side has at least this share of the turns.
  local function share(javas, ours, least)
    local shares, told = {}, {}
    for round = 1, ROUNDS do
      if round > 1 then others = scene.renew() end
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
    others:assert_turns(nil, 90)
    local java, lua = others:turns_of_side("java"), others:turns_of_side("ours")
    print(("\nholdfast %d turns, Redisson %d"):format(lua, java))
    assert.is_true(math.min(java, lua) > 0)
  end)
end)
