-- A process of a chaos round of kinds: it reads and writes under a read/write lock, acquires
-- permits of a semaphore and of a plain one, and a fair lock, leads, counts a latch down, and
-- records when it held what. In a round of the kind "moving" it also uses a lock, and runs that
-- must happen once. Its arguments are those of spec/chaos/worker.lua, and
--
--   loop                  the number of the event loop under which it runs; without, calls block
--   pairs                 with a loop: how many additional tasks it has, each of which contends
--                         for a lock with the same task of another process
--   certificates          the directory with ca.pem, cert.pem and key.pem
--
-- Each hold has an owner of its own here.

local mutants = require "spec.sim.mutants"
local loops = require "spec.support.loops"
local history = require "spec.chaos.history"
local Prng = require "spec.sim.prng"
local sys = require "spec.support.sys"

local options = require "spec.support.arguments"(arg, 1)

if options.mutant then
  local core = require "holdfast.core"
  local mutant = assert(mutants.find(options.mutant))
  for program, text in pairs(mutants.turn_on(mutant).patched or {}) do
    assert(core.engine.program(program, core.sha1(text), text))
  end
end

local WAITS = { 0, 0.05, 0.2, 0.5, 1 }
local LEASES = { 0.5, 0.9, 1.5 }
local MAX_WAIT = 60 -- stands for a leader's wait, which has no limit
local RUN_LEASE = 30 -- longer than all faults of a round
local ONCE_EVERY = 0.25

