-- Aimed schedules: each seed turns most kinds of faults and most habits of programs off, and draws
-- the others often. Faults come in bursts around the moment that they should hit. A fault with a
-- signal `on` begins `at` microseconds after that signal is given for the nth time (0: each time),
-- for the process that the signal is about (process 0) or for another one. A fault with `till` ends
-- at the next signal of that name, if that is earlier than its own end.

local Prng = require "spec.sim.prng"

local S = 1000000
local huge = math.huge

local NETWORKS = { { 100, 400 }, { 200, 2000 }, { 200, 2000 }, { 1000, 8000 } }
local GRANT_LEASES = { 0.2, 0.2, 0.3, 0.5 }
local KINDS = { "lock", "lock", "lock", "mutex", "guard" }
local NAMES = { { "a", "{a}" }, { "{a}", "a" }, { "a{b}", "{b}" }, { "a", "a{a}" }, { "{", "{{}" } }
local OWNER = "svc-1"
local MAX_TASKS = 4

-- What programs may do; each seed picks some.
local HABITS = {
  "needs_approval", "checks", "drops", "enters", "extends", "gather", "guarded", "guarded",
  "impatient",
  "late", "names", "neighbour", "prints", "sharing", "short", "short_lease",
}

local CALM = 15    -- % of seeds in which nothing goes wrong
local ON_TIME = 22 -- % of seeds in which waits end at the moment of a hand-off
local SHARING = 14 -- % of seeds in which processes share an owner, and do little else

local SIGNALS = {
  "grant", "grant", "grant", "grant", "grant", "grant", "release", "release", "acquire", "failed",
  "freed", "renewed", "waits", "take", "opens", "loses",
}

-- name, link
local LINKS = {
  { "stall_link", "events" }, { "stall_link", "calls" }, { "cut_up" }, { "cut_down" },
  { "lose_reply", "calls" }, { "drop", "calls" }, { "drop", "events" }, { "kill" },
}
local GENTLE = { { "stall_link", "events" }, { "give_up", "events" } }
local LATE = {
  { "stall_up", "calls" }, { "stall_up", "calls" }, { "stall_up", "renewer" },
  { "stall_link", "events" }, { "give_up", "events" }, { "lose_reply", "calls" },
}
local ANY = {
  { "stall_link", "events" }, { "stall_link", "calls" }, { "stall_link", "renewer" },
  { "stall_up", "calls" }, { "stall_up", "renewer" }, { "cut_up" }, { "cut_down" }, { "cut" },
  { "lose_reply", "calls" }, { "lose_reply", "renewer" }, { "drop", "calls" }, { "drop", "events" },
  { "drop", "renewer" }, { "kill" }, { "give_up", "events" }, { "pause" }, { "pause" }, { "crash" },
  { "stall" }, { "restart" }, { "forget_scripts" }, { "busy" }, { "loading" }, { "oom" },
  { "readonly" }, { "misconf" }, { "noperm" }, { "nochannel" },
  { "delete" }, { "lose" }, { "flush" }, { "lose_counter" },
}
local HOLDS_BACK = {
  stall_link = true, stall_up = true, cut = true, cut_up = true, cut_down = true,
}
local TILL = {
  "failed", "failed", "take", "take", "acquire", "release", "freed", "waits", "opens", "grant",
}

-- ---- what is switched on ----

