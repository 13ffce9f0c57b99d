-- Schedules guided by coverage: those that reached something new are kept, and half of the later
-- ones are changed copies of them. A seed's schedule then depends on the seeds before it in the
-- same run, and on nothing else.

local Prng = require "spec.sim.prng"
local aim = require "spec.sim.aim"
local plans = require "spec.sim.plan"

local S = 1000000
local MAX_KEPT = 400 -- the newest schedules are kept
local CHANGED = 50 -- % of schedules that are changed copies

local Guided = {}
Guided.__index = Guided

function Guided.new()
  return setmetatable({ kept = {}, count = 0 }, Guided)
end

local function copy_of(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for name, item in pairs(value) do copy[name] = copy_of(item) end
  return copy
end

-- → the parts of a plan that are of this kind
local function parts_of(plan, what)
  local list = {}
  for _, part in ipairs(plan.parts) do
    if part.what == what then list[#list + 1] = part end
  end
  return list
end

local function scaled(prng, number)
  return math.floor(number * prng:pick { 0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2, 4 })
end

local changes = {}

function changes.times(prng, plan)
  local faults = parts_of(plan, "fault")
  if #faults == 0 then return end
  local fault = prng:pick(faults)
  local name = prng:pick { "at", "duration" }
  fault[name] = scaled(prng, fault[name])
  if fault.on and prng:chance(30) then fault.nth = prng:range(0, 6) end
end

function changes.latencies(prng, plan)
  plan.seed = prng:range(1, 1000000)
end

function changes.target(prng, plan)
  local faults = parts_of(plan, "fault")
  if #faults > 0 then prng:pick(faults).process = prng:range(1, plan.process_count) end
end

-- Functions that change a schedule of one server, but would break what one of a quorum relies on.
local of_one = {}

function of_one.burst(prng, plan)
  aim.burst(prng, plan)
end

function of_one.task(prng, plan)
  local tasks = parts_of(plan, "task")
  if #tasks == 0 then return end
  local task = prng:pick(tasks)
  local name = prng:pick { "gap", "start", "nap", "wait", "rounds" }
  if name == "nap" then
    task.naps[1] = scaled(prng, task.naps[1])
  elseif name == "wait" then
    task.wait = prng:pick { 0.05, 0.2, 0.5, 3, math.huge }
  elseif name == "rounds" then
    task.rounds = prng:range(1, 4)
  else
    task[name] = math.min(scaled(prng, task[name]), S)
  end
end

local OF_ANY = { "times", "times", "latencies", "target" }
local OF_ONE = { "burst", "burst", "task", "task" }

local function change(prng, plan)
  if plan.quorum then return changes[prng:pick(OF_ANY)](prng, plan) end
  if prng:chance(50) then return of_one[prng:pick(OF_ONE)](prng, plan) end
  changes[prng:pick(OF_ANY)](prng, plan)
end

-- Drops the time limits, as a changed schedule may keep the second waiter out for longer.
local function forget_bounds(plan)
  for _, part in ipairs(plan.parts) do part.in_by, part.behind_first = nil, nil end
end

-- → plan
function Guided:plan(seed)
  local prng = Prng.new((seed * 23 + 3) % 2147483647)
  if #self.kept == 0 or not prng:chance(CHANGED) then return plans.of(seed) end
  local plan = copy_of(prng:pick(self.kept))
  forget_bounds(plan)
  for _ = 1, prng:range(1, 3) do change(prng, plan) end
  return plan
end

-- Notes that the plan has run and has reached `new` new places.
function Guided:look_at(plan, new)
  if new == 0 then return end
  self.count = self.count + 1
  self.kept[(self.count - 1) % MAX_KEPT + 1] = plan
end

return Guided
