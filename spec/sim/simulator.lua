-- Runs the schedule that a plan describes.

local FairWatcher = require "spec.sim.fair_watcher"
local Cycles = require "spec.sim.cycles"
local dead_links = require "spec.sim.dead_links"
local Foreign = require "spec.sim.foreign"
local leader_watcher = require "spec.sim.leader_watcher"
local LatchWatcher = require "spec.sim.latch_watcher"
local Network = require "spec.sim.network"
local PlainWatcher = require "spec.sim.plain_watcher"
local PoolWatcher = require "spec.sim.pool_watcher"
local Process = require "spec.sim.process"
local QuorumWatcher = require "spec.sim.quorum_watcher"
local refusals = require "spec.sim.refusals"
local rotation = require "spec.sim.rotation"
local rules = require "spec.sim.rules"
local ReadWriteWatcher = require "spec.sim.read_write_watcher"
local Sentinels = require "spec.sim.sentinels"
local Server = require "spec.sim.server"
local Slots = require "spec.sim.slots"
local SystemWatcher = require "spec.sim.system_watcher"
local system_counts = require "spec.sim.system_counts"
local Task = require "spec.sim.task"
local Watcher = require "spec.sim.watcher"
local World = require "spec.sim.world"
local wire = require "spec.sim.wire"

local engine = require("holdfast.core").engine

local LeaderWatcher = leader_watcher.onto(Watcher)
local SystemLeaderWatcher = leader_watcher.onto(SystemWatcher)
local SystemLatchWatcher = system_counts.onto(LatchWatcher)
local SystemPlainWatcher = system_counts.onto(PlainWatcher)

local LONGEST_LEASE, S = 31000000, 1000000
local CENTURY = 3e15 -- us

local simulator = {}

-- ---- faults ----

local faults = {}

-- A server's fault happens to the server with the number fault.server, by default the first.
local function server_of(run, fault)
  return run.servers[fault.server or 1]
end

local function link_of(fault)
  return Process.link_to(fault.server or 1, fault.link)
end

function faults.drop(_, fault, process) process:drop(link_of(fault), fault.lag) end

-- The next reply is lost with its connection.
function faults.lose_reply(_, fault, process) process.loses_reply = link_of(fault) end

function faults.kill(run, fault, process)
  for _, client in ipairs(server_of(run, fault).redis:clients()) do
    if client.process == process then client:drop() end
  end
end

function faults.cut_up(run, fault, process)
  process.up_blocked[fault.server or 1] = run.world.now + fault.duration
end

function faults.cut_down(run, fault, process)
  process.down_blocked[fault.server or 1] = run.world.now + fault.duration
end

function faults.cut(run, fault, process)
  faults.cut_up(run, fault, process)
  faults.cut_down(run, fault, process)
end

-- Delays what one connection delivers to the client.
function faults.stall_link(run, fault, process)
  local connection = process.connections[link_of(fault)]
  if connection then connection.stalled_until = run.world.now + fault.duration end
end

-- Connections die silently: dead_links.lua.
function faults.forget(_, fault, process)
  for _, link in ipairs(fault.link == "all" and { "calls", "events", "renewer" } or { fault.link }) do
    local connection = process.connections[Process.link_to(fault.server or 1, link)]
    if connection then connection:forget(fault.way) end
  end
end

-- Delays what the client sends over one connection, even if the connection ends: a proxy holds it.
function faults.stall_up(run, fault, process)
  local connection = process.connections[link_of(fault)]
  if connection then connection.up_stalled_until = run.world.now + fault.duration end
end

function faults.give_up(_, fault, process) process:give_up(fault.key) end

function faults.pause(_, fault, process) process:pause(fault.duration) end
function faults.close(run, _, process) process:close(run.watcher) end
function faults.crash(_, fault, process) process:crash(fault.lag, fault.proved_after) end
function faults.stall(run, fault)
  server_of(run, fault).paused_until = run.world.now + fault.duration
end
function faults.refuse(run, fault)
  server_of(run, fault).down_until = run.world.now + fault.duration
end
function faults.restart(run, fault) server_of(run, fault):restart(true, fault.duration) end

function faults.lose(run, fault)
  run.watcher:forget(server_of(run, fault))
  server_of(run, fault):restart(false, fault.duration)
end

function faults.flush(run, fault)
  run.watcher:forget(server_of(run, fault))
  server_of(run, fault):command("FLUSHALL")
end

function faults.forget_scripts(run, fault) server_of(run, fault):command("SCRIPT", "FLUSH") end

