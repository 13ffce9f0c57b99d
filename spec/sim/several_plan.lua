-- Schedules in which callers acquire several locks atomically and release them the same way, while
-- others wait for one or all of them. Holds and grant leases are long: without a hand-off a lock
-- stays free until a waiter rechecks.

local Prng = require "spec.sim.prng"

local MS = 1000
local EVERY, AT = 29, 27 -- one in this many seeds, with this remainder
local NAMES = { "a", "b", "c" }
local GRANT_LEASE, LEASE = 2, 10

local several_plan = {}

function several_plan.is_of(seed) return seed % EVERY == AT end

-- → at least two of the keys
local function some_of(prng, keys)
  local names, left_out = {}, #keys > 2 and prng:range(0, #keys) or 0
  for i, key in ipairs(keys) do
    if i ~= left_out then names[#names + 1] = key.name end
  end
  return names
end

local function shape(prng, plan, task)
  task.also, task.force, task.patience, task.extend, task.check = nil, nil, nil, nil, nil
  task.wait, task.lease, task.renewed, task.finish = math.huge, LEASE, true, "release"
  task.start, task.gap = prng:range(0, 100 * MS), prng:range(0, 5 * MS)
  task.entries, task.rounds = prng:chance(20) and 1 or 0, prng:range(1, 3)
  task.naps = { prng:range(1, prng:pick { 5, 300, 800 }) * MS }
  if not prng:chance(60) then return end
  task.several, task.together = some_of(prng, plan.keys), prng:chance(80)
end

-- make: the functions of plan.lua that make the parts of a plan
function several_plan.of(seed, make)
  local prng = Prng.new((seed * 61 + 43) % 2147483647)
  local plan = {
    seed = seed, calm = prng:chance(70), parts = {}, keys = {}, grant_lease = GRANT_LEASE,
    network = { 200, 2000 }, timeout = 1, rate = 1 + prng:range(-400, 400) / 100000,
    scripts_known = prng:chance(80),
  }
  for i = 1, prng:range(2, #NAMES) do plan.keys[i] = { name = NAMES[i], kind = "lock" } end
  make.processes(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then shape(prng, plan, part) end
  end
  for _ = 1, plan.calm and 0 or prng:range(1, 3) do
    plan.parts[#plan.parts + 1] = make.fault(prng, plan, 3 * 1000 * MS)
  end
  return plan
end

return several_plan
