-- Makes the plan of a seed: a list of processes with their tasks, foreign clients and faults, as
-- plain data. Parts can be left out without changing the rest.
--
-- Times are whole microseconds of simulated time; leases, waits and timeouts are seconds, as the
-- core takes them.

local Prng = require "spec.sim.prng"
local aim = require "spec.sim.aim"
local cycle_plan = require "spec.sim.cycle_plan"
local dead_links = require "spec.sim.dead_links"
local add_closing = require "spec.sim.closing"
local in_soon_plan = require "spec.sim.in_soon_plan"
local add_extras = require "spec.sim.extras"
local fair_of = require "spec.sim.fair_plan"
local max_hold = require "spec.sim.max_hold"
local pool_plan = require "spec.sim.pool_plan"
local quorum_of = require "spec.sim.quorum_plan"
local read_write_plan = require "spec.sim.read_write_plan"
local refusals = require "spec.sim.refusals"
local rotation = require "spec.sim.rotation"
local several_handles_plan = require "spec.sim.several_handles_plan"
local several_plan = require "spec.sim.several_plan"
local turns_plan = require "spec.sim.turns_plan"
local system_of = require "spec.sim.system_plan"

local S = 1000000
local huge = math.huge

local NETWORKS = { { 100, 400 }, { 200, 2000 }, { 1000, 8000 }, { 500, 60000 }, { 5000, 300000 } }
local FAST_NETWORKS = 3
local CROWD = 25 -- one in this many seeds is about a crowd
local QUORUM = 8 -- …one in this many about a quorum:
local QUORUM_AT = 5 -- those with this remainder
local POOL = 9 -- …one in this many about a semaphore:
local POOL_AT = 4 -- those with this remainder
local READ_WRITE = 16 -- …one in this many about read/write locks:
local READ_WRITE_AT = 3 -- those with this remainder
local FAIR = 16 -- …one in this many about a fair lock:
local FAIR_AT = 11 -- those with this remainder
local DRAWN = 3 -- of the others, one in this many is drawn evenly, and the rest are aimed:
local DRAWN_AT = 1 -- those with this remainder
local KEEPING = 22 -- % of plans in which clients keep their locks
local BREAKING = 12 -- % of the tasks in such plans that take a lock by force
local MIXED = 25 -- % of the aimed plans that have Redisson clients
local ASYNC = 25 -- % of plans in which releases are not awaited
local HURRIED = 15 -- % of plans in which callers give up releases, checks and extends
local GRANT_LEASES = { 2, 2, 0.5, 0.2 }
local LEASES = { 0.3, 1, 3, 10 }
local TIMEOUTS = { 0.4, 1, 3 }
local WAITS = { 0, 0, 0.05, 0.3, 1, 3, 8, huge, huge, huge }
local UUID = "svc-%d"

local plans = {}

local function nap_of(prng)
  local roll = prng:range(1, 10)
  if roll <= 4 then return prng:range(0, 5000) end
  if roll <= 8 then return prng:range(5000, 400000) end
  return prng:range(400000, 3 * S)
end

local function naps_of(prng)
  local naps = {}
  for i = 1, prng:range(1, 2) do naps[i] = nap_of(prng) end
  return naps
end

local function task_of(prng, plan)
  local key = prng:chance(75) and plan.keys[1] or prng:pick(plan.keys)
  local task = {
    what = "task", key = key.name, kind = key.kind,
    start = prng:range(0, prng:pick { 3000, 100000, 2 * S }),
    lease = prng:pick(plan.leases or LEASES), renewed = prng:chance(60), token_ttl = 600,
    wait = prng:pick(plan.waits or WAITS),
    rounds = prng:range(1, 3), entries = 0, naps = naps_of(prng),
      gap = prng:range(0, prng:pick { 1000, 50000, S }),
    finish = "release",
  }
  if prng:chance(15) then task.patience = prng:range(100, prng:pick { 5000, S }) end
  if task.patience and task.wait == 0 then task.wait = 1 end
  if key.kind == "lock" and prng:chance(25) then task.entries = prng:range(1, 2) end
  if prng:chance(15) then task.check = true end
  if prng:chance(12) then task.extend = prng:pick(plan.leases or LEASES) end
  if prng:chance(12) then task.finish = "drop" end
  if key.kind == "lock" and #plan.keys > 1 and key.name == plan.keys[1].name
      and prng:chance(20) then
    task.also = plan.keys[2].kind == "lock" and plan.keys[2].name or nil
  end
  if key.kind == "guard" then
    task.keep = prng:pick { 0, 0.1, 1 }
    task.finish = prng:chance(30) and "release" or "complete"
    task.extend, task.check = nil, nil
  end
  if not plan.calm and prng:chance(4) and key.kind ~= "guard" then task.force = true end
  if key.kind == "lock" and plan.sharing and prng:chance(60) then task.owner = UUID:format(1) end
  return task
