-- Schedules in which clients of Redisson and of holdfast take one lock again and again, with
-- sections of about the same length.

local Prng = require "spec.sim.prng"

local MS = 1000
local EVERY, AT = 41, 15 -- one in this many seeds, with this remainder
local LEASE = 10
local OTHERWISE = {
  "also", "force", "patience", "extend", "check", "several", "together", "owner", "keep", "print",
}

local turns_plan = {}

function turns_plan.is_of(seed) return seed % EVERY == AT end

local function shape(prng, task, section)
  for _, name in ipairs(OTHERWISE) do task[name] = nil end
  task.wait, task.lease, task.renewed, task.finish = math.huge, LEASE, true, "release"
  task.start, task.gap = prng:range(0, 50 * MS), prng:range(0, prng:pick { 0, 20 }) * MS
  task.entries = 0
  task.rounds, task.naps = prng:range(5, 20), { prng:range(0, section) }
end

-- make: the functions of plan.lua that make the parts of a plan
function turns_plan.of(seed, make)
  local prng = Prng.new((seed * 67 + 53) % 2147483647)
  local plan = {
    seed = seed, calm = prng:chance(70), parts = {}, keys = { { name = "a", kind = "lock" } },
    grant_lease = 2, network = { 200, prng:pick { 1000, 2000 } }, timeout = 1,
    rate = 1 + prng:range(-400, 400) / 100000, scripts_known = true,
  }
  local section = prng:pick { 0, 3, 20, 200 } * MS
  make.processes(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then shape(prng, part, section) end
  end
  for i = 1, prng:range(1, 3) do
    plan.parts[#plan.parts + 1] = {
      what = "foreign", key = "a", kind = "lock", slot = 8 + i, start = prng:range(0, 50 * MS),
      lease = LEASE, nap = prng:range(0, section), rounds = prng:range(5, 20),
      gap = prng:range(0, prng:pick { 0, 20 }) * MS,
    }
  end
  for _ = 1, plan.calm and 0 or prng:range(1, 3) do
    plan.parts[#plan.parts + 1] = make.fault(prng, plan, 3 * 1000 * MS)
  end
  return plan
end

return turns_plan
