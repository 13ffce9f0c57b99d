-- max_hold: in some schedules callers limit how long their holds are renewed. This file adds it and
-- checks such holds. It has its own random numbers, so the rest of a seed's plan is unchanged.

local Prng = require "spec.sim.prng"

local BOUNDED = 12 -- % of plans with such callers
local BOUNDS = { 0.1, 0.3, 1, 3 } -- seconds
local S = 1000000
local KINDS = { lock = true, mutex = true, read = true, write = true, fair = true, permit = true }
local SLACK = 0.000002 -- seconds: times here are whole microseconds
local MAX_NAP = 4 * S

local max_hold = {}

local function may_bound(part)
  return part.what == "task" and KINDS[part.kind] and not part.owner and not part.steps
    and not part.common and not part.calls and not part.leads and not part.alone
    and not part.breaks and part.finish ~= "vanish"
end

-- Most tasks hold for about as long as they may, and some enter the lock again meanwhile.
local function bound(prng, part)
  local seconds = prng:pick(BOUNDS)
  part.max_hold, part.renewed = seconds, true
  if prng:chance(70) then part.extend = nil end
  if prng:chance(70) then
    part.naps[1] = math.min(math.floor(seconds * prng:range(30, 200) / 100 * S), MAX_NAP)
    part.rounds = math.min(part.rounds, 3)
  end
  if part.kind == "lock" and prng:chance(30) then part.holds_again = prng:range(0, 300000) end
end

-- plan: of plan.lua; changed in place
function max_hold.add(plan)
  local prng = Prng.new((plan.seed * 1477 + 631) % 2147483647)
  if not prng:chance(BOUNDED) then return end
  for _, part in ipairs(plan.parts) do
    if may_bound(part) and prng:chance(70) then bound(prng, part) end
  end
end

-- How much a lease is shortened for clocks that run at different speeds: csrc/core/base/lease.h.
local function drift(seconds)
  return math.min(seconds / 100 + 0.002, seconds / 4)
end

-- The task has just acquired the lock through the handle. By the task's own clock the hold is over
-- at the latest one max_hold after the acquire returned, and at the earliest one after it was sent;
-- asked_at is in the world's microseconds.
function max_hold.begin(task, claim, handle, asked_at)
  local seconds = task.plan.max_hold
  if not seconds then return end
  for _, other in ipairs(task.claims) do
    other.replaced = other.replaced or other.lock == claim.lock
  end
  claim.over_by = task.process:clock() + seconds
  claim.not_before = task.process:clock(asked_at) + seconds - drift(seconds)
  handle.not_before = claim.not_before
end

-- Returns whether the handle's last hold may be over by its max_hold. A release that was sent
-- before may still reach the server after that.
function max_hold.may_end(task, handle)
  return handle.not_before ~= nil and task.process:clock() >= handle.not_before
end

-- left: the seconds for which the task believes in the claim; reason: how it was lost, or nil
function max_hold.check(task, claim, left, reason)
  local now = task.process:clock()
  if claim.replaced then return end
  if claim.over_by and left > 0 and now + left > claim.over_by + SLACK then
    task.world:fail("max_hold", "%s: %s believes in it for %.6f s longer than max_hold", claim.key,
      claim.who, now + left - claim.over_by)
  end
  if left > 0 or reason ~= "max_hold" then return end
  if not claim.over_by or now < claim.not_before - SLACK then
    task.world:fail("max_hold", "%s: %s loses it by a max_hold that is not over", claim.key,
      claim.who)
  end
end

return max_hold
