-- Locks that their client keeps: one caller that uses the same key again and again, against a bare
-- hiredis loop that asks the server each time; two processes of eight owners each on one key; and a
-- waiter in another process, while the lock is unused, and while a caller of the keeping client
-- holds it.
--
-- HOLDFAST_BENCH_SECONDS=0.5: the length of each round of two processes, with and without keep

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local CYCLES, BARE_CYCLES, ROUNDS, START_UP = 20000, 1000, 15, 1
local TWO_ROUNDS, PAUSE = 9, 0.25
local SECONDS = tonumber(os.getenv("HOLDFAST_BENCH_SECONDS") or 0.5)
local HOLD, WAITS = 0.02, 31
local OWN_BAR, TOTAL_BAR, SHARE_BAR, WAIT_BAR = 20, 3, 0.9, 0.003

local function cycles(lock, count)
  local start = process.now()
  for _ = 1, count do
    assert(lock:acquire(0))
    assert(lock:release())
  end
  return (process.now() - start) / count
end

local function commands_of_a_cycle(server, lock)
  cycles(lock, 10)
  local monitor = server:monitor()
  cycles(lock, 1)
  local file = assert(io.open(server.directory .. "/commands", "wb"))
  for _, entry in ipairs(monitor:commands()) do
    if not entry.script then
      file:write(#entry.args, "\n")
      for _, arg in ipairs(entry.args) do file:write(#arg, "\n", arg, "\n") end
    end
  end
  monitor:close()
  file:close()
  return server.directory .. "/commands"
end

local function bare(server, path)
  local run = process.start { "build/bench/baseline", "unix:" .. server.path, tostring(BARE_CYCLES),
    path }
  local how, code = run:wait(120)
  assert(how == "exit" and code == 0, run:output())
  return tonumber(run:output())
end

local function measure_own(server)
  local client = holdfast.new(server:url())
  local path = commands_of_a_cycle(server, client:lock("bench:plain"))
  local lock = client:lock("bench:keep", { keep = 10 })
  local ours, ratios = {}, {}
  for i = 1, ROUNDS do
    ours[i] = cycles(lock, CYCLES)
    ratios[i] = bare(server, path) / ours[i]
  end
  client:close()
  report.row("kept: acquire + release, µs", report.median(ours) * 1e6, "%.2f")
  report.row("rate to bare hiredis's, kept", report.median(ratios), "%.1f", ">=", OWN_BAR)
end

-- → for each round, the cycles of each process
local function cycles_of(worker, name)
  local list = {}
  for count in worker:output():gmatch(name .. " (%d+)") do list[#list + 1] = tonumber(count) end
  assert(#list == TWO_ROUNDS, worker:output())
  return list
end

local function run_two(server)
  local start, workers = process.now() + START_UP, {}
  for i = 1, 2 do
    workers[i] = process.lua {
      file = "bench/keep_worker.lua",
      args = { server:url(), ("%.6f"):format(start), SECONDS, PAUSE, TWO_ROUNDS, "0.1" },
    }
  end
  for _, worker in ipairs(workers) do
    worker:wait(START_UP + 2 * TWO_ROUNDS * (SECONDS + PAUSE) + 60)
  end
  return workers
end

local function measure_two(server)
  local workers = run_two(server)
  local a, b = cycles_of(workers[1], "without"), cycles_of(workers[2], "without")
  local kept_a, kept_b = cycles_of(workers[1], "kept"), cycles_of(workers[2], "kept")
  local without, kept, ratios, shares = {}, {}, {}, {}
  for i = 1, TWO_ROUNDS do
    without[i], kept[i] = a[i] + b[i], kept_a[i] + kept_b[i]
    ratios[i] = kept[i] / without[i]
    shares[i] = math.min(kept_a[i], kept_b[i]) / (kept[i] / 2)
  end
  local rate, kept_rate = report.median(without) / SECONDS, report.median(kept) / SECONDS
  report.row("two processes of 8 owners, cycles/s", rate, "%.0f")
  report.row("two processes of 8 owners, keep = 0.1, cycles/s", kept_rate, "%.0f")
  report.row("kept to not kept", report.median(ratios), "%.2f", ">=", TOTAL_BAR)
  report.row("least to fair share, kept", report.median(shares), "%.3f", ">=", SHARE_BAR)
end

-- A waiter in another client, while the lock is kept and unused.
local function measure_wait(server)
  local keeper = holdfast.new(server:url())
  local kept = keeper:lock("bench:wait", { keep = 30 })
  local client, waits = holdfast.new(server:url()), {}
  local lock = client:lock("bench:wait")
  for i = 1, WAITS do
    assert(kept:acquire(10))
    assert(kept:release())
    local start = process.now()
    assert(lock:acquire(10))
    waits[i] = process.now() - start
    assert(lock:release())
  end
  keeper:close()
  client:close()
  report.row("a waiter elsewhere, of an unused lock, ms", report.median(waits) * 1e3, "%.2f", "<=", WAIT_BAR * 1e3)
end

-- URL HOLD SECONDS: holds the lock again and again, immediately after each release. Prints when
-- each hold began and ended.
local HOLDER = [[
local holdfast, process = require "holdfast", require "spec.support.process"
local client = holdfast.new(arg[1])
local lock = client:lock("bench:holds", { keep = 30 })
local stop = process.now() + arg[3]
local lines = {}
print "ready"
io.stdout:flush()
while process.now() < stop do
  assert(lock:acquire(30))
  local from = process.now()
  process.sleep(tonumber(arg[2]))
  lines[#lines + 1] = ("hold %.6f %.6f"):format(from, process.now())
  assert(lock:release())
end
client:close()
print(table.concat(lines, "\n"))
]]

-- → when the hold under way at this time ended | nil
local function end_of_hold(holds, time)
  for _, hold in ipairs(holds) do
    if hold.from <= time and time < hold.to then return hold.to end
  end
end

-- A waiter in another client that comes during a hold, sometimes early in it, sometimes late.
local function measure_wait_of_hold(server)
  local seconds = WAITS * HOLD * 4
  local holder = process.lua { code = HOLDER, args = { server:url(), HOLD, seconds } }
  assert(holder:wait_output("ready", 20), holder:output())
  local client, waits = holdfast.new(server:url()), {}
  local lock = client:lock("bench:holds")
  for i = 1, WAITS do
    process.sleep(HOLD * (1 + i % 10 / 10))
    local asked = process.now()
    assert(lock:acquire(30))
    waits[i] = { asked = asked, got = process.now() }
    assert(lock:release())
  end
  client:close()
  holder:wait(seconds + 60)
  local holds, beyond = {}, {}
  for from, to in holder:output():gmatch("hold (%S+) (%S+)") do
    holds[#holds + 1] = { from = tonumber(from), to = tonumber(to) }
  end
  for _, wait in ipairs(waits) do
    local stop = end_of_hold(holds, wait.asked)
    if stop then beyond[#beyond + 1] = wait.got - stop end
  end
  assert(#beyond > WAITS / 2, "the waiter came to few holds: " .. holder:output():sub(-500))
  report.row(("a waiter elsewhere, beyond a hold of %g ms, ms"):format(HOLD * 1e3),
    report.median(beyond) * 1e3, "%.2f", "<=", WAIT_BAR * 1e3)
end

assert(sys.pin(0, 0))
local server = redis.start()
measure_own(server)
measure_two(server)
measure_wait(server)
measure_wait_of_hold(server)
server:stop()
