-- Schedules of a semaphore with leased permits: some tasks take one permit, some several; it is
-- resized now and then. Half of the faults come at random, the others a moment after a grant, a
-- release, a renewal or a reconnect.

local Prng = require "spec.sim.prng"
local attend = require "spec.sim.attend"
local differ = require "spec.sim.own_grants"
local refusals = require "spec.sim.refusals"
local share = require "spec.sim.sharing"

local S = 1000000
local huge = math.huge

local NETWORKS = { { 100, 400 }, { 200, 2000 }, { 200, 2000 }, { 1000, 8000 } }
local GRANT_LEASES = { 0.2, 0.3, 0.5, 2 }
local LEASES = { 0.3, 0.5, 1, 3 }
local WAITS = { 0, 0.05, 0.3, 1, 3, huge, huge, huge, huge }
local SIGNALS = { "grant", "grant", "grant", "release", "acquire", "freed", "renewed", "waits",
  "take", "opens" }
local TILL = { "take", "acquire", "release", "freed", "waits", "opens", "grant" }
local LINKED = {
  { "stall_link", "events" }, { "stall_link", "calls" }, { "stall_link", "renewer" },
  { "stall_up", "calls" },
  { "stall_up", "renewer" }, { "cut_up" }, { "cut_down" }, { "lose_reply", "calls" },
  { "lose_reply", "renewer" },
  { "drop", "calls" }, { "drop", "events" }, { "kill" }, { "give_up", "events" }, { "pause" },
  { "crash" },
}

local function aimed(prng, plan)
  local pair = prng:pick(LINKED)
  local fault = {
    what = "fault", name = pair[1], on = prng:pick(SIGNALS), nth = prng:pick { 0, 1, 1, 2, 3, 5 },
    at = prng:range(0, prng:pick { 300, 3000, 30000 }),
    process = prng:chance(70) and 0 or prng:range(1, plan.process_count), link = pair[2]
      or "calls",
    duration = prng:range(1000, prng:pick { 10000, 300000, S, 3 * S }),
      lag = prng:pick { 0, 20000, S },
    key = plan.keys[1].name,
  }
  if prng:chance(30) and fault.name:find("^[sc][tu]") then fault.till = prng:pick(TILL) end
  if fault.nth == 0 and (fault.name == "crash" or fault.name == "pause") then fault.nth = 1 end
  return fault
end

local pool_plan = {}

-- Makes a task of plan.lua take permits of the plan's first key.
function pool_plan.shape(prng, plan, task)
  local all = plan.keys[1].permits
  task.force, task.owner, task.also, task.entries, task.key, task.kind = nil, nil, nil, 0,
    plan.keys[1].name, "permit"
  task.permits = prng:chance(60) and 1 or prng:range(1, all + (prng:chance(10) and 1 or 0))
  task.initial_permits = all
  task.rounds, task.start = prng:range(1, 4), prng:range(0, prng:pick { 3000, 50000, 300000 })
  task.naps = { prng:range(0, prng:pick { 2000, 50000, 400000, 3 * S }) }
  if plan.resizes and prng:chance(30) then task.resize = prng:range(1, all + 2) end
end

-- A command that enters the queue arrives late: no message says what it is about.
local function late(prng, plan)
  if plan.calm or not prng:chance(15) then return end
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then part.late = prng:pick { 1000, 100000, S } end
  end
end

local function java_of(prng, plan, slot)
  local key = plan.keys[1]
  return {
    what = "java_permits", key = key.name, slot = slot, lease = prng:pick { 10, 10, 1 },
    permits = prng:chance(75) and 1 or prng:range(1, key.permits),
    start = prng:range(0, prng:pick { 3000, 50000, 300000 }), rounds = prng:range(1, 4),
    nap = prng:range(0, prng:pick { 3000, 50000, 400000 }),
    gap = prng:range(0, prng:pick { 1000, 300000 }),
    dies = not plan.calm and prng:chance(20) and prng:pick { "waits", "holds" } or nil,
  }
end

-- make: the functions of plan.lua that make the parts of a plan
function pool_plan.of(seed, make)
  local prng = Prng.new((seed * 13 + 7) % 2147483647)
  local calm = prng:chance(25)
  local plan = {
    seed = seed, pool = true, calm = calm, parts = {}, grant_lease = prng:pick(GRANT_LEASES),
    keys = { { name = prng:pick { "a", "a", "x{a}" }, kind = "permit",
      permits = prng:pick { 1, 2, 2, 3, 5 } } },
    network = prng:pick(NETWORKS), timeout = prng:pick { 0.4, 1 }, rate = 1
      + prng:range(-400, 400) / 100000,
    scripts_known = prng:chance(80), leases = LEASES, waits = WAITS, resizes = prng:chance(20),
  }
  make.processes(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then pool_plan.shape(prng, plan, part) end
  end
  late(prng, plan)
  share(Prng.new((plan.seed * 41 + 19) % 2147483647), plan, java_of)
  attend.some(plan)
  refusals.add_some(plan)
  differ(plan, GRANT_LEASES)
  if calm then return plan end
  for _ = 1, prng:pick { 1, 2, 3, 4 } do
    plan.parts[#plan.parts + 1] = prng:chance(50) and aimed(prng, plan)
      or make.fault(prng, plan, 3 * S)
  end
  return plan
end

return pool_plan
