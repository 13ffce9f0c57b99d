-- Schedules in which a caller must acquire the lock soon: the second waiter, while holdfast's first
-- one dies or is stopped for long, and threads of Java or clients that poll contend for the lock; a
-- writer that arrives after a reader has died and another reader with a longer lease has come and
-- gone; and a thread of Java that waits for a hold whose lease becomes shorter than the thread was
-- informed.

local Prng = require "spec.sim.prng"

local S = 1000000
local EVERY, AT = 53, 17 -- one in this many seeds, with this remainder
local EVERY_SHORTENED, SHORTENED_AT = 197, 167 -- the same for leases that become shorter
local GRANT_LEASE, READ_LEASE = 0.5, 1
-- From the end of the first waiter to the turn of the second: the first one's timeout, a grant to
-- the dead one, and some races against the others. Clients that poll are looked for only now and
-- then.
local BOUND, BOUND_OF_POLLERS = 2 * S, 4 * S
local NAP, CONTENDERS, ROUNDS = 30000, 3, 40
local LONG_LEASE, SHORT_LEASE = 10, 1
local SHORTENED = { "lock", "read", "write", "permit", "fair" }
local KINDS = { "lock", "mutex", "read", "write", "permit", "fair", "dead_reader" }

local in_soon = {}

local function is_shortened(seed) return seed % EVERY_SHORTENED == SHORTENED_AT end

function in_soon.is_of(seed) return seed % EVERY == AT or is_shortened(seed) end

local function plan_of(prng, seed, kind)
  local pool, reads = kind == "permit", kind == "read" or kind == "write" or kind == "dead_reader"
  return {
    seed = seed, calm = false, parts = {}, grant_lease = kind == "dead_reader" and 2 or GRANT_LEASE,
    keys = { { name = "a", kind = reads and "read" or kind, permits = pool and 1 or nil } },
    network = { 100, 400 }, timeout = 1, rate = 1 + prng:range(-400, 400) / 100000,
    scripts_known = true, fair = kind == "fair" or nil, pool = pool or nil,
    read_write = reads or nil,
  }
end

-- Adds a task in a process of its own.
local function add_task(plan, make, prng, kind, more)
  local index = #plan.parts / 2 + 1
  local process = make.process(prng, plan)
  process.index, process.needs_approval = index, nil
  plan.process_count = index
  local task = {
    what = "task", process = index, slot = index, key = "a", kind = kind, start = 0, lease = 10,
    renewed = true, token_ttl = 600, wait = math.huge, rounds = 1, entries = 0, naps = { NAP },
    gap = 0, finish = "release", permits = plan.pool and 1 or nil,
  }
  for name, value in pairs(more) do task[name] = value end
  plan.parts[#plan.parts + 1], plan.parts[#plan.parts + 2] = process, task
end

local CONTENDER = { lock = "foreign", mutex = "foreign", read = "java_read_write",
  write = "java_read_write", permit = "java_permits", fair = "java_fair" }

local function contend(prng, plan, kind, count, more)
  for i = 1, count do
    local part = {
      what = CONTENDER[kind], key = "a", slot = 8 + i, lease = 10, start = prng:range(0, 20000),
      nap = NAP, rounds = ROUNDS, gap = prng:range(0, 500), permits = 1, wait = 5,
      kind = CONTENDER[kind] == "java_read_write" and "write" or kind,
    }
    for name, value in pairs(more or {}) do part[name] = value end
    plan.parts[#plan.parts + 1] = part
  end
end

local function end_first(prng, plan, nth)
  plan.parts[#plan.parts + 1] = {
    what = "fault", name = prng:pick { "crash", "pause" }, process = 1, on = "waits", nth = nth,
    at = prng:range(1000, 10000), link = "calls", key = "a", duration = 8 * S,
    lag = prng:pick { 0, 8 * S },
  }
end

local function shortened(prng, seed, make)
  local kind, nap = prng:pick(SHORTENED), prng:range(200000, 600000)
  local plan = plan_of(prng, seed, kind)
  add_task(plan, make, prng, kind, {
    lease = LONG_LEASE, renewed = false, naps = { nap }, extend = SHORT_LEASE, stays = 4 * S,
    initial_permits = plan.pool and 1 or nil,
  })
  contend(prng, plan, kind, 1, {
    start = prng:range(50000, 150000), rounds = 1, wait = 300,
    in_by = nap + SHORT_LEASE * S + 500000,
  })
  return plan
end

-- make: the functions of plan.lua that make the parts of a plan
function in_soon.of(seed, make)
  local prng = Prng.new((seed * 43 + 29) % 2147483647)
  if is_shortened(seed) then return shortened(prng, seed, make) end
  local kind = prng:pick(KINDS)
  local plan = plan_of(prng, seed, kind)
  if kind == "dead_reader" then
    add_task(plan, make, prng, "read", { lease = READ_LEASE, renewed = false, naps = { 8 * S } })
    add_task(plan, make, prng, "read", { start = 200000, naps = { 100000 } })
    add_task(plan, make, prng, "write",
      { start = 400000, in_by = READ_LEASE * S + prng:range(300000, 600000) })
    return plan
  end
  local start = prng:range(100000, 200000)
  local bound = kind == "mutex" and BOUND_OF_POLLERS or BOUND
  add_task(plan, make, prng, kind, { start = start, lease = GRANT_LEASE, renewed = false })
  add_task(plan, make, prng, kind,
    { start = start + 5000, in_by = start + 15000 + bound, behind_first = true })
  if kind == "permit" then
    add_task(plan, make, prng, kind, { naps = { 0 }, initial_permits = 1 })
  end
  contend(prng, plan, kind, CONTENDERS)
  end_first(prng, plan, 1)
  return plan
end

return in_soon
