-- A payment provider allows three calls at once, however many workers there are. The jobs of this
-- program, and of every other program that uses the same key, share three permits.
-- Needs a Redis at redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"

local CALLS, JOBS = 3, 16

local client = holdfast.new()
local calls = client:semaphore("payments:calls", { permits = CALLS, wait = 5 })

-- The work of a worker, which must end before its permit does.
local function pay(permit, order)
  -- call the provider here; the idempotency key of the call may contain the token
  return ("order %d paid, %.1f s left of the permit"):format(order, permit:remaining())
end

local paid = 0
for order = 1, JOBS do
  local receipt, message, code = calls:with_permit(pay, order)
  if receipt then
    paid = paid + 1
  elseif code == "busy" then
    print("all permits are taken; try order " .. order .. " again later")
  else
    print("order " .. order .. ": " .. message)
  end
end
print(paid .. " of " .. JOBS .. " orders paid")

-- A batch needs all permits: it waits for its turn, and later jobs do not overtake it.
print(calls:with_permit({ count = CALLS }, function()
  return "batch sent, " .. calls:available() .. " calls free"
end))

-- Tonight the provider allows five.
assert(calls:set_permits(CALLS + 2))
print(calls:permits() .. " calls at once from now on")
assert(calls:set_permits(CALLS))
client:close()
