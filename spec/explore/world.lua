-- Makes a small world from a row of worlds.lua.
--
-- A row reads "kind operation: client; client | fault; fault", with "quorum", "cluster" or "sync"
-- (a master whose replica confirms) in front of it if there are several servers. A client is
-- "p1 holds 2", the words of WORDS behind the name of its process, or "java holds 2", a thread that
-- uses Redisson. A fault is its name, and any of: a process (p1), servers that it hits together
-- (s1), a link, how long it lasts. Of the faults of a row at most one happens, at any moment. Times
-- are milliseconds.

local MS, S = 1000, 1000
local LATENCY = 1000 -- us
local GRANT_LEASE, TIMEOUT = 0.5, 1 -- s
local SERVERS = 3 -- of a quorum
local SERVERS_OF = { cluster = 3, sync = 5 } -- of other systems
local SLOW = 500 * MS -- for a slot to move
local REPLICATION = { 1000, 1000 } -- us
local AHEAD = 50000 -- us by which the clock of its first server is ahead

local world = {}

-- ---- clients ----

local function number(words) return tonumber(words() or "") or error("a number is missing", 0) end

-- What each word changes of a task; it takes what follows it from words().
local WORDS = {}

function WORDS.holds(task, words) task.naps = { number(words) * MS } end
function WORDS.reads(task, words) task.kind, task.naps = "read", { number(words) * MS } end
function WORDS.writes(task, words) task.kind, task.naps = "write", { number(words) * MS } end
function WORDS.from(task, words) task.start = number(words) * MS end
function WORDS.waits(task, words) task.wait = number(words) / S end
function WORDS.tries(task) task.wait = 0 end
function WORDS.alone(task) task.wait, task.alone = 0, true end
function WORDS.lease(task, words) task.lease = number(words) / S end
function WORDS.fixed(task) task.renewed = false end
function WORDS.times(task, words) task.rounds = number(words) end
function WORDS.gap(task, words) task.gap = number(words) * MS end
function WORDS.enters(task) task.entries = 1 end
function WORDS.again(task, words) task.holds_again = number(words) * MS end
function WORDS.extends(task, words) task.extend = number(words) / S end
function WORDS.checks(task, words) task.checks = number(words) end
function WORDS.stays(task, words) task.stays = number(words) * MS end
function WORDS.keeps(task, words) task.keep = number(words) / S end
function WORDS.breaks(task) task.breaks = true end
function WORDS.forces(task) task.force = true end
function WORDS.drops(task) task.finish = "drop" end
function WORDS.vanishes(task, words) task.finish, task.noticed = "vanish", number(words) * MS end
function WORDS.completes(task) task.finish = "complete" end
function WORDS.prints(task, words) task.print = words() end
function WORDS.quits(task, words) task.patience = math.floor(number(words) * MS) end
function WORDS.async(task) task.async = true end
function WORDS.hasty(task) task.async, task.hasty = true, true end
function WORDS.as(task, words) task.owner = "svc-" .. words() end
function WORDS.common(task) task.common = true end
function WORDS.both(task) task.several, task.together = { "a", "b" }, true end
function WORDS.apart(task) task.together = nil end
function WORDS.twice(task, words) task.twice, task.forsaken = words(), 500 end
function WORDS.forsakes(task) task.forsaken = 500 end
function WORDS.key(task, words) task.key = words() end
function WORDS.also(task, words) task.also = words() end
function WORDS.permits(task, words) task.permits = number(words) end
function WORDS.sets(task, words) task.resize = number(words) end
function WORDS.at_most(task, words) task.max_hold = number(words) / S end
function WORDS.downgrades(task) task.reads, task.downgrades = "after", true end
function WORDS.within(task) task.reads = "within" end
function WORDS.upgrades(task) task.upgrades = true end
function WORDS.swaps(task) task.swaps = true end
function WORDS.untangles(task, words) task.deadlock_check = number(words) / S end
function WORDS.in_by(task, words) task.in_by = number(words) * MS end
function WORDS.dies(task, words) task.dies = words() end
function WORDS.leads(task, words) task.leads, task.rounds = true, number(words) end
function WORDS.once(task) task.once = true end
function WORDS.unwatched(task) task.unwatched = true end
function WORDS.delays(task, words) task.delays = { number(words) * MS } end

