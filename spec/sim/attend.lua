-- Clients as in OpenResty: a hold is renewed only while its owner confirms that it is alive, and
-- owners may vanish without releasing.

local Prng = require "spec.sim.prng"

local S = 1000000
local SOME = 40 -- % of plans that have such clients
local LASTING, SHORT = 50, 1 -- % of tasks with a lease of at most SHORT seconds that hold for long
local ATTENDED = 70 -- % of processes with such a client
local VANISHING = 30 -- % of their tasks that vanish

local attend = {}

-- plan: of plan.lua; changed in place. → which of its processes are attended
function attend.all(prng, plan)
  local needs_approval = {}
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then
      needs_approval[part.index] = prng:chance(ATTENDED)
      part.needs_approval = needs_approval[part.index]
      part.renewer_link = part.renewer_link and not part.needs_approval
    end
  end
  for _, part in ipairs(plan.parts) do
    local attended = part.what == "task" and needs_approval[part.process] and not part.owner
    if attended and prng:chance(VANISHING) then
      part.finish, part.force = "vanish", nil
      part.noticed = prng:range(0, prng:pick { 50000, 2 * S, 15 * S })
    end
  end
  return needs_approval
end

-- Makes the hold last so long that its owner must confirm it more than once, even if it takes long
-- to notice that the owner is gone.
local function outlast(prng, task)
  local lease_us = math.floor(task.lease * S)
  task.renewed, task.extend = true, nil
  task.naps = { math.max(task.naps[1], prng:range(lease_us, 2 * lease_us)) }
  if task.noticed then task.noticed = prng:range(5 * S, 15 * S) end
end

-- Like `all`, for some plans. It has its own random numbers.
function attend.some(plan)
  local prng = Prng.new((plan.seed * 61 + 83) % 2147483647)
  if not prng:chance(SOME) then return end
  local attended = attend.all(prng, plan)
  for _, part in ipairs(plan.parts) do
    local asked = part.what == "task" and attended[part.process]
    if asked and part.lease <= SHORT and prng:chance(LASTING) then outlast(prng, part) end
  end
end

return attend
