-- What one hand-off costs the server in commands and messages, and what the wait for it costs: the same for 2, 32 and
-- 256 waiting processes.

local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"

local CROWDS = { 2, 32, 256 }
local SECONDS, SPREAD = 4, 0.1

-- Calls by command name, those inside scripts counted.
local function calls(server)
  local counts = {}
  for name, count in server:cli("INFO", "commandstats"):gmatch("cmdstat_(%S-):calls=(%d+)") do
    counts[name] = tonumber(count)
  end
  return counts
end

local function start_crowd(server, waiters)
  local start = process.now() + 1 + waiters / 50
  local workers = {}
  for i = 1, waiters + 1 do
    workers[i] = process.lua {
      file = "bench/contended_worker.lua",
      args = { server:url(), ("%.6f"):format(start), ("%.6f"):format(start + SECONDS + 2), 0 },
    }
  end
  process.sleep(math.max(0, start + 1 - process.now())) -- all of them wait by then
  return workers
end

-- For each release: scripts sent by clients, messages published, and all commands with those inside scripts.
local function measure(waiters)
  local server = redis.start()
  local workers = start_crowd(server, waiters)
  local queued = server:cli("ZCARD", "holdfast_queue:{bench:contended}")
  local before = calls(server)
  process.sleep(SECONDS)
  local after = calls(server)
  local total = 0
  for name, count in pairs(after) do
    if name ~= "info" and name ~= "zcard" then total = total + count - (before[name] or 0) end
  end
  local releases = after.del - before.del
  for _, worker in ipairs(workers) do worker:wait(60) end
  server:stop()
  return {
    queued = queued,
    rate = releases / SECONDS,
    scripts = (after.evalsha - before.evalsha) / releases,
    messages = (after.publish - before.publish) / releases,
    commands = total / releases,
  }
end

local FIGURES = { "scripts", "messages", "commands" }
local results = {}
for i, waiters in ipairs(CROWDS) do
  results[i] = measure(waiters)
  report.row(("%d waiters, in the queue when looked at"):format(waiters), results[i].queued, "%.0f")
  report.row(("%d waiters, hand-offs/s"):format(waiters), results[i].rate, "%.0f")
  for _, figure in ipairs(FIGURES) do
    report.row(("%d waiters, %s for each hand-off"):format(waiters, figure), results[i][figure], "%.3f")
  end
end
for _, figure in ipairs(FIGURES) do
  local least, most = math.huge, 0
  for _, result in ipairs(results) do
    least, most = math.min(least, result[figure]), math.max(most, result[figure])
  end
  report.row(("%s, most to least"):format(figure), most / least, "%.3f", "<=", 1 + SPREAD)
end
