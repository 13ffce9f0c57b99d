-- Java services and this script book orders in the order in which they ask. Java uses the same lock
-- as redisson.getFairLock("booking").
--
--   HOLDFAST_URL=redis://localhost lua examples/fair.lua [orders]

local holdfast = require "holdfast"

local client = holdfast.new()
local orders = tonumber(arg[1]) or 3

-- Waits in Redisson's queue for up to 30 seconds. No Java thread that asks later overtakes it.
for order = 1, orders do
  local booked, message, code = client:with_fair_lock("booking", { wait = 30 }, function(lock)
    local info = assert(lock:info())
    print(("order %d: booked with token %.0f, %d waiting"):format(order, lock:token(), info.waiters))
    return true
  end)
  if not booked then
    io.stderr:write(("order %d was not booked: %s (%s)\n"):format(order, message, code))
  end
end

client:close()
