-- The server answers with errors for a while.

local Prng = require "spec.sim.prng"

local S = 1000000
local SOME = 30 -- % of plans with faults in which a server refuses commands
local REFUSALS = { "oom", "loading", "busy", "readonly", "misconf", "noperm", "nochannel" }
local PASSING = { "readonly", "noperm", "noauth" } -- refusals of what was accepted before

local refusals = {}

-- plan: of plan.lua; changed in place
function refusals.add(prng, plan)
  for _ = 1, prng:range(1, 2) do
    plan.parts[#plan.parts + 1] = {
      what = "fault", name = prng:pick(REFUSALS),
      at = prng:range(0, prng:pick { 20000, 500000, 5 * S }), process = 1,
      link = "calls", duration = prng:range(1000, prng:pick { 30000, 800000, 4 * S }), lag = 0,
        key = plan.keys[1].name,
    }
  end
end

-- Like `add`, for some plans. It has its own random numbers.
function refusals.add_some(plan)
  local prng = Prng.new((plan.seed * 71 + 97) % 2147483647)
  if not plan.calm and prng:chance(SOME) then refusals.add(prng, plan) end
end

-- ---- refusals of writes ----

local OF_WRITES = { "noreplicas", "noreplicas", "misconf", "oom" }
local IS_ALONE = { noreplicas = true, misconf = true, oom = true, readonly = true, noperm = true,
  noauth = true }
local MOMENTS = { "acquire", "take", "waits", "grant", "release", "complete", "freed", "failed" }
local CALM, OTHERS = 25, 10 -- % of plans where nothing else goes wrong, and of the others

local function other_faults(plan)
  local calm = not plan.gather
  for _, part in ipairs(plan.parts) do
    if part.what == "task" and part.alone then return nil end -- its own hold would keep it out
    if part.what == "fault" or part.late then calm = false end
  end
  return calm and "none" or "some"
end

local function add_window(prng, plan, names)
  local window = {
    what = "fault", name = prng:pick(names or OF_WRITES), process = 1, link = "calls", lag = 0,
    key = plan.keys[1].name, server = plan.rates and prng:range(1, #plan.rates) or nil,
    at = prng:range(0, prng:pick { 0, 5000, 300000, 2 * S }),
    duration = prng:range(1000, prng:pick { 50000, S, 4 * S, 6 * S }),
  }
  if prng:chance(60) then window.on, window.nth = prng:pick(MOMENTS), prng:range(1, 3) end
  plan.parts[#plan.parts + 1] = window
  return window
end

-- The server refuses a record for longer than its caller waits.
local function refuse_record(prng, plan, names)
  for _, part in ipairs(plan.parts) do
    if part.kind == "guard" and part.what == "task" then part.lease, part.finish = 10, "complete" end
  end
  local window = add_window(prng, plan, names)
  window.on, window.nth, window.at = "complete", 1, 0
  window.duration = math.floor(plan.timeout * S) + prng:range(0, 2 * S)
end

-- The server refuses writes for some time; in some plans nothing else goes wrong.
function refusals.add_writes(plan)
  local prng, others = Prng.new((plan.seed * 83 + 101) % 2147483647), other_faults(plan)
  if plan.quorum or not others or not prng:chance(others == "none" and CALM or OTHERS) then return end
  plan.only_refusals = others == "none" and not plan.rates
  if plan.only_refusals and plan.keys[1].kind == "guard" and prng:chance(50) then
    refuse_record(prng, plan)
  else
    for _ = 1, prng:range(1, 3) do add_window(prng, plan) end
  end
  plan.calm, plan.faults = false, plan.faults or {}
end

-- The server is a replica for a while, or lacks the user or its rights: in plans where nothing else
-- goes wrong, except plans of plain permits, which no lease gives back.
function refusals.add_passing(plan)
  local prng, others = Prng.new((plan.seed * 89 + 103) % 2147483647), other_faults(plan)
  if plan.quorum or others ~= "none" and not plan.plain or not prng:chance(CALM) then return end
  plan.only_refusals = others == "none" and not plan.rates
  local names = plan.leader and { "readonly" } or PASSING -- a denial ends a leader
  if plan.only_refusals and plan.keys[1].kind == "guard" and prng:chance(50) then
    refuse_record(prng, plan, names)
  else
    for _ = 1, prng:range(1, 3) do add_window(prng, plan, names) end
  end
  plan.calm, plan.faults = false, plan.faults or {}
end

-- Returns whether nothing else goes wrong in the plan, even after other faults were added.
function refusals.are_alone(plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "fault" and not IS_ALONE[part.name] then return false end
  end
  return plan.only_refusals
end

return refusals
