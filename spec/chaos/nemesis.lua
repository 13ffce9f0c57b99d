-- What goes wrong in a chaos run, and when: a schedule derived from a seed, carried out on a world
-- of workers and servers, with a proxy between each pair. Only the first `plan.faulty` servers, and
-- the connections to them, have faults.
--
-- Every fault ends by itself or is ended after a while. Faults of the same kind of target may
-- overlap.

local Prng = require "spec.sim.prng"
local process = require "spec.support.process"
local proxy = require "spec.chaos.proxy"
local sys = require "spec.support.sys"

-- USER, PASSWORD: the clients' login in rounds of the kind "moving", in which the user's rights
-- change
local nemesis = { USER = "app", PASSWORD = "first" }

-- { name, weight, shortest and longest duration in seconds, 0 for an instant }
local FAULTS = {
  { "stop_worker", 14, 0.1, 2.5 }, { "kill_worker", 7, 0.02, 0.6 },
  { "cut_network", 10, 0.1, 2 }, { "cut_up", 6, 0.1, 1.5 }, { "cut_down", 8, 0.1, 1.5 },
  { "lose_up", 5, 0.1, 1 }, { "lose_down", 6, 0.1, 1 }, { "delay", 6, 0.3, 2 },
  { "chunk", 4, 0.3, 2 },
  { "cut_reply", 8, 0, 0 }, { "cut_request", 5, 0, 0 }, { "reset", 6, 0, 0 },
  { "forget", 5, 0, 0 }, { "forget_down", 3, 0, 0 },
  { "refuse", 4, 0.1, 1 },
  { "late", 6, 0.1, 1.2 },
  { "stop_server", 6, 0.05, 1.2 }, { "pause_clients", 4, 0.05, 0.6 }, { "kill_clients", 5, 0, 0 },
  { "kill_listeners", 4, 0, 0 }, { "flush_scripts", 3, 0, 0 }, { "restart", 3, 0.05, 0.5 },
}
local FLUSH, RESTART_EMPTY = { "flush", 8, 0, 0 }, { "restart_empty", 4, 0.05, 0.4 }
local LOSSES = { loses = { FLUSH, RESTART_EMPTY }, minority = { RESTART_EMPTY } }
local BACK = { "clock_back", 5, 0, 0 }
local CLOCKS = { one = { BACK }, shared = { BACK }, kinds = { BACK } }
-- Faults of Sentinels and clusters.
local MOVES = {
  sentinel = {
    { "fail_over", 6, 2, 5 }, { "lose_tail", 8, 2, 5 }, { "stop_replica", 10, 0.1, 0.6 },
  },
  cluster = { { "move_slot", 20, 0, 0.8 }, { "promote", 8, 0, 0 }, { "stranger", 8, 0.3, 2 } },
  slots = { { "drain_slot", 10, 2.5, 4 } },
  upgrade = { { "upgrade_pair", 30, 0, 0 }, { "promote", 6, 0, 0 }, { "stranger", 4, 0.3, 2 } },
}

-- What an operator, or a failover behind an address, does to a server that keeps running.
local REFUSALS = {
  { "read_only", 12, 0.1, 5 }, { "no_rights", 8, 0.1, 2.5 }, { "new_password", 8, 0.1, 2.5 },
  { "no_user", 8, 0.1, 2.5 }, { "move_primary", 12, 0.1, 3 },
}
local ROTATION, UPGRADE = { "new_certificates", 16, 0, 2 }, { "upgrade", 10, 0, 0 }

local PROMOTION = 5 -- seconds; a replica may have been refused
local TAIL = 0.3 -- seconds of writes that a failover loses

local function wanted(list, names)
  if not names then return true end
  for _, name in ipairs(names) do
    if name == list[1] then return true end
  end
  return false
end

local function pick(prng, faults)
  local sum = 0
  for _, each in ipairs(faults) do sum = sum + each[2] end
  local at = prng:range(1, sum)
  for _, each in ipairs(faults) do
    at = at - each[2]
    if at <= 0 then return each end
  end
end

