-- Runs the schedule that a plan describes.

local FairWatcher = require "spec.sim.fair_watcher"
local Circles = require "spec.sim.circles"
local Foreign = require "spec.sim.foreign"
local leader_watcher = require "spec.sim.leader_watcher"
local LatchWatcher = require "spec.sim.latch_watcher"
local Network = require "spec.sim.network"
local PlainWatcher = require "spec.sim.plain_watcher"
local PoolWatcher = require "spec.sim.pool_watcher"
local Process = require "spec.sim.process"
local QuorumWatcher = require "spec.sim.quorum_watcher"
local refusals = require "spec.sim.refusals"
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

local simulator = {}

-- ---- mishaps ----

local mishaps = {}

-- What happens to a server happens to the one with the number mishap.server, the first unless said.
local function server_of(run, mishap)
  return run.servers[mishap.server or 1]
end

local function link_of(mishap)
  return Process.link_to(mishap.server or 1, mishap.link)
end

function mishaps.drop(_, mishap, process) process:drop(link_of(mishap), mishap.lag) end

-- The next reply is lost with its connection.
function mishaps.lose_reply(_, mishap, process) process.loses_reply = link_of(mishap) end

function mishaps.kill(run, mishap, process)
  for _, client in ipairs(server_of(run, mishap).redis:clients()) do
    if client.process == process then client:drop() end
  end
end

function mishaps.cut_up(run, mishap, process)
  process.up_blocked[mishap.server or 1] = run.world.now + mishap.duration
end

function mishaps.cut_down(run, mishap, process)
  process.down_blocked[mishap.server or 1] = run.world.now + mishap.duration
end

function mishaps.cut(run, mishap, process)
  mishaps.cut_up(run, mishap, process)
  mishaps.cut_down(run, mishap, process)
end

-- What comes back over one connection comes late.
function mishaps.stall_link(run, mishap, process)
  local connection = process.connections[link_of(mishap)]
  if connection then connection.stalled_until = run.world.now + mishap.duration end
end

-- What goes out over one connection comes late, whatever becomes of that: a proxy has it.
function mishaps.stall_up(run, mishap, process)
  local connection = process.connections[link_of(mishap)]
  if connection then connection.up_stalled_until = run.world.now + mishap.duration end
end

function mishaps.give_up(_, mishap, process) process:give_up(mishap.key) end

function mishaps.pause(_, mishap, process) process:pause(mishap.duration) end
function mishaps.close(run, _, process) process:close(run.watcher) end
function mishaps.crash(_, mishap, process) process:crash(mishap.lag, mishap.proved_after) end
function mishaps.stall(run, mishap)
  server_of(run, mishap).paused_until = run.world.now + mishap.duration
end
function mishaps.refuse(run, mishap)
  server_of(run, mishap).down_until = run.world.now + mishap.duration
end
function mishaps.restart(run, mishap) server_of(run, mishap):restart(true, mishap.duration) end

function mishaps.lose(run, mishap)
  run.watcher:forget(server_of(run, mishap))
  server_of(run, mishap):restart(false, mishap.duration)
end

function mishaps.flush(run, mishap)
  run.watcher:forget(server_of(run, mishap))
  server_of(run, mishap):command("FLUSHALL")
end

function mishaps.forget_scripts(run, mishap) server_of(run, mishap):command("SCRIPT", "FLUSH") end

function mishaps.lose_counter(run, mishap)
  local counter = wire.counter_of(mishap.key)
  for _, key in pairs(run.watcher.keys) do
    if key.counter == counter then key.counter_lost = true end
  end
  server_of(run, mishap):command("DEL", counter)
end

function mishaps.delete(run, mishap)
  run.watcher:lose(mishap.key)
  server_of(run, mishap):command("DEL", mishap.key)
end

-- Its clock is set; what ends early by that is lost.
function mishaps.clock(run, mishap)
  local server = server_of(run, mishap)
  if mishap.jump > 0 then run.watcher:hasten() end
  -- what has ended is gone, also if the clock goes back
  run.watcher:around(function() server.db:keys() end)
  server.epoch = server.epoch + mishap.jump
end

for kind in pairs(Server.refusals) do
  mishaps[kind] = function(run, mishap) server_of(run, mishap):refuse(kind, mishap.duration) end
end

-- Those of more than one server: see system_plan.lua.
local of_systems = {}

