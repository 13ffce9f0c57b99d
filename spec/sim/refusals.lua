-- The server answers with errors for a while.

local Prng = require "spec.sim.prng"

local S = 1000000
local SOME = 30 -- so many of 100 plans in which things go wrong
local KINDS = { "oom", "loading", "busy", "readonly", "misconf", "noperm", "nochannel" }

local refusals = {}

-- plan: of plan.lua; changed in place
function refusals.add(prng, plan)
  for _ = 1, prng:range(1, 2) do
    plan.parts[#plan.parts + 1] = {
      what = "mishap", kind = prng:pick(KINDS),
      at = prng:range(0, prng:pick { 20000, 500000, 5 * S }), process = 1,
      link = "calls", duration = prng:range(1000, prng:pick { 30000, 800000, 4 * S }), lag = 0,
        key = plan.keys[1].name,
    }
  end
end

-- …or not. Its numbers are its own.
function refusals.add_some(plan)
  local prng = Prng.new((plan.seed * 71 + 97) % 2147483647)
  if not plan.calm and prng:chance(SOME) then refusals.add(prng, plan) end
end

return refusals