function faults.lose_counter(run, fault)
  local counter = wire.counter_of(fault.key)
  for _, key in pairs(run.watcher.keys) do
    if key.counter == counter then key.counter_lost = true end
  end
  server_of(run, fault):command("DEL", counter)
end

function faults.delete(run, fault)
  run.watcher:lose(fault.key)
  server_of(run, fault):command("DEL", fault.key)
end

-- Sets the server's clock. Holds that end early because of that are lost.
function faults.clock(run, fault)
  local server = server_of(run, fault)
  if fault.jump > 0 then run.watcher:hasten() end
  if fault.jump > CENTURY then run.watcher.keeps_leases = true end
  -- what has ended is removed, even if the clock is set back later
  run.watcher:around(function() server.db:keys() end)
  server.epoch = server.epoch + fault.jump
end

local LETTERS = "lmgrwpfcs"

-- Another user publishes grants of each kind, of a key that no client waits for.
function faults.forge(run, fault, process)
  local number = fault.lag % 40
  for letter in LETTERS:gmatch(".") do
    server_of(run, fault):command("PUBLISH", wire.channel_of(process.uuid),
      ("1 grant %s %d 5 5 2000 %s"):format(letter, number, rules.FORGED))
  end
end

for name in pairs(Server.refusals) do
  faults[name] = function(run, fault) server_of(run, fault):refuse(name, fault.duration) end
end

-- Faults of several servers: see system_plan.lua.
local of_systems = {}

function of_systems.fail_over(run, fault)
  run.topology:fail_over(fault.how, fault.detect, fault.rest, fault.stale)
end
function of_systems.unlink(run, fault) run.topology:unlink(fault.duration) end
-- Opens the latch without a message.
function of_systems.open_latch(run, fault)
  run.watcher:around(function() run.watcher:home():command("DEL", fault.key) end)
end
-- Adds permits, also without a message.
function of_systems.fill_semaphore(run, fault)
  run.watcher:around(function() run.watcher:home():command("INCRBY", fault.key, "1000") end)
end
-- Only where clients have credentials.
function of_systems.rotate(run, fault)
  rotation.rotate(server_of(run, fault), fault.way, fault.duration)
end
function of_systems.move_slot(run, fault) run.topology:move(fault.key, fault.duration) end
function of_systems.stranger(run, fault)
  run.topology.addresses:lend(fault.server, fault.duration)
end
function of_systems.swap(run, fault)
  run.topology.addresses:swap(fault.server, fault.other, fault.duration)
end
function of_systems.upgrade(run, fault)
  run.topology.addresses:upgrade(fault.server, fault.duration)
end

-- Ends a stall or a cut early.
local function go_on(stopped)
  local process, server = stopped.process, stopped.fault.server or 1
  process.up_blocked[server], process.down_blocked[server] = nil, nil
  stopped.run.world:note("-- %s is over (%s)", stopped.fault.name, process.name)
  if stopped.connection then stopped.connection:go_on() end
end

local function happen(run, fault)
  local process = run.processes[fault.process]
  run.world:note("-- %s (p%d, %s)", fault.name, fault.process, fault.link)
  if not process then return end
  if run.world.coverage then run.world.coverage.fault(process, fault.name) end
  if run.watcher.troubled then run.watcher:troubled(fault, process) end
  local change = faults[fault.name] or of_systems[fault.name]
  change(run, fault, process)
  if not fault.till then return end
  run.world:on_next(fault.till, process, fault.lag, go_on,
    { run = run, fault = fault, process = process,
      connection = process.connections[link_of(fault)] })
end

-- The fault happens at a signal: fault.process 0 is the process that the signal is about.
local function happen_there(waiting, process, key)
  local fault = setmetatable({ key = key }, { __index = waiting.fault })
  if fault.process == 0 then fault.process = process.index end
  happen(waiting.run, fault)
end

-- ---- the parts ----

local add = {}

function add.process(run, part)
  run.processes[part.index] = Process.new(run.world, run.network, part, part.index, run.plan.seed)
  run.watcher:add_process(run.processes[part.index])
end

-- Checks that the task has acquired the lock by now. If it waits behind the first task, an acquire
-- of that one is enough.
local function check_in(run, task)
  if task.was_in or task.plan.behind_first and run.tasks[1].was_in then return end
  run.world:fail("late", "%s is not in by %.3f s", task.name, run.world.now / S)
end