function of_systems.fail_over(run, mishap)
  run.topology:fail_over(mishap.how, mishap.detect, mishap.rest, mishap.stale)
end
function of_systems.unlink(run, mishap) run.topology:unlink(mishap.duration) end
-- Nobody says so.
function of_systems.open_latch(run, mishap)
  run.watcher:around(function() run.watcher:home():command("DEL", mishap.key) end)
end
-- As silently.
function of_systems.fill_semaphore(run, mishap)
  run.watcher:around(function() run.watcher:home():command("INCRBY", mishap.key, "1000") end)
end
function of_systems.move_slot(run, mishap) run.topology:move(mishap.key, mishap.duration) end

-- What a stall or a cut holds back goes on before its time.
local function go_on(stopped)
  local process, server = stopped.process, stopped.mishap.server or 1
  process.up_blocked[server], process.down_blocked[server] = nil, nil
  stopped.run.world:note("-- %s is over (%s)", stopped.mishap.kind, process.name)
  if stopped.connection then stopped.connection:go_on() end
end

local function happen(run, mishap)
  local process = run.processes[mishap.process]
  run.world:note("-- %s (p%d, %s)", mishap.kind, mishap.process, mishap.link)
  if not process then return end
  if run.world.coverage then run.world.coverage.fault(process, mishap.kind) end
  if run.watcher.troubled then run.watcher:troubled(mishap, process) end
  local change = mishaps[mishap.kind] or of_systems[mishap.kind]
  change(run, mishap, process)
  if not mishap.till then return end
  run.world:on_next(mishap.till, process, mishap.lag, go_on,
    { run = run, mishap = mishap, process = process,
      connection = process.connections[link_of(mishap)] })
end

-- On a signal: mishap.process 0 is the process that it is about.
local function happen_there(waiting, process, key)
  local mishap = setmetatable({ key = key }, { __index = waiting.mishap })
  if mishap.process == 0 then mishap.process = process.index end
  happen(waiting.run, mishap)
end

-- ---- the parts ----

local add = {}

function add.process(run, part)
  run.processes[part.index] = Process.new(run.world, run.network, part, part.index, run.plan.seed)
  run.watcher:add_process(run.processes[part.index])
end

-- It is in by now; unless the first one, behind which it waits, has been.
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

function add.mishap(run, part)
  if not part.on then return run.world:at(part.at, happen, run, part) end
  run.world:on(part.on, part.nth, part.at, happen_there, { run = run, mishap = part })
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
  local run = { plan = plan, world = World.new(options.tell), processes = {}, tasks = {},
    servers = {} }
  run.world.coverage, run.world.lead = options.coverage, options.lead
  run.world.brisk = plan.brisk
  if plan.system == "crash" then engine.forget_lives() end
  for index, rate in ipairs(plan.rates or { plan.rate }) do
    local offset = plan.offsets and plan.offsets[index] or 0
    run.servers[index] = Server.new(run.world, index, {
      rate = rate, offset = offset, gather = plan.gather or 0, seed = plan.seed,
      patched = options.patched, distance = plan.distances and plan.distances[index],
    })
    if plan.scripts_known then run.servers[index]:load_programs() end
  end
  run.world.refusing = refusals.are_alone(plan) and run.servers[1] or nil
  run.network = Network.new(run.world, run.servers)
  run.watcher = watcher_of(plan).new(run.world, run.servers, plan)
  run.topology = TOPOLOGIES[plan.system] and TOPOLOGIES[plan.system].new(run)
  run.watcher.topology = run.topology
  run.world.circles = Circles.new(run.world, run.watcher, plan)
  for _, key in ipairs(plan.keys) do run.watcher:add_key(key.name, key.layout) end
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
  run.watcher:finish(LONGEST_LEASE)
end

-- → the kinds of mishaps, in order
function simulator.faults()
  local list = {}
  for kind in pairs(mishaps) do list[#list + 1] = kind end
  table.sort(list)
  return list
end

-- options: tell = function(time, text), patched = program texts, lead = the text
-- of lua/holdfast/lead.lua, coverage = what takes note of what
-- is reached.
-- → result { found = { rule, text, time } | nil, hash, events }
function simulator.run(plan, options)
  local run = set_up(plan, options or {})
  run.world:run()
  if not run.world.found then check_end(run) end
  for _, task in ipairs(run.tasks) do task:stop() end
  return { found = run.world.found, hash = run.world.hash, events = run.world.events }
end

return simulator
