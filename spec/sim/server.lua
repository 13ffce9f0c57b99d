-- A server of a schedule: the small Redis with its own clock, and what may happen to it.

local Prng = require "spec.sim.prng"
local Redis = require "holdfast.testing.redis"
local programs = require "spec.sim.programs"
local rotation = require "spec.sim.rotation"
local rules = require "spec.sim.rules"
local sha1 = require("holdfast.core").sha1
local wire = require "spec.sim.wire"

local EPOCH_US = 1700000000000000
-- by its own clock it has been up for a day, even if it has just started
local AGE_US = 86400000000

local Server = {}
Server.__index = Server

local shas, names, sha_of = {}, {}, {}
for name, text in pairs(programs) do
  shas[name] = sha1(text)
  names[shas[name]] = name
  sha_of[text] = shas[name]
end

local function load(server, text)
  local sha = server.admin:call { "SCRIPT", "LOAD", text }
  return type(sha) == "string" and sha or error(sha.err)
end

-- Compiles all programs, as the server must have compiled each script once; all servers of this
-- process share that.
local function compile_all(server)
  local sorted = {}
  for name in pairs(programs) do sorted[#sorted + 1] = name end
  table.sort(sorted)
  for _, name in ipairs(sorted) do load(server, programs[name]) end
  compile_all = function() end
end

-- index: its number, from 1. options: rate of its clock, which is `offset` microseconds ahead at
-- first; gather: for how many microseconds it gathers what arrives, to run it with io-threads, 0:
-- none; distance: by how many microseconds each message to or from it takes longer; seed; patched:
-- program name → text that the server runs instead; rotates: it has a password, see rotation.lua.
function Server.new(world, index, options)
  local self
  self = setmetatable({
    world = world, index = index, rate = options.rate, distance = options.distance or 0,
    epoch = EPOCH_US + options.offset,
    patched = {},
    down_until = 0, paused_until = 0, refuses_until = 0, refused_for = 0,
    gather = options.gather, gathered = {},
    prng = Prng.new(options.seed),
  }, Server)
  self.redis = Redis.new { now = function() return self.epoch + world.now * self.rate end }
  self.admin = self.redis:connect(function() end)
  self:look_old()
  -- clients have used it before
  self.admin:call { "SET", "holdfast_known", self.redis:info():match("run_id:(%w+)") }
  compile_all(self)
  for name, text in pairs(options.patched or {}) do
    self.patched[name] = { text = text, sha = load(self, text) }
  end
  self.redis.scripts = {}
  if options.rotates then rotation.begin(self, options.rotates) end
  self.db = self.redis:database(0)
  self.redis.replaced.evalsha = function(run, client, args)
    return self:run(run, client, args, args[2])
  end
  self.redis.replaced.eval = function(run, client, args)
    return self:run(run, client, args, sha_of[args[2]])
  end
  return self
end

-- Makes the server know all programs, as if they had been sent before.
function Server:load_programs()
  for _, sha in pairs(shas) do self.redis.scripts[sha] = true end
end

-- → the moment in simulated time of a time of the server's clock in ms
function Server:moment(ms)
  return (ms * 1000 - self.epoch) / self.rate
end

-- → the program's arguments, with the patched text in place of its own
local function patch_in(self, name, sha, args)
  local patch, scripts = self.patched[name], self.redis.scripts
  if not patch then return end
  if args[2] ~= sha then
    args[2] = patch.text
    scripts[sha] = true
  elseif scripts[sha] then
    args[2] = patch.sha
    scripts[patch.sha] = true
  end
end

function Server:run(run, client, args, sha)
  local name, watcher = names[sha], self.watcher
  patch_in(self, name, sha, args)
  if not (watcher and name) then return run(client, args) end
  watcher:before(name, client, args, self)
  local newcomer = rules.newcomer(self, name, args)
  local reply = run(client, args)
  local full = wire.spelled_out(name, reply)
  if self.world.coverage then self.world.coverage.program(client.process, name, full) end
  if newcomer then rules.check_place(self, args, newcomer) end
  watcher:after(name, client, args, full, self)
  return reply
end

-- ---- io-threads ----

-- Runs what was gathered: commands of one connection stay in order, the connections do not.
local function run_gathered(self)
  local gathered = self.gathered
  self.gathered = {}
  while #gathered > 0 do
    local batch = table.remove(gathered, self.prng:range(1, #gathered))
    for _, item in ipairs(batch) do item.run(batch.connection, item.argument) end
  end
end

function Server:gather_in(connection, item)
  local gathered = self.gathered
  if #gathered == 0 then self.world:at(self.world.now + self.gather, run_gathered, self) end
  for _, batch in ipairs(gathered) do
    if batch.connection == connection then
      batch[#batch + 1] = item
      return
    end
  end
  gathered[#gathered + 1] = { connection = connection, item }
end

-- Runs a command of an administrator, which is never refused.
function Server:command(...)
  local faults = self.redis.faults
  self.redis.faults = { deny = {} }
  local reply = self.admin:call { ... }
  self.redis.faults = faults
  assert(type(reply) ~= "table" or not reply.err, reply and type(reply) == "table" and reply.err)
  return reply
end

local REFUSALS = {
  oom = { oom = true }, loading = { loading = true }, busy = { busy = true },
  readonly = { readonly = true },
  misconf = { misconf = true }, noreplicas = { noreplicas = true },
  nochannel = { deny_channels = true },
  noperm = { deny = { eval = true, evalsha = true } },
  noauth = { noauth = true },
}
Server.refusals = REFUSALS

local function stop_refusing(self)
  if self.world.now < self.refuses_until then return end
  self.redis.faults = { deny = {} }
end

-- The server replies with an error of this kind; the last call counts.
function Server:refuse(kind, duration)
  local faults = { deny = {} }
  for name, value in pairs(REFUSALS[kind]) do faults[name] = value end
  self.redis.faults, self.refuses_until = faults, self.world.now + duration
  self.refused_for = duration
  self.world:at(self.refuses_until, stop_refusing, self)
end

-- Makes it look as if its clock was set after it had started.
function Server:look_old()
  self.redis.started_us = self.redis.now_us - AGE_US
end

function Server:restart(keep_data, down_us)
  self.redis:restart { keep_data = keep_data }
  self:look_old()
  self.db = self.redis:database(0)
  self.down_until = self.world.now + down_us
  self.admin = self.redis:connect(function() end)
  self.admin.authenticated = true
end

return Server