local prng = Prng.new(options.seed)
local writer = history.writer(options.file, options.name)
local loop = options.loop and loops[(options.loop - 1) % #loops + 1]
local sleep = loop and loop.sleep or sys.sleep
local files = options.certificates
local client = require("holdfast").new {
  url = options.urls, lease = prng:pick { 0.9, 1.5 }, grant_lease = options.grant,
  command_timeout = options.timeout, connect_timeout = options.timeout, name = options.name,
  driver = loop and loop.driver,
  tls = files and { ca_file = files .. "/ca.pem", cert = files .. "/cert.pem",
    key = files .. "/key.pem" },
}
local count = 0 -- holds so far

local ANSWERS = { busy = true, timeout = true, open = true, duplicate = true }

local function run(fields, operation)
  local id = writer:call(fields)
  local result, message, code = operation()
  local done = { result = code or "ok", why = ANSWERS[code] == nil and message or nil }
  if type(result) == "number" then done.left = result end
  if result and fields.what == "acquire" then done.token = result:token() end
  writer:done(id, done)
  return result
end

-- Uses a hold for `seconds`, by default a random time, as long as it counts as held.
local function use(fields, held, seconds)
  seconds = seconds or prng:chance(options.keep) and 2.2 or prng:range(2, 60) / 1000
  local till, steps = sys.now() + seconds, seconds > 0.1 and 10 or 1
  repeat
    local from = sys.now()
    local remaining = held:remaining()
    if remaining == 0 then return end
    writer:seen(from, {
      what = "claim", key = fields.key, owner = fields.owner, mode = fields.mode,
      permits = fields.permits, valid = from + remaining,
    })
    sleep(prng:range(2, 12) * steps / 1000)
  until sys.now() > till
end

local function hold(key, mode, permits, acquire, wait, seconds)
  count = count + 1
  local fields = { what = "acquire", key = key, mode = mode, permits = permits,
    owner = ("%s.%d"):format(options.name, count), wait = wait or prng:pick(WAITS) }
  local held = run(fields, function() return acquire(fields.wait) end)
  if not held then return end
  use(fields, held, seconds)
  run({ what = "release", key = key, owner = fields.owner }, function() return held:release() end)
end

local own = client:lock("own")
local both = client:read_write_lock("rw", { lease = prng:chance(50) and prng:pick(LEASES) or nil })
local fair = client:fair_lock("fair", { lease = prng:chance(50) and prng:pick(LEASES) or nil })
local pool = client:semaphore("pool", { permits = options.permits })
local places = client:plain_semaphore("places")
local latch = client:latch("gate")

local steps = {}

function steps.read()
  hold("rw", "read", nil, function(wait) return both:read():acquire(wait) end)
end

function steps.write()
  hold("rw", "write", nil, function(wait) return both:write():acquire(wait) end)
end

function steps.permits()
  local permits = prng:range(1, options.permits)
  hold("pool", "permits", permits, function(wait) return pool:acquire(permits, wait) end)
end

-- Permits of a plain semaphore have no lease: they remain taken until they are given back.
function steps.places()
  count = count + 1
  local permits = prng:range(1, options.permits)
  local fields = { what = "take", key = "places", permits = permits, wait = prng:pick(WAITS),
    owner = ("%s.%d"):format(options.name, count) }
  if not run(fields, function() return places:acquire(permits, fields.wait) end) then return end
  sleep(prng:range(2, 60) / 1000)
  run({ what = "give", key = "places", owner = fields.owner },
    function() return places:release(permits) end)
end

function steps.fair() hold("fair", "fair", nil, function(wait) return fair:acquire(wait) end) end

-- Records when a term was seen running, from the first to the last time.
function steps.lead()
  count = count + 1
  local owner = ("%s.%d"):format(options.name, count)
  run({ what = "lead", key = "boss", owner = owner, wait = MAX_WAIT }, function()
    return client:lead("boss", { once = true }, function(term)
      local till = sys.now() + prng:range(10, 300) / 1000
      repeat
        local from = sys.now()
        local leads = term:is_leader()
        if not leads then return false end
        writer:seen(from, { what = "leads", key = "boss", owner = owner, token = term:token() })
        sleep(prng:range(2, 12) / 1000)
      until sys.now() > till
      return true
    end)
  end)
end

function steps.down()
  run({ what = "down", key = "gate" }, function()
    local left, message, code = latch:count_down()
    if left == false then return nil, message, "open" end
    return left, message, code
  end)
end

function steps.wait()
  local wait = prng:pick { 0, 0.02, 0.1 }
  run({ what = "await", key = "gate", wait = wait }, function() return latch:wait(wait) end)
end

-- Waits as long as a fault may last.
function steps.own()
  hold("own", "own", nil, function(wait) return own:acquire(wait) end, prng:pick { 0.2, 1, 3, 8 })
end

-- All processes start the same run at about the same time.
function steps.once()
  local key = "once" .. math.floor(sys.now() / ONCE_EVERY)
  run({ what = "once", key = key, wait = MAX_WAIT }, function()
    local options_of_run = { lease = RUN_LEASE, expire = MAX_WAIT, wait = prng:pick { 0, 0.5 } }
    return client:idempotent(key, options_of_run, function()
      writer:seen(sys.now(), { what = "ran", key = key })
      sleep(prng:range(2, 200) / 1000)
      return true
    end)
  end)
end

local ORDER = { "read", "read", "write", "permits", "permits", "places", "places", "fair",
  "lead", "down", "wait" }
if options.kind == "moving" then
  for _, step in ipairs { "own", "own", "own", "once", "once" } do ORDER[#ORDER + 1] = step end
end

local function do_anything()
  while sys.now() < options.stop do
    steps[prng:pick(ORDER)]()
    sleep(prng:range(1, 8) / 1000)
  end
end

-- Holds the pair's lock for a long time, and waits for it while the other process holds it.
local function contend(key)
  local lock = client:lock(key)
  while sys.now() < options.stop do
    hold(key, "pair", nil, function(wait) return lock:acquire(wait) end, prng:pick { 1, 3, 8 },
      prng:range(200, 2500) / 1000)
    sleep(prng:range(10, 80) / 1000)
  end
end

local function finish()
  local from = sys.now()
  client:close()
  writer:seen(from, { what = "end" })
end

if loop then
  local left = options.pairs + 1
  local function task(work, ...)
    local given = { ... }
    loop.spawn(function()
      work((table.unpack or unpack)(given))
      left = left - 1
      if left == 0 then finish() end
    end)
  end
  for i = 1, options.pairs do
    task(contend, "pair" .. math.floor((options.loop - 1) / 2) * options.pairs + i)
  end
  task(do_anything)
  loop.run()
else
  do_anything()
  finish()
end
