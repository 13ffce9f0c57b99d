-- One round of a chaos run: a fresh server, workers behind proxies, faults, quiet, and the verdict.
--
-- What a round is follows from its seed; what the operating system makes of it does not, so a seed
-- that failed once may have to be repeated.

local java = require "spec.support.java"
local process = require "spec.support.process"
local cluster = require "spec.support.cluster"
local redis = require "spec.support.redis"
local sentinel = require "spec.support.sentinel"
local sys = require "spec.support.sys"
local crowd = require "spec.support.crowd"
local versions = require "spec.support.servers"
local checker = require "spec.chaos.checker"
local Certificates = require "spec.chaos.certificates"
local history = require "spec.chaos.history"
local kinds_checker = require "spec.chaos.kinds_checker"
local nemesis = require "spec.chaos.nemesis"
local proxy = require "spec.chaos.proxy"
local Prng = require "spec.sim.prng"

-- Seconds between the last fault and the end of the programs. Whoever closes while nobody serves
-- cannot take its name back.
local QUIET, PROMOTION = 0.8, 6
local END_TIMEOUT = 20  -- for the workers to end
local LITTER_TIMEOUT = 12 -- longer than a killed process seems to wait
local FREE_TIMEOUT = 10 -- for each lock to be had by somebody else, after all is over

local World = {}
World.__index = World

local round = {}

-- The kinds of rounds, by seed: "one" server; the same with an owner that all processes "share";
-- one that "loses" its data and whose locks are forced; a quorum whose "minority" suffers all
-- faults, of which nobody may notice anything; a quorum behind a "network" that cuts anything from
-- anything; a master with a replica under Sentinels, where a hold counts when the replica has it; a
-- cluster whose slots and masters move; one server with other "kinds" of locks. Only where they are
-- asked for: one server and processes of "redisson" beside ours; one server whose role, rights, user,
-- password, certificates and version are "moving"; a cluster whose "slots" are between two nodes for
-- seconds, where nothing else goes wrong; an "upgrade" of a cluster, pair by pair.
local KINDS = {
  "shared", "loses", "minority", "one", "network", "sentinel", "cluster", "kinds",
}

-- What can go wrong where workers and servers have no proxy between them.
local WITHOUT_PROXIES = {
  "stop_worker", "kill_worker", "kill_clients", "kill_listeners", "flush_scripts", "pause_clients",
}
-- A process that is stopped or killed may rightly lose a lock, and then a run may happen twice.
local MOVING = {
  "cut_network", "cut_up", "cut_down", "lose_up", "lose_down", "delay", "cut_reply", "cut_request",
  "reset", "refuse", "late", "kill_clients", "kill_listeners", "flush_scripts", "restart",
}
local FAILOVER = 8 -- seconds that Sentinels have more
local JAVA_WORKER = "ChaosWorker"
local JAVA_STARTS = 4 -- seconds that processes of Java have more
local DRAINS = 6 -- seconds that slots have more
local UPGRADES = 10 -- seconds that upgrades of a cluster have more
local MOVES, QUIET_AFTER_MOVES = 4, 6 -- seconds
local CROWDS = 4 -- processes with a loop
local PAIRS = 10 -- tasks of each, which share a key with a task of another one
local LONGEST_LEASE = 1.5 -- of spec/chaos/kinds_worker.lua
local GOODBYE = 1 -- seconds for which a client that is closed waits for the end of its name

local start = {}

function start.sentinel(self)
  self.set = sentinel.start()
  self.servers = self.set.nodes
end

function start.cluster(self)
  self.set = cluster.start { node_timeout = 5000 } -- a node that is slow is not gone
  self.stranger = cluster.stranger()
  self.servers = self.set.nodes
end

start.slots = start.cluster

function start.upgrade(self)
  self.set = cluster.start { node_timeout = 5000, program = self.plan.chain[1].path }
  self.stranger = cluster.stranger()
  self.servers = self.set.nodes
end

-- From the first version on, or from that of the servers that are started. → list of versions
local function chain_of(prng, from_first)
  local chain = versions.chain(prng:pick { "redis", "valkey" })
  while not from_first and chain[1] and not redis.is_default(chain[1].path) do
    table.remove(chain, 1)
  end
  return chain
end

-- options: { seconds = of faults, mutant, faults = the only ones, kind, keep }; all but the first
-- for mutants
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
    -- With less, reconnects alone would keep a slow machine busy.
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

-- The last places are those of Redisson.
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

function World:kill_worker(place)
  self.workers[place].process:stop()
end

-- As if clients had known these servers for long: with restart_guard they have a vote at once.
local function look_known(servers)
  for _, server in ipairs(servers) do
    server:cli("SET", "holdfast_known", server:cli("INFO", "server"):match("run_id:(%w+)"))
  end
end

-- Where the primary moves there is a replica, whose server is no other one for the clients.
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

-- → list of problems, set of the names that came to their end
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

-- A replica has what its master has.
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

-- Whether a client that closed got no answer in time: then its name ends by itself.
local function was_end_late(self, ops)
  for _, op in ipairs(ops) do
    local took = op.what == "end" and op.stop - op.start or 0
    if took >= math.min(self.plan.timeout, GOODBYE) then return true end
  end
end

-- A client notices within QUIET_AFTER_MOVES that a connection is half open, and closes it at the
-- server too. If the programs end before, that is left to the server's keepalive.
local function end_half_open(self)
  if self.plan.quiet >= QUIET_AFTER_MOVES then return end
  for _, list in ipairs(self.proxies) do
    for _, each in ipairs(list) do each:tell("keepalive") end
  end
end

-- Somebody else gets every lock soon, and then nothing is left.
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
    local litter = crowd.litter(server, self.set ~= nil, LITTER_TIMEOUT)
    if litter then problem(("server %d: %s"):format(i, litter)) end
  end
end

-- Only what the dead have left still waits for its end by a clock that was set back.
local function set_clocks_right(self)
  for _, server in ipairs(self.servers) do
    if server.behind then server:set_clock(0) end
  end
end

-- What the plain semaphore says when all processes have ended.
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

-- Each has rules of its own; that every call comes back in time holds for all.
local function without_keys(ops)
  local list = {}
  for i, op in ipairs(ops) do
    list[i] = setmetatable({ key = false }, { __index = op })
  end
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

-- → list of problems as of checker.check, all operations by time
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