end

local function process_of(prng, plan)
  local network = plan.network
  return {
    what = "process", rate = 1 + prng:range(-450, 450) / 100000, base = prng:range(1000, 100000),
    near = network[1],
    far = network[2], cuts = prng:pick { 0, 0, 10, 40 }, half_open = prng:pick { 10000, S, 8 * S },
    renewer_link = prng:chance(50), connect_timeout = 0.5, command_timeout = plan.timeout,
      grant_lease = plan.grant_lease,
  }
end

local function foreign_of(prng, plan)
  local key = plan.keys[1]
  return {
    what = "foreign", key = key.name, kind = key.kind, start = prng:range(0, 50000), lease = 10,
    nap = nap_of(prng),
    rounds = prng:range(1, 3), gap = prng:range(0, 100000),
  }
end

local FAULTS = {
  "drop", "drop", "lose_reply", "lose_reply", "lose_reply", "kill", "kill", "cut", "cut", "cut_up",
  "cut_down",
  "pause", "pause", "pause", "crash", "crash", "stall", "restart", "lose", "flush",
  "forget_scripts", "lose_counter",
  "delete", "refuse", "stall_link", "stall_link", "stall_link",
}

local function new_fault(prng, plan, last)
  local fault = {
    what = "fault", name = prng:pick(FAULTS),
    at = prng:range(0, prng:pick { 20000, 500000, last }),
    process = prng:range(1, plan.process_count),
      link = prng:pick { "calls", "calls", "events", "renewer" },
    duration = prng:range(1000, prng:pick { 30000, 800000, 4 * S }),
      lag = prng:pick { 0, 20000, S, 6 * S },
    key = prng:pick(plan.keys).name,
  }
  return fault
end

local function keys_of(prng)
  local kinds = { "lock", "lock", "lock", "mutex", "guard" }
  local keys = { { name = "a", kind = prng:pick(kinds) } }
  if prng:chance(25) then keys[2] = { name = "b", kind = prng:pick(kinds) } end
  return keys
end

