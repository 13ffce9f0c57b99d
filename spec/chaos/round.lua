-- A round of a chaos run: a new server, workers behind proxies, faults, a quiet time, and the
-- verdict.
--
-- The seed determines a round, but not the scheduling by the operating system, so a seed that
-- failed may have to be repeated.

local java = require "spec.support.java"
local process = require "spec.support.process"
local cluster = require "spec.support.cluster"
local redis = require "spec.support.redis"
local sentinel = require "spec.support.sentinel"
local sys = require "spec.support.sys"
local leftovers = require "spec.support.leftovers"
local versions = require "spec.support.servers"
local checker = require "spec.chaos.checker"
local Certificates = require "spec.chaos.certificates"
local history = require "spec.chaos.history"
local kinds_checker = require "spec.chaos.kinds_checker"
local nemesis = require "spec.chaos.nemesis"
local proxy = require "spec.chaos.proxy"
local Prng = require "spec.sim.prng"

-- Seconds between the last fault and the end of the programs. A client that closes while no server
-- replies cannot delete its name.
local QUIET, PROMOTION = 0.8, 6
local END_TIMEOUT = 20  -- seconds for the workers to end
local LITTER_TIMEOUT = 12 -- seconds; longer than a killed process may count as waiting
local FREE_TIMEOUT = 10 -- seconds for another client to acquire each lock at the end

local World = {}
World.__index = World

local round = {}

-- The kinds of rounds, chosen by seed:
--   one        one server
--   shared     one server, and an owner that all processes share
--   loses      one server that loses its data, and whose locks are force-released
--   minority   a quorum with all faults in a minority, so that nobody may notice them
--   network    a quorum whose connections all have faults
--   sentinel   a master with a replica under Sentinels; a hold counts when the replica has it
--   cluster    a cluster whose slots and masters move
--   kinds      one server with other kinds of locks
-- and only on request:
--   redisson   one server, which processes with Redisson use, too
--   moving     one server whose role, rights, user, password, certificates and version change
--   slots      a cluster with slots between two nodes for seconds, and no other faults
--   upgrade    a cluster that is upgraded, pair by pair
local KINDS = { "shared", "loses", "minority", "one", "network", "sentinel", "cluster", "kinds" }

-- Faults that are possible without proxies between workers and servers.
local WITHOUT_PROXIES = {
  "stop_worker", "kill_worker", "kill_clients", "kill_listeners", "flush_scripts", "pause_clients",
}
-- No process is stopped or killed here: it could rightly lose its lock, and then a run may happen
-- twice.
local MOVING = {
  "cut_network", "cut_up", "cut_down", "lose_up", "lose_down", "delay", "cut_reply", "cut_request",
  "reset", "refuse", "late", "kill_clients", "kill_listeners", "flush_scripts", "restart",
}
local FAILOVER = 8 -- additional seconds of rounds with Sentinels
local JAVA_WORKER = "ChaosWorker"
local JAVA_STARTS = 4 -- additional seconds of rounds with Java processes
local DRAINS = 6 -- additional seconds of rounds with slots
local UPGRADES = 10 -- additional seconds of rounds with upgrades of a cluster
local MOVES, QUIET_AFTER_MOVES = 4, 6 -- seconds
local CROWDS = 4 -- processes with a loop
local PAIRS = 10 -- tasks of each, which share a key with a task of another process
local LONGEST_LEASE = 1.5 -- in spec/chaos/kinds_worker.lua
local GOODBYE = 1 -- seconds that closing a client waits until its name is deleted

local start = {}

function start.sentinel(self)
  self.set = sentinel.start()
  self.servers = self.set.nodes
end

function start.cluster(self)
  self.set = cluster.start { node_timeout = 5000 } -- a slow node must not count as down
  self.stranger = cluster.stranger()
  self.servers = self.set.nodes
end

start.slots = start.cluster

function start.upgrade(self)
  self.set = cluster.start { node_timeout = 5000, program = self.plan.chain[1].path }
  self.stranger = cluster.stranger()
  self.servers = self.set.nodes
