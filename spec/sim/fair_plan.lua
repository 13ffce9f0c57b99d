-- Schedules of a fair lock: tasks of holdfast and threads of Java in the same list, where some of
-- them die.

local Prng = require "spec.sim.prng"
local attend = require "spec.sim.attend"
local differ = require "spec.sim.own_grants"
local refusals = require "spec.sim.refusals"

local S = 1000000
local huge = math.huge

local NETWORKS = { { 100, 400 }, { 200, 2000 }, { 200, 2000 }, { 1000, 8000 } }
local GRANT_LEASES = { 0.2, 0.5, 2, 2 }
local LEASES = { 0.3, 1, 3, 10 }
local WAITS = { 0, 0.05, 0.3, 1, 3, 8, huge, huge, huge, huge }

local function shape(prng, task)
  task.owner, task.also = nil, nil
  task.entries = prng:chance(20) and prng:range(1, 2) or 0
  task.rounds, task.start = prng:range(1, 4), prng:range(0, prng:pick { 3000, 50000, S })
end

-- dies: when it dies; "deaf": in the list, before it has subscribed
local function java_of(prng, plan, slot)
  local calm = plan.calm and not plan.deaths
  return {
    what = "java_fair", key = plan.keys[1].name, slot = slot, start = prng:range(0, S), lease = 10,
    wait = prng:pick { 5, 30, 120 }, nap = prng:range(0, prng:pick { 3000, 50000, 400000, 3 * S }),
    rounds = prng:range(1, 4), gap = prng:range(0, prng:pick { 1000, 300000 }),
    patience = prng:chance(15) and prng:range(1000, 2 * S) or nil,
    dies = not calm and prng:chance(40) and prng:pick { "waits", "deaf", "holds" } or nil,
  }
end

-- A long hold, which tests the timeouts of the waiters.
local function long_hold(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then
      part.start, part.naps, part.renewed, part.wait = 0, { prng:range(8, 45) * S }, true, huge
      part.force, part.extend, part.patience, part.rounds = nil, nil, nil, 1
      return
    end
  end
end

-- make: the functions of plan.lua that make the parts of a plan
return function(seed, make)
  local prng = Prng.new((seed * 11 + 5) % 2147483647)
  local calm = prng:chance(40)
  local plan = {
    seed = seed, fair = true, calm = calm, parts = {}, grant_lease = prng:pick(GRANT_LEASES),
    keys = { { name = prng:pick { "a", "a", "x{a}" }, kind = "fair" } },
    network = prng:pick(NETWORKS), timeout = prng:pick { 0.4, 1 },
    rate = 1 + prng:range(-400, 400) / 100000, scripts_known = prng:chance(80), leases = LEASES,
    waits = WAITS, deaths = prng:chance(30),
  }
  make.processes(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then shape(prng, part) end
  end
  if prng:chance(25) then long_hold(prng, plan) end
  for i = 1, prng:pick { 0, 1, 2, 3 } do
    plan.parts[#plan.parts + 1] = java_of(prng, plan, 8 + i)
  end
  attend.some(plan)
  refusals.add_some(plan)
  differ(plan, GRANT_LEASES)
  if calm then return plan end
  for _ = 1, prng:pick { 1, 2, 3, 4 } do
    plan.parts[#plan.parts + 1] = make.fault(prng, plan, 3 * S)
  end
  return plan
end
