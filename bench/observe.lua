-- What counters, histograms and names cost: the calls that they add to an acquire and a release,
-- measured separately, alternating with free cycles over a unix socket. All share one processor.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local CYCLES, CALLS, ROUNDS, BAR = 2000, 2000000, 15, 0.01

assert(sys.pin(0, 0))
local server = redis.start()
local client = holdfast.new { url = server:url(), class = "bench" }
local lock = client:lock("bench:observe")

local function free_cycle()
  local start = process.now()
  for _ = 1, CYCLES do
    assert(lock:acquire(0))
    assert(lock:release())
  end
  return (process.now() - start) / CYCLES
end

local function added()
  local run = process.start { "build/bench/observe", tostring(CALLS) }
  local how, code = run:wait(120)
  assert(how == "exit" and code == 0, run:output())
  return tonumber(run:output())
end

free_cycle()
local cycles, calls, shares = {}, {}, {}
for i = 1, ROUNDS do
  cycles[i], calls[i] = free_cycle(), added()
  shares[i] = calls[i] / cycles[i]
end
client:close()
server:stop()
report.row("acquire + release, µs", report.median(cycles) * 1e6, "%.1f")
report.row("counters and names, of these, µs", report.median(calls) * 1e6, "%.3f")
report.row("share of the counters and names", report.median(shares), "%.4f", "<=", BAR)