local function expect_in(run, task)
  if task.plan.in_by then run.world:at(task.plan.in_by, check_in, run, task) end
end

function add.task(run, part)
  local process = run.processes[part.process]
  if not process then return end
  local task = Task.new(process, part, part.slot, run.watcher)
  process.tasks[#process.tasks + 1] = task
  run.tasks[#run.tasks + 1] = task
  expect_in(run, task)
end

function add.foreign(run, part)
  run.watcher.foreign = true
  expect_in(run,
    Foreign.new(run.world, run.servers[1], run.watcher, part, part.slot, run.plan.seed))
end

for _, kind in ipairs { "fair", "latch", "permits", "read_write", "semaphore" } do
  local Java = require("spec.sim.java_" .. kind)
  add["java_" .. kind] = function(run, part)
    expect_in(run, Java.new(run.world, run.servers[1], run.watcher, part, part.slot, run.plan.seed))
  end
end

function add.fault(run, part)
  if not part.on then return run.world:at(part.at, happen, run, part) end
  run.world:on(part.on, part.nth, part.at, happen_there, { run = run, fault = part })
end

local TOPOLOGIES = { sentinel = Sentinels, sync = Sentinels, cluster = Slots }

local function watcher_of(plan)
  if TOPOLOGIES[plan.system] then
    return plan.leader and SystemLeaderWatcher or plan.latch and SystemLatchWatcher
      or plan.plain and SystemPlainWatcher or SystemWatcher
  end
  return plan.quorum and QuorumWatcher or plan.read_write and ReadWriteWatcher
    or plan.pool and PoolWatcher or plan.fair and FairWatcher
    or plan.leader and LeaderWatcher or plan.latch and LatchWatcher or plan.plain and PlainWatcher
    or Watcher
end

local function set_up(plan, options)
  local run = { plan = plan, world = World.new(options.trace), processes = {}, tasks = {},
    servers = {} }
  run.world.coverage, run.world.lead = options.coverage, options.lead
  run.world.brisk = plan.brisk
  if options.order then options.order:begin(run.world) end
  if plan.system == "crash" then engine.forget_lives() end
  for index, rate in ipairs(plan.rates or { plan.rate }) do
    local offset = plan.offsets and plan.offsets[index] or 0
    run.servers[index] = Server.new(run.world, index, {
      rate = rate, offset = offset, gather = plan.gather or 0, seed = plan.seed,
      patched = options.patched, rotates = rotation.has_password(plan, index) and plan.rotates,
      distance = plan.distances and plan.distances[index],
    })
    if plan.scripts_known then run.servers[index]:load_programs() end
  end
  run.world.forgets = dead_links.are_alone(plan)
  run.world.refusing = refusals.are_alone(plan) and run.servers[1] or nil
  run.world.rotates = plan.rotates
  run.world.rotating = rotation.is_alone(plan) and run.servers[1] or nil
  run.network = Network.new(run.world, run.servers)
  run.watcher = watcher_of(plan).new(run.world, run.servers, plan)
  run.topology = TOPOLOGIES[plan.system] and TOPOLOGIES[plan.system].new(run)
  run.watcher.topology = run.topology
  run.world.cycles = Cycles.new(run.world, run.watcher, plan)
  for _, key in ipairs(plan.keys) do run.watcher:add_key(key.name, key.kind) end
  for _, part in ipairs(plan.parts) do add[part.what](run, part) end
  return run
end

local function check_end(run)
  for _, task in ipairs(run.tasks) do
    if not task.over and not task.dead then
      run.world:fail("hang", "%s never ends", task.name)
      return
    end
  end
  for _, process in pairs(run.processes) do process:check_end() end
  for _, server in ipairs(run.servers) do rules.check_forged(run.world, server) end
  run.watcher:finish(LONGEST_LEASE)
end

-- → the names of all faults, in order
function simulator.faults()
  local list = {}
  for name in pairs(faults) do list[#list + 1] = name end
  table.sort(list)
  return list
end

-- options: trace = function(time, text), patched = program texts, lead = the text of
-- lua/holdfast/lead.lua, coverage = what records the places that are reached, order = what chooses
-- the next event (spec/explore/order.lua). → result { found = { rule, text, time } | nil, hash,
-- events }
function simulator.run(plan, options)
  local run = set_up(plan, options or {})
  run.world:run()
  if not run.world.found then check_end(run) end
  for _, task in ipairs(run.tasks) do task:stop() end
  return { found = run.world.found, hash = run.world.hash, events = run.world.events }
end

return simulator
