-- Many processes on one key: what share of the rate of a single process they reach together, how
-- that compares to a bare loop in C that hands on a place in a list (bench/handoff_baseline.c), and
-- whether each process gets its share.
--
-- The ratio that counts has everything on one processor: on two, the baseline of a single process
-- pays for wake-ups of an idle processor, which a crowd hides. HOLDFAST_BENCH_SECONDS=5

local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local WORKERS, START_UP = 32, 1.5
local SECONDS = tonumber(os.getenv("HOLDFAST_BENCH_SECONDS") or 5)
local EMPTY_BAR, SECTION_BAR, SHARE_BAR = 0.7, 0.85, 0.95

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

local function baseline(server, count)
  local child = process.start {
    "build/bench/handoff_baseline", "unix:" .. server.path, tostring(count), tostring(SECONDS),
  }
  local how, code = child:wait(SECONDS + 60)
  assert(how == "exit" and code == 0, child:output())
  return tonumber(child:output())
end

-- bar: applies to one processor
local function compare(server, where, name, section, bar)
  local alone = run(server, 1, section)
  local together, share = run(server, WORKERS, section)
  local relation = bar and ">=" or nil
  report.row(("one process, %s, %s, cycles/s"):format(name, where), alone, "%.0f")
  report.row(("%d processes, %s, %s, cycles/s"):format(WORKERS, name, where), together, "%.0f")
  report.row(("all to one, %s, %s"):format(name, where), together / alone, "%.3f", relation, bar)
  report.row(("least to fair share, %s, %s"):format(name, where), share, "%.3f", relation,
    SHARE_BAR)
  return together
end

local function measure(where, bars)
  local server = redis.start()
  local together = compare(server, where, "empty section", 0, bars and EMPTY_BAR)
  local bare = baseline(server, WORKERS)
  report.row(("bare hand-offs in C, %s, turns/s"):format(where), bare, "%.0f")
  report.row(("hand-offs to bare ones, %s"):format(where), together / bare, "%.3f")
  compare(server, where, "1 ms section", 0.001, bars and SECTION_BAR)
  server:stop()
end

assert(sys.pin(0, 0))
measure("one core", true)
assert(sys.pin(0, 0, 1))
measure("two cores", false)
