-- One by one: however many callers there are, the work for one order runs one at a time, in the
-- order in which they came. Needs a Redis at redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"
local client = holdfast.new()
local orders = client:one_by_one { prefix = "shop:", wait = 5 }

-- Runs under a lock on "shop:order_42"; execute returns its results.
local function settle(_, amount)
  return "settled", amount
end
print(orders:execute("order", 42, settle, 990))

-- A second caller at the same time: with queue = false it does not wait for its turn.
orders:execute("order", 42, function()
  local second = holdfast.new()
  local _, message, code = second:one_by_one({ prefix = "shop:", queue = false }):execute("order",
    42, settle, 1)
  print(code, message)
  second:close()
end)
client:close()
