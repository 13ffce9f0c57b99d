-- One of the processes of bench/keep.lua: URL START SECONDS PAUSE ROUNDS KEEP. Eight owners in an
-- event loop take turns with one lock: in each round SECONDS without `keep`, then SECONDS with it,
-- with a pause after each. Prints how many cycles they made each time.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local uv = require "luv"

local OWNERS = 8

local url = arg[1]
local start, seconds, pause = tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4])
local rounds, keep = tonumber(arg[5]), tonumber(arg[6])

local function run(from, kept)
  local client = holdfast.new { url = url, driver = "luv", keep = kept }
  local cycles, running = 0, OWNERS
  local function own()
    local lock = client:lock("bench:keep")
    while process.now() < from + seconds do
      assert(lock:acquire(30))
      if process.now() < from + seconds then cycles = cycles + 1 end
      assert(lock:release())
    end
    running = running - 1
    if running == 0 then client:close() end
  end
  process.sleep(math.max(0, from - process.now()))
  for _ = 1, OWNERS do assert(coroutine.resume(coroutine.create(own))) end
  uv.run()
  return cycles
end

for round = 0, rounds - 1 do
  local from = start + 2 * round * (seconds + pause)
  print("without " .. run(from, 0))
  print("kept " .. run(from + seconds + pause, keep))
end
