-- What one hand-off costs the server in commands and messages, and what the wait costs: the same
-- for 2, 32 and 256 waiting processes. First on one processor, next to a bare loop in C that hands
-- on a place in a list, then on two.

local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local CROWDS = { 2, 32, 256 }
local SECONDS, SPREAD = tonumber(os.getenv("HOLDFAST_BENCH_SECONDS") or 4), 0.1

-- → calls by command name, including those inside scripts
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
  process.sleep(math.max(0, start + 1 - process.now())) -- by then all of them are waiting
  return workers
end

-- → for each release: scripts sent by clients, messages published, and all commands including those
-- inside scripts
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
  local releases = after.hdel - before.hdel
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

local function bare(waiters)
  local server = redis.start()
  local child = process.start {
    "build/bench/handoff_baseline", "unix:" .. server.path, tostring(waiters + 1),
    tostring(SECONDS),
  }
  local how, code = child:wait(SECONDS + 60)
  assert(how == "exit" and code == 0, child:output())
  server:stop()
  return tonumber(child:output())
end

local FIGURES = { "scripts", "messages", "commands" }

local function measure_all(where)
  local results = {}
  for i, waiters in ipairs(CROWDS) do
    local result, baseline = measure(waiters), bare(waiters)
    results[i] = result
    report.row(("%d waiters, %s, in the queue when looked at"):format(waiters, where),
      result.queued, "%.0f")
    report.row(("%d waiters, %s, hand-offs/s"):format(waiters, where), result.rate, "%.0f")
    report.row(("%d waiters, %s, to bare hand-offs in C"):format(waiters, where),
      result.rate / baseline, "%.3f")
    for _, figure in ipairs(FIGURES) do
      report.row(("%d waiters, %s, %s for each hand-off"):format(waiters, where, figure),
        result[figure], "%.3f")
    end
  end
  return results
end

assert(sys.pin(0, 0))
local results = measure_all("one core")
for _, figure in ipairs(FIGURES) do
  local least, most = math.huge, 0
  for _, result in ipairs(results) do
    least, most = math.min(least, result[figure]), math.max(most, result[figure])
  end
  report.row(("%s, most to least"):format(figure), most / least, "%.3f", "<=", 1 + SPREAD)
end
report.row("rate with 256 waiters to rate with 32", results[3].rate / results[2].rate, "%.3f", ">=",
  1 - SPREAD)
assert(sys.pin(0, 0, 1))
measure_all("two cores")
