-- Schedules of read/write locks: readers and writers of several processes on one or two keys, and
-- the same faults as elsewhere.

local Prng = require "spec.sim.prng"
local attend = require "spec.sim.attend"
local differ = require "spec.sim.own_grants"
local refusals = require "spec.sim.refusals"
local share = require "spec.sim.sharing"

local S = 1000000
local NETWORKS = { { 100, 400 }, { 200, 2000 }, { 1000, 8000 }, { 500, 60000 } }
local FAST_NETWORKS = 3
local GRANT_LEASES = { 2, 2, 0.5, 0.2 }
local LEASES = { 0.3, 1, 3, 10 }
local TURNS = 10 -- % of schedules in which both sides take the lock again and again
local WAITS = { 0, 0.05, 0.3, 1, 3, 8, math.huge, math.huge, math.huge }

local function keys_of(prng)
  local keys = { { name = "a", kind = "read" } }
  if prng:chance(15) then keys[2] = { name = "b{c}", kind = "read" } end
  return keys
end

local read_write_plan = {}

-- Makes a task of plan.lua read or write. A writer may also take the read lock, and then either
-- continue as a reader or release the read lock first. A reader may ask to write, which is refused.
function read_write_plan.shape(prng, task)
  task.kind = prng:chance(60) and "read" or "write"
  task.also, task.entries = nil, prng:chance(20) and prng:range(1, 2) or 0
  if task.kind == "write" and prng:chance(40) then
    task.reads = prng:pick { "after", "within" }
  end
  if task.kind == "read" and prng:chance(10) then task.upgrades = true end
  if task.reads or task.upgrades then task.finish, task.force = "release", nil end
end

-- A hurried crowd: many tasks with short holds, which come back.
local function crowd(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then
      part.wait, part.patience, part.force = math.huge, nil, nil
      part.start, part.naps, part.gap, part.rounds = prng:range(0, 20000), { prng:range(0, 30000) },
        500, 3
    end
  end
end

local function java_of(prng, plan, slot)
  return {
    what = "java_read_write", key = prng:pick(plan.keys).name, slot = slot, lease = 10,
    kind = prng:pick { "read", "write" }, start = prng:range(0, prng:pick { 50000, S }),
    nap = prng:range(0, prng:pick { 3000, 50000, 400000 }), rounds = prng:range(1, 4),
    gap = prng:range(0, prng:pick { 1000, 300000 }), downgrades = prng:chance(30) or nil,
    dies = not plan.calm and prng:chance(20) and prng:pick { "waits", "holds" } or nil,
  }
end

-- Clients of Redisson and of holdfast take the lock again and again, with sections of about the
-- same length.
local function turns(prng, plan)
  local section = prng:pick { 0, 3000, 20000 }
  local function shape(part)
    part.start, part.lease = prng:range(0, 50000), 10
    part.gap, part.rounds = prng:range(0, prng:pick { 0, 20000 }), prng:range(5, 20)
  end
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then
      shape(part)
      part.wait, part.patience, part.force = math.huge, nil, nil
      part.reads, part.upgrades = nil, nil
      part.naps, part.entries, part.renewed, part.finish = { prng:range(0, section) }, 0, true, "release"
    end
  end
  for i = 1, prng:range(1, 3) do
    local java = java_of(prng, plan, 8 + i)
    shape(java)
    java.nap, java.downgrades, java.dies = prng:range(0, section), nil, nil
    plan.parts[#plan.parts + 1] = java
  end
end

-- make: the functions of plan.lua that make the parts of a plan
function read_write_plan.of(seed, make)
  local prng = Prng.new((seed * 7 + 3) % 2147483647)
  local calm = prng:chance(35)
  local plan = {
    seed = seed, read_write = true, calm = calm, parts = {}, keys = keys_of(prng),
    grant_lease = prng:pick(GRANT_LEASES),
    network = NETWORKS[prng:range(1, prng:pick { FAST_NETWORKS, calm and FAST_NETWORKS
      or #NETWORKS })],
    timeout = prng:pick { 0.4, 1, 3 }, rate = 1 + prng:range(-400, 400) / 100000,
      scripts_known = prng:chance(80),
    leases = LEASES, waits = WAITS,
  }
  if plan.network[2] > 2000 then plan.grant_lease = 2 end
  if plan.network[2] > 50000 then plan.timeout = 3 end
  make.processes(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then read_write_plan.shape(prng, part) end
  end
  if prng:chance(30) then crowd(prng, plan) end
  if not calm then
    for _ = 1, prng:pick { 1, 2, 3, 5 } do
      plan.parts[#plan.parts + 1] = make.fault(prng, plan, prng:pick { S, 5 * S })
    end
  end
  local turns_prng = Prng.new((plan.seed * 71 + 59) % 2147483647)
  if turns_prng:chance(TURNS) then turns(turns_prng, plan)
  else share(Prng.new((plan.seed * 37 + 11) % 2147483647), plan, java_of) end
  attend.some(plan)
  refusals.add_some(plan)
  differ(plan, GRANT_LEASES)
  return plan
end

return read_write_plan
