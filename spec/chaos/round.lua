-- One round of a chaos run: a fresh server, workers behind proxies, faults, quiet, and the verdict.
--
-- What a round is follows from its seed; what the operating system makes of it does not, so a seed that failed once may
-- have to be repeated.

local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"
local crowd = require "spec.support.crowd"
local checker = require "spec.chaos.checker"
local history = require "spec.chaos.history"
local nemesis = require "spec.chaos.nemesis"
local proxy = require "spec.chaos.proxy"
local Prng = require "spec.sim.prng"

local GUARD = 3.1       -- seconds: a server that was up for less has no vote where there is a restart_guard of 2
local QUIET = 0.8       -- seconds between the last fault and the end of the programs
local END_TIMEOUT = 20  -- for the workers to end
local LITTER_TIMEOUT = 5
local FREE_TIMEOUT = 10 -- for each lock to be had by somebody else, after all is over

local World = {}
World.__index = World

local round = {}

-- The kinds of rounds, by seed: "one" server; the same with an owner that all processes "share"; one that "loses" its
-- data and whose locks are forced; a quorum whose "minority" suffers all faults, of which nobody may notice anything;
-- a quorum behind a "network" that cuts anything from anything.
local KINDS = { "shared", "loses", "minority", "one", "network" }

-- options: { seconds = of faults, defect, faults = the only ones, kind, keep }; all but the first for defects
function round.plan(seed, options)
  local prng = Prng.new(seed)
  local kind = options.kind or KINDS[(seed - 1) % #KINDS + 1]
  local is_quorum = kind == "minority" or kind == "network"
  local plan = {
    seed = seed, kind = kind, seconds = options.seconds, workers = prng:range(3, 4),
    keys = prng:pick { "a", "a,b", "a,b,m", "a,m" }, shared = kind == "shared", lossy = kind == "loses",
    grant = prng:pick { 0.3, 0.6, 2 }, timeout = prng:pick { 0.3, 0.8 }, servers = is_quorum and prng:pick { 3, 5 } or 1,
    defect = options.defect, faults = options.faults, keep = options.keep or 8,
  }
  plan.faulty = kind == "minority" and (plan.servers - 1) / 2 or plan.servers
  if kind == "minority" then plan.timeout = 2 end
  return plan
end

function round.describe(plan)
  return ("seed %d: %s, %d of %d servers, %d workers, keys %s, grant lease %g s, timeout %g s%s"):format(plan.seed,
    plan.kind, plan.faulty, plan.servers, plan.workers, plan.keys .. (plan.shared and ",s" or ""), plan.grant,
    plan.timeout, plan.defect and ", with " .. plan.defect or "")
end

-- ---- the world ----

local function build_path(plan)
  local flavour = process.flavour
  local own = ("%s/%s/?.so;;"):format(process.build, flavour)
  return plan.defect and ("%s/sim/%s/?.so;%s"):format(process.build, flavour, own) or own
end

local function urls_of(proxies)
  local urls = {}
  for i, each in ipairs(proxies) do urls[i] = each.url end
  return table.concat(urls, ",")
end

function World:start_worker(place)
  self.started = self.started + 1
  local name, plan = "w" .. self.started, self.plan
  local path = self.directory .. "/" .. name
  self.paths[#self.paths + 1] = path
  self.workers[place] = {
    name = name,
    process = process.lua {
      file = "spec/chaos/worker.lua", env = { LUA_CPATH = build_path(plan) },
      args = {
        "name=" .. name, "seed=" .. plan.seed * 100 + self.started, "urls=" .. urls_of(self.proxies[place]),
        "file=" .. path, "store=" .. self.store.path, ("stop=%.6f"):format(self.stop), "keys=" .. plan.keys,
        "grant=" .. plan.grant, "timeout=" .. plan.timeout, "keep=" .. plan.keep, "kind=" .. plan.kind,
        plan.defect and "defect=" .. plan.defect or nil,
      },
    },
  }
end

function World:kill_worker(place)
  self.workers[place].process:stop()
end

local function open(plan)
  local self = setmetatable({
    plan = plan, directory = process.directory(), paths = {}, workers = {}, proxies = {}, servers = {}, faults = {},
    busy = {}, started = 0, store = redis.start(),
  }, World)
  for i = 1, plan.servers do self.servers[i] = redis.start { persist = true, conf = { "appendfsync no" } } end
  for i = 1, plan.workers do
    self.proxies[i] = {}
    for j, server in ipairs(self.servers) do self.proxies[i][j] = proxy.start(server.path) end
  end
  if plan.kind == "minority" then process.sleep(GUARD) end
  self.stop = sys.now() + plan.seconds + QUIET
  for i = 1, plan.workers do self:start_worker(i) end
  return self
end

local function close(self)
  for _, each in pairs(self.workers) do each.process:stop() end
  for _, list in ipairs(self.proxies) do
    for _, each in ipairs(list) do each:stop() end
  end
  for _, each in ipairs(self.servers) do each:stop() end
  self.store:stop()
  process.remove(self.directory)
end

-- ---- the end ----

-- → list of problems, set of the names that came to their end
local function await_workers(self)
  local problems, finished, deadline = {}, {}, sys.now() + QUIET + END_TIMEOUT
  for _, worker in pairs(self.workers) do
    local how, code = worker.process:wait(math.max(0, deadline - sys.now()))
    if how == "exit" and code == 0 then
      finished[worker.name] = true
    else
      problems[#problems + 1] = {
        rule = how and "died" or "end", at = sys.now(),
        text = ("%s did not come to its end (%s %s): %s"):format(worker.name, how, code, worker.process:output()),
      }
      worker.process:stop()
    end
  end
  return problems, finished
end

-- Somebody else gets every lock soon, and then nothing is left.
local function check_quiet(self, problems)
  local urls = {}
  for i, server in ipairs(self.servers) do urls[i] = server:url() end
  local client = require("holdfast").new(#urls > 1 and { servers = urls, mode = "quorum" } or urls[1])
  local function problem(text) problems[#problems + 1] = { rule = "left", at = sys.now(), text = text } end
  for key in (self.plan.keys .. (self.plan.shared and ",s" or "")):gmatch("%a+") do
    local lock = (key == "m" and client.mutex or client.lock)(client, key)
    local ok, message = lock:acquire(FREE_TIMEOUT)
    if ok then lock:release() else problem(key .. " cannot be had: " .. message) end
  end
  client:close()
  for i, server in ipairs(self.servers) do
    process.wait_until(function() return not crowd.litter(server) end, LITTER_TIMEOUT)
    local litter = crowd.litter(server)
    if litter then problem(("server %d: %s"):format(i, litter)) end
  end
end

local function pauses_of(self)
  local pauses = {}
  for _, fault in ipairs(self.faults) do
    if fault.how == "stop_worker" then
      for _, path in ipairs(self.paths) do
        local name = path:match("%w+$")
        pauses[name] = pauses[name] or {}
        table.insert(pauses[name], { from = fault.start, to = fault.stop })
      end
    end
  end
  return pauses
end

-- → list of problems as of checker.check, all operations by time
function round.run(plan)
  local self = open(plan)
  nemesis.run(self, nemesis.schedule(plan))
  local problems, finished = await_workers(self)
  check_quiet(self, problems)
  local ops = history.read(self.paths)
  for _, fault in ipairs(self.faults) do ops[#ops + 1] = fault end
  table.sort(ops, function(a, b) return a.start < b.start end)
  for number, op in ipairs(ops) do op.number = number end
  local found = checker.check {
    ops = ops, log = self.store:cli("LRANGE", "log", 0, -1), grant = plan.grant, timeout = plan.timeout,
    pauses = pauses_of(self), finished = finished, unnoticed = plan.kind == "minority",
  }
  for _, each in ipairs(found) do problems[#problems + 1] = each end
  close(self)
  return problems, ops
end

return round
