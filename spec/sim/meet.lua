-- Brings each kind of fault together with each state of an operation or a hold.
--
-- One schedule is kept for each state that schedules reach. The fault is inserted at the moment at
-- which a process enters that state, a few times with other numbers if the two do not meet.

local Prng = require "spec.sim.prng"
local simulator = require "spec.sim.simulator"

local S = 1000000
local TRIES = 3

-- Faults that make no sense, or for which nothing is promised, in a state or a schedule: a list of
-- { reason, faults, whether it concerns this plan and state }
local function set(text)
  local names = {}
  for name in text:gmatch("%S+") do names[name] = true end
  return names
end

local LOSSES = set "flush lose lose_counter"

local EXCEPTIONS = {
  { "a shared owner's late bytes may free its next hold: docs/explanation/proof.md", set "stall_up",
    function(plan, state)
      if state:find("shared", 1, true) then return true end
      for _, part in ipairs(plan.parts) do
        if part.owner then return true end
      end
    end },
  { "in a quorum no rule is for it", set "stall_up flush delete lose_counter nochannel give_up close clock",
    function(plan) return plan.quorum end },
  { "no rule of a semaphore is for a clock that jumps", set "clock", function(plan)
    return plan.pool
  end },
  { "tokens fall where the data is lost and the clock is set back: docs/reference/holds.md", set "clock",
    function(plan)
      for _, part in ipairs(plan.parts) do
        if LOSSES[part.name] then return true end
      end
    end },
  { "a release that is refused leaves its caller's hold to the next acquire: docs/reference/api/lock.md",
    set "misconf noreplicas readonly", function(plan)
      for _, part in ipairs(plan.parts) do
        if part.alone and part.async then return true end
      end
    end },
  { "a server of a quorum may lose its data only where restart_guard is the longest lease",
    set "lose",
    function(plan) return plan.quorum and plan.restart_guard == 0 end },
}

-- The reply that reports the loss is read, and the hold is free before anything else happens.
local MOMENTS = { ["hold lost granted busy"] = true }

local meet = {}

-- → why the two do not meet in the plan | nil
local function exception(plan, state, fault)
  if MOMENTS[state] then return "the state ends within the event that brings it" end
  for _, each in ipairs(EXCEPTIONS) do
    if each[2][fault] and each[3](plan, state) then return each[1] end
  end
end

-- The plan with the fault in that state.
local function with_fault(plan, state, fault, try)
  local prng = Prng.new(plan.seed * 7 + #state * 131 + #fault * 17 + try * 1009)
  local copy = {}
  for name, value in pairs(plan) do copy[name] = value end
  copy.parts = {}
  for i, part in ipairs(plan.parts) do copy.parts[i] = part end
  copy.calm = false
  if plan.quorum then copy.kind, copy.faulty = "majority", {} end
  copy.parts[#copy.parts + 1] = {
    what = "fault", name = fault, on = "state " .. state, nth = try, at = 0, process = 0,
    link = prng:pick { "calls", "calls", "events", "renewer" }, lag = prng:pick { 0, 20000, S },
    duration = prng:range(1000, prng:pick { 30000, 800000, 3 * S }), key = plan.keys[1].name,
      server = 1,
    jump = prng:pick { -1, 1 } * prng:range(1000, 3 * S),
  }
  return copy
end

-- The schedules that first reached each state: a list of { state, plan }, in order.
function meet.keep(kept, states, plan)
  for _, state in ipairs(states) do kept[#kept + 1] = { state, plan } end
end

-- kept: see meet.keep; coverage: see coverage.lua, turned on; broken: called with the name and the
-- plan of a schedule that breaks a rule, and with what was found. → met, all, reasons: reason → how
-- many, missed: a list of { fault, state }
function meet.all(kept, coverage, broken)
  local met, all, reasons, missed = 0, 0, {}, {}
  for _, each in ipairs(kept) do
    local state, plan = each[1], each[2]
    for _, fault in ipairs(simulator.faults()) do
      local reason, name = exception(plan, state, fault), ("fault %s in %s"):format(fault, state)
      all = all + 1
      local there = coverage.knows(name)
      for try = 1, not reason and not there and TRIES or 0 do
        local changed = with_fault(plan, state, fault, try)
        coverage.begin()
        local found = simulator.run(changed, { coverage = coverage }).found
        coverage.finish()
        if found then broken(name, changed, found) end
        there = coverage.knows(name)
        if there then break end
      end
      if there then met = met + 1
      elseif reason then reasons[reason] = (reasons[reason] or 0) + 1
      else missed[#missed + 1] = { fault, state } end
    end
  end
  return met, all, reasons, missed
end

return meet
