-- holdfast in your own event loop: loop.lua in this directory.
--
--   lua5.4 examples/loops/own.lua

local here = assert(arg[0]):match("^(.*)/[^/]*$") or "."
package.path = here .. "/?.lua;" .. package.path

local loop = require "loop"
local holdfast = require "holdfast"

local locks = holdfast.new { driver = loop } -- connects to $HOLDFAST_URL

local number = 0

for _ = 1, 10 do
  loop.spawn(function()
    assert(locks:with_lock("number", { wait = 5 }, function()
      local seen = number
      loop.sleep(0.01)
      number = seen + 1
    end))
  end)
end

loop.run()
locks:close()
print(number)
