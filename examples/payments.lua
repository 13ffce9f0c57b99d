-- A payment provider allows three calls at once, however many workers there are. The jobs of this
-- program, and those of every other program that uses the same key, share three permits.
-- Needs a Redis: redis://127.0.0.1:6379, or the one that $HOLDFAST_URL names.
local holdfast = require "holdfast"

local CALLS, JOBS = 3, 16

local client = holdfast.new()
local calls = client:semaphore("payments:calls", { permits = CALLS, wait = 5 })

-- What a worker does: at most so long as it is allowed to.
local function pay(permit, order)
  -- the provider's client goes here; its idempotency key may carry the token
  return ("order %d paid, %.1f s left of the permit"):format(order, permit:remaining())
end

local paid = 0
for order = 1, JOBS do
  local receipt, message, code = calls:with_permit(pay, order)
  if receipt then
    paid = paid + 1
  elseif code == "busy" then
    print("the provider has enough to do, order " .. order .. " is tried later")
  else
    print("order " .. order .. ": " .. message)
  end
end
print(paid .. " of " .. JOBS .. " orders paid")

-- A batch needs all connections for itself: it waits for its turn, and later jobs do not pass it.
print(calls:with_permit({ count = CALLS }, function()
  return "batch sent, " .. calls:available() .. " calls free"
end))

-- Tonight the provider allows five.
assert(calls:set_permits(CALLS + 2))
print(calls:permits() .. " calls at once from now on")
assert(calls:set_permits(CALLS))
client:close()
