-- The steps of one run of handles.lua: what clients, callers, the collector and the network do.

local core = require "holdfast.core"
local calls = require "spec.fuzz.handles_calls"
local rules = require "spec.fuzz.handles_rules"

local engine, raw = core.engine, core.lock

local RENEWER = 3 -- the link to the first server that renews, if the client has one
local STEPS = { 0.001, 0.05, 0.3, 0.7, 1.1 } -- seconds
local LEASES = { 3, 8 }
local MAX_HANDLES = 14 -- of a client
local KEYS = {
  lock = "l", mutex = "m", fair = "f", read = "rw", write = "rw", permit = "p", guard = "g",
}
local ONE = { { "lock" }, { "lock", "mutex" }, { "read", "write" }, { "permit", "guard", "fair" },
  { "lock", "lock", "lock", "mutex", "fair", "read", "write", "permit", "guard" } }
local OF_QUORUM = { { "lock", "lock", "mutex" } }

local steps = {}

-- Draws what this run is about.
function steps.choose(world)
  local prng = world.prng
  world.kinds = prng:pick(world.quorum and OF_QUORUM or ONE)
  world.callers = prng:chance(50) and 1 or #world.members[1].callers
  world.tainted = prng:chance(25)
  world.rough = not world.quorum and prng:chance(50)
  if world.rough then world.kinds, world.callers, world.tainted = { "lock" }, 1, false end
  world.shares = not world.quorum and prng:chance(25)
end

-- ---- handles ----

local function may_be_kept(world, handle)
  return not world.quorum and not handle.shared and (handle.kind == "lock" or handle.kind == "mutex")
end

local function settings_of(world, member, handle)
  local prng = world.prng
  return {
    client = member.client, key = handle.key, kind = handle.kind, lease = prng:pick(LEASES),
    owner = handle.shared and rules.OWNER or nil, wait = 0,
    renewed = world.rough or prng:chance(70),
    token_ttl = prng:chance(30) and 0 or 86400,
    max_hold = prng:chance(15) and prng:range(1, 8) or 0,
    keep = may_be_kept(world, handle) and prng:chance(40) and prng:range(1, 3) or 0,
    permits = handle.permits, initial_permits = handle.permits > 0 and rules.PERMITS or 0,
    fingerprint = handle.kind == "guard" and "f" or nil,
    deadlock_check = prng:chance(25) and 1 or 0,
  }
end

local function add_handle(world, member)
  local prng = world.prng
  local handle = { kind = prng:pick(world.kinds), counts = {}, permits = 0 }
  handle.key = KEYS[handle.kind] .. prng:range(1, 2)
  handle.shared = world.shares and handle.kind == "lock" and prng:chance(50)
  handle.alone = handle.shared or handle.kind == "permit"
  if handle.kind == "permit" then handle.permits = prng:range(1, 2) end
  world.handle_count = (world.handle_count or 0) + 1
  handle.number = world.handle_count
  handle.name = handle.kind .. " " .. handle.key .. (handle.shared and " shared" or "")
    .. (handle.kind == "permit" and " by handle " .. handle.number or "")
  handle.lock = world:call(raw.new, member.client, settings_of(world, member, handle))
  world:say(member, "handle %d: %s, keep %s", handle.number, handle.name, raw.data(handle.lock).keep)
  table.insert(member.handles, handle)
end

local function drop_handle(world, member)
  local handle = table.remove(member.handles, world.prng:range(1, #member.handles))
  local abandons = world.prng:chance(30)
  world:say(member, "handle %d is dropped%s", handle.number, abandons and ", after abandon" or "")
  if abandons then raw.abandon(handle.lock) end
end

-- ---- finalizers, faults and time ----

local function use(lock, verb)
  if verb == "is_held" then return raw.is_held(lock) end
  local op = raw.begin(lock, verb, 0)
  op:abandon()
end

-- A finalizer that uses a lock of the client: one that nobody else has.
local function leave_garbage(world, member)
  local settings = raw.data(world.prng:pick(member.handles).lock)
  local verb = world.prng:pick { "acquire", "acquire", "check", "is_held" }
  local lock = raw.new(member.client, settings)
  world:leave_garbage(function()
    world:say(member, "a finalizer begins %s", verb)
    use(lock, verb)
  end)
end

local function begin_collecting(world, member)
  local handle, caller = world.prng:pick(member.handles), world.prng:range(1, world.callers)
  local settles = world.prng:chance(50)
  world:as(member, caller, function()
    raw.collect(handle.lock)
    if settles then raw.settle(handle.lock) end
  end)
end

local function toggle(world, set, key, name)
  set[key] = not set[key] or nil
  world:say({ n = 0 }, "%s %d: %s", name, key, tostring(set[key] or false))
end

local function freeze(world, member)
  local link = world.prng:range(1, engine.links(member.client))
  if world.rough and world.prng:chance(50) then link = RENEWER end
  toggle(world, member.frozen, link, "client " .. member.n .. " frozen link")
end

local function drop_link(world, member)
  local link = world.prng:range(1, engine.links(member.client))
  world:say(member, "link %d drops", link)
  world:drop(member, link)
end

local function trouble_server(world)
  local set = world.prng:chance(50) and "refusing" or "slow"
  toggle(world, world[set], world.prng:range(1, #world.servers), set .. " server")
end

local function delete_key(world, member)
  if not world.tainted then return end
  local key = world.prng:pick(member.handles).key
  world:say(member, "%s is deleted", key)
  for _, server in ipairs(world.servers) do
    for _, database in pairs(server.databases) do database:remove(key) end
  end
end

local function collect(world, member)
  world:say(member, "garbage is collected")
  world:collect()
end

local function serve_badly(world, member) world:serve(member, true) end
local function serve(world, member) world:serve(member) end
local function let_time_pass(world) world:advance(world.prng:pick(STEPS)) end

-- How often each step is taken in a calm and in a rough run. In the rough one, callers enter and
-- release several locks while a renewal has no reply.
local WEIGHTS = {
  { 7, 6, add_handle }, { 32, 20, calls.begin_one }, { 10, 25, calls.begin_several },
  { 7, 8, calls.end_one }, { 4, 8, drop_handle }, { 3, 1, leave_garbage },
  { 2, 1, begin_collecting }, { 4, 8, freeze }, { 3, 1, drop_link }, { 1, 0, trouble_server },
  { 1, 0, delete_key }, { 3, 6, collect }, { 8, 2, serve_badly }, { 16, 16, serve },
  { 8, 16, let_time_pass },
}
local CALM, ROUGH = 1, 2

local function spread(column)
  local list = {}
  for _, row in ipairs(WEIGHTS) do
    for _ = 1, row[column] do list[#list + 1] = row[3] end
  end
  return list
end

local TABLES = { [CALM] = spread(CALM), [ROUGH] = spread(ROUGH) }

-- Makes one step of one client.
function steps.step(world)
  local member = world.prng:pick(world.members)
  if world.rough and world.prng:chance(70) then member = world.members[1] end
  local step = world.prng:pick(TABLES[world.rough and ROUGH or CALM])
  if #member.handles == 0 or step == add_handle and #member.handles >= MAX_HANDLES then
    step = #member.handles == 0 and add_handle or drop_handle
  end
  step(world, member)
  calls.finish_done(world, member)
end

return steps
