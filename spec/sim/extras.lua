-- Adds to the plan that a seed has always produced: servers that refuse commands, clients whose
-- holds need approval, several locks acquired atomically, fingerprints. It has its own random
-- numbers, so the rest of a seed's plan never changes.

local Prng = require "spec.sim.prng"
local attend = require "spec.sim.attend"
local refusals = require "spec.sim.refusals"

local MAX_KEYS = 3
local OUTSTAY = 8 -- one in this many seeds with several locks holds them past their lease
local NAMES = { "a", "b", "c" }
local FORGING = 15 -- % of schedules with faults in which grants are forged
local PRINTS = { "", "A", "A", "B" }

local function each(plan, what, run)
  for _, part in ipairs(plan.parts) do
    if part.what == what then run(part) end
  end
end

local function has(plan, what)
  local found = false
  each(plan, what, function() found = true end)
  return found
end

local function lock_keys(plan)
  local keys = {}
  for _, key in ipairs(plan.keys) do
    if key.kind == "lock" then keys[#keys + 1] = key.name end
  end
  return keys
end

local function some_of(prng, keys)
  local chosen = {}
  for i, key in ipairs(keys) do
    if #chosen + #keys - i < 2 or prng:chance(70) then chosen[#chosen + 1] = key end
  end
  return chosen
end

local function take_several(prng, plan)
  for i = #plan.keys + 1, prng:range(2, MAX_KEYS) do
    plan.keys[i] = { name = NAMES[i], kind = "lock" }
  end
  local keys = lock_keys(plan)
  if #keys < 2 then return end
  each(plan, "task", function(task)
    if task.kind ~= "lock" or task.owner or not prng:chance(60) then return end
    task.several, task.together = some_of(prng, keys), prng:chance(70)
    task.also, task.force, task.naps = nil, nil, { task.naps[1] }
    if task.finish == "drop" then task.finish = "release" end
    if prng:chance(20) then task.patience, task.lease = prng:range(100, 4000), 10 end
  end)
end

-- Makes several locks be held for longer than their lease, because replies are late.
local function outstay(prng, plan)
  each(plan, "task", function(task)
    if not task.several then return end
    task.lease, task.renewed, task.extend, task.patience = 0.3, false, nil, nil
    task.naps, task.wait = { prng:range(200000, 600000) }, 1
  end)
  for _ = 1, 4 do
    plan.parts[#plan.parts + 1] = {
      what = "fault", name = "stall_link", at = prng:range(0, 500000),
      process = prng:range(1, plan.process_count),
      link = "calls", duration = prng:range(20000, 250000), lag = 0, key = plan.keys[1].name,
    }
  end
end

-- The handles of several locks are collected while release_all is under way.
local function forsake(prng, plan)
  each(plan, "task", function(task)
    if not task.together or task.finish ~= "release" then return end
    task.entries, task.forsaken = 0, prng:range(1, 1500)
  end)
end

-- Several locks are entered by two handles each; one of these is collected while a command is under
-- way.
local function enter_twice(prng, plan)
  each(plan, "task", function(task)
    if not task.together or task.finish ~= "release" then return end
    task.twice = prng:pick { "release", "enter" }
    task.forsaken = prng:range(1, 1500)
  end)
end

local function add_prints(prng, plan)
  each(plan, "task", function(task)
    if task.kind == "guard" then task.print = prng:pick(PRINTS) end
  end)
end

-- Any user of the server who may publish can forge grants.
local function forge(plan)
  local prng = Prng.new((plan.seed * 71 + 83) % 2147483647)
  if plan.calm or not prng:chance(FORGING) then return end
  for _ = 1, prng:range(1, 3) do
    plan.parts[#plan.parts + 1] = {
      what = "fault", name = "forge", at = prng:range(0, 2000000), link = "events",
      process = prng:range(1, plan.process_count), duration = 0, lag = prng:range(0, 39),
      key = plan.keys[1].name,
    }
  end
end

-- plan: of plan.lua; changed in place
return function(plan)
  local prng = Prng.new((plan.seed * 5 + 77) % 2147483647)
  if prng:chance(25) then attend.all(prng, plan) end
  if prng:chance(40) then take_several(prng, plan) end
  if prng:chance(50) then add_prints(prng, plan) end
  if not plan.calm and not has(plan, "foreign") and prng:chance(30) then
    refusals.add(prng, plan)
  end
  if not plan.calm and #plan.keys > 1 and plan.seed % OUTSTAY == 1 then outstay(prng, plan) end
  if prng:chance(20) then forsake(prng, plan) end
  if prng:chance(10) then enter_twice(prng, plan) end
  forge(plan)
end
