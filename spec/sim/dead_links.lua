-- Connections that die silently, as when a NAT forgets them: bytes sent over one are lost, neither
-- side notices, and new connections work. In plans in which nothing else goes wrong, these rules
-- apply:
--
--   cut_off    no call that has time left fails for that

local Prng = require "spec.sim.prng"

local S = 1000000
local CALM, OTHERS = 25, 8 -- % of plans where nothing else goes wrong, and of the others
local FAST = 8000 -- µs of latency, with which a call has time for two tries
local MIN_TIMEOUT = 1
local MOMENTS = { "acquire", "take", "waits", "grant", "release" }
local CLOCKS = 0.98 -- how early a wait may end, by its process's clock

local dead_links = {}

local function processes_of(plan)
  local list, calm = {}, not plan.gather
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then list[#list + 1] = part end
    if part.what == "task" and part.alone then return nil end -- its own hold would keep it out
    if part.what == "fault" or part.late then calm = false end
  end
  return list, calm
end

-- One fault for each process: a call has time for two tries, not for three. With several servers
-- most are forgotten at that moment.
local function add_one(prng, plan, process)
  local fault = {
    what = "fault", name = "forget", process = process.index, key = plan.keys[1].name, lag = 0,
    duration = 0, way = prng:pick { "up", "down", "both", "both" },
    link = prng:pick { "calls", "calls", "events", "renewer", "all", "all" },
    at = prng:range(0, prng:pick { 3000, 300000, 4 * S }),
  }
  if prng:chance(50) then
    fault.on, fault.nth, fault.at = prng:pick(MOMENTS), prng:range(1, 3), prng:range(0, 3000)
  end
  for server = 1, plan.rates and #plan.rates or 1 do
    if not plan.rates or prng:chance(70) then
      local one = { server = plan.rates and server }
      for name, value in pairs(fault) do one[name] = value end
      plan.parts[#plan.parts + 1] = one
    end
  end
end

-- It has its own random numbers.
function dead_links.add(plan)
  local prng = Prng.new((plan.seed * 89 + 107) % 2147483647)
  local processes, calm = processes_of(plan)
  if not processes or not prng:chance(calm and CALM or OTHERS) then return end
  plan.only_dead_links = calm and plan.network[2] <= FAST and plan.timeout >= MIN_TIMEOUT
  for _, process in ipairs(processes) do
    if prng:chance(60) then add_one(prng, plan, process) end
  end
  plan.calm, plan.faults = false, plan.faults or {}
end

-- Returns whether nothing else goes wrong in the plan, even after other faults were added.
function dead_links.are_alone(plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "fault" and part.name ~= "forget" then return false end
  end
  return plan.only_dead_links
end

-- Half of a short lease is too little time for two tries: then a record is written in the
-- background, and a majority may not be reached.
local function is_hurried(plan, verb, code, timeout)
  local depends = verb == "complete" or code == "no_quorum" and verb ~= "acquire"
  return depends and plan.lease < 2 * timeout
end

-- A connection on which a command awaits its reply that must not be sent twice is given up only
-- after command_timeout.
local function may_send_once(process)
  for _, task in ipairs(process.tasks) do
    if task.plan.owner or task.plan.force then return true end
  end
  return false
end

-- Called when a call has ended. A call that must not be sent twice fails with its connection.
function dead_links.check(task, verb, key, wait, asked_at, code, message)
  local world, plan = task.world, task.plan
  local fails = code == "unreachable" or code == "no_quorum"
  if not world.forgets or not fails or task.process.closed then return end
  local once = may_send_once(task.process) or verb == "force_release"
  local took = world.now - asked_at
  local is_over = wait > 0 and took >= wait * 1e6 * CLOCKS
  local timeout = task.process.plan.command_timeout
  if once or is_over or is_hurried(plan, verb, code, timeout) then return end
  world:fail("cut_off", "%s: %s of %s fails after %.3f s: %s", key, verb, task.name, took / 1e6,
    message)
end

return dead_links