local function add_processes(prng, plan)
  plan.process_count = prng:pick { 1, 2, 2, 2, 3, 3, 4 }
  local slots = 8
  for i = 1, plan.process_count do
    local process = process_of(prng, plan)
    process.index = i
    plan.parts[#plan.parts + 1] = process
    for _ = 1, math.min(prng:pick { 1, 1, 2, 3 }, slots - (plan.process_count - i)) do
      local task = task_of(prng, plan)
      task.process, task.slot = i, slots
      slots = slots - 1
      plan.parts[#plan.parts + 1] = task
    end
  end
end

-- Many waiters in one queue, short grants, and messages that arrive late.
local function crowd_of(prng, seed)
  local plan = {
    seed = seed, calm = false, parts = {}, keys = { { name = "a", kind = "lock" } },
    grant_lease = 0.2,
    network = NETWORKS[2], timeout = 1, rate = 1, scripts_known = true,
  }
  add_processes(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then
      part.wait, part.patience, part.entries, part.force, part.finish = huge, nil, 0, nil, "release"
      part.start, part.naps, part.gap, part.rounds = prng:range(0, 50000), { prng:range(0, 60000) },
        1000, 3
    end
  end
  for _ = 1, prng:range(3, 8) do
    local fault = new_fault(prng, plan, S)
    fault.name, fault.link = prng:pick { "stall_link", "stall_link", "pause" }, "events"
    fault.at, fault.duration = prng:range(0, S), prng:range(50000, 600000)
    plan.parts[#plan.parts + 1] = fault
  end
  return plan
end

-- → plan, without what extras.lua adds
function plans.base(seed)
  local prng = Prng.new(seed)
  if seed % CROWD == 0 then return crowd_of(prng, seed) end
  local calm = prng:chance(35)
  local plan = {
    seed = seed, calm = calm, parts = {}, keys = keys_of(prng),
    grant_lease = prng:pick(GRANT_LEASES),
    network = NETWORKS[prng:range(1, calm and FAST_NETWORKS
      or prng:pick { FAST_NETWORKS, #NETWORKS })],
    timeout = prng:pick(TIMEOUTS), rate = 1 + prng:range(-400, 400) / 100000,
      scripts_known = prng:chance(80),
    sharing = prng:chance(10),
  }
  if plan.network[2] > 2000 then plan.grant_lease = 2 end
  if plan.network[2] > 50000 then plan.timeout, plan.grant_lease = 3, 2 end
  add_processes(prng, plan)
  if plan.keys[1].kind ~= "guard" and prng:chance(20) then
    for i = 1, prng:range(1, 2) do
      plan.parts[#plan.parts + 1] = foreign_of(prng, plan)
      plan.parts[#plan.parts].slot = 8 + i
    end
  end
  if not calm then
    for _ = 1, prng:pick { 1, 1, 2, 3, 4 } do
      plan.parts[#plan.parts + 1] = new_fault(prng, plan, 5 * S)
    end
  end
  return plan
end

function plans.is_quorum(seed)
  return seed % CROWD ~= 0 and seed % QUORUM == QUORUM_AT
end

function plans.is_read_write(seed)
  return seed % CROWD ~= 0 and seed % READ_WRITE == READ_WRITE_AT
end

-- → the plan with that, or one of a quorum: what a seed stood for before there were schedules that
-- aim
function plans.drawn(seed)
  if plans.is_quorum(seed) then
    return quorum_of(seed, { keys = keys_of, processes = add_processes })
  end
  local plan = plans.base(seed)
  if seed % CROWD ~= 0 then add_extras(plan) end
  return plan
end

function plans.is_pool(seed)
  return not plans.is_quorum(seed) and not plans.is_read_write(seed) and seed % POOL == POOL_AT
end

function plans.is_fair(seed)
  return seed % CROWD ~= 0 and not plans.is_pool(seed) and seed % FAIR == FAIR_AT
end

local function tasks_of(plan)
  local tasks = {}
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then tasks[#tasks + 1] = part end
    if part.what == "foreign" then return {} end
  end
  return tasks
end

-- Makes one task the only one, and ends it before its lease: nothing keeps it out then.
local function leave_alone(prng, plan, only)
  for i = #plan.parts, 1, -1 do
    local part = plan.parts[i]
    if part.what ~= "process" and part ~= only then table.remove(plan.parts, i) end
  end
  plan.scripts_known = prng:chance(30)
  only.async, only.alone, only.finish, only.also, only.force = true, true, "release", nil, nil
  only.wait, only.gap, only.patience, only.till = 0, prng:range(0, 300), nil, nil
  only.together, only.twice, only.forsaken = nil, nil, nil
  for i, nap in ipairs(only.naps) do only.naps[i] = math.min(nap, math.floor(only.lease * 2e5)) end
  if plan.pool then
    only.swaps, only.rounds, only.permits, only.resize = true, 3, plan.keys[1].permits, nil
  elseif plan.read_write and prng:chance(50) then
    only.swaps, only.reads, only.upgrades, only.rounds = true, nil, nil, 3
  end
end

-- Makes releases detached. In a calm plan with one task, such a task is never kept out.
local function send_releases(plan)
  local prng = Prng.new((plan.seed * 23 + 41) % 2147483647)
  if not prng:chance(ASYNC) then return end
  local tasks = tasks_of(plan)
  for _, task in ipairs(tasks) do
    task.async = task.owner == nil and prng:chance(70) or nil
    -- gives up a release at once if it cannot be sent yet
    task.hasty = task.async and prng:chance(20) or nil
  end
  local only = tasks[1]
  if only and only.async and only.kind ~= "guard" and plan.calm and not plan.quorum
      and prng:chance(50) then
    leave_alone(prng, plan, only)
  end
end

-- Makes callers give up commands about their holds before the reply.
local function hurry(plan)
  local prng = Prng.new((plan.seed * 97 + 109) % 2147483647)
  if not prng:chance(HURRIED) then return end
  for _, task in ipairs(tasks_of(plan)) do
    local whole = task.alone or task.steps or task.several or task.calls or task.leads
    if not whole and prng:chance(60) then task.hurry = prng:range(10, prng:pick { 500, 5000 }) end
  end
end

-- Makes clients keep their locks for their callers, which come back soon.
local function keep_locks(plan)
  local prng = Prng.new((plan.seed * 29 + 53) % 2147483647)
  if plan.quorum or plan.pool or plan.read_write or plan.fair or plan.latch
      or not prng:chance(KEEPING) then
    return
  end
  local keeping, keep = {}, prng:pick { 0.02, 0.1, 0.5, 2, 5 }
  local rests, grant_us = prng:chance(25), math.floor(plan.grant_lease * S) -- sometimes long rests
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then keeping[part.index] = prng:chance(70) end
    if part.what == "task" and keeping[part.process] and not part.owner
        and part.kind ~= "guard" then
      part.keep = prng:chance(85) and keep or nil
      if rests then
        part.lease, part.keep, part.rounds = 10, 5, prng:range(1, 3)
        part.gap = prng:range(math.floor(grant_us / 3), grant_us)
        part.naps = { prng:range(0, 2 * grant_us) }
      elseif prng:chance(60) then
        part.rounds, part.gap = prng:range(2, 6), prng:range(0, prng:pick { 10, 1000, 100000 })
        local most = prng:pick { 500, 50000, S }
        for i, nap in ipairs(part.naps) do part.naps[i] = math.min(nap, most) end
      end
    end
  end
end

-- Idle kept locks get a short lease while no replica learns of it, with less than a grant's lease
-- left.
local function unlink_kept(plan)
  if plan.system ~= "sync" then return end
  local prng = Prng.new((plan.seed * 59 + 71) % 2147483647)
  local grant_us = math.floor(plan.grant_lease * S)
  for _, part in ipairs(tasks_of(plan)) do
    if part.keep and prng:chance(50) then
      part.lease, part.keep = plan.grant_lease * prng:range(110, 150) / 100, 5
      part.rounds, part.naps = prng:range(2, 5), { prng:range(0, math.floor(grant_us / 2)) }
      part.gap = prng:range(math.floor(grant_us / 3), grant_us)
      plan.parts[#plan.parts + 1] = { what = "fault", name = "unlink", process = part.process,
        key = part.key, link = "calls", lag = 0, on = "extended", nth = prng:range(0, 3), at = 0,
        duration = prng:range(1000, S) }
    end
  end
end

-- Some callers take kept locks by force, except where Redisson has turns, which a force ends.
local function break_kept(plan)
  local prng = Prng.new((plan.seed * 53 + 67) % 2147483647)
  if plan.calm or plan.rates or #tasks_of(plan) == 0 then return end
  for _, part in ipairs(plan.parts) do
    if part.what == "task" and part.keep and part.kind ~= "guard" and prng:chance(BREAKING) then
      part.breaks, part.rounds, part.naps = true, prng:range(2, 5), { prng:range(0, 20000) }
    end
  end
end

local function take_both(prng, task)
  task.several, task.together, task.naps = { "a", "b" }, prng:chance(70), { task.naps[1] }
  task.owner = nil
  if task.finish == "drop" then task.finish = "release" end
end

-- Two Redisson programs that run for long among holdfast's, in plans that aim. Some of holdfast's
-- tasks give up, and some acquire two locks atomically.
local function mix(plan)
  local prng, key = Prng.new((plan.seed * 37 + 61) % 2147483647), plan.keys[1]
  if key.name ~= "a" or key.kind ~= "lock" or plan.keys[2] or plan.habits.sharing
      or not prng:chance(MIXED) then
    return plan
  end
  local both = prng:chance(50)
  if both then plan.keys[2] = { name = "b", kind = "lock" } end
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then
      part.rounds, part.wait = prng:range(2, 4), prng:pick { huge, huge, 3, 0.3 }
      for i in ipairs(part.naps) do part.naps[i] = prng:range(0, prng:pick { 20000, 400000 }) end
      if both and prng:chance(60) then take_both(prng, part) end
    end
  end
  for i = 1, 2 do
    local foreign = foreign_of(prng, plan)
    foreign.slot, foreign.rounds, foreign.nap = 8 + i, prng:range(2, 4), prng:range(0, 300000)
    foreign.gap = prng:range(0, 50000)
    plan.parts[#plan.parts + 1] = foreign
  end
  return plan
end

function plans.is_cycle(seed)
  return cycle_plan.is_of(seed) and not plans.is_pool(seed) and not plans.is_fair(seed)
    and not plans.is_read_write(seed)
end

function plans.is_several(seed)
  return several_plan.is_of(seed) and not plans.is_quorum(seed) and not plans.is_pool(seed)
    and not plans.is_fair(seed) and not plans.is_read_write(seed)
end

function plans.is_turns(seed)
  return turns_plan.is_of(seed) and not plans.is_quorum(seed) and not plans.is_pool(seed)
    and not plans.is_fair(seed) and not plans.is_read_write(seed) and not plans.is_several(seed)
    and not plans.is_cycle(seed)
end

local function chosen(seed)
  if plans.is_pool(seed) then
    return pool_plan.of(seed, { processes = add_processes, fault = new_fault })
  end
  if plans.is_fair(seed) then
    return fair_of(seed, { processes = add_processes, fault = new_fault })
  end
  if plans.is_read_write(seed) then
    return read_write_plan.of(seed, { processes = add_processes, fault = new_fault })
  end
  if plans.is_several(seed) then
    return several_plan.of(seed, { processes = add_processes, fault = new_fault })
  end
  if plans.is_turns(seed) then
    return turns_plan.of(seed, { processes = add_processes, fault = new_fault })
  end
  if not plans.is_quorum(seed) and seed % DRAWN ~= DRAWN_AT then return mix(aim.of(seed)) end
  return plans.drawn(seed)
end

function plans.of(seed)
  if in_soon_plan.is_of(seed) then return in_soon_plan.of(seed, { process = process_of }) end
  local plan = chosen(seed)
  if plans.is_cycle(seed) then cycle_plan.add(plan) end
  send_releases(plan)
  keep_locks(plan)
  break_kept(plan)
  several_handles_plan(plan)
  add_closing(plan)
  refusals.add_writes(plan)
  refusals.add_passing(plan)
  dead_links.add(plan)
  max_hold.add(plan)
  rotation.add(plan)
  hurry(plan)
  return plan
end

-- Plans of several servers that are not a quorum, and of servers whose clocks jump; system: of
-- system_plan.lua | nil: any
function plans.system(seed, system)
  local plan = system_of(seed, { keys = keys_of, processes = add_processes }, system)
  if plan.whole then return plan end
  send_releases(plan)
  keep_locks(plan)
  unlink_kept(plan)
  break_kept(plan)
  several_handles_plan(plan)
  add_closing(plan)
  refusals.add_writes(plan)
  refusals.add_passing(plan)
  if plan.faults then dead_links.add(plan) end
  max_hold.add(plan)
  rotation.add(plan)
  return plan
end

-- ---- in words ----

local function number(value)
  return value == huge and "ever" or ("%.14g"):format(value)
end

local describe = {}

function describe.process(part, plan)
  return ("p%d: clock x%s, latency %d..%d us%s"):format(part.index, number(part.rate), part.near,
    part.far,
    part.needs_approval and ", attended" or part.renewer_link and ", a link for the renewer" or "")
    .. (part.introduced and ", says who it is" or "")
    .. (part.late and (", a proxy that is late by up to %d us"):format(part.late) or "")
    .. (part.grant_lease ~= plan.grant_lease and ", grant lease " .. number(part.grant_lease)
    .. " s" or "") .. (part.busy and ", looks at its holds by the clock alone" or "")
end

local function describe_steps(steps)
  local words = {}
  for i, step in ipairs(steps) do words[i] = table.concat(step, " ") end
  return ", by several handles: " .. table.concat(words, ", ")
end

function describe.task(part)
  local keys = part.several and table.concat(part.several, "+") or part.key
  return ("p%d/%d: from %.3f s %d x %s %s: lease %s%s, wait %s%s%s%s, holds for %s us, %s"):format(part.process, part.slot,
    part.start / S, part.rounds, part.kind, keys, number(part.lease), part.renewed and " renewed"
      or "",
    number(part.wait), part.patience and ", gives up after " .. part.patience .. " us" or "",
    part.entries > 0 and ", enters " .. part.entries .. " times more" or "", part.owner and " as "
      .. part.owner or "",
    table.concat(part.naps, "+"), part.force and "forced" or part.finish)
    .. (part.permits and (", %d permits"):format(part.permits) or "")
    .. (part.resize and (", sets %d permits"):format(part.resize) or "")
    .. (part.keep and ", kept for " .. number(part.keep) .. " s" or "")
    .. (part.breaks and ", by force" or "")
    .. (part.hurry and ", waits for other replies for " .. part.hurry .. " us" or "")
    .. (part.async and ", without waiting" or "") .. (part.swaps and ", reads and writes" or "")
    .. (part.twice and ", twice, one is collected at the " .. part.twice or "")
    .. (part.till and ", ends by " .. part.till or "")
    .. (part.in_by and (", in by %.3f s"):format(part.in_by / S) or "")
    .. (part.also and ", and takes " .. part.also or "")
    .. (part.deadlock_check and (", checks for a deadlock after %s s"):format(number(part.deadlock_check))
    or "")
    .. (part.checks and ", " .. part.checks .. " checks" or "")
    .. (part.max_hold and ", for at most " .. number(part.max_hold) .. " s" or "")
    .. (part.holds_again and (", and again for %d us"):format(part.holds_again) or "")
    .. (part.extend and ", extends to " .. number(part.extend) or "")
    .. (part.reads and ", reads " .. part.reads or "") .. (part.upgrades and ", would write" or "")
    .. (part.common and ", by the handle of all" or "") .. (part.steps and describe_steps(part.steps)
    or "")
end

function describe.foreign(part)
  return ("foreign %d: from %.3f s %d x %s %s for %d us"):format(part.slot, part.start / S,
    part.rounds, part.kind,
    part.key, part.nap)
end

function describe.java_fair(part)
  return ("java %d: from %.3f s %d x %s for %d us, dead after %s s%s%s"):format(part.slot,
    part.start / S, part.rounds, part.key, part.nap, number(part.wait),
    part.patience and ", gives up after " .. part.patience .. " us" or "",
    part.dies and ", dies: " .. part.dies or "")
end

function describe.java_latch(part)
  return ("java %d: from %.3f s %d x %s %s %d%s"):format(part.slot, part.start / S, part.rounds,
    part.key, part.calls, part.amount, part.dies and ", dies: " .. part.dies or "")
end

function describe.java_permits(part)
  return ("java %d: from %.3f s %d x %d permits of %s for %d us%s"):format(part.slot,
    part.start / S, part.rounds, part.permits, part.key, part.nap,
    part.dies and ", dies: " .. part.dies or "")
end

describe.java_semaphore = describe.java_permits

function describe.java_read_write(part)
  return ("java %d: from %.3f s %d x %s %s for %d us%s%s"):format(part.slot, part.start / S,
    part.rounds, part.kind, part.key, part.nap, part.downgrades and ", reads within" or "",
    part.dies and ", dies: " .. part.dies or "")
end

function describe.fault(part)
  local when = ("at %.3f s"):format(part.at / S)
  if part.on then
    when = ("%d us after %s %s"):format(part.at, part.nth == 0 and "each" or part.nth, part.on)
  end
  local who = part.process == 0 and "there" or "p" .. part.process
  return ("%s %s: %s, %s%s, key %s, for %d us, lag %d us"):format(when, part.name, who,
    part.server and "s" .. part.server .. ", " or "", part.link, part.key, part.duration, part.lag)
    .. (part.till and ", or till " .. part.till or "") .. (part.way and ", " .. part.way or "")
    .. (part.jump and ", jump " .. part.jump .. " us" or "")
    .. (part.how and (", %s, promoted after %d us, back %d us later"):format(part.how, part.detect,
    part.rest) or "")
end

local function add_parts(lines, plan)
  for _, part in ipairs(plan.parts) do lines[#lines + 1] = describe[part.what](part, plan) end
  return lines
end

local function describe_quorum(plan)
  local lines = { ("a quorum of %d, %s, command timeout %s s, restart guard %s s"):format(#plan.rates, plan.kind,
    number(plan.timeout), number(plan.restart_guard)) }
  for i, rate in ipairs(plan.rates) do
    lines[#lines + 1] = ("s%d: clock x%s, ahead by %d us"):format(i, number(rate), plan.offsets[i])
  end
  return add_parts(lines, plan)
end

-- → one line for each part
function plans.describe(plan)
  if plan.quorum then return describe_quorum(plan) end
  local lines = { ("grant lease %s s, command timeout %s s, server's clock x%s%s%s"):format(number(plan.grant_lease),
    number(plan.timeout), number(plan.rate), plan.calm and ", calm" or "",
    plan.gather and ", io-threads of " .. plan.gather .. " us" or "") }
  for server, distance in pairs(plan.distances or {}) do
    lines[#lines + 1] = ("s%d: %d us farther away"):format(server, distance)
  end
  return add_parts(lines, plan)
end

return plans