local function add_wanted(faults, list, names)
  for _, each in ipairs(list) do
    if wanted(each, names) then faults[#faults + 1] = each end
  end
end

-- Returns faults that have all ended after plan.seconds.
-- `plan`: from spec/chaos/round.lua → list of { at, what, worker, server, seconds, number }
function nemesis.schedule(plan)
  local prng, list, faults = Prng.new(plan.seed + 500000), {}, {}
  add_wanted(faults, FAULTS, plan.faults)
  add_wanted(faults, CLOCKS[plan.kind] or {}, plan.faults)
  for _, kinds in ipairs { LOSSES, MOVES, { moving = REFUSALS } } do
    add_wanted(faults, kinds[plan.kind] or {})
  end
  if plan.tls then faults[#faults + 1] = ROTATION end
  if plan.kind == "moving" and plan.chain[2] then faults[#faults + 1] = UPGRADE end
  local at = 0.3
  while at < plan.seconds do
    local kind = pick(prng, faults)
    local fault = {
      at = at, what = kind[1], worker = prng:range(1, plan.workers),
      server = prng:range(1, plan.faulty),
      number = prng:range(1, 300),
      seconds = prng:range(kind[3] * 1000, kind[4] * 1000) / 1000,
    }
    fault.seconds = math.min(fault.seconds, plan.seconds - at)
    if fault.seconds >= kind[3] then list[#list + 1] = fault end
    at = at + prng:range(20, 600) / 1000
  end
  return list
end

-- ---- faults ----

local begin, finish = {}, {}

-- Remembers the stopped process, because it may be killed and replaced in the meantime.
function begin.stop_worker(world, fault)
  fault.stopped = world.workers[fault.worker]
  fault.stopped.process:kill("STOP")
end

function finish.stop_worker(_, fault) fault.stopped.process:kill("CONT") end

function begin.kill_worker(world, fault) world:kill_worker(fault.worker) end
function finish.kill_worker(world, fault) world:start_worker(fault.worker) end

local function on_proxy(name, ...)
  local words = { ... }
  begin[name] = function(world, fault)
    local all = {}
    for i, word in ipairs(words) do all[i] = word == "NUMBER" and fault.number or word end
    world.proxies[fault.worker][fault.server]:tell((table.unpack or unpack)(all))
  end
  finish[name] = function(world, fault)
    if fault.seconds == 0 then return end
    world.proxies[fault.worker][fault.server]:tell(name == "refuse" and "accept" or "go")
  end
end

on_proxy("cut_network", "stop", "both")
on_proxy("cut_up", "stop", "up")
on_proxy("cut_down", "stop", "down")
on_proxy("lose_up", "lose", "up")
on_proxy("lose_down", "lose", "down")
on_proxy("delay", "delay", "NUMBER")
on_proxy("chunk", "chunk", "NUMBER")
on_proxy("cut_reply", "cut", "down", "NUMBER")
on_proxy("cut_request", "cut", "up", "NUMBER")
on_proxy("reset", "reset")
on_proxy("forget", "forget", "both")
on_proxy("forget_down", "forget", "down")
on_proxy("refuse", "refuse")

-- Requests wait; then the client's connection is reset, and the server receives them after the
-- client has connected again.
function begin.late(world, fault) world.proxies[fault.worker][fault.server]:tell("stop", "up") end

function finish.late(world, fault)
  local between = world.proxies[fault.worker][fault.server]
  between:tell("late", fault.number)
  between:tell("go")
end

-- Allows one fault per server at a time, and none while it is down or stopped, when commands would
-- wait.
local function on_server(name, start, stop)
  begin[name] = function(world, fault)
    local server = world.servers[fault.server]
    if world.busy[fault.server] or server.hung or not server:is_running() then return true end
    world.busy[fault.server] = true
    start(server, fault, world)
  end
  finish[name] = function(world, fault)
    if stop then stop(world.servers[fault.server], world) end
    world.busy[fault.server] = nil
  end
end

local function kill(server) server:kill("KILL") end

-- Sends a command, twice if necessary: a Sentinel that makes a server a replica kills its clients.
local function tell(server, ...) return server:try_cli(...) or server:cli(...) end

on_server("stop_server", function(server)
  server:kill("STOP")
end, function(server) server:kill("CONT") end)
on_server("pause_clients", function(server, fault)
  tell(server, "CLIENT", "PAUSE", ("%.0f"):format(fault.seconds * 1000), fault.number % 2 == 0
    and "ALL" or "WRITE")
end)
on_server("kill_clients", function(server)
  tell(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
end)
on_server("kill_listeners", function(server) tell(server, "CLIENT", "KILL", "TYPE", "pubsub") end)
on_server("flush_scripts", function(server) tell(server, "SCRIPT", "FLUSH") end)
on_server("restart", kill, function(server) server:restart(true) end)
-- The server becomes a replica of an unreachable master, so it keeps its data.
on_server("read_only", function(server) tell(server, "REPLICAOF", "127.0.0.1", "1") end,
  function(server) tell(server, "REPLICAOF", "NO", "ONE") end)
on_server("no_rights", function(server) tell(server, "ACL", "SETUSER", nemesis.USER, "-@all") end,
  function(server) tell(server, "ACL", "SETUSER", nemesis.USER, "+@all") end)
on_server("new_password", function(server, fault)
  tell(server, "ACL", "SETUSER", nemesis.USER, "resetpass", ">another")
  if fault.number % 2 == 0 then tell(server, "CLIENT", "KILL", "USER", nemesis.USER) end
end, function(server) tell(server, "ACL", "SETUSER", nemesis.USER, ">" .. nemesis.PASSWORD) end)
on_server("no_user", function(server) tell(server, "ACL", "DELUSER", nemesis.USER) end,
  function(server)
    tell(server, "ACL", "SETUSER", nemesis.USER, "on", ">" .. nemesis.PASSWORD, "~*", "&*", "+@all")
  end)
-- The replica takes over, with all writes, but only later do connections lead to it.
local function replication(server, what)
  return tell(server, "INFO", "replication"):find(what, 1, true)
end

function begin.move_primary(world)
  local old, new = world.servers[1], world.spare
  if world.busy[1] or not replication(new, "master_link_status:up") then return true end
  if tell(old, "FAILOVER", "TIMEOUT", "2000") ~= "OK" then return true end
  process.wait_until(function() return replication(old, "no-failover") end, PROMOTION)
  if new:cli("ROLE")[1] ~= "master" then return true end
  world.busy[1] = true
end

function finish.move_primary(world, fault)
  world.servers[1], world.spare = world.spare, world.servers[1]
  tell(world.servers[1], "CONFIG", "REWRITE") -- a restart keeps the role
  tell(world.spare, "CONFIG", "REWRITE")
  for _, proxies in ipairs(world.proxies) do
    proxies[1]:tell("to", world.servers[1].tls_port or world.servers[1].path)
    if fault.number % 2 == 0 then proxies[1]:tell("reset") end
  end
  world.busy[1] = nil
end

local function relaunch(server, program)
  if server.program == program then return end
  server.program = program
  server:restart(true)
end

-- Upgrades both servers, with their data. The replica is first, because it can read what an older
-- primary sends, but not the other way round. Every other time it takes over before the old primary
-- is upgraded.
function begin.upgrade(world, fault)
  local program = world.plan.chain[2].path
  if world.busy[1] or world.spare.program == program then return true end
  relaunch(world.spare, program)
  if fault.number % 2 == 0 and not begin.move_primary(world) then
    finish.move_primary(world, fault)
  end
  relaunch(world.servers[1], program)
  relaunch(world.spare, program)
end

function finish.upgrade() end

-- From now on the servers accept only the new certificates; the clients get theirs later.
on_server("new_certificates", function(_, fault, world)
  world.certificates:renew()
  for _, server in ipairs { world.servers[1], world.spare } do
    world.certificates:give(server)
    if fault.number % 2 == 0 then tell(server, "CLIENT", "KILL", "USER", nemesis.USER) end
  end
end, function(_, world) world.certificates:install() end)

on_server("flush", function(server) tell(server, "FLUSHALL") end)
on_server("restart_empty", kill, function(server) server:restart(false) end)

-- Sets the clock back by another second each time: leases end later than they should, never
-- earlier.
on_server("clock_back", function(server)
  server.behind = (server.behind or 0) + 1
  server:set_clock(-server.behind)
end)

-- Allows one change of a whole set at a time.
local function on_set(name, start, stop)
  begin[name] = function(world, fault)
    if world.busy.set then return true end
    fault.ending = start(world.set, fault, world)
    if not fault.ending then return true end
    world.busy.set = true
  end
  finish[name] = function(world, fault)
    stop(world.set, fault.ending, fault)
    world.busy.set = nil
  end
end

-- The master dies, or hangs and comes back without knowing that it was replaced.
on_set("fail_over", function(set, fault)
  local master = set:is_settled() and set:master()
  if not master then return nil end
  if fault.number % 2 == 0 then master:kill("KILL") else set:hang(master) end
  return master
end, function(set, master, fault)
  if fault.number % 2 == 0 then master:restart(true) else set:resume(master) end
end)
-- The master dies after accepting writes that were never replicated, and its replica takes over
-- while their leases are running. A stopped replica would later read what is already on its way, so
-- the connection is cut, too.
on_set("lose_tail", function(set)
  local master = set:is_settled() and set:master()
  if not master then return nil end
  local replica = set:replicas()[1]
  set:hang(replica)
  tell(master, "CLIENT", "KILL", "TYPE", "replica")
  process.sleep(TAIL)
  master:kill("KILL")
  set:resume(replica)
  set:ask_failover()
  return master
end, function(_, master) master:restart(true) end)
on_set("stop_replica", function(set)
  local replica = set:is_settled() and set:replicas()[1]
  if replica then set:hang(replica) end
  return replica
end, function(set, replica) set:resume(replica) end)
local function begin_move(set, fault, world)
  local keys = {}
  for key in world.plan.keys:gmatch("%a") do keys[#keys + 1] = key end
  local slot, masters = set:slot(keys[fault.number % #keys + 1]), set:masters()
  local to = masters[fault.number % #masters + 1]
  return to ~= set:owner(slot) and set:begin_move(slot, to)
end

local function finish_move(_, move) move:finish() end

on_set("move_slot", begin_move, finish_move)
-- All keys are on the new node, but the slot is not yet.
on_set("drain_slot", function(set, fault, world)
  local move = begin_move(set, fault, world)
  process.wait_until(function() return not move or move:carry() == 0 end)
  return move
end, finish_move)
local function wait_promoted(_, replica)
  return process.wait_until(function() return replica:cli("ROLE")[1] == "master" end, PROMOTION)
end

on_set("promote", function(set, fault)
  local master = set:masters()[fault.number % #set:masters() + 1]
  local replica = set:replicas_of(master)[1]
  return replica and replica:cli("CLUSTER", "FAILOVER") == "OK" and replica
end, wait_promoted)

local function oldest(masters, chain)
  for i = 1, #chain - 1 do
    for _, master in ipairs(masters) do
      if master.program == chain[i].path then return master, chain[i + 1].path end
    end
  end
end

-- Upgrades a replica to the next version, which takes over; then upgrades its old master.
on_set("upgrade_pair", function(set, _, world)
  local master, program = oldest(set:masters(), world.plan.chain)
  local replica = master and set:is_ok() and set:replicas_of(master)[1]
  if not replica then return nil end
  relaunch(replica, program)
  set:wait_settled()
  process.wait_until(function() return replica:cli("CLUSTER", "FAILOVER") == "OK" end, PROMOTION)
  wait_promoted(set, replica)
  relaunch(master, program)
  set:wait_settled()
  return master
end, function() end)

-- A master dies, and a node of a different cluster gets its address. Clients that still look for
-- their keys there must not acquire them.
on_set("stranger", function(set, fault, world)
  local node = set:masters()[fault.number % #set:masters() + 1]
  if not set:is_ok() or not set:kill_in_sync(node) then return nil end
  world.stranger:cli("CONFIG", "SET", "cluster-announce-port", node.port)
  return { node = node, way = proxy.start(world.stranger.path, node.port) }
end, function(set, replaced)
  replaced.way:stop()
  replaced.node:restart(true)
  set:wait_settled() -- until all know the masters
end)

local LOSES = { flush = true, restart_empty = true }
local OF_WORKER = { stop_worker = true, kill_worker = true }
local OF_SERVER = {
  stop_server = true, pause_clients = true, kill_clients = true, kill_listeners = true,
  flush_scripts = true,
  stranger = true, move_primary = true, read_only = true, no_rights = true, new_password = true,
  no_user = true,
  clock_back = true, restart = true, flush = true, restart_empty = true,
  fail_over = true, lose_tail = true, stop_replica = true,
  move_slot = true, drain_slot = true, promote = true,
  upgrade = true, upgrade_pair = true, new_certificates = true,
}

local function target_of(world, fault)
  local server = #world.servers > 1 and "server" .. fault.server or "server"
  if OF_SERVER[fault.what] then return server end
  local worker = fault.name
  return OF_WORKER[fault.what] and worker or ("%s-%s"):format(worker, server)
end

-- Records a fault for the history. A loss of data is an operation on every key.
local function note(world, fault)
  world.faults[#world.faults + 1] = {
    what = LOSES[fault.what] and world.plan.kind == "loses" and "forget" or "fault",
    stopped = fault.stopped, -- the worker
    how = fault.what, by = "faults",
    start = fault.from, stop = sys.now(), place = target_of(world, fault), number = 0,
  }
end

-- Carries out the schedule, and returns when the last fault has ended.
function nemesis.run(world, schedule)
  local begun, ends, at = sys.now(), {}, 1
  while at <= #schedule or #ends > 0 do
    table.sort(ends, function(a, b) return a.ends < b.ends end)
    local fault, is_end = schedule[at], false
    if ends[1] and (not fault or ends[1].ends <= begun + fault.at) then
      fault, is_end = ends[1], true
    end
    process.sleep(math.max(0, (is_end and fault.ends or begun + fault.at) - sys.now()))
    if is_end then
      table.remove(ends, 1)
      finish[fault.what](world, fault)
      note(world, fault)
    else
      at = at + 1
      fault.from, fault.name = sys.now(), world.workers[fault.worker].name
      fault.ends = fault.from + fault.seconds
      local skipped = begin[fault.what](world, fault)
      if not skipped then ends[#ends + 1] = fault end
    end
  end
end

return nemesis
