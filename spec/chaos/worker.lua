-- A process of a chaos run: a random program, determined by its seed, that uses a few locks under
-- several owners, and records a history (spec/chaos/history.lua). Arguments are NAME=VALUE:
--
--   name, seed            its name, its program
--   urls                  the server; several, separated by commas, are a quorum
--   url                   instead: Sentinels or a cluster
--   file, store           its history; the socket of the store that checks tokens
--   stop                  the monotonic time at which it releases everything and ends
--   keys                  "a,b" are reentrant locks; "m" is a mutex
--   kind                  the round's: "shared": uses an owner that all processes share, too, on key
--                         "s"; "loses": uses force_release, too; "minority": the quorum has a
--                         restart_guard; "sentinel": a hold counts when the replica has it;
--                         "slots": every hold is renewed, and kept longer than its lease
--   keep                  percent of the holds that are kept until they are lost, or for 2.2 s
--   grant, timeout        the client's grant_lease and command_timeout, seconds
--   mutant                one of spec/sim/mutants.lua, in the build of make sim-mutants
--
-- An owner is a coroutine, "NAME.1" and "NAME.2", or "shared". The store's script accepts a write
-- whose token is not below the last one.

local sys = require "spec.support.sys"
local process = require "spec.support.process"
local resp = require "spec.support.resp"
local history = require "spec.chaos.history"
local Prng = require "spec.sim.prng"

local options = require "spec.support.arguments"(arg, 1)

local function break_the_lock(name)
  local mutants, core = require "spec.sim.mutants", require "holdfast.core"
  local mutant = assert(mutants.find(name))
  for program, text in pairs(mutants.turn_on(mutant).patched or {}) do
    assert(core.engine.program(program, core.sha1(text), text))
  end
end
if options.mutant then break_the_lock(options.mutant) end

local OWNERS = 2
local WAITS = { 0, 0, 0.02, 0.05, 0.1, 0.2, 0.4, 1 }
local LEASES = { 0.3, 0.5, 0.9, 1.5, 2 }
local LONGEST_LEASE = 2
local MAX_HOLDS = 3
local MAX_KEPT = 2.2 -- seconds; longer than any lease that is not renewed
local RENEWED_KEPT = 4
local STORE = [[
local last = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
local accepted = tonumber(ARGV[1]) >= last and 1 or 0
if accepted == 1 then redis.call('HSET', KEYS[1], 'token', ARGV[1]) end
redis.call('RPUSH', 'log', table.concat({ KEYS[1], ARGV[1], ARGV[2], accepted }, ' '))
return accepted
]]

local prng = Prng.new(options.seed)
local writer = history.writer(options.file, options.name)
local store = assert(resp.connect { path = options.store })

local descriptors_before = process.descriptors()

