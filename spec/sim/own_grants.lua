-- In some schedules processes use different leases for grants. It has its own random numbers.

local Prng = require "spec.sim.prng"

local SOME = 30 -- % of plans
local SLOW = 2000 -- µs: over a network that may be slower, all have the plan's lease

-- plan: of plan.lua; changed in place
return function(plan, leases)
  local prng = Prng.new((plan.seed * 73 + 101) % 2147483647)
  if plan.network[2] > SLOW or not prng:chance(SOME) then return end
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then part.grant_lease = prng:pick(leases) end
  end
end
