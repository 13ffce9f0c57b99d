-- Schedules of several servers that are not a quorum, and of a server whose clock jumps. Kinds:
--
--   sentinel   a master, a replica that follows it late, three Sentinels; it fails over
--   sync       the same, where a lock counts only when the replica has it
--   cluster    three nodes; the slots of the keys move while they are used
--   addresses  a cluster whose addresses change hands, or that is upgraded. Only on request
--   clock      one server; its clock is set forward and back
--   threads    one server with io-threads: what arrives together over several connections runs in
--              any order
--   latch      a count-down latch: one task sets it, others count down, others wait, in some
--              schedules threads of Java, too; at the end it is opened without a message
--   plain_semaphore  permits without a lease: one task says how many there are, others take some
--              and give them back, as threads of Java do in some schedules, take all, or add some;
--              at the end there are enough, without a message
--   crash      processes of one host crash; the others prove it late and free their locks. Only on
--              request (--kind crash), with the build of make sim-mutants
--   leader     tasks that lead, each for some terms, until they resign
--
-- With more than one server some seeds are about permits, about read/write locks, about fair locks,
-- about latches, about plain semaphores, or about leaders.

local Prng = require "spec.sim.prng"
local pool_plan = require "spec.sim.pool_plan"
local read_write_plan = require "spec.sim.read_write_plan"
local share = require "spec.sim.sharing"

local S = 1000000
local SYSTEMS = { "sentinel", "sync", "sync", "cluster", "cluster", "clock", "threads", "latch",
  "plain_semaphore", "leader" }
local NETWORKS = { { 100, 400 }, { 200, 2000 }, { 1000, 8000 } }
local LEASES = { 0.5, 1, 3 }
local WAITS = { 0, 0.05, 0.3, 1, 3, 3, math.huge, math.huge }
local OF_LINKS = { "drop", "lose_reply", "kill", "cut", "cut_up", "cut_down", "stall_link" }
-- Denials end a leader: docs/how-to/lead.md. A node of a cluster that is read-only also denies.
local REFUSALS = { "oom", "loading", "busy", "misconf" }
local DENIALS = { "noperm", "nochannel", "readonly" }
local OF_PROCESSES = { "pause", "pause", "crash" }
local SIGNALS = { "grant", "take", "take", "release", "acquire", "waits", "renewed", "freed" }

