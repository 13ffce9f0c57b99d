-- Adds threads of Java to some schedules.

local SHARED = 40 -- % of schedules with such threads
local FIRST_SLOT = 9

-- prng: used only here; make(prng, plan, slot): makes one thread
return function(prng, plan, make)
  if not prng:chance(SHARED) then return end
  for i = 0, prng:pick { 1, 1, 2, 3 } - 1 do
    plan.parts[#plan.parts + 1] = make(prng, plan, FIRST_SLOT + i)
  end
end
