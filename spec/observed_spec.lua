-- What the status page and `holdfast top` make of what they see, without a server.

local observed = require "holdfast.observed"
local sorted = require "holdfast.sorted"

describe("what two looks at a lock tell", function()
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

  it("is since when the holder has it: its token, or the first look where that is no time", function()
    local function since(token, before) return observed.since(entry("a", token), before, NOW) end
    assert.equal(NOW - 60, since(NOW - 60))
    assert.equal(NOW, since(nil))
    assert.equal(NOW, since(7))
    assert.equal(NOW, since(NOW + 3600))
    assert.equal(NOW - 5, since(7, entry("a", 7, NOW - 5)))
    assert.equal(NOW - 1, since(NOW - 1, entry("a", NOW - 60, NOW - 60))) -- taken again
    assert.equal(NOW, since(7, entry("b", 7, NOW - 5)))
  end)
end)

describe("items that come and go", function()
  it("are in order, counted and found by place", function()
    local function before(a, b) return a.number < b.number end
    local list, wanted, seed = sorted.new(before), {}, 7
    for i = 1, 5000 do
      seed = (seed * 16807) % 2147483647
      if #wanted > 0 and seed % 5 < 2 then
        sorted.remove(list, table.remove(wanted, seed % #wanted + 1))
      else
        wanted[#wanted + 1] = { number = seed + i / 10000 }
        sorted.insert(list, wanted[#wanted])
      end
    end
    table.sort(wanted, before)
    assert.equal(#wanted, list.size)
    for skip = 0, #wanted + 10, 97 do
      local slice = sorted.slice(list, skip, 300)
      assert.equal(math.max(0, math.min(300, #wanted - skip)), #slice)
      for i, item in ipairs(slice) do assert(item == wanted[skip + i]) end
      if wanted[skip + 1] then assert.equal(skip, sorted.rank(list, wanted[skip + 1])) end
    end
    assert.equal(#wanted, sorted.rank(list, { number = math.huge }))
    for _, item in ipairs(wanted) do sorted.remove(list, item) end
    assert.same({ 0, {} }, { list.size, sorted.slice(list, 0, 9) })
  end)
end)