local function fault(plan, changes)
  local part = { what = "fault", process = 1, link = "calls", lag = 0, duration = 0,
    key = plan.keys[1].name, at = 0 }
  for name, value in pairs(changes) do part[name] = value end
  plan.parts[#plan.parts + 1] = part
  return part
end

-- → some time, or a moment that matters
local function moment(prng, last)
  if prng:chance(50) then return { at = prng:range(0, last) } end
  return { on = prng:pick(SIGNALS), nth = prng:range(1, 6),
    at = prng:range(0, prng:pick { 0, 1000, 20000, 300000 }) }
end

local function at_some(prng, last, changes)
  for name, value in pairs(moment(prng, last)) do changes[name] = value end
  return changes
end

local function others(prng, plan, most)
  for _ = 1, prng:range(0, most) do
    local name = prng:pick(prng:chance(75) and OF_LINKS or OF_PROCESSES)
    fault(plan, at_some(prng, 2 * S, {
      name = name, process = prng:range(1, plan.process_count),
      link = prng:pick { "calls", "calls", "renewer", "events" },
      duration = prng:range(1000, prng:pick { 30000, 500000 }), lag = prng:pick { 0, 20000, S },
    }))
  end
end

local function each_task(plan, run)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" then run(part) end
  end
end

local add = {}

-- While one Sentinel still names the old master, the others do not reply.
local function hush(prng, plan)
  local at, detect, stale = prng:range(0, S), prng:range(100000, 500000), prng:range(3, 5)
  local from = at + detect + prng:range(400000, 2 * S)
  plan.faults = false
  fault(plan, {
    name = "fail_over", how = "cut_off", at = at, detect = detect, rest = prng:range(3 * S, 5 * S),
    stale = stale,
  })
  for server = 3, 5 do
    if server ~= stale and prng:chance(80) then
      local at_about = from + prng:range(0, 100000)
      fault(plan, { name = "stall", server = server, at = at_about,
        duration = prng:range(S, 3 * S) })
    end
  end
  each_task(plan, function(task)
    task.rounds, task.naps, task.patience = 3, { prng:range(0, S) }, nil
  end)
end

-- One Sentinel is nearer than the others, and may be the one that learns nothing. It has its own
-- random numbers.
local function spread(plan)
  local prng = Prng.new((plan.seed * 31 + 5) % 2147483647)
  if not prng:chance(30) then return end
  local near, hears = prng:range(3, 5), prng:chance(50)
  plan.distances = {}
  for server = 3, 5 do
    plan.distances[server] = server ~= near and prng:range(20000, 100000) or nil
  end
  for _, part in ipairs(plan.parts) do
    if part.name == "fail_over" and not hears then part.stale = near end
  end
end

local function fail_over(prng, plan)
  if prng:chance(30) then return hush(prng, plan) end
  for _ = 1, prng:pick { 1, 1, 2 } do
    fault(plan, at_some(prng, 2 * S, {
      name = "fail_over", how = prng:pick { "crash", "cut_off" },
      detect = prng:range(100000, 900000),
      rest = prng:range(400000, 2 * S),
    }))
  end
  for _ = 1, prng:pick { 0, 0, 1, 2 } do
    fault(plan, at_some(prng, 2 * S, { name = "unlink", duration = prng:range(1000, 600000) }))
  end
  if plan.faults then others(prng, plan, 3) end
end

function add.sentinel(prng, plan)
  fail_over(prng, plan)
  spread(plan)
end

-- Longer leases that no replica confirms, and holds that last beyond that.
function add.sync(prng, plan)
  add.sentinel(prng, plan)
  each_task(plan, function(task)
    if task.kind == "guard" or not prng:chance(30) then return end
    task.extend, task.stays = prng:pick(LEASES), prng:range(0, 2 * S)
    fault(plan, { name = "unlink", on = "extend", nth = prng:range(0, 3), at = 0,
      duration = prng:range(1000, 3 * S) })
  end)
end

function add.cluster(prng, plan)
  plan.slow = prng:chance(25)
  for _ = 1, prng:pick { 1, 2, 3 } do
    fault(plan, at_some(prng, 2 * S, {
      name = "move_slot", key = prng:pick(plan.keys).name,
      duration = plan.slow and prng:range(S / 2, 2 * S) or prng:pick { 200, 3000, 30000 },
    }))
  end
  if plan.faults then others(prng, plan, 3) end
end

local FAR_OFF = 25 -- % of schedules with a jumping clock, in which it visits the far future

-- Sets the clock beyond 2^53 µs, to 2255, and back. Counters are lost by that, and a lock that is
-- taken there and not released would remain for centuries, so nothing else goes wrong. → whether it
-- does so
local function visit_the_end_of_time(plan)
  local prng = Prng.new((plan.seed * 67 + 79) % 2147483647)
  if plan.faults or not prng:chance(FAR_OFF) then return false end
  local at, jump = prng:range(0, 2 * S), prng:range(7400, 7600) * 1e12
  fault(plan, { name = "clock", jump = jump, at = at })
  fault(plan, { name = "clock", jump = -jump, at = at + prng:range(1000, S) })
  return true
end

local function strangers(prng, plan, count)
  for _ = 1, count do
    fault(plan, at_some(prng, 2 * S, { name = "stranger", server = prng:range(1, 3),
      duration = prng:range(1000, prng:pick { 300000, 2 * S }) }))
  end
end

-- Gives clients names of nodes that are in no map.
local function use_names(plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then part.url = "redis+cluster://n1,n2,n3" end
  end
end

-- Addresses belong to another cluster for a while, or nodes swap them; or all nodes are upgraded.
function add.addresses(prng, plan)
  plan.new_clients = prng:chance(25) -- nothing else goes wrong
  if plan.new_clients then return strangers(prng, plan, prng:range(1, 3)) end
  plan.from_62 = prng:chance(50)
  if prng:chance(30) then use_names(plan) end
  if prng:chance(30) then add.cluster(prng, plan) end
  strangers(prng, plan, prng:pick { 0, 1, 1, 2 })
  for _ = 1, prng:pick { 0, 0, 1, 1 } do
    local server = prng:range(1, 3)
    fault(plan, at_some(prng, 2 * S, { name = "swap", server = server, other = server % 3 + 1,
      duration = prng:range(0, S) }))
  end
  for server = 1, plan.from_62 and 3 or 0 do
    fault(plan, at_some(prng, 3 * S, { name = "upgrade", server = server,
      duration = prng:range(1000, 500000) }))
  end
end

function add.clock(prng, plan)
  if visit_the_end_of_time(plan) then return end
  for _ = 1, prng:pick { 1, 2, 3 } do
    fault(plan, at_some(prng, 2 * S, {
      name = "clock", jump = prng:pick { -1, -1, 1 } * prng:range(1000,
        prng:pick { 100000, 3 * S, 20 * S }),
    }))
  end
  if plan.faults then others(prng, plan, 2) end
end

-- Many commands at once, and waits that end while their commands are under way.
function add.threads(prng, plan)
  plan.gather = prng:range(100, 5000)
  each_task(plan, function(task)
    task.owner, task.gap = nil, prng:range(0, 1000)
    task.naps = { prng:range(0, prng:pick { 3000, 300000 }) }
    if prng:chance(30) then
      task.wait, task.patience, task.lease = 1, prng:range(50, 3 * plan.network[2] + plan.gather),
        10
    end
  end)
  if plan.faults then others(prng, plan, 4) end
end

local IN_AFTER = 1600000 -- µs: the waiter asks again after a second, and some round trips

-- Leaves only the first task of each of `count` processes, and each holds once. The first one, in
-- the first process, is still in when that process crashes. → the tasks
local function alone(prng, plan, count)
  local parts, tasks = {}, {}
  for _, part in ipairs(plan.parts) do
    local index = part.process or part.index
    local first = part.what == "process" and 1 or 2
    parts[index] = parts[index] or {}
    parts[index][first] = parts[index][first] or part
  end
  plan.parts, plan.whole = {}, true
  for i = 1, count do
    local task, key = parts[i][2], plan.keys[1]
    task.key, task.kind, task.keep = key.name, key.kind, key.kind == "guard" and 0 or nil
    task.force, task.extend, task.check, task.also, task.patience = nil, nil, nil, nil, nil
    task.lease, task.rounds, task.entries, task.wait, task.finish = 30, 1, 0, 60, "release"
    task.start, task.naps = (i - 1) * prng:range(100000, 900000), { i == 1 and 20 * S or 1000 }
    parts[i][1].crash_release = true
    plan.parts[2 * i - 1], plan.parts[2 * i], tasks[i] = parts[i][1], task, task
  end
  return tasks
end

-- The holder crashes while another process waits, and nothing else happens: the waiter is served
-- soon.
local function succeed(prng, plan)
  local at, proved_after = prng:range(S, 2 * S), prng:pick { 0, 1000, 200000, 2 * S }
  local tasks = alone(prng, plan, 2)
  tasks[2].in_by = at + proved_after + IN_AFTER
  fault(plan, {
    name = "crash", at = at, process = 1, lag = prng:pick { 0, 8 * S },
    proved_after = proved_after,
  })
end

local COMMANDS = "0b000000-0000-8000-8000-000000000000" -- a client

-- The holder is a command. A run inside it enters its lock, and continues after its crash. A third
-- process is served soon after both have ended.
local function nest(prng, plan)
  local at, proved_after = prng:range(S, 2 * S), prng:pick { 0, 1000, 200000, 2 * S }
  plan.keys[1].kind = "lock"
  local tasks = alone(prng, plan, 3)
  tasks[2].start, tasks[2].naps = prng:range(200000, 900000), { prng:range(1000, 4 * S) }
  tasks[1].owner, tasks[2].owner = COMMANDS .. ":1", COMMANDS .. ":1"
  plan.parts[1].commands = COMMANDS
  tasks[3].in_by = math.max(at + proved_after, tasks[2].start + tasks[2].naps[1]) + IN_AFTER
  fault(plan, { name = "crash", at = at, process = 1, lag = prng:pick { 0, 8 * S },
    proved_after = proved_after })
end

-- A paused process is alive. A process without crash_release is like one on another host.
function add.crash(prng, plan)
  each_task(plan, function(task)
    task.owner, task.renewed = nil, true
    task.naps, task.gap = { prng:range(0, prng:pick { 3000, S }) }, prng:range(0, 20000)
    if prng:chance(60) then task.wait, task.patience = prng:pick { 3, math.huge }, nil end
  end)
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then part.crash_release = prng:chance(85) end
  end
  if plan.process_count > 1 and prng:chance(20) then return succeed(prng, plan) end
  local own = Prng.new((plan.seed * 47 + 31) % 2147483647)
  if plan.process_count > 2 and own:chance(20) then return nest(own, plan) end
  for _ = 1, prng:pick { 0, 1, 1, 2 } do
    fault(plan, at_some(prng, 2 * S, {
      name = "crash", process = prng:range(0, plan.process_count), lag = prng:pick { 0, 20000, S },
      proved_after = prng:pick { 0, 1000, 200000, 2 * S },
    }))
  end
  others(prng, plan, plan.faults and 4 or 2)
end

local SERVERS = { sentinel = 5, sync = 5, cluster = 3, clock = 1, threads = 1, crash = 1, latch = 1,
  plain_semaphore = 1, leader = 1 }
-- The servers that have the keys, at first or later.
local KEYS_AT = { sentinel = { 1, 1, 2 }, sync = { 1, 1, 2 }, cluster = { 3, 3, 1, 2 } }
local LAST = 30 * S -- by then the latch is not set any more, and all callers get permits

local function key_of(prng, kind)
  return { { name = prng:pick { "a", "a", "x{a}" }, kind = kind } }
end

-- → what a task does with a latch; the first task sets it
local function calls_of(prng, first)
  if first then return "set_count", prng:range(1, 5) end
  if prng:chance(45) then return "await" end
  if prng:chance(8) then return "delete", prng:chance(50) and prng:range(1, 3) or 0 end
  return "count_down", prng:chance(80) and 1 or 2
end

-- Adds a thread of Java that does this.
local function java_of(what, prng, plan, slot, does)
  does.what, does.slot, does.key, does.lease = what, slot, plan.keys[1].name, 10
  does.start, does.rounds = prng:range(0, prng:pick { 3000, 50000, 300000 }), prng:range(1, 4)
  does.nap = prng:range(0, prng:pick { 3000, 50000, 400000 })
  does.gap = prng:range(0, prng:pick { 1000, 300000 })
  does.dies = plan.faults and prng:chance(20) and prng:pick { "waits", "holds" } or nil
  return does
end

local function java_latch(prng, plan, slot)
  local calls = prng:pick { "await", "await", "await", "count_down", "count_down", "set_count" }
  return java_of("java_latch", prng, plan, slot, {
    calls = calls, amount = calls == "set_count" and prng:range(1, 5) or 1,
  })
end

-- Does this more than once with several servers, as a failover may undo it.
local function at_last(plan, name)
  fault(plan, { name = name, at = LAST })
  if SERVERS[plan.system] == 1 then return end
  for i = 1, 3 do fault(plan, { name = name, at = LAST + i * 10 * S }) end
end

local function shape_latch(prng, plan)
  local first = true
  plan.latch = true
  each_task(plan, function(task)
    task.calls, task.amount = calls_of(prng, first)
    task.rounds = first and prng:pick { 1, 1, 1, 2 } or prng:range(1, 4)
    task.start = first and 0 or prng:range(0, prng:pick { 3000, 50000, 300000 })
    task.naps, task.gap = {}, prng:range(0, prng:pick { 3000, 100000, S })
    task.owner, task.force, task.check, task.extend, task.finish = nil, nil, nil, nil, "release"
    task.patience = task.calls == "await" and task.patience or nil
    first = false
  end)
end

function add.latch(prng, plan)
  shape_latch(prng, plan)
  share(Prng.new((plan.seed * 43 + 29) % 2147483647), plan, java_latch)
  at_last(plan, "open_latch")
  if plan.faults then others(prng, plan, 4) end
end

-- → what a task does with permits; the first task sets their number
local function permit_calls_of(prng, first)
  if first then return "set_count", prng:range(1, 4) end
  if prng:chance(80) then return "take", prng:chance(70) and 1 or prng:range(2, 4) end
  if prng:chance(50) then return "drain", 0 end
  return "give", prng:range(1, 2)
end

-- A command arrives late, after it was sent again; or it runs, and no reply arrives until its
-- caller has given up.
local function doubts(prng, plan, server)
  local about = { on = prng:pick { "acquire", "release" }, nth = prng:range(1, 4), process = 0,
    link = "calls", server = server }
  local function add_one(name, at, duration)
    about.name, about.at, about.duration = name, at, duration
    fault(plan, about)
  end
  if prng:chance(40) then
    return add_one("cut_down", prng:range(0, 300), prng:range(S / 2, 6 * S))
  end
  add_one("stall_up", 0, prng:range(1000, prng:pick { 500000, 5 * S }))
  add_one("drop", prng:range(100, prng:pick { 3000, 300000 }))
  each_task(plan, function(task)
    if prng:chance(50) then task.patience = prng:range(1000, prng:pick { 5000, 500000 }) end
  end)
end

local function java_semaphore(prng, plan, slot)
  local permits = prng:chance(70) and 1 or prng:range(2, 4)
  return java_of("java_semaphore", prng, plan, slot, { permits = permits })
end

local function shape_permits(prng, plan)
  local first = true
  plan.plain = true
  each_task(plan, function(task)
    task.calls, task.amount = permit_calls_of(prng, first)
    task.permits = task.calls == "take" and task.amount or nil
    task.rounds = first and 1 or prng:range(1, 4)
    task.start = first and 0 or prng:range(0, prng:pick { 3000, 50000, 300000 })
    task.naps = { prng:range(0, prng:pick { 3000, 100000, S }) }
    task.gap = prng:range(0, prng:pick { 3000, 100000, S })
    task.owner, task.force, task.check, task.extend, task.finish = nil, nil, nil, nil, "release"
    task.patience = prng:chance(30) and task.patience or nil
    first = false
  end)
end

local GREEDY = 25 -- % of calm schedules, in which all want one permit, again and again

local function take_again_and_again(prng, plan)
  local first = true
  each_task(plan, function(task)
    task.calls, task.amount = first and "set_count" or "take", 1
    task.permits, task.wait = not first and 1 or nil, math.huge
    task.rounds, task.gap = first and 1 or prng:range(5, 30), 0
    task.naps, task.patience = { prng:range(0, prng:pick { 0, 3000, 20000 }) }, nil
    first = false
  end)
  for i = 0, prng:range(0, 2) do
    plan.parts[#plan.parts + 1] = java_of("java_semaphore", prng, plan, 9 + i, { permits = 1 })
  end
end

function add.plain_semaphore(prng, plan)
  local of_greed = Prng.new((plan.seed * 59 + 41) % 2147483647)
  shape_permits(prng, plan)
  if not plan.faults and of_greed:chance(GREEDY) then take_again_and_again(of_greed, plan)
  else share(Prng.new((plan.seed * 47 + 31) % 2147483647), plan, java_semaphore) end
  at_last(plan, "fill_semaphore")
  if not plan.faults then return end
  others(prng, plan, 4)
  for _ = 1, prng:range(0, 3) do doubts(prng, plan) end
end

-- The server, or the path to it, is down for longer than most leases.
local function outage(prng, plan)
  fault(plan, at_some(prng, 2 * S, {
    name = prng:pick { "stall", "refuse", "cut", "cut_up", "cut_down", "pause" },
    process = prng:range(1, plan.process_count), duration = prng:range(S / 2, 5 * S),
  }))
end

-- How long other work in the process delays a leader after the reply to its acquire.
local function delays_of(prng, task)
  local delays = {}
  if prng:chance(60) then return nil end
  for i = 1, prng:range(1, 4) do
    delays[i] = prng:chance(50) and math.floor(prng:range(0, 2 * S) * task.lease) or 0
  end
  return delays
end

-- All tasks lead.
local function lead(prng, plan)
  local of_delays = Prng.new((plan.seed * 53 + 37) % 2147483647)
  plan.leader = true
  each_task(plan, function(task)
    task.leads, task.rounds, task.once = true, prng:range(1, 4), prng:chance(15)
    task.lease, task.renewed, task.wait = prng:pick(LEASES), true, math.huge
    task.start = prng:range(0, prng:pick { 3000, 50000, 300000 })
    task.naps = { prng:range(0, prng:pick { 3000, 300000, 2 * S }), prng:range(0, S) }
    task.owner, task.force, task.check, task.extend, task.finish = nil, nil, nil, nil, "release"
    task.patience, task.entries, task.unwatched = nil, 0, prng:chance(30)
    task.delays = delays_of(of_delays, task)
  end)
end

function add.leader(prng, plan)
  plan.faults = prng:chance(85)
  lead(prng, plan)
  if not plan.faults then return end
  others(prng, plan, 4)
  for _ = 1, prng:range(0, 2) do outage(prng, plan) end
end

local TIMEOUTS = { cluster = { 0.4, 0.4, 1 } }
local ALONE = { latch = "latch", plain_semaphore = "plain_semaphore", leader = "lock" } -- the only kind
local SEVERAL = { sentinel = true, sync = true, cluster = true }

-- The subjects of seeds of several servers, by remainder; the other seeds are about locks.
local SEEDS_IN = 32
local ABOUT = { [2] = "fair", [18] = "fair", [10] = "latch", [26] = "plain_semaphore" }
for at = 1, SEEDS_IN, 8 do
  ABOUT[at], ABOUT[at + 2], ABOUT[at + 4], ABOUT[at + 6] = "permit", "read", "permit", "lead"
end

-- seeds that only several servers have
local keys_about = {}

function keys_about.permit(prng)
  return { { name = prng:pick { "a", "a", "x{a}" }, kind = "permit",
    permits = prng:pick { 1, 2, 2, 3, 5 } } }
end

function keys_about.read()
  return { { name = "a", kind = "read" } }
end

function keys_about.lead()
  return { { name = "a", kind = "lock" } }
end

for _, kind in ipairs { "fair", "latch", "plain_semaphore" } do
  keys_about[kind] = function(prng) return key_of(prng, kind) end
end

local shape_for = {}

function shape_for.permit(prng, plan)
  plan.pool, plan.resizes = true, prng:chance(20)
  each_task(plan, function(task)
    pool_plan.shape(prng, plan, task)
    task.permits = math.min(task.permits, plan.keys[1].permits)
  end)
end

function shape_for.read(prng, plan)
  plan.read_write = true
  each_task(plan, function(task) read_write_plan.shape(prng, task) end)
end

function shape_for.fair(prng, plan)
  plan.fair = true
  each_task(plan, function(task)
    task.owner, task.rounds = nil, prng:range(1, 4)
    task.entries = prng:chance(20) and prng:range(1, 2) or 0
  end)
end

function shape_for.latch(prng, plan)
  shape_latch(prng, plan)
  at_last(plan, "open_latch")
end

function shape_for.plain_semaphore(prng, plan)
  shape_permits(prng, plan)
  at_last(plan, "fill_semaphore")
  if not plan.faults then return end
  for _ = 1, prng:range(0, 3) do
    doubts(prng, plan, prng:pick(KEYS_AT[plan.system]))
  end
end

function shape_for.lead(prng, plan)
  lead(prng, plan)
end

local function clocks_of(prng, plan, about)
  local count = SERVERS[plan.system]
  if count == 1 then return end
  plan.rates, plan.offsets = {}, {}
  local rate = 1 + prng:range(-400, 400) / 100000
  -- If a replica's clock is ahead, leases end early, and the same goes for a node that gets
  -- permits: docs/how-to/servers.md.
  local alike = plan.system ~= "cluster" or about == "permit"
  for i = 1, count do
    plan.rates[i] = alike and rate or 1 + prng:range(-400, 400) / 100000
    plan.offsets[i] = alike and 0 or prng:range(-S, S)
  end
end

local REFUSING = 40 -- % of schedules with faults, in which servers refuse commands

-- For a while a server that has the keys replies with an error, and a connection to it may fail.
local function refuse(plan)
  local prng, servers = Prng.new((plan.seed * 61 + 73) % 2147483647), KEYS_AT[plan.system]
  local calm = not plan.faults or plan.new_clients
  if not servers or calm or not prng:chance(REFUSING) then return end
  for _ = 1, prng:pick { 1, 1, 2, 3 } do
    local denies = prng:chance(30) and not plan.leader
    fault(plan, at_some(prng, 2 * S, {
      name = prng:pick(denies and DENIALS or REFUSALS), server = prng:pick(servers),
      duration = prng:range(1000, prng:pick { 30000, 500000, 2 * S }),
    }))
  end
  for _ = 1, prng:range(0, 2) do
    fault(plan, at_some(prng, 2 * S, {
      name = prng:pick(OF_LINKS), process = prng:range(1, plan.process_count),
      server = prng:pick(servers), link = prng:pick { "calls", "calls", "renewer", "events" },
      duration = prng:range(1000, prng:pick { 30000, 500000 }), lag = prng:pick { 0, 20000, S },
    }))
  end
end

-- make: the functions of plan.lua that make the parts of a plan; system: one of SYSTEMS | nil
return function(seed, make, system)
  local prng = Prng.new((seed * 13 + 7) % 2147483647)
  system = system or prng:pick(SYSTEMS)
  local kind = system
  if system == "addresses" then system = "cluster" end
  if not add[kind] then error("no system is called " .. kind, 0) end
  local plan = {
    seed = seed, system = system, calm = false, parts = {}, network = prng:pick(NETWORKS),
    timeout = prng:pick(TIMEOUTS[system] or { 1, 3 }), grant_lease = prng:pick { 0.3, 0.5, 2 },
    scripts_known = prng:chance(80), leases = LEASES, waits = WAITS,
    faults = prng:chance(50) or kind == "addresses", rate = 1 + prng:range(-400, 400) / 100000,
    replication = prng:pick { { 50, 300 }, { 200, 5000 }, { 1000, 100000 } },
  }
  local about = SEVERAL[system] and ABOUT[seed % SEEDS_IN]
  clocks_of(prng, plan, about)
  plan.keys = ALONE[system] and key_of(prng, ALONE[system])
    or about and keys_about[about](prng) or make.keys(prng)
  make.processes(prng, plan)
  if about then shape_for[about](prng, plan) end
  each_task(plan, function(task)
    task.also = nil
    if SEVERAL[system] then task.force = nil end
  end)
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then
      part.system, part.sync = SEVERAL[system] and system, system == "sync"
    end
  end
  add[kind](prng, plan)
  refuse(plan)
  return plan
end
