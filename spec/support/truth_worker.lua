-- Arguments: url, count, seconds between two changes. Alternately holds `count` locks and one more,
-- and prints a line for each change, by the clock of spec.support.sys: "<seconds> <locks held>".

local holdfast = require "holdfast"
local sys = require "spec.support.sys"

local url, count, pause = arg[1], tonumber(arg[2]), tonumber(arg[3])
local client = holdfast.new { url = url, lease = 600, wait = 60 }
local held, acquired = {}, 0

local function note()
  io.stdout:write(("%.3f %d\n"):format(sys.now(), #held))
  io.stdout:flush()
end

local function acquire()
  acquired = acquired + 1
  local lock
  repeat lock = client:lock(("held:%06d"):format(acquired)):acquire() until lock
  held[#held + 1] = lock
end

for _ = 1, count do acquire() end
note()
while true do
  sys.sleep(pause)
  if #held > count then
    table.remove(held, 1 + acquired % #held):release() -- later if the server is restarting
  else
    acquire()
  end
  note()
end
