-- Callers that acquire a second lock while they hold a first one, in orders that form cycles. They
-- check for deadlocks, and their clients publish their waits. It has its own random numbers.

local Prng = require "spec.sim.prng"

local CYCLES = 20 -- one in this many seeds has such callers:
local CYCLES_AT = 5 -- those with this remainder
local S = 1000000
local NAMES = { "a", "b", "c" }
local OTHERWISE = {
  "several", "together", "steps", "force", "breaks", "patience", "extend", "till", "common",
  "twice", "forsaken", "print", "owner", "alone", "swaps", "stays", "checks",
  "keep",
}

local cycle_plan = {}

local function enter_cycle(prng, task, number, count, check)
  for _, name in ipairs(OTHERWISE) do task[name] = nil end
  task.kind, task.entries = "lock", 0
  task.key, task.also = NAMES[number % count + 1], NAMES[(number + 1) % count + 1]
  task.wait, task.deadlock_check = prng:pick { 3, 10, 10 }, prng:chance(85) and check or nil
  task.start, task.naps = prng:range(0, prng:pick { 3000, S }), { prng:range(0, 100000) }
  task.renewed = prng:chance(80)
  if task.finish ~= "vanish" then task.finish = "release" end
end

-- One task dies while it waits for another, which begins to wait for the first only after that.
local function add_death(prng, plan, tasks)
  local dead, other = tasks[1], nil
  for _, task in ipairs(tasks) do
    if task.process ~= dead.process then other = other or task end
  end
  if not other then return end
  local at = prng:range(1500000, 3 * S)
  for _, task in ipairs { dead, other } do
    task.wait, task.deadlock_check, task.start, task.lease = 10, 0.5, 0, 10
  end
  dead.key, dead.also, dead.naps = "a", "b", { 0 }
  other.key, other.also, other.naps = "b", "a", { at + prng:range(1000000, 4 * S) }
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then part.introduced = true end
  end
  plan.parts[#plan.parts + 1] = { what = "fault", name = "crash", at = at, process = dead.process,
    link = "calls", duration = 1000, lag = 0, key = "a" }
end

function cycle_plan.is_of(seed)
  return seed % CYCLES == CYCLES_AT
end

-- plan: of plan.lua, with plain locks; changed in place
function cycle_plan.add(plan)
  local prng = Prng.new((plan.seed * 71 + 97) % 2147483647)
  local count, number, check = prng:pick { 2, 2, 3 }, 0, prng:pick { 0.5, 1 }
  local tasks = {}
  plan.keys = {}
  for i = 1, count do plan.keys[i] = { name = NAMES[i], kind = "lock" } end
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then part.introduced = prng:chance(95) end
    if part.what == "task" then
      enter_cycle(prng, part, number, count, check)
      number = number + 1
      tasks[number] = part
    elseif part.key then
      part.key = prng:pick(plan.keys).name
      part.kind = part.kind and "lock"
    end
  end
  if not plan.calm and not plan.rates and prng:chance(25) then add_death(prng, plan, tasks) end
end

return cycle_plan
