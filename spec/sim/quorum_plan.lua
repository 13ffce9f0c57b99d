-- Schedules of a quorum of three or five servers. Kinds:
--
--   calm       nothing goes wrong
--   minority   servers go wrong in every way, but always the same minority of them
--   majority   any server may go wrong at any time: nobody is promised the lock then, but no two
--              owners get it
--
-- A server that forgets everything does not vote for as long as the longest lease (restart_guard),
-- in plans in which a server may forget.

local Prng = require "spec.sim.prng"

local S = 1000000
local NETWORKS = { { 100, 400 }, { 200, 2000 }, { 1000, 8000 }, { 500, 60000 } }
local FAST_NETWORKS = 3
local BUSY = 30 -- % of processes
local UNFENCED, BREAKING = 10, 8 -- % of plans
local LEASES = { 0.3, 1, 3 }
local WAITS = { 0, 0.05, 0.3, 1, 1, 3, math.huge, math.huge }
local KINDS = { "calm", "minority", "minority", "majority" }

local OF_SERVERS = { "restart", "lose", "lose", "stall", "refuse", "forget_scripts", "oom",
  "loading", "readonly",
  "noperm" }
local OF_LINKS = { "drop", "lose_reply", "lose_reply", "kill", "cut", "cut_up", "cut_down",
  "stall_link", "stall_link" }
local OF_PROCESSES = { "pause", "pause", "crash" }

local function faulty_of(prng, servers)
  local faulty, first = {}, prng:range(1, servers)
  for i = 1, (servers - 1) / 2 do faulty[i] = (first + i - 2) % servers + 1 end
  return faulty
end

