-- Reduces a failing schedule: leaves out parts, and simplifies the rest, as long as it breaks the
-- same rule.

local simulator = require "spec.sim.simulator"

local minimise = {}

local function without(plan, index)
  local smaller = {}
  for name, value in pairs(plan) do smaller[name] = value end
  smaller.parts = {}
  for i, part in ipairs(plan.parts) do
    if i ~= index then smaller.parts[#smaller.parts + 1] = part end
  end
  return smaller
end

local function with(plan, index, name, value)
  local simpler = without(plan, nil)
  local part = {}
  for key, old in pairs(plan.parts[index]) do part[key] = old end
  part[name] = value
  simpler.parts[index] = part
  return simpler
end

local SIMPLER = {
  task = { { "rounds", 1 }, { "entries", 0 }, { "check", nil }, { "checks", nil },
    { "extend", nil }, { "also", nil },
    { "force", nil }, { "patience", nil }, { "naps", { 1000 } }, { "gap", 0 },
    { "finish", "release" }, { "common", nil } },
  process = { { "cuts", 0 }, { "rate", 1 }, { "renewer_link", false }, { "late", nil } },
  foreign = { { "rounds", 1 } },
  java_fair = { { "rounds", 1 }, { "patience", nil }, { "dies", nil }, { "gap", 0 } },
  java_latch = { { "rounds", 1 }, { "amount", 1 }, { "dies", nil }, { "gap", 0 } },
  java_permits = { { "rounds", 1 }, { "permits", 1 }, { "dies", nil }, { "gap", 0 } },
  java_semaphore = { { "rounds", 1 }, { "permits", 1 }, { "dies", nil }, { "gap", 0 } },
  java_read_write = { { "rounds", 1 }, { "downgrades", nil }, { "dies", nil }, { "gap", 0 } },
  fault = { { "lag", 0 } },
}

local function simplify(plan, fails)
  for index, part in ipairs(plan.parts) do
    for _, change in ipairs(SIMPLER[part.what]) do
      if part[change[1]] ~= change[2] then
        local candidate = with(plan, index, change[1], change[2])
        if fails(candidate) then plan = candidate end
      end
    end
  end
  return plan
end

local function without_step(plan, index, which)
  local steps = {}
  for i, step in ipairs(plan.parts[index].steps) do
    if i ~= which then steps[#steps + 1] = step end
  end
  return with(plan, index, "steps", steps)
end

-- Leaves out steps of a caller with several handles.
local function shorten(plan, fails)
  for index in ipairs(plan.parts) do
    for which = #(plan.parts[index].steps or {}), 1, -1 do
      local candidate = without_step(plan, index, which)
      if fails(candidate) then plan = candidate end
    end
  end
  return plan
end

-- → a smaller plan that breaks the same rule
function minimise.plan(plan, rule, options)
  local function fails(candidate)
    local found = simulator.run(candidate, options).found
    return found and found.rule == rule
  end
  local shrunk = true
  while shrunk do
    shrunk = false
    for index = #plan.parts, 1, -1 do
      local candidate = without(plan, index)
      if fails(candidate) then plan, shrunk = candidate, true end
    end
  end
  return simplify(shorten(plan, fails), fails)
end

return minimise
