-- How the status page and `holdfast top` interpret the keys; tested without a server.

local observed = require "holdfast.observed"
local sorted = require "holdfast.sorted"

local unpack = table.unpack or unpack

describe("the status page computes", function()
  local CLOCK, UUID = 1790000060, "2d0c6c3e-6f6a-8a53-9c2b-7b1f0e4f9a10"
  local JAVA = "2d0c6c3e-6f6a-4a53-9c2b-7b1f0e4f9a10:1"

  -- `token` is in seconds.
  local function held_for(owner, token, more)
    local info = { owner = owner, token = token and token * 1e6, clock = CLOCK }
    for name, value in pairs(more or {}) do info[name] = value end
    return observed.held_for(info, info.in_quorum)
  end

  it("how long a lock has been held from its holder's token", function()
    assert.equal(60, held_for(UUID .. ":1", CLOCK - 60))
    assert.equal(0, held_for(UUID .. ":1", CLOCK + 0.000008)) -- the token was rounded up
    assert.near(60, held_for(UUID .. ":1.2", CLOCK - 60 + 0.000001, { in_quorum = true }), 0.001)
    assert.near(60, held_for(UUID .. ":01", CLOCK - 60 + 0.25), 0.001) -- the last token of a range
    assert.equal(60, held_for(UUID .. ":1:write", CLOCK - 60, { readers = 0 }))
  end)

  it("no hold time if the last token is not the holder's or is not a time", function()
    assert.is_nil(held_for(nil, CLOCK - 60))
    assert.is_nil(held_for(UUID .. ":1", nil))
    assert.is_nil(held_for(UUID .. ":1", 0.000016))
    assert.is_nil(held_for(UUID .. ":1", CLOCK + 3600)) -- the clock was set back
    assert.is_nil(held_for(UUID .. ":1", CLOCK - 60 + 0.000001)) -- Redisson has counted on
    assert.is_nil(held_for(JAVA, CLOCK - 60))
    assert.is_nil(held_for("them", CLOCK - 60))
    assert.is_nil(held_for(UUID .. ":1", CLOCK - 60, { readers = 1 })) -- the last writer's token
  end)

  it("how long a waiter has waited from its score in the queue", function()
    assert.same({ 60 }, { observed.waits((CLOCK - 60) * 1e6, CLOCK) })
    assert.same({ 64, true }, { observed.waits((CLOCK - 64) * 1e6 / 1024, CLOCK) })
    assert.same({ 0 }, { observed.waits((CLOCK + 1) * 1e6, CLOCK) })
  end)
end)

describe("the overall state on the status page", function()
  local function state(seen)
    seen.deadlocks, seen.losses = seen.deadlocks or 0, seen.losses or 0
    return observed.state(seen)
  end

  it("is the worst of all observations", function()
    assert.equal("well", state { knows_waiters = true })
    assert.equal("well", state { knows_waiters = true, longest_wait = 29.9 })
    assert.equal("looking", state { longest_wait = 29.9 })
    assert.equal("long_wait", state { longest_wait = 30 })
    assert.equal("server_down", state { longest_wait = 30, some_down = true })
    assert.equal("losses", state { losses = 1, some_down = true })
    assert.equal("deadlock", state { deadlocks = 1, losses = 1, longest_wait = 99 })
    assert.equal("away", state { away = "connection refused", deadlocks = 1 })
  end)
end)

describe("the first N of many items", function()
  it("are the same items that a full sort would put first", function()
    local function before(a, b) return a.number < b.number end
    local list, seed = {}, 7
    for i = 1, 1000 do
      seed = (seed * 16807) % 2147483647
      list[i] = { number = seed % 500 + i / 10000 }
    end
    local wanted = { unpack(list) }
    table.sort(wanted, before)
    for _, most in ipairs { 0, 1, 2, 3, 100, 999, 1000, 2000 } do
      local first = sorted.first(list, most, before)
      assert.equal(math.min(most, #list), #first)
      for i, item in ipairs(first) do assert(item == wanted[i], most) end
    end
    assert.same({}, sorted.first({}, 10, before))
  end)
end)
