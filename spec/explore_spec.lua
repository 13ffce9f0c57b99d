-- The parts of the search of small worlds. The suites `explore` and `explore-kept` of make test use
-- it to look for broken rules.

local Order = require "spec.explore.order"
local mutants = require "spec.sim.mutants"
local path = require "spec.explore.path"
local search = require "spec.explore.search"
local world = require "spec.explore.world"
local worlds = require "spec.explore.worlds"

local ENTERS = "lock enter: p1 holds 10 enters; p2 holds 1 | lose_reply p1"
local BROKEN = { patched = mutants.turn_on(mutants.find "blind_release").patched }

local function searched(row, bound, options) return search.world(world.of(row), bound, options) end

describe("the exploration of small worlds", function()
  it("has at least 150 worlds with unique names", function()
    local names = {}
    for _, row in ipairs(worlds) do
      local made = world.of(row)
      assert.is_nil(names[made.name], made.name)
      names[made.name] = true
    end
    assert.is_true(#worlds >= 150)
  end)

  it("names the unknown word or missing number in a world's row", function()
    assert.error_matches(function() world.of "lock acquire: p1 dances" end, "dances")
    assert.error_matches(function() world.of "lock acquire: p1 holds" end, "a number is missing")
    assert.error_matches(function() world.of "lock" end, "not a row")
  end)

  it("visits the same states in the same order each time", function()
    local one, other = searched(ENTERS, 1), searched(ENTERS, 1)
    assert.is_nil(one.found)
    assert.is_true(one.paths > 5)
    assert.same({ one.paths, one.states, one.events }, { other.paths, other.states, other.events })
  end)

  it("explores more states if more deviations are allowed", function()
    local row = "lock acquire: p1 holds 10; p2 holds 2"
    local one, two = searched(row, 1), searched(row, 2)
    assert.is_true(two.states > one.states)
    assert.equal(2, two.bound)
  end)

  it("reports the shortest path to a defect, and can replay it", function()
    local made = world.of(ENTERS)
    local result = search.world(made, 2, BROKEN)
    assert.equal("exclusion", result.found.rule)
    assert.equal(1, #result.departures)
    local texts = path.in_words(result.departures, made)
    assert.matches("^lose_reply p1 before s1 > p1 calls #%d$", texts[1])
    local again = search.run(made, path.of(texts, made), nil, BROKEN)
    assert.same(result.found, again.found)
    assert.is_nil(search.run(made, path.of(texts, made)).found)
  end)

  it("can swap the arrival order of two clients' commands with a single delay", function()
    local made, taken = world.of "lock acquire: p1 holds 10; p2 holds 2", {}
    local function note(_, text) taken[#taken + 1] = text:match "runs acquire for (p%d)" end
    search.run(made, {}, nil, { trace = note })
    assert.same({ "p1", "p2" }, { taken[1], taken[2] })
    taken = {}
    local first = path.of({ "delay p1 calls > s1 #3" }, made)
    local _, order = search.run(made, first, nil, { trace = note })
    assert.equal(1, order.done)
    assert.same({ "p2", "p1" }, { taken[1], taken[2] })
  end)

  it("does not mistake a fault for a different one, or for itself at a different time", function()
    local made, states = world.of "lock release: p1 holds 10; p2 holds 1 | oom s1 50; noperm s1 50", {}
    for _, text in ipairs { "oom s1 50 before p1 calls > s1 #3", "noperm s1 50 before p1 calls > s1 #3",
      "oom s1 50 before p1 calls > s1 #4" } do
      assert.is_nil(search.run(made, path.of({ text }, made), states).found, text)
    end
  end)

  it("ends a path on which a delay has no effect", function()
    local made = world.of "lock acquire: p1 holds 10"
    local departures = path.of({ "delay p1 calls > s1 #3" }, made)
    assert.equal(Order.VOID, search.run(made, departures, nil).found)
  end)
end)
