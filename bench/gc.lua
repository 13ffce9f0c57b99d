-- How long a lock that is dropped while held delays the garbage collector: its finalizer is called
-- as the collector does.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"

local COUNT, BAR = 1000, 20

local server = redis.start()
local client = holdfast.new(server:url())
local times = {}

collectgarbage("stop")
for i = 1, COUNT do
  local lock = assert(client:lock("bench:gc:" .. i):acquire(0))
  local finalize = debug.getmetatable(lock).__gc
  local start = process.now()
  finalize(lock)
  times[i] = (process.now() - start) * 1e6
end
collectgarbage("restart")

report.row("__gc of a held lock, median, µs", report.median(times), "%.2f", "<=", BAR)
report.row("__gc of a held lock, slowest of " .. COUNT .. ", µs", times[COUNT], "%.1f")

local left
process.wait_until(function()
  left = #server:cli("KEYS", "bench:gc:*")
  return left == 0
end, 10)
report.row("locks that the background left held", left, "%d", "<=", 0)

client:close()
server:stop()