for _, verb in ipairs { "set_count", "count_down", "take", "give" } do
  WORDS[verb] = function(task, words) task.calls, task.amount = verb, number(words) end
end
function WORDS.await(task) task.calls = "await" end
function WORDS.delete(task) task.calls, task.amount = "delete", 0 end
function WORDS.drain(task) task.calls, task.amount = "drain", 0 end

-- "acquire 1, nap 2, release 1", with commas, to the end: by several handles.
function WORDS.steps(task, words)
  task.steps = {}
  local step = {}
  for word in words do
    step[#step + 1] = tonumber(word:match "^%d+") or word:match "^%a+"
    if word:find ",$" then task.steps[#task.steps + 1], step = step, {} end
  end
  task.steps[#task.steps + 1] = step
  for _, each in ipairs(task.steps) do
    if each[1] == "nap" then each[2] = each[2] * MS end
    if each[1] == "abandon" then each[3] = 500 end
  end
end

-- …and of its process.
local OF_PROCESS = {
  attended = function(process) process.needs_approval = true end,
  linked = function(process) process.renewer_link = true end,
  introduced = function(process) process.introduced = true end,
  proves = function(process) process.crash_release = true end,
  grants = function(process, words) process.grant_lease = number(words) / S end,
  slow = function(process, words)
    process.near = number(words) * MS
    process.far = process.near
  end,
  busy = function(process) process.busy = true end,
  guards = function(process, words) process.restart_guard = number(words) / S end,
  patient = function(process, words) process.command_timeout = number(words) / S end,
}

local JAVA = { lock = "foreign", mutex = "foreign", fair = "java_fair", latch = "java_latch",
  permit = "java_permits", read = "java_read_write", plain_semaphore = "java_semaphore" }

local function words_of(text) return text:gmatch "%S+" end

local function new_process(plan, index)
  local system = SERVERS_OF[plan.system] and plan.system
  return {
    what = "process", index = index, rate = 1, base = 1000 * index, near = LATENCY, far = LATENCY,
    cuts = 0, half_open = 10000, renewer_link = false, connect_timeout = 0.5,
    command_timeout = TIMEOUT, grant_lease = GRANT_LEASE, servers = plan.quorum and SERVERS or nil,
    restart_guard = plan.quorum and 0 or nil, system = system, sync = system == "sync",
  }
end

local function process_of(plan, index)
  for _, part in ipairs(plan.parts) do
    if part.what == "process" and part.index == index then return part end
  end
  local process = new_process(plan, index)
  plan.parts[#plan.parts + 1] = process
  plan.process_count = math.max(plan.process_count, index)
  return process
end

local function new_task(plan)
  plan.clients = plan.clients + 1
  local key = plan.keys[1]
  return {
    what = "task", key = key.name, kind = key.kind, slot = 9 - plan.clients,
    start = 300 * plan.clients, lease = 3, renewed = true, token_ttl = 600, wait = math.huge,
    rounds = 1, entries = 0, naps = { 2000 }, gap = 0, finish = "release",
    permits = key.kind == "permit" and 1 or nil, initial_permits = key.permits,
    keep = key.kind == "guard" and 1 or nil,
  }
end

local function make_java(plan, task)
  task.what, task.slot = JAVA[plan.keys[1].kind], 8 + plan.clients
  task.lease, task.nap, task.permits = 10, task.naps[1], task.permits or 1
  if task.calls then task.amount = task.amount or 1 end
  if task.wait == math.huge then task.wait = 30 end
  plan.has_java = true
end

local function add_client(plan, text)
  local words, task = words_of(text), new_task(plan)
  local who = words()
  local index = tonumber(who:match "^p(%d)$")
  local process = index and process_of(plan, index)
  for word in words do
    if WORDS[word] then WORDS[word](task, words)
    elseif process and OF_PROCESS[word] then OF_PROCESS[word](process, words)
    else error(("no client does %q"):format(word), 0) end
  end
  task.process = index
  if not index then make_java(plan, task) end
  if task.calls == "take" then task.permits = task.amount end
  plan.parts[#plan.parts + 1] = task
end

-- ---- faults ----

local LINKS = { calls = true, events = true, renewer = true, all = true }

local function fault_of(plan, text, number_of_fault)
  local words = words_of(text)
  local fault = {
    what = "fault", name = words(), process = 1, link = "calls", lag = 0, duration = 100 * MS,
    key = plan.keys[1].name, at = 0, on = "explore " .. number_of_fault, nth = 1, text = text,
    servers = {},
  }
  for word in words do
    local letter, index = word:match "^([ps])(%d)$"
    if letter == "p" then fault.process = tonumber(index)
    elseif letter == "s" then table.insert(fault.servers, tonumber(index))
    elseif LINKS[word] then fault.link = word
    elseif tonumber(word) then fault.duration = tonumber(word) * MS
    elseif word:find "^lag=" then fault.lag = tonumber(word:sub(5)) * MS
    elseif word:find "^jump=" then fault.jump = tonumber(word:sub(6)) * MS
    elseif word:find "^proved=" then fault.proved_after = tonumber(word:sub(8)) * MS
    elseif word:find "^till=" then fault.till = word:sub(6)
    else fault.way = word end
  end
  if fault.name == "swap" then fault.other = table.remove(fault.servers) end
  if #fault.servers == 0 then fault.servers[1] = 1 end
  return fault
end

-- Whether the fault makes a difference only between events of this channel and others: it hits a
-- process, or else a server.
local OF_SERVERS = { stall = true, refuse = true, restart = true, lose = true, flush = true,
  forget_scripts = true, lose_counter = true, delete = true, clock = true, oom = true,
  loading = true, busy = true, readonly = true, misconf = true, noreplicas = true,
  nochannel = true, noperm = true, noauth = true, open_latch = true, fill_semaphore = true,
  rotate = true }

local OF_SYSTEMS = { move_slot = true, unlink = true, swap = true }

local function concerns(fault)
  local process, hit = "p" .. fault.process, {}
  if OF_SYSTEMS[fault.name] then
    return function(channel) return channel.place.name:find "^s%d" ~= nil end
  end
  for _, server in ipairs(fault.servers) do hit["s" .. server] = true end
  if OF_SERVERS[fault.name] then return function(channel) return hit[channel.place.name] end end
  return function(channel)
    return channel.place.name == process or channel.name:find(process .. " ", 1, true) == 1
  end
end

-- A fault that hits several servers is one of each of them.
local function add_fault(plan, fault)
  for _, server in ipairs(fault.servers) do
    plan.parts[#plan.parts + 1] = setmetatable({ server = server }, { __index = fault })
  end
end

-- ---- the row ----

local KEYS = {
  permit = { name = "a", kind = "permit", permits = 1 },
  read_write = { name = "a", kind = "read" },
  leader = { name = "a", kind = "lock" },
}

local function keys_of(kind, clients)
  local keys = { KEYS[kind] or { name = "a", kind = kind } }
  local permits = clients:match "of (%d+) permits"
  if permits then keys = { { name = "a", kind = kind, permits = tonumber(permits) } } end
  if clients:find "%f[%w]both%f[%W]" or clients:find "also b" or clients:find "key b" then
    keys[2] = { name = "b", kind = "lock" }
  end
  return keys
end

local function make_quorum(plan, has_faults)
  plan.quorum, plan.rates, plan.offsets = true, {}, {}
  plan.kind, plan.faulty, plan.restart_guard = has_faults and "minority" or "calm", {}, 0
  if has_faults then plan.faulty = { 1 } end
  for i = 1, SERVERS do plan.rates[i], plan.offsets[i] = 1, i == 1 and AHEAD or 0 end
end

local function make_system(plan, system)
  plan.system, plan.replication, plan.rates, plan.offsets = system, REPLICATION, {}, {}
  for i = 1, SERVERS_OF[system] do plan.rates[i], plan.offsets[i] = 1, 0 end
end

local function new_plan(kind, quorum, has_faults, clients)
  local plan = {
    seed = 1, calm = not has_faults, faults = has_faults or nil, parts = {},
    keys = keys_of(kind, clients), grant_lease = GRANT_LEASE, network = { LATENCY, 8 * LATENCY },
    timeout = TIMEOUT, rate = 1, scripts_known = true, process_count = 0, clients = 0,
    pool = kind == "permit" or nil, read_write = kind == "read_write" or nil,
    fair = kind == "fair" or nil, latch = kind == "latch" or nil,
    plain = kind == "plain_semaphore" or nil, leader = kind == "leader" or nil,
    system = (kind == "latch" or kind == "plain_semaphore") and kind or nil,
  }
  if quorum then make_quorum(plan, has_faults) end
  return plan
end

local function each(text, run)
  for piece in text:gmatch "[^;]+" do
    local trimmed = piece:match "^%s*(.-)%s*$"
    if trimmed ~= "" then run(trimmed) end
  end
end

local REFUSALS = { oom = true, misconf = true, noreplicas = true, readonly = true, noperm = true,
  noauth = true }

-- Returns whether each fault of a world without a quorum has such a name.
local function has_only(plan, names)
  for _, part in ipairs(plan.parts) do
    if part.what == "fault" and not names[part.name] then return nil end
  end
  return not plan.quorum and not plan.plain and not plan.leader or nil
end

-- While only slots move, all but the slowest calls are served.
local function settle_moves(plan)
  plan.faults = not has_only(plan, { move_slot = true })
  for _, part in ipairs(plan.parts) do
    if part.name == "move_slot" and part.duration >= SLOW then plan.slow = true end
  end
end

-- → { name, kind, operation, plan, faults = a list of { text, concerns } }
function world.of(row)
  local quorum = row:find "^quorum " ~= nil
  local system = row:match "^%l+"
  local of_one = (quorum or SERVERS_OF[system]) and row:gsub("^%l+ ", "") or row
  local kind, operation, rest = of_one:match "^([%l_]+) ([^:]+): (.*)$"
  if not kind then error("not a row: " .. row, 0) end
  local clients, faults = rest:match "^([^|]*)|?(.*)$"
  local plan = new_plan(kind, quorum, faults:find "%S" ~= nil, clients)
  if SERVERS_OF[system] then make_system(plan, system) end
  local made = { name = row:match "^[^:]+", kind = kind, operation = operation, plan = plan,
    faults = {}, quorum = quorum }
  each((clients:gsub("of %d+ permits", "")), function(text) add_client(plan, text) end)
  each(faults, function(text)
    local fault = fault_of(plan, text, #made.faults + 1)
    add_fault(plan, fault)
    if plan.quorum and 2 * #fault.servers > SERVERS then plan.kind, plan.faulty = "majority", {} end
    made.faults[#made.faults + 1] = { text = text, concerns = concerns(fault) }
  end)
  if plan.system == "cluster" then settle_moves(plan) end
  plan.only_dead_links = #made.faults > 0 and has_only(plan, { forget = true }) or nil
  plan.only_refusals = #made.faults > 0 and has_only(plan, REFUSALS) or nil
  plan.rotates = #made.faults > 0 and has_only(plan, { rotate = true }) and "alone" or nil
  return made
end

return world
