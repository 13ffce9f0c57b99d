-- The clients of one run of handles.lua, their callers, their servers, and the clock.
--
-- The garbage collector rests, except in a full collection that a step makes, and around some calls
-- of the core: there its next check is a whole cycle, so finalizers run in the middle of the call.

local core = require "holdfast.core"
local Prng = require "spec.sim.prng"
local Redis = require "holdfast.testing.redis"
local bytes = require "spec.fuzz.handles_bytes"

local engine = core.engine
local jit = rawget(_G, "jit")

local EPOCH = 1700000000 -- seconds on the servers' clocks when the clients' are at 0
local URLS = { "redis://a:1", "redis://b:2", "redis://c:3" }
local CALLERS = 3
local FIRST_NUMBER = 2 -- of a caller; 1 is the main coroutine's

local World = {}
World.__index = World

World.drop, World.serve = bytes.drop, bytes.serve

-- ---- the collector ----

-- A cycle that begins runs to its end at once.
local function set_collector(generational)
  if jit then
    collectgarbage("setpause", 200)
    collectgarbage("setstepmul", 1000000)
  elseif generational then
    collectgarbage("generational")
  else
    collectgarbage("incremental", 200, 1000, 40)
  end
end

local function rest(...)
  collectgarbage("stop")
  return ...
end

-- Collects all garbage.
function World:collect()
  collectgarbage()
  collectgarbage("stop") -- LuaJIT goes on after a full collection
  for _, member in ipairs(self.members) do member.loose = {} end
end

-- Calls fn(...), sometimes with a collector that runs in the middle of it.
function World:call(fn, ...)
  if not self.prng:chance(self.nervous) then return fn(...) end
  collectgarbage("restart")
  return rest(fn(...))
end

-- Creates garbage whose finalizer calls fn(). LuaJIT finalizes only userdata.
function World:leave_garbage(fn)
  local function finalize()
    local ran, message = pcall(fn)
    if not ran then self:note("error", "in a finalizer: %s", message) end
  end
  if not jit then return setmetatable({}, { __gc = finalize }) and nil end
  getmetatable(newproxy(true)).__gc = finalize
end

-- ---- what goes wrong ----

-- Keeps the first broken rule, which the run reports after the step.
function World:note(rule, ...)
  self.found = self.found or { rule = rule, text = string.format(...) }
end

-- ---- callers ----

local function new_caller(number)
  local caller = coroutine.create(function()
    core.lock.renumber(number)
    local fn = coroutine.yield()
    while true do fn = coroutine.yield(fn()) end
  end)
  assert(coroutine.resume(caller))
  return caller
end

local function check_resumed(ran, ...)
  if not ran then error((...), 0) end
  return ...
end

-- Calls fn() as this caller of the client. → its results
function World:as(member, caller, fn)
  return check_resumed(coroutine.resume(member.callers[caller], fn))
end

-- Returns the number by which core.lock knows the caller.
function World.number_of(caller) return caller + FIRST_NUMBER - 1 end

-- ---- clients ----

local function entropy(prng)
  local letters = {}
  for i = 1, 24 do letters[i] = string.char(prng:range(0, 255)) end
  return table.concat(letters)
end

local function client_options(world)
  local prng = world.prng
  local options = {
    connect_timeout = 1, command_timeout = prng:pick { 1, 3 }, grant_lease = 2, external = true,
    renewer_link = prng:chance(50), entropy = entropy(prng),
  }
  if world.quorum then
    options.mode, options.servers = "quorum", URLS
  else
    options.url = URLS[1]
  end
  return options
end

local function add_member(world, n)
  local client = assert(core.client.new(client_options(world)))
  if world.prng:chance(50) then engine.introduce(client, "client " .. n) end
  local member = { n = n, client = client, connections = {}, frozen = {}, callers = {},
    ops = {}, loose = {}, handles = {} }
  for caller = 1, CALLERS do member.callers[caller] = new_caller(World.number_of(caller)) end
  engine.set_now(client, world.now)
  world.members[n] = member
end

-- scripts: the names of all scripts; the servers of half of the runs know them already
-- trace(time, text) gets what happens.
function World.new(seed, scripts, trace)
  local prng = Prng.new(seed)
  local self = setmetatable({ prng = prng, now = 1000, trace = trace, servers = {}, members = {},
    refusing = {}, slow = {} }, World)
  self.quorum = prng:chance(20)
  self.nervous = prng:pick { 0, 0, 2, 10 }
  set_collector(prng:chance(30))
  self:collect()
  local known = prng:chance(50)
  for i = 1, self.quorum and #URLS or 1 do
    self.servers[i] = Redis.new { now = function() return (EPOCH + self.now) * 1e6 end }
    for name in pairs(known and scripts or {}) do self.servers[i].scripts[name] = true end
  end
  for n = 1, 2 do add_member(self, n) end
  return self
end

function World:say(member, ...)
  if self.trace then self.trace(self.now, ("client %d: "):format(member.n) .. string.format(...)) end
end

-- ---- time and faults ----

function World:advance(seconds)
  self.now = self.now + seconds
  for _, member in ipairs(self.members) do engine.set_now(member.client, self.now) end
end

-- Everything works from now on.
function World:heal()
  self.refusing, self.slow = {}, {}
  for _, member in ipairs(self.members) do member.frozen = {} end
end

-- Lets time pass without faults until is_over(), for at most this long. → whether it is over
function World:run_until(is_over, seconds)
  local by = self.now + seconds
  while self.now < by do
    for _, member in ipairs(self.members) do self:serve(member) end
    if is_over() or self.found then return true end
    self:advance(0.3)
  end
  return false
end

return World
