-- In some schedules a program closes its client and continues. It has its own random numbers.

local Prng = require "spec.sim.prng"

local S = 1000000
local CLOSING = 15 -- % of plans in which a program closes its client
local SIGNALS = { "acquire", "release", "grant", "grant", "take", "waits", "waits", "renewed" }

-- plan: of plan.lua; changed in place
return function(plan)
  local prng = Prng.new((plan.seed * 67 + 89) % 2147483647)
  if not prng:chance(CLOSING) then return end
  local fault = {
    what = "fault", name = "close", at = prng:range(0, prng:pick { 50000, 500000, 2 * S }),
    process = prng:range(1, plan.process_count), link = "events", lag = 0, duration = 0,
    key = plan.keys[1].name,
  }
  if prng:chance(60) then
    fault.on, fault.nth = prng:pick(SIGNALS), prng:range(1, 4)
    fault.at, fault.process = prng:range(0, prng:pick { 300, 3000, 30000 }), 0
  end
  plan.parts[#plan.parts + 1] = fault
end
