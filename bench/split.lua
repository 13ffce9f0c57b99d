-- Where the time of a free cycle, and of a hand-off among 33 processes, is spent, compared to a
-- bare loop in C that hands on a place in a list: commands inside the scripts, the scripts around
-- them, the server around those, the clients. On one processor; bench/hand_off.md quotes the sums.

local cost = require "bench.cost"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local OWNERS, ROUNDS = 33, 3
local SECONDS = tonumber(os.getenv("HOLDFAST_BENCH_SECONDS") or 4)

local function snapshot(server)
  local calls, usec = cost.stats(server)
  return { calls = calls, usec = usec, processor = cost.processor(server), at = process.now() }
end

-- → the differences of the two for each call of the command `per`, in µs
local function parts(before, after, per)
  local count = after.calls[per] - (before.calls[per] or 0)
  local commands, inside = 0, 0
  local function more(of, name) return after[of][name] - (before[of][name] or 0) end
  for name in pairs(after.calls) do
    if name ~= "evalsha" and name ~= "info" then
      commands, inside = commands + more("calls", name), inside + more("usec", name)
    end
  end
  local scripts = more("usec", "evalsha")
  local server, all = (after.processor - before.processor) * 1e6, (after.at - before.at) * 1e6
  return {
    ["commands inside the scripts"] = commands / count, ["inside the scripts, µs"] = inside / count,
    ["the scripts around them, µs"] = (scripts - inside) / count,
    ["the server around the scripts, µs"] = (server - scripts) / count,
    ["clients, µs"] = (all - server) / count, ["sum, µs"] = all / count,
  }
end

local function during(server, per)
  local before = snapshot(server)
  process.sleep(SECONDS)
  return parts(before, snapshot(server), per)
end

local function cycles(owners)
  local server = redis.start()
  local start, workers = process.now() + 1 + owners / 50, {}
  for i = 1, owners do
    workers[i] = process.lua {
      file = "bench/contended_worker.lua",
      args = { server:url(), ("%.6f"):format(start), ("%.6f"):format(start + SECONDS + 2), 0 },
    }
  end
  process.sleep(math.max(0, start + 1 - process.now()))
  local split = during(server, "hdel")
  for _, worker in ipairs(workers) do worker:wait(60) end
  server:stop()
  return split
end

local function bare()
  local server = redis.start()
  local child = process.start { "build/bench/handoff_baseline", "unix:" .. server.path, tostring(OWNERS),
    tostring(SECONDS + 3) }
  process.sleep(2.5)
  local split = during(server, "lpop")
  child:wait(60)
  server:stop()
  return split
end

local FIGURES = { "commands inside the scripts", "inside the scripts, µs", "the scripts around them, µs",
  "the server around the scripts, µs", "clients, µs", "sum, µs" }

assert(sys.pin(0, 0))
local rounds = {}
for i = 1, ROUNDS do
  rounds[i] = { ["free cycle"] = cycles(1), ["hand-off"] = cycles(OWNERS), ["bare hand-off"] = bare() }
end
for _, what in ipairs { "free cycle", "hand-off", "bare hand-off" } do
  for _, figure in ipairs(FIGURES) do
    local values = {}
    for i = 1, ROUNDS do values[i] = rounds[i][what][figure] end
    report.row(("%s, %s"):format(what, figure), report.median(values), "%.1f")
  end
end
