-- A server of a schedule: the small Redis with a clock of its own, and what may happen to it.

local Redis = require "spec.sim.redis"
local programs = require "spec.sim.programs"
local sha1 = require "spec.sim.sha1"

local EPOCH_US = 1700000000000000
local AGE_US = 86400000000 -- it has been up for a day

local Server = {}
Server.__index = Server

local shas, names, sha_of = {}, {}, {}
for name, text in pairs(programs) do
  shas[name] = sha1(text)
  names[shas[name]] = name
  sha_of[text] = shas[name]
end

local function load(server, text)
  return server.admin:call { "SCRIPT", "LOAD", text }
end

-- The server must have compiled a script once; all servers of the process share that.
local function compile_all(server)
  for _, text in pairs(programs) do load(server, text) end
  compile_all = function() end
end

-- index: its number, from 1. rate: of its clock, which is `offset` microseconds ahead at first. patched: program name
-- → text that the server runs instead.
function Server.new(world, index, rate, offset, patched)
  local self
  self = setmetatable({
    world = world, index = index, rate = rate, epoch = EPOCH_US + offset, patched = {},
    down_until = 0, paused_until = 0, refuses_until = 0,
  }, Server)
  self.redis = Redis.new { now = function() return self.epoch + world.now * rate end }
  self.redis.started_us = self.redis.started_us - AGE_US
  self.admin = self.redis:connect(function() end)
  compile_all(self)
  for name, text in pairs(patched or {}) do self.patched[name] = { text = text, sha = load(self, text) } end
  self.redis.scripts = {}
  self.db = self.redis:database(0)
  self.redis.defects.evalsha = function(run, client, args) return self:run(run, client, args, args[2]) end
  self.redis.defects.eval = function(run, client, args) return self:run(run, client, args, sha_of[args[2]]) end
  return self
end

-- As if all programs had been sent before.
function Server:load_programs()
  for _, sha in pairs(shas) do self.redis.scripts[sha] = true end
end

-- In simulated time: the moment of a time of the server's clock in ms.
function Server:moment(ms)
  return (ms * 1000 - self.epoch) / self.rate
end

-- The program's arguments, with the patched text in its place.
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
  local reply = run(client, args)
  watcher:after(name, client, args, reply, self)
  return reply
end

-- A command by an administrator, who is never refused.
function Server:command(...)
  local faults = self.redis.faults
  self.redis.faults = { deny = {} }
  local reply = self.admin:call { ... }
  self.redis.faults = faults
  assert(type(reply) ~= "table" or not reply.err, reply and type(reply) == "table" and reply.err)
  return reply
end

local REFUSALS = {
  oom = { oom = true }, loading = { loading = true }, busy = { busy = true }, readonly = { readonly = true },
  misconf = { misconf = true }, nochannel = { deny_channels = true },
  noperm = { deny = { eval = true, evalsha = true } },
}
Server.refusals = REFUSALS

local function stop_refusing(self)
  if self.world.now < self.refuses_until then return end
  self.redis.faults = { deny = {} }
end

-- It answers with an error of this kind; the last one said counts.
function Server:refuse(kind, duration)
  local faults = { deny = {} }
  for name, value in pairs(REFUSALS[kind]) do faults[name] = value end
  self.redis.faults, self.refuses_until = faults, self.world.now + duration
  self.world:at(self.refuses_until, stop_refusing, self)
end

function Server:restart(keep_data, down_us)
  self.redis:restart { keep_data = keep_data }
  self.db = self.redis:database(0)
  self.down_until = self.world.now + down_us
  self.admin = self.redis:connect(function() end)
end

return Server