local function new_fault(prng, plan)
  local names = prng:pick { OF_SERVERS, OF_SERVERS, OF_LINKS, OF_LINKS, OF_PROCESSES }
  local name = prng:pick(names)
  if name == "lose" and plan.restart_guard == 0 then name = "restart" end
  return {
    what = "fault", name = name, at = prng:range(0, prng:pick { 20000, 500000, 3 * S }),
    server = plan.kind == "minority" and prng:pick(plan.faulty) or prng:range(1, #plan.rates),
    process = prng:range(1, plan.process_count), link = prng:pick { "calls", "calls", "renewer" },
    duration = prng:range(1000, prng:pick { 30000, 800000, 4 * S }),
      lag = prng:pick { 0, 20000, S },
    key = plan.keys[1].name,
  }
end

local function add_faults(prng, plan)
  if plan.calm then return end
  for _ = 1, prng:pick { 1, 2, 3, 5, 8 } do plan.parts[#plan.parts + 1] = new_fault(prng, plan) end
end

local function clocks_of(prng, plan, servers)
  for i = 1, servers do
    plan.rates[i] = 1 + prng:range(-400, 400) / 100000
    plan.offsets[i] = prng:range(-plan.skew, plan.skew)
  end
end

local function plan_of(prng, seed)
  local servers, kind = prng:pick { 3, 3, 3, 5 }, prng:pick(KINDS)
  local calm = kind == "calm"
  local plan = {
    seed = seed, quorum = true, kind = kind, calm = calm, parts = {}, keys = {}, rates = {},
    offsets = {},
    network = NETWORKS[prng:range(1, prng:pick { FAST_NETWORKS, calm and FAST_NETWORKS
      or #NETWORKS })],
    timeout = prng:pick { 0.4, 1 }, grant_lease = 2, scripts_known = prng:chance(80),
      sharing = prng:chance(10),
    faulty = kind == "minority" and faulty_of(prng, servers) or {}, leases = LEASES, waits = WAITS,
    restart_guard = not calm and prng:chance(60) and LEASES[#LEASES] or 0,
      skew = prng:pick { 0, 1000, 50000, S },
  }
  clocks_of(prng, plan, servers)
  return plan
end

-- Clients as in OpenResty, whose owners may vanish without releasing.
local function attend(prng, plan)
  local needs_approval = {}
  for _, part in ipairs(plan.parts) do
    if part.what == "process" and prng:chance(25) then
      part.needs_approval, part.renewer_link = true, false
      needs_approval[part.index] = true
    elseif part.what == "task" and needs_approval[part.process] and not part.owner
        and prng:chance(30) then
      part.finish, part.force, part.noticed = "vanish", nil,
        prng:range(0, prng:pick { 50000, 2 * S, 6 * S })
    end
  end
end

-- Programs that check their holds only by their clock, not whenever bytes arrive.
local function check_seldom(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then part.busy = prng:chance(BUSY) or nil end
  end
end

local function each_task(plan, run)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then run(part) end
  end
end

-- Tasks without fencing, so that no server has a counter.
local function do_without_tokens(prng, plan)
  if not prng:chance(UNFENCED) then return end
  each_task(plan, function(task) task.token_ttl, task.token_ttls = 0, nil end)
end

-- One task takes the lock by force, from any owner or from the one that it has read before.
local function break_one(prng, plan)
  local tasks = {}
  each_task(plan, function(task) if task.kind ~= "guard" then tasks[#tasks + 1] = task end end)
  if plan.calm or #tasks < 2 or not prng:chance(BREAKING) then return end
  local task = prng:pick(tasks)
  task.breaks, task.rounds, task.naps = true, prng:range(1, 4), { prng:range(0, 2 * S) }
  task.confirms = prng:chance(60) and prng:range(0, prng:pick { 5000, S }) or nil
end

local function add(plan, fault, changes)
  for name, value in pairs(changes) do fault[name] = value end
  plan.parts[#plan.parts + 1] = fault
end

local focus = {}

-- Long holds, and other processes that want the lock meanwhile.
function focus.hold(prng, plan)
  each_task(plan, function(task)
    task.naps, task.patience = { prng:range(0, 2 * S) }, nil
    task.wait, task.start = prng:pick { 1, 3, math.huge }, prng:range(0, 300000)
  end)
end

-- Like `hold`, and a majority forgets the lock.
function focus.forget(prng, plan)
  focus.hold(prng, plan)
  if plan.kind ~= "majority" then return end
  plan.restart_guard = LEASES[#LEASES]
  local at, first = prng:range(50000, S), prng:range(1, #plan.rates)
  for i = 0, (#plan.rates - 1) / 2 do
    add(plan, new_fault(prng, plan), {
      name = "lose", server = (first + i) % #plan.rates + 1, at = at + prng:range(0, 50000),
      duration = prng:range(0, 20000),
    })
  end
end

-- Acquires that are given up, or whose process pauses, while the servers say yes.
function focus.hurry(prng, plan)
  local longest = 4 * plan.network[2]
  each_task(plan, function(task)
    task.wait, task.patience = 1, prng:range(plan.network[1], longest)
    if plan.calm then return end
    add(plan, new_fault(prng, plan), {
      name = "pause", process = task.process, at = task.start + prng:range(0, longest),
      duration = prng:range(1000, 300000),
    })
  end)
end

-- Runs that must happen once; one server misses the beginning, another one the end.
function focus.once(prng, plan)
  each_task(plan, function(task)
    if task.kind ~= "guard" then return end
    task.keep, task.finish, task.rounds, task.wait = 1, "complete", 3, prng:pick { 0, 0.05, 1 }
  end)
  if plan.kind ~= "majority" then return end
  local first = prng:range(1, #plan.rates)
  add(plan, new_fault(prng, plan), {
    name = prng:pick { "refuse", "readonly" }, server = first, at = 0,
    duration = prng:range(10000, S),
  })
  add(plan, new_fault(prng, plan), {
    name = prng:pick { "readonly", "stall", "restart" }, server = first % #plan.rates + 1,
    at = prng:range(20000, S),
    duration = prng:range(100000, S),
  })
end

-- First acquires, whose tokens must be written back, over links that fail.
function focus.first(prng, plan)
  each_task(plan, function(task)
    task.start, task.naps = prng:range(0, 20000), { prng:range(0, 3000) }
  end)
  if plan.calm then return end
  for _ = 1, 4 do
    add(plan, new_fault(prng, plan), {
      name = prng:pick { "drop", "cut", "crash" }, link = "calls", at = prng:range(1000, 30000),
      duration = prng:range(1000, 100000),
    })
  end
end

local FOCUSES = { "hold", "hold", "forget", "hurry", "once", "once", "first" }

-- make: the functions of plan.lua that make the parts of a plan
return function(seed, make)
  local prng = Prng.new((seed * 11 + 5) % 2147483647)
  local plan = plan_of(prng, seed)
  plan.focus = prng:chance(70) and prng:pick(FOCUSES)
  plan.keys = plan.focus == "once" and { { name = "a", kind = "guard" } } or make.keys(prng)
  make.processes(prng, plan)
  if prng:chance(40) then attend(prng, plan) end
  if plan.focus then focus[plan.focus](prng, plan) end
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then
      part.servers, part.restart_guard = #plan.rates, plan.restart_guard
    end
  end
  add_faults(prng, plan)
  check_seldom(Prng.new((seed * 47 + 73) % 2147483647), plan)
  local prng_of_breaks = Prng.new((seed * 53 + 29) % 2147483647)
  do_without_tokens(prng_of_breaks, plan)
  break_one(prng_of_breaks, plan)
  return plan
end
