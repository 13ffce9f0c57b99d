-- Many processes on one key: how much of the rate of one process alone they reach together, and whether each gets
-- its share.

local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"

local WORKERS, SECONDS, START_UP = 32, 5, 1.5
local EMPTY_BAR, SECTION_BAR, SHARE_BAR = 0.7, 0.85, 0.9

local function run(server, count, section)
  local start = process.now() + START_UP
  local workers = {}
  for i = 1, count do
    workers[i] = process.lua {
      file = "bench/contended_worker.lua",
      args = { server:url(), ("%.6f"):format(start), ("%.6f"):format(start + SECONDS), section },
    }
  end
  local total, least = 0, math.huge
  for _, worker in ipairs(workers) do
    worker:wait(START_UP + SECONDS + 60)
    local cycles = tonumber(worker:output():match("cycles (%d+)")) or error(worker:output())
    total, least = total + cycles, math.min(least, cycles)
  end
  return total / SECONDS, least / (total / count)
end

local function compare(server, name, section, bar)
  local alone = run(server, 1, section)
  local together, share = run(server, WORKERS, section)
  report.row(("one process, %s, cycles/s"):format(name), alone, "%.0f")
  report.row(("%d processes, %s, cycles/s"):format(WORKERS, name), together, "%.0f")
  report.row(("rate of all to rate of one, %s"):format(name), together / alone, "%.3f", ">=", bar)
  report.row(("least share to fair share, %s"):format(name), share, "%.3f", ">=", SHARE_BAR)
end

local server = redis.start()
compare(server, "empty section", 0, EMPTY_BAR)
compare(server, "1 ms section", 0.001, SECTION_BAR)
server:stop()
