-- One run of handles.lua: steps under faults, then without them, then the close.

local core = require "holdfast.core"
local Redis = require "holdfast.testing.redis"
local World = require "spec.fuzz.handles_world"
local calls = require "spec.fuzz.handles_calls"
local programs = require "spec.sim.programs"
local rules = require "spec.fuzz.handles_rules"
local steps = require "spec.fuzz.handles_steps"

local engine = core.engine

local STEPS = 400
local LONGEST = 60 -- seconds that an operation takes once everything works
local LONGEST_LEASE = 12 -- seconds, of a lock, a record or a note
local REST = 30 -- seconds after which a closed client has nothing left to undo

local function take_steps(world)
  for _ = 1, STEPS do
    steps.step(world)
    rules.check(world)
    if world.found then return end
  end
end

-- Finishes the operations that are done, and those that wait forever.
local function finish_ops(world)
  for _, member in ipairs(world.members) do
    for i = #member.ops, 1, -1 do
      local op = member.ops[i]
      if op.op:is_done() or op.number == math.huge then
        table.remove(member.ops, i)
        calls.finish(world, member, op)
      end
    end
  end
end

local function has_ended(world)
  finish_ops(world)
  rules.check(world)
  return #world.members[1].ops + #world.members[2].ops == 0
end

local function settle(world)
  if world:run_until(function() return has_ended(world) end, LONGEST) then return end
  for _, member in ipairs(world.members) do
    for _, op in ipairs(member.ops) do
      world:note("end", "client %d: %s has not ended", member.n, op.verb)
    end
  end
end

local function are_quiet(world)
  for _, member in ipairs(world.members) do
    if not engine.is_quiet(member.client) then return false end
  end
  return true
end

local function close(world)
  for _, member in ipairs(world.members) do
    world:say(member, "closes")
    engine.close(member.client)
    for _, op in ipairs(member.ops) do
      if not op.op:is_done() then world:note("end", "client %d: %s after close", member.n, op.verb) end
    end
  end
  if not world:run_until(function() return are_quiet(world) end, REST) then
    world:note("end", "a closed client is not quiet")
  end
end

local function free(world)
  for _, member in ipairs(world.members) do
    member.ops, member.handles = {}, {}
    core.client.close(member.client, 0)
  end
  world:collect()
end

local function act(world)
  steps.choose(world)
  take_steps(world)
  if world.found then return end
  world:heal()
  if world.prng:chance(50) then settle(world) end
  if world.found then return end
  close(world)
  rules.check_left(world, true)
  world:advance(LONGEST_LEASE)
  rules.check_left(world, false)
end

-- → the set of the names of all programs, which the small Redis has compiled
local function load_scripts()
  local server = Redis.new { now = function() return 0 end }
  local client = server:connect(function() end)
  for _, text in pairs(programs) do client:call { "SCRIPT", "LOAD", text } end
  return server.scripts
end

local scripts = load_scripts()

-- trace(time, text) gets what happens. → { rule =, text = } | nil
return function(seed, trace)
  local world = World.new(seed, scripts, trace)
  local ran, message = xpcall(act, debug.traceback, world)
  if not ran then world:note("error", "%s", message) end
  free(world)
  return world.found
end
