-- Callers with several handles of one lock, and callers that share one handle. It has its own
-- random numbers, so the rest of a seed's plan is unchanged.

local Prng = require "spec.sim.prng"

local MANY = 15   -- % of plans in which callers have several handles
local MANY_READERS = 40 -- the same for plans with read/write locks
local COMMON = 10 -- % of plans in which all callers of a process share one handle
local COMMON_READERS = 40 -- the same for plans in which several callers may hold at a time
local VANISHING = 25 -- % of tasks with a shared handle that vanish without releasing
local DIFFERING = 60 -- % of tasks with several handles whose leases differ
local OTHER_TTLS = 50 -- % of tasks with several handles whose token TTLs differ
local PLACES = 3
local MAX_HOLDS = 5
local ENTERED = { lock = true, read = true, write = true, fair = true }
local SHARED = { lock = true, mutex = true, read = true, write = true, fair = true }

-- Returns whether the part is a plain user of a lock that it may enter any number of times.
local function is_plain(part, kinds)
  return part.what == "task" and kinds[part.kind] and not part.owner and not part.several
    and not part.calls and not part.leads and not part.also and not part.force and not part.reads
    and not part.upgrades and not part.swaps and not part.alone
end

local function steps_of(prng)
  local steps, holds = { { "acquire", 1 } }, 1
  for _ = 1, prng:range(3, 12) do
    local place, roll = prng:range(1, PLACES), prng:range(1, 100)
    if roll <= 40 and holds < MAX_HOLDS then
      steps[#steps + 1], holds = { "acquire", place }, holds + 1
    elseif roll <= 70 then
      steps[#steps + 1], holds = { "release", place }, math.max(0, holds - 1)
    elseif roll <= 80 then
      steps[#steps + 1] = { "drop", place }
    elseif roll <= 87 then
      steps[#steps + 1] = { "abandon", place, prng:range(0, prng:pick { 100, 3000 }) }
      holds = math.max(0, holds - 1)
    else
      steps[#steps + 1] = { "nap", prng:range(0, prng:pick { 100, 3000, 100000 }) }
    end
  end
  if prng:chance(40) then
    for place = 1, PLACES do steps[#steps + 1] = { "drop", place } end
  end
  return steps
end

-- A server that forgets everything does not vote for as long as the longest lease.
local function longest_lease(plan)
  local guard = plan.restart_guard or 0
  return guard > 0 and guard or 10
end

local function give_several(prng, plan)
  local longest = longest_lease(plan)
  for _, part in ipairs(plan.parts) do
    if is_plain(part, ENTERED) and part.finish ~= "vanish" and prng:chance(60) then
      part.steps, part.finish, part.patience, part.entries = steps_of(prng), "release", nil, 0
      if prng:chance(60) then part.renewed, part.lease, part.extend = true, longest, nil end
    end
  end
end

-- Gives handles different leases, the longest of which is the plan's. Handles with it are dropped
-- more often than others.
local function differ(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.steps and not part.renewed and prng:chance(DIFFERING) then
      part.leases = {}
      for place = 1, PLACES do
        part.leases[place] = part.lease * prng:pick { 0.1, 0.3, 1 }
        plan.brisk = plan.brisk or part.leases[place] < 0.03
      end
      for _, step in ipairs(part.steps) do
        if step[1] == "release" and prng:chance(50) then step[1] = "drop" end
      end
    end
  end
end

-- Gives handles different token TTLs.
local function differ_in_ttls(prng, plan)
  for _, part in ipairs(plan.parts) do
    if part.steps and prng:chance(OTHER_TTLS) then
      part.token_ttls = {}
      for place = 1, PLACES do part.token_ttls[place] = prng:pick { 600, 1200, 86400 } end
    end
  end
end

-- Makes the tasks of a process that want the same lock share a handle, with the settings of the
-- first of them.
local function share_one(prng, plan)
  local first = {}
  for _, part in ipairs(plan.parts) do
    if is_plain(part, SHARED) and not part.steps and prng:chance(80) then
      local name = part.process .. " " .. part.kind .. " " .. part.key
      local like = first[name] or part
      first[name] = like
      part.common, part.lease, part.renewed, part.keep = true, like.lease, like.renewed, like.keep
      if part.finish ~= "vanish" then
        part.finish = prng:chance(VANISHING) and "vanish" or "release"
        part.noticed = prng:range(0, prng:pick { 1000, 100000, 300000 })
      end
    end
  end
end

-- plan: of plan.lua; changed in place
return function(plan)
  local prng = Prng.new((plan.seed * 41 + 67) % 2147483647)
  if prng:chance(plan.read_write and MANY_READERS or MANY) then give_several(prng, plan) end
  if prng:chance(plan.read_write and COMMON_READERS or COMMON) then share_one(prng, plan) end
  differ(Prng.new((plan.seed * 43 + 71) % 2147483647), plan)
  differ_in_ttls(Prng.new((plan.seed * 47 + 73) % 2147483647), plan)
end
