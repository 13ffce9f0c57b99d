-- Ten coroutines of a luv program add to one number, one at a time, while a timer ticks.
--
--   lua5.4 examples/loops/luv.lua

local holdfast = require "holdfast"
local uv = require "luv"

local locks = holdfast.new { driver = "luv" } -- connects to $HOLDFAST_URL

local function sleep(ms)
  local thread, timer = coroutine.running(), uv.new_timer()
  timer:start(ms, 0, function()
    timer:close()
    assert(coroutine.resume(thread))
  end)
  coroutine.yield()
end

local ticks = 0
local ticker = uv.new_timer()
ticker:start(10, 10, function() ticks = ticks + 1 end)

local number, left = 0, 10

local function add()
  local seen = number
  sleep(10)
  number = seen + 1
end

for _ = 1, 10 do
  coroutine.wrap(function()
    assert(locks:with_lock("number", { wait = 5 }, add))
    left = left - 1
    if left == 0 then
      ticker:close()
      locks:close()
    end
  end)()
end

uv.run()
print(("%d, and the timer ticked %s"):format(number, ticks >= 10 and "meanwhile" or "too rarely"))