local only_renewed = options.kind == "slots"
local own_lease = only_renewed and 2 or prng:pick { 0.9, 1.5 }
local urls = { options.url }
for url in (options.urls or ""):gmatch("[^,]+") do urls[#urls + 1] = url end
local settings = {
  lease = own_lease, grant_lease = options.grant, command_timeout = options.timeout,
  connect_timeout = options.timeout, name = options.name,
}
if #urls == 1 then
  settings.url = urls[1]
else
  settings.servers, settings.mode = urls, "quorum"
  settings.restart_guard = options.kind == "minority" and LONGEST_LEASE or nil
end
-- Not with "loses": a counter that is lost while it is ahead of the clock gives lower tokens. Not
-- with a mutant, which needs acquires that ask the server.
if #urls == 1 and options.kind ~= "loses" and not options.mutant then
  settings.keep = Prng.new(options.seed + 1):pick { 0, 0.02, 0.3, 2 }
end
if options.kind == "sentinel" then settings.sync = { replicas = 1, timeout = 0.3 } end
local client = require("holdfast").new(settings)

-- ---- slots: one owner's handle for one key ----

local slots = {}

-- Creates a coroutine that runs the functions passed to it, so that their calls have the same
-- owner.
local function new_actor()
  local thread = coroutine.create(function(work)
    while true do work = coroutine.yield(work()) end
  end)
  return function(work)
    local ok, result = coroutine.resume(thread, work)
    if not ok then error(result, 0) end
    return result
  end
end

local function add_slot(key, owner, act, shared)
  local lease = not only_renewed and prng:chance(50) and prng:pick(LEASES) or nil
  local make = key == "m" and client.mutex or client.lock
  local function new_lock()
    return make(client, key, { lease = lease, owner = shared and "shared" or nil })
  end
  slots[#slots + 1] = {
    key = key, owner = owner, act = act, holds = 0,
    most = (key == "m" or only_renewed) and 1 or MAX_HOLDS,
    lease = lease or own_lease,
    make = new_lock, lock = new_lock(),
  }
end

for i = 1, OWNERS do
  local act = new_actor()
  for key in options.keys:gmatch("%a+") do add_slot(key, options.name .. "." .. i, act) end
end
if options.kind == "shared" then add_slot("s", "shared", new_actor(), true) end

-- ---- what a slot can do ----

-- Records what the owner knows, if it relies on the lock. → true if it does
local function claim(slot)
  return slot.act(function()
    local from, lock = sys.now(), slot.lock
    local remaining, token, holds = lock:remaining(), lock:token(), lock:holds()
    if remaining == 0 or not token or not lock:is_held() then return end
    writer:seen(from, {
      what = "claim", key = slot.key, owner = slot.owner, token = token, holds = holds, valid = from
        + remaining,
    })
    return true
  end)
end

-- Writes to the store with the token of the hold.
local function write(slot)
  local from, token = sys.now(), slot.act(function() return slot.lock:token() end)
  if not token then return end
  local accepted = store:call("EVAL", STORE, 1, slot.key, ("%.0f"):format(token), slot.owner)
  writer:seen(from, { what = "write", key = slot.key, owner = slot.owner, token = token,
    accepted = accepted })
end

-- Runs an operation and records it. → { result, code }
local function run(slot, fields, operation)
  fields.key, fields.owner, fields.count = slot.key, slot.owner, slot.holds
  local id = writer:call(fields)
  return slot.act(function()
    local result, _, code = operation(slot.lock)
    -- the process was stopped so long that the hold is over
    if fields.what == "acquire" and result and not slot.lock:token() then
      result, code, slot.holds = nil, "late", 0
    end
    local done = { result = code or (result == slot.lock and "ok" or tostring(result)) }
    if fields.what == "acquire" and result then
      done.token, done.holds = slot.lock:token(), slot.lock:holds()
    end
    if code == "lost" then done.reason = slot.lock:lost() or "late" end
    writer:done(id, done)
    if code == "lost" then slot.holds = 0 end
    return { result, code }
  end)
end

local function acquire(slot, wait)
  local kept = (settings.keep or 0) > 0 and 1 or nil
  local fields = { what = "acquire", wait = wait, lease = slot.lease, kept = kept }
  local outcome = run(slot, fields, function(lock) return lock:acquire(wait) end)
  if not outcome[1] then return end
  slot.holds = slot.holds + 1
  if slot.holds == 1 then
    local most = only_renewed and RENEWED_KEPT or MAX_KEPT
    slot.keep_until = prng:chance(options.keep) and sys.now() + most or 0
  end
  claim(slot)
  write(slot)
  claim(slot)
end

local function release(slot)
  local before = slot.holds
  local code = run(slot, { what = "release" }, function(lock) return lock:release() end)[2]
  if code ~= "lost" then slot.holds = math.max(0, before - 1) end
end

local function extend(slot)
  local seconds = prng:pick(LEASES)
  run(slot, { what = "extend", seconds = seconds }, function(lock) return lock:extend(seconds) end)
  claim(slot)
end

-- Drops the lock without a release, so that the collector releases it.
local function drop(slot)
  run(slot, { what = "drop" }, function()
    slot.lock, slot.holds = nil, 0
    collectgarbage() collectgarbage()
    slot.lock = slot.make()
    return true
  end)
end

local function check(slot)
  run(slot, { what = "check" }, function(lock) return lock:check() end)
  claim(slot)
end

-- Not with Sentinels: a master that was replaced without knowing it may reply.
local function look(slot)
  if options.kind == "sentinel" then return end
  run(slot, { what = "look" }, function(lock) return lock:is_locked() end)
end

local function force(slot)
  run(slot, { what = "force" }, function(lock) return lock:force_release() end)
end

local function use(slot)
  claim(slot)
  write(slot)
  if not claim(slot) then slot.keep_until = 0 end
end

-- ---- the program ----

local function pause()
  local kind = prng:range(1, 100)
  if kind <= 80 then sys.sleep(prng:range(1, 6) / 1000)
  elseif kind <= 98 then sys.sleep(prng:range(10, 40) / 1000)
  else sys.sleep(prng:range(200, 900) / 1000) end
end

local function step_free(slot)
  local dice = prng:range(1, 100)
  if dice <= 86 then acquire(slot, prng:pick(WAITS))
  elseif dice <= 92 then release(slot)
  elseif dice <= 95 then check(slot)
  elseif dice <= 98 or options.kind ~= "loses" then look(slot)
  else force(slot) end
end

local function step_held(slot)
  local dice = prng:range(1, 100)
  if sys.now() < slot.keep_until and dice <= 95 then
    if dice <= 10 then check(slot) else use(slot) end
  elseif dice <= 35 then use(slot)
  elseif dice <= 50 and slot.holds < slot.most then acquire(slot, prng:pick(WAITS))
  elseif dice <= 58 then check(slot)
  elseif dice <= 64 and not only_renewed then extend(slot)
  elseif dice <= 67 and slot.holds == 1 then drop(slot)
  else release(slot) end
end

local function let_go(slot)
  for _ = 1, 2 * MAX_HOLDS do
    if slot.holds > 0 then release(slot) end
  end
end

-- Mostly keeps using the same hold until it is over.
local slot = prng:pick(slots)
while sys.now() < options.stop do
  if slot.holds > 0 then step_held(slot) else step_free(slot) end
  if slot.holds == 0 or prng:chance(3) then slot = prng:pick(slots) end
  pause()
end
for _, each in ipairs(slots) do let_go(each) end
local from = sys.now()
client:close()
writer:seen(from, { what = "end" })
local left = process.descriptors() - descriptors_before
assert(left == 0, left .. " descriptors are left open")