end

-- → list of versions, beginning with the first one, or with that of the servers started by default
local function chain_of(prng, from_first)
  local chain = versions.chain(prng:pick { "redis", "valkey" })
  while not from_first and chain[1] and not redis.is_default(chain[1].path) do
    table.remove(chain, 1)
  end
  return chain
end

-- `options`: { seconds = duration of the faults, mutant, faults = the only ones, kind, keep }; all
-- except `seconds` are for mutants
function round.plan(seed, options)
  local prng = Prng.new(seed)
  local kind = options.kind or KINDS[(seed - 1) % #KINDS + 1]
  local quorum = kind == "minority" or kind == "network"
  local plan = {
    seed = seed, kind = kind, quorum = quorum, seconds = options.seconds,
    workers = prng:range(3, 4),
    keys = prng:pick { "a", "a,b", "a,b,m", "a,m" }, shared = kind == "shared",
      lossy = kind == "loses",
    grant = prng:pick { 0.3, 0.6, 2 }, timeout = prng:pick { 0.3, 0.8 }, servers = quorum
      and prng:pick { 3, 5 } or 1,
    mutant = options.mutant, faults = options.faults, keep = options.keep or 8,
    quiet = kind == "sentinel" and PROMOTION or QUIET,
  }
  if start[kind] then
    plan.servers = kind == "sentinel" and 2 or 6
    plan.timeout = 0.8
    plan.faults = options.faults or WITHOUT_PROXIES
    if kind == "sentinel" then plan.seconds = options.seconds + FAILOVER end
    if kind == "upgrade" then
      plan.seconds, plan.chain = options.seconds + UPGRADES, chain_of(prng, true)
    elseif kind == "slots" then
      plan.seconds, plan.faults, plan.keep = options.seconds + DRAINS, {}, 60
    end
  end
  plan.faulty = kind == "minority" and (plan.servers - 1) / 2 or plan.servers
  if kind == "minority" then plan.timeout = 2 end
  if kind == "redisson" then
    plan.workers, plan.theirs, plan.keys = 4, 2, prng:pick { "a", "a,b" }
    plan.seconds, plan.timeout = options.seconds + JAVA_STARTS, 0.8
  end
  if kind == "kinds" or kind == "moving" then
    plan.keys, plan.permits, plan.latch = "", prng:range(2, 3), prng:range(4, 25)
  end
  if kind == "moving" then
    plan.crowds, plan.workers = CROWDS, prng:range(6, 8) + CROWDS
    plan.faults, plan.user = options.faults or MOVING, true
    plan.tls, plan.chain = prng:chance(50), chain_of(prng)
    -- with a shorter timeout, reconnects alone would keep a slow machine busy
    plan.timeout = prng:pick { 0.8, 1.5 }
    plan.seconds, plan.quiet = options.seconds + MOVES, QUIET_AFTER_MOVES
    plan.grant = math.min(plan.grant, 0.6)
  end
  return plan
end

local function versions_of(plan)
  if not plan.chain[2] then return "NO UPGRADE: no server of a later version is here" end
  local names = {}
  for i = 1, plan.kind == "moving" and 2 or #plan.chain do
    names[i] = ("%s %s"):format(plan.chain[i].family, plan.chain[i].version)
  end
  return "from " .. table.concat(names, " to ")
end

function round.describe(plan)
  return ("seed %d: %s, %d of %d servers, %d workers, keys %s, grant lease %g s, timeout %g s%s%s%s"):format(plan.seed,
    plan.kind, plan.faulty, plan.servers, plan.workers,
    plan.permits and "of kinds" or plan.keys .. (plan.shared and ",s" or ""),
    plan.grant,
    plan.timeout, plan.tls and ", TLS" or "", plan.chain and ", " .. versions_of(plan) or "",
    plan.mutant and ", with " .. plan.mutant or "")
end

-- ---- the world ----

local function build_path(plan)
  local flavour = process.flavour
  local own = ("%s/%s/?.so;;"):format(process.build, flavour)
  return plan.mutant and ("%s/sim/%s/?.so;%s"):format(process.build, flavour, own) or own
end

local function urls_of(proxies, login, tls)
  local urls = {}
  for i, each in ipairs(proxies) do
    urls[i] = each.url:gsub("^redis://", (tls and "rediss://" or "redis://") .. login)
  end
  return table.concat(urls, ",")
end

local function login_of(plan)
  return plan.user and ("%s:%s@"):format(nemesis.USER, nemesis.PASSWORD) or ""
end

function World:url_of(place)
  if self.set then return "url=" .. self.set:url() end
  return "urls=" .. urls_of(self.proxies[place], login_of(self.plan), self.plan.tls)
end

local function start_ours(plan, args)
  for _, name in ipairs { "grant", "keep", "kind", "permits", "mutant" } do
    args[#args + 1] = plan[name] and ("%s=%s"):format(name, plan[name]) or nil
  end
  return process.lua {
    file = plan.permits and "spec/chaos/kinds_worker.lua" or "spec/chaos/worker.lua",
    env = { LUA_CPATH = build_path(plan) }, args = args,
  }
end

-- The last places belong to Redisson.
function World:start_worker(place)
  self.started = self.started + 1
  local name, plan = "w" .. self.started, self.plan
  local path = self.directory .. "/" .. name
  local is_theirs = place > plan.workers - (plan.theirs or 0)
  local args = {
    "name=" .. name, "seed=" .. plan.seed * 100 + self.started, "file=" .. path, self:url_of(place),
    "store=" .. (is_theirs and self.store.port or self.store.path),
    ("stop=%.6f"):format(self.stop), "keys=" .. plan.keys, "timeout=" .. plan.timeout,
  }
  if plan.tls then args[#args + 1] = "certificates=" .. self.certificates.directory end
  if place <= (plan.crowds or 0) then
    args[#args + 1] = ("loop=%d"):format(place)
    args[#args + 1] = ("pairs=%d"):format(PAIRS)
  end
  self.paths[#self.paths + 1] = path
  self.theirs[name] = is_theirs
  self.workers[place] = {
    name = name, process = is_theirs and java.start(JAVA_WORKER, args) or start_ours(plan, args),
  }
end

function World:kill_worker(place) self.workers[place].process:stop() end

-- Makes these servers look long known to clients, so that they have a vote at once despite
-- restart_guard.
local function look_known(servers)
  for _, server in ipairs(servers) do
    server:cli("SET", "holdfast_known", server:cli("INFO", "server"):match("run_id:(%w+)"))
  end
end

-- Starts a primary that moves, and its replica; for clients both are the same server.
local function start_moving(self)
  if self.plan.tls then self.certificates = Certificates.new() end
  local options = { persist = true, tcp = true, conf = { "appendfsync no" },
    tls = self.certificates and self.certificates:of_server(),
    users = { ("%s on >%s ~* &* +@all"):format(nemesis.USER, nemesis.PASSWORD) } }
  self.servers[1] = redis.start(options)
  options.replica_of = self.servers[1]
  self.spare = redis.start(options)
end

local function start_behind_proxies(self)
  if self.plan.user then start_moving(self) end
  for i = #self.servers + 1, self.plan.servers do
    self.servers[i] = redis.start { persist = true, clock = true, conf = { "appendfsync no" } }
  end
  for i = 1, self.plan.workers do
    self.proxies[i] = {}
    for j, server in ipairs(self.servers) do
      self.proxies[i][j] = proxy.start(server.tls_port or server.path)
    end
  end
end

local function open(plan)
  local self = setmetatable({
    plan = plan, directory = process.directory(), paths = {}, workers = {}, proxies = {},
    servers = {}, faults = {}, theirs = {},
    busy = {}, started = 0, store = redis.start { tcp = plan.theirs ~= nil },
  }, World)
  if start[plan.kind] then start[plan.kind](self) else start_behind_proxies(self) end
  if plan.kind == "minority" then look_known(self.servers) end
  if plan.latch then self.servers[1]:cli("MSET", "gate", plan.latch, "places", plan.permits) end
  self.stop = sys.now() + plan.seconds + plan.quiet
  for i = 1, plan.workers do self:start_worker(i) end
  return self
end

local function close(self)
  for _, each in pairs(self.workers) do each.process:stop() end
  for _, list in ipairs(self.proxies) do
    for _, each in ipairs(list) do each:stop() end
  end
  if self.set then self.set:stop() end
  for _, each in ipairs(self.set and {} or self.servers) do each:stop() end
  for _, name in ipairs { "spare", "stranger", "certificates" } do
    if self[name] then self[name]:stop() end
  end
  self.store:stop()
  process.remove(self.directory)
end

-- ---- the end ----

-- → list of problems, set of the names of workers that ended by themselves
local function await_workers(self)
  local problems, finished, deadline = {}, {}, sys.now() + self.plan.quiet + END_TIMEOUT
  for _, worker in pairs(self.workers) do
    local how, code = worker.process:wait(math.max(0, deadline - sys.now()))
    if how == "exit" and code == 0 then
      finished[worker.name] = true
    else
      problems[#problems + 1] = {
        rule = how and "died" or "end", at = sys.now(),
        text = ("%s did not come to its end (%s %s): %s"):format(worker.name, how, code,
          worker.process:output()),
      }
      worker.process:stop()
    end
  end
  return problems, finished
end

-- Returns the servers to check; a replica has the same data as its master.
local function masters_of(self)
  if self.plan.kind == "sentinel" then return { self.set:master() } end
  return self.set and self.set:masters() or self.servers
end

local function check_kinds_quiet(plan, client, problem)
  for name, lock in pairs {
    rw = client:read_write_lock("rw"):write(), fair = client:fair_lock "fair",
    boss = client:lock "boss", own = client:lock "own",
  } do
    local held, message = lock:acquire(FREE_TIMEOUT)
    if held then lock:release() else problem(name .. " cannot be had: " .. message) end
  end
  local permit, message = client:semaphore("pool", { permits = plan.permits }):acquire(plan.permits,
    FREE_TIMEOUT)
  if permit then permit:release() else problem("permits cannot be had: " .. message) end
  local deleted, why = client:latch("gate"):delete()
  if deleted == nil then problem("the latch cannot be deleted: " .. why) end
end

local function forget(server, pattern)
  for _, key in ipairs(server:cli("KEYS", pattern)) do server:cli("DEL", key) end
end

-- Returns whether a closing client got no reply in time, so that its name has to expire.
local function was_end_late(self, ops)
  for _, op in ipairs(ops) do
    local took = op.what == "end" and op.stop - op.start or 0
    if took >= math.min(self.plan.timeout, GOODBYE) then return true end
  end
end

-- A client notices a half-open connection within QUIET_AFTER_MOVES, and then the server does, too.
-- If the programs end earlier, the server's keepalive has to end the connection.
local function end_half_open(self)
  if self.plan.quiet >= QUIET_AFTER_MOVES then return end
  for _, list in ipairs(self.proxies) do
    for _, each in ipairs(list) do each:tell("keepalive") end
  end
end

-- Checks that another client can soon acquire every lock, and that nothing is left afterwards.
local function check_quiet(self, problems, ops)
  end_half_open(self)
  if self.set then self.set:wait_settled() end
  local urls = {}
  for i, server in ipairs(self.servers) do urls[i] = server:url() end
  local client = require("holdfast").new(self.set and self.set:url()
    or #urls > 1 and { servers = urls, mode = "quorum" } or urls[1])
  local function problem(text)
    problems[#problems + 1] = { rule = "left", at = sys.now(), text = text }
  end
  if self.plan.permits then check_kinds_quiet(self.plan, client, problem) end
  for key in (self.plan.keys .. (self.plan.shared and ",s" or "")):gmatch("%a+") do
    local lock = (key == "m" and client.mutex or client.lock)(client, key)
    local ok, message = lock:acquire(FREE_TIMEOUT)
    if ok then lock:release() else problem(key .. " cannot be had: " .. message) end
  end
  client:close()
  if self.plan.permits then self.servers[1]:cli("DEL", "pool", "places") end
  if self.plan.user then forget(self.servers[1], "once*") end
  if self.plan.user and was_end_late(self, ops) then forget(self.servers[1], "holdfast_client:*") end
  for i, server in ipairs(masters_of(self)) do
    local litter = leftovers.on(server, self.set ~= nil, LITTER_TIMEOUT)
    if litter then problem(("server %d: %s"):format(i, litter)) end
  end
end

-- Resets the servers' clocks, so that what killed processes have left expires.
local function set_clocks_right(self)
  for _, server in ipairs(self.servers) do
    if server.behind then server:set_clock(0) end
  end
end

-- Reads the plain semaphore after all processes have ended.
local function free_places(self)
  local left, now = self.servers[1]:cli("GET", "places"), sys.now()
  return { what = "free", key = "places", by = "server", owner = "server", left = left, start = now,
    stop = now }
end

local function pauses_of(self)
  local pauses = {}
  for _, fault in ipairs(self.faults) do
    if fault.stopped then
      local name = fault.stopped.name
      pauses[name] = pauses[name] or {}
      table.insert(pauses[name], { from = fault.start, to = fault.stop })
    end
  end
  return pauses
end

-- Hides the keys, for kinds with rules of their own: only the rule about time applies to all.
local function without_keys(ops)
  local list = {}
  for i, op in ipairs(ops) do list[i] = setmetatable({ key = false }, { __index = op }) end
  return list
end

-- → nil, or why rounds of this kind cannot run here
function round.missing(kind)
  if kind == "upgrade" and not versions.chain("valkey")[2] and not versions.chain("redis")[2] then
    return "no two versions of the server are here: tools/servers get DIRECTORY, then set HOLDFAST_SERVERS_DIR"
  end
  if kind ~= "redisson" or java.has(JAVA_WORKER) then return nil end
  return "Redisson is not here: run spec/interop/build_java (it needs a JDK and Maven)"
end

-- → list of problems, like those of checker.check; all operations, sorted by time
function round.run(plan)
  local self = open(plan)
  nemesis.run(self, nemesis.schedule(plan))
  local faults_end = sys.now()
  local problems, finished = await_workers(self)
  set_clocks_right(self)
  local free = plan.permits and free_places(self)
  local ops = history.read(self.paths)
  check_quiet(self, problems, ops)
  for _, fault in ipairs(self.faults) do ops[#ops + 1] = fault end
  table.sort(ops, function(a, b) return a.start < b.start end)
  ops[#ops + 1] = free
  for number, op in ipairs(ops) do op.number, op.theirs = number, self.theirs[op.by] end
  local found = checker.check {
    ops = plan.permits and without_keys(ops) or ops,
    log = self.store:cli("LRANGE", "log", 0, -1), grant = plan.grant, timeout = plan.timeout,
    pauses = pauses_of(self), finished = finished, unnoticed = plan.kind == "minority",
    kept = plan.kind == "slots", reports = plan.quorum,
  }
  for _, each in ipairs(found) do problems[#problems + 1] = each end
  if plan.permits then
    local wrong = kinds_checker.check {
      ops = ops, permits = plan.permits, latch = plan.latch, timeout = plan.timeout,
      whole = plan.user and { from = faults_end + LONGEST_LEASE + plan.grant, grant = plan.grant,
        lease = LONGEST_LEASE, timeout = plan.timeout },
    }
    for _, each in ipairs(wrong) do problems[#problems + 1] = each end
  end
  close(self)
  return problems, ops
end

return round
