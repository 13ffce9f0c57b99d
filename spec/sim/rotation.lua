-- Replaces the password of the server while clients continue. Each log-in asks the process for the
-- password that it knows at that time. If nothing else goes wrong, these rules apply:
--
--   login   no call that begins when the server and the processes agree again fails for a log-in
--   kept    no renewed hold is lost whose lease is longer than the time without a valid log-in
--   idle    of the watchers: nobody waits for a free lock for longer than a grant lease after that
--
-- The last two need a plan that was calm before.

local Prng = require "spec.sim.prng"

local S = 1000000
-- % of plans where nothing else goes wrong, of the others, and of systems whose password changes.
local CALM, OTHERS, OF_SYSTEMS = 60, 6, 12
local HOLDS = 25 -- % of calm plans
local MOMENTS = { "acquire", "take", "waits", "grant", "release", "complete" }
-- both: the old password is valid for a while longer; at_once: it is not, and connections end;
-- user: nobody can log in for a while
local WAYS = { "both", "at_once", "user" }
local SETTLED = 2000000 -- by then links that were refused have been opened again
local CONFIRMED = S -- by then, a hold that began with a grant has its whole lease
local LEFT_AT_RENEWAL = 0.6
local ENDS = { unreachable = true, server = true, denied = true }

-- Systems whose servers have passwords, and how many servers have one: not the Sentinels.
local SERVERS = { leader = 1, cluster = 3, sentinel = 2, sync = 2 }
local OURS = { process = true, task = true, fault = true } -- Redisson has another user

local rotation = {}

-- → what else goes wrong: "none", "some", or what a "system" draws; nil: the plan needs clients
-- without a password, or a task's own hold would keep it out
local function others_of(plan)
  if plan.system and not SERVERS[plan.system] then return nil end
  for _, part in ipairs(plan.parts) do
    if part.name == "swap" then return nil end -- the other server has another password
  end
  if plan.system then return "system" end
  local others = (plan.gather or plan.quorum) and "some" or "none"
  for _, part in ipairs(plan.parts) do
    if part.alone then return nil end
    if part.what == "fault" or part.late or not OURS[part.what] then others = "some" end
  end
  return others
end

