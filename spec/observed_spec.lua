-- What the status page and `holdfast top` make of what they see, without a server.

local observed = require "holdfast.observed"
local sorted = require "holdfast.sorted"

local unpack = table.unpack or unpack

describe("what two observations of a lock show", function()
  local NOW = 1790000000

  local function entry(owner, token, since)
    return { owner = owner, token = token and token * 1e6, since = since }
  end

  it("is at least one hand-off where the holder is another one, or has taken it again", function()
    local function handed(before, after) return observed.handed_over(before, after) end
    assert.equal(0, handed(nil, entry("a", NOW)))
    assert.equal(0, handed(entry("a", NOW), entry("a", NOW)))
    assert.equal(1, handed(entry("a", NOW), entry("b", NOW + 1)))
    assert.equal(1, handed(entry("a", NOW), entry("a", NOW + 500)))
    assert.equal(1, handed(entry("a", NOW), entry("b", 7))) -- the clock or the counter began again
    assert.equal(0, handed(entry("a", NOW), entry("a", 7))) -- the counter alone
    assert.equal(0, handed(entry("a", NOW), entry("a")))
    assert.equal(1, handed(entry("a"), entry("b")))
    assert.equal(1, handed(entry(nil, NOW), entry(nil, NOW + 1))) -- permits have no owner here
  end)

  it("is since when the holder has it: its token, or the first observation where that is no time", function()
    local function since(token, before) return observed.since(entry("a", token), before, NOW) end
    assert.equal(NOW - 60, since(NOW - 60))
    assert.equal(NOW, since(nil))
    assert.equal(NOW, since(7))
    assert.equal(NOW, since(NOW + 3600))
    assert.equal(NOW, since(NOW + 0.5)) -- its clock is a little ahead
    assert.equal(NOW - 5, since(7, entry("a", 7, NOW - 5)))
    assert.equal(NOW - 1, since(NOW - 1, entry("a", NOW - 60, NOW - 60))) -- taken again
    assert.equal(NOW, since(7, entry("b", 7, NOW - 5)))
  end)
end)

describe("for how long a lock has been held, by the server's clock", function()
  local CLOCK, UUID = 1790000060, "2d0c6c3e-6f6a-8a53-9c2b-7b1f0e4f9a10"
  local JAVA = "2d0c6c3e-6f6a-4a53-9c2b-7b1f0e4f9a10:1"

  -- token: in seconds
  local function held_for(owner, token, more)
    local info = { owner = owner, token = token and token * 1e6, clock = CLOCK }
    for name, value in pairs(more or {}) do info[name] = value end
    return observed.held_for(info, info.in_quorum)
  end

  it("follows from the holder's token", function()
    assert.equal(60, held_for(UUID .. ":1", CLOCK - 60))
    assert.equal(0, held_for(UUID .. ":1", CLOCK + 0.000008)) -- it was rounded up
    assert.near(60, held_for(UUID .. ":1.2", CLOCK - 60 + 0.000001, { in_quorum = true }), 0.001)
    assert.near(60, held_for(UUID .. ":01", CLOCK - 60 + 0.25), 0.001) -- the last one of a range
    assert.equal(60, held_for(UUID .. ":1:write", CLOCK - 60, { readers = 0 }))
  end)

  it("is not known if the last token is not the holder's or not a time", function()
    assert.is_nil(held_for(nil, CLOCK - 60))
    assert.is_nil(held_for(UUID .. ":1", nil))
    assert.is_nil(held_for(UUID .. ":1", 0.000016))
    assert.is_nil(held_for(UUID .. ":1", CLOCK + 3600)) -- the clock was set back
    assert.is_nil(held_for(UUID .. ":1", CLOCK - 60 + 0.000001)) -- Redisson has counted on
    assert.is_nil(held_for(JAVA, CLOCK - 60))
    assert.is_nil(held_for("them", CLOCK - 60))
    assert.is_nil(held_for(UUID .. ":1", CLOCK - 60, { readers = 1 })) -- it is the last writer's
  end)

  it("is for how long a place has been taken, or longer for a waiter in front", function()
    assert.same({ 60 }, { observed.waits((CLOCK - 60) * 1e6, CLOCK) })
    assert.same({ 64, true }, { observed.waits((CLOCK - 64) * 1e6 / 1024, CLOCK) })
    assert.same({ 0 }, { observed.waits((CLOCK + 1) * 1e6, CLOCK) })
  end)
end)

describe("the state of all that is seen", function()
  local function state(seen)
    seen.deadlocks, seen.losses = seen.deadlocks or 0, seen.losses or 0
    return observed.state(seen)
  end

  it("is the worst of it", function()
    assert.equal("well", state {})
    assert.equal("well", state { longest_wait = 29.9 })
    assert.equal("long_wait", state { longest_wait = 30 })
    assert.equal("server_down", state { longest_wait = 30, some_down = true })
    assert.equal("losses", state { losses = 1, some_down = true })
    assert.equal("deadlock", state { deadlocks = 1, losses = 1, longest_wait = 99 })
    assert.equal("away", state { away = "connection refused", deadlocks = 1 })
  end)
end)

describe("the first of many items", function()
  it("are those that sorting all of them brings to the front", function()
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