local function some_of(prng, list, count)
  local rest, chosen = {}, {}
  for i, item in ipairs(list) do rest[i] = item end
  for i = 1, count do chosen[i] = table.remove(rest, prng:range(1, #rest)) end
  return chosen
end

local function habits_of(prng)
  local habits = {}
  for _, name in ipairs(some_of(prng, HABITS, prng:range(1, 5))) do habits[name] = true end
  local dice = prng:range(1, 100)
  if dice <= ON_TIME then
    habits = { on_time = true, neighbour = true, guarded = prng:chance(60) }
    habits[prng:pick(HABITS)] = true
  elseif dice <= ON_TIME + SHARING then
    habits = { sharing = true, neighbour = true }
    habits[prng:pick(HABITS)] = true
  end
  if habits.late or habits.gather then habits.sharing = nil end -- they are one owner to the server
  if habits.guarded then habits.sharing, habits.names = nil, nil end
  if habits.sharing then habits.drops = nil end -- the next release would release what was dropped
  return habits
end

local function faults_of(prng, habits)
  local dice = prng:range(1, 100)
  if dice <= CALM then return {} end
  if habits.sharing or dice <= 30 then return GENTLE end
  if dice <= 60 then return some_of(prng, LINKS, prng:range(2, 4)) end
  if dice <= 75 then return some_of(prng, LATE, prng:range(1, 4)) end
  return some_of(prng, ANY, prng:range(2, 5))
end

-- Returns whether the habits of a seed arrange the moment for a pattern.
local function is_arranged(plan)
  return plan.habits and (plan.habits.on_time or plan.habits.sharing)
end

-- ---- who does what ----

local function process_of(prng, plan, index)
  local needs_approval = plan.habits.needs_approval and prng:chance(70) or nil
  return {
    what = "process", index = index, rate = 1 + prng:range(-450, 450) / 100000,
    base = prng:range(1000, 100000), near = plan.network[1], far = plan.network[2],
    cuts = prng:pick { 0, 0, 0, 20 }, half_open = prng:pick { 10000, S },
    needs_approval = needs_approval, renewer_link = not needs_approval and prng:chance(60),
      connect_timeout = 0.5,
    command_timeout = plan.timeout, grant_lease = plan.grant_lease,
    late = plan.habits.late and prng:pick { 1000, 100000, 2 * S } or nil,
  }
end

local function leases_of(prng, plan)
  return plan.habits.short_lease and prng:pick { 0.2, 0.3, 0.5 } or prng:pick { 0.5, 1, 3 }
end

local function nap_of(prng, plan)
  return prng:range(0, prng:pick { 3000, 50000, 300000, math.floor(2.5 * plan.grant_lease * S) })
end

local change = {}

function change.checks(prng, task) task.checks = prng:range(20, 60) end
function change.drops(prng, task) task.finish = prng:chance(50) and "drop" or task.finish end

function change.enters(prng, task)
  task.entries = task.kind == "lock" and prng:range(0, 2) or 0
end

function change.extends(prng, task)
  task.extend = task.kind ~= "guard" and prng:pick { 0.2, 0.3, 1, 3 } or nil
end

function change.impatient(prng, task)
  if not prng:chance(50) then return end
  task.wait, task.patience = 3, prng:range(100, prng:pick { 5000, 100000, S })
end

function change.short(prng, task) task.wait = prng:pick { 0.05, 0.2, 0.3, 0.5, 1 } end

function change.prints(prng, task)
  task.print = task.kind == "guard" and prng:pick { "", "A", "A", "B" } or nil
end

function change.sharing(prng, task)
  if task.kind == "lock" and prng:chance(80) then task.owner = OWNER end
end

-- One task ends its holds at the moment at which others end their waits.
local function set_end(prng, task, plan)
  if plan.task_count == 1 then
    task.start, task.till, task.after = 0, "expiring", prng:range(0, 5000)
    task.naps = { prng:range(300000, S) }
  else
    task.start, task.wait = prng:range(2000, 100000), prng:pick { 0.05, 0.2, 0.3 }
    task.rounds, task.patience = prng:range(2, 4), nil
    task.gap = prng:range(0, prng:pick { 500, 2000, 5000 })
  end
end

local function task_of(prng, plan, key)
  local task = {
    what = "task", key = key.name, kind = key.kind,
    start = prng:range(0, prng:pick { 3000, 100000, 400000 }), lease = leases_of(prng, plan),
    renewed = prng:chance(75), token_ttl = 600, wait = prng:pick { huge, huge, 3 },
    rounds = prng:range(1, 4), entries = 0, naps = { nap_of(prng, plan) },
    gap = prng:range(0, prng:pick { 500, 4000, 4000, 50000 }),
    finish = "release",
  }
  if key.kind == "guard" then
    task.keep = prng:pick { 0, 0, 0, 0.1, 1 }
    task.finish = prng:chance(50) and "release" or "complete"
  end
  for _, name in ipairs(HABITS) do
    if plan.habits[name] and change[name] and prng:chance(80) then change[name](prng, task) end
  end
  if plan.habits.on_time then set_end(prng, task, plan) end
  return task
end

local function keys_of(prng, habits)
  local kind = habits.guarded and "guard" or habits.sharing and "lock" or prng:pick(KINDS)
  local keys = { { name = "a", kind = kind } }
  if habits.names then
    local names = prng:pick(NAMES)
    keys = { { name = names[1], kind = kind }, { name = names[2], kind = kind } }
  elseif habits.neighbour or habits.guarded then
    keys[2] = { name = "b", kind = "lock" }
  end
  return keys
end

-- A request of an attended process may end without releasing.
local function vanish(prng, plan, task, process)
  if not plan.parts[process].needs_approval or task.owner or not prng:chance(30) then return end
  task.finish, task.noticed = "vanish", prng:range(0, prng:pick { 50000, 2 * S })
end

local function add_task(plan, task, process)
  task.process, task.slot = process, 9 - plan.task_count
  plan.task_count = plan.task_count + 1
  plan.parts[#plan.parts + 1] = task
end

local function add_processes(prng, plan)
  plan.process_count = prng:range(is_arranged(plan) and 3 or 2, 4)
  for i = 1, plan.process_count do plan.parts[i] = process_of(prng, plan, i) end
  for i = 1, plan.habits.sharing and prng:range(1, 3) or prng:pick { 2, 3, 3, MAX_TASKS } do
    local key = plan.habits.names and prng:chance(40) and plan.keys[2] or plan.keys[1]
    local task, process = task_of(prng, plan, key), (i - 1) % plan.process_count + 1
    vanish(prng, plan, task, process)
    add_task(plan, task, process)
  end
end

-- Adds a key that is held and waited for, so that processes are subscribed all the time.
local function add_neighbours(prng, plan)
  local key = plan.keys[2]
  local count = is_arranged(plan) and 4 or prng:range(2, 3)
  for i = 1, math.min(count, plan.process_count) do
    local task = task_of(prng, plan, key)
    task.rounds, task.wait, task.patience, task.finish = 1, i == 1 and 0 or huge, nil, "release"
    task.start = i == 1 and 0 or prng:range(20000, 50000)
    task.naps = { i == 1 and prng:range(500000, 1500000) or 1000 }
    task.renewed, task.till, task.print = true, nil, nil
    task.owner = i > 1 and plan.habits.sharing and OWNER or nil
    add_task(plan, task, plan.process_count + 1 - i)
  end
end

-- ---- what goes wrong ----

local function duration_of(prng, plan)
  local grant, timeout = math.floor(plan.grant_lease * S), math.floor(plan.timeout * S)
  return prng:pick {
    prng:range(500, 5000), prng:range(1000, 60000), prng:range(50000, grant),
    prng:range(grant, 3 * grant), prng:range(grant, 3 * grant),
    prng:range(timeout, timeout + 2 * grant),
  }
end

-- pair: { name, link | nil }
local function fault_of(prng, plan, pair)
  local fault = {
    what = "fault", name = pair[1], link = pair[2] or "calls",
    process = prng:range(1, plan.process_count), duration = duration_of(prng, plan),
    lag = prng:pick { 0, 20000, S }, key = prng:pick(plan.keys).name,
  }
  if HOLDS_BACK[fault.name] and prng:chance(30) then
    fault.till, fault.lag = prng:pick(TILL), prng:range(0, 2000)
  end
  return fault
end

-- Functions that draw faults around a weak moment of a hand-off. → signal, a list of faults
local PATTERNS = {
  -- A client can neither receive nor send for longer than a grant lasts; then a reply is lost.
  function(prng, plan)
    local events = fault_of(prng, plan, { "stall_link", "events" })
    local calls = fault_of(prng, plan, { "cut_up" })
    local grant = math.floor(plan.grant_lease * S)
    events.till, events.duration = nil, prng:range(grant, 3 * grant)
    calls.till, calls.duration = nil, prng:range(grant, 3 * grant)
    local reply = prng:chance(50) and fault_of(prng, plan, { "lose_reply", "calls" }) or nil
    return "grant", { events, calls, reply }
  end,
  -- A wait ends at the moment of its grant, which arrives after that.
  function(prng, plan)
    local events = fault_of(prng, plan, { "stall_link", "events" })
    local wait = fault_of(prng, plan, { "give_up", "events" })
    events.till, events.duration = "failed", 2 * S
    events.lag = prng:range(0, prng:pick { 200, 200, 3000 })
    if prng:chance(60) then return "expiring", { events } end
    return "grant", prng:chance(50) and { events, wait } or { events }
  end,
  -- A grant does not arrive.
  function(prng, plan)
    local events = fault_of(prng, plan, { "stall_link", "events" })
    events.till, events.duration = nil, math.floor(plan.grant_lease * prng:range(S / 2, 3 * S))
    return "grant", { events }
  end,
  -- A proxy holds back what was given up until the next hold.
  function(prng, plan)
    local calls = fault_of(prng, plan, { "stall_up", prng:pick { "calls", "calls", "renewer" } })
    calls.till, calls.duration, calls.lag = "take", 4 * S, prng:range(0, 50000)
    return prng:pick { "release", "release", "acquire", "waits" }, { calls }
  end,
}

-- Draws the moment and the faults of a burst. → signal, a list of faults
local function theme_of(prng, plan)
  if not prng:chance(is_arranged(plan) and 90 or 40) then return prng:pick(SIGNALS), {} end
  return PATTERNS[prng:pick(plan.patterns)](prng, plan)
end

-- Draws the other faults of a burst: often none if the habits arrange the moment.
local function others_of(prng, plan, has_some)
  if has_some and is_arranged(plan) and prng:chance(60) then return {} end
  return some_of(prng, plan.faults, prng:range(has_some and 0 or 1, #plan.faults))
end

-- Several faults around one moment, most of them for the process that it is about.
local function burst(prng, plan)
  local on, faults = theme_of(prng, plan)
  local each = prng:chance(#faults == 0 and 10 or is_arranged(plan) and 75 or 50)
  for _, pair in ipairs(others_of(prng, plan, #faults > 0)) do
    faults[#faults + 1] = fault_of(prng, plan, pair)
  end
  local nth = each and 0 or prng:range(1, prng:pick { 2, 4, 8 })
  local spread = prng:pick { 0, 2000, math.floor(plan.grant_lease * 1.5 * S) }
  local stray = prng:chance(20)
  for _, fault in ipairs(faults) do
    fault.on, fault.nth, fault.at = on, nth, prng:range(0, spread)
    if not (stray and prng:chance(50)) then fault.process = 0 end
    plan.parts[#plan.parts + 1] = fault
  end
end

local function add_faults(prng, plan)
  for _ = 1, prng:range(1, 3) do burst(prng, plan) end
  for _ = 1, prng:pick { 0, 0, 1, 3 } do
    local fault = fault_of(prng, plan, prng:pick(plan.faults))
    fault.at = prng:range(0, prng:pick { 500000, 2 * S })
    plan.parts[#plan.parts + 1] = fault
  end
end

-- The patterns of a seed. Processes that share an owner may not send what arrives late.
local function patterns_of(prng, habits, faults)
  if habits.on_time then return { 2 } end
  if habits.sharing or faults == GENTLE then return { 2, 3, 3, 3 } end
  return some_of(prng, { 1, 2, 3, 4 }, prng:range(1, 2))
end

local aim = {}

-- Adds one more burst to a plan, which may come from another generator.
function aim.burst(prng, plan)
  local gentle = plan.habits and plan.habits.sharing or plan.sharing
  plan.faults = plan.faults and #plan.faults > 0 and plan.faults or gentle and GENTLE or LINKS
  plan.patterns = plan.patterns or gentle and { 2, 3 } or { 1, 2, 3, 4 }
  burst(prng, plan)
  plan.calm = false
end

-- → plan
function aim.of(seed)
  local prng = Prng.new((seed * 19 + 11) % 2147483647)
  local habits = habits_of(prng)
  local faults = faults_of(prng, habits)
  local plan = {
    seed = seed, parts = {}, task_count = 1, habits = habits, faults = faults,
    patterns = patterns_of(prng, habits, faults),
    keys = keys_of(prng, habits),
    grant_lease = prng:pick(GRANT_LEASES), network = prng:pick(NETWORKS),
    timeout = prng:pick { 0.4, 0.4, 1, 3 },
    rate = 1 + prng:range(-400, 400) / 100000, scripts_known = prng:chance(90),
    gather = habits.gather and prng:range(100, 3000) or nil,
  }
  plan.calm = #plan.faults == 0 and not habits.gather
  add_processes(prng, plan)
  if plan.keys[2] and not habits.names then add_neighbours(prng, plan) end
  if #plan.faults > 0 then add_faults(prng, plan) end
  return plan
end

return aim