-- Renewed holds last long, and nobody can log in at the time of a renewal.
local function refuse_renewal(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "task" and part.renewed and not part.extend then
      part.lease, part.naps[1] = 10, prng:range(5 * S, 12 * S)
    elseif part.name == "rotate" then
      part.on, part.nth, part.at = "take", 1, prng:range(2800000, 3300000)
      part.way, part.duration = prng:pick { "at_once", "user" }, prng:range(S / 2, 1500000)
    end
  end
end

local CHANCES = { none = CALM, some = OTHERS, system = OF_SYSTEMS }

-- How many servers have a password: the first ones.
local function count_servers(plan)
  return SERVERS[plan.system] or plan.rates and #plan.rates or 1
end

function rotation.has_password(plan, index)
  return plan.rotates and index <= count_servers(plan)
end

-- If only a minority of a quorum may fail, no other server may refuse; of a quorum in which nothing
-- else fails, always the same server. picked: the server that was picked before, if any
local function pick_server(prng, plan, picked)
  if plan.kind == "minority" then return prng:pick(plan.faulty) end
  local server = plan.rates and prng:range(1, count_servers(plan)) or nil
  return plan.kind ~= "majority" and picked or server
end

-- It has its own random numbers.
function rotation.add(plan)
  local prng = Prng.new((plan.seed * 97 + 109) % 2147483647)
  local others = others_of(plan)
  if not others or not prng:chance(CHANCES[others]) then return end
  local is_alone = plan.calm and others == "none"
  plan.rotates = is_alone and "alone" or "among others"
  local server
  for _ = 1, prng:range(1, 3) do
    local fault = {
      what = "fault", name = "rotate", process = 1, link = "calls", lag = 0, way = prng:pick(WAYS),
      key = plan.keys[1].name, at = prng:range(0, prng:pick { 3000, 300000, 2 * S }),
      duration = prng:range(1000, prng:pick { 30000, 800000, 2 * S }),
    }
    server = pick_server(prng, plan, server)
    fault.server = server
    if prng:chance(50) then fault.on, fault.nth = prng:pick(MOMENTS), prng:range(1, 3) end
    plan.parts[#plan.parts + 1] = fault
  end
  if is_alone and prng:chance(HOLDS) then refuse_renewal(prng, plan) end
  plan.calm, plan.faults = false, plan.faults or {}
end

-- Returns whether nothing else goes wrong in the plan, even after other faults were added.
function rotation.is_alone(plan)
  for _, part in ipairs(plan.parts) do
    if part.what == "fault" and part.name ~= "rotate" then return false end
  end
  return plan.rotates and not plan.quorum and not plan.system
end

local function end_connections(server)
  for _, client in ipairs(server.redis:clients()) do
    if client.process then client:drop() end
  end
end

local function agree(server, number)
  if server.rotations ~= number then return end -- replaced again meanwhile
  server.known = "secret-" .. number
  server.redis.password, server.redis.old_password = server.known, nil
end

-- Sets the first password of a server without connections. how: plan.rotates
function rotation.begin(server, how)
  server.rotations, server.agrees_at, server.away = 0, 0, 0
  server.was_calm = how == "alone"
  agree(server, 0)
end

-- way, duration: of a fault. The processes know the new password at once if the old one remains
-- valid for that long, otherwise after that time.
function rotation.rotate(server, way, duration)
  if not server.rotations then return end
  local world, redis = server.world, server.redis
  server.rotations = server.rotations + 1
  local new = "secret-" .. server.rotations
  if way == "both" then
    redis.old_password, redis.password, server.known = redis.password, new, new
  else
    redis.password, redis.old_password = way == "user" and "" or new, nil
    server.agrees_at = math.max(server.agrees_at, world.now + duration)
    server.away, server.away_since = server.away + duration, server.away_since or world.now
    end_connections(server)
  end
  world:at(world.now + duration, agree, server, server.rotations)
end

-- These connections are of a user whose password is not replaced.
function rotation.admit(...)
  for _, client in ipairs { ... } do
    client.authenticated, client.requests.is_unauthenticated = true, false
  end
end

-- Answers a link's request for a log-in.
function rotation.log_in(process, engine, link)
  local index = tonumber(engine.server(process.client, link):match("^%a(%d+)")) or 1
  engine.ask_login(process.client, link)
  engine.log_in(process.client, link, "default", process.network.servers[index].known)
end

-- A call that began at `asked_at` has ended.
function rotation.check(task, key, asked_at, code, message)
  local server = task.world.rotating
  if not server or not ENDS[code] or task.process.closed then return end
  if asked_at < server.agrees_at + SETTLED then return end
  task.world:fail("login", "%s: a call of %s fails: %s", key, task.name, message)
end

local function calm_server(world)
  return world.rotating and world.rotating.was_calm and world.rotating
end

-- → when every link has been opened again after the last rotation, in simulated time | nil: the
-- plan was not calm before
function rotation.settled_at(world)
  local server = calm_server(world)
  return server and server.agrees_at + SETTLED
end

-- A hold was lost, as its release reports. It had its whole lease, not a grant's, before log-ins
-- were first refused. When a renewal fails then, LEFT_AT_RENEWAL of the lease is left. The lease
-- of a shared owner, or of a common handle, may be that of another caller.
function rotation.lost(task, handle)
  local server, plan = calm_server(task.world), task.plan
  if not server or task.process.closed then return end
  if not plan.renewed or plan.extend or plan.owner or plan.common then return end
  local away, held = server.away_since, handle.held_at
  if not away or not held or away < held + CONFIRMED then return end
  if plan.lease * S * LEFT_AT_RENEWAL <= server.away + SETTLED then return end
  task.world:fail("kept", "%s: %s loses it, though the server refused log-ins for %.3f s only",
    handle.key, task.name, server.away / S)
end

return rotation
