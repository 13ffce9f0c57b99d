-- Runs the schedule that a plan describes.

local Foreign = require "spec.sim.foreign"
local Network = require "spec.sim.network"
local Process = require "spec.sim.process"
local QuorumWatcher = require "spec.sim.quorum_watcher"
local Server = require "spec.sim.server"
local Task = require "spec.sim.task"
local Watcher = require "spec.sim.watcher"
local World = require "spec.sim.world"

local LONGEST_LEASE = 31000000

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

function mishaps.pause(_, mishap, process) process:pause(mishap.duration) end
function mishaps.crash(_, mishap, process) process:crash(mishap.lag) end
function mishaps.stall(run, mishap) server_of(run, mishap).paused_until = run.world.now + mishap.duration end
function mishaps.refuse(run, mishap) server_of(run, mishap).down_until = run.world.now + mishap.duration end
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
  server_of(run, mishap):command("DEL", "redisson_lock_token:{" .. mishap.key .. "}")
end

function mishaps.delete(run, mishap)
  run.watcher:lose(mishap.key)
  server_of(run, mishap):command("DEL", mishap.key)
end

for kind in pairs(Server.refusals) do
  mishaps[kind] = function(run, mishap) server_of(run, mishap):refuse(kind, mishap.duration) end
end

local function happen(run, mishap)
  local process = run.processes[mishap.process]
  run.world:note("-- %s (p%d, %s)", mishap.kind, mishap.process, mishap.link)
  if process then mishaps[mishap.kind](run, mishap, process) end
end

-- ---- the parts ----

local add = {}

function add.process(run, part)
  run.processes[part.index] = Process.new(run.world, run.network, part, part.index, run.plan.seed)
  run.watcher:add_process(run.processes[part.index])
end

function add.task(run, part)
  local process = run.processes[part.process]
  if not process then return end
  local task = Task.new(process, part, part.slot, run.watcher)
  process.tasks[#process.tasks + 1] = task
  run.tasks[#run.tasks + 1] = task
end

function add.foreign(run, part)
  run.watcher.foreign = true
  Foreign.new(run.world, run.servers[1], run.watcher, part, part.slot, run.plan.seed)
end

function add.mishap(run, part)
  run.world:at(part.at, happen, run, part)
end

local function set_up(plan, options)
  local run = { plan = plan, world = World.new(options.tell), processes = {}, tasks = {}, servers = {} }
  for index, rate in ipairs(plan.rates or { plan.rate }) do
    local offset = plan.offsets and plan.offsets[index] or 0
    run.servers[index] = Server.new(run.world, index, rate, offset, options.patched)
    if plan.scripts_known then run.servers[index]:load_programs() end
  end
  run.network = Network.new(run.world, run.servers)
  run.watcher = (plan.quorum and QuorumWatcher or Watcher).new(run.world, run.servers, plan)
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

-- options: tell = function(time, text), patched = program texts. → result { found = { rule, text, time } | nil, hash,
-- events }
function simulator.run(plan, options)
  local run = set_up(plan, options or {})
  run.world:run()
  if not run.world.found then check_end(run) end
  for _, task in ipairs(run.tasks) do task:stop() end
  return { found = run.world.found, hash = run.world.hash, events = run.world.events }
end

return simulator
