-- Processes that do not agree on the lease of a grant, in some schedules. Its numbers are its own.

local Prng = require "spec.sim.prng"

local SOME = 30 -- so many of 100 plans
local SLOW = 2000 -- microseconds: over a network that may be slower all have the plan's

-- plan: of plan.lua; changed in place
return function(plan, leases)
  local prng = Prng.new((plan.seed * 73 + 101) % 2147483647)
  if plan.network[2] > SLOW or not prng:chance(SOME) then return end
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then part.grant_lease = prng:pick(leases) end
  end
end
