-- One of the processes of bench/contended.lua: URL START END SECTION. Prints how many cycles it
-- completed.

local holdfast = require "holdfast"
local process = require "spec.support.process"

local url, start, stop, section = arg[1], tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4])

local client = holdfast.new(url)
local lock = client:lock("bench:contended")
assert(client:ping())
process.sleep(math.max(0, start - process.now()))

local cycles = 0
while process.now() < stop do
  assert(lock:acquire(30))
  if section > 0 then process.sleep(section) end
  if process.now() < stop then cycles = cycles + 1 end
  assert(lock:release())
end
client:close()
print("cycles " .. cycles)
